"""Parsing: sentences, names, dates, numbers, candidate phrases and questions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("Stemmer")

from extractive_lm.english import (
    analyse,
    keywords,
    normalize,
    noun_type,
    parse,
    sentences,
    shape_spans,
)
from extractive_lm.ranker import read_page


def _norms(text: str, title: str = "") -> set[str]:
    return set(read_page(title, text).spans.values())


@given(st.text(max_size=200))
def test_tokens_cover_all_text_except_spaces(text: str) -> None:
    assert "".join(parse(text).words) == "".join(text.split())


@given(st.text(max_size=200))
def test_candidate_spans_are_always_inside_the_passage(text: str) -> None:
    read = read_page("A title", text)
    assert all(0 <= s.start < s.end <= len(read.parsed.words) for s in read.spans)


@given(st.text(max_size=120))
def test_any_question_can_be_parsed(text: str) -> None:
    analysed = analyse(text)
    assert all(0 < weight <= 1 for weight in analysed.focus.values())


def test_abbreviations_and_initials_do_not_end_a_sentence() -> None:
    text = "Dr. J. K. Lee met St. John Inc. staff in the U.S. capital. They spoke."
    assert sentences(text)[-1] == "They spoke."
    assert len(sentences(text)) == 2


def test_a_possessive_is_not_part_of_a_name() -> None:
    parsed = parse("He read Nora Quill's book.")
    assert [parsed.slice(s.start, s.end) for s in shape_spans(parsed, "name")] == ["Nora Quill"]


def test_keywords_are_stemmed_content_words() -> None:
    assert keywords("Where was the director of the films born?") == ["director", "film", "born"]


def test_normalisation_follows_the_official_rule() -> None:
    assert normalize("The  Old-Mill, a B.B.C. show!") == "oldmill bbc show"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("She lived in Hull, Quebec then.", "hull quebec"),
        ("She was known for deep blue glass.", "deep blue glass"),
        ('He wrote "A Song of the Sea" there.', "song of sea"),
        ("It sold 150 million copies.", "150 million"),
        ("It opened on 3 May 1901.", "3 may 1901"),
        ("It opened on May 3, 1901.", "may 3 1901"),
        ("It was built in the early 19th century.", "early 19th century"),
        ("He served 1892–94 there.", "1892–94"),
        ("President Anna Bloom spoke.", "anna bloom"),
        ("He studied at the University of Leeds in England.", "university of leeds"),
    ],
)
def test_answers_of_every_form_are_candidates(text: str, expected: str) -> None:
    assert expected in _norms(text)


def test_a_title_is_a_candidate_without_its_parentheses() -> None:
    assert "mercury" in _norms("It is the first planet.", "Mercury (planet)")


def test_a_life_span_is_not_read_as_one_date() -> None:
    assert "1874 – 10" not in _norms("He (1 January 1874 – 10 October 1927) flew.")


@pytest.mark.parametrize(
    ("question", "noun", "wants"),
    [
        ("In which city was the poet born?", "city", "place"),
        ("The film was directed by the man who wrote what novel?", "novel", "work"),
        ("What is the name of the band that sang it?", "band", "group"),
        ("Who founded the club?", "", "person"),
        ("The song was produced by who?", "", "person"),
        ("What year did the actor who won die?", "year", "year"),
        ("How many novels did she write?", "novels", "number"),
        ("Are Ann Lee and Bo Marsh both poets?", "", "yesno"),
        ("Which is older, the Elm Hotel or the Oak Hotel?", "", "choice"),
    ],
)
def test_a_question_is_parsed_into_its_noun_and_type_of_answer(
    question: str, noun: str, wants: str
) -> None:
    analysed = analyse(question)
    assert analysed.wants == wants
    assert not noun or analysed.noun == noun


@pytest.mark.parametrize(
    ("question", "choices"),
    [
        ("Who is older, Ann Lee or Bo Marsh?", ("Ann Lee", "Bo Marsh")),
        ("Did the Battle of Ulm or the Battle of Lodi come first?",
         ("Battle of Ulm", "Battle of Lodi")),
        ("Between Ann Lee and Bo Marsh, who wrote more?", ("Ann Lee", "Bo Marsh")),
        ('Which is longer, "Red Tide" or "Low Sun"?', ("Red Tide", "Low Sun")),
    ],
)  # fmt: skip
def test_both_options_are_found_as_written(question: str, choices: tuple[str, str]) -> None:
    assert analyse(question).choices == choices


def test_plural_nouns_have_the_type_of_their_singular() -> None:
    assert noun_type("actresses") == noun_type("actress") == "person"
    assert noun_type("counties") == "place"
