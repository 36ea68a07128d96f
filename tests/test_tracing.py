"""Live traces in MLflow, feedback on answers, and question sets from both."""

from __future__ import annotations

import asyncio
import json
import logging
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dspy
import httpx
import pytest

import ga_dspy
from ga_dspy import Passage, tracing
from ga_dspy.errors import InputError
from ga_dspy.eval import load
from ga_dspy.optimize.mlflow_store import EXPERIMENT
from ga_dspy.processes import python_process
from ga_dspy.programs.loop import OBSERVERS
from ga_dspy.serve import Service, make_app
from ga_dspy.testing import scripted_lm
from ga_dspy.tracing import Tracer, rated_questions, run_id

pytest.importorskip("mlflow")
Outcomes = tuple[list[str], str]
CREEK = "In which state is the city on Rock Creek?"
BRIDGE = "Who designed the Halden Bridge?"
PASSAGES = [
    Passage(id="1", title="Rock Creek", text="Rock Creek flows through Red Lodge."),
    Passage(id="2", title="Red Lodge", text="Red Lodge is a city in Montana.",
            metadata={"source": "towns.md", "lang": "en"}),
    Passage(id="3", title="Halden Bridge", text="Nils Haug designed the Halden Bridge."),
]  # fmt: skip


@pytest.fixture(scope="module")
def index() -> ga_dspy.Index:
    return ga_dspy.Index.from_passages(PASSAGES)


@pytest.fixture
def uri(tables: Path, tmp_path: Path) -> str:
    shutil.copyfile(tables, tmp_path / "mlflow.db")
    return f"sqlite:///{tmp_path / 'mlflow.db'}"


class Helper:
    """Stands in for the helper process that calls MLflow."""

    process = SimpleNamespace(kill=lambda: None)

    def __init__(self, reply: Callable[[tuple[str, str], list[Any]], Outcomes]) -> None:
        self.reply = reply

    def __call__(self, code: str) -> Helper:
        return self

    def ask(self, request: bytes) -> Outcomes:
        place, messages = json.loads(request)
        return self.reply(place, messages)

    def end(self) -> None:
        pass


@pytest.fixture
def mlflow_in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """MLflow is called in this process: the start of a helper process would take seconds."""
    monkeypatch.setattr(tracing, "LineProcess", Helper(tracing._log))


@pytest.fixture(autouse=True)
def _no_observer_is_left() -> Iterator[None]:
    yield
    assert OBSERVERS == [], "a tracer was not closed"


def ask(program: Any, question: str = CREEK, run: str = "run-1", **more: Any) -> dspy.Prediction:
    with dspy.context(lm=ga_dspy.extractive_lm()), run_id(run):
        return program(question=question, **more)


def traces_in(uri: str) -> list[Any]:
    from mlflow import MlflowClient

    client = MlflowClient(uri)
    found = client.get_experiment_by_name(EXPERIMENT)
    return [] if found is None else list(client.search_traces(locations=[found.experiment_id]))


def text_of(trace: Any) -> str:
    return json.dumps([trace.info.to_dict(), [span.to_dict() for span in trace.data.spans]])


def test_a_helper_process_sends_the_trace_and_its_feedback(uri: str, index: ga_dspy.Index) -> None:
    with ga_dspy.track(uri, tags={"version": "7"}) as tracer:
        ask(ga_dspy.GraphAnchor(index))
        tracer.feedback("run-1", right=False, comment="too broad", expected="Montana, USA")
    assert tracer.counts == {"sent": 2}
    (trace,) = traces_in(uri)
    assert {"ga_dspy.run": "run-1", "version": "7"}.items() <= trace.info.tags.items()
    right, expected = sorted(trace.info.assessments, key=lambda one: str(one.name), reverse=True)
    assert (right.name, right.value, right.rationale) == ("right", False, "too broad")
    assert (expected.name, expected.value) == ("expected_response", "Montana, USA")
    assert right.source.source_type == expected.source.source_type == "HUMAN"


