"""Conditions on the metadata of passages: what a search may find, and nothing else."""

from __future__ import annotations

import json
import operator
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ga_dspy.errors import InputError

Where = Mapping[str, Any]
"""Conditions by key of the metadata; all must hold.

A value: the passage has it, alone or in a list. A list: the passage has one of them. A mapping of
comparisons, `{">=": "2020", "<": "2024"}`, with `>`, `>=`, `<`, `<=`, `!=`, and `within`, a list
that holds every value of the passage: with it as what a caller may see, labels of passages are
access labels. A passage without the key meets `!=` and `within` alone.
"""

_ORDERED: Final = {">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le}


def holds(metadata: Mapping[str, Any], where: Where) -> bool:
    """Whether metadata meets all conditions.

    >>> holds({"lang": "en", "year": 1931}, {"lang": ["en", "de"], "year": {">=": 1930}})
    True
    """
    return all(_meets(metadata.get(key), wanted) for key, wanted in where.items())


def _meets(found: Any, wanted: Any) -> bool:
    values = found if isinstance(found, list | tuple) else [] if found is None else [found]
    if isinstance(wanted, Mapping):
        return all(_compares(values, sign, bound) for sign, bound in wanted.items())
    return any(value in values for value in (wanted if isinstance(wanted, list) else [wanted]))


def _compares(values: Sequence[Any], sign: str, bound: Any) -> bool:
    if sign == "!=":
        return bound not in values
    if sign == "within":
        return all(value in bound for value in values)
    alike = [v for v in values if isinstance(v, str) == isinstance(bound, str)]
    return any(_ORDERED[sign](value, bound) for value in alike)


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
                '{">=": "2020"}: >, >=, <, <=, !=, within (a list)',
                remedy='pass where={"lang": "en", "date": {">=": "2020"}}; None for no conditions',
            )
    return json.dumps(where, sort_keys=True, default=sorted)


def closed_keys(where: Where) -> set[str]:
    """Return the keys whose values are limited to those listed: one, several, or `within`.

    >>> sorted(closed_keys({"tenant": "a", "year": {">=": 2020}, "labels": {"within": ["staff"]}}))
    ['labels', 'tenant']
    """
    named = ((key, isinstance(one, Mapping), one) for key, one in where.items())
    return {key for key, compares, one in named if not compares or "within" in one}


def _is_condition(wanted: Any) -> bool:
    for sign, value in wanted.items() if isinstance(wanted, Mapping) else [("", wanted)]:
        many = isinstance(value, list | tuple | set | frozenset)
        each = value if many else [value]
        if sign not in (("", "within") if many else ("", "!=", *_ORDERED)):
            return False
        if not all(isinstance(one, str | int | float | bool) for one in each):
            return False
    return True
