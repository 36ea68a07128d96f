"""Plain-text reading: tokens, sentences, names, dates, numbers, and how rare a word is.

Nothing here knows a question or a dataset. All functions are pure, and `parse` is memoised
(bounded) because the steps of one question read the same passages again and again.
"""

from __future__ import annotations

import json
import re
import string
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

from extractive_lm.words import (
    MONTHS,
    NAME_CONNECTORS,
    NUMBER_VALUES,
    NUMBER_WORDS,
    SCALES,
    STOPWORDS,
)

_ABBREVIATIONS = (
    "Jr|Sr|St|Dr|Mr|Mrs|Ms|No|Vol|Inc|Ltd|Co|Corp|Gen|Lt|Col|Sgt|Capt|Rev|Hon|Prof|Mt|Ft|vs|Bros"
)
_TOKEN = re.compile(
    rf"['’]s\b|(?:{_ABBREVIATIONS})\.|(?:[^\W\d_]\.){{2,}}|[A-Z]\.(?=\s+[A-Z(,])"
    r"|\d+(?:[.,:]\d+)*(?:-?[^\W\d_]+)?|\w+(?:(?:[-.&]|['’](?!s\b))\w+)*|\S"
)
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)
_YEAR = re.compile(r"1[0-9]{3}|20[0-9]{2}")
_NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")


class ExtractiveError(Exception):
    """The engine lacks a package or its weights; the message says what to do."""


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


@lru_cache(maxsize=2048)
def parse(text: str) -> Parsed:
    """Cut a text into sentences and into words, numbers and single marks.

    >>> [t.text for t in parse("J. K. Rowling's 1,000 fans.").tokens]
    ['J.', 'K.', 'Rowling', "'s", '1,000', 'fans', '.']
    """
    tokens = tuple(Token(m.group(), m.start(), m.end()) for m in _TOKEN.finditer(text))
    starts = [*_sentence_starts(tokens), len(tokens)] if tokens else []
    bounds = tuple(pairwise(starts))
    sentence = tuple(n for n, (a, b) in enumerate(bounds) for _ in range(a, b))
    lower = tuple(t.text.lower() for t in tokens)
    stems = tuple(content_stem(t.text) for t in tokens)
    return Parsed(text, tokens, lower, stems, sentence, bounds)


def _sentence_starts(tokens: Sequence[Token]) -> list[int]:
    starts, i = [0], 0
    while i < len(tokens) - 1:
        after = i + 1
        if tokens[i].text in ".!?":
            while after < len(tokens) and tokens[after].text in "\"'”’)]" and _glued(tokens, after):
                after += 1
            if after < len(tokens) and not _glued(tokens, after):
                starts += [] if tokens[after].text[0].islower() else [after]
        i = after
    return starts


def _glued(tokens: Sequence[Token], index: int) -> bool:
    return tokens[index].start == tokens[index - 1].end


@lru_cache(maxsize=1)
def _stemmer() -> Any:
    try:
        import Stemmer
    except ImportError as error:
        raise ExtractiveError(
            "PyStemmer is not installed; run: pip install -e '.[offline]' (in a clone)"
        ) from error
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
    return "" if lower in STOPWORDS or not any(c.isalnum() for c in lower) else stem(lower)


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


# --- Names, dates, numbers and quotations, each with its place


def name_spans(parsed: Parsed) -> list[Span]:
    """Maximal runs of capitalised words, connectors between them allowed, in one sentence.

    A sentence's first word counts only where it is no stopword.
    """
    spans: list[Span] = []
    for start, stop in parsed.bounds:
        i = start
        while i < stop:
            if _starts_name(parsed, i, start):
                spans.append(Span(i, _name_end(parsed, i, stop), "name"))
                i = spans[-1].end
            else:
                i += 1
    return spans


def _starts_name(parsed: Parsed, index: int, sentence_start: int) -> bool:
    if not parsed.tokens[index].text[0].isupper():
        return False
    if parsed.lower[index] not in STOPWORDS:
        return True
    # "Will Traynor" inside a sentence is a name, "Will" at its start may be anything.
    follows = index + 1 < len(parsed.tokens) and parsed.tokens[index + 1].text[0].isupper()
    return index > sentence_start and follows


