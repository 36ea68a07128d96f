"""Traces of a few questions: a span a step, with what went in and what came out.

Meant for a sample. A trace costs some 30 kilobytes and more time than the program itself, so
neither compiling nor evaluating writes any.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dspy

from ga_dspy.optimize.tracking.store import EXPERIMENT, ROOT, Store, pointed_at, store_uri
from ga_dspy.optimize.tracking.withheld import publishable, publishable_text
from ga_dspy.programs import MultiHopProgram
from ga_dspy.programs.conversation import Ask, Conversation, Request, Search, drive
from ga_dspy.programs.prediction import as_json

if TYPE_CHECKING:
    from mlflow.entities import LiveSpan

_SOURCE_RUN = "mlflow.sourceRun"


def traced_sample(
    program: MultiHopProgram,
    questions: Iterable[str],
    *,
    uri: str | None = None,
    experiment: str = EXPERIMENT,
    root: Path = ROOT,
    run_id: str | None = None,
) -> tuple[str, ...]:
    """Ask a program a few questions and trace each: "retrieve 1", "read 1", "judge 1", "answer".

    While it runs, MLflow's tracking URI is that of the store; it is put back at the end. The LM
    is the caller's. A question that fails has a trace with the error, and the next one is asked.

    Args:
        program: Any program of this library.
        questions: What to ask; keep it to a handful.
        uri: Any tracking URI; by default `MLFLOW_TRACKING_URI`, else `mlflow.db` in `root`.
        experiment: Name of the experiment.
        root: The folder of the local store.
        run_id: The run that the traces belong to.

    Returns:
        The ids of the traces, in order.

    Raises:
        TrackingFailed: The store was not reached before the first question.
        MissingExtra: mlflow is not installed.
    """
    store = Store(store_uri(uri, root), experiment, root)
    with pointed_at(store.uri):
        return tuple(_traced(program, question, store, run_id) for question in questions)


@dataclass(frozen=True)
class _Spanned:
    """A request of the program that is carried out inside a span."""

    request: Request
    name: str
    parent: LiveSpan
    store: Store

    def run(self) -> Any:
        with self.store.reached():
            span = _span(self.name, self.parent, _inputs(self.request))
        meter = self.request.meter if isinstance(self.request, Ask) else None
        before = (meter.calls, meter.tokens) if meter else (0, 0)
        try:
            result = self.request.run()
        except Exception as error:
            _end(self.store, span, error)
            raise
        if meter:
            cost = {"calls": meter.calls - before[0], "tokens": meter.tokens - before[1]}
            span.set_attributes(cost)
        _end(self.store, span, _outputs(result))
        return result


def _traced(program: MultiHopProgram, question: str, store: Store, run: str | None) -> str:
    from mlflow import start_span_no_context

    with store.reached():
        root = start_span_no_context(
            type(program).__name__,
            span_type="AGENT",
            inputs={"question": publishable_text(question)},
            metadata={_SOURCE_RUN: run} if run else None,
            experiment_id=store.experiment_id,
        )
    names = {id(predictor): name for name, predictor in program.named_predictors()}
    try:
        prediction = drive(_spanned(program.converse(question), names, root, store))
    except Exception as error:  # noqa: BLE001 - any error is shown in the trace, as its outcome
        _end(store, root, error)
    else:
        _end(store, root, as_json(prediction))
    return str(root.trace_id)


def _spanned(
    conversation: Conversation[dspy.Prediction],
    names: Mapping[int, str],
    root: LiveSpan,
    store: Store,
) -> Generator[Any, Any, dspy.Prediction]:
    """The same conversation, with every request in a span named by its step."""
    numbers = _Numbers(names)
    try:
        request = next(conversation)
        while True:
            try:
                result = yield _Spanned(request, numbers.name(request), root, store)
            except Exception as error:  # noqa: BLE001 - handed to the program, which may know it
                request = conversation.throw(error)
            else:
                request = conversation.send(result)
    except StopIteration as end:
        return end.value


class _Numbers:
    """Names a request by what it does and the step it belongs to.

    A search after a reading opens a step; a search after a search that brought nothing new (the
    query was made anew) stays in it.
    """

    def __init__(self, predictors: Mapping[int, str]) -> None:
        self._predictors = predictors
        self._step = 0
        self._searched = False

    def name(self, request: Request) -> str:
        if isinstance(request, Search):
            self._step += not self._searched
            self._searched = True
            return f"retrieve {self._step}"
        self._searched = False
        predictor = self._predictors.get(id(request.predictor), "ask")
        return predictor if predictor == "answer" else f"{predictor} {self._step}"


def _span(name: str, parent: LiveSpan, inputs: dict[str, Any]) -> LiveSpan:
    from mlflow import start_span_no_context

    kind = "RETRIEVER" if name.startswith("retrieve") else "LLM"
    return start_span_no_context(name, kind, parent, inputs=publishable(inputs))


def _end(store: Store, span: LiveSpan, outcome: object) -> None:
    with store.reached():
        if isinstance(outcome, Exception):
            said = publishable_text(f"{type(outcome).__name__}: {outcome}")
            span.end(outputs={"error": said}, status="ERROR")
        else:
            span.end(outputs=publishable(outcome))


def _inputs(request: Request) -> dict[str, Any]:
    if isinstance(request, Search):
        return {"query": request.query, "k": request.k}
    fresh = {"rollout": request.rollout} if request.rollout else {}
    return {**request.inputs, **fresh}


def _outputs(result: Any) -> object:
    if isinstance(result, dspy.Prediction):
        return {name: str(value) for name, value in result.items()}
    # The form in which MLflow shows documents.
    return [{"page_content": p.text, "metadata": {"title": p.title}, "id": p.id} for p in result]
