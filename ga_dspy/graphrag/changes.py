"""Change a graph where its records changed; the result is that of resolving everything again.

The names that a change concerns are followed to all names that they could match, and these are
resolved again, from their records. Then the relations of the entities that changed are.
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
"""Returns what a passage states, as the rules admit it."""
Load = Callable[[Set[str] | None], Sources]
"""Returns the records of some passages, or of all, with their rules and labels."""
TitleOf = Callable[[str, str], str]
"""Returns the shown name of a relation end, given by its name and the id of its passage."""


def admitted(load: Load) -> Records:
    """Return a function from a passage to what it states, as the rules admit it."""

    @cache
    def records(id: str) -> GraphUpdate:
        return admit(load({id}))[0]

    return records


def resolve_change(
    mentions: Mentions, was: Records, now: Records, changed: Collection[str], rules: Rules
) -> Resolved:
    """Resolve what the records of some passages change, and bring the mentions up to date.

    Args:
        mentions: The mentions of the graph.
        was: What each passage stated.
        now: What each passage states.
        changed: The passages where these differ.
        rules: The rules.
    """
    scope = _Scope(mentions, now, changed)
    keys, nodes, after = set[str](), list[Node](), list[Mention]()
    while (reached := mentions.reach(keys | scope.keys)) != keys:
        keys = reached
        records, named = scope.records_of(keys)
        nodes = resolve_entities(named, records.relations, rules.overrides)
        parts = ((node.entity.name, node.part) for node in nodes)
        after = mentions_of(parts, records.relations)
        mentions.link(after)
    before = mentions.of_keys(keys)
    mentions.replace(keys, after)
    earlier = {(one.name, one.passage): one.node for one in before if one.end}

    def title_before(name: str, id: str) -> str:
        return earlier.get((name, id)) or mentions.title(name, id)

    def places_before(head: str) -> Iterable[str]:
        own = [one.passage for one in before if one.node == head]
        return own or mentions.places(head)

    heads = {title_before(r.head, id) for id in changed for r in was(id).relations}
    heads |= {mentions.title(r.head, id) for id in changed for r in now(id).relations}
    for (name, id), title in earlier.items():
        if id not in changed and mentions.title(name, id) != title:
            stated = [r.head for r in now(id).relations if name in r.ends]
            heads |= {of(head, id) for head in stated for of in (title_before, mentions.title)}
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
    """Resolve the relations of some nodes.

    Args:
        heads: The shown names of the nodes.
        records: What each passage states.
        places: Returns the passages that mention a node.
        title: The shown names of relation ends.
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
    """The records of some names, as they are now.

    Attributes:
        keys: The keys of all names that changed passages mention or mentioned.
    """

    def __init__(self, mentions: Mentions, now: Records, changed: Collection[str]) -> None:
        self._mentions, self._now = mentions, now
        self._names = {id: _names_in(now(id)) for id in changed}
        self._split, self.keys = dict[str, Title](), set[str]()
        before = [one for id in changed for one in mentions.of_passage.get(id, ())]
        names = set(chain.from_iterable(self._names.values()))
        # What is behind a comma is a qualifier or not by the types of all records of the name.
        named = names.union(one.name for one in before)
        for name in (n for n in named if ", " in n and not split_qualifier(n).qualifier):
            possible = {identity(name), identity(name.partition(", ")[0])}
            known = [one for one in mentions.of_keys(possible) if one.name == name]
            places = sorted({one.passage for one in known}.union(changed))
            stated = (one for id in places for one in now(id).entities if one.name == name)
            self._split |= split_names([name], stated)
            self.keys |= {one.key for one in known} | {self._key_of(name)}
        self.keys |= {one.key for one in before}.union(map(self._key_of, names))

    def records_of(self, keys: Collection[str]) -> tuple[GraphUpdate, list[Reference]]:
        """Return the records of keys and of the relations with an end among them, and references.

        Args:
            keys: The keys; no name of another key has a match among them.
        """
        names, split = defaultdict[str, set[str]](set), dict(self._split)
        for id, every in self._names.items():
            names[id] = {name for name in every if self._key_of(name) in keys}
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
    """Split a name as the key of its mention says."""
    split = split_qualifier(name)
    base, _, behind = name.partition(", ")
    return split if identity(split.base) == key else Title(base, behind)
