"""Measurements: what retrieval brings, and what the library does to itself."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Final, get_args

import typer

from ga_dspy.cli.choices import IndexDir, Limit
from ga_dspy.cli.console import Console, columns
from ga_dspy.errors import InputError
from ga_dspy.eval import load
from ga_dspy.retrieval import Index
from ga_dspy.retrieval.bench import DEPTHS, bench
from ga_dspy.retrieval.rank import Kind


def retrieval(
    dataset: Annotated[str, typer.Option(help="hotpotqa, musique or 2wikimultihopqa.")],
    data: Annotated[Path, typer.Option(help="Questions, in the dataset's official format.")],
    index: IndexDir,
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
    for kind in get_args(Kind):
        rows = bench(opened.as_kind(kind), questions)
        table.add_row(kind, *(f"{row.recall:.1f} / {row.all_gold:.1f}" for row in rows))
    console.print(table)


_OWN: Final = {
    "faults": "What faults of an endpoint cost a run: time and calls, but no question or answer.",
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
