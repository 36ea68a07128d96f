"""Word lists from lexicon.json: words that distinguish names, and words that are equivalent."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, NamedTuple

TABLES: Final[dict[str, Any]] = json.loads(Path(__file__).with_suffix(".json").read_text("utf-8"))

# --- Single words, in lower case

_WORDS: Final = {name: frozenset(" ".join(rows).split()) for name, rows in TABLES["words"].items()}

FUNCTION_WORDS: Final = _WORDS["FUNCTION_WORDS"]
"""Words of a phrase that a passage need not contain to support it."""

OTHER_STOPWORDS: Final = _WORDS["OTHER_STOPWORDS"]
"""Further words without content in a question."""

NAMES_TOO: Final = _WORDS["NAMES_TOO"]
"""Stopwords that are names by themselves: "It", "Us"."""

NUMBERS_AND_TIMES: Final = _WORDS["NUMBERS_AND_TIMES"]
"""Words that begin sentences but are not names."""

TELLING: Final = _WORDS["TELLING"]
"""Words that distinguish names; a match must not skip them."""

FRONT: Final = _WORDS["FRONT"]
"""Words that change the meaning of the name after them: "New Mexico" is not Mexico."""

HEADS: Final = _WORDS["HEADS"]
"""Words that end the names of anything but people; only people have middle names."""

PREFIXES: Final = _WORDS["PREFIXES"]
"""Prefixes that reverse the meaning of the word after their hyphen: "anti-war"."""

BEFORE_NUMBERS: Final = _WORDS["BEFORE_NUMBERS"]
"""Words before a number or date that a mention may omit."""

COMPANY_FORMS: Final = _WORDS["COMPANY_FORMS"]
"""Words at the end of an organisation's name that a mention may omit."""

NEVER_LAST: Final = _WORDS["NEVER_LAST"]
"""Abbreviations that never end a sentence."""

SELDOM_LAST: Final = _WORDS["SELDOM_LAST"]
"""Abbreviations that end a sentence only before a word that begins sentences."""

BEGINS: Final = _WORDS["BEGINS"]
"""Words that begin sentences, in addition to the stopwords."""

PARTICLES: Final = _WORDS["PARTICLES"]
"""Korean particles, which follow a noun."""

HEBREW: Final = _WORDS["HEBREW"]
ARABIC: Final = _WORDS["ARABIC"]
"""Prefixes that are written as one word with their noun."""

MONTHS_ABROAD: Final = {
    name: number for names in TABLES["months"] for number, name in enumerate(names.split(), 1)
}
"""The numbers of months by their folded names in languages other than English."""

# --- Equivalent words


def _united(pairs: Iterable[tuple[str, Iterable[str]]]) -> dict[str, frozenset[str]]:
    """Return the union of the words of each key."""
    found: dict[str, frozenset[str]] = defaultdict(frozenset)
    for key, words in pairs:
        found[key] |= frozenset(words)
    return dict(found)


def _partners(sets: Iterable[str]) -> dict[str, frozenset[str]]:
    """Map each word to the other words of its sets."""
    return _united((word, {*words} - {word}) for words in map(str.split, sets) for word in words)


FORMS: Final = _partners(TABLES["forms"])
"""Abbreviations and irregular forms of a word."""

NICKNAMES: Final = _partners(TABLES["nicknames"])
"""Short and long forms of a given name."""

STATES: Final[dict[str, str]] = TABLES["states"]
"""US states by their postal codes."""

ROLE_VERBS: Final = _united(
    (role, verbs.split()) for verbs, roles in TABLES["roles"] for role in roles.split()
)
"""Words that imply a role, by role: "starring X" makes X an actor."""

VERBS: Final = frozenset[str]().union(*ROLE_VERBS.values())
"""Words that imply any role."""

# --- Countries and well-known names


class OtherNames(NamedTuple):
    """Other names of a name: nouns, and adjectives (or the nouns of an adjective)."""

    nouns: tuple[str, ...] = ()
    adjectives: tuple[str, ...] = ()


_DEMONYMS: Final = {name: tuple(row.split(", ")) for name, row in TABLES["demonyms"].items()}
_WELL_KNOWN: Final = {name: row.split(", ") for name, row in TABLES["well_known"].items()}

COUNTRIES: Final = frozenset(_DEMONYMS)
"""Countries, in lower case."""

COUNTRY_OF: Final = {word: country for country, words in _DEMONYMS.items() for word in words}
"""Countries by their adjectives."""

ADJECTIVES: Final = COUNTRY_OF.keys() | {f"{word}s" for word in COUNTRY_OF}
"""National adjectives, with their plurals."""

IMPERSONAL: Final = TELLING | HEADS | COMPANY_FORMS | ADJECTIVES
"""Words that do not occur in a person's name."""

COUNTRY_FORMS: Final = _partners(
    f"{name} {word} {word}s" for word, name in COUNTRY_OF.items() if " " not in name + word
)
"""Other one-word forms of a country or its adjective."""

FULL_NAMES: Final[dict[str, str]] = {n: full for full, alts in _WELL_KNOWN.items() for n in alts}
"""Main names by well-known short and other names."""


def _other_names() -> dict[str, OtherNames]:
    found: dict[str, OtherNames] = {}
    for full in dict.fromkeys((*(name for name in _DEMONYMS if " " in name), *_WELL_KNOWN)):
        nouns, adjectives = (full, *_WELL_KNOWN.get(full, ())), _DEMONYMS.get(full, ())
        for name in nouns:
            found[name] = OtherNames(tuple(n for n in nouns if n != name), adjectives)
        for name in adjectives:
            found[name] = OtherNames((), (*nouns, *(a for a in adjectives if a != name)))
    return found


OTHER_NAMES: Final = _other_names()
"""Well-known names of two or more words, and acronyms, with their other names."""
