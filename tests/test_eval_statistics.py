"""Intervals, tests, Holm's correction, and sufficiency as a classifier, worked out by hand."""

from __future__ import annotations

from statistics import harmonic_mean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ga_dspy.eval.scores import Verdict, sufficiency
from ga_dspy.eval.statistics import Paired, bootstrap_interval, holm, paired_permutation


def test_holm_by_hand() -> None:
    # Sorted 0.01, 0.02, 0.03, 0.04 times 4, 3, 2, 1: 0.04, 0.06, then 0.06 and 0.04 raised to it.
    assert holm([0.03, 0.01, 0.04, 0.02]) == pytest.approx((0.06, 0.04, 0.06, 0.06))


def test_holm_clips_at_one_and_does_not_change_a_single_test() -> None:
    assert holm([0.6, 0.7, 0.001]) == pytest.approx((1.0, 1.0, 0.003))
    assert holm([0.2]) == (0.2,)
    assert holm([]) == ()


def test_holm_treats_equal_p_values_equally() -> None:
    assert holm([0.02, 0.02, 0.5]) == pytest.approx((0.06, 0.06, 0.5))


P_VALUES = st.lists(st.floats(0, 1), max_size=8)


@given(P_VALUES)
def test_holm_keeps_the_order_of_the_tests_and_never_lowers_a_p_value(values: list[float]) -> None:
    adjusted = holm(values)
    assert all(p <= q <= 1 for p, q in zip(values, adjusted, strict=True))
    pairs = sorted(zip(values, adjusted, strict=True))
    assert [q for _, q in pairs] == sorted(adjusted)


@given(P_VALUES.filter(bool))
def test_holm_lies_between_the_plain_and_the_bonferroni_p_value(values: list[float]) -> None:
    for p, q in zip(values, holm(values), strict=True):
        assert q <= min(1.0, len(values) * max(values))
        assert q >= p
    assert min(holm(values)) == min(1.0, len(values) * min(values))


@given(P_VALUES)
def test_holm_rejects_what_the_step_down_procedure_rejects(values: list[float]) -> None:
    rejected: set[int] = set()
    for rank, position in enumerate(sorted(range(len(values)), key=values.__getitem__)):
        if (len(values) - rank) * values[position] > 0.05:
            break
        rejected.add(position)
    assert {i for i, p in enumerate(holm(values)) if p <= 0.05} == rejected


def test_the_interval_of_two_different_scores_spans_both() -> None:
    # A resample of (0, 1) is (0, 0) and (1, 1) in a quarter of the cases each.
    assert bootstrap_interval([0.0, 1.0]) == (0.0, 1.0)


def test_the_interval_excludes_the_outer_two_and_a_half_percent() -> None:
    # Of (0, 0, 0, 1): no 1 in 31.6 %, three in 4.7 %, four in 0.4 % of the resamples.
    assert bootstrap_interval([0.0, 0.0, 0.0, 1.0]) == (0.0, 0.75)


def test_the_interval_of_many_scores_approximates_the_normal_one() -> None:
    low, high = bootstrap_interval([0.0, 1.0] * 200)
    half = 1.96 * 0.5 / 400**0.5
    assert low == pytest.approx(0.5 - half, abs=0.004)
    assert high == pytest.approx(0.5 + half, abs=0.004)


def test_a_difference_in_one_question_is_not_significant() -> None:
    first = [0.1 * (n % 11) for n in range(171)]
    assert paired_permutation(first, [*first[:-1], first[-1] + 0.37]).p_value > 0.9


def test_a_significant_loss_is_not_better() -> None:
    assert Paired(50, 3.0, 0.01).better
    assert not Paired(50, -3.0, 0.01).better


