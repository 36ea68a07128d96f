"""One row of numbers for every candidate span of every passage, for one question."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from ga_dspy.lm import links, static
from ga_dspy.lm.evidence import Doc
from ga_dspy.lm.idf import Idf
from ga_dspy.lm.lexicon import CONTINENTS, COUNTRIES, US_STATES
from ga_dspy.lm.links import Asked, Links, share
from ga_dspy.lm.question import Question, noun_stem
from ga_dspy.lm.static import PageStatics, page_statics
from ga_dspy.lm.text import Parsed, stem

if TYPE_CHECKING:
    import numpy as np

WANTS = (
    "thing", "person", "place", "group", "work", "date", "year", "number", "nationality", "role",
    "choice", "yesno",
)  # fmt: skip
_WH = ("", "who", "whom", "whose", "what", "which", "when", "where", "how", "why")
_LOCAL = (
    "near_left", "near_right", "relation_left", "relation_right", "nearest", "residual_near", "overlap",
    "mean_idf", "max_idf",
)  # fmt: skip
_SENTENCE = (
    "sentence_coverage", "sentence_focus", "sentence_relation", "sentence_with_title",
    "sentence_has_noun", "sentence_rank", "sentence_pairs", "previous_focus", "sentence_related", "sentence_residual",
)  # fmt: skip
_STRING = (
    "in_question", "part_of_asked_name", "count", "passages_with", "is_title_of", "title_of_asked",
    "title_focus_coverage", "title_relation_coverage", "noun_in_definition", "definition_type",
    "type_fits", "place_fits", "noun_beside", "ends_with_noun", "best_sentence_focus", "sum_sentence_focus",
    "bridge", "title_bridge", "best_near",
)  # fmt: skip
_QUESTION = ("wants", "wh", "question_words", "has_noun", "known_noun")

NAMES: tuple[str, ...] = (
    *static.NAMES, *(f"passage_{n}" for n in links.NAMES), *_SENTENCE, *_LOCAL, *_STRING,
    *_QUESTION,
)  # fmt: skip
"""Names of all features, in the order of the columns."""

_DECAY = 0.8
_FITS = {
    ("date", "year"): 0.7, ("year", "date"): 0.4, ("work", "group"): 0.3, ("group", "work"): 0.3,
    ("place", "group"): 0.4, ("group", "place"): 0.3, ("nationality", "place"): 0.4,
    ("role", "person"): 0.6,
}  # fmt: skip


class Candidates(NamedTuple):
    """All candidates of a question: `values` (n, len(NAMES)) float32 and, in parallel, where.

    `passage` and `span` say which span of which passage; `norm` its normalised string.
    """

    values: np.ndarray
    passage: list[int]
    span: list[int]
    norm: list[str]
    pages: list[PageStatics]


def describe(question: Question, docs: Sequence[Doc], idf: Idf) -> Candidates:
    """Describe every candidate of the passages; passages stay in the order given."""
    import numpy as np

    pages = [page_statics(d.title, d.text) for d in docs]
    asked = links.weigh(question, idf)
    linked = links.link(pages, asked)
    blocks, passage, span, norm = [], [], [], []
    for i, p in enumerate(pages):
        block = _passage_block(p, linked.rows[i], linked.residual[i], question, asked, idf)
        blocks.append(block)
        passage += [i] * len(p.rows)
        span += range(len(p.rows))
        norm += p.page.norms
    width = len(NAMES) - len(_STRING) - len(_QUESTION)
    near = np.vstack(blocks) if blocks else np.zeros((0, width))
    _rank_sentences(near)
    strings = _string_block(near, passage, span, norm, pages, linked, question, asked)
    asks = np.tile(np.asarray(_question_row(question)), (len(norm), 1))
    values = np.hstack([near, strings, asks]).astype(np.float32)
    return Candidates(values, passage, span, norm, pages)


def _question_row(question: Question) -> list[float]:
    return [
        WANTS.index(question.wants),
        _WH.index(question.wh),
        len(question.keywords),
        float(bool(question.noun)),
        float(question.wants not in ("thing", "choice", "yesno")),
    ]


def _passage_block(
    p: PageStatics,
    row: list[float],
    residual: dict[str, float],
    question: Question,
    asked: Asked,
    idf: Idf,
) -> np.ndarray:
    """Static, passage, sentence and local features of one passage's candidates."""
    import numpy as np

    parsed, spans = p.page.parsed, p.page.spans
    count = len(spans)
    starts = np.fromiter((s.start for s in spans), int, count)
    ends = np.fromiter((s.end for s in spans), int, count)
    sentence = np.asarray(parsed.sentence)[starts]
    rarity = np.asarray([idf(s) for s in parsed.stems])
    return np.hstack(
        [
            np.asarray(p.rows, dtype=float).reshape(count, len(static.NAMES)),
            np.tile(np.asarray(row), (count, 1)),
            np.asarray(_sentence_rows(p, residual, question, asked))[sentence],
            _local(parsed, asked, residual, starts, ends, rarity),
        ]
    )


