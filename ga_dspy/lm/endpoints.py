"""Endpoints: how LM servers are told apart, their defaults, and how one attempt is sent.

DSPy limits replies with `max_completion_tokens`, which Ollama and LM Studio ignore, and makes the
timeout part of its cache key, so that a call with another timeout misses the cache. The engine here
sends `max_tokens` to local servers and keeps the timeout out of the cache key.
"""

from __future__ import annotations

import asyncio
import hashlib
import ipaddress
import os
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from types import SimpleNamespace
from typing import Any
from urllib.parse import SplitResult, urlsplit

import dspy
from dspy.lm15 import AsyncLMRouter, LMRouter, Request, Response, RouterConfig

from ga_dspy.lm.dspy_private import CLIENT_KEYS, estimate_cost, select_backend, timeouts_for

EMBEDDED = "ga-dspy/extractive"
"""The name of the embedded extractive LM, which is free and not an LLM."""


# --- Addresses


def server_address(model: str, given: str | None = None) -> str:
    """Return the address of the server for a model; empty for the provider's public endpoint.

    As in LiteLLM, a given address takes precedence over the provider's environment variables, such
    as `OPENAI_BASE_URL` and `OPENAI_API_BASE`.
    """
    provider = model.partition("/")[0] if "/" in model else "openai"
    names = (f"{provider}_{name}".upper() for name in ("base_url", "api_base"))
    return given or next(filter(None, map(os.getenv, names)), "")


def _address(lm: Any) -> str:
    """Return the address of an LM's server; empty for a public endpoint or a custom engine."""
    if not isinstance(getattr(lm, "engine", None), str):
        return ""
    return server_address(lm.model, lm.kwargs.get("api_base") or lm.kwargs.get("base_url"))


def _address_parts(address: str) -> SplitResult:
    """Split an address with or without a scheme into its parts."""
    return urlsplit(address if "//" in address else f"//{address}")


@lru_cache(maxsize=64)
def is_local(address: str) -> bool:
    """Return whether an address is on this machine or in a private network, where small LMs run.

    >>> is_local("http://localhost:11434/v1"), is_local("http://10.0.0.5:8000/v1")
    (True, True)
    >>> is_local("http://ollama:11434"), is_local("https://api.openai.com/v1"), is_local("")
    (True, False, False)
    """
    host = _address_parts(address).hostname or ""
    try:
        number = ipaddress.ip_address(host)
    except ValueError:
        return bool(host) and ("." not in host or host.endswith((".local", ".internal", ".lan")))
    return number.is_private or number.is_loopback


def endpoint_digest(lm: Any) -> str | None:
    """Return twelve hex digits that identify an LM's server; None for a public endpoint.

    They depend on scheme, host, port and path, not on credentials in the address. A custom engine
    has no server.
    """
    return _digest(address) if (address := _address(lm)) else None


@lru_cache(maxsize=64)
def _digest(address: str) -> str:
    url = _address_parts(address)
    port = url.port or {"http": 80, "https": 443}.get(url.scheme)
    text = f"{url.scheme}://{url.hostname}:{port}{url.path.rstrip('/')}"
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def lm_name(lm: Any) -> tuple[str, str | None]:
    """Return the model's name and the digest of its server, which together identify an LM."""
    return getattr(lm, "model", ""), endpoint_digest(lm)


# --- Defaults that depend on the server


def default_timeout(model: str, address: str | None = None) -> float:
    """Return the timeout of one call in seconds: 600 for a local server, else 120.

    A small machine can take minutes to process a long prompt.
    """
    return 600.0 if is_local(server_address(model, address)) else 120.0


_CAPS = ("max_tokens", "max_completion_tokens")
_MOST_REPLY = 1_500
"""More than twice the 695 tokens of the longest of 284 recorded replies."""
_THINKS: dict[tuple[str, str | None], bool] = {}
"""Whether an LM reasons before it answers, from DSPy's model metadata or seen in its replies."""


def reply_cap(lm: Any) -> int | None:
    """Return the `max_tokens` to send when none is set; None for no limit.

    Without a limit, a small local LM that repeats itself fills its context window, which takes
    minutes. Reasoning models get no limit, because their thoughts count as tokens.
    """
    if not is_local(_address(lm)) or any(map(lm.kwargs.get, _CAPS)):
        return None
    if (name := lm_name(lm)) not in _THINKS:
        _THINKS[name] = lm.supports_reasoning
    return None if _THINKS[name] else _MOST_REPLY


def note_thoughts(lm: Any) -> None:
    """Record that an LM reasons before it answers, so that its replies are no longer capped."""
    _THINKS[lm_name(lm)] = True


# --- Sending one attempt

UNRECORDED = "ga_dspy_unrecorded"
"""The key in `dspy.settings` of a list that collects calls while the app has history disabled."""

