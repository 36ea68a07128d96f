"""Answering from many passages: the ranker reads the likeliest few, some more, and all of them.

A search brings in passages that only distract, and the ranker is best on few. So passages are
ordered by how likely they are evidence, the answers from the first three, the first five and all
are added up, and the answer that holds in all three views wins.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ga_dspy.lm import links
from ga_dspy.lm import ranker as ranking
from ga_dspy.lm.answer import rank
from ga_dspy.lm.evidence import Answer, Demo, Doc, Fact
from ga_dspy.lm.question import analyse
from ga_dspy.lm.static import page_statics
from ga_dspy.lm.text import normalize

VIEWS = (3, 5)
_CONSIDERED = 15
_WEIGHTS = {
    "first": 4.4, "title_asked": 0.5, "title_overlap": 0.4, "focus_coverage": -0.4,
    "relation_coverage": 0.9, "named_by_asked": 1.1, "pair_coverage": 2.4, "asked": 0.5,
    "one_away": -0.6, "best_covered": 1.0,
}  # fmt: skip
"""Of a logistic regression on 200 HotpotQA and 100 MuSiQue training questions (gold or not)."""


def rank_focused(
    question: str,
    docs: Sequence[Doc],
    *,
    facts: Sequence[Fact] = (),
    demos: Sequence[Demo] = (),
) -> list[Answer]:
    """The answers that hold in every view of the passages, best first.

    Scores are means over the views, so they stay within [0, 1].
    """
    ordered = in_order(question, docs)
    sizes = [size for size in VIEWS if size < len(ordered)] + [len(ordered)]
    views = [rank(question, ordered[:n], facts=facts, demos=demos)[:_CONSIDERED] for n in sizes]
    total: dict[str, float] = {}
    first: dict[str, Answer] = {}
    for view in views:
        for found in view:
            key = normalize(found.text) or found.text
            total[key] = total.get(key, 0.0) + found.score / len(views)
            first.setdefault(key, found)
    merged = [first[key]._replace(score=min(total[key], 1.0)) for key in total]
    return sorted(merged, key=lambda found: (-found.score, found.text))


def in_order(question: str, docs: Sequence[Doc]) -> list[Doc]:
    """The passages, the likeliest evidence first; equals in the order given."""
    idf = ranking.shipped().idf
    pages = [page_statics(doc.title, doc.text) for doc in docs]
    rows = links.link(pages, links.weigh(analyse(question), idf)).rows
    weighed = [(-evidence(row), place) for place, row in enumerate(rows)]
    return [docs[place] for _, place in sorted(weighed)]


def evidence(row: Sequence[float]) -> float:
    """How likely a passage is evidence, as log odds up to a constant; from its link features."""
    given = dict(zip(links.NAMES, row, strict=False))
    derived = given | {
        "first": 1 / (1 + given["rank"]),
        "named_by_asked": float(given["named_by_asked"] > 0),
        "asked": float(given["hop"] == 0),
        "one_away": float(given["hop"] == 1),
        "best_covered": 1 / (1 + given["coverage_rank"]),
    }
    return math.fsum(weight * derived[name] for name, weight in _WEIGHTS.items())
