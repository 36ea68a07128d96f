"""Calls to the retriever and the LM, from threads or asyncio, with retries of bad replies."""

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
from ga_dspy.signatures import GraphFacts, GraphProposal
from ga_dspy.signatures.prompt import safe
from ga_dspy.storage import in_thread
from ga_dspy.text import estimate_tokens

# --- Requests: a program is a generator that yields searches, LM calls and events.
#
# `drive` runs the requests in a thread, `adrive` in an event loop. Each sends the result back, or
# raises the error at the program's `yield`. An algorithm is thus written once for both.

Result = TypeVar("Result")


class Search(dspy.Retrieve):
    """A request for the passages of a query.

    DSPy's callbacks see it as a `dspy.Retrieve`, which MLflow shows as a RETRIEVER span with
    documents. A retriever that is a `dspy.Retrieve` itself reports its own calls.

    Attributes:
        found: The passages that the retriever returned.
    """

    def __init__(self, retriever: Retriever, query: str, k: int) -> None:
        # The base class draws from `random`: it is not called, so that tracing changes no run.
        self.retriever, self.query, self.k = retriever, query, k
        self.callbacks: list[BaseCallback] = []
        self.found: list[Passage] = []
        source = getattr(retriever, "source", None)
        self._is_reported = bool(dspy.settings.callbacks) and not isinstance(source, dspy.Retrieve)

    def run(self) -> list[Passage]:
        """Search in this thread."""
        if not self._is_reported:
            return self.retriever(self.query, self.k)
        self(query=self.query, k=self.k)
        return self.found

    async def arun(self) -> list[Passage]:
        """Search from a coroutine."""
        if not self._is_reported:
            return await self._asearch()
        await self.acall(query=self.query, k=self.k)
        return self.found

    def forward(self, query: str, k: int | None = None, **_: Any) -> list[dict[str, Any]]:
        """Search; return the passages as documents, for callbacks."""
        self.found = self.retriever(self.query, self.k)
        return documents(self.found)

    @with_callbacks  # type: ignore[untyped-decorator]
    async def acall(self, **kwargs: Any) -> list[dict[str, Any]]:
        """Search from a coroutine; return the passages as documents, for callbacks."""
        self.found = await self._asearch()
        return documents(self.found)

    async def _asearch(self) -> list[Passage]:
        """Await the retriever, or call it in a worker thread if it has no `acall`."""
        acall: Any = getattr(self.retriever, "acall", partial(in_thread, self.retriever))
        found: list[Passage] = await acall(self.query, self.k)
        return found


def documents(found: Any) -> list[dict[str, Any]]:
    """Return the passages of a search, or of a GraphRAG search result, as MLflow documents."""
    shown = list[dict[str, Any]]()
    for passage in getattr(found, "passages", found):
        uri = passage.title or passage.source or passage.id
        about = {**passage.metadata, "title": passage.title, "doc_uri": uri}
        shown.append({"id": passage.id, "page_content": passage.text, "metadata": about})
    return shown


@dataclass(frozen=True)
class Ask:
    """A request to call a module; DSPy's callbacks see it as a module with the step's name.

    A `rollout` above 0 bypasses the cached reply; from 2 on, the temperature is 1.0. `config` has
    LM parameters in addition to those of the question: `max_tokens` for a local LM without a limit
    (`reply_cap`).
    """

    step: str
    predictor: dspy.Module
    inputs: dict[str, Any]
    meter: Meter
    rollout: int = 0
    config: Mapping[str, Any] = field(default_factory=dict)

    @property
    def takes_config(self) -> bool:
        """Whether the module takes a `config` for the LM, and so can bypass the cache."""
        return any(p.name == "config" or _takes_all(p) for p in _parameters(self.predictor))

    @property
    def arguments(self) -> dict[str, Any]:
        """The module's arguments: the inputs, the config if it takes one, its own LM wrapped."""
        arguments, config = dict(self.inputs), {**self.config, **self.meter.config}
        if self.rollout:
            config["rollout_id"] = self.rollout
        if self.rollout > 1:
            config["temperature"] = 1.0
        if config and self.takes_config:
            arguments["config"] = config
        if (own := _own_lm(self.predictor)) is not None:
            note_secrets(own)
            if isinstance(self.predictor, dspy.Predict | dspy.ChainOfThought):
                arguments["lm"] = wrap(own, like=dspy.settings.lm)
        return arguments

    def run(self) -> dspy.Prediction:
        """Call the module."""
        return self(**self.inputs)

    async def arun(self) -> dspy.Prediction:
        """Call the module from a coroutine."""
        return await self.acall(**self.inputs)

    @with_callbacks  # type: ignore[untyped-decorator]
    def __call__(self, **kwargs: Any) -> dspy.Prediction:
        """Call the module, and DSPy's callbacks with the inputs and the prediction."""
        with self.meter.counting(self.step, default_adapter(self.predictor)):
            return self.predictor(**self.arguments)

    @with_callbacks  # type: ignore[untyped-decorator]
    async def acall(self, **kwargs: Any) -> dspy.Prediction:
        """Call the module from a coroutine; in a worker thread if it has no `aforward`."""
        with self.meter.counting(self.step, default_adapter(self.predictor)):
            if hasattr(type(self.predictor), "aforward"):
                return await self.predictor.acall(**self.arguments)
            return await in_thread(self.predictor, **self.arguments)


