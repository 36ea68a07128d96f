"""A local OpenAI-compatible endpoint that fails on purpose, as real ones do: for tests and benches.

Which request fails, and how, follows from the seed, the prompt and how often that prompt was asked
before: a run can be repeated, however its threads are scheduled.

>>> with Endpoint(Behaviour(reply="Montana", script=("503", ""))) as endpoint:
...     lm = endpoint.lm(num_retries=1)
...     print(lm("Where is Carbon County?"), endpoint.counts()["503"])
['Montana'] 1
"""

from __future__ import annotations

import asyncio
import json
import re
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Self

import dspy

import ga_dspy

PASSING = (
    "429", "500", "503", "reset", "hang", "cut body", "no json", "no choices", "empty", "garbage",
)  # fmt: skip
"""Ten kinds of fault that asking again mends."""

_ERRORS = {
    "429": (429, "Rate limit reached, slow down", "rate_limit_exceeded"),
    "500": (500, "The server had an error while processing your request", "server_error"),
    "503": (503, "The server is overloaded", "server_error"),
    "401": (401, "Incorrect API key provided", "invalid_api_key"),
    "404": (404, "The model does not exist or you do not have access to it", "model_not_found"),
    "quota": (429, "You exceeded your current quota, check your plan", "insufficient_quota"),
    "schema": (400, "This model does not support response_format", "invalid_request_error"),
    "context": (
        400, "This model's maximum context length is 4096 tokens. However, your messages "
        "resulted in 9000 tokens. Please reduce the length of the messages.",
        "context_length_exceeded",
    ),
}  # fmt: skip
FAULTS = tuple(dict.fromkeys((*PASSING, "cut reply", "length", *_ERRORS)))
"""Every kind of fault: those that pass, those of content, and those that stay."""

_GARBAGE = "%%% <|im_sep|> the the the {{{ ]]"


@dataclass(frozen=True)
class Outage:
    """A time in which every request fails alike; it begins after so many requests."""

    seconds: float
    after_calls: int = 0
    kind: str = "503"


@dataclass(frozen=True)
class Behaviour:
    """What an endpoint answers, how fast, and how it fails.

    Kinds of fault: those of `PASSING`; "cut reply" (half the text, as if whole), "length" (half the
    text, and the finish reason says so); "401", "404", "quota", "schema", "context", which stay.

    Attributes:
        reply: Every answer's text; the embedded extractive LM answers where it is None.
        replies: A phrase, and the answer to every prompt that holds it; they come first.
        latency: Seconds before any reply.
        rate: The share of requests that fail.
        kinds: How they fail, each as often as another.
        seed: Of the faults.
        script: Kinds of the first requests in turn, "" for a good one; then `rate` counts.
        marked: A phrase, and how every request fails whose prompt holds it.
        outages: Times in which all requests fail.
        hang: Seconds until a request that hangs is dropped.
        retry_after: The header of a 429.
        context: The most tokens of a prompt that are read; the rest is cut in silence.
        refusal: The 400 for a longer prompt instead, with {sent} and {context}; with {reply} in it
            the tokens asked for the reply count, too.
        thoughts: What every reply has as `reasoning_content`; where `max_tokens` leaves no room
            after it, the reply is that alone.
    """

    reply: str | None = None
    replies: Mapping[str, str] = field(default_factory=dict)
    latency: float = 0.0
    rate: float = 0.0
    kinds: tuple[str, ...] = PASSING
    seed: int = 0
    script: tuple[str, ...] = ()
    marked: Mapping[str, str] = field(default_factory=dict)
    outages: tuple[Outage, ...] = ()
    hang: float = 30.0
    retry_after: str = "0"
    context: int | None = None
    refusal: str = ""
    thoughts: str = ""


class Served:
    """A server at an address."""

    url: str

    def lm(self, **settings: Any) -> dspy.LM:
        """An LM that asks this endpoint; `settings` as of `dspy.LM`."""
        defaults = {"api_key": "none", "timeout": 60, "cache": False}
        return dspy.LM("openai/local", api_base=self.url, **{**defaults, **settings})


