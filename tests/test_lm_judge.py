"""The judge of the extractive engine: when it stops, what it searches next, what it says."""

from __future__ import annotations

from typing import Any

import pytest

from extractive_lm.fill import read_demos
from extractive_lm.judge import Judgement, cited, judge
from extractive_lm.prompt import Answer, DemoTurn, Doc, Fact, Inputs, read_inputs
from extractive_lm.question import analyse

QUESTION = "In which county is the town where the painter Mira Oldfield was born?"
PAINTER = Doc(
    1, "Mira Oldfield", "Mira Oldfield was a Scottish painter. She was born in the town Tarvin Bay."
)
TOWN = Doc(2, "Tarvin Bay", "Tarvin Bay is a town in Lorne County.")
UNSURE = (Answer("Tarvin Bay", 0.2, (1,)),)
SURE = (Answer("Lorne County", 0.8, (2,)),)


def judged(
    docs: tuple[Doc, ...],
    ranked: tuple[Answer, ...],
    question: str = QUESTION,
    **said: Any,
) -> Judgement:
    facts = (Fact("Mira Oldfield", "born in", "Tarvin Bay", (1,)),)
    inputs = Inputs(question, docs, **said)
    return judge(analyse(question), inputs, facts, ranked, {})


def test_a_sure_answer_is_sufficient() -> None:
    verdict = judged((PAINTER, TOWN), SURE)
    assert (verdict.sufficient, verdict.next_query) == (True, "")
    assert verdict.candidate == "Lorne County"


def test_the_name_that_leads_on_is_searched_with_what_its_passage_leaves_open() -> None:
    verdict = judged((PAINTER,), UNSURE)
    assert not verdict.sufficient
    assert verdict.next_query == "Tarvin Bay county"


def test_a_name_of_the_question_that_was_not_met_comes_first() -> None:
    question = "Did Mira Oldfield outlive Ingrid Solvay?"
    verdict = judged((PAINTER,), SURE, question=question)
    assert verdict.next_query.startswith("Ingrid Solvay")


def test_no_query_is_repeated() -> None:
    tried = (QUESTION, "Tarvin Bay county")
    verdict = judged((PAINTER,), UNSURE, tried=tried)
    assert verdict.next_query not in tried


def test_where_nothing_leads_on_the_search_ends() -> None:
    assert judged((Doc(1, "Moss", "Moss is green."),), UNSURE, question="What is moss?").sufficient


def test_the_longer_the_search_the_less_is_enough() -> None:
    third = (QUESTION, "a", "b")
    assert not judged((PAINTER,), UNSURE).sufficient
    assert judged((PAINTER,), UNSURE, tried=third).sufficient


def test_a_better_answer_of_the_step_before_is_kept() -> None:
    before = judged((TOWN,), SURE).reasoning
    inputs = read_inputs({"question": QUESTION, "previous_reasoning": before})
    assert (inputs.best, inputs.confidence) == ("Lorne County", 0.8)
    now = judged((PAINTER,), UNSURE, best=inputs.best, confidence=inputs.confidence)
    assert now.candidate == "Lorne County"


@pytest.mark.parametrize("ranked", [SURE, UNSURE])
def test_the_reasoning_agrees_with_the_judgement(ranked: tuple[Answer, ...]) -> None:
    verdict = judged((PAINTER,), ranked)
    assert ("Missing" in verdict.reasoning) is not verdict.sufficient
    assert verdict.candidate in verdict.reasoning
    assert "Mira Oldfield born in Tarvin Bay [1]" in verdict.reasoning


def test_answers_of_examples_reach_the_ranker() -> None:
    turn = DemoTurn({"question": "Who?"}, {"answer": "Ada"})
    assert [(d.question, d.answer) for d in read_demos([turn])] == [("Who?", "Ada")]


def test_the_answer_and_the_passage_that_leads_there_are_cited() -> None:
    labels = cited(analyse(QUESTION), (PAINTER, TOWN), SURE[0])
    assert labels == (2, 1)
