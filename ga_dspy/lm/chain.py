"""A chain of thought: its next sentence, which is a search query as well."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ga_dspy.lm.evidence import Answer, Doc
from ga_dspy.lm.inputs import Inputs
from ga_dspy.lm.judge import enough, sought
from ga_dspy.lm.leads import query_for
from ga_dspy.lm.notes import in_full
from ga_dspy.lm.question import Question
from ga_dspy.lm.text import normalize, parse, sentences


def next_thought(
    question: Question, inputs: Inputs, ranked: Sequence[Answer], caution: float = 0.0
) -> str:
    """The sentence that leads on to the first missing link, else "So the answer is: ...".

    A link is missing by the judge's rules. It is told by a sentence of a passage that names it,
    or, where none does or that one was thought before, by what must be looked up. No thought
    comes twice; the empty string where nothing leads on and no answer is seen.
    """
    best = ranked[0] if ranked else Answer("", 0.0, (), "none")
    before = {normalize(thought) for thought in inputs.thoughts}
    unsure = best.score < enough(inputs, caution)
    for name, home in sought(question, inputs, ranked, unsure):
        for thought in _thoughts(question, name, home):
            if normalize(thought) not in before:
                return thought
    return f"So the answer is: {best.text}." if best.text else ""


def _thoughts(question: Question, name: str, home: Doc | None) -> Iterator[str]:
    """What to think about a name: the sentence that mentions it, then that it is not known."""
    if home is not None:
        yield from _mentioning(question, name, home)[:1]
    missing = query_for(name, question, home, ()).removeprefix(name).strip()
    yield f"{name} must be looked up: {missing}." if missing else f"{name} must be looked up."


def _mentioning(question: Question, name: str, home: Doc) -> list[str]:
    """The sentences of a passage that mention a name, the closest to the question first."""
    told = [s for s in sentences(home.text) if name in s and "answer is" not in s.lower()]
    told.sort(key=lambda sentence: -len(set(parse(sentence).stems) & set(question.keywords)))
    return [in_full(sentence, home) for sentence in told]
