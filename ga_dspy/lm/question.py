"""What a question asks for: its wh-word, its wh-noun, the type of its answer, its options."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from ga_dspy.lm.lexicon import STOPWORDS, noun_type
from ga_dspy.lm.text import Parsed, name_spans, parse, quoted_spans, stem

_AUXILIARIES = frozenset(
    "is are was were do does did has have had can could will would should".split()
)
_WH = frozenset("who whom whose what which when where how why".split())
_PREPOSITIONS = frozenset("in at on from to by of for with under into during between".split())
_NOUN_STOP = _AUXILIARIES | frozenset(
    "of in that who which for by with from at on to and or been be also , ? ; : ( ) \" 's whose "
    "whom where when as being".split()
)
_EARLY = frozenset("first earlier earliest older oldest before".split())
_LATE = frozenset("later latest last younger youngest recent recently newer newest after".split())
_MORE = frozenset(
    "more most larger largest higher highest taller tallest longer longest bigger biggest greater "
    "greatest farther further".split()
)
_LESS = frozenset("fewer fewest less least smaller smallest shorter shortest lower lowest".split())
_ONE_OF = re.compile(
    r"\b(?:name of|names of|kind of|type of|types of|kinds of|one of|sort of)\b", re.IGNORECASE
)


class Question(NamedTuple):
    """A question taken apart; strings are lower case unless they are names.

    `wh` is who, what, which, when, where, how, why, or "" where none stands. `wants` is the type
    of the answer: person, place, group, work, date, year, number, nationality, role, yesno,
    choice or thing. `order` tells how options compare: early, late, more, less or "". `focus`
    weighs each keyword by its nearness to the wh-word, 1 for the nearest.
    """

    text: str
    parsed: Parsed
    wh: str
    noun: str
    wants: str
    choices: tuple[str, ...]
    order: str
    names: tuple[str, ...]
    keywords: tuple[str, ...]
    focus: dict[str, float]


@lru_cache(maxsize=512)
def analyse(question: str) -> Question:
    """Take a question apart by rules alone.

    >>> q = analyse("In what city was the author of Heidi born?")
    >>> q.wh, q.noun, q.wants
    ('what', 'city', 'place')
    """
    parsed = parse(" ".join(question.strip().lstrip("\\").split()))
    wh, index = _find_wh(parsed)
    noun = _wh_noun(parsed, wh, index)
    choices = _choices(parsed)
    words = tuple(dict.fromkeys(s for s in parsed.stems if s))
    return Question(
        text=parsed.text,
        parsed=parsed,
        wh=wh,
        noun=noun,
        wants=_wants(parsed, wh, index, noun, choices),
        choices=choices,
        order=_order(parsed),
        names=_names(parsed),
        keywords=words,
        focus=_focus(parsed, index),
    )


def _find_wh(parsed: Parsed) -> tuple[str, int]:
    """The interrogative word: at the start, else the last "what", else the likeliest other."""
    lower = parsed.lower
    starts = [*[a for a, _ in parsed.bounds][-1:], 0]
    for start in starts:
        for i in (start, start + 1):
            if i < len(lower) and lower[i] in _WH and _interrogative_start(lower, i, start):
                return lower[i], i
    found = [i for i, word in enumerate(lower) if word in _WH]
    for test in (_asks_what, _asks_how, _asks_which, _ends_with_wh):
        hits = [i for i in found if test(lower, i)]
        if hits:
            return lower[hits[-1]], hits[-1]
    return (lower[found[0]], found[0]) if found else ("", -1)


def _interrogative_start(lower: tuple[str, ...], i: int, start: int) -> bool:
    return i == start or lower[start] in _PREPOSITIONS


def _asks_what(lower: tuple[str, ...], i: int) -> bool:
    return lower[i] == "what"


def _asks_how(lower: tuple[str, ...], i: int) -> bool:
    return lower[i] == "how" and i + 1 < len(lower) and lower[i + 1] in ("many", "much", "long")


def _asks_which(lower: tuple[str, ...], i: int) -> bool:
    """Whether "which" governs a noun rather than opens a relative clause."""
    if lower[i] != "which" or i + 1 >= len(lower) or lower[i + 1] in _AUXILIARIES:
        return False
    kinds = [noun_type(word) for word in lower[i + 1 : i + 4]]
    return any(kinds) and (kinds[0] != "" or lower[i - 1] != ",")


def _ends_with_wh(lower: tuple[str, ...], i: int) -> bool:
    return i >= len(lower) - 3


def _wh_noun(parsed: Parsed, wh: str, index: int) -> str:
    """The head noun of what is asked: "city" of "in what city", "mother" of "name the mother"."""
    lower = parsed.lower
    if wh in ("what", "which", "") and len(lower) > index + 1:
        start = index + 1
        if lower[start] in _AUXILIARIES and wh:
            start += 1
        phrase = _phrase(parsed, start)
        rest = " ".join(lower[start : start + 8])
        match = _ONE_OF.search(rest)
        if match and match.start() < 12:
            offset = start + len(rest[: match.end()].split())
            phrase = _phrase(parsed, offset) or phrase
        return _head(phrase)
    if wh == "how" and index + 2 < len(lower):
        return _head(_phrase(parsed, index + 2)[:3])
    return ""


def _phrase(parsed: Parsed, start: int) -> list[str]:
    words: list[str] = []
    for i in range(start, min(start + 8, len(parsed.lower))):
        word = parsed.lower[i]
        if word in ("the", "a", "an") and not words:
            continue
        if word in _NOUN_STOP:
            break
        words.append(word)
    return words


def _head(words: list[str]) -> str:
    """The first known kind of thing (the last of several in a row), else the second word."""
    for i, word in enumerate(words[:5]):
        if noun_type(word):
            while i + 1 < len(words) and noun_type(words[i + 1]):
                i += 1
            return words[i]
    alpha = [w for w in words[:2] if w[0].isalpha() and w not in STOPWORDS]
    return alpha[-1] if alpha else ""


def _wants(parsed: Parsed, wh: str, index: int, noun: str, choices: tuple[str, ...]) -> str:
    lower = parsed.lower
    last = parsed.bounds[-1][0] if parsed.bounds else 0
    aux = bool(lower) and (lower[last] in _AUXILIARIES or (lower[0] in _AUXILIARIES and not wh))
    if choices and (aux or wh or not lower):
        return "choice"
    if aux:
        return "yesno"
    if wh in ("who", "whom", "whose"):
        return "person"
    if wh == "when":
        return "date"
    if wh == "where":
        return "place"
    if wh == "how":
        following = lower[index + 1] if index + 1 < len(lower) else ""
        return "number" if following not in ("did", "do", "does", "is", "was", "were") else "thing"
    if noun == "year":
        return "year"
    return noun_type(noun) or "thing"


def _names(parsed: Parsed) -> tuple[str, ...]:
    """Names and quoted titles of the question, in order, each once."""
    spans = sorted(quoted_spans(parsed) + name_spans(parsed))
    names = [parsed.slice(s.start, s.end) for s in spans if parsed.lower[s.start] not in _WH]
    return tuple(dict.fromkeys(n for n in names if n.lower() not in _AUXILIARIES))


def _order(parsed: Parsed) -> str:
    for word in parsed.lower:
        for name, group in (("early", _EARLY), ("late", _LATE), ("more", _MORE), ("less", _LESS)):
            if word in group:
                return name
    return ""


def _choices(parsed: Parsed) -> tuple[str, ...]:
    """The two options of "A or B" or "between A and B", as written; () where there are none."""
    lower = parsed.lower
    joints = [i for i, w in enumerate(lower) if w == "or" and 0 < i < len(lower) - 1]
    if not joints and lower[:1] == ("between",):
        joints = [i for i, w in enumerate(lower[:12]) if w == "and"][:1]
    for joint in reversed(joints):
        left, right = _option_left(parsed, joint), _option_right(parsed, joint)
        if left and right:
            return (left, right)
    return ()


def _option_right(parsed: Parsed, joint: int) -> str:
    start = joint + 1
    while start < len(parsed.lower) and parsed.lower[start] in ("the", "a", "an", '"', "“"):
        start += 1
    end = _option_limit(parsed, start)
    return parsed.slice(start, end) if end > start else ""


def _option_limit(parsed: Parsed, start: int) -> int:
    """Where the right-hand option ends: its quotation, its run of names, or the clause."""
    tokens = parsed.tokens
    if start >= len(tokens):
        return start
    if tokens[start - 1].text in '"“':
        for i in range(start, len(tokens)):
            if tokens[i].text in '"”':
                return i
    names = [s for s in name_spans(parsed) if s.start <= start < s.end]
    if names:
        return names[0].end
    end = start
    while end < len(tokens) and tokens[end].text not in ",?;.":
        end += 1
    return end if end - start <= 5 else start


def _option_left(parsed: Parsed, joint: int) -> str:
    tokens, end = parsed.tokens, joint
    while end > 1 and tokens[end - 1].text in ",":
        end -= 1
    if tokens[end - 1].text in '"”' and end > 1:
        for i in range(end - 2, -1, -1):
            if tokens[i].text in '"“':
                return parsed.slice(i + 1, end - 1)
    names = [s for s in name_spans(parsed) if s.start < end and s.end >= end]
    if names and names[0].end in (end, joint + (names[0].end - joint)):
        start = names[0].start
        return parsed.slice(start, end) if start < end else ""
    start = end
    while start > 0 and tokens[start - 1].text not in ",:;–-?" and end - start < 5:
        start -= 1
    if start and tokens[start - 1].text in ",:;–-":
        return parsed.slice(start, end) if start < end else ""
    return ""


def _focus(parsed: Parsed, index: int) -> dict[str, float]:
    """How near each keyword stands to the wh-word: 1 beside it, falling with the distance."""
    anchor = index if index >= 0 else 0
    weights: dict[str, float] = {}
    for i, word in enumerate(parsed.stems):
        if word:
            weights[word] = max(weights.get(word, 0.0), 0.85 ** max(abs(i - anchor) - 1, 0))
    return weights


def noun_stem(question: Question) -> str:
    """The stem of the wh-noun, "" where there is none."""
    return stem(question.noun) if question.noun else ""
