"""Benchmarks that need a clone: recall, faults, size, load, tracing, kills, tampered input.

`make bench` lists them; `make bench ARGS="scale --passages 20000"` runs one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, get_args

import typer
from faults import runs_under_faults
from fuzz_readers import fuzz as read_tampered
from fuzz_readers import targets
from kill_commands import COMMANDS, endure
from measure_load import Load, held, measure
from measure_recall import DEPTHS, measure_recall
from measure_scale import scale as measure_scale
from measure_tracing import overhead
from measure_tracing import soak as measure_soak

from ga_dspy.cli.choices import IndexDir, Limit, Program, Threads, choose_program
from ga_dspy.cli.console import Console, columns
from ga_dspy.demo import corpus, questions
from ga_dspy.errors import GaDspyError, InputError
from ga_dspy.eval import detect
from ga_dspy.eval import load as load_questions
from ga_dspy.retrieval import Index, read_passages
from ga_dspy.retrieval.postings import Kind

app = typer.Typer(
    name="make bench ARGS=", add_completion=False, rich_markup_mode="rich", no_args_is_help=True,
    help="Benchmarks that need a clone.",
)  # fmt: skip

Json = Annotated[bool, typer.Option("--json", help="As JSON.")]
Seed = Annotated[int, typer.Option(help="Another gives other faults.")]


def _show(found: Sequence[Any], json_output: bool, left_out: Iterable[str] = ()) -> None:
    """Rows as a table with a column a field, or as JSON."""
    if json_output:
        print(json.dumps([row._asdict() for row in found], indent=2))
        return
    names = [name for name in found[0]._fields if name not in left_out]
    headings = [name.replace("_", " ") for name in names]
    table = columns(*headings, right=headings)
    table.columns[0].justify, table.padding = "left", (0, 1, 0, 0)
    for row in found:
        values = (getattr(row, name) for name in names)
        table.add_row(*(f"{v:,.4g}" if isinstance(v, float) else f"{v}" for v in values))
    Console().print(table)


@app.command()
def retrieval(
    dataset: Annotated[str, typer.Option(help="hotpotqa, musique or 2wikimultihopqa.")],
    data: Annotated[Path, typer.Option(help="Questions, in the dataset's official format.")],
    index: IndexDir,
    limit: Limit = None,
) -> None:
    """How many gold passages are in the top 2, 5, 10, 20, by kind of retrieval."""
    opened = Index.open(index)
    examples = [e for e in load_questions(dataset, data, limit=limit) if e.gold_titles]
    asked = [(e.question, frozenset(e.gold_titles)) for e in examples]
    depths = [f"@{k}" for k in DEPTHS]
    table, console = columns("kind", *depths, right=depths), Console()
    console.print(
        f"{data.name}: {len(asked)} questions, {len(opened):,} passages "
        "(mean gold recall / all gold in the top k, %)"
    )
    for kind in get_args(Kind):
        rows = measure_recall(opened.as_kind(kind), asked)
        table.add_row(kind, *(f"{row.recall:.1f} / {row.all_gold:.1f}" for row in rows))
    console.print(table)


@app.command()
def faults(
    data: Annotated[
        list[Path] | None,
        typer.Option(help="A dataset's file; repeatable; the shipped questions if left out."),
    ] = None,
    index: Annotated[
        Path | None, typer.Option(help="An index; the questions' own paragraphs if left out.")
    ] = None,
    program: Program = "graph-anchor",
    limit: Annotated[int | None, typer.Option("--questions", help="Only the first N.")] = None,
    rate: Annotated[float, typer.Option(help="The share of requests that fail.")] = 0.3,
    outage: Annotated[float, typer.Option(help="Seconds of the outage in the middle.")] = 5.0,
    threads: Threads = 8,
    timeout: Annotated[float, typer.Option(help="Seconds to wait for one LM call.")] = 10.0,
    seed: Seed = 0,
    json_output: Json = False,
) -> None:
    """What faults of an endpoint cost a run; exit code 1 where a question or an answer was lost.

    The embedded LM answers behind a local server: without faults, with faults of ten kinds, with an
    outage in the middle, with both.
    """
    files = data or [questions("dev")]
    asked = [example for file in files for example in load_questions(detect(file), file)][:limit]
    own = read_passages(data) if data else corpus()
    searched = Index.open(index) if index else Index.from_passages(own, kind="sparse")
    chosen = choose_program(program, None, searched)
    with TemporaryDirectory() as out, Console(stderr=True).status("asking"):
        nights = list(
            runs_under_faults(
                chosen, asked, Path(out), rate=rate, outage=outage, threads=threads,
                timeout=timeout, seed=seed,
            )
        )  # fmt: skip
    _show(nights, json_output, ("questions", "em"))
    raise typer.Exit(int(not all(night.is_whole for night in nights)))


@app.command()
def scale(
    passages: Annotated[int, typer.Option(min=1000, help="How many.")] = 100_000,
    words: Annotated[int, typer.Option(min=12, help="Words of text in each.")] = 80,
    encoder: Annotated[str, typer.Option(help="As for an index.")] = "hash-256",
    queries: Annotated[int, typer.Option(min=1, help="How many.")] = 200,
    folder: Annotated[
        Path | None, typer.Option(help="Keep the index here; by default it is deleted.")
    ] = None,
    json_output: Json = False,
) -> None:
    """What an index of many synthetic passages costs: its build, memory, disk, each search.

    Beside it the bare searches of FAISS and bm25s over the same vectors and words. Every part has a
    process of its own; memory is the highest resident of each, files mapped into it included.
    """
    with TemporaryDirectory(prefix="ga-dspy-scale-") as out, Console(stderr=True).status("…"):
        found = measure_scale(folder or Path(out), passages, words, encoder, queries)
    if json_output:
        print(json.dumps(found, indent=2))
        return
    parts = ", ".join(f"{name} {took:,.0f} s" for name, took in found["build_parts_s"].items())
    console = Console()
    console.print(
        f"{passages:,} passages of {words} words, {encoder}\n"
        f"build: {found['build_s']:,.0f} s ({parts}), {found['build_rss_mb']:,.0f} MB; "
        f"disk: {found['disk_mb']:,.0f} MB\n"
        f"open: {found['open_s']:.2f} s; search: {found['rss_mb']:,.0f} MB; add 100: "
        f"{found['add_100_s']:.1f} s; delete 100: {found['delete_100_s']:.1f} s"
    )
    table = columns("ms a query", "p50", "p95", right=("p50", "p95"))
    for kind in ("sparse", "dense", "hybrid", "linked", "faiss", "bm25"):
        table.add_row(kind, *(f"{took:.1f}" for took in found[kind].values()))
    console.print(table)


@app.command()
def load(
    in_flight: Annotated[str, typer.Option(help="Asked at once, comma-separated.")] = "64",
    latency: Annotated[str, typer.Option(help="Seconds of a reply, comma-separated.")] = "0.3",
    limit: Annotated[
        int | None, typer.Option("--questions", min=10, help="A run; 8 for each at once if unset.")
    ] = None,
    kinds: Annotated[str, typer.Option(help="Of index, comma-separated.")] = "sparse,linked",
    data: Annotated[Path | None, typer.Option(help="Questions instead of the demo's.")] = None,
    index: Annotated[Path | None, typer.Option(help="An index of their passages.")] = None,
    memory: Annotated[int | None, typer.Option(help="Ask so many; say what is held.")] = None,
    json_output: Json = False,
) -> None:
    """How near GraphAnchor comes to bare dspy.Predict calls with the same prompts.

    Both ask a local endpoint that replies after a fixed time. CPU is this process's.
    """
    opened = Index.open(index) if index else Index.from_passages(corpus())
    file, max_concurrent = (
        data or questions("dev"),
        [int(number) for number in in_flight.split(",")],
    )
    asked = [example.question for example in load_questions(detect(file), file, limit=60)]
    latencies, found = [float(seconds) for seconds in latency.split(",")], list[Any]()
    for load in (Load.of(asked, opened.as_kind(name)) for name in kinds.split(",")):
        found += (
            held(load, memory, max_concurrent[-1])
            if memory
            else measure(load, in_flight=max_concurrent, latencies=latencies, questions=limit)
        )
    _show(found, json_output)


@app.command()
def tracing(
    latency: Annotated[float, typer.Option(help="Seconds of a reply of the second LM.")] = 0.5,
    limit: Annotated[int, typer.Option("--questions", min=10, help="How many.")] = 40,
    json_output: Json = False,
) -> None:
    """What live tracing costs a question, with the embedded LM and at the pace of a real one.

    Each question is asked with and without it in turn. CPU is this process's; that of MLflow's
    process is not in it.
    """
    asked = [example.question for example in load_questions("hotpotqa", questions("dev"))][:limit]
    with TemporaryDirectory(prefix="ga-dspy-tracing-") as work, Console(stderr=True).status("…"):
        opened = Index.from_passages(corpus(), kind="sparse")
        _show([*overhead(asked, opened, Path(work), latency)], json_output)


@app.command()
def soak(
    asks: Annotated[int, typer.Option(min=10, help="Questions.")] = 5_000,
    clients: Annotated[int, typer.Option(min=1, help="Asked at once.")] = 100,
    latency: Annotated[float, typer.Option(help="Seconds of a reply.")] = 0.5,
    json_output: Json = False,
) -> None:
    """Memory and traces of `ga-dspy serve --track` under load, and after SIGTERM in its middle.

    MLflow's server keeps its traces in SQLite; the LM is a local endpoint. The exit code is 1 where
    an answer that was received has no trace in the end.
    """
    asked = [example.question for example in load_questions("hotpotqa", questions("dev"))][:60]
    with TemporaryDirectory(prefix="ga-dspy-soak-") as work, Console(stderr=True).status("…"):
        Index.build(corpus(), Path(work, "index"), kind="sparse")
        found = list(
            measure_soak(
                asked, Path(work, "index"), Path(work), asks=asks, clients=clients, latency=latency
            )
        )
        Console(stderr=True).print(Path(work, "serve.log").read_text(), markup=False)
    _show(found, json_output)
    raise typer.Exit(int(found[-1].answered > found[-1].traced))


@app.command()
def kills(
    commands: Annotated[
        list[str] | None, typer.Argument(help=f"{', '.join(COMMANDS)}; all if left out.")
    ] = None,
    times: Annotated[int, typer.Option("--kills", min=1, help="Kills of each command.")] = 3,
    limit: Annotated[int, typer.Option(min=8, help="Questions of each file.")] = 12,
    seed: Seed = 0,
    json_output: Json = False,
) -> None:
    """Whether long commands that are killed end as if they had not been, and at no cost.

    The exit code is 1 where one does not. Each is killed with kill -9 at random moments and started
    again, against a local endpoint and without DSPy's cache. Replies that were sent less than half
    a second before a kill count as cut off by it.
    """
    with TemporaryDirectory(prefix="ga-dspy-kills-") as work, Console(stderr=True).status("…"):
        chosen = commands or list(COMMANDS)
        found = list(endure(chosen, Path(work), kills=times, limit=limit, seed=seed))
    _show(found, json_output, ("differences",))
    if not json_output:
        Console().print_first("differs", [name for one in found for name in one.differences])
    raise typer.Exit(int(not all(one.held for one in found)))


@app.command()
def fuzz(
    named: Annotated[
        list[str] | None, typer.Argument(metavar="TARGET", help="All if left out.")
    ] = None,
    inputs: Annotated[int, typer.Option(min=1, help="Inputs of each target.")] = 300,
    seed: Seed = 0,
    json_output: Json = False,
) -> None:
    """What readers make of files and replies that were tampered with.

    Each may read one or refuse it by a named error. The exit code is 1 where another error
    escaped, or an input took more than two seconds.
    """
    with TemporaryDirectory(prefix="ga-dspy-fuzz-") as work, Console(stderr=True).status("…"):
        known = {one.name: one for one in targets(Path(work))}
        if unknown := sorted({*(named or ())} - known.keys()):
            raise InputError(
                f"no target {unknown[0]!r}", expected=f"one of {', '.join(known)}",
                remedy="quote a name of two words",
            )  # fmt: skip
        found = [read_tampered(known[name], inputs, seed) for name in named or known]
    _show(found, json_output, ("faults",))
    if not json_output:
        Console().print_first("escaped", [fault for one in found for fault in one.faults])
    raise typer.Exit(int(not all(one.holds for one in found)))


if __name__ == "__main__":
    try:
        app()
    except GaDspyError as error:
        raise SystemExit(f"ga-dspy: {error}") from None
