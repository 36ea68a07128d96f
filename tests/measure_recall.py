"""Recall at k: how many gold passages a retriever puts among its first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from ga_dspy.errors import InputError
from ga_dspy.retrieval import Retriever

Question: TypeAlias = tuple[str, frozenset[str]]
"""A question and the titles of its gold passages."""

DEPTHS = (2, 5, 10, 20)


class Recall(NamedTuple):
    """Recall at depth `k`, in percent.

    Attributes:
        k: The depth.
        recall: The mean share of gold titles found.
        all_gold: The share of questions with all of them found.
    """

    k: int
    recall: float
    all_gold: float


def measure_recall(
    retriever: Retriever, questions: Sequence[Question], depths: Sequence[int] = DEPTHS
) -> list[Recall]:
    """Ask every question once and score its passages at each depth.

    Raises:
        InputError: There are no questions, or one has no gold titles.
    """
    if not questions or not all(gold for _, gold in questions):
        raise InputError(
            f"{len(questions)} questions, some without gold titles",
            expected="questions that each have gold titles",
            remedy="leave out datasets and rows without supporting facts",
        )
    ranked = [[p.title for p in retriever(question, max(depths))] for question, _ in questions]
    return [_recall_at(k, ranked, [gold for _, gold in questions]) for k in depths]


def _recall_at(k: int, ranked: Sequence[Sequence[str]], gold: Sequence[frozenset[str]]) -> Recall:
    shares = [
        len(wanted.intersection(titles[:k])) / len(wanted)
        for titles, wanted in zip(ranked, gold, strict=True)
    ]
    return Recall(k, 100 * sum(shares) / len(shares), 100 * shares.count(1.0) / len(shares))
