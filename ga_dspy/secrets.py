"""Redaction: no key, address or header in an artifact, no key in journals, MLflow or output.

An artifact with a secret is refused (`secrets_in`). From other texts, secrets are removed
(`withheld`) where the texts leave the process: journals, error messages, MLflow, the terminal.
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
# A value as in JSON (also escaped), YAML, shells and query strings. Prose may follow a colon, so an
# unquoted value there must contain a digit.
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
# Keys of Azure and Together. Digests look the same, so this is used only where no digest can be.
_HEX_KEY = re.compile(r"\b(?=\d*[a-f])(?=[a-f]*\d)([0-9a-f]{64}|[0-9a-f]{32})\b")


class SecretFound(ArtifactError):
    """An artifact contains, or would contain, a value that looks like a secret.

    The message names the place and the kind, and never repeats the value.
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
    """Yield an error for each name or text in a JSON value that looks like a secret.

    Args:
        value: The value to write.
        where: Name of the value, with which the reported places begin.
        known: Secrets in use now; a text that contains one is always reported.
        digests: Whether 32 or 64 hexadecimal digits may be a digest; if not, they are reported as
            a key.
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
    """Return the keys of the environment, of the configured LM, of the steps' LMs, and of more LMs.

    Args:
        lms: The other LMs; other objects are ignored.
        addresses: Whether to return addresses, too; messages may name them, artifacts may not.
    """
    import dspy  # late: a process that reads documents calls no LM and starts without it

    settings = frozenset(text for lm in (dspy.settings.lm, *lms) for text in _secret_settings(lm))
    found = _secrets_among(settings.union(_STEP_SECRETS), tuple(os.environ.items()))
    return found if addresses else frozenset(text for text in found if "://" not in text)


_STEP_SECRETS = set[str]()
"""Keys, addresses and headers of the LMs that are set on steps of programs."""


def note_secrets(lm: object) -> None:
    """Remember the keys of a step's LM, which `dspy.settings` does not have."""
    _STEP_SECRETS.update(_secret_settings(lm))


def _secret_settings(lm: object) -> Iterator[str]:
    for key, value in (getattr(lm, "kwargs", None) or {}).items():
        if _SECRET_KEY.search(key):
            yield from _texts(value)


@lru_cache(maxsize=8)
def _secrets_among(
    settings: frozenset[str], environment: tuple[tuple[str, str], ...]
) -> frozenset[str]:
    """Return LM settings, the keys in an environment, and the passwords in addresses of either."""
    found = {value for name, value in environment if _VARIABLE.search(name)} | settings
    found |= {part.strip() for value in found for part in value.split(",")}  # several keys
    texts = " ".join([*found, *(value for _, value in environment)])
    for user, password in _LOGIN.findall(texts):
        found |= {password, unquote(password)} if password else {user}
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


# --- Redacting texts

_WITHHELD = "(withheld)"
_NOT_REDACTED = {"an API address"}  # the pattern finds the name of the setting, not its value


def withheld(text: str, lms: Iterable[object] = ()) -> str:
    """Return a text without the secrets in use and without anything that looks like a key.

    Args:
        text: The text to write, print or log.
        lms: LMs whose keys it may contain, in addition to the configured LM.

    >>> withheld("401: Incorrect API key: sk-abcdefghijklmnop at http://ann:secret7@host/v1")
    '401: Incorrect API key: (withheld) at (withheld)host/v1'
    """
    text = next(without(secrets_of(lms), [text]))
    for kind, pattern in _SECRET_TEXT.items():
        if kind not in _NOT_REDACTED:
            text = pattern.sub(_redact, text)
    return text


def _redact(secret: re.Match[str]) -> str:
    """Return the replacement for a secret, which keeps the name before it."""
    return f"{secret.groupdict().get('name') or ''}{_WITHHELD}"


def without(secrets: Iterable[str], texts: Iterable[Any]) -> Iterator[Any]:
    """Yield values; in those that are texts, these secrets are redacted. JSON stays valid."""
    forms = list[str]()
    for secret in sorted(secrets, key=len, reverse=True):
        written = json.dumps(secret), json.dumps(secret, ensure_ascii=False)
        forms += (form.strip('"') for form in (secret, *written))
    for text in texts:
        for form in forms if isinstance(text, str) else ():
            text = text.replace(form, _WITHHELD)
        yield text


class CleanStream:
    """A wrapper of a text stream that redacts secrets in what is written."""

    def __init__(self, stream: TextIO, lms: Iterable[object] = ()) -> None:
        self._stream, self._lms = stream, tuple(lms)

    def write(self, text: str) -> int:
        """Write a text."""
        return self._stream.write(withheld(text, self._lms))

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)


def without_password(uri: str) -> str:
    """Return an address without user name, password and query, so that it can be shown.

    >>> without_password("https://ann:secret@mlflow.example/x?token=1")
    'https://mlflow.example/x'
    """
    scheme, mark, rest = uri.partition("://")
    if not mark:
        return uri
    authority, slash, path = rest.partition("/")
    return f"{scheme}{mark}{authority.rpartition('@')[2]}{slash}{path.partition('?')[0]}"


def check_addresses(*lms: dspy.BaseLM) -> None:
    """Check that the addresses of LMs can be shown.

    Raises:
        InputError: An address contains a user name, a password or a query.
    """
    for lm in lms:
        address = str((getattr(lm, "kwargs", None) or {}).get("api_base") or "")
        if (shown := without_password(address)) != address:
            found = f"the address {shown} has a user, a password or a query; it would be shown"
            raise InputError(found, remedy="pass the key as OPENAI_API_KEY, api_key=… or a header")
