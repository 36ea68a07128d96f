"""Spans of a passage: what it mentions, and what could be an answer, found without any question."""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from extractive_lm.text import (
    Parsed,
    Span,
    date_spans,
    name_spans,
    normalize,
    number_spans,
    parse,
    quoted_spans,
)
from extractive_lm.words import (
    ARTICLES,
    COPULAS,
    COUNTRIES_AND_STATES,
    FIRST_NAMES,
    GROUP_ENDINGS,
    MONTHS,
    NATIONALITIES,
    NUMBER_WORDS,
    PERSON_TITLES,
    PLACE_ENDINGS,
    STOPWORDS,
    SUBJECT_TYPES,
    US_STATES,
    is_verb,
    noun_type,
)

# --- What a passage mentions: names, dates, quoted works and quantities, none overlapping

_INSIDE_NAMES = frozenset(
    "of de da del della di du la le el al van von der den & - – ’ ' bin ibn y und und".split()
)
_AFTER_NAMES = frozenset(("'s", "’s", ",", "(", "and", "&", "-", "also"))
_QUANTITY = re.compile(r"[$£€]?\d[\d,.]*\d(?: [a-z]+){0,2}|[$£€]?\d+(?: [a-z]+){1,2}")
_DEGREE = re.compile(r"(?:[A-Z]\.?\s?){1,2}")
_UNITS = frozenset("km kilometres kilometers miles mi m ft feet metres meters years days".split())
_LONGEST = 9


class Mention(NamedTuple):
    """Tokens `[start, end)` of a passage's text that name something.

    `kind` is name, date, year, quote or quantity.
    """

    start: int
    end: int
    text: str
    kind: str


def mentions(parsed: Parsed) -> list[Mention]:
    """The mentions of a text, in order."""
    quotes = [
        Mention(s.start, s.end, parsed.slice(s.start, s.end).strip(" ,."), "quote")
        for s in quoted_spans(parsed)
        if parsed.tokens[s.start].text[0].isupper() or parsed.tokens[s.start].text[0].isdigit()
    ]
    dates = [
        Mention(
            s.start, s.end, parsed.slice(s.start, s.end), "year" if s.kind == "year" else "date"
        )
        for s in date_spans(parsed)
        if s.kind in ("date", "year", "day") and not _attributive(parsed, s)
    ]
    numbers = [
        Mention(s.start, s.end, text, "quantity")
        for s in number_spans(parsed)
        if _QUANTITY.fullmatch(text := parsed.slice(s.start, s.end))
    ]
    kept: list[Mention] = []
    for group in (quotes, dates, _names(parsed), numbers):
        for found in sorted(group, key=lambda m: (m.start - m.end, m.start)):
            if not any(found.start < other.end and other.start < found.end for other in kept):
                kept.append(found)
    return sorted(m for m in kept if m.text)


def _attributive(parsed: Parsed, span: Span) -> bool:
    """Whether a year only qualifies what follows: "a 1994 film", "the 2011 Film Festival"."""
    if span.kind != "year" or span.end >= len(parsed.tokens):
        return False
    after = parsed.lower[span.end]
    return after[0].isalnum() and after not in STOPWORDS and not is_verb(after)


def _names(parsed: Parsed) -> list[Mention]:
    """Runs of capitalised words, and "Red Lodge, Montana" as one name."""
    found: list[Mention] = []
    for first, stop in parsed.bounds:
        i = first
        while i < stop:
            if not _starts_mention(parsed, i, first):
                i += 1
                continue
            start, i = i, _mention_end(parsed, i, stop)
            text = parsed.slice(start, i)
            if text.lower() in NATIONALITIES or _DEGREE.fullmatch(text) or i - start > _LONGEST:
                continue
            # A name may stand before its noun: "the Hong Kong film", "a Supreme Court case".
            after = parsed.tokens[i].text if i < len(parsed.tokens) else ""
            if after.islower() and noun_type(after) in SUBJECT_TYPES:
                continue
            last = found[-1] if found else None
            if last and start == last.end + 1 and parsed.lower[last.end] == ",":
                place = text.lower() in COUNTRIES_AND_STATES
                if place and "," not in last.text and last.text.lower() not in COUNTRIES_AND_STATES:
                    start, text = last.start, parsed.slice(last.start, i)
                    found.pop()
            found.append(Mention(start, i, text, "name"))
    return found


def _starts_mention(parsed: Parsed, i: int, first: int) -> bool:
    word, low = parsed.tokens[i].text, parsed.lower[i]
    if not word[0].isupper() or low in STOPWORDS or low in MONTHS:
        return False
    if i > first:
        return True
    after = parsed.tokens[i + 1].text if i + 1 < len(parsed.tokens) else ""
    if after[:1].isupper() or is_verb(after) or after in _AFTER_NAMES:
        return True
    starts = {start for start, _ in parsed.bounds}
    return any(t.text == word and j not in starts for j, t in enumerate(parsed.tokens))


