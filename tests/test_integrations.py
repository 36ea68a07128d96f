"""The blocks of docs/integrations.md, run against the real packages."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import dspy
import pytest

import ga_dspy

PAGE = Path(__file__).parents[1] / "docs" / "integrations.md"


@pytest.fixture(scope="module")
def names() -> dict[str, Any]:
    """What the blocks come to, over an index of two passages."""
    for package in ("langchain_core", "langgraph", "llama_index.core"):
        pytest.importorskip(package)
    about = {"source": "bridge.md", "lang": "en"}
    bridge = ga_dspy.Passage(
        id="b", title="Halden Bridge", text="Nils Haug designed the bridge.", metadata=about
    )
    other = ga_dspy.Passage(id="o", title="Oslo", text="Oslo is a city.")
    index = ga_dspy.Index.from_passages([bridge, other], kind="sparse")
    names = {"dspy": dspy, "ga_dspy": ga_dspy, "index": index, "lm": ga_dspy.extractive_lm()}
    names["program"] = ga_dspy.GraphAnchor(index)
    for code in re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL):
        exec(compile(code, str(PAGE), "exec", dont_inherit=True), names)
    return names


def test_langchain_finds_documents_with_their_source(names: dict[str, Any]) -> None:
    first = names["documents"][0]
    assert (first.id, first.page_content) == ("b", "Nils Haug designed the bridge.")
    assert first.metadata == {"source": "bridge.md", "lang": "en", "title": "Halden Bridge"}


def test_llamaindex_finds_nodes_with_their_scores(names: dict[str, Any]) -> None:
    first = names["nodes"][0]
    assert first.node.node_id == "b" and first.node.metadata["lang"] == "en"
    assert first.score == names["index"].search("Who designed the bridge?", 1)[0].score


def test_a_langgraph_node_answers_with_evidence(names: dict[str, Any]) -> None:
    assert names["state"]["answer"] == "Nils Haug"
    assert "Nils Haug designed the bridge." in names["state"]["evidence"][0]


def test_a_dspy_agent_can_use_the_program_as_a_tool(names: dict[str, Any]) -> None:
    tool = names["agent"].tools["answer_from_documents"]
    with dspy.context(lm=names["lm"]):
        assert tool(question="Who designed the bridge?").startswith("Nils Haug\n[")
