"""Answers about the whole corpus: points from summaries of its parts, an answer from the points."""

from __future__ import annotations

import dspy

from ga_dspy.signatures.answer import Verdict


class CollectPoints(dspy.Signature):
    """Collect from the summaries what helps to answer the question.

    Each summary describes one part of a corpus and has a number. Write one point a line: what a
    summary states, the numbers of all summaries that state it in square brackets, and in
    parentheses how much it helps to answer the question, from 0 to 100, like this:
    "- Most bridges of the region date from the 1930s [2,5] (80)". Put down names and numbers as
    the summaries have them, and nothing that they do not state. If none of them helps, write
    nothing.
    """

    question: str = dspy.InputField()
    documents: str = dspy.InputField(desc="summaries of parts of the corpus, numbered")
    points: str = dspy.OutputField(desc="one point a line, with [summary numbers] and (0 to 100)")


class AnswerFromPoints(dspy.Signature):
    """Answer a question about a whole corpus from the notes taken on its parts.

    The notes are points from summaries, the most helpful first, each with the numbers of the
    summaries that state it. Where the question asks for one name, number or date, answer with
    that alone; where it asks for an overview, answer in a few sentences that put the points
    together, the most important first. In "cited" give the numbers of the summaries the answer
    rests on. If the notes do not hold the answer, say "not in passages", leave "cited" empty and
    give your best guess. If they refute something the question takes for granted, say "premise
    refuted" and let the answer state in one short sentence what is true instead.
    """

    question: str = dspy.InputField()
    notes: str = dspy.InputField(desc="points from summaries, best first, with their numbers")
    verdict: Verdict = dspy.OutputField(desc="do the notes hold the answer?")
    cited: str = dspy.OutputField(desc="summary numbers, comma-separated, e.g. 1, 4; or empty")
    answer: str = dspy.OutputField(desc="the answer alone")


def with_summaries(signature: type[dspy.Signature]) -> type[dspy.Signature]:
    """A signature that is shown summaries of the topics around, before its passages."""
    place = list(signature.input_fields).index("passages")
    told = f"{signature.instructions} The summaries tell what surrounds it; they are never cited."
    field = dspy.InputField(desc="what the corpus says around the question's names")
    shown: type[dspy.Signature] = signature.with_instructions(told).insert(
        place, "summaries", field, str
    )
    return shown
