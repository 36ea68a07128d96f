"""Retries and outages: when a failed LM call is retried, waits for its endpoint, or ends the run.

Transient errors are retried with growing pauses. Each endpoint has a circuit breaker, shared by
threads and tasks: while the endpoint is down, it holds all calls back and probes the endpoint from
time to time. A permanent error ends the run at once.
"""

from __future__ import annotations

import asyncio
import logging
import random
import threading
import time
from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakKeyDictionary

import dspy
import tenacity

from ga_dspy.errors import InputError
from ga_dspy.lm import failures
from ga_dspy.lm.endpoints import endpoint_digest

_log = logging.getLogger("ga_dspy")

# --- Settings


@dataclass(frozen=True, kw_only=True)
class Patience:
    """How long LM calls are retried, in seconds, excluding time spent waiting for a down endpoint.

    Attributes:
        retries: Maximum retries of one call; with 0 the first error is raised without waiting.
        call: Timeout of a call with its retries; no attempt starts later.
        question: Timeout of a question; a program then answers from what it has read.
        outage: How long an endpoint may be down before the run ends.
        retry_after: The longest pause that a server may request (`Retry-After`).
    """

    retries: int = 10
    call: float = 900.0
    question: float = 3600.0
    outage: float = 30.0
    retry_after: float = 60.0

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            InputError: A value is negative or not a number.
        """
        for name, value in vars(self).items():
            if not isinstance(value, int | float) or not value >= 0:
                raise InputError(
                    f"{name} is {value!r}", expected="a number from 0", remedy=f"pass {name}=10"
                )

    @classmethod
    def current(cls) -> Patience:
        """Return the `Patience` that applies here."""
        return dspy.settings.get(PATIENCE) or cls()


PATIENCE, METER = "ga_dspy_patience", "ga_dspy_meter"
"""Keys of `dspy.settings`: the current `Patience`, and the meter of a program's calls."""


@contextmanager
def patient(**changes: Any) -> Iterator[Patience]:
    """Change the `Patience` inside a block and in the threads and tasks started there.

    >>> with patient(outage=3600) as patience:
    ...     patience.outage, patience.retries
    (3600, 10)
    """
    patience = replace(Patience.current(), **changes)
    with dspy.context(**{PATIENCE: patience}):
        yield patience


def now() -> float:
    """Return a monotonic time in seconds."""
    return time.monotonic()


def format_duration(seconds: float) -> str:
    """Return a duration with a unit.

    >>> format_duration(45), format_duration(600), format_duration(5400), format_duration(360_000)
    ('45 s', '10 min', '1.5 h', '100 h')
    """
    unit, size = "s", 1
    if seconds >= 3600:
        unit, size = "h", 3600
    elif seconds >= 60:
        unit, size = "min", 60
    count = seconds / size
    return f"{count:.0f} {unit}" if count >= 10 else f"{count:.2g} {unit}"


# --- Circuit breakers

_OPENS_AT, _POLL, _LONGEST_PAUSE = 6, 0.5, 30.0


