"""Entity resolution: which records and relation ends of a graph mean the same entity."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, combinations
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
    says_same,
    split_qualifier,
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
from ga_dspy.mentions import BEFORE_OR_BEHIND
from ga_dspy.text import normalise

if TYPE_CHECKING:
    from networkx.utils import UnionFind

# The result is a function of the set of records: their order decides the order of display alone.
# Names with the same meaning form a block. A block whose records contradict each other is divided
# among the namesakes; relation ends go where they share passages. Last, a lone surname joins the
# only person with that surname in the same passage. `ga_dspy.graph.knowledge_graph` names the
# clusters.


_ALIAS_RELATION: Final = re.compile(
    r"(?:(?:is|was|also|better|commonly|professionally|formerly|previously|sometimes|originally|an?|"
    r"another|the) )*"
    r"(?:known(?: \w+)? as|aka|a k a|nee|born as|alias|nickname(?:d)?|stage name|pen name|"
    r"birth name|real name|full name|abbreviat(?:ed as|ion)|acronym|(?:other )?name|called|"
    r"spell(?:ed|ing)(?: as)?)(?: (?P<reversed>of|for)| is)?"
)


class Reference(NamedTuple):
    """The name of a record or of a relation end, with the traits that distinguish it."""

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
    """Two keys of one entity, the rule that joins them, and the passages that state it, if any.

    If the rule is an alias, `other` is the alias.
    """

    one: str
    other: str
    rule: str
    passages: frozenset[str] = frozenset()


_HONORIFICS: Final = frozenset(("sir", "dame"))
"""Words before a full name that do not change who it means: "Sir Ian McKellen"."""

_ALIASES: Final = frozenset(("stated alias", "alias relation", "nickname"))
"""Rules for aliases, which other entities may have too."""


def passages_of(record: Entity | Relation) -> frozenset[str]:
    """Return the ids of the passages that state a record."""
    return frozenset([evidence.passage for evidence in record.evidence])


def references(records: GraphUpdate, known: Mapping[str, Title] = {}) -> list[Reference]:
    """Return a reference for each record and for each relation end.

    References of one name in one passage are one thing, unless they contradict each other: then
    the model distinguished two things there. An end is the record of its name that has an id.

    Args:
        records: The records.
        known: How names are split that other records describe too (`split_names`).
    """
    facts = _facts_of_ends(records.relations)
    split = {**split_names((name for name, _ in facts), records.entities), **known}
    found = [_reference(e.name, split[e.name], passages_of(e), e) for e in records.entities]
    identified = {(one.name, one.passages): one.traits for one in found if one.traits.ids}
    for (name, passages), stated in facts.items():
        end = _reference(name, split[name], passages)
        own = pooled((end.traits, Traits("", frozenset(stated))))
        found.append(end._replace(traits=identified.get((name, passages), own)))
    for by in (attrgetter("name"), attrgetter("key")):
        found = _pooled_by(by, found)
    return found


def split_names(names: Iterable[str], entities: Iterable[Entity]) -> dict[str, Title]:
    """Split names, and those of entities, from their qualifiers; the type of an entity counts."""
    split = {name: _split_name(name) for name in names}
    for entity in entities:
        if entity.name not in split or not split[entity.name].qualifier:
            split[entity.name] = _split_name(entity.name, entity)
    return split


def _facts_of_ends(relations: Iterable[Relation]) -> dict[End, set[tuple[str, str]]]:
    """Return each end of relations with the single-valued facts that they state of it."""
    facts: dict[End, set[tuple[str, str]]] = defaultdict(set)
    for relation in relations:
        passages = passages_of(relation)
        both = facts_of_ends(relation.head, relation.relation, relation.tail)
        for name, stated in zip(relation.ends, both, strict=True):
            facts[name, passages] |= stated
    return facts


def _pooled_by(by: Callable[[Reference], str], found: Sequence[Reference]) -> list[Reference]:
    """Return references with the pooled traits of their name there, unless those contradict."""
    there = grouped(((by(one), id), one.traits) for one in found for id in one.passages)
    stated = {place: _consistent(several) for place, several in there.items()}
    result = []
    for one in found:
        together = _consistent(stated[by(one), each] for each in sorted(one.passages))
        result.append(one._replace(traits=together) if together else one)
    return result


def _consistent(several: Iterable[Traits | None]) -> Traits | None:
    """Return the pooled traits of several mentions.

    None if there are none, one is None, or two contradict each other or have other ids.
    """
    every = dict.fromkeys(several)
    known = [one for one in every if one]
    identified = {one.ids for one in known if one.ids}
    is_clear = 0 < len(known) == len(every) and len(identified) < 2
    if not is_clear or any(contradict(a, b) for a, b in combinations(known, 2)):
        return None
    return pooled(known)


def _reference(
    name: str, split: Title, passages: frozenset[str], entity: Entity | None = None
) -> Reference:
    """Read a name; an acronym in its parentheses is an alias, anything else a qualifier."""
    base, qualifier = split
    aliases = entity.aliases if entity else ()
    if qualifier and (is_acronym(qualifier, base) or is_acronym(base, qualifier)):
        aliases, qualifier = (*aliases, qualifier), ""
    stated = (entity.type, entity.attributes) if entity else ("", ())
    found = traits(*stated, qualifier, entity.about if entity else ())
    return Reference(name, identity(base), aliases, found, passages, entity)


def _split_name(name: str, entity: Entity | None = None) -> Title:
    """Split a name from its qualifier, in parentheses or behind a comma."""
    split = split_qualifier(name)
    return split if split.qualifier else _placed(name, entity) or split


def key_of(name: str) -> str:
    """Return the key of a name of which nothing else is known."""
    return identity(_split_name(name).base)


_RANKED: Final = re.compile(
    r"(?:(?:the )?(?:\d+(?:st|nd|rd|th)|first|second|third) )?(?P<rank>[A-Z]\w+)\b"
)


def _placed(name: str, entity: Entity | None) -> Title | None:
    """Split a name from the qualifier behind its comma: "Tampa, Florida"."""
    base, comma, behind = name.partition(", ")
    if not comma:
        return None
    ranked = _RANKED.match(behind)
    kind = kind_of(entity.type) if entity else ""
    is_qualifier = (
        (ranked is not None and ranked["rank"].casefold() in TITLES and " " in base)
        or all(is_place(identity(part)) for part in behind.split(", "))
        or is_placed_kind(kind)
        or is_placed_kind(kind_of(base))
    )
    return Title(base, behind) if is_qualifier else None


def matches(found: Sequence[Reference], relations: Iterable[Relation]) -> Iterator[Match]:
    """Yield what joins names of one entity; a match may be yielded several times."""
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
        if says_same(relation.relation):
            yield Match(known[head], known[tail], "same as", where)
        elif found_alias := _ALIAS_RELATION.fullmatch(normalise(relation.relation)):
            head, tail = (tail, head) if found_alias["reversed"] else (head, tail)
            yield alias_of(head, tail, "alias relation", where)
    stated = {one.key for one in found if one.entity}
    yield from _acronyms(found, stated)
    yield from _legal_forms(found)
    keys = {one.key for one in found}
    for key in sorted(keys):
        yield from (Match(key, other, "spelling") for other in respelled(key) if other in keys)
    for key, other in near_pairs(keys):
        if key in stated or other in stated:
            yield Match(key, other, "spelling")


def respelled(key: str) -> Iterator[str]:
    """Yield other keys of what a key means, if there are such: "Orda Lake", "Ian McKellen".

    >>> [*respelled("lake orda"), *respelled("sir ian mckellen")]
    ['orda lake', 'ian mckellen']
    """
    first, _, rest = key.partition(" ")
    if first in BEFORE_OR_BEHIND:
        yield f"{rest} {first}"
    if first in _HONORIFICS and " " in rest:
        yield rest


def states_alias(relation: str) -> bool:
    """Return whether a relation of this wording says that its ends are names of one thing."""
    return says_same(relation) or _ALIAS_RELATION.fullmatch(normalise(relation)) is not None


def _by_fullness(name: str, alias: str) -> tuple[str, str]:
    """Order two names of one thing: the alias, a title or the shorter name, comes last."""
    pairs = ((name, alias), (alias, name))
    fullness = [(not _is_epithet(*pair), len(normalise(pair[0]).split())) for pair in pairs]
    return (alias, name) if fullness[0] < fullness[1] else (name, alias)


def _is_epithet(name: str, other: str) -> bool:
    """Return whether a name is a title or an epithet, and not a longer form of the other name."""
    return is_nickname(name) and not set(normalise(other).split()) <= set(normalise(name).split())


def _acronyms(found: Sequence[Reference], stated: set[str]) -> Iterator[Match]:
    """Match acronyms of three letters or more with the only name of those initials, persons aside.

    Two letters match too many names; they count only if a passage states the acronym.
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

    "Company" and the short forms are parts of names too ("Bad Company"), so the shorter name may
    not have another type.
    """
    types = united((one.key, {one.entity.type} if one.entity else ()) for one in found)
    for key in types:
        short = without_legal_form(key)
        is_sure = key.rpartition(" ")[2] in LEGAL
        kinds = {kind_of(type_) for type_ in types.get(short, ()) if type_}
        is_firm = kinds <= {"company", "organisation"}
        if short != key and short in types and (is_sure or is_firm):
            yield Match(key, short, "legal form")


def near_pairs(keys: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield all pairs of near duplicates; single words only if they begin alike."""
    batches: dict[object, dict[str, str]] = defaultdict(dict)
    ordered = sorted(keys)
    for key in ordered:
        for rest, word in words_and_rest(key):
            yield from ((other, key) for other in near_in_batch(key, word, batches[rest]))
            batches[rest][key] = word
    for same in grouped((key.replace(" ", ""), key) for key in ordered).values():
        yield from combinations(same, 2)


