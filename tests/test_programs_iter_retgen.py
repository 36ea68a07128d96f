"""Iter-RetGen's loop: answer, search with question and answer, answer again."""

from __future__ import annotations

from functools import partial

from scripted_run import ScriptedRun, labels, shown

from ga_dspy.passage import Passage
from ga_dspy.programs import IterRetGen

QUESTION = "Which river flows past the birthplace of Ines Marlow?"
MARLOW = Passage(id="marlow", title="Ines Marlow", text="Ines Marlow was born in Tavira.")
DOURO = Passage(id="douro", title="Douro", text="The Douro reaches the sea at Porto.")
TAVIRA = Passage(id="tavira", title="Tavira", text="The river Gilão flows through Tavira.")
CORPUS = {
    QUESTION: [MARLOW, DOURO],
    f"{QUESTION} Tavira": [TAVIRA, MARLOW],
    f"{QUESTION} Gilão": [TAVIRA, DOURO],
}


def answer(text: str, cited: str = "", verdict: str = "answered") -> dict[str, str]:
    return {"verdict": verdict, "links": f"[{cited}]", "answer": text}


FIRST, SECOND, THIRD = answer("Tavira", "1"), answer("Gilão", "3"), answer("Gilão", "3")

Run = partial(ScriptedRun, IterRetGen, CORPUS, QUESTION)


def test_the_first_query_is_the_question_and_later_ones_append_the_last_answer() -> None:
    run = Run([FIRST, SECOND, THIRD])
    assert run.queries == [QUESTION, f"{QUESTION} Tavira", f"{QUESTION} Gilão"]
    assert [step.query for step in run.steps] == run.queries
    assert [step.next_query for step in run.steps] == [*run.queries[1:], ""]


def test_each_round_reads_only_its_own_passages_under_their_first_labels() -> None:
    run = Run([FIRST, SECOND, THIRD])
    assert [labels(prompt) for prompt in run.prompts] == [
        ["[1] Ines Marlow", "[2] Douro"],
        ["[1] Ines Marlow", "[3] Tavira"],
        ["[2] Douro", "[3] Tavira"],
    ]
    assert [step.passage_ids for step in run.steps] == [("marlow", "douro"), ("tavira",), ()]
    assert [step.retrieved for step in run.steps] == [
        ("marlow", "douro"),
        ("tavira", "marlow"),
        ("tavira", "douro"),
    ]
    assert [passage.id for passage in run.prediction.passages] == ["marlow", "douro", "tavira"]


def test_a_round_takes_one_call_and_the_last_answer_counts() -> None:
    run = Run([FIRST, SECOND, THIRD])
    assert [step.candidate for step in run.steps] == ["Tavira", "Gilão", "Gilão"]
    assert (run.prediction.calls, run.prediction.answer) == (3, "Gilão")
    assert (run.prediction.supported, run.prediction.cited) == ("quoted", ("tavira",))
    assert set(run.prediction.usage) == {"answer"}


def test_an_unchanged_answer_ends_the_rounds() -> None:
    run = Run([FIRST, SECOND, THIRD], max_steps=9)
    assert len(run.steps) == 3
    assert run.steps[-1].rule == "the answer is one of an earlier round: the search ends"


def test_returning_to_an_earlier_answer_ends_the_rounds_with_that_answer() -> None:
    run = Run([FIRST, SECOND, FIRST], max_steps=9)
    assert run.steps[-1].rule == "the answer is one of an earlier round: the search ends"
    assert run.prediction.answer == "Tavira"


def test_an_empty_answer_ends_the_rounds_with_a_reason() -> None:
    run = Run([answer("", verdict="not in passages")])
    assert run.queries == [QUESTION]
    assert run.steps[0].rule == "no answer: the search ends"
    assert (run.prediction.answer, run.prediction.supported) == ("", None)


def test_the_rounds_end_after_max_steps() -> None:
    run = Run([FIRST, SECOND], max_steps=2)
    assert run.queries == [QUESTION, f"{QUESTION} Tavira"]
    assert (run.prediction.answer, run.prediction.calls) == ("Gilão", 2)


def test_a_round_cites_only_passages_it_was_shown() -> None:
    run = Run([FIRST, answer("Gilão", "2,3"), answer("Gilão", "1,3")])
    assert run.prediction.cited == ("tavira",)


def test_a_failed_round_keeps_the_answer_of_the_round_before() -> None:
    run = Run([FIRST, *["{"] * 4])
    assert "the answer step got no usable output" in run.steps[1].failure
    assert run.prediction.failures == (run.steps[1].failure,)
    assert (run.prediction.answer, run.prediction.cited) == ("Tavira", ("marlow",))
    assert run.prediction.calls == 1


def test_a_failed_first_round_is_followed_by_an_answer_from_its_passages() -> None:
    run = Run([*["{"] * 4, answer("Tavira", "1")])
    assert run.steps[0].failure and run.prediction.answer == "Tavira"
    assert labels(run.prompts[-1]) == ["[1] Ines Marlow", "[2] Douro"]


def test_a_search_without_results_still_gets_an_answer() -> None:
    run = Run([answer("Paris"), answer("Paris")])
    assert labels(run.prompts[1]) == [] and shown(run.prompts[1], "passages") == "(empty)"
    assert not run.prediction.supported


def test_abstaining_hides_the_guess_from_the_reader_but_not_from_the_next_query() -> None:
    guess = answer("Tavira", verdict="not in passages")
    run = Run([guess, answer("Minho", verdict="not in passages")], max_steps=2, abstain="quoted")
    assert run.queries[1] == f"{QUESTION} Tavira"
    assert (run.prediction.answer, run.prediction.guess) == ("", "Minho")


def test_the_prompts_mention_neither_a_graph_nor_a_candidate() -> None:
    run = Run([FIRST, SECOND, THIRD])
    assert not any("graph" in prompt or "candidate" in prompt for prompt in run.prompts)
