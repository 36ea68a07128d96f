"""The paper's own figures (Tables 1 to 5), to stand beside measured ones.

From "GraphAnchor", as printed: 500 questions a dataset (125 of Bamboogle), bge-large-en-v1.5, five
passages a query, at most four steps. Scores are percent. Methods are named as in
`ga_dspy.arena.methods`, datasets as in `ga_dspy.eval.DATASETS`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import fsum
from typing import NamedTuple

from ga_dspy.arena.labels import dataset_label, method_label

DATASETS = ("musique", "hotpotqa", "2wikimultihopqa", "bamboogle")
"""The columns of every table, in order."""

QUESTIONS = dict(zip(DATASETS, (500, 500, 500, 125), strict=True))
"""How many questions of each dataset were asked."""

K = 5
"""How many passages a query brought, where a method does not say otherwise."""

TIMED = 100
"""How many questions the times of Table 5 are for."""

QWEN_7B, LLAMA_8B = "Qwen2.5-7B-Instruct", "Llama3.1-8B-Instruct"
QWEN_14B, QWEN_32B = "Qwen2.5-14B-Instruct", "Qwen3-32B"

_ROUNDING = 0.0101  # Four columns rounded to 0.01, and their average rounded once more.


class Score(NamedTuple):
    """F1 and exact match, in percent."""

    f1: float
    em: float


class Scores(NamedTuple):
    """A row of Table 1, 2 or 4: a method with an LM, by dataset, and the average as printed."""

    table: int
    lm: str
    method: str
    by_dataset: dict[str, Score]
    average: Score

    def mean(self, datasets: Sequence[str] = DATASETS) -> Score:
        """The mean over some of the datasets, computed anew."""
        return Score(*(fsum(p) / len(datasets) for p in zip(*self._of(datasets), strict=True)))

    def _of(self, datasets: Sequence[str]) -> Iterator[Score]:
        return (self.by_dataset[name] for name in datasets)


class Shares(NamedTuple):
    """A row of Table 3: percent of the questions that ended at a step, from step 1."""

    lm: str
    dataset: str
    steps: tuple[float, ...]


class Times(NamedTuple):
    """A row of Table 5: seconds for `TIMED` questions, by dataset."""

    lm: str
    method: str
    seconds: dict[str, float]


def _scores(table: int, lm: str, method: str, *printed: float) -> Scores:
    *pairs, average = (Score(*printed[i : i + 2]) for i in range(0, len(printed), 2))
    return Scores(table, lm, method, dict(zip(DATASETS, pairs, strict=True)), average)


def _times(method: str, *seconds: float) -> Times:
    return Times(QWEN_7B, method, dict(zip(DATASETS, seconds, strict=True)))


# fmt: off
TABLE_1 = (
    _scores(1, QWEN_7B, "vanilla-rag",
            18.05, 9.80, 50.93, 40.40, 38.54, 33.60, 21.62, 13.60, 32.29, 24.35),
    _scores(1, QWEN_7B, "ircot",
            17.91, 8.20, 49.55, 36.60, 43.47, 32.80, 21.15, 12.80, 33.02, 22.60),
    _scores(1, QWEN_7B, "iter-retgen",
            21.36, 13.00, 58.81, 47.40, 43.15, 37.60, 24.82, 16.80, 37.04, 28.70),
    _scores(1, QWEN_7B, "search-r1",
            24.95, 17.60, 54.78, 43.40, 49.55, 40.60, 25.13, 20.00, 38.60, 30.40),
    _scores(1, QWEN_7B, "deep-note",
            26.67, 15.80, 59.97, 48.60, 53.72, 43.40, 32.66, 24.00, 43.26, 32.95),
    _scores(1, QWEN_7B, "graph-anchor",
            32.60, 21.20, 66.03, 53.80, 61.64, 52.20, 34.25, 24.80, 48.63, 38.00),
    _scores(1, LLAMA_8B, "vanilla-rag",
            17.43, 9.40, 52.94, 42.20, 37.64, 32.60, 24.40, 16.00, 33.18, 25.05),
    _scores(1, LLAMA_8B, "ircot",
            19.91, 12.40, 50.41, 39.60, 49.67, 39.20, 32.46, 23.20, 38.11, 28.60),
    _scores(1, LLAMA_8B, "iter-retgen",
            18.15, 11.20, 55.97, 43.80, 34.32, 26.60, 26.09, 20.00, 33.63, 25.40),
    _scores(1, LLAMA_8B, "deep-note",
            26.81, 16.60, 59.51, 47.80, 56.65, 45.80, 37.46, 27.20, 45.11, 34.35),
    _scores(1, LLAMA_8B, "graph-anchor",
            28.91, 19.96, 64.37, 50.10, 62.93, 55.14, 36.55, 28.69, 48.19, 38.47),
    _scores(1, QWEN_14B, "vanilla-rag",
            18.60, 9.60, 54.73, 43.80, 43.74, 38.20, 26.74, 15.20, 35.95, 26.70),
    _scores(1, QWEN_14B, "graph-anchor",
            33.73, 23.49, 69.64, 57.44, 64.83, 55.21, 35.22, 27.20, 50.86, 40.86),
    _scores(1, QWEN_32B, "vanilla-rag",
            19.56, 9.80, 54.32, 42.00, 44.69, 37.80, 25.91, 16.80, 36.12, 26.60),
    _scores(1, QWEN_32B, "graph-anchor",
            37.68, 26.40, 69.34, 55.85, 71.59, 60.50, 42.73, 32.23, 55.34, 43.75),
)
"""Table 1: methods."""

TABLE_2 = (
    _scores(2, QWEN_7B, "vanilla-rag",
            18.05, 9.80, 50.93, 40.40, 38.54, 33.60, 21.62, 13.60, 32.29, 24.35),
    _scores(2, QWEN_7B, "qa-docs",
            25.69, 16.60, 61.30, 48.40, 59.11, 48.80, 36.57, 26.40, 45.67, 35.05),
    _scores(2, QWEN_7B, "qa-graph",
            26.17, 15.20, 61.03, 49.06, 54.50, 46.20, 28.56, 20.00, 42.57, 32.75),
    _scores(2, QWEN_7B, "text-index",
            26.76, 17.10, 63.11, 52.10, 59.14, 49.40, 31.06, 24.00, 45.02, 35.65),
    _scores(2, QWEN_7B, "graph-anchor",
            32.60, 21.20, 66.03, 53.80, 61.64, 52.20, 34.25, 24.80, 48.63, 38.00),
    _scores(2, QWEN_7B, "one-step",
            16.89, 8.00, 53.25, 41.20, 40.72, 35.40, 24.70, 16.00, 33.89, 25.15),
    _scores(2, QWEN_7B, "no-graph",
            22.99, 12.63, 55.05, 43.60, 50.64, 42.80, 26.66, 18.40, 38.84, 29.36),
    _scores(2, LLAMA_8B, "vanilla-rag",
            17.43, 9.40, 52.94, 42.20, 37.64, 32.60, 24.40, 16.00, 33.18, 25.05),
    _scores(2, LLAMA_8B, "qa-docs",
            24.45, 17.26, 56.26, 42.74, 55.09, 47.12, 35.62, 27.87, 42.86, 33.75),
    _scores(2, LLAMA_8B, "qa-graph",
            24.69, 15.18, 63.53, 49.69, 49.07, 41.15, 34.53, 27.87, 42.96, 33.47),
    _scores(2, LLAMA_8B, "text-index",
            24.80, 15.98, 61.67, 50.21, 59.18, 51.12, 33.22, 28.00, 44.72, 36.33),
    _scores(2, LLAMA_8B, "graph-anchor",
            28.91, 19.96, 64.37, 50.10, 62.93, 55.14, 36.55, 28.69, 48.19, 38.47),
    _scores(2, LLAMA_8B, "one-step",
            18.86, 9.00, 52.30, 39.00, 42.79, 37.60, 25.50, 17.60, 34.86, 25.80),
    _scores(2, LLAMA_8B, "no-graph",
            21.46, 13.48, 63.03, 49.64, 46.82, 38.59, 33.03, 26.92, 41.09, 32.16),
)
"""Table 2: ablations."""

TABLE_3 = (
    Shares(QWEN_7B, "musique", (5.4, 33.2, 6.4, 55.0)),
    Shares(QWEN_7B, "hotpotqa", (23.4, 34.6, 4.8, 37.2)),
    Shares(QWEN_7B, "2wikimultihopqa", (13.6, 51.6, 8.6, 26.2)),
    Shares(QWEN_7B, "bamboogle", (5.6, 40.8, 8.8, 44.8)),
    Shares(LLAMA_8B, "musique", (0.2, 10.6, 6.7, 82.5)),
    Shares(LLAMA_8B, "hotpotqa", (0.2, 15.1, 10.4, 74.2)),
    Shares(LLAMA_8B, "2wikimultihopqa", (0.6, 24.9, 12.8, 61.7)),
    Shares(LLAMA_8B, "bamboogle", (0.0, 14.8, 10.7, 74.6)),
)
"""Table 3: steps that GraphAnchor reached."""

TABLE_4 = (
    _scores(4, QWEN_7B, "vanilla-rag",
            18.05, 9.80, 50.93, 40.40, 38.54, 33.60, 21.62, 13.60, 32.29, 24.35),
    _scores(4, QWEN_7B, "vanilla-rag-10",
            21.39, 12.40, 56.24, 43.60, 38.26, 32.80, 26.16, 18.40, 35.51, 26.80),
    _scores(4, QWEN_7B, "vanilla-rag-15",
            20.29, 11.20, 56.29, 44.60, 40.98, 35.00, 27.12, 20.00, 36.17, 27.70),
    _scores(4, QWEN_7B, "vanilla-rag-20",
            20.80, 12.40, 56.79, 43.60, 41.13, 35.20, 24.38, 15.20, 35.78, 26.60),
    _scores(4, QWEN_7B, "graph-anchor",
            32.60, 21.20, 66.03, 53.80, 61.64, 52.20, 34.25, 24.80, 48.63, 38.00),
    _scores(4, LLAMA_8B, "vanilla-rag",
            17.43, 9.40, 52.94, 42.20, 37.94, 32.60, 24.40, 16.00, 33.18, 25.05),
    _scores(4, LLAMA_8B, "vanilla-rag-10",
            21.56, 12.20, 56.33, 43.80, 38.63, 32.80, 26.09, 18.40, 35.65, 26.80),
    _scores(4, LLAMA_8B, "vanilla-rag-15",
            21.20, 12.00, 55.92, 44.20, 42.16, 36.40, 27.50, 19.20, 36.70, 27.95),
    _scores(4, LLAMA_8B, "vanilla-rag-20",
            20.68, 11.80, 57.03, 43.40, 39.76, 33.80, 26.64, 18.40, 36.03, 26.85),
    _scores(4, LLAMA_8B, "graph-anchor",
            28.91, 19.96, 64.37, 50.10, 62.93, 55.14, 36.55, 28.69, 48.19, 38.47),
)
"""Table 4: vanilla RAG by depth, and GraphAnchor."""

TABLE_5 = (
    _times("ircot", 302.66, 1104.53, 367.47, 1153.27),
    _times("iter-retgen", 235.84, 979.55, 251.82, 1180.53),
    _times("search-r1", 582.69, 857.93, 544.36, 1088.87),
    _times("deep-note", 1084.91, 1673.35, 1042.29, 1819.60),
    _times("graph-anchor", 1207.50, 1239.99, 986.81, 1616.68),
)
"""Table 5: seconds."""
# fmt: on


def contradictions() -> tuple[str, ...]:
    """Where the paper contradicts itself: one cell with two values, or an average that is not.

    An average is taken to be wrong where it is further from that of the printed columns than
    rounding explains.
    """
    return (*_two_values(), *_wrong_averages())


def _two_values() -> Iterator[str]:
    first: dict[tuple[str, str, str], tuple[int, Score]] = {}
    for row in (*TABLE_1, *TABLE_2, *TABLE_4):
        for dataset, score in row.by_dataset.items():
            table, known = first.setdefault((row.lm, row.method, dataset), (row.table, score))
            if known != score:
                yield (
                    f"{method_label(row.method)} with {row.lm} on {dataset_label(dataset)} has F1 "
                    f"{known.f1:.2f} and EM {known.em:.2f} in Table {table}, but {score.f1:.2f} "
                    f"and {score.em:.2f} in Table {row.table}"
                )


def _wrong_averages() -> Iterator[str]:
    for row in (*TABLE_1, *TABLE_2, *TABLE_4):
        for name, told, found in zip(("F1", "EM"), row.average, row.mean(), strict=True):
            if abs(told - found) > _ROUNDING:
                yield (
                    f"Table {row.table} gives {method_label(row.method)} with {row.lm} an average "
                    f"{name} of {told:.2f}; its columns average {found:.2f}"
                )
