"""Traces in MLflow: of live questions, with feedback and question sets, and of a run's worst ones.

A `Tracer` records a program's searches and LM calls. A separate process sends the finished trace to
MLflow, because that takes longer than some answers, and can fail or hang.
"""

from __future__ import annotations

import atexit
import json
import logging
import os
import signal
import sys
import tempfile
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from functools import partial
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import dspy
from pydantic_core import to_jsonable_python

from ga_dspy.errors import InputError, check_installed
from ga_dspy.eval import Report, Result
from ga_dspy.optimize import mlflow_store as stores
from ga_dspy.optimize.mlflow_store import (
    EXPERIMENT,
    ROOT,
    TrackingFailed,
    mlflow_client,
    without_secrets,
)
from ga_dspy.processes import LineProcess, reply_in_lines
from ga_dspy.programs import MultiHopProgram
from ga_dspy.programs.calls import Ask, Conversation, Search, documents
from ga_dspy.programs.loop import OBSERVERS, State
from ga_dspy.programs.meter import LMCall
from ga_dspy.programs.prediction import as_json
from ga_dspy.secrets import secrets_of, without_password
from ga_dspy.viewer import page

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Span

_RUN: ContextVar[str] = ContextVar("ga_dspy_run", default="")
_RUN_TAG, _RESTRICTED_TAG = "ga_dspy.run", "ga_dspy.restricted"
_RIGHT, _EXPECTED = "right", "expected_response"
_MAX_WAITING = 1_000_000_000  # bytes of waiting traces, of 20,000 to 60,000 bytes each
_MAX_UNSENT = 500  # traces of questions that were not sampled
_BATCH = 500_000  # bytes per request; proxies often allow a million
_SECONDS_TO_CLOSE = 300.0  # MLflow may take minutes to start on a busy machine
_SECONDS_TO_MESSAGE = 2.0  # until closing the tracer logs why it takes long
_RETRY_DELAYS = (1.0, 2.0, 5.0, 10.0, 30.0)  # seconds between attempts while MLflow is down
_UNREACHED = "unreached"  # the outcome of a message while MLflow is down


@contextmanager
def run_id(id: str) -> Iterator[None]:
    """Set the id of the question asked in this context; `Tracer.feedback` takes the same id."""
    token = _RUN.set(id)
    try:
        yield
    finally:
        _RUN.reset(token)


# --- Recording the trace of a question

_OUTPUTS = (
    "answer", "verdict", "supported", "guess", "evidence", "cited", "citations", "failures",
)  # fmt: skip
_ATTRIBUTES = ("verdict", "supported", "cited", "calls", "tokens")


