"""Two notes compared: which of them helps more to answer a question."""

from __future__ import annotations

from collections.abc import Sequence

from ga_dspy.lm.answer import rank
from ga_dspy.lm.evidence import Demo, Doc
from ga_dspy.lm.question import Question
from ga_dspy.lm.text import parse


def better(
    question: Question, old: Sequence[Doc], new: Sequence[Doc], demos: Sequence[Demo] = ()
) -> str:
    """Say "new" where those notes are worth more, else "old".

    Notes are worth the share of the question's words that they hold, and the ranker's score for
    the best answer in them.
    """
    return "new" if _worth(question, new, demos) > _worth(question, old, demos) else "old"


def _worth(question: Question, docs: Sequence[Doc], demos: Sequence[Demo]) -> float:
    held = {stem for doc in docs for stem in parse(f"{doc.title} {doc.text}").stems}
    met = len(held & set(question.keywords)) / max(len(question.keywords), 1)
    ranked = rank(question.text, docs, demos=demos)
    return met + (ranked[0].score if ranked else 0.0)
