"""What all tests share: no network, no DSPy cache, nothing written outside tmp_path."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import dspy
import pytest

collect_ignore = ["app_of_ten_lines.py"]
DATA = Path(__file__).parents[1] / ".." / "shared" / "data"


@pytest.fixture(autouse=True)
def _no_cache() -> None:
    dspy.configure_cache(enable_disk_cache=False, enable_memory_cache=False)


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    connect = socket.socket.connect

    def local_only(self: socket.socket, address: Any) -> None:
        if self.family != socket.AF_UNIX and address[0] not in ("127.0.0.1", "::1", "localhost"):
            raise AssertionError(f"a test tried to reach {address}")
        connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", local_only)


@pytest.fixture
def data() -> Path:
    """The public dataset samples beside the checkout."""
    if not DATA.is_dir():
        pytest.skip(f"the dataset samples are not at {DATA}")
    return DATA.resolve()
