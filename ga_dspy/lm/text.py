"""Plain-text reading: tokens, sentences, names, dates and numbers, each with its place.

Nothing here knows a question or a dataset. All functions are pure, and `parse` is memoised
(bounded) because the steps of one question read the same passages again and again.
"""

from __future__ import annotations

import re
import string
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

from ga_dspy.errors import MissingExtra
from ga_dspy.lm.lexicon import MONTHS, NAME_CONNECTORS, NUMBER_WORDS, STOPWORDS

_ABBREVIATIONS = (
    "Jr|Sr|St|Dr|Mr|Mrs|Ms|No|Vol|Inc|Ltd|Co|Corp|Gen|Lt|Col|Sgt|Capt|Rev|Hon|Prof|Mt|Ft|vs|Bros"
)
_TOKEN = re.compile(
    rf"['’]s\b|(?:{_ABBREVIATIONS})\.|(?:[^\W\d_]\.){{2,}}|[A-Z]\.(?=\s+[A-Z(,])"
    r"|\d+(?:[.,:]\d+)*(?:-?[^\W\d_]+)?|\w+(?:(?:[-.&]|['’](?!s\b))\w+)*|\S"
)
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)
_SENTENCE_END = frozenset(".!?")
_CLOSERS = frozenset("\"'”’)]")
_YEAR = re.compile(r"1[0-9]{3}|20[0-9]{2}")
_SCALES = frozenset("hundred thousand million billion".split())
_DIGITS = re.compile(r"\d")


class Token(NamedTuple):
    """A word or a mark with its characters `[start, end)` in the text."""

    text: str
    start: int
    end: int


class Span(NamedTuple):
    """Tokens `[start, end)` of a parsed text, and what kind of phrase they form."""

    start: int
    end: int
    kind: str


class Parsed(NamedTuple):
    """A text cut into tokens; the tuples run in parallel, one entry a token.

    `sentence` numbers the sentence of each token; `bounds` holds each sentence's tokens
    `[start, end)`; `stems` is "" for stopwords and marks.
    """

    text: str
    tokens: tuple[Token, ...]
    lower: tuple[str, ...]
    stems: tuple[str, ...]
    sentence: tuple[int, ...]
    bounds: tuple[tuple[int, int], ...]

    def slice(self, start: int, end: int) -> str:
        """The exact characters from token `start` up to, without, token `end`."""
        return self.text[self.tokens[start].start : self.tokens[end - 1].end]


@lru_cache(maxsize=1)
def _stemmer() -> Any:
    try:
        import Stemmer
    except ImportError as error:
        raise MissingExtra("PyStemmer", "offline") from error
    return Stemmer.Stemmer("english")


@lru_cache(maxsize=65536)
def stem(word: str) -> str:
    """The English Snowball stem of one word, in lower case.

    >>> stem("Directed")
    'direct'
    """
    return str(_stemmer().stemWord(word.lower()))


@lru_cache(maxsize=65536)
def content_stem(word: str) -> str:
    """The stem of a content word; the empty string for a stopword or a mark."""
    lower = word.lower()
    if lower in STOPWORDS or not any(c.isalnum() for c in lower):
        return ""
    return stem(lower)


def tokenize(text: str) -> list[Token]:
    """Words, numbers and single marks, in order; "'s" is a token of its own.

    >>> [t.text for t in tokenize("J. K. Rowling's 1,000 fans.")]
    ['J.', 'K.', 'Rowling', "'s", '1,000', 'fans', '.']
    """
    return [Token(m.group(), m.start(), m.end()) for m in _TOKEN.finditer(text)]


def _sentence_starts(text: str, tokens: list[Token]) -> list[int]:
    starts, i = [0], 0
    while i < len(tokens) - 1:
        if tokens[i].text in _SENTENCE_END:
            j = i + 1
            while j < len(tokens) and tokens[j].text in _CLOSERS and _glued(tokens, j):
                j += 1
            if j < len(tokens) and _opens(text, tokens, j):
                starts.append(j)
            i = j
        else:
            i += 1
    return starts


def _glued(tokens: list[Token], index: int) -> bool:
    return tokens[index].start == tokens[index - 1].end


def _opens(text: str, tokens: list[Token], index: int) -> bool:
    """Whether a sentence may begin at this token: after a space, not in lower case."""
    first = tokens[index].text[0]
    return not _glued(tokens, index) and not first.islower()


@lru_cache(maxsize=2048)
def parse(text: str) -> Parsed:
    """Cut a text into sentences and tokens."""
    tokens = tokenize(text)
    starts = [*_sentence_starts(text, tokens), len(tokens)] if tokens else []
    bounds = tuple(pairwise(starts))
    sentence = tuple(n for n, (a, b) in enumerate(bounds) for _ in range(a, b))
    lower = tuple(t.text.lower() for t in tokens)
    stems = tuple(content_stem(t.text) for t in tokens)
    return Parsed(text, tuple(tokens), lower, stems, sentence, bounds)


def sentences(text: str) -> list[str]:
    """The sentences of a text, without the space between them.

    >>> sentences("Dr. Lee was born in 1912. She died.")
    ['Dr. Lee was born in 1912.', 'She died.']
    """
    parsed = parse(text)
    return [parsed.slice(a, b) for a, b in parsed.bounds]


def keywords(text: str) -> list[str]:
    """The stems of the content words of a text, in order, each once."""
    return [s for s in dict.fromkeys(parse(text).stems) if s]


