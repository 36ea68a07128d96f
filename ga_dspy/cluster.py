"""Run questions, passages and embeddings on the machines of a Ray cluster.

Programs search, ground and score on the workers. The driver process makes every LM call, with its
key, cache, retries, budget and journals. A run on many machines therefore behaves like a run on
one: a worker that dies loses no finished call, and no key leaves the driver. The driver can make a
few hundred calls per second.
"""

from __future__ import annotations

import asyncio
import contextvars
import json
import math
import os
import pickle
import socket
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import count
from typing import Any, TypeVar
from uuid import uuid4

import dspy
from dspy.utils import BaseCallback

from ga_dspy.errors import InputError, RunAborted, require
from ga_dspy.lm.patience import METER, PATIENCE
from ga_dspy.lm.store import BudgetExceeded, recorded
from ga_dspy.lm.wrapper import LMWrapper, Replayed, unwrapped
from ga_dspy.storage import parallel

Item = TypeVar("Item")
Result = TypeVar("Result")

_CLUSTER = "ga_dspy_cluster"
_WORKER_SETTINGS = ("adapter", "track_usage", PATIENCE, "ga_dspy_where")
"""Settings of DSPy's context that also apply on the workers."""

_CHECK_SECONDS = 120.0
"""Seconds without a result after which the run is aborted if the cluster has no machine left."""


