"""An inverted index of texts, in arrays that may be larger than memory.

A key is a 64-bit hash of a word or a name, so tables are arrays of sorted numbers, without Python
objects per passage. The keys of each row are stored by row (`of`, `held`) and inverted, by key
(`keys`, `starts`, `rows`). Arrays are memory-mapped files in a folder, or in memory. The second
half of this file finds the keys of a text: words, titles and aliases, mentions, capitalised spans.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ga_dspy.errors import require
from ga_dspy.passage import Passage
from ga_dspy.text import LONGEST_NAME, Word, aliases, fold, name_words, proper_names

Kind = Literal["sparse", "dense", "hybrid", "linked"]
PARTS: Final[dict[Kind, tuple[str, ...]]] = {
    "sparse": ("words",),
    "dense": ("vectors",),
    "hybrid": ("words", "vectors", "aliases"),
    "linked": ("words", "vectors", "aliases", "mentions"),
}
"""The parts of an index that each kind of ranking reads."""

KINDS: Final[tuple[Kind, ...]] = tuple(PARTS)

Arrays: TypeAlias = Mapping[str, NDArray[Any]]
"""Arrays by name; the suffix of a name is the dtype of the array ("words.rows.i4")."""

Rows: TypeAlias = NDArray[np.int64]

_BLOCK = 4_000_000
"""The approximate number of cells of a table that are sorted at once."""


@lru_cache(maxsize=1 << 17)
def key_of(text: str) -> int:
    """Return the 64-bit key of a word or a name, the same in every process."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


# --- Arrays in a folder or in memory


class Columns:
    """Arrays that grow block by block, in memory or in files of a folder."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._blocks: dict[str, list[NDArray[Any]]] = {}
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
        self.sizes: dict[str, int] = {}

    def append(self, name: str, block: Any) -> None:
        """Append a block to an array; the suffix of the name is its dtype."""
        block = np.ascontiguousarray(block, dtype=name.rpartition(".")[2]).reshape(-1)
        self.sizes[name] = self.sizes.get(name, 0) + block.size
        if self._folder is None:
            self._blocks.setdefault(name, []).append(block)
        else:
            with (self._folder / name).open("ab") as file:
                file.write(block.data)

    def append_lists(self, name: str, sizes: NDArray[np.integer], held: Any) -> None:
        """Append the keys of the next rows, `sizes` keys per row."""
        if f"{name}.of.i8" not in self.sizes:
            self.append(f"{name}.of.i8", [0])
        before = self.sizes.get(f"{name}.held.u8", 0)
        self.append(f"{name}.of.i8", np.cumsum(sizes) + before)
        self.append(f"{name}.held.u8", held)

    def array(self, name: str) -> NDArray[Any]:
        """Return an array; a file is mapped into memory."""
        if self._folder is not None:
            return _mapped(self._folder / name)
        blocks = self._blocks[name]
        if len(blocks) > 1:
            blocks[:] = [np.concatenate(blocks)]
        return blocks[0]

    def finish(self) -> Arrays:
        """Return all arrays."""
        return {name: self.array(name) for name in self.sizes}


def mapped(folder: Path, name: str = "") -> Arrays:
    """Map the arrays of a folder, or of one table in it, into memory."""
    return {path.name: _mapped(path) for path in folder.glob(f"{name}*.??")}


def _mapped(path: Path) -> NDArray[Any]:
    if not path.stat().st_size:
        return np.zeros(0, path.suffix[1:])
    # A plain array, because slicing a memmap is slow.
    return np.asarray(np.memmap(path, dtype=path.suffix[1:], mode="r"))


def ragged(
    begin: NDArray[np.integer], end: NDArray[np.integer], most: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Concatenate ranges; return the index of the range of each number, and the numbers.

    Raises:
        IndexError: A range has a negative size, or more than `most` numbers.
    """
    sizes = np.asarray(end - begin, dtype=np.int64)
    if sizes.max(initial=0) > most:
        raise IndexError(f"a list of {sizes.max():,} entries in a table of {most:,}")
    try:
        owner: NDArray[np.int64] = np.arange(len(sizes)).repeat(sizes)
    except ValueError as error:
        raise IndexError("a list that ends before it begins") from error
    first = np.subtract(begin, sizes.cumsum() - sizes, dtype=np.int64)
    return owner, np.arange(len(owner)) + first[owner]