def normalize(text: str) -> str:
    """The official answer normalisation: lower case, no marks, no articles, single spaces.

    >>> normalize("The Beatles, Inc.")
    'beatles inc'
    """
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def is_name_word(word: str) -> bool:
    """Whether a token is written like a part of a name: a capital, or a digit-led label."""
    return word[0].isupper()


def name_spans(parsed: Parsed) -> list[Span]:
    """Maximal runs of capitalised words, connectors between them allowed, in one sentence.

    A sentence's first word counts only where it is no stopword.
    """
    spans: list[Span] = []
    for start, end in parsed.bounds:
        i = start
        while i < end:
            if not _starts_name(parsed, i, start):
                i += 1
                continue
            j = _name_end(parsed, i, end)
            spans.append(Span(i, j, "name"))
            i = j
    return spans


def _starts_name(parsed: Parsed, index: int, sentence_start: int) -> bool:
    word = parsed.tokens[index].text
    if not is_name_word(word):
        return False
    if parsed.lower[index] not in STOPWORDS:
        return True
    # "Will Traynor" inside a sentence is a name, "Will" at its start may be anything.
    follows = index + 1 < len(parsed.tokens) and is_name_word(parsed.tokens[index + 1].text)
    return index > sentence_start and follows


def _name_end(parsed: Parsed, start: int, limit: int) -> int:
    end = start + 1
    while end < limit:
        step = 0
        for step in range(4):
            if end + step >= limit or parsed.lower[end + step] not in NAME_CONNECTORS:
                break
        nxt = end + step
        if nxt >= limit or not _joins(parsed, nxt):
            break
        end = nxt + 1
    return end


def _joins(parsed: Parsed, index: int) -> bool:
    word = parsed.tokens[index].text
    return is_name_word(word) or (
        word[0].isdigit() and not _YEAR.fullmatch(word) and len(word) <= 3
    )


def date_spans(parsed: Parsed) -> list[Span]:
    """Dates at every grain: day, month, year, range of years, decade, century."""
    spans: list[Span] = []
    words, lower = parsed.tokens, parsed.lower
    for i in range(len(words)):
        if lower[i] in MONTHS and words[i].text[0].isupper():
            spans += _month_spans(parsed, i)
        elif _YEAR.match(words[i].text) and len(words[i].text) <= 5:
            spans.append(Span(i, i + 1, "year"))
            if i + 2 < len(words) and words[i + 1].text in "–-—/" and _ends_range(parsed, i + 2):
                spans.append(Span(i, i + 3, "date"))
        elif lower[i] in ("century", "centuries", "bc", "ad", "bce") and i:
            first = i - 2 if i > 1 and lower[i - 2] in ("early", "late", "mid") else i - 1
            spans += [Span(s, i + 1, "date") for s in {first, i - 1}]
    return spans


def _month_spans(parsed: Parsed, month: int) -> list[Span]:
    """Each date around a month's name, from the barest to the fullest."""
    words = parsed.tokens
    start, end = month, month + 1
    if start and _is_day(words[start - 1].text):
        start -= 1
    elif end < len(words) and _is_day(words[end].text):
        end += 1
    spans = [Span(start, end, "day")] if (start, end) != (month, month + 1) else []
    comma = end < len(words) and words[end].text == ","
    year = end + comma
    if year < len(words) and _YEAR.fullmatch(words[year].text):
        spans.append(Span(start, year + 1, "date"))
    return spans or [Span(month, month + 1, "month")]


def _is_day(word: str) -> bool:
    digits = word.rstrip("stndrh")
    return digits.isdigit() and len(digits) <= 2


def _ends_range(parsed: Parsed, index: int) -> bool:
    """Whether a year or its last two digits stand here, and not the day of a date."""
    word = parsed.tokens[index].text
    following = parsed.lower[index + 1] if index + 1 < len(parsed.lower) else ""
    return len(word) in (2, 4) and word.isdigit() and following not in MONTHS


def number_spans(parsed: Parsed) -> list[Span]:
    """Numbers in digits or words, alone and with up to two words of unit; years are left out."""
    spans: list[Span] = []
    words, lower = parsed.tokens, parsed.lower
    for i in range(len(words)):
        digit = bool(_DIGITS.match(words[i].text)) and not _YEAR.fullmatch(words[i].text)
        if not digit and lower[i] not in NUMBER_WORDS:
            continue
        if i and words[i - 1].text in "$£€" and _glued(list(words[i - 1 : i + 1]), 1):
            spans.append(Span(i - 1, i + 1, "number"))
        stop = parsed.bounds[parsed.sentence[i]][1]
        if (
            i
            and lower[i] in _SCALES
            and (words[i - 1].text[0].isdigit() or lower[i - 1] in NUMBER_WORDS)
        ):
            continue
        after = i + 1 + (i + 1 < stop and lower[i + 1] in _SCALES)
        spans.append(Span(i, after, "number"))
        for end in range(after + 1, min(after + 2, stop) + 1):
            if not lower[end - 1][0].isalnum() or lower[end - 1] in STOPWORDS:
                break
            spans.append(Span(i, end, "quantity"))
    return spans


def quoted_spans(parsed: Parsed) -> list[Span]:
    """What stands between double quotation marks, without the marks, at most twelve words."""
    spans: list[Span] = []
    start: int | None = None
    for i, token in enumerate(parsed.tokens):
        if token.text not in '"“”':
            continue
        if start is not None and 0 < i - start <= 12:
            spans.append(Span(start, i, "quote"))
            start = None
        else:
            start = i + 1
    return spans
