"""`ga-dspy demo`, `programs`, `ask` and `chat`."""

from __future__ import annotations

import json
import re
import shutil
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from importlib.util import find_spec
from inspect import formatannotation
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import dspy
from rich.rule import Rule
from rich.text import Text
from typer import Argument, Exit, Option

from ga_dspy.cli import runs
from ga_dspy.cli.choices import Asking, AskingOptions, Json, choose_lms, choose_program
from ga_dspy.cli.compile import compile_program
from ga_dspy.cli.console import (
    Console,
    columns,
    number,
    relative,
    show_answer,
    show_progress,
    show_steps,
)
from ga_dspy.demo import DEMO_QUESTION, RECORDED, corpus, questions
from ga_dspy.errors import GaDspyError, InputError, RunAborted
from ga_dspy.eval import Report, load, run_program
from ga_dspy.eval.methods import METHODS, method
from ga_dspy.graphrag import estimate_build
from ga_dspy.passage import replace_invalid
from ga_dspy.programs import GraphAnchor
from ga_dspy.programs.conversation import Rewrite, Turn
from ga_dspy.programs.prediction import as_json
from ga_dspy.programs.settings import listed_values
from ga_dspy.retrieval import Index
from ga_dspy.testing import recorded_lm
from ga_dspy.text import json_text

HOPS = (
    "No search for this question finds the passage with its answer. Of ten such questions "
    "(ga_dspy/demo/questions_hops.json) the embedded LM answers 2; 1 with a whole chain."
)
_RECORDED = (
    "The LM's replies are recorded, one per prompt; the rest (retrieval, parsing, grounding, the "
    "graph) runs now. Retrieval beats closed book; with an LM this small, the graph adds nothing "
    "significant. A frontier LM's scores are in docs/results/frontier.md."
)
_SMOKE = (
    "The embedded LM copies spans and hardly plans: this shows that every stage runs, not what an "
    "LLM would gain. An LLM would go through the same steps and calls."
)


# --- demo


def demo(
    keep: Annotated[Path, Option(help="Folder for the demo's files, replaced each time.")] = Path(
        ".demo"
    ),
) -> None:
    """Index the included corpus, ask a question, compare programs and compile one.

    Examples:
        ga-dspy demo
    """
    console, begun = Console(), time.perf_counter()
    for folder in ("index", "runs", "artifacts"):
        shutil.rmtree(keep / folder, ignore_errors=True)
    console.print(Rule("1. Index the included corpus", align="left"))
    with show_progress(console) as progress:
        index = Index.build(corpus(), keep / "index", progress=progress)
    console.print(f"{keep / 'index'}: {index.description}\n")

    console.print(Rule("2. Ask a question that needs several documents", align="left"))
    name, models = "graph-anchor", choose_lms()
    asking = Asking(choose_program(name, None, index), name, models, index)
    with dspy.context(lm=models.lm):
        _answer(console, asking, DEMO_QUESTION, _graph_cost(asking))
    console.print(f"{HOPS}\n", style="dim")
    console.print(Rule("3. Compare programs on the dev questions", align="left"))
    if options := show_recorded(console, RECORDED, index, keep / "runs"):
        data, live = relative(questions("dev")), keep / "runs" / "live"
        paths = f"--dataset hotpotqa --data {data} --index {keep / 'index'} --out {live}"
        console.print("Ask the LM itself, with the program of the last row:")
        line = f"  {_own_command()} eval {paths} {options} --api-base http://localhost:8080/v1"
        console.print(line, style="bold", soft_wrap=True)
    console.print()
    console.print(Rule("4. Smoke test: compile on the train questions", align="left"))
    console.print(_SMOKE, style="dim")
    compile_program(
        models, "hotpotqa", questions("train"), "10", keep / "index", keep / "artifacts" / "demo",
        test=questions("dev"), settings=["candidates=3"], yes=True,
        no_track=find_spec("mlflow") is None,
    )  # fmt: skip
    console.print(f"\nDone in {time.perf_counter() - begun:.0f} s. Ask your own question:")
    own = f'  {_own_command()} ask "…" --index {keep / "index"} --lm openai/gpt-4.1-mini'
    console.print(own, style="bold")