def distinct(values: NDArray[Any]) -> NDArray[Any]:
    """Return the distinct values, ascending; faster than `np.unique` for few values."""
    values = np.sort(values)
    return values[changes(values)]


def changes(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Return the mask of sorted values that differ from the previous one."""
    differs = np.ones(len(values), dtype=np.bool_)
    np.not_equal(values[1:], values[:-1], out=differs[1:])
    return differs


def are_among(values: NDArray[Any], others: NDArray[Any]) -> NDArray[np.bool_]:
    """Return the mask of values that are among others; faster than `np.isin` for few values."""
    if not len(others):
        return np.zeros(len(values), dtype=np.bool_)
    others = np.sort(others)
    found: NDArray[np.bool_] = others.take(others.searchsorted(values), mode="clip") == values
    return found


# --- Tables of keys


class Table(NamedTuple):
    """The rows of each key: `keys[i]` has `rows[starts[i]:starts[i + 1]]`, ascending."""

    keys: NDArray[np.uint64]
    starts: NDArray[np.int64]
    rows: NDArray[np.int32]
    counts: NDArray[np.uint16] | None

    @classmethod
    def of(cls, arrays: Arrays, name: str) -> Table:
        """Return the table with a name from the arrays of a segment.

        Raises:
            ValueError: The lengths of the arrays do not match.
        """
        keys, starts = arrays[f"{name}.keys.u8"], arrays[f"{name}.starts.i8"]
        rows, counts = arrays[f"{name}.rows.i4"], arrays.get(f"{name}.counts.u2")
        fits = len(starts) == len(keys) + 1 and starts[-1] == len(rows)
        if not fits or (counts is not None and len(counts) != len(rows)):
            raise ValueError(f"the columns of the table {name} have different lengths")
        return cls(keys, starts, rows, counts)

    def ranges(self, keys: NDArray[np.uint64]) -> tuple[Rows, Rows]:
        """Return the begin and the end of the list of each key; equal if the key is absent."""
        if not len(self.keys):
            return np.zeros(len(keys), np.int64), np.zeros(len(keys), np.int64)
        places = np.minimum(self.keys.searchsorted(keys), len(self.keys) - 1)
        begin = self.starts[places]
        return begin, np.where(self.keys[places] == keys, self.starts[places + 1], begin)


def _ranges(cells: int) -> list[tuple[int, int]]:
    """Split the range of keys into inclusive ranges with about `_BLOCK` cells each."""
    parts = max(1, -(-cells // _BLOCK))
    bounds = [(1 << 64) * i // parts for i in range(parts + 1)]
    return [(low, high - 1) for low, high in pairwise(bounds)]


def invert(
    out: Columns, name: str, rows: NDArray[np.integer], parts: Sequence[Path | Arrays]
) -> None:
    """Invert the lists of keys of some rows into a table by key.

    Args:
        out: Where the table is written.
        name: The name of the table and of the lists.
        rows: The rows, ascending.
        parts: Their lists of keys, in the same order: arrays, or folders to map only when needed.
    """
    numbers = rows.astype(np.int32)

    def lists() -> Iterator[tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.uint64]]]:
        first = 0
        for part in parts:
            arrays = mapped(part, name) if isinstance(part, Path) else part
            of, held = arrays[f"{name}.of.i8"], arrays[f"{name}.held.u8"]
            yield numbers[first : first + len(of) - 1], of, held
            first += len(of) - 1

    written = 0
    for low, high in _ranges(sum(len(held) for _, _, held in lists())):
        keys, holders = [], []
        for some, of, held in lists():
            places = np.flatnonzero((held >= np.uint64(low)) & (held <= np.uint64(high)))
            keys.append(held[places])
            holders.append(some[np.searchsorted(of, places, side="right") - 1])
        key, row = np.concatenate(keys), np.concatenate(holders)
        del keys, holders
        order = np.argsort(key, kind="stable")  # keeps the rows of a key in order
        key, row = key[order], row[order]
        del order
        new = np.flatnonzero(changes(key) | changes(row))
        counts = np.diff(new, append=len(key))
        key, row = key[new], row[new]
        first = np.flatnonzero(changes(key))
        out.append(f"{name}.keys.u8", key[first])
        out.append(f"{name}.starts.i8", first + written)
        out.append(f"{name}.rows.i4", row)
        if name == "words":
            out.append(f"{name}.counts.u2", np.minimum(counts, 0xFFFF))
        written += len(key)
    out.append(f"{name}.starts.i8", [written])


# --- Words for BM25

TITLE_WEIGHT: Final = 3

_WORD: Final = re.compile(r"\b(?:\w\w+|\d)\b")
"""Words of at least two letters, and single digits, which distinguish Apollo 8 and Apollo 9."""

_STOPWORDS: Final = frozenset(
    """
    a an and are as at be but by for if in into is it no not of on or such that the their then
    there these they this to was will with
    """.split()
)


def word_keys(text: str) -> list[int]:
    """Return the keys of the folded and stemmed words of a text, in order, without stopwords."""
    return [key for word in _WORD.findall(fold(text)) if (key := _word_key(word)) is not None]


@lru_cache(maxsize=1 << 17)
def _word_key(word: str) -> int | None:
    if word in _STOPWORDS:
        return None
    # A Stemmer object is not thread-safe, but cheap to create.
    return key_of(require("Stemmer", "search").Stemmer("english").stemWord(word))


# --- Names
#
# The key of a name is a rolling hash of the keys of its words, so all word n-grams of many texts
# are compared with all known names at once.

_BASE: Final = np.uint64(0x9E3779B97F4A7C15)

Known = Callable[[NDArray[np.uint64]], NDArray[np.bool_]]
"""Returns the mask of keys that belong to known names."""


def name_key(name: str) -> int:
    """Return the key of a name that is normalised by `fold_words`."""
    key = 0
    for word in name.split(" "):
        key = (key * int(_BASE) + key_of(word)) & 0xFFFFFFFFFFFFFFFF
    return key


def alias_keys(title: str, text: str = "") -> list[int]:
    """Return the keys of the names by which other texts may mention a passage."""
    return sorted(map(name_key, aliases(title, text)))


def _keys_and_starts(words: Sequence[Word]) -> tuple[list[int], list[bool]]:
    """Return the keys of the words of a text, and whether a name may begin at each.

    A name begins with a capital letter; in a text without any, such as a typed query, anywhere.
    """
    keys = [key_of(word.folded) for word in words]
    if any(word.proper and not word.folded[0].isdigit() for word in words):
        return keys, [word.proper for word in words]
    return keys, [True] * len(words)


def mentioned(
    words: NDArray[np.uint64],
    starts: NDArray[np.bool_],
    sizes: NDArray[np.integer],
    known: Known,
) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
    """Find known names in texts, from left to right, the longest at each word.

    Args:
        words: The keys of all words of the texts.
        starts: Whether a name may begin at each word.
        sizes: The number of words of each text.
        known: Returns the mask of keys that are names.

    Returns:
        The number of distinct names in each text, and their keys.
    """
    ends = np.repeat(np.cumsum(sizes), sizes)
    at = np.flatnonzero(starts)
    run = words[at]
    length, key = np.zeros(len(at), dtype=np.int64), run.copy()
    for size in range(1, LONGEST_NAME + 1):
        if size > 1:
            fits = at + size <= ends[at]
            if not fits.any():
                break
            run = np.where(fits, run * _BASE + words[np.minimum(at + size - 1, len(words) - 1)], 0)
        hit = np.flatnonzero(known(run)) if size == 1 else np.flatnonzero(fits & known(run))
        length[hit], key[hit] = size, run[hit]
    hits = np.flatnonzero(length)
    free, chosen = 0, []
    columns = hits.tolist(), at[hits].tolist(), length[hits].tolist()
    for number, start, size in zip(*columns, strict=True):
        if start >= free:  # names do not overlap, and none crosses the end of a text
            chosen.append(number)
            free = start + size
    text = np.searchsorted(np.cumsum(sizes), at[chosen], side="right")
    names = key[chosen]
    order = np.lexsort((names, text))
    text, names = text[order], names[order]
    new = changes(text) | changes(names)
    return np.bincount(text[new], minlength=len(sizes)), names[new]


def mentioned_in(texts: Sequence[str], known: Known) -> tuple[Any, NDArray[np.uint64]]:
    """Find known names in texts; see `mentioned`."""
    found = [_keys_and_starts(name_words(text)) for text in texts]
    sizes = np.array([len(keys) for keys, _ in found], dtype=np.int64)
    words = np.fromiter(chain.from_iterable(keys for keys, _ in found), dtype=np.uint64)
    starts = np.fromiter(chain.from_iterable(proper for _, proper in found), dtype=np.bool_)
    return mentioned(words, starts, sizes, known)


def among(names: NDArray[np.uint64]) -> Known:
    """Return a membership test for sorted keys; a bit table rejects most other keys quickly."""
    bits = max(16, min(26, 4 + len(names).bit_length()))
    mask = np.uint64((1 << bits) - 1)
    table = np.zeros(1 << bits, dtype=np.bool_)
    table[names & mask] = True

    def known(keys: NDArray[np.uint64]) -> NDArray[np.bool_]:
        found: NDArray[np.bool_] = table[keys & mask]
        likely = np.flatnonzero(found)
        places = np.minimum(np.searchsorted(names, keys[likely]), max(len(names) - 1, 0))
        found[likely] = names[places] == keys[likely]
        return found

    return known


# --- The analysis of passages

_LISTS: Final = {"words": ("words",), "aliases": ("aliases",), "mentions": ("spans", "text")}
"""The lists of keys that a part of an index is made from."""


def analyse(passages: Iterable[Passage], out: Columns, kind: Kind) -> Arrays:
    """Write the keys of each passage that a kind of index needs.

    For links, this includes the words of the texts, in which `mentioned` finds names later, once
    all names are known.
    """
    needed = chain.from_iterable(_LISTS.get(part, ()) for part in PARTS[kind])
    lists: dict[str, list[Sequence[int]]] = {name: [] for name in ("ids", *needed)}
    starts: list[bool] = []
    for passage in passages:
        lists["ids"].append([key_of(passage.id)])
        if "words" in lists:
            title, text = word_keys(passage.title), word_keys(passage.text)
            lists["words"].append(title * TITLE_WEIGHT + text)
        if "aliases" in lists:
            lists["aliases"].append(alias_keys(passage.title, passage.text))
        if "text" in lists:
            lists["spans"].append([key_of(span) for span in sorted(proper_names(passage.content))])
            end = len(passage.title)
            content = name_words(passage.content)  # cached; those of the text alone are not
            keys, begins = _keys_and_starts([w for w in content if not end or w.start > end])
            lists["text"].append(keys)
            starts += begins
    for name, every in lists.items():
        held = np.fromiter(chain.from_iterable(every), dtype=np.uint64)
        out.append_lists(name, np.array([len(keys) for keys in every], dtype=np.int64), held)
    if "text" in lists:
        out.append("starts.b1", starts)
    return out.finish()
