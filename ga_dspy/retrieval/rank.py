"""The four kinds of ranking of the passages of an `Engine`."""

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

# Hybrid ranking mixes BM25 and cosine, and favours passages whose title is in the query. Linked
# ranking adds a walk along links, which starts from the results of hybrid ranking. Only candidates
# are scored: rows that words, vectors, names or links propose. Ties are ordered by row, so results
# do not depend on the machine.

Engine: TypeAlias = LocalEngine | MilvusEngine
"""The storage and search engine of an index."""

Vector: TypeAlias = NDArray[np.float32]
Scores: TypeAlias = NDArray[np.float64]

SPARSE_SHARE, DENSE_SHARE, TITLE_BONUS = 0.6, 0.4, 0.2
POOL = 300
"""The number of candidates from words, and from vectors."""

SPARE = 100
"""Additional candidates from an approximate index, reranked by the exact cosine."""

SEEDS, TEMPERATURE, TITLE_START = 20, 0.07, 0.3
"""Walk start: number of best rows, temperature of their softmax, mass of a row that is named."""

COMPLETING, LINK_POWER = 10, 0.25
"""Bonus for completing rows: number of best rows that they may complete, power of link weights."""

DAMPING, STEPS, WALK_SHARE = 0.7, 5, 0.5
"""Walk: share of the mass that follows links in a step, number of steps, share of the score."""

ROUNDS, EXTENDED, REACHED = 3, 400, 1000
"""Walk: number of extensions, rows per extension, number of reached rows that get BM25 scores."""

SMALL = 400
"""In an index of up to this many passages, the walk covers all links."""

MIN_START_MASS, MIN_MASS = 1e-3, 5e-6
"""A walk leaves out links below `MIN_START_MASS` of the total weight of a start row, and links of
later rows that would carry less mass than `MIN_MASS`."""


def dense_text(passage: Passage) -> str:
    """Return the text of a passage for the encoder: "title. text"."""
    return f"{passage.title}. {passage.text}" if passage.title else passage.text


class Scored(NamedTuple):
    """A row and its score."""

    row: int
    score: float