def words_and_rest(key: str) -> Iterator[tuple[object, str]]:
    """Yield for each word of a name the words around it, and the word.

    Near duplicates agree in the words around one; single words, in the first letter.
    """
    parts = words_in_digits(key)
    for i, part in enumerate(parts):
        yield (parts[:i], parts[i + 1 :]) if len(parts) > 1 else part[:1], part


def near_in_batch(key: str, word: str, others: Mapping[str, str]) -> Iterator[str]:
    """Yield the near duplicates of a name among those that agree in the words around one word.

    Args:
        key: The name.
        word: Its word that may differ.
        others: The names, each with that word.
    """
    scorer = DamerauLevenshtein.normalized_similarity
    near = process.extract(word, others, scorer=scorer, score_cutoff=WORD_SIMILARITY, limit=None)
    found = [other for _, _, other in near]
    if len(key.split()) > 2:  # an initial may stand for the word
        found += [other for other, each in others.items() if 1 in (len(each), len(word))]
    yield from (other for other in found if near_duplicate(key, other))


def gather(found: Iterable[Reference], matched: Iterable[Match]) -> list[Cluster]:
    """Return one cluster of references for each entity, its names joined by these matches."""
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
        names = local.get(one.key, {}).items()
        bearers = {joined[name] for name, passages in names if passages & one.passages}
        blocks[bearers.pop() if len(bearers) == 1 else joined[one.key]].append(one)
    parts = _join_surnames([part for block in blocks.values() for part in _divide(block)])
    return _join_ids(parts)


