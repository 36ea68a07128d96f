"""Measurements: what retrieval brings, what faults cost."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Final

import typer

from ga_dspy.cli.choices import IndexDir, Limit, Program, Threads, Timeout, choose_program
from ga_dspy.cli.console import Console, columns
from ga_dspy.demo import corpus, questions
from ga_dspy.errors import InputError
from ga_dspy.eval import detect, load
from ga_dspy.eval.faults import Night, bad_nights
from ga_dspy.retrieval import Index, read_passages
from ga_dspy.retrieval.bench import DEPTHS, bench


def retrieval(
    dataset: Annotated[str, typer.Option(help="hotpotqa, musique or 2wikimultihopqa.")],
    data: Annotated[Path, typer.Option(help="Questions, in the dataset's official format.")],
    index: IndexDir,
    kinds: Annotated[
        str, typer.Option(help="Comma-separated: sparse, dense, hybrid, linked.")
    ] = "sparse,dense,hybrid,linked",
    limit: Limit = None,
) -> None:
    """How many gold passages are in the top 2, 5, 10, 20, by kind of retrieval.

    Examples:
        ga-dspy bench retrieval --dataset hotpotqa --data dev.json --index my-index
    """
    opened = Index.open(index)
    examples = [e for e in load(dataset, data, limit=limit) if e.gold_titles]
    questions = [(e.question, frozenset(e.gold_titles)) for e in examples]
    depths = [f"@{k}" for k in DEPTHS]
    table, console = columns("kind", *depths, right=depths), Console()
    console.print(
        f"{data.name}: {len(questions)} questions, {len(opened):,} passages "
        "(mean gold recall / all gold in the top k, %)"
    )
    for kind in kinds.split(","):
        rows = bench(opened.as_kind(kind), questions)
        table.add_row(kind, *(f"{row.recall:.1f} / {row.all_gold:.1f}" for row in rows))
    console.print(table)


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
    timeout: Timeout = 10.0,
    seed: Annotated[int, typer.Option(help="Of the faults.")] = 0,
    json_output: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """What faults of an endpoint cost a run; exit code 1 where a question or an answer was lost.

    The embedded LM answers behind a local server: without faults, with faults of ten kinds, with an
    outage in the middle, with both.

    Examples:
        ga-dspy bench faults
    """
    files = data or [questions("dev")]
    examples = [example for file in files for example in load(detect(file), file)][:limit]
    own = read_passages(data) if data else corpus()
    searched = Index.open(index) if index else Index.from_passages(own, kind="sparse")
    chosen = choose_program(program, None, searched)
    shown = ("failed", "degraded", "asked_twice", "f1", "same", "calls", "failures", "seconds")
    short = {"asked_twice": "again", "f1": "F1", "failures": "faults", "seconds": "s"}
    headings = [short.get(name, name) for name in shown]
    table, nights = columns("endpoint", *headings, right=headings), list[Night]()
    table.columns[0].no_wrap = True
    table.title = f"{len(examples):,} questions"
    with TemporaryDirectory() as out, Console(stderr=True).status("asking"):
        for night in bad_nights(chosen, examples, Path(out), rate=rate, outage=outage,
                                threads=threads, timeout=timeout, seed=seed):  # fmt: skip
            nights.append(night)
            values = (getattr(night, name) for name in shown)
            cells = (f"{v:,.1f}" if isinstance(v, float) else f"{v:,}" for v in values)
            table.add_row(night.name, *cells)
    if json_output:
        print(json.dumps([night._asdict() for night in nights], indent=2))  # noqa: T201
    else:
        Console().print(table)
    raise typer.Exit(int(not all(night.is_whole for night in nights)))


_OWN: Final = {
    "scale": "What an index of many synthetic passages costs: its build, memory, disk, searches.",
    "load": "How near GraphAnchor comes to bare dspy.Predict calls with the same prompts.",
    "kills": "Whether long commands that are killed end as if they had not been, and at no cost.",
    "fuzz": "What readers make of files and replies that were tampered with.",
}


def of_a_clone() -> Iterator[Callable[..., None]]:
    """What the library does to itself: its code stands beside the tests, so it needs a clone."""

    def command(name: str) -> Callable[..., None]:
        def measure(context: typer.Context) -> None:
            script = Path(__file__).parents[2] / "tests" / "benches.py"
            if not script.is_file():
                raise InputError(
                    f"bench {name} without {script}",
                    expected="a clone of the repository: what it measures with stands there",
                    remedy="clone it, pip install -e '.[all,dev]', and run it again",
                )
            done = subprocess.run([sys.executable, str(script), name, *context.args])
            raise typer.Exit(done.returncode)

        measure.__name__ = name
        measure.__doc__ = f"{_OWN[name]}\n\nExamples:\n    ga-dspy bench {name}"
        return measure

    return map(command, _OWN)