def _sentence_rows(
    p: PageStatics, residual: dict[str, float], question: Question, asked: Asked
) -> list[list[float]]:
    parsed = p.page.parsed
    title = set(parsed.stems[: p.page.title_tokens])
    noun = noun_stem(question)
    pairs = set(zip(question.keywords, question.keywords[1:], strict=False))
    rows: list[list[float]] = []
    previous = 0.0
    for start, end in parsed.bounds:
        content = [s for s in parsed.stems[start:end] if s]
        stems = set(content)
        focus = share(stems, asked.focus)
        rows.append(
            [
                share(stems, asked.weights),
                focus,
                share(stems, asked.relation),
                share(stems | title, asked.weights),
                float(bool(noun) and noun in stems),
                0.0,
                float(len(pairs & set(zip(content, content[1:], strict=False)))),
                previous,
                share(stems, asked.related),
                share(stems, residual),
            ]
        )
        previous = focus
    return rows


def _local(
    parsed: Parsed,
    asked: Asked,
    residual: dict[str, float],
    starts: np.ndarray,
    ends: np.ndarray,
    rarity: np.ndarray,
) -> np.ndarray:
    """How near each span stands to the question's words, and how rare its own words are."""
    import numpy as np

    focus = np.asarray([asked.focus.get(s, 0.0) for s in parsed.stems])
    relation = np.asarray([asked.related.get(s, 0.0) for s in parsed.stems])
    left_open, right_open = _decayed(
        parsed, np.asarray([residual.get(s, 0.0) for s in parsed.stems])
    )
    stop = np.asarray([parsed.bounds[n][1] for n in parsed.sentence])[starts]
    open_end = ends < stop
    left, right = _decayed(parsed, focus)
    r_left, r_right = _decayed(parsed, relation)
    hit = np.concatenate([[0], np.cumsum(focus > 0)])
    content = np.concatenate([[0], np.cumsum(rarity > 0)])
    total = np.concatenate([[0.0], np.cumsum(rarity)])
    inside = np.maximum(content[ends] - content[starts], 1)
    peak = [float(rarity[a:b].max()) for a, b in zip(starts, ends, strict=True)]
    return np.column_stack(
        [
            left[starts],
            right[ends] * open_end,
            r_left[starts],
            r_right[ends] * open_end,
            np.maximum(left[starts], right[ends] * open_end),
            np.maximum(left_open[starts], right_open[ends] * open_end),
            (hit[ends] - hit[starts]) / inside,
            (total[ends] - total[starts]) / inside,
            np.asarray(peak),
        ]
    )


