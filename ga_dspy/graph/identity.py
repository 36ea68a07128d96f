"""Identity: when two names, two records or two relation ends mean one entity.

First what a name alone shows, then what in a record keeps its entity apart from a namesake, then
what wording gives away; last, the records and relation ends of a graph gathered by entity.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache, partial
from itertools import combinations
from typing import Final, NamedTuple

from rapidfuzz.distance import DamerauLevenshtein

from ga_dspy.graph.records import Entity, GraphUpdate, Relation
from ga_dspy.text import ARTICLES, normalise

# --- Names: spelling, well-known aliases, acronyms, typing slips

_QUALIFIED: Final = re.compile(r"(?P<base>.*\S)\s*\((?P<qualifier>[^()]+)\)")
_ROMAN: Final = re.compile(r"(?:xl|l?x{0,3})(?:ix|iv|v?i{0,3})")
_ROMAN_DIGITS: Final = {"i": 1, "v": 5, "x": 10, "l": 50}
_ORDINAL: Final = re.compile(r"(\d+)(?:st|nd|rd|th)")
_NUMBER_WORDS: Final = {
    word: str(value)
    for words in (
        "one two three four five six seven eight nine ten eleven twelve",
        "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth",
    )
    for value, word in enumerate(words.split(), start=1)
}
_SMALL_WORDS: Final = ARTICLES | {"and", "at", "by", "de", "for", "in", "of", "on"}

_WELL_KNOWN: Final = {
    "united states": ("us", "usa", "united states of america", "america"),
    "united kingdom": ("uk", "united kingdom of great britain and northern ireland"),
    "soviet union": ("ussr", "union of soviet socialist republics"),
    "european union": ("eu",),
    "united nations": ("un",),
    "united arab emirates": ("uae",),
    "new york city": ("nyc",),
    "los angeles": ("la",),
    "washington dc": ("district of columbia",),
    "world war i": ("first world war", "wwi", "ww1"),
    "world war ii": ("second world war", "wwii", "ww2"),
}
_CANONICAL: Final = {alias: name for name, others in _WELL_KNOWN.items() for alias in others}

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
    r"(?:(?:is|was|also|better|commonly|professionally|formerly|previously|sometimes|originally) )*"
    r"(?:known(?: \w+)? as|aka|a k a|nee|born as|alias|nickname(?:d)?|stage name|pen name|"
    r"birth name|real name|full name|abbreviat(?:ed as|ion)|acronym)(?: (?:is|of|for))?"
)


class Title(NamedTuple):
    """A name and what its trailing parentheses add: "Prism (album)" is Prism, an album."""

    base: str
    qualifier: str


@lru_cache(maxsize=65536)
def split_qualifier(name: str) -> Title:
    """Split a trailing qualifier from a name.

    >>> split_qualifier("Prism (album)")
    Title(base='Prism', qualifier='album')
    """
    match = _QUALIFIED.fullmatch(name)
    return Title(match["base"], match["qualifier"].strip()) if match else Title(name, "")


@lru_cache(maxsize=65536)
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
    return _CANONICAL.get(plain, plain)


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


@lru_cache(maxsize=65536)
def initials(plain: str) -> frozenset[str]:
    """First letters of the words of a normalised name, with and without the small words."""
    first = [word[0] for word in plain.split()]
    main = [word[0] for word in plain.split() if word not in _SMALL_WORDS]
    return frozenset(("".join(first), "".join(main))) if len(main) > 1 else frozenset()


def near_duplicate(one: str, other: str) -> bool:
    """Whether two normalised names differ by one slip of typing, a space, or an initial.

    Every word must agree but one, and that one may not hold a number in any notation: "Henry
    VII" is not "Henry VIII", "North Korea" not "South Korea", and a name with a word more is
    another name. `WORD_SIMILARITY` says what was measured.

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


