"""Communities: what of the graph hangs together, found by Leiden, in levels.

They are found on the graph that everybody may see, so neither a community nor its summary tells
what is private. The result is a function of the graph: vertices stand in the order of their names
and the seed is fixed. A community too large to be summarised is divided again. Parts of the graph
that are not connected are divided one by one, so a change in one leaves the others as they are.
"""

from __future__ import annotations

import hashlib
import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from ga_dspy.errors import MissingExtra
from ga_dspy.graph import linearise
from ga_dspy.graphrag.corpus_graph import CorpusGraph

LARGEST: Final = 60
"""Things in a community that is not divided further: about what one prompt can hold."""

SMALLEST: Final = 3
"""Fewer things than this are no community."""

DEEPEST: Final = 4
_SEED: Final = 20_240_607
_MOST_LINES: Final = 80


class Community(NamedTuple):
    """Things that hang together.

    Attributes:
        key: Hash of its members and what is said of them: the same key, the same summary.
        level: 0 for the coarsest division; each further level divides one community of the last.
        parent: Place of the community that it is a part of, in the list of all; -1 at level 0.
        nodes: Its things, the most linked first, in `CorpusGraph.public`.
        edges: The relations between them.
    """

    key: str
    level: int
    parent: int
    nodes: tuple[int, ...]
    edges: tuple[int, ...]


def find_communities(graph: CorpusGraph) -> tuple[Community, ...]:
    """Divide the public part of a graph.

    Returns:
        All communities of `SMALLEST` things or more, those of a level in one run, larger first.

    Raises:
        MissingExtra: igraph is not installed.
    """
    graph = graph.public
    pairs = Counter(
        (min(head, tail), max(head, tail))
        for head, tail in zip(graph.heads.tolist(), graph.tails.tolist(), strict=True)
        if head != tail
    )
    found: list[Community] = []
    frontier = [(-1, part) for part in _connected(graph)]
    for level in range(DEEPEST):
        divided = [
            (parent, part)
            for parent, nodes in frontier
            for part in _divided(nodes, pairs)
            if len(part) >= SMALLEST and (parent < 0 or len(part) < len(nodes))
        ]
        divided.sort(key=lambda entry: (-len(entry[1]), graph.name(entry[1][0])))
        start = len(found)
        found += [_community(graph, level, parent, part) for parent, part in divided]
        frontier = [(start + i, part) for i, (_, part) in enumerate(divided) if len(part) > LARGEST]
    return tuple(found)


def members(communities: Iterable[Community]) -> dict[int, tuple[int, ...]]:
    """The communities, by place, that each node is in, coarsest first."""
    places: dict[int, list[int]] = defaultdict(list)
    for place, community in enumerate(communities):
        for node in community.nodes:
            places[node].append(place)
    return {node: tuple(found) for node, found in places.items()}


def community_text(graph: CorpusGraph, community: Community) -> str:
    """The lines that a summary is written from: the most linked things and their relations."""
    nodes, inside = community.nodes[:_MOST_LINES], set(community.nodes[:_MOST_LINES])
    edges = [
        j for j in community.edges
        if int(graph.heads[j]) in inside and int(graph.tails[j]) in inside
    ][:_MOST_LINES]  # fmt: skip
    return linearise(graph.subgraph(nodes, edges))


def _connected(graph: CorpusGraph) -> list[list[int]]:
    """The connected parts of the graph that are large enough, nodes in the order of their names."""
    names = [graph.name(node) for node in range(len(graph))]
    parts = (part for part in graph.network.connected_components() if len(part) >= SMALLEST)
    return [sorted(part, key=names.__getitem__) for part in parts]


def _divided(nodes: Sequence[int], pairs: Counter[tuple[int, int]]) -> list[list[int]]:
    """Parts by Leiden on modularity, each in the order of `nodes`; a small part is one."""
    if len(nodes) <= LARGEST:
        return [list(nodes)]
    igraph = _igraph()
    place = {node: i for i, node in enumerate(nodes)}
    inside = sorted(
        (*sorted((place[a], place[b])), weight)
        for (a, b), weight in pairs.items()
        if a in place and b in place
    )
    network = igraph.Graph(n=len(nodes), edges=[(a, b) for a, b, _ in inside])
    igraph.set_random_number_generator(random.Random(_SEED))
    try:
        division = network.community_leiden(
            objective_function="modularity",
            weights=[weight for *_, weight in inside] or None,
            n_iterations=10,
        )
    finally:
        igraph.set_random_number_generator(random)
    return [[nodes[i] for i in part] for part in division]


def _community(graph: CorpusGraph, level: int, parent: int, nodes: Sequence[int]) -> Community:
    inside = set(nodes)
    # Vertices of igraph are nodes, and its edge ids are edges.
    incident = {j for node in nodes for j in graph.network.incident(node)}
    heads, tails = graph.heads, graph.tails
    edges = sorted(j for j in incident if int(heads[j]) in inside and int(tails[j]) in inside)
    degree = Counter(int(end) for j in edges for end in (heads[j], tails[j]))
    ranked = tuple(sorted(nodes, key=lambda node: (-degree[node], graph.name(node))))
    draft = Community("", level, parent, ranked, tuple(edges))
    digest = hashlib.sha256(_contents(graph, draft).encode()).hexdigest()
    return draft._replace(key=digest)


def _contents(graph: CorpusGraph, community: Community) -> str:
    """All that is said inside a community, whatever the numbers of its nodes."""
    lines = sorted(linearise(graph.subgraph(community.nodes, community.edges)).splitlines())
    return "\n".join(line.partition(". ")[2] or line for line in lines)


def _igraph() -> Any:
    try:
        import igraph
    except ImportError as error:
        raise MissingExtra("igraph", "graph") from error
    return igraph
