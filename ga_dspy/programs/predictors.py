"""The predictors of GraphAnchor: which signatures a combination of settings asks for."""

from __future__ import annotations

from typing import Literal

import dspy

from ga_dspy.programs.base import one_of
from ga_dspy.signatures import (
    AnswerQuestion,
    JudgeSufficiency,
    ReadAndJudge,
    ReadNotesAndJudge,
    UpdateGraph,
    UpdateNotes,
)

IndexKind = Literal["graph", "text"] | None
AnswerFrom = Literal["both", "passages", "graph"]
Stop = Literal["judge", "judge+path"]
_NOTES = "the notes taken so far, with passage numbers"


def signatures(
    fused: bool, index: IndexKind, answer_from: AnswerFrom
) -> dict[str, type[dspy.Signature]]:
    """The predictors of a combination of settings, by attribute name."""
    steps: dict[str, type[dspy.Signature]] = {}
    answer: type[dspy.Signature] = AnswerQuestion
    if index is None:
        steps["judge"] = JudgeSufficiency.delete("graph")
        answer = answer.delete("graph")
    elif fused:
        steps["read"] = ReadAndJudge if index == "graph" else ReadNotesAndJudge
    else:
        steps["update"] = UpdateGraph if index == "graph" else UpdateNotes
        steps["judge"] = JudgeSufficiency if index == "graph" else _on_notes(JudgeSufficiency)
    if index == "text":
        answer = _on_notes(answer)
    if answer_from == "passages" and index is not None:
        answer = answer.delete("graph" if index == "graph" else "notes")
    if answer_from == "graph":
        answer = answer.delete("passages")
    return {**steps, "answer": answer}


def _on_notes(signature: type[dspy.Signature]) -> type[dspy.Signature]:
    position = list(signature.input_fields).index("graph")
    without = signature.delete("graph")
    noted: type[dspy.Signature] = without.insert(
        position, "notes", dspy.InputField(desc=_NOTES), str
    )
    return noted


def check_combination(index: IndexKind, answer_from: AnswerFrom, stop: Stop) -> None:
    """Refuse settings that contradict one another.

    Raises:
        InputError: An answer or a stop that needs an index which is not kept.
    """
    if index is None and answer_from == "graph":
        one_of("answer_from without an index", answer_from, ("both", "passages"))
    if index != "graph" and stop == "judge+path":
        one_of("stop without a graph", stop, ("judge",))
