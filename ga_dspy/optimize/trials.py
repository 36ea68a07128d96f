"""The programs that a compilation tried, with their scores, and its outcome."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import dspy
from dspy.utils import BaseCallback

from ga_dspy.eval import Report
from ga_dspy.eval.plots import Point
from ga_dspy.eval.protocol import fingerprint as fingerprint
from ga_dspy.lm.store import CallStore
from ga_dspy.optimize.demos import Prompt, prompts
from ga_dspy.programs import MultiHopProgram

_FEWEST = 5  # questions of a partial score that is worth noting


class Candidate(NamedTuple):
    """A program that the recipe tried, when its score became known.

    Attributes:
        number: From 1, in the order in which they were tried.
        score: Mean score on the questions it was tried on, in percent.
        best: The best score of a candidate so far, in percent.
        calls: LM calls of the whole compilation so far, including replayed ones.
        tokens: Tokens of those calls.
        seconds: Since the compilation began.
        description: How it differs from the program as given ("3 demos for answer").
        failed: Questions that failed, or had a failed step, in an evaluation during which LM
            calls failed.
        mark: A digest of its prompts: twelve hexadecimal digits.
        prompts: The prompt of each predictor.
        question_tokens: Mean tokens per question; None unless it was tried on all validation
            questions.
    """

    number: int
    score: float
    best: float
    calls: int
    tokens: int
    seconds: float
    description: str
    failed: int = 0
    mark: str = ""
    prompts: Mapping[str, Prompt] | None = None
    question_tokens: float | None = None


@dataclass(frozen=True)
class Outcome:
    """The result of a compilation, and what it cost.

    Attributes:
        recipe: Its name on the command line.
        parameters: Its settings, as JSON values.
        before: The program as given, on the held-out questions that both answered.
        after: The compiled program, on the same questions.
        held_out: Which questions those are: "test", or "validation", which the recipe has seen.
        p_value: Of the paired permutation test on F1, two-sided.
        better: F1 is higher, the p-value under 0.05, and no more questions failed than before.
        calls: LM calls, including replayed ones and both held-out runs.
        tokens: Prompt and completion tokens of those calls.
        money: Their cost in US dollars; None if an LM has no known price.
        replayed: How many of the calls an earlier run had made.
        seconds: Duration of this run.
        candidates: Every program tried, in order.
        stopped: Which cap ended the recipe early; empty if it finished.
        prompts_before: The prompt of each predictor, as given.
        prompts_after: The same of the compiled program.
        dropped_demos: Demos that were removed because they would teach a fault, and why.
        data: Fingerprints and sizes of the question sets, by role.
        lms: Model name by role ("task", "reflection", "prompt").
        artifact: The folder it was saved into.
        failures: How many held-out questions had no answer, before and after, despite retries.
        unchanged: The program written is the one that was given.
        rejected: F1 and tokens per question of the compiled program, if it gained nothing on the
            held-out questions and the program as given was written.
    """

    recipe: str
    parameters: dict[str, Any]
    before: Report
    after: Report
    held_out: str
    p_value: float
    better: bool
    calls: int
    tokens: int
    money: float | None
    replayed: int
    seconds: float
    candidates: tuple[Candidate, ...]
    stopped: str
    prompts_before: dict[str, Prompt]
    prompts_after: dict[str, Prompt]
    dropped_demos: tuple[str, ...]
    data: dict[str, dict[str, Any]]
    lms: dict[str, str]
    artifact: Path
    failures: tuple[int, int] = (0, 0)
    unchanged: bool = False
    rejected: dict[str, float] | None = None

    @property
    def verdict(self) -> str:
        """The result in words."""
        if self.unchanged:
            return "unchanged"
        return "better" if self.better else "no better than before"

    @property
    def figure(self) -> Path:
        """The image of the candidates, beside the artifact; missing without matplotlib."""
        return self.artifact / "candidates.png"

    @property
    def points(self) -> list[Point]:
        """The candidates that all validation questions were tried on, for `plot_costs`."""
        points = []
        for c in self.candidates:
            if c.question_tokens is not None:
                is_chosen = c.prompts == self.prompts_after
                label = c.description if is_chosen or c.prompts == self.prompts_before else ""
                label += " (chosen)" if is_chosen else ""
                points.append(Point(label, c.score, None, c.question_tokens, is_chosen))
        return points

    @property
    def shortfall(self) -> dict[str, int]:
        """How many held-out questions had no answer, or one despite a failed step."""
        counts = {"asked": self.before.protocol.n}
        for n, (when, report) in enumerate((("before", self.before), ("after", self.after))):
            counts[f"failures_{when}"] = self.failures[n]
            counts[f"degraded_{when}"] = len(report.degraded)
        return counts

    @property
    def basis(self) -> str:
        """The number of questions behind the verdict, in words."""
        n, asked = len(self.after.results), self.before.protocol.n
        shown = f"{n} questions of {self.held_out}"
        if n == asked:
            return shown
        before, after = self.failures
        return f"{shown}, of {asked}; {before} failed before, {after} after"

    def summary(self) -> dict[str, Any]:
        """Return the content of summary.json: scores in percent, intervals of 95 %."""
        reports = {"before": self.before.summary(), "after": self.after.summary()}
        scores = {
            f"{score}_{when}": report[score]
            for score in ("f1", "ci95", "em")
            for when, report in reports.items()
        }
        return {
            "recipe": self.recipe,
            "parameters": self.parameters,
            "held_out": self.held_out,
            "n": reports["after"]["n"],
            **self.shortfall,
            **scores,
            "p_value": round(self.p_value, 5),
            "verdict": self.verdict,
            "rejected": self.rejected,
            "calls": self.calls,
            "replayed": self.replayed,
            "tokens": self.tokens,
            "money": self.money,
            "seconds": round(self.seconds, 1),
            "stopped": self.stopped,
            "candidates": [
                {name: value for name, value in c._asdict().items() if name != "prompts"}
                for c in self.candidates
            ],
            "dropped_demos": list(self.dropped_demos),
            "data": self.data,
            "lms": {**self.after.protocol.lms, **self.lms},
        }


class Tracker(Protocol):
    """Follows a compilation; `ga_dspy.optimize.tracking` has the one for MLflow."""

    def start(self, name: str, setup: dict[str, Any]) -> None:
        """Called when the compilation begins; `setup` is what decides its outcome.

        It holds the recipe's `parameters`, fingerprints of the question sets as `data`, and all
        fields of a protocol.
        """

    def candidate(self, c: Candidate) -> None:
        """Called when a program was tried."""

    def finish(self, outcome: Outcome) -> None:
        """Called at the end, by itself or by a cap; the artifact is written."""

    def fail(self, error: BaseException) -> None:
        """Called if the compilation ends without an outcome."""


class Trial(NamedTuple):
    """A program and its mean score in percent.

    Attributes:
        program: The program.
        mark: A digest of its prompts.
        score: Its mean score.
        whole: Whether it was scored on all validation questions.
        failed: As in `Candidate`.
        tokens: What its questions took.
    """

    program: MultiHopProgram
    mark: str
    score: float
    whole: bool
    failed: int = 0
    tokens: int = 0


def _merit(trial: Trial) -> tuple[bool, float, int]:
    return not trial.failed, trial.score, -trial.tokens


def _failed(found: Any) -> bool:
    """Return whether a prediction of an evaluation has no answer, or a failed step."""
    return isinstance(found, dspy.Prediction) and bool(found.get("failures", "answer" not in found))


class Trials(BaseCallback):
    """Watches DSPy's evaluations and records the score of each program.

    Args:
        given: The program that is compiled.
        validation: The questions whose mean score decides.
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
        self._running: dict[str, tuple[Any, set[str], int]] = {}
        self._known: set[str] = set()
        self._singles: dict[str, tuple[MultiHopProgram, dict[str, float]]] = {}
        self._lock = threading.Lock()
        self._begun = time.monotonic()
        self.trials: list[Trial] = []
        self.candidates: list[Candidate] = []

    def on_evaluate_start(self, call_id: str, instance: Any, inputs: dict[str, Any]) -> None:
        """Record which program is tried on which questions."""
        questions = {row.question for row in inputs.get("devset") or instance.devset}
        self._running[call_id] = inputs["program"], questions, self.ledger.failures

    def on_evaluate_end(
        self, call_id: str, outputs: Any, exception: BaseException | None = None
    ) -> None:
        """Record the score, unless the evaluation broke off or was not on validation questions.

        A question that failed without a failed LM call is the program's own fault.
        """
        program, questions, failures = self._running.pop(call_id)
        if exception is not None:
            return
        hurt = self.ledger.failures > failures
        failed = sum(_failed(found) for _, found, _ in outputs.results) if hurt else 0
        whole = questions == self._validation
        if whole or (questions < self._validation and len(questions) >= _FEWEST):
            kept = transplanted(self._given, program)
            on = "" if whole else f"; on {len(questions)} questions"
            on += f"; {failed} failed" if failed else ""
            tokens = sum(found.get("tokens") or 0 for _, found, _ in outputs.results)
            mark = fingerprint(kept)
            self._add(Trial(kept, mark, outputs.score, whole, failed, tokens), on)

    def note(self, program: Any, question: str, score: float, batch: int) -> None:
        """Record a score (percent) on one train question; a whole batch of them is a trial."""
        kept = transplanted(self._given, program)
        mark = fingerprint(kept)
        if mark == fingerprint(self._given):
            return
        with self._lock:
            first, scores = self._singles.setdefault(mark, (kept, {}))
            scores[question] = score
            mean = sum(scores.values()) / len(scores)
            complete = len(scores) == batch
        if complete:
            self._add(Trial(first, mark, mean, whole=False), f"; on {batch} train questions")

    def _add(self, trial: Trial, on: str) -> None:
        with self._lock:
            if trial.mark + on in self._known:
                return
            self._known.add(trial.mark + on)
            self.trials.append(trial)
            best, spent = self.best(), self.ledger.spent
            candidate = Candidate(
                number=len(self.candidates) + 1,
                score=round(trial.score, 2),
                best=round(best.score if best else trial.score, 2),
                calls=spent.calls,
                tokens=spent.tokens,
                seconds=round(time.monotonic() - self._begun, 1),
                description=_changes(trial.program, self._given) + on,
                failed=trial.failed,
                mark=trial.mark[:12],
                prompts=prompts(trial.program),
                question_tokens=trial.tokens / len(self._validation) if trial.whole else None,
            )
            self.candidates.append(candidate)
        self._announce(candidate)

    def best(self) -> Trial | None:
        """Return the program with the highest score on all validation questions.

        Of equal ones the one with the fewest tokens. A program some of whose questions failed with
        the LM is not chosen over one without such questions, since its score says little.
        """
        whole = [trial for trial in self.trials if trial.whole]
        return max(whole, key=_merit, default=None)

    def promising(self) -> MultiHopProgram | None:
        """Return the best of the programs that were not scored on all validation questions."""
        scored = {trial.mark for trial in self.trials if trial.whole}
        part = [trial for trial in self.trials if trial.mark not in scored]
        best = max(part, key=lambda trial: trial.score, default=None)
        return best.program if best else None

    def discard(self, rejected: Trial) -> None:
        """Exclude a program from the choice."""
        with self._lock:
            self.trials = [trial for trial in self.trials if trial.mark != rejected.mark]


def transplanted(given: MultiHopProgram, candidate: Any) -> MultiHopProgram:
    """Return a copy of the given program with a candidate's instructions and demos.

    Optimizers attach other things to candidates (all other candidates, patched methods, LMs), and
    let them share signature classes, which some of them write to.
    """
    copied: MultiHopProgram = given.deepcopy()
    prompts = dict(candidate.named_predictors())
    for name, predictor in copied.named_predictors():
        signature = prompts[name].signature
        predictor.signature = signature.with_instructions(signature.instructions)
        predictor.demos = list(prompts[name].demos)
    return copied


def _changes(program: MultiHopProgram, given: MultiHopProgram) -> str:
    """Return how a program differs from the given one, in a few words."""
    before = dict(given.named_predictors())
    changes = []
    for name, predictor in program.named_predictors():
        if predictor.signature.instructions != before[name].signature.instructions:
            changes.append(f"new instruction for {name}")
        if predictor.demos != before[name].demos:
            changes.append(f"{len(predictor.demos)} demos for {name}")
    return ", ".join(changes) or "as given"
