"""The plain adapter: what it says once, what it leaves out, how it is streamed and read."""

from __future__ import annotations

import asyncio
import enum
import pickle
from typing import Any, Literal

import dspy
import pydantic
import pytest
from dspy.utils.exceptions import AdapterParseError

import ga_dspy
from ga_dspy import PlainAdapter, extractive_lm
from ga_dspy.lm.replies import read_reply
from ga_dspy.signatures import AnswerQuestion, GraphProposal, ReadAndJudge
from ga_dspy.signatures.graph_anchor import LINE_FORMAT
from ga_dspy.testing import scripted_lm
from ga_dspy.text import estimate_tokens

CHAT_WORDS = ("JSON schema", "valid Python", "Respond with", "must be formatted", "structured in")


class Mood(enum.Enum):
    CALM = "calm"
    WILD = "wild"


class Place(pydantic.BaseModel):
    name: str
    inhabitants: int


class Weather(dspy.Signature):
    """Tell the weather.

    In one word.
    """

    town: str = dspy.InputField()
    day: str = dspy.InputField(desc="when")
    hint: str = dspy.InputField(desc="what others said", default="")
    word: str = dspy.OutputField(desc="one word")
    sky: Literal["clear", "grey"] = dspy.OutputField()
    mood: Mood = dspy.OutputField(desc="how it feels")
    wet: bool = dspy.OutputField()
    degrees: int = dspy.OutputField(desc="at noon", lt=60)
    tags: list[str] = dspy.OutputField()
    place: Place = dspy.OutputField()


def messages(signature: Any, demos: Any = (), **inputs: Any) -> list[dict[str, str]]:
    return PlainAdapter().format(signature, list(demos), inputs)  # type: ignore[no-any-return]


def test_the_system_message_describes_each_field_once() -> None:
    system, user = messages(Weather, town="Oslo", day="today", hint="")
    schema = PlainAdapter().format_system_message(Weather).partition("schema: ")[2]
    assert system["content"] == (
        "Tell the weather.\n\nIn one word.\n\n"
        "You are given:\n- day: when\n- hint: what others said\n\n"
        "Reply with these fields, each below its marker, [[ ## name ## ]]:\n"
        "- word: one word\n"
        "- sky (one of: clear; grey)\n"
        "- mood: how it feels (one of: calm; wild)\n"
        "- wet (one of: True; False)\n"
        "- degrees: at noon; less than: 60 (a whole number)\n"
        f"- tags (JSON by this schema: {schema}"
    )
    assert user["content"] == "[[ ## town ## ]]\nOslo\n\n[[ ## day ## ]]\ntoday"


def test_a_type_is_described_without_the_chat_adapters_wording() -> None:
    system = messages(ReadAndJudge, question="Who?")[0]["content"]
    assert system.count(LINE_FORMAT) == 1
    assert not any(words in str(messages(ReadAndJudge)) for words in CHAT_WORDS)


def test_fields_and_markers_take_a_third_of_the_chat_adapters_tokens() -> None:
    said = {
        adapter: estimate_tokens(adapter().format(ReadAndJudge, [], {})[0]["content"])
        - estimate_tokens(ReadAndJudge.instructions)
        for adapter in (PlainAdapter, dspy.ChatAdapter)
    }
    described = sum(
        estimate_tokens(f"{name} {field.json_schema_extra['desc']}")
        for name, field in ReadAndJudge.fields.items()
    ) + estimate_tokens(LINE_FORMAT)
    assert said[PlainAdapter] - described < 140
    assert said[PlainAdapter] < 0.6 * said[dspy.ChatAdapter]


def test_an_empty_required_input_is_shown() -> None:
    assert "[[ ## town ## ]]" in messages(Weather, town="", day="", hint="")[1]["content"]


def test_an_example_is_rendered_like_the_question() -> None:
    demo = {"question": "Where?", "graph": "g", "passages": "p", "verdict": "answered",
            "answer": "Montana", "links": "It is there [1]"}  # fmt: skip
    inputs = {name: demo[name] for name in AnswerQuestion.input_fields if name in demo}
    shown = messages(AnswerQuestion, [demo], **inputs)
    assert shown[1]["content"] == shown[3]["content"]
    assert "[[ ## answer ## ]]\nMontana\n" in shown[2]["content"]
    assert shown[2]["content"].endswith("[[ ## verdict ## ]]\nanswered")
    assert "not supplied" not in str(shown)


