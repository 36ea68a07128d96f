"""Record what an LM replies to the demo's programs, for the table of `ga-dspy demo`.

    python tests/record_demo.py ga_dspy/demo/recorded --lm openai/MODEL --api-base URL \
        --artifact artifacts/MODEL/vanilla-rag --artifact artifacts/MODEL/graph-anchor

The shipped dev questions are asked, greedily. What the LM replied is in DSPy's cache: stopped and
started again, the script goes on. At the end the recordings are replayed, and the table is shown.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import dspy
import typer
from dspy.utils.callback import BaseCallback

from ga_dspy.artifact import FILES
from ga_dspy.cli.ask import show_recorded
from ga_dspy.cli.choices import (
    Addresses,
    Limit,
    Models,
    Threads,
    Timeout,
    choose_lms,
    choose_program,
)
from ga_dspy.cli.console import Console
from ga_dspy.demo import corpus, questions
from ga_dspy.eval import load
from ga_dspy.lm.replies import read_reply
from ga_dspy.retrieval import Index
from ga_dspy.testing import asked_fields, given_fields

PROGRAMS = ("closed-book", "vanilla-rag", "graph-anchor")
SHORT = ("question", "search")
"""Inputs that tell the calls of a question apart, beside its passages."""

Record = dict[str, dict[str, Any]]


class Heard(BaseCallback):
    """The last reply to each prompt; those before it were rejected."""

    def __init__(self) -> None:
        self._prompts: dict[str, str] = {}
        self.records: dict[str, Record] = {}

    def on_lm_start(self, call_id: str, instance: Any, inputs: dict[str, Any]) -> None:
        self._prompts[call_id] = "\n\n".join(str(part["content"]) for part in inputs["messages"])

    def on_lm_end(self, call_id: str, outputs: Any, exception: BaseException | None = None) -> None:
        prompt = self._prompts.pop(call_id)
        if exception is None:
            first = outputs[0]
            call = recorded(prompt, first["text"] if isinstance(first, dict) else first)
            self.records[json.dumps([call["inputs"], *call["outputs"]])] = call


def recorded(prompt: str, reply: str) -> Record:
    """A call as `recorded_lm` reads it; passages by number and title, for their size."""
    given, asked = given_fields(prompt), asked_fields(prompt)
    inputs = {name: given[name] for name in SHORT if name in given}
    if "passages" in given:
        titles = re.findall(r"^\[\d+\] .*$", given["passages"], re.MULTILINE)
        inputs["passages"] = "\n\n".join(titles)
    signature = dspy.Signature(f"question -> {', '.join(asked)}")
    outputs = read_reply(signature, reply, required=()) or {}
    return {"inputs": inputs, "outputs": outputs}


def record(
    file: Path, program: dspy.Module, lm: dspy.LM, asked: Sequence[dspy.Example], threads: int = 1
) -> dict[str, str]:
    """Ask a program; write the calls to a file. Returns the answers, by the question's id."""

    def ask(example: dspy.Example) -> tuple[str, list[Record]]:
        heard = Heard()
        with dspy.context(lm=lm, callbacks=[heard]):
            answer: str = program(question=example.question).answer
        return answer, [*heard.records.values()]

    answers, rows = dict[str, str](), list[Record]()
    with ThreadPoolExecutor(threads) as pool:
        for example, (answer, calls) in zip(asked, pool.map(ask, asked), strict=True):
            answers[example.id] = answer
            rows += calls
            print(f"{file.stem} {len(answers)}/{len(asked)}: {answer}", flush=True)
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    file.write_text(text, encoding="utf-8")
    return answers


def main(
    out: Path,
    lm: Models = None,
    api_base: Addresses = None,
    timeout: Timeout = None,
    artifact: Annotated[
        list[Path] | None, typer.Option(help="A compiled program, a row of its own; repeatable.")
    ] = None,
    limit: Limit = None,
    threads: Threads = 1,
) -> None:
    """Record every row of the table into a new folder."""
    if out.exists():
        raise typer.BadParameter(f"{out} exists; expected a new folder; remove it first")
    models = choose_lms(lm, api_base, timeout)
    greedy = models.lm.copy(temperature=0.0)
    asked, answers = load("hotpotqa", questions("dev"), limit=limit), dict[str, dict[str, str]]()
    compiled = {f"{path.name}-compiled": path for path in artifact or ()}
    with TemporaryDirectory() as kept:
        index, made = Index.build(corpus(), Path(kept) / "index"), Path(kept) / "recorded"
        made.mkdir()
        for name in (*PROGRAMS, *compiled):
            path = compiled.get(name)
            program = choose_program(name, str(path) if path else None, index, models)
            answers[name] = record(made / f"{name}.jsonl", program, greedy, asked, threads)
            if path:
                (made / name).mkdir()
                for part in FILES:
                    shutil.copyfile(path / part, made / name / part)
        about = {"lm": greedy.model, "date": f"{datetime.now(UTC):%Y-%m-%d}", "answers": answers}
        text = json.dumps(about, ensure_ascii=False, indent=1)
        (made / "about.json").write_text(f"{text}\n", encoding="utf-8")
        shutil.copytree(made, out)
        show_recorded(Console(), out, index, Path(kept) / "runs")
    size = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
    print(f"{out}: {size:,} bytes")


if __name__ == "__main__":
    typer.run(main)
