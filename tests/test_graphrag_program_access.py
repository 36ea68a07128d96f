"""GraphRAG under attack: what only some may see reaches no prompt, field, log or demo of others.

Everything private in this corpus has "velvet" or "90 crowns" in it. It can be reached from what
everybody may see by two paths, by meaning, as a passage, and in the community of its neighbours.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import dspy
import pytest
from stated_facts import stated_facts

from ga_dspy import Index, Passage
from ga_dspy.errors import InputError
from ga_dspy.graph import GraphUpdate
from ga_dspy.graphrag import Access, CorpusGraph, Rules
from ga_dspy.graphrag.communities import (
    Summary,
    Topic,
    community_text,
    find_communities,
    topics_of,
)
from ga_dspy.graphrag.program import GraphRAG
from ga_dspy.graphrag.search import GraphIndex
from ga_dspy.passage import Metadata
from ga_dspy.programs.prediction import as_json
from ga_dspy.testing import Reply, scripted_lm

TEXTS = {
    "marlow": ("Ines Marlow", "Ines Marlow was born in Tavira."),
    "salt": ("The Salt Road", "The Salt Road is a novel that Ines Marlow printed."),
    "brandt": ("Otto Brandt", "Otto Brandt wrote The Salt Road and lived in Aarhus."),
    "tavira": ("Tavira", "Tavira lies on the Gilão."),
    "fund": ("Velvet Fund", "Ines Marlow owns the Velvet Fund."),
    "loan": ("Loans", "The Velvet Fund lent money to Otto Brandt."),
    "gossip": ("A walk", "Otto Brandt was paid 90 crowns in Velvet House. Tavira is old."),
}
PASSAGES = {id: Passage(id=id, title=title, text=text) for id, (title, text) in TEXTS.items()}
FACTS = {
    "marlow": [("Ines Marlow", "was born in", "Tavira")],
    "salt": [("Ines Marlow", "printed", "The Salt Road")],
    "brandt": [("Otto Brandt", "wrote", "The Salt Road"), ("Otto Brandt", "lived in", "Aarhus")],
    "tavira": [("Tavira", "lies on", "Gilão")],
    "fund": [("Ines Marlow", "owns", "Velvet Fund")],
    "loan": [("Velvet Fund", "lent money to", "Otto Brandt")],
    "gossip": [
        ("Otto Brandt", "was paid", "90 crowns"),
        ("Otto Brandt", "was paid", "Velvet House"),
        ("Tavira", "is", "old"),
    ],
}
HR = Access(labels=frozenset({"hr"}))
EVERYBODY = Access()
SECRET = re.compile("velvet|90 crowns", re.IGNORECASE)
BETWEEN = "How is Ines Marlow connected to Otto Brandt?"
MEANING = "Which fund lent money, and to whom?"
MAIN = "What are the main themes overall?"
PRIVATE = "Who owns the Velvet Fund?"
QUESTIONS = (BETWEEN, MEANING, MAIN, PRIVATE)
MODES = ("local", "hybrid", "global")


def stated(id: str) -> GraphUpdate:
    return stated_facts(PASSAGES[id], FACTS[id])


@pytest.fixture
def world() -> GraphIndex:
    """A new one for each test, so that nothing was cached before."""
    graph = CorpusGraph.of(
        {id: stated(id) for id in FACTS},
        labels={"fund": ["hr"], "loan": ["hr"]},
        rules=Rules(relation_labels={"was paid": frozenset({"hr"})}),
    )
    index = Index.from_passages(PASSAGES.values(), encoder="hash-64")
    return GraphIndex(index, graph, topics=topics(graph))


def topics(graph: CorpusGraph) -> tuple[Topic, ...]:
    """All communities, each with its own facts as its summary."""
    communities = find_communities(graph)
    summaries: dict[str, Summary | str] = {
        community.key: Summary(
            title=f"Community {place}",
            text=" ".join(community_text(graph.public, community).split()),
        )
        for place, community in enumerate(communities)
    }
    return topics_of(communities, summaries)


def reply(prompt: str) -> Reply:
    if "[[ ## points ## ]]" in prompt:
        return {"points": "- Ines Marlow was born in Tavira [1] (80)"}
    cited = "1" if "## notes ##" in prompt else "1, 2, 3, 4, 5"
    return {"verdict": "answered", "links": f"[{cited}]", "answer": "Otto Brandt"}


def handed_out(program: GraphRAG, question: str, caller: Access | None = None) -> str:
    """All that prompts and prediction say, but for the question."""
    lm = scripted_lm(reply)
    with dspy.context(lm=lm):
        prediction = (program.for_caller(caller) if caller else program)(question=question)
    fields = json.dumps([as_json(prediction), str(prediction)], ensure_ascii=False)
    return "\n".join([*lm.engine.prompts, fields]).replace(question, "")


def programs(world: GraphIndex, **settings: Any) -> Iterator[GraphRAG]:
    for mode in MODES:
        yield GraphRAG(world, mode=mode, k=5, hops=4, facts=50, **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("mode", MODES)
def test_private_data_never_reaches_a_caller_without_the_label(
    world: GraphIndex, mode: Any, question: str
) -> None:
    program = GraphRAG(world, mode=mode, hops=4, facts=50)
    first = handed_out(program, question)
    seen = handed_out(program, question, HR)
    again = handed_out(program, question)
    for text in (first, again):
        assert not SECRET.search(text)
    if mode == "local":
        assert SECRET.search(seen)


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("mode", MODES)
def test_private_data_does_not_leak_after_a_labelled_caller_asked_first(
    world: GraphIndex, mode: Any, question: str
) -> None:
    program = GraphRAG(world, mode=mode, hops=4, facts=50)
    handed_out(program.for_caller(HR), question)
    assert not SECRET.search(handed_out(program, question))


def test_a_caller_with_the_label_sees_private_paths_and_passages(
    world: GraphIndex,
) -> None:
    seen = handed_out(GraphRAG(world, k=7), BETWEEN, HR)
    assert "Ines Marlow → owns → Velvet Fund → lent money to → Otto Brandt" in seen
    assert "The Velvet Fund lent money to Otto Brandt." in seen and "90 crowns" in seen


def test_an_unrelated_label_grants_no_access(world: GraphIndex) -> None:
    other = Access(labels=frozenset({"press"}))
    for program in programs(world):
        assert not SECRET.search(handed_out(program, BETWEEN, other))


def test_summaries_contain_only_public_data_even_for_labelled_callers(
    world: GraphIndex,
) -> None:
    lm = scripted_lm(reply)
    with dspy.context(lm=lm):
        GraphRAG(world, mode="hybrid").for_caller(HR)(question=BETWEEN)
    summaries = lm.engine.prompts[0].rpartition("[[ ## summaries ## ]]\n")[2].partition("[[")[0]
    assert "Ines Marlow" in summaries and not SECRET.search(summaries)


def test_a_passage_with_both_public_and_private_facts_is_withheld(
    world: GraphIndex,
) -> None:
    question = "Is Tavira old?"
    public = handed_out(GraphRAG(world, k=7), question)
    assert "Tavira -> is -> old" in public and "Tavira is old." not in public
    assert "Tavira is old." in handed_out(GraphRAG(world, k=7), question, HR)


def test_the_retriever_skips_passages_that_the_caller_may_not_read(world: GraphIndex) -> None:
    found = [passage.id for passage in world("Velvet Fund loans Otto Brandt", 4)]
    assert len(found) == 4 and not {"fund", "loan", "gossip"} & set(found)
    seen = world.for_caller(HR)("Velvet Fund loans Otto Brandt", 4)
    assert "fund" in [passage.id for passage in seen]
    assert world.passage("fund") is None
    assert world.for_caller(HR).passage("fund") == PASSAGES["fund"]
    assert world.for_caller(HR).passage("no such passage") is None


def test_a_private_name_is_a_gap_only_without_the_label(
    world: GraphIndex,
) -> None:
    gaps = []
    for caller in (EVERYBODY, HR):
        with dspy.context(lm=scripted_lm(reply)):
            gaps.append(GraphRAG(world.for_caller(caller))(question=PRIVATE).gap)
    assert gaps == [True, False]


def test_access_rights_belong_to_the_program_object_in_every_thread(world: GraphIndex) -> None:
    program = GraphRAG(world)
    privileged = program.for_caller(HR)
    assert SECRET.search(handed_out(privileged, BETWEEN))
    assert not SECRET.search(handed_out(privileged.for_caller(EVERYBODY), BETWEEN))
    with ThreadPoolExecutor(1) as pool:
        assert SECRET.search(pool.submit(handed_out, privileged, BETWEEN).result())
    assert not SECRET.search(handed_out(program, BETWEEN))
    assert privileged.scope == ({"labels": {"within": ["hr"]}},) and program.scope == ()


def test_callers_in_different_threads_have_separate_access_rights(world: GraphIndex) -> None:
    program = GraphRAG(world, hops=4, facts=50)
    callers = [HR, EVERYBODY] * 8
    with ThreadPoolExecutor(8) as pool:
        texts = pool.map(lambda access: handed_out(program, BETWEEN, access), callers)
        assert [bool(SECRET.search(text)) for text in texts] == [True, False] * 8


def test_tasks_of_one_event_loop_have_separate_access_rights(world: GraphIndex) -> None:
    program = GraphRAG(world, hops=4, facts=50)

    async def ask(access: Access) -> bool:
        prediction = await program.for_caller(access).acall(question=BETWEEN)
        return bool(SECRET.search(json.dumps(as_json(prediction))))

    async def all_at_once() -> list[bool]:
        return await asyncio.gather(*(ask(access) for access in (HR, EVERYBODY) * 4))

    with dspy.context(lm=scripted_lm(reply)):
        assert asyncio.run(all_at_once()) == [True, False] * 4


@pytest.mark.parametrize("mode", MODES)
def test_interleaved_generators_have_separate_access_rights(world: GraphIndex, mode: Any) -> None:
    program = GraphRAG(world, mode=mode, hops=4, facts=50)

    def answers(access: Access) -> Iterator[str]:
        for _ in range(2):
            yield handed_out(program.for_caller(access), BETWEEN)

    public, private = answers(EVERYBODY), answers(HR)
    turns = [(next(private), next(public)) for _ in range(2)]
    assert not any(SECRET.search(text) for _, text in turns)
    assert mode != "local" or all(SECRET.search(text) for text, _ in turns)


# --- Conditions on metadata

OURS = {"tenant": "ours"}
SHARED = ("marlow", "salt", "brandt", "tavira")


@pytest.fixture
def tenants() -> GraphIndex:
    """The same corpus without labels; what was private is another tenant's."""
    of = {id: "ours" if id in SHARED else "theirs" for id in PASSAGES}
    passages = [
        p.model_copy(update={"metadata": Metadata({"tenant": of[p.id]})}) for p in PASSAGES.values()
    ]
    graph = CorpusGraph.of({id: stated(id) for id in FACTS})
    index = Index.from_passages(passages, encoder="hash-64")
    return GraphIndex(index, graph, topics=topics(graph))


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("mode", MODES)
def test_excluded_data_is_in_no_prompt_and_no_prediction_field(
    tenants: GraphIndex, mode: Any, question: str
) -> None:
    whole = GraphRAG(tenants, mode=mode, hops=4, facts=50)
    handed_out(whole, question)
    ours = tenants.only(OURS)
    ours.topics = (*ours.topics, *topics(ours.graph))
    assert not SECRET.search(handed_out(GraphRAG(ours, mode=mode, hops=4, facts=50), question))
    if mode == "local":
        assert not SECRET.search(handed_out(whole.only(OURS), question))


