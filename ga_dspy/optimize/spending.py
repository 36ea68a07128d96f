"""Spending: caps, the ledger of finished LM calls, and LMs that pay through both.

An optimizer calls LMs on its own, in threads, and through copies that it makes of them. All of
these calls pass a `Gate` (is there money left?) and end in the `Ledger` (what was answered before,
in this run or in one that was killed, is answered from there). `LedgerLM` is the LM that does so.
"""

from __future__ import annotations

import hashlib
import json
import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import dspy
import pydantic
from dspy.clients.call_result import CallResult
from dspy.lm15 import Request
from dspy.utils.callback import with_callbacks

from ga_dspy import __version__
from ga_dspy.errors import InputError, RunAborted
from ga_dspy.eval.protocol import EMBEDDED
from ga_dspy.lm.endpoints import server_address
from ga_dspy.lm.patience import LMWrapper, PatientLM, metered, result_of
from ga_dspy.programs.calls import reported_tokens
from ga_dspy.storage import Journal
from ga_dspy.text import estimate_tokens


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
        """What remains for one purpose where `reserve` is kept for another."""
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
        """Both together."""
        known = self.money is not None and other.money is not None
        return Spent(
            self.calls + other.calls,
            self.tokens + other.tokens,
            (self.money or 0.0) + (other.money or 0.0) if known else None,
            self.replayed + other.replayed,
        )

    def times(self, factor: float) -> Spent:
        """The same, scaled; rounded up."""
        money = None if self.money is None else self.money * factor
        return Spent(math.ceil(self.calls * factor), math.ceil(self.tokens * factor), money)


NOTHING = Spent()

# --- The ledger: every finished LM call of a compilation, on disk, so that none is paid twice

_TABLE = """
CREATE TABLE IF NOT EXISTS call (
  key TEXT PRIMARY KEY, role TEXT NOT NULL,
  tokens INTEGER NOT NULL, money REAL, result TEXT NOT NULL
)
"""


class Kept(NamedTuple):
    """A finished call: DSPy's record of the result, its tokens, its price where known."""

    result: dict[str, Any]
    tokens: int
    money: float | None


def _kept(text: str, tokens: int, money: float | None) -> Kept:
    result = json.loads(text)
    CallResult.load(result)
    return Kept(result, int(tokens), money)


