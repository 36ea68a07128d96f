"""The four kinds of ranking, written against what an `Engine` can be asked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, Protocol, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from ga_dspy.passage import Passage
from ga_dspy.retrieval.engine import MOST, Engine, Links, top_places
from ga_dspy.retrieval.postings import Rows, are_among, distinct

# Each adds to the one before: hybrid mixes BM25 and cosine and favours passages whose title stands
# in the query; linked lets what hybrid finds vote, along the links, for the passages it leads to.
# Only candidates are scored: what words, vectors, names or links put forward. Equal scores are
# ordered by row, so a result never depends on the machine.

Encode: TypeAlias = Callable[[str], NDArray[np.float32]]
Scores: TypeAlias = NDArray[np.float64]

Kind = Literal["sparse", "dense", "hybrid", "linked"]
KINDS: tuple[Kind, ...] = get_args(Kind)

SPARSE_SHARE, DENSE_SHARE, TITLE_BONUS = 0.6, 0.4, 0.2
POOL = 300
"""How many rows words and vectors each put forward."""

SPARE = 100
"""Rows that an approximate index proposes beyond those asked for: the exact cosine chooses."""

SEEDS, TEMPERATURE, TITLE_START = 20, 0.07, 0.3
ANCHOR_START, ANCHOR_BONUS = 0.2, 0.05
DAMPING, STEPS, WALK_SHARE = 0.7, 5, 0.5
COMPLETING, LINK_POWER = 10, 0.25

ROUNDS, FAR, LED = 3, 400, 1000
"""How often walks go on from how many rows; how many rows reached have their words weighed."""

FAINT_START, FAINT = 1e-3, 5e-6
"""Links of the first rows below this share of a row's total are left out, and later those that
would pass on less mass."""


def dense_text(passage: Passage) -> str:
    """The text of a passage as the encoder reads it: "title. text"."""
    return f"{passage.title}. {passage.text}" if passage.title else passage.text


class Scored(NamedTuple):
    """A row of the corpus and its score."""

    row: int
    score: float


class Relevance(NamedTuple):
    """The hybrid scores of the candidates of one query; its arrays have one value for each.

    Attributes:
        query: The query.
        vector: The query's vector.
        best_words: The highest BM25 score of any row.
        closest: The highest cosine of any row.
        rows: The candidates, ascending.
        scores: Their scores.
        complete: Whose score holds the cosine's share.
        named: The rows named in the query.
    """

    query: str
    vector: NDArray[np.float32]
    best_words: float
    closest: float
    rows: Rows
    scores: Scores
    complete: NDArray[np.bool_]
    named: Rows

    def at(self, rows: Rows) -> NDArray[np.int64]:
        """The places of rows among the candidates."""
        return self.rows.searchsorted(rows)


class Ranking(Protocol):
    """Finds the best rows for a query."""

    def rank(self, query: str, k: int, anchors: Sequence[str] = ()) -> list[Scored]:
        """Return at most `k` rows, best first; `anchors` are names already known to matter."""


class SparseRanking:
    """BM25."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def rank(self, query: str, k: int, anchors: Sequence[str] = ()) -> list[Scored]:
        """Return at most `k` rows that share a word with the query, best first."""
        return ordered(*self.engine.best(query, k), k)


class DenseRanking:
    """Cosine similarity; the engine proposes, the exact cosine orders."""

    def __init__(self, engine: Engine, encode: Encode) -> None:
        self.engine, self.encode = engine, encode

    def rank(self, query: str, k: int, anchors: Sequence[str] = ()) -> list[Scored]:
        """Return at most `k` rows, best first."""
        vector = self.encode(query)
        rows = self.engine.nearest(vector, 2 * k + SPARE)
        return ordered(rows, self.engine.cosines(vector, rows), k)


