"""Conditions on the metadata of passages: the access scope of a search."""

from __future__ import annotations

import json
import math
import operator
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import date, time
from itertools import chain, compress
from typing import Any, Final, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from ga_dspy.errors import InputError, listed

Where = Mapping[str, Any]
"""Conditions by key of the metadata; all must hold.

A value: the passage has it, alone or in a list. A list: the passage has one of them. A mapping of
comparisons, `{">=": 2020, "<": 2024}`, with `>`, `>=`, `<`, `<=`, `=` and `!=` (a value or a list),
and `within`, a list that has every value of the passage: if the list is what a caller may see, the
labels of passages are access labels. A passage without the key meets only `!=` and `within`.

Values are compared by the types of the field: numbers, booleans, texts; dates are ISO texts. A text
is also parsed as a number or a boolean if the field has such values ("2020", "true"), as on the
command line. A field that no passage has, or a type that none of its values has, is an error; a
value that no passage has finds nothing.
"""

MOST_CONDITIONS, MOST_VALUES, LONGEST = 100, 10_000, 1000
"""Bounds of one `Where`: comparisons, values in all of them, characters of a text."""

Kind = Literal["text", "number", "boolean"]
Sign = Literal["=", "!=", "within", ">", ">=", "<", "<="]
_ORDERED: Final = {">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le}
_KINDS: Final = {"text": "a text", "number": "a number", "boolean": "true or false"}
_LISTS: Final = (list, tuple, set, frozenset)
_NUMBER: Final = re.compile(r"[+-]?\d+(\.\d+)?(e[+-]?\d+)?", re.I)


def as_json(where: Where) -> str:
    """Return conditions as JSON.

    Raises:
        InputError: A condition is malformed, or there is none, so that nothing would be filtered.
    """
    is_filled = isinstance(where, Mapping) and bool(where)
    for key, wanted in where.items() if is_filled else [("where", [where])]:
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
            remedy="add a metadata field that expresses the condition",
        )
    return json.dumps(where, sort_keys=True, default=_plain)


def closed_keys(where: Where) -> set[str]:
    """Return the keys whose values are limited to a list: one value, several, or `within`.

    >>> sorted(closed_keys({"tenant": "a", "year": {">=": 2020}, "labels": {"within": ["staff"]}}))
    ['labels', 'tenant']
    """
    return {key for key, sign, _ in comparisons(where) if sign in ("=", "within")}


def _is_condition(wanted: Any) -> bool:
    if not isinstance(wanted, Mapping):
        wanted = {"=": wanted}
    for sign, value in wanted.items():
        is_list = isinstance(value, _LISTS)
        fits = {"=": True, "!=": True, "within": is_list}.get(sign, not is_list)
        if sign not in get_args(Sign) or not fits or not all(map(_is_value, _values(value))):
            return False
    return True


def _is_value(value: Any) -> bool:
    if isinstance(value, str):
        return len(value) <= LONGEST
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, int | date | time)


def _values(value: Any) -> Collection[Any]:
    return value if isinstance(value, _LISTS) else [value]


def _plain(value: Any) -> Any:
    """A date as in metadata, a set as a list."""
    return value.isoformat() if isinstance(value, date | time) else sorted(value)


# --- Evaluation


def comparisons(where: Where) -> Iterator[tuple[str, Sign, Collection[Any]]]:
    """Yield the field, the sign and the values of each comparison.

    >>> list(comparisons({"lang": "en", "year": {">=": 2020}}))
    [('lang', '=', ['en']), ('year', '>=', [2020])]
    """
    for key, wanted in where.items():
        signs: Mapping[Any, Any] = wanted if isinstance(wanted, Mapping) else {"=": wanted}
        for sign, value in signs.items():
            yield key, sign, _values(value)


class Field(NamedTuple):
    """A metadata field of some passages.

    Attributes:
        values: Its distinct values, each a tuple; an empty one for passages without the field.
        places: For each passage, the place of its own in `values`.
    """

    values: list[tuple[Any, ...]]
    places: NDArray[np.int32]

    def kinds(self, among: NDArray[np.bool_]) -> set[Kind]:
        """Return the types of the values that some passages have."""
        is_there = np.bincount(self.places[among], minlength=len(self.values)) > 0
        return set(map(_kind, chain.from_iterable(compress(self.values, is_there))))

    def holding(self, sign: Sign, wanted: Mapping[Kind, Collection[Any]]) -> NDArray[np.bool_]:
        """Return which passages have a value that compares so with one of its type.

        For `within`, those that have any other value.
        """
        compare = _ORDERED.get(sign)

        def meets(value: Any) -> bool:
            same_type = wanted.get(_kind(value), ())
            if compare:
                return any(compare(value, one) for one in same_type)
            return (value in same_type) != (sign == "within")

        return np.array([any(map(meets, value)) for value in self.values])[self.places]


def parse_values(
    field: str, sign: Sign, wanted: Collection[Any], kinds: Collection[Kind]
) -> dict[Kind, set[Any]]:
    """Return wanted values as the types that a field has.

    Raises:
        InputError: A wanted value has a type that no value of the field has.

    >>> parse_values("year", ">=", ["2020"], ["number"])
    {'number': {2020}}
    """
    found: dict[Kind, set[Any]] = {kind: set() for kind in kinds}
    for value in wanted:
        parsed = {kind: _parse(value, kind) for kind in kinds}
        if all(one is None for one in parsed.values()):
            raise InputError(
                f"{field} {sign} {value!r:.80} compares with {_KINDS[_kind(value)]}",
                expected=" or ".join(_KINDS[kind] for kind in _KINDS if kind in kinds)
                + f", as the values of {field!r} are",
                remedy="write the value as the metadata has it",
            )
        for kind, one in parsed.items():
            if one is not None:
                found[kind].add(one)
    return found


def _kind(value: Any) -> Kind:
    if isinstance(value, str):
        return "text"
    return "boolean" if isinstance(value, bool) else "number"


def _parse(value: Any, kind: Kind) -> Any:
    """A value as another type; None if it is not one."""
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
    """Return the error for a field that no passage has."""
    return InputError(
        f"a condition on {field!r}, which no passage has",
        expected=f"a field of their metadata: {listed(sorted(known), 20) or 'there is none'}",
        remedy="check the name",
    )
