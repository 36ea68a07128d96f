"""Over real HTTP: what a program does with an OpenAI-compatible endpoint, good and bad."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import dspy
import pytest
from endpoint import Behaviour, Endpoint

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


def test_a_temporarily_busy_server_fails_no_question(serve: Serve) -> None:
    endpoint = serve("429")
    assert ask(endpoint).answer == "Montana"
    assert len(endpoint.requests) == 2


def test_a_truncated_reply_is_requested_again_at_another_temperature(
    serve: Serve,
) -> None:
    endpoint = serve("length")
    prediction = ask(endpoint)
    assert (prediction.answer, prediction.usage["answer"].failed) == ("Montana", 1)
    assert endpoint.requests[1]["temperature"] == 1.0, endpoint.requests[1]


def test_a_rejected_key_is_an_endpoint_error(serve: Serve) -> None:
    endpoint = serve("401")
    with pytest.raises(EndpointRefused, match="Incorrect API key"):
        ask(endpoint)
    assert len(endpoint.requests) == 1
