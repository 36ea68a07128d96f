"""Tracking a compilation in MLflow: what is logged, what is withheld, which is the champion."""

from __future__ import annotations

import json
import os
import shutil
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import dspy
import pytest

from ga_dspy import GraphAnchor
from ga_dspy.artifact import save
from ga_dspy.eval import Protocol, Report, Result
from ga_dspy.lm.store import Spent
from ga_dspy.optimize.demos import Prompt
from ga_dspy.optimize.mlflow_store import TrackingFailed
from ga_dspy.optimize.tracking import Tracked, decide, track_compilation
from ga_dspy.optimize.trials import Candidate, Outcome

pytest.importorskip("mlflow")
KEY = "zq-7f3e9d51c0aa42b8"
PROTOCOL = Protocol.of(
    [], dataset="made", source="made.json", program="graph-anchor", lm="none", corpus="c" * 64,
    settings={"api_base": "http://10.1.2.3/v1"}, sampling={"temperature": 0.0},
)  # fmt: skip
DATA = {"train": {"name": "train.json", "sha256": "a" * 64, "n": 150}}
GIVEN = Prompt("Read the passages. Be brief.")
NEW = Prompt("Read the passages. State only what they say.", ("question: Where?",))


def report(right: int, n: int = 40, first: int = 0) -> Report:
    def one(i: int) -> Result:
        answer = "Red Lodge" if i < right else "Billings"
        return Result(
            id=f"q{first + i}", question=f"{first + i}?", type="bridge", gold=("Red Lodge",),
            gold_titles=(), answer=answer, steps=2, calls=3, tokens=900,
        )  # fmt: skip

    protocol = PROTOCOL.model_copy(update={"questions_sha256": f"{first}-{n}", "n": n})
    return Report(protocol, tuple(one(i) for i in range(n)))


def candidates(scores: tuple[float, ...] = (40.0, 55.0, 50.0)) -> tuple[Candidate, ...]:
    return tuple(
        Candidate(
            i, score, max(scores[:i]), 100 * i, 30_000 * i, 5.0 * i, "2 demos for read",
            mark=f"{i}" * 12, prompts={"read": Prompt(f"Read on, {i}.", ("question: Where?",) * i)},
        )
        for i, score in enumerate(scores, 1)
    )  # fmt: skip


def outcome(artifact: Path, before: int = 10, after: int = 30, **changes: Any) -> Outcome:
    plain = Outcome(
        recipe="bootstrap-rs", parameters={"max_demos": 4}, seed=0, before=report(before),
        after=report(after), held_out="test", failures=(0, 0), rejected=None,
        spent=Spent(700, 90_000, None), seconds=61.0, candidates=candidates(),
        stopped="", mark="", prompts_before={"read": GIVEN}, prompts_after={"read": NEW},
        dropped_demos=(), data=DATA, lms={"task": "ga-dspy/extractive"}, artifact=artifact,
    )  # fmt: skip
    return replace(plain, **changes)


def artifacts_in(folder: Path, tables: Path) -> Path:
    """A folder of artifacts with a program in it and an empty store."""
    root = folder / "my artifacts"
    save(GraphAnchor(lambda query, k: []), root / "demo", recipe={"name": "bootstrap-rs"})
    shutil.copyfile(tables, root / "mlflow.db")
    return root


