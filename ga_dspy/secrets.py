"""Redaction: no key, address or header in an artifact, no key in journals, MLflow or output.

An artifact that holds a secret is refused (`secrets_in`); from other texts it is taken out
(`withheld`), at the few places where texts leave: journals, error messages, MLflow, the terminal.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TextIO
from urllib.parse import unquote

from pydantic import JsonValue

from ga_dspy.errors import ArtifactError, InputError

if TYPE_CHECKING:
    import dspy

SHORTEST_SECRET = 8  # a placeholder key such as "none" is no secret, and "password" is a word
_WORD = re.compile(r"[A-Z]?[a-z]{0,15}|[A-Z]{0,16}")
_VARIABLE = re.compile(
    r"(API_?KEY|_KEY|SECRET|TOKEN|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?)$", re.IGNORECASE
)
_LOGIN = re.compile(r"://([^\s/:@]*):?([^\s/@]*)@")
_HEADER = re.compile(r"key|auth|token|secret|cookie|pass|credential|session", re.IGNORECASE)
_SECRET_KEY = re.compile(
    r"(^|[_-])(api_?key|api_?base|base_?url|model_?list|authorization|(extra_?)?headers|cookies?"
    r"|password|passwd|secret|credentials?|private_?key|(access|auth|bearer|refresh)_?token)"
    r"($|[_-])",
    re.IGNORECASE,
)
# A value as JSON (also within JSON), YAML, shells and query strings write it. After a colon prose
# may go on: what is not quoted there must have a digit.
_SET = (
    r"""\\{0,4}["']?\s{0,9}(?:=>?|:(?=\s{0,9}\\{0,4}["'])|:(?=\s{0,9}[^\s"',;]{0,200}\d))\s{0,9}"""
)
_VALUE = r"""(?:"(?:[^"\\]|\\.){4,}"|'[^']{4,}'|\\{0,4}["']?(?!\\)[^\s"'`,;&<>(){}\[\]]{6,})"""
_BASE64 = r"[A-Za-z0-9+/=]{16,}"
_SECRET_TEXT = {
    "a private key": re.compile(
        r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
        r"(?:(?:[^-]|-(?!----)){0,20000}-----END [A-Z0-9 ]{0,40}-----"
        rf"|(?:(?:\s|\\[nr]){{0,9}}{_BASE64})*)"
    ),
    "an API key": re.compile(
        r"\b(sk-[A-Za-z0-9_-]{16,}|(?:AKIA|ASIA)[0-9A-Z]{16}|AIza[0-9A-Za-z_-]{35}"
        r"|ya29\.[\w-]{20,}|hf_[A-Za-z0-9]{20,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}"
        r"|glpat-[\w-]{20,}|xox[abeoprs]-[\w-]{10,}|xapp-[\w-]{10,}|gsk_[A-Za-z0-9]{20,}"
        r"|xai-[A-Za-z0-9]{20,}|r8_[A-Za-z0-9]{20,}|dapi[0-9a-f]{32}|npm_[A-Za-z0-9]{36}"
        r"|pypi-[\w-]{50,}|[rs]k_(?:live|test)_[A-Za-z0-9]{16,}|SG\.[\w-]{16,}\.[\w-]{16,})"
        r"|hooks\.slack\.com/services/[\w/]{9,}"
    ),
    "an API key by name": re.compile(
        r"(?P<name>(?:api[ _-]?(?:key|token)|secret[ _-]?key|account[ _-]?key|client[_-]?secret"
        r"|secret[_-]?access[_-]?key|subscription[_-]?key|shared[_-]?access[_-]?(?:key|signature)"
        rf"|(?:access|auth|refresh|bearer|session|security)[ _-]?token)\b{_SET}"
        r"|\bx-(?:api-key|goog-api-key|functions-key|auth-token)\b\"?\s{0,9}:\s{0,9}"
        r"|[?&;](?:key|sig|signature|token|access_token|x-amz-[a-z-]{1,30})=(?=[^\s&]{12})(?=\S*\d))"
        rf"{_VALUE}",
        re.IGNORECASE,
    ),
    "an API address": re.compile(r"\b(api_base|base_url)\b", re.IGNORECASE),
    "an Authorization header": re.compile(
        r"\bauthorization\b[\"']?\s*[:=](\s*[\"']?("
        r"(?:digest|aws4-hmac-sha256|hawk|signature)\s[^\r\n]+"
        r"|(?:(?:basic|bearer|token|negotiate|apikey|ntlm)\s+)?[^\s\"',}]+))?"
        r"|\b(?:set-)?cookie\b[\"']?\s*:\s*[\w.-]+=[^\r\n]+"
        r"|\bbearer\s+[\w.~+/=-]{16,}|\bbasic\s+(?=[\w+/]{0,500}[\d=])[\w+/]{16,}={0,2}",
        re.IGNORECASE,
    ),
    "a JSON web token": re.compile(r"\beyJ[\w-]{8,1000}\.eyJ[\w-]{8,}\.[\w-]+"),
    "a user with a password": re.compile(
        r"\b(?!(mailto|e-?mail|contact|from|to|cc|acct|sip|xmpp):)"
        r"(?:([a-z][a-z0-9+.-]{0,20}://)?[\w.+%-]{1,64}:[^\s/:@]{3,200}@(?=[\w-])"
        r"|[a-z][a-z0-9+.-]{0,20}://(?::[^\s/:@]{3,200}|(?=\D{0,50}\d)[\w.~%+-]{12,200})@(?=[\w-]))",
        re.IGNORECASE,
    ),
    "a password": re.compile(
        rf"(?P<name>\b(?:\w{{0,30}}_)?(?:password|passwd|passphrase|pwd)\b{_SET}){_VALUE}",
        re.IGNORECASE,
    ),
}
# As Azure and Together make them; digests look alike, so only where there are none.
_HEX_KEY = re.compile(r"\b(?=\d*[a-f])(?=[a-f]*\d)([0-9a-f]{64}|[0-9a-f]{32})\b")


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


def secrets_in(
    value: JsonValue, where: str, known: Collection[str] = (), *, digests: bool = True
) -> Iterator[SecretFound]:
    """Find what looks like a secret in a JSON value: in the names of keys and in texts.

    Args:
        value: What is written.
        where: Name of the value, the beginning of the reported place.
        known: Secrets in use now; a text that contains one is reported whatever it looks like.
        digests: Whether 32 or 64 hexadecimal digits may be a digest; else they pass for a key.
    """
    if isinstance(value, str):
        if kind := _kind(value, known, digests):
            yield SecretFound(where, kind)
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            if _SECRET_KEY.search(key):
                yield SecretFound(f"{where}.{key}", "a key of that name")
            elif kind := _kind(key, known, digests):
                yield SecretFound(where, f"{kind} as the name of a key")
            else:
                yield from secrets_in(inner, f"{where}.{key}", known, digests=digests)
    elif isinstance(value, Sequence):
        for position, inner in enumerate(value):
            yield from secrets_in(inner, f"{where}[{position}]", known, digests=digests)


def _kind(text: str, known: Collection[str], digests: bool) -> str:
    if any(secret in text for secret in known):
        return "a secret of the LM in use"
    if not digests and _HEX_KEY.search(text):
        return "an API key"
    return next((kind for kind, pattern in _SECRET_TEXT.items() if pattern.search(text)), "")


def secrets_of(lms: Iterable[object] = (), *, addresses: bool = False) -> frozenset[str]:
    """Return the keys of the environment, of the configured LM, of LMs of steps, and of more LMs.

    Args:
        lms: The LMs; what is none of them is passed over.
        addresses: Their addresses too, which a message may name and an artifact may not.
    """
    import dspy  # late: a process that reads documents calls no LM and starts without it

    given = frozenset(text for lm in (dspy.settings.lm, *lms) for text in _given_to(lm))
    found = _secrets_among(given.union(_OF_STEPS), tuple(os.environ.items()))
    return found if addresses else frozenset(text for text in found if "://" not in text)


_OF_STEPS: dict[str, None] = {}
"""Keys, addresses and headers of the LMs that steps of a program have of their own."""


def note_secrets(lm: object) -> None:
    """Remember the keys of a step's own LM, which no setting of DSPy names."""
    _OF_STEPS.update(dict.fromkeys(_given_to(lm)))


def _given_to(lm: object) -> Iterator[str]:
    for key, value in (getattr(lm, "kwargs", None) or {}).items():
        if _SECRET_KEY.search(key):
            yield from _texts(value)


@lru_cache(maxsize=8)
def _secrets_among(
    given: frozenset[str], environment: tuple[tuple[str, str], ...]
) -> frozenset[str]:
    """Return the given texts, the keys of an environment, and those in addresses of either."""
    found = {value for name, value in environment if _VARIABLE.search(name)} | given
    found |= {part.strip() for value in found for part in value.split(",")}  # several keys
    every = " ".join([*found, *(value for _, value in environment)])
    for user, password in _LOGIN.findall(every):
        found |= {password, unquote(password), *([] if password else [user])}
    bare = {re.sub(r"^(bearer|basic|token)\s+", "", text, flags=re.IGNORECASE) for text in found}
    return frozenset(t for t in bare if len(t) >= SHORTEST_SECRET and not _WORD.fullmatch(t))


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            if _HEADER.search(name) or _SECRET_KEY.search(name):
                yield from _texts(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _texts(inner)


# --- Taking them out

_WITHHELD = "(withheld)"
_SHOWN = {"an API address"}  # the name alone, not the secret


def withheld(text: str, lms: Iterable[object] = ()) -> str:
    """Return a message without the secrets in use or anything that looks like a key.

    Args:
        text: What is written, printed or tracked.
        lms: LMs beside the configured one whose keys it may hold.

    >>> withheld("401: Incorrect API key: sk-abcdefghijklmnop at http://ann:secret7@host/v1")
    '401: Incorrect API key: (withheld) at (withheld)host/v1'
    """
    text = next(without(secrets_of(lms), [text]))
    for kind, pattern in _SECRET_TEXT.items():
        text = text if kind in _SHOWN else pattern.sub(_withheld, text)
    return text


def _withheld(found: re.Match[str]) -> str:
    """Return the replacement of a secret; the name it was given stays."""
    return f"{found.groupdict().get('name') or ''}{_WITHHELD}"


def without(secrets: Iterable[str], texts: Iterable[Any]) -> Iterator[Any]:
    """Yield data with these secrets removed from its texts; JSON stays JSON."""
    forms = list[str]()
    for secret in sorted(secrets, key=len, reverse=True):
        written = json.dumps(secret), json.dumps(secret, ensure_ascii=False)
        forms += (form.strip('"') for form in (secret, *written))
    for text in texts:
        for form in forms if isinstance(text, str) else ():
            text = text.replace(form, _WITHHELD)
        yield text


class CleanStream:
    """Wraps a text stream; secrets are removed from what is written."""

    def __init__(self, stream: TextIO, lms: Iterable[object] = ()) -> None:
        self._stream, self._lms = stream, tuple(lms)

    def write(self, text: str) -> int:
        """Write a text."""
        return self._stream.write(withheld(text, self._lms))

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)


def without_password(uri: str) -> str:
    """Return an address without user name, password and query, as it may be shown.

    >>> without_password("https://ann:secret@mlflow.example/x?token=1")
    'https://mlflow.example/x'
    """
    scheme, mark, rest = uri.partition("://")
    if not mark:
        return uri
    authority, slash, path = rest.partition("/")
    return f"{scheme}{mark}{authority.rpartition('@')[2]}{slash}{path.partition('?')[0]}"


def check_addresses(*lms: dspy.BaseLM) -> None:
    """Check that LMs have addresses that may be shown.

    Raises:
        InputError: There is a user name, a password or a query in one.
    """
    for lm in lms:
        address = str((getattr(lm, "kwargs", None) or {}).get("api_base") or "")
        if (shown := without_password(address)) != address:
            wrong = f"the address {shown} has a user, a password or a query, and is shown and kept"
            raise InputError(wrong, remedy="pass the key as OPENAI_API_KEY, api_key=… or a header")