class Breaker:
    """A circuit breaker for one endpoint, shared by threads and tasks.

    It opens after consecutive failures and closes when a call is answered. While it is open, one
    call at a time sends a probe instead of its request, since the request itself may be what the
    server fails on.

    Args:
        name: The endpoint's name in messages.

    Attributes:
        prober: The call that sends the next probe, if any.
    """

    def __init__(self, name: str) -> None:
        self.name, self._lock = name, threading.Lock()
        self._since, self._is_reported = 0.0, False
        self.answered()

    def answered(self) -> None:
        """Record an answer: the endpoint is up."""
        with self._lock:
            if self._is_reported:
                down = format_duration(time.monotonic() - self._since)
                _log.warning("%s answers again after %s", self.name, down)
            self._failures, self._pause = 0, _POLL
            self._since = self._next = self._hint = 0.0
            self._open = self._is_reported = False
            self.prober: Call | None = None

    def failed(self, caller: Call, error: BaseException, patience: Patience, hint: float) -> bool:
        """Record a transient failure; return whether the breaker is open."""
        with self._lock:
            now = time.monotonic()
            self._since = self._since or now
            self._error, self._failures, self._hint = error, self._failures + 1, hint
            if not self._open:
                self._open = self._failures >= _OPENS_AT
                self._next = now + max(_POLL, hint)
            elif self.prober is caller:
                self.prober, self._pause = None, min(2 * self._pause, _LONGEST_PAUSE)
                self._next = now + max(_jittered(self._pause), hint)
                if not self._is_reported and now - self._since < patience.outage:
                    self._is_reported = True
                    _log.warning(
                        "%s: all calls wait for it, at most %s (%s)",
                        self._outage(now), format_duration(patience.outage), _summary(error),
                    )  # fmt: skip
            return self._open

    def _outage(self, now: float) -> str:
        is_slow = failures.is_timeout(self._error)
        how = "answered no call in time" if is_slow else "has been down"
        return f"{self.name} {how} for {format_duration(now - self._since)}"

    def release(self, caller: Call) -> None:
        """Let another call probe the endpoint, if it was this call's turn."""
        with self._lock:
            if self.prober is caller:
                self.prober = None

    def pause(self, caller: Call, patience: Patience) -> float:
        """Return the seconds to wait; 0 if the endpoint is up or this call should probe it.

        Raises:
            EndpointDown: The endpoint has been down for too long.
        """
        with self._lock:
            now = time.monotonic()
            if not self._open:
                return 0.0
            if self.prober is None and now >= self._next:
                self.prober = caller
                return 0.0
            # A pause that the server requests, at a rate limit, does not count as an outage.
            if now - self._since < patience.outage + self._hint:
                return _jittered(_POLL)
            self._next = min(self._next, now)  # the next call may probe at once
            found = f"{self._outage(now)} ({_summary(self._error)})"
            if failures.is_timeout(self._error):
                raise failures.EndpointDown(
                    found,
                    expected="an answer before the timeout of a call",
                    remedy="raise --timeout, or cap replies with --lm-set max_tokens=500; then run "
                    "the same command again: finished work is kept",
                ) from self._error
            raise failures.EndpointDown(
                found,
                expected=f"an answer within {format_duration(patience.outage)}",
                remedy="check that it is up, then run the same command again: finished work is "
                "kept (to wait longer: --patience 2h, or ga_dspy.patient(outage=7200))",
            ) from self._error


def _jittered(seconds: float) -> float:
    return seconds * random.uniform(0.5, 1.0)


def _summary(error: BaseException) -> str:
    """Return the type of an error and the first line of its message."""
    first = next(iter(str(error).strip().splitlines()), "")
    return f"{type(error).__name__}: {first}"[:200]


_BREAKERS: dict[tuple[str, str | None], Breaker] = {}
_OWN_BREAKERS: WeakKeyDictionary[Any, Breaker] = WeakKeyDictionary()


def _breaker(lm: dspy.BaseLM) -> Breaker:
    """Return the breaker of an LM's endpoint; each LM that runs in this process has its own."""
    digest, name = endpoint_digest(lm), f"the endpoint of {lm.model}"
    engine = getattr(lm, "engine", None)
    if digest or isinstance(engine, str):
        return _BREAKERS.setdefault((lm.model, digest), Breaker(name))
    is_key = isinstance(engine, Hashable) and hasattr(engine, "__weakref__")
    return _OWN_BREAKERS.setdefault(engine if is_key else lm, Breaker(name))


# --- The attempts of one call


class _Retry(Exception):
    """Requests another attempt after a pause in seconds."""

    def __init__(self, pause: float) -> None:
        super().__init__()
        self.pause = pause


def _pause_of(state: tenacity.RetryCallState) -> float:
    error = state.outcome.exception() if state.outcome else None
    return error.pause if isinstance(error, _Retry) else 0.0


_RETRY = tenacity.retry_if_exception_type(_Retry)


def attempts() -> tenacity.Retrying:
    """Return attempts that repeat, with pauses, while they raise `_Retry`."""
    return tenacity.Retrying(sleep=time.sleep, retry=_RETRY, wait=_pause_of)


