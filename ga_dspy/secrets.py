"""No key, address or header may reach an artifact: it is copied, logged and committed."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence

import dspy
from pydantic import JsonValue

from ga_dspy.errors import ArtifactError

_SHORTEST = 8  # a placeholder key such as "none" is no secret
_SECRET_KEY = re.compile(
    r"(^|[_-])(api_?key|api_?base|base_?url|model_?list|authorization|(extra_?)?headers|cookies?"
    r"|password|passwd|secret|credentials?|private_?key|(access|auth|bearer|refresh)_?token)"
    r"($|[_-])",
    re.IGNORECASE,
)
_SECRET_TEXT = {
    "an API key": re.compile(
        r"\b(sk-[A-Za-z0-9_-]{16,}|AKIA[0-9A-Z]{16}|AIza[0-9A-Za-z_-]{35}|hf_[A-Za-z0-9]{20,}"
        r"|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w-]{20,}|xox[abprs]-[\w-]{10,}"
        r"|gsk_[A-Za-z0-9]{20,}|xai-[A-Za-z0-9]{20,}|r8_[A-Za-z0-9]{20,})"
    ),
    "an API key by name": re.compile(
        r"\b\w*(api[_-]?key|secret[_-]?key|access[_-]?token)\b[\"']?\s*[:=]\s*[\"']?[^\s\"',}]+",
        re.IGNORECASE,
    ),
    "an API address": re.compile(r"\b(api_base|base_url)\b", re.IGNORECASE),
    "an Authorization header": re.compile(
        r"\bauthorization\b[\"']?\s*[:=]|\bbearer\s+[\w.~+/=-]{16,}", re.IGNORECASE
    ),
    "a JSON web token": re.compile(r"\beyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]+"),
    "a private key": re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----"),
    "an address with a password": re.compile(r"\b[a-z][a-z0-9+.-]*://[^\s/:@]+:[^\s/@]+@"),
}


class SecretFound(ArtifactError):
    """A value that looks like a secret would be written, or stands in an artifact.

    The message says where and which kind, and never repeats the value.
    """

    def __init__(self, where: str, kind: str) -> None:
        super().__init__(
            f"{where} holds {kind}; expected an artifact without keys, addresses or headers; "
            "take it out of the program (for a demo: drop that demo) and out of the arguments of "
            "save, and give it to the LM that the app configures"
        )
        self.where, self.kind = where, kind


def secrets_in(value: JsonValue, where: str, known: Collection[str] = ()) -> Iterator[SecretFound]:
    """Find what looks like a secret in a JSON value: in the names of keys and in texts.

    Args:
        value: What is written.
        where: Name of the value, the beginning of the reported place.
        known: Secrets in use now; a text that contains one is reported whatever it looks like.
    """
    if isinstance(value, str):
        kind = _kind(value, known)
        if kind:
            yield SecretFound(where, kind)
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            if _SECRET_KEY.search(key):
                yield SecretFound(f"{where}.{key}", "a key of that name")
            elif _kind(key, known):
                yield SecretFound(where, f"{_kind(key, known)} as the name of a key")
            else:
                yield from secrets_in(inner, f"{where}.{key}", known)
    elif isinstance(value, Sequence):
        for position, inner in enumerate(value):
            yield from secrets_in(inner, f"{where}[{position}]", known)


def _kind(text: str, known: Collection[str]) -> str:
    if any(secret in text for secret in known):
        return "a secret of the LM in use"
    return next((kind for kind, pattern in _SECRET_TEXT.items() if pattern.search(text)), "")


def secrets_of(lms: Sequence[dspy.BaseLM | None]) -> frozenset[str]:
    """The texts that LMs hold under secret names: their keys, addresses and headers."""
    found: set[str] = set()
    for lm in lms:
        for key, value in (getattr(lm, "kwargs", None) or {}).items():
            if _SECRET_KEY.search(key):
                found.update(_texts(value))
    return frozenset(text for text in found if len(text) >= _SHORTEST)


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _texts(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _texts(inner)
