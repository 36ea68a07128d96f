"""Words: which are never names, and what is invented for those that are."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import count
from pathlib import Path
from typing import Final, Literal, NamedTuple

from rapidfuzz.distance import OSA
from rapidfuzz.process import extractOne

from ga_dspy.text import DATE_WORDS, STOPWORDS, fold

# --- Words that are never names by themselves: what stays when everything else is renamed.
#
# The lists of words.json hold what a name is built with ("University of", "Lake", "Sir"), not
# names. Common words need no list: that a word is common shows in the file, where it stands in
# lower case.

Kind = Literal["person", "place", "organisation", "work", "other"]

_LISTS = json.loads(Path(__file__).with_name("words.json").read_text(encoding="utf-8"))
_WORDS = {name: " ".join(lines).split() for name, lines in _LISTS.items()}
_SETS = {name: frozenset(words) for name, words in _WORDS.items()}

FUNCTION: Final = _SETS["function"] | (
    STOPWORDS - {"another", "either", "ever", "itself", "many", "much", "name", "whether"}
)
NUMBERS: Final = _SETS["numbers"]
CALENDAR: Final = DATE_WORDS | _SETS["calendar"]
UNCHANGING: Final = FUNCTION | NUMBERS | CALENDAR
KEPT: Final = _SETS["honorifics"] | _SETS["kept"]
"""Titles, faiths, directions and forms of government: common words with a capital."""

_KINDS: tuple[Kind, ...] = ("person", "work", "place", "organisation")
NOUNS: Final[dict[Kind, frozenset[str]]] = {
    kind: _SETS[kind] | {f"{noun}s" for noun in _SETS[kind]} for kind in _KINDS
}
"""Head nouns, with their plurals: they show of what kind a name is ("an American director")."""

KIND_OF: Final = {noun: kind for kind in reversed(_KINDS) for noun in NOUNS[kind]}

STAYING: Final = (UNCHANGING | KEPT | _SETS["in_names"] | KIND_OF.keys()) - {"american", "united"}
SURNAMES: Final = _SETS["surnames"]
"""Words that stay, but are surnames behind a given name."""

GENERIC_ACRONYMS: Final = _SETS["generic_acronyms"]
FAMILIES: Final = tuple(tuple(line.split()) for line in _LISTS["families"])
"""Irregular demonyms: the words of a family get one stem, so that the relation survives."""

QUOTES: Final = frozenset("\"“”`'‘’")
VERBS: Final = _SETS["verbs"]
"""What follows a name that a sentence begins with."""


# --- Tokens of a text, with what decides whether they can be names: their case and their place.

_LETTER = r"(?:[^\W_][̀-ͯ]*)"
_TOKEN = re.compile(rf"&amp;|(?<![^\W_])[A-Z](?:\.[A-Z])+(?![^\W_])\.?|{_LETTER}+")
_INNER_GAP = re.compile(r"[ \u00a0]|, |-|['’] ?| & ")
_ROMAN = re.compile(r"M{0,3}(?:CM|CD|D?C{0,3})(?:XC|XL|L?X{0,3})(?:IX|IV|V?I{0,3})")


class Token(NamedTuple):
    """A word of a text: as it is spelled, folded, its place, and the characters before it."""

    text: str
    folded: str
    start: int
    end: int
    gap: str

    @property
    def capitalised(self) -> bool:
        """Whether it holds a capital, or letters of a script without case."""
        return self.text != self.text.lower() or is_foreign(self.text)

    @property
    def inner(self) -> bool:
        """Whether a capital here is the word's own: no sentence, quotation or list begins."""
        return _INNER_GAP.fullmatch(self.gap) is not None

    @property
    def acronym(self) -> str:
        """Its capitals without dots where it is an acronym ("U.S." is "US"), else ""."""
        plain = self.text.replace(".", "")
        dotted = plain != self.text
        shaped = plain.isascii() and plain.isalpha() and plain.isupper() and 2 <= len(plain) <= 6
        return plain if shaped and (dotted or not _ROMAN.fullmatch(plain)) else ""


@lru_cache(maxsize=4096)
def tokens(text: str) -> tuple[Token, ...]:
    """The tokens of a text; a dotted acronym is one token.

    >>> [token.text for token in tokens("O'Neill's U.S. visit")]
    ['O', 'Neill', 's', 'U.S.', 'visit']
    """
    found: list[Token] = []
    end = 0
    for match in _TOKEN.finditer(text):
        word, start = match.group(), match.start()
        if word == "&amp;":  # Wikipedia's titles in HotpotQA; it stands in the gap
            continue
        # Sentences of HotpotQA begin with a space, which is no gap between words.
        gap = text[end:start].replace("&amp;", "&") if found else text[:start].strip()
        if gap == ". " and found[-1].folded in _SETS["abbreviated"]:
            gap = " "
        found.append(Token(word, _fold_word(word), start, match.end(), gap))
        end = match.end()
    return tuple(found)


