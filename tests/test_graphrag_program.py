"""GraphRAG, local: what each prompt is shown, what is cited, what is saved and compiled."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import dspy
import pytest
from stated_facts import stated_facts

from ga_dspy import Index, Passage, extractive_lm
from ga_dspy.artifact import load, save
from ga_dspy.demo import corpus
from ga_dspy.errors import InputError
from ga_dspy.eval.result import Result
from ga_dspy.eval.scores import triple_score
from ga_dspy.graph import Evidence, GraphUpdate, Relation
from ga_dspy.graphrag import CorpusGraph
from ga_dspy.graphrag.program import GraphRAG
from ga_dspy.graphrag.search import GraphIndex
from ga_dspy.optimize import compile, recipe
from ga_dspy.programs import VanillaRAG
from ga_dspy.programs.prediction import as_json
from ga_dspy.testing import Reply, scripted_lm
from ga_dspy.text import mentions

TEXTS = {
    "marlow": ("Ines Marlow", "Ines Marlow is a printer who was born in Tavira."),
    "tavira": ("Tavira", "The river Gilão flows past Tavira, which lies on it."),
    "salt": ("The Salt Road", "The Salt Road is a novel that Ines Marlow printed."),
    "brandt": ("Otto Brandt", "Otto Brandt wrote The Salt Road in Aarhus."),
    "aarhus": ("Aarhus", "Aarhus is a port on the river Aarhus Å."),
    "douro": ("Douro", "The Douro reaches the sea at Porto."),
}
PASSAGES = {id: Passage(id=id, title=title, text=text) for id, (title, text) in TEXTS.items()}
FACTS = {
    "marlow": [("Ines Marlow", "was born in", "Tavira")],
    "tavira": [("Tavira", "lies on", "Gilão")],
    "salt": [("Ines Marlow", "printed", "The Salt Road")],
    "brandt": [("Otto Brandt", "wrote", "The Salt Road"), ("Otto Brandt", "lived in", "Aarhus")],
    "aarhus": [("Aarhus", "lies on", "Aarhus Å")],
    "douro": [("Douro", "reaches the sea at", "Porto")],
}
QUESTION = "Which river flows past the birthplace of Ines Marlow?"
BETWEEN = "How is Ines Marlow connected to Otto Brandt?"
UNKNOWN = "Who wrote Voyage to Laputa?"
GILAO = {"verdict": "answered", "links": "[1, 2, 3, 4, 5]", "answer": "Gilão"}


def stated(id: str) -> GraphUpdate:
    return stated_facts(PASSAGES[id], FACTS[id])


@cache
def world() -> GraphIndex:
    graph = CorpusGraph.of({id: stated(id) for id in FACTS})
    return GraphIndex(Index.from_passages(PASSAGES.values(), encoder="hash-64"), graph)


def shown(prompt: str, field: str) -> str:
    """The value of a field in the last message of a prompt."""
    behind = prompt.rpartition(f"[[ ## {field} ## ]]\n")[2]
    return behind.partition("\n\n[[ ##")[0]


def ask(question: str, script: Sequence[Reply], **settings: Any) -> tuple[Any, list[str]]:
    """The prediction and the prompts."""
    lm = scripted_lm(script)
    with dspy.context(lm=lm):
        prediction = GraphRAG(world(), **settings)(question=question)
    return prediction, lm.engine.prompts


def labels_of(prediction: Any) -> dict[str, int]:
    return {passage.id: n for n, passage in enumerate(prediction.passages, 1)}


def test_one_call_gets_the_facts_around_the_named_entities_with_citations() -> None:
    prediction, prompts = ask(QUESTION, [GILAO])
    assert len(prompts) == prediction.calls == 1
    graph, numbers = shown(prompts[0], "graph"), labels_of(prediction)
    born = f"Ines Marlow -> was born in -> Tavira [{numbers['marlow']}]"
    assert born in graph and "Tavira -> lies on -> Gilão" in graph
    assert "Douro" not in graph
    assert f"[{numbers['marlow']}] Ines Marlow\n" in shown(prompts[0], "passages")


def test_facts_of_one_subject_are_grouped() -> None:
    _, prompts = ask(BETWEEN, [GILAO], hops=3)
    heads = re.findall(r"^- (.*?) ->", shown(prompts[0], "graph"), re.MULTILINE)
    assert len(heads) > len(set(heads))
    assert [a for a, b in zip(heads, [*heads[1:], ""], strict=True) if a != b] == list(
        dict.fromkeys(heads)
    )


def test_paths_between_two_named_entities_are_shown_with_directions_and_passages() -> None:
    prediction, prompts = ask(BETWEEN, [GILAO])
    numbers = labels_of(prediction)
    cited = ",".join(map(str, sorted((numbers["salt"], numbers["brandt"]))))
    chain = f"Ines Marlow → printed → The Salt Road ← wrote ← Otto Brandt [{cited}]"
    assert f"Paths:\n{chain}" in shown(prompts[0], "graph")
    assert "Paths:" not in shown(ask(BETWEEN, [GILAO], paths=0)[1][0], "graph")


def test_the_answer_has_a_chain_whose_links_quote_their_passages() -> None:
    prediction, _ = ask(QUESTION, [GILAO], k=5)
    assert prediction.supported
    chain = [(link.head, link.relation, link.tail) for link in prediction.evidence]
    assert chain == [("Ines Marlow", "was born in", "Tavira"), ("Tavira", "lies on", "Gilão")]
    assert [link.passage_id for link in prediction.evidence] == ["marlow", "tavira"]


def test_a_chain_link_quotes_its_passage_even_if_it_was_not_retrieved() -> None:
    prediction, _ = ask("Where was Ines Marlow born?", [GILAO | {"answer": "Tavira"}], k=1)
    read = {passage.id for passage in prediction.passages}
    (link,) = prediction.evidence
    assert (link.head, link.tail) == ("Ines Marlow", "Tavira")
    assert len(read) == 1 and link.quote


def test_without_facts_and_paths_the_prompt_is_that_of_vanilla_rag() -> None:
    prediction, _ = ask(QUESTION, [GILAO], facts=0, paths=0)
    plain = GraphRAG(world(), facts=0, paths=0).answer.signature
    assert plain.equals(VanillaRAG(world()).answer.signature)
    assert not prediction.graph.relations and not prediction.graph.entities


def test_with_paths_only_the_graph_is_the_paths() -> None:
    prediction, prompts = ask(BETWEEN, [GILAO], facts=0)
    assert shown(prompts[0], "graph").startswith("Paths:\nInes Marlow → printed")
    assert {r.relation for r in prediction.graph.relations} == {"printed", "wrote"}


def test_the_number_of_facts_is_limited_by_the_setting_and_the_budget() -> None:
    prediction, _ = ask(QUESTION, [GILAO], facts=1, paths=0)
    assert len(prediction.graph.relations) == 1
    _, prompts = ask(BETWEEN, [GILAO], graph_tokens=50, hops=4)
    assert len(shown(prompts[0], "graph")) < len(
        shown(ask(BETWEEN, [GILAO], hops=4)[1][0], "graph")
    )


def test_a_question_unknown_to_the_graph_still_finds_passages() -> None:
    prediction, prompts = ask(UNKNOWN, [GILAO | {"verdict": "not in passages"}])
    assert prediction.gap and len(prediction.passages) == 5
    assert prediction.steps[0].rule == (
        "the graph has no name of the question: entities were linked by meaning"
    )
    assert len(shown(prompts[0], "passages")) > 100


def test_asyncio_and_threads_give_the_same_prediction_from_the_same_prompts() -> None:
    first, second = scripted_lm([GILAO]), scripted_lm([GILAO])
    program = GraphRAG(world())
    with dspy.context(lm=first):
        sync = program(question=QUESTION)
    with dspy.context(lm=second):
        later = asyncio.run(program.acall(question=QUESTION))
    assert first.engine.prompts == second.engine.prompts
    untimed = {"seconds": None}
    assert as_json(sync) | untimed == as_json(later) | untimed


def test_seconds_are_reported_per_part_including_the_lm() -> None:
    prediction, _ = ask(QUESTION, [GILAO])
    assert list(prediction.seconds) == ["linking", "expansion", "ranking", "passages", "lm"]
    assert all(seconds >= 0 for seconds in prediction.seconds.values())
    assert prediction.seconds["lm"] > 0


def test_a_plain_retriever_is_refused_with_a_remedy() -> None:
    program = GraphRAG(world().index)
    with pytest.raises(InputError, match=r"GraphRAG is Index; .* GraphIndex\.open\(index_folder"):
        program(question=QUESTION)


def test_modes_that_need_summaries_are_refused_without_them() -> None:
    with pytest.raises(InputError, match="mode='hybrid' needs summaries"):
        ask(QUESTION, [], mode="hybrid")
    with pytest.raises(InputError, match="mode='global' needs summaries"):
        ask(QUESTION, [], mode="global")


@pytest.mark.parametrize("wrong", [{"mode": "both"}, {"paths": -1}, {"hops": 0}])
def test_invalid_settings_are_refused(wrong: Mapping[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(wrong))):
        GraphRAG(world(), **wrong)


def test_a_prediction_gives_a_trace_and_the_coverage_of_gold_triples() -> None:
    prediction, _ = ask(QUESTION, [GILAO])
    triples = (("Ines Marlow", "place of birth", "Tavira"), ("Tavira", "river", "Gilão"))
    example = dspy.Example(
        id="q", question=QUESTION, answer="Gilão", gold_titles=("Tavira",), evidences=triples
    )
    result = Result.from_prediction(example, prediction)
    coverage, chain = (triple_score(of, triples) for of in (result.triples, result.chain))
    assert coverage is not None and coverage.recall == 1.0
    assert chain is not None and chain.f1 == 1.0
    (step,) = result.trace
    assert step.hit and step.relations >= 2 and "Tavira" in step.graph
    assert "Ines Marlow -> was born in -> Tavira" in step.graph


def test_copies_share_the_retriever_of_the_program() -> None:
    assert [passage.id for passage in world()("Ines Marlow", 1)] == ["marlow"]
    copied = GraphRAG(world()).deepcopy()
    assert copied.graph_index is world()


def test_the_fingerprint_changes_with_the_graph_and_with_the_passages() -> None:
    graph = CorpusGraph.of({id: stated(id) for id in FACTS if id != "douro"})
    smaller = GraphIndex(world().index, graph)
    fewer = Index.from_passages([PASSAGES["marlow"]], encoder="hash-64")
    marks = {world().fingerprint, smaller.fingerprint, GraphIndex(fewer, graph).fingerprint}
    assert len(marks) == 3
    again = CorpusGraph.of({id: stated(id) for id in reversed(FACTS)})
    assert GraphIndex(world().index, again).fingerprint == world().fingerprint


ROWS = [
    dspy.Example(id=question, question=question, answer=answer, answers=(answer,)).with_inputs(
        "question"
    )
    for question, answer in (
        (QUESTION, "Gilão"),
        ("Where was Ines Marlow born?", "Tavira"),
        ("Who wrote The Salt Road?", "Otto Brandt"),
        ("Where did Otto Brandt live?", "Aarhus"),
        ("On which river does Aarhus lie?", "Aarhus Å"),
        ("Where does the Douro reach the sea?", "Porto"),
    )
]


def wordy_without_demos(prompt: str) -> Reply:
    question = shown(prompt, "question")
    answer = next(row.answer for row in ROWS if row.question == question)
    taught = sum(row.question in prompt for row in ROWS) > 1
    # Of the training questions one is answered well enough to become a demo.
    said = answer if taught or question == QUESTION else f"it seems to be {answer}"
    return {"verdict": "answered", "links": "[1, 2, 3]", "answer": said}


@pytest.mark.parametrize("name", ["labeled", "bootstrap"])
def test_a_compiled_program_is_loaded_from_its_artifact_with_its_demos(
    name: str, tmp_path: Path
) -> None:
    outcome = compile(
        GraphRAG(world(), k=3),
        recipe(name, demos=2),
        ROWS[:4],
        ROWS[4:],
        lm=scripted_lm(wordy_without_demos),
        out=tmp_path,
        threads=1,
    )
    assert outcome.before.f1 < outcome.after.f1 == 100.0
    loaded = load(outcome.artifact, retriever=world())
    assert isinstance(loaded, GraphRAG)
    assert loaded.settings() == GraphRAG(world(), k=3).settings()
    lm = scripted_lm(wordy_without_demos)
    with dspy.context(lm=lm):
        assert loaded(question="Where does the Douro reach the sea?").answer == "Porto"
    assert any(row.question in lm.engine.prompts[0] for row in ROWS[:4])


@pytest.mark.parametrize("mode", ["local", "global", "hybrid"])
def test_a_program_of_every_mode_survives_saving_and_loading(mode: Any, tmp_path: Path) -> None:
    program = GraphRAG(world(), mode=mode, facts=3)
    save(program, tmp_path / "kept")
    loaded = load(tmp_path / "kept", retriever=world())
    assert loaded.settings() == program.settings()
    asked_for = [(name, p.signature.instructions) for name, p in program.named_predictors()]
    assert [(n, p.signature.instructions) for n, p in loaded.named_predictors()] == asked_for


@cache
def demo_world() -> GraphIndex:
    """A part of the demo corpus's graph, made by hand."""
    passages = {passage.id: passage for passage in corpus()}
    facts = {
        "d001": ("Apollo 11", "was launched by", "Saturn V"),
        "d002": ("Saturn V", "was developed under", "Wernher von Braun"),
        "d003": ("Wernher von Braun", "was born in", "Wirsitz"),
    }
    records = {}
    for id, (head, relation, tail) in facts.items():
        place = mentions(tail, passages[id].content)[0]
        evidence = (Evidence(passage=id, start=place.start, end=place.end),)
        records[id] = GraphUpdate(
            relations=(Relation(head=head, relation=relation, tail=tail, evidence=evidence),)
        )
    index = Index.from_passages(passages.values(), encoder="hash-256")
    return GraphIndex(index, CorpusGraph.of(records))


