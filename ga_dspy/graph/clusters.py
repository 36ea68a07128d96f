"""Clusters: which records and relation ends of a graph mean one entity."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Final, NamedTuple

from ga_dspy import lexicon
from ga_dspy.graph.identity import (
    LEGAL,
    LONG_WORD,
    TITLES,
    Title,
    acronym_letters,
    identity,
    initials,
    is_acronym,
    is_nickname,
    near_duplicate,
    says_same,
    shortenings,
    split_qualifier,
    without_legal_form,
    words_in_digits,
)
from ga_dspy.graph.records import Entity, GraphUpdate, Relation
from ga_dspy.graph.traits import (
    Traits,
    contradict,
    facts_of_ends,
    is_known_place,
    is_place,
    is_placed_kind,
    kind_of,
    pooled,
    shared,
    telling,
    traits,
    with_facts,
)
from ga_dspy.text import normalise

if TYPE_CHECKING:
    from networkx.utils import UnionFind

# --- Entities: which records and relation ends mean one
#
# The result is a function of the set of records, so the order in which they came cannot matter
# for who is who; it decides the order of display alone. Names that mean the same make a block; a
# block whose records contradict each other is divided among the namesakes, relation ends by the
# passages they share with them; last, a lone surname joins the one person who bears it in the
# same passage. `ga_dspy.graph.knowledge_graph` gives each cluster its name.


_ALIAS_RELATION: Final = re.compile(
    r"(?:(?:is|was|also|better|commonly|professionally|formerly|previously|sometimes|originally|an?|"
    r"another|the) )*"
    r"(?:known(?: \w+)? as|aka|a k a|nee|born as|alias|nickname(?:d)?|stage name|pen name|"
    r"birth name|real name|full name|abbreviat(?:ed as|ion)|acronym|(?:other )?name|called|"
    r"spell(?:ed|ing)(?: as)?)(?: (?P<reversed>of|for)| is)?"
)


class Reference(NamedTuple):
    """The name of one record or of one relation end, and what keeps it apart from namesakes."""

    name: str
    key: str
    aliases: tuple[str, ...]
    traits: Traits
    passages: frozenset[str]
    entity: Entity | None


Cluster = list[Reference]
End = tuple[str, frozenset[str]]
"""A name and the passages that it stands in."""


class Match(NamedTuple):
    """Two keys of one entity, the rule that joins them, and the passages that state it, if any.

    Where the rule is an alias, `other` is the alias.
    """

    one: str
    other: str
    rule: str
    passages: frozenset[str] = frozenset()


_BEFORE_OR_BEHIND: Final = frozenset(("lake", "river", "mount", "county"))
"""Words that stand before a name or behind it: "Lake Orda", "Orda Lake"."""

_HONORIFICS: Final = frozenset(("sir", "dame"))
"""Words before a full name that make no other name of it: "Sir Ian McKellen"."""

_ALIASES: Final = frozenset(("stated alias", "alias relation", "nickname"))
"""Rules that give a name another one, which others may bear too."""


def passages_of(record: Entity | Relation) -> frozenset[str]:
    """Ids of the passages that state a record."""
    return frozenset(evidence.passage for evidence in record.evidence)


def references(records: GraphUpdate) -> list[Reference]:
    """The name of each record and of each relation end."""
    ends = {
        (end, passages_of(relation)): None
        for relation in records.relations
        for end in (relation.head, relation.tail)
    }
    facts = _facts_of_relations(records.relations)
    split = {name: _split_name(name) for name, _ in ends}
    for entity in records.entities:
        if not split.get(entity.name, _NO_TITLE).qualifier:
            split[entity.name] = _split_name(entity.name, entity)
    found = [
        *(_reference(e.name, split[e.name], passages_of(e), e) for e in records.entities),
        *(_reference(name, split[name], passages) for name, passages in ends),
    ]
    return _in_passages(found, facts)


def _facts_of_relations(relations: Iterable[Relation]) -> dict[End, set[tuple[str, str]]]:
    """What relations say, by name and passages, of their ends that there can be one of."""
    facts: dict[End, set[tuple[str, str]]] = defaultdict(set)
    for relation in relations:
        passages = passages_of(relation)
        ends = facts_of_ends(relation.head, relation.relation, relation.tail)
        for name, stated in zip((relation.head, relation.tail), ends, strict=True):
            facts[name, passages] |= stated
    return facts


def _in_passages(
    found: Sequence[Reference], facts: Mapping[End, set[tuple[str, str]]]
) -> list[Reference]:
    """References with all that their passages say of the name; a mention belongs to its passage.

    Those of one name in one passage are one thing, unless they contradict each other: then a
    model told two apart there, and each keeps to itself.
    """
    ours = [
        one
        if one.entity
        else one._replace(traits=with_facts(one.traits, facts[one.name, one.passages]))
        for one in found
    ]
    by_name = _pooled_by(lambda one, passage: (one.name, passage), ours)
    return _pooled_by(lambda one, passage: (one.key, passage), by_name)


def _pooled_by(
    place_of: Callable[[Reference, str], tuple[str, str]], found: Sequence[Reference]
) -> list[Reference]:
    """References with the traits of all in their places, where those do not contradict."""
    there: dict[tuple[str, str], dict[Traits, None]] = defaultdict(dict)
    for one in found:
        for passage in one.passages:
            there[place_of(one, passage)][one.traits] = None
    said = {place: _consistent(several) for place, several in there.items()}
    result = []
    for one in found:
        every = [said[place_of(one, passage)] for passage in sorted(one.passages)]
        stated = [each for each in every if each is not None]
        together = _consistent(stated) if len(stated) == len(every) else None
        result.append(one._replace(traits=together) if together else one)
    return result


def _consistent(several: Iterable[Traits]) -> Traits | None:
    """What several mentions say together; None where two of them contradict each other."""
    every = list(dict.fromkeys(several))
    if any(contradict(a, b) for a, b in combinations(every, 2)):
        return None
    return pooled(every) if every else None


def _reference(
    name: str, split: Title, passages: frozenset[str], entity: Entity | None = None
) -> Reference:
    """Read a name; parentheses that hold its acronym are an alias, any other a qualifier."""
    base, qualifier = split
    aliases = entity.aliases if entity else ()
    if qualifier and (is_acronym(qualifier, base) or is_acronym(base, qualifier)):
        aliases, qualifier = (*aliases, qualifier), ""
    stated = (entity.type, entity.attributes) if entity else ("", ())
    found = traits(*stated, qualifier, entity.about if entity else ())
    return Reference(name, identity(base), aliases, found, passages, entity)


_NO_TITLE: Final = Title("", "")


def _split_name(name: str, entity: Entity | None = None) -> Title:
    """A name and what tells it from namesakes, in parentheses or behind a comma."""
    split = split_qualifier(name)
    return split if split.qualifier else _placed(name, entity) or split


def key_of(name: str) -> str:
    """The key that a name has where nothing else is known of it."""
    return identity(_split_name(name).base)


_RANKED: Final = re.compile(
    r"(?:(?:the )?(?:\d+(?:st|nd|rd|th)|first|second|third) )?(?P<rank>[A-Z]\w+)\b"
)


def _placed(name: str, entity: Entity | None) -> Title | None:
    """A name and what tells it from namesakes behind its comma: "Tampa, Florida"."""
    base, comma, behind = name.partition(", ")
    if not comma:
        return None
    ranked = _RANKED.match(behind)
    kind = kind_of(entity.type) if entity else ""
    is_told = (
        (ranked is not None and ranked["rank"].casefold() in TITLES and " " in base)
        or all(is_place(identity(part)) for part in behind.split(", "))
        or is_placed_kind(kind)
        or is_placed_kind(kind_of(base))
    )
    return Title(base, behind) if is_told else None


def matches(found: Sequence[Reference], relations: Iterable[Relation]) -> Iterator[Match]:
    """What joins names of one entity; a match may come several times."""
    known = {one.name: one.key for one in found}

    def alias_of(name: str, alias: str, rule: str, passages: frozenset[str]) -> Match:
        names = _by_fullness(name, alias)
        rule = "nickname" if _is_epithet(names[1], names[0]) else rule
        one, other = (known.get(each) or key_of(each) for each in names)
        return Match(one, other, rule, passages)

    for one in found:
        for alias in one.aliases:
            yield alias_of(one.name, alias, "stated alias", one.passages)
    for relation in relations:
        head, tail, where = relation.head, relation.tail, passages_of(relation)
        if says_same(relation.relation):
            yield Match(known[head], known[tail], "same as", where)
        elif said := _ALIAS_RELATION.fullmatch(normalise(relation.relation)):
            head, tail = (tail, head) if said["reversed"] else (head, tail)
            yield alias_of(head, tail, "alias relation", where)
    stated = {one.key for one in found if one.entity}
    yield from _acronyms(found, stated)
    yield from _legal_forms(found)
    keys = {one.key for one in found}
    for key in sorted(keys):
        first, _, rest = key.partition(" ")
        if first in _BEFORE_OR_BEHIND and f"{rest} {first}" in keys:
            yield Match(key, f"{rest} {first}", "spelling")
        if first in _HONORIFICS and " " in rest and rest in keys:
            yield Match(key, rest, "spelling")
    for key, other in near_pairs(keys):
        if (key in stated or other in stated) and near_duplicate(key, other):
            yield Match(key, other, "spelling")


def _by_fullness(name: str, alias: str) -> tuple[str, str]:
    """Two names of one thing, the title or the shorter one last: that is the alias."""
    pairs = ((name, alias), (alias, name))
    fullness = [(not _is_epithet(*pair), len(normalise(pair[0]).split())) for pair in pairs]
    return (alias, name) if fullness[0] < fullness[1] else (name, alias)


def _is_epithet(name: str, other: str) -> bool:
    """Whether a name is a title or an epithet of a thing, and no full form of its other name."""
    return is_nickname(name) and not set(normalise(other).split()) <= set(normalise(name).split())


def _acronyms(found: Sequence[Reference], stated: set[str]) -> Iterator[Match]:
    """Capitals from three letters on with the one name that they are the initials of, no person's.

    Two letters are the initials of too much; they count where a passage states them.
    """
    people = {one.key for one in found if one.traits.kind == "person"}
    expansions: dict[str, list[str]] = defaultdict(list)
    for name in stated:
        for letters in initials(name):
            expansions[letters].append(name)
    for short, key in {(one.name, one.key) for one in found if " " not in one.key}:
        letters = acronym_letters(split_qualifier(short).base)
        fitting = expansions.get(letters, ()) if len(letters) > 2 else ()
        if len(fitting) == 1 and people.isdisjoint((key, *fitting)):
            yield Match(key, fitting[0], "acronym")


def _legal_forms(found: Sequence[Reference]) -> Iterator[Match]:
    """Names that differ in "Ltd", "Inc." and the like, of what may be one company.

    "Company" and the short forms are parts of names too ("Bad Company"), so the shorter name may
    not be typed as something else.
    """
    types: dict[str, set[str]] = defaultdict(set)
    for one in found:
        types[one.key] |= {one.entity.type} - {""} if one.entity else set()
    for key in types:
        short = without_legal_form(key)
        is_sure = key.split()[-1:] and key.split()[-1] in LEGAL
        firms = ("company", "organisation")
        is_other = any(kind_of(type_) not in firms for type_ in types.get(short, ()))
        if short != key and short in types and (is_sure or not is_other):
            yield Match(key, short, "legal form")


def near_pairs(keys: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Pairs of names among which are all near duplicates.

    They agree in all letters, or in all words but one, and those two words begin alike. Words
    are compared on a shelf of names that share the rest, by what is left of them when letters
    are left out, so that a shelf of ten thousand names costs no more than its size.
    """
    shelves: dict[object, list[tuple[str, str]]] = defaultdict(list)
    letters: dict[str, list[str]] = defaultdict(list)
    for key in sorted(keys):
        parts = words_in_digits(key)
        letters[key.replace(" ", "")].append(key)
        for i, part in enumerate(parts):
            rest = (parts[:i], parts[i + 1 :]) if len(parts) > 1 else part[:1]
            shelves[rest].append((part, key))
    for same in letters.values():
        yield from combinations(same, 2)
    for shelf in shelves.values():
        yield from _pairs_on_a_shelf(shelf)


