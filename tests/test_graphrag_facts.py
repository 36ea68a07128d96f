from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from ga_dspy.graph import Entity, Evidence, GraphUpdate, Relation
from ga_dspy.graphrag import CorpusGraph
from ga_dspy.graphrag.search import GraphIndex
from ga_dspy.passage import Passage
from ga_dspy.retrieval import Index
from ga_dspy.retrieval.encoders import HashEncoder

FACTS = (
    "Ada Brook / wrote / River Songs",
    "Ada Brook / born in / Bergen",
    "Ada Brook / born on / 4 May 1910",
    "Ada Brook / married / Carl Stone",
    "Ada Brook / taught at / Fjord School",
    "Ada Brook / won / Lyre Prize / 1950",
    "Ada Brook / won / Harp Prize / 1962",
)
TYPES = {"Carl Stone": "painter", "Bergen": "city", "Fjord School": "school"}


def graph_of(*facts: str) -> CorpusGraph:
    relations = []
    here = (Evidence(passage="p", start=0, end=1),)
    for fact in facts:
        head, label, tail, *time = fact.split(" / ")
        when = time[0] if time else None
        relations.append(Relation(head=head, relation=label, tail=tail, time=when, evidence=here))
    entities = tuple(Entity(name=n, type=t, evidence=here) for n, t in TYPES.items())
    return CorpusGraph.of({"p": GraphUpdate(entities=entities, relations=tuple(relations))})


class Spouses(HashEncoder):
    """An encoder that knows what a spouse is, and notes its queries."""

    def __init__(self) -> None:
        super().__init__(64)
        self.name, self.fingerprint = "spouses", "spouses"
        self.asked: list[str] = []

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return super().encode([re.sub("married|spouse", "spouse " * 9, text) for text in texts])

    def encode_query(self, text: str) -> NDArray[np.float32]:
        self.asked.append(text)
        return super().encode_query(text)


GRAPH = graph_of(*FACTS)
PASSAGES = [Passage(id="p", title="Ada Brook", text="Ada Brook was a poet.")]
SPARSE = Index.from_passages(PASSAGES, kind="sparse")


def best(question: str, index: Index = SPARSE) -> str:
    return GraphIndex(index, GRAPH).find(question).facts[0].text


@pytest.mark.parametrize(
    ("question", "fact"),
    [
        ("What did Ada Brook write?", "Ada Brook wrote River Songs"),
        ("Where did Ada Brook teach?", "Ada Brook taught at Fjord School"),
        ("Which painter did Ada Brook know?", "Ada Brook married Carl Stone"),
        ("When was Ada Brook born?", "Ada Brook born on 4 May 1910"),
        ("In which city was Ada Brook born?", "Ada Brook born in Bergen"),
    ],
)
def test_the_fact_asked_for_ranks_first(question: str, fact: str) -> None:
    assert best(question) == fact


def test_the_reranking_stage_promotes_facts_near_the_question() -> None:
    question = "Who was a lifelong spouse of Ada Brook?"
    encoder = Spouses()
    index = Index.from_passages(PASSAGES, kind="dense", encoder=encoder)
    assert best(question, index) == "Ada Brook married Carl Stone"
    assert set(encoder.asked) == {question}


def test_a_year_in_the_question_selects_the_fact_of_that_year() -> None:
    index = Index.from_passages(PASSAGES, kind="dense", encoder="hash-256")
    assert best("What did Ada Brook win in 1962?", index) == "Ada Brook won Harp Prize (1962)"
    assert best("What did Ada Brook win in 1950?", index) == "Ada Brook won Lyre Prize (1950)"


def test_only_the_best_facts_are_kept_in_descending_order() -> None:
    facts = GraphIndex(SPARSE, GRAPH).find("What did Ada Brook win?", keep=3).facts
    assert len(facts) == 3
    assert [f.score for f in facts] == sorted((f.score for f in facts), reverse=True)
