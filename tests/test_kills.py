"""Long commands killed with kill -9 and started again: the short form of `kill_commands`."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import dspy
import pytest
from endpoint import Endpoint
from kill_commands import contents, endure

from ga_dspy.demo import corpus, questions
from ga_dspy.errors import InputError
from ga_dspy.eval import Protocol, run
from ga_dspy.retrieval import Index
from ga_dspy.testing import scripted_lm


@pytest.mark.parametrize("name", ["eval", "arena", "graph build"])
def test_a_killed_command_resumes_with_the_same_result_and_repeats_no_call(
    name: str, tmp_path: Path
) -> None:
    (found,) = endure([name], tmp_path, kills=1, seed=3)
    assert found.calls > 20
    assert (found.identical, found.differences) == (1, ())
    assert found.held, found


def test_contents_compare_results_and_ignore_times(tmp_path: Path) -> None:
    for folder, f1, seconds in (("a", 50.0, 3), ("b", 50.0, 4), ("c", 60.0, 3)):
        (tmp_path / folder).mkdir()
        summary = {"f1": f1, "usage": {"seconds": seconds}}
        (tmp_path / folder / "summary.json").write_text(json.dumps(summary))
    a, b, c = (contents(tmp_path / folder) for folder in "abc")
    assert a == b != c


def test_an_unknown_command_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no command 'ask' to kill"):
        next(endure(["ask"], tmp_path))


def two_calls(*, stop: bool = False) -> Callable[..., dspy.Prediction]:
    """A program that asks the same twice, then something else; or stops before that."""

    def program(question: str) -> dspy.Prediction:
        said = [dspy.settings.lm(f"{question} first"), dspy.settings.lm(f"{question} first")]
        if stop:
            raise KeyboardInterrupt
        said.append(dspy.settings.lm(f"{question} then"))
        return dspy.Prediction(answer=" ".join(text for (text,) in said))

    return program


def test_an_interrupted_question_replays_its_finished_calls(
    tmp_path: Path,
) -> None:
    prompts: list[str] = []

    def reply(prompt: str) -> str:
        prompts.append(prompt)
        return f"reply {len(prompts)}"

    lm, example = scripted_lm(reply), dspy.Example(id="q", question="Where?", answer="there")
    protocol = Protocol.of([example], dataset="d", source="s", program="p", lm="lm")
    with dspy.context(lm=lm):
        with pytest.raises(KeyboardInterrupt):
            run(two_calls(stop=True), [example], out=tmp_path, protocol=protocol)
        assert (tmp_path / "calls.sqlite").exists() and len(prompts) == 2
        report = run(two_calls(), [example], out=tmp_path, protocol=protocol)
    assert report.results[0].answer == "reply 1 reply 2 reply 3"
    assert [prompt.split()[-1] for prompt in prompts] == ["first", "first", "then"]
    assert not (tmp_path / "calls.sqlite").exists()


def test_only_calls_of_unfinished_questions_are_kept(tmp_path: Path) -> None:
    def program(question: str) -> dspy.Prediction:
        (text,) = dspy.settings.lm(question)
        if question == "2":
            raise KeyboardInterrupt
        return dspy.Prediction(answer=text)

    file = tmp_path / "calls.sqlite"
    asked = [dspy.Example(id=str(n), question=str(n), answer="there") for n in range(3)]
    protocol = Protocol.of(asked, dataset="d", source="s", program="p", lm="lm")
    with dspy.context(lm=scripted_lm(lambda prompt: "here")):
        with pytest.raises(KeyboardInterrupt):
            run(program, asked, out=tmp_path, protocol=protocol)
        with closing(sqlite3.connect(file)) as calls:
            assert calls.execute("SELECT DISTINCT role FROM call").fetchall() == [("2",)]
            # As a kill leaves them that comes when a question was recorded.
            calls.execute("INSERT INTO call SELECT 'k', '0', tokens, money, result FROM call")
            calls.commit()
        run(two_calls(), asked, out=tmp_path, protocol=protocol)
    assert not file.exists()


def test_changing_timeout_or_threads_repeats_no_question(
    command: Callable[..., Any], tmp_path: Path
) -> None:
    Index.build(corpus(), tmp_path / "index", kind="sparse")
    with Endpoint() as endpoint:
        asking = (
            "eval", "--dataset", "hotpotqa", "--data", questions("dev"), "--index", "index",
            "--out", "run", "--limit", "3", "--lm", "openai/local", "--api-base", endpoint.url,
        )  # fmt: skip
        command(*asking, cwd=tmp_path)
        before = len(endpoint.requests)
        assert before >= 6
        done = command(*asking, "--timeout", "60", "--threads", "2", cwd=tmp_path)
    assert (done.returncode, len(endpoint.requests)) == (0, before), done.stderr
