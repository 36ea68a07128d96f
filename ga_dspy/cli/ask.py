"""`ga-dspy demo` and `ask`: questions, and how their answers were found."""

from __future__ import annotations

import json
import shutil
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import dspy
import typer
from rich.rule import Rule

from ga_dspy.cli import runs
from ga_dspy.cli.choices import (
    ApiBase,
    Artifact,
    Graph,
    IndexDir,
    Model,
    Program,
    Timeout,
    Wanted,
    choose_corpus,
    choose_lm,
    choose_program,
    choose_where,
)
from ga_dspy.cli.compile import compile_program
from ga_dspy.cli.console import Console, building, say_embedded, show_prediction
from ga_dspy.demo import DEMO_QUESTION, corpus, questions
from ga_dspy.graphrag import Access, called_by
from ga_dspy.passage import sound
from ga_dspy.programs.program import as_json
from ga_dspy.retrieval import Index, only_where


def demo(
    keep: Annotated[
        Path, typer.Option(help="Folder for the index and the runs of the demo.")
    ] = Path(".demo"),
) -> None:
    """Index the shipped corpus, ask a question step by step, compare two programs."""
    console = Console()
    begun = time.perf_counter()
    console.print(Rule("1. Index the shipped corpus", align="left"))
    with building(console) as progress:
        index = Index.build(corpus(), keep / "index", progress=progress)
    console.print(f"{keep / 'index'}: {index.description}\n", markup=False)

    console.print(Rule("2. Ask a question that needs several documents", align="left"))
    lm = choose_lm(None, None, 0)
    with dspy.context(lm=lm):
        prediction = choose_program("graph-anchor", None, index)(question=DEMO_QUESTION)
    show_prediction(console, DEMO_QUESTION, prediction)

    console.print()
    console.print(Rule("3. Compare two programs on the shipped dev questions", align="left"))
    shutil.rmtree(keep / "runs", ignore_errors=True)
    reports = {
        name: runs.run_program(
            console, choose_program(name, None, index), name, "hotpotqa", questions("dev"),
            keep / "runs" / name, lm,
        )
        for name in ("vanilla-rag", "graph-anchor")
    }  # fmt: skip
    say_embedded(console, lm)
    console.print(runs.summary_table(reports))
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
    """Tune demos on the shipped train questions."""
    console.print(Rule("4. Compile: tune demos on the shipped train questions", align="left"))
    shutil.rmtree(keep / "artifacts", ignore_errors=True)
    compile_program(
        "hotpotqa", questions("train"), "10", keep / "index", keep / "artifacts" / "demo",
        test=questions("dev"), settings=["candidates=3"], yes=True,
        track=find_spec("mlflow") is not None,
    )  # fmt: skip


def ask(
    question: Annotated[str, typer.Argument(help="The question.")],
    index: IndexDir,
    program: Program = "graph-anchor",
    artifact: Artifact = None,
    lm: Model = None,
    api_base: ApiBase = None,
    timeout: Timeout = 120.0,
    graph: Graph = None,
    label: Annotated[
        list[str] | None, typer.Option(help="An access label of yours; repeatable.")
    ] = None,
    where: Wanted = None,
    json_only: Annotated[bool, typer.Option("--json", help="Print JSON, nothing else.")] = False,
) -> None:
    """Answer one question and show how the answer was found."""
    question, model = sound(question), choose_lm(lm, api_base, timeout)
    seen, allowed = (
        called_by(Access(labels=frozenset(label or ()))),
        only_where(choose_where(where)),
    )
    with dspy.context(lm=model), seen, allowed:
        corpus = choose_corpus(index, graph, program, artifact)
        prediction = choose_program(program, artifact, corpus)(question=question)
    if json_only:
        record = {"question": question, "lm": model.model, **as_json(prediction)}
        print(json.dumps(record, ensure_ascii=False, indent=2))  # noqa: T201 - the output itself
        return
    console = Console()
    show_prediction(console, question, prediction)
    say_embedded(console, model)
