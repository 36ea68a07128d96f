"""Asking a program every question of a set, in threads, with a journal that outlives a crash."""

from __future__ import annotations

import contextvars
import queue
import re
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import dspy

from ga_dspy.errors import GaDspyError, InputError
from ga_dspy.eval.journal import Journal
from ga_dspy.eval.protocol import Protocol, questions_digest
from ga_dspy.eval.report import JOURNAL, Report
from ga_dspy.eval.result import Result, accepted_answers

Program = Callable[..., object]


class Progress(NamedTuple):
    """How far a run is; `last` is the newest result, None at the first call."""

    done: int
    total: int
    failures: int
    last: Result | None


class RunAborted(GaDspyError):
    """So many questions in a row failed alike that going on would only spend time."""

    def __init__(self, times: int, error: str, out: Path) -> None:
        super().__init__(
            f"{times} questions in a row failed alike: {error}; expected answers; see that the "
            f"endpoint is up and its key valid, then start the same run again: {out} keeps what "
            "was answered"
        )
        self.times, self.error, self.out = times, error, out


class _Asked(NamedTuple):
    position: int
    result: Result
    seconds: float


def run(
    program: Program,
    examples: Sequence[dspy.Example],
    *,
    out: Path,
    protocol: Protocol,
    threads: int = 1,
    progress: Callable[[Progress], None] | None = None,
    retry_failures: bool = True,
    abort_after: int | None = 10,
) -> Report:
    """Ask `program` every question, journal each answer, and write the report into `out`.

    Started again after a crash, a kill or Ctrl-C, it asks only the questions that have no
    answer yet; summary.json then is what an undisturbed run gives, but for `seconds`.

    Args:
        program: Called as `program(question=...)`; returns a `dspy.Prediction` with `answer`,
            and maybe `passages`, `steps`, `calls`, `tokens`, `supported`, `evidence`,
            `failures` (of steps). It is shared by the threads. It sees the caller's
            `dspy.context`, with a trace of its own for each question.
        examples: Questions with `id`, `question` and `answer` or `answers`, as `load` gives.
        out: Directory of this run: journal.sqlite, predictions.jsonl, summary.json.
        protocol: What this run is, from `Protocol.of(examples, ...)`.
        threads: Questions asked at once. One asks in the calling thread.
        progress: Called in the calling thread, first with what is done already, then after
            every question.
        retry_failures: Ask failed questions of an earlier start again; by default so, since an
            endpoint that was down for an hour must not cost a night's run.
        abort_after: Stop after so many failures in a row with one error; None never stops.

    Raises:
        ProtocolMismatch: `out` holds a run under another protocol.
        RunAborted: the endpoint seems to be down; the journal is kept.
        InputError: a question without id or answer, a repeated id, another set of questions
            than the protocol's, or fewer than one thread.
    """
    _check(examples, protocol, threads)
    out.mkdir(parents=True, exist_ok=True)
    with Journal(out / JOURNAL, protocol) as journal:
        done = {
            position: entry.result
            for position, entry in journal.entries().items()
            if not (retry_failures and entry.result.error)
        }
        pending = [position for position in range(len(examples)) if position not in done]
        _tell(progress, done, len(examples), None)
        streak = _Streak(abort_after, out)
        # Closed at once when anything below raises, so that the threads ask no more.
        with closing(_ask_all(program, examples, pending, threads)) as answers:
            for asked in answers:
                journal.record(*asked)
                done[asked.position] = asked.result
                _tell(progress, done, len(examples), asked.result)
                streak.note(asked.result)
        report = Report.from_entries(protocol, journal.entries().values())
    report.write(out)
    return report


def _check(examples: Sequence[dspy.Example], protocol: Protocol, threads: int) -> None:
    if threads < 1:
        raise InputError(f"threads is {threads}", expected="1 or more", remedy="pass threads=1")
    seen: set[str] = set()
    for position, example in enumerate(examples, start=1):
        name = example.get("id")
        if not isinstance(name, str) or not example.get("question"):
            problem = "has no id or no question"
        elif name in seen:
            problem = f"repeats the id {name!r}"
        elif not accepted_answers(example):
            problem = "has no accepted answer"
        else:
            seen.add(name)
            continue
        raise InputError(
            f"example {position} {problem}",
            expected="an id of its own, a question and an answer",
            remedy="load the questions with ga_dspy.eval.load",
        )
    if not examples or questions_digest(examples) != protocol.questions_sha256:
        raise InputError(
            f"{len(examples)} questions that are not the {protocol.n} of the protocol",
            expected="the questions the protocol was made of, in its order, and at least one",
            remedy="make it with Protocol.of(examples, ...)",
        )


def _ask_all(
    program: Program, examples: Sequence[dspy.Example], pending: Sequence[int], threads: int
) -> Generator[_Asked, None, None]:
    """Results as they come. Each question runs in a copy of the caller's context."""
    if threads == 1:
        for position in pending:
            yield contextvars.copy_context().run(_ask, program, examples[position], position)
        return
    todo: queue.SimpleQueue[tuple[contextvars.Context, int]] = queue.SimpleQueue()
    done: queue.SimpleQueue[_Asked | BaseException] = queue.SimpleQueue()
    stop = threading.Event()
    for position in pending:
        todo.put((contextvars.copy_context(), position))

    def work() -> None:
        while not stop.is_set():
            try:
                context, position = todo.get_nowait()
            except queue.Empty:
                return
            try:
                done.put(context.run(_ask, program, examples[position], position))
            except BaseException as error:  # noqa: BLE001 - carried over and raised by the caller
                done.put(error)
                return

    # Daemons, so that Ctrl-C ends the process without waiting for calls still under way.
    for number in range(min(threads, len(pending))):
        threading.Thread(target=work, name=f"ga-dspy-eval-{number}", daemon=True).start()
    try:
        for _ in pending:
            asked = done.get()
            if isinstance(asked, BaseException):
                raise asked
            yield asked
    finally:
        stop.set()


def _ask(program: Program, example: dspy.Example, position: int) -> _Asked:
    begun = time.perf_counter()
    try:
        # A trace of its own: threads would mix theirs, and a long run would pile it up.
        with dspy.context(trace=None if dspy.settings.trace is None else []):
            result = Result.from_prediction(example, program(question=example.question))
    except Exception as error:  # noqa: BLE001 - any failure is a counted, named, listed result
        result = Result.from_failure(example, error)
    return _Asked(position, result, time.perf_counter() - begun)


def _tell(
    progress: Callable[[Progress], None] | None,
    done: dict[int, Result],
    total: int,
    last: Result | None,
) -> None:
    if progress:
        failures = sum(result.error is not None for result in done.values())
        progress(Progress(len(done), total, failures, last))


class _Streak:
    """Counts failures in a row that are alike, and raises when there are too many."""

    def __init__(self, limit: int | None, out: Path) -> None:
        self._limit, self._out = limit, out
        self._kind: str | None = None
        self._times = 0

    def note(self, result: Result) -> None:
        # Numbers and request ids differ between failures of one cause.
        kind = re.sub(r"[\w-]*\d[\w-]*", "#", result.error) if result.error else None
        self._times = self._times + 1 if kind == self._kind else 1
        self._kind = kind
        if result.error and self._limit is not None and self._times >= self._limit:
            raise RunAborted(self._times, result.error, self._out)
