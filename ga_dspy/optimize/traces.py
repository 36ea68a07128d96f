"""Traces of a few questions in MLflow: a span a step, with what went in, came out and was spent.

How right the answer was stands beside it, as assessments. This is meant for a sample: a trace costs
some 30 kilobytes and more time than the program itself, so neither compiling nor evaluating writes
any.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dspy

from ga_dspy.eval import Report, Result
from ga_dspy.optimize.mlflow_store import (
    ROOT,
    Store,
    expected,
    pointed_at,
    publishable,
    reaching,
    store_uri,
)
from ga_dspy.programs import MultiHopProgram, Usage
from ga_dspy.programs.calls import Ask, Request, Search, drive
from ga_dspy.programs.events import Tell
from ga_dspy.programs.prediction import as_json
from ga_dspy.viewer import page

if TYPE_CHECKING:
    from mlflow.entities import LiveSpan

_RUN = "mlflow.sourceRun"


def worst(report: Report, examples: Sequence[dspy.Example], most: int) -> list[dspy.Example]:
    """The questions that went worst: without an answer first, then by F1."""
    scores = {result.id: result.f1 - bool(result.error) for result in report.results}
    return sorted(examples, key=lambda example: scores.get(example.id, -1.0))[:most]


def traced_sample(
    program: MultiHopProgram,
    examples: Sequence[dspy.Example],
    *,
    report: Report | None = None,
    uri: str | None = None,
    root: Path = ROOT,
    run_id: str | None = None,
    model_id: str | None = None,
) -> tuple[str, ...]:
    """Ask a program a few questions and trace each: "retrieve 1", "read 1", "judge 1", "answer".

    The accepted answer is the trace's expectation; F1, exact match, what supports the answer, and
    what the judge of the run said of the same answer are its feedback. While it runs, MLflow's
    tracking URI is that of the store; it is put back at the end. The LM is the caller's. A question
    that fails has a trace with the error, and the next one is asked.

    Args:
        program: Any program of this library.
        examples: What to ask, with `id`, `answer` or `answers`; keep it to a handful.
        report: The run in which they were asked, with a judge's verdicts.
        uri: Any tracking URI; by default `MLFLOW_TRACKING_URI`, else `mlflow.db` in `root`.
        root: The folder of the local store.
        run_id: The run that the traces belong to.
        model_id: The logged model that they are of.

    Returns:
        The ids of the traces, in order.

    Raises:
        TrackingFailed: The store was not reached; no further question is asked.
        MissingExtra: mlflow is not installed.
    """
    store = Store(store_uri(uri, root), root)
    belongs = {_RUN: run_id, "mlflow.modelId": model_id}
    of = {key: value for key, value in belongs.items() if value}
    with pointed_at(store.uri):
        return tuple(_Trace(program, one, store, of, report).ask() for one in examples)


class _Trace:
    """One question, asked with every request of the program inside a span of its own."""

    def __init__(
        self,
        program: MultiHopProgram,
        example: dspy.Example,
        store: Store,
        of: Mapping[str, str],
        report: Report | None,
    ) -> None:
        from mlflow import start_span_no_context

        self._program, self._example, self._store, self._of = program, example, store, of
        self._report, self._step, self._searched = report, 0, False
        with reaching(store.uri):
            self._root = start_span_no_context(
                type(program).__name__,
                span_type="AGENT",
                inputs={"question": publishable(example.question)},
                metadata=dict(of),
                tags={"question": publishable(example.id)},
                experiment_id=store.experiment_id,
            )

    def ask(self) -> str:
        """Ask; the id of the trace."""
        try:
            prediction = drive(
                self._program.converse(self._program.start(self._example.question)), self._run
            )
            result = Result.from_prediction(self._example, prediction)
        except Exception as error:  # noqa: BLE001 - any error is shown in the trace, as its outcome
            result = Result.from_failure(self._example, error)
            self._end(self._root, error)
        else:
            record = {"prediction": as_json(prediction), "question": self._example.question}
            self._end(self._root, record["prediction"])
            self._attach(publishable(record))
        self._assess(result)
        return str(self._root.trace_id)

    def _attach(self, record: Any) -> None:
        """The page of the answer, among the files of the run."""
        if run := self._of.get(_RUN):
            path = f"traces/{self._root.trace_id}.html"
            with reaching(self._store.uri):
                self._store.client.log_text(run, page(**record), path)

    def _assess(self, result: Result) -> None:
        """What was expected, and how right the answer is."""
        from mlflow import log_expectation, log_feedback
        from mlflow.entities import AssessmentSource

        trace, by = str(self._root.trace_id), AssessmentSource("CODE", "ga_dspy")
        judge = AssessmentSource("LLM_JUDGE", self._report.protocol.judge) if self._report else by
        scores = {
            "f1": (result.f1, by),
            "em": (result.em == 1.0, by),
            "supported": (result.supported, by),
            "judge": (self._verdict(result), judge),
        }
        with reaching(self._store.uri):
            answer: Any = publishable(expected(result))
            log_expectation(trace_id=trace, name="expected_response", value=answer, source=by)
            for name, (value, source) in scores.items():
                if value is not None:
                    log_feedback(trace_id=trace, name=name, value=value, source=source)

    def _verdict(self, result: Result) -> bool | None:
        """What the judge of the run said of this answer; None where it judged none like it."""
        run = self._report.results if self._report else ()
        same = (r.judged for r in run if (r.id, r.answer) == (result.id, result.answer))
        return next((judged.right for judged in same if judged), None)

    def _run(self, request: Request) -> Any:
        from mlflow import start_span_no_context

        if isinstance(request, Tell):
            return request.run()
        name, kind, inputs, before = self._name(request), "LLM", None, Usage()
        if isinstance(request, Search):
            kind, inputs = "RETRIEVER", publishable({"query": request.query, "k": request.k})
        else:
            before, request.meter.sent = Usage.total(request.meter.usage.values()), []
        with reaching(self._store.uri):
            span = start_span_no_context(name, kind, self._root, inputs=inputs)
        outcome: object = None
        try:
            result = request.run()
            outcome = _outputs(result)
            return result
        except Exception as error:
            outcome = error
            raise
        finally:
            if isinstance(request, Ask):
                _note_call(span, request, before)
            self._end(span, outcome)

    def _name(self, request: Search | Ask) -> str:
        """What a request does and the step it belongs to.

        A search after a reading opens a step; a search after a search that brought nothing new
        (the query was made anew) stays in it.
        """
        search = isinstance(request, Search)
        self._step, self._searched = self._step + (search and not self._searched), search
        name = "retrieve" if isinstance(request, Search) else request.step
        return name if name == "answer" else f"{name} {self._step}"

    def _end(self, span: LiveSpan, outcome: object) -> None:
        with reaching(self._store.uri):
            if isinstance(outcome, Exception):
                text = publishable(f"{type(outcome).__name__}: {outcome}")
                span.end(outputs={"error": text}, status="ERROR")
            else:
                span.end(outputs=publishable(outcome))


def _note_call(span: LiveSpan, request: Ask, before: Usage) -> None:
    """The prompt of a call and what it took, where MLflow looks for them.

    A cost only where the LM's history has one.
    """
    from mlflow.tracing.constant import SpanAttributeKey

    meter, lm = request.meter, getattr(request.predictor, "lm", None) or dspy.settings.lm
    now = Usage.total(meter.usage.values())
    usage = {
        "input_tokens": now.prompt_tokens - before.prompt_tokens,
        "output_tokens": now.completion_tokens - before.completion_tokens,
        "total_tokens": now.tokens - before.tokens,
    }
    span.set_inputs(publishable({"messages": meter.sent} if meter.sent else request.inputs))
    span.set_attributes({"model": lm.model, SpanAttributeKey.CHAT_USAGE: usage})
    # A server takes a price of its own list for a model that it is told without a cost.
    if now.cost is not None and before.cost is not None:
        cost = {"total_cost": now.cost - before.cost}
        span.set_attributes({SpanAttributeKey.MODEL: lm.model, SpanAttributeKey.LLM_COST: cost})


def _outputs(result: Any) -> object:
    if isinstance(result, dspy.Prediction):
        return {name: str(value) for name, value in result.items()}
    # The form in which MLflow shows documents.
    return [{"page_content": p.text, "metadata": {"title": p.title}, "id": p.id} for p in result]
