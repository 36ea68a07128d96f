"""Table 3: the steps at which questions ended."""

from __future__ import annotations

from ga_dspy.arena import paper
from ga_dspy.arena.labels import dataset_label, held_up, method_label
from ga_dspy.arena.runs import Run, Runs
from ga_dspy.arena.tables.table import Column, Missing, Row, Table, Value, mark_notes, row
from ga_dspy.eval.measures import steps_reached

_TITLE = "Table 3: steps reached"
_LEAST = 4  # The paper's T, so that its rows fit.


def table_3(runs: Runs) -> Table | Missing:
    """Table 3: percent of the questions that ended at each step, and of those that failed."""
    found = [run for run in held_up(runs) if (run.report.protocol.steps or 0) > 1]
    if not found:
        return Missing(
            "table_3", _TITLE, "a method that retrieves more than once, such as graph-anchor"
        )
    counted = [steps_reached(run.report.results) for run in found]
    last = max([_LEAST, *(int(name) for ended in counted for name in ended if name.isdigit())])
    # A question whose program told no steps stands in a column of its own, where there is one.
    names = [*map(str, range(1, last + 1)), *(["(none)"] if _untold(counted) else []), "failed"]
    return Table(
        name="table_3",
        title=_TITLE,
        about="Percent of the questions that ended at each step of retrieval.",
        columns=tuple(Column(_heading(name)) for name in names),
        rows=(
            *(row(run, *_shares(run, c, names)) for run, c in zip(found, counted, strict=True)),
            *(_printed(shares, names) for shares in paper.TABLE_3 if shares.dataset in _of(found)),
        ),
        notes=mark_notes(runs, found),
    )


def _untold(counted: list[dict[str, int]]) -> bool:
    return any("(none)" in ended for ended in counted)


def _heading(name: str) -> str:
    return {"failed": "Failed, %", "(none)": "Not told"}.get(name, f"Step {name}")


def _of(runs: list[Run]) -> set[str]:
    return {run.dataset for run in runs}


def _shares(run: Run, ended: dict[str, int], names: list[str]) -> list[Value]:
    n = len(run.report.results)
    allowed = run.report.protocol.steps or 0
    return [
        None if name.isdigit() and int(name) > allowed else 100.0 * ended.get(name, 0) / n
        for name in names
    ]


def _printed(shares: paper.Shares, names: list[str]) -> Row:
    told = dict(enumerate(shares.steps, start=1))
    return Row(
        method=method_label("graph-anchor"),
        lm=shares.lm,
        dataset=dataset_label(shares.dataset),
        values=tuple(told.get(int(name)) if name.isdigit() else None for name in names),
        n=paper.QUESTIONS[shares.dataset],
        source="paper",
    )