class HybridRanking:
    """0.6 BM25/max + 0.4 cosine/max, + 0.2 where a title alias stands in the query.

    And 0.05 where it is that of an anchor.
    """

    def __init__(self, engine: Engine, encode: Encode) -> None:
        self.engine, self.encode = engine, encode

    def rank(self, query: str, k: int, anchors: Sequence[str] = ()) -> list[Scored]:
        """Return at most `k` rows with a positive score, best first."""
        rows = _union(*(self.engine.called(name) for name in anchors))
        relevance = self.relevance(query, k, rows)
        relevance.scores[relevance.at(rows)] += ANCHOR_BONUS
        return best(relevance.rows, relevance.scores, k)

    def relevance(self, query: str, k: int, more: Rows | None = None) -> Relevance:
        """Score the rows that words or vectors put forward, those named in the query, and more."""
        pool = max(POOL, 2 * k)
        found, lexical = self.engine.best(query, pool)
        vector = self.encode(query)
        near = self.engine.nearest(vector, pool)
        closest = float(self.engine.cosines(vector, near[:1]).max(initial=0.0))
        none = near[:0]
        top = float(lexical.max(initial=0.0))
        empty = Relevance(query, vector, top, closest, none, np.zeros(0), none.astype(bool), none)
        named = self.engine.named(query)
        relevance = self.widen(empty, _union(found, near, named, none if more is None else more))
        relevance.scores[relevance.at(named)] += TITLE_BONUS
        return self.complete(relevance._replace(named=named), relevance.rows)

    def widen(self, relevance: Relevance, rows: Rows) -> Relevance:
        """Make candidates of more rows, scored by words alone."""
        rows = distinct(rows)
        rows = rows[~are_among(rows, relevance.rows)]
        weights = self.engine.weigh(relevance.query, rows)
        lexical = (weights.times @ weights.cells).astype(np.float64)
        scores = SPARSE_SHARE * lexical / (relevance.best_words or 1.0)
        every = np.concatenate([relevance.rows, rows])
        order = np.argsort(every)
        return relevance._replace(
            rows=every[order],
            scores=np.concatenate([relevance.scores, scores])[order],
            complete=np.concatenate([relevance.complete, np.zeros(len(rows), bool)])[order],
        )

    def complete(self, relevance: Relevance, rows: Rows) -> Relevance:
        """Add the cosine's share to the scores of those candidates that lack it."""
        places = relevance.at(rows)
        places = places[~relevance.complete[places]]
        if relevance.closest > 0 and len(places):
            close = self.engine.cosines(relevance.vector, relevance.rows[places])
            relevance.scores[places] += DENSE_SHARE * np.maximum(close, 0) / relevance.closest
            relevance.complete[places] = True
        return relevance


class LinkedRanking:
    """Hybrid scores, and what they lead to over the link graph.

    Half the hybrid score, half the square root of a personalised PageRank that starts from the
    best rows, and a bonus for linked rows that hold the words the best ones lack. Walks start from
    the passages of each anchor too, and from those that hold its name. The numbers were chosen on
    HotpotQA's and MuSiQue's training questions.
    """

    def __init__(self, engine: Engine, encode: Encode) -> None:
        self.engine, self.hybrid = engine, HybridRanking(engine, encode)

    def rank(self, query: str, k: int, anchors: Sequence[str] = ()) -> list[Scored]:
        """Return at most `k` rows with a positive score, best first."""
        relevance = self.hybrid.relevance(query, k)
        starts, mass = _start(relevance, self._anchored(anchors))
        surroundings = Surroundings(self.engine, starts, mass, relevance.rows)
        walked = surroundings.walk(damping=DAMPING, steps=STEPS)
        led = WALK_SHARE * np.sqrt(_scaled(walked))
        led = np.maximum(led, 0) + self._completing(relevance, surroundings)
        rows = surroundings.rows
        far = rows[top_places(led, LED)]
        relevance = self.hybrid.widen(relevance, far)
        # What the links lead to may have been out of sight of the vectors: its cosine is added.
        relevance = self.hybrid.complete(relevance, rows[top_places(led, 2 * k + SPARE)])
        scores = (1 - WALK_SHARE) * _scaled(relevance.scores)
        scores += led[np.searchsorted(rows, relevance.rows)]
        return best(relevance.rows, scores, k)

    def _anchored(self, anchors: Sequence[str]) -> tuple[Rows, Scores]:
        """Where walks start for the anchors, and how much: their passages, and their mentions.

        A name that stands in more than `MOST` passages is too common to lead anywhere.
        """
        found = [np.zeros(0, dtype=np.int64)]
        for name in dict.fromkeys(anchors):
            for rows in (self.engine.called(name), self.engine.holding(name, MOST)):
                if 0 < len(rows) <= MOST:
                    found.append(rows)
        shares = [np.full(len(rows), ANCHOR_START / max(len(rows), 1)) for rows in found]
        return np.concatenate(found), np.concatenate(shares)

    def _completing(self, relevance: Relevance, around: Surroundings) -> Scores:
        """How well each row completes one of the best: linked to it, with the words it lacks.

        For a row j linked to a row i among the best 10, the share of the query's BM25 weight that
        j has beyond i, times the relevance of i and the fourth root of the link's weight; the best
        i counts.
        """
        found = np.zeros(len(around.rows))
        scores = _scaled(relevance.scores)
        leading = np.searchsorted(around.rows, [one.row for one in best(relevance.rows, scores,
                                                                        COMPLETING)])  # fmt: skip
        source, target, weight = around.edges(leading)
        rows, place = np.unique(np.concatenate([source, target]), return_inverse=True)
        words = self.engine.weigh(relevance.query, around.rows[rows])
        if not len(words.highest) or not len(source):
            return found
        at, to = place[: len(source)], place[len(source) :]
        beyond = np.maximum(words.cells[:, to] - words.cells[:, at], 0).sum(axis=0)
        strength = np.minimum(weight, 1.0) ** LINK_POWER
        gain = scores[relevance.at(around.rows[source])] * strength * beyond / words.highest.sum()
        np.maximum.at(found, target, gain)
        return found