class Ledger(Journal):
    """Finished LM calls by the digest of their request, and what this run has spent on them.

    What was answered before a `kill -9` is there afterwards. Threads may share a ledger.

    Attributes:
        spent: What this run has spent.
        failures: How many calls of this run brought nothing.

    Raises:
        InUse: Another process has it open.
        DamagedFile: The file is something else.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path, "compilation", {"call": _TABLE})
        self.spent = Spent()
        self.paid: set[str] = set()
        self.failures = 0
        self._reserved = Spent()
        self._books = threading.Condition()
        self._turns: dict[str, threading.Lock] = {}

    @contextmanager
    def turn(self, key: str) -> Iterator[Kept | None]:
        """Let one thread at a time work on a request, so that two never pay for the same.

        Gives the call with this digest, where it was finished.
        """
        with self._books:
            turn = self._turns.setdefault(key, threading.Lock())
        with turn:
            rows = self.rows("SELECT key, result, tokens, money FROM call WHERE key = ?", [key])
            yield dict(self.readable(rows, _kept)).get(key)

    def keep(self, key: str, role: str, kept: Kept) -> None:
        """Write a finished call."""
        # What an LM of the old kind returns may be anything with attributes.
        text = json.dumps(kept.result, ensure_ascii=False, default=vars)
        self.write(
            "INSERT OR REPLACE INTO call VALUES (?, ?, ?, ?, ?)",
            *(key, role, kept.tokens, kept.money, text),
        )

    def reserve(self, caps: Caps, asked: Spent) -> str:
        """Set a request aside before it is sent; the reason where the caps do not allow it."""
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
        """Book what a request that was set aside came to; nothing where it failed."""
        with self._books:
            self._reserved = self._reserved.plus(asked.times(-1))
            self.failures += cost is NOTHING
            self.spent = self.spent.plus(cost)
            self._books.notify_all()

    def wait(self) -> None:
        """Wait for calls under way, such as those of threads that an optimizer left behind."""
        with self._books:
            self._books.wait_for(lambda: self._reserved.calls <= 0, timeout=_UNDER_WAY)


# --- LMs whose calls all go through the ledger and the gate of the phase they belong to

_UNDER_WAY = 60.0  # seconds
# What a request is sent with that decides no answer, or must not be written.
_LEFT_OUT = {
    "api_key", "headers", "extra_headers", "cache", "timeout", "num_retries", "max_retries",
}  # fmt: skip


class Gate:
    """Lets the LM calls of one phase through until a cap is reached, or the phase is over.

    A phase has its own gate, so that threads an optimizer left behind cannot spend what was kept
    for the next phase.

    Attributes:
        closed: Why nothing is let through any more; empty where it is.
        down: Why the endpoint was given up; empty where it was not.
    """

    def __init__(self, ledger: Ledger, caps: Caps) -> None:
        self.ledger, self.caps = ledger, caps
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
        self.closed = self.closed or self.ledger.reserve(self.caps, asked)
        if self.closed:
            raise BudgetExceeded(self.closed)

    def failed(self, asked: Spent, error: BaseException) -> None:
        """Give a request up; where the endpoint is down, or refuses all, the gate closes."""
        self.ledger.settle(asked)
        if isinstance(error, RunAborted):
            self.down = self.down or str(error)
            self.close(self.down)


class LedgerLM(LMWrapper):
    """An LM before an LM: a request is answered from the ledger, or sent on and written there.

    Whatever is no call is asked of the LM behind it, which is left as it is. Copies keep to the
    same gate and ledger.

    Args:
        lm: The LM that is called.
        role: What it is for: "task", "reflection" or "prompt".
        gate: The gate of the phase.
    """

    def __init__(self, lm: dspy.BaseLM, role: str, gate: Gate) -> None:
        super().__init__((lm.lm if isinstance(lm, LMWrapper) else lm).copy())
        self.role, self.gate = role, gate

    def with_lm(self, lm: dspy.BaseLM) -> LedgerLM:
        """An LM that pays in the same way."""
        return LedgerLM(lm, self.role, self.gate)

    def __call__(self, prompt: Any = None, *, messages: Any = None, **kwargs: Any) -> Any:
        """Answer as the LM itself would.

        Raises:
            BudgetExceeded: The gate is closed.
        """
        with metered():
            return self._answer(prompt, messages=messages, **kwargs)

    @with_callbacks  # type: ignore[untyped-decorator]
    def _answer(self, prompt: Any = None, *, messages: Any = None, **kwargs: Any) -> Any:
        request = {"prompt": prompt, "messages": messages, **kwargs}
        body = self._body(**request)
        key, ledger = self._key(body), self.gate.ledger
        with ledger.turn(key) as kept:
            if kept is None or key not in ledger.paid:
                kept = self._pay(key, kept, body, request)
        # Always from the record, so that a replayed call and a fresh one cannot differ.
        return self.replay(kept.result, prompt, messages, kwargs)

    async def acall(self, prompt: Any = None, *, messages: Any = None, **kwargs: Any) -> Any:
        """The same from a coroutine, in a worker thread."""
        return await dspy.asyncify(self)(prompt, messages=messages, **kwargs)

    def _body(self, prompt: Any, messages: Any, **settings: Any) -> dict[str, Any]:
        """What is asked, with the LM's own settings."""
        if isinstance(request := settings.get("request", prompt), Request):
            return {**settings, "request": request}
        asked = messages or [{"role": "user", "content": prompt}]
        body = {"model": self.model, "messages": asked, **self.kwargs, **settings}
        return {k: v for k, v in body.items() if v is not None or k != "rollout_id"}

    def _key(self, body: dict[str, Any]) -> str:
        """SHA-256 of all that decides an answer: model, messages, settings, rollout, address."""
        engine = getattr(self.lm, "engine", "")
        own = None if isinstance(engine, str) else f"{type(engine).__qualname__} {__version__}"
        address = body.get("api_base") or body.get("base_url")
        record = {
            "model": self.model,
            "type": self.model_type,
            "engine": own,
            "address": server_address(self.model, address) or None,
            "n": body.get("n") or 1,
            "body": {k: v for k, v in body.items() if k not in _LEFT_OUT},
        }
        text = json.dumps(record, sort_keys=True, default=_plain)
        return hashlib.sha256(text.encode()).hexdigest()

    def _pay(
        self, key: str, kept: Kept | None, body: dict[str, Any], request: dict[str, Any]
    ) -> Kept:
        """Book a call, after sending it where no earlier run did."""
        ledger, n = self.gate.ledger, body.get("n") or 1
        texts = [m.get("content") for m in body.get("messages", ())] or [body["request"]]
        asked = Spent(n, n * sum(estimate_tokens(str(text)) for text in texts))
        self.gate.admit(asked)
        replayed = 0 if kept is None else n
        if kept is None:
            try:
                result = self._send(request)
            except BaseException as error:
                self.gate.failed(asked, error)
                raise
            price = 0.0 if self.model == EMBEDDED else result.cost
            kept = Kept(result.dump(), _tokens(result, asked.tokens), price)
            ledger.keep(key, self.role, kept)
        ledger.paid.add(key)
        ledger.settle(asked, Spent(n, kept.tokens, kept.money, replayed))
        return kept

    def _send(self, request: dict[str, Any]) -> CallResult:
        """Call the LM; what it answered and cost is in the entry that it makes in its history."""
        entries: list[dict[str, Any]] = []
        lm = self.lm.copy(callbacks=[])
        lm.update_history = entries.append
        # Callbacks, trackers and modules hear of the call once: from this LM, not from that one.
        patient = PatientLM(lm)
        patient.tells_meter = False
        with dspy.context(callbacks=[], usage_tracker=None, disable_history=False):
            answer = patient(**request)
        return result_of(answer, entries)


def _plain(value: Any) -> Any:
    if isinstance(value, type) and issubclass(value, pydantic.BaseModel):
        return value.model_json_schema()
    if isinstance(value, pydantic.BaseModel):
        return value.model_dump(mode="json")
    return repr(value)


def _tokens(result: CallResult, prompt: int) -> int:
    """As reported; of a call from DSPy's cache, as its reply reports; else estimated."""
    if total := result.usage.get("total_tokens"):
        return int(total)
    replies = result.responses or (result.raw,)
    known = [
        reported_tokens({"usage": result.usage, "response": reply})
        for reply in (replies[:1] if result.usage else replies)
    ]
    estimated = prompt + sum(estimate_tokens(str(output)) for output in result.outputs)
    return sum(sum(tokens) for tokens in known if tokens) or estimated
