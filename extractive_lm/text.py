"""Plain-text reading: word lists, tokens, sentences, and spans of names, dates and numbers.

Nothing here depends on a question or a dataset. The lists in words.json are short and hold only
words of the language. All functions are pure, and `parse` is cached because the steps of one
question read the same passages again and again.
"""

from __future__ import annotations

import json
import re
import string
from bisect import bisect_left
from collections.abc import Mapping
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple


class ExtractiveError(Exception):
    """The engine lacks a package or its weights; the message says what to do."""


# --- Word lists

_LISTS: dict[str, Any] = json.loads(Path(__file__).with_name("words.json").read_text("utf-8"))


def words(name: str) -> frozenset[str]:
    """Return a list of words.json."""
    return frozenset(" ".join(_LISTS[name]).split())


def _phrases(name: str) -> frozenset[str]:
    return frozenset(" ".join(_LISTS[name]).split(", "))


STOPWORDS = words("stopwords")
ARTICLES = words("articles")
AUXILIARIES = words("auxiliaries")
PREPOSITIONS = words("prepositions")
MONTHS = {name: number for number, name in enumerate(_LISTS["months"].split(), start=1)}
NATIONALITIES = words("nationalities")
COUNTRIES = _phrases("countries")
US_STATES = _phrases("us_states")
COUNTRIES_AND_STATES = COUNTRIES | US_STATES
SUBJECT_TYPES = ("person", "group", "work", "place")

_RELATED = [line.split() for line in _LISTS["related"]]
RELATED = {
    word: frozenset(other for line in _RELATED if word in line for other in line)
    for line in _RELATED
    for word in line
}
"""Words that often state the same relation in a question and in the sentence that answers it."""

# A noun of two types has the first.
_TYPE_OF_NOUN = {
    noun: kind
    for kind in reversed(_LISTS["nouns"])
    for noun in " ".join(_LISTS["nouns"][kind]).split()
}


@lru_cache(maxsize=32768)
def noun_type(noun: str) -> str:
    """Return what a common noun names: "person", "place", "group", "work", ... or "".

    >>> noun_type("actresses"), noun_type("cities"), noun_type("glacier")
    ('person', 'place', '')
    """
    noun = noun.lower()
    forms = [noun]
    for plural, singular in (("ies", "y"), ("es", ""), ("s", ""), ("men", "man")):
        if noun.endswith(plural):
            forms.append(noun.removesuffix(plural) + singular)
    return next((_TYPE_OF_NOUN[form] for form in forms if form in _TYPE_OF_NOUN), "")


# --- Tokens, sentences, stems

_ABBREVIATIONS = (
    "Jr|Sr|St|Dr|Mr|Mrs|Ms|No|Vol|Inc|Ltd|Co|Corp|Gen|Lt|Col|Sgt|Capt|Rev|Hon|Prof|Mt|Ft|vs|Bros"
)
_TOKEN = re.compile(
    rf"['’]s\b|(?:{_ABBREVIATIONS})\.|(?:[^\W\d_]\.){{2,}}|[A-Z]\.(?=\s+[A-Z(,])"
    r"|\d+(?:[.,:]\d+)*(?:-?[^\W\d_]+)?|\w+(?:(?:[-.&]|['’](?!s\b))\w+)*|\S"
)
_SENTENCE_END = re.compile(r"[.!?][\"'”’)\]]*\s+(?![a-z])")
_ARTICLE = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


class Token(NamedTuple):
    """A word or a mark with its characters `[start, end)` in the text."""

    text: str
    start: int
    end: int


class Span(NamedTuple):
    """Tokens `[start, end)` of a parsed text, and the kind of phrase they form."""

    start: int
    end: int
    kind: str


