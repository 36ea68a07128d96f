"""A turn of thinking and searching: what is known, and either a query or the answer."""

from __future__ import annotations

from typing import NamedTuple

from ga_dspy.lm.evidence import Answer
from ga_dspy.lm.inputs import Inputs
from ga_dspy.lm.judge import Judgement
from ga_dspy.lm.question import Question
from ga_dspy.lm.text import normalize

UNKNOWN = "unknown"
"""The answer where one must be given and nothing was found that could be one."""


class Turn(NamedTuple):
    """One reply; of `query` and `answer` exactly one is empty."""

    thought: str
    query: str
    answer: str


def take_turn(question: Question, inputs: Inputs, judged: Judgement, best: Answer) -> Turn:
    """Search for the question first, then for what the judge misses; answer where nothing is.

    Where no search is left, the best answer has to do.
    """
    if inputs.searches_left == 0:
        return Turn(f"{judged.reasoning} No search is left.", "", best.text or UNKNOWN)
    if not inputs.docs and not inputs.tried:
        return Turn("Nothing was read yet.", question.text, "")
    query = judged.next_query or ("" if best.text else _names(question, inputs))
    return Turn(judged.reasoning, query, "" if query else best.text or UNKNOWN)


def _names(question: Question, inputs: Inputs) -> str:
    """The question's names, where they were not searched for yet."""
    query = " ".join(question.names)
    return "" if normalize(query) in {normalize(old) for old in inputs.tried} else query
