"""Demos: which ones are removed from a program, and why."""

from __future__ import annotations

import re
from typing import Any

import dspy
import pytest

from ga_dspy import GraphAnchor, Passage
from ga_dspy.optimize.demos import labelled, prompts, sanitise, shortened
from ga_dspy.programs import DeepNote, IRCoT, MultiHopProgram, SearchR1
from ga_dspy.signatures import GraphProposal
from ga_dspy.testing import scripted_lm

PASSAGES = "[1] Red Lodge\nRed Lodge is the seat of Carbon County."
SEAT = "Relations:\n1. Red Lodge -> is the seat of -> Carbon County [1]"
ROW = dspy.Example(id="1", question="Where?", answer="Montana", type="bridge").with_inputs(
    "question"
)
READ = {
    "question": "Where?",
    "search": "1 of 4",
    "tried": "1. Where? => [1]",
    "graph": "(empty)",
    "passages": PASSAGES,
    "additions": SEAT,
    "reasoning": "r",
    "judgement": "sufficient",
    "candidate": "Montana",
    "next_query": "",
    "augmented": True,
}
ANSWER = {
    "question": "Where?",
    "graph": "(empty)",
    "passages": PASSAGES,
    "links": "[1]",
    "verdict": "answered",
    "answer": "Montana",
    "augmented": True,
}


def search(query: str, k: int) -> list[Passage]:
    return [Passage(id="1", title="Red Lodge", text="Red Lodge is the seat of Carbon County.")]


def program_with(name: str, demo: dict[str, Any]) -> GraphAnchor:
    program = GraphAnchor(search)
    getattr(program, name).demos = [dspy.Example(**demo)]
    return program


@pytest.mark.parametrize(
    ("name", "demo", "reason"),
    [
        ("read", READ | {"additions": "Relations:\n1. Bob -> rules -> Mars [1]"}, "Bob"),
        ("read", READ | {"passages": "[2] Other\nNothing of it."}, "do not support"),
        ("read", READ | {"additions": "as far as I can see, all is known"}, "do not support"),
        ("read", READ | {"next_query": "Montana\nwhere?"}, "repeats the query 'where?'"),
        ("read", READ | {"candidate": "Idaho"}, "wrong candidate"),
        ("read", READ | {"passages": PASSAGES + " <TRUNCATED FOR BREVITY>"}, "cut off"),
        ("answer", ANSWER | {"links": "password: hunter2x"}, "it holds a password"),
        ("answer", ANSWER | {"answer": "somewhere in Montana"}, "not the right one"),
        ("answer", ANSWER | {"verdict": "not in passages"}, "do not hold"),
        ("answer", {"question": "Where?", "augmented": True, "answer": "Montana"}, "lacks"),
    ],
)
def test_a_demo_that_would_teach_a_fault_is_removed(
    name: str, demo: dict[str, Any], reason: str
) -> None:
    clean = sanitise(program_with(name, demo), [ROW], 0.8)
    assert not getattr(clean.program, name).demos
    assert len(clean.dropped) == 1 and reason in clean.dropped[0]


IN_LINES = "[1] Red Lodge\n  Red Lodge:\n  - a city\n  - the seat of Carbon County"
BESIDE = {"passages_read_before": PASSAGES, "passages": "[2] Other\nNothing of it."}


@pytest.mark.parametrize(
    ("name", "demo"),
    [
        ("read", READ),
        ("read", READ | {"passages": IN_LINES}),
        ("read", READ | BESIDE),
        ("read", READ | {"additions": "none"}),
        ("answer", ANSWER),
    ],
)
def test_a_faultless_demo_is_kept_with_a_text_or_a_typed_graph(
    name: str, demo: dict[str, Any]
) -> None:
    typed = {k: GraphProposal.model_validate(v) if k == "additions" else v for k, v in demo.items()}
    for given in (demo, typed):
        clean = sanitise(program_with(name, given), [ROW], 0.8)
        assert not clean.dropped and len(getattr(clean.program, name).demos) == 1


def test_a_demo_keeps_only_fields_of_its_predictor() -> None:
    clean = sanitise(
        program_with("answer", ANSWER | {"gold_titles": ("X",), "id": "1"}), [ROW], 0.8
    )
    assert set(clean.program.answer.demos[0].keys()) == set(ANSWER)


