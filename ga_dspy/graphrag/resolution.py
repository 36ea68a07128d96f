"""From records to a graph: entity resolution, filtering and contradictions.

The rules of `ga_dspy.graph` decide which names are one entity, then manual overrides. Every
decision can be undone: records never change, merges are listed with their rule, and `Overrides`
separate or join names.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from itertools import combinations
from typing import Any, Final, NamedTuple

from ga_dspy.graph import Entity, Evidence, GraphUpdate, Relation, normalise
from ga_dspy.graph.clusters import (
    Cluster,
    End,
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
from ga_dspy.graph.knowledge_graph import (
    nodes_of_ends,
    shown_entity,
    shown_relations,
    titles_of,
)
from ga_dspy.graph.times import ENDLESS, interval_of
from ga_dspy.graph.traits import kind_of, traits
from ga_dspy.graphrag.mentions import Mention, mentions_of
from ga_dspy.graphrag.records import Batch, Overrides, Pair, Rules, Sources, Spelling, relation_key
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


class Node(NamedTuple):
    """An entity, the references to it, and each spelling merged into its name with the rule."""

    entity: Entity
    part: Cluster
    merged: tuple[tuple[str, str, tuple[str, ...]], ...]


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
        mentions: The mentions of the nodes; none if a record states several passages, or none.
    """

    entities: tuple[Entity, ...]
    relations: tuple[Relation, ...]
    ends: tuple[tuple[int, int], ...]
    flags: tuple[Flags, ...]
    merges: tuple[Merge, ...]
    left_out: tuple[str, ...]
    unused: tuple[str, ...]
    mentions: tuple[Mention, ...] = ()


def resolve(sources: Sources, *, latest: bool = False) -> Resolved:
    """Resolve all records of a graph; the result does not depend on their order.

    Args:
        sources: The records and rules.
        latest: Drop what a later value of a single-valued relation has replaced.
    """
    rules = sources.rules
    records, left_out = admit((batch.update for batch in sources.batches), rules)
    named = references(records)
    nodes, unused = resolve_entities(named, records.relations, rules.overrides)
    node_of = nodes_of_ends([node.entity.name for node in nodes], [node.part for node in nodes])
    relations, too_few = resolve_relations(records.relations, node_of, rules)
    left_out += too_few
    entities = tuple(node.entity for node in nodes)
    row = {entity.name: i for i, entity in enumerate(entities)}
    ends = [(row[r.head], row[r.tail]) for r in relations]
    if latest:
        gone = _replaced(entities.__getitem__, relations, ends, rules)
        relations = [relation for j, relation in enumerate(relations) if j not in gone]
        ends = [pair for j, pair in enumerate(ends) if j not in gone]
        left_out += ["replaced by a later one"] * len(gone)
    against = contradictions(entities.__getitem__, relations, ends, set(ends), rules)
    mentions = mentions_of(((n.entity.name, n.part) for n in nodes), records.relations)
    return Resolved(
        entities=entities,
        relations=tuple(relations),
        ends=tuple(ends),
        flags=tuple(
            Flags(rules.is_critical(relation.relation), others)
            for relation, others in zip(relations, against, strict=True)
        ),
        merges=tuple(
            Merge(i, node.entity.name, *one) for i, node in enumerate(nodes) for one in node.merged
        ),
        left_out=tuple(left_out),
        unused=tuple(sorted(unused.values())),
        mentions=tuple(mentions) if is_local(sources.batches) else (),
    )


def is_local(batches: Iterable[Batch]) -> bool:
    """Return whether each record has evidence in its own passage, and in no other."""
    return all(
        evidence and {one.passage for one in evidence} == {batch.passage}
        for batch in batches
        for evidence in (
            *(entity.evidence for entity in batch.update.entities),
            *(relation.evidence for relation in batch.update.relations),
        )
    )


def resolve_entities(
    named: Sequence[Reference], relations: Sequence[Relation], overrides: Overrides
) -> tuple[list[Node], dict[Pair, str]]:
    """Cluster references to entities, and order these as the corpus states them.

    Args:
        named: All references, or all those of some names and of what these may match.
        relations: The relations of these names.
        overrides: The overrides of these names.

    Returns:
        The entities, and descriptions of the overrides that did not match.
    """
    found = _matches_in_corpus(named, relations, overrides)
    parts, unused = _override(gather(named, found), overrides)
    parts = _with_unclear_ends(relations, parts)
    stated = (one.entity for part in parts for one in part if one.entity)
    place = {entity: i for i, entity in enumerate(one.entity for one in named if one.entity)}
    place |= {entity: len(place) for entity in stated if entity not in place}
    shown = map(partial(shown_entity, place), titles_of(parts), parts)
    entities = [of_part[0] for of_part in shown if of_part]
    merged = _merged(entities, parts, found, overrides)
    nodes = list(map(Node, entities, parts, merged))
    return sorted(nodes, key=lambda node: place_of_entity(node.entity)), unused


