"""Bounded shifts of the ranker's scores by what else the prompt holds: demos, graph, hint."""

from __future__ import annotations

from collections.abc import Sequence

from ga_dspy.lm.evidence import Demo, Fact
from ga_dspy.lm.links import share
from ga_dspy.lm.question import Question, analyse
from ga_dspy.lm.text import keywords, normalize

DEMO_STRENGTH = 1.5
FACT_STRENGTH = 0.5
HINT_STRENGTH = 0.6


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


def similarity(question: Question, other: Question) -> float:
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


def demo_prior(question: Question, demos: Sequence[Demo]) -> dict[str, float]:
    """How strongly demonstrations of similar questions speak for each mark of an answer's form.

    Weights lie in [-1, 1] and are 0 for marks that similar demonstrations show half of the time.
    """
    pairs = [(similarity(question, analyse(d.question)), shape(d.answer)) for d in demos]
    pairs = [(s, marks) for s, marks in pairs if s >= 0.3 and marks]
    total = sum(s for s, _ in pairs)
    marks = sorted({m for _, shown in pairs for m in shown} | _ALL) if pairs else []
    trust = total / (total + 1.0)
    return {m: trust * (2 * sum(s for s, shown in pairs if m in shown) / total - 1) for m in marks}


_ALL = frozenset({"digit", "capital", "lower", "length-1", "length-2", "length-3", "length-4"})


def demo_shift(prior: dict[str, float], text: str) -> float:
    """The shift of one candidate by the demonstrations; at most `DEMO_STRENGTH` either way."""
    if not prior:
        return 0.0
    marks = shape(text)
    return DEMO_STRENGTH * sum(prior[m] for m in marks if m in prior) / len(marks)


def fact_shifts(question: Question, facts: Sequence[Fact]) -> dict[str, float]:
    """Shifts by normalised entity: a relation whose other words are asked about speaks for it."""
    shifts: dict[str, float] = {}
    focus = dict(question.focus)
    asked = f" {normalize(question.text)} "
    for fact in facts:
        head, tail = normalize(fact.head), normalize(fact.tail)
        held = set(keywords(f"{fact.head} {fact.relation}"))
        gain = FACT_STRENGTH * min(1.0, 2 * share(held, focus))
        for ours, other in ((tail, head), (head, tail)):
            if ours and f" {ours} " not in asked and other:
                weight = 1.0 if ours == tail else 0.4
                shifts[ours] = max(shifts.get(ours, 0.0), weight * gain)
    return shifts


def hint_shift(hint: str, norm: str) -> float:
    """The shift for a candidate that an earlier step named; half where the hint holds it."""
    wanted = normalize(hint)
    if not wanted or not norm:
        return 0.0
    if norm == wanted:
        return HINT_STRENGTH
    return HINT_STRENGTH / 2 if f" {norm} " in f" {wanted} " else 0.0
