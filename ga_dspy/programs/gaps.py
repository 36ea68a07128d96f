"""The gap log: questions without evidence in the corpus, and the searches for it."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import NamedTuple

import dspy
from pydantic import BaseModel, Field, ValidationError

from ga_dspy.errors import InputError
from ga_dspy.mentions import mentions
from ga_dspy.programs.prediction import Asked
from ga_dspy.secrets import withheld
from ga_dspy.storage import on_disk
from ga_dspy.text import fold_words, proper_names

_MOST, _LONGEST = 20, 1_000


class Gap(BaseModel):
    """A question without evidence in the corpus.

    Attributes:
        time: The time of the answer.
        program: The class of the program.
        verdict: The verdict of the prediction.
        gap: Whether the graph of GraphRAG has none of the question's names.
        restricted: Whether conditions or labels restricted the program. Question, names and queries
            are then empty, because they may reveal what only some callers may read.
        question: The question.
        names: The names of the question that the graph of the corpus lacks; without such a graph,
            those in no passage that was read.
        queries: The queries that were tried besides the question.
        wanted: The last query that the judge asked for, else the last query that was tried.
    """

    time: datetime = Field(default_factory=partial(datetime.now, UTC))
    program: str
    verdict: str
    gap: bool = False
    restricted: bool = False
    question: str = ""
    names: tuple[str, ...] = ()
    queries: tuple[str, ...] = ()
    wanted: str = ""

    @classmethod
    def of(cls, prediction: dspy.Prediction) -> Gap | None:
        """Return the gap of a prediction; None if it has none.

        A prediction has a gap if its verdict is "not in passages", if its answer is empty (the
        program abstains), or if its `gap` is true; but not after a transient error, such as a
        timeout, which may have caused these.

        Raises:
            InputError: The prediction is a copy, or not from a `MultiHopProgram`.
        """
        asked: Asked | None = getattr(prediction, "asked", None)
        if asked is None:
            expected = "the prediction that a program returned, not a copy"
            raise InputError("a prediction without its question", expected=expected)
        verdict, is_gap = prediction.verdict, bool(prediction.get("gap", False))
        is_missing = is_gap or verdict == "not in passages" or not prediction.answer
        if prediction.is_transient or not is_missing:
            return None
        gap = partial(cls, program=asked.program, verdict=verdict, gap=is_gap)
        if asked.is_restricted:
            return gap(restricted=True)
        steps = prediction.steps
        tried = (text for step in steps for text in (step.query, step.reformulated))
        queries = [text for text in dict.fromkeys(tried) if text and text != asked.question]
        wanted = [step.next_query for step in steps if step.next_query] or queries or [""]
        return gap(
            question=_logged(asked.question),
            names=tuple(map(_logged, _unknown_names(asked.question, prediction)))[:_MOST],
            queries=tuple(map(_logged, queries[:_MOST])),
            wanted=_logged(wanted[-1]),
        )


def _logged(text: str) -> str:
    """Return a text without secrets, then cut: a cut secret would not be recognised."""
    return withheld(text)[:_LONGEST]


def _unknown_names(question: str, prediction: dspy.Prediction) -> Iterator[str]:
    """Yield the names of a question that no text mentions, as the question spells them."""
    if prediction.get("gap") or prediction.get("linked"):
        known = prediction.linked
    else:
        known = [passage.content for passage in prediction.passages]
    for name in sorted(proper_names(question)):
        if not any(mentions(name, text) for text in known):
            yield from (question[place.start : place.end] for place in mentions(name, question)[:1])


class GapLog:
    """Appends gaps to a file, one JSON object per line, without text of passages.

    `add` writes a line before it returns, so that `kill -9` loses none. Threads and processes may
    share the file; only its owner may read it.

    Args:
        path: The file; it is created, with its folder, if it does not exist.

    Raises:
        RunAborted: The file cannot be written; also raised by `add`.
    """

    def __init__(self, path: Path | str) -> None:
        self.path, self._lock = Path(path), threading.Lock()
        with on_disk(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
        self._append("")

    def add(self, prediction: dspy.Prediction) -> bool:
        """Log a prediction if it has a gap (`Gap.of`); return whether it has one.

        Raises:
            InputError: The prediction is a copy, or not from a `MultiHopProgram`.
        """
        gap = Gap.of(prediction)
        if gap is not None:
            self._append(gap.model_dump_json(exclude_defaults=True) + "\n")
        return gap is not None

    def _append(self, line: str) -> None:
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT
        with (
            self._lock,
            on_disk(self.path),
            os.fdopen(os.open(self.path, flags, 0o600), "a+b", 0) as file,
        ):
            file.seek(max(file.seek(0, os.SEEK_END) - 1, 0))
            is_cut = file.read(1) not in (b"", b"\n")  # by a full disk
            file.write(b"\n" * is_cut + line.encode())


# --- The report of a gap log


class Wanted(NamedTuple):
    """A name or a query without evidence in the corpus.

    Attributes:
        text: The name or query in its first spelling.
        questions: The number of questions with it.
        example: The first of these questions.
    """

    text: str
    questions: int
    example: str


class GapReport(NamedTuple):
    """The names and queries without evidence, most frequent first.

    Attributes:
        questions: The number of gaps.
        restricted: The number of gaps without a text.
        names: The names that the corpus lacks.
        queries: The last query of each question.
        unreadable: The number of lines that are not a gap.
    """

    questions: int
    restricted: int
    names: list[Wanted]
    queries: list[Wanted]
    unreadable: int


def report_gaps(path: Path | str) -> GapReport:
    """Count the names and queries of a gap log.

    Raises:
        RunAborted: The file cannot be read.
    """
    gaps, unreadable = list[Gap](), 0
    with on_disk(Path(path)), Path(path).open("rb") as lines:
        for line in filter(bytes.strip, lines):
            try:
                gaps.append(Gap.model_validate_json(line))
            except ValidationError:
                unreadable += 1
    names = _count((name, gap.question) for gap in gaps for name in gap.names)
    queries = _count((gap.wanted, gap.question) for gap in gaps if gap.wanted)
    restricted = sum(gap.restricted for gap in gaps)
    return GapReport(len(gaps), restricted, names, queries, unreadable)


def _count(pairs: Iterable[tuple[str, str]]) -> list[Wanted]:
    """Count texts, ignoring case and punctuation; the most frequent come first."""
    counts = dict[str, Wanted]()
    for text, question in pairs:
        wanted = counts.setdefault(fold_words(text), Wanted(text, 0, question))
        counts[fold_words(text)] = wanted._replace(questions=wanted.questions + 1)
    return sorted(counts.values(), key=lambda wanted: -wanted.questions)
