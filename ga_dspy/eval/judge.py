"""An LM that judges answers whose wording no script can compare; its cost is separate."""

from __future__ import annotations

from typing import Literal

import dspy

from ga_dspy.errors import RunAborted
from ga_dspy.eval.result import Judged, Result
from ga_dspy.lm.failures import causes
from ga_dspy.programs import Usage
from ga_dspy.programs.calls import ask, drive
from ga_dspy.programs.meter import Meter
from ga_dspy.secrets import withheld


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
    """Judges an answer: `judge(question=…, accepted=(…,), answer=…).verdict` is right or wrong."""

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


def judge_result(judge: Judge, asked: tuple[int, Result]) -> tuple[int, Result]:
    """Return a question's position, and its result with the verdict or the judge's error."""
    position, result = asked
    meter, right, error = Meter(), None, None
    try:
        given = {"question": result.question, "accepted": result.gold, "answer": result.answer}
        right = judge(**given, meter=meter).verdict == "right"
    except Exception as failure:  # noqa: BLE001 - any failure of a judge is counted and named
        for cause in causes(failure):
            if isinstance(cause, RunAborted):
                raise cause from cause.__cause__
        error = withheld(f"{type(failure).__name__}: {failure}")
    judged = Judged(right=right, usage=Usage.total(meter.usage.values()), error=error)
    return position, result.model_copy(update={"judged": judged})
