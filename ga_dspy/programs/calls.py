"""Calls to the LM and the retriever, for threads and asyncio alike."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
from collections.abc import Callable, Collection, Generator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any, NamedTuple, Self, TypeVar
from weakref import WeakKeyDictionary

import dspy
from dspy.utils import BaseCallback, with_callbacks
from pydantic import ValidationError

from ga_dspy.errors import GaDspyError, InputError
from ga_dspy.graph import GraphUpdate, KnowledgeGraph, Schema, linearise
from ga_dspy.grounding import Dropped, ground
from ga_dspy.lm import replies
from ga_dspy.lm.adapters import PlainAdapter, SchemaAdapter
from ga_dspy.lm.endpoints import reply_cap
from ga_dspy.lm.failures import counts_reply, room_left, too_long
from ga_dspy.lm.wrapper import StepLMs, wrap
from ga_dspy.passage import Passage
from ga_dspy.programs.events import Event
from ga_dspy.programs.meter import Meter
from ga_dspy.programs.reading import Labelled, shorten
from ga_dspy.retrieval import Retriever
from ga_dspy.secrets import note_secrets, withheld
from ga_dspy.signatures import GraphProposal
from ga_dspy.signatures.facts import writes_facts
from ga_dspy.signatures.prompt import safe
from ga_dspy.storage import in_thread
from ga_dspy.text import estimate_tokens

# --- One algorithm, run by threads or by asyncio.
#
# A program is a generator. It yields what it needs from outside (a search, an LM call, an event to
# report) and receives the result, or the error is raised at its `yield`. `drive` carries it out in
# a thread, `adrive` in an event loop: only these two know whether the caller is asynchronous, so
# that no algorithm is written twice.

Result = TypeVar("Result")


class Search(dspy.Retrieve):
    """Passages for a query.

    DSPy's callbacks hear of it as of any `dspy.Retrieve`, which MLflow shows as a RETRIEVER span
    with documents in its format. A retriever of DSPy reports itself.

    Attributes:
        found: What the retriever returned.
    """

    def __init__(self, retriever: Retriever, query: str, k: int) -> None:
        # Without the base's, which draws from `random`: tracing a run must not change it.
        self.retriever, self.query, self.k = retriever, query, k
        self.callbacks: list[BaseCallback] = []
        self.found: list[Passage] = []
        source = getattr(retriever, "source", None)
        self._is_heard = bool(dspy.settings.callbacks) and not isinstance(source, dspy.Retrieve)

    def run(self) -> list[Passage]:
        """Search in this thread."""
        if not self._is_heard:
            return self.retriever(self.query, self.k)
        self(query=self.query, k=self.k)
        return self.found

    async def arun(self) -> list[Passage]:
        """Search from a coroutine."""
        if not self._is_heard:
            return await self._asearch()
        await self.acall(query=self.query, k=self.k)
        return self.found

    def forward(self, query: str, k: int | None = None, **_: Any) -> list[dict[str, Any]]:
        """Call the retriever; return the passages as documents."""
        self.found = self.retriever(self.query, self.k)
        return documents(self.found)

    @with_callbacks  # type: ignore[untyped-decorator]
    async def acall(self, **kwargs: Any) -> list[dict[str, Any]]:
        """The same from a coroutine."""
        self.found = await self._asearch()
        return documents(self.found)

    async def _asearch(self) -> list[Passage]:
        """Await the retriever; call it in a worker thread if it cannot be awaited."""
        acall: Any = getattr(self.retriever, "acall", partial(in_thread, self.retriever))
        found: list[Passage] = await acall(self.query, self.k)
        return found


def documents(found: Any) -> list[dict[str, Any]]:
    """Return the passages of a search, or of a GraphRAG program's graph, as documents."""
    shown = list[dict[str, Any]]()
    for passage in getattr(found, "passages", found):
        uri = passage.title or passage.source or passage.id
        about = {**passage.metadata, "title": passage.title, "doc_uri": uri}
        shown.append({"id": passage.id, "page_content": passage.text, "metadata": about})
    return shown


