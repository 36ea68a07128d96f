"""Passages as pages: the spans that could be an answer, found and typed without any question."""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from extractive_lm.text import (
    ARTICLES,
    COUNTRIES_AND_STATES,
    NATIONALITIES,
    PREPOSITIONS,
    STOPWORDS,
    US_STATES,
    Parsed,
    Span,
    name_spans,
    normalize,
    noun_type,
    parse,
    pattern_spans,
    words,
)

KINDS = (
    "title", "name", "part", "pair", "list", "mixed", "quote", "date", "year", "number",
    "quantity", "words",
)  # fmt: skip
"""Kinds of candidate, in the order in which one phrase's kind is decided."""

_COPULAS = frozenset("is was are were".split())
_TYPE_BY_KIND = {
    "date": "date", "year": "year", "number": "number", "quantity": "number", "quote": "work",
}  # fmt: skip
_JOINTS = frozenset(", and & in at for to on".split())
_INSIDE_PHRASES = frozenset("of and the in for to".split())
_GROUP_ENDINGS = words("group_endings")
_PLACE_ENDINGS = words("place_endings")
_PERSON_TITLES = words("person_titles")
_FIRST_NAMES = words("first_names")
_MOST_WORDS = 4


class Page(NamedTuple):
    """A passage ready to be searched: parsed title and text, and its candidate spans.

    The parsed text is the title and then the text, so that a title is a candidate like any other;
    `title_tokens` counts the tokens of the title. `norms` and `types` hold each span's normalised
    string and its guessed type. `definition` holds the stems of what the first sentence says the
    subject is ("is a ..."), `subject_type` the subject's type, and `aliases` the normalised forms
    of the title.
    """

    title: str
    parsed: Parsed
    title_tokens: int
    spans: tuple[Span, ...]
    norms: tuple[str, ...]
    types: tuple[str, ...]
    definition: frozenset[str]
    subject_type: str
    aliases: tuple[str, ...]


def bare_title(title: str) -> str:
    """Return a title without its bracketed qualifier.

    >>> bare_title("Mercury (planet)")
    'Mercury'
    """
    return title.partition(" (")[0].strip()


@lru_cache(maxsize=2048)
def read_page(title: str, text: str) -> Page:
    """Read one passage; cached by its text alone."""
    head, body = bare_title(title), " ".join(text.split())
    parsed = parse(f"{head} .\n{body}" if head else body)
    title_tokens = len(parse(head).tokens) if head else 0
    kinds: dict[tuple[int, int], int] = {}
    for span in _all_spans(parsed, title_tokens):
        start, end = _trim(parsed, span)
        if end > start:
            kinds[start, end] = min(kinds.get((start, end), 99), KINDS.index(span.kind))
    found = {Span(*key, KINDS[kinds[key]]): normalize(parsed.slice(*key)) for key in sorted(kinds)}
    spans = tuple(span for span, norm in found.items() if norm)
    definition, subject_type = _definition(parsed, title_tokens)
    aliases = (normalize(head), normalize(head.partition(",")[0]))
    return Page(
        title=title,
        parsed=parsed,
        title_tokens=title_tokens,
        spans=spans,
        norms=tuple(filter(None, found.values())),
        types=tuple(_guess_type(parsed.lower, span, subject_type) for span in spans),
        definition=definition,
        subject_type=subject_type,
        aliases=tuple(dict.fromkeys(form for form in aliases if len(form) > 2)),
    )


