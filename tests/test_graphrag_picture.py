from __future__ import annotations

from pathlib import Path

import pytest

from ga_dspy.graph import GraphUpdate, KnowledgeGraph, Relation
from ga_dspy.graphrag.picture import MOST_NODES, NothingToDraw, draw_graph

pytest.importorskip("matplotlib")


def graph_of(*facts: str) -> KnowledgeGraph:
    parts = (fact.split(" / ") for fact in facts)
    relations = tuple(Relation(head=h, relation=r, tail=t) for h, r, t in parts)
    return KnowledgeGraph().merge(GraphUpdate(relations=relations))


SMALL = graph_of("Ann / wrote / Ode", "Bob / sang / Ode", "Cay / built / Pier")


def test_a_graph_becomes_a_png(tmp_path: Path) -> None:
    path = draw_graph(SMALL, tmp_path / "new" / "graph.png", marked=["Ann"])
    assert path.read_bytes().startswith(b"\x89PNG")


def test_the_same_graph_gives_the_same_bytes(tmp_path: Path) -> None:
    one, other = (draw_graph(SMALL, tmp_path / f"{name}.png").read_bytes() for name in "ab")
    assert one == other


def test_communities_and_marks_change_the_picture(tmp_path: Path) -> None:
    plain = draw_graph(SMALL, tmp_path / "a.png").read_bytes()
    marked = draw_graph(SMALL, tmp_path / "b.png", marked=["Ann"]).read_bytes()
    parted = draw_graph(SMALL, tmp_path / "c.png", communities={"Ann": 0, "Bob": 1}).read_bytes()
    assert len({plain, marked, parted}) == 3


def test_a_graph_too_large_to_be_legible_is_cut(tmp_path: Path) -> None:
    large = graph_of(*(f"Hub / has / Part {i}x" for i in range(MOST_NODES + 40)))
    cut = draw_graph(large, tmp_path / "large.png")
    assert cut.stat().st_size > 10_000


def test_one_thing_can_be_drawn_and_nothing_cannot(tmp_path: Path) -> None:
    alone = KnowledgeGraph().merge(graph_of("Ann / wrote / Ode").said)
    assert draw_graph(alone, tmp_path / "one.png").is_file()
    with pytest.raises(NothingToDraw):
        draw_graph(KnowledgeGraph(), tmp_path / "none.png")
