"""Calls: replies that are repaired, requested again or rejected; modules; threads and asyncio."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
import weakref
from collections.abc import Generator
from dataclasses import replace
from typing import Any, Literal

import dspy
import pytest

from ga_dspy.errors import InputError
from ga_dspy.lm.adapters import PlainAdapter
from ga_dspy.passage import Passage
from ga_dspy.programs import StepFailed
from ga_dspy.programs.calls import Ask, Grounded, Search, adrive, ask, drive, ground_reply
from ga_dspy.programs.meter import Meter
from ga_dspy.retrieval import Index, as_retriever
from ga_dspy.signatures import GraphProposal, ReadAndJudge
from ga_dspy.testing import CutOff, Reply, asked_fields, scripted_lm

CHAT = dspy.ChatAdapter(use_json_adapter_fallback=False)


class AnswerIt(dspy.Signature):
    """Answer."""

    question: str = dspy.InputField()
    passages: str = dspy.InputField()
    verdict: Literal["answered", "not in passages", "premise refuted"] = dspy.OutputField()
    cited: str = dspy.OutputField()
    answer: str = dspy.OutputField()


class Read(dspy.Signature):
    """Read and judge."""

    question: str = dspy.InputField()
    passages: str = dspy.InputField()
    additions: GraphProposal = dspy.OutputField()
    reasoning: str = dspy.OutputField()
    judgement: Literal["sufficient", "insufficient"] = dspy.OutputField()
    next_query: str = dspy.OutputField()


GOOD = {"verdict": "answered", "cited": "1", "answer": "Montana"}
INPUTS = {"question": "Where?", "graph": "(empty)", "passages": "[1] A\nB.", "candidate": ""}
LODGE = Passage(id="lodge", title="Red Lodge", text="Red Lodge is a city in Montana.")
TRUE = "Relations:\n1. Red Lodge -> is in -> Montana [1]"
FALSE = f"{TRUE}\n2. Red Lodge -> is in -> Wyoming [1]"
READ = {"additions": TRUE, "reasoning": "r", "judgement": "sufficient", "next_query": ""}


def run(
    *script: Reply, module: Any = None, adapter: Any = CHAT, required: Any = None, **options: Any
) -> tuple[dspy.Prediction, Meter, list[str]]:
    meter, lm = Meter(), scripted_lm(script)
    module = module or dspy.Predict(AnswerIt)
    with dspy.context(lm=lm, adapter=adapter):
        reply = drive(ask("answer", module, INPUTS, meter, required=required, **options))
    return reply, meter, lm.engine.prompts


def read(*script: Reply, module: Any = None, trace: Any = None, **options: Any) -> Grounded:
    arguments = ("read", module or dspy.Predict(Read), {"question": "q", "passages": "[1]"})
    asked = ask(*arguments, Meter(), required=("judgement",), **options)
    with dspy.context(lm=scripted_lm(script), adapter=CHAT, trace=trace):
        return drive(ground_reply(asked, {1: LODGE}))


class Described(dspy.Signature):
    """Answer."""

    question: str = dspy.InputField()
    answer: str = dspy.OutputField(desc="the answer alone, nothing around it")


@pytest.mark.parametrize("adapter", [CHAT, dspy.XMLAdapter(), dspy.JSONAdapter(), PlainAdapter()])
def test_a_reply_that_repeats_the_field_description_is_requested_again(
    adapter: dspy.Adapter,
) -> None:
    echo, good = {"answer": "the answer alone"}, {"answer": "Montana"}
    module = dspy.Predict(Described)
    found, _, prompts = run(echo, good, module=module, adapter=adapter, required=("answer",))
    assert found.answer == "Montana"
    assert len(prompts) == 2


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
        "[[ ## verdict ## ]]\nanswered\n[[ ## cited ## ]]\n1\n[[ ## answer ## ]]\n**Montana**",
        "**[[ ## verdict ## ]]**\nanswered\n**[[ ## answer ## ]]**\nMontana\n**[[ ## cited ## ]]**",
        "- [[ ## verdict ## ]]\nanswered\n- [[ ## answer ## ]]: Montana\n- [[ ## cited ## ]]\n1",
        "[[ ## verdict ## ]]\nanswered\n### [[ ## answer ## ]]\nMontana\n### [[ ## completed ## ]]",
        "[[ ## verdict ## ]]\nanswered\n[[ ## answer ## ]]\nMontana\n[[ ## cited by ## ]]\n1",
        "[[ ## verdict ## ]]\nanswered\n[[ ## answer ## ]]\nMontana<|im_end|>\n<|im_start|>user",
        "verdict：answered\ncited：1\nanswer：Montana",
        '{"name": "f", "arguments": {"verdict": "answered", "cited": 1, "answer": "Montana"}}',
    ],
)
def test_a_reply_in_another_format_is_read_without_another_call(raw: str) -> None:
    reply, meter, _ = run(raw, required=("verdict", "answer"))
    assert (reply.verdict, reply.answer, meter.calls) == ("answered", "Montana", 1)


@pytest.mark.parametrize(
    ("raw", "verdict", "cited"),
    [
        ("[[ ## verdict ## ]]\nAnswered.\n[[ ## answer ## ]]\nMontana", "answered", ""),
        ("verdict: who knows?\nanswer: Montana", "", ""),
        ("Answer: Montana", "", ""),
        ('{"answer": "Montana"}', "", ""),
    ],
)
def test_a_reply_fails_only_without_a_required_field(raw: str, verdict: str, cited: str) -> None:
    reply, meter, _ = run(raw, required=("answer",))
    assert (reply.verdict, reply.cited, reply.answer) == (verdict, cited, "Montana")
    assert meter.calls == 1


def test_a_reply_without_the_required_field_is_requested_again_once() -> None:
    reply, meter, _ = run("verdict: answered\ncited: 1", GOOD, required=("answer",))
    assert (reply.answer, meter.calls, meter.usage["answer"].failed) == ("Montana", 1, 1)


def test_a_reply_in_prose_is_requested_again_once() -> None:
    reply, meter, _ = run("I am not sure what you mean.", GOOD)
    assert (reply.answer, meter.calls, meter.usage["answer"].failed) == ("Montana", 1, 1)


THOUGHT = {
    "json": (
        dspy.JSONAdapter(),
        '<think>{"verdict": "answered", "cited": "", "answer": "Salma Hayek"}</think>'
        '{"verdict": "answered", "cited": "1", "answer": "Montana"}',
    ),
    "json, chat inside": (
        dspy.JSONAdapter(),
        "<think>answer: Salma Hayek</think>[[ ## verdict ## ]]\nanswered\n[[ ## cited ## ]]\n1\n"
        "[[ ## answer ## ]]\nMontana",
    ),
    "xml": (
        dspy.XMLAdapter(),
        "<think><verdict>answered</verdict><answer>Salma Hayek</answer><cited></cited></think>"
        "<verdict>answered</verdict><cited>1</cited><answer>Montana</answer>",
    ),
    "chat": (
        CHAT,
        "<think>\n[[ ## answer ## ]]\nSalma Hayek\n</think>\n[[ ## verdict ## ]]\nanswered\n"
        "[[ ## cited ## ]]\n1\n[[ ## answer ## ]]\nMontana\n[[ ## completed ## ]]",
    ),
    "none": (
        None,
        "<think>\n[[ ## answer ## ]]\nSalma Hayek\n</think>\n[[ ## verdict ## ]]\nanswered\n"
        "[[ ## cited ## ]]\n1\n[[ ## answer ## ]]\nMontana\n[[ ## completed ## ]]",
    ),
}


@pytest.mark.parametrize("case", THOUGHT)
def test_reasoning_blocks_are_not_parsed_as_the_answer_under_any_adapter(case: str) -> None:
    adapter, raw = THOUGHT[case]
    reply, _, _ = run(raw, raw, adapter=adapter, required=("answer",))
    assert (reply.answer, reply.cited) == ("Montana", "1")


def test_a_lone_surrogate_is_removed_from_a_parsed_reply() -> None:
    raw = '{"verdict": "answered", "cited": "1", "answer": "Mont\\ud83dana"}'
    assert run(raw, adapter=dspy.JSONAdapter())[0].answer == "Montana"


def test_a_lone_surrogate_in_a_graph_line_is_removed() -> None:
    raw = (
        '{"additions": "Relations:\\n1. Red Lodge -> is in -> Montana\\ud83d [1]", "reasoning":'
        ' "", "judgement": "sufficient", "next_query": ""}'
    )
    with dspy.context(lm=scripted_lm([raw]), adapter=dspy.JSONAdapter()):
        asked = ask("read", dspy.Predict(Read), INPUTS, Meter(), required=("judgement",))
        found = drive(ground_reply(asked, {1: LODGE}))
    assert [relation.tail for relation in found.update.relations] == ["Montana"]


# --- Cut off at the token limit


def test_an_output_cut_off_in_its_answer_is_requested_again_even_if_it_parses() -> None:
    cut = "[[ ## verdict ## ]]\nanswered\n[[ ## cited ## ]]\n1\n[[ ## answer ## ]]\nMon"
    reply, meter, _ = run(CutOff(cut), GOOD, required=("answer",))
    assert (reply.answer, meter.calls, meter.usage["answer"].failed) == ("Montana", 1, 1)


@pytest.mark.parametrize(
    "whole",
    [
        "[[ ## verdict ## ]]\nanswered\n[[ ## cited ## ]]\n1\n[[ ## answer ## ]]\nMontana\n\n"
        "[[ ## completed ## ]]",
        "[[ ## answer ## ]]\nMontana\n\n[[ ## verdict ## ]]\nanswered\n\n[[ ## cited ## ]]\n1, ",
        "[[ ## answer ## ]]\nMontana\n\n[[ ## verdict ## ]]\nansw",
        '{"verdict": "answered", "cited": "1", "answer": "Montana"}',
    ],
)
def test_a_truncated_reply_with_a_complete_answer_is_used(whole: str) -> None:
    reply, meter, _ = run(CutOff(whole), required=("answer",))
    assert (reply.answer, meter.calls) == ("Montana", 1)


def test_four_unusable_outputs_are_a_named_failure() -> None:
    with pytest.raises(StepFailed, match=r"answer step got no usable output.*does not parse"):
        run("Hm.", "Hm again.", "Well.", "Hm.")


def test_two_truncated_outputs_are_a_named_failure() -> None:
    with pytest.raises(StepFailed, match="cut off at the token limit"):
        run(CutOff("[[ ## verdict ## ]]\nansw"), CutOff("[[ ## verdict ## ]]\nansw"))


# --- Errors of the endpoint


def test_an_endpoint_error_is_not_treated_as_a_bad_reply() -> None:
    with pytest.raises(dspy.LMError):
        run(dspy.LMError("down"), GOOD)


def test_the_meter_knows_whether_any_call_was_answered() -> None:
    meter, lm = Meter(), scripted_lm([dspy.LMError("down"), GOOD])
    with dspy.context(lm=lm, adapter=CHAT):
        with pytest.raises(dspy.LMError):
            drive(ask("answer", dspy.Predict(AnswerIt), INPUTS, meter))
        seen = [meter.answered]
        drive(ask("answer", dspy.Predict(AnswerIt), INPUTS, meter))
    assert ([*seen, meter.answered], meter.calls) == ([False, True], 1)
    assert meter.usage["answer"].failed == 1


def test_an_endpoint_error_is_raised_by_a_read_step() -> None:
    with pytest.raises(dspy.LMError):
        read(dspy.LMError("down"))


@pytest.mark.parametrize("nothing", ["No additions.", "-", "", "Nothing new."])
def test_empty_additions_do_not_fail_a_step(nothing: str) -> None:
    found = read({**READ, "additions": nothing})
    assert found.reply.judgement == "sufficient"
    assert found.update.relations == ()


# --- Custom modules in place of a predictor


class Twice(dspy.Module):
    """A module of two predictors with inputs of its own choice."""

    def __init__(self) -> None:
        super().__init__()
        self.think = dspy.Predict("question -> thought")
        self.say = dspy.Predict("thought, passages -> answer, mood")

    def forward(self, question: str, passages: str) -> dspy.Prediction:
        thought = self.think(question=question).thought
        return self.say(thought=thought, passages=passages)


class Loose(Twice):
    """The same, which takes whatever its predictors take."""

    def forward(self, **inputs: Any) -> dspy.Prediction:  # type: ignore[override]
        assert inputs.keys() == {"question", "passages"}
        return super().forward(**inputs)


class More(AnswerIt):
    """Answer, with more."""

    hint: str = dspy.InputField(default="")
    confidence: float = dspy.OutputField()


def reply_by_field(prompt: str) -> Reply:
    wanted = {"thought": "t", "answer": "Montana", "mood": "calm"}
    return {name: wanted[name] for name in asked_fields(prompt)}


@pytest.mark.parametrize("make", [Twice, Loose])
@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_module_with_several_calls_can_replace_a_predictor(make: Any, asynchronous: bool) -> None:
    meter, lm = Meter(), scripted_lm(reply_by_field)
    talk = ask("answer", make(), INPUTS, meter, required=("answer",), optional=("cited",))
    with dspy.context(lm=lm, adapter=CHAT):
        reply = asyncio.run(adrive(talk)) if asynchronous else drive(talk)
    assert (reply.answer, reply.mood, reply.cited, meter.calls) == ("Montana", "calm", "", 2)


def test_a_chain_of_thought_can_replace_a_predictor_and_its_reply_is_repaired() -> None:
    module = dspy.ChainOfThought(AnswerIt)
    raw = "reasoning: Because.\nverdict: answered\ncited: 1\nanswer: **Montana**"
    trace: list[Any] = []
    with dspy.context(trace=trace):
        reply, meter, _ = run(raw, module=module, required=("answer",))
    assert (reply.answer, reply.verdict, reply.reasoning) == ("Montana", "answered", "Because.")
    assert meter.calls == 1
    assert [entry[0] for entry in trace] == module.predictors()


def test_a_chain_of_thought_is_asked_for_graph_lines_and_traced_as_it_should_have_been() -> None:
    module, trace = dspy.ChainOfThought(Read.delete("reasoning")), []  # type: ignore[var-annotated]
    found = read({**READ, "additions": FALSE}, module=module, trace=trace)
    assert [relation.tail for relation in found.update.relations] == ["Montana"]
    ((predictor, _, clean),) = trace
    assert predictor is module.predict
    assert "Montana" in str(clean) and "Wyoming" not in str(clean)


def test_additional_outputs_stay_in_the_reply() -> None:
    reply, _, prompts = run({**GOOD, "confidence": "0.5"}, module=dspy.Predict(More))
    assert reply.confidence == 0.5
    assert "graph" not in prompts[0]


def test_additions_may_be_declared_as_text() -> None:
    signature = Read.with_updated_fields("additions", type_=str)
    found = read(READ, module=dspy.Predict(signature))
    assert [relation.tail for relation in found.update.relations] == ["Montana"]


def test_a_module_without_additions_adds_nothing() -> None:
    found = read(READ, module=dspy.Predict(Read.delete("additions")))
    assert found.update.relations == ()


class Wordless(dspy.Module):
    """A module that gives back something else than a prediction."""

    def __init__(self, given: Any) -> None:
        super().__init__()
        self.given = given

    def forward(self, question: str) -> Any:
        return self.given


@pytest.mark.parametrize("given", [dspy.Prediction(reply="x"), {"answer": "x"}, "x", None])
def test_a_module_without_the_required_field_is_an_input_error(given: Any) -> None:
    with pytest.raises(InputError, match="answer") as caught:
        run(module=Wordless(given), required=("answer",))
    assert "answer step" in caught.value.found and caught.value.remedy


class FailsBeforeItsCall(dspy.Module):
    """Answers once, then raises a validation error before it calls the LM."""

    def __init__(self) -> None:
        super().__init__()
        self.answer, self.calls = dspy.Predict(AnswerIt), 0

    def forward(self, **inputs: Any) -> dspy.Prediction:
        self.calls += 1
        if self.calls > 1:
            Passage.model_validate({})
        inputs.pop("config", None)
        return self.answer(**inputs)


def test_a_module_that_fails_before_its_call_does_not_get_the_reply_before() -> None:
    module, meter = FailsBeforeItsCall(), Meter()
    with dspy.context(lm=scripted_lm([GOOD]), adapter=CHAT):
        assert drive(ask("answer", module, INPUTS, meter)).answer == "Montana"
        meter.cached = True  # as after a reply from the cache: only live attempts are counted
        with pytest.raises(StepFailed, match="validation error"):
            drive(ask("answer", module, INPUTS, meter))
    assert (meter.calls, module.calls) == (1, 5)


def test_config_is_sent_with_every_call_and_retries_are_not_cached() -> None:
    sent = []

    class Noting(dspy.Predict):
        def forward(self, **arguments: Any) -> dspy.Prediction:
            sent.append(dict(arguments.get("config", {})))
            return super().forward(**arguments)

    with dspy.context(lm=scripted_lm(["Hm.", "Hm.", GOOD]), adapter=CHAT):
        meter = Meter()
        meter.config = {"temperature": 0.7, "max_tokens": 50}
        drive(ask("answer", Noting(AnswerIt), INPUTS, meter))
    assert sent[0] == {"temperature": 0.7, "max_tokens": 50}
    assert sent[1] == {"temperature": 0.7, "max_tokens": 50, "rollout_id": 1}
    assert sent[2] == {"temperature": 1.0, "max_tokens": 50, "rollout_id": 2}


def test_a_config_is_not_passed_to_a_module_that_takes_none() -> None:
    with dspy.context(lm=scripted_lm(reply_by_field), adapter=CHAT):
        meter = Meter()
        meter.config = {"temperature": 0.7}
        talk = ask("answer", Twice(), INPUTS, meter, required=("answer",))
        assert drive(talk).answer == "Montana"


# --- Threads and asyncio


def test_every_call_and_its_tokens_are_counted() -> None:
    _, meter, prompts = run("Hm.", GOOD)
    assert (meter.calls, meter.usage["answer"].failed, len(prompts)) == (1, 1, 2)
    assert meter.tokens > 200


async def turns_beside(work: Any) -> int:
    """How often the event loop came round while some work was done."""
    turns, ended = 0, False

    async def count() -> None:
        nonlocal turns
        while not ended:
            turns += 1
            await asyncio.sleep(0.001)

    counting = asyncio.create_task(count())
    await work
    ended = True
    await counting
    return turns


def test_a_running_conversation_does_not_block_the_event_loop() -> None:
    def talk() -> Generator[Search, Any, int]:
        total = 0
        for _ in range(3):
            yield Search(lambda query, k: [], "q", 1)
            for number in range(2_000_000):  # a fraction of a second
                total += number
        return total

    assert asyncio.run(turns_beside(adrive(talk()))) > 15


def test_a_search_error_is_raised_inside_the_program() -> None:
    index = Index.from_passages(["Helena | Helena is a city."], kind="sparse")

    def talk() -> Generator[Search, Any, str]:
        try:
            yield Search(index, " ", 1)
        except InputError as error:
            return str(error)
        raise AssertionError

    assert "blank" in asyncio.run(adrive(talk()))


def test_a_cancelled_task_closes_its_conversation() -> None:
    closed = []

    def talk() -> Generator[Search, Any, None]:
        try:
            yield Search(lambda query, k: [], "q", 1)
            time.sleep(0.3)
            yield Search(lambda query, k: [], "q", 1)
        finally:
            closed.append(True)

    async def cancel(after: float) -> None:
        task = asyncio.create_task(adrive(talk()))
        await asyncio.sleep(after)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel(0.1))
    assert closed == [True]


def test_a_waiting_conversation_is_closed_when_its_task_is_cancelled() -> None:
    closed = []

    class Slow:
        def __call__(self, query: str, k: int) -> list[Passage]:
            raise AssertionError

        async def acall(self, query: str, k: int) -> list[Passage]:
            await asyncio.sleep(60)
            return []

    def talk() -> Generator[Search, Any, None]:
        try:
            yield Search(Slow(), "q", 1)
        finally:
            closed.append(True)

    async def cancel() -> None:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(adrive(talk()), 0.1)

    asyncio.run(cancel())
    assert closed == [True]


def test_many_blocking_searches_run_concurrently() -> None:
    max_concurrent = threading.Barrier(64)

    def retrieve(query: str, k: int) -> list[Passage]:
        max_concurrent.wait(20)
        return [LODGE]

    async def search_all() -> list[list[Passage]]:
        search = Search(as_retriever(retrieve), "q", 1)
        return await asyncio.gather(*(search.arun() for _ in range(64)))

    assert len(asyncio.run(search_all())) == 64


def test_a_conversation_runs_under_the_callers_settings() -> None:
    seen = []

    def talk() -> Generator[Search, Any, None]:
        seen.append(dspy.settings.lm)
        dspy.settings.trace.append("seen")
        yield Search(lambda query, k: [], "q", 1)
        seen.append(dspy.settings.lm)

    trace: list[Any] = []
    with dspy.context(lm="mine", trace=trace):
        asyncio.run(adrive(talk()))
    assert (seen, trace) == (["mine", "mine"], ["seen"])


def test_a_request_for_a_call_shows_its_config() -> None:
    request = Ask("answer", dspy.Predict(AnswerIt), {}, Meter(), 1, {"temperature": 0.2, "n": 1})
    assert request.arguments["config"] == {"temperature": 0.2, "rollout_id": 1, "n": 1}
    warmer = replace(request, rollout=2)
    assert warmer.arguments["config"] == {"temperature": 1.0, "rollout_id": 2, "n": 1}


def test_dspys_history_is_limited_to_the_last_thousand_calls() -> None:
    lm = scripted_lm(lambda fields: {"answer": "Montana"})
    predictor, trace = dspy.Predict("question -> answer"), list[Any]()
    with dspy.context(lm=lm, trace=trace):
        for n in range(1_010):
            drive(ask("answer", predictor, {"question": f"Where is {n}?"}, Meter()))
    assert (len(lm.history), len(trace)) == (1_000, 1_000)
    assert "Where is 1009?" in str(lm.history[-1]["messages"])


def test_a_parse_failure_does_not_keep_a_question_in_memory() -> None:
    def failed() -> weakref.ref[Meter]:
        inputs, meter = dict.fromkeys(ReadAndJudge.input_fields, "?"), Meter()
        lm = scripted_lm(
            lambda prompt: "[[ ## additions ## ]]\n[2]\n[[ ## judgement ## ]]\nperhaps"
        )
        with dspy.context(lm=lm, adapter=dspy.ChatAdapter()), pytest.raises(StepFailed):
            drive(ask("read", dspy.Predict(ReadAndJudge), inputs, meter, required=("judgement",)))
        return weakref.ref(meter)

    forgotten = failed()
    gc.collect()
    assert forgotten() is None
