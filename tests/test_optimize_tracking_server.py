"""Tracking into a real server, and into one that does not answer."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import dspy
import pytest

from ga_dspy import Passage, VanillaRAG
from ga_dspy.optimize import compile, recipe
from ga_dspy.optimize.mlflow_store import TrackingFailed, resolve
from ga_dspy.optimize.tracking import Tracked, track_compilation
from ga_dspy.testing import scripted_lm

pytest.importorskip("mlflow")
pytestmark = pytest.mark.slow
TOWN = Passage(id="1", title="Red Lodge", text="Red Lodge lies in Montana.")


class Server(NamedTuple):
    uri: str
    home: Path
    process: subprocess.Popen[bytes]

    def kill(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


@pytest.fixture
def server(tables: Path, tmp_path: Path) -> Iterator[Server]:
    """A tracking server with its own database and files."""
    home = tmp_path / "server"
    home.mkdir()
    shutil.copyfile(tables, home / "mlflow.db")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    command = [
        sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port),
        "--backend-store-uri", f"sqlite:///{home / 'mlflow.db'}", "--workers", "1",
        "--artifacts-destination", str(home / "files"),
    ]  # fmt: skip
    settings = {
        "MLFLOW_DISABLE_TELEMETRY": "true", "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",  # five more processes that import MLflow
    }  # fmt: skip
    with (home / "log").open("wb") as log:
        process = subprocess.Popen(
            command, env={**os.environ, **settings}, stdout=log, stderr=log, cwd=home,
            start_new_session=True,
        )  # fmt: skip
    started = Server(f"http://127.0.0.1:{port}", home, process)
    try:
        _await(started)
        yield started
    finally:
        started.kill()


def _await(server: Server) -> None:
    for _ in range(600):
        try:
            urllib.request.urlopen(f"{server.uri}/health", timeout=5)
        except (urllib.error.URLError, TimeoutError):
            assert server.process.poll() is None, (server.home / "log").read_text()
            time.sleep(0.2)
        else:
            return
    raise AssertionError((server.home / "log").read_text())


@pytest.fixture
def root(tables: Path, tmp_path: Path) -> Path:
    """A folder for artifacts with its own empty store."""
    (tmp_path / "artifacts").mkdir()
    shutil.copyfile(tables, tmp_path / "artifacts" / "mlflow.db")
    return tmp_path / "artifacts"


def answered(prompt: str) -> dict[str, Any]:
    """An LM that answers right only if its prompt has a demo."""
    shown = prompt.count("[[ ## question ## ]]") > 2
    return {"verdict": "answered", "links": "[1]", "answer": "Montana" if shown else "Idaho"}


def compiled(uri: str, root: Path) -> Tracked:
    def rows(name: str, n: int) -> list[dspy.Example]:
        return [
            dspy.Example(
                id=f"{name}{i}", question=f"Where is town {i} of {name}?", answer="Montana"
            ).with_inputs("question")
            for i in range(n)
        ]

    outcome = compile(
        VanillaRAG(lambda query, k: [TOWN]), recipe("labeled", demos=2), rows("train", 2),
        rows("validation", 2), test=rows("test", 8), out=root / "towns", threads=1,
        lm=scripted_lm(answered),
    )  # fmt: skip
    return track_compilation(outcome, uri=uri, root=root)


def client_of(uri: str) -> Any:
    from mlflow import MlflowClient

    return MlflowClient(uri, uri)


def test_a_compilation_is_tracked_over_http(server: Server, root: Path) -> None:
    tracked = compiled(server.uri, root)
    client = client_of(server.uri)
    run = client.get_run(tracked.run_id)
    assert (run.data.metrics["test/f1"], run.info.status) == (100.0, "FINISHED")
    assert tracked.place.startswith("towns version 1: champion")
    assert tracked.how_to_open.startswith(f"{server.uri}/#/experiments/")
    fetched = resolve("models:/towns@champion", tracking_uri=server.uri)
    assert (fetched / "program.json").read_bytes() == (root / "towns/program.json").read_bytes()
    assert any((server.home / "files").rglob("predictions.json"))
    assert not (root / "mlartifacts").exists()


def test_a_compilation_that_a_dead_server_missed_is_logged_when_repeated(
    root: Path,
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        with pytest.raises(TrackingFailed, match=r"Connection refused"):
            compiled(f"http://127.0.0.1:{taken.getsockname()[1]}", root)
    assert (root / "towns" / "manifest.json").is_file()
    tracked = compiled(f"sqlite:///{root}/mlflow.db", root)
    assert tracked.is_new and tracked.place.startswith("towns version 1: champion")
