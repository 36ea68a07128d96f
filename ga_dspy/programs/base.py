"""What every program has in common: how it is called, searches and answers, what it returns."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, ClassVar

import dspy

from ga_dspy.errors import InputError
from ga_dspy.passage import Passage
from ga_dspy.programs.answering import Conclusion, concluded
from ga_dspy.programs.conversation import Conversation, Request, Search, adrive, drive
from ga_dspy.programs.prediction import EvidenceLink, Step, quotes
from ga_dspy.programs.progress import Progress
from ga_dspy.programs.reading import Shown, fit
from ga_dspy.retrieval import Retriever, as_retriever
from ga_dspy.tokens import TokenCounter, estimate_tokens

PROMPT_TOKENS = 700
"""About what an answer prompt holds beside passages, graph and demos (`ga-dspy bench prompts`)."""


class SharedRetriever:
    """Holds a retriever so that DSPy's deep copies of a program share it: corpora are large."""

    def __init__(self, retriever: Any) -> None:
        self.search: Retriever = as_retriever(retriever)

    def __deepcopy__(self, memo: dict[int, Any]) -> SharedRetriever:
        return self


class MultiHopProgram(dspy.Module):
    """A DSPy module that answers a question from passages.

    Call it with `program(question="…")`, or `await program.acall(question="…")`. The prediction
    has `answer`, `verdict`, `supported`, `candidate`, `evidence`, `cited`, `passages`,
    `left_out`, `graph`, `notes`, `steps`, `failures`, `usage`, `calls` and `tokens`, whichever
    program made it.

    A subclass implements `converse` once, as a generator of searches and LM calls; threads and
    asyncio both run that one algorithm. What the LM is asked is declared in `signatures`, or
    set in `__init__`; the last step is called `answer`.

    Args:
        retriever: Anything `ga_dspy.retrieval.as_retriever` takes.
        k: Passages a query.
        passage_tokens: Budget for the passages in a prompt.
        token_budget: About as many tokens as a question may cost, all calls together; None for no
            limit. The search ends where another round would leave too few for the answer, and
            the answer is given as many passages as still fit.
        abstain: Give an empty answer where no passage supports one.
        count: Counts the tokens of a text.
    """

    signatures: ClassVar[dict[str, type[dspy.Signature]]] = {}

    def __init__(
        self,
        retriever: Any,
        *,
        k: int = 5,
        passage_tokens: int = 6000,
        token_budget: int | None = None,
        abstain: bool = False,
        count: TokenCounter = estimate_tokens,
    ) -> None:
        super().__init__()
        self.retriever = SharedRetriever(retriever)
        self.k = whole("k", k)
        self.passage_tokens = whole("passage_tokens", passage_tokens, 50)
        least = 2 * PROMPT_TOKENS
        self.token_budget = (
            None if token_budget is None else whole("token_budget", token_budget, least)
        )
        self.abstain = abstain
        self.count = count
        for name, signature in self.signatures.items():
            setattr(self, name, dspy.Predict(signature))

    def converse(self, question: str) -> Conversation[dspy.Prediction]:
        """The algorithm."""
        raise TypeError(f"{type(self).__name__} must implement converse(question)")

    def settings(self) -> dict[str, Any]:
        """The hyperparameters that make this program again, by argument name; JSON values.

        All but the retriever and the counter.
        """
        names = ("k", "passage_tokens", "token_budget", "abstain")
        return {name: getattr(self, name) for name in names}

    def forward(self, question: str) -> dspy.Prediction:
        """Answer a question."""
        return drive(self.converse(_checked(question)))

    async def aforward(self, question: str) -> dspy.Prediction:
        """Answer a question from a coroutine."""
        return await adrive(self.converse(_checked(question)))

    def _search(
        self, progress: Progress, step: Step, query: str
    ) -> Generator[Request, Any, tuple[Step, dict[int, Passage]]]:
        """Search; the step with what the query returned, and the passages that are new."""
        found = yield Search(self.retriever.search, query, self.k)
        fresh = progress.reading.take(query, found)
        returned = (progress.reading.passages[n] for n in progress.reading.tried[-1].labels)
        retrieved = (*step.retrieved, *(passage.id for passage in returned))
        new = (*step.passage_ids, *(passage.id for passage in fresh.values()))
        return step.model_copy(update={"retrieved": retrieved, "passage_ids": new}), fresh

    def _conclude(self, progress: Progress) -> Generator[Request, Any, dspy.Prediction]:
        """Answer from everything that was read."""
        passages = progress.reading.passages
        beside = self._answer_inputs(progress)
        room = self._room(progress, *beside.values())
        shown = fit(passages, room, self.count, self._served_first(progress))
        inputs = {
            "question": progress.question,
            "passages": shown.text,
            "candidate": progress.candidate,
            **beside,
        }
        end = yield from concluded(self.answer, inputs, passages, progress.meter)
        return self._prediction(progress, shown, end)

    def _answer_inputs(self, progress: Progress) -> dict[str, str]:
        """What the answer step is given beside question, passages and candidate."""
        return {}

    def _served_first(self, progress: Progress) -> Sequence[int]:
        """Labels of the passages that the answer needs most, should not all fit."""
        return ()

    def _chain(self, progress: Progress, end: Conclusion) -> tuple[EvidenceLink, ...]:
        """The evidence chain of a supported answer; quotes where it is empty."""
        return ()

    def _room(self, progress: Progress, *beside: str) -> int:
        """Tokens for the passages of the next prompt, which holds these texts as well."""
        if self.token_budget is None:
            return self.passage_tokens
        held = PROMPT_TOKENS + sum(map(self.count, beside))
        left = self.token_budget - progress.meter.tokens - held
        return max(min(self.passage_tokens, left), 50)

    def _prediction(self, progress: Progress, shown: Shown, end: Conclusion) -> dspy.Prediction:
        passages = progress.reading.passages
        cited = tuple(passages[label] for label in end.cited)
        evidence: tuple[EvidenceLink, ...] = ()
        if end.supported:
            evidence = self._chain(progress, end) or quotes(end.answer, cited)
        return dspy.Prediction(
            answer="" if self.abstain and not end.supported else end.answer,
            verdict=end.verdict,
            supported=end.supported,
            candidate=end.answer,
            evidence=evidence,
            cited=tuple(passage.id for passage in cited),
            passages=tuple(passages.values()),
            left_out=tuple(passages[label].id for label in shown.left_out),
            graph=progress.graph,
            notes=progress.notes,
            steps=tuple(progress.steps),
            failures=tuple(step.failure for step in progress.steps if step.failure),
            usage=dict(progress.meter.usage),
            calls=progress.meter.calls,
            tokens=progress.meter.tokens,
        )


def _checked(question: str) -> str:
    if not isinstance(question, str) or not question.strip():
        raise InputError(
            f"the question is {question!r}",
            expected="a text that is not empty",
            remedy='call program(question="Who …?")',
        )
    return question.strip()


def whole(name: str, value: int, least: int = 1) -> int:
    """Check that a setting is a whole number.

    Raises:
        InputError: It is something else, or less than `least`.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise InputError(
            f"{name} is {value!r}",
            expected=f"a whole number from {least}",
            remedy=f"pass {name}={max(least, 5)}",
        )
    return value


def one_of(name: str, value: Any, allowed: tuple[Any, ...]) -> Any:
    """Check that a setting is one of a few values.

    Raises:
        InputError: It is not.
    """
    if value not in allowed:
        raise InputError(
            f"{name} is {value!r}",
            expected=f"one of {', '.join(map(repr, allowed))}",
            remedy=f"pass {name}={allowed[0]!r}",
        )
    return value
