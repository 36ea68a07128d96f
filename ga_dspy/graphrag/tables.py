"""A resolved graph as memory-mapped Arrow tables.

Rows are sorted by where the corpus first states them. A change replaces only the rows of entities
and relations that were resolved again; row numbers in the other rows are updated. A new graph is a
change of an empty one.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import chain
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ga_dspy.errors import DamagedFile, require
from ga_dspy.graph import Entity, Relation, normalise
from ga_dspy.graph.clusters import passages_of
from ga_dspy.graph.identity import identity, split_qualifier
from ga_dspy.graph.traits import ids_in
from ga_dspy.graphrag.records import NO_LABELS, Labels, Rules
from ga_dspy.graphrag.resolution import Resolved, comparable, conflicts, is_plain_value

_SPANS: Final = "passage:int32* start:int32* end:int32*"
SCHEMAS: Final = {
    "nodes": f"name:string type:string attributes:string* aliases:string* value:bool {_SPANS} "
    "about:string*",
    "edges": f"head:int32 tail:int32 relation:string time:string confidence:double {_SPANS}",
    "names": "key:string node:int32",
    "passages": "id:string labels:string*",
    "merges": "node:int32 spelling:string name:string rule:string passages:string*",
    "mentions": "node:int32 key:string name:string passage:int32 end:bool person:bool "
    "linked:string* ids:string*",
    "communities": "key:string level:int32 parent:int32 nodes:int32* edges:int32*",
    "records": "passage:string digest:string step:string json:large_string",
}
"""The columns of each table of a stored graph with their Arrow types; a star marks a list."""

_ORDER: Final = {
    "nodes": ("passage", "start", "end", "name"),
    "edges": ("passage", "start", "end", "head", "relation", "tail", "time"),
    "names": ("key", "node"),
    "passages": ("id",),
    "merges": ("node",),
    "mentions": ("node",),
}
"""The columns by which each table is sorted; a list is compared by its first value."""


def arrow_table(name: str, rows: Iterable[Mapping[str, Any]]) -> Any:
    """Make an Arrow table from rows, with the columns that `SCHEMAS` lists for its name."""
    pa = require("pyarrow", "graph")
    fields = []
    for column, _, kind in (entry.partition(":") for entry in SCHEMAS[name].split()):
        item = pa.type_for_alias(kind.removesuffix("*"))
        fields.append((column, pa.list_(item) if kind.endswith("*") else item))
    return pa.Table.from_pylist(list(rows), schema=pa.schema(fields))


def read_table(folder: Path, name: str, schema: str = "") -> Any:
    """Map a table into memory.

    The offsets in the file are validated, because Arrow does not check them on access.

    Args:
        folder: The folder.
        name: The name of the file, without its extension.
        schema: The name of the table in `SCHEMAS`; by default that of the file.

    Raises:
        DamagedFile: The file is not a table, or its offsets are invalid.
    """
    pa, path = require("pyarrow", "graph"), folder / f"{name}.arrow"
    expected = arrow_table(schema or name, ()).schema
    try:
        with pa.memory_map(str(path)) as source:
            table = pa.ipc.open_file(source).read_all()
        table.validate(full=True)
        # Earlier versions wrote more columns.
        table = table.select([n for n in expected.names if n in table.column_names])
        required = {*table.column_names} - {"time", "confidence"}
        if table.schema != expected or any(table[n].null_count for n in required):
            raise pa.ArrowInvalid("it has other columns, or lacks values")
        return table
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise DamagedFile(
            f"{path} cannot be read ({error})",
            expected="a table that this version of ga-dspy wrote",
            remedy="restore the folder from a copy, or build it again",
        ) from error


def write_table(folder: Path, name: str, table: Any) -> None:
    """Write a table as an Arrow IPC file."""
    pa = require("pyarrow", "graph")
    with pa.ipc.new_file(str(folder / f"{name}.arrow"), table.schema) as writer:
        writer.write_table(table)


class Tables(NamedTuple):
    """The Arrow tables of a graph; `SCHEMAS` lists their columns.

    Attributes:
        nodes: One row per entity; `value` marks a plain value such as a date. Evidence refers to
            passages by their row in `passages`.
        edges: One row per relation; head and tail are rows of `nodes`.
        names: One row per normalised spelling or id of a node.
        passages: One row per passage: its id and the labels required to read it.
        merges: One row per spelling that is merged into another name of a node.
        mentions: One row per name of a node in a passage. Empty if some record has evidence in
            several passages or none: such a graph cannot be changed in part.
    """

    nodes: Any
    edges: Any
    names: Any
    passages: Any
    merges: Any
    mentions: Any

    @classmethod
    def of(cls, resolved: Resolved, withheld: Mapping[str, Labels]) -> Tables:
        """Make the tables of a resolved graph.

        Args:
            resolved: The whole graph.
            withheld: The labels required to read each restricted passage, by its id.
        """
        empty = cls(*(arrow_table(name, ()) for name in cls._fields))
        entities = [node.entity for node in resolved.nodes]
        stated = chain(map(passages_of, entities), map(passages_of, resolved.relations))
        passages = dict.fromkeys(chain.from_iterable(stated), NO_LABELS)
        return empty.changed(resolved, {**passages, **withheld})

    @classmethod
    def open(cls, folder: Path) -> Tables:
        """Map the tables of a folder into memory."""
        return cls(*(read_table(folder, name) for name in cls._fields))

    @property
    def labels(self) -> Labels:
        """Return all labels that some passage requires."""
        return frozenset(self.passages["labels"].combine_chunks().flatten().to_pylist())

    def save(self, folder: Path) -> None:
        """Write each table to a file in a new folder."""
        folder.mkdir(parents=True)
        for name, table in self._asdict().items():
            write_table(folder, name, table)

    def latest(self, rules: Rules) -> Tables:
        """Return the tables without relations that a later value of the same relation replaced."""
        replaced = [edge for *_, edge in self.conflicts(rules) if edge is not None]
        current = np.setdiff1d(np.arange(len(self.edges)), replaced)
        return self._replace(edges=self.edges.take(current))

    def conflicts(self, rules: Rules) -> list[tuple[int, int, int | None]]:
        """Return the pairs of edges in conflict, with the one that the other replaced, if any."""
        wordings = self.edges["relation"].combine_chunks().dictionary_encode()
        chosen = _is_in(wordings.dictionary, comparable(wordings.dictionary.to_pylist(), rules))
        rows = np.flatnonzero(chosen[np.asarray(wordings.indices)])
        heads, tails = np.asarray(self.edges["head"]), np.asarray(self.edges["tail"])
        names, types = self.nodes["name"], self.nodes["type"]
        relations = [
            Relation.model_construct(**row | {"head": "", "tail": names[row["tail"]].as_py()})
            for row in self.edges.take(rows).select(["relation", "tail", "time"]).to_pylist()
        ]
        found = conflicts(
            relations,
            list(zip(heads[rows].tolist(), tails[rows].tolist(), strict=True)),
            lambda i: Entity.model_construct(name=names[i].as_py(), type=types[i].as_py()),
            set(zip(heads.tolist(), tails.tolist(), strict=True)),
            rules,
        )
        edge = rows.tolist()
        return [(edge[a], edge[b], None if old is None else edge[old]) for a, b, old in found]

    def changed(self, change: Resolved, passages: Mapping[str, Labels | None]) -> Tables:
        """Return the tables after a change.

        Args:
            change: The part of the graph that was resolved again.
            passages: The labels of the changed passages; None for those that state nothing.
        """
        pa, ids, titles = require("pyarrow", "graph"), self.passages["id"], self.nodes["name"]
        new_rows = dict[str, NDArray[np.int32]]()

        def replace(name: str, removed: NDArray[np.bool_], rows: Iterable[Any], *by: Any) -> Any:
            return _replace_rows(name, getattr(self, name), removed, rows, new_rows, *by)

        stated = sorted((id, sorted(of)) for id, of in passages.items() if of is not None)
        labelled = ({"id": id, "labels": labels} for id, labels in stated)
        new_passages = replace("passages", _is_in(ids, passages), labelled)
        new_rows["passage"] = _rows_of(ids, new_passages["id"])
        passage_row = {id: row for row, id in enumerate(new_passages["id"].to_pylist())}

        is_replaced = _is_in(titles, {mention.node for mention in change.before})
        entities = (_row(node.entity, passage_row) for node in change.nodes)
        nodes = replace("nodes", is_replaced, entities)
        new_rows["node"] = new_rows["head"] = new_rows["tail"] = _rows_of(titles, nodes["name"])
        ends = chain.from_iterable(relation.ends for relation in change.relations)
        named = pa.array({node.entity.name for node in change.nodes}.union(ends), pa.string())
        rows = _rows_of(named, nodes["name"]).tolist()
        node_row = dict(zip(named.to_pylist(), rows, strict=True))

        relations = (
            {**_row(one, passage_row), "head": node_row[one.head], "tail": node_row[one.tail]}
            for one in change.relations
        )
        spelled = sorted(
            (key, node_row[node.entity.name])
            for node in change.nodes
            for key in _names_of(node.entity)
        )
        merged = (
            {"node": node_row[entity.name], "name": entity.name, "spelling": spelling,
             "rule": rule, "passages": stating}
            for entity, _, merges in change.nodes
            for spelling, rule, stating in merges
        )  # fmt: skip
        mentions = (
            {**one._asdict(), "node": node_row[one.node], "passage": passage_row[one.passage]}
            for one in change.mentions
        )
        names = ({"key": key, "node": node} for key, node in spelled)
        from_heads = _is_in(titles, change.heads)[np.asarray(self.edges["head"])]
        return Tables(
            nodes=nodes,
            edges=replace("edges", from_heads, relations, nodes["name"]),
            names=replace("names", is_replaced[np.asarray(self.names["node"])], names),
            passages=new_passages,
            merges=replace("merges", is_replaced[np.asarray(self.merges["node"])], merged),
            mentions=replace("mentions", is_replaced[np.asarray(self.mentions["node"])], mentions),
        )


def _row(record: Entity | Relation, passage_row: Mapping[str, int]) -> dict[str, Any]:
    """Return the row of an entity or a relation."""
    is_value = isinstance(record, Entity) and is_plain_value(record.name)
    row = {**vars(record), "value": is_value, "passage": [], "start": [], "end": []}
    for span in record.evidence:
        row["passage"].append(passage_row[span.passage])
        row["start"].append(span.start)
        row["end"].append(span.end)
    return row


def _names_of(entity: Entity) -> set[str]:
    """Return the normalised spellings and ids by which an entity is found."""
    names = (entity.name, *entity.aliases, *ids_in(entity.about))
    bases = (split_qualifier(name).base for name in names)
    return {*map(normalise, (*names, *bases)), *map(identity, names)}


# --- Sorted tables: replace and look up rows.


def _replace_rows(
    name: str,
    table: Any,
    removed: NDArray[np.bool_],
    rows: Iterable[Mapping[str, Any]],
    new_rows: Mapping[str, NDArray[np.int32]],
    titles: Any = None,
) -> Any:
    """Return a sorted table with some of its rows replaced.

    Args:
        name: The name of the table.
        table: The table, sorted.
        removed: Which of its rows to remove, shape (rows,).
        rows: The rows to insert, sorted.
        new_rows: The columns that refer to rows of other tables: the new row for each old one.
        titles: The names of the nodes by their new rows, by which edges are sorted.
    """
    pa, new = require("pyarrow", "graph"), arrow_table(name, rows)
    if removed.all():
        return new
    kept = table.filter(~removed)
    for column in new_rows.keys() & kept.column_names:
        values, mapping = kept[column].combine_chunks(), new_rows[column]
        if pa.types.is_list(values.type):
            mapped = pa.array(mapping[np.asarray(values.values)], pa.int32())
            values = pa.ListArray.from_arrays(values.offsets, mapped)
        else:
            values = pa.array(mapping[np.asarray(values)], pa.int32())
        position = kept.schema.get_field_index(column)
        kept = kept.set_column(position, kept.schema.field(column), values)
    new_key, kept_key = (_sort_key(part, _ORDER[name], titles) for part in (new, kept))
    positions = [bisect_left(range(len(kept)), new_key(i), key=kept_key) for i in range(len(new))]
    order = np.insert(np.arange(len(kept)), positions, len(kept) + np.arange(len(new)))
    return pa.concat_tables([kept, new]).combine_chunks().take(order)


def _sort_key(table: Any, columns: Iterable[str], titles: Any) -> Callable[[int], tuple[Any, ...]]:
    """Return a function that returns the sort key of a row."""
    pa, pc = require("pyarrow", "graph"), require("pyarrow.compute", "graph")
    parts = []
    for column in columns:
        values = table[column].combine_chunks()
        if pa.types.is_list(values.type):
            values = pc.list_element(values, 0)
        if column in ("head", "tail"):
            values = titles.take(values)
        parts.append(pc.fill_null(values, "") if column == "time" else values)
    return lambda i: tuple([values[i].as_py() for values in parts])


def _is_in(column: Any, texts: Collection[str]) -> NDArray[np.bool_]:
    pa, pc = require("pyarrow", "graph"), require("pyarrow.compute", "graph")
    return np.asarray(pc.is_in(column, value_set=pa.array(list(texts), pa.string())), np.bool_)


def _rows_of(texts: Any, column: Any) -> NDArray[np.int32]:
    """Return the row of a column in which each text stands, or -1."""
    pc = require("pyarrow.compute", "graph")
    return np.asarray(pc.index_in(texts, value_set=column.combine_chunks()).fill_null(-1), np.int32)
