"""Load HotpotQA, MuSiQue, 2WikiMultiHopQA, Bamboogle and your own questions as `dspy.Example`s.

No row is dropped silently: a row with a question and an answer is kept, whatever else is missing,
and a file with any other row is refused with the number of that row.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final, Literal, get_args

import dspy

from ga_dspy.errors import InputError, listed, unknown
from ga_dspy.passage import replace_invalid

DatasetName = Literal["hotpotqa", "musique", "2wikimultihopqa", "bamboogle", "qa"]
_BARE: Final = ("bamboogle", "qa")
DATASETS: tuple[DatasetName, ...] = get_args(DatasetName)


# --- Load questions


def load(dataset: str, path: Path | str, limit: int | None = None) -> list[dspy.Example]:
    """Return the questions of a file, in file order.

    Fields of each example:

    - `id`: repeated ids get "#2", "#3", …; a row without an id gets one from its question's text.
    - `question`: the only input.
    - `answer`, and `answers`: a tuple of all accepted ones.
    - `gold_titles`: a tuple.
    - `supporting_facts`: a tuple of (title, sentence number from 0) for HotpotQA and 2Wiki, even if
      the paragraph is missing or has fewer sentences; else empty.
    - `paragraphs`: the valid paragraphs, a tuple of (title, sentences). MuSiQue's text is one
      sentence, and an empty sentence keeps its number. Bamboogle has none.
    - `type` and `level`: "" if the dataset has none; MuSiQue's type is its number of hops, "2hop".
    - `answerable`: False only in MuSiQue's full set, where the answers are those of the answerable
      twin.
    - `evidences`: 2Wiki's gold triples, else empty.

    Args:
        dataset: hotpotqa, musique, 2wikimultihopqa, bamboogle, or qa for your own questions.
        path: A .json or .jsonl file in the official format or the Hugging Face hub's (a split there
            is such a file after `datasets.load_dataset(...).to_json(path)`); for qa any rows with
            `question` and `answer` or `answers` (in a .csv separated by |), and optionally `id` and
            `type`.
        limit: Load only the first questions.

    Raises:
        InputError: The file is not of this dataset, or a row has no question or no answer.
    """
    if limit is not None and limit < 1:
        raise InputError(f"limit is {limit}", expected="1 or more", remedy="or leave it out")
    name, path = _dataset_name(dataset), Path(path)
    rows = _read_rows(path)
    detected = _dataset_of(rows, path)
    # Rows with only question and answer can be from any dataset, and 2Wiki's fields are optional.
    is_like = detected == "bamboogle" or (name, detected) == ("2wikimultihopqa", "hotpotqa")
    if name not in ("qa", detected) and not is_like:
        wrong, remedy = f"{path} has the fields of {detected}", f"load it as {detected!r}"
        raise InputError(wrong, expected=f"a file of {name}", remedy=remedy)
    examples, unusable, ids = list[dspy.Example](), list[str](), set[str]()
    for position, row in enumerate(rows, start=1):
        if reason := _why_unusable(row):
            unusable.append(f"row {position} ({reason})")
            continue
        fields = _question_fields(name, row)
        first_id, number = fields["id"], 1
        while fields["id"] in ids:
            number += 1
            fields["id"] = f"{first_id}#{number}"
        ids.add(fields["id"])
        example = dspy.Example(answer=fields["answers"][0], **fields)
        examples.append(example.with_inputs("question"))
        if len(examples) == limit:
            break
    if unusable:
        total = len(examples) + len(unusable)
        wrong = f"{path}: {len(unusable)} of {total} rows cannot be asked: {listed(unusable, 10)}"
        remedy = "fix these rows; instead of a file without answers, pass the train or dev file"
        raise InputError(wrong, remedy=remedy)
    return examples


# --- From an official row to a question

Row = Mapping[str, Any]
Fact = tuple[str, int]
Paragraph = tuple[str, tuple[str, ...]]


def _why_unusable(row: object) -> str:
    if not isinstance(row, Mapping):
        return "not an object"
    if not _text(row.get("question")):
        return "no question"
    return "" if _accepted_answers(row) else "no answer"


def _question_fields(dataset: DatasetName, row: Any) -> dict[str, Any]:
    """Return the fields of a question as in `load`, except `answer`."""
    question = _text(row.get("question"))
    digest = hashlib.sha256(question.encode()).hexdigest()[:12]
    given_id = _text(row.get("_id")) or _text(row.get("id"))
    paragraphs, titles, facts = _context({} if dataset in _BARE else row)
    triples = (tuple(map(_text, _as_list(entry))) for entry in _as_list(row.get("evidences")))
    hops = re.match(r"\d+hop", given_id)  # MuSiQue's type
    return {
        "id": given_id or f"{dataset}-{digest}",
        "question": question,
        "answers": _accepted_answers(row),
        "gold_titles": _unique(titles),
        "supporting_facts": tuple(dict.fromkeys(facts)),
        "paragraphs": tuple(paragraphs),
        "type": _text(row.get("type")) or (hops.group() if hops else ""),
        "level": _text(row.get("level")),
        "answerable": row.get("answerable") is not False,
        "evidences": tuple(triple for triple in triples if len(triple) == 3 and all(triple)),
    }


def _context(row: Row) -> tuple[list[Paragraph], list[str], list[Fact]]:
    """Return the valid paragraphs, the titles of supporting facts, and those with a sentence."""
    paragraphs = [
        (title, tuple(map(_text, _as_list(sentences))))
        for title, sentences in _titled(row.get("context"))
        if _as_list(sentences)
    ]
    pairs = _titled(row.get("supporting_facts"))
    facts = [(title, n) for title, n in pairs if type(n) is int and n >= 0]
    return paragraphs, [title for title, _ in pairs], facts


def _titled(entries: object) -> list[tuple[str, Any]]:
    """Return the entries that are a title and something else."""
    pairs = map(_as_list, _as_list(entries))
    return [(_text(pair[0]), pair[1]) for pair in pairs if len(pair) == 2 and _text(pair[0])]


def _accepted_answers(row: Row) -> tuple[str, ...]:
    """Return all accepted answers, the row's own first; a list is several answers."""
    answer = row.get("answer")
    more = (*_as_list(row.get("answers")), *_as_list(row.get("answer_aliases")))
    return _unique(map(_text, (*(_as_list(answer) or [answer]), *more)))


