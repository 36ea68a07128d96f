"""English by its form: words, sentences, names, dates, numbers, and what a question asks for.

Nothing here depends on a dataset: the lists in words.json hold only words of the language. `parse`
is cached because the steps of one question read the same passages again and again.
"""

from __future__ import annotations

import json
import re
import string
from bisect import bisect_left
from functools import lru_cache
from itertools import pairwise, takewhile
from pathlib import Path
from typing import Any, NamedTuple


class ExtractiveError(Exception):
    """The engine lacks a package or its weights; the message says what to do."""


# --- Word lists

_LISTS: dict[str, Any] = json.loads(Path(__file__).with_name("words.json").read_text("utf-8"))


def words(name: str) -> frozenset[str]:
    """Return a list of words.json: words, or phrases if it has commas."""
    text = " ".join(_LISTS[name])
    return frozenset(text.split(", ") if "," in text else text.split())


STOPWORDS = words("stopwords")
ARTICLES = words("articles")
PREPOSITIONS = words("prepositions")
NATIONALITIES = words("nationalities")
COUNTRIES = words("countries")
US_STATES = words("us_states")
_AUXILIARIES = words("auxiliaries")
_MONTHS = words("months")
_OPENERS = words("wh_words") | _AUXILIARIES

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
    forms = [noun, noun.removesuffix("s"), noun.removesuffix("es")]
    forms += [re.sub("ies$", "y", noun), re.sub("men$", "man", noun)]
    return next((_TYPE_OF_NOUN[form] for form in forms if form in _TYPE_OF_NOUN), "")


@lru_cache(maxsize=32768)
def related(word: str) -> frozenset[str]:
    """Return the stems that often state the same relation as a stem, itself among them."""
    groups = [set(map(stem, line.split())) for line in _LISTS["related"]]
    return frozenset({word}.union(*(group for group in groups if word in group)))


# --- Words, sentences, stems

_ABBREVIATIONS = "|".join(sorted(words("abbreviations")))
_WORD = re.compile(
    rf"['’]s\b|(?:{_ABBREVIATIONS})\.|(?:[^\W\d_]\.){{2,}}|[A-Z]\.(?=\s+[A-Z(,])"
    r"|\d+(?:[.,:]\d+)*(?:-?[^\W\d_]+)?|\w+(?:(?:[-.&]|['’](?!s\b))\w+)*|\S"
)
_ARTICLE = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


class Span(NamedTuple):
    """Words `[start, end)` of a parsed text, and the kind of phrase they form."""

    start: int
    end: int
    kind: str


class Parsed(NamedTuple):
    """A text cut into words and single marks; the tuples run in parallel, one entry per word.

    `starts` holds each word's first character, `sentence` the number of its sentence, and `stems`
    is "" for stopwords and marks. `bounds` holds each sentence's words `[start, end)`.
    """

    text: str
    words: tuple[str, ...]
    starts: tuple[int, ...]
    lower: tuple[str, ...]
    stems: tuple[str, ...]
    sentence: tuple[int, ...]
    bounds: tuple[tuple[int, int], ...]

    def slice(self, start: int, end: int) -> str:
        """Return the exact characters from word `start` up to, without, word `end`."""
        return self.text[self.starts[start] : self.starts[end - 1] + len(self.words[end - 1])]


@lru_cache(maxsize=2048)
def parse(text: str) -> Parsed:
    """Cut a text into sentences and into words, numbers and single marks.

    >>> parse("J. K. Rowling's 1,000 fans.").words
    ('J.', 'K.', 'Rowling', "'s", '1,000', 'fans', '.')
    """
    found = list(_WORD.finditer(text))
    words, starts = tuple(m[0] for m in found), tuple(m.start() for m in found)
    breaks = [0] if words else []
    for i in range(1, len(words)):
        is_spaced = text[starts[i] - 1].isspace() and not words[i][0].islower()
        breaks += [i] if words[i - 1] in ".!?" and is_spaced else []
    bounds = tuple(pairwise([*breaks, len(words)]))
    sentence = tuple(n for n, (start, end) in enumerate(bounds) for _ in range(start, end))
    lower, stems = tuple(map(str.lower, words)), tuple(map(stem, words))
    return Parsed(text, words, starts, lower, stems, sentence, bounds)


@lru_cache(maxsize=65536)
def stem(word: str) -> str:
    """Return the English Snowball stem of a word; "" for a stopword or a mark.

    >>> stem("Directed"), stem("the")
    ('direct', '')
    """
    import Stemmer

    lower = word.lower()
    is_content = lower not in STOPWORDS and any(map(str.isalnum, lower))
    return str(Stemmer.Stemmer("english").stemWord(lower)) if is_content else ""


