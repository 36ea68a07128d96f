"""The same work on many machines: questions, passages and vectors, spread over a Ray cluster.

Programs search, ground and score on the machines of the cluster. Every LM call is made by the
process that was started, with its key, cache, patience, caps and journals: what holds on one
machine holds on many, a machine that dies costs no finished call, and no key leaves. That process
makes a few hundred calls a second.
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
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import count
from typing import Any, TypeVar

import dspy
from dspy.utils.callback import BaseCallback

from ga_dspy.errors import InputError, RunAborted, require
from ga_dspy.patience import METER, PATIENCE, FrontLM, Replayed, record_of
from ga_dspy.storage import parallel

Item = TypeVar("Item")
Result = TypeVar("Result")

_CLUSTER = "ga_dspy_cluster"
_CARRIED = ("adapter", "track_usage", PATIENCE, "ga_dspy_where")
"""Settings of DSPy's context that hold on the other machines too."""

_NONE: Any = None

_PATIENCE_WITH_MACHINES = 120.0
"""Seconds without any machine at work after which the run is given up."""


@contextmanager
def on_ray(address: str) -> Iterator[None]:
    """Spread what is done inside this block over a Ray cluster.

    The machines of the cluster need the same version of this library, and the files of an index or
    a graph under the same path.

    Args:
        address: Of the cluster, "ray://head:10001" or "head:6379"; "auto" for the one that runs on
            this machine, or for one of its own cores.

    Raises:
        InputError: There is no cluster at this address.
        MissingExtra: Ray is not installed.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    ray, options = require("ray", "cluster"), {"log_to_driver": False, "logging_level": "ERROR"}
    host, _, port = address.removeprefix("ray://").rpartition(":")
    try:
        if host and port.isdecimal():
            # Ray itself tries for minutes.
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
    """Whether a cluster is in force."""
    return dspy.settings.get(_CLUSTER) is not None


def spread(
    work: Callable[[Item], Result],
    items: Sequence[Item],
    threads: int,
    *,
    lm_for: Callable[[Item], Any] = lambda item: dspy.settings.lm,
    name: str = "ga-dspy",
) -> Generator[Result, None, None]:
    """Do a piece of work for each item, here or on the cluster in force; results as they come.

    An error that `work` lets through is raised here; whoever closes the generator stops the rest.
    An item whose machine died is done again on another.

    Args:
        work: A function that can be pickled where there is a cluster; it finds its LM in
            `dspy.settings.lm`.
        items: What it is called with.
        threads: Items under way at once.
        lm_for: The LM for an item; it stays here.
        name: Of the threads.

    Raises:
        InputError: `threads` is below 1, or the work cannot be sent to another machine.
        RunAborted: No machine of the cluster is left.
    """
    ray = dspy.settings.get(_CLUSTER)
    if ray is not None:
        yield from _Spread(ray, work, threads, lm_for).over(items)
        return

    def here(item: Item) -> Result:
        # A trace of its own: threads would mix theirs, and a long run would pile it up.
        trace: Any = None if dspy.settings.trace is None else []
        with dspy.context(lm=lm_for(item), trace=trace):
            return work(item)

    yield from parallel(here, items, threads, name)


# --- This process: hands out items, and makes the LM calls that come back


class _Spread:
    """One `spread` over a cluster."""

    def __init__(self, ray: Any, work: Any, threads: int, lm_for: Any) -> None:
        if threads < 1:
            raise InputError(f"threads is {threads}", expected="1 or more", remedy="pass threads=1")
        self.ray, self.threads, self.lm_for = ray, threads, lm_for
        self.machines = max(1, min(threads, int(ray.cluster_resources().get("CPU", 1))))
        self.slots = math.ceil(threads / self.machines)
        here = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
            ray.get_runtime_context().get_node_id(), soft=False
        )
        self.calls = ray.remote(_Calls).options(
            num_cpus=0, max_concurrency=10_000, scheduling_strategy=here
        ).remote()  # fmt: skip
        carried = {key: dspy.settings.get(key) for key in _CARRIED if key in dspy.settings}
        try:
            self.given = ray.put((work, _portable(dspy.settings.lm), carried))
        except (TypeError, AttributeError, ValueError) as error:
            raise InputError(
                f"the work cannot be sent to other machines ({error})",
                expected="a program, retriever and settings that can be pickled",
                remedy="keep the index in a folder, or leave out --ray",
            ) from error
        self.fronts: dict[int, Any] = {}

    def over(self, items: Sequence[Item]) -> Generator[Any, None, None]:
        """Do the items, and yield what becomes of them."""
        ray, todo, tokens = self.ray, deque(items), count()
        flying: dict[Any, tuple[Item, int, Any]] = {}
        load: dict[Any, int] = {}
        starting = dict([self._started() for _ in range(self.machines)]) if todo else {}
        stop, context = threading.Event(), contextvars.copy_context()
        relay = threading.Thread(target=context.run, args=(self._relay, stop), daemon=True)
        relay.start()
        try:
            while todo or flying:
                while todo and len(flying) < self.threads and (worker := self._free(load)):
                    item, token = todo.popleft(), next(tokens)
                    self.fronts[token] = self.lm_for(item)
                    flying[worker.do.remote(token, item)] = item, token, worker
                    load[worker] += 1
                waited_for = [*flying, *starting]
                patience = None if flying else _PATIENCE_WITH_MACHINES
                done, _ = ray.wait(waited_for, num_returns=1, timeout=patience)
                if not done:
                    raise RunAborted(
                        "no machine of the cluster takes work",
                        expected="at least one with a free CPU",
                        remedy="see `ray status`, then start the same again: what was done is kept",
                    )
                for ref in done:
                    item, token, worker = flying.pop(ref, (_NONE, -1, starting.get(ref)))
                    self.fronts.pop(token, None)
                    try:
                        result = ray.get(ref)
                    except ray.exceptions.RayTaskError as error:
                        raise error.cause from error
                    except ray.exceptions.RayError:
                        # The machine is gone: its work is done again, on another if need be.
                        if token >= 0:
                            todo.appendleft(item)
                        if load.pop(worker, None) is not None:
                            starting |= [self._started()]
                    else:
                        if token >= 0:
                            load[worker] -= 1
                            yield result
                        else:
                            load[worker] = 0
                    starting.pop(ref, None)
        finally:
            stop.set()
            for worker in {*load, *starting.values(), self.calls}:
                with suppress(Exception):
                    ray.kill(worker)
            relay.join(5)

    def _started(self) -> tuple[Any, Any]:
        """A worker that starts, after what tells that it has."""
        options = {"max_concurrency": self.slots + 1, "num_cpus": 1}
        worker = self.ray.remote(_Worker).options(**options).remote(self.given, self.calls)
        return worker.ready.remote(), worker

    def _free(self, load: dict[Any, int]) -> Any:
        """The worker with the least to do; None where all have enough."""
        least = min(load, key=lambda worker: load[worker], default=None)
        return least if least is not None and load[least] < self.slots else None

    def _relay(self, stop: threading.Event) -> None:
        """Make the calls that the machines ask for, until the end."""
        with ThreadPoolExecutor(self.threads, thread_name_prefix="ga-dspy-calls") as pool:
            while not stop.is_set():
                with suppress(self.ray.exceptions.RayError):
                    for number, *request in self.ray.get(self.calls.take.remote()):
                        context = contextvars.copy_context()
                        pool.submit(context.run, self._answer, number, *request)

    def _answer(
        self, number: int, token: int, step: str, prompt: Any, messages: Any, settings: Any
    ) -> None:
        answer: Any = None
        tally = _Tally(step)
        try:
            lm = self.fronts[token]
            with dspy.context(**{METER: tally}):
                _, record = record_of(lambda: lm(prompt, messages=messages, **settings))
            answer = json.loads(record)
        except Exception as error:  # noqa: BLE001 - raised where the call was asked for
            answer = _sendable(error)
        self.calls.answer.remote(number, (answer, tally.failed, tally.waited))


class _Tally(BaseCallback):
    """Counts the attempts of a call that failed, and the seconds that the endpoint was waited for.

    It stands where a program's meter stands, which is on another machine.
    """

    def __init__(self, step: str) -> None:
        self.step, self.failed, self.waited = step, 0, 0.0

    def on_lm_end(self, call_id: str, outputs: Any, exception: BaseException | None = None) -> None:
        """Count an attempt."""
        self.failed += exception is not None


def _sendable(error: Exception) -> Exception:
    """An error as it is, or its words where it cannot be pickled."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # noqa: BLE001 - whatever its class does when it is made again
        return RunAborted(str(error)) if isinstance(error, RunAborted) else RuntimeError(str(error))
    return error


