"""Which paths carry a neighbourhood: those over the edges that most shortest ways go through."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ga_dspy.errors import MissingExtra
from ga_dspy.graphrag.corpus_graph import CorpusGraph, View
from ga_dspy.graphrag.found import Found
from ga_dspy.graphrag.pathfinding import GraphPath, path_of, paths_between, things_named
from ga_dspy.graphrag.surroundings import around

if TYPE_CHECKING:
    from collections.abc import Iterator

_PER_PAIR: Final = 5


class CentralPath(NamedTuple):
    """A path between two things, and how much goes through it.

    Attributes:
        path: The path; its cost is its length.
        betweenness: The mean, over its edges, of how many shortest ways between any two things of
            the neighbourhood pass the edge.
    """

    path: GraphPath
    betweenness: float


def central_paths(found: Found, k: int = 3) -> tuple[CentralPath, ...]:
    """The paths of highest betweenness that connect the things that a question names.

    Args:
        found: What a search found; its neighbourhood and paths are what is looked at.
        k: The most paths.

    Returns:
        Highest first; none where fewer than two things are linked or nothing connects them.
    """
    graph = found.view.graph
    seeds = [link.node for link in found.linked]
    return _central(graph, list(combinations(seeds, 2)), (found.edges, found.paths), k)


def central_paths_between(
    view: View, one: str, other: str, k: int = 3, *, hops: int = 2
) -> tuple[CentralPath, ...]:
    """The paths of highest betweenness that connect two things, as far as a caller sees and wants.

    Args:
        view: The caller's view.
        one: A name; namesakes are all looked at.
        other: Another.
        k: The most paths.
        hops: How far the neighbourhood reaches around the two.

    Returns:
        Highest first; none where nothing in the neighbourhood connects the two.

    Raises:
        UnknownThing: Nothing that the caller sees goes by one of the names.
    """
    ends = [things_named(view.graph, name) for name in (one, other)]
    near = around(view, (node for nodes in ends for node in nodes), hops=hops)
    paths = paths_between(view, one, other, k)
    return _central(
        view.graph, [(a, b) for a in ends[0] for b in ends[1]], (near.edges.tolist(), paths), k
    )


def _central(
    graph: CorpusGraph,
    pairs: Sequence[tuple[int, int]],
    area: tuple[Sequence[int], Iterable[GraphPath]],
    k: int,
) -> tuple[CentralPath, ...]:
    """The most central paths between pairs, over the edges of a neighbourhood and of some paths."""
    near, paths = area
    edges = list(dict.fromkeys((*near, *(j for path in paths for j in path.edges))))
    if not edges or not pairs:
        return ()
    network, place = _network(graph, [node for pair in pairs for node in pair], edges)
    through = network.edge_betweenness(directed=False)
    central = {
        path.edges: CentralPath(path, round(sum(through[i] for i in chain) / len(chain), 6))
        for one, other in pairs
        for chain in _chains(network, place[one], place[other])
        for path in [_path(graph, one, [edges[i] for i in chain])]
    }
    ranked = sorted(central.values(), key=lambda each: (-each.betweenness, each.path.edges))
    return tuple(ranked[:k])


def _network(
    graph: CorpusGraph, seeds: Sequence[int], edges: Sequence[int]
) -> tuple[Any, dict[int, int]]:
    """The neighbourhood as an igraph graph, and the vertex of each node; edges keep their order."""
    try:
        import igraph
    except ImportError as error:
        raise MissingExtra("igraph", "graph") from error
    pairs = [(int(graph.heads[j]), int(graph.tails[j])) for j in edges]
    nodes = dict.fromkeys((*seeds, *(end for pair in pairs for end in pair)))
    place = {node: i for i, node in enumerate(nodes)}
    return igraph.Graph(n=len(place), edges=[(place[a], place[b]) for a, b in pairs]), place


def _chains(network: Any, one: int, other: int) -> Iterator[list[int]]:
    """The shortest few chains of edges between two vertices; none where nothing connects them."""
    if one == other or network.distances(one, other)[0][0] == float("inf"):
        return
    for chain in network.get_k_shortest_paths(one, to=other, k=_PER_PAIR, output="epath"):
        if chain:
            yield chain


def _path(graph: CorpusGraph, start: int, edges: Sequence[int]) -> GraphPath:
    nodes = [start]
    for edge in edges:
        head, tail = int(graph.heads[edge]), int(graph.tails[edge])
        nodes.append(tail if nodes[-1] == head else head)
    return path_of(graph, tuple(nodes), tuple(edges), float(len(edges)))
