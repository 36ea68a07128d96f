"""Connections: as many calls in flight as threads and tasks make, each priced as DSPy prices it.

DSPy sends at most 100 calls to an endpoint at once, and goes through its whole list of prices after
each. The engine here does neither: an LM takes an engine of one's own, and `dspy.lm15` has routers
that send a request.
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
import threading
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from types import SimpleNamespace
from typing import Any
from urllib.parse import SplitResult, urlsplit

import dspy
from dspy.clients.backend_selection import CLIENT_KEYS, select_backend
from dspy.clients.costs import estimate_cost
from dspy.clients.engines.lm15_engine import timeouts_for
from dspy.clients.model_metadata import model_info
from dspy.lm15 import AsyncLMRouter, LMRouter, Request, Response, RouterConfig

MOST_CONNECTIONS = 10_000
"""No limit in practice: a process has fewer threads, and fewer files open."""

_SENT_BY_ALL = {
    "temperature", "max_tokens", "max_completion_tokens", "top_p", "stop", "seed", "n",
    "presence_penalty", "frequency_penalty", "cache", "rollout_id", *CLIENT_KEYS,
}  # fmt: skip
"""Settings for which DSPy never changes to LiteLLM."""


def connect(lm: dspy.LM, settings: Mapping[str, Any]) -> dspy.LM:
    """A copy of an LM for one attempt: no retries, and no limit to the calls in flight.

    It shares the LM's history and callbacks. An LM with an engine of its own, or a setting for
    which DSPy may turn to LiteLLM, keeps the way that it has.

    Args:
        lm: The LM.
        settings: What the call is sent beside its prompt.
    """
    engine, changes = _engine_for(lm, {**lm.kwargs, **settings}), dict[str, Any](num_retries=0)
    if engine is not None:
        own = dict.fromkeys(CLIENT_KEYS & lm.kwargs.keys())
        changes |= {
            "engine": engine,
            "async_engine": SimpleNamespace(complete=engine.acomplete),
            **own,
        }
    copy = lm.copy(**changes)
    copy.history, copy.callbacks = lm.history, lm.callbacks
    if engine is not None:

        def update_history(entry: dict[str, Any]) -> None:
            price = engine.price(entry["response"]) if entry.get("cost") is None else entry["cost"]
            lm.update_history({**entry, "cost": price})

        copy.update_history = update_history
    return copy


def _engine_for(lm: dspy.LM, settings: Mapping[str, Any]) -> Connections | None:
    """The engine for an LM's endpoint; None where DSPy would not send the call by its client."""
    asked = {name for name, value in settings.items() if value is not None}
    known = _SENT_BY_ALL | ({"response_format"} if lm.model.startswith("openai/") else set())
    if not isinstance(lm.engine, str) or asked - known:
        return None
    client = tuple(sorted((name, settings[name]) for name in CLIENT_KEYS & asked))
    prefix = lm.model.partition("/")[0].upper()
    gateway = tuple(os.environ.get(f"{prefix}_{name}") for name in ("API_BASE", "BASE_URL"))
    try:
        with _LOCK:
            return _engine(lm.model, lm.model_type, lm.engine, client, gateway)
    except TypeError:  # a setting that is no plain value
        return None


_LOCK = threading.Lock()


@lru_cache(maxsize=64)
def _engine(
    model: str, model_type: Any, engine: str, client: tuple[tuple[str, Any], ...], gateway: Any
) -> Connections | None:
    selected = select_backend(dspy.LM(model, model_type, engine=engine, **dict(client)))
    if not selected.native or selected.resolution.declared:
        return None
    return Connections(selected.resolution, selected.clients)


def address_parts(address: str) -> SplitResult:
    """An address in its parts, with or without a scheme."""
    return urlsplit(address if "//" in address else f"//{address}")


@lru_cache(maxsize=64)
def is_local(address: str) -> bool:
    """Whether an address is of this machine or a private network, where people run small LMs.

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
    """An engine with a connection for each call in flight, kept for the next."""

    def __init__(self, route: Any, client: Mapping[str, Any]) -> None:
        self.provider, self.model = route.provider, route.model
        address = client.get("api_base") or client.get("base_url")
        # DSPy caps replies by OpenAI's new name; Ollama and LM Studio know the old one alone.
        self._old_cap = route.provider.startswith("openai") and is_local(address or "")
        self._config = RouterConfig(
            api_keys={route.provider: client["api_key"]} if "api_key" in client else None,
            base_urls={route.provider: address} if address else None,
            timeouts=timeouts_for(client.get("timeout")),
            max_connections=MOST_CONNECTIONS,
        )
        self._router = LMRouter(self._config)
        self._of_loop: dict[asyncio.AbstractEventLoop, AsyncLMRouter] = {}

    def complete(self, request: Request) -> Response:
        """Send a request."""
        lm: Any = self._router.lm(f"{self.provider}:{self.model}")
        answer: Response = lm.complete(self._sent(request))
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
        answer: Response = await lm.complete(self._sent(request))
        return answer

    def _sent(self, request: Request) -> Request:
        config = request.config
        if self._old_cap and config.max_tokens is not None:
            more = {**(config.extensions or {}), "max_tokens": config.max_tokens}
            config = replace(config, max_tokens=None, extensions=more)
        return replace(request, model=self.model, config=config)

    def price(self, answered: Any) -> float | None:
        """What a response cost, or several, as DSPy estimates it; None where it is not known."""
        responses = answered if isinstance(answered, tuple) else (answered,)
        prices = [self._price(one) for one in responses if isinstance(one, Response)]
        return sum(prices) if prices and None not in prices else None

    def _price(self, response: Response) -> Any:
        with _LOCK:
            model = _listed(self.provider, response.model, self.model)
        if model is None:
            return None
        listed = replace(response, model=model)
        return estimate_cost(listed, provider=self.provider, requested_model=model)[0]


@lru_cache(maxsize=256)
def _listed(provider: str, *names: str) -> str | None:
    """The first of a model's names that DSPy's list of prices has: to look costs milliseconds."""
    return next((name for name in names if model_info(provider, name)), None)
