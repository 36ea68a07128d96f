"""Where does a text mention a phrase? Character spans, found by us and never claimed by an LM.

Three rungs, the first that holds decides:

1. exact: the same words in the same order, spelled the same;
2. normalised: the same words in the same order after Unicode, case and accent folding, whatever
   the punctuation between them, without a leading article;
3. fuzzy: a window of as many words (one more or fewer) whose string similarity reaches
   `FUZZY_THRESHOLD` of 100, for phrases of at least `FUZZY_LENGTH` letters; numbers in it must be
   equal. Dates match in any order, and a phrase without a name or number ("her father's church")
   matches where all its content words stand close together ("the church of her father").
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from itertools import pairwise
from typing import Literal, NamedTuple

FUZZY_THRESHOLD = 90.0
FUZZY_LENGTH = 8
MAX_MENTIONS = 20

Rung = Literal["exact", "normalised", "fuzzy"]

_WORD = re.compile(r"\w+")
_SENTENCE_END = re.compile(r"(?<=[.!?])[\"')\]]*\s+(?=[\"'(\[]*[A-Z0-9])|\n+")
_ARTICLES = frozenset(("the", "a", "an"))
_FUNCTION_WORDS = _ARTICLES | frozenset(
    (
        "of in on at by for from to with and or as is was are were be been being has have had "
        "his her its their he she it they that this these those who which s during into after "
        "before"
    ).split()
)
_MONTHS = frozenset(
    (
        "january february march april may june july august september october november december "
        "jan feb mar apr jun jul aug sep sept oct nov dec bc ad ce bce"
    ).split()
)


class Mention(NamedTuple):
    """Where a phrase stands: characters `start` to `end` (exclusive), and how it was found."""

    start: int
    end: int
    rung: Rung


class Word(NamedTuple):
    """A word of a text: folded for comparison, with its place."""

    folded: str
    start: int
    end: int


def fold(text: str) -> str:
    """Case, accents and compatibility forms removed.

    >>> fold("Čapek’s Ünique")
    'capek’s unique'
    """
    decomposed = unicodedata.normalize("NFKD", text)
    return "".join(c for c in decomposed if not unicodedata.combining(c)).casefold()


@lru_cache(maxsize=4096)
def words(text: str) -> tuple[Word, ...]:
    """The words of a text, folded, with their character offsets."""
    return tuple(Word(fold(m.group()), m.start(), m.end()) for m in _WORD.finditer(text))


@lru_cache(maxsize=1024)
def sentences(text: str) -> tuple[tuple[int, int], ...]:
    """The sentences of a text as character spans; a line break ends one too."""
    cuts = [0, *(m.end() for m in _SENTENCE_END.finditer(text)), len(text)]
    return tuple((a, a + len(text[a:b].rstrip())) for a, b in pairwise(cuts) if text[a:b].strip())


@lru_cache(maxsize=65536)
def mentions(phrase: str, text: str) -> tuple[Mention, ...]:
    """Every place where a text mentions a phrase, by the first rung that finds any.

    >>> mentions("the red lodge", "Red Lodge is a city.")
    (Mention(start=0, end=9, rung='normalised'),)
    >>> mentions("Billings", "Red Lodge is a city.")
    ()
    """
    sought = [word.folded for word in words(phrase)]
    while len(sought) > 1 and sought[0] in _ARTICLES:
        sought = sought[1:]
    if not sought:
        return ()
    found = _in_order(sought, text)
    if found:
        return tuple(_with_rung(phrase, text, start, end) for start, end in found)
    loose = _fuzzy(sought, text) or _any_order(phrase, sought, text)
    return tuple(Mention(start, end, "fuzzy") for start, end in loose[:MAX_MENTIONS])


def _with_rung(phrase: str, text: str, start: int, end: int) -> Mention:
    exact = text[start:end] == phrase
    return Mention(start, end, "exact" if exact else "normalised")


def _in_order(sought: list[str], text: str) -> list[tuple[int, int]]:
    there = words(text)
    size, first = len(sought), sought[0]
    return [
        (there[i].start, there[i + size - 1].end)
        for i in range(len(there) - size + 1)
        if there[i].folded == first and all(there[i + j].folded == sought[j] for j in range(size))
    ][:MAX_MENTIONS]


def _fuzzy(sought: list[str], text: str) -> list[tuple[int, int]]:
    from rapidfuzz.fuzz import ratio

    joined = " ".join(sought)
    if len(joined) < FUZZY_LENGTH:
        return []
    numbers = _numbers(sought)
    there = words(text)
    scored = []
    for size in {max(1, len(sought) - 1), len(sought), len(sought) + 1}:
        for i in range(len(there) - size + 1):
            window = [word.folded for word in there[i : i + size]]
            score = ratio(joined, " ".join(window), score_cutoff=FUZZY_THRESHOLD)
            if score and _numbers(window) == numbers:
                scored.append((-score, there[i].start, there[i + size - 1].end))
    return [(start, end) for _, start, end in sorted(scored)[:1]]


def _any_order(phrase: str, sought: list[str], text: str) -> list[tuple[int, int]]:
    is_date = all(word.isdigit() or word in _MONTHS for word in sought)
    is_name = re.search(r"\b[A-Z0-9]", phrase) is not None
    content = [word for word in sought if word not in _FUNCTION_WORDS]
    if len(content) < 2 or (is_name and not is_date):
        return []
    reach = len(content) + (1 if is_date else 4)
    there = words(text)
    for i in range(len(there)):
        window = there[i : i + reach]
        places = [next((w for w in window if _same_word(w.folded, c)), None) for c in content]
        hits = [place for place in places if place is not None]
        if len(hits) == len(content) and hits and window[0] in hits:
            return [(min(w.start for w in hits), max(w.end for w in hits))]
    return []


def _same_word(one: str, other: str) -> bool:
    if one == other:
        return True
    short, long = sorted((one, other), key=len)
    if short.isdigit() or long.isdigit():
        return False
    return len(short) >= 4 and (
        long.startswith(short) or (len(short) >= 6 and short[:5] == long[:5])
    )


def _numbers(folded: list[str]) -> list[str]:
    return sorted(word for word in folded if any(c.isdigit() for c in word))


def supports_phrase(phrase: str, text: str, *, share: float = 0.5) -> bool:
    """Does a text carry a descriptive phrase: all its names and numbers, most of its words?

    Args:
        phrase: Free wording such as "sang in church during childhood".
        text: The text that should support it.
        share: The least part of the phrase's content words that must occur.

    >>> supports_phrase("sang in church", "After singing in church as a child, she left.")
    True
    >>> supports_phrase("sang in Detroit", "After singing in church as a child, she left.")
    False
    """
    there = {word.folded for word in words(text)}
    content = [word for word in words(phrase) if word.folded not in _FUNCTION_WORDS]
    if not content:
        return bool(mentions(phrase, text))
    for word in content[1:] if phrase[:1].isupper() else content:
        written = phrase[word.start : word.end]
        if (written[0].isupper() or written[0].isdigit()) and word.folded not in there:
            return False
    held = sum(any(_same_word(word.folded, other) for other in there) for word in content)
    return held >= share * len(content)