class _Trace:
    """The searches, steps and LM calls of a question, as spans in the order in which they began.

    Recording only keeps references, which takes no time and cannot fail. `spans` and `message` do
    the rest.
    """

    def __init__(self, state: State, tags: Mapping[str, str]) -> None:
        self.program: Any = state.program
        self.tags = {"verdict": "", "supported": "", **tags}
        self.secrets = secrets_of(addresses=True)
        self.is_restricted = bool(getattr(vars(self.program).get("retriever"), "scope", ()))
        self._spans: list[dict[str, Any]] = []
        self._parent: int | None = None
        self._begin(type(self.program).__name__, "CHAIN", {"question": state.question})
        self._parent = 0
        state.meter.on_call.append(self._add_call)

    def record(self, conversation: Conversation[dspy.Prediction]) -> Conversation[dspy.Prediction]:
        """Relay a program's requests and their results; record searches, steps and the end."""
        resume: Any = partial(next, conversation)
        try:
            while True:
                request = resume()
                span = dict[str, Any]()
                if isinstance(request, Search):
                    self.is_restricted |= bool(getattr(request.retriever, "scope", ()))
                    asked = {"query": request.query, "k": request.k}
                    span = self._begin("search", "RETRIEVER", asked)
                elif isinstance(request, Ask):
                    span = self._begin(request.step, "CHAIN", request.inputs)
                    self._parent = len(self._spans) - 1
                try:
                    result = yield request
                except Exception as error:  # noqa: BLE001 - raised in the program, which may catch it
                    self._end(span, None, error)
                    resume = partial(conversation.throw, error)
                else:
                    self._end(span, result)
                    resume = partial(conversation.send, result)
                self._parent = 0
        except StopIteration as end:
            self._end(self._spans[0], end.value)
            return end.value
        except BaseException as error:
            self._end(self._spans[0], None, error)
            raise

    def _begin(self, name: str, kind: str, inputs: Any, **attributes: Any) -> dict[str, Any]:
        span = {"parent": self._parent, "name": name, "type": kind, "inputs": inputs,
                "attributes": attributes, "start": time.time_ns(), "error": []}  # fmt: skip
        self._spans.append(span)
        return span

    def _end(self, span: dict[str, Any], outputs: Any, error: BaseException | None = None) -> None:
        if isinstance(outputs, dspy.Prediction):
            outputs = dict(outputs.items())  # a copy: the program or its caller may change it
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
        self._end(span, call.outputs, call.error)

    def spans(self) -> list[dict[str, Any]]:
        """Return the spans with their outputs as MLflow shows them, and set the tags."""
        root, *others = ({"outputs": None, "end": time.time_ns(), **span} for span in self._spans)
        for span in others:
            if span["type"] == "RETRIEVER":
                span["outputs"] = documents(span["outputs"] or ())
            elif isinstance(span["outputs"], dict):
                # The text of a graph update is enough: serialising its records takes long.
                outputs = span["outputs"].items()
                span["outputs"] = {name: getattr(value, "text", value) for name, value in outputs}
        attributes = {"settings": self.program.settings()}
        if found := root["outputs"]:
            steps, graph = found["steps"], found["graph"]
            attributes |= {name: found.get(name) for name in _ATTRIBUTES}
            attributes |= {"entities": len(graph.entities), "relations": len(graph.relations)}
            attributes["steps"] = len(steps)
            root["outputs"] = {name: found.get(name) for name in _OUTPUTS}
            root["outputs"]["steps"] = [step.message for step in steps]
            self.tags |= {name: str(found.get(name)) for name in ("verdict", "supported")}
        return [{**root, "attributes": attributes}, *others]

    def message(self, run: str) -> bytes:
        """Return the trace as a message; a restricted one has no text except document ids."""
        spans = self.spans()
        if self.is_restricted:
            spans = [_without_text(span) for span in spans]
        tags = {_RUN_TAG: run, _RESTRICTED_TAG: str(self.is_restricted), **self.tags}
        about = {"trace": f"tr-{uuid.uuid4().hex}", "tags": tags, "spans": spans}
        return _message("trace", about, self.secrets)


def _without_text(span: dict[str, Any]) -> dict[str, Any]:
    found = span["outputs"] if span["type"] == "RETRIEVER" else ()
    shown = [{"id": one["id"], "page_content": ""} for one in found]
    return {**span, "inputs": None, "outputs": shown, "error": span["error"][:1]}


def _message(kind: str, about: Mapping[str, Any], secrets: Collection[str]) -> bytes:
    """Return a line for the sending process, with the secrets that it has to redact."""
    plain = to_jsonable_python(about, inf_nan_mode="null", fallback=str)
    return json.dumps([kind, plain, sorted(secrets)]).encode() + b"\n"


# --- The tracer, which hands traces to the sending process


