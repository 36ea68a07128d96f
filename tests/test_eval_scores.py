"""Scores of answers, retrieval and quotes, compared with the official scripts."""

from __future__ import annotations

import re
import string
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ga_dspy.errors import InputError
from ga_dspy.eval import exact_match, f1, load, normalise
from ga_dspy.eval.scores import (
    NO_SENTENCE,
    Overlap,
    SupportScore,
    answer_in,
    answer_overlap,
    contained,
    f1_squad,
    facts_of,
    joint_score,
    support_precision,
    support_recall,
    support_score,
)


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


def official_squad_f1(prediction: str, gold: str) -> float:
    guess, answer = official_normalise(prediction).split(), official_normalise(gold).split()
    shared = Counter(guess) & Counter(answer)
    same = sum(shared.values())
    if same == 0:
        return 0.0
    return 2 * (same / len(guess)) * (same / len(answer)) / (same / len(guess) + same / len(answer))


WORDS = ["the", "a", "An", "yes", "no", "noanswer", "Red", "Lodge", "lodge,", "U.S.", "-", " ", "é"]
SENTENCES = st.lists(st.sampled_from(WORDS), max_size=6).map(" ".join) | st.text(max_size=20)


@given(SENTENCES, SENTENCES)
def test_f1_and_exact_match_equal_the_official_rules_on_any_pair(guess: str, gold: str) -> None:
    assert normalise(guess) == official_normalise(guess)
    assert f1(guess, gold) == pytest.approx(official_f1(guess, gold))
    assert exact_match(guess, gold) == float(official_normalise(guess) == official_normalise(gold))


@given(SENTENCES, SENTENCES)
def test_squad_f1_equals_the_v1_script_on_any_pair(guess: str, gold: str) -> None:
    assert f1_squad(guess, gold) == pytest.approx(official_squad_f1(guess, gold))


@given(SENTENCES, SENTENCES)
def test_the_two_f1_differ_only_where_yes_no_or_noanswer_is_one_whole_side(
    guess: str, gold: str
) -> None:
    sides = {official_normalise(guess), official_normalise(gold)}
    if not sides & {"yes", "no", "noanswer"}:
        assert f1(guess, gold) == f1_squad(guess, gold)


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


@pytest.mark.parametrize(
    ("guess", "gold", "score"),
    [
        ("yes it is", "yes", 0.5),
        ("no", "no one", 2 / 3),
        ("no", "yes", 0.0),
        ("", "", 0.0),
        ("the", "a", 0.0),
        ("red lodge montana", "Red Lodge", 0.8),
    ],
)
def test_squad_f1_of_closed_and_odd_answers(guess: str, gold: str, score: float) -> None:
    assert f1_squad(guess, gold) == pytest.approx(score)


def test_squad_f1_counts_the_best_of_the_accepted_answers() -> None:
    assert f1_squad("red lodge", ("Billings", "Red Lodge")) == 1.0


def test_overlap_has_precision_and_recall() -> None:
    # Two of three words are right, two of four are found.
    overlap = answer_overlap("city Red Lodge", "Red Lodge, Carbon County")
    assert overlap == pytest.approx((4 / 7, 2 / 3, 1 / 2))
    assert overlap.f1 == f1("city Red Lodge", "Red Lodge, Carbon County")


def test_overlap_is_zero_if_only_one_side_is_yes_no_or_noanswer() -> None:
    assert answer_overlap("yes it is", "yes") == Overlap(0.0, 0.0, 0.0)
    assert answer_overlap("No.", "no") == Overlap(1.0, 1.0, 1.0)


def test_all_three_numbers_of_an_overlap_are_from_one_accepted_answer() -> None:
    # Precision and recall by answer: 1/3 and 1, 2/3 and 2/5, 2/3 and 2/3. Each maximum taken by
    # itself would give a recall of 1.
    accepted = ("Red", "Red Lodge Carbon County Montana", "Red Lodge Montana")
    assert answer_overlap("the Red Lodge inn", accepted) == pytest.approx((2 / 3, 2 / 3, 2 / 3))


def test_the_best_of_the_accepted_answers_counts() -> None:
    accepted = ("Red Lodge, Montana", "Red Lodge")
    assert exact_match("the red lodge", accepted) == 1.0
    assert f1("red lodge", accepted) == 1.0
    assert contained("It is Red Lodge!", accepted) == 1.0


def test_contained_looks_for_the_answers_characters_in_the_prediction_only() -> None:
    assert contained("northern", "no") == 1.0
    assert contained("Red", "Red Lodge") == 0.0


def test_an_accepted_answer_that_normalises_to_nothing_is_contained_in_nothing() -> None:
    assert contained("anything", "the") == 0.0


