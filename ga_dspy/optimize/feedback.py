"""The one metric of every recipe: HotpotQA F1 as score, faults in words as feedback."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import dspy

from ga_dspy.errors import InputError
from ga_dspy.eval import f1, support_recall
from ga_dspy.optimize.faults import (
    Case,
    answer_faults,
    index_faults,
    note_faults,
    opening_faults,
    search_faults,
)
from ga_dspy.optimize.roles import EVERY, Heard, Role, heard, roles_of
from ga_dspy.programs import MultiHopProgram

DEMO_THRESHOLD = 0.8
"""A question whose answer scores less leaves no demonstration: F1 0.1 is truthy, and wrong."""


@dataclass(frozen=True)
class AnswerMetric:
    """Scores a prediction, and says to each predictor what it did wrong and nothing else.

    It has the five arguments of GEPA; Evaluate and the other optimizers pass two or three. The
    score is F1 by the official rule. With weights it is
    `(F1 + recall * support recall) / (1 + recall) - cost * tokens / 1000`, not below 0.

    Attributes:
        roles: What each predictor of the program does, by its name.
        recall: Weight of the share of needed passages that were retrieved.
        cost: What 1,000 tokens cost, on the scale of F1 from 0 to 1.
        threshold: The score from which a question may leave a demonstration.

    >>> metric = AnswerMetric({})
    >>> gold = dspy.Example(answer="Montana", answers=("Montana",))
    >>> float(metric(gold, dspy.Prediction(answer="the state of Montana")))
    0.5
    """

    roles: Mapping[str, frozenset[Role]] = field(default_factory=dict)
    recall: float = 0.0
    cost: float = 0.0
    threshold: float = DEMO_THRESHOLD

    def __post_init__(self) -> None:
        if self.recall < 0 or self.cost < 0 or not 0 < self.threshold <= 1:
            raise InputError(
                f"recall={self.recall}, cost={self.cost}, threshold={self.threshold}",
                expected="weights from 0, and a threshold above 0 and up to 1",
                remedy="leave them out: F1 alone is the score",
            )

    @classmethod
    def of(cls, program: MultiHopProgram, **weights: float) -> AnswerMetric:
        """The metric for a program, whose predictors are told apart by their output fields."""
        return cls(
            {name: roles_of(p.signature) for name, p in program.named_predictors()},
            **weights,
        )

    def __call__(
        self,
        gold: dspy.Example,
        pred: Any,
        trace: Any = None,
        pred_name: str | None = None,
        pred_trace: Any = None,
    ) -> dspy.Prediction:
        """Score a prediction.

        Args:
            gold: The example, with `answer` or `answers` and maybe `gold_titles`.
            pred: The program's prediction; one without an answer (a failed run) scores 0.
            trace: All predictor calls of the run.
            pred_name: Which predictor is to hear of its faults; all of them where it is None.
            pred_trace: The call of that predictor to look at.
        """
        if not isinstance(getattr(pred, "answer", None), str):
            return dspy.Prediction(score=0.0, feedback="The program failed: there is no answer.")
        case = Case.of(gold, pred)
        return dspy.Prediction(
            score=self._score(case, pred),
            feedback=self._feedback(case, trace, pred_name, pred_trace),
        )

    def _score(self, case: Case, pred: Any) -> float:
        score = f1(case.answer, case.answers)
        found = support_recall(case.titles.values(), case.gold_titles)
        if self.recall and found is not None:
            score = (score + self.recall * found) / (1 + self.recall)
        return max(0.0, score - self.cost * (getattr(pred, "tokens", 0) or 0) / 1000)

    def _feedback(self, case: Case, trace: Any, name: str | None, call: Any) -> str:
        outcome = f"The question was answered with F1 {f1(case.answer, case.answers):.2f}."
        kept = frozenset[Role]().union(*self.roles.values())
        if name is None:
            told = Heard(EVERY, case, case.steps)
        else:
            told = heard(self.roles.get(name, frozenset()), case, trace, call)
        faults = [*_faults(told, kept)]
        return "\n".join([outcome, *(faults or ["No fault of this step was found."])])


def _faults(told: Heard, kept: frozenset[Role]) -> Iterator[str]:
    """What the predictor with these roles hears, in a program whose predictors have those kept."""
    roles, case, steps = told
    if "index" in roles & kept:
        yield from index_faults(case, steps)
    if "notes" in roles & kept:
        yield from note_faults(case, steps)
    if "search" in roles & kept and not steps:
        yield from opening_faults(case)
    if roles & {"judge", "search"}:
        yield from search_faults(case, steps, judged="search" not in roles & kept)
    if roles & {"judge", "search"} or not kept & {"judge", "search"}:
        yield from (f"Step {step.number}: {step.failure}" for step in case.steps if step.failure)
    if "answer" in roles:
        yield from answer_faults(case)


def threshold_of(metric: AnswerMetric) -> Any:
    """The metric as a gate: true only from the threshold on, for optimizers that ask for truth."""

    def passed(gold: dspy.Example, pred: Any, trace: Any = None) -> bool:
        return bool(float(metric(gold, pred, trace)) >= metric.threshold)

    return passed
