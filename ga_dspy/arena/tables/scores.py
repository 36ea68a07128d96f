"""Tables 1, 2 and 4: F1 and EM by dataset, the paper's rows beneath; all scores side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from statistics import fmean
from typing import NamedTuple

from ga_dspy.arena import paper
from ga_dspy.arena.labels import dataset_label, lm_label, method_label, ordered
from ga_dspy.arena.methods import METHODS
from ga_dspy.arena.runs import Run, Runs
from ga_dspy.arena.tables.table import (
    AVERAGE,
    Column,
    Missing,
    Row,
    Table,
    equal_k,
    f1_estimate,
    mark_notes,
    row,
    rule,
)

_COLUMNS = (Column("F1"), Column("EM"))
_AVERAGED = "Averages are over the datasets shown, each counting the same, where a method has all."


def _label(method: str, k: int | None) -> str:
    return method_label(method)


def _by_depth(method: str, k: int | None) -> str:
    return f"Vanilla RAG (top {k})" if method == "vanilla-rag" else method_label(method)


class _Plan(NamedTuple):
    """What distinguishes one score table from another; without `wanted` methods it is left out."""

    name: str
    title: str
    about: str
    needs: str
    wanted: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    order: tuple[str, ...] = ()
    printed: tuple[paper.Scores, ...] = ()
    label: Callable[[str, int | None], str] = _label

    def takes(self, method: str) -> bool:
        """Whether a method stands in the table; what is no method of ours stands in Table 1."""
        return self.wants(method) or method in self.beside

    def wants(self, method: str) -> bool:
        """Whether it is one that the table is there for."""
        return method in self.wanted or (method not in METHODS and not self.beside)


def _named(group: str) -> tuple[str, ...]:
    return tuple(name for name, method in METHODS.items() if method.group == group)


_TABLE_1 = _Plan(
    name="table_1",
    title="Table 1: methods",
    about="F1 with its 95 % bootstrap interval, and exact match, in percent.",
    needs="the methods: `--programs methods`",
    wanted=(*_named("methods"), "graph-rag", "graph-rag-hybrid"),
    printed=paper.TABLE_1,
)
_RENAMED = _TABLE_1._replace(
    name="table_1_renamed",
    title="Table 1 on renamed copies",
    about="As Table 1, on copies in which the names are invented, so that memory does not help.",
    needs="runs on a renamed copy of a dataset",
    printed=(),
)
_TABLE_2 = _Plan(
    name="table_2",
    title="Table 2: ablations",
    about="GraphAnchor with one of its parts taken away or replaced.",
    needs="GraphAnchor's ablations: `--programs ablations`",
    wanted=_named("ablations"),
    beside=("vanilla-rag", "graph-anchor"),
    order=("vanilla-rag", *_named("ablations")[:3], "graph-anchor", *_named("ablations")[3:]),
    printed=paper.TABLE_2,
)
_TABLE_4 = _Plan(
    name="table_4",
    title="Table 4: more passages at once",
    about="Vanilla RAG by the number of passages it is given, beside GraphAnchor.",
    needs="vanilla RAG with more passages: `--programs depths`",
    wanted=_named("depths"),
    beside=("vanilla-rag", "graph-anchor"),
    order=("vanilla-rag", *_named("depths"), "graph-anchor"),
    printed=paper.TABLE_4,
    label=_by_depth,
)


def table_1(runs: Runs) -> Table | Missing:
    """Table 1: methods by dataset."""
    return _table(runs, _TABLE_1, _originals(runs))


def table_1_renamed(runs: Runs) -> Table | Missing:
    """Table 1 once more, on renamed copies."""
    return _table(runs, _RENAMED, [n for n in runs.datasets if n not in _originals(runs)])


def table_2(runs: Runs) -> Table | Missing:
    """Table 2: ablations by dataset."""
    return _table(runs, _TABLE_2, _originals(runs))


def table_4(runs: Runs) -> Table | Missing:
    """Table 4: vanilla RAG by depth."""
    return _table(runs, _TABLE_4, _originals(runs))


def side_by_side(runs: Runs) -> Table:
    """Every answer score of every run, so that no choice of score can flatter."""
    found = ordered(runs)
    return Table(
        name="scores",
        title="Scores side by side",
        about="The same answers by four scores, in percent. HotpotQA's official F1 gives a yes or "
        "no all or nothing, SQuAD's does not; Acc: the answer contains an accepted one.",
        columns=tuple(Column(name) for name in ("F1, official", "F1, SQuAD", "EM", "Acc")),
        rows=tuple(row(run, *_four(run)) for run in found),
        notes=mark_notes(runs, found),
    )


def _four(run: Run) -> tuple[float, ...]:
    report = run.report
    official = fmean(result.f1 for result in report.results)
    return 100 * official, 100 * fmean(report.values("f1_squad")), report.em, report.acc


def _originals(runs: Runs) -> list[str]:
    copies = {run.dataset for run in runs if run.report.protocol.renamed_from}
    return [name for name in runs.datasets if name not in copies]


def _table(runs: Runs, plan: _Plan, datasets: Sequence[str]) -> Table | Missing:
    found = [r for r in equal_k(ordered(runs)) if r.dataset in datasets and plan.takes(r.method)]
    if not any(plan.wants(run.method) for run in found):
        return Missing(plan.name, plan.title, plan.needs)
    if plan.order:
        found.sort(key=lambda run: (runs.lms.index(run.lm), plan.order.index(run.method)))
    shown = [name for name in datasets if any(run.dataset == name for run in found)]
    measured = [
        replace(
            row(run, f1_estimate(run.report), run.report.em),
            method=plan.label(run.method, run.report.protocol.k),
        )
        for run in found
    ]
    return Table(
        name=plan.name,
        title=plan.title,
        about=plan.about,
        columns=_COLUMNS,
        rows=(
            *measured,
            *_averages(found, plan, len(shown)),
            *(r for scores in plan.printed for r in _printed(scores, plan, shown)),
        ),
        notes=(*mark_notes(runs, found), *((_AVERAGED,) if len(shown) > 1 else ())),
        across=True,
        score=rule(found),
    )


def _averages(found: Sequence[Run], plan: _Plan, datasets: int) -> Iterator[Row]:
    by_method: dict[tuple[str, str], list[Run]] = {}
    for run in found:
        by_method.setdefault((run.lm, run.method), []).append(run)
    for (lm, method), parts in by_method.items():
        if len(parts) == datasets > 1:
            reports = [run.report for run in parts]
            yield Row(
                method=plan.label(method, reports[0].protocol.k),
                lm=lm_label(lm),
                dataset=AVERAGE,
                values=(fmean(r.f1 for r in reports), fmean(r.em for r in reports)),
                mark=", ".join(sorted({run.mark for run in parts} - {""})),
            )


def _printed(scores: paper.Scores, plan: _Plan, datasets: Sequence[str]) -> Iterator[Row]:
    shown = [name for name in datasets if name in scores.by_dataset]
    if not shown:
        return
    whole = len(shown) == len(paper.DATASETS)
    average = scores.average if whole else scores.mean(shown)
    cells = [(dataset_label(d), scores.by_dataset[d], paper.QUESTIONS[d]) for d in shown]
    averaged = [(AVERAGE, average, None)] if len(datasets) == len(shown) > 1 else []
    for dataset, values, n in (*cells, *averaged):
        yield Row(
            method=plan.label(scores.method, paper.K),
            lm=scores.lm,
            dataset=dataset,
            values=tuple(values),
            n=n,
            source="paper",
        )