def _all_spans(parsed: Parsed, title_tokens: int) -> list[Span]:
    lower = parsed.lower
    names = [s for s in name_spans(parsed) if s.start >= title_tokens]
    spans = [Span(0, title_tokens, "title"), *names]
    for name in names:
        for i in range(name.start + 1, name.end):
            # Without a title or a first name ("President Polk"), and either side of "of".
            if i - name.start < 3 or lower[i - 1] in PREPOSITIONS:
                spans.append(Span(i, name.end, "part"))
            if lower[i] in PREPOSITIONS:
                spans.append(Span(name.start, i, "part"))
        # A name and the one or two plain nouns after it: "Corleone crime family".
        stop = parsed.bounds[parsed.sentence[name.start]][1]
        for end in range(name.end, min(name.end + 2, stop)):
            if not _is_plain(parsed, end):
                break
            spans.append(Span(name.start, end + 1, "mixed"))
    # Names in a row: "City, State", "A, B and C", "Alice in Wonderland".
    row = 0
    for i, (one, other) in enumerate(pairwise(names), start=1):
        gap = lower[one.end : other.start]
        if not gap or len(gap) > 2 or not _JOINTS.issuperset(gap):
            row = i
            continue
        spans.append(Span(one.start, other.end, "pair" if gap == (",",) else "list"))
        if i - row > 1 and "and" in gap:
            spans.append(Span(names[row].start, other.end, "list"))
    kinds = ("quote", "date", "year", "number", "quantity", "long quantity")
    return spans + pattern_spans(parsed, *kinds) + _phrases(parsed, title_tokens)


def _trim(parsed: Parsed, span: Span) -> tuple[int, int]:
    """Drop a leading article and the marks at either end."""
    start, end, _ = span
    lower = parsed.lower
    while start < end and (lower[start] in ARTICLES or not lower[start][-1].isalnum()):
        if lower[start] in "$£€" or (len(lower[start]) > 1 and lower[start] not in ARTICLES):
            break
        start += 1
    while end > start and not lower[end - 1][-1].isalnum() and len(lower[end - 1]) < 2:
        end -= 1
    return start, end


def _is_plain(parsed: Parsed, index: int) -> bool:
    word = parsed.tokens[index].text
    return word[0].isalpha() and word.lower() not in STOPWORDS and not word[0].isupper()


def _phrases(parsed: Parsed, title_tokens: int) -> list[Span]:
    """Return the runs of up to four lower-case words, function words only inside."""
    spans: list[Span] = []
    for start, stop in parsed.bounds:
        for i in range(max(start, title_tokens), stop):
            for end in range(i + 1, min(i + _MOST_WORDS, stop) + 1) if _is_plain(parsed, i) else ():
                word = parsed.lower[end - 1]
                if word not in STOPWORDS and word[0].isalnum():
                    spans.append(Span(i, end, "words"))
                elif word not in _INSIDE_PHRASES:
                    break
    return spans


def _definition(parsed: Parsed, start: int) -> tuple[frozenset[str], str]:
    """Return the stems after the first copula, up to the end of the noun phrase, and its type."""
    lower = parsed.lower
    copulas = (i for i in range(start, min(len(lower), start + 60)) if lower[i] in _COPULAS)
    stems: set[str] = set()
    found: list[str] = []
    first = next(copulas, len(lower)) + 1
    for i in range(first, min(first + 15, len(lower))):
        if found and (lower[i] in PREPOSITIONS or lower[i] in (".", "who", "which", "that")):
            break
        if parsed.stems[i]:
            stems.add(parsed.stems[i])
            found += filter(None, [noun_type(lower[i])])
    if "born" in lower[start : start + 40]:
        return frozenset(stems), "person"
    return frozenset(stems), found[-1] if found else ""


def _guess_type(lower: tuple[str, ...], span: Span, subject_type: str) -> str:
    """Guess the type of a candidate by its form alone; "" where the form does not show it."""
    if span.kind == "title" and subject_type:
        return subject_type
    own = lower[span.start : span.end]
    if span.kind in ("words", "mixed"):
        kind = noun_type(own[-1])
        return "role" if kind == "person" else kind
    if span.kind in _TYPE_BY_KIND:
        return _TYPE_BY_KIND[span.kind]
    joined, before = " ".join(own), lower[span.start - 1] if span.start else ""
    if joined in NATIONALITIES:
        return "nationality"
    if joined in COUNTRIES_AND_STATES or own[-1] in US_STATES or span.kind == "pair":
        return "place"
    if own[-1] in _GROUP_ENDINGS or own[0] in ("university", "college", "bank"):
        return "group"
    if own[-1] in _PLACE_ENDINGS or own[0] in ("lake", "mount", "city", "port", "river"):
        return "place"
    if {own[0], before} & _PERSON_TITLES or (len(own) > 1 and noun_type(before) == "person"):
        return "person"
    return "person" if own[0] in _FIRST_NAMES and 1 < len(own) < 5 else ""
