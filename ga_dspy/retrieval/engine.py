"""The storage of passages in the files of one machine, as rankings search it.

`LocalEngine` reads segments: tables that are mapped into memory, of which a search reads what its
candidates need. Added passages make a new segment, deleted ones are skipped, and small segments are
merged. A change therefore costs what it brings, and search results are those of an index built from
scratch.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ga_dspy.errors import require
from ga_dspy.passage import Passage
from ga_dspy.retrieval.postings import (
    Arrays,
    Rows,
    Table,
    are_among,
    distinct,
    key_of,
    mentioned_in,
    ragged,
    word_keys,
)
from ga_dspy.retrieval.store import PassageTable
from ga_dspy.retrieval.where import Field, Kind, Where, comparisons, parse_values, unknown_field

K1: Final = 1.2
B: Final = 0.75
"""Of BM25 in Lucene's variant; a title counts `TITLE_WEIGHT` times."""

MOST_TARGETS: Final = 12
"""An alias of more passages than this names none of them."""

FEWEST, MOST = 2, 30
"""A shared span links the passages that hold it if these are at least `FEWEST`, at most `MOST`."""

SPAN_WEIGHT: Final = 0.3
"""The weight of a link through a shared span; one through a title mention weighs 1."""


class Weights(NamedTuple):
    """BM25 weights of each distinct word of a query in each row.

    Attributes:
        cells: Shape (words, rows); 0 where the row lacks the word.
        times: How often each word occurs in the query, shape (words,).
        highest: The highest weight of each word in any passage, shape (words,); estimated from a
            sample for words of very many passages.
    """

    cells: NDArray[np.float32]
    times: NDArray[np.float32]
    highest: NDArray[np.float32]


class Links(NamedTuple):
    """Links of rows: the i-th leads from `rows[source[i]]` to the row `target[i]`.

    Attributes:
        source: The place in `rows`.
        target: The row it is linked to.
        weight: The weight of the link.
        total: The weight of all links of each of `rows`, including those left out.
    """

    source: NDArray[np.int64]
    target: Rows
    weight: NDArray[np.float64]
    total: NDArray[np.float64]


def top(scores: NDArray[np.floating], count: int) -> NDArray[np.int64]:
    """Return the places of the `count` highest scores, best first, equal ones in order."""
    places = np.arange(len(scores))
    if count < len(scores):
        places = np.flatnonzero(scores >= np.partition(scores, -count)[-count])
    return places[np.argsort(-scores[places], kind="stable")][:count]


def top_places(scores: NDArray[np.floating], k: int) -> NDArray[np.int64]:
    """Return the places of the `k` highest positive scores, and all that tie with the last."""
    if k < len(scores):
        threshold = np.partition(scores, -k)[-k]
        if threshold > 0:
            return np.flatnonzero(scores >= threshold)
    return np.flatnonzero(scores > 0)


# --- The store on one machine


class Segment(NamedTuple):
    """Passages that were added together, with their tables.

    Attributes:
        base: The row of the first passage; passage i of the segment is row `base + i`.
        texts: The passages.
        arrays: Tables and vectors by name; `mentions.whose.i4` are the rows whose mentions are
            here: its own, and older ones that were read again as names came or went.
        folder: The folder of the arrays; None for memory.
        near: A FAISS index of the vectors, if they are many.
    """

    base: int
    texts: PassageTable
    arrays: Arrays
    folder: Path | None = None
    near: Any = None

    @property
    def end(self) -> int:
        """The row after the last."""
        return self.base + len(self.texts)

    @property
    def weight(self) -> int:
        """How many rows it has passages or mentions of."""
        return max(len(self.texts), len(self.arrays.get("mentions.whose.i4", ())))

    @property
    def vectors(self) -> NDArray[np.float32]:
        """Unit vectors, shape (passages, dimension)."""
        return self.arrays["vectors.f4"].reshape(len(self.texts), -1)

    def holds(self, part: str) -> bool:
        """Return whether it has a table or "vectors"."""
        return f"{part}.keys.u8" in self.arrays or f"{part}.f4" in self.arrays

    def nearest(
        self, vector: NDArray[np.float32], count: int, alive: NDArray[np.bool_] | None
    ) -> NDArray[np.int64]:
        """Return the places of the passages nearest to a unit vector, of those that are alive."""
        if self.near is None:
            scores = self.vectors @ vector
            if alive is not None:
                scores[~alive] = -np.inf
            best = top(scores, count)
            return best[scores[best] > -np.inf]
        options = None
        if alive is not None:
            faiss = require("faiss", "search")
            chosen = faiss.IDSelectorBitmap(np.packbits(alive, bitorder="little"))
            options = faiss.SearchParametersIVF(nprobe=self.near.nprobe, sel=chosen)
        query = np.ascontiguousarray(vector[None, :])
        _, (best,) = self.near.search(query, min(count, len(self.texts)), params=options)
        return np.asarray(best[best >= 0], dtype=np.int64)


