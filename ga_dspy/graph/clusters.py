"""Entity resolution: which records and relation ends of a graph mean the same entity.

The result is a function of the set of records; their order decides only the order of display.
Names with the same meaning form a block. A block whose records contradict each other is divided
among the namesakes; relation ends join the namesake with which they share passages. Last, a lone
surname joins the only person with that surname in the same passage.
`ga_dspy.graph.knowledge_graph` names the clusters.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, combinations, product
from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple

from rapidfuzz import process
from rapidfuzz.distance import DamerauLevenshtein

from ga_dspy import lexicon
from ga_dspy.graph.identity import (
    LEGAL,
    TITLES,
    WORD_SIMILARITY,
    Title,
    acronym_letters,
    identity,
    initials,
    is_acronym,
    is_nickname,
    near_duplicate,
    split_qualifier,
    states_identity,
    without_legal_form,
    words_in_digits,
)
from ga_dspy.graph.records import Entity, GraphUpdate, Relation, grouped, united
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
)
from ga_dspy.mentions import BEFORE_OR_AFTER
from ga_dspy.text import normalise

if TYPE_CHECKING:
    from networkx.utils import UnionFind

_ALIAS_RELATION: Final = re.compile(
    r"(?:(?:is|was|also|better|commonly|professionally|formerly|previously|sometimes|originally|an?|"
    r"another|the) )*"
    r"(?:known(?: \w+)? as|aka|a k a|nee|born as|alias|nickname(?:d)?|stage name|pen name|"
    r"birth name|real name|full name|abbreviat(?:ed as|ion)|acronym|(?:other )?name|called|"
    r"spell(?:ed|ing)(?: as)?)(?: (?P<reversed>of|for)| is)?"
)


class Reference(NamedTuple):
    """A record or a relation end, by name, with the traits that distinguish it.

    `entity` is the record; a relation end has none.
    """

    name: str
    key: str
    aliases: tuple[str, ...]
    traits: Traits
    passages: frozenset[str]
    entity: Entity | None


Cluster = list[Reference]
End = tuple[str, frozenset[str]]
"""A name and the ids of its passages."""


class Match(NamedTuple):
    """Two keys of one entity, the rule that joins them, and the passages that state so, if any.

    If the rule is about an alias, `other` is the alias.
    """

    one: str
    other: str
    rule: str
    passages: frozenset[str] = frozenset()


_HONORIFICS: Final = frozenset(("sir", "dame"))
"""Titles before a full name that do not change its meaning: "Sir Ian McKellen"."""

_ALIASES: Final = frozenset(("stated alias", "alias relation", "nickname"))
"""The rules for aliases, which several entities may share."""


def passages_of(record: Entity | Relation) -> frozenset[str]:
    """Return the ids of the passages that state a record."""
    return frozenset([evidence.passage for evidence in record.evidence])


def references(records: GraphUpdate, known: Mapping[str, Title] = {}) -> list[Reference]:
    """Return a reference for each record and for each relation end.

    References with one name in one passage mean one entity and share their traits, unless these
    contradict each other: then the LM distinguished two entities there. A relation end has the
    traits of the record of its name and passages if that record has an id.

    Args:
        records: The records.
        known: Names that are split already, because other records describe them (`split_names`).
    """
    facts = _facts_of_ends(records.relations)
    split = {**split_names((name for name, _ in facts), records.entities), **known}
    found = [_reference(e.name, split[e.name], passages_of(e), e) for e in records.entities]
    identified = {(one.name, one.passages): one.traits for one in found if one.traits.ids}
    for (name, passages), stated in facts.items():
        end = _reference(name, split[name], passages)
        combined = pooled((end.traits, Traits("", frozenset(stated))))
        found.append(end._replace(traits=identified.get((name, passages), combined)))
    for by in (attrgetter("name"), attrgetter("key")):
        found = _pooled_by(by, found)
    return found


def split_names(names: Iterable[str], entities: Iterable[Entity]) -> dict[str, Title]:
    """Split names, and those of entities, from their qualifiers, with regard to entity types."""
    split = {name: _split_name(name) for name in names}
    for entity in entities:
        if entity.name not in split or not split[entity.name].qualifier:
            split[entity.name] = _split_name(entity.name, entity)
    return split


def _facts_of_ends(relations: Iterable[Relation]) -> dict[End, set[tuple[str, str]]]:
    """Return the single-valued facts that relations state of each end."""
    facts: dict[End, set[tuple[str, str]]] = defaultdict(set)
    for relation in relations:
        passages = passages_of(relation)
        both = facts_of_ends(relation.head, relation.relation, relation.tail)
        for name, stated in zip(relation.ends, both, strict=True):
            facts[name, passages] |= stated
    return facts


def _pooled_by(by: Callable[[Reference], str], found: Sequence[Reference]) -> list[Reference]:
    """Pool the traits of the references with one name in one passage, if they are consistent."""
    mentions = grouped(((by(one), id), one.traits) for one in found for id in one.passages)
    pools = {mention: _consistent(several) for mention, several in mentions.items()}
    result = []
    for one in found:
        together = _consistent(pools[by(one), id] for id in sorted(one.passages))
        result.append(one._replace(traits=together) if together else one)
    return result


def _consistent(several: Iterable[Traits | None]) -> Traits | None:
    """Return the pooled traits of several mentions.

    None if there are none, one is None, or two contradict each other or have different ids.
    """
    distinct = dict.fromkeys(several)
    known = [one for one in distinct if one]
    ids = {one.ids for one in known if one.ids}
    is_clear = 0 < len(known) == len(distinct) and len(ids) < 2
    if not is_clear or any(contradict(a, b) for a, b in combinations(known, 2)):
        return None
    return pooled(known)


def _reference(
    name: str, split: Title, passages: frozenset[str], entity: Entity | None = None
) -> Reference:
    """Return a reference; an acronym in parentheses becomes an alias, other text a qualifier."""
    base, qualifier = split
    aliases = entity.aliases if entity else ()
    if qualifier and (is_acronym(qualifier, base) or is_acronym(base, qualifier)):
        aliases, qualifier = (*aliases, qualifier), ""
    described = (entity.type, entity.attributes) if entity else ("", ())
    found = traits(*described, qualifier, entity.about if entity else ())
    return Reference(name, identity(base), aliases, found, passages, entity)


def key_of(name: str) -> str:
    """Return the key of a name without a record."""
    return identity(_split_name(name).base)


_RANKED: Final = re.compile(
    r"(?:(?:the )?(?:\d+(?:st|nd|rd|th)|first|second|third) )?(?P<rank>[A-Z]\w+)\b"
)


def _split_name(name: str, entity: Entity | None = None) -> Title:
    """Split a name from its qualifier, in parentheses or after a comma: "Tampa, Florida"."""
    split = split_qualifier(name)
    base, comma, qualifier = name.partition(", ")
    if split.qualifier or not comma:
        return split
    ranked = _RANKED.match(qualifier)
    is_qualifier = (
        (ranked is not None and ranked["rank"].casefold() in TITLES and " " in base)
        or all(is_place(identity(part)) for part in qualifier.split(", "))
        or is_placed_kind(kind_of(entity.type if entity else ""))
        or is_placed_kind(kind_of(base))
    )
    return Title(base, qualifier) if is_qualifier else split


def matches(found: Sequence[Reference], relations: Iterable[Relation]) -> Iterator[Match]:
    """Yield the matches of names that mean one entity; a match may repeat."""
    known = {one.name: one.key for one in found}

    def alias_of(name: str, alias: str, rule: str, passages: frozenset[str]) -> Match:
        names = _by_fullness(name, alias)
        rule = "nickname" if _is_epithet(names[1], names[0]) else rule
        one, other = (known.get(each) or key_of(each) for each in names)
        return Match(one, other, rule, passages)

    for one in found:
        yield from (alias_of(one.name, a, "stated alias", one.passages) for a in one.aliases)
    for relation in relations:
        (head, tail), where = relation.ends, passages_of(relation)
        if states_identity(relation.relation):
            yield Match(known[head], known[tail], "same as", where)
        elif found_alias := _ALIAS_RELATION.fullmatch(normalise(relation.relation)):
            head, tail = (tail, head) if found_alias["reversed"] else (head, tail)
            yield alias_of(head, tail, "alias relation", where)
    stated = {one.key for one in found if one.entity}
    yield from _acronyms(found, stated)
    yield from _legal_forms(found)
    keys = {one.key for one in found}
    for key in sorted(keys):
        yield from (
            Match(key, other, "spelling") for other in alternative_keys(key) if other in keys
        )
    for key, other in near_pairs(keys):
        if key in stated or other in stated:
            yield Match(key, other, "spelling")


def alternative_keys(key: str) -> Iterator[str]:
    """Yield the alternative keys of a name: another word order, or no honorific.

    >>> [*alternative_keys("lake orda"), *alternative_keys("sir ian mckellen")]
    ['orda lake', 'ian mckellen']
    """
    first, _, rest = key.partition(" ")
    if first in BEFORE_OR_AFTER:
        yield f"{rest} {first}"
    if first in _HONORIFICS and " " in rest:
        yield rest


def states_alias(relation: str) -> bool:
    """Return whether a relation of this wording means that its ends name one entity."""
    return states_identity(relation) or _ALIAS_RELATION.fullmatch(normalise(relation)) is not None


def _by_fullness(name: str, alias: str) -> tuple[str, str]:
    """Order two names of one entity: the alias, which is an epithet or the shorter, comes last."""
    pairs = ((name, alias), (alias, name))
    fullness = [(not _is_epithet(*pair), len(normalise(pair[0]).split())) for pair in pairs]
    return (alias, name) if fullness[0] < fullness[1] else (name, alias)


def _is_epithet(name: str, other: str) -> bool:
    """Return whether a name is an epithet, and not a longer form of the other name."""
    return is_nickname(name) and not set(normalise(other).split()) <= set(normalise(name).split())


def _acronyms(found: Sequence[Reference], stated: set[str]) -> Iterator[Match]:
    """Match acronyms of three letters or more with the only name of those initials; not people.

    Acronyms of two letters match too many names; they count only if a passage states them.
    """
    people = {one.key for one in found if one.traits.kind == "person"}
    expansions = grouped((letters, name) for name in stated for letters in initials(name))
    for short, key in {(one.name, one.key) for one in found if " " not in one.key}:
        letters = acronym_letters(split_qualifier(short).base)
        fitting = expansions.get(letters, ()) if len(letters) > 2 else ()
        if len(fitting) == 1 and people.isdisjoint((key, *fitting)):
            yield Match(key, fitting[0], "acronym")


def _legal_forms(found: Sequence[Reference]) -> Iterator[Match]:
    """Match names that differ only in a legal form such as "Ltd" or "Inc.".

    A word such as "Company" may also be part of a name ("Bad Company"); it counts as a legal form
    only if the shorter name has no other type than a company or an organisation.
    """
    types = united((one.key, {one.entity.type} if one.entity else ()) for one in found)
    for key in types:
        short = without_legal_form(key)
        is_legal = key.rpartition(" ")[2] in LEGAL
        kinds = {kind_of(type_) for type_ in types.get(short, ()) if type_}
        is_company = kinds <= {"company", "organisation"}
        if short != key and short in types and (is_legal or is_company):
            yield Match(key, short, "legal form")


def near_pairs(keys: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield all pairs of near duplicates; single words must have the same first letter."""
    batches: dict[object, dict[str, str]] = defaultdict(dict)
    ordered = sorted(keys)
    for key in ordered:
        for rest, word in words_and_rest(key):
            yield from ((other, key) for other in near_in_batch(key, word, batches[rest]))
            batches[rest][key] = word
    for same in grouped((key.replace(" ", ""), key) for key in ordered).values():
        yield from combinations(same, 2)