def test_support_recall_is_the_share_of_gold_titles_retrieved() -> None:
    assert support_recall(["Red Lodge", "Red Lodge", "Other"], ["Red Lodge", "Billings"]) == 0.5
    assert support_recall([], ["Red Lodge"]) == 0.0


def test_support_recall_is_none_without_gold_titles() -> None:
    assert support_recall(["Red Lodge"], []) is None


def test_titles_match_despite_spaces_and_unicode_composition() -> None:
    assert support_recall(["Cafe\u0301  Noir "], ["Caf\u00e9 Noir"]) == 1.0


def test_support_precision_counts_each_retrieved_title_once() -> None:
    gold = ["Red Lodge", "Billings"]
    assert support_precision(["Red Lodge", "Red  Lodge", "X", "Y", "Billings"], gold) == 0.5
    assert support_precision(["X"], gold) == 0.0


def test_support_precision_is_zero_without_results_and_none_without_gold() -> None:
    assert support_precision([], ["Red Lodge"]) == 0.0
    assert support_precision(["Red Lodge"], []) is None


@pytest.mark.parametrize(
    ("passage", "gold", "hit"),
    [
        ("The northern lodge.", ["north"], False),
        ("Billings, Montana, is a city.", ["The Billings", "Helena"], True),
        ("It was on 3 May 1901 that", ["3 May"], True),
        ("It cost 13 mayflowers", ["3 May"], False),
        ("Red is the lodge.", ["Red Lodge"], False),
        ("Anything at all", ["The"], None),
        ("Yes, it is.", ["yes"], None),
        ("No one stayed", ["no", "noanswer"], None),
        ("No one stayed", ["no", "no one"], True),
        ("All left", ["no", "no one"], False),
        ("", ["Montana"], False),
    ],
)
def test_a_hit_is_a_run_of_whole_words(passage: str, gold: list[str], hit: bool | None) -> None:
    assert answer_in(passage, gold) is hit


@pytest.mark.parametrize("score", [exact_match, f1, f1_squad, contained, answer_overlap])
def test_scoring_against_no_accepted_answer_is_an_error(score: object) -> None:
    assert callable(score)
    with pytest.raises(InputError, match="no accepted answer"):
        score("anything", ())


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
    assert joint == SupportScore(0.0, 0.0, 0.0, 0.0)


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


def test_words_that_occur_twice_are_taken_from_the_first_place() -> None:
    assert facts_of([("Red Lodge (city)", "It lies in Montana")], PAGES) == {
        ("Red Lodge (city)", 1)
    }


def test_words_that_occur_twice_are_taken_from_where_the_rest_of_the_quote_is() -> None:
    quote = "It lies in Montana … they say"
    assert facts_of([("Red Lodge (city)", quote)], PAGES) == {("Red Lodge (city)", 3)}


def test_a_quoted_title_supports_no_sentence_and_costs_nothing() -> None:
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


def test_facts_have_titles_as_the_context_spells_them() -> None:
    assert facts_of([(" Cafe\u0301  Noir", "One.")], {"Caf\u00e9 Noir": ("One.",)}) == {
        ("Caf\u00e9 Noir", 0)
    }


def test_no_evidence_is_no_fact() -> None:
    assert facts_of([], PAGES) == set()


LODGE_WORDS = " ".join(LODGE).split()


@given(st.integers(0, len(LODGE_WORDS) - 1), st.integers(1, len(LODGE_WORDS)))
def test_any_run_of_words_of_a_page_gives_facts_of_that_page_only(start: int, size: int) -> None:
    quote = " ".join(LODGE_WORDS[start : start + size])
    facts = facts_of([("Red Lodge (city)", quote)], PAGES)
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
    for example in load(dataset, data / file):
        support = support_score(example.supporting_facts, example.supporting_facts)
        assert support == SupportScore(1.0, 1.0, 1.0, 1.0)
        answer = answer_overlap(example.answer, example.answers)
        em = exact_match(example.answer, example.answers)
        assert joint_score(answer, em, support) == SupportScore(1.0, 1.0, 1.0, 1.0)


@pytest.mark.data
@pytest.mark.parametrize(("dataset", "file"), FILES)
def test_quotes_that_are_the_gold_sentences_give_the_gold_facts(
    dataset: str, file: str, data: Path
) -> None:
    examples = load(dataset, data / file)
    same = 0
    for example in examples:
        pages = dict(example.paragraphs)
        quotes = [(title, pages[title][number]) for title, number in example.supporting_facts]
        same += facts_of(quotes, pages) == set(example.supporting_facts)
    assert same >= 0.99 * len(examples)
