"""Ranked answers of the embedded LM, on texts written for these tests."""

from __future__ import annotations

import pytest

pytest.importorskip("bm25s")

from extractive_lm.english import analyse
from extractive_lm.prompt import Answer, Doc
from extractive_lm.ranker import expected_f1, rank

AUTHOR = Doc(
    4,
    "The Glass Orchard",
    "The Glass Orchard is a 1931 novel by the English writer Miriam Holt. It was published by "
    "Larch Press.",
)
WRITER = Doc(
    7,
    "Miriam Holt",
    "Miriam Holt (born 12 March 1898 in Whitby) was an English novelist and journalist. She "
    "studied at Girton College and died in 1967.",
)
ELDER = Doc(
    2,
    "Peter Vance",
    "Peter Vance (4 May 1850 – 2 June 1910) was an American botanist from Ohio.",
)
YOUNGER = Doc(
    5,
    "Carl Brandt",
    "Carl Brandt (9 July 1871 – 1 March 1940) was a German botanist and painter.",
)
BIRTHDAY = "When was the author of the novel The Glass Orchard born?"


def ranked(question: str, docs: list[Doc]) -> list[Answer]:
    return rank(analyse(question), docs)


def answer(question: str, docs: list[Doc]) -> Answer:
    return ranked(question, docs)[0]


def test_the_date_of_birth_is_read_from_the_linked_passage() -> None:
    found = answer(BIRTHDAY, [AUTHOR, WRITER])
    assert found.text == "12 March 1898"
    assert found.labels[0] == 7


def test_a_who_question_is_answered_with_a_person() -> None:
    assert answer("Who wrote the novel The Glass Orchard?", [AUTHOR, WRITER]).text == "Miriam Holt"


def test_the_same_arguments_give_the_same_ranking() -> None:
    assert ranked(BIRTHDAY, [AUTHOR, WRITER]) == ranked(BIRTHDAY, [AUTHOR, WRITER])


def test_scores_are_between_0_and_1_in_descending_order() -> None:
    scores = [a.score for a in ranked(BIRTHDAY, [AUTHOR, WRITER, ELDER])]
    assert len(scores) > 5
    assert scores == sorted(scores, reverse=True)
    assert all(0.0 <= s <= 1.0 for s in scores)


def test_every_answer_occurs_in_the_passage_that_it_cites() -> None:
    docs = {d.label: f"{d.title} {d.text}" for d in (AUTHOR, WRITER)}
    for found in ranked(BIRTHDAY, [AUTHOR, WRITER]):
        assert found.text in docs[found.labels[0]]


def test_without_passages_there_is_no_answer() -> None:
    assert ranked(BIRTHDAY, []) == []


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("Who was born first, Peter Vance or Carl Brandt?", "Peter Vance"),
        ("Who was born first, Carl Brandt or Peter Vance?", "Peter Vance"),
        ("Who is younger, Peter Vance or Carl Brandt?", "Carl Brandt"),
        ("Who died later, Peter Vance or Carl Brandt?", "Carl Brandt"),
        ("Which botanist was also a painter, Peter Vance or Carl Brandt?", "Carl Brandt"),
        ("Which botanist was American, Carl Brandt or Peter Vance?", "Peter Vance"),
    ],
)
def test_one_of_two_options_is_chosen_by_date_or_by_statement(question: str, expected: str) -> None:
    found = answer(question, [ELDER, YOUNGER])
    assert found.text == expected
    assert set(found.labels) == {2, 5}


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("Are Peter Vance and Carl Brandt both botanists?", "yes"),
        ("Are Peter Vance and Carl Brandt both painters?", "no"),
    ],
)
def test_yes_or_no_is_decided_by_both_passages(question: str, expected: str) -> None:
    found = answer(question, [ELDER, YOUNGER])
    assert found.text == expected


def test_the_scores_of_the_two_outcomes_of_a_comparison_add_up_to_1() -> None:
    first, second = ranked("Are Peter Vance and Carl Brandt both painters?", [ELDER, YOUNGER])[:2]
    assert first.score + second.score == pytest.approx(1.0)


def test_the_order_of_passages_alone_does_not_hide_the_answer() -> None:
    assert answer(BIRTHDAY, [ELDER, WRITER, AUTHOR]).text == "12 March 1898"


def test_near_ties_are_decided_by_the_agreement_of_likely_spans() -> None:
    scored = {"leeds": 1.0, "hull": 0.95, "city of hull": 0.9}
    assert next(iter(expected_f1(scored))) == "hull"
