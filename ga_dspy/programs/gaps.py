"""The gap log: questions whose evidence is missing, and what was looked for."""

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
    """A question whose evidence is missing.

    Attributes:
        time: When it was answered.
        program: The class of the program.
        verdict: The verdict of the prediction.
        gap: Whether the graph of GraphRAG has none of the question's names.
        restricted: Whether conditions or labels restricted what was read; then the question, the
            names and the queries are empty, because they may repeat what only some may read.
        question: The question.
        names: The names of the question that the graph does not have; without a graph of the
            corpus, those in no passage that was read.
        queries: The queries that were tried besides the question.
        wanted: What the judge wanted to search last, else the last of the queries.
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
        """Return the gap that a prediction shows; None if it shows none.

        A prediction shows one if its verdict is "not in passages", if its answer is empty (the
        program abstains), or if its `gap` is true. After a transient error, such as a timeout,
        nobody knows.

        Raises:
            InputError: The prediction is a copy, or not one of a `MultiHopProgram`.
        """
        asked: Asked | None = getattr(prediction, "asked", None)
        if asked is None:
            expected = "the prediction that a program returned, no copy of it"
            raise InputError("a prediction without its question", expected=expected)
        verdict, is_gap = prediction.verdict, bool(prediction.get("gap", False))
        is_missing = is_gap or verdict == "not in passages" or not prediction.answer
        if prediction.may_pass or not is_missing:
            return None
        made = partial(cls, program=asked.program, verdict=verdict, gap=is_gap)
        if asked.is_restricted:
            return made(restricted=True)
        steps = prediction.steps
        tried = (text for step in steps for text in (step.query, step.reformulated))
        queries = [text for text in dict.fromkeys(tried) if text and text != asked.question]
        wanted = [step.next_query for step in steps if step.next_query] or queries or [""]
        return made(
            question=_logged(asked.question),
            names=tuple(map(_logged, _unknown_names(asked.question, prediction)))[:_MOST],
            queries=tuple(map(_logged, queries[:_MOST])),
            wanted=_logged(wanted[-1]),
        )


def _logged(text: str) -> str:
    """Return a text without secrets; a cut before that could leave half of one."""
    return withheld(text)[:_LONGEST]


def _unknown_names(question: str, prediction: dspy.Prediction) -> Iterator[str]:
    """Yield the names of a question that were not found, as they are spelled there."""
    if prediction.get("gap") or prediction.get("linked"):
        known = prediction.linked
    else:
        known = [passage.content for passage in prediction.passages]
    for name in sorted(proper_names(question)):
        if not any(mentions(name, text) for text in known):
            yield from (question[place.start : place.end] for place in mentions(name, question)[:1])


class GapLog:
    """Appends gaps to a file, one JSON object per line; it has no text of a passage.

    A line is written at once, so `kill -9` loses none that `add` returned for. Threads and
    processes may share the file, which only its owner may read.

    Args:
        path: The file; created, with its folder, if it does not exist.

    Raises:
        RunAborted: The file cannot be written; `add` raises it too.
    """

    def __init__(self, path: Path | str) -> None:
        self.path, self._lock = Path(path), threading.Lock()
        with on_disk(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
        self._append("")

    def add(self, prediction: dspy.Prediction) -> bool:
        """Log a prediction if it shows a gap (`Gap.of`); return whether it does.

        Raises:
            InputError: As `Gap.of`.
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
            is_cut = file.read(1) not in (b"", b"\n")  # a full disk has cut the last line
            file.write(b"\n" * is_cut + line.encode())


# --- What is missing most


class Wanted(NamedTuple):
    """A name or a query that was looked for in vain.

    Attributes:
        text: Its first spelling.
        questions: The number of questions.
        example: The first of them.
    """

    text: str
    questions: int
    example: str


class GapReport(NamedTuple):
    """What is missing, most wanted first.

    Attributes:
        questions: The number of gaps.
        restricted: How many of them have no text.
        names: The names that are not known.
        queries: What was wanted last.
        unreadable: The number of lines that are no gap.
    """

    questions: int
    restricted: int
    names: list[Wanted]
    queries: list[Wanted]
    unreadable: int


def report_gaps(path: Path | str) -> GapReport:
    """Count what a gap log says is missing.

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
    """Count texts however they are spelled, the most frequent first."""
    found = dict[str, Wanted]()
    for text, question in pairs:
        before = found.setdefault(fold_words(text), Wanted(text, 0, question))
        found[fold_words(text)] = before._replace(questions=before.questions + 1)
    return sorted(found.values(), key=lambda one: -one.questions)
