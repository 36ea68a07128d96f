"""Closed word lists, and small rules that tell verbs, prepositions and noun phrases apart.

The lists are in words.json, short on purpose, and hold only words of the language, nothing from
any data set. There is no tagger: a verb is a word of the list, or one that ends like a past form.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

_LISTS: dict[str, Any] = json.loads(Path(__file__).with_name("words.json").read_text("utf-8"))


def _words(name: str) -> frozenset[str]:
    return frozenset(" ".join(_LISTS[name]).split())


def _names(name: str) -> frozenset[str]:
    return frozenset(" ".join(_LISTS[name]).split(", "))


STOPWORDS = _words("stopwords")
ARTICLES = _words("articles")
COPULAS = _words("copulas")
WH_WORDS = _words("wh_words")
AUXILIARIES = _words("auxiliaries")
MONTHS = {name: number for number, name in enumerate(_LISTS["months"].split(), start=1)}
NAME_CONNECTORS = _words("name_connectors")
NUMBER_VALUES: dict[str, int] = _LISTS["numbers"]
SCALES: dict[str, float] = _LISTS["scales"]
NUMBER_WORDS = NUMBER_VALUES.keys() | SCALES.keys() | _words("further_numbers")
SUBJECT_TYPES = ("person", "group", "work", "place")
GROUP_ENDINGS = _words("group_endings")
PLACE_ENDINGS = _words("place_endings")
PERSON_TITLES = _words("person_titles")
FIRST_NAMES = _words("first_names")
NATIONALITIES = _words("nationalities")
COUNTRY_OF = {
    word: land for land, words in _LISTS["demonyms"].items() for word in words.split(", ")
}
COUNTRIES = frozenset(_LISTS["demonyms"]) | _names("further_countries")
US_STATES = _names("us_states")
COUNTRIES_AND_STATES = COUNTRIES | US_STATES
CONTINENTS = _names("continents")

_RELATED = [line.split() for line in _LISTS["related"]]
RELATED = {
    word: frozenset(other for line in _RELATED if word in line for other in line)
    for line in _RELATED
    for word in line
}
"""Words that often state the same relation in a question and in its answer's sentence."""

# A noun of two kinds is of the first.
_TYPE_OF_NOUN = {
    noun: kind
    for kind in reversed(_LISTS["nouns"])
    for noun in " ".join(_LISTS["nouns"][kind]).split()
}


@lru_cache(maxsize=32768)
def noun_type(noun: str) -> str:
    """What a common noun names: "person", "place", "group", "work", ... or "".

    >>> noun_type("actresses"), noun_type("cities"), noun_type("glacier")
    ('person', 'place', '')
    """
    noun = noun.lower()
    forms = [noun]
    for plural, singular in (("ies", "y"), ("es", ""), ("s", ""), ("men", "man")):
        if noun.endswith(plural):
            forms.append(noun.removesuffix(plural) + singular)
    return next((_TYPE_OF_NOUN[form] for form in forms if form in _TYPE_OF_NOUN), "")


# --- Grammar

BE = _words("be")
DETERMINERS = _words("determiners")
PREPOSITIONS = _words("prepositions")
RELATIVES = _words("relatives")
PRONOUNS = _words("pronouns")
HEDGES = _words("hedges")
ADVERBS = _words("adverbs")
_IRREGULAR = _words("irregular_verbs")
_NOT_PAST = _words("not_past")


def is_verb(word: str) -> bool:
    """Whether a lower-case word reads like a verb of a statement."""
    if word in BE or word in _IRREGULAR or word in ("has", "have", "had"):
        return True
    return word.endswith("ed") and len(word) > 4 and word not in _NOT_PAST and "-" not in word


def is_predicate(words: Sequence[str], i: int) -> bool:
    """Whether word `i` is a verb here, and not a participle before its noun ("animated series")."""
    word = words[i]
    if not is_verb(word):
        return False
    if word in BE or not word.endswith(("ed", "ing", "en")):
        return True
    before = words[i - 1] if i else ""
    if i + 1 == len(words):
        return before not in DETERMINERS
    after = words[i + 1]
    noun_before = before in DETERMINERS | PREPOSITIONS | NATIONALITIES or before.isdigit()
    return not noun_before or after in PREPOSITIONS


def relation_phrase(words: Sequence[str]) -> str:
    """Make a relation of the words between two mentions; "" where they hold no statement.

    The phrase starts at the last verb, keeps what leads to its preposition and drops auxiliaries
    before a participle, articles at the end, and the role in "directed by the actor X".

    >>> relation_phrase("is a 1994 American animated film directed by".split())
    'directed by'
    >>> relation_phrase("was born in".split()), relation_phrase("and is the county seat of".split())
    ('born in', 'is the county seat of')
    >>> relation_phrase("married the British actress".split())
    'married'
    """
    low = [word.lower() for word in words]
    start = max((i for i in range(len(low)) if is_predicate(low, i)), default=-1)
    if start < 0 or HEDGES & set(low[max(start - 3, 0) :]):
        return ""
    phrase = _without_article([w for w in low[start:] if w not in ADVERBS and not w.isdigit()])
    # What follows the verb or its last preposition goes where it only introduces the name.
    last = max((i for i, word in enumerate(phrase) if word in PREPOSITIONS), default=0)
    rest = phrase[last + 1 :]
    introduces = any(noun_type(w) in SUBJECT_TYPES or w in NATIONALITIES for w in rest)
    if rest and (last or phrase[0] not in BE) and (len(rest) > 3 or introduces):
        phrase = _without_article(phrase[: last + 1])
    if phrase[0] in ("be", "been", "being"):
        phrase = phrase[1:]
    # Of "is a city in and the county seat of", only what governs the name after it.
    joints = [i for i, w in enumerate(phrase[:-1]) if w == "and" and phrase[i + 1] in DETERMINERS]
    if joints and phrase[0] in BE and phrase[-1] in PREPOSITIONS:
        phrase = [phrase[0], *phrase[joints[-1] + 1 :]]
    if len(phrase) > 6:
        # Of "is a small unincorporated mining community in", "is a mining community in".
        if phrase[0] not in BE or phrase[-1] not in PREPOSITIONS:
            return ""
        if PREPOSITIONS & set(phrase[1:-1]):
            return ""
        article = phrase[1:2] if phrase[1] in DETERMINERS else []
        phrase = [phrase[0], *article, *phrase[-3:]]
    return " ".join(word.capitalize() if word in NATIONALITIES else word for word in phrase)


def _without_article(phrase: list[str]) -> list[str]:
    while phrase and (phrase[-1] in DETERMINERS or not phrase[-1][-1].isalnum()):
        phrase = phrase[:-1]
    return phrase
