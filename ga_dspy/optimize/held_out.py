"""Measuring a program on held-out questions, before and after, and comparing the two."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import dspy

from ga_dspy.errors import GaDspyError
from ga_dspy.eval import Protocol, Report, RunAborted, paired_test, run
from ga_dspy.eval.journal import Journal
from ga_dspy.eval.report import JOURNAL
from ga_dspy.optimize.budget import BudgetExceeded
from ga_dspy.programs import MultiHopProgram

TOLERATED_FAILURES = 0.1
SIGNIFICANT = 0.05


class BaselineFails(GaDspyError):
    """The program fails on too many questions as it is: compiling would fit it to failures."""

    def __init__(self, failed: int, asked: int, error: str) -> None:
        super().__init__(
            f"before compiling, the program failed on {failed} of {asked} questions, such as: "
            f"{error}; expected at most a tenth to fail; see that the LM answers and follows the "
            "output format (raise max_tokens, choose another adapter or model), then start again: "
            "finished calls are kept"
        )
        self.failed, self.asked, self.error = failed, asked, error


class CapTooSmall(GaDspyError):
    """A cap was reached before the program could be measured."""

    def __init__(self, reason: str, when: str) -> None:
        super().__init__(
            f"{reason} {when}; expected a budget that at least measures the program before and "
            "after; raise the cap and start again: finished calls are kept and not paid twice"
        )
        self.reason = reason


class Comparison(NamedTuple):
    """Two reports over the same questions, and whether the second is better."""

    before: Report
    after: Report
    p_value: float
    better: bool

    @property
    def verdict(self) -> str:
        """In words."""
        return "better" if self.better else "no better than before"


class Measured(NamedTuple):
    """A report, and which cap cut it short; the report is None where nothing was answered."""

    report: Report | None
    stopped: str = ""


@dataclass(frozen=True)
class HeldOut:
    """The questions on which programs are measured.

    Attributes:
        examples: The questions.
        name: "test" or "validation".
        source: Where they are from, in words.
        lm: Name of the task LM.
        folder: Where the runs are written, one folder each.
        threads: Questions asked at once.
    """

    examples: Sequence[dspy.Example]
    name: str
    source: str
    lm: str
    folder: Path
    threads: int

    def measure(self, program: MultiHopProgram, label: str) -> Measured:
        """Ask a program all questions; calls made before are answered from the ledger.

        Args:
            program: The program.
            label: Name of the run's folder, "before" or "after".

        Raises:
            BaselineFails: So many questions in a row fail alike that it was broken off.
        """
        out = self.folder / label
        # The ledger makes a resumed run free and counts its calls; a journal would hide them.
        shutil.rmtree(out, ignore_errors=True)
        protocol = self._protocol(program)
        try:
            report = run(program, self.examples, out=out, protocol=protocol, threads=self.threads)
        except BudgetExceeded as stop:
            with Journal(out / JOURNAL) as journal:
                entries = journal.entries().values()
            partial = Report.from_entries(protocol, entries) if entries else None
            return Measured(partial, stop.reason)
        except RunAborted as error:
            raise BaselineFails(error.times, error.times, error.error) from error
        return Measured(report)

    def _protocol(self, program: MultiHopProgram) -> Protocol:
        return Protocol.of(
            self.examples,
            dataset=self.name,
            source=self.source,
            program=type(program).__name__,
            lm=self.lm,
            k=program.k,
            settings=program.settings(),
        )


def check_baseline(report: Report) -> None:
    """Check that the program works as it is given.

    Raises:
        BaselineFails: More than a tenth of its questions failed.
    """
    failed = report.failed
    if len(failed) > TOLERATED_FAILURES * len(report.results):
        raise BaselineFails(len(failed), len(report.results), str(failed[0].error))


def compare(before: Report, after: Report) -> Comparison:
    """Compare two reports on the questions that both have."""
    ids = {result.id for result in after.results}
    shared = before._replace(results=tuple(r for r in before.results if r.id in ids))
    paired = paired_test(after, shared)
    better = paired.difference > 0 and paired.p_value < SIGNIFICANT
    return Comparison(shared, after, paired.p_value, better)
