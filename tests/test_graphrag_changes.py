"""An update of a graph: what it resolves again, and that the graph is that of a new build."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch

import dspy
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from extractive_lm.engine import extractive_lm
from ga_dspy import Index, Passage
from ga_dspy.errors import InputError, RunAborted
from ga_dspy.graph import Entity, Evidence, GraphUpdate, Relation
from ga_dspy.graph.clusters import references
from ga_dspy.graph.traits import id_line
from ga_dspy.graphrag import (
    Access,
    CorpusGraph,
    Extractor,
    GraphIndex,
    Rules,
    StoredGraph,
    Summaries,
    build_graph,
    open_graph,
    update_graph,
)
from ga_dspy.graphrag.communities import Summary
from ga_dspy.graphrag.extraction import Extraction
from ga_dspy.graphrag.records import Conditions, Overrides, Pair, Sources, Spelling
from ga_dspy.graphrag.stored import GraphManifest, Record

NAMES = (
    "Ann Lee|Lee|Ann Lea|JohnSmith|"
    "John Smith|Smith|J. Smith|John F Smith|John Fred Smith|Sir John Smith|"
    "Avon|Bristol Avon|Avon (river)|Houston, Texas|Houston|Texas|Paris|Paris, Texas|Acme Ltd|Acme|"
    "WHO|World Health Organization|Wild Horse Outfit|King Henry|Henry King|Cambridge|Mercury|"
    "Cambridge (England)|Merkur|1984|1985|October 25, 1984|Encyclopaedia|Encyclopaedja|The Boss"
).split("|")
TYPES = (
    "",
    "person",
    "person",
    "person",
    "city",
    "river",
    "planet",
    "organisation",
    "1969 film",
    "1984 film",
)
RELATIONS = (
    "born in|located in|known as|is the same as|not located in|capital of|founded in|knows|salary"
).split("|")
ATTRIBUTES = ("born 1920", "born 1950", "located in England", "located in Texas", "country: France")
KNOWN_IDS = ("w:1", "w:2", "v:1", "v:2")
FEATURES = Rules(
    critical=frozenset({"knows"}),
    min_confidence=0.5,
    relation_labels={"salary": frozenset({"hr"})},
    overrides=Overrides(
        same=(Pair.of("Mercury", "Merkur"),),
        apart=(
            Pair.of("Avon", "Bristol Avon"),
            Pair.of(Spelling(name="Lee", passage="3"), "Ann Lee"),
        ),
    ),
)


class StatedRecords(Extractor):
    """Takes the records from the text of the passage."""

    def forward(self, passage: Passage | Sequence[Passage]) -> dspy.Prediction:
        assert isinstance(passage, Passage)
        update = GraphUpdate.model_validate_json(passage.text)
        return dspy.Prediction(extraction=Extraction(update=update))


def some_records(draw: random.Random, id: str) -> GraphUpdate:
    def evidence() -> tuple[Evidence, ...]:
        start = draw.randrange(5)
        return (Evidence(passage=id, start=start, end=start + draw.randrange(4)),)

    entities = (
        Entity(
            name=draw.choice(NAMES),
            type=draw.choice(TYPES),
            attributes=tuple(draw.sample(ATTRIBUTES, draw.randrange(2))),
            aliases=tuple(draw.sample(NAMES, draw.choice((0, 0, 1)))),
            about=draw.choice(((), (), ("title: Avon",), (id_line(draw.choice(KNOWN_IDS)),))),
            evidence=evidence(),
        )
        for _ in range(draw.randrange(3))
    )
    relations = (
        Relation(
            **dict(zip(("head", "tail"), draw.sample(NAMES, 2), strict=True)),
            relation=draw.choice(RELATIONS),
            time=draw.choice((None, "1990", "2001")),
            confidence=draw.choice((None, 0.2, 0.9)),
            evidence=evidence(),
        )
        for _ in range(draw.randrange(5))
    )
    return GraphUpdate(entities=tuple(entities), relations=tuple(relations))


def passage_of(id: str, records: GraphUpdate) -> Passage:
    return Passage(id=id, title=id, text=records.model_dump_json())


def index_of(records: Mapping[str, GraphUpdate]) -> Index:
    passages = (passage_of(id, update) for id, update in records.items())
    return Index.from_passages(passages, kind="sparse")


READ: dict[str, Any] = {"extractor": StatedRecords(), "lm": extractive_lm(), "threads": 1}


def contents(graph: CorpusGraph) -> Mapping[str, Any]:
    return {table: rows.to_pylist() for table, rows in graph.tables._asdict().items()}


def tables_of(stored: StoredGraph) -> Mapping[str, Any]:
    return {"whole": contents(stored.graph), "public": contents(stored.graph.public)}


def in_memory(
    records: Mapping[str, GraphUpdate], labels: Mapping[str, list[str]], rules: Rules
) -> StoredGraph:
    """A resolved graph that is in no folder."""
    graph = CorpusGraph.of(records, labels=labels, rules=rules)
    manifest = GraphManifest(
        index="",
        extraction="",
        settings="",
        entities=len(graph),
        relations=len(graph.heads),
        labels=tuple(sorted(graph.labels_in_use)),
        left_out=graph.left_out,
        unused_overrides=graph.unused_overrides,
    )
    settings, public = Sources.of({}, labels, rules), graph.public
    return StoredGraph(
        Path(), manifest, stored_records(records), settings, graph.tables, lambda: public.tables
    )


def stored_records(records: Mapping[str, GraphUpdate]) -> dict[str, Record]:
    return {id: Record.of(id, update, "", "") for id, update in records.items()}


def edited(
    draw: random.Random, records: Mapping[str, GraphUpdate]
) -> tuple[dict[str, GraphUpdate], set[str]]:
    """Change, remove and add some records; return all, and the ids of those."""
    ids = set(draw.sample(IDS, draw.choice((1, 1, 2, 3))))
    kept = {id: update for id, update in records.items() if id not in ids}
    new = {id: some_records(draw, id) for id in sorted(ids) if draw.random() < 0.7}
    return kept | new, ids


IDS = [str(number) for number in range(1, 13)]


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**9), st.sampled_from([Rules(), FEATURES]), st.booleans())
def test_a_changed_graph_equals_one_built_from_all_records(
    seed: int, rules: Rules, is_labelled: bool
) -> None:
    draw, labels = random.Random(seed), {"2": ["board"], "7": ["hr"]} if is_labelled else {}
    records = {id: some_records(draw, id) for id in IDS[:9]}
    stored = in_memory(records, labels, rules)
    for _ in range(3):
        stored.graph.part(some_of(draw, records))  # leaves no trace in the graph
        records, ids = edited(draw, records)
        expected = in_memory(records, labels, rules)
        changed = stored.changed(stored_records(records), expected.settings, ids)
        if changed is None:
            assert bool(stored.manifest.labels) != bool(expected.manifest.labels)
            stored = expected
            continue
        stored = changed
        assert tables_of(stored) == tables_of(expected)
        assert stored.manifest == expected.manifest


def some_of(draw: random.Random, records: Mapping[str, GraphUpdate]) -> frozenset[str]:
    return frozenset(id for id in records if draw.random() < 0.8)


CONDITIONS: tuple[Any, ...] = (
    {},
    {"relation.name": {"!=": ["knows", "located in"]}},
    {"relation.confidence": {">=": 0.5}},
    {"relation.time": "1995"},
)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**9), st.sampled_from([Rules(), FEATURES]), st.booleans())
def test_a_part_equals_a_graph_built_from_its_records_only(
    seed: int, rules: Rules, is_labelled: bool
) -> None:
    draw, labels = random.Random(seed), {"2": ["board"], "7": ["hr"]} if is_labelled else {}
    records = {id: some_records(draw, id) for id in IDS}
    sources, latest = Sources.of(records, labels, rules), False
    part, withheld = CorpusGraph.of_sources(sources), sources.withheld
    for _ in range(2):
        shown, conditions = some_of(draw, records), Conditions.of(draw.choice(CONDITIONS))
        sources = sources.stated_by(shown).keeping(conditions.admit)
        withheld = {id: needed for id, needed in withheld.items() if id in shown}
        latest = latest or conditions.as_of is not None
        expected = CorpusGraph.of_sources(sources, withheld, latest=latest)
        with patch("ga_dspy.graphrag.corpus_graph.FEW", 1.0):
            part = part.part(shown, conditions)
            assert contents(part) == contents(expected)
            for held in (frozenset[str](), frozenset({"hr"})):
                alone = CorpusGraph.of_sources(sources.seen_with(held), {}, latest=latest)
                alone = expected if expected.labels_in_use <= held else alone
                assert contents(part.visible(Access(labels=held)).graph) == contents(alone)


def test_a_condition_that_hides_little_resolves_only_the_affected_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    graph = CorpusGraph.of(roads(120))
    monkeypatch.setattr("ga_dspy.graphrag.corpus_graph.resolve", None)
    part = graph.part(frozenset(roads(119)))
    assert len(part) == 238 and not part.find("Sout 119y")
    assert len(graph.part(frozenset(roads(118)))) == 236


@settings(max_examples=3, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 10**9))
def test_random_updates_equal_a_build_from_scratch(
    tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    draw, folder = random.Random(seed), tmp_path_factory.mktemp("graph")
    labels = {"2": ["board"]}
    records = {id: some_records(draw, id) for id in IDS[:9]}
    stored = build_graph(index_of(records), folder / "kept", rules=FEATURES, labels=labels, **READ)
    for _ in range(2):
        records, _ = edited(draw, records)
        labels = {draw.choice(IDS): ["board"]}
        stored = update_graph(index_of(records), stored, labels=labels, **READ)
    scratch = build_graph(index_of(records), folder / "new", rules=FEATURES, labels=labels, **READ)
    for kept in (stored, open_graph(folder / "kept", index_of(records))):
        assert tables_of(kept) == tables_of(scratch)
        assert kept.communities == scratch.communities
        assert kept.graph.sources == scratch.graph.sources
        apart = {"generation", "files"}
        assert kept.manifest.model_dump(exclude=apart) == scratch.manifest.model_dump(exclude=apart)


def road(id: str, *ends: str) -> GraphUpdate:
    """A road through towns, as one passage states it."""
    spans = (Evidence(passage=id, start=0, end=4),)
    relations = (
        Relation(head=one, relation="leads to", tail=other, evidence=spans)
        for one, other in pairwise(ends)
    )
    return GraphUpdate(relations=tuple(relations))


def roads(count: int) -> dict[str, GraphUpdate]:
    """Roads among towns of their own."""
    return {f"p{n}": road(f"p{n}", f"Northtown {n}x", f"Sout {n}y") for n in range(count)}


def test_an_update_resolves_only_the_names_of_the_changed_passages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolved = list[str]()
    stored = build_graph(index_of(roads(120)), tmp_path, **READ)

    def resolving(records: GraphUpdate, *more: Any) -> Any:
        resolved.extend(entity.name for entity in records.entities)
        return references(records, *more)

    monkeypatch.setattr("ga_dspy.graphrag.changes.references", resolving)
    more = {"q": road("q", "Northtown 7x", "Bath")}
    stored = update_graph(index_of(roads(120) | more), stored, **READ)
    assert set(resolved) == {"Northtown 7x", "Bath"}
    assert stored.manifest.entities == 241


def test_changing_relation_weights_resolves_nothing_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build_graph(index_of(roads(3)), tmp_path, **READ)
    monkeypatch.setattr("ga_dspy.graphrag.corpus_graph.resolve", None)
    rules = Rules(relation_weights={"leads to": 2})
    stored = build_graph(index_of(roads(3)), tmp_path, rules=rules, **READ)
    assert stored.graph.rules == open_graph(tmp_path).graph.rules == rules


def test_an_update_writes_only_changed_records(tmp_path: Path) -> None:
    def written() -> dict[str, int]:
        return {path.name: path.stat().st_ino for path in tmp_path.glob("contents-*/records-*")}

    stored = build_graph(index_of(roads(40)), tmp_path, **READ)
    before = written()
    update_graph(index_of(roads(39)), stored, **READ)
    changed = {name for name, inode in written().items() if before[name] != inode}
    assert len(changed) == 1 and len(before) > 5
    assert open_graph(tmp_path).records.keys() == roads(39).keys()


def test_an_open_graph_is_unchanged_by_an_update_of_its_folder(tmp_path: Path) -> None:
    before = build_graph(index_of(roads(5)), tmp_path, **READ)
    after = update_graph(index_of(roads(4)), before, **READ)
    assert len(before.graph) == 10 and len(after.graph) == 8
    assert open_graph(tmp_path).manifest == after.manifest
    # The folder has changed since `before` was opened, so it is read.
    again = update_graph(index_of(roads(3)), before, **READ)
    assert len(again.graph) == 6 and not again.graph.find("Sout 3y")


def test_a_failed_update_leaves_the_old_graph(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = build_graph(index_of(roads(5)), tmp_path, **READ)

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as disk:
        disk.setattr("ga_dspy.graphrag.tables.write_table", full)
        with pytest.raises(RunAborted, match="No space left"):
            update_graph(index_of(roads(6)), stored, **READ)
    assert tables_of(open_graph(tmp_path)) == tables_of(stored)
    assert update_graph(index_of(roads(6)), stored, **READ).manifest.entities == 12


def test_records_that_cite_several_passages_are_resolved_from_scratch(tmp_path: Path) -> None:
    stored = build_graph(index_of(roads(3)), tmp_path / "kept", **READ)
    both = tuple(Evidence(passage=id, start=0, end=4) for id in ("p0", "q"))
    records = roads(3) | {"q": GraphUpdate(entities=(Entity(name="Bath", evidence=both),))}
    for more in ({}, {"r": road("r", "Bath", "Crewe")}):
        stored = update_graph(index_of(records | more), stored, **READ)
    scratch = build_graph(index_of(records | more), tmp_path / "new", **READ)
    assert tables_of(stored) == tables_of(scratch)
    assert not stored.graph.tables.mentions.num_rows


def test_only_changed_communities_are_summarised_again_and_the_cost_is_reported(
    tmp_path: Path,
) -> None:
    records = {"a": road("a", "Ayr", "Bonn", "Cork"), "b": road("b", "Lima", "Metz", "Nice")}
    stored = build_graph(index_of(records), tmp_path, **READ)
    summaries = Summaries(tmp_path / "summaries.sqlite")
    assert summaries.estimate(stored.graph, stored.communities, lm=READ["lm"])[0] == 2
    written = summaries.of(stored.graph, stored.communities, lm=READ["lm"])
    assert all(isinstance(one, Summary) for one in written.values())
    records["c"] = road("c", "Cork", "Derby")
    stored = update_graph(index_of(records), stored, **READ)
    calls, tokens = summaries.estimate(stored.graph, stored.communities, lm=READ["lm"])
    assert calls == 1 and tokens > 0
    assert len(summaries.cached(stored.communities)) == 1


def test_the_next_question_of_an_open_graph_index_sees_an_added_document(tmp_path: Path) -> None:
    records = roads(4)
    passages = [passage_of(id, update) for id, update in records.items()]
    index = Index.build(passages, tmp_path / "index", kind="sparse")
    build_graph(index, tmp_path / "graph", **READ)
    corpus = GraphIndex.open(tmp_path / "index", tmp_path / "graph")
    before, fingerprint = corpus.graph, corpus.fingerprint
    corpus.index.delete(["p2"])
    corpus.index.add([passage_of("new", road("new", "Oslo", "Bergen"))])
    corpus.update(lm=READ["lm"], extractor=READ["extractor"])
    assert corpus.graph.find("Oslo") and not corpus.graph.find("Sout 2y")
    assert corpus.find("Oslo").linked and before.find("Sout 2y")
    assert corpus.fingerprint != fingerprint
    part = corpus.only({"relation.name": "leads to"})
    with pytest.raises(InputError, match="only a part of its graph"):
        part.update(lm=READ["lm"])


def test_the_digests_of_an_index_stay_up_to_date() -> None:
    passages = [Passage(id=id, title=id, text=id * 3) for id in "abc"]
    index = Index.from_passages(passages, kind="sparse")
    assert set(index.digests) == {"a", "b", "c"}
    index.upsert([Passage(id="a", title="a", text="other"), Passage(id="d", title="d", text="d")])
    index.delete(["b"])
    fresh = Index.from_passages(index, kind="sparse")
    assert index.digests == fresh.digests and index.fingerprint == fresh.fingerprint
