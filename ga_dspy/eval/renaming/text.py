"""Tokens of a text with what decides whether they can be names: their case and their place."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from ga_dspy.mentions import fold

_LETTER = r"(?:[^\W_][̀-ͯ]*)"
_TOKEN = re.compile(rf"(?<![^\W_])[A-Z](?:\.[A-Z])+(?![^\W_])\.?|{_LETTER}+")
_INNER_GAP = re.compile(r"[ \u00a0]|, |-|['’] ?")
QUOTES = frozenset("\"“”`'‘’")
_ROMAN = re.compile(r"M{0,3}(?:CM|CD|D?C{0,3})(?:XC|XL|L?X{0,3})(?:IX|IV|V?I{0,3})")


class Token(NamedTuple):
    """A word of a text: as written, folded, where it stands, and the characters before it."""

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
        # Sentences of HotpotQA begin with a space, which is no gap between words.
        gap = text[end:start] if found else text[:start].strip()
        found.append(Token(word, folded(word), start, match.end(), gap))
        end = match.end()
    return tuple(found)


@lru_cache(maxsize=1 << 17)
def folded(word: str) -> str:
    """Case, accents and the dots of an acronym removed."""
    return fold(word.replace(".", ""))


@lru_cache(maxsize=1 << 17)
def is_foreign(word: str) -> bool:
    """Whether a word is spelled in another script than Latin, or in phonetic letters.

    >>> [is_foreign(word) for word in ("Čapek", "Москва", "kˈænzəs", "π")]
    [False, True, True, False]
    """
    others = [c for c in word if c.isalpha() and (0x250 <= ord(c) < 0x1E00 or ord(c) > 0x1EFF)]
    return bool(others) and not (len(word) == 1 and "Ͱ" <= word <= "Ͽ")


def cased_like(new: str, old: str) -> str:
    """`new`, given in lower case, with the case pattern of `old`.

    >>> [cased_like("brenholt", old) for old in ("KANSAS", "kansas", "McKay")]
    ['BRENHOLT', 'brenholt', 'Brenholt']
    """
    if old.isupper() and len(old) > 1:
        return new.upper()
    has_case = old.lower() != old.upper()
    return new if has_case and old == old.lower() else new.capitalize()


def key(text: str) -> tuple[str, ...]:
    """The folded words of a text: equal for names that differ in case, accents, punctuation."""
    return tuple(token.folded for token in tokens(text))


def runs(there: Sequence[Token]) -> list[tuple[Token, ...]]:
    """Capitalised tokens that follow one another, with spaces or hyphens between them."""
    found: list[list[Token]] = []
    joined = False
    for token in there:
        named = token.capitalised
        if named and joined and token.gap in (" ", "-"):
            found[-1].append(token)
        elif named:
            found.append([token])
        joined = named
    return [tuple(run) for run in found]
