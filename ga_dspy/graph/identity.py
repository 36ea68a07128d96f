"""Identity: what a name alone tells about which entity it means."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Final, NamedTuple

from rapidfuzz.distance import DamerauLevenshtein

from ga_dspy import lexicon
from ga_dspy.terms import NUMBER_WORDS, ORDINAL_WORDS, roman_value
from ga_dspy.text import ARTICLES, cached_short, normalise

TABLES: Final = json.loads(Path(__file__).with_name("identity.json").read_text("utf-8"))


def group_of(table: str) -> dict[str, str]:
    """Return the group of each member of a table that lists members by group."""
    return {member: group for group, members in TABLES[table].items() for member in members}


_QUALIFIED: Final = re.compile(r"(?P<base>.*\S)\s*\((?P<qualifier>[^()]+)\)")
_ROMAN: Final = re.compile(r"(?:xl|l?x{0,3})(?:ix|iv|v?i{0,3})")
_ORDINAL: Final = re.compile(r"(\d+)(?:st|nd|rd|th)")
_BRITISH: Final = re.compile(r"(\w\w)our(s|ed|ing|ful|ite|ites)?\Z")
_SMALL_WORDS: Final = ARTICLES | {"and", "at", "by", "de", "for", "in", "of", "on"}

WORD_SIMILARITY: Final = 0.87
"""How similar two spellings of one word must be: one typo in eight letters or more.

Similarity is one minus the Damerau-Levenshtein distance over the longer length. Measured on
2,790 pairs of an article's title and another name for it that are spelled differently, and on
77,881 pairs of different titles in one question's context (HotpotQA, 2Wiki, MuSiQue):
`near_duplicate` joins 84 of the former and 3 of the latter; a plain edit ratio over the whole
name, set to join as many of the former (93 %), joins 409 of the latter.
"""

_AUXILIARY: Final = re.compile(r"\A(?:(?:is|was|are|were|be|been|has|have|had) (?=.))+")
_SAME_AS: Final = re.compile(
    r"(?:(?:is|was|are|exactly|the|one and) )*"
    r"(?:same(?: (?:person|place|thing|one|entity|man|woman|work|organi[sz]ation))? as|same|sameas|"
    r"identical(?: to| with)?|equivalent to|equals|equal to)"
)
TITLES: Final = frozenset(TABLES["titles"])
LEGAL: Final = frozenset(TABLES["legal"])
_LEGAL_AT_TIMES: Final = frozenset(TABLES["legal_at_times"])


class Title(NamedTuple):
    """A name and what its trailing parentheses add: "Prism (album)" is Prism, an album."""

    base: str
    qualifier: str


@cached_short(maxsize=16384, max_length=200)
def split_qualifier(name: str) -> Title:
    """Split a trailing qualifier from a name.

    >>> split_qualifier("Prism (album)")
    Title(base='Prism', qualifier='album')
    """
    match = _QUALIFIED.fullmatch(name.strip())
    return Title(match["base"], match["qualifier"].strip()) if match else Title(name, "")


_AFTER_NAME: Final = re.compile(r"(?P<base>[^,]*[^\s,])(?:,\s+(?P<behind>.+)| (?P<jr>[JS]n?r\.?))")


@cached_short(maxsize=16384, max_length=200)
def split_title(title: str) -> Title:
    """Split a title where a qualifier follows in parentheses, behind a comma, or as "Jr.".

    >>> split_title("Cambridge, Massachusetts").base, split_title("Prism (album)").base
    ('Cambridge', 'Prism')
    """
    split = split_qualifier(title)
    if match := _AFTER_NAME.fullmatch(split.base):
        more = match["behind"] or match["jr"]
        return Title(match["base"], f"{more} {split.qualifier}".strip())
    return split


@cached_short(maxsize=16384, max_length=200)
def identity(name: str) -> str:
    """Normalise a name, drop its qualifier and replace a well-known alias.

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
    """Return whether `short`, in capitals, consists of the initials of `name`.

    >>> is_acronym("W.H.O.", "World Health Organization"), is_acronym("BoE", "Bank of England")
    (True, True)
    """
    return acronym_letters(short) in initials(normalise(name))


def acronym_letters(short: str) -> str:
    """Return the letters of a possible acronym in lower case; "?" if it cannot be one."""
    letters = re.sub(r"[.\s]", "", short)
    could_be = 2 <= len(letters) <= 8 and letters[0].isupper() and letters[-1].isupper()
    return letters.casefold() if could_be else "?"


@cached_short(maxsize=16384, max_length=200)
def initials(plain: str) -> frozenset[str]:
    """Return the initials of a normalised name, with and without its small words."""
    first = [word[0] for word in plain.split()]
    main = [word[0] for word in plain.split() if word not in _SMALL_WORDS]
    return frozenset(("".join(first), "".join(main))) if len(main) > 1 else frozenset()


def near_duplicate(one: str, other: str) -> bool:
    """Return whether two normalised names differ by one typo, a space, or an initial.

    All words but one must be equal, and that one may not contain a number in any notation: "Henry
    VII" is not "Henry VIII", "North Korea" not "South Korea", and a name with one more word is
    another name. An ending is not a typo: the Romanian language is not Romania. See
    `WORD_SIMILARITY` for the measurement.

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


@cached_short(maxsize=16384, max_length=200)
def words_in_digits(plain: str) -> tuple[str, ...]:
    """Return the words of a normalised name with numbers in digits and "colour" as "color".

    An ordinal is not a cardinal.

    >>> words_in_digits("world war ii"), words_in_digits("second edition")
    (('world', 'war', '2'), ('2th', 'edition'))
    """
    return tuple(_in_digits(word) for word in plain.split())


def _in_digits(word: str) -> str:
    if ordinal := _ORDINAL.fullmatch(word):
        return f"{ordinal[1]}th"
    if len(word) > 1 and _ROMAN.fullmatch(word):
        return str(roman_value(word.upper()))
    if word in ORDINAL_WORDS:
        return f"{ORDINAL_WORDS[word]}th"
    return str(NUMBER_WORDS.get(word, "")) or _BRITISH.sub(r"\1or\2", word)


def says_same(relation: str) -> bool:
    """Return whether a relation states that its two ends are the same.

    >>> says_same("is the same as"), says_same("same year as its rival")
    (True, False)
    """
    return _SAME_AS.fullmatch(normalise(relation)) is not None


def is_nickname(name: str) -> bool:
    """Return whether a name is a title or epithet of many: "The King", "Princess of Wales".

    >>> is_nickname("The Boss"), is_nickname("Duke of York"), is_nickname("Prince Harry")
    (True, True, False)
    """
    words = name.casefold().split()
    if words[:1] == ["the"]:
        return True
    return bool(words) and words[0] in TITLES and (len(words) == 1 or words[1] in _SMALL_WORDS)


def without_legal_form(plain: str) -> str:
    """Remove the legal form at the end of a normalised name.

    >>> without_legal_form("limode co ltd"), without_legal_form("company")
    ('limode', 'company')
    """
    words = plain.split()
    while len(words) > 1 and words[-1] in LEGAL | _LEGAL_AT_TIMES:
        words.pop()
    return " ".join(words)


def plain_relation(relation: str) -> str:
    """Return the wording of a relation without its tense and person.

    >>> plain_relation("was born in"), plain_relation("is")
    ('born in', 'is')
    """
    plain = normalise(relation)
    return _AUXILIARY.sub("", plain) or plain
