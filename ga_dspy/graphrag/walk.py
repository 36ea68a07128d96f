"""Walks over a graph: what lies around entities, which passages they lead to, how two connect.

An edge is followed either way. All numbers of nodes and edges are those of one `CorpusGraph`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from rapidfuzz import process

from ga_dspy.errors import InputError, require
from ga_dspy.graph import Relation, normalise
from ga_dspy.graph.paths import MOST_HOPS
from ga_dspy.graphrag.corpus_graph import CorpusGraph, View

# --- Which edges meet at each node.


class Incidence:
    """The edges at each vertex of an undirected graph.

    Attributes:
        heads: One end of each edge.
        tails: The other.
        degrees: How many edges each vertex has, shape (vertices,).
    """

    def __init__(
        self, heads: NDArray[np.integer], tails: NDArray[np.integer], vertices: int
    ) -> None:
        self.heads, self.tails = heads, tails
        ends = np.concatenate([heads, tails])
        self._edges = np.tile(np.arange(len(heads)), 2)[np.argsort(ends, kind="stable")]
        self.degrees = np.bincount(ends, minlength=vertices)
        self._starts = np.concatenate([[0], np.cumsum(self.degrees)])

    def touching(self, nodes: NDArray[np.integer]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The edges at each of the nodes, node by node; shapes (found,): node and edge."""
        counts = self.degrees[nodes]
        skipped = np.repeat(np.cumsum(counts) - counts, counts)
        places = np.arange(counts.sum()) - skipped + np.repeat(self._starts[nodes], counts)
        return np.repeat(nodes, counts).astype(np.int64), self._edges[places]

    def across(self, nodes: NDArray[np.int64], edges: NDArray[np.int64]) -> NDArray[np.int64]:
        """The other end of each edge, seen from a node at one end of it."""
        heads, tails = self.heads[edges], self.tails[edges]
        return np.where(heads == nodes, tails, heads).astype(np.int64)


class Wiring(Incidence):
    """The edges at each node of a corpus graph.

    Attributes:
        confidence: The stated confidence of each edge, 1 where none is stated.
        values: Which nodes are plain values such as dates.
    """

    def __init__(self, graph: CorpusGraph) -> None:
        super().__init__(graph.heads, graph.tails, len(graph))
        stated = graph.tables.edges["confidence"].to_pylist()
        self.confidence = np.array([1.0 if c is None else c for c in stated], dtype=np.float32)
        self.values = graph.plain_values


# --- The neighbourhood of entities: what lies a few hops away, nearest and most fitting first.

HUB: Final = 50
"""Up to about so many edges a node passes on all of its closeness; with more, ever less."""

_UNASKED: Final = 0.2
"""What an edge passes on that shares no word with the question."""


class Neighbourhood(NamedTuple):
    """A part of a graph around some nodes.

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
    fit: NDArray[np.floating],
    *,
    hops: int,
    max_nodes: int,
    max_edges: int,
) -> Neighbourhood:
    """Go out from some nodes, hop by hop, keeping the closest of each hop.

    An edge passes on the closeness of the node it starts from: more where it fits the question
    and is stated with confidence, less where the node is a hub. Nothing is passed on by a plain
    value, for entities that share a year have nothing else to do with each other.

    Args:
        wiring: The edges of the graph.
        starts: How close each starting node is, from 0 to 1.
        fit: How well each edge fits the question, from 0 to 1, shape (edges,).
        hops: How far to go.
        max_nodes: The most nodes to keep; of each hop but the last, half of what is left.
        max_edges: The most edges to keep.
    """
    close = np.zeros(len(wiring.degrees))
    close[list(starts)] = list(starts.values())
    frontier = np.array(sorted(starts, key=lambda node: (-starts[node], node)), dtype=np.int64)
    hop_of = dict.fromkeys(frontier.tolist(), 0)
    layers, passed = [frontier], []
    for hop in range(1, hops + 1):
        near, edges = wiring.touching(frontier)
        damping = 1 / np.sqrt(1 + wiring.degrees[near] / HUB)
        gains = close[near] * damping * wiring.confidence[edges] * (_UNASKED + fit[edges])
        passed.append((edges, wiring.across(near, edges), gains / (_UNASKED + 1)))
        room = max(max_nodes - len(hop_of), 0)
        if hop < hops:
            room = (room + 1) // 2
        # Room that the last hop does not need goes to what the others left out.
        columns = zip(*(passed if hop == hops else passed[-1:]), strict=True)
        edges, nodes, gains = (np.concatenate(column) for column in columns)
        new = close[nodes] == 0
        np.maximum.at(close, nodes[new], gains[new])
        reached = np.unique(nodes[new])
        ranked = reached[np.lexsort((reached, -close[reached]))]
        frontier = ranked[:room]
        close[ranked[room:]] = 0
        for node in frontier.tolist():
            hop_of[node] = next(n for n, (_, there, _) in enumerate(passed, 1) if node in there)
        layers.append(frontier)
        frontier = frontier[~wiring.values[frontier]]
    inside = np.zeros(len(close), dtype=np.bool_)
    inside[list(hop_of)] = True
    kept = inside[wiring.heads[edges]] & inside[wiring.tails[edges]]
    order = np.lexsort((edges[kept], -gains[kept]))
    best = np.fromiter(dict.fromkeys(edges[kept][order].tolist()), dtype=np.int64)
    return Neighbourhood(np.concatenate(layers), best[:max_edges], hop_of)


# --- Which passages a question leads to: personalised PageRank over entities and passages.

DAMPING: Final = 0.7
MOST_VERTICES: Final = 5_000
"""The walk keeps to so many vertices, the nearest to where it starts; smaller graphs are whole."""

GRAPH_SHARE: Final = 0.2
"""What the walk adds to the index's score, from 0 to 1, of the passage visited most.