@lru_cache(maxsize=1 << 17)
def _fold_word(word: str) -> str:
    return fold(word.replace(".", ""))


@lru_cache(maxsize=1 << 17)
def is_foreign(word: str) -> bool:
    """Whether a word is spelled in another script than Latin, or in phonetic letters.

    >>> [is_foreign(word) for word in ("Čapek", "Москва", "kˈænzəs", "π")]
    [False, True, True, False]
    """
    others = [c for c in word if c.isalpha() and (0x250 <= ord(c) < 0x1E00 or ord(c) > 0x1EFF)]
    return bool(others) and not (len(word) == 1 and "Ͱ" <= word <= "Ͽ")


def key(text: str) -> tuple[str, ...]:
    """The folded words of a text: equal for names that differ in case, accents, punctuation."""
    return tuple(token.folded for token in tokens(text))


def is_caseless(line: Sequence[Token]) -> bool:
    """Whether a line is typed without capitals, except for a first one: its case says nothing."""
    return not any(token.capitalised for token in line[1:])


_SHORTEST_MISSPELT: Final = 5
_TWICE_MISSPELT: Final = 8  # letters, from which two slips are still one word


def nearest(word: str, known: Collection[str]) -> str | None:
    """The known word that a folded word misspells; None where there is none.

    A slip is a letter more, less, other, or two that changed places.

    >>> nearest("advernture", ("end", "adventure")), nearest("bod", ("bob",))
    ('adventure', None)
    """
    slips = (len(word) >= _SHORTEST_MISSPELT) + (len(word) >= _TWICE_MISSPELT)
    if not slips or not word.isalpha():
        return None
    found = extractOne(word, known, scorer=OSA.distance, score_cutoff=slips)
    return found[0] if found else None


def runs(line: Sequence[Token]) -> list[tuple[Token, ...]]:
    """Capitalised tokens that follow one another, with spaces or hyphens between them."""
    found: list[list[Token]] = []
    follows = False
    for token in line:
        if token.capitalised and follows and token.gap in (" ", "-"):
            found[-1].append(token)
        elif token.capitalised:
            found.append([token])
        follows = token.capitalised
    return [tuple(run) for run in found]


def following(line: Sequence[Token], place: int) -> Token | None:
    """The token after one; None after the last."""
    return line[place + 1] if place + 1 < len(line) else None


def is_quoted_or_owner(line: Sequence[Token], place: int) -> bool:
    """Whether a word is in quotation marks of its own, or has "'s" behind it."""
    after = following(line, place)
    return after is not None and (
        (line[place].gap[-1:] in QUOTES and after.gap[:1] in QUOTES)
        or (after.folded == "s" and after.gap in ("'", "’"))
    )


# --- Invented words: pronounceable, of a kind, the same for the same seed and word.

Shape = Literal["given", "surname", "place", "organisation", "work", "other"]

_VOWELS: Final = "aeiou"
_CONSONANTS: Final = "bcdfghjklmnpqrstvwxyz"
_WITH_R: Final = "bcdfgkptv"
_WITH_L: Final = "bcfgkps"
_TRIES: Final = 300
_FAMILY_ENDINGS: Final = ("ia", "ian", "ish")
_DEMONYMS: Final = ("ian", "an", "n", "ese", "ish", "ite", "i")
_SHORTEST_BASE: Final = 4