def sentences(text: str) -> list[str]:
    """Return the sentences of a text, without the space between them.

    >>> sentences("Dr. Lee was born in 1912. She died.")
    ['Dr. Lee was born in 1912.', 'She died.']
    """
    parsed = parse(text)
    return [parsed.slice(start, end) for start, end in parsed.bounds]


def keywords(text: str) -> list[str]:
    """Return the stems of the content words of a text, in order, each once."""
    return [word for word in dict.fromkeys(parse(text).stems) if word]


def normalize(text: str) -> str:
    """Normalise an answer by the official rule: lower case, no marks, no articles, single spaces.

    >>> normalize("The Beatles, Inc.")
    'beatles inc'
    """
    return " ".join(_ARTICLE.sub(" ", text.lower().translate(_PUNCTUATION)).split())


# --- Spans: quotations, dates and numbers by their characters; names and phrases by the shapes of
# their words, a letter per word

_MONTH = "|".join(sorted(map(str.capitalize, _MONTHS)))
_AMOUNT = (
    rf"[$£€]?\b(?:\d[\d,]*(?:\.\d+)?|{'|'.join(sorted(words('numbers')))})"
    r"(?: (?:hundred|thousand|million|billion))?\b"
)
_BY_CHARACTERS = {
    "quote": r'["“]([^"“”]{1,80})["”]',
    "date": rf"\b(?:\d{{1,2}} )?(?:{_MONTH})\b(?: \d{{1,2}}\b)?(?:,? \d{{4}}\b)?"
    r"|\b\d{4}[–-]\d{2,4}\b|\b(?:(?:early|late|mid) )?(?:the )?\d{1,2}(?:st|nd|rd|th) century",
    "year": r"\b(?:1\d|20)\d\d(?:s\b|\b)",
    "number": _AMOUNT,
    "quantity": _AMOUNT + r" [a-z]+",
}
_BY_SHAPES = {
    # Capitals, with "of", "de la", "of the", ... or a short number between them or behind them.
    "name": ["(C(?:C|d|[oc]{1,2}t?C)*)"],
    # Up to four words: the first in lower case, the last one of content, "of", "and" between.
    "words": ["(?=(W))", "(?=(W[WCdn]))", "(?=(W[^xc][WCdn]))", "(?=(W[^xc]{2}[WCdn]))"],
}
_CONNECTORS = "de da del della di du la le el al van von der den & - – ’ ' y".split()
_LETTERS = dict.fromkeys(STOPWORDS, "x") | dict.fromkeys(_MONTHS, "n")
_LETTERS |= dict.fromkeys(_CONNECTORS, "c") | dict.fromkeys(("and", "in", "for", "to"), "i")
_LETTERS |= {"of": "o", "the": "t"}


def pattern_spans(parsed: Parsed, *kinds: str) -> list[Span]:
    """Return the spans of the kinds "quote", "date", "year", "number", "quantity"."""
    spans: list[Span] = []
    for kind in kinds:
        for match in re.finditer(_BY_CHARACTERS[kind], parsed.text):
            start, end = (bisect_left(parsed.starts, at) for at in match.span(match.re.groups))
            if start < end and parsed.lower[end - 1] not in STOPWORDS:
                spans.append(Span(start, end, kind))
    return spans


def shape_spans(parsed: Parsed, kind: str) -> list[Span]:
    """Return the spans of the kind "name", runs of capitalised words, or "words", phrases."""
    shapes = "".join(map(_shape, parsed.words))
    found = (match for form in _BY_SHAPES[kind] for match in re.finditer(form, shapes))
    return [Span(*match.span(1), kind) for match in found]


@lru_cache(maxsize=65536)
def _shape(word: str) -> str:
    """Return a letter for a word: C is a capital, W another word of content, ..."""
    if letter := _LETTERS.get(word.lower()):
        return letter
    if word.isdigit() and len(word) < 3:
        return "d"
    if not word[0].isalnum():
        return "x"
    return "C" if word[0].isupper() else "W" if word[0].isalpha() else "n"


def bare_title(title: str) -> str:
    """Return a title without its bracketed qualifier.

    >>> bare_title("Mercury (planet)")
    'Mercury'
    """
    return title.partition(" (")[0].strip()


def definition(parsed: Parsed, start: int = 0) -> tuple[str, ...]:
    """Return the words of the first "is a …" at or after a word, up to where its noun ends.

    >>> definition(parse("The Elbe is a big river in Europe."))
    ('big', 'river')
    """
    lower = parsed.lower[start : start + 60]
    for i, (word, after) in enumerate(pairwise(lower), start=2):
        if word in ("is", "was", "are", "were") and after in ARTICLES:
            return noun_phrase(lower[i : i + 9])
    return ()


