"""Live tracing: questions as traces in MLflow, feedback on answers, and question sets from both.

A `Tracer` records what a program asks of its retriever and LM. The finished trace goes to a process
of its own, where MLflow makes spans of it: that takes longer than some answers, and can fail or
hang.
"""

from __future__ import annotations

import atexit
import json
import logging
import os
import signal
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from contextvars import ContextVar
from functools import partial
from queue import Full, Queue
from subprocess import DEVNULL, PIPE, Popen
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, NamedTuple, cast

import dspy
from pydantic_core import to_jsonable_python

from ga_dspy.errors import InputError, need_package
from ga_dspy.optimize import mlflow_store as stores
from ga_dspy.optimize.mlflow_store import EXPERIMENT, ROOT
from ga_dspy.programs.calls import Ask, Conversation, Search, documents
from ga_dspy.programs.loop import OBSERVERS, State
from ga_dspy.programs.meter import LMCall
from ga_dspy.retrieval.documents import python_process
from ga_dspy.secrets import secrets_of, without_password

if TYPE_CHECKING:
    from mlflow import MlflowClient

_RUN: ContextVar[str] = ContextVar("ga_dspy_run", default="")
_RUN_TAG, _RESTRICTED_TAG = "ga_dspy.run", "ga_dspy.restricted"
_RIGHT, _EXPECTED = "right", "expected_response"
_MOST_WAITING = 100  # traces, each of about 60 kilobytes
_MOST_UNSENT = 500  # traces of questions that were not sampled
_SECONDS_TO_CLOSE = 300.0  # MLflow may take minutes to start on a busy machine


@contextmanager
def run_id(id: str) -> Iterator[None]:
    """Give the question asked in this context an id, by which `Tracer.feedback` finds its trace."""
    token = _RUN.set(id)
    try:
        yield
    finally:
        _RUN.reset(token)


# --- What is recorded of a question

_SHOWN = (
    "answer", "verdict", "supported", "guess", "evidence", "cited", "citations", "failures",
)  # fmt: skip
_MEASURED = ("verdict", "supported", "cited", "calls", "tokens")


class _Trace:
    """The spans of a question in the order in which they began; attributes have MLflow's names."""

    def __init__(self, state: State, run: str, tags: Mapping[str, str]) -> None:
        self.run, self.tags = run, {"verdict": "", "supported": "", **tags}
        program: Any = state.program
        self.is_restricted = bool(getattr(vars(program).get("retriever"), "scope", ()))
        self.spans: list[dict[str, Any]] = []
        self._parent: int | None = None
        about = {"program": type(program).__name__, "settings": program.settings()}
        self._begin(about["program"], "CHAIN", {"question": state.question}, **about)
        self._parent = 0
        state.meter.on_call = self._add_call

    def record(self, conversation: Conversation[dspy.Prediction]) -> Conversation[dspy.Prediction]:
        """Carry on the conversation, and record its searches and steps."""
        resume: Any = partial(next, conversation)
        while True:
            try:
                request = resume()
            except StopIteration as end:
                self._conclude(end.value)
                return end.value
            span = dict[str, Any]()
            if isinstance(request, Search):
                self.is_restricted |= bool(getattr(request.retriever, "scope", ()))
                span = self._begin("search", "RETRIEVER", {"query": request.query, "k": request.k})
            elif isinstance(request, Ask):
                span = self._begin(request.step, "CHAIN", request.inputs)
                self._parent = len(self.spans) - 1
            try:
                result = yield request
            except Exception as error:  # noqa: BLE001 - handed to the program, which may know it
                self.end(span, None, error)
                resume = partial(conversation.throw, error)
            else:
                self.end(span, documents(result) if span.get("type") == "RETRIEVER" else result)
                resume = partial(conversation.send, result)
            self._parent = 0

    def _begin(self, name: str, kind: str, inputs: Any, **attributes: Any) -> dict[str, Any]:
        span = {"parent": self._parent, "name": name, "type": kind, "inputs": inputs,
                "attributes": attributes, "start": time.time_ns(), "error": []}  # fmt: skip
        self.spans.append(span)
        return span

    def end(self, span: dict[str, Any], outputs: Any, error: BaseException | None = None) -> None:
        """End a span."""
        if isinstance(outputs, dspy.Prediction):
            # The lines of a graph are shown as they are: to serialise a proposal takes long.
            outputs = {name: getattr(value, "text", value) for name, value in outputs.items()}
        span.update(outputs=outputs, end=time.time_ns())
        if error is not None:
            span["error"] = [type(error).__name__, str(error)]

    def _add_call(self, call: LMCall) -> None:
        usage = call.usage
        tokens = {"input_tokens": usage.prompt_tokens, "output_tokens": usage.completion_tokens,
                  "total_tokens": usage.tokens}  # fmt: skip
        about = {"cached": usage.cached, "mlflow.llm.model": call.model,
                 "mlflow.message.format": "dspy", "mlflow.chat.tokenUsage": tokens}  # fmt: skip
        if usage.cost:
            about["mlflow.llm.cost"] = {"total_cost": usage.cost}
        span = self._begin(call.model, "CHAT_MODEL", {"messages": call.sent}, **about)
        span["start"] -= int(call.seconds * 1e9)
        self.end(span, call.outputs, call.error)

    def _conclude(self, prediction: dspy.Prediction) -> None:
        root, graph = self.spans[0], prediction.graph
        measured = {name: prediction.get(name) for name in _MEASURED}
        sizes = {"entities": len(graph.entities), "relations": len(graph.relations)}
        root["attributes"] |= {**measured, **sizes, "steps": len(prediction.steps)}
        self.tags |= {name: str(prediction.get(name)) for name in ("verdict", "supported")}
        shown = {name: prediction.get(name) for name in _SHOWN}
        self.end(root, {**shown, "steps": [step.message for step in prediction.steps]})

    def message(self) -> bytes:
        """Return the trace as a message; a restricted one has no text but ids of documents."""
        spans = [_without_text(one) for one in self.spans] if self.is_restricted else self.spans
        tags = {_RESTRICTED_TAG: str(self.is_restricted), **self.tags}
        return _message("trace", {"run": self.run, "tags": tags, "spans": spans})


