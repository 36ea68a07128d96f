"""Search-R1's loop: think and search in turns, in one growing transcript."""

from __future__ import annotations

import re
from functools import partial

import pytest
from scripted_run import ScriptedRun, shown

from ga_dspy.passage import Passage
from ga_dspy.programs import SearchR1
from ga_dspy.testing import Reply

QUESTION = "Which river flows past the birthplace of Ines Marlow?"
MARLOW = Passage(id="marlow", title="Ines Marlow", text="Ines Marlow was born in Tavira.")
DOURO = Passage(id="douro", title="Douro", text="The Douro reaches the sea at Porto.")
TAVIRA = Passage(id="tavira", title="Tavira", text="The river Gilão flows through Tavira.")
CORPUS = {
    QUESTION: [MARLOW, DOURO],
    "Ines Marlow": [MARLOW, DOURO],
    "river Tavira": [TAVIRA, MARLOW],
    "Douro": [DOURO, MARLOW],
}


def turn(thought: str, query: str = "", answer: str = "") -> dict[str, str]:
    return {"thought": thought, "query": query, "answer": answer}


WHERE = turn("Where was she born?", "Ines Marlow")
WHICH = turn("In Tavira. Which river is there?", "river Tavira")
DONE = turn("The Gilão flows through it.", answer="Gilão")
FORCED = {"verdict": "answered", "links": "[3]", "answer": "Gilão"}
TRANSCRIPT = """Thought: Where was she born?

Search: Ines Marlow

[1] Ines Marlow
Ines Marlow was born in Tavira.

[2] Douro
The Douro reaches the sea at Porto.

Thought: In Tavira. Which river is there?

Search: river Tavira

[3] Tavira
The river Gilão flows through Tavira.

Thought: The Gilão flows through it."""


def transcript(prompt: str) -> str:
    """The transcript in the last message of a prompt."""
    behind = prompt.rpartition("[[ ## transcript ## ]]\n")[2]
    return behind.partition("\n\n[[ ## searches_left")[0]


Run = partial(ScriptedRun, SearchR1, CORPUS, QUESTION)


def test_the_lm_chooses_every_query_including_the_first() -> None:
    run = Run([WHERE, WHICH, DONE])
    assert run.queries == ["Ines Marlow", "river Tavira"]
    assert [step.query for step in run.steps] == run.queries


def test_the_first_turn_has_an_empty_transcript() -> None:
    prompt = Run([WHERE, WHICH, DONE]).prompts[0]
    assert transcript(prompt) == "(empty)" and MARLOW.text not in prompt


def test_the_transcript_has_thoughts_searches_and_each_passage_once() -> None:
    run = Run([WHERE, WHICH, DONE])
    assert run.prediction.notes == TRANSCRIPT
    assert [step.notes for step in run.steps] == [
        TRANSCRIPT.partition("\n\nSearch: river Tavira")[0],
        TRANSCRIPT,
    ]


def test_the_transcript_is_append_only() -> None:
    prompts = Run([WHERE, WHICH, DONE]).prompts
    seen = [transcript(prompt) for prompt in prompts]
    assert all(TRANSCRIPT.startswith(text) for text in seen[1:])
    assert len(seen[1]) < len(seen[2])
    until = prompts[1].partition(seen[1])[0] + seen[1]
    assert prompts[2].startswith(until)


def test_each_turn_sees_how_many_searches_are_left() -> None:
    run = Run([WHERE, WHICH, DONE], max_steps=3)
    assert [shown(prompt, "searches_left") for prompt in run.prompts] == ["3", "2", "1"]


def test_n_searches_take_n_plus_one_calls_and_the_last_turn_answers() -> None:
    run = Run([WHERE, WHICH, DONE])
    prediction = run.prediction
    assert (prediction.calls, prediction.answer) == (3, "Gilão")
    assert (prediction.verdict, prediction.supported) == ("answered", "quoted")
    assert prediction.cited == ("tavira",)
    assert prediction.evidence[0].quote == "The river Gilão flows through Tavira."
    last = run.steps[-1]
    assert (last.judgement, last.candidate, last.rule) == ("sufficient", "Gilão", "")