@cache
def _ask_class(step: str) -> type[Ask]:
    """Return a subclass of `Ask` with the name of a step, from which MLflow names the span."""
    return type(step, (Ask,), {})


def default_adapter(module: dspy.Module) -> dspy.Adapter:
    """Return the adapter for a module if none is configured: for JSON if it writes facts."""
    kinds = [f.annotation for p in _predictors(module) for f in p.signature.output_fields.values()]
    writes_facts = any(isinstance(kind, type) and issubclass(kind, GraphFacts) for kind in kinds)
    return SchemaAdapter() if writes_facts else PlainAdapter()


def _parameters(module: dspy.Module) -> list[inspect.Parameter]:
    """Return a module's parameters, from its class, since DSPy warns of access to `forward`."""
    method = getattr(type(module), "forward", None) or getattr(type(module), "aforward", module)
    return [p for p in inspect.signature(method).parameters.values() if p.name != "self"]


def _takes_all(parameter: inspect.Parameter) -> bool:
    return parameter.kind is inspect.Parameter.VAR_KEYWORD


Request = Search | Ask | Event
Conversation = Generator[Request, Any, Result]


def drive(conversation: Conversation[Result]) -> Result:
    """Run a conversation in this thread; return its result."""
    resume: Any = partial(next, conversation)
    while True:
        request, result = _advance(resume)
        if request is None:
            return result  # type: ignore[no-any-return]
        try:
            resume = partial(conversation.send, request.run())
        except Exception as error:  # noqa: BLE001 - raised in the program, which may handle it
            resume = partial(conversation.throw, error)


async def adrive(conversation: Conversation[Result]) -> Result:
    """Run a conversation from a coroutine; return its result.

    The program's own work between two requests, such as grounding, runs in a worker thread and
    does not block the event loop. Cancelling the task closes the conversation.
    """
    resume: Any = partial(next, conversation)
    try:
        while True:
            request, result = await _in_thread(partial(_advance, resume))
            if request is None:
                return result  # type: ignore[no-any-return]
            try:
                resume = partial(conversation.send, await request.arun())
            except Exception as error:  # noqa: BLE001 - raised in the program, which may handle it
                resume = partial(conversation.throw, error)
    finally:
        conversation.close()


def _advance(resume: Any) -> tuple[Request | None, Any]:
    """Return the next request of a conversation, or None and its result."""
    try:
        return resume(), None
    except StopIteration as end:
        return None, end.value


# Two threads per event loop: the work is pure Python, so more would only compete for the GIL. The
# pool belongs to the loop, because a forked process needs a new one.
_WORKERS: WeakKeyDictionary[asyncio.AbstractEventLoop, ThreadPoolExecutor] = WeakKeyDictionary()


async def _in_thread(work: Callable[[], Result]) -> Result:
    """Run work in a thread; if the task is cancelled, wait until the work is finished."""
    loop, context = asyncio.get_running_loop(), contextvars.copy_context()
    workers = _WORKERS.setdefault(loop, ThreadPoolExecutor(2, thread_name_prefix="ga_dspy"))
    running = loop.run_in_executor(workers, context.run, work)
    try:
        return await asyncio.shield(running)
    finally:
        await asyncio.gather(running, return_exceptions=True)


