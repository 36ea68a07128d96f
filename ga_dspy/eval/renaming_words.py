"""Words: which are never names, and what is invented for those that are."""

from __future__ import annotations

import json
import random
import re
import string
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import count
from pathlib import Path
from typing import Final, Literal, NamedTuple

from rapidfuzz.distance import OSA
from rapidfuzz.process import extractOne

from ga_dspy.text import DATE_WORDS, STOPWORDS, fold

# --- Words that are never names by themselves.
#
# The lists hold what a name is built with ("University of", "Lake", "Sir"), not names. Common
# words need no list: that a word is common shows in the file, where it stands in lower case.

Kind = Literal["person", "place", "organisation", "work", "other"]
Shape = Literal["given", "surname", "place", "organisation", "work", "other", "acronym"]

_LISTS = json.loads(Path(__file__).with_name("renaming_words.json").read_text(encoding="utf-8"))
_WORDS = {name: " ".join(lines).split() for name, lines in _LISTS.items()}
_SETS = {name: frozenset(words) for name, words in _WORDS.items()}

_KINDS: tuple[Kind, ...] = ("organisation", "place", "work", "person")
KIND_OF: Final[dict[str, Kind]] = {
    form: kind for kind in _KINDS for noun in _WORDS[kind] for form in (noun, f"{noun}s")
}
"""Head nouns and their plurals: they show of what kind a name is ("an American director")."""

GENERIC_ACRONYMS: Final = _SETS["generic_acronyms"]
FUNCTION: Final = _SETS["function"] | (
    STOPWORDS - {"another", "either", "ever", "itself", "many", "much", "name", "whether"}
)
COUNTED: Final = _SETS["numbers"] | DATE_WORDS | _SETS["calendar"]
UNCHANGING: Final = FUNCTION | COUNTED | set(string.ascii_lowercase)
KEPT: Final = _SETS["honorifics"] | _SETS["kept"]
"""Titles, faiths, directions and forms of government: common words with a capital."""
STAYING: Final = (UNCHANGING | KEPT | _SETS["in_names"] | KIND_OF.keys()) - {"american"}
"""What names are built with, too: "University", "Lake", "Award"."""


# --- Tokens of a text, with what decides whether they can be names: their case and their place.

_LETTER = r"(?:[^\W_][̀-ͯ]*)"
_TOKEN = re.compile(
    rf"&amp;|(?<![^\W_])[A-Z](?:\.[A-Z])+(?![^\W_])\.?|{_LETTER}+n['’][tT](?![^\W_])|{_LETTER}+"
)
_INNER_GAP = re.compile(r"[ \u00a0]|, |-|['’] ?| & ")
_QUOTES: Final = tuple("\"“”`'‘’")
_ROMAN = re.compile(r"M{0,3}(?:CM|CD|D?C{0,3})(?:XC|XL|L?X{0,3})(?:IX|IV|V?I{0,3})")


class Token(NamedTuple):
    """A word of a text.

    Attributes:
        text: As it is spelled; a dotted acronym ("U.S.") is one word.
        folded: Without case, accents and dots; but the US is "u.s.", for "us" is a word.
        capitalised: Whether it holds a capital, or letters of a script without case.
        start: Its first character's place.
        gap: What stands before it, from the last word on.
        behind: What stands behind it, with the next word.
    """

    text: str
    folded: str
    capitalised: bool
    start: int
    gap: str
    behind: str

    @property
    def owns_capital(self) -> bool:
        """Whether a capital here is the word's own, wherever a sentence or a quotation begins.

        So it is within a sentence, before another capital or "'s", and alone in quotation marks.
        """
        leads = self.behind[:1] == " " and self.behind[1:2].isupper()
        quoted = self.gap.endswith(_QUOTES) and self.behind.startswith(_QUOTES)
        return (
            _INNER_GAP.fullmatch(self.gap) is not None
            or (leads and not self.folded.endswith(("ly", "ing", "ed")))
            or (self.behind.startswith(("'s", "’s")) or quoted)
        )

    @property
    def is_acronym(self) -> bool:
        """Whether it is one like NATO: capitals without dots, neither a number nor generic."""
        shaped = re.fullmatch("[A-Z]{2,6}", self.text) is not None
        return shaped and not _ROMAN.fullmatch(self.text) and self.text not in GENERIC_ACRONYMS