def words_and_rest(key: str) -> Iterator[tuple[object, str]]:
    """Yield each word of a name, after the words around it: the batch of its near duplicates.

    Near duplicates agree in all words but one; single words agree in the first letter.
    """
    parts = words_in_digits(key)
    for i, part in enumerate(parts):
        yield (parts[:i], parts[i + 1 :]) if len(parts) > 1 else part[:1], part


def near_in_batch(key: str, word: str, others: Mapping[str, str]) -> Iterator[str]:
    """Yield the near duplicates of a name among the names that agree in all words but one.

    Args:
        key: The name.
        word: The word that may differ.
        others: The other names, each with its word in that position.
    """
    scorer = DamerauLevenshtein.normalized_similarity
    near = process.extract(word, others, scorer=scorer, score_cutoff=WORD_SIMILARITY, limit=None)
    found = [other for _, _, other in near]
    if len(key.split()) > 2:  # an initial may stand for the word
        found += [other for other, each in others.items() if 1 in (len(each), len(word))]
    yield from (other for other in found if near_duplicate(key, other))


def gather(found: Iterable[Reference], matched: Iterable[Match]) -> list[Cluster]:
    """Return one cluster of references per entity, joined by these matches."""
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
        bearers = local.get(one.key, {}).items()
        names = {joined[name] for name, passages in bearers if passages & one.passages}
        blocks[names.pop() if len(names) == 1 else joined[one.key]].append(one)
    parts = _join_surnames([part for block in blocks.values() for part in _divide(block)])
    return _join_ids(parts)


