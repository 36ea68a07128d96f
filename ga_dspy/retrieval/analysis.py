"""The contents of texts: words, titles and aliases, mentions, spans that look like names."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ga_dspy.errors import require
from ga_dspy.passage import Passage
from ga_dspy.retrieval.postings import Arrays, Columns, changes, key_of, write_table
from ga_dspy.text import LONGEST_NAME, Word, aliases, fold, name_words, proper_names

# --- Words, as BM25 counts them

TITLE_WEIGHT: Final = 3

_WORD: Final = re.compile(r"\b(?:\w\w+|\d)\b")
"""Words of at least two letters, and single digits: Apollo 8 is not Apollo 9."""

_STOPWORDS: Final = frozenset(
    """
    a an and are as at be but by for if in into is it no not of on or such that the their then
    there these they this to was will with
    """.split()
)


def word_keys(text: str) -> list[int]:
    """Return the keys of a text's words, folded and stemmed, in order, without stopwords."""
    return [key for word in _WORD.findall(fold(text)) if (key := _word_key(word)) is not None]


@lru_cache(maxsize=1 << 17)
def _word_key(word: str) -> int | None:
    if word in _STOPWORDS:
        return None
    # A Stemmer object is not thread-safe, and cheap to make.
    return key_of(require("Stemmer", "search").Stemmer("english").stemWord(word))


# --- Names
#
# The key of a name is computed from those of its words, so that all runs of words of many texts are
# compared with all known names at once.

_BASE: Final = np.uint64(0x9E3779B97F4A7C15)

Known = Callable[[NDArray[np.uint64]], NDArray[np.bool_]]
"""Tells which keys belong to known names."""


def name_key(name: str) -> int:
    """Return the key of a name in the form of `fold_words`."""
    key = 0
    for word in name.split(" "):
        key = (key * int(_BASE) + key_of(word)) & 0xFFFFFFFFFFFFFFFF
    return key


def alias_keys(title: str, text: str = "") -> list[int]:
    """Return the keys of the names by which other texts may mention a passage."""
    return sorted(map(name_key, aliases(title, text)))


def _keys_and_starts(words: Sequence[Word]) -> tuple[list[int], list[bool]]:
    """Return the keys of a text's words, and where a name may begin.

    A name begins with a capital letter, or anywhere in a text without any, such as a typed query.
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
    """Find known names in texts: left to right, longest first, capitalised if the text is.

    Args:
        words: The keys of all words of the texts.
        starts: Where a name may begin, for each word.
        sizes: The number of words of each text.
        known: Tells which keys are names.

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
    for number, start, size in zip(
        hits.tolist(), at[hits].tolist(), length[hits].tolist(), strict=True
    ):
        if start >= free:  # no name crosses the end of a text
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
    """Return a test for membership in sorted keys; a bit table rejects most others quickly."""
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


# --- The analysis of a part of a corpus


def analyse(passages: Iterable[Passage], first: int, out: Columns, kind: str) -> Arrays:
    """Write the tables that a kind of index needs; the first passage has the row `first`.

    For links, the words of the texts are written too: `mentioned` reads them once all names are
    known.
    """
    words, names, links = kind != "dense", kind in ("hybrid", "linked"), kind == "linked"
    ids: list[int] = []
    terms: list[list[int]] = []
    lists: dict[str, list[Sequence[int]]] = {"aliases": [], "spans": [], "text": []}
    starts: list[list[bool]] = []
    for passage in passages:
        ids.append(key_of(passage.id))
        if words:
            terms.append(word_keys(passage.title) * TITLE_WEIGHT + word_keys(passage.text))
        if names:
            lists["aliases"].append(alias_keys(passage.title, passage.text))
        if links:
            lists["spans"].append([key_of(span) for span in sorted(proper_names(passage.content))])
            title = len(passage.title)
            content = name_words(passage.content)  # cached; those of the text alone are not
            keys, begins = _keys_and_starts([w for w in content if not title or w.start > title])
            lists["text"].append(keys)
            starts.append(begins)
    rows = np.arange(first, first + len(ids))
    write_table(out, "ids", [(np.array(ids, dtype=np.uint64), rows, None)])
    if words:
        lengths = np.array([len(row) for row in terms], dtype=np.int64)
        out.append("lengths.i4", lengths)
        write_table(out, "words", [_counted(_flat(terms), np.repeat(rows, lengths))])
    for name in lists if links else ["aliases"] if names else []:
        sizes = np.array([len(keys) for keys in lists[name]], dtype=np.int64)
        out.append_lists(name, sizes, _flat(lists[name]))
    if links:
        out.append("starts.b1", np.fromiter(chain.from_iterable(starts), bool))
    return out.finish()


def _flat(lists: Sequence[Sequence[int]]) -> NDArray[np.uint64]:
    return np.fromiter(chain.from_iterable(lists), dtype=np.uint64)


def _counted(keys: NDArray[np.uint64], rows: NDArray[np.int64]) -> tuple[Any, Any, Any]:
    """Count how often each key occurs in each row."""
    order = np.argsort(keys, kind="stable")
    keys, rows = keys[order], rows[order]
    new = np.flatnonzero(changes(keys) | changes(rows))
    counts = np.minimum(np.diff(new, append=len(keys)), 0xFFFF)
    return keys[new], rows[new], counts
