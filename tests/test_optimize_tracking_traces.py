"""Evaluations and traces in MLflow."""

from __future__ import annotations

import json
import shutil
import socket
from pathlib import Path
from typing import Any

import dspy
import pytest

from ga_dspy import GraphAnchor, Passage
from ga_dspy.eval import Protocol, Report, Result
from ga_dspy.eval.result import Judged
from ga_dspy.optimize.mlflow_store import TrackingFailed
from ga_dspy.optimize.tracking import track_evaluation
from ga_dspy.testing import Reply, scripted_lm
from ga_dspy.tracing import trace_questions, worst

pytest.importorskip("mlflow")
PASSAGES = {
    "first": Passage(id="1", title="Rock Creek", text="Rock Creek flows through Red Lodge."),
    "second": Passage(id="2", title="Red Lodge", text="Red Lodge is a city in Montana."),
}
QUESTION = dspy.Example(
    id="q1", question="In which state is the city on Rock Creek?", answer="Montana"
).with_inputs("question")
OTHER = dspy.Example(id="q2", question="Who?", answer="Nobody").with_inputs("question")


@pytest.fixture
def root(tables: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with an empty store."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    shutil.copyfile(tables, tmp_path / "mlflow.db")
    return tmp_path


def client_of(root: Path) -> Any:
    from mlflow import MlflowClient

    return MlflowClient(f"sqlite:///{root / 'mlflow.db'}", f"sqlite:///{root / 'mlflow.db'}")


def report() -> Report:
    protocol = Protocol.of(
        [], dataset="made", source="made.json", program="vanilla-rag", lm="some/lm",
        settings={"k": 5},
    )  # fmt: skip
    results = tuple(
        Result(
            id=f"q{i}", question=f"{i}?", type="bridge", gold=("Montana",), gold_titles=(),
            answer="Montana" if i < 15 else "Idaho", calls=1, tokens=300,
        )
        for i in range(20)
    )  # fmt: skip
    return Report(protocol, results)


def test_an_evaluation_is_a_run_with_its_protocol_scores_and_predictions(root: Path) -> None:
    tracked = track_evaluation(report(), root=root)
    client = client_of(root)
    run = client.get_run(tracked.run_id)
    assert (run.data.params["program"], run.data.params["settings.k"]) == ("vanilla-rag", "5")
    assert (run.data.metrics["test/f1"], run.data.metrics["test/tokens"]) == (75.0, 300.0)
    assert run.data.metrics["test/f1_low"] < 75.0 < run.data.metrics["test/f1_high"]
    given = [run.data.params[name] for name in ("source", "questions_sha256")]
    assert given == ["made.json", report().protocol.questions_sha256]
    path = client.download_artifacts(tracked.run_id, "predictions.json")
    assert len(json.loads(Path(path).read_text())["data"]) == 20


def test_an_unreachable_store_is_named(root: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        nobody = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(TrackingFailed, match=f"{nobody} failed .*Connection refused"):
            track_evaluation(report(), uri=nobody, root=root)


def test_the_store_in_the_environment_takes_precedence_over_the_local_one(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "team").mkdir()
    shutil.move(root / "mlflow.db", tmp_path / "team" / "mlflow.db")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/team/mlflow.db")
    tracked = track_evaluation(report(), root=root)
    assert client_of(tmp_path / "team").get_run(tracked.run_id).info.status == "FINISHED"
    assert not (root / "mlflow.db").exists()


def search(query: str, k: int) -> list[Passage]:
    return [PASSAGES["second" if query == "Red Lodge state" else "first"]]


def script() -> list[Reply]:
    def read(judgement: str, query: str) -> dict[str, str]:
        return {
            "additions": "(empty)", "reasoning": "so far", "judgement": judgement,
            "candidate": "Montana", "next_query": query,
        }  # fmt: skip

    answer = {"verdict": "answered", "links": "[2]", "answer": "Montana"}
    return [read("insufficient", "Red Lodge state"), read("sufficient", ""), answer]


def traced(root: Path, *examples: dspy.Example, of: Report | None = None) -> tuple[str, ...]:
    """Track an evaluation, and trace questions in its run."""
    asked = of or report()
    tracked = track_evaluation(asked, root=root)
    at = {"uri": tracked.uri, "run_id": tracked.run_id}
    return trace_questions(GraphAnchor(search), examples, asked, **at)


def spans(root: Path, trace_id: str) -> list[Any]:
    return sorted(client_of(root).get_trace(trace_id).data.spans, key=lambda s: s.start_time_ns)


def test_a_trace_shows_each_search_and_each_prompt(root: Path) -> None:
    with dspy.context(lm=scripted_lm(script())):
        (trace,) = traced(root, QUESTION)
    made = spans(root, trace)
    assert (made[0].name, made[0].inputs) == ("GraphAnchor", {"question": QUESTION.question})
    assert made[0].outputs["answer"] == "Montana"
    _, second = (span for span in made if span.span_type == "RETRIEVER")
    assert second.inputs["query"] == "Red Lodge state"
    assert second.outputs[0]["metadata"]["title"] == "Red Lodge"
    prompts = [span.inputs["messages"] for span in made if span.span_type == "CHAT_MODEL"]
    assert len(prompts) == 3
    assert "Red Lodge is a city in Montana." in prompts[1][-1]["content"]


def test_a_trace_has_the_tokens_of_its_calls(root: Path) -> None:
    with dspy.context(lm=scripted_lm(script())):
        (trace,) = traced(root, QUESTION)
    noted = client_of(root).get_trace(trace).info.trace_metadata
    whole = json.loads(noted["mlflow.trace.tokenUsage"])
    assert whole["total_tokens"] == whole["input_tokens"] + whole["output_tokens"] > 0


def test_a_trace_has_the_expected_answer_and_the_score(root: Path) -> None:
    with dspy.context(
        lm=scripted_lm([*script(), dspy.LMError("refused"), *[dspy.LMError("no")] * 9])
    ):
        right, failed = traced(root, QUESTION, OTHER)
    assert assessed(root, right) == {
        "expected_response": "Montana", "f1": 1.0, "em": True, "supported": "quoted",
    }  # fmt: skip
    assert assessed(root, failed) == {"expected_response": "Nobody", "f1": 0.0, "em": False}


def assessed(root: Path, trace: str) -> dict[str, Any]:
    found = client_of(root).get_trace(trace).info.assessments
    assert {one.source.source_type for one in found} == {"CODE"}
    return {one.name: one.value for one in found}


def test_the_worst_questions_are_traced_and_unanswered_ones_first() -> None:
    asked = [dspy.Example(id=f"q{i}") for i in (0, 16, 1, 99)]
    assert [example.id for example in worst(report(), asked, 3)] == ["q99", "q16", "q0"]


def test_an_evaluation_is_logged_only_once(root: Path) -> None:
    judged = Judged(right=True)
    more = tuple(result.model_copy(update={"judged": judged}) for result in report().results)
    made = [
        track_evaluation(one, root=root)
        for one in (report(), report(), report()._replace(results=more))
    ]
    ids = [one.run_id for one in made]
    assert [one.is_new for one in made] == [True, False, True]
    assert ids[0] == ids[1] != ids[2]


def test_a_judges_verdict_is_a_metric_and_the_feedback_on_a_trace(root: Path) -> None:
    protocol = report().protocol.model_copy(update={"judge": "openai/judge"})
    kept = report().results[0].model_copy(update={"judged": Judged(right=False)})
    asked = Report(protocol, (kept.model_copy(update={"id": "q1"}),))
    tracked = track_evaluation(asked, root=root)
    client = client_of(root)
    assert client.get_run(tracked.run_id).data.metrics["test/judge"] == 0.0
    table = client.download_artifacts(tracked.run_id, "predictions.json")
    assert "judge" in json.loads(Path(table).read_text())["columns"]
    other = asked._replace(results=(kept.model_copy(update={"answer": "Idaho"}),))
    with dspy.context(lm=scripted_lm([*script(), *script()])):
        (same,) = traced(root, QUESTION, of=asked)
        (changed,) = traced(root, QUESTION, of=other)
    found = {one.name: one for one in client.get_trace(same).info.assessments}
    source = found["judge"].source
    assert (found["judge"].value, source.source_type, source.source_id) == (
        *(False, "LLM_JUDGE", "openai/judge"),
    )
    assert "judge" not in assessed(root, changed)


def test_traces_are_attached_to_their_run(root: Path) -> None:
    tracked = track_evaluation(report(), root=root)
    with dspy.context(lm=scripted_lm(script())):
        (trace,) = traced(root, QUESTION)
    client, experiment = client_of(root), [tracked.experiment]
    (found,) = client.search_traces(locations=experiment, run_id=tracked.run_id)
    assert found.info.trace_id == trace
    page = client_of(root).download_artifacts(tracked.run_id, f"traces/{trace}.html")
    assert "Red Lodge is a city in Montana." in Path(page).read_text(encoding="utf-8")


def test_a_failed_question_has_an_error_trace_and_the_next_is_asked(
    root: Path,
) -> None:
    secret = "sk-" + 24 * "x"
    refused = dspy.LMError(f"key {secret} was refused")
    replies = iter(script())
    lm = scripted_lm(lambda prompt: refused if "Who?" in prompt else next(replies))
    with dspy.context(lm=lm):
        failed, fine = traced(root, OTHER, QUESTION)
    client = client_of(root)
    assert (client.get_trace(failed).info.state, client.get_trace(fine).info.state) == (
        *("ERROR", "OK"),
    )
    assert "withheld" in spans(root, failed)[0].events[0].attributes["exception.message"]
    assert secret.encode() not in (root / "mlflow.db").read_bytes()


def test_the_trace_of_a_question_after_an_outage_names_the_outage_without_the_key(
    root: Path,
) -> None:
    secret = "sk-" + 24 * "y"
    replies: list[Reply] = [dspy.LMError(f"key {secret} was refused"), *script()]
    with dspy.context(lm=scripted_lm(replies)):
        (trace,) = traced(root, QUESTION.copy(answer=secret))
    made = spans(root, trace)
    assert made[0].status.status_code == "OK" and "withheld" in str(made[0].outputs["failures"])
    failed, *others = (span for span in made if span.name in ("read", "answer"))
    assert failed.status.status_code == "ERROR"
    assert {span.status.status_code for span in others} == {"OK"}
    kept = [path for path in root.rglob("*") if path.is_file()]
    assert f"{trace}.html" in {path.name for path in kept}
    assert [path for path in kept if secret.encode() in path.read_bytes()] == []


def test_no_more_requests_go_to_a_store_that_fails_during_tracing(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import mlflow

    def fail(**given: Any) -> None:
        raise mlflow.exceptions.MlflowException("gone")

    monkeypatch.setattr(mlflow, "log_expectation", fail)
    lm = scripted_lm(script())
    with dspy.context(lm=lm), pytest.raises(TrackingFailed, match="gone"):
        traced(root, QUESTION, OTHER)
    assert not any("Who?" in prompt for prompt in lm.engine.prompts)


def test_tracing_restores_the_settings_of_mlflow_and_dspy(root: Path) -> None:
    import mlflow

    def settings() -> tuple[Any, ...]:
        return mlflow.get_tracking_uri(), dspy.settings.track_usage, dspy.settings.callbacks

    before = settings()
    with dspy.context(lm=scripted_lm(script())):
        traced(root, QUESTION)
    assert settings() == before
    assert mlflow.active_run() is None
