"""Names found by spelling, and the links they make."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ga_dspy.passage import Passage
from ga_dspy.retrieval.rank import MOST_TARGETS, LinkGraph, TitleTable
from ga_dspy.text import aliases, proper_names


def passage(title: str, text: str) -> Passage:
    return Passage(id=title, title=title, text=text)


@pytest.mark.parametrize(
    ("title", "text", "alias"),
    [
        ("Mercury (planet)", "", "mercury"),
        ("Springfield, Ohio", "", "springfield"),
        ("The Beatles", "", "beatles"),
        ("Bob", "Robert Nesta Marley (6 February 1945) was a singer.", "robert nesta marley"),
        ("Björk", "", "bjork"),
    ],
)
def test_a_passage_is_known_by_its_bare_title_and_its_first_subject(
    title: str, text: str, alias: str
) -> None:
    assert alias in aliases(title, text)


@pytest.mark.parametrize("title", ["It", "The", "May", "A", ""])
def test_common_words_are_no_alias(title: str) -> None:
    assert aliases(title, "it was a film.") == frozenset()


def test_the_longest_name_in_a_text_is_the_one_meant() -> None:
    table = TitleTable.build([passage("New York", ""), passage("New York Times", "")])
    assert list(table.named_in("He wrote for the New York Times.")) == ["new york times"]


def test_a_word_in_lower_case_names_nothing_beside_capitalised_ones() -> None:
    table = TitleTable.build([passage("Rush", "")])
    assert list(table.named_in("In a rush, Neil left")) == []
    assert list(table.named_in("Neil left Rush")) == ["rush"]


def test_a_query_typed_without_capitals_still_names_titles() -> None:
    table = TitleTable.build([passage("Neil Peart", "")])
    assert list(table.named_in("who taught neil peart in 1994")) == ["neil peart"]


def test_a_name_of_very_many_passages_names_none_of_them() -> None:
    many = [passage(f"Smith ({i})", "") for i in range(MOST_TARGETS + 1)]
    assert TitleTable.build(many).named_in("Smith") == {}
    assert len(TitleTable.build(many[1:]).named_in("Smith")["smith"]) == MOST_TARGETS


def test_spans_are_runs_of_capitals_with_the_small_words_inside() -> None:
    text = "When the University of Vienna, Austria hired J. R. Ward-Smith & Co, she left."
    assert proper_names(text) == {"university of vienna", "austria", "j r ward smith co"}


def test_a_mention_links_both_ways_and_a_rare_span_links_its_holders() -> None:
    import numpy as np

    passages = [
        passage("Nile", "It flows past Aswan."),
        passage("Aswan", "A city."),
        passage("Reef", "Surveyed by Halvard Quist."),
        passage("Fjord", "Painted by Halvard Quist."),
        passage("Alone", "No names."),
    ]
    graph = LinkGraph.build(passages, TitleTable.build(passages))
    reached = graph.reached(np.arange(5)).toarray() > 0
    assert {(i, j) for i, j in np.argwhere(reached).tolist()} == {(0, 1), (1, 0), (2, 3), (3, 2)}


def test_a_span_in_too_many_passages_links_none() -> None:
    import numpy as np

    passages = [passage(f"Town {i}", "It belongs to Greater Vexin.") for i in range(40)]
    graph = LinkGraph.build(passages, TitleTable.build(passages))
    assert graph.reached(np.arange(3)).nnz == 0


@given(start=st.lists(st.floats(0.01, 1), min_size=4, max_size=4), damping=st.floats(0.1, 0.9))
def test_walks_on_a_connected_corpus_keep_their_mass(start: list[float], damping: float) -> None:
    import numpy as np

    texts = ["Beta Two.", "Gamma Three.", "Delta Four and Alpha One.", "Alpha One."]
    titles = ["Alpha One", "Beta Two", "Gamma Three", "Delta Four"]
    passages = [passage(title, text) for title, text in zip(titles, texts, strict=True)]
    graph = LinkGraph.build(passages, TitleTable.build(passages))
    mass = graph.walk(np.array(start) / sum(start), damping=damping, steps=6)
    assert mass.sum() == pytest.approx(1.0)
    assert (mass > 0).all()