Bearers = Mapping[str, frozenset[str]]
"""Names with an alias, each with the passages that state it."""


def _join_aliases(aliases: Mapping[str, Sequence[Match]], joined: UnionFind) -> dict[str, Bearers]:
    """Join aliases with their names; an alias of several things counts only where it is stated.

    Returns:
        By alias, the names that it means only in the passages that state it.
    """
    bearers = {alias: _bearers(stated) for alias, stated in aliases.items()}
    titles = {alias for alias, every in aliases.items() if any(m.rule == "nickname" for m in every)}
    unclear = titles | {alias for alias, names in bearers.items() if not _is_one(alias, names)}
    local = {alias: names for alias, names in bearers.items() if alias in unclear}
    apart = {frozenset((name, alias)) for alias, names in local.items() for name in names}
    for alias, names in bearers.items():
        joined.union(alias, *(name for name in names if frozenset((name, alias)) not in apart))
    # Joining one alias may show that the names of another are one.
    while known := [a for a in local.keys() - titles if len({joined[n] for n in local[a]}) == 1]:
        for alias in known:
            joined.union(*local.pop(alias), alias)
    return local


def _bearers(matched: Sequence[Match]) -> Bearers:
    """Return the names with one alias; of several statements, those with the fewest passages count.

    A record of several passages does not tell which of them states its alias.
    """
    stated = grouped((match.one, match.passages) for match in matched)
    fewest = {name: min(map(len, every)) for name, every in stated.items()}
    return {
        name: frozenset().union(*(each for each in every if len(each) == fewest[name]))
        for name, every in stated.items()
    }


def _is_one(alias: str, names: Bearers) -> bool:
    """Return whether all names of an alias mean one thing, so that the alias does everywhere.

    Two different names do not, unless one passage states both, as for a person with three names;
    but one passage may use an acronym for two things.
    """
    longest = max(names, key=lambda name: (len(name), name))
    words = set(longest.split())
    if all(words.issuperset(name.split()) or near_duplicate(name, longest) for name in names):
        return True
    one_passage = len(frozenset().union(*names.values())) == 1
    return one_passage and not any(alias in initials(name) for name in names)


