"""Reports: means with failures as 0, breakdowns, intervals, and the test between two runs."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from ga_dspy.errors import InputError
from ga_dspy.eval import Protocol, Report, Result, paired_test
from ga_dspy.eval.statistics import bootstrap_interval, paired_permutation
from ga_dspy.passage import Passage

PROTOCOL = Protocol.of([], dataset="made", source="made", program="p", lm="none")


def result(number: int, answer: str | None = "yes", **more: Any) -> Result:
    usual: dict[str, Any] = {
        "id": f"q{number}",
        "question": f"{number}?",
        "type": "bridge",
        "gold": ("yes",),
        "gold_titles": (),
        "answer": answer,
        "steps": 1,
        "calls": 2,
        "tokens": 30,
    }
    return Result(**{**usual, **more})


def failure(number: int, **more: Any) -> Result:
    untold = {"steps": None, "calls": None, "tokens": None}
    return result(number, None, **{**untold, "error": "ValueError: x", **more})


def report(*results: Result) -> Report:
    return Report(PROTOCOL, results, 1.5)


def test_the_summary_has_exactly_the_stated_keys(tmp_path: Path) -> None:
    report(result(1)).write(tmp_path)
    summary = json.loads((tmp_path / "summary.json").read_text("utf-8"))
    assert list(summary) == [
        *("dataset", "program", "lm", "n", "f1", "em", "acc", "support_recall", "failures"),
        *("f1_official", "f1_squad", "support_precision", "fact_em", "fact_f1", "joint_em"),
        *("joint_f1", "graph_precision", "graph_recall", "chain_precision", "chain_recall"),
        *(
            "supported",
            "grounded_share",
            "faithful_share",
            "sufficiency",
            "by_step",
            "steps_reached",
            "usage",
        ),
        *("steps_mean", "lm_calls_mean", "tokens_mean", "seconds"),
        *("ci95", "by_type", "failed", "protocol", "protocol_hash"),
    ]
    assert summary["protocol_hash"] == PROTOCOL.hash
    assert summary["protocol"] == PROTOCOL.model_dump(mode="json")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["predictions.jsonl", "summary.json"]


def test_scores_are_percent_over_all_questions_with_two_decimals() -> None:
    summary = report(result(1), result(2, "no"), failure(3)).summary()
    assert (summary["f1"], summary["em"], summary["acc"]) == (33.33, 33.33, 33.33)
    assert (summary["n"], summary["failures"]) == (3, 1)
    assert (summary["steps_mean"], summary["lm_calls_mean"], summary["tokens_mean"]) == (
        0.67,
        1.33,
        20.0,
    )


def test_a_program_that_tells_no_counts_has_no_means_of_them() -> None:
    summary = report(result(1, steps=None, calls=None), failure(2)).summary()
    assert (summary["steps_mean"], summary["lm_calls_mean"]) == (None, None)


def test_support_recall_is_over_the_questions_that_name_gold_titles() -> None:
    half = result(
        1,
        gold_titles=("A", "B"),
        passages=(Passage(id="1", title="A", text=""), Passage(id="2", title="C", text="")),
    )
    assert report(half, result(2), failure(3, gold_titles=("A",))).support_recall == 25.0
    assert report(result(2)).support_recall is None


def test_scores_are_broken_down_by_type_and_by_steps() -> None:
    made = report(
        result(1, steps=10),
        result(2, "no", type="comparison", steps=2),
        result(3, type="", steps=2),
        failure(4, type="comparison"),
    )
    by_type = {name: (row["n"], row["f1"]) for name, row in made.by_type().items()}
    assert by_type == {"(none)": (1, 100.0), "bridge": (1, 100.0), "comparison": (2, 0.0)}
    by_steps = [(name, row["n"], row["f1"]) for name, row in made.by_steps().items()]
    assert by_steps == [("2", 2, 50.0), ("10", 1, 100.0), ("failed", 1, 0.0)]


def test_the_interval_holds_the_mean_and_repeats_exactly() -> None:
    made = report(*(result(number, "yes" if number % 3 else "no") for number in range(60)))
    low, high = made.ci95
    assert low < made.f1 < high
    assert (low, high) == made.ci95
    assert high - low == pytest.approx(2 * 1.96 * 100 * (2 / 9 / 60) ** 0.5, rel=0.1)


def test_the_interval_of_equal_scores_is_a_point() -> None:
    assert bootstrap_interval([1.0, 1.0]) == (1.0, 1.0)


def test_two_runs_are_compared_over_the_questions_they_share() -> None:
    a = report(*(result(number) for number in range(10)), result(99, "no"))
    b = report(*(result(number, "no") for number in range(10)), result(98))
    paired = paired_test(a, b)
    assert (paired.n, paired.difference) == (10, 100.0)
    # Ten pairs, each swapped or not: 2 of the 1,024 ways are as extreme.
    assert paired.p_value == pytest.approx(2 / 2**10)


def test_a_run_does_not_differ_from_itself() -> None:
    a = report(*(result(number, "yes" if number % 2 else "no") for number in range(40)))
    assert paired_test(a, a, "em") == (40, 0.0, 1.0)


def test_the_test_repeats_exactly_and_sees_a_difference_among_many_questions() -> None:
    draw = random.Random(5)
    first = [float(draw.random() < 0.6) for _ in range(300)]
    second = [float(draw.random() < 0.4) for _ in range(300)]
    paired = paired_permutation(first, second)
    assert paired.p_value < 0.05
    assert paired == paired_permutation(first, second)


def test_runs_that_share_no_question_cannot_be_compared() -> None:
    with pytest.raises(InputError, match="share no question"):
        paired_test(report(result(1)), report(result(2)))


def test_an_unwritable_directory_leaves_the_old_summary(tmp_path: Path) -> None:
    report(result(1)).write(tmp_path)
    before = (tmp_path / "summary.json").read_bytes()
    (tmp_path / "summary.json.partial").mkdir()
    with pytest.raises(OSError, match="partial"):
        report(result(1, "no")).write(tmp_path)
    assert (tmp_path / "summary.json").read_bytes() == before
