"""`ga-dspy eval`, `arena`, `report`, `gaps` and `view`."""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import dspy
from rich.table import Table
from typer import Argument, Exit, Option

from ga_dspy import viewer
from ga_dspy.artifact import nothing
from ga_dspy.cli import choices
from ga_dspy.cli.choices import Asking, EvaluatingOptions, JudgedOptions, LMs
from ga_dspy.cli.console import Console, columns, number, show_progress
from ga_dspy.errors import InputError
from ga_dspy.eval import Report, load, load_report, run_program
from ga_dspy.eval.arena import Benchmark, plan_runs, run_arena, select_methods
from ga_dspy.eval.comparison import BASELINE, collect, write_report
from ga_dspy.eval.methods import methods
from ga_dspy.eval.report import usage_by_step
from ga_dspy.programs import MultiHopProgram, Usage
from ga_dspy.programs.gaps import report_gaps
from ga_dspy.secrets import without_password
from ga_dspy.storage import write_atomically

if TYPE_CHECKING:
    from ga_dspy.optimize.tracking import Tracked

TRACED = 5
"""How many questions of a run, those with the worst scores, are logged with a trace."""
_DATA = "File of questions in the dataset's format, or your own .jsonl, .json or .csv."
_RETRY = "Also retry permanent failures."
_TRACK = "MLflow tracking URI to log to: a server's address, or sqlite:///FILE."
_PROGRAMS = "all, or comma-separated names and groups: methods, ablations, depths, steps, graphrag."
_TOKENS = "Token budget per question, the same for every method."


@dataclass(frozen=True)
class RunOptions:
    """The options that `eval` and `arena` share."""

    limit: choices.Limit = None
    threads: choices.Threads = 1
    retry_failed: Annotated[bool, Option("--retry-failed", help=_RETRY)] = False
    track: Annotated[str | None, Option(help=_TRACK)] = None


def evaluate(
    asking: Annotated[Asking, EvaluatingOptions],
    dataset: choices.Dataset,
    data: Annotated[Path, Option(help=_DATA)],
    out: Annotated[Path, Option(help="Folder of the run: summary.json, predictions.jsonl.")],
    options: RunOptions,
) -> None:
    r"""Score a program on a dataset. Run the same command again to resume.

    Exit codes: 1 if some questions failed, 2 if the run could not finish, 130 after Ctrl-C.

    Examples:
        ga-dspy eval --dataset qa --data questions.csv --index my-index --out runs/mine
        ga-dspy eval --dataset hotpotqa --data dev.json --index my-index --out runs/dev \
            --limit 100
    """
    console, name, models = Console(), asking.name, asking.models
    examples = load(dataset, data, limit=options.limit)
    with show_progress(console) as advance:
        report = run_program(
            asking.program, examples, out=out, lm=models.lm, judge=models.judge,
            threads=options.threads, retry_failures=options.retry_failed,
            about={"name": name, "dataset": dataset, "source": data, "limit": options.limit},
            progress=lambda now: advance(name, now.done, now.total, now),
        )  # fmt: skip
    console.note_embedded_lm(*models.all)
    console.print(summary_table({name: report}))
    console.print_first("failed", [f"{one.id}: {one.error}" for one in report.failed], style="red")
    lost = [f"{one.id}: {'; '.join(one.step_failures)}" for one in report.degraded]
    console.print_first("answered without a step", lost, style="yellow")
    if options.track:
        log = partial(track_report, report, options.track, out)
        _show_tracked(console, [track(console, log, asking.program, report, examples, models.lm)])
    console.print(f"\nwrote {out}/summary.json and predictions.jsonl")
    _finish(console, [report])


