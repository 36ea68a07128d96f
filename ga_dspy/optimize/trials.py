"""The candidates of a compilation with their scores, and the outcome."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import dspy
from dspy.utils import BaseCallback

from ga_dspy.eval import Report, paired_test
from ga_dspy.eval.plots import Point
from ga_dspy.eval.protocol import fingerprint
from ga_dspy.lm.store import CallStore, Spent
from ga_dspy.optimize.demos import Prompt, prompts
from ga_dspy.programs import MultiHopProgram

AS_GIVEN = "as given"


class Candidate(NamedTuple):
    """A program that the recipe tried on all validation questions.

    Attributes:
        number: Its number from 1, in the order of the trials.
        score: Mean score, in percent.
        best: The best score so far, in percent.
        calls: LM calls of the whole compilation so far, including replayed ones.
        tokens: Tokens of those calls.
        seconds: Seconds since the compilation began.
        description: How it differs from the program as given ("3 demos for answer").
        mark: A digest of its prompts and settings: twelve hexadecimal digits.
        prompts: The prompt of each predictor.
        question_tokens: Mean tokens per question.
    """

    number: int
    score: float
    best: float
    calls: int
    tokens: int
    seconds: float
    description: str
    mark: str = ""
    prompts: Mapping[str, Prompt] | None = None
    question_tokens: float = 0.0


@dataclass(frozen=True)
class Outcome:
    """The result of a compilation, and what it cost.

    Attributes:
        recipe: The recipe's name on the command line.
        parameters: The recipe's settings, as JSON values.
        seed: Random seed.
        data: Fingerprints and sizes of the question sets, by role.
        lms: Model name by role ("task", "reflection", "prompt").
        held_out: The questions measured on: "test", or "validation", which the recipe has seen.
        before: The report of the program as given, on the held-out questions that both answered.
        after: The report of the program written, on the same questions.
        failures: Numbers of held-out questions without an answer after retries, before and after.
        rejected: F1 and tokens per question of the compiled program, if it gained nothing on the
            held-out questions and the program as given was written.
        candidates: Every program tried, in order.
        mark: The mark of the program written, as in `Candidate`.
        prompts_before: The prompt of each predictor of the program as given.
        prompts_after: The prompt of each predictor of the program written.
        dropped_demos: Demos that were removed because they would teach a fault, with the reasons.
        stopped: Which cap ended the recipe early; empty if it finished.
        spent: LM calls, including replayed ones and both held-out runs, tokens and money.
        seconds: Duration of this run.
        artifact: The folder of the saved program.
    """

    recipe: str
    parameters: dict[str, Any]
    seed: int
    data: dict[str, dict[str, Any]]
    lms: dict[str, str]
    held_out: str
    before: Report
    after: Report
    failures: tuple[int, int]
    rejected: dict[str, float] | None
    candidates: tuple[Candidate, ...]
    mark: str
    prompts_before: dict[str, Prompt]
    prompts_after: dict[str, Prompt]
    dropped_demos: tuple[str, ...]
    stopped: str
    spent: Spent
    seconds: float
    artifact: Path

    @property
    def unchanged(self) -> bool:
        """Whether the program written is the program as given."""
        before, after = self.before.protocol.settings, self.after.protocol.settings
        return self.prompts_after == self.prompts_before and before == after

    @cached_property
    def p_value(self) -> float:
        """The two-sided p-value of a paired permutation test on F1."""
        return paired_test(self.after, self.before).p_value

    @property
    def better(self) -> bool:
        """Whether F1 is higher, the p-value under 0.05, and no more questions failed."""
        return self._is_higher and self.p_value < 0.05

    @property
    def _is_higher(self) -> bool:
        return self.after.f1 > self.before.f1 and self.failures[1] <= self.failures[0]

    @property
    def verdict(self) -> str:
        """The result in words."""
        if self.unchanged:
            return "unchanged"
        if self.better:
            return "better"
        return "higher, but not significantly" if self._is_higher else "no better than before"

    @property
    def figure(self) -> Path:
        """The image of the candidates, beside the artifact; missing without matplotlib."""
        return self.artifact / "candidates.png"

    @property
    def points(self) -> list[Point]:
        """The candidates, for `plot_costs`."""
        points = []
        for c in self.candidates:
            is_chosen = c.mark == self.mark
            label = c.description if is_chosen or c.description == AS_GIVEN else ""
            label += " (chosen)" if is_chosen else ""
            points.append(Point(label, c.score, None, c.question_tokens, is_chosen))
        return points

    @property
    def shortfall(self) -> dict[str, int]:
        """Numbers of held-out questions asked, without an answer, and with a failed step."""
        before, after = self.failures
        return {
            "asked": self.before.protocol.n,
            "failures_before": before,
            "failures_after": after,
            "degraded_before": len(self.before.degraded),
            "degraded_after": len(self.after.degraded),
        }

    @property
    def basis(self) -> str:
        """The number of questions behind the verdict, in words."""
        n, asked = len(self.after.results), self.before.protocol.n
        before, after = self.failures
        lost = f", of {asked}; {before} failed before, {after} after" if n < asked else ""
        return f"{n} questions of {self.held_out}{lost}"

    def scores(self) -> dict[str, Any]:
        """Return the scores in percent, with intervals of 95 %, and the verdict."""
        before, after = self.before.summary(), self.after.summary()
        scores = dict[str, Any]()
        for name in ("f1", "ci95", "em"):
            scores |= {f"{name}_before": before[name], f"{name}_after": after[name]}
        return {
            "held_out": self.held_out,
            "n": len(self.after.results),
            **self.shortfall,
            **scores,
            "p_value": round(self.p_value, 5),
            "verdict": self.verdict,
        }

    def cost(self) -> dict[str, Any]:
        """Return the cost."""
        return {**self.spent._asdict(), "seconds": self.seconds}

    def summary(self) -> dict[str, Any]:
        """Return the content of summary.json."""
        fields = ("recipe", "parameters", "seed", "data", "rejected", "dropped_demos", "stopped")
        candidates = [candidate._asdict() for candidate in self.candidates]
        for candidate in candidates:
            del candidate["prompts"]
        return {
            **{name: getattr(self, name) for name in fields},
            **self.scores(),
            **self.cost(),
            "candidates": candidates,
            "lms": {**self.after.protocol.lms, **self.lms},
        }


class Trials(BaseCallback):
    """A DSPy callback that records the score of each program that an optimizer evaluates.

    Args:
        given: The program that is compiled.
        validation: The questions whose mean score decides; other evaluations are ignored.
        ledger: The LM calls of the compilation.
        announce: Called with each new candidate.
    """

    def __init__(
        self,
        given: MultiHopProgram,
        validation: Sequence[dspy.Example],
        ledger: CallStore,
        announce: Callable[[Candidate], None],
    ) -> None:
        self._given, self.ledger, self._announce = given, ledger, announce
        self._validation = frozenset(example.question for example in validation)
        self._running: dict[str, Any] = {}
        self._programs: dict[str, MultiHopProgram] = {}
        self._lock = threading.Lock()
        self._begun = time.monotonic()
        self.candidates: list[Candidate] = []

    def on_evaluate_start(self, call_id: str, instance: Any, inputs: dict[str, Any]) -> None:
        """Note which program is evaluated, if it is on all validation questions."""
        questions = {row.question for row in inputs.get("devset") or instance.devset}
        if questions == self._validation:
            self._running[call_id] = inputs["program"]

    def on_evaluate_end(
        self, call_id: str, outputs: Any, exception: BaseException | None = None
    ) -> None:
        """Record the score, unless the evaluation failed."""
        program = self._running.pop(call_id, None)
        if program is None or exception is not None:
            return
        tried = with_candidate_state(self._given, program)
        mark = program_digest(tried)
        tokens = sum(prediction.get("tokens") or 0 for _, prediction, _ in outputs.results)
        with self._lock:
            if any(known.mark == mark for known in self.candidates):
                return
            self._programs[mark] = tried
            spent, score = self.ledger.spent, round(outputs.score, 2)
            candidate = Candidate(
                number=len(self.candidates) + 1,
                score=score,
                best=max([score, *(known.score for known in self.candidates)]),
                calls=spent.calls,
                tokens=spent.tokens,
                seconds=round(time.monotonic() - self._begun, 1),
                description=_changes(tried, self._given),
                mark=mark,
                prompts=prompts(tried),
                question_tokens=tokens / len(outputs.results),
            )
            self.candidates.append(candidate)
        self._announce(candidate)

    def best(self) -> MultiHopProgram | None:
        """Return the program with the highest score; of several, the one with the fewest tokens."""
        left = [c for c in self.candidates if c.mark in self._programs]
        best = max(left, key=lambda c: (c.score, -c.question_tokens), default=None)
        return self._programs[best.mark] if best else None

    def discard(self, rejected: MultiHopProgram) -> None:
        """Exclude a program from the choice."""
        del self._programs[program_digest(rejected)]


def program_digest(program: MultiHopProgram) -> str:
    """Return a digest of a program's prompts and settings: twelve hexadecimal digits."""
    settings = json.dumps(program.settings(), sort_keys=True)
    return hashlib.sha256(f"{fingerprint(program)} {settings}".encode()).hexdigest()[:12]


