"""The files that `ga-dspy graph build` takes: rules, and the labels of passages."""

from __future__ import annotations

import csv
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import TypeAdapter, ValidationError

from ga_dspy.errors import InputError
from ga_dspy.graphrag import Batch, Rules, read_triples
from ga_dspy.retrieval import Index

_LABELS = TypeAdapter(dict[str, frozenset[str]])


class BadFile(InputError):
    """A file of rules or labels is missing or does not read as one."""

    def __init__(self, path: Path, found: str, expected: str) -> None:
        super().__init__(
            f"{path}: {found}", expected=expected, remedy="see ga-dspy graph build --help"
        )
        self.path = path


class BroughtFiles(NamedTuple):
    """Triples of several files, and why others cannot be used."""

    batches: tuple[Batch, ...]
    rejected: tuple[str, ...]


def read_rules(path: Path | None) -> Rules:
    """Read a rules file; no file, no rules but the usual ones.

    Pairs under `overrides` may be lists of two; each end is a name, or a name and a passage.

    Raises:
        BadFile: It is missing, no JSON, or holds what no rule is.
    """
    if path is None:
        return Rules()
    expected = "a JSON object of rules"
    value = _json(path, expected)
    try:
        return Rules.model_validate(_with_pairs(value))
    except ValidationError as error:
        raise BadFile(path, _first(error), expected) from error


def read_labels(path: Path | None) -> dict[str, frozenset[str]] | None:
    """Read the labels of passages from a .json or .csv; None where there is no file.

    Raises:
        BadFile: It is missing, of another kind, or holds something else.
    """
    if path is None:
        return None
    if path.suffix == ".csv":
        return _labels_csv(path)
    expected = 'a .json such as {"p1": ["hr"]}, or a .csv with passage,labels'
    if path.suffix != ".json":
        raise BadFile(path, f"a file that ends in {path.suffix!r}", expected)
    try:
        return _LABELS.validate_python(_json(path, expected))
    except ValidationError as error:
        raise BadFile(path, _first(error), expected) from error


def read_brought(paths: Iterable[Path], index: Index) -> BroughtFiles:
    """Read triples from elsewhere; those that cannot be used are named with file and row."""
    batches: list[Batch] = []
    rejected: list[str] = []
    for path in paths:
        found = read_triples(path, index)
        batches += found.batches
        rejected += [f"{path.name}, {why}" for why in found.rejected]
    return BroughtFiles(tuple(batches), tuple(rejected))


def _text(path: Path, expected: str) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise BadFile(path, (error.strerror or str(error)).lower(), expected) from error
    except UnicodeDecodeError as error:
        raise BadFile(path, f"no UTF-8 ({error.reason})", expected) from error


def _json(path: Path, expected: str) -> Any:
    try:
        return json.loads(_text(path, expected))
    except json.JSONDecodeError as error:
        found = f"no JSON, line {error.lineno}: {error.msg}"
        raise BadFile(path, found, expected) from error


def _labels_csv(path: Path) -> dict[str, frozenset[str]]:
    expected = "a header passage,labels, and labels separated by ;"
    rows = csv.DictReader(_text(path, expected).splitlines())
    missing = [name for name in ("passage", "labels") if name not in (rows.fieldnames or ())]
    if missing:
        raise BadFile(path, f"no column {missing[0]!r}", expected)
    found: dict[str, set[str]] = defaultdict(set)
    for number, row in enumerate(rows, 2):
        names = {name.strip() for name in (row["labels"] or "").split(";")} - {""}
        if not row["passage"] or not names or None in row:
            # A row that is passed over would show a passage to everybody.
            raise BadFile(path, f"line {number} is no passage with its labels", expected)
        found[row["passage"].strip()] |= names
    return {id: frozenset(names) for id, names in found.items()}


def _with_pairs(value: Any) -> Any:
    """The rules with every pair of overrides spelled out."""
    overrides = value.get("overrides") if isinstance(value, Mapping) else None
    if not isinstance(overrides, Mapping):
        return value
    pairs = {
        kind: [_pair(one) for one in given] if isinstance(given, list) else given
        for kind, given in overrides.items()
    }
    return {**value, "overrides": pairs}


def _pair(value: Any) -> Any:
    if not isinstance(value, list) or len(value) != len(("one", "other")):
        return value
    one, other = ({"name": end} if isinstance(end, str) else end for end in value)
    return {"one": one, "other": other}


def _first(error: ValidationError) -> str:
    found = error.errors()[0]
    place = ".".join(map(str, found["loc"]))
    return f"{place}: {found['msg']}" if place else found["msg"]
