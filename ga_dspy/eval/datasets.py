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
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final, Literal, get_args

import dspy

from ga_dspy.errors import InputError, listed, require

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
        path: A .json or .jsonl file in the official format or the hub's; for qa any rows with
            `question` and `answer` or `answers` (in a .csv separated by |), maybe `id`, `type`.
        limit: Load only the first questions.

    Raises:
        InputError: The file is not of this dataset, or a row has no question or no answer.
    """
    name, path = dataset_name(dataset), Path(path)
    rows = [from_hub_row(row) if isinstance(row, Mapping) else row for row in read_rows(path)]
    return _questions(detect_rows(rows, path, name), rows, str(path), limit)


_HUB: Final[dict[str, tuple[str, str | None, str]]] = {
    "hotpotqa": ("hotpotqa/hotpot_qa", "distractor", "validation"),
    "musique": ("bdsaglam/musique", "answerable", "validation"),
    "2wikimultihopqa": ("framolfese/2WikiMultihopQA", None, "validation"),
    "bamboogle": ("chiayewken/bamboogle", None, "test"),
}


def load_hub(
    dataset: str, split: str | None = None, config: str | None = None, limit: int | None = None
) -> list[dspy.Example]:
    """Return the questions of a split on the Hugging Face hub, with the fields of `load`.

    Args:
        dataset: hotpotqa, musique, 2wikimultihopqa or bamboogle.
        split: The split; by default validation (Bamboogle: test).
        config: The configuration; by default HotpotQA's distractor and MuSiQue's answerable.
            HotpotQA also has fullwiki, MuSiQue also full.
        limit: Load only the first questions.

    Raises:
        InputError: A row has no question or no answer, or the dataset is qa.
        MissingExtra: The `datasets` package is not installed.
    """
    name = dataset_name(dataset)
    if name not in _HUB:
        raise InputError(f"dataset {name}", expected=f"one of {', '.join(_HUB)}",
                         remedy="pass a file of your own questions to load()")  # fmt: skip
    repository, usual, first = _HUB[name]
    hub = require("datasets", "optimize")
    rows = hub.load_dataset(repository, config or usual, split=split or first)
    return _questions(name, map(from_hub_row, rows), repository, limit)


def _questions(
    dataset: DatasetName, rows: Iterable[object], source: str, limit: int | None
) -> list[dspy.Example]:
    if limit is not None and limit < 1:
        raise InputError(f"limit is {limit}", expected="1 or more", remedy="or leave it out")
    examples: list[dspy.Example] = []
    unusable: list[str] = []
    repeats: Counter[str] = Counter()
    ids: set[str] = set()
    for position, row in enumerate(rows, start=1):
        if reason := _why_unusable(row):
            unusable.append(f"row {position} ({reason})")
            continue
        fields = question_fields(dataset, row)
        first_id = fields["id"]
        while fields["id"] in ids:
            repeats[first_id] += 1
            fields["id"] = f"{first_id}#{repeats[first_id] + 1}"
        ids.add(fields["id"])
        example = dspy.Example(answer=fields["answers"][0], **fields)
        examples.append(example.with_inputs("question"))
        if len(examples) == limit:
            break
    if unusable:
        raise InputError(
            f"{source}: {len(unusable)} of {len(examples) + len(unusable)} rows cannot be asked: "
            f"{listed(unusable, 10)}",
            expected="a question and an answer in every row",
            remedy="fix these rows; instead of a file without answers, pass the train or dev file",
        )
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
    return "" if accepted_answers(row) else "no answer"


def question_fields(dataset: DatasetName, row: Any) -> dict[str, Any]:
    """Return the fields of a question as in `load`, except `answer`."""
    question = _text(row.get("question"))
    digest = hashlib.sha256(question.encode()).hexdigest()[:12]
    given_id = _text(row.get("_id")) or _text(row.get("id"))
    paragraphs: list[Paragraph] = []
    titles: list[str] = []
    facts: list[Fact] = []
    if dataset == "musique":
        paragraphs, titles = _musique_paragraphs(row)
    elif dataset not in _BARE:
        paragraphs, titles, facts = _context(row)
    triples = (tuple(map(_text, as_list(entry))) for entry in as_list(row.get("evidences")))
    # MuSiQue's type is the number of single-hop questions that it is composed of.
    hops = len(as_list(row.get("question_decomposition")))
    hops_by_id = re.match(r"\d+hop", given_id)
    hops_type = hops_by_id.group() if hops_by_id else ""
    if hops:
        hops_type = f"{hops}hop"
    return {
        "id": given_id or f"{dataset}-{digest}",
        "question": question,
        "answers": accepted_answers(row),
        "gold_titles": _unique(titles),
        "supporting_facts": tuple(dict.fromkeys(facts)),
        "paragraphs": tuple(paragraphs),
        "type": _text(row.get("type")) or hops_type,
        "level": _text(row.get("level")),
        "answerable": row.get("answerable") is not False,
        "evidences": tuple(triple for triple in triples if len(triple) == 3 and all(triple)),
    }


def _musique_paragraphs(row: Row) -> tuple[list[Paragraph], list[str]]:
    """Return the valid paragraphs, each as one sentence, and the titles of the supporting ones."""
    paragraphs: list[Paragraph] = []
    titles: list[str] = []
    for entry in as_list(row.get("paragraphs")):
        if not isinstance(entry, Mapping):
            continue
        title, text = _text(entry.get("title")), _text(entry.get("paragraph_text"))
        if title and text:
            paragraphs.append((title, (text,)))
            titles += [title] if entry.get("is_supporting") is True else []
    return paragraphs, titles


def _context(row: Row) -> tuple[list[Paragraph], list[str], list[Fact]]:
    """Return the valid paragraphs, the titles of supporting facts, and those with a sentence."""
    paragraphs = [
        (title, tuple(map(_text, as_list(sentences))))
        for title, sentences in titled(as_list(row.get("context")))
        if as_list(sentences)
    ]
    pairs = titled(as_list(row.get("supporting_facts")))
    facts = [(t, n) for t, n in pairs if isinstance(n, int) and not isinstance(n, bool) and n >= 0]
    return paragraphs, [title for title, _ in pairs], facts


def titled(entries: Iterable[object]) -> list[tuple[str, Any]]:
    """Return the entries that are a title and something else."""
    pairs = (as_list(entry) for entry in entries)
    return [(_text(pair[0]), pair[1]) for pair in pairs if len(pair) == 2 and _text(pair[0])]


def accepted_answers(row: Row) -> tuple[str, ...]:
    """Return all accepted answers, the row's own first; a list is several answers."""
    given = row.get("answer")
    own = as_list(given) or [given]
    more = (*as_list(row.get("answers")), *as_list(row.get("answer_aliases")))
    return _unique(map(_text, [*own, *more]))


