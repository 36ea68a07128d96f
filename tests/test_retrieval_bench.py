"""Recall of the index on HotpotQA's own paragraphs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from measure_recall import measure_recall

from ga_dspy.retrieval import Index, read_passages


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
