"""Vanilla RAG: retrieve once, answer. The baseline everything is held against."""

from __future__ import annotations

from typing import ClassVar

import dspy

from ga_dspy.programs.base import MultiHopProgram
from ga_dspy.programs.conversation import Conversation
from ga_dspy.programs.prediction import Step
from ga_dspy.programs.predictors import without_graph
from ga_dspy.programs.progress import Progress
from ga_dspy.signatures import AnswerQuestion


class VanillaRAG(MultiHopProgram):
    """The top k passages for the question, read in one LM call.

    Args:
        retriever: Anything `ga_dspy.retrieval.as_retriever` takes.
        k: Passages to read. The paper uses 5, and reports 10, 15 and 20 as well.
        passage_tokens: Budget for the passages in the prompt.
        token_budget: About as many tokens as a question may cost; None for no limit.
        abstain: Give an empty answer where no passage supports one.
        count: Counts the tokens of a text.
    """

    signatures: ClassVar[dict[str, type[dspy.Signature]]] = {
        "answer": without_graph(AnswerQuestion).delete("candidate")
    }

    def converse(self, question: str) -> Conversation[dspy.Prediction]:
        """Search, answer."""
        progress = Progress(question)
        step, _ = yield from self._search(progress, Step(number=1, query=question), question)
        progress.steps.append(step)
        return (yield from self._conclude(progress))
