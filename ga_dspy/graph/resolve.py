"""From what was said to what is meant: which records and relation ends are one thing.

The result is a function of the set of records, so the order in which they came cannot matter
for who is who; it decides the order of display alone. Names that mean the same make a block; a
block whose records contradict each other is divided among the namesakes, relation ends by the
passages they share with them; last, a lone surname joins the one person who bears it in the
same passage. `ga_dspy.graph.view` words the outcome.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations
from typing import NamedTuple

from ga_dspy.graph.kinds import Traits, contradict, traits
from ga_dspy.graph.names import (
    LONG_WORD,
    acronym_letters,
    identity,
    initials,
    is_acronym,
    is_alias_relation,
    near_duplicate,
    shortened,
    split_qualifier,
    words,
)
from ga_dspy.graph.records import Entity, GraphUpdate, Relation


class Mention(NamedTuple):
    """The name of one record or of one relation end, and what tells it from namesakes."""

    name: str
    key: str
    aliases: tuple[str, ...]
    traits: Traits
    passages: frozenset[str]
    entity: Entity | None


Cluster = list[Mention]

_FEW = 12
"""Up to so many names all pairs are compared; it is the quicker way."""


def mention(name: str, passages: frozenset[str], entity: Entity | None = None) -> Mention:
    """Read a name; parentheses that hold its acronym are an alias, any other a qualifier."""
    base, qualifier = split_qualifier(name)
    aliases = entity.aliases if entity else ()
    if qualifier and is_acronym(qualifier, base):
        aliases, qualifier = (*aliases, qualifier), ""
    stated = (entity.type, entity.attributes) if entity else ("", ())
    keys = tuple(identity(alias) for alias in aliases)
    return Mention(name, identity(base), keys, traits(*stated, qualifier), passages, entity)


def passages_of(record: Entity | Relation) -> frozenset[str]:
    """Ids of the passages that state a record."""
    return frozenset(evidence.passage for evidence in record.evidence)


class Link(NamedTuple):
    """Two keys of one thing, the rule that says so, and the passages that do, where any does."""

    one: str
    other: str
    rule: str
    passages: frozenset[str] = frozenset()


def clusters(said: GraphUpdate) -> list[Cluster]:
    """Gather all mentions of a set of records into one cluster for each thing meant."""
    mentions = mentions_of(said)
    return gather(mentions, links(mentions, said.relations))


def mentions_of(said: GraphUpdate) -> list[Mention]:
    """The name of each record and of each relation end."""
    mentions = [mention(e.name, passages_of(e), e) for e in said.entities]
    ends = {
        (end, passages_of(relation)): None
        for relation in said.relations
        for end in (relation.head, relation.tail)
    }
    return mentions + [mention(name, passages) for name, passages in ends]


def gather(mentions: Sequence[Mention], linked: Iterable[Link]) -> list[Cluster]:
    """One cluster for each thing that mentions mean, where these links join their names."""
    block_of = _linked(mentions, linked)
    blocks: dict[str, Cluster] = defaultdict(list)
    for one in mentions:
        blocks[block_of[one.key]].append(one)
    return _join_surnames([part for block in blocks.values() for part in _divide(block)])


def _linked(mentions: Sequence[Mention], linked: Iterable[Link]) -> dict[str, str]:
    """The block of each key, named by the least key in it."""
    block = {key: key for one in mentions for key in (one.key, *one.aliases)}
    members = {key: [key] for key in block}
    for one, other, *_ in linked:
        keep, lose = sorted((block[one], block[other]))
        if keep != lose:
            for key in members[lose]:
                block[key] = keep
            members[keep] += members.pop(lose)
    return block


def links(mentions: Sequence[Mention], relations: Iterable[Relation]) -> Iterator[Link]:
    """What joins the names of mentions; a link may be given several times."""
    for one in mentions:
        yield from (Link(one.key, alias, "stated alias", one.passages) for alias in one.aliases)
    for relation in relations:
        if is_alias_relation(relation.relation):
            ends = identity(relation.head), identity(relation.tail)
            yield Link(*ends, "alias relation", passages_of(relation))
    stated = {one.key for one in mentions if one.entity}
    yield from (Link(*pair, "acronym") for pair in _acronyms(mentions, stated))
    for key, other in _alike({one.key for one in mentions}):
        if (key in stated or other in stated) and near_duplicate(key, other):
            yield Link(key, other, "spelling")


def _acronyms(mentions: Iterable[Mention], stated: set[str]) -> Iterator[tuple[str, str]]:
    """Each acronym with its expansion, where only one of the stated names expands it."""
    expansions: dict[str, list[str]] = defaultdict(list)
    for name in stated:
        for letters in initials(name):
            expansions[letters].append(name)
    for short, key in {(one.name, one.key) for one in mentions if " " not in one.key}:
        fitting = expansions.get(acronym_letters(short), ())
        if len(fitting) == 1:
            yield key, fitting[0]


def _alike(keys: set[str]) -> Iterator[tuple[str, str]]:
    """Pairs among which are all near duplicates.

    They agree in all letters, or in all words but one, and those two words begin alike. Words
    are compared on a shelf of names that share the rest, by what is left of them when letters
    are left out, so that a shelf of ten thousand names costs no more than its size.
    """
    shelves: dict[object, list[tuple[str, str]]] = defaultdict(list)
    letters: dict[str, list[str]] = defaultdict(list)
    for key in sorted(keys):
        parts = words(key)
        letters[key.replace(" ", "")].append(key)
        for i, part in enumerate(parts):
            rest = (parts[:i], parts[i + 1 :]) if len(parts) > 1 else part[:1]
            shelves[rest].append((part, key))
    for same in letters.values():
        yield from combinations(same, 2)
    for shelf in shelves.values():
        if len(shelf) > 1:
            yield from _alike_in_one_word(shelf)


def _alike_in_one_word(shelf: Sequence[tuple[str, str]]) -> Iterable[tuple[str, str]]:
    """Pairs of names, given with their words that may differ, whose words are alike."""
    if len(shelf) <= _FEW:
        return combinations((key for _, key in shelf), 2)
    near: dict[str, list[str]] = defaultdict(list)
    initial: dict[str, list[str]] = defaultdict(list)
    for word, key in shelf:
        initial[word[:1]].append(key)
        for rest in shortened(word):
            near[rest].append(key)
    pairs = {pair for same in near.values() for pair in combinations(same, 2)}
    long = [(word, key) for word, key in shelf if len(word) > LONG_WORD]
    pairs |= {(key, other) for _, key in long for _, other in shelf if key != other}
    short = [(word, key) for word, key in shelf if len(word) == 1]
    pairs |= {(key, other) for word, key in short for other in initial[word] if key != other}
    return pairs


def _divide(block: Cluster) -> list[Cluster]:
    """Split a block into namesakes; mentions that fit several of them stay by themselves."""
    kinds = sorted({one.traits for one in block}, key=_rank)
    apart = [one for one in kinds if any(contradict(one, other) for other in kinds)]
    if not apart:
        return [block]
    groups: list[list[Traits]] = []
    for one in apart:
        fitting = [group for group in groups if _fits(one, group)]
        if fitting:
            max(fitting, key=lambda group: _shared(one, group)).append(one)
        else:
            groups.append([one])
    parts = [[one for one in block if one.traits in group] for group in groups]
    rest = [one for one in block if one.traits not in apart]
    return attach(rest, parts)


def _rank(one: Traits) -> tuple[object, ...]:
    return (-len(one.facts), one.kind, one.qualifier, sorted(one.facts))


def _fits(one: Traits, group: Sequence[Traits]) -> bool:
    return _shared(one, group) > 0 and not any(contradict(one, other) for other in group)


def _shared(one: Traits, group: Sequence[Traits]) -> int:
    facts = {fact for other in group for fact in other.facts}
    return len(one.facts & facts) + any(one.kind == other.kind != "" for other in group)


def attach(rest: Cluster, parts: list[Cluster]) -> list[Cluster]:
    """Give each of the rest to the only namesake that its passage, its traits or its name fit."""
    before = [list(part) for part in parts]
    unclear: dict[str, Cluster] = defaultdict(list)
    for one in rest:
        for fits in (_same_passage, _same_traits, _same_name):
            fitting = [part for part, old in zip(parts, before, strict=True) if fits(one, old)]
            if len(fitting) == 1:
                fitting[0].append(one)
                break
        else:
            unclear[one.key].append(one)
    return parts + list(unclear.values())


def _same_passage(one: Mention, part: Cluster) -> bool:
    return any(one.passages & other.passages and one.key == other.key for other in part)


def _same_traits(one: Mention, part: Cluster) -> bool:
    return _shared(one.traits, [other.traits for other in part]) > 0


def _same_name(one: Mention, part: Cluster) -> bool:
    return any(one.key == other.key for other in part)


def _join_surnames(parts: list[Cluster]) -> list[Cluster]:
    """Merge a person known by surname alone into the only bearer of it in a shared passage."""
    bearers: dict[str, list[int]] = defaultdict(list)
    for i, part in enumerate(parts):
        if _is_person(part):
            surnames = {one.key.split()[-1] for one in part if one.entity and " " in one.key}
            for surname in surnames:
                bearers[surname].append(i)
    joined: dict[int, int] = {}
    for i, part in enumerate(parts):
        if _is_person(part) and all(" " not in one.key for one in part):
            bearing = {j for one in part for j in bearers.get(one.key, ())}
            near = [j for j in bearing if _share_passage(part, parts[j])]
            if len(near) == 1 and not _clash(part, parts[near[0]]):
                joined[i] = near[0]
    for i, j in joined.items():
        parts[j] = parts[j] + parts[i]
    return [part for i, part in enumerate(parts) if i not in joined]


def _is_person(part: Cluster) -> bool:
    return any(one.traits.kind == "person" for one in part)


def _share_passage(one: Cluster, other: Cluster) -> bool:
    theirs = {passage for each in other for passage in each.passages}
    return any(each.passages & theirs for each in one)


def _clash(one: Cluster, other: Cluster) -> bool:
    return any(contradict(a.traits, b.traits) for a in one for b in other)
