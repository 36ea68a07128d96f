"""Load: how near programs come to bare DSPy calls against one endpoint.

The replies are made beforehand, with the index that is measured, so that the endpoint, a process of
its own, only looks them up. Bare DSPy sends the very prompts that the program sends.
"""

from __future__ import annotations

import asyncio
import gc
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import dspy
from endpoint import Behaviour
from endpoint_process import EndpointProcess, endpoint_process

import ga_dspy
from ga_dspy.eval.protocol import Protocol
from ga_dspy.eval.run import run
from ga_dspy.lm.adapters import PlainAdapter
from ga_dspy.programs import GraphAnchor
from ga_dspy.retrieval import Index
from ga_dspy.storage import parallel


class Measured(NamedTuple):
    """What a way of asking came to.

    Attributes:
        way: The index, and how the program was asked, or "bare".
        in_flight: Questions asked at once.
        latency: Seconds that the endpoint takes for a reply.
        rate: Questions a second.
        share: The rate, as a share of that of bare calls.
        cpu: CPU milliseconds a question, of this process.
        ratio: The same, as a multiple of what bare calls take.
        peak: The most calls in flight at once.
    """

    way: str
    in_flight: int
    latency: float
    rate: float
    share: float
    cpu: float
    ratio: float
    peak: int


class _Prepared(NamedTuple):
    question: str
    calls: tuple[tuple[dspy.Predict, dict[str, Any]], ...]
    reply: str


@dataclass(frozen=True)
class Load:
    """Questions, numbered so that none is asked twice, and what is called and replied for each."""

    index: Index
    prepared: Sequence[_Prepared]

    @classmethod
    def of(cls, questions: Sequence[str], index: Index) -> Load:
        """Have the embedded LM answer the questions, each after one search.

        A question takes one call, or two where the answer is asked for.
        """
        lm, prepared = ga_dspy.extractive_lm(), list[_Prepared]()
        for question in questions:
            with dspy.context(lm=lm, trace=[]):
                GraphAnchor(index, max_steps=1)(question=question)
                calls = tuple((call[0], dict(call[1])) for call in dspy.settings.trace)
            said = "\n".join(entry["outputs"][0] for entry in lm.history[-len(calls) :])
            reply = said.replace("[[ ## completed ## ]]", "")
            prepared.append(_Prepared(question, calls, reply))
        return cls(index, prepared)

    @property
    def replies(self) -> dict[str, str]:
        """The reply to each prompt that holds a question."""
        return {one.question: one.reply for one in self.prepared}

    def question(self, number: int) -> str:
        """The question of that number."""
        return f"{self.prepared[number % len(self.prepared)].question} ({number})"

    def bare(self, number: int) -> None:
        """The calls that the program makes for a question, and nothing else."""
        new = {"question": self.question(number), "query": self.question(number)}
        for predictor, inputs in self.prepared[number % len(self.prepared)].calls:
            predictor(**{name: new.get(name, value) for name, value in inputs.items()})

    def ways(
        self, questions: int, max_concurrent: int
    ) -> Iterator[tuple[str, Callable[[], object]]]:
        """Each way of asking, with its name; bare first."""
        program, numbers = GraphAnchor(self.index, max_steps=1), range(questions)
        asked = partial(self.in_tasks, program, questions, max_concurrent)
        yield "bare", partial(self.in_threads, self.bare, numbers, max_concurrent)
        yield (
            "threads",
            partial(self.in_threads, partial(self.ask, program), numbers, max_concurrent),
        )
        yield "asyncio", partial(_run, asked)
        yield "eval", partial(self.evaluate, program, questions, max_concurrent)

    def ask(self, program: GraphAnchor, number: int) -> None:
        """Ask the program a question."""
        program(question=self.question(number))

    def in_threads(
        self, ask: Callable[[int], None], numbers: Sequence[int], max_concurrent: int
    ) -> None:
        """Ask in threads."""
        for _ in parallel(ask, numbers, max_concurrent):
            pass

    async def in_tasks(self, program: GraphAnchor, questions: int, max_concurrent: int) -> None:
        """Ask in tasks, in an app that does as docs/load.md advises."""
        gc.freeze()
        free = asyncio.Semaphore(max_concurrent)

        async def ask(number: int) -> None:
            async with free:
                await program.acall(question=self.question(number))

        try:
            await asyncio.gather(*map(ask, range(questions)))
        finally:
            gc.unfreeze()

    def evaluate(self, program: GraphAnchor, questions: int, threads: int) -> None:
        """Ask the questions as an evaluation does, with its journal."""
        examples = [
            dspy.Example(id=str(n), question=self.question(n), answer="?").with_inputs("question")
            for n in range(questions)
        ]
        protocol = Protocol.of(
            examples, source="load", dataset="load", program="graph-anchor", lm="openai/local"
        )
        with tempfile.TemporaryDirectory() as folder:
            run(program, examples, out=Path(folder), protocol=protocol, threads=threads)


def _run(work: Callable[[], Any]) -> None:
    asyncio.run(work())


def measure(
    load: Load, *, in_flight: Sequence[int], latencies: Sequence[float], questions: int | None
) -> Iterator[Measured]:
    """Ask the questions in every way.

    Args:
        load: The questions.
        in_flight: How many questions are asked at once.
        latencies: How many seconds the endpoint takes.
        questions: How many are asked; eight for each in flight if None, so that the beginning and
            the end count little.
    """
    for latency in latencies:
        with endpoint_process(Behaviour(replies=load.replies, latency=latency)) as server:
            for max_concurrent in in_flight:
                bare: tuple[float, float] | None = None
                for way, ask in load.ways(questions or 8 * max_concurrent, max_concurrent):
                    rate, cpu = _timed(ask, server, questions or 8 * max_concurrent)
                    bare = bare or (rate, cpu)
                    peak = server.counts()["peak"]
                    share, ratio = rate / bare[0], cpu / bare[1]
                    name = f"{load.index.kind} {way}"
                    yield Measured(name, max_concurrent, latency, rate, share, cpu, ratio, peak)


class Held(NamedTuple):
    """The highest resident memory of this process after so many questions, in MB."""

    questions: int
    megabytes: float


def held(load: Load, questions: int, threads: int) -> Iterator[Held]:
    """Ask questions in threads; the memory held after each tenth of them."""
    ask, unit = (
        partial(load.ask, GraphAnchor(load.index, max_steps=1)),
        2**20 if sys.platform == "darwin" else 2**10,
    )
    with (
        endpoint_process(Behaviour(replies=load.replies)) as server,
        dspy.context(lm=server.lm(timeout=600)),
    ):
        for tenth in range(10):
            numbers = range(tenth * questions // 10, (tenth + 1) * questions // 10)
            load.in_threads(ask, numbers, threads)
            most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            yield Held(numbers.stop, most / unit)


def _timed(
    ask: Callable[[], object], server: EndpointProcess, questions: int
) -> tuple[float, float]:
    """Questions a second, and CPU milliseconds a question; each time over new connections."""
    with dspy.context(lm=server.lm(timeout=600), adapter=PlainAdapter()):
        server.counts()
        begun, cpu = time.perf_counter(), time.process_time()
        ask()
        seconds, cpu = time.perf_counter() - begun, time.process_time() - cpu
    return questions / seconds, 1000 * cpu / questions
