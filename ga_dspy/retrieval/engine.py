"""The local storage engine of an index, which rankings search.

`LocalEngine` reads segments: memory-mapped tables, of which a search touches only what its
candidates need. Added passages form a new segment, deleted ones are skipped, and small segments are
merged. So the cost of a change depends on its size, and search results equal those of an index
built from scratch.
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
"""Parameters of BM25, in Lucene's variant; titles count `TITLE_WEIGHT` times."""

MOST_TARGETS: Final = 12
"""An alias that more passages share is ignored."""

FEWEST, MOST = 2, 30
"""A span links the passages that contain it if their number is from `FEWEST` to `MOST`."""

SPAN_WEIGHT: Final = 0.3
"""The weight of a link through a shared span; a link through a mention of a name weighs 1."""


class Weights(NamedTuple):
    """BM25 weights of the distinct words of a query in rows.

    Attributes:
        cells: The weight of each word in each row, shape (words, rows); 0 if the row lacks it.
        times: The count of each word in the query, shape (words,).
        highest: The highest weight of each word in any passage, shape (words,); for very frequent
            words, of a sample.
    """

    cells: NDArray[np.float32]
    times: NDArray[np.float32]
    highest: NDArray[np.float32]


class Links(NamedTuple):
    """Links of rows: link i leads from `rows[source[i]]` to the row `target[i]`.

    Attributes:
        source: The place of the source in `rows`, for each link.
        target: The target row, for each link.
        weight: The weight of each link.
        total: The total weight of the links of each of `rows`, including links that are left out.
    """

    source: NDArray[np.int64]
    target: Rows
    weight: NDArray[np.float64]
    total: NDArray[np.float64]


def top(scores: NDArray[np.floating], count: int) -> NDArray[np.int64]:
    """Return the places of the `count` highest scores, best first; ties keep their order."""
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


# --- The local engine


class Segment(NamedTuple):
    """Passages that were added together, with their tables.

    Attributes:
        base: The row of the first passage; passage i of the segment is row `base + i`.
        texts: The passages.
        arrays: Tables and vectors by name. `mentions.whose.i4` lists the rows whose mentions the
            segment stores: its own, and older ones that were read again because names changed.
        folder: The folder of the arrays; None for memory.
        near: A FAISS index of the vectors, if there are many.
    """

    base: int
    texts: PassageTable
    arrays: Arrays
    folder: Path | None = None
    near: Any = None

    @property
    def end(self) -> int:
        """The number after the last row."""
        return self.base + len(self.texts)

    @property
    def weight(self) -> int:
        """The number of rows whose passages or mentions it stores."""
        return max(len(self.texts), len(self.arrays.get("mentions.whose.i4", ())))

    @property
    def vectors(self) -> NDArray[np.float32]:
        """Unit vectors, shape (passages, dimension)."""
        return self.arrays["vectors.f4"].reshape(len(self.texts), -1)

    def holds(self, part: str) -> bool:
        """Return whether the segment has a table, or "vectors"."""
        return f"{part}.keys.u8" in self.arrays or f"{part}.f4" in self.arrays

    def nearest(
        self, vector: NDArray[np.float32], count: int, alive: NDArray[np.bool_] | None
    ) -> NDArray[np.int64]:
        """Return the places of the passages nearest to a unit vector, without those not `alive`."""
        if self.near is None:
            scores = self.vectors @ vector
            if alive is not None:
                scores[~alive] = -np.inf
            best = top(scores, count)
            return best[scores[best] > -np.inf]
        options = None
        if alive is not None:
            faiss = require("faiss", "search")
            selector = faiss.IDSelectorBitmap(np.packbits(alive, bitorder="little"))
            options = faiss.SearchParametersIVF(nprobe=self.near.nprobe, sel=selector)
        query = np.ascontiguousarray(vector[None, :])
        _, (best,) = self.near.search(query, min(count, len(self.texts)), params=options)
        return np.asarray(best[best >= 0], dtype=np.int64)


def names_few(count: Any) -> Any:
    """Return the mask of names that some, but not too many passages have, given their counts."""
    return (count > 0) & (count <= MOST_TARGETS)


Lists: TypeAlias = NDArray[np.int64]
"""Begin and end of the list of each key in each of several tables, shape (tables, 2, keys)."""


