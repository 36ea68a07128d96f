"""Graph traversal: neighbourhoods, passages by PageRank, paths between entities.

Edges are followed in both directions. Node and edge numbers are those of one `CorpusGraph`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from itertools import product
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from rapidfuzz import process

from ga_dspy.errors import InputError, require
from ga_dspy.graph import normalise
from ga_dspy.graph.paths import MAX_HOPS
from ga_dspy.graphrag.corpus_graph import CorpusGraph
from ga_dspy.retrieval.engine import top

# --- The edges at each node, and their cost in a path.

_HUB_COST, _VALUE_COST, _COMMON_COST = 0.12, 1.0, 0.06


class Adjacency:
    """The edges at each node of a corpus graph, as arrays; keeps no reference to the graph.

    Attributes:
        heads: The node at the head of each edge, shape (edges,).
        tails: The node at the tail of each edge, shape (edges,).
        values: Whether each node is a plain value such as a date, shape (nodes,).
        degrees: The number of edges at each node, shape (nodes,).
        confidence: The stated confidence of each edge, or 1, shape (edges,).
        wordings: The distinct wordings of relations.
        wording_of: The row of `wordings` for each edge, shape (edges,).
        often: The number of edges with each wording, shape (wordings,).
        weights: The weight of each edge by the rules of the graph, shape (edges,).
    """

    def __init__(self, graph: CorpusGraph) -> None:
        edges = graph.tables.edges
        self.heads, self.tails, self.values = graph.heads, graph.tails, graph.plain_values
        ends = np.concatenate([self.heads, self.tails])
        self._edges = np.tile(np.arange(len(self.heads)), 2)[np.argsort(ends, kind="stable")]
        self.degrees = np.bincount(ends, minlength=len(graph))
        self._starts = np.concatenate([[0], np.cumsum(self.degrees)])
        self.confidence = np.asarray(edges["confidence"].fill_null(1.0), dtype=np.float32)
        worded = edges["relation"].combine_chunks().dictionary_encode()
        self.wordings: tuple[str, ...] = tuple(worded.dictionary.to_pylist())
        self.wording_of = np.asarray(worded.indices, dtype=np.int32)
        self.often = np.bincount(self.wording_of, minlength=len(self.wordings))
        weights = np.array(list(map(graph.rules.weight_of, self.wordings)), np.float32)
        self.weights = weights[self.wording_of]

    def touching(self, nodes: NDArray[np.integer]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the edges at each node, as pairs in two arrays of nodes and edges."""
        counts = self.degrees[nodes]
        skipped = np.repeat(np.cumsum(counts) - counts, counts)
        rows = np.arange(counts.sum()) - skipped + np.repeat(self._starts[nodes], counts)
        return np.repeat(nodes, counts).astype(np.int64), self._edges[rows]

    def across(self, nodes: NDArray[np.int64], edges: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the other end of each edge, given the node at one end."""
        heads, tails = self.heads[edges], self.tails[edges]
        return np.where(heads == nodes, tails, heads).astype(np.int64)

    @cached_property
    def costs(self) -> NDArray[np.float64]:
        """Return the cost of each edge in a path, shape (edges,).

        The cost is at least 1, divided by the weight of the edge. Edges at hubs and plain values,
        common relations, low confidence and low weights cost more.
        """
        heads, tails = self.heads, self.tails
        hubs = np.log2(self.degrees[heads]) + np.log2(self.degrees[tails])
        values = self.values[heads].astype(np.float64) + self.values[tails]
        costs: NDArray[np.float64] = 1 + _HUB_COST * hubs / 2 + _VALUE_COST * values
        costs += _COMMON_COST * np.log2(self.often[self.wording_of]) + (1 - self.confidence)
        return costs / self.weights


# --- The neighbourhood of entities, nearest and most relevant first.

MAX_NODES: Final = 200
"""The maximum number of entities in a neighbourhood."""

HUB_DEGREE: Final = 50
"""Nodes with many more edges than this pass on little of their closeness."""

_UNASKED: Final = 0.2
"""The weight of an edge that shares no word with the question."""


class Neighbourhood(NamedTuple):
    """A part of a graph around some starting nodes.

    Attributes:
        hops: The number of hops from the nearest starting node, by node: the starting nodes first,
            then the closest nodes of each hop.
        edges: The edges among these nodes, ascending.
    """

    hops: dict[int, int]
    edges: NDArray[np.int64]


def expand(
    wiring: Adjacency,
    starts: Mapping[int, float],
    fit: NDArray[np.floating],
    *,
    hops: int,
    most: int = MAX_NODES,
) -> Neighbourhood:
    """Expand from some nodes hop by hop, keeping the closest nodes of each hop.

    A node passes on its closeness along its edges: more along an edge that fits the question and
    has a high confidence and weight, less if the node is a hub. Plain values pass on nothing,
    because entities that share a year are not related by it.

    Args:
        wiring: The edges of the graph.
        starts: The closeness of each starting node, above 0 and at most 1.
        fit: How well each edge fits the question, from 0 to 1, shape (edges,).
        hops: The number of hops.
        most: The maximum number of nodes; each hop but the last takes half of those left.
    """
    close, distance = np.zeros(len(wiring.degrees)), np.full(len(wiring.degrees), -1)
    close[list(starts)] = list(starts.values())
    frontier = np.array(sorted(starts, key=lambda node: (-starts[node], node)), dtype=np.int64)
    distance[frontier] = 0
    inside, nodes = close > 0, frontier.tolist()
    followed = [np.zeros(0, dtype=np.int64)]
    for hop in range(1, hops + 1):
        near, edges = wiring.touching(frontier)
        damping = 1 / np.sqrt(1 + wiring.degrees[near] / HUB_DEGREE)
        gains = close[near] * damping * wiring.confidence[edges] * (_UNASKED + fit[edges])
        gains *= wiring.weights[edges]
        others = wiring.across(near, edges)
        new = ~inside[others]
        np.maximum.at(close, others[new], gains[new] / (_UNASKED + 1))
        distance[others[distance[others] < 0]] = hop
        # The last hop may also take nodes that earlier hops reached but left out.
        reached = np.flatnonzero((close > 0) & ~inside)
        ranked = reached[np.argsort(-close[reached], kind="stable")]
        room = max(most - len(nodes), 0)
        frontier = ranked[: room if hop == hops else (room + 1) // 2]
        inside[frontier] = True
        nodes += frontier.tolist()
        frontier = frontier[~wiring.values[frontier]]
        followed.append(edges)
    edges = np.unique(np.concatenate(followed))
    among = edges[inside[wiring.heads[edges]] & inside[wiring.tails[edges]]]
    return Neighbourhood(dict(zip(nodes, distance[nodes].tolist(), strict=True)), among)


# --- Passages by personalised PageRank over entities and passages.

DAMPING: Final = 0.7

# Chosen on 100 training questions each of HotpotQA and MuSiQue, with a sparse graph that the
# embedded LM extracted (at most one relation per entity): recall at 5 goes from 75.5 to 78.5 and
# from 60.8 to 61.6 over dense retrieval, from 94.5 to 95.0 and from 76.2 to 74.6 over linked
# retrieval. Reciprocal rank fusion, which cannot tell a clear hit from a distant one, loses 15
# points with that graph.
GRAPH_SHARE: Final = 0.2
"""The weight of PageRank in the score of a passage; the index's score has weight 1."""


class PassageWalk:
    """Personalised PageRank over the entities of a graph and the passages that state them."""

    def __init__(self, graph: CorpusGraph) -> None:
        self._nodes, self._passages = len(graph), graph.passages
        self._vertex = {id: self._nodes + p for p, id in enumerate(graph.passages)}
        edges = list(zip(graph.heads.tolist(), graph.tails.tolist(), strict=True))
        for node, passages in enumerate(graph.tables.nodes["passage"].to_pylist()):
            edges += [(node, self._nodes + passage) for passage in dict.fromkeys(passages)]
        count = self._nodes + len(self._passages)
        self._network = require("igraph", "graph").Graph(n=count, edges=edges)

    def rank(
        self, nodes: Mapping[int, float], passages: Mapping[str, float], count: int
    ) -> dict[str, float]:
        """Rank passages by PageRank from some nodes and passages.

        Args:
            nodes: The restart weights of nodes.
            passages: The restart weights of passages, by id; unknown ids are ignored.
            count: The maximum number of passages.

        Returns:
            The PageRank of each passage relative to the first, from 0 to 1, by id, best first.
        """
        known = {self._vertex[id]: w for id, w in passages.items() if id in self._vertex}
        reset = np.zeros(self._network.vcount())
        for vertex, weight in {**nodes, **known}.items():
            reset[vertex] = weight
        if not reset.any():
            return {}
        mass = self._network.personalized_pagerank(
            damping=DAMPING, reset=reset.tolist(), directed=False
        )
        # Rounded, because PRPACK's last digits depend on the order of summation.
        ranks = np.round(mass[self._nodes :], 12)
        best = [row for row in top(ranks, count).tolist() if ranks[row] > 0]
        return {self._passages[row]: float(ranks[row] / ranks[best[0]]) for row in best}


def fuse(scores: Mapping[str, float], visited: Mapping[str, float], share: float) -> list[str]:
    """Rank passages by the index's score plus a share of their PageRank.

    Ties keep the order of `scores`, then of `visited`.

    Args:
        scores: The index's scores from 0 to 1, by passage id.
        visited: The result of `PassageWalk.rank`.
        share: The weight of `visited`.

    >>> fuse({"a": 1.0, "b": 0.9, "c": 0.5}, {"d": 1.0, "b": 0.8}, 0.2)
    ['b', 'a', 'c', 'd']
    """

    def score(id: str) -> float:
        return scores.get(id, 0.0) + share * visited.get(id, 0.0)

    return sorted({**scores, **visited}, key=score, reverse=True)


# --- The cheapest paths between two entities.

MAX_EXPANDED_DEGREE: Final = 500
"""Nodes with more edges are not expanded: the searches from both ends may only meet there."""

_MAX_EDGES: Final = 2000


class GraphPath(NamedTuple):
    """A path between two nodes, along edges in either direction.

    Attributes:
        nodes: The nodes of the path, including its ends.
        edges: The edges between them, in order.
        text: The path as text: "A → wrote → B ← played in ← C".
        cost: The total cost of the edges; lower is better.
    """

    nodes: tuple[int, ...]
    edges: tuple[int, ...]
    text: str
    cost: float

    @classmethod
    def along(cls, graph: CorpusGraph, start: int, edges: Iterable[int]) -> GraphPath:
        """Make the path that starts at a node and follows some edges."""
        wiring, path = graph.derive(Adjacency), list(map(int, edges))
        nodes, text = [start], graph.name(start)
        for edge in path:
            head, tail = int(wiring.heads[edge]), int(wiring.tails[edge])
            arrow, other = ("→", tail) if nodes[-1] == head else ("←", head)
            relation = wiring.wordings[wiring.wording_of[edge]]
            text += f" {arrow} {relation} {arrow} {graph.name(other)}"
            nodes.append(other)
        return cls(tuple(nodes), tuple(path), text, float(wiring.costs[path].sum()))


def shortest_paths(graph: CorpusGraph, source: int, target: int, k: int) -> list[GraphPath]:
    """Return the cheapest paths between two nodes, cheapest first.

    Only the cheapest edge between two nodes is used, so that paths differ in their nodes. Paths of
    more than `MAX_HOPS` hops are ignored.

    Args:
        graph: The caller's graph.
        source: The node at one end.
        target: The node at the other end.
        k: The maximum number of paths.
    """
    if source == target:
        return []
    wiring = graph.derive(Adjacency)
    costs = wiring.costs
    edges = _edges_between(wiring, source, target)
    edges = edges[np.lexsort((edges, costs[edges]))][:_MAX_EDGES]
    pairs = np.column_stack([wiring.heads[edges], wiring.tails[edges]])
    _, first = np.unique(np.sort(pairs, axis=1), axis=0, return_index=True)
    edges, pairs = edges[np.sort(first)], pairs[np.sort(first)]
    local = np.unique(pairs)
    if not np.isin([source, target], local).all():
        return []
    one, other = np.searchsorted(local, [source, target]).tolist()
    ends = np.searchsorted(local, pairs).tolist()
    network = require("igraph", "graph").Graph(n=len(local), edges=ends)
    found = network.get_k_shortest_paths(
        one, to=other, k=k + MAX_HOPS, weights=costs[edges].tolist(), output="epath"
    )
    short = [edges[path] for path in found if 0 < len(path) <= MAX_HOPS]
    return [GraphPath.along(graph, source, path) for path in short[:k]]


def central_nodes(graph: CorpusGraph) -> list[int]:
    """Return all nodes by descending PageRank, with dates, numbers and amounts last."""
    rank, values = graph.network.pagerank(), graph.plain_values
    return sorted(range(len(graph)), key=lambda node: (values[node], -rank[node]))


def paths_between(graph: CorpusGraph, one: str, other: str, k: int = 3) -> tuple[GraphPath, ...]:
    """Return the cheapest paths between two entities, including their namesakes.

    The result is empty if no short path connects them.

    Raises:
        InputError: The caller sees no entity of one of the names.
    """
    found = list[GraphPath]()
    for source, target in product(find_named(graph, one), find_named(graph, other)):
        found += shortest_paths(graph, source, target, k)
    return tuple(sorted(found, key=lambda path: (path.cost, path.edges))[:k])


def find_named(graph: CorpusGraph, name: str) -> tuple[int, ...]:
    """Return the nodes with a name; several if there are namesakes.

    Args:
        graph: The caller's own graph, so that the error suggests no hidden name.
        name: A name or an alias, in any spelling.

    Raises:
        InputError: There is none; the message suggests similar names.
    """
    found = graph.find(name)
    if not found:
        matches = process.extract(normalise(name), [*graph.names], limit=3, score_cutoff=80)
        similar = dict.fromkeys(graph.name(n) for key, _, _ in matches for n in graph.names[key])
        hint = f"; similar names: {', '.join(similar)}" if similar else ""
        raise InputError(
            f"no entity of the graph is named {name!r}",
            expected="a name or an alias of an entity in the graph",
            remedy=f"check its spelling, or the labels of the caller{hint}",
        )
    return found


def _edges_between(wiring: Adjacency, source: int, target: int) -> NDArray[np.int64]:
    """Return the edges on paths of at most `MAX_HOPS` hops between two nodes."""
    fans_out = wiring.degrees <= MAX_EXPANDED_DEGREE
    # Breadth-first from each end: over half the distance anywhere, then only among nodes that the
    # other search has reached.
    distances = np.full((2, len(fans_out)), -1)
    distances[[0, 1], [source, target]] = 0
    allowed = np.ones(distances.shape, dtype=np.bool_)
    for hop in range(1, MAX_HOPS + 1):
        if hop == (MAX_HOPS + 1) // 2 + 1:
            allowed = distances[::-1] >= 0
        for distance, may_visit in zip(distances, allowed, strict=True):
            frontier = (distance == hop - 1) & may_visit & (fans_out | (hop == 1))
            nodes, edges = wiring.touching(np.flatnonzero(frontier))
            reached = wiring.across(nodes, edges)
            distance[reached[(distance[reached] < 0) & may_visit[reached]]] = hop
    on_path = (distances >= 0).all(axis=0) & fans_out
    on_path[[source, target]] = True
    edges = np.unique(wiring.touching(np.flatnonzero(on_path))[1])
    before, after = np.where(distances < 0, MAX_HOPS, distances)
    heads, tails = wiring.heads[edges], wiring.tails[edges]
    hops = 1 + np.minimum(before[heads] + after[tails], before[tails] + after[heads])
    short: NDArray[np.int64] = edges[hops <= MAX_HOPS]
    return short
