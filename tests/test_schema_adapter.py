"""The schema adapter: what it asks for, the schema it sends, LMs that refuse one."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from typing import Any, Literal

import dspy
import pydantic
import pytest
from endpoint import Behaviour, Endpoint

import ga_dspy
from ga_dspy import PlainAdapter, SchemaAdapter
from ga_dspy.errors import InputError
from ga_dspy.lm import adapters
from ga_dspy.lm.adapters import reply_schema
from ga_dspy.passage import Passage
from ga_dspy.signatures import AnswerQuestion, GraphFacts, GraphProposal, ReadAndJudge
from ga_dspy.signatures.facts import with_facts
from ga_dspy.testing import scripted_lm

TYPES = ["person", "place", "organisation", "work", "event", "date", "quantity", "role", "other"]
TEXT = {"type": "string"}
FACT = {
    "head": "Ida Renfro", "head_type": "person", "relation": "was born in", "tail": "Salem",
    "tail_type": "place", "passages": [1],
}  # fmt: skip
READ = {
    "additions": [FACT], "reasoning": "Her birthplace is stated [1].", "judgement": "sufficient",
    "candidate": "Salem", "next_query": "",
}  # fmt: skip
QUESTION = "Where was Ida Renfro born?"
RENFRO = Passage(id="renfro", title="Ida Renfro", text="Ida Renfro was born in Salem, Oregon.")
ReadFacts = with_facts(ReadAndJudge)


class Place(pydantic.BaseModel):
    title: str = ""
    near: list[Place]


class Typed(dspy.Signature):
    """Answer."""

    question: str = dspy.InputField()
    kind: Literal["a", "b"] = dspy.OutputField()
    count: int = dspy.OutputField()
    note: str | None = dspy.OutputField()
    place: Place = dspy.OutputField()


@pytest.fixture(autouse=True)
def _forget_refused_schemas() -> Iterator[None]:
    yield
    adapters._WITHOUT_SCHEMA.clear()


def test_the_schema_of_a_step_lists_its_outputs_in_order_without_references() -> None:
    schema = reply_schema(ReadFacts)
    assert list(schema["properties"]) == schema["required"] == list(ReadAndJudge.output_fields)
    facts = schema["properties"]["additions"]
    assert facts == {
        "type": "array",
        "items": {
            "type": "object",
            "properties": {
                "head": TEXT,
                "head_type": {"type": "string", "enum": TYPES},
                "relation": TEXT,
                "tail": TEXT,
                "tail_type": {"type": "string", "enum": TYPES},
                "passages": {"type": "array", "items": {"type": "integer"}},
            },
            "required": list(FACT),
            "additionalProperties": False,
        },
    }
    judgements = ["sufficient", "insufficient", "exhausted"]
    assert schema["properties"]["judgement"] == {"type": "string", "enum": judgements}
    assert schema["additionalProperties"] is False and "$" not in json.dumps(schema)


def test_the_schema_of_any_signature_is_strict_and_cuts_recursive_types() -> None:
    assert reply_schema(Typed)["properties"] == {
        "kind": {"type": "string", "enum": ["a", "b"]},
        "count": {"type": "integer"},
        "note": {"anyOf": [TEXT, {"type": "null"}]},
        "place": {
            "type": "object",
            "properties": {"title": TEXT, "near": {"type": "array", "items": {}}},
            "required": ["title", "near"],
            "additionalProperties": False,
        },
    }
    assert reply_schema(AnswerQuestion)["required"] == list(AnswerQuestion.output_fields)


def test_the_prompt_lists_the_fields_and_shows_demos_as_json() -> None:
    lines = "- Ida Renfro (person) -> was born in -> Salem (place) [1]"
    for additions in (lines, GraphProposal.model_validate(lines), GraphFacts.model_validate(lines)):
        demo = {"question": QUESTION, "passages": "p", **READ, "additions": additions}
        system, *_, shown, _ = SchemaAdapter().format(ReadFacts, [demo], {"question": "q"})
        assert json.loads(shown["content"]) == READ
    assert "one JSON object" in system["content"] and "[[ ##" not in system["content"]
    fields = [line for line in system["content"].splitlines() if line.startswith("- ")]
    assert [line[2:].split(" ")[0].strip(":") for line in fields] == list(READ)


@pytest.mark.parametrize("is_async", [False, True])
def test_the_schema_is_sent_with_the_request_and_the_reply_is_typed(is_async: bool) -> None:
    ask = dspy.Predict(ReadFacts)
    given = {"question": QUESTION, "passages": "p"}
    with (
        Endpoint(Behaviour(reply=json.dumps(READ))) as endpoint,
        dspy.context(lm=endpoint.lm(), adapter=SchemaAdapter()),
    ):
        reply = asyncio.run(ask.acall(**given)) if is_async else ask(**given)
    sent = endpoint.requests[0]["response_format"]
    assert (sent["type"], sent["json_schema"]["strict"]) == ("json_schema", True)
    assert json.dumps(sent["json_schema"]["schema"]) == json.dumps(reply_schema(ReadFacts))
    assert [fact.model_dump() for fact in reply.additions.facts] == [FACT]
    assert (reply.judgement, reply.candidate) == ("sufficient", "Salem")


@pytest.mark.parametrize("is_async", [False, True])
def test_an_lm_that_refuses_the_schema_is_called_without_it_from_then_on(is_async: bool) -> None:
    ask = dspy.Predict(ReadFacts)
    with Endpoint(Behaviour(reply=json.dumps(READ), script=("schema",))) as endpoint:
        for question in ("q", "r"):
            with dspy.context(lm=endpoint.lm(num_retries=0), adapter=SchemaAdapter()):
                given = {"question": question, "passages": "p"}
                reply = asyncio.run(ask.acall(**given)) if is_async else ask(**given)
            assert reply.candidate == "Salem"
    assert ["response_format" in body for body in endpoint.requests] == [True, False, False]


def test_another_error_is_not_mistaken_for_a_refused_schema() -> None:
    with (
        Endpoint(Behaviour(reply="x", script=("context",))) as endpoint,
        dspy.context(lm=endpoint.lm(num_retries=0), adapter=SchemaAdapter()),
        pytest.raises(dspy.LMError),
    ):
        dspy.Predict(ReadFacts)(question="q", passages="p")
    assert len(endpoint.requests) == 1


def read_with(lm: dspy.LM, **settings: Any) -> Any:
    program = ga_dspy.GraphAnchor(lambda query, k: [RENFRO], graph_form="json", **settings)
    with dspy.context(lm=lm):
        return program(question=QUESTION)


ANSWER = {"links": "She was born there [1].", "answer": "Salem", "verdict": "answered"}


def test_a_program_with_a_json_graph_sends_the_schema_unless_an_adapter_is_set() -> None:
    unsure = {**READ, "judgement": "exhausted"}
    replies = {"additions": json.dumps(unsure), "verdict": json.dumps(ANSWER)}
    for adapter, is_sent in ((None, True), (PlainAdapter(), False)):
        with Endpoint(Behaviour(replies=replies)) as endpoint, dspy.context(adapter=adapter):
            found = read_with(endpoint.lm())
        assert ["response_format" in body for body in endpoint.requests] == [is_sent, False]
        (relation,) = found.graph.relations
        assert (relation.head, relation.tail) == ("Ida Renfro", "Salem")
        assert {e.name: e.type for e in found.graph.entities} == {
            "Ida Renfro": "person", "Salem": "place"
        }  # fmt: skip
        assert found.answer == "Salem"


def test_unsupported_facts_are_dropped_with_a_reason() -> None:
    invented = {**READ, "additions": [FACT, {**FACT, "tail": "Reno"}]}
    found = read_with(scripted_lm([json.dumps(invented)]))
    assert [relation.tail for relation in found.graph.relations] == ["Salem"]
    (dropped,) = found.steps[0].dropped
    assert (dropped.kind, dropped.item) == ("relation", "Ida Renfro -> was born in -> Reno")
    assert '"Reno" not found' in dropped.reason and found.calls == 1


def test_a_traced_json_step_becomes_a_demo_in_json() -> None:
    lm = scripted_lm([json.dumps(READ)])
    program = ga_dspy.GraphAnchor(lambda query, k: [RENFRO], graph_form="json")
    with dspy.context(lm=lm, trace=[]):
        program(question=QUESTION)
        (_, inputs, outputs), *_ = dspy.settings.trace
    shown = SchemaAdapter().format(ReadFacts, [{**inputs, **outputs.toDict()}], {})[2]
    assert json.loads(shown["content"])["additions"] == [FACT]
    assert isinstance(outputs.additions, GraphFacts)


def test_an_answer_is_streamed_out_of_the_json() -> None:
    listener = dspy.streaming.StreamListener("answer")
    ask = dspy.Predict("question -> reasoning, answer")
    stream = dspy.streamify(ask, stream_listeners=[listener], async_streaming=False)
    lm = scripted_lm([{"reasoning": "It is there.", "answer": "in Red Lodge, Montana"}])
    with dspy.context(lm=lm, adapter=SchemaAdapter()):
        items = list(stream(question="Where?"))
    chunks = [item.chunk for item in items if isinstance(item, dspy.streaming.StreamResponse)]
    assert "in Red Lodge, Montana" in "".join(chunks) and len(chunks) > 1
    assert items[-1].answer == "in Red Lodge, Montana"


def test_the_embedded_lm_answers_in_json() -> None:
    found = read_with(ga_dspy.extractive_lm())
    assert [(r.head, r.tail) for r in found.graph.relations] == [("Ida Renfro", "Salem, Oregon")]
    with dspy.context(adapter=SchemaAdapter()):
        again = read_with(lm := ga_dspy.extractive_lm())
    assert again.answer == found.answer == "Salem, Oregon"
    assert all(json.loads(call["outputs"][0]) for call in lm.history)


def test_changing_graph_form_converts_the_demos() -> None:
    program = ga_dspy.GraphAnchor(lambda query, k: [])
    program.graph_form = "json"
    for adapter in (SchemaAdapter(), PlainAdapter()):
        shown = adapter.format(program.read.signature, program.read.demos, {})[2]["content"]
        assert '[{"head": "Ida Renfro", "head_type": "person"' in shown
    program.graph_form = "lines"
    program.as_published = True
    assert program.update.signature.output_fields["additions"].annotation is GraphProposal


def test_graph_form_json_needs_a_graph_index() -> None:
    with pytest.raises(InputError, match="graph_form='json' and no graph"):
        ga_dspy.GraphAnchor(lambda query, k: [], graph_form="json", index="text")


LIVE = os.environ.get("GA_DSPY_TEST_LM", "")


@pytest.mark.skipif(not LIVE, reason="GA_DSPY_TEST_LM names no llama.cpp server (http://…/v1)")
def test_a_real_server_enforces_the_schema() -> None:
    lm = dspy.LM("openai/local", api_base=LIVE, api_key="none", temperature=0, max_tokens=300)
    passages = f"[1] {RENFRO.title}\n{RENFRO.text}"
    with dspy.context(lm=lm, adapter=SchemaAdapter()):
        dspy.Predict(ReadFacts)(question=QUESTION, passages=passages, query=QUESTION, graph="")
    reply = json.loads(lm.history[-1]["outputs"][0])
    assert list(reply) == list(READ) and len(lm.history) == 1
    for fact in reply["additions"]:
        assert list(fact) == list(FACT) and {fact["head_type"], fact["tail_type"]} <= {*TYPES}
