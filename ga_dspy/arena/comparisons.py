"""Whether two runs differ: against a baseline, and against the same run on renamed names."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from ga_dspy.arena.runs import Run, Runs, method_label
from ga_dspy.arena.table import NONE, Row, Table, f1_with_interval, row, table_of
from ga_dspy.eval import Paired, paired_test
from ga_dspy.eval.scores import holm, paired_permutation


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


def internal_knowledge(runs: Runs) -> Table:
    """F1 on a dataset and on its renamed copy, and what the LM knows without reading."""
    pairs = _copies(runs)
    return table_of(
        runs,
        "internal_knowledge",
        [run for pair in pairs for run in pair],
        (row(pair[0], _loss(runs, *pair)) for pair in pairs),
    )


def _copies(runs: Runs) -> list[tuple[Run, Run]]:
    """Runs on a dataset, each with the method's run on a renamed copy of that very file."""
    originals = {
        (run.report.protocol.sha256, run.method, run.lm, run.budget): run
        for run in runs.in_order()
        if run.report.protocol.sha256
    }
    return [
        (originals[key], run)
        for run in runs.in_order()
        if (key := (run.report.protocol.renamed_from, run.method, run.lm, run.budget)) in originals
    ]


def _loss(runs: Runs, original: Run, renamed: Run) -> Row:
    one, other = (
        {r.id: f1 for r, f1 in zip(run.report.results, run.report.values(), strict=True)}
        for run in (original, renamed)
    )
    ids = [id for id in one if id in other]
    test = paired_permutation([one[i] for i in ids], [other[i] for i in ids]) if ids else None
    closed = runs.get("closed-book", original.dataset, original.lm)
    return {
        **f1_with_interval(original.report, "F1, original"),
        **f1_with_interval(renamed.report, "F1, renamed"),
        "Difference": test and test.difference,
        "p": test and test.p_value,
        "Shared": len(ids),
        "Failed, renamed": len(renamed.report.failed),
        "F1, closed book": closed.report.f1 if closed else None,
    }
