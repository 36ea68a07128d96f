"""Calls to the LM and the retriever: one algorithm for threads and asyncio, and its cost."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple, TypeVar, get_args, get_origin

import dspy
import pydantic
from dspy.utils.callback import BaseCallback
from dspy.utils.exceptions import AdapterParseError
from pydantic import BaseModel, ConfigDict

from ga_dspy.errors import GaDspyError
from ga_dspy.graph import GraphUpdate, KnowledgeGraph, linearise
from ga_dspy.grounding import Dropped, Grounding, ground
from ga_dspy.passage import Passage
from ga_dspy.retrieval import Retriever
from ga_dspy.signatures import GraphProposal
from ga_dspy.text import estimate_tokens

# --- One algorithm, run by threads or by asyncio.
#
# A program is a generator that yields what it needs from the outside, a search or an LM call, and
# is sent the result (or thrown the error). The two drivers below carry it out and are the only
# places that know whether the world is synchronous.

Labelled = Mapping[int, Passage]
"""Passages by the numbers under which an LM reads and cites them."""

Result = TypeVar("Result")


@dataclass(frozen=True)
class Search:
    """Passages for a query."""

    retriever: Retriever
    query: str
    k: int

    def run(self) -> list[Passage]:
        """Search now."""
        return self.retriever(self.query, self.k)

    async def arun(self) -> list[Passage]:
        """Search in a worker thread, so that the event loop goes on."""
        return await asyncio.to_thread(self.run)


@dataclass(frozen=True)
class Ask:
    """A predictor's call for a step; with `rollout` above 0 a fresh reply, not a cached one."""

    step: str
    predictor: dspy.Predict
    inputs: dict[str, Any]
    meter: Meter
    rollout: int = 0

    @property
    def config(self) -> dict[str, Any]:
        """What the LM is sent beside the prompt."""
        return {"rollout_id": self.rollout, "temperature": 1.0} if self.rollout else {}

    def run(self) -> dspy.Prediction:
        """Call the predictor."""
        with self.meter.counting(self.step):
            return self.predictor(**self.inputs, config=self.config)

    async def arun(self) -> dspy.Prediction:
        """Call the predictor from a coroutine."""
        with self.meter.counting(self.step):
            return await self.predictor.acall(**self.inputs, config=self.config)


Request = Search | Ask
Conversation = Generator[Request, Any, Result]


def drive(
    conversation: Conversation[Result],
    run: Callable[[Request], Any] = lambda request: request.run(),
) -> Result:
    """Carry a conversation to its end in this thread; `run` carries out a request."""
    resume: Any = partial(next, conversation)
    while True:
        try:
            request: Request = resume()
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        try:
            resume = partial(conversation.send, run(request))
        except Exception as error:  # noqa: BLE001 - handed to the program, which may know it
            resume = partial(conversation.throw, error)


async def adrive(conversation: Conversation[Result]) -> Result:
    """Carry a conversation to its end in this event loop."""
    resume: Any = partial(next, conversation)
    while True:
        try:
            request: Request = resume()
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        try:
            resume = partial(conversation.send, await request.arun())
        except Exception as error:  # noqa: BLE001 - handed to the program, which may know it
            resume = partial(conversation.throw, error)


# --- Ask: a reply that does not parse is mended, asked for anew, or named.


class StepFailed(GaDspyError):
    """A step got no usable output from the LM, twice."""

    def __init__(self, step: str, cause: str, reply: str) -> None:
        super().__init__(
            f"the {step} step got no usable output from the LM, twice ({cause})",
            expected=f"its output fields, found {reply[:200]!r}",
            remedy="raise max_tokens, try another adapter (dspy.JSONAdapter, dspy.XMLAdapter) or "
            "a stronger model",
        )
        self.step, self.cause, self.reply = step, cause, reply


