"""Triples against gold evidences, and whether cited edges are faithful."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ga_dspy.eval import load
from ga_dspy.eval.scores import Overlap, Triple, count_faithful, same_name, triple_score
from ga_dspy.graph import Entity, Evidence, GraphUpdate, KnowledgeGraph, Relation
from ga_dspy.passage import Passage
from ga_dspy.programs import EvidenceLink

FATHER = ("Ann Lee", "father", "Bo Lee")
BURIED = ("Bo Lee", "place of burial", "Cork")


def test_by_ends_the_words_of_the_relation_do_not_count() -> None:
    predicted = [("Ann Lee", "is the daughter of", "Bo Lee"), ("Bo Lee", "lies in", "Kerry")]
    assert triple_score(predicted, [FATHER, BURIED]) == Overlap(0.5, 0.5, 0.5)


def test_by_ends_a_relation_may_run_the_other_way() -> None:
    assert triple_score([("Bo Lee", "father of", "Ann Lee")], [FATHER]) == Overlap(1, 1, 1)


def test_one_end_alone_is_no_match() -> None:
    assert triple_score([("Ann Lee", "father", "Cork")], [FATHER, BURIED]) == Overlap(0, 0, 0)


def test_precision_and_recall_by_hand() -> None:
    predicted = [FATHER, ("Ann Lee", "born in", "Kerry"), ("Kerry", "part of", "Ireland")]
    assert triple_score(predicted, [FATHER, BURIED]) == pytest.approx((2 / 5, 1 / 3, 1 / 2))


def test_one_triple_in_three_wordings_matches_one_gold_triple() -> None:
    ways = [("Ann Lee", words, "Bo Lee") for words in ("father", "child of", "daughter of")]
    assert triple_score(ways, [FATHER]) == pytest.approx((1 / 2, 1 / 3, 1.0))


def test_a_triple_that_is_spelled_the_same_counts_once() -> None:
    again = ("the ann lee", "Father", "BO LEE")
    assert triple_score([FATHER, again, FATHER], [FATHER, FATHER]) == Overlap(1.0, 1.0, 1.0)


def test_two_relations_between_the_same_ends_need_two_triples() -> None:
    both = [("A Film", "director", "Bo Lee"), ("A Film", "producer", "Bo Lee")]
    assert triple_score(both, both) == Overlap(1.0, 1.0, 1.0)
    assert triple_score(both[:1], both) == pytest.approx((2 / 3, 1.0, 1 / 2))


def test_the_pairing_with_the_most_pairs_counts() -> None:
    # "Prism" fits both; taken in order it would take the only one that the album fits.
    gold = [("Prism (album)", "by", "Ann"), ("Prism (band)", "by", "Ann")]
    predicted = [("Prism", "made by", "Ann"), ("Prism (album)", "made by", "Ann")]
    for order in (predicted, predicted[::-1]):
        assert triple_score(order, gold) == Overlap(1.0, 1.0, 1.0)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("André de Toth", "Andre De Toth", True),
        ("The Beatles", "Beatles", True),
        ("J. K. Rowling", "J.K. Rowling", True),
        ("Prism (album)", "Prism", True),
        ("Prism", "Prism (album)", True),
        ("Prism (album)", "Prism (band)", False),
        ("8 March 1975", "March 8, 1975", True),
        ("8 March 1975", "March 1975", False),
        ("Ann Lee", "Lee Ann", False),
        ("Ann", "Ann Lee", False),
    ],
)
def test_names_are_compared_as_names(one: str, other: str, same: bool) -> None:
    assert same_name(one, other) is same
    assert same_name(other, one) is same


def test_nothing_predicted_is_zero_and_no_gold_is_no_score() -> None:
    assert triple_score([], [FATHER]) == Overlap(0.0, 0.0, 0.0)
    assert triple_score([FATHER], []) is None


PARTS = st.sampled_from(["Ann", "ann.", "the Ann", "Bo", " Bo", "É", "", "-"])
TRIPLES = st.lists(st.tuples(PARTS, PARTS, PARTS), max_size=5)


@given(TRIPLES, TRIPLES.filter(bool))
def test_gold_triples_among_others_are_all_found_and_none_twice(
    predicted: list[Triple], gold: list[Triple]
) -> None:
    open_score = triple_score([*predicted, *gold], gold)
    assert open_score is not None
    assert open_score.recall == 1.0
    assert open_score.precision <= 1.0


@pytest.mark.data
def test_gold_evidences_score_one_against_themselves(data: Path) -> None:
    examples = load("2wikimultihopqa", data / "2wikimultihopqa/dev.json")
    for example in examples:
        scored = triple_score(example.evidences, example.evidences)
        assert scored == Overlap(1.0, 1.0, 1.0)


MARLOW = Passage(
    id="marlow", title="Ines Marlow", text="Ines Marlow, a printer, was born in Tavira."
)
TAVIRA = Passage(id="tavira", title="Tavira", text="Tavira lies on the Gilão.")
PASSAGES = {passage.id: passage for passage in (MARLOW, TAVIRA)}
WHOLE = (Evidence(passage="marlow", start=12, end=len(MARLOW.content)),)
GRAPH = KnowledgeGraph().merge(
    GraphUpdate(
        entities=(
            Entity(name="Ines Marlow", type="person", attributes=("printer",), evidence=WHOLE),
            Entity(name="Tavira", evidence=WHOLE),
        ),
        relations=(
            Relation(head="Ines Marlow", relation="was born in", tail="Tavira", evidence=WHOLE),
        ),
    )
)


def link(**changes: str) -> EvidenceLink:
    true = {
        "head": "Ines Marlow", "relation": "was born in", "tail": "Tavira",
        "passage_id": "marlow", "title": "Ines Marlow", "quote": MARLOW.text,
    }  # fmt: skip
    return EvidenceLink(**{**true, **changes})


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"head": "the ines marlow", "relation": "born in"},
        {"quote": "a printer … born in Tavira"},
        {"relation": "described as", "tail": "printer"},
        {"relation": "described as", "tail": "person"},
    ],
)
def test_an_edge_of_the_graph_with_a_correct_quote_is_faithful(
    changes: dict[str, str],
) -> None:
    assert count_faithful([link(**changes)], GRAPH, PASSAGES) == (1, 1)


@pytest.mark.parametrize(
    "changes",
    [
        {"head": "Tavira", "tail": "Ines Marlow"},
        {"relation": "died in"},
        {"tail": "Lisbon"},
        {"relation": "described as", "tail": "painter"},
        {"passage_id": "tavira", "quote": TAVIRA.text},
        {"passage_id": "gone"},
        {"quote": "Ines Marlow was born in Lisbon."},
        {"quote": "a printer … born in Lisbon"},
        {"quote": ""},
    ],
)
def test_an_edge_with_any_fault_is_not_faithful(changes: dict[str, str]) -> None:
    assert count_faithful([link(**changes)], GRAPH, PASSAGES) == (1, 0)


def test_a_quote_without_a_triple_cites_no_edge() -> None:
    assert count_faithful([link(head="", relation="", tail="")], GRAPH, PASSAGES) == (0, 0)
