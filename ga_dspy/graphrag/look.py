"""Looking into a corpus graph: its figures, one entity, central paths, pictures, exports."""

from __future__ import annotations

import csv
import json
import re
import textwrap
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from ga_dspy.drawing import GREY, INK, MUTED, PALE, canvas, head, save
from ga_dspy.errors import InputError, require
from ga_dspy.graph import Entity, KnowledgeGraph, Relation
from ga_dspy.graphrag.corpus_graph import View
from ga_dspy.graphrag.records import relation_key
from ga_dspy.graphrag.resolution import Flags
from ga_dspy.graphrag.walk import GraphPath, around, find_named, paths_between
from ga_dspy.text import csv_cell, visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# --- A caller's graph in figures, and all that is known of one entity.

_TOP: Final = 10
_REACH: Final = 4
"""Longer shortest paths do not count for betweenness, which keeps it quick in large graphs."""


class Ranked(NamedTuple):
    """A name and its figure."""

    name: str
    value: float


class Stats(NamedTuple):
    """A graph in figures.

    Attributes:
        entities: Nodes.
        values: Nodes that are dates, numbers or amounts.
        relations: Edges.
        wordings: Different relations.
        passages: Passages that state something.
        parts: Connected parts.
        largest_part: Entities in the largest of them.
        isolated: Entities without a relation.
        merged: Spellings that were merged into another name.
        contradicted: Edges that contradict another.
        commonest: The commonest relations.
        central: Entities by PageRank.
        between: Entities by betweenness, over paths of at most four relations.
    """

    entities: int
    values: int
    relations: int
    wordings: int
    passages: int
    parts: int
    largest_part: int
    isolated: int
    merged: int
    contradicted: int
    commonest: tuple[Ranked, ...]
    central: tuple[Ranked, ...]
    between: tuple[Ranked, ...]


def stats(view: View) -> Stats:
    """A caller's graph in figures."""
    graph, edges, network = view.graph, view.graph.tables.edges, view.graph.network
    wordings = Counter(map(relation_key, edges["relation"].to_pylist()))
    sizes = network.connected_components().sizes()

    def top(values: Sequence[float]) -> tuple[Ranked, ...]:
        entities = np.flatnonzero(~graph.plain_values).tolist()
        best = sorted(entities, key=lambda i: (-values[i], i))[:_TOP]
        return tuple(Ranked(graph.name(i), float(values[i])) for i in best)

    return Stats(
        entities=len(graph),
        values=int(graph.plain_values.sum()),
        relations=len(graph.relations),
        wordings=len(wordings),
        passages=len(graph.passages),
        parts=len(sizes),
        largest_part=max(sizes, default=0),
        isolated=network.degree().count(0),
        merged=graph.tables.merges.num_rows,
        contradicted=sum(map(bool, edges["contradicts"].to_pylist())),
        commonest=tuple(Ranked(name, n) for name, n in wordings.most_common(_TOP)),
        central=top(network.pagerank()),
        between=top(network.betweenness(directed=False, cutoff=_REACH)),
    )


class ShownRelation(NamedTuple):
    """A relation of an entity, with the passages that state it and what it contradicts."""

    relation: Relation
    passages: tuple[str, ...]
    critical: bool
    contradicts: tuple[Relation, ...]


class ShownEntity(NamedTuple):
    """An entity and all that is known of it; `merged` has spellings, each with its rule."""

    node: int
    entity: Entity
    wikidata: str
    passages: tuple[str, ...]
    relations: tuple[ShownRelation, ...]
    merged: tuple[tuple[str, str], ...]


def show(view: View, name: str) -> tuple[ShownEntity, ...]:
    """Every entity that goes by a name, with all that a caller may know of it."""
    graph = view.graph
    return tuple(
        ShownEntity(
            node,
            graph.node(node),
            graph.wikidata(node),
            graph.passages_of(node),
            tuple(
                ShownRelation(
                    graph.edge(j),
                    graph.passages_of_edge(j),
                    graph.flags(j).critical,
                    tuple(map(graph.edge, graph.flags(j).contradicts)),
                )
                for j in sorted(graph.network.incident(node))
                if view.edges[j]
            ),
            tuple((merge.spelling, merge.rule) for merge in graph.merges if merge.node == node),
        )
        for node in graph.find(name)
    )


# --- Which paths carry a neighbourhood: those over the edges that most shortest ways go through.

_PER_PAIR: Final = 5


class CentralPath(NamedTuple):
    """A path between two entities, and how much goes through it.

    Attributes:
        path: The path; its cost is its length.
        betweenness: The mean, over its edges, of how many shortest ways between any two nodes of
            the neighbourhood pass the edge.
    """

    path: GraphPath
    betweenness: float