@pytest.mark.usefixtures("mlflow_in_process")
@pytest.mark.parametrize("is_async", [False, True])
def test_a_question_is_a_span_with_its_searches_steps_and_lm_calls(
    uri: str, index: ga_dspy.Index, is_async: bool
) -> None:
    program = ga_dspy.VanillaRAG(index, k=2)
    with ga_dspy.track(uri), dspy.context(lm=ga_dspy.extractive_lm()):
        asked = {"question": CREEK}
        found = asyncio.run(program.acall(**asked)) if is_async else program(**asked)
    (trace,) = traces_in(uri)
    root, search, answer, call = trace.data.spans
    kinds = [(span.name, span.span_type) for span in trace.data.spans]
    assert kinds == [
        ("VanillaRAG", "CHAIN"), ("search", "RETRIEVER"), ("answer", "CHAIN"),
        ("ga-dspy/extractive", "CHAT_MODEL"),
    ]  # fmt: skip
    assert [span.parent_id for span in (root, search, answer)] == [None, *[root.span_id] * 2]
    assert call.parent_id == answer.span_id
    assert root.inputs == {"question": CREEK}
    assert root.outputs["answer"] == found.answer
    assert root.attributes["settings"]["k"] == 2
    assert root.attributes["supported"] == found.supported == trace.info.tags["supported"]
    assert root.attributes["entities"] == 0
    first, second = search.outputs
    assert search.inputs == {"query": CREEK, "k": 2}
    assert first["page_content"] == PASSAGES[int(first["id"]) - 1].text
    titles = [PASSAGES[int(one["id"]) - 1].title for one in (first, second)]
    assert [one["metadata"]["doc_uri"] for one in (first, second)] == titles
    assert answer.outputs["answer"] == found.answer
    assert CREEK in call.inputs["messages"][-1]["content"]
    assert call.attributes["mlflow.chat.tokenUsage"]["total_tokens"] == found.tokens
    for outer, inner in ((root, search), (root, answer), (answer, call)):
        assert outer.start_time_ns <= inner.start_time_ns <= inner.end_time_ns <= outer.end_time_ns


@pytest.mark.usefixtures("mlflow_in_process")
def test_the_size_of_the_graph_and_every_round_are_in_the_trace(
    uri: str, index: ga_dspy.Index
) -> None:
    with ga_dspy.track(uri):
        found = ask(ga_dspy.GraphAnchor(index))
    root = traces_in(uri)[0].data.spans[0]
    assert (root.attributes["entities"], root.attributes["steps"]) == (
        len(found.graph.entities), len(found.steps),
    )  # fmt: skip
    assert root.outputs["steps"] == [step.message for step in found.steps]


@pytest.mark.usefixtures("mlflow_in_process")
def test_an_error_ends_the_question_and_its_spans(uri: str, index: ga_dspy.Index) -> None:
    lm = scripted_lm([ValueError("no such model")])
    with ga_dspy.track(uri), dspy.context(lm=lm), pytest.raises(Exception, match="no such model"):
        ga_dspy.VanillaRAG(index)(question=CREEK)
    (trace,) = traces_in(uri)
    assert trace.info.state == "ERROR"
    failed = [span.name for span in trace.data.spans if span.status.status_code == "ERROR"]
    assert failed[:1] == ["VanillaRAG"]
    assert "no such model" in json.dumps(trace.data.spans[0].to_dict()["events"])


@pytest.mark.usefixtures("mlflow_in_process")
def test_a_configured_secret_does_not_reach_the_store(
    uri: str, index: ga_dspy.Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "a-secret-of-33")
    with ga_dspy.track(uri):
        ask(ga_dspy.VanillaRAG(index), f"{CREEK} I am a-secret-of-33")
    text = text_of(traces_in(uri)[0])
    assert "(withheld: a secret of the LM in use)" in text
    assert "a-secret-of-33" not in text


