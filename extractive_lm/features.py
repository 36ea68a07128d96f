"""The ranker's features: one row of numbers for every candidate span of every passage.

Each function below describes one subject (a span, a passage, a sentence, a phrase) as numbers by
the names of `FEATURES`; `describe` brings them into the order that the weights were fitted for.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence, Set
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from extractive_lm.prompt import Doc
from extractive_lm.question import Question
from extractive_lm.spans import KINDS, Page, read_page
from extractive_lm.text import Idf, keywords, normalize, stem
from extractive_lm.words import (
    CONTINENTS,
    COUNTRIES,
    COUNTRIES_AND_STATES,
    FIRST_NAMES,
    RELATED,
    US_STATES,
    noun_type,
)

FEATURES = (
    # The candidate by itself.
    "kind", "words", "content_words", "capitals", "has_digit", "before", "after", "sentence",
    "place_in_sentence", "in_brackets", "joints", "first_name", "place_name", "noun_of_last",
    "noun_before", "noun_after", "type", "in_title", "comma_place",
    # Its passage.
    "passage_rank", "passage_passages", "passage_title_asked", "passage_title_overlap",
    "passage_coverage", "passage_focus_coverage", "passage_relation_coverage",
    "passage_names_asked", "passage_named_by", "passage_named_by_asked",
    "passage_names_an_asked", "passage_pair_coverage", "passage_hop", "passage_coverage_rank",
    # Its sentence.
    "sentence_coverage", "sentence_focus", "sentence_relation", "sentence_with_title",
    "sentence_has_noun", "sentence_rank", "sentence_pairs", "previous_focus",
    "sentence_related", "sentence_residual",
    # The words around it.
    "near_left", "near_right", "relation_left", "relation_right", "nearest", "residual_near",
    "overlap", "mean_idf", "max_idf",
    # Its phrase, over all the places where that stands.
    "in_question", "part_of_asked_name", "count", "passages_with", "is_title_of",
    "title_of_asked", "title_focus_coverage", "title_relation_coverage", "noun_in_definition",
    "definition_type", "ends_with_noun", "best_sentence_focus", "sum_sentence_focus",
    "best_near", "title_bridge", "place_fits", "type_fits", "noun_beside", "bridge",
    # The question.
    "wants", "wh", "question_words", "has_noun", "known_noun",
)  # fmt: skip
"""Names of all features, in the order of the columns."""

_TYPES = (
    "", "person", "place", "group", "work", "date", "year", "number", "nationality", "role",
)  # fmt: skip
_WANTS = ("thing", *_TYPES[1:], "choice", "yesno")
_WH = ("", "who", "whom", "whose", "what", "which", "when", "where", "how", "why")
_BEFORE = {
    word: code
    for code, words in enumerate(
        (
            "in at near on inside", "by", "of", "the", "a an", "and &", "is was are were be",
            ",", "(", "named called titled entitled as nicknamed dubbed", "from", "to",
            "with for", '" “', "starring featuring including like",
        ),
        start=2,
    )
    for word in words.split()
}  # fmt: skip
_JOINTS = frozenset("and in at on for to from with & ,".split())
_FITS = {
    ("date", "year"): 0.7, ("year", "date"): 0.4, ("work", "group"): 0.3, ("group", "work"): 0.3,
    ("place", "group"): 0.4, ("group", "place"): 0.3, ("nationality", "place"): 0.4,
    ("role", "person"): 0.6,
}  # fmt: skip
_KIN = 0.7
_DECAY = 0.8

Columns = dict[str, np.ndarray]


class Asked(NamedTuple):
    """A question's words with their weights, and which of them stand for relations.

    `relation` are keywords outside the question's names: what is asked about the names; `related`
    adds words that state the same relations. `names` are normalised.
    """

    weights: dict[str, float]
    focus: dict[str, float]
    relation: dict[str, float]
    related: dict[str, float]
    names: tuple[str, ...]


def weigh(question: Question, idf: Idf) -> Asked:
    """Weigh the words of a question by rarity, nearness to the wh-word, and role."""
    in_names = {s for name in question.names for s in keywords(name)}
    weights = {s: idf(s) for s in question.keywords}
    focus = {s: w * question.focus[s] for s, w in weights.items()}
    relation = {s: w for s, w in focus.items() if s not in in_names}
    related = dict(relation)
    for word, own in zip(question.parsed.lower, question.parsed.stems, strict=True):
        for other in RELATED.get(word, ()) if own in relation else ():
            kin = stem(other)
            related[kin] = max(related.get(kin, 0.0), _KIN * relation[own])
    names = tuple(filter(None, map(normalize, question.names)))
    return Asked(weights, focus, relation, related, names)


def share(stems: Set[str], weights: Mapping[str, float]) -> float:
    """The share of the total weight that the stems cover; 0 where there is nothing to cover."""
    total = sum(weights.values())
    return sum(w for s, w in weights.items() if s in stems) / total if total else 0.0


class Candidates(NamedTuple):
    """All candidates of a question: `values` (n, len(FEATURES)) float32 and, in parallel, where.

    `passage` and `span` say which span of which passage; `norm` its normalised string.
    """

    values: np.ndarray
    passage: list[int]
    span: list[int]
    norm: list[str]
    pages: list[Page]

    def text(self, row: int) -> str:
        """A candidate as its passage spells it."""
        page = self.pages[self.passage[row]]
        start, end, _ = page.spans[self.span[row]]
        return " ".join(page.parsed.slice(start, end).split())


def describe(question: Question, docs: Sequence[Doc], idf: Idf) -> Candidates:
    """Describe every candidate of the passages; passages stay in the order given."""
    pages = [read_page(d.title, d.text) for d in docs]
    passage = [i for i, page in enumerate(pages) for _ in page.spans]
    span = [i for page in pages for i in range(len(page.spans))]
    norm = [text for page in pages for text in page.norms]
    found = Candidates(np.zeros((0, len(FEATURES))), passage, span, norm, pages)
    if not norm:
        return found
    asked = weigh(question, idf)
    links = _link(question, pages, asked)
    blocks = [
        _static(doc.title, doc.text)
        | {name: np.full(len(page.spans), value) for name, value in links.rows[i].items()}
        | _sentence_columns(question, page, asked, links.residual[i])
        | _near_columns(page, asked, links.residual[i], idf)
        for i, (doc, page) in enumerate(zip(docs, pages, strict=True))
        if page.spans
    ]
    columns = {name: np.concatenate([block[name] for block in blocks]) for name in blocks[0]}
    _, rank = np.unique(-columns["sentence_coverage"], return_inverse=True)
    columns["sentence_rank"] = np.minimum(rank, 20)
    columns |= _phrase_columns(question, found, columns, links, asked)
    whole = {
        "wants": _WANTS.index(question.wants),
        "wh": _WH.index(question.wh),
        "question_words": len(question.keywords),
        "has_noun": bool(question.noun),
        "known_noun": question.wants not in ("thing", "choice", "yesno"),
    }
    columns |= {name: np.full(len(norm), value) for name, value in whole.items()}
    values = np.column_stack([columns[name] for name in FEATURES]).astype(np.float32)
    return found._replace(values=values)


def _columns(rows: Sequence[Mapping[str, float]]) -> Columns:
    return {name: np.array([row[name] for row in rows], dtype=float) for name in rows[0]}


# --- The candidate by itself


@lru_cache(maxsize=2048)
def _static(title: str, text: str) -> Columns:
    """What can be said of candidates from their passage alone; memoised by the passage's text."""
    page = read_page(title, text)
    parsed, lower = page.parsed, page.parsed.lower
    depths, depth = [], 0
    for word in lower:
        depth = max(0, depth + (word == "(") - (word == ")"))
        depths.append(depth)
    rows: list[dict[str, float]] = []
    for (start, end, kind), guessed in zip(page.spans, page.types, strict=True):
        words = lower[start:end]
        texts = [token.text for token in parsed.tokens[start:end]]
        first, last = parsed.bounds[parsed.sentence[start]]
        after = lower[end : end + 3]
        rows.append(
            {
                "kind": KINDS.index(kind),
                "words": len(words),
                "content_words": sum(map(bool, parsed.stems[start:end])),
                "capitals": sum(t[0].isupper() for t in texts) / len(texts),
                "has_digit": any(t[0].isdigit() for t in texts),
                "before": _context(lower[start - 1]) if start > first else 0,
                "after": _context(lower[end]) if end < last else 0,
                "sentence": parsed.sentence[start],
                "place_in_sentence": (start - first) / max(last - first, 1),
                "in_brackets": depths[start] > 0,
                "joints": sum(w in _JOINTS for w in words),
                "first_name": words[0] in FIRST_NAMES,
                "place_name": " ".join(words) in COUNTRIES_AND_STATES,
                "noun_of_last": _TYPES.index(noun_type(words[-1])),
                "noun_before": _first_type(lower[max(first, start - 4) : start][::-1]),
                "noun_after": _first_type(lower[end : min(last, end + 4)]),
                "type": _TYPES.index(guessed),
                "in_title": start < page.title_tokens,
                "comma_place": end < last
                and after[0] == ","
                and not COUNTRIES_AND_STATES.isdisjoint(
                    (" ".join(after[1:2]), " ".join(after[1:]))
                ),
            }
        )
    return _columns(rows)


