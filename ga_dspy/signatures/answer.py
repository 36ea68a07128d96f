"""Answer: a short span from all passages and the graph, and what it rests on."""

from __future__ import annotations

from typing import Literal

import dspy

Verdict = Literal["answered", "not in passages", "premise refuted"]


class AnswerQuestion(dspy.Signature):
    """Answer the question from the passages, guided by the graph.

    The answer is the shortest span that answers the question exactly as it is asked: a name, a
    date, a number, "yes" or "no", with nothing around it. Prefer the wording of the passages. In
    "cited" give the numbers of the passages the answer rests on. If the passages do not hold the
    answer, say "not in passages", leave "cited" empty and give your best guess. If the passages
    refute something the question takes for granted, say "premise refuted" and let the answer
    state in one short sentence what is true instead.
    """

    question: str = dspy.InputField()
    graph: str = dspy.InputField(desc="entities and relations found, with passage numbers")
    passages: str = dspy.InputField(desc="all passages read, numbered")
    candidate: str = dspy.InputField(desc="an answer seen while reading, if any", default="")
    verdict: Verdict = dspy.OutputField(desc="do the passages hold the answer?")
    cited: str = dspy.OutputField(desc="passage numbers, comma-separated, e.g. 1, 4; or empty")
    answer: str = dspy.OutputField(desc="the short answer alone")
