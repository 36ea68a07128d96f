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
"""Conditions on metadata by field; a passage must meet all of them.

- A value: the passage has this value, alone or in a list.
- A list: the passage has one of these values.
- A mapping of comparisons, such as `{">=": 2020, "<": 2024}`, with `>`, `>=`, `<`, `<=`, `=` and
  `!=` (each with a value or, for the last two, a list), and `within`: the list contains every value
  of the passage. With the labels that a caller may see, `within` makes a field an access label.

A passage without the field meets only `!=` and `within`.

Values are compared by the types of the field: number, boolean, text; dates are ISO texts. If the
field has numbers or booleans, a text such as "2020" or "true" is also parsed as one, which the
command line needs. A field that no passage has, or a value of a type that the field does not have,
is an error; a value that no passage has matches nothing.
"""

MOST_CONDITIONS, MOST_VALUES, LONGEST = 100, 10_000, 1000
"""Limits of a `Where`: comparisons, values in all of them together, characters of a text."""

Kind = Literal["text", "number", "boolean"]
Sign = Literal["=", "!=", "within", ">", ">=", "<", "<="]
_ORDERED: Final = {">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le}
_KINDS: Final = {"text": "a text", "number": "a number", "boolean": "true or false"}
_LISTS: Final = (list, tuple, set, frozenset)
_NUMBER: Final = re.compile(r"[+-]?\d+(\.\d+)?(e[+-]?\d+)?", re.I)


def as_json(where: Where) -> str:
    """Return conditions as JSON.

    Raises:
        InputError: A condition is malformed or too large, or there is none.
    """
    if not isinstance(where, Mapping) or not where:
        raise _malformed(f"where is {where!r:.80}")
    for field, wanted in where.items():
        if not _is_condition(wanted):
            raise _malformed(f"the condition on {field!r} is {wanted!r:.80}")
    sizes = [len(values) for _, _, values in comparisons(where)]
    if len(sizes) > MOST_CONDITIONS or sum(sizes) > MOST_VALUES:
        raise InputError(
            f"{len(sizes):,} conditions with {sum(sizes):,} values",
            expected=f"at most {MOST_CONDITIONS:,} with {MOST_VALUES:,} in all",
            remedy="add a metadata field that expresses the condition",
        )
    return json.dumps(where, sort_keys=True, default=_plain)


def _malformed(found: str) -> InputError:
    return InputError(
        found,
        expected='a value, a list of values, or comparisons such as {">=": "2020"}: '
        ">, >=, <, <=, =, !=, within (a list)",
        remedy='pass where={"lang": "en", "date": {">=": "2020"}}; None for no conditions',
    )


def closed_keys(where: Where) -> set[str]:
    """Return the fields that are limited to given values, by `=` or `within`.

    >>> sorted(closed_keys({"tenant": "a", "year": {">=": 2020}, "labels": {"within": ["staff"]}}))
    ['labels', 'tenant']
    """
    return {key for key, sign, _ in comparisons(where) if sign in ("=", "within")}


def _is_condition(wanted: Any) -> bool:
    if not isinstance(wanted, Mapping):
        wanted = {"=": wanted}
    for sign, value in wanted.items():
        is_list = isinstance(value, _LISTS)
        fits = is_list if sign == "within" else not (is_list and sign in _ORDERED)
        if sign not in get_args(Sign) or not fits or not all(map(_is_value, _values(value))):
            return False
    return bool(wanted)


def _is_value(value: Any) -> bool:
    if isinstance(value, str):
        return len(value) <= LONGEST
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, int | date | time)


def _values(value: Any) -> Collection[Any]:
    return value if isinstance(value, _LISTS) else [value]


def _plain(value: Any) -> Any:
    """Return a date as ISO text, a set as a list."""
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
    """A metadata field of some passages, dictionary-encoded.

    Attributes:
        values: The distinct values, each a tuple; empty for passages without the field.
        places: For each passage, the place of its value in `values`.
    """

    values: list[tuple[Any, ...]]
    places: NDArray[np.int32]

    def kinds(self, among: NDArray[np.bool_]) -> set[Kind]:
        """Return the types of the values of the passages in a mask."""
        is_used = np.bincount(self.places[among], minlength=len(self.values)) > 0
        return set(map(_kind, chain.from_iterable(compress(self.values, is_used))))

    def holding(self, sign: Sign, wanted: Mapping[Kind, Collection[Any]]) -> NDArray[np.bool_]:
        """Return the mask of passages with a value that fulfils a comparison with a wanted one.

        For "!=", the mask is that of "="; for "within", that of passages with an unwanted value.
        """
        compare = _ORDERED.get(sign)

        def matches(value: Any) -> bool:
            same_type = wanted.get(_kind(value), ())
            if compare:
                return any(compare(value, other) for other in same_type)
            return (value in same_type) != (sign == "within")

        return np.array([any(map(matches, value)) for value in self.values])[self.places]


def parse_values(
    field: str, sign: Sign, wanted: Collection[Any], kinds: Collection[Kind]
) -> dict[Kind, set[Any]]:
    """Parse wanted values as each type that a field has.

    Raises:
        InputError: A wanted value parses as no type of the field.

    >>> parse_values("year", ">=", ["2020"], ["number"])
    {'number': {2020}}
    """
    found: dict[Kind, set[Any]] = {kind: set() for kind in kinds}
    for value in wanted:
        parsed = [(kind, _parse(value, kind)) for kind in kinds]
        parsed = [(kind, result) for kind, result in parsed if result is not None]
        if not parsed:
            types = " or ".join(name for kind, name in _KINDS.items() if kind in kinds)
            raise InputError(
                f"{field} {sign} {value!r:.80} compares with {_KINDS[_kind(value)]}",
                expected=f"{types}, like the values of {field!r}",
                remedy="write the value as it is in the metadata",
            )
        for kind, result in parsed:
            found[kind].add(result)
    return found


def _kind(value: Any) -> Kind:
    if isinstance(value, str):
        return "text"
    return "boolean" if isinstance(value, bool) else "number"


def _parse(value: Any, kind: Kind) -> Any:
    """Return a value as a type; None if it does not parse."""
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
    """Return the error for a condition on a field that no passage has."""
    return InputError(
        f"a condition on {field!r}, which no passage has",
        expected=f"a field of their metadata: {listed(sorted(known), 20) or 'there is none'}",
        remedy="check the name",
    )
