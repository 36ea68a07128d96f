"""A finished response as the stream that an LM would have sent."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from dspy.lm15 import Response, StreamDeltaEvent, StreamEndEvent, StreamStartEvent, TextDelta

_PIECE = re.compile(r"\s*\S+|\s+")


def streamed(response: Response) -> Iterator[Any]:
    """The events of a response, a word at a time: listeners look for field names in them."""
    yield StreamStartEvent(model=response.model)
    for piece in _PIECE.findall(response.text or ""):
        yield StreamDeltaEvent(delta=TextDelta(text=piece))
    yield StreamEndEvent(finish_reason=response.finish_reason, usage=response.usage)