def _context(word: str) -> int:
    if word in _BEFORE:
        return _BEFORE[word]
    return 18 if word.endswith("ed") else 19 if word[0].isalpha() else 1


def _first_type(words: Sequence[str]) -> int:
    return next((_TYPES.index(kind) for kind in map(noun_type, words) if kind), 0)


# --- How the passages of one question hang together: what each covers, which names which


class _Links(NamedTuple):
    """The features of each passage, and which passage a normalised title names.

    `titles` maps a title's forms to passage numbers; `asked` says whether the question names the
    passage; `residual` weighs the related words that the other asked passages leave open.
    """

    rows: list[dict[str, float]]
    titles: dict[str, int]
    asked: list[bool]
    residual: list[dict[str, float]]


def _link(question: Question, pages: Sequence[Page], asked: Asked) -> _Links:
    """Describe every passage against the question and against the other passages."""
    titles = {form: i for i, page in reversed(list(enumerate(pages))) for form in page.aliases}
    stems = [frozenset(filter(None, page.parsed.stems)) for page in pages]
    norms = [frozenset(page.norms) for page in pages]
    names = [{titles[norm] for norm in own & titles.keys()} - {i} for i, own in enumerate(norms)]
    is_asked = [any(map(question.holds, page.aliases)) for page in pages]
    coverage = [share(s, asked.weights) for s in stems]
    by_coverage = sorted(range(len(pages)), key=lambda i: (-coverage[i], i))
    # Links from the nearest passage whose title is asked about, at most 3.
    hops = [0 if hit else 3 for hit in is_asked]
    for step in (1, 2):
        for i, linked in enumerate(names):
            for j in linked:
                hops[i] = min(hops[i], max(step, hops[j] + 1))
                hops[j] = min(hops[j], max(step, hops[i] + 1))
    rows: list[dict[str, float]] = []
    residual: list[dict[str, float]] = []
    for i, page in enumerate(pages):
        named_by = {j for j, other in enumerate(names) if i in other}
        pairs = [share(stems[i] | stems[j], asked.weights) for j in names[i] | named_by]
        rows.append(
            {
                "passage_rank": i,
                "passage_passages": len(pages),
                "passage_title_asked": is_asked[i],
                "passage_title_overlap": share(set(keywords(page.title)), asked.weights),
                "passage_coverage": coverage[i],
                "passage_focus_coverage": share(stems[i], asked.focus),
                "passage_relation_coverage": share(stems[i], asked.relation),
                "passage_names_asked": sum(name in norms[i] for name in asked.names),
                "passage_named_by": len(named_by),
                "passage_named_by_asked": any(is_asked[j] for j in named_by),
                "passage_names_an_asked": any(is_asked[j] for j in names[i]),
                "passage_pair_coverage": max(pairs, default=0.0),
                "passage_hop": hops[i],
                "passage_coverage_rank": by_coverage.index(i),
            }
        )
        # What another passage with an asked title (or else the first) says is no longer open.
        others = [j for j, hit in enumerate(is_asked) if hit and j != i] or [0] * (i > 0)
        known = frozenset[str]().union(*(stems[j] for j in others))
        residual.append({s: w for s, w in asked.related.items() if s not in known})
    return _Links(rows, titles, is_asked, residual)


