"""When two things of one name are not one thing: their types or attributes contradict."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, NamedTuple

from ga_dspy.graph.names import identity, normalise

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
    frozenset(("island", "country")),
    frozenset(("island", "subdivision")),
    frozenset(("island", "settlement")),
    frozenset(("book", "series")),
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
    r"(?:was |is )?(born|birth|date of birth|died|death|date of death|released?)\b.*?\b(\d{4})\b",
    re.I,
)
_KEY: Final = {
    "release": "released",
    "birth": "born",
    "date of birth": "born",
    "death": "died",
    "date of death": "died",
}
_YEAR: Final = re.compile(r"\b\d{4}\b")
_WORKS: Final = frozenset({"film", "song", "album", "book", "play", "series", "painting"})
_MOVABLE: Final = _WORKS | {"person", "band", "date", "species", "element", "planet"}


class Traits(NamedTuple):
    """What a record says that could tell its entity from a namesake."""

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
    facts = {fact for text in (*attributes, type_, qualifier) for fact in _stated(text)}
    if kind in _WORKS:
        facts |= {("released", year) for year in _YEAR.findall(f"{type_} {qualifier}")}
    telling = {key for key in ("born", "died") if kind in ("", "person")}
    telling |= {"released"} if kind in _WORKS else set()
    telling |= set() if kind in _MOVABLE else {"in"}
    known = kind_of(qualifier) or _stated(qualifier)
    return Traits(
        kind,
        "" if known else normalise(qualifier),
        frozenset((key, value) for key, value in facts if key in telling),
    )


@lru_cache(maxsize=65536)
def _stated(text: str) -> frozenset[tuple[str, str]]:
    if when := _WHEN.match(text):
        key = when[1].lower()
        return frozenset({(_KEY.get(key, key), when[2])})
    where = _WHERE.fullmatch(text)
    places = {identity(part) for part in (where[1] if where else text).split(",") if part.strip()}
    if not where and not all(place in _PART_OF or place in _WITHIN for place in places):
        return frozenset()
    return frozenset(("in", p) for p in places | {_PART_OF[p] for p in places if p in _PART_OF})


def contradict(one: Traits, other: Traits) -> bool:
    """Whether two records of one name cannot describe one thing.

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
    return any(_disjoint(key, one, other) for key in keys)


def _disjoint(key: str, one: Traits, other: Traits) -> bool:
    ours = {value for k, value in one.facts if k == key}
    theirs = {value for k, value in other.facts if k == key}
    if key == "in":
        return _finest(ours).isdisjoint(theirs) and _finest(theirs).isdisjoint(ours)
    return all(abs(int(a) - int(b)) > 1 for a in ours for b in theirs)


def _finest(places: set[str]) -> set[str]:
    return places - {_PART_OF[place] for place in places if place in _PART_OF}
