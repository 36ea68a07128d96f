"""The service, asked over real HTTP."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dspy
import httpx
import openai
import pytest
from endpoint import Behaviour, Endpoint, Outage
from fastapi import FastAPI
from hypothesis import HealthCheck, Phase, given, settings
from openai.types.chat import ChatCompletionMessageParam

import ga_dspy
from ga_dspy.cli.choices import Asking, choose_lms
from ga_dspy.cli.serve import ServerOptions, mcp
from ga_dspy.demo import DEMO_QUESTION, corpus
from ga_dspy.serve import Limits, Service, make_app, make_server
from ga_dspy.serve.api import Answer
from ga_dspy.testing import ScriptedEngine, scripted_lm

KEY = "a-key-of-this-test"
STREAM = {"Accept": "text/event-stream"}


@pytest.fixture(scope="module")
def index() -> ga_dspy.Index:
    return ga_dspy.Index.from_passages(corpus())


@contextmanager
def serving(app: Any, limits: Limits | None = None, **options: Any) -> Iterator[str]:
    """An app on a port of its own, in a thread."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
    server = make_server(app, limits or Limits(), log_level="critical", **options)
    thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    server.should_exit = True
    thread.join(20)


@contextmanager
def asked(
    index: Any, lm: dspy.LM | None = None, limits: Limits | None = None,
    program: Any = ga_dspy.GraphAnchor, **access: Any,
) -> Iterator[httpx.Client]:  # fmt: skip
    """A client of a service over an index."""
    with dspy.context(lm=lm or ga_dspy.extractive_lm()):
        service = Service(program(index), limits)
    app = make_app(service, **access)
    with serving(app, service.limits) as url, httpx.Client(base_url=url, timeout=60) as to:
        yield to


@pytest.fixture(scope="module")
def client(index: ga_dspy.Index) -> Iterator[httpx.Client]:
    with asked(index, limits=Limits(per_minute=0)) as client:
        yield client