def central_paths_between(
    view: View, one: str, other: str, k: int = 3, *, hops: int = 2
) -> tuple[CentralPath, ...]:
    """The paths of highest betweenness that connect two entities, as a caller sees and wants it.

    Args:
        view: The caller's view.
        one: A name; namesakes are all looked at.
        other: Another.
        k: The most paths.
        hops: How far the neighbourhood reaches around the two.

    Returns:
        Highest first; none where nothing in the neighbourhood connects the two.

    Raises:
        InputError: Nothing that the caller sees goes by one of the names.
    """
    graph = view.graph
    pairs = list(product(find_named(graph, one), find_named(graph, other)))
    seeds = [node for pair in pairs for node in pair]
    paths = paths_between(view, one, other, k)
    near = around(view, seeds, hops=hops).edges.tolist()
    edges = list(dict.fromkeys((*near, *(j for path in paths for j in path.edges))))
    if not edges:
        return ()
    ends = np.column_stack([graph.heads[edges], graph.tails[edges]]).tolist()
    place = {
        node: i for i, node in enumerate(dict.fromkeys((*seeds, *(n for e in ends for n in e))))
    }
    network = require("igraph", "graph").Graph(
        n=len(place), edges=[(place[a], place[b]) for a, b in ends]
    )
    through = network.edge_betweenness(directed=False)
    central: dict[tuple[int, ...], CentralPath] = {}
    for start, end in pairs:
        a, b = place[start], place[end]
        if a == b or network.distances(a, b)[0][0] == float("inf"):
            continue
        for chain in network.get_k_shortest_paths(a, to=b, k=_PER_PAIR, output="epath"):
            path = GraphPath.along(graph, start, [edges[i] for i in chain], float(len(chain)))
            share = round(sum(through[i] for i in chain) / len(chain), 6)
            central[path.edges] = CentralPath(path, share)
    ranked = sorted(central.values(), key=lambda each: (-each.betweenness, each.path.edges))
    return tuple(ranked[:k])


# --- A part of a graph as a picture, coloured by community.

MOST_NODES: Final = 60
"""More would not be legible; those with the fewest relations are left out, and counted."""

COLOURS: Final = (
    "#1f6feb", "#c2570c", "#3f9b6c", "#8a4fbf", "#d4a017", "#5ab4d6", "#a33b52", "#7b8794",
)  # fmt: skip
"""One for each of the largest communities; the others are grey."""

_WORDED_EDGES: Final = 30
_LINE, _LETTERS, _SIZE = 0.15, 18, 8
_ROUNDS: Final = 400


def draw_graph(
    graph: KnowledgeGraph,
    path: Path,
    *,
    title: str = "",
    subtitle: str = "",
    marked: Collection[str] = (),
    communities: Mapping[str, int] | None = None,
) -> Path:
    """Draw entities and relations into a png; the same graph gives the same bytes.

    Args:
        graph: What to draw, at most `MOST_NODES` entities of it.
        path: The file.
        title: Above the picture.
        subtitle: Below the title.
        marked: Names of entities to mark with a ring: those that a question names.
        communities: The community of each entity by name; by default those that short random
            walks find, whose probabilities are computed and not drawn.

    Raises:
        InputError: The graph has no entities.
        MissingExtra: matplotlib or igraph is not installed.
    """
    linked = Counter(end for relation in graph.relations for end in (relation.head, relation.tail))
    every = dict.fromkeys((*(entity.name for entity in graph.entities), *linked))
    if not every:
        raise InputError(
            "the part of the graph has no entities",
            expected="at least one entity",
            remedy="ask about something that the graph knows",
        )
    names = sorted(every, key=lambda name: (name not in marked, -linked[name]))[:MOST_NODES]
    place = {name: i for i, name in enumerate(names)}
    relations = [r for r in graph.relations if r.head in place and r.tail in place]
    pairs = [(place[r.head], place[r.tail]) for r in relations]
    network = require("igraph", "graph").Graph(n=len(names), edges=pairs).simplify()
    if communities:
        groups = [communities.get(name, -1) for name in names]
    else:
        groups = network.community_walktrap().as_clustering().membership
    labels = [textwrap.fill(name, _LETTERS) for name in names]
    at = _layout(network, labels)
    width, height = (float(side) for side in at.max(axis=0) - at.min(axis=0) + (2.2, 1.4))
    figure, (axes,) = canvas(max(width, 5.0), max(height + 0.8, 3.5))
    _draw_edges(axes, at, relations, pairs)
    _draw_nodes(axes, at, labels, groups, [name in marked for name in names])
    # An inch is an inch, and there are no axes.
    (x, y), width, height = (at.max(axis=0) + at.min(axis=0)) / 2, max(width, 5.0), max(height, 2.7)
    axes.set(xlim=(x - width / 2, x + width / 2), ylim=(y - height / 2 - 0.2, y + height / 2 - 0.2))
    axes.set_axis_off()
    left_out = len(every) - len(names)
    caption = f"{left_out} entities with fewer relations are left out." if left_out else ""
    counted = f"{len(names)} entities, {len(relations)} relations; colours are communities"
    head(figure, title or "Knowledge graph", subtitle or counted, caption)
    return save(figure, path)