class Parsed(NamedTuple):
    """A text cut into tokens; the tuples run in parallel, one entry per token.

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
        """Return the exact characters from token `start` up to, without, token `end`."""
        return self.text[self.tokens[start].start : self.tokens[end - 1].end]


@lru_cache(maxsize=2048)
def parse(text: str) -> Parsed:
    """Cut a text into sentences and into words, numbers and single marks.

    >>> [t.text for t in parse("J. K. Rowling's 1,000 fans.").tokens]
    ['J.', 'K.', 'Rowling', "'s", '1,000', 'fans', '.']
    """
    tokens = tuple(Token(m.group(), m.start(), m.end()) for m in _TOKEN.finditer(text))
    at = [token.start for token in tokens]
    marks = {token.start for token in tokens if token.text in ".!?"}
    ends = [m.end() for m in _SENTENCE_END.finditer(text) if m.start() in marks]
    starts = sorted({0, *(bisect_left(at, end) for end in ends), len(tokens)})
    bounds = tuple(pairwise(starts))
    return Parsed(
        text,
        tokens,
        lower=tuple(token.text.lower() for token in tokens),
        stems=tuple(content_stem(token.text) for token in tokens),
        sentence=tuple(n for n, (a, b) in enumerate(bounds) for _ in range(a, b)),
        bounds=bounds,
    )


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
    """Return the English Snowball stem of one word, in lower case.

    >>> stem("Directed")
    'direct'
    """
    return str(_stemmer().stemWord(word.lower()))


@lru_cache(maxsize=65536)
def content_stem(word: str) -> str:
    """Return the stem of a content word; the empty string for a stopword or a mark."""
    lower = word.lower()
    return "" if lower in STOPWORDS or not any(c.isalnum() for c in lower) else stem(lower)


def sentences(text: str) -> list[str]:
    """Return the sentences of a text, without the space between them.

    >>> sentences("Dr. Lee was born in 1912. She died.")
    ['Dr. Lee was born in 1912.', 'She died.']
    """
    parsed = parse(text)
    return [parsed.slice(a, b) for a, b in parsed.bounds]


def keywords(text: str) -> list[str]:
    """Return the stems of the content words of a text, in order, each once."""
    return [s for s in dict.fromkeys(parse(text).stems) if s]


def normalize(text: str) -> str:
    """Normalise an answer by the official rule: lower case, no marks, no articles, single spaces.

    >>> normalize("The Beatles, Inc.")
    'beatles inc'
    """
    return " ".join(_ARTICLE.sub(" ", text.lower().translate(_PUNCTUATION)).split())


class Idf(NamedTuple):
    """Rarity by stem: natural logarithm of documents over documents with the word.

    A stem that the table lacks is as rare as the rarest.
    """

    table: Mapping[str, float]
    unknown: float

    def __call__(self, stem: str) -> float:
        """Return the rarity of one stem; 0 for the empty stem of stopwords and marks."""
        return self.table.get(stem, self.unknown) if stem else 0.0

    @classmethod
    def from_json(cls, text: str) -> Idf:
        """Read the table of a weight file: stems grouped by rarity, so that it stays small."""
        data = json.loads(text)
        table = {s: float(value) for value, stems in data["stems"].items() for s in stems.split()}
        return cls(table, float(data["unknown"]))


# --- Spans of names, dates, numbers and quotations

_CONNECTORS = frozenset("of de da del della di du la le el al van von der den & - – ’ ' y".split())
_MONTH = "|".join(name.capitalize() for name in MONTHS)
_AMOUNT = (
    rf"[$£€]?\b(?:\d[\d,]*(?:\.\d+)?|{'|'.join(sorted(words('numbers')))})"
    r"(?: (?:hundred|thousand|million|billion))?\b"
)
_PATTERNS = {
    "quote": re.compile(r'["“]([^"“”]{1,80})["”]'),
    "date": re.compile(
        rf"\b(?:\d{{1,2}} )?(?:{_MONTH})\b(?: \d{{1,2}}\b)?(?:,? \d{{4}}\b)?"
        r"|\b\d{4}[–-]\d{2,4}\b|\b(?:(?:early|late|mid) )?(?:the )?\d{1,2}(?:st|nd|rd|th) century"
    ),
    "year": re.compile(r"\b(?:1\d|20)\d\d(?:s\b|\b)"),
    "number": re.compile(_AMOUNT),
    "quantity": re.compile(_AMOUNT + r" [a-z]+"),
    "long quantity": re.compile(_AMOUNT + r" [a-z]+ [a-z]+"),
}
_DATE = re.compile(
    rf"(?:(\d{{1,2}}) )?({_MONTH})(?: (\d{{1,2}}))?,? (\d{{4}})\b|\b((?:1\d|20)\d\d)\b"
)


def pattern_spans(parsed: Parsed, *kinds: str) -> list[Span]:
    """Return the spans of the kinds "quote", "date", "year", "number", "quantity"."""
    starts = [token.start for token in parsed.tokens]
    spans: list[Span] = []
    for kind in kinds:
        for match in _PATTERNS[kind].finditer(parsed.text):
            start, end = (bisect_left(starts, at) for at in match.span(match.re.groups))
            if start < end and parsed.lower[end - 1] not in STOPWORDS:
                spans.append(Span(start, end, kind.split()[-1]))
    return spans


def name_spans(parsed: Parsed) -> list[Span]:
    """Return the runs of capitalised words, with "of", "de", ... inside, within a sentence."""
    spans: list[Span] = []
    for first, stop in parsed.bounds:
        i = first
        while i < stop:
            start, i = i, i + 1
            if _is_capital(parsed, start):
                i = _name_end(parsed, start, stop)
                spans.append(Span(start, i, "name"))
    return spans


def _is_capital(parsed: Parsed, i: int) -> bool:
    low = parsed.lower[i]
    return parsed.tokens[i].text[0].isupper() and low not in STOPWORDS and low not in MONTHS


def _name_end(parsed: Parsed, start: int, stop: int) -> int:
    end = start + 1
    while end < stop:
        step = end
        while step < min(end + 2, stop) and parsed.lower[step] in _CONNECTORS:
            step += 1
        if end < step < stop and parsed.lower[step] == "the":
            step += 1
        numbered = step == end and parsed.lower[step].isdigit() and len(parsed.lower[step]) < 3
        if step == stop or not (_is_capital(parsed, step) or numbered):
            break
        end = step + 1
    return end


def dates(text: str) -> list[tuple[int, int, int]]:
    """Return every date with a year as (year, month, day), 0 where not given.

    >>> dates("Born 3 May 1901 in Rome, she died in 1977.")
    [(1901, 5, 3), (1977, 0, 0)]
    """
    return [
        (int(m[4] or m[5]), MONTHS.get((m[2] or "").lower(), 0), int(m[1] or m[3] or 0))
        for m in _DATE.finditer(text)
    ]
