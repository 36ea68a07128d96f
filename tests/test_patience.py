"""What LM calls do when an endpoint fails: ask again, wait for it, or give up, by cause."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from itertools import count
from types import SimpleNamespace
from typing import Any

import dspy
import pytest
from dspy import lm15
from dspy.utils.exceptions import ContextWindowExceededError
from endpoint import PASSING, Behaviour, Endpoint

import ga_dspy
from ga_dspy import Passage, VanillaRAG
from ga_dspy.errors import InputError
from ga_dspy.lm.endpoints import endpoint_digest
from ga_dspy.lm.failures import EndpointDown, EndpointRefused, is_transient, too_long
from ga_dspy.lm.wrapper import LMWrapper, wrap
from ga_dspy.programs import DeepNote, IRCoT, IterRetGen, SearchR1, StepFailed
from ga_dspy.testing import asked_fields, scripted_lm
from ga_dspy.text import estimate_tokens

PASSAGE = Passage(id="1", title="Carbon County", text="Carbon County lies in Montana.")
ANSWER = {"verdict": "answered", "links": "[1]", "answer": "Montana"}
REPLY = (
    "[[ ## verdict ## ]]\nanswered\n[[ ## cited ## ]]\n1\n[[ ## answer ## ]]\nMontana\n"
    "[[ ## completed ## ]]"
)
RESET = ConnectionResetError("reset by peer")


@contextmanager
def served(*script: str, **settings: Any) -> Iterator[tuple[Endpoint, Any]]:
    """An endpoint that fails so in turn, then answers; and an LM of it."""
    with Endpoint(Behaviour(reply=REPLY, script=script, hang=0.3, **settings)) as endpoint:
        yield endpoint, endpoint.lm(timeout=5)


def ask(lm: dspy.BaseLM, **changes: Any) -> Any:
    with dspy.context(lm=lm), ga_dspy.patient(**changes):
        return VanillaRAG(lambda query, k: [PASSAGE])(question="Where is Carbon County?")


# --- One call


@pytest.mark.parametrize("kind", PASSING)
def test_every_form_of_transient_error_is_retried(kind: str) -> None:
    with served(kind, kind) as (endpoint, lm):
        found = ask(lm)
    assert (found.answer, found.failures) == ("Montana", ())
    assert (found.calls, found.usage["answer"].failed, len(endpoint.requests)) == (1, 2, 3)


def test_asyncio_retries_transient_errors() -> None:
    async def answer(lm: Any) -> Any:
        with dspy.context(lm=lm):
            program = VanillaRAG(lambda query, k: [PASSAGE])
            return await program.acall(question="Where is Carbon County?")

    with served("503", "reset", "no json") as (_, lm):
        found = asyncio.run(answer(lm))
    assert (found.answer, found.calls, found.usage["answer"].failed) == ("Montana", 1, 3)


def test_a_connection_error_of_a_custom_engine_is_retried() -> None:
    assert ask(scripted_lm([RESET, RESET, ANSWER])).answer == "Montana"


def test_a_bug_in_an_engine_is_not_retried() -> None:
    lm: Any = scripted_lm([ZeroDivisionError("division by zero"), ANSWER])
    with pytest.raises(dspy.LMError, match="division"):
        ask(lm)
    assert len(lm.engine.prompts) == 1


def test_pauses_grow_with_jitter(clock: Any) -> None:
    ask(scripted_lm([RESET] * 5 + [ANSWER]))
    for place, pause in enumerate(clock.pauses):
        assert 0.25 * 2**place <= pause <= 0.5 * 2**place
    assert len(set(clock.pauses)) == 5


def test_after_the_last_retry_the_lms_own_error_is_raised() -> None:
    lm: Any = scripted_lm([RESET] * 4)
    with pytest.raises(dspy.LMError, match="reset by peer") as raised:
        ask(lm, retries=3)
    assert len(lm.engine.prompts) == 4
    assert is_transient(raised.value)


def test_with_zero_retries_an_error_is_raised_at_once(clock: Any) -> None:
    with pytest.raises(dspy.LMError, match="reset by peer"):
        ask(scripted_lm([RESET]), retries=0)
    assert not clock.pauses


def test_no_attempt_starts_after_the_timeout_of_a_call() -> None:
    lm: Any = scripted_lm([RESET] * 9)
    with pytest.raises(dspy.LMError):
        ask(lm, call=1.5)
    assert len(lm.engine.prompts) <= 4


@pytest.mark.parametrize("asked", ["600", "1e9", "Tue, 01 Jan 2099 00:00:00 GMT"])
def test_a_long_retry_after_is_capped_at_a_minute(asked: str, clock: Any) -> None:
    with served("429", retry_after=asked) as (_, lm):
        assert ask(lm).answer == "Montana"
    assert clock.pauses == [60.0]


def test_a_retry_after_is_respected(clock: Any) -> None:
    with served("429", retry_after="7") as (_, lm):
        ask(lm)
    assert clock.pauses == [7.0]


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (lm15.ContextLengthError, "exceed the rate limit of 30,000 input tokens per minute"),
        (lm15.RateLimitError, "You exceeded your current quota.\nPlease retry in 20.04s."),
    ],
)
def test_a_rate_limit_is_not_mistaken_for_a_prompt_limit_or_a_quota(
    kind: Any, message: str
) -> None:
    lm: Any = scripted_lm([kind(message, status=429)] * 2 + [ANSWER])
    assert ask(lm).answer == "Montana"
    assert len(set(lm.engine.prompts)) == 1


def test_a_prompt_refused_by_a_content_filter_does_not_end_the_run() -> None:
    refused = lm15.AuthError("The model requires moderation. Your input was flagged.", status=403)
    with pytest.raises(dspy.LMAuthError) as raised:
        ask(scripted_lm([refused] * 9))
    assert not is_transient(raised.value)


@pytest.mark.parametrize(
    ("kind", "remedy"),
    [("401", "API key"), ("404", "model's name"), ("quota", "credit and quota")],
)
def test_a_permanent_error_ends_the_run_at_once_with_a_remedy(kind: str, remedy: str) -> None:
    with served(*[kind] * 9) as (endpoint, lm), pytest.raises(EndpointRefused, match=remedy):
        ask(lm)
    assert len(endpoint.requests) == 1


def test_a_too_long_prompt_is_not_an_endpoint_failure() -> None:
    with served(*["context"] * 40) as (_, lm), pytest.raises(dspy.LMError) as raised:
        ask(lm)
    assert too_long(raised.value) and not is_transient(raised.value)


def test_a_failed_step_is_transient_if_its_cause_is() -> None:
    assert is_transient(StepFailed.from_error("read", dspy.LMRateLimitError("slow down")))
    assert not is_transient(StepFailed("read", "it does not parse", "%%%"))
    assert not is_transient(dspy.LMAuthError("bad key", status=401))


def test_calls_of_a_predictors_own_lm_are_retried() -> None:
    program = VanillaRAG(lambda query, k: [PASSAGE])
    program.set_lm(scripted_lm([RESET, ANSWER]))
    with dspy.context(lm=None):
        assert program(question="Where is Carbon County?").answer == "Montana"


def test_an_invalid_duration_is_refused() -> None:
    with pytest.raises(InputError, match="outage is -1"), ga_dspy.patient(outage=-1):
        pass


def test_patience_applies_in_dspys_threads() -> None:
    lm: Any = scripted_lm([RESET] * 9)
    with dspy.context(lm=lm), ga_dspy.patient(retries=0):
        program = VanillaRAG(lambda query, k: [PASSAGE])
        dspy.Parallel(num_threads=2, disable_progress_bar=True)([(program, {"question": "Who?"})])
    assert len(lm.engine.prompts) == 1


# --- An endpoint that is down


class Down:
    """An LM of an endpoint that is down until `clock.now` is past a time; 8 calls come at once."""

    def __init__(self, clock: Any, until: float) -> None:
        self.numbers, self.together = count(), threading.Barrier(8)
        self.clock, self.until, self.failed = clock, until, 0
        self.lm = scripted_lm(self.reply)
        self.lock = threading.Lock()

    def reply(self, prompt: str) -> Any:
        if next(self.numbers) < 8:
            self.together.wait(10)
        with self.lock:
            if self.clock.now < self.until:
                self.failed += 1
                return RESET
        return "OK"


def ask_in_threads(lm: Any, **changes: Any) -> list[Any]:
    """What calls at once bring: a reply, or an error."""

    def call(n: int) -> Any:
        try:
            return wrap(lm)(f"{n}?")
        except Exception as error:  # noqa: BLE001 - looked at by the test
            return error

    with ga_dspy.patient(**changes), ThreadPoolExecutor(8) as pool:
        contexts = [copy_context() for _ in range(8)]
        return list(pool.map(lambda n: contexts[n].run(call, n), range(8)))


def test_an_outage_is_waited_out_and_logged_once(
    clock: Any, caplog: pytest.LogCaptureFixture
) -> None:
    down = Down(clock, clock.now + 600)
    assert ask_in_threads(down.lm, outage=3600) == [["OK"]] * 8
    said = [record.getMessage() for record in caplog.records if record.name == "ga_dspy"]
    assert len(said) == 2, said
    assert "all calls wait for it, at most 1 h (LMUnexpectedError" in said[0]
    assert "answers again after 1" in said[1]


def test_an_endpoint_that_is_down_is_probed_by_one_call_at_a_time(clock: Any) -> None:
    down = Down(clock, clock.now + 3000)
    assert ask_in_threads(down.lm, outage=7200) == [["OK"]] * 8
    assert down.failed < 250, down.failed


def test_an_outage_longer_than_the_patience_ends_the_run(clock: Any) -> None:
    down = Down(clock, clock.now + 600)
    found = ask_in_threads(down.lm, outage=60)
    assert all(isinstance(error, EndpointDown) for error in found), found
    assert "run the same command again" in str(found[0])


def test_a_retry_after_is_not_an_outage() -> None:
    slow = lm15.RateLimitError("slow down", status=429, retry_after=45.0)
    assert ask(scripted_lm([RESET] * 5 + [slow, ANSWER, ANSWER]), outage=30).answer == "Montana"


def test_the_next_call_tries_an_abandoned_endpoint_again(clock: Any) -> None:
    down = Down(clock, clock.now + 600)
    ask_in_threads(down.lm, outage=10)
    clock.now = down.until
    assert wrap(down.lm)("And now?") == ["OK"]


def test_the_question_timeout_excludes_outages() -> None:
    with served(*["503"] * 14) as (_, lm):
        found = ask(lm, outage=3600, question=60)
    assert (found.answer, found.failures) == ("Montana", ())


def test_a_timed_out_question_is_answered_from_what_was_read(clock: Any) -> None:
    def slow(prompt: str) -> Any:
        clock.now += 40
        return {
            "additions": "none", "reasoning": "More is needed.", "judgement": "insufficient",
            "candidate": "Montana", "next_query": f"Carbon County {clock.now}",
        }  # fmt: skip

    lm: Any = scripted_lm(slow)
    with dspy.context(lm=lm), ga_dspy.patient(question=60):
        program = ga_dspy.GraphAnchor(lambda query, k: [PASSAGE])
        found = program(question="Where is Carbon County?")
    assert found.answer == "Montana" and len(lm.engine.prompts) == 2
    assert any("the question timed out after 1 min" in why for why in found.failures)


def test_a_request_that_crashes_the_server_is_not_an_outage() -> None:
    with served(marked={"Carbon": "500"}) as (endpoint, lm), pytest.raises(dspy.LMError):
        ask(lm, outage=36_000)
    assert endpoint.counts()["500"] < 15


def test_a_single_call_detects_an_outage(clock: Any) -> None:
    began = clock.now
    with served(*["503"] * 99) as (_, lm), pytest.raises(EndpointDown):
        ask(lm)
    assert clock.now - began < 70


def test_a_slow_server_is_distinguished_from_one_that_is_down(
    clock: Any, caplog: pytest.LogCaptureFixture
) -> None:
    slow = pytest.raises(EndpointDown, match="answered no call in time")
    with served(latency=0.5) as (_, lm), slow as caught:
        ask(lm.copy(timeout=0.05), outage=60)
    said = [record.getMessage() for record in caplog.records if record.name == "ga_dspy"]
    assert len(said) == 1
    for line in (*said, str(caught.value)):
        assert "No answer within --timeout 0.05 s: raise it" in line and "down" not in line


def test_random_faults_do_not_keep_the_breaker_open(clock: Any) -> None:
    began = clock.now
    with served(rate=0.3, kinds=("500", "503", "429", "reset")) as (_, lm):
        for n in range(150):
            assert wrap(lm)(f"{n}?") == [REPLY]
    assert clock.now - began < 150


def test_a_cancelled_task_passes_the_probe_to_another(clock: Any) -> None:
    async def cancelled_then_another(lm: Any) -> Any:
        with ga_dspy.patient(outage=0), pytest.raises(EndpointDown):
            await wrap(lm).acall("first")
        trial = asyncio.create_task(wrap(lm).acall("second"))
        await asyncio.sleep(0.1)
        trial.cancel()
        return await wrap(lm).acall("third")

    with served(*["503"] * 7, latency=0.3) as (_, lm):
        assert asyncio.run(cancelled_then_another(lm)) == [REPLY]


# --- Servers told apart


def test_endpoints_are_identified_by_address_without_credentials(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def digest(address: str | None) -> str | None:
        return endpoint_digest(dspy.LM("openai/m", api_base=address))

    assert digest("http://a:1/v1") == digest("http://me:secret@A:1/v1/")
    assert len({digest(f"http://{host}/v1") for host in ("a:1", "a:2", "b:1")}) == 3
    assert len(digest("http://a:1/v1") or "") == 12
    assert digest(None) is None
    monkeypatch.setenv("OPENAI_API_BASE", "http://a:1/v1")
    assert digest(None) == digest("http://a:1/v1")
    assert endpoint_digest(ga_dspy.extractive_lm()) is None


def test_cached_replies_are_not_shared_between_servers(tmp_path: Any) -> None:
    dspy.configure_cache(enable_disk_cache=False, enable_memory_cache=True)
    with Endpoint(Behaviour(reply="one")) as first, Endpoint(Behaviour(reply="two")) as second:
        lms = [endpoint.lm(cache=True) for endpoint in (first, second, first, second)]
        assert [wrap(lm)("Which?") for lm in lms] == [["one"], ["two"]] * 2
        assert (len(first.requests), len(second.requests)) == (1, 1)


def test_an_lm_wrapper_delegates_everything_except_calls() -> None:
    lm = dspy.LM("openai/m", temperature=0.3)
    patient = wrap(lm)
    assert isinstance(patient.copy(temperature=0.5), LMWrapper)
    assert patient.copy(temperature=0.5).kwargs["temperature"] == 0.5
    assert (patient.engine, patient.kwargs, wrap(patient)) == ("auto", lm.kwargs, patient)


def test_the_history_stays_with_the_wrapped_lm() -> None:
    lm = scripted_lm(["Hello."])
    with dspy.context(settings=SimpleNamespace()):
        wrap(lm)("Hi")
    assert len(lm.history) == 1


def test_retrying_recovers_a_question_that_failed_on_garbage() -> None:
    dspy.configure_cache(enable_disk_cache=False, enable_memory_cache=True)
    with served(*["garbage"] * 4) as (endpoint, _):
        lm = endpoint.lm(cache=True)
        first, second, third = ask(lm), ask(lm), ask(lm)
        assert (first.answer, second.answer, third.answer) == ("", "Montana", "Montana")
        assert len(endpoint.requests) == 5
    assert (second.calls, second.usage["answer"].failed) == (1, 4)


# --- Prompts that are too long

NOISE = "The weather of the county was mild and the harvest good. " * 40
LONG = [Passage(id=f"n{n}", title=f"Almanac {n}", text=NOISE) for n in range(8)]
SIX = [ga_dspy.GraphAnchor, VanillaRAG, IRCoT, IterRetGen, SearchR1, DeepNote]
REPLIES = {
    "verdict": "answered", "links": "[5]", "answer": "Montana", "guess": "Montana",
    "additions": "none", "reasoning": "Stated.", "judgement": "sufficient", "candidate": "Montana",
    "next_query": "", "thought": "So the answer is: Montana.", "notes": "It lies in Montana. [5]",
    "better": "new",
}  # fmt: skip


def window(tokens: int) -> Any:
    """An LM with a context window of so many tokens."""

    def reply(prompt: str) -> Any:
        if estimate_tokens(prompt) > tokens:
            said = f"maximum context length is {tokens} tokens, found {estimate_tokens(prompt)}"
            return ContextWindowExceededError(message=said)
        found = "Almanac 0" in prompt or "transcript" not in prompt
        turn = {"query": "" if found else "Carbon County", "answer": "Montana" if found else ""}
        return {name: {**REPLIES, **turn}.get(name, "") for name in asked_fields(prompt)}

    return scripted_lm(reply)


@pytest.mark.parametrize("program", SIX)
def test_a_too_long_prompt_is_shortened_to_what_is_near_the_question(program: Any) -> None:
    lm, found = window(3000), [*LONG[:4], PASSAGE, *LONG[4:]]
    with dspy.context(lm=lm):
        answered = program(lambda query, k: found, k=9)(question="Where does Carbon County lie?")
    assert (answered.answer, answered.failures) == ("Montana", ())
    assert sum(cost.failed for cost in answered.usage.values()) >= 1
    short = [prompt for prompt in lm.engine.prompts if estimate_tokens(prompt) <= 3000]
    assert any("Carbon County lies in Montana." in prompt for prompt in short)


def test_a_prompt_that_stays_too_long_is_a_named_failure_after_one_retry() -> None:
    lm = window(10)
    with pytest.raises(dspy.LMError, match="context length is 10 tokens"):
        ask(lm)
    assert len(lm.engine.prompts) == 2


def test_changing_the_timeout_repeats_no_call() -> None:
    dspy.configure_cache(enable_disk_cache=False, enable_memory_cache=True)
    with served() as (endpoint, _):
        for timeout in (5, 60, 120):
            assert ask(endpoint.lm(cache=True, timeout=timeout)).answer == "Montana"
        assert len(endpoint.requests) == 1


def test_a_missing_api_key_is_named_with_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with dspy.context(lm=dspy.LM("openai/gpt-4.1-mini", cache=False)), pytest.raises(
        EndpointRefused, match=r"^no API key for openai/gpt-4.1-mini; set OPENAI_API_KEY in"
    ):  # fmt: skip
        ga_dspy.programs.ClosedBook(lambda query, k: [])(question="Who?")