def _without_text(span: dict[str, Any]) -> dict[str, Any]:
    found = span.get("outputs") if span["type"] == "RETRIEVER" else None
    shown = [{"id": one["id"], "page_content": ""} for one in found or ()]
    return {**span, "inputs": None, "outputs": shown, "error": span["error"][:1]}


def _message(kind: str, about: Mapping[str, Any]) -> bytes:
    """Return a line for the other process, with the secrets that it must withhold."""
    plain = to_jsonable_python(about, inf_nan_mode="null", fallback=str)
    return json.dumps([kind, plain, sorted(secrets_of(addresses=True))]).encode() + b"\n"


# --- To the process that calls MLflow


class Tracer(AbstractContextManager["Tracer"]):
    """Traces the questions of all programs in this process, until it is closed.

    It is a context manager that closes itself. An answer neither waits for MLflow nor fails with
    it.

    Attributes:
        counts: Traces and feedback by outcome: "sent", "failed", or "dropped" because too many
            were waiting or because the feedback is on a question without a trace.
    """

    def __init__(self, uri: str, experiment: str, rate: float, tags: Mapping[str, str]) -> None:
        self.uri, self.experiment, self.rate, self.tags = uri, experiment, rate, tags
        self.counts = Counter[str]()
        self._unsent = dict[str, bytes]()
        self._waiting = Queue[bytes | None](_MOST_WAITING)
        self._reported = set[str]()
        self._lock, self._is_closed, self._is_abandoned = threading.Lock(), False, False
        self._sender: threading.Thread | None = None
        self._process: Popen[bytes] | None = None

    def observe(
        self, state: State, conversation: Conversation[dspy.Prediction]
    ) -> Conversation[dspy.Prediction]:
        """Carry on the conversation of a question; trace it if it is sampled."""
        # Not by `random`, whose state is the user's.
        id, run = uuid.uuid4(), _RUN.get()
        is_sampled = id.int < self.rate * 2**128
        if not is_sampled and not run:
            return (yield from conversation)
        trace = _Trace(state, run or id.hex, self.tags)
        try:
            return (yield from trace.record(conversation))
        except BaseException as error:
            trace.end(trace.spans[0], None, error)
            raise
        finally:
            if is_sampled:
                self._put(trace.message())
            else:
                self._unsent[run] = trace.message()
                if len(self._unsent) > _MOST_UNSENT:
                    self._unsent.pop(next(iter(self._unsent)), None)

    def feedback(
        self, run: str, *, right: bool, comment: str | None = None, expected: str | None = None
    ) -> None:
        """Log what a person thinks of an answer, as assessments of its trace.

        The trace of a question that was not sampled is sent now, if it is one of the last 500.

        Args:
            run: The id of the question (`run_id`).
            right: Whether the answer is right.
            comment: Why.
            expected: The right answer.
        """
        if (trace := self._unsent.pop(run, None)) is not None:
            self._put(trace)
        given = {"run": run, "right": right, "comment": comment, "expected": expected}
        self._put(_message("feedback", given))

    def _put(self, message: bytes) -> None:
        with self._lock:
            if self._sender is None:
                self._sender = threading.Thread(target=self._work, name="traces", daemon=True)
                self._sender.start()
        try:
            self._waiting.put_nowait(message)
        except Full:
            self._count("dropped", "MLflow is slower than the questions")

    def _work(self) -> None:
        while (message := self._waiting.get()) is not None and not self._is_abandoned:
            outcome, why = self._request(message)
            is_over = self._is_closed and outcome == "failed"
            self._count(outcome, why)
            if is_over:
                break
        if self._process is not None:
            self._process.communicate()

    def _request(self, message: bytes) -> tuple[str, str]:
        """Return what became of a message, and why."""
        with suppress(OSError):
            if self._process is None:
                code = "from ga_dspy.tracing import log_messages; log_messages()"
                self._process = python_process(code, stdin=PIPE, stdout=PIPE, stderr=DEVNULL)
                message = json.dumps([self.uri, self.experiment]).encode() + b"\n" + message
            to = cast("BinaryIO", self._process.stdin)
            to.write(message)
            to.flush()
            if reply := cast("BinaryIO", self._process.stdout).readline():
                outcome, why = json.loads(reply)
                return outcome, why
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None
        return "failed", "its process ended"

    def _count(self, outcome: str, why: str) -> None:
        """Count an outcome; log the first failure after a success, and the first dropped trace."""
        self.counts[outcome] += 1
        if why and outcome not in self._reported:
            self._reported.add(outcome)
            logging.getLogger("ga_dspy").warning(
                "tracing in %s failed: %s; answers are not affected",
                without_password(self.uri), why,
            )  # fmt: skip
        elif outcome == "sent":
            self._reported.discard("failed")

    def close(self) -> None:
        """Send what is waiting, until MLflow fails or five minutes pass; trace nothing more."""
        atexit.unregister(self.close)
        if self.observe in OBSERVERS:
            OBSERVERS.remove(self.observe)
        if self._sender is not None and not self._is_closed:
            self._is_closed = True
            end = time.monotonic() + _SECONDS_TO_CLOSE
            with suppress(Full):
                self._waiting.put(None, timeout=_SECONDS_TO_CLOSE)
            self._sender.join(max(0.0, end - time.monotonic()))
            self._is_abandoned = self._sender.is_alive()
            if self._is_abandoned:
                self._count("dropped", "MLflow did not finish within five minutes")
            if self._process is not None:
                self._process.kill()

    def __exit__(self, *_: object) -> None:
        self.close()


