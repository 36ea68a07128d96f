"""`ga-dspy arena`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.progress import TaskID

from ga_dspy.arena import Ground, Round, compete, entrants, rounds
from ga_dspy.cli.evaluate import progress_bar, summary_table
from ga_dspy.cli.models import Choice, choose_lm
from ga_dspy.cli.show import EXTRACTIVE_NOTE
from ga_dspy.errors import InputError
from ga_dspy.eval import Progress, Report, ScoreVariant


@dataclass(frozen=True)
class ArenaArgs:
    """The arguments of an arena; datasets, data and indexes go together by position."""

    datasets: Sequence[str]
    data: Sequence[Path]
    indexes: Sequence[Path]
    out: Path
    graphs: Sequence[Path] = ()
    programs: str = "all"
    artifacts: Sequence[str] = ()
    tokens: int | None = None
    limit: int | None = None
    threads: int = 1
    score: ScoreVariant = "official"
    choice: Choice = field(default_factory=Choice)


def run_arena(args: ArenaArgs) -> None:
    """Make every run, print a table a dataset, and say how to make the report."""
    console = Console()
    chosen = choose_lm(args.choice)
    planned = rounds(
        entrants(
            args.programs,
            artifacts=args.artifacts,
            graphs=bool(args.graphs),
            tokens=args.tokens,
            settings=args.choice.settings,
        ),
        _grounds(args),
        args.out,
    )
    console.print(f"{len(planned)} runs in {args.out}, LM {chosen.name}", markup=False)
    reports: dict[Ground, dict[str, Report]] = {}
    with progress_bar(console) as bar:
        whole = bar.add_task("all runs", total=len(planned))
        tasks: dict[Round, TaskID] = {}

        def advance(planned_round: Round, state: Progress) -> None:
            if planned_round not in tasks:
                label = f"{planned_round.ground.dataset} {planned_round.entrant.folder}"
                tasks[planned_round] = bar.add_task(label, total=state.total)
            bar.update(tasks[planned_round], completed=state.done)

        for planned_round, report in compete(
            planned, lm=chosen.lm, limit=args.limit, score=args.score, threads=args.threads,
            progress=advance,
        ):  # fmt: skip
            bar.remove_task(tasks[planned_round])
            bar.advance(whole)
            _say(console, planned_round, report)
            reports.setdefault(planned_round.ground, {})[planned_round.entrant.folder] = report
    for by_name in reports.values():
        console.print()
        console.print(summary_table(by_name))
    if chosen.is_embedded:
        console.print(EXTRACTIVE_NOTE, style="dim")
    console.print("\nTables and figures:")
    command = f"  ga-dspy report {args.out} --out {args.out / 'report'}"
    console.print(command, style="bold", markup=False)


def _grounds(args: ArenaArgs) -> list[Ground]:
    given = (len(args.datasets), len(args.data), len(args.indexes), len(args.graphs))
    if len({*given[:3], given[3] or given[0]}) > 1:
        raise InputError(
            "{} --dataset, {} --data, {} --index and {} --graph".format(*given),
            expected="as many of each: they go together in order",
            remedy="repeat them for every dataset; graphs only where GraphRAG takes part",
        )
    graphs: Sequence[Path | None] = args.graphs or [None] * len(args.datasets)
    parts = zip(args.datasets, args.data, args.indexes, graphs, strict=True)
    return [Ground(*part) for part in parts]


def _say(console: Console, planned: Round, report: Report) -> None:
    name = f"{planned.ground.dataset} {planned.entrant.folder}"
    failed = f", {len(report.failed)} failed" if report.failed else ""
    told = f"F1 {report.f1:.1f}, EM {report.em:.1f}, {report.seconds:.0f} s{failed}"
    console.print(f"{name}: {told}, protocol {report.protocol.hash}", markup=False, style="dim")
