"""Identity: when two names, two records or two relation ends mean one entity.

First what a name alone shows, then what in a record keeps its entity apart from a namesake; last,
the records and relation ends of a graph gathered by entity.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from rapidfuzz.distance import DamerauLevenshtein

from ga_dspy import lexicon
from ga_dspy.graph.records import Entity, GraphUpdate, Relation
from ga_dspy.text import ARTICLES, normalise, remembered

if TYPE_CHECKING:
    from networkx.utils import UnionFind

_TABLES: Final = json.loads(Path(__file__).with_name("identity.json").read_text("utf-8"))


def _group_of(table: str) -> dict[str, str]:
    """The group of each member of a table, which lists them by group."""
    return {member: group for group, members in _TABLES[table].items() for member in members}


# --- Names: spelling, well-known aliases, acronyms, typing slips

_QUALIFIED: Final = re.compile(r"(?P<base>.*\S)\s*\((?P<qualifier>[^()]+)\)")
_ROMAN: Final = re.compile(r"(?:xl|l?x{0,3})(?:ix|iv|v?i{0,3})")
_ROMAN_DIGITS: Final = {"i": 1, "v": 5, "x": 10, "l": 50}
_ORDINAL: Final = re.compile(r"(\d+)(?:st|nd|rd|th)")
_NUMBER_WORDS: Final = _group_of("numbers")
_SMALL_WORDS: Final = ARTICLES | {"and", "at", "by", "de", "for", "in", "of", "on"}

WORD_SIMILARITY: Final = 0.87
"""How alike two spellings of one word must be: one slip in eight letters or more.