def show_recorded(console: Console, folder: Path, index: Index, out: Path) -> str:
    """Run the demo's programs with an LM's recorded replies, and print a table of their scores.

    A program whose prompts or answers have changed since the recording is reported and skipped.

    Args:
        console: Where to print.
        folder: The recordings; see `ga_dspy.demo.RECORDED`.
        index: The index of the included corpus.
        out: The folder for the runs.

    Returns:
        Options for `ga-dspy eval` that run the last row's program with the LM itself; empty if
        there is no row.
    """
    about = json.loads((folder / "about.json").read_text("utf-8"))
    reports = dict[str, Report]()
    for name, answers in about["answers"].items():
        try:
            reports[name] = replay(console, folder, name, answers, index, out / name)
        except (InputError, RunAborted) as error:
            console.warn(str(error))
    if not reports:
        return ""
    table, last = runs.summary_table(reports), [*reports][-1]
    n = reports[last].protocol.n
    table.title = f"recorded replies of {about['lm']}, {about['date']}, {n} questions"
    table.caption = f"{table.caption}; tokens are estimates"
    console.print(table)
    console.print(_RECORDED, style="dim")
    is_compiled = (folder / last).is_dir()
    program = f"--artifact {relative(folder / last)}" if is_compiled else f"--program {last}"
    return f"{program} --lm {about['lm']} --lm-set temperature=0"


def replay(
    console: Console, folder: Path, name: str, answers: Mapping[str, str], index: Index, out: Path
) -> Report:
    """Run a program on the demo's dev questions with an LM's recorded replies.

    Args:
        console: Where to show progress.
        folder: The recordings.
        name: Name of the recording: a method, or a folder with a compiled program.
        answers: The recorded answers by question id, for the first dev questions or all.
        index: The index of the included corpus.
        out: The folder of the run.

    Raises:
        InputError: An answer changed, a prompt was not recorded, or a recorded reply was not used.
    """
    lm, compiled, dev = recorded_lm(folder / f"{name}.jsonl"), folder / name, questions("dev")
    program = choose_program(name, str(compiled) if compiled.is_dir() else None, index)
    about = {"name": name, "dataset": "hotpotqa", "source": dev, "limit": len(answers)}
    with show_progress(console) as advance:
        report = run_program(
            program, load("hotpotqa", dev, limit=len(answers)), out=out, lm=lm, about=about,
            progress=lambda now: advance(name, now.done, now.total, now),
        )  # fmt: skip
    changed = sum(answers.get(result.id) != result.answer for result in report.results)
    script = lm.engine.script
    if changed or script.unused or script.unmatched:
        raise InputError(
            f"{name}: {number(changed, 'answer')} of {len(answers)} changed, "
            f"{number(len(script.unmatched), 'prompt')} not recorded, "
            f"{number(len(script.unused), 'record')} not used",
            expected="the recorded prompts and answers",
            remedy="record them again: tests/record_demo.py",
        )
    return report


def _own_command() -> str:
    """Return the command that started this program."""
    path = Path(sys.argv[0]).absolute()
    return str(relative(path)) if path.is_relative_to(Path.cwd()) else path.name


# --- programs


def programs(
    name: Annotated[str | None, Argument(help="Program whose settings to list.")] = None,
) -> None:
    """List the programs (for --program), or the settings of one (for --set).

    Examples:
        ga-dspy programs
        ga-dspy programs graph-anchor
    """
    if name is None:
        table = columns("program", "kind", "description")
        for each in METHODS.values():
            about = each.label
            if each.settings:
                about += f" ({', '.join(f'{key}={value}' for key, value in each.settings.items())})"
            else:
                about = (each.program.__doc__ or about).partition("\n")[0]
            table.add_row(each.name, each.group, about)
    else:
        chosen = method(name)
        types = get_type_hints(chosen.program)
        table = columns("setting", "default", "values", "description")
        for key, declared in chosen.program.declared().items():
            if declared.metadata["saved"]:
                default = str(chosen.settings.get(key, declared.default))
                values = ", ".join(map(str, listed_values(types[key])))
                if values in ("", "None"):
                    values = formatannotation(types[key])
                table.add_row(*map(Text, (key, default, values, declared.metadata["doc"])))
    Console().print(table)


# --- ask

SMALL_LM_NOTE = (
    "In our measurements a model under 4B gained 4 to 9 F1 from --set compare_facts=true, and "
    "nothing from the graph: --program vanilla-rag costs half the tokens (docs/lm.md)."
)
_BILLIONS = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?)b(?![a-z])", re.IGNORECASE)
_SAMPLE = 200


