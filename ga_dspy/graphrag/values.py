"""Names that are no names: dates, numbers and amounts, which many unrelated things share."""

from __future__ import annotations

import re
from typing import Final

from ga_dspy.graph import normalise

_WORD: Final = re.compile(
    r"[\d.,:/%$€£°+×=-]+(?:st|nd|rd|th|s|m|km|kg|c)?|january|february|march|april|may|june|july|"
    r"august|september|october|november|december|century|bc|ad|bce|ce|million|billion|thousand|"
    r"hundred|percent|years?|days?|hours?|minutes?|km|miles?|metres?|meters?|feet|kg|tons?|"
    r"one|two|three|four|five|six|seven|eight|nine|ten|early|late|mid|of|the|about|and"
)


def is_plain_value(name: str) -> bool:
    """Whether a name is a date, a number or an amount.

    >>> [is_plain_value(name) for name in ("October 25, 1984", "9.5 km", "Apollo 11")]
    [True, True, False]
    """
    words = normalise(name).split()
    return any(c.isdigit() for c in name) and all(_WORD.fullmatch(word) for word in words)
