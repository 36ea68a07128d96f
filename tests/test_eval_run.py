"""Runs: failures, threads, interrupts, the journal, and resuming after a kill."""

from __future__ import annotations

import json
import runpy
import signal
import sqlite3
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import dspy
import pytest

from ga_dspy.errors import DamagedFile, InputError, InUse, RunAborted
from ga_dspy.eval import Protocol, ProtocolMismatch, Report, RunProgress, load_report, run
from ga_dspy.eval.result import Result, RunJournal
from ga_dspy.passage import Passage
from ga_dspy.programs.calls import StepFailed
from ga_dspy.programs.meter import Usage

TOO_LONG = dspy.ContextWindowExceededError(message="the prompt has 9000 tokens")


def questions(n: int) -> list[dspy.Example]:
    rows = (dspy.Example(id=f"q{i}", question=f"{i}?", answer=str(i)) for i in range(n))
    return [row.with_inputs("question") for row in rows]


def protocol_of(examples: Sequence[dspy.Example], **changes: Any) -> Protocol:
    usual: dict[str, Any] = {"dataset": "made", "source": "made", "program": "echo", "lm": "none"}
    return Protocol.of(examples, **{**usual, **changes})


class Scripted:
    """Answers "7?" with "7", acts as `at` says at some questions, and records all questions."""

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


def test_a_question_that_failed_scores_zero_and_is_listed(tmp_path: Path) -> None:
    examples = questions(4)
    program = Scripted({"2?": fail(RuntimeError("no endpoint"))})
    report = run(program, examples, out=tmp_path, protocol=protocol_of(examples))
    assert report.f1 == report.em == report.acc == 75.0
    summary = without_seconds(tmp_path)
    assert summary["failed"] == [{"id": "q2", "error": "RuntimeError: no endpoint"}]
    assert (summary["n"], summary["failures"]) == (4, 1)
    assert (summary["steps_mean"], summary["lm_calls_mean"]) == (1.5, 2.25)


@pytest.mark.parametrize(
    "returned", [None, dspy.Prediction(text="x"), dspy.Prediction(answer=None), "text"]
)
def test_a_prediction_without_an_answer_is_a_named_failure(returned: Any, tmp_path: Path) -> None:
    examples = questions(1)
    report = run(lambda question: returned, examples, out=tmp_path, protocol=protocol_of(examples))
    [failed] = report.failed
    assert str(failed.error).startswith("InputError: the program returned ")


def test_an_empty_answer_is_an_answer(tmp_path: Path) -> None:
    examples = questions(1)
    empty = dspy.Prediction(answer="")
    report = run(lambda question: empty, examples, out=tmp_path, protocol=protocol_of(examples))
    assert (report.failed, report.f1) == ((), 0.0)


@pytest.mark.parametrize("threads", [1, 3])
def test_the_callers_dspy_context_applies_to_every_question(threads: int, tmp_path: Path) -> None:
    examples = questions(6)
    seen = []

    def program(question: str) -> dspy.Prediction:
        seen.append((dspy.settings.lm, dspy.settings.adapter))
        time.sleep(0.01)
        return dspy.Prediction(answer="x")

    lm, adapter = object(), dspy.JSONAdapter()
    with dspy.context(lm=lm, adapter=adapter):
        run(program, examples, out=tmp_path, protocol=protocol_of(examples), threads=threads)
    assert seen == [(lm, adapter)] * 6


def test_each_question_has_its_own_trace(tmp_path: Path) -> None:
    examples = questions(4)
    lengths = []

    def program(question: str) -> dspy.Prediction:
        dspy.settings.trace.append(question)
        time.sleep(0.01)
        lengths.append(len(dspy.settings.trace))
        return dspy.Prediction(answer="x")

    with dspy.context(trace=[]):
        run(program, examples, out=tmp_path, protocol=protocol_of(examples), threads=2)
        assert dspy.settings.trace == []
    assert lengths == [1, 1, 1, 1]


