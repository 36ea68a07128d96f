"""Reading a dataset file into rows, and telling which dataset the rows are from."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, get_args

from ga_dspy.errors import InputError

DatasetName = Literal["hotpotqa", "musique", "2wikimultihopqa", "bamboogle"]
DATASETS: tuple[DatasetName, ...] = get_args(DatasetName)

_LOOKED_AT = 200  # rows from which the dataset is told
_TYPES_OF_2WIKI = {"compositional", "inference", "bridge_comparison"}


class WrongFormat(InputError):
    """The file is not a question file of the dataset that was named."""


class UnknownDataset(InputError):
    """No loader goes by this name."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"dataset {name!r} is unknown",
            expected=f"one of {', '.join(DATASETS)}",
            remedy="pass one of these names, or let detect(path) tell it",
        )


def dataset_name(name: str) -> DatasetName:
    """The name as a `DatasetName`.

    Raises:
        UnknownDataset: no loader goes by this name.

    >>> dataset_name("HotpotQA")
    'hotpotqa'
    """
    for known in DATASETS:
        if name.strip().lower() == known:
            return known
    raise UnknownDataset(name)


def read_rows(path: Path) -> list[object]:
    """All rows of a .json file (one array) or a .jsonl file (one row a line).

    Which of the two it is shows in the first character, not in the name.

    Raises:
        WrongFormat: the file is missing, empty, not UTF-8 or not JSON.
    """
    text = _text(path).strip()
    if not text:
        raise _wrong(path, "the file is empty")
    if not text.startswith("["):
        return list(_lines(path, text))
    try:
        rows = json.loads(text)
    except json.JSONDecodeError as error:
        raise _wrong(path, f"not valid JSON ({error})") from error
    if not rows:
        raise _wrong(path, "the array holds no rows")
    return list(rows)


def detect(path: Path | str) -> DatasetName:
    """Which dataset the file is from, told from the fields of its first 200 rows.

    Raises:
        WrongFormat: the file cannot be read, or its fields are of none of the datasets.
    """
    path = Path(path)
    return detect_rows(read_rows(path), path)


def detect_rows(rows: Sequence[object], path: Path) -> DatasetName:
    """The same for rows that are already read; `path` is named in the error."""
    seen = [row for row in rows[:_LOOKED_AT] if isinstance(row, Mapping)]
    fields = {str(field).lower() for row in seen for field in row}
    types = {str(row.get("type")) for row in seen}
    if "question" not in fields:
        names = ", ".join(sorted(fields)) or "none"
        raise _wrong(path, f"no row has a field 'question' (fields: {names})")
    if "paragraphs" in fields:
        return "musique"
    if fields & {"evidences", "evidences_id", "entity_ids"} or types & _TYPES_OF_2WIKI:
        return "2wikimultihopqa"
    if fields & {"context", "supporting_facts", "level"}:
        return "hotpotqa"
    return "bamboogle"


def check_dataset(dataset: DatasetName, rows: Sequence[object], path: Path) -> None:
    """Refuse rows that are visibly another dataset's.

    Bare question-answer rows pass for any dataset (they lack context, which is counted), and
    HotpotQA's layout passes for 2WikiMultiHopQA, which shares it and adds optional fields.

    Raises:
        WrongFormat: the rows are another dataset's.
    """
    found = detect_rows(rows, path)
    shared = (dataset, found) == ("2wikimultihopqa", "hotpotqa")
    if found not in (dataset, "bamboogle") and not shared:
        raise WrongFormat(
            f"{path} has the fields of {found}",
            expected=f"a file of {dataset}",
            remedy=f"load it as {found!r}, or pass the {dataset} file",
        )


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise _wrong(path, f"cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise _wrong(path, f"not UTF-8 text (byte {error.start})") from error


def _lines(path: Path, text: str) -> Iterator[object]:
    # Not str.splitlines: U+2028 and its like occur inside JSON strings.
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            try:
                yield json.loads(line)
            except json.JSONDecodeError as error:
                raise _wrong(path, f"line {number} is not valid JSON ({error})") from error


def _wrong(path: Path, found: str) -> WrongFormat:
    return WrongFormat(
        f"{path}: {found}",
        expected="a JSON array of questions, or one JSON question a line (.jsonl)",
        remedy=f"pass an official question file of {', '.join(DATASETS)}",
    )