@lru_cache(maxsize=65536)
def words_in_digits(plain: str) -> tuple[str, ...]:
    """The words of a normalised name, numbers in digits whatever their notation.

    >>> words_in_digits("world war ii"), words_in_digits("second edition")
    (('world', 'war', '2'), ('2', 'edition'))
    """
    return tuple(_in_digits(word) for word in plain.split())


def _in_digits(word: str) -> str:
    if ordinal := _ORDINAL.fullmatch(word):
        return ordinal[1]
    if len(word) > 1 and _ROMAN.fullmatch(word):
        digits = [_ROMAN_DIGITS[letter] for letter in word]
        pairs = zip(digits, [*digits[1:], 0], strict=True)
        return str(sum(-digit if digit < following else digit for digit, following in pairs))
    return _NUMBER_WORDS.get(word, word)


def is_alias_relation(relation: str) -> bool:
    """Whether a relation says that its tail is another name of its head.

    >>> is_alias_relation("is better known as"), is_alias_relation("known for")
    (True, False)
    """
    return _ALIAS_RELATION.fullmatch(normalise(relation)) is not None


def plain_relation(relation: str) -> str:
    """The wording of a relation in which its tense and person do not count.

    >>> plain_relation("was born in"), plain_relation("is")
    ('born in', 'is')
    """
    plain = normalise(relation)
    return _AUXILIARY.sub("", plain) or plain


# --- Records: when two of one name describe two entities, because they contradict each other

_KINDS: Final = {
    "person": "person human man woman boy girl singer songwriter musician rapper composer "
    "actor actress comedian director filmmaker producer screenwriter writer author novelist poet "
    "playwright journalist painter sculptor architect photographer politician president king "
    "queen prince princess emperor empress duke duchess bishop pope priest saint player "
    "footballer cricketer boxer wrestler swimmer athlete coach scientist physicist chemist "
    "biologist mathematician astronomer philosopher historian engineer inventor lawyer judge "
    "businessman businesswoman admiral soldier physician nobleman noblewoman",
    "settlement": "city town village hamlet suburb settlement municipality",
    "country": "country nation",
    "subdivision": "state province county",
    "water": "river lake sea ocean bay creek",
    "mountain": "mountain volcano",
    "island": "island archipelago",
    "planet": "planet asteroid comet moon galaxy constellation",
    "element": "element metal chemical compound mineral",
    "species": "species genus animal fish bird insect mammal",
    "film": "film movie documentary",
    "song": "song single",
    "album": "album ep",
    "book": "book novel novella memoir",
    "play": "play musical opera",
    "series": "series sitcom show",
    "painting": "painting sculpture",
    "band": "band duo trio quartet orchestra choir",
    "company": "company corporation manufacturer airline",
    "school": "university college school",
    "date": "date year",
}
_KIND_OF: Final = {word: kind for kind, words in _KINDS.items() for word in words.split()}
_MAY_COINCIDE: Final = {
    frozenset(pair.split())
    for pair in ("island country", "island subdivision", "island settlement", "book series")
}
_WITHIN: Final = {
    "united states": "alabama alaska arizona arkansas california colorado connecticut delaware "
    "florida georgia hawaii idaho illinois indiana iowa kansas kentucky louisiana maine maryland "
    "massachusetts michigan minnesota mississippi missouri montana nebraska nevada new_hampshire "
    "new_jersey new_mexico new_york north_carolina north_dakota ohio oklahoma oregon pennsylvania "
    "rhode_island south_carolina south_dakota tennessee texas utah vermont virginia washington "
    "west_virginia wisconsin wyoming",
    "united kingdom": "england scotland wales northern_ireland",
    "canada": "ontario quebec british_columbia alberta manitoba saskatchewan nova_scotia "
    "new_brunswick newfoundland_and_labrador prince_edward_island",
    "australia": "new_south_wales victoria queensland western_australia south_australia tasmania",
}
_PART_OF: Final = {
    part.replace("_", " "): whole for whole, parts in _WITHIN.items() for part in parts.split()
}
_WHERE: Final = re.compile(
    r"(?:(?:country|state|province|county|region|location): ?|(?:located|situated) in )(.+)", re.I
)
_WHEN: Final = re.compile(
    r"(?:was |is )?(?:(?P<born>born|birth|date of birth)|(?P<died>died|death|date of death)|"
    r"(?P<released>released?))\b.*?\b\d{4}\b",
    re.I,
)
_YEAR: Final = re.compile(r"\b\d{4}\b")
_WORKS: Final = frozenset({"film", "song", "album", "book", "play", "series", "painting"})
_MOVABLE: Final = _WORKS | {"person", "band", "date", "species", "element", "planet"}


