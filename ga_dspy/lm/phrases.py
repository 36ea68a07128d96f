"""What can be said of a phrase over all the places where it stands, and whether it fits."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from ga_dspy.lm import links, static
from ga_dspy.lm.lexicon import CONTINENTS, COUNTRIES, US_STATES
from ga_dspy.lm.links import Asked, Links
from ga_dspy.lm.question import Question, noun_stem
from ga_dspy.lm.static import PageStatics
from ga_dspy.lm.text import stem

NAMES = (
    "in_question", "part_of_asked_name", "count", "passages_with", "is_title_of", "title_of_asked",
    "title_focus_coverage", "title_relation_coverage", "noun_in_definition", "definition_type",
    "ends_with_noun", "best_sentence_focus", "sum_sentence_focus", "best_near", "title_bridge",
    "place_fits", "type_fits", "noun_beside", "bridge",
)  # fmt: skip
"""Names of the features of a phrase, in the order of their columns."""

_FITS = {
    ("date", "year"): 0.7, ("year", "date"): 0.4, ("work", "group"): 0.3, ("group", "work"): 0.3,
    ("place", "group"): 0.4, ("group", "place"): 0.3, ("nationality", "place"): 0.4,
    ("role", "person"): 0.6,
}  # fmt: skip


class Places(NamedTuple):
    """Every place of every candidate: its passage, its span there, its normalised string.

    `focus` is the coverage of its sentence, `close` its nearness to asked words on the better
    side, `reach` its nearness to words of the asked relation on both sides.
    """

    passage: list[int]
    span: list[int]
    norm: list[str]
    focus: list[float]
    close: list[float]
    reach: list[float]


def describe(
    places: Places,
    pages: list[PageStatics],
    linked: Links,
    question: Question,
    asked: Asked,
) -> list[list[float]]:
    """Features shared by all places of one phrase, and its fit to what is asked; a row a place."""
    passage, span, norm, focus, close, _ = places
    bridges = _bridges(places, linked)
    surnames, noun = _surnames(pages), noun_stem(question)
    by_text: dict[str, list[int]] = defaultdict(list)
    for i, text in enumerate(norm):
        by_text[text].append(i)
    rows: list[list[float]] = [[]] * len(norm)
    for text, where in by_text.items():
        titled = linked.titles.get(text, -1)
        known = pages[titled].subject_type if titled >= 0 else ""
        shared = [
            *_shared(text, [passage[i] for i in where], linked, pages, question, asked),
            max(focus[i] for i in where),
            sum(focus[i] for i in where),
            max(close[i] for i in where),
            bridges[titled] if titled >= 0 else -1.0,
            place_fits(question.noun, text),
        ]
        for i in where:
            page = pages[passage[i]]
            kind = known or page.types[span[i]]
            if not kind and text.rpartition(" ")[2] in surnames:
                kind = "person"
            own = (
                fits(question.wants, kind),
                _noun_beside(page, span[i], noun),
                bridges[passage[i]],
            )
            rows[i] = [*shared, *own]
    return rows


def _bridges(places: Places, linked: Links) -> list[float]:
    """How near each passage's title stands to asked words in a passage whose title is asked."""
    bridges = [0.0] * len(linked.rows)
    for i, text in enumerate(places.norm):
        to, here = linked.titles.get(text, -1), places.passage[i]
        if to >= 0 and to != here and linked.asked_titles[here]:
            bridges[to] = max(bridges[to], places.reach[i])
    return bridges


def _shared(
    text: str,
    found_in: list[int],
    linked: Links,
    pages: list[PageStatics],
    question: Question,
    asked: Asked,
) -> list[float]:
    """Features of the string alone and, where it is a title, of the passage it names."""
    noun = noun_stem(question)
    titled = linked.titles.get(text, -1)
    row = linked.rows[titled] if titled >= 0 else []
    definition = pages[titled].definition if titled >= 0 else frozenset[str]()
    kind = pages[titled].subject_type if titled >= 0 else ""
    return [
        float(f" {text} " in asked.norm),
        float(any(text in name or name in text for name in asked.names)),
        float(len(found_in)),
        float(len(set(found_in))),
        float(titled),
        float(titled >= 0 and linked.asked_titles[titled]),
        row[links.NAMES.index("focus_coverage")] if row else -1.0,
        row[links.NAMES.index("relation_coverage")] if row else -1.0,
        float(noun in definition) if definition and noun else -1.0,
        static.TYPES.index(kind) if kind in static.TYPES else 0,
        float(bool(noun) and stem(text.rpartition(" ")[2]) == noun),
    ]


def fits(wants: str, kind: str) -> float:
    """How well a guessed type answers what is wanted: 1 the same, 0.3 unknown, 0 another.

    >>> fits("person", "person"), fits("person", ""), fits("person", "year")
    (1.0, 0.3, 0.0)
    """
    if not kind or wants in ("thing", "choice", "yesno"):
        return 0.3
    return 1.0 if wants == kind else _FITS.get((wants, kind), 0.0)


def place_fits(noun: str, text: str) -> float:
    """How well a string answers a question for one grain of place: 1 it does, 0 it does not.

    >>> place_fits("country", "france"), place_fits("city", "france"), place_fits("actor", "x")
    (1.0, 0.0, 0.5)
    """
    is_country, is_state = text in COUNTRIES, text in US_STATES
    match noun:
        case "country" | "countries" | "nation":
            return float(is_country)
        case "state" | "states":
            return 1.0 if is_state else 0.3 * (not is_country)
        case "continent":
            return float(text in CONTINENTS)
        case "city" | "cities" | "town" | "village" | "suburb" | "county" | "counties":
            return 0.0 if is_country or is_state or text in CONTINENTS else 0.8
    return 0.5


def _surnames(pages: Sequence[PageStatics]) -> frozenset[str]:
    """The last words of titles that are persons' names."""
    persons = [p for p in pages if p.subject_type == "person" and p.alias]
    return frozenset(p.alias[0].rpartition(" ")[2] for p in persons)


def _noun_beside(p: PageStatics, index: int, noun: str) -> float:
    """1 where the wh-noun stands within six words before the span, 0.7 four words after."""
    if not noun:
        return 0.0
    span, stems = p.page.spans[index], p.page.parsed.stems
    if noun in stems[max(0, span.start - 6) : span.start]:
        return 1.0
    return 0.7 if noun in stems[span.end : span.end + 4] else 0.0
