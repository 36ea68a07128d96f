"""What worked examples in a prompt teach the engine, within bounds.

- Answers (`answer`, `candidate` beside a question) are handed to the ranker, which re-weighs the
  kinds and lengths of answers it prefers.
- Graph additions shift the budget halfway to the examples' mean number of entities and
  relations, and the longest relation phrase to the longest one shown.
- Judgements shift the score from which an answer counts as enough: the larger the share of
  examples that went on searching, the higher.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import NamedTuple

from ga_dspy.lm.evidence import Demo
from ga_dspy.lm.extract import Budget
from ga_dspy.lm.inputs import read_graph
from ga_dspy.lm.prompt import DemoTurn

_SHIFT = 0.15
_RELATIONS, _ENTITIES, _WORDS = (6, 20), (6, 18), (4, 8)


class Demonstrated(NamedTuple):
    """What the examples of a prompt amount to; the defaults are those of no examples."""

    answers: tuple[Demo, ...] = ()
    budget: Budget = Budget()
    caution: float = 0.0


def read_demos(demos: Sequence[DemoTurn]) -> Demonstrated:
    """Read the examples of a prompt."""
    answers = [_answer(demo) for demo in demos]
    graphs = [read_graph(d.outputs["additions"]) for d in demos if d.outputs.get("additions")]
    judged = [d.outputs["judgement"] for d in demos if d.outputs.get("judgement")]
    budget = Budget()
    if graphs:
        words = [len(f.relation.split()) for g in graphs for f in g.facts] or [budget.words]
        budget = Budget(
            entities=_halfway(budget.entities, [len(g.entities) for g in graphs], _ENTITIES),
            relations=_halfway(budget.relations, [len(g.facts) for g in graphs], _RELATIONS),
            words=min(max(max(words), _WORDS[0]), _WORDS[1]),
        )
    went_on = fmean(j.strip() == "insufficient" for j in judged) if judged else 0.5
    return Demonstrated(
        answers=tuple(a for a in answers if a is not None),
        budget=budget,
        caution=2 * _SHIFT * (went_on - 0.5),
    )


def _answer(demo: DemoTurn) -> Demo | None:
    question = demo.inputs.get("question", "")
    text = demo.outputs.get("answer") or demo.outputs.get("candidate") or ""
    return Demo(question, text.strip()) if question and text.strip() else None


def _halfway(usual: int, shown: Sequence[int], bounds: tuple[int, int]) -> int:
    low, high = bounds
    return min(max(round((usual + fmean(shown)) / 2), low), high)
