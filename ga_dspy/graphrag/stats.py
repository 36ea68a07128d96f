"""Looking into a corpus graph: its size and hubs, one thing of it, its communities."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final, NamedTuple

from ga_dspy.graph import Entity, Relation
from ga_dspy.graphrag.communities import Community
from ga_dspy.graphrag.corpus_graph import CorpusGraph, View
from ga_dspy.graphrag.sources import relation_key

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
        things: Nodes.
        values: Nodes that are dates, numbers or amounts.
        relations: Edges.
        wordings: Different relations.
        passages: Passages that state something.
        parts: Connected parts.
        largest_part: Things in the largest of them.
        isolated: Things without a relation.
        merged: Spellings that were taken for another name of a thing.
        contradicted: Edges that contradict another.
        commonest: The commonest relations.
        central: Things by PageRank.
        between: Things by betweenness, over paths of at most four relations.
    """

    things: int
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


class Link(NamedTuple):
    """A relation of a thing, with the passages that state it and what it contradicts."""

    relation: Relation
    passages: tuple[str, ...]
    critical: bool
    contradicts: tuple[Relation, ...]


class Shown(NamedTuple):
    """One thing, all that is known of it, and the spellings that were taken for its names."""

    node: int
    entity: Entity
    wikidata: str
    passages: tuple[str, ...]
    links: tuple[Link, ...]
    merged: tuple[tuple[str, str], ...]
    """Spelling and rule."""


def stats(view: View) -> Stats:
    """A caller's graph in figures."""
    graph = view.graph
    wordings = Counter(relation_key(r) for r in graph.tables.edges["relation"].to_pylist())
    sizes = graph.network.connected_components().sizes()
    contradicted = sum(map(bool, graph.tables.edges["contradicts"].to_pylist()))
    return Stats(
        things=len(graph),
        values=int(graph.plain_values.sum()),
        relations=len(graph.relations),
        wordings=len(wordings),
        passages=len(graph.passages),
        parts=len(sizes),
        largest_part=max(sizes, default=0),
        isolated=sum(degree == 0 for degree in graph.network.degree()),
        merged=graph.tables.merges.num_rows,
        contradicted=contradicted,
        commonest=tuple(Ranked(name, n) for name, n in wordings.most_common(_TOP)),
        central=_top(view, graph.network.pagerank()),
        between=_top(view, graph.network.betweenness(directed=False, cutoff=_REACH)),
    )


def show(view: View, name: str) -> tuple[Shown, ...]:
    """Every thing that goes by a name, with all that a caller may know of it."""
    return tuple(_shown(view, node) for node in view.graph.find(name))


class Listed(NamedTuple):
    """A community, and its most linked things."""

    place: int
    community: Community
    names: tuple[str, ...]


def listed(
    graph: CorpusGraph, communities: Sequence[Community], most: int = 8
) -> tuple[Listed, ...]:
    """Communities by place, coarsest and largest first, each with its `most` most linked things.

    Args:
        graph: The whole graph, whose public part the communities are of.
        communities: All of them, in their order.
        most: How many things to name.
    """
    public = graph.public
    return tuple(
        Listed(place, community, tuple(public.name(node) for node in community.nodes[:most]))
        for place, community in enumerate(communities)
    )


def _top(view: View, values: Sequence[float]) -> tuple[Ranked, ...]:
    graph = view.graph
    things = (i for i in range(len(graph)) if not graph.plain_values[i])
    order = sorted(things, key=lambda i: (-values[i], i))
    return tuple(Ranked(graph.name(i), float(values[i])) for i in order[:_TOP])


def _shown(view: View, node: int) -> Shown:
    graph = view.graph
    edges = [j for j in sorted(graph.network.incident(node)) if view.edges[j]]
    links = tuple(
        Link(
            graph.edge(j),
            graph.passages_of_edge(j),
            graph.flags(j).critical,
            tuple(graph.edge(other) for other in graph.flags(j).contradicts),
        )
        for j in edges
    )
    merged = tuple((m.spelling, m.rule) for m in graph.merges if m.node == node)
    return Shown(
        node, graph.node(node), graph.wikidata(node), graph.passages_of(node), links, merged
    )