Similarity is one minus the Damerau-Levenshtein distance over the longer length. Measured on
2,790 pairs of an article's title and another name for it that are spelled differently, and on
77,881 pairs of different titles in one question's context (HotpotQA, 2Wiki, MuSiQue):
`near_duplicate` joins 84 of the former and 3 of the latter; a plain edit ratio over the whole
name, set to join as many of the former (93 %), joins 409 of the latter.
"""

_AUXILIARY: Final = re.compile(r"\A(?:(?:is|was|are|were|be|been|has|have|had) (?=.))+")
_ALIAS_RELATION: Final = re.compile(
    r"(?:(?:is|was|also|better|commonly|professionally|formerly|previously|sometimes|originally|an?|"
    r"another|the) )*"
    r"(?:known(?: \w+)? as|aka|a k a|nee|born as|alias|nickname(?:d)?|stage name|pen name|"
    r"birth name|real name|full name|abbreviat(?:ed as|ion)|acronym|(?:other )?name|called|"
    r"spell(?:ed|ing)(?: as)?)(?: (?P<reversed>of|for)| is)?"
)
_SAME_AS: Final = re.compile(
    r"(?:(?:is|was|are|exactly|the|one and) )*"
    r"(?:same(?: (?:person|place|thing|one|entity|man|woman|work|organi[sz]ation))? as|same|sameas|"
    r"identical(?: to| with)?|equivalent to|equals|equal to)"
)
_TITLES: Final = frozenset(_TABLES["titles"])
_LEGAL: Final = frozenset(_TABLES["legal"])
_LEGAL_AT_TIMES: Final = frozenset(_TABLES["legal_at_times"])


class Title(NamedTuple):
    """A name and what its trailing parentheses add: "Prism (album)" is Prism, an album."""

    base: str
    qualifier: str


@remembered(most=16384, longest=200)
def split_qualifier(name: str) -> Title:
    """Split a trailing qualifier from a name.

    >>> split_qualifier("Prism (album)")
    Title(base='Prism', qualifier='album')
    """
    match = _QUALIFIED.fullmatch(name.strip())
    return Title(match["base"], match["qualifier"].strip()) if match else Title(name, "")


@remembered(most=16384, longest=200)
def identity(name: str) -> str:
    """`normalise`, without a qualifier, and with well-known aliases replaced.

    An alias of up to three letters counts only in capitals, so that "us" is not a country.

    >>> identity("the U.S."), identity("us"), identity("Prism (album)")
    ('united states', 'us', 'prism')
    """
    base = split_qualifier(name).base
    plain = normalise(base)
    if len(plain) <= 3 and not "".join(base.split()[-1:]).isupper():
        return plain
    return lexicon.FULL_NAMES.get(plain, plain)


def is_acronym(short: str, name: str) -> bool:
    """Whether `short`, in capitals, is made of the first letters of the words of `name`.

    >>> is_acronym("W.H.O.", "World Health Organization"), is_acronym("BoE", "Bank of England")
    (True, True)
    """
    return acronym_letters(short) in initials(normalise(name))


def acronym_letters(short: str) -> str:
    """The letters of what could be an acronym, in lower case; "?" for what could not."""
    letters = re.sub(r"[.\s]", "", short)
    could_be = 2 <= len(letters) <= 8 and letters[0].isupper() and letters[-1].isupper()
    return letters.casefold() if could_be else "?"


@remembered(most=16384, longest=200)
def initials(plain: str) -> frozenset[str]:
    """First letters of the words of a normalised name, with and without the small words."""
    first = [word[0] for word in plain.split()]
    main = [word[0] for word in plain.split() if word not in _SMALL_WORDS]
    return frozenset(("".join(first), "".join(main))) if len(main) > 1 else frozenset()


def near_duplicate(one: str, other: str) -> bool:
    """Whether two normalised names differ by one slip of typing, a space, or an initial.

    Every word must agree but one, and that one may not hold a number in any notation: "Henry
    VII" is not "Henry VIII", "North Korea" not "South Korea", and a name with a word more is
    another name. An ending is no slip: the Romanian language is not Romania. `WORD_SIMILARITY`
    says what was measured.

    >>> near_duplicate("abdulatif al sayegh", "abdullatif al sayegh")
    True
    >>> near_duplicate("john f kennedy", "john fitzgerald kennedy")
    True
    >>> near_duplicate("john adams", "john quincy adams")
    False
    """
    if one.replace(" ", "") == other.replace(" ", ""):
        return True
    ours, theirs = words_in_digits(one), words_in_digits(other)
    if len(ours) != len(theirs):
        return False
    unequal = [(a, b) for a, b in zip(ours, theirs, strict=True) if a != b]
    if len(unequal) != 1:
        return not unequal
    short, long = sorted(unequal[0], key=len)
    if any(c.isdigit() for c in short + long):
        return False
    if len(short) == 1:
        return len(ours) > 2 and long.startswith(short) and ours[-1] == theirs[-1]
    if long.startswith(short):
        return False
    return DamerauLevenshtein.normalized_similarity(short, long) >= WORD_SIMILARITY


LONG_WORD: Final = 20
"""Up to this length two alike words are at most two slips apart; there are few longer ones."""


def shortenings(word: str) -> set[str]:
    """What is left of a word, of up to `LONG_WORD` letters, when letters are left out.

    Near duplicates share one such rest: two words whose Damerau-Levenshtein distance is n become
    equal when at most n letters of each are left out, and `WORD_SIMILARITY` bounds n.

    >>> shortenings("dog"), shortenings("abdulatif") & shortenings("abdullatif")
    ({'dog'}, {'abdulatif'})
    """
    rests = level = {word}
    if any(c.isdigit() for c in word):
        return rests
    for _ in range(min(_slips(len(word)), 2)):
        level = {rest[:i] + rest[i + 1 :] for rest in level for i in range(len(rest))}
        rests = rests | level
    return rests


def _slips(length: int) -> int:
    """How many slips apart a word may be from the longest one that is still alike."""
    slips = 0
    while slips + 1 <= (1 - WORD_SIMILARITY) * (length + slips + 1) + 1e-9:
        slips += 1
    return slips


@remembered(most=16384, longest=200)
def words_in_digits(plain: str) -> tuple[str, ...]:
    """The words of a normalised name, numbers in digits; an ordinal is no cardinal.

    >>> words_in_digits("world war ii"), words_in_digits("second edition")
    (('world', 'war', '2'), ('2th', 'edition'))
    """
    return tuple(_in_digits(word) for word in plain.split())


def _in_digits(word: str) -> str:
    if ordinal := _ORDINAL.fullmatch(word):
        return f"{ordinal[1]}th"
    if len(word) > 1 and _ROMAN.fullmatch(word):
        digits = [_ROMAN_DIGITS[letter] for letter in word]
        pairs = zip(digits, [*digits[1:], 0], strict=True)
        return str(sum(-digit if digit < following else digit for digit, following in pairs))
    return _NUMBER_WORDS.get(word, word)


def says_same(relation: str) -> bool:
    """Whether a relation says that its two ends are one and the same.

    >>> says_same("is the same as"), says_same("same year as its rival")
    (True, False)
    """
    return _SAME_AS.fullmatch(normalise(relation)) is not None


def is_nickname(name: str) -> bool:
    """Whether a name is a title or an epithet that many may bear: "The King", "Princess of Wales".

    >>> is_nickname("The Boss"), is_nickname("Duke of York"), is_nickname("Prince Harry")
    (True, True, False)
    """
    words = name.casefold().split()
    if words[:1] == ["the"]:
        return True
    return bool(words) and words[0] in _TITLES and (len(words) == 1 or words[1] in _SMALL_WORDS)


def without_legal_form(plain: str) -> str:
    """A normalised name without the legal form at its end.

    >>> without_legal_form("limode co ltd"), without_legal_form("company")
    ('limode', 'company')
    """
    words = plain.split()
    while len(words) > 1 and words[-1] in _LEGAL | _LEGAL_AT_TIMES:
        words.pop()
    return " ".join(words)


def plain_relation(relation: str) -> str:
    """The wording of a relation in which its tense and person do not count.

    >>> plain_relation("was born in"), plain_relation("is")
    ('born in', 'is')
    """
    plain = normalise(relation)
    return _AUXILIARY.sub("", plain) or plain


# --- Records: when two of one name describe two entities, because they contradict each other

_KIND_OF: Final = _group_of("kinds")
_MAY_COINCIDE: Final = {frozenset(pair.split()) for pair in _TABLES["may_coincide"]}
_PART_OF: Final = _group_of("within")
_WHOLES: Final = frozenset(_TABLES["within"])
_WHERE: Final = re.compile(
    r"(?:(?:country|state|province|county|region|location): ?|(?:located|situated) in )(.+)", re.I
)
_WHEN: Final = re.compile(
    r"(?:was |is |first |date of |year of )*(?:(?P<born>born|birth)|(?P<died>died|death)|"
    r"(?P<released>released?|premiered|premiere|published|publication|aired|issued))\b.*?\b\d{4}\b",
    re.I,
)
_LIFE: Final = re.compile(r"\D{0,4}(?P<born>\d{4})\s?[-–—]\s?(?P<died>\d{4})")
_DATED: Final = re.compile(
    r"(?:(?:release )?(?:year|date)\b:? ?|from |of |in )?(\d{4})\b(.{0,60})", re.I
)
_SYNONYMS: Final = _group_of("synonyms")
_PLACE_WORDS: Final = ARTICLES.union(_TABLES["place_words"])
_YEAR: Final = re.compile(r"\b\d{4}\b")
_WORKS: Final = frozenset({"film", "song", "album", "book", "play", "series", "painting"})
_MOVABLE: Final = _WORKS | {"person", "band", "date", "species", "element", "planet"}


class Traits(NamedTuple):
    """What in a record could keep its entity apart from a namesake."""

    kind: str
    qualifier: str
    facts: frozenset[tuple[str, str]]


@remembered(most=16384, longest=200)
def kind_of(type_: str) -> str:
    """The broad kind of a type as the text words it; empty where it is unknown.

    >>> kind_of("American singer-songwriter"), kind_of("capital city of France"), kind_of("thing")
    ('person', 'settlement', '')
    """
    head = normalise(type_.split(" of ")[0]).split()
    return next((_KIND_OF[word] for word in reversed(head) if word in _KIND_OF), "")


@lru_cache(maxsize=16384)
def traits(type_: str, attributes: tuple[str, ...], qualifier: str) -> Traits:
    """Read the kind, the whereabouts and the years out of a record's wording."""
    short = (text for text in attributes if len(text.split()) <= 2)
    kinds = (kind_of(text) for text in (type_, qualifier, *short))
    kind = next((known for known in kinds if known), "")
    facts = {fact for text in (*attributes, type_, qualifier) for fact in _facts_in(text)}
    telling = {"born", "died"} if kind in ("", "person") else set[str]()
    if kind in _WORKS:
        facts |= {("released", year) for year in _YEAR.findall(f"{type_} {qualifier}")}
        dated = filter(None, map(_DATED.fullmatch, attributes))
        facts |= {("released", one[1]) for one in dated if _is_sort(one[2], kind)}
        telling.add("released")
    if kind == "person":
        lives = filter(None, map(_LIFE.fullmatch, (*attributes, qualifier)))
        facts |= {(event, life[event]) for life in lives for event in ("born", "died")}
    if kind not in _MOVABLE:
        telling.add("in")
    return Traits(
        kind,
        identity(qualifier),
        frozenset(fact for fact in facts if fact[0] in telling),
    )


