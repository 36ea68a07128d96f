"""Rule-based parsing of English: words, sentences, names, dates, numbers and questions.

Nothing here depends on a dataset: the lists in words.json hold general vocabulary only. `parse` is
cached because every step of a question reads the same passages.
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
    """A package that the engine needs is missing; the message says how to install it."""


# --- Word lists

_LISTS: dict[str, Any] = json.loads(Path(__file__).with_name("words.json").read_text("utf-8"))


def words(name: str) -> frozenset[str]:
    """Return a list of words.json; a list with commas holds phrases, any other single words."""
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

# A noun that is listed under several types gets the first.
_TYPE_OF_NOUN = {
    noun: kind
    for kind in reversed(_LISTS["nouns"])
    for noun in " ".join(_LISTS["nouns"][kind]).split()
}


@lru_cache(maxsize=32768)
def noun_type(noun: str) -> str:
    """Return the type of a common noun: "person", "place", "group", "work", ... or "".

    >>> noun_type("actresses"), noun_type("cities"), noun_type("glacier")
    ('person', 'place', '')
    """
    noun = noun.lower()
    forms = [noun, noun.removesuffix("s"), noun.removesuffix("es")]
    forms += [re.sub("ies$", "y", noun), re.sub("men$", "man", noun)]
    return next((_TYPE_OF_NOUN[form] for form in forms if form in _TYPE_OF_NOUN), "")


@lru_cache(maxsize=32768)
def related(word: str) -> frozenset[str]:
    """Return the stems that often express the same relation as this one, including itself."""
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
    """A tokenized text; a word is also a number or a single punctuation mark.

    All tuples but `bounds` have one entry per word. `starts` holds the offset of its first
    character, `sentence` the number of its sentence, and `stems` is "" for stopwords and
    punctuation. `bounds` holds the words `[start, end)` of each sentence.
    """

    text: str
    words: tuple[str, ...]
    starts: tuple[int, ...]
    lower: tuple[str, ...]
    stems: tuple[str, ...]
    sentence: tuple[int, ...]
    bounds: tuple[tuple[int, int], ...]

    def slice(self, start: int, end: int) -> str:
        """Return the exact text of the words `[start, end)`."""
        return self.text[self.starts[start] : self.starts[end - 1] + len(self.words[end - 1])]


@lru_cache(maxsize=2048)
def parse(text: str) -> Parsed:
    """Split a text into sentences, and into words, numbers and punctuation marks.

    >>> parse("J. K. Rowling's 1,000 fans.").words
    ('J.', 'K.', 'Rowling', "'s", '1,000', 'fans', '.')
    """
    matches = list(_WORD.finditer(text))
    words = tuple(match[0] for match in matches)
    starts = tuple(match.start() for match in matches)
    breaks = [0] if words else []
    for i in range(1, len(words)):
        is_spaced = text[starts[i] - 1].isspace() and not words[i][0].islower()
        if words[i - 1] in ".!?" and is_spaced:
            breaks.append(i)
    bounds = tuple(pairwise([*breaks, len(words)]))
    sentence = tuple(n for n, (start, end) in enumerate(bounds) for _ in range(start, end))
    lower, stems = tuple(map(str.lower, words)), tuple(map(stem, words))
    return Parsed(text, words, starts, lower, stems, sentence, bounds)


@lru_cache(maxsize=65536)
def stem(word: str) -> str:
    """Return the English Snowball stem of a word; "" for a stopword or punctuation.

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
    """Return the distinct stems of the content words of a text, in order."""
    return [word for word in dict.fromkeys(parse(text).stems) if word]


def normalize(text: str) -> str:
    """Normalise an answer as HotpotQA's script does: lower case, no punctuation, no articles.

    >>> normalize("The Beatles, Inc.")
    'beatles inc'
    """
    return " ".join(_ARTICLE.sub(" ", text.lower().translate(_PUNCTUATION)).split())


# --- Spans: quotations, dates and numbers by regular expressions over the characters, names and
# phrases by regular expressions over the shapes of words (`_shape`)

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
    # Capitalised words and short numbers, with "of", "de la", "of the", ... between them.
    "name": ["(C(?:C|d|[oc]{1,2}t?C)*)"],
    # One to four words: the first in lower case, the last a content word, maybe "of" in between.
    "words": ["(?=(W))", "(?=(W[WCdn]))", "(?=(W[^xc][WCdn]))", "(?=(W[^xc]{2}[WCdn]))"],
}
_CONNECTORS = "de da del della di du la le el al van von der den & - – ’ ' y".split()
_LETTERS = dict.fromkeys(STOPWORDS, "x") | dict.fromkeys(_MONTHS, "n")
_LETTERS |= dict.fromkeys(_CONNECTORS, "c") | dict.fromkeys(("and", "in", "for", "to"), "i")
_LETTERS |= {"of": "o", "the": "t"}


def pattern_spans(parsed: Parsed, *kinds: str) -> list[Span]:
    """Return the spans of these kinds: "quote", "date", "year", "number", "quantity"."""
    spans: list[Span] = []
    for kind in kinds:
        for match in re.finditer(_BY_CHARACTERS[kind], parsed.text):
            start, end = (bisect_left(parsed.starts, at) for at in match.span(match.re.groups))
            if start < end and parsed.lower[end - 1] not in STOPWORDS:
                spans.append(Span(start, end, kind))
    return spans


def shape_spans(parsed: Parsed, kind: str) -> list[Span]:
    """Return the spans of a kind: "name" (capitalised words) or "words" (phrases)."""
    shapes = "".join(map(_shape, parsed.words))
    matches = (match for form in _BY_SHAPES[kind] for match in re.finditer(form, shapes))
    return [Span(*match.span(1), kind) for match in matches]


