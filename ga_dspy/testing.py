"""An LM that replies by a script: for tests of programs, and of yours built on them.

The replies pass through DSPy's real adapters, cache keys and parsing, so a test with a scripted
LM shows what a program does with an LM's words, not what an LM would say.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dspy
from dspy.lm15 import (
    Message,
    Request,
    Response,
    StreamDeltaEvent,
    StreamEndEvent,
    StreamStartEvent,
    TextDelta,
    TextPart,
    Usage,
)

from ga_dspy.errors import GaDspyError
from ga_dspy.text import estimate_tokens


@dataclass(frozen=True)
class CutOff:
    """A reply that stops at the token limit."""

    text: str


Reply = str | Mapping[str, Any] | CutOff | Exception
Script = Sequence[Reply] | Callable[[str], Reply]


class ScriptedEngine:
    """Replies in order, or by a function of the prompt.

    Args:
        script: Raw completions, or mappings of field names to texts that are written in the
            form the prompt asks for, or errors to raise, or a function from prompt to reply.

    Attributes:
        prompts: Every prompt received, system message first, as one text each.
    """

    def __init__(self, script: Script) -> None:
        self.script = script
        self.prompts: list[str] = []

    def complete(self, request: Request) -> Response:
        """Answer a request."""
        prompt = _prompt_of(request)
        self.prompts.append(prompt)
        reply = self._reply(prompt)
        if isinstance(reply, Exception):
            raise reply
        text = reply.text if isinstance(reply, CutOff) else _completion(reply, prompt)
        sent, received = estimate_tokens(prompt), estimate_tokens(text)
        return Response(
            id=None,
            model=request.model,
            message=Message.assistant([TextPart(text)]),
            finish_reason="length" if isinstance(reply, CutOff) else "stop",
            usage=Usage(input_tokens=sent, output_tokens=received, total_tokens=sent + received),
        )

    def stream(self, request: Request) -> Iterator[Any]:
        """Answer a request as a stream of events."""
        response = self.complete(request)
        yield StreamStartEvent(model=response.model)
        for piece in re.findall(r"\s*\S+|\s+", response.text or ""):
            yield StreamDeltaEvent(delta=TextDelta(text=piece))
        yield StreamEndEvent(finish_reason=response.finish_reason, usage=response.usage)

    def close(self) -> None:
        """Nothing to close."""

    def _reply(self, prompt: str) -> Reply:
        if callable(self.script):
            return self.script(prompt)
        calls = len(self.prompts)
        if calls > len(self.script):
            raise GaDspyError(
                f"call {calls} of a script with {len(self.script)} replies",
                expected="no further call",
                remedy="add a reply, or pass a function of the prompt",
            )
        return self.script[calls - 1]


class _AsyncEngine:
    def __init__(self, engine: ScriptedEngine) -> None:
        self._engine = engine

    async def complete(self, request: Request) -> Response:
        return self._engine.complete(request)

    async def stream(self, request: Request) -> AsyncIterator[Any]:
        for event in self._engine.stream(request):
            yield event

    async def aclose(self) -> None:
        self._engine.close()


def scripted_lm(script: Script) -> dspy.LM:
    """An LM over a script; its `engine.prompts` holds what it was asked.

    >>> lm = scripted_lm([{"answer": "Montana"}])
    >>> with dspy.context(lm=lm):
    ...     dspy.Predict("question -> answer")(question="Where is Red Lodge?").answer
    'Montana'
    """
    engine = ScriptedEngine(script)
    return dspy.LM(
        "ga-dspy/scripted",
        engine=engine,
        async_engine=_AsyncEngine(engine),
        cache=False,
        num_retries=0,
    )


def asked_fields(prompt: str) -> list[str]:
    """The output fields that a prompt of `PlainAdapter`, or of an adapter of DSPy's, asks for."""
    _, plain, form = prompt.rpartition("Reply in this form:")
    if plain:
        form = form.partition("[[ ## completed ## ]]")[0]
        return re.findall(r"^\[\[ ## (\w+) ## \]\]", form, re.MULTILINE)
    listed = prompt.partition("output fields are")[2]
    return re.findall(r"^\d+\. `(\w+)`", listed, re.MULTILINE)


def _prompt_of(request: Request) -> str:
    system = request.system
    parts = [system if isinstance(system, str) else "".join(p.text for p in system or ())]
    return "\n\n".join([*parts, *(message.text or "" for message in request.messages)])


def _completion(reply: str | Mapping[str, Any], prompt: str) -> str:
    if isinstance(reply, str):
        return reply
    if "[[ ## completed ## ]]" in prompt and "JSON object" not in prompt:
        sections = [f"[[ ## {name} ## ]]\n{value}" for name, value in reply.items()]
        return "\n\n".join([*sections, "[[ ## completed ## ]]"])
    if "wrapped in XML tags" in prompt:
        return "\n".join(f"<{name}>{value}</{name}>" for name, value in reply.items())
    return json.dumps(reply, ensure_ascii=False)
