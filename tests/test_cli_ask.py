"""`ga-dspy ask` and `chat`: what a person sees while waiting, settings, several questions."""

from __future__ import annotations

import io
import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import dspy
import pytest
from endpoint import Behaviour, Endpoint
from typer.testing import CliRunner

import ga_dspy
from ga_dspy.cli.commands import app
from ga_dspy.cli.console import Console, show_answer, show_steps
from ga_dspy.demo import DEMO_QUESTION, corpus
from ga_dspy.eval.methods import METHODS

Command = Callable[..., subprocess.CompletedProcess[str]]
QUESTION, OTHER = "Which river does Bath lie on?", "Who designed the SS Great Britain?"


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ask") / "index"
    ga_dspy.Index.build(corpus(), folder, kind="sparse")
    return folder


@pytest.mark.parametrize("is_terminal", [False, True])
def test_steps_are_printed_as_they_finish(index: Path, is_terminal: bool) -> None:
    out = io.StringIO()
    console = Console(file=out, width=80, force_terminal=is_terminal, color_system=None)
    seen: list[str] = []
    program = ga_dspy.GraphAnchor(ga_dspy.Index.open(index))
    search = program.retriever

    def spied(query: str, k: int) -> list[ga_dspy.Passage]:
        seen.append(out.getvalue())
        time.sleep(0.2 * is_terminal)  # a few refreshes of the status line
        return list(search(query, k))

    program.retriever = spied
    with dspy.context(lm=ga_dspy.extractive_lm()), show_steps(console):
        found = program(question=DEMO_QUESTION)
    assert len(seen) == len(found.steps) > 1
    for number, before in enumerate(seen, 1):
        assert f"Step {number - 1}" in before or number == 1
        assert f"Step {number}\n" not in before
    show_answer(console, found, "what else")
    assert f"this question: {found.calls} calls, {found.tokens:,} tokens; what else" in (
        out.getvalue().replace("\n", " ")
    )
    assert ("searching" in out.getvalue()) == is_terminal


def test_the_cost_is_printed_next_to_that_of_a_corpus_graph(
    command: Command, index: Path, tmp_path: Path
) -> None:
    said = command("ask", QUESTION, "--index", index, cwd=tmp_path).stdout
    assert "; a static graph of this corpus: 122 calls, about " in " ".join(said.split())


def test_several_questions_are_answered_in_order_over_one_index(
    command: Command, index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "more.txt").write_text(f"{OTHER}\n\n")
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{DEMO_QUESTION}\n\n"))
    done = command("ask", QUESTION, "-", "--questions", "more.txt", "--index", index, "--program",
                   "vanilla-rag", "--json", cwd=tmp_path)  # fmt: skip
    asked = [json.loads(line)["question"] for line in done.stdout.splitlines()]
    assert asked == [QUESTION, DEMO_QUESTION, OTHER], done.stderr
    shown = command("ask", QUESTION, OTHER, "--index", index, cwd=tmp_path).stdout
    assert shown.index(QUESTION) < shown.index(OTHER) and shown.count("─ Answer") == 2


def test_a_failed_question_does_not_stop_the_others(
    command: Command, index: Path, tmp_path: Path
) -> None:
    (tmp_path / "all.txt").write_text(f"{'Who? ' * 5000}\n{QUESTION}\n")
    asked = ("ask", "--questions", "all.txt", "--index", index, "--program", "vanilla-rag")
    done = command(*asked, "--json", cwd=tmp_path)
    first, second = map(json.loads, done.stdout.splitlines())
    assert "characters" in first["error"] and "answer" not in first
    assert second["answer"] and done.returncode == 1
    shown = command(*asked, cwd=tmp_path)
    assert "failed: " in shown.stderr + shown.stdout and "─ Answer" in shown.stdout
    assert shown.returncode == 1