class Endpoint(Served):
    """A server on a port of its own, in threads of this process, until `close`.

    Attributes:
        requests: The body of every request, in order of arrival.
        answered: When a reply was sent, and to which request, in that order.
    """

    def __init__(
        self,
        behaviour: Behaviour | None = None,
        *,
        lm: dspy.LM | None = None,
        replies: dict[str, str] | None = None,
    ) -> None:
        """Serve what `lm` answers, else `behaviour.reply`, else the embedded LM.

        Replies are kept in `replies`, by prompt; several endpoints may share them.
        """
        self.behaviour = behaviour or Behaviour()
        self.requests: list[dict[str, Any]] = []
        self.answered: list[tuple[float, dict[str, Any]]] = []
        self._lm = lm
        self._counts = Counter[str]()
        self._asked = Counter[str]()
        self._replies = {} if replies is None else replies
        self._begun: dict[Outage, float] = {}
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}/v1"
        self._ready = threading.Event()
        self._thread = threading.Thread(target=asyncio.run, args=(self._serve(),), daemon=True)
        self._thread.start()
        self._ready.wait()

    def counts(self) -> dict[str, int]:
        """Requests answered ("ok") and failed, by kind; "tokens" billed; the "peak" in flight."""
        return Counter(self._counts)

    def close(self) -> None:
        """Drop every connection and stop."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join(10)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        server = await asyncio.start_server(self._connection, sock=self._socket)
        self._ready.set()
        await self._stop.wait()
        server.close()

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = re.search(rb"content-length: *(\d+)", head.lower())
                body = await reader.readexactly(int(length[1]) if length else 0)
                if head.startswith(b"GET"):
                    _send(writer, 200, json.dumps(self._counts).encode())
                    self._counts["peak"] = self._counts["now"]
                elif not await self._answer(json.loads(body), writer):
                    break
                await writer.drain()
        writer.close()

    async def _answer(self, body: dict[str, Any], writer: asyncio.StreamWriter) -> bool:
        """Answer or fail; whether the connection stays open."""
        self.requests.append(body)
        prompt = "\n".join(str(message.get("content")) for message in body["messages"])
        kind = self._kind(prompt)
        self._counts[kind or "ok"] += 1
        self._counts["now"] += 1
        self._counts["peak"] = max(self._counts["peak"], self._counts["now"])
        try:
            await asyncio.sleep(self.behaviour.hang if kind == "hang" else self.behaviour.latency)
            stays = await self._send_reply(kind, prompt, body, writer)
            self.answered.append((time.monotonic(), body))
            return stays
        finally:
            self._counts["now"] -= 1

    async def _send_reply(
        self, kind: str, prompt: str, body: dict[str, Any], writer: asyncio.StreamWriter
    ) -> bool:
        if kind in ("hang", "reset"):
            linger = struct.pack("ii", 1, 0)  # makes the close a reset
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            writer.transport.abort()
            return False
        if kind in _ERRORS:
            status, message, code = _ERRORS[kind]
            error = {"error": {"message": message, "type": code, "code": code}}
            headers = f"Retry-After: {self.behaviour.retry_after}\r\n" if kind == "429" else ""
            _send(writer, status, json.dumps(error).encode(), headers)
            return True
        if kind == "no json":
            _send(writer, 200, b"<html><body>upstream connect error</body></html>")
            return True
        sent, most = max(1, len(prompt) // 4), body.get("max_tokens") or 0
        context, refusal = self.behaviour.context or sent + most, self.behaviour.refusal
        if refusal and sent + (most if "{reply}" in refusal else 0) > context:
            message = refusal.format(sent=sent, context=context, reply=most, total=sent + most)
            _send(writer, 400, json.dumps({"error": {"message": message, "code": 400}}).encode())
            return True
        text = {"empty": "", "garbage": _GARBAGE}.get(kind)
        if text is None:
            text = await self._text(prompt, body)
            text = text[: len(text) // 2] if kind in ("cut reply", "length") else text
        thoughts = self.behaviour.thoughts
        is_cut = kind == "length" or 0 < most < len(thoughts) // 4
        sent, received = min(sent, context), max(1, len(text) // 4)
        self._counts["tokens"] += sent + received
        finish = "length" if is_cut else "stop"
        said = {"role": "assistant", "content": text}
        if thoughts:
            said |= {"content": "" if is_cut else text, "reasoning_content": thoughts}
        choice = {"index": 0, "message": said, "finish_reason": finish}
        usage = {"prompt_tokens": sent, "completion_tokens": received}
        whole = json.dumps({
            "id": "local", "object": "chat.completion", "created": 0, "model": body["model"],
            "choices": [choice][kind == "no choices":],
            "usage": {**usage, "total_tokens": sent + received},
        }).encode()  # fmt: skip
        _send(writer, 200, whole, part=len(whole) // 2 if kind == "cut body" else None)
        return kind != "cut body"

    def _kind(self, prompt: str) -> str:
        now, calls = time.monotonic(), len(self.requests)
        for outage in self.behaviour.outages:
            if calls > outage.after_calls and (
                now < self._begun.setdefault(outage, now) + outage.seconds
            ):
                return outage.kind
        for phrase, kind in self.behaviour.marked.items():
            if phrase in prompt:
                return kind
        if calls <= len(self.behaviour.script):
            return self.behaviour.script[calls - 1]
        key = sha256(prompt.encode()).hexdigest()
        self._asked[key] += 1
        drawn = sha256(f"{self.behaviour.seed} {key} {self._asked[key]}".encode()).digest()
        if int.from_bytes(drawn[:6], "big") >= self.behaviour.rate * 2**48:
            return ""
        return self.behaviour.kinds[int.from_bytes(drawn[6:12], "big") % len(self.behaviour.kinds)]

    async def _text(self, prompt: str, body: dict[str, Any]) -> str:
        for phrase, reply in self.behaviour.replies.items():
            if phrase in prompt:
                return reply
        if self._lm is None and self.behaviour.reply is not None:
            return self.behaviour.reply
        if prompt not in self._replies:
            self._lm = self._lm or ga_dspy.extractive_lm()
            said = await asyncio.to_thread(self._lm, messages=body["messages"])
            self._replies[prompt] = said[0] if isinstance(said[0], str) else said[0]["text"]
        return self._replies[prompt]


def _send(
    writer: asyncio.StreamWriter, status: int, body: bytes, headers: str = "",
    part: int | None = None,
) -> None:  # fmt: skip
    head = (
        f"HTTP/1.1 {status} {'OK' if status == 200 else 'Failed'}\r\n{headers}"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    writer.write(head.encode() + body[:part])