# --- Ask a module: read its reply, or retry, or fail.


class StepFailed(GaDspyError):
    """A step got no usable output from the LM, or a call raised an error."""

    def __init__(self, step: str, cause: str, reply: str) -> None:
        super().__init__(
            f"the {step} step got no usable output from the LM ({cause})",
            expected=f"its output fields, found {reply[:200]!r}",
            remedy="raise max_tokens, try another adapter (dspy.JSONAdapter, dspy.XMLAdapter) or "
            "a stronger model",
        )

    @classmethod
    def from_error(cls, step: str, error: Exception) -> Self:
        """Return the failure that an error of the LM or the retriever causes."""
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
    """Call a module until its output is usable, at most four times.

    The required fields are read from a reply in any format (`read_reply`). If one is missing, the
    call is repeated without the cache: once unchanged, then at temperature 1.0. A reply cut off at
    the token limit counts as two attempts, a bad reply from the cache as none. A prompt that is
    too long for the LM is shortened once.

    Args:
        step: The name of the step.
        predictor: A predictor, or any other module.
        inputs: All inputs that the program has; the module gets those that it takes.
        meter: Counts the calls.
        required: The mandatory outputs, by default all. Others may be missing in a reply and are
            then empty.
        optional: Outputs that are empty even if the module has no such field.

    Raises:
        StepFailed: No attempt gave the required fields whole, or the question timed out.
        InputError: The module has no such field.
    """
    arguments, own = _accepted_inputs(predictor, inputs), only_signature(predictor)
    cause = reply = ""
    attempts, rollout, is_shortened, cap = 0, 0, False, _reply_cap(step, predictor)
    while attempts < _ATTEMPTS:
        if timeout := meter.overdue():
            raise StepFailed.from_error(step, timeout) from timeout
        signature = own
        request = _ask_class(step)(step, predictor, arguments, meter, rollout, cap)
        try:
            prediction = yield request
        except dspy.LMError as error:
            if is_shortened or not too_long(error):
                raise
            if cap and counts_reply(error):  # the tokens reserved for the reply are too many
                cap = {}
                continue
            is_shortened = True
            budget = int(meter.sent_tokens * room_left(error, meter.sent_tokens))
            arguments = shorten(arguments, budget, meter.sent_tokens, estimate_tokens)
            continue
        except _UNREADABLE as error:  # the adapter cannot parse it: other formats are tried
            signature = getattr(error, "signature", None) or own
            values = replies.read_reply(signature, meter.reply, required) if signature else None
            reply = meter.reply or str(error)
            prediction = None if values is None else dspy.Prediction(**values)
            if prediction is not None and own and dspy.settings.trace is not None:
                dspy.settings.trace.append((_predictors(predictor)[0], arguments, prediction))
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
        if cap and meter.truncated and meter.has_thoughts:  # the thoughts used up the cap
            cap = {}
            continue
        cost = 2 if meter.truncated else 1
        rollout += cost
        if not (meter.cached and request.takes_config):  # else the next rollout is a new call
            attempts += cost
    raise StepFailed(step, cause, reply)


def _checked(
    step: str,
    prediction: Any,
    signature: type[dspy.Signature] | None,
    reply: str,
    required: Collection[str] | None,
) -> dspy.Prediction | None:
    """Return a module's cleaned output; None if the LM's reply lacks a required field.

    A reply that contains reasoning is read again without it, because the adapter may have taken a
    field from the reasoning.
    """
    names = prediction.keys() if isinstance(prediction, dspy.Prediction) else ()
    needed = set(required or ())
    if not isinstance(prediction, dspy.Prediction) or needed - set(names):
        raise InputError(
            f"the module for the {step} step gave {type(prediction).__name__}({sorted(names)})",
            expected=f"a dspy.Prediction with {', '.join(sorted(needed)) or 'its outputs'}",
            remedy="add the missing output to its signature, or to the prediction it returns",
        )
    reread: dict[str, Any] | None = {}
    if signature is not None and replies.has_thoughts(signature, reply):
        reread = replies.read_reply(signature, reply, required)
    values = {**prediction, **(reread or {})}
    for name, about in signature.output_fields.items() if signature is not None else ():
        if replies.is_echo(values.get(name), about):
            values[name] = None if name in needed else ""
    if reread is None or any(values[name] is None for name in needed):
        remove_from_trace(prediction)
        return None
    for name, value in values.items():
        prediction[name] = replies.tidy(value) if isinstance(value, str) else replies.clean(value)
    return prediction


