"""Bringing a graph along: triples from a file, with Wikidata ids where there are any.

A triple that names a passage must be supported by it, as an extracted one must; a triple that
names none enters without evidence and is shown without a passage number. A row that cannot be used
is left out and listed with the reason.
"""

from __future__ import annotations

import csv
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from pydantic import TypeAdapter, ValidationError

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
from ga_dspy.graphrag.records import Batch
from ga_dspy.grounding import ground
from ga_dspy.retrieval import Index
from ga_dspy.text import mentions

COLUMNS: Final = (
    "head", "relation", "tail", "head_id", "tail_id", "head_type", "tail_type", "time",
    "confidence", "passage", "quote", "labels",
)  # fmt: skip
_ENDS: Final = ("head", "tail")
_ID: Final = re.compile(r"Q[1-9]\d*")
_OBJECT: Final = TypeAdapter(dict[str, Any])


class Brought(NamedTuple):
    """Triples that may be merged into a graph, and why the others may not."""

    batches: tuple[Batch, ...]
    rejected: tuple[str, ...]


def read_triples(path: Path | str, index: Index | None = None) -> Brought:
    """Read triples from a .csv or .jsonl file.

    Args:
        path: The file; `COLUMNS` names its columns; the first three are needed. `labels` are
            separated by ";".
        index: The passages that rows may name.

    Raises:
        InputError: There is no such file, it is of another kind, or a column is missing.
    """
    rows = [_clean(row) for row in _rows(Path(path))]
    ids: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        for end in _ENDS:
            if f"{end}_id" in row:
                ids[normalise(row.get(end, ""))].add(row[f"{end}_id"])
    homonyms = {name for name, known in ids.items() if len(known) > 1}
    batches: list[Batch] = []
    rejected: list[str] = []
    for number, row in enumerate(rows, 1):
        try:
            batches.append(_batch(row, index, homonyms))
        except InputError as fault:
            rejected.append(f"row {number}: {fault}")
    return Brought(tuple(batches), tuple(rejected))


def _rows(path: Path) -> Iterator[Mapping[str, Any]]:
    if not path.is_file():
        raise _no_triples(path, "no such file")
    if path.suffix == ".csv":
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file)
            for name in COLUMNS[:3]:
                if name not in (reader.fieldnames or ()):
                    raise _no_triples(path, f"no column {name!r}")
            yield from reader
    elif path.suffix == ".jsonl":
        for number, line in enumerate(path.read_text(encoding="utf-8-sig").splitlines(), 1):
            if line.strip():
                try:
                    yield _OBJECT.validate_json(line)
                except ValidationError as error:
                    raise _no_triples(path, f"line {number} is no JSON object") from error
    else:
        raise _no_triples(path, f"a file that ends in {path.suffix!r}")


def _no_triples(path: Path, found: str) -> InputError:
    return InputError(
        f"{path}: {found}",
        expected=f"a .csv with a header, or a .jsonl, with {', '.join(COLUMNS[:3])} "
        f"and any of {', '.join(COLUMNS[3:])}",
        remedy="name the columns so",
    )


def _clean(row: Mapping[str, Any]) -> dict[str, str]:
    """The known columns that say something, as text on one line."""
    values = {name: row[name] for name in COLUMNS if row.get(name) not in (None, "")}
    texts = {
        name: ";".join(map(str, value)) if isinstance(value, list) else str(value)
        for name, value in values.items()
    }
    return {name: " ".join(text.split()) for name, text in texts.items()}


def _batch(row: Mapping[str, str], index: Index | None, homonyms: set[str]) -> Batch:
    """The records of a row.

    Raises:
        InputError: The row cannot be used; the text says why.
    """
    for column in COLUMNS[:3]:
        if column not in row:
            raise InputError(f"{column} is empty")
    names: dict[str, str] = {}
    ids: dict[str, str] = {}
    for end in _ENDS:
        name, id = row[end], row.get(f"{end}_id", "")
        # Where other rows give the name another id, its id is a qualifier.
        names[end] = f"{name} ({id})" if id and normalise(name) in homonyms else name
        if id:
            ids[names[end]] = id
    try:
        stated = {name: row.get(name) for name in ("relation", "time", "confidence")}
        relation = DraftRelation.model_validate({**names, **stated, "passages": (1,)})
    except ValidationError as error:
        number = f"confidence is {row['confidence']!r}, not a number from 0 to 1"
        raise InputError(number) from error
    types = {name: row.get(f"{end}_type", "") for end, name in names.items()}
    if "passage" in row:
        update = _grounded(row, index, types, relation)
    else:
        update = GraphUpdate(
            entities=tuple(Entity(name=names[end], type=types[names[end]]) for end in _ENDS),
            relations=(Relation(**relation.model_dump(exclude={"passages"})),),
        )
    for id in ids.values():
        if not _ID.fullmatch(id):
            raise InputError(f"{id!r} is no Wikidata id, which look like Q42")
    return Batch(
        passage=row.get("passage", ""),
        update=update,
        labels=frozenset(label.strip() for label in row.get("labels", "").split(";")) - {""},
        ids=ids,
        brought=True,
    )


def _grounded(
    row: Mapping[str, str], index: Index | None, types: Mapping[str, str], relation: DraftRelation
) -> GraphUpdate:
    """The records with evidence in the passage that the row names.

    The file decides on the types: the passage need not carry them.
    """
    if index is None:
        raise InputError("it names a passage and no index is given")
    passage = index.get(row["passage"])
    entities = tuple(DraftEntity(name=n, type=kind, passages=(1,)) for n, kind in types.items())
    draft = Draft(entities=entities, relations=(relation,))
    found = ground(draft, {1: passage}, known=types)
    if not found.update.relations:
        raise InputError(f"passage {passage.id!r} does not support it: {found.dropped[0]}")
    if "quote" not in row:
        return found.update
    places = mentions(row["quote"], passage.content)
    if not places or places[0].rung == "fuzzy":
        raise InputError(f"its quote does not stand in passage {passage.id!r}")
    start, end, _ = places[0]
    quoted = passage.content[start:end]
    if not all(mentions(split_qualifier(name).base, quoted) for name in types):
        raise InputError("its quote does not mention both ends")
    evidence = (Evidence(passage=passage.id, start=start, end=end),)
    relations = tuple(r.model_copy(update={"evidence": evidence}) for r in found.update.relations)
    return found.update.model_copy(update={"relations": relations})
