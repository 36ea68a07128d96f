"""Feedback for the predictors of each baseline: on their own errors, in fitting terms."""

from __future__ import annotations

from collections.abc import Sequence

import dspy
import pytest

from ga_dspy.optimize import AnswerMetric
from ga_dspy.passage import Passage
from ga_dspy.programs import (
    ClosedBook,
    DeepNote,
    GraphAnchor,
    IRCoT,
    IterRetGen,
    MultiHopProgram,
    SearchR1,
    VanillaRAG,
)
from ga_dspy.testing import Reply, scripted_lm

QUESTION = "Which river flows past the birthplace of Ines Marlow?"
MARLOW = Passage(id="marlow", title="Ines Marlow", text="Ines Marlow was born in Tavira.")
TAVIRA = Passage(id="tavira", title="Tavira", text="The river Gilão flows through Tavira.")
PORTO = Passage(id="porto", title="Porto", text="Porto lies on the Douro.")
GOLD = dspy.Example(
    id="q",
    question=QUESTION,
    answer="Gilão",
    answers=("Gilão",),
    gold_titles=("Ines Marlow", "Tavira"),
).with_inputs("question")
FINE = "No fault of this step was found."


def search(query: str, k: int) -> list[Passage]:
    if "Porto" in query:
        return [PORTO]
    return [TAVIRA, MARLOW] if "Tavira" in query or "Gilão" in query else [MARLOW]


class Run:
    """A scripted run of a program, and the metric's feedback on a predictor's call."""

    def __init__(self, program: MultiHopProgram, script: Sequence[Reply]) -> None:
        self.program = program
        with dspy.context(lm=scripted_lm(script), trace=[]):
            self.prediction = program(question=QUESTION)
            self.trace = list(dspy.settings.trace)

    def told(self, predictor: str, call: int = 0) -> str:
        own = getattr(self.program, predictor).signature
        calls = [entry for entry in self.trace if entry[0].signature.equals(own)]
        metric = AnswerMetric.of(self.program)
        said = metric(GOLD, self.prediction, self.trace, predictor, [calls[call]]).feedback
        return str(said).partition("\n")[2]


def answer(text: str, cited: str = "", verdict: str = "answered") -> dict[str, str]:
    return {"verdict": verdict, "links": f"[{cited}]", "answer": text}


def thought(text: str) -> dict[str, str]:
    return {"thought": text}


def turn(query: str = "", answered: str = "") -> dict[str, str]:
    return {"thought": "Let me think.", "query": query, "answer": answered}


def note(text: str) -> dict[str, str]:
    return {"notes": text}


def ask(query: str = "") -> dict[str, str]:
    return {"next_query": query}


NEW, OLD = {"better": "new"}, {"better": "old"}
RIGHT = answer("Gilão", "2")
BORN, FLOWS = "Born in Tavira [1].", "Born in Tavira [1], where the Gilão flows [2]."


@pytest.mark.parametrize(
    ("program", "script"),
    [
        (IRCoT, [thought("Born in Tavira."), thought("So the answer is: Gilão."), RIGHT]),
        (IterRetGen, [answer("Tavira", "1"), answer("Gilão", "2"), answer("Gilão", "2")]),
        (SearchR1, [turn("Ines Marlow"), turn("river Tavira"), turn(answered="Gilão")]),
        (DeepNote, [note(BORN), ask("Tavira"), note(FLOWS), NEW, ask(), RIGHT]),
        (ClosedBook, [{"answer": "Gilão"}]),
    ],
)
def test_the_last_calls_of_a_run_without_faults_get_no_criticism(
    program: type[MultiHopProgram], script: list[Reply]
) -> None:
    run = Run(program(search), script)
    assert {name: run.told(name, -1) for name, _ in run.program.named_predictors() if name in {
        *run.prediction.usage
    }} == dict.fromkeys(run.prediction.usage, FINE)  # fmt: skip


def test_a_thought_that_missed_the_gold_passage_gets_feedback() -> None:
    run = Run(IRCoT(search, max_steps=2), [thought("Porto?"), thought("Again Porto?"), RIGHT])
    assert run.told("think") == (
        'Step 1: the next query "Porto?" did not bring the needed passage "Tavira".'
    )
    assert "was never retrieved" in run.told("think", 1)