def names_few(count: Any) -> Any:
    """Return which of some names stand for passages, and not for too many, given how many."""
    return (count > 0) & (count <= MOST_TARGETS)


Lists: TypeAlias = NDArray[np.int64]
"""Where the lists of some keys begin and end in each of several tables, shape (tables, 2, keys)."""


class _Word(NamedTuple):
    """A word of the corpus.

    Attributes:
        often: In how many rows it occurs.
        idf: Its inverse document frequency.
        highest: Its highest weight in any row.
        lists: Where its rows begin and end in the table of each segment.
    """

    often: int
    idf: float
    highest: float
    lists: tuple[slice, ...]


_SAMPLE: Final = 1 << 16
_LONG: Final = 1 << 14
"""Lists longer than this are read only if they can bring another row among the best."""

_CACHED_BYTES: Final = 1 << 26
"""About how much memory all cached access scopes take together."""

_COMPARED: Final = 1 << 14
"""If at most this many rows are left after deletions, a query is compared with each of them."""

_SHOWN: Final = 200
"""An error about an unknown field lists the fields of this many passages."""


class LocalEngine:
    """Segments, and the rows that were deleted; rows are numbers, ascending in corpus order.

    It is immutable: a change makes another one, which shares the segments. Thread-safe.

    Links are found by spelling, without an LM. Two passages are linked if one mentions a name of
    the other, or if both hold a capitalised span that is rare in the corpus.
    """

    def __init__(self, segments: Sequence[Segment], dead: Sequence[int] | Rows = ()) -> None:
        self.segments = tuple(segments)
        self.size = self.segments[-1].end
        self._bases = np.array([segment.base for segment in self.segments])
        self._alive = np.ones(self.size, dtype=np.bool_)
        self._alive[np.asarray(dead, dtype=np.int64)] = False
        self.dead = np.flatnonzero(~self._alive)
        self._is_whole = not len(self.dead)
        names = ("ids", "words", "aliases", "spans", "mentions")
        self.tables = {
            name: [Table.of(s.arrays, name) for s in self.segments]
            for name in names
            if self.holds(name)
        }
        self._owner = self._owners()
        self._word = lru_cache(maxsize=4096)(self._statistics)
        self._asked = lru_cache(maxsize=64)(self._words_of)
        scopes = min(max(_CACHED_BYTES // (16 * max(self.size, 1)), 2), 64)
        self.restricted = lru_cache(maxsize=scopes)(self._restricted)

    def __len__(self) -> int:
        return self.size - len(self.dead)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle without caches."""
        return LocalEngine, (self.segments, self.dead)

    def holds(self, part: str) -> bool:
        """Return whether the store has a table ("words", "aliases", "spans") or "vectors"."""
        return all(segment.holds(part) for segment in self.segments)

    def _restricted(self, where: str) -> LocalEngine:
        """Return the store as if it held only the passages that meet conditions, given as JSON.

        Each mapping of conditions is checked against the passages that meet those before it, so
        that its errors reveal nothing about others. If there are none, nothing is an error.

        Raises:
            InputError: No passage has such a field, or a value of such a type.
        """
        alive = self._alive
        for one in json.loads(where):
            if alive.any():
                alive = self._meeting(one, alive)
        return LocalEngine(self.segments, np.flatnonzero(~alive))

    def _meeting(self, where: Where, among: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return which of some rows meet all conditions of a mapping."""
        met = among.copy()
        for name, sign, wanted in comparisons(where):
            # Of access labels a caller's own passages may have none: other passages count, too.
            seen = self._alive if sign == "within" else among
            fields = [segment.texts.field(name) for segment in self.segments]
            parts = np.split(seen, self._bases[1:])
            kinds = set[Kind]().union(*map(Field.kinds, fields, parts))
            if not kinds:
                # The error lists only fields of passages that meet the other conditions.
                others = {key: values for key, values in where.items() if key != name}
                among = self._meeting(others, among) if others else among
                some = self.passages(np.flatnonzero(among)[:_SHOWN].tolist())
                raise unknown_field(name, {key for passage in some for key in passage.metadata})
            parsed = parse_values(name, sign, wanted, kinds)
            hit = np.concatenate([field.holding(sign, parsed) for field in fields])
            met &= ~hit if sign in ("!=", "within") else hit
        return met

    # --- Rows

    def rows(self) -> Rows:
        """Return all rows, ascending."""
        return np.flatnonzero(self._alive)

    @cached_property
    def ids(self) -> frozenset[str]:
        """Return the ids of all passages."""
        return frozenset(self._ids().to_pylist())

    def row(self, id: str) -> int | None:
        """Return the row of an id; None if there is none."""
        _, rows = self.find("ids", np.array([key_of(id)], dtype=np.uint64))
        return next((row for row in rows.tolist() if self.passages([row])[0].id == id), None)

    def passages(self, rows: Iterable[int]) -> list[Passage]:
        """Return the passages of given rows."""
        passages = []
        for row in rows:
            segment = self.segments[int(self._segment_of(row))]
            passages.append(segment.texts[row - segment.base])
        return passages

    @cached_property
    def documents(self) -> tuple[Any, NDArray[np.int32]]:
        """The ids of the documents, in corpus order, and for each of `rows()` its document's place.

        The passages of a document have its id, or its id and a number: `report.md#2`.
        """
        compute = require("pyarrow.compute", "search")
        stems = compute.replace_substring_regex(self._ids(), r"#[0-9]+$", "")
        coded = stems.combine_chunks().dictionary_encode()
        return coded.dictionary, coded.indices.to_numpy()

    def _ids(self) -> Any:
        """Return the id of each of `rows()`, as a column."""
        pyarrow = require("pyarrow", "search")
        chunks = [chunk for s in self.segments for chunk in s.texts.ids.chunks]
        return pyarrow.chunked_array(chunks, pyarrow.large_string()).take(self.rows())

    def _segment_of(self, rows: Any) -> Any:
        """Return the number of the segment that holds each row."""
        return np.searchsorted(self._bases, rows, side="right") - 1

    def by_segment(self, rows: Rows) -> Iterator[tuple[Segment, NDArray[np.int64]]]:
        """Yield each segment that holds some of the rows, with their places in `rows`."""
        which = self._segment_of(rows)
        for number in np.unique(which).tolist():
            yield self.segments[number], np.flatnonzero(which == number)

    # --- Tables over all segments

    def _owners(self) -> NDArray[np.int16] | None:
        """Return the segment with the mentions of each row, or -1; None if there is only one."""
        if "mentions" not in self.tables or (len(self.segments) == 1 and self._is_whole):
            return None
        owner = np.full(self.size, -1, dtype=np.int16)
        for number, segment in enumerate(self.segments):
            owner[segment.arrays["mentions.whose.i4"]] = number
        owner[self.dead] = -1
        return owner

    def lists(self, name: str, keys: NDArray[np.uint64]) -> Lists:
        """Return where the list of each key begins and ends in the table of each segment."""
        return np.array([table.ranges(keys) for table in self.tables[name]])

    def find(
        self, name: str, keys: NDArray[np.uint64], lists: Lists | None = None
    ) -> tuple[NDArray[np.int64], Rows]:
        """Return the rows that hold each key: places in `keys`, rows; known `lists` save time."""
        places, found = [], []
        lists = self.lists(name, keys) if lists is None else lists
        for number, (table, (begin, end)) in enumerate(zip(self.tables[name], lists, strict=True)):
            place, cells = ragged(begin, end, len(table.rows))
            rows = table.rows[cells].astype(np.int64)
            valid = None if self._is_whole else self._alive[rows]
            if name == "mentions" and self._owner is not None:
                valid = self._owner[rows] == number
            places.append(place if valid is None else place[valid])
            found.append(rows if valid is None else rows[valid])
        return np.concatenate(places), np.concatenate(found)

    def count(
        self, name: str, keys: NDArray[np.uint64], lists: Lists | None = None
    ) -> NDArray[np.int64]:
        """Return how many rows hold each key; known `lists` save time."""
        lists = self.lists(name, keys) if lists is None else lists
        if not self._is_whole or (name == "mentions" and self._owner is not None):
            return np.bincount(self.find(name, keys, lists)[0], minlength=len(keys))
        return np.asarray((lists[:, 1] - lists[:, 0]).sum(axis=0), dtype=np.int64)

    def keys_of(self, name: str, rows: Rows) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
        """Return the keys that each row holds, as places in `rows`, ascending, and keys."""
        owned = name == "mentions" and self._owner is not None
        which = self._owner[rows] if owned else self._segment_of(rows)  # type: ignore[index]
        places, keys = [np.zeros(0, dtype=np.int64)], [np.zeros(0, dtype=np.uint64)]
        for number in np.unique(which[which >= 0]).tolist():
            segment, mine = self.segments[number], np.flatnonzero(which == number)
            local = rows[mine] - segment.base
            if owned:
                local = np.searchsorted(segment.arrays["mentions.whose.i4"], rows[mine])
            of, every = segment.arrays[f"{name}.of.i8"], segment.arrays[f"{name}.held.u8"]
            place, cells = ragged(of[local], of[local + 1], len(every))
            places.append(mine[place])
            keys.append(every[cells])
        place, key = np.concatenate(places), np.concatenate(keys)
        order = np.argsort(place, kind="stable")
        return place[order], key[order]

    # --- Words

    @cached_property
    def norm(self) -> NDArray[np.float32]:
        """The length normalisation that BM25 adds to the count of a word, for each row."""
        lengths = np.concatenate([segment.arrays["lengths.i4"] for segment in self.segments])
        total = int(lengths.sum()) - int(lengths[self.dead].sum())
        share = lengths * (len(self) / max(total, 1))
        return (K1 * (1 - B + B * share)).astype(np.float32)

    def _statistics(self, key: int) -> _Word:
        keys = np.array([key], dtype=np.uint64)
        lists = tuple(slice(*map(int, np.concatenate(r))) for r in self.lists("words", keys))
        often = sum(len(rows) for rows, _ in self._cells(lists))
        idf = float(np.log(1 + (len(self) - often + 0.5) / (often + 0.5)))
        highest = 0.0
        for rows, counts in self._cells(lists):
            some = slice(None, None, len(rows) // _SAMPLE + 1)
            scores = self._scores(rows[some], counts[some], idf)
            highest = max(highest, float(scores.max(initial=0.0)))
        return _Word(often, idf, highest, lists)

    def _cells(
        self, lists: Iterable[slice]
    ) -> Iterator[tuple[NDArray[np.int32], NDArray[np.uint16]]]:
        """Yield the rows that hold a word and how often, segment by segment."""
        for table, cells in zip(self.tables["words"], lists, strict=True):
            rows, counts = table.rows[cells], table.counts[cells]  # type: ignore[index]
            if not self._is_whole:
                kept = self._alive[rows]
                rows, counts = rows[kept], counts[kept]
            if len(rows):
                yield rows, counts

    def _scores(
        self, rows: NDArray[np.integer], counts: NDArray[np.uint16], idf: float
    ) -> NDArray[np.float32]:
        often = counts.astype(np.float32)
        scores: NDArray[np.float32] = np.float32(idf) * (often / (often + self.norm[rows]))
        return scores

    def _words_of(self, query: str) -> tuple[tuple[_Word, int], ...]:
        """Return the words of a query that the corpus has, with their counts in the query."""
        counted = ((self._word(key), times) for key, times in Counter(word_keys(query)).items())
        return tuple((word, times) for word, times in counted if word.often)

    def best(self, query: str, count: int) -> tuple[Rows, NDArray[np.float32]]:
        """Return the rows with the `count` highest BM25 scores, and the scores; ties are included.

        Rare words come first. Once no other row can be among the best, frequent words are only
        looked up for the rows that can.
        """
        asked = sorted(self._asked(query), key=lambda item: item[0].often)
        total = np.zeros(self.size, dtype=np.float32)
        most = [times * word.idf for word, times in asked]  # a count weighs less than 1
        for number, (word, times) in enumerate(asked):
            if number and word.often > _LONG:
                rows = np.flatnonzero(total)
                rest = sum(most[number:]) * (1 + 1e-5)
                floor = np.partition(total[rows], -count)[-count] if len(rows) > count else 0.0
                if rest < floor:
                    rows = rows[total[rows] + rest >= floor]
                    weights = self._weigh(asked[number:], rows)
                    total[rows] += weights.times @ weights.cells
                    break
            for rows_, counts in self._cells(word.lists):
                total[rows_] += times * self._scores(rows_, counts, word.idf)
        else:
            rows = np.flatnonzero(total)
        rows = rows[top_places(total[rows], count)]
        return rows, total[rows]

    def weigh(self, query: str, rows: Rows) -> Weights:
        """Return the BM25 weight of each of the query's words in given rows."""
        return self._weigh(self._asked(query), rows)

    def _weigh(self, asked: Sequence[tuple[_Word, int]], rows: Rows) -> Weights:
        cells = np.zeros((len(asked), len(rows)), dtype=np.float32)
        for line, (word, _) in zip(cells, asked, strict=True):
            for holders, counts in self._cells(word.lists):
                places = holders.searchsorted(rows)
                there = (holders.take(places, mode="clip") == rows).nonzero()[0]
                line[there] = self._scores(rows[there], counts[places[there]], word.idf)
        times = np.array([times for _, times in asked], dtype=np.float32)
        return Weights(cells, times, np.array([word.highest for word, _ in asked], np.float32))

    def holding(self, name: str) -> Rows:
        """Return the rows that hold every word of a name."""
        asked = sorted(map(self._word, set(word_keys(name))), key=lambda word: word.often)
        rows = np.zeros(0, dtype=np.int64)
        for number, word in enumerate(asked):
            lists = [holders for holders, _ in self._cells(word.lists)]
            holders = np.concatenate([*lists, np.zeros(0, dtype=np.int32)]).astype(np.int64)
            rows = rows[are_among(rows, holders)] if number else holders
            if not len(rows):
                break
        return rows

    # --- Names and links

    def known(self, keys: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Return which keys name passages, and not too many of them."""
        return np.asarray(names_few(self.count("aliases", keys)))

    def rows_named(self, text: str) -> Rows:
        """Return the rows whose name occurs in a text, ascending."""
        return distinct(self.find("aliases", mentioned_in([text], self.known)[1])[1])

    def links(self, rows: Rows, faint: NDArray[np.float64]) -> Links:
        """Return the links of given rows.

        Args:
            rows: The rows.
            faint: For each of them, the share of its total weight below which links are left out.
        """
        # What the rows mention; a name of several passages shares its weight.
        out, names = self.keys_of("mentions", rows)
        name, target = self.find("aliases", names)
        other = target != rows[out[name]]
        name, target = name[other], target[other]
        found = [(out[name], target, 1 / np.bincount(name, minlength=1)[name])]
        # What mentions them, and spans that they share: weighed first, then looked up.
        into, names = self.keys_of("aliases", rows)
        bearers = self.lists("aliases", names)
        meant = self.count("aliases", names, bearers)
        known = names_few(meant)
        into, names, meant, bearers = into[known], names[known], meant[known], bearers[..., known]
        # A passage that goes by the name itself means the others by it.
        alike, bearer = self.find("aliases", names, bearers)
        place, keys = self.keys_of("mentions", bearer)
        uses = np.bincount(place, weights=keys == names[alike[place]], minlength=len(bearer))
        among = np.bincount(alike, weights=uses, minlength=len(names))
        is_own = bearer == rows[into[alike]]
        itself = np.bincount(alike, weights=uses * is_own, minlength=len(names))
        users = self.lists("mentions", names)
        mentions = self.count("mentions", names, users)
        weigh_in = (mentions - among) / meant + (among - itself) / np.maximum(meant - 1, 1)
        shared, spans = self.keys_of("spans", rows)
        those = self.lists("spans", spans)
        holders = self.count("spans", spans, those)
        rare = (holders >= FEWEST) & (holders <= MOST)
        shared, spans, holders, those = shared[rare], spans[rare], holders[rare], those[..., rare]
        span_weight = SPAN_WEIGHT / holders
        total = np.zeros(len(rows))
        for place, weights in (
            (found[0][0], found[0][2]),
            (into, weigh_in),
            (shared, span_weight * (holders - 1)),
        ):
            total += np.bincount(place, weights=weights, minlength=len(rows))
        least = faint * total
        strong = np.flatnonzero(1 / meant >= least[into])
        name, target = self.find("mentions", names[strong], users[..., strong])
        name = strong[name]
        own = are_among(name * self.size + target, alike * self.size + bearer)
        found.append((into[name], target, 1 / np.maximum(meant[name] - own, 1)))
        strong = np.flatnonzero(span_weight >= least[shared])
        span, target = self.find("spans", spans[strong], those[..., strong])
        span = strong[span]
        found.append((shared[span], target, span_weight[span]))
        source, target, weight = (np.concatenate(column) for column in zip(*found, strict=True))
        other = target != rows[source]
        return Links(source[other], target[other], weight[other], total)

    # --- Vectors

    def cosines(self, vector: NDArray[np.float32], rows: Rows) -> NDArray[np.float32]:
        """Return the cosine of given rows with a unit vector, exact."""
        found = np.zeros(len(rows), dtype=np.float32)
        for segment, places in self.by_segment(rows):
            found[places] = segment.vectors[rows[places] - segment.base] @ vector
        return found

    def vectors(self, rows: Rows) -> NDArray[np.float32]:
        """Return the vectors of given rows, ascending, shape (rows, dimension)."""
        found = [s.vectors[rows[places] - s.base] for s, places in self.by_segment(rows)]
        return np.concatenate(found or [self.segments[0].vectors[:0]])

    def nearest(self, vector: NDArray[np.float32], count: int) -> Rows:
        """Return the rows nearest to a unit vector, best first; approximate in a large store."""
        if not self._is_whole and len(self) <= _COMPARED:
            rows = self.rows()
            return rows[top(self.cosines(vector, rows), count)]
        found = []
        for segment in self.segments:
            alive = None if self._is_whole else self._alive[segment.base : segment.end]
            if len(segment.texts):
                found.append(segment.base + segment.nearest(vector, count, alive))
        rows = np.concatenate(found)
        return rows[top(self.cosines(vector, rows), count)]
