"""Table 5 and what else tells cost: the token ledger, and scores at equal tokens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from statistics import fmean

from ga_dspy.arena import paper
from ga_dspy.arena.labels import dataset_label, held_up, method_label, ordered
from ga_dspy.arena.runs import Run, Runs
from ga_dspy.arena.tables.table import (
    Column,
    Estimate,
    Flagged,
    Missing,
    Row,
    Table,
    Value,
    f1_estimate,
    mark_notes,
    row,
    rule,
)
from ga_dspy.eval import Result
from ga_dspy.eval.measures import spent
from ga_dspy.programs import Usage

_CACHED = "†"
_OVER = (
    "Calls, tokens and dollars are means over the questions that did not fail: what a failed one "
    "cost is not known. Seconds are over all."
)
_FROM_CACHE = (
    f"{_CACHED} Some of the calls were answered from the cache: these are not the seconds that "
    "the method takes. Tokens and dollars count cached calls at what they cost when made."
)
_TOKENS = Column("Tokens", "count")


def table_5(runs: Runs) -> Table:
    """Table 5: seconds, LM calls, tokens and dollars."""
    found = ordered(runs)
    cached = any(_total(run).cached for run in found)
    return Table(
        name="table_5",
        title="Table 5: cost",
        about="What a question takes: seconds (and for 100 questions, as the paper tells them), "
        "calls of the LM, tokens, and US dollars for 100 questions.",
        columns=(
            Column("Seconds", "seconds"),
            Column(f"Seconds per {paper.TIMED}", "seconds"),
            Column("LM calls"),
            Column("From cache, %"),
            Column("Prompt tokens", "count"),
            Column("Completion tokens", "count"),
            Column(f"US $ per {paper.TIMED}", "dollars"),
        ),
        rows=(
            *(row(run, *_cost(run)) for run in found),
            *(r for times in paper.TABLE_5 for r in _printed(times, runs)),
        ),
        notes=(*mark_notes(runs, found), _OVER, *((_FROM_CACHE,) if cached else ())),
    )


def ledger(runs: Runs) -> Table | Missing:
    """What each step of each program cost."""
    title = "Token ledger"
    found = [run for run in held_up(runs) if _told(run)]
    if not found:
        return Missing("ledger", title, "programs that tell what they spent")
    return Table(
        name="ledger",
        title=title,
        about="Where a question's tokens go, by step of the program.",
        columns=(
            Column("LM step", "text"),
            Column("LM calls"),
            Column("Prompt tokens", "count"),
            Column("Completion tokens", "count"),
            Column("Share of tokens, %"),
        ),
        rows=tuple(
            row(run, name, *_entry(run, usage))
            for run in found
            for name, usage in spent(run.report.results).items()
        ),
        notes=(*mark_notes(runs, found), "Means over the questions that did not fail."),
    )


def equal_tokens(runs: Runs) -> Table | Missing:
    """Runs under a token budget, beside the same methods at equal k."""
    title = "Equal tokens"
    found = [run for run in ordered(runs) if run.budget is not None]
    if not found:
        return Missing("equal_tokens", title, "an arena with `--tokens`")
    return Table(
        name="equal_tokens",
        title=title,
        about="Scores where every method may spend the same tokens on a question, beside the same "
        "method at equal k.",
        columns=(
            Column("Budget", "count"),
            _TOKENS,
            Column("F1"),
            Column("EM"),
            Column("Tokens, equal k", "count"),
            Column("F1, equal k"),
            Column("EM, equal k"),
        ),
        rows=tuple(
            # The budget is a column here, so no part of the name.
            replace(
                row(run, run.budget, *_scores(run), *_scores(_without_budget(runs, run))),
                method=method_label(run.method),
            )
            for run in found
        ),
        notes=mark_notes(runs, found),
        score=rule(found),
    )


def _without_budget(runs: Runs, run: Run) -> Run | None:
    return runs.get(run.method, run.dataset, run.lm)


def _scores(run: Run | None) -> tuple[Value, Estimate | None, float | None]:
    if run is None:
        return None, None, None
    return _a_question(run, lambda usage: usage.tokens), f1_estimate(run.report), run.report.em


def _told(run: Run) -> list[Result]:
    return [result for result in run.report.results if result.usage]


def _total(run: Run) -> Usage:
    return Usage.total(result.cost for result in _told(run))


def _a_question(run: Run, quantity: Callable[[Usage], float]) -> float | None:
    told = _told(run)
    return fmean(quantity(result.cost) for result in told) if told else None


def _cost(run: Run) -> list[Value]:
    total, told = _total(run), _told(run)
    seconds = run.report.seconds / len(run.report.results)
    flag = _CACHED if total.cached else ""
    return [
        Flagged(seconds, flag),
        Flagged(paper.TIMED * seconds, flag),
        _a_question(run, lambda usage: usage.calls),
        100.0 * total.cached / total.calls if total.calls else None,
        _a_question(run, lambda usage: usage.prompt_tokens),
        _a_question(run, lambda usage: usage.completion_tokens),
        _dollars(total, len(told)),
    ]


def _dollars(total: Usage, questions: int) -> Value:
    if not questions:
        return None
    return "unpriced" if total.cost is None else paper.TIMED * total.cost / questions


def _entry(run: Run, usage: Usage) -> list[Value]:
    n, tokens = len(_told(run)), _total(run).tokens
    return [
        usage.calls / n,
        usage.prompt_tokens / n,
        usage.completion_tokens / n,
        100.0 * usage.tokens / tokens if tokens else None,
    ]


def _printed(times: paper.Times, runs: Runs) -> list[Row]:
    return [
        Row(
            method=method_label(times.method),
            lm=times.lm,
            dataset=dataset_label(dataset),
            values=(seconds / paper.TIMED, seconds, None, None, None, None, None),
            n=paper.TIMED,
            source="paper",
        )
        for dataset, seconds in times.seconds.items()
        if dataset in runs.datasets
    ]
