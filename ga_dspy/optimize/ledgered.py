"""LMs whose calls all go through the ledger and the gate of the phase they belong to."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import threading
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import dspy
import pydantic
from dspy.clients.call_result import CallResult
from dspy.clients.execution import execute, finalize, prepare
from dspy.utils.callback import with_callbacks

from ga_dspy import __version__
from ga_dspy.optimize.budget import Asked, Gate
from ga_dspy.optimize.ledger import Kept, Ledger
from ga_dspy.tokens import estimate_tokens

EMBEDDED = "ga-dspy/extractive"
_ADDRESSES = ("api_base", "base_url")
_SECRETS = {"api_key", "headers", "extra_headers", "cache"}


@dataclass
class Books:
    """The ledger of a compilation, and which of its calls this run has used already."""

    ledger: Ledger
    used: set[str] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def use(self, key: str) -> None:
        """Note that this run has used a call: from now on it is free."""
        with self._lock:
            self.used.add(key)


class Ledgered:
    """Mixed into an LM's class: a request is answered from the ledger, or sent and written there.

    Copies (`lm.copy(rollout_id=1)`) keep to the same books and the same gate.
    """

    books: Books
    gate: Gate
    role: str

    @with_callbacks  # type: ignore[untyped-decorator]
    def __call__(self, prompt: Any = None, *, messages: Any = None, **kwargs: Any) -> Any:
        """Answer as the LM itself would."""
        call = prepare(self, prompt, messages, kwargs)
        return finalize(self, call, _answered(self, call))

    async def acall(self, prompt: Any = None, *, messages: Any = None, **kwargs: Any) -> Any:
        """The same from a coroutine, in a worker thread."""
        return await asyncio.to_thread(self.__call__, prompt, messages=messages, **kwargs)

    def __deepcopy__(self, memo: dict[int, Any]) -> Ledgered:
        return self


def ledgered(lm: dspy.BaseLM, role: str, books: Books, gate: Gate) -> dspy.BaseLM:
    """A copy of an LM that pays through the books; the LM itself is left as it is."""
    copied = lm.copy()
    copied.__class__ = _ledgered_class(lm.__class__)
    copied.books, copied.gate, copied.role = books, gate, role
    return copied


@lru_cache(maxsize=32)
def _ledgered_class(kind: type) -> type:
    base = next(
        (c for c in kind.__mro__ if c is not Ledgered and not issubclass(c, Ledgered)), kind
    )
    return type(f"Ledgered{base.__name__}", (Ledgered, base), {})


def _answered(lm: Any, call: Any) -> CallResult:
    key = _digest(lm, call)
    books: Books = lm.books
    with books.ledger.turn(key):
        kept = books.ledger.find(key)
        if key not in books.used or kept is None:
            kept = _paid(lm, call, key, kept)
            books.use(key)
    # Always from the record, so that a replayed call and a fresh one cannot differ.
    result = CallResult.load(kept.result)
    return replace(result, usage=kept.result["usage"], cache_hit=False)


def _paid(lm: Any, call: Any, key: str, kept: Kept | None) -> Kept:
    """Book a call, after sending it where no earlier run did."""
    gate: Gate = lm.gate
    asked = Asked(call.n, call.n * _prompt_tokens(call))
    gate.admit(asked)
    replayed = kept is not None
    if kept is None:
        try:
            result = execute(lm, call)
        except Exception as error:
            gate.failed(asked, error)
            raise
        except BaseException:
            gate.account.release(asked)
            raise
        kept = Kept(result.dump(), _tokens(result, asked.tokens), _price(lm, result))
        lm.books.ledger.keep(key, lm.role, kept)
    gate.account.settle(asked, kept.tokens, kept.money, replayed=replayed)
    gate.succeeded()
    return kept


def _digest(lm: Any, call: Any) -> str:
    """SHA-256 of all that decides an answer: model, messages, configuration, rollout, address."""
    engine = getattr(lm, "_engine_spec", type(lm).__name__)
    own = None if isinstance(engine, str) else f"{type(engine).__qualname__} {__version__}"
    body = call.legacy if call.request is None else {"request": call.request, **call.kwargs}
    address = next((body[name] for name in _ADDRESSES if body.get(name)), None)
    request = {
        "model": lm.model,
        "type": lm.model_type,
        "engine": own,
        "address": address
        or os.environ.get("OPENAI_API_BASE")
        or os.environ.get("OPENAI_BASE_URL"),
        "n": call.n,
        "body": {k: v for k, v in body.items() if k not in _SECRETS},
    }
    text = json.dumps(request, sort_keys=True, default=_plain)
    return hashlib.sha256(text.encode()).hexdigest()


def _plain(value: Any) -> Any:
    if isinstance(value, type) and issubclass(value, pydantic.BaseModel):
        return value.model_json_schema()
    if isinstance(value, pydantic.BaseModel):
        return value.model_dump(mode="json")
    return repr(value)


def _prompt_tokens(call: Any) -> int:
    if call.request is not None:
        return estimate_tokens(str(call.request))
    return sum(estimate_tokens(str(message.get("content"))) for message in call.legacy["messages"])


def _tokens(result: CallResult, prompt: int) -> int:
    usage = result.usage or {}
    parts = (usage.get("prompt_tokens") or 0) + (usage.get("completion_tokens") or 0)
    said = sum(estimate_tokens(str(output)) for output in result.outputs)
    return int(usage.get("total_tokens") or parts or prompt + said)


def _price(lm: Any, result: CallResult) -> float | None:
    return 0.0 if lm.model == EMBEDDED else result.cost
