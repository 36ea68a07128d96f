"""The graph of a corpus: entities as numbered nodes, relations as numbered edges.

Nodes and edges are rows of Arrow tables, read on access, so a graph of any size opens quickly.
Node and edge numbers are valid within one `CorpusGraph`: a caller with restricted access has a
separate graph (`visible`) with other numbers.
"""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import numpy as np

from ga_dspy.errors import require
from ga_dspy.graph import Entity, Evidence, GraphUpdate, KnowledgeGraph, Relation, normalise
from ga_dspy.graph.identity import identity, split_qualifier
from ga_dspy.graph.records import grouped
from ga_dspy.graphrag.changes import Load, admitted, resolve_change
from ga_dspy.graphrag.mentions import Mention, Mentions
from ga_dspy.graphrag.records import (
    ANY_RELATION,
    NO_LABELS,
    Access,
    Conditions,
    Labels,
    Rules,
    Sources,
)
from ga_dspy.graphrag.resolution import Resolved, resolve
from ga_dspy.graphrag.tables import Tables

if TYPE_CHECKING:
    import igraph
    from numpy.typing import NDArray

Made = TypeVar("Made")

MOST_PARTS: Final = 32
"""The number of cached graphs of parts of a corpus, such as those of tenants."""

FEW: Final = 0.25
"""If at most this share of the passages is hidden, only what they affect is resolved again."""


class Merge(NamedTuple):
    """A spelling that is merged into another name, with the rule and the passages."""

    node: int
    name: str
    spelling: str
    rule: str
    passages: tuple[str, ...]


