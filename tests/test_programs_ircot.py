"""IRCoT's loop: one thought per round, which is the next query, until one states the answer."""

from __future__ import annotations

import re
from functools import partial

import pytest
from scripted_run import ScriptedRun, labels, shown

from ga_dspy.passage import Passage
from ga_dspy.programs import IRCoT

QUESTION = "In which town was the director of The Salt Road born?"
FILM = Passage(id="film", title="The Salt Road", text="The Salt Road was directed by Ines Marlow.")
MARLOW = Passage(id="marlow", title="Ines Marlow", text="Ines Marlow was born in Tavira.")
PORTO = Passage(id="porto", title="Porto", text="Porto is a city on the river Douro.")
DIRECTED = "The Salt Road was directed by Ines Marlow."
BORN = "Ines Marlow was born in Tavira."
SO = "So the answer is: Tavira."
CORPUS = {QUESTION: [FILM, PORTO], DIRECTED: [MARLOW, FILM], BORN: [MARLOW, FILM]}
ANSWER = {"verdict": "answered", "links": "[3]", "answer": "Tavira"}


def thought(text: str) -> dict[str, str]:
    return {"thought": text}


Run = partial(ScriptedRun, IRCoT, CORPUS, QUESTION)


def test_the_first_query_is_the_question_and_later_ones_are_the_thoughts() -> None:
    run = Run([thought(DIRECTED), thought(BORN), thought(SO), ANSWER])
    assert run.queries == [QUESTION, DIRECTED, BORN]
    assert [step.query for step in run.steps] == run.queries


def test_each_thought_sees_all_passages_so_far_under_stable_labels() -> None:
    run = Run([thought(DIRECTED), thought(BORN), thought(SO), ANSWER])
    first = ["[1] The Salt Road", "[2] Porto"]
    assert labels(run.prompts[0]) == first
    assert all(labels(prompt) == [*first, "[3] Ines Marlow"] for prompt in run.prompts[1:])
    assert [step.passage_ids for step in run.steps] == [("film", "porto"), ("marlow",), ()]
    assert run.steps[1].retrieved == ("marlow", "film")


def test_each_thought_sees_the_earlier_thoughts_one_per_line() -> None:
    run = Run([thought(DIRECTED), thought(BORN), thought(SO), ANSWER])
    told = [shown(prompt, "thoughts") for prompt in run.prompts[:3]]
    assert told == ["(empty)", DIRECTED, f"{DIRECTED}\n{BORN}"]
    assert [step.reasoning for step in run.steps] == [DIRECTED, BORN, SO]
    assert run.prediction.notes == f"{DIRECTED}\n{BORN}\n{SO}"


def test_a_multi_line_thought_becomes_one_line_of_the_chain() -> None:
    run = Run([thought("The Salt Road was\n  directed by Ines Marlow."), thought(SO), ANSWER])
    assert run.queries[1] == DIRECTED and run.prediction.notes.splitlines()[0] == DIRECTED


def test_the_search_ends_when_a_thought_states_the_answer() -> None:
    run = Run([thought(DIRECTED), thought(SO), ANSWER])
    last = run.steps[-1]
    assert (last.judgement, last.candidate, last.next_query) == ("sufficient", "Tavira", "")
    assert run.prediction.calls == 3
    assert (run.prediction.answer, run.prediction.supported) == ("Tavira", "quoted")
    assert run.prediction.cited == ("marlow",)


@pytest.mark.parametrize(
    ("text", "candidate"),
    [
        ("She was born there, so the answer is Tavira.", "Tavira"),
        ("Therefore, the final answer is: Tavira", "Tavira"),
        ("The answer is: Tavira.", "Tavira"),
        ("So the answer is: None.", ""),
    ],
)
def test_a_conclusion_in_any_wording_ends_the_search(text: str, candidate: str) -> None:
    run = Run([thought(text), ANSWER])
    assert [(s.judgement, s.candidate) for s in run.steps] == [("sufficient", candidate)]
    assert run.prediction.calls == 2


def test_a_thought_that_rules_out_an_answer_does_not_end_the_search() -> None:
    missing = "The answer is not stated: where was Ines Marlow born?"
    run = Run([thought(missing), thought(SO), ANSWER])
    assert run.queries == [QUESTION, missing]


@pytest.mark.parametrize("repeat", [DIRECTED, DIRECTED.upper(), QUESTION])
def test_a_thought_that_repeats_an_earlier_one_ends_the_search(repeat: str) -> None:
    run = Run([thought(DIRECTED), thought(repeat), ANSWER])
    assert run.queries == [QUESTION, DIRECTED]
    assert run.steps[-1].rule == "the thought repeats an earlier one: the search ends"
    assert (run.steps[-1].judgement, run.prediction.answer) == ("insufficient", "Tavira")


@pytest.mark.parametrize("nothing", ["", "None", "N/A"])
def test_an_empty_thought_ends_the_search_and_is_in_no_prompt(nothing: str) -> None:
    run = Run([thought(DIRECTED), thought(nothing), ANSWER])
    assert run.steps[-1].rule == "no thought: the search ends"
    assert run.prediction.notes == DIRECTED
    assert not any(re.search(r"\]\]\n(None|N/A|null)\b", prompt) for prompt in run.prompts)


def test_the_search_ends_after_max_steps_and_the_answer_sees_every_passage() -> None:
    run = Run([thought(DIRECTED), thought(BORN), ANSWER], max_steps=2)
    assert (run.queries, run.prediction.calls) == ([QUESTION, DIRECTED], 3)
    assert len(labels(run.prompts[-1])) == 3


def test_a_round_without_new_passages_still_asks_for_a_thought() -> None:
    run = Run([thought("Who made it?"), thought(SO), {**ANSWER, "cited": ""}])
    assert [step.passage_ids for step in run.steps] == [("film", "porto"), ()]
    assert run.prediction.calls == 3 and not run.prediction.supported


def test_an_unusable_thought_is_reported_and_the_question_still_answered() -> None:
    run = Run([thought(DIRECTED), *["", "<think>Where was she born?"] * 2, ANSWER])
    assert run.queries == [QUESTION, DIRECTED]
    assert "the think step got no usable output" in run.steps[-1].failure
    assert run.prediction.failures == (run.steps[-1].failure,)
    assert run.steps[-1].notes == run.prediction.notes == DIRECTED
    assert (run.prediction.answer, run.prediction.calls) == ("Tavira", 2)


def test_the_prompts_neither_mention_nor_show_a_graph() -> None:
    run = Run([thought(DIRECTED), thought(SO), ANSWER])
    assert not any("graph" in prompt for prompt in run.prompts)
    assert not run.prediction.graph.entities
