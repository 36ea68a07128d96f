"""Conditions on the relations of a corpus graph, in the same words as those on metadata."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final, NamedTuple

from ga_dspy.errors import InputError
from ga_dspy.graph import Relation
from ga_dspy.graph.times import BEGINNING, ENDLESS, Interval, interval_of, time_of
from ga_dspy.graphrag.records import relation_key
from ga_dspy.retrieval.where import Sign, Where, comparisons

PREFIX: Final = "relation."
FIELDS: Final = tuple(PREFIX + name for name in ("name", "confidence", "time"))


def split(where: Where) -> tuple[Where, Where]:
    """Return the conditions on passages, and those on relations.

    >>> split({"lang": "en", "relation.time": "2015"})
    ({'lang': 'en'}, {'relation.time': '2015'})
    """
    on_relations = {key: value for key, value in where.items() if key.startswith(PREFIX)}
    return {key: value for key, value in where.items() if key not in on_relations}, on_relations


class Conditions(NamedTuple):
    """Which relations count; all conditions must hold.

    `relation.name` compares names as rules do ("was born in" is "born in"). A relation without a
    stated confidence or time meets all conditions on it. `relation.time` with `=` asks for what
    held at a time: it had begun and had not ended; a later value of a single-valued relation ends
    the earlier one. With `>=` and `<=` it asks for times that overlap a period.

    Attributes:
        names: Signs and sets of names.
        least: The lowest confidence.
        as_of: The time at which a relation must hold.
        period: The period that the time of a relation must overlap.
    """

    names: tuple[tuple[Sign, frozenset[str]], ...] = ()
    least: float = 0.0
    as_of: Interval | None = None
    period: Interval = Interval(BEGINNING, ENDLESS)

    @classmethod
    def of(cls, where: Where) -> Conditions:
        """Read conditions.

        Raises:
            InputError: A field or a comparison is unknown, or a value is no confidence or time.
        """
        found = cls()
        for key, sign, values in comparisons(where):
            found = found._with(key, sign, values)
        return found

    def _with(self, key: str, sign: Sign, values: Collection[Any]) -> Conditions:
        if key == "relation.name" and sign in ("=", "!="):
            name = frozenset(relation_key(str(value)) for value in values)
            return self._replace(names=(*self.names, (sign, name)))
        if key == "relation.confidence" and sign == ">=":
            return self._replace(least=max(self.least, *map(_confidence, values)))
        if key == "relation.time" and sign in ("=", ">=", "<=") and len(values) == 1:
            time, (start, end, _) = _time(*values), self.period
            if sign == "=":
                return self._replace(as_of=time)
            period = (max(start, time.start), end) if sign == ">=" else (start, min(end, time.end))
            return self._replace(period=Interval(*period))
        raise InputError(
            f"the condition {key} {sign} {[*values]!r:.80}",
            expected="relation.name with = or !=, relation.confidence with >=, or relation.time "
            "with one date and =, >= or <=",
            remedy='pass where={"relation.time": "2015", "relation.confidence": {">=": 0.5}}',
        )

    def admit(self, relation: Relation) -> bool:
        """Return whether a relation meets the conditions, by what it states itself."""
        key = relation_key(relation.relation)
        if any((key in names) != (sign == "=") for sign, names in self.names):
            return False
        if relation.confidence is not None and relation.confidence < self.least:
            return False
        time = time_of(relation)
        if time is None:
            return True
        is_held = self.as_of is None or time.holds_at(self.as_of)
        return is_held and self.period.overlaps(time)


ANY_RELATION: Final = Conditions()


def _confidence(value: Any) -> float:
    try:
        confidence = float(value)
    except (TypeError, ValueError):
        confidence = -1.0
    if not 0 <= confidence <= 1:
        raise InputError(
            f"relation.confidence >= {value!r:.80}",
            expected="a number from 0 to 1",
            remedy='pass where={"relation.confidence": {">=": 0.5}}',
        )
    return confidence


def _time(value: Any) -> Interval:
    time = interval_of(str(value))
    if time is None:
        raise InputError(
            f"relation.time is compared with {value!r:.80}",
            expected='a date with a year, such as "2015", "May 2015" or "2015-05-12"',
            remedy='pass where={"relation.time": "2015"}',
        )
    return time