def test_questions_are_asked_concurrently(tmp_path: Path) -> None:
    examples = questions(6)
    together = threading.Barrier(3, timeout=20)

    def meet() -> None:
        together.wait()

    program = Scripted({f"{i}?": meet for i in range(6)})
    report = run(program, examples, out=tmp_path, protocol=protocol_of(examples), threads=3)
    assert report.failed == ()


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3)])
def test_an_interrupt_in_the_program_is_raised_and_the_journal_kept(
    error: BaseException, threads: int, tmp_path: Path
) -> None:
    examples = questions(8)
    protocol = protocol_of(examples)
    with pytest.raises(type(error)):
        run(
            Scripted({"5?": fail(error)}),
            examples,
            out=tmp_path,
            protocol=protocol,
            threads=threads,
        )
    with pytest.raises(InputError, match="of 8 questions"):
        load_report(tmp_path)
    rest = Scripted()
    assert run(rest, examples, out=tmp_path, protocol=protocol).f1 == 100.0
    assert "5?" in rest.asked
    assert len(rest.asked) < 8


def test_ctrl_c_does_not_wait_for_running_calls(tmp_path: Path) -> None:
    examples = questions(8)
    main, release = threading.main_thread().ident, threading.Event()
    assert main is not None

    def interrupt() -> None:
        signal.pthread_kill(main, signal.SIGINT)
        release.wait(60)

    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        run(
            Scripted({"4?": interrupt}),
            examples,
            out=tmp_path,
            protocol=protocol_of(examples),
            threads=2,
        )
    assert time.monotonic() - begun < 30
    release.set()
    assert not (tmp_path / "summary.json").exists()


def test_a_run_stops_when_the_endpoint_is_down(tmp_path: Path) -> None:
    examples = questions(30)
    counter = iter(range(1000))
    down = True

    def program(question: str) -> dspy.Prediction:
        if down and int(question[:-1]) >= 5:
            raise ConnectionError(f"refused (request req-{next(counter)}a)")
        return dspy.Prediction(answer="x")

    with pytest.raises(RunAborted, match=r"10 questions in a row failed, the last with Conn"):
        run(program, examples, out=tmp_path, protocol=protocol_of(examples))
    assert next(counter) == 10
    down = False
    report = run(program, examples, out=tmp_path, protocol=protocol_of(examples))
    assert report.failed == ()


@pytest.mark.parametrize(
    "error", [ValueError("a bug"), StepFailed("read", "it does not parse", "x"), TOO_LONG]
)
def test_permanent_failures_do_not_stop_a_run(error: Exception, tmp_path: Path) -> None:
    examples = questions(12)
    program = Scripted({f"{i}?": fail(error) for i in range(12)})
    report = run(program, examples, out=tmp_path, protocol=protocol_of(examples), abort_after=2)
    assert len(report.failed) == len(program.asked) == 12


def test_new_questions_come_before_retries_of_old_failures(tmp_path: Path) -> None:
    examples = questions(30)
    down = {f"{i}?": fail(ConnectionError("down")) for i in range(3, 13)}
    with pytest.raises(RunAborted):
        run(Scripted(down), examples, out=tmp_path, protocol=protocol_of(examples))
    again = Scripted(down)
    report = run(again, examples, out=tmp_path, protocol=protocol_of(examples))
    assert again.asked == [f"{i}?" for i in (*range(13, 30), *range(3, 13))]
    assert len(report.failed) == 10


def flaky(question: str, error: Exception) -> dict[str, Callable[[], None]]:
    """A function that raises `error` the first time a question is asked."""
    errors = iter([error])

    def once() -> None:
        for raised in errors:
            raise raised

    return {question: once}