class Tracer(AbstractContextManager["Tracer"]):
    """Traces the questions of all programs in this process, until it is closed.

    It is a context manager that closes itself. An answer neither waits for MLflow nor fails with
    it: traces and feedback wait in a temporary file until MLflow takes them.

    Attributes:
        counts: Traces and feedback by outcome: "sent", "failed" because MLflow rejected them, or
            "dropped" because too many were waiting, MLflow did not take them before the end, or
            the feedback is on a question without a trace.
        unsent: The traces of the last questions that were not sampled, by id.
    """

    def __init__(self, uri: str, experiment: str, rate: float, tags: Mapping[str, str]) -> None:
        self.uri, self.experiment, self.rate, self.tags = uri, experiment, rate, tags
        self.counts = Counter[str]()
        self.unsent = dict[str, _Trace]()
        self._reported = set[str]()
        self._changed, self._is_closed, self._is_abandoned = threading.Condition(), False, False
        self._sender: threading.Thread | None = None
        self._process: LineProcess | None = None
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the tracer
        self._read, self._waiting = 0, 0

    def observe(
        self, state: State, conversation: Conversation[dspy.Prediction]
    ) -> Conversation[dspy.Prediction]:
        """Relay the requests of a question's program; trace the question if it is sampled."""
        id, run = uuid.uuid4(), _RUN.get()  # `random` would change the user's random state
        is_sampled = id.int < self.rate * 2**128
        if not is_sampled and not run:
            return (yield from conversation)
        run, trace = run or id.hex, _Trace(state, self.tags)
        try:
            return (yield from trace.record(conversation))
        finally:
            if is_sampled:
                self._send(partial(trace.message, run))
            else:
                self.unsent[run] = trace
                if len(self.unsent) > _MAX_UNSENT:
                    self.unsent.pop(next(iter(self.unsent)), None)

    def feedback(
        self, run: str, *, right: bool, comment: str | None = None, expected: str | None = None
    ) -> None:
        """Log a person's feedback on an answer, as assessments of its trace.

        If the question was not sampled and is one of the last 500, its trace is sent now.

        Args:
            run: The id of the question (`run_id`).
            right: Whether the answer is right.
            comment: The reason.
            expected: The right answer.
        """
        if (trace := self.unsent.pop(run, None)) is not None:
            self._send(partial(trace.message, run))
        given = {"run": run, "right": right, "comment": comment, "expected": expected}
        self._send(partial(_message, "feedback", given, secrets_of(addresses=True)))

    def _send(self, make: Callable[[], bytes]) -> None:
        """Make a message and queue it for the sender; an error is counted, not raised."""
        try:
            message = make()
            with self._changed:
                if not self._waiting:
                    self._read = self._file.truncate(0)
                if self._file.seek(0, os.SEEK_END) > _MAX_WAITING:
                    self._count(["dropped"], "MLflow is slower than the questions")
                    return
                self._file.write(message)
                self._file.flush()
                self._waiting += 1
                self._changed.notify()
                if self._sender is None or not self._sender.is_alive():  # after a full disk
                    self._sender = threading.Thread(target=self._work, name="traces", daemon=True)
                    self._sender.start()
        except Exception as error:  # noqa: BLE001 - an answer does not fail with its trace
            self._count(["failed"], f"{type(error).__name__}: {error}")

    def _work(self) -> None:
        is_over = False
        while not is_over and (batch := self._take()):
            for seconds in chain(_RETRY_DELAYS, repeat(60.0)):
                outcomes, why = self._request(batch)
                batch = [one for one, end in zip(batch, outcomes, strict=True) if end == _UNREACHED]
                with self._changed:
                    if is_over := self._is_abandoned:
                        break
                    self._waiting -= len(outcomes) - len(batch)
                    self._count(outcomes, why)
                    is_over = self._is_closed and bool(why)
                    if not batch or is_over:
                        break
                    self._changed.wait_for(lambda: self._is_closed, seconds)
        if self._process is not None:
            self._process.end()

    def _take(self) -> list[bytes]:
        """Wait for messages and take the first ones; return none after closing."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._is_closed)
            self._file.seek(self._read)
            taken = self._file.readlines(_BATCH)
            self._read = self._file.tell()
            return taken

    def _request(self, batch: Sequence[bytes]) -> tuple[list[str], str]:
        """Return the outcome of each message, and the reason of a failure."""
        if self._process is None:
            self._process = LineProcess("from ga_dspy.tracing import log_messages; log_messages()")
        place = json.dumps([self.uri, self.experiment]).encode()
        if reply := self._process.ask(b"[%s,[%s]]\n" % (place, b",".join(map(bytes.strip, batch)))):
            outcomes, why = reply
            return outcomes, why
        self._process.end()
        self._process = None
        return ["failed"] * len(batch), "the process that sends traces ended"

    def _count(self, outcomes: Iterable[str], why: str) -> None:
        """Count outcomes; log the first failure after a success, and the first dropped message."""
        ends = Counter(outcomes)
        with self._changed:
            self.counts.update({end: times for end, times in ends.items() if end != _UNREACHED})
            if "sent" in ends:
                self._reported -= {"failed", _UNREACHED}
            if why and not ends.keys() <= self._reported:
                self._reported |= ends.keys()
                logging.getLogger("ga_dspy").warning(
                    "tracing in %s failed: %s; answers are not affected",
                    without_password(self.uri), why,
                )  # fmt: skip

    def close(self) -> None:
        """Stop tracing, and send what is waiting until MLflow fails or five minutes pass."""
        atexit.unregister(self.close)
        if self.observe in OBSERVERS:
            OBSERVERS.remove(self.observe)
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        try:
            if self._sender is not None:
                self._sender.join(_SECONDS_TO_MESSAGE)
                if self._sender.is_alive():
                    logging.getLogger("ga_dspy").warning(
                        "sending %d traces and feedback to %s, for at most five minutes",
                        self._waiting, without_password(self.uri),
                    )  # fmt: skip
                self._sender.join(_SECONDS_TO_CLOSE)
        finally:
            with self._changed:
                self._is_abandoned = True
                self._file.close()
                if self._waiting:
                    why = f"{self._waiting} traces and feedback were left at the end"
                    self._count(["dropped"] * self._waiting, why)
                    self._waiting = 0
            if self._process is not None:
                self._process.process.kill()

    def __exit__(self, *_: object) -> None:
        self.close()


def track(
    uri: str | None = None, experiment: str = EXPERIMENT, rate: float = 1.0,
    tags: Mapping[str, str] = {},
) -> Tracer:  # fmt: skip
    """Trace the questions of this process in MLflow, until the tracer is closed.

    If a question is asked under conditions (`only`, `where`, access labels), its trace has ids,
    times and counts, but no text, because the passages may be restricted.

    Args:
        uri: Any tracking URI; by default `MLFLOW_TRACKING_URI`, else `artifacts/mlflow.db`. A
            server needs MLflow 3.17 or later.
        experiment: The experiment; it is created if it does not exist.
        rate: The share of questions to trace, from 0 to 1; with 0, only those with feedback.
        tags: Tags for every trace, such as the version of the app.

    Raises:
        MissingExtra: mlflow is not installed.
        InputError: The rate is not between 0 and 1.
    """
    check_installed("mlflow", "optimize")
    if not 0.0 <= rate <= 1.0:
        raise InputError(f"rate is {rate}", expected="0 to 1", remedy="pass 0.1 for a tenth")
    tracer = Tracer(stores.store_uri(uri, ROOT), experiment, rate, tags)
    OBSERVERS.append(tracer.observe)
    atexit.register(tracer.close)
    return tracer


# --- The process that sends traces to MLflow


def log_messages() -> None:
    """Log the traces and feedback from stdin, and reply with their outcomes, until stdin ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # terminals and systemd signal children, too
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if sys.platform != "win32":
        os.nice(5)
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "60")  # no answer waits for a busy server
    reply_in_lines(lambda line, _: _log(*json.loads(line)))


