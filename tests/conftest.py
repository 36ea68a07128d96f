"""What all tests share: no network, no DSPy cache, nothing written outside tmp_path."""

from __future__ import annotations

import asyncio
import io
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Without bytecode on disk, every process that a test starts compiles DSPy again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

import dspy
import hypothesis
import pytest
from filelock import FileLock

sys.dont_write_bytecode = False
collect_ignore = ["app_of_ten_lines.py"]
DATA = Path(__file__).parents[1] / ".." / "shared" / "data"


# The first example of a test may import for half a second; what hangs, pytest ends.
hypothesis.settings.register_profile("unhurried", parent=hypothesis.settings.default, deadline=None)
hypothesis.settings.load_profile("unhurried")

# Who starts the tests in the background may have Ctrl-C ignored: by them and by what they start.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _no_cache() -> None:
    dspy.configure_cache(enable_disk_cache=False, enable_memory_cache=False)


class Clock:
    """A clock that only pauses move: they take no time."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.pauses: list[float] = []

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds
        time.sleep(0)

    async def asleep(self, seconds: float) -> None:
        self.sleep(seconds)
        await asyncio.sleep(0)


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Pauses between the attempts of an LM call take no time."""
    clock = Clock()
    monkeypatch.setattr("ga_dspy.lm.patience.time", clock)
    monkeypatch.setattr("ga_dspy.lm.patience.asyncio", SimpleNamespace(sleep=clock.asleep))
    return clock


@pytest.fixture
def rate_limit_clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock by which the service counts requests a minute: only the test moves it."""
    clock = Clock()
    fake = SimpleNamespace(monotonic=clock.monotonic, time=time.time)
    monkeypatch.setattr("ga_dspy.serve.api.time", fake)
    return clock


def _own_address() -> str:
    """This machine's address; to connect a datagram socket sends nothing."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, suppress(OSError):
        probe.connect(("8.8.8.8", 53))
        return str(probe.getsockname()[0])
    return "127.0.0.1"


LOCAL = {"127.0.0.1", "::1", "localhost", _own_address()}


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    connect = socket.socket.connect

    def local_only(self: socket.socket, address: Any) -> None:
        if self.family != socket.AF_UNIX and address[0] not in LOCAL:
            raise AssertionError(f"a test tried to reach {address}")
        connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", local_only)


@pytest.fixture(scope="session")
def data() -> Path:
    """The public dataset samples beside the checkout."""
    if not DATA.is_dir():
        pytest.skip(f"the dataset samples are not at {DATA}")
    return DATA.resolve()


@pytest.fixture(scope="session")
def shared() -> Callable[[str], Path]:
    """A file beside the checkout, by its path in the folder of shared files."""

    def find(path: str) -> Path:
        if not (file := DATA.parent / path).is_file():
            pytest.skip(f"there is no {file}")
        return file.resolve()

    return find


@pytest.fixture(scope="session")
def tables(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """An empty database of MLflow, made once for all workers: to make one takes seconds."""
    mlflow = pytest.importorskip("mlflow")
    folder = tmp_path_factory.getbasetemp()
    path = (folder if worker_id == "master" else folder.parent) / "empty-mlflow.db"
    with FileLock(f"{path}.lock"):
        if not path.exists():
            mlflow.MlflowClient(f"sqlite:///{path}").search_experiments()
    return path


@pytest.fixture(scope="session")
def command() -> Callable[..., subprocess.CompletedProcess[str]]:
    """`ga-dspy` with these arguments, run in a folder; in this process, which saves its start."""
    from ga_dspy.cli import main

    def run(*args: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
        out, err, words = io.StringIO(), io.StringIO(), ["ga-dspy", *map(str, args)]
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(cwd)
            patch.setenv("COLUMNS", "80")
            patch.setattr(sys, "argv", words)
            patch.setattr(sys, "stdout", out)
            patch.setattr(sys, "stderr", err)
            with pytest.raises(SystemExit) as ended:
                main()
        code = int(ended.value.code or 0)
        return subprocess.CompletedProcess(words, code, out.getvalue(), err.getvalue())

    return run