def _is_sort(text: str, kind: str) -> bool:
    """Whether what follows a year says what sort of work it is: "1969 film", "1969 western"."""
    is_short = len(text.split()) < 3 and text.islower() and not kind_of(text)
    return not text or is_short or kind_of(text) == kind


@remembered(most=16384, longest=200)
def _facts_in(text: str) -> frozenset[tuple[str, str]]:
    if when := _WHEN.match(text):
        return frozenset({(when.lastgroup or "", when[0][-4:])})
    where = _WHERE.fullmatch(text)
    places = {identity(part) for part in (where[1] if where else text).split(",") if part.strip()}
    if not where and not all(place in _PART_OF or place in _WHOLES for place in places):
        return frozenset()
    return frozenset(("in", p) for p in places | {_PART_OF[p] for p in places if p in _PART_OF})


def contradict(one: Traits, other: Traits) -> bool:
    """Whether two records of one name cannot describe one entity.

    They cannot when both state a kind, a qualifier, a whereabouts or a year, and differ in it.
    A qualifier may say more than the other: "(film)", "(1925 film)". Years of birth, death or
    release that are one apart count as one, where no qualifier states them: sources differ by that.

    >>> england = traits("city", ("country: England",), "")
    >>> contradict(england, traits("city", ("state: Massachusetts",), ""))
    True
    >>> contradict(england, traits("university town", ("located in the UK",), ""))
    False
    """
    if one == other:
        return False
    kinds = frozenset((one.kind, other.kind)) - {""}
    if len(kinds) == 2 and kinds not in _MAY_COINCIDE:
        return True
    if _qualified_apart(one.qualifier, other.qualifier):
        return True
    keys = {key for key, _ in one.facts} & {key for key, _ in other.facts}
    return any(_differ(key, one, other) for key in keys)


