"""What LM calls may cost, and what they have cost."""

from __future__ import annotations

import math
from typing import NamedTuple

from ga_dspy.errors import InputError


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
