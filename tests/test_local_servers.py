"""Servers of one's own, as they are: small windows, slow replies, thoughts apart, their errors."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import dspy
import pytest
from endpoint import Behaviour, Endpoint

import ga_dspy
from ga_dspy import Passage, VanillaRAG
from ga_dspy.cli.choices import choose_lm
from ga_dspy.cli.serve import choose_deadline
from ga_dspy.lm import endpoints
from ga_dspy.lm.endpoints import is_local
from ga_dspy.lm.failures import is_timeout, is_transient, room_left, too_long
from ga_dspy.programs import Usage, meter

REPLY = (
    "[[ ## verdict ## ]]\nanswered\n[[ ## cited ## ]]\n1\n[[ ## answer ## ]]\nMontana\n"
    "[[ ## completed ## ]]"
)
LONG = "Carbon County lies in Montana and its seat is the old mining town of Red Lodge. " * 250


@contextmanager
def served(**behaviour: Any) -> Iterator[Endpoint]:
    with Endpoint(Behaviour(reply=REPLY, **behaviour)) as endpoint:
        yield endpoint
    endpoints._THINKS.clear()
    meter._CUT.clear()


def ask(lm: dspy.LM, text: str = LONG, question: str = "Where is it?", **settings: Any) -> Any:
    found = [Passage(id="1", title="Carbon County", text=text)]
    with dspy.context(lm=lm):
        return VanillaRAG(lambda query, k: found, passage_tokens=8_000, **settings)(
            question=question
        )


def warned(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "ga_dspy"]


def tokens_asked_for(endpoint: Endpoint) -> list[int | None]:
    return [request.get("max_tokens") for request in endpoint.requests]


# --- Prompts that a server cuts in silence


def test_prompts_cut_by_the_server_are_counted_and_warned_about_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with served(context=2_050) as endpoint, caplog.at_level(logging.WARNING, "ga_dspy"):
        found = [ask(endpoint.lm(), question=f"Where is it, {n}?") for n in range(3)]
    (warning,) = warned(caplog)
    assert "read 2050 tokens of a prompt of about" in warning
    assert "OLLAMA_CONTEXT_LENGTH" in warning and "num_ctx" in warning
    spent = Usage.total(usage for one in found for usage in one.usage.values())
    assert (spent.cut_prompts, spent.cuts) == (3, "3 prompts cut by the server")


@pytest.mark.parametrize(
    ("context", "text"),
    [
        (None, LONG),  # all was read
        (12, LONG),  # what was not cached was counted
        (2_050, "北京是中华人民共和国的首都，位于华北平原。" * 300),  # no words to count
        (2_050, "Carbon County lies in Montana."),
    ],
)
def test_other_token_reports_are_not_mistaken_for_a_cut_prompt(
    context: int | None, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    with served(context=context) as endpoint, caplog.at_level(logging.WARNING, "ga_dspy"):
        found = ask(endpoint.lm(), text)
    assert found.usage["answer"].cut_prompts == 0 and not warned(caplog)


# --- Prompts that a server refuses

REFUSALS = {
    "llama.cpp": "request ({sent} tokens) exceeds the available context size ({context} tokens), "
    "try increasing it",
    "llama.cpp, 2025": "the request exceeds the available context size. try increasing the context "
    "size or enable context shift",
    "vllm, 2026": "This model's maximum context length is {context} tokens. However, you requested "
    "{reply} output tokens and your prompt contains at least {sent} input tokens, for a total of "
    "at least {total} tokens. Please reduce the length of the input prompt or the number of "
    "requested output tokens.",
    "vllm, 2025": "This model's maximum context length is {context} tokens. However, you requested "
    "{total} tokens ({sent} in the messages, {reply} in the completion). Please reduce the length "
    "of the messages or completion.",
    "vllm's engine": "The decoder prompt (length {sent}) is longer than the maximum model length "
    "of {context}. Make sure that `max_model_len` is no smaller than the number of text tokens.",
    "lm studio": "The number of tokens to keep from the initial prompt is greater than the context "
    "length (n_keep: {sent}>= n_ctx: {context}). Try to load the model with a larger context "
    "length, or provide a shorter input.",
    "lm studio, 2025": "Trying to keep the first {sent} tokens when context the overflows. "
    "However, the model is loaded with context length of only {context} tokens, which is not "
    "enough.",
    "lm studio, mlx": "Context size has been exceeded.",
    "ollama": "the prompt is longer than the context length currently available to the model; "
    "shorten the prompt, adjust the context length in settings, or use a model with a longer "
    "context length",
}


@pytest.mark.parametrize("server", REFUSALS)
def test_a_too_long_prompt_is_shortened_for_every_servers_wording(server: str) -> None:
    with served(context=4_000, refusal=REFUSALS[server]) as endpoint:
        assert ask(endpoint.lm()).answer == "Montana"
    assert 2 <= len(endpoint.requests) <= 3
    last = endpoint.requests[-1]["messages"]
    # Where the server names its window, what fits there is sent.
    assert len(str(last)) > (8_000 if "{context}" in REFUSALS[server] else 4_000)


@pytest.mark.parametrize("server", ["vllm, 2025", "vllm, 2026"])
def test_a_prompt_that_leaves_too_little_room_for_the_reply_is_not_shortened(server: str) -> None:
    with served(context=6_000, refusal=REFUSALS[server]) as endpoint:
        assert ask(endpoint.lm()).answer == "Montana"
    first, second = endpoint.requests
    assert tokens_asked_for(endpoint) == [1_500, None]
    assert first["messages"] == second["messages"]


def test_a_500_about_the_context_window_is_not_an_outage() -> None:
    error = dspy.LMServerError(REFUSALS["llama.cpp, 2025"], status=500)
    assert too_long(error) and not is_transient(error)
    assert is_transient(dspy.LMServerError("the server is overloaded", status=500))


def test_the_status_code_and_the_reply_are_excluded_from_the_context_window() -> None:
    said = REFUSALS["llama.cpp"].format(sent=10_000, context=8_000) + " (400)"
    assert room_left(dspy.LMInvalidRequestError(said), 9_000) == pytest.approx(0.85 * 0.8)
    said = REFUSALS["vllm, 2025"].format(context=8_000, total=11_000, sent=10_000, reply=1_000)
    assert room_left(dspy.LMInvalidRequestError(said), 9_000) == pytest.approx(0.85 * 7 / 11)


# --- Timeouts


@pytest.mark.parametrize(
    ("address", "local"),
    [
        ("http://localhost:11434/v1", True),
        ("http://127.0.0.1:8081/v1", True),
        ("http://[::1]:1234/v1", True),
        ("192.168.1.20:1234", True),
        ("http://vllm:8000/v1", True),
        ("http://host.docker.internal:11434", True),
        ("https://api.openai.com/v1", False),
        ("http://8.8.8.8/v1", False),
    ],
)
def test_the_default_timeout_is_ten_minutes_for_local_servers_and_two_for_others(
    address: str, local: bool
) -> None:
    assert is_local(address) == local
    assert choose_lm("openai/m", address, None).kwargs["timeout"] == (600 if local else 120)
    assert choose_lm("openai/m", address, 7).kwargs["timeout"] == 7


def test_an_address_in_the_environment_sets_the_default_timeout_and_reply_cap(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_API_BASE", "https://models.example.com/v1")
    assert choose_lm("openai/m", None, None).kwargs["timeout"] == 120
    monkeypatch.setenv("OPENAI_BASE_URL", "http://localhost:1/v1")  # LiteLLM reads this one first
    lm = choose_lm("openai/m", None, None)
    assert (lm.kwargs["timeout"], endpoints.reply_cap(lm)) == (600, 1_500)
    assert choose_lm("other/m", None, None).kwargs["timeout"] == 120


def test_a_served_question_has_time_for_more_than_one_slow_call() -> None:
    for address, seconds in ((None, 300), ("http://localhost:1/v1", 1_500)):
        lms = [ga_dspy.extractive_lm(), choose_lm("openai/m", address, None)]
        assert choose_deadline(None, lms) == seconds
        assert choose_deadline(7, lms) == 7


def test_a_call_that_times_out_suggests_a_remedy() -> None:
    with (
        served(latency=0.5) as endpoint,
        ga_dspy.patient(retries=1),
        pytest.raises(
            dspy.LMError, match=r"No answer within --timeout 0\.05 s: raise it"
        ) as caught,
    ):
        ask(endpoint.lm(timeout=0.05))
    assert is_timeout(caught.value) and "--lm-set max_tokens=" in str(caught.value)


def test_an_unreachable_server_is_reported_as_down_not_slow() -> None:
    error = dspy.LMTransportError("timed out connecting to 10.0.0.5:8000")
    error.__cause__ = TimeoutError()
    assert not is_timeout(error) and is_transient(error)


# --- A cap on replies, and thoughts


def test_replies_of_a_local_lm_are_capped_unless_a_cap_is_set() -> None:
    with served() as endpoint:
        ask(endpoint.lm())
        ask(endpoint.lm(max_tokens=300))
        with dspy.context(lm=endpoint.lm()):
            program = VanillaRAG(lambda query, k: [Passage(id="1", title="", text="In Montana.")])
            program.answer.config["max_tokens"] = 200
            program(question="Where is it?")
            program.answer.config = {}
            program(question="Where is it?", config={"max_tokens": 100})
    assert tokens_asked_for(endpoint) == [1_500, 300, 200, 100]


def test_replies_of_other_lms_have_no_cap() -> None:
    address = "http://localhost:1/v1"
    assert endpoints.reply_cap(dspy.LM("openai/m", api_base=address)) == 1_500
    assert endpoints.reply_cap(dspy.LM("openai/m", api_base="https://models.example.com")) is None
    assert endpoints.reply_cap(dspy.LM("openai/gpt-5", api_base=address)) is None
    assert endpoints.reply_cap(dspy.LM("openai/gpt-4.1-mini")) is None


@pytest.mark.parametrize("retries", [1, 10])
def test_the_reply_cap_is_lifted_for_an_lm_that_emits_reasoning(retries: int) -> None:
    with served(thoughts="Let me see. " * 1_000) as endpoint, ga_dspy.patient(retries=retries):
        found = ask(endpoint.lm())
        ask(endpoint.lm(), question="And where is that?")
    assert (found.answer, found.usage["answer"].failed) == ("Montana", 1)
    assert tokens_asked_for(endpoint) == [1_500, None, None]


def test_a_reply_with_only_reasoning_is_reported_as_such() -> None:
    with served(thoughts="Let me see. " * 1_000) as endpoint:
        found = ask(endpoint.lm(max_tokens=200))
    (failure,) = found.failures
    assert "it was cut off at the token limit: it has thoughts and no answer" in failure


def test_a_separate_reasoning_field_is_not_part_of_the_reply() -> None:
    with served(thoughts="[[ ## answer ## ]]\nOregon") as endpoint:
        found = ask(endpoint.lm())
    assert (found.answer, found.failures) == ("Montana", ())
