"""`ga-dspy eval`, `arena` and `report`."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import dspy
import typer
from rich.console import Console
from rich.progress import TaskID
from rich.table import Table

from ga_dspy.arena import Ground, Round, Run, Runs, collect, compete, entrants, rounds
from ga_dspy.arena.attention_report import as_rows, cases_of, measure_all, plot_all
from ga_dspy.arena.figures import draw_figures
from ga_dspy.arena.methods import method
from ga_dspy.arena.report import write_report
from ga_dspy.arena.runs import dataset_label, lm_label
from ga_dspy.cli.choices import (
    ApiBase,
    Artifact,
    Dataset,
    Graph,
    IndexDir,
    K,
    Limit,
    MaxSteps,
    Model,
    Program,
    Score,
    Threads,
    Timeout,
    choose_corpus,
    choose_lm,
    choose_program,
    choose_score,
    given,
)
from ga_dspy.cli.console import columns, progress_bar, say_embedded, warn
from ga_dspy.drawing import save
from ga_dspy.errors import InputError
from ga_dspy.eval import Report, RunProgress, load, protocol_of, run

ANCHORED = "graph-anchor"


def evaluate(
    dataset: Dataset,
    data: Annotated[Path, typer.Option(help="A file in the dataset's official format.")],
    index: IndexDir,
    out: Annotated[Path, typer.Option(help="Folder for summary.json and predictions.jsonl.")],
    program: Program = "graph-anchor",
    artifact: Artifact = None,
    lm: Model = None,
    api_base: ApiBase = None,
    timeout: Timeout = 120.0,
    graph: Graph = None,
    limit: Limit = None,
    threads: Threads = 1,
    track: Annotated[
        str | None, typer.Option(help="Log the run to this MLflow store (an address, or sqlite).")
    ] = None,
    k: K = None,
    max_steps: MaxSteps = None,
    score: Score = "official",
) -> None:
    """Score a program on a dataset; run again to go on where it stopped."""
    console, model = Console(), choose_lm(lm, api_base, timeout)
    name = artifact or program
    with dspy.context(lm=model):
        corpus = choose_corpus(index, graph, program, artifact)
        chosen = choose_program(program, artifact, corpus, **given(k=k, max_steps=max_steps))
    report = run_program(
        console, chosen, name, dataset, data, out, model,
        limit=limit, threads=threads, score=score,
    )  # fmt: skip
    say_embedded(console, model)
    console.print(summary_table({name: report}))
    for failed in report.failed[:10]:
        console.print(f"failed: {failed.id}: {failed.error}", style="red", markup=False)
    if track:
        _track(console, report, track, out)
    console.print(f"\nwrote {out}/summary.json and predictions.jsonl", markup=False)


def run_program(
    console: Console,
    program: Any,
    name: str,
    dataset: str,
    data: Path,
    out: Path,
    lm: dspy.LM,
    *,
    limit: int | None = None,
    threads: int = 1,
    score: str = "official",
) -> Report:
    """Ask a program the questions of a file, with a progress bar."""
    examples = load(dataset, data, limit=limit)
    protocol = protocol_of(
        program, examples, name=name, dataset=dataset, source=data, lm=lm,
        score=choose_score(score), limit=limit,
    )  # fmt: skip
    with dspy.context(lm=lm), progress_bar(console) as bar:
        task = bar.add_task(name, total=len(examples))

        def advance(progress: RunProgress) -> None:
            bar.update(task, completed=progress.done)

        return run(program, examples, out=out, protocol=protocol, threads=threads, progress=advance)


def _track(console: Console, report: Report, uri: str, out: Path) -> None:
    from ga_dspy.optimize.tracking import track_evaluation

    logged = track_evaluation(
        report, uri=uri, root=out.absolute().parent, say=lambda message: warn(console, message)
    )
    if logged:
        console.print(f"MLflow: run {logged.run_id} in {logged.uri}", markup=False)


def summary_table(reports: dict[str, Report]) -> Table:
    """Programs as rows, scores in percent as columns."""
    protocol = next(iter(reports.values())).protocol
    figures = ("F1", "95 %", "EM", "recall", "failed", "steps", "calls", "tokens")
    table = columns("program", *figures, right=figures)
    table.columns[0].no_wrap = True
    table.title_justify, table.title_style = "left", "bold"
    table.title = f"{protocol.dataset} {protocol.source}, {protocol.n} questions, {protocol.lm}"
    for name, report in reports.items():
        s = report.summary()
        low, high = s["ci95"]
        values = ((s["support_recall"], ".1f"), (s["failures"], ""), (s["steps_mean"], ",.1f"),
                  (s["lm_calls_mean"], ",.1f"), (s["tokens_mean"], ",.0f"))  # fmt: skip
        cells = ("" if value is None else format(value, form) for value, form in values)
        table.add_row(name, f"{s['f1']:.1f}", f"{low:.0f}–{high:.0f}", f"{s['em']:.1f}", *cells)
    return table


def arena(
    dataset: Annotated[list[str], typer.Option(help="A dataset; once for each file.")],
    data: Annotated[list[Path], typer.Option(help="Its file, in the official format.")],
    index: Annotated[list[Path], typer.Option(help="The index over its passages.")],
    out: Annotated[Path, typer.Option(help="Folder for the runs, one below it for each.")],
    programs: Annotated[
        str,
        typer.Option(
            help="all, methods, ablations, graph-use, depths, steps, graphrag, or names, with "
            "commas."
        ),
    ] = "all",
    graph: Annotated[
        list[Path] | None, typer.Option(help="The graph of its passages, for GraphRAG.")
    ] = None,
    artifact: Annotated[
        list[str] | None, typer.Option(help="A compiled program that takes part; repeatable.")
    ] = None,
    lm: Model = None,
    api_base: ApiBase = None,
    timeout: Timeout = 120.0,
    tokens: Annotated[
        int | None,
        typer.Option(help="Equal tokens: about so many a question for every method."),
    ] = None,
    limit: Limit = None,
    threads: Threads = 1,
    k: K = None,
    max_steps: MaxSteps = None,
    score: Score = "official",
) -> None:
    """Run every method under one protocol; run again to go on where it stopped."""
    console, model = Console(), choose_lm(lm, api_base, timeout)
    taking_part = entrants(
        programs, artifacts=artifact or (), graphs=bool(graph), tokens=tokens,
        settings=given(k=k, max_steps=max_steps),
    )  # fmt: skip
    planned = rounds(taking_part, _grounds(dataset, data, index, graph or []), out)
    console.print(f"{len(planned)} runs in {out}, LM {model.model}", markup=False)
    reports: dict[Ground, dict[str, Report]] = {}
    with progress_bar(console) as bar:
        whole = bar.add_task("all runs", total=len(planned))
        tasks: dict[Round, TaskID] = {}

        def advance(one: Round, state: RunProgress) -> None:
            if one not in tasks:
                tasks[one] = bar.add_task(_name(one), total=state.total)
            bar.update(tasks[one], completed=state.done)

        for one, report in compete(
            planned, lm=model, limit=limit, score=choose_score(score), threads=threads,
            progress=advance,
        ):  # fmt: skip
            bar.remove_task(tasks[one])
            bar.advance(whole)
            failed = f", {len(report.failed)} failed" if report.failed else ""
            console.print(
                f"{_name(one)}: F1 {report.f1:.1f}, EM {report.em:.1f}, {report.seconds:.0f} s"
                f"{failed}, protocol {report.protocol.hash}",
                markup=False, style="dim",
            )  # fmt: skip
            reports.setdefault(one.ground, {})[one.entrant.folder] = report
    for by_name in reports.values():
        console.print()
        console.print(summary_table(by_name))
    say_embedded(console, model)
    console.print("\nTables and figures:")
    console.print(f"  ga-dspy report {out} --out {out / 'report'}", style="bold", markup=False)


def _name(one: Round) -> str:
    return f"{one.ground.dataset} {one.entrant.folder}"


def _grounds(
    datasets: Sequence[str],
    data: Sequence[Path],
    indexes: Sequence[Path],
    graphs: Sequence[Path | None],
) -> list[Ground]:
    counts = (len(datasets), len(data), len(indexes), len(graphs))
    if len({*counts[:3], counts[3] or counts[0]}) > 1:
        raise InputError(
            "{} --dataset, {} --data, {} --index and {} --graph".format(*counts),
            expected="as many of each: they go together in order",
            remedy="repeat them for every dataset; graphs only where GraphRAG takes part",
        )
    parts = zip(datasets, data, indexes, graphs or [None] * counts[0], strict=True)
    return [Ground(*part) for part in parts]


def report(
    folders: Annotated[list[Path], typer.Argument(help="Folders with finished runs.")],
    out: Annotated[Path, typer.Option(help="Folder for report.md, tables and figures.")],
    baseline: Annotated[
        str, typer.Option(help="The method that the others are tested against.")
    ] = "vanilla-rag",
    unlike: Annotated[
        bool,
        typer.Option("--unlike", help="Mark runs under other protocols instead of refusing them."),
    ] = False,
    attention: Annotated[
        Path | None,
        typer.Option(help="Folder of a Hugging Face causal LM: Figures 5 and 6 as well."),
    ] = None,
    attention_limit: Annotated[
        int | None, typer.Option(help="Only the first N questions that used every step.")
    ] = None,
) -> None:
    """Make the paper's tables and figures from finished runs."""
    console = Console()
    method(baseline)
    runs = collect(folders, unlike=unlike)
    drawn = draw_figures(runs, out)
    pictures = dict(drawn.pictures)
    if attention is not None:
        for one in _anchored(runs, attention):
            pictures |= _draw_attention(console, one, attention, attention_limit, out)
    path = write_report(runs, out, baseline, pictures)
    for lacking in drawn.lacking:
        console.print(lacking, style="dim", markup=False)
    console.print(f"{len(runs.runs)} runs, {len(pictures)} pictures: {path}", markup=False)


