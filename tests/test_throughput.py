"""Load: what the bench of it measures, in small."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ga_dspy import demo
from ga_dspy.eval import load
from ga_dspy.eval.throughput import Load, Measured, measure
from ga_dspy.retrieval import Index


@pytest.fixture(scope="module")
def index() -> Index:
    return Index.from_passages(demo.corpus(), kind="sparse")


@pytest.fixture(scope="module")
def ways(index: Index) -> dict[str, Measured]:
    questions = [e.question for e in load("hotpotqa", demo.questions("dev"), limit=6)]
    found = measure(
        Load.of(questions, index), [index], in_flight=[24], latencies=[0.3], questions=48
    )
    return {one.way: one for one in found}


def test_threads_tasks_and_an_eval_have_as_many_calls_in_flight_as_questions(
    ways: dict[str, Measured],
) -> None:
    assert list(ways) == ["bare", "sparse threads", "sparse asyncio", "sparse eval"]
    for one in ways.values():
        assert 16 <= one.peak <= 24, one


def test_a_program_comes_near_bare_calls(ways: dict[str, Measured]) -> None:
    for one in ways.values():
        assert one.share > 0.3, one
        assert one.ratio < 6, one


def test_the_command_prints_what_was_measured(command: Callable[..., Any], tmp_path: Path) -> None:
    few = ("--kinds", "sparse", "--questions", "10", "--in-flight", "5", "--latency", "0.05")
    done = command("bench", "load", *few, "--json", cwd=tmp_path)
    assert json.loads(done.stdout)[0]["way"] == "bare", done.stderr
    done = command("bench", "load", "--memory", "10", "--kinds", "sparse", cwd=tmp_path)
    assert "megabytes" in done.stdout and done.stdout.count("\n") > 10, done.stderr
