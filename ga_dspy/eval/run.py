"""Run a program on a set of questions under a protocol, and have an LM judge the answers."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import dspy

from ga_dspy.cluster import map_parallel, on_cluster
from ga_dspy.errors import InputError, RunAborted
from ga_dspy.eval.protocol import Protocol, protocol_of, questions_digest
from ga_dspy.eval.report import CALLS, JOURNAL, Report
from ga_dspy.eval.result import Judged, Result, RunJournal, accepted_answers
from ga_dspy.lm.failures import causes
from ga_dspy.lm.store import CallStore
from ga_dspy.lm.wrapper import StepLMs, wrap, wrap_for_work
from ga_dspy.programs import MultiHopProgram, Usage
from ga_dspy.programs.calls import ask, drive
from ga_dspy.programs.meter import Meter
from ga_dspy.programs.program import split_lms
from ga_dspy.secrets import withheld

# --- A run in threads, with a journal that survives a crash


class RunProgress(NamedTuple):
    """The state of a run.

    Attributes:
        total: Number of questions.
        last: The newest result; None before the first.
        report: The report of the questions done so far.
    """

    total: int
    last: Result | None
    report: Report

    @property
    def done(self) -> int:
        """Number of questions with a result."""
        return len(self.report.results)

    def __str__(self) -> str:
        """Return the state as a line for a log."""
        usage, failed = self.report.usage, len(self.report.failed)
        parts = (
            f"{self.done:,} of {self.total:,} questions",
            f"F1 {self.report.f1:.1f}" if self.done else "",
            f"{failed:,} failed" if failed else "",
            f"{usage.calls:,} LM calls",
            usage.failures if usage.failed else "",
            usage.cuts,
        )
        return ", ".join(filter(None, parts))


def run(
    program: Callable[..., object],
    examples: Sequence[dspy.Example],
    *,
    out: Path,
    protocol: Protocol,
    threads: int = 1,
    progress: Callable[[RunProgress], None] | None = None,
    retry_failures: bool = False,
    abort_after: int | None = 10,
    judge: dspy.BaseLM | None = None,
) -> Report:
    """Ask a program every question, journal each answer, and write the report into `out`.

    After a crash, a kill or Ctrl-C, call it again to resume: only questions without an answer are
    asked. summary.json is then the same as after an uninterrupted run, except for `seconds` and the
    calls that failed or came from the cache. Transient failures of questions and of steps are
    retried once at the end of the run, and when it is resumed.

    Args:
        program: Called as `program(question=...)`; returns a `dspy.Prediction` with `answer`, and
            optionally `passages`, `steps`, `calls`, `tokens`, `supported`, `evidence`, `failures`
            (of steps). The threads share it. It sees the caller's `dspy.context`, with a trace per
            question. If it raises `RunAborted`, the run ends.
        examples: Questions with `id`, `question` and `answer` or `answers`, from `load`.
        out: Folder of the run: journal.sqlite, predictions.jsonl, summary.json.
        protocol: The protocol of the run, from `protocol_of` or `Protocol.of(examples, ...)`.
        threads: Questions to ask in parallel; with 1, the calling thread asks them.
        progress: Called in the calling thread at the start and after every question.
        retry_failures: Also retry permanent failures of an earlier start, such as a prompt that is
            too long.
        abort_after: Stop after so many consecutive endpoint failures; None never stops.
        judge: The LM that judges the answers at the end (`Judge`). Answers that it failed to judge
            are retried when the run is resumed.

    Raises:
        ProtocolMismatch: `out` holds a run under another protocol.
        RunAborted: The endpoint seems to be down; the journal is kept.
        InUse: Another run writes into `out`.
        InputError: A question has no id or answer, an id is repeated, the questions are not those
            of the protocol, or `threads` is below 1; on a cluster, a step's predictors have
            different LMs.
    """
    _check(examples, protocol)
    step_lms = dict[str, dspy.BaseLM]()
    if on_cluster() and isinstance(program, MultiHopProgram):
        program, step_lms = split_lms(program)  # LMs and their keys stay in this process
    total, asking = len(examples), partial(_ask, program)
    with (
        RunJournal(out / JOURNAL, protocol) as journal,
        CallStore(out / CALLS, "run", is_temporary=True) as calls,
    ):
        done = journal.results()

        def lm_for(asked: tuple[int, dspy.Example]) -> Any:
            lm = wrap_for_work(dspy.settings.lm, calls, asked[0])
            steps = {step: wrap(own, like=lm) for step, own in step_lms.items()}
            return StepLMs(lm, steps) if steps else lm

        def report_progress(last: Result | None) -> None:
            if progress:
                progress(RunProgress(total, last, Report(protocol, tuple(done.values()))))

        def ask_all(positions: Sequence[int], abort_after: int | None) -> None:
            failures, asked = 0, [(position, examples[position]) for position in positions]
            # Close it at once if anything below raises, so that the threads stop asking.
            with closing(map_parallel(asking, asked, threads, lm_for=lm_for)) as answers:
                for position, result in answers:
                    # A retry that fails does not replace an answer.
                    if not result.error or position not in done or done[position].error:
                        journal.record(position, result)
                        done[position] = result
                    calls.forget(position)
                    report_progress(result)
                    failures = failures + 1 if result.error and result.is_transient else 0
                    if abort_after is not None and failures >= abort_after:
                        last = f"the last with {result.error}"
                        found = f"{failures} questions in a row failed, {last}"
                        remedy = f"check the endpoint, then start again: {out} keeps the answers"
                        raise RunAborted(found, remedy=remedy)

        report_progress(None)
        permanent = {n for n, result in done.items() if result.error and retry_failures}
        ask_all([position for position in range(total) if position not in done], abort_after)
        retried = [n for n, result in sorted(done.items()) if result.is_transient or n in permanent]
        ask_all(retried, None)
        if judge is not None:
            _judge_all(judge, journal, calls, threads)
        report = Report(protocol, tuple(journal.results().values()))
    report.write(out)
    return report


def run_program(
    program: MultiHopProgram,
    examples: Sequence[dspy.Example],
    *,
    out: Path,
    lm: dspy.BaseLM,
    judge: dspy.BaseLM | None = None,
    about: Mapping[str, Any],
    **options: Any,
) -> Report:
    """Run a program with an LM, under the protocol of both.

    Args:
        program: The program.
        examples: Questions from `load`.
        out: Folder of the run.
        lm: The LM.
        judge: The LM that judges the answers.
        about: `name`, `dataset`, `source` and more, as in `protocol_of`.
        options: More options of `run`.
    """
    with dspy.context(lm=lm):
        protocol = protocol_of(program, examples, lm=lm, judge=judge, **about)
        return run(program, examples, out=out, protocol=protocol, judge=judge, **options)


def _ask(program: Callable[..., object], asked: tuple[int, dspy.Example]) -> tuple[int, Result]:
    """Ask a question; return its position and its result."""
    start, (position, example) = time.perf_counter(), asked
    try:
        result = Result.from_prediction(example, program(question=example.question))
    except Exception as error:  # noqa: BLE001 - any failure is a counted, named, listed result
        _raise_aborted(error)
        result = Result.from_failure(example, error)
    return position, result.model_copy(update={"seconds": time.perf_counter() - start})


def _raise_aborted(error: Exception) -> None:
    """If an error was caused by a `RunAborted`, raise that."""
    for cause in causes(error):
        if isinstance(cause, RunAborted):
            raise cause from cause.__cause__


def _check(examples: Sequence[dspy.Example], protocol: Protocol) -> None:
    seen = set[Any]()
    for position, example in enumerate(examples, start=1):
        id = example.get("id")
        if id in seen or not (id and example.get("question") and accepted_answers(example)):
            found = f"example {position} repeats an id, or has no id, question or accepted answer"
            raise InputError(found, remedy="load the questions with ga_dspy.eval.load")
        seen.add(id)
    if not examples or questions_digest(examples) != protocol.questions_sha256:
        found = f"{len(examples)} questions that are not the {protocol.n} of the protocol"
        raise InputError(found, remedy="make the protocol from these questions, in this order")


# --- An LM that judges answers whose wording no script can compare; its cost is counted separately


class JudgeAnswer(dspy.Signature):
    """Decide whether an answer to a question is right, by the accepted answers alone.

    Right is an answer that means the same as one of them, in whatever words, spelling, unit or
    detail. Wrong is one that leaves out what was asked, names several candidates, does not commit
    itself, or adds a claim that an accepted answer rules out. What you know yourself does not
    count.
    """

    question: str = dspy.InputField()
    accepted: str = dspy.InputField(desc="the accepted answers, one a line")
    answer: str = dspy.InputField(desc="the answer to be judged")
    verdict: Literal["right", "wrong"] = dspy.OutputField()


class Judge(dspy.Module):
    """Judges answers: `judge(question=…, accepted=(…,), answer=…).verdict` is right or wrong."""

    def __init__(self) -> None:
        """Create a judge with the predictor `judge`."""
        super().__init__()
        self.judge = dspy.Predict(JudgeAnswer)

    def forward(
        self, question: str, accepted: tuple[str, ...], answer: str, meter: Meter | None = None
    ) -> dspy.Prediction:
        """Judge an answer; an empty one is wrong without a call.

        Args:
            question: The question.
            accepted: The accepted answers.
            answer: The answer to judge.
            meter: Counts the calls.

        Raises:
            StepFailed: The LM gave no verdict.
        """
        if not answer.strip():
            return dspy.Prediction(verdict="wrong")
        inputs = {"question": question, "accepted": "\n".join(accepted), "answer": answer}
        return drive(ask("judge", self.judge, inputs, meter or Meter()))


def _judge_all(judge: dspy.BaseLM, journal: RunJournal, calls: CallStore, threads: int) -> None:
    """Judge every answer that has no verdict yet, and journal the verdicts."""
    asked = []
    for position, result in journal.results().items():
        is_judged = result.judged is not None and result.judged.right is not None
        if result.error is None and not is_judged:
            asked.append((position, result))

    def lm_for(one: tuple[int, Result]) -> Any:
        return wrap_for_work(judge, calls, f"judge {one[0]}")

    with closing(map_parallel(partial(_judge, Judge()), asked, threads, lm_for=lm_for)) as judged:
        for position, result in judged:
            journal.record(position, result)
            calls.forget(f"judge {position}")


def _judge(judge: Judge, asked: tuple[int, Result]) -> tuple[int, Result]:
    """Return a question's position, and its result with the verdict or the judge's error."""
    position, result = asked
    meter, right, error = Meter(), None, None
    try:
        inputs = {"question": result.question, "accepted": result.gold, "answer": result.answer}
        right = judge(**inputs, meter=meter).verdict == "right"
    except Exception as failure:  # noqa: BLE001 - any failure of a judge is counted and named
        _raise_aborted(failure)
        error = withheld(f"{type(failure).__name__}: {failure}")
    judged = Judged(right=right, usage=Usage.total(meter.usage.values()), error=error)
    return position, result.model_copy(update={"judged": judged})