def events_of(reply: httpx.Response) -> list[tuple[str, dict[str, Any]]]:
    found = []
    for block in reply.text.strip().split("\n\n"):
        name, data = block.split("\n")
        found.append((name.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
    return found


class Waiting:
    """An LM's engine that never answers, and knows how many of its calls were given up."""

    def __init__(self) -> None:
        self.begun = self.given_up = 0
        engines = {"engine": ScriptedEngine([]), "async_engine": self}
        self.lm = dspy.LM("ga-dspy/waiting", cache=False, num_retries=0, **engines)

    async def complete(self, request: Any) -> Any:
        self.begun += 1
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            self.given_up += 1
            raise


def until(is_so: Callable[[], bool], seconds: float = 10.0) -> None:
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end, "it did not come to it"
        time.sleep(0.02)


def test_an_answer_is_the_programs_prediction_with_an_id(
    client: httpx.Client, index: ga_dspy.Index
) -> None:
    with dspy.context(lm=ga_dspy.extractive_lm()):
        own = ga_dspy.GraphAnchor(index)(question=DEMO_QUESTION).to_dict()
    record = client.post("/ask", json={"question": DEMO_QUESTION}).json()
    id = record.pop("id")
    assert record == {**own, "question": DEMO_QUESTION}
    assert Answer.model_validate({**record, "id": id}).evidence[0].quote
    assert client.get(f"/runs/{id}").json() == {**record, "id": id}


def test_a_stream_reports_each_step_and_ends_with_the_answer(client: httpx.Client) -> None:
    reply = client.post("/ask", json={"question": DEMO_QUESTION}, headers=STREAM)
    assert reply.headers["content-type"].startswith("text/event-stream")
    told = events_of(reply)
    record = told[-1][1]["data"]
    assert [name for name, _ in told][:3] == ["search", "passages", "step"]
    # The graph gave the answer, so no answer step was called, and no "answering" event sent.
    assert [name for name, _ in told][-2:] == ["step", "answer"]
    assert [event["data"] for name, event in told if name == "step"] == record["steps"]
    assert client.get(f"/runs/{record['id']}").json() == record


def test_conditions_apply_to_questions_and_searches() -> None:
    passages = [
        ga_dspy.Passage(id=lang, text=f"The {lang} bridge is red.", metadata={"lang": lang})
        for lang in ("en", "de")
    ]
    index = ga_dspy.Index.from_passages(passages, kind="sparse")
    with asked(index) as client:
        where = {"where": {"lang": "de"}}
        found = client.post("/search", json={"query": "red bridge", **where}).json()
        assert [passage["id"] for passage in found] == ["de"]
        read = client.post("/ask", json={"question": "Which bridge is red?", **where}).json()
        assert [passage["id"] for passage in read["passages"]] == ["de"]
        wrong = client.post("/ask", json={"question": "x", "where": {"a": {"~": 1}}})
        assert wrong.status_code == 422


def test_an_error_states_what_was_found_what_was_expected_and_the_remedy() -> None:
    with asked(lambda query: ["Bern is in Switzerland."]) as client:
        refused = client.post("/ask", json={"question": "x", "where": {"a": 1}})
    assert refused.status_code == 400
    assert refused.headers["content-type"] == "application/problem+json"
    problem = refused.json()
    assert "conditions" in problem["found"] and problem["expected"] and problem["remedy"]


def test_a_request_can_only_narrow_the_access_scope_of_the_program() -> None:
    passages = [ga_dspy.Passage(id=n, text=f"Red {n}.", metadata={"n": n}) for n in ("a", "b")]
    index = ga_dspy.Index.from_passages(passages, kind="sparse")
    with asked(index.only({"n": "b"})) as client:
        found = client.post("/search", json={"query": "red"}).json()
        wider = client.post("/search", json={"query": "red", "where": {"n": ["a", "b"]}}).json()
        other = client.post("/search", json={"query": "red", "where": {"n": "a"}}).json()
    assert [passage["id"] for passage in (*found, *wider)] == ["b", "b"] and other == []


def test_only_the_latest_records_are_kept(index: ga_dspy.Index) -> None:
    with asked(index, limits=Limits(records=2)) as client:
        ids = [client.post("/ask", json={"question": f"Who is {n}?"}).json()["id"] for n in "abc"]
        assert [client.get(f"/runs/{id}").status_code for id in ids] == [404, 200, 200]


def test_health_readiness_and_metrics_are_served(client: httpx.Client) -> None:
    assert client.get("/healthz").json() == {"status": "alive"}
    assert client.get("/readyz").json() == {"status": "ready"}
    client.post("/ask", json={"question": "Who was Huygens?"})
    counts = client.get("/metrics").text
    assert 'ga_dspy_question_seconds_count{outcome="answered"}' in counts
    assert "ga_dspy_questions_in_progress 0.0" in counts


def test_a_service_that_cannot_search_is_not_ready() -> None:
    def broken(query: str, k: int) -> list[str]:
        raise ConnectionError("the store is away; password=hunter2hunter2")

    with asked(broken) as client:
        reply = client.get("/readyz")
        assert reply.status_code == 503 and reply.headers["retry-after"]
        assert "away" in reply.text and "hunter2" not in reply.text


def test_endpoint_failures_and_internal_errors_have_different_status_codes(
    index: ga_dspy.Index,
) -> None:
    def status(lm: dspy.LM) -> tuple[int, str]:
        with ga_dspy.patient(retries=0), asked(index, lm) as client:
            reply = client.post("/ask", json={"question": DEMO_QUESTION})
            return reply.status_code, reply.json()["detail"]

    with Endpoint(Behaviour(outages=(Outage(60),))) as down:
        assert status(down.lm())[0] == 503
    with Endpoint(Behaviour(outages=(Outage(60, kind="401"),))) as closed:
        code, detail = status(closed.lm())
        assert code == 502 and "API key" in detail


def test_an_unexpected_error_is_logged_but_not_shown_to_the_client(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken(query: str, k: int) -> list[str]:
        raise KeyError("inner matters")

    with asked(broken) as client:
        for headers in ({}, STREAM):
            reply = client.post("/ask", json={"question": "Who?"}, headers=headers)
            assert "unexpected error" in reply.text and "inner matters" not in reply.text
        assert client.post("/ask", json={"question": "Who?"}).status_code == 500
    told = [record.exc_info for record in caplog.records if record.name == "ga_dspy"]
    assert len(told) == 3 and all(told)


def test_the_connection_survives_an_unexpected_error() -> None:
    def broken(query: str, k: int) -> list[str]:
        raise KeyError(query)

    addresses = set()
    with asked(broken) as client:
        for _ in range(3):
            reply = client.post("/ask", json={"question": "Who?"})
            assert reply.status_code == 500
            addresses.add(reply.extensions["network_stream"].get_extra_info("client_addr"))
            time.sleep(0.1)  # for the server to close it
    assert len(addresses) == 1


def test_a_question_times_out_after_the_deadline(index: ga_dspy.Index) -> None:
    waiting = Waiting()
    with asked(index, waiting.lm, Limits(deadline=0.3)) as client:
        assert client.post("/ask", json={"question": "Who?"}).status_code == 504
        told = events_of(client.post("/ask", json={"question": "Who?"}, headers=STREAM))
        assert told[-1][0] == "error" and told[-1][1]["status"] == 504
        assert 'outcome="TimeoutError"} 2.0' in client.get("/metrics").text
    assert waiting.given_up == 2


@pytest.mark.parametrize("headers", [{}, STREAM], ids=["waiting", "streaming"])
def test_a_client_disconnect_cancels_its_question(
    index: ga_dspy.Index, headers: dict[str, str]
) -> None:
    waiting, body = Waiting(), json.dumps({"question": "Who?"})
    sent = {"Host": "localhost", "Content-Type": "application/json", **headers}
    lines = [f"{name}: {value}" for name, value in sent.items()]
    head = "\r\n".join(("POST /ask HTTP/1.1", *lines, f"Content-Length: {len(body)}"))
    with asked(index, waiting.lm) as client:
        address = client.base_url.host, client.base_url.port or 0
        with socket.create_connection(address) as connection:
            connection.sendall(f"{head}\r\n\r\n{body}".encode())
            until(lambda: waiting.begun == 1)
        until(lambda: waiting.given_up == 1)
        until(lambda: "ga_dspy_questions_in_progress 0.0" in client.get("/metrics").text)


def test_questions_over_the_concurrency_limit_are_refused_until_one_finishes(
    index: ga_dspy.Index,
) -> None:
    waiting = Waiting()
    with asked(index, waiting.lm, Limits(max_concurrent=1, deadline=1.5)) as client:
        first = threading.Thread(
            target=client.post, args=("/ask",), kwargs={"json": {"question": "a"}}
        )
        first.start()
        until(lambda: waiting.begun == 1)
        refused = client.post("/ask", json={"question": "b"})
        assert refused.status_code == 429 and int(refused.headers["retry-after"]) > 0
        first.join()
        assert client.post("/ask", json={"question": "b"}).status_code == 504


def test_the_record_names_the_lm_of_each_step(index: ga_dspy.Index) -> None:
    program = ga_dspy.GraphAnchor(index)
    program.answer.lm = dspy.LM("openai/big", api_base="http://127.0.0.1:1/v1", api_key=KEY)
    with dspy.context(lm=ga_dspy.extractive_lm()):
        app = make_app(Service(program))
    with serving(app) as url:
        (model,) = httpx.get(f"{url}/v1/models").json()["data"]
    assert model["lms"] == {"read": "ga-dspy/extractive", "answer": "openai/big"}


def test_a_request_without_a_valid_key_is_refused(index: ga_dspy.Index) -> None:
    with asked(index, keys=[KEY.encode(), b"another-key-of-it"]) as client:
        ask = {"json": {"query": "Titan"}}
        refused = client.post("/search", **ask)  # type: ignore[arg-type]
        assert refused.status_code == 401 and refused.headers["www-authenticate"] == "Bearer"
        assert "X-API-Key" in refused.json()["expected"]
        assert KEY not in refused.text
        for headers in ({"X-API-Key": KEY}, {"Authorization": f"Bearer {KEY}"}):
            assert client.post("/search", json={"query": "Titan"}, headers=headers).is_success
        wrong = {"X-API-Key": KEY[:-1]}
        for method, path in (("GET", "/metrics"), ("GET", "/runs/1"), ("GET", "/v1/models"),
                             ("POST", "/ask"), ("POST", "/v1/chat/completions")):  # fmt: skip
            assert client.request(method, path, headers=wrong).status_code == 401, path
        assert all(client.get(path).is_success for path in ("/", "/healthz", "/readyz"))


def test_each_key_has_its_own_rate_limit(index: ga_dspy.Index, rate_limit_clock: Any) -> None:
    keys = [f"the-key-of-caller-{n}" for n in (1, 2)]
    with asked(index, limits=Limits(per_minute=3), keys=[k.encode() for k in keys]) as client:
        codes = [
            client.post("/search", json={"query": "x"}, headers={"X-API-Key": key}).status_code
            for key in [keys[0]] * 4 + [keys[1]]
        ]
        assert codes == [200, 200, 200, 429, 200]
        refused = client.get("/metrics", headers={"X-API-Key": keys[0]})
        rate_limit_clock.sleep(int(refused.headers["retry-after"]))
        assert client.get("/metrics", headers={"X-API-Key": keys[0]}).status_code == 200


def test_a_too_large_body_is_refused_with_or_without_content_length(index: ga_dspy.Index) -> None:
    def pieces() -> Iterator[bytes]:
        yield b'{"question": "'
        for _ in range(20):
            yield b"x" * 100
        yield b'"}'

    headers = {"Content-Type": "application/json"}
    with asked(index, limits=Limits(body=1000)) as client:
        assert client.post("/ask", json={"question": "x" * 1000}).status_code == 413
        assert client.post("/ask", content=pieces(), headers=headers).status_code == 413
        assert client.post("/ask", json={"question": "x"}).status_code == 200


def test_errors_do_not_echo_long_input(client: httpx.Client) -> None:
    long = "x" * 9_000
    said = [{"role": "user", "content": "Who?"}]
    for refused in (
        client.get(f"/runs/{long}"),
        client.post("/search", json={"query": "x", "where": {long: {"~": 1}}}),
        client.post("/v1/chat/completions", json={"model": long, "messages": said}),
    ):
        assert refused.status_code in (404, 422) and len(refused.content) < 2_000


@pytest.mark.usefixtures("rate_limit_clock")
def test_routes_without_a_key_are_rate_limited(index: ga_dspy.Index) -> None:
    with asked(index, limits=Limits(per_minute=3), keys=[KEY.encode()]) as client:
        codes = [client.get(path).status_code for path in ("/", "/readyz", "/readyz", "/readyz")]
        assert codes == [200, 200, 200, 429]
        assert client.get("/healthz").status_code == 200
        assert client.get("/metrics", headers={"X-API-Key": KEY}).status_code == 200


def test_a_key_may_have_non_ascii_letters(index: ga_dspy.Index) -> None:
    key = "schlüssel-für-den-test".encode()
    with asked(index, keys=[key]) as client:
        assert client.get("/metrics", headers={b"X-API-Key": key}).status_code == 200


def test_a_mounted_app_requires_a_key_for_the_same_routes(index: ga_dspy.Index) -> None:
    with dspy.context(lm=ga_dspy.extractive_lm()):
        outer = FastAPI()
        outer.mount("/qa", make_app(Service(ga_dspy.GraphAnchor(index)), keys=[KEY.encode()]))
    with serving(outer) as url:
        free = [httpx.get(f"{url}/qa{path}").status_code for path in ("/", "/healthz", "/readyz")]
        assert free == [200] * 3 and httpx.get(f"{url}/qa/about").status_code == 401


def test_another_sites_page_cannot_ask_on_behalf_of_a_visitor(client: httpx.Client) -> None:
    stranger = {"Host": "attacker.example"}
    ask = {"question": "Who?"}
    assert client.post("/ask", json=ask, headers=stranger).status_code == 403
    # What a page may send elsewhere without being asked about it.
    plain = {"Content-Type": "text/plain"}
    assert client.post("/ask", content=json.dumps(ask), headers=plain).status_code == 422
    assert "access-control-allow-origin" not in client.options("/ask").headers


def test_the_page_may_load_nothing_and_connect_only_to_its_own_host(client: httpx.Client) -> None:
    page = client.get("/")
    assert "default-src 'none'" in page.text and "connect-src 'self'" in page.text
    assert page.headers["content-security-policy"] == "frame-ancestors 'none'"
    assert "unsafe" not in page.text[: page.text.index("</head>")].partition("<style")[0]


def test_the_openapi_schema_describes_the_responses(client: httpx.Client) -> None:
    import schemathesis  # here, for it takes seconds
    from schemathesis.specs.openapi.checks import positive_data_acceptance

    schema: Any = schemathesis.openapi.from_url(f"{client.base_url}/openapi.json")
    operations = [found.ok() for found in schema.get_all_operations()]
    assert len(operations) == 16
    quick = settings(
        max_examples=8, derandomize=True, phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    for operation in operations:

        @quick
        @given(case=operation.as_strategy())
        def check(case: Any) -> None:
            # No schema says that a conversation has a question, or which fields passages have.
            may_refuse = case.path in ("/v1/chat/completions", "/ask", "/search")
            unchecked = [positive_data_acceptance] if may_refuse else []
            case.call_and_validate(excluded_checks=unchecked, timeout=60)

        check()


# --- OpenAI's API


def chatting(client: httpx.Client) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{client.base_url}/v1", api_key="none", max_retries=0)


def said(*texts: str) -> list[ChatCompletionMessageParam]:
    """A conversation in turns."""
    turns: list[ChatCompletionMessageParam] = []
    for n, text in enumerate(texts):
        turns.append(
            {"role": "assistant", "content": text} if n % 2 else {"role": "user", "content": text}
        )
    return turns


def test_openais_client_gets_the_answer_with_its_sources(client: httpx.Client) -> None:
    with chatting(client) as chat:
        (model,) = chat.models.list()
        found = chat.chat.completions.create(model=model.id, messages=said(DEMO_QUESTION))
    text = found.choices[0].message.content or ""
    record = client.get(f"/runs/{found.run}").json()  # type: ignore[attr-defined]
    assert text.startswith(record["answer"]) and "\n1. " in text
    assert record["evidence"] == found.evidence  # type: ignore[attr-defined]
    assert all(link["quote"] in text for link in record["evidence"])
    assert found.usage is not None and found.usage.total_tokens == record["tokens"]


def test_the_openai_clients_stream_has_the_steps_as_reasoning(client: httpx.Client) -> None:
    with chatting(client) as chat:
        whole = chat.chat.completions.create(model="ga-dspy", messages=said(DEMO_QUESTION))
        stream = chat.chat.completions.create(
            model="ga-dspy", messages=said(DEMO_QUESTION), stream=True
        )
        parts = list(stream)
    deltas = [part.choices[0].delta for part in parts]
    text = "".join(delta.content or "" for delta in deltas)
    thoughts = "".join(getattr(delta, "reasoning_content", None) or "" for delta in deltas)
    assert text == whole.choices[0].message.content
    assert thoughts.startswith("step 1: searching")
    assert parts[-1].choices[0].finish_reason == "stop" and parts[-1].usage is not None


def test_a_follow_up_question_is_rewritten_from_the_conversation(index: ga_dspy.Index) -> None:
    def answer(prompt: str) -> dict[str, str]:
        if "standalone_question" in prompt:
            assert "Who built the lander?" in prompt and "Who is Huygens?" in prompt
            return {"standalone_question": "Where was Christiaan Huygens born?"}
        return {"additions": "", "reasoning": "r", "judgement": "sufficient", "candidate": "",
                "next_query": "", "answer": "Hague", "verdict": "answered"}  # fmt: skip

    with asked(index, scripted_lm(answer)) as client, chatting(client) as chat:
        turns = said("Who built the lander?", "ESA.", "Who is Huygens?", "A man.", "Born where?")
        found = chat.chat.completions.create(model="ga-dspy", messages=turns)
        record = client.get(f"/runs/{found.run}").json()  # type: ignore[attr-defined]
    assert record["question"] == "Where was Christiaan Huygens born?"
    assert record["usage"]["rewrite"]["calls"] == 1
    assert record["calls"] == sum(step["calls"] for step in record["usage"].values())


def test_markup_in_a_passage_is_escaped_in_chat_answers() -> None:
    title = "Berg [a]\n\n[a]: http://c.example"
    text = "Anna Berg built ![x](http://attacker.example/?q=1) <img src=x> [a](http://b.example)."
    index = ga_dspy.Index.from_passages(
        [ga_dspy.Passage(id="1", title=title, text=text)], kind="sparse"
    )
    with asked(index) as client, chatting(client) as chat:
        found = chat.chat.completions.create(model="x", messages=said("Who built x?"))
        shown = found.choices[0].message.content or ""
    assert "attacker.example" in str(found.evidence)  # type: ignore[attr-defined]
    assert all(line[:3] in ("1. ", "2. ") for line in shown.splitlines()[2:])
    assert "](" not in shown and "]:" not in shown and "![" not in shown and "<img" not in shown


def test_a_conversation_without_a_question_is_an_error_with_a_remedy(client: httpx.Client) -> None:
    with chatting(client) as chat, pytest.raises(openai.BadRequestError, match="no text"):
        chat.chat.completions.create(model="x", messages=[{"role": "system", "content": "Hi"}])


# --- The command


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("serve") / "index"
    ga_dspy.Index.build(corpus(), folder, kind="sparse")
    return folder


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@contextmanager
def begun(folder: Path, port: int, *more: str) -> Iterator[subprocess.Popen[str]]:
    main = "from ga_dspy.cli import main; main()"
    words = [sys.executable, "-c", main, "serve", "--index", str(folder), *more]
    with subprocess.Popen(
        [*words, "--port", str(port)], stderr=subprocess.PIPE, text=True,
        env={**os.environ, "GA_DSPY_API_KEY": KEY},
    ) as process:  # fmt: skip
        try:
            yield process
        finally:
            process.kill()


def is_up(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_100_concurrent_questions_are_all_answered_during_a_graceful_shutdown(
    tmp_path: Path,
) -> None:
    index = ga_dspy.Index.build([*corpus()][:4], tmp_path / "index", kind="sparse")
    wanted = [f"In which city was the maker of {passage.title} born?" for passage in index]
    with dspy.context(lm=ga_dspy.extractive_lm()):
        program = ga_dspy.GraphAnchor(index)
        alone = {text: {**program(question=text).to_dict(), "question": text} for text in wanted}
    port, headers = free_port(), {"X-API-Key": KEY}

    def counted(counts: str, name: str) -> float:
        return sum(float(line.split()[1]) for line in counts.splitlines() if line.startswith(name))

    async def ask(process: subprocess.Popen[str]) -> list[httpx.Response]:
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=120, limits=limits
        ) as to:
            asked = [asyncio.create_task(to.post("/ask", json={"question": text}))
                     for text in wanted * 25]  # fmt: skip
            begun = going = 0.0
            while begun < len(asked):
                counts = (await to.get("/metrics")).text
                going = counted(counts, "ga_dspy_questions_in_progress ")
                begun = going + counted(counts, "ga_dspy_question_seconds_count")
            assert going > len(asked) / 2
            process.send_signal(signal.SIGTERM)
            return await asyncio.gather(*asked)

    with begun(tmp_path / "index", port) as process:
        until(lambda: is_up(port), 60)
        replies = asyncio.run(ask(process))
        assert process.wait(20) == 0
        assert KEY not in (process.stderr.read() if process.stderr else "")
    assert {reply.status_code for reply in replies} == {200}
    records = [reply.json() for reply in replies]
    assert len({record.pop("id") for record in records}) == 100
    assert records == [alone[text] for text in wanted] * 25


def test_the_lm_cache_of_a_server_is_limited_to_a_thousand_replies(
    index: ga_dspy.Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dspy, "cache", dspy.cache)  # restored at the end
    dspy.configure_cache(enable_disk_cache=False)
    asking = Asking(ga_dspy.VanillaRAG(index), "vanilla-rag", choose_lms(), index)
    caches: list[Any] = []
    server = SimpleNamespace(run=lambda: caches.append(dspy.cache))
    monkeypatch.setattr("ga_dspy.serve.agents.make_mcp", lambda service: server)
    with dspy.context(lm=ga_dspy.extractive_lm()):
        mcp(asking, ServerOptions())
    (cache,) = caches
    assert cache.memory_cache.maxsize == 1_000
    assert not cache.enable_disk_cache


@pytest.mark.parametrize(
    ("key", "options", "said"),
    [
        ("", ["--host", "0.0.0.0"], "is not set"),
        ("", ["--api-key-env", "NOT_THERE"], "NOT_THERE is not set"),
        ("short", [], "holds a short key"),
    ],
)
def test_a_service_open_to_the_network_without_a_key_is_not_started(
    key: str,
    options: list[str],
    said: str,
    folder: Path,
    tmp_path: Path,
    command: Callable[..., subprocess.CompletedProcess[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GA_DSPY_API_KEY", key)
    done = command("serve", "--index", folder, *options, cwd=tmp_path)
    assert done.returncode == 2 and said in done.stderr and "--open" in done.stderr
