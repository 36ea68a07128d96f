"""Questions under way: each in a task of its own, with a deadline, its events and its record."""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import AsyncIterator, Sequence
from contextvars import copy_context
from dataclasses import dataclass
from typing import Any

import dspy
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from ga_dspy.errors import GaDspyError
from ga_dspy.passage import Passage, sound
from ga_dspy.programs import Event, MultiHopProgram, watching
from ga_dspy.programs.conversation import Rewrite, Turn
from ga_dspy.programs.events import Listener
from ga_dspy.programs.prediction import as_json
from ga_dspy.retrieval import Where


@dataclass(frozen=True)
class Limits:
    """What a service bears.

    Attributes:
        at_once: Questions under way at once, and searches; further ones are refused.
        per_minute: Requests a minute of a key, and of an address without a valid one; 0: any.
        deadline: Seconds until a request is given up.
        body: Bytes of a request.
        records: Answers kept for `/runs/{id}`.
        arrival: Seconds until a request must have arrived whole.
        waiting: Connections on which no request has arrived whole; the oldest are closed.
    """

    at_once: int = 256
    per_minute: int = 600
    deadline: float = 300.0
    body: int = 1_000_000
    records: int = 1_000
    arrival: float = 20.0
    waiting: int = 512


class Busy(GaDspyError):
    """As many questions, searches or requests are under way as may be: try again in a moment."""

    def __init__(self, count: int, what: str) -> None:
        found = f"{count} {what} are under way"
        super().__init__(found, expected="fewer", remedy="ask again in a moment")


@dataclass(frozen=True, eq=False)
class Asking:
    """A question under way.

    Attributes:
        id: The name of its record.
        task: Ends with the prediction, which has `id` and `question` too.
        queue: What happened and was not read yet; None at the end.
    """

    id: str
    task: asyncio.Task[dspy.Prediction]
    queue: asyncio.Queue[Event | None]

    async def events(self) -> AsyncIterator[Event]:
        """What happens, as it happens, and last the answer, whose data are the record.

        The question is given up where the reader is; where it fails, its error is raised.
        """
        try:
            while event := await self.queue.get():
                if event.kind != "answer":
                    yield event
            yield Event("answer", "", as_json(await self.task))
        finally:
            self.task.cancel()


class Service:
    """A program that answers many at once.

    What is in force where it is made holds for all of them: the LM, its settings, patience.

    Args:
        program: The program. What it may read (`program.only`) is what the service may read; the
            conditions of a request narrow that further.
        limits: How much at once, how long, how many records are kept.

    Raises:
        InputError: A condition that the program's index requires is missing.

    Attributes:
        lms: Names of the LMs, by the step that asks them.
        records: The last answers as JSON, by id.
        registry: Counts for Prometheus.
    """

    def __init__(self, program: MultiHopProgram, limits: Limits | None = None) -> None:
        program.check_ready()
        self.program, self.rewrite = program, Rewrite()
        self.limits, self._context = limits or Limits(), copy_context()
        self.lms, self.records = program.lm_names(), dict[str, bytes]()
        self.registry = to = CollectorRegistry()
        self._seconds = Histogram(
            "ga_dspy_question_seconds", "Time of questions, by how they ended.", ["end"],
            buckets=(0.1, 0.3, 1, 3, 10, 30, 100, 300), registry=to,
        )  # fmt: skip
        self._tokens = Counter("ga_dspy_tokens", "Tokens of answered questions.", registry=to)
        self._going = Gauge("ga_dspy_questions_under_way", "Questions under way.", registry=to)
        self._under_way = set[asyncio.Task[Any]]()
        self._searching = 0

    def ask(self, question: str, where: Where | None = None, turns: Sequence[Turn] = ()) -> Asking:
        """Begin a question; it goes on whether its events are read or not.

        Args:
            question: The question.
            where: Conditions on the metadata of passages, as of `program.only`.
            turns: What was said before.

        Raises:
            Busy: There are too many under way.
            InputError: A condition is malformed, or the retriever cannot keep any.
        """
        if len(self._under_way) >= self.limits.at_once:
            raise Busy(len(self._under_way), "questions")
        program = self.program if where is None else self.program.only(where)
        loop, id, begun = asyncio.get_running_loop(), uuid.uuid4().hex, time.monotonic()
        queue = asyncio.Queue[Event | None]()

        def tell(event: Event) -> None:
            loop.call_soon_threadsafe(queue.put_nowait, event)

        def count(task: asyncio.Task[dspy.Prediction]) -> None:
            self._under_way.discard(task)
            self._going.dec()
            error = None if task.cancelled() else task.exception()
            end = "given up" if task.cancelled() else type(error).__name__ if error else "answered"
            self._seconds.labels(end).observe(time.monotonic() - begun)
            queue.put_nowait(None)

        working = self._answer(id, program, sound(question), turns, tell)
        task = loop.create_task(working, context=self._context.copy())
        self._under_way.add(task)
        self._going.inc()
        task.add_done_callback(count)
        return Asking(id, task, queue)

    async def search(self, query: str, k: int, where: Where | None = None) -> list[Passage]:
        """Passages for a query, best first.

        Raises:
            Busy: There are too many searches under way.
            InputError: A condition is malformed, or the retriever cannot keep any.
            TimeoutError: It took longer than the deadline.
        """
        if self._searching >= self.limits.at_once:
            raise Busy(self._searching, "searches")
        corpus = self.program.retriever
        corpus = corpus if where is None else corpus.only(where)
        self._searching += 1
        try:
            async with asyncio.timeout(self.limits.deadline):
                searching = corpus.acall(query, k)
                found: list[Passage] = await asyncio.create_task(
                    searching, context=self._context.copy()
                )
                return found
        finally:
            self._searching -= 1

    async def _answer(
        self, id: str, program: MultiHopProgram, question: str, turns: Sequence[Turn],
        tell: Listener,
    ) -> dspy.Prediction:  # fmt: skip
        with watching(tell):
            async with asyncio.timeout(self.limits.deadline):
                whole = await self.rewrite.acall(question=question, turns=turns)
                found = await program.acall(question=whole.question)
        found.id, found.question, found.usage = id, whole.question, {**whole.usage, **found.usage}
        found.calls, found.tokens = whole.calls + found.calls, whole.tokens + found.tokens
        self._tokens.inc(found.tokens)
        self.records[id] = json.dumps(as_json(found)).encode()
        if len(self.records) > self.limits.records:
            del self.records[next(iter(self.records))]
        return found
