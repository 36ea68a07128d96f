"""Names in text, found by spelling alone: title aliases, first subjects, capitalised spans."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ga_dspy.mentions import fold as fold_text

LONGEST_ALIAS = 10

_WORD = re.compile(r"[^\W_]+")
_PARENTHESES = re.compile(r"\s*\([^)]*\)")
_ARTICLE = re.compile(r"^(?:the|a|an)\s+", re.IGNORECASE)
_SUBJECT = re.compile(
    r"^(?P<subject>[^.,;:(\n]{2,80}?)\s*(?:\(|,|\b(?:is|was|are|were|refers|has|had)\b)"
)
_JOINS = re.compile(r"(?:\s+|[-'’]|\s*&\s*)\Z")
_AFTER_INITIAL = re.compile(r"\.\s*\Z")
_CONNECTORS = frozenset(
    ("of", "the", "de", "la", "le", "van", "von", "du", "der", "and", "for", "in", "at", "on")
)
_COMMON_WORDS = """
a about after all also although an and another any are as at be because before both but by can could
did do does during each early eight either few first five for four from had has have he her his how
however if in into is it its last late later many more most name nine no not of on one only or other
our over seven several she since six some such ten than that the their then there these they this
those three through to two under until up upon was we were what when where which while who whose why
with within would you your
january february march april may june july august september october november december
"""
_COMMON = frozenset(_COMMON_WORDS.split())


class Word(NamedTuple):
    """A word without case and accents; `proper` where the text capitalises it or it is a number."""

    folded: str
    proper: bool


def words(text: str) -> list[Word]:
    """Split a text into words.

    >>> words("St. Louis in 1904")[-2:]
    [Word(folded='in', proper=False), Word(folded='1904', proper=True)]
    """
    return [Word(plain(w), not w[0].islower()) for w in _WORD.findall(text)]


def plain(text: str) -> str:
    """Case and accents removed.

    >>> plain("Aschenbrödel")
    'aschenbrodel'
    """
    return text.lower() if text.isascii() else fold_text(text)


def fold(name: str) -> str:
    """Words without case and accents, joined by one space: how names are compared.

    >>> fold("St. Louis, Missouri")
    'st louis missouri'
    """
    return " ".join(_WORD.findall(plain(name)))


def aliases(title: str, text: str) -> frozenset[str]:
    """Folded names under which other texts may mention a passage.

    The title without what stands in parentheses, the same before its comma, each without its
    article, and the subject of the first sentence where it is capitalised. Lone common words and
    names over ten words are no aliases.

    >>> sorted(aliases("The Mercury (band), London", "Mercury Rising is a band."))
    ['mercury', 'mercury london', 'mercury rising', 'the mercury', 'the mercury london']
    """
    bare = _PARENTHESES.sub("", title).strip()
    names = {bare, bare.split(",")[0].strip()}
    subject = _SUBJECT.match(text)
    if subject and all(w.proper for w in words(subject["subject"])[-1:]):
        names.add(subject["subject"].strip())
    names |= {_ARTICLE.sub("", name) for name in names}
    return frozenset(folded for folded in map(fold, names) if _usable(folded))


def _usable(folded: str) -> bool:
    parts = folded.split()
    if not parts or len(parts) > LONGEST_ALIAS:
        return False
    return len(parts) > 1 or (len(folded) > 1 and folded not in _COMMON)


def mentioned(text_words: Sequence[Word], known: Mapping[str, object]) -> Iterable[str]:
    """Yield the known aliases in a text, left to right: the longest match, capitalised.

    A text without any capital letter, as people type queries, may match in lower case.
    """
    relaxed = not any(word.proper and not word.folded[0].isdigit() for word in text_words)
    place = 0
    while place < len(text_words):
        match = 0
        if relaxed or text_words[place].proper:
            match = _longest(text_words, place, known)
        if match:
            yield " ".join(w.folded for w in text_words[place : place + match])
        place += match or 1


def _longest(text_words: Sequence[Word], place: int, known: Mapping[str, object]) -> int:
    limit = min(LONGEST_ALIAS, len(text_words) - place)
    for length in range(limit, 0, -1):
        if " ".join(w.folded for w in text_words[place : place + length]) in known:
            return length
    return 0


def spans(text: str) -> frozenset[str]:
    """Folded capitalised spans of a text: people, places, works, spelled as names.

    >>> sorted(spans("In 1904 the Duke of York met H. G. Wells near the Thames."))
    ['duke of york', 'h g wells', 'thames']
    """
    found = set()
    for run in _runs(text):
        parts = run
        while parts and (parts[0] in _COMMON or parts[0] in _CONNECTORS):
            parts = parts[1:]
        while parts and parts[-1] in _CONNECTORS:
            parts = parts[:-1]
        if len(parts) > 1 or (parts and len(parts[0]) > 2 and not parts[0].isdigit()):
            found.add(" ".join(parts))
    return frozenset(found)


def _runs(text: str) -> Iterable[list[str]]:
    """Yield maximal runs of capitalised words and numbers, with the small words inside them."""
    run: list[str] = []
    end = 0
    for match in _WORD.finditer(text):
        word, gap = match.group(), text[end : match.start()]
        end = match.end()
        if run and not _continues(run[-1], gap):
            yield run
            run = []
        small = bool(run) and word in _CONNECTORS and not run[-1].isdigit()
        if not word[0].islower() or small:
            run.append(plain(word))
        elif run:
            yield run
            run = []
    if run:
        yield run


def _continues(previous: str, gap: str) -> bool:
    if _JOINS.match(gap):
        return True
    return len(previous) <= 2 and bool(_AFTER_INITIAL.match(gap))
