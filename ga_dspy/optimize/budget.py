"""What a compilation may spend and has spent, and how it is stopped."""

from __future__ import annotations

import threading
from typing import NamedTuple

from ga_dspy.errors import InputError

_SUSPICIOUS = 3


class BudgetExceeded(BaseException):
    """A cap is reached: no further LM call is made.

    Not an `Exception`: optimizers catch those, score the question 0 and go on.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Caps(NamedTuple):
    """The most that may be spent; None for no limit. Money is in US dollars."""

    calls: int | None = None
    tokens: int | None = None
    money: float | None = None

    def checked(self) -> Caps:
        """Itself.

        Raises:
            InputError: A cap is not above 0.
        """
        for name, value in self._asdict().items():
            if value is not None and value <= 0:
                raise InputError(
                    f"the cap on {name} is {value}", expected="more than 0", remedy="or no cap"
                )
        return self

    def less(self, reserve: Spent) -> Caps:
        """What remains for one purpose where `reserve` is kept for another."""
        kept = (reserve.calls, reserve.tokens, reserve.money or 0.0)
        calls, tokens, money = (
            None if cap is None else cap - keep for cap, keep in zip(self, kept, strict=True)
        )
        return Caps(
            None if calls is None else int(calls), None if tokens is None else int(tokens), money
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

    def times(self, factor: float) -> Spent:
        """The same, scaled; rounded up."""
        money = None if self.money is None else self.money * factor
        return Spent(-int(-self.calls * factor // 1), -int(-self.tokens * factor // 1), money)


class Asked(NamedTuple):
    """What a request will cost at least: completions asked for, and tokens of its prompts."""

    calls: int
    tokens: int


class Account:
    """Counts what is spent; safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._spent = Spent()
        self._pending_calls = 0
        self._pending_tokens = 0

    @property
    def spent(self) -> Spent:
        """All that was spent up to now."""
        with self._lock:
            return self._spent

    def reserve(self, caps: Caps, asked: Asked) -> str:
        """Set a request aside before it is sent; the reason where the caps do not allow it."""
        with self._lock:
            calls = self._spent.calls + self._pending_calls + asked.calls
            total = self._spent.tokens + self._pending_tokens + asked.tokens
            if caps.calls is not None and calls > caps.calls:
                return f"the cap of LM calls was reached ({self._spent.calls:,} made)"
            if caps.tokens is not None and total > caps.tokens:
                return f"the cap of tokens was reached ({self._spent.tokens:,} used)"
            if caps.money is not None and self._spent.money is None:
                return "a cap of money is set, and a call had no known price"
            if caps.money is not None and (self._spent.money or 0.0) >= caps.money:
                return f"the cap of money was reached (${self._spent.money or 0.0:.4f} spent)"
            self._pending_calls += asked.calls
            self._pending_tokens += asked.tokens
            return ""

    def release(self, asked: Asked) -> None:
        """Give up a request that was set aside: it failed."""
        with self._lock:
            self._pending_calls -= asked.calls
            self._pending_tokens -= asked.tokens

    def settle(self, asked: Asked, tokens: int, money: float | None, *, replayed: bool) -> None:
        """Book a request that was set aside."""
        with self._lock:
            self._pending_calls -= asked.calls
            self._pending_tokens -= asked.tokens
            total = (
                None if money is None or self._spent.money is None else self._spent.money + money
            )
            self._spent = Spent(
                self._spent.calls + asked.calls,
                self._spent.tokens + tokens,
                total,
                self._spent.replayed + (asked.calls if replayed else 0),
            )


class Gate:
    """Lets the LM calls of one phase through until a cap is reached, or the phase is over.

    A phase has its own gate, so that threads an optimizer left behind cannot spend what was kept
    for the next phase.
    """

    def __init__(self, account: Account, caps: Caps, *, patience: int = 10) -> None:
        self.account, self.caps, self._patience = account, caps, patience
        self.closed = ""
        self._lock = threading.Lock()
        self._failures = 0
        self._error = ""

    @property
    def down(self) -> str:
        """Why the LM seems to be down; empty where one of the last three calls was answered."""
        if self._failures < _SUSPICIOUS:
            return ""
        return f"{self._failures} LM calls in a row failed ({self._error})"

    def admit(self, asked: Asked) -> None:
        """Set a request aside.

        Raises:
            BudgetExceeded: A cap is reached, or the gate was closed before.
        """
        self.closed = self.closed or self.account.reserve(self.caps, asked)
        if self.closed:
            raise BudgetExceeded(self.closed)

    def failed(self, asked: Asked, error: Exception) -> None:
        """Note a call that failed; too many in a row close the gate."""
        self.account.release(asked)
        with self._lock:
            self._failures += 1
            self._error = f"{type(error).__name__}: {error}"[:300]
        if self._failures >= self._patience:
            self.closed = self.closed or self.down

    def succeeded(self) -> None:
        """Note a call that did not fail."""
        with self._lock:
            self._failures = 0
