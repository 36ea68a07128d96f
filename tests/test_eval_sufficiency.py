"""The judgement "sufficient" as a classifier over steps, counted by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ga_dspy.eval.sufficiency import StepVerdict, Sufficiency, sufficiency


def steps(*pairs: tuple[bool, bool | None]) -> list[StepVerdict]:
    return [StepVerdict(judged, sufficed) for judged, sufficed in pairs]


RIGHT = steps((False, False), (True, True))
EARLY = steps((False, False), (True, False))
LONG = steps((False, False), (False, True), (False, True), (True, True))
NEVER = steps((False, False), (False, False), (False, False))


def test_steps_and_questions_are_counted_by_hand() -> None:
    assert sufficiency([RIGHT, EARLY, LONG, NEVER, NEVER]) == Sufficiency(
        true_positives=2,
        false_positives=1,
        true_negatives=9,
        false_negatives=2,
        questions=5,
        left_out=0,
        stopped_early=1 / 5,
        searched_long=1 / 5,
        wasted_steps=2 / 5,
    )


def test_the_ratios_follow_from_the_counts() -> None:
    scored = sufficiency([RIGHT, EARLY, LONG, NEVER, NEVER])
    assert scored.precision == pytest.approx(2 / 3)
    assert scored.recall == pytest.approx(1 / 2)
    assert scored.f1 == pytest.approx(4 / 7)
    assert scored.accuracy == pytest.approx(11 / 14)


def test_a_budget_that_ends_at_the_right_step_wastes_nothing() -> None:
    # Everything was there, the judge did not see it, but no further step was taken.
    scored = sufficiency([steps((False, False), (False, True))])
    assert (scored.false_negatives, scored.searched_long, scored.wasted_steps) == (1, 0.0, 0.0)


def test_going_on_after_a_wrong_sufficient_is_no_early_stop() -> None:
    scored = sufficiency([steps((True, False), (True, True))])
    assert (scored.stopped_early, scored.false_positives, scored.true_positives) == (0.0, 1, 1)


def test_ratios_without_anything_to_divide_by_are_none() -> None:
    never = sufficiency([NEVER])
    assert (never.precision, never.recall, never.f1, never.accuracy) == (None, None, None, 1.0)
    early = sufficiency([EARLY])
    assert (early.precision, early.recall, early.f1) == (0.0, None, 0.0)


def test_nothing_judged_is_all_none() -> None:
    scored = sufficiency([])
    assert tuple(scored) == (0, 0, 0, 0, 0, 0, None, None, None)
    assert (scored.precision, scored.recall, scored.f1, scored.accuracy) == (None,) * 4


def test_questions_of_unknown_truth_and_without_a_judged_step_are_left_out_and_counted() -> None:
    scored = sufficiency([RIGHT, steps((True, None)), []])
    assert (scored.questions, scored.left_out) == (1, 2)
    assert scored._replace(left_out=0) == sufficiency([RIGHT])


VERDICTS = st.lists(st.builds(StepVerdict, st.booleans(), st.booleans() | st.none()), max_size=5)


@given(st.lists(VERDICTS, max_size=6))
def test_every_known_step_is_counted_once(questions: list[list[StepVerdict]]) -> None:
    scored = sufficiency(questions)
    known = [q for q in questions if q and None not in [step.sufficed for step in q]]
    assert sum(scored[:4]) == sum(map(len, known))
    assert scored.questions + scored.left_out == len(questions)