def _finish(console: Console, reports: Sequence[Report]) -> None:
    """Print the cost, and how to retry failed questions.

    Raises:
        Exit: Some questions failed; the exit code is 1.
    """
    spent = Usage.total(report.usage for report in reports)
    cached = f"{spent.cached:,} of {number(spent.calls, 'LM call')} from the cache"
    console.print("; ".join(filter(None, (cached, spent.failures, spent.cuts))), style="dim")
    if any(report.protocol.lms for report in reports):
        _show_step_usage(console, reports)
    for report in reports:
        if judge := report.summary().get("judge"):
            usage = Usage.model_validate(judge["usage"])
            cost = f"{number(usage.calls, 'call')}, {usage.tokens:,} tokens in addition"
            console.print(f"judged by {judge['lm']}: {cost}", style="dim")
            lines = [f"{one['id']}: {one['error']}" for one in judge["failed"]]
            console.print_first("not judged", lines, style="red")
    failed = [result for report in reports for result in report.failed]
    if failed:
        transient = sum(result.is_transient for result in failed)
        console.warn(
            f"{number(len(failed), 'question')} failed: run again to retry those that an outage "
            f"or a timeout failed ({transient:,}), with --retry-failed also the others "
            f"({len(failed) - transient:,})",
        )
        raise Exit(1)


def _show_step_usage(console: Console, reports: Sequence[Report]) -> None:
    """Print the cost of each step with its LM."""
    spent = defaultdict[tuple[str, str], list[Usage]](list)
    for report in reports:
        for step, usage in usage_by_step(report.results).items():
            spent[step, report.protocol.lm_of(step)].append(usage)
    for (step, lm), parts in spent.items():
        console.print_usage(step, lm, Usage.total(parts))


def track(
    console: Console, log: Callable[[], Tracked], program: MultiHopProgram, report: Report,
    examples: Sequence[dspy.Example], lm: dspy.BaseLM,
) -> Tracked | None:  # fmt: skip
    """Log a run to MLflow; if it is new there, ask its worst questions again and log their traces.

    Args:
        console: Where to print failures.
        log: Logs the run.
        program: The program that was run.
        report: The report of the run.
        examples: The questions of the run.
        lm: The LM that answers.
    """
    from ga_dspy.optimize.mlflow_store import TrackingFailed
    from ga_dspy.tracing import trace_questions, worst

    logged = None
    try:
        logged = log()
        if logged.is_new:
            with dspy.context(lm=lm):
                asked = worst(report, examples, TRACED)
                trace_questions(program, asked, report, uri=logged.uri, run_id=logged.run_id)
    except TrackingFailed as failure:
        again = "" if logged else "; the same command logs it, without repeating finished calls"
        console.warn(f"{'no traces' if logged else 'not tracked'}: {failure}{again}")
    return logged


def track_report(report: Report, store: str, out: Path) -> Tracked:
    """Log a run to an MLflow store; artifacts of a local store go beside the run."""
    from ga_dspy.optimize.tracking import track_evaluation

    return track_evaluation(report, uri=store, root=out.absolute().parent)


def _show_tracked(console: Console, tracked: Sequence[Tracked | None]) -> None:
    logged = [one for one in tracked if one]
    if logged:
        new = sum(one.is_new for one in logged)
        known = f", {len(logged) - new} already there" if new < len(logged) else ""
        place = without_password(logged[-1].uri)
        console.print(f"MLflow: {number(new, 'new run')}{known} in {place}", soft_wrap=True)


_SUMMARY_COLUMNS = {
    "F1": ("f1", ".1f"), "95 %": ("interval", ""), "EM": ("em", ".1f"), "judge": ("judged", ".1f"),
    "recall": ("support_recall", ".1f"), "failed": ("failures", ","), "degraded": ("degraded", ","),
    "steps": ("steps_mean", ",.1f"), "calls": ("lm_calls_mean", ",.1f"),
    "tokens": ("tokens_mean", ",.0f"),
}  # fmt: skip


