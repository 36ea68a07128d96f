"""Lists of words, most of them in lexicon.json.

They say which words tell names apart, and which may stand for one another.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, NamedTuple

_LISTS: Final[dict[str, Any]] = json.loads(Path(__file__).with_suffix(".json").read_text("utf-8"))

# --- Single words, in lower case

_WORDS: Final = {
    name: frozenset(" ".join(lines).split()) for name, lines in _LISTS["words"].items()
}

FUNCTION_WORDS: Final = _WORDS["FUNCTION_WORDS"]
"""Words that a passage need not repeat to support a phrase."""

OTHER_STOPWORDS: Final = _WORDS["OTHER_STOPWORDS"]
"""Further words that say nothing of what a question asks for."""

NAMES_TOO: Final = _WORDS["NAMES_TOO"]
"""Stopwords that are names by themselves: "It", "Us"."""

NUMBERS_AND_TIMES: Final = _WORDS["NUMBERS_AND_TIMES"]
"""Words that are no names, though a sentence may begin with them."""

TELLING: Final = _WORDS["TELLING"]
"""Words that tell one name from another, so that none may be passed over."""

FRONT: Final = _WORDS["FRONT"]
"""Words that make another name of a name behind them: "New Mexico" is no Mexico."""

HEADS: Final = _WORDS["HEADS"]
"""Words that end names of anything but people, of whom alone a middle name may lack."""

PREFIXES: Final = _WORDS["PREFIXES"]
"""Beginnings that turn what stands behind their hyphen round: "anti-war"."""

BEFORE_NUMBERS: Final = _WORDS["BEFORE_NUMBERS"]
"""Words that a number or a date may lack before it."""

COMPANY_FORMS: Final = _WORDS["COMPANY_FORMS"]
"""Words that may lack at the end of an organisation's name."""

NEVER_LAST: Final = _WORDS["NEVER_LAST"]
"""Abbreviations that end no sentence."""

SELDOM_LAST: Final = _WORDS["SELDOM_LAST"]
"""Abbreviations that end a sentence if a word follows with which sentences begin."""

BEGINS: Final = _WORDS["BEGINS"]
"""Words with which sentences begin, besides the stopwords."""

PARTICLES: Final = _WORDS["PARTICLES"]
"""What Korean puts behind a noun."""

HEBREW: Final = _WORDS["HEBREW"]
ARABIC: Final = _WORDS["ARABIC"]
"""What stands before a noun and is written as one word with it."""

# --- Words that may stand for one another


def _partners(sets: Iterable[str]) -> dict[str, frozenset[str]]:
    """For each word the others of its sets."""
    found: dict[str, frozenset[str]] = defaultdict(frozenset)
    for one in sets:
        for word in one.split():
            found[word] |= frozenset(one.split()) - {word}
    return dict(found)


FORMS: Final = _partners(_LISTS["forms"])
"""For a word its abbreviations and irregular forms."""

NICKNAMES: Final = _partners(_LISTS["nicknames"])
"""For a given name its short or long forms."""

STATES: Final[dict[str, str]] = _LISTS["states"]
"""US states by their postal codes."""

ROLE_VERBS: Final = {
    role: frozenset(" ".join(v for v, names in _LISTS["roles"] if role in names.split()).split())
    for role in " ".join(names for _, names in _LISTS["roles"]).split()
}
"""For a role, the words of a passage that give it to somebody: "starring X" makes X an actor."""

VERBS: Final = frozenset[str]().union(*ROLE_VERBS.values())
"""The words that give any role."""

# --- Countries and well-known names


class OtherNames(NamedTuple):
    """What else a name is called: as a noun, and as an adjective (or the noun of an adjective)."""

    nouns: tuple[str, ...] = ()
    adjectives: tuple[str, ...] = ()


_DEMONYMS: Final = {land: tuple(them.split(", ")) for land, them in _LISTS["demonyms"].items()}
_WELL_KNOWN: Final = {name: them.split(", ") for name, them in _LISTS["well_known"].items()}

ADJECTIVES: Final = frozenset(
    word + end for them in _DEMONYMS.values() for word in them for end in ("", "s")
)
"""Adjectives made of countries, with their plurals."""

COUNTRIES: Final = frozenset(_DEMONYMS)
"""Countries, in lower case."""

COUNTRY_OF: Final = {word: land for land, them in _DEMONYMS.items() for word in them}
"""For an adjective made of a country that country."""

IMPERSONAL: Final = TELLING | HEADS | COMPANY_FORMS | ADJECTIVES
"""Words that no person's name holds."""

COUNTRY_FORMS: Final = _partners(
    f"{land} {word} {word}s"
    for land, them in _DEMONYMS.items()
    for word in them
    if " " not in land + word
)
"""For a country or adjective of one word the others of it."""

FULL_NAMES: Final[dict[str, str]] = {
    name: full for full, them in _WELL_KNOWN.items() for name in them
}
"""Well-known short and other names, with the name that stands for them all."""


def _other_names() -> dict[str, OtherNames]:
    found: dict[str, OtherNames] = {}
    for full in dict.fromkeys((*(land for land in _DEMONYMS if " " in land), *_WELL_KNOWN)):
        nouns, adjectives = (full, *_WELL_KNOWN.get(full, ())), _DEMONYMS.get(full, ())
        for name in nouns:
            found[name] = OtherNames(tuple(n for n in nouns if n != name), adjectives)
        for name in adjectives:
            found[name] = OtherNames((), (*nouns, *(a for a in adjectives if a != name)))
    return found


OTHER_NAMES: Final = _other_names()
"""Well-known names of two words and more, and acronyms, with what else they are called."""
