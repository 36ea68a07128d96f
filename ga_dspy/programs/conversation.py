"""Conversations: rewrite follow-up questions as standalone questions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import dspy

from ga_dspy.programs.calls import Conversation, StepFailed, adrive, ask, drive
from ga_dspy.programs.loop import wrap_errors
from ga_dspy.programs.meter import Meter
from ga_dspy.programs.program import MAX_QUESTION_LENGTH
from ga_dspy.signatures.prompt import short_text

MAX_TURNS, MAX_TURN_LENGTH = 8, 400
"""The latest turns that the prompt shows, and the characters that it shows of each text."""


class Turn(NamedTuple):
    """A rewritten question of a conversation, and its answer."""

    question: str
    answer: str


class StandAlone(dspy.Signature):
    """Write the last question of a conversation so that it is understood without the conversation.

    Put the name of what is meant in the place of words that point back, such as "he", "there",
    "that year" or "the second one", and add what a fragment ("And in 1990?") leaves out. Change
    nothing else, add no facts and do not answer. A question that is understood by itself stays as
    it is, word for word.
    """

    conversation: str = dspy.InputField(desc="what was asked and answered before")
    question: str = dspy.InputField(desc="the last question")
    standalone_question: str = dspy.OutputField(desc="the last question, understood by itself")


class Rewrite(dspy.Module):
    """Rewrites a follow-up question; the first question of a conversation takes no LM call.

    Returns a `dspy.Prediction` with `question`, `failure`, `usage`, `calls` and `tokens`. If the LM
    fails or gives no usable reply, the question is unchanged and `failure` has the reason.

    >>> Rewrite()(question="Who designed it?").question
    'Who designed it?'
    """

    def __init__(self) -> None:
        """Create the predictor `rewrite`."""
        super().__init__()
        self.rewrite = dspy.Predict(StandAlone)

    def forward(self, question: str, turns: Sequence[Turn] = ()) -> dspy.Prediction:
        """Rewrite a question.

        Args:
            question: The last question.
            turns: The turns before it, in order.
        """
        return drive(self._converse(question, turns))

    async def aforward(self, question: str, turns: Sequence[Turn] = ()) -> dspy.Prediction:
        """Rewrite a question from a coroutine."""
        return await adrive(self._converse(question, turns))

    def _converse(self, question: str, turns: Sequence[Turn]) -> Conversation[dspy.Prediction]:
        meter, rewritten, failure = Meter(), "", ""
        if turns:
            lines = []
            for turn in turns[-MAX_TURNS:]:
                for who, text in zip("QA", turn, strict=True):
                    lines.append(f"{who}: {' '.join(text.split())[:MAX_TURN_LENGTH]}")
            inputs = {"conversation": "\n".join(lines), "question": question}
            try:
                asked = ask("rewrite", self.rewrite, inputs, meter)
                reply = yield from wrap_errors("rewrite", asked)
                rewritten = " ".join(short_text(reply.standalone_question).split())
                if len(rewritten) > MAX_QUESTION_LENGTH:
                    rewritten, failure = "", f"rewritten at a length of {len(rewritten):,}"
            except StepFailed as error:
                failure = str(error)
        cost = {"usage": dict(meter.usage), "calls": meter.calls, "tokens": meter.tokens}
        return dspy.Prediction(question=rewritten or question, failure=failure, **cost)
