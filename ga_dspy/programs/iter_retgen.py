"""Iter-RetGen: the previous answer helps to retrieve for the next one (Shao et al., 2023)."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, ClassVar

import dspy

from ga_dspy.passage import Passage
from ga_dspy.programs.answering import concluded
from ga_dspy.programs.conversation import Ask, Request
from ga_dspy.programs.iterative import IterativeProgram
from ga_dspy.programs.prediction import Step
from ga_dspy.programs.predictors import without_graph
from ga_dspy.programs.progress import Progress
from ga_dspy.programs.reading import fit
from ga_dspy.signatures import AnswerQuestion


class IterRetGen(IterativeProgram):
    """Answer, search with the question and that answer, answer again.

    Each answer is read from the passages that the round's own search returned, old ones among
    them; the last one is the program's. The rounds end early where an answer comes back
    unchanged or empty, since the next round would repeat an earlier one. n rounds take n LM calls.

    Args:
        retriever: Anything `ga_dspy.retrieval.as_retriever` takes.
        max_steps: Rounds of retrieval.
        k: Passages a round.
        passage_tokens: Budget for the passages in a prompt.
        token_budget: About as many tokens as a question may cost; None for no limit.
        abstain: Give an empty answer where no passage supports one.
        count: Counts the tokens of a text.
    """

    signatures: ClassVar[dict[str, type[dspy.Signature]]] = {
        "answer": without_graph(AnswerQuestion).delete("candidate")
    }

    def _read(
        self, progress: Progress, step: Step, fresh: dict[int, Passage]
    ) -> Generator[Ask, dspy.Prediction, Step]:
        labels = progress.reading.tried[-1].labels
        passages = {label: progress.reading.passages[label] for label in labels}
        shown = fit(passages, self._room(progress), self.count)
        inputs = {"question": progress.question, "passages": shown.text}
        end = yield from concluded(self.answer, inputs, passages, progress.meter)
        progress.ending = (shown, end)
        query = f"{progress.question} {end.answer}".strip()
        decided = {"candidate": end.answer}
        if progress.reading.was_tried(query):
            fault = "the answer is one of an earlier round" if end.answer else "no answer"
            return step.model_copy(update={**decided, "rule": f"{fault}: the search ends"})
        return step.model_copy(update={**decided, "next_query": query})

    def _conclude(self, progress: Progress) -> Generator[Request, Any, dspy.Prediction]:
        """The answer of the last round that gave one; a further call only where none did."""
        if progress.ending is None:
            return (yield from super()._conclude(progress))
        shown, end = progress.ending
        return self._prediction(progress, shown, end)