def _log(place: tuple[str, str], messages: Sequence[Any]) -> tuple[list[str], str]:
    """Log messages: all traces in one request, then the feedback.

    Returns:
        The outcome of each message ("sent", "failed", "unreached", or "dropped" for feedback
        without a trace), and the reason of a failure.
    """
    (uri, experiment), outcomes = place, [""] * len(messages)
    try:
        given = [without_secrets(about, known) for _, about, known in messages]
        kinds = [kind for kind, _, _ in messages]
        with mlflow_client(uri) as client:
            id = stores.experiment_of(client, uri, ROOT, experiment)
            if traces := [i for i, kind in enumerate(kinds) if kind == "trace"]:
                _log_traces(client, id, [given[i] for i in traces])
                outcomes = ["sent" if kind == "trace" else "" for kind in kinds]
            for i, kind in enumerate(kinds):
                if kind == "feedback":
                    outcomes[i] = "sent" if _log_feedback(client, id, given[i]) else "dropped"
    except Exception as error:  # noqa: BLE001 - later messages may still be logged
        is_outage = isinstance(error, TrackingFailed) and error.is_outage
        end = _UNREACHED if is_outage else "failed"
        return [one or end for one in outcomes], f"{type(error).__name__}: {error}"
    return outcomes, ""


def _log_traces(client: MlflowClient, experiment: str, traces: Sequence[Mapping[str, Any]]) -> None:
    """Log traces in one request; MLflow's exporter would make a request per span.

    A trace that MLflow already has, from a request whose reply was lost, does not change.
    """
    from mlflow.tracing.client import TracingClient

    spans = [span for one in traces for span in _spans(**one)]
    TracingClient(client.tracking_uri).log_spans(experiment, spans)