class CorpusGraph:
    """The graph of a corpus, or of the part of it that a caller may see.

    `CorpusGraph.of` makes one in memory; `ga_dspy.graphrag.open_graph` opens a stored one.

    Attributes:
        unused_overrides: Descriptions of overrides that did not match, if the graph was just built.
        left_out: Number of relations dropped by a rule, by cause, if the graph was just built.

    >>> oslo = GraphUpdate(relations=(Relation(head="Oslo", relation="in", tail="Norway"),))
    >>> graph = CorpusGraph.of({"p1": oslo})
    >>> graph.find("the oslo"), graph.entities[0].name, graph.heads.tolist()
    ((0,), 'Oslo', [0])
    """

    def __init__(
        self,
        tables: Tables,
        sources: Load,
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
            records: The records of each passage, by passage id.
            labels: The labels of restricted passages, by passage id.
            rules: The rules of the graph.
        """
        return cls.of_sources(Sources.of(records, labels or {}, rules or Rules()))

    @classmethod
    def of_sources(
        cls, sources: Sources, withheld: Mapping[str, Labels] | None = None, *, latest: bool = False
    ) -> CorpusGraph:
        """Make a graph of records.

        Args:
            sources: The records, labels and rules.
            withheld: The labels required to read each passage; by default those of the sources.
            latest: Drop the relations that a later value of a single-valued relation replaced.
        """
        withheld = sources.withheld if withheld is None else withheld
        resolved = resolve(sources)
        tables = Tables.of(resolved, withheld)
        if latest:
            tables = tables.latest(sources.rules)
        graph = cls(tables, sources.stated_by, latest=latest)
        graph.unused_overrides, graph.left_out = resolved.unused, resolved.left_out
        return graph

    @property
    def sources(self) -> Sources:
        """Return the records and rules of the graph."""
        return self._load(None)

    @property
    def rules(self) -> Rules:
        """Return the rules of the graph."""
        return self._load(frozenset()).rules

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
        """Return the labels that restrict some part of the graph."""
        return self.tables.labels

    @cached_property
    def entities(self) -> tuple[Entity, ...]:
        """Return the entity of every node; `node` reads a single one."""
        return tuple(map(self.node, range(len(self))))

    @cached_property
    def relations(self) -> tuple[Relation, ...]:
        """Return the relation of every edge; `edge` reads a single one."""
        return tuple(map(self.edge, range(len(self.heads))))

    def node(self, i: int) -> Entity:
        """Return the entity of a node, with all its evidence."""
        (row,) = self.tables.nodes.slice(i, 1).to_pylist()
        fields = {name: row[name] for name in ("name", "type", "attributes", "aliases", "about")}
        return Entity(**fields, evidence=self._evidence(row))

    def edge(self, j: int) -> Relation:
        """Return the relation of an edge, between the names of its nodes."""
        (row,) = self.tables.edges.slice(j, 1).to_pylist()
        fields = {name: row[name] for name in ("relation", "time", "confidence")}
        ends = {end: self.name(row[end]) for end in ("head", "tail")}
        return Relation(**ends, **fields, evidence=self._evidence(row))

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

    @cached_property
    def contradictions(self) -> Mapping[int, tuple[int, ...]]:
        """Return the contradicting edges of each edge that has any."""
        found = defaultdict[int, set[int]](set)
        for one, other, replaced in self.tables.conflicts(self.rules):
            if replaced is None:
                found[one].add(other)
                found[other].add(one)
        return {edge: tuple(sorted(found[edge])) for edge in sorted(found)}

    @cached_property
    def names(self) -> Mapping[str, tuple[int, ...]]:
        """Return the nodes of each normalised name or alias, with and without its qualifier."""
        keys, nodes = (self.tables.names[column].to_pylist() for column in ("key", "node"))
        by_key = grouped(zip(keys, nodes, strict=True))
        return {key: tuple(named) for key, named in by_key.items()}

    def find(self, name: str) -> tuple[int, ...]:
        """Return the nodes with a name or alias, in any spelling; several if there are namesakes.

        The shown name of a namesake, such as "Cambridge (England)", returns only its node.
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
        distinct = dict.fromkeys(table["passage"][row].as_py())
        return tuple(self.passages[passage] for passage in distinct)

    @property
    def merges(self) -> Iterator[Merge]:
        """Yield the spellings that are merged into another name."""
        for row in self.tables.merges.to_pylist():
            yield Merge(**row | {"passages": tuple(row["passages"])})

    @cached_property
    def mentions(self) -> Mentions:
        """Return the mentions of the nodes; none if the graph cannot be changed in part."""
        names, passages = self.tables.nodes["name"].to_pylist(), self.passages
        columns = (self.tables.mentions[column].to_pylist() for column in Mention._fields)
        mentions = (
            Mention(names[node], key, name, passages[p], end, person, tuple(linked), tuple(ids))
            for node, key, name, p, end, person, linked, ids in zip(*columns, strict=True)
        )
        return Mentions(mentions, self.rules.overrides)

    def derive(self, make: Callable[[CorpusGraph], Made]) -> Made:
        """Return what `make` derives from this graph, such as `Adjacency`; cached by `make`.

        Each caller's graph has a separate cache, so nothing leaks between callers.
        """
        if make not in self._derived:
            with self._lock:
                if make not in self._derived:
                    self._derived[make] = make(self)
        made: Made = self._derived[make]
        return made

    def subgraph(self, nodes: Iterable[int], edges: Iterable[int] = ()) -> KnowledgeGraph:
        """Return a part of the graph as a `KnowledgeGraph`, for prompts, chains and exports.

        The ends of the edges are added to the nodes. The given order is preserved.
        """
        distinct = list(dict.fromkeys(edges))
        ends = (int(end) for j in distinct for end in (self.heads[j], self.tails[j]))
        entities = map(self.node, dict.fromkeys((*map(int, nodes), *ends)))
        part = GraphUpdate(entities=tuple(entities), relations=tuple(map(self.edge, distinct)))
        # The entities were already resolved in the whole graph.
        return KnowledgeGraph(records=part, visible=part)

    @cached_property
    def network(self) -> igraph.Graph:
        """Return the undirected igraph graph, whose vertex and edge ids are nodes and edges."""
        pairs = zip(self.heads.tolist(), self.tails.tolist(), strict=True)
        return require("igraph", "graph").Graph(n=len(self), edges=list(pairs))

    def visible(self, access: Access | None = None) -> View:
        """Return the view of a caller; by default the public view."""
        access = access or Access()
        return View(self._graph_for(access.labels & self.labels_in_use), access, self._withheld)

    def hidden_from(self, labels: Labels) -> set[str]:
        """Return the ids of the passages that a caller with these labels may not read."""
        return {id for id, needed in self._withheld.items() if not needed <= labels}

    def part(
        self, passages: Iterable[str] | None = None, conditions: Conditions = ANY_RELATION
    ) -> CorpusGraph:
        """Return a part of the graph, resolved only from the records in it.

        Nothing in it depends on other records: no name, type, alias, merge or path. The latest
        `MOST_PARTS` of these graphs are cached.

        Args:
            passages: The ids of the passages to include; None for all.
            conditions: The conditions on the relations to include.
        """
        ids = None if passages is None else frozenset(passages)
        with self._lock:
            return self._part_of(ids, conditions)

    def _make_part(self, passages: frozenset[str] | None, conditions: Conditions) -> CorpusGraph:
        withheld, hidden = self._withheld, set[str]()
        if passages is not None:
            # A passage stays restricted even if the conditions exclude the relation that does it.
            withheld = {id: labels for id, labels in withheld.items() if id in passages}
            hidden = set(self.passages) - passages
        if conditions != ANY_RELATION:
            records = self.sources.records.items()
            hidden |= {id for id, one in records if not all(map(conditions.admit, one.relations))}

        def load(ids: Set[str] | None) -> Sources:
            return self._load(ids).stated_by(passages).keeping(conditions.admit)

        latest = self._latest or conditions.as_of is not None
        return self._restricted(load, hidden, withheld, latest=latest)

    def _restricted(
        self, load: Load, hidden: Set[str], withheld: Mapping[str, Labels], *, latest: bool
    ) -> CorpusGraph:
        """Return the graph without hidden records; if they are few, by incremental resolution.

        Args:
            load: Loads the remaining records.
            hidden: The passages with hidden records; may contain others.
            withheld: The labels required to read each passage.
            latest: As for `of_sources`.
        """
        if self._latest or not len(self.tables.mentions) or len(hidden) > FEW * len(self.passages):
            return self.of_sources(load(None), withheld, latest=latest)
        labels = {id: withheld.get(id, NO_LABELS) for id in hidden | self._withheld.keys()}
        tables, change, mentions = self.changed(load, hidden, labels)
        mentions.replace({one.key for one in (*change.before, *change.mentions)}, change.before)
        self.mentions = mentions
        return CorpusGraph(tables.latest(self.rules) if latest else tables, load, latest=latest)

    def changed(
        self, load: Load, changed: Set[str], labels: Mapping[str, Labels]
    ) -> tuple[Tables, Resolved, Mentions]:
        """Resolve a change of records; return the new tables, the change and the new mentions.

        The mentions of this graph are modified, not copied, so it drops its reference to them.

        Args:
            load: Loads the new records, under the same rules.
            changed: The passages whose records differ; may contain others.
            labels: The labels required to read these and other passages.
        """
        with self._lock:
            mentions = self.mentions
            del self.mentions
        now = admitted(load)
        change = resolve_change(mentions, admitted(self._load), now, changed, self.rules)
        passages = dict[str, Labels | None](labels)
        for id, required in labels.items():
            if not required and not now(id).entities:
                passages[id] = None  # the passage states nothing
        return self.tables.changed(change, passages), change, mentions

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
        def load(ids: Set[str] | None) -> Sources:
            return self._load(ids).seen_with(labels)

        if not labels and self._load_public is not None:
            return CorpusGraph(self._load_public(), load)
        hidden = self.hidden_from(labels)
        # What is left needs no labels that this caller lacks.
        return self._restricted(load, hidden, {}, latest=self._latest)

    @cached_property
    def _withheld(self) -> Mapping[str, Labels]:
        rows = self.tables.passages.to_pylist()
        return {row["id"]: frozenset(row["labels"]) for row in rows if row["labels"]}

    def _evidence(self, row: Mapping[str, Any]) -> tuple[Evidence, ...]:
        spans = zip(row["passage"], row["start"], row["end"], strict=True)
        return tuple(Evidence(passage=self.passages[p], start=a, end=b) for p, a, b in spans)


@dataclass(frozen=True)
class View:
    """What one caller may see of a corpus graph.

    Attributes:
        graph: The caller's own graph: nothing in it, not even names and numbers, depends on hidden
            records. Node and edge numbers refer to this graph.
        access: The caller's access scope.
    """

    graph: CorpusGraph
    access: Access
    _withheld: Mapping[str, Labels]

    def readable(self, passage: str) -> bool:
        """Return whether the caller may read the text of a passage.

        The caller needs the labels of the passage and of all relations extracted from it.
        """
        return self._withheld.get(passage, NO_LABELS) <= self.access.labels