@lru_cache(maxsize=4096)
def tokens(text: str) -> tuple[Token, ...]:
    """The tokens of a text.

    >>> [token.text for token in tokens("O'Neill's U.S. visit, &amp; don't")]
    ['O', 'Neill', 's', 'U.S.', 'visit', "don't"]
    """
    found: list[Token] = []
    matches = [match for match in _TOKEN.finditer(text) if match[0] != "&amp;"]
    for place, match in enumerate(matches):
        # Sentences of HotpotQA begin with a space, which is no gap between words.
        gap = text[matches[place - 1].end() : match.start()] if found else text[: match.start()]
        gap = gap.replace("&amp;", "&") if found else gap.strip()
        if gap == ". " and (len(found[-1].text) == 1 or found[-1].folded in _SETS["abbreviated"]):
            gap = " "
        end = matches[place + 1].end() if place + 1 < len(matches) else len(text)
        word, start, behind = match[0], match.start(), text[match.end() : end]
        capitalised = word != word.lower() or is_foreign(word)
        found.append(Token(word, _fold(word), capitalised, start, gap, behind))
    return tuple(found)


@lru_cache(maxsize=1 << 17)
def _fold(word: str) -> str:
    plain = word.replace(".", "")
    return "u.s." if plain == "US" else fold(plain)


@lru_cache(maxsize=1 << 17)
def is_foreign(word: str) -> bool:
    """Whether a word is spelled in another script than Latin, or in phonetic letters.

    >>> [is_foreign(word) for word in ("Čapek", "Москва", "kˈænzəs", "π")]
    [False, True, True, False]
    """
    others = (c for c in word if c.isalpha() and (0x250 <= ord(c) < 0x1E00 or ord(c) > 0x1EFF))
    return len(word) > 1 and any(others)


def key(text: str) -> tuple[str, ...]:
    """The folded words of a text: equal for names that differ in case, accents, punctuation."""
    return tuple(token.folded for token in tokens(text))


_LETTERS_PER_SLIP: Final = 5