def _spans(
    trace: str, spans: Sequence[Mapping[str, Any]], tags: Mapping[str, str]
) -> Iterator[Span]:
    """Yield the MLflow spans of a trace; the tags are attributes of the first."""
    from mlflow.entities import Span

    about = {f"mlflow.traceTag.{name}": value for name, value in tags.items()}
    for number, span in enumerate(spans, start=1):
        values = {
            "mlflow.traceRequestId": trace, "mlflow.spanType": span["type"],
            "mlflow.spanInputs": span["inputs"], "mlflow.spanOutputs": span["outputs"],
            **span["attributes"], **about,
        }  # fmt: skip
        about = {}
        kind, text = [*span["error"], "", ""][:2]
        error = {"exception.type": kind, "exception.message": text}
        event = {"name": "exception", "time_unix_nano": span["end"], "attributes": error}
        yield Span.from_dict({
            "trace_id": trace, "name": span["name"], "span_id": f"{number:016x}",
            "parent_span_id": None if span["parent"] is None else f"{span['parent'] + 1:016x}",
            "start_time_unix_nano": span["start"], "end_time_unix_nano": span["end"],
            "status": {"code": "ERROR" if kind else "OK", "message": text},
            "attributes": {name: json.dumps(value) for name, value in values.items()},
            "events": [event] if kind else [],
        })  # fmt: skip


def _log_feedback(client: MlflowClient, experiment: str, given: dict[str, Any]) -> bool:
    """Log feedback; return whether there is a trace of its question."""
    where = f"tags.`{_RUN_TAG}` = '{given['run']}'"
    found = client.search_traces(
        locations=[experiment], filter_string=where, max_results=1, include_spans=False
    )
    for info in (trace.info for trace in found):
        is_open = info.tags[_RESTRICTED_TAG] != "True"
        comment, expected = (given[name] if is_open else None for name in ("comment", "expected"))
        _assess(info.trace_id, "HUMAN", {_RIGHT: given["right"]}, expected, comment)
    return bool(found)


def _assess(
    trace: str, kind: str, values: Mapping[str, Any], expected: Any = None, why: str | None = None,
    by: str | None = "ga_dspy",
) -> None:  # fmt: skip
    """Log the expected answer and feedback on a trace, except for values that are None."""
    from mlflow import log_expectation, log_feedback
    from mlflow.entities import AssessmentSource

    at: Any = {"trace_id": trace, "source": AssessmentSource(kind, by)}
    if expected:
        log_expectation(name=_EXPECTED, value=expected, **at)
    for name, value in values.items():
        if value is not None:
            log_feedback(name=name, value=value, rationale=why, **at)


# --- The worst questions of an evaluation, asked again


def worst(report: Report, examples: Sequence[dspy.Example], most: int) -> list[dspy.Example]:
    """Return the questions with the worst answers: those without an answer first, then by F1."""
    scores = {result.id: result.f1 - bool(result.error) for result in report.results}
    return sorted(examples, key=lambda example: scores.get(example.id, -1.0))[:most]