def test_a_thought_that_concludes_too_early_or_too_late_gets_feedback() -> None:
    early = Run(IRCoT(search), [thought("So the answer is: Porto."), answer("Porto")])
    assert early.told("think").startswith("Step 1: the search was ended too early: the needed")
    late = [thought("Born in Tavira."), thought("And so on."), thought("So the answer is: Gilão.")]
    assert "Step 2: the search was ended too late" in Run(IRCoT(search), [*late, RIGHT]).told(
        "think", 1
    )


def test_each_turn_gets_feedback_on_its_own_search() -> None:
    run = Run(SearchR1(search), [turn("Porto"), turn("Ines Marlow"), turn(answered="Tavira")])
    assert run.told("think", 1) == FINE
    assert "Step 2: the search was ended too early" in run.told("think", 2)


def test_only_a_turn_that_answers_gets_feedback_on_the_answer() -> None:
    script = [turn("Ines Marlow"), turn("Tavira"), turn(answered="the river Gilão")]
    run = Run(SearchR1(search), script)
    assert 'The answer "the river Gilão" is too long' in run.told("think", 2)
    assert "too long" not in run.told("think", 0) + run.told("think", 1)


def test_turns_are_matched_to_their_rounds_after_a_failed_first_one() -> None:
    run = Run(SearchR1(search), [*["{"] * 4, turn("Porto"), turn(answered="Tavira")])
    assert 'the next query "Porto" did not bring' in run.told("think", 0)
    assert "Step 2: the search was ended too early" in run.told("think", 1)


def test_only_the_last_of_several_answers_gets_feedback() -> None:
    script = [answer("Porto", "1"), answer("Tavira"), answer("the river Gilão", "2")]
    run = Run(IterRetGen(search, max_steps=3), script)
    assert run.told("answer", 0) == run.told("answer", 1) == FINE
    assert 'The answer "the river Gilão" is too long' in run.told("answer", 2)


def test_a_failed_round_is_feedback_for_a_program_of_one_predictor() -> None:
    run = Run(IterRetGen(search), [answer("Tavira", "1"), *["{"] * 4])
    assert "Step 2: the answer step got no usable output" in run.told("answer")


def test_a_query_from_the_gaps_gets_feedback_on_missed_passages() -> None:
    script = [note(BORN), ask("Porto"), note("Porto [2]."), OLD, ask(), answer("Douro")]
    run = Run(DeepNote(search), script)
    assert 'the next query "Porto" did not bring the needed passage "Tavira"' in run.told("ask", 0)
    assert "Step 2: the search was ended too early" in run.told("ask", 1)
    assert "Porto" not in run.told("update")


def test_a_text_index_gets_feedback_on_its_search_but_not_on_a_graph() -> None:
    judged = {"reasoning": "r", "judgement": "sufficient", "candidate": "", "next_query": ""}
    run = Run(GraphAnchor(search, index="text"), [{"notes": "None known.", **judged}, RIGHT])
    assert '"sufficient" was said too early' in run.told("read")
    assert "graph" not in run.told("read")


def test_a_closed_book_program_gets_no_feedback_on_passages() -> None:
    told = Run(ClosedBook(search), [{"answer": "Douro"}]).told("answer")
    assert told == 'The answer is "Gilão"; "Douro" was answered.'


@pytest.mark.parametrize("program", [VanillaRAG, IRCoT, IterRetGen, SearchR1, DeepNote, ClosedBook])
def test_feedback_on_a_program_without_a_graph_does_not_mention_one(
    program: type[MultiHopProgram],
) -> None:
    prediction = dspy.Prediction(answer="Douro", passages=(MARLOW,), steps=(), supported=False)
    assert "graph" not in AnswerMetric.of(program(search))(GOLD, prediction).feedback


def test_an_update_that_was_rejected_is_removed_from_the_trace() -> None:
    run = Run(DeepNote(search), [note(BORN), ask("Porto"), note("Porto."), OLD, ask(), RIGHT])
    assert [reply.notes for predictor, _, reply in run.trace if "notes" in reply] == [BORN]
