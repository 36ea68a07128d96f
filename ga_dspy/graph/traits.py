"""Traits: what distinguishes a mention of an entity from its namesakes.

A passage is about the entity in its title. Two mentions of one name mean two entities if their
passages contradict each other: in the kind, the title, the location, a date, a rank, or another
single-valued fact.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import accumulate, chain, product, starmap
from typing import Final, NamedTuple

from ga_dspy import lexicon
from ga_dspy.graph.identity import (
    TABLES,
    groups,
    identity,
    near_duplicate,
    relation_key,
    split_title,
)
from ga_dspy.terms import ORDINAL_WORDS, fold
from ga_dspy.text import ARTICLES, cached_short, normalise

Facts = frozenset[tuple[str, str]]


class Traits(NamedTuple):
    """The kind of an entity, and its distinguishing facts as (key, value)."""

    kind: str
    facts: Facts

    def values(self, key: str) -> frozenset[str]:
        """Return the values of a key."""
        return frozenset(value for each, value in self.facts if each == key)

    @property
    def keys(self) -> frozenset[str]:
        """Return the keys of the facts."""
        return frozenset(key for key, _ in self.facts)

    @property
    def ids(self) -> Facts:
        """Return the facts that are ids, as `id_line` writes them."""
        return frozenset(fact for fact in self.facts if fact[0].startswith(_ID_KEY))


# --- Ids: one id means one entity, whatever its names; two ids of one namespace, two entities

_ID_KEY: Final = "id "
_ID: Final = re.compile(r"(?P<namespace>\w[\w+.-]*://\S*[/#]|[^\s:]+:)(?P<value>\S+)")
LOCAL: Final = "@"
"""Begins the namespace of ids that are local to one file and not shown."""


def id_line(id: str) -> str:
    """Return an id as a line for `Entity.about`.

    Raises:
        ValueError: The id has no namespace.

    >>> id_line("wikidata:Q42"), id_line("http://example.org/drug/7")
    ('id wikidata:: Q42', 'id http://example.org/drug/: 7')
    """
    match = _ID.fullmatch(id)
    if match is None:
        raise ValueError("an id needs a namespace, as in wikidata:Q42")
    return f"{_ID_KEY}{match['namespace']}: {match['value']}"


def ids_in(lines: Iterable[str]) -> tuple[str, ...]:
    """Return the ids among the lines of `Entity.about`, except those local to a file.

    >>> ids_in(["kind: person", "id wikidata:: Q42", "id @my.graphml:: n0"])
    ('wikidata:Q42',)
    """
    found = (line.removeprefix(_ID_KEY) for line in lines if line.startswith(_ID_KEY))
    return tuple(id.replace(": ", "", 1) for id in found if not id.startswith(LOCAL))


# --- Kinds

_KIND_OF: Final = groups("kinds")
_BROAD: Final = groups("broad")
_FIELD_OF: Final = groups("fields")
_MAY_COINCIDE: Final = {frozenset(pair.split()) for pair in TABLES["may_coincide"]}
WORKS: Final = frozenset((*TABLES["broad"]["work"], "work"))
_MOVABLE: Final = WORKS | {"person", "band", "date", "species", "element", "planet", "ship"}
_ADJECTIVES: Final = re.compile(r"\A(?:[a-z-]+, )+(?=[a-z-]+ )")
"""The adjectives with commas before the noun that names a kind: "round, edible fruit"."""
_HEAD_ENDS: Final = re.compile(
    r",| (?:of|in|at|by|for|from|with|to|who|which|that|on|based|directed|written|starring|known|"
    r"located|born|used|released|published|produced|created)\b"
)


@cached_short(maxsize=16384, max_length=200)
def kind_of(type_: str) -> str:
    """Return the kind that a type in free wording means; empty if unknown.

    >>> kind_of("American singer-songwriter"), kind_of("capital city of France"), kind_of("thing")
    ('person', 'settlement', '')
    """
    plain = _ADJECTIVES.sub("", type_)
    head = normalise(_HEAD_ENDS.split(plain, maxsplit=1)[0]).split()
    return next((_KIND_OF[word] for word in reversed(head) if word in _KIND_OF), "")


def broad_kind(kind: str) -> str:
    """Return "work" for any work, "place" for any place, else the kind itself."""
    if kind in WORKS:
        return "work"
    return "place" if is_placed_kind(kind) else kind


def is_placed_kind(kind: str) -> bool:
    """Return whether entities of a kind are places, which their location distinguishes."""
    return kind == "place" or kind in TABLES["broad"]["place"]


def _kinds_apart(one: str, other: str) -> bool:
    if not one or not other or one == other or frozenset((one, other)) in _MAY_COINCIDE:
        return False
    return other not in (_BROAD.get(one), one) and one not in (_BROAD.get(other), other)


def _finest(kinds: Iterable[str]) -> str:
    """Return the first kind more specific than work, place or organisation, else the first."""
    known = [kind for kind in kinds if kind]
    return next((kind for kind in known if kind not in TABLES["broad"]), "".join(known[:1]))


# --- Facts in a type, an attribute or a description

_EVENTS: Final = groups("events")
_EVENT: Final = "|".join(sorted(_EVENTS, key=len, reverse=True))
_WHEN: Final = re.compile(
    rf"\b({_EVENT})\b(?:(?!\b(?:{_EVENT})\b)[^;]){{0,40}}?\b(\d{{3,4}})\b", re.IGNORECASE
)
_YEAR: Final = re.compile(r"\b(?:1\d|20)\d\d\b")
_LIFE: Final = re.compile(
    r"\(?\s*(?:born )?(?P<born>[^–—()-]*?\d{3,4})[^–—()\d]{0,30}[-–—]\s?"
    r"(?P<died>[^–—();]*?\d{3,4})\b"
)
_DATED: Final = re.compile(
    r"(?:(?:release )?(?:year|date)\b:? ?|from |of |in )?(\d{4})\b(.{0,60})", re.IGNORECASE
)
_DIED: Final = re.compile(r"\bd\.\s?[^()]*?(\d{3,4})\b")
_RANK: Final = re.compile(
    r"\b(?P<number>\d{1,2}(?:st|nd|rd|th)|[a-z]{5,8}) (?P<rank>duke|earl|baron|viscount|marquess|"
    r"marquis|count|prince|lord|baronet|king|pope)\b(?P<land>(?: of)?(?: (?!and\b)[a-z]+){0,2})"
)
_GENERATION: Final = re.compile(
    r"(?:\A|[\s,(])(?:(?P<first>[Ss]n?r\b|[Ss]enior\b|(?:the )?[Ee]lder\b)|"
    r"(?P<second>[Jj]n?r\b|[Jj]unior\b|(?:the )?[Yy]ounger\b))\.?\)?\Z"
)
_WHERE: Final = re.compile(
    r"(?:(?P<level>country|state|province|county|region|location): ?|"
    r"(?:located|situated|lies|lie|based|headquartered)(?: (?:north|south|east|west)\w*)? in )"
    r"(?P<place>.+)",
    re.IGNORECASE,
)
_NAMED_PLACES: Final = re.compile(r"[A-Z][\w'’.]*(?: (?:of )?[A-Z][\w'’.]*)*")
_LEVEL: Final = {"country": "0", "state": "1", "province": "1", "county": "2"}
_PART_OF: Final = groups("within")
_WHOLES: Final = frozenset(TABLES["within"]) | lexicon.COUNTRIES
_KNOWN: Final = _WHOLES | _PART_OF.keys()
_SYNONYMS: Final = groups("synonyms")
_PLACE_WORDS: Final = ARTICLES.union(TABLES["place_words"])


def is_known_place(name: str) -> bool:
    """Return whether a normalised name is a country or a state or region of one."""
    return name in _WHOLES or _PART_OF.get(name, "") in _WHOLES


def is_place(name: str) -> bool:
    """Return whether a normalised name is a known country, state or county."""
    words = name.split()
    is_county = len(words) > 1 and "county" in (words[0], words[-1])
    return is_county or name in _KNOWN


def _levels(place: str) -> Iterator[tuple[str, str]]:
    """Yield a known place and all places that contain it, each with its level: 0 for a country."""
    while place in _PART_OF:
        whole = _PART_OF[place]
        yield ("in 2" if whole in _PART_OF else "in 1"), place
        place = whole
    if place in _WHOLES:
        yield "in 0", place
    elif is_place(place):
        yield "in 2", place.removeprefix("county ").removesuffix(" county")


@cached_short(maxsize=16384, max_length=400)
def _places_in(text: str) -> Facts:
    """Return the known places that a text names, and the value of "country: …" and the like."""
    where, found = _WHERE.fullmatch(text), set[tuple[str, str]]()
    if where and (level := _LEVEL.get((where["level"] or "").casefold())):
        found.add((f"in {level}", identity(where["place"].split(",")[0])))
    names = set(map(identity, _NAMED_PLACES.findall(text))) | _KNOWN.intersection([identity(text)])
    return frozenset(found.union(*map(_levels, names)))


def _is_placed(text: str) -> bool:
    """Return whether a text states a location: "located in …", "town in …", or only places."""
    parts = [identity(part) for part in text.split(",") if part.strip()]
    return bool(_WHERE.fullmatch(text)) or all(map(is_place, parts)) or " in " in f" {text}"


@cached_short(maxsize=16384, max_length=400)
def _dates_in(text: str) -> Facts:
    """Return the years of events: of "born in 1850", and both of "1850–1912"."""
    found = {(_EVENTS[verb.casefold()], year) for verb, year in _WHEN.findall(text)}
    if life := _LIFE.fullmatch(text.rstrip(" )")):
        years = {event: re.sub(r"\D", "", date[-4:]) for event, date in life.groupdict().items()}
        found |= years.items()
    return frozenset(found)


@cached_short(maxsize=16384, max_length=400)
def _ranks_in(text: str) -> Facts:
    found = set()
    for match in _RANK.finditer(normalise(text)):
        number = match["number"]
        digits = number[:-2] if number[0].isdigit() else str(ORDINAL_WORDS.get(number, ""))
        if digits:
            found.add((f"{match['rank']}{match['land'].rstrip()}", digits))
    return frozenset(found)


def _personal(text: str) -> Facts:
    """Return the countries and the field of work in a description of a person."""
    words = normalise(text).replace("-", " ").split()
    facts = {("nation", lexicon.COUNTRY_OF[word]) for word in words if word in lexicon.COUNTRY_OF}
    head = normalise(_HEAD_ENDS.split(text, maxsplit=1)[0]).split()
    return frozenset(facts.union(("field", _FIELD_OF[word]) for word in head if word in _FIELD_OF))


def _released(text: str, kind: str) -> Facts:
    """Return the year of a work if its description opens with it: "1996 romantic drama film"."""
    if not (dated := _DATED.match(text)):
        return frozenset()
    year, noun = dated.groups()  # "1969 film", "1969 western"
    is_short = len(noun.split()) < 3 and noun.islower() and not kind_of(noun)
    is_work = not noun or is_short or kind_of(noun) in (kind, "work")
    return frozenset({("released", year)} if is_work else ())


# --- Facts in a relation

_ONE_OF: Final = groups("single_valued")
_INVERSE: Final = groups("single_valued_inverse")
_SAID_OF: Final = re.compile(
    rf"(?:.* )?(?P<key>{'|'.join(sorted(_ONE_OF, key=len, reverse=True))})(?:: | )(?P<name>[A-Z].*)"
)
_NAMES: Final = frozenset(_ONE_OF.values()) | frozenset(_INVERSE.values())


@lru_cache(maxsize=16384)
def facts_of_ends(head: str, relation: str, tail: str) -> tuple[Facts, Facts]:
    """Return the single-valued facts that a relation states of its head and of its tail.

    >>> facts_of_ends("Ann", "is the author of", "Red Hill")
    (frozenset(), frozenset({('written by', 'ann')}))
    """
    plain = relation_key(relation)
    of_head, key, inverse = _dates_in(f"{plain} {tail}"), _ONE_OF.get(plain), _INVERSE.get(plain)
    if _WHERE.match(f"{plain} x"):
        of_head |= _places_in(tail)
    if key:
        of_head |= {(key, identity(tail))}
    return of_head, frozenset({(inverse, identity(head))} if inverse else ())


# --- Facts that a passage states about a name

_DEFINED: Final = re.compile(
    r"(?P<aside>\s*\([^()]*(?:\([^()]*\)[^()]*)*\))?(?P<more>,[^.;()]{0,200}?)??"
    r"(?:,? (?:is|was|are|were) (?:an?|the|one of the)?\s*|, (?:an?|the) )(?P<what>[^.;]{3,300})"
)
_APPOSED: Final = re.compile(
    r"(?P<aside>\s*\([^()]*\))?(?P<more>), (?:an?|the) (?P<what>[^.;,]{3,300})"
)
_PLACED: Final = re.compile(r"\b(?:of|in|at|by|to|from|for|with|and|on|near|as) (?:the )?\Z")
"""If this precedes a name, the text after the name describes something else."""
_SUBJECT: Final = re.compile(r"\W*([^,;()]{2,100}?)(?=\s*\(|,| (?:is|was|are|were|ha[sd]) )")
_REGION: Final = re.compile(r", (?P<place>[A-Z][\w'’.]*(?: [A-Z][\w'’.]*)*)")
_LONGER: Final = re.compile(r"(?<!\w)(?!(?:The|An?|In|At|By|On)\b)[A-Z][\w'’.]*\s\Z")
"""If this precedes a name, the name is the end of a longer one."""


def about(name: str, title: str, text: str, at: Iterable[tuple[int, int]]) -> tuple[str, ...]:
    """Return what a passage states about a name, as lines of "key: value" for `traits`.

    Args:
        name: The name as the LM writes it.
        title: The title of the passage.
        text: Its text, without the title.
        at: Where the text mentions the name.
    """
    facts: set[tuple[str, str]] = set()
    kinds: list[str] = []
    is_titled = names_title(name, title, text)
    if is_titled:
        facts.add(("title", title))
        if qualifier := split_title(title).qualifier:
            kinds.append(kind_of(qualifier))
            facts |= _stated(qualifier)
        if opening := _SUBJECT.match(text):
            kinds += _define(text[opening.end() :], facts)
    key, positions = identity(name), [0] if is_titled else []
    for start, end in list(at)[:2]:
        positions.append(start)
        before = text[max(0, start - 30) : start]
        if not _LONGER.search(before) and not is_known_place(key):
            kinds += _define(text[end : end + 500], facts, not _PLACED.search(before))
        kinds += _lead(text[max(0, start - 80) : start], facts)
        if key not in _KNOWN and (region := _REGION.match(text, end)):
            for place in accumulate(region["place"].split(), "{} {}".format):
                facts.update(_levels(identity(place)))
    if kind := _finest(kinds):
        facts.add(("kind", kind))
    for position in positions:
        near = text[max(0, position - 150) : position + 250]
        facts.update(("year", year) for year in _YEAR.findall(near))
    return tuple(sorted(f"{key}: {value}" for key, value in facts))


def _define(text: str, facts: set[tuple[str, str]], is_subject: bool = True) -> list[str]:
    """Add the facts in "(1850–1912), …, was a painter in …" after a name; return the kind."""
    defined = _DEFINED.match(text) if is_subject else _APPOSED.match(text)
    aside = defined["aside"] if defined else (re.match(r"\s*\([^()]*\)", text) or [""])[0]
    if aside:
        inside = aside.strip().removeprefix("(").removesuffix(")").strip()
        facts |= _dates_in(inside) | {("died", year) for year in _DIED.findall(inside)}
    if born := re.match(r",? born[^,;.()]{0,60}?\b\d{4}\b", text):
        facts |= _dates_in(born[0])
    if not defined:
        return []
    what = defined["what"]
    kind = kind_of(what)
    facts |= _ranks_in(defined["more"] or "")
    if kind == "person":
        facts |= _personal(_HEAD_ENDS.split(what, maxsplit=1)[0]) | _dates_in(what)
    elif kind in WORKS:
        facts |= _released(what, kind)
        if year := re.match(r"[^,]*?\b((?:1[89]|20)\d\d) ", _HEAD_ENDS.split(what)[0] + " "):
            facts.add(("released", year[1]))
    elif kind and kind not in _MOVABLE:
        facts |= _places_in(what) | _dates_in(what)
    return [kind]


def _lead(text: str, facts: set[tuple[str, str]]) -> list[str]:
    """Add the facts in "the 1969 film" or "the baseball player" before a name; return the kind."""
    words = re.split(r"[.;,:(\"“]", text)[-1].split()[-6:]
    if not words or not text.endswith(" ") or not words[-1].islower():
        return []
    kind = kind_of(words[-1])
    if kind == "person":
        facts |= _personal(" ".join(words))
    elif kind in WORKS and len(words) > 1 and _YEAR.fullmatch(words[-2]):
        facts.add(("released", words[-2]))
    return [kind]


def names_title(name: str, title: str, text: str) -> bool:
    """Return whether a passage with this title is about the entity of this name.

    It is if the title is the name, with or without its qualifier, or if the text opens with the
    name as a longer form of the title.
    """
    names = (title, split_title(title).base, long_title(title, text[:300]) or title)
    return identity(name) in map(identity, names)


@lru_cache(maxsize=4096)
def long_title(title: str, opening_text: str) -> str:
    """Return the subject that a text opens with if it is a longer form of the title, else "".

    >>> long_title("Robert A. Lund", "Robert Adolf Lund (born 1903) was a director.")
    'Robert Adolf Lund'
    """
    opening = _SUBJECT.match(opening_text)
    base = split_title(title).base
    if not opening or not base:
        return ""
    subject = opening[1].strip(" \"'“”‘’")
    if re.search(rf"\bknown (?:\w+ ){{0,2}}as \W*{re.escape(base)}\b", opening_text):
        return subject if normalise(subject) != normalise(base) else ""
    long, short = re.findall(r"\w+", fold(subject)), re.findall(r"\w+", fold(base))
    if len(long) > 2 and (re.fullmatch("[ivx]+", long[-1]) or long[-1] in ("jr", "sr")):
        long.pop()
        subject = subject.rpartition(" ")[0]
    if long == short or len(short) < 2 or len(long) < len(short) or long[-1] != short[-1]:
        return ""
    rest = iter(long)  # each search goes on where the last one ended
    for each in short:
        if not any(each in (word, word[0]) for word in rest):
            return ""
    return subject


def _stated(text: str) -> Facts:
    """Return the facts in a qualifier: "1969 film", "Suffolk", "7th Earl of Mar"."""
    found = _dates_in(text) | _ranks_in(text) | _places_in(text) | _personal(text)
    if generation := _GENERATION.search(text):
        found |= {("generation", generation.lastgroup or "")}
    return found | {("qualifier", identity(text)), *(("dated", y) for y in _YEAR.findall(text))}


# --- Traits of a record


@lru_cache(maxsize=16384)
def traits(
    type_: str, attributes: tuple[str, ...], qualifier: str, lines: tuple[str, ...] = ()
) -> Traits:
    """Read the kind and the distinguishing facts of a record.

    Args:
        type_: The type of the record.
        attributes: Its attributes.
        qualifier: The qualifier of its name.
        lines: What its passage states about it, as written by `about`.
    """
    kind = _finest(map(kind_of, (type_, qualifier, *attributes)))
    parts = [line.partition(": ") for line in lines]
    facts = {(key, value) for key, _, value in parts if key != "kind"}
    passage_kind = _finest(value for key, _, value in parts if key == "kind")
    if _kinds_apart(kind, passage_kind):
        facts = {fact for fact in facts if fact[0] == "year"}
    else:
        kind = _finest((kind, passage_kind))
    for text in (type_, *attributes):
        facts |= _dates_in(text) | _ranks_in(text)
        if stated := _SAID_OF.fullmatch(text):
            facts.add((_ONE_OF[stated["key"]], identity(stated["name"])))
        if _is_placed(text):
            facts |= _places_in(text)
        if kind == "person":
            facts |= _personal(text)
        elif kind in WORKS:
            facts |= _released(text, kind)
    if qualifier:
        facts |= _stated(qualifier)
    return _dated(kind, facts)


def wordings_of(one: Traits) -> Iterator[str]:
    """Yield the distinguishing facts of a mention in words, the clearest first."""
    for key in ("title", "in 1", "in 0", "in 2", "released", "born", "died", *sorted(_NAMES)):
        for value in sorted(one.values(key)):
            if key == "title":
                yield split_title(value).qualifier
            elif key.startswith("in "):
                yield value.title() + " County" * (key == "in 2")
            elif key == "released":
                yield value
            else:
                yield f"{key} {value.title() if key in _NAMES else value}"


def _dated(kind: str, facts: Iterable[tuple[str, str]]) -> Traits:
    """Return traits in which the year of a work is its release year."""
    key_of = {"dated": "released"} if kind in WORKS else {}
    return Traits(kind, frozenset((key_of.get(key, key), value) for key, value in facts))


_TELLING: Final[Mapping[str, Collection[str]]] = {
    **dict.fromkeys(("nation", "field"), ("person",)),
    **dict.fromkeys(("born", "died"), ("person", "")),
    **{"released": WORKS | {""}, "dated": (), "year": ()},
}
"""The kinds of entities that a fact distinguishes, for the facts that do not distinguish all."""


def _tells(key: str, kind: str) -> bool:
    """Return whether a fact can distinguish entities of a kind; a location, only immobile ones."""
    if key.startswith("in "):
        return kind not in _MOVABLE
    return key not in _TELLING or kind in _TELLING[key]


def pooled(several: Iterable[Traits]) -> Traits:
    """Return the combined traits of several mentions."""
    kinds, facts = zip(*several, strict=True)
    return _dated(_finest(kinds), chain.from_iterable(facts))


# --- Contradictions

_SOFT: Final = frozenset(("nation", "field", "in 0"))
_FIELDS_APART: Final = {frozenset(pair.split()) for pair in TABLES["fields_apart"]}


@lru_cache(maxsize=65536)
def contradict(one: Traits, other: Traits) -> bool:
    """Return whether two mentions of one name cannot mean the same entity.

    They cannot if they differ in the kind, title, qualifier, location, year, id or another
    single-valued fact that both state; they can if they share an id. One qualifier may be more
    specific than the other: "(film)", "(1925 film)". Years may differ by one, as sources do.

    >>> england = traits("city", ("country: England",), "")
    >>> contradict(england, traits("city", ("state: Massachusetts",), ""))
    True
    >>> contradict(england, traits("university town", ("located in the UK",), ""))
    False
    """
    if one == other or Traits("", one.facts & other.facts).ids:
        return False
    if _kinds_apart(one.kind, other.kind):
        return True
    keys = one.keys & other.keys
    telling_keys = (key for key in keys if _tells(key, one.kind) and _tells(key, other.kind))
    return any(_differ(key, one, other) for key in telling_keys)


def shared(one: Traits, other: Traits) -> Facts:
    """Return the facts that both mentions and few namesakes share."""
    return telling(one) & telling(other)


def telling(one: Traits) -> Facts:
    """Return the facts of a mention that few namesakes share."""
    return frozenset(f for f in one.facts if f[0] not in _SOFT and _tells(f[0], one.kind))


def _differ(key: str, one: Traits, other: Traits) -> bool:
    ours, theirs = one.values(key), other.values(key)
    if not ours.isdisjoint(theirs):
        return False
    if key == "title":
        return all(starmap(_titles_apart, product(ours, theirs))) and not shared(one, other)
    if key == "qualifier":
        return all(starmap(_qualified_apart, product(ours, theirs)))
    if key in _EVENTS.values():
        is_near = any(abs(int(a) - int(b)) <= 1 for a, b in product(ours, theirs))
        is_known = theirs <= one.values("year") and ours <= other.values("year")
        return not (is_near or is_known)
    if key in _NAMES:
        return not any(starmap(_alike, product(ours, theirs))) and not shared(one, other)
    if key == "nation":
        ours |= {_PART_OF.get(nation, nation) for nation in ours}
        theirs |= {_PART_OF.get(nation, nation) for nation in theirs}
        return ours.isdisjoint(theirs) and not shared(one, other)
    apart = (frozenset(pair) in _FIELDS_APART for pair in product(ours, theirs))
    return key != "field" or (all(apart) and not shared(one, other))


def _titles_apart(one: str, other: str) -> bool:
    """Return whether two titles mean two entities; titles with compatible qualifiers do not."""
    first, second = split_title(one), split_title(other)
    if first.qualifier and second.qualifier:
        return _qualified_apart(identity(first.qualifier), identity(second.qualifier))
    return normalise(one) != normalise(other)


def _alike(one: str, other: str) -> bool:
    """Return whether two names may mean one person: by surname, initial or typo."""
    words, others = set(one.split()), set(other.split())
    if words <= others or others <= words or near_duplicate(one, other):
        return True
    first, second = one.split(), other.split()
    return first[-1] == second[-1] and first[0][0] == second[0][0]


def _qualified_apart(one: str, other: str) -> bool:
    """Return whether two qualifiers differ, and neither is a more specific form of the other."""
    if one == other:
        return False
    words, others = _qualifier_words(one), _qualifier_words(other)
    if words <= others or others <= words:
        return False
    ours, theirs = (Traits("", _places_in(text)) for text in (one, other))
    is_placed = ours.facts and theirs.facts
    return not is_placed or any(_differ(key, ours, theirs) for key in ours.keys & theirs.keys)


def _qualifier_words(text: str) -> set[str]:
    return {_SYNONYMS.get(word, word) for word in text.split()} - _PLACE_WORDS or {text}
