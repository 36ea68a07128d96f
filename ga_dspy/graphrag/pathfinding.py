"""How two things are connected: the cheapest few paths between them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ga_dspy.errors import InputError, MissingExtra
from ga_dspy.graph import normalise
from ga_dspy.graph.paths import MOST_HOPS
from ga_dspy.graphrag.corpus_graph import CorpusGraph, View
from ga_dspy.graphrag.expansion import Wiring
from ga_dspy.graphrag.verbalise import chain_text

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

CROWD: Final = 500
"""The search does not fan out of a thing with more edges than this; paths may meet in it."""

_MOST_EDGES: Final = 2000
_HUB_COST, _VALUE_COST, _COMMON_COST = 0.12, 1.0, 0.06


class GraphPath(NamedTuple):
    """A chain of edges from one thing to another, whatever the direction of each.

    Attributes:
        nodes: The things on the way, ends included.
        edges: The edges between them, in order.
        text: "A -> wrote -> B <- played in <- C".
        cost: What the edges cost together; less is better.
    """

    nodes: tuple[int, ...]
    edges: tuple[int, ...]
    text: str
    cost: float


class UnknownThing(InputError):
    """Nothing in the graph, as far as the caller sees it, goes by a name."""

    def __init__(self, name: str, alike: Sequence[str]) -> None:
        meant = f"; names spelled alike: {', '.join(alike)}" if alike else ""
        super().__init__(
            f"nothing in the graph goes by {name!r}",
            expected="a name or an alias of a thing in the graph",
            remedy=f"look at its spelling, or at the labels of the caller{meant}",
        )
        self.name, self.alike = name, tuple(alike)


def costs_of(wiring: Wiring, often: NDArray[np.integer]) -> NDArray[np.float64]:
    """What each edge adds to a path, shape (edges,), at least 1.

    More at a hub or a plain value, with a common relation or with low confidence.

    Args:
        wiring: The edges.
        often: How many edges have the wording of each edge, shape (edges,).
    """
    import numpy as np

    heads, tails = wiring.heads, wiring.tails
    hubs = np.log2(wiring.degrees[heads]) + np.log2(wiring.degrees[tails])
    values = wiring.values[heads].astype(np.float64) + wiring.values[tails]
    costs: NDArray[np.float64] = 1 + _HUB_COST * hubs / 2 + _VALUE_COST * values
    costs += _COMMON_COST * np.log2(often) + (1 - wiring.confidence)
    return costs


def shortest_paths(
    wiring: Wiring,
    source: int,
    target: int,
    wanted: NDArray[np.bool_],
    costs: NDArray[np.float64],
    *,
    k: int = 3,
    most_hops: int = MOST_HOPS,
) -> list[tuple[tuple[int, ...], tuple[int, ...], float]]:
    """The cheapest paths between two nodes, cheapest first: nodes, edges and cost of each.

    Of several edges between the same two nodes the cheapest counts, so that paths differ in the
    things they pass. Paths over `most_hops` hops long are taken for chance.

    Args:
        wiring: The edges of the graph.
        source: One end.
        target: The other end.
        wanted: Which edges may be followed, shape (edges,).
        costs: What each edge costs (`costs_of`), above 0, shape (edges,).
        k: The most paths.
        most_hops: The longest path.
    """
    import numpy as np

    if source == target:
        return []
    edges = _between(wiring, source, target, wanted, most_hops)
    edges = edges[np.lexsort((edges, costs[edges]))][:_MOST_EDGES]
    edges = _cheapest_parallel(wiring, edges)
    local = np.unique(np.concatenate([wiring.heads[edges], wiring.tails[edges]]))
    ends = np.searchsorted(local, [source, target])
    if (ends >= len(local)).any() or (local[ends] != [source, target]).any():
        return []
    pairs = np.searchsorted(local, np.column_stack([wiring.heads[edges], wiring.tails[edges]]))
    network = _igraph().Graph(n=len(local), edges=pairs.tolist())
    found = network.get_k_shortest_paths(
        int(ends[0]), to=int(ends[1]), k=k + most_hops, weights=costs[edges].tolist(),
        output="epath",
    )  # fmt: skip
    chains = [tuple(edges[path].tolist()) for path in found if 0 < len(path) <= most_hops]
    return [
        (_along(wiring, source, chain), chain, float(costs[list(chain)].sum()))
        for chain in chains[:k]
    ]


def paths_between(
    view: View, one: str, other: str, k: int = 3, *, most_hops: int = MOST_HOPS
) -> tuple[GraphPath, ...]:
    """How two things are connected, as far as a caller sees and wants it; cheapest first.

    Namesakes are all looked at. None is an answer: nothing short connects the two.

    Raises:
        UnknownThing: Nothing that the caller sees goes by one of the names.
    """
    wiring = Wiring(view.graph)
    costs = costs_of(wiring, _how_often(view.graph))
    found = [
        path_of(view.graph, *path)
        for source in things_named(view.graph, one)
        for target in things_named(view.graph, other)
        for path in shortest_paths(
            wiring, source, target, view.edges, costs, k=k, most_hops=most_hops
        )
    ]
    return tuple(sorted(found, key=lambda path: (path.cost, path.edges))[:k])


def path_of(
    graph: CorpusGraph, nodes: tuple[int, ...], edges: tuple[int, ...], cost: float
) -> GraphPath:
    """A path with its words."""
    names = [graph.name(node) for node in nodes]
    return GraphPath(nodes, edges, chain_text(names, [graph.edge(j) for j in edges]), cost)


def things_named(graph: CorpusGraph, name: str) -> tuple[int, ...]:
    """The nodes that go by a name; namesakes are several.

    Args:
        graph: A caller's own graph, so that no name is suggested that the caller may not see.
        name: A name or an alias, in any spelling.

    Raises:
        UnknownThing: There is none; the message has the names that are spelled most alike.
    """
    found = graph.find(name)
    if not found:
        from rapidfuzz import process

        near = process.extract(normalise(name), [*graph.names], limit=3, score_cutoff=80)
        alike = dict.fromkeys(graph.name(graph.names[key][0]) for key, _, _ in near)
        raise UnknownThing(name, [*alike])
    return found


def _how_often(graph: CorpusGraph) -> NDArray[np.int64]:
    """How many edges have the wording of each edge, shape (edges,)."""
    import numpy as np

    _, wording, counts = np.unique(
        graph.tables.edges["relation"].to_numpy(), return_inverse=True, return_counts=True
    )
    often: NDArray[np.int64] = counts[wording]
    return often


def _between(
    wiring: Wiring, source: int, target: int, wanted: NDArray[np.bool_], most_hops: int
) -> NDArray[np.int64]:
    """The wanted edges on some way of at most `most_hops` hops from one end to the other.

    From each end half of the way is looked at; ways meet in what is near to both.
    """
    import numpy as np

    half = (most_hops + 1) // 2
    near = [_spread(wiring, _start(wiring, end), wanted, (1, half)) for end in (source, target)]
    # The other half of a way lies in what is near to the other end.
    steps = [
        _spread(wiring, one, wanted, (half + 1, most_hops), within=other >= 0)
        for one, other in (near, near[::-1])
    ]
    away = [np.where(distance < 0, most_hops, distance).astype(np.int64) for distance in steps]
    nodes = np.flatnonzero((steps[0] >= 0) & (steps[1] >= 0))
    _, edges = wiring.touching(nodes[wiring.degrees[nodes] <= CROWD])
    ends = [wiring.touching(np.array([end]))[1] for end in (source, target)]
    edges = np.unique(np.concatenate([edges, *ends]))
    edges = edges[wanted[edges]]
    heads, tails = wiring.heads[edges], wiring.tails[edges]
    forth, back = away[0][heads] + 1 + away[1][tails], away[0][tails] + 1 + away[1][heads]
    short: NDArray[np.int64] = edges[np.minimum(forth, back) <= most_hops]
    return short


def _start(wiring: Wiring, node: int) -> NDArray[np.int8]:
    import numpy as np

    distance = np.full(len(wiring.degrees), -1, dtype=np.int8)
    distance[node] = 0
    return distance


def _spread(
    wiring: Wiring,
    distance: NDArray[np.int8],
    wanted: NDArray[np.bool_],
    hops: tuple[int, int],
    within: NDArray[np.bool_] | None = None,
) -> NDArray[np.int8]:
    """Hops from a node, shape (nodes,), -1 for what is further away, from one hop up to another.

    Args:
        wiring: The edges.
        distance: What is known up to the hop before the first.
        wanted: Which edges may be followed.
        hops: The first hop to look at and the last.
        within: Which nodes to look at.
    """
    import numpy as np

    distance = distance.copy()
    within = np.ones(len(distance), dtype=np.bool_) if within is None else within
    for hop in range(hops[0], hops[1] + 1):
        frontier = np.flatnonzero((distance == hop - 1) & (within | (distance == 0)))
        frontier = frontier[(wiring.degrees[frontier] <= CROWD) | (hop == 1)]
        nodes, edges = wiring.touching(frontier)
        reached = wiring.across(nodes, edges)[wanted[edges]]
        distance[reached[(distance[reached] < 0) & within[reached]]] = hop
    return distance


def _cheapest_parallel(wiring: Wiring, edges: NDArray[np.int64]) -> NDArray[np.int64]:
    """Of edges between the same two nodes the first, the order of the others kept."""
    import numpy as np

    pairs = np.sort(np.column_stack([wiring.heads[edges], wiring.tails[edges]]), axis=1)
    _, first = np.unique(pairs, axis=0, return_index=True)
    firsts: NDArray[np.int64] = edges[np.sort(first)]
    return firsts


def _along(wiring: Wiring, source: int, chain: Sequence[int]) -> tuple[int, ...]:
    nodes = [source]
    for edge in chain:
        head, tail = int(wiring.heads[edge]), int(wiring.tails[edge])
        nodes.append(tail if nodes[-1] == head else head)
    return tuple(nodes)


def _igraph() -> Any:
    try:
        import igraph
    except ImportError as error:
        raise MissingExtra("igraph", "graph") from error
    return igraph
