"""`compare_facts=True`: choices and yes-or-no answers are checked in a second call."""

from __future__ import annotations

from typing import Any

import dspy
import pytest

from ga_dspy import GraphAnchor, Passage, VanillaRAG
from ga_dspy.errors import InputError
from ga_dspy.programs import ClosedBook
from ga_dspy.testing import Reply, given_fields, scripted_lm

QUESTION = "Which ship was built first, the Sable or the Otter?"
PASSAGES = [
    Passage(id="sable", title="Sable", text="The Sable is a ship that was built in 1958."),
    Passage(id="otter", title="Otter", text="The Otter is a ship that was built in 1922."),
]
FACTS = "The Sable was built in 1958 [1], while the Otter was built in 1922 [2]."
WRONG = {"links": FACTS, "answer": "the Sable", "verdict": "answered"}


def ask(*replies: Reply, question: str = QUESTION, **settings: Any) -> Any:
    lm = scripted_lm(replies)
    with dspy.context(lm=lm):
        program = VanillaRAG(lambda query, k: PASSAGES, compare_facts=True, **settings)
        found = program(question=question)
    found.prompts = lm.engine.prompts
    return found


def compared(answer: str) -> dict[str, str]:
    return {"comparison": "1922 is earlier than 1958.", "answer": answer}


def test_a_choice_is_decided_again_from_the_facts_alone() -> None:
    found = ask(WRONG, compared("the Otter"))
    assert (found.answer, found.cited, found.calls) == ("the Otter", ("sable", "otter"), 2)
    assert (found.supported, found.usage.keys()) == ("quoted", {"answer", "comparison"})
    assert given_fields(found.prompts[1]) == {
        "facts": "The Sable was built in 1958, while the Otter was built in 1922.",
        "question": QUESTION,
    }


def test_a_yes_or_no_is_decided_again() -> None:
    facts = {"links": FACTS, "answer": "Yes", "verdict": "answered"}
    question = "Were the Sable and the Otter built in the same year?"
    assert ask(facts, compared("no"), question=question).answer == "no"


@pytest.mark.parametrize("other", ["1922", "yes", "", "none", "the Heron"])
def test_a_comparison_that_names_no_option_of_the_question_is_ignored(other: str) -> None:
    assert ask(WRONG, compared(other)).answer == "the Sable"


@pytest.mark.parametrize("links", [FACTS, ""])
def test_only_answers_named_in_the_question_with_facts_are_compared(links: str) -> None:
    answer = "1922" if links else "the Sable"
    reply = {"links": links, "answer": answer, "verdict": "answered"}
    assert (ask(reply).answer, ask(reply).calls) == (answer, 1)


def test_a_failed_comparison_keeps_the_answer_and_is_reported() -> None:
    found = ask(WRONG, *["no fields at all"] * 9)
    assert found.answer == "the Sable" and "comparison" in found.failures[0]


def test_compare_facts_is_only_for_programs_whose_answer_states_facts() -> None:
    with pytest.raises(InputError, match="states no facts"):
        GraphAnchor(lambda query, k: PASSAGES, compare_facts=True, style="report")
    with pytest.raises(TypeError, match="compare_facts"):
        ClosedBook(lambda query, k: PASSAGES, compare_facts=True)


def test_compare_facts_can_be_switched_and_restricted_programs_keep_it() -> None:
    program = VanillaRAG(lambda query, k: PASSAGES)
    program.compare_facts = True
    assert [name for name, _ in program.named_predictors()] == ["answer", "comparison"]
    program.compare_facts = False
    assert [name for name, _ in program.named_predictors()] == ["answer"]
