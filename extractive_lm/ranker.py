"""Answers: a question and passages in, ranked answers out; no model of language, no memory.

Candidate spans are described by numbers, scored by a gradient-boosted ranker, and settled in favour
of the span that agrees with its likely neighbours. Yes/no questions and "A or B" go by rules.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence, Set
from functools import lru_cache
from importlib import resources
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from extractive_lm.prompt import Answer, Doc
from extractive_lm.question import Question, analyse
from extractive_lm.spans import KINDS, Page, read_page
from extractive_lm.text import (
    COUNTRIES,
    COUNTRIES_AND_STATES,
    RELATED,
    US_STATES,
    ExtractiveError,
    Idf,
    dates,
    keywords,
    normalize,
    stem,
)

MODEL_FILE, IDF_FILE = "ranker.txt", "idf.json"
_TEMPERATURE = 0.6
_CONSIDERED = 15
_MOST = 50


def rank(
    question: str,
    docs: Sequence[Doc],
    *,
    shifts: Mapping[str, float] = MappingProxyType({}),
) -> list[Answer]:
    """Return the likeliest answers (at most 50), best first; the same arguments, the same list.

    Args:
        question: The question as it is asked.
        docs: The passages.
        shifts: What to add to the score of a candidate, by its normalised text.

    Raises:
        ExtractiveError: LightGBM or the stemmer is not installed.
    """
    asked, ranker = analyse(question), shipped_ranker()
    pages = [read_page(doc.title, doc.text) for doc in docs]
    compared = _compare(asked, docs, pages) if docs else []
    found = describe(asked, pages, ranker.idf)
    scores = ranker.scores(found.values) if found.norm else []
    rows = best_rows(found.norm, scores)
    scored = {norm: scores[row] + shifts.get(norm, 0.0) for norm, row in rows.items()}
    most = compared[-1].score if compared else 1.0
    spans: list[Answer] = []
    for norm, expected in expected_f1(scored)[:_MOST]:
        page, (start, end, _) = found.places[rows[norm]]
        text = " ".join(pages[page].parsed.slice(start, end).split())
        spans.append(Answer(text, min(expected, most), (docs[page].label,)))
    return compared + spans


# --- The ranker


class Ranker(NamedTuple):
    """The fitted parts: word rarities and a booster."""

    idf: Idf
    booster: Any

    @classmethod
    def from_files(cls, files: Mapping[str, str]) -> Ranker:
        """Make a ranker of the texts of the weight files by file name."""
        try:
            import lightgbm
        except ImportError as error:
            raise ExtractiveError(
                "lightgbm is not installed; run: pip install -e '.[offline]' (in a clone)"
            ) from error
        booster = lightgbm.Booster(model_str=files[MODEL_FILE])
        if booster.num_feature() != len(FEATURES):
            raise ExtractiveError(
                f"the ranker's weights were fitted for {booster.num_feature()} features, the code "
                f"has {len(FEATURES)}; fit them again with: python tests/fit_ranker.py (in a clone)"
            )
        return cls(Idf.from_json(files[IDF_FILE]), booster)

    def scores(self, values: np.ndarray) -> list[float]:
        """Return one score per row, higher is better; comparable within a question only."""
        scores: list[float] = self.booster.predict(values, num_threads=1).tolist()
        return scores


@lru_cache(maxsize=1)
def shipped_ranker() -> Ranker:
    """Load the ranker with the weights in the package."""
    folder = resources.files("extractive_lm") / "weights"
    names = (IDF_FILE, MODEL_FILE)
    return Ranker.from_files({name: (folder / name).read_text("utf-8") for name in names})


def best_rows(norm: Sequence[str], scores: Sequence[float]) -> dict[str, int]:
    """Return the first row with the best score of each normalised string."""
    best: dict[str, int] = {}
    for row, text in enumerate(norm):
        if text not in best or scores[row] > scores[best[text]]:
            best[text] = row
    return best


def expected_f1(scored: Mapping[str, float]) -> list[tuple[str, float]]:
    """Rank normalised strings by their F1 against one another, weighed by their odds.

    A string that shares words with other likely ones is the safer answer (minimum Bayes risk).
    Strings after the fifteen with the best scores keep their order with expectation 0.
    """
    ranked = sorted(scored.items(), key=lambda pair: (-pair[1], pair[0]))
    head = ranked[:_CONSIDERED]
    odds = [math.exp((score - head[0][1]) / _TEMPERATURE) for _, score in head]
    bags = [Counter(text.split()) for text, _ in head]
    expected: list[tuple[str, float]] = []
    for (text, _), own in zip(head, bags, strict=True):
        shared = sum(o * word_f1(own, other) for o, other in zip(odds, bags, strict=True))
        expected.append((text, shared / sum(odds)))
    expected.sort(key=lambda pair: -pair[1])
    return expected + [(text, 0.0) for text, _ in ranked[_CONSIDERED:]]


def word_f1(ours: Counter[str], theirs: Counter[str]) -> float:
    """Return the F1 of two bags of words."""
    shared = (ours & theirs).total()
    return 2 * shared / (ours.total() + theirs.total()) if shared else 0.0


# --- The features: one row of numbers for every candidate span of every passage

FEATURES = (
    # The candidate by itself, and against the type that is asked for.
    "kind", "words", "capitals", "has_digit", "sentence", "place_in_sentence", "overlap",
    "mean_idf", "max_idf", "type", "type_fits", "place_fits", "wants",
    # Its passage, its sentence, the words around it.
    "passage_rank", "coverage", "pair_coverage", "title_overlap", "title_asked", "named_by",
    "sentence_focus", "sentence_related", "sentence_residual", "previous_focus", "near_left",
    "near_right", "related_left", "near_residual",
    # The phrase over all the places where it stands.
    "in_question", "passages_with", "best_focus", "sum_focus", "best_near", "noun_in_definition",
    "ends_with_noun",
)  # fmt: skip
"""Names of all features, in the order of the columns."""

_TYPES = (
    "", "person", "place", "group", "work", "date", "year", "number", "nationality", "role",
)  # fmt: skip
_WANTS = ("thing", *_TYPES[1:], "choice", "yesno")
_FITS = {
    ("date", "year"): 0.7, ("year", "date"): 0.4, ("work", "group"): 0.3, ("group", "work"): 0.3,
    ("place", "group"): 0.4, ("group", "place"): 0.3, ("nationality", "place"): 0.4,
    ("role", "person"): 0.6,
}  # fmt: skip
_KIN = 0.7
_DECAY = 0.8


class Asked(NamedTuple):
    """A question's words with their weights.

    `weights` are rarities, `focus` those weighed by nearness to the wh-word, `related` the words
    outside the question's names with the words that state the same relations.
    """

    weights: dict[str, float]
    focus: dict[str, float]
    related: dict[str, float]


def weigh(question: Question, idf: Idf) -> Asked:
    """Weigh the words of a question by rarity, nearness to the wh-word, and role."""
    in_names = {s for name in question.names for s in keywords(name)}
    weights = {s: idf(s) for s in question.focus}
    focus = {s: weight * question.focus[s] for s, weight in weights.items()}
    related = {s: weight for s, weight in focus.items() if s not in in_names}
    for word, own in zip(question.parsed.lower, question.parsed.stems, strict=True):
        for other in RELATED.get(word, ()) if own and own not in in_names else ():
            kin = stem(other)
            related[kin] = max(related.get(kin, 0.0), _KIN * focus[own])
    return Asked(weights, focus, related)


def share(stems: Set[str], weights: Mapping[str, float]) -> float:
    """Return the share of the total weight that the stems cover; 0 where there is none."""
    total = sum(weights.values())
    return sum(w for s, w in weights.items() if s in stems) / total if total else 0.0


class Candidates(NamedTuple):
    """All candidates of a question: `values` (n, len(FEATURES)), and in parallel what they are.

    `places` are the passage and the span of each, `norm` its normalised string.
    """

    values: np.ndarray
    places: list[tuple[int, tuple[int, int, str]]]
    norm: list[str]


def describe(question: Question, pages: Sequence[Page], idf: Idf) -> Candidates:
    """Describe every candidate of the passages."""
    asked = weigh(question, idf)
    titles = {form: i for i, page in reversed(list(enumerate(pages))) for form in page.aliases}
    stems = [frozenset(filter(None, page.parsed.stems)) for page in pages]
    named = [{titles[norm] for norm in page.norms if norm in titles} for page in pages]
    is_asked = [any(map(question.holds, page.aliases)) for page in pages]
    rows: list[dict[str, float]] = []
    found = Candidates(np.zeros((0, len(FEATURES))), [], [])
    for i, page in enumerate(pages):
        linked = {j for j, other in enumerate(named) if j != i and (i in other or j in named[i])}
        pairs = [share(stems[i] | stems[j], asked.weights) for j in linked]
        # What another passage with an asked title (or else the first) says is no longer open.
        others = [j for j, hit in enumerate(is_asked) if hit and j != i] or [0] * (i > 0)
        known = frozenset[str]().union(*(stems[j] for j in others))
        residual = {s: weight for s, weight in asked.related.items() if s not in known}
        passage: dict[str, float] = {
            "passage_rank": i,
            "coverage": share(stems[i], asked.weights),
            "pair_coverage": max(pairs, default=0.0),
            "title_overlap": share(set(keywords(page.title)), asked.weights),
            "title_asked": is_asked[i],
            "named_by": sum(i in other for j, other in enumerate(named) if j != i),
        }
        rows += [passage | row for row in _describe_spans(question, page, asked, residual, idf)]
        found.places.extend((i, span) for span in page.spans)
        found.norm.extend(page.norms)
    _describe_phrases(question, pages, found, titles, rows)
    if not rows:
        return found
    values = [[row[name] for name in FEATURES] for row in rows]
    return found._replace(values=np.array(values, dtype=np.float32))


def _describe_spans(
    question: Question, page: Page, asked: Asked, residual: dict[str, float], idf: Idf
) -> list[dict[str, float]]:
    parsed = page.parsed
    left, right = _decayed(page, asked.focus)
    related, _ = _decayed(page, asked.related)
    open_left, open_right = _decayed(page, residual)
    sentences: list[dict[str, float]] = []
    for start, end in parsed.bounds:
        stems = frozenset(parsed.stems[start:end])
        sentences.append(
            {
                "sentence_focus": share(stems, asked.focus),
                "sentence_related": share(stems, asked.related),
                "sentence_residual": share(stems, residual),
                "previous_focus": sentences[-1]["sentence_focus"] if sentences else 0.0,
            }
        )
    rows: list[dict[str, float]] = []
    for (start, end, kind), norm, guessed in zip(page.spans, page.norms, page.types, strict=True):
        number = parsed.sentence[start]
        first, last = parsed.bounds[number]
        texts = [token.text for token in parsed.tokens[start:end]]
        rarity = [idf(s) for s in parsed.stems[start:end] if s] or [0.0]
        own: dict[str, float] = {
            "kind": KINDS.index(kind),
            "words": end - start,
            "capitals": sum(text[0].isupper() for text in texts) / len(texts),
            "has_digit": any(text[0].isdigit() for text in texts),
            "sentence": number,
            "place_in_sentence": (start - first) / (last - first),
            "overlap": sum(s in asked.focus for s in parsed.stems[start:end]) / len(rarity),
            "mean_idf": sum(rarity) / len(rarity),
            "max_idf": max(rarity),
            "type": _TYPES.index(guessed),
            "type_fits": fits(question.wants, guessed),
            "place_fits": _place_fits(question.noun, norm),
            "wants": _WANTS.index(question.wants),
            "near_left": left[start],
            "near_right": right[end] * (end < last),
            "related_left": related[start],
            "near_residual": max(open_left[start], open_right[end] * (end < last)),
        }
        rows.append(own | sentences[number])
    return rows


def _decayed(page: Page, weights: dict[str, float]) -> tuple[list[float], list[float]]:
    """Return the weights of a sentence left and right of each gap, fading with distance."""
    stems = page.parsed.stems
    left, right = [0.0] * (len(stems) + 1), [0.0] * (len(stems) + 1)
    for start, end in page.parsed.bounds:
        carry = 0.0
        for i in range(start, end):
            left[i] = carry
            carry = (carry + weights.get(stems[i], 0.0)) * _DECAY
        carry = 0.0
        for i in range(end - 1, start - 1, -1):
            carry = (carry + weights.get(stems[i], 0.0)) * _DECAY
            right[i] = carry
    return left, right


def _describe_phrases(
    question: Question,
    pages: Sequence[Page],
    found: Candidates,
    titles: Mapping[str, int],
    rows: list[dict[str, float]],
) -> None:
    """Add to each row what holds of its phrase wherever that stands."""
    noun = question.noun_stem
    places: dict[str, list[int]] = defaultdict(list)
    for i, text in enumerate(found.norm):
        places[text].append(i)
    for text, where in places.items():
        about = pages[titles[text]] if text in titles else None
        focus = [rows[i]["sentence_focus"] for i in where]
        shared: dict[str, float] = {
            "in_question": question.holds(text),
            "passages_with": len({found.places[i][0] for i in where}),
            "best_focus": max(focus),
            "sum_focus": sum(focus),
            "best_near": max(max(rows[i]["near_left"], rows[i]["near_right"]) for i in where),
            "noun_in_definition": noun in about.definition if about and noun else -1.0,
            "ends_with_noun": bool(noun) and stem(text.rpartition(" ")[2]) == noun,
        }
        if about and about.subject_type:
            shared["type_fits"] = fits(question.wants, about.subject_type)
        for i in where:
            rows[i] |= shared


def fits(wants: str, kind: str) -> float:
    """Return how well a guessed type answers what is wanted: 1 the same, 0.3 unknown, 0 another.

    >>> fits("person", "person"), fits("person", ""), fits("person", "year")
    (1.0, 0.3, 0.0)
    """
    if not kind or wants in ("thing", "choice", "yesno"):
        return 0.3
    return 1.0 if wants == kind else _FITS.get((wants, kind), 0.0)


def _place_fits(noun: str, text: str) -> float:
    """Return how well a string answers a question for a country, a state or a smaller place."""
    if noun in ("country", "countries", "nation"):
        return float(text in COUNTRIES)
    if noun in ("state", "states"):
        return float(text in US_STATES)
    if noun in ("city", "cities", "town", "village", "suburb", "county"):
        return float(text not in COUNTRIES_AND_STATES)
    return 0.5


# --- Comparisons: "A or B?", "are both ...?"

_DEATH = frozenset("died die dies death".split())
_LATER = frozenset("later latest last younger youngest recently newer after".split())
_ORDER = _LATER | frozenset("first earlier earliest older oldest before".split())
# Words that say what is compared, not of what.
_GENERIC = frozenset(map(normalize, "same both type kind considered located".split()))
_ENOUGH = 0.6


def _compare(question: Question, docs: Sequence[Doc], pages: Sequence[Page]) -> list[Answer]:
    """Return both outcomes of a comparison, the likelier first; their scores add up to 1."""
    if question.wants == "choice":
        texts = tuple(question.choices)
        subjects = [_subject(normalize(name), pages) for name in texts]
    elif question.wants == "yesno":
        texts = ("no", "yes")
        named = [page for page in pages if any(map(question.holds, page.aliases))][:2]
        subjects = [*sorted(named, key=lambda page: question.norm.find(page.aliases[0]))]
    else:
        return []
    asked = set(question.parsed.lower)
    about = [page for page in subjects if page is not None]
    when = [date for page in about for date in _date(asked, page)] if asked & _ORDER else []
    titles = {s for page in about for s in keywords(page.title)}
    titles |= {s for name in question.choices for s in keywords(name)}
    wanted = {s: 1.0 for s in question.focus if s not in titles and s not in _GENERIC}
    held = [share(set(page.parsed.stems), wanted) if page else 0.0 for page in subjects]
    if len(when) == 2 and when[0] != when[1]:
        second = (when[1] < when[0]) != bool(asked & _LATER)
        winner, margin = int(second if question.choices else not second), 0.6
    elif question.choices:
        winner, margin = int(held[1] > held[0]), abs(held[1] - held[0]) / 2
    else:
        least = min(held, default=_ENOUGH)
        winner, margin = int(least >= _ENOUGH), abs(least - _ENOUGH) / 2
    labels = tuple(doc.label for doc, page in zip(docs, pages, strict=True) if page in about)
    labels = labels or (docs[0].label,)
    sure = 0.5 + margin / 2
    return [Answer(texts[winner], sure, labels), Answer(texts[1 - winner], 1 - sure, labels)]


def _subject(name: str, pages: Sequence[Page]) -> Page | None:
    """Return the passage about a name: the one so titled, else the first that holds it."""
    titled = [page for page in pages if name in page.aliases]
    part = [page for page in pages if any(f" {form} " in f" {name} " for form in page.aliases)]
    return next(iter([*titled, *part, *(page for page in pages if name in page.norms)]), None)


def _date(asked: Set[str], page: Page) -> list[tuple[int, int, int]]:
    """Return the second date of a passage where a death is asked for, else the first, if any."""
    return dates(page.parsed.text)[bool(asked & _DEATH) :][:1]
