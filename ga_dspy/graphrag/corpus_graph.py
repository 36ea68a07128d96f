"""The graph of a corpus: entities as numbered nodes, relations as numbered edges.

Nodes and edges are rows of Arrow columns, read on access, so a graph of any size opens quickly.
Numbers are valid within one `CorpusGraph`; a caller with restricted access has a separate graph
(`visible`) with its own numbers.
"""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import numpy as np

from ga_dspy.errors import require
from ga_dspy.graph import Entity, Evidence, GraphUpdate, KnowledgeGraph, Relation, normalise
from ga_dspy.graph.identity import identity, split_qualifier
from ga_dspy.graphrag.mentions import Mention
from ga_dspy.graphrag.records import (
    ANY_RELATION,
    NO_LABELS,
    Access,
    Conditions,
    Labels,
    Rules,
    Sources,
)
from ga_dspy.graphrag.resolution import resolve
from ga_dspy.graphrag.tables import Tables

if TYPE_CHECKING:
    import igraph
    from numpy.typing import NDArray

Made = TypeVar("Made")

MOST_PARTS: Final = 32
"""How many graphs of parts of a corpus are cached, such as those of tenants."""


class Merge(NamedTuple):
    """A spelling that is merged into another name, with the rule and the passages."""

    node: int
    name: str
    spelling: str
    rule: str
    passages: tuple[str, ...]


class Flags(NamedTuple):
    """Whether an edge is critical under the rules, and the edges that it contradicts."""

    critical: bool
    contradicts: tuple[int, ...]