def _layout(network: Any, labels: Sequence[str]) -> NDArray[np.float64]:
    """Places in inches, shape (nodes, 2), so that no label lies over another.

    Kamada and Kawai's springs from a circle, at about an inch an edge; then labels are pushed
    apart.
    """
    count = network.vcount()
    springs = network.layout_kamada_kawai(seed=network.layout_circle(), maxiter=50 * count)
    at = np.asarray(springs.coords, dtype=np.float64).reshape(count, 2) * 0.95
    lines = [label.split("\n") for label in labels]
    size = np.array([(0.075 * max(map(len, n)) + 0.15, 0.3 + _LINE * len(n)) for n in lines])
    room = (size[:, None] + size[None, :]) / 2
    upper = np.triu(np.ones((count, count), dtype=np.bool_), k=1)
    for _ in range(_ROUNDS):
        apart = at[:, None] - at[None, :]
        over = room - np.abs(apart)
        one, other = np.nonzero((over > 1e-6).all(axis=2) & upper)
        if not len(one):
            break
        axis = np.argmin(over[one, other], axis=1)
        sign = np.where(apart[one, other, axis] < 0, -1.0, 1.0)
        shift = sign * (over[one, other, axis] / 2 + 0.005)
        np.add.at(at, (one, axis), shift)
        np.add.at(at, (other, axis), -shift)
    return at


def _draw_edges(
    axes: Axes,
    at: NDArray[np.float64],
    relations: Sequence[Relation],
    pairs: Sequence[tuple[int, int]],
) -> None:
    wordings: dict[tuple[int, int], list[str]] = {}
    for pair, relation in zip(pairs, relations, strict=True):
        wordings.setdefault(pair, []).append(relation.relation)
    for (one, other), worded in wordings.items():
        axes.annotate(
            "", at[other], at[one],
            arrowprops={"arrowstyle": "-|>", "color": PALE, "shrinkA": 6, "shrinkB": 6, "lw": 0.9},
            zorder=1,
        )  # fmt: skip
        if len(wordings) <= _WORDED_EDGES:
            text = textwrap.fill(", ".join(dict.fromkeys(worded)), 2 * _LETTERS)
            x, y = ((at[one] + at[other]) / 2).tolist()
            axes.text(x, y, text, fontsize=_SIZE - 2, color=MUTED, ha="center", va="center",
                      bbox=_box(0.85), zorder=2)  # fmt: skip


def _draw_nodes(
    axes: Axes,
    at: NDArray[np.float64],
    labels: Sequence[str],
    groups: Sequence[int],
    marked: Sequence[bool],
) -> None:
    sizes = Counter(group for group in groups if group >= 0)
    ranked = sorted(sizes, key=lambda group: (-sizes[group], group))
    colour = dict(zip(ranked, COLOURS, strict=False))
    axes.scatter(
        at[:, 0], at[:, 1], s=[110 if mark else 60 for mark in marked],
        c=[colour.get(group, GREY) for group in groups],
        edgecolors=[INK if mark else "white" for mark in marked], linewidths=1.4, zorder=3,
    )  # fmt: skip
    for (x, y), label, mark in zip(at, labels, marked, strict=True):
        axes.annotate(
            label, (x, y), xytext=(0, -7), textcoords="offset points", ha="center", va="top",
            fontsize=_SIZE, color=INK, weight="bold" if mark else "normal", bbox=_box(0.7),
            zorder=4, linespacing=1.05,
        )  # fmt: skip


def _box(alpha: float) -> dict[str, Any]:
    """The box behind a text."""
    return {"facecolor": "white", "edgecolor": "none", "alpha": alpha, "pad": 0.8}


# --- A caller's view of a corpus graph for other tools: GraphML, JSON-LD, CSV for Neo4j.

_CONTEXT: Final = {
    "@vocab": "https://schema.org/",
    "rdf": "http://www.w3.org/1999/02/22-rdf-syntax-ns#",
    "subject": {"@id": "rdf:subject", "@type": "@id"},
    "predicate": "rdf:predicate",
    "object": {"@id": "rdf:object", "@type": "@id"},
    "sameAs": {"@type": "@id"},
}
_WIKIDATA: Final = "http://www.wikidata.org/entity/"
_NODE_HEADER: Final = (
    "id:ID", "name", "type", "attributes:string[]", "aliases:string[]", "wikidata",
    "passages:string[]", ":LABEL",
)  # fmt: skip
_EDGE_HEADER: Final = (
    ":START_ID", ":END_ID", "relation", "time", "confidence:double", "critical:boolean",
    "contradicted:boolean", "passages:string[]", ":TYPE",
)  # fmt: skip