@lru_cache(maxsize=16384)
def _qualified_apart(one: str, other: str) -> bool:
    """Whether two qualifiers differ, and neither only says more than the other."""
    if not one or not other or one == other:
        return False
    words, others = (
        {_SYNONYMS.get(word, word) for word in text.split()} - _PLACE_WORDS or {text}
        for text in (one, other)
    )
    if words <= others or others <= words:
        return False
    places = [
        frozenset(fact for fact in _facts_in(text) if fact[0] == "in") for text in (one, other)
    ]
    if all(places):
        return _differ("in", *(Traits("", "", facts) for facts in places))
    return True


def _differ(key: str, one: Traits, other: Traits) -> bool:
    ours, theirs = ({value for k, value in each.facts if k == key} for each in (one, other))
    if key != "in":
        return all(abs(int(a) - int(b)) > 1 for a in ours for b in theirs)
    finest, their_finest = (places - set(map(_PART_OF.get, places)) for places in (ours, theirs))
    return finest.isdisjoint(theirs) and their_finest.isdisjoint(ours)


# --- Entities: which records and relation ends mean one
#
# The result is a function of the set of records, so the order in which they came cannot matter
# for who is who; it decides the order of display alone. Names that mean the same make a block; a
# block whose records contradict each other is divided among the namesakes, relation ends by the
# passages they share with them; last, a lone surname joins the one person who bears it in the
# same passage. `ga_dspy.graph.knowledge_graph` gives each cluster its name.