def test_a_shortened_demo_keeps_the_new_passages_that_it_cites() -> None:
    other = "[2] Butte\nButte is a town.\n\n[3] Helena\n  Parts:\n  [1] East"
    demo = dspy.Example(**{**READ, "passages": f"{PASSAGES}\n\n{other}", "reasoning": "Not [3]."})
    assert shortened(demo).passages == f"{PASSAGES}\n\n[3] Helena\n  Parts:\n  [1] East"
    assert shortened(demo).tried == READ["tried"]


def test_a_demo_without_citations_is_not_shortened() -> None:
    demo = dspy.Example(**{**ANSWER, "links": ""})
    assert shortened(demo) == demo


def test_rows_become_demos_of_the_answer_step_only() -> None:
    program = labelled(GraphAnchor(search), [ROW])
    assert program.read.demos == GraphAnchor(search).read.demos
    assert dict(program.answer.demos[0]) == {"question": "Where?", "answer": "Montana"}
    assert not sanitise(program, [ROW], 0.8).dropped
    lm = scripted_lm([dict.fromkeys(program.answer.signature.output_fields, "answered")])
    with dspy.context(lm=lm):
        program.answer(question="q", graph="g", passages="p")
    assert "Montana" in lm.engine.prompts[0] and "gold" not in lm.engine.prompts[0]


def test_prompts_are_rendered_as_instruction_and_numbered_demos() -> None:
    shown = prompts(program_with("answer", ANSWER))
    assert shown["answer"].instruction.startswith("Answer the question from the passages")
    assert "\n\n--- demo 1 ---\nquestion: Where?" in str(shown["answer"])
    assert len(shown["read"].demos) == 2 and "judgement: insufficient" in shown["read"].demos[0]


QUESTION = "Which river flows past the birthplace of Ines Marlow?"
RIVER = dspy.Example(id="q", question=QUESTION, answer="Gilão").with_inputs("question")
BORN, FLOWS = "Born in Tavira [1].", "Born in Tavira [1], where the Gilão flows [2]."
TRANSCRIPT = "Search: Tavira\n\n[1] Tavira\nThe river Gilão flows through Tavira."
TURN = {"question": QUESTION, "transcript": TRANSCRIPT, "searches_left": 3, "thought": "t"}
THINK = {"question": QUESTION, "passages": "[1] Tavira\nA town.", "thoughts": "Born in Tavira."}
GAPS = {"question": QUESTION, "tried": f"1. {QUESTION} => [1] Tavira", "notes": BORN}
UPDATE = {"question": QUESTION, "query": "q", "notes_so_far": BORN, "passages": "[2] Tavira\nA."}


@pytest.mark.parametrize(
    ("program", "name", "demo", "fault"),
    [
        (SearchR1, "think", {**TURN, "query": "Gilão", "answer": ""}, ""),
        (SearchR1, "think", {**TURN, "query": "", "answer": "Gilão"}, ""),
        (
            SearchR1,
            "think",
            {**TURN, "query": "", "answer": "The river Gilão flows"},
            "not the right one",
        ),
        (SearchR1, "think", {**TURN, "query": "", "answer": ""}, "does not hold the answer"),
        (SearchR1, "think", {**TURN, "query": "tavira", "answer": ""}, "repeats the query"),
        (
            SearchR1,
            "think",
            {**TURN, "transcript": "(empty)", "query": "", "answer": "Gilão"},
            "does not hold the answer",
        ),
        (IRCoT, "think", {**THINK, "thought": "The Gilão flows there."}, ""),
        (IRCoT, "think", {**THINK, "thought": "So the answer is: Gilão."}, ""),
        (IRCoT, "think", {**THINK, "thought": "So the answer is: Douro."}, "not the right one"),
        (DeepNote, "ask", {**GAPS, "next_query": "Tavira"}, ""),
        (DeepNote, "ask", {**GAPS, "next_query": QUESTION.lower()}, "repeats the query"),
        (DeepNote, "update", {**UPDATE, "notes": FLOWS}, ""),
    ],
)
def test_a_turn_that_repeats_a_query_or_answers_without_evidence_is_a_faulty_demo(
    program: type[MultiHopProgram], name: str, demo: dict[str, Any], fault: str
) -> None:
    made = program(search)
    getattr(made, name).demos = [dspy.Example(augmented=True, **demo)]
    clean = sanitise(made, [RIVER], 0.8)
    assert len(getattr(clean.program, name).demos) == (0 if fault else 1), clean.dropped
    assert re.search(re.escape(fault), " ".join(clean.dropped))


def test_a_bare_answer_is_not_a_demo_of_a_turn_that_can_search() -> None:
    program = labelled(SearchR1(search), [RIVER])
    assert (len(program.think.demos), len(program.answer.demos)) == (2, 2)