@contextmanager
def on_ray(address: str) -> Iterator[None]:
    """Run the work inside this block on a Ray cluster.

    Every machine needs the same version of this library, and the files of an index or a graph at
    the same path.

    Args:
        address: The address of the cluster, "ray://head:10001" or "head:6379". "auto" connects to
            the cluster on this machine, or starts one on its cores.

    Raises:
        InputError: There is no cluster at this address.
        MissingExtra: Ray is not installed.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    ray, options = require("ray", "cluster"), {"log_to_driver": False, "logging_level": "ERROR"}
    host, _, port = address.removeprefix("ray://").rpartition(":")
    try:
        if host and port.isdecimal():
            # Fails at once; Ray would retry for minutes.
            socket.create_connection((host, int(port)), timeout=10).close()
        try:
            ray.init(address, **options)
        except ConnectionError:
            if address != "auto":
                raise
            ray.init("local", include_dashboard=False, **options)
    except (OSError, ValueError, RuntimeError) as error:
        raise InputError(
            f"no Ray cluster at {address} ({error})",
            expected="the address of a running cluster, or auto",
            remedy="start one with `ray start --head`, or pass --ray auto",
        ) from error
    try:
        with dspy.context(**{_CLUSTER: ray}):
            yield
    finally:
        ray.shutdown()


def on_cluster() -> bool:
    """Return whether the current context runs on a cluster."""
    return dspy.settings.get(_CLUSTER) is not None


def map_parallel(
    work: Callable[[Item], Result],
    items: Sequence[Item],
    threads: int,
    *,
    lm_for: Callable[[Item], Any] = lambda item: dspy.settings.lm,
) -> Generator[Result, None, None]:
    """Call `work` for each item, in threads or on the cluster, and yield results as they finish.

    An error in `work` is raised here. Closing the generator stops the remaining items. If a worker
    dies, its items run again on another one.

    Args:
        work: The function to call; it gets its LM from `dspy.settings.lm`. On a cluster it must be
            picklable.
        items: The arguments, one for each call.
        threads: Number of items that run in parallel.
        lm_for: Returns the LM for an item; the LM stays in this process.

    Raises:
        InputError: `threads` is below 1, or the work cannot be pickled.
        RunAborted: The cluster has no machine left.
    """
    if threads < 1:
        raise InputError(f"threads is {threads}", expected="1 or more", remedy="pass threads=1")
    ray = dspy.settings.get(_CLUSTER)
    if ray is not None and items:
        yield from _ClusterRun(ray, work, items, threads, lm_for).results()
        return

    def run(item: Item) -> Result:
        # A trace per item: threads would mix a shared one, and a long run would grow it.
        trace: Any = None if dspy.settings.trace is None else []
        with dspy.context(lm=lm_for(item), trace=trace):
            return work(item)

    yield from parallel(run, items, threads)


# --- The driver: sends items to workers, and makes their LM calls.


class _ClusterRun:
    """One call of `map_parallel` on a cluster."""

    def __init__(
        self, ray: Any, work: Any, items: Sequence[Any], threads: int, lm_for: Callable[[Any], Any]
    ) -> None:
        self.ray, self.items, self.threads, self.lm_for = ray, items, threads, lm_for
        self.lms: dict[tuple[int, str], Any] = {}
        on_driver = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
            ray.get_runtime_context().get_node_id(), soft=False
        )
        self.calls = ray.remote(_Calls).options(
            num_cpus=0, max_concurrency=10_000, scheduling_strategy=on_driver
        ).remote()  # fmt: skip
        settings = {key: dspy.settings.get(key) for key in _WORKER_SETTINGS if key in dspy.settings}
        try:
            self.shared = [ray.put((work, _portable(dspy.settings.lm), settings))]
        except (TypeError, AttributeError, ValueError) as error:
            raise InputError(
                f"the work cannot be pickled for other machines ({error})",
                expected="a program, retriever and settings that can be pickled",
                remedy="store the index in a folder, or remove --ray",
            ) from error

    def results(self) -> Generator[Any, None, None]:
        """Run the items; yield results as they finish.

        If a worker or its machine dies, Ray restarts the worker and its items elsewhere.
        """
        ray = self.ray
        size = max(1, min(self.threads, int(ray.cluster_resources().get("CPU", 1))))
        slots = math.ceil(self.threads / size)
        actor = ray.remote(_Worker).options(
            max_concurrency=slots, max_restarts=-1, max_task_retries=-1,
            scheduling_strategy="SPREAD",
        )  # fmt: skip
        workers = [actor.remote(self.shared, self.calls) for _ in range(size)]
        pool = ray.util.ActorPool((workers * slots)[: self.threads])
        stop, context = threading.Event(), contextvars.copy_context()
        relay = threading.Thread(target=context.run, args=(self._relay, stop), daemon=True)
        relay.start()
        try:
            for numbered in enumerate(self.items):
                pool.submit(lambda worker, numbered: worker.do.remote(*numbered), numbered)
            while pool.has_next():
                try:
                    yield pool.get_next_unordered(timeout=_CHECK_SECONDS)
                except ray.exceptions.RayTaskError as error:
                    raise error.cause from error
                except (TimeoutError, ray.exceptions.RayError) as error:
                    if isinstance(error, TimeoutError) and ray.cluster_resources().get("CPU"):
                        continue
                    raise RunAborted(
                        f"no machine is left, or no worker starts ({error})",
                        expected="at least one machine with a free CPU",
                        remedy="check `ray status`, then run the command again: it resumes",
                    ) from error
        finally:
            stop.set()
            for remote in (*workers, self.calls):
                with suppress(Exception):
                    ray.kill(remote)
            relay.join(5)

    def _relay(self, stop: threading.Event) -> None:
        """Make the LM calls that workers request, until `stop` is set."""
        with ThreadPoolExecutor(self.threads, thread_name_prefix="ga-dspy-calls") as pool:
            while not stop.is_set():
                with suppress(self.ray.exceptions.RayError):
                    for number, *request in self.ray.get(self.calls.take.remote()):
                        context = contextvars.copy_context()
                        pool.submit(context.run, self._answer, number, *request)

    def _answer(
        self, number: int, attempt: tuple[int, str], step: str, prompt: Any, messages: Any,
        settings: Any,
    ) -> None:  # fmt: skip
        tally = _Tally(step)
        try:
            # A restarted item gets a new LM, which counts its calls from the start.
            lm = self.lms.setdefault(attempt, self.lm_for(self.items[attempt[0]]))
            callbacks = [*(dspy.settings.callbacks or []), tally]
            with dspy.context(**{METER: tally}, callbacks=callbacks):
                _, result = recorded(lambda: lm(prompt, messages=messages, **settings))
            answer = json.loads(json.dumps(result.dump(), default=vars))
        except (Exception, BudgetExceeded) as error:  # noqa: BLE001 - raised again in the worker
            answer = _picklable(error)
        self.calls.answer.remote(number, (answer, tally.failed, tally.waited))


class _Tally(BaseCallback):
    """Counts the failed attempts of a call, and the seconds spent waiting for the endpoint.

    It stands in for the program's meter, which is on a worker.
    """

    def __init__(self, step: str) -> None:
        self.step, self.failed, self.waited = step, 0, 0.0

    def on_lm_end(self, call_id: str, outputs: Any, exception: BaseException | None = None) -> None:
        """Count a failed attempt."""
        self.failed += exception is not None


def _picklable(error: BaseException) -> BaseException:
    """Return the error, or another one with its message if it cannot be pickled."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # noqa: BLE001 - unpickling may raise anything
        return RunAborted(str(error)) if isinstance(error, RunAborted) else RuntimeError(str(error))
    return error