def resolve_relations(
    relations: Iterable[Relation], node_of: Mapping[End, str], rules: Rules
) -> tuple[list[Relation], list[str]]:
    """Join records of one relation, and order the relations as the corpus states them.

    Args:
        relations: All records, or all those of some heads.
        node_of: The names of their ends.
        rules: The rules.

    Returns:
        The relations between these names, and why others were dropped.
    """

    def is_between_two(relation: Relation) -> bool:
        # A relation of an entity with itself states an alias, which the entity already has.
        head, tail = (node_of[end, passages_of(relation)] for end in relation.ends)
        return head != tail

    shown = [one for one, _ in shown_relations(filter(is_between_two, relations), node_of)]
    kept = [r for r in shown if not rules.is_critical(r.relation) or len(passages_of(r)) > 1]
    return sorted(kept, key=place_of_relation), ["too little evidence"] * (len(shown) - len(kept))


def place_of_entity(entity: Entity) -> tuple[Any, ...]:
    """Return the place of an entity in the order of a graph: where it is stated first."""
    first = entity.evidence[:1]
    return (*_span(first[0]), entity.name) if first else ("", 0, 0, "")


def place_of_relation(relation: Relation) -> tuple[Any, ...]:
    """Return the place of a relation in the order of a graph: where it is stated first."""
    first = relation.evidence[:1]
    stated = (relation.head, relation.relation, relation.tail, relation.time or "")
    return (*_span(first[0]), *stated) if first else ("", 0, 0, *[""] * 4)


def _span(evidence: Evidence) -> tuple[str, int, int]:
    return evidence.passage, evidence.start, evidence.end


# --- Filtering by the rules.


def admit(read: Iterable[GraphUpdate], rules: Rules) -> tuple[GraphUpdate, list[str]]:
    """Return the records that the rules admit, each once, and why the others were dropped."""
    updates = list(read)
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
    named: Sequence[Reference], relations: Iterable[Relation], overrides: Overrides
) -> tuple[Match, ...]:
    """Return the matches that hold in a corpus, where one wrong alias would join large entities.

    An acronym needs a passage that contains its long form too. If both names also occur in
    passages that do not state the match, two passages must state it.
    """
    parted = {frozenset(map(key_of, (p.one.name, p.other.name))) for p in overrides.apart}
    places: dict[str, set[str]] = defaultdict(set)
    for one in named:
        places[one.key] |= one.passages
    found = list(matches(named, relations))
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


def _override(parts: list[Cluster], overrides: Overrides) -> tuple[list[Cluster], dict[Pair, str]]:
    """Apply overrides to clusters; return also descriptions of those that did not match."""
    unused: dict[Pair, str] = {}
    for pair in overrides.apart:
        sides = {_side(pair, one) for part in parts for one in part}
        if not {"one", "other"} <= sides:
            unused[pair] = f"apart: {in_words(pair)}: a name is in no record"
        parts = [p for part in parts for p in _split(part, pair)]
    for pair in overrides.same:
        at = [
            [i for i, part in enumerate(parts) if any(_is_spelled(one, end) for one in part)]
            for end in (pair.one, pair.other)
        ]
        if any(len(places) != 1 for places in at):
            several = "means several entities: give its passage"
            why = several if all(at) else "is in no record"
            unused[pair] = f"same: {in_words(pair)}: a name {why}"
        elif at[0] != at[1]:
            (keep,), (lose,) = at
            parts[keep] = parts[keep] + parts[lose]
            del parts[lose]
    return parts, unused


def _side(pair: Pair, one: Reference) -> str:
    if _is_spelled(one, pair.one):
        return "one"
    return "other" if _is_spelled(one, pair.other) else ""


def _is_spelled(one: Reference, spelling: Spelling) -> bool:
    spelt = normalise(one.name) == normalise(spelling.name)
    return spelt and (not spelling.passage or spelling.passage in one.passages)


def in_words(pair: Pair) -> str:
    """Return a pair of names as text."""
    return f"{pair.one.name!r} and {pair.other.name!r}"


def _with_unclear_ends(relations: Sequence[Relation], parts: list[Cluster]) -> list[Cluster]:
    """Make an entity of every relation end that could be any of several namesakes.

    Its evidence is that of its relations.
    """
    evidence = {
        (end, passages_of(relation)): relation.evidence
        for relation in reversed(relations)
        for end in relation.ends
    }

    def with_entity(part: Cluster) -> Cluster:
        first = part[0]
        if any(one.entity for one in part):
            return part
        entity = Entity(name=first.name, evidence=evidence[first.name, first.passages])
        return [first._replace(entity=entity), *part]

    return list(map(with_entity, parts))


