"""Concurrent questions: each is a task with a deadline, events and a record."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import time
import uuid
from collections.abc import AsyncIterator, Iterable, Sequence
from contextvars import copy_context
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import islice
from typing import Any

import dspy
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from pydantic import BaseModel, Field

from ga_dspy.errors import GaDspyError, InputError
from ga_dspy.graphrag import GraphIndex
from ga_dspy.passage import Passage, replace_invalid
from ga_dspy.programs import Event, GapLog, MultiHopProgram, watching
from ga_dspy.programs.conversation import Rewrite, Turn
from ga_dspy.programs.events import Listener
from ga_dspy.programs.prediction import as_json
from ga_dspy.retrieval import Index, Where
from ga_dspy.retrieval.read import Sources
from ga_dspy.serve.keys import ANYONE, Key
from ga_dspy.storage import in_thread
from ga_dspy.tracing import Tracer, run_id
from ga_dspy.viewer import graph_data

_LOG = logging.getLogger("ga_dspy")


@dataclass(frozen=True)
class Limits:
    """Limits of a service.

    Attributes:
        max_concurrent: Maximum number of concurrent questions, and of concurrent searches.
        per_minute: Maximum number of requests per minute for a key, or for an address if requests
            have no valid key; 0 for no limit.
        deadline: Timeout of a request in seconds.
        body: Maximum size of a request in bytes.
        records: Number of answers kept for `/runs/{id}`.
        upload: Maximum size of a request that adds documents, in bytes.
        files: Maximum number of files in such a request.
        passages: Maximum number of passages that such a request adds.
        uploads: Maximum number of concurrent requests that add, delete or list documents; further
            ones wait.
        arrival: Seconds within which a request must arrive completely.
        waiting: Maximum number of connections without a complete request.
    """

    max_concurrent: int = 256
    per_minute: int = 600
    deadline: float = 300.0
    body: int = 1_000_000
    records: int = 1_000
    arrival: float = 20.0
    waiting: int = 512
    upload: int = 50_000_000
    files: int = 20
    passages: int = 5_000
    uploads: int = 8


class Busy(GaDspyError):
    """Too many concurrent questions, searches or requests: retry in a moment."""

    def __init__(self, count: int, what: str) -> None:
        found = f"{count} {what} are in progress"
        super().__init__(found, expected="fewer", remedy="retry in a moment")


class About(BaseModel):
    """The corpus that a caller can ask about, and the LMs that answer."""

    corpus: str = Field("", description="Name of the files or of the index; empty if unknown.")
    passages: int | None = Field(None, description="Number that the caller sees, if known.")
    lms: dict[str, str] = Field(description="Name of the LM of each step.")
    examples: list[str] = Field([], description="Example questions.")
    can_write: bool = Field(False, description="Whether the caller may change documents.")


@dataclass(frozen=True, eq=False)
class Asking:
    """A question in progress.

    Attributes:
        id: The id of its record.
        task: The task that returns the prediction, which also has `id` and `question`.
        queue: The events that were not read yet; None marks the end.
    """

    id: str
    task: asyncio.Task[dspy.Prediction]
    queue: asyncio.Queue[Event | None]

    async def events(self) -> AsyncIterator[Event]:
        """Yield events as they happen, then the event "answer" with the record as its data.

        If the reader is cancelled, so is the question. If the question fails, its error is raised.
        """
        try:
            while event := await self.queue.get():
                if event.kind != "answer":
                    yield event
            yield Event("answer", "", as_json(await self.task))
        finally:
            self.task.cancel()


class Service:
    """A program that answers many clients concurrently.

    It uses the LM, settings and patience of the context in which it is created.

    Args:
        program: The program. The service reads only what the program may read (`program.only`); the
            conditions of a caller's key and of a request restrict this further.
        limits: The limits.
        tracer: Traces the questions (`ga_dspy.track`) and logs feedback on answers.
        gaps: Logs the questions whose evidence is missing; if this fails, the error is logged and
            the answer stays the same.
        examples: Example questions; by default made from titles of the documents.

    Attributes:
        lms: Names of the LMs by step.
        records: The last answers as JSON, by the caller's scope and the id.
        registry: Metrics for Prometheus.
    """

    def __init__(
        self, program: MultiHopProgram, limits: Limits | None = None,
        tracer: Tracer | None = None, *,
        gaps: GapLog | None = None, examples: Sequence[str] = (),
    ) -> None:  # fmt: skip
        self.gaps, self.examples = gaps, list(examples)
        self.program, self.rewrite = program, Rewrite()
        self.limits, self._context = limits or Limits(), copy_context()
        self.lms, self.records = program.lm_names(), dict[tuple[str, str], bytes]()
        self._programs = dict[str, MultiHopProgram]()
        self._tasks, self._searching = set[asyncio.Task[Any]](), 0
        self.registry = to = CollectorRegistry()
        self._seconds = Histogram(
            "ga_dspy_question_seconds", "Duration of questions, by outcome.", ["outcome"],
            buckets=(0.1, 0.3, 1, 3, 10, 30, 100, 300), registry=to,
        )  # fmt: skip
        self._tokens = Counter("ga_dspy_tokens", "Tokens of answered questions.", registry=to)
        going = Gauge("ga_dspy_questions_in_progress", "Questions in progress.", registry=to)
        going.set_function(self._tasks.__len__)
        self.tracer = tracer
        if tracer is not None:
            traces = Gauge("ga_dspy_traces", "Traces and feedback.", ["outcome"], registry=to)
            for outcome in ("sent", "failed", "dropped"):
                traces.labels(outcome).set_function(partial(tracer.counts.__getitem__, outcome))
        self._graph_lock, self._graph_json = asyncio.Lock(), lru_cache(maxsize=4)(_graph_json)

    def program_for(self, caller: Key) -> MultiHopProgram:
        """Return the program restricted to what a caller may see.

        Raises:
            InputError: A condition is malformed or not supported, a condition that the program's
                index requires is missing, or there are labels without a graph.
        """
        program = self._programs.get(caller.scope)
        if program is None:
            program = self._programs[caller.scope] = caller.narrow(self.program)
            program.check_ready()
        if caller.where and isinstance(program.retriever, Index):
            try:
                len(program.retriever)
            except InputError:  # no visible passage has the field; others may, which is secret
                return self.program.with_retrievers(partial(_empty_view, where=caller.where))
        return program

    def ask(
        self, question: str, where: Where | None = None, turns: Sequence[Turn] = (),
        caller: Key = ANYONE,
    ) -> Asking:  # fmt: skip
        """Start a question, which continues even if nobody reads its events.

        Args:
            question: The question.
            where: Conditions on the metadata of passages, as in `program.only`.
            turns: Earlier turns of the conversation.
            caller: The key of the caller.

        Raises:
            Busy: Too many questions are in progress.
        """
        if len(self._tasks) >= self.limits.max_concurrent:
            raise Busy(len(self._tasks), "questions")
        program = self.program_for(caller)
        loop, id, begun = asyncio.get_running_loop(), uuid.uuid4().hex, time.monotonic()
        queue = asyncio.Queue[Event | None]()

        def put(event: Event) -> None:
            loop.call_soon_threadsafe(queue.put_nowait, event)

        def count(task: asyncio.Task[dspy.Prediction]) -> None:
            self._tasks.discard(task)
            end = "answered"
            if task.cancelled():
                end = "given up"
            elif error := task.exception():
                end = type(error).__name__
            self._seconds.labels(end).observe(time.monotonic() - begun)
            queue.put_nowait(None)

        key = (caller.scope, id)
        answering = self._answer(key, program, replace_invalid(question), where, turns, put)
        task = loop.create_task(answering, context=self._context.copy())
        self._tasks.add(task)
        task.add_done_callback(count)
        return Asking(id, task, queue)

    async def search(
        self, query: str, k: int, where: Where | None = None, caller: Key = ANYONE
    ) -> list[Passage]:
        """Return passages for a query, best first.

        Raises:
            Busy: Too many searches are in progress.
            InputError: A condition is malformed, or the retriever does not support conditions.
            TimeoutError: The search took longer than the deadline.
        """
        if self._searching >= self.limits.max_concurrent:
            raise Busy(self._searching, "searches")
        self._searching += 1
        try:
            async with asyncio.timeout(self.limits.deadline):
                corpus = await _restricted(self.program_for(caller).retriever, where)
                search = corpus.acall(query, k)
                return list(await asyncio.create_task(search, context=self._context.copy()))
        finally:
            self._searching -= 1

    def about(self, caller: Key = ANYONE) -> About:
        """Describe the corpus that a caller can ask about, and the LMs that answer.

        A caller with conditions or labels does not get the name of the corpus, and gets examples
        only from the passages that it sees.
        """
        corpus = self.program_for(caller).retriever
        index = corpus.index if isinstance(corpus, GraphIndex) else corpus
        if not isinstance(index, Index):
            return About(lms=self.lms, examples=self.examples)
        is_visible, passages = index.__contains__, len(index)
        if isinstance(corpus, GraphIndex):
            is_visible = corpus.graph.visible(corpus.access).readable
            passages = sum(map(is_visible, index.ids))
        examples = self.examples if passages and not caller.scope else []
        return About(
            corpus="" if caller.scope else _corpus_name(index),
            passages=passages,
            lms=self.lms,
            examples=examples or make_examples(one for one in index if is_visible(one.id)),
            can_write="write" in caller.rights and self.writable is not None,
        )

    @property
    def writable(self) -> Index | None:
        """The index that callers may change, or None.

        The index of a graph may be changed only if every caller sees the whole graph. With access
        labels, or with conditions of keys or of the server, nobody knows who may see a new
        document.
        """
        retriever = self.program.retriever
        if isinstance(retriever, GraphIndex):
            if retriever.scope or retriever.graph.labels_in_use or any(self._programs):
                return None
            retriever = retriever.index
        return retriever.whole if isinstance(retriever, Index) else None

    def update_graph(self) -> None:
        """Bring the graph, if any, up to date with its index; the service's LM reads.

        Raises:
            GaDspyError: As `GraphIndex.update`.
        """
        if isinstance(self.program.retriever, GraphIndex):
            self._context.copy().run(self.program.retriever.update)
            self._graph_json.cache_clear()

    @property
    def has_graph(self) -> bool:
        """Whether the program retrieves from a graph."""
        return isinstance(self.program.retriever, GraphIndex)

    async def graph(self, caller: Key = ANYONE) -> bytes:
        """Return the graph that a caller may see, as JSON for its page.

        Raises:
            TimeoutError: It took longer than the deadline.
        """
        corpus = self.program_for(caller).retriever
        async with asyncio.timeout(self.limits.deadline), self._graph_lock:
            return await in_thread(lambda: self._graph_json(corpus, corpus.index.fingerprint))

    def rate(
        self, key: tuple[str, str], *, right: bool, comment: str | None = None,
        expected: str | None = None,
    ) -> None:  # fmt: skip
        """Store feedback in a record, in place of earlier feedback, and log it on the trace.

        Args:
            key: The key in `records`.
            right: Whether the answer is right.
            comment: The reason.
            expected: The right answer.
        """
        feedback: dict[str, Any] = {"right": right, "comment": comment, "expected": expected}
        record = json.loads(self.records[key])
        self.records[key] = json.dumps({**record, "feedback": feedback}).encode()
        if self.tracer is not None:
            self.tracer.feedback(key[1], **feedback)

    async def _answer(
        self, key: tuple[str, str], program: MultiHopProgram, question: str,
        where: Where | None, turns: Sequence[Turn], listener: Listener,
    ) -> dspy.Prediction:  # fmt: skip
        with watching(listener), run_id(key[1]):
            async with asyncio.timeout(self.limits.deadline):
                program = await _restricted(program, where)
                asked = await self.rewrite.acall(question=question, turns=turns)
                found = await program.acall(question=asked.question)
        if self.gaps is not None:
            try:
                await in_thread(self.gaps.add, found)
            except GaDspyError as error:
                _LOG.warning("cannot write the gap log: %s", error)
        found.id, found.question, found.usage = key[1], asked.question, asked.usage | found.usage
        found.calls, found.tokens = asked.calls + found.calls, asked.tokens + found.tokens
        self._tokens.inc(found.tokens)
        self.records[key] = json.dumps(as_json(found)).encode()
        if len(self.records) > self.limits.records:
            del self.records[next(iter(self.records))]
        return found


async def _restricted(corpus: Any, where: Where | None) -> Any:
    """Return a program or retriever restricted by conditions; for a graph this may take seconds."""
    return corpus if where is None else await in_thread(corpus.only, where)


def make_examples(passages: Iterable[Passage]) -> list[str]:
    """Return up to three questions about titles that other passages mention.

    >>> make_examples([
    ...     Passage(id="1", title="Ada Berg", text="Ada Berg built the Halden Bridge."),
    ...     Passage(id="2", title="Halden Bridge", text="It crosses the river Tista."),
    ...     Passage(id="3", title="Tista", text="A river."),
    ... ])
    ['What connects Ada Berg and Tista?']
    """
    texts = {one.title: one.text for one in islice(passages, 200) if 3 < len(one.title) < 60}
    titles = sorted(texts, key=len, reverse=True)
    mention = re.compile(rf"\b(?:{'|'.join(map(re.escape, titles))})\b")
    links = {title: {*mention.findall(text)} - {title} for title, text in texts.items()}
    made, used = list[str](), set[str]()
    for first, linked in links.items():
        for via in sorted(linked):
            for last in sorted(links[via] - linked - {first}):
                if used.isdisjoint((first, via, last)):
                    used |= {first, via, last}
                    made.append(f"What connects {first} and {last}?")
    for title in links:
        if links[title] and title != title.lower() and title not in used:  # not a file's name
            made.append(f"What is {title}?")
    return made[:3]


def _corpus_name(index: Index) -> str:
    """Return the name of the one file or folder that was indexed, else of the index."""
    if index.path is None:
        return ""
    paths = Sources.of(index.path).paths
    return (index.path / paths[0] if len(paths) == 1 else index.path).resolve().name


def _empty_view(retriever: Any, where: Where) -> Any:
    """Return an empty view of an index, for which conditions on unknown fields are valid."""
    empty = retriever.whole.without_passages() if isinstance(retriever, Index) else retriever
    return empty.only(where)


def _graph_json(corpus: GraphIndex, fingerprint: str) -> bytes:
    """Return the data of a graph's page; the fingerprint of the passages is a cache key."""
    data = graph_data(corpus.graph, corpus.index, access=corpus.access, topics=corpus.topics)
    return json.dumps(data).encode()
