"""What LM calls cost: calls, tokens, money."""

from __future__ import annotations

from collections.abc import Iterable

from pydantic import BaseModel, ConfigDict


class Usage(BaseModel):
    """The cost of some LM calls.

    Attributes:
        calls: LM calls, answered from DSPy's cache or not.
        cached: How many of them came from the cache.
        prompt_tokens: As the LM reports them, for a cached call as it reported them when it was
            made; estimated for a call that tells none.
        completion_tokens: The same for what the LM wrote.
        cost: US dollars, a cached call at what it cost when it was made; None where the price of
            a call is unknown.
    """

    model_config = ConfigDict(frozen=True)

    calls: int = 0
    cached: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float | None = 0.0

    @property
    def tokens(self) -> int:
        """Prompt and completion tokens."""
        return self.prompt_tokens + self.completion_tokens

    @classmethod
    def total(cls, parts: Iterable[Usage]) -> Usage:
        """The sum; its cost is unknown where one of the parts' is.

        >>> Usage.total([Usage(calls=1, cost=0.5), Usage(calls=2, cost=None)])
        Usage(calls=3, cached=0, prompt_tokens=0, completion_tokens=0, cost=None)
        """
        known = list(parts)
        priced = [part.cost for part in known if part.cost is not None]
        return cls(
            calls=sum(part.calls for part in known),
            cached=sum(part.cached for part in known),
            prompt_tokens=sum(part.prompt_tokens for part in known),
            completion_tokens=sum(part.completion_tokens for part in known),
            cost=sum(priced, 0.0) if len(priced) == len(known) else None,
        )