def trace_questions(
    program: MultiHopProgram, examples: Sequence[dspy.Example], report: Report, *, uri: str,
    run_id: str,
) -> tuple[str, ...]:  # fmt: skip
    """Ask a program a few questions and trace each in the run of its evaluation.

    The accepted answer becomes the trace's expectation; F1, exact match, the support level, and the
    judge's verdict on the same answer become its feedback. If a question fails, its trace has the
    error, and the next question is asked. The configured LM answers.

    Args:
        program: Any program of this library.
        examples: The questions, with `id`, `answer` or `answers`; pass only a handful.
        report: The evaluation in which they were asked.
        uri: The tracking URI.
        run_id: The MLflow run that the traces belong to.

    Returns:
        The ids of the traces, in order; a question that cannot be asked has none.

    Raises:
        TrackingFailed: The store was not reached; no further question is asked.
        MissingExtra: mlflow is not installed.
    """
    # With a rate of 0, a tracer keeps the traces of questions that have an id.
    with mlflow_client(uri) as client, track(uri, rate=0.0) as tracer:
        traces = (_trace(program, one, report, client, tracer, run_id) for one in examples)
        return tuple(filter(None, traces))


def _trace(
    program: MultiHopProgram, example: dspy.Example, report: Report, client: MlflowClient,
    tracer: Tracer, run: str,
) -> str:  # fmt: skip
    """Ask one question, log its trace, page and scores, and return the id of the trace."""
    prediction, key = None, uuid.uuid4().hex
    try:
        with run_id(key):
            prediction = program(question=example.question)
        result = Result.from_prediction(example, prediction)
    except Exception as error:  # noqa: BLE001 - any error is the outcome of the question
        result = Result.from_failure(example, error)
    if (trace := tracer.unsent.pop(key, None)) is None:
        return ""
    id = f"tr-{key}"
    about = {"trace": id, "spans": trace.spans(), "tags": {**trace.tags, "question": example.id}}
    _log_traces(client, client.get_run(run).info.experiment_id, [without_secrets(about)])
    client.link_traces_to_run([id], run)
    if prediction is not None:
        record = {"prediction": as_json(prediction), "question": example.question}
        client.log_text(run, page(**without_secrets(record)), f"traces/{id}.html")
    accepted = without_secrets(list(result.gold))
    expected = accepted[0] if len(accepted) == 1 else accepted
    scores = {"f1": result.f1, "em": result.em == 1.0, "supported": result.supported}
    _assess(id, "CODE", scores, expected)
    for same in report.results:
        if same.judged and (same.id, same.answer) == (result.id, result.answer):
            _assess(id, "LLM_JUDGE", {"judge": same.judged.right}, by=report.protocol.judge)
    return id


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

    A question's answer is the expected answer (the expectation `expected_response`), else the
    answer that was marked right (the feedback `right`), by `Tracer.feedback` or in MLflow's pages.
    If a question has several traces, the newest one with feedback counts.

    Args:
        uri: The tracking URI, as in `track`.
        experiment: The experiment.
        only: "right" for answers marked right, "wrong" for those marked wrong.

    Raises:
        TrackingFailed: The store was not reached.
        InputError: There is no such experiment.
        MissingExtra: mlflow is not installed.
    """
    uri, rows, skipped = stores.store_uri(uri, ROOT), dict[str, dict[str, str]](), Counter[str]()
    with mlflow_client(uri) as client:
        import mlflow

        if (found := client.get_experiment_by_name(experiment)) is None:
            wrong = f"{without_password(uri)} has no experiment {experiment!r}"
            raise InputError(wrong, remedy="trace questions first: ga-dspy serve … --track URI")
        traces = mlflow.search_traces(
            locations=[found.experiment_id], include_spans=False, return_type="list",
            order_by=["timestamp DESC"],
        )  # fmt: skip
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
    assessments = sorted(info.assessments, key=lambda one: one.last_update_time_ms or 0)
    newest = {one.name: one.value for one in assessments if one.valid is not False}
    right = newest.get(_RIGHT)
    return right if isinstance(right, bool) else None, str(newest.get(_EXPECTED) or "")
