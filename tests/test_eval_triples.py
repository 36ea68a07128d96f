"""Triples against gold evidences: the official 2Wiki rule, and the one for open relations."""

from __future__ import annotations

import string
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ga_dspy.eval import read
from ga_dspy.eval.triples import Triple, TripleScore, same_name, triple_score

FATHER = ("Ann Lee", "father", "Bo Lee")
BURIED = ("Bo Lee", "place of burial", "Cork")


def test_by_ends_the_words_of_the_relation_do_not_count() -> None:
    predicted = [("Ann Lee", "is the daughter of", "Bo Lee"), ("Bo Lee", "lies in", "Kerry")]
    assert triple_score(predicted, [FATHER, BURIED]) == TripleScore(0.5, 0.5, 0.5)


def test_by_ends_a_relation_may_run_the_other_way() -> None:
    assert triple_score([("Bo Lee", "father of", "Ann Lee")], [FATHER]) == TripleScore(1, 1, 1)


def test_one_end_alone_is_no_match() -> None:
    assert triple_score([("Ann Lee", "father", "Cork")], [FATHER, BURIED]) == TripleScore(0, 0, 0)


def test_precision_and_recall_by_hand() -> None:
    predicted = [FATHER, ("Ann Lee", "born in", "Kerry"), ("Kerry", "part of", "Ireland")]
    assert triple_score(predicted, [FATHER, BURIED]) == pytest.approx((1 / 3, 1 / 2, 2 / 5))


def test_saying_one_thing_in_three_ways_finds_one_gold_triple() -> None:
    ways = [("Ann Lee", words, "Bo Lee") for words in ("father", "child of", "daughter of")]
    assert triple_score(ways, [FATHER]) == pytest.approx((1 / 3, 1.0, 1 / 2))


def test_a_triple_that_is_spelled_the_same_counts_once() -> None:
    again = ("the ann lee", "Father", "BO LEE")
    assert triple_score([FATHER, again, FATHER], [FATHER, FATHER]) == TripleScore(1.0, 1.0, 1.0)


def test_two_relations_between_the_same_ends_need_two_triples() -> None:
    both = [("A Film", "director", "Bo Lee"), ("A Film", "producer", "Bo Lee")]
    assert triple_score(both, both) == TripleScore(1.0, 1.0, 1.0)
    assert triple_score(both[:1], both) == pytest.approx((1.0, 1 / 2, 2 / 3))


def test_the_pairing_with_the_most_pairs_counts() -> None:
    # "Prism" fits both; taken in order it would take the only one that the album fits.
    gold = [("Prism (album)", "by", "Ann"), ("Prism (band)", "by", "Ann")]
    predicted = [("Prism", "made by", "Ann"), ("Prism (album)", "made by", "Ann")]
    for order in (predicted, predicted[::-1]):
        assert triple_score(order, gold) == TripleScore(1.0, 1.0, 1.0)


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


def test_an_alias_stands_for_its_name_on_either_side() -> None:
    aliases = {"Bo Lee": {"Robert Lee", "Bobby"}}
    other = [("Ann Lee", "child of", "robert lee")]
    assert triple_score(other, [FATHER]) == TripleScore(0.0, 0.0, 0.0)
    assert triple_score(other, [FATHER], aliases=aliases) == TripleScore(1.0, 1.0, 1.0)
    assert triple_score([FATHER], other, aliases=aliases) == TripleScore(1.0, 1.0, 1.0)


def test_two_names_that_only_share_an_alias_are_two() -> None:
    aliases = {"Bo Lee": {"Lee"}, "Ann Lee": {"Lee"}}
    gold = [("Cork", "home of", "Bo Lee")]
    predicted = [("Cork", "home of", "Ann Lee")]
    assert triple_score(predicted, gold, aliases=aliases) == TripleScore(0.0, 0.0, 0.0)


@pytest.mark.parametrize("relation", [True, False])
def test_nothing_predicted_is_zero_and_no_gold_is_no_score(relation: bool) -> None:
    assert triple_score([], [FATHER], relation=relation) == TripleScore(0.0, 0.0, 0.0)
    assert triple_score([FATHER], [], relation=relation) is None


@pytest.mark.parametrize(
    ("triple", "right"),
    [
        (("ann lee", "Father.", "Bo  Lee"), True),
        (("the Ann Lee", "father", "Bo Lee"), False),
        (("Ann Lee", "father of", "Bo Lee"), False),
        (("Bo Lee", "father", "Ann Lee"), False),
        (("Ánn Lee", "father", "Bo Lee"), False),
    ],
)
def test_the_official_rule_wants_all_three_parts_and_keeps_articles(
    triple: Triple, right: bool
) -> None:
    score = triple_score([triple], [FATHER], relation=True)
    assert score is not None
    assert (score.f1 == 1.0) is right


def test_by_the_official_rule_gold_ends_may_go_by_their_aliases() -> None:
    aliases = {"Bo Lee": {"Bobby"}}
    predicted = [("Ann Lee", "father", "bobby"), ("Bobby", "place of burial", "Cork")]
    gold = [FATHER, BURIED]
    assert triple_score(predicted, gold, relation=True) == TripleScore(0.0, 0.0, 0.0)
    scored = triple_score(predicted, gold, relation=True, aliases=aliases)
    assert scored == TripleScore(1.0, 1.0, 1.0)
    turned = triple_score([FATHER], predicted[:1], relation=True, aliases=aliases)
    assert turned == TripleScore(0.0, 0.0, 0.0)


def official(predicted: list[Triple], gold: list[Triple]) -> TripleScore:
    def plain(triple: Triple) -> tuple[str, ...]:
        bare = ("".join(c for c in p.lower() if c not in string.punctuation) for p in triple)
        return tuple(" ".join(part.split()) for part in bare)

    said, wanted = {plain(triple) for triple in predicted}, {plain(triple) for triple in gold}
    tp, fp, fn = len(said & wanted), len(said - wanted), len(wanted - said)
    precision = tp / (tp + fp) if tp + fp > 0 else 0.0
    recall = tp / (tp + fn) if tp + fn > 0 else 0.0
    both = precision + recall
    return TripleScore(precision, recall, 2 * precision * recall / both if both > 0 else 0.0)


PARTS = st.sampled_from(["Ann", "ann.", "the Ann", "Bo", " Bo", "É", "", "-"])
TRIPLES = st.lists(st.tuples(PARTS, PARTS, PARTS), max_size=5)


@given(TRIPLES, TRIPLES.filter(bool))
def test_with_relations_the_score_equals_the_official_counting(
    predicted: list[Triple], gold: list[Triple]
) -> None:
    assert triple_score(predicted, gold, relation=True) == pytest.approx(official(predicted, gold))


@given(TRIPLES, TRIPLES.filter(bool))
def test_gold_triples_among_others_are_all_found_and_none_twice(
    predicted: list[Triple], gold: list[Triple]
) -> None:
    open_score = triple_score([*predicted, *gold], gold)
    assert open_score is not None
    assert open_score.recall == 1.0
    assert open_score.precision <= 1.0


@pytest.mark.data
@pytest.mark.parametrize("relation", [True, False])
def test_gold_evidences_score_one_against_themselves(relation: bool, data: Path) -> None:
    examples = read("2wikimultihopqa", data / "2wikimultihopqa/dev.json").examples
    for example in examples:
        scored = triple_score(example.evidences, example.evidences, relation=relation)
        assert scored == TripleScore(1.0, 1.0, 1.0)
