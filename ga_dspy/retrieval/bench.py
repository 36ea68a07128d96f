"""How many gold passages a retriever puts among its first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from ga_dspy.errors import InputError

if TYPE_CHECKING:
    from ga_dspy.retrieval.protocol import Retriever

Question: TypeAlias = tuple[str, frozenset[str]]
"""A question and the titles of its gold passages."""

DEPTHS = (2, 5, 10, 20)


class Depth(NamedTuple):
    """At depth `k`: mean share of gold titles found, share of questions with all of them, in %."""

    k: int
    recall: float
    all_gold: float


def bench(
    retriever: Retriever, questions: Sequence[Question], ks: Sequence[int] = DEPTHS
) -> list[Depth]:
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
    ranked = [[p.title for p in retriever(question, max(ks))] for question, _ in questions]
    return [_depth(k, ranked, [gold for _, gold in questions]) for k in ks]


def _depth(k: int, ranked: Sequence[Sequence[str]], gold: Sequence[frozenset[str]]) -> Depth:
    found = [
        len(wanted.intersection(titles[:k])) / len(wanted)
        for titles, wanted in zip(ranked, gold, strict=True)
    ]
    return Depth(k, 100 * sum(found) / len(found), 100 * found.count(1.0) / len(found))