@pytest.mark.parametrize("threads", [1, 3])
def test_transient_failures_are_retried_at_the_end_of_the_run(threads: int, tmp_path: Path) -> None:
    examples = questions(5)
    program = Scripted(flaky("1?", TimeoutError("slow")))
    report = run(program, examples, out=tmp_path, protocol=protocol_of(examples), threads=threads)
    assert (program.asked.count("1?"), program.asked[-1]) == (2, "1?")
    assert (report.failed, report.f1) == ((), 100.0)


def test_a_question_that_lost_a_step_to_an_outage_is_retried(tmp_path: Path) -> None:
    examples = questions(2)
    lost: dict[str, Any] = {"failures": ("the read step failed",), "is_transient": True}
    answers = iter([dspy.Prediction(answer="x", **lost), *[dspy.Prediction(answer="1")] * 2])
    report = run(
        lambda question: next(answers), examples, out=tmp_path, protocol=protocol_of(examples)
    )
    assert [result.answer for result in report.results] == ["1", "1"]
    assert report.degraded == ()


def test_a_retry_that_fails_does_not_replace_an_answer(tmp_path: Path) -> None:
    examples = questions(1)
    asked = []

    def program(question: str) -> dspy.Prediction:
        asked.append(question)
        if len(asked) > 1:
            raise TimeoutError("slow")
        return dspy.Prediction(answer="0", failures=("the read step failed",), is_transient=True)

    report = run(program, examples, out=tmp_path, protocol=protocol_of(examples))
    assert (len(asked), report.failed, report.f1) == (2, (), 100.0)
    assert without_seconds(tmp_path)["degraded"] == 1
    assert without_seconds(tmp_path)["degraded_ids"] == ["q0"]


@pytest.mark.parametrize("threads", [1, 3])
def test_an_abort_at_any_depth_ends_the_run_and_records_nothing(
    threads: int, tmp_path: Path
) -> None:
    examples = questions(6)
    wrapped = dspy.LMError("wrapped")
    wrapped.__cause__ = RunAborted("the key is refused")
    with pytest.raises(RunAborted, match="the key is refused"):
        run(
            Scripted({"4?": fail(wrapped)}), examples, out=tmp_path,
            protocol=protocol_of(examples), threads=threads,
        )  # fmt: skip
    with RunJournal(tmp_path / "journal.sqlite") as journal:
        results = journal.results()
    assert 4 not in results
    assert not any(result.error for result in results.values())


def test_a_wrapped_transient_failure_is_transient(tmp_path: Path) -> None:
    failure = StepFailed.from_error("answer", dspy.LMTransportError("reset"))
    examples = questions(1)
    program = Scripted({"0?": fail(failure)})
    report = run(program, examples, out=tmp_path, protocol=protocol_of(examples))
    assert program.asked == ["0?", "0?"]
    assert report.failed[0].is_transient


def test_progress_is_reported_in_the_calling_thread_and_counts_earlier_results(
    tmp_path: Path,
) -> None:
    examples = questions(5)
    protocol = protocol_of(examples)
    with pytest.raises(KeyboardInterrupt):
        run(Scripted({"2?": fail(KeyboardInterrupt())}), examples, out=tmp_path, protocol=protocol)
    seen: list[tuple[RunProgress, threading.Thread]] = []
    run(
        Scripted({"3?": fail(ValueError("x"))}),
        examples,
        out=tmp_path,
        protocol=protocol,
        threads=2,
        progress=lambda progress: seen.append((progress, threading.current_thread())),
    )
    assert [progress.done for progress, _ in seen] == [2, 3, 4, 5]
    first = seen[0][0]
    assert (first.done, first.total, first.report.failed, first.last) == (2, 5, (), None)
    assert len(seen[-1][0].report.failed) == 1
    assert {thread for _, thread in seen} == {threading.main_thread()}


