"""Traces in MLflow: of live questions, with feedback and question sets, and of a run's worst ones.

A `Tracer` records what a program asks of its retriever and LM. The finished trace goes to a process
of its own, which sends it to MLflow: that takes longer than some answers, and can fail or hang.
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

from ga_dspy.errors import InputError, need_package
from ga_dspy.eval import Report, Result
from ga_dspy.optimize import mlflow_store as stores
from ga_dspy.optimize.mlflow_store import (
    EXPERIMENT,
    ROOT,
    TrackingFailed,
    publishable,
    reaching,
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
_MOST_WAITING = 1_000_000_000  # bytes of traces, of 20 to 60 thousand each
_MOST_UNSENT = 500  # traces of questions that were not sampled
_BATCH = 500_000  # bytes of a request; proxies often allow a million
_SECONDS_TO_CLOSE = 300.0  # MLflow may take minutes to start on a busy machine
_SECONDS_UNTIL_TOLD = 2.0  # of closing
_WAITS = (1.0, 2.0, 5.0, 10.0, 30.0)  # seconds between attempts while MLflow is down
_UNREACHED = "unreached"  # what MLflow was not there to take


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
    """What a question's program asked and got, as spans in the order in which they began.

    To record is to keep references, which takes no time and cannot fail; `spans` and `message` do
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
        """Carry on the conversation, and record its searches, steps and end."""
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
                except Exception as error:  # noqa: BLE001 - handed to the program, which may know it
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
        # A copy: the program, and who asked it, go on to change a prediction.
        outputs = dict(outputs.items()) if isinstance(outputs, dspy.Prediction) else outputs
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
        """Return the spans with what is shown of each, and what the answer came to."""
        root, *others = ({"outputs": None, "end": time.time_ns(), **one} for one in self._spans)
        for span in others:
            if span["type"] == "RETRIEVER":
                span["outputs"] = documents(span["outputs"] or ())
            elif isinstance(span["outputs"], dict):
                # The lines of a graph are shown as they are: to serialise a proposal takes long.
                shown = span["outputs"].items()
                span["outputs"] = {name: getattr(value, "text", value) for name, value in shown}
        about = {"settings": self.program.settings()}
        if found := root["outputs"]:
            steps, graph = found["steps"], found["graph"]
            sizes = {"entities": len(graph.entities), "relations": len(graph.relations)}
            about |= {name: found.get(name) for name in _MEASURED} | sizes | {"steps": len(steps)}
            root["outputs"] = {name: found.get(name) for name in _SHOWN}
            root["outputs"]["steps"] = [step.message for step in steps]
            self.tags |= {name: str(found.get(name)) for name in ("verdict", "supported")}
        return [{**root, "attributes": about}, *others]

    def message(self, run: str) -> bytes:
        """Return the trace as a message; a restricted one has no text but ids of documents."""
        spans = self.spans()
        spans = [_without_text(span) for span in spans] if self.is_restricted else spans
        tags = {_RUN_TAG: run, _RESTRICTED_TAG: str(self.is_restricted), **self.tags}
        about = {"trace": f"tr-{uuid.uuid4().hex}", "tags": tags, "spans": spans}
        return _message("trace", about, self.secrets)


def _without_text(span: dict[str, Any]) -> dict[str, Any]:
    found = span["outputs"] if span["type"] == "RETRIEVER" else ()
    shown = [{"id": one["id"], "page_content": ""} for one in found]
    return {**span, "inputs": None, "outputs": shown, "error": span["error"][:1]}


def _message(kind: str, about: Mapping[str, Any], secrets: Collection[str]) -> bytes:
    """Return a line for the other process, with the secrets that it must withhold."""
    plain = to_jsonable_python(about, inf_nan_mode="null", fallback=str)
    return json.dumps([kind, plain, sorted(secrets)]).encode() + b"\n"


# --- To the process that calls MLflow


