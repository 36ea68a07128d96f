"""The paper's figures: typed right, and honest about where they contradict one another."""

from __future__ import annotations

from collections import Counter

import pytest

from ga_dspy.arena import paper
from ga_dspy.arena.methods import METHODS
from ga_dspy.arena.runs import DATASETS

QWEN_7B, LLAMA_8B = "Qwen2.5-7B-Instruct", "Llama3.1-8B-Instruct"
QWEN_14B, QWEN_32B = "Qwen2.5-14B-Instruct", "Qwen3-32B"
ROWS = (*paper.TABLE_1, *paper.TABLE_2, *paper.TABLE_4)
MISPRINTED = {
    (1, LLAMA_8B, "vanilla-rag", "f1"),
    (2, LLAMA_8B, "vanilla-rag", "f1"),
    (1, QWEN_14B, "graph-anchor", "em"),
    (2, QWEN_7B, "qa-graph", "em"),
}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.table} {row.lm} {row.method}")
def test_the_printed_averages_are_those_of_the_columns_but_for_known_misprints(
    row: paper.Scores,
) -> None:
    for name in ("f1", "em"):
        printed, mean = getattr(row.average, name), getattr(row.mean(), name)
        agree = abs(printed - mean) < 0.0101
        assert agree != ((row.table, row.lm, row.method, name) in MISPRINTED)


def test_every_row_names_a_method_of_ours_and_all_four_datasets() -> None:
    timed = {times.method for times in paper.TABLE_5}
    assert {row.method for row in ROWS} | timed <= set(METHODS)
    assert all(list(row.by_dataset) == list(DATASETS) for row in ROWS)
    assert all(list(times.seconds) == list(DATASETS) for times in paper.TABLE_5)


def test_every_lm_has_the_rows_that_the_paper_prints() -> None:
    counted = Counter((row.table, row.lm) for row in ROWS)
    assert counted == {
        (1, QWEN_7B): 6,
        (1, LLAMA_8B): 5,
        (1, QWEN_14B): 2,
        (1, QWEN_32B): 2,
        (2, QWEN_7B): 7,
        (2, LLAMA_8B): 7,
        (4, QWEN_7B): 5,
        (4, LLAMA_8B): 5,
    }


@pytest.mark.parametrize("shares", paper.TABLE_3, ids=lambda row: f"{row.lm} {row.dataset}")
def test_the_shares_of_steps_add_up_to_all_questions(shares: paper.Shares) -> None:
    assert sum(shares.steps) == pytest.approx(100.0, abs=0.11)


def test_every_contradiction_that_the_figures_hold_is_named_and_no_other() -> None:
    named = "\n".join(paper.CONTRADICTIONS)
    for table, lm, method, score in MISPRINTED:
        (row,) = (r for r in ROWS if (r.table, r.lm, r.method) == (table, lm, method))
        printed, mean = getattr(row.average, score), getattr(row.mean(), score)
        told = f"with {lm} an average {score.upper()} of {printed:.2f}; its columns average "
        assert f"Table {table} gives " in named and f"{told}{mean:.2f}" in named
    cells: dict[tuple[str, str, str], set[paper.Score]] = {}
    for row in ROWS:
        for dataset, one in row.by_dataset.items():
            cells.setdefault((row.lm, row.method, dataset), set()).add(one)
    differing = [key for key, values in cells.items() if len(values) > 1]
    assert differing == [(LLAMA_8B, "vanilla-rag", "2wikimultihopqa")]
    assert "Vanilla RAG with Llama3.1-8B-Instruct on 2WikiMultiHopQA" in named
    assert len(paper.CONTRADICTIONS) == len(differing) + len(MISPRINTED)


def test_a_mean_over_some_datasets_is_computed_from_their_columns() -> None:
    qwen = paper.TABLE_1[0]
    assert qwen.mean(["musique", "bamboogle"]) == pytest.approx((19.835, 11.7))
