"""What must not reach a tracking store: it is shared with people who may not have your keys."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping, Sequence

import dspy
from pydantic import JsonValue
from pydantic_core import to_jsonable_python

from ga_dspy.artifact.secrets import secrets_in, secrets_of

_SECRET = re.compile(r"(API_?KEY|SECRET|TOKEN|PASSWORD|PASSWD|CREDENTIALS?)$", re.IGNORECASE)
_SHORTEST = 8  # a placeholder such as "none" is no secret


def publishable(value: object) -> JsonValue:
    """A value as JSON, with everything that looks like a secret replaced by a note of its kind.

    Texts are judged line by line, so that a prompt loses a line and not its whole.

    >>> publishable({"recipe": "gepa", "api_key": "abc", "notes": ["fine", "sk-" + 20 * "x"]})
    {'recipe': 'gepa', 'api_key': '(withheld)', 'notes': ['fine', '(withheld: an API key)']}
    """
    plain = to_jsonable_python(value, inf_nan_mode="null", fallback=str)
    return _clean(plain, secrets_of([dspy.settings.lm]) | _in_environment())


def publishable_text(text: str) -> str:
    """The same for one text."""
    return str(publishable(text))


def _in_environment() -> frozenset[str]:
    """The secrets that the environment names as such."""
    named = (value for name, value in os.environ.items() if _SECRET.search(name))
    return frozenset(value for value in named if len(value) >= _SHORTEST)


def _clean(value: JsonValue, known: Collection[str]) -> JsonValue:
    if isinstance(value, str):
        return "\n".join(_line(line, known) for line in value.split("\n"))
    if isinstance(value, Mapping):
        return {
            key: "(withheld)" if any(secrets_in({key: None}, "", known)) else _clean(inner, known)
            for key, inner in value.items()
        }
    if isinstance(value, Sequence):
        return [_clean(inner, known) for inner in value]
    return value


def _line(line: str, known: Collection[str]) -> str:
    found = next(secrets_in(line, "", known), None)
    if found is not None:
        return f"(withheld: {found.kind})"
    # Models emit lone surrogates (JSON can spell them); UTF-8 has none.
    return line.encode("utf-8", "replace").decode()