class Tracer(AbstractContextManager["Tracer"]):
    """Traces the questions of all programs in this process, until it is closed.

    It is a context manager that closes itself. An answer neither waits for MLflow nor fails with
    it: what MLflow has not taken yet waits in a temporary file, and while MLflow is down all of it
    does.

    Attributes:
        counts: Traces and feedback by outcome: "sent", "failed" because MLflow rejected them, or
            "dropped" because too many were waiting, MLflow did not take them before the end, or
            the feedback is on a question without a trace.
        unsent: The last questions that were not sampled, by their id.
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
        """Carry on the conversation of a question; trace it if it is sampled."""
        # Not by `random`, whose state is the user's.
        id, run = uuid.uuid4(), _RUN.get()
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
                if len(self.unsent) > _MOST_UNSENT:
                    self.unsent.pop(next(iter(self.unsent)), None)

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
        if (trace := self.unsent.pop(run, None)) is not None:
            self._send(partial(trace.message, run))
        given = {"run": run, "right": right, "comment": comment, "expected": expected}
        self._send(partial(_message, "feedback", given, secrets_of(addresses=True)))

    def _send(self, make: Callable[[], bytes]) -> None:
        """Make a message and let it wait for the sender; whatever fails is counted."""
        try:
            message = make()
            with self._changed:
                if not self._waiting:
                    self._read = self._file.truncate(0)
                if self._file.seek(0, os.SEEK_END) > _MOST_WAITING:
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
            for seconds in chain(_WAITS, repeat(60.0)):
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
        """Wait for messages, and take the first; none is left after the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._is_closed)
            self._file.seek(self._read)
            taken = self._file.readlines(_BATCH)
            self._read = self._file.tell()
            return taken

    def _request(self, batch: Sequence[bytes]) -> tuple[list[str], str]:
        """Return the outcome of each message, and why one failed."""
        if self._process is None:
            self._process = LineProcess("from ga_dspy.tracing import log_messages; log_messages()")
        place = json.dumps([self.uri, self.experiment]).encode()
        if reply := self._process.ask(b"[%s,[%s]]\n" % (place, b",".join(map(bytes.strip, batch)))):
            outcomes, why = reply
            return outcomes, why
        self._process.end()
        self._process = None
        return ["failed"] * len(batch), "its process ended"

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
        """Send what is waiting, until MLflow fails or five minutes pass; trace nothing more."""
        atexit.unregister(self.close)
        if self.observe in OBSERVERS:
            OBSERVERS.remove(self.observe)
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        try:
            if self._sender is not None:
                self._sender.join(_SECONDS_UNTIL_TOLD)
                if self._sender.is_alive():
                    told = "sending %d traces and feedback to %s, for at most five minutes"
                    place = without_password(self.uri)
                    logging.getLogger("ga_dspy").warning(told, self._waiting, place)
                self._sender.join(_SECONDS_TO_CLOSE)
        finally:
            with self._changed:
                self._is_abandoned = True
                self._file.close()
                if self._waiting:
                    why = f"{self._waiting} traces and feedback were left at the end"
                    self._count(["dropped"] * self._waiting, why)
                    self._waiting = 0
            if (logger := self._process) is not None:
                logger.process.kill()

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
        uri: Any tracking URI; by default `MLFLOW_TRACKING_URI`, else `artifacts/mlflow.db`. A
            server must be of MLflow 3.17 or later.
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
    """Log the traces and feedback on stdin, and reply what became of them, until stdin ends."""
    for one in (signal.SIGINT, signal.SIGTERM):  # a terminal or systemd sends them to children too
        signal.signal(one, signal.SIG_IGN)
    if sys.platform != "win32":
        os.nice(5)
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "60")  # no answer waits for a busy server
    reply_in_lines(lambda line, _: _log(*json.loads(line)))