def track(
    uri: str | None = None,
    experiment: str = EXPERIMENT,
    rate: float = 1.0,
    tags: Mapping[str, str] = {},
) -> Tracer:
    """Trace the questions of this process in MLflow, until the tracer is closed.

    The trace of a question that is asked under conditions (`only`, `where`, access labels) has ids,
    times and counts, and no text: the passages may be restricted.

    Args:
        uri: Any tracking URI; by default `MLFLOW_TRACKING_URI`, else `artifacts/mlflow.db`.
        experiment: The experiment; it is created if it does not exist.
        rate: The share of questions to trace, from 0 to 1; with 0 only those with feedback.
        tags: Tags for every trace, such as a version of the app.

    Raises:
        MissingExtra: mlflow is not installed.
        InputError: The rate is not between 0 and 1.
    """
    need_package("mlflow", "optimize")
    if not 0.0 <= rate <= 1.0:
        raise InputError(f"rate is {rate}", expected="0 to 1", remedy="pass 0.1 for a tenth")
    tracer = Tracer(stores.store_uri(uri, ROOT), experiment, rate, tags)
    OBSERVERS.append(tracer.observe)
    atexit.register(tracer.close)
    return tracer


# --- In the process that calls MLflow


def log_messages() -> None:
    """Log the traces and the feedback on stdin, and write to stdout what became of each."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends it
    if sys.platform != "win32":
        os.nice(5)
    source, out = sys.stdin.buffer, sys.stdout.buffer
    sys.stdout = sys.stderr  # so that nothing that a library prints gets into the replies
    uri, experiment = json.loads(source.readline())
    while line := source.readline():
        out.write(json.dumps(_log(uri, experiment, *json.loads(line))).encode() + b"\n")
        out.flush()


def _log(uri: str, experiment: str, kind: str, about: Any, known: list[str]) -> tuple[str, str]:
    """Return "sent"; or "failed" and why; or "dropped" if there is no trace for the feedback."""
    try:
        with stores.reaching(uri) as client:
            place, sent = (
                stores.experiment_of(client, uri, ROOT, experiment),
                stores.publishable(about, known),
            )
            if kind == "trace":
                _log_trace(client, place, sent)
            elif not _log_feedback(client, place, sent):
                return "dropped", ""
            return "sent", ""
    except Exception as error:  # noqa: BLE001 - the next one may be logged all the same
        return "failed", f"{type(error).__name__}: {error}"


def _log_trace(client: MlflowClient, experiment: str, trace: dict[str, Any]) -> None:
    from mlflow import start_span_no_context
    from mlflow.entities import LiveSpan, SpanEvent, SpanStatusCode

    spans, made = trace["spans"], list[LiveSpan]()
    for span in spans:
        is_root = span["parent"] is None
        made.append(start_span_no_context(
            span["name"], span["type"], None if is_root else made[span["parent"]], span["inputs"],
            span["attributes"], trace["tags"], start_time_ns=span["start"],
            experiment_id=experiment if is_root else None,
        ))  # fmt: skip
    for span, one in zip(reversed(spans), reversed(made), strict=True):
        status = SpanStatusCode.ERROR if span["error"] else SpanStatusCode.OK
        if span["error"]:
            one.add_event(SpanEvent.from_exception(RuntimeError(": ".join(span["error"]))))
        end = span.get("end", spans[0]["end"])
        one.end(span.get("outputs"), status=status, end_time_ns=end)
    # MLflow only logs that it lost a trace; to set a tag of one that is not there raises.
    client.set_trace_tag(made[0].trace_id, _RUN_TAG, trace["run"])


def _log_feedback(client: MlflowClient, experiment: str, given: dict[str, Any]) -> bool:
    """Log feedback; return whether there is a trace of its question."""
    from mlflow import log_expectation, log_feedback
    from mlflow.entities import AssessmentSource

    where, source = f"tags.`{_RUN_TAG}` = '{given['run']}'", AssessmentSource("HUMAN", "ga_dspy")
    found = client.search_traces(
        locations=[experiment], filter_string=where, max_results=1, include_spans=False
    )
    for trace in found:
        id, is_restricted = trace.info.trace_id, trace.info.tags[_RESTRICTED_TAG] == "True"
        comment, expected = (None if is_restricted else given[n] for n in ("comment", "expected"))
        log_feedback(
            trace_id=id, name=_RIGHT, value=given["right"], source=source, rationale=comment
        )
        if expected:
            log_expectation(trace_id=id, name=_EXPECTED, value=expected, source=source)
    return bool(found)


# --- Question sets from traces


class RatedQuestions(NamedTuple):
    """Questions from traces with feedback.

    Attributes:
        rows: `id`, `question` and `answer` of each, the newest first.
        skipped: How many traces gave no row, by reason.
    """

    rows: list[dict[str, str]]
    skipped: Counter[str]


def rated_questions(
    uri: str | None = None,
    experiment: str = EXPERIMENT,
    only: Literal["right", "wrong", "all"] = "all",
) -> RatedQuestions:
    """Return the questions of live traces that people gave feedback on.

    The answer is the expected one (the expectation `expected_response`), else the answer that was
    marked right (the feedback `right`), whether by `Tracer.feedback` or in MLflow's pages. Of
    several traces of a question the newest with feedback counts.

    Args:
        uri: The store, as in `track`.
        experiment: The experiment.
        only: "right" for answers marked right, "wrong" for those marked wrong.

    Raises:
        TrackingFailed: The store was not reached.
        InputError: There is no such experiment.
        MissingExtra: mlflow is not installed.
    """
    uri, rows, skipped = stores.store_uri(uri, ROOT), dict[str, dict[str, str]](), Counter[str]()
    with stores.reaching(uri) as client:
        import mlflow

        if (found := client.get_experiment_by_name(experiment)) is None:
            raise InputError(
                f"{without_password(uri)} has no experiment {experiment!r}",
                expected="one with live traces",
                remedy="trace questions first: ga-dspy serve … --track URI",
            )
        place = [found.experiment_id]
        traces = mlflow.search_traces(
            locations=place, include_spans=False, return_type="list", order_by=["timestamp DESC"]
        )
        for info in (trace.info for trace in traces if _RUN_TAG in trace.info.tags):
            right, expected = _rating(info)
            if right is None and not expected:
                skipped["without feedback"] += 1
            elif only != "all" and right is not (only == "right"):
                skipped[f"not marked {only}"] += 1
            elif not right and not expected:
                skipped["wrong, without an expected answer"] += 1
            elif info.tags[_RESTRICTED_TAG] == "True":
                skipped["asked under conditions: no text"] += 1
            else:
                root = client.get_trace(info.trace_id).data.spans[0]
                question, answer = root.inputs["question"], expected or root.outputs["answer"]
                if not answer or question in rows:
                    skipped["repeated" if answer else "right, without an answer"] += 1
                else:
                    id = info.tags[_RUN_TAG]
                    rows[question] = {"id": id, "question": question, "answer": answer}
    return RatedQuestions([*rows.values()], skipped)


def _rating(info: Any) -> tuple[bool | None, str]:
    """Return whether the answer of a trace was marked right, and the expected answer or ""."""
    found = sorted(info.assessments, key=lambda one: one.last_update_time_ms or 0)
    newest = {one.name: one.value for one in found if one.valid is not False}
    right = newest.get(_RIGHT)
    return right if isinstance(right, bool) else None, str(newest.get(_EXPECTED) or "")