Bearers = Mapping[str, frozenset[str]]
"""The names with one alias, each with the passages that state so."""


def _join_aliases(aliases: Mapping[str, Sequence[Match]], joined: UnionFind) -> dict[str, Bearers]:
    """Join aliases with their names, except the aliases that may mean several entities.

    Returns:
        The bearers of each of these exceptions, which has its meaning only in their passages.
    """
    bearers = {alias: _bearers(stated) for alias, stated in aliases.items()}
    nicknames = {m.other for m in chain(*aliases.values()) if m.rule == "nickname"}
    local = {a: names for a, names in bearers.items() if a in nicknames or not _is_one(a, names)}
    apart = {frozenset((name, alias)) for alias, names in local.items() for name in names}
    for alias, names in bearers.items():
        joined.union(alias, *(name for name in names if frozenset((name, alias)) not in apart))

    def is_clear(alias: str) -> bool:
        return alias not in nicknames and len({joined[name] for name in local[alias]}) == 1

    # Joining one alias may show that the names of another mean one entity.
    while clear := list(filter(is_clear, local)):
        for alias in clear:
            joined.union(*local.pop(alias), alias)
    return local


def _bearers(matched: Iterable[Match]) -> Bearers:
    """Return the names with one alias; the statements with the fewest passages count.

    A record of several passages does not tell which of them states its alias.
    """
    bearers = dict[str, frozenset[str]]()
    for name, every in grouped((match.one, match.passages) for match in matched).items():
        fewest = min(map(len, every))
        bearers[name] = frozenset().union(*(each for each in every if len(each) == fewest))
    return bearers