def ask(
    asking: Annotated[Asking, AskingOptions],
    question: Annotated[list[str] | None, Argument(help="Questions; - reads stdin.")] = None,
    questions: Annotated[Path | None, Option(help="File with one question per line.")] = None,
    json_only: Json = False,
) -> None:
    r"""Answer questions, and show how each answer was found.

    If one of several questions fails, the others are still answered, and the exit code is 1.

    Examples:
        ga-dspy ask "Who designed the bridge?" --index my-index --lm openai/gpt-4.1-mini
        ga-dspy ask "…" --index my-index --lm openai/qwen3 \
            --api-base http://localhost:8000/v1
        ga-dspy ask "…" --index my-index --set k=10 --set style=report --adapter json
        ga-dspy ask --questions questions.txt --index my-index --artifact artifacts/mine \
            --json
    """
    asked = [replace_invalid(text.strip()) for text in _read_questions(question or (), questions)]
    if not asked:
        raise InputError("no question", expected="one or more", remedy='ask "Who …?" --index DIR')
    console, failed = Console(), 0
    note = "" if json_only else _graph_cost(asking)
    indent = None if questions or len(asked) > 1 else 2
    for place, text in enumerate(asked):
        if place and not json_only:
            console.print()
        try:
            if json_only:
                _print_record(asking, text, as_json(asking.program(question=text)), indent)
            else:
                _answer(console, asking, text, note)
        except (GaDspyError, dspy.LMError) as error:
            if len(asked) == 1 or isinstance(error, RunAborted):
                raise
            failed += 1
            if json_only:
                _print_record(asking, text, {"error": str(error)}, indent)
            else:
                console.warn(f"failed: {error}")
    if not json_only:
        _advise(console, asking)
    if failed:
        raise Exit(1)


def _advise(console: Console, asking: Asking) -> None:
    """Print a note if the LM that answered is the embedded one or a small one."""
    lms, program = asking.models.all, asking.program
    console.note_embedded_lm(*lms)
    is_tuned = getattr(program, "compare_facts", True) and not isinstance(program, GraphAnchor)
    if not is_tuned and any(is_small(lm.model) for lm in lms):
        console.print(SMALL_LM_NOTE, style="dim")


def is_small(model: str) -> bool:
    """Return whether a model's name states fewer than four billion parameters.

    >>> is_small("openai/qwen2.5-coder-1.5b"), is_small("ollama_chat/qwen2.5:7b")
    (True, False)
    """
    return 0 < max(map(float, _BILLIONS.findall(model)), default=0) < 4


def _read_questions(questions: Iterable[str], file: Path | None) -> Iterator[str]:
    """Yield the questions of the arguments, in which "-" reads stdin, then those of the file."""
    for text in questions:
        if text == "-":
            yield from filter(str.strip, sys.stdin.read().splitlines())
        else:
            yield text
    if file:
        yield from filter(str.strip, file.read_text(encoding="utf-8-sig").splitlines())


def _answer(console: Console, asking: Asking, question: str, note: str) -> dspy.Prediction:
    """Ask a question; print its steps as they finish, then its answer."""
    console.print(Text.assemble(("Question  ", "bold"), question), "")
    with show_steps(console):
        found = asking.program(question=question)
    show_answer(console, found, note, _lm_names(asking).get("lms", {}))
    return found


def _print_record(
    asking: Asking, question: str, found: Mapping[str, Any], indent: int | None
) -> None:
    record = {"question": question, **_lm_names(asking), **found}
    print(json_text(record, indent), flush=True)  # noqa: T201 - the output itself


def _lm_names(asking: Asking) -> dict[str, Any]:
    """Return the name of the LM, and the names by step if any step has another LM."""
    names = {"lms": asking.program.lm_names()} if asking.program.step_lms() else {}
    return {"lm": asking.models.lm.model, **names}


def _graph_cost(asking: Asking) -> str:
    """Describe the estimated cost of a graph of the whole corpus; empty if there is a graph."""
    if not isinstance(asking.corpus, Index):
        return ""
    sample, calls = [*islice(asking.corpus, _SAMPLE)], len(asking.corpus)
    tokens = estimate_build(sample).tokens * calls / max(1, len(sample))
    cost = f"{number(calls, 'call')}, about {tokens:,.0f} tokens"
    return f"a static graph of this corpus: {cost} before the first question"


# --- chat


def chat(asking: Annotated[Asking, AskingOptions]) -> None:
    """Ask questions one after the other; follow-ups are rewritten as standalone questions.

    An empty line or Ctrl-D exits. The embedded LM cannot rewrite a question.

    Examples:
        ga-dspy chat --index my-index --lm openai/gpt-4.1-mini
    """
    console, turns, rewrite = Console(), list[Turn](), Rewrite()
    console.note_embedded_lm(*asking.models.all)
    while question := _next_question(console):
        rewritten = rewrite(question=question, turns=turns)
        if rewritten.failure:
            console.warn(f"asked without rewriting: {rewritten.failure}")
        if rewritten.question != question:
            cost = f"({number(rewritten.calls, 'call')}, {rewritten.tokens:,} tokens)"
            console.print(f"asked as: {rewritten.question} {cost}", style="dim")
        found = _answer(console, asking, rewritten.question, "")
        turns.append(Turn(rewritten.question, found.answer or "(no answer)"))


def _next_question(console: Console) -> str:
    """Read a question; return "" at the end of the input."""
    try:
        return replace_invalid(console.input("> " if console.is_terminal else "").strip())
    except EOFError:
        return ""
