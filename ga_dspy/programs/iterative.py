"""The loop that every iterative program shares: a query, a round, the next query, the answer."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import dspy

from ga_dspy.passage import Passage
from ga_dspy.programs.base import PROMPT_TOKENS, MultiHopProgram, whole
from ga_dspy.programs.conversation import Ask, Conversation, Request
from ga_dspy.programs.prediction import Step
from ga_dspy.programs.progress import Progress
from ga_dspy.programs.salvage import StepFailed
from ga_dspy.tokens import TokenCounter, estimate_tokens


class IterativeProgram(MultiHopProgram):
    """Searches and reads in rounds, then answers.

    A subclass says in `_read` what an LM makes of a round's passages: the step it returns has the
    next query, and is "sufficient" where the search may end. A round whose output is unusable
    twice carries the failure; the search ends and the answer rests on what was read until then.

    Args:
        retriever: Anything `ga_dspy.retrieval.as_retriever` takes.
        max_steps: The most rounds of retrieval (the paper's T).
        k: Passages a round.
        passage_tokens: Budget for the passages in a prompt.
        token_budget: About as many tokens as a question may cost; None for no limit.
        abstain: Give an empty answer where no passage supports one.
        count: Counts the tokens of a text.
    """

    def __init__(
        self,
        retriever: Any,
        *,
        max_steps: int = 4,
        k: int = 5,
        passage_tokens: int = 6000,
        token_budget: int | None = None,
        abstain: bool = False,
        count: TokenCounter = estimate_tokens,
    ) -> None:
        super().__init__(
            retriever,
            k=k,
            passage_tokens=passage_tokens,
            token_budget=token_budget,
            abstain=abstain,
            count=count,
        )
        self.max_steps = whole("max_steps", max_steps)

    def settings(self) -> dict[str, Any]:
        """The arguments that make this program again, but for the retriever and the counter."""
        return {"max_steps": self.max_steps, **super().settings()}

    def converse(self, question: str) -> Conversation[dspy.Prediction]:
        """The algorithm: at most `max_steps` rounds of searching and reading, then the answer."""
        progress = Progress(question)
        query = yield from self._first_query(progress)
        while query:
            step = yield from self._round(progress, query)
            progress.steps.append(step)
            query = "" if self._ends(step) else step.next_query
        return (yield from self._conclude(progress))

    def _first_query(self, progress: Progress) -> Generator[Request, Any, str]:
        """What is searched first: the question itself."""
        yield from ()
        return progress.question

    def _ends(self, step: Step) -> bool:
        """Whether the search ends with this step."""
        return bool(step.judgement == "sufficient" or step.failure or step.number >= self.max_steps)

    def _round(self, progress: Progress, query: str) -> Generator[Request, Any, Step]:
        spent = progress.meter.tokens
        number = len(progress.steps) + 1
        step = Step(
            number=number,
            query=query,
            rule=progress.opening if number == 1 else "",
            graph=progress.graph,
            notes=progress.notes,
        )
        step, fresh = yield from self._retrieve(progress, step)
        try:
            step = yield from self._read(progress, step, fresh)
        except StepFailed as failure:
            kept = {"graph": progress.graph, "notes": progress.notes}
            return step.model_copy(update={"failure": str(failure), **kept})
        return self._within_budget(progress, step, progress.meter.tokens - spent)

    def _retrieve(
        self, progress: Progress, step: Step
    ) -> Generator[Request, Any, tuple[Step, dict[int, Passage]]]:
        """Search for the step's query."""
        return (yield from self._search(progress, step, step.query))

    def _read(
        self, progress: Progress, step: Step, fresh: dict[int, Passage]
    ) -> Generator[Ask, dspy.Prediction, Step]:
        """What an LM makes of the new passages."""
        raise TypeError(f"{type(self).__name__} must implement _read(progress, step, fresh)")

    def _within_budget(self, progress: Progress, step: Step, cost: int) -> Step:
        """End the search where another round as dear as this one leaves too few tokens."""
        if self.token_budget is None or self._ends(step) or not step.next_query:
            return step
        kept = sum(map(self.count, self._answer_inputs(progress).values()))
        answer = PROMPT_TOKENS + kept + self._tokens_read(progress)
        if progress.meter.tokens + cost + answer <= self.token_budget:
            return step
        rule = "the token budget allows no further round: the search ends"
        return step.model_copy(
            update={"next_query": "", "rule": "; ".join(filter(None, (step.rule, rule)))}
        )

    def _tokens_read(self, progress: Progress) -> int:
        """Tokens of the passages read so far, up to what a prompt may hold."""
        read = sum(self.count(passage.content) for passage in progress.reading.passages.values())
        return min(read, self.passage_tokens)
