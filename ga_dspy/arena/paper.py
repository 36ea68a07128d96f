"""The paper's own scores, for a report to show beside measured ones.

From "GraphAnchor", Tables 1, 2 and 4, as printed: 500 questions per dataset (125 of Bamboogle),
bge-large-en-v1.5, five passages per query, at most four steps. `paper.json` has F1 and EM in
percent by dataset, then their averages.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

from ga_dspy.arena.runs import DATASETS


class PaperRow(NamedTuple):
    """A row of Table 1 (methods), 2 (ablations) or 4 (vanilla RAG by depth).

    `f1` and `em` have a value per dataset, then the average as printed.
    """

    table: str
    lm: str
    method: str
    f1: dict[str, float]
    em: dict[str, float]


_PRINTED = json.loads(Path(__file__).with_name("paper.json").read_text("utf-8"))
_COLUMNS = (*DATASETS, "average")

ROWS = tuple(
    PaperRow(
        table,
        lm,
        method,
        dict(zip(_COLUMNS, values[::2], strict=True)),
        dict(zip(_COLUMNS, values[1::2], strict=True)),
    )
    for table, by_lm in _PRINTED["scores"].items()
    for lm, by_method in by_lm.items()
    for method, values in by_method.items()
)

CONTRADICTIONS: tuple[str, ...] = tuple(_PRINTED["contradictions"])
"""Cells that two tables print differently, and averages further from the columns' than rounding."""
