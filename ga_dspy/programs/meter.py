"""What one question costs, step by step, and whether an output was cut off."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import dspy
from dspy.utils.callback import BaseCallback

from ga_dspy.programs.usage import Usage
from ga_dspy.tokens import estimate_tokens


class Meter(BaseCallback):
    """Counts the LM calls made while it is attached, an adapter's second attempts among them.

    Attributes:
        usage: What each step of the program cost so far, by the step's name.
        truncated: Whether the last call stopped at its token limit.
        history: Where DSPy leaves its record of each call; kept empty.
    """

    def __init__(self) -> None:
        self.usage: dict[str, Usage] = {}
        self.truncated = False
        self.history = _History(self)
        self._step = ""
        self._outer: Any = None
        self._prompt = 0
        self._live = False
        self._record: dict[str, Any] = {}

    @property
    def total(self) -> Usage:
        """What everything cost so far."""
        return Usage.total(self.usage.values())

    @property
    def calls(self) -> int:
        """LM calls so far."""
        return self.total.calls

    @property
    def tokens(self) -> int:
        """Prompt and completion tokens so far."""
        return self.total.tokens

    @contextmanager
    def attached(self, step: str) -> Iterator[None]:
        """Count the calls made inside this block by the current thread or task.

        Where no adapter was chosen, DSPy's chat adapter is used without its own second attempt in
        JSON: `salvage.py` mends most of what that would ask for again.

        Args:
            step: What the calls are for: "read", "answer", …
        """
        settings = dspy.settings
        self._outer, self._step = settings.usage_tracker, step
        with dspy.context(
            adapter=settings.adapter or dspy.ChatAdapter(use_json_adapter_fallback=False),
            callbacks=[*(settings.callbacks or []), self],
            usage_tracker=self,
            caller_modules=[self, *(settings.caller_modules or [])],
        ):
            yield

    def add_usage(self, model: str, usage: dict[str, Any]) -> None:
        """Hear of a call that did not come from the cache, and tell a tracker around this one."""
        self._live = True
        if self._outer is not None:
            self._outer.add_usage(model, usage)

    def heard(self, record: dict[str, Any]) -> None:
        """Take DSPy's record of a call."""
        response = record.get("response")
        ended = [response, *(getattr(response, "choices", None) or ())]
        self.truncated = any(getattr(e, "finish_reason", "") == "length" for e in ended)
        self._record = record

    def on_lm_start(self, call_id: str, instance: Any, inputs: dict[str, Any]) -> None:
        """Note what is sent, in case the LM reports no usage."""
        self.truncated, self._live, self._record = False, False, {}
        messages = inputs.get("messages") or [{"content": inputs.get("prompt")}]
        self._prompt = sum(estimate_tokens(str(message.get("content"))) for message in messages)

    def on_lm_end(self, call_id: str, outputs: Any, exception: BaseException | None = None) -> None:
        """Count the call."""
        sent, said = 0, 0
        if exception is None:
            sent, said = _reported(self._record) or (
                self._prompt,
                estimate_tokens("".join(str(output) for output in outputs or ())),
            )
        call = Usage(
            calls=1,
            cached=int(exception is None and not self._live),
            prompt_tokens=sent,
            completion_tokens=said,
            cost=self._record.get("cost"),
        )
        self.usage[self._step] = Usage.total([self.usage.get(self._step, Usage()), call])


def _reported(record: dict[str, Any]) -> tuple[int, int] | None:
    """Prompt and completion tokens as the LM told them, with the call or in its cached reply."""
    usage = record.get("usage") or {}
    sent, said = usage.get("prompt_tokens"), usage.get("completion_tokens")
    if not sent:
        told = getattr(record.get("response"), "usage", None)
        sent = getattr(told, "input_tokens", None) or getattr(told, "prompt_tokens", None)
        said = getattr(told, "output_tokens", None) or getattr(told, "completion_tokens", None)
    return (int(sent), int(said or 0)) if sent else None


class _History(list[Any]):
    """A list that keeps nothing of what DSPy appends, and lets the meter have it."""

    def __init__(self, meter: Meter) -> None:
        super().__init__()
        self._meter = meter

    def append(self, entry: Any) -> None:
        self._meter.heard(entry)