@lru_cache(maxsize=65536)
def _shape(word: str) -> str:
    """Return the shape of a word as a letter.

    C: capitalised; W: another content word; d: a number of one or two digits; n: another number, or
    a month; o, t, i, c: "of", "the", words such as "and", parts of names such as "de"; x: any other
    stopword, or punctuation.
    """
    if letter := _LETTERS.get(word.lower()):
        return letter
    if word.isdigit() and len(word) < 3:
        return "d"
    if not word[0].isalnum():
        return "x"
    if word[0].isupper():
        return "C"
    return "W" if word[0].isalpha() else "n"


def bare_title(title: str) -> str:
    """Return a title without its bracketed qualifier.

    >>> bare_title("Mercury (planet)")
    'Mercury'
    """
    return title.partition(" (")[0].strip()


def definition(parsed: Parsed, start: int = 0) -> tuple[str, ...]:
    """Return the noun phrase of the first "is a …" at or after the word `start`.

    >>> definition(parse("The Elbe is a big river in Europe."))
    ('big', 'river')
    """
    lower = parsed.lower[start : start + 60]
    for i, (word, after) in enumerate(pairwise(lower), start=2):
        if word in ("is", "was", "are", "were") and after in ARTICLES:
            return noun_phrase(lower[i : i + 9])
    return ()


def last_type(phrase: tuple[str, ...]) -> str:
    """Return the type of the last noun in a phrase that has a type."""
    return next(filter(None, map(noun_type, reversed(phrase))), "")


def noun_phrase(lower: tuple[str, ...]) -> tuple[str, ...]:
    """Return the leading words that can be part of one noun phrase."""
    ends = STOPWORDS | PREPOSITIONS
    return tuple(takewhile(lambda word: word[0].isalnum() and word not in ends, lower))


# --- Questions

# "What is the name of the band ...", "which one of the bands ..."
_BEFORE_NOUN = _AUXILIARIES | ARTICLES | frozenset("name names kind type types one of".split())
_BY_WH = dict.fromkeys(("who", "whom", "whose"), "person")
_BY_WH |= {"when": "date", "where": "place", "how": "number"}


class Question(NamedTuple):
    """A parsed question.

    Attributes:
        parsed: Its words.
        norm: The normalised text, with a space before and after it.
        noun: The noun that is asked for: "city" in "in which city".
        wants: The type of the answer: person, place, group, work, date, year, number, nationality,
            role, yesno, choice or thing.
        choices: The two options of "A or B".
        names: The names and quotations in it.
        focus: The weight of each keyword, 1 next to the wh-word and less further away.
        relations: The weights of keywords outside the names, also under related stems.
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
        """Return whether a normalised phrase occurs in the question as whole words."""
        return f" {norm} " in self.norm


@lru_cache(maxsize=512)
def analyse(text: str) -> Question:
    """Parse a question by rules.

    >>> question = analyse("In what city was the author of Heidi born?")
    >>> question.noun, question.wants, question.names
    ('city', 'place', ('Heidi',))
    """
    parsed = parse(" ".join(text.split()))
    lower = parsed.lower
    # Prefer a wh-word that begins the question or follows its preposition, then "what".
    asked = [i for i, word in enumerate(lower) if word in _OPENERS - _AUXILIARIES]
    at = min(asked, key=lambda i: (i > 1, lower[i] != "what", i), default=-1)
    wh = lower[at] if asked else ""
    noun = _wh_noun(lower[at + 1 + (wh == "how") :]) if _BY_WH.get(wh, "number") == "number" else ""
    spans = sorted(pattern_spans(parsed, "quote") + shape_spans(parsed, "name"))
    spans = [span for span in spans if lower[span.start] not in _OPENERS]
    choices = _choices(parsed, spans)
    if choices:
        wants = "choice"
    elif lower and lower[0] in _AUXILIARIES:
        wants = "yesno"
    elif wh in _BY_WH:
        wants = _BY_WH[wh]
    else:
        wants = "year" if noun == "year" else noun_type(noun) or "thing"
    focus: dict[str, float] = {}
    for i, word in enumerate(parsed.stems):
        if word:
            focus[word] = max(focus.get(word, 0.0), 0.85 ** max(abs(i - max(at, 0)) - 1, 0))
    names = tuple(dict.fromkeys(parsed.slice(*span[:2]) for span in spans))
    named = set(keywords(" ".join(names)))
    others = {word: weight for word, weight in focus.items() if word not in named}
    relations = {kin: weight for word, weight in others.items() for kin in related(word)}
    return Question(parsed, f" {normalize(text)} ", noun, wants, choices, names, focus, relations)


def _wh_noun(lower: tuple[str, ...]) -> str:
    """Return the head noun after a wh-word: "city" of "in what city"."""
    skipped = len(list(takewhile(_BEFORE_NOUN.__contains__, lower)))
    phrase = noun_phrase(lower[skipped : skipped + 5])
    # The first noun of a known type (the last of several in a row), else the second word.
    for word, after in pairwise([*phrase, ""]):
        if noun_type(word) and not noun_type(after):
            return word
    return phrase[:2][-1] if phrase else ""


def _choices(parsed: Parsed, names: list[Span]) -> tuple[str, ...]:
    """Return the names around "or", or those of "between A and B"; empty if there are none."""
    joint = "and" if parsed.lower[:1] == ("between",) else "or"
    for one, other in pairwise(names):
        if joint in parsed.lower[one.end : other.start] and other.start < one.end + 4:
            return parsed.slice(*one[:2]), parsed.slice(*other[:2])
    return ()