@pytest.mark.usefixtures("mlflow_in_process")
@pytest.mark.parametrize("by_call", [False, True])
def test_no_text_of_a_restricted_question_is_sent(
    uri: str, index: ga_dspy.Index, by_call: bool
) -> None:
    program, where = ga_dspy.GraphAnchor(index), {"lang": "en"}
    with ga_dspy.track(uri) as tracer:
        if by_call:
            ask(program, where=where)
        else:
            ask(program.only(where))
        tracer.feedback("run-1", right=False, comment="It is Montana.", expected="Montana")
    (trace,) = traces_in(uri)
    assert [one.id for one in documents_of(trace)] == ["2"]
    text = text_of(trace)
    assert '"right"' in text
    assert not [word for word in ("Montana", "Lodge", "Creek") if word in text]


def documents_of(trace: Any) -> list[Any]:
    from mlflow.entities import Document

    spans = [span for span in trace.data.spans if span.span_type == "RETRIEVER"]
    return [Document(**one) for one in spans[0].outputs]


@pytest.mark.usefixtures("mlflow_in_process")
def test_an_unsampled_question_is_traced_when_it_gets_feedback(
    uri: str, index: ga_dspy.Index
) -> None:
    program = ga_dspy.VanillaRAG(index)
    with ga_dspy.track(uri, rate=0.0) as tracer:
        for run in ("run-1", "run-2", ""):
            ask(program, run=run)
        tracer.feedback("run-2", right=True)
        tracer.feedback("run-3", right=True)
    assert tracer.counts == {"sent": 2, "dropped": 1}
    (trace,) = traces_in(uri)
    assert trace.info.tags["ga_dspy.run"] == "run-2"


def test_a_sampling_rate_outside_0_to_1_is_an_error() -> None:
    with pytest.raises(InputError, match="rate is 10"):
        ga_dspy.track(rate=10)