@pytest.fixture
def root(tables: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of artifacts, without any other store."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    return artifacts_in(tmp_path, tables)


class Logged(NamedTuple):
    root: Path
    tracked: Tracked
    client: Any

    @property
    def run(self) -> Any:
        return self.client.get_run(self.tracked.run_id)


@pytest.fixture(scope="module")
def logged(tables: Path, tmp_path_factory: pytest.TempPathFactory) -> Logged:
    """A logged compilation."""
    root = artifacts_in(tmp_path_factory.mktemp("logged"), tables)
    outcome(root / "demo").figure.write_bytes(b"an image")
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        found = tracked(root, failures=(2, 0))
    return Logged(root, found, client_of(f"sqlite:///{root}/mlflow.db"))


def tracked(root: Path, before: int = 10, after: int = 30, **changes: Any) -> Tracked:
    return track_compilation(outcome(root / "demo", before, after, **changes), root=root)


def client_of(uri: str) -> Any:
    from mlflow import MlflowClient

    return MlflowClient(uri, uri)


def runs(client: Any, kind: str) -> list[Any]:
    experiment = client.get_experiment_by_name("ga-dspy").experiment_id
    return list(client.search_runs([experiment], f"tags.`ga_dspy.kind` = '{kind}'"))


def text(client: Any, run: str, path: str) -> str:
    return Path(client.download_artifacts(run, path)).read_text(encoding="utf-8")


def test_by_default_tracking_uses_a_database_next_to_the_artifacts(
    root: Path, tmp_path: Path
) -> None:
    logged = tracked(root)
    assert sorted(path.name for path in root.iterdir()) == ["demo", "mlartifacts", "mlflow.db"]
    assert list((tmp_path / "elsewhere").iterdir()) == []
    shown = f"mlflow ui --backend-store-uri 'sqlite:///{root}/mlflow.db'"
    assert logged.how_to_open.endswith(shown)


def test_a_compilation_is_a_run_with_a_nested_run_per_candidate(logged: Logged) -> None:
    (whole,) = runs(logged.client, "compile")
    nested = runs(logged.client, "candidate")
    assert (whole.info.run_id, whole.info.status) == (logged.tracked.run_id, "FINISHED")
    assert {run.data.tags["mlflow.parentRunId"] for run in nested} == {whole.info.run_id}
    scores = {run.info.run_name: run.data.metrics["validation/score"] for run in nested}
    assert scores == {f"{i}: 2 demos for read": s for i, s in ((1, 40.0), (2, 55.0), (3, 50.0))}
    best = logged.client.get_metric_history(whole.info.run_id, "candidates/best")
    assert [(point.step, point.value) for point in best] == [(1, 40.0), (2, 55.0), (3, 55.0)]


def test_candidates_are_distinguished_by_parameters_and_prompts(logged: Logged) -> None:
    nested = runs(logged.client, "candidate")
    assert len({run.data.params["read.instruction"] for run in nested}) == 3
    assert {run.data.params["read.demos"] for run in nested} == {"1", "2", "3"}
    assert {run.data.params["parameters.max_demos"] for run in nested} == {"4"}
    shown = {text(logged.client, run.info.run_id, "prompts.txt") for run in nested}
    assert "=== read ===\nRead on, 1.\n\n--- demo 1 ---\nquestion: Where?" in shown


def test_the_same_compilation_is_logged_once(root: Path) -> None:
    first, second = tracked(root), tracked(root)
    assert (first.is_new, second.is_new) == (True, False)
    assert first.run_id == second.run_id
    assert len(versions(client_of(f"sqlite:///{root}/mlflow.db"))) == 2
    assert tracked(root, recipe="gepa").run_id != first.run_id


def test_the_run_has_the_gain_the_setup_and_the_data(logged: Logged) -> None:
    metrics = logged.run.data.metrics
    gained = (metrics["baseline/f1"], metrics["test/f1"], metrics["gain/f1"])
    assert gained == (25.0, 75.0, 50.0)
    assert metrics["test/f1_low"] < 75.0 < metrics["test/f1_high"]
    cost = [metrics[f"cost/{name}"] for name in ("calls", "tokens", "seconds")]
    assert cost == [700, 90_000, 61.0] and metrics["gain/p_value"] < 0.001
    expected = {
        "parameters.max_demos": "4", "recipe": "bootstrap-rs", "held_out": "test",
        "lm.task": "ga-dspy/extractive", "program": "graph-anchor", "seed": "0",
        "corpus": "c" * 64, "sampling.temperature": "0.0", "data.train.name": "train.json",
        "data.train.sha256": "a" * 64, "data.train.n": "150",
    }  # fmt: skip
    assert expected.items() <= logged.run.data.params.items()
    lost = {name: metrics[name] for name in ("asked", "failures_before", "failures_after")}
    assert lost == {"asked": 40, "failures_before": 2, "failures_after": 0}


def test_the_run_has_the_predictions_the_artifact_and_the_candidates_figure(
    logged: Logged,
) -> None:
    import pandas as pd

    client, run = logged.client, str(logged.tracked.run_id)
    table = pd.read_json(client.download_artifacts(run, "predictions.json"), orient="split")
    assert table.query("f1 == 0")["answer"].tolist() == ["Billings"] * 10 and len(table) == 40
    for name in ("manifest.json", "program.json"):
        assert text(client, run, f"artifact/{name}") == (logged.root / "demo" / name).read_text()
    assert "candidates.png" in [one.path for one in client.list_artifacts(run)]


def test_prompts_are_versioned_and_linked_to_the_run(logged: Logged) -> None:
    (prompt,) = logged.client.search_prompts()
    assert prompt.name == "demo.read"
    shown = {v.version: (v.template, v.commit_message) for v in versions(logged.client)}
    assert shown == {1: (str(GIVEN), "as given"), 2: (str(NEW), "by bootstrap-rs: better")}
    linked = json.dumps([{"name": "demo.read", "version": "2"}])
    assert logged.run.data.tags["mlflow.linkedPrompts"] == linked


def versions(client: Any) -> list[Any]:
    return list(client.search_prompt_versions("demo.read"))


def test_characters_that_mlflow_refuses_in_names_are_replaced(root: Path) -> None:
    folder = shutil.copytree(root / "demo", root / "Ann's demo")
    changed = outcome(folder)
    settings: Any = {"schema": {"entities": {"R&D site": "a laboratory"}}}
    protocol = changed.after.protocol.model_copy(update={"settings": settings})
    changed = replace(changed, after=changed.after._replace(protocol=protocol))
    logged = track_compilation(changed, root=root)
    assert logged.place.startswith("Ann-s demo version 1: champion")
    params = client_of(logged.uri).get_run(logged.run_id).data.params
    assert params["settings.schema.entities.R_D site"] == "a laboratory"


def test_an_unchanged_program_is_not_registered(root: Path) -> None:
    logged = tracked(root, after=10, prompts_after={"read": GIVEN})
    client = client_of(f"sqlite:///{root}/mlflow.db")
    assert logged.place == "no version registered: the program is unchanged"
    note = client.get_run(logged.run_id).data.tags["mlflow.note.content"]
    assert note.endswith(logged.place)
    assert list(client.search_registered_models()) == []


def test_a_model_version_has_scores_and_serving_instructions(logged: Logged) -> None:
    place = "demo version 1: champion (no champion yet; better than its own baseline)"
    assert logged.tracked.place == place
    version = logged.client.get_model_version("demo", "1")
    assert "F1 25.0 → 75.0" in version.description
    assert "mlflow models serve -m models:/demo/1" in version.description
    (model,) = logged.run.outputs.model_outputs
    scores = {m.key: m.value for m in logged.client.get_logged_model(model.model_id).metrics}
    assert (scores["test/f1"], scores["baseline/f1"]) == (75.0, 25.0)


def test_no_secret_reaches_the_store(root: Path) -> None:
    made = outcome(
        root / "demo", parameters={"lm": {"api_key": KEY, "api_base": f"http://u:{KEY}@host/v1"}},
        stopped=f"the LM said: Authorization: Bearer {KEY}",
        prompts_after={"read": Prompt(f"Use \ud800 {KEY}.", (f"key: {KEY}",))},
        candidates=(candidates()[0]._replace(description=f"with {KEY}"),),
    )  # fmt: skip
    wrong = report(30).results[0].model_copy(update={"answer": None, "error": f"401 for {KEY}"})
    made = replace(made, after=made.after._replace(results=(wrong, *made.after.results[1:])))
    with dspy.context(lm=dspy.LM("openai/m", api_key=KEY)):
        track_compilation(made, root=root)
    kept = [path for path in root.rglob("*") if path.is_file()]
    assert len(kept) > 10
    for secret in (KEY, "10.1.2.3"):
        assert [path for path in kept if secret.encode() in path.read_bytes()] == []


def test_mlflows_global_settings_are_unchanged(root: Path) -> None:
    import mlflow

    mlflow.set_tracking_uri("sqlite:///of-the-app.db")
    before = dict(os.environ)
    try:
        track_compilation(outcome(root / "demo"), uri=f"sqlite:///{root}/mlflow.db", root=root)
        assert mlflow.get_tracking_uri() == "sqlite:///of-the-app.db"
        assert dict(os.environ) == before
        assert mlflow.active_run() is None
    finally:
        mlflow.set_tracking_uri(None)


def test_a_server_that_never_responds_times_out(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen()
        uri = f"http://127.0.0.1:{deaf.getsockname()[1]}"
        with pytest.raises(TrackingFailed, match=r"timed out|Timeout"):
            track_compilation(outcome(root / "demo"), uri=uri, root=root)


def test_a_file_that_is_not_a_store_is_named(root: Path) -> None:
    (root / "mlflow.db").write_bytes(b"this is no database")
    with pytest.raises(TrackingFailed, match=r"mlflow\.db failed"):
        tracked(root)


def test_the_alias_moves_only_to_a_program_that_beats_the_champion(root: Path) -> None:
    def registered(right: int, **changes: Any) -> str:
        return tracked(root, after=right, candidates=(), **changes).place

    client = client_of(f"sqlite:///{root}/mlflow.db")
    assert registered(12).startswith("demo version 1: not champion")
    assert client.get_registered_model("demo").aliases == {}
    assert registered(20).startswith("demo version 2: champion")
    assert registered(15, before=0).startswith(
        "demo version 3: not champion (does not beat the champion: F1 -12.5 on 40 questions"
    )
    assert str(client.get_model_version_by_alias("demo", "champion").version) == "2"
    assert registered(32).startswith("demo version 4: champion")
    assert str(client.get_model_version_by_alias("demo", "champion").version) == "4"


def test_an_insignificant_difference_does_not_make_a_champion() -> None:
    champion, reason = decide(outcome(Path(), after=22), report(20))
    assert not champion
    assert reason == "does not beat the champion: F1 +5.0 on 40 questions, p = 0.5"


def test_a_program_that_is_significantly_worse_does_not_become_the_champion() -> None:
    champion, reason = decide(outcome(Path(), before=0, after=10), report(30))
    assert float(reason.rpartition("p = ")[2]) < 0.001
    assert not champion


@pytest.mark.parametrize(
    ("reigning", "said"),
    [
        ({"questions_sha256": "other"}, "questions_sha256 was"),
        ({"lm": "weak/lm"}, 'lm was "weak/lm", is "none"'),
        ({"corpus": "d" * 64}, "corpus was"),
        ({"k": 3}, "k was 3"),
        ({"settings": {"as_published": True}}, "settings.as_published was true"),
        ({"sampling": {"temperature": 1.0}}, "sampling.temperature was 1.0"),
    ],
)
def test_programs_measured_under_other_conditions_are_not_compared(
    reigning: dict[str, Any], said: str
) -> None:
    old = report(0)
    old = old._replace(protocol=old.protocol.model_copy(update=reigning))
    champion, reason = decide(outcome(Path(), after=40), old)
    assert not champion
    assert said in reason


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"held_out": "validation"}, "not measured on test questions"),
        ({"before": 39}, "not significantly better than its own baseline (F1 +2.5, p = 1)"),
        ({"before": 40}, "not significantly better than its own baseline (F1 +0.0, p = 1)"),
        ({"failures": (0, 1)}, "more questions failed than with its own baseline (1 instead of 0)"),
    ],
)
@pytest.mark.parametrize("reigning", [None, report(0)])
def test_only_a_program_that_is_better_on_test_questions_can_be_the_champion(
    reigning: Report | None, changes: dict[str, Any], said: str
) -> None:
    champion, reason = decide(outcome(Path(), after=40, **changes), reigning)
    assert not champion
    assert said in reason
