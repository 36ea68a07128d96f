"""One row of numbers for every candidate span of every passage, for one question."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from ga_dspy.lm import links, phrases, static
from ga_dspy.lm.evidence import Doc
from ga_dspy.lm.idf import Idf
from ga_dspy.lm.links import Asked, share
from ga_dspy.lm.question import Question, noun_stem
from ga_dspy.lm.static import PageStatics, page_statics
from ga_dspy.lm.text import Parsed

if TYPE_CHECKING:
    import numpy as np

WANTS = (
    "thing", "person", "place", "group", "work", "date", "year", "number", "nationality", "role",
    "choice", "yesno",
)  # fmt: skip
_WH = ("", "who", "whom", "whose", "what", "which", "when", "where", "how", "why")
_LOCAL = (
    "near_left", "near_right", "relation_left", "relation_right", "nearest", "residual_near",
    "overlap", "mean_idf", "max_idf",
)  # fmt: skip
_SENTENCE = (
    "sentence_coverage", "sentence_focus", "sentence_relation", "sentence_with_title",
    "sentence_has_noun", "sentence_rank", "sentence_pairs", "previous_focus",
    "sentence_related", "sentence_residual",
)  # fmt: skip
_QUESTION = ("wants", "wh", "question_words", "has_noun", "known_noun")

NAMES: tuple[str, ...] = (
    *static.NAMES, *(f"passage_{n}" for n in links.NAMES), *_SENTENCE, *_LOCAL, *phrases.NAMES,
    *_QUESTION,
)  # fmt: skip
"""Names of all features, in the order of the columns."""

_DECAY = 0.8


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
    blocks: list[np.ndarray] = []
    passage: list[int] = []
    span: list[int] = []
    norm: list[str] = []
    for i, p in enumerate(pages):
        block = _passage_block(p, linked.rows[i], linked.residual[i], question, asked, idf)
        blocks.append(block)
        passage += [i] * len(p.rows)
        span += range(len(p.rows))
        norm += p.page.norms
    width = len(NAMES) - len(phrases.NAMES) - len(_QUESTION)
    near = np.vstack(blocks) if blocks else np.zeros((0, width))
    _rank_sentences(near)
    where = phrases.Places(
        passage,
        span,
        norm,
        near[:, _column("sentence_focus")].tolist(),
        near[:, _column("nearest")].tolist(),
        (near[:, _column("relation_left")] + near[:, _column("relation_right")]).tolist(),
    )
    strings = np.asarray(phrases.describe(where, pages, linked, question, asked), dtype=float)
    asks = np.tile(np.asarray(_question_row(question)), (len(norm), 1))
    values = np.hstack([near, strings.reshape(len(norm), len(phrases.NAMES)), asks]).astype(
        np.float32
    )
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
    pairs = set(pairwise(question.keywords))
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
                float(len(pairs & set(pairwise(content)))),
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
    rare = rarity.tolist()
    peak = [max(rare[a:b]) for a, b in zip(starts.tolist(), ends.tolist(), strict=True)]
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

    weights: list[float] = weight.tolist()
    left, right = [0.0] * (len(weights) + 1), [0.0] * (len(weights) + 1)
    for start, end in parsed.bounds:
        carry = 0.0
        for i in range(start, end):
            left[i] = carry
            carry = (carry + weights[i]) * _DECAY
        carry = 0.0
        for i in range(end - 1, start - 1, -1):
            carry = (carry + weights[i]) * _DECAY
            right[i] = carry
    return np.asarray(left), np.asarray(right)


def _column(name: str) -> int:
    return NAMES.index(name)


def _rank_sentences(near: np.ndarray) -> None:
    """Fill in how many distinct sentence coverages are higher, over all passages."""
    import numpy as np

    if len(near):
        focus = near[:, _column("sentence_coverage")]
        _, inverse = np.unique(-focus, return_inverse=True)
        near[:, _column("sentence_rank")] = np.minimum(inverse, 20)
