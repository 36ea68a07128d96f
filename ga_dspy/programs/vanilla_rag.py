"""Vanilla RAG: retrieve once, answer. The baseline everything is held against."""

from __future__ import annotations

from typing import Any

import dspy

from ga_dspy.graph import KnowledgeGraph
from ga_dspy.programs.answering import concluded
from ga_dspy.programs.base import MultiHopProgram, whole
from ga_dspy.programs.conversation import Conversation, Search
from ga_dspy.programs.meter import Meter
from ga_dspy.programs.prediction import Step, quotes
from ga_dspy.programs.reading import Reading, fit
from ga_dspy.signatures import AnswerQuestion
from ga_dspy.tokens import TokenCounter, estimate_tokens


class VanillaRAG(MultiHopProgram):
    """The top k passages for the question, read in one LM call.

    Args:
        retriever: Anything `ga_dspy.retrieval.as_retriever` takes.
        k: Passages to read. The paper uses 5, and reports 10, 15 and 20 as well.
        passage_tokens: Budget for the passages in the prompt.
        abstain: Give an empty answer where no passage supports one.
        count: Counts the tokens of a text.
    """

    def __init__(
        self,
        retriever: Any,
        *,
        k: int = 5,
        passage_tokens: int = 6000,
        abstain: bool = False,
        count: TokenCounter = estimate_tokens,
    ) -> None:
        super().__init__(retriever, k=k)
        self.passage_tokens = whole("passage_tokens", passage_tokens, 50)
        self.abstain = abstain
        self.count = count
        self.answer = dspy.Predict(AnswerQuestion.delete("graph").delete("candidate"))

    def settings(self) -> dict[str, Any]:
        """The arguments that make this program again, but for the retriever and the counter."""
        return {"k": self.k, "passage_tokens": self.passage_tokens, "abstain": self.abstain}

    def converse(self, question: str) -> Conversation[dspy.Prediction]:
        """Search, answer."""
        meter, reading = Meter(), Reading()
        fresh = reading.take(question, (yield Search(self.retriever.search, question, self.k)))
        shown = fit(reading.passages, self.passage_tokens, self.count)
        inputs = {"question": question, "passages": shown.text}
        end = yield from concluded(self.answer, inputs, reading.passages, meter)
        cited = tuple(reading.passages[label] for label in end.cited)
        step = Step(number=1, query=question, passage_ids=tuple(p.id for p in fresh.values()))
        return dspy.Prediction(
            answer="" if self.abstain and not end.supported else end.answer,
            verdict=end.verdict,
            supported=end.supported,
            candidate=end.answer,
            evidence=quotes(end.answer, cited) if end.supported else (),
            cited=tuple(passage.id for passage in cited),
            passages=tuple(reading.passages.values()),
            left_out=tuple(reading.passages[label].id for label in shown.left_out),
            graph=KnowledgeGraph(),
            steps=(step,),
            failures=(),
            calls=meter.calls,
            tokens=meter.tokens,
        )