def _divide(block: Cluster) -> list[Cluster]:
    """Divide a block among namesakes; references that fit several of them stay separate."""
    kinds = sorted(
        {one.traits for one in block},
        key=lambda one: (-len(one.facts), one.kind, sorted(one.facts)),
    )
    apart = [one for one in kinds if any(contradict(one, other) for other in kinds)]
    if not apart:
        return [block]
    groups: list[list[Traits]] = []
    for one in apart:
        near = (g for g in groups if _is_of_kind(one, g) or any(one.facts & o.facts for o in g))
        fitting = [group for group in near if not any(contradict(one, other) for other in group)]
        if fitting:
            max(fitting, key=lambda group: _overlap(one, group)).append(one)
        else:
            groups.append([one])
    place_of = {one: i for i, group in enumerate(groups) for one in group}
    parts: list[Cluster] = [[] for _ in (*groups, "the rest")]
    for reference in block:
        parts[place_of.get(reference.traits, -1)].append(reference)
    return attach(parts.pop(), parts)


def _is_of_kind(one: Traits, group: Sequence[Traits]) -> bool:
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
    """Attach each other reference to the only namesake that its passage, traits or name fit."""
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
    """Merge a person known by surname alone into the only person of that name in a passage."""
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
            pairs = [(a.traits, b.traits) for a in parts[i] for j in near for b in parts[j]]
            if len(near) == 1 and not any(contradict(*pair) for pair in pairs):
                joined[i] = near[0]
    for i, j in joined.items():
        parts[j] = parts[j] + parts[i]
    return [part for i, part in enumerate(parts) if i not in joined]


def _join_ids(parts: list[Cluster]) -> list[Cluster]:
    """Join what has one id, and divide what has two of one namespace; names decide the rest."""
    from networkx.utils import UnionFind

    ids_of = {one.traits: sorted(one.traits.ids) for part in parts for one in part}
    if not any(ids_of.values()):
        return parts
    joined: UnionFind = UnionFind()
    for ids in ids_of.values():
        joined.union(*ids)
    spaces: dict[object, set[str]] = defaultdict(set)
    for id in list(joined):
        spaces[joined[id]].add(id[0])
    stated = [sorted({id for one in part for id in ids_of[one.traits]}) for part in parts]
    for one, other in chain.from_iterable(combinations(ids, 2) for ids in sorted(stated)):
        ours, theirs = joined[one], joined[other]
        if spaces[ours].isdisjoint(spaces[theirs]):
            joined.union(ours, theirs)
            spaces[joined[one]] = spaces[ours] | spaces[theirs]
    found, others = defaultdict[object, Cluster](list), list[Cluster]()
    for part, ids in zip(parts, stated, strict=True):
        things: dict[object, Cluster] = {joined[id]: [] for id in ids}
        rest: Cluster = []
        for each in part:
            own = ids_of[each.traits]
            (things[joined[own[0]]] if own else rest).append(each)
        divided = attach(rest, list(things.values())) if len(things) > 1 else [part]
        for thing, references in zip(things, divided, strict=False):
            found[thing] += references
        others += divided[len(things) :]
    return [*found.values(), *others]


# --- Joints: where only the name connects two passages


def groups_of_passages(part: Cluster, has_rival: bool) -> dict[str, str]:
    """Group the passages of a cluster that certainly mean the same thing.

    Two mentions certainly mean the same thing if

    - they are in one passage;
    - their passages share a fact that few namesakes share: a title, a date, a state, a parent;
    - one passage is about the thing (its title names it), and no namesake was read;
    - a passage states both names of the thing;
    - the name is rare: it has three words or a number, or two words that are neither a given name
      with a surname nor a place, or it is a country or a state.

    Returns:
        For each passage, one passage that represents its group.

    Args:
        part: The references to one thing.
        has_rival: Whether another thing of its name was read.
    """
    from networkx.utils import UnionFind

    joined: UnionFind = UnionFind(passage for one in part for passage in one.passages)
    by_fact = united((fact, one.passages) for one in part for fact in telling(one.traits))
    passages_of_key = united((one.key, one.passages) for one in part)
    named = ((id, {one.key, *map(identity, one.aliases)}) for one in part for id in one.passages)
    for passages in by_fact.values():
        joined.union(*passages)
    is_titled = any(one.traits.values("title") for one in part)
    is_place = any(is_placed_kind(one.traits.kind) for one in part)
    for key, passages in passages_of_key.items():
        if not has_rival and (is_titled or is_distinct(key, is_place)):
            joined.union(*passages)
    for passage, keys in united(named).items():
        if len(keys) > 1:
            joined.union(passage, *(p for key in keys for p in passages_of_key.get(key, ())))
    return {passage: joined[passage] for passage in joined}


def is_distinct(key: str, is_place: bool) -> bool:
    """Return whether a name is rare, judged by its words.

    >>> [is_distinct(name, False) for name in ("northern arts guild", "john smith", "prism")]
    [True, False, False]
    """
    words = key.split()
    if len(words) > 2 or any(c.isdigit() for c in key) or is_known_place(key):
        return True
    return len(words) == 2 and not is_place and words[0] not in lexicon.NICKNAMES
