"""Minimum scores of the defaults on public data: linked retrieval, the embedded LM."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import dspy
import pytest
from measure_recall import measure_recall

from ga_dspy import GraphAnchor, Index, VanillaRAG, extractive_lm, read_passages
from ga_dspy.eval import load
from ga_dspy.eval.scores import f1
from ga_dspy.programs import MultiHopProgram

pytestmark = [pytest.mark.data, pytest.mark.slow]


@pytest.fixture(scope="module")
def questions(data: Path) -> list[dspy.Example]:
    return load("hotpotqa", data / "hotpotqa" / "dev_distractor.json")


@pytest.fixture(scope="module")
def index(data: Path) -> Index:
    """The pooled paragraphs of all three HotpotQA files."""
    return Index.from_passages(read_passages(sorted((data / "hotpotqa").glob("*.json"))))


def all_gold(index: Index, questions: list[dspy.Example]) -> tuple[float, float]:
    asked = [(e.question, frozenset(e.gold_titles)) for e in questions]
    top5, top10 = measure_recall(index, asked, depths=(5, 10))
    return top5.all_gold, top10.all_gold


def test_linked_retrieval_finds_all_gold_passages(
    index: Index, questions: list[dspy.Example]
) -> None:
    top5, top10 = all_gold(index, questions)
    assert top5 >= 88
    assert top10 >= 95


def mean_f1(program: MultiHopProgram, questions: list[dspy.Example]) -> float:
    with dspy.context(lm=extractive_lm()):
        scores = [f1(program(question=e.question).answer, e.answers) for e in questions]
    return 100 * sum(scores) / len(scores)


@pytest.mark.parametrize(("program", "floor"), [(VanillaRAG, 45), (GraphAnchor, 45)])
def test_the_embedded_lm_stays_above_its_floor(
    index: Index,
    questions: list[dspy.Example],
    program: Callable[[Index], MultiHopProgram],
    floor: float,
) -> None:
    assert mean_f1(program(index), questions) >= floor
