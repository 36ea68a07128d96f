"""What a client can make the service do: every route and every connection has bounds."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import dspy
import httpx
import pytest
import uvicorn
from test_mcp import server_of
from test_serve import KEY, asked, serving, until

import ga_dspy
from ga_dspy.errors import InputError
from ga_dspy.serve import Guard, Limits, Service, make_app, make_server
from ga_dspy.serve.agents import make_http_app, make_mcp

PASSAGES = [ga_dspy.Passage(id="1", title="Bridge", text="The bridge is red.")]
SAID = [{"role": "user", "content": "Which bridge is red?"}]
CALL = {
    "jsonrpc": "2.0", "id": 1, "method": "tools/call",
    "params": {"name": "search", "arguments": {"query": "bridge"}},
}  # fmt: skip
ROUTES: list[tuple[str, str, Any]] = [
    ("POST", "/ask", {"question": "Which bridge is red?"}),
    ("POST", "/search", {"query": "bridge"}),
    ("POST", "/v1/chat/completions", {"messages": SAID}),
    ("POST", "/v1/chat/completions", {"messages": SAID, "stream": True}),
    ("POST", "/mcp", CALL),
    ("GET", "/v1/models", None),
    ("GET", "/runs/1", None),
    ("GET", "/documents", None),
    ("DELETE", "/documents/1", None),
    ("POST", "/sync", None),
    ("GET", "/metrics", None),
    ("GET", "/openapi.json", None),
    ("GET", "/", None),
    ("GET", "/readyz", None),
]
OK = (200, 403, 404)  # no key of these tests may write
HEADERS = {"Accept": "application/json, text/event-stream"}


@pytest.fixture(scope="module")
def index() -> ga_dspy.Index:
    return ga_dspy.Index.from_passages(PASSAGES, kind="sparse")


def apps(index: Any, limits: Limits, lm: Any = None, **access: Any) -> dict[bool, Any]:
    """The service and, at True, the MCP server over the same."""
    with dspy.context(lm=lm or ga_dspy.extractive_lm()):
        service = Service(ga_dspy.GraphAnchor(index), limits)
    return {
        False: make_app(service, **access),
        True: make_http_app(server_of(index), limits, **access),
    }


@contextmanager
def both(index: Any, limits: Limits, **access: Any) -> Iterator[Any]:
    """Ask a route of the service or of the MCP server, from the address in X-Forwarded-For."""
    with ExitStack() as stack:
        clients = {}
        for is_mcp, app in apps(index, limits, **access).items():
            url = stack.enter_context(serving(app, limits, trusted_proxies="127.0.0.1"))
            client = httpx.Client(base_url=url, headers=HEADERS, timeout=60)
            clients[is_mcp] = stack.enter_context(client)
        yield lambda method, path, **sent: clients[path == "/mcp"].request(method, path, **sent)


def test_every_route_refuses_a_long_body(index: ga_dspy.Index) -> None:
    with both(index, Limits(body=1_000)) as ask:
        for method, path, body in ROUTES:
            assert ask(method, path, json=body).status_code in OK, path
            assert ask(method, path, content=b"x" * 2_000).status_code == 413, path


@pytest.mark.usefixtures("rate_limit_clock")
def test_every_route_is_rate_limited_by_client(index: ga_dspy.Index) -> None:
    with both(index, Limits(per_minute=2)) as ask:
        for n, (method, path, body) in enumerate(ROUTES):
            headers = {"X-Forwarded-For": f"10.0.0.{n}"}
            codes = [ask(method, path, json=body, headers=headers).status_code for _ in range(4)]
            assert codes[2:] == [429, 429], path


@pytest.mark.usefixtures("rate_limit_clock")
def test_every_route_rate_limits_wrong_keys_without_affecting_valid_ones(
    index: ga_dspy.Index,
) -> None:
    keys = [f"{KEY}-{n}" for n in range(len(ROUTES))]
    with both(index, Limits(per_minute=3), keys=[key.encode() for key in keys]) as ask:
        for n, (method, path, body) in enumerate(ROUTES):
            address = {"X-Forwarded-For": f"10.0.0.{n}"}
            wrong = [
                ask(method, path, json=body, headers={**address, "X-API-Key": f"{KEY}-wrong-{m}"})
                for m in range(6)
            ]
            assert [reply.status_code for reply in wrong[3:]] == [429] * 3, path
            good = {**address, "X-API-Key": keys[n]}
            assert ask(method, path, json=body, headers=good).status_code in OK, path


SLOW = [route for route in ROUTES if route[1] in ("/ask", "/search", "/readyz", "/mcp")] + [
    ("POST", "/v1/chat/completions", {"messages": SAID})
]


@pytest.mark.parametrize(("method", "path", "body"), SLOW, ids=[path for _, path, _ in SLOW])
def test_every_working_route_has_a_deadline_and_a_concurrency_limit(
    method: str, path: str, body: Any
) -> None:
    async def search(query: str, k: int) -> list[str]:
        begun.set()
        await asyncio.sleep(60)
        return []

    begun = threading.Event()
    limits = Limits(max_concurrent=1, deadline=1.0, per_minute=0)
    with dspy.context(lm=ga_dspy.extractive_lm()):
        service = Service(ga_dspy.GraphAnchor(search), limits)
    is_mcp = path == "/mcp"
    app = make_http_app(make_mcp(service), limits) if is_mcp else make_app(service)
    with serving(app, limits) as url, httpx.Client(base_url=url, headers=HEADERS) as to:
        replies: list[httpx.Response] = []
        first = threading.Thread(
            target=lambda: replies.append(to.request(method, path, json=body, timeout=20))
        )
        first.start()
        assert begun.wait(10)
        refused = to.request(method, path, json=body)
        first.join(20)
        assert not first.is_alive()
    if is_mcp:
        assert "in progress" in refused.text and "no answer before the deadline" in replies[0].text
    elif path == "/ask":
        assert refused.status_code == 429
        assert '"status":504' in replies[0].text
    else:
        assert (refused.status_code, replies[0].status_code) == (429, 504)


def deep(levels: int) -> str:
    return "[" * levels + "]" * levels


@pytest.mark.parametrize(
    "where",
    [
        json.dumps({f"key {n}": n for n in range(500)}),
        json.dumps({"a": list(range(20_000))}),
        json.dumps({"a": {"within": list(range(20_000))}}),
        json.dumps({"a": "x" * 100_000}),
        json.dumps({"x" * 100_000: 1}),
        json.dumps({"a": [[1]]}),
        f'{{"a": {deep(100_000)}}}',
        f'{{"a": {"9" * 100_000}}}',
    ],
    ids=["keys", "list", "within", "text", "name", "nested", "deep", "number"],
)
def test_expensive_conditions_are_refused_at_once(where: str, index: ga_dspy.Index) -> None:
    with asked(index) as client:
        for path, sought in (("/search", '"query": "x"'), ("/ask", '"question": "x"')):
            begun = time.monotonic()
            content = f'{{{sought}, "where": {where}}}'
            headers = {"Content-Type": "application/json"}
            refused = client.post(path, content=content, headers=headers)
            assert refused.status_code in (400, 422)
            assert len(refused.content) < 2_000
            assert time.monotonic() - begun < 2


@pytest.mark.parametrize(("path", "sought"), [("/search", "query"), ("/ask", "question")])
def test_other_requests_are_answered_while_a_graph_is_being_restricted(
    path: str, sought: str, index: ga_dspy.Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_restricting, may_end = threading.Event(), threading.Event()

    def only(self: ga_dspy.Index, where: Any) -> ga_dspy.Index:
        is_restricting.set()
        assert may_end.wait(30)
        return self

    monkeypatch.setattr(ga_dspy.Index, "only", only)
    with asked(index) as client:
        sent = {sought: "x", "where": {"a": 1}}
        first = threading.Thread(target=client.post, args=(path,), kwargs={"json": sent})
        first.start()
        assert is_restricting.wait(30)
        assert client.get("/healthz", timeout=20).is_success
        may_end.set()
        first.join()


def test_an_unread_stream_is_closed_after_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ga_dspy.serve.listen._GRACE", 0.5)
    with unread(Limits(deadline=2.0)) as server:
        until(lambda: not server.server_state.connections)


def test_a_client_that_stops_reading_does_not_block_the_shutdown() -> None:
    with unread(Limits(deadline=1.0), force_exit=False):
        begun = time.monotonic()
    assert time.monotonic() - begun < 8


@contextmanager
def unread(limits: Limits, *, force_exit: bool = True) -> Iterator[Any]:
    """A server, and a client that asks it and does not read the stream of the answer."""
    long = [ga_dspy.Passage(id="1", title="Bridge", text="The bridge is red. " * 20_000)]
    app = apps(ga_dspy.Index.from_passages(long, kind="sparse"), limits)[False]
    question = b'{"question": "Which bridge is red?"}'
    head = (
        "POST /ask HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(question)}\r\n\r\n"
    )
    with socket.socket() as client, open_server(app, limits, force_exit) as (server, port):
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(("127.0.0.1", port))
        client.sendall(head.encode() + question)
        assert client.recv(15) == b"HTTP/1.1 200 OK"
        (connection,) = server.server_state.connections
        until(lambda: connection.transport.get_write_buffer_size() > 0)
        yield server


@contextmanager
def open_server(
    app: Any, limits: Limits, force_exit: bool = True
) -> Iterator[tuple[uvicorn.Server, int]]:
    listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    server = make_server(app, limits, log_level="critical")
    thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield server, listener.getsockname()[1]
    finally:
        server.should_exit, server.force_exit = True, force_exit
        thread.join(20)
        assert not thread.is_alive()


HALF = {
    "nothing": b"",
    "a header": b"POST /search HTTP/1.1\r\nHost: localhost\r\nX-A: ",
    "a body": b"POST /search HTTP/1.1\r\nHost: localhost\r\nContent-Length: 20\r\n\r\n{",
}


@pytest.mark.parametrize("sent", HALF.values(), ids=HALF)
def test_other_requests_are_answered_while_1100_are_half_sent(
    sent: bytes, index: ga_dspy.Index
) -> None:
    limits = Limits(waiting=64)
    with open_server(apps(index, limits)[False], limits) as (server, port), ExitStack() as stack:
        for _ in range(1_100):
            half = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=5))
            half.sendall(sent)
        begun = time.monotonic()
        for _ in range(5):
            address, asked = f"http://127.0.0.1:{port}/search", {"query": "bridge"}
            assert httpx.post(address, json=asked, timeout=15).status_code == 200
        assert time.monotonic() - begun < 15 < limits.arrival
        assert len(server.server_state.connections) <= 70


def test_a_client_with_too_many_connections_loses_only_its_own(index: ga_dspy.Index) -> None:
    limits = Limits(waiting=8)
    with open_server(apps(index, limits)[False], limits) as (_, port), ExitStack() as stack:
        other = stack.enter_context(
            socket.create_connection(("127.0.0.1", port), 5, source_address=("127.0.0.2", 0))
        )
        other.sendall(b"GET /healthz HTTP/1.1\r\n")
        for _ in range(40):
            many = stack.enter_context(socket.create_connection(("127.0.0.1", port), 5))
            many.sendall(b"GET / HTTP/1.1\r\n")
        other.sendall(b"Host: localhost\r\n\r\n")
        assert other.recv(15) == b"HTTP/1.1 200 OK"


@pytest.mark.parametrize("sent", HALF.values(), ids=HALF)
def test_a_request_that_never_ends_times_out(sent: bytes, index: ga_dspy.Index) -> None:
    limits = Limits(arrival=1.0)
    app = apps(index, limits)[False]
    with open_server(app, limits) as (server, port), socket.socket() as slow:
        slow.connect(("127.0.0.1", port))
        begun = time.monotonic()
        while time.monotonic() - begun < 8:
            with suppress(ConnectionError):
                slow.sendall(sent[:1])
                sent = sent[1:] or b""
            time.sleep(0.02)
            if time.monotonic() - begun > 0.5 and not server.server_state.connections:
                break
        assert 0.5 < time.monotonic() - begun < 5


@pytest.mark.usefixtures("rate_limit_clock")
def test_a_forwarded_address_from_a_client_is_not_trusted(index: ga_dspy.Index) -> None:
    def codes(**options: Any) -> list[int]:
        limits = Limits(per_minute=3)
        with serving(apps(index, limits)[False], limits, **options) as url:
            return [
                httpx.get(f"{url}/metrics", headers={"X-Forwarded-For": f"10.0.0.{n}"}).status_code
                for n in range(6)
            ]

    assert codes() == [200] * 3 + [429] * 3
    assert codes(trusted_proxies="127.0.0.0/8") == [200] * 6


@pytest.mark.parametrize("proxies", ["*", "10.0.0.1, somewhere"])
def test_only_a_configured_proxy_may_forward_an_address(proxies: str, index: ga_dspy.Index) -> None:
    with pytest.raises(InputError, match="a trusted client"):
        make_server(apps(index, Limits())[False], Limits(), trusted_proxies=proxies)


@pytest.mark.usefixtures("rate_limit_clock")
def test_the_table_of_client_addresses_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ga_dspy.serve.api._MAX_ADDRESSES", 100)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})

    guard = Guard(app, Limits(per_minute=2), [KEY.encode()])

    async def status(address: str) -> int:
        sent: list[Any] = []

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {"type": "http", "path": "/", "headers": [], "client": (address, 1)}
        await guard(scope, send, send)  # type: ignore[arg-type]
        return int(sent[0]["status"])

    async def statuses(*addresses: str) -> list[int]:
        return [await status(address) for address in addresses]

    first = ["10.0.0.1"] * 3
    assert asyncio.run(statuses(*first)) == [200, 200, 429]
    flood = [f"10.1.{n >> 8}.{n & 255}" for n in range(500)]
    assert set(asyncio.run(statuses(*flood))) == {200}
    assert asyncio.run(statuses(*first)) == [200, 200, 429]  # it was forgotten meanwhile
    # A subscriber has a whole /64 of addresses, so these count as one.
    assert asyncio.run(statuses(*(f"2001:db8::{n:x}" for n in range(3)))) == [200, 200, 429]