def last_type(phrase: tuple[str, ...]) -> str:
    """Return the type of the last noun of a phrase that has one."""
    return next(filter(None, map(noun_type, reversed(phrase))), "")


def noun_phrase(lower: tuple[str, ...]) -> tuple[str, ...]:
    """Return the words before the first that cannot stand inside a noun phrase."""
    ends = STOPWORDS | PREPOSITIONS
    return tuple(takewhile(lambda word: word[0].isalnum() and word not in ends, lower))


# --- Questions

# "What is the name of the band ...", "which one of the bands ..."
_BEFORE_NOUN = _AUXILIARIES | ARTICLES | frozenset("name names kind type types one of".split())
_BY_WH = dict.fromkeys(("who", "whom", "whose"), "person")
_BY_WH |= {"when": "date", "where": "place", "how": "number"}


class Question(NamedTuple):
    """A question taken apart; strings are lower case unless they are names.

    `norm` is the normalised text between two spaces. `noun` is what is asked for, "city" of "in
    which city", and `wants` the type of the answer: person, place, group, work, date, year, number,
    nationality, role, yesno, choice or thing. `choices` are the two options of "A or B". `focus`
    weighs each keyword by its nearness to the wh-word, 1 for the nearest; `relations` has those
    outside the names with the words that state the same.
    """

    parsed: Parsed
    norm: str
    noun: str
    wants: str
    choices: tuple[str, ...]
    names: tuple[str, ...]
    focus: dict[str, float]
    relations: dict[str, float]

    def holds(self, norm: str) -> bool:
        """Return whether a normalised phrase stands in the question, in whole words."""
        return f" {norm} " in self.norm


@lru_cache(maxsize=512)
def analyse(text: str) -> Question:
    """Take a question apart by rules alone.

    >>> question = analyse("In what city was the author of Heidi born?")
    >>> question.noun, question.wants, question.names
    ('city', 'place', ('Heidi',))
    """
    parsed = parse(" ".join(text.split()))
    lower = parsed.lower
    # A wh-word at the beginning, or after its preposition; else "what"; else the first.
    asked = [i for i, word in enumerate(lower) if word in _OPENERS - _AUXILIARIES]
    at = min(asked, key=lambda i: (i > 1, lower[i] != "what", i), default=-1)
    wh = lower[at] if asked else ""
    noun = _wh_noun(lower[at + 1 + (wh == "how") :]) if _BY_WH.get(wh, "number") == "number" else ""
    spans = sorted(pattern_spans(parsed, "quote") + shape_spans(parsed, "name"))
    spans = [span for span in spans if lower[span.start] not in _OPENERS]
    choices = _choices(parsed, spans)
    wants = _BY_WH.get(wh) or ("year" if noun == "year" else noun_type(noun) or "thing")
    if choices:
        wants = "choice"
    elif lower and lower[0] in _AUXILIARIES:
        wants = "yesno"
    focus: dict[str, float] = {}
    for i, word in enumerate(parsed.stems):
        if word:
            focus[word] = max(focus.get(word, 0.0), 0.85 ** max(abs(i - max(at, 0)) - 1, 0))
    names = tuple(dict.fromkeys(parsed.slice(*span[:2]) for span in spans))
    named = set(keywords(" ".join(names)))
    relations = {kin: w for word, w in focus.items() if word not in named for kin in related(word)}
    return Question(parsed, f" {normalize(text)} ", noun, wants, choices, names, focus, relations)


def _wh_noun(lower: tuple[str, ...]) -> str:
    """Find the head noun of what is asked: "city" of "in what city", "mother" of "the mother"."""
    skipped = len(list(takewhile(_BEFORE_NOUN.__contains__, lower)))
    phrase = noun_phrase(lower[skipped : skipped + 5])
    # The first noun of a known type (the last of several in a row), else the second word.
    for word, after in pairwise([*phrase, ""]):
        if noun_type(word) and not noun_type(after):
            return word
    return (*phrase[:2], "")[-2] if phrase else ""


def _choices(parsed: Parsed, names: list[Span]) -> tuple[str, ...]:
    """Return the names around "or", or those of "between A and B"; () where there are none."""
    joint = "and" if parsed.lower[:1] == ("between",) else "or"
    for one, other in pairwise(names):
        if joint in parsed.lower[one.end : other.start] and other.start < one.end + 4:
            return parsed.slice(*one[:2]), parsed.slice(*other[:2])
    return ()
