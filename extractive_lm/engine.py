"""The engine behind `extractive_lm`: a prompt in, a completion out, no model and no network.

Rules and a small ranker copy spans of the passages. The engine knows nothing from memory, so it can
only answer from what a prompt holds; it is a floor for first runs, tests and continuous
integration, not a substitute for a language model.

What it reads of a prompt: the names and types of the fields, and the inputs. Instructions are not
followed and demonstrations not read, so no compilation improves it.

The same prompt gives the same bytes, always: temperature, seeds and rollout numbers change nothing,
and `max_tokens` never cuts a completion.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any, Self

import dspy
from dspy import lm15

from extractive_lm.english import ExtractiveError
from extractive_lm.fill import fill
from extractive_lm.prompt import Style, read_prompt

MODEL = "ga-dspy/extractive"


def extractive_lm(**settings: Any) -> dspy.LM:
    """The embedded extractive LM.

    Args:
        settings: Further arguments of `dspy.LM`. Responses are not cached unless `cache=True`:
            the engine repeats itself exactly, and is about as fast as a cache on disk.
    """
    engines = {"engine": ExtractiveEngine(), "async_engine": AsyncExtractiveEngine()}
    return dspy.LM(MODEL, **{"cache": False, "num_retries": 0, **engines, **settings})


class _Stateless:
    def dump_state(self) -> dict[str, Any]:
        """The engine has no state; DSPy asks for it when a program is saved with its LM."""
        return {}

    @classmethod
    def load_state(cls, state: dict[str, Any]) -> Self:
        """Make the engine that `dump_state` described."""
        return cls()


class ExtractiveEngine(_Stateless):
    """Answers requests by extraction; stateless, so threads may share one.

    >>> lm = dspy.LM("ga-dspy/extractive", engine=ExtractiveEngine(), cache=False)
    """

    supports_response_schema = True
    supported_params = ("response_format", "temperature", "max_tokens")

    def complete(self, request: lm15.Request) -> lm15.Response:
        """Answer a request; tokens are estimated, one for every four characters.

        Raises:
            ExtractiveError: A package of the extra `offline` is not installed.
        """
        prompt = read_prompt(request)
        try:
            text = write_completion(fill(prompt), prompt.style)
        except ImportError as error:
            raise ExtractiveError(
                f"{error.name} is not installed; run: pip install -e '.[offline]' (in a clone)"
            ) from error
        turns = [str(request.system or ""), *(turn.text or "" for turn in request.messages)]
        sent, received = (math.ceil(len(part) / 4) for part in ("".join(turns), text))
        usage = {"input_tokens": sent, "output_tokens": received, "total_tokens": sent + received}
        message = lm15.Message.assistant([lm15.TextPart(text)])
        return lm15.Response(None, request.model, message, "stop", lm15.Usage(**usage))

    def stream(self, request: lm15.Request) -> Iterator[Any]:
        """Answer a request a word at a time: listeners look for field names in the events."""
        response = self.complete(request)
        yield lm15.StreamStartEvent(model=response.model)
        for piece in re.findall(r"\s*\S+|\s+", response.text or ""):
            yield lm15.StreamDeltaEvent(delta=lm15.TextDelta(text=piece))
        yield lm15.StreamEndEvent(finish_reason=response.finish_reason, usage=response.usage)

    def close(self) -> None:
        """Nothing to close."""


class AsyncExtractiveEngine(_Stateless):
    """`ExtractiveEngine` for `acall`, in a thread: a long prompt takes a moment."""

    async def complete(self, request: lm15.Request) -> lm15.Response:
        """Answer a request."""
        return await asyncio.to_thread(ExtractiveEngine().complete, request)

    async def stream(self, request: lm15.Request) -> AsyncIterator[Any]:
        """Answer a request as a stream of events."""
        for event in ExtractiveEngine().stream(request):
            yield event

    async def aclose(self) -> None:
        """Nothing to close."""


def write_completion(values: Mapping[str, Any], style: Style) -> str:
    """Write fields in the form of an adapter; a plain prompt gets the first value alone.

    >>> print(write_completion({"answer": "Montana"}, "chat"))
    [[ ## answer ## ]]
    Montana
    <BLANKLINE>
    [[ ## completed ## ]]
    """
    if style == "json":
        return json.dumps(dict(values), ensure_ascii=False, indent=2)
    parts: list[str] = []
    for name, value in values.items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        parts.append(text if style == "plain" else f"[[ ## {name} ## ]]\n{text}")
    return "\n\n".join(parts if style == "plain" else [*parts, "[[ ## completed ## ]]"])
