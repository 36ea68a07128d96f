"""Bringing a graph along, Wikidata ids as identity, and exports that other tools read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ga_dspy import Index, Passage
from ga_dspy.errors import InputError
from ga_dspy.graph import Entity, Evidence, GraphUpdate, Relation
from ga_dspy.graphrag import Access, CorpusGraph, Overrides, Pair, Rules, read_triples

PASSAGES = [
    Passage(id="m1", title="Mercury", text="Mercury orbits the Sun in 88 days."),
    Passage(id="k1", title="Katy Perry", text="Katy Perry sang with Kesha. Kesha likes dogs."),
]


def written(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return path


def triple(head: str, relation: str, tail: str, **more: Any) -> dict[str, Any]:
    return {"head": head, "relation": relation, "tail": tail, **more}


@pytest.fixture(scope="module")
def index() -> Index:
    return Index.from_passages(PASSAGES, kind="sparse")


def test_a_triple_without_a_passage_enters_without_evidence(tmp_path: Path) -> None:
    file = written(tmp_path / "a.jsonl", triple("Oslo", "lies in", "Norway", time="since 1905"))
    brought = read_triples(file)
    graph = CorpusGraph.of({}, brought=brought.batches)
    assert brought.rejected == ()
    assert graph.edge(0) == Relation(
        head="Oslo", relation="lies in", tail="Norway", time="since 1905"
    )
    assert graph.passages_of_edge(0) == graph.passages_of(0) == ()


def test_a_triple_with_a_passage_is_held_to_it(tmp_path: Path, index: Index) -> None:
    brought = read_triples(
        written(
            tmp_path / "a.jsonl",
            triple("Katy Perry", "sang with", "Kesha", passage="k1"),
            triple("Kesha", "likes", "dogs", passage="k1", quote="Kesha likes dogs."),
            triple("Kesha", "likes", "cats", passage="k1"),
            triple("Katy Perry", "likes", "dogs", passage="k1", quote="Kesha likes dogs."),
            triple("Kesha", "likes", "dogs", passage="k1", quote="Kesha adores dogs"),
            triple("Kesha", "likes", "dogs", passage="nowhere"),
        ),
        index,
    )
    kept = [r for batch in brought.batches for r in batch.update.relations]
    assert [(r.head, r.tail) for r in kept] == [("Katy Perry", "Kesha"), ("Kesha", "dogs")]
    quote = kept[1].evidence[0]
    assert PASSAGES[1].content[quote.start : quote.end] == "Kesha likes dogs"
    faults = ("row 3: passage 'k1' does not support", "row 4: its quote does not mention both",
              "row 5: its quote does not stand", "row 6: the index holds no passage")  # fmt: skip
    assert len(brought.rejected) == 4
    assert all(r.startswith(f) for r, f in zip(brought.rejected, faults, strict=True))


def test_rows_that_cannot_be_used_are_named_and_the_others_kept(tmp_path: Path) -> None:
    brought = read_triples(
        written(
            tmp_path / "a.jsonl",
            triple("A1", "", "B1"),
            triple("A1", "leads to", "B1", confidence="high"),
            triple("A1", "leads to", "B1", head_id="42"),
            triple("A1", "leads to", "B1", confidence=0.5),
        )
    )
    assert [reason.partition(": ")[2] for reason in brought.rejected] == [
        "relation is empty",
        "confidence is 'high', not a number from 0 to 1",
        "'42' is no Wikidata id, which look like Q42",
    ]
    assert brought.batches[0].update.relations[0].confidence == 0.5


def test_csv_is_read_too_and_a_file_of_other_columns_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("head,relation,tail,labels\nOslo,lies in,Norway,board; hr\n", encoding="utf-8")
    assert read_triples(path).batches[0].labels == {"board", "hr"}
    path.write_text("subject,relation,tail\nOslo,lies in,Norway\n", encoding="utf-8")
    with pytest.raises(InputError, match="no column 'head'"):
        read_triples(path)


def test_brought_triples_with_labels_are_private(tmp_path: Path) -> None:
    file = written(tmp_path / "a.jsonl", triple("Jo", "earns", "a lot", labels=["hr"]))
    graph = CorpusGraph.of({}, brought=read_triples(file).batches)
    assert not graph.visible().graph.find("Jo")
    assert graph.visible(Access(labels=frozenset({"hr"}))).graph.find("Jo")


def said(passage: str, name: str, kind: str, relation: str, tail: str) -> GraphUpdate:
    evidence = (Evidence(passage=passage, start=0, end=7),)
    return GraphUpdate(
        entities=(Entity(name=name, type=kind, evidence=evidence),),
        relations=(Relation(head=name, relation=relation, tail=tail, evidence=evidence),),
    )


def test_equal_wikidata_ids_are_one_thing_whatever_the_names(tmp_path: Path) -> None:
    file = written(
        tmp_path / "a.jsonl",
        triple("Bombay", "lies in", "India", head_id="Q1156", tail_id="Q668"),
        triple("Mumbai", "lies on", "Salsette Island", head_id="Q1156"),
    )
    graph = CorpusGraph.of(
        {"p": said("p", "Mumbai", "city", "has", "a harbour")}, brought=read_triples(file).batches
    )
    (mumbai,) = graph.find("Bombay")
    assert graph.find("Mumbai") == (mumbai,) and graph.wikidata(mumbai) == "Q1156"
    (merge,) = graph.merges
    assert (merge.spelling, merge.rule) == ("Bombay", "wikidata")


def test_different_wikidata_ids_are_two_things_and_text_joins_the_one_it_fits(
    tmp_path: Path,
) -> None:
    file = written(
        tmp_path / "a.jsonl",
        triple("Mercury", "has symbol", "Hg", head_id="Q925", head_type="chemical element"),
        triple("Mercury", "is nearest to", "Sun", head_id="Q308", head_type="planet"),
    )
    graph = CorpusGraph.of(
        {"m1": said("m1", "Mercury", "planet", "orbits", "Sun")},
        brought=read_triples(file).batches,
    )
    ids = {graph.wikidata(node): node for node in graph.find("Mercury")}
    assert set(ids) == {"Q925", "Q308"}
    assert graph.passages_of(ids["Q308"]) == ("m1",) and graph.passages_of(ids["Q925"]) == ()


def test_a_person_has_the_last_word_over_ids(tmp_path: Path) -> None:
    file = written(
        tmp_path / "a.jsonl",
        triple("Bombay", "lies in", "India", head_id="Q1156"),
        triple("Mumbai", "lies on", "Salsette Island", head_id="Q1156"),
    )
    rules = Rules(overrides=Overrides(apart=(Pair.of("Bombay", "Mumbai"),)))
    graph = CorpusGraph.of({}, brought=read_triples(file).batches, rules=rules)
    assert graph.find("Bombay") != graph.find("Mumbai")
