"""The times of relations, as intervals of days."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Final, NamedTuple

from ga_dspy.graph.paths import kind_of_value
from ga_dspy.graph.records import Relation
from ga_dspy.terms import MONTH_NAME, MONTH_NUMBERS, fold

Day = tuple[int, int, int]
"""Year, month and day; years BC are negative."""

BEGINNING: Final[Day] = (-(10**6), 1, 1)
ENDLESS: Final[Day] = (10**6, 12, 31)


class Interval(NamedTuple):
    """The days that a time covers.

    Attributes:
        start: The first day, or `BEGINNING`.
        end: The last day, or `ENDLESS`.
        is_span: Whether the time states a duration ("since 1814", "1999–2005"). A single date
            states when something happened or began; what began may still hold.
    """

    start: Day
    end: Day
    is_span: bool = False

    def overlaps(self, other: Interval) -> bool:
        """Return whether the intervals have a day in common."""
        return self.start <= other.end and other.start <= self.end

    def holds_at(self, other: Interval) -> bool:
        """Return whether a fact of this time has begun and not ended at another time.

        >>> at_2000 = interval_of("2000")
        >>> [interval_of(t).holds_at(at_2000) for t in ("1990", "since 1990", "until 1990", "2010")]
        [True, True, False, False]
        """
        return self.start <= other.end and (not self.is_span or other.start <= self.end)


_YEAR: Final = r"\d{1,4}\s?(?:bce?|b\.c\.|ad|a\.d\.|ce)(?![a-z])|\bad\s\d{1,4}\b|\b\d{4}\b"
_DAY: Final = r"\d{1,2}(?:st|nd|rd|th)?"
_POINT: Final = re.compile(
    rf"(?P<iso>\b\d{{4}}-\d\d(?:-\d\d)?\b)"
    rf"|(?P<decade>\b\d{{3}}0)'?s\b"
    rf"|(?P<century>\d{{1,2}})(?:st|nd|rd|th)[ -]century(?P<bc>\s?bce?)?"
    rf"|(?:\b(?P<day>{_DAY})\.?(?:\s(?:of|de))?\s)?\b(?P<month>(?:{MONTH_NAME})\b\.?)"
    rf"(?:\s(?P<day2>{_DAY})\b)?,?(?:\s(?:of|de|del))?\s(?P<of>{_YEAR})"
    rf"|(?P<year>{_YEAR})(?:[-–/](?P<to>\d\d)\b(?!-))?"
)
_SINCE: Final = re.compile(r"\b(?:since|from|starting|beginning|after)\W*(?:the|in|about)?\W*$")
_UNTIL: Final = re.compile(r"\b(?:until|till|to|through|before|ended|ending)\W*(?:the|in)?\W*$")
_RANGE: Final = re.compile(r"\W*(?:[-–—]|\b(?:to|until|till|through|and)\b)\W*(?:the|in)?\W*")
_OPEN: Final = re.compile(
    r"\s*(?:[-–—]|\b(?:to|until|till)\b)\s*(?:the\s)?(?:present|now|today|date)?"
)


@lru_cache(maxsize=65536)
def interval_of(text: str) -> Interval | None:
    """Return the interval of a time in words or figures; None if it has no year.

    >>> interval_of("since May 1814")
    Interval(start=(1814, 5, 1), end=(1000000, 12, 31), is_span=True)
    >>> interval_of("from 1999 to 2005"), interval_of("44 BC")
    (Interval(start=(1999, 1, 1), end=(2005, 12, 31), is_span=True), \
Interval(start=(-44, 1, 1), end=(-44, 12, 31), is_span=False))
    """
    plain = " ".join(fold(text).split())
    points = list(_points(plain))
    if not points:
        return None
    (first, one), (last, other) = points[0], points[-1]
    before, between = plain[: first.start()], plain[first.end() : last.start()]
    if first is last:
        if _SINCE.search(before) or _OPEN.fullmatch(plain, first.end()):
            return Interval(one.start, ENDLESS, is_span=True)
        if _UNTIL.search(before):
            return Interval(BEGINNING, one.end, is_span=True)
        return one
    return Interval(one.start, other.end, bool(_RANGE.fullmatch(between)))


def _points(plain: str) -> Iterator[tuple[re.Match[str], Interval]]:
    """Yield each date in a text with the days that it covers."""
    for found in _POINT.finditer(plain):
        if found["iso"]:
            yield found, _covered(*map(int, found["iso"].split("-")))
        elif found["decade"]:
            yield found, _years(int(found["decade"]), 10)
        elif found["century"]:
            century = int(found["century"])
            yield found, _years(-100 * century if found["bc"] else 100 * (century - 1) + 1, 100)
        elif found["month"]:
            day = found["day"] or found["day2"] or ""
            month = MONTH_NUMBERS[found["month"].rstrip(".")]
            yield found, _covered(_year(found["of"]), month, int(day.rstrip("stndrh") or 0))
        elif found["to"]:
            year = _year(found["year"])
            yield found, _years(year, (int(found["to"]) - year) % 100 + 1)._replace(is_span=True)
        else:
            yield found, _covered(_year(found["year"]))


def _year(text: str) -> int:
    number = int(re.sub(r"\D", "", text))
    return -number if "b" in text else number


def _years(first: int, count: int) -> Interval:
    return Interval((first, 1, 1), (first + count - 1, 12, 31))


def _covered(year: int, month: int = 0, day: int = 0) -> Interval:
    """Return the interval of a year, a month or a day."""
    return Interval((year, month or 1, day or 1), (year, month or 12, day or 31))


def time_of(relation: Relation) -> Interval | None:
    """Return the time that a relation states, or its tail if that is a date."""
    if relation.time:
        return interval_of(relation.time)
    return interval_of(relation.tail) if kind_of_value(relation.tail) == "date" else None