def summary_table(reports: Mapping[str, Report]) -> Table:
    """Return a table with a row per program and a column per score; empty columns are omitted."""
    cells = defaultdict[str, list[str]](list)
    for name, report in reports.items():
        summary = report.summary()
        low, high = summary["ci95"]
        summary |= {"judged": report.judged, "interval": f"{low:.0f}–{high:.0f}"}
        summary["degraded"] = summary["degraded"] or None
        cells["program"].append(name)
        for heading, (key, form) in _SUMMARY_COLUMNS.items():
            cells[heading].append("" if summary[key] is None else format(summary[key], form))
    shown = [heading for heading, column in cells.items() if any(column)]
    table = columns(*shown, right=shown[1:])
    for row in zip(*map(cells.__getitem__, shown), strict=True):
        table.add_row(*row)
    table.columns[0].no_wrap = True
    table.title_justify = table.caption_justify = "left"
    protocols = [report.protocol for report in reports.values()]
    lms, first = dict.fromkeys(protocol.lm_names for protocol in protocols), protocols[0]
    table.title = f"{first.dataset} {first.source}, {first.n} questions, {' or '.join(lms)}"
    table.title_style = "bold"
    table.caption = "F1 and EM by HotpotQA's official rule; steps, calls and tokens per question"
    return table


def arena(
    models: Annotated[LMs, JudgedOptions],
    dataset: Annotated[list[str], Option(help="Dataset of a --data file; once per file.")],
    data: Annotated[list[Path], Option(help=_DATA)],
    index: Annotated[list[Path], Option(help="Index over the passages of a --data file.")],
    out: Annotated[Path, Option(help="Folder for the runs, one subfolder each.")],
    options: RunOptions,
    programs: Annotated[str, Option(help=_PROGRAMS)] = "all",
    graph: Annotated[list[Path] | None, Option(help="Graph of an --index, for GraphRAG.")] = None,
    artifact: Annotated[list[str] | None, Option(help="Compiled program to include.")] = None,
    tokens: Annotated[int | None, Option(help=_TOKENS)] = None,
    settings: choices.Settings = None,
) -> None:
    r"""Compare methods under one protocol. Run the same command again to resume.

    By default, all methods of the paper run; with --graph, those of GraphRAG, too.

    Examples:
        ga-dspy arena --dataset qa --data questions.csv --index my-index --out runs \
            --programs methods
    """
    console = Console()
    kinds = {one.program for one in methods(programs)}
    kinds |= {choices.program_class("", path) for path in artifact or ()}
    contestants = select_methods(
        programs, artifacts=artifact or (), graphs=bool(graph), tokens=tokens,
        settings=choices.choose_settings(settings, *kinds), lms=models.steps,
    )  # fmt: skip
    if not models.is_for_all:
        models.check(*(one.make(nothing) for one in contestants))
    planned = plan_runs(contestants, _benchmarks(dataset, data, index, graph or []), out)
    own = "".join(f", {step}: {one.model}" for step, one in models.steps.items())
    console.print(f"{len(planned)} runs in {out}, LM {models.lm.model}{own}")
    reports = defaultdict[Benchmark, dict[str, Report]](dict)
    tracked: list[Tracked | None] = []
    store = options.track
    with show_progress(console) as advance:
        for run, report, program in run_arena(
            planned, lm=models.lm, judge=models.judge, limit=options.limit,
            threads=options.threads, retry_failures=options.retry_failed,
            progress=lambda run, now: advance(run.name, now.done, now.total, now),
        ):  # fmt: skip
            lost = {"failed": len(report.failed), "degraded": len(report.degraded)}
            counts = "".join(f", {count} {what}" for what, count in lost.items() if count)
            scores = f"F1 {report.f1:.1f}, EM {report.em:.1f}, {report.seconds:.0f} s{counts}"
            console.print(f"{run.name}: {scores}, protocol {report.protocol.hash}", style="dim")
            reports[run.benchmark][run.contestant.folder] = report
            if store:
                asked = load(run.benchmark.dataset, run.benchmark.data, limit=options.limit)
                log = partial(track_report, report, store, out)
                tracked.append(track(console, log, program, report, asked, models.lm))
                # All runs go to one store: the local one if the other failed, none if both did.
                store = tracked[-1].uri if tracked[-1] else None
    for by_name in reports.values():
        console.print()
        console.print(summary_table(by_name))
    console.note_embedded_lm(*models.all)
    _show_tracked(console, tracked)
    console.print("\nTables and figures:")
    console.print(f"  ga-dspy report {out} --out {out / 'report'}", style="bold")
    _finish(console, [report for by_name in reports.values() for report in by_name.values()])