def _is_one(alias: str, names: Bearers) -> bool:
    """Return whether all names of an alias mean one entity, so the alias means it everywhere.

    Two different names do not, unless one passage states both, as for a person with three names;
    but one passage may use an acronym for two entities.
    """
    longest = max(names, key=lambda name: (len(name), name))
    words = set(longest.split())
    if all(words.issuperset(name.split()) or near_duplicate(name, longest) for name in names):
        return True
    one_passage = len(frozenset().union(*names.values())) == 1
    return one_passage and not any(alias in initials(name) for name in names)


def _divide(block: Cluster) -> list[Cluster]:
    """Divide a block among namesakes; references that fit several of them stay separate."""
    distinct = {reference.traits for reference in block}
    apart = [one for one in distinct if _contradicts(one, distinct)]
    if not apart:
        return [block]
    groups: list[list[Traits]] = []
    for one in sorted(apart, key=lambda one: (-len(one.facts), one.kind, sorted(one.facts))):
        near = (group for group in groups if _is_of_kind(one, group) or _shares_fact(one, group))
        fitting = [group for group in near if not _contradicts(one, group)]
        if fitting:
            max(fitting, key=lambda group: _overlap(one, group)).append(one)
        else:
            groups.append([one])
    parts: list[Cluster] = [[] for _ in groups]
    part_of = {one: parts[i] for i, group in enumerate(groups) for one in group}
    rest: Cluster = []
    for reference in block:
        part_of.get(reference.traits, rest).append(reference)
    return attach(rest, parts)


def _contradicts(one: Traits, group: Iterable[Traits]) -> bool:
    return any(contradict(one, other) for other in group)


def _shares_fact(one: Traits, group: Iterable[Traits]) -> bool:
    return any(one.facts & other.facts for other in group)


def _is_of_kind(one: Traits, group: Iterable[Traits]) -> bool:
    return any(one.kind == other.kind != "" for other in group)


def _overlap(one: Traits, group: Sequence[Traits]) -> int:
    facts = {fact for other in group for fact in shared(one, other)}
    return 2 * len(facts) + _is_of_kind(one, group)


_FITS: Final[tuple[Callable[[Reference, Reference], bool], ...]] = (
    lambda one, other: bool(one.passages & other.passages) and one.key == other.key,
    lambda one, other: _overlap(one.traits, [other.traits]) > 0,
    lambda one, other: one.key == other.key,
)


def attach(rest: Cluster, parts: list[Cluster]) -> list[Cluster]:
    """Attach each remaining reference to the only namesake that its passage, traits or name fit."""
    before = [list(part) for part in parts]
    unclear: dict[str, Cluster] = defaultdict(list)
    for one in rest:
        for fits in _FITS:
            fitting = [i for i, part in enumerate(before) if any(map(partial(fits, one), part))]
            if len(fitting) == 1:
                parts[fitting[0]].append(one)
                break
        else:
            unclear[one.key].append(one)
    return parts + list(unclear.values())


