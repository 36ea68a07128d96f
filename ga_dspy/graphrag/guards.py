"""The guards: what may enter the graph, what needs more evidence, and what disagrees."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Final, Literal, NamedTuple

from ga_dspy.graph import Entity, Relation, normalise
from ga_dspy.graph.kinds import kind_of, traits
from ga_dspy.graphrag.sources import Rules, relation_key
from ga_dspy.graphrag.values import is_plain_value

Cause = Literal["low confidence", "relation not allowed", "too little evidence"]

_YEAR: Final = re.compile(r"\b\d{4}\b")
_NEGATED: Final = re.compile(r"\b(?:not|never|no longer) ")


class LeftOut(NamedTuple):
    """A relation that a guard kept out of the graph."""

    relation: Relation
    cause: Cause


def check(relation: Relation, rules: Rules) -> LeftOut | None:
    """Whether a guard keeps one stated relation out."""
    stated = relation.confidence
    if stated is not None and stated < rules.min_confidence:
        return LeftOut(relation, "low confidence")
    if not rules.allows(relation.relation):
        return LeftOut(relation, "relation not allowed")
    return None


def is_backed(relation: Relation) -> bool:
    """Whether two passages state a relation, as a critical one needs."""
    return len({evidence.passage for evidence in relation.evidence}) > 1


def contradictions(
    entities: Sequence[Entity],
    relations: Sequence[Relation],
    ends: Sequence[tuple[int, int]],
    rules: Rules,
) -> list[tuple[int, ...]]:
    """For each relation those that cannot hold beside it; both are kept.

    Two relations contradict where one denies the other, or where a thing has two different values
    of a relation of which it can have one: years that differ, places of which neither lies in the
    other as far as the graph knows. Relations that state different times do not.
    """
    against: list[set[int]] = [set() for _ in relations]
    linked = set(ends) | {(tail, head) for head, tail in ends}
    for one, other in _candidates(relations, ends, rules):
        tails = ends[one][1], ends[other][1]
        denied = tails[0] == tails[1]
        apart = tails not in linked and not agree(*(entities[tail] for tail in tails))
        if (denied or apart) and not _at_other_times(relations[one], relations[other]):
            against[one].add(other)
            against[other].add(one)
    return [tuple(sorted(edges)) for edges in against]


def _candidates(
    relations: Sequence[Relation], ends: Sequence[tuple[int, int]], rules: Rules
) -> Iterator[tuple[int, int]]:
    """Pairs of one head that say yes and no of one tail, or give a single value twice."""
    asserted: dict[tuple[int, int, str], dict[bool, list[int]]] = defaultdict(_yes_and_no)
    valued: dict[tuple[int, str], list[int]] = defaultdict(list)
    for edge, (relation, (head, tail)) in enumerate(zip(relations, ends, strict=True)):
        key = relation_key(relation.relation)
        plain = normalise(_NEGATED.sub("", key))
        asserted[head, tail, plain][plain == key].append(edge)
        event = key.removesuffix(" in").removesuffix(" on")
        if key in rules.single_valued:
            valued[head, key].append(edge)
        elif event in rules.single_dated and is_plain_value(relation.tail):
            valued[head, event].append(edge)
    for said in asserted.values():
        yield from ((one, other) for one in said[True] for other in said[False])
    for edges in valued.values():
        yield from ((a, b) for a, b in combinations(edges, 2) if ends[a][1] != ends[b][1])


def _yes_and_no() -> dict[bool, list[int]]:
    return {True: [], False: []}


def agree(one: Entity, other: Entity) -> bool:
    """Whether two values of a single-valued relation may both be right.

    They may where one says more of the same ("1984" and "October 25, 1984"), where they are of
    different kinds, as a city and its country are, and where one place is known to lie in the
    other.

    >>> agree(Entity(name="Houston"), Entity(name="Houston, Texas"))
    True
    >>> agree(Entity(name="1984"), Entity(name="October 25, 1985"))
    False
    """
    words, others = set(normalise(one.name).split()), set(normalise(other.name).split())
    if words <= others or others <= words:
        return True
    if is_plain_value(one.name) != is_plain_value(other.name):
        return True
    kinds = {kind_of(one.type), kind_of(other.type)}
    if len(kinds) == 2 and "" not in kinds:
        return True
    places = [traits("", (f"located in {value.name}",), "").facts for value in (one, other)]
    return not places[0].isdisjoint(places[1])


def _at_other_times(one: Relation, other: Relation) -> bool:
    ours, theirs = (set(_YEAR.findall(relation.time or "")) for relation in (one, other))
    return bool(ours and theirs) and ours.isdisjoint(theirs)
