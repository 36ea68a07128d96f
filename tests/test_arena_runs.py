"""Collecting finished runs: which ones share a table, and which are refused."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import dspy
import pytest

from ga_dspy.errors import InputError
from ga_dspy.eval import Protocol, Result
from ga_dspy.eval.comparison import Run, collect
from ga_dspy.eval.result import RunJournal


def questions(n: int, start: int = 0) -> list[dspy.Example]:
    rows = (dspy.Example(id=f"q{i}", question=f"{i}?", answer=str(i)) for i in range(start, n))
    return [row.with_inputs("question") for row in rows]


def protocol(examples: Sequence[dspy.Example], program: str, **changes: Any) -> Protocol:
    usual: dict[str, Any] = {"dataset": "hotpotqa", "source": "made", "lm": "a", "corpus": "c1"}
    return Protocol.of(examples, program=program, **{**usual, **changes})


def made(out: Path, program: str, n: int = 3, start: int = 0, **changes: Any) -> None:
    examples = questions(n, start)
    out.mkdir(parents=True)
    with RunJournal(out / "journal.sqlite", protocol(examples, program, **changes)) as journal:
        for position, example in enumerate(examples):
            answered = dspy.Prediction(answer=example.answer)
            journal.record(position, Result.from_prediction(example, answered))


def named(runs: Sequence[Run]) -> list[tuple[str, str]]:
    return [(run.label, run.group) for run in runs]


def test_every_run_below_a_folder_is_found(tmp_path: Path) -> None:
    made(tmp_path / "x" / "one", "ircot")
    made(tmp_path / "x" / "deeper" / "two", "vanilla-rag")
    assert named(collect([tmp_path])) == [("Vanilla RAG", "HotpotQA, a"), ("IRCoT", "HotpotQA, a")]


def test_a_folder_given_with_its_parent_counts_once(tmp_path: Path) -> None:
    made(tmp_path / "one", "ircot")
    assert len(collect([tmp_path, tmp_path / "one"])) == 1


def test_a_folder_without_a_run_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no run"):
        collect([tmp_path])
    with pytest.raises(InputError, match="holds no run"):
        collect([tmp_path / "absent"])


def test_an_unfinished_run_is_refused(tmp_path: Path) -> None:
    with RunJournal(tmp_path / "journal.sqlite", protocol(questions(2), "ircot")):
        pass
    with pytest.raises(InputError, match="0 of 2"):
        collect([tmp_path])


@pytest.mark.parametrize(
    ("changes", "difference"),
    [
        ({"n": 2}, "questions 2 with hash"),
        ({"n": 4, "start": 1}, "questions 3 with hash"),
        ({"corpus": "c2"}, "corpus c2 (not c1)"),
        ({"score": "squad"}, "score squad (not official)"),
        ({"retriever": "other"}, "retriever other"),
    ],
)
def test_runs_on_other_questions_passages_or_scores_are_in_a_separate_group(
    changes: dict[str, Any], difference: str, tmp_path: Path
) -> None:
    made(tmp_path / "1", "vanilla-rag")
    made(tmp_path / "2", "ircot", **changes)
    first, second = collect([tmp_path])
    assert (first.label, first.group) == ("Vanilla RAG", "HotpotQA, a")
    assert second.label == "IRCoT" and second.group.startswith("HotpotQA, a, ")
    assert difference in second.group


def test_k_steps_and_lm_may_differ_within_a_dataset(tmp_path: Path) -> None:
    made(tmp_path / "1", "vanilla-rag", k=5)
    made(tmp_path / "2", "vanilla-rag-10", k=10)
    made(tmp_path / "3", "ircot", k=5, steps=4, lm="b")
    assert named(collect([tmp_path])) == [
        ("Vanilla RAG", "HotpotQA, a"), ("Vanilla RAG (top 10)", "HotpotQA, a"),
        ("IRCoT", "HotpotQA, b"),
    ]  # fmt: skip


def test_runs_on_other_datasets_are_compared_with_their_own(tmp_path: Path) -> None:
    made(tmp_path / "1", "ircot")
    made(tmp_path / "2", "ircot", n=2, corpus="c2", dataset="musique")
    assert [run.group for run in collect([tmp_path])] == ["MuSiQue, a", "HotpotQA, a"]


def test_two_runs_of_one_method_dataset_and_lm_are_refused(tmp_path: Path) -> None:
    made(tmp_path / "1", "ircot", k=5)
    made(tmp_path / "2", "ircot", k=7)
    with pytest.raises(InputError, match=r"2 runs of IRCoT on HotpotQA, a; expected one run per"):
        collect([tmp_path])


def test_a_token_budget_is_a_separate_cell(tmp_path: Path) -> None:
    made(tmp_path / "1", "ircot")
    made(tmp_path / "2", "ircot", settings={"token_budget": 8000})
    labels = [run.label for run in collect([tmp_path])]
    assert labels == ["IRCoT", "IRCoT within 8,000 tokens"]


def test_custom_questions_are_named_after_their_file(tmp_path: Path) -> None:
    made(tmp_path / "one", "ircot", dataset="qa", source="handbook.csv")
    made(tmp_path / "two", "ircot", dataset="qa", source="minutes.jsonl", n=2)
    assert [run.group for run in collect([tmp_path])] == ["handbook, a", "minutes, a"]
