"""What the defaults must reach on public data: retrieval by links, answers by the embedded LM."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import dspy
import pytest

from ga_dspy import GraphAnchor, Index, VanillaRAG, extractive_lm, read_passages
from ga_dspy.eval import load
from ga_dspy.eval.scores import f1
from ga_dspy.programs import MultiHopProgram
from ga_dspy.retrieval.bench import bench

pytestmark = [pytest.mark.data, pytest.mark.slow]

ENCODED = 250
"""Passages that MiniLM encodes here, in about 15 seconds; hashed words serve for the whole pool."""


@pytest.fixture(scope="module")
def questions(data: Path) -> list[dspy.Example]:
    return load("hotpotqa", data / "hotpotqa" / "dev_distractor.json")


@pytest.fixture(scope="module")
def index(data: Path) -> Index:
    """The pooled paragraphs of all three HotpotQA files, with hashed words for vectors."""
    files = sorted((data / "hotpotqa").glob("*.json"))
    return Index.from_passages(read_passages(files), encoder="hash-256")


def all_gold(index: Index, questions: list[dspy.Example]) -> tuple[float, float]:
    asked = [(e.question, frozenset(e.gold_titles)) for e in questions]
    top5, top10 = bench(index, asked, ks=(5, 10))
    return top5.all_gold, top10.all_gold


def test_linked_retrieval_finds_all_gold_passages(
    index: Index, questions: list[dspy.Example]
) -> None:
    top5, top10 = all_gold(index, questions)
    assert top5 >= 88
    assert top10 >= 94


def test_the_default_encoder_finds_all_gold_passages(
    data: Path, questions: list[dspy.Example]
) -> None:
    pytest.importorskip("sentence_transformers")
    torch = pytest.importorskip("torch")
    torch.set_num_threads(os.cpu_count() or 1)
    passages = read_passages(data / "hotpotqa" / "dev_distractor.json")[:ENCODED]
    titles = {passage.title for passage in passages}
    within = [e for e in questions if titles.issuperset(e.gold_titles)]
    assert len(within) >= 20
    top5, top10 = all_gold(Index.from_passages(passages), within)
    assert top5 >= 88
    assert top10 >= 94


def mean_f1(program: MultiHopProgram, questions: list[dspy.Example]) -> float:
    with dspy.context(lm=extractive_lm()):
        scores = [f1(program(question=e.question).answer, e.answers) for e in questions]
    return 100 * sum(scores) / len(scores)


@pytest.mark.parametrize(("program", "floor"), [(VanillaRAG, 36), (GraphAnchor, 39)])
def test_the_embedded_lm_stays_above_its_floor(
    index: Index,
    questions: list[dspy.Example],
    program: Callable[[Index], MultiHopProgram],
    floor: float,
) -> None:
    assert mean_f1(program(index), questions) >= floor
