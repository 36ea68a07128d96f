"""Failures of LM calls: which are transient, which end a run, which say the prompt is too long."""

from __future__ import annotations

import re
from collections.abc import Iterator

import dspy

from ga_dspy.errors import RunAborted


class EndpointRefused(RunAborted):
    """The endpoint refuses every call for a permanent cause: fix it and start again."""


class EndpointDown(RunAborted):
    """The endpoint was down for too long: start again when it is up."""


_PASSING = (
    dspy.LMRateLimitError, dspy.LMTimeoutError, dspy.LMServerError,
    dspy.LMTransportError, dspy.LMLockTimeoutError, dspy.LMStreamAssemblyError,
    ConnectionError, TimeoutError, EndpointDown,
)  # fmt: skip
_REFUSALS = (
    (dspy.LMBillingError, (402,), "see that the account has money and quota left"),
    (dspy.LMAuthError, (401, 403), "see that the API key is set, valid and allowed the model"),
    (dspy.LMUnsupportedModelError, (404,), "see that the model's name and address are right"),
    (dspy.LMConfigurationError, (), "see that the LM's name and its settings are right"),
)
_NO_KEY = re.compile(r"no API key found.*?\b([A-Z][A-Z0-9_]*_KEY)\b", re.DOTALL)
# Gemini says the same of a quota per minute, and then when to try again.
_NO_QUOTA = re.compile(r"insufficient_quota|exceeded your current quota(?!.*retry in)", re.DOTALL)
_FLAGGED = re.compile(
    r"moderation|prompt injection|content.(policy|filter)|(input|prompt|request) (was )?flagged",
    re.IGNORECASE,
)
"""What OpenRouter says with a 403 of one prompt that a filter refuses."""
_TOO_LONG = re.compile(
    r"context.{0,9}(length|window|size)|reduce the length|(prompt|input).{0,30} too long"
    r"|maximum.{0,20}tokens|too many (input )?tokens|maximum model length"
    r"|max_tokens must be at least",
    re.IGNORECASE,
)
_UNREACHED = re.compile(r"connecting to|CONNECT |TLS handshake")
_MAY_SAY_TOO_LONG = dspy.LMInvalidRequestError | dspy.LMServerError
_OF_REPLY = re.compile(r"(\d[\d,]*)(?: output tokens| in the completion)")
"""The tokens of a context window that are reserved for the reply, in vLLM's two wordings."""


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and its chain of causes: DSPy wraps what is raised inside an LM."""
    while error is not None:
        yield error
        error = error.__cause__


def is_transient(error: BaseException | None) -> bool:
    """Return whether a retry may succeed: the error or one of its causes is transient."""
    for cause in causes(error):
        # Status 200 and a body that is none: a gateway's, not the model's.
        status = getattr(cause, "status", 0) or 0
        is_of_gateway = type(cause) is dspy.LMProviderError and not 300 <= status < 500
        is_passing = isinstance(cause, _PASSING) or is_of_gateway or status == 429
        if is_passing and not (refusal_remedy(cause) or too_long(cause)):
            return True
    return False


def is_timeout(error: BaseException | None) -> bool:
    """Return whether a call reached a server and got no answer in time."""
    return not any(_UNREACHED.search(str(cause)) for cause in causes(error)) and any(
        isinstance(cause, dspy.LMTimeoutError | TimeoutError)
        or (isinstance(cause, dspy.LMTransportError) and "timed out" in str(cause).lower())
        for cause in causes(error)
    )


def too_long(error: BaseException | None) -> bool:
    """Return whether an error says that the prompt exceeds the LM's context window."""
    # DSPy takes a limit of tokens per minute of Anthropic or Gemini for that of a prompt.
    return any(
        isinstance(cause, dspy.ContextWindowExceededError)
        or (isinstance(cause, _MAY_SAY_TOO_LONG) and _TOO_LONG.search(str(cause)))
        for cause in causes(error)
        if getattr(cause, "status", None) != 429
    )


def counts_reply(error: BaseException) -> bool:
    """Return whether a prompt was too long because of the tokens reserved for the reply."""
    return any(_OF_REPLY.search(str(cause)) for cause in causes(error))


def room_left(error: BaseException, sent: int) -> float:
    """Estimate the share of a prompt that would fit, from the error's message.

    Args:
        error: What the LM said.
        sent: About how many tokens the prompt has: some servers stop counting at the limit.
    """
    said = " ".join(str(cause) for cause in causes(error))
    reply = sum(_number(text) for text in _OF_REPLY.findall(said)[:1])
    numbers = map(_number, re.findall(r"\d[\d,]{2,8}", _OF_REPLY.sub("", said)))
    tokens = [number for number in numbers if number >= _LEAST_WINDOW]
    share = 0.85 * (min(tokens) - reply) / max(*tokens, sent) if tokens else 0.0
    return share if 0.1 < share < 0.85 else 0.5


_LEAST_WINDOW = 512
"""Smaller numbers in an error are a status, such as 400."""


def _number(text: str) -> int:
    return int(text.replace(",", ""))


def refusal_remedy(error: BaseException) -> str:
    """Return what to do about an error that every call will meet; empty for another one."""
    if not isinstance(error, dspy.LMError) or too_long(error) or _FLAGGED.search(str(error)):
        return ""
    if key := _NO_KEY.search(error.message or str(error)):
        return f"set {key[1]} in the environment or in .env, or name another LM with --lm"
    if _NO_QUOTA.search(f"{error.provider_code} {error.message}"):
        return _REFUSALS[0][2]
    fitting = (r for r in _REFUSALS if isinstance(error, r[0]) or error.status in r[1])
    return next((remedy for *_, remedy in fitting), "")