def _mention_end(parsed: Parsed, start: int, stop: int) -> int:
    lower, end = parsed.lower, start + 1
    while end < stop:
        step = end
        while step < stop and step - end < 2 and lower[step] in _INSIDE_NAMES:
            step += 1
        if end < step < stop and lower[step] == "the":
            step += 1
        if step >= stop:
            break
        word, after = parsed.tokens[step].text, lower[step + 1] if step + 1 < len(lower) else ""
        if word[0].isupper():
            goes_on = step > end or lower[step] not in MONTHS
        else:
            goes_on = step == end and word.isdigit() and len(word) <= 3 and after not in _UNITS
        if not goes_on:
            break
        end = step + 1
    return end


# --- Spans of a passage that could be an answer

KINDS = (
    "title", "name", "part", "pair", "list", "mixed", "quote", "date", "year", "day", "month",
    "number", "quantity", "words",
)  # fmt: skip
"""Kinds of candidate, in the order in which one phrase's kind is decided."""

_TYPE_BY_KIND = {
    "date": "date", "day": "date", "month": "date", "year": "year", "number": "number",
    "quantity": "number", "quote": "work",
}  # fmt: skip
_PLACE_BREAKS = frozenset("of in at on for and to from , by".split())
_INSIDE_PHRASES = frozenset("of and the in for to".split())
_DEFINITION_ENDS = frozenset(
    ", . ; who which that in by from for on at located based born and founded".split()
)
_LEADING = ARTICLES | {"and"}
_MOST_WORDS = 4


