"""From records to a graph: entity resolution, filtering and contradictions.

The rules of `ga_dspy.graph` decide which names are the same entity, then manual overrides do. Every
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
    """An entity, the references to it, and its merged spellings with their rules and passages."""

    entity: Entity
    part: Cluster
    merged: Sequence[tuple[str, str, tuple[str, ...]]]


class Resolved(NamedTuple):
    """The nodes and edges of a graph, or of a change of it, which replaces others.

    Attributes:
        nodes: The entities, in order.
        relations: The relations between them, in order.
        mentions: The mentions of the entities; empty if some record has evidence in several
            passages or none.
        unused: Descriptions of all overrides that did not match.
        left_out: Number of relations dropped by a rule, by cause; for a change, the difference.
        before: In a change, the mentions that `mentions` replaces; `nodes` replaces their nodes.
        heads: In a change, the shown names of the nodes whose relations `relations` replaces.
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
    titles = [node.entity.name for node in nodes]
    parts = [node.part for node in nodes]
    relations, dropped = resolve_relations(records.relations, nodes_of_ends(titles, parts), rules)
    mentions = mentions_of(zip(titles, parts, strict=True), records.relations)
    unused = unused_overrides(rules.overrides, mentions)
    local = mentions if is_local(sources) else ()
    return Resolved(nodes, relations, local, unused, left_out + dropped)


def is_local(sources: Sources) -> bool:
    """Return whether every record has evidence in its own passage and in no other."""
    return all(
        passages_of(record) == {id}
        for id, update in sources.records.items()
        for _, records in update
        for record in records
    )


def resolve_entities(
    named: Sequence[Reference], relations: Sequence[Relation], overrides: Overrides
) -> list[Node]:
    """Cluster references into entities, sorted by where the corpus first states them.

    Args:
        named: All references, or all references of some names and of all names they could match.
        relations: The relations of these names.
        overrides: The overrides.
    """
    found = _matches_in_corpus(named, relations, overrides)
    parts = _with_unclear_ends(relations, _override(gather(named, found), overrides))
    every = chain(named, chain.from_iterable(parts))
    records = dict.fromkeys(one.entity for one in every if one.entity)
    order = {record: i for i, record in enumerate(records)}
    shown = map(partial(shown_entity, order), titles_of(parts), parts)
    entities = [of_part[0] for of_part in shown if of_part]
    nodes = map(Node, entities, parts, _merged_spellings(entities, parts, found, overrides))
    return sorted(nodes, key=lambda node: _sort_key(node.entity, node.entity.name))


def resolve_relations(
    relations: Iterable[Relation], node_of: Mapping[End, str], rules: Rules
) -> tuple[list[Relation], Counter[str]]:
    """Merge records of the same relation, and sort by where the corpus first states them.

    Args:
        relations: All records, or all records with some heads.
        node_of: The shown names of their ends.
        rules: The rules.

    Returns:
        The relations between different entities, and the number of dropped ones, by cause.
    """

    def is_between_two(relation: Relation) -> bool:
        # A relation of an entity with itself states an alias, which the entity already has.
        head, tail = (node_of[end, passages_of(relation)] for end in relation.ends)
        return head != tail

    def key(one: Relation) -> tuple[Any, ...]:
        return _sort_key(one, one.head, one.relation, one.tail, one.time or "")

    shown = [one for one, _ in shown_relations(filter(is_between_two, relations), node_of)]
    kept = [r for r in shown if not rules.is_critical(r.relation) or len(passages_of(r)) > 1]
    return sorted(kept, key=key), Counter({"too little evidence": len(shown) - len(kept)})


def _sort_key(record: Entity | Relation, *rest: str) -> tuple[Any, ...]:
    """Return the sort key of a record: its first evidence span, then `rest`."""
    spans = [(one.passage, one.start, one.end) for one in record.evidence[:1]]
    return (spans, *rest) if spans else (spans,)


# --- Filtering by the rules.


def admit(sources: Sources) -> tuple[GraphUpdate, Counter[str]]:
    """Return the distinct records that the rules admit, and the number of others, by cause."""
    rules, left_out = sources.rules, Counter[str]()
    updates = sources.records.values()
    entities = (_without_separated_aliases(e, rules.overrides) for u in updates for e in u.entities)
    relations = []
    for relation in dict.fromkeys(r for update in updates for r in update.relations):
        if relation.confidence is not None and relation.confidence < rules.min_confidence:
            left_out["low confidence"] += 1
        elif rules.relations is not None and relation_key(relation.relation) not in rules.relations:
            left_out["relation not allowed"] += 1
        else:
            relations.append(relation)
    distinct = tuple(dict.fromkeys(entities))
    return GraphUpdate(entities=distinct, relations=tuple(relations)), left_out


