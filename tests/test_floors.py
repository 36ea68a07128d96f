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

pytestmark = [pytest.mark.data, pytest.mark.slow, pytest.mark.timeout(1500)]


@pytest.fixture(scope="module")
def hotpotqa() -> Path:
    folder = Path(__file__).parents[1] / ".." / "shared" / "data" / "hotpotqa"
    if not folder.is_dir():
        pytest.skip(f"the HotpotQA samples are not at {folder}")
    return folder


@pytest.fixture(scope="module")
def questions(hotpotqa: Path) -> list[dspy.Example]:
    return load("hotpotqa", hotpotqa / "dev_distractor.json")


@pytest.fixture(scope="module")
def index(hotpotqa: Path) -> Index:
    """The pooled paragraphs of all three files: takes minutes to encode."""
    pytest.importorskip("sentence_transformers")
    torch = pytest.importorskip("torch")
    torch.set_num_threads(os.cpu_count() or 1)
    return Index.from_passages(read_passages(sorted(hotpotqa.glob("*.json"))))


def test_linked_retrieval_finds_all_gold_passages(
    index: Index, questions: list[dspy.Example]
) -> None:
    asked = [(e.question, frozenset(e.gold_titles)) for e in questions]
    top5, top10 = bench(index, asked, ks=(5, 10))
    assert top5.all_gold >= 88
    assert top10.all_gold >= 94


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
