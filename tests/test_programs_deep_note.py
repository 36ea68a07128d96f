"""DeepNote's loop: a note, a query for its gaps, an update that is kept only if it is better."""

from __future__ import annotations

import re
from functools import partial

import dspy
import pytest
from scripted_run import ScriptedRun, shown

from ga_dspy.passage import Passage
from ga_dspy.programs import DeepNote
from ga_dspy.testing import asked_fields, scripted_lm

QUESTION = "Which river flows past the birthplace of Ines Marlow?"
MARLOW = Passage(id="marlow", title="Ines Marlow", text="Ines Marlow was born in Tavira.")
DOURO = Passage(id="douro", title="Douro", text="The Douro reaches the sea at Porto.")
TAVIRA = Passage(id="tavira", title="Tavira", text="The river Gilão flows through Tavira.")
PORTO = Passage(id="porto", title="Porto", text="Porto lies on the Douro.")
CORPUS = {
    QUESTION: [MARLOW, DOURO],
    "river in Tavira": [TAVIRA, MARLOW],
    "river in Porto": [PORTO, DOURO],
    "river": [DOURO, MARLOW],
}
BORN = "Ines Marlow was born in Tavira [1]."
FLOWS = "Ines Marlow was born in Tavira [1]; the Gilão flows through it [3]."
WORSE = "Porto lies on the Douro [3]."


def note(text: str) -> dict[str, str]:
    return {"notes": text}


def ask(query: str) -> dict[str, str]:
    return {"next_query": query}


NEW, OLD = {"better": "new"}, {"better": "old"}
ANSWER = {"verdict": "answered", "links": "[3]", "answer": "Gilão"}
GUESS = {"verdict": "not in passages", "links": "", "answer": "Douro"}
UNUSABLE = ("", "<think>Which river is it?") * 2
GROWS = [note(BORN), ask("river in Tavira"), note(FLOWS), NEW, ask(""), ANSWER]

Run = partial(ScriptedRun, DeepNote, CORPUS, QUESTION)


def asked(run: ScriptedRun) -> list[str]:
    """The first output field of each prompt, which tells the predictors apart."""
    return [asked_fields(prompt)[0] for prompt in run.prompts]


def test_the_steps_run_in_the_order_of_the_paper() -> None:
    run = Run(GROWS)
    assert run.queries == [QUESTION, "river in Tavira"]
    assert asked(run) == ["notes", "next_query", "notes", "better", "next_query", "links"]
    assert {name: used.calls for name, used in run.prediction.usage.items()} == {
        "update": 2, "ask": 2, "compare": 1, "answer": 1,
    }  # fmt: skip


def test_the_first_note_is_written_from_the_first_passages_without_comparison() -> None:
    run = Run(GROWS)
    assert shown(run.prompts[0], "notes_so_far") == "(empty)"
    assert shown(run.prompts[0], "passages").startswith("[1] Ines Marlow\n")
    assert "[2] Douro" in shown(run.prompts[0], "passages")
    assert run.steps[0].notes == BORN


def test_an_update_sees_the_note_and_only_new_passages_under_stable_labels() -> None:
    run = Run(GROWS)
    assert shown(run.prompts[2], "notes_so_far") == BORN
    assert shown(run.prompts[2], "query") == "river in Tavira"
    assert shown(run.prompts[2], "passages") == (
        "[3] Tavira\nThe river Gilão flows through Tavira."
    )
    assert run.steps[1].retrieved == ("tavira", "marlow")
    assert run.steps[1].passage_ids == ("tavira",)


def test_a_better_update_replaces_the_note() -> None:
    run = Run(GROWS)
    assert shown(run.prompts[3], "old_notes") == BORN
    assert shown(run.prompts[3], "new_notes") == FLOWS
    assert [step.notes for step in run.steps] == [BORN, FLOWS]
    assert run.prediction.notes == FLOWS


def test_a_worse_update_is_discarded_and_the_answer_sees_the_old_note() -> None:
    script = [note(BORN), ask("river in Porto"), note(WORSE), OLD, ask(""), GUESS]
    run = Run(script)
    assert run.steps[1].rule == "the updated note is no better: the note stays"
    assert shown(run.prompts[4], "notes") == shown(run.prompts[5], "notes") == BORN
    assert run.prediction.notes == BORN


def test_an_unchanged_note_is_no_better_and_is_not_compared() -> None:
    run = Run([note(BORN), ask("river in Porto"), note(BORN), ask(""), GUESS])
    assert asked(run).count("better") == 0
    assert run.steps[1].rule == "the updated note is no better: the note stays"