def _name_end(parsed: Parsed, start: int, stop: int) -> int:
    end = start + 1
    while end < stop:
        after = end
        while after < min(end + 3, stop) and parsed.lower[after] in NAME_CONNECTORS:
            after += 1
        word = parsed.tokens[after].text if after < stop else ""
        if not word[:1].isupper() and not (word[:1].isdigit() and len(word) <= 3):
            break
        end = after + 1
    return end


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
    spans = [Span(start, end, "day")] if end - start > 1 else []
    year = end + (end < len(words) and words[end].text == ",")
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
    for i, (word, _, _) in enumerate(words):
        digit = word[0].isdecimal() and not _YEAR.fullmatch(word)
        if not digit and lower[i] not in NUMBER_WORDS:
            continue
        if i and words[i - 1].text in "$£€" and _glued(words, i):
            spans.append(Span(i - 1, i + 1, "number"))
        counted = i and (words[i - 1].text[0].isdigit() or lower[i - 1] in NUMBER_WORDS)
        if counted and lower[i] in SCALES:
            continue
        stop = parsed.bounds[parsed.sentence[i]][1]
        after = i + 1 + (i + 1 < stop and lower[i + 1] in SCALES)
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


# --- Dates and numbers as values that can be compared


class Value(NamedTuple):
    """A date (year, month, day; 0 where not given) or a number, and the token where it starts."""

    value: tuple[float, ...]
    start: int


def dates(parsed: Parsed) -> list[Value]:
    """Every date with a year, in order, the fullest reading of each place.

    >>> [d.value for d in dates(parse("Born 3 May 1901 in Rome, she died in 1977."))]
    [(1901, 5, 3), (1977, 0, 0)]
    """
    spans = [s for s in date_spans(parsed) if s.kind in ("date", "year")]
    found: list[Value] = []
    covered = -1
    for span in sorted(spans, key=lambda s: (s.start, -s.end)):
        words = parsed.lower[span.start : span.end]
        years = [int(m[0]) for w in words if (m := _YEAR.match(w))]
        if span.start >= covered and years:
            month = next((MONTHS[w] for w in words if w in MONTHS), 0)
            numbers = [w.rstrip("stndrh") for w in words if len(w) < 5]
            days = [int(n) for n in numbers if n.isdecimal() and int(n) <= 31 and month]
            found.append(Value((years[0], month, next(iter(days), 0)), span.start))
            covered = span.end
    return found


def numbers(parsed: Parsed) -> list[Value]:
    """Every number that is no year, in order; "1.5 million" is one number.

    >>> [n.value for n in numbers(parse("It has 1.5 million readers and two editors."))]
    [(1500000.0,), (2.0,)]
    """
    found: list[Value] = []
    for span in number_spans(parsed):
        words = parsed.lower[span.start : span.end]
        digits = _NUMBER.match(words[0])
        value = float(digits[0].replace(",", "")) if digits else NUMBER_VALUES.get(words[0])
        if span.kind == "number" and value is not None:
            found.append(Value((value * SCALES.get(words[-1], 1.0),), span.start))
    return found


class Idf(NamedTuple):
    """Rarity by stem, natural logarithm of documents over documents with the word.

    A stem that the table lacks is as rare as the rarest.
    """

    table: Mapping[str, float]
    unknown: float

    def __call__(self, stem: str) -> float:
        """The rarity of one stem; 0 for the empty stem of stopwords and marks."""
        return self.table.get(stem, self.unknown) if stem else 0.0

    @classmethod
    def from_json(cls, text: str) -> Idf:
        """Read the table of a weight file: stems grouped by rarity, so that it stays small."""
        data = json.loads(text)
        table = {s: float(value) for value, stems in data["stems"].items() for s in stems.split()}
        return cls(table, float(data["unknown"]))
