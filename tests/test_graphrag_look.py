"""Exports that other tools read, pictures."""

from __future__ import annotations

import io
from pathlib import Path

import networkx as nx
import pytest

from ga_dspy.errors import InputError
from ga_dspy.graph import Entity, Evidence, GraphUpdate, KnowledgeGraph, Relation, to_graphml
from ga_dspy.graphrag import CorpusGraph
from ga_dspy.graphrag.communities import find_communities
from ga_dspy.graphrag.look import (
    MOST_NODES,
    draw_graph,
)

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


def test_an_export_reads_back_and_holds_what_the_caller_may_see(graph: CorpusGraph) -> None:
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


# Pictures


@pytest.fixture(scope="module")
def _matplotlib() -> None:
    pytest.importorskip("matplotlib")


def part_of(*facts: str) -> KnowledgeGraph:
    parts = (fact.split(" / ") for fact in facts)
    relations = tuple(Relation(head=h, relation=r, tail=t) for h, r, t in parts)
    return KnowledgeGraph().merge(GraphUpdate(relations=relations))


SMALL = part_of("Ann / wrote / Ode", "Bob / sang / Ode", "Cay / built / Pier")


@pytest.mark.usefixtures("_matplotlib")
def test_a_graph_becomes_a_png(tmp_path: Path) -> None:
    path = draw_graph(SMALL, tmp_path / "new" / "graph.png", marked=["Ann"])
    assert path.read_bytes().startswith(b"\x89PNG")


@pytest.mark.usefixtures("_matplotlib")
def test_the_same_graph_gives_the_same_bytes(tmp_path: Path) -> None:
    one, other = (draw_graph(SMALL, tmp_path / f"{name}.png").read_bytes() for name in "ab")
    assert one == other


@pytest.mark.usefixtures("_matplotlib")
def test_communities_and_marks_change_the_picture(tmp_path: Path) -> None:
    plain = draw_graph(SMALL, tmp_path / "a.png").read_bytes()
    marked = draw_graph(SMALL, tmp_path / "b.png", marked=["Ann"]).read_bytes()
    parted = draw_graph(SMALL, tmp_path / "c.png", communities={"Ann": 0, "Bob": 1}).read_bytes()
    assert len({plain, marked, parted}) == 3


@pytest.mark.usefixtures("_matplotlib")
def test_a_graph_too_large_to_be_legible_is_cut(tmp_path: Path) -> None:
    large = part_of(*(f"Hub / has / Part {i}x" for i in range(MOST_NODES + 40)))
    cut = draw_graph(large, tmp_path / "large.png")
    assert cut.stat().st_size > 10_000


@pytest.mark.usefixtures("_matplotlib")
def test_one_entity_can_be_drawn_and_nothing_cannot(tmp_path: Path) -> None:
    alone = KnowledgeGraph().merge(part_of("Ann / wrote / Ode").said)
    assert draw_graph(alone, tmp_path / "one.png").is_file()
    with pytest.raises(InputError, match="no entities"):
        draw_graph(KnowledgeGraph(), tmp_path / "none.png")
