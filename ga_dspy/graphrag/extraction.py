"""Extraction: one passage in, the grounded records of what it states out."""

from __future__ import annotations

import contextvars
import hashlib
import json
import queue
import threading
from collections.abc import Generator, Iterator, Sequence
from typing import Any, NamedTuple

import dspy
from pydantic import BaseModel, ConfigDict

from ga_dspy.errors import GaDspyError
from ga_dspy.graph import GraphUpdate, KnowledgeGraph, linearise
from ga_dspy.grounding import Dropped, Grounding, ground
from ga_dspy.passage import Passage
from ga_dspy.programs.base import whole
from ga_dspy.programs.conversation import Ask, adrive, drive
from ga_dspy.programs.meter import Meter
from ga_dspy.programs.salvage import StepFailed, asked, retrace
from ga_dspy.signatures import GraphProposal
from ga_dspy.signatures.extract import ExtractFacts
from ga_dspy.signatures.prompt import render_passage

_FORMAT = 1
"""Counts changes of this module that change what is extracted from the same reply."""


class NoLanguageModel(GaDspyError):
    """There is no LM to read the passages."""

    def __init__(self) -> None:
        super().__init__(
            "no LM is configured; expected one to read the passages; pass lm=…, or run "
            "dspy.configure(lm=ga_dspy.extractive_lm()) for the embedded one"
        )


class Extraction(BaseModel):
    """What one passage states, and what it cost to find out.

    Attributes:
        update: Entities and relations with evidence spans in the passage.
        dropped: What the LM proposed and the passage does not support, or could not be read.
        calls: LM calls, second attempts among them.
        tokens: Prompt and completion tokens.
    """

    model_config = ConfigDict(frozen=True)

    update: GraphUpdate
    dropped: tuple[Dropped, ...] = ()
    calls: int = 0
    tokens: int = 0


class Extractor(dspy.Module):
    """Read a passage into grounded entities and relations; `extract` is its only predictor.

    Args:
        feedback_rounds: How often items that the passage does not support are sent back.
    """

    def __init__(self, *, feedback_rounds: int = 1) -> None:
        super().__init__()
        self.feedback_rounds = whole("feedback_rounds", feedback_rounds, 0)
        self.extract = dspy.Predict(ExtractFacts)

    def forward(self, passage: Passage) -> dspy.Prediction:
        """Read a passage.

        Returns:
            A prediction whose `extraction` is an `Extraction`.

        Raises:
            StepFailed: The LM gave nothing usable, twice.
        """
        return drive(self._read(passage))

    async def aforward(self, passage: Passage) -> dspy.Prediction:
        """Read a passage from a coroutine."""
        return await adrive(self._read(passage))

    def fingerprint(self, lm: Any = None) -> str:
        """Hash of all that decides what is asked: instructions, fields, demos, settings, the LM."""
        lm = lm or self.extract.lm or dspy.settings.lm
        kept = ("temperature", "max_tokens", "reasoning_effort")
        sampling = {key: lm.kwargs.get(key) for key in kept} if hasattr(lm, "kwargs") else {}
        asked_for = {
            "format": _FORMAT,
            "feedback_rounds": self.feedback_rounds,
            "state": {k: v for k, v in self.extract.dump_state().items() if k != "lm"},
            "fields": str(self.extract.signature.model_json_schema()["properties"].keys()),
            "lm": getattr(lm, "model", ""),
            "sampling": sampling,
        }
        text = json.dumps(asked_for, sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()

    def _read(self, passage: Passage) -> Generator[Ask, dspy.Prediction, dspy.Prediction]:
        """Ask; send back what the passage does not support; keep what it does."""
        meter = Meter()
        inputs = {"passages": render_passage(1, passage), "feedback": ""}
        attempts: list[tuple[dspy.Prediction, Grounding]] = []
        unusable: tuple[Dropped, ...] = ()
        for _ in range(1 + self.feedback_rounds):
            told = {**inputs, "feedback": attempts[-1][1].feedback if attempts else ""}
            try:
                reply = yield from asked("extract", self.extract, told, meter)
            except StepFailed as failure:
                if not attempts:
                    raise
                unusable = (_unusable(failure),)
                break
            attempts.append((reply, ground(reply.additions.draft, {1: passage})))
            if not attempts[-1][1].feedback:
                break
        update = _together([grounding for _, grounding in attempts])
        clean = dspy.Prediction(additions=_sanitised(attempts[-1][1], passage))
        retrace(self.extract, [attempt for attempt, _ in attempts], inputs, clean)
        dropped = sum((grounding.dropped for _, grounding in attempts), unusable)
        return dspy.Prediction(
            extraction=Extraction(
                update=update,
                dropped=tuple(dict.fromkeys(dropped)),
                calls=meter.calls,
                tokens=meter.tokens,
            )
        )


def _together(found: Sequence[Grounding]) -> GraphUpdate:
    entities = dict.fromkeys(e for grounding in found for e in grounding.update.entities)
    relations = dict.fromkeys(r for grounding in found for r in grounding.update.relations)
    return GraphUpdate(entities=tuple(entities), relations=tuple(relations))


def _sanitised(grounding: Grounding, passage: Passage) -> GraphProposal:
    """The proposal as a demonstration may show it: grounded items only."""
    text = linearise(KnowledgeGraph().merge(grounding.update), labels={passage.id: 1})
    proposal: GraphProposal = GraphProposal.model_validate(text)
    return proposal


def _unusable(failure: StepFailed) -> Dropped:
    reason = f"the reply to feedback: {failure.cause}"
    return Dropped(kind="line", item=failure.reply[:80], cause="unreadable", reason=reason)


class Read(NamedTuple):
    """One passage's outcome."""

    passage: Passage
    extraction: Extraction | None
    error: str = ""


def read_all(
    extractor: Extractor, passages: Sequence[Passage], threads: int
) -> Generator[Read, None, None]:
    """Read passages in threads and give outcomes as they come.

    Each passage is read in a copy of the caller's context, so `dspy.context` holds in the threads.
    Closing the generator stops them.
    """
    todo: queue.SimpleQueue[Passage] = queue.SimpleQueue()
    done: queue.SimpleQueue[Read | BaseException] = queue.SimpleQueue()
    stop = threading.Event()
    for passage in passages:
        todo.put(passage)

    def work() -> None:
        for passage in _until_empty(todo, stop):
            try:
                done.put(_read_one(extractor, passage))
            except BaseException as error:  # noqa: BLE001 - carried over and raised by the caller
                done.put(error)
                return

    # Daemons, so that Ctrl-C ends the process without waiting for calls still under way.
    for number in range(min(threads, len(passages))):
        context = contextvars.copy_context()
        threading.Thread(
            target=context.run, args=(work,), name=f"ga-dspy-extract-{number}", daemon=True
        ).start()
    try:
        for _ in passages:
            read = done.get()
            if isinstance(read, BaseException):
                raise read
            yield read
    finally:
        stop.set()


def _until_empty(todo: queue.SimpleQueue[Passage], stop: threading.Event) -> Iterator[Passage]:
    while not stop.is_set():
        try:
            yield todo.get_nowait()
        except queue.Empty:
            return


def _read_one(extractor: Extractor, passage: Passage) -> Read:
    try:
        # A trace of its own: threads would mix theirs, and a long build would pile it up.
        with dspy.context(trace=None if dspy.settings.trace is None else []):
            return Read(passage, extractor(passage=passage).extraction)
    except Exception as error:  # noqa: BLE001 - any failure is a counted, named, listed result
        return Read(passage, None, f"{type(error).__name__}: {error}")
