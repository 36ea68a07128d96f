"""The store of LM calls: cache, resume and cost ledger in one file.

A finished call is on disk before its answer is used. A run or a compilation that was killed starts
again, and is answered from the store as far as it got: nothing is paid twice.
"""

from __future__ import annotations

import hashlib
import json
import math
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import dspy
import pydantic
from dspy.lm15 import Request, Response

from ga_dspy.errors import InputError, RunAborted
from ga_dspy.lm.connection import UNRECORDED
from ga_dspy.lm.dspy_private import CallResult
from ga_dspy.lm.endpoints import EMBEDDED, server_address
from ga_dspy.storage import Journal
from ga_dspy.text import estimate_tokens

# --- What calls may cost, and what they have cost


class BudgetExceeded(BaseException):
    """A cap is reached: no further LM call is made.

    Not an `Exception`: optimizers catch those, score the question 0 and go on.
    """


class Caps(NamedTuple):
    """The most that may be spent; None for no limit. Money is in US dollars."""

    calls: int | None = None
    tokens: int | None = None
    money: float | None = None

    def less(self, reserve: Spent) -> Caps:
        """Return what remains after a reserve."""
        return Caps._make(
            None if cap is None else cap - (kept or 0)
            for cap, kept in zip(self, reserve[:3], strict=True)
        )

    def check_enough(self, least: Spent) -> None:
        """Check that no cap is below what is needed to try anything.

        Raises:
            InputError: One is; the message names the smallest cap that works.
        """
        for (name, cap), needed in zip(self._asdict().items(), least[:3], strict=True):
            if cap is not None and cap < (needed or 0):
                raise InputError(
                    f"under a cap of {cap:,} {name} nothing could be tried: the program is "
                    "measured before and after, and a candidate on the validation questions",
                    expected=f"a cap of about {needed:,} {name} at least",
                    remedy="raise the cap, or pass fewer questions; finished calls are kept and "
                    "not paid twice",
                )


class Spent(NamedTuple):
    """What has been spent.

    Attributes:
        calls: LM calls, one for each completion; a repeated request is answered from the ledger
            and counts once.
        tokens: Prompt and completion tokens of those calls.
        money: US dollars; None where an LM has no known price.
        replayed: How many of the calls an earlier run had made already.
    """

    calls: int = 0
    tokens: int = 0
    money: float | None = 0.0
    replayed: int = 0

    def plus(self, other: Spent) -> Spent:
        """Return the sum."""
        known = self.money is not None and other.money is not None
        return Spent(
            self.calls + other.calls,
            self.tokens + other.tokens,
            (self.money or 0.0) + (other.money or 0.0) if known else None,
            self.replayed + other.replayed,
        )

    def times(self, factor: float) -> Spent:
        """Return the product, rounded up."""
        money = None if self.money is None else self.money * factor
        return Spent(math.ceil(self.calls * factor), math.ceil(self.tokens * factor), money)


NOTHING = Spent()


# --- The file

_TABLE = """
CREATE TABLE IF NOT EXISTS call (
  key TEXT PRIMARY KEY, role TEXT NOT NULL,
  tokens INTEGER NOT NULL, money REAL, result TEXT NOT NULL
)
"""
_UNDER_WAY = 60.0  # seconds


class StoredCall(NamedTuple):
    """A finished call: DSPy's record of the result, its tokens, its price where known."""

    result: dict[str, Any]
    tokens: int
    money: float | None


def _stored(text: str, tokens: int, money: float | None) -> StoredCall:
    result = json.loads(text)
    CallResult.load(result)
    return StoredCall(result, int(tokens), money)


