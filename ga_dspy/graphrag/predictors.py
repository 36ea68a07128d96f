"""The predictors of GraphRAG: which signatures a combination of settings asks for."""

from __future__ import annotations

import re
from typing import Final, Literal

import dspy

from ga_dspy.programs.predictors import without_graph
from ga_dspy.signatures import AnswerFromPoints, AnswerQuestion, CollectPoints, QuestionEntities
from ga_dspy.signatures.community_answer import with_summaries
from ga_dspy.signatures.prompt import said

Mode = Literal["local", "global", "hybrid"]
Entities = Literal["dictionary", "lm"]
_BULLET: Final = re.compile(r"^\s*(?:[-*•–]|\d+[.)])\s+")
_MOST_NAMES: Final = 12


def signatures(
    mode: Mode, entities: Entities, *, graph: bool, summaries: bool
) -> dict[str, type[dspy.Signature]]:
    """The predictors of a combination of settings, by attribute name; the last is `answer`.

    Args:
        mode: What is read: what stands around the question's names, summaries, or both.
        entities: Who finds the names.
        graph: Whether the answer is shown facts or paths.
        summaries: Whether it is shown summaries beside them.
    """
    if mode == "global":
        return {"collect": CollectPoints, "answer": AnswerFromPoints}
    named = {"name": QuestionEntities} if entities == "lm" else {}
    answer = AnswerQuestion if graph else without_graph(AnswerQuestion).delete("candidate")
    if mode == "local":
        return {**named, "answer": answer}
    answer = with_summaries(answer) if summaries else answer
    return {**named, "collect": CollectPoints, "combine": AnswerFromPoints, "answer": answer}


def names_in(text: str, question: str) -> tuple[str, ...] | None:
    r"""The names that an LM wrote, one a line; None for none. The whole question is no name.

    >>> names_in("- Red Lodge\n- Montana", "Is Red Lodge in Montana?")
    ('Red Lodge', 'Montana')
    """
    lines = (said(_BULLET.sub("", line)) for line in said(text).splitlines())
    names = dict.fromkeys(line for line in lines if line and line != question)
    return tuple(names)[:_MOST_NAMES] or None