def to_graphml(view: View) -> str:
    """GraphML for Gephi, yEd and the like: nodes n0, n1, … with a `label`; lists joined by "; "."""
    graph, network = view.graph, nx.MultiDiGraph()
    for i, entity in enumerate(graph.entities):
        network.add_node(
            f"n{i}",
            label=visible(entity.name),
            type=visible(entity.type),
            attributes=visible("; ".join(entity.attributes)),
            aliases=visible("; ".join(entity.aliases)),
            wikidata=graph.wikidata(i),
            passages=visible("; ".join(graph.passages_of(i))),
        )
    for j, relation, flags in _edges(view):
        known = {
            "time": relation.time and visible(relation.time),
            "confidence": relation.confidence,
        }
        network.add_edge(
            f"n{graph.heads[j]}",
            f"n{graph.tails[j]}",
            key=f"e{j}",
            relation=visible(relation.relation),
            critical=flags.critical,
            contradicts="; ".join(f"e{other}" for other in flags.contradicts),
            passages=visible("; ".join(graph.passages_of_edge(j))),
            **{name: value for name, value in known.items() if value is not None},
        )
    return "\n".join(nx.generate_graphml(network))


def to_json_ld(view: View) -> str:
    """JSON-LD: entities in schema.org's words, relations as RDF statements about two of them."""
    graph, items = view.graph, []
    for i, entity in enumerate(graph.entities):
        wikidata = graph.wikidata(i)
        described: dict[str, Any] = {
            "name": entity.name,
            "additionalType": entity.type,
            "description": "; ".join(entity.attributes),
            "alternateName": list(entity.aliases),
            "sameAs": f"{_WIKIDATA}{wikidata}" if wikidata else "",
            "citation": list(graph.passages_of(i)),
        }
        known = {key: value for key, value in described.items() if value}
        items.append({"@id": f"#n{i}", "@type": "Thing", **known})
    for j, relation, flags in _edges(view):
        noted: dict[str, Any] = {
            "temporalCoverage": relation.time,
            "confidence": relation.confidence,
            "contradicts": [{"@id": f"#e{other}"} for other in flags.contradicts],
            "citation": list(graph.passages_of_edge(j)),
        }
        statement = {
            "@id": f"#e{j}",
            "@type": "rdf:Statement",
            "subject": f"#n{graph.heads[j]}",
            "predicate": relation.relation,
            "object": f"#n{graph.tails[j]}",
        }
        items.append(statement | {k: v for k, v in noted.items() if v not in (None, [])})
    return json.dumps({"@context": _CONTEXT, "@graph": items}, ensure_ascii=False, indent=1)


def to_neo4j(view: View, folder: Path | str) -> tuple[Path, Path]:
    """Write the files that `neo4j-admin database import` reads, with default delimiters.

    Returns:
        The paths for `--nodes` and `--relationships`.
    """
    target, graph = Path(folder), view.graph
    target.mkdir(parents=True, exist_ok=True)
    nodes = (
        (i, e.name, e.type, _array(e.attributes), _array(e.aliases), graph.wikidata(i),
         _array(graph.passages_of(i)), "Value" if graph.plain_values[i] else "Thing")
        for i, e in enumerate(graph.entities)
    )  # fmt: skip
    relationships = (
        (graph.heads[j], graph.tails[j], r.relation, r.time or "",
         "" if r.confidence is None else r.confidence, str(flags.critical).lower(),
         str(bool(flags.contradicts)).lower(), _array(graph.passages_of_edge(j)),
         relationship_type(r.relation))
        for j, r, flags in _edges(view)
    )  # fmt: skip
    files = (target / "nodes.csv", target / "relationships.csv")
    for path, header, rows in zip(
        files, (_NODE_HEADER, _EDGE_HEADER), (nodes, relationships), strict=True
    ):
        with path.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([header, *([csv_cell(str(c)) for c in row] for row in rows)])
    return files


def relationship_type(relation: str) -> str:
    """A relation as Neo4j writes types.

    >>> relationship_type("was born in"), relationship_type("→")
    ('BORN_IN', 'RELATED_TO')
    """
    return re.sub(r"\W+", "_", relation_key(relation)).strip("_").upper() or "RELATED_TO"


def _edges(view: View) -> Iterator[tuple[int, Relation, Flags]]:
    """The edges that a caller wants, with their relations and what is noted of them."""
    for j in view.edges.nonzero()[0].tolist():
        yield j, view.graph.edge(j), view.graph.flags(j)


def _array(texts: Iterable[str]) -> str:
    """Texts as Neo4j reads a list: between semicolons, so that none may hold one."""
    return ";".join(text.replace(";", ",") for text in texts)