_FEW: Final = 12
"""Up to so many names all pairs are compared; it is the quicker way."""


def _pairs_on_a_shelf(shelf: Sequence[tuple[str, str]]) -> Iterable[tuple[str, str]]:
    """Pairs of names, given with their words that may differ, whose words may be alike."""
    if len(shelf) <= _FEW:
        return combinations((key for _, key in shelf), 2)
    near: dict[str, list[str]] = defaultdict(list)
    initial: dict[str, list[str]] = defaultdict(list)
    for word, key in shelf:
        initial[word[:1]].append(key)
        for rest in shortenings(word):
            near[rest].append(key)
    pairs = {pair for same in near.values() for pair in combinations(same, 2)}
    for word, key in shelf:
        others: Iterable[str] = initial[word] if len(word) == 1 else ()
        if len(word) > LONG_WORD:
            others = (other for _, other in shelf)
        pairs |= {(key, other) for other in others if key != other}
    return pairs


def gather(found: Iterable[Reference], matched: Iterable[Match]) -> list[Cluster]:
    """One cluster of references for each entity, where these matches join their names."""
    from networkx.utils import UnionFind

    joined, aliases = UnionFind(), defaultdict[str, list[Match]](list)
    for match in matched:
        if match.rule in _ALIASES:
            aliases[match.other].append(match)
        else:
            joined.union(match.one, match.other)
    local = _join_aliases(aliases, joined)
    blocks: dict[str, Cluster] = defaultdict(list)
    for one in found:
        borne = local.get(one.key, {}).items()
        bearers = {joined[name] for name, passages in borne if passages & one.passages}
        blocks[bearers.pop() if len(bearers) == 1 else joined[one.key]].append(one)
    return _join_surnames([part for block in blocks.values() for part in _divide(block)])


