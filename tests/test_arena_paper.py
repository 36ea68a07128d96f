"""The paper's scores: typed correctly, and honest about where they contradict one another."""

from __future__ import annotations

from collections import Counter
from statistics import fmean

import pytest

from ga_dspy.arena.methods import METHODS
from ga_dspy.arena.report import CONTRADICTIONS, PAPER_ROWS, PaperRow
from ga_dspy.arena.runs import DATASETS

QWEN_7B, LLAMA_8B = "Qwen2.5-7B-Instruct", "Llama3.1-8B-Instruct"
QWEN_14B, QWEN_32B = "Qwen2.5-14B-Instruct", "Qwen3-32B"
MISPRINTED = {
    ("1", LLAMA_8B, "vanilla-rag", "f1"),
    ("2", LLAMA_8B, "vanilla-rag", "f1"),
    ("1", QWEN_14B, "graph-anchor", "em"),
    ("2", QWEN_7B, "qa-graph", "em"),
}


def printed_and_mean(row: PaperRow, score: str) -> tuple[float, float]:
    by_dataset = getattr(row, score)
    return by_dataset["average"], fmean(by_dataset[name] for name in DATASETS)


@pytest.mark.parametrize("row", PAPER_ROWS, ids=lambda row: f"{row.table} {row.lm} {row.method}")
def test_the_printed_averages_are_those_of_the_columns_except_for_known_misprints(
    row: PaperRow,
) -> None:
    for score in ("f1", "em"):
        printed, mean = printed_and_mean(row, score)
        agree = abs(printed - mean) < 0.0101
        assert agree != ((row.table, row.lm, row.method, score) in MISPRINTED)


def test_every_row_names_a_method_of_ours() -> None:
    assert {row.method for row in PAPER_ROWS} <= set(METHODS)


def test_every_lm_has_the_rows_that_the_paper_prints() -> None:
    assert Counter((row.table, row.lm) for row in PAPER_ROWS) == {
        ("1", QWEN_7B): 6,
        ("1", LLAMA_8B): 5,
        ("1", QWEN_14B): 2,
        ("1", QWEN_32B): 2,
        ("2", QWEN_7B): 7,
        ("2", LLAMA_8B): 7,
        ("4", QWEN_7B): 5,
        ("4", LLAMA_8B): 5,
    }


def test_every_contradiction_in_the_scores_is_named_and_no_other() -> None:
    named = "\n".join(CONTRADICTIONS)
    for table, lm, method, score in MISPRINTED:
        (row,) = (r for r in PAPER_ROWS if (r.table, r.lm, r.method) == (table, lm, method))
        printed, mean = printed_and_mean(row, score)
        told = f"with {lm} an average {score.upper()} of {printed:.2f}; its columns average "
        assert f"Table {table} gives " in named and f"{told}{mean:.2f}" in named
    cells: dict[tuple[str, str, str], set[tuple[float, float]]] = {}
    for row in PAPER_ROWS:
        for name in DATASETS:
            cells.setdefault((row.lm, row.method, name), set()).add((row.f1[name], row.em[name]))
    differing = [key for key, values in cells.items() if len(values) > 1]
    assert differing == [(LLAMA_8B, "vanilla-rag", "2wikimultihopqa")]
    assert "Vanilla RAG with Llama3.1-8B-Instruct on 2WikiMultiHopQA" in named
    assert len(CONTRADICTIONS) == len(differing) + len(MISPRINTED)
