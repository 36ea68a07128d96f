"""Dates and numbers of a passage as values that can be compared."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import NamedTuple

from ga_dspy.lm.lexicon import NUMBER_VALUES
from ga_dspy.lm.text import Parsed, Span, date_spans, number_spans

_MONTH_ORDER = {
    name: n
    for n, name in enumerate(
        "january february march april may june july august september october november "
        "december".split(),
        start=1,
    )
}
_YEAR = re.compile(r"(?:1[0-9]|20)[0-9]{2}")
_SCALES = {"thousand": 1e3, "million": 1e6, "billion": 1e9, "dozen": 12.0, "hundred": 100.0}
DateValue = tuple[int, int, int]


class Dated(NamedTuple):
    """A date and the token where it starts; month and day are 0 where they are not given."""

    value: DateValue
    start: int


def dates(parsed: Parsed) -> list[Dated]:
    """Every date with a year, in order, the fullest reading of each place.

    >>> from ga_dspy.lm.text import parse
    >>> [d.value for d in dates(parse("Born 3 May 1901 in Rome, she died in 1977."))]
    [(1901, 5, 3), (1977, 0, 0)]
    """
    spans = [s for s in date_spans(parsed) if s.kind in ("date", "year")]
    spans.sort(key=lambda s: (s.start, -s.end))
    found: list[Dated] = []
    covered = -1
    for span in spans:
        if span.start < covered:
            continue
        if value := _date_value(parsed, span):
            found.append(Dated(value, span.start))
            covered = span.end
    return found


def _date_value(parsed: Parsed, span: Span) -> DateValue | None:
    words = parsed.lower[span.start : span.end]
    year = next((int(m.group()) for w in words if (m := _YEAR.match(w))), None)
    if year is None:
        return None
    month = next((_MONTH_ORDER[w] for w in words if w in _MONTH_ORDER), 0)
    days = [int(w.rstrip("stndrh")) for w in words if w.rstrip("stndrh").isdigit() and len(w) < 5]
    return year, month, next((d for d in days if d <= 31), 0) if month else 0


class Counted(NamedTuple):
    """A number and the token where it starts."""

    value: float
    start: int


def numbers(parsed: Parsed) -> list[Counted]:
    """Every number that is no year, in order; "1.5 million" is one number.

    >>> from ga_dspy.lm.text import parse
    >>> [n.value for n in numbers(parse("It has 1.5 million readers and two editors."))]
    [1500000.0, 2.0]
    """
    found: list[Counted] = []
    for span in number_spans(parsed):
        words = parsed.lower[span.start : span.end]
        value = _number_value(words[0]) if span.kind == "number" else None
        if value is not None:
            found.append(Counted(value * _SCALES.get(words[-1], 1.0), span.start))
    return found


def _number_value(word: str) -> float | None:
    if word in NUMBER_VALUES:
        return float(NUMBER_VALUES[word])
    match = re.match(r"\d[\d,]*(?:\.\d+)?", word)
    return float(match.group().replace(",", "")) if match else None


def nearest(places: Collection[int], starts: list[int]) -> int:
    """The index of the start that stands nearest to any of the places; -1 where none is given."""
    if not places or not starts:
        return -1
    return min(range(len(starts)), key=lambda i: min(abs(starts[i] - p) for p in places))