class _Word(NamedTuple):
    """Statistics of a word of the corpus.

    Attributes:
        frequency: The number of rows that contain it.
        idf: Its inverse document frequency.
        highest: Its highest weight in any row.
        lists: The slice of its rows in the table of each segment.
    """

    frequency: int
    idf: float
    highest: float
    lists: tuple[slice, ...]


_SAMPLE: Final = 1 << 16
"""For words of more rows, the highest weight is that of a sample."""

_LONG: Final = 1 << 14
"""Longer lists are read only if they could move another row among the best."""

_CACHED_BYTES: Final = 1 << 26
"""The approximate memory of all cached access scopes together."""

_COMPARED: Final = 1 << 14
"""Up to this many rows left after deletions, a query is compared with each of them."""

_SHOWN: Final = 200
"""The number of passages whose fields an error about an unknown field lists."""


class LocalEngine:
    """An immutable engine of segments, without deleted rows; thread-safe.

    Rows are numbers that ascend in corpus order. A change makes another engine, which shares the
    segments.

    Links are found by spelling, without an LM: two passages are linked if one mentions a name of
    the other, or if both contain a capitalised span that is rare in the corpus.
    """

    def __init__(self, segments: Sequence[Segment], dead: Sequence[int] | Rows = ()) -> None:
        self.segments = tuple(segments)
        self.size = self.segments[-1].end
        self._bases = np.array([segment.base for segment in self.segments])
        self._alive = np.ones(self.size, dtype=np.bool_)
        self._alive[np.asarray(dead, dtype=np.int64)] = False
        self.dead = np.flatnonzero(~self._alive)
        self._is_whole = not len(self.dead)
        self.tables: dict[str, list[Table]] = {}
        for name in filter(self.holds, ("ids", "words", "aliases", "spans", "mentions")):
            self.tables[name] = [Table.of(segment.arrays, name) for segment in self.segments]
        self._mentions_owner = self._mentions_owners()
        self._word = lru_cache(maxsize=4096)(self._statistics)
        self._query_words = lru_cache(maxsize=64)(self._words_of)
        scopes = min(max(_CACHED_BYTES // (16 * max(self.size, 1)), 2), 64)
        self.restricted = lru_cache(maxsize=scopes)(self._restricted)

    def __len__(self) -> int:
        return self.size - len(self.dead)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle without caches."""
        return LocalEngine, (self.segments, self.dead)

    def holds(self, part: str) -> bool:
        """Return whether the engine has a table ("words", "aliases", "spans"), or "vectors"."""
        return all(segment.holds(part) for segment in self.segments)

    def _restricted(self, where: str) -> LocalEngine:
        """Return the engine with only the passages that meet a JSON list of conditions (`Where`).

        Each element is checked only against the passages that meet the elements before it, so its
        errors reveal nothing about other passages. If no passage is left, conditions are not
        checked.

        Raises:
            InputError: No passage has such a field, or a value of such a type.
        """
        alive = self._alive
        for conditions in json.loads(where):
            if alive.any():
                alive = self._meeting(conditions, alive)
        return LocalEngine(self.segments, np.flatnonzero(~alive))

    def _meeting(self, where: Where, among: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return the mask of rows among some that meet all conditions."""
        met = among.copy()
        for name, sign, wanted in comparisons(where):
            # All passages count for `within`: the visible ones may have no access label at all.
            seen = self._alive if sign == "within" else among
            fields = [segment.texts.field(name) for segment in self.segments]
            parts = np.split(seen, self._bases[1:])
            kinds = set[Kind]().union(*map(Field.kinds, fields, parts))
            if not kinds:
                # The error lists only fields of passages that meet the other conditions.
                others = {key: values for key, values in where.items() if key != name}
                among = self._meeting(others, among) if others else among
                shown = self.passages(np.flatnonzero(among)[:_SHOWN].tolist())
                raise unknown_field(name, {key for passage in shown for key in passage.metadata})
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
        """The ids of documents in corpus order, and the place of its document for each of `rows()`.

        The passages of a document have its id, or its id and a number: `report.md#2`.
        """
        compute = require("pyarrow.compute", "search")
        stems = compute.replace_substring_regex(self._ids(), r"#[0-9]+$", "")
        encoded = stems.combine_chunks().dictionary_encode()
        return encoded.dictionary, encoded.indices.to_numpy()

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
        numbers = self._segment_of(rows)
        for number in np.unique(numbers).tolist():
            yield self.segments[number], np.flatnonzero(numbers == number)

    # --- Tables over all segments

    def _mentions_owners(self) -> NDArray[np.int16] | None:
        """Return the segment with the current mentions of each row, or -1; None if all are current.

        Earlier segments may hold outdated mentions of a row.
        """
        if "mentions" not in self.tables or (len(self.segments) == 1 and self._is_whole):
            return None
        owner = np.full(self.size, -1, dtype=np.int16)
        for number, segment in enumerate(self.segments):
            owner[segment.arrays["mentions.whose.i4"]] = number
        owner[self.dead] = -1
        return owner

    def lists(self, name: str, keys: NDArray[np.uint64]) -> Lists:
        """Return the begin and the end of the list of each key in the table of each segment."""
        return np.array([table.ranges(keys) for table in self.tables[name]])

    def find(
        self, name: str, keys: NDArray[np.uint64], lists: Lists | None = None
    ) -> tuple[NDArray[np.int64], Rows]:
        """Return the rows with each key: places in `keys`, rows; pass `lists` if they are known."""
        all_places, all_rows = [], []
        lists = self.lists(name, keys) if lists is None else lists
        for number, (table, (begin, end)) in enumerate(zip(self.tables[name], lists, strict=True)):
            places, cells = ragged(begin, end, len(table.rows))
            rows = table.rows[cells].astype(np.int64)
            valid: Any = slice(None) if self._is_whole else self._alive[rows]
            if name == "mentions" and self._mentions_owner is not None:
                valid = self._mentions_owner[rows] == number
            all_places.append(places[valid])
            all_rows.append(rows[valid])
        return np.concatenate(all_places), np.concatenate(all_rows)

    def count(
        self, name: str, keys: NDArray[np.uint64], lists: Lists | None = None
    ) -> NDArray[np.int64]:
        """Return the number of rows with each key; pass `lists` if they are known."""
        lists = self.lists(name, keys) if lists is None else lists
        if not self._is_whole or (name == "mentions" and self._mentions_owner is not None):
            return np.bincount(self.find(name, keys, lists)[0], minlength=len(keys))
        return np.asarray((lists[:, 1] - lists[:, 0]).sum(axis=0), dtype=np.int64)

    def keys_of(self, name: str, rows: Rows) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
        """Return the keys of each row: places in `rows`, ascending, and keys."""
        numbers = self._segment_of(rows)
        is_owned = name == "mentions" and self._mentions_owner is not None
        if is_owned:
            numbers = self._mentions_owner[rows]  # type: ignore[index]
        all_places, all_keys = [np.zeros(0, dtype=np.int64)], [np.zeros(0, dtype=np.uint64)]
        for number in np.unique(numbers[numbers >= 0]).tolist():
            segment, mine = self.segments[number], np.flatnonzero(numbers == number)
            local = rows[mine] - segment.base
            if is_owned:
                local = np.searchsorted(segment.arrays["mentions.whose.i4"], rows[mine])
            of, held = segment.arrays[f"{name}.of.i8"], segment.arrays[f"{name}.held.u8"]
            places, cells = ragged(of[local], of[local + 1], len(held))
            all_places.append(mine[places])
            all_keys.append(held[cells])
        places, keys = np.concatenate(all_places), np.concatenate(all_keys)
        order = np.argsort(places, kind="stable")
        return places[order], keys[order]

    # --- Words

    @cached_property
    def norm(self) -> NDArray[np.float32]:
        """The length normalisation of BM25 for each row, which is added to the count of a word."""
        lengths = np.concatenate([segment.arrays["lengths.i4"] for segment in self.segments])
        total = int(lengths.sum()) - int(lengths[self.dead].sum())
        share = lengths * (len(self) / max(total, 1))
        return (K1 * (1 - B + B * share)).astype(np.float32)

    def _statistics(self, key: int) -> _Word:
        keys = np.array([key], dtype=np.uint64)
        lists = tuple(slice(*map(int, np.concatenate(r))) for r in self.lists("words", keys))
        frequency = sum(len(rows) for rows, _ in self._cells(lists))
        idf = float(np.log(1 + (len(self) - frequency + 0.5) / (frequency + 0.5)))
        highest = 0.0
        for rows, counts in self._cells(lists):
            sample = slice(None, None, len(rows) // _SAMPLE + 1)
            scores = self._scores(rows[sample], counts[sample], idf)
            highest = max(highest, float(scores.max(initial=0.0)))
        return _Word(frequency, idf, highest, lists)

    def _cells(
        self, lists: Iterable[slice]
    ) -> Iterator[tuple[NDArray[np.int32], NDArray[np.uint16]]]:
        """Yield the rows that contain a word and its counts in them, segment by segment."""
        for table, cells in zip(self.tables["words"], lists, strict=True):
            rows, counts = table.rows[cells], table.counts[cells]  # type: ignore[index]
            if not self._is_whole:
                alive = self._alive[rows]
                rows, counts = rows[alive], counts[alive]
            if len(rows):
                yield rows, counts

    def _scores(
        self, rows: NDArray[np.integer], counts: NDArray[np.uint16], idf: float
    ) -> NDArray[np.float32]:
        frequency = counts.astype(np.float32)
        scores: NDArray[np.float32] = np.float32(idf) * (frequency / (frequency + self.norm[rows]))
        return scores

    def _words_of(self, query: str) -> tuple[tuple[_Word, int], ...]:
        """Return the words of a query that the corpus has, with their counts in the query."""
        counted = ((self._word(key), times) for key, times in Counter(word_keys(query)).items())
        return tuple((word, times) for word, times in counted if word.frequency)

    def best(self, query: str, count: int) -> tuple[Rows, NDArray[np.float32]]:
        """Return the rows with the `count` highest BM25 scores, ties included, and the scores.

        Words are scored from rare to frequent. Once the rest cannot move another row among the
        best, it is only looked up in the rows that can still be among them (MaxScore).
        """
        words = sorted(self._query_words(query), key=lambda item: item[0].frequency)
        total = np.zeros(self.size, dtype=np.float32)
        bounds = [times * word.idf for word, times in words]  # a word's count weighs less than 1
        for number, (word, times) in enumerate(words):
            if number and word.frequency > _LONG:
                rows = np.flatnonzero(total)
                rest = sum(bounds[number:]) * (1 + 1e-5)
                floor = np.partition(total[rows], -count)[-count] if len(rows) > count else 0.0
                if rest < floor:
                    rows = rows[total[rows] + rest >= floor]
                    weights = self._weigh(words[number:], rows)
                    total[rows] += weights.times @ weights.cells
                    break
            for holders, counts in self._cells(word.lists):
                total[holders] += times * self._scores(holders, counts, word.idf)
        else:
            rows = np.flatnonzero(total)
        rows = rows[top_places(total[rows], count)]
        return rows, total[rows]

    def weigh(self, query: str, rows: Rows) -> Weights:
        """Return the BM25 weights of the words of a query in given rows."""
        return self._weigh(self._query_words(query), rows)

    def _weigh(self, words: Sequence[tuple[_Word, int]], rows: Rows) -> Weights:
        cells = np.zeros((len(words), len(rows)), dtype=np.float32)
        for line, (word, _) in zip(cells, words, strict=True):
            for holders, counts in self._cells(word.lists):
                places = holders.searchsorted(rows)
                matches = (holders.take(places, mode="clip") == rows).nonzero()[0]
                line[matches] = self._scores(rows[matches], counts[places[matches]], word.idf)
        times = np.array([times for _, times in words], dtype=np.float32)
        return Weights(cells, times, np.array([word.highest for word, _ in words], np.float32))

    def holding(self, name: str) -> Rows:
        """Return the rows that contain every word of a name, ascending."""
        keys = np.array(list(set(word_keys(name))), dtype=np.uint64)
        _, holders = self.find("words", keys)
        rows, counts = np.unique(holders, return_counts=True)
        return np.asarray(rows[counts == len(keys)], dtype=np.int64)

    # --- Names and links

    def known(self, keys: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Return the mask of keys that are names of passages, but not of too many."""
        return np.asarray(names_few(self.count("aliases", keys)))

    def rows_named(self, text: str) -> Rows:
        """Return the rows with a name that occurs in a text, ascending."""
        return distinct(self.find("aliases", mentioned_in([text], self.known)[1])[1])

    def links(self, rows: Rows, faint: NDArray[np.float64]) -> Links:
        """Return the links of given rows.

        Links to rows that mention them, or share a span with them, are weighed before they are
        looked up, and looked up only if they are strong enough.

        Args:
            rows: The rows.
            faint: For each row, the share of its total weight below which links are left out.
        """
        # Links to rows whose names these rows mention; rows with the same name share its weight.
        source, mentioned = self.keys_of("mentions", rows)
        name, target = self.find("aliases", mentioned)
        other = target != rows[source[name]]
        name, target = name[other], target[other]
        source, weight = source[name], 1 / np.bincount(name, minlength=1)[name]
        found = [(source, target, weight)]
        total = np.bincount(source, weights=weight, minlength=len(rows)).astype(np.float64)

        # Links to rows that mention a name of these rows. `bearer`: a row with the same name; if
        # it mentions the name, it means the other bearers.
        named, names = self.keys_of("aliases", rows)
        bearers = self.lists("aliases", names)
        count = self.count("aliases", names, bearers)
        few = names_few(count)
        named, names, count, bearers = named[few], names[few], count[few], bearers[..., few]
        alias, bearer = self.find("aliases", names, bearers)
        place, keys = self.keys_of("mentions", bearer)
        uses = np.bincount(place, weights=keys == names[alias[place]], minlength=len(bearer))
        by_bearers = np.bincount(alias, weights=uses, minlength=len(names))
        is_itself = bearer == rows[named[alias]]
        by_itself = np.bincount(alias, weights=uses * is_itself, minlength=len(names))
        users = self.lists("mentions", names)
        by_all = self.count("mentions", names, users)
        weight = (by_all - by_bearers) / count + (by_bearers - by_itself) / np.maximum(count - 1, 1)
        total += np.bincount(named, weights=weight, minlength=len(rows))

        # Links to rows that share a rare span with these rows.
        holder, spans = self.keys_of("spans", rows)
        lists = self.lists("spans", spans)
        sharing = self.count("spans", spans, lists)
        rare = (sharing >= FEWEST) & (sharing <= MOST)
        holder, spans, sharing, lists = holder[rare], spans[rare], sharing[rare], lists[..., rare]
        span_weight = SPAN_WEIGHT / sharing
        total += np.bincount(holder, weights=span_weight * (sharing - 1), minlength=len(rows))

        least = faint * total
        strong = np.flatnonzero(1 / count >= least[named])
        name, target = self.find("mentions", names[strong], users[..., strong])
        name = strong[name]
        is_bearer = are_among(name * self.size + target, alias * self.size + bearer)
        found.append((named[name], target, 1 / np.maximum(count[name] - is_bearer, 1)))
        strong = np.flatnonzero(span_weight >= least[holder])
        span, target = self.find("spans", spans[strong], lists[..., strong])
        span = strong[span]
        found.append((holder[span], target, span_weight[span]))
        source, target, weight = (np.concatenate(column) for column in zip(*found, strict=True))
        other = target != rows[source]
        return Links(source[other], target[other], weight[other], total)

    # --- Vectors

    def cosines(self, vector: NDArray[np.float32], rows: Rows) -> NDArray[np.float32]:
        """Return the exact cosine of each of the given rows with a unit vector."""
        found = np.zeros(len(rows), dtype=np.float32)
        for segment, places in self.by_segment(rows):
            found[places] = segment.vectors[rows[places] - segment.base] @ vector
        return found

    def vectors(self, rows: Rows) -> NDArray[np.float32]:
        """Return the vectors of given rows, ascending, shape (rows, dimension)."""
        found = [s.vectors[rows[places] - s.base] for s, places in self.by_segment(rows)]
        return np.concatenate(found or [self.segments[0].vectors[:0]])

    def nearest(self, vector: NDArray[np.float32], count: int) -> Rows:
        """Return the rows nearest to a unit vector, best first; approximate for many vectors."""
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
