"""Incremental resolution: resolve only what a change of records affects.

The result equals that of resolving all records again. First, all names that the names in the
changed records could match are resolved again, from their records; then the relations of the
entities that changed.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Set
from functools import cache
from itertools import chain

from ga_dspy.graph import Entity, GraphUpdate, Relation
from ga_dspy.graph.clusters import Reference, passages_of, references, split_names
from ga_dspy.graph.identity import Title, identity, split_qualifier
from ga_dspy.graphrag.mentions import Mention, Mentions, mentions_of, unused_overrides
from ga_dspy.graphrag.records import Rules, Sources
from ga_dspy.graphrag.resolution import Node, Resolved, admit, resolve_entities, resolve_relations

Records = Callable[[str], GraphUpdate]
"""Returns the records of a passage that the rules admit, given its id."""
Load = Callable[[Set[str] | None], Sources]
"""Returns the records of some passages, or of all (None), with their rules and labels."""
TitleOf = Callable[[str, str], str]
"""Returns the shown name of a relation end, given its name and the id of its passage."""


def admitted(load: Load) -> Records:
    """Return a cached function that loads the admitted records of a passage."""
    return cache(lambda id: admit(load({id}))[0])


def resolve_change(
    mentions: Mentions, was: Records, now: Records, changed: Collection[str], rules: Rules
) -> Resolved:
    """Resolve what a change of records affects, and update the mentions in place.

    Args:
        mentions: The mentions of the graph.
        was: Returns the former records of a passage.
        now: Returns the current records of a passage.
        changed: The passages whose records differ.
        rules: The rules.
    """
    scope = _Scope(mentions, now, changed)
    keys, nodes, after = set[str](), list[Node](), list[Mention]()
    # Resolved records may state new links, which reach more keys.
    while (reached := mentions.reach(keys | scope.keys)) != keys:
        keys = reached
        records, named = scope.records_of(keys)
        nodes = resolve_entities(named, records.relations, rules.overrides)
        parts = ((node.entity.name, node.part) for node in nodes)
        after = mentions_of(parts, records.relations)
        mentions.link(after)
    before = mentions.of_keys(keys)
    mentions.replace(keys, after)
    former_titles = {(one.name, one.passage): one.node for one in before if one.end}

    def title_before(name: str, id: str) -> str:
        return former_titles.get((name, id)) or mentions.title(name, id)

    def places_before(head: str) -> Iterable[str]:
        replaced = [one.passage for one in before if one.node == head]
        return replaced or mentions.places(head)

    heads = {title_before(r.head, id) for id in changed for r in was(id).relations}
    heads |= {mentions.title(r.head, id) for id in changed for r in now(id).relations}
    for (name, id), former in former_titles.items():
        if id not in changed and mentions.title(name, id) != former:
            for relation in now(id).relations:
                if name in relation.ends:
                    heads |= {title_before(relation.head, id), mentions.title(relation.head, id)}
    relations, left_out = _relations_of(heads, now, mentions.places, mentions.title, rules)
    if rules.critical:
        left_out.subtract(_relations_of(heads, was, places_before, title_before, rules)[1])
    return Resolved(
        nodes=nodes,
        relations=relations,
        mentions=after,
        unused=unused_overrides(rules.overrides, mentions.overridden()),
        left_out=left_out,
        before=before,
        heads=heads,
    )


def _relations_of(
    heads: Collection[str],
    records: Records,
    places: Callable[[str], Iterable[str]],
    title: TitleOf,
    rules: Rules,
) -> tuple[list[Relation], Counter[str]]:
    """Resolve the relations that have some nodes as their heads.

    Args:
        heads: The shown names of the nodes.
        records: Returns the records of a passage.
        places: Returns the passages that mention a node.
        title: Returns the shown name of a relation end.
        rules: The rules.
    """
    relations, node_of = [], {}
    for id in sorted({id for head in heads for id in places(head)}):
        for relation in records(id).relations:
            if title(relation.head, id) in heads:
                relations.append(relation)
                for end in relation.ends:
                    node_of[end, passages_of(relation)] = title(end, id)
    return resolve_relations(relations, node_of, rules)


class _Scope:
    """Selects the current records that a change affects.

    Attributes:
        keys: The keys of all names in the former and the current records of changed passages.
    """

    def __init__(self, mentions: Mentions, now: Records, changed: Collection[str]) -> None:
        self._mentions, self._now = mentions, now
        self._names = {id: _names_in(now(id)) for id in changed}
        self._split, self.keys = dict[str, Title](), set[str]()
        before = [one for id in changed for one in mentions.of_passage.get(id, ())]
        names = set(chain.from_iterable(self._names.values()))
        # Whether the text after a comma is a qualifier depends on all records of the name.
        named = names.union(one.name for one in before)
        for name in (n for n in named if ", " in n and not split_qualifier(n).qualifier):
            possible = {identity(name), identity(name.partition(", ")[0])}
            known = [one for one in mentions.of_keys(possible) if one.name == name]
            ids = sorted({one.passage for one in known}.union(changed))
            stated = (one for id in ids for one in now(id).entities if one.name == name)
            self._split |= split_names([name], stated)
            self.keys |= {one.key for one in known} | {self._key_of(name)}
        self.keys |= {one.key for one in before}.union(map(self._key_of, names))

    def records_of(self, keys: Collection[str]) -> tuple[GraphUpdate, list[Reference]]:
        """Return the records of the names with these keys, and the references to these names.

        Relations with one such end are included.

        Args:
            keys: The keys; they must include all linked ones.
        """
        names, split = defaultdict[str, set[str]](set), dict(self._split)
        for id, in_passage in self._names.items():
            names[id] = {name for name in in_passage if self._key_of(name) in keys}
        for one in self._mentions.of_keys(keys):
            key = self._key_of(one.name) if one.name in self._split else one.key
            if one.passage not in self._names and key in keys:
                names[one.passage].add(one.name)
                split.setdefault(one.name, _split_as(one.name, key))
        entities, relations = list[Entity](), list[Relation]()
        for id in sorted(names):
            update = self._now(id)
            entities += [one for one in update.entities if one.name in names[id]]
            relations += [one for one in update.relations if not names[id].isdisjoint(one.ends)]
        records = GraphUpdate.model_construct(entities=tuple(entities), relations=tuple(relations))
        return records, [one for one in references(records, split) if one.key in keys]

    def _key_of(self, name: str) -> str:
        return identity((self._split.get(name) or split_qualifier(name)).base)


def _names_in(update: GraphUpdate) -> set[str]:
    ends = chain.from_iterable(relation.ends for relation in update.relations)
    return {*ends, *(entity.name for entity in update.entities)}


def _split_as(name: str, key: str) -> Title:
    """Split a name into base and qualifier so that the base has this key."""
    split = split_qualifier(name)
    base, _, qualifier = name.partition(", ")
    return split if identity(split.base) == key else Title(base, qualifier)