def _join_surnames(parts: list[Cluster]) -> list[Cluster]:
    """Merge a person known only by surname into the only person of that name in a passage."""
    kind_of_one = attrgetter("traits.kind")
    people = {i: part for i, part in enumerate(parts) if "person" in map(kind_of_one, part)}
    bearers, passages = defaultdict[str, set[int]](set), dict[int, frozenset[str]]()
    for i, part in people.items():
        passages[i] = frozenset().union(*(one.passages for one in part))
        for one in part:
            if one.entity and " " in one.key:
                bearers[one.key.split()[-1]].add(i)
    joined: dict[int, int] = {}
    for i, part in people.items():
        if any(" " in one.key for one in part):
            continue
        bearing = {j for one in part for j in bearers[one.key]}
        near = [j for j in bearing if passages[i] & passages[j]]
        if len(near) == 1:
            pairs = product(part, people[near[0]])
            if not any(contradict(a.traits, b.traits) for a, b in pairs):
                joined[i] = near[0]
    for i, j in joined.items():
        parts[j] = parts[j] + parts[i]
    return [part for i, part in enumerate(parts) if i not in joined]


def _join_ids(parts: list[Cluster]) -> list[Cluster]:
    """Join clusters with a common id, and divide those with two ids of one namespace.

    A reference without an id stays with the namesake that its name or passage fits.
    """
    from networkx.utils import UnionFind

    stated = list(map(_ids, parts))
    if not any(stated):
        return parts
    joined: UnionFind = UnionFind()
    for reference in chain.from_iterable(parts):
        joined.union(*_ids([reference]))
    namespaces: dict[object, set[str]] = defaultdict(set)
    for id in list(joined):
        namespaces[joined[id]].add(id[0])
    for one, other in chain.from_iterable(combinations(ids, 2) for ids in sorted(stated)):
        ours, theirs = joined[one], joined[other]
        if namespaces[ours].isdisjoint(namespaces[theirs]):
            joined.union(ours, theirs)
            namespaces[joined[one]] = namespaces[ours] | namespaces[theirs]
    identified, others = defaultdict[object, Cluster](list), list[Cluster]()
    for part, ids in zip(parts, stated, strict=True):
        clusters: dict[object, Cluster] = {joined[id]: [] for id in ids}
        rest: Cluster = []
        for reference in part:
            own_ids = _ids([reference])
            cluster = clusters[joined[own_ids[0]]] if own_ids else rest
            cluster.append(reference)
        divided = attach(rest, list(clusters.values())) if len(clusters) > 1 else [part]
        for root, references in zip(clusters, divided, strict=False):
            identified[root] += references
        others += divided[len(clusters) :]
    return [*identified.values(), *others]


def _ids(part: Cluster) -> list[tuple[str, str]]:
    return sorted({id for reference in part for id in reference.traits.ids})


# --- Joints: passages that only a name connects


def groups_of_passages(part: Cluster, has_rival: bool) -> dict[str, str]:
    """Group the passages of a cluster that certainly mean the same entity.

    Two mentions certainly mean the same entity if

    - they are in one passage;
    - their passages share a fact that few namesakes share: a title, a date, a state, a parent;
    - one passage is about the entity (its title names it), and no namesake was read;
    - a passage states both names of the entity;
    - the name is rare: it has three words or a number, or two words that are neither a given name
      with a surname nor a place, or it is a country or a state.

    Args:
        part: The references to one entity.
        has_rival: Whether another entity of its name was read.

    Returns:
        For each passage, one passage that represents its group.
    """
    from networkx.utils import UnionFind

    joined: UnionFind = UnionFind(passage for one in part for passage in one.passages)
    by_fact = united((fact, one.passages) for one in part for fact in telling(one.traits))
    by_key = united((one.key, one.passages) for one in part)
    named = ((id, {one.key, *map(identity, one.aliases)}) for one in part for id in one.passages)
    for passages in by_fact.values():
        joined.union(*passages)
    is_titled = any(one.traits.values("title") for one in part)
    is_place = any(is_placed_kind(one.traits.kind) for one in part)
    for key, passages in by_key.items():
        if not has_rival and (is_titled or is_distinct(key, is_place)):
            joined.union(*passages)
    for passage, keys in united(named).items():
        if len(keys) > 1:
            joined.union(passage, *(p for key in keys for p in by_key.get(key, ())))
    return {passage: joined[passage] for passage in joined}


def is_distinct(key: str, is_place: bool) -> bool:
    """Return whether a name is rare, as judged by its words.

    >>> [is_distinct(name, False) for name in ("northern arts guild", "john smith", "prism")]
    [True, False, False]
    """
    words = key.split()
    if len(words) > 2 or any(c.isdigit() for c in key) or is_known_place(key):
        return True
    return len(words) == 2 and not is_place and words[0] not in lexicon.NICKNAMES
