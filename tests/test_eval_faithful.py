"""Whether cited edges exist and are stated where they are said to be."""

from __future__ import annotations

import pytest

from ga_dspy.eval.faithful import cited_edges
from ga_dspy.graph import Entity, Evidence, GraphUpdate, KnowledgeGraph, Relation
from ga_dspy.passage import Passage
from ga_dspy.programs import EvidenceLink

MARLOW = Passage(
    id="marlow", title="Ines Marlow", text="Ines Marlow, a printer, was born in Tavira."
)
TAVIRA = Passage(id="tavira", title="Tavira", text="Tavira lies on the Gilão.")
PASSAGES = {passage.id: passage for passage in (MARLOW, TAVIRA)}
WHOLE = (Evidence(passage="marlow", start=12, end=len(MARLOW.content)),)
GRAPH = KnowledgeGraph().merge(
    GraphUpdate(
        entities=(
            Entity(name="Ines Marlow", type="person", attributes=("printer",), evidence=WHOLE),
            Entity(name="Tavira", evidence=WHOLE),
        ),
        relations=(
            Relation(head="Ines Marlow", relation="was born in", tail="Tavira", evidence=WHOLE),
        ),
    )
)


def link(**changes: str) -> EvidenceLink:
    true = {
        "head": "Ines Marlow", "relation": "was born in", "tail": "Tavira",
        "passage_id": "marlow", "title": "Ines Marlow", "quote": MARLOW.text,
    }  # fmt: skip
    return EvidenceLink(**{**true, **changes})


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"head": "the ines marlow", "relation": "born in"},
        {"quote": "a printer … born in Tavira"},
        {"relation": "described as", "tail": "printer"},
        {"relation": "described as", "tail": "person"},
    ],
)
def test_an_edge_that_is_there_and_quoted_from_where_it_is_stated_is_faithful(
    changes: dict[str, str],
) -> None:
    assert cited_edges([link(**changes)], GRAPH, PASSAGES) == (1, 1)


@pytest.mark.parametrize(
    "changes",
    [
        {"head": "Tavira", "tail": "Ines Marlow"},
        {"relation": "died in"},
        {"tail": "Lisbon"},
        {"relation": "described as", "tail": "painter"},
        {"passage_id": "tavira", "quote": TAVIRA.text},
        {"passage_id": "gone"},
        {"quote": "Ines Marlow was born in Lisbon."},
        {"quote": "a printer … born in Lisbon"},
        {"quote": ""},
    ],
)
def test_an_edge_with_any_fault_is_not(changes: dict[str, str]) -> None:
    assert cited_edges([link(**changes)], GRAPH, PASSAGES) == (1, 0)


def test_a_quote_without_a_triple_cites_no_edge() -> None:
    assert cited_edges([link(head="", relation="", tail="")], GRAPH, PASSAGES) == (0, 0)
