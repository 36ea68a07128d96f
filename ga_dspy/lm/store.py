"""The store of LM calls: cache, resume and cost ledger in one file.

A finished call is written to disk before its answer is used. A killed run or compilation that is
started again gets its finished calls from the store, so nothing is paid for twice.
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
from ga_dspy.lm.dspy_private import CallResult
from ga_dspy.lm.endpoints import EMBEDDED, UNRECORDED, server_address
from ga_dspy.storage import Journal
from ga_dspy.text import estimate_tokens

# --- Caps and spending


class BudgetExceeded(BaseException):
    """A cap is reached, and no further LM call is made.

    Not an `Exception`, because optimizers catch those, score the question 0 and continue.
    """


class Caps(NamedTuple):
    """Limits on spending; None for no limit. Money is in US dollars."""

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
        """Check that every cap allows at least one candidate to be tried.

        Raises:
            InputError: A cap is too low; the message names the smallest one that works.
        """
        for (name, cap), needed in zip(self._asdict().items(), least[:3], strict=True):
            if cap is not None and cap < (needed or 0):
                raise InputError(
                    f"a cap of {cap:,} {name} is too low to try anything: the program is measured "
                    "before and after, and a candidate on the validation questions",
                    expected=f"a cap of at least about {needed:,} {name}",
                    remedy="raise the cap, or pass fewer questions; finished calls are kept and "
                    "not paid for twice",
                )


class Spent(NamedTuple):
    """The cost of LM calls.

    Attributes:
        calls: The number of completions; a repeated request is answered from the store and counts
            once.
        tokens: Their prompt and completion tokens.
        money: US dollars; None if a price is unknown.
        replayed: How many of the completions an earlier run had made.
    """

    calls: int = 0
    tokens: int = 0
    money: float | None = 0.0
    replayed: int = 0

    def plus(self, other: Spent) -> Spent:
        """Return the sum."""
        money = None
        if self.money is not None and other.money is not None:
            money = self.money + other.money
        calls, tokens = self.calls + other.calls, self.tokens + other.tokens
        return Spent(calls, tokens, money, self.replayed + other.replayed)

    def times(self, factor: float) -> Spent:
        """Return the cost multiplied by a factor, rounded up."""
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
    """A finished call: DSPy's record of the result, its tokens, and its price if known."""

    result: dict[str, Any]
    tokens: int
    money: float | None


def _stored(text: str, tokens: int, money: float | None) -> StoredCall:
    result = json.loads(text)
    CallResult.load(result)
    return StoredCall(result, int(tokens), money)


class CallStore(Journal):
    """Finished LM calls by the digest of their request, and what this process spent on them.

    Threads may share a store. What is written contains no secrets.

    Args:
        path: The file.
        what: The kind of work that writes it ("run", "compilation"), for messages.
        is_temporary: Whether the file only serves to resume: it is removed when its `with` block
            ends without an error, or if it holds no call.
        on_spent: Called with the total spent, after each call.

    Attributes:
        spent: The total that this process has spent.
        paid: The keys of the calls that this process has counted.
        failures: The number of failed calls of this process.

    Raises:
        InUse: Another process has the file open.
        DamagedFile: The file is not a store.
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
        """Let one thread at a time work on a request, so that none is paid for twice.

        Yields the call with this digest if it is finished.
        """
        with self._books:
            turn = self._turns.setdefault(key, threading.Lock())
        with turn:
            rows = self.rows("SELECT key, result, tokens, money FROM call WHERE key = ?", [key])
            yield dict(self.readable(rows, _stored)).get(key)

    def keep(self, key: str, role: str, call: StoredCall) -> None:
        """Write a finished call."""
        # A legacy LM may return any object with attributes.
        text = json.dumps(call.result, ensure_ascii=False, default=vars)
        row = (key, role, call.tokens, call.money, text)
        self.write("INSERT OR REPLACE INTO call VALUES (?, ?, ?, ?, ?)", *row)

    def forget(self, role: object) -> None:
        """Remove the calls of a finished piece of work, whose result is stored elsewhere."""
        self.write("DELETE FROM call WHERE role = ?", str(role))

    def __exit__(self, *error: object) -> None:
        self._is_done = error[0] is None
        super().__exit__(*error)

    def close(self) -> None:
        """Close the file; remove a temporary one that is no longer needed."""
        is_obsolete = self._is_temporary
        try:
            if is_obsolete and not self._is_done:
                is_obsolete = not self.rows("SELECT 1 FROM call LIMIT 1")
        finally:
            super().close()
        if is_obsolete:
            self.path.unlink()

    def reserve(self, caps: Caps, asked: Spent) -> str:
        """Reserve a request before it is sent; return the reason if the caps do not allow it."""
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
        """Replace a reservation by what the request cost; nothing if it failed."""
        with self._books:
            self._reserved = self._reserved.plus(asked.times(-1))
            self.failures += cost is NOTHING
            self.spent = self.spent.plus(cost)
            self._books.notify_all()
        if self._on_spent is not None:
            self._on_spent(self.spent)

    def wait(self) -> None:
        """Wait for unfinished calls, such as those of threads that an optimizer left running."""
        with self._books:
            self._books.wait_for(lambda: self._reserved.calls <= 0, timeout=_UNDER_WAY)


class Gate:
    """Admits the LM calls of one phase until a cap is reached or the phase ends.

    Each phase has its own gate, so that threads left running by an optimizer cannot spend what is
    reserved for the next phase.

    Attributes:
        closed: Why no further call is admitted; empty while the gate is open.
        down: Why the endpoint was given up; empty if it was not.
    """

    def __init__(self, store: CallStore, caps: Caps | None = None) -> None:
        self.store, self.caps = store, caps or Caps()
        self.closed = ""
        self.down = ""

    def close(self, reason: str) -> None:
        """Admit no further calls; the first reason is kept."""
        self.closed = self.closed or reason

    def admit(self, asked: Spent) -> None:
        """Reserve a request.

        Raises:
            BudgetExceeded: A cap is reached, or the gate is closed.
        """
        if not self.closed:
            reached = self.store.reserve(self.caps, asked)
            if not reached:
                return
            self.close(reached)
        raise BudgetExceeded(self.closed)

    def fail(self, asked: Spent, error: BaseException) -> None:
        """Release a failed request; close the gate if the endpoint is down or refuses all calls."""
        self.store.settle(asked)
        if isinstance(error, RunAborted):
            self.down = self.down or str(error)
            self.close(self.down)


# --- One call


@dataclass(frozen=True)
class Scope:
    """The calls of one purpose.

    Attributes:
        gate: The gate that admits them.
        role: The purpose: "task", "reflection" or "prompt", or the name of a piece of work.
        counts: How often each request was made, if a repeated request asks for another reply;
            None if it gets the stored reply.
    """

    gate: Gate
    role: str
    counts: Counter[str] | None = None

    def answer(
        self, lm: dspy.BaseLM, request: dict[str, Any], send: Callable[[], Any]
    ) -> tuple[Any, dict[str, Any] | None]:
        """Answer a request from the store, or send and store it.

        Returns:
            The result of `send`, and None; or None, and the record of a stored call.

        Raises:
            BudgetExceeded: The gate is closed.
        """
        body, store = _body(lm, **request), self.gate.store
        key, n = self._key(lm, body), body.get("n") or 1
        with store.turn(key) as stored:
            if stored is not None and key in store.paid:
                return None, stored.result
            texts = [m.get("content") for m in body.get("messages", ())] or [body["request"]]
            prompt_tokens = sum(estimate_tokens(str(text)) for text in texts)
            asked = Spent(n, n * prompt_tokens)
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


# Settings that do not affect the answer, or must not be written.
_NOT_IN_KEY = {
    "api_key", "headers", "extra_headers", "cache", "timeout", "num_retries", "max_retries",
}  # fmt: skip


def _body(lm: dspy.BaseLM, prompt: Any, messages: Any, **settings: Any) -> dict[str, Any]:
    """Return the body of a request, with the LM's settings."""
    if isinstance(request := settings.get("request", prompt), Request):
        return {**settings, "request": request}
    asked = messages or [{"role": "user", "content": prompt}]
    body = {"model": lm.model, "messages": asked, **lm.kwargs, **settings}
    return {k: v for k, v in body.items() if v is not None or k != "rollout_id"}


