"""Tracing: what it costs a question, and whether a busy server keeps its memory and every trace."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sqlite3
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import dspy
import httpx
from endpoint import Behaviour
from endpoint_process import endpoint_process
from measure_load import Load

import ga_dspy
from ga_dspy.programs import GraphAnchor
from ga_dspy.programs.loop import OBSERVERS
from ga_dspy.retrieval import Index

COMMAND = "import sys; from ga_dspy.cli import main; sys.argv[0] = 'ga-dspy'; main()"


class Overhead(NamedTuple):
    """What tracing costs a question.

    Attributes:
        lm: The LM.
        questions: How many were asked, each with and without tracing in turn.
        seconds: The median without tracing.
        traced: The median with it.
        ratio: The median of the ratios of one question.
        cpu: CPU milliseconds of this process without tracing.
        cpu_traced: The same with it, until MLflow's process has the trace.
    """

    lm: str
    questions: int
    seconds: float
    traced: float
    ratio: float
    cpu: float
    cpu_traced: float


def overhead(
    questions: Sequence[str], index: Index, work: Path, latency: float
) -> Iterator[Overhead]:
    """Ask with and without tracing: the embedded LM, then an endpoint that takes a while."""
    load = Load.of(questions, index)
    yield _compare("embedded", load, ga_dspy.extractive_lm(), work)
    with endpoint_process(Behaviour(replies=load.replies, latency=latency)) as server:
        yield _compare(f"{latency:g} s a call", load, server.lm(), work)


def _compare(name: str, load: Load, lm: dspy.LM, work: Path) -> Overhead:
    program, rows = GraphAnchor(load.index, max_steps=1), list[list[float]]()
    with ga_dspy.track(f"sqlite:///{work / 'mlflow.db'}") as tracer, dspy.context(lm=lm):

        def ask(number: int) -> tuple[float, float]:
            sent, begun, cpu = tracer.counts.total(), time.perf_counter(), time.process_time()
            load.ask(program, number)
            seconds = time.perf_counter() - begun
            while OBSERVERS and tracer.counts.total() == sent:
                time.sleep(0.2)
            return seconds, 1000 * (time.process_time() - cpu)

        ask(0)  # starts MLflow's process
        for number in range(len(load.prepared)):
            found = dict[bool, tuple[float, float]]()
            for is_traced in (False, True) if number % 2 else (True, False):
                OBSERVERS[:] = [tracer.observe] if is_traced else []
                found[is_traced] = ask(number)
            rows.append([*found[False], *found[True]])
        OBSERVERS[:] = [tracer.observe]
    seconds, cpu, traced, cpu_traced = map(statistics.median, zip(*rows, strict=True))
    ratio = statistics.median(row[2] / row[0] for row in rows)
    return Overhead(name, len(rows), seconds, traced, ratio, cpu, cpu_traced)


# --- A server under load


class Soaked(NamedTuple):
    """A server after so many questions.

    Attributes:
        asked: Questions so far.
        answered: How many got an answer.
        traced: How many of these have a trace in MLflow now.
        lost: How many never got one; counted at the end.
        rate: Questions a second, since the row before.
        server: Resident memory of the server in MB.
        logger: The same of its process that calls MLflow.
    """

    asked: int
    answered: int
    traced: int
    lost: str
    rate: float
    server: float
    logger: float


def soak(
    questions: Sequence[str], index: Path, work: Path, *, asks: int, clients: int, latency: float,
    rows: int = 5,
) -> Iterator[Soaked]:  # fmt: skip
    """Ask `ga-dspy serve --track` over HTTP; then end it by SIGTERM in the middle of more.

    Args:
        questions: Asked in turn, numbered, so that none is asked twice.
        index: An index of their passages.
        work: An empty folder.
        asks: How many are asked.
        clients: How many at once.
        latency: Seconds that the LM takes for a reply.
        rows: How often to look.
    """
    load = Load.of(questions, Index.open(index))
    database, ports = work / "mlflow.db", (_free_port(), _free_port())
    mlflow, service = (f"http://127.0.0.1:{port}" for port in ports)
    with ExitStack() as stack:
        lm = stack.enter_context(endpoint_process(Behaviour(replies=load.replies, latency=latency)))
        stack.enter_context(_running(
            [sys.executable, "-m", "mlflow", "server", "--backend-store-uri",
             f"sqlite:///{database}", "--artifacts-destination", str(work / "files"),
             "--port", str(ports[0]), "--workers", "1"], f"{mlflow}/health", work / "mlflow.log",
        ))  # fmt: skip
        server = stack.enter_context(_running(
            [sys.executable, "-c", COMMAND, "serve", "--index", str(index), "--lm", "openai/local",
             "--api-base", lm.url, "--set", "max_steps=1", "--track", mlflow, "--per-minute", "0",
             "--port", str(ports[1])], f"{service}/readyz", work / "serve.log",
        ))  # fmt: skip
        answered, asked = set[str](), 0
        for row in range(rows):
            begun, numbers = time.monotonic(), range(row * asks // rows, (row + 1) * asks // rows)
            asked += len(numbers)
            answered |= asyncio.run(_ask(service, map(load.question, numbers), clients))
            rate = len(numbers) / (time.monotonic() - begun)
            yield _look(server, database, asked, answered, rate, "")
        _settle(database, len(answered))
        traced = _traced(database)
        yield _look(server, database, asked, answered, 0.0, f"{len(answered - traced)}")
        numbers = range(asks, asks + 4 * clients)
        more = asyncio.run(_ask(service, map(load.question, numbers), clients, lambda done: (
            server.send_signal(signal.SIGTERM) if done == clients else None
        )))  # fmt: skip
        asked, answered = asked + len(numbers), answered | more
        code = server.wait()
        lost = f"{len(answered - _traced(database))}, exit code {code}"
        yield Soaked(asked, len(answered), len(_traced(database)), lost, 0.0, 0.0, 0.0)


@contextmanager
def _running(command: Sequence[str], ready: str, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a server until the block ends; its address answers when the block begins."""
    # MLflow's server hangs where LiteLLM cannot fetch its list of prices.
    own = {**os.environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    with (
        log.open("wb") as out,
        subprocess.Popen(command, stdout=out, stderr=out, env=own) as process,
    ):
        try:
            while process.poll() is None:
                with suppress(httpx.HTTPError):
                    if httpx.get(ready).status_code == 200:
                        break
                time.sleep(0.2)
            yield process
        finally:
            process.terminate()


async def _ask(
    service: str, questions: Iterator[str], clients: int, answered: Callable[[int], object] = id
) -> set[str]:
    """Ask; return the ids of the answers that came completely."""
    ids = set[str]()

    async def client(http: httpx.AsyncClient) -> None:
        for question in questions:
            with suppress(httpx.HTTPError):
                reply = await http.post("/ask", json={"question": question})
                if reply.status_code == 200:
                    ids.add(reply.json()["id"])
                    answered(len(ids))

    limits = httpx.Limits(max_connections=clients)
    async with httpx.AsyncClient(base_url=service, timeout=300, limits=limits) as http:
        await asyncio.gather(*(client(http) for _ in range(clients)))
    return ids


def _look(
    server: subprocess.Popen[bytes], database: Path, asked: int, answered: set[str], rate: float,
    lost: str,
) -> Soaked:  # fmt: skip
    tasks = Path(f"/proc/{server.pid}/task").glob("*/children")
    children = [int(pid) for task in tasks for pid in task.read_text().split()]
    sizes = [_resident(server.pid), max(map(_resident, children), default=0.0)]
    return Soaked(asked, len(answered), len(_traced(database)), lost, rate, *sizes)


def _resident(process: int) -> float:
    status = Path(f"/proc/{process}/status").read_text().split()
    return int(status[status.index("VmRSS:") + 1]) / 1024


def _traced(database: Path) -> set[str]:
    """Return the ids of the answers with a trace and its spans."""
    sql = (
        "SELECT DISTINCT value FROM trace_tags JOIN spans ON trace_id = request_id "
        "WHERE key = 'ga_dspy.run'"
    )
    with closing(sqlite3.connect(f"file:{database}?mode=ro", timeout=60, uri=True)) as opened:
        return {value for (value,) in opened.execute(sql)}


def _settle(database: Path, expected: int) -> None:
    """Wait until all traces are there, or none has come for a minute."""
    found, changed = len(_traced(database)), time.monotonic()
    while found < expected and time.monotonic() < changed + 60:
        time.sleep(1)
        if (now := len(_traced(database))) > found:
            found, changed = now, time.monotonic()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: Any = probe.getsockname()[1]
        return int(port)
