"""One invented word for each old word: a bijection that keeps word families together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ga_dspy.eval.renaming.invent import Alphabet, Shape
from ga_dspy.eval.renaming.words import FAMILIES, FAMILY_ENDINGS

_PLURAL = "s"
_DEMONYMS = ("ian", "an", "n", "ese", "ish", "ite", "i")
_SHORTEST_BASE = 4
_STATE_ACRONYMS = {"US": "S", "USA": "SA", "UK": "K"}


def invent_words(
    shapes: Mapping[str, Shape], alphabet: Alphabet, taken: set[str]
) -> dict[str, str]:
    """An invented word for every word of `shapes`, none of them in `taken`, no two the same.

    Plurals ("Kennedys") and demonyms ("Austrian") are built on the word that they derive from,
    so that a reader still sees the relation. `taken` grows by the new words.
    """
    new = _families(shapes, alphabet, taken)
    taken.update(new.values())
    for old in sorted(shapes.keys() - new.keys(), key=lambda word: (len(word), word)):
        derived = _derived(old, new, shapes)
        word = derived if derived and derived not in taken else None
        new[old] = word or alphabet.word(old, shapes[old], taken)
        taken.add(new[old])
    return new


def invent_acronyms(
    acronyms: Iterable[str], words: Mapping[str, str], alphabet: Alphabet, taken: set[str]
) -> dict[str, str]:
    """An invented acronym for each; those of the United States and Kingdom fit their new names."""
    new: dict[str, str] = {}
    for old in sorted(acronyms, key=lambda name: (name not in _STATE_ACRONYMS, len(name), name)):
        new[old] = _fitting(old, words, taken) or alphabet.acronym(old, taken)
        taken.add(new[old].casefold())
    return new


def _fitting(old: str, words: Mapping[str, str], taken: set[str]) -> str | None:
    """For US, USA and UK: the first letters of the new word for "United", then what stays."""
    if old not in _STATE_ACRONYMS or "united" not in words:
        return None
    united = words["united"].upper()
    fitting = (united[:size] + _STATE_ACRONYMS[old] for size in (1, 2, 3))
    return next((acronym for acronym in fitting if acronym.casefold() not in taken), None)


def _families(shapes: Mapping[str, Shape], alphabet: Alphabet, taken: set[str]) -> dict[str, str]:
    new: dict[str, str] = {}
    for family in FAMILIES:
        there = [word for word in family if word in shapes]
        if there:
            stem = alphabet.stem(family[0], taken | set(new.values()), FAMILY_ENDINGS)
            endings = dict(zip(family, FAMILY_ENDINGS, strict=False))
            new |= {word: stem + endings[word] for word in there if word not in new}
    return new


def _derived(old: str, new: Mapping[str, str], shapes: Mapping[str, Shape]) -> str | None:
    base = old[: -len(_PLURAL)]
    if old.endswith(_PLURAL) and len(base) >= _SHORTEST_BASE and base in new:
        return new[base] + _PLURAL
    for ending in _DEMONYMS:
        for base in _bases(old, ending):
            if base in new and shapes[base] in ("place", "other"):
                return new[base].rstrip("aeiou") + ("an" if ending == "n" else ending)
    return None


def _bases(old: str, ending: str) -> tuple[str, ...]:
    if not old.endswith(ending) or len(old) - len(ending) < _SHORTEST_BASE - 1:
        return ()
    stem = old[: -len(ending)]
    vowels = ("", "a", "y", "e", "o", "ia") if ending != "n" else ("",)
    return tuple(stem + vowel for vowel in vowels if len(stem + vowel) >= _SHORTEST_BASE)
