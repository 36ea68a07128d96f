"""The cost of a question: LM calls, tokens, time and money, counted by step."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import dspy
from dspy.utils import BaseCallback
from pydantic import BaseModel, ConfigDict

from ga_dspy.lm.dspy_private import GLOBAL_HISTORY
from ga_dspy.lm.endpoints import endpoint_digest, lm_name, note_thoughts
from ga_dspy.lm.failures import is_timeout, is_transient
from ga_dspy.lm.patience import METER, Patience, format_duration, now
from ga_dspy.lm.store import reported_tokens
from ga_dspy.lm.wrapper import wrap
from ga_dspy.text import TokenCounter, estimate_tokens

_log = logging.getLogger("ga_dspy")


class Usage(BaseModel):
    """The cost of LM calls.

    Attributes:
        calls: LM calls with a usable reply, cached or not.
        cached: How many of them came from DSPy's cache.
        failed: Other attempts, without a usable reply.
        timeouts: How many of the failed attempts timed out.
        unreadable: How many of the failed attempts had an unreadable reply.
        cut_prompts: Calls whose prompt the server cut: it read fewer tokens than there are words.
        prompt_tokens: Tokens of prompts, as the LM reports them (for a cached call, when it was
            made), or else estimated.
        completion_tokens: Tokens of replies, likewise.
        cost: US dollars, with cached calls at their original price; None if a price is unknown.
    """

    model_config = ConfigDict(frozen=True)

    calls: int = 0
    cached: int = 0
    failed: int = 0
    timeouts: int = 0
    unreadable: int = 0
    cut_prompts: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float | None = 0.0

    @property
    def tokens(self) -> int:
        """Prompt and completion tokens."""
        return self.prompt_tokens + self.completion_tokens

    @property
    def failures(self) -> str:
        """The number of failed attempts by kind, in words.

        >>> Usage(failed=17, timeouts=15, unreadable=1).failures
        '17 failed attempts (15 timeouts, 1 unreadable reply, 1 error)'
        >>> Usage().failures
        '0 failed attempts'
        """
        kinds = (
            (self.timeouts, "timeout", "timeouts"),
            (self.unreadable, "unreadable reply", "unreadable replies"),
            (self.failed - self.timeouts - self.unreadable, "error", "errors"),
        )
        counts = ", ".join(f"{n:,} {one if n == 1 else more}" for n, one, more in kinds if n)
        attempts = f"{self.failed:,} failed attempt{'' if self.failed == 1 else 's'}"
        return f"{attempts} ({counts})" if counts else attempts

    @property
    def cuts(self) -> str:
        """The number of prompts cut by the server, in words; empty for none."""
        prompts = "1 prompt" if self.cut_prompts == 1 else f"{self.cut_prompts:,} prompts"
        return f"{prompts} cut by the server" if self.cut_prompts else ""

    @classmethod
    def total(cls, parts: Iterable[Usage]) -> Usage:
        """Return the sum of costs; its price is unknown if that of a part is.

        >>> total = Usage.total([Usage(calls=1, cost=0.5), Usage(calls=2, cost=None)])
        >>> total.calls, total.cost
        (3, None)
        """
        parts = list(parts)
        total = dict[str, Any]()
        for name in cls.model_fields:
            values = [getattr(part, name) for part in parts]
            total[name] = None if None in values else sum(values)
        return cls(**total)


class LMCall(NamedTuple):
    """A finished LM call: the messages sent, the outputs or the error, the time and the cost."""

    model: str
    sent: list[Any]
    outputs: Any
    error: BaseException | None
    seconds: float
    usage: Usage


_KEPT, _KEPT_BY_DSPY = 1_000, 10_000


class Meter(BaseCallback):
    """Counts the LM calls of a question, including those that an adapter repeats.

    Attributes:
        config: Parameters of every LM call of the question, such as `{"temperature": 0.7}`.
        usage: The cost of each step so far, by the step's name.
        seconds: Wall time of LM calls so far, including cached ones.
        waited: Seconds spent waiting for an endpoint that was down.
        sent: The messages of the last call.
        truncated: Whether the last reply stopped at the token limit.
        has_thoughts: Whether the last reply had reasoning in it or with it.
        reply: The last reply, as the LM wrote it.
        cached: Whether the last reply came from DSPy's cache.
        answered: Whether any call was answered.
        is_transient: Whether a failure was transient.
        history: DSPy's record of the current call.
        step: The step whose calls are counted.
        on_call: Functions called with each finished call.
    """

    def __init__(self) -> None:
        self.config: Mapping[str, Any] = {}
        self.usage: dict[str, Usage] = {}
        self.seconds = self.waited = 0.0
        self.step = self.reply = ""
        self.sent: list[Any] = []
        self.truncated = self.cached = self.has_thoughts = False
        self.answered = self.is_transient = False
        self.history: list[dict[str, Any]] = []
        self.on_call: list[Callable[[LMCall], None]] = []
        self._lm: Any = None
        self._outer: Any = None
        self._is_live = False
        self._since, self._began = now(), 0.0

    @property
    def sent_tokens(self) -> int:
        """The estimated tokens of the last prompt."""
        return sum(estimate_tokens(str(message.get("content"))) for message in self.sent)

    @property
    def calls(self) -> int:
        """The number of LM calls so far."""
        return Usage.total(self.usage.values()).calls

    @property
    def tokens(self) -> int:
        """Prompt and completion tokens so far."""
        return Usage.total(self.usage.values()).tokens

    def overdue(self) -> TimeoutError | None:
        """Return an error if the question timed out; waits for an endpoint do not count."""
        limit = Patience.current().question
        if now() - self._since - self.waited <= limit:
            return None
        self.is_transient = True
        return TimeoutError(f"the question timed out after {format_duration(limit)}")

    def reject(self) -> None:
        """Count the last reply as unreadable, if there was a call."""
        if self._lm is not None:
            self._add(Usage(calls=-1, cached=-int(self.cached), failed=1, unreadable=1))

    def add_failed(self, attempts: int, waited: float) -> None:
        """Add the failed attempts and the waiting time of a call made on another machine."""
        self.waited += waited
        self._add(Usage(failed=attempts))

    def _add(self, usage: Usage) -> None:
        self.usage[self.step] = Usage.total([self.usage.get(self.step, Usage()), usage])

    @contextmanager
    def counting(self, step: str, adapter: dspy.Adapter) -> Iterator[None]:
        """Count the LM calls of the current thread or task inside this block.

        DSPy's history and trace keep 1,000 calls, unless a size is configured: its default of
        10,000 takes much memory in a long-running process.

        Args:
            step: The name of the step: "read", "answer", …
            adapter: The adapter to use if none is configured.
        """
        settings = dspy.settings
        self._outer, self.step = settings.usage_tracker, step
        self._forget_reply()
        sizes = ("max_history_size", "max_trace_size")
        with dspy.context(
            **{name: _KEPT for name in sizes if settings.get(name) == _KEPT_BY_DSPY},
            **{METER: self},
            lm=wrap(settings.lm),
            adapter=settings.adapter or adapter,
            callbacks=[*(settings.callbacks or []), self],
            usage_tracker=self,
            caller_modules=[self, *(settings.caller_modules or [])],
        ):
            try:
                yield
            except Exception as error:
                self.is_transient |= is_transient(error)
                raise

    def _forget_reply(self) -> None:
        """Reset the state of the last reply: a module may end without an LM call."""
        self.truncated = self.cached = self.has_thoughts = self._is_live = False
        self.reply, self._lm = "", None

    def add_usage(self, model: str, usage: dict[str, Any]) -> None:
        """Record that the call was not cached; pass its usage on to an outer tracker."""
        self._is_live = True
        if self._outer is not None:
            self._outer.add_usage(model, usage)

    def on_lm_start(self, call_id: str, instance: Any, inputs: dict[str, Any]) -> None:
        """Record the messages sent, to estimate their tokens if the LM reports none."""
        self._forget_reply()
        self._lm = getattr(instance, "original", instance)
        self.sent = inputs.get("messages") or [{"content": inputs.get("prompt")}]
        self.history.clear()
        self._began = time.perf_counter()

    def on_lm_end(self, call_id: str, outputs: Any, exception: BaseException | None = None) -> None:
        """Count the call and its time."""
        seconds = time.perf_counter() - self._began
        self.seconds += seconds
        self.cached = exception is None and not self._is_live
        if exception is None:
            call = self._answered(outputs or ())
        else:
            call = Usage(failed=1, timeouts=int(is_timeout(exception)))
        self._add(call)
        for observe in self.on_call:
            observe(LMCall(self._lm.model, self.sent, outputs, exception, seconds, call))

    def _answered(self, outputs: Sequence[Any]) -> Usage:
        """Record the reply of a call; return its cost."""
        record = self.history[-1] if self.history else {}
        if dspy.settings.max_history_size == _KEPT:
            del GLOBAL_HISTORY[:-_KEPT]
        response = record.get("response")
        parts = [response, *(getattr(response, "choices", None) or ())]
        self.truncated = any(getattr(part, "finish_reason", "") == "length" for part in parts)
        first = next(iter(outputs), "")
        first = first if isinstance(first, dict) else {"text": first}
        self.answered, self.reply = True, str(first.get("text") or "")
        if first.get("reasoning_content") or "<think" in self.reply:
            self.has_thoughts = True
            note_thoughts(self._lm)
        prompt, completion = reported_tokens(record) or (
            self.sent_tokens,
            estimate_tokens("".join(str(output) for output in outputs)),
        )
        return Usage(
            calls=1,
            cached=int(self.cached),
            cut_prompts=int(self._is_cut(record.get("usage") or {})),
            prompt_tokens=prompt,
            completion_tokens=completion,
            cost=record.get("cost"),
        )

    def _is_cut(self, usage: Mapping[str, Any]) -> bool:
        """Return whether the server cut the prompt; a whole one has at least a token per word.

        Only local servers cut silently. A report under 1,000 tokens may come from a server that
        counts only tokens it had not cached. A cut in a text without spaces is not detected.
        """
        if self.cached or not endpoint_digest(self._lm):
            return False
        cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
        read = (usage.get("prompt_tokens") or 0) + cached
        words = sum(len(str(message.get("content")).split()) for message in self.sent)
        if not _FEWEST_REPORTED <= read < words:
            return False
        if (name := lm_name(self._lm)) not in _CUT:
            _CUT.add(name)
            _log.warning(
                "%s read %d tokens of a prompt of about %d: its server cut the rest; expected a "
                "context window that holds the prompt; raise it in the server's settings (Ollama: "
                "OLLAMA_CONTEXT_LENGTH=16384, or num_ctx in a Modelfile), or lower passage_tokens",
                self._lm.model, read, self.sent_tokens,
            )  # fmt: skip
        return True


_FEWEST_REPORTED = 1_000
_CUT: set[tuple[str, str | None]] = set()
"""The LMs whose cut prompts were logged."""


def prompt_tokens(
    signature: type[dspy.Signature],
    adapter: dspy.Adapter,
    count: TokenCounter,
    demos: Sequence[Any] = (),
) -> int:
    """Return the tokens of a prompt with empty inputs: its instruction, fields and demos."""
    inputs = dict.fromkeys(signature.input_fields, "")
    messages = adapter.format(signature, demos=list(demos), inputs=inputs)
    return sum(count(str(message["content"])) for message in messages)
