"""Loaders for HotpotQA, MuSiQue, 2WikiMultiHopQA and Bamboogle, as `dspy.Example`s.

No row disappears in silence. A row with a question and an answer is kept with what it has, and
what it lacks is counted in the `LoadReport`; a row without one of the two cannot be asked, and
is listed by position: `read` reports it, `load` refuses the file because of it.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import dspy

from ga_dspy.errors import InputError, MissingExtra
from ga_dspy.eval.files import DatasetName, WrongFormat, check_dataset, dataset_name, read_rows
from ga_dspy.eval.rows import Question, Unusable, from_hub_row, parse_row

if TYPE_CHECKING:
    from collections.abc import Iterator

_HUB: dict[DatasetName, tuple[str, str | None, str]] = {
    "hotpotqa": ("hotpotqa/hotpot_qa", "distractor", "validation"),
    "musique": ("bdsaglam/musique", "answerable", "validation"),
    "2wikimultihopqa": ("framolfese/2WikiMultihopQA", None, "validation"),
    "bamboogle": ("chiayewken/bamboogle", None, "test"),
}


class LoadReport(NamedTuple):
    """What a file held.

    `rows` were looked at, `examples` of them became questions. `flaws` counts, by reason, kept
    rows that lack something; a row can have several. `unusable` lists the others.
    """

    dataset: str
    source: str
    rows: int
    examples: int
    flaws: dict[str, int]
    unusable: tuple[Unusable, ...]


class Loaded(NamedTuple):
    """The questions of a file and the report on its rows."""

    examples: list[dspy.Example]
    report: LoadReport


class UnusableRows(InputError):
    """Some rows have no question or no answer; `report.unusable` lists them all."""

    def __init__(self, report: LoadReport) -> None:
        shown = ", ".join(f"row {row.position} ({row.reason})" for row in report.unusable[:10])
        more = len(report.unusable) - 10
        super().__init__(
            f"{report.source}: {len(report.unusable)} of {report.rows} rows cannot be asked: "
            f"{shown}{f' and {more} more' if more > 0 else ''}",
            expected="a question and an answer in every row",
            remedy="mend the rows, or call read(), which leaves them out and lists them",
        )
        self.report = report


def load(dataset: str, path: Path | str, limit: int | None = None) -> list[dspy.Example]:
    """The questions of an official file, in file order.

    Fields of each example: `id`, `question` (the only input), `answer`, `answers` (a tuple of
    all accepted ones), `gold_titles` (a tuple), `supporting_facts` (HotpotQA and 2Wiki: a tuple
    of (title, sentence number from 0), as in the file, even where the paragraph is missing or
    has fewer sentences; else empty), `paragraphs` (the row's sound paragraphs: a tuple of
    (title, sentences), where MuSiQue's whole text is one sentence and an empty sentence keeps
    its number; Bamboogle has none), `type` and `level` ("" where the dataset has none; MuSiQue's
    type is its number of hops, "2hop"), `answerable` (False only in MuSiQue's full set, whose
    answers are then those of the answerable twin), `evidences` (2Wiki's gold triples, else
    empty). Repeated ids get "#2", "#3", … in file order. A row without an id is named by its
    position, `bamboogle-17`.

    Args:
        dataset: hotpotqa, musique, 2wikimultihopqa or bamboogle.
        path: A .json or .jsonl file in the official layout, or in the hub's.
        limit: Only the first so many questions.

    Raises:
        UnusableRows: a row that was looked at has no question or no answer.
        WrongFormat: the file is not one of this dataset.
    """
    return _strict(read(dataset, path, limit))


def read(dataset: str, path: Path | str, limit: int | None = None) -> Loaded:
    """As `load`, but rows that cannot be asked are left out and listed in the report.

    Raises:
        WrongFormat: the file is not one of this dataset, or no row of it can be asked.
    """
    name, path = dataset_name(dataset), Path(path)
    rows = [from_hub_row(row) if isinstance(row, Mapping) else row for row in read_rows(path)]
    check_dataset(name, rows, path)
    return _collect(name, rows, str(path), limit)


def load_hub(
    dataset: str, split: str | None = None, config: str | None = None, limit: int | None = None
) -> list[dspy.Example]:
    """The questions of a split on the Hugging Face hub, with the fields `load` gives.

    Args:
        dataset: hotpotqa, musique, 2wikimultihopqa or bamboogle.
        split: The hub's split; by default validation (Bamboogle: test).
        config: The hub's configuration; by default HotpotQA's distractor and MuSiQue's
            answerable. HotpotQA also has fullwiki, MuSiQue also full.
        limit: Only the first so many questions.

    Raises:
        UnusableRows: a row has no question or no answer.
        MissingExtra: the `datasets` package is not installed.
    """
    name = dataset_name(dataset)
    repository, usual_config, usual_split = _HUB[name]
    try:
        from datasets import load_dataset
    except ImportError as error:
        raise MissingExtra("datasets", "optimize") from error
    rows = load_dataset(repository, config or usual_config, split=split or usual_split)
    return _strict(from_hub(name, rows, repository, limit))


def from_hub(
    dataset: str, rows: Iterable[Mapping[str, object]], source: str, limit: int | None = None
) -> Loaded:
    """Questions from rows in the hub's layout, such as a `datasets.Dataset` yields."""
    return _collect(dataset_name(dataset), (from_hub_row(row) for row in rows), source, limit)


