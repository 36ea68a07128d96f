"""Traps: triples that do not answer the question, with honest chains beside them.

`evidence_traps.txt` holds them, invented throughout. Most were written before the checks, half of
those looked at while the checks were written; the thirty from "the hired is not" on came after.
The triples of the last 25 traps, from "a condition is not met" on, are not what the passage states.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

import dspy
import pytest

from ga_dspy import GraphAnchor
from ga_dspy.graph import KnowledgeGraph, fits_question
from ga_dspy.passage import Passage
from ga_dspy.testing import scripted_lm

_FILE: Final = Path(__file__).with_name("evidence_traps.txt")


class Case(NamedTuple):
    """A question with an answer, the lines that an LM adds, and the passages that it reads."""

    is_trap: bool
    name: str
    question: str
    answer: str
    lines: list[str]
    passages: list[Passage]


def cases(text: str) -> list[Case]:
    found = []
    for block in text.split("\n\n"):
        rows = [tuple(row.split(": ", 1)) for row in block.strip().split("\n")]
        (kind, name), (_, question), (_, answer), *rest = rows
        lines = [value for key, value in rest if key == "line"]
        texts = [value.split(": ", 1) for key, value in rest if key == "passage"]
        passages = [Passage(id=title, title=title, text=body) for title, body in texts]
        found.append(Case(kind == "trap", name, question, answer, lines, passages))
    return found


EVERY: Final = cases(_FILE.read_text("utf-8"))
TRAPS: Final = [case for case in EVERY if case.is_trap]
HONEST: Final = [case for case in EVERY if not case.is_trap]


def supported(case: Case) -> str | None:
    """Return `supported` for an answer that a scripted LM gives."""
    labels = "".join(f"[{n}]" for n in range(1, len(case.passages) + 1))
    lines = "\n".join(f"- {line} {labels}" for line in case.lines)
    read = {
        "additions": f"Relations:\n{lines}",
        "reasoning": "read",
        "judgement": "sufficient",
        "candidate": case.answer,
        "next_query": "",
    }
    answer = {"verdict": "answered", "links": f"[{labels}]", "answer": case.answer}
    lm = scripted_lm(lambda prompt: read if "additions" in prompt else {"links": "", **answer})
    with dspy.context(lm=lm):
        found = GraphAnchor(lambda query, k: case.passages)(question=case.question)
    assert not found.steps[0].dropped, "a trap of triples whose ends are not in the passage is none"
    assert found.answer == case.answer
    support: str | None = found.supported
    return support


def test_only_one_trap_is_wrongly_chained() -> None:
    assert len(TRAPS) == 126
    chained = [case.name for case in TRAPS if supported(case) == "chained"]
    assert chained == ["a namesake inn is not the origin of the name"]


@pytest.mark.parametrize("question", ["???", "  ", "++++"])
def test_a_question_without_words_fits_any_answer(question: str) -> None:
    assert fits_question(KnowledgeGraph(), question, "yes", ())


@pytest.mark.parametrize("case", HONEST, ids=lambda case: str(case.name))
def test_a_correct_chain_is_chained(case: Case) -> None:
    assert supported(case) == "chained"
