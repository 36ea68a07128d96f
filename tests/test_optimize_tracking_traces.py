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
from ga_dspy.optimize.tracking import traced_sample, track_evaluation
from ga_dspy.testing import Reply, scripted_lm

pytest.importorskip("mlflow")
PASSAGES = {
    "first": Passage(id="1", title="Rock Creek", text="Rock Creek flows through Red Lodge."),
    "second": Passage(id="2", title="Red Lodge", text="Red Lodge is a city in Montana."),
}
QUESTION = "In which state is the city on Rock Creek?"


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty database of MLflow, made once: that takes seconds, to copy it none."""
    from mlflow import MlflowClient

    path = tmp_path_factory.getbasetemp() / "empty-mlflow.db"
    if not path.exists():
        MlflowClient(f"sqlite:///{path}").search_experiments()
    return path


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
    return Report(protocol, results, 4.0)


def test_an_evaluation_is_a_run_with_its_protocol_scores_and_predictions(root: Path) -> None:
    tracked = track_evaluation(report(), root=root)
    assert tracked is not None
    client = client_of(root)
    run = client.get_run(tracked.run_id)
    assert (run.data.params["program"], run.data.params["settings.k"]) == ("vanilla-rag", "5")
    assert (run.data.metrics["f1"], run.data.metrics["tokens_per_question"]) == (75.0, 300.0)
    assert run.data.metrics["f1_ci95_low"] < 75.0 < run.data.metrics["f1_ci95_high"]
    assert [given.dataset.name for given in run.inputs.dataset_inputs] == ["made.json"]
    path = client.download_artifacts(tracked.run_id, "predictions.json")
    assert len(json.loads(Path(path).read_text())["data"]) == 20


def test_an_evaluation_is_kept_locally_where_the_server_is_down(root: Path) -> None:
    said: list[str] = []
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        nobody = f"http://127.0.0.1:{taken.getsockname()[1]}"
        tracked = track_evaluation(report(), uri=nobody, root=root, say=said.append)
    assert tracked is not None
    assert client_of(root).get_run(tracked.run_id).data.metrics["f1"] == 75.0
    assert len(said) == 1
    assert f"it is kept in sqlite:///{root}/mlflow.db" in said[0]


def test_the_store_of_the_environment_is_taken_before_the_local_one(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "team").mkdir()
    shutil.move(root / "mlflow.db", tmp_path / "team" / "mlflow.db")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/team/mlflow.db")
    tracked = track_evaluation(report(), root=root)
    assert tracked is not None
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

    answer = {"verdict": "answered", "cited": "2", "answer": "Montana"}
    return [read("insufficient", "Red Lodge state"), read("sufficient", ""), answer]


def spans(root: Path, trace_id: str) -> list[Any]:
    return sorted(client_of(root).get_trace(trace_id).data.spans, key=lambda s: s.start_time_ns)


def test_the_spans_of_a_question_are_named_by_step(root: Path) -> None:
    with dspy.context(lm=scripted_lm(script())):
        (trace,) = traced_sample(GraphAnchor(search), [QUESTION], root=root)
    made = spans(root, trace)
    assert [span.name for span in made] == [
        *("GraphAnchor", "retrieve 1", "read 1", "retrieve 2", "read 2", "answer")
    ]
    assert {span.parent_id for span in made[1:]} == {made[0].span_id}
    assert (made[0].inputs, made[0].outputs["answer"]) == ({"question": QUESTION}, "Montana")
    assert made[3].inputs["query"] == "Red Lodge state"
    assert made[3].outputs[0]["metadata"]["title"] == "Red Lodge"
    assert made[4].attributes["calls"] == 1


def test_traces_belong_to_the_run_they_are_made_for(root: Path) -> None:
    tracked = track_evaluation(report(), root=root)
    assert tracked is not None
    with dspy.context(lm=scripted_lm(script())):
        (trace,) = traced_sample(GraphAnchor(search), [QUESTION], root=root, run_id=tracked.run_id)
    info = client_of(root).get_trace(trace).info
    assert info.trace_metadata["mlflow.sourceRun"] == tracked.run_id


def test_a_question_that_fails_has_a_trace_with_the_error_and_the_next_is_asked(
    root: Path,
) -> None:
    secret = "sk-" + 24 * "x"
    refused = dspy.LMError(f"key {secret} was refused")
    replies = iter(script())
    lm = scripted_lm(lambda prompt: refused if "Who?" in prompt else next(replies))
    with dspy.context(lm=lm):
        failed, fine = traced_sample(GraphAnchor(search), ["Who?", QUESTION], root=root)
    client = client_of(root)
    assert (client.get_trace(failed).info.state, client.get_trace(fine).info.state) == (
        *("ERROR", "OK"),
    )
    assert "withheld" in str(spans(root, failed)[0].outputs["error"])
    assert secret.encode() not in (root / "mlflow.db").read_bytes()


def test_a_question_that_gets_over_an_outage_has_a_trace_that_names_it_without_the_key(
    root: Path,
) -> None:
    secret = "sk-" + 24 * "y"
    replies: list[Reply] = [dspy.LMError(f"key {secret} was refused"), *script()]
    with dspy.context(lm=scripted_lm(replies)):
        (trace,) = traced_sample(GraphAnchor(search), [QUESTION], root=root)
    whole, first = spans(root, trace)[0], spans(root, trace)[2]
    assert (first.name, first.status.status_code) == ("read 1", "ERROR")
    assert whole.status.status_code == "OK" and "withheld" in str(whole.outputs["failures"])
    assert secret.encode() not in (root / "mlflow.db").read_bytes()


def test_mlflow_points_at_its_old_store_after_tracing(root: Path) -> None:
    import mlflow

    before = mlflow.get_tracking_uri()
    with dspy.context(lm=scripted_lm(script())):
        traced_sample(GraphAnchor(search), [QUESTION], root=root)
    assert mlflow.get_tracking_uri() == before
