"""Measures of GraphRAG: whether cited edges exist and are stated where they are said to be."""

from __future__ import annotations

import dspy
import pytest

from ga_dspy.graph import Entity, Evidence, GraphUpdate, Relation
from ga_dspy.graphrag import CorpusGraph
from ga_dspy.graphrag.measures import faithfulness, latency
from ga_dspy.passage import Passage
from ga_dspy.programs import EvidenceLink

MARLOW = Passage(
    id="marlow", title="Ines Marlow", text="Ines Marlow, a printer, was born in Tavira."
)
TAVIRA = Passage(id="tavira", title="Tavira", text="Tavira lies on the Gilão.")
PASSAGES = {passage.id: passage for passage in (MARLOW, TAVIRA)}
QUOTE = "Ines Marlow, a printer, was born in Tavira."


def graph() -> CorpusGraph:
    whole = (Evidence(passage="marlow", start=12, end=len(MARLOW.content)),)
    ines = Entity(name="Ines Marlow", type="person", attributes=("printer",), evidence=whole)
    born = Relation(head="Ines Marlow", relation="was born in", tail="Tavira", evidence=whole)
    return CorpusGraph.of({"marlow": GraphUpdate(entities=(ines,), relations=(born,))})


def link(**changes: str) -> EvidenceLink:
    true = {
        "head": "Ines Marlow", "relation": "was born in", "tail": "Tavira",
        "passage_id": "marlow", "title": "Ines Marlow", "quote": QUOTE,
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
    measured = faithfulness([link(**changes)], graph(), PASSAGES.get)
    assert measured.share == 1.0, measured


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"head": "Tavira", "tail": "Ines Marlow"}, "no such edge"),
        ({"relation": "died in"}, "no such edge"),
        ({"tail": "Lisbon"}, "no such edge"),
        ({"relation": "described as", "tail": "painter"}, "no such edge"),
        ({"passage_id": "tavira", "quote": "Tavira lies on the Gilão."}, "not stated there"),
        ({"passage_id": "gone"}, "not stated there"),
        ({"quote": "Ines Marlow was born in Lisbon."}, "misquoted"),
        ({"quote": "born in Tavira … in 1950"}, "misquoted"),
        ({"quote": ""}, "misquoted"),
    ],
)
def test_an_edge_that_is_not_has_the_fault_named(changes: dict[str, str], fault: str) -> None:
    measured = faithfulness([link(**changes), link()], graph(), PASSAGES.get)
    assert measured.standings == {fault: 1, "faithful": 1}
    assert (measured.cited, measured.share) == (2, 0.5)


def test_a_passage_that_is_gone_cannot_be_quoted() -> None:
    assert faithfulness([link()], graph(), lambda id: None).standings == {"misquoted": 1}


def test_quotes_without_a_triple_cite_no_edge() -> None:
    quote = EvidenceLink(passage_id="marlow", title="", quote="anything")
    measured = faithfulness([quote], graph(), PASSAGES.get)
    assert (measured.cited, measured.share) == (0, None)


def test_latency_is_the_median_of_each_part_over_the_predictions_that_have_it() -> None:
    times = [{"linking": 1.0, "lm": 9.0}, {"linking": 3.0, "lm": 1.0}, {"lm": 2.0}]
    assert latency(dspy.Prediction(seconds=seconds) for seconds in times) == {
        "linking": 2.0,
        "lm": 2.0,
    }