def test_set_changes_a_setting_of_the_program(
    command: Command, index: Path, tmp_path: Path
) -> None:
    done = command("ask", DEMO_QUESTION, "--index", index, "--json", "--set", "k=2", "--set",
                   "max_steps=1", "--set", "abstain=chained", cwd=tmp_path)  # fmt: skip
    found = json.loads(done.stdout)
    assert len(found["steps"]) == 1 and len(found["passages"]) == 2


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--set", "k=many"), "a valid integer"),
        (("--set", "style=poem"), "'span', 'sentence' or 'report'"),
        (("--set", "hops=2"), "one of abstain"),
        (("--set", "k"), "name=value"),
        (("--adapter", "yaml"), "'yaml' is not one of"),
        (("--lm-set", "hot"), "--lm-set hot"),
        (("--lm-set", "temperature=hot"), "Expected a number"),
    ],
)
def test_an_unknown_setting_is_named_with_the_known_ones(
    command: Command, index: Path, tmp_path: Path, more: tuple[str, ...], said: str
) -> None:
    done = command("ask", QUESTION, "--index", index, *more, cwd=tmp_path)
    assert done.returncode == 2 and said in done.stderr


def test_lm_settings_and_the_adapter_reach_the_endpoint(
    command: Command, index: Path, tmp_path: Path
) -> None:
    reply = "<links>[1]</links><answer>Avon</answer><verdict>answered</verdict>"
    endpoint = Endpoint(Behaviour(reply=reply))
    try:
        done = command("ask", QUESTION, "--index", index, "--lm", "openai/local", "--api-base",
                       endpoint.url, "--program", "vanilla-rag", "--adapter", "xml", "--lm-set",
                       "max_tokens=777", cwd=tmp_path)  # fmt: skip
        assert done.returncode == 0, done.stderr
        (request,) = endpoint.requests
        assert 777 in request.values() and "<answer>" in json.dumps(request["messages"])
    finally:
        endpoint.close()


@pytest.mark.parametrize(("model", "is_told"), [("openai/tiny-1.5b", True), ("openai/gpt", False)])
def test_a_small_lm_gets_the_hint_to_try_a_single_search(
    command: Command, index: Path, tmp_path: Path, model: str, is_told: bool
) -> None:
    endpoint = Endpoint(Behaviour())
    try:
        done = command("ask", QUESTION, "--index", index, "--lm", model, "--api-base",
                       endpoint.url, cwd=tmp_path)  # fmt: skip
        told = "--program vanilla-rag" in " ".join(done.stdout.split())
        assert told == is_told, done.stderr
    finally:
        endpoint.close()


def test_chat_prints_the_rewritten_question(
    command: Command, index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ga_dspy.testing import scripted_lm

    def reply(prompt: str) -> dict[str, str]:
        if "standalone_question" in prompt:
            return {"standalone_question": "Where was Isambard Kingdom Brunel born?"}
        return {"answer": "Brunel", "verdict": "answered", "links": "[1]"}

    lm = scripted_lm(reply)
    monkeypatch.setattr("ga_dspy.cli.choices.choose_lm", lambda *given: lm)
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{OTHER}\nWhere was he born?\n"))
    done = command("chat", "--index", index, "--program", "vanilla-rag", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "asked as: Where was Isambard Kingdom Brunel born? (1 call" in done.stdout
    assert f"Q: {OTHER}\nA: Brunel" in lm.engine.prompts[1]
    assert "he born" not in lm.engine.prompts[2]


def test_programs_lists_every_program_or_the_settings_of_one() -> None:
    listed = CliRunner().invoke(app, ["programs"])
    assert all(name in listed.output for name in METHODS)
    one = CliRunner().invoke(app, ["programs", "qa-graph"], env={"COLUMNS": "160"})
    rows = {line.split()[0]: line for line in one.output.splitlines() if line.strip()}
    assert rows["answer_from"].split()[1:5] == ["graph", "both,", "passages,", "graph"]
    assert rows["token_budget"].split()[1:5] == ["None", "int", "|", "None"]
    wrong = CliRunner().invoke(app, ["programs", "graph-anker"])
    assert "graph-anchor" in str(wrong.exception)
