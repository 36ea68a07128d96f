"""What a question asks for: its wh-word, its wh-noun, the type of its answer, its options."""

from __future__ import annotations

from functools import lru_cache
from itertools import takewhile
from typing import NamedTuple

from extractive_lm.text import (
    ARTICLES,
    AUXILIARIES,
    PREPOSITIONS,
    STOPWORDS,
    Parsed,
    Span,
    name_spans,
    normalize,
    noun_type,
    parse,
    pattern_spans,
    stem,
    words,
)

_WH_WORDS = words("wh_words")
_NOUN_ENDS = AUXILIARIES | frozenset(
    "of in that who which for by with from at on to and or been be also , ? ; : ( ) \" 's whose "
    "whom where when as being".split()
)
# "What is the name of the band ...", "which one of the bands ..."
_BEFORE_NOUN = AUXILIARIES | ARTICLES | frozenset("name names kind type types one of".split())
_BY_WH = {"who": "person", "whom": "person", "whose": "person", "when": "date", "where": "place"}


class Question(NamedTuple):
    """A question taken apart; strings are lower case unless they are names.

    `norm` is the normalised text between two spaces. `wants` is the type of the answer: person,
    place, group, work, date, year, number, nationality, role, yesno, choice or thing. `choices`
    are the two options of "A or B". `focus` weighs each keyword by its nearness to the wh-word, 1
    for the nearest.
    """

    text: str
    parsed: Parsed
    norm: str
    wh: str
    noun: str
    wants: str
    choices: tuple[str, ...]
    names: tuple[str, ...]
    focus: dict[str, float]

    def holds(self, norm: str) -> bool:
        """Return whether a normalised phrase stands in the question, in whole words."""
        return f" {norm} " in self.norm

    @property
    def noun_stem(self) -> str:
        """The stem of the wh-noun, "" where there is none."""
        return stem(self.noun) if self.noun else ""


@lru_cache(maxsize=512)
def analyse(question: str) -> Question:
    """Take a question apart by rules alone.

    >>> q = analyse("In what city was the author of Heidi born?")
    >>> q.wh, q.noun, q.wants
    ('what', 'city', 'place')
    """
    parsed = parse(" ".join(question.split()))
    index = _wh_index(parsed)
    wh = parsed.lower[index] if index >= 0 else ""
    noun = _wh_noun(parsed.lower, wh, index)
    spans = sorted(pattern_spans(parsed, "quote") + name_spans(parsed))
    spans = [s for s in spans if parsed.lower[s.start] not in _WH_WORDS | AUXILIARIES]
    choices = _choices(parsed, spans)
    focus: dict[str, float] = {}
    for i, word in enumerate(parsed.stems):
        if word:
            distance = max(abs(i - max(index, 0)) - 1, 0)
            focus[word] = max(focus.get(word, 0.0), 0.85**distance)
    return Question(
        text=parsed.text,
        parsed=parsed,
        norm=f" {normalize(parsed.text)} ",
        wh=wh,
        noun=noun,
        wants=_wants(parsed, wh, noun, choices),
        choices=choices,
        names=tuple(dict.fromkeys(parsed.slice(s.start, s.end) for s in spans)),
        focus=focus,
    )


def _wh_index(parsed: Parsed) -> int:
    """Find the interrogative: at the start, else the last "what", else the first of any; or -1."""
    lower, start = parsed.lower, parsed.bounds[-1][0] if parsed.bounds else 0
    found = [i for i, word in enumerate(lower) if word in _WH_WORDS]
    opening = [i for i in found if i == start or (i == start + 1 and lower[start] in PREPOSITIONS)]
    what = [i for i in found if lower[i] == "what"]
    return (opening or what[-1:] or found or [-1])[0]


def _wh_noun(lower: tuple[str, ...], wh: str, index: int) -> str:
    """Find the head noun of what is asked: "city" of "in what city", "mother" of "the mother"."""
    start = index + 1 + (wh == "how")
    if wh not in ("what", "which", "how", ""):
        return ""
    while start < len(lower) and lower[start] in _BEFORE_NOUN:
        start += 1
    phrase = list(takewhile(lambda word: word not in _NOUN_ENDS, lower[start : start + 5]))
    # The first noun of a known type (the last of several in a row), else the second word.
    for i, word in enumerate(phrase):
        if noun_type(word) and not (i + 1 < len(phrase) and noun_type(phrase[i + 1])):
            return word
    plain = [w for w in phrase[:2] if w[0].isalpha() and w not in STOPWORDS]
    return plain[-1] if plain else ""


def _wants(parsed: Parsed, wh: str, noun: str, choices: tuple[str, ...]) -> str:
    last = parsed.bounds[-1][0] if parsed.bounds else 0
    opening = parsed.lower[last : last + 1]
    if choices and (wh or opening[0] in AUXILIARIES):
        return "choice"
    if opening and opening[0] in AUXILIARIES:
        return "yesno"
    if wh == "how":
        return "number"
    return _BY_WH.get(wh) or ("year" if noun == "year" else noun_type(noun) or "thing")


def _choices(parsed: Parsed, names: list[Span]) -> tuple[str, ...]:
    """Return the names around "or", or those of "between A and B"; () where there are none."""
    joint = "and" if parsed.lower[:1] == ("between",) else "or"
    for i in (i for i, word in enumerate(parsed.lower) if word == joint):
        left = [s for s in names if i - 3 < s.end <= i]
        right = [s for s in names if i < s.start < i + 4]
        if left and right:
            return tuple(parsed.slice(s.start, s.end) for s in (left[0], right[0]))
    return ()
