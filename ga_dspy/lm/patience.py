"""Patience: what an LM call does when the endpoint fails: ask again, wait for it, or give up.

A `PatientLM` stands before an LM. It asks again what may pass, with growing pauses. A breaker for
each endpoint, shared by threads and tasks, holds all calls back while the endpoint is down, tries
it now and then, and lets them go on when it answers. What will not pass ends the run at once.
"""

from __future__ import annotations

import asyncio
import datetime
import hashlib
import json
import logging
import math
import random
import threading
import time
import uuid
import warnings
from collections import Counter, deque
from collections.abc import Callable, Generator, Hashable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Self
from weakref import WeakKeyDictionary

import dspy
from dspy.clients.call_result import CallResult
from dspy.lm15 import Request, Response
from dspy.utils import exceptions as lm_errors
from dspy.utils.callback import with_callbacks

from ga_dspy.errors import InputError
from ga_dspy.lm.connection import connect
from ga_dspy.lm.endpoints import endpoint_digest
from ga_dspy.lm.failures import (
    EndpointDown,
    EndpointRefused,
    causes,
    is_timeout,
    is_transient,
    refusal_remedy,
)
from ga_dspy.secrets import secrets_of, without
from ga_dspy.storage import Journal

_log = logging.getLogger("ga_dspy")

# DSPy's adapters still send such messages; here they are only passed on. And a rollout id does
# tell cached replies apart at temperature 0, whatever the warning says.
warnings.filterwarnings("ignore", "Passing OpenAI-style message", DeprecationWarning, __name__)
warnings.filterwarnings("ignore", "rollout_id has no effect", UserWarning, "dspy.clients")

# --- How long to try


@dataclass(frozen=True, kw_only=True)
class Patience:
    """How long LM calls are tried, in seconds; what an endpoint is waited for comes on top.

    Attributes:
        retries: Attempts after the first, of one call; with 0 an error is raised as it comes, and
            nothing is waited for.
        call: No further attempt of a call is begun after so long.
        question: After so long a program asks no more, and answers from what it has.
        outage: How long an endpoint may be down before the run is given up.
        retry_after: The longest pause that a server may ask for.
    """

    retries: int = 10
    call: float = 900.0
    question: float = 3600.0
    outage: float = 30.0
    retry_after: float = 60.0

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            InputError: One of them is below 0, or no number.
        """
        for name, value in vars(self).items():
            if not isinstance(value, int | float) or not value >= 0:
                raise InputError(
                    f"{name} is {value!r}", expected="a number from 0", remedy=f"pass {name}=10"
                )

    @classmethod
    def current(cls) -> Patience:
        """The one in force here."""
        return dspy.settings.get(PATIENCE) or cls()


PATIENCE, METER = "ga_dspy_patience", "ga_dspy_meter"
"""Where `dspy.settings` holds the `Patience` in force, and what counts a program's calls."""


@contextmanager
def patient(**changes: Any) -> Iterator[Patience]:
    """Change the `Patience` inside a block, for the threads and tasks that are begun there too.

    >>> with patient(outage=3600) as patience:
    ...     patience.outage, patience.retries
    (3600, 10)
    """
    patience = replace(Patience.current(), **changes)
    with dspy.context(**{PATIENCE: patience}):
        yield patience


def now() -> float:
    """Seconds on the clock that patience goes by."""
    return time.monotonic()


def format_duration(seconds: float) -> str:
    """A time in words.

    >>> format_duration(45), format_duration(600), format_duration(5400), format_duration(360_000)
    ('45 s', '10 min', '1.5 h', '100 h')
    """
    unit, size = next(((u, s) for u, s in (("h", 3600), ("min", 60)) if seconds >= s), ("s", 1))
    count = seconds / size
    return f"{count:.0f} {unit}" if count >= 10 else f"{count:.2g} {unit}"


# --- Whether an endpoint is up

_OPENS_AT, _POLL, _LONGEST_PAUSE = 6, 0.5, 30.0