def _merged(
    entities: Sequence[Entity],
    parts: Sequence[Cluster],
    found: Iterable[Match],
    overrides: Overrides,
) -> Iterator[tuple[tuple[str, str, tuple[str, ...]], ...]]:
    """Yield for each entity the spellings that differ from its name, with rule and passages.

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
    for entity, part in zip(entities, parts, strict=True):
        others: dict[str, set[str]] = defaultdict(set)
        for one in part:
            if normalise(one.name) != normalise(entity.name):
                others[one.name] |= one.passages
        own, keys, merged = identity(entity.name), {one.key for one in part}, []
        identified = {one.name for one in part if one.traits.ids}
        for spelling, passages in sorted(others.items()):
            key = key_of(spelling)
            rules = (rule for other, rule in near[key].items() if other in keys)
            other = "same id" if spelling in identified else "surname"
            by_hand = "override" if key in joined else other
            rule = "same name" if key == own else near[key].get(own) or next(rules, by_hand)
            merged.append((spelling, rule, tuple(sorted(passages))))
        yield tuple(merged)


# --- Contradictions: both relations are kept.

Ends = tuple[int, int]
"""The nodes of the head and the tail of an edge."""

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


def contradictions(
    entities: Callable[[int], Entity],
    relations: Sequence[Relation],
    ends: Sequence[Ends],
    linked: Container[Ends],
    rules: Rules,
) -> list[tuple[int, ...]]:
    """Return for each relation the relations that contradict it.

    Two relations contradict each other if one denies the other, or if they state two values where
    there is one: different years, or places of which neither is known to contain the other. They
    do not if they are of different times, or if one replaced the other.

    Args:
        entities: Returns the entity of a node.
        relations: The relations, all of those that `comparable` names.
        ends: The nodes of head and tail of each.
        linked: The nodes of head and tail of every relation of the graph.
        rules: The rules.
    """
    against: list[set[int]] = [set() for _ in relations]
    for one, other in _candidates(entities, relations, ends, linked, rules):
        if _earlier(relations, one, other) is None:
            against[one].add(other)
            against[other].add(one)
    return [tuple(sorted(edges)) for edges in against]


def comparable(wordings: Iterable[str], rules: Rules) -> set[str]:
    """Return the wordings whose relations may contradict others."""
    every = {wording: (relation_key(wording), _asserted(wording)) for wording in wordings}
    denied = {plain for key, plain in every.values() if plain != key}
    single = rules.single_valued | rules.single_dated | rules.single_held
    return {
        wording
        for wording, (key, plain) in every.items()
        if plain in denied or key in single or _event(key) in single
    }


def _replaced(
    entities: Callable[[int], Entity],
    relations: Sequence[Relation],
    ends: Sequence[Ends],
    rules: Rules,
) -> set[int]:
    """Return the relations that a later value of a single-valued relation has replaced."""
    pairs = _candidates(entities, relations, ends, set(ends), rules)
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
    # "2010-2015" and "since 2015": the year of the change belongs to both.
    ends_before = first.is_span and first.end[0] <= second.start[0]
    return edge if lasts or ends_before or not first.overlaps(second) else None


def _candidates(
    entities: Callable[[int], Entity],
    relations: Sequence[Relation],
    ends: Sequence[Ends],
    linked: Container[Ends],
    rules: Rules,
) -> Iterator[tuple[int, int]]:
    """Yield pairs that assert and deny the same, or that state two values where there is one."""
    asserted: dict[tuple[int, int, str], list[int]] = defaultdict(list)
    denied: dict[tuple[int, int, str], list[int]] = defaultdict(list)
    valued: dict[tuple[int, int, str], list[int]] = defaultdict(list)
    for edge, (relation, (head, tail)) in enumerate(zip(relations, ends, strict=True)):
        key = relation_key(relation.relation)
        plain = _asserted(relation.relation)
        (asserted if plain == key else denied)[head, tail, plain].append(edge)
        event = _event(key)
        if key in rules.single_valued:
            valued[1, head, key].append(edge)
        elif event in rules.single_dated and is_plain_value(relation.tail):
            valued[1, head, event].append(edge)
        if key in rules.single_held:
            valued[0, tail, key].append(edge)
    for stated, edges in denied.items():
        yield from ((one, other) for one in asserted.get(stated, ()) for other in edges)
    for (end, _, _), edges in valued.items():
        for pair in combinations(edges, 2):
            one, other = (ends[edge][end] for edge in pair)
            same = one == other or (one, other) in linked or (other, one) in linked
            if not same and not agree(entities(one), entities(other)):
                yield pair


@lru_cache(maxsize=65536)
def _asserted(relation: str) -> str:
    """Return the key of a relation without its negation."""
    return normalise(_NEGATED.sub("", relation_key(relation)))


def _event(key: str) -> str:
    """Return the key of a relation without the "in" or "on" of a date."""
    return key.removesuffix(" in").removesuffix(" on")


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
