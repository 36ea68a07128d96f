"""What kind of thing a name names, by cheap evidence: its first sentence, its own words."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ga_dspy.eval.renaming.text import key
from ga_dspy.eval.renaming.words import (
    ORGANISATION_NOUNS,
    PERSON_NOUNS,
    PLACE_NOUNS,
    WORK_NOUNS,
    Kind,
)

_NOUNS: tuple[tuple[Kind, frozenset[str]], ...] = (
    ("person", PERSON_NOUNS),
    ("work", WORK_NOUNS),
    ("place", PLACE_NOUNS),
    ("organisation", ORGANISATION_NOUNS),
)
_BORN = re.compile(
    r"\A[^.]{0,120}?\((?:[^()]*\W)?(?:born|b\.|né?e|died|d\.)\W|\A[^.(]*\([^()]*\d{3,4}\s?[–-]\s"
)
_IS = re.compile(
    r"\b(?:is|was|are|were|refers to)\s+(?:(?:also|both|now)\s+)?(?:an?|the|one of|\w+)\b"
)
_PHRASE_ENDS = re.compile(
    r"\b(?:who|which|that|in|by|from|of|for|with|on|at|and|directed|written|located|situated|based|"
    r"born|starring|released|created|produced|published|known|to|as)\b|[,.;(]"
)
_HINT = re.compile(r"\(([^()]*)\)\s*\Z")


def kind_of(title: str, text: str) -> Kind:
    """The kind of what a paragraph is about.

    >>> kind_of("Titanic (1997 film)", "")
    'work'
    >>> kind_of("Ada Brook", "Ada Brook (born 1950) is an American film director from Ohio.")
    'person'
    """
    hint = _HINT.search(title)
    told = _last_kind(key(hint.group(1))) if hint else None
    if told:
        return told
    if _BORN.match(text):
        return "person"
    own = _last_kind(key(title))
    return _of_sentence(text) or (own if own in ("place", "organisation") else None) or "other"


def kind_of_words(words: Sequence[str]) -> Kind | None:
    """The kind that a name's own words tell ("River", "University"); None where they do not."""
    return _last_kind(words[-1:]) or _last_kind(words[:1])


def _of_sentence(text: str) -> Kind | None:
    verb = _IS.search(text[:400])
    if not verb:
        return None
    described = text[verb.start() : verb.end() + 120]
    start = verb.end() - verb.start()
    end = _PHRASE_ENDS.search(described, start)
    told = _last_kind(key(described[: end.start()] if end else described))
    return told or _last_kind(key(described[: start + 60]), first=True)


def _last_kind(words: Sequence[str], *, first: bool = False) -> Kind | None:
    for word in words if first else reversed(words):
        for kind, nouns in _NOUNS:
            if word in nouns or (word.endswith("s") and word[:-1] in nouns):
                return kind
    return None