@dataclass(frozen=True)
class Ask:
    """A module's call for a step, which DSPy's callbacks see as a module with the step's name.

    A `rollout` above 0 bypasses the cached reply; from the second on, the temperature is 1.0.
    `config` holds parameters for the LM besides those of the question: `max_tokens` for a local LM
    that has no limit (`reply_cap`).
    """

    step: str
    predictor: dspy.Module
    inputs: dict[str, Any]
    meter: Meter
    rollout: int = 0
    config: Mapping[str, Any] = field(default_factory=dict)

    @property
    def takes_config(self) -> bool:
        """Whether the module passes a config to the LM, and so can bypass the cache."""
        return any(p.name == "config" or _takes_all(p) for p in _parameters(self.predictor))

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of the call: a config only if the module takes one, its own LM wrapped."""
        given, config = dict(self.inputs), {**self.config, **self.meter.config}
        if self.rollout:
            config["rollout_id"] = self.rollout
        if self.rollout > 1:
            config["temperature"] = 1.0
        if config and self.takes_config:
            given["config"] = config
        if (own := _own_lm(self.predictor)) is not None:
            note_secrets(own)
            if isinstance(self.predictor, dspy.Predict | dspy.ChainOfThought):
                given["lm"] = wrap(own, like=dspy.settings.lm)
        return given

    def run(self) -> dspy.Prediction:
        """Call the module."""
        return self(**self.inputs)

    async def arun(self) -> dspy.Prediction:
        """Call the module from a coroutine; in a worker thread if it has no `aforward`."""
        return await self.acall(**self.inputs)

    @with_callbacks  # type: ignore[untyped-decorator]
    def __call__(self, **kwargs: Any) -> dspy.Prediction:
        """Call the module; DSPy's callbacks get the inputs and the prediction."""
        with self.meter.counting(self.step, usual_adapter(self.predictor)):
            return self.predictor(**self.arguments)

    @with_callbacks  # type: ignore[untyped-decorator]
    async def acall(self, **kwargs: Any) -> dspy.Prediction:
        """The same from a coroutine."""
        with self.meter.counting(self.step, usual_adapter(self.predictor)):
            if hasattr(type(self.predictor), "aforward"):
                return await self.predictor.acall(**self.arguments)
            return await in_thread(self.predictor, **self.arguments)


@cache
def _ask_kind(step: str) -> type[Ask]:
    """Return a kind of `Ask` with the name of a step: by its class, MLflow names a span."""
    return type(step, (Ask,), {})


def usual_adapter(module: dspy.Module) -> dspy.Adapter:
    """Return the adapter for a module if none is configured."""
    is_json = any(writes_facts(predictor.signature) for predictor in _predictors(module))
    return SchemaAdapter() if is_json else PlainAdapter()


def _parameters(module: dspy.Module) -> list[inspect.Parameter]:
    """The parameters of a module, from its class: DSPy warns if `forward` is accessed."""
    method = getattr(type(module), "forward", None) or getattr(type(module), "aforward", module)
    return [p for p in inspect.signature(method).parameters.values() if p.name != "self"]


def _takes_all(parameter: inspect.Parameter) -> bool:
    return parameter.kind is inspect.Parameter.VAR_KEYWORD


Request = Search | Ask | Event
Conversation = Generator[Request, Any, Result]


def drive(conversation: Conversation[Result]) -> Result:
    """Carry out a conversation in this thread."""
    resume: Any = partial(next, conversation)
    while True:
        request, result = _advance(resume)
        if request is None:
            return result  # type: ignore[no-any-return]
        try:
            resume = partial(conversation.send, request.run())
        except Exception as error:  # noqa: BLE001 - handed to the program, which may know it
            resume = partial(conversation.throw, error)


async def adrive(conversation: Conversation[Result]) -> Result:
    """Carry out a conversation from a coroutine.

    What the algorithm does between two requests, such as grounding, runs in a worker thread, so
    that the event loop stays responsive. Cancelling the task closes the conversation.
    """
    resume: Any = partial(next, conversation)
    try:
        while True:
            request, result = await _in_thread(partial(_advance, resume))
            if request is None:
                return result  # type: ignore[no-any-return]
            try:
                resume = partial(conversation.send, await request.arun())
            except Exception as error:  # noqa: BLE001 - handed to the program, which may know it
                resume = partial(conversation.throw, error)
    finally:
        conversation.close()


def _advance(resume: Any) -> tuple[Request | None, Any]:
    """The next request of a conversation, or None with its result."""
    try:
        return resume(), None
    except StopIteration as end:
        return None, end.value


# The work is Python's own: more threads would not do it faster, but take turns with the event loop.
# A pool belongs to its loop, so that a forked process makes one of its own.
_WORKERS: WeakKeyDictionary[asyncio.AbstractEventLoop, ThreadPoolExecutor] = WeakKeyDictionary()


async def _in_thread(work: Callable[[], Result]) -> Result:
    """Work in a thread; if the task is cancelled, finish the work first."""
    loop, context = asyncio.get_running_loop(), contextvars.copy_context()
    workers = _WORKERS.setdefault(loop, ThreadPoolExecutor(2, thread_name_prefix="ga_dspy"))
    running = loop.run_in_executor(workers, context.run, work)
    try:
        return await asyncio.shield(running)
    finally:
        await asyncio.gather(running, return_exceptions=True)


# --- Ask: an unreadable reply is repaired, requested again, or reported.