def as_list(value: object) -> list[Any]:
    """Return the elements of a JSON array; none for anything else."""
    return list(value) if isinstance(value, Sequence) and not isinstance(value, str) else []


def _text(value: object) -> str:
    """Return a stripped string, or a number as text (some files have unquoted years); else ""."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    # A lone surrogate, which JSON allows, could be neither stored nor printed.
    return value.strip().encode("utf-8", "replace").decode() if isinstance(value, str) else ""


def _unique(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(filter(None, texts)))


# --- Rows in the hub's format, which has one record of lists instead of a list of records

_COLUMNS = {
    "context": (("title",), ("sentences", "content")),
    "supporting_facts": (("title",), ("sent_id",)),
    "evidences": (("fact",), ("relation",), ("entity",)),
}


def from_hub_row(row: Row) -> dict[str, Any]:
    """Convert a row from the hub's format to the official one, which is returned unchanged.

    On the hub, lists of records are one record of lists: context `{"title": [...], "sentences":
    [[...]]}`, supporting facts `{"title": [...], "sent_id": [...]}`, evidences `{"fact": [...],
    "relation": [...], "entity": [...]}`. Bamboogle's fields are "Question" and "Answer".

    >>> from_hub_row({"supporting_facts": {"title": ["Red Lodge"], "sent_id": [0]}})
    {'supporting_facts': [['Red Lodge', 0]]}
    """
    spelled = {"Question": "question", "Answer": "answer"}
    official: dict[str, Any] = {}
    for name, value in row.items():
        if name in _COLUMNS and isinstance(value, Mapping):
            columns: list[list[Any]] = [
                next((value[key] for key in keys if key in value), []) for keys in _COLUMNS[name]
            ]
            value = [list(record) for record in zip_longest(*columns)]
        official[spelled.get(name, name)] = value
    return official


# --- Read a file into rows, and detect their dataset

_SAMPLE = 200  # rows by which the dataset is detected
_TYPES_OF_2WIKI = {"compositional", "inference", "bridge_comparison"}


def dataset_name(name: str) -> DatasetName:
    """Return the name as a `DatasetName`.

    Raises:
        InputError: There is no such dataset.

    >>> dataset_name("HotpotQA")
    'hotpotqa'
    """
    for known in DATASETS:
        if name.strip().lower() == known:
            return known
    raise InputError(
        f"dataset {name!r} is unknown",
        expected=f"one of {', '.join(DATASETS)}",
        remedy="pass one of these names, or let detect(path) find it",
    )


def detect(path: Path | str) -> DatasetName:
    """Detect the dataset of a file by the fields of its first 200 rows.

    Raises:
        InputError: The file cannot be read, or has the fields of none of the datasets.
    """
    path = Path(path)
    return detect_rows(read_rows(path), path)


def detect_rows(
    rows: Sequence[object], path: Path, expected: DatasetName | None = None
) -> DatasetName:
    """Detect the dataset of rows.

    Rows with only question and answer are accepted for any dataset, and HotpotQA's format for
    2WikiMultiHopQA, which has it too, with optional fields.

    Args:
        rows: All rows of the file.
        path: The file, for the error.
        expected: The dataset that they should be from; None for any.

    Raises:
        InputError: The rows are from another dataset than expected, or from none.
    """
    seen = [row for row in rows[:_SAMPLE] if isinstance(row, Mapping)]
    fields = {str(name).lower() for row in seen for name in row}
    types = {str(row.get("type")) for row in seen}
    found: DatasetName = "bamboogle"
    if "question" not in fields:
        names = ", ".join(sorted(fields)) or "none"
        raise _wrong_file(path, f"no row has a field 'question' (fields: {names})")
    if "paragraphs" in fields:
        found = "musique"
    elif fields & {"evidences", "evidences_id", "entity_ids"} or types & _TYPES_OF_2WIKI:
        found = "2wikimultihopqa"
    elif fields & {"context", "supporting_facts", "level"}:
        found = "hotpotqa"
    shared = (expected, found) == ("2wikimultihopqa", "hotpotqa") or expected == "qa"
    if expected and found not in (expected, "bamboogle") and not shared:
        raise InputError(
            f"{path} has the fields of {found}",
            expected=f"a file of {expected}",
            remedy=f"load it as {found!r}, or pass the {expected} file",
        )
    return expected or found


def read_rows(path: Path) -> list[object]:
    """Return all rows of a .json file (one array), a .jsonl file (one row per line) or a .csv file.

    The first two are told apart by the first character, not by the name. In a .csv, several
    `answers` are separated by |.

    Raises:
        InputError: The file is missing, empty, not UTF-8 or not JSON.
    """
    try:
        text = path.read_text(encoding="utf-8-sig").strip()
    except OSError as error:
        raise _wrong_file(path, f"cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise _wrong_file(path, f"not UTF-8 text (byte {error.start})") from error
    if not text:
        raise _wrong_file(path, "the file is empty")
    what = ""
    rows: list[object] = []
    if path.suffix.lower() == ".csv":
        records = csv.DictReader(io.StringIO(text))
        return [{**row, "answers": (row.get("answers") or "").split("|")} for row in records]
    try:
        if text.startswith("["):
            rows = json.loads(text)
        else:
            # Not str.splitlines: U+2028 and the like occur inside JSON strings.
            for number, line in enumerate(text.split("\n"), start=1):
                what = f"line {number} is "
                rows += [json.loads(line)] if line.strip() else []
    except (ValueError, RecursionError) as error:
        raise _wrong_file(path, f"{what}not valid JSON ({error})") from error
    if not rows:
        raise _wrong_file(path, "the array has no rows")
    return rows


def _wrong_file(path: Path, found: str) -> InputError:
    return InputError(
        f"{path}: {found}",
        expected="a JSON array of questions, one JSON question per line (.jsonl), or a .csv",
        remedy=f"pass a file of one of these datasets: {', '.join(DATASETS)}",
    )