def _without_separated_aliases(entity: Entity, overrides: Overrides) -> Entity:
    """Remove from an entity the aliases that overrides assign to another one."""
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

    An acronym needs a passage that also contains the long form. If both names also occur in
    passages that do not state the match, two passages must state it.
    """
    separated = {frozenset(map(key_of, (p.one.name, p.other.name))) for p in overrides.apart}
    places = united((one.key, one.passages) for one in named)
    found = list(matches(named, relations))
    stated = united((frozenset((match.one, match.other)), match.passages) for match in found)

    def holds(match: Match) -> bool:
        keys = frozenset((match.one, match.other))
        ours, theirs, stating = places[match.one], places[match.other], stated[keys]
        if keys in separated:
            return False
        if match.rule == "acronym":
            return not ours.isdisjoint(theirs)
        if match.rule == "spelling" or len(stating) != 1:
            return True
        return ours <= stating or theirs <= stating

    return tuple(filter(holds, found))


def _override(parts: list[Cluster], overrides: Overrides) -> list[Cluster]:
    """Split and join clusters; a pair whose names are missing or ambiguous changes nothing."""
    for pair in overrides.apart:
        parts = list(chain.from_iterable(_split(part, pair) for part in parts))
    for pair in overrides.same:
        ours = [i for i, part in enumerate(parts) if _has_spelling(part, pair.one)]
        theirs = [i for i, part in enumerate(parts) if _has_spelling(part, pair.other)]
        if len(ours) == len(theirs) == 1 and ours != theirs:
            parts[ours[0]] = parts[ours[0]] + parts[theirs[0]]
            del parts[theirs[0]]
    return parts


def _split(part: Cluster, pair: Pair) -> list[Cluster]:
    """Split a cluster by a pair; its other references follow their passage, traits or name."""
    ours = [one for one in part if _is_spelled(one, pair.one)]
    others = [one for one in part if not _is_spelled(one, pair.one)]
    theirs = [one for one in others if _is_spelled(one, pair.other)]
    rest = [one for one in others if not _is_spelled(one, pair.other)]
    return attach(rest, [ours, theirs]) if ours and theirs else [part]


def _has_spelling(part: Cluster, spelling: Spelling) -> bool:
    return any(_is_spelled(reference, spelling) for reference in part)


def _is_spelled(reference: Reference, spelling: Spelling) -> bool:
    is_named = normalise(reference.name) == normalise(spelling.name)
    return is_named and (not spelling.passage or spelling.passage in reference.passages)


def _with_unclear_ends(relations: Sequence[Relation], parts: list[Cluster]) -> list[Cluster]:
    """Add an entity for every relation end that could be any of several namesakes.

    Its evidence is that of its relation.
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


