"""A DSPy engine that answers by extraction: a prompt in, a completion out, without a network.

Rules and a small ranker copy spans from the passages of a prompt. The engine knows nothing beyond
the prompt. It is a baseline for first runs, tests and CI, not a substitute for a language model.

It reads the names and types of the fields, and the inputs. It ignores instructions and demos, so
compiling a program does not improve its answers.

The same prompt always gives the same completion: temperature, seeds and rollout ids have no effect,
and `max_tokens` never truncates a completion.
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
    """Return the embedded extractive LM.

    Args:
        settings: More arguments of `dspy.LM`. Responses are not cached unless `cache=True`: the
            engine is deterministic, and about as fast as a cache on disk.
    """
    engines = {"engine": ExtractiveEngine(), "async_engine": AsyncExtractiveEngine()}
    return dspy.LM(MODEL, **{"cache": False, "num_retries": 0, **engines, **settings})


class _Stateless:
    def dump_state(self) -> dict[str, Any]:
        """Return an empty state; DSPy asks for one when it saves a program with its LM."""
        return {}

    @classmethod
    def load_state(cls, state: dict[str, Any]) -> Self:
        """Return a new engine: the state is empty."""
        return cls()


class ExtractiveEngine(_Stateless):
    """A DSPy engine that answers by extraction; it has no state, so threads can share it.

    >>> lm = dspy.LM("ga-dspy/extractive", engine=ExtractiveEngine(), cache=False)
    """

    supports_response_schema = True
    supported_params = ("response_format", "temperature", "max_tokens")

    def complete(self, request: lm15.Request) -> lm15.Response:
        """Answer a request; token counts are estimates, one token per four characters.

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
        sent, received = math.ceil(len("".join(turns)) / 4), math.ceil(len(text) / 4)
        usage = {"input_tokens": sent, "output_tokens": received, "total_tokens": sent + received}
        message = lm15.Message.assistant([lm15.TextPart(text)])
        return lm15.Response(None, request.model, message, "stop", lm15.Usage(**usage))

    def stream(self, request: lm15.Request) -> Iterator[Any]:
        """Yield the answer word by word: DSPy's listeners look for field names in the events."""
        response = self.complete(request)
        yield lm15.StreamStartEvent(model=response.model)
        for piece in re.findall(r"\s*\S+|\s+", response.text or ""):
            yield lm15.StreamDeltaEvent(delta=lm15.TextDelta(text=piece))
        yield lm15.StreamEndEvent(finish_reason=response.finish_reason, usage=response.usage)

    def close(self) -> None:
        """Do nothing: the engine holds no resources."""


class AsyncExtractiveEngine(_Stateless):
    """The engine for `acall`; it runs in a thread, because a long prompt takes a moment."""

    async def complete(self, request: lm15.Request) -> lm15.Response:
        """Answer a request."""
        return await asyncio.to_thread(ExtractiveEngine().complete, request)

    async def stream(self, request: lm15.Request) -> AsyncIterator[Any]:
        """Answer a request as a stream of events."""
        for event in ExtractiveEngine().stream(request):
            yield event

    async def aclose(self) -> None:
        """Do nothing: the engine holds no resources."""


def write_completion(values: Mapping[str, Any], style: Style) -> str:
    """Write fields in the format of an adapter, or values alone in reply to a plain prompt.

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
    if style == "chat":
        parts.append("[[ ## completed ## ]]")
    return "\n\n".join(parts)
