"""Runs that go on: after a kill, with failures, under one protocol, with one writer."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import dspy
import pytest

from ga_dspy.eval import (
    JournalBusy,
    JournalUnreadable,
    Protocol,
    ProtocolMismatch,
    load_report,
    run,
)
from ga_dspy.eval.journal import Journal

SCRIPT = """
    import os, signal, sys, time
    from pathlib import Path

    import dspy

    from ga_dspy.eval import Protocol, run
    from ga_dspy.passage import Passage

    out, threads = Path(sys.argv[1]), int(sys.argv[2])
    asked, killed = out.parent / "asked.txt", out.parent / "killed"
    examples = [
        dspy.Example(
            id=f"q{n}",
            question=f"{n}?",
            answer=str(n % 4),
            gold_titles=("T0", "T1"),
            type=f"t{n % 2}",
        ).with_inputs("question")
        for n in range(20)
    ]

    def program(question):
        number = int(question[:-1])
        with asked.open("a") as file:
            file.write(f"{number}\\n")
        if number == 11 and "kill" in sys.argv and not killed.exists():
            killed.touch()
            time.sleep(0.5)  # what other threads answer meanwhile reaches the journal
            os.kill(os.getpid(), signal.SIGKILL)
        if number == 11 and "interrupt" in sys.argv:
            time.sleep(0.5)
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(100)
        if number % 7 == 6:
            raise ValueError(f"no answer to {question}")
        return dspy.Prediction(
            answer=str(number % 3),
            passages=[Passage(id="p", title=f"T{number % 3}", text="x")],
            steps=[None] * (1 + number % 3),
            calls=number,
            tokens=10 * number,
        )

    protocol = Protocol.of(examples, dataset="made", source="made", program="script", lm="none")
    run(program, examples, out=out, protocol=protocol, threads=threads)
