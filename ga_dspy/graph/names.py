"""When two names mean the same thing: spelling, well-known aliases, acronyms, typing slips."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from typing import Final, NamedTuple

from rapidfuzz.distance import DamerauLevenshtein

_FOLD: Final = str.maketrans(
    dict(zip("øłđæœþðı&", ("o", "l", "d", "ae", "oe", "th", "d", "i", " and "), strict=True))
)
_APOSTROPHE: Final = re.compile(r"[’‘`´ʼ]")
_POSSESSIVE: Final = re.compile(r"(?<=\w)'s\b|'")
_THOUSANDS: Final = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_POINT: Final = re.compile(r"(?<!\d)\.|\.(?!\d)|_")
_MARK: Final = re.compile(r"[^\w\s.+#$%@=<>^~×÷°€£]")
_INITIALS: Final = re.compile(r"\b[^\W\d_](?: [^\W\d_]\b)+")
_ARTICLE: Final = re.compile(r"\A(?:the|an?) (?=.)")
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
_SMALL_WORDS: Final = frozenset(
    ["a", "an", "and", "at", "by", "de", "for", "in", "of", "on", "the"]
)

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


@lru_cache(maxsize=65536)
def normalise(name: str) -> str:
    """The form in which two spellings of one name are equal.

    Case, accents, punctuation, a leading article and a possessive do not count; initials are
    written together. A name made of punctuation alone stays as it is.

    >>> normalise("The Beyoncé’s"), normalise("U. S."), normalise("J.K. Rowling")
    ('beyonce', 'us', 'jk rowling')
    """
    text = unicodedata.normalize("NFKC", name).casefold()
    folded = unicodedata.normalize("NFKD", text.translate(_FOLD))
    text = "".join(c for c in folded if not unicodedata.combining(c))
    text = _POSSESSIVE.sub("", _APOSTROPHE.sub("'", text))
    text = _POINT.sub(" ", _THOUSANDS.sub("", text))
    text = " ".join(_MARK.sub(" ", text).split())
    text = _INITIALS.sub(lambda run: run.group().replace(" ", ""), text)
    return _ARTICLE.sub("", text) or " ".join(name.casefold().split())


class Title(NamedTuple):
    """A name and what its trailing parentheses add: "Prism (album)" is Prism, an album."""

    base: str
    qualifier: str


@lru_cache(maxsize=65536)
def split_qualifier(name: str) -> Title:
    """Take a trailing qualifier off a name.

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
    ours, theirs = words(one), words(other)
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


def shortened(word: str) -> set[str]:
    """What is left of a word, of up to `LONG_WORD` letters, when letters are left out.

    Near duplicates share one such rest: two words whose Damerau-Levenshtein distance is n become
    equal when at most n letters of each are left out, and `WORD_SIMILARITY` bounds n.

    >>> shortened("dog"), shortened("abdulatif") & shortened("abdullatif")
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
def words(plain: str) -> tuple[str, ...]:
    """The words of a normalised name, numbers in digits whatever their notation.

    >>> words("world war ii"), words("second edition")
    (('world', 'war', '2'), ('2', 'edition'))
    """
    return tuple(_in_digits(word) for word in plain.split())


def _in_digits(word: str) -> str:
    if word in _NUMBER_WORDS:
        return _NUMBER_WORDS[word]
    if ordinal := _ORDINAL.fullmatch(word):
        return ordinal[1]
    if len(word) > 1 and _ROMAN.fullmatch(word):
        digits = [_ROMAN_DIGITS[letter] for letter in word]
        pairs = zip(digits, [*digits[1:], 0], strict=True)
        return str(sum(-digit if digit < following else digit for digit, following in pairs))
    return word


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
