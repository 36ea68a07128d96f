"""Identity: what a name alone shows of which entity it means."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Final, NamedTuple

from rapidfuzz.distance import DamerauLevenshtein

from ga_dspy import lexicon
from ga_dspy.text import ARTICLES, normalise, remembered

TABLES: Final = json.loads(Path(__file__).with_name("identity.json").read_text("utf-8"))


def group_of(table: str) -> dict[str, str]:
    """The group of each member of a table, which lists them by group."""
    return {member: group for group, members in TABLES[table].items() for member in members}


_QUALIFIED: Final = re.compile(r"(?P<base>.*\S)\s*\((?P<qualifier>[^()]+)\)")
_ROMAN: Final = re.compile(r"(?:xl|l?x{0,3})(?:ix|iv|v?i{0,3})")
_ROMAN_DIGITS: Final = {"i": 1, "v": 5, "x": 10, "l": 50}
_ORDINAL: Final = re.compile(r"(\d+)(?:st|nd|rd|th)")
_BRITISH: Final = re.compile(r"(\w\w)our(s|ed|ing|ful|ite|ites)?\Z")
_NUMBER_WORDS: Final = group_of("numbers")
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


@remembered(most=16384, longest=200)
def split_qualifier(name: str) -> Title:
    """Split a trailing qualifier from a name.

    >>> split_qualifier("Prism (album)")
    Title(base='Prism', qualifier='album')
    """
    match = _QUALIFIED.fullmatch(name.strip())
    return Title(match["base"], match["qualifier"].strip()) if match else Title(name, "")


_AFTER_NAME: Final = re.compile(r"(?P<base>[^,]*[^\s,])(?:,\s+(?P<behind>.+)| (?P<jr>[JS]n?r\.?))")


@remembered(most=16384, longest=200)
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
    """The words of a normalised name, numbers in digits, "colour" as "color".

    An ordinal is no cardinal.

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
    return _NUMBER_WORDS.get(word, _BRITISH.sub(r"\1or\2", word))


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
    return bool(words) and words[0] in TITLES and (len(words) == 1 or words[1] in _SMALL_WORDS)


def without_legal_form(plain: str) -> str:
    """A normalised name without the legal form at its end.

    >>> without_legal_form("limode co ltd"), without_legal_form("company")
    ('limode', 'company')
    """
    words = plain.split()
    while len(words) > 1 and words[-1] in LEGAL | _LEGAL_AT_TIMES:
        words.pop()
    return " ".join(words)


def plain_relation(relation: str) -> str:
    """The wording of a relation in which its tense and person do not count.

    >>> plain_relation("was born in"), plain_relation("is")
    ('born in', 'is')
    """
    plain = normalise(relation)
    return _AUXILIARY.sub("", plain) or plain