def sample(examples: Sequence[dspy.Example], n: int, seed: int) -> list[dspy.Example]:
    """`n` of the examples, drawn without replacement and kept in their order.

    Raises:
        InputError: `n` is not between 1 and the number of examples.
    """
    if not 1 <= n <= len(examples):
        raise InputError(
            f"a sample of {n} was asked for",
            expected=f"from 1 to {len(examples)}, the number of questions",
            remedy="pass a smaller n, or load more questions",
        )
    chosen = sorted(random.Random(seed).sample(range(len(examples)), n))
    return [examples[position] for position in chosen]


def _strict(loaded: Loaded) -> list[dspy.Example]:
    if loaded.report.unusable:
        raise UnusableRows(loaded.report)
    return loaded.examples


def _collect(
    dataset: DatasetName, rows: Iterable[object], source: str, limit: int | None
) -> Loaded:
    if limit is not None and limit < 1:
        raise InputError(f"limit is {limit}", expected="1 or more", remedy="or leave it out")
    questions: list[Question] = []
    unusable: list[Unusable] = []
    for position, row in enumerate(rows, start=1):
        parsed = parse_row(dataset, row, position)
        if isinstance(parsed, Unusable):
            unusable.append(parsed)
        else:
            questions.append(parsed)
        if len(questions) == limit:
            break
    report = LoadReport(
        dataset, source, len(questions) + len(unusable), len(questions), {}, tuple(unusable)
    )
    if not questions:
        raise WrongFormat(
            f"{source}: none of {report.rows} rows has both a question and an answer",
            expected=f"questions of {dataset}",
            remedy="test files come without answers: pass a train or dev file",
        )
    named = list(_unique_ids(questions))
    flaws = Counter(flaw for question in named for flaw in question.flaws)
    return Loaded([_example(q) for q in named], report._replace(flaws=dict(sorted(flaws.items()))))


def _unique_ids(questions: Iterable[Question]) -> Iterator[Question]:
    seen: Counter[str] = Counter()
    taken: set[str] = set()
    for question in questions:
        name = question.id
        while name in taken:
            seen[question.id] += 1
            name = f"{question.id}#{seen[question.id] + 1}"
        taken.add(name)
        again = ("duplicate id",) if name != question.id else ()
        yield question._replace(id=name, flaws=(*question.flaws, *again))


def _example(question: Question) -> dspy.Example:
    fields = question._asdict()
    del fields["flaws"]
    return dspy.Example(answer=question.answers[0], **fields).with_inputs("question")
