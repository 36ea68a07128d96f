"""The graph of a corpus: things as numbered nodes, relations as numbered edges.

Nodes and edges are rows of Arrow columns, read when asked for, so a graph of any size opens at
once. Numbers hold within one `CorpusGraph`; a caller who may not see everything has a graph of
their own (`visible`), with its own numbers.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from ga_dspy.errors import MissingExtra
from ga_dspy.graph import Entity, GraphUpdate, KnowledgeGraph, Relation, normalise
from ga_dspy.graph.names import identity, split_qualifier
from ga_dspy.graphrag.access import Access, seen_with, withheld
from ga_dspy.graphrag.caller_view import View as View
from ga_dspy.graphrag.filters import wanted_edges
from ga_dspy.graphrag.identity import Merge
from ga_dspy.graphrag.resolution import resolve
from ga_dspy.graphrag.sources import NO_LABELS, Batch, Labels, Rules, Sources
from ga_dspy.graphrag.tables import Rows, Tables, read_evidence

if TYPE_CHECKING:
    import igraph
    import numpy as np
    from numpy.typing import NDArray


class Flags(NamedTuple):
    """What is noted of an edge: whether it is critical, and which edges it contradicts."""

    critical: bool
    contradicts: tuple[int, ...]


class CorpusGraph:
    """A graph of everything that a corpus, or the part of it that a caller may see, states.

    Make one in memory with `of`; `ga_dspy.graphrag.open_graph` opens a stored one.

    Attributes:
        entities: The things, by node; a sequence that reads a thing when it is asked for.
        relations: The relations, by edge, their ends under the names of their nodes.
        labels_in_use: The labels that hide something of it.
        unused_overrides: What of the overrides did not fit, in words, where it was just made.

    >>> said = {"p1": GraphUpdate(relations=(Relation(head="Oslo", relation="in", tail="Norway"),))}
    >>> graph = CorpusGraph.of(said)
    >>> graph.find("the oslo"), graph.entities[0].name, graph.heads.tolist()
    ((0,), 'Oslo', [0])
    """

    def __init__(
        self,
        tables: Tables,
        sources: Callable[[], Sources],
        *,
        labels_in_use: Labels = NO_LABELS,
        public: Callable[[], CorpusGraph] | None = None,
    ) -> None:
        self.tables = tables
        self.labels_in_use = labels_in_use
        self.entities: Sequence[Entity] = Rows(tables.nodes.num_rows, self._read_node)
        self.relations: Sequence[Relation] = Rows(tables.edges.num_rows, self._read_edge)
        self.unused_overrides: tuple[str, ...] = ()
        self._load = sources
        self._load_public = public
        self._graphs: dict[Labels, CorpusGraph] = {}
        self._lock = threading.RLock()

    @classmethod
    def of(
        cls,
        records: Mapping[str, GraphUpdate],
        *,
        labels: Mapping[str, Iterable[str]] | None = None,
        rules: Rules | None = None,
        brought: Iterable[Batch] = (),
    ) -> CorpusGraph:
        """Make a graph in memory.

        Args:
            records: What each passage states, by passage id; evidence names that passage.
            labels: The labels of passages that not everybody may see, by passage id.
            rules: What may enter, what is flagged, what is private.
            brought: Records from elsewhere (`ga_dspy.graphrag.bring`).
        """
        return cls.from_sources(Sources.of(records, labels=labels, rules=rules, brought=brought))

    @classmethod
    def from_sources(cls, sources: Sources) -> CorpusGraph:
        """Resolve records into a graph."""
        resolved = resolve(sources)
        tables = Tables.of(resolved, withheld(sources))
        graph = cls(tables, lambda: sources, labels_in_use=sources.labels_in_use)
        graph.unused_overrides = resolved.unused
        return graph

    @property
    def sources(self) -> Sources:
        """The records and rules that the graph was made from."""
        return self._load()

    def __len__(self) -> int:
        return len(self.entities)

    def __repr__(self) -> str:
        return (
            f"CorpusGraph({len(self):,} things, {len(self.relations):,} relations, "
            f"{len(self.passages):,} passages)"
        )

    def __deepcopy__(self, memo: dict[int, Any]) -> CorpusGraph:
        """Return itself: copies of a program share the graph."""
        return self

    def node(self, i: int) -> Entity:
        """The thing of a node, with all evidence."""
        return self.entities[i]

    def edge(self, j: int) -> Relation:
        """The relation of an edge; its ends are the names of its nodes."""
        return self.relations[j]

    @cached_property
    def heads(self) -> NDArray[np.int32]:
        """The node at the head of each edge, shape (edges,)."""
        heads: NDArray[np.int32] = _column(self.tables.edges, "head")
        return heads

    @cached_property
    def tails(self) -> NDArray[np.int32]:
        """The node at the tail of each edge, shape (edges,)."""
        tails: NDArray[np.int32] = _column(self.tables.edges, "tail")
        return tails

    @cached_property
    def plain_values(self) -> NDArray[np.bool_]:
        """Which nodes are dates, numbers or amounts, which unrelated things share: (nodes,)."""
        values: NDArray[np.bool_] = _column(self.tables.nodes, "value")
        return values

    def name(self, i: int) -> str:
        """The name that a node is shown under, unlike any other node's."""
        return str(self.tables.nodes["name"][i])

    def relation_of(self, j: int) -> str:
        """The wording of an edge."""
        return str(self.tables.edges["relation"][j])

    def flags(self, j: int) -> Flags:
        """What is noted of an edge."""
        edges = self.tables.edges
        return Flags(edges["critical"][j].as_py(), tuple(edges["contradicts"][j].as_py()))

    def wikidata(self, i: int) -> str:
        """The Wikidata id of a node; "" where none is known."""
        return str(self.tables.nodes["wikidata"][i])

    @cached_property
    def names(self) -> Mapping[str, tuple[int, ...]]:
        """The nodes that go by each name, in the form that `ga_dspy.graph.normalise` gives.

        Names and aliases, with and without a qualifier in parentheses.
        """
        table = self.tables.names
        found = zip(table["key"].to_pylist(), table["nodes"].to_pylist(), strict=True)
        return MappingProxyType({key: tuple(nodes) for key, nodes in found})

    @cached_property
    def _shown(self) -> dict[str, int]:
        table = self.tables.names
        pairs = zip(table["key"].to_pylist(), table["shown"].to_pylist(), strict=True)
        return {key: node for key, node in pairs if node >= 0}

    def find(self, name: str) -> tuple[int, ...]:
        """The nodes that go by a name or alias, in any spelling; namesakes are several.

        A namesake is found alone by the name it is shown under: "Cambridge (England)".
        """
        shown = self._shown.get(normalise(name))
        if shown is not None and split_qualifier(name).qualifier:
            return (shown,)
        return self.names.get(normalise(name), ()) or self.names.get(identity(name), ())

    @cached_property
    def passages(self) -> tuple[str, ...]:
        """The ids of the passages that the graph knows, in order."""
        return tuple(self.tables.passages["id"].to_pylist())

    def passages_of(self, i: int) -> tuple[str, ...]:
        """The passages that state a thing, each once; none for one that was brought along."""
        return self._passages(self.tables.nodes, i)

    def passages_of_edge(self, j: int) -> tuple[str, ...]:
        """The passages that state a relation, each once; none for one that was brought along."""
        return self._passages(self.tables.edges, j)

    def nodes_in(self, passage: str) -> tuple[int, ...]:
        """The things that a passage states; none where the graph does not know it."""
        return self._stated_in[0].get(passage, ())

    def edges_in(self, passage: str) -> tuple[int, ...]:
        """The relations that a passage states; none where the graph does not know it."""
        return self._stated_in[1].get(passage, ())

    @property
    def merges(self) -> Iterator[Merge]:
        """The spellings that were taken for another name of a thing, and why."""
        for row in self.tables.merges.to_pylist():
            yield Merge(row["node"], row["name"], row["spelling"], row["rule"],
                        tuple(row["passages"]))  # fmt: skip

    def subgraph(self, nodes: Iterable[int], edges: Iterable[int] = ()) -> KnowledgeGraph:
        """A part of the graph in the library's own class, for prompts, chains and exports.

        The ends of the edges are added to the nodes. Order is kept.
        """
        chosen = list(dict.fromkeys(edges))
        ends = (int(end) for j in chosen for end in (self.heads[j], self.tails[j]))
        things = tuple(self.node(i) for i in dict.fromkeys((*map(int, nodes), *ends)))
        links = tuple(self.edge(j) for j in chosen)
        said = GraphUpdate(entities=things, relations=links)
        # Shown as they stand: resolved in the whole graph, they must not be resolved anew.
        return KnowledgeGraph(said=said, kept=said)

    @cached_property
    def network(self) -> igraph.Graph:
        """The graph in igraph, undirected; vertices are nodes, edge ids are edges."""
        pairs = zip(self.heads.tolist(), self.tails.tolist(), strict=True)
        return _igraph().Graph(n=len(self), edges=list(pairs), directed=False)

    @cached_property
    def network_with_passages(self) -> igraph.Graph:
        """Nodes, then passages, as vertices of one undirected igraph graph.

        Vertex `len(graph) + p` is `passages[p]`. The first edges are the graph's own; then each
        thing is linked to the passages that state it. Attribute `stated` tells the two apart.
        """
        pairs = list(zip(self.heads.tolist(), self.tails.tolist(), strict=True))
        stated = [
            (i, len(self) + p)
            for i, rows in enumerate(self.tables.nodes["passage"].to_pylist())
            for p in dict.fromkeys(rows)
        ]
        network = _igraph().Graph(
            n=len(self) + len(self.passages), edges=[*pairs, *stated], directed=False
        )
        network.es["stated"] = [False] * len(pairs) + [True] * len(stated)
        return network

    def visible(self, access: Access | None = None) -> View:
        """What a caller may and wants to see; by default what everybody may see."""
        access = access or Access()
        labels = access.labels & self.labels_in_use
        graph = self._graph_for(labels)
        return View(graph, access, wanted_edges(graph.tables.edges, access), self._withheld)

    @property
    def public(self) -> CorpusGraph:
        """The graph of a caller without labels."""
        return self._graph_for(NO_LABELS)

    def _graph_for(self, labels: Labels) -> CorpusGraph:
        if labels == self.labels_in_use:
            return self
        with self._lock:
            if labels not in self._graphs:
                self._graphs[labels] = self._make(labels)
            return self._graphs[labels]

    def _make(self, labels: Labels) -> CorpusGraph:
        if not labels and self._load_public is not None:
            return self._load_public()
        seen = seen_with(self.sources, labels)
        # The labels of what is left hide nothing from this caller.
        tables = Tables.of(resolve(seen), {})
        return CorpusGraph(tables, lambda: seen)

    @cached_property
    def _withheld(self) -> Mapping[str, Labels]:
        table = self.tables.passages
        rows = zip(table["id"].to_pylist(), table["labels"].to_pylist(), strict=True)
        return {id: frozenset(labels) for id, labels in rows if labels}

    @cached_property
    def _stated_in(self) -> tuple[dict[str, tuple[int, ...]], dict[str, tuple[int, ...]]]:
        return self._by_passage(self.tables.nodes), self._by_passage(self.tables.edges)

    def _by_passage(self, table: Any) -> dict[str, tuple[int, ...]]:
        stated: dict[str, dict[int, None]] = {}
        for row, places in enumerate(table["passage"].to_pylist()):
            for place in places:
                stated.setdefault(self.passages[place], {})[row] = None
        return {id: tuple(rows) for id, rows in stated.items()}

    def _passages(self, table: Any, row: int) -> tuple[str, ...]:
        places = dict.fromkeys(table["passage"][row].as_py())
        return tuple(self.passages[place] for place in places)

    def _read_node(self, i: int) -> Entity:
        (row,) = self.tables.nodes.slice(i, 1).to_pylist()
        return Entity(
            name=row["name"],
            type=row["type"],
            attributes=tuple(row["attributes"]),
            aliases=tuple(row["aliases"]),
            evidence=read_evidence(row, self.passages),
        )

    def _read_edge(self, j: int) -> Relation:
        (row,) = self.tables.edges.slice(j, 1).to_pylist()
        return Relation(
            head=self.name(row["head"]),
            relation=row["relation"],
            tail=self.name(row["tail"]),
            time=row["time"],
            confidence=row["confidence"],
            evidence=read_evidence(row, self.passages),
        )


def _column(table: Any, name: str) -> Any:
    return table[name].combine_chunks().to_numpy(zero_copy_only=False)


def _igraph() -> Any:
    try:
        import igraph
    except ImportError as error:
        raise MissingExtra("igraph", "graph") from error
    return igraph
