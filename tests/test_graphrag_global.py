"""GraphRAG over summaries: map, reduce, what they cite, when the hybrid mode goes which way."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import dspy
import pytest
from stated_facts import stated_facts

from ga_dspy import Index, Passage, extractive_lm
from ga_dspy.graph import GraphUpdate
from ga_dspy.graphrag import CorpusGraph, build_graph
from ga_dspy.graphrag.communities import (
    Community,
    Summary,
    Topic,
    find_communities,
    topics_at,
    topics_of,
)
from ga_dspy.graphrag.program import GraphRAG, best_points, is_global, read_points
from ga_dspy.graphrag.search import GraphIndex
from ga_dspy.programs.prediction import as_json
from ga_dspy.testing import CutOff, Reply, asked_fields, scripted_lm
from ga_dspy.text import estimate_tokens

TEXTS = {
    "marlow": ("Ines Marlow", "Ines Marlow is a printer. She was born in Tavira."),
    "press": ("Gilão Press", "Ines Marlow runs Gilão Press. It prints novels in Tavira."),
    "dam": ("Alva Dam", "The Alva Dam holds the Alva. It feeds the mill at Penha."),
    "mill": ("Penha Mill", "Penha Mill grinds rye. The Alva drives it."),
    "harbour": ("Viken", "Viken is a harbour. The ferry Ellida sails from Viken."),
}
PASSAGES = {id: Passage(id=id, title=title, text=text) for id, (title, text) in TEXTS.items()}
FACTS = {
    "marlow": [("Ines Marlow", "was born in", "Tavira")],
    "press": [("Ines Marlow", "runs", "Gilão Press"), ("Gilão Press", "prints in", "Tavira")],
    "dam": [("Alva Dam", "holds", "Alva"), ("Alva Dam", "feeds", "Penha")],
    "mill": [("Alva", "drives", "Penha Mill")],
    "harbour": [("Ellida", "sails from", "Viken")],
}
PRINTING = "Ines Marlow runs Gilão Press in Tavira."
WATER = "The Alva Dam holds the Alva, which drives Penha Mill."
FERRY = "The ferry Ellida sails from Viken."
MAIN = "What are the main trades of the region?"
WHO = "Where was Ines Marlow born?"
POINTS = {"points": f"- {WATER} [1] (90)\n- {PRINTING} [2] (60)\n- Nothing else [3] (0)"}
OVERVIEW = {"verdict": "answered", "cited": "1", "answer": "Milling by water: the Alva drives it."}
ONE_EACH: dict[str, Any] = {"passage_tokens": 150, "count": lambda text: 10 * len(text.split())}
"""Settings under which a prompt holds one summary."""
BORN = {"verdict": "answered", "cited": "1, 2, 3, 4, 5", "answer": "Tavira"}


def stated(id: str) -> GraphUpdate:
    return stated_facts(PASSAGES[id], FACTS[id])


def topic(graph: CorpusGraph, place: int, title: str, text: str, *names: str) -> Topic:
    nodes = tuple(node for name in names for node in graph.find(name))
    ends = zip(graph.heads.tolist(), graph.tails.tolist(), strict=True)
    edges = tuple(i for i, pair in enumerate(ends) if set(pair) <= set(nodes))
    return Topic(place, Community(f"key-{title}", 0, -1, nodes, edges), title, text)


@cache
def world() -> GraphIndex:
    graph = CorpusGraph.of({id: stated(id) for id in FACTS})
    topics = (
        topic(graph, 0, "Printing", PRINTING, "Ines Marlow", "Gilão Press", "Tavira"),
        topic(graph, 1, "Water", WATER, "Alva Dam", "Alva", "Penha", "Penha Mill"),
        topic(graph, 2, "Ferries", FERRY, "Ellida", "Viken"),
    )
    index = Index.from_passages(PASSAGES.values(), encoder="hash-64")
    return GraphIndex(index, graph, topics=topics)


def shown(prompt: str, field: str) -> str:
    """The value of a field in the last message of a prompt."""
    behind = prompt.rpartition(f"[[ ## {field} ## ]]\n")[2]
    return behind.partition("\n\n[[ ##")[0]


def ask(question: str, script: Sequence[Reply], **settings: Any) -> tuple[Any, list[str]]:
    """The prediction and the prompts."""
    lm = scripted_lm(script)
    with dspy.context(lm=lm):
        prediction = GraphRAG(world(), **{"mode": "global", **settings})(question=question)
    return prediction, lm.engine.prompts


def test_the_answer_is_written_from_points_collected_from_all_summaries() -> None:
    prediction, prompts = ask(MAIN, [POINTS, OVERVIEW])
    assert len(prompts) == prediction.calls == 2
    documents = shown(prompts[0], "documents")
    assert "[1] Water\n" in documents and "[2] Printing\n" in documents and FERRY in documents
    assert shown(prompts[1], "notes") == f"- {WATER} [1]\n- {PRINTING} [2]"
    assert WATER not in shown(prompts[1], "question")
    assert prediction.answer == OVERVIEW["answer"]
    assert list(prediction.usage) == ["collect", "answer"]


def test_topics_are_ordered_by_shared_words_then_size() -> None:
    _, prompts = ask("What are the main ferry lines?", [POINTS, OVERVIEW])
    assert shown(prompts[0], "documents").startswith("[1] Ferries\n")


def test_summaries_are_read_in_as_many_calls_as_the_budget_requires() -> None:
    one = {"points": f"- {WATER} [1]"}
    two = {"points": f"- {PRINTING} [2] (80)"}
    prediction, prompts = ask(MAIN, [one, two, {"points": ""}, OVERVIEW], **ONE_EACH)
    first, second, third = (shown(prompt, "documents") for prompt in prompts[:3])
    assert [re.findall(r"^\[(\d)\]", text, re.M) for text in (first, second, third)] == [
        ["1"], ["2"], ["3"],
    ]  # fmt: skip
    assert shown(prompts[3], "notes") == f"- {PRINTING} [2]\n- {WATER} [1]"
    assert prediction.steps[0].rule == "about the whole corpus: 3 of 3 summaries were read"


def test_the_number_of_summary_calls_is_capped_and_the_rest_is_counted() -> None:
    prediction, prompts = ask(MAIN, [POINTS, OVERVIEW], **ONE_EACH, batches=1)
    assert len(prompts) == 2
    assert prediction.steps[0].rule == "about the whole corpus: 1 of 3 summaries were read"


def test_a_token_budget_ends_the_reading_of_summaries() -> None:
    replies = [POINTS, OVERVIEW]
    prediction, prompts = ask(MAIN, replies, **ONE_EACH, token_budget=2500)
    assert len(prompts) == 2 and prediction.tokens <= 2500


def test_the_passages_of_cited_communities_are_the_evidence() -> None:
    prediction, _ = ask(MAIN, [POINTS, OVERVIEW])
    assert prediction.communities == ("key-Water",)
    assert set(prediction.cited) == {"dam", "mill"} == {p.id for p in prediction.passages}
    assert prediction.supported == "quoted"
    quotes = {link.passage_id: link.quote for link in prediction.evidence}
    assert quotes["mill"] == "The Alva drives it."
    assert {r.relation for r in prediction.graph.relations} == {"holds", "feeds", "drives"}
    assert prediction.steps[0].passage_ids == tuple(p.id for p in prediction.passages)
    assert prediction.notes.startswith(f"- {WATER} [1]")


def test_evidence_passages_are_spread_over_the_cited_communities() -> None:
    prediction, _ = ask(MAIN, [POINTS, OVERVIEW | {"cited": "1, 2"}], k=2)
    assert len(prediction.communities) == 2
    assert len({"dam", "mill"} & set(prediction.cited)) == 1
    assert len({"marlow", "press"} & set(prediction.cited)) == 1


@pytest.mark.parametrize("reply", [{"cited": "9"}, {"cited": ""}, {"verdict": "not in passages"}])
def test_an_answer_without_a_valid_citation_is_unsupported(
    reply: dict[str, str],
) -> None:
    prediction, _ = ask(MAIN, [POINTS, OVERVIEW | reply], abstain="quoted")
    assert not prediction.supported and prediction.answer == "" and prediction.evidence == ()


@pytest.mark.parametrize("mode", ["global", "hybrid"])
def test_a_global_answer_is_quoted_and_never_chained(mode: Any) -> None:
    prediction, _ = ask(MAIN, [POINTS, OVERVIEW], mode=mode, abstain="chained")
    assert (prediction.supported, prediction.answer) == ("quoted", "")
    assert prediction.guess == OVERVIEW["answer"] and prediction.evidence


def test_a_global_yes_is_not_quoted() -> None:
    prediction, _ = ask(MAIN, [POINTS, OVERVIEW | {"answer": "Yes, by water."}])
    assert (prediction.supported, prediction.evidence) == (None, ())


@pytest.mark.parametrize(
    ("said", "verdict"),
    [
        ({"cited": "1"}, "answered"),
        ({"verdict": "surely", "cited": "1"}, "answered"),
        ({}, "not in passages"),
    ],
)
def test_a_missing_verdict_is_decided_by_the_citations(said: dict[str, str], verdict: str) -> None:
    prediction, _ = ask(MAIN, [POINTS, {"answer": OVERVIEW["answer"], **said}])
    assert (prediction.verdict, prediction.answer) == (verdict, OVERVIEW["answer"])


def test_a_failed_answer_step_is_reported_and_the_points_are_kept() -> None:
    prediction, _ = ask(MAIN, [POINTS, RuntimeError("no route to host")])
    assert (prediction.answer, prediction.verdict) == ("", "not in passages")
    assert "no route to host" in prediction.failures[0]
    assert prediction.notes.startswith(f"- {WATER} [1]")


def test_an_lm_error_on_every_call_is_raised() -> None:
    outage = RuntimeError("no route to host")
    with pytest.raises(Exception, match="no route to host"):
        ask(MAIN, [outage] * 9)


def test_an_unusable_summary_call_is_reported_and_the_others_count() -> None:
    one, two = {"points": f"- {WATER} [1]"}, {"points": f"- {FERRY} [3]"}
    script: list[Reply] = [one, CutOff("- The Al"), CutOff("- The Al"), two, OVERVIEW]
    prediction, prompts = ask(MAIN, script, **ONE_EACH)
    assert shown(prompts[-1], "notes") == f"- {WATER} [1]\n- {FERRY} [3]"
    assert "the collect step got no usable output" in prediction.failures[0]


def test_asyncio_gives_the_same_prediction_from_the_same_prompts() -> None:
    first, second = scripted_lm([POINTS, OVERVIEW]), scripted_lm([POINTS, OVERVIEW])
    program = GraphRAG(world(), mode="global")
    with dspy.context(lm=first):
        sync = program(question=MAIN)
    with dspy.context(lm=second):
        later = asyncio.run(program.acall(question=MAIN))
    assert first.engine.prompts == second.engine.prompts
    untimed = {"seconds": None}
    assert as_json(sync) | untimed == as_json(later) | untimed


def test_hybrid_mode_adds_the_summaries_around_the_named_entities() -> None:
    prediction, prompts = ask(WHO, [BORN], mode="hybrid")
    assert shown(prompts[0], "summaries") == f"Printing: {PRINTING}"
    assert "Ines Marlow -> was born in -> Tavira" in shown(prompts[0], "graph")
    assert prediction.communities == ("key-Printing",)
    assert prediction.answer == "Tavira" and prediction.evidence[0].tail == "Tavira"


def test_without_summaries_the_hybrid_prompt_is_the_local_one() -> None:
    _, hybrid = ask(WHO, [BORN], mode="hybrid", summaries=0)
    _, local = ask(WHO, [BORN], mode="local")
    assert hybrid == local


def test_hybrid_mode_answers_a_global_question_without_names_globally() -> None:
    prediction, prompts = ask(MAIN, [POINTS, OVERVIEW], mode="hybrid")
    assert len(prompts) == 2 and prediction.communities == ("key-Water",)
    assert list(prediction.usage) == ["collect", "combine"]


def test_hybrid_mode_answers_a_named_entity_or_a_plain_question_locally() -> None:
    for question in ("What are the main works of Ines Marlow?", "Who printed the atlas?"):
        prediction, prompts = ask(question, [BORN], mode="hybrid")
        assert len(prompts) == 1 and prediction.notes == ""


@pytest.mark.parametrize(
    ("question", "asks"),
    [
        (MAIN, True),
        ("Summarise the documents.", True),
        ("Which topics come up overall?", True),
        (WHO, False),
        ("Who wrote the novel?", False),
    ],
)
def test_global_questions_are_recognised_by_their_words(question: str, asks: bool) -> None:
    assert is_global(question) is asks


@pytest.mark.parametrize(
    "line",
    [
        "- The Alva drives it [2,3] (70)",
        "The Alva drives it (70) [2, 3].",
        "1. The Alva drives it [3][2] (helpfulness: 70)",
        "* The Alva drives it [2] (70/100) [3]",
    ],
)
def test_a_point_is_parsed_in_any_list_style(line: str) -> None:
    summaries = {2: PASSAGES["mill"], 3: PASSAGES["dam"]}
    (point,) = read_points(line, summaries)
    assert point.text == "The Alva drives it" and point.rating == 70
    assert sorted(point.labels) == [2, 3]


def test_a_point_without_a_citation_is_assigned_to_the_summary_that_mentions_it() -> None:
    summaries = {2: PASSAGES["harbour"], 3: PASSAGES["mill"]}
    points = read_points("Penha Mill\n- the moon is far", summaries)
    assert [(p.text, p.labels, p.rating) for p in points] == [("Penha Mill", (3,), 50)]


@pytest.mark.parametrize("reply", ["", "none", "(empty)", "- nothing [2] (0)"])
def test_a_reply_without_points_gives_none(reply: str) -> None:
    assert read_points(reply, {2: PASSAGES["mill"]}) == ()


def test_the_highest_rated_points_fill_the_budget_without_duplicates() -> None:
    text = "- a long point about rye [2] (10)\n- short [2] (90)\n- short [2] (20)"
    points = read_points(text, {2: PASSAGES["mill"]})
    assert best_points(points, 8, estimate_tokens) == "- short [2]"


def test_a_level_includes_coarser_topics_without_children() -> None:
    def at(place: int, level: int, parent: int) -> Topic:
        return Topic(place, Community(str(place), level, parent, (), ()), "", "")

    topics = (at(0, 0, -1), at(1, 0, -1), at(2, 1, 0), at(3, 1, 0), at(4, 2, 3))
    places = [[t.place for t in topics_at(topics, level)] for level in (0, 1, 2, 9)]
    assert places == [[0, 1], [1, 2, 3], [1, 2, 4], [1, 2, 4]]


def test_a_community_without_a_summary_is_skipped_and_others_keep_their_numbers() -> None:
    communities = find_communities(world().graph)
    assert len(communities) == 2
    summaries: dict[str, Summary | str] = {
        communities[0].key: "StepFailed: …",
        communities[1].key: Summary(title="t", text="x"),
    }
    (kept,) = topics_of(communities, summaries)
    assert (kept.place, kept.title) == (1, "t")


def builder(prompt: str) -> Reply:
    """Extracts the facts above, and summarises a community by its first relation."""
    if "summary" in asked_fields(prompt):
        first = re.findall(r"^- (.+?) ->", shown(prompt, "graph"), re.M)[0]
        return {"title": first, "summary": f"It is about {first}."}
    id = next(id for id, p in PASSAGES.items() if f"[1] {p.title}\n" in shown(prompt, "passages"))
    return {"additions": "\n".join(f"- {h} -> {r} -> {t} [1]" for h, r, t in FACTS[id])}


def test_a_stored_graph_is_summarised_once(tmp_path: Path) -> None:
    index = Index.build(PASSAGES.values(), tmp_path / "index", encoder="hash-64")
    build_graph(index, tmp_path / "graph", lm=scripted_lm(builder))
    folders = (tmp_path / "index", tmp_path / "graph")
    assert GraphIndex.open(*folders).topics == ()
    first = scripted_lm(builder)
    opened = GraphIndex.open(*folders, summaries=True, lm=first)
    assert sorted(topic.title for topic in opened.topics) == ["Alva Dam", "Ines Marlow"]
    again = scripted_lm([])
    assert GraphIndex.open(*folders, summaries=True, lm=again).topics == opened.topics
    assert len(first.engine.prompts) == 2 and again.engine.prompts == []
    with dspy.context(lm=scripted_lm([BORN])):
        prediction = GraphRAG(opened, mode="hybrid")(question=WHO)
    assert prediction.answer == "Tavira" and len(prediction.communities) == 1


def test_the_embedded_lm_answers_a_global_question_from_the_summaries() -> None:
    with dspy.context(lm=extractive_lm()):
        prediction = GraphRAG(world(), mode="global")(
            question="Overall, which river drives a mill?"
        )
    assert prediction.answer and prediction.answer in WATER
    assert prediction.cited and prediction.communities == ("key-Water",)