_NATIVE_SETTINGS = {
    "temperature", "max_tokens", "max_completion_tokens", "top_p", "stop", "seed", "n",
    "presence_penalty", "frequency_penalty", "cache", "rollout_id", *CLIENT_KEYS,
}  # fmt: skip
"""Settings that never make DSPy route a call through LiteLLM."""


def connect(lm: dspy.LM, settings: Mapping[str, Any]) -> dspy.LM:
    """Return a copy of an LM for one attempt, without DSPy's retries.

    The copy shares the LM's history and callbacks and holds the LM as `original`. It keeps the LM's
    engine if that is a custom one, or if a setting may make DSPy route the call through LiteLLM.

    Args:
        lm: The LM.
        settings: The settings of the call, without its prompt.
    """
    engine, changes = _engine_for(lm, {**lm.kwargs, **settings}), dict[str, Any](num_retries=0)
    if engine is not None:
        changes |= dict.fromkeys(CLIENT_KEYS & lm.kwargs.keys())
        changes |= {"engine": engine, "async_engine": SimpleNamespace(complete=engine.acomplete)}
    copy = lm.copy(**changes)
    copy.original, copy.history, copy.callbacks = lm, lm.history, lm.callbacks

    def update_history(entry: dict[str, Any]) -> None:
        if engine is not None and entry.get("cost") is None:
            entry = {**entry, "cost": engine.price(entry["response"])}
        unrecorded = dspy.settings.get(UNRECORDED)
        if unrecorded is None:
            lm.update_history(entry)
        else:
            unrecorded.append(entry)

    copy.update_history = update_history
    return copy


def _engine_for(lm: dspy.LM, settings: Mapping[str, Any]) -> Connections | None:
    """Return the engine for an LM's endpoint; None if DSPy would use another client."""
    names = {name for name, value in settings.items() if value is not None}
    native = _NATIVE_SETTINGS | ({"response_format"} if lm.model.startswith("openai/") else set())
    if not isinstance(lm.engine, str) or names - native:
        return None
    client = tuple(sorted((name, settings[name]) for name in CLIENT_KEYS & names))
    prefix = lm.model.partition("/")[0].upper()
    gateway = tuple(os.environ.get(f"{prefix}_{name}") for name in ("API_BASE", "BASE_URL"))
    try:
        return _engine(lm.model, lm.model_type, lm.engine, client, gateway)
    except TypeError:  # a setting is not hashable
        return None


@lru_cache(maxsize=64)
def _engine(
    model: str, model_type: Any, engine: str, client: tuple[tuple[str, Any], ...], gateway: Any
) -> Connections | None:
    selected = select_backend(dspy.LM(model, model_type, engine=engine, **dict(client)))
    if not selected.native or selected.resolution.declared:
        return None
    return Connections(selected.resolution, selected.clients)


class Connections:
    """A DSPy engine for one provider, address and timeout."""

    def __init__(self, route: Any, client: Mapping[str, Any]) -> None:
        self.provider, self.model = route.provider, route.model
        address = client.get("api_base") or client.get("base_url")
        self._sends_max_tokens = route.provider.startswith("openai") and is_local(address or "")
        self._config = RouterConfig(
            api_keys={route.provider: client["api_key"]} if "api_key" in client else None,
            base_urls={route.provider: address} if address else None,
            timeouts=timeouts_for(client.get("timeout")),
        )
        self._router = LMRouter(self._config)
        self._routers: dict[asyncio.AbstractEventLoop, AsyncLMRouter] = {}

    def complete(self, request: Request) -> Response:
        """Send a request."""
        lm: Any = self._router.lm(f"{self.provider}:{self.model}")
        answer: Response = lm.complete(self._adapted(request))
        return answer

    async def acomplete(self, request: Request) -> Response:
        """Send a request from a coroutine, over the connections of its event loop."""
        loop = asyncio.get_running_loop()
        if loop not in self._routers:
            closed = [other for other in self._routers if other.is_closed()]
            for other in closed:
                self._routers.pop(other, None)
            self._routers[loop] = AsyncLMRouter(self._config)
        lm: Any = self._routers[loop].lm(f"{self.provider}:{self.model}")
        answer: Response = await lm.complete(self._adapted(request))
        return answer

    def _adapted(self, request: Request) -> Request:
        config = request.config
        if self._sends_max_tokens and config.max_tokens is not None:
            more = {**(config.extensions or {}), "max_tokens": config.max_tokens}
            config = replace(config, max_tokens=None, extensions=more)
        return replace(request, model=self.model, config=config)

    def price(self, answer: Any) -> float | None:
        """Return DSPy's estimate of what one or several responses cost; None if unknown."""
        total: float | None = None
        for response in answer if isinstance(answer, tuple) else (answer,):
            if isinstance(response, Response):
                model = {"provider": self.provider, "requested_model": self.model}
                price, _ = estimate_cost(response, **model)
                if price is None:
                    return None
                total = price + (total or 0.0)
        return total