def _portable(lm: Any) -> Any:
    """Return a copy of an LM without its keys, history and callbacks."""
    lm = unwrapped(lm)
    if not isinstance(lm, dspy.BaseLM):
        return lm
    copy = lm.copy()
    copy.kwargs = {k: v for k, v in copy.kwargs.items() if not k.startswith("api_")}
    copy.history, copy.callbacks = [], []
    return copy


# --- The workers.


class _Calls:
    """A queue of LM calls: workers add requests, and the driver takes and answers them."""

    def __init__(self) -> None:
        self.requests: asyncio.Queue[Any] = asyncio.Queue()
        self.replies: dict[int, asyncio.Future[Any]] = {}
        self.numbers = count()

    async def ask(self, *request: Any) -> Any:
        number, reply = next(self.numbers), asyncio.get_running_loop().create_future()
        self.replies[number] = reply
        await self.requests.put((number, *request))
        return await reply

    async def take(self) -> list[Any]:
        """Return all waiting requests; wait up to a second for the first one."""
        taken = list[Any]()
        with suppress(TimeoutError):
            taken.append(await asyncio.wait_for(self.requests.get(), 1))
        while not self.requests.empty():
            taken.append(self.requests.get_nowait())
        return taken

    async def answer(self, number: int, answer: Any) -> None:
        self.replies.pop(number).set_result(answer)


class _Worker:
    """An actor that runs several items in parallel."""

    def __init__(self, shared: Sequence[Any], calls: Any) -> None:
        # In a list: Ray warns if a worker that it may restart gets an object itself.
        self.work, self.lm, self.settings = require("ray", "cluster").get(shared[0])
        self.calls = calls

    def do(self, number: int, item: Any) -> Any:
        lm = self.lm
        if isinstance(lm, dspy.BaseLM):
            lm = _RelayedLM(lm, self.calls, (number, uuid4().hex))
        with dspy.context(**self.settings, lm=lm):
            return self.work(item)


class _RelayedLM(LMWrapper):
    """An LM whose calls are made by the driver."""

    def __init__(self, lm: dspy.BaseLM, calls: Any, attempt: tuple[int, str]) -> None:
        super().__init__(lm)
        self.calls, self.attempt = calls, attempt

    def with_lm(self, lm: dspy.BaseLM) -> _RelayedLM:
        return type(self)(lm, self.calls, self.attempt)

    def __call__(self, prompt: Any = None, *, messages: Any = None, **kwargs: Any) -> Any:
        """Call the LM."""
        ray, meter = require("ray", "cluster"), dspy.settings.get(METER)
        step = "" if meter is None else meter.step
        reply = self.calls.ask.remote(self.attempt, step, prompt, messages, kwargs)
        answer, failed, waited = ray.get(reply)
        if meter is not None:
            meter.add_failed(failed, waited)
        if isinstance(answer, BaseException):
            raise answer
        return Replayed(self.lm, answer)(prompt, messages=messages, **kwargs)

    async def acall(self, prompt: Any = None, *, messages: Any = None, **kwargs: Any) -> Any:
        """Call the LM from a coroutine, in a worker thread."""
        return await dspy.asyncify(self)(prompt, messages=messages, **kwargs)
