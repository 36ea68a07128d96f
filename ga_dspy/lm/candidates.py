"""Spans of a passage that could be an answer, found without looking at any question."""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from ga_dspy.lm.lexicon import (
    NATIONALITIES,
    NUMBER_WORDS,
    PERSON_TITLES,
    STOPWORDS,
    noun_type,
)
from ga_dspy.lm.text import (
    Parsed,
    Span,
    date_spans,
    is_name_word,
    name_spans,
    normalize,
    number_spans,
    parse,
    quoted_spans,
)

KINDS = (
    "title", "name", "part", "pair", "list", "mixed", "quote", "date", "year", "day", "month",
    "number", "quantity", "words",
)  # fmt: skip
"""Kinds of candidate, in the order in which one phrase's kind is decided."""

_ORDER = {kind: n for n, kind in enumerate(KINDS)}
_PLACE_BREAKS = frozenset("of in at on for and to from , by".split())
_INNER = frozenset("of and the in for to -".split())
MAX_WORDS = 4


class Page(NamedTuple):
    """A passage ready to be searched: parsed title and text, and its candidate spans.

    The parsed text is `title`, a full stop's worth of distance, then the text: the title's
    tokens come first, so that a title is a candidate like any other; `title_tokens` counts them.
    `norms` holds each span's normalised string.
    """

    title: str
    parsed: Parsed
    title_tokens: int
    spans: tuple[Span, ...]
    norms: tuple[str, ...]


def bare_title(title: str) -> str:
    """A title without its bracketed qualifier.

    >>> bare_title("Mercury (planet)")
    'Mercury'
    """
    head, _, tail = title.partition(" (")
    return head.strip() if tail else title.strip()


@lru_cache(maxsize=2048)
def page(title: str, text: str) -> Page:
    """Read one passage; memoised by its text alone."""
    head = bare_title(title)
    body = " ".join(text.split())
    parsed = parse(f"{head} .\n{body}" if head else body)
    count = len(parse(head).tokens) if head else 0
    found: dict[tuple[int, int], str] = {}
    for span in _all_spans(parsed, count):
        span = _trim(parsed, span)
        key = (span.start, span.end)
        if span.end > span.start and _ORDER[span.kind] < _ORDER.get(found.get(key, ""), 99):
            found[key] = span.kind
    spans = tuple(Span(a, b, found[a, b]) for a, b in sorted(found))
    kept = [(s, n) for s in spans if (n := normalize(parsed.slice(s.start, s.end)))]
    return Page(title, parsed, count, tuple(s for s, _ in kept), tuple(n for _, n in kept))


def _all_spans(parsed: Parsed, title_tokens: int) -> list[Span]:
    names = [s for s in name_spans(parsed) if s.start >= title_tokens]
    spans = [Span(0, title_tokens, "title")] if title_tokens else []
    spans += names
    spans += [part for name in names for part in _parts(parsed, name)]
    spans += _pairs(parsed, names) + _lists(parsed, names) + _mixed(parsed, names)
    spans += quoted_spans(parsed) + date_spans(parsed) + number_spans(parsed)
    return spans + _word_spans(parsed, title_tokens)


def _trim(parsed: Parsed, span: Span) -> Span:
    """Without a leading article or marks at either end; a trailing bracket pair stays out."""
    start, end = span.start, span.end
    while start < end and (
        parsed.lower[start] in ("the", "a", "an", "and") or not parsed.lower[start][0].isalnum()
    ):
        if parsed.lower[start] in "$£€":
            break
        start += 1
    while (
        end > start and not parsed.lower[end - 1][-1].isalnum() and len(parsed.lower[end - 1]) < 2
    ):
        end -= 1
    return Span(start, end, span.kind)


def _parts(parsed: Parsed, name: Span) -> list[Span]:
    """Pieces of a long run of capitals: cut at prepositions, and without a leading title."""
    parts: list[Span] = []
    start = name.start
    for i in range(name.start + 1, name.end - 1):
        if parsed.lower[i] in _PLACE_BREAKS:
            parts += [Span(start, i, "part"), Span(name.start, i, "part")]
            parts.append(Span(i + 1, name.end, "part"))
            start = i + 1
    if start > name.start:
        parts.append(Span(start, name.end, "part"))
    for piece in [name, *parts]:
        for skip in (1, 2):
            if _may_drop(parsed, piece, skip):
                parts.append(Span(piece.start + skip, piece.end, "part"))
    return parts


def _may_drop(parsed: Parsed, piece: Span, skip: int) -> bool:
    """Whether the words before the rest may be a title or a description ("President Polk")."""
    if piece.end - piece.start <= skip:
        return False
    last = parsed.lower[piece.start + skip - 1]
    return (
        last in PERSON_TITLES
        or last in NATIONALITIES
        or bool(noun_type(last))
        or piece.end - piece.start > skip + 1
    )


def _pairs(parsed: Parsed, names: list[Span]) -> list[Span]:
    """Two names joined by a comma ("City, State"), each of at most three words."""
    return [
        Span(a.start, b.end, "pair")
        for a, b in pairwise(names)
        if b.start == a.end + 1
        and parsed.lower[a.end] == ","
        and a.end - a.start <= 3
        and b.end - b.start <= 3
    ]


def _lists(parsed: Parsed, names: list[Span]) -> list[Span]:
    """Two names joined by "and", or three and more in a row: "A, B and C"."""
    lists: list[Span] = []
    run: list[Span] = []
    for name in names:
        gap = parsed.lower[run[-1].end : name.start] if run else ()
        if run and gap in ((",",), (",", "and"), ("and",), ("&",), (",", "&")):
            run.append(name)
            if len(run) > 2 or gap != (",",):
                lists.append(Span(run[0].start, name.end, "list"))
        else:
            run = [name]
    return lists


def _mixed(parsed: Parsed, names: list[Span]) -> list[Span]:
    """A name and the one or two plain nouns after it ("Corleone crime family")."""
    spans: list[Span] = []
    for name in names:
        stop = parsed.bounds[parsed.sentence[name.start]][1]
        for end in range(name.end + 1, min(name.end + 2, stop) + 1):
            if not _plain(parsed, end - 1):
                break
            spans.append(Span(name.start, end, "mixed"))
    return spans


def _plain(parsed: Parsed, index: int) -> bool:
    word = parsed.lower[index]
    return (
        word[0].isalpha() and word not in STOPWORDS and not is_name_word(parsed.tokens[index].text)
    )


def _word_spans(parsed: Parsed, title_tokens: int) -> list[Span]:
    """Runs of up to four lower-case words, function words only inside."""
    spans: list[Span] = []
    for start, stop in parsed.bounds:
        for i in range(max(start, title_tokens), stop):
            if not _plain(parsed, i) and parsed.lower[i] not in NUMBER_WORDS:
                continue
            for end in range(i + 1, min(i + MAX_WORDS, stop) + 1):
                word = parsed.lower[end - 1]
                if not word[0].isalnum() or (word in STOPWORDS and word not in _INNER):
                    break
                if word not in STOPWORDS:
                    spans.append(Span(i, end, "words"))
    return spans
