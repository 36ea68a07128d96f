"""What a compilation did: one value for each candidate tried and one for the whole."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from ga_dspy.eval import Report


class Candidate(NamedTuple):
    """A program that the recipe tried, at the moment its score was known.

    Attributes:
        number: From 1, in the order they were tried.
        score: Mean score on the questions it was tried on, in percent.
        best: The best score of a candidate up to now, in percent.
        calls: LM calls of the whole compilation up to now, replayed ones among them.
        tokens: Tokens of those calls.
        seconds: Since the compilation began.
        description: What it is, in a few words ("3 demos; 50 questions").
    """

    number: int
    score: float
    best: float
    calls: int
    tokens: int
    seconds: float
    description: str


@dataclass(frozen=True)
class Outcome:
    """What a compilation bought and what it cost.

    Attributes:
        recipe: Its name on the command line.
        parameters: Its settings, as JSON values.
        before: The program as it was given, on the held-out questions.
        after: The compiled program, on the same questions.
        held_out: Which questions those are: "test", or "validation", which the recipe has seen.
        p_value: Of the paired permutation test on F1, two-sided.
        better: F1 is higher and the p-value under 0.05.
        verdict: "better" or "no better than before".
        calls: LM calls, replayed ones among them, both held-out runs too.
        tokens: Prompt and completion tokens of those calls.
        money: What they cost in US dollars; None where an LM has no known price.
        replayed: How many of the calls were finished in an earlier run and not made again.
        seconds: From start to end, of this run.
        candidates: Every program tried, in order.
        stopped: Which cap ended the recipe early; empty where it came to its end.
        prompts_before: Instruction and demos by predictor, readable.
        prompts_after: The same of the compiled program.
        dropped_demos: Demos that were taken off since they would teach a fault, and why.
        data: Fingerprints and sizes of the question sets, by role.
        lms: Model name by role ("task", "reflection", "prompt", "teacher").
        artifact: The folder it was saved into.
    """

    recipe: str
    parameters: dict[str, Any]
    before: Report
    after: Report
    held_out: str
    p_value: float
    better: bool
    verdict: str
    calls: int
    tokens: int
    money: float | None
    replayed: int
    seconds: float
    candidates: tuple[Candidate, ...]
    stopped: str
    prompts_before: dict[str, str]
    prompts_after: dict[str, str]
    dropped_demos: tuple[str, ...]
    data: dict[str, dict[str, Any]]
    lms: dict[str, str]
    artifact: Path

    def summary(self) -> dict[str, Any]:
        """The content of summary.json: scores in percent, intervals of 95 %."""
        before, after = self.before.summary(), self.after.summary()
        return {
            "recipe": self.recipe,
            "parameters": self.parameters,
            "held_out": self.held_out,
            "n": after["n"],
            "f1_before": before["f1"],
            "f1_after": after["f1"],
            "ci95_before": before["ci95"],
            "ci95_after": after["ci95"],
            "em_before": before["em"],
            "em_after": after["em"],
            "p_value": round(self.p_value, 5),
            "verdict": self.verdict,
            "calls": self.calls,
            "replayed": self.replayed,
            "tokens": self.tokens,
            "money": self.money,
            "seconds": round(self.seconds, 1),
            "stopped": self.stopped,
            "candidates": [candidate._asdict() for candidate in self.candidates],
            "dropped_demos": list(self.dropped_demos),
            "data": self.data,
            "lms": self.lms,
        }


class Tracker(Protocol):
    """Follows a compilation; `ga_dspy.optimize.tracking` has the one for MLflow."""

    def start(self, name: str, parameters: dict[str, Any], data: dict[str, dict[str, Any]]) -> None:
        """The compilation called `name` begins."""

    def candidate(self, c: Candidate) -> None:
        """A program was tried."""

    def finish(self, outcome: Outcome) -> None:
        """It came to its end, by itself or by a cap; the artifact is written."""

    def fail(self, error: BaseException) -> None:
        """It ended without an outcome."""
