"""Connections: how one attempt of a call is sent.

DSPy caps replies by `max_completion_tokens`, which Ollama and LM Studio ignore, and takes the
timeout for a part of the question, so that another timeout misses its cache. The engine here sends
`max_tokens` to a local server, and keeps the timeout to itself.
"""

from __future__ import annotations

import asyncio
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

UNRECORDED = "ga_dspy_unrecorded"
"""Where `dspy.settings` holds the list of calls that an app without a history does not see."""

_SENT_BY_ALL = {
    "temperature", "max_tokens", "max_completion_tokens", "top_p", "stop", "seed", "n",
    "presence_penalty", "frequency_penalty", "cache", "rollout_id", *CLIENT_KEYS,
}  # fmt: skip
"""Settings for which DSPy never changes to LiteLLM."""


def connect(lm: dspy.LM, settings: Mapping[str, Any]) -> dspy.LM:
    """Return a copy of an LM for one attempt, without retries of its own.

    It shares the LM's history and callbacks, and names it as its `original`. An LM with an engine
    of its own, or a setting for which DSPy may turn to LiteLLM, keeps the way that it has.

    Args:
        lm: The LM.
        settings: What the call is sent beside its prompt.
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
    """Return the engine for an LM's endpoint; None where DSPy would use another client."""
    given = {name for name, value in settings.items() if value is not None}
    known = _SENT_BY_ALL | ({"response_format"} if lm.model.startswith("openai/") else set())
    if not isinstance(lm.engine, str) or given - known:
        return None
    client = tuple(sorted((name, settings[name]) for name in CLIENT_KEYS & given))
    prefix = lm.model.partition("/")[0].upper()
    gateway = tuple(os.environ.get(f"{prefix}_{name}") for name in ("API_BASE", "BASE_URL"))
    try:
        return _engine(lm.model, lm.model_type, lm.engine, client, gateway)
    except TypeError:  # a setting that is no plain value
        return None


@lru_cache(maxsize=64)
def _engine(
    model: str, model_type: Any, engine: str, client: tuple[tuple[str, Any], ...], gateway: Any
) -> Connections | None:
    selected = select_backend(dspy.LM(model, model_type, engine=engine, **dict(client)))
    if not selected.native or selected.resolution.declared:
        return None
    return Connections(selected.resolution, selected.clients)


def address_parts(address: str) -> SplitResult:
    """Return the parts of an address, with or without a scheme."""
    return urlsplit(address if "//" in address else f"//{address}")


@lru_cache(maxsize=64)
def is_local(address: str) -> bool:
    """Return whether an address is of this machine or a private network, where small LMs run.

    >>> is_local("http://localhost:11434/v1"), is_local("http://10.0.0.5:8000/v1")
    (True, True)
    >>> is_local("http://ollama:11434"), is_local("https://api.openai.com/v1"), is_local("")
    (True, False, False)
    """
    host = address_parts(address).hostname or ""
    try:
        number = ipaddress.ip_address(host)
    except ValueError:
        return bool(host) and ("." not in host or host.endswith((".local", ".internal", ".lan")))
    return number.is_private or number.is_loopback


class Connections:
    """An engine of DSPy for one provider, address and timeout."""

    def __init__(self, route: Any, client: Mapping[str, Any]) -> None:
        self.provider, self.model = route.provider, route.model
        address = client.get("api_base") or client.get("base_url")
        self._old_cap = route.provider.startswith("openai") and is_local(address or "")
        self._config = RouterConfig(
            api_keys={route.provider: client["api_key"]} if "api_key" in client else None,
            base_urls={route.provider: address} if address else None,
            timeouts=timeouts_for(client.get("timeout")),
        )
        self._router = LMRouter(self._config)
        self._of_loop: dict[asyncio.AbstractEventLoop, AsyncLMRouter] = {}

    def complete(self, request: Request) -> Response:
        """Send a request."""
        lm: Any = self._router.lm(f"{self.provider}:{self.model}")
        answer: Response = lm.complete(self._adapted(request))
        return answer

    async def acomplete(self, request: Request) -> Response:
        """Send a request from a coroutine, over connections of its event loop."""
        loop = asyncio.get_running_loop()
        if loop not in self._of_loop:
            ended = [other for other in self._of_loop if other.is_closed()]
            for other in ended:
                self._of_loop.pop(other, None)
            self._of_loop[loop] = AsyncLMRouter(self._config)
        lm: Any = self._of_loop[loop].lm(f"{self.provider}:{self.model}")
        answer: Response = await lm.complete(self._adapted(request))
        return answer

    def _adapted(self, request: Request) -> Request:
        config = request.config
        if self._old_cap and config.max_tokens is not None:
            more = {**(config.extensions or {}), "max_tokens": config.max_tokens}
            config = replace(config, max_tokens=None, extensions=more)
        return replace(request, model=self.model, config=config)

    def price(self, answered: Any) -> float | None:
        """Return what a response cost, or several, as DSPy estimates it; None if unknown."""
        responses = answered if isinstance(answered, tuple) else (answered,)
        known = {"provider": self.provider, "requested_model": self.model}
        answers = [one for one in responses if isinstance(one, Response)]
        prices = [estimate_cost(one, **known)[0] for one in answers]
        return sum(prices) if prices and None not in prices else None
