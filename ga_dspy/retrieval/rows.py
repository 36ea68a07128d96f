"""Data files as titled texts: datasets in their official formats, tables with a column of text."""

from __future__ import annotations

import csv
import io
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, TypeAlias

from ga_dspy.errors import InputError, listed, require
from ga_dspy.passage import sound
from ga_dspy.retrieval.documents import Document, decode, table_section
from ga_dspy.retrieval.protocol import TEXT_KEYS, Row, row_of

ENDINGS = (".json", ".jsonl", ".ndjson", ".csv", ".tsv", ".parquet")


_Flaws: TypeAlias = defaultdict[str, list[str]]
"""Where each kind of flaw was met."""


def read_table(name: str, data: bytes) -> Document:
    """Read a data file.

    HotpotQA and 2WikiMultiHopQA rows give the paragraphs of their `context`, MuSiQue rows their
    `paragraphs`; any other row needs a text, and may have a title and an id. A CSV file without a
    column of text is a table to be read as it stands.

    Args:
        name: Its name, for the ending.
        data: Its bytes.

    Raises:
        InputError: The file does not parse.
    """
    ending = name[name.rindex(".") :].lower()
    flaws = _Flaws(list)
    notes, whole = tuple[str, ...](), True
    if ending == ".parquet":
        records = _parquet(data)
    else:
        text, notes, whole = decode(data)
        if ending in (".csv", ".tsv"):
            lines = _csv(text, "\t" if ending == ".tsv" else "")
            if lines and not {cell.strip().lower() for cell in lines[0][1]} & _TEXTUAL:
                stem = PurePosixPath(name).stem
                table = table_section((stem,), [cells for _, cells in lines])
                return Document([table], {}, (*notes, _AS_IT_STANDS), whole)
            records = _dicts(lines, flaws)
        else:
            records = _lines(text, flaws) if ending in (".jsonl", ".ndjson") else _json(text)
    rows = []
    for place, record in records:
        if not isinstance(record, Mapping):
            flaws["no object"].append(place)
            continue
        for row in _texts(record, flaws, place):
            if row.text:
                rows.append(row)
            else:
                flaws["no text"].append(place)
    found = (f"{flaw}: {listed(places)}" for flaw, places in flaws.items())
    return Document([], {}, (*notes, *found), whole and not flaws, rows)


_TEXTUAL = frozenset((*TEXT_KEYS, "context", "paragraphs"))
_AS_IT_STANDS = "no column of text: read as a table"


def _texts(record: Mapping[str, Any], flaws: _Flaws, place: str) -> Iterator[Row]:
    """Read a row, or its paragraphs: `[[title, [sentence, …]], …]`, as the hub's columns too."""
    if "context" not in record and "paragraphs" not in record:
        yield row_of(record)
        return
    found = record.get("context", record.get("paragraphs"))
    if isinstance(found, Mapping):
        found = list(zip(found.get("title") or (), found.get("sentences") or (), strict=False))
    entries = found if isinstance(found, Sequence) else ()
    for entry in entries:
        match entry:
            case {"paragraph_text": text}:
                yield Row(_clean(entry.get("title")), _clean(text), is_paragraph=True)
            case [title, [*sentences] | str(sentences)]:
                yield Row(_clean(title), join_sentences(sentences), is_paragraph=True)
            case _:
                flaws["no paragraph"].append(place)
    if not entries:
        flaws["no paragraphs"].append(place)


def join_sentences(sentences: Sequence[Any] | str) -> str:
    """Join sentences with one space, unless they bring their own.

    >>> join_sentences(["One.", " Two.", "Three."])
    'One. Two. Three.'
    """
    joined = ""
    for sentence in [sentences] if isinstance(sentences, str) else sentences:
        apart = not joined or joined[-1].isspace() or str(sentence)[:1].isspace()
        joined += str(sentence) if apart else f" {sentence}"
    return sound(joined).strip()


def _clean(value: Any) -> str:
    return "" if value is None else sound(str(value)).strip()


# --- Records, each with its place in the file

_Records = Iterator[tuple[str, Any]]


def _unreadable(cause: str) -> InputError:
    return InputError(
        f"it does not parse ({cause})",
        expected=f"a whole file of {', '.join(ENDINGS)}",
        remedy="check the file, or fetch it again",
    )


def _json(text: str) -> _Records:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        if str(error).startswith("Extra data") and text.lstrip().startswith("{"):
            return _lines(text, _Flaws(list))  # one object a line, under the ending .json
        raise _unreadable(str(error)) from error
    if isinstance(content, Mapping):
        content = content.get("data", [content])
    if not isinstance(content, list):
        raise _unreadable("it holds no list of rows")
    return ((f"row {number}", record) for number, record in enumerate(content, 1))


def _lines(text: str, flaws: _Flaws) -> _Records:
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                yield f"line {number}", json.loads(line)
            except (ValueError, RecursionError):
                flaws["no JSON"].append(f"line {number}")


def _csv(text: str, delimiter: str) -> list[tuple[int, list[str]]]:
    """The rows that are not blank, with the line that each ends on."""
    csv.field_size_limit(2**31 - 1)
    header = text.split("\n", 1)[0]
    delimiter = delimiter or max(",;\t|", key=header.count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    try:
        return [(reader.line_num, row) for row in reader if any(cell.strip() for cell in row)]
    except csv.Error as error:
        raise _unreadable(f"line {reader.line_num}: {error}") from error


def _dicts(lines: list[tuple[int, list[str]]], flaws: _Flaws) -> _Records:
    header = [name.strip() for name in lines[0][1]] if lines else []
    header = [name.lower() if name.lower() in _TEXTUAL | {"title", "id"} else name
              for name in header]  # fmt: skip
    for number, row in lines[1:]:
        if len(row) > len(header):
            flaws["more cells than columns"].append(f"line {number}")
        yield f"line {number}", dict(zip(header, row, strict=False))


def _parquet(data: bytes) -> _Records:
    pyarrow = require("pyarrow", "search")
    try:
        file = require("pyarrow.parquet", "search").ParquetFile(pyarrow.BufferReader(data))
        rows = [row for batch in file.iter_batches() for row in batch.to_pylist()]
    except (pyarrow.ArrowException, OSError) as error:
        raise _unreadable(str(error)) from error
    return ((f"row {number}", row) for number, row in enumerate(rows, 1))
