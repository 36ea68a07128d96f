"""The wrapper around an LM, through which a program makes its calls."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Self

import dspy
from dspy.utils import with_callbacks

from ga_dspy.lm.connection import connect
from ga_dspy.lm.dspy_private import CallResult, finalize, prepare
from ga_dspy.lm.endpoints import endpoint_digest
from ga_dspy.lm.patience import METER, Call, async_attempts, attempts
from ga_dspy.lm.store import CallStore, Gate, Scope

# DSPy's adapters still send such messages; here they are only passed on. And a rollout id does
# tell cached replies apart at temperature 0, whatever the warning says.
warnings.filterwarnings("ignore", "Passing OpenAI-style message", DeprecationWarning, __name__)
warnings.filterwarnings("ignore", "rollout_id has no effect", UserWarning, "dspy.clients")


def _of_the_lm(name: str) -> Any:
    return property(lambda self: getattr(self.lm, name), doc="As the LM says.")


class LMWrapper(dspy.BaseLM):
    """Wraps an LM; attributes and copies are those of the LM.

    A call goes through these, in this order. The first two and the last two need a `Scope`:

    1. Store: a call that is on disk is replayed from there. No LM is called.
    2. Budget: a request is set aside under the caps, or `BudgetExceeded` ends the phase.
    3. Patience: the breaker of the endpoint holds the call back while it is down, transient errors
       are retried, permanent ones end the run (`EndpointRefused`, `EndpointDown`).
    4. Connection: DSPy sends one attempt, or answers from its cache, by server.
    5. Store: the answer is appended before it is used, with secrets withheld.
    6. Budget: what the call cost is booked.

    Callbacks, trackers and history hear of each attempt, or of one replayed call. While a reply is
    streamed DSPy's own retries apply.

    Args:
        lm: The LM.
        scope: Where its calls are stored and counted; None to store nothing.
    """

    supports_function_calling = _of_the_lm("supports_function_calling")
    supports_reasoning = _of_the_lm("supports_reasoning")
    supports_response_schema = _of_the_lm("supports_response_schema")
    supported_params = _of_the_lm("supported_params")

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
        """Return the same wrapper around a copy with other settings."""
        return self.with_lm(self.lm.copy(**kwargs))

    def __call__(self, prompt: Any = None, *, messages: Any = None, **kwargs: Any) -> Any:
        """Answer as the LM itself would, or did.

        Raises:
            BudgetExceeded: A cap is reached.
            EndpointRefused: No call will be answered.
            EndpointDown: The endpoint was down for too long.
        """
        request = {"prompt": prompt, "messages": messages, **kwargs}
        if self.scope is None:
            return self._send(request)
        answer, record = self.scope.answer(self.lm, request, partial(self._send, request))
        return answer if record is None else Replayed(self.lm, record)(**request)

    async def acall(self, prompt: Any = None, *, messages: Any = None, **kwargs: Any) -> Any:
        """The same from a coroutine; in a worker thread where the call is stored."""
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
        """Send a request, as often as the `Patience` in force allows."""
        lm, request = self._connected(request)
        call = Call(self.lm)
        answer: Any = None
        for attempt in attempts():
            with attempt, call.attempt(request) as sent:
                answer = lm(**sent)
        return answer

    def _connected(self, request: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        """Return the LM for one attempt, and the request with the server's digest in it.

        DSPy's cache knows a reply by its rollout id, too, and not by the server.
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
    """Answers a call from its record; callbacks, trackers and history hear of it as of a call."""

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


# --- Who is wrapped by what


def wrap(lm: Any, like: Any = None) -> Any:
    """Return an LM in its wrapper; itself if it has one, or is no LM.

    Args:
        lm: The LM.
        like: A wrapper of another LM, whose store, budget or cluster the calls go through, too.
    """
    if not isinstance(lm, dspy.BaseLM) or isinstance(lm, LMWrapper):
        return lm
    return like.with_lm(lm) if isinstance(like, LMWrapper) else LMWrapper(lm)


def unwrapped(lm: Any) -> Any:
    """Return the LM inside its wrappers."""
    while isinstance(lm, LMWrapper):
        lm = lm.lm
    return lm


def wrap_for_work(lm: Any, store: CallStore, work: object, gate: Gate | None = None) -> Any:
    """Return an LM whose calls are stored until a piece of work is done (`CallStore.forget`).

    The work may be interrupted and begin again: it is answered as before as far as it got. An LM
    that stores its calls elsewhere is returned as it is. Calls go through the gate, if there is
    one.
    """
    is_stored = type(lm) is not LMWrapper or lm.scope is not None
    if not isinstance(lm, dspy.BaseLM) or (isinstance(lm, LMWrapper) and is_stored):
        return lm
    return LMWrapper(unwrapped(lm), Scope(gate or Gate(store), str(work), Counter()))


def wrap_for_gate(lm: dspy.BaseLM, gate: Gate, role: str) -> LMWrapper:
    """Return a copy of an LM whose calls go through a gate, and are stored for good."""
    return LMWrapper(unwrapped(lm).copy(), Scope(gate, role))


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
        """Return the LM that answers a step."""
        return self.steps.get(step, self.lm)

    def with_lm(self, lm: dspy.BaseLM) -> Any:
        """Return an LM wrapped as these are."""
        return wrap(lm, like=self.lm)

    def copy(self, **kwargs: Any) -> StepLMs:
        """Return the same over copies with other settings."""
        steps = {step: lm.copy(**kwargs) for step, lm in self.steps.items()}
        return StepLMs(self.lm.copy(**kwargs), steps)

    @property
    def _current(self) -> Any:
        """The LM of the step under way."""
        return self.of_step(getattr(dspy.settings.get(METER), "step", ""))

    def __call__(self, prompt: Any = None, *, messages: Any = None, **kwargs: Any) -> Any:
        """Answer as the step's LM does."""
        return self._current(prompt, messages=messages, **kwargs)

    async def acall(self, prompt: Any = None, *, messages: Any = None, **kwargs: Any) -> Any:
        """The same from a coroutine."""
        return await self._current.acall(prompt, messages=messages, **kwargs)
