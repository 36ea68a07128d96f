"""Lists of words, most of them in lexicon.json, which is read when the first of them is used.

They say which words tell names apart, and which may stand for one another.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple


class OtherNames(NamedTuple):
    """What else a name is called: as a noun, and as an adjective (or the noun of an adjective)."""

    nouns: tuple[str, ...] = ()
    adjectives: tuple[str, ...] = ()


# --- Single words, in lower case

TELLING: frozenset[str]
"""Words that tell one name from another, so that none may be passed over."""

FRONT: frozenset[str]
"""Words that make another name of a name behind them: "New Mexico" is no Mexico."""

HEADS: frozenset[str]
"""Words that end names of anything but people, of whom alone a middle name may lack."""

IMPERSONAL: frozenset[str]
"""Words that no person's name holds: TELLING, HEADS, COMPANY_FORMS and ADJECTIVES."""

PREFIXES: frozenset[str]
"""Beginnings that turn what stands behind their hyphen round: "anti-war"."""

BEFORE_NUMBERS: frozenset[str]
"""Words that a number or a date may lack before it."""

COMPANY_FORMS: frozenset[str]
"""Words that may lack at the end of an organisation's name."""

NEVER_LAST: frozenset[str]
"""Abbreviations that end no sentence."""

SELDOM_LAST: frozenset[str]
"""Abbreviations that end a sentence if a word follows with which sentences begin."""

BEGINS: frozenset[str]
"""Words with which sentences begin, besides the stopwords."""

PARTICLES: frozenset[str]
"""What Korean puts behind a noun."""

HEBREW: frozenset[str]
ARABIC: frozenset[str]
"""What stands before a noun and is written as one word with it."""

# --- Words that may stand for one another

FORMS: dict[str, frozenset[str]]
"""For a word its abbreviations and irregular forms."""

NICKNAMES: dict[str, frozenset[str]]
"""For a given name its short or long forms."""

STATES: dict[str, str]
"""US states by their postal codes."""

ROLE_VERBS: dict[str, frozenset[str]]
"""For a role, the words of a passage that give it to somebody: "starring X" makes X an actor."""

VERBS: frozenset[str]
"""The words that give any role."""

ADJECTIVES: frozenset[str]
"""Adjectives made of countries, with their plurals."""

COUNTRY_FORMS: dict[str, frozenset[str]]
"""For a country or adjective of one word the others of it."""

FULL_NAMES: dict[str, str]
"""Well-known short and other names, with the name that stands for them all."""

OTHER_NAMES: dict[str, OtherNames]
"""Well-known names of two words and more, and acronyms, with what else they are called."""


def __getattr__(name: str) -> object:
    """Read all lists when the first is asked for."""
    if not name.isupper():
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals().update(_read())
    return globals()[name]


def _read() -> dict[str, object]:
    lists = json.loads(Path(__file__).with_suffix(".json").read_text("utf-8"))
    words = {name: frozenset(" ".join(lines).split()) for name, lines in lists["words"].items()}
    demonyms = {land: tuple(them.split(", ")) for land, them in lists["demonyms"].items()}
    adjectives = frozenset(
        word + end for them in demonyms.values() for word in them for end in ("", "s")
    )
    roles: dict[str, frozenset[str]] = defaultdict(frozenset)
    for verbs, names in lists["roles"]:
        for role in names.split():
            roles[role] |= frozenset(verbs.split())
    return {
        **words,
        "ADJECTIVES": adjectives,
        "IMPERSONAL": adjectives.union(*(words[w] for w in ("TELLING", "HEADS", "COMPANY_FORMS"))),
        "FORMS": _partners(lists["forms"]),
        "NICKNAMES": _partners(lists["nicknames"]),
        "COUNTRY_FORMS": _partners(
            f"{land} {word} {word}s"
            for land, them in demonyms.items()
            for word in them
            if " " not in land + word
        ),
        "FULL_NAMES": {
            name: full for full, them in lists["well_known"].items() for name in them.split(", ")
        },
        "OTHER_NAMES": _other_names(lists["well_known"], demonyms),
        "STATES": lists["states"],
        "ROLE_VERBS": dict(roles),
        "VERBS": frozenset().union(*roles.values()),
    }


def _partners(sets: Iterable[str]) -> dict[str, frozenset[str]]:
    """For each word the others of its sets."""
    found: dict[str, frozenset[str]] = defaultdict(frozenset)
    for one in sets:
        for word in one.split():
            found[word] |= frozenset(one.split()) - {word}
    return dict(found)


def _other_names(
    well_known: dict[str, str], demonyms: dict[str, tuple[str, ...]]
) -> dict[str, OtherNames]:
    found: dict[str, OtherNames] = {}
    for full in dict.fromkeys((*(land for land in demonyms if " " in land), *well_known)):
        others = well_known[full].split(", ") if full in well_known else ()
        nouns, adjectives = (full, *others), demonyms.get(full, ())
        for name in nouns:
            found[name] = OtherNames(tuple(n for n in nouns if n != name), adjectives)
        for name in adjectives:
            found[name] = OtherNames((), (*nouns, *(a for a in adjectives if a != name)))
    return found
