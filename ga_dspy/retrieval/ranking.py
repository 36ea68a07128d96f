"""The four kinds of ranking: sparse, dense, hybrid and linked.

Each adds to the one before: hybrid mixes BM25 and cosine and favours passages whose title stands
in the query; linked lets what hybrid finds vote, along the links, for the passages it leads to.
Equal scores are ordered by row, so a result never depends on the machine.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ga_dspy.retrieval.dense import DenseScores
    from ga_dspy.retrieval.links import LinkGraph
    from ga_dspy.retrieval.sparse import SparseScores
    from ga_dspy.retrieval.titles import TitleTable

    Encode: TypeAlias = Callable[[str], NDArray[np.float32]]

Kind = Literal["sparse", "dense", "hybrid", "linked"]
KINDS: tuple[Kind, ...] = ("sparse", "dense", "hybrid", "linked")

SPARSE_SHARE, DENSE_SHARE, TITLE_BONUS = 0.6, 0.4, 0.2
POOL = 300
"""How many rows BM25 and FAISS each put forward to have their cosine taken."""

SPARE = 100
"""Rows that FAISS proposes beyond those asked for, so that the exact cosine has a choice."""

SEEDS, TEMPERATURE, TITLE_START = 20, 0.07, 0.3
DAMPING, STEPS, WALK_SHARE = 0.7, 5, 0.5
COMPLETING, LINK_POWER = 10, 0.25


class Scored(NamedTuple):
    """A row of the corpus and its score."""

    row: int
    score: float


class Relevance(NamedTuple):
    """The hybrid scores of one query, of which rows they are `complete`, and how to complete them.

    `scores` and `complete` have one value for each row; `named` are the rows named in the query,
    `vector` is the query's, `closest` the highest cosine with it.
    """

    scores: NDArray[np.float64]
    named: NDArray[np.int64]
    vector: NDArray[np.float32]
    closest: float
    complete: NDArray[np.bool_]


class Ranking(Protocol):
    """Finds the best rows for a query."""

    def rank(self, query: str, k: int) -> list[Scored]:
        """Return at most `k` rows, best first."""
        ...


class SparseRanking:
    """BM25; rows that share no word with the query are not returned."""

    def __init__(self, sparse: SparseScores) -> None:
        self.sparse = sparse

    def rank(self, query: str, k: int) -> list[Scored]:
        """Return at most `k` rows with a positive score, best first."""
        return best(self.sparse.scores(query), k)


class DenseRanking:
    """Cosine similarity; FAISS proposes, the exact cosine orders."""

    def __init__(self, dense: DenseScores, encode: Encode) -> None:
        self.dense, self.encode = dense, encode

    def rank(self, query: str, k: int) -> list[Scored]:
        """Return at most `k` rows, best first."""
        vector = self.encode(query)
        rows = self.dense.nearest(vector, 2 * k + SPARE)
        return ordered(rows, self.dense.similarities(vector, rows))[:k]


class HybridRanking:
    """0.6 BM25/max + 0.4 cosine/max, + 0.2 where a title alias stands in the query."""

    def __init__(
        self, sparse: SparseScores, dense: DenseScores, titles: TitleTable, encode: Encode
    ) -> None:
        self.sparse, self.dense, self.titles, self.encode = sparse, dense, titles, encode

    def rank(self, query: str, k: int) -> list[Scored]:
        """Return at most `k` rows with a positive score, best first."""
        return best(self.relevance(query, k).scores, k)

    def relevance(self, query: str, k: int) -> Relevance:
        """Score the rows that BM25 or FAISS put forward, and those named in the query."""
        import numpy as np

        lexical = self.sparse.scores(query)
        vector = self.encode(query)
        pool = max(POOL, 2 * k)
        near = self.dense.nearest(vector, pool)
        named = self._named(query)
        closest = float(self.dense.similarities(vector, near[:1]).max(initial=0.0))
        scores = SPARSE_SHARE * _scaled(lexical).astype(np.float64)
        scores[named] += TITLE_BONUS
        relevance = Relevance(scores, named, vector, closest, np.zeros(len(scores), dtype=bool))
        self.complete(relevance, np.concatenate([near, top_rows(lexical, pool), named]))
        return relevance

    def complete(self, relevance: Relevance, rows: NDArray[np.int64]) -> None:
        """Add the cosine share to the scores of those rows that lack it."""
        import numpy as np

        rows = np.unique(rows[~relevance.complete[rows]])
        if relevance.closest > 0 and len(rows):
            close = np.maximum(self.dense.similarities(relevance.vector, rows), 0.0)
            relevance.scores[rows] += DENSE_SHARE * close / relevance.closest
            relevance.complete[rows] = True

    def _named(self, query: str) -> NDArray[np.int64]:
        """The rows whose title alias stands in the query, sorted."""
        import numpy as np

        found = self.titles.named_in(query).values()
        return np.array(sorted({row for rows in found for row in rows}), dtype=np.int64)


class LinkedRanking:
    """Hybrid scores, and what they lead to over the link graph.

    Half the hybrid score, half the square root of a personalised PageRank that starts from the
    best rows, and a bonus for linked rows that hold the words the best ones lack. The numbers were
    chosen on HotpotQA's and MuSiQue's training questions.
    """

    def __init__(self, hybrid: HybridRanking, links: LinkGraph) -> None:
        self.hybrid, self.links = hybrid, links

    def rank(self, query: str, k: int) -> list[Scored]:
        """Return at most `k` rows with a positive score, best first."""
        import numpy as np

        relevance = self.hybrid.relevance(query, k)
        start = _start(relevance.scores, relevance.named)
        mass = self.links.walk(start, damping=DAMPING, steps=STEPS)
        led = WALK_SHARE * np.sqrt(_scaled(mass))
        led += self._completing(query, _scaled(relevance.scores))
        # What the links lead to may have been out of FAISS's sight: its cosine is made up for.
        self.hybrid.complete(relevance, top_rows(led, 2 * k + SPARE))
        return best((1 - WALK_SHARE) * _scaled(relevance.scores) + led, k)

    def _completing(self, query: str, relevance: NDArray[np.floating]) -> NDArray[np.float64]:
        """How well each row completes one of the best: linked to it, with the words it lacks.

        For a row j linked to a row i among the best 10, the share of the query's BM25 weight that
        j has beyond i, times the relevance of i and the fourth root of the link's weight; the best
        i counts.
        """
        import numpy as np

        found = np.zeros(len(relevance))
        words = self.hybrid.sparse.word_scores(query)
        rows = np.array([seed.row for seed in best(relevance, COMPLETING)], dtype=np.int64)
        if not len(words) or not len(rows):
            return found
        links = self.links.reached(rows).tocoo()
        beyond = np.maximum(words[:, links.col] - words[:, rows[links.row]], 0).sum(axis=0)
        strength = np.minimum(links.data, 1.0) ** LINK_POWER
        gain = relevance[rows[links.row]] * strength * beyond / words.max(axis=1).sum()
        np.maximum.at(found, links.col, gain)
        return found


def best(scores: NDArray[np.floating], k: int) -> list[Scored]:
    """Return the `k` highest positive scores, best first, equal ones by row."""
    rows = top_rows(scores, k)
    return ordered(rows, scores[rows])[:k]


def ordered(rows: NDArray[np.int64], scores: NDArray[np.floating]) -> list[Scored]:
    """Sort rows by falling score, then by row."""
    import numpy as np

    order = np.lexsort((rows, -scores))
    return [Scored(int(rows[i]), float(scores[i])) for i in order]


def top_rows(scores: NDArray[np.floating], k: int) -> NDArray[np.int64]:
    """Return the rows of the `k` highest positive scores, and all that tie with the last."""
    import numpy as np

    if k < len(scores):
        threshold = np.partition(scores, -k)[-k]
        if threshold > 0:
            return np.flatnonzero(scores >= threshold)
    return np.flatnonzero(scores > 0)


def _start(scores: NDArray[np.float64], named: NDArray[np.int64]) -> NDArray[np.float64]:
    """Where walks start: a softmax over the best rows, and the rows named in the query."""
    import numpy as np

    start = np.zeros_like(scores)
    seeds = best(scores, SEEDS)
    if seeds:
        rows = [seed.row for seed in seeds]
        weights = np.exp((scores[rows] - seeds[0].score) / TEMPERATURE)
        start[rows] = weights / weights.sum()
    start[named] += TITLE_START
    total = start.sum()
    return start / total if total else start


def _scaled(scores: NDArray[np.floating]) -> NDArray[np.floating]:
    highest = scores.max(initial=0.0)
    return scores / highest if highest > 0 else scores
