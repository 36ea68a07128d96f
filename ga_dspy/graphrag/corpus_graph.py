"""The graph of a corpus: entities as numbered nodes, relations as numbered edges.

Nodes and edges are rows of Arrow columns, read on access, so a graph of any size opens quickly.
Numbers are valid within one `CorpusGraph`; a caller with restricted access has a separate graph
(`visible`) with its own numbers.
"""

from __future__ import annotations

import json
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import numpy as np

from ga_dspy.errors import DamagedFile, require
from ga_dspy.graph import Entity, Evidence, GraphUpdate, KnowledgeGraph, Relation, normalise
from ga_dspy.graph.identity import identity, split_qualifier
from ga_dspy.graph.traits import ids_in
from ga_dspy.graphrag.conditions import ANY_RELATION, Conditions
from ga_dspy.graphrag.mentions import Mention
from ga_dspy.graphrag.records import NO_LABELS, Access, Batch, Labels, Rules, Sources
from ga_dspy.graphrag.resolution import Flags, Merge, Resolved, is_plain_value, resolve

if TYPE_CHECKING:
    import igraph
    from numpy.typing import NDArray

Made = TypeVar("Made")

MOST_PARTS: Final = 32
"""How many graphs of parts of a corpus are cached, such as those of tenants."""


class CorpusGraph:
    """A graph of everything that a corpus, or the part of it that a caller may see, states.

    Make one in memory with `of`; `ga_dspy.graphrag.open_graph` opens a stored one.

    Attributes:
        labels_in_use: The labels that hide part of it.
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
        labels_in_use: Labels = NO_LABELS,
        public: Callable[[], CorpusGraph] | None = None,
        latest: bool = False,
    ) -> None:
        self.tables = tables
        self.labels_in_use = labels_in_use
        self.unused_overrides: tuple[str, ...] = ()
        self.left_out: Counter[str] = Counter()
        self._load = sources
        self._load_public = public
        self._latest = latest
        self._graphs: dict[Labels, CorpusGraph] = {}
        self._parts: dict[tuple[frozenset[str] | None, Conditions], CorpusGraph] = {}
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
        read = (Batch.of(passage, update) for passage, update in records.items())
        sources = Sources.of(read, labels or {}, rules or Rules())
        return cls._resolved(sources, sources.withheld)

    @classmethod
    def _resolved(
        cls, sources: Sources, withheld: Mapping[str, Labels], *, latest: bool = False
    ) -> CorpusGraph:
        """Make a graph of its records, and the labels required to read the passages."""
        resolved = resolve(sources, latest=latest)
        labels = NO_LABELS.union(*withheld.values())
        tables = Tables.of(resolved, withheld)
        graph = cls(tables, lambda: sources, labels_in_use=labels, latest=latest)
        graph.unused_overrides, graph.left_out = resolved.unused, Counter(resolved.left_out)
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
        rows = self.tables.names.to_pylist()
        return MappingProxyType({row["key"]: tuple(row["nodes"]) for row in rows})

    @cached_property
    def _shown(self) -> dict[str, int]:
        rows = self.tables.names.to_pylist()
        return {row["key"]: row["shown"] for row in rows if row["shown"] >= 0}

    def find(self, name: str) -> tuple[int, ...]:
        """Return the nodes of a name or alias, in any spelling; namesakes are several.

        The shown name of a namesake, such as "Cambridge (England)", returns it alone.
        """
        shown = self._shown.get(normalise(name))
        if shown is not None and split_qualifier(name).qualifier:
            return (shown,)
        return self.names.get(normalise(name), ()) or self.names.get(identity(name), ())

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
        asked = None if passages is None else frozenset(passages), conditions
        with self._lock:
            part = self._parts.pop(asked, None)
            if part is None:  # a graph without entities is false
                part = self._part(*asked)
            self._parts[asked] = part
            if len(self._parts) > MOST_PARTS:
                del self._parts[next(iter(self._parts))]
        return part

    def _part(self, passages: frozenset[str] | None, conditions: Conditions) -> CorpusGraph:
        sources, withheld = self.sources, self._withheld
        if passages is not None:
            sources = sources.stated_by(passages)
            withheld = {id: labels for id, labels in withheld.items() if id in passages}
        latest = self._latest or conditions.as_of is not None
        # A passage stays withheld because of a relation that the conditions exclude.
        return self._resolved(sources.keeping(conditions.admit), withheld, latest=latest)

    @property
    def public(self) -> CorpusGraph:
        """Return the graph of a caller without labels."""
        return self._graph_for(NO_LABELS)

    def _graph_for(self, labels: Labels) -> CorpusGraph:
        if labels == self.labels_in_use:
            return self
        with self._lock:
            if labels not in self._graphs:
                if not labels and self._load_public is not None:
                    self._graphs[labels] = self._load_public()
                else:
                    seen = self.sources.seen_with(labels)
                    # The remaining labels hide nothing from this caller.
                    self._graphs[labels] = self._resolved(seen, {}, latest=self._latest)
            return self._graphs[labels]

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


# --- The resolved graph as memory-mapped Arrow tables.

_SPANS: Final = "passage:int32* start:int32* end:int32*"
SCHEMAS: Final = {
    "nodes": f"name:string type:string attributes:string* aliases:string* value:bool {_SPANS} "
    "about:string*",
    "edges": f"head:int32 tail:int32 relation:string time:string confidence:double critical:bool "
    f"contradicts:int32* {_SPANS}",
    "names": "key:string nodes:int32* shown:int32",
    "passages": "id:string labels:string*",
    "merges": "node:int32 spelling:string name:string rule:string passages:string*",
    "mentions": "node:int32 key:string name:string passage:int32 end:bool person:bool "
    "linked:string* ids:string*",
    "communities": "key:string level:int32 parent:int32 nodes:int32* edges:int32*",
    "records": "passage:string digest:string step:string json:large_string",
}
"""The columns of each table of a stored graph, with their Arrow types; a star marks a list."""


def arrow_table(name: str, rows: Iterable[Mapping[str, Any]]) -> Any:
    """Make an Arrow table of `SCHEMAS` from rows; other keys are ignored."""
    pa = require("pyarrow", "graph")
    fields = []
    for column, _, kind in (entry.partition(":") for entry in SCHEMAS[name].split()):
        item = pa.type_for_alias(kind.removesuffix("*"))
        fields.append((column, pa.list_(item) if kind.endswith("*") else item))
    return pa.Table.from_pylist(list(rows), schema=pa.schema(fields))


def read_table(folder: Path, name: str) -> Any:
    """Map one table into memory.

    Arrow trusts the offsets in a file, so they are validated first.

    Raises:
        DamagedFile: The file is not a table, or its offsets are invalid.
    """
    pa, path = require("pyarrow", "graph"), folder / f"{name}.arrow"
    try:
        with pa.memory_map(str(path)) as source:
            table = pa.ipc.open_file(source).read_all()
        fields = arrow_table(name, ()).schema
        if [*table.column_names, "about"] == fields.names:  # an earlier version wrote no ids
            table = table.append_column("about", pa.array([[]] * len(table), fields[-1].type))
        if name == "records" and table.column_names == ["json"]:  # or the records alone
            texts, nothing = table["json"].to_pylist(), [""] * len(table)
            ids = [json.loads(text)["passage"] for text in texts]
            table = pa.table([ids, nothing, nothing, texts], schema=fields)
        table.validate(full=True)
        known = {*table.column_names} - {"time", "confidence"}
        if table.schema != fields or any(table[n].null_count for n in known):
            raise pa.ArrowInvalid("it has other columns, or lacks values")
        return table
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise DamagedFile(
            f"{path} cannot be read ({error})",
            expected="a table that this version of ga-dspy wrote",
            remedy="restore the folder from a copy, or build it again",
        ) from error


def write_table(folder: Path, name: str, table: Any) -> None:
    """Write one table as an Arrow IPC file."""
    pa = require("pyarrow", "graph")
    with pa.ipc.new_file(str(folder / f"{name}.arrow"), table.schema) as writer:
        writer.write_table(table)


class Tables(NamedTuple):
    """Six Arrow tables; `SCHEMAS` lists their columns.

    Attributes:
        nodes: One row per entity; `value` marks a plain value such as a date. Evidence refers to
            passages by their row in `passages`.
        edges: One row per relation; head and tail are rows of `nodes`, contradicts of `edges`.
        names: One row per normalised spelling: its nodes, and the node with this shown name.
        passages: One row per passage: its id and the labels required to read it.
        merges: One row per spelling that is merged into another name of a node.
        mentions: One row per name of a node in a passage; none if a record states several passages
            or none, and the graph cannot be changed in part.
    """

    nodes: Any
    edges: Any
    names: Any
    passages: Any
    merges: Any
    mentions: Any

    @classmethod
    def of(cls, resolved: Resolved, withheld: Mapping[str, Labels]) -> Tables:
        """Make the tables of a resolved graph."""
        records: tuple[Entity | Relation, ...] = (*resolved.entities, *resolved.relations)
        stated = {span.passage for record in records for span in record.evidence}
        ids = sorted({*stated, *withheld})
        place = {id: row for row, id in enumerate(ids)}
        edges = (
            record_row(relation, place, head=ends[0], tail=ends[1], **flags._asdict())
            for relation, ends, flags in zip(
                resolved.relations, resolved.ends, resolved.flags, strict=True
            )
        )
        passages = ({"id": id, "labels": sorted(withheld.get(id, ()))} for id in ids)
        row = {entity.name: i for i, entity in enumerate(resolved.entities)}
        found = (mention_row(one, row[one.node], place[one.passage]) for one in resolved.mentions)
        return cls(
            nodes=arrow_table("nodes", (record_row(one, place) for one in resolved.entities)),
            edges=arrow_table("edges", edges),
            names=arrow_table("names", _names(resolved.entities)),
            passages=arrow_table("passages", passages),
            merges=arrow_table("merges", (merge._asdict() for merge in resolved.merges)),
            mentions=arrow_table("mentions", found),
        )

    @classmethod
    def open(cls, folder: Path) -> Tables:
        """Map the tables of a folder into memory; an earlier version wrote no mentions."""
        tables = {name: read_table(folder, name) for name in cls._fields[:-1]}
        known = (folder / "mentions.arrow").is_file()
        mentions = read_table(folder, "mentions") if known else arrow_table("mentions", ())
        return cls(**tables, mentions=mentions)

    @property
    def labels(self) -> Labels:
        """Return every label that a passage requires."""
        return frozenset(self.passages["labels"].combine_chunks().flatten().to_pylist())

    def save(self, folder: Path) -> None:
        """Write each table as an Arrow IPC file into a new folder."""
        folder.mkdir(parents=True)
        for name, table in self._asdict().items():
            write_table(folder, name, table)


def record_row(record: Entity | Relation, place: Mapping[str, int], **more: Any) -> dict[str, Any]:
    """Return the row of an entity, or of a relation with its ends; `place` numbers passages."""
    spans = {
        "passage": [place[span.passage] for span in record.evidence],
        "start": [span.start for span in record.evidence],
        "end": [span.end for span in record.evidence],
    }
    is_value = isinstance(record, Entity) and is_plain_value(record.name)
    return {**vars(record), **spans, "value": is_value, **more}


def mention_row(mention: Mention, node: int, passage: int) -> dict[str, Any]:
    """Return the row of a mention of a node in a passage."""
    return {**mention._asdict(), "node": node, "passage": passage}


def names_of(name: str, aliases: Iterable[str], about: Iterable[str]) -> set[str]:
    """Return the normalised spellings and ids by which an entity is found."""
    return {
        key
        for each in (name, *aliases, *ids_in(about))
        for key in (normalise(each), normalise(split_qualifier(each).base), identity(each))
    }


def _names(entities: Iterable[Entity]) -> Iterator[dict[str, Any]]:
    nodes: dict[str, list[int]] = defaultdict(list)
    shown: dict[str, int] = {}
    for node, entity in enumerate(entities):
        shown[normalise(entity.name)] = node
        for key in names_of(entity.name, entity.aliases, entity.about):
            nodes[key].append(node)
    for key in sorted(nodes):
        yield {"key": key, "nodes": nodes[key], "shown": shown.get(key, -1)}