class CallStore(Journal):
    """Finished LM calls by the digest of their request, and what this process has spent on them.

    Threads may share a store. Secrets are withheld from what is written.

    Args:
        path: The file.
        what: What writes it ("run", "compilation"), for messages.
        is_temporary: Whether the file only serves to resume: it is removed where its `with` block
            ends without an error, or where it holds no call.
        on_spent: Called with what has been spent, after each call.

    Attributes:
        spent: What this process has spent.
        paid: The keys of the calls that this process has counted.
        failures: How many calls of this process brought nothing.

    Raises:
        InUse: Another process has it open.
        DamagedFile: The file is something else.
    """

    def __init__(
        self,
        path: Path,
        what: str,
        *,
        is_temporary: bool = False,
        on_spent: Callable[[Spent], None] | None = None,
    ) -> None:
        super().__init__(path, what, {"call": _TABLE})
        self._on_spent = on_spent
        self.spent = Spent()
        self.paid: set[str] = set()
        self.failures = 0
        self._is_temporary, self._is_done = is_temporary, False
        self._reserved = Spent()
        self._books = threading.Condition()
        self._turns = WeakValueDictionary[str, threading.Lock]()

    @contextmanager
    def turn(self, key: str) -> Iterator[StoredCall | None]:
        """Let one thread at a time work on a request, so that two never pay for the same.

        Yields the call with this digest, if it is finished.
        """
        with self._books:
            turn = self._turns.setdefault(key, threading.Lock())
        with turn:
            rows = self.rows("SELECT key, result, tokens, money FROM call WHERE key = ?", [key])
            yield dict(self.readable(rows, _stored)).get(key)

    def keep(self, key: str, role: str, call: StoredCall) -> None:
        """Write a finished call."""
        # What an LM of the old kind returns may be anything with attributes.
        text = json.dumps(call.result, ensure_ascii=False, default=vars)
        row = (key, role, call.tokens, call.money, text)
        self.write("INSERT OR REPLACE INTO call VALUES (?, ?, ?, ?, ?)", *row)

    def forget(self, role: object) -> None:
        """Remove the calls of a piece of work that is done, and recorded elsewhere."""
        self.write("DELETE FROM call WHERE role = ?", str(role))

    def __exit__(self, *error: object) -> None:
        self._is_done = error[0] is None
        super().__exit__(*error)

    def close(self) -> None:
        """Close the file; remove a temporary one that is of no further use."""
        is_over = self._is_temporary
        try:
            if is_over and not self._is_done:
                is_over = not self.rows("SELECT 1 FROM call LIMIT 1")
        finally:
            super().close()
        if is_over:
            self.path.unlink()

    # --- What is spent

    def reserve(self, caps: Caps, asked: Spent) -> str:
        """Set a request aside before it is sent; return why if the caps do not allow it."""
        with self._books:
            spent, total = self.spent, self.spent.plus(self._reserved).plus(asked)
            if caps.calls is not None and total.calls > caps.calls:
                return f"the cap of LM calls was reached ({spent.calls:,} made)"
            if caps.tokens is not None and total.tokens > caps.tokens:
                return f"the cap of tokens was reached ({spent.tokens:,} used)"
            if caps.money is not None and spent.money is None:
                return "a cap of money is set, and a call had no known price"
            if caps.money is not None and (spent.money or 0.0) >= caps.money:
                return f"the cap of money was reached (${spent.money or 0.0:.4f} spent)"
            self._reserved = self._reserved.plus(asked)
            return ""

    def settle(self, asked: Spent, cost: Spent = NOTHING) -> None:
        """Book what a request that was set aside came to; nothing if it failed."""
        with self._books:
            self._reserved = self._reserved.plus(asked.times(-1))
            self.failures += cost is NOTHING
            self.spent = self.spent.plus(cost)
            self._books.notify_all()
        if self._on_spent is not None:
            self._on_spent(self.spent)

    def wait(self) -> None:
        """Wait for calls under way, such as those of threads that an optimizer left behind."""
        with self._books:
            self._books.wait_for(lambda: self._reserved.calls <= 0, timeout=_UNDER_WAY)


class Gate:
    """Lets the LM calls of one phase through until a cap is reached, or the phase is over.

    A phase has its own gate, so that threads an optimizer left behind cannot spend what is kept for
    the next phase.

    Attributes:
        closed: Why nothing is let through any more; empty while it is open.
        down: Why the endpoint was given up; empty if it was not.
    """

    def __init__(self, store: CallStore, caps: Caps | None = None) -> None:
        self.store, self.caps = store, caps or Caps()
        self.closed = ""
        self.down = ""

    def close(self, reason: str) -> None:
        """Let nothing through from here on; the first reason stays."""
        self.closed = self.closed or reason

    def admit(self, asked: Spent) -> None:
        """Set a request aside.

        Raises:
            BudgetExceeded: A cap is reached, or the gate was closed before.
        """
        if not self.closed:
            reached = self.store.reserve(self.caps, asked)
            if not reached:
                return
            self.close(reached)
        raise BudgetExceeded(self.closed)

    def fail(self, asked: Spent, error: BaseException) -> None:
        """Give a request up; where the endpoint is down, or refuses all, close the gate."""
        self.store.settle(asked)
        if isinstance(error, RunAborted):
            self.down = self.down or str(error)
            self.close(self.down)


# --- One call


