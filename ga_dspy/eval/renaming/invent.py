"""Invented words: pronounceable, of a kind, the same for the same seed and word.

The first letter follows the old word's by one shuffled alphabet for the whole file, vowels to
vowels; so initials and acronyms still fit their names, and "an" still stands before a vowel.
"""

from __future__ import annotations

import random
from collections.abc import Container
from itertools import count
from typing import Final, Literal

Shape = Literal["given", "surname", "place", "organisation", "work", "other"]

_VOWELS: Final = "aeiou"
_CONSONANTS: Final = "bcdfghjklmnpqrstvwxyz"
_WITH_R: Final = "bcdfgkptv"
_WITH_L: Final = "bcfgkps"
_NUCLEI: Final = "a e i o u a e i o ae ei au ou".split()
_MIDDLES: Final = (
    "b d g l m n r s t v z ld lm lv lth mb mbr nd ndr ng nk nt nth rb rd rg rk rl rm rn rth rv sk "
    "sl sp st str th thr v zd zh lk lt gd dr br vr"
).split()
_ENDINGS: Final[dict[Shape, tuple[str, ...]]] = {
    "given": tuple("a en el ia o an ric ine ovan ela ith in ora iel".split()),
    "surname": tuple(
        "wick holt ser nard mark gren lund dane rell tow vik tham ek oski ander".split()
    ),
    "place": tuple("mere vale stad ora havn wyn dale ria ford burgh ova mont ene".split()),
    "organisation": tuple("ex ova tra on ix um ent acor ium dyne".split()),
    "work": tuple("esk ine eth our alm une ost ade ift ow".split()),
    "other": tuple("en or al ist im une ath el ode arn".split()),
}


_TRIES: Final = 300


class Alphabet:
    """One seed's shuffled letters, and the words invented with them."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._letters = _shuffled(_VOWELS, seed) | _shuffled(_CONSONANTS, seed)

    def letter(self, old: str) -> str:
        """The letter that stands for an initial; other signs than a-z stay.

        >>> Alphabet(7).letter("k") != "k"
        True
        """
        new = self._letters.get(old.lower(), old.lower())
        return new.upper() if old.isupper() else new

    def word(self, old: str, shape: Shape, taken: Container[str]) -> str:
        """An invented word in lower case that is not in `taken`."""
        draw = random.Random(f"{self.seed}:{shape}:{old}")
        first = self._letters.get(old[0]) or draw.choice(_CONSONANTS.replace("x", ""))
        for tried in count():
            # Where short words have run out, another syllable makes room.
            more = "".join(_syllable(draw) for _ in range(tried // _TRIES))
            new = _start(first, draw) + draw.choice(_MIDDLES) + more + _end(shape, draw)
            if new not in taken and 5 <= len(new) <= 10 + 4 * len(more):
                break
        return new

    def stem(self, old: str, taken: Container[str], endings: tuple[str, ...]) -> str:
        """A stem that makes free words with all the endings."""
        draw = random.Random(f"{self.seed}:stem:{old}")
        first = self._letters.get(old[0], "v")
        while True:
            new = _start(first, draw) + draw.choice(_MIDDLES)
            if len(new) >= 4 and not any(new + ending in taken for ending in endings):
                return new

    def acronym(self, old: str, taken: Container[str]) -> str:
        """Capitals for capitals, letter by letter where that is free."""
        new = "".join(self.letter(letter) for letter in old)
        draw = random.Random(f"{self.seed}:acronym:{old}")
        while new.casefold() in taken:
            # Longer ones are drawn where nearly all of a length are taken.
            size = len(old) + (draw.random() < 0.1)
            letters = (draw.choice(_CONSONANTS + _VOWELS).upper() for _ in range(size - 1))
            new = new[0] + "".join(letters)
        return new


def _shuffled(letters: str, seed: int) -> dict[str, str]:
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
    return onset + draw.choice("aeio" if first == "q" else _NUCLEI)


def _syllable(draw: random.Random) -> str:
    return draw.choice("aeio") + draw.choice("lmnrtvd")


def _end(shape: Shape, draw: random.Random) -> str:
    ending = draw.choice(_ENDINGS[shape])
    linked = ending[0] in _VOWELS
    longer = draw.random() < 0.2
    if linked:
        return (draw.choice("aeio") + draw.choice("lmnrstvd") if longer else "") + ending
    return draw.choice("aeio") + (draw.choice("lmnrtvd") if longer else "") + ending
