"""Conditions on the metadata of passages: what a search may find, and nothing else."""

from __future__ import annotations

import json
import math
import re
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import date, time
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ga_dspy.errors import InputError, listed
from ga_dspy.retrieval.postings import Rows, ragged

Where = Mapping[str, Any]
"""Conditions by key of the metadata; all must hold.

A value: the passage has it, alone or in a list. A list: the passage has one of them. A mapping of
comparisons, `{">=": 2020, "<": 2024}`, with `>`, `>=`, `<`, `<=`, `=` and `!=` (a value or a list),
and `within`, a list that holds every value of the passage: with it as what a caller may see, labels
of passages are access labels. A passage without the key meets `!=` and `within` alone.

Values have the types of the field's own: numbers, booleans, texts; dates are ISO texts. A text is
also read as the numbers or booleans that the field holds ("2020", "true"), which is how a command
line gives them. A field that no passage has, and a type that none of its values has, are errors;
a value that none has finds nothing.
"""

MOST_CONDITIONS, MOST_VALUES, LONGEST = 100, 10_000, 1000
"""Bounds of one `Where`: comparisons, values in all of them, characters of a text."""

Kind = Literal["text", "number", "boolean"]
Sign = Literal["=", "!=", "within", ">", ">=", "<", "<="]
_ORDERED: Final = (">", ">=", "<", "<=")
_KINDS: Final = {"text": "a text", "number": "a number", "boolean": "true or false"}
_NUMBER: Final = re.compile(r"[+-]?\d+(\.\d+)?(e[+-]?\d+)?", re.I)


def written(where: Where) -> str:
    """Return conditions as JSON.

    Raises:
        InputError: One of them is malformed, or there is none: nothing would be left out.
    """
    has_keys = isinstance(where, Mapping) and bool(where)
    for key, wanted in where.items() if has_keys else [("where", [where])]:
        if wanted == {} or not _is_condition(wanted):
            raise InputError(
                f"the condition on {key!r} is {wanted!r:.80}",
                expected="a value, a list of values, or comparisons such as "
                '{">=": "2020"}: >, >=, <, <=, =, !=, within (a list)',
                remedy='pass where={"lang": "en", "date": {">=": "2020"}}; None for no conditions',
            )
    given = [values for _, _, values in comparisons(where)]
    count = sum(map(len, given))
    if len(given) > MOST_CONDITIONS or count > MOST_VALUES:
        raise InputError(
            f"{len(given):,} conditions with {count:,} values",
            expected=f"at most {MOST_CONDITIONS:,} with {MOST_VALUES:,} in all",
            remedy="put a field that says the same into the metadata",
        )
    return json.dumps(where, sort_keys=True, default=_plain)


def closed_keys(where: Where) -> set[str]:
    """Return the keys whose values are limited to those listed: one, several, or `within`.

    >>> sorted(closed_keys({"tenant": "a", "year": {">=": 2020}, "labels": {"within": ["staff"]}}))
    ['labels', 'tenant']
    """
    named = ((key, isinstance(one, Mapping), one) for key, one in where.items())
    return {key for key, compares, one in named if not compares or {"=", "within"} & {*one}}


def _is_condition(wanted: Any) -> bool:
    if not isinstance(wanted, Mapping):
        return all(map(_is_value, _several(wanted)))
    for sign, value in wanted.items():
        if sign not in ("=", "!=", "within", *_ORDERED):
            return False
        if (_several(value) is value) is not (sign == "within") and sign not in ("=", "!="):
            return False
        if not all(map(_is_value, _several(value))):
            return False
    return True


def _is_value(value: Any) -> bool:
    if isinstance(value, str):
        return len(value) <= LONGEST
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, int | date | time)


def _several(value: Any) -> Any:
    return value if isinstance(value, list | tuple | set | frozenset) else [value]


def _plain(value: Any) -> Any:
    """A date as metadata has it, and a set as a list."""
    return value.isoformat() if isinstance(value, date | time) else sorted(value)


# --- What a search evaluates


def comparisons(where: Where) -> Iterator[tuple[str, Sign, Collection[Any]]]:
    """Give each comparison: its field, how it compares, and with which values.

    >>> list(comparisons({"lang": "en", "year": {">=": 2020}}))
    [('lang', '=', ['en']), ('year', '>=', [2020])]
    """
    for key, wanted in where.items():
        signs: Mapping[Any, Any] = wanted if isinstance(wanted, Mapping) else {"=": wanted}
        for sign, value in signs.items():
            yield key, sign, _several(value)