def test_the_graph_under_conditions_equals_one_of_the_visible_passages(
    tenants: GraphIndex,
) -> None:
    alone = CorpusGraph.of({id: stated(id) for id in SHARED})
    ours = tenants.only(OURS).graph
    assert (ours.entities, ours.relations, ours.names) == (
        alone.entities, alone.relations, alone.names,
    )  # fmt: skip


def test_a_condition_in_use_reuses_the_resolved_graph(tenants: GraphIndex) -> None:
    assert tenants.only(OURS).graph is tenants.only({"tenant": ["ours"]}).graph


def test_only_communities_unaffected_by_the_conditions_keep_summaries(
    tenants: GraphIndex,
) -> None:
    keys = {community.key for community in find_communities(tenants.only(OURS).graph)}
    kept = {topic.community.key for topic in tenants.only(OURS).topics}
    assert kept == keys & {topic.community.key for topic in tenants.topics}
    assert len(kept) < len(tenants.topics)


def test_conditions_and_labels_apply_together(world: GraphIndex) -> None:
    passages = [
        p.model_copy(update={"metadata": Metadata({"kind": p.id})}) for p in PASSAGES.values()
    ]
    index = Index.from_passages(passages, encoder="hash-64")
    funds = GraphIndex(index, world.graph).only({"kind": ["fund", "marlow"]})
    assert len(funds.graph.visible(HR).graph) > len(funds.graph.public)
    assert not SECRET.search(handed_out(GraphRAG(funds), BETWEEN))
    assert funds.for_caller(HR).scope == (*funds.scope, {"labels": {"within": ["hr"]}})