def nearest(word: str, known: Iterable[str]) -> str:
    """The known word that a folded word misspells; the word itself where there is none.

    A word of five letters may have a slip, of ten two: a letter more, less, other, or two swapped.

    >>> nearest("advernture", ("end", "adventure")), nearest("bod", ("bob",))
    ('adventure', 'bod')
    """
    slips = min(2, len(word) // _LETTERS_PER_SLIP)
    found = extractOne(word, list(known), scorer=OSA.distance, score_cutoff=slips)
    return found[0] if found and slips else word


# --- Invented words: pronounceable, of a kind, the same for the same seed and word.

_VOWELS: Final = "aeiou"
_CONSONANTS: Final = "bcdfghjklmnpqrstvwxyz"
_TRIES: Final = 300
_SHORTEST: Final = 5
_FAMILIES: Final = tuple(tuple(line.split()) for line in _LISTS["families"])
"""Irregular demonyms: the words of a family get one stem, so that the relation survives."""
_FAMILY_ENDINGS: Final = ("ia", "ian", "ish")
_ENDINGS: Final = ("s", "ian", "an", "n", "ese", "ish", "ite", "i")
_SHORTEST_BASE: Final = 4


def alphabet(seed: int) -> dict[str, str]:
    """The letter that stands for each in the copy: vowels for vowels, none for itself.

    The first letter of an invented word follows it; so initials and acronyms still fit their
    names, and "an" still stands before a vowel.

    >>> alphabet(7)["k"] != "k", alphabet(7)["K"] == alphabet(7)["k"].upper()
    (True, True)
    """
    found: dict[str, str] = {}
    for letters in (_VOWELS, _CONSONANTS):
        order = random.Random(f"letters:{seed}").sample(letters, len(letters))
        for old, new in zip(order, [*order[1:], order[0]], strict=True):
            found |= {old: new, old.upper(): new.upper()}
    return found


def invent(shapes: Mapping[str, Shape], seed: int, in_use: Iterable[str]) -> dict[str, str]:
    """An invented word for every word: none that is in use, none twice.

    Plurals ("Kennedys") and demonyms ("Austrian") are built on the word that they derive from, so
    that a reader still sees the relation.

    Args:
        shapes: What each word should look like; words are folded.
        seed: The same seed and words give the same inventions.
        in_use: Folded words that must not be invented.
    """
    letters, taken, new = alphabet(seed), set(in_use), dict[str, str]()
    for family in _FAMILIES:
        if not shapes.keys().isdisjoint(family):
            stem = next(_inventions(family[0], "place", letters, seed)).rstrip(_VOWELS)
            pairs = zip(family, _FAMILY_ENDINGS, strict=False)
            new |= {word: stem + ending for word, ending in pairs if word in shapes}
            taken.update(new.values())
    for old in sorted(shapes.keys() - new.keys(), key=lambda word: (len(word), word)):
        derived = _derived(old, new, shapes)
        if derived is None or derived in taken:
            invented = _inventions(old, shapes[old], letters, seed)
            derived = next(word for word in invented if word not in taken)
        new[old] = derived
        taken.add(derived)
    return new


def _inventions(old: str, shape: Shape, letters: Mapping[str, str], seed: int) -> Iterator[str]:
    draw = random.Random(f"{seed}:{shape}:{old}")
    first = letters.get(old[0]) or draw.choice(_CONSONANTS.replace("x", ""))
    if shape == "acronym":
        yield "".join(letters.get(letter, "") for letter in old)
        while True:  # Longer ones are drawn where nearly all of a length are in use.
            size = len(old) + (draw.random() < 0.1)
            yield first + "".join(draw.choices(_VOWELS + _CONSONANTS, k=size - 1))
    for tried in count():
        # Where short words have run out, another syllable makes room.
        more = "".join(draw.choice("aeio") + draw.choice("lmnrtvd") for _ in range(tried // _TRIES))
        ending = draw.choice(_WORDS[f"{shape} endings"])
        link = "" if ending[0] in _VOWELS else draw.choice("aeio")
        onsets = [first, first, *(onset for onset in _WORDS["onsets"] if onset[0] == first)]
        start = "" if first in _VOWELS else draw.choice(_WORDS["nuclei"])
        start = draw.choice(onsets) + start
        word = start + draw.choice(_WORDS["middles"]) + more + link + ending
        if len(word) >= _SHORTEST:
            yield word


def _derived(old: str, new: Mapping[str, str], shapes: Mapping[str, Shape]) -> str | None:
    for ending in _ENDINGS:
        stem = old.removesuffix(ending)
        for vowel in ("", "a", "y", "e", "o", "ia") if len(ending) > 1 else ("",):
            base = stem + vowel
            if base == old or len(base) < _SHORTEST_BASE or base not in new:
                continue
            if ending == "s":
                return new[base] + "s"
            if shapes[base] in ("place", "other") or base.endswith("ia"):  # "Australian"
                return new[base].rstrip(_VOWELS) + ("an" if ending == "n" else ending)
    return None


def match_case(new: str, old: str) -> str:
    """`new` with the case pattern of `old`.

    >>> [match_case("brenholt", old) for old in ("KANSAS", "kansas", "McKay")]
    ['BRENHOLT', 'brenholt', 'Brenholt']
    """
    if old.isupper() and len(old) > 1:
        return new.upper()
    return new.lower() if old.islower() else new.capitalize()
