"""Running notes: the sentences that bear on a question, each with its passage's number."""

from __future__ import annotations

from collections.abc import Sequence

from ga_dspy.lm.evidence import Doc
from ga_dspy.lm.question import Question
from ga_dspy.lm.relations import statements
from ga_dspy.lm.text import normalize, parse, sentences

MOST_NOTES = 16
_FRESH = 8
_PER_PASSAGE = 3


def notes(question: Question, docs: Sequence[Doc], so_far: str, most: int = _FRESH) -> str:
    """The notes so far with the best new sentences, at most `MOST_NOTES` lines.

    Each line reads `- sentence [n]`. A sentence is chosen by the question's words it holds, by
    its passage's subject standing in the question, and for being the first of its passage.
    """
    old = [line.strip() for line in so_far.splitlines() if line.strip() not in ("", "(empty)")]
    asked = f" {normalize(question.text)} "
    scored: list[tuple[float, int, int, str]] = []
    for place, doc in enumerate(docs):
        subject = statements(doc.title, doc.text).subject
        near = 1.0 if f" {normalize(subject)} " in asked else 0.0
        for at, sentence in enumerate(sentences(doc.text)):
            held = set(parse(sentence).stems) & set(question.keywords)
            score = near + len(held) + (0.7 if at == 0 else 0.0) - 0.2 * place - 0.1 * at
            about = "" if subject in sentence or not subject else f"{subject}: "
            scored.append((-score, place, at, f"- {about}{sentence} [{doc.label}]"))
    taken: dict[int, int] = {}
    fresh: list[tuple[int, int, str]] = []
    for _, place, at, line in sorted(scored):
        if taken.get(place, 0) < _PER_PASSAGE and line not in old and len(fresh) < most:
            taken[place] = taken.get(place, 0) + 1
            fresh.append((place, at, line))
    lines = [*old, *(line for _, _, line in sorted(fresh))]
    return "\n".join(lines[-MOST_NOTES:])
