"""What every program here has in common: how it is called and what it returns."""

from __future__ import annotations

from typing import Any

import dspy

from ga_dspy.errors import InputError
from ga_dspy.programs.conversation import Conversation, adrive, drive
from ga_dspy.retrieval import Retriever, as_retriever


class SharedRetriever:
    """Holds a retriever so that DSPy's deep copies of a program share it: corpora are large."""

    def __init__(self, retriever: Any) -> None:
        self.search: Retriever = as_retriever(retriever)

    def __deepcopy__(self, memo: dict[int, Any]) -> SharedRetriever:
        return self


class MultiHopProgram(dspy.Module):
    """A DSPy module that answers a question from passages.

    Call it with `program(question="…")`, or `await program.acall(question="…")`. The prediction
    has `answer`, `verdict`, `supported`, `candidate`, `evidence`, `cited`, `passages`, `graph`,
    `steps`, `failures`, `calls` and `tokens`, whichever program made it.

    A subclass implements `converse` once, as a generator of searches and LM calls; threads and
    asyncio both run that one algorithm.
    """

    def __init__(self, retriever: Any, *, k: int) -> None:
        super().__init__()
        self.retriever = SharedRetriever(retriever)
        self.k = whole("k", k)

    def converse(self, question: str) -> Conversation[dspy.Prediction]:
        """The algorithm."""
        raise TypeError(f"{type(self).__name__} must implement converse(question)")

    def settings(self) -> dict[str, Any]:
        """The hyperparameters that make this program again, by argument name; JSON values."""
        return {"k": self.k}

    def forward(self, question: str) -> dspy.Prediction:
        """Answer a question."""
        return drive(self.converse(_checked(question)))

    async def aforward(self, question: str) -> dspy.Prediction:
        """Answer a question from a coroutine."""
        return await adrive(self.converse(_checked(question)))


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
