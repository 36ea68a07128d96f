"""Every program that was scored while compiling: for the live line, and to keep the best."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import dspy
from dspy.utils.callback import BaseCallback

from ga_dspy.optimize.budget import Account
from ga_dspy.optimize.record import Candidate
from ga_dspy.programs import MultiHopProgram

_FEWEST = 5


class Trial(NamedTuple):
    """A program with its mean score in percent; `whole` if on all validation questions."""

    program: MultiHopProgram
    score: float
    whole: bool


class Trials(BaseCallback):
    """Watches DSPy's evaluations and keeps what they say about which program.

    Args:
        given: The program that is compiled.
        validation: The questions whose mean score decides.
        account: What has been spent.
        tell: Called with each new candidate.
        model: Name of the task LM; a predictor that has it as its own is as one that has none.
    """

    def __init__(
        self,
        given: MultiHopProgram,
        validation: Sequence[dspy.Example],
        account: Account,
        tell: Callable[[Candidate], None],
        model: str = "",
    ) -> None:
        self._given, self._account, self._tell, self._model = given, account, tell, model
        self._validation = frozenset(example.question for example in validation)
        self._running: dict[str, tuple[Any, list[str]]] = {}
        self._known: set[str] = set()
        self._singles: dict[str, tuple[MultiHopProgram, dict[str, float]]] = {}
        self._lock = threading.Lock()
        self._begun = time.monotonic()
        self.trials: list[Trial] = []
        self.candidates: list[Candidate] = []

    def on_evaluate_start(self, call_id: str, instance: Any, inputs: dict[str, Any]) -> None:
        """Note which program is tried on which questions."""
        devset = inputs.get("devset") or instance.devset
        self._running[call_id] = inputs["program"], [example.question for example in devset]

    def on_evaluate_end(
        self, call_id: str, outputs: Any, exception: BaseException | None = None
    ) -> None:
        """Take the score, unless the evaluation broke off or was not on validation questions."""
        program, questions = self._running.pop(call_id)
        if exception is None and set(questions) <= self._validation:
            self.note(program, float(outputs.score), len(set(questions)))

    def note(self, program: Any, score: float, questions: int) -> None:
        """A program has a mean score (percent) on so many of the validation questions."""
        whole = questions == len(self._validation)
        if whole or questions >= _FEWEST:
            kept = transplanted(self._given, program, self._model)
            self._add(Trial(kept, score, whole), "" if whole else f"{questions} questions")

    def note_one(self, program: Any, question: str, score: float, batch: int) -> None:
        """A program has a score (percent) on one train question; after a batch, it is a trial."""
        kept = transplanted(self._given, program, self._model)
        if fingerprint(kept) == fingerprint(self._given):
            return
        with self._lock:
            first, scores = self._singles.setdefault(fingerprint(kept), (kept, {}))
            scores[question] = score
            mean = sum(scores.values()) / len(scores)
            complete = len(scores) == batch
        if complete:
            self._add(Trial(first, mean, whole=False), f"{batch} train questions")

    def _add(self, trial: Trial, on: str) -> None:
        mark = f"{fingerprint(trial.program)} {on}"
        with self._lock:
            if mark in self._known:
                return
            self._known.add(mark)
            self.trials.append(trial)
            changes = described(trial.program, self._given)
            candidate = self._candidate(trial.score, f"{changes}; on {on}" if on else changes)
            self.candidates.append(candidate)
        self._tell(candidate)

    def promising(self) -> MultiHopProgram | None:
        """Of the programs not scored on all validation questions, the one that looks best."""
        part = [t for t in self.trials if not t.whole and self.scored(t.program) is None]
        best = max(part, key=lambda trial: trial.score, default=None)
        return best.program if best else None

    def discard(self, program: MultiHopProgram) -> None:
        """Leave a program out of the choice: it may not be kept."""
        mark = fingerprint(program)
        with self._lock:
            self.trials = [t for t in self.trials if fingerprint(t.program) != mark]

    def best(self) -> Trial | None:
        """The program with the highest score on all validation questions; of equals the first."""
        whole = [trial for trial in self.trials if trial.whole]
        return max(whole, key=lambda trial: trial.score, default=None)

    def scored(self, program: MultiHopProgram) -> float | None:
        """The score of a program on all validation questions, where it is known."""
        mark = fingerprint(program)
        return next(
            (t.score for t in self.trials if t.whole and fingerprint(t.program) == mark), None
        )

    def _candidate(self, score: float, description: str) -> Candidate:
        whole = [trial.score for trial in self.trials if trial.whole]
        spent = self._account.spent
        return Candidate(
            number=len(self.candidates) + 1,
            score=round(score, 2),
            best=round(max(whole, default=score), 2),
            calls=spent.calls,
            tokens=spent.tokens,
            seconds=round(time.monotonic() - self._begun, 1),
            description=description,
        )


def transplanted(given: MultiHopProgram, candidate: Any, model: str = "") -> MultiHopProgram:
    """A copy of the given program with a candidate's instructions, demos and LMs.

    Candidates carry what optimizers hang on them (all other candidates, patched methods), and
    share signature classes, which some optimizers write to. An LM called `model` is left out.
    """
    copied: MultiHopProgram = given.deepcopy()
    prompts = dict(candidate.named_predictors())
    for name, predictor in copied.named_predictors():
        signature = prompts[name].signature
        predictor.signature = signature.with_instructions(signature.instructions)
        predictor.demos = list(prompts[name].demos)
        own = prompts[name].lm
        predictor.lm = None if own is None or own.model == model else own
    return copied


def fingerprint(program: MultiHopProgram) -> str:
    """SHA-256 of the instructions, field wordings and demos of a program, and of its LMs' names."""
    parts = [
        [
            name,
            predictor.signature.instructions,
            [str(field.json_schema_extra) for field in predictor.signature.fields.values()],
            [sorted(demo.items()) for demo in predictor.demos],
            getattr(predictor.lm, "model", None),
        ]
        for name, predictor in program.named_predictors()
    ]
    return hashlib.sha256(json.dumps(parts, default=repr).encode()).hexdigest()


def described(program: MultiHopProgram, given: MultiHopProgram) -> str:
    """What a program has that the given one has not, in a few words."""
    before = dict(given.named_predictors())
    changes = []
    for name, predictor in program.named_predictors():
        if predictor.signature.instructions != before[name].signature.instructions:
            changes.append(f"new instruction for {name}")
        if len(predictor.demos) or len(before[name].demos):
            changes.append(f"{len(predictor.demos)} demos for {name}")
        if predictor.lm is not None:
            changes.append(f"{predictor.lm.model} for {name}")
    return ", ".join(changes) or "as given"
