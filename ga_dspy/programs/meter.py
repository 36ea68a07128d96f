"""What one question costs: every LM call, its tokens, and whether its output was cut off."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import dspy
from dspy.utils.callback import BaseCallback

from ga_dspy.tokens import estimate_tokens


class Meter(BaseCallback):
    """Counts the LM calls made while it is attached, an adapter's second attempts among them.

    Attributes:
        calls: LM calls, answered from DSPy's cache or not.
        tokens: Prompt and completion tokens. As the LM reports them; estimated for a call that
            reports none (a cached one, say), so that a run costs the same on paper each time.
        truncated: Whether the last call stopped at its token limit.
        history: Where DSPy leaves its record of each call; kept empty.
    """

    def __init__(self) -> None:
        self.calls = 0
        self.tokens = 0
        self.truncated = False
        self.history = _FinishReasons(self)
        self._reported = 0
        self._prompt = 0
        self._outer: Any = None

    @contextmanager
    def attached(self) -> Iterator[None]:
        """Count the calls made inside this block by the current thread or task.

        Where no adapter was chosen, DSPy's chat adapter is used without its own second attempt in
        JSON: `salvage.py` mends most of what that would ask for again.
        """
        settings = dspy.settings
        self._outer = settings.usage_tracker
        with dspy.context(
            adapter=settings.adapter or dspy.ChatAdapter(use_json_adapter_fallback=False),
            callbacks=[*(settings.callbacks or []), self],
            usage_tracker=self,
            caller_modules=[self, *(settings.caller_modules or [])],
        ):
            yield

    def add_usage(self, model: str, usage: dict[str, Any]) -> None:
        """Take the usage of a call from DSPy and pass it on to a tracker around this one."""
        total = usage.get("total_tokens")
        parts = (usage.get("prompt_tokens") or 0) + (usage.get("completion_tokens") or 0)
        self._reported += int(total or parts)
        if self._outer is not None:
            self._outer.add_usage(model, usage)

    def on_lm_start(self, call_id: str, instance: Any, inputs: dict[str, Any]) -> None:
        """Note what is sent, in case the LM reports no usage."""
        self.truncated = False
        self._reported = 0
        messages = inputs.get("messages") or [{"content": inputs.get("prompt")}]
        self._prompt = sum(estimate_tokens(str(message.get("content"))) for message in messages)

    def on_lm_end(self, call_id: str, outputs: Any, exception: BaseException | None = None) -> None:
        """Count the call."""
        self.calls += 1
        if exception is None:
            said = "".join(str(output) for output in outputs or ())
            self.tokens += self._reported or self._prompt + estimate_tokens(said)


class _FinishReasons(list[Any]):
    """A list that keeps nothing of what DSPy appends but why the completion ended."""

    def __init__(self, meter: Meter) -> None:
        super().__init__()
        self._meter = meter

    def append(self, entry: Any) -> None:
        response = entry.get("response")
        ended = [response, *(getattr(response, "choices", None) or ())]
        self._meter.truncated = any(getattr(e, "finish_reason", "") == "length" for e in ended)