@dataclass(frozen=True)
class Scope:
    """The calls of one purpose.

    Attributes:
        gate: The gate that they go through.
        role: What they are for: "task", "reflection" or "prompt", or a piece of work.
        counts: How often each request was made, where the same request asks for another reply;
            None where it is answered from the store.
    """

    gate: Gate
    role: str
    counts: Counter[str] | None = None

    def answer(
        self, lm: dspy.BaseLM, request: dict[str, Any], send: Callable[[], Any]
    ) -> tuple[Any, dict[str, Any] | None]:
        """Answer a request from the store, or send and store it.

        Returns:
            What `send` returned, and None; or None, and the record of a stored call.

        Raises:
            BudgetExceeded: The gate is closed.
        """
        body, store = _body(lm, **request), self.gate.store
        key, n = self._key(lm, body), body.get("n") or 1
        with store.turn(key) as stored:
            if stored is not None and key in store.paid:
                return None, stored.result
            texts = [m.get("content") for m in body.get("messages", ())] or [body["request"]]
            asked = Spent(n, n * sum(estimate_tokens(str(text)) for text in texts))
            self.gate.admit(asked)
            answer, call = None, stored
            if call is None:
                try:
                    answer, result = recorded(send)
                except BaseException as error:
                    self.gate.fail(asked, error)
                    raise
                price = 0.0 if lm.model == EMBEDDED else result.cost
                call = StoredCall(result.dump(), _tokens(result, asked.tokens), price)
                store.keep(key, self.role, call)
            store.paid.add(key)
            replayed = 0 if stored is None else n
            store.settle(asked, Spent(n, call.tokens, call.money, replayed))
            return answer, None if stored is None else call.result

    def _key(self, lm: dspy.BaseLM, body: dict[str, Any]) -> str:
        key = request_key(lm, body)
        if self.counts is None:
            return key
        self.counts[key] += 1
        return hashlib.sha256(f"{self.role} {key} {self.counts[key]}".encode()).hexdigest()


# What a request is sent with that decides no answer, or must not be written.
_LEFT_OUT = {
    "api_key", "headers", "extra_headers", "cache", "timeout", "num_retries", "max_retries",
}  # fmt: skip


def _body(lm: dspy.BaseLM, prompt: Any, messages: Any, **settings: Any) -> dict[str, Any]:
    """Return what is asked, with the LM's own settings."""
    if isinstance(request := settings.get("request", prompt), Request):
        return {**settings, "request": request}
    asked = messages or [{"role": "user", "content": prompt}]
    body = {"model": lm.model, "messages": asked, **lm.kwargs, **settings}
    return {k: v for k, v in body.items() if v is not None or k != "rollout_id"}


_version = cache(version)  # it parses the package's metadata, for a millisecond


def request_key(lm: dspy.BaseLM, body: dict[str, Any]) -> str:
    """Return the SHA-256 of all that decides an answer: model, messages, settings, address."""
    engine = getattr(lm, "engine", "")
    # The embedded LM answers by the code of this version.
    own = None if isinstance(engine, str) else f"{type(engine).__qualname__} {_version('ga-dspy')}"
    address = body.get("api_base") or body.get("base_url")
    record = {
        "model": lm.model,
        "type": lm.model_type,
        "engine": own,
        "address": server_address(lm.model, address) or None,
        "n": body.get("n") or 1,
        "body": {k: v for k, v in body.items() if k not in _LEFT_OUT},
    }
    text = json.dumps(record, sort_keys=True, default=_plain)
    return hashlib.sha256(text.encode()).hexdigest()


def _plain(value: Any) -> Any:
    if isinstance(value, type) and issubclass(value, pydantic.BaseModel):
        return value.model_json_schema()
    if isinstance(value, pydantic.BaseModel):
        return value.model_dump(mode="json")
    return repr(value)


def recorded(send: Callable[[], Any]) -> tuple[Any, CallResult]:
    """Make an LM call; return its answer, and the result from which it can be replayed."""
    # DSPy leaves its record of a call with each module that makes it.
    history, settings = list[dict[str, Any]](), dspy.settings
    with dspy.context(
        caller_modules=[SimpleNamespace(history=history), *(settings.caller_modules or [])],
        disable_history=False,
        **{UNRECORDED: history if settings.disable_history else None},
    ):
        answer = send()
    entry = history[-1] if history else {"outputs": answer}
    raw = answer if isinstance(answer, Response) else entry.get("response")
    responses = raw if isinstance(raw, tuple) else (raw,) if isinstance(raw, Response) else ()
    names = ("outputs", "usage", "cost", "response_model", "cost_details")
    about: Any = {name: entry[name] for name in names if name in entry}
    return answer, CallResult(responses, raw=None if responses else raw, **about)


def _tokens(result: CallResult, prompt: int) -> int:
    """Return tokens as reported; for a call from DSPy's cache by its reply; else estimated."""
    if total := result.usage.get("total_tokens"):
        return int(total)
    replies = result.responses or (result.raw,)
    known = [
        reported_tokens({"usage": result.usage, "response": reply})
        for reply in (replies[:1] if result.usage else replies)
    ]
    estimated = prompt + sum(estimate_tokens(str(output)) for output in result.outputs)
    return sum(sum(tokens) for tokens in known if tokens) or estimated


def reported_tokens(record: dict[str, Any]) -> tuple[int, int] | None:
    """Return prompt and completion tokens as the LM reported them, now or in its cached reply."""
    usage = record.get("usage") or {}
    prompt, completion = usage.get("prompt_tokens"), usage.get("completion_tokens")
    if not prompt:
        report = getattr(record.get("response"), "usage", None)
        prompt, completion = (
            getattr(report, f"{new}_tokens", None) or getattr(report, f"{old}_tokens", None)
            for new, old in (("input", "prompt"), ("output", "completion"))
        )
    return (int(prompt), int(completion or 0)) if prompt else None
