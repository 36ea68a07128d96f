"""The mentions of a graph, and links between names that could mean the same entity.

An update resolves again only the names that are linked to a changed one, directly or indirectly.
Names are linked if a rule of `ga_dspy.graph.clusters` could join them or tell them apart: each name
offers tokens and seeks tokens, and a name that seeks a token is linked to those that offer it.
Linked names need not match, but names that match are always linked.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from ga_dspy.graph import Relation, normalise
from ga_dspy.graph.clusters import (
    Cluster,
    alternative_keys,
    key_of,
    near_in_batch,
    passages_of,
    states_alias,
    words_and_rest,
)
from ga_dspy.graph.identity import (
    acronym_letters,
    identity,
    initials,
    split_qualifier,
    without_legal_form,
)
from ga_dspy.graph.records import grouped, united
from ga_dspy.graphrag.records import Overrides, Pair, Spelling

Link = tuple[bool | None, str, object]
"""Whether a name offers a token (True), seeks it (False) or both (None), its kind and its value."""


class Mention(NamedTuple):
    """A name in a passage.

    Attributes:
        node: The shown name of the entity.
        key: The key by which names are compared.
        name: The name.
        passage: The id of the passage.
        end: Whether it is the end of a relation, not a record of the entity.
        person: Whether the entity is a person.
        linked: Other names of the entity, as stated by the passage.
        ids: The ids of the entity, as stated by the passage.
    """

    node: str
    key: str
    name: str
    passage: str
    end: bool
    person: bool
    linked: tuple[str, ...]
    ids: tuple[str, ...]


def mentions_of(
    parts: Iterable[tuple[str, Cluster]], relations: Iterable[Relation]
) -> list[Mention]:
    """Return the mentions of entities, in the order of the entities.

    Args:
        parts: The shown name of each entity, and the references to it.
        relations: Relations that may state other names of the entities.
    """
    stated = united(
        ((end, passages_of(relation)), [other])
        for relation in relations
        if states_alias(relation.relation)
        for end, other in (relation.ends, relation.ends[::-1])
    )
    found = list[Mention]()
    for node, part in parts:
        is_person = any(one.traits.kind == "person" for one in part)
        mentions = set[Mention]()
        for one in part:
            linked = tuple(sorted({*one.aliases, *stated.get((one.name, one.passages), ())}))
            ids = tuple(sorted(f"{key}: {value}" for key, value in one.traits.ids))
            is_end = one.entity is None
            for passage in one.passages or ("",):
                mention = Mention(node, one.key, one.name, passage, is_end, is_person, linked, ids)
                mentions.add(mention)
        found += sorted(mentions)
    return found


def unused_overrides(overrides: Overrides, mentions: Iterable[Mention]) -> tuple[str, ...]:
    """Describe the overrides that did not match.

    Args:
        overrides: The overrides.
        mentions: The mentions of the resolved graph, at least all of those that overrides name.
    """
    if overrides == Overrides():
        return ()
    by_name = grouped((normalise(mention.name), mention) for mention in mentions)

    def places(spelling: Spelling) -> set[tuple[str, str, str]]:
        name, passage = normalise(spelling.name), spelling.passage
        named = (one for one in by_name.get(name, ()) if passage in ("", one.passage))
        return {(name, one.passage, one.node) for one in named}

    unused = []
    for pair in overrides.apart:
        ours, theirs = places(pair.one), places(pair.other)
        if not ours or theirs <= ours:
            unused.append(f"apart: {pair}: a name is in no record")
    for pair in overrides.same:
        ours, theirs = places(pair.one), places(pair.other)
        if not ours or not theirs:
            unused.append(f"same: {pair}: a name is in no record")
        elif len({node for *_, node in ours | theirs}) > 1:
            unused.append(f"same: {pair}: a name means several entities: give its passage")
    return tuple(sorted(unused))


class Mentions:
    """The mentions of a graph, by passage and by key, and the links between keys.

    Args:
        mentions: All mentions.
        overrides: The overrides; they link names too.
    """

    def __init__(self, mentions: Iterable[Mention], overrides: Overrides) -> None:
        self.of_passage: dict[str, list[Mention]] = defaultdict(list)
        self.passages: dict[str, set[str]] = defaultdict(set)
        self._nodes: dict[str, set[str]] = defaultdict(set)
        self._pairs: dict[str, set[Pair]] = defaultdict(set)
        for pair in (*overrides.apart, *overrides.same):
            for spelling in (pair.one, pair.other):
                self._pairs[normalise(spelling.name)].add(pair)
        self._keys: dict[Link, set[str]] = defaultdict(set)
        self._links: dict[str, set[Link]] = defaultdict(set)
        self._near: dict[object, dict[str, str]] = defaultdict(dict)
        self._add(mentions)

    def reach(self, keys: Collection[str]) -> set[str]:
        """Return these keys and all keys that are linked to them, directly or indirectly."""
        found, pending = set[str](), list(keys)
        while pending:
            key = pending.pop()
            if key not in found:
                found.add(key)
                pending += self._linked(key)
        return found

    def of_keys(self, keys: Collection[str]) -> list[Mention]:
        """Return all mentions with one of these keys."""
        ids = {id for key in keys for id in self.passages.get(key, ())}
        return [one for id in ids for one in self.of_passage[id] if one.key in keys]

    def replace(self, keys: Collection[str], mentions: Iterable[Mention]) -> None:
        """Replace all mentions with one of these keys; the keys must include all linked ones."""
        for node in {one.node for one in self.of_keys(keys)}:
            del self._nodes[node]  # all names of a node are linked
        for id in {id for key in keys for id in self.passages.pop(key, ())}:
            self.of_passage[id] = [one for one in self.of_passage[id] if one.key not in keys]
        for key in keys:
            for link in self._links.pop(key, ()):
                self._keys[link].discard(key)
            for rest, _ in words_and_rest(key):
                self._near[rest].pop(key, None)
        self._add(mentions)

    def link(self, mentions: Iterable[Mention]) -> None:
        """Add the links of mentions to those that their keys already have."""
        for key, of_key in grouped((one.key, one) for one in mentions).items():
            for link in self._links_of(key, of_key):
                self._links[key].add(link)
                self._keys[link].add(key)
            for rest, word in words_and_rest(key):
                self._near[rest][key] = word

    def overridden(self) -> list[Mention]:
        """Return all mentions whose key belongs to a name in the overrides."""
        pairs = set[Pair]().union(*self._pairs.values())
        return self.of_keys({key for pair in pairs for key in self._keys[None, "override", pair]})

    def title(self, name: str, passage: str) -> str:
        """Return the shown name of a relation end in a passage."""
        ends = (one for one in self.of_passage[passage] if one.end and one.name == name)
        return next(ends).node

    def places(self, node: str) -> set[str]:
        """Return the ids of the passages that mention a node, given by its shown name."""
        return self._nodes.get(node, set())

    def _add(self, mentions: Iterable[Mention]) -> None:
        mentions = list(mentions)
        for one in mentions:
            self.of_passage[one.passage].append(one)
            self.passages[one.key].add(one.passage)
            self._nodes[one.node].add(one.passage)
        self.link(mentions)

    def _linked(self, key: str) -> set[str]:
        found = set[str]()
        for is_offered, kind, value in self._links.get(key, ()):
            counterpart = None if is_offered is None else not is_offered
            found |= self._keys.get((counterpart, kind, value), set())
        for rest, word in words_and_rest(key):
            found |= set(near_in_batch(key, word, self._near.get(rest, {})))
        return found

    def _links_of(self, key: str, mentions: list[Mention]) -> Iterator[Link]:
        """Yield the tokens that a key offers and seeks, as in `matches` and `gather`."""
        is_long, last = " " in key, key.rpartition(" ")[2]
        yield True, "key", key
        for other in (without_legal_form(key), *alternative_keys(key)):
            yield False, "key", other
        for letters in initials(key):
            yield True, "initials", letters
        if any(one.person for one in mentions):
            yield is_long, "surname", last
        both: set[tuple[str, object]] = {("letters", key.replace(" ", ""))}
        for name in {one.name for one in mentions}:
            letters = acronym_letters(split_qualifier(name).base)
            if not is_long and len(letters) > 2:
                yield False, "initials", letters
            both |= {("name", normalise(name)), ("name", identity(name))}
            both |= {("override", pair) for pair in self._pairs.get(normalise(name), ())}
        both |= {("id", id) for one in mentions for id in one.ids}
        for alias in {alias for one in mentions for alias in one.linked}:
            both.add(("name", normalise(alias)))
            yield True, "key", key_of(alias)
            yield False, "key", key_of(alias)
        yield from ((None, kind, value) for kind, value in both)
