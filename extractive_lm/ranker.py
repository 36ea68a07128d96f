"""Rank the phrases of passages as answers to a question.

A gradient-boosted ranker scores each candidate phrase by its features. Among the best phrases, the
one that shares the most words with the others comes first. Rules answer yes/no and "A or B".
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from functools import lru_cache
from importlib import resources
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from extractive_lm import english
from extractive_lm.english import Parsed, Question, Span, normalize
from extractive_lm.prompt import Answer, Doc
from extractive_lm.trees import Trees

_TEMPERATURE, _CONSIDERED = 0.6, 15


def rank(
    question: Question, docs: Sequence[Doc], shifts: Mapping[str, float] | None = None
) -> list[Answer]:
    """Return the fifteen likeliest answers, best first; two for a comparison.

    Args:
        question: The question.
        docs: The passages.
        shifts: Numbers to add to the scores of phrases, by normalised text.
    """
    pages = [read_page(doc.title, doc.text) for doc in docs]
    if docs and question.wants in ("choice", "yesno"):
        return compare(question, docs, pages)
    places, values = describe(question, pages)
    scores = shipped_trees().scores(values).tolist() if places else []
    best: dict[str, tuple[float, Place]] = {}
    for score, place in sorted(zip(scores, places, strict=True), key=lambda each: -each[0]):
        best.setdefault(place[0], (score + (shifts or {}).get(place[0], 0.0), place))
    answers: list[Answer] = []
    for norm, expected in expected_f1({norm: score for norm, (score, _) in best.items()}).items():
        _, number, (start, end, _) = best[norm][1]
        text = " ".join(pages[number].parsed.slice(start, end).split())
        answers.append(Answer(text, expected, (docs[number].label,)))
    return answers


@lru_cache(maxsize=1)
def shipped_trees() -> Trees:
    """Load the ranker's trees from the package."""
    return Trees.parse((resources.files("extractive_lm") / "ranker.txt").read_text("utf-8"))


def expected_f1(scored: Mapping[str, float]) -> dict[str, float]:
    """Return the expected F1 of the fifteen best strings: against each other, weighted by odds.

    A string that shares words with other likely ones is the safer answer (minimum Bayes risk).
    """
    best = sorted(scored.items(), key=lambda pair: (-pair[1], pair[0]))[:_CONSIDERED]
    odds = [(text, math.exp((score - best[0][1]) / _TEMPERATURE)) for text, score in best]
    expected: dict[str, float] = {}
    for text, _ in odds:
        expected[text] = sum(weight * word_f1(text, other) for other, weight in odds)
    total = sum(weight for _, weight in odds)
    return {text: expected[text] / total for text in sorted(expected, key=lambda t: -expected[t])}


def word_f1(ours: str, theirs: str) -> float:
    """Return the F1 of the words of two strings."""
    one, other = Counter(ours.split()), Counter(theirs.split())
    return 2 * (one & other).total() / (one.total() + other.total())


# --- Candidate phrases of a passage, whatever the question

_KINDS = "title name part pair quote date year number quantity words".split()
_FIRST_NAMES = english.words("first_names")
_TYPE_OF_NAME = dict.fromkeys(english.COUNTRIES | english.US_STATES, "place")
_TYPE_OF_NAME |= dict.fromkeys(english.NATIONALITIES, "nationality")


class Page(NamedTuple):
    """A passage with its candidate phrases.

    Attributes:
        parsed: The title and the text, so that the title is a candidate too.
        spans: The normalised text of each candidate.
        kind: The stems of the subject's definition, "is a …".
        type: The type of that noun.
        aliases: The normalised forms of the title.
    """

    parsed: Parsed
    spans: dict[Span, str]
    kind: frozenset[str]
    type: str
    aliases: tuple[str, ...]


