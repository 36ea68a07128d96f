"""What a question asks for: its wh-word, its wh-noun, the type of its answer, its options."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from extractive_lm.text import Parsed, name_spans, normalize, parse, quoted_spans, stem
from extractive_lm.words import ARTICLES, AUXILIARIES, STOPWORDS, WH_WORDS, noun_type

_PREPOSITIONS = frozenset("in at on from to by of for with under into during between".split())
_NOUN_ENDS = AUXILIARIES | frozenset(
    "of in that who which for by with from at on to and or been be also , ? ; : ( ) \" 's whose "
    "whom where when as being".split()
)
_ORDER = {
    word: order
    for order, words in {
        "early": "first earlier earliest older oldest before",
        "late": "later latest last younger youngest recent recently newer newest after",
        "more": "more most larger largest higher highest taller tallest longer longest bigger "
        "biggest greater greatest farther further",
        "less": "fewer fewest less least smaller smallest shorter shortest lower lowest",
    }.items()
    for word in words.split()
}
_ONE_OF = re.compile(
    r"\b(?:name of|names of|kind of|type of|types of|kinds of|one of|sort of)\b", re.IGNORECASE
)


class Question(NamedTuple):
    """A question taken apart; strings are lower case unless they are names.

    `norm` is the normalised text between two spaces. `wh` is who, what, which, when, where, how,
    why, or "" where none stands. `wants` is the type of the answer: person, place, group, work,
    date, year, number, nationality, role, yesno, choice or thing. `order` says how options
    compare: early, late, more, less or "". `focus` weighs each keyword by its nearness to the
    wh-word, 1 for the nearest.
    """

    text: str
    parsed: Parsed
    norm: str
    wh: str
    noun: str
    wants: str
    choices: tuple[str, ...]
    order: str
    names: tuple[str, ...]
    keywords: tuple[str, ...]
    focus: dict[str, float]

    def holds(self, norm: str) -> bool:
        """Whether a normalised phrase stands in the question, in whole words."""
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
    parsed = parse(" ".join(question.strip().lstrip("\\").split()))
    index = _wh_index(parsed.lower, parsed.bounds)
    wh = parsed.lower[index] if index >= 0 else ""
    noun = _wh_noun(parsed.lower, wh, index)
    choices = _choices(parsed)
    spans = sorted(quoted_spans(parsed) + name_spans(parsed))
    names = [parsed.slice(s.start, s.end) for s in spans if parsed.lower[s.start] not in WH_WORDS]
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
        wants=_wants(parsed, wh, index, noun, choices),
        choices=choices,
        order=next((_ORDER[word] for word in parsed.lower if word in _ORDER), ""),
        names=tuple(dict.fromkeys(n for n in names if n.lower() not in AUXILIARIES)),
        keywords=tuple(focus),
        focus=focus,
    )


def _wh_index(lower: tuple[str, ...], bounds: tuple[tuple[int, int], ...]) -> int:
    """The interrogative word: at the start, else the last "what", else the likeliest other."""
    for start in (*[first for first, _ in bounds][-1:], 0):
        for i in (start, start + 1):
            is_wh = i < len(lower) and lower[i] in WH_WORDS
            if is_wh and (i == start or lower[start] in _PREPOSITIONS):
                return i
    found = [i for i, word in enumerate(lower) if word in WH_WORDS]
    for hits in (
        [i for i in found if lower[i] == "what"],
        [
            i
            for i in found
            if lower[i] == "how" and {*lower[i + 1 : i + 2]} & {"many", "much", "long"}
        ],
        [i for i in found if _asks_which(lower, i)],
        [i for i in found if i >= len(lower) - 3],
    ):
        if hits:
            return hits[-1]
    return found[0] if found else -1


def _asks_which(lower: tuple[str, ...], i: int) -> bool:
    """Whether "which" governs a noun rather than opens a relative clause."""
    if lower[i] != "which" or i + 1 >= len(lower) or lower[i + 1] in AUXILIARIES:
        return False
    kinds = [noun_type(word) for word in lower[i + 1 : i + 4]]
    return any(kinds) and (kinds[0] != "" or lower[i - 1] != ",")


def _wh_noun(lower: tuple[str, ...], wh: str, index: int) -> str:
    """The head noun of what is asked: "city" of "in what city", "mother" of "name the mother"."""
    if wh in ("what", "which", "") and len(lower) > index + 1:
        start = index + 1
        if lower[start] in AUXILIARIES and wh:
            start += 1
        phrase = _phrase(lower, start)
        rest = " ".join(lower[start : start + 8])
        match = _ONE_OF.search(rest)
        if match and match.start() < 12:
            phrase = _phrase(lower, start + len(rest[: match.end()].split())) or phrase
    elif wh == "how" and index + 2 < len(lower):
        phrase = _phrase(lower, index + 2)[:3]
    else:
        return ""
    # The first noun of a known type (the last of several in a row), else the second word.
    for i, word in enumerate(phrase[:5]):
        if noun_type(word):
            while i + 1 < len(phrase) and noun_type(phrase[i + 1]):
                i += 1
            return phrase[i]
    alpha = [w for w in phrase[:2] if w[0].isalpha() and w not in STOPWORDS]
    return alpha[-1] if alpha else ""


def _phrase(lower: tuple[str, ...], start: int) -> list[str]:
    words: list[str] = []
    for word in lower[start : start + 8]:
        if word in _NOUN_ENDS:
            break
        if words or word not in ARTICLES:
            words.append(word)
    return words


def _wants(parsed: Parsed, wh: str, index: int, noun: str, choices: tuple[str, ...]) -> str:
    lower = parsed.lower
    last = parsed.bounds[-1][0] if parsed.bounds else 0
    auxiliary = bool(lower) and (lower[last] in AUXILIARIES or (lower[0] in AUXILIARIES and not wh))
    if choices and (auxiliary or wh):
        return "choice"
    if auxiliary:
        return "yesno"
    if wh == "how":
        manner = {*lower[index + 1 : index + 2]} & {"did", "do", "does", "is", "was", "were"}
        return "thing" if manner else "number"
    by_wh = {"who": "person", "whom": "person", "whose": "person", "when": "date", "where": "place"}
    return by_wh.get(wh) or ("year" if noun == "year" else noun_type(noun) or "thing")


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
    """The option after the joint: its quotation, its run of names, or the clause."""
    tokens, start = parsed.tokens, joint + 1
    while start < len(tokens) and parsed.lower[start] in ARTICLES | {'"', "“"}:
        start += 1
    if start >= len(tokens):
        return ""
    ends = [s.end for s in name_spans(parsed) if s.start <= start < s.end]
    if tokens[start - 1].text in '"“':
        ends = [i for i in range(start, len(tokens)) if tokens[i].text in '"”'] or ends
    if ends:
        end = ends[0]
    else:
        end = start
        while end < len(tokens) and tokens[end].text not in ",?;.":
            end += 1
        if end - start > 5:
            return ""
    return parsed.slice(start, end) if end > start else ""


def _option_left(parsed: Parsed, joint: int) -> str:
    """The option before the joint: its quotation, its run of names, or the clause."""
    tokens, end = parsed.tokens, joint
    while end > 1 and tokens[end - 1].text in ",":
        end -= 1
    if tokens[end - 1].text in '"”' and end > 1:
        for i in range(end - 2, -1, -1):
            if tokens[i].text in '"“':
                return parsed.slice(i + 1, end - 1)
    starts = [s.start for s in name_spans(parsed) if s.start < end <= s.end]
    if starts:
        return parsed.slice(starts[0], end)
    start = end
    while start > 0 and tokens[start - 1].text not in ",:;–-?" and end - start < 5:
        start -= 1
    if start and tokens[start - 1].text in ",:;–-" and start < end:
        return parsed.slice(start, end)
    return ""
