"""A run: every question of a set asked of a program, under its protocol."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import dspy

from ga_dspy.cluster import on_cluster, spread
from ga_dspy.errors import InputError, RunAborted
from ga_dspy.eval.identity import digests_of
from ga_dspy.eval.judge import Judge, judge_result
from ga_dspy.eval.protocol import Protocol, ScoreVariant, fingerprint, questions_digest
from ga_dspy.eval.report import CALLS, JOURNAL, Report
from ga_dspy.eval.result import Result, RunJournal, accepted_answers
from ga_dspy.graphrag import GraphIndex
from ga_dspy.lm.adapters import PlainAdapter
from ga_dspy.lm.endpoints import endpoint_digest
from ga_dspy.lm.failures import causes
from ga_dspy.lm.store import CallStore
from ga_dspy.lm.wrapper import StepLMs, wrap, wrap_for_work
from ga_dspy.programs import MultiHopProgram
from ga_dspy.programs.calls import Usage
from ga_dspy.programs.program import split_lms
from ga_dspy.retrieval import Index
from ga_dspy.secrets import check_addresses

# --- The protocol of a program's run, read off the program, its retriever and its LM.

_SAMPLING = (
    "temperature", "max_tokens", "max_completion_tokens", "top_p", "top_k", "min_p", "n", "seed",
    "stop", "presence_penalty", "frequency_penalty", "reasoning_effort", "rollout_id",
)  # fmt: skip


def protocol_of(
    program: MultiHopProgram,
    examples: Sequence[dspy.Example],
    *,
    name: str,
    dataset: str,
    source: Path | str,
    lm: dspy.BaseLM,
    score: ScoreVariant = "official",
    limit: int | None = None,
    seed: int | None = None,
    judge: dspy.BaseLM | None = None,
) -> Protocol:
    """Everything that decides the numbers of a run.

    Args:
        program: What will be asked.
        examples: The questions, as `load` gives them.
        name: The program's name in reports.
        dataset: The dataset's name.
        source: The file of the questions, or the hub's name of the rows.
        lm: The language model; of its settings those that decide how it samples are kept. LMs of
            steps are the program's own.
        score: Which F1 counts.
        limit: How many questions were asked for; None for all.
        seed: Seed of the sample; None where the questions are in file order.
        judge: The LM that judges answers beside the scores; None for none.

    Raises:
        InputError: The address of an LM has a password.
    """
    own = program.step_lms()
    check_addresses(lm, *own.values())
    program.check_ready()
    settings, adapter = program.settings(), dspy.settings.adapter
    adapter = None if isinstance(adapter, PlainAdapter) else adapter  # the usual one
    return Protocol.of(
        examples,
        dataset=dataset,
        source=source,
        program=name,
        prompts=fingerprint(program),
        lm=str(lm.model),
        lms={name: str(one.model) for name, one in own.items()},
        endpoint=endpoint_digest(lm),
        sampling={
            **{key: lm.kwargs[key] for key in _SAMPLING if lm.kwargs.get(key) is not None},
            **({"adapter": type(adapter).__name__} if adapter else {}),
        },
        **_retrieval_fields(program.retriever),
        k=settings.get("k"),
        steps=settings.get("max_steps"),
        score=score,
        settings=settings,
        limit=limit,
        seed=seed,
        judge=str(judge.model) if judge else None,
        digests=digests_of(program, lm=lm, **({"judge": judge} if judge else {})),
    )


def _retrieval_fields(retriever: Any) -> dict[str, Any]:
    source = getattr(retriever, "source", retriever)
    index = source.index if isinstance(source, GraphIndex) else source
    if not isinstance(index, Index):
        digest = getattr(source, "fingerprint", None)
        return {
            "retriever": getattr(source, "__qualname__", type(source).__qualname__),
            "corpus": digest if isinstance(digest, str) else None,
        }
    return {
        "retriever": index.description,
        "graph": source.fingerprint if isinstance(source, GraphIndex) else None,
        "corpus": index.fingerprint,
        "encoder": index.encoder.name if index.encoder else "",
    }


# --- Asking a program every question of a set, in threads, with a journal that outlives a crash.


class RunProgress(NamedTuple):
    """How far a run is; `last` is the newest result, None at the first call.

    Attributes:
        done: Questions with a result.
        total: Questions in all.
        failures: Questions that failed.
        last: The newest result.
        results: Those of the questions done.
        score: Which F1 counts.
    """

    done: int
    total: int
    failures: int
    last: Result | None
    results: tuple[Result, ...] = ()
    score: ScoreVariant = "official"

    @property
    def f1(self) -> float:
        """Mean F1 of the questions done, in percent; a failed one counts as 0."""
        name = "f1_squad" if self.score == "squad" else "f1"
        scores: list[float] = [getattr(result, name) for result in self.results]
        return 100 * sum(scores) / max(len(scores), 1)

    @property
    def usage(self) -> Usage:
        """What the questions done have cost."""
        return Usage.total(result.cost for result in self.results)

    def __str__(self) -> str:
        """The state of the run on one line, as a log shows it."""
        usage = self.usage
        parts = (
            f"{self.done:,} of {self.total:,} questions",
            f"F1 {self.f1:.1f}" if self.done else "",
            f"{self.failures:,} failed" if self.failures else "",
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
    """Ask `program` every question, journal each answer, and write the report into `out`.

    Started again after a crash, a kill or Ctrl-C, it asks only the questions that have no
    answer yet; summary.json then is what an undisturbed run gives, but for `seconds` and the
    calls that failed or came from the cache. Questions that an outage, a timeout or the like
    failed, or cost a step, are asked once more at the end of the run, and when it is started again.

    Args:
        program: Called as `program(question=...)`; returns a `dspy.Prediction` with `answer`,
            and maybe `passages`, `steps`, `calls`, `tokens`, `supported`, `evidence`,
            `failures` (of steps). It is shared by the threads. It sees the caller's
            `dspy.context`, with a trace of its own for each question. A `RunAborted` that it
            raises ends the run.
        examples: Questions with `id`, `question` and `answer` or `answers`, as `load` gives.
        out: Directory of this run: journal.sqlite, predictions.jsonl, summary.json.
        protocol: What this run is, from `Protocol.of(examples, ...)`.
        threads: Questions asked at once. One asks in the calling thread.
        progress: Called in the calling thread, first with what is done already, then after
            every question.
        retry_failures: Ask also those questions of an earlier start again that failed for their
            own sake: their prompt is too long, their replies are of no use.
        abort_after: Stop after so many failures in a row that are no question's own; None never
            stops.
        judge: The LM that judges every answer when all are there (`ga_dspy.eval.judge`); it is
            asked again for what it failed at when the run is started again.

    Raises:
        ProtocolMismatch: `out` holds a run under another protocol.
        RunAborted: the endpoint seems to be down; the journal is kept.
        InUse: another run writes into `out`.
        InputError: a question without id or answer, a repeated id, another set of questions
            than the protocol's, or fewer than one thread; on a cluster, a step whose predictors
            have different LMs.
    """
    _check(examples, protocol, threads)
    own = dict[str, dspy.BaseLM]()
    if on_cluster() and isinstance(program, MultiHopProgram):
        program, own = split_lms(program)  # LMs stay here, with their keys
    total, ask = len(examples), partial(_ask, program)
    with (
        RunJournal(out / JOURNAL, protocol) as journal,
        CallStore(out / CALLS, "run", is_temporary=True) as calls,
    ):
        done = {position: entry.result for position, entry in journal.entries().items()}

        def lm_for(asked: tuple[int, dspy.Example]) -> Any:
            lm = wrap_for_work(dspy.settings.lm, calls, asked[0])
            return StepLMs(lm, {s: wrap(one, like=lm) for s, one in own.items()}) if own else lm

        def report_progress(last: Result | None) -> None:
            if progress:
                failures = sum(result.error is not None for result in done.values())
                results = tuple(done.values())
                progress(RunProgress(len(done), total, failures, last, results, protocol.score))

        def ask_all(positions: Sequence[int], abort_after: int | None) -> None:
            failed, asked = 0, [(position, examples[position]) for position in positions]
            # Closed at once when anything below raises, so that the threads ask no more.
            with closing(
                spread(ask, asked, threads, lm_for=lm_for, name="ga-dspy-eval")
            ) as answers:
                for position, result, seconds in answers:
                    # A second try that fails takes no answer away.
                    if not result.error or position not in done or done[position].error:
                        journal.record(position, result, seconds)
                        done[position] = result
                    calls.forget(position)
                    report_progress(result)
                    failed = failed + 1 if result.error and result.may_pass else 0
                    if abort_after is not None and failed >= abort_after:
                        raise RunAborted(
                            f"{failed} questions in a row failed, the last with {result.error}",
                            expected="answers",
                            remedy="see what the endpoint lacks, then start the same run again: "
                            f"{out} keeps what was answered",
                        )

        report_progress(None)
        old = {position for position, result in done.items() if result.error and retry_failures}
        ask_all([position for position in range(total) if position not in done], abort_after)
        ask_all([n for n, result in sorted(done.items()) if result.may_pass or n in old], None)
        if judge is not None:
            entries = journal.entries()
            answered = [(n, one.result) for n, one in entries.items() if one.result.error is None]
            asked = [(n, r) for n, r in answered if r.judged is None or r.judged.right is None]
            with closing(
                spread(
                    partial(judge_result, Judge()), asked, threads,
                    lm_for=lambda one: wrap_for_work(judge, calls, f"judge {one[0]}"),
                    name="ga-dspy-judge",
                )
            ) as judged:  # fmt: skip
                for position, result in judged:
                    journal.record(position, result, entries[position].seconds)
                    calls.forget(f"judge {position}")
        report = Report.from_entries(protocol, journal.entries().values())
    report.write(out)
    return report


def _ask(
    program: Callable[..., object], asked: tuple[int, dspy.Example]
) -> tuple[int, Result, float]:
    """A question's position, its result, and the seconds that it took."""
    begun, (position, example) = time.perf_counter(), asked
    try:
        result = Result.from_prediction(example, program(question=example.question))
    except Exception as error:  # noqa: BLE001 - any failure is a counted, named, listed result
        for cause in causes(error):
            if isinstance(cause, RunAborted):
                raise cause from cause.__cause__
        result = Result.from_failure(example, error)
    return position, result, time.perf_counter() - begun


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
