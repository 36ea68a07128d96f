"""Finding phrases in a text: verbatim, in other wordings, and not at all."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ga_dspy.text import mentions, sentences, supports_phrase

TEXT = (
    "Ann Marie Fox (born March 25, 1942) began as a child, singing gospel at the church of her "
    "father, minister C. L. Fox. Čapek Hall opened in 1901. She moved to Ouagadougou."
)


def found(phrase: str, text: str = TEXT) -> list[str]:
    return [text[m.start : m.end] for m in mentions(phrase, text)]


def test_a_name_as_spelled_is_found() -> None:
    assert found("Ann Marie Fox") == ["Ann Marie Fox"]


@pytest.mark.parametrize(
    ("phrase", "there"),
    [("capek hall", "Čapek Hall"), ("C.L. Fox", "C. L. Fox"), ("The Čapek Hall", "Čapek Hall")],
)
def test_case_accents_punctuation_and_articles_are_normalised(phrase: str, there: str) -> None:
    assert found(phrase) == [there]


def test_a_misspelt_long_name_is_found() -> None:
    assert found("Ouagadugou") == ["Ouagadougou"]


@pytest.mark.parametrize(
    ("phrase", "text"),
    [
        ("Apollo 12 mission", "The Apollo 11 mission landed."),
        ("Apollo mission", "The Apollo 11 mission landed."),
        ("Apollo 11 mission", "The Apollo mission landed."),
    ],
)
def test_a_long_name_with_another_number_is_not_found(phrase: str, text: str) -> None:
    assert found(phrase, text) == []


def test_a_misspelt_long_name_with_the_same_number_is_found() -> None:
    text = "The Apollo 11 mission landed."
    assert found("Apollo 11 misssion", text) == ["Apollo 11 mission"]


def test_a_name_without_its_middle_name_is_found() -> None:
    assert found("Ann Fox") == ["Ann Marie Fox"]


def test_a_date_is_found_in_any_order() -> None:
    assert found("25 March 1942") == ["March 25, 1942"]


def test_a_description_is_found_by_adjacent_content_words() -> None:
    assert found("her father's church") == ["church of her father"]


@pytest.mark.parametrize(
    "phrase",
    [
        "Ann Bell Fox",
        "March 1943",
        "25 March 1943",
        "Capel Hall 1902",
        "Bob",
        "Marie",
        "Foxe",
        "",
        "?!",
    ],
)
def test_an_absent_phrase_is_not_found(phrase: str) -> None:
    expected = ["Marie"] if phrase == "Marie" else []
    assert found(phrase) == expected


def test_a_part_of_a_word_is_not_a_mention() -> None:
    assert found("art", "The party started.") == []


def test_a_name_in_another_order_is_not_found() -> None:
    assert found("Fox Marie", "Marie Fox came.") == []


@given(st.text(min_size=1, max_size=30), st.text(max_size=60))
def test_spans_are_always_within_the_text(phrase: str, text: str) -> None:
    for mention in mentions(phrase, text):
        assert 0 <= mention.start < mention.end <= len(text)


CAPITALISED = st.text(string.ascii_lowercase, min_size=3, max_size=9).map(str.capitalize)


@given(st.lists(CAPITALISED, min_size=1, max_size=12))
def test_every_run_of_words_of_a_text_is_found_in_it(words: list[str]) -> None:
    text = " ".join(words)
    run = " ".join(words[: len(words) // 2 + 1])
    assert any(text[m.start : m.end] == run for m in mentions(run, text))


def test_sentences_end_at_stops_and_lines_but_not_in_abbreviated_names() -> None:
    text = "Title\nHe met J. Fox in 1901. She left! Then 3 came."
    assert next(text[a:b] for a, b in sentences(text)) == "Title"
    assert "Then 3 came." in [text[a:b] for a, b in sentences(text)]


@pytest.mark.parametrize(
    ("phrase", "supported"),
    [
        ("gospel singer", True),
        ("sang gospel in church", True),
        ("born in 1942", True),
        ("born in 1950", False),
        ("daughter of Bob", False),
        ("Nobel laureate in physics", False),
    ],
)
def test_a_phrase_needs_all_its_names_and_numbers_and_most_of_its_words(
    phrase: str, supported: bool
) -> None:
    assert supports_phrase(phrase, TEXT) is supported
