"""The metric: the official F1, and feedback for each predictor on its own errors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dspy
import pytest

from ga_dspy import GraphAnchor, Passage
from ga_dspy.eval import f1
from ga_dspy.optimize import AnswerMetric
from ga_dspy.testing import Reply, scripted_lm

LODGE = Passage(id="lodge", title="Red Lodge", text="Red Lodge is the seat of Carbon County.")
CARBON = Passage(id="carbon", title="Carbon County", text="Carbon County lies in Montana.")
OTHER = Passage(id="other", title="Helena", text="Helena was founded in 1864.")
QUESTION = "In which state is the county whose seat is Red Lodge?"
GOLD = dspy.Example(
    id="q",
    question=QUESTION,
    answer="Montana",
    answers=("Montana",),
    gold_titles=("Red Lodge", "Carbon County"),
).with_inputs("question")
SEAT = "Relations:\n1. Red Lodge -> is the seat of -> Carbon County [1]"
STATE = "Relations:\n1. Carbon County -> lies in -> Montana [2]"


def search(query: str, k: int) -> list[Passage]:
    return {QUESTION: [LODGE], "Carbon County": [CARBON, LODGE]}.get(query, [OTHER])


def read(additions: str, judgement: str, query: str = "", candidate: str = "") -> dict[str, str]:
    return {
        "additions": additions,
        "reasoning": f"about {query}",
        "judgement": judgement,
        "candidate": candidate,
        "next_query": query,
    }


def answer(text: str, verdict: str = "answered", cited: str = "2") -> dict[str, str]:
    return {"verdict": verdict, "links": f"[{cited}]", "answer": text}


FIRST = read(SEAT, "insufficient", "Carbon County")
SECOND = read(STATE, "sufficient", candidate="Montana")
UNSURE = read(STATE, "exhausted", candidate="Montana")


class Run:
    """A scripted run of a program, and the metric's feedback on it."""

    def __init__(self, script: Sequence[Reply], gold: dspy.Example = GOLD, **settings: Any) -> None:
        self.program = GraphAnchor(search, **settings)
        self.metric = AnswerMetric.of(self.program)
        self.gold = gold
        with dspy.context(lm=scripted_lm(script), trace=[]):
            self.prediction = self.program(question=QUESTION)
            self.trace = list(dspy.settings.trace)

    def told(self, predictor: str, call: int = 0) -> str:
        own = getattr(self.program, predictor).signature
        calls = [entry for entry in self.trace if entry[0].signature.equals(own)]
        result = self.metric(self.gold, self.prediction, self.trace, predictor, [calls[call]])
        return str(result.feedback)


def test_a_correct_yes_or_no_is_not_criticised_for_missing_words() -> None:
    gold = GOLD.copy(answer="yes", answers=("yes",))
    run = Run([FIRST, UNSURE, answer("Yes")], gold=gold)
    assert run.prediction.supported == "quoted"
    assert "passages cited" not in run.told("answer")


def test_the_score_is_f1_by_the_official_rule() -> None:
    for said in ("Montana", "the state of Montana", "yes Montana", "Idaho", ""):
        result = AnswerMetric()(GOLD, dspy.Prediction(answer=said))
        assert float(result) == f1(said, "Montana")


def test_a_run_without_faults_gets_no_criticism() -> None:
    for run in (Run([FIRST, SECOND]), Run([FIRST, UNSURE, answer("Montana")])):
        told = [run.told("read", 0), run.told("read", 1)]
        told += [run.told("answer")] if "answer" in run.prediction.usage else []
        assert len(told) == run.prediction.calls
        assert set(told) == {
            "The question was answered with F1 1.00.\nNo fault of this step was found."
        }


def test_a_premature_sufficient_names_the_hop_and_the_missing_passage() -> None:
    run = Run([read(SEAT, "sufficient"), answer("Idaho", "not in passages", "")])
    assert 'Step 1: "sufficient" was said too early' in run.told("read")
    assert '"Carbon County" had not been read' in run.told("read")