class Breaker:
    """Whether an endpoint is up, as all calls to it see; may be shared by threads and tasks.

    It opens when calls fail in a row, and closes when one is answered.

    Args:
        name: The endpoint's, in messages.
        probes: Whether it is tried with a request of no consequence, for it may be one of ours that
            a server chokes on. Else a call that waits is the trial, and one call that fails is none
            to open for.
    """

    def __init__(self, name: str, probes: bool) -> None:
        self.name, self.probes = name, probes
        self._lock = threading.Lock()
        self.has_asked_too_much = False
        self._since, self._said = 0.0, False
        self.answered()

    def answered(self) -> None:
        """Note an answer: the endpoint is up."""
        with self._lock:
            if self._said:
                down = format_duration(time.monotonic() - self._since)
                _log.warning("%s answers again after %s: going on", self.name, down)
            self._failures, self._callers = 0, set[int]()
            self._since = self._next = 0.0
            self._pause = _POLL
            self._open = self._said = False
            self._prober: int | None = None

    def failed(self, caller: int, error: BaseException, patience: Patience, hint: float) -> bool:
        """Note a failure that may pass; whether the endpoint is taken to be down."""
        with self._lock:
            now = time.monotonic()
            self._since = self._since or now
            self._error, self._failures = error, self._failures + 1
            self._callers.add(caller)
            if not self._open:
                several = self.probes or len(self._callers) > 1
                self._open = several and self._failures >= _OPENS_AT
                self._next = now + max(_POLL, hint)
            elif self._prober == caller:
                self._prober, self._pause = None, min(2 * self._pause, _LONGEST_PAUSE)
                self._next = now + max(_jittered(self._pause), hint)
                if not self._said and now - self._since < patience.outage:
                    self._said = True
                    down, most = (
                        format_duration(now - self._since),
                        format_duration(patience.outage),
                    )
                    how = "answered no call in time" if is_timeout(error) else "has been down"
                    text = "%s %s for %s: all calls wait for it, %s at most (%s)"
                    _log.warning(text, self.name, how, down, most, _told(error))
            return self._open

    def leave(self, caller: int) -> None:
        """Let another call try the endpoint, where this one was about to."""
        with self._lock:
            self._prober = None if self._prober == caller else self._prober

    def pause(self, caller: int, patience: Patience) -> float:
        """Seconds until the next look; 0 for an endpoint that is up, or that this call is to try.

        Raises:
            EndpointDown: It was down for too long.
        """
        with self._lock:
            now = time.monotonic()
            if not self._open:
                return 0.0
            if self._prober is None and now >= self._next:
                self._prober = caller
                return 0.0
            if now - self._since < patience.outage:
                return _jittered(_POLL)
            self._next = min(self._next, now)  # whoever asks next may try at once
            silent = format_duration(now - self._since)
            if is_timeout(self._error):
                raise EndpointDown(
                    f"{self.name} answered no call in time for {silent} ({_told(self._error)})",
                    expected="an answer before the timeout of a call",
                    remedy="raise --timeout, or cap replies with --lm-set max_tokens=500; then "
                    "start the same again: what was finished is kept",
                ) from self._error
            raise EndpointDown(
                f"{self.name} has been down for {silent} ({_told(self._error)})",
                expected=f"an answer within {format_duration(patience.outage)}",
                remedy="see that it is up, then start the same again: what was finished is kept "
                "(more patience: --patience 2h, or ga_dspy.patient(outage=7200))",
            ) from self._error

    def probed_by(self, caller: int) -> bool:
        """Whether this call is to send a probe first."""
        return self.probes and self._prober == caller


def _jittered(seconds: float) -> float:
    return seconds * random.uniform(0.5, 1.0)


def _told(error: BaseException) -> str:
    first = next(iter(str(error).strip().splitlines()), "")
    return f"{type(error).__name__}: {first}"[:200]


_BREAKERS: dict[tuple[str, str | None], Breaker] = {}
_OWN_BREAKERS: WeakKeyDictionary[Any, Breaker] = WeakKeyDictionary()


def _breaker(lm: dspy.BaseLM) -> Breaker:
    """The breaker of an LM's endpoint; an LM in this process has its own."""
    digest, name = endpoint_digest(lm), f"the endpoint of {lm.model}"
    engine = getattr(lm, "engine", None)
    if digest or isinstance(engine, str):
        return _BREAKERS.setdefault((lm.model, digest), Breaker(name, probes=True))
    is_key = isinstance(engine, Hashable) and hasattr(engine, "__weakref__")
    return _OWN_BREAKERS.setdefault(engine if is_key else lm, Breaker(name, probes=False))


# --- LMs before an LM


def _of_the_lm(name: str) -> Any:
    return property(lambda self: getattr(self.lm, name), doc="As the LM says.")