class Traits(NamedTuple):
    """What in a record could keep its entity apart from a namesake."""

    kind: str
    qualifier: str
    facts: frozenset[tuple[str, str]]


@lru_cache(maxsize=65536)
def kind_of(type_: str) -> str:
    """The broad kind of a type as the text words it; empty where it is unknown.

    >>> kind_of("American singer-songwriter"), kind_of("capital city of France"), kind_of("thing")
    ('person', 'settlement', '')
    """
    head = normalise(type_.split(" of ")[0]).split()
    return next((_KIND_OF[word] for word in reversed(head) if word in _KIND_OF), "")


@lru_cache(maxsize=65536)
def traits(type_: str, attributes: tuple[str, ...], qualifier: str) -> Traits:
    """Read the kind, the whereabouts and the years out of a record's wording."""
    short = (text for text in attributes if len(text.split()) <= 2)
    kinds = (kind_of(text) for text in (type_, qualifier, *short))
    kind = next((known for known in kinds if known), "")
    facts = {fact for text in (*attributes, type_, qualifier) for fact in _facts_in(text)}
    telling = {"born", "died"} if kind in ("", "person") else set[str]()
    if kind in _WORKS:
        facts |= {("released", year) for year in _YEAR.findall(f"{type_} {qualifier}")}
        telling.add("released")
    if kind not in _MOVABLE:
        telling.add("in")
    known = kind_of(qualifier) or _facts_in(qualifier)
    return Traits(
        kind,
        "" if known else normalise(qualifier),
        frozenset(fact for fact in facts if fact[0] in telling),
    )


@lru_cache(maxsize=65536)
def _facts_in(text: str) -> frozenset[tuple[str, str]]:
    if when := _WHEN.match(text):
        return frozenset({(when.lastgroup or "", when[0][-4:])})
    where = _WHERE.fullmatch(text)
    places = {identity(part) for part in (where[1] if where else text).split(",") if part.strip()}
    if not where and not all(place in _PART_OF or place in _WITHIN for place in places):
        return frozenset()
    return frozenset(("in", p) for p in places | {_PART_OF[p] for p in places if p in _PART_OF})


