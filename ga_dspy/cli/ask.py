"""`ga-dspy demo`, `ask` and `chat`: questions, and how their answers are found."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import dspy
import typer
from rich.rule import Rule
from rich.text import Text

from ga_dspy.cli import runs
from ga_dspy.cli.choices import Asking, choose_lm, choose_program
from ga_dspy.cli.compile import compile_program
from ga_dspy.cli.console import (
    Console,
    building,
    number,
    say_embedded,
    show_answer,
    steps_shown,
    warn,
)
from ga_dspy.demo import DEMO_QUESTION, corpus, questions
from ga_dspy.errors import InputError
from ga_dspy.graphrag import estimate_build
from ga_dspy.passage import sound
from ga_dspy.programs.conversation import Rewrite, Turn
from ga_dspy.programs.program import as_json
from ga_dspy.retrieval import Index
from ga_dspy.text import json_text


def demo(
    keep: Annotated[
        Path, typer.Option(help="Folder for what the demo makes, each time anew.")
    ] = Path(".demo"),
) -> None:
    """Index a shipped corpus, ask it a question, run a smoke test of eval and compile.

    Examples:
        ga-dspy demo
    """
    console = Console()
    begun = time.perf_counter()
    for made in ("index", "runs", "artifacts"):
        shutil.rmtree(keep / made, ignore_errors=True)
    console.print(Rule("1. Index the shipped corpus", align="left"))
    with building(console) as progress:
        index = Index.build(corpus(), keep / "index", progress=progress)
    console.print(f"{keep / 'index'}: {index.description}\n", markup=False)

    console.print(Rule("2. Ask a question that needs several documents", align="left"))
    lm = choose_lm(None, None, 0)
    asking = Asking(choose_program("graph-anchor", None, index), lm, index)
    with dspy.context(lm=lm):
        _answer(console, asking, DEMO_QUESTION, _static_cost(asking))
    console.print(HOPS, style="dim")
    console.print()
    console.print(Rule("3. Smoke test: two programs on the shipped dev questions", align="left"))
    console.print(_SMOKE, style="dim")
    reports = {
        name: runs.run_program(
            console, choose_program(name, None, index), name, "hotpotqa", questions("dev"),
            keep / "runs" / name, lm,
        )
        for name in ("vanilla-rag", "graph-anchor")
    }  # fmt: skip
    console.print(runs.summary_table(reports))
    console.print()
    console.print(Rule("4. Compile: tune demos on the shipped train questions", align="left"))
    compile_program(
        "hotpotqa", questions("train"), "10", keep / "index", keep / "artifacts" / "demo",
        test=questions("dev"), settings=["candidates=3"], yes=True,
        track=find_spec("mlflow") is not None,
    )  # fmt: skip
    console.print(f"\nDone in {time.perf_counter() - begun:.0f} s. Ask your own question:")
    own = f'  {_own_command()} ask "…" --index {keep / "index"} --lm openai/gpt-4.1-mini'
    console.print(own, style="bold", markup=False)


HOPS = (
    "No search for this question finds the passage with its answer. Of ten such questions "
    "(ga_dspy/demo/questions_hops.json) the embedded LM answers 2; 1 with a whole chain."
)
_SMOKE = (
    "Here a small extractive LM answers, which copies spans and hardly plans: it shows that all of "
    "this runs, not what either program is worth with an LLM. Look at the steps, the graph and the "
    "evidence above, and at the calls, which are those that an LLM would be asked."
)


def _own_command() -> str:
    """How this program was called, short where it lies below the working directory."""
    path = Path(sys.argv[0]).absolute()
    below = path.is_relative_to(Path.cwd())
    return str(path.relative_to(Path.cwd())) if below else path.name


def ask(
    asking: Asking,
    question: Annotated[
        list[str] | None, typer.Argument(help="A question, or several; - reads them from stdin.")
    ] = None,
    questions: Annotated[
        Path | None, typer.Option(help="A file with a question a line, or - for stdin.")
    ] = None,
    json_only: Annotated[
        bool, typer.Option("--json", help="Print JSON, nothing else; of several, a line each.")
    ] = False,
) -> None:
    r"""Answer questions and show, as it happens, how the answers are found.

    Examples:
        ga-dspy ask "Who designed the bridge?" --index my-index --lm openai/gpt-4.1-mini
        ga-dspy ask "…" --index my-index --lm openai/qwen3 \
            --api-base http://localhost:8000/v1
        ga-dspy ask "…" --index my-index --set k=10 --set style=report --adapter json
        ga-dspy ask --questions questions.txt --index my-index --artifact artifacts/mine \
            --json
    """
    console, asked = Console(), [*_lines(question or (), questions)]
    if not asked:
        raise InputError("no question", expected="one or more", remedy='ask "Who …?" --index DIR')
    before = "" if json_only else _static_cost(asking)
    for place, text in enumerate(asked):
        if json_only:
            found = asking.program(question=text)
            record = {"question": text, **_lms(asking), **as_json(found)}
            indent = 2 if len(asked) == 1 else None
            print(json_text(record, indent), flush=True)  # noqa: T201 - the output itself
            continue
        console.print("\n" * bool(place), end="")
        _answer(console, asking, text, before)
    if not json_only:
        say_embedded(console, *asking.lms)


def _lines(questions: Sequence[str], file: Path | None) -> Iterator[str]:
    """The questions that are named, then those of a file; "-" stands for stdin."""
    for text in (*questions, *(["-"] if str(file) == "-" else ())):
        read = sys.stdin.read().splitlines() if text == "-" else [text]
        yield from (sound(line.strip()) for line in read if line.strip() or text != "-")
    if file and str(file) != "-":
        lines = file.read_text(encoding="utf-8-sig").splitlines()
        yield from (sound(line.strip()) for line in lines if line.strip())


def _answer(console: Console, asking: Asking, question: str, before: str) -> dspy.Prediction:
    """Ask a question, showing its steps as they come; then its answer."""
    console.print(Text.assemble(("Question  ", "bold"), question), "")
    with steps_shown(console):
        found = asking.program(question=question)
    show_answer(console, found, before, _lms(asking).get("lms"))
    return found


def _lms(asking: Asking) -> dict[str, Any]:
    """The name of the LM; where steps have LMs of their own, also the names by step."""
    names = {"lms": asking.program.lm_names()} if asking.program.step_lms() else {}
    return {"lm": asking.lm.model, **names}


_SAMPLE = 200


def _static_cost(asking: Asking) -> str:
    """What a graph of the whole corpus would cost before the first question, by a sample of it.

    Nothing where such a graph is searched: it is paid for.
    """
    if not isinstance(asking.corpus, Index):
        return ""
    sample = [*islice(asking.corpus, _SAMPLE)]
    calls = len(asking.corpus)
    tokens = estimate_build(sample).tokens * calls / max(1, len(sample))
    return (
        f"a static graph of this corpus: {calls:,} calls, about {tokens:,.0f} tokens before the "
        "first question"
    )


def chat(asking: Asking) -> None:
    """Talk with your documents: each question is understood from what was said before.

    An empty line or Ctrl-D ends it. The embedded LM rewrites nothing: it asks as is.

    Examples:
        ga-dspy chat --index my-index --lm openai/gpt-4.1-mini
    """
    console, said, rewrite = Console(), list[Turn](), Rewrite()
    say_embedded(console, *asking.lms)
    while question := _next_line(console):
        asked = rewrite(question=question, turns=said)
        if asked.failure:
            warn(console, f"asked as it is: {asked.failure}")
        if asked.question != question:
            cost = f"({number(asked.calls, 'call')}, {asked.tokens:,} tokens)"
            console.print(f"asked as: {asked.question} {cost}", style="dim", markup=False)
        found = _answer(console, asking, asked.question, "")
        said.append(Turn(asked.question, found.answer or "(no answer)"))


def _next_line(console: Console) -> str:
    """The next question; empty at the end of what is typed."""
    try:
        return sound(console.input("> " if console.is_terminal else "").strip())
    except EOFError:
        return ""
