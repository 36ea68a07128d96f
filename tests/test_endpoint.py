"""Over real HTTP: what a program does with an OpenAI-compatible endpoint, good and bad."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import dspy
import pytest

from ga_dspy import Passage, VanillaRAG

PASSAGE = Passage(id="1", title="Carbon County", text="Carbon County lies in Montana.")
ANSWER = (
    "[[ ## verdict ## ]]\nanswered\n[[ ## cited ## ]]\n1\n[[ ## answer ## ]]\nMontana\n"
    "[[ ## completed ## ]]"
)

Respond = Callable[[int], tuple[int, dict[str, str], dict[str, Any]]]


def completion(text: str, finish: str = "stop") -> dict[str, Any]:
    message = {"role": "assistant", "content": text}
    return {
        "id": "x",
        "object": "chat.completion",
        "created": 0,
        "model": "m",
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
        "usage": {"prompt_tokens": 100, "completion_tokens": 11, "total_tokens": 111},
    }


class Endpoint:
    """A local server; `respond` gets the number of the request and gives status, headers, body."""

    def __init__(self, respond: Respond) -> None:
        self.requests: list[dict[str, Any]] = []
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                size = int(self.headers["Content-Length"])
                endpoint.requests.append(json.loads(self.rfile.read(size)))
                status, headers, body = respond(len(endpoint.requests))
                sent = json.dumps(body).encode()
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(sent)))
                self.end_headers()
                self.wfile.write(sent)

            def log_message(self, format: str, *args: Any) -> None:
                """Say nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def lm(self) -> dspy.LM:
        port = self.server.server_address[1]
        return dspy.LM(
            "openai/m", api_base=f"http://127.0.0.1:{port}/v1", api_key="none", timeout=5,
            num_retries=2, cache=False,
        )  # fmt: skip


@pytest.fixture
def serve() -> Iterator[Callable[[Respond], Endpoint]]:
    started: list[Endpoint] = []

    def start(respond: Respond) -> Endpoint:
        started.append(Endpoint(respond))
        return started[-1]

    yield start
    for endpoint in started:
        endpoint.server.shutdown()
        endpoint.server.server_close()


def ask(endpoint: Endpoint) -> Any:
    with dspy.context(lm=endpoint.lm):
        return VanillaRAG(lambda query, k: [PASSAGE])(question="Where is Carbon County?")


def test_an_endpoint_answers_and_its_usage_is_reported(serve: Any) -> None:
    prediction = ask(serve(lambda n: (200, {}, completion(ANSWER))))
    assert (prediction.answer, prediction.calls, prediction.tokens) == ("Montana", 1, 111)


def test_a_server_that_is_busy_once_costs_no_question(serve: Any) -> None:
    def busy_once(n: int) -> tuple[int, dict[str, str], dict[str, Any]]:
        if n == 1:
            return 429, {"Retry-After": "0"}, {"error": {"message": "slow down"}}
        return 200, {}, completion(ANSWER)

    endpoint = serve(busy_once)
    assert ask(endpoint).answer == "Montana"
    assert len(endpoint.requests) == 2


def test_a_reply_cut_off_by_the_server_is_asked_for_anew_with_another_temperature(
    serve: Any,
) -> None:
    def cut_once(n: int) -> tuple[int, dict[str, str], dict[str, Any]]:
        return 200, {}, completion(ANSWER[:60], "length") if n == 1 else completion(ANSWER)

    endpoint = serve(cut_once)
    prediction = ask(endpoint)
    assert (prediction.answer, prediction.calls) == ("Montana", 2)
    assert endpoint.requests[1]["temperature"] == 1.0, endpoint.requests[1]


def test_a_refused_key_is_an_error_of_the_endpoint(serve: Any) -> None:
    endpoint = serve(lambda n: (401, {}, {"error": {"message": "bad key"}}))
    with pytest.raises(dspy.LMError, match="bad key"):
        ask(endpoint)
    assert len(endpoint.requests) == 1
