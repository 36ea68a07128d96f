"""Runs: failures, threads that keep the caller's settings, interrupts, what is recorded."""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import dspy
import pytest

from ga_dspy.errors import InputError
from ga_dspy.eval import (
    Progress,
    Protocol,
    RunAborted,
    Unfinished,
    load_report,
    run,
)
from ga_dspy.passage import Passage


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
    assert [result.error and result.error[:9] for result in report.failed] == ["NoAnswer:"]


def test_an_empty_answer_is_an_answer(tmp_path: Path) -> None:
    examples = questions(1)
    empty = dspy.Prediction(answer="")
    report = run(lambda question: empty, examples, out=tmp_path, protocol=protocol_of(examples))
    assert (report.failed, report.f1) == ((), 0.0)


@pytest.mark.parametrize("threads", [1, 3])
def test_the_callers_dspy_context_reaches_every_question(threads: int, tmp_path: Path) -> None:
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


def test_each_question_has_a_trace_of_its_own(tmp_path: Path) -> None:
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


def test_questions_are_asked_at_the_same_time(tmp_path: Path) -> None:
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
    with pytest.raises(Unfinished, match="of 8 questions"):
        load_report(tmp_path)
    rest = Scripted()
    assert run(rest, examples, out=tmp_path, protocol=protocol).f1 == 100.0
    assert "5?" in rest.asked
    assert len(rest.asked) < 8


def test_ctrl_c_does_not_wait_for_calls_under_way(tmp_path: Path) -> None:
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

    with pytest.raises(RunAborted, match=r"10 questions in a row failed alike: ConnectionError"):
        run(program, examples, out=tmp_path, protocol=protocol_of(examples))
    assert next(counter) == 10
    down = False
    report = run(program, examples, out=tmp_path, protocol=protocol_of(examples))
    assert report.failed == ()


def test_failures_of_different_kinds_do_not_stop_a_run(tmp_path: Path) -> None:
    examples = questions(12)
    kinds = [ValueError("a"), RuntimeError("a"), ValueError("b")]
    program = Scripted({f"{i}?": fail(kinds[i % 3]) for i in range(12)})
    report = run(program, examples, out=tmp_path, protocol=protocol_of(examples), abort_after=2)
    assert len(report.failed) == 12


def test_progress_is_told_from_the_calling_thread_with_what_was_done_before(tmp_path: Path) -> None:
    examples = questions(5)
    protocol = protocol_of(examples)
    with pytest.raises(KeyboardInterrupt):
        run(Scripted({"2?": fail(KeyboardInterrupt())}), examples, out=tmp_path, protocol=protocol)
    seen: list[tuple[Progress, threading.Thread]] = []
    run(
        Scripted({"3?": fail(ValueError("x"))}),
        examples,
        out=tmp_path,
        protocol=protocol,
        threads=2,
        progress=lambda progress: seen.append((progress, threading.current_thread())),
    )
    assert [progress.done for progress, _ in seen] == [2, 3, 4, 5]
    assert seen[0][0] == Progress(done=2, total=5, failures=0, last=None)
    assert seen[-1][0].failures == 1
    assert {thread for _, thread in seen} == {threading.main_thread()}


def test_questions_must_be_those_of_the_protocol(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not the 3 of the protocol"):
        run(Scripted(), questions(2), out=tmp_path, protocol=protocol_of(questions(3)))
    with pytest.raises(InputError, match="0 questions"):
        run(Scripted(), [], out=tmp_path, protocol=protocol_of([]))


@pytest.mark.parametrize(
    ("example", "problem"),
    [
        (dspy.Example(question="q?", answer="a"), "has no id"),
        (dspy.Example(id="a", question="q?"), "has no accepted answer"),
        (dspy.Example(id="q0", question="q?", answer="a"), "repeats the id"),
    ],
)
def test_a_question_that_cannot_be_counted_is_refused_before_the_run(
    example: dspy.Example, problem: str, tmp_path: Path
) -> None:
    examples = [*questions(1), example]
    with pytest.raises(InputError, match=f"example 2 {problem}"):
        run(Scripted(), examples, out=tmp_path, protocol=protocol_of(examples))


def test_what_a_model_cannot_spell_in_utf8_does_not_stop_the_run(tmp_path: Path) -> None:
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