class Surroundings:
    """The part of the link graph around some rows: as far as walks from them matter.

    Attributes:
        rows: All rows in it, ascending; edges count in places of it.
    """

    def __init__(self, engine: Engine, starts: Rows, mass: Scores, candidates: Rows) -> None:
        self.engine = engine
        self._starts, self._mass, self._candidates = starts, mass, candidates
        self._asked = np.zeros(0, dtype=np.int64)
        self._links: list[tuple[int, Links]] = []
        rows = _union(starts)
        self._expand(rows, np.full(len(rows), FAINT_START))

    def walk(self, *, damping: float, steps: int) -> Scores:
        """Personalised PageRank: the mass of each row after `steps`, restarting at the starts.

        It goes on from the rows with the most mass; what little others have stays with them.

        Args:
            damping: The share of the mass that follows a link at each step.
            steps: Power iterations.
        """
        for _ in range(ROUNDS):
            reached = self._walk(damping, steps)
            reached[np.searchsorted(self.rows, self._asked)] = 0
            places = top_places(reached, FAR)[:FAR]
            if not len(places):
                break
            self._expand(self.rows[places], FAINT / (damping * reached[places]))
        return self._walk(damping, steps)

    def edges(self, leading: NDArray[np.int64]) -> tuple[NDArray[np.int64], ...]:
        """The links of some places: source, target, weight; links that are alike are one."""
        chosen = are_among(self._source, leading)
        source, target = self._source[chosen], self._target[chosen]
        pairs, same = np.unique(source * len(self.rows) + target, return_inverse=True)
        weight = np.bincount(same, weights=self._weight[chosen], minlength=len(pairs))
        return *np.divmod(pairs, len(self.rows)), weight

    def _walk(self, damping: float, steps: int) -> Scores:
        places = np.searchsorted(self.rows, self._starts)
        start = np.bincount(places, self._mass, len(self.rows)).astype(np.float64)
        flow = damping * self._weight / self._total[self._source]
        found = start
        for _ in range(steps):
            moved = flow * found[self._source]
            found = (1 - damping) * start + np.bincount(self._target, moved, len(self.rows))
        return found

    def _expand(self, rows: Rows, faint: Scores) -> None:
        """Take in the links of more rows."""
        self._links.append((len(self._asked), self.engine.links(rows, faint)))
        self._asked = np.concatenate([self._asked, rows])
        links = [link for _, link in self._links]
        source = np.concatenate([link.source + at for at, link in self._links])
        target = np.concatenate([link.target for link in links])
        self.rows = _union(self._asked, target, self._candidates)
        asked = np.searchsorted(self.rows, self._asked)
        self._source, self._target = asked[source], np.searchsorted(self.rows, target)
        self._weight = np.concatenate([link.weight for link in links])
        self._total = np.ones(len(self.rows))
        self._total[asked] = np.maximum(np.concatenate([link.total for link in links]), 1e-6)


def best(rows: Rows, scores: NDArray[np.floating], k: int) -> list[Scored]:
    """Return the `k` highest positive scores, best first, equal ones by row."""
    places = top_places(scores, k)
    return ordered(rows[places], scores[places], k)


def ordered(rows: Rows, scores: NDArray[np.floating], k: int) -> list[Scored]:
    """Sort rows by falling score, then by row.

    Sums differ in their last bits with the order of their terms: scores are rounded.
    """
    rounded = np.round(scores.astype(np.float64), 6)
    order = np.lexsort((rows, -rounded))[:k]
    return [Scored(int(rows[i]), float(rounded[i])) for i in order]


def _union(*rows: Rows) -> Rows:
    return distinct(np.concatenate([*rows, np.zeros(0, dtype=np.int64)]))


def _start(relevance: Relevance, anchored: tuple[Rows, Scores]) -> tuple[Rows, Scores]:
    """Where walks start: a softmax over the best rows, the rows named in the query, the anchors."""
    seeds = best(relevance.rows, relevance.scores, SEEDS)
    scores = np.array([seed.score for seed in seeds])
    weights = np.exp((scores - scores.max(initial=0.0)) / TEMPERATURE)
    shares = [weights / (weights.sum() or 1), np.full(len(relevance.named), TITLE_START)]
    rows = np.array([seed.row for seed in seeds], dtype=np.int64)
    mass = np.concatenate([*shares, anchored[1]])
    return np.concatenate([rows, relevance.named, anchored[0]]), mass / (mass.sum() or 1)


def _scaled(scores: NDArray[np.floating]) -> NDArray[np.floating]:
    highest = scores.max(initial=0.0)
    return scores / highest if highest > 0 else scores
