"""Which questions of a finished run are measured, and what a model is shown of them."""

from __future__ import annotations

from typing import Any

import pytest

from ga_dspy.arena.attention import NoGraphs, cases_of
from ga_dspy.eval import Protocol, Report, Result
from ga_dspy.eval.trace import StepTrace
from ga_dspy.passage import Passage

LODGE = Passage(id="a", title="Red Lodge", text="Red Lodge is a city in Montana.")
FIRST = StepTrace(query="q", names=("Red Lodge",), graph="Entities:\n- Red Lodge [1]")
SECOND = StepTrace(query="r", names=("Montana",), graph="Entities:\n- Red Lodge [1]\n- Montana [1]")


def result(name: str, *trace: StepTrace, **more: Any) -> Result:
    known: dict[str, Any] = {"answer": "Montana", "passages": (LODGE,)}
    return Result(
        id=name, question=f"{name}?", type="", gold=("Montana", "MT"), gold_titles=(), trace=trace,
        **{**known, **more},
    )  # fmt: skip


def report(*results: Result) -> Report:
    protocol = Protocol.of([], dataset="made", source="made", program="no-graph", lm="none")
    return Report(protocol, results, 0.0)


def test_the_questions_with_the_most_steps_are_measured_with_the_graph_of_each_step() -> None:
    failed = result("f", answer=None, passages=(), error="OSError: down")
    (case,) = cases_of(report(result("one", FIRST), result("two", FIRST, SECOND), failed))
    assert (case.question, case.answer) == ("two?", "Montana")
    assert case.passages == ((1, LODGE),)
    assert case.graphs == (FIRST.graph, SECOND.graph)
    assert case.entities == (("Red Lodge",), ("Montana",))


def test_a_step_before_the_first_triple_shows_an_empty_graph() -> None:
    (case,) = cases_of(report(result("one", StepTrace(query="q"), SECOND)))
    assert case.graphs == ("(empty)", SECOND.graph)


def test_a_run_without_graphs_is_refused_by_name() -> None:
    with pytest.raises(NoGraphs, match="no-graph"):
        cases_of(report(result("one", StepTrace(query="q"))))
