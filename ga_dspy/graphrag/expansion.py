"""The neighbourhood of things: what lies a few hops away, nearest and most fitting first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from ga_dspy.graphrag.corpus_graph import CorpusGraph

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

HUB: Final = 50
"""Up to about so many edges a thing passes on all of its closeness; with more, ever less."""

_UNASKED: Final = 0.2
"""What an edge passes on that shares no word with the question."""


class Wiring:
    """Which edges meet at each node, as arrays.

    Attributes:
        heads: The node at the head of each edge.
        tails: The node at the tail of each edge.
        degrees: How many edges each node has, shape (nodes,).
        confidence: The stated confidence of each edge, 1 where none is stated.
        values: Which nodes are plain values such as dates.
    """

    def __init__(self, graph: CorpusGraph) -> None:
        import numpy as np

        self.heads, self.tails, self.values = graph.heads, graph.tails, graph.plain_values
        count = len(self.heads)
        ends = np.concatenate([self.heads, self.tails])
        order = np.argsort(ends, kind="stable")
        self._edges = np.concatenate([np.arange(count), np.arange(count)])[order]
        self.degrees = np.bincount(ends, minlength=len(graph))
        self._starts = np.concatenate([[0], np.cumsum(self.degrees)])
        stated = graph.tables.edges["confidence"].to_pylist()
        self.confidence = np.array([1.0 if c is None else c for c in stated], dtype=np.float32)

    def touching(self, nodes: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The edges at each of the nodes, node by node; shapes (found,): node and edge."""
        import numpy as np

        counts = self.degrees[nodes]
        total = int(counts.sum())
        skipped = np.repeat(np.cumsum(counts) - counts, counts)
        places = np.arange(total) - skipped + np.repeat(self._starts[nodes], counts)
        return np.repeat(nodes, counts), self._edges[places]

    def across(self, nodes: NDArray[np.int64], edges: NDArray[np.int64]) -> NDArray[np.int64]:
        """The other end of each edge, seen from a node at one end of it."""
        import numpy as np

        heads, tails = self.heads[edges], self.tails[edges]
        return np.where(heads == nodes, tails, heads).astype(np.int64)


class Neighbourhood(NamedTuple):
    """A part of a graph around some things.

    Attributes:
        nodes: Nodes, the starting ones first, then the closest of each hop.
        edges: Edges among them, most fitting first.
        hops: Hops from the nearest start, by node.
    """

    nodes: NDArray[np.int64]
    edges: NDArray[np.int64]
    hops: dict[int, int]


def expand(
    wiring: Wiring,
    starts: Mapping[int, float],
    wanted: NDArray[np.bool_],
    fit: NDArray[np.floating],
    *,
    hops: int,
    max_nodes: int,
    max_edges: int,
) -> Neighbourhood:
    """Go out from some things along wanted edges, hop by hop, keeping the closest of each hop.

    An edge passes on the closeness of the node it starts from: more where it fits the question
    and is stated with confidence, less where the node is a hub. Nothing is passed on by a plain
    value, for things that share a year have nothing else to do with each other.

    Args:
        wiring: The edges of the graph.
        starts: How close each starting node is, from 0 to 1.
        wanted: Which edges may be followed, shape (edges,).
        fit: How well each edge fits the question, from 0 to 1, shape (edges,).
        hops: How far to go.
        max_nodes: The most nodes to keep; of each hop but the last, half of what is left.
        max_edges: The most edges to keep.
    """
    import numpy as np

    close = np.zeros(len(wiring.degrees))
    hop_of = {int(node): 0 for node in starts}
    for node, closeness in starts.items():
        close[node] = closeness
    frontier = np.array(sorted(starts, key=lambda node: (-starts[node], node)), dtype=np.int64)
    layers, gathered = [frontier], []
    for hop in range(1, hops + 1):
        passed = _passed_on(wiring, frontier, close, wanted, fit)
        gathered.append(passed)
        left = max_nodes - len(hop_of)
        room = left if hop == hops else (left + 1) // 2
        # Room that the last hop does not need goes to what the others left out.
        frontier = _closest(_all(gathered) if hop == hops else passed, close, room)
        hop_of |= {int(node): _hop(node, gathered) for node in frontier}
        layers.append(frontier)
        if hop < hops:
            frontier = frontier[~wiring.values[frontier]]
    nodes = np.concatenate(layers)
    return Neighbourhood(nodes, _best_edges(gathered, wiring, hop_of, max_edges), hop_of)


class _Passed(NamedTuple):
    """Closeness as it is passed on: along which edge, to which node, how much."""

    edges: NDArray[np.int64]
    nodes: NDArray[np.int64]
    gains: NDArray[np.float64]


def _passed_on(
    wiring: Wiring,
    frontier: NDArray[np.int64],
    close: NDArray[np.float64],
    wanted: NDArray[np.bool_],
    fit: NDArray[np.floating],
) -> _Passed:
    import numpy as np

    nodes, edges = wiring.touching(frontier)
    kept = wanted[edges]
    nodes, edges = nodes[kept], edges[kept]
    damping = 1 / np.sqrt(1 + wiring.degrees[nodes] / HUB)
    gains = close[nodes] * damping * wiring.confidence[edges] * (_UNASKED + fit[edges])
    return _Passed(edges, wiring.across(nodes, edges), gains / (_UNASKED + 1))


def _closest(passed: _Passed, close: NDArray[np.float64], room: int) -> NDArray[np.int64]:
    """The nodes not reached before that got most, at most `room`; their closeness is noted."""
    import numpy as np

    new = close[passed.nodes] == 0
    nodes = np.unique(passed.nodes[new])
    np.maximum.at(close, passed.nodes[new], passed.gains[new])
    ranked = nodes[np.lexsort((nodes, -close[nodes]))]
    close[ranked[max(room, 0) :]] = 0
    return ranked[: max(room, 0)]


def _all(gathered: Sequence[_Passed]) -> _Passed:
    import numpy as np

    edges, nodes, gains = zip(*gathered, strict=True)
    return _Passed(np.concatenate(edges), np.concatenate(nodes), np.concatenate(gains))


def _hop(node: int, gathered: Sequence[_Passed]) -> int:
    return next(hop for hop, passed in enumerate(gathered, start=1) if node in passed.nodes)


def _best_edges(
    gathered: Sequence[_Passed], wiring: Wiring, hop_of: Mapping[int, int], most: int
) -> NDArray[np.int64]:
    import numpy as np

    inside = np.zeros(len(wiring.degrees), dtype=np.bool_)
    inside[list(hop_of)] = True
    edges, _, gains = _all(gathered)
    kept = inside[wiring.heads[edges]] & inside[wiring.tails[edges]]
    edges, gains = edges[kept], gains[kept]
    order = np.lexsort((edges, -gains))
    _, first = np.unique(edges[order], return_index=True)
    best: NDArray[np.int64] = edges[order][np.sort(first)][:most]
    return best
