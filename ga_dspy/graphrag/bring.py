"""Bringing a graph along: triples from a file, with Wikidata ids where there are any.

A triple that names a passage must be supported by it, as an extracted one must; a triple that
names none enters without evidence and is shown without a passage number. Nothing here is trusted
to be well formed: what cannot be used is left out and said, row by row.
"""

from __future__ import annotations

import csv
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from ga_dspy.errors import InputError
from ga_dspy.graph import (
    Draft,
    DraftEntity,
    DraftRelation,
    Entity,
    Evidence,
    GraphUpdate,
    Relation,
    normalise,
    split_qualifier,
)
from ga_dspy.graphrag.sources import Batch
from ga_dspy.grounding import ground
from ga_dspy.mentions import mentions
from ga_dspy.passage import Passage
from ga_dspy.retrieval import Index

COLUMNS: Final = (
    "head", "relation", "tail", "head_id", "tail_id", "head_type", "tail_type", "time",
    "confidence", "passage", "quote", "labels",
)  # fmt: skip
_ID: Final = re.compile(r"Q[1-9]\d*")


class Brought(NamedTuple):
    """Triples that may be merged into a graph, and why the others may not."""

    batches: tuple[Batch, ...]
    rejected: tuple[str, ...]


class NotTriples(InputError):
    """A file holds no triples."""

    def __init__(self, path: Path, found: str) -> None:
        super().__init__(
            f"{path}: {found}",
            expected=f"a .csv with a header, or a .jsonl, with {', '.join(COLUMNS[:3])} "
            f"and any of {', '.join(COLUMNS[3:])}",
            remedy="name the columns so",
        )
        self.path = path


class _Unusable(Exception):
    """A row cannot be used; the text says why."""


def read_triples(path: Path | str, index: Index | None = None) -> Brought:
    """Read triples from a .csv or .jsonl file.

    Args:
        path: The file; `COLUMNS` names its columns, of which the first three are needed. `labels`
            are separated by ";".
        index: The passages that rows may name.

    Raises:
        NotTriples: There is no such file, it is of another kind, or a column is missing.
    """
    path = Path(path)
    if not path.is_file():
        raise NotTriples(path, "no such file")
    rows = [(n, _clean(row)) for n, row in enumerate(_rows(path), 1)]
    homonyms = _homonyms(row for _, row in rows)
    batches: list[Batch] = []
    rejected: list[str] = []
    for number, row in rows:
        try:
            batches.append(_batch(row, index, homonyms))
        except _Unusable as fault:
            rejected.append(f"row {number}: {fault}")
    return Brought(tuple(batches), tuple(rejected))


def _rows(path: Path) -> Iterator[Mapping[str, Any]]:
    if path.suffix == ".csv":
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file)
            missing = [name for name in COLUMNS[:3] if name not in (reader.fieldnames or ())]
            if missing:
                raise NotTriples(path, f"no column {missing[0]!r}")
            yield from reader
    elif path.suffix == ".jsonl":
        for number, line in enumerate(path.read_text(encoding="utf-8-sig").splitlines(), 1):
            if line.strip():
                yield _object(path, number, line)
    else:
        raise NotTriples(path, f"a file that ends in {path.suffix!r}")


def _object(path: Path, number: int, line: str) -> Mapping[str, Any]:
    try:
        value = json.loads(line)
    except ValueError as error:
        raise NotTriples(path, f"line {number} is no JSON") from error
    if not isinstance(value, Mapping):
        raise NotTriples(path, f"line {number} is no object")
    return value


def _clean(row: Mapping[str, Any]) -> dict[str, str]:
    def text(value: Any) -> str:
        joined = ";".join(map(str, value)) if isinstance(value, list) else str(value)
        return " ".join(joined.split())

    return {name: text(row[name]) for name in COLUMNS if row.get(name) not in (None, "")}


def _homonyms(rows: Iterable[Mapping[str, str]]) -> set[str]:
    """The names that stand for several ids."""
    ids: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        for end in ("head", "tail"):
            if row.get(f"{end}_id"):
                ids[normalise(row.get(end, ""))].add(row[f"{end}_id"])
    return {name for name, known in ids.items() if len(known) > 1}


def _batch(row: Mapping[str, str], index: Index | None, homonyms: set[str]) -> Batch:
    for column in COLUMNS[:3]:
        if column not in row:
            raise _Unusable(f"{column} is empty")
    ends = {end: _name(row, end, homonyms) for end in ("head", "tail")}
    entities = [
        DraftEntity(name=name, type=row.get(f"{end}_type", ""), passages=(1,))
        for end, name in ends.items()
    ]
    relation = DraftRelation(
        **ends,
        relation=row["relation"],
        time=row.get("time"),
        confidence=_confidence(row.get("confidence")),
        passages=(1,),
    )
    update = (
        _grounded(row, index, Draft(entities=tuple(entities), relations=(relation,)))
        if "passage" in row
        else _without_passage(entities, relation)
    )
    ids = {ends[end]: row[f"{end}_id"] for end in ends if f"{end}_id" in row}
    bad = next((id for id in ids.values() if not _ID.fullmatch(id)), "")
    if bad:
        raise _Unusable(f"{bad!r} is no Wikidata id, which look like Q42")
    labels = {label.strip() for label in row.get("labels", "").split(";")} - {""}
    return Batch(
        passage=row.get("passage", ""),
        update=update,
        labels=frozenset(labels),
        ids=ids,
        brought=True,
    )


def _name(row: Mapping[str, str], end: str, homonyms: set[str]) -> str:
    """The name; with its id as a qualifier where other rows give the name another id."""
    name, id = row[end], row.get(f"{end}_id", "")
    return f"{name} ({id})" if id and normalise(name) in homonyms else name


def _confidence(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        value = float(text)
    except ValueError as error:
        raise _Unusable(f"confidence is {text!r}, not a number from 0 to 1") from error
    if not 0 <= value <= 1:
        raise _Unusable(f"confidence is {text!r}, not a number from 0 to 1")
    return value


def _without_passage(entities: Sequence[DraftEntity], relation: DraftRelation) -> GraphUpdate:
    return GraphUpdate(
        entities=tuple(Entity(name=e.name, type=e.type) for e in entities),
        relations=(Relation(**relation.model_dump(exclude={"passages"})),),
    )


def _grounded(row: Mapping[str, str], index: Index | None, draft: Draft) -> GraphUpdate:
    """The records with evidence in the passage that the row names.

    The type is the file's word: a passage need not carry it.
    """
    if index is None:
        raise _Unusable("it names a passage and no index is given")
    try:
        passage = index.get(row["passage"])
    except InputError as error:
        raise _Unusable(str(error)) from error
    names = {e.name for e in draft.entities}
    found = ground(draft, {1: passage}, known=names)
    if not found.update.relations:
        raise _Unusable(f"passage {passage.id!r} does not support it: {found.dropped[0]}")
    if "quote" not in row:
        return found.update
    quote = _quote(row["quote"], passage)
    ends = [split_qualifier(name).base for name in names]
    if not all(mentions(end, passage.content[quote.start : quote.end]) for end in ends):
        raise _Unusable("its quote does not mention both ends")
    quoted = tuple(r.model_copy(update={"evidence": (quote,)}) for r in found.update.relations)
    return found.update.model_copy(update={"relations": quoted})


def _quote(text: str, passage: Passage) -> Evidence:
    found = mentions(text, passage.content)
    if not found or found[0].rung == "fuzzy":
        raise _Unusable(f"its quote does not stand in passage {passage.id!r}")
    return Evidence(passage=passage.id, start=found[0].start, end=found[0].end)