Bearers = Mapping[str, frozenset[str]]
"""Names that bear an alias, with the passages that say so."""


def _join_aliases(aliases: Mapping[str, Sequence[Match]], joined: UnionFind) -> dict[str, Bearers]:
    """Join aliases with their names, but what several bear, or may, only in the right passages.

    Returns:
        By alias, the names that are meant only in the passages that say so.
    """
    bearers = {alias: _bearers(said) for alias, said in aliases.items()}
    titles = {alias for alias, said in aliases.items() if any(m.rule == "nickname" for m in said)}
    local = {
        alias: names
        for alias, names in bearers.items()
        if alias in titles or not _is_one(alias, names)
    }
    apart = {frozenset((name, alias)) for alias, names in local.items() for name in names}
    for alias, names in bearers.items():
        for name in names:
            if frozenset((name, alias)) not in apart:
                joined.union(name, alias)
    was_joined = True
    while was_joined:  # What else is known may show that those who bear an alias are one.
        known = [
            alias
            for alias, names in local.items()
            if alias not in titles and len({joined[name] for name in names}) == 1
        ]
        for alias in known:
            joined.union(*local.pop(alias), alias)
        was_joined = bool(known)
    return local


def _bearers(said: Sequence[Match]) -> Bearers:
    """The names that bear one alias; of several statements those count that rest on least.

    A record of several passages does not tell which of them states its alias.
    """
    stated: dict[str, list[frozenset[str]]] = defaultdict(list)
    for match in said:
        stated[match.one].append(match.passages)
    fewest = {name: min(map(len, every)) for name, every in stated.items()}
    return {
        name: frozenset().union(*(each for each in every if len(each) == fewest[name]))
        for name, every in stated.items()
    }


