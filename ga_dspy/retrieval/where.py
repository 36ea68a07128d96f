"""Conditions on the metadata of passages: the access scope of a search."""

from __future__ import annotations

import json
import math
import operator
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import date, time
from typing import Any, Final, Literal, NamedTuple, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from ga_dspy.errors import InputError, listed
from ga_dspy.retrieval.postings import Rows, ragged

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


class Values(NamedTuple):
    """The distinct values of one type in a field, and the rows that have them.

    Attributes:
        values: The values.
        places: The place in `values` of the value of each of `rows`.
        rows: The rows; one with several values occurs several times.
    """

    values: list[Any]
    places: Rows
    rows: Rows

    def holding(self, sign: Sign, wanted: Collection[Any]) -> Rows:
        """Return the rows with a value that compares so with one of some values.

        For `within`, the rows with any other value.
        """
        if compare := _ORDERED.get(sign):
            hits = [any(compare(value, one) for one in wanted) for value in self.values]
        else:
            among = frozenset(wanted)
            hits = [(value in among) != (sign == "within") for value in self.values]
        return self.rows[np.array(hits, dtype=np.bool_)[self.places]]


Field: TypeAlias = Mapping[Kind, Values]
"""The values of a metadata field, by type."""


def field_of(found: Iterable[tuple[int, Any]], codes: NDArray[np.integer]) -> Field:
    """Return a metadata field.

    Args:
        found: The code and the value, or list of values, of each distinct metadata that has it.
        codes: The code of the metadata of each row.
    """
    places: dict[Kind, dict[Any, int]] = {}
    cells: dict[Kind, list[tuple[int, int]]] = {}
    for code, value in found:
        for one in value if isinstance(value, list) else [value]:
            known = places.setdefault(_kind(one), {})
            cells.setdefault(_kind(one), []).append((known.setdefault(one, len(known)), code))
    order = np.argsort(codes, kind="stable")
    ends = np.cumsum(np.bincount(codes))
    fields: dict[Kind, Values] = {}
    for kind, pairs in cells.items():
        place, code = np.array(pairs, dtype=np.int64).T
        pair, rows = ragged(np.append(0, ends)[code], ends[code], len(order))
        fields[kind] = Values(list(places[kind]), place[pair], order[rows])
    return fields


def parse_values(
    field: str, sign: Sign, wanted: Collection[Any], kinds: Collection[Kind]
) -> dict[Kind, list[Any]]:
    """Return wanted values as the types that a field has.

    Raises:
        InputError: A wanted value has a type that no value of the field has.

    >>> parse_values("year", ">=", ["2020"], ["number"])
    {'number': [2020]}
    """
    found: dict[Kind, list[Any]] = {kind: [] for kind in kinds}
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
                found[kind].append(one)
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