def _log(place: tuple[str, str], messages: Sequence[Any]) -> tuple[list[str], str]:
    """Log messages, all traces in one request, then the feedback.

    Returns:
        The outcome of each: "sent", "failed", "dropped" because it is feedback on no trace, or
        "unreached"; and why.
    """
    (uri, experiment), outcomes = place, [""] * len(messages)
    try:
        given = [publishable(about, known) for _, about, known in messages]
        kinds = [kind for kind, _, _ in messages]
        with reaching(uri) as client:
            id = stores.experiment_of(client, uri, ROOT, experiment)
            if traces := [i for i, kind in enumerate(kinds) if kind == "trace"]:
                _log_traces(client, id, [given[i] for i in traces])
                outcomes = ["sent" if kind == "trace" else "" for kind in kinds]
            for i, kind in enumerate(kinds):
                if kind == "feedback":
                    outcomes[i] = "sent" if _log_feedback(client, id, given[i]) else "dropped"
    except Exception as error:  # noqa: BLE001 - the next ones may be logged all the same
        is_outage = isinstance(error, TrackingFailed) and error.is_outage
        end = _UNREACHED if is_outage else "failed"
        return [one or end for one in outcomes], f"{type(error).__name__}: {error}"
    return outcomes, ""


def _log_traces(client: MlflowClient, experiment: str, traces: Sequence[Mapping[str, Any]]) -> None:
    """Log traces in one request, where MLflow's exporter makes one per span.

    A trace that MLflow has already, from a request whose reply was lost, stays as it is.
    """
    from mlflow.tracing.client import TracingClient

    spans = [span for one in traces for span in _spans(**one)]
    TracingClient(client.tracking_uri).log_spans(experiment, spans)


def _spans(
    trace: str, spans: Sequence[Mapping[str, Any]], tags: Mapping[str, str]
) -> Iterator[Span]:
    """Yield the spans of a trace as MLflow's; the tags are attributes of the first."""
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
    """Log the expected answer and feedback on a trace; None is left out."""
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
    program: MultiHopProgram,
    examples: Sequence[dspy.Example],
    report: Report,
    *,
    uri: str,
    run_id: str,
) -> tuple[str, ...]:
    """Ask a program a few questions and trace each in the run of its evaluation.

    The accepted answer is the trace's expectation; F1, exact match, what supports the answer, and
    the judge's verdict on the same answer are its feedback. If a question fails, its trace has the
    error, and the next one is asked. The LM is the configured one.

    Args:
        program: Any program of this library.
        examples: What to ask, with `id`, `answer` or `answers`; pass only a handful.
        report: The evaluation in which they were asked.
        uri: The store.
        run_id: The run that the traces belong to.

    Returns:
        The ids of the traces, in order; a question that cannot be asked has none.

    Raises:
        TrackingFailed: The store was not reached; no further question is asked.
        MissingExtra: mlflow is not installed.
    """
    # At a rate of 0, a tracer keeps what was asked with an id.
    with reaching(uri) as client, track(uri, rate=0.0) as tracer:
        made = (_trace(program, one, report, client, tracer, run_id) for one in examples)
        return tuple(filter(None, made))


def _trace(
    program: MultiHopProgram, example: dspy.Example, report: Report, client: MlflowClient,
    tracer: Tracer, run: str,
) -> str:  # fmt: skip
    """Ask one question, log its trace, its page and how right the answer is; return the id."""
    prediction, asked = None, uuid.uuid4().hex
    try:
        with run_id(asked):
            prediction = program(question=example.question)
        result = Result.from_prediction(example, prediction)
    except Exception as error:  # noqa: BLE001 - any error is the outcome of the question
        result = Result.from_failure(example, error)
    if (trace := tracer.unsent.pop(asked, None)) is None:
        return ""
    id = f"tr-{asked}"
    about = {"trace": id, "spans": trace.spans(), "tags": {**trace.tags, "question": example.id}}
    _log_traces(client, client.get_run(run).info.experiment_id, [publishable(about)])
    client.link_traces_to_run([id], run)
    if prediction is not None:
        record = {"prediction": as_json(prediction), "question": example.question}
        client.log_text(run, page(**publishable(record)), f"traces/{id}.html")
    accepted = publishable(list(result.gold))
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
    with reaching(uri) as client:
        import mlflow

        if (found := client.get_experiment_by_name(experiment)) is None:
            wrong = f"{without_password(uri)} has no experiment {experiment!r}"
            raise InputError(wrong, remedy="trace questions first: ga-dspy serve … --track URI")
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
