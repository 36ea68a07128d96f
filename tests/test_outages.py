"""Outages: after a failure, the answer is based on what was read before it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import dspy
import pytest

import ga_dspy
from ga_dspy import GraphAnchor, Passage, VanillaRAG
from ga_dspy.errors import RunAborted
from ga_dspy.programs import IRCoT, IterRetGen, SearchR1
from ga_dspy.testing import Reply, scripted_lm

LODGE = Passage(id="lodge", title="Red Lodge", text="Red Lodge is the seat of Carbon County.")
CARBON = Passage(id="carbon", title="Carbon County", text="Carbon County lies in Montana.")
QUESTION = "In which state is the county whose seat is Red Lodge?"
FIRST = {
    "additions": "Relations:\n1. Red Lodge -> is the seat of -> Carbon County [1]",
    "reasoning": "The state is missing.",
    "judgement": "insufficient",
    "candidate": "Wyoming",
    "next_query": "Carbon County state",
}
SECOND = {
    "additions": "Relations:\n1. Carbon County -> lies in -> Montana [2]",
    "reasoning": "All links hold.",
    "judgement": "sufficient",
    "candidate": "Montana",
    "next_query": "",
}
UNSURE = {**SECOND, "judgement": "exhausted"}
ANSWER = {"verdict": "answered", "links": "[2]", "answer": "Montana"}
DOWN = ConnectionError("the endpoint is down")


def search(query: str, k: int) -> list[Passage]:
    return [LODGE, CARBON] if "Carbon" in query else [LODGE]


def run(script: Sequence[Reply], retriever: Any = search, **settings: Any) -> Any:
    lm = scripted_lm(script)
    with dspy.context(lm=lm), ga_dspy.patient(retries=0):
        return GraphAnchor(retriever, **settings)(question=QUESTION)


def test_an_outage_in_a_later_round_is_recorded_and_the_search_continues() -> None:
    found = run([FIRST, DOWN, SECOND])
    assert (found.answer, len(found.steps)) == ("Montana", 3)
    assert "endpoint is down" in found.steps[1].failure
    assert found.failures == (found.steps[1].failure,)


def test_passages_of_a_failed_round_are_read_in_the_next() -> None:
    found = run([FIRST, DOWN, SECOND])
    assert found.steps[1].unread == ("carbon",)
    assert [relation.tail for relation in found.graph.relations] == ["Carbon County", "Montana"]


def test_an_outage_in_the_first_read_loses_only_that_step() -> None:
    found = run([DOWN, {**FIRST, "next_query": "Carbon County"}, SECOND])
    assert found.answer == "Montana"
    assert found.steps[0].failure and found.steps[1].made


def test_after_an_outage_in_the_answer_step_the_candidate_is_the_answer() -> None:
    found = run([FIRST, UNSURE, DOWN])
    assert (found.answer, found.supported) == ("Montana", "chained")
    assert "endpoint is down" in found.failures[0]


def test_after_an_unreadable_answer_the_candidate_is_the_answer() -> None:
    found = run([FIRST, UNSURE, *[""] * 4])
    assert found.answer == "Montana" and "answer step" in found.failures[0]


def test_a_permanent_outage_after_the_first_call_still_gives_an_answer() -> None:
    found = run([FIRST, *[DOWN] * 9])
    assert (found.answer, found.supported) == ("Wyoming", None)
    assert len(found.failures) >= 3


@pytest.mark.parametrize("program", [GraphAnchor, VanillaRAG, IRCoT, IterRetGen, SearchR1])
def test_if_no_call_reached_the_lm_its_error_is_raised(program: Any) -> None:
    lm = scripted_lm([DOWN] * 12)
    with dspy.context(lm=lm), ga_dspy.patient(retries=0), pytest.raises(dspy.LMError):
        program(search)(question=QUESTION)


def test_a_retriever_that_fails_at_first_is_an_error() -> None:
    def fails(query: str, k: int) -> list[Passage]:
        raise TimeoutError("the index is away")

    with pytest.raises(TimeoutError):
        run([FIRST], fails)


def test_a_later_retriever_failure_loses_only_that_search() -> None:
    searched: list[str] = []

    def fails_once(query: str, k: int) -> list[Passage]:
        searched.append(query)
        if len(searched) == 2:
            raise TimeoutError("the index is away")
        return search(query, k)

    found = run([FIRST, SECOND], fails_once)
    assert found.answer == "Montana"
    assert "the index is away" in found.failures[0]


@pytest.mark.parametrize("place", range(3))
def test_a_failure_at_any_call_is_recorded_and_the_question_answered(place: int) -> None:
    script: list[Reply] = [FIRST, UNSURE, ANSWER, ANSWER]
    script.insert(place, DOWN)
    found = run(script)
    assert found.answer == "Montana"
    assert found.failures


def test_an_aborted_run_is_not_treated_as_an_outage() -> None:
    with pytest.raises(Exception, match="the cap is reached") as raised:
        run([FIRST, RunAborted("the cap is reached")])
    assert isinstance(raised.value.__cause__ or raised.value, RunAborted)


def test_an_evaluation_with_a_flaky_lm_finishes() -> None:
    calls = iter(range(1000))

    def flaky(prompt: str) -> Reply:
        if next(calls) % 3 == 1:
            return DOWN
        return UNSURE if "additions" in prompt else ANSWER

    devset = [dspy.Example(question=QUESTION, answer="Montana").with_inputs("question")] * 40
    with dspy.context(lm=scripted_lm(flaky)):
        scored = dspy.Evaluate(
            devset=devset,
            metric=lambda example, found, trace=None: found.answer == example.answer,
            num_threads=1,
            max_errors=1,
        )(GraphAnchor(search))
    assert len(scored.results) == 40


def test_the_same_outages_are_survived_under_asyncio() -> None:
    async def ask() -> Any:
        lm = scripted_lm([FIRST, DOWN, UNSURE, DOWN])
        with dspy.context(lm=lm), ga_dspy.patient(retries=0):
            return await GraphAnchor(search).acall(question=QUESTION)

    found = asyncio.run(ask())
    assert found.answer == "Montana" and len(found.failures) == 2
