"""From records to a graph: who is who, which relations stand, which of them disagree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ga_dspy.graph import Entity, Evidence, GraphUpdate, Relation
from ga_dspy.graph.resolve import Mention, passages_of
from ga_dspy.graph.view import View, worded
from ga_dspy.graphrag.guards import LeftOut, check, contradictions, is_backed
from ga_dspy.graphrag.identity import Merge, Things, gathered, merges, without_parted_aliases
from ga_dspy.graphrag.sources import Rules, Sources, relation_key


class Resolved(NamedTuple):
    """Things, the relations between them, and what is noted of both.

    Attributes:
        entities: The things, by node.
        relations: The relations, by edge.
        ends: The nodes of head and tail of each edge.
        wikidata: The id of each node; "" where none is known.
        critical: Whether the rules call each edge critical.
        contradicts: The edges that cannot hold beside each edge.
        merges: Spellings that were taken for another name of a thing.
        left_out: Relations that a guard kept out.
        unused: What of the overrides did not fit, in words.
    """

    entities: tuple[Entity, ...]
    relations: tuple[Relation, ...]
    ends: tuple[tuple[int, int], ...]
    wikidata: tuple[str, ...]
    critical: tuple[bool, ...]
    contradicts: tuple[tuple[int, ...], ...]
    merges: tuple[Merge, ...]
    left_out: tuple[LeftOut, ...]
    unused: tuple[str, ...]


def resolve(sources: Sources) -> Resolved:
    """Resolve all records of a graph; the result is a function of the set of them."""
    rules = sources.rules
    said, left_out = _admitted(sources)
    things = gathered(said, sources)
    said, things = _with_unclear_ends(said, things)
    part_of = {(one.name, one.passages): i for i, part in enumerate(things.parts) for one in part}
    shown = worded(_between_things(said, part_of), things.parts)
    relations, thin = _backed(shown, rules)
    row = {entity.name: i for i, entity in enumerate(shown.entities)}
    ends = tuple((row[r.head], row[r.tail]) for r in relations)
    parts = [part_of[records[0].name, passages_of(records[0])] for records in shown.entity_records]
    names = [(entity.name, part) for entity, part in zip(shown.entities, parts, strict=True)]
    return Resolved(
        entities=shown.entities,
        relations=tuple(relations),
        ends=ends,
        wikidata=tuple(things.wikidata[part] for part in parts),
        critical=tuple(_is_critical(relation, rules) for relation in relations),
        contradicts=tuple(contradictions(shown.entities, relations, ends, rules)),
        merges=tuple(merges(names, things, rules.overrides)),
        left_out=(*left_out, *thin),
        unused=things.unused,
    )


def _admitted(sources: Sources) -> tuple[GraphUpdate, list[LeftOut]]:
    """All records that the guards let in, each once."""
    rules = sources.rules
    entities = dict.fromkeys(
        without_parted_aliases(entity, rules.overrides)
        for batch in sources.batches
        for entity in batch.update.entities
    )
    stated = dict.fromkeys(r for batch in sources.batches for r in batch.update.relations)
    checked = {relation: check(relation, rules) for relation in stated}
    relations = tuple(relation for relation, fault in checked.items() if fault is None)
    faults = [fault for fault in checked.values() if fault is not None]
    return GraphUpdate(entities=tuple(entities), relations=relations), faults


def _with_unclear_ends(said: GraphUpdate, things: Things) -> tuple[GraphUpdate, Things]:
    """Make a thing of every relation end that could be several namesakes, and so is none of them.

    It rests on the evidence of its relations.
    """
    told: dict[tuple[str, frozenset[str]], tuple[Evidence, ...]] = {}
    for relation in said.relations:
        for end in (relation.head, relation.tail):
            told.setdefault((end, passages_of(relation)), relation.evidence)
    parts = [
        part if any(one.entity for one in part) else [_stated(part[0], told), *part]
        for part in things.parts
    ]
    bare = [
        part[0].entity for part, old in zip(parts, things.parts, strict=True) if part is not old
    ]
    entities = tuple(dict.fromkeys((*said.entities, *(entity for entity in bare if entity))))
    return said.model_copy(update={"entities": entities}), things._replace(parts=parts)


def _stated(
    end: Mention, told: Mapping[tuple[str, frozenset[str]], tuple[Evidence, ...]]
) -> Mention:
    return end._replace(entity=Entity(name=end.name, evidence=told[end.name, end.passages]))


def _between_things(
    said: GraphUpdate, part_of: dict[tuple[str, frozenset[str]], int]
) -> GraphUpdate:
    """Without relations of a thing with itself: they name aliases, which the thing carries."""
    kept = tuple(
        r for r in said.relations
        if part_of[r.head, passages_of(r)] != part_of[r.tail, passages_of(r)]
    )  # fmt: skip
    return said.model_copy(update={"relations": kept})


def _backed(shown: View, rules: Rules) -> tuple[Sequence[Relation], list[LeftOut]]:
    thin = [r for r in shown.relations if _is_critical(r, rules) and not is_backed(r)]
    kept = [r for r in shown.relations if not _is_critical(r, rules) or is_backed(r)]
    return kept, [LeftOut(relation, "too little evidence") for relation in thin]


def _is_critical(relation: Relation, rules: Rules) -> bool:
    return relation_key(relation.relation) in rules.critical_keys