# --- The sentence, and the words around a candidate


def _sentence_columns(
    question: Question, page: Page, asked: Asked, residual: dict[str, float]
) -> Columns:
    parsed, noun = page.parsed, question.noun_stem
    title = set(parsed.stems[: page.title_tokens])
    pairs = set(pairwise(question.keywords))
    rows: list[dict[str, float]] = []
    for start, end in parsed.bounds:
        content = [s for s in parsed.stems[start:end] if s]
        stems = set(content)
        rows.append(
            {
                "sentence_coverage": share(stems, asked.weights),
                "sentence_focus": share(stems, asked.focus),
                "sentence_relation": share(stems, asked.relation),
                "sentence_with_title": share(stems | title, asked.weights),
                "sentence_has_noun": noun in stems,
                "sentence_pairs": len(pairs & set(pairwise(content))),
                "previous_focus": rows[-1]["sentence_focus"] if rows else 0.0,
                "sentence_related": share(stems, asked.related),
                "sentence_residual": share(stems, residual),
            }
        )
    sentence = [parsed.sentence[span.start] for span in page.spans]
    return {name: column[sentence] for name, column in _columns(rows).items()}


def _near_columns(page: Page, asked: Asked, residual: dict[str, float], idf: Idf) -> Columns:
    """How near each span stands to the question's words, and how rare its own words are."""
    parsed = page.parsed
    starts = np.array([span.start for span in page.spans])
    ends = np.array([span.end for span in page.spans])
    inside = ends < np.array([parsed.bounds[n][1] for n in parsed.sentence])[starts]

    def sides(weights: dict[str, float]) -> tuple[np.ndarray, np.ndarray]:
        left, right = _decayed([weights.get(s, 0.0) for s in parsed.stems], parsed.bounds)
        return left[starts], right[ends] * inside

    left, right = sides(asked.focus)
    related_left, related_right = sides(asked.related)
    rarity = [idf(s) for s in parsed.stems]

    def within(values: Sequence[float]) -> np.ndarray:
        sums = np.concatenate([[0], np.cumsum(values)])
        return np.asarray(sums[ends] - sums[starts])

    content = np.maximum(within([value > 0 for value in rarity]), 1)
    return {
        "near_left": left,
        "near_right": right,
        "relation_left": related_left,
        "relation_right": related_right,
        "nearest": np.maximum(left, right),
        "residual_near": np.maximum(*sides(residual)),
        "overlap": within([asked.focus.get(s, 0.0) > 0 for s in parsed.stems]) / content,
        "mean_idf": within(rarity) / content,
        "max_idf": np.array([max(rarity[span.start : span.end]) for span in page.spans]),
    }


