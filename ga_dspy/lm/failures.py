"""Errors of LM calls: which are transient, which end a run, which mean a prompt is too long."""

from __future__ import annotations

import re
from collections.abc import Iterator

import dspy

from ga_dspy.errors import RunAborted


class EndpointRefused(RunAborted):
    """The endpoint refuses every call for a permanent reason: fix it and start again."""


class EndpointDown(RunAborted):
    """The endpoint has been down for too long: start again when it is up."""


_TRANSIENT = (
    dspy.LMRateLimitError, dspy.LMTimeoutError, dspy.LMServerError,
    dspy.LMTransportError, dspy.LMLockTimeoutError, dspy.LMStreamAssemblyError,
    ConnectionError, TimeoutError, EndpointDown,
)  # fmt: skip
_REFUSALS = (
    (dspy.LMBillingError, (402,), "check that the account has credit and quota left"),
    (dspy.LMAuthError, (401, 403), "check that the API key is set, valid and may use the model"),
    (dspy.LMUnsupportedModelError, (404,), "check the model's name and address"),
    (dspy.LMConfigurationError, (), "check the LM's name and settings"),
)
_NO_KEY = re.compile(r"no API key found.*?\b([A-Z][A-Z0-9_]*_KEY)\b", re.DOTALL)
# Gemini uses the same words for a quota per minute, but adds when to retry.
_NO_QUOTA = re.compile(r"insufficient_quota|exceeded your current quota(?!.*retry in)", re.DOTALL)
_FLAGGED = re.compile(
    r"moderation|prompt injection|content.(policy|filter)|(input|prompt|request) (was )?flagged",
    re.IGNORECASE,
)
"""OpenRouter's message, with status 403, for a single prompt that a filter refuses."""
_TOO_LONG = re.compile(
    r"context.{0,9}(length|window|size)|reduce the length|(prompt|input).{0,30} too long"
    r"|maximum.{0,20}tokens|too many (input )?tokens|maximum model length"
    r"|max_tokens must be at least",
    re.IGNORECASE,
)
_NO_CONNECTION = re.compile(r"connecting to|CONNECT |TLS handshake")
_MAY_SAY_TOO_LONG = dspy.LMInvalidRequestError | dspy.LMServerError
_REPLY_TOKENS = re.compile(r"(\d[\d,]*)(?: output tokens| in the completion)")
"""The tokens that vLLM reserves for the reply, in its two wordings."""


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and its chain of causes, since DSPy wraps errors raised inside an LM."""
    while error is not None:
        yield error
        error = error.__cause__


def is_transient(error: BaseException | None) -> bool:
    """Return whether a retry may succeed: the error or one of its causes is transient."""
    for cause in causes(error):
        status = getattr(cause, "status", 0) or 0
        # An invalid body with status 200 comes from a gateway, not from the model.
        is_gateway_error = type(cause) is dspy.LMProviderError and not 300 <= status < 500
        is_retryable = isinstance(cause, _TRANSIENT) or is_gateway_error or status == 429
        if is_retryable and not (refusal_remedy(cause) or too_long(cause)):
            return True
    return False


def is_timeout(error: BaseException | None) -> bool:
    """Return whether a call reached its server but was not answered in time."""
    return not any(_NO_CONNECTION.search(str(cause)) for cause in causes(error)) and any(
        isinstance(cause, dspy.LMTimeoutError | TimeoutError)
        or (isinstance(cause, dspy.LMTransportError) and "timed out" in str(cause).lower())
        for cause in causes(error)
    )


def too_long(error: BaseException | None) -> bool:
    """Return whether an error says that the prompt exceeds the LM's context window."""
    # Status 429 is a limit of tokens per minute, which DSPy can mistake for one of the prompt.
    return any(
        isinstance(cause, dspy.ContextWindowExceededError)
        or (isinstance(cause, _MAY_SAY_TOO_LONG) and _TOO_LONG.search(str(cause)))
        for cause in causes(error)
        if getattr(cause, "status", None) != 429
    )


def counts_reply(error: BaseException) -> bool:
    """Return whether a prompt is too long only because of the tokens reserved for the reply."""
    return any(_REPLY_TOKENS.search(str(cause)) for cause in causes(error))


def room_left(error: BaseException, sent: int) -> float:
    """Estimate from an error's message the share of a prompt that would fit.

    Args:
        error: The LM's error.
        sent: The approximate tokens of the prompt, since some servers stop counting at the limit.
    """
    message = " ".join(str(cause) for cause in causes(error))
    reply = sum(_number(text) for text in _REPLY_TOKENS.findall(message)[:1])
    numbers = map(_number, re.findall(r"\d[\d,]{2,8}", _REPLY_TOKENS.sub("", message)))
    tokens = [number for number in numbers if number >= _LEAST_WINDOW]
    share = 0.85 * (min(tokens) - reply) / max(*tokens, sent) if tokens else 0.0
    return share if 0.1 < share < 0.85 else 0.5


_LEAST_WINDOW = 512
"""Smaller numbers in a message are something else, such as status 400."""


def _number(text: str) -> int:
    return int(text.replace(",", ""))


def refusal_remedy(error: BaseException) -> str:
    """Return the remedy for an error that every call would meet; empty for any other error."""
    if not isinstance(error, dspy.LMError) or too_long(error) or _FLAGGED.search(str(error)):
        return ""
    if key := _NO_KEY.search(error.message or str(error)):
        return f"set {key[1]} in the environment or in .env, or name another LM with --lm"
    if _NO_QUOTA.search(f"{error.provider_code} {error.message}"):
        return _REFUSALS[0][2]
    for kind, statuses, remedy in _REFUSALS:
        if isinstance(error, kind) or error.status in statuses:
            return remedy
    return ""