_version = cache(version)  # parsing the package's metadata takes a millisecond


def request_key(lm: dspy.BaseLM, body: dict[str, Any]) -> str:
    """Return the SHA-256 of all that affects an answer: model, messages, settings, address."""
    engine = getattr(lm, "engine", "")
    custom = None
    if not isinstance(engine, str):  # the answers of the embedded LM depend on this version
        custom = f"{type(engine).__qualname__} {_version('ga-dspy')}"
    address = body.get("api_base") or body.get("base_url")
    record = {
        "model": lm.model,
        "type": lm.model_type,
        "engine": custom,
        "address": server_address(lm.model, address) or None,
        "n": body.get("n") or 1,
        "body": {k: v for k, v in body.items() if k not in _NOT_IN_KEY},
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
    """Make an LM call; return its answer and a result from which it can be replayed."""
    # DSPy appends its record of a call to the history of each calling module.
    history, settings = list[dict[str, Any]](), dspy.settings
    with dspy.context(
        caller_modules=[SimpleNamespace(history=history), *(settings.caller_modules or [])],
        disable_history=False,
        **{UNRECORDED: history if settings.disable_history else None},
    ):
        answer = send()
    entry = history[-1] if history else {"outputs": answer}
    raw = answer if isinstance(answer, Response) else entry.get("response")
    if isinstance(raw, Response):
        raw = (raw,)
    responses = raw if isinstance(raw, tuple) else ()
    names = ("outputs", "usage", "cost", "response_model", "cost_details")
    details: Any = {name: entry[name] for name in names if name in entry}
    return answer, CallResult(responses, raw=None if responses else raw, **details)


def _tokens(result: CallResult, prompt: int) -> int:
    """Return the reported tokens, also those of a reply from DSPy's cache; else an estimate."""
    if total := result.usage.get("total_tokens"):
        return int(total)
    replies = result.responses or (result.raw,)
    if result.usage:  # it covers all replies
        replies = replies[:1]
    reported = 0
    for reply in replies:
        reported += sum(reported_tokens({"usage": result.usage, "response": reply}) or ())
    return reported or prompt + sum(estimate_tokens(str(output)) for output in result.outputs)


def reported_tokens(record: dict[str, Any]) -> tuple[int, int] | None:
    """Return the prompt and completion tokens that the LM reported, now or in a cached reply."""
    usage = record.get("usage") or {}
    prompt, completion = usage.get("prompt_tokens"), usage.get("completion_tokens")
    if not prompt:
        report = getattr(record.get("response"), "usage", None)
        prompt, completion = (
            getattr(report, f"{new}_tokens", None) or getattr(report, f"{old}_tokens", None)
            for new, old in (("input", "prompt"), ("output", "completion"))
        )
    return (int(prompt), int(completion or 0)) if prompt else None
