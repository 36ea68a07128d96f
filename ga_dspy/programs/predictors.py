"""The predictors of GraphAnchor: which signatures a combination of settings asks for.

A signature that is given less also says less: its instruction names what its fields show.
"""

from __future__ import annotations

import re
from typing import Literal

import dspy

from ga_dspy.errors import GaDspyError
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
_THE_GRAPH_AS_WELL = ((", guided by the graph| the graph and", ""),)
_THE_PASSAGES_AS_WELL = (
    (r"the passages, guided by the (\w+)", r"the \1"),
    ("the wording of the passages", "the wording used there"),
    ("the passages do not hold the answer", "the answer is not there"),
    ("the passages refute (something the question takes for granted)", r"\1 is refuted there"),
)


class UnknownWording(GaDspyError):
    """An instruction lacks the words that are changed where its signature is given less."""

    def __init__(self, signature: type[dspy.Signature], words: str) -> None:
        super().__init__(
            f"the instruction {signature.instructions[:60]!r} says nothing like {words!r}; "
            "expected these words, which change with its fields; mend the pattern, or the words"
        )
        self.words = words


def signatures(
    fused: bool, index: IndexKind, answer_from: AnswerFrom
) -> dict[str, type[dspy.Signature]]:
    """The predictors of a combination of settings, by attribute name."""
    steps: dict[str, type[dspy.Signature]] = {}
    if index is None:
        steps["judge"] = without_graph(JudgeSufficiency)
    elif fused:
        steps["read"] = ReadAndJudge if index == "graph" else ReadNotesAndJudge
    else:
        steps["update"] = UpdateGraph if index == "graph" else UpdateNotes
        steps["judge"] = JudgeSufficiency if index == "graph" else on_notes(JudgeSufficiency)
    return {**steps, "answer": _answer(index, answer_from)}


def _answer(index: IndexKind, answer_from: AnswerFrom) -> type[dspy.Signature]:
    if index is None or answer_from == "passages":
        return without_graph(AnswerQuestion)
    answer = on_notes(AnswerQuestion) if index == "text" else AnswerQuestion
    return without_passages(answer) if answer_from == "graph" else answer


def without_graph(signature: type[dspy.Signature]) -> type[dspy.Signature]:
    """A signature that reads passages where no graph is kept or shown."""
    return _reworded(signature.delete("graph"), _THE_GRAPH_AS_WELL)


def on_notes(signature: type[dspy.Signature]) -> type[dspy.Signature]:
    """A signature that reads running notes in the graph's place."""
    position = list(signature.input_fields).index("graph")
    without = _reworded(signature.delete("graph"), (("the graph", "the notes"),))
    noted: type[dspy.Signature] = without.insert(
        position, "notes", dspy.InputField(desc=_NOTES), str
    )
    return noted


def without_passages(signature: type[dspy.Signature]) -> type[dspy.Signature]:
    """A signature that answers from the graph, or from notes, without the passages beside it."""
    reworded = _reworded(signature.delete("passages"), _THE_PASSAGES_AS_WELL)
    index = "notes" if "notes" in signature.input_fields else "graph"
    answer: type[dspy.Signature] = reworded.with_updated_fields(
        "verdict", desc=f"is the answer in the {index}?"
    )
    return answer


def _reworded(
    signature: type[dspy.Signature], changes: tuple[tuple[str, str], ...]
) -> type[dspy.Signature]:
    """The signature with each pattern of its instruction replaced; lines may break anywhere."""
    text = signature.instructions
    for words, others in changes:
        text, times = re.subn(words.replace(" ", r"\s+"), others, text)
        if not times:
            raise UnknownWording(signature, words)
    reworded: type[dspy.Signature] = signature.with_instructions(text)
    return reworded


def check_combination(index: IndexKind, answer_from: AnswerFrom, stop: Stop) -> None:
    """Refuse settings that contradict one another.

    Raises:
        InputError: An answer or a stop that needs an index which is not kept.
    """
    if index is None and answer_from == "graph":
        one_of("answer_from without an index", answer_from, ("both", "passages"))
    if index != "graph" and stop == "judge+path":
        one_of("stop without a graph", stop, ("judge",))