class Values(NamedTuple):
    """The values of one type that a field has, ascending, and the rows that hold each."""

    values: list[Any]
    starts: Rows
    rows: Rows

    def holding(self, sign: Sign, wanted: Collection[Any]) -> Rows:
        """The rows that hold one of some values, or a greater or a smaller one than some.

        Of `within`, the rows that hold any other.
        """
        first, last = self._span(sign, wanted)
        if sign != "within":
            return self.rows[ragged(self.starts[first], self.starts[last], len(self.rows))[1]]
        other = np.ones(len(self.values), dtype=np.bool_)
        other[first[first < last]] = False
        return self.rows[other.repeat(np.diff(self.starts))]

    def _span(self, sign: Sign, wanted: Collection[Any]) -> tuple[Rows, Rows]:
        """Where the values begin and end that compare so with each wanted one."""
        left = np.array([bisect_left(self.values, value) for value in wanted], dtype=np.int64)
        right = np.array([bisect_right(self.values, value) for value in wanted], dtype=np.int64)
        if sign not in _ORDERED:
            return left, right
        first, last = np.zeros_like(left), np.full_like(left, len(self.values))
        if sign in ("<", "<="):
            return first, left if sign == "<" else right
        return right if sign == ">" else left, last


Field: TypeAlias = Mapping[Kind, Values]
"""What a field has, by type."""


def field_of(found: Iterable[tuple[int, Any]], codes: NDArray[np.integer]) -> Field:
    """Return a field of the metadata.

    Args:
        found: Each distinct metadata that has it: its code and the value, or a list of them.
        codes: The code of each row's metadata.
    """
    held: dict[Kind, list[tuple[Any, int]]] = {}
    for code, value in found:
        for one in value if isinstance(value, list) else [value]:
            held.setdefault(_kind(one), []).append((one, code))
    order = np.argsort(codes, kind="stable")
    ends = np.cumsum(np.bincount(codes))
    fields: dict[Kind, Values] = {}
    for kind, pairs in held.items():
        values = sorted({value for value, _ in pairs})
        number = {value: place for place, value in enumerate(values)}
        numbers = np.array([number[value] for value, _ in pairs], dtype=np.int64)
        own = np.array([code for _, code in pairs], dtype=np.int64)
        pair, cells = ragged(np.append(0, ends)[own], ends[own], len(order))
        rows, numbers = order[cells], numbers[pair]
        by_value = np.lexsort((rows, numbers))
        starts = np.searchsorted(numbers[by_value], np.arange(len(values) + 1))
        fields[kind] = Values(values, starts, rows[by_value])
    return fields


def readings(
    field: str, sign: Sign, wanted: Collection[Any], kinds: Collection[Kind]
) -> dict[Kind, list[Any]]:
    """Return wanted values as the types that a field holds.

    Raises:
        InputError: None of its values is of the type of one of them.

    >>> readings("year", ">=", ["2020"], ["number"])
    {'number': [2020]}
    """
    found: dict[Kind, list[Any]] = {kind: [] for kind in kinds}
    for value in wanted:
        read = [(kind, _read(value, kind)) for kind in kinds]
        if all(one is None for _, one in read):
            raise InputError(
                f"{field} {sign} {value!r:.80} compares with {_KINDS[_kind(value)]}",
                expected=" or ".join(_KINDS[kind] for kind in _KINDS if kind in kinds)
                + f", as the values of {field!r} are",
                remedy="write the value as the metadata has it",
            )
        for kind, one in read:
            if one is not None:
                found[kind].append(one)
    return found


def _kind(value: Any) -> Kind:
    if isinstance(value, str):
        return "text"
    return "boolean" if isinstance(value, bool) else "number"


def _read(value: Any, kind: Kind) -> Any:
    """A value as one of another type; None where it is none."""
    if _kind(value) == kind:
        return value
    if not isinstance(value, str):
        return None
    if kind == "boolean":
        return {"true": True, "false": False}.get(value.strip().lower())
    number = _NUMBER.fullmatch(value.strip())
    if number is None:
        return None
    return float(number[0]) if number[1] or number[2] else int(number[0])


def unknown_field(field: str, known: Iterable[str]) -> InputError:
    """The error where no passage has a field."""
    return InputError(
        f"a condition on {field!r}, which no passage has",
        expected=f"a field of their metadata: {listed(sorted(known), 20) or 'there is none'}",
        remedy="check the name",
    )
