"""Rows of data files as titled texts: dataset rows with their contexts, and title/text rows."""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ga_dspy.errors import InputError, MissingExtra
from ga_dspy.retrieval.results import sound

ENDINGS = (".json", ".jsonl", ".csv", ".parquet")

_TEXT_KEYS = ("text", "paragraph_text", "contents", "content", "passage", "long_text")


class Row(NamedTuple):
    """A titled text; `id` is empty where the file gives none."""

    title: str
    text: str
    id: str = ""


class UnreadableFile(InputError):
    """A data file is not what its ending says."""

    def __init__(self, path: Path, cause: str) -> None:
        super().__init__(
            f"{path} does not read as {path.suffix[1:]} ({cause})",
            expected=f"a whole file of {', '.join(ENDINGS)}",
            remedy="check the file, or fetch it again",
        )
        self.path = path


def read_rows(path: Path, flaws: Counter[str]) -> Iterator[Row]:
    """Yield the titled texts of a data file; what cannot be used is counted in `flaws`.

    HotpotQA and 2WikiMultiHopQA rows give the paragraphs of their `context`, MuSiQue rows their
    `paragraphs`; any other row needs `text`, and may have `title` and `id`.

    Raises:
        UnreadableFile: The file does not parse.
    """
    for record in _records(path, flaws):
        if not isinstance(record, Mapping):
            flaws["row is no object"] += 1
            continue
        for row in _row_texts(record, flaws):
            if row.text:
                yield row
            else:
                flaws["no text"] += 1


def _row_texts(record: Mapping[str, Any], flaws: Counter[str]) -> Iterator[Row]:
    if "context" in record:
        yield from _contexts(record["context"], flaws)
    elif "paragraphs" in record:
        yield from _paragraphs(record["paragraphs"], flaws)
    else:
        text = next((record[key] for key in _TEXT_KEYS if record.get(key)), "")
        yield Row(_clean(record.get("title")), _clean(text), _clean(record.get("id")))


def _contexts(context: Any, flaws: Counter[str]) -> Iterator[Row]:
    """Read `[[title, [sentence, …]], …]`, or the hub's columns `title` and `sentences`."""
    if isinstance(context, Mapping):
        pairs = zip(context.get("title") or (), context.get("sentences") or (), strict=False)
        context = [list(pair) for pair in pairs]
    for entry in context if isinstance(context, Sequence) else ():
        if isinstance(entry, Sequence) and len(entry) == 2 and isinstance(entry[1], Sequence):
            yield Row(_clean(entry[0]), join_sentences(entry[1]))
        else:
            flaws["paragraph is not [title, sentences]"] += 1
    if not context:
        flaws["no paragraphs"] += 1


def _paragraphs(paragraphs: Any, flaws: Counter[str]) -> Iterator[Row]:
    for entry in paragraphs or ():
        if isinstance(entry, Mapping):
            yield Row(_clean(entry.get("title")), _clean(entry.get("paragraph_text")))
        else:
            flaws["paragraph is no object"] += 1
    if not paragraphs:
        flaws["no paragraphs"] += 1


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


def _records(path: Path, flaws: Counter[str]) -> Iterator[Any]:
    ending = path.suffix.lower()
    if ending == ".parquet":
        return _parquet(path)
    if ending == ".csv":
        return _csv(path)
    return _lines(path, flaws) if ending == ".jsonl" else _json(path)


def _json(path: Path) -> Iterator[Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8-sig"))
    except ValueError as error:
        raise UnreadableFile(path, str(error)) from error
    if isinstance(content, Mapping):
        content = content.get("data")
    if not isinstance(content, list):
        raise UnreadableFile(path, "it holds no list of rows")
    yield from content


def _lines(path: Path, flaws: Counter[str]) -> Iterator[Any]:
    with path.open(encoding="utf-8-sig", errors="replace") as file:
        for line in file:
            if not line.strip():
                continue
            try:
                yield json.loads(line)
            except ValueError:
                flaws["line is no JSON"] += 1


def _csv(path: Path) -> Iterator[Any]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        try:
            yield from csv.DictReader(file)
        except (csv.Error, UnicodeDecodeError) as error:
            raise UnreadableFile(path, str(error)) from error


def _parquet(path: Path) -> Iterator[Any]:
    try:
        import pyarrow
        import pyarrow.parquet as parquet
    except ImportError as error:
        raise MissingExtra("pyarrow", "retrieval") from error
    try:
        for batch in parquet.ParquetFile(path).iter_batches():
            yield from batch.to_pylist()
    except pyarrow.ArrowInvalid as error:
        raise UnreadableFile(path, str(error)) from error