"""


def questions(n: int) -> list[dspy.Example]:
    rows = (dspy.Example(id=f"q{i}", question=f"{i}?", answer=str(i)) for i in range(n))
    return [row.with_inputs("question") for row in rows]


def protocol_of(examples: Sequence[dspy.Example], **changes: Any) -> Protocol:
    usual: dict[str, Any] = {"dataset": "made", "source": "made", "program": "echo", "lm": "none"}
    return Protocol.of(examples, **{**usual, **changes})


class Scripted:
    """Answers "7?" with "7"; does what `at` says at some questions, and remembers the asked."""

    def __init__(self, at: dict[str, Callable[[], None]] | None = None) -> None:
        self.at = at or {}
        self.asked: list[str] = []

    def __call__(self, question: str) -> dspy.Prediction:
        self.asked.append(question)
        self.at.get(question, lambda: None)()
        return dspy.Prediction(
            answer=question.removesuffix("?"), passages=[], steps=(1, 2), calls=3, tokens=40
        )


def fail(error: BaseException) -> Callable[[], None]:
    def raise_it() -> None:
        raise error

    return raise_it


def without_seconds(out: Path) -> dict[str, Any]:
    summary: dict[str, Any] = json.loads((out / "summary.json").read_text("utf-8"))
    assert summary.pop("seconds") >= 0
    return summary


def start(out: Path, threads: int, *more: str) -> int:
    script = out.parent / "script.py"
    script.write_text(textwrap.dedent(SCRIPT), "utf-8")
    command = [sys.executable, str(script), str(out), str(threads), *more]
    return subprocess.run(command, check=False, capture_output=True, timeout=120).returncode


@pytest.mark.parametrize("threads", [1, 4])
def test_a_killed_run_goes_on_where_it_was_and_ends_the_same(threads: int, tmp_path: Path) -> None:
    for name in ("killed", "whole"):
        (tmp_path / name).mkdir()
    out, whole = tmp_path / "killed" / "run", tmp_path / "whole" / "run"
    assert start(out, threads, "kill") == -signal.SIGKILL
    with Journal(out / "journal.sqlite") as journal:
        entries = journal.entries()
    answered = {position for position, entry in entries.items() if entry.result.error is None}
    assert 0 < len(entries) < 20

    assert start(out, threads, "kill") == 0
    assert start(whole, 1) == 0
    asked = (out.parent / "asked.txt").read_text().split()
    assert all(asked.count(str(position)) == 1 for position in answered)
    assert set(asked) == {str(number) for number in range(20)}
    assert without_seconds(out) == without_seconds(whole)
    assert (out / "predictions.jsonl").read_bytes() == (whole / "predictions.jsonl").read_bytes()
    assert without_seconds(out)["failures"] == 2


@pytest.mark.parametrize("threads", [1, 4])
def test_ctrl_c_ends_the_process_at_once_and_keeps_the_journal(
    threads: int, tmp_path: Path
) -> None:
    begun = time.monotonic()
    assert start(tmp_path / "run", threads, "interrupt") == -signal.SIGINT
    assert time.monotonic() - begun < 60
    with Journal(tmp_path / "run" / "journal.sqlite") as journal:
        assert 0 < len(journal.entries()) < 20


def test_a_finished_run_asks_nothing_again(tmp_path: Path) -> None:
    examples = questions(3)
    run(Scripted(), examples, out=tmp_path, protocol=protocol_of(examples))
    before = (tmp_path / "summary.json").read_bytes()
    again = Scripted()
    report = run(again, examples, out=tmp_path, protocol=protocol_of(examples))
    assert again.asked == []
    assert (tmp_path / "summary.json").read_bytes() == before
    assert report == load_report(tmp_path)


def test_failed_questions_are_asked_again_unless_told_otherwise(tmp_path: Path) -> None:
    examples = questions(4)
    protocol = protocol_of(examples)
    run(Scripted({"2?": fail(RuntimeError("down"))}), examples, out=tmp_path, protocol=protocol)
    kept = Scripted()
    report = run(kept, examples, out=tmp_path, protocol=protocol, retry_failures=False)
    assert (kept.asked, len(report.failed)) == ([], 1)
    retried = Scripted()
    report = run(retried, examples, out=tmp_path, protocol=protocol)
    assert (retried.asked, report.failed, report.f1) == (["2?"], (), 100.0)


def test_going_on_under_another_protocol_names_what_differs(tmp_path: Path) -> None:
    examples = questions(2)
    saved = protocol_of(examples, settings={"max_steps": 4, "k": 5})
    run(Scripted(), examples, out=tmp_path, protocol=saved)
    other = protocol_of(examples, settings={"max_steps": 2, "k": 5}, lm="big")
    with pytest.raises(ProtocolMismatch) as caught:
        run(Scripted(), examples, out=tmp_path, protocol=other)
    assert caught.value.differences == (
        'lm was "none", is "big"',
        "settings.max_steps was 4, is 2",
    )
    assert without_seconds(tmp_path)["protocol"]["settings"] == {"max_steps": 4, "k": 5}


def test_two_runs_cannot_write_one_journal(tmp_path: Path) -> None:
    examples = questions(1)
    path = tmp_path / "journal.sqlite"
    for _ in ("begun", "resumed"):
        with (
            Journal(path, protocol_of(examples)),
            pytest.raises(JournalBusy, match="another run"),
        ):
            run(Scripted(), examples, out=tmp_path, protocol=protocol_of(examples))


def test_a_file_that_is_no_journal_is_refused(tmp_path: Path) -> None:
    examples = questions(1)
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "journal.sqlite").write_text("not a database, surely" * 50)
    (tmp_path / "other").mkdir()
    with sqlite3.connect(tmp_path / "other" / "journal.sqlite") as other:
        other.execute("CREATE TABLE t (x)")
    other.close()
    for name in ("text", "other"):
        with pytest.raises(JournalUnreadable, match="expected a journal"):
            run(Scripted(), examples, out=tmp_path / name, protocol=protocol_of(examples))
    with pytest.raises(JournalUnreadable, match="no such file"):
        load_report(tmp_path / "nothing")


def test_a_file_is_known_by_its_content_wherever_it_lies(tmp_path: Path) -> None:
    examples = questions(1)
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "dev.json").write_text("same")
    first, second = (protocol_of(examples, source=tmp_path / f / "dev.json") for f in "ab")
    assert first == second
    (tmp_path / "b" / "dev.json").write_text("changed")
    changed = protocol_of(examples, source=tmp_path / "b" / "dev.json")
    assert [text.split()[0] for text in first.differences(changed)] == ["sha256"]
