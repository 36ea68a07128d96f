from __future__ import annotations

import re

import networkx as nx
from hypothesis import given
from hypothesis import strategies as st

from ga_dspy.graph import (
    Entity,
    Evidence,
    GraphUpdate,
    KnowledgeGraph,
    Relation,
    from_json,
    to_graphml,
    to_json,
    to_mermaid,
    to_networkx,
)

WHERE = (Evidence(passage="p1", start=0, end=4),)
GRAPH = KnowledgeGraph().merge(
    GraphUpdate(
        entities=(Entity(name="Rihanna", type="singer", attributes=("a", "b"), evidence=WHERE),),
        relations=(
            Relation(head="Rihanna", relation="born", tail="1988", confidence=0.5, evidence=WHERE),
            Relation(head="Rihanna", relation='sang "Umbrella" [live] | twice', tail="1988"),
        ),
    )
)
NAMES = st.text(min_size=1, max_size=8).filter(lambda name: bool(name.split()))


def test_networkx_keeps_parallel_relations_and_where_they_are_stated() -> None:
    network = to_networkx(GRAPH)
    assert network.number_of_edges("Rihanna", "1988") == 2
    assert network.nodes["Rihanna"]["attributes"] == ("a", "b")
    assert network.nodes["1988"]["entity"] is False
    assert network.edges["Rihanna", "1988", 0]["passages"] == ("p1",)
    assert "time" not in network.edges["Rihanna", "1988", 0]


def test_graphml_is_read_back_by_networkx() -> None:
    network = nx.parse_graphml(to_graphml(GRAPH), force_multigraph=True)
    assert network.nodes["Rihanna"]["attributes"] == "a; b"
    assert network.number_of_edges() == 2


@given(NAMES, NAMES)
def test_json_brings_the_graph_back_whole(head: str, tail: str) -> None:
    relation = Relation(head=head, relation="r", tail=tail, evidence=WHERE)
    graph = GRAPH.merge(GraphUpdate(relations=(relation,)))
    back = from_json(to_json(graph))
    assert back == graph
    assert back.relations == graph.relations


def test_mermaid_draws_entities_as_boxes_and_values_rounded() -> None:
    assert to_mermaid(GRAPH).splitlines()[:4] == [
        "flowchart LR",
        '  n0["Rihanna"]',
        '  n1("1988")',
        '  n0 -->|"born"| n1',
    ]


@given(NAMES, NAMES, NAMES)
def test_no_name_breaks_mermaids_syntax(head: str, label: str, tail: str) -> None:
    relation = Relation(head=head, relation=label, tail=tail)
    graph = KnowledgeGraph().merge(GraphUpdate(relations=(relation,)))
    line = re.compile(
        r"""flowchart\ LR | \ \ n\d+(\["[^"\[\]|<>]*"\]|\("[^"\[\]|<>]*"\))
        | \ \ n\d+\ -->\|"[^"\[\]|<>]*"\|\ n\d+""",
        re.VERBOSE,
    )
    assert all(line.fullmatch(each) for each in to_mermaid(graph).split("\n"))
