"""One algorithm, run by threads or by asyncio.

A program is a generator that yields what it needs from the outside, a search or an LM call, and
is sent the result (or thrown the error). The two drivers below carry it out and are the only
places that know whether the world is synchronous.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any, TypeVar

import dspy

from ga_dspy.passage import Passage
from ga_dspy.programs.meter import Meter
from ga_dspy.retrieval import Retriever

Answered = TypeVar("Answered")


@dataclass(frozen=True)
class Search:
    """Passages for a query."""

    retriever: Retriever
    query: str
    k: int

    def run(self) -> list[Passage]:
        """Search now."""
        return self.retriever(self.query, self.k)

    async def arun(self) -> list[Passage]:
        """Search in a worker thread, so that the event loop goes on."""
        return await asyncio.to_thread(self.run)


@dataclass(frozen=True)
class Ask:
    """A predictor's call for a step; with `rollout` above 0 a fresh reply, not a cached one."""

    step: str
    predictor: dspy.Predict
    inputs: dict[str, Any]
    meter: Meter
    rollout: int = 0
    config: dict[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        fresh = {"rollout_id": self.rollout, "temperature": 1.0} if self.rollout else {}
        object.__setattr__(self, "config", fresh)

    def run(self) -> dspy.Prediction:
        """Call the predictor."""
        with self.meter.attached(self.step):
            return self.predictor(**self.inputs, config=self.config)

    async def arun(self) -> dspy.Prediction:
        """Call the predictor from a coroutine."""
        with self.meter.attached(self.step):
            return await self.predictor.acall(**self.inputs, config=self.config)


Request = Search | Ask
Conversation = Generator[Request, Any, Answered]


def drive(conversation: Conversation[Answered]) -> Answered:
    """Carry a conversation to its end in this thread."""
    try:
        request = next(conversation)
        while True:
            try:
                result = request.run()
            except Exception as error:  # noqa: BLE001 - handed to the program, which may know it
                request = conversation.throw(error)
            else:
                request = conversation.send(result)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


async def adrive(conversation: Conversation[Answered]) -> Answered:
    """Carry a conversation to its end in this event loop."""
    try:
        request = next(conversation)
        while True:
            try:
                result = await request.arun()
            except Exception as error:  # noqa: BLE001 - handed to the program, which may know it
                request = conversation.throw(error)
            else:
                request = conversation.send(result)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
