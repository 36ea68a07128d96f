"""What the LM is asked: prompts under every adapter, typed graph output, words for nothing."""

from __future__ import annotations

from typing import Any

import dspy
import pytest
from dspy.adapters.baml_adapter import BAMLAdapter
from hypothesis import given
from hypothesis import strategies as st

from ga_dspy.cli.commands import NestedGraph, fixed_cost
from ga_dspy.passage import Passage
from ga_dspy.signatures import GraphProposal, ReadAndJudge, UpdateGraph
from ga_dspy.signatures.prompt import cited_labels, free_text, render_passages
from ga_dspy.testing import scripted_lm

LINES = (
    "Entities:\n- Katy Perry (person; artist) [2]\n"
    "Relations:\n1. Katy Perry -> born -> October 25, 1984 (time: 1984) [2]"
)
ADAPTERS = [dspy.ChatAdapter, dspy.JSONAdapter, BAMLAdapter, dspy.XMLAdapter]


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_graph_lines_come_back_typed_under_every_adapter(adapter: Any) -> None:
    lm = scripted_lm([{"additions": LINES}])
    with dspy.context(lm=lm, adapter=adapter()):
        reply = dspy.Predict(UpdateGraph)(question="q", query="q", graph="(empty)", passages="p")
    assert len(lm.engine.prompts) == 1
    assert [entity.name for entity in reply.additions.draft.entities] == ["Katy Perry"]
    assert reply.additions.draft.relations[0].tail == "October 25, 1984"
    assert reply.additions.draft.relations[0].passages == (2,)


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_a_demo_shows_the_graph_as_the_lines_that_are_asked_for(adapter: Any) -> None:
    demo = dspy.Example(
        question="q", query="q", graph="(empty)", passages="p", previous_reasoning="",
        feedback="", additions=GraphProposal.model_validate(LINES),
    )  # fmt: skip
    messages = adapter().format(UpdateGraph, demos=[demo], inputs={"question": "other"})
    shown = messages[2]["content"].replace("\\n", "\n")
    assert "- Katy Perry (person; artist) [2]" in shown
    assert "1. Katy Perry -> born -> October 25, 1984 (time: 1984) [2]" in shown


@pytest.mark.parametrize("adapter", [dspy.ChatAdapter, dspy.JSONAdapter, dspy.XMLAdapter])
def test_graph_lines_cost_a_step_fewer_tokens_than_a_nested_type(adapter: Any) -> None:
    nested = ReadAndJudge.with_updated_fields("additions", type_=NestedGraph)
    assert fixed_cost(ReadAndJudge, adapter()) < 0.85 * fixed_cost(nested, adapter())


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
    assert GraphProposal.model_validate(value).draft.entities[0].name == "Katy Perry"


@pytest.mark.parametrize("value", ["I cannot help with that.", [1, 2], 7])
def test_what_is_no_graph_is_an_error_and_not_an_empty_graph(value: Any) -> None:
    with pytest.raises(ValueError, match="graph"):
        GraphProposal.model_validate(value)


@pytest.mark.parametrize("value", ["", "(empty)", "none", "Entities:\nRelations:"])
def test_saying_that_there_is_nothing_to_add_is_an_empty_proposal(value: str) -> None:
    assert GraphProposal.model_validate(value).draft.entities == ()


def test_a_bad_line_does_not_cost_the_good_ones() -> None:
    proposal = GraphProposal.model_validate(f"{LINES}\n2. Katy Perry -> made")
    assert len(proposal.draft.relations) == 1
    assert proposal.draft.skipped == ("2. Katy Perry -> made",)


def test_a_proposal_survives_saving_as_json() -> None:
    proposal = GraphProposal.model_validate(LINES)
    again = GraphProposal.model_validate(proposal.model_dump(mode="json"))
    assert again.format() == proposal.format()


@pytest.mark.parametrize("nothing", ["None", "none.", "N/A", " null ", "", "**None**", "(empty)"])
def test_every_way_of_saying_nothing_is_empty(nothing: str) -> None:
    assert free_text(nothing) == ""


@pytest.mark.parametrize("text", ["None But the Brave", "Nothing Compares 2 U", "No Country"])
def test_a_title_that_begins_with_none_is_something(text: str) -> None:
    assert free_text(text) == text


@given(st.lists(st.integers(min_value=1, max_value=999), unique=True, max_size=8))
def test_cited_numbers_are_read_in_order(numbers: list[int]) -> None:
    assert cited_labels(", ".join(map(str, numbers))) == tuple(numbers)
    assert cited_labels("".join(f"[{n}]" for n in numbers)) == tuple(numbers)


@given(st.text(min_size=1, max_size=80), st.text(max_size=20))
def test_a_passage_is_always_two_lines(text: str, title: str) -> None:
    shown = render_passages([(4, Passage(id="a", title=title, text=text))])
    assert len(shown.split("\n")) == 2
    assert shown.startswith("[4] ")
