"""`ga-dspy demo`, `ask` and `chat`: questions, and how their answers are found."""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
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
from ga_dspy.demo import DEMO_QUESTION, RECORDED, corpus, questions
from ga_dspy.errors import InputError, RunAborted
from ga_dspy.eval import Report
from ga_dspy.graphrag import estimate_build
from ga_dspy.passage import sound
from ga_dspy.programs.conversation import Rewrite, Turn
from ga_dspy.programs.prediction import as_json
from ga_dspy.retrieval import Index
from ga_dspy.testing import recorded_lm
from ga_dspy.text import json_text


def demo(
    keep: Annotated[
        Path, typer.Option(help="Folder for what the demo makes, each time anew.")
    ] = Path(".demo"),
) -> None:
    """Index a shipped corpus, ask it a question, compare programs, compile one.

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
    console.print(Rule("3. Compare programs on the dev questions", align="left"))
    if options := show_recorded(console, RECORDED, index, keep / "runs"):
        data, live = _short(questions("dev")), keep / "runs" / "live"
        asked = f"--dataset hotpotqa --data {data} --index {keep / 'index'} --out {live}"
        console.print("Ask the LM itself, with the program of the last row:")
        line = f"  {_own_command()} eval {asked} {options} --api-base http://localhost:8080/v1"
        console.print(line, style="bold", markup=False, soft_wrap=True)
    console.print()
    console.print(Rule("4. Smoke test: compile on the train questions", align="left"))
    console.print(_SMOKE, style="dim")
    compile_program(
        "hotpotqa", questions("train"), "10", keep / "index", keep / "artifacts" / "demo",
        test=questions("dev"), settings=["candidates=3"], yes=True,
        no_track=find_spec("mlflow") is None,
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
    "this runs, not what a program is worth with an LLM. Look at the steps, the graph and the "
    "evidence above, and at the calls, which are those that an LLM would be asked."
)


def show_recorded(console: Console, folder: Path, index: Index, out: Path) -> str:
    """Print the table of programs, with an LM's recorded replies.

    One that asks or answers otherwise than when it was recorded is named and left out.

    Args:
        console: Where to.
        folder: The recordings; see `ga_dspy.demo.RECORDED`.
        index: The index of the shipped corpus.
        out: The folder for the runs.

    Returns:
        How to ask the LM itself with the program of the last row: options of `ga-dspy eval`.
    """
    about = json.loads((folder / "about.json").read_text("utf-8"))
    reports, options = dict[str, Report](), ""
    for name, answers in about["answers"].items():
        try:
            reports[name] = replay(console, folder, name, answers, index, out / name)
        except (InputError, RunAborted) as fault:
            warn(console, str(fault))
            continue
        is_compiled = (folder / name).is_dir()
        options = f"--artifact {_short(folder / name)}" if is_compiled else f"--program {name}"
    if not reports:
        return ""
    table = runs.summary_table(reports)
    n = next(iter(reports.values())).protocol.n
    table.title = f"recorded replies of {about['lm']}, {about['date']}, {n} questions"
    table.caption = f"{table.caption}; tokens are estimates"
    console.print(table)
    console.print(_RECORDED, style="dim")
    return f"{options} --lm {about['lm']} --lm-set temperature=0"


_RECORDED = (
    "The LM's replies are on record, one for each prompt; searching, reading them, grounding and "
    "the graph happen now. With so small an LM no difference is shown; a frontier LM's scores are "
    "in docs/results/frontier.md."
)


def replay(
    console: Console, folder: Path, name: str, answers: Mapping[str, str], index: Index, out: Path
) -> Report:
    """Ask a program the shipped dev questions, with an LM's replies that are on record.

    Args:
        console: Where to show progress.
        folder: The recordings.
        name: Which one: of a method, or of a compiled program that lies in a folder of that name.
        answers: The answers when it was recorded, by id; of all questions, or the first.
        index: The index of the shipped corpus.
        out: The folder of the run.

    Raises:
        InputError: An answer is another than then, a prompt is not on record, or a reply on record
            was not asked for.
    """
    lm, compiled = recorded_lm(folder / f"{name}.jsonl"), folder / name
    program = choose_program(name, str(compiled) if compiled.is_dir() else None, index)
    report = runs.run_program(
        console, program, name, "hotpotqa", questions("dev"), out, lm, limit=len(answers)
    )
    changed = sum(answers.get(result.id) != result.answer for result in report.results)
    unused, unmatched = len(lm.engine.script.unused), len(lm.engine.script.unmatched)
    if changed or unused or unmatched:
        raise InputError(
            f"{name}: {number(changed, 'answer')} of {len(answers)} changed, "
            f"{number(unmatched, 'prompt')} not on record, "
            f"{number(unused, 'record')} not asked for",
            expected="the prompts and answers that were recorded",
            remedy="record them again: tests/record_demo.py",
        )
    return report


def _own_command() -> str:
    """How this program was called."""
    path = Path(sys.argv[0]).absolute()
    return str(_short(path)) if path.is_relative_to(Path.cwd()) else path.name


def _short(path: Path) -> Path:
    """A path from the working directory on, where it lies below."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


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
