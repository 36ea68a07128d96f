"""A compiled program in the registry: downloaded, loaded without pickle, and served."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import dspy
import pytest

import ga_dspy.artifact
from ga_dspy import Passage, VanillaRAG
from ga_dspy.errors import GaDspyError, InputError
from ga_dspy.graphrag import GraphIndex, GraphRAG, build_graph
from ga_dspy.optimize import compile, recipe
from ga_dspy.optimize.mlflow_store import TrackingFailed, resolve
from ga_dspy.optimize.tracking import Tracked, track_compilation
from ga_dspy.retrieval import Index
from ga_dspy.testing import scripted_lm

pytest.importorskip("mlflow")
TOWN = Passage(id="1", title="Red Lodge", text="Red Lodge lies in Montana.")
ANSWER = (
    "[[ ## verdict ## ]]\nanswered\n[[ ## cited ## ]]\n1\n[[ ## answer ## ]]\nMontana\n"
    "[[ ## completed ## ]]"
)


def answered(prompt: str) -> dict[str, Any]:
    """An LM that answers right only if its prompt has a demo."""
    shown = prompt.count("[[ ## question ## ]]") > 2
    return {"verdict": "answered", "links": "[1]", "answer": "Montana" if shown else "Idaho"}


def rows(name: str, n: int) -> list[dspy.Example]:
    return [
        dspy.Example(
            id=f"{name}{i}", question=f"Where is town {i} of {name}?", answer="Montana"
        ).with_inputs("question")
        for i in range(n)
    ]


def compiled(root: Path, lm: Any) -> Tracked:
    outcome = compile(
        VanillaRAG(Index.open(root / "index")), recipe("labeled", demos=2), rows("train", 2),
        rows("validation", 2), test=rows("test", 8), out=root / "towns", threads=1, lm=lm,
    )  # fmt: skip
    uri = f"sqlite:///{root}/mlflow.db"
    return track_compilation(outcome, uri=uri, root=root, index=root / "index")


def made(root: Path, tables: Path) -> Path:
    """A folder with a compiled program, and a store in which it is the champion."""
    shutil.copyfile(tables, root / "mlflow.db")
    Index.build([TOWN], root / "index", kind="sparse")
    compiled(root, scripted_lm(answered))
    return root


@pytest.fixture(scope="module")
def root(tables: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(tmp_path_factory.mktemp("artifacts"), tables)


@pytest.fixture
def store(root: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{root}/mlflow.db")
    return f"sqlite:///{root}/mlflow.db"


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """An OpenAI-compatible server that always gives the same reply."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            message = {"role": "assistant", "content": ANSWER}
            body = {
                "id": "x", "object": "chat.completion", "created": 0, "model": "m",
                "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
                "usage": {"prompt_tokens": 100, "completion_tokens": 11, "total_tokens": 111},
            }  # fmt: skip
            sent = json.dumps(body).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(sent)))
            self.end_headers()
            self.wfile.write(sent)

        def log_message(self, format: str, *args: Any) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    server.shutdown()
    server.server_close()


def test_an_app_loads_the_champion_by_its_address(store: str) -> None:
    program = ga_dspy.artifact.load("models:/towns@champion", retriever=lambda q, k: [TOWN])
    with dspy.context(lm=scripted_lm(answered)):
        assert program(question="Where is Red Lodge?").answer == "Montana"


@pytest.mark.parametrize(
    "form", ["models:/towns/1", "models:/towns@champion", "runs:/{run}/artifact"]
)
def test_every_form_of_address_resolves_to_the_saved_artifact(
    root: Path, store: str, form: str
) -> None:
    from mlflow import MlflowClient

    run = MlflowClient(store, store).get_model_version_by_alias("towns", "champion").run_id
    folder = resolve(form.format(run=run))
    for name in ("manifest.json", "program.json"):
        assert (folder / name).read_bytes() == (root / "towns" / name).read_bytes()


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("models:/towns@nobody", r"alias nobody not found.*there are: towns"),
        ("models:/towns/7", r"version=7.* not found.*there are: towns"),
        ("models:/villages/1", r"villages.* not found.*there are: towns"),
        ("runs:/0123abc", r"0123abc not found"),
        ("runs:/{run}/traces", r"has no runs:/\w+/traces"),
    ],
)
def test_an_unknown_address_is_an_error_that_lists_the_models(
    store: str, address: str, said: str
) -> None:
    from mlflow import MlflowClient

    run = MlflowClient(store, store).get_model_version_by_alias("towns", "champion").run_id
    with pytest.raises(InputError, match=said):
        resolve(address.format(run=run))


