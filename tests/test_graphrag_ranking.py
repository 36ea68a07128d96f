from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from ga_dspy.errors import InputError
from ga_dspy.graph import Entity, Evidence, GraphUpdate, Relation
from ga_dspy.graphrag import CorpusGraph
from ga_dspy.graphrag.ranker_fit import Judged, fit
from ga_dspy.graphrag.ranking import NoCrossEncoder, RankerMismatch
from ga_dspy.graphrag.search import GraphSearch
from ga_dspy.passage import Passage
from ga_dspy.retrieval import Index
from ga_dspy.retrieval.hashing import HashEncoder

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
HASHED = Index.from_passages(PASSAGES, kind="dense", encoder="hash-256")


def best(question: str, index: Index = SPARSE, **settings: object) -> str:
    search = GraphSearch(GRAPH, index, **settings)  # type: ignore[arg-type]  # settings by name
    return search.find(question).facts[0].text


@pytest.mark.parametrize(
    ("question", "fact"),
    [
        ("What did Ada Brook write?", "Ada Brook wrote River Songs"),
        ("Where did Ada Brook teach?", "Ada Brook taught at Fjord School"),
        ("Which painter did Ada Brook know?", "Ada Brook married Carl Stone"),
        ("What did Ada Brook win in 1962?", "Ada Brook won Harp Prize (1962)"),
        ("When was Ada Brook born?", "Ada Brook born on 4 May 1910"),
        ("In which city was Ada Brook born?", "Ada Brook born in Bergen"),
    ],
)
def test_the_fact_that_is_asked_for_comes_first(question: str, fact: str) -> None:
    assert best(question) == fact


def test_the_fine_stage_raises_what_the_encoder_finds_near() -> None:
    question = "Who was a lifelong spouse of Ada Brook?"
    encoder = Spouses()
    index = Index.from_passages(PASSAGES, kind="dense", encoder=encoder)
    assert best(question, index) == "Ada Brook married Carl Stone"
    assert set(encoder.asked) == {question}


def test_facts_are_cut_to_what_is_to_be_kept_best_first() -> None:
    facts = GraphSearch(GRAPH, SPARSE, keep=3).find("What did Ada Brook win?").facts
    assert len(facts) == 3
    assert [f.score for f in facts] == sorted((f.score for f in facts), reverse=True)


def test_it_is_told_which_stages_ranked() -> None:
    question = "What did Ada Brook win?"
    assert GraphSearch(GRAPH, SPARSE).find(question).ranked_by == ("linear",)
    assert GraphSearch(GRAPH, HASHED).find(question).ranked_by == ("linear", "encoder")
    assert GraphSearch(GRAPH, HASHED, fine=None).find(question).ranked_by == ("linear",)


def test_a_cross_encoder_is_never_downloaded() -> None:
    with pytest.raises(NoCrossEncoder, match="cross-encoder/some-model"):
        GraphSearch(GRAPH, SPARSE, fine="cross-encoder/some-model")


def judged(relation: str, question: str) -> list[Judged]:
    edges = range(len(GRAPH.relations))
    return [Judged(question, j, GRAPH.relation_of(j) == relation) for j in edges]


def test_fitted_weights_rank_as_they_were_taught(tmp_path: Path) -> None:
    question = "Which prizes are there to Ada Brook's name?"
    rows = [row for i in range(8) for row in judged("won", f"{question[:-1]} {i}?")]
    out = fit(GraphSearch(GRAPH, SPARSE), rows, tmp_path / "ranker.txt")
    found = GraphSearch(GRAPH, SPARSE, ranker=out).find(question)
    assert [fact.relation.relation for fact in found.facts[:2]] == ["won", "won"]
    assert found.ranked_by == ("lightgbm",)


def test_the_same_judgements_give_the_same_weights(tmp_path: Path) -> None:
    rows = judged("won", "What did Ada Brook win?")
    one, other = (fit(GraphSearch(GRAPH, SPARSE), rows, tmp_path / name) for name in "ab")
    assert one.read_bytes() == other.read_bytes()


def test_judgements_without_a_useful_edge_in_reach_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="none of 1 questions"):
        fit(GraphSearch(GRAPH, SPARSE), judged("none", "Who is Ada Brook?"), tmp_path / "r.txt")


def test_weights_for_other_features_are_refused(tmp_path: Path) -> None:
    out = fit(GraphSearch(GRAPH, SPARSE), judged("won", "What did Ada Brook win?"), tmp_path / "r")
    out.write_text(out.read_text("utf-8").replace("relation_words", "other_words"), "utf-8")
    with pytest.raises(RankerMismatch, match="other_words"):
        GraphSearch(GRAPH, SPARSE, ranker=out)
