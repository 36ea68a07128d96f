"""The judgement "sufficient" as a classifier: how often it is right, and what its errors cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple


class StepVerdict(NamedTuple):
    """One judged step: what the program said, and whether it was so.

    `sufficed` is True where passages of all gold titles had been read by the end of the step;
    None where the question names no gold titles.
    """

    judged: bool
    sufficed: bool | None


class Sufficiency(NamedTuple):
    """Judgements over all steps of all questions, and where they led.

    A positive is a step judged sufficient. Every ratio is a fraction from 0 to 1, and None where
    there is nothing to divide by.

    Attributes:
        true_positives: Steps judged sufficient that were.
        false_positives: Steps judged sufficient with gold titles missing.
        true_negatives: Steps judged insufficient with gold titles missing.
        false_negatives: Steps judged insufficient though everything had been read.
        questions: Questions counted.
        left_out: Questions without a judged step, or of unknown truth.
        stopped_early: Share of the questions that ended on "sufficient" with gold missing.
        searched_long: Share that went on for a step or more after everything had been read.
        wasted_steps: Mean number of such steps, over all questions counted.
    """

    true_positives: int
    false_positives: int
    true_negatives: int
    false_negatives: int
    questions: int
    left_out: int
    stopped_early: float | None
    searched_long: float | None
    wasted_steps: float | None

    @property
    def precision(self) -> float | None:
        """Share of the steps judged sufficient that were."""
        return _ratio(self.true_positives, self.true_positives + self.false_positives)

    @property
    def recall(self) -> float | None:
        """Share of the steps with everything read that were judged sufficient."""
        return _ratio(self.true_positives, self.true_positives + self.false_negatives)

    @property
    def f1(self) -> float | None:
        """Twice the true positives over all positives, judged and true."""
        wrong = self.false_positives + self.false_negatives
        return _ratio(2 * self.true_positives, 2 * self.true_positives + wrong)

    @property
    def accuracy(self) -> float | None:
        """Share of the steps judged rightly."""
        right = self.true_positives + self.true_negatives
        return _ratio(right, right + self.false_positives + self.false_negatives)


def sufficiency(questions: Iterable[Sequence[StepVerdict]]) -> Sufficiency:
    """Count the judged steps of each question, in order.

    Args:
        questions: The judged steps of each question asked; of a failed one those it came to,
            so maybe none.

    >>> one = [StepVerdict(judged=False, sufficed=False), StepVerdict(judged=True, sufficed=True)]
    >>> sufficiency([one]).accuracy
    1.0
    """
    asked = [tuple(steps) for steps in questions]
    known = [steps for steps in asked if steps and all(s.sufficed is not None for s in steps)]
    steps = Counter((step.judged, step.sufficed) for question in known for step in question)
    wasted = [_wasted(question) for question in known]
    early = [question[-1] == StepVerdict(judged=True, sufficed=False) for question in known]
    return Sufficiency(
        true_positives=steps[True, True],
        false_positives=steps[True, False],
        true_negatives=steps[False, False],
        false_negatives=steps[False, True],
        questions=len(known),
        left_out=len(asked) - len(known),
        stopped_early=_ratio(sum(early), len(known)),
        searched_long=_ratio(sum(count > 0 for count in wasted), len(known)),
        wasted_steps=_ratio(sum(wasted), len(known)),
    )


def _wasted(steps: Sequence[StepVerdict]) -> int:
    """Steps after the first by which everything had been read."""
    first = next(
        (number for number, step in enumerate(steps, start=1) if step.sufficed), len(steps)
    )
    return len(steps) - first


def _ratio(part: int, whole: int) -> float | None:
    return part / whole if whole else None