@pytest.mark.parametrize("mode", MODES)
def test_a_missing_required_condition_is_refused_before_any_call(
    world: GraphIndex, mode: Any
) -> None:
    lm, program = scripted_lm([]), GraphRAG(world, mode=mode)
    with dspy.context(lm=lm):
        with pytest.raises(InputError, match="no passage has"):
            program(question=MAIN, where={"owner": "hr"})
        required = Index.from_passages(PASSAGES.values(), kind="sparse", require=["labels"])
        with pytest.raises(InputError, match="no condition on 'labels'"):
            GraphRAG(GraphIndex(required, world.graph, topics=world.topics), mode=mode).for_caller(
                HR
            )(question=MAIN)
    assert not lm.engine.prompts


def test_private_data_never_becomes_a_demo(world: GraphIndex) -> None:
    row = dspy.Example(question=BETWEEN, answer="Otto Brandt").with_inputs("question")
    optimizer = dspy.BootstrapFewShot(metric=lambda *_: True, max_labeled_demos=0)
    program = GraphRAG(world, hops=4, facts=50)
    with dspy.context(lm=scripted_lm(reply)):
        privately = optimizer.compile(program.for_caller(HR), trainset=[row])
        openly = optimizer.compile(program, trainset=[row])
    assert privately.answer.demos == []
    assert len(openly.answer.demos) == 1
    assert not SECRET.search(str(openly.answer.demos))
