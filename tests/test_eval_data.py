"""The loaders on the public samples beside the checkout."""

from __future__ import annotations

from pathlib import Path

import pytest

from ga_dspy.eval import WrongFormat, detect, exact_match, read

pytestmark = pytest.mark.data


@pytest.mark.parametrize(
    ("dataset", "file", "rows", "flaws"),
    [
        ("hotpotqa", "hotpotqa/train.json", 200, {"fewer paragraphs": 1}),
        ("hotpotqa", "hotpotqa/dev_distractor.json", 171, {"fewer paragraphs": 1}),
        (
            "hotpotqa",
            "hotpotqa/dev_fullwiki.json",
            457,
            {"fewer paragraphs": 2, "gold paragraph not in context": 320, "no context": 2},
        ),
        ("musique", "musique/train.jsonl", 100, {}),
        ("musique", "musique/dev.jsonl", 100, {}),
        ("2wikimultihopqa", "2wikimultihopqa/dev.json", 250, {}),
        ("bamboogle", "bamboogle/test.json", 125, {}),
    ],
)
def test_every_row_of_a_real_file_becomes_a_question(
    dataset: str, file: str, rows: int, flaws: dict[str, int], data: Path
) -> None:
    path = data / file
    loaded = read(dataset, path)
    assert detect(path) == dataset
    assert len(loaded.examples) == loaded.report.rows == rows
    assert len({example.id for example in loaded.examples}) == rows
    assert loaded.report.unusable == ()
    assert loaded.report.flaws == flaws
    assert all(exact_match(example.answer, example.answers) == 1.0 for example in loaded.examples)
    named = dataset != "bamboogle"
    assert all(bool(example.gold_titles) == named for example in loaded.examples)


def test_a_passage_corpus_is_not_taken_for_a_question_file(data: Path) -> None:
    with pytest.raises(WrongFormat, match="no row has a field 'question'"):
        detect(data / "2wikimultihopqa" / "corpus.json")
