"""The paper's own numbers (Tables 1 to 5), to stand beside measured ones.

From "GraphAnchor", as printed: 500 questions a dataset (125 of Bamboogle), bge-large-en-v1.5, five
passages a query, at most four steps. Scores are percent. Methods are named as in
`ga_dspy.arena.methods`; `paper.json` has F1 and EM by dataset, their averages last.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from math import fsum
from pathlib import Path
from typing import NamedTuple

from ga_dspy.arena.runs import DATASETS

QUESTIONS = dict(zip(DATASETS, (500, 500, 500, 125), strict=True))
"""How many questions of each dataset were asked."""

K = 5
"""How many passages a query brought, where a method does not say otherwise."""

TIMED = 100
"""How many questions the times of Table 5 are for."""


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

    def mean(self, datasets: Iterable[str] = DATASETS) -> Score:
        """The mean over some of the datasets, computed anew."""
        columns = zip(*(self.by_dataset[name] for name in datasets), strict=True)
        return Score(*(fsum(column) / len(column) for column in columns))


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


_PRINTED = json.loads(Path(__file__).with_name("paper.json").read_text("utf-8"))


def _scores(table: int) -> Iterator[Scores]:
    for lm, rows in _PRINTED["scores"][str(table)].items():
        for method, values in rows.items():
            *columns, average = map(Score, values[::2], values[1::2])
            yield Scores(table, lm, method, dict(zip(DATASETS, columns, strict=True)), average)


TABLE_1, TABLE_2, TABLE_4 = (tuple(_scores(table)) for table in (1, 2, 4))
"""Methods; GraphAnchor's ablations; vanilla RAG by depth beside GraphAnchor."""

TABLE_3 = tuple(
    Shares(lm, dataset, tuple(steps))
    for lm, rows in _PRINTED["steps"].items()
    for dataset, steps in rows.items()
)
"""Steps that GraphAnchor reached."""

TABLE_5 = tuple(
    Times(lm, method, dict(zip(DATASETS, seconds, strict=True)))
    for lm, rows in _PRINTED["seconds"].items()
    for method, seconds in rows.items()
)
"""Seconds."""


CONTRADICTIONS: tuple[str, ...] = tuple(_PRINTED["contradictions"])
"""Where the paper contradicts itself: one cell with two values, or an average that is further from
that of the printed columns than rounding explains."""