class LMWrapper(dspy.BaseLM):
    """An LM before an LM: whatever is no call is asked of the one behind it, and so are copies."""

    supports_function_calling = _of_the_lm("supports_function_calling")
    supports_reasoning = _of_the_lm("supports_reasoning")
    supports_response_schema = _of_the_lm("supports_response_schema")
    supported_params = _of_the_lm("supported_params")

    def __init__(self, lm: dspy.BaseLM) -> None:
        self.lm = lm
        super().__init__(lm.model, lm.model_type, cache=lm.cache, callbacks=lm.callbacks)
        self.kwargs = lm.kwargs

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "lm":
            raise AttributeError(name)
        return getattr(self.lm, name)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def with_lm(self, lm: dspy.BaseLM) -> Self:
        """The same before another LM."""
        return type(self)(lm)

    def copy(self, **kwargs: Any) -> Self:
        """The same before a copy with other settings."""
        return self.with_lm(self.lm.copy(**kwargs))

    def replay(self, kept: dict[str, Any], prompt: Any, messages: Any, kwargs: Any) -> Any:
        """Answer from a record of `result_of`; trackers and history hear of it as of a call."""
        result, usage = CallResult.load(kept), kept["usage"]
        if usage and dspy.settings.usage_tracker:
            dspy.settings.usage_tracker.add_usage(self.model, usage)
        self.update_history(
            {
                "prompt": prompt,
                "messages": messages,
                "kwargs": {k: v for k, v in kwargs.items() if not k.startswith("api_")},
                "response": result.responses if result.raw is None else result.raw,
                "outputs": result.outputs,
                "usage": usage,
                "cost": result.cost,
                "timestamp": datetime.datetime.now().isoformat(),
                "uuid": str(uuid.uuid4()),
                "model": self.model,
                "response_model": result.response_model,
                "model_type": self.model_type,
            }
        )
        typed = isinstance(kwargs.get("request", prompt), Request)
        return result.responses[0] if typed else result.outputs


def result_of(answer: Any, entries: Sequence[dict[str, Any]]) -> CallResult:
    """What a call brought and cost: its answer, with the last entry that it made in a history."""
    entry = entries[-1] if entries else {"outputs": answer}
    raw = answer if isinstance(answer, Response) else entry.get("response")
    responses = raw if isinstance(raw, tuple) else (raw,) if isinstance(raw, Response) else ()
    return CallResult(
        responses,
        entry["outputs"],
        entry.get("usage", {}),
        entry.get("cost"),
        raw=None if responses else raw,
        response_model=entry.get("response_model"),
        cost_details=entry.get("cost_details", {}),
    )


_PROBE: dict[str, Any] = {"prompt": "Reply with the word OK.", "cache": False}


