"""What a passage mentions: names, dates, quoted works and quantities, none overlapping."""

from __future__ import annotations

import re
from typing import NamedTuple

from ga_dspy.lm.grammar import is_verb
from ga_dspy.lm.lexicon import (
    COUNTRIES,
    MONTHS,
    NATIONALITIES,
    STOPWORDS,
    US_STATES,
    noun_type,
)
from ga_dspy.lm.text import Parsed, Span, date_spans, number_spans, quoted_spans

_INNER = frozenset(
    "of de da del della di du la le el al van von der den & - – ’ ' bin ibn y und und".split()
)
_QUANTITY = re.compile(r"[$£€]?\d[\d,.]*\d(?: [a-z]+){0,2}|[$£€]?\d+(?: [a-z]+){1,2}")
_AFTER_NAME = frozenset(("'s", "’s", ",", "(", "and", "&", "-", "also"))
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
    dates = [Mention(s.start, s.end, parsed.slice(s.start, s.end), _date_kind(s.kind))
             for s in date_spans(parsed)
             if s.kind in ("date", "year", "day") and not _attributive(parsed, s)]  # fmt: skip
    quotes = [
        Mention(s.start, s.end, parsed.slice(s.start, s.end).strip(" ,."), "quote")
        for s in quoted_spans(parsed)
        if parsed.tokens[s.start].text[0].isupper() or parsed.tokens[s.start].text[0].isdigit()
    ]
    numbers = [
        Mention(s.start, s.end, parsed.slice(s.start, s.end), "quantity")
        for s in number_spans(parsed)
        if _QUANTITY.fullmatch(parsed.slice(s.start, s.end))
    ]
    taken: list[Mention] = []
    for group in (quotes, dates, _names(parsed), numbers):
        for found in sorted(group, key=lambda m: (m.start - m.end, m.start)):
            if not any(found.start < t.end and t.start < found.end for t in taken):
                taken.append(found)
    return sorted(m for m in taken if m.text)


def _attributive(parsed: Parsed, span: Span) -> bool:
    """Whether a year only qualifies what follows: "a 1994 film", "the 2011 Film Festival"."""
    if span.kind != "year" or span.end >= len(parsed.tokens):
        return False
    after = parsed.lower[span.end]
    return after[0].isalnum() and after not in STOPWORDS and not is_verb(after)


def _date_kind(kind: str) -> str:
    return "year" if kind == "year" else "date"


def _names(parsed: Parsed) -> list[Mention]:
    found: list[Mention] = []
    for first, stop in parsed.bounds:
        i = first
        while i < stop:
            if not _starts(parsed, i, first):
                i += 1
                continue
            end = _run_end(parsed, i, stop)
            text = parsed.slice(i, end)
            if (
                text.lower() not in NATIONALITIES
                and not _qualifies(parsed, end)
                and not _DEGREE.fullmatch(text)
                and end - i <= _LONGEST
            ):
                found.append(Mention(i, end, text, "name"))
            i = end
    return _with_places(parsed, found)


def _qualifies(parsed: Parsed, end: int) -> bool:
    """Whether a name stands before its noun: "the Hong Kong film", "a Supreme Court case"."""
    after = parsed.tokens[end].text if end < len(parsed.tokens) else ""
    return after.islower() and noun_type(after) in ("person", "group", "work", "place")


def _starts(parsed: Parsed, i: int, first: int) -> bool:
    word, low = parsed.tokens[i].text, parsed.lower[i]
    if not word[0].isupper() or low in STOPWORDS or low in MONTHS:
        return False
    if i > first:
        return True
    follows = parsed.tokens[i + 1].text if i + 1 < len(parsed.tokens) else ""
    if follows[:1].isupper() or _recurs(parsed, i):
        return True
    return is_verb(follows) or follows in _AFTER_NAME


def _recurs(parsed: Parsed, i: int) -> bool:
    word = parsed.tokens[i].text
    starts = {start for start, _ in parsed.bounds}
    return any(t.text == word and j not in starts for j, t in enumerate(parsed.tokens))


def _run_end(parsed: Parsed, start: int, stop: int) -> int:
    end = start + 1
    while end < stop:
        step = end
        while step < stop and step - end < 2 and parsed.lower[step] in _INNER:
            step += 1
        if step > end and step < stop and parsed.lower[step] == "the":
            step += 1
        if step >= stop or not _continues(parsed, step, glued=step == end):
            break
        end = step + 1
    return end


def _continues(parsed: Parsed, i: int, *, glued: bool) -> bool:
    word = parsed.tokens[i].text
    if word[0].isupper():
        return parsed.lower[i] not in MONTHS or not glued
    after = parsed.lower[i + 1] if i + 1 < len(parsed.lower) else ""
    return glued and word.isdigit() and len(word) <= 3 and after not in _UNITS


def _with_places(parsed: Parsed, names: list[Mention]) -> list[Mention]:
    """Join "Red Lodge" and "Montana" over the comma between them."""
    joined: list[Mention] = []
    for name in names:
        last = joined[-1] if joined else None
        state = name.text.lower() in US_STATES or name.text.lower() in COUNTRIES
        after_comma = last and name.start == last.end + 1 and parsed.lower[last.end] == ","
        if last and state and after_comma and not _is_joined(last.text):
            text = parsed.slice(last.start, name.end)
            joined[-1] = Mention(last.start, name.end, text, "name")
        else:
            joined.append(name)
    return joined


def _is_joined(name: str) -> bool:
    return "," in name or name.lower() in US_STATES or name.lower() in COUNTRIES
