"""The answerer's door: a question and passages in, ranked answers out; no model, no memory.

Yes/no questions and "A or B" go by rules (`comparison`); everything else is the ranking of
candidate spans (`features`, `ranker`), re-weighed within bounds by what else the prompt holds
(`steer`), and settled in favour of the span that agrees with its likely neighbours.
"""

from __future__ import annotations

from collections.abc import Sequence

from ga_dspy.lm import ranker as ranking
from ga_dspy.lm import steer
from ga_dspy.lm.comparison import Verdict, choose, decide, options
from ga_dspy.lm.evidence import Answer as Answer
from ga_dspy.lm.evidence import Demo as Demo
from ga_dspy.lm.evidence import Doc as Doc
from ga_dspy.lm.evidence import Fact as Fact
from ga_dspy.lm.features import Candidates, describe
from ga_dspy.lm.question import Question, analyse
from ga_dspy.lm.ranker import Ranker, best_by_string, expected_f1
from ga_dspy.lm.static import page_statics

MOST = 50
"""Spans that `rank` returns at most."""

NONE = Answer("", 0.0, (), "none")


def answer(
    question: str,
    docs: Sequence[Doc],
    *,
    facts: Sequence[Fact] = (),
    hint: str = "",
    demos: Sequence[Demo] = (),
) -> Answer:
    """The best answer that the passages hold; kind "none" where there is nothing to read.

    Raises:
        MissingExtra: where LightGBM or the stemmer is not installed.
    """
    ranked = rank(question, docs, facts=facts, hint=hint, demos=demos)
    return ranked[0] if ranked else NONE


def rank(
    question: str,
    docs: Sequence[Doc],
    *,
    facts: Sequence[Fact] = (),
    hint: str = "",
    demos: Sequence[Demo] = (),
) -> list[Answer]:
    """The likeliest answers (at most 50 spans), best first; the same arguments, the same list."""
    asked, ranker = analyse(question), ranking.shipped()
    compared = _compare(asked, docs, ranker) if asked.wants in ("yesno", "choice") else []
    spans = _rank_spans(asked, docs, ranker, facts, hint, demos)
    if not compared:
        return spans
    ceiling = compared[-1].score
    return compared + [a._replace(score=min(a.score, ceiling)) for a in spans]


def _compare(question: Question, docs: Sequence[Doc], ranker: Ranker) -> list[Answer]:
    """Both outcomes of a comparison, the likelier first; their scores add up to 1."""
    if not docs:
        return []
    pages = [page_statics(d.title, d.text) for d in docs]
    yesno = question.wants == "yesno"
    verdict: Verdict = (decide if yesno else choose)(question, pages, ranker.idf)
    texts = ("no", "yes") if yesno else options(question, pages)
    labels = tuple(docs[i].label for i in dict.fromkeys(verdict.passages)) or (docs[0].label,)
    sure = 0.5 + verdict.margin / 2
    return [
        Answer(texts[verdict.winner], sure, labels, question.wants),
        Answer(texts[1 - verdict.winner], 1 - sure, labels, question.wants),
    ]


def _rank_spans(
    question: Question,
    docs: Sequence[Doc],
    ranker: Ranker,
    facts: Sequence[Fact],
    hint: str,
    demos: Sequence[Demo],
) -> list[Answer]:
    found = describe(question, docs, ranker.idf)
    if not found.norm:
        return []
    scores = ranker.scores(found.values)
    where = _best_places(found, scores.tolist())
    prior = steer.demo_prior(question, demos)
    shifts = steer.fact_shifts(question, facts)
    steered = [
        (
            norm,
            score
            + steer.demo_shift(prior, _text(found, where[norm]))
            + shifts.get(norm, 0.0)
            + steer.hint_shift(hint, norm),
        )
        for norm, score in best_by_string(found.norm, scores)
    ]
    steered.sort(key=lambda pair: (-pair[1], pair[0]))
    settled = expected_f1(steered, ranker.temperature)[:MOST]
    return [
        Answer(
            _text(found, where[norm]),
            ranker.probability(expected),
            _labels(found, norm, where[norm], docs),
            "span",
        )
        for norm, expected in settled
    ]


def _best_places(found: Candidates, scores: Sequence[float]) -> dict[str, int]:
    """The row of each normalised string that scores highest."""
    best: dict[str, int] = {}
    for i, norm in enumerate(found.norm):
        if norm not in best or scores[i] > scores[best[norm]]:
            best[norm] = i
    return best


def _text(found: Candidates, row: int) -> str:
    page = found.pages[found.passage[row]].page
    span = page.spans[found.span[row]]
    return " ".join(page.parsed.slice(span.start, span.end).split())


def _labels(found: Candidates, norm: str, row: int, docs: Sequence[Doc]) -> tuple[int, ...]:
    """The passage where the answer scores highest, then the one titled so, if there is one."""
    first = found.passage[row]
    titled = [i for i, p in enumerate(found.pages) if norm in p.alias and i != first]
    return tuple(docs[i].label for i in (first, *titled[:1]))