def _as_list(value: object) -> list[Any]:
    """Return the elements of a JSON array; none for anything else."""
    return list(value) if isinstance(value, Sequence) and not isinstance(value, str) else []


def _text(value: object) -> str:
    """Return a stripped string, or a number as text (some files have unquoted years); else ""."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    return replace_invalid(value.strip()) if isinstance(value, str) else ""


def _unique(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(filter(None, texts)))


# --- Rows in the hub's format, which has one record of lists instead of a list of records

_COLUMNS = {
    "context": (("title",), ("sentences", "content")),
    "supporting_facts": (("title",), ("sent_id",)),
    "evidences": (("fact",), ("relation",), ("entity",)),
}


def from_hub_row(row: Row) -> dict[str, Any]:
    """Convert a row from the hub's format to the official format; an official row is unchanged.

    On the hub, lists of records are one record of lists: context `{"title": [...], "sentences":
    [[...]]}`, supporting facts `{"title": [...], "sent_id": [...]}`, evidences `{"fact": [...],
    "relation": [...], "entity": [...]}`. Bamboogle's fields are "Question" and "Answer". MuSiQue's
    paragraphs also become a context with supporting facts.

    >>> from_hub_row({"supporting_facts": {"title": ["Red Lodge"], "sent_id": [0]}})
    {'supporting_facts': [['Red Lodge', 0]]}
    """
    spelled = {"Question": "question", "Answer": "answer"}
    official = _musique_context(row)
    for name, value in row.items():
        if name in _COLUMNS and isinstance(value, Mapping):
            columns = list[list[Any]]()
            for keys in _COLUMNS[name]:
                columns.append(next((value[key] for key in keys if key in value), []))
            value = [list(record) for record in zip_longest(*columns)]
        official[spelled.get(name, name)] = value
    return official


def _musique_context(row: Row) -> dict[str, list[Any]]:
    """Return MuSiQue's paragraphs as a context of one sentence each, with facts without numbers."""
    valid = [
        entry
        for entry in _as_list(row.get("paragraphs"))
        if isinstance(entry, Mapping) and _text(entry.get("paragraph_text"))
    ]
    context = [[entry.get("title"), [entry["paragraph_text"]]] for entry in valid]
    facts = [[entry.get("title"), None] for entry in valid if entry.get("is_supporting") is True]
    return {"context": context, "supporting_facts": facts} if valid else {}


