"""Closed book: what the LM answers from memory. The measure of what reading adds."""

from __future__ import annotations

from typing import Any

import dspy

from ga_dspy.programs.answering import recognised
from ga_dspy.programs.base import MultiHopProgram
from ga_dspy.programs.conversation import Conversation
from ga_dspy.programs.progress import Progress
from ga_dspy.programs.reading import Shown
from ga_dspy.programs.salvage import asked
from ga_dspy.signatures import AnswerFromMemory
from ga_dspy.tokens import TokenCounter, estimate_tokens


class ClosedBook(MultiHopProgram):
    """One LM call without a passage; nothing is ever supported.

    Args:
        retriever: Not searched; taken so that every program is made the same way.
        abstain: Give an empty answer, since no passage supports one.
        count: Counts the tokens of a text.
    """

    def __init__(
        self,
        retriever: Any,
        *,
        abstain: bool = False,
        count: TokenCounter = estimate_tokens,
    ) -> None:
        super().__init__(retriever, k=1, abstain=abstain, count=count)
        self.answer = dspy.Predict(AnswerFromMemory)

    def settings(self) -> dict[str, Any]:
        """The arguments that make this program again."""
        return {"abstain": self.abstain}

    def converse(self, question: str) -> Conversation[dspy.Prediction]:
        """Answer."""
        progress = Progress(question)
        inputs = {"question": question}
        reply = yield from asked("answer", self.answer, inputs, progress.meter)
        return self._prediction(progress, Shown("", ()), recognised(reply.answer or "", {}))
