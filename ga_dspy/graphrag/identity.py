"""Who is who in a corpus: the rules of `ga_dspy.graph`, then Wikidata ids, then a person's word.

Every decision can be undone: records are never changed, merges are listed with the rule that made
them, and `Overrides` part or join names by hand.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from ga_dspy.graph import Entity, GraphUpdate, normalise
from ga_dspy.graph.names import identity, split_qualifier
from ga_dspy.graph.resolve import Cluster, Link, Mention, attach, gather, links, mentions_of
from ga_dspy.graphrag.sources import Overrides, Pair, Sources, Spelling


class Things(NamedTuple):
    """Mentions gathered by the thing meant.

    Attributes:
        parts: The mentions of each thing.
        wikidata: The id of each thing; "" where none is known.
        links: What joined names, by key.
        unused: What of the overrides fits no mention, or more than one thing, in words.
    """

    parts: list[Cluster]
    wikidata: list[str]
    links: tuple[Link, ...]
    unused: tuple[str, ...]


def gathered(said: GraphUpdate, sources: Sources) -> Things:
    """Gather all mentions; equal Wikidata ids are one thing, different ones are two."""
    overrides = sources.rules.overrides
    known = {
        (name, batch.passage): id for batch in sources.batches for name, id in batch.ids.items()
    }
    mentions = mentions_of(said)
    parted = {frozenset((_key(pair.one), _key(pair.other))) for pair in overrides.apart}
    found = tuple(
        link
        for link in _in_context(mentions, list(links(mentions, said.relations)))
        if frozenset((link.one, link.other)) not in parted
    )
    parts = gather(mentions, found)
    if known:
        parts = _by_id(parts, known)
    parts, unused = _overridden(parts, overrides)
    ids = [_ids(part, known) for part in parts]
    return Things(parts, [min(part, default="") for part in ids], found, unused)


def _in_context(mentions: Iterable[Mention], found: Iterable[Link]) -> Iterator[Link]:
    """The links that hold in a corpus, where one wrong alias would join two much-named things.

    An acronym needs a passage that holds its long form too. Where each of two names also stands
    in passages that do not say they are one, it takes two passages to say so.
    """
    places: dict[str, set[str]] = defaultdict(set)
    for one in mentions:
        places[one.key] |= one.passages
    stated: dict[frozenset[str], set[str]] = defaultdict(set)
    for link in found:
        stated[frozenset((link.one, link.other))] |= link.passages
    for link in found:
        ours, theirs = places[link.one], places[link.other]
        saying = stated[frozenset((link.one, link.other))]
        if link.rule == "acronym":
            if ours & theirs:
                yield link
        elif link.rule == "spelling" or len(saying) != 1 or not (ours - saying and theirs - saying):
            yield link


def without_parted_aliases(entity: Entity, overrides: Overrides) -> Entity:
    """The record without aliases that a person said are somebody else's."""
    others = {
        normalise(other.name)
        for pair in overrides.apart
        for one, other in ((pair.one, pair.other), (pair.other, pair.one))
        if normalise(one.name) == normalise(entity.name)
    }
    kept = tuple(alias for alias in entity.aliases if normalise(alias) not in others)
    return entity if kept == entity.aliases else entity.model_copy(update={"aliases": kept})


def _ids(part: Cluster, known: dict[tuple[str, str], str]) -> set[str]:
    return {known[place] for one in part for place in _places(one) if place in known}


def _places(one: Mention) -> list[tuple[str, str]]:
    return [(one.name, passage) for passage in one.passages or ("",)]


def _by_id(parts: list[Cluster], known: dict[tuple[str, str], str]) -> list[Cluster]:
    """Part what has different ids, then join what has the same."""
    whole = [
        p for part in parts for p in _parted(part, lambda one: min(_ids([one], known), default=""))
    ]
    joined: dict[str, Cluster] = {}
    result: list[Cluster] = []
    for part in whole:
        id = min(_ids(part, known), default="")
        if id in joined:
            joined[id] += part
        else:
            result.append(part)
            if id:
                joined[id] = part
    return result


