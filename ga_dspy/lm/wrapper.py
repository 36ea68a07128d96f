"""The wrapper around an LM through which programs make their calls."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Self

import dspy
from dspy.utils import with_callbacks

from ga_dspy.lm.dspy_private import CallResult, finalize, prepare
from ga_dspy.lm.endpoints import connect, endpoint_digest
from ga_dspy.lm.patience import METER, Call, async_attempts, attempts
from ga_dspy.lm.store import CallStore, Gate, Scope

# DSPy's own adapters still send OpenAI-style messages. And a rollout id does distinguish cached
# replies at temperature 0, whatever the warning says.
warnings.filterwarnings("ignore", "Passing OpenAI-style message", DeprecationWarning, __name__)
warnings.filterwarnings("ignore", "rollout_id has no effect", UserWarning, "dspy.clients")


def _delegated(name: str) -> Any:
    return property(lambda self: getattr(self.lm, name), doc="The value of the wrapped LM.")


class LMWrapper(dspy.BaseLM):
    """Wraps an LM; other attributes delegate to it.

    A call takes these steps in this order. The first two and the last two need a `Scope`:

    1. Store: a finished call is replayed from disk, without calling the LM.
    2. Budget: the request is reserved under the caps, or `BudgetExceeded` ends the phase.
    3. Patience: the circuit breaker holds the call back while the endpoint is down; transient
       errors are retried, permanent ones end the run (`EndpointRefused`, `EndpointDown`).
    4. Connection: DSPy sends one attempt, or answers from its cache, which is kept per server.
    5. Store: the answer is written to disk, without secrets, before it is used.
    6. Budget: the cost of the call is recorded.

    Callbacks, trackers and history receive each attempt, or one replayed call. While a reply is
    streamed, DSPy's own retries apply instead.

    Args:
        lm: The LM.
        scope: Stores and counts the calls; None to store nothing.
    """

    supports_function_calling = _delegated("supports_function_calling")
    supports_reasoning = _delegated("supports_reasoning")
    supports_response_schema = _delegated("supports_response_schema")
    supported_params = _delegated("supported_params")

    def __init__(self, lm: dspy.BaseLM, scope: Scope | None = None) -> None:
        self.lm, self.scope = lm, scope
        super().__init__(lm.model, lm.model_type, cache=lm.cache, callbacks=lm.callbacks)
        self.kwargs, self.history = lm.kwargs, lm.history

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "lm":
            raise AttributeError(name)
        return getattr(self.lm, name)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def with_lm(self, lm: dspy.BaseLM) -> LMWrapper:
        """Return the same wrapper around another LM."""
        return LMWrapper(lm, self.scope)

    def copy(self, **kwargs: Any) -> Any:
        """Return the same wrapper around a copy of the LM with other settings."""
        return self.with_lm(self.lm.copy(**kwargs))

    def __call__(self, prompt: Any = None, *, messages: Any = None, **kwargs: Any) -> Any:
        """Call the LM, or replay a stored call.

        Raises:
            BudgetExceeded: A cap is reached.
            EndpointRefused: The endpoint refuses every call.
            EndpointDown: The endpoint has been down for too long.
        """
        request = {"prompt": prompt, "messages": messages, **kwargs}
        if self.scope is None:
            return self._send(request)
        answer, record = self.scope.answer(self.lm, request, partial(self._send, request))
        return answer if record is None else Replayed(self.lm, record)(**request)

    async def acall(self, prompt: Any = None, *, messages: Any = None, **kwargs: Any) -> Any:
        """Do the same from a coroutine; in a worker thread if calls are stored."""
        request = {"prompt": prompt, "messages": messages, **kwargs}
        if self.scope is not None:
            return await dspy.asyncify(self)(**request)
        lm, request = self._connected(request)
        call = Call(self.lm)
        answer: Any = None
        async for attempt in async_attempts():
            with attempt, call.attempt(request) as sent:
                answer = await lm.acall(**sent)
        return answer

    def _send(self, request: dict[str, Any]) -> Any:
        """Send a request, with the retries that the current `Patience` allows."""
        lm, request = self._connected(request)
        call = Call(self.lm)
        answer: Any = None
        for attempt in attempts():
            with attempt, call.attempt(request) as sent:
                answer = lm(**sent)
        return answer

    def _connected(self, request: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        """Return the LM for one attempt, and the request with the server's digest in it.

        DSPy's cache key contains the rollout id but not the server, so the digest becomes part of
        the rollout id.
        """
        lm: Any = self.lm
        if isinstance(lm, dspy.LM) and (digest := endpoint_digest(lm)):
            rollout = request.get("rollout_id", lm.kwargs.get("rollout_id"))
            rollout = digest if rollout is None else f"{digest}-{rollout}"
            request = {**request, "rollout_id": rollout}
        if type(lm) is dspy.LM and dspy.settings.send_stream is None:
            lm = connect(lm, {k: v for k, v in request.items() if k not in _CONTENT})
        return lm, request


_CONTENT = ("prompt", "messages", "request")


class Replayed(LMWrapper):
    """Answers a call from its record; callbacks, trackers and history receive it like any call."""

    def __init__(self, lm: dspy.BaseLM, record: dict[str, Any]) -> None:
        super().__init__(lm)
        self.record = record

    @with_callbacks  # type: ignore[untyped-decorator]
    def __call__(self, prompt: Any = None, *, messages: Any = None, **kwargs: Any) -> Any:
        """Return the recorded answer."""
        # DSPy counts the tokens of a call that was not answered from its cache.
        usage = self.record["usage"]
        result = replace(CallResult.load(self.record), usage=usage, cache_hit=not usage)
        return finalize(self, prepare(self, prompt, messages, kwargs), result)


# --- Wrapping


def wrap(lm: Any, like: Any = None) -> Any:
    """Return an LM in a wrapper; unchanged if it is wrapped already or is not an LM.

    Args:
        lm: The LM.
        like: The wrapper of another LM, whose store, budget or cluster this LM shares.
    """
    if not isinstance(lm, dspy.BaseLM) or isinstance(lm, LMWrapper):
        return lm
    return like.with_lm(lm) if isinstance(like, LMWrapper) else LMWrapper(lm)


def unwrapped(lm: Any) -> Any:
    """Return the LM without its wrappers."""
    while isinstance(lm, LMWrapper):
        lm = lm.lm
    return lm


def wrap_for_work(lm: Any, store: CallStore, work: object, gate: Gate | None = None) -> Any:
    """Return an LM whose calls are stored until a piece of work is done (`CallStore.forget`).

    Work that is interrupted and started again gets the stored answers. An LM that already stores
    its calls elsewhere is returned unchanged. Calls go through the gate, if one is given.
    """
    is_stored = type(lm) is not LMWrapper or lm.scope is not None
    if not isinstance(lm, dspy.BaseLM) or (isinstance(lm, LMWrapper) and is_stored):
        return lm
    return LMWrapper(unwrapped(lm), Scope(gate or Gate(store), str(work), Counter()))


def wrap_for_gate(lm: dspy.BaseLM, gate: Gate, role: str) -> LMWrapper:
    """Return a copy of an LM whose calls go through a gate and stay in its store."""
    return LMWrapper(unwrapped(lm).copy(), Scope(gate, role))


class StepLMs(LMWrapper):
    """The LMs of a program's steps as one LM, for code that expects a program to have one.

    Args:
        lm: Answers the other steps, and calls outside a program.
        steps: LMs by step name.
    """

    def __init__(self, lm: dspy.BaseLM, steps: Mapping[str, dspy.BaseLM]) -> None:
        super().__init__(lm)
        self.steps = steps

    def of_step(self, step: str) -> dspy.BaseLM:
        """Return the LM for a step."""
        return self.steps.get(step, self.lm)

    def with_lm(self, lm: dspy.BaseLM) -> Any:
        """Return an LM in the same wrapper."""
        return wrap(lm, like=self.lm)

    def copy(self, **kwargs: Any) -> StepLMs:
        """Return a copy whose LMs have other settings."""
        steps = {step: lm.copy(**kwargs) for step, lm in self.steps.items()}
        return StepLMs(self.lm.copy(**kwargs), steps)

    @property
    def _current(self) -> Any:
        """The LM of the current step."""
        return self.of_step(getattr(dspy.settings.get(METER), "step", ""))

    def __call__(self, prompt: Any = None, *, messages: Any = None, **kwargs: Any) -> Any:
        """Call the LM of the current step."""
        return self._current(prompt, messages=messages, **kwargs)

    async def acall(self, prompt: Any = None, *, messages: Any = None, **kwargs: Any) -> Any:
        """Call the LM of the current step from a coroutine."""
        return await self._current.acall(prompt, messages=messages, **kwargs)
