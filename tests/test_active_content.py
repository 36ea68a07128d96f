"""Nothing active in any text that leaves: one hostile passage, every way out."""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dspy
import httpx
import pytest
from markdown_it import MarkdownIt
from mcp import Client
from test_mcp import talk
from test_serve import STREAM, asked, events_of

import ga_dspy
from ga_dspy.cli import main
from ga_dspy.cli.console import Console, show_answer, show_steps
from ga_dspy.eval.comparison import escaped
from ga_dspy.graph import GraphUpdate, KnowledgeGraph, Relation
from ga_dspy.retrieval.read import FileRead
from ga_dspy.serve import Service
from ga_dspy.serve.agents import make_mcp
from ga_dspy.testing import asked_fields, scripted_lm
from ga_dspy.text import defuse_markup

HOSTILE = (
    "Berg ![x](http://evil.example/?q=1) <img src=//evil.example/i> [a](http://evil.example) "
    "[r][ref] <http://evil.example> https://evil.example/?q=1 www.evil.example <script>x()</script>"
    "\n\n[ref]: http://evil.example\n\n\x1b]8;;http://evil.example\x07\x9b2J\u202e\u2066"
)
PASSAGE = ga_dspy.Passage(id=HOSTILE, title=HOSTILE, text=f"{HOSTILE} built Berg. {HOSTILE}")
QUESTION = f"What did Berg build? {HOSTILE}"
CONTROLS = set("\x1b\x07\x9b\u202e\u2066")


def found(query: str, k: int) -> list[ga_dspy.Passage]:
    return [PASSAGE]


def hostile_lm() -> dspy.LM:
    """An LM that repeats the passage in every field that is free text."""
    decided = {"judgement": "sufficient", "verdict": "answered", "links": "[1]"}

    def reply(prompt: str) -> dict[str, str]:
        fields = asked_fields(prompt)
        return {name: decided.get(name, HOSTILE) for name in fields}

    return scripted_lm(reply)


def message_of(reply: httpx.Response) -> str:
    return str(reply.json()["choices"][0]["message"]["content"])


def deltas(client: httpx.Client, key: str) -> str:
    body = {"messages": [{"role": "user", "content": QUESTION}], "stream": True}
    lines = client.post("/v1/chat/completions", json=body).text.splitlines()
    parts = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
    return "".join(part["choices"][0]["delta"].get(key) or "" for part in parts)


def asking(work: Callable[[httpx.Client], str]) -> str:
    with asked(found, hostile_lm()) as client:
        return work(client)


def of_agents(tool: str, arguments: dict[str, str]) -> tuple[str, str]:
    """The result of a tool, and its progress."""
    with dspy.context(lm=hostile_lm()):
        server = make_mcp(Service(ga_dspy.GraphAnchor(found)))
    told: list[str] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        told.append(message or "")

    async def call(client: Client) -> Any:
        return await client.call_tool(tool, arguments, progress_callback=hear)

    result = talk(server, call)
    return "\n".join(part.text for part in result.content), "\n".join(told)


def predicted() -> Any:
    with dspy.context(lm=hostile_lm()):
        return ga_dspy.GraphAnchor(found)(question=QUESTION)


def on_a_terminal() -> str:
    shown = io.StringIO()
    console = Console(file=shown, width=200, force_terminal=True, color_system=None)
    with show_steps(console):
        show_answer(console, predicted())
    return shown.getvalue()


AS_MARKDOWN: dict[str, Callable[[], str]] = {
    "chat": lambda: asking(
        lambda client: message_of(
            client.post(
                "/v1/chat/completions", json={"messages": [{"role": "user", "content": QUESTION}]}
            )
        )
    ),
    "chat, streamed": lambda: asking(lambda client: deltas(client, "content")),
    "reasoning": lambda: asking(lambda client: deltas(client, "reasoning_content")),
    "events": lambda: asking(
        lambda client: "\n".join(
            event["message"]
            for _, event in events_of(
                client.post("/ask", json={"question": QUESTION}, headers=STREAM)
            )
        )
    ),
    "errors": lambda: asking(
        lambda client: client.post("/ask", json={"question": "x", "where": {HOSTILE: 1}}).json()[
            "detail"
        ]
    ),
    "MCP ask": lambda: of_agents("ask", {"question": QUESTION})[0],
    "MCP progress": lambda: of_agents("ask", {"question": QUESTION})[1],
    "MCP search": lambda: "\n".join(
        f"{one['id']}\n{one['title']}\n{one['text']}"
        for one in [json.loads(of_agents("search", {"query": "Berg"})[0])]
    ),
    "a cell of a report": lambda: escaped(HOSTILE),
}


@pytest.mark.parametrize("way", AS_MARKDOWN)
def test_exported_markdown_renders_without_images_links_or_html(way: str) -> None:
    text = AS_MARKDOWN[way]()
    assert "evil" in text or "step 1" in text
    assert not set(text) & CONTROLS
    rendered = MarkdownIt("commonmark", {"html": True}).render(text)
    assert not re.search(
        r"<(?!/?(?:p|ol|ul|li|br|h[1-6]|em|strong|code|pre|hr|blockquote)\b)", rendered
    )
    assert not re.search(r"https?://\S|www\.\S", text)


AS_HTML: dict[str, Callable[[], str]] = {
    "prediction": lambda: predicted()._repr_html_(),
    "passage": lambda: PASSAGE._repr_html_(),
    "graph": lambda: (
        KnowledgeGraph()
        .merge(GraphUpdate(relations=(Relation(head=HOSTILE, relation="is", tail="x"),)))
        ._repr_html_()
    ),
}


@pytest.mark.parametrize("way", AS_HTML)
def test_html_in_texts_is_escaped_in_notebooks(way: str) -> None:
    html = AS_HTML[way]()
    assert "evil" in html
    assert not re.search(r"<(?:img|script|a|http)\b", html) and not set(html) & CONTROLS


def test_control_characters_in_texts_never_reach_the_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert not set(on_a_terminal()) & (CONTROLS - {"\x1b"})
    assert "\x1b]" not in on_a_terminal()
    assert not set(str(FileRead(name=HOSTILE, notes=(HOSTILE,)))) & CONTROLS
    ga_dspy.Index.build([PASSAGE], tmp_path / "index", kind="sparse")
    monkeypatch.setattr(
        sys,
        "argv",
        ["ga-dspy", "index", "search", "Berg", "--index", str(tmp_path / "index"), "--json"],
    )
    with pytest.raises(SystemExit):
        main()
    printed = capsys.readouterr().out
    assert not set(printed) & CONTROLS
    assert json.loads(printed)[0]["title"] == PASSAGE.title


@pytest.mark.parametrize("text", ["a < b, 2<3", "He said: yes!", "[1] Red Lodge (city)", "x/y", ""])
def test_ordinary_text_is_unchanged(text: str) -> None:
    assert defuse_markup(text) == text