def ask(
    step: str, predictor: dspy.Predict, inputs: Mapping[str, Any], meter: Meter
) -> Generator[Ask, Any, dspy.Prediction]:
    """Ask a predictor until its output is usable, at most twice.

    Of the inputs, those that the predictor's signature has are given. A reply that the adapter
    cannot read is mended without a further call where it holds all fields (`salvage`). Else, or
    where it was cut off, the LM is asked once more, past the cache that keeps a bad reply too.

    Raises:
        StepFailed: Neither attempt gave every output field, or both were cut off.
    """
    given = _given(predictor, inputs)
    cause = reply = ""
    for rollout in (0, 1):
        try:
            prediction = yield Ask(step, predictor, given, meter, rollout)
        except (AdapterParseError, pydantic.ValidationError) as error:
            reply = str(getattr(error, "lm_response", "") or error)
            mended = None if meter.truncated else salvage(predictor.signature, reply)
            if mended is not None:
                _trace(predictor, given, mended)
                return mended
        else:
            if not meter.truncated:
                return prediction
            remove_from_trace(prediction)
            reply = str(prediction)
        cause = "it was cut off at the token limit" if meter.truncated else "it does not parse"
    raise StepFailed(step, cause, reply)


class Grounded(NamedTuple):
    """What passages add to a graph.

    Attributes:
        reply: The last usable reply; its proposal holds grounded items only.
        updates: What each attempt got right, in order.
        dropped: What no passage supports, or could not be read.
    """

    reply: dspy.Prediction
    updates: tuple[GraphUpdate, ...]
    dropped: tuple[Dropped, ...]


def ask_grounded(
    step: str,
    predictor: dspy.Predict,
    inputs: Mapping[str, Any],
    meter: Meter,
    passages: Labelled,
    *,
    rounds: int,
    known: Collection[str] = (),
) -> Generator[Ask, Any, Grounded]:
    """Ask for graph lines; send back what the passages do not support; keep what they do.

    In DSPy's trace, of which optimizers make demonstrations, the call stands as it should have
    been: the input without feedback, the output without ungrounded items.

    Args:
        step: What the call is for.
        predictor: Has the input `feedback` and the output `additions`.
        inputs: Its other inputs.
        meter: Counts the calls.
        passages: The passages read so far, by label.
        rounds: How often ungrounded items are sent back.
        known: Names that the graph shows already.

    Raises:
        StepFailed: Not even the first attempt gave usable output.
    """
    replies: list[dspy.Prediction] = []
    found: list[Grounding] = []
    unusable: tuple[Dropped, ...] = ()
    while not found or (found[-1].feedback and len(found) <= rounds):
        feedback = found[-1].feedback if found else ""
        try:
            reply = yield from ask(step, predictor, {**inputs, "feedback": feedback}, meter)
        except StepFailed as failure:
            if not found:
                raise
            # What the attempts before got right is kept, and this is reported beside it.
            why = f"the reply to feedback: {failure.cause}"
            item = failure.reply[:80]
            unusable = (Dropped(kind="line", item=item, cause="unreadable", reason=why),)
            break
        replies.append(reply)
        found.append(ground(reply.additions.draft, passages, known))
    labels = {passage.id: label for label, passage in passages.items()}
    lines = linearise(KnowledgeGraph().merge(found[-1].update), labels=labels)
    additions = GraphProposal.model_validate(lines)
    clean = dspy.Prediction(**{**dict(replies[-1].items()), "additions": additions})
    for reply in replies:
        remove_from_trace(reply)
    _trace(predictor, _given(predictor, {**inputs, "feedback": ""}), clean)
    dropped: tuple[Dropped, ...] = sum((grounding.dropped for grounding in found), unusable)
    return Grounded(clean, tuple(g.update for g in found), tuple(dict.fromkeys(dropped)))


def _given(predictor: dspy.Predict, inputs: Mapping[str, Any]) -> dict[str, Any]:
    return {name: inputs[name] for name in predictor.signature.input_fields if name in inputs}


def _trace(predictor: dspy.Predict, inputs: dict[str, Any], prediction: dspy.Prediction) -> None:
    if dspy.settings.trace is not None:
        dspy.settings.trace.append((predictor, dict(inputs), prediction))