def _is_one(alias: str, names: Bearers) -> bool:
    """Whether those who bear an alias are one, and it stands for them wherever it is read.

    Two of different names are not, unless one passage says both, as it does of a person with
    three names; but an acronym may be in one passage the short form of two.
    """
    longest = max(names, key=lambda name: (len(name), name))
    words = set(longest.split())
    if all(words.issuperset(name.split()) or near_duplicate(name, longest) for name in names):
        return True
    one_passage = len(frozenset().union(*names.values())) == 1
    return one_passage and not any(alias in initials(name) for name in names)


def _divide(block: Cluster) -> list[Cluster]:
    """Split a block into namesakes; references that fit several of them stay by themselves."""
    kinds = sorted(
        {one.traits for one in block},
        key=lambda one: (-len(one.facts), one.kind, sorted(one.facts)),
    )
    apart = [one for one in kinds if any(contradict(one, other) for other in kinds)]
    if not apart:
        return [block]
    groups: list[list[Traits]] = []
    sharing: dict[object, dict[int, None]] = defaultdict(dict)
    for one in apart:
        shared = [*one.facts, *([one.kind] if one.kind else [])]
        near = sorted({i for each in shared for i in sharing[each]})
        fitting = [i for i in near if not any(contradict(one, other) for other in groups[i])]
        if fitting:
            place = max(fitting, key=lambda i: _overlap(one, groups[i]))
            groups[place].append(one)
        else:
            place = len(groups)
            groups.append([one])
        for each in shared:
            sharing[each][place] = None
    place_of = {one: i for i, group in enumerate(groups) for one in group}
    parts: list[Cluster] = [[] for _ in groups]
    rest = [one for one in block if one.traits not in place_of]
    for reference in block:
        if reference.traits in place_of:
            parts[place_of[reference.traits]].append(reference)
    return attach(rest, parts)


