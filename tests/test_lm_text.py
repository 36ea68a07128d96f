"""Reading: sentences, names, dates, numbers, candidates and questions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("Stemmer")

from extractive_lm.question import analyse
from extractive_lm.spans import read_page
from extractive_lm.text import (
    dates,
    keywords,
    name_spans,
    normalize,
    noun_type,
    parse,
    sentences,
)


def _norms(text: str, title: str = "") -> set[str]:
    return set(read_page(title, text).norms)


@given(st.text(max_size=200))
def test_tokens_cover_exactly_the_text_that_is_not_space(text: str) -> None:
    assert "".join(t.text for t in parse(text).tokens) == "".join(text.split())


@given(st.text(max_size=200))
def test_reading_any_text_as_a_passage_yields_spans_inside_it(text: str) -> None:
    read = read_page("A title", text)
    assert all(0 <= s.start < s.end <= len(read.parsed.tokens) for s in read.spans)
    assert len(read.spans) == len(read.norms)


@given(st.text(max_size=120))
def test_any_question_can_be_taken_apart(text: str) -> None:
    analysed = analyse(text)
    assert all(0 < weight <= 1 for weight in analysed.focus.values())


def test_abbreviations_and_initials_do_not_end_a_sentence() -> None:
    text = "Dr. J. K. Lee met St. John Inc. staff in the U.S. capital. They spoke."
    assert sentences(text)[-1] == "They spoke."
    assert len(sentences(text)) == 2


def test_a_possessive_is_no_part_of_a_name() -> None:
    parsed = parse("He read Nora Quill's book.")
    assert [parsed.slice(s.start, s.end) for s in name_spans(parsed)] == ["Nora Quill"]


def test_keywords_are_stems_without_function_words() -> None:
    assert keywords("Where was the director of the films born?") == ["director", "film", "born"]


def test_normalising_follows_the_official_rule() -> None:
    assert normalize("The  Old-Mill, a B.B.C. show!") == "oldmill bbc show"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("She lived in Hull, Quebec then.", "hull quebec"),
        ("It stars Ann Lee, Bo Marsh and Cy Dole.", "ann lee bo marsh and cy dole"),
        ("He wrote Alice in Wonderland.", "alice in wonderland"),
        ("He led the Marconi crime family.", "marconi crime family"),
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


def test_a_title_is_a_candidate_without_its_bracket() -> None:
    assert "mercury" in _norms("It is the first planet.", "Mercury (planet)")


def test_a_life_span_is_not_read_as_one_date() -> None:
    assert "1874 – 10" not in _norms("He (1 January 1874 – 10 October 1927) flew.")


def test_dates_compare_by_year_then_month() -> None:
    found = dates("From 4 May 1850 to June 2, 1910, again in 1911.")
    assert found == [(1850, 5, 4), (1910, 6, 2), (1911, 0, 0)]


@pytest.mark.parametrize(
    ("question", "wh", "noun", "wants"),
    [
        ("In which city was the poet born?", "which", "city", "place"),
        ("The film was directed by the man who wrote what novel?", "what", "novel", "work"),
        ("What is the name of the band that sang it?", "what", "band", "group"),
        ("Who founded the club?", "who", "", "person"),
        ("The song was produced by who?", "who", "", "person"),
        ("What year did the actor who won die?", "what", "year", "year"),
        ("How many novels did she write?", "how", "novels", "number"),
        ("Are Ann Lee and Bo Marsh both poets?", "", "", "yesno"),
        ("Which is older, the Elm Hotel or the Oak Hotel?", "which", "", "choice"),
    ],
)
def test_a_question_tells_what_it_wants(question: str, wh: str, noun: str, wants: str) -> None:
    analysed = analyse(question)
    assert (analysed.wh, analysed.wants) == (wh, wants)
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