def remove_from_trace(prediction: dspy.Prediction) -> None:
    """Take a reply that the program rejects off DSPy's trace: it is no demonstration."""
    trace = dspy.settings.trace
    if trace is not None:
        trace[:] = [entry for entry in trace if entry[2] is not prediction]


# --- Salvage: the fields in a reply that its adapter rejected.


def salvage(signature: type[dspy.Signature], reply: str) -> dspy.Prediction | None:
    """Pick the output fields of a signature out of a reply that its adapter rejected.

    Reads `[[ ## field ## ]]` sections, `<field>` tags, `field:` lines and JSON objects, whichever
    the model mixed up. None unless every field is found and fits its type.
    """
    outputs = signature.output_fields
    texts = _in_json(tuple(outputs), reply) or _in_sections(tuple(outputs), reply)
    try:
        values = {name: _as_type(texts[name], field.annotation) for name, field in outputs.items()}
    except (KeyError, ValueError):
        return None
    return dspy.Prediction(**values)


def _in_json(names: tuple[str, ...], reply: str) -> dict[str, Any]:
    try:
        value = json.loads(reply[reply.find("{") : reply.rfind("}") + 1])
    except json.JSONDecodeError:
        return {}
    return {name: value[name] for name in names if name in value}


def _in_sections(names: tuple[str, ...], reply: str) -> dict[str, Any]:
    either = "|".join(map(re.escape, names))
    header = re.compile(
        rf"(?:\[\[\s*##\s*({either})\s*##\s*\]\]|<({either})>|^[\s*#_`]*({either})[\s*_`]*:)",
        re.IGNORECASE | re.MULTILINE,
    )
    marks = list(header.finditer(reply))
    found: dict[str, Any] = {}
    for mark, following in zip(marks, [*marks[1:], None], strict=False):
        name = next(group for group in mark.groups() if group).lower()
        body = reply[mark.end() : following.start() if following else len(reply)]
        body = re.split(r"\[\[\s*##\s*completed|</\w+>\s*$", body)[0]
        found.setdefault(name, body.strip().removesuffix(f"</{name}>").strip())
    return found


def _as_type(value: Any, annotation: Any) -> Any:
    if get_origin(annotation) is Literal:
        return _choice(str(value), get_args(annotation))
    if annotation is str:
        return "" if value is None else str(value)
    return pydantic.TypeAdapter(annotation).validate_python(value)


def _choice(text: str, allowed: tuple[str, ...]) -> str:
    wording = re.sub(r"[^a-z ]", "", text.lower().replace("_", " ").replace("-", " ")).strip()
    if wording in allowed:
        return wording
    if not wording.startswith(("not ", "no ")):
        # The longest first, should one choice be part of another.
        for choice in sorted(allowed, key=len, reverse=True):
            if re.search(rf"\b{re.escape(choice)}\b", wording):
                return choice
    raise ValueError(f"{text!r} is none of {allowed}")


# --- What a question costs, step by step, and whether an output was cut off.


class Usage(BaseModel):
    """The cost of some LM calls.

    Attributes:
        calls: LM calls, answered from DSPy's cache or not.
        cached: How many of them came from the cache.
        prompt_tokens: As the LM reports them, for a cached call as it reported them when it was
            made; estimated for a call without a report.
        completion_tokens: The same for what the LM wrote.
        cost: US dollars, a cached call at what it cost when it was made; None where the price of
            a call is unknown.
    """

    model_config = ConfigDict(frozen=True)

    calls: int = 0
    cached: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float | None = 0.0

    @property
    def tokens(self) -> int:
        """Prompt and completion tokens."""
        return self.prompt_tokens + self.completion_tokens

    @classmethod
    def total(cls, parts: Iterable[Usage]) -> Usage:
        """The sum; its cost is unknown where one of the parts' is.

        >>> Usage.total([Usage(calls=1, cost=0.5), Usage(calls=2, cost=None)])
        Usage(calls=3, cached=0, prompt_tokens=0, completion_tokens=0, cost=None)
        """
        known = list(parts)
        prices = [part.cost for part in known if part.cost is not None]
        return cls(
            calls=sum(part.calls for part in known),
            cached=sum(part.cached for part in known),
            prompt_tokens=sum(part.prompt_tokens for part in known),
            completion_tokens=sum(part.completion_tokens for part in known),
            cost=sum(prices, 0.0) if len(prices) == len(known) else None,
        )