def _benchmarks(
    datasets: Sequence[str], data: Sequence[Path], indexes: Sequence[Path], graphs: Sequence[Path]
) -> list[Benchmark]:
    counts = (len(datasets), len(data), len(indexes), len(graphs))
    if len({*counts[:3], counts[3] or counts[0]}) > 1:
        found = "{} --dataset, {} --data, {} --index and {} --graph".format(*counts)
        remedy = "repeat them for every dataset; --graph only if GraphRAG takes part"
        raise InputError(found, expected="the same number of each", remedy=remedy)
    given: Sequence[Path | None] = graphs or [None] * counts[0]
    return [Benchmark(*part) for part in zip(datasets, data, indexes, given, strict=True)]


def report(
    folders: Annotated[list[Path], Argument(help="Folders with finished runs.")],
    out: Annotated[Path, Option(help="Folder for report.md, tables and figures.")],
    baseline: Annotated[str, Option(help="Method to compare the others with.")] = BASELINE,
) -> None:
    """Write a report on finished runs: which method is best, with tables and figures.

    Examples:
        ga-dspy report runs --out runs/report
    """
    console = Console()
    runs = collect(folders)
    verdicts, figures = write_report(runs, out, baseline)
    for verdict in verdicts:
        console.print(verdict.replace("*", ""), soft_wrap=True)
    drawn = [figure for figure in figures if figure.path]
    for figure in figures:
        if not figure.path:
            console.print(f"{figure.group}: {figure.caption}", style="dim", soft_wrap=True)
    counts = f"{number(len(runs), 'run')}, {number(len(drawn), 'figure')}"
    console.print(f"{counts}: {out / 'report.md'}")


def gaps(
    file: Annotated[Path, Argument(help="File that `ga-dspy serve --gaps` writes.")],
    most: Annotated[int, Option(min=1, help="Maximum number of names and of queries.")] = 20,
) -> None:
    """List what your documents lack: the names and queries that found no evidence.

    Examples:
        ga-dspy gaps gaps.jsonl
    """
    console, found = Console(), report_gaps(file)
    console.print(f"{number(found.questions, 'question')} without evidence", style="bold")
    if found.restricted:
        console.print(f"{found.restricted:,} restricted by conditions or labels, without text")
    if found.unreadable:
        console.print(f"{number(found.unreadable, 'line')} cannot be read", style="yellow")
    for heading, wanted in (("unknown name", found.names), ("last query", found.queries)):
        if wanted:
            rows = [(f"{one.questions:,}", one.text, one.example) for one in wanted]
            console.print()
            console.print_table(
                rows, "questions", heading, "for example", most=most, right=("questions",)
            )


def view(
    path: Annotated[Path, Argument(help="Output of `ask --json`, - for stdin, or a run's folder.")],
    out: Annotated[Path, Option(help="HTML file to write.")] = Path("page.html"),
    beside: Annotated[Path | None, Option(help="Folder of another run to compare with.")] = None,
) -> None:
    """Write a page that shows how answers were found: one HTML file that works offline.

    Examples:
        ga-dspy view answer.json --out page.html
        ga-dspy view runs/graph-anchor --beside runs/vanilla-rag --out compared.html
    """
    if path.is_dir():
        page = viewer.run_page(load_report(path), load_report(beside) if beside else None)
    elif beside:
        found = f"{path} --beside {beside}"
        raise InputError(found, expected="the folders of two runs", remedy="pass two runs")
    else:
        record = _prediction(path)
        page = viewer.page(record.pop("question"), record)
    write_atomically(out, page)
    Console().print(f"wrote {out}: open it in a browser")


def _prediction(path: Path) -> dict[str, Any]:
    """Read the output of `ga-dspy ask --json`.

    Raises:
        InputError: It is something else.
    """
    text = sys.stdin.read() if path == Path("-") else path.read_text("utf-8")
    try:
        record = json.loads(text)
    except ValueError:
        record = text
    if isinstance(record, dict) and {"question", "answer", "steps", "passages"} <= record.keys():
        return record
    remedy = 'make one: ga-dspy ask "…" --index DIR --json > answer.json'
    raise InputError(f"{path}: {record!r:.80}", expected="a prediction as JSON", remedy=remedy)