def _decayed(
    weights: list[float], bounds: Sequence[tuple[int, int]]
) -> tuple[np.ndarray, np.ndarray]:
    """Weights of the same sentence left of each gap and right of it, fading with distance."""
    left, right = [0.0] * (len(weights) + 1), [0.0] * (len(weights) + 1)
    for start, end in bounds:
        carry = 0.0
        for i in range(start, end):
            left[i] = carry
            carry = (carry + weights[i]) * _DECAY
        carry = 0.0
        for i in range(end - 1, start - 1, -1):
            carry = (carry + weights[i]) * _DECAY
            right[i] = carry
    return np.array(left), np.array(right)


# --- The phrase, over all the places where it stands, and whether it fits what is asked


def _phrase_columns(
    question: Question, found: Candidates, near: Columns, links: _Links, asked: Asked
) -> Columns:
    passage, pages, noun = found.passage, found.pages, question.noun_stem
    focus, nearest = near["sentence_focus"].tolist(), near["nearest"].tolist()
    reach = (near["relation_left"] + near["relation_right"]).tolist()
    places: dict[str, list[int]] = defaultdict(list)
    for i, text in enumerate(found.norm):
        places[text].append(i)
    # How near each passage's title stands to asked words in a passage whose title is asked.
    bridges = [0.0] * len(pages)
    for form, to in links.titles.items():
        for i in places.get(form, ()):
            if to != passage[i] and links.asked[passage[i]]:
                bridges[to] = max(bridges[to], reach[i])
    persons = [page.aliases[0] for page in pages if page.subject_type == "person" and page.aliases]
    surnames = {name.rpartition(" ")[2] for name in persons}
    phrases: list[dict[str, float]] = []
    own: list[dict[str, float]] = [{}] * len(found.norm)
    phrase_of = np.zeros(len(found.norm), int)
    for text, where in places.items():
        titled, last = links.titles.get(text, -1), text.rpartition(" ")[2]
        row: Mapping[str, float] = links.rows[titled] if titled >= 0 else {}
        definition = pages[titled].definition if titled >= 0 else frozenset[str]()
        known = pages[titled].subject_type if titled >= 0 else ""
        phrase_of[where] = len(phrases)
        shared: dict[str, float] = {
            "in_question": question.holds(text),
            "part_of_asked_name": any(text in name or name in text for name in asked.names),
            "count": len(where),
            "passages_with": len({passage[i] for i in where}),
            "is_title_of": titled,
            "title_of_asked": titled >= 0 and links.asked[titled],
            "title_focus_coverage": row.get("passage_focus_coverage", -1.0),
            "title_relation_coverage": row.get("passage_relation_coverage", -1.0),
            "noun_in_definition": noun in definition if definition and noun else -1.0,
            "definition_type": _TYPES.index(known),
            "ends_with_noun": bool(noun) and stem(last) == noun,
            "best_sentence_focus": max(focus[i] for i in where),
            "sum_sentence_focus": sum(focus[i] for i in where),
            "best_near": max(nearest[i] for i in where),
            "title_bridge": bridges[titled] if titled >= 0 else -1.0,
            "place_fits": place_fits(question.noun, text),
        }
        phrases.append(shared)
        for i in where:
            page, span = pages[passage[i]], found.span[i]
            kind = known or page.types[span] or ("person" if last in surnames else "")
            own[i] = {
                "type_fits": fits(question.wants, kind),
                "noun_beside": _noun_beside(page, span, noun),
                "bridge": bridges[passage[i]],
            }
    columns = {name: column[phrase_of] for name, column in _columns(phrases).items()}
    return columns | _columns(own)


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
    match noun:
        case "country" | "countries" | "nation":
            return float(text in COUNTRIES)
        case "state" | "states":
            return 1.0 if text in US_STATES else 0.3 * (text not in COUNTRIES)
        case "continent":
            return float(text in CONTINENTS)
        case "city" | "cities" | "town" | "village" | "suburb" | "county" | "counties":
            return 0.0 if text in COUNTRIES_AND_STATES or text in CONTINENTS else 0.8
    return 0.5


def _noun_beside(page: Page, index: int, noun: str) -> float:
    """1 where the wh-noun stands within six words before the span, 0.7 four words after."""
    if not noun:
        return 0.0
    (start, end, _), stems = page.spans[index], page.parsed.stems
    if noun in stems[max(0, start - 6) : start]:
        return 1.0
    return 0.7 if noun in stems[end : end + 4] else 0.0