class Grounded(NamedTuple):
    """A reply's additions to a graph that the passages support.

    Attributes:
        reply: The reply; its `additions` have only the grounded items.
        update: The grounded items.
        dropped: Items that no passage supports, and unreadable lines.
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
    """Ask for additions to a graph; keep those that the passages support.

    DSPy's trace, from which optimizers take demos, gets the reply with only these.

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
    grounding = ground(proposal.draft, passages, known, schema)
    labels = {passage.id: label for label, passage in passages.items()}
    lines = linearise(KnowledgeGraph().merge(grounding.update), labels=labels)
    additions = type(proposal).model_validate(lines)
    grounded = dspy.Prediction(**{**reply.toDict(), "additions": additions})
    if entry := remove_from_trace(reply):
        dspy.settings.trace.append((*entry[:2], grounded))
    return Grounded(grounded, grounding.update, grounding.dropped)


# --- Modules: their inputs, LM and signature, and their entries in DSPy's trace.
#
# This file alone edits the trace. DSPy has no public way to correct it; uncorrected, optimizers
# would learn from rejected replies and from ungrounded triples.


def _accepted_inputs(module: dspy.Module, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the inputs that a module takes, by its signature, its `forward` or its predictors.

    Texts are made `safe`: none can be mistaken for a part of the prompt or of a reply.
    """
    names = [replies.field_names(predictor.signature) for predictor in _predictors(module)]
    fields = [name for each in names for name in each.inputs]
    outputs = [name for each in names for name in each.outputs]
    if (signature := getattr(module, "signature", None)) is not None:
        taken: Collection[str] = replies.field_names(signature).inputs
    else:
        parameters = _parameters(module)
        taken = {parameter.name for parameter in parameters}
        if any(map(_takes_all, parameters)):
            taken = {*taken, *fields} & inputs.keys() or inputs.keys()
    accepted = {name: value for name, value in inputs.items() if name in taken}
    for name, value in accepted.items():
        if isinstance(value, str):
            accepted[name] = safe(value, fields, outputs)
    return accepted


def _predictors(module: dspy.Module) -> list[dspy.Predict]:
    """Return a module's predictors, without DSPy's search through its history."""
    return [module] if isinstance(module, dspy.Predict) else module.predictors()


def _own_lm(module: dspy.Module) -> dspy.BaseLM | None:
    """Return the LM that is set on a module's predictors, if any."""
    return next((p.lm for p in _predictors(module) if p.lm is not None), None)


def _reply_cap(step: str, module: dspy.Module) -> dict[str, int]:
    """Return `max_tokens` for a module's calls if its LM needs a cap and no predictor sets one."""
    if any(predictor.config.get("max_tokens") for predictor in _predictors(module)):
        return {}
    cap = reply_cap(lm_of(step, module))
    return {"max_tokens": cap} if cap else {}


def lm_of(step: str, module: dspy.Module) -> Any:
    """Return the LM of a step."""
    lm = _own_lm(module) or dspy.settings.lm
    return lm.of_step(step) if isinstance(lm, StepLMs) else lm


def only_signature(module: dspy.Module) -> type[dspy.Signature] | None:
    """Return the signature of a module's only predictor; None if it has several."""
    predictors = _predictors(module)
    return predictors[0].signature if len(predictors) == 1 else None


def remove_from_trace(prediction: dspy.Prediction) -> tuple[Any, Any, Any] | None:
    """Remove a reply from DSPy's trace, so that it becomes no demo; return its entry, if any."""
    trace: list[tuple[Any, Any, Any]] = dspy.settings.trace or []
    for place in reversed(range(len(trace))):  # the entry is near the end of a long trace
        if trace[place][2] is prediction:
            return trace.pop(place)
    return None
