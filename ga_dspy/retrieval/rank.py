"""The four kinds of ranking, over an `Engine`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ga_dspy.errors import InputError
from ga_dspy.passage import Passage
from ga_dspy.retrieval.engine import Links, LocalEngine, top_places
from ga_dspy.retrieval.milvus import MilvusEngine
from ga_dspy.retrieval.postings import PARTS, Kind, Rows, are_among, distinct

# Each extends the one before: hybrid mixes BM25 and cosine, and favours passages whose title is in
# the query; linked adds a walk along the links from what hybrid finds. Only candidates are scored:
# rows that words, vectors, names or links propose. Equal scores are ordered by row, so that results
# do not depend on the machine.

Engine: TypeAlias = LocalEngine | MilvusEngine
"""A store of passages."""

Vector: TypeAlias = NDArray[np.float32]
Scores: TypeAlias = NDArray[np.float64]

SPARSE_SHARE, DENSE_SHARE, TITLE_BONUS = 0.6, 0.4, 0.2
POOL = 300
"""How many rows words and vectors propose each."""

SPARE = 100
"""Additional rows that an approximate index proposes; the exact cosine selects among them."""

SEEDS, TEMPERATURE, TITLE_START = 20, 0.07, 0.3
COMPLETING, LINK_POWER = 10, 0.25
DAMPING, STEPS, WALK_SHARE = 0.7, 5, 0.5
"""Of a walk: the share of the mass that follows a link at each step, its steps, its share of a
score."""

ROUNDS, FAR, LED = 3, 400, 1000
"""How often a walk is extended, from how many rows; how many rows it reaches get BM25 scores."""

SMALL = 400
"""All links of a store with up to this many passages are walked."""

FAINT_START, FAINT = 1e-3, 5e-6
"""Links of the first rows below this share of a row's total weight are left out, and later those
that would pass on less mass."""


def dense_text(passage: Passage) -> str:
    """Return the text of a passage as the encoder reads it: "title. text"."""
    return f"{passage.title}. {passage.text}" if passage.title else passage.text


class Scored(NamedTuple):
    """A row of the corpus and its score."""

    row: int
    score: float


class Relevance(NamedTuple):
    """The hybrid scores of the candidates of a query, in arrays with a value for each.

    Attributes:
        query: The query.
        vector: The query's vector.
        best_words: The highest BM25 score of any row.
        closest: The highest cosine of any row.
        rows: The candidates, ascending.
        scores: Their scores.
        named: The rows named in the query.
    """

    query: str
    vector: NDArray[np.float32]
    best_words: float
    closest: float
    rows: Rows
    scores: Scores
    named: Rows

    def at(self, rows: Rows) -> NDArray[np.int64]:
        """Return the places of rows among the candidates."""
        return self.rows.searchsorted(rows)


class Ranking:
    """Finds the best rows of an engine for a query, by one kind of ranking.

    - sparse: BM25.
    - dense: cosine similarity; the engine proposes rows, the exact cosine orders them.
    - hybrid: 0.6 BM25/max + 0.4 cosine/max, + 0.2 if a title alias is in the query.
    - linked: hybrid scores, and the rows that they lead to over the link graph: half the hybrid
      score, half the square root of a personalised PageRank that starts from the best rows, and a
      bonus for linked rows with the words that the best ones lack. The constants were chosen on
      training questions of HotpotQA and MuSiQue.
    """

    def __init__(self, engine: Engine, kind: Kind) -> None:
        """Rank the passages of an engine.

        Raises:
            InputError: The engine was made for a kind with fewer parts.
        """
        self.engine, self.kind = engine, kind
        for part in PARTS[kind]:
            if not engine.holds(part):
                raise InputError(
                    f"this index holds no {part}",
                    expected=f"an index that can rank as {kind!r}",
                    remedy=f"build the index with kind={kind!r}",
                )

    def rank(self, query: str, vector: Vector, k: int) -> list[Scored]:
        """Return at most `k` rows, best first; none without a score, except by cosine alone.

        Args:
            query: The query.
            vector: Its vector; empty if the ranking uses only words.
            k: Rows to return.
        """
        if self.kind == "sparse":
            return ordered(*self.engine.best(query, k), k)
        if self.kind == "dense":
            rows = self.engine.nearest(vector, 2 * k + SPARE)
            return ordered(rows, self.engine.cosines(vector, rows), k)
        relevance = self._relevance(query, vector, k)
        if self.kind == "hybrid":
            return best(relevance.rows, relevance.scores, k)
        return self._linked(relevance, k)

    def _relevance(self, query: str, vector: Vector, k: int) -> Relevance:
        """Score the rows that words or vectors propose, and those named in the query."""
        pool = max(POOL, 2 * k)
        found, lexical = self.engine.best(query, pool)
        near, named = self.engine.nearest(vector, pool), self.engine.rows_named(query)
        closest = float(self.engine.cosines(vector, near[:1]).max(initial=0.0))
        top, rows = float(lexical.max(initial=0.0)), np.concatenate([found, near, named])
        nothing = Relevance(query, vector, top, closest, near[:0], np.zeros(0), named)
        relevance = self._widen(nothing, rows, rows)
        relevance.scores[relevance.at(named)] += TITLE_BONUS
        return relevance

    def _widen(self, relevance: Relevance, rows: Rows, near: Rows) -> Relevance:
        """Add rows to the candidates, scored by words; by the cosine too if they are near."""
        rows = distinct(rows)
        rows = rows[~are_among(rows, relevance.rows)]
        if not len(rows):
            return relevance
        weights = self.engine.weigh(relevance.query, rows)
        lexical = (weights.times @ weights.cells).astype(np.float64)
        scores = SPARSE_SHARE * lexical / (relevance.best_words or 1.0)
        places = np.flatnonzero(are_among(rows, near))
        if relevance.closest > 0 and len(places):
            close = self.engine.cosines(relevance.vector, rows[places])
            scores[places] += DENSE_SHARE * np.maximum(close, 0) / relevance.closest
        every = np.concatenate([relevance.rows, rows])
        order = np.argsort(every)
        scores = np.concatenate([relevance.scores, scores])[order]
        return relevance._replace(rows=every[order], scores=scores)

    def _linked(self, relevance: Relevance, k: int) -> list[Scored]:
        starts, mass = _start(relevance)
        part, walked = walk(self.engine, starts, mass, relevance.rows)
        led = WALK_SHARE * np.sqrt(_scaled(walked))
        led = np.maximum(led, 0) + self._completing(relevance, part)
        rows = part.rows
        # Of the rows that only links propose, the best get their cosine, too.
        count = 2 * k + SPARE
        added, near = (rows[top_places(led, most)] for most in (max(LED, count), count))
        relevance = self._widen(relevance, added, near)
        scores = (1 - WALK_SHARE) * _scaled(relevance.scores)
        scores += led[np.searchsorted(rows, relevance.rows)]
        return best(relevance.rows, scores, k)

    def _completing(self, relevance: Relevance, part: Part) -> Scores:
        """Score how well each row completes one of the best: linked to it, with words it lacks.

        For a row j linked to a row i among the best 10, the share of the query's BM25 weight that
        j adds to i, times the relevance of i and the fourth root of the link's weight; the maximum
        over i.
        """
        every, scores = part.rows, _scaled(relevance.scores)
        found = np.zeros(len(every))
        first = [one.row for one in best(relevance.rows, scores, COMPLETING)]
        source, target, weight = part.edges(np.searchsorted(every, first))
        rows, place = np.unique(np.concatenate([source, target]), return_inverse=True)
        words = self.engine.weigh(relevance.query, every[rows])
        if not len(words.highest) or not len(source):
            return found
        at, to = place[: len(source)], place[len(source) :]
        beyond = np.maximum(words.cells[:, to] - words.cells[:, at], 0).sum(axis=0)
        strength = np.minimum(weight, 1.0) ** LINK_POWER
        gain = scores[relevance.at(every[source])] * strength * beyond / words.highest.sum()
        np.maximum.at(found, target, gain)
        return found


class Part(NamedTuple):
    """A part of the link graph; its links join places in `rows`.

    Attributes:
        rows: All rows in it, ascending.
        asked: The rows whose links are in it.
        source: Where each link starts.
        target: Where it ends.
        weight: Its weight.
        total: The weight of all links of each row; 1 if they are not in it.
    """

    rows: Rows
    asked: Rows
    source: NDArray[np.int64]
    target: NDArray[np.int64]
    weight: Scores
    total: Scores

    @classmethod
    def of(cls, known: Sequence[tuple[Rows, Links]], besides: Rows) -> Part:
        """Make a part of some rows with their links, and of other rows."""
        every = np.concatenate([rows for rows, _ in known])
        begins = np.concatenate([rows[links.source] for rows, links in known])
        ends = np.concatenate([links.target for _, links in known])
        rows = distinct(np.concatenate([every, ends, besides]))
        total, asked = np.ones(len(rows)), rows.searchsorted(every)
        total[asked] = np.maximum(np.concatenate([links.total for _, links in known]), 1e-6)
        weight = np.concatenate([links.weight for _, links in known])
        return cls(rows, every, rows.searchsorted(begins), rows.searchsorted(ends), weight, total)

    def walk(self, starts: Rows, mass: Scores) -> Scores:
        """Return the mass of each row after `STEPS` steps, restarting at the start rows."""
        start = np.bincount(self.rows.searchsorted(starts), mass, len(self.rows)).astype(float)
        flow = DAMPING * self.weight / self.total[self.source]
        found = start
        for _ in range(STEPS):
            moved = np.bincount(self.target, flow * found[self.source], len(self.rows))
            found = (1 - DAMPING) * start + moved
        return found

    def edges(self, leading: NDArray[np.int64]) -> tuple[NDArray[np.int64], ...]:
        """Return the links of some places: source, target, weight; parallel links are merged."""
        size, chosen = len(self.rows), are_among(self.source, leading)
        pairs = self.source[chosen] * size + self.target[chosen]
        pairs, same = np.unique(pairs, return_inverse=True)
        weight = np.bincount(same, weights=self.weight[chosen], minlength=len(pairs))
        return *np.divmod(pairs, size), weight


def walk(engine: Engine, starts: Rows, mass: Scores, candidates: Rows) -> tuple[Part, Scores]:
    """Personalised PageRank from some rows.

    The walk is extended from the rows with the most mass; the rest of the mass stays put.

    Args:
        engine: The engine.
        starts: The rows at which the walk starts, and restarts.
        mass: The mass of each at the start.
        candidates: Rows that are in the result even if the walk does not reach them.

    Returns:
        The part of the link graph that the walk reached, and the mass of each of its rows.
    """
    known: list[tuple[Rows, Links]] = []

    def expanded(rows: Rows, faint: Scores) -> Part:
        known.append((rows, engine.links(rows, faint)))
        return Part.of(known, candidates)

    is_small = len(engine) <= SMALL
    rows = engine.rows() if is_small else distinct(starts)
    part = expanded(rows, np.full(len(rows), 0.0 if is_small else FAINT_START))
    for _ in range(ROUNDS):
        if len(part.asked) == len(part.rows):
            break
        reached = part.walk(starts, mass)
        reached[part.rows.searchsorted(part.asked)] = 0
        places = top_places(reached, FAR)[:FAR]
        if not len(places):
            break
        part = expanded(part.rows[places], FAINT / (DAMPING * reached[places]))
    return part, part.walk(starts, mass)


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


def _start(relevance: Relevance) -> tuple[Rows, Scores]:
    """Return the start of walks: a softmax over the best rows, and the rows named in the query."""
    seeds = best(relevance.rows, relevance.scores, SEEDS)
    scores = np.array([seed.score for seed in seeds])
    weights = np.exp((scores - scores.max(initial=0.0)) / TEMPERATURE)
    shares = [weights / (weights.sum() or 1), np.full(len(relevance.named), TITLE_START)]
    rows = np.array([seed.row for seed in seeds], dtype=np.int64)
    mass = np.concatenate(shares)
    return np.concatenate([rows, relevance.named]), mass / (mass.sum() or 1)


def _scaled(scores: NDArray[np.floating]) -> NDArray[np.floating]:
    highest = scores.max(initial=0.0)
    return scores / highest if highest > 0 else scores