def test_the_prompt_itself_does_not_parse_as_a_reply() -> None:
    for signature in (ReadAndJudge, AnswerQuestion, Weather):
        said = messages(signature, **dict.fromkeys(signature.input_fields, "x"))
        assert read_reply(signature, said[0]["content"]) is None


def test_a_graph_in_an_example_is_written_as_lines() -> None:
    lines = "Relations:\n1. Red Lodge -> in -> Montana [1]"
    demo = {"question": "q", "passages": "p", "additions": GraphProposal.model_validate(lines)}
    shown = messages(ReadAndJudge, [demo], question="other")
    assert "- Red Lodge -> in -> Montana [1]" in shown[2]["content"]


REPLY = {
    "word": "rain", "sky": "grey", "mood": "wild", "wet": "True", "degrees": "12",
    "tags": "['cold', \"late\"]", "place": '{"name": "Oslo", "inhabitants": 700000}',
}  # fmt: skip


def test_every_output_type_is_parsed() -> None:
    lm = scripted_lm([REPLY])
    with dspy.context(lm=lm, adapter=PlainAdapter()):
        reply = dspy.Predict(Weather)(town="Oslo", day="today")
    assert (reply.sky, reply.mood, reply.wet, reply.degrees) == ("grey", Mood.WILD, True, 12)
    assert (reply.tags, reply.place.inhabitants) == (["cold", "late"], 700000)


def test_a_missing_output_is_a_parse_error_that_names_the_signature() -> None:
    lm = scripted_lm(["[[ ## word ## ]]\nrain"])
    with dspy.context(lm=lm, adapter=PlainAdapter()), pytest.raises(AdapterParseError) as caught:
        dspy.Predict(Weather)(town="Oslo", day="today")
    assert caught.value.signature.output_fields.keys() == Weather.output_fields.keys()
    assert len(lm.engine.prompts) == 1


@pytest.mark.parametrize("asynchronous", [False, True])
def test_an_answer_is_streamed_when_configured(asynchronous: bool) -> None:
    program = dspy.Predict("question, passages -> reasoning, answer")
    listener = dspy.streaming.StreamListener("answer")
    stream = dspy.streamify(program, stream_listeners=[listener], async_streaming=asynchronous)
    inputs = {"question": "Where?", "passages": "[1] Red Lodge\nRed Lodge is in Montana."}
    lm = scripted_lm([{"reasoning": "It is [1] there.", "answer": "in Red Lodge, Montana"}])

    async def collect() -> list[Any]:
        return [item async for item in stream(**inputs)]

    with dspy.context(lm=lm, adapter=PlainAdapter()):
        items = asyncio.run(collect()) if asynchronous else list(stream(**inputs))
    chunks = [item.chunk for item in items if isinstance(item, dspy.streaming.StreamResponse)]
    assert "".join(chunks) == "in Red Lodge, Montana" == items[-1].answer
    assert len(chunks) > 1


def test_the_adapter_is_exported_and_can_be_pickled() -> None:
    assert ga_dspy.PlainAdapter is PlainAdapter
    copy = pickle.loads(pickle.dumps(PlainAdapter()))
    assert isinstance(copy, PlainAdapter) and isinstance(copy, dspy.ChatAdapter)
    assert "PlainAdapter" in repr(PlainAdapter)


def test_the_embedded_lm_gives_the_same_answer_as_under_the_chat_adapter() -> None:
    inputs = {
        "question": "Where is Red Lodge?", "graph": "(empty)", "candidate": "",
        "passages": "[1] Red Lodge\nRed Lodge is a city in Montana.",
    }  # fmt: skip
    replies = []
    for adapter in (PlainAdapter(), dspy.ChatAdapter()):
        with dspy.context(lm=extractive_lm(), adapter=adapter):
            replies.append(dspy.Predict(AnswerQuestion)(**inputs).toDict())
    assert replies[0] == replies[1]
