"""Answers: their support, written answers with citations, custom answer steps."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import dspy
import pytest

from ga_dspy import GraphAnchor, Passage, VanillaRAG
from ga_dspy.errors import InputError
from ga_dspy.programs.evidence import Conclusion, check_citations
from ga_dspy.testing import Reply, scripted_lm

LODGE = Passage(id="lodge", title="Red Lodge", text="Red Lodge is the seat of Carbon County.")
CARBON = Passage(id="carbon", title="Carbon County", text="Carbon County lies in Montana.")
FAR = Passage(id="far", title="Helena", text="It is the capital of Idaho's neighbour.")
READ = {1: LODGE, 2: CARBON, 3: FAR}
QUESTION = "In which state is the county whose seat is Red Lodge?"
SURE = {
    "additions": "Relations:\n1. Red Lodge -> is the seat of -> Carbon County [1]\n"
    "2. Carbon County -> lies in -> Montana [2]",
    "reasoning": "All links hold.",
    "judgement": "sufficient",
    "candidate": "Montana",
    "next_query": "",
}
UNSURE = {**SURE, "judgement": "exhausted"}
AS_PUBLISHED = [
    {"additions": SURE["additions"]},
    {name: text for name, text in SURE.items() if name != "additions"},
]
ANSWER = {"links": "[2]", "verdict": "answered", "answer": "Montana"}


def search(query: str, k: int) -> list[Passage]:
    return [LODGE, CARBON, FAR]


def run(script: Sequence[Reply], question: str = QUESTION, **settings: Any) -> Any:
    lm = scripted_lm(script)
    with dspy.context(lm=lm):
        found = GraphAnchor(search, **settings)(question=question)
    found.prompts = lm.engine.prompts
    return found


def conclude(**reply: str) -> Conclusion:
    return Conclusion.from_reply(dspy.Prediction(**reply), READ)


# --- Support: chained, quoted, none


def test_an_answer_that_the_graph_connects_with_the_question_is_chained() -> None:
    found = run([UNSURE, ANSWER])
    assert found.supported == "chained"
    assert [link.tail for link in found.evidence] == ["Carbon County", "Montana"]


def test_an_answer_found_only_in_a_cited_passage_is_quoted() -> None:
    found = run([{**SURE, "additions": "none"}, ANSWER])
    assert found.supported == "quoted"
    assert found.evidence[0].quote == "Carbon County lies in Montana."


def test_a_title_alone_is_not_a_quote() -> None:
    found = run([{**SURE, "additions": "none"}, {**ANSWER, "links": "[3]", "answer": "Helena"}])
    assert found.supported is None


def test_a_wrong_citation_is_corrected_to_the_passage_with_the_answer() -> None:
    conclusion = conclude(answer="Montana", verdict="answered", cited="1")
    assert (conclusion.cited, conclusion.quoted) == ((2,), True)


@pytest.mark.parametrize("answer", ["no", "Yes", "No, they are not."])
def test_a_yes_or_no_that_cites_a_passage_is_quoted(answer: str) -> None:
    assert conclude(answer=answer, verdict="answered", cited="1").quoted
    assert not conclude(answer=answer, verdict="answered", cited="").quoted
    assert not conclude(answer=answer, verdict="not in passages", cited="1").quoted


def test_a_passage_unrelated_to_the_question_is_not_quoted() -> None:
    assert run([{**SURE, "additions": "none"}, ANSWER], "Who sang at dawn?").supported is None


@pytest.mark.parametrize(
    ("verdict", "expected"), [("", "answered"), ("yes!", "answered"), ("not in passages",) * 2]
)
def test_an_unknown_verdict_is_decided_by_the_passages(verdict: str, expected: str) -> None:
    assert conclude(answer="Montana", verdict=verdict, cited="2").verdict == expected


def test_a_guess_is_an_answer_that_nothing_supports() -> None:
    found = run([UNSURE, {**ANSWER, "verdict": "not in passages", "answer": "Idaho"}])
    assert (found.answer, found.guess, found.supported) == ("Idaho", "Idaho", None)


@pytest.mark.parametrize(
    ("asked", "additions", "answer"),
    [
        ("quoted", SURE["additions"], "Montana"),
        ("quoted", "none", "Montana"),
        ("chained", SURE["additions"], "Montana"),
        ("chained", "none", ""),
    ],
)
def test_abstain_requires_a_quote_or_a_chain(asked: str, additions: str, answer: str) -> None:
    assert run([{**UNSURE, "additions": additions}, ANSWER], abstain=asked).answer == answer


# --- The inputs of the answer step


def test_a_stated_and_connected_candidate_skips_the_answer_call() -> None:
    found = run([SURE])
    assert (found.answer, found.calls, found.supported) == ("Montana", 1, "chained")
    assert found.cited == ("lodge", "carbon")


@pytest.mark.parametrize(
    ("question", "candidate"),
    [
        ("When was the county of Red Lodge formed?", "Carbon County"),
        ("Is Red Lodge the seat of Carbon County?", "Carbon County"),
        ("Which is a state, Red Lodge or Montana?", "Carbon County"),
    ],
)
def test_a_candidate_of_the_wrong_kind_needs_an_answer_call(question: str, candidate: str) -> None:
    lm = scripted_lm([{**SURE, "candidate": candidate}, ANSWER])
    with dspy.context(lm=lm):
        found = GraphAnchor(search)(question=question)
    assert (found.answer, found.calls) == ("Montana", 2)


EMPTY = {**ANSWER, "verdict": "not in passages", "links": "", "answer": ""}


def test_an_answer_step_with_its_own_lm_is_always_called() -> None:
    small, big = scripted_lm([SURE]), scripted_lm([ANSWER])
    big.model = "big"
    program = GraphAnchor(search)
    program.answer.lm = big
    with dspy.context(lm=small):
        found = program(question=QUESTION)
    assert (found.answer, found.calls, len(big.engine.prompts)) == ("Montana", 2, 1)
    program.set_lm(again := scripted_lm([SURE]))
    assert program(question=QUESTION).calls == len(again.engine.prompts) == 1


@pytest.mark.parametrize("verdict", ["not in passages", "answered"])
def test_the_candidate_is_the_guess_if_the_answer_call_gives_none(verdict: str) -> None:
    unlinked = {**SURE, "additions": "none"}
    found = run([unlinked, {**EMPTY, "verdict": verdict}])
    assert (found.guess, found.verdict, found.supported) == ("Montana", "not in passages", None)
    assert run([unlinked, EMPTY], abstain="quoted").answer == ""


def test_a_refuted_premise_without_an_answer_does_not_fall_back_to_the_candidate() -> None:
    refuted = {**EMPTY, "verdict": "premise refuted"}
    assert run([UNSURE, refuted]).guess == ""
    assert run([*AS_PUBLISHED, refuted], as_published=True).guess == ""


@pytest.mark.parametrize("change", [{"additions": "none"}, {"candidate": "Idaho"}])
def test_a_candidate_without_a_chain_needs_an_answer_call(change: dict[str, str]) -> None:
    found = run([{**SURE, **change}, ANSWER])
    assert (found.answer, found.calls) == ("Montana", 2)


def test_the_answer_prompt_has_the_candidates_passages_and_titles_of_the_others() -> None:
    found = run([SURE, {**ANSWER, "answer": "It lies in Montana [2]."}], style="sentence")
    prompt = found.prompts[1]
    assert "[2] Carbon County\nCarbon County lies" in prompt
    assert "by title: [3] Helena" in prompt and "capital of Idaho" not in prompt
    assert found.left_out == ("far",)


def test_the_answer_prompt_has_every_passage_if_the_judge_is_not_satisfied() -> None:
    for judgement in ("insufficient", "exhausted"):
        found = run([{**SURE, "judgement": judgement}, ANSWER], max_steps=1)
        assert "capital of Idaho" in found.prompts[1] and found.left_out == ()


def test_the_answer_prompt_has_every_passage_if_the_candidate_has_no_chain() -> None:
    unlinked = {**SURE, "additions": "Relations:\n1. Carbon County -> lies in -> Montana [2]"}
    found = run([unlinked, ANSWER])
    assert "Carbon County lies" in found.prompts[1] and "capital of Idaho" in found.prompts[1]
    assert (found.answer, found.calls, found.left_out) == ("Montana", 2, ())


def test_as_published_always_asks_for_the_answer_with_every_passage() -> None:
    found = run([*AS_PUBLISHED, ANSWER], as_published=True)
    assert (found.answer, found.calls, found.left_out) == ("Montana", 3, ())
    assert "capital of Idaho" in found.prompts[2]


# --- Written answers

WRITTEN = (
    "Red Lodge is the seat of Carbon County [1]. That county lies in Montana [2]. "
    "It was founded in 1884 [2]."
)


def test_each_citation_of_a_written_answer_is_checked_against_its_passage() -> None:
    checked = list(check_citations(WRITTEN, READ))
    assert [(c.passage_id, c.holds) for c in checked] == [
        ("lodge", True), ("carbon", True), ("carbon", False),
    ]  # fmt: skip
    assert checked[1].claim == "That county lies in Montana."
    assert checked[1].quote == "Carbon County lies in Montana."


@pytest.mark.parametrize("style", ["sentence", "report"])
def test_a_written_answer_is_quoted_if_every_citation_is_correct(style: str) -> None:
    true = WRITTEN.rpartition(" It was")[0]
    found = run([SURE, {**ANSWER, "answer": true, "links": ""}], style=style)
    assert (found.answer, found.supported, found.cited) == (true, "quoted", ("lodge", "carbon"))
    assert [link.passage_id for link in found.evidence] == ["lodge", "carbon"]
    assert run([SURE, {**ANSWER, "answer": WRITTEN}], style=style).supported is None


def test_an_unknown_citation_number_is_an_incorrect_citation() -> None:
    (citation,) = check_citations("It lies in Montana [9].", READ)
    assert (citation.passage_id, citation.holds) == ("", False)


def test_each_style_has_its_own_instruction() -> None:
    span, sentence, report = (run([UNSURE, ANSWER], style=s).prompts[1]
                              for s in ("span", "sentence", "report"))  # fmt: skip
    assert (
        "shortest complete span" in span and "full sentences" in sentence and "paragraphs" in report
    )


# --- Custom answer steps


class Letter(dspy.Signature):
    """Answer in a letter."""

    question: str = dspy.InputField()
    passages: str = dspy.InputField()
    tone: str = dspy.OutputField()
    answer: str = dspy.OutputField()


def test_a_custom_signature_gives_the_answer_and_its_other_outputs() -> None:
    found = run([SURE, {"tone": "kind", "answer": "Montana"}], answer_with=Letter)
    assert (found.answer, found.tone, found.supported) == ("Montana", "kind", "chained")


@pytest.mark.parametrize("name", ["evidence", "graph", "passages", "steps", "tokens"])
def test_an_output_named_like_a_prediction_field_is_refused(name: str) -> None:
    own = dspy.Signature(f"question -> {name}, answer")
    refused = f"the answer step has the output {name}; expected other names than those"
    with pytest.raises(InputError, match=refused):
        GraphAnchor(search, answer_with=own)
    program = GraphAnchor(search)
    for module in (dspy.Predict(own), dspy.ChainOfThought(own)):
        with pytest.raises(InputError, match=refused):
            program.answer = module


def test_a_module_that_returns_such_an_output_is_refused_at_runtime() -> None:
    class Own(dspy.Module):
        def forward(self, question: str) -> dspy.Prediction:
            return dspy.Prediction(answer="Montana", steps=3)

    program = VanillaRAG(search)
    program.answer = Own()
    with dspy.context(lm=scripted_lm([])), pytest.raises(InputError, match="the output steps"):
        program(question=QUESTION)


def test_reasoning_and_links_of_a_custom_signature_are_in_the_prediction() -> None:
    own = dspy.Signature("question, passages -> reasoning, links, answer")
    said = {"reasoning": "two links", "links": "[1] [2]", "answer": "Montana"}
    found = run([SURE, said], answer_with=own)
    assert (found.reasoning, found.links, found.answer) == ("two links", "[1] [2]", "Montana")


def test_a_signature_without_an_answer_field_is_refused() -> None:
    with pytest.raises(InputError, match="an output field called answer"):
        GraphAnchor(search, answer_with=dspy.Signature("question -> tone"))


def test_a_chain_of_thought_can_replace_the_answer_step() -> None:
    program = GraphAnchor(search)
    program.answer = dspy.ChainOfThought(program.answer.signature)
    with dspy.context(lm=scripted_lm([SURE, {"reasoning": "hm", **ANSWER}])):
        found = program(question=QUESTION)
    assert (found.answer, found.reasoning) == ("Montana", "hm")


# --- The prediction object


def test_a_prediction_can_be_stored_as_json() -> None:
    record = json.loads(json.dumps(run([SURE]).to_dict()))
    assert record["supported"] == "chained"
    assert record["evidence"][0]["passage_id"] == "lodge"
    assert "graph" not in record["steps"][0] and len(record["graph"]["relations"]) == 2


def test_a_tool_returns_the_answer_with_its_evidence() -> None:
    tool = GraphAnchor(search).as_tool("atlas")
    assert (tool.name, list(tool.args)) == ("atlas", ["question"])
    with dspy.context(lm=scripted_lm([SURE])):
        said = tool(question=QUESTION)
    assert said.splitlines()[0] == "Montana"
    assert "Carbon County lies in Montana." in said and len(said) < 400


def test_config_is_passed_to_the_lm_with_each_call() -> None:
    lm = scripted_lm([UNSURE, ANSWER])
    with dspy.context(lm=lm, disable_history=False):
        GraphAnchor(search)(question=QUESTION, config={"temperature": 0.37})
    assert [entry["kwargs"]["temperature"] for entry in lm.history] == [0.37, 0.37]


def test_the_retriever_can_be_swapped() -> None:
    program = VanillaRAG(search)
    program.retriever = lambda query: ["Elsewhere | Montana is elsewhere."]
    with dspy.context(lm=scripted_lm([ANSWER])):
        assert program(question=QUESTION).passages[0].title == "Elsewhere"


def test_acall_uses_the_forward_that_a_subclass_overrides() -> None:
    import asyncio

    class Shouting(VanillaRAG):
        def forward(self, question: str, config: Any = None, where: Any = None) -> Any:
            found = super().forward(question, config, where=where)
            found.answer = found.answer.upper()
            return found

    async def ask() -> Any:
        with dspy.context(lm=scripted_lm([ANSWER])):
            return await Shouting(search).acall(question=QUESTION)

    assert asyncio.run(ask()).answer == "MONTANA"
