from __future__ import annotations

import numpy as np
import pytest

from ga_dspy.graph import GraphUpdate, Relation
from ga_dspy.graphrag import Access, CorpusGraph
from ga_dspy.graphrag.expansion import Neighbourhood, Wiring, expand
from ga_dspy.graphrag.features import Asked, Fitting
from ga_dspy.graphrag.lexicon import Lexicon


def graph_of(*facts: str) -> CorpusGraph:
    """A graph of "head / relation / tail" facts, of which a fourth part is the time."""
    relations = []
    for fact in facts:
        head, label, tail, *time = fact.split(" / ")
        when = time[0] if time else None
        relations.append(Relation(head=head, relation=label, tail=tail, time=when))
    return CorpusGraph.of({"p": GraphUpdate(relations=tuple(relations))})


def around(
    graph: CorpusGraph,
    *starts: str,
    question: str = "?",
    access: Access | None = None,
    hops: int = 2,
    max_nodes: int = 100,
    max_edges: int = 100,
) -> Neighbourhood:
    lexicon, wiring = Lexicon.of(graph), Wiring(graph)
    fit = Fitting.of(Asked.of(question, lexicon), lexicon, wiring).edges
    return expand(
        wiring,
        {graph.find(name)[0]: 1.0 for name in starts},
        graph.visible(access).edges,
        fit,
        hops=hops,
        max_nodes=max_nodes,
        max_edges=max_edges,
    )


def names(graph: CorpusGraph, near: Neighbourhood) -> set[str]:
    return {graph.name(int(node)) for node in near.nodes}


CHAIN = graph_of("Ann / knows / Ben", "Cay / knows / Ben", "Cay / knows / Dan", "Dan / knows / Eve")


@pytest.mark.parametrize(
    ("hops", "reached"), [(1, {"Ann", "Ben"}), (2, {"Ann", "Ben", "Cay"}), (3, set("ABCD"))]
)
def test_a_neighbourhood_reaches_as_far_as_the_hops(hops: int, reached: set[str]) -> None:
    near = around(CHAIN, "Ann", hops=hops)
    assert {name[0] for name in names(CHAIN, near)} == {name[0] for name in reached}


def test_every_edge_lies_between_things_of_the_neighbourhood() -> None:
    near = around(CHAIN, "Ann", hops=3)
    ends = np.concatenate([CHAIN.heads[near.edges], CHAIN.tails[near.edges]])
    assert set(ends.tolist()) <= set(near.nodes.tolist())
    assert len(near.edges) == 3


def test_caps_hold_and_starts_come_first() -> None:
    graph = graph_of(*(f"Hub / has / Part {i}x" for i in range(50)))
    near = around(graph, "Hub", max_nodes=10, max_edges=5)
    assert len(near.nodes) == 10
    assert len(near.edges) == 5
    assert graph.name(int(near.nodes[0])) == "Hub"


def test_of_a_hub_the_edges_that_the_question_asks_for_are_kept() -> None:
    graph = graph_of(*(f"Hub / has / Part {i}x" for i in range(50)), "Hub / founded by / Zoe")
    near = around(graph, "Hub", question="Who founded it?", max_nodes=4)
    assert "Zoe" in names(graph, near)


def test_what_lies_behind_a_hub_is_further_than_what_lies_behind_a_small_thing() -> None:
    crowd = [f"Hub / has / Part {i}x" for i in range(300)]
    graph = graph_of(*crowd, "Ann / in / Hub", "Ann / in / Nook", "Nook / has / Lamp")
    near = around(graph, "Ann", max_nodes=6)
    assert "Lamp" in names(graph, near)


def test_nothing_is_reached_through_a_date() -> None:
    graph = graph_of("Ann / born / 4 May 1910", "Bob / born / 4 May 1910")
    assert names(graph, around(graph, "Ann")) == {"Ann", "4 May 1910"}
    assert names(graph, around(graph, "4 May 1910")) == {"Ann", "Bob", "4 May 1910"}


@pytest.mark.parametrize(
    "access", [Access(relations=frozenset({"wrote"})), Access(time=(1990, 1999))]
)
def test_edges_that_the_caller_does_not_want_lead_nowhere(access: Access) -> None:
    graph = graph_of("Ann / met / Ben / 1985", "Ben / wrote / Opus / 1995", "Ann / wrote / Ode")
    assert names(graph, around(graph, "Ann", access=access)) == {"Ann", "Ode"}


def test_the_same_start_gives_the_same_neighbourhood() -> None:
    graph = graph_of(*(f"Hub / has / Part {i}x" for i in range(50)))
    one, other = (around(graph, "Hub", max_nodes=9, max_edges=7) for _ in range(2))
    assert one.nodes.tolist() == other.nodes.tolist()
    assert one.edges.tolist() == other.edges.tolist()


def test_a_thing_without_edges_is_its_own_neighbourhood() -> None:
    near = around(CHAIN, "Eve", access=Access(relations=frozenset({"none"})))
    assert (names(CHAIN, near), near.edges.tolist()) == ({"Eve"}, [])