def _overlap(one: Traits, group: Sequence[Traits]) -> int:
    facts = {fact for other in group for fact in shared(one, other)}
    return 2 * len(facts) + any(one.kind == other.kind != "" for other in group)


_FITS: Final[tuple[Callable[[Reference, Reference], bool], ...]] = (
    lambda one, other: bool(one.passages & other.passages) and one.key == other.key,
    lambda one, other: _overlap(one.traits, [other.traits]) > 0,
    lambda one, other: one.key == other.key,
)


def attach(rest: Cluster, parts: list[Cluster]) -> list[Cluster]:
    """Give each of the rest to the only namesake that its passage, its traits or its name fit."""
    before = [list(part) for part in parts]
    unclear: dict[str, Cluster] = defaultdict(list)
    for one in rest:
        for fits in _FITS:
            fitting = [i for i, part in enumerate(before) if any(fits(one, o) for o in part)]
            if len(fitting) == 1:
                parts[fitting[0]].append(one)
                break
        else:
            unclear[one.key].append(one)
    return parts + list(unclear.values())


def _join_surnames(parts: list[Cluster]) -> list[Cluster]:
    """Merge a person known by surname alone into the only bearer of it in a shared passage."""
    people = [i for i, p in enumerate(parts) if any(one.traits.kind == "person" for one in p)]
    bearers: dict[str, set[int]] = defaultdict(set)
    for i in people:
        for one in parts[i]:
            if one.entity and " " in one.key:
                bearers[one.key.split()[-1]].add(i)
    passages = {i: {passage for one in parts[i] for passage in one.passages} for i in people}
    joined: dict[int, int] = {}
    for i in people:
        if all(" " not in one.key for one in parts[i]):
            bearing = {j for one in parts[i] for j in bearers[one.key]}
            near = [j for j in bearing if passages[i] & passages[j]]
            if len(near) == 1 and not any(
                contradict(a.traits, b.traits) for a in parts[i] for b in parts[near[0]]
            ):
                joined[i] = near[0]
    for i, j in joined.items():
        parts[j] = parts[j] + parts[i]
    return [part for i, part in enumerate(parts) if i not in joined]


# --- Joints: where the name alone says that two passages speak of one thing


def groups_of_passages(part: Cluster, has_rival: bool) -> dict[str, str]:
    """The passages of a cluster, each with one that stands for all that surely mean one thing.

    Two mentions surely mean one thing where

    - they stand in one passage;
    - their passages share a fact that few namesakes share: a title, a date, a state, a parent;
    - one passage is about the thing (its title names it), and no namesake was read;
    - a passage gives the thing both names;
    - the name is no common one: it has three words or a number, or two that are no given name
      with a surname and no place, or it is a country or a state.

    Args:
        part: The references to one thing.
        has_rival: Whether another thing of its name was read.
    """
    from networkx.utils import UnionFind

    joined: UnionFind = UnionFind(passage for one in part for passage in one.passages)
    by_fact: dict[object, set[str]] = defaultdict(set)
    keys_in: dict[str, set[str]] = defaultdict(set)
    passages_of_key: dict[str, set[str]] = defaultdict(set)
    for one in part:
        for fact in telling(one.traits):
            by_fact[fact] |= one.passages
        passages_of_key[one.key] |= one.passages
        for passage in one.passages:
            keys_in[passage] |= {one.key, *map(identity, one.aliases)}
    for passages in by_fact.values():
        joined.union(*passages)
    is_titled = any(one.traits.values("title") for one in part)
    is_place = any(is_placed_kind(one.traits.kind) for one in part)
    for key, passages in passages_of_key.items():
        if not has_rival and (is_titled or is_distinct(key, is_place)):
            joined.union(*passages)
    for passage, keys in keys_in.items():
        if len(keys) > 1:
            joined.union(passage, *(p for key in keys for p in passages_of_key.get(key, ())))
    return {passage: joined[passage] for passage in joined}


def is_distinct(key: str, is_place: bool) -> bool:
    """Whether few things bear a name, as far as its words tell.

    >>> [is_distinct(name, False) for name in ("northern arts guild", "john smith", "prism")]
    [True, False, False]
    """
    words = key.split()
    if len(words) > 2 or any(c.isdigit() for c in key) or is_known_place(key):
        return True
    return len(words) == 2 and not is_place and words[0] not in lexicon.NICKNAMES
