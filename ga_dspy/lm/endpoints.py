"""Endpoints: how LM servers are distinguished, and the defaults for local ones."""

from __future__ import annotations

import hashlib
import os
from functools import lru_cache
from typing import Any

from ga_dspy.lm.connection import address_parts, is_local

EMBEDDED = "ga-dspy/extractive"
"""The name of the embedded extractive LM, which is no LLM and free; tables and prices say so."""


def endpoint_digest(lm: Any) -> str | None:
    """Return twelve hex digits that identify a server; None for a provider's own, or no server.

    Made of scheme, host, port and path; credentials in the address do not count.
    """
    return _digest(address) if (address := _address(lm)) else None


def _address(lm: Any) -> str:
    """Return the address of an LM's server; empty for a provider's own one, or no server."""
    if not isinstance(getattr(lm, "engine", None), str):
        return ""
    return server_address(lm.model, lm.kwargs.get("api_base") or lm.kwargs.get("base_url"))


def server_address(model: str, given: str | None = None) -> str:
    """Return the address of the server that a model is asked at; empty for a provider's own one.

    As in LiteLLM, an address that is given comes first, then the provider's environment variables,
    such as `OPENAI_BASE_URL` and `OPENAI_API_BASE`.
    """
    provider = model.partition("/")[0] if "/" in model else "openai"
    names = (f"{provider}_{name}".upper() for name in ("base_url", "api_base"))
    return given or next(filter(None, map(os.getenv, names)), "")


def default_timeout(model: str, address: str | None = None) -> float:
    """Return the timeout of one call in seconds: 600 at a local address, else 120.

    A small machine reads long prompts, and writes, for minutes.
    """
    return 600.0 if is_local(server_address(model, address)) else 120.0


def reply_cap(lm: Any) -> int | None:
    """Return the `max_tokens` of a call where none is set; None for no limit.

    A small LM that loops else fills its context window, for minutes. None for an LM that thinks,
    whose thoughts count as tokens, and for one whose server is not local: what runs there is not
    known, and seldom loops.
    """
    if not is_local(_address(lm)) or any(map(lm.kwargs.get, _CAPS)):
        return None
    if (name := lm_name(lm)) not in _THINKS:
        _THINKS[name] = lm.supports_reasoning
    return None if _THINKS[name] else _MOST_REPLY


_CAPS = ("max_tokens", "max_completion_tokens")
_MOST_REPLY = 1_500
"""More than twice the longest of 284 recorded replies, which has 695 tokens."""
_THINKS: dict[tuple[str, str | None], bool] = {}
"""Whether an LM thinks: as DSPy's list of models says, or as was seen in its replies."""


def lm_name(lm: Any) -> tuple[str, str | None]:
    """Return what identifies an LM: its name and its server."""
    return getattr(lm, "model", ""), endpoint_digest(lm)


def note_thoughts(lm: Any) -> None:
    """Note that an LM reasons before it answers: its replies are no longer capped."""
    _THINKS[lm_name(lm)] = True


@lru_cache(maxsize=64)
def _digest(address: str) -> str:
    url = address_parts(address)
    port = url.port or {"http": 80, "https": 443}.get(url.scheme)
    text = f"{url.scheme}://{url.hostname}:{port}{url.path.rstrip('/')}"
    return hashlib.sha256(text.encode()).hexdigest()[:12]