class StepFailed(GaDspyError):
    """A step got no usable output from the LM, or could not be carried out."""

    def __init__(self, step: str, cause: str, reply: str) -> None:
        super().__init__(
            f"the {step} step got no usable output from the LM ({cause})",
            expected=f"its output fields, found {reply[:200]!r}",
            remedy="raise max_tokens, try another adapter (dspy.JSONAdapter, dspy.XMLAdapter) or "
            "a stronger model",
        )

    @classmethod
    def from_error(cls, step: str, error: Exception) -> Self:
        """Return the failure of a step that an error of the LM or the retriever caused."""
        failure, cause = cls.__new__(cls), withheld(f"{type(error).__name__}: {error}")
        GaDspyError.__init__(failure, f"the {step} step failed ({cause})")
        failure.__cause__ = error
        return failure


_ATTEMPTS = 4
_UNREADABLE = (dspy.AdapterParseError, ValidationError, UnicodeError, RecursionError)


def ask(
    step: str,
    predictor: dspy.Module,
    inputs: Mapping[str, Any],
    meter: Meter,
    *,
    required: Collection[str] | None = None,
    optional: Collection[str] = (),
) -> Generator[Ask, Any, dspy.Prediction]:
    """Ask a module until its output is usable, at most four times.

    The required fields are read from a reply in any format (`read_reply`). If one is missing, the
    LM is asked again, bypassing the cache: once unchanged, then at temperature 1.0. A reply that
    was cut off at the token limit counts as two attempts, and a bad reply from the cache as none.
    A prompt that is too long for the LM is sent once more, shortened.

    Args:
        step: The name of the step.
        predictor: A predictor, or any other module.
        inputs: All inputs that the program has; the module gets those that it takes.
        meter: Counts the calls.
        required: The mandatory outputs; all if left out. Others that a reply lacks are empty.
        optional: Outputs that are empty even if the module has no such field.

    Raises:
        StepFailed: No attempt gave the required fields whole, or the question timed out.
        InputError: The module has no such field.
    """
    given, own = _given(predictor, inputs), own_signature(predictor)
    cause = reply = ""
    attempts, rollout, is_shortened, cap = 0, 0, False, _reply_cap(step, predictor)
    while attempts < _ATTEMPTS:
        if over := meter.overdue():
            raise StepFailed.from_error(step, over) from over
        signature = own
        request = _ask_kind(step)(step, predictor, given, meter, rollout, cap)
        try:
            prediction = yield request
        except dspy.LMError as error:
            if is_shortened or not too_long(error):
                raise
            if cap and counts_reply(error):
                cap = {}
                continue
            is_shortened = True
            most = int(meter.sent_tokens * room_left(error, meter.sent_tokens))
            given = shorten(given, most, meter.sent_tokens, estimate_tokens)
            continue
        except _UNREADABLE as error:
            signature = getattr(error, "signature", None) or signature
            values = replies.read_reply(signature, meter.reply, required) if signature else None
            reply = meter.reply or str(error)
            prediction = None if values is None else dspy.Prediction(**values)
            if prediction is not None and own and dspy.settings.trace is not None:
                dspy.settings.trace.append((_predictors(predictor)[0], given, prediction))
        else:
            reply = meter.reply or str(prediction)
            prediction = _checked(step, prediction, signature, reply, required)
        if prediction is not None:
            needed = prediction.keys() if required is None else required
            if not meter.truncated or (signature and replies.holds_whole(signature, reply, needed)):
                for name in optional:
                    prediction[name] = prediction.get(name, "")
                return prediction
            remove_from_trace(prediction)
        cause = "it was cut off at the token limit" if meter.truncated else "it does not parse"
        if meter.has_thoughts and not meter.reply.rpartition("<think")[0]:
            cause = f"{cause}: it has thoughts and no answer"
        meter.reject()
        if cap and meter.truncated and meter.has_thoughts:
            cap = {}
            continue
        tries = 2 if meter.truncated else 1
        rollout += tries
        attempts += 0 if meter.cached and request.takes_config else tries
    raise StepFailed(step, cause, reply)


def _checked(
    step: str,
    prediction: Any,
    signature: type[dspy.Signature] | None,
    reply: str,
    required: Collection[str] | None,
) -> dspy.Prediction | None:
    """Return a module's cleaned output; None if a required field is missing in the LM's reply.

    If the reply contains reasoning, it is read again without it, since an adapter may have found a
    field in there.
    """
    found = set(prediction.keys() if isinstance(prediction, dspy.Prediction) else ())
    needed = set(() if required is None else required)
    if not isinstance(prediction, dspy.Prediction) or needed - found:
        raise InputError(
            f"the module for the {step} step gave {type(prediction).__name__}({sorted(found)})",
            expected=f"a dspy.Prediction with {', '.join(sorted(needed)) or 'its outputs'}",
            remedy="give an output of its signature that name, or put it in what it returns",
        )
    said: dict[str, Any] | None = {}
    if signature is not None and replies.has_thoughts(signature, reply):
        said = replies.read_reply(signature, reply, required)
    values = {**prediction, **(said or {})}
    for name, about in signature.output_fields.items() if signature is not None else ():
        if replies.is_echo(values.get(name), about):
            values[name] = None if name in needed else ""
    if said is None or any(values[name] is None for name in needed):
        remove_from_trace(prediction)
        return None
    for name, value in values.items():
        prediction[name] = replies.tidy(value) if isinstance(value, str) else replies.clean(value)
    return prediction


