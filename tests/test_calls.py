"""The ladder under a reply: mended here, asked for anew, or failed by name."""

from __future__ import annotations

from typing import Any

import dspy
import pytest

from ga_dspy.programs import StepFailed
from ga_dspy.programs.calls import Meter, ask, drive, salvage
from ga_dspy.signatures import AnswerQuestion, JudgeSufficiency, ReadAndJudge
from ga_dspy.testing import CutOff, Reply, scripted_lm

GOOD = {"verdict": "answered", "cited": "1", "answer": "Montana"}
INPUTS = {"question": "Where?", "graph": "(empty)", "passages": "[1] A\nB.", "candidate": ""}


def run(*script: Reply) -> tuple[dspy.Prediction, Meter, list[str]]:
    meter, lm = Meter(), scripted_lm(script)
    with dspy.context(lm=lm, adapter=dspy.ChatAdapter(use_json_adapter_fallback=False)):
        reply = drive(ask("answer", dspy.Predict(AnswerQuestion), dict(INPUTS), meter))
    return reply, meter, lm.engine.prompts


def test_a_good_reply_costs_one_call() -> None:
    reply, meter, _ = run(GOOD)
    assert (reply.answer, meter.calls) == ("Montana", 1)


@pytest.mark.parametrize(
    "raw",
    [
        "**verdict**: Answered.\n**cited**: [1]\n**answer**: Montana",
        '{"verdict": "ANSWERED", "cited": 1, "answer": "Montana"}',
        "<verdict>answered</verdict>\n<cited>1</cited>\n<answer>Montana</answer>",
        "[[ ## verdict ## ]]\n`answered`.\n[[ ## cited ## ]]\n1\n[[ ## answer ## ]]\nMontana",
    ],
)
def test_a_reply_in_another_form_is_mended_without_another_call(raw: str) -> None:
    reply, meter, _ = run(raw)
    assert (reply.verdict, reply.answer, meter.calls) == ("answered", "Montana", 1)


def test_prose_is_asked_for_anew_once() -> None:
    reply, meter, _ = run("I am not sure what you mean.", GOOD)
    assert (reply.answer, meter.calls) == ("Montana", 2)


def test_an_output_that_was_cut_off_is_asked_for_anew_even_if_it_parses() -> None:
    cut = "[[ ## verdict ## ]]\nanswered\n[[ ## cited ## ]]\n1\n[[ ## answer ## ]]\nMon"
    reply, meter, _ = run(CutOff(cut), GOOD)
    assert (reply.answer, meter.calls) == ("Montana", 2)


def test_two_unusable_outputs_are_a_named_failure() -> None:
    with pytest.raises(StepFailed, match=r"answer step got no usable output.*does not parse"):
        run("Hm.", "Hm again.")


def test_two_outputs_cut_off_are_a_named_failure() -> None:
    with pytest.raises(StepFailed, match="cut off at the token limit"):
        run(CutOff("[[ ## verdict ## ]]\nansw"), CutOff("[[ ## verdict ## ]]\nansw"))


def test_an_error_of_the_endpoint_is_not_a_bad_reply() -> None:
    with pytest.raises(dspy.LMError):
        run(dspy.LMError("down"), GOOD)


@pytest.mark.parametrize(
    ("said", "read"),
    [
        ("Insufficient.", "insufficient"),
        ("**sufficient**", "sufficient"),
        ("It is insufficient", "insufficient"),
        ("not sufficient", None),
        ("maybe", None),
    ],
)
def test_a_judgement_is_read_for_what_it_says(said: str, read: str | None) -> None:
    raw = f"reasoning: r\njudgement: {said}\ncandidate: \nnext_query: x"
    reply = salvage(JudgeSufficiency, raw)
    assert (reply and reply.judgement) == read


def test_a_graph_is_salvaged_line_by_line() -> None:
    raw = (
        "additions:\nEntities:\n- Red Lodge (city) [1]\nRelations:\n1. Red Lodge -> in\n"
        "reasoning: r\njudgement: sufficient\ncandidate: Montana\nnext_query:"
    )
    reply: Any = salvage(ReadAndJudge, raw)
    assert [entity.name for entity in reply.additions.draft.entities] == ["Red Lodge"]
    assert reply.additions.draft.relations == () and len(reply.additions.draft.skipped) == 1


def test_every_call_is_counted_and_its_tokens_reported() -> None:
    _, meter, prompts = run("Hm.", GOOD)
    assert meter.calls == len(prompts) == 2
    assert meter.tokens > 200