def _decayed(parsed: Parsed, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Weights of the same sentence left of each gap and right of it, fading with distance."""
    import numpy as np

    size = len(weight)
    left, right = np.zeros(size + 1), np.zeros(size + 1)
    for start, end in parsed.bounds:
        carry = 0.0
        for i in range(start, end):
            left[i] = carry
            carry = (carry + weight[i]) * _DECAY
        carry = 0.0
        right[end] = 0.0
        for i in range(end - 1, start - 1, -1):
            carry = (carry + weight[i]) * _DECAY
            right[i] = carry
    return left, right


def _column(name: str) -> int:
    return NAMES.index(name)


def _rank_sentences(near: np.ndarray) -> None:
    """Fill in how many distinct sentence coverages are higher, over all passages."""
    import numpy as np

    if len(near):
        focus = near[:, _column("sentence_coverage")]
        _, inverse = np.unique(-focus, return_inverse=True)
        near[:, _column("sentence_rank")] = np.minimum(inverse, 20)


def _string_block(
    near: np.ndarray,
    passage: list[int],
    span: list[int],
    norm: list[str],
    pages: list[PageStatics],
    linked: Links,
    question: Question,
    asked: Asked,
) -> np.ndarray:
    """Features shared by all places where one string stands, and its fit to what is asked."""
    import numpy as np

    focus = near[:, _column("sentence_focus")] if len(near) else near
    close = near[:, _column("nearest")] if len(near) else near
    places: dict[str, list[int]] = defaultdict(list)
    for i, text in enumerate(norm):
        places[text].append(i)
    rows = np.zeros((len(norm), len(_STRING)))
    noun = noun_stem(question)
    surnames = _surnames(pages)
    bridges = _bridges(near, passage, norm, linked)
    for text, where in places.items():
        shared = _shared(text, where, passage, linked, pages, question, asked, noun)
        shared[-5:] = [focus[where].max(), focus[where].sum(), 0.0, 0.0, close[where].max()]
        shared[-2] = bridges[linked.titles[text]] if text in linked.titles else -1.0
        rows[where] = shared
        title_type = pages[linked.titles[text]].subject_type if text in linked.titles else ""
        for i in where:
            rows[i, _STRING.index("bridge")] = bridges[passage[i]]
            p = pages[passage[i]]
            kind = title_type or p.types[span[i]]
            if not kind and text.rpartition(" ")[2] in surnames:
                kind = "person"
            rows[i, _STRING.index("type_fits")] = fits(question.wants, kind)
            rows[i, _STRING.index("place_fits")] = place_fits(question.noun, text)
            rows[i, _STRING.index("noun_beside")] = _noun_beside(p, span[i], noun)
    return rows


def _bridges(
    near: np.ndarray, passage: list[int], norm: list[str], linked: Links
) -> list[float]:
    """How near each passage's title stands to asked words in a passage whose title is asked."""
    bridges = [0.0] * len(linked.rows)
    left, right = _column("relation_left"), _column("relation_right")
    for i, text in enumerate(norm):
        to = linked.titles.get(text, -1)
        if to >= 0 and to != passage[i] and linked.asked_titles[passage[i]]:
            bridges[to] = max(bridges[to], float(near[i, left] + near[i, right]))
    return bridges


def _shared(
    text: str,
    where: list[int],
    passage: list[int],
    linked: Links,
    pages: list[PageStatics],
    question: Question,
    asked: Asked,
    noun: str,
) -> list[float]:
    titled = linked.titles.get(text, -1)
    row = linked.rows[titled] if titled >= 0 else []
    definition = pages[titled].definition if titled >= 0 else frozenset()
    kind = pages[titled].subject_type if titled >= 0 else ""
    return [
        float(f" {text} " in asked.norm),
        float(any(text in name or name in text for name in asked.names)),
        float(len(where)),
        float(len({passage[i] for i in where})),
        float(titled),
        float(titled >= 0 and linked.asked_titles[titled]),
        row[5] if row else -1.0,
        row[6] if row else -1.0,
        float(noun in definition) if definition and noun else -1.0,
        static.TYPES.index(kind) if kind in static.TYPES else 0,
        0.0,
        0.0,
        0.0,
        float(bool(noun) and stem(text.rpartition(" ")[2]) == noun),
        0.0,
        0.0,
        0.0,
        0.0,
        0.0,
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
