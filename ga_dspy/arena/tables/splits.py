"""Figure 7's splits: whether the answer was in what was read, and whether it was known before."""

from __future__ import annotations

from collections.abc import Callable
from statistics import fmean
from typing import NamedTuple

from ga_dspy.arena.labels import held_up
from ga_dspy.arena.runs import Run, Runs
from ga_dspy.arena.tables.table import Column, Missing, Table, Value, mark_notes, row, rule
from ga_dspy.eval import Result
from ga_dspy.eval.scores import answer_in

CLOSED_BOOK = "closed-book"


class Split(NamedTuple):
    """Mean F1 in percent over the `n` questions of a split; None where it is empty."""

    f1: float | None
    n: int


class Splits(NamedTuple):
    """A run's F1 on the paper's three splits.

    Attributes:
        has_answer: Questions with an accepted answer in a passage that the method read.
        miss_answer: Those without one; a failed question has read nothing.
        internal: Those that the same LM answered right without reading (Acc 1); None where
            there is no closed-book run of it.
    """

    has_answer: Split
    miss_answer: Split
    internal: Split | None


def knowledge_use(runs: Runs) -> Table | Missing:
    """F1 of each method on each split."""
    title = "Knowledge use (the splits of Figure 7a)"
    found = [run for run in held_up(runs) if run.method != CLOSED_BOOK]
    if not found:
        return Missing("knowledge_use", title, "a method that retrieves")
    return Table(
        name="knowledge_use",
        title=title,
        about="F1 where an accepted answer occurs in what the method read (has answer), where "
        "none does (miss answer), and where the LM was right without reading (internal "
        "knowledge: Acc of the closed-book run is 1).",
        columns=tuple(
            column
            for name in ("Has answer", "Miss answer", "Internal knowledge")
            for column in (Column(f"{name} F1"), Column(f"{name} n", "count"))
        ),
        rows=tuple(row(run, *_values(splits(run, runs))) for run in found),
        notes=(
            *mark_notes(runs, found),
            "Yes/no questions stand in neither of the first two: such an answer is in no passage. "
            "Which questions those two hold differs from method to method, as each reads other "
            "passages; a failed question has read nothing and scores 0.",
        ),
        score=rule(found),
    )


def splits(run: Run, runs: Runs) -> Splits:
    """The splits of a run.

    Args:
        run: The run.
        runs: Where its LM's closed-book run is looked for.
    """
    known = _known(run, runs)
    return Splits(
        _split(run, lambda result: _hit(result) is True),
        _split(run, lambda result: _hit(result) is False),
        None if known is None else _split(run, lambda r: (r.id, r.question) in known),
    )


def _split(run: Run, belongs: Callable[[Result], bool]) -> Split:
    pairs = zip(run.report.results, run.report.values(), strict=True)
    scores = [score for result, score in pairs if belongs(result)]
    return Split(100.0 * fmean(scores) if scores else None, len(scores))


def _hit(result: Result) -> bool | None:
    """Whether an accepted answer is in what was read; None for a yes/no question."""
    if result.trace:
        return result.trace[-1].hit
    found = [answer_in(passage.content, result.gold) for passage in result.passages]
    return any(found) if found and None not in found else answer_in("", result.gold)


def _known(run: Run, runs: Runs) -> set[tuple[str, str]] | None:
    for other in runs:
        if (other.method, other.dataset, other.lm) == (CLOSED_BOOK, run.dataset, run.lm):
            return {(r.id, r.question) for r in other.report.results if r.acc == 1.0}
    return None


def _values(found: Splits) -> list[Value]:
    parts = [split or Split(None, 0) for split in found]
    told = [[part.f1, part.n] for part in parts]
    if found.internal is None:
        told[-1] = [None, None]
    return [value for pair in told for value in pair]
