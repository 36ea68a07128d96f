"""Supporting facts: quotes mapped to sentences, and the scores of hotpot_evaluate_v1.py."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ga_dspy.eval import exact_match, read
from ga_dspy.eval.facts import (
    NO_SENTENCE,
    JointScore,
    SupportScore,
    facts_of,
    joint_score,
    support_score,
)
from ga_dspy.eval.scores import Overlap, answer_overlap

LODGE = (
    "Red Lodge is a city in Carbon County.",
    "It lies in Montana, near St. Mary.",
    "The cafés on Broadway are “The Wild Table” and “Ox”.",
    "It lies in Montana, they say.",
)
PAGES = {"Red Lodge (city)": LODGE, "Billings": ("Billings is larger.",)}


def test_support_scores_by_hand() -> None:
    # Of three predicted facts two are among the four gold ones.
    predicted = [("A", 0), ("A", 1), ("B", 0), ("A", 0)]
    gold = [("A", 0), ("A", 1), ("C", 2), ("D", 0)]
    assert support_score(predicted, gold) == pytest.approx((0.0, 4 / 7, 2 / 3, 1 / 2))


def test_the_same_set_in_another_order_is_an_exact_match() -> None:
    assert support_score([("B", 1), ("A", 0)], [("A", 0), ("B", 1)]) == SupportScore(1, 1, 1, 1)


def test_predicting_nothing_scores_zero_and_no_gold_scores_nothing() -> None:
    assert support_score([], [("A", 0)]) == SupportScore(0.0, 0.0, 0.0, 0.0)
    assert support_score([("A", 0)], []) is None
    assert support_score([], []) is None


def official_support(predicted: list[tuple[str, int]], gold: list[tuple[str, int]]) -> SupportScore:
    tp = fp = fn = 0
    for fact in set(predicted):
        tp, fp = (tp + 1, fp) if fact in set(gold) else (tp, fp + 1)
    for fact in set(gold):
        fn += fact not in set(predicted)
    precision = tp / (tp + fp) if tp + fp > 0 else 0.0
    recall = tp / (tp + fn) if tp + fn > 0 else 0.0
    both = precision + recall
    f1 = 2 * precision * recall / both if both > 0 else 0.0
    return SupportScore(1.0 if fp + fn == 0 else 0.0, f1, precision, recall)


FACTS = st.lists(st.tuples(st.sampled_from("ABa"), st.integers(0, 2)), max_size=6)


@given(FACTS, FACTS.filter(bool))
def test_support_scores_equal_the_official_counting(
    predicted: list[tuple[str, int]], gold: list[tuple[str, int]]
) -> None:
    assert support_score(predicted, gold) == pytest.approx(official_support(predicted, gold))


def test_joint_scores_by_hand() -> None:
    # Precision 1/2 * 1 = 1/2, recall 1 * 1/3 = 1/3, so F1 is (2 * 1/6) / (5/6) = 2/5.
    answer = Overlap(f1=2 / 3, precision=1 / 2, recall=1.0)
    support = SupportScore(em=1.0, f1=1 / 2, precision=1.0, recall=1 / 3)
    assert joint_score(answer, 0.0, support) == pytest.approx((0.0, 2 / 5, 1 / 2, 1 / 3))


@pytest.mark.parametrize(
    ("answer", "facts"), [("right", [("B", 0)]), ("wrong", [("A", 0)]), ("wrong", [("B", 0)])]
)
def test_the_joint_score_is_zero_where_either_part_is_wrong(
    answer: str, facts: list[tuple[str, int]]
) -> None:
    support = support_score(facts, [("A", 0)])
    assert support is not None
    joint = joint_score(answer_overlap(answer, "right"), exact_match(answer, "right"), support)
    assert joint == JointScore(0.0, 0.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("quote", "numbers"),
    [
        ("It lies in Montana, near St. Mary.", {1}),
        ("near St. Mary", {1}),
        ("near St.\n  Mary. The CAFES on Broadway", {1, 2}),
        ('cafe\u0301s on Broadway are "The Wild Table"', {2}),
        ("a city … Wild Table", {0, 2}),
        ("Red Lodge (city) Red Lodge is a city", {0}),
        ("Red Lodge (city)\nRed Lodge is … they say", {0, 3}),
        ("larger", {NO_SENTENCE}),
        ("ear St. Mary", {NO_SENTENCE}),
        ("near Montana", {NO_SENTENCE}),
        ("near St. Mary … a hotel", {1, NO_SENTENCE}),
        ("", {NO_SENTENCE}),
        ("…", {NO_SENTENCE}),
    ],
)
def test_a_quote_is_from_every_sentence_it_overlaps(quote: str, numbers: set[int]) -> None:
    assert facts_of([("Red Lodge (city)", quote)], PAGES) == {
        ("Red Lodge (city)", number) for number in numbers
    }


def test_words_that_stand_twice_are_taken_from_the_first_place() -> None:
    assert facts_of([("Red Lodge (city)", "It lies in Montana")], PAGES) == {
        ("Red Lodge (city)", 1)
    }


def test_words_that_stand_twice_are_taken_from_where_the_rest_of_the_quote_is() -> None:
    quote = "It lies in Montana … they say"
    assert facts_of([("Red Lodge (city)", quote)], PAGES) == {("Red Lodge (city)", 3)}


def test_the_title_alone_supports_no_sentence_but_harms_none_either() -> None:
    title = "Red Lodge (city)"
    assert facts_of([(title, title)], PAGES) == {(title, NO_SENTENCE)}
    assert facts_of([(title, f"{title} … near St. Mary")], PAGES) == {(title, 1)}


def test_a_quote_from_a_page_outside_the_context_is_a_wrong_fact() -> None:
    evidence = [("Billings", "Billings is larger."), ("Helena", "Billings is larger.")]
    facts = facts_of(evidence, PAGES)
    assert facts == {("Billings", 0), ("Helena", NO_SENTENCE)}
    score = support_score(facts, [("Billings", 0)])
    assert score is not None
    assert (score.precision, score.recall) == (0.5, 1.0)


def test_titles_come_back_as_the_context_spells_them() -> None:
    assert facts_of([(" Cafe\u0301  Noir", "One.")], {"Caf\u00e9 Noir": ("One.",)}) == {
        ("Caf\u00e9 Noir", 0)
    }


def test_no_evidence_is_no_fact() -> None:
    assert facts_of([], PAGES) == set()


@given(st.data())
def test_any_run_of_words_of_a_page_gives_facts_of_that_page_only(data: st.DataObject) -> None:
    text = " ".join(LODGE).split()
    start = data.draw(st.integers(0, len(text) - 1))
    end = data.draw(st.integers(start + 1, len(text)))
    facts = facts_of([("Red Lodge (city)", " ".join(text[start:end]))], PAGES)
    assert facts
    assert all(0 <= number < len(LODGE) for _, number in facts)


FILES = [
    ("hotpotqa", "hotpotqa/dev_distractor.json"),
    ("hotpotqa", "hotpotqa/train.json"),
    ("2wikimultihopqa", "2wikimultihopqa/dev.json"),
]


@pytest.mark.data
@pytest.mark.parametrize(("dataset", "file"), FILES)
def test_gold_facts_and_gold_answers_score_one(dataset: str, file: str, data: Path) -> None:
    for example in read(dataset, data / file).examples:
        support = support_score(example.supporting_facts, example.supporting_facts)
        assert support == SupportScore(1.0, 1.0, 1.0, 1.0)
        answer = answer_overlap(example.answer, example.answers)
        em = exact_match(example.answer, example.answers)
        assert joint_score(answer, em, support) == JointScore(1.0, 1.0, 1.0, 1.0)


@pytest.mark.data
@pytest.mark.parametrize(("dataset", "file"), FILES)
def test_quotes_that_are_the_gold_sentences_give_the_gold_facts(
    dataset: str, file: str, data: Path
) -> None:
    examples = read(dataset, data / file).examples
    same = 0
    for example in examples:
        pages = dict(example.paragraphs)
        quotes = [(title, pages[title][number]) for title, number in example.supporting_facts]
        same += facts_of(quotes, pages) == set(example.supporting_facts)
    assert same >= 0.99 * len(examples)
