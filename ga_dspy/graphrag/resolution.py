"""From records to a graph: entity resolution, filtering and contradictions.

The rules of `ga_dspy.graph` decide which names are one entity, then manual overrides. Every
decision can be undone: records never change, merges are listed with their rule, and `Overrides`
separate or join names.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Final, NamedTuple

from ga_dspy.graph import Entity, GraphUpdate, Relation, normalise
from ga_dspy.graph.clusters import (
    Cluster,
    Match,
    Reference,
    attach,
    gather,
    key_of,
    matches,
    passages_of,
    references,
)
from ga_dspy.graph.identity import identity
from ga_dspy.graph.knowledge_graph import view
from ga_dspy.graph.times import ENDLESS, interval_of
from ga_dspy.graph.traits import kind_of, traits
from ga_dspy.graphrag.records import Overrides, Pair, Rules, Sources, Spelling, relation_key
from ga_dspy.text import MONTHS


class Merge(NamedTuple):
    """A spelling that is merged into another name, with the rule and the passages."""

    node: int
    name: str
    spelling: str
    rule: str
    passages: tuple[str, ...]


class Flags(NamedTuple):
    """Whether an edge is critical under the rules, and the edges that it contradicts."""

    critical: bool
    contradicts: tuple[int, ...]


class Resolved(NamedTuple):
    """The entities and relations of a graph, with flags and merges.

    Attributes:
        entities: The entities, by node.
        relations: The relations, by edge.
        ends: The nodes of head and tail of each edge.
        flags: The flags of each edge.
        merges: Spellings that are merged into another name.
        left_out: For each dropped relation, the reason.
        unused: Descriptions of the overrides that did not match.
    """

    entities: tuple[Entity, ...]
    relations: tuple[Relation, ...]
    ends: tuple[tuple[int, int], ...]
    flags: tuple[Flags, ...]
    merges: tuple[Merge, ...]
    left_out: tuple[str, ...]
    unused: tuple[str, ...]


def resolve(sources: Sources, *, latest: bool = False) -> Resolved:
    """Resolve all records of a graph; the result does not depend on their order.

    Args:
        sources: The records and rules.
        latest: Drop what a later value of a single-valued relation has replaced.
    """
    rules = sources.rules
    records, left_out = _admit(sources)
    named = references(records)
    found = _matches_in_corpus(named, records, rules.overrides)
    parts = gather(named, found)
    parts, unused = _override(parts, rules.overrides)
    records = _with_unclear_ends(records, parts)
    part_of = {(one.name, one.passages): i for i, part in enumerate(parts) for one in part}
    # A relation of an entity with itself states an alias, which the entity already has.
    between = tuple(
        r for r in records.relations
        if part_of[r.head, passages_of(r)] != part_of[r.tail, passages_of(r)]
    )  # fmt: skip
    shown = view(GraphUpdate(entities=records.entities, relations=between), parts)

    critical = set(map(relation_key, rules.critical))

    def is_critical(relation: Relation) -> bool:
        return relation_key(relation.relation) in critical

    relations = [r for r in shown.relations if not is_critical(r) or len(passages_of(r)) > 1]
    left_out += ["too little evidence"] * (len(shown.relations) - len(relations))
    row = {entity.name: i for i, entity in enumerate(shown.entities)}
    if latest:
        gone = _replaced(shown.entities, relations, row, rules)
        relations = [relation for j, relation in enumerate(relations) if j not in gone]
        left_out += ["replaced by a later one"] * len(gone)
    ends = tuple((row[r.head], row[r.tail]) for r in relations)
    firsts = (merged[0] for merged in shown.entity_records)
    clusters = [parts[part_of[first.name, passages_of(first)]] for first in firsts]
    against = _contradictions(shown.entities, relations, ends, rules)
    return Resolved(
        entities=shown.entities,
        relations=tuple(relations),
        ends=ends,
        flags=tuple(map(Flags, map(is_critical, relations), against)),
        merges=tuple(_merges(shown.entities, clusters, found, rules.overrides)),
        left_out=tuple(left_out),
        unused=unused,
    )


# --- Filtering by the rules.


def _admit(sources: Sources) -> tuple[GraphUpdate, list[str]]:
    """Return the records that the rules admit, each once, and why the others were dropped."""
    rules = sources.rules
    updates = [batch.update for batch in sources.batches]
    whole = (_without_parted_aliases(e, rules.overrides) for u in updates for e in u.entities)
    entities = dict.fromkeys(whole)
    allowed = None if rules.relations is None else set(map(relation_key, rules.relations))
    relations, left_out = [], []
    for relation in dict.fromkeys(r for update in updates for r in update.relations):
        stated = relation.confidence
        if stated is not None and stated < rules.min_confidence:
            left_out.append("low confidence")
        elif allowed is not None and relation_key(relation.relation) not in allowed:
            left_out.append("relation not allowed")
        else:
            relations.append(relation)
    return GraphUpdate(entities=tuple(entities), relations=tuple(relations)), left_out


def _without_parted_aliases(entity: Entity, overrides: Overrides) -> Entity:
    """Remove aliases that overrides assign to another entity."""
    others = {
        normalise(other.name)
        for pair in overrides.apart
        for one, other in ((pair.one, pair.other), (pair.other, pair.one))
        if normalise(one.name) == normalise(entity.name)
    }
    aliases = tuple(alias for alias in entity.aliases if normalise(alias) not in others)
    return entity if aliases == entity.aliases else entity.model_copy(update={"aliases": aliases})


# --- Entity resolution.


def _matches_in_corpus(
    named: Sequence[Reference], records: GraphUpdate, overrides: Overrides
) -> tuple[Match, ...]:
    """Return the matches that hold in a corpus, where one wrong alias would join large entities.

    An acronym needs a passage that contains its long form too. If both names also occur in
    passages that do not state the match, two passages must state it.
    """
    parted = {frozenset(map(key_of, (p.one.name, p.other.name))) for p in overrides.apart}
    places: dict[str, set[str]] = defaultdict(set)
    for one in named:
        places[one.key] |= one.passages
    found = list(matches(named, records.relations))
    stated: dict[frozenset[str], set[str]] = defaultdict(set)
    for match in found:
        stated[frozenset((match.one, match.other))] |= match.passages

    def holds(match: Match) -> bool:
        keys = frozenset((match.one, match.other))
        ours, theirs, stating = places[match.one], places[match.other], stated[keys]
        if keys in parted:
            return False
        if match.rule == "acronym":
            return not ours.isdisjoint(theirs)
        elsewhere = ours - stating and theirs - stating
        return match.rule == "spelling" or len(stating) != 1 or not elsewhere

    return tuple(filter(holds, found))


def _split(part: Cluster, pair: Pair) -> list[Cluster]:
    """Split a cluster by a pair; other references follow their passage, traits or name."""
    groups: dict[str, Cluster] = defaultdict(list)
    for one in part:
        groups[_side(pair, one)].append(one)
    rest = groups.pop("", [])
    if len(groups) < 2:
        return [part]
    return attach(rest, [groups[side] for side in sorted(groups)])


def _override(parts: list[Cluster], overrides: Overrides) -> tuple[list[Cluster], tuple[str, ...]]:
    """Apply overrides to clusters; return also descriptions of those that did not match."""
    unused: list[str] = []
    for pair in overrides.apart:
        sides = {_side(pair, one) for part in parts for one in part}
        if not {"one", "other"} <= sides:
            unused.append(f"apart: {_in_words(pair)}: a name is in no record")
        parts = [p for part in parts for p in _split(part, pair)]
    for pair in overrides.same:
        at = [
            [i for i, part in enumerate(parts) if any(_is_spelled(one, end) for one in part)]
            for end in (pair.one, pair.other)
        ]
        if any(len(places) != 1 for places in at):
            several = "means several entities: give its passage"
            why = several if all(at) else "is in no record"
            unused.append(f"same: {_in_words(pair)}: a name {why}")
        elif at[0] != at[1]:
            (keep,), (lose,) = at
            parts[keep] = parts[keep] + parts[lose]
            del parts[lose]
    return parts, tuple(unused)


def _side(pair: Pair, one: Reference) -> str:
    if _is_spelled(one, pair.one):
        return "one"
    return "other" if _is_spelled(one, pair.other) else ""


def _is_spelled(one: Reference, spelling: Spelling) -> bool:
    spelt = normalise(one.name) == normalise(spelling.name)
    return spelt and (not spelling.passage or spelling.passage in one.passages)


def _in_words(pair: Pair) -> str:
    return f"{pair.one.name!r} and {pair.other.name!r}"


def _with_unclear_ends(records: GraphUpdate, parts: list[Cluster]) -> GraphUpdate:
    """Make an entity of every relation end that could be any of several namesakes.

    Its evidence is that of its relations. It is added to the cluster of the end too.
    """
    evidence = {
        (end, passages_of(relation)): relation.evidence
        for relation in reversed(records.relations)
        for end in relation.ends
    }
    bare = []
    for i, part in enumerate(parts):
        if not any(one.entity for one in part):
            first = part[0]
            entity = Entity(name=first.name, evidence=evidence[first.name, first.passages])
            parts[i] = [first._replace(entity=entity), *part]
            bare.append(entity)
    entities = tuple(dict.fromkeys((*records.entities, *bare)))
    return records.model_copy(update={"entities": entities})


def _merges(
    entities: Sequence[Entity],
    parts: Sequence[Cluster],
    found: Iterable[Match],
    overrides: Overrides,
) -> Iterator[Merge]:
    """Yield each spelling that differs from the shown name of its entity.

    Args:
        entities: The entity of each node, under its shown name.
        parts: The references to each node.
        found: The matches that joined names.
        overrides: The overrides.
    """
    near: dict[str, dict[str, str]] = defaultdict(dict)
    for match in found:
        near[match.one].setdefault(match.other, match.rule)
        near[match.other].setdefault(match.one, match.rule)
    joined = {key_of(end.name) for pair in overrides.same for end in (pair.one, pair.other)}
    for node, (entity, part) in enumerate(zip(entities, parts, strict=True)):
        others: dict[str, set[str]] = defaultdict(set)
        for one in part:
            if normalise(one.name) != normalise(entity.name):
                others[one.name] |= one.passages
        own, keys = identity(entity.name), {one.key for one in part}
        identified = {one.name for one in part if one.traits.ids}
        for spelling, passages in sorted(others.items()):
            key = key_of(spelling)
            rules = (rule for other, rule in near[key].items() if other in keys)
            other = "same id" if spelling in identified else "surname"
            by_hand = "override" if key in joined else other
            rule = "same name" if key == own else near[key].get(own) or next(rules, by_hand)
            yield Merge(node, entity.name, spelling, rule, tuple(sorted(passages)))


# --- Contradictions: both relations are kept.

_NEGATED: Final = re.compile(r"\b(?:not|never|no longer) ")
_VALUE_WORD: Final = re.compile(
    r"[\d.,:/%$€£°+×=-]+(?:st|nd|rd|th|s|m|km|kg|c)?|century|bc|ad|bce|ce|million|billion|thousand|"
    r"hundred|percent|years?|days?|hours?|minutes?|km|miles?|metres?|meters?|feet|kg|tons?|"
    r"one|two|three|four|five|six|seven|eight|nine|ten|early|late|mid|of|the|about|and|"
    + "|".join(MONTHS)
)


def is_plain_value(name: str) -> bool:
    """Return whether a name is a date, a number or an amount, which unrelated entities share.

    >>> [is_plain_value(name) for name in ("October 25, 1984", "9.5 km", "Apollo 11")]
    [True, True, False]
    """
    words = normalise(name).split()
    return any(c.isdigit() for c in name) and all(_VALUE_WORD.fullmatch(word) for word in words)


def _contradictions(
    entities: Sequence[Entity],
    relations: Sequence[Relation],
    ends: Sequence[tuple[int, int]],
    rules: Rules,
) -> list[tuple[int, ...]]:
    """Return for each relation the relations that contradict it.

    Two relations contradict each other if one denies the other, or if they state two values where
    there is one: different years, or places of which neither is known to contain the other. They
    do not if they are of different times, or if one replaced the other.
    """
    against: list[set[int]] = [set() for _ in relations]
    for one, other in _candidates(entities, relations, ends, rules):
        if _earlier(relations, one, other) is None:
            against[one].add(other)
            against[other].add(one)
    return [tuple(sorted(edges)) for edges in against]


def _replaced(
    entities: Sequence[Entity],
    relations: Sequence[Relation],
    row: Mapping[str, int],
    rules: Rules,
) -> set[int]:
    """Return the relations that a later value of a single-valued relation has replaced."""
    ends = [(row[relation.head], row[relation.tail]) for relation in relations]
    pairs = _candidates(entities, relations, ends, rules)
    earlier = {_earlier(relations, one, other) for one, other in pairs}
    return {edge for edge in earlier if edge is not None}


def _earlier(relations: Sequence[Relation], one: int, other: int) -> int | None:
    """Return which of two values the other one followed, or None if their times do not say."""
    times = {edge: interval_of(relations[edge].time or "") for edge in (one, other)}
    dated = sorted((time.start, edge, time) for edge, time in times.items() if time)
    if len(dated) < 2 or dated[0][0] == dated[1][0]:
        return None
    (_, edge, first), (_, _, second) = dated
    lasts = first.is_span and first.end == ENDLESS
    return edge if lasts or not first.overlaps(second) else None


def _candidates(
    entities: Sequence[Entity],
    relations: Sequence[Relation],
    ends: Sequence[tuple[int, int]],
    rules: Rules,
) -> Iterator[tuple[int, int]]:
    """Yield pairs that assert and deny the same, or that state two values where there is one."""
    asserted: dict[tuple[int, int, str], list[int]] = defaultdict(list)
    denied: dict[tuple[int, int, str], list[int]] = defaultdict(list)
    valued: dict[tuple[int, int, str], list[int]] = defaultdict(list)
    for edge, (relation, (head, tail)) in enumerate(zip(relations, ends, strict=True)):
        key = relation_key(relation.relation)
        plain = normalise(_NEGATED.sub("", key))
        (asserted if plain == key else denied)[head, tail, plain].append(edge)
        event = key.removesuffix(" in").removesuffix(" on")
        if key in rules.single_valued:
            valued[1, head, key].append(edge)
        elif event in rules.single_dated and is_plain_value(relation.tail):
            valued[1, head, event].append(edge)
        if key in rules.single_held:
            valued[0, tail, key].append(edge)
    for stated, edges in denied.items():
        yield from ((one, other) for one in asserted.get(stated, ()) for other in edges)
    linked = set(ends) | {(tail, head) for head, tail in ends}
    for (end, _, _), edges in valued.items():
        for pair in combinations(edges, 2):
            one, other = (ends[edge][end] for edge in pair)
            same = one == other or (one, other) in linked
            if not same and not agree(entities[one], entities[other]):
                yield pair


def agree(one: Entity, other: Entity) -> bool:
    """Return whether two values of a single-valued relation may both be right.

    They may if one is more specific ("1984" and "October 25, 1984"), if they are of different
    kinds, such as a city and its country, and if one place is known to contain the other.

    >>> agree(Entity(name="Houston"), Entity(name="Houston, Texas"))
    True
    >>> agree(Entity(name="1984"), Entity(name="October 25, 1985"))
    False
    """
    words, others = (set(normalise(value.name).split()) for value in (one, other))
    if words <= others or others <= words:
        return True
    if is_plain_value(one.name) != is_plain_value(other.name):
        return True
    kinds = {kind_of(one.type), kind_of(other.type)}
    if len(kinds) == 2 and "" not in kinds:
        return True
    places = [traits("", (f"located in {value.name}",), "").facts for value in (one, other)]
    return not places[0].isdisjoint(places[1])
