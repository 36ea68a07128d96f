"""Closed book: one call, no search, no supported answer."""

from __future__ import annotations

from typing import Any

import dspy
import pytest

from ga_dspy.passage import Passage
from ga_dspy.programs import ClosedBook
from ga_dspy.testing import Reply, scripted_lm

QUESTION = "Which river flows past the birthplace of Ines Marlow?"
ANSWER = {"answer": " Gilão "}


def never(query: str, k: int) -> list[Passage]:
    raise AssertionError(f"{query!r} was searched")


def run(*script: Reply, **settings: Any) -> tuple[Any, list[str]]:
    lm = scripted_lm(script)
    with dspy.context(lm=lm):
        return ClosedBook(never, **settings)(question=QUESTION), lm.engine.prompts


def test_one_call_answers_from_the_question_alone_and_never_searches() -> None:
    prediction, prompts = run(ANSWER)
    assert (prediction.answer, prediction.calls) == ("Gilão", 1)
    assert len(prompts) == 1 and QUESTION in prompts[0]
    assert not any(word in prompts[0] for word in ("passages", "graph", "notes", "candidate"))


def test_an_answer_from_memory_has_no_support_and_no_passages() -> None:
    prediction, _ = run(ANSWER)
    assert (prediction.supported, prediction.verdict) == (None, "not in passages")
    empty = (prediction.cited, prediction.passages, prediction.evidence, prediction.steps)
    assert empty == ((), (), (), ())


def test_a_yes_from_memory_is_not_supported() -> None:
    prediction, _ = run({"answer": "yes"})
    assert (prediction.answer, prediction.supported) == ("yes", None)


def test_abstaining_hides_the_guess() -> None:
    prediction, _ = run(ANSWER, abstain="quoted")
    assert (prediction.answer, prediction.guess) == ("", "Gilão")


@pytest.mark.parametrize("unusable", ["", " \n", "<think>Is it the Douro?", "{}"])
def test_an_unusable_answer_is_reported_and_left_empty(unusable: str) -> None:
    prediction, prompts = run(*[unusable] * 4)
    assert (prediction.answer, prediction.guess, prediction.usage["answer"].failed) == ("", "", 4)
    (failure,) = prediction.failures
    assert "the answer step got no usable output from the LM" in failure
    assert "raise max_tokens" in failure and prompts[0] == prompts[1]
