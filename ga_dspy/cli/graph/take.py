"""`ga-dspy graph picture` and `export`: what is taken out of a graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from ga_dspy.cli.graph.tell import opened, plain
from ga_dspy.errors import InputError
from ga_dspy.graphrag import StoredGraph, View
from ga_dspy.graphrag.communities import members
from ga_dspy.graphrag.export import to_graphml, to_json_ld, to_neo4j
from ga_dspy.graphrag.pathfinding import things_named
from ga_dspy.graphrag.picture import MOST_NODES, draw_graph
from ga_dspy.graphrag.surroundings import around

_TEXTS: Final[Mapping[str, Callable[[View], str]]] = {"graphml": to_graphml, "json-ld": to_json_ld}
_NEO4J: Final = "neo4j"


def run_picture(folder: Path, name: str, out: Path, labels: Sequence[str], hops: int) -> None:
    """Draw what surrounds a thing.

    Raises:
        InputError: The file is no .png.
        UnknownThing: Nothing that the caller sees goes by the name.
    """
    if out.suffix.lower() != ".png" or out.is_dir():
        raise InputError(f"--out {out}", expected="a file ending in .png", remedy="rename it so")
    graph = opened(folder, labels)
    nodes = things_named(graph.view.graph, name)
    whole = around(graph.view, nodes, hops=hops, max_nodes=len(graph.view.graph)).nodes
    drawn = around(graph.view, nodes, hops=hops, max_nodes=MOST_NODES).nodes
    marked = [graph.view.graph.name(node) for node in nodes]
    left = f"; the closest {len(drawn)} of {len(whole):,} things" if len(drawn) < len(whole) else ""
    draw_graph(
        graph.view.subgraph(drawn.tolist(), _among(graph.view, drawn.tolist())),
        out,
        title=" and ".join(marked),
        subtitle=f"up to {hops} relations away; colours are communities{left}",
        marked=marked,
        communities=_finest(graph.stored),
    )
    console = plain()
    console.print(f"wrote {out}", markup=False, soft_wrap=True)
    console.print(f"{len(drawn)} things")


def run_export(folder: Path, kind: str, out: Path, labels: Sequence[str]) -> None:
    """Write a caller's graph for other tools.

    Raises:
        InputError: There is no such kind, or the path is of the other sort.
    """
    if kind not in (*_TEXTS, _NEO4J):
        raise InputError(
            f"--to {kind}",
            expected=f"one of {', '.join((*_TEXTS, _NEO4J))}",
            remedy="pass --to graphml",
        )
    if out.is_dir() if kind in _TEXTS else out.is_file():
        sort = ("folder", "file") if kind in _TEXTS else ("file", "folder")
        raise InputError(
            f"--out {out} is a {sort[0]}", expected=f"a {sort[1]}", remedy="name another path"
        )
    view = opened(folder, labels).view
    written = _write(view, kind, out)
    counts = f"{len(view.graph):,} things, {int(view.edges.sum()):,} relations"
    console = plain()
    for path in written:
        console.print(f"wrote {path}", markup=False, soft_wrap=True)
    console.print(counts)


def _write(view: View, kind: str, out: Path) -> Sequence[Path]:
    if kind == _NEO4J:
        return to_neo4j(view, out)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(_TEXTS[kind](view), encoding="utf-8")
    return (out,)


def _among(view: View, nodes: Sequence[int]) -> list[int]:
    """The edges between these nodes that a caller sees and wants."""
    import numpy as np

    graph = view.graph
    inside = np.isin(graph.heads, nodes) & np.isin(graph.tails, nodes) & view.edges
    edges: list[int] = inside.nonzero()[0].tolist()
    return edges


def _finest(stored: StoredGraph) -> dict[str, int]:
    """The smallest community of each thing, by name; things that only some may see have none."""
    public, places = stored.graph.public, members(stored.communities)
    return {public.name(node): found[-1] for node, found in places.items()}
