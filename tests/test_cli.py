"""The command line as a user meets it: what it prints, what it writes, how it fails."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.main import get_command

import ga_dspy
from ga_dspy.cli.commands import app

ROOT = Path(__file__).parents[1]
Command = Callable[..., subprocess.CompletedProcess[str]]
ARTIFACT = ROOT / "artifacts" / "demo"


@pytest.fixture(scope="module")
def index(command: Command, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sparse index over the shipped corpus, built by the command."""
    folder = tmp_path_factory.mktemp("cli")
    out = folder / "index"
    corpus = ROOT / "ga_dspy" / "demo" / "corpus.jsonl"
    done = command("index", "build", corpus, "--out", out, "--kind", "sparse", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "122 passages" in done.stdout
    return out


def test_ask_shows_the_steps_the_answer_and_what_answered(
    command: Command, index: Path, tmp_path: Path
) -> None:
    done = command("ask", "Which river does Bath lie on?", "--index", index, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for part in ("Step 1", "query", "passages", "judgement", "Answer", "embedded extractive LM"):
        assert part in done.stdout


@pytest.mark.parametrize(
    ("program", "how"),
    [
        ("graph-anchor", "a chain of stated links"),
        ("vanilla-rag", "quoted in a passage"),
        ("closed-book", "unsupported"),
    ],
)
def test_ask_says_what_supports_the_answer(
    command: Command, index: Path, tmp_path: Path, program: str, how: str
) -> None:
    question = "Where was Robert Stevenson born?"
    done = command("ask", question, "--index", index, "--program", program, cwd=tmp_path)
    assert how in " ".join(done.stdout.split())


def test_ask_with_json_prints_only_json(command: Command, index: Path, tmp_path: Path) -> None:
    done = command("ask", "Which river does Bath lie on?", "--index", index, "--json", cwd=tmp_path)
    record = json.loads(done.stdout)
    assert record["lm"] == "ga-dspy/extractive"
    assert {"answer", "supported", "evidence", "passages", "graph", "steps", "calls"} <= set(record)


def test_eval_writes_a_summary_and_predictions_and_resumes(
    command: Command, index: Path, tmp_path: Path
) -> None:
    data = ROOT / "ga_dspy" / "demo" / "questions_dev.json"
    args = ("eval", "--dataset", "hotpotqa", "--data", data, "--index", index, "--limit", "4",
            "--program", "vanilla-rag", "--out", tmp_path / "run")  # fmt: skip
    first = command(*args, cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert {"dataset", "program", "lm", "n", "f1", "em", "acc", "support_recall", "failures",
            "steps_mean", "lm_calls_mean", "seconds"} <= set(summary)  # fmt: skip
    assert (summary["n"], summary["failures"], summary["lm_calls_mean"]) == (4, 0, 1.0)
    assert len((tmp_path / "run" / "predictions.jsonl").read_text().splitlines()) == 4
    assert command(*args, cwd=tmp_path).returncode == 0
    assert json.loads((tmp_path / "run" / "summary.json").read_text()) == summary


def test_ask_and_eval_take_a_compiled_program(
    command: Command, index: Path, tmp_path: Path
) -> None:
    question = "Which river does Bath lie on?"
    done = command(
        "ask", question, "--index", index, "--artifact", ARTIFACT, "--json", cwd=tmp_path
    )
    assert len(json.loads(done.stdout)["steps"]) >= 1
    data = ROOT / "ga_dspy" / "demo" / "questions_dev.json"
    args = ("eval", "--dataset", "hotpotqa", "--data", data, "--index", index, "--limit", "2",
            "--artifact", ARTIFACT, "--out", tmp_path / "run")  # fmt: skip
    assert command(*args, cwd=tmp_path).returncode == 0
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["program"] == str(ARTIFACT)


def test_an_evaluation_and_an_arena_are_tracked_in_one_mlflow_store(
    command: Command, index: Path, tables: Path, tmp_path: Path
) -> None:
    mlflow = pytest.importorskip("mlflow")
    shutil.copyfile(tables, tmp_path / "runs.db")
    data = ROOT / "ga_dspy" / "demo" / "questions_dev.json"
    store = f"sqlite:///{tmp_path / 'runs.db'}"
    done = command("eval", "--dataset", "hotpotqa", "--data", data, "--index", index, "--limit",
                   "2", "--program", "vanilla-rag", "--out", tmp_path / "run", "--track", store,
               cwd=tmp_path)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert f"MLflow: 1 new run in {store}" in done.stdout
    done = command("arena", "--dataset", "hotpotqa", "--data", data, "--index", index, "--limit",
                   "2", "--programs", "vanilla-rag,closed-book", "--out", tmp_path / "arena",
                   "--track", store, cwd=tmp_path)  # fmt: skip
    assert f"MLflow: 1 new run, 1 already there in {store}" in done.stdout, done.stderr
    client = mlflow.MlflowClient(store)
    new, first = client.search_runs(["1"])
    assert [r.data.params["program"] for r in (new, first)] == ["closed-book", "vanilla-rag"]
    assert {"test/f1", "test/calls"} <= {*new.data.metrics} & {*first.data.metrics}
    assert [len(client.list_artifacts(r.info.run_id, "traces")) for r in (new, first)] == [2, 2]


def test_an_artifact_is_shown_compared_and_verified(command: Command, tmp_path: Path) -> None:
    shown = command("artifact", "show", ARTIFACT, cwd=tmp_path)
    for part in ("GraphAnchor", "bootstrap-rs", "ga-dspy/extractive", "sha256", "read", "answer"):
        assert part in shown.stdout
    assert "no difference" in command("artifact", "diff", ARTIFACT, ARTIFACT, cwd=tmp_path).stdout
    assert "is intact" in command("artifact", "verify", ARTIFACT, cwd=tmp_path).stdout


def test_a_tampered_artifact_is_reported(command: Command, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(ARTIFACT, copy, ignore=shutil.ignore_patterns("run"))
    program = copy / "program.json"
    program.write_text(program.read_text().replace("shortest complete", "longest"))
    done = command("artifact", "verify", copy, cwd=tmp_path)
    assert done.returncode == 1
    assert "digest" in done.stdout or "sha256" in done.stdout


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("ask", "Who?", "--index", "nowhere"), "nowhere"),
        (("ask", " ", "--index", "{index}"), "the question is"),
        (("ask", "Who?", "--index", "{index}", "--program", "magic"), "method 'magic' is unknown"),
        (("ask", "Who?", "--index", "{index}", "--api-base", "http://127.0.0.1:9"), "--lm"),
        (("index", "build", "missing.jsonl", "--out", "x"), "missing.jsonl"),
        (("eval", "--dataset", "nope", "--data", "{data}", "--index", "{index}", "--out", "o"),
         "nope"),
        (("eval", "--dataset", "musique", "--data", "{data}", "--index", "{index}", "--out", "o"),
         "questions_dev.json"),
        (("ask", "Who?", "--index", "{index}", "--lm", "openai/m", "--api-base",
          "http://127.0.0.1:9/v1", "--timeout", "1"), "ga-dspy: "),
    ],
)  # fmt: skip
def test_an_error_is_one_clear_line_and_exit_code_2(
    command: Command, index: Path, tmp_path: Path, args: tuple[str, ...], message: str
) -> None:
    data = ROOT / "ga_dspy" / "demo" / "questions_dev.json"
    done = command(*(arg.format(index=index, data=data) for arg in args), cwd=tmp_path)
    assert done.returncode == 2
    said = [line for line in done.stderr.splitlines() if line.startswith("ga-dspy: ")]
    assert len(said) == 1 and message in said[0]
    assert "Traceback" not in done.stderr


def test_verbose_adds_the_parts_of_an_error_and_its_cause(
    command: Command, index: Path, tmp_path: Path
) -> None:
    args = ("ask", "Who?", "--index", index, "--set", "k=many")
    plain = command(*args, cwd=tmp_path).stderr.splitlines()
    first, *more = command(*args, "--verbose", cwd=tmp_path).stderr.splitlines()
    assert plain == [first]
    assert more[:2] == ["  type: InputError", "  found: setting k=many"]
    assert [line.split(":")[0] for line in more[2:]] == ["  expected", "  remedy", "  cause"]
    assert more[-1].startswith("  cause: ValidationError: ")


def test_help_in_a_new_process_lists_the_commands_in_groups(tmp_path: Path) -> None:
    code = "from ga_dspy.cli import main; main()"
    told = subprocess.run(
        [sys.executable, "-c", code, "--help"],
        capture_output=True, text=True, cwd=tmp_path, check=True,
    ).stdout  # fmt: skip
    sought = ("Start", "demo", "ask", "Documents", "index", "graph", "Measure", "eval", "arena",
              "report", "Tune", "compile", "artifact", )  # fmt: skip
    places = [re.search(rf"^╭─ {name} |^│ {name} ", told, re.MULTILINE) for name in sought]
    assert [place.start() for place in places if place] == sorted(
        place.start() if place else -1 for place in places
    )


def test_the_examples_in_every_commands_help_parse() -> None:
    top = get_command(app)
    seen = set()
    for words, command in _commands(top, []):
        assert all(len(line) <= 100 for line in (command.epilog or "").splitlines()), words
        text = (command.epilog or "").replace("\\\n", " ")

        lines = re.findall(r"^    ga-dspy (.+)$", text, re.MULTILINE)
        assert lines or hasattr(command, "commands"), words
        for line in lines:
            args = shlex.split(line.replace("\\[", "["))
            given = _parse(top, args)
            seen.add(given)
    assert {"ask", "build", "sync", "compile", "verify", "eval"} <= seen


def _commands(command: Any, words: list[str]) -> Iterator[tuple[list[str], Any]]:
    for name, below in getattr(command, "commands", {}).items():
        yield [*words, name], below
        yield from _commands(below, [*words, name])


def _parse(command: Any, args: list[str]) -> str:
    """Read arguments as the command line would, without running anything; who took them."""
    while below := getattr(command, "commands", None):
        command, args = below[args[0]], args[1:]
    with suppress(typer.Exit):  # of an option that ends the command, such as --new-key
        command.make_context(command.name, args)
    return str(command.name)


def test_the_version_is_printed(command: Command, tmp_path: Path) -> None:
    assert command("--version", cwd=tmp_path).stdout == f"ga-dspy {ga_dspy.__version__}\n"