class Reference(NamedTuple):
    """The name of one record or of one relation end, and what keeps it apart from namesakes."""

    name: str
    key: str
    aliases: tuple[str, ...]
    traits: Traits
    passages: frozenset[str]
    entity: Entity | None


Cluster = list[Reference]


class Match(NamedTuple):
    """Two keys of one entity, the rule that joins them, and the passages that state it, if any.

    Where the rule is an alias, `other` is the alias.
    """

    one: str
    other: str
    rule: str
    passages: frozenset[str] = frozenset()


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
    return [
        *(_reference(entity.name, passages_of(entity), entity) for entity in records.entities),
        *(_reference(name, passages) for name, passages in ends),
    ]


def _reference(name: str, passages: frozenset[str], entity: Entity | None = None) -> Reference:
    """Read a name; parentheses that hold its acronym are an alias, any other a qualifier."""
    base, qualifier = split_qualifier(name)
    aliases = entity.aliases if entity else ()
    if qualifier and (is_acronym(qualifier, base) or is_acronym(base, qualifier)):
        aliases, qualifier = (*aliases, qualifier), ""
    stated = (entity.type, entity.attributes) if entity else ("", ())
    return Reference(name, identity(base), aliases, traits(*stated, qualifier), passages, entity)


def matches(found: Sequence[Reference], relations: Iterable[Relation]) -> Iterator[Match]:
    """What joins names of one entity; a match may come several times."""
    for one in found:
        for alias in one.aliases:
            yield _alias(one.name, alias, "stated alias", one.passages)
    for relation in relations:
        head, tail, where = relation.head, relation.tail, passages_of(relation)
        if says_same(relation.relation):
            yield Match(identity(head), identity(tail), "same as", where)
        elif said := _ALIAS_RELATION.fullmatch(normalise(relation.relation)):
            head, tail = (tail, head) if said["reversed"] else (head, tail)
            yield _alias(head, tail, "alias relation", where)
    stated = {one.key for one in found if one.entity}
    yield from _acronyms(found, stated)
    yield from _legal_forms(found)
    for key, other in near_pairs({one.key for one in found}):
        if (key in stated or other in stated) and near_duplicate(key, other):
            yield Match(key, other, "spelling")


def _alias(name: str, alias: str, rule: str, passages: frozenset[str]) -> Match:
    """The match of a name and its alias: of the two, the alias is the title or the shorter one."""
    fullness = [(not is_nickname(each), len(normalise(each).split())) for each in (name, alias)]
    if fullness[0] < fullness[1]:
        name, alias = alias, name
    rule = "nickname" if is_nickname(alias) else rule
    return Match(identity(name), identity(alias), rule, passages)


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
        is_sure = key.split()[-1:] and key.split()[-1] in _LEGAL
        is_other = any(kind_of(type_) != "company" for type_ in types.get(short, ()))
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
        key=lambda one: (-len(one.facts), one.kind, one.qualifier, sorted(one.facts)),
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
    facts = {fact for other in group for fact in other.facts}
    return len(one.facts & facts) + any(one.kind == other.kind != "" for other in group)


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
