"""The engine behind `extractive_lm`: a prompt in, a completion out, no model and no network.

What it is: rules and a small ranker that copy spans of the passages. It knows nothing from
memory, so it can only answer from what a prompt holds; it is a floor for first runs, tests and
continuous integration, not a substitute for a language model.

What it reads of a prompt: the names and types of the fields, the inputs, and the demonstrations.
Instructions are not followed. Demonstrations change its scoring, within bounds: answers in them
re-weigh the types and lengths that the ranker prefers, and read or judge steps in them shift how
much is written into the graph and how readily evidence counts as sufficient (`demonstrated.py`).

The same prompt gives the same bytes, always: temperature, seeds and rollout numbers change
nothing, and `max_tokens` never cuts a completion.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import dspy
from dspy.lm15 import Message, Request, Response, TextPart, Usage

from ga_dspy.lm.completion import write_completion
from ga_dspy.lm.fill import fill
from ga_dspy.lm.prompt import read_prompt
from ga_dspy.lm.streaming import streamed
from ga_dspy.tokens import estimate_tokens

MODEL = "ga-dspy/extractive"


class ExtractiveEngine:
    """Answers requests by extraction; stateless, so threads may share one.

    >>> lm = dspy.LM("ga-dspy/extractive", engine=ExtractiveEngine(), cache=False)
    """

    supports_response_schema = True
    supported_params = ("response_format", "temperature", "max_tokens")

    def complete(self, request: Request) -> Response:
        """Answer a request; tokens are estimated by `ga_dspy.tokens.estimate_tokens`."""
        prompt = read_prompt(request)
        text = write_completion(fill(prompt), prompt.style)
        system = request.system if isinstance(request.system, str) else ""
        sent = sum(estimate_tokens(t) for t in (system, *(m.text or "" for m in request.messages)))
        said = estimate_tokens(text)
        return Response(
            id=None,
            model=request.model,
            message=Message.assistant([TextPart(text)]),
            finish_reason="stop",
            usage=Usage(input_tokens=sent, output_tokens=said, total_tokens=sent + said),
        )

    def stream(self, request: Request) -> Iterator[Any]:
        """Answer a request as a stream of events, a word at a time."""
        yield from streamed(self.complete(request))

    def close(self) -> None:
        """Nothing to close."""

    def dump_state(self) -> dict[str, Any]:
        """The engine has no state; DSPy asks for it when a program is saved with its LM."""
        return {}

    @classmethod
    def load_state(cls, state: dict[str, Any]) -> ExtractiveEngine:
        """Make the engine that `dump_state` described."""
        return cls()


class AsyncExtractiveEngine:
    """`ExtractiveEngine` for `acall`; a call is short enough not to need a thread."""

    def __init__(self) -> None:
        self._engine = ExtractiveEngine()

    async def complete(self, request: Request) -> Response:
        """Answer a request."""
        return self._engine.complete(request)

    async def stream(self, request: Request) -> AsyncIterator[Any]:
        """Answer a request as a stream of events."""
        for event in self._engine.stream(request):
            yield event

    async def aclose(self) -> None:
        """Nothing to close."""

    def dump_state(self) -> dict[str, Any]:
        """The engine has no state."""
        return {}

    @classmethod
    def load_state(cls, state: dict[str, Any]) -> AsyncExtractiveEngine:
        """Make the engine that `dump_state` described."""
        return cls()


def extractive_lm(**settings: Any) -> dspy.LM:
    """The embedded extractive LM.

    Args:
        settings: Further arguments of `dspy.LM`. Responses are not cached unless `cache=True`:
            the engine repeats itself exactly, and is about as fast as a cache on disk.
    """
    return dspy.LM(
        MODEL,
        **{
            "engine": ExtractiveEngine(),
            "async_engine": AsyncExtractiveEngine(),
            "cache": False,
            "num_retries": 0,
            **settings,
        },
    )