def async_attempts() -> tenacity.AsyncRetrying:
    """The same from a coroutine."""
    return tenacity.AsyncRetrying(sleep=asyncio.sleep, retry=_RETRY, wait=_pause_of)


_PROBE: Mapping[str, Any] = {"prompt": "Reply with the word OK.", "cache": False}
_UNOBSERVED: Mapping[str, Any] = {
    "callbacks": [], "caller_modules": [], "usage_tracker": None, "disable_history": True,
}  # fmt: skip
"""Settings under which a call reaches no callback, tracker or history."""


class Call:
    """The attempts of one call under the current `Patience`."""

    def __init__(self, lm: dspy.BaseLM) -> None:
        self.lm, self.patience, self.breaker = lm, Patience.current(), _breaker(lm)
        # A stream cannot start over: DSPy's own retries apply instead.
        self.retries = self.patience.retries if dspy.settings.send_stream is None else 0
        self.meter = dspy.settings.get(METER)
        self.begun, self.failed, self.waited = time.monotonic(), 0, 0.0

    @contextmanager
    def attempt(self, request: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
        """Yield what to send: the request, or a probe of an endpoint that was down.

        Raises:
            EndpointRefused: The endpoint refuses every call.
            EndpointDown: The endpoint has been down for too long.
        """
        if self.retries and (pause := self.breaker.pause(self, self.patience)):
            self.waited += pause
            if self.meter is not None:
                self.meter.waited += pause
            raise _Retry(pause)
        is_probe = self.breaker.prober is self
        try:
            with dspy.context(**_UNOBSERVED) if is_probe else nullcontext():
                yield _PROBE if is_probe else request
        except Exception as error:  # noqa: BLE001 - raised again unless a retry may help
            self._handle(error, is_probe)
        finally:
            self.breaker.release(self)
        self.breaker.answered()
        if is_probe:
            raise _Retry(0.0)

    def _handle(self, original: Exception, is_probe: bool) -> None:
        """Raise what follows from a failure; return if a probe showed that the server is up."""
        error = self._explained(original)
        remedies = map(failures.refusal_remedy, failures.causes(error))
        if remedy := next(filter(None, remedies), ""):
            found = f"{self.breaker.name} refuses: {_summary(error)}"
            if isinstance(error, dspy.LMNotConfiguredError):
                found = f"no API key for {self.lm.model}"
            raise failures.EndpointRefused(
                found, remedy=f"{remedy}; then run the same command again: finished work is kept"
            ) from error
        if not failures.is_transient(error):
            self.breaker.answered()
            if is_probe:
                return
            raise original
        hint = self._hint(error)
        if self.retries and self.breaker.failed(self, error, self.patience, hint):
            raise _Retry(0.0) from error
        pause = max(_jittered(min(2.0**self.failed / 2, _LONGEST_PAUSE)), hint)
        self.failed += 1
        spent = time.monotonic() - self.begun - self.waited
        if self.failed > self.retries or spent + pause > self.patience.call:
            raise error from error.__cause__
        raise _Retry(pause) from error

    def _explained(self, error: Exception) -> Exception:
        """Return the error; for a call that timed out, one that says what to do about it."""
        seconds = self.lm.kwargs.get("timeout")
        of_gateway = any(getattr(cause, "status", None) == 504 for cause in failures.causes(error))
        if not failures.is_timeout(error) or of_gateway or not isinstance(seconds, int | float):
            return error
        late: Exception = dspy.LMTimeoutError(
            f"No answer within --timeout {seconds:g} s: raise it, or cap replies with "
            "--lm-set max_tokens=500 (in Python, dspy.LM(timeout=600, max_tokens=500))"
        )
        late.__cause__ = error
        return late

    def _hint(self, error: BaseException) -> float:
        """Return the pause that the server requests, limited by `Patience.retry_after`."""
        asked = (getattr(cause, "retry_after", None) for cause in failures.causes(error))
        hint = next((n for n in asked if isinstance(n, int | float) and n > 0), 0.0)
        return min(float(hint), self.patience.retry_after)