@pytest.mark.usefixtures("mlflow_in_process")
def test_a_store_that_fails_costs_one_log_line_and_no_answer(
    index: ga_dspy.Index, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    program = ga_dspy.GraphAnchor(index)
    plain = ask(program).to_dict()
    (tmp_path / "mlflow.db").write_text("no database")
    with caplog.at_level(logging.WARNING, "ga_dspy"), ga_dspy.track(
        f"sqlite:///{tmp_path / 'mlflow.db'}"
    ) as tracer:  # fmt: skip
        assert [ask(program).to_dict() for _ in range(2)] == [plain, plain]
        while tracer.counts["failed"] < 2:
            time.sleep(0.01)
    assert set(tracer.counts) == {"failed"}
    (line,) = [record.getMessage() for record in caplog.records if record.name == "ga_dspy"]
    assert "file is not a database" in line
    assert line.endswith("answers are not affected")


def test_an_answer_does_not_wait_for_a_hanging_store(
    index: ga_dspy.Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_over = threading.Event()
    hanging = Helper(lambda *_: (is_over.wait(60), (["sent"], ""))[1])
    monkeypatch.setattr(tracing, "LineProcess", hanging)
    monkeypatch.setattr(tracing, "_MAX_WAITING", 10_000)
    monkeypatch.setattr(tracing, "_SECONDS_TO_CLOSE", 0.01)
    with ga_dspy.track(f"sqlite:///{tmp_path}/nowhere.db") as tracer:
        for _ in range(5):
            ask(ga_dspy.VanillaRAG(index))
        assert tracer.counts["dropped"] >= 2
    is_over.set()
    while any(thread.name == "traces" for thread in threading.enumerate()):
        time.sleep(0.01)


def test_traces_queue_for_a_slow_store_and_are_sent_in_order_as_a_batch(
    index: ga_dspy.Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_free, batches = threading.Event(), list[list[str]]()

    def reply(place: tuple[str, str], messages: list[Any]) -> Outcomes:
        is_free.wait(60)
        batches.append([trace["tags"]["ga_dspy.run"] for _, trace, _ in messages])
        return ["sent"] * len(messages), ""

    monkeypatch.setattr(tracing, "LineProcess", Helper(reply))
    monkeypatch.setattr(tracing, "_BATCH", 20_000)
    asked = [f"run-{number:02}" for number in range(9)]
    with ga_dspy.track(f"sqlite:///{tmp_path}/nowhere.db") as tracer:
        for run in asked:
            ask(ga_dspy.VanillaRAG(index), run=run)
        is_free.set()
    assert tracer.counts == {"sent": 9}
    assert [run for runs in batches for run in runs] == asked
    assert 2 < len(batches) < 9


def test_traces_are_retried_until_mlflow_is_back(
    index: ga_dspy.Index, tmp_path: Path, caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    taken, attempts = list[str](), iter(range(100))

    def reply(place: tuple[str, str], messages: list[Any]) -> Outcomes:
        runs = [trace["tags"]["ga_dspy.run"] for _, trace, _ in messages]
        number = next(attempts)
        some = 0 if number < 3 else 1 if number == 3 else len(runs)
        taken.extend(runs[:some])
        left = len(runs) - some
        return ["sent"] * some + ["unreached"] * left, "refused" if left else ""

    monkeypatch.setattr(tracing, "LineProcess", Helper(reply))
    monkeypatch.setattr(tracing, "_RETRY_DELAYS", (0.01,) * 9)
    asked = [f"run-{number}" for number in range(5)]
    with ga_dspy.track(f"sqlite:///{tmp_path}/nowhere.db") as tracer:
        for run in asked:
            ask(ga_dspy.VanillaRAG(index), run=run)
        while tracer.counts.total() < len(asked):
            time.sleep(0.001)
    assert taken == asked
    assert tracer.counts == {"sent": 5}
    assert "failed: refused" in caplog.text


@pytest.mark.usefixtures("mlflow_in_process")
def test_a_server_that_is_down_is_an_outage_not_a_failure(
    index: ga_dspy.Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with ga_dspy.track(f"http://127.0.0.1:{port}") as tracer:
        ask(ga_dspy.VanillaRAG(index))
    assert tracer.counts == {"dropped": 1}


def test_a_trace_that_is_sent_twice_is_stored_once(
    uri: str, index: ga_dspy.Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcomes, spans = list[Outcomes](), list[Any]()

    def reply(place: tuple[str, str], messages: list[Any]) -> Outcomes:
        outcomes.extend(tracing._log(place, messages) for _ in range(2))
        spans.extend(messages[0][1]["spans"])
        return outcomes[-1]

    monkeypatch.setattr(tracing, "LineProcess", Helper(reply))
    with ga_dspy.track(uri):
        ask(ga_dspy.VanillaRAG(index), run="run-1")
    assert outcomes == [(["sent"], "")] * 2
    (trace,) = traces_in(uri)
    assert trace.info.tags["ga_dspy.run"] == "run-1"
    assert len(trace.data.spans) == len(spans)


def test_a_failed_trace_does_not_fail_the_answer(
    index: ga_dspy.Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = ga_dspy.VanillaRAG(index)
    monkeypatch.setattr(type(program), "settings", lambda _: 1 / 0)
    with ga_dspy.track(f"sqlite:///{tmp_path}/nowhere.db") as tracer:
        assert ask(program).answer
    assert tracer.counts == {"failed": 1}


def test_traces_left_unsent_at_the_end_are_counted(
    index: ga_dspy.Index, tmp_path: Path, caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    begun = threading.Event()

    def reply(place: tuple[str, str], messages: list[Any]) -> Outcomes:
        begun.set()
        while "sending 3 traces" not in caplog.text:  # until the tracer is closing
            time.sleep(0.001)
        return ["failed"] * len(messages), "gone"

    monkeypatch.setattr(tracing, "LineProcess", Helper(reply))
    monkeypatch.setattr(tracing, "_SECONDS_TO_MESSAGE", 0.01)
    with ga_dspy.track(f"sqlite:///{tmp_path}/nowhere.db") as tracer:
        ask(ga_dspy.VanillaRAG(index))
        begun.wait(60)
        for _ in range(2):
            ask(ga_dspy.VanillaRAG(index))
    assert tracer.counts == {"failed": 1, "dropped": 2}
    assert "2 traces and feedback were left at the end" in caplog.text


def test_a_dead_helper_process_is_restarted(
    uri: str, index: ga_dspy.Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    answering = 'import sys; [print(\'[["sent"], ""]\', flush=True) for _ in sys.stdin]'
    codes = iter(("exit", answering))

    def start(_: str, **pipes: Any) -> Any:
        return python_process(next(codes), **pipes)

    monkeypatch.setattr("ga_dspy.processes.python_process", start)
    with ga_dspy.track(uri) as tracer:
        ask(ga_dspy.VanillaRAG(index))
        while not tracer.counts["failed"]:
            time.sleep(0.01)
        ask(ga_dspy.VanillaRAG(index))
    assert tracer.counts == {"failed": 1, "sent": 1}


def test_feedback_is_kept_in_the_record_with_and_without_a_tracer(
    uri: str, index: ga_dspy.Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = list[Any]()

    def reply(place: tuple[str, str], messages: list[Any]) -> Outcomes:
        sent.extend(messages)
        return ["sent"] * len(messages), ""

    async def use(tracer: Tracer | None) -> tuple[dict[str, Any], str]:
        with dspy.context(lm=ga_dspy.extractive_lm()):
            app = make_app(Service(ga_dspy.VanillaRAG(index), tracer=tracer))
        to = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=to, base_url="http://localhost") as client:
            id = (await client.post("/ask", json={"question": CREEK})).json()["id"]
            given = {"right": False, "expected": "Montana"}
            assert (await client.post(f"/runs/{id}/feedback", json=given)).status_code == 204
            for url, wrong in ((f"/runs/{id}/feedback", 422), ("/runs/none/feedback", 404)):
                body = {"expected": "Montana"} if wrong == 422 else given
                assert (await client.post(url, json=body)).status_code == wrong
            while tracer is not None and tracer.counts["sent"] < 2:
                await asyncio.sleep(0.01)
            metrics = (await client.get("/metrics")).text
            return (await client.get(f"/runs/{id}")).json(), metrics

    monkeypatch.setattr(tracing, "LineProcess", Helper(reply))
    record, metrics = asyncio.run(use(None))
    assert record["feedback"] == {"right": False, "comment": None, "expected": "Montana"}
    assert "ga_dspy_traces" not in metrics
    with ga_dspy.track(uri) as tracer:
        record, metrics = asyncio.run(use(tracer))
    assert 'ga_dspy_traces{outcome="sent"} 2.0' in metrics
    (first, trace, _), (second, feedback, _) = sent
    assert (first, trace["tags"]["ga_dspy.run"]) == ("trace", record["id"])
    assert (second, feedback["run"]) == ("feedback", record["id"])


@pytest.mark.usefixtures("mlflow_in_process")
def test_traces_with_feedback_can_be_loaded_as_a_question_set(
    uri: str, index: ga_dspy.Index, tmp_path: Path,
    command: Callable[..., subprocess.CompletedProcess[str]],
) -> None:  # fmt: skip
    program, told = ga_dspy.VanillaRAG(index), {1: (True, None), 2: (False, "Montana"),
                                                3: (False, None), 5: (True, None)}  # fmt: skip
    with ga_dspy.track(uri) as tracer:
        for number, question in enumerate((BRIDGE, CREEK, "Who?", "When?", BRIDGE), start=1):
            answered = ask(program, question, f"run-{number}")
            if number in told:
                right, expected = told[number]
                tracer.feedback(f"run-{number}", right=right, expected=expected)
    made = command("data", "from-traces", "--track", uri, "--out", "made.jsonl", cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    assert "2 questions" in made.stdout
    assert "1 repeated" in made.stdout.replace("\n", " ")
    rows = [(row.id, row.question, row.answer) for row in load("qa", tmp_path / "made.jsonl")]
    assert rows == [("run-5", BRIDGE, answered.answer), ("run-2", CREEK, "Montana")]
    assert [row["id"] for row in rated_questions(uri, only="right").rows] == ["run-5"]
    assert [row["id"] for row in rated_questions(uri, only="wrong").rows] == ["run-2"]
    skipped = {"repeated": 1, "without feedback": 1, "wrong, without an expected answer": 1}
    assert rated_questions(uri).skipped == skipped
    none = command(
        "data", "from-traces", "--track", uri, "--experiment", "other", "--out", "x.jsonl",
        cwd=tmp_path,
    )  # fmt: skip
    assert none.returncode == 2
    assert "has no experiment 'other'" in none.stderr