def test_an_answer_without_a_search_is_unsupported() -> None:
    run = Run([turn("I remember.", answer="Gilão")])
    assert (run.queries, run.steps, run.prediction.calls) == ([], (), 1)
    assert (run.prediction.answer, run.prediction.supported) == ("Gilão", None)
    assert (run.prediction.verdict, run.prediction.cited) == ("not in passages", ())


def test_an_answer_that_no_passage_mentions_is_not_supported() -> None:
    run = Run([WHERE, turn("It must be this one.", answer="Minho")], abstain="quoted")
    assert (run.prediction.answer, run.prediction.guess) == ("", "Minho")
    assert not run.prediction.supported


def test_after_the_last_search_without_an_answer_the_answer_step_is_called() -> None:
    run = Run([WHERE, WHICH, turn("Which sea?", "sea"), FORCED], max_steps=2)
    assert run.queries == ["Ines Marlow", "river Tavira"]
    assert shown(run.prompts[2], "searches_left") == "0"
    assert all(f"[{n}]" in shown(run.prompts[-1], "passages") for n in (1, 2, 3))
    assert (run.prediction.answer, run.prediction.calls) == ("Gilão", 4)
    assert {name: used.calls for name, used in run.prediction.usage.items()} == {
        "think": 3, "answer": 1,
    }  # fmt: skip


def test_a_repeated_query_ends_the_search_and_the_answer_step_is_called() -> None:
    run = Run([WHERE, turn("Again?", "ines marlow?"), FORCED])
    assert run.queries == ["Ines Marlow"]
    assert run.steps[-1].rule == "the next query was tried before: the search ends"
    assert run.prediction.calls == 3


def test_an_answer_takes_precedence_over_a_query() -> None:
    run = Run([WHERE, turn("Found.", "river Tavira", "Tavira")])
    assert run.queries == ["Ines Marlow"]
    assert (run.prediction.answer, run.steps[-1].next_query) == ("Tavira", "")


def test_a_turn_with_neither_query_nor_answer_ends_the_search() -> None:
    run = Run([WHERE, turn("I am lost.", "None", "N/A"), FORCED])
    assert run.steps[-1].rule == "neither a query nor an answer: the search ends"
    assert not any(re.search(r"\]\]\n(None|N/A)\b", prompt) for prompt in run.prompts)
    assert run.prediction.answer == "Gilão"


def test_a_first_turn_with_neither_searches_the_question_and_records_why() -> None:
    run = Run([turn("Let me see."), turn("In Tavira.", answer="Tavira")])
    assert run.queries == [QUESTION]
    assert run.steps[0].rule == "neither a query nor an answer: the question was searched"


def test_an_unusable_first_turn_searches_the_question_and_is_reported() -> None:
    run = Run([*["{"] * 4, turn("In Tavira.", answer="Tavira")])
    assert run.queries == [QUESTION] and run.prediction.answer == "Tavira"
    assert "the think step got no usable output" in run.steps[0].rule
    assert run.prediction.calls == 1


def test_an_unusable_turn_is_reported_and_the_question_still_answered() -> None:
    run = Run([WHERE, *["{"] * 4, {**FORCED, "answer": "Tavira", "links": "[1]"}])
    assert "the think step got no usable output" in run.steps[0].failure
    assert run.prediction.failures == (run.steps[0].failure,)
    assert run.steps[0].notes == run.prediction.notes
    assert (run.prediction.answer, run.prediction.supported) == ("Tavira", "quoted")


def test_the_transcript_states_that_a_search_found_nothing_new() -> None:
    run = Run([WHERE, turn("And this?", "Douro"), DONE])
    assert "Search: Douro\n\n(nothing new)" in run.prediction.notes
    assert run.steps[1].retrieved == ("douro", "marlow") and run.steps[1].passage_ids == ()


@pytest.mark.parametrize("script", [[WHERE, WHICH, DONE], [WHERE, turn("?"), FORCED]])
def test_the_prompts_do_not_mention_a_graph(script: list[Reply]) -> None:
    assert not any("graph" in prompt for prompt in Run(script).prompts)