def _merged_spellings(
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
    rules: dict[str, dict[str, str]] = defaultdict(dict)
    for match in found:
        rules[match.one].setdefault(match.other, match.rule)
        rules[match.other].setdefault(match.one, match.rule)
    joined = {key_of(end.name) for pair in overrides.same for end in (pair.one, pair.other)}
    for entity, part in zip(entities, parts, strict=True):
        plain, title_key = normalise(entity.name), identity(entity.name)
        others = united((one.name, one.passages) for one in part if normalise(one.name) != plain)
        keys = {one.key for one in part}
        identified = {one.name for one in part if one.traits.ids}
        merged = []
        for spelling, passages in sorted(others.items()):
            key = key_of(spelling)
            matched = [rule for other, rule in rules[key].items() if other in keys]
            if key == title_key:
                rule = "same name"
            elif title_key in rules[key]:
                rule = rules[key][title_key]
            elif matched:
                rule = matched[0]
            elif key in joined:
                rule = "override"
            else:
                rule = "same id" if spelling in identified else "surname"
            merged.append((spelling, rule, tuple(sorted(passages))))
        yield tuple(merged)


# --- Contradictions: both relations stay in the graph.

Ends = tuple[int, int]
"""The nodes at the head and the tail of an edge."""

_NEGATED: Final = re.compile(r"\b(?:not|never|no longer) ")
_VALUE_WORD: Final = re.compile(
    r"[\d.,:/%$€£°+×=-]+(?:st|nd|rd|th|s|m|km|kg|c)?|century|bc|ad|bce|ce|million|billion|thousand|"
    r"hundred|percent|years?|days?|hours?|minutes?|km|miles?|metres?|meters?|feet|kg|tons?|"
    r"one|two|three|four|five|six|seven|eight|nine|ten|early|late|mid|of|the|about|and|"
    + "|".join(MONTHS)
)


def is_plain_value(name: str) -> bool:
    """Return whether a name is a date, number or amount, which unrelated entities may share.

    >>> [is_plain_value(name) for name in ("October 25, 1984", "9.5 km", "Apollo 11")]
    [True, True, False]
    """
    has_digit = any(map(str.isdigit, name))
    return has_digit and all(map(_VALUE_WORD.fullmatch, normalise(name).split()))


def conflicts(
    relations: Sequence[Relation],
    ends: Sequence[Ends],
    entities: Callable[[int], Entity],
    linked: Container[Ends],
    rules: Rules,
) -> list[tuple[int, int, int | None]]:
    """Return the pairs of relations in conflict, with the one that the other replaced, if any.

    Two relations contradict each other if one denies the other, or if they state two values where
    only one is possible: different years, or places of which neither is known to contain the other.
    They do not if they hold at different times, or if one replaced the other.

    Args:
        relations: At least all relations whose wording `comparable` returns.
        ends: The nodes at the head and the tail of each relation.
        entities: Returns the entity of a node.
        linked: The nodes at the head and the tail of every relation of the graph.
        rules: The rules.
    """
    asserted: dict[tuple[int, int, str], list[int]] = defaultdict(list)
    denied: dict[tuple[int, int, str], list[int]] = defaultdict(list)
    single: dict[tuple[int, int, str], list[int]] = defaultdict(list)
    for edge, (relation, (head, tail)) in enumerate(zip(relations, ends, strict=True)):
        key = relation_key(relation.relation)
        positive = _positive_key(relation.relation)
        (asserted if positive == key else denied)[head, tail, positive].append(edge)
        undated = _undated_key(key)
        if key in rules.single_valued:
            single[1, head, key].append(edge)
        elif undated in rules.single_dated and is_plain_value(relation.tail):
            single[1, head, undated].append(edge)
        if key in rules.single_held:
            single[0, tail, key].append(edge)
    opposed = (product(asserted.get(stated, ()), edges) for stated, edges in denied.items())
    pairs = list(chain.from_iterable(opposed))
    for (end, _, _), edges in single.items():
        for pair in combinations(edges, 2):
            one, other = (ends[edge][end] for edge in pair)
            same = one == other or (one, other) in linked or (other, one) in linked
            if not same and not agree(entities(one), entities(other)):
                pairs.append(pair)
    return [(one, other, _replaced(relations, one, other)) for one, other in pairs]


def _replaced(relations: Sequence[Relation], one: int, other: int) -> int | None:
    """Return which of two relations the other, later one replaced; None if times do not tell."""
    times = {edge: interval_of(relations[edge].time or "") for edge in (one, other)}
    dated = sorted((time.start, edge, time) for edge, time in times.items() if time)
    if len(dated) < 2 or dated[0][0] == dated[1][0]:
        return None
    (_, edge, first), (_, _, second) = dated
    is_ongoing = first.is_span and first.end == ENDLESS
    # "2010-2015" and "since 2015": the year of the change belongs to both.
    ends_before = first.is_span and first.end[0] <= second.start[0]
    return edge if is_ongoing or ends_before or not first.overlaps(second) else None


def comparable(wordings: Iterable[str], rules: Rules) -> set[str]:
    """Return the wordings whose relations may contradict others."""
    keys = {wording: (relation_key(wording), _positive_key(wording)) for wording in wordings}
    denied = {positive for key, positive in keys.values() if positive != key}
    single = rules.single_valued | rules.single_dated | rules.single_held
    return {
        wording
        for wording, (key, positive) in keys.items()
        if positive in denied or key in single or _undated_key(key) in single
    }


@lru_cache(maxsize=65536)
def _positive_key(relation: str) -> str:
    """Return the key of a relation without its negation."""
    return normalise(_NEGATED.sub("", relation_key(relation)))


def _undated_key(key: str) -> str:
    """Return the key of a relation without the "in" or "on" of a date."""
    return key.removesuffix(" in").removesuffix(" on")


def agree(one: Entity, other: Entity) -> bool:
    """Return whether two values of a single-valued relation may both be right.

    They may if one is more specific ("1984" and "October 25, 1984"), if they are of different
    kinds, such as a city and its country, or if one place is known to contain the other.

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
