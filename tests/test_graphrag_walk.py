"""Neighbourhoods of what a question names, and paths between entities."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from pydantic import ValidationError

from ga_dspy import Index, Passage
from ga_dspy.errors import InputError
from ga_dspy.graph import Evidence, GraphUpdate, Relation
from ga_dspy.graphrag import Access, CorpusGraph, GraphIndex, Rules
from ga_dspy.graphrag.linking import Lexicon, Query
from ga_dspy.graphrag.walk import Neighbourhood, expand, paths_between

PEOPLE = ("Ann", "Bob", "Cay", "Dan", "Eve", "Flo")


def graph_of(*facts: str, rules: Rules | None = None) -> CorpusGraph:
    """A graph of "head / relation / tail / time" facts, each stated by a passage of its own."""
    records = {}
    for number, fact in enumerate(facts):
        head, label, tail, *time = fact.split(" / ")
        relation = Relation(
            head=head,
            relation=label,
            tail=tail,
            time=time[0] if time else None,
            evidence=(Evidence(passage=f"p{number}", start=0, end=1),),
        )
        records[f"p{number}"] = GraphUpdate(relations=(relation,))
    return CorpusGraph.of(records, rules=rules)


def around(
    graph: CorpusGraph,
    *starts: str,
    question: str = "?",
    hops: int = 2,
    most: int = 100,
) -> Neighbourhood:
    lexicon = Lexicon(graph)
    return expand(
        lexicon.wiring,
        {graph.find(name)[0]: 1.0 for name in starts},
        Query(question, lexicon).fit,
        hops=hops,
        most=most,
    )


def names(graph: CorpusGraph, near: Neighbourhood) -> set[str]:
    return {graph.name(int(node)) for node in near.hops}


CHAIN = graph_of("Ann / knows / Ben", "Cay / knows / Ben", "Cay / knows / Dan", "Dan / knows / Eve")


@pytest.mark.parametrize(
    ("hops", "reached"), [(1, {"Ann", "Ben"}), (2, {"Ann", "Ben", "Cay"}), (3, set("ABCD"))]
)
def test_a_neighbourhood_extends_to_the_given_number_of_hops(hops: int, reached: set[str]) -> None:
    near = around(CHAIN, "Ann", hops=hops)
    assert {name[0] for name in names(CHAIN, near)} == {name[0] for name in reached}


def test_every_edge_lies_between_nodes_of_the_neighbourhood() -> None:
    near = around(CHAIN, "Ann", hops=3)
    ends = np.concatenate([CHAIN.heads[near.edges], CHAIN.tails[near.edges]])
    assert set(ends.tolist()) <= set(near.hops)
    assert len(near.edges) == 3


def test_the_size_cap_is_respected_and_starting_nodes_come_first() -> None:
    graph = graph_of(*(f"Hub / has / Part {i}x" for i in range(50)))
    near = around(graph, "Hub", most=10)
    assert len(near.hops) == 10
    assert graph.name(next(iter(near.hops))) == "Hub"


def test_a_hub_keeps_the_edges_in_the_questions_words() -> None:
    graph = graph_of(*(f"Hub / has / Part {i}x" for i in range(50)), "Hub / founded by / Zoe")
    near = around(graph, "Hub", question="Who founded it?", most=4)
    assert "Zoe" in names(graph, near)


def test_nodes_behind_a_hub_are_farther_than_nodes_behind_a_small_node() -> None:
    crowd = [f"Hub / has / Part {i}x" for i in range(300)]
    graph = graph_of(*crowd, "Ann / in / Hub", "Ann / in / Nook", "Nook / has / Lamp")
    near = around(graph, "Ann", most=6)
    assert "Lamp" in names(graph, near)


def test_no_node_is_reached_through_a_date() -> None:
    graph = graph_of("Ann / born / 4 May 1910", "Bob / born / 4 May 1910")
    assert names(graph, around(graph, "Ann")) == {"Ann", "4 May 1910"}
    assert names(graph, around(graph, "4 May 1910")) == {"Ann", "Bob", "4 May 1910"}


def test_the_same_start_gives_the_same_neighbourhood() -> None:
    graph = graph_of(*(f"Hub / has / Part {i}x" for i in range(50)))
    one, other = (around(graph, "Hub", most=9) for _ in range(2))
    assert [*one.hops.items()] == [*other.hops.items()]
    assert one.edges.tolist() == other.edges.tolist()


# Paths


def ways(
    graph: CorpusGraph, one: str, other: str, k: int = 3, access: Access | None = None
) -> list[str]:
    return [path.text for path in paths_between(graph.visible(access).graph, one, other, k)]


def test_a_path_shows_the_direction_of_each_relation() -> None:
    graph = graph_of("Ann / wrote / Ode", "Bob / sang / Ode")
    assert ways(graph, "Ann", "Bob") == ["Ann → wrote → Ode ← sang ← Bob"]


def test_a_path_has_its_edges_in_order() -> None:
    graph = graph_of("Ann / wrote / Ode", "Bob / sang / Ode")
    (path,) = paths_between(graph, "Bob", "Ann")
    assert [graph.edge(edge).relation for edge in path.edges] == ["sang", "wrote"]
    assert [graph.name(node) for node in path.nodes] == ["Bob", "Ode", "Ann"]


def test_short_specific_paths_rank_before_paths_through_hubs_and_dates() -> None:
    crowd = [f"Visitor {i}x / lives in / Big City" for i in range(60)]
    graph = graph_of(
        *crowd, "Ann / lives in / Big City", "Bob / lives in / Big City",
        "Ann / born / 1910", "Bob / born / 1910", "Ann / co-founded / Owl Club",
        "Bob / chaired / Owl Club",
    )  # fmt: skip
    through = [path.split(" → ")[2].split(" ←")[0] for path in ways(graph, "Ann", "Bob")]
    assert through == ["Owl Club", "Big City", "1910"]


@pytest.mark.parametrize(("relation", "friend"), [("was met", "Dan"), ("knows", "Ben")])
def test_relation_weights_apply_to_neighbourhoods_paths_and_facts(
    relation: str, friend: str
) -> None:
    facts = ("Ann / knows / Ben", "Ben / knows / Cay", "Ann / met / Dan", "Dan / met / Cay")
    graph = graph_of(*facts, rules=Rules(relation_weights={relation: 3}))
    assert friend in paths_between(graph, "Ann", "Cay", k=1)[0].text
    assert friend in names(graph, around(graph, "Ann", hops=1, most=2))
    index = Index.from_passages([Passage(id="p0", title="x", text="x")], kind="sparse")
    (fact,) = GraphIndex(index, graph).find("Ann?", keep=1).facts
    assert relation.split()[-1] in fact.text


@pytest.mark.parametrize("weight", [0, -1, float("nan"), float("inf")])
def test_a_weight_of_zero_or_less_is_refused(weight: float) -> None:
    with pytest.raises(ValidationError, match="relation_weights"):
        Rules(relation_weights={"met": weight})


def test_at_most_k_paths_are_given() -> None:
    graph = graph_of(*(f"{who} / liked / Song {i}x" for i in range(9) for who in ("Ann", "Bob")))
    assert len(ways(graph, "Ann", "Bob", k=4)) == 4


def test_parallel_relations_count_as_one_path() -> None:
    graph = graph_of("Ann / wrote / Ode", "Ann / sold / Ode", "Bob / sang / Ode")
    assert len(ways(graph, "Ann", "Bob")) == 1


def test_two_sided_search_does_not_pass_through_a_hub_but_may_meet_in_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ga_dspy.graphrag.walk.MAX_EXPANDED_DEGREE", 4)
    crowd = [f"Visitor {i}x / lives in / Big City" for i in range(9)]
    graph = graph_of(*crowd, "Ann / met / Visitor 1x", "Bob / met / Visitor 2x")
    assert ways(graph, "Ann", "Bob") == []
    assert ways(graph, "Visitor 1x", "Visitor 2x") == [
        "Visitor 1x → lives in → Big City ← lives in ← Visitor 2x"
    ]


def test_a_path_has_at_most_four_hops() -> None:
    graph = graph_of(*(f"{a} / next / {b}" for a, b in pairwise(PEOPLE)))
    assert len(ways(graph, "Ann", "Eve")) == 1
    assert ways(graph, "Ann", "Flo") == []


def test_an_unknown_name_is_refused_with_similar_names() -> None:
    graph = graph_of("Annabel Lee / wrote / Ode")
    with pytest.raises(InputError, match=r"is named 'Anabel Lea'.* similar names: Annabel Lee"):
        ways(graph, "Anabel Lea", "Ode")


def test_a_private_relation_is_in_paths_only_for_callers_who_may_see_it() -> None:
    rules = Rules(relation_labels={"reports to": frozenset({"hr"})})
    graph = graph_of(
        "Ann / reports to / Cay", "Bob / knows / Cay", "Ann / wrote / Ode", rules=rules
    )
    assert ways(graph, "Ann", "Bob") == []
    assert ways(graph, "Ann", "Bob", access=Access(labels=frozenset({"hr"}))) == [
        "Ann → reports to → Cay ← knows ← Bob"
    ]
    with pytest.raises(InputError, match="is named 'Cayenn'") as error:
        ways(graph_of("Ann / reports to / Cayenne", "Bob / knows / Ode", rules=rules),
             "Cayenn", "Ode")  # fmt: skip
    assert "similar names" not in str(error.value)