class CorpusGraph:
    """A graph of everything that a corpus, or the part of it that a caller may see, states.

    Make one in memory with `of`; `ga_dspy.graphrag.open_graph` opens a stored one.

    Attributes:
        unused_overrides: Overrides that did not match, if it was just built.
        left_out: Number of relations dropped by a rule, by cause, if it was just built.

    >>> oslo = GraphUpdate(relations=(Relation(head="Oslo", relation="in", tail="Norway"),))
    >>> graph = CorpusGraph.of({"p1": oslo})
    >>> graph.find("the oslo"), graph.entities[0].name, graph.heads.tolist()
    ((0,), 'Oslo', [0])
    """

    def __init__(
        self,
        tables: Tables,
        sources: Callable[[], Sources],
        *,
        public: Callable[[], Tables] | None = None,
        latest: bool = False,
    ) -> None:
        self.tables = tables
        self.unused_overrides: tuple[str, ...] = ()
        self.left_out: Counter[str] = Counter()
        self._load = sources
        self._load_public = public
        self._latest = latest
        self._seen_with = cache(self._make_seen)
        self._part_of = lru_cache(MOST_PARTS)(self._make_part)
        self._derived: dict[Any, Any] = {}
        self._lock = threading.RLock()

    @classmethod
    def of(
        cls,
        records: Mapping[str, GraphUpdate],
        *,
        labels: Mapping[str, Iterable[str]] | None = None,
        rules: Rules | None = None,
    ) -> CorpusGraph:
        """Make a graph in memory.

        Args:
            records: What each passage states, by passage id.
            labels: The labels of restricted passages, by passage id.
            rules: What enters, what is flagged, what is private.
        """
        return cls.of_sources(Sources.of(records, labels or {}, rules or Rules()))

    @classmethod
    def of_sources(
        cls, sources: Sources, withheld: Mapping[str, Labels] | None = None, *, latest: bool = False
    ) -> CorpusGraph:
        """Make a graph of records.

        Args:
            sources: The records, rules and labels.
            withheld: The labels required to read the passages, if not those of the sources.
            latest: Drop what a later value of a single-valued relation has replaced.
        """
        withheld = sources.withheld if withheld is None else withheld
        resolved = resolve(sources)
        tables = Tables.of(resolved, withheld, sources.rules)
        if latest:
            tables = tables.latest(sources.rules)
        graph = cls(tables, lambda: sources, latest=latest)
        graph.unused_overrides = resolved.unused
        replaced = len(resolved.relations) - len(graph.heads)
        graph.left_out = resolved.left_out + Counter({"replaced by a later one": replaced})
        return graph

    @property
    def sources(self) -> Sources:
        """Return the records and rules of the graph."""
        return self._load()

    def __len__(self) -> int:
        return int(self.tables.nodes.num_rows)

    def __repr__(self) -> str:
        return (
            f"CorpusGraph({len(self):,} entities, {len(self.heads):,} relations, "
            f"{len(self.passages):,} passages)"
        )

    def __deepcopy__(self, memo: dict[int, Any]) -> CorpusGraph:
        """Return itself: copies of a program share the graph."""
        return self

    @cached_property
    def labels_in_use(self) -> Labels:
        """Return the labels that hide part of it."""
        return self.tables.labels

    @cached_property
    def entities(self) -> tuple[Entity, ...]:
        """Return all entities, by node; `node` reads one."""
        return tuple(map(self.node, range(len(self))))

    @cached_property
    def relations(self) -> tuple[Relation, ...]:
        """Return all relations, by edge; their ends are names of nodes; `edge` reads one."""
        return tuple(map(self.edge, range(len(self.heads))))

    def node(self, i: int) -> Entity:
        """Return the entity of a node, with all evidence."""
        (row,) = self.tables.nodes.slice(i, 1).to_pylist()
        stated = {name: row[name] for name in ("name", "type", "attributes", "aliases", "about")}
        return Entity(**stated, evidence=self._evidence(row))

    def edge(self, j: int) -> Relation:
        """Return the relation of an edge; its ends are the names of its nodes."""
        (row,) = self.tables.edges.slice(j, 1).to_pylist()
        stated = {name: row[name] for name in ("relation", "time", "confidence")}
        ends = {end: self.name(row[end]) for end in ("head", "tail")}
        return Relation(**ends, **stated, evidence=self._evidence(row))

    @cached_property
    def heads(self) -> NDArray[np.int32]:
        """Return the node at the head of each edge, shape (edges,)."""
        return np.asarray(self.tables.edges["head"], np.int32)

    @cached_property
    def tails(self) -> NDArray[np.int32]:
        """Return the node at the tail of each edge, shape (edges,)."""
        return np.asarray(self.tables.edges["tail"], np.int32)

    @cached_property
    def plain_values(self) -> NDArray[np.bool_]:
        """Return which nodes are dates, numbers or amounts, shape (nodes,)."""
        return np.asarray(self.tables.nodes["value"], np.bool_)

    def name(self, i: int) -> str:
        """Return the unique name of a node."""
        return str(self.tables.nodes["name"][i])

    def flags(self, j: int) -> Flags:
        """Return the flags of an edge."""
        edges = self.tables.edges
        return Flags(edges["critical"][j].as_py(), tuple(edges["contradicts"][j].as_py()))

    @cached_property
    def names(self) -> Mapping[str, tuple[int, ...]]:
        """Return the nodes of each normalised name or alias, with and without its qualifier."""
        found, names = defaultdict[str, tuple[int, ...]](tuple), self.tables.names
        for key, node in zip(names["key"].to_pylist(), names["node"].to_pylist(), strict=True):
            found[key] += (node,)
        return MappingProxyType(dict(found))

    def find(self, name: str) -> tuple[int, ...]:
        """Return the nodes of a name or alias, in any spelling; namesakes are several.

        The shown name of a namesake, such as "Cambridge (England)", returns it alone.
        """
        plain = normalise(name)
        found = self.names.get(plain, ())
        if split_qualifier(name).qualifier:
            shown = [node for node in found if normalise(self.name(node)) == plain]
            found = tuple(shown[-1:]) or found
        return found or self.names.get(identity(name), ())

    @cached_property
    def passages(self) -> tuple[str, ...]:
        """Return the ids of the graph's passages, in order."""
        return tuple(self.tables.passages["id"].to_pylist())

    def passages_of(self, i: int) -> tuple[str, ...]:
        """Return the ids of the passages that state an entity."""
        return self._passages(self.tables.nodes, i)

    def passages_of_edge(self, j: int) -> tuple[str, ...]:
        """Return the ids of the passages that state a relation."""
        return self._passages(self.tables.edges, j)

    def _passages(self, table: Any, row: int) -> tuple[str, ...]:
        places = dict.fromkeys(table["passage"][row].as_py())
        return tuple(self.passages[place] for place in places)

    @property
    def merges(self) -> Iterator[Merge]:
        """Yield the spellings that are merged into another name, and the rules."""
        for row in self.tables.merges.to_pylist():
            yield Merge(**row | {"passages": tuple(row["passages"])})

    @property
    def mentions(self) -> Iterator[Mention]:
        """Yield the mentions of the nodes; none if the graph cannot be changed in part."""
        names, table = self.tables.nodes["name"].to_pylist(), self.tables.mentions
        columns = (table[column].to_pylist() for column in Mention._fields)
        for node, key, name, place, end, person, linked, ids in zip(*columns, strict=True):
            lists, passage = (tuple(linked), tuple(ids)), self.passages[place]
            yield Mention(names[node], key, name, passage, end, person, *lists)

    def derive(self, make: Callable[[CorpusGraph], Made]) -> Made:
        """Return a cached object made of this graph alone, such as `Wiring`.

        Each caller's graph has its own cache, so nothing leaks between callers.
        """
        if make not in self._derived:
            with self._lock:
                if make not in self._derived:
                    self._derived[make] = make(self)
        made: Made = self._derived[make]
        return made

    def subgraph(self, nodes: Iterable[int], edges: Iterable[int] = ()) -> KnowledgeGraph:
        """Return a part of the graph as a `KnowledgeGraph`, for prompts, chains and exports.

        The ends of the edges are added to the nodes. The order is kept.
        """
        chosen = list(dict.fromkeys(edges))
        ends = (int(end) for j in chosen for end in (self.heads[j], self.tails[j]))
        entities = tuple(self.node(i) for i in dict.fromkeys((*map(int, nodes), *ends)))
        update = GraphUpdate(entities=entities, relations=tuple(map(self.edge, chosen)))
        # Visible as they are: entities were resolved in the whole graph.
        return KnowledgeGraph(records=update, visible=update)

    @cached_property
    def network(self) -> igraph.Graph:
        """Return the undirected igraph graph; vertices are nodes, edge ids are edges."""
        pairs = zip(self.heads.tolist(), self.tails.tolist(), strict=True)
        return require("igraph", "graph").Graph(n=len(self), edges=list(pairs))

    def visible(self, access: Access | None = None) -> View:
        """Return the view of a caller; by default the public view."""
        access = access or Access()
        return View(self._graph_for(access.labels & self.labels_in_use), access, self._withheld)

    def part(
        self, passages: Iterable[str] | None = None, conditions: Conditions = ANY_RELATION
    ) -> CorpusGraph:
        """Return a part of the graph, resolved from its records alone.

        Nothing in it depends on other records: no name, type, alias, merge or path. The latest
        `MOST_PARTS` of these graphs are cached.

        Args:
            passages: The ids of the passages whose records count; None for all.
            conditions: Which relations count.
        """
        ids = None if passages is None else frozenset(passages)
        with self._lock:
            return self._part_of(ids, conditions)

    def _make_part(self, passages: frozenset[str] | None, conditions: Conditions) -> CorpusGraph:
        sources, withheld = self.sources, self._withheld
        if passages is not None:
            sources = sources.stated_by(passages)
            withheld = {id: labels for id, labels in withheld.items() if id in passages}
        latest = self._latest or conditions.as_of is not None
        # A passage stays withheld because of a relation that the conditions exclude.
        return self.of_sources(sources.keeping(conditions.admit), withheld, latest=latest)

    @property
    def public(self) -> CorpusGraph:
        """Return the graph of a caller without labels."""
        return self._graph_for(NO_LABELS)

    def _graph_for(self, labels: Labels) -> CorpusGraph:
        if labels == self.labels_in_use:
            return self
        with self._lock:
            return self._seen_with(labels)

    def _make_seen(self, labels: Labels) -> CorpusGraph:
        if not labels and self._load_public is not None:
            return CorpusGraph(self._load_public(), Sources)
        # The remaining labels hide nothing from this caller.
        return self.of_sources(self.sources.seen_with(labels), {}, latest=self._latest)

    @cached_property
    def _withheld(self) -> Mapping[str, Labels]:
        rows = self.tables.passages.to_pylist()
        return {row["id"]: frozenset(row["labels"]) for row in rows if row["labels"]}

    def _evidence(self, row: Mapping[str, Any]) -> tuple[Evidence, ...]:
        spans = zip(row["passage"], row["start"], row["end"], strict=True)
        return tuple(Evidence(passage=self.passages[p], start=a, end=b) for p, a, b in spans)


@dataclass(frozen=True)
class View:
    """The view of one caller of a corpus graph.

    Attributes:
        graph: The caller's own graph: nothing in it, its numbers or its names depends on hidden
            records. Node and edge numbers of a view refer to this graph.
        access: The caller's access scope.
    """

    graph: CorpusGraph
    access: Access
    _withheld: Mapping[str, Labels]

    def readable(self, passage: str) -> bool:
        """Return whether the caller may read the text of a passage.

        This requires the labels of the passage and of every relation extracted from it.
        """
        return self._withheld.get(passage, NO_LABELS) <= self.access.labels