@lru_cache(maxsize=2048)
def read_page(title: str, text: str) -> Page:
    """Return a passage with its candidate phrases."""
    head, body = english.bare_title(title), " ".join(text.split())
    parsed = english.parse(f"{head} .\n{body}" if head else body)
    size = len(english.parse(head).words)
    spans: dict[tuple[int, int], Span] = {}
    for span in sorted(_candidates(parsed, size), key=lambda span: _KINDS.index(span.kind)):
        spans.setdefault(span[:2], span)
    norms = {span: normalize(parsed.slice(*span[:2])) for span in spans.values()}
    kind = english.definition(parsed, size)
    is_person = "born" in parsed.lower[size : size + 40]
    return Page(
        parsed=parsed,
        spans={span: norm for span, norm in norms.items() if norm},
        kind=frozenset(map(english.stem, kind)),
        type="person" if is_person else english.last_type(kind),
        aliases=tuple(filter(None, {normalize(head), normalize(head.partition(",")[0])})),
    )


def _candidates(parsed: Parsed, title_size: int) -> Iterator[Span]:
    """Yield spans of all kinds; the same words may come as two kinds."""
    names = [span for span in english.shape_spans(parsed, "name") if span.start >= title_size]
    if title_size:
        yield Span(0, title_size, "title")
    yield from names
    for start, end, _ in names:
        for i in range(start + 1, end):
            # The name without "President" or a first name, and either side of its "of".
            if i - start < 3 or parsed.lower[i - 1] in english.PREPOSITIONS:
                yield Span(i, end, "part")
            if parsed.lower[i] in english.PREPOSITIONS:
                yield Span(start, i, "part")
    for one, other in pairwise(names):
        if parsed.lower[one.end : other.start] == (",",):
            yield Span(one.start, other.end, "pair")
    yield from english.pattern_spans(parsed, "quote", "date", "year", "number", "quantity")
    yield from (span for span in english.shape_spans(parsed, "words") if span.start >= title_size)


# --- Features: one row per occurrence of a candidate phrase

FEATURES = tuple(
    "kind type_fits wants noun_fits words capitals overlap in_question sentence focus near related "
    "passage_rank coverage pair_coverage named_by best_focus sum_focus best_near".split()
)
"""Names of all features, in the order of the columns."""

_WANTS = "thing person place group work date year number nationality role".split()
_PLACES = {"country": english.COUNTRIES, "nation": english.COUNTRIES, "state": english.US_STATES}

Place = tuple[str, int, Span]
"""An occurrence of a phrase: its normalised text, the number of its passage, and its span."""


def describe(question: Question, pages: Sequence[Page]) -> tuple[list[Place], np.ndarray]:
    """Return the features of every occurrence of every candidate phrase.

    Returns:
        The occurrences, and their features, of shape (occurrences, features).
    """
    about = {form: n for n, page in reversed(list(enumerate(pages))) for form in page.aliases}
    named: list[set[int]] = []
    for page in pages:
        named.append({about[norm] for norm in page.spans.values() if norm in about})
    stems = [{*page.parsed.stems} for page in pages]
    rows: dict[Place, dict[str, float]] = {}
    by_phrase: dict[str, list[dict[str, float]]] = defaultdict(list)
    for number, page in enumerate(pages):
        naming = [n for n in range(len(pages)) if number in named[n]]
        pairs = [stems[number] | stems[n] for n in {*naming, *named[number]}]
        of_page = {
            "passage_rank": number,
            "coverage": share(stems[number], question.focus),
            "pair_coverage": max((share(pair, question.focus) for pair in pairs), default=0.0),
            "named_by": len(naming),
        }
        for span, norm in page.spans.items():
            other = pages[about[norm]] if norm in about else None
            row = _describe_span(question, page, span, norm, other) | of_page
            rows[norm, number, span] = row
            by_phrase[norm].append(row)
    for norm, places in by_phrase.items():
        # Features of the phrase over all its occurrences.
        focus = [row["focus"] for row in places]
        shared = {
            "in_question": question.holds(norm),
            "best_focus": max(focus),
            "sum_focus": sum(focus),
            "best_near": max(row["near"] for row in places),
        }
        for row in places:
            row |= shared
    values = [[row[name] for name in FEATURES] for row in rows.values()]
    return list(rows), np.array(values, dtype=np.float32)


def share(stems: Set[str], weights: Mapping[str, float]) -> float:
    """Return the share of the total weight that the stems cover; 0 without any weight."""
    covered = sum(weight for word, weight in weights.items() if word in stems)
    return covered / (sum(weights.values()) or 1.0)


