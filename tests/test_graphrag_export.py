"""What other tools read of a corpus graph."""

from __future__ import annotations

import io

import networkx as nx
import pytest

from ga_dspy.graph import Entity, Evidence, GraphUpdate, Relation, to_graphml
from ga_dspy.graphrag import CorpusGraph
from ga_dspy.graphrag.communities import find_communities

HIDDEN = (Evidence(passage="p2", start=0, end=7),)
LABELS = {"p2": {"board"}}
WORLD = {
    "p1": GraphUpdate(
        entities=(
            Entity(
                name='Café "Ö"; <Nord>',
                type="company",
                attributes=("old; grey", "tall"),
                evidence=(Evidence(passage="p1", start=0, end=4),),
            ),
        ),
        relations=(
            Relation(
                head='Café "Ö"; <Nord>', relation="was founded in", tail="1901", time="1901",
                confidence=0.75, evidence=(Evidence(passage="p1", start=0, end=9),),
            ),
            Relation(
                head='Café "Ö"; <Nord>', relation="lies in", tail="Graz",
                evidence=(Evidence(passage="p1", start=0, end=9),),
            ),
        ),
    ),
    "p2": GraphUpdate(
        entities=(Entity(name="Graz", type="city", evidence=HIDDEN),),
        relations=(
            Relation(head="Graz", relation="hides", tail="Project Nightfall", evidence=HIDDEN),
        ),
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def graph() -> CorpusGraph:
    return CorpusGraph.of(WORLD, labels=LABELS)


def test_an_export_can_be_read_back_and_has_only_what_the_caller_may_see(
    graph: CorpusGraph,
) -> None:
    known = graph.visible().graph
    text = to_graphml(known.subgraph(range(len(known)), range(len(known.relations))))
    network = nx.read_graphml(io.BytesIO(text.encode()))
    assert set(network) == {'Café "Ö"; <Nord>', "1901", "Graz"}
    edges = {details["relation"]: details for *_, details in network.edges(data=True)}
    assert edges["was founded in"]["confidence"] == 0.75
    assert "time" not in edges["lies in"] and "p2" not in text


def test_a_community_lists_its_most_linked_entities_first(graph: CorpusGraph) -> None:
    (only,) = find_communities(graph)
    assert graph.public.name(only.nodes[0]) == 'Café "Ö"; <Nord>'