class Page(NamedTuple):
    """A passage ready to be searched: parsed title and text, and its candidate spans.

    The parsed text is the title, a full stop's worth of distance, then the text: the title's
    tokens come first, so that a title is a candidate like any other; `title_tokens` counts them.
    `norms` and `types` hold each span's normalised string and its guessed type. `definition` holds
    the stems of what the first sentence says the subject is ("is a ..."), `subject_type` the
    subject's type, and `aliases` the normalised forms of the title.
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

    def opening(self, sentences: int) -> tuple[str, ...]:
        """The first sentences in lower case; the title is one of them."""
        bounds = self.parsed.bounds
        return self.parsed.lower[: bounds[min(sentences, len(bounds)) - 1][1]] if bounds else ()


def bare_title(title: str) -> str:
    """A title without its bracketed qualifier.

    >>> bare_title("Mercury (planet)")
    'Mercury'
    """
    return title.partition(" (")[0].strip()


@lru_cache(maxsize=2048)
def read_page(title: str, text: str) -> Page:
    """Read one passage; memoised by its text alone."""
    head = bare_title(title)
    body = " ".join(text.split())
    parsed = parse(f"{head} .\n{body}" if head else body)
    title_tokens = len(parse(head).tokens) if head else 0
    kinds: dict[tuple[int, int], int] = {}
    for span in _all_spans(parsed, title_tokens):
        start, end = _trim(parsed, span)
        if end > start:
            kinds[start, end] = min(kinds.get((start, end), 99), KINDS.index(span.kind))
    found = [
        (Span(*key, KINDS[kinds[key]]), normalize(parsed.slice(*key))) for key in sorted(kinds)
    ]
    spans = tuple(span for span, norm in found if norm)
    definition, subject_type = _definition(parsed, title_tokens)
    bare = title.partition(" (")[0]
    aliases = (normalize(bare), normalize(bare.partition(",")[0]))
    return Page(
        title=title,
        parsed=parsed,
        title_tokens=title_tokens,
        spans=spans,
        norms=tuple(norm for _, norm in found if norm),
        types=tuple(_guess_type(parsed.lower, span, subject_type) for span in spans),
        definition=definition,
        subject_type=subject_type,
        aliases=tuple(dict.fromkeys(form for form in aliases if len(form) > 2)),
    )


def _all_spans(parsed: Parsed, title_tokens: int) -> list[Span]:
    names = [s for s in name_spans(parsed) if s.start >= title_tokens]
    spans = [Span(0, title_tokens, "title")] if title_tokens else []
    spans += names
    for name in names:
        spans += _parts(parsed, name)
        # A name and the one or two plain nouns after it: "Corleone crime family".
        stop = parsed.bounds[parsed.sentence[name.start]][1]
        for end in range(name.end + 1, min(name.end + 2, stop) + 1):
            if not _is_plain(parsed, end - 1):
                break
            spans.append(Span(name.start, end, "mixed"))
    # Two names joined by a comma, each of at most three words: "City, State".
    spans += [
        Span(a.start, b.end, "pair")
        for a, b in pairwise(names)
        if parsed.lower[a.end : b.start] == (",",) and max(a.end - a.start, b.end - b.start) <= 3
    ]
    spans += _lists(parsed, names)
    spans += quoted_spans(parsed) + date_spans(parsed) + number_spans(parsed)
    return spans + _phrases(parsed, title_tokens)


def _trim(parsed: Parsed, span: Span) -> tuple[int, int]:
    """Without a leading article or marks at either end; a trailing bracket pair stays out."""
    start, end, _ = span
    lower = parsed.lower
    while start < end and lower[start] not in "$£€":
        if lower[start][0].isalnum() and lower[start] not in _LEADING:
            break
        start += 1
    while end > start and not lower[end - 1][-1].isalnum() and len(lower[end - 1]) < 2:
        end -= 1
    return start, end


def _parts(parsed: Parsed, name: Span) -> list[Span]:
    """Pieces of a long run of capitals: cut at prepositions, and without a leading title."""
    parts: list[Span] = []
    start = name.start
    for i in range(name.start + 1, name.end - 1):
        if parsed.lower[i] in _PLACE_BREAKS:
            parts += [Span(start, i, "part"), Span(name.start, i, "part")]
            parts.append(Span(i + 1, name.end, "part"))
            start = i + 1
    for piece in [name, *parts]:
        for skip in range(1, min(piece.end - piece.start, 3)):
            # What is dropped may be a title or a description: "President Polk".
            dropped = parsed.lower[piece.start + skip - 1]
            described = dropped in PERSON_TITLES or dropped in NATIONALITIES or noun_type(dropped)
            if described or piece.end - piece.start > skip + 1:
                parts.append(Span(piece.start + skip, piece.end, "part"))
    return parts


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


def _is_plain(parsed: Parsed, index: int) -> bool:
    word = parsed.lower[index]
    capital = parsed.tokens[index].text[0].isupper()
    return word[0].isalpha() and word not in STOPWORDS and not capital


def _phrases(parsed: Parsed, title_tokens: int) -> list[Span]:
    """Runs of up to four lower-case words, function words only inside."""
    spans: list[Span] = []
    for start, stop in parsed.bounds:
        for i in range(max(start, title_tokens), stop):
            if not _is_plain(parsed, i) and parsed.lower[i] not in NUMBER_WORDS:
                continue
            for end in range(i + 1, min(i + _MOST_WORDS, stop) + 1):
                word = parsed.lower[end - 1]
                if word in STOPWORDS:
                    if word not in _INSIDE_PHRASES:
                        break
                elif word[0].isalnum():
                    spans.append(Span(i, end, "words"))
                else:
                    break
    return spans


def _definition(parsed: Parsed, start: int) -> tuple[frozenset[str], str]:
    """The stems after the first copula, up to the end of the noun phrase, and its type."""
    lower = parsed.lower
    copula = next((i for i in range(start, min(len(lower), start + 60)) if lower[i] in COPULAS), -1)
    stems: list[str] = []
    found: list[str] = []
    for i in range(copula + 1, min(copula + 16, len(lower))) if copula >= 0 else ():
        if lower[i] in _DEFINITION_ENDS and (found or i > copula + 8):
            if lower[i] not in (",", "and"):
                break
        elif parsed.stems[i]:
            stems.append(parsed.stems[i])
            found += [kind] if (kind := noun_type(lower[i])) else []
    person = "person" in found and not {"he", "she", "his", "her"}.isdisjoint(lower)
    if person or "born" in lower[start : start + 40]:
        return frozenset(stems), "person"
    return frozenset(stems), found[0] if found else ""


def _guess_type(lower: tuple[str, ...], span: Span, subject_type: str) -> str:
    """The likeliest type of a candidate by its form alone; "" where the form does not show it."""
    if span.kind == "title" and subject_type:
        return subject_type
    words = lower[span.start : span.end]
    if span.kind in ("words", "mixed"):
        kind = noun_type(words[-1])
        return "role" if kind == "person" else kind
    if span.kind in _TYPE_BY_KIND:
        return _TYPE_BY_KIND[span.kind]
    words = words[-1:] if span.kind == "list" else words
    joined = " ".join(words)
    if joined in NATIONALITIES:
        return "nationality"
    if joined in COUNTRIES_AND_STATES or words[-1] in US_STATES or span.kind == "pair":
        return "place"
    if words[-1].strip(".") in GROUP_ENDINGS or words[0] in ("university", "college", "bank"):
        return "group"
    if words[-1] in PLACE_ENDINGS or words[0] in ("lake", "mount", "city", "port", "river"):
        return "place"
    before = lower[span.start - 1] if span.start else ""
    if words[0] in PERSON_TITLES or before in PERSON_TITLES:
        return "person"
    if len(words) > 1 and noun_type(before) == "person":
        return "person"
    return "person" if words[0] in FIRST_NAMES and 1 < len(words) < 5 else ""
