"""`ga-dspy eval`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dspy
from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from ga_dspy.cli.models import Choice, choose_corpus, choose_lm, choose_program
from ga_dspy.cli.show import EXTRACTIVE_NOTE
from ga_dspy.eval import Report, ScoreVariant, load, protocol_of, run


@dataclass(frozen=True)
class Run:
    """The arguments of one evaluation, in the order of the command line."""

    dataset: str
    data: Path
    index: Path
    out: Path
    choice: Choice = field(default_factory=Choice)
    limit: int | None = None
    threads: int = 1
    track: str | None = None
    score: ScoreVariant = "official"


def run_eval(args: Run) -> None:
    """Evaluate, show a progress bar, print and write the summary."""
    console = Console()
    report = evaluated(args, console)
    console.print(summary_table({args.choice.name: report}))
    for failed in report.failed[:10]:
        console.print(f"failed: {failed.id}: {failed.error}", style="red", markup=False)
    if args.track:
        _tracked(report, args, console)
    console.print(f"\nwrote {args.out}/summary.json and predictions.jsonl", markup=False)


def _tracked(report: Report, args: Run, console: Console) -> None:
    from ga_dspy.optimize.tracking import track_evaluation

    def say(message: str) -> None:
        console.print(message, style="yellow", markup=False)

    logged = track_evaluation(report, uri=args.track, root=args.out.absolute().parent, say=say)
    if logged:
        console.print(f"MLflow: run {logged.run_id} in {logged.uri}", markup=False)


def evaluated(args: Run, console: Console, *, note: bool = True) -> Report:
    """Run the evaluation that the arguments name, with a progress bar."""
    chosen = choose_lm(args.choice)
    examples = load(args.dataset, args.data, limit=args.limit)
    with dspy.context(lm=chosen.lm):
        program = choose_program(args.choice, choose_corpus(args.index, args.choice))
    protocol = protocol_of(
        program,
        examples,
        name=args.choice.name,
        dataset=args.dataset,
        source=args.data,
        lm=chosen.lm,
        score=args.score,
        limit=args.limit,
    )
    with dspy.context(lm=chosen.lm), progress_bar(console) as bar:
        task = bar.add_task(args.choice.name, total=len(examples))

        def advance(progress: Any) -> None:
            bar.update(task, completed=progress.done)

        report = run(
            program, examples, out=args.out, protocol=protocol, threads=args.threads,
            progress=advance,
        )  # fmt: skip
    if note and chosen.is_embedded:
        console.print(EXTRACTIVE_NOTE, style="dim")
    return report


def progress_bar(console: Console) -> Progress:
    """A bar that tells how many are done and how long the rest will take."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
    )


def summary_table(reports: dict[str, Report]) -> Table:
    """Programs as rows, scores in percent as columns."""
    any_report = next(iter(reports.values()))
    protocol = any_report.protocol
    table = Table(
        title=f"{protocol.dataset} {protocol.source}, {protocol.n} questions, {protocol.lm}",
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        show_edge=False,
    )
    table.add_column("program", no_wrap=True)
    for heading in ("F1", "95 %", "EM", "recall", "failed", "steps", "calls", "tokens"):
        table.add_column(heading, justify="right", no_wrap=True)
    for name, report in reports.items():
        s = report.summary()
        low, high = s["ci95"]
        recall = "" if s["support_recall"] is None else f"{s['support_recall']:.1f}"
        counts = (s["steps_mean"], s["lm_calls_mean"], s["tokens_mean"])
        table.add_row(
            name,
            f"{s['f1']:.1f}",
            f"{low:.0f}–{high:.0f}",
            f"{s['em']:.1f}",
            recall,
            str(s["failures"]),
            *("" if count is None else f"{count:,.1f}" for count in counts[:2]),
            "" if counts[2] is None else f"{counts[2]:,.0f}",
        )
    return table
