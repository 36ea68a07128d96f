"""Values as a person reads them."""

from __future__ import annotations

import re
from decimal import ROUND_HALF_UP, Decimal

from ga_dspy.arena.tables.table import Column, Estimate, Flagged, Value

NONE, MINUS = "–", "−"
_SPECIAL = re.compile(r"([\\|*<`\[\]])")
# Underscores inside a word mean themselves.
_EMPHASIS = re.compile(r"(?<![A-Za-z0-9_])_++|_++(?![A-Za-z0-9])")


def shown(value: Value, column: Column) -> str:
    """A value as a cell of a table.

    >>> shown(-1234.56, Column("F1")), shown(None, Column("F1")), shown(0.0004, Column("p", "p"))
    ('−1,234.6', '–', '<0.001')
    """
    if value is None:
        return NONE
    if isinstance(value, str):
        return escaped(value)
    if isinstance(value, Estimate):
        low, high = (shown(bound, column) for bound in value[1:])
        return f"{shown(value.value, column)} [{low}, {high}]"
    if isinstance(value, Flagged):
        return f"{shown(value.value, column)} {value.flag}".rstrip()
    return _number(value, column).replace("-", MINUS)


def counted(number: int | None) -> str:
    """A count, or a dash."""
    return NONE if number is None else f"{number:,}"


def marked(text: str, mark: str) -> str:
    """A text with the letter of a note."""
    return f"{text} ({mark})" if mark else text


def escaped(text: str) -> str:
    r"""Text that means itself in a cell of a Markdown table.

    >>> escaped("a|b\n*c*")
    'a\\|b \\*c\\*'
    """
    plain = _SPECIAL.sub(r"\\\1", " ".join(text.split()))
    return _EMPHASIS.sub(lambda found: r"\_" * len(found[0]), plain)


def _number(value: float, column: Column) -> str:
    if column.form == "count":
        return f"{value:,.0f}"
    if column.form == "p":
        return "<0.001" if value < 0.0005 else f"{value:.3f}"
    # Half goes up, as in the paper; of the number as it is told, not of its binary neighbour.
    rounded = Decimal(f"{value:.6f}").quantize(_places(value, column), ROUND_HALF_UP)
    if not rounded:
        return f"{abs(rounded)}"
    return f"{rounded:+,}" if column.form == "difference" else f"{rounded:,}"


def _places(value: float, column: Column) -> Decimal:
    if column.form == "dollars":
        return Decimal("0.0001") if value < 0.1 else Decimal("0.01")
    return Decimal("0.01") if column.form == "seconds" and value < 1 else Decimal("0.1")
