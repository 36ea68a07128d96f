"""`ga-dspy eval`, `arena`, `report` and `view`."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import dspy
import typer
from rich.progress import TaskID
from rich.table import Table

from ga_dspy import viewer
from ga_dspy.arena import Ground, Round, collect, compete, entrants, rounds
from ga_dspy.arena.comparisons import contests
from ga_dspy.arena.figures import draw_figures
from ga_dspy.arena.methods import method, methods
from ga_dspy.arena.report import write_report
from ga_dspy.artifact.artifact import nothing
from ga_dspy.cli.choices import (
    AbortAfter,
    Addresses,
    Artifact,
    Dataset,
    Graph,
    IndexDir,
    JudgeModel,
    Limit,
    Models,
    Program,
    RetryFailed,
    Score,
    Settings,
    Threads,
    Timeout,
    Wanted,
    choose_corpus,
    choose_judge,
    choose_lms,
    choose_program,
    choose_settings,
    program_class,
)
from ga_dspy.cli.console import (
    Console,
    columns,
    minutes_told,
    number,
    progress_bar,
    say_embedded,
    say_spent,
    some,
    warn,
)
from ga_dspy.errors import InputError
from ga_dspy.eval import Report, RunProgress, ScoreVariant, load, load_report, protocol_of, run
from ga_dspy.eval.report import usage_by_step
from ga_dspy.programs import Usage
from ga_dspy.secrets import without_password
from ga_dspy.storage import write_whole

if TYPE_CHECKING:
    from ga_dspy.optimize.tracking import Tracked

TRACED = 5
"""Questions whose traces are logged: those that went worst."""

Track = Annotated[
    str | None, typer.Option(help="Log to this MLflow store (an address, or sqlite:///FILE).")
]


def evaluate(
    dataset: Dataset,
    data: Annotated[
        Path, typer.Option(help="A file in the dataset's format; of yours .jsonl, .csv.")
    ],
    index: IndexDir,
    out: Annotated[Path, typer.Option(help="Folder for summary.json and predictions.jsonl.")],
    program: Program = "graph-anchor",
    artifact: Artifact = None,
    lm: Models = None,
    api_base: Addresses = None,
    timeout: Timeout = None,
    graph: Graph = None,
    where: Wanted = None,
    limit: Limit = None,
    threads: Threads = 1,
    track: Track = None,
    settings: Settings = None,
    score: Score = "official",
    judge: JudgeModel = None,
    abort_after: AbortAfter = 10,
    retry_failed: RetryFailed = False,
) -> None:
    r"""Score a program on a dataset; run again to go on where it stopped.

    Exit code 1 where questions failed, 2 where the run could not end, 130 after Ctrl-C.

    Examples:
        ga-dspy eval --dataset qa --data questions.csv --index my-index --out runs/mine
        ga-dspy eval --dataset hotpotqa --data dev.json --index my-index --out runs/dev \
            --limit 100
    """
    console, models = Console(), choose_lms(lm, api_base, timeout)
    name, model = artifact or program, models.lm
    with dspy.context(lm=model):
        corpus = choose_corpus(index, graph, program, artifact, where)
        own = choose_settings(settings, program_class(program, artifact))
        chosen = choose_program(program, artifact, corpus, models, **own)
    report = run_program(
        console, chosen, name, dataset, data, out, model,
        limit=limit, threads=threads, score=score, abort_after=abort_after,
        retry_failed=retry_failed, judge=choose_judge(judge, models.address, timeout),
    )  # fmt: skip
    say_embedded(console, *models.all)
    console.print(summary_table({name: report}))
    some(console, "failed", [f"{one.id}: {one.error}" for one in report.failed], style="red")
    lost = [f"{one.id}: {'; '.join(one.step_failures)}" for one in report.degraded]
    some(console, "answered without a step", lost, style="yellow")
    if track:
        asked = load(dataset, data, limit=limit)
        _say_tracked(console, [_track(console, report, chosen, asked, model, track, out)])
    console.print(f"\nwrote {out}/summary.json and predictions.jsonl", markup=False)
    _end(console, [report])


def _end(console: Console, reports: Sequence[Report]) -> None:
    """Say what the calls came to, and how to ask failed questions again; exit code 1 for these."""
    spent = Usage.total(report.usage for report in reports)
    cached = f"{spent.cached:,} of {number(spent.calls, 'LM call')} from the cache"
    console.print("; ".join(filter(None, (cached, spent.failures, spent.cuts))), style="dim")
    _say_steps(console, reports)
    for judge in (r.summary()["judge"] for r in reports if r.protocol.judge):
        usage = Usage.model_validate(judge["usage"])
        cost = f"{number(usage.calls, 'call')}, {usage.tokens:,} tokens beside these"
        console.print(f"judged by {judge['lm']}: {cost}", style="dim")
        some(console, "not judged", [f"{one['id']}: {one['error']}" for one in judge["failed"]],
             style="red")  # fmt: skip
    if failed := [result for report in reports for result in report.failed]:
        passing = sum(result.may_pass for result in failed)
        warn(
            console,
            f"{number(len(failed), 'question')} failed: run again to ask anew what an outage or a "
            f"timeout failed ({passing:,}), with --retry-failed the others "
            f"({len(failed) - passing:,})",
        )
        raise typer.Exit(1)


def _say_steps(console: Console, reports: Sequence[Report]) -> None:
    """Print what each step cost, and its LM, where there is more than one LM."""
    spent: dict[tuple[str, str], list[Usage]] = {}
    for report in reports if any(one.protocol.lms for one in reports) else ():
        for step, usage in usage_by_step(report.results).items():
            spent.setdefault((step, report.protocol.lm_of(step)), []).append(usage)
    for (step, lm), parts in spent.items():
        say_spent(console, step, lm, Usage.total(parts))


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
    score: ScoreVariant = "official",
    abort_after: int = 10,
    retry_failed: bool = False,
    judge: dspy.LM | None = None,
) -> Report:
    """Ask a program the questions of a file, with a progress bar."""
    examples = load(dataset, data, limit=limit)
    protocol = protocol_of(
        program, examples, name=name, dataset=dataset, source=data, lm=lm,
        score=score, limit=limit, judge=judge,
    )  # fmt: skip
    latest: list[RunProgress] = []

    def state() -> str:
        return f"{name}: {latest[-1]}" if latest else ""

    with (
        dspy.context(lm=lm), progress_bar(console) as bar, minutes_told(console, state),
    ):  # fmt: skip
        task = bar.add_task(name, total=len(examples))

        def advance(progress: RunProgress) -> None:
            latest[:] = [progress]
            bar.update(task, completed=progress.done)

        return run(
            program, examples, out=out, protocol=protocol, threads=threads, progress=advance,
            retry_failures=retry_failed, abort_after=abort_after or None, judge=judge,
        )  # fmt: skip


def _track(
    console: Console,
    report: Report,
    program: Any,
    examples: Sequence[dspy.Example],
    lm: dspy.LM,
    uri: str,
    out: Path,
) -> Tracked | None:
    """Log a run to MLflow, with traces of the questions that went worst if it is new there."""
    from ga_dspy.optimize.tracking import track_evaluation

    say, root = (lambda message: warn(console, message)), out.absolute().parent
    logged = track_evaluation(report, uri=uri, root=root, say=say)
    if logged and logged.is_new:
        trace(console, program, report, examples, lm, uri=logged.uri, run_id=logged.run_id)
    return logged


def _say_tracked(console: Console, tracked: Sequence[Tracked | None]) -> None:
    if logged := [one for one in tracked if one]:
        new = sum(one.is_new for one in logged)
        there = f", {len(logged) - new} there before" if new < len(logged) else ""
        where = without_password(logged[-1].uri)
        runs = f"MLflow: {number(new, 'new run')}{there} in {where}"
        console.print(runs, markup=False, soft_wrap=True)


def trace(
    console: Console,
    program: Any,
    report: Report,
    examples: Sequence[dspy.Example],
    lm: dspy.BaseLM,
    **at: Any,
) -> None:
    """Ask again what went worst, traced into an MLflow store; the calls come on top."""
    from ga_dspy.optimize.mlflow_store import TrackingFailed
    from ga_dspy.optimize.tracking import trace_questions, worst

    try:
        with dspy.context(lm=lm):
            trace_questions(program, worst(report, examples, TRACED), report, **at)
    except TrackingFailed as failure:
        warn(console, f"no traces: {failure}")


def summary_table(reports: dict[str, Report]) -> Table:
    """Programs as rows, scores in percent as columns."""
    protocol = next(iter(reports.values())).protocol
    counts = ["failures", *(["degraded"] if any(r.degraded for r in reports.values()) else [])]
    headings = ["failed", "degraded"][: len(counts)]
    judge = ["judge"] if protocol.judge else []
    figures = ("F1", "95 %", "EM", *judge, "recall", *headings, "steps", "calls", "tokens")
    table = columns("program", *figures, right=figures)
    table.columns[0].no_wrap = True
    table.title_justify, table.title_style = "left", "bold"
    lms = " or ".join(dict.fromkeys(one.protocol.lm_names for one in reports.values()))
    table.title = f"{protocol.dataset} {protocol.source}, {protocol.n} questions, {lms}"
    rule = {"official": "HotpotQA's", "squad": "SQuAD's"}[protocol.score]
    table.caption = f"F1 and EM by {rule} official rule; steps, calls, tokens a question"
    table.caption_justify = "left"
    for name, report in reports.items():
        s = report.summary()
        low, high = s["ci95"]
        means = (("steps_mean", ",.1f"), ("lm_calls_mean", ",.1f"), ("tokens_mean", ",.0f"))
        judged = ((report.judged, ".1f"),) * len(judge)
        values = (*judged, (s["support_recall"], ".1f"), *((s[name], ",") for name in counts),
                  *((s[name], form) for name, form in means))  # fmt: skip
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
            help="all, methods, ablations, depths, steps, graphrag, or names, with commas."
        ),
    ] = "all",
    graph: Annotated[
        list[Path] | None, typer.Option(help="The graph of its passages, for GraphRAG.")
    ] = None,
    artifact: Annotated[
        list[str] | None, typer.Option(help="A compiled program that takes part; repeatable.")
    ] = None,
    lm: Models = None,
    api_base: Addresses = None,
    timeout: Timeout = None,
    tokens: Annotated[
        int | None, typer.Option(help="Equal tokens: about so many a question for every method.")
    ] = None,
    limit: Limit = None,
    threads: Threads = 1,
    track: Track = None,
    settings: Settings = None,
    score: Score = "official",
    judge: JudgeModel = None,
    abort_after: AbortAfter = 10,
    retry_failed: RetryFailed = False,
) -> None:
    r"""Run every method under one protocol; run again to go on where it stopped.

    Examples:
        ga-dspy arena --dataset qa --data questions.csv --index my-index --out runs \
            --programs methods
    """
    console, models = Console(), choose_lms(lm, api_base, timeout)
    model = models.lm
    kinds = {one.program for one in methods(programs)}
    kinds |= {program_class("", path) for path in artifact or ()}
    taking_part = entrants(
        programs, artifacts=artifact or (), graphs=bool(graph), tokens=tokens,
        settings=choose_settings(settings, *kinds), lms=models.steps,
    )  # fmt: skip
    if not models.is_for_all:
        models.check(*(one.make(nothing) for one in taking_part))
    planned = rounds(taking_part, _grounds(dataset, data, index, graph or []), out)
    own = "".join(f", {step}: {one.model}" for step, one in models.steps.items())
    console.print(f"{len(planned)} runs in {out}, LM {model.model}{own}", markup=False)
    reports: dict[Ground, dict[str, Report]] = {}
    tracked: list[Tracked | None] = []
    latest: list[str] = []
    with progress_bar(console) as bar, minutes_told(console, lambda: "".join(latest)):
        whole = bar.add_task("all runs", total=len(planned))
        tasks: dict[Round, TaskID] = {}

        def advance(one: Round, state: RunProgress) -> None:
            latest[:] = [f"{_name(one)}: {state}"]
            if one not in tasks:
                tasks[one] = bar.add_task(_name(one), total=state.total)
            bar.update(tasks[one], completed=state.done)

        for one, report, program in compete(
            planned, lm=model, limit=limit, score=score, threads=threads,
            progress=advance, abort_after=abort_after or None, retry_failures=retry_failed,
            judge=choose_judge(judge, models.address, timeout),
        ):  # fmt: skip
            bar.remove_task(tasks[one])
            bar.advance(whole)
            failed = f", {len(report.failed)} failed" if report.failed else ""
            failed += f", {len(report.degraded)} degraded" if report.degraded else ""
            console.print(
                f"{_name(one)}: F1 {report.f1:.1f}, EM {report.em:.1f}, {report.seconds:.0f} s"
                f"{failed}, protocol {report.protocol.hash}",
                markup=False, style="dim",
            )  # fmt: skip
            reports.setdefault(one.ground, {})[one.entrant.folder] = report
            if track:
                asked = load(one.ground.dataset, one.ground.data, limit=limit)
                tracked.append(_track(console, report, program, asked, model, track, out))
                # One store for all: the local one where the other failed, none where both did.
                track = tracked[-1].uri if tracked[-1] else None
    for by_name in reports.values():
        console.print()
        console.print(summary_table(by_name))
    say_embedded(console, *models.all)
    made = [report for by_name in reports.values() for report in by_name.values()]
    _say_tracked(console, tracked)
    console.print("\nTables and figures:")
    console.print(f"  ga-dspy report {out} --out {out / 'report'}", style="bold", markup=False)
    _end(console, made)


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
    paper: Annotated[
        bool,
        typer.Option("--paper", help="The paper's rows also beside files that are not its data."),
    ] = False,
    no_questions: Annotated[
        bool,
        typer.Option("--no-questions", help="Quote no question: for a report that others see."),
    ] = False,
) -> None:
    """Say which method is best on your data, with tables and figures, from finished runs.

    Examples:
        ga-dspy report runs --out runs/report
        ga-dspy report runs --no-questions --out published
    """
    console = Console()
    method(baseline)
    runs = collect(folders, unlike=unlike, paper=paper)
    pictures = draw_figures(runs, out)
    path = write_report(runs, out, baseline, pictures, questions=not no_questions)
    for verdict in contests(runs, baseline):
        console.print(str(verdict).replace("*", ""), markup=False, soft_wrap=True)
    console.print(
        f"{number(len(runs.runs), 'run')}, {number(len(pictures), 'picture')}: {path}", markup=False
    )


def view(
    path: Annotated[
        Path,
        typer.Argument(
            help="A prediction, as `ga-dspy ask --json` prints it (- reads stdin), or the folder "
            "of a run."
        ),
    ],
    out: Annotated[Path, typer.Option(help="The HTML file to write.")] = Path("page.html"),
    beside: Annotated[Path | None, typer.Option(help="The folder of another run.")] = None,
) -> None:
    """Show how answers were found: an HTML page in one file, for any browser, offline.

    Examples:
        ga-dspy view answer.json --out page.html
        ga-dspy view runs/graph-anchor --beside runs/vanilla-rag --out compared.html
    """
    if path.is_dir():
        page = viewer.run_page(load_report(path), load_report(beside) if beside else None)
    elif beside:
        raise InputError(
            f"{path} --beside {beside}", expected="the folders of two runs", remedy="name two runs"
        )
    else:
        record = _prediction(path)
        page = viewer.page(record.pop("question"), record)
    write_whole(out, page)
    Console().print(f"wrote {out}: open it in a browser", markup=False)


def _prediction(path: Path) -> dict[str, Any]:
    """What `ga-dspy ask --json` printed."""
    text = sys.stdin.read() if path == Path("-") else path.read_text("utf-8")
    try:
        record = json.loads(text)
    except ValueError:
        record = text
    if isinstance(record, dict) and {"question", "answer", "steps", "passages"} <= record.keys():
        return record
    raise InputError(
        f"{path}: {record!r:.80}",
        expected="a prediction as JSON, with its question",
        remedy='make one: ga-dspy ask "…" --index DIR --json > answer.json',
    )
