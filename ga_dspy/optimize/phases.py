"""The phases of a compilation: measure, let a recipe work, choose, measure again, write."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import dspy

from ga_dspy.eval import Report
from ga_dspy.optimize.budget import Account, Gate
from ga_dspy.optimize.held_out import BaselineFails, CapTooSmall, check_baseline, compare
from ga_dspy.optimize.job import RUN, Job
from ga_dspy.optimize.ledger import Ledger
from ga_dspy.optimize.ledgered import Books, ledgered
from ga_dspy.optimize.quiet import Streams, quiet
from ga_dspy.optimize.recipes import Context
from ga_dspy.optimize.record import Candidate, Outcome
from ga_dspy.optimize.search import Chosen, Found, LMStopped, choose, search
from ga_dspy.optimize.trials import Trials, transplanted
from ga_dspy.optimize.written import outcome_of, write
from ga_dspy.programs import MultiHopProgram

LEDGER, LOG = "ledger.sqlite", "optimizer.log"

_MARGIN = 1.5  # demos make prompts longer, and an answer may take more steps
_NO_LIMIT = 1_000_000  # failures are counted by the baseline and the gate, not by DSPy


def carried_out(job: Job, tell: Callable[[Candidate], None]) -> Outcome:
    """Carry a compilation out, and write the artifact.

    Args:
        job: What to do.
        tell: Called with each program that was tried.
    """
    begun = time.monotonic()
    with Ledger(job.out / RUN / LEDGER) as ledger:
        phases = _Phases(job, Books(ledger), Account())
        before = phases.baseline()
        found, chosen, trials = phases.compiled(before, tell)
        after, stopped = phases.after(chosen.program)
    outcome = outcome_of(
        job,
        compare(before, after),
        chosen,
        tuple(trials.candidates),
        phases.account.spent,
        stopped=found.stopped or stopped,
        seconds=time.monotonic() - begun,
    )
    write(job, chosen.program, outcome)
    return outcome


@dataclass(frozen=True)
class _Phases:
    """The phases of a compilation, each with a gate of its own before the LMs."""

    job: Job
    books: Books
    account: Account

    def baseline(self) -> Report:
        """Measure the program as it is given."""
        gate = Gate(self.account, self.job.caps)
        with self._measuring(gate):
            measured = self.job.held_out.measure(self.job.program, "before")
        if gate.down:
            raise BaselineFails(*_failures(measured.report), gate.down)
        if measured.report is None or measured.stopped:
            raise CapTooSmall(measured.stopped, "while the program was measured as it is")
        check_baseline(measured.report)
        return measured.report

    def compiled(
        self, before: Report, tell: Callable[[Candidate], None]
    ) -> tuple[Found, Chosen, Trials]:
        """Run the recipe within what the second measurement leaves, and choose."""
        job, streams = self.job, Streams()

        def told(candidate: Candidate) -> None:
            with streams.restored():
                tell(candidate)

        task = job.lms["task"].model
        trials = Trials(job.program, job.validation, self.account, told, task)
        one = self.account.spent.times(_MARGIN / len(before.results))
        measuring = one.times(len(before.results))
        closing = one.times(len(before.results) + len(job.validation))
        gate = Gate(self.account, job.caps.less(closing))
        with quiet(job.out / RUN / LOG):
            with self._configured(gate, trials) as context:
                found = search(job.recipe, job.program, job.train, job.validation, context, gate)
            gate.closed = gate.closed or "the recipe is over"
            last = Gate(self.account, job.caps.less(measuring))
            with self._configured(last, trials) as context:

                def rebound(program: MultiHopProgram) -> MultiHopProgram:
                    return self._rebound(program, last)

                chosen = choose(found, job.program, job.train, job.validation, context, rebound)
            last.closed = last.closed or "the choice is made"
        if last.down:
            raise LMStopped(last.down)
        return found, chosen, trials

    def after(self, program: MultiHopProgram) -> tuple[Report, str]:
        """Measure the program that was chosen."""
        gate = Gate(self.account, self.job.caps)
        with self._measuring(gate):
            measured = self.job.held_out.measure(self._rebound(program, gate), "after")
        if gate.down:
            raise LMStopped(gate.down)
        if measured.report is None:
            raise CapTooSmall(measured.stopped, "before the compiled program was measured")
        return measured.report, measured.stopped

    @contextmanager
    def _configured(self, gate: Gate, trials: Trials) -> Iterator[Context]:
        """Make the task LM the default one, with the gate before it, and the trials watch."""
        job = self.job
        lms = {role: ledgered(lm, role, self.books, gate) for role, lm in job.lms.items()}
        context = Context(
            lm=lms["task"],
            metric=job.metric,
            trials=trials,
            reflection_lm=lms.get("reflection"),
            prompt_lm=lms.get("prompt"),
            threads=job.threads,
            seed=job.seed,
        )
        with dspy.context(
            lm=lms["task"],
            callbacks=[*(dspy.settings.callbacks or []), trials],
            num_threads=job.threads,
            max_errors=_NO_LIMIT,
        ):
            yield context

    @contextmanager
    def _measuring(self, gate: Gate) -> Iterator[None]:
        """Make the task LM the default one, with the gate before it."""
        with dspy.context(lm=ledgered(self.job.lms["task"], "task", self.books, gate)):
            yield

    def _rebound(self, program: MultiHopProgram, gate: Gate) -> MultiHopProgram:
        """A copy of a program whose trained LMs, where it has some, go through a gate."""
        task = self.job.lms["task"].model
        copied = transplanted(self.job.program, program, task)
        for predictor in copied.predictors():
            if predictor.lm is not None:
                predictor.lm = ledgered(predictor.lm, "task", self.books, gate)
        return copied


def _failures(report: Report | None) -> tuple[int, int]:
    """How many questions failed, of how many, the one at which the LM was given up among them."""
    return (len(report.failed), len(report.results)) if report else (1, 1)
