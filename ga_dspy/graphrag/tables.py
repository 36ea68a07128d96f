"""The columns of a corpus graph: what was resolved, as Arrow tables that map into memory."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final

from ga_dspy.errors import MissingExtra
from ga_dspy.graph import Entity, Evidence, Relation, normalise
from ga_dspy.graph.names import identity, split_qualifier
from ga_dspy.graphrag.resolution import Resolved
from ga_dspy.graphrag.sources import Labels
from ga_dspy.graphrag.values import is_plain_value

ENDING: Final = ".arrow"


@dataclass(frozen=True)
class Tables:
    """Six Arrow tables.

    Attributes:
        nodes: A row a thing: name, type, attributes, aliases, wikidata, value (whether it is a
            plain value such as a date) and its evidence in three list columns.
        edges: A row a relation: head and tail (rows of `nodes`), relation, time, confidence,
            critical, contradicts (rows of `edges`) and evidence.
        names: A row a spelling, normalised: the nodes that go by it, and the one shown so.
        passages: A row a passage: its id and the labels needed to read it.
        merges: A row a spelling that was taken for another: node, spelling, name, rule, passages.
        left_out: A row a relation that a guard kept out: head, relation, tail, cause.
    """

    nodes: Any
    edges: Any
    names: Any
    passages: Any
    merges: Any
    left_out: Any

    @classmethod
    def of(cls, resolved: Resolved, withheld: Mapping[str, Labels]) -> Tables:
        """Lay out what was resolved."""
        stated = {e.passage for entity in resolved.entities for e in entity.evidence}
        stated |= {e.passage for relation in resolved.relations for e in relation.evidence}
        ids = sorted({*stated, *withheld})
        rows = {id: row for row, id in enumerate(ids)}
        return cls(
            nodes=_nodes(resolved, rows),
            edges=_edges(resolved, rows),
            names=_names(resolved.entities),
            passages=_table(
                id=(ids, "string"), labels=([sorted(withheld.get(i, ())) for i in ids], "strings")
            ),
            merges=_table(
                node=([m.node for m in resolved.merges], "int"),
                spelling=([m.spelling for m in resolved.merges], "string"),
                name=([m.name for m in resolved.merges], "string"),
                rule=([m.rule for m in resolved.merges], "string"),
                passages=([m.passages for m in resolved.merges], "strings"),
            ),
            left_out=_table(
                head=([item.relation.head for item in resolved.left_out], "string"),
                relation=([item.relation.relation for item in resolved.left_out], "string"),
                tail=([item.relation.tail for item in resolved.left_out], "string"),
                cause=([item.cause for item in resolved.left_out], "string"),
            ),
        )

    @classmethod
    def open(cls, folder: Path) -> Tables:
        """Map the tables of a folder into memory."""
        return cls(**{field.name: read_table(folder, field.name) for field in fields(cls)})

    def save(self, folder: Path) -> None:
        """Write each table as an Arrow IPC file."""
        for field in fields(self):
            write_table(folder, field.name, getattr(self, field.name))


class Rows(Sequence[Any]):
    """A sequence that reads a row when it is asked for."""

    def __init__(self, count: int, read: Callable[[int], Any]) -> None:
        self._count, self._read = count, read

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, row: Any) -> Any:
        if isinstance(row, slice):
            return tuple(self._read(i) for i in range(*row.indices(self._count)))
        if not 0 <= row < self._count:
            raise IndexError(f"row {row} of {self._count}")
        return self._read(int(row))


def read_table(folder: Path, name: str) -> Any:
    """Map one table into memory."""
    pa = pyarrow()
    with pa.memory_map(str(folder / f"{name}{ENDING}")) as source:
        return pa.ipc.open_file(source).read_all()


def write_table(folder: Path, name: str, table: Any) -> None:
    """Write one table as an Arrow IPC file."""
    pa = pyarrow()
    with (
        pa.OSFile(str(folder / f"{name}{ENDING}"), "wb") as sink,
        pa.ipc.new_file(sink, table.schema) as writer,
    ):
        writer.write_table(table)


def _nodes(resolved: Resolved, rows: Mapping[str, int]) -> Any:
    entities = resolved.entities
    return _table(
        name=([e.name for e in entities], "string"),
        type=([e.type for e in entities], "string"),
        attributes=([e.attributes for e in entities], "strings"),
        aliases=([e.aliases for e in entities], "strings"),
        wikidata=(list(resolved.wikidata), "string"),
        value=([is_plain_value(e.name) for e in entities], "bool"),
        **_evidence(entities, rows),
    )


def _edges(resolved: Resolved, rows: Mapping[str, int]) -> Any:
    relations = resolved.relations
    return _table(
        head=([head for head, _ in resolved.ends], "int"),
        tail=([tail for _, tail in resolved.ends], "int"),
        relation=([r.relation for r in relations], "string"),
        time=([r.time for r in relations], "string"),
        confidence=([r.confidence for r in relations], "float"),
        critical=(list(resolved.critical), "bool"),
        contradicts=(list(resolved.contradicts), "ints"),
        **_evidence(relations, rows),
    )


def _evidence(items: Sequence[Entity] | Sequence[Relation], rows: Mapping[str, int]) -> Any:
    return {
        "passage": ([[rows[e.passage] for e in item.evidence] for item in items], "ints"),
        "start": ([[e.start for e in item.evidence] for item in items], "ints"),
        "end": ([[e.end for e in item.evidence] for item in items], "ints"),
    }


def read_evidence(row: Mapping[str, Any], ids: Sequence[str]) -> tuple[Evidence, ...]:
    """The evidence of a row of `nodes` or `edges`."""
    spans = zip(row["passage"], row["start"], row["end"], strict=True)
    return tuple(Evidence(passage=ids[p], start=start, end=end) for p, start, end in spans)


def _names(entities: Iterable[Entity]) -> Any:
    nodes: dict[str, dict[int, None]] = defaultdict(dict)
    shown: dict[str, int] = {}
    for node, entity in enumerate(entities):
        shown[normalise(entity.name)] = node
        for name in (entity.name, *entity.aliases):
            for key in (normalise(name), normalise(split_qualifier(name).base), identity(name)):
                nodes[key][node] = None
    keys = sorted(nodes)
    return _table(
        key=(keys, "string"),
        nodes=([list(nodes[key]) for key in keys], "ints"),
        shown=([shown.get(key, -1) for key in keys], "int"),
    )


def _table(**columns: tuple[Sequence[Any], str]) -> Any:
    pa = pyarrow()
    types = {
        "string": pa.string(),
        "strings": pa.list_(pa.string()),
        "int": pa.int32(),
        "ints": pa.list_(pa.int32()),
        "float": pa.float64(),
        "bool": pa.bool_(),
    }
    return pa.table({name: pa.array(v, types[kind]) for name, (v, kind) in columns.items()})


def pyarrow() -> Any:
    """PyArrow with its IPC module.

    Raises:
        MissingExtra: It is not installed.
    """
    try:
        import pyarrow
        import pyarrow.ipc
    except ImportError as error:
        raise MissingExtra("pyarrow", "graph") from error
    return pyarrow
