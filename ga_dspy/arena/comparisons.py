"""Whether two runs differ: significance against a baseline, and the questions that differ."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from math import fsum
from typing import NamedTuple

from ga_dspy.arena.runs import Run, Runs, dataset_label, lm_label, method_label
from ga_dspy.arena.table import NONE, Row, Table, number, row, table_of
from ga_dspy.eval import Paired, paired_test
from ga_dspy.eval.scores import holm


def significance(runs: Runs, baseline: str) -> Table:
    """Every method against one of them, corrected for how many comparisons there are.

    Args:
        runs: The runs.
        baseline: The method the others are compared with.
    """
    name = method_label(baseline)
    families = list(_families(runs, baseline))
    rows = [one for family in families for one in _comparisons(family)]
    notes = [
        f"Holm's correction is over a family: all comparisons with {name} on one dataset with one "
        f"LM (and one token budget); here {len(rows)} comparisons in {len(families)} "
        f"famil{'y' if len(families) == 1 else 'ies'}."
    ]
    if any(one["p"] is None for one in rows):
        notes.append(
            f"{NONE}: the two runs share no question, or count another F1, and cannot be compared."
        )
    return table_of(
        runs,
        "significance",
        [run for family in families for run in family],
        rows,
        *notes,
        baseline=baseline,
        method=name,
    )


def _families(runs: Runs, baseline: str) -> Iterator[list[Run]]:
    """The runs of each LM, dataset and budget that have a baseline, which comes first."""
    for _, group in groupby(runs.in_order(), lambda run: (run.lm, run.dataset, run.budget)):
        family = sorted(group, key=lambda run: run.method != baseline)
        if family[0].method == baseline and len(family) > 1:
            yield family


def _comparisons(family: list[Run]) -> Iterator[Row]:
    base, *others = family
    tests = [_test(run, base) for run in others]
    corrected = iter(holm([test.p_value for test in tests if test]))
    for run, test in zip(others, tests, strict=True):
        yield row(
            run,
            {
                "Difference": test and test.difference,
                "p": test and test.p_value,
                "p, Holm": test and next(corrected),
                "Shared": test.n if test else 0,
            },
        )


def _test(run: Run, base: Run) -> Paired | None:
    """The test between two runs; None where they share no question or count another F1."""
    asked, other = ({(r.id, r.question) for r in one.report.results} for one in (run, base))
    alike = run.report.protocol.score == base.report.protocol.score
    return paired_test(run.report, base.report) if asked & other and alike else None


# --- The verdict: which method is best on each dataset, by how much, how sure, at which cost.


class Contest(NamedTuple):
    """The best run of a dataset, LM and budget, and the one it is held against.

    That is the baseline, or the runner-up where the baseline is best or was not run.

    Attributes:
        best: The run with the highest F1.
        other: The one it is held against.
        test: Between the two.
        p: Its p-value after Holm's correction over all comparisons with the same run.
        comparisons: How many these are.
    """

    best: Run
    other: Run
    test: Paired
    p: float
    comparisons: int

    def __str__(self) -> str:
        """The verdict in a sentence or two."""
        (one, cost), (two, usual) = (
            (method_label(run.method), mean_tokens(run)) for run in (self.best, self.other)
        )
        asked = f"{dataset_label(self.best.dataset)}, {self.test.n:,} questions"
        about = [asked, lm_label(self.best.lm)]
        about += [f"at most {self.best.budget:,} tokens"] if self.best.budget else []
        shown = self.p < 0.05 and self.test.difference > 0
        lead = f"**{one} is best**" if shown else "**no difference shown**"
        f1, more = number("F1", self.best.report.f1), number("F1", self.test.difference)
        times = f", at {cost / usual:.1f} times its tokens" if cost and usual else ""
        judged = [run.report.judged for run in (self.best, self.other)]
        right = " against ".join(f"{value:.1f} %" for value in judged if value is not None)
        said = f"{one} has the highest score: F1 {f1}, {more} points above {two}"
        said = said if self.test.difference else f"{one} and {two} have the same score: F1 {f1}"
        return (
            f"{', '.join(about)}: {lead}. {said} (p {number('p', self.p)} after correction for "
            f"{self.comparisons} comparison{'s' * (self.comparisons > 1)}){times} ({cost:,.0f} "
            f"against {usual:,.0f} a question){f'; judged right: {right}' if right else ''}."
        )


def contests(runs: Runs, baseline: str) -> list[Contest]:
    """The verdict on every dataset, LM and budget with two runs or more that can be compared."""
    found = []
    for _, group in groupby(runs.in_order(), lambda run: (run.lm, run.dataset, run.budget)):
        ranked = sorted(group, key=lambda run: -run.report.f1)
        pivot = next((run for run in ranked if run.method == baseline), ranked[0])
        tests = [(run, test) for run in ranked if run is not pivot and (test := _test(run, pivot))]
        corrected = holm([test.p_value for _, test in tests])
        if tests:
            (run, test), p = tests[0], corrected[0]
            if run.report.f1 < pivot.report.f1:
                run, pivot, test = pivot, run, test._replace(difference=-test.difference)
            found.append(Contest(run, pivot, test, p, len(tests)))
    return found


def mean_tokens(run: Run) -> float:
    """Mean tokens a question."""
    return fsum(result.tokens or 0 for result in run.report.results) / len(run.report.results)


def differences(runs: Runs, baseline: str) -> Table:
    """The questions on which the best run of each dataset and the one beside it differ most."""
    rows: list[Row] = []
    notes = []
    for contest in contests(runs, baseline):
        best, other = contest.best, contest.other
        ours, theirs = (
            {(r.id, r.question): (r, f1) for r, f1 in zip(one.results, one.values(), strict=True)}
            for one in (best.report, other.report)
        )
        pairs = [(*ours[key], *theirs[key]) for key in ours if key in theirs]
        pairs = [pair for pair in pairs if pair[1] != pair[3]]
        pairs.sort(key=lambda pair: -abs(pair[1] - pair[3]))
        names = f"{dataset_label(best.dataset)}: {method_label(best.method)}"
        notes.append(
            f"{names} beside {method_label(other.method)}, {len(pairs)} of {contest.test.n} "
            f"questions differ. Whole: `ga-dspy view RUN --beside OTHER_RUN`."
        )
        rows += [
            row(
                best,
                {
                    "Question": result.question,
                    "Accepted": " | ".join(result.gold),
                    "Answer": result.answer or NONE,
                    "F1": 100.0 * f1,
                    "Beside": method_label(other.method),
                    "Its answer": its.answer or NONE,
                    "Its F1": 100.0 * its_f1,
                },
                n=None, failed=None, degraded=None,
            )
            for result, f1, its, its_f1 in pairs[:20]
        ]  # fmt: skip
    return table_of(runs, "differences", runs.in_order() if rows else [], rows, *notes)