def _anchored(runs: Runs, model: Path) -> list[Run]:
    chosen = [one for one in runs if one.method == ANCHORED and one.budget is None]
    if not chosen:
        raise InputError(
            f"--attention without a run of {ANCHORED}",
            expected=f"one among the folders: its graphs and passages are shown to {model}",
            remedy=f"run `ga-dspy arena --programs {ANCHORED}` first",
        )
    return chosen


def _draw_attention(
    console: Console, one: Run, model: Path, limit: int | None, out: Path
) -> dict[str, Path]:
    """Figures 5 and 6 of a GraphAnchor run, with their values beside them."""
    cases = cases_of(one.report)[:limit]
    with progress_bar(console) as bar:
        task = bar.add_task(f"attention, {one.dataset}", total=len(cases))
        measured = measure_all(
            cases, model, progress=lambda state: bar.update(task, completed=state.done)
        )
    for skipped in measured.skipped:
        console.print(f"not measured: {skipped.question}: {skipped.reason}", markup=False)
    stem = f"{one.dataset}-{one.lm}".replace("/", "-").replace(" ", "-")
    _write_rows(as_rows(measured), out / "tables" / f"attention-{stem}.csv")
    pictures = {}
    for name, figure in plot_all(measured).items():
        path = out / "figures" / f"figure-{name}-{stem}.png"
        save(figure, path)
        where = f"{dataset_label(one.dataset)}, graphs of {lm_label(one.lm)}"
        pictures[f"Figure {name}: attention of {measured.model}, {where}"] = path
    return pictures


def _write_rows(rows: Sequence[dict[str, Any]], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]) if rows else ["figure"])
        writer.writeheader()
        writer.writerows(rows)