class Meter(BaseCallback):
    """Counts LM calls, an adapter's second attempts among them.

    Attributes:
        usage: What each step of the program cost so far, by the step's name.
        seconds: Wall time inside LM calls so far, those answered from the cache among them.
        truncated: Whether the last call stopped at its token limit.
        history: Where DSPy leaves its record of each call; kept empty.
    """

    def __init__(self) -> None:
        self.usage: dict[str, Usage] = {}
        self.seconds = 0.0
        self.truncated = False
        self.history = _History(self)
        self._step = ""
        self._outer: Any = None
        self._prompt = 0
        self._live = False
        self._began = 0.0
        self._record: dict[str, Any] = {}

    @property
    def calls(self) -> int:
        """LM calls so far."""
        return Usage.total(self.usage.values()).calls

    @property
    def tokens(self) -> int:
        """Prompt and completion tokens so far."""
        return Usage.total(self.usage.values()).tokens

    @contextmanager
    def counting(self, step: str) -> Iterator[None]:
        """Count the calls made inside this block by the current thread or task.

        Where no adapter was chosen, DSPy's chat adapter is used without its own second attempt in
        JSON: `salvage` mends most of what that would ask for again.

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
        """Note that a call did not come from the cache; pass it on to a tracker around this one."""
        self._live = True
        if self._outer is not None:
            self._outer.add_usage(model, usage)

    def add_record(self, record: dict[str, Any]) -> None:
        """Keep DSPy's record of the call under way."""
        response = record.get("response")
        parts = [response, *(getattr(response, "choices", None) or ())]
        self.truncated = any(getattr(part, "finish_reason", "") == "length" for part in parts)
        self._record = record

    def on_lm_start(self, call_id: str, instance: Any, inputs: dict[str, Any]) -> None:
        """Note what is sent, in case the LM reports no usage."""
        self.truncated, self._live, self._record = False, False, {}
        messages = inputs.get("messages") or [{"content": inputs.get("prompt")}]
        self._prompt = sum(estimate_tokens(str(message.get("content"))) for message in messages)
        self._began = time.perf_counter()

    def on_lm_end(self, call_id: str, outputs: Any, exception: BaseException | None = None) -> None:
        """Count the call and its time."""
        self.seconds += time.perf_counter() - self._began
        prompt, completion = 0, 0
        if exception is None:
            prompt, completion = _reported_tokens(self._record) or (
                self._prompt,
                estimate_tokens("".join(str(output) for output in outputs or ())),
            )
        call = Usage(
            calls=1,
            cached=int(exception is None and not self._live),
            prompt_tokens=prompt,
            completion_tokens=completion,
            cost=self._record.get("cost"),
        )
        self.usage[self._step] = Usage.total([self.usage.get(self._step, Usage()), call])


def _reported_tokens(record: dict[str, Any]) -> tuple[int, int] | None:
    """Prompt and completion tokens as the LM reported them, now or in its cached reply."""
    usage = record.get("usage") or {}
    prompt, completion = usage.get("prompt_tokens"), usage.get("completion_tokens")
    if not prompt:
        report = getattr(record.get("response"), "usage", None)
        prompt, completion = (
            getattr(report, f"{new}_tokens", None) or getattr(report, f"{old}_tokens", None)
            for new, old in (("input", "prompt"), ("output", "completion"))
        )
    return (int(prompt), int(completion or 0)) if prompt else None


class _History(list[Any]):
    """A list that keeps nothing of what DSPy appends, and hands it to the meter."""

    def __init__(self, meter: Meter) -> None:
        super().__init__()
        self._meter = meter

    def append(self, entry: Any) -> None:
        self._meter.add_record(entry)