Chosen on 100 training questions each of HotpotQA and MuSiQue with a graph read by the embedded
LM, sparse as it is (one relation an entity or fewer): recall at 5 goes from 75.5 to 78.5 and
from 60.8 to 61.6 over dense retrieval, from 94.5 to 95.0 and from 76.2 to 74.6 over linked. Fusion
by reciprocal ranks, which cannot tell a clear hit from a far one, loses 15 points with that graph.
"""


class PassageWalk:
    """Personalised PageRank over the entities of a graph and the passages that state them."""

    def __init__(self, graph: CorpusGraph) -> None:
        self._nodes, self._passages = len(graph), graph.passages
        self._vertex = {id: self._nodes + p for p, id in enumerate(graph.passages)}
        stated = [
            (node, self._nodes + passage)
            for node, passages in enumerate(graph.tables.nodes["passage"].to_pylist())
            for passage in dict.fromkeys(passages)
        ]
        nodes, passages = np.array(stated, dtype=np.int64).reshape(-1, 2).T
        self._wiring = Incidence(
            np.concatenate([graph.heads, nodes]),
            np.concatenate([graph.tails, passages]),
            self._nodes + len(graph.passages),
        )

    def rank(
        self,
        nodes: Mapping[int, float],
        passages: Mapping[str, float],
        count: int,
    ) -> dict[str, float]:
        """The passages that a walk from some nodes and passages visits most, most visited first.

        Returns:
            How often each is visited, over how often the first one is: from 0 to 1, by id.

        Args:
            nodes: Where walks start, by node: its share.
            passages: Where walks start, by passage id; ids that the graph lacks are passed over.
            count: The most passages.
        """
        reset = {int(node): weight for node, weight in nodes.items()}
        reset |= {self._vertex[id]: w for id, w in passages.items() if id in self._vertex}
        if not reset or not self._passages:
            return {}
        near = self._nearest(sorted(reset))
        start = np.zeros(len(near))
        start[np.searchsorted(near, list(reset))] = list(reset.values())
        network = require("igraph", "graph").Graph(n=len(near), edges=self._among(near).data)
        mass = network.personalized_pagerank(damping=DAMPING, reset=start.tolist(), directed=False)
        # PRPACK's last digits depend on the order of its sums; ties must not.
        mass = np.round(np.asarray(mass), 12)
        visited = (near >= self._nodes) & (mass > 0)
        rows, mass = near[visited] - self._nodes, mass[visited]
        best = np.lexsort((rows, -mass))[:count]
        scaled = mass[best] / mass.max(initial=1e-12)
        found = zip(rows[best].tolist(), scaled.tolist(), strict=True)
        return {self._passages[row]: share for row, share in found}

    def _nearest(self, starts: list[int]) -> NDArray[np.int64]:
        """The vertices that edges lead to, nearest first up to the limit; ascending."""
        wiring, count = self._wiring, len(self._wiring.degrees)
        known = np.zeros(count, dtype=np.bool_)
        known[starts] = True
        frontier, total = np.array(starts), len(starts)
        while len(frontier) and total < MOST_VERTICES:
            nodes, edges = wiring.touching(frontier)
            reached = np.zeros(count, dtype=np.bool_)
            reached[wiring.across(nodes, edges)] = True
            frontier = np.flatnonzero(reached & ~known)
            # Of the last layer those with few edges: a hub is near to everything.
            order = np.lexsort((frontier, wiring.degrees[frontier]))
            frontier = frontier[order][: MOST_VERTICES - total]
            known[frontier] = True
            total += len(frontier)
        return np.flatnonzero(known)

    def _among(self, vertices: NDArray[np.int64]) -> NDArray[np.int64]:
        """The edges among some vertices: the places of their ends, shape (edges, 2)."""
        place = np.full(len(self._wiring.degrees), -1)
        place[vertices] = np.arange(len(vertices))
        edges = np.unique(self._wiring.touching(vertices)[1])
        pairs = place[np.column_stack([self._wiring.heads[edges], self._wiring.tails[edges]])]
        return np.ascontiguousarray(pairs[(pairs >= 0).all(axis=1)])


def fuse(scores: Mapping[str, float], visited: Mapping[str, float], share: float) -> list[str]:
    """Passages by the index's score and a share of how often they are visited, best first.

    Args:
        scores: The index's scores from 0 to 1, by passage id.
        visited: What `PassageWalk.rank` returns.
        share: How much a passage that is visited most gains; equal ones keep the order of
            `scores`, then of `visited`.

    >>> fuse({"a": 1.0, "b": 0.9, "c": 0.5}, {"d": 1.0, "b": 0.8}, 0.2)
    ['b', 'a', 'c', 'd']
    """
    gained = {
        id: scores.get(id, 0.0) + share * visited.get(id, 0.0) for id in {**scores, **visited}
    }
    return sorted(gained, key=lambda id: -gained[id])


# --- How two entities are connected: the cheapest few paths between them.

CROWD: Final = 500
"""The search does not fan out of a node with more edges than this; paths may meet in it."""

_MOST_EDGES: Final = 2000
_HUB_COST, _VALUE_COST, _COMMON_COST = 0.12, 1.0, 0.06


class GraphPath(NamedTuple):
    """A chain of edges from one node to another, whatever the direction of each.

    Attributes:
        nodes: The nodes on the way, ends included.
        edges: The edges between them, in order.
        text: "A -> wrote -> B <- played in <- C".
        cost: What the edges cost together; less is better.
    """

    nodes: tuple[int, ...]
    edges: tuple[int, ...]
    text: str
    cost: float

    @classmethod
    def along(cls, graph: CorpusGraph, start: int, edges: Iterable[int], cost: float) -> GraphPath:
        """The path from a node along some edges."""
        nodes, chain = [start], tuple(map(int, edges))
        for edge in chain:
            head, tail = int(graph.heads[edge]), int(graph.tails[edge])
            nodes.append(tail if nodes[-1] == head else head)
        names = [graph.name(node) for node in nodes]
        return cls(tuple(nodes), chain, chain_text(names, [graph.edge(j) for j in chain]), cost)


def chain_text(names: Sequence[str], relations: Sequence[Relation]) -> str:
    """A chain of relations with the direction of each.

    >>> stated = Relation(head="Oslo", relation="capital of", tail="Norway")
    >>> chain_text(("Norway", "Oslo"), [stated])
    'Norway <- capital of <- Oslo'
    """
    text = names[0]
    for name, relation in zip(names[1:], relations, strict=True):
        arrow = "->" if relation.tail == name else "<-"
        text += f" {arrow} {relation.relation} {arrow} {name}"
    return text


def edge_costs(wiring: Wiring, same_wording: NDArray[np.integer]) -> NDArray[np.float64]:
    """What each edge adds to a path, shape (edges,), at least 1.

    More at a hub or a plain value, with a common relation or with low confidence.

    Args:
        wiring: The edges.
        same_wording: How many edges have the wording of each edge, shape (edges,).
    """
    heads, tails = wiring.heads, wiring.tails
    hubs = np.log2(wiring.degrees[heads]) + np.log2(wiring.degrees[tails])
    values = wiring.values[heads].astype(np.float64) + wiring.values[tails]
    costs: NDArray[np.float64] = 1 + _HUB_COST * hubs / 2 + _VALUE_COST * values
    costs += _COMMON_COST * np.log2(same_wording) + (1 - wiring.confidence)
    return costs


def shortest_paths(
    view: View,
    wiring: Wiring,
    source: int,
    target: int,
    costs: NDArray[np.float64],
    k: int,
) -> list[GraphPath]:
    """The cheapest paths between two nodes, cheapest first.

    Of several edges between the same two nodes the cheapest counts, so that paths differ in the
    nodes they pass. A path of more than `MOST_HOPS` hops counts as chance.

    Args:
        view: The caller's view.
        wiring: The edges of its graph.
        source: One end.
        target: The other end.
        costs: What each edge costs (`edge_costs`), above 0, shape (edges,).
        k: The most paths.
    """
    if source == target:
        return []
    edges = _edges_between(wiring, source, target)
    edges = edges[np.lexsort((edges, costs[edges]))][:_MOST_EDGES]
    pairs = np.column_stack([wiring.heads[edges], wiring.tails[edges]])
    _, first = np.unique(np.sort(pairs, axis=1), axis=0, return_index=True)
    edges, pairs = edges[np.sort(first)], pairs[np.sort(first)]
    local = np.unique(pairs)
    if not np.isin([source, target], local).all():
        return []
    one, other = np.searchsorted(local, [source, target]).tolist()
    network = require("igraph", "graph").Graph(
        n=len(local), edges=np.searchsorted(local, pairs).tolist()
    )
    found = network.get_k_shortest_paths(
        one, to=other, k=k + MOST_HOPS, weights=costs[edges].tolist(), output="epath"
    )
    chains = [edges[path] for path in found if 0 < len(path) <= MOST_HOPS]
    return [
        GraphPath.along(view.graph, source, chain, float(costs[chain].sum()))
        for chain in chains[:k]
    ]


def paths_between(view: View, one: str, other: str, k: int = 3) -> tuple[GraphPath, ...]:
    """How two entities are connected, as far as a caller sees it; cheapest first.

    Namesakes are all looked at. No path is an answer: nothing short connects the two.

    Raises:
        InputError: Nothing that the caller sees goes by one of the names.
    """
    graph, wiring = view.graph, Wiring(view.graph)
    _, wording, counts = np.unique(
        graph.tables.edges["relation"].to_numpy(), return_inverse=True, return_counts=True
    )
    costs = edge_costs(wiring, counts[wording])
    found = [
        path
        for source in find_named(graph, one)
        for target in find_named(graph, other)
        for path in shortest_paths(view, wiring, source, target, costs, k)
    ]
    return tuple(sorted(found, key=lambda path: (path.cost, path.edges))[:k])


def find_named(graph: CorpusGraph, name: str) -> tuple[int, ...]:
    """The nodes that go by a name; namesakes are several.

    Args:
        graph: A caller's own graph, so that no name is suggested that the caller may not see.
        name: A name or an alias, in any spelling.

    Raises:
        InputError: There is none; the message has the names that are spelled most alike.
    """
    found = graph.find(name)
    if not found:
        near = process.extract(normalise(name), [*graph.names], limit=3, score_cutoff=80)
        alike = dict.fromkeys(graph.name(graph.names[key][0]) for key, _, _ in near)
        meant = f"; names spelled alike: {', '.join(alike)}" if alike else ""
        raise InputError(
            f"nothing in the graph goes by {name!r}",
            expected="a name or an alias of an entity in the graph",
            remedy=f"look at its spelling, or at the labels of the caller{meant}",
        )
    return found


def _edges_between(wiring: Wiring, source: int, target: int) -> NDArray[np.int64]:
    """The edges on some way of at most `MOST_HOPS` hops from one end to the other."""
    fans_out = wiring.degrees <= CROWD
    # From each end half of the way is looked at; the other half lies in what is near to both.
    far = np.full((2, len(fans_out)), -1)
    far[[0, 1], [source, target]] = 0
    inside = np.ones(far.shape, dtype=np.bool_)
    for hop in range(1, MOST_HOPS + 1):
        if hop == (MOST_HOPS + 1) // 2 + 1:
            inside = far[::-1] >= 0
        for distance, within in zip(far, inside, strict=True):
            last = (distance == hop - 1) & within & (fans_out | (hop == 1))
            nodes, edges = wiring.touching(np.flatnonzero(last))
            reached = wiring.across(nodes, edges)
            distance[reached[(distance[reached] < 0) & within[reached]]] = hop
    both = (far >= 0).all(axis=0) & fans_out
    both[[source, target]] = True
    edges = np.unique(wiring.touching(np.flatnonzero(both))[1])
    ahead, behind = np.where(far < 0, MOST_HOPS, far)
    heads, tails = wiring.heads[edges], wiring.tails[edges]
    hops = 1 + np.minimum(ahead[heads] + behind[tails], ahead[tails] + behind[heads])
    short: NDArray[np.int64] = edges[hops <= MOST_HOPS]
    return short
