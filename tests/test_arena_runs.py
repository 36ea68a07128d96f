"""Collecting finished runs: what may stand in one table, what is refused, what is marked."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import dspy
import pytest

from ga_dspy.arena import UnlikeProtocols, collect
from ga_dspy.errors import InputError
from ga_dspy.eval import Protocol, Result
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
            journal.record(position, Result.from_prediction(example, answered), 0.1)


def test_every_run_below_a_folder_is_found(tmp_path: Path) -> None:
    made(tmp_path / "x" / "one", "ircot")
    made(tmp_path / "x" / "deeper" / "two", "vanilla-rag")
    runs = collect([tmp_path])
    assert {(r.method, r.dataset, r.lm, r.difference) for r in runs} == {
        ("ircot", "hotpotqa", "a", ""),
        ("vanilla-rag", "hotpotqa", "a", ""),
    }
    assert runs.differences == []


def test_a_folder_named_beside_its_parent_counts_once(tmp_path: Path) -> None:
    made(tmp_path / "one", "ircot")
    assert len(collect([tmp_path, tmp_path / "one"]).runs) == 1


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
        ({"n": 2}, "n 2 (not 3)"),
        ({"n": 4, "start": 1}, "data hotpotqa"),
        ({"corpus": "c2"}, "corpus c2 (not c1)"),
        ({"score": "squad"}, "score squad (not official)"),
        ({"retriever": "other"}, "retriever other"),
    ],
)
def test_runs_on_other_questions_passages_or_scores_are_refused(
    changes: dict[str, Any], difference: str, tmp_path: Path
) -> None:
    made(tmp_path / "1", "vanilla-rag")
    made(tmp_path / "2", "ircot", **changes)
    with pytest.raises(UnlikeProtocols) as caught:
        collect([tmp_path])
    assert difference in str(caught.value) and str(tmp_path / "2") in str(caught.value)


def test_k_steps_and_lm_may_differ_within_a_dataset(tmp_path: Path) -> None:
    made(tmp_path / "1", "vanilla-rag", k=5)
    made(tmp_path / "2", "vanilla-rag-10", k=10)
    made(tmp_path / "3", "ircot", k=5, steps=4, lm="b")
    assert collect([tmp_path]).differences == []


def test_runs_on_other_datasets_are_compared_with_their_own(tmp_path: Path) -> None:
    made(tmp_path / "1", "ircot")
    made(tmp_path / "2", "ircot", n=2, corpus="c2", dataset="musique")
    runs = collect([tmp_path])
    assert [run.dataset for run in runs] == ["musique", "hotpotqa"]
    assert runs.differences == []


def test_unlike_runs_are_marked_by_how_they_differ(tmp_path: Path) -> None:
    made(tmp_path / "1", "vanilla-rag")
    made(tmp_path / "2", "ircot", corpus="c2")
    made(tmp_path / "3", "search-r1", corpus="c2")
    made(tmp_path / "4", "deep-note", score="squad")
    runs = collect([tmp_path], unlike=True)
    assert {r.method: runs.mark(r) for r in runs} == {
        "vanilla-rag": "", "ircot": " (1)", "search-r1": " (1)", "deep-note": " (2)"
    }  # fmt: skip
    assert runs.differences == [
        "hotpotqa: corpus c2 (not c1)",
        "hotpotqa: score squad (not official)",
    ]


def test_two_runs_of_one_cell_are_refused(tmp_path: Path) -> None:
    made(tmp_path / "1", "ircot", k=5)
    made(tmp_path / "2", "ircot", k=7)
    with pytest.raises(InputError, match=r"both ircot on hotpotqa with a; expected one run per"):
        collect([tmp_path])


def test_a_token_budget_is_a_cell_of_its_own(tmp_path: Path) -> None:
    made(tmp_path / "1", "ircot")
    made(tmp_path / "2", "ircot", settings={"token_budget": 8000})
    assert [run.budget for run in collect([tmp_path])] == [None, 8000]


def test_the_papers_figures_stand_only_beside_the_datasets_own_questions(tmp_path: Path) -> None:
    made(tmp_path / "mine", "ircot")
    ids = ("5a7f6fd75542992e7d278cfa", "5ab48ec25542991779162cdc")
    rows = [
        dspy.Example(id=id, question=f"{id}?", answer="x").with_inputs("question") for id in ids
    ]
    (tmp_path / "theirs").mkdir()
    with RunJournal(tmp_path / "theirs" / "journal.sqlite", protocol(rows, "ircot")) as journal:
        for position, row in enumerate(rows):
            answered = dspy.Prediction(answer="x")
            journal.record(position, Result.from_prediction(row, answered), 0.1)
    assert collect([tmp_path / "mine"]).paper_datasets == []
    assert collect([tmp_path / "mine"], paper=True).paper_datasets == ["hotpotqa"]
    assert collect([tmp_path / "theirs"]).paper_datasets == ["hotpotqa"]


def test_questions_of_ones_own_are_called_by_their_file(tmp_path: Path) -> None:
    made(tmp_path / "one", "ircot", dataset="qa", source="handbook.csv")
    made(tmp_path / "two", "ircot", dataset="qa", source="minutes.jsonl", n=2)
    assert [run.dataset for run in collect([tmp_path])] == ["handbook", "minutes"]
