"""Load: what the bench of it measures, in small."""

from __future__ import annotations

import pytest
from measure_load import Load, Measured, measure

from ga_dspy import demo
from ga_dspy.eval import load
from ga_dspy.retrieval import Index


@pytest.fixture(scope="module")
def index() -> Index:
    return Index.from_passages(demo.corpus(), kind="sparse")


@pytest.fixture(scope="module")
def ways(index: Index) -> dict[str, Measured]:
    questions = [e.question for e in load("hotpotqa", demo.questions("dev"), limit=6)]
    asked = Load.of(questions, index)
    found = measure(asked, in_flight=[24], latencies=[0.3], questions=48)
    return {one.way: one for one in found}


def test_threads_tasks_and_an_eval_keep_one_call_in_flight_per_question(
    ways: dict[str, Measured],
) -> None:
    assert list(ways) == ["sparse bare", "sparse threads", "sparse asyncio", "sparse eval"]
    for one in ways.values():
        assert 16 <= one.peak <= 24, one


def test_a_program_is_nearly_as_fast_as_bare_lm_calls(ways: dict[str, Measured]) -> None:
    for one in ways.values():
        assert one.share > 0.3, one
        assert one.ratio < 6, one