def test_the_embedded_lm_answers_over_the_demo_corpus_with_a_chain() -> None:
    question = "In which town was the man born under whom the Saturn V was developed?"
    with dspy.context(lm=extractive_lm()):
        prediction = GraphRAG(demo_world(), hops=3)(question=question)
    assert prediction.answer == "Wirsitz" and prediction.supported
    assert ("Wernher von Braun", "was born in", "Wirsitz") in [
        (link.head, link.relation, link.tail) for link in prediction.evidence
    ]


def test_a_report_cites_passages_and_each_citation_is_checked() -> None:
    n = labels_of(ask(BETWEEN, [GILAO])[0])
    text = f"Ines Marlow printed The Salt Road [{n['salt']}]. "
    text += f"Otto Brandt wrote it in Aarhus [{n['brandt']}]. It sold well [9]."
    reply = {"verdict": "answered", "links": "", "answer": text}
    prediction, prompts = ask(BETWEEN, [reply], style="report")
    assert "Answer in paragraphs" in prompts[0]
    found = [(one.passage_id, one.holds) for one in prediction.citations]
    assert found == [("salt", True), ("brandt", True), ("", False)]
    assert prediction.paths == ("Ines Marlow → printed → The Salt Road ← wrote ← Otto Brandt",)


class Ranked(dspy.Signature):
    """Answer from the graph and rate the answer."""

    question: str = dspy.InputField()
    graph: str = dspy.InputField()
    answer: str = dspy.OutputField()
    rating: int = dspy.OutputField()


def test_a_custom_signature_answers_and_its_outputs_are_prediction_fields() -> None:
    prediction, prompts = ask(QUESTION, [{"answer": "Gilão", "rating": 4}], answer_with=Ranked)
    assert (prediction.answer, prediction.rating) == ("Gilão", 4)
    assert "Tavira -> lies on -> Gilão" in prompts[0]
    with pytest.raises(InputError, match="mode='global'"):
        GraphRAG(world(), mode="global", style="report")


def test_a_path_reranker_orders_facts_and_paths_by_their_wording() -> None:
    asked: list[list[str]] = []

    def longest(question: str, texts: Sequence[str]) -> list[int]:
        asked.append([*texts])
        return [len(text) for text in texts]

    plain = world()
    corpus = GraphIndex(plain.index, plain.graph, path_reranker=longest)
    found = corpus.find(BETWEEN, hops=3, keep=3)
    texts = [fact.text for fact in found.facts]
    assert texts == sorted(asked[-1], key=len, reverse=True)[:3]
    assert asked[0] == [path.text for path in found.paths]
    assert texts != [fact.text for fact in plain.find(BETWEEN, hops=3, keep=3).facts]
