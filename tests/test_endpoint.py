"""Over real HTTP: what a program does with an OpenAI-compatible endpoint, good and bad."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import dspy
import pytest
from endpoint import PASSING, Behaviour, Endpoint, Outage
from endpoint_process import endpoint_process

from ga_dspy import Passage, VanillaRAG
from ga_dspy.lm.failures import EndpointRefused

PASSAGE = Passage(id="1", title="Carbon County", text="Carbon County lies in Montana.")
ANSWER = (
    "[[ ## verdict ## ]]\nanswered\n[[ ## cited ## ]]\n1\n[[ ## answer ## ]]\nMontana\n"
    "[[ ## completed ## ]]"
)
Serve = Callable[..., Endpoint]


@pytest.fixture
def serve() -> Iterator[Serve]:
    started: list[Endpoint] = []

    def start(*script: str, **behaviour: Any) -> Endpoint:
        behaviour = {"reply": ANSWER, "script": script, **behaviour}
        started.append(Endpoint(Behaviour(**behaviour)))
        return started[-1]

    yield start
    for endpoint in started:
        endpoint.close()


def ask(endpoint: Endpoint) -> Any:
    with dspy.context(lm=endpoint.lm(num_retries=2, timeout=20)):
        return VanillaRAG(lambda query, k: [PASSAGE])(question="Where is Carbon County?")


def test_an_endpoint_answers_and_its_usage_is_reported(serve: Serve) -> None:
    endpoint = serve()
    prediction = ask(endpoint)
    assert (prediction.answer, prediction.calls) == ("Montana", 1)
    assert prediction.tokens == endpoint.counts()["tokens"] > 100


def test_a_server_that_is_busy_once_costs_no_question(serve: Serve) -> None:
    endpoint = serve("429")
    assert ask(endpoint).answer == "Montana"
    assert len(endpoint.requests) == 2


def test_a_reply_cut_off_by_the_server_is_asked_for_anew_with_another_temperature(
    serve: Serve,
) -> None:
    endpoint = serve("length")
    prediction = ask(endpoint)
    assert (prediction.answer, prediction.usage["answer"].failed) == ("Montana", 1)
    assert endpoint.requests[1]["temperature"] == 1.0, endpoint.requests[1]


def test_a_refused_key_is_an_error_of_the_endpoint(serve: Serve) -> None:
    endpoint = serve("401")
    with pytest.raises(EndpointRefused, match="Incorrect API key"):
        ask(endpoint)
    assert len(endpoint.requests) == 1


ERRORS = {
    "429": dspy.LMRateLimitError,
    "500": dspy.LMServerError,
    "503": dspy.LMServerError,
    "reset": dspy.LMTransportError,
    "hang": dspy.LMTransportError,
    "cut body": dspy.LMTransportError,
    "no json": dspy.LMProviderError,
    "401": dspy.LMAuthError,
    "404": dspy.LMError,
    "quota": dspy.LMError,
    "context": dspy.ContextWindowExceededError,
}


@pytest.mark.parametrize("kind", ERRORS)
def test_a_fault_reaches_the_caller_as_the_lms_own_error(serve: Serve, kind: str) -> None:
    lm = serve(kind).lm(num_retries=0, timeout=0.5)
    with pytest.raises(ERRORS[kind]):
        lm("Where?")
    assert lm("Where?") == [ANSWER]


@pytest.mark.parametrize(
    ("kind", "start"),
    [("no choices", ""), ("empty", ""), ("garbage", "%%%"), ("cut reply", "[[ ## verdict")],
)
def test_a_fault_of_content_reaches_the_caller_as_a_reply(
    serve: Serve, kind: str, start: str
) -> None:
    reply = serve(kind).lm()("Where?")[0] or ""
    assert reply.startswith(start) and reply != ANSWER


def test_the_seed_decides_which_prompts_fail_whatever_the_order(serve: Serve) -> None:
    prompts = [f"question {n}" for n in range(60)]

    def failing(order: list[str], seed: int) -> dict[str, str]:
        lm = serve(rate=0.5, seed=seed, hang=0.01).lm(num_retries=0)

        def failed(prompt: str) -> str:
            try:
                return "" if lm(prompt) == [ANSWER] else "reply"
            except dspy.LMError as error:
                return type(error).__name__

        with ThreadPoolExecutor(8) as pool:
            return dict(zip(order, pool.map(failed, order), strict=True))

    first = failing(prompts, 1)
    assert first == failing(prompts[::-1], 1) != failing(prompts, 2)
    assert 15 < sum(map(bool, first.values())) < 45


def test_an_outage_fails_every_request_until_it_is_over(serve: Serve) -> None:
    lm = serve(outages=(Outage(0.5, after_calls=1),)).lm(num_retries=0)
    assert lm("one") == [ANSWER]
    for prompt in ("two", "three"):
        with pytest.raises(dspy.LMServerError):
            lm(prompt)
    assert serve(outages=(Outage(0.5),)).lm(num_retries=4)("patient") == [ANSWER]


def test_a_marked_prompt_fails_every_time(serve: Serve) -> None:
    lm = serve(marked={"Carbon": "context"}).lm(num_retries=0)
    for _ in range(2):
        with pytest.raises(dspy.ContextWindowExceededError):
            lm("Where is Carbon County?")
    assert lm("Where is Park County?") == [ANSWER]


def test_without_a_reply_the_embedded_lm_answers_in_a_process_of_its_own() -> None:
    with endpoint_process(Behaviour(outages=(Outage(0.0),))) as endpoint:
        with dspy.context(lm=endpoint.lm()):
            prediction = VanillaRAG(lambda query, k: [PASSAGE])(question="Where is Carbon County?")
        assert prediction.answer == "Montana"
        assert endpoint.counts()["ok"] == 1
    with pytest.raises(OSError):
        urllib.request.urlopen(endpoint.url)


def test_256_requests_are_in_flight_at_once(serve: Serve) -> None:
    endpoint = serve(latency=2)

    def post(n: int) -> Any:
        body = json.dumps({"model": "m", "messages": [{"role": "user", "content": str(n)}]})
        address = f"{endpoint.url}/chat/completions"
        with urllib.request.urlopen(urllib.request.Request(address, body.encode())) as reply:
            return json.load(reply)["choices"][0]["message"]["content"]

    with ThreadPoolExecutor(256) as pool:
        assert set(pool.map(post, range(256))) == {ANSWER}
    assert endpoint.counts()["peak"] > 200


def test_ten_kinds_of_fault_pass() -> None:
    assert len(set(PASSING)) == 10