def test_a_note_is_never_replaced_by_an_empty_one() -> None:
    run = Run([note(BORN), ask("river in Porto"), note("None"), NEW, ask(""), GUESS])
    assert run.prediction.notes == BORN
    assert shown(run.prompts[3], "new_notes") == "(empty)"
    assert not any(re.search(r"\]\]\n(None|null)\b", prompt) for prompt in run.prompts)


def test_the_prompt_for_gaps_has_the_note_and_the_result_of_each_query() -> None:
    run = Run([note(BORN), ask("river in Porto"), note(WORSE), OLD, ask(""), GUESS])
    assert shown(run.prompts[1], "notes") == BORN
    assert shown(run.prompts[4], "tried") == (
        f"1. {QUESTION} => [1] Ines Marlow, [2] Douro; notes rewritten\n"
        "2. river in Porto => [3] Porto; notes no better"
    )


def test_the_search_ends_when_the_note_has_no_gap() -> None:
    run = Run(GROWS)
    assert (run.steps[-1].judgement, run.steps[-1].rule) == ("sufficient", "")
    assert run.prediction.calls == 6


def test_the_search_ends_after_patience_updates_without_improvement() -> None:
    script = [note(BORN), ask("river in Porto"), note(WORSE), OLD, GUESS]
    run = Run(script, patience=1)
    assert run.steps[-1].rule == (
        "the updated note is no better: the note stays; "
        "the patience (1) is used up: the search ends"
    )
    assert run.queries == [QUESTION, "river in Porto"]


def test_a_better_update_resets_the_patience() -> None:
    worse = [ask("river in Porto"), note(WORSE), OLD]
    better = [ask("river in Tavira"), note(FLOWS), NEW]
    run = Run([note(BORN), *worse, *better, ask("river"), ask("sea"), ANSWER], max_steps=9)
    ended = [step.rule.endswith("the search ends") for step in run.steps]
    assert ended == [False, False, False, False, True]


def test_a_round_without_new_passages_writes_no_note_and_uses_up_patience() -> None:
    run = Run([note(BORN), ask("river"), ask("sea"), GUESS])
    assert asked(run) == ["notes", "next_query", "next_query", "links"]
    assert run.steps[1].rule == "nothing new was found: the note stays"
    assert run.steps[2].rule.endswith("the patience (2) is used up: the search ends")


def test_a_repeated_query_ends_the_search() -> None:
    run = Run([note(BORN), ask(QUESTION.upper()), GUESS])
    assert run.queries == [QUESTION]
    assert run.steps[-1].rule == "the next query was tried before: the search ends"
    assert run.steps[-1].judgement == "insufficient"


def test_the_last_round_asks_for_no_next_query() -> None:
    run = Run([note(BORN), ask("river in Tavira"), note(FLOWS), NEW, ANSWER], max_steps=2)
    assert asked(run)[-2:] == ["better", "links"]
    assert (run.prediction.answer, len(run.steps)) == ("Gilão", 2)


def test_the_answer_sees_only_the_note_and_cites_passages() -> None:
    run = Run(GROWS)
    assert shown(run.prompts[-1], "notes") == FLOWS
    assert "passages ##" not in run.prompts[-1] and "[3] Tavira" not in run.prompts[-1]
    assert (run.prediction.answer, run.prediction.supported) == ("Gilão", "quoted")
    assert run.prediction.cited == ("tavira",)
    assert run.prediction.evidence[0].quote == "The river Gilão flows through Tavira."


def test_without_search_results_the_answer_sees_an_empty_note() -> None:
    lm = scripted_lm([GUESS])
    with dspy.context(lm=lm):
        prediction = DeepNote(lambda query, k: [])(question=QUESTION)
    assert prediction.steps[0].rule == "nothing was found: the search ends"
    assert shown(lm.engine.prompts[0], "notes") == "(empty)"
    assert (prediction.calls, prediction.supported) == (1, None)


def test_an_unusable_update_is_reported_and_the_previous_note_is_used() -> None:
    run = Run([note(BORN), ask("river in Tavira"), *UNUSABLE, GUESS])
    assert "the update step got no usable output" in run.steps[1].failure
    assert shown(run.prompts[-1], "notes") == BORN
    assert run.prediction.failures == (run.steps[1].failure,)


def test_an_unusable_query_keeps_the_note() -> None:
    run = Run([note(BORN), *UNUSABLE, GUESS])
    assert "the ask step got no usable output" in run.steps[0].failure
    assert run.steps[0].notes == run.prediction.notes == BORN


@pytest.mark.parametrize("word", ["graph", "candidate"])
def test_the_prompts_mention_neither_a_graph_nor_a_candidate(word: str) -> None:
    assert not any(word in prompt for prompt in Run(GROWS).prompts)