def _describe_span(
    question: Question, page: Page, span: Span, norm: str, about: Page | None
) -> dict[str, float]:
    start, end, kind = span
    words, stems = page.parsed.words[start:end], page.parsed.stems[start:end]
    first, last = page.parsed.bounds[page.parsed.sentence[start]]
    guessed = (about.type if about else "") or _guess_type(page, span, norm)
    type_fits = float(question.wants == guessed) if guessed and question.wants != "thing" else 0.3
    if question.wants == "place" and question.noun in _PLACES:
        type_fits = float(norm in _PLACES[question.noun])
    elif question.wants == "place" and question.noun and norm in _TYPE_OF_NAME:
        type_fits = 0.0  # "in which city": not a country, state or nationality
    noun, kind_stems = english.stem(question.noun), about.kind if about else frozenset()
    before, behind = page.parsed.stems[first:start][::-1], page.parsed.stems[end:last]
    return {
        "kind": _KINDS.index(kind),
        "type_fits": type_fits,
        "wants": _WANTS.index(question.wants),
        "noun_fits": noun in kind_stems.union(stems) if noun else -1.0,
        "words": len(words),
        "capitals": sum(word[0].isupper() for word in words) / len(words),
        "overlap": sum(word in question.focus for word in stems) / len(stems),
        "sentence": page.parsed.sentence[start],
        "focus": share({*page.parsed.stems[first:last]}, question.focus),
        "near": max(_near(before, question.focus), _near(behind, question.focus)),
        "related": _near(before, question.relations),
    }


def _near(stems: Sequence[str], weights: Mapping[str, float]) -> float:
    """Return the sum of the words' weights, which decay with distance."""
    return sum(weights.get(word, 0.0) * 0.8**gap for gap, word in enumerate(stems, 1))


def _guess_type(page: Page, span: Span, norm: str) -> str:
    """Guess the type of a phrase by its form; "" if the form does not show it."""
    if span.kind in _WANTS:
        return span.kind
    if norm in _TYPE_OF_NAME or span.kind == "pair":
        return _TYPE_OF_NAME.get(norm, "place")
    own, before = page.parsed.lower[span.start : span.end], page.parsed.lower[span.start - 1]
    if span.kind == "words":
        return english.noun_type(own[-1]).replace("person", "role")
    is_person = english.noun_type(before) == "person" or own[0] in _FIRST_NAMES
    default = "person" if is_person else ""
    return english.noun_type(own[-1]) or english.noun_type(own[0]) or default


# --- Comparisons: "A or B?", "are both ...?"

_LATER = frozenset("later latest last younger youngest recently newer after".split())
_ORDER = _LATER | frozenset("first earlier earliest older oldest before".split())
_YEAR = re.compile(r"\b(?:1\d|20)\d\d\b")
_ENOUGH, _SURE = 0.6, 0.7


def compare(question: Question, docs: Sequence[Doc], pages: Sequence[Page]) -> list[Answer]:
    """Return both outcomes of a comparison, the likelier first; their scores add up to 1."""
    names = list(map(normalize, question.choices or question.names))
    # For each name, the first passage with that title, else the first that mentions it.
    about: list[int] = []
    for name in names[:2]:
        titled = [i for i, page in enumerate(pages) if name in page.aliases]
        holding = [i for i, page in enumerate(pages) if name in page.spans.values()]
        about.append((*titled, *holding, 0)[0])
    named = [*question.choices, *(form for i in about for form in pages[i].aliases)]
    wanted = set(question.focus).difference(english.keywords(" ".join(named)))
    matches = [len(wanted.intersection(pages[i].parsed.stems)) for i in about]
    asked = set(question.parsed.lower)
    # The first year of a passage is taken for a birth, the second for a death.
    is_death = not asked.isdisjoint("died die dies death".split())
    years = [_YEAR.findall(pages[i].parsed.text)[is_death:][:1] for i in about]
    if not question.choices:
        winner = min(matches, default=0) >= _ENOUGH * len(wanted)
    elif asked & _ORDER and all(years):
        winner = (years[-1] < years[0]) != bool(asked & _LATER)
    else:
        winner = matches[-1] > matches[0]
    texts = question.choices or ("no", "yes")
    cited = tuple(docs[i].label for i in sorted({*about})) or (docs[0].label,)
    return [Answer(texts[winner], _SURE, cited), Answer(texts[not winner], 1 - _SURE, cited)]
