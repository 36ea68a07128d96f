"""`ga-dspy report`."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from ga_dspy.arena import Run, Runs, collect
from ga_dspy.arena.attention import AttentionReport, as_rows, cases_of, measure_all, plot_all
from ga_dspy.arena.figures import draw_figures
from ga_dspy.arena.labels import dataset_label, lm_label
from ga_dspy.arena.methods import method
from ga_dspy.arena.written import write_report
from ga_dspy.cli.evaluate import progress_bar
from ga_dspy.drawing import save
from ga_dspy.errors import InputError

ANCHORED = "graph-anchor"


def run_report(
    folders: Sequence[Path],
    out: Path,
    *,
    baseline: str,
    unlike: bool,
    attention: Path | None,
    limit: int | None,
) -> None:
    """Write the report of finished runs, and say what it could not show."""
    console = Console()
    method(baseline)
    runs = collect(folders, unlike=unlike)
    drawn = draw_figures(runs, out)
    pictures = dict(drawn.pictures)
    if attention is not None:
        pictures |= _attention(runs, attention, out, limit, console)
    written = write_report(runs, out, baseline, pictures)
    for lacking in drawn.lacking:
        console.print(str(lacking), style="dim", markup=False)
    console.print(f"{len(runs.runs)} runs, {len(pictures)} pictures: {written}", markup=False)


def _attention(
    runs: Runs, model: Path, out: Path, limit: int | None, console: Console
) -> dict[str, Path]:
    """Figures 5 and 6 of every GraphAnchor run, with their values beside them."""
    pictures: dict[str, Path] = {}
    chosen = [run for run in runs if run.method == ANCHORED and run.budget is None]
    if not chosen:
        raise InputError(
            f"--attention without a run of {ANCHORED}",
            expected=f"one among the folders: its graphs and passages are shown to {model}",
            remedy=f"run `ga-dspy arena --programs {ANCHORED}` first",
        )
    for run in chosen:
        measured = _measured(run, model, limit, console)
        stem = f"{run.dataset}-{run.lm}".replace("/", "-").replace(" ", "-")
        _write_rows(measured, out / "tables" / f"attention-{stem}.csv")
        for name, figure in plot_all(measured).items():
            path = out / "figures" / f"figure-{name}-{stem}.png"
            save(figure, path)
            of = f"{dataset_label(run.dataset)}, graphs of {lm_label(run.lm)}"
            pictures[f"Figure {name}: attention of {measured.model}, {of}"] = path
    return pictures


def _measured(run: Run, model: Path, limit: int | None, console: Console) -> AttentionReport:
    cases = cases_of(run.report)[:limit]
    with progress_bar(console) as bar:
        task = bar.add_task(f"attention, {run.dataset}", total=len(cases))
        report = measure_all(
            cases, model, progress=lambda state: bar.update(task, completed=state.done)
        )
    for skipped in report.skipped:
        console.print(f"not measured: {skipped.question}: {skipped.reason}", markup=False)
    return report


def _write_rows(report: AttentionReport, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = as_rows(report)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]) if rows else ["figure"])
        writer.writeheader()
        writer.writerows(rows)
