"""`ga-dspy bench faults`: no question and no answer is lost to a bad endpoint."""

from __future__ import annotations

import asyncio
import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from faults import Night

Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(autouse=True)
def _real_time(clock: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server in another thread or process goes by the time of day."""
    monkeypatch.setattr("ga_dspy.patience.time", time)
    monkeypatch.setattr("ga_dspy.patience.asyncio", asyncio)


@pytest.mark.slow
def test_faults_and_an_outage_cost_time_and_no_answer(
    command: Command, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    done = command(
        "bench",
        "faults",
        "--questions",
        "6",
        "--outage",
        "1",
        "--timeout",
        "4",
        "--json",
        cwd=tmp_path,
    )
    nights = [
        Night(**night) for night in json.loads(capfd.readouterr().out)
    ]  # of a process of its own
    assert done.returncode == 0, nights
    assert [night.failed for night in nights] == [0] * 4
    assert [night.same for night in nights] == [6] * 4
    assert len({(night.f1, night.em) for night in nights}) == 1
    calm, faults, outage, both = nights
    assert calm.failures == 0 < min(faults.failures, outage.failures, both.failures)


def test_a_night_that_lost_a_question_or_an_answer_is_not_whole() -> None:
    whole = Night("both", 9, 0, 0, 1, 80.0, 70.0, 9, 20, 4, 1.5)
    assert whole.is_whole
    assert not whole._replace(failed=1).is_whole
    assert not whole._replace(same=8).is_whole