def _portable(lm: Any) -> Any:
    """An LM's name and settings, without its keys and history."""
    while isinstance(lm, FrontLM):
        lm = lm.lm
    if not isinstance(lm, dspy.BaseLM):
        return lm
    copy = lm.copy()
    copy.kwargs = {k: v for k, v in copy.kwargs.items() if not k.startswith("api_")}
    copy.history, copy.callbacks = [], []
    return copy


# --- The other machines


class _Calls:
    """Where machines ask for LM calls, and the starting process takes and answers them."""

    def __init__(self) -> None:
        self.asked: asyncio.Queue[Any] = asyncio.Queue()
        self.replies: dict[int, asyncio.Future[Any]] = {}
        self.numbers = count()

    async def ask(self, *request: Any) -> Any:
        number, reply = next(self.numbers), asyncio.get_running_loop().create_future()
        self.replies[number] = reply
        await self.asked.put((number, *request))
        return await reply

    async def take(self) -> list[Any]:
        with suppress(TimeoutError):
            taken = [await asyncio.wait_for(self.asked.get(), 1)]
            while not self.asked.empty():
                taken.append(self.asked.get_nowait())
            return taken
        return []

    async def answer(self, number: int, answer: Any) -> None:
        self.replies.pop(number).set_result(answer)


