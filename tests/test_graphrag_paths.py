from __future__ import annotations

from itertools import pairwise

import pytest

from ga_dspy.graph import Evidence, GraphUpdate, Relation
from ga_dspy.graphrag import Access, CorpusGraph, Rules
from ga_dspy.graphrag.betweenness import central_paths
from ga_dspy.graphrag.pathfinding import UnknownThing, paths_between
from ga_dspy.graphrag.search import GraphSearch
from ga_dspy.passage import Passage
from ga_dspy.retrieval import Index

PEOPLE = ("Ann", "Bob", "Cay", "Dan", "Eve", "Flo")


def graph_of(*facts: str, rules: Rules | None = None) -> CorpusGraph:
    """A graph of "head / relation / tail" facts, each stated by a passage of its own."""
    records = {}
    for number, fact in enumerate(facts):
        head, label, tail = fact.split(" / ")
        here = (Evidence(passage=f"p{number}", start=0, end=1),)
        relation = Relation(head=head, relation=label, tail=tail, evidence=here)
        records[f"p{number}"] = GraphUpdate(relations=(relation,))
    return CorpusGraph.of(records, rules=rules)


def ways(
    graph: CorpusGraph, one: str, other: str, k: int = 3, access: Access | None = None
) -> list[str]:
    return [path.text for path in paths_between(graph.visible(access), one, other, k)]


def test_a_path_tells_the_direction_of_each_relation() -> None:
    graph = graph_of("Ann / wrote / Ode", "Bob / sang / Ode")
    assert ways(graph, "Ann", "Bob") == ["Ann -> wrote -> Ode <- sang <- Bob"]


def test_a_path_holds_its_edges_in_order() -> None:
    graph = graph_of("Ann / wrote / Ode", "Bob / sang / Ode")
    (path,) = paths_between(graph.visible(), "Bob", "Ann")
    assert [graph.relation_of(edge) for edge in path.edges] == ["sang", "wrote"]
    assert [graph.name(node) for node in path.nodes] == ["Bob", "Ode", "Ann"]


def test_shorter_and_rarer_ways_come_before_those_through_hubs_and_dates() -> None:
    crowd = [f"Visitor {i}x / lives in / Big City" for i in range(60)]
    graph = graph_of(
        *crowd, "Ann / lives in / Big City", "Bob / lives in / Big City",
        "Ann / born / 1910", "Bob / born / 1910", "Ann / co-founded / Owl Club",
        "Bob / chaired / Owl Club",
    )  # fmt: skip
    through = [path.split(" -> ")[2].split(" <-")[0] for path in ways(graph, "Ann", "Bob")]
    assert through == ["Owl Club", "Big City", "1910"]


def test_at_most_k_paths_are_given() -> None:
    graph = graph_of(*(f"{who} / liked / Song {i}x" for i in range(9) for who in ("Ann", "Bob")))
    assert len(ways(graph, "Ann", "Bob", k=4)) == 4


def test_relations_between_the_same_two_things_are_one_way() -> None:
    graph = graph_of("Ann / wrote / Ode", "Ann / sold / Ode", "Bob / sang / Ode")
    assert len(ways(graph, "Ann", "Bob")) == 1


def test_a_way_of_more_than_four_hops_is_none() -> None:
    graph = graph_of(*(f"{a} / next / {b}" for a, b in pairwise(PEOPLE)))
    assert len(ways(graph, "Ann", "Eve")) == 1
    assert ways(graph, "Ann", "Flo") == []


def test_a_name_that_nothing_goes_by_is_told_with_those_spelled_alike() -> None:
    graph = graph_of("Annabel Lee / wrote / Ode")
    with pytest.raises(UnknownThing, match="Annabel Lee"):
        ways(graph, "Anabel Lea", "Ode")


def test_a_private_relation_is_a_way_only_for_those_who_may_see_it() -> None:
    rules = Rules(relation_labels={"reports to": frozenset({"hr"})})
    graph = graph_of(
        "Ann / reports to / Cay", "Bob / knows / Cay", "Ann / wrote / Ode", rules=rules
    )
    assert ways(graph, "Ann", "Bob") == []
    assert ways(graph, "Ann", "Bob", access=Access(labels=frozenset({"hr"}))) == [
        "Ann -> reports to -> Cay <- knows <- Bob"
    ]
    with pytest.raises(UnknownThing) as error:
        ways(graph_of("Ann / reports to / Cayenne", "Bob / knows / Ode", rules=rules),
             "Cayenn", "Ode")  # fmt: skip
    assert error.value.alike == ()


def test_paths_keep_to_what_the_caller_wants() -> None:
    graph = graph_of("Ann / wrote / Ode", "Bob / sang / Ode")
    assert ways(graph, "Ann", "Bob", access=Access(relations=frozenset({"wrote"}))) == []


def test_the_paths_that_carry_a_neighbourhood_come_first() -> None:
    branches = [f"Ann / taught / Pupil {i}x" for i in range(5)]
    graph = graph_of(
        *branches, "Ann / met / Cay", "Cay / met / Bob", "Ann / saw / Dan", "Dan / saw / Eve",
        "Eve / saw / Bob",
    )  # fmt: skip
    index = Index.from_passages([Passage(id="p0", text="Ann taught.")], kind="sparse")
    found = GraphSearch(graph, index).find("How do Ann and Bob know each other?")
    first, *_ = central_paths(found)
    assert first.path.text == "Ann -> met -> Cay -> met -> Bob"
    assert first.betweenness > 0
