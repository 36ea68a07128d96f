"""A resolved graph as memory-mapped Arrow tables: made, changed in part, stored.

Rows are numbered in the order in which the corpus states them. A change replaces the rows of what
was resolved again; the other rows stay, and the numbers in them are mapped to the new ones. A new
graph is a change of an empty one.
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
"""The columns of each table of a stored graph, with their Arrow types; a star marks a list."""

_ORDER: Final = {
    "nodes": ("passage", "start", "end", "name"),
    "edges": ("passage", "start", "end", "head", "relation", "tail", "time"),
    "names": ("key", "node"),
    "passages": ("id",),
    "merges": ("node",),
    "mentions": ("node",),
}
"""The columns by which each table is sorted; of a list the first value counts."""


def arrow_table(name: str, rows: Iterable[Mapping[str, Any]]) -> Any:
    """Make an Arrow table of `SCHEMAS` from rows; other keys are ignored."""
    pa = require("pyarrow", "graph")
    fields = []
    for column, _, kind in (entry.partition(":") for entry in SCHEMAS[name].split()):
        item = pa.type_for_alias(kind.removesuffix("*"))
        fields.append((column, pa.list_(item) if kind.endswith("*") else item))
    return pa.Table.from_pylist(list(rows), schema=pa.schema(fields))


def read_table(folder: Path, name: str, schema: str = "") -> Any:
    """Map one table into memory.

    Arrow trusts the offsets in a file, so they are validated first.

    Args:
        folder: The folder.
        name: The name of the file.
        schema: The name in `SCHEMAS`; by default that of the file.

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
        known = {*table.column_names} - {"time", "confidence"}
        if table.schema != expected or any(table[n].null_count for n in known):
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
        edges: One row per relation; head and tail are rows of `nodes`.
        names: One row per normalised spelling or id of a node.
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
        """Make the tables of a resolved graph, given the labels of restricted passages."""
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
        """Return every label that a passage requires."""
        return frozenset(self.passages["labels"].combine_chunks().flatten().to_pylist())

    def save(self, folder: Path) -> None:
        """Write each table as an Arrow IPC file into a new folder."""
        folder.mkdir(parents=True)
        for name, table in self._asdict().items():
            write_table(folder, name, table)

    def latest(self, rules: Rules) -> Tables:
        """Return the tables without what a later value of a single-valued relation replaced."""
        replaced = [edge for *_, edge in self.conflicts(rules) if edge is not None]
        kept = np.setdiff1d(np.arange(len(self.edges)), replaced)
        return self._replace(edges=self.edges.take(kept))

    def conflicts(self, rules: Rules) -> list[tuple[int, int, int | None]]:
        """Return the edges in conflict, and which of the two the other one replaced."""
        nodes, wordings = self.nodes, self.edges["relation"].combine_chunks().dictionary_encode()
        chosen = _are_in(wordings.dictionary, comparable(wordings.dictionary.to_pylist(), rules))
        rows = np.flatnonzero(chosen[np.asarray(wordings.indices)])
        heads, tails = (np.asarray(self.edges[end]) for end in ("head", "tail"))
        names, types = nodes["name"], nodes["type"]
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
            change: What was resolved again.
            passages: The changed passages with their labels; None for those that state nothing.
        """
        pa, ids, shown = require("pyarrow", "graph"), self.passages["id"], self.nodes["name"]
        gone = _are_in(shown, {one.node for one in change.before})
        numbers = dict[str, NDArray[np.int32]]()

        def replaced(name: str, old: NDArray[np.bool_], rows: Iterable[Any], *named: Any) -> Any:
            return _replaced(name, getattr(self, name), old, rows, numbers, *named)

        stated = sorted((id, sorted(of)) for id, of in passages.items() if of is not None)
        labelled = ({"id": id, "labels": labels} for id, labels in stated)
        of_passages = replaced("passages", _are_in(ids, passages), labelled)
        numbers["passage"] = _rows_in(of_passages["id"], ids)
        place = {id: row for row, id in enumerate(of_passages["id"].to_pylist())}
        nodes = replaced("nodes", gone, (_row(node.entity, place) for node in change.nodes))
        numbers["node"] = numbers["head"] = numbers["tail"] = _rows_in(nodes["name"], shown)
        ends = {node.entity.name for node in change.nodes}
        named = pa.array(ends.union(*(one.ends for one in change.relations)), pa.string())
        number = dict(zip(named.to_pylist(), _rows_in(nodes["name"], named).tolist(), strict=True))
        relations = (
            {**_row(one, place), "head": number[one.head], "tail": number[one.tail]}
            for one in change.relations
        )
        of_heads = _are_in(shown, change.heads)[np.asarray(self.edges["head"])]
        spelled = sorted(
            (key, number[node.entity.name])
            for node in change.nodes
            for key in _names_of(node.entity)
        )
        merged = (
            {"node": number[entity.name], "name": entity.name, "spelling": spelling, "rule": rule,
             "passages": passages}
            for entity, _, every in change.nodes
            for spelling, rule, passages in every
        )  # fmt: skip
        mentions = (
            {**one._asdict(), "node": number[one.node], "passage": place[one.passage]}
            for one in change.mentions
        )
        names = ({"key": key, "node": node} for key, node in spelled)
        return Tables(
            nodes=nodes,
            edges=replaced("edges", of_heads, relations, nodes["name"]),
            names=replaced("names", gone[np.asarray(self.names["node"])], names),
            passages=of_passages,
            merges=replaced("merges", gone[np.asarray(self.merges["node"])], merged),
            mentions=replaced("mentions", gone[np.asarray(self.mentions["node"])], mentions),
        )


def _row(record: Entity | Relation, place: Mapping[str, int]) -> dict[str, Any]:
    """Return the row of an entity or a relation; `place` numbers the passages."""
    spans = {
        "passage": [place[span.passage] for span in record.evidence],
        "start": [span.start for span in record.evidence],
        "end": [span.end for span in record.evidence],
    }
    is_value = isinstance(record, Entity) and is_plain_value(record.name)
    return {**vars(record), **spans, "value": is_value}


def _names_of(entity: Entity) -> set[str]:
    """Return the normalised spellings and ids by which an entity is found."""
    names = (entity.name, *entity.aliases, *ids_in(entity.about))
    bases = (split_qualifier(name).base for name in names)
    return {*map(normalise, (*names, *bases)), *map(identity, names)}


# --- Rows


def _replaced(
    name: str,
    old: Any,
    gone: NDArray[np.bool_],
    rows: Iterable[Mapping[str, Any]],
    numbers: Mapping[str, NDArray[np.int32]],
    named: Any = None,
) -> Any:
    """Return a sorted table without some rows and with others.

    Args:
        name: The name of the table.
        old: The table, sorted.
        gone: Which of its rows to remove, shape (rows,).
        rows: The rows to insert, sorted.
        numbers: The new number for each number in these columns of other rows.
        named: The names of the nodes by their new numbers, to sort edges.
    """
    pa, new = require("pyarrow", "graph"), arrow_table(name, rows)
    if gone.all():
        return new
    kept = old.filter(~gone)
    for column in numbers.keys() & kept.column_names:
        values, to = kept[column].combine_chunks(), numbers[column]
        if pa.types.is_list(values.type):
            mapped = pa.array(to[np.asarray(values.values)], pa.int32())
            values = pa.ListArray.from_arrays(values.offsets, mapped)
        else:
            values = pa.array(to[np.asarray(values)], pa.int32())
        place = kept.schema.get_field_index(column)
        kept = kept.set_column(place, kept.schema.field(column), values)
    own, others = (_place_in(table, _ORDER[name], named) for table in (new, kept))
    places = [bisect_left(range(len(kept)), own(i), key=others) for i in range(len(new))]
    order = np.insert(np.arange(len(kept)), places, len(kept) + np.arange(len(new)))
    return pa.concat_tables([kept, new]).combine_chunks().take(order)


def _place_in(table: Any, columns: Iterable[str], named: Any) -> Callable[[int], tuple[Any, ...]]:
    """Return a function from a row to its place in the order of a table."""
    pa, pc = require("pyarrow", "graph"), require("pyarrow.compute", "graph")
    found = []
    for column in columns:
        values = table[column].combine_chunks()
        if pa.types.is_list(values.type):
            values = pc.list_element(values, 0)
        if column in ("head", "tail"):
            values = named.take(values)
        found.append(pc.fill_null(values, "") if column == "time" else values)
    return lambda i: tuple([values[i].as_py() for values in found])


def _are_in(column: Any, some: Collection[str]) -> NDArray[np.bool_]:
    pa, pc = require("pyarrow", "graph"), require("pyarrow.compute", "graph")
    return np.asarray(pc.is_in(column, value_set=pa.array(list(some), pa.string())), np.bool_)


def _rows_in(column: Any, some: Any) -> NDArray[np.int32]:
    """Return the row of each text in a column; -1 if it is not there."""
    pc = require("pyarrow.compute", "graph")
    return np.asarray(pc.index_in(some, value_set=column.combine_chunks()).fill_null(-1), np.int32)