def test_an_address_of_an_unknown_form_is_refused(store: str) -> None:
    with pytest.raises(InputError, match="models:/NAME@ALIAS"):
        resolve("models:/")


def test_an_unreachable_store_is_named(root: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        nobody = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(TrackingFailed, match=f"{nobody} failed .*Connection refused"):
            resolve("models:/towns@champion", tracking_uri=nobody)


@pytest.fixture
def loaded(store: str, endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """MLflow pointed at the store, with pickle forbidden and an LM configured."""
    import mlflow

    monkeypatch.setenv("MLFLOW_ALLOW_PICKLE_DESERIALIZATION", "false")
    monkeypatch.setenv("GA_DSPY_LM", "openai/m")
    monkeypatch.setenv("GA_DSPY_API_BASE", endpoint)
    mlflow.set_tracking_uri(store)
    yield mlflow.pyfunc
    mlflow.set_tracking_uri(None)


def test_the_champion_loads_and_answers_with_pickle_disabled(loaded: Any, root: Path) -> None:
    model = loaded.load_model("models:/towns@champion")
    (row,) = model.predict([{"question": "Where is Red Lodge?"}])
    assert (row["answer"], row["supported"], row["calls"]) == ("Montana", "quoted", 1)
    kept = {path.suffix for path in root.rglob("*")}
    assert not {".pkl", ".pickle", ".joblib"} & kept


def test_a_replayed_compilation_registers_no_second_version(tables: Path, tmp_path: Path) -> None:
    from mlflow import MlflowClient

    made(tmp_path, tables)
    again = compiled(tmp_path, scripted_lm([]))
    assert not again.is_new and again.place == "logged before"
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    (version,) = MlflowClient(uri, uri).search_model_versions("name = 'towns'")
    assert "models:/towns/1 " in version.description


@pytest.fixture(scope="module")
def graph_world(tables: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an index and the graph of its passages, and an empty store."""
    pytest.importorskip("igraph")
    root = tmp_path_factory.mktemp("graphs")
    shutil.copyfile(tables, root / "mlflow.db")
    index = Index.build([TOWN], root / "index", kind="sparse")
    build_graph(index, root / "graph", lm=ga_dspy.extractive_lm())
    return root


def test_a_graph_program_is_packed_with_its_graph_and_answers_when_served(
    graph_world: Path, endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import mlflow

    root, uri = graph_world, f"sqlite:///{graph_world}/mlflow.db"
    corpus = GraphIndex.open(root / "index", root / "graph")
    outcome = compile(
        GraphRAG(corpus), recipe("labeled", demos=2), rows("train", 2), rows("validation", 2),
        test=rows("test", 8), out=root / "towns", threads=1, lm=scripted_lm(answered),
    )  # fmt: skip
    packed = {"index": root / "index", "graph": root / "graph"}
    assert "champion" in track_compilation(outcome, uri=uri, root=root, **packed).place
    monkeypatch.setenv("GA_DSPY_LM", "openai/m")
    monkeypatch.setenv("GA_DSPY_API_BASE", endpoint)
    mlflow.set_tracking_uri(uri)
    try:
        model = mlflow.pyfunc.load_model("models:/towns@champion")
        (row,) = model.predict([{"question": "Where is Red Lodge?"}])
    finally:
        mlflow.set_tracking_uri(None)
    assert row["answer"] == "Montana"


READING = """
import sys

found = []
watching = False

def hook(event, arguments):
    if watching and event == "pickle.find_class":
        found.append(arguments)

sys.addaudithook(hook)
import mlflow
import ga_dspy
from ga_dspy.optimize.mlflow_store import resolve
from ga_dspy.retrieval import Index

root, run = sys.argv[1:]
watching = True
index = Index.open(root + "/index")
ga_dspy.load(root + "/towns", retriever=index)
ga_dspy.load("models:/towns@champion", retriever=index)
ga_dspy.load(f"runs:/{run}/artifact", retriever=index)
mlflow.pyfunc.load_model("models:/towns@champion")
watching = False
import pickle
from fractions import Fraction
watching = True
pickle.loads(pickle.dumps(Fraction(1, 2)))  # the hook hears of a pickle
print(found)
"""


@pytest.mark.slow
def test_loading_a_program_never_reads_pickle(store: str, root: Path) -> None:
    from mlflow import MlflowClient

    client = MlflowClient(store)
    (experiment,) = (e for e in client.search_experiments() if e.name == "ga-dspy")
    runs = client.search_runs([experiment.experiment_id], "tags.`ga_dspy.kind` = 'compile'")
    command = [sys.executable, "-c", READING, str(root), runs[0].info.run_id]
    environment = {
        **os.environ, "MLFLOW_TRACKING_URI": store, "GA_DSPY_LM": "ga-dspy/extractive"
    }  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
    assert done.stdout == "[('fractions', 'Fraction')]\n", done.stdout + done.stderr


def test_compiling_saving_and_tracking_write_no_pickle(
    tables: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pickle

    import cloudpickle

    def refuse(*args: Any, **options: Any) -> Any:
        raise AssertionError("something was pickled")

    for module in (pickle, cloudpickle):
        for name in ("dump", "dumps", "Pickler"):
            monkeypatch.setattr(module, name, refuse)
    made(tmp_path, tables)
    assert (tmp_path / "towns" / "program.json").is_file()
    assert any((tmp_path / "mlartifacts").rglob("program.json"))


def test_the_model_has_an_input_and_output_schema(loaded: Any) -> None:
    metadata = loaded.load_model("models:/towns@champion").metadata
    assert metadata.signature.inputs.input_names() == ["question"]
    assert {"answer", "supported", "evidence"} <= set(metadata.signature.outputs.input_names())


def test_a_model_does_not_call_the_lm_named_in_its_artifact(
    loaded: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GA_DSPY_LM")
    with pytest.raises(InputError, match=r"GA_DSPY_LM is not set.*compiled for ga-dspy/scripted"):
        loaded.load_model("models:/towns@champion")


def test_a_model_packed_without_an_index_explains_how_to_set_one(
    loaded: Any, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare = tmp_path / "model"
    shutil.copytree(next((root / "mlartifacts/models").iterdir()) / "artifacts", bare)
    described = (bare / "MLmodel").read_text()
    at = described.index("      index:\n")
    end = described.index("    cloudpickle_version")
    (bare / "MLmodel").write_text(described[:at] + described[end:])
    config = bare / "artifacts" / "ga-dspy.toml"
    lines = config.read_text().splitlines()
    config.write_text("\n".join(line for line in lines if not line.startswith("index")))
    with pytest.raises(GaDspyError, match="GA_DSPY_INDEX is not set"):
        loaded.load_model(str(bare))
    monkeypatch.setenv("GA_DSPY_INDEX", str(root / "index"))
    (row,) = loaded.load_model(str(bare)).predict([{"question": "Where is Red Lodge?"}])
    assert row["answer"] == "Montana"


@pytest.mark.slow
def test_mlflow_serves_the_champion_over_http(store: str, endpoint: str, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    settings = {
        "MLFLOW_ALLOW_PICKLE_DESERIALIZATION": "false", "MLFLOW_DISABLE_TELEMETRY": "true",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True", "GA_DSPY_LM": "openai/m",
        "GA_DSPY_API_BASE": endpoint,
        # MLflow starts the server by the name of its program.
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }  # fmt: skip
    command = [
        sys.executable, "-m", "mlflow", "models", "serve", "-m", "models:/towns@champion",
        "--env-manager", "local", "--host", "127.0.0.1", "--port", str(port),
    ]  # fmt: skip
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            command, env={**os.environ, **settings}, stdout=log, stderr=log, cwd=tmp_path,
            start_new_session=True,
        )  # fmt: skip
    try:
        asked = urllib.request.Request(
            f"http://127.0.0.1:{port}/invocations",
            json.dumps({"dataframe_records": [{"question": "Where is Red Lodge?"}]}).encode(),
            {"Content-Type": "application/json"},
        )
        (row,) = _answer(asked, process, tmp_path / "log")["predictions"]
        assert (row["answer"], row["supported"]) == ("Montana", "quoted")
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _answer(asked: urllib.request.Request, process: subprocess.Popen[bytes], log: Path) -> Any:
    for _ in range(600):
        try:
            with urllib.request.urlopen(asked, timeout=30) as response:
                return json.load(response)
        except urllib.error.HTTPError as error:
            raise AssertionError(error.read().decode()) from error
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            assert process.poll() is None, log.read_text()
            time.sleep(0.2)
    raise AssertionError(log.read_text())