def test_sufficient_said_too_late_is_feedback_for_the_hop_that_had_everything() -> None:
    script = [FIRST, read(STATE, "insufficient", "Helena"), read("", "sufficient"), answer("Idaho")]
    run = Run(script)
    assert 'Step 2: "sufficient" came too late' in run.told("read", 1)
    assert "too late" not in run.told("read", 0)


def test_a_query_that_missed_the_gold_passage_is_feedback_for_the_hop_that_wrote_it() -> None:
    script = [read(SEAT, "insufficient", "Helena"), read("", "insufficient"), answer("Idaho")]
    run = Run(script, max_steps=2)
    assert 'Step 1: the next query "Helena" did not bring the needed passage "Carbon County"' in (
        run.told("read", 0)
    )
    assert "was never retrieved; the last query was" in run.told("read", 1)


def test_an_unused_gold_passage_is_feedback_for_the_index_step() -> None:
    run = Run([FIRST, read("(empty)", "sufficient"), answer("Montana")])
    assert 'Step 2: the needed passage "Carbon County" was read, and nothing of it' in (
        run.told("read", 1)
    )


def test_ungrounded_items_are_feedback_for_the_index_step_of_their_hop() -> None:
    invented = read(f"{SEAT}\n2. Bob Smith -> rules -> Mars [1]", "insufficient", "Carbon County")
    run = Run([invented, UNSURE, answer("Montana")])
    assert '"Bob Smith" and "Mars" not found' in run.told("read", 0)
    assert "Bob Smith" not in run.told("read", 1) + run.told("answer")


@pytest.mark.parametrize(
    ("said", "gold", "fault"),
    [
        ("the great state of Montana", "Montana", "too long"),
        ("Carbon", "Carbon County", "too short"),
        ("Idaho", "Montana", 'stands in the passage "Carbon County" and was missed'),
        ("yes", "Montana", "expected a span of the passages"),
        ("Montana", "yes", "expected yes or no"),
        ("Idaho", "Wyoming", "do not hold the answer"),
    ],
)
def test_the_answer_step_gets_feedback_on_its_answer(said: str, gold: str, fault: str) -> None:
    example = GOLD.copy(answer=gold, answers=(gold,))
    run = Run([FIRST, UNSURE, answer(said)], example)
    assert fault in run.told("answer")
    assert fault not in run.told("read")


def test_the_last_judge_gets_feedback_on_a_candidate_that_became_the_answer() -> None:
    run = Run([FIRST, SECOND], GOLD.copy(answer="Wyoming", answers=("Wyoming",)))
    assert "answer" not in run.prediction.usage
    assert "do not hold the answer" in run.told("read", 1)
    assert "do not hold the answer" not in run.told("read", 0)


def test_a_separate_judge_gets_no_feedback_on_the_graph_and_the_index_none_on_the_search() -> None:
    judged = {k: v for k, v in FIRST.items() if k != "additions"}
    early = {**judged, "judgement": "sufficient", "next_query": ""}
    invented = {"additions": f"{SEAT}\n2. Bob Smith -> rules -> Mars [1]"}
    run = Run([invented, early, answer("Idaho")], as_published=True)
    assert "too early" in run.told("judge") and "Bob Smith" not in run.told("judge")
    assert "Bob Smith" in run.told("update") and "too early" not in run.told("update")


def test_a_failed_run_scores_0_and_the_feedback_says_so() -> None:
    for failed in (None, dspy.Prediction(), dspy.Prediction(answer=None)):
        result = AnswerMetric()(GOLD, failed)
        assert (result.score, result.feedback) == (0.0, "The program failed: there is no answer.")


def test_gold_answers_and_titles_are_in_no_prompt() -> None:
    lm = scripted_lm([FIRST, UNSURE, answer("Montana")])
    with dspy.context(lm=lm):
        GraphAnchor(search)(**GOLD.copy(answer="SECRET", gold_titles=("HIDDEN",)).inputs())
    assert len(lm.engine.prompts) == 3
    assert not any("SECRET" in prompt or "HIDDEN" in prompt for prompt in lm.engine.prompts)
