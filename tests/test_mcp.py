"""The program as tools of agents, asked by the official client."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dspy
import httpx2
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp.types import TextContent
from test_serve import KEY, serving

import ga_dspy
from ga_dspy.cli.serve import ServerOptions, mcp
from ga_dspy.demo import DEMO_QUESTION, corpus
from ga_dspy.errors import InputError
from ga_dspy.serve import Limits, Service
from ga_dspy.serve.agents import make_http_app, make_mcp


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mcp") / "index"
    ga_dspy.Index.build(corpus(), folder)
    return folder


@pytest.fixture(scope="module")
def index(folder: Path) -> ga_dspy.Index:
    return ga_dspy.Index.open(folder)


def server_of(index: Any) -> Any:
    with dspy.context(lm=ga_dspy.extractive_lm()):
        return make_mcp(Service(ga_dspy.GraphAnchor(index)))


def talk(server: Any, work: Callable[[Client], Awaitable[Any]]) -> Any:
    """What a session with a server comes to."""

    async def session() -> Any:
        async with Client(server, read_timeout_seconds=90) as client:
            return await work(client)

    return asyncio.run(session())


def text_of(result: Any) -> str:
    (part,) = result.content
    assert isinstance(part, TextContent)
    return part.text


async def whole_session(client: Client) -> None:
    """What an agent does: looks at the tools, asks, searches."""
    tools = {tool.name: tool for tool in (await client.list_tools()).tools}
    assert tools.keys() == {"ask", "search"}
    assert all(tool.annotations and tool.annotations.read_only_hint for tool in tools.values())
    assert tools["ask"].input_schema["required"] == ["question"]
    told: list[str] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        told.append(message or "")

    asked = await client.call_tool("ask", {"question": DEMO_QUESTION}, progress_callback=hear)
    assert text_of(asked).startswith(
        "River Clyde\n[a chain of stated links]\n1. Treasure Island -> "
    )
    assert told[0].startswith("step 1: searching")
    found = await client.call_tool("search", {"query": "Titan moon", "k": 2})
    assert found.structured_content is not None
    first, _ = found.structured_content["result"]
    assert first["title"] == "Titan (moon)"


def test_a_session_over_stdin_asks_and_searches(folder: Path) -> None:
    main = "from ga_dspy.cli import main; main()"
    command = StdioServerParameters(
        command=sys.executable,
        args=["-c", main, "mcp", "--index", str(folder)],
        env={name: value for name, value in os.environ.items() if name != "GA_DSPY_API_KEY"},
    )
    talk(command, whole_session)


def test_keys_without_http_are_an_error(tmp_path: Path) -> None:
    asking: Any = None
    with pytest.raises(InputError, match="--keys without --http"):
        mcp(asking, ServerOptions(keys=tmp_path / "keys.toml"))


@contextmanager
def over_http(index: ga_dspy.Index, *keys: bytes) -> Iterator[str]:
    with serving(make_http_app(server_of(index), Limits(), keys=keys)) as url:
        yield f"{url}/mcp"


def test_a_session_over_http_asks_and_searches(index: ga_dspy.Index) -> None:
    with over_http(index) as url:
        talk(url, whole_session)


def test_over_http_a_request_without_a_valid_key_is_refused(index: ga_dspy.Index) -> None:
    with over_http(index, KEY.encode()) as url:
        assert httpx2.post(url, json={}).status_code == 401
        proxied = {"Authorization": f"Bearer {KEY}", "Host": "documents.example"}
        assert httpx2.post(url, json={}, headers=proxied).status_code in (400, 406)

        async def tools(client: Client) -> int:
            return len((await client.list_tools()).tools)

        async def session() -> int:
            async with httpx2.AsyncClient(headers={"Authorization": f"Bearer {KEY}"}) as http:
                transport = streamable_http_client(url, http_client=http)
                async with Client(transport) as client:
                    return await tools(client)

        assert asyncio.run(session()) == 2


def test_an_agent_sees_expected_errors_but_no_internals(index: ga_dspy.Index) -> None:
    def broken(query: str, k: int) -> list[str]:
        if query == "foreseen":
            raise ConnectionError("the store is away")
        raise KeyError("inner matters")

    async def call(client: Client) -> list[Any]:
        queries = ("foreseen", "unforeseen", " ")
        return [await client.call_tool("search", {"query": query}) for query in queries]

    foreseen, unforeseen, blank = talk(server_of(broken), call)
    assert foreseen.is_error and "the store is away" in text_of(foreseen)
    assert unforeseen.is_error and "inner matters" not in text_of(unforeseen)
    assert blank.is_error