class Relevance(NamedTuple):
    """The candidates of a query and their hybrid scores.

    Attributes:
        query: The query.
        vector: The vector of the query.
        best_words: The highest BM25 score of any row.
        closest: The highest cosine of any row.
        rows: The candidates, ascending.
        scores: The score of each candidate.
        named: The rows with a name that is in the query.
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
    """Ranks the rows of an engine for a query.

    - sparse: BM25.
    - dense: cosine similarity; the engine may propose rows approximately, the exact cosine orders
      them.
    - hybrid: 0.6 BM25/max + 0.4 cosine/max, + 0.2 if a title alias is in the query.
    - linked: half the hybrid score, half the square root of a personalised PageRank over the link
      graph that starts from the best rows, and a bonus for linked rows with query words that the
      best rows lack. The constants were tuned on training questions of HotpotQA and MuSiQue.
    """

    def __init__(self, engine: Engine, kind: Kind) -> None:
        """Check that the engine has the parts that a kind of ranking needs.

        Raises:
            InputError: A part is missing.
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
        """Return at most `k` rows, best first; only dense ranking returns rows without a score.

        Args:
            query: The query.
            vector: The vector of the query; empty for sparse ranking.
            k: The number of rows to return.
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
        matching, lexical = self.engine.best(query, pool)
        near, named = self.engine.nearest(vector, pool), self.engine.rows_named(query)
        best_words = float(lexical.max(initial=0.0))
        closest = float(self.engine.cosines(vector, near[:1]).max(initial=0.0))
        empty = Relevance(query, vector, best_words, closest, near[:0], np.zeros(0), named)
        rows = np.concatenate([matching, near, named])
        relevance = self._add_candidates(empty, rows, rows)
        relevance.scores[relevance.at(named)] += TITLE_BONUS
        return relevance

    def _add_candidates(self, relevance: Relevance, rows: Rows, near: Rows) -> Relevance:
        """Add candidates, scored by words, and those of them in `near` by their cosine, too."""
        rows = distinct(rows)
        rows = rows[~are_among(rows, relevance.rows)]
        if not len(rows):
            return relevance
        weights = self.engine.weigh(relevance.query, rows)
        lexical = (weights.times @ weights.cells).astype(np.float64)
        scores = SPARSE_SHARE * lexical / (relevance.best_words or 1.0)
        places = np.flatnonzero(are_among(rows, near))
        if relevance.closest > 0 and len(places):
            cosines = self.engine.cosines(relevance.vector, rows[places])
            scores[places] += DENSE_SHARE * np.maximum(cosines, 0) / relevance.closest
        rows = np.concatenate([relevance.rows, rows])
        order = np.argsort(rows)
        scores = np.concatenate([relevance.scores, scores])[order]
        return relevance._replace(rows=rows[order], scores=scores)

    def _linked(self, relevance: Relevance, k: int) -> list[Scored]:
        starts, mass = _start(relevance)
        part, walked = walk(self.engine, starts, mass, relevance.rows)
        link_scores = WALK_SHARE * np.sqrt(_scaled(walked)) + self._completing(relevance, part)
        # Of the rows that only links propose, the best get a cosine score, too.
        count = 2 * k + SPARE
        reached = part.rows[top_places(link_scores, max(REACHED, count))]
        near = part.rows[top_places(link_scores, count)]
        relevance = self._add_candidates(relevance, reached, near)
        scores = (1 - WALK_SHARE) * _scaled(relevance.scores)
        scores += link_scores[np.searchsorted(part.rows, relevance.rows)]
        return best(relevance.rows, scores, k)

    def _completing(self, relevance: Relevance, part: Part) -> Scores:
        """Score how well each row completes one of the best rows with query words that it lacks.

        For a row j linked to a row i among the best 10, this is the share of the query's BM25
        weight that j adds to i, times the relevance of i and the fourth root of the link weight;
        the maximum over i.
        """
        every, scores = part.rows, _scaled(relevance.scores)
        completing = np.zeros(len(every))
        seeds = [scored.row for scored in best(relevance.rows, scores, COMPLETING)]
        source, target, weight = part.edges(np.searchsorted(every, seeds))
        rows, place = np.unique(np.concatenate([source, target]), return_inverse=True)
        words = self.engine.weigh(relevance.query, every[rows])
        if not len(words.highest) or not len(source):
            return completing
        i, j = place[: len(source)], place[len(source) :]
        added = np.maximum(words.cells[:, j] - words.cells[:, i], 0).sum(axis=0)
        strength = np.minimum(weight, 1.0) ** LINK_POWER
        gain = scores[relevance.at(every[source])] * strength * added / words.highest.sum()
        np.maximum.at(completing, target, gain)
        return completing


class Part(NamedTuple):
    """A part of the link graph; links are between places in `rows`.

    Attributes:
        rows: The rows of the part, ascending.
        asked: The rows whose links are in the part.
        source: The place of the source of each link.
        target: The place of its target.
        weight: Its weight.
        total: The total weight of the links of each row; 1 if they are not in the part.
    """

    rows: Rows
    asked: Rows
    source: NDArray[np.int64]
    target: NDArray[np.int64]
    weight: Scores
    total: Scores

    @classmethod
    def of(cls, known: Sequence[tuple[Rows, Links]], others: Rows) -> Part:
        """Make a part of rows with their links, and of other rows."""
        asked = np.concatenate([rows for rows, _ in known])
        sources = np.concatenate([rows[links.source] for rows, links in known])
        targets = np.concatenate([links.target for _, links in known])
        weight = np.concatenate([links.weight for _, links in known])
        rows = distinct(np.concatenate([asked, targets, others]))
        total, totals = np.ones(len(rows)), np.concatenate([links.total for _, links in known])
        total[rows.searchsorted(asked)] = np.maximum(totals, 1e-6)
        source, target = rows.searchsorted(sources), rows.searchsorted(targets)
        return cls(rows, asked, source, target, weight, total)

    def walk(self, starts: Rows, mass: Scores) -> Scores:
        """Return the mass of each row after `STEPS` steps with restarts at the start rows."""
        start = np.bincount(self.rows.searchsorted(starts), mass, len(self.rows)).astype(float)
        flow = DAMPING * self.weight / self.total[self.source]
        current = start
        for _ in range(STEPS):
            moved = np.bincount(self.target, flow * current[self.source], len(self.rows))
            current = (1 - DAMPING) * start + moved
        return current

    def edges(self, leading: NDArray[np.int64]) -> tuple[NDArray[np.int64], ...]:
        """Return the links from some places: source, target, weight; parallel links are merged."""
        size, chosen = len(self.rows), are_among(self.source, leading)
        pairs = self.source[chosen] * size + self.target[chosen]
        pairs, pair_of = np.unique(pairs, return_inverse=True)
        weight = np.bincount(pair_of, weights=self.weight[chosen], minlength=len(pairs))
        return *np.divmod(pairs, size), weight


def walk(engine: Engine, starts: Rows, mass: Scores, candidates: Rows) -> tuple[Part, Scores]:
    """Run a personalised PageRank from some rows.

    The walk is extended from the rows with the most mass; mass that reaches other rows stays there.

    Args:
        engine: The engine.
        starts: The rows where the walk starts and restarts.
        mass: The mass of each of them.
        candidates: Rows that are part of the result even if the walk does not reach them.

    Returns:
        The reached part of the link graph, and the mass of each of its rows.
    """
    known: list[tuple[Rows, Links]] = []

    def extend(rows: Rows, faint: Scores) -> Part:
        known.append((rows, engine.links(rows, faint)))
        return Part.of(known, candidates)

    is_small = len(engine) <= SMALL
    rows = engine.rows() if is_small else distinct(starts)
    part = extend(rows, np.full(len(rows), 0.0 if is_small else MIN_START_MASS))
    for _ in range(ROUNDS):
        if len(part.asked) == len(part.rows):
            break
        reached = part.walk(starts, mass)
        reached[part.rows.searchsorted(part.asked)] = 0
        places = top_places(reached, EXTENDED)[:EXTENDED]
        if not len(places):
            break
        part = extend(part.rows[places], MIN_MASS / (DAMPING * reached[places]))
    return part, part.walk(starts, mass)


def best(rows: Rows, scores: NDArray[np.floating], k: int) -> list[Scored]:
    """Return the `k` rows with the highest positive scores, best first; ties are ordered by row."""
    places = top_places(scores, k)
    return ordered(rows[places], scores[places], k)


def ordered(rows: Rows, scores: NDArray[np.floating], k: int) -> list[Scored]:
    """Sort rows by descending score, then by row; return the first `k`.

    Scores are rounded, because the last bits of a sum depend on the order of its terms.
    """
    rounded = np.round(scores.astype(np.float64), 6)
    order = np.lexsort((rows, -rounded))[:k]
    return [Scored(int(rows[i]), float(rounded[i])) for i in order]


def _start(relevance: Relevance) -> tuple[Rows, Scores]:
    """Return the start of walks: a softmax over the best rows, and the rows named in the query."""
    seeds = best(relevance.rows, relevance.scores, SEEDS)
    rows = np.array([seed.row for seed in seeds], dtype=np.int64)
    scores = np.array([seed.score for seed in seeds])
    weights = np.exp((scores - scores.max(initial=0.0)) / TEMPERATURE)
    named = np.full(len(relevance.named), TITLE_START)
    mass = np.concatenate([weights / (weights.sum() or 1), named])
    return np.concatenate([rows, relevance.named]), mass / (mass.sum() or 1)


def _scaled(scores: NDArray[np.floating]) -> NDArray[np.floating]:
    highest = scores.max(initial=0.0)
    return scores / highest if highest > 0 else scores