def _parted(part: Cluster, group_of: Callable[[Mention], str]) -> list[Cluster]:
    """Split a cluster by groups; mentions of none go where passage, traits or name point."""
    groups: dict[str, Cluster] = defaultdict(list)
    for one in part:
        groups[group_of(one)].append(one)
    rest = groups.pop("", [])
    if len(groups) < 2:
        return [part]
    return attach(rest, [groups[name] for name in sorted(groups)])


def _overridden(
    parts: list[Cluster], overrides: Overrides
) -> tuple[list[Cluster], tuple[str, ...]]:
    unused: list[str] = []
    for pair in overrides.apart:
        split = [p for part in parts for p in _parted(part, partial(_side, pair))]
        named = {_side(pair, one) for part in parts for one in part}
        if not {"one", "other"} <= named:
            unused.append(f"apart: {_worded(pair)}: a name stands in no record")
        parts = split
    for pair in overrides.same:
        at = [[i for i, part in enumerate(parts) if _goes_by(part, end)] for end in
              (pair.one, pair.other)]  # fmt: skip
        if any(len(found) != 1 for found in at):
            several = "stands for several things: name a passage"
            why = several if all(at) else "stands in no record"
            unused.append(f"same: {_worded(pair)}: a name {why}")
        elif at[0] != at[1]:
            (keep,), (lose,) = at
            parts[keep] = parts[keep] + parts[lose]
            del parts[lose]
    return parts, tuple(unused)


def _side(pair: Pair, one: Mention) -> str:
    if _is(one, pair.one):
        return "one"
    return "other" if _is(one, pair.other) else ""


def _is(one: Mention, spelling: Spelling) -> bool:
    spelt = normalise(one.name) == normalise(spelling.name)
    return spelt and (not spelling.passage or spelling.passage in one.passages)


def _goes_by(part: Cluster, spelling: Spelling) -> bool:
    return any(_is(one, spelling) for one in part)


def _key(spelling: Spelling) -> str:
    return identity(split_qualifier(spelling.name).base)


def _worded(pair: Pair) -> str:
    return f"{pair.one.name!r} and {pair.other.name!r}"


class Merge(NamedTuple):
    """A spelling that was taken for another name of a thing, by which rule, and where it stands."""

    node: int
    name: str
    spelling: str
    rule: str
    passages: tuple[str, ...]


def merges(shown: Sequence[tuple[str, int]], things: Things, overrides: Overrides) -> list[Merge]:
    """Each spelling that differs from the name its thing is shown under.

    Args:
        shown: For each node the name it is shown under and its place in `things.parts`.
        things: What was gathered.
        overrides: The overrides used.
    """
    near: dict[str, list[Link]] = defaultdict(list)
    for link in things.links:
        near[link.one].append(link)
        near[link.other].append(Link(link.other, link.one, link.rule))
    joined = {_key(end) for pair in overrides.same for end in (pair.one, pair.other)}
    found: list[Merge] = []
    for node, (name, place) in enumerate(shown):
        part = things.parts[place]
        others: dict[str, set[str]] = defaultdict(set)
        for one in part:
            if normalise(one.name) != normalise(name):
                others[one.name] |= one.passages
        if others:
            rules = _rules(identity(name), {one.key for one in part}, near)
            rest = "wikidata" if things.wikidata[place] else "surname"
            for spelling, passages in sorted(others.items()):
                key = identity(split_qualifier(spelling).base)
                rule = rules.get(key) or ("override" if key in joined else rest)
                found.append(Merge(node, name, spelling, rule, tuple(sorted(passages))))
    return found


def _rules(start: str, keys: set[str], near: dict[str, list[Link]]) -> dict[str, str]:
    """The rule that brought in each key of a thing, going out from the key it is shown under."""
    reached = {start: "same name"}
    frontier: Iterable[str] = [start]
    while frontier:
        following: list[str] = []
        for key in frontier:
            for link in near.get(key, ()):
                if link.other in keys and link.other not in reached:
                    reached[link.other] = link.rule
                    following.append(link.other)
        frontier = following
    return reached