def test_progress_shows_the_state_of_a_run_and_its_failures() -> None:
    usage = {"read": Usage(calls=57, failed=17, timeouts=15, unreadable=2)}
    right = Result(
        id="1", question="Who?", gold=("Ann",), gold_titles=(), type="", answer="Ann", usage=usage
    )
    wrong = Result(id="2", question="Who?", gold=("Ann",), gold_titles=(), type="", error="x")
    report = Report(protocol_of(questions(2)), (right, wrong))
    assert str(RunProgress(40, wrong, report)) == (
        "2 of 40 questions, F1 50.0, 1 failed, 57 LM calls, "
        "17 failed attempts (15 timeouts, 2 unreadable replies)"
    )


def test_progress_has_the_mean_f1_and_the_cost_so_far(tmp_path: Path) -> None:
    examples = questions(4)
    seen: list[RunProgress] = []
    run(
        Scripted({"3?": fail(ValueError("x"))}),
        examples,
        out=tmp_path,
        protocol=protocol_of(examples),
        progress=seen.append,
    )
    report = load_report(tmp_path)
    assert seen[-1].report.f1 == pytest.approx(report.f1)
    assert seen[-1].report.usage == report.usage


def test_the_questions_must_match_the_protocol(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not the 3 of the protocol"):
        run(Scripted(), questions(2), out=tmp_path, protocol=protocol_of(questions(3)))
    with pytest.raises(InputError, match="0 questions"):
        run(Scripted(), [], out=tmp_path, protocol=protocol_of([]))


@pytest.mark.parametrize(
    "example",
    [
        dspy.Example(question="q?", answer="a"),
        dspy.Example(id="a", question="q?"),
        dspy.Example(id="q0", question="q?", answer="a"),
    ],
)
def test_an_invalid_question_is_refused_before_the_run(
    example: dspy.Example, tmp_path: Path
) -> None:
    examples = [*questions(1), example]
    with pytest.raises(InputError, match="example 2 repeats an id, or has no id, question or acc"):
        run(Scripted(), examples, out=tmp_path, protocol=protocol_of(examples))
    assert not list(tmp_path.iterdir())


def test_text_that_is_not_valid_utf8_does_not_stop_the_run(tmp_path: Path) -> None:
    examples = questions(1)
    prediction = dspy.Prediction(
        answer="0 \ud800", evidence=["\udfff", float("nan")], supported=True
    )
    run(lambda question: prediction, examples, out=tmp_path, protocol=protocol_of(examples))
    [line] = (tmp_path / "predictions.jsonl").read_text("utf-8").splitlines()
    assert json.loads(line)["answer"] == "0 ?"
    assert json.loads(line)["evidence"] == ["?", None]


def test_predictions_carry_passages_evidence_and_step_failures(tmp_path: Path) -> None:
    examples = questions(1)
    prediction = dspy.Prediction(
        answer="0",
        passages=[Passage(id="p", title="Lodge", text="x"), Passage(id="r", text="y")],
        evidence=(Passage(id="p", title="Lodge", text="x"),),
        supported=True,
        failures=("step 2: no graph",),
        steps=2,
    )
    run(lambda question: prediction, examples, out=tmp_path, protocol=protocol_of(examples))
    row = json.loads((tmp_path / "predictions.jsonl").read_text("utf-8"))
    assert row["titles"] == ["Lodge", ""]
    assert row["evidence"] == [{"id": "p", "text": "x", "title": "Lodge"}]
    assert (row["steps"], row["supported"], row["calls"]) == (2, True, None)
    assert row["step_failures"] == ["step 2: no graph"]


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
            time.sleep(0.2)  # what other threads answer meanwhile reaches the journal
            os.kill(os.getpid(), signal.SIGKILL)
        if number == 11 and "interrupt" in sys.argv:
            time.sleep(0.2)
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


def command(out: Path, threads: int, *more: str) -> list[str]:
    script = out.parent / "script.py"
    script.write_text(textwrap.dedent(SCRIPT), "utf-8")
    return [str(script), str(out), str(threads), *more]


def start(out: Path, threads: int, *more: str) -> int:
    line = [sys.executable, *command(out, threads, *more)]
    return subprocess.run(line, check=False, capture_output=True, timeout=120).returncode


def start_here(monkeypatch: pytest.MonkeyPatch, out: Path, threads: int) -> None:
    """Run in this process, where nothing is killed."""
    monkeypatch.setattr(sys, "argv", command(out, threads))
    runpy.run_path(sys.argv[0])


@pytest.mark.parametrize("threads", [1, 4])
def test_a_killed_run_resumes_and_ends_with_the_same_summary(
    threads: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("killed", "whole"):
        (tmp_path / name).mkdir()
    out, whole = tmp_path / "killed" / "run", tmp_path / "whole" / "run"
    assert start(out, threads, "kill") == -signal.SIGKILL
    with RunJournal(out / "journal.sqlite") as journal:
        results = journal.results()
    answered = {position for position, result in results.items() if result.error is None}
    assert 0 < len(results) < 20

    start_here(monkeypatch, out, threads)
    start_here(monkeypatch, whole, 1)
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
    with RunJournal(tmp_path / "run" / "journal.sqlite") as journal:
        assert 0 < len(journal.results()) < 20


def test_a_finished_run_makes_no_calls_again(tmp_path: Path) -> None:
    examples = questions(3)
    run(Scripted(), examples, out=tmp_path, protocol=protocol_of(examples))
    before = (tmp_path / "summary.json").read_bytes()
    again = Scripted()
    report = run(again, examples, out=tmp_path, protocol=protocol_of(examples))
    assert again.asked == []
    assert (tmp_path / "summary.json").read_bytes() == before
    assert report == load_report(tmp_path)


def test_resuming_retries_transient_failures_and_permanent_ones_only_on_request(
    tmp_path: Path,
) -> None:
    examples = questions(4)
    protocol = protocol_of(examples)
    failing = {"1?": fail(TimeoutError("slow")), "2?": fail(RuntimeError("a bug"))}
    run(Scripted(failing), examples, out=tmp_path, protocol=protocol)
    second = Scripted()
    report = run(second, examples, out=tmp_path, protocol=protocol)
    assert (second.asked, [result.id for result in report.failed]) == (["1?"], ["q2"])
    third = Scripted()
    report = run(third, examples, out=tmp_path, protocol=protocol, retry_failures=True)
    assert (third.asked, report.failed, report.f1) == (["2?"], (), 100.0)


def test_resuming_under_another_protocol_names_the_differences(tmp_path: Path) -> None:
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
            RunJournal(path, protocol_of(examples)),
            pytest.raises(InUse, match="another run"),
        ):
            run(Scripted(), examples, out=tmp_path, protocol=protocol_of(examples))


def test_a_file_that_is_not_a_journal_is_refused(tmp_path: Path) -> None:
    examples = questions(1)
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "journal.sqlite").write_text("not a database, surely" * 50)
    (tmp_path / "other").mkdir()
    with sqlite3.connect(tmp_path / "other" / "journal.sqlite") as other:
        other.execute("CREATE TABLE t (x)")
    other.close()
    for name in ("text", "other"):
        with pytest.raises(DamagedFile, match="expected the journal"):
            run(Scripted(), examples, out=tmp_path / name, protocol=protocol_of(examples))
    with pytest.raises(DamagedFile, match="no such file"):
        load_report(tmp_path / "nothing")


def test_a_file_is_identified_by_its_content_not_its_path(tmp_path: Path) -> None:
    examples = questions(1)
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "dev.json").write_text("same")
    first, second = (protocol_of(examples, source=tmp_path / f / "dev.json") for f in "ab")
    assert first == second
    (tmp_path / "b" / "dev.json").write_text("changed")
    changed = protocol_of(examples, source=tmp_path / "b" / "dev.json")
    assert [text.split()[0] for text in first.differences(changed)] == ["sha256"]
