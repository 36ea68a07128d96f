"""The parts that rank passages: titles, links, BM25, vectors, and the four kinds made of them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from ga_dspy.errors import InputError, require
from ga_dspy.passage import Passage
from ga_dspy.text import aliases, fold, fold_words, known_names, proper_names

# --- Titles

MOST_TARGETS = 12
"""An alias of more passages than this names none of them."""


@dataclass(frozen=True)
class TitleTable:
    """Title aliases and the rows each may mean."""

    rows_of: Mapping[str, tuple[int, ...]]

    @classmethod
    def build(cls, passages: Iterable[Passage]) -> TitleTable:
        """Collect the aliases of every passage; row i is the i-th passage.

        Aliases with more than `MOST_TARGETS` targets are dropped.
        """
        found: dict[str, list[int]] = {}
        for row, passage in enumerate(passages):
            for alias in sorted(aliases(passage.title, passage.text)):
                found.setdefault(alias, []).append(row)
        return cls({a: tuple(r) for a, r in found.items() if len(r) <= MOST_TARGETS})

    def named_in(self, text: str) -> dict[str, tuple[int, ...]]:
        """Return the aliases that stand in a text, in order, with the rows each may mean."""
        return {alias: self.rows_of[alias] for alias in known_names(text, self.rows_of)}

    def of(self, name: str) -> tuple[int, ...]:
        """Return the rows that go by a name, or else by it without qualifier or article."""
        exact = self.rows_of.get(fold_words(name))
        if exact:
            return exact
        found = (self.rows_of.get(alias, ()) for alias in aliases(name, ""))
        return tuple(sorted({row for rows in found for row in rows}))

    def save(self, path: Path) -> None:
        """Write the table as JSON."""
        path.write_text(json.dumps(self.rows_of, ensure_ascii=False), encoding="utf-8")

    @classmethod
    def load(cls, path: Path) -> TitleTable:
        """Read a saved table."""
        saved = json.loads(path.read_text(encoding="utf-8"))
        return cls({alias: tuple(rows) for alias, rows in saved.items()})


# --- Links
#
# Made by spelling alone: no LM reads the passages. Two passages are linked where one mentions a
# title alias of the other, and where both hold a capitalised span that is rare in the corpus. Spans
# stay a passage-by-span matrix B: the walk from passage to passage through them is B D^-1 B^T,
# never written out.

FEWEST, MOST = 2, 30
"""A shared span links passages where it stands in at least `FEWEST` and at most `MOST`."""

SPAN_WEIGHT = 0.3
"""How much a step through shared spans weighs beside one through a title mention."""


@dataclass(frozen=True)
class LinkGraph:
    """Links between rows: `titles` (rows x rows, CSR, symmetric), `spans` (rows x spans, CSR)."""

    titles: Any
    spans: Any

    @classmethod
    def build(cls, passages: Sequence[Passage], table: TitleTable) -> LinkGraph:
        """Link the passages; row i is the i-th passage."""
        mentions: list[tuple[int, int, float]] = []
        for row, passage in enumerate(passages):
            for rows in table.named_in(passage.text).values():
                # An ambiguous alias shares its weight.
                targets = [target for target in rows if target != row]
                mentions.extend((row, target, 1 / len(targets)) for target in targets)
        one_way = _matrix(mentions, (len(passages), len(passages)))
        spans = _incidence([proper_names(passage.content) for passage in passages])
        return cls((one_way + one_way.T).tocsr(), spans)

    def walk(
        self, start: NDArray[np.float64], *, damping: float, steps: int
    ) -> NDArray[np.float64]:
        """Personalised PageRank: the mass of each row after `steps`, restarting at `start`.

        Args:
            start: Where walks start, shape (rows,), summing to 1.
            damping: The share of the mass that follows a link at each step.
            steps: Power iterations.
        """
        leaving = self._leaving
        each = np.divide(damping, leaving, where=leaving > 1e-6, out=np.zeros_like(leaving))
        mass = start
        for _ in range(steps):
            mass = (1 - damping) * start + self._step(mass * each)
        return mass

    def reached(self, rows: NDArray[np.int64]) -> Any:
        """Return what one step reaches from each row, shape (given, rows), CSR, without itself."""
        through = self.spans[rows].multiply(self._share[None, :]).tocsr() @ self._holders_of
        links = (self.titles[rows] + through).tocoo()
        others = links.col != rows[links.row]
        cells = (links.data[others], (links.row[others], links.col[others]))
        return type(self.titles)(cells, shape=links.shape)

    def _step(self, sent: NDArray[np.float64]) -> NDArray[np.float64]:
        through = self.spans @ (self._share * (self._holders_of @ sent))
        return np.asarray(self.titles @ sent + through - self._itself * sent)

    @cached_property
    def _leaving(self) -> NDArray[np.float64]:
        """The weight of all links of each row."""
        return self._step(np.ones(self.titles.shape[0]))

    @cached_property
    def _itself(self) -> NDArray[np.float64]:
        """What spans would send from each row back to itself."""
        return np.asarray(self.spans @ self._share)

    @cached_property
    def _holders_of(self) -> Any:
        return self.spans.T.tocsr()

    @cached_property
    def _share(self) -> NDArray[np.float64]:
        """What each span passes on to each of its holders; it has at least `FEWEST`."""
        return SPAN_WEIGHT / np.asarray(self.spans.sum(axis=0)).ravel()

    def save(self, folder: Path) -> None:
        """Write the two matrices into an existing folder."""
        from scipy import sparse

        sparse.save_npz(folder / "links-titles.npz", self.titles)
        sparse.save_npz(folder / "links-spans.npz", self.spans)

    @classmethod
    def load(cls, folder: Path) -> LinkGraph:
        """Open saved links."""
        from scipy import sparse

        return cls(
            sparse.load_npz(folder / "links-titles.npz"),
            sparse.load_npz(folder / "links-spans.npz"),
        )


def _incidence(found: Sequence[frozenset[str]]) -> Any:
    counts = Counter(span for held in found for span in held)
    rare = sorted(span for span, count in counts.items() if FEWEST <= count <= MOST)
    column = {span: number for number, span in enumerate(rare)}
    cells = [
        (row, column[span], 1.0)
        for row, held in enumerate(found)
        for span in sorted(held)
        if span in column
    ]
    return _matrix(cells, (len(found), len(rare)))


def _matrix(cells: Sequence[tuple[int, int, float]], shape: tuple[int, int]) -> Any:
    from scipy import sparse

    rows, columns, values = zip(*cells, strict=True) if cells else ((), (), ())
    return sparse.csr_matrix(
        (np.asarray(values, dtype=np.float64), (np.asarray(rows, dtype=np.int32), columns)),
        shape=shape,
    )


# --- BM25

K1 = 1.2
B = 0.75
TITLE_WEIGHT = 3

_WORD = r"(?u)\b(?:\w\w+|\d)\b"
"""Words of two letters and more, and single digits: Apollo 8 is not Apollo 9."""


class SparseScores:
    """BM25 scores of every row for a query (bm25s, Lucene's variant; k1 1.2, b 0.75)."""

    def __init__(self, model: Any, rows: int) -> None:
        self._model = model
        self._rows = rows
        # A linked search needs the words of its query twice.
        self._known = lru_cache(maxsize=64)(self._known_words)

    @classmethod
    def build(cls, passages: Iterable[Passage]) -> SparseScores:
        """Index passages; row i is the i-th passage."""
        texts = [f"{f'{p.title} ' * TITLE_WEIGHT}{p.text}" for p in passages]
        model = require("bm25s", "search").BM25(k1=K1, b=B)
        tokens = _tokens(texts)
        if not any(tokens):
            # bm25s cannot index a corpus of nothing but stopwords; no query holds the empty word.
            tokens = [[""] for _ in texts]
        # In the order of first use: bm25s's own order is another one in each process.
        ids: dict[str, int] = {}
        rows = [[ids.setdefault(token, len(ids)) for token in row] for row in tokens]
        model.index((rows, ids), show_progress=False)
        return cls(model, len(texts))

    def scores(self, query: str) -> NDArray[np.float32]:
        """Return the score of each row, shape (rows,); 0 where no word is shared."""
        known = self._known(query)
        if not known:
            return np.zeros(self._rows, dtype=np.float32)
        return np.asarray(self._model.get_scores(list(known)), dtype=np.float32)

    def word_scores(self, query: str) -> NDArray[np.float32]:
        """Return the score of each row for each distinct word, shape (words, rows).

        Words that stand nowhere in the corpus are left out.
        """
        words = dict.fromkeys(self._known(query))
        scores = [np.asarray(self._model.get_scores([word])) for word in words]
        return np.stack(scores) if scores else np.zeros((0, self._rows), dtype=np.float32)

    def holding(self, name: str) -> NDArray[np.int64]:
        """Return the rows that hold every word of a name; none for one of stopwords alone."""
        (tokens,) = _tokens([name])
        words = set(tokens)
        if not words or not words.issubset(self._model.vocab_dict):
            return np.zeros(0, dtype=np.int64)
        scores = [np.asarray(self._model.get_scores([word])) for word in sorted(words)]
        return np.flatnonzero(np.min(scores, axis=0) > 0)

    def rank(self, query: str, k: int, anchors: Sequence[str] = ()) -> list[Scored]:
        """Return at most `k` rows that share a word with the query, best first."""
        return best(self.scores(query), k)

    def _known_words(self, query: str) -> tuple[str, ...]:
        (tokens,) = _tokens([query])
        return tuple(token for token in tokens if token in self._model.vocab_dict)

    def save(self, folder: Path) -> None:
        """Write the index into a new folder."""
        self._model.save(str(folder), show_progress=False)

    @classmethod
    def load(cls, folder: Path, rows: int) -> SparseScores:
        """Open a saved index, its postings memory-mapped."""
        require("Stemmer", "search")  # fail here, with the remedy, and not at the first query
        bm25s = require("bm25s", "search")
        model = bm25s.BM25.load(str(folder), mmap=True, show_progress=False)
        # Plain views of the mapped files: each slice of a memmap costs more than what it holds.
        model.scores = {name: np.asarray(values) for name, values in model.scores.items()}
        return cls(model, rows)


def _tokens(texts: list[str]) -> list[list[str]]:
    tokens: list[list[str]] = require("bm25s", "search").tokenize(
        [fold(text) for text in texts],
        token_pattern=_WORD,
        stopwords="en",
        # A Stemmer object is not thread-safe and cheap to make: one for each call.
        stemmer=require("Stemmer", "search").Stemmer("english"),
        return_ids=False,
        show_progress=False,
    )
    return tokens


# --- Vectors


def dense_text(passage: Passage) -> str:
    """The text of a passage as the encoder reads it: "title. text"."""
    return f"{passage.title}. {passage.text}" if passage.title else passage.text


class DenseScores:
    """Cosine similarities of unit vectors: exact for given rows, FAISS to find the nearest."""

    def __init__(self, vectors: NDArray[np.float32], index: Any) -> None:
        self.vectors = vectors
        self._index = index

    @classmethod
    def build(cls, vectors: NDArray[np.float32], factory: str = "Flat") -> DenseScores:
        """Index unit vectors, shape (rows, dimension), training the factory where it needs it.

        Raises:
            InputError: FAISS does not know the factory or cannot train it on so few vectors.
        """
        faiss = require("faiss", "search")
        vectors = np.ascontiguousarray(vectors, dtype=np.float32)
        try:
            index = faiss.index_factory(vectors.shape[1], factory, faiss.METRIC_INNER_PRODUCT)
            if not index.is_trained:
                index.train(vectors)
            index.add(vectors)
        except RuntimeError as error:
            cause = str(error).strip().splitlines()[-1][:200]
            raise InputError(
                f"FAISS cannot build {factory!r} over {len(vectors)} vectors ({cause})",
                expected="an index_factory string that these vectors suffice to train",
                remedy="use factory='Flat', which is exact and needs no training",
            ) from error
        return cls(vectors, _thorough(index))

    def nearest(self, query: NDArray[np.float32], count: int) -> NDArray[np.int64]:
        """Return the rows nearest to a unit vector, best first; fewer where FAISS finds fewer.

        An approximate factory chooses the rows; `similarities` scores them exactly.
        """
        count = min(count, len(self.vectors))
        _, rows = self._index.search(np.ascontiguousarray(query[None, :]), count)
        return np.asarray(rows[0][rows[0] >= 0])

    def similarities(
        self, query: NDArray[np.float32], rows: NDArray[np.int64]
    ) -> NDArray[np.float32]:
        """Return the cosine of each of the rows with a unit vector."""
        return np.asarray(self.vectors[rows] @ query, dtype=np.float32)

    def save(self, path: Path) -> None:
        """Write the FAISS index to a file (the vectors are kept by the caller)."""
        require("faiss", "search").write_index(self._index, str(path))

    @classmethod
    def load(cls, path: Path, vectors: NDArray[np.float32]) -> DenseScores:
        """Open a saved FAISS index over its vectors."""
        return cls(vectors, _thorough(require("faiss", "search").read_index(str(path))))


def _thorough(index: Any) -> Any:
    """Make an inverted-file index look into an eighth of its lists; FAISS itself looks into one."""
    inverted = require("faiss", "search").try_extract_index_ivf(index)
    if inverted is not None:
        inverted.nprobe = max(1, inverted.nlist // 8)
    return index


# --- The four kinds of ranking
#
# Each adds to the one before: hybrid mixes BM25 and cosine and favours passages whose title stands
# in the query; linked lets what hybrid finds vote, along the links, for the passages it leads to.
# Equal scores are ordered by row, so a result never depends on the machine.

Encode: TypeAlias = Callable[[str], NDArray[np.float32]]

Kind = Literal["sparse", "dense", "hybrid", "linked"]
KINDS: tuple[Kind, ...] = get_args(Kind)

SPARSE_SHARE, DENSE_SHARE, TITLE_BONUS = 0.6, 0.4, 0.2
POOL = 300
"""How many rows BM25 and FAISS each put forward to have their cosine computed."""

SPARE = 100
"""Rows that FAISS proposes beyond those asked for, so that the exact cosine has a choice."""

SEEDS, TEMPERATURE, TITLE_START = 20, 0.07, 0.3
ANCHOR_START, ANCHOR_BONUS = 0.2, 0.05
DAMPING, STEPS, WALK_SHARE = 0.7, 5, 0.5
COMPLETING, LINK_POWER = 10, 0.25


class Scored(NamedTuple):
    """A row of the corpus and its score."""

    row: int
    score: float


class Relevance(NamedTuple):
    """The hybrid scores of one query, which rows' are `complete`, and how to complete the others.

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

    def rank(self, query: str, k: int, anchors: Sequence[str] = ()) -> list[Scored]:
        """Return at most `k` rows, best first; `anchors` are names already known to matter."""


class DenseRanking:
    """Cosine similarity; FAISS proposes, the exact cosine orders."""

    def __init__(self, dense: DenseScores, encode: Encode) -> None:
        self.dense, self.encode = dense, encode

    def rank(self, query: str, k: int, anchors: Sequence[str] = ()) -> list[Scored]:
        """Return at most `k` rows, best first."""
        vector = self.encode(query)
        rows = self.dense.nearest(vector, 2 * k + SPARE)
        return ordered(rows, self.dense.similarities(vector, rows))[:k]


class HybridRanking:
    """0.6 BM25/max + 0.4 cosine/max, + 0.2 where a title alias stands in the query.

    And 0.05 where it is that of an anchor.
    """

    def __init__(
        self, sparse: SparseScores, dense: DenseScores, titles: TitleTable, encode: Encode
    ) -> None:
        self.sparse, self.dense, self.titles, self.encode = sparse, dense, titles, encode

    def rank(self, query: str, k: int, anchors: Sequence[str] = ()) -> list[Scored]:
        """Return at most `k` rows with a positive score, best first."""
        relevance = self.relevance(query, k)
        rows = np.array(
            sorted({r for name in anchors for r in self.titles.of(name)}), dtype=np.int64
        )
        relevance.scores[rows] += ANCHOR_BONUS
        self.complete(relevance, rows)
        return best(relevance.scores, k)

    def relevance(self, query: str, k: int) -> Relevance:
        """Score the rows that BM25 or FAISS put forward, and those named in the query."""
        lexical = self.sparse.scores(query)
        vector = self.encode(query)
        pool = max(POOL, 2 * k)
        near = self.dense.nearest(vector, pool)
        # The rows whose title alias stands in the query, sorted.
        aliased = self.titles.named_in(query).values()
        named = np.array(sorted({row for rows in aliased for row in rows}), dtype=np.int64)
        closest = float(self.dense.similarities(vector, near[:1]).max(initial=0.0))
        scores = SPARSE_SHARE * _scaled(lexical).astype(np.float64)
        scores[named] += TITLE_BONUS
        relevance = Relevance(scores, named, vector, closest, np.zeros(len(scores), dtype=bool))
        self.complete(relevance, np.concatenate([near, top_rows(lexical, pool), named]))
        return relevance

    def complete(self, relevance: Relevance, rows: NDArray[np.int64]) -> None:
        """Add the cosine share to the scores of those rows that lack it."""
        rows = np.unique(rows[~relevance.complete[rows]])
        if relevance.closest > 0 and len(rows):
            close = np.maximum(self.dense.similarities(relevance.vector, rows), 0.0)
            relevance.scores[rows] += DENSE_SHARE * close / relevance.closest
            relevance.complete[rows] = True


class LinkedRanking:
    """Hybrid scores, and what they lead to over the link graph.

    Half the hybrid score, half the square root of a personalised PageRank that starts from the
    best rows, and a bonus for linked rows that hold the words the best ones lack. Walks start from
    the passages of each anchor too, and from those that hold its name. The numbers were chosen on
    HotpotQA's and MuSiQue's training questions.
    """

    def __init__(self, hybrid: HybridRanking, links: LinkGraph) -> None:
        self.hybrid, self.links = hybrid, links

    def rank(self, query: str, k: int, anchors: Sequence[str] = ()) -> list[Scored]:
        """Return at most `k` rows with a positive score, best first."""
        relevance = self.hybrid.relevance(query, k)
        start = _start(relevance.scores, relevance.named, self._anchored(anchors))
        mass = self.links.walk(start, damping=DAMPING, steps=STEPS)
        led = WALK_SHARE * np.sqrt(_scaled(mass))
        led += self._completing(query, _scaled(relevance.scores))
        # What the links lead to may have been out of FAISS's sight: its cosine is made up for.
        self.hybrid.complete(relevance, top_rows(led, 2 * k + SPARE))
        return best((1 - WALK_SHARE) * _scaled(relevance.scores) + led, k)

    def _anchored(self, anchors: Sequence[str]) -> NDArray[np.float64]:
        """How much walks start from each row for the anchors: its passages, and its mentions.

        A name that stands in more than `MOST` passages is too common to lead anywhere.
        """
        weights = np.zeros(self.links.titles.shape[0])
        for name in dict.fromkeys(anchors):
            for rows in (self.hybrid.titles.of(name), self.hybrid.sparse.holding(name)):
                if 0 < len(rows) <= MOST:
                    weights[np.asarray(rows)] += ANCHOR_START / len(rows)
        return weights

    def _completing(self, query: str, relevance: NDArray[np.floating]) -> NDArray[np.float64]:
        """How well each row completes one of the best: linked to it, with the words it lacks.

        For a row j linked to a row i among the best 10, the share of the query's BM25 weight that
        j has beyond i, times the relevance of i and the fourth root of the link's weight; the best
        i counts.
        """
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
    order = np.lexsort((rows, -scores))
    return [Scored(int(rows[i]), float(scores[i])) for i in order]


def top_rows(scores: NDArray[np.floating], k: int) -> NDArray[np.int64]:
    """Return the rows of the `k` highest positive scores, and all that tie with the last."""
    if k < len(scores):
        threshold = np.partition(scores, -k)[-k]
        if threshold > 0:
            return np.flatnonzero(scores >= threshold)
    return np.flatnonzero(scores > 0)


def _start(
    scores: NDArray[np.float64],
    named: NDArray[np.int64],
    anchored: NDArray[np.float64] | float = 0.0,
) -> NDArray[np.float64]:
    """Where walks start: a softmax over the best rows, the rows named in the query, the anchors."""
    start = np.zeros_like(scores)
    seeds = best(scores, SEEDS)
    if seeds:
        rows = [seed.row for seed in seeds]
        weights = np.exp((scores[rows] - seeds[0].score) / TEMPERATURE)
        start[rows] = weights / weights.sum()
    start[named] += TITLE_START
    start += anchored
    total = start.sum()
    return start / total if total else start


def _scaled(scores: NDArray[np.floating]) -> NDArray[np.floating]:
    highest = scores.max(initial=0.0)
    return scores / highest if highest > 0 else scores
