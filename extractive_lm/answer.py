"""The answerer: a question and passages in, ranked answers out; no model, no memory.

Yes/no questions and "A or B" go by rules (`comparison`); everything else is the ranking of
candidate spans (`features`, `ranker`), shifted within bounds by the prompt's examples and an
earlier answer, and settled in favour of the span that agrees with its likely neighbours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from extractive_lm.comparison import choose, decide, options
from extractive_lm.features import describe
from extractive_lm.prompt import Answer, Demo, Doc
from extractive_lm.question import Question, analyse
from extractive_lm.ranker import Ranker, best_rows, expected_f1, shipped_ranker
from extractive_lm.spans import read_page
from extractive_lm.text import normalize, parse

DEMO_STRENGTH = 1.5
HINT_STRENGTH = 0.6
_MOST = 50
_SHAPES = ("digit", "capital", "lower", "length-1", "length-2", "length-3", "length-4")


def rank(
    question: str,
    docs: Sequence[Doc],
    *,
    hint: str = "",
    demos: Sequence[Demo] = (),
    shifts: Mapping[str, float] = MappingProxyType({}),
) -> list[Answer]:
    """The likeliest answers (at most 50 spans), best first; the same arguments, the same list.

    Args:
        question: The question as it is asked.
        docs: The passages.
        hint: An answer that an earlier step gave; it raises the candidates it names.
        demos: Questions with answers; similar ones raise candidates of the same shape.
        shifts: What to add to the score of a candidate, by its normalised text.

    Raises:
        ExtractiveError: where LightGBM or the stemmer is not installed.
    """
    asked, ranker = analyse(question), shipped_ranker()
    compared = _compare(asked, docs, ranker) if docs and asked.wants in ("yesno", "choice") else []
    found = describe(asked, docs, ranker.idf)
    if not found.norm:
        return compared
    scores = ranker.scores(found.values)
    rows = best_rows(found.norm, scores)
    prior, wanted = demo_prior(asked, demos), normalize(hint)
    scored = {
        norm: scores[row]
        + demo_shift(prior, found.text(row))
        + _hint_shift(wanted, norm)
        + shifts.get(norm, 0.0)
        for norm, row in rows.items()
    }
    spans: list[Answer] = []
    for norm, expected in expected_f1(scored, ranker.temperature)[:_MOST]:
        # The passage where the answer scores highest, then the one titled so, if there is one.
        first = found.passage[rows[norm]]
        titled = [i for i, page in enumerate(found.pages) if norm in page.aliases and i != first]
        labels = tuple(docs[i].label for i in (first, *titled[:1]))
        text, score = found.text(rows[norm]), ranker.probability(expected)
        spans.append(Answer(text, min(score, compared[-1].score) if compared else score, labels))
    return compared + spans


def _compare(question: Question, docs: Sequence[Doc], ranker: Ranker) -> list[Answer]:
    """Both outcomes of a comparison, the likelier first; their scores add up to 1."""
    pages = [read_page(d.title, d.text) for d in docs]
    yesno = question.wants == "yesno"
    verdict = (decide if yesno else choose)(question, pages, ranker.idf)
    texts = ("no", "yes") if yesno else options(question, pages)
    labels = tuple(docs[i].label for i in dict.fromkeys(verdict.passages)) or (docs[0].label,)
    sure = 0.5 + verdict.margin / 2
    return [
        Answer(texts[verdict.winner], sure, labels),
        Answer(texts[1 - verdict.winner], 1 - sure, labels),
    ]


# --- Shifts of the scores by what else the prompt holds


def demo_prior(question: Question, demos: Sequence[Demo]) -> dict[str, float]:
    """How strongly demonstrations of similar questions speak for each mark of an answer's form.

    Weights lie in [-1, 1] and are 0 for marks that similar demonstrations show half of the time;
    a single demonstration shows no share of anything.
    """
    pairs = [(_similarity(question, analyse(d.question)), shape(d.answer)) for d in demos]
    pairs = [(s, marks) for s, marks in pairs if s >= 0.3]
    total = sum(s for s, _ in pairs)
    trust = max(0.0, total - 1.0) / (total + 1.0)
    for_mark = {m: sum(s for s, marks in pairs if m in marks) for m in _SHAPES if pairs}
    return {mark: trust * (2 * weight / total - 1) for mark, weight in for_mark.items()}


def _similarity(question: Question, other: Question) -> float:
    """How alike two questions ask, in [0, 1]: wh-word, wanted type, wh-noun, words."""
    mine, theirs = set(question.keywords), set(other.keywords)
    words = len(mine & theirs) / max(len(mine | theirs), 1)
    same_noun = bool(question.noun) and question.noun == other.noun
    return (
        0.25 * (question.wh == other.wh)
        + 0.35 * (question.wants == other.wants)
        + 0.2 * same_noun
        + 0.2 * words
    )


def shape(text: str) -> frozenset[str]:
    """Plain marks of an answer's form: its length, its capitals, its digits.

    >>> sorted(shape("Red Lodge"))
    ['capital', 'length-2']
    """
    words = text.split()
    marks = {f"length-{min(len(words), 4)}"}
    if any(w[0].isdigit() for w in words):
        marks.add("digit")
    marks.add("capital" if any(w[0].isupper() for w in words) else "lower")
    return frozenset(marks)


def demo_shift(prior: dict[str, float], text: str) -> float:
    """The shift of one candidate by the demonstrations; at most `DEMO_STRENGTH` either way."""
    if not prior:
        return 0.0
    marks = shape(text)
    return DEMO_STRENGTH * sum(prior[m] for m in marks if m in prior) / len(marks)


def _hint_shift(wanted: str, norm: str) -> float:
    """The shift for a candidate that an earlier step named; half where the hint holds it."""
    if norm == wanted:
        return HINT_STRENGTH
    return HINT_STRENGTH / 2 if f" {norm} " in f" {wanted} " else 0.0


# --- Two notes compared


def better_notes(
    question: Question, old: Sequence[Doc], new: Sequence[Doc], demos: Sequence[Demo] = ()
) -> str:
    """Say "new" where those notes are worth more, else "old".

    Notes are worth the share of the question's words that they hold, and the ranker's score for
    the best answer in them.
    """

    def worth(docs: Sequence[Doc]) -> float:
        held = {stem for doc in docs for stem in parse(f"{doc.title} {doc.text}").stems}
        met = len(held & set(question.keywords)) / max(len(question.keywords), 1)
        ranked = rank(question.text, docs, demos=demos)
        return met + (ranked[0].score if ranked else 0.0)

    return "new" if worth(new) > worth(old) else "old"