class Grounded(NamedTuple):
    """What passages add to a graph.

    Attributes:
        reply: The reply, with the grounded items alone in its proposal.
        update: The grounded items.
        dropped: What no passage supports, and unreadable lines.
    """

    reply: dspy.Prediction
    update: GraphUpdate
    dropped: tuple[Dropped, ...]


def ground_reply(
    asked: Conversation[dspy.Prediction],
    passages: Labelled,
    known: Collection[str] = (),
    schema: Schema | None = None,
) -> Conversation[Grounded]:
    """Keep of a reply's additions to a graph what the passages support.

    DSPy's trace, from which optimizers take demos, gets the reply without the rest.

    Args:
        asked: Asks a module with the output `additions`.
        passages: The passages read so far, by label.
        known: As for `ground`.
        schema: As for `ground`.
    """
    reply = yield from asked
    proposal = reply.get("additions")
    if not isinstance(proposal, GraphProposal):  # a custom signature may declare it as text
        proposal = GraphProposal.model_validate(proposal or "")
    found = ground(proposal.draft, passages, known, schema)
    labels = {passage.id: label for label, passage in passages.items()}
    lines = linearise(KnowledgeGraph().merge(found.update), labels=labels)
    additions = type(proposal).model_validate(lines)
    kept = dspy.Prediction(**{**reply.toDict(), "additions": additions})
    if entry := remove_from_trace(reply):
        dspy.settings.trace.append((*entry[:2], kept))
    return Grounded(kept, found.update, found.dropped)


# --- Modules in place of predictors: their inputs, and their entries in DSPy's trace.
#
# The trace is edited here and nowhere else. DSPy has no public way to correct it, and without the
# corrections optimizers would learn from rejected replies and from ungrounded triples.


def _given(module: dspy.Module, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """The inputs that a module takes, by its signature, its `forward` or its predictors.

    No text among them can be mistaken for a part of the prompt or of a reply.
    """
    asked = [replies.field_names(predictor.signature) for predictor in _predictors(module)]
    fields = [name for names in asked for name in names.inputs]
    outputs = [name for names in asked for name in names.outputs]
    if (signature := getattr(module, "signature", None)) is not None:
        taken: Collection[str] = replies.field_names(signature).inputs
    else:
        parameters = _parameters(module)
        taken = {parameter.name for parameter in parameters}
        if any(map(_takes_all, parameters)):
            taken = {*taken, *fields} & inputs.keys() or inputs.keys()
    given = {name: value for name, value in inputs.items() if name in taken}
    return {n: safe(v, fields, outputs) if isinstance(v, str) else v for n, v in given.items()}


def _predictors(module: dspy.Module) -> list[dspy.Predict]:
    """The predictors of a module, without DSPy's search through its history."""
    return [module] if isinstance(module, dspy.Predict) else module.predictors()


def _own_lm(module: dspy.Module) -> dspy.BaseLM | None:
    """The LM of a module's predictors, if they have their own."""
    return next((p.lm for p in _predictors(module) if p.lm is not None), None)


def _reply_cap(step: str, module: dspy.Module) -> dict[str, int]:
    """The `max_tokens` for a module's calls, if it needs one and has none."""
    if any(predictor.config.get("max_tokens") for predictor in _predictors(module)):
        return {}
    cap = reply_cap(lm_of(step, module))
    return {"max_tokens": cap} if cap else {}


def lm_of(step: str, module: dspy.Module) -> Any:
    """Return the LM of a step."""
    lm = _own_lm(module) or dspy.settings.lm
    return lm.of_step(step) if isinstance(lm, StepLMs) else lm


def own_signature(module: dspy.Module) -> type[dspy.Signature] | None:
    """Return the signature of a module's only predictor; None if it has several."""
    predictors = _predictors(module)
    return predictors[0].signature if len(predictors) == 1 else None


def remove_from_trace(prediction: dspy.Prediction) -> tuple[Any, Any, Any] | None:
    """Remove a rejected reply from DSPy's trace, so that it does not become a demo."""
    trace = dspy.settings.trace or []
    # It is among the last, and a trace may be long.
    places = (n for n in range(len(trace) - 1, -1, -1) if trace[n][2] is prediction)
    place = next(places, None)
    return None if place is None else trace.pop(place)