# --- Read a file into rows, and detect their dataset

_SAMPLE = 200  # rows by which the dataset is detected
_TYPES_OF_2WIKI = {"compositional", "inference", "bridge_comparison"}


def _dataset_name(name: str) -> DatasetName:
    for known in DATASETS:
        if name.strip().lower() == known:
            return known
    raise unknown("dataset", name, DATASETS)


def detect(path: Path | str) -> DatasetName:
    """Detect the dataset of a file by the fields of its first 200 rows.

    Raises:
        InputError: The file cannot be read, or has the fields of none of the datasets.
    """
    path = Path(path)
    return _dataset_of(_read_rows(path), path)


def _dataset_of(rows: Sequence[object], path: Path) -> DatasetName:
    seen = [row for row in rows[:_SAMPLE] if isinstance(row, Mapping)]
    fields = {str(name).lower() for row in seen for name in row}
    types = {str(row.get("type")) for row in seen}
    if "question" not in fields:
        names = ", ".join(sorted(fields)) or "none"
        raise _wrong_file(path, f"no row has a field 'question' (fields: {names})")
    if "paragraphs" in fields:
        return "musique"
    if fields & {"evidences", "evidences_id", "entity_ids"} or types & _TYPES_OF_2WIKI:
        return "2wikimultihopqa"
    return "hotpotqa" if fields & {"context", "supporting_facts", "level"} else "bamboogle"


def _read_rows(path: Path) -> list[object]:
    """Return all rows of a .json file (one array), a .jsonl file (one row per line) or a .csv file.

    The first character distinguishes the first two, not the file name. In a .csv, several `answers`
    are separated by |.
    """
    try:
        text = path.read_text(encoding="utf-8-sig").strip()
    except OSError as error:
        raise _wrong_file(path, f"cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise _wrong_file(path, f"not UTF-8 text (byte {error.start})") from error
    location, rows = "", list[object]()
    try:
        if path.suffix.lower() == ".csv":
            records = csv.DictReader(io.StringIO(text), strict=True)
            return [{**row, "answers": (row.get("answers") or "").split("|")} for row in records]
        if text.startswith("["):
            rows = json.loads(text)
        else:
            # Not str.splitlines: U+2028 and the like occur inside JSON strings.
            for number, line in enumerate(text.split("\n"), start=1):
                location = f"line {number} is "
                if line.strip():
                    rows.append(json.loads(line))
    except csv.Error as error:
        raise _wrong_file(path, f"not valid CSV ({error})") from error
    except (ValueError, RecursionError) as error:
        raise _wrong_file(path, f"{location}not valid JSON ({error})") from error
    if not rows:
        raise _wrong_file(path, "the file has no rows")
    return [from_hub_row(row) if isinstance(row, Mapping) else row for row in rows]


def _wrong_file(path: Path, found: str) -> InputError:
    expected = "a JSON array of questions, one JSON question per line (.jsonl), or a .csv"
    remedy = f"pass a file of one of these datasets: {', '.join(DATASETS)}"
    return InputError(f"{path}: {found}", expected=expected, remedy=remedy)
