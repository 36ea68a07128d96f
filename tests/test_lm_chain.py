"""Chains of the extractive engine: where walks along a nested question end, and what that does."""

from __future__ import annotations

import pytest

from extractive_lm.chain import leading, shifts, walks
from extractive_lm.judge import judge
from extractive_lm.prompt import Answer, Doc, Inputs
from extractive_lm.question import analyse

QUESTION = "Which lake lies beside the town where the father of the author of Grey Boats was born?"
BOOK = Doc(1, "Grey Boats", "Grey Boats is a novel by Mira Oldfield. It was published in 1962.")
AUTHOR = Doc(
    2,
    "Mira Oldfield",
    "Mira Oldfield was a Scottish writer who was born in Ulm, a daughter of the engineer Tom "
    "Oldfield.",
)
FATHER = Doc(3, "Tom Oldfield", "Tom Oldfield was an engineer who was born in Tarvin Bay.")
TOWN = Doc(4, "Tarvin Bay", "Tarvin Bay is a town that lies on Lake Lorne.")
ALL = (BOOK, AUTHOR, FATHER, TOWN)
WAY = ("grey boats", "mira oldfield", "tom oldfield", "tarvin bay", "lake lorne")


@pytest.fixture(autouse=True)
def installed() -> None:
    pytest.importorskip("Stemmer")


def test_the_walk_that_states_most_of_a_nested_question_ends_at_its_answer() -> None:
    best = leading(walks(QUESTION, ALL))[0]

    assert best.path == WAY
    assert (best.name, best.fit) == ("Lake Lorne", 1.0)


def test_a_walk_takes_no_more_of_a_question_than_its_relations_state() -> None:
    found = walks(QUESTION, ALL)

    assert found["tom oldfield"].share < found["tarvin bay"].share < found["lake lorne"].share <= 1
    assert "town" not in found["tom oldfield"].taken
    assert "born" in found["tarvin bay"].taken


def test_a_question_that_names_nothing_of_the_passages_has_no_walk() -> None:
    assert not walks("Which lake lies beside the town of the painter?", ALL)


def test_the_end_of_a_chain_gains_and_what_lies_between_loses() -> None:
    moved = shifts(walks(QUESTION, ALL))

    assert moved["lake lorne"] > 0.5
    assert max(moved[name] for name in WAY[1:-1]) < 0


def test_where_a_walk_has_come_to_is_searched_with_what_is_open() -> None:
    docs = (BOOK, AUTHOR, FATHER)
    sure = (Answer("Ulm", 0.9, (2,)),)
    verdict = judge(analyse(QUESTION), Inputs(QUESTION, docs), (), sure, walks(QUESTION, docs))

    assert not verdict.sufficient
    assert verdict.next_query == "Tarvin Bay lake lies beside"


def test_where_a_walk_has_come_to_its_answer_nothing_more_is_searched() -> None:
    sure = (Answer("Lake Lorne", 0.9, (4,)),)

    assert judge(
        analyse(QUESTION), Inputs(QUESTION, ALL), (), sure, walks(QUESTION, ALL)
    ).sufficient
