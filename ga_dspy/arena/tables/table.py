"""What a table is: rows of runs and of the paper, with values that know how they are written."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal, NamedTuple

from ga_dspy.arena.labels import dataset_label, lm_label, run_label
from ga_dspy.arena.runs import Run, Runs
from ga_dspy.eval import Report
from ga_dspy.eval.report import ScoreName
from ga_dspy.eval.statistics import bootstrap_interval

Form = Literal["number", "count", "difference", "seconds", "p", "dollars", "text"]
Source = Literal["measured", "paper"]

AVERAGE = "Average"
"""Stands for a dataset in rows that average over all of them."""


class Estimate(NamedTuple):
    """A mean with its 95 % interval, in percent."""

    value: float
    low: float
    high: float


class Flagged(NamedTuple):
    """A number that a note speaks of."""

    value: float
    flag: str


Value = str | float | Estimate | Flagged | None


class Column(NamedTuple):
    """A column's name, and how its values are written."""

    name: str
    form: Form = "number"


@dataclass(frozen=True)
class Row:
    """A row: whose numbers these are, and the values.

    Attributes:
        method: As the paper names it.
        lm: The LM's name.
        dataset: The dataset's name, or `AVERAGE`.
        values: One a column.
        n: Questions that the numbers are over; None where that is said by a column.
        failed: How many of them failed; None where it is not known.
        mark: The letter of the note that says how this run's ground differs.
        protocol: The hash of the run's protocol.
        source: Whose numbers these are.
    """

    method: str
    lm: str
    dataset: str
    values: tuple[Value, ...]
    n: int | None = None
    failed: int | None = None
    mark: str = ""
    protocol: str = ""
    source: Source = "measured"


@dataclass(frozen=True)
class Table:
    """A table of a report.

    Attributes:
        name: Its file's name, without an ending.
        title: Its heading.
        about: What it shows, in a sentence or two.
        columns: Beside those that every table has.
        rows: In order.
        notes: Footnotes.
        across: Whether datasets are columns where a person reads it.
        score: The rule of the F1s in it; empty where there are none.
    """

    name: str
    title: str
    about: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()
    across: bool = False
    score: str = ""


class Missing(NamedTuple):
    """A table that no run fills, and what would."""

    name: str
    title: str
    needs: str


def row(run: Run, *values: Value) -> Row:
    """A row of a run."""
    report = run.report
    return Row(
        method=run_label(run),
        lm=lm_label(run.lm),
        dataset=dataset_label(run.dataset),
        values=values,
        n=len(report.results),
        failed=len(report.failed),
        mark=run.mark,
        protocol=report.protocol.hash,
    )


def f1_estimate(report: Report, score: ScoreName = "f1") -> Estimate:
    """Mean F1 with its 95 % interval, in percent."""
    values = tuple(report.values(score))
    return Estimate(100.0 * sum(values) / len(values), *_interval(values))


def rule(runs: Iterable[Run]) -> str:
    """Which F1 counts in some runs."""
    names = {"official": "HotpotQA's official rule", "squad": "SQuAD's rule"}
    return " or ".join(sorted({names[run.report.protocol.score] for run in runs}))


def mark_notes(runs: Runs, shown: Iterable[Run]) -> tuple[str, ...]:
    """The footnotes of the marked ones among the runs shown."""
    return tuple(f"({mark}) {runs.notes[mark]}." for mark in sorted({r.mark for r in shown} - {""}))


def equal_k(runs: Sequence[Run]) -> list[Run]:
    """The runs without a token budget."""
    return [run for run in runs if run.budget is None]


@cache
def _interval(values: tuple[float, ...]) -> tuple[float, float]:
    # Most runs stand in several tables.
    low, high = bootstrap_interval(values)
    return 100.0 * low, 100.0 * high
