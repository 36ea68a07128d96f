"""Scores against an independent transcription of what the official HotpotQA script does."""

from __future__ import annotations

import re
import string
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ga_dspy.errors import InputError
from ga_dspy.eval import contained, exact_match, f1, normalise, support_recall


def official_normalise(text: str) -> str:
    lowered = text.lower()
    bare = "".join(letter for letter in lowered if letter not in string.punctuation)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", bare).split())


def official_f1(prediction: str, gold: str) -> float:
    guess, answer = official_normalise(prediction), official_normalise(gold)
    for side in (guess, answer):
        if side in ("yes", "no", "noanswer") and guess != answer:
            return 0.0
    overlap = sum((Counter(guess.split()) & Counter(answer.split())).values())
    if not overlap:
        return 0.0
    precision = overlap / len(guess.split())
    recall = overlap / len(answer.split())
    return 2 * precision * recall / (precision + recall)


WORDS = ["the", "a", "An", "yes", "no", "noanswer", "Red", "Lodge", "lodge,", "U.S.", "-", " ", "é"]
SENTENCES = st.lists(st.sampled_from(WORDS), max_size=6).map(" ".join) | st.text(max_size=20)


@given(SENTENCES, SENTENCES)
def test_f1_and_exact_match_equal_the_official_rules_on_any_pair(guess: str, gold: str) -> None:
    assert normalise(guess) == official_normalise(guess)
    assert f1(guess, gold) == pytest.approx(official_f1(guess, gold))
    assert exact_match(guess, gold) == float(official_normalise(guess) == official_normalise(gold))


@pytest.mark.parametrize(
    ("given_text", "expected"),
    [
        ("The Red Lodge", "red lodge"),
        ("  red\t lodge\n", "red lodge"),
        ("Red-Lodge, (Montana)", "redlodge montana"),
        ("an apple a day", "apple day"),
        ("theatre", "theatre"),
        ("1,234.5", "12345"),
        ("the", ""),
        ("“quoted”", "“quoted”"),
        ("A.N. Other", "other"),
        ("Café", "café"),
    ],
)
def test_normalisation_goes_case_by_case_as_the_script(given_text: str, expected: str) -> None:
    assert normalise(given_text) == expected == official_normalise(given_text)


@pytest.mark.parametrize(
    ("guess", "gold", "score"),
    [
        ("yes", "yes", 1.0),
        ("Yes.", "yes", 1.0),
        ("yes it is", "yes", 0.0),
        ("yes", "yes it is", 0.0),
        ("no", "yes", 0.0),
        ("no", "no one", 0.0),
        ("noanswer", "no answer", 0.0),
        ("no answer", "noanswer", 0.0),
        ("noanswer", "noanswer", 1.0),
        ("red red", "red", 2 / 3),
        ("", "red", 0.0),
        ("", "", 0.0),
        ("the", "a", 0.0),
    ],
)
def test_f1_of_closed_and_odd_answers(guess: str, gold: str, score: float) -> None:
    assert f1(guess, gold) == pytest.approx(score)
    assert official_f1(guess, gold) == pytest.approx(score)


def test_the_best_of_the_accepted_answers_counts() -> None:
    accepted = ("Red Lodge, Montana", "Red Lodge")
    assert exact_match("the red lodge", accepted) == 1.0
    assert f1("red lodge", accepted) == 1.0
    assert contained("It is Red Lodge!", accepted) == 1.0


def test_contained_compares_characters_and_looks_one_way_only() -> None:
    assert contained("northern", "no") == 1.0
    assert contained("Red", "Red Lodge") == 0.0


def test_an_accepted_answer_that_normalises_to_nothing_is_contained_in_nothing() -> None:
    assert contained("anything", "the") == 0.0


def test_support_recall_is_the_share_of_gold_titles_retrieved() -> None:
    assert support_recall(["Red Lodge", "Red Lodge", "Other"], ["Red Lodge", "Billings"]) == 0.5
    assert support_recall([], ["Red Lodge"]) == 0.0


def test_support_recall_is_told_apart_from_zero_where_no_title_is_gold() -> None:
    assert support_recall(["Red Lodge"], []) is None


def test_titles_match_up_to_spaces_and_unicode_composition() -> None:
    assert support_recall(["Cafe\u0301  Noir "], ["Caf\u00e9 Noir"]) == 1.0


@pytest.mark.parametrize("score", [exact_match, f1, contained])
def test_scoring_against_no_accepted_answer_is_an_error(score: object) -> None:
    assert callable(score)
    with pytest.raises(InputError, match="no accepted answer"):
        score("anything", ())