class Inventor:
    """Invents words and acronyms: none that is in use, none twice.

    The first letter follows the old word's by one shuffled alphabet for the whole file, vowels to
    vowels; so initials and acronyms still fit their names, and "an" still stands before a vowel.

    Args:
        seed: The same seed and words give the same inventions.
        in_use: Folded words that must not be invented.
    """

    def __init__(self, seed: int, in_use: Iterable[str] = ()) -> None:
        self.seed = seed
        self._in_use = set(in_use)
        self._letters = _shuffle(_VOWELS, seed) | _shuffle(_CONSONANTS, seed)

    def letter(self, old: str) -> str:
        """The letter that stands for an initial; other signs than a-z stay.

        >>> Inventor(7).letter("k") != "k"
        True
        """
        new = self._letters.get(old.lower(), old.lower())
        return new.upper() if old.isupper() else new

    def words(self, shapes: Mapping[str, Shape]) -> dict[str, str]:
        """An invented word in lower case for every word.

        Plurals ("Kennedys") and demonyms ("Austrian") are built on the word that they derive
        from, so that a reader still sees the relation.
        """
        new: dict[str, str] = {}
        for family in FAMILIES:
            if not shapes.keys().isdisjoint(family):
                stem = self._word(family[0], "place").rstrip(_VOWELS)
                pairs = zip(family, _FAMILY_ENDINGS, strict=False)
                new |= {word: stem + ending for word, ending in pairs if word in shapes}
                self._in_use.update(new.values())
        for old in sorted(shapes.keys() - new.keys(), key=lambda word: (len(word), word)):
            derived = _derived(old, new, shapes)
            if derived is None or derived in self._in_use:
                derived = self._word(old, shapes[old])
            new[old] = derived
            self._in_use.add(derived)
        return new

    def acronyms(self, acronyms: Iterable[str]) -> dict[str, str]:
        """An invented acronym for each."""
        new: dict[str, str] = {}
        for old in sorted(acronyms, key=lambda old: (len(old), old)):
            new[old] = self._acronym(old)
            self._in_use.add(new[old].casefold())
        return new

    def _word(self, old: str, shape: Shape) -> str:
        draw = random.Random(f"{self.seed}:{shape}:{old}")
        first = self._letters.get(old[0]) or draw.choice(_CONSONANTS.replace("x", ""))
        for tried in count():
            # Where short words have run out, another syllable makes room.
            syllables = range(tried // _TRIES)
            more = "".join(draw.choice("aeio") + draw.choice("lmnrtvd") for _ in syllables)
            new = _start(first, draw) + draw.choice(_WORDS["middles"]) + more + _end(shape, draw)
            if new not in self._in_use and 5 <= len(new) <= 10 + 4 * len(more):
                break
        return new

    def _acronym(self, old: str) -> str:
        new = "".join(self.letter(letter) for letter in old)
        draw = random.Random(f"{self.seed}:acronym:{old}")
        while new.casefold() in self._in_use:
            # Longer ones are drawn where nearly all of a length are in use.
            size = len(old) + (draw.random() < 0.1)
            letters = (draw.choice(_CONSONANTS + _VOWELS).upper() for _ in range(size - 1))
            new = new[0] + "".join(letters)
        return new


def match_case(new: str, old: str) -> str:
    """`new`, given in lower case, with the case pattern of `old`.

    >>> [match_case("brenholt", old) for old in ("KANSAS", "kansas", "McKay")]
    ['BRENHOLT', 'brenholt', 'Brenholt']
    """
    if old.isupper() and len(old) > 1:
        return new.upper()
    has_case = old.lower() != old.upper()
    return new if has_case and old == old.lower() else new.capitalize()


def _shuffle(letters: str, seed: int) -> dict[str, str]:
    order = list(letters)
    random.Random(f"letters:{seed}").shuffle(order)
    return dict(zip(order, [*order[1:], order[0]], strict=True))  # one cycle: no letter stays


def _start(first: str, draw: random.Random) -> str:
    if first in _VOWELS:
        return first
    onsets = [first, first]
    onsets += [first + "r"] if first in _WITH_R else []
    onsets += [first + "l"] if first in _WITH_L else []
    onset = "qu" if first == "q" else draw.choice(onsets)
    return onset + draw.choice("aeio" if first == "q" else _WORDS["nuclei"])


def _end(shape: Shape, draw: random.Random) -> str:
    ending = draw.choice(_WORDS[f"{shape} endings"])
    linked = ending[0] in _VOWELS
    longer = draw.random() < 0.2
    link = draw.choice("aeio") if longer or not linked else ""
    if longer:
        link += draw.choice("lmnrstvd" if linked else "lmnrtvd")
    return link + ending


def _derived(old: str, new: Mapping[str, str], shapes: Mapping[str, Shape]) -> str | None:
    singular = old.removesuffix("s")
    if singular != old and len(singular) >= _SHORTEST_BASE and singular in new:
        return new[singular] + "s"
    for ending in _DEMONYMS:
        stem = old.removesuffix(ending)
        if stem == old or len(stem) < _SHORTEST_BASE - 1:
            continue
        for vowel in ("", "a", "y", "e", "o", "ia") if ending != "n" else ("",):
            base = stem + vowel
            is_place = base in new and (
                shapes[base] in ("place", "other") or base.endswith("ia")  # "Australian"
            )
            if is_place and len(base) >= _SHORTEST_BASE:
                return new[base].rstrip("aeiou") + ("an" if ending == "n" else ending)
    return None