def with_candidate_state(given: MultiHopProgram, candidate: Any) -> MultiHopProgram:
    """Return a copy of the given program with a candidate's settings, instructions and demos.

    Nothing else is copied: optimizers attach other objects to candidates (all other candidates,
    patched methods, LMs), and let them share signature classes, which some of them modify.
    """
    copied: MultiHopProgram = given.deepcopy()
    given_settings = given.settings()
    for name, value in candidate.settings().items():
        if value != given_settings[name]:
            setattr(copied, name, getattr(candidate, name))
    prompts = dict(candidate.named_predictors())
    for name, predictor in copied.named_predictors():
        signature = prompts[name].signature
        predictor.signature = signature.with_instructions(signature.instructions)
        predictor.demos = list(prompts[name].demos)
    return copied


def _changes(program: MultiHopProgram, given: MultiHopProgram) -> str:
    """Return how a program differs from the given one, in a few words."""
    before, given_settings = dict(given.named_predictors()), given.settings()
    changes = []
    for name, value in program.settings().items():
        if value != given_settings[name]:
            changes.append(f"{name}={value}")
    for name, predictor in program.named_predictors():
        if name not in before:
            continue
        if predictor.signature.instructions != before[name].signature.instructions:
            changes.append(f"new instruction for {name}")
        if predictor.demos != before[name].demos:
            changes.append(f"{len(predictor.demos)} demos for {name}")
    return ", ".join(changes) or AS_GIVEN