@pytest.mark.parametrize(
    ("first", "second", "p_value"),
    [
        # All three differ the same way: 2 of the 8 ways to swap are as extreme.
        ([1.0, 1.0, 1.0], [0.0, 0.0, 0.0], 2 / 8),
        # One differs: every way to swap is as extreme.
        ([1.0, 0.0, 0.0], [0.0, 0.0, 0.0], 1.0),
        # Differences 0.5, 0.25 and -0.125: sums of at least 0.625, either way, in 4 of 8.
        ([0.5, 0.25, 0.0], [0.0, 0.0, 0.125], 4 / 8),
        ([1.0], [0.0], 1.0),
    ],
)
def test_the_exact_p_value_of_few_questions_by_hand(
    first: list[float], second: list[float], p_value: float
) -> None:
    paired = paired_permutation(first, second)
    assert paired.n == len(first)
    assert paired.p_value == pytest.approx(p_value)
    assert paired.difference == pytest.approx(100 * (sum(first) - sum(second)) / len(first))


def test_the_p_value_does_not_depend_on_which_run_comes_first() -> None:
    first, second = [1.0, 0.5, 0.25, 0.0], [0.0, 0.25, 0.5, 0.0]
    one, other = paired_permutation(first, second), paired_permutation(second, first)
    assert one.p_value == pytest.approx(other.p_value)
    assert one.difference == -other.difference


def test_scores_that_cannot_be_paired_are_an_error() -> None:
    with pytest.raises(ValueError, match="longer"):
        paired_permutation([1.0], [1.0, 0.0])


def test_questions_without_a_difference_do_not_affect_exactness() -> None:
    same = [0.5] * 500
    assert paired_permutation([1.0] * 10 + same, [0.0] * 10 + same).p_value == 2 / 2**10


RIGHT = [(False, False), (True, True)]
EARLY = [(False, False), (True, False)]
LONG = [(False, False), (False, True), (False, True), (True, True)]
NEVER = [(False, False), (False, False), (False, False)]


def test_steps_and_questions_are_counted_by_hand() -> None:
    scored = sufficiency([RIGHT, EARLY, LONG, NEVER, NEVER])
    assert scored == pytest.approx(
        {
            "questions": 5, "precision": 200 / 3, "recall": 50, "f1": 400 / 7,
            "accuracy": 1100 / 14, "stopped_early": 20, "searched_long": 20,
        }
    )  # fmt: skip


def test_a_search_that_ends_at_the_first_sufficient_step_is_not_too_long() -> None:
    # Everything was there, the judge did not see it, but no further step was taken.
    scored = sufficiency([[(False, False), (False, True)]])
    assert (scored["recall"], scored["searched_long"]) == (0.0, 0.0)


def test_continuing_after_a_wrong_sufficient_is_not_an_early_stop() -> None:
    scored = sufficiency([[(True, False), (True, True)]])
    shares = scored["stopped_early"], scored["precision"], scored["recall"]
    assert shares == (0.0, 50.0, 100.0)


def test_ratios_with_a_zero_denominator_are_none() -> None:
    never, early = sufficiency([NEVER]), sufficiency([EARLY])
    assert [never[name] for name in ("precision", "recall", "f1", "accuracy")] == [
        None, None, None, 100.0
    ]  # fmt: skip
    assert [early[name] for name in ("precision", "recall", "f1")] == [0.0, None, 0.0]


def test_without_judged_steps_every_ratio_is_none() -> None:
    assert tuple(sufficiency([]).values()) == (0, *[None] * 6)


def test_questions_without_gold_titles_or_judged_steps_are_excluded() -> None:
    assert sufficiency([RIGHT, [(True, None)], []]) == sufficiency([RIGHT])


VERDICTS = st.lists(st.tuples(st.booleans(), st.booleans() | st.none()), max_size=5)


@given(st.lists(VERDICTS, max_size=6))
def test_ratios_are_percentages_from_0_to_100(questions: list[list[Verdict]]) -> None:
    counted, *shares = sufficiency(questions).values()
    assert counted is not None and counted <= len(questions)
    assert all(share is None or 0.0 <= share <= 100.0 for share in shares)
    precision, recall, f1, *_ = shares
    if precision and recall:
        assert f1 == pytest.approx(harmonic_mean((precision, recall)))


def test_the_interval_of_one_question_is_the_whole_scale() -> None:
    assert bootstrap_interval([0.667]) == (0.0, 1.0)
