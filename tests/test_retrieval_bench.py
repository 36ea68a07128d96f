"""Counting gold passages among the first."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from measure_recall import measure_recall

from ga_dspy.errors import InputError
from ga_dspy.passage import Passage
from ga_dspy.retrieval import Index, read_passages
from ga_dspy.retrieval.rank import KINDS


def ranked(*titles: str) -> list[Passage]:
    return [Passage(id=title, title=title, text="x") for title in titles]


def test_recall_is_a_mean_and_all_gold_counts_whole_questions() -> None:
    answers = {"one": ranked("A", "B", "C"), "two": ranked("X", "A", "Y")}
    questions = [("one", frozenset({"A", "B"})), ("two", frozenset({"A", "Z"}))]
    one, two = measure_recall(lambda query, k: answers[query][:k], questions, depths=(1, 2))
    assert (one.k, one.recall, one.all_gold) == (1, 25.0, 0.0)
    assert (two.k, two.recall, two.all_gold) == (2, 75.0, 50.0)


def test_questions_without_gold_titles_are_refused() -> None:
    for questions in ([], [("one", frozenset[str]())]):
        with pytest.raises(InputError, match="gold"):
            measure_recall(lambda query, k: [], questions)


def test_dataset_files_are_pooled_and_each_kind_is_scored(tmp_path: Path) -> None:
    context = [["Nile", ["The Nile flows past Aswan."]], ["Aswan", ["A city with a quarry."]]]
    (tmp_path / "dev.json").write_text(json.dumps([{"context": context}]))
    questions = [("Which quarry does the Nile flow past?", frozenset({"Nile", "Aswan"}))]
    index = Index.from_passages(read_passages([tmp_path / "dev.json"]), encoder="hash-64")
    for kind in KINDS:
        (depth,) = measure_recall(index.as_kind(kind), questions, depths=(2,))
        assert (depth.k, depth.recall, depth.all_gold) == (2, 100.0, 100.0)


@pytest.mark.data
def test_links_beat_words_on_hotpotqa_without_any_model(data: Path) -> None:
    rows = json.loads((data / "hotpotqa" / "dev_distractor.json").read_text())
    questions = [
        (row["question"], frozenset(title for title, _ in row["supporting_facts"])) for row in rows
    ]
    passages = read_passages(data / "hotpotqa" / "dev_distractor.json")
    index = Index.from_passages(passages, encoder="hash-256")
    (sparse,) = measure_recall(index.as_kind("sparse"), questions, depths=(10,))
    (linked,) = measure_recall(index, questions, depths=(10,))
    assert sparse.all_gold >= 80
    assert linked.all_gold >= 92