class _Worker:
    """Does items in a process on some machine, several at once."""

    def __init__(self, given: tuple[Any, Any, dict[str, Any]], calls: Any) -> None:
        self.work, self.lm, self.settings = given
        self.calls = calls

    def ready(self) -> None:
        """Return once the process is there."""

    def do(self, token: int, item: Any) -> Any:
        lm = self.lm
        if isinstance(lm, dspy.BaseLM):
            lm = _RelayedLM(lm, self.calls, token)
        with dspy.context(**self.settings, lm=lm):
            return self.work(item)


class _RelayedLM(FrontLM):
    """Has its calls made by the process that was started."""

    def __init__(self, lm: dspy.BaseLM, calls: Any, token: int) -> None:
        super().__init__(lm)
        self.calls, self.token = calls, token

    def before(self, lm: dspy.BaseLM) -> _RelayedLM:
        return type(self)(lm, self.calls, self.token)

    def __call__(self, prompt: Any = None, *, messages: Any = None, **kwargs: Any) -> Any:
        """Answer as the LM itself would."""
        ray, meter = require("ray", "cluster"), dspy.settings.get(METER)
        step = "" if meter is None else meter.step
        asked = self.calls.ask.remote(self.token, step, prompt, messages, kwargs)
        answer, failed, waited = ray.get(asked)
        if meter is not None:
            meter.add_failed(failed, waited)
        if isinstance(answer, BaseException):
            raise answer
        return Replayed(self.lm, answer)(prompt, messages=messages, **kwargs)

    async def acall(self, prompt: Any = None, *, messages: Any = None, **kwargs: Any) -> Any:
        """The same from a coroutine, in a worker thread."""
        return await dspy.asyncify(self)(prompt, messages=messages, **kwargs)
