"""From records to a graph: entity resolution, filtering and contradictions.

The rules of `ga_dspy.graph` decide which names are one entity, then manual overrides. Every
decision can be undone: records never change, merges are listed with their rule, and `Overrides`
separate or join names.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from itertools import chain, combinations, product
from typing import Any, Final, NamedTuple

from ga_dspy.graph import Entity, GraphUpdate, Relation, normalise
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
from ga_dspy.graph.knowledge_graph import nodes_of_ends, shown_entity, shown_relations, titles_of
from ga_dspy.graph.records import united
from ga_dspy.graph.times import ENDLESS, interval_of
from ga_dspy.graph.traits import kind_of, traits
from ga_dspy.graphrag.mentions import Mention, mentions_of, unused_overrides
from ga_dspy.graphrag.records import Overrides, Pair, Rules, Sources, Spelling, relation_key
from ga_dspy.text import MONTHS


class Node(NamedTuple):
    """An entity, the references to it, and each spelling merged into its name with the rule."""

    entity: Entity
    part: Cluster
    merged: Sequence[tuple[str, str, tuple[str, ...]]]


class Resolved(NamedTuple):
    """The nodes and edges of a graph, or those that take the place of others.

    Attributes:
        nodes: The entities, in order.
        relations: The relations between them, in order.
        mentions: The mentions of the entities; none if a record states several passages, or none.
        unused: Descriptions of all overrides that did not match.
        left_out: Number of relations dropped by a rule, by cause; of a change, the difference.
        before: The mentions that `mentions` replace; their nodes are replaced by `nodes`.
        heads: The shown names of the nodes whose relations `relations` replace.
    """

    nodes: Sequence[Node]
    relations: Sequence[Relation]
    mentions: Sequence[Mention]
    unused: tuple[str, ...]
    left_out: Counter[str]
    before: Sequence[Mention] = ()
    heads: Collection[str] = ()


def resolve(sources: Sources) -> Resolved:
    """Resolve all records of a graph; the result does not depend on their order."""
    rules = sources.rules
    records, left_out = admit(sources)
    nodes = resolve_entities(references(records), records.relations, rules.overrides)
    node_of = nodes_of_ends([node.entity.name for node in nodes], [node.part for node in nodes])
    relations, too_few = resolve_relations(records.relations, node_of, rules)
    mentions = mentions_of(((node.entity.name, node.part) for node in nodes), records.relations)
    unused = unused_overrides(rules.overrides, mentions)
    known = mentions if is_local(sources) else ()
    return Resolved(nodes, relations, known, unused, left_out + too_few)


def is_local(sources: Sources) -> bool:
    """Return whether each record has evidence in its own passage, and in no other."""
    return all(
        passages_of(record) == {id}
        for id, update in sources.records.items()
        for _, records in update
        for record in records
    )


def resolve_entities(
    named: Sequence[Reference], relations: Sequence[Relation], overrides: Overrides
) -> list[Node]:
    """Cluster references to entities, and order these as the corpus states them.

    Args:
        named: All references, or all those of some names and of what these may match.
        relations: The relations of these names.
        overrides: The overrides of these names.
    """
    found = _matches_in_corpus(named, relations, overrides)
    parts = _with_unclear_ends(relations, _override(gather(named, found), overrides))
    stated = (one.entity for part in parts for one in part if one.entity)
    place = {entity: i for i, entity in enumerate(one.entity for one in named if one.entity)}
    place |= {entity: len(place) for entity in stated if entity not in place}
    shown = map(partial(shown_entity, place), titles_of(parts), parts)
    entities = [of_part[0] for of_part in shown if of_part]
    nodes = list(map(Node, entities, parts, _merged(entities, parts, found, overrides)))
    return sorted(nodes, key=lambda node: _place(node.entity, node.entity.name))


def resolve_relations(
    relations: Iterable[Relation], node_of: Mapping[End, str], rules: Rules
) -> tuple[list[Relation], Counter[str]]:
    """Join records of one relation, and order the relations as the corpus states them.

    Args:
        relations: All records, or all those of some heads.
        node_of: The names of their ends.
        rules: The rules.

    Returns:
        The relations between these names, and how many others were dropped, by cause.
    """

    def is_between_two(relation: Relation) -> bool:
        # A relation of an entity with itself states an alias, which the entity already has.
        head, tail = (node_of[end, passages_of(relation)] for end in relation.ends)
        return head != tail

    def place(one: Relation) -> tuple[Any, ...]:
        return _place(one, one.head, one.relation, one.tail, one.time or "")

    shown = [one for one, _ in shown_relations(filter(is_between_two, relations), node_of)]
    kept = [r for r in shown if not rules.is_critical(r.relation) or len(passages_of(r)) > 1]
    return sorted(kept, key=place), Counter({"too little evidence": len(shown) - len(kept)})


def _place(record: Entity | Relation, *rest: str) -> tuple[Any, ...]:
    """Return the place of a record in the order of a graph: where it is stated first."""
    spans = [(one.passage, one.start, one.end) for one in record.evidence[:1]]
    return (spans, *rest) if spans else (spans,)


# --- Filtering by the rules.


def admit(sources: Sources) -> tuple[GraphUpdate, Counter[str]]:
    """Return the records that the rules admit, each once, and how many others, by cause."""
    rules, left_out = sources.rules, Counter[str]()
    updates = sources.records.values()
    whole = (_without_parted_aliases(e, rules.overrides) for u in updates for e in u.entities)
    relations = []
    for relation in dict.fromkeys(r for update in updates for r in update.relations):
        if relation.confidence is not None and relation.confidence < rules.min_confidence:
            left_out["low confidence"] += 1
        elif rules.relations is not None and relation_key(relation.relation) not in rules.relations:
            left_out["relation not allowed"] += 1
        else:
            relations.append(relation)
    entities = tuple(dict.fromkeys(whole))
    return GraphUpdate(entities=entities, relations=tuple(relations)), left_out


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
    places = united((one.key, one.passages) for one in named)
    found = list(matches(named, relations))
    stated = united((frozenset((match.one, match.other)), match.passages) for match in found)

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


def _override(parts: list[Cluster], overrides: Overrides) -> list[Cluster]:
    """Split and join clusters; a pair whose names are missing or unclear changes nothing."""
    for pair in overrides.apart:
        parts = [p for part in parts for p in _split(part, pair)]
    for pair in overrides.same:
        one, other = (
            [i for i, part in enumerate(parts) if any(_is_spelled(each, end) for each in part)]
            for end in (pair.one, pair.other)
        )
        if len(one) == len(other) == 1 and one != other:
            parts[one[0]] = parts[one[0]] + parts[other[0]]
            del parts[other[0]]
    return parts


def _split(part: Cluster, pair: Pair) -> list[Cluster]:
    """Split a cluster by a pair; other references follow their passage, traits or name."""
    ours = [one for one in part if _is_spelled(one, pair.one)]
    others = [one for one in part if not _is_spelled(one, pair.one)]
    theirs = [one for one in others if _is_spelled(one, pair.other)]
    rest = [one for one in others if not _is_spelled(one, pair.other)]
    return attach(rest, [ours, theirs]) if ours and theirs else [part]


def _is_spelled(one: Reference, spelling: Spelling) -> bool:
    spelt = normalise(one.name) == normalise(spelling.name)
    return spelt and (not spelling.passage or spelling.passage in one.passages)


def _with_unclear_ends(relations: Sequence[Relation], parts: list[Cluster]) -> list[Cluster]:
    """Make an entity of every relation end that could be any of several namesakes.

    Its evidence is that of its relations.
    """
    evidence = {
        (end, passages_of(relation)): relation.evidence
        for relation in reversed(relations)
        for end in relation.ends
    }
    for part in parts:
        if not any(one.entity for one in part):
            name, spans = part[0].name, evidence[part[0].name, part[0].passages]
            part.insert(0, part[0]._replace(entity=Entity(name=name, evidence=spans)))
    return parts


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
        plain = normalise(entity.name)
        others = united((one.name, one.passages) for one in part if normalise(one.name) != plain)
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


def conflicts(
    relations: Sequence[Relation],
    ends: Sequence[Ends],
    entities: Callable[[int], Entity],
    linked: Container[Ends],
    rules: Rules,
) -> list[tuple[int, int, int | None]]:
    """Return pairs of relations in conflict, and which of the two the other one replaced.

    Two relations contradict each other if one denies the other, or if they state two values where
    there is one: different years, or places of which neither is known to contain the other. They
    do not if they are of different times, or if one replaced the other.

    Args:
        relations: The relations, all of those that `comparable` names.
        ends: The nodes of head and tail of each.
        entities: Returns the entity of a node.
        linked: The nodes of head and tail of every relation of the graph.
        rules: The rules.
    """
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
    opposed = (product(asserted.get(stated, ()), edges) for stated, edges in denied.items())
    pairs = list(chain.from_iterable(opposed))
    for (end, _, _), edges in valued.items():
        for pair in combinations(edges, 2):
            one, other = (ends[edge][end] for edge in pair)
            same = one == other or (one, other) in linked or (other, one) in linked
            if not same and not agree(entities(one), entities(other)):
                pairs.append(pair)
    return [(one, other, _earlier(relations, one, other)) for one, other in pairs]


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