def contradict(one: Traits, other: Traits) -> bool:
    """Whether two records of one name cannot describe one entity.

    They cannot when both state a kind, a qualifier, a whereabouts or a year, and differ in it.
    Years of birth, death or release that are one apart count as one: sources differ by that.

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
    if one.qualifier and other.qualifier and one.qualifier != other.qualifier:
        return True
    keys = {key for key, _ in one.facts} & {key for key, _ in other.facts}
    return any(_differ(key, one, other) for key in keys)


def _differ(key: str, one: Traits, other: Traits) -> bool:
    ours, theirs = ({value for k, value in each.facts if k == key} for each in (one, other))
    if key != "in":
        return all(abs(int(a) - int(b)) > 1 for a in ours for b in theirs)
    finest, their_finest = (places - set(map(_PART_OF.get, places)) for places in (ours, theirs))
    return finest.isdisjoint(theirs) and their_finest.isdisjoint(ours)


# --- Wording: names that name nothing, guesses, and aliases that a text states

_NOTHING: Final = re.compile(
    r"(?i:unknown|n\s?/?\s?a|none|null|nil|nothing|nobody|no[ -]one|tb[da]|undefined|"
    r"un(?:named|stated|specified|identified|disclosed|determined)|some(?:one|body|thing|where)|"
    r"(?:(?:is|was|are|were) )?not (?:yet )?(?:mentioned|specified|stated|known|given|provided|"
    r"found|clear|named|identified|listed|available|applicable|determined|disclosed)"
    r"(?: (?:in|by|here)\b.*)?|"
    r"no (?:information|mention|answer|data|name)(?: .*)?|"
    r"(?:entity|person|name|node|place|relation|head|tail|attribute)(?: ?[\dA-Ex]| name)?|answer)"
    r"|(?:[Uu]nknown|[Uu]nnamed|[Uu]nspecified|[Uu]nidentified|[Ss]ome|[Aa]nother|[Aa] certain) "
    r"[a-z]+(?: [a-z]+)?"
    r"|he|she|it|they|him|her|them|this|that|these|those|who|what|which|where|when|others?|various"
)
_ROLES: Final = (
    "singer|artist|actor|actress|person|man|woman|director|author|writer|band|film|movie|song|album|"
    "book|company|city|country|place|team|player|question|answer|passage|text|document|entity|"
    "performer|composer|father|mother|wife|husband|spouse|founder|school|university"
)
_ROLE: Final = re.compile(
    r"(?:[Tt]he|[Tt]his|[Tt]hat|[Hh]is|[Hh]er|[Tt]heir|[Ii]ts) "
    rf"(?:(?:same|said|first|second|other) )?(?:{_ROLES})"
)
_HEDGE: Final = (
    r"(?:un)?likely|possibly|presumably|probably|perhaps|maybe|supposedly|potentially|apparently|"
    r"conceivably|seemingly|unconfirmed|unclear|uncertain|speculated|it is possible|"
    r"(?:may|might|could) (?:also |well |not )?(?:be|have|refer|mean)|(?:seems?|appears?) to"
)
_HEDGED: Final = re.compile(rf"\b(?:{_HEDGE})\b|\A(?i:{_HEDGE}) (?=[a-z0-9])|\(\?\)")

_PRONOUNS: Final = frozenset(("He", "She", "It", "They"))
_WORD: Final = r"(?:(?:[A-Z]\.)+|(?:Dr|St|Mrs?|Jr|Sr)\.|[A-ZÀ-ÖØ-Þ][\w'’-]*)"
_JOINT: Final = r"(?:of|the|and|de|da|di|von|van|der|la|le|al|bin|ibn|&)"
_NAME: Final = rf"{_WORD}(?:[ -](?:{_JOINT} ){{0,2}}(?:{_WORD}|\d+))*"
_MANNER: Final = r"(?:\w+ly|also|better|best|more|sometimes|otherwise)"
_KNOWN_AS: Final = re.compile(
    rf"(?P<name>{_NAME})(?:\s*\([^()]*\))?[\s,(]+(?:is |was )?(?:{_MANNER} )*"
    rf"(?:known (?:{_MANNER} )?as|a\.?k\.?a\.?|nicknamed)[\s\"“'‘]+(?P<alias>{_NAME})"
    rf"(?:[\"”'’]? or [\"“'‘]?(?P<other>{_NAME}))?"
)
_NEE: Final = re.compile(rf"(?P<name>{_NAME})[\s,(\"“]+n[ée]e[\s\"”]+(?P<alias>{_NAME})")
_IN_PARENTHESES: Final = re.compile(rf"(?P<name>{_NAME})\s*\(\s*(?P<alias>[A-Z][A-Za-z.]{{1,9}})\)")


def is_placeholder(name: str) -> bool:
    """Whether a name names nothing: "unknown", "N/A", "[Entity 1]", "the singer", "?".

    Names that start in capitals are spared where a work or a band could bear them.

    >>> [is_placeholder(name) for name in ("Not mentioned", "the band", "The Band", "The Who")]
    [True, True, False, False]
    """
    plain = " ".join(name.strip("[]<>{}()\"'. ").split())
    if not any(char.isalnum() for char in plain):
        return not plain.strip("?-–—_…. ")
    return bool(_NOTHING.fullmatch(plain) or _ROLE.fullmatch(plain))


def is_hedged(text: str) -> bool:
    """Whether a wording is a guess: "likely a singer", "may be the same person".

    The words count in lower case, or at the start before lower case; so titles are spared.

    >>> [is_hedged(text) for text in ("Possibly a singer", "may be", "May 4, 1984", "Maybe")]
    [True, True, False, False]
    """
    return _HEDGED.search(text) is not None


def stated_aliases(text: str) -> tuple[tuple[str, str], ...]:
    """Pairs of a name and another name for it, where a text states that: (name, alias).

    Reads "known as" in its variants, "née" (a lone maiden name is put behind the first name), and
    an acronym in parentheses. What stands behind a comma ("William, Prince of Orange, known as")
    is no name of its own, and is passed over.

    >>> stated_aliases("Robert Dale Hayes (born 1950), better known as Bob Hayes, founded the "
    ...                "Northern Arts Guild (NAG).")
    (('Robert Dale Hayes', 'Bob Hayes'), ('Northern Arts Guild', 'NAG'))
    """
    found = [
        (match["name"], alias)
        for match in _KNOWN_AS.finditer(text)
        if not text.endswith(", ", 0, match.start())
        for alias in (match["alias"], match["other"])
        if alias
    ]
    for match in _NEE.finditer(text):
        first = "" if " " in match["alias"] else f"{match['name'].split()[0]} "
        found.append((match["name"], first + match["alias"]))
    found += [
        (match["name"], match["alias"])
        for match in _IN_PARENTHESES.finditer(text)
        if is_acronym(match["alias"], match["name"])
    ]
    return tuple(
        (name, alias)
        for name, alias in dict.fromkeys(found)
        if name not in _PRONOUNS and normalise(name) != normalise(alias)
    )


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
    """Two keys of one entity, the rule that joins them, and the passages that state it, if any."""

    one: str
    other: str
    rule: str
    passages: frozenset[str] = frozenset()


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
    if qualifier and is_acronym(qualifier, base):
        aliases, qualifier = (*aliases, qualifier), ""
    stated = (entity.type, entity.attributes) if entity else ("", ())
    keys = tuple(identity(alias) for alias in aliases)
    return Reference(name, identity(base), keys, traits(*stated, qualifier), passages, entity)


def matches(found: Sequence[Reference], relations: Iterable[Relation]) -> Iterator[Match]:
    """What joins names of one entity; a match may come several times."""
    for one in found:
        yield from (Match(one.key, alias, "stated alias", one.passages) for alias in one.aliases)
    for relation in relations:
        if is_alias_relation(relation.relation):
            ends = identity(relation.head), identity(relation.tail)
            yield Match(*ends, "alias relation", passages_of(relation))
    stated = {one.key for one in found if one.entity}
    expansions: dict[str, list[str]] = defaultdict(list)
    for name in stated:
        for letters in initials(name):
            expansions[letters].append(name)
    for short, key in {(one.name, one.key) for one in found if " " not in one.key}:
        fitting = expansions.get(acronym_letters(short), ())
        if len(fitting) == 1:
            yield Match(key, fitting[0], "acronym")
    for key, other in near_pairs({one.key for one in found}):
        if (key in stated or other in stated) and near_duplicate(key, other):
            yield Match(key, other, "spelling")


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

    joined = UnionFind()
    for match in matched:
        joined.union(match.one, match.other)
    blocks: dict[str, Cluster] = defaultdict(list)
    for one in found:
        blocks[joined[one.key]].append(one)
    return _join_surnames([part for block in blocks.values() for part in _divide(block)])


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
    for one in apart:
        fitting = [
            group for group in groups
            if _overlap(one, group) and not any(contradict(one, other) for other in group)
        ]  # fmt: skip
        if fitting:
            max(fitting, key=partial(_overlap, one)).append(one)
        else:
            groups.append([one])
    parts = [[one for one in block if one.traits in group] for group in groups]
    return attach([one for one in block if one.traits not in apart], parts)


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
