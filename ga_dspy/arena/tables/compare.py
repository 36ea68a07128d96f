"""Whether two runs differ: against a baseline, and against the same run on renamed names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ga_dspy.arena.labels import held_up, method_label
from ga_dspy.arena.runs import Run, Runs
from ga_dspy.arena.tables.table import (
    Column,
    Estimate,
    Missing,
    Row,
    Table,
    equal_k,
    f1_estimate,
    mark_notes,
    row,
    rule,
)
from ga_dspy.eval import Paired, paired_test
from ga_dspy.eval.statistics import holm, paired_permutation

_P = Column("p", "p")
_UNSHARED = "–: the two runs share no question, or count another F1, and cannot be compared."


class Copied(NamedTuple):
    """A run on a dataset and the same method's run on a renamed copy of that very file."""

    original: Run
    renamed: Run


def significance(runs: Runs, baseline: str) -> Table | Missing:
    """Every method against one of them, corrected for how many comparisons there are.

    Args:
        runs: The runs.
        baseline: The method the others are held against.
    """
    name = method_label(baseline)
    title = f"Significance: against {name}"
    families = [family for family in _families(runs, baseline) if len(family) > 1]
    if not families:
        needs = f"{baseline} and another method on the same questions"
        return Missing("significance", title, needs)
    found = [run for family in families for run in family]
    rows = tuple(r for family in families for r in _compared(family))
    comparisons = sum(len(family) for family in families) - len(families)
    return Table(
        name="significance",
        title=title,
        about=f"Difference of mean F1 in percent points, positive where the method is better than "
        f"{name}, with the p-value of a two-sided paired permutation test over the questions that "
        "both runs asked.",
        columns=(Column("Difference", "difference"), _P, Column("p, Holm", "p"), _shared()),
        rows=rows,
        notes=(
            *mark_notes(runs, found),
            f"Holm's correction is over a family: all comparisons with {name} on one dataset with "
            f"one LM (and one token budget); here {comparisons} comparisons in {len(families)} "
            f"famil{'y' if len(families) == 1 else 'ies'}.",
            *([_UNSHARED] if any(r.values[0] is None for r in rows) else []),
        ),
        score=rule(found),
    )


def internal_knowledge(runs: Runs) -> Table | Missing:
    """F1 on a dataset and on its renamed copy, and what the LM knows without reading."""
    title = "Internal knowledge"
    pairs = copies(runs)
    if not pairs:
        needs = "a method on a dataset and on its renamed copy (`ga-dspy rename`), same LM"
        return Missing("internal_knowledge", title, needs)
    found = [pair.original for pair in pairs]
    return Table(
        name="internal_knowledge",
        title=title,
        about="The same questions with real and with invented names: what a method loses it had "
        "from memory. Closed book: F1 of the LM without a passage, on the real names.",
        columns=(
            Column("F1, original"),
            Column("F1, renamed"),
            Column("Difference", "difference"),
            _P,
            _shared(),
            Column("Failed, renamed", "count"),
            Column("F1, closed book"),
        ),
        rows=tuple(row(pair.original, *_change(pair), _closed_book(runs, pair)) for pair in pairs),
        notes=(
            *mark_notes(runs, [run for pair in pairs for run in pair]),
            "The difference and its two-sided paired permutation test are over the questions that "
            "both runs asked, paired by id; p is not corrected for the number of rows.",
        ),
        score=rule(found),
    )


def copies(runs: Runs) -> list[Copied]:
    """The pairs of runs whose dataset file is the source of the other's renamed copy."""
    originals = {
        (r.report.protocol.sha256, r.method, r.lm, r.budget): r
        for r in held_up(runs)
        if r.report.protocol.sha256
    }
    return [
        Copied(originals[key], run)
        for run in held_up(runs)
        if (key := (run.report.protocol.renamed_from, run.method, run.lm, run.budget)) in originals
    ]


def _shared() -> Column:
    return Column("Shared", "count")


def _families(runs: Runs, baseline: str) -> Iterator[list[Run]]:
    """The runs of each dataset, LM and budget that have a baseline, which comes first."""
    groups: dict[tuple[str, str, int | None], list[Run]] = {}
    for run in held_up(runs):
        groups.setdefault((run.lm, run.dataset, run.budget), []).append(run)
    for group in groups.values():
        base = [run for run in group if run.method == baseline]
        if base:
            yield [*base, *(run for run in group if run.method != baseline)]


def _compared(family: Sequence[Run]) -> list[Row]:
    base, *others = family
    tests = [_tested(run, base) for run in others]
    corrected = iter(holm([test.p_value for test in tests if test]))
    return [
        row(run, test.difference, test.p_value, next(corrected), test.n)
        if test
        else row(run, None, None, None, 0)
        for run, test in zip(others, tests, strict=True)
    ]


def _tested(run: Run, base: Run) -> Paired | None:
    """The test between two runs; None where it would compare unlike things."""
    asked = {(result.id, result.question) for result in base.report.results}
    shared = any((result.id, result.question) in asked for result in run.report.results)
    alike = run.report.protocol.score == base.report.protocol.score
    return paired_test(run.report, base.report) if shared and alike else None


def _change(pair: Copied) -> tuple[Estimate, Estimate, float | None, float | None, int, int]:
    one, other = (
        {r.id: f1 for r, f1 in zip(run.report.results, run.report.values(), strict=True)}
        for run in pair
    )
    ids = [id for id in one if id in other]
    test = paired_permutation([one[i] for i in ids], [other[i] for i in ids]) if ids else None
    return (
        f1_estimate(pair.original.report),
        f1_estimate(pair.renamed.report),
        test.difference if test else None,
        test.p_value if test else None,
        len(ids),
        len(pair.renamed.report.failed),
    )


def _closed_book(runs: Runs, pair: Copied) -> float | None:
    for run in equal_k(list(runs)):
        alike = (run.dataset, run.lm) == (pair.original.dataset, pair.original.lm)
        if run.method == "closed-book" and alike:
            return run.report.f1
    return None
