"""`ga-dspy demo`: the main job on a shipped corpus, with nothing to download and no key."""

from __future__ import annotations

import shutil
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import dspy
from rich.console import Console
from rich.rule import Rule

from ga_dspy.cli.build import building
from ga_dspy.cli.compile import CompileArgs, run_compile
from ga_dspy.cli.evaluate import Run, evaluated, summary_table
from ga_dspy.cli.models import Choice
from ga_dspy.cli.show import show_prediction
from ga_dspy.demo import DEMO_QUESTION, corpus, questions
from ga_dspy.lm import extractive_lm
from ga_dspy.programs import GraphAnchor
from ga_dspy.retrieval import Index


def run_demo(keep: Path) -> None:
    """Build an index, ask one question, evaluate two programs; leave the files in `keep`."""
    console = Console()
    begun = time.perf_counter()
    console.print(Rule("1. Index the shipped corpus", align="left"))
    with building(console) as progress:
        index = Index.build(corpus(), keep / "index", progress=progress)
    console.print(f"{keep / 'index'}: {index.description}\n", markup=False)

    console.print(Rule("2. Ask a question that needs several documents", align="left"))
    with dspy.context(lm=extractive_lm()):
        prediction = GraphAnchor(index)(question=DEMO_QUESTION)
    show_prediction(console, DEMO_QUESTION, prediction)

    console.print()
    console.print(Rule("3. Compare two programs on the shipped dev questions", align="left"))
    runs = keep / "runs"
    shutil.rmtree(runs, ignore_errors=True)
    reports = {
        name: evaluated(
            Run("hotpotqa", questions("dev"), keep / "index", runs / name, Choice(name)),
            console,
            note=name == "graph-anchor",
        )
        for name in ("vanilla-rag", "graph-anchor")
    }
    console.print(summary_table(reports))
    console.print()
    _compile(console, keep)
    console.print(f"\nDone in {time.perf_counter() - begun:.0f} s. Ask your own question:")
    asking = f'  {_own_command()} ask "…" --index {keep / "index"}'
    console.print(asking, style="bold", markup=False)


def _own_command() -> str:
    """How this program was called, short where it lies below the working directory."""
    path = Path(sys.argv[0]).absolute()
    below = path.is_relative_to(Path.cwd())
    return str(path.relative_to(Path.cwd())) if below else path.name


def _compile(console: Console, keep: Path) -> None:
    """Tune demos on the shipped train questions, where the extra for it is installed."""
    console.print(Rule("4. Compile: tune demos on the shipped train questions", align="left"))
    if find_spec("optuna") is None or find_spec("mlflow") is None:
        console.print("skipped: pip install 'ga-dspy[optimize]'", markup=False)
        return
    shutil.rmtree(keep / "artifacts", ignore_errors=True)
    run_compile(
        CompileArgs(
            dataset="hotpotqa",
            train=questions("train"),
            validation="10",
            test=questions("dev"),
            index=keep / "index",
            out=keep / "artifacts" / "demo",
            settings=("candidates=3",),
            yes=True,
        )
    )