class PatientLM(LMWrapper):
    """Asks the LM behind it for as long as the `Patience` in force allows.

    Its callbacks, trackers and history hear of each attempt, as the LM's own. Replies of another
    server are not taken from DSPy's cache. While a reply is streamed DSPy's own retries count.

    Raises:
        EndpointRefused: No call will be answered.
        EndpointDown: The endpoint was down for too long.
    """

    tells_meter = True
    """Whether a program's meter hears of the attempts; no, where an LM before this one tells it."""

    def __call__(self, prompt: Any = None, *, messages: Any = None, **kwargs: Any) -> Any:
        """Answer as the LM itself would."""
        lm, settings = self._prepared(kwargs)
        request, answer = {"prompt": prompt, "messages": messages, **settings}, None
        with suppress(StopIteration), closing(self._attempts(request)) as attempts:
            wanted = next(attempts)
            while True:
                try:
                    if isinstance(wanted, float):
                        time.sleep(wanted)
                    else:
                        with self._heard(wanted) as heard:
                            answer = lm(**wanted)
                            heard.append(answer)
                except Exception as error:  # noqa: BLE001 - raised again where it is no outage
                    wanted = attempts.throw(error)
                else:
                    wanted = next(attempts)
        return answer

    async def acall(self, prompt: Any = None, *, messages: Any = None, **kwargs: Any) -> Any:
        """The same from a coroutine."""
        lm, settings = self._prepared(kwargs)
        request, answer = {"prompt": prompt, "messages": messages, **settings}, None
        with suppress(StopIteration), closing(self._attempts(request)) as attempts:
            wanted = next(attempts)
            while True:
                try:
                    if isinstance(wanted, float):
                        await asyncio.sleep(wanted)
                    else:
                        with self._heard(wanted) as heard:
                            answer = await lm.acall(**wanted)
                            heard.append(answer)
                except Exception as error:  # noqa: BLE001 - raised again where it is no outage
                    wanted = attempts.throw(error)
                else:
                    wanted = next(attempts)
        return answer

    @contextmanager
    def _heard(self, request: dict[str, Any]) -> Iterator[list[Any]]:
        """The context of an attempt, and the list that its answer is put in.

        The meter hears of it, without DSPy's inspection of callbacks; of a probe nothing does.
        """
        said = list[Any]()
        if request is _PROBE:
            quiet: Any = {
                "callbacks": [],
                "caller_modules": [],
                "usage_tracker": None,
                "disable_history": True,
            }
            with dspy.context(**quiet):
                yield said
        elif (meter := _unheard()) is None or not self.tells_meter:
            yield said
        else:
            meter.on_lm_start("", self.lm, request)
            try:
                yield said
            except BaseException as error:
                meter.on_lm_end("", None, error)
                raise
            meter.on_lm_end("", *said)

    def _prepared(self, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        """The LM without retries of its own, and a call's settings with the server's name in them.

        DSPy's cache knows a reply by its rollout id, too, and not by the server.
        """
        lm: Any = self.lm
        if isinstance(lm, dspy.LM) and (digest := endpoint_digest(lm)):
            rollout = kwargs.get("rollout_id", lm.kwargs.get("rollout_id"))
            kwargs = {**kwargs, "rollout_id": digest if rollout is None else f"{digest}-{rollout}"}
        if type(lm) is dspy.LM and dspy.settings.send_stream is None:
            lm = connect(lm, kwargs)
        return lm, kwargs

    def _attempts(self, request: dict[str, Any]) -> Generator[float | dict[str, Any], None, None]:
        """What a call does: pause for so many seconds, or send a probe or the request.

        A call that fails throws its error into the generator; the answer ends it.
        """
        patience, breaker, caller = Patience.current(), _breaker(self.lm), random.getrandbits(64)
        retries = patience.retries if dspy.settings.send_stream is None else 0
        meter, begun, waited, tries = dspy.settings.get(METER), time.monotonic(), 0.0, 0
        try:
            while True:
                while retries and (pause := breaker.pause(caller, patience)):
                    yield pause
                    waited += pause
                    if meter is not None:
                        meter.waited += pause
                is_probe = breaker.probed_by(caller)
                try:
                    yield _PROBE if is_probe else request
                except Exception as found:
                    error = self._in_words(found)
                    if remedy := next(filter(None, map(refusal_remedy, causes(error))), ""):
                        raise EndpointRefused(
                            f"{breaker.name} refuses: {_told(error)}",
                            expected="answers",
                            remedy=f"{remedy}; then start the same again: what was done is kept",
                        ) from error
                    if is_transient(error):
                        hint = self._hint(error, patience, breaker)
                        if retries and breaker.failed(caller, error, patience, hint):
                            continue
                        pause = max(_jittered(min(2.0**tries / 2, _LONGEST_PAUSE)), hint)
                        tries, spent = tries + 1, time.monotonic() - begun - waited
                        if tries > retries or spent + pause > patience.call:
                            raise error from error.__cause__
                        yield pause
                        continue
                    breaker.answered()
                    if not is_probe:
                        raise
                breaker.answered()
                if not is_probe:
                    return
        finally:
            breaker.leave(caller)

    def _in_words(self, error: Exception) -> Exception:
        """The error; where we gave up waiting for an answer, one that says what to do about it."""
        seconds = self.lm.kwargs.get("timeout")
        is_gateway_s = any(getattr(cause, "status", None) == 504 for cause in causes(error))
        if not is_timeout(error) or is_gateway_s or not isinstance(seconds, int | float):
            return error
        late: Exception = lm_errors.LMTimeoutError(
            f"No answer within --timeout {seconds:g} s: raise it, or cap replies with "
            "--lm-set max_tokens=500 (in Python, dspy.LM(timeout=600, max_tokens=500))"
        )
        late.__cause__ = error
        return late

    def _hint(self, error: BaseException, patience: Patience, breaker: Breaker) -> float:
        """The pause that a server asks for, up to the longest that is granted."""
        asked = (getattr(cause, "retry_after", None) for cause in causes(error))
        hint = next((n for n in asked if isinstance(n, int | float) and n > 0), 0.0)
        if hint > patience.retry_after and not breaker.has_asked_too_much:
            breaker.has_asked_too_much = True
            asked_for = format_duration(hint) if math.isfinite(hint) else "no end"
            limit = format_duration(patience.retry_after)
            text = "the server of %s asks for a pause of %s; it gets %s"
            _log.warning(text, self.model, asked_for, limit)
        return min(float(hint), patience.retry_after)


def _unheard() -> Any:
    """The meter in force, unless it hears of LM calls as a callback; None without one."""
    callbacks, meter = dspy.settings.callbacks or [], dspy.settings.get(METER)
    return None if any(meter is callback for callback in callbacks) else meter


def metered() -> Any:
    """A context in which the meter in force hears of LM calls.

    It is set around these alone: wherever there is a callback, DSPy inspects each call of a module
    and of an adapter.
    """
    meter = _unheard()
    if meter is None:
        return nullcontext()
    return dspy.context(callbacks=[*(dspy.settings.callbacks or []), meter])


# --- Calls of work that is not done yet, so that a kill does not have them paid again


_KEEP = "INSERT OR REPLACE INTO call VALUES (?, ?, ?)"
_MOST_DONE = 50
"""So many pieces of work are done before their calls are taken out."""


class KeptCalls(Journal):
    """The finished LM calls of pieces of work that are under way, until each is done.

    A piece that a kill interrupted is begun again, and is answered as before as far as it got. At
    the end of a `with` all work is done, unless an error ends it.
    """

    def __init__(self, path: Path) -> None:
        create = "CREATE TABLE call (work TEXT, key TEXT, json TEXT, PRIMARY KEY (work, key))"
        super().__init__(path, "run", {"call": create})
        # How often each piece of work was begun; what a kill left was begun once.
        self._begun = Counter(work for (work,) in self.rows("SELECT DISTINCT work FROM call"))
        self._done, self._turn, self._is_over = list[str](), threading.Lock(), False
        self._unwritten = deque[tuple[str, str, str]]()

    def front(self, lm: Any, work: object) -> Any:
        """An LM for a piece of work that begins now; as it is where it keeps its calls itself."""
        if str(work) in self._done:
            self._clear()
        self._begun[str(work)] += 1
        foreign = isinstance(lm, LMWrapper) and type(lm) is not PatientLM
        return KeptLM(lm, self, str(work)) if isinstance(lm, dspy.BaseLM) and not foreign else lm

    def kept(self, work: str, key: str) -> dict[str, Any] | None:
        """The record of a call of work that was begun before; None where there is none."""
        if self._begun[work] < 2:
            return None
        rows = self.rows("SELECT key, json FROM call WHERE work = ? AND key = ?", [work, key])
        return next((record for _, record in self.readable(rows, json.loads)), None)

    def keep(self, work: str, key: str, record: str) -> None:
        """Write the record of a call, with those that other threads wait to write meanwhile."""
        self._unwritten.append((work, key, *without(secrets_of(), [record])))
        with self._turn:
            rows = list(self._unwritten)
            if rows:
                self.transaction([(_KEEP, row) for row in rows])
            for _ in rows:
                self._unwritten.popleft()

    def forget(self, work: object) -> None:
        """Note that a piece of work is done, and recorded elsewhere."""
        self._done.append(str(work))
        if len(self._done) >= _MOST_DONE:
            self._clear()

    def _clear(self) -> None:
        """Take out the calls of what is done: each time threads wait for the file."""
        with self._turn:
            done, self._done = self._done, []
            for work in done:
                self._begun.pop(work, None)
            if done:
                self.transaction([("DELETE FROM call WHERE work = ?", [work]) for work in done])

    def __exit__(self, *error: object) -> None:
        self._is_over = error[0] is None
        super().__exit__(*error)

    def close(self) -> None:
        """Give the file back; one without calls is removed."""
        try:
            self._clear()
            is_empty = self._is_over or not self.rows("SELECT 1 FROM call LIMIT 1")
        finally:
            super().close()
        if is_empty:
            self.path.unlink()


class KeptLM(PatientLM):
    """Answers from the calls of its piece of work; asks what is not there, and keeps it."""

    def __init__(self, lm: Any, calls: KeptCalls, work: str) -> None:
        super().__init__(lm.lm if isinstance(lm, PatientLM) else lm)
        self.calls, self.work, self.counts = calls, work, Counter[str]()

    def with_lm(self, lm: dspy.BaseLM) -> Self:
        """The same piece of work, before another LM."""
        other = type(self)(lm, self.calls, self.work)
        other.counts = self.counts
        return other

    def __call__(self, prompt: Any = None, *, messages: Any = None, **kwargs: Any) -> Any:
        """Answer as the LM itself would, or did."""
        text = json.dumps([prompt, messages, kwargs], sort_keys=True, default=repr)
        self.counts[text] += 1
        # The same request a second time is for another reply.
        key = hashlib.sha256(f"{text} {self.counts[text]}".encode()).hexdigest()
        if (record := self.calls.kept(self.work, key)) is not None:
            return Replayed(self.lm, record)(prompt, messages=messages, **kwargs)
        ask = partial(super().__call__, prompt, messages=messages, **kwargs)
        answer, made = record_of(ask)
        self.calls.keep(self.work, key, made)
        return answer

    async def acall(self, prompt: Any = None, *, messages: Any = None, **kwargs: Any) -> Any:
        """The same from a coroutine, in a worker thread."""
        return await dspy.asyncify(self)(prompt, messages=messages, **kwargs)


def record_of(call: Callable[[], Any]) -> tuple[Any, str]:
    """Make an LM call: its answer, and the record, as JSON, from which it can be replayed."""
    entries = _Entries()
    with dspy.context(caller_modules=[entries, *(dspy.settings.caller_modules or [])]):
        answer = call()
    return answer, json.dumps(result_of(answer, entries.history).dump(), default=vars)


class _Entries:
    """What DSPy takes for a module that calls: it leaves its record of each call here."""

    def __init__(self) -> None:
        self.history: list[dict[str, Any]] = []


class Replayed(LMWrapper):
    """Answers a call from its record."""

    def __init__(self, lm: dspy.BaseLM, kept: dict[str, Any]) -> None:
        super().__init__(lm)
        self.kept = kept

    def __call__(self, prompt: Any = None, *, messages: Any = None, **kwargs: Any) -> Any:
        """Answer as was answered."""
        with metered():
            return self._replay(prompt, messages=messages, **kwargs)

    @with_callbacks  # type: ignore[untyped-decorator]
    def _replay(self, prompt: Any = None, *, messages: Any = None, **kwargs: Any) -> Any:
        return self.replay(self.kept, prompt, messages, kwargs)


def wrap(lm: Any, like: Any = None) -> Any:
    """The patient front of an LM; itself where it has one, or is no LM.

    Args:
        lm: The LM.
        like: A front of another LM, whose journal, ledger or cluster the calls go through, too.
    """
    if not isinstance(lm, dspy.BaseLM) or isinstance(lm, LMWrapper):
        return lm
    return like.with_lm(lm) if isinstance(like, LMWrapper) else PatientLM(lm)


class StepLMs(LMWrapper):
    """The LMs of a program's steps as one LM, for what knows one LM of a program alone.

    Args:
        lm: Answers steps without an LM of their own, and calls outside of a program.
        steps: LMs by the step's name.
    """

    def __init__(self, lm: dspy.BaseLM, steps: Mapping[str, dspy.BaseLM]) -> None:
        super().__init__(lm)
        self.steps = steps

    def of_step(self, step: str) -> dspy.BaseLM:
        """The LM that answers a step."""
        return self.steps.get(step, self.lm)

    def with_lm(self, lm: dspy.BaseLM) -> Any:
        """An LM behind the journal, ledger or cluster that these go through."""
        return wrap(lm, like=self.lm)

    def copy(self, **kwargs: Any) -> Self:
        """The same over copies with other settings."""
        steps = {step: lm.copy(**kwargs) for step, lm in self.steps.items()}
        return type(self)(self.lm.copy(**kwargs), steps)

    @property
    def _asked(self) -> Any:
        """The LM of the step under way."""
        return self.of_step(getattr(dspy.settings.get(METER), "step", ""))

    def __call__(self, prompt: Any = None, *, messages: Any = None, **kwargs: Any) -> Any:
        """Answer as the step's LM does."""
        return self._asked(prompt, messages=messages, **kwargs)

    async def acall(self, prompt: Any = None, *, messages: Any = None, **kwargs: Any) -> Any:
        """The same from a coroutine."""
        return await self._asked.acall(prompt, messages=messages, **kwargs)
