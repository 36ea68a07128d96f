"""The words for what was resolved: one name for each thing, and relations between those names."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from itertools import count
from typing import NamedTuple

from ga_dspy.graph.kinds import contradict, traits
from ga_dspy.graph.names import normalise, plain_relation, split_qualifier
from ga_dspy.graph.records import Entity, GraphUpdate, Relation
from ga_dspy.graph.resolve import Cluster, clusters, passages_of


class View(NamedTuple):
    """Entities and relations as they are shown, and the records that each was made of."""

    entities: tuple[Entity, ...]
    relations: tuple[Relation, ...]
    entity_records: tuple[tuple[Entity, ...], ...]
    relation_records: tuple[tuple[Relation, ...], ...]


def view(said: GraphUpdate) -> View:
    """Resolve a set of records and word the result."""
    return worded(said, clusters(said))


def worded(said: GraphUpdate, parts: list[Cluster]) -> View:
    """Word records that were gathered into one cluster for each thing meant."""
    titles = _titles(parts)
    place = {record: i for i, record in enumerate(said.entities)}
    node: dict[tuple[str, frozenset[str]], str] = {}
    entities: list[tuple[Entity, ...]] = []
    for title, part in zip(titles, parts, strict=True):
        node |= {(one.name, one.passages): title for one in part if one.entity is None}
        records = sorted((one.entity for one in part if one.entity), key=place.__getitem__)
        if records:
            entities.append((_entity(title, records, part), *records))
    entities.sort(key=lambda shown: place[shown[1]])
    relations = [(_relation(*ends, records), *records) for ends, records in _same(said, node)]
    return View(
        tuple(shown[0] for shown in entities),
        tuple(shown[0] for shown in relations),
        tuple(shown[1:] for shown in entities),
        tuple(shown[1:] for shown in relations),
    )


def _titles(parts: list[Cluster]) -> list[str]:
    """One name for each cluster, no two alike; namesakes get a qualifier in parentheses."""
    names = [_name(part) for part in parts]
    namesakes: dict[str, list[int]] = defaultdict(list)
    for i, name in enumerate(names):
        namesakes[normalise(name)].append(i)
    taken = {plain for plain, group in namesakes.items() if len(group) == 1}
    for group in (group for group in namesakes.values() if len(group) > 1):
        ranked = sorted(group, key=lambda i: (_details(parts[i]), _sources(parts[i])))
        for i in ranked:
            others = [parts[j] for j in group if j != i]
            names[i] = _untaken(names[i], _qualifier(parts[i], others), taken)
    return names


def _name(part: Cluster) -> str:
    """The best supported name of a thing; of several the longest, and never an acronym."""
    support: Counter[str] = Counter()
    for one in part:
        support[one.name] += max(1, len(one.passages))
    stated = {one.name for one in part if one.entity} or set(support)
    return max(stated, key=lambda name: _preference(name, support[name]))


def _preference(name: str, support: int) -> tuple[bool, int, bool, int, str]:
    return (not name.isupper(), support, not name.islower(), len(name), name)


def _qualifier(part: Cluster, namesakes: list[Cluster]) -> str:
    """The shortest statement about a thing that contradicts each namesake about which much is said.

    All statements together, where no single one does.
    """
    known = [[one.traits for one in other if any(one.traits)] for other in namesakes]
    details = _details(part)
    for text in details:
        ours = traits("", (), text)
        if any(known) and all(any(contradict(ours, t) for t in other) for other in known if other):
            return text
    return "; ".join(details)


def _details(part: Cluster) -> list[str]:
    records = [one.entity for one in part if one.entity]
    qualifiers = {split_qualifier(one.name).qualifier for one in part}
    stated = {*qualifiers, *(e.type for e in records), *(a for e in records for a in e.attributes)}
    texts = {text.replace("(", "").replace(")", "") for text in stated - {""}}
    return sorted(texts, key=lambda text: (len(text), text))


def _sources(part: Cluster) -> list[tuple[str, list[str]]]:
    return sorted((one.name, sorted(one.passages)) for one in part)


def _untaken(name: str, qualifier: str, taken: set[str]) -> str:
    base = split_qualifier(name).base
    wanted = (f"{qualifier} {n}".strip() if n > 1 else qualifier for n in count(1))
    titles = (f"{base} ({text})" if text else base for text in wanted)
    title = next(title for title in titles if normalise(title) not in taken)
    taken.add(normalise(title))
    return title


def _entity(title: str, records: list[Entity], part: Cluster) -> Entity:
    kind = _type(records)
    attributes = [a for e in records for a in e.attributes] + [e.type for e in records]
    aliases = [a for e in records for a in e.aliases] + [one.name for one in part]
    return Entity(
        name=title,
        type=kind,
        attributes=_each_once(attributes, besides=(kind,)),
        aliases=_each_once(aliases, besides=(title, split_qualifier(title).base)),
        evidence=tuple(dict.fromkeys(e for record in records for e in record.evidence)),
    )


def _type(records: Iterable[Entity]) -> str:
    """The type that most records state; of several the longest."""
    stated = Counter(record.type for record in records if record.type)
    return max(stated, key=lambda text: (stated[text], len(text), text), default="")


def _each_once(texts: Iterable[str], besides: Iterable[str]) -> tuple[str, ...]:
    """One wording of each text in first-seen order; which one does not hang on the order."""
    wordings: dict[str, list[str]] = defaultdict(list)
    for text in texts:
        wordings[normalise(text)].append(text)
    for text in besides:
        wordings.pop(normalise(text), None)
    return tuple(min(same) for plain, same in wordings.items() if plain)


def _same(
    said: GraphUpdate, node: dict[tuple[str, frozenset[str]], str]
) -> Iterator[tuple[tuple[str, str], list[Relation]]]:
    """The records of each triple and time; a relation of a thing with itself says nothing."""
    same: dict[tuple[str, str, str], list[Relation]] = defaultdict(list)
    for relation in said.relations:
        head, tail = (node[end, passages_of(relation)] for end in (relation.head, relation.tail))
        if head == tail:
            tail = relation.tail
        if normalise(head) != normalise(tail):
            same[head, plain_relation(relation.relation), tail].append(relation)
    for (head, _, tail), records in same.items():
        times = {normalise(record.time) for record in records if record.time}
        for group in [records] if len(times) < 2 else _by_time(records):
            yield (head, tail), group


def _by_time(records: Iterable[Relation]) -> Iterable[list[Relation]]:
    groups: dict[str, list[Relation]] = defaultdict(list)
    for record in records:
        groups[normalise(record.time or "")].append(record)
    return groups.values()


def _relation(head: str, tail: str, records: list[Relation]) -> Relation:
    wordings = Counter(record.relation for record in records)
    return Relation(
        head=head,
        relation=max(wordings, key=lambda text: (wordings[text], -len(text), text)),
        tail=tail,
        time=min((record.time for record in records if record.time), default=None),
        confidence=max((r.confidence for r in records if r.confidence is not None), default=None),
        evidence=tuple(dict.fromkeys(e for record in records for e in record.evidence)),
    )
