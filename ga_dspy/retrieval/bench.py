"""How many gold passages a retriever puts among its first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from ga_dspy.errors import InputError
from ga_dspy.retrieval.ranking import KINDS

if TYPE_CHECKING:
    from ga_dspy.retrieval.encoder import Encoder
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


def bench_kinds(
    paths: Iterable[Path | str],
    questions: Sequence[Question],
    *,
    kinds: Sequence[str] = KINDS,
    encoder: Encoder | str = "auto",
    ks: Sequence[int] = DEPTHS,
) -> dict[str, list[Depth]]:
    """Pool the passages of dataset files in memory and score each kind of ranking on them."""
    from ga_dspy.retrieval.index import Index
    from ga_dspy.retrieval.reading import read_passages

    index = Index.from_passages(read_passages(paths), encoder=encoder)
    return {kind: bench(index.as_kind(kind), questions, ks) for kind in kinds}


def as_table(rows: dict[str, list[Depth]]) -> str:
    """Draw the scores of several retrievers as a Markdown table, recall / all gold.

    >>> print(as_table({"sparse": [Depth(5, 80.1, 62.6), Depth(10, 90.6, 81.3)]}))
    | kind | @5 | @10 |
    |---|---|---|
    | sparse | 80.1 / 62.6 | 90.6 / 81.3 |
    """
    depths = next(iter(rows.values()), [])
    lines = [
        f"| kind | {' | '.join(f'@{depth.k}' for depth in depths)} |",
        f"|{'---|' * (len(depths) + 1)}",
    ]
    for kind, scores in rows.items():
        cells = (f"{score.recall:.1f} / {score.all_gold:.1f}" for score in scores)
        lines.append(f"| {kind} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _depth(k: int, ranked: Sequence[Sequence[str]], gold: Sequence[frozenset[str]]) -> Depth:
    found = [
        len(wanted.intersection(titles[:k])) / len(wanted)
        for titles, wanted in zip(ranked, gold, strict=True)
    ]
    return Depth(k, 100 * sum(found) / len(found), 100 * found.count(1.0) / len(found))
