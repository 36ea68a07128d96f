"""Progress events of a running program, for terminals, pages and DSPy's streams."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Literal

import dspy
from dspy.streaming import StatusMessage
from pydantic_core import to_jsonable_python

from ga_dspy.lm.dspy_private import sync_send_to_stream
from ga_dspy.programs.reading import Labelled
from ga_dspy.text import defuse_markup

Kind = Literal["search", "passages", "step", "answering", "answer"]


@dataclass(frozen=True)
class Event:
    """One progress event of a question.

    Attributes:
        kind: "search" before a round searches, "passages" after it, "step" after reading and
            judging, "answering" before an answer step is called, "answer" at the end.
        message: The event in a few words, for a status line; without images, links and HTML.
        data: JSON values. For "search" `number` and `query`; for "passages" `number`, `new` (each
            passage not read before, with its `label`) and `retrieved` (ids); for "step" the step
            as in `Prediction.to_dict()`; for "answer" that dictionary.
    """

    kind: Kind
    message: str
    data: Mapping[str, Any]

    def run(self) -> None:
        """Send the event to the listener, and its message to DSPy's stream."""
        self._tell_listener()
        if stream := dspy.settings.send_stream:
            sync_send_to_stream(stream, StatusMessage(self.message))

    async def arun(self) -> None:
        """Send the event from a coroutine."""
        self._tell_listener()
        if stream := dspy.settings.send_stream:
            await stream.send(StatusMessage(self.message))

    def _tell_listener(self) -> None:
        if listener := _LISTENER.get():
            listener(self)


Listener = Callable[[Event], None]

_LISTENER: ContextVar[Listener | None] = ContextVar("ga_dspy_listener", default=None)


@contextmanager
def watching(listener: Listener) -> Iterator[None]:
    """Call a listener with every event of the questions asked in this context.

    The listener runs in the thread or event loop that asks; an error it raises ends the question.
    Wrap a call in the block, never a `yield`, which would let in events of other questions.

    >>> with watching(lambda event: print(event.message)):
    ...     pass  # program(question="…"), or await program.acall(question="…")
    """
    token = _LISTENER.set(listener)
    try:
        yield
    finally:
        _LISTENER.reset(token)


def tell(
    kind: Kind, describe: Callable[[], tuple[str, Mapping[str, Any]]]
) -> Generator[Event, Any, None]:
    """Report an event.

    Args:
        kind: The kind of the event.
        describe: Returns its message and data; called only if there is a listener or a
            `dspy.streamify`.
    """
    if _LISTENER.get() is not None or dspy.settings.send_stream is not None:
        message, data = describe()
        yield Event(kind, defuse_markup(message), data)


def tell_search(number: int, query: str) -> Generator[Event, Any, None]:
    """Report that a round searches."""
    data = {"number": number, "query": query}
    yield from tell("search", lambda: (f"step {number}: searching {query!r}", data))


def tell_passages(
    number: int, fresh: Labelled, retrieved: Sequence[str]
) -> Generator[Event, Any, None]:
    """Report the result of a search: the new passages by label, and the ids of all passages."""

    def describe() -> tuple[str, Mapping[str, Any]]:
        new = [{"label": label, **to_jsonable_python(p)} for label, p in fresh.items()]
        message = f"step {number}: {len(retrieved)} passages, {len(fresh)} new"
        return message, {"number": number, "new": new, "retrieved": list(retrieved)}

    yield from tell("passages", describe)
