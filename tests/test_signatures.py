"""Prompts under every adapter, typed graph outputs, and replies that mean nothing."""

from __future__ import annotations

from typing import Any

import dspy
import pytest
from dspy.adapters.baml_adapter import BAMLAdapter
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from ga_dspy import PlainAdapter
from ga_dspy.passage import Passage
from ga_dspy.programs.meter import prompt_tokens
from ga_dspy.signatures import GraphProposal, ReadAndJudge, UpdateGraph
from ga_dspy.signatures.prompt import cited_labels, free_text, render_passages, short_text
from ga_dspy.testing import scripted_lm
from ga_dspy.text import estimate_tokens

LINES = (
    "Entities:\n- Katy Perry (person; artist) [2]\n"
    "Relations:\n1. Katy Perry -> born -> October 25, 1984 (time: 1984) [2]"
)
ADAPTERS = [PlainAdapter, dspy.ChatAdapter, dspy.JSONAdapter, BAMLAdapter, dspy.XMLAdapter]


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_graph_lines_are_parsed_into_a_typed_graph_under_every_adapter(adapter: Any) -> None:
    lm = scripted_lm([{"additions": LINES}])
    with dspy.context(lm=lm, adapter=adapter()):
        reply = dspy.Predict(UpdateGraph)(question="q", query="q", graph="(empty)", passages="p")
    assert len(lm.engine.prompts) == 1
    assert [entity.name for entity in reply.additions.draft.entities] == ["Katy Perry"]
    assert reply.additions.draft.relations[0].tail == "October 25, 1984"
    assert reply.additions.draft.relations[0].passages == (2,)


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_a_demo_shows_the_graph_in_the_requested_line_format(adapter: Any) -> None:
    demo = dspy.Example(
        question="q", query="q", graph="(empty)", passages="p", previous_reasoning="",
        additions=GraphProposal.model_validate(LINES),
    )  # fmt: skip
    messages = adapter().format(UpdateGraph, demos=[demo], inputs={"question": "other"})
    shown = messages[2]["content"].replace("\\n", "\n")
    assert "- Katy Perry (person; artist) [2]" in shown
    assert "- Katy Perry -> born -> October 25, 1984 (time: 1984) [2]" in shown


class NestedEntity(BaseModel):
    name: str
    type: str
    attributes: list[str]
    passages: list[int]


class NestedRelation(BaseModel):
    head: str
    relation: str
    tail: str
    time: str | None
    confidence: float | None
    passages: list[int]


class NestedGraph(BaseModel):
    """What GraphProposal holds, as an ordinary Pydantic type."""

    entities: list[NestedEntity]
    relations: list[NestedRelation]


@pytest.mark.parametrize(
    "adapter", [PlainAdapter, dspy.ChatAdapter, dspy.JSONAdapter, dspy.XMLAdapter]
)
def test_graph_lines_cost_a_step_fewer_tokens_than_a_nested_type(adapter: Any) -> None:
    nested = ReadAndJudge.with_updated_fields("additions", type_=NestedGraph)
    ours, theirs = (
        prompt_tokens(signature, adapter(), estimate_tokens) for signature in (ReadAndJudge, nested)
    )
    assert ours < 0.85 * theirs


@pytest.mark.parametrize(
    "value",
    [
        {"entities": [{"name": "Katy Perry"}], "relations": []},
        {"entities": ["Katy Perry"], "triples": [["Katy Perry", "is", "artist"], ["broken"]]},
        {"text": LINES},
        f"```\n{LINES}\n```",
    ],
)
def test_json_and_fenced_text_are_read_too(value: Any) -> None:
    assert GraphProposal.model_validate(value).draft.nodes[0].name == "Katy Perry"


@pytest.mark.parametrize("text", ["I cannot help with that.", "[1, 2]", "7"])
def test_text_that_is_not_a_graph_is_an_empty_proposal_that_lists_skipped_lines(text: str) -> None:
    draft = GraphProposal.model_validate(text).draft
    assert (draft.entities, draft.relations) == ((), ()) and draft.skipped


@pytest.mark.parametrize("value", [[1, 2], 7, {"weather": "fine"}])
def test_values_that_an_adapter_parsed_from_lines_are_refused_for_the_raw_text(
    value: Any,
) -> None:
    with pytest.raises(ValueError, match="graph"):
        GraphProposal.model_validate(value)


@pytest.mark.parametrize("value", ["", "(empty)", "none", "Entities:\nRelations:"])
def test_a_statement_that_there_is_nothing_to_add_is_an_empty_proposal(value: str) -> None:
    assert GraphProposal.model_validate(value).draft.entities == ()


def test_a_bad_line_does_not_affect_good_ones() -> None:
    proposal = GraphProposal.model_validate(f"{LINES}\n2. Katy Perry -> made")
    assert len(proposal.draft.relations) == 1
    assert proposal.draft.skipped == ("2. Katy Perry -> made",)


def test_a_proposal_survives_saving_as_json() -> None:
    proposal = GraphProposal.model_validate(LINES)
    again = GraphProposal.model_validate(proposal.model_dump(mode="json"))
    assert again.format() == proposal.format()


@pytest.mark.parametrize("nothing", ["None", "none.", "N/A", " null ", "", "**None**", "(empty)"])
def test_every_wording_for_nothing_is_an_empty_text(nothing: str) -> None:
    assert free_text(nothing) == ""


@pytest.mark.parametrize("text", ["None But the Brave", "Nothing Compares 2 U", "No Country"])
def test_a_title_that_begins_with_none_is_kept(text: str) -> None:
    assert free_text(text) == text


@given(st.lists(st.integers(min_value=1, max_value=999), unique=True, max_size=8))
def test_cited_numbers_are_read_in_order(numbers: list[int]) -> None:
    assert cited_labels(", ".join(map(str, numbers))) == tuple(numbers)
    assert cited_labels("".join(f"[{n}]" for n in numbers)) == tuple(numbers)


@given(st.text(min_size=1, max_size=80), st.text(max_size=20))
def test_a_passage_is_rendered_as_its_title_and_its_lines(text: str, title: str) -> None:
    shown = render_passages([(4, Passage(id="a", title=title, text=text))]).split("\n")
    said = [line.strip() for line in Passage(id="a", text=text).text.splitlines() if line.strip()]
    assert shown[0].startswith("[4] ")
    assert [line.strip() for line in shown[1:]] == (said or [""])


@pytest.mark.parametrize(
    "nothing",
    ["none needed", "No next query", "-", "Not needed", "N/A (sufficient)", "No candidate yet",
     "None - all links hold", "unknown", "No further search is needed.", "(none)", "n/a"],
)  # fmt: skip
def test_every_wording_for_no_query_is_an_empty_query(nothing: str) -> None:
    assert short_text(nothing) == ""


@pytest.mark.parametrize("query", ["no", "None But the Brave director", "Nobody Knows (film) cast"])
def test_a_query_or_candidate_that_begins_like_nothing_is_kept(query: str) -> None:
    assert short_text(query) == query
