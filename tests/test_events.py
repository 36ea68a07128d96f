"""Progress events of a program."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import dspy
import pytest
from dspy.streaming import StatusMessage

import ga_dspy
from ga_dspy.demo import DEMO_QUESTION, corpus
from ga_dspy.programs import Event, watching


@pytest.fixture(scope="module")
def index() -> ga_dspy.Index:
    return ga_dspy.Index.from_passages(corpus(), kind="sparse")


@pytest.fixture
def program(index: ga_dspy.Index) -> ga_dspy.GraphAnchor:
    return ga_dspy.GraphAnchor(index)


@pytest.fixture(scope="module")
def lm() -> dspy.LM:
    return ga_dspy.extractive_lm()


def test_the_events_of_a_question_match_its_prediction(
    program: ga_dspy.GraphAnchor, lm: dspy.LM
) -> None:
    told: list[Event] = []
    with watching(told.append), dspy.context(lm=lm):
        found = program(question=DEMO_QUESTION)
    kinds = [event.kind for event in told]
    # The candidate is certain, so that no further call answers.
    assert kinds[0] == "search" and kinds[-2:] == ["step", "answer"]
    assert kinds.count("step") == len(found.steps) > 1
    steps = [event.data for event in told if event.kind == "step"]
    assert steps == found.to_dict()["steps"]
    new = [each["id"] for event in told if event.kind == "passages" for each in event.data["new"]]
    assert new == [passage.id for passage in found.passages]
    assert told[-1].data == found.to_dict()
    json.dumps([dict(event.data) for event in told])
    assert all(event.message and "\n" not in event.message for event in told)


def test_an_async_question_sends_the_same_events(program: ga_dspy.GraphAnchor, lm: dspy.LM) -> None:
    def ask(way: Callable[[], object]) -> list[tuple[str, str]]:
        told: list[tuple[str, str]] = []
        with watching(lambda event: told.append((event.kind, event.message))), dspy.context(lm=lm):
            way()
        return told

    one = ask(lambda: program(question=DEMO_QUESTION))
    other = ask(lambda: asyncio.run(program.acall(question=DEMO_QUESTION)))
    assert one == other


@pytest.mark.parametrize("baseline", ["VanillaRAG", "IRCoT", "ClosedBook"])
def test_every_program_sends_an_answer_event(
    baseline: str, index: ga_dspy.Index, lm: dspy.LM
) -> None:
    from ga_dspy import programs

    told: list[Event] = []
    kind = getattr(programs, baseline)
    program = kind(index)
    with watching(told.append), dspy.context(lm=lm):
        found = program(question=DEMO_QUESTION)
    assert told[-1].kind == "answer" and told[-1].data["answer"] == found.answer
    assert sum(event.kind == "step" for event in told) == len(found.steps)


def test_no_event_is_made_without_a_listener(
    program: ga_dspy.GraphAnchor, lm: dspy.LM, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ga_dspy.programs.program.as_json", None)
    monkeypatch.setattr("ga_dspy.programs.prediction.Step.message", property(None))
    with dspy.context(lm=lm):
        assert program(question=DEMO_QUESTION).answer


@pytest.mark.parametrize("is_async", [False, True])
def test_dspys_streamify_yields_status_messages(
    program: ga_dspy.GraphAnchor, lm: dspy.LM, is_async: bool
) -> None:
    streamed = dspy.streamify(program, is_async_program=is_async)

    async def read() -> list[Any]:
        with dspy.context(lm=lm):
            return [each async for each in streamed(question=DEMO_QUESTION)]

    *streamed_parts, prediction = asyncio.run(read())
    said = [part.message for part in streamed_parts if isinstance(part, StatusMessage)]
    assert said[0].startswith("step 1: searching")
    assert said[-1] == f"answer: {prediction.answer}"


def test_an_error_in_a_listener_ends_the_question(
    program: ga_dspy.GraphAnchor, lm: dspy.LM
) -> None:
    def gone(event: Event) -> None:
        raise ConnectionError("the reader hung up")

    with watching(gone), dspy.context(lm=lm), pytest.raises(ConnectionError, match="hung up"):
        program(question=DEMO_QUESTION)
