"""A graph of one's own: what rows become, whom ids name, what an import leaves alone."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import dspy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ga_dspy import Index, Passage, extractive_lm
from ga_dspy.errors import InputError, MissingExtra
from ga_dspy.graph import Entity, Evidence, GraphUpdate, KnowledgeGraph, Relation, to_graphml
from ga_dspy.graph.traits import id_line, ids_in
from ga_dspy.graphrag import (
    Access,
    CorpusGraph,
    GraphIndex,
    GraphRAG,
    Imported,
    build_graph,
    estimate_build,
    import_graph,
    open_graph,
    update_graph,
)
from ga_dspy.testing import scripted_lm

pytest.importorskip("igraph")

DRUGS = """\
head,relation,tail,head_type,head_id,tail_id,head_aliases,time,confidence,tenant,text
Metformin,treats,type 2 diabetes,drug,wikidata:Q19484,,Glucophage; Siofor,since 1958,0.9,a,
Metformin,lowers,blood sugar,,wikidata:Q19484,,,,,a,In a trial metformin lowers blood sugar.
type 2 diabetes,DAMAGES_THE,kidney,,,uberon:0002113,,,,b,
"""
ROWS = [("Ada Lund", "founded", "Halden Works"), ("Halden Works", "lies in", "Halden")]
BRIDGE = Passage(id="bridge", title="Halden Bridge", text="Nils Haug designed the Halden Bridge.")


def bring(tmp_path: Path, rows: Any = ROWS, **options: Any) -> Imported:
    """Import rows, or the text of a CSV, into the index and the graph of a folder."""
    if isinstance(rows, str):
        (tmp_path / "rows.csv").write_text(rows)
        rows = tmp_path / "rows.csv"
    return import_graph(rows, index=tmp_path / "index", out=tmp_path / "graph", **options)


def triples(graph: CorpusGraph | KnowledgeGraph) -> set[tuple[Any, ...]]:
    return {(r.head, r.relation, r.tail, r.time, r.confidence) for r in graph.relations}


def things(graph: CorpusGraph) -> set[tuple[Any, ...]]:
    return {
        (e.name, e.type, frozenset(e.aliases), frozenset(e.attributes), ids_in(e.about))
        for e in graph.entities
    }


def texts(tmp_path: Path) -> dict[str, Passage]:
    return {passage.text: passage for passage in Index.open(tmp_path / "index")}


# --- What rows become


def test_a_row_becomes_an_indexed_sentence_and_a_relation_that_quotes_it(
    tmp_path: Path,
) -> None:
    graph = bring(tmp_path, DRUGS).graph.graph
    passage = texts(tmp_path)["Metformin treats type 2 diabetes (since 1958)."]
    assert (passage.title, passage.source) == ("Metformin", "rows.csv")
    assert dict(passage.metadata) == {"imported": "rows.csv", "source": "rows.csv", "tenant": "a"}
    (edge,) = (r for r in graph.relations if r.relation == "treats")
    assert (edge.time, edge.confidence) == ("since 1958", 0.9)
    (span,) = edge.evidence
    assert passage.content[span.start : span.end] == passage.text
    (node,) = (e for e in graph.entities if e.name == "Metformin")
    assert (node.type, set(node.aliases)) == ("drug", {"Glucophage", "Siofor"})
    assert ("type 2 diabetes", "damages the", "kidney", None, None) in triples(graph)


def test_the_text_of_a_row_becomes_the_passage_and_its_ends_are_located_in_it(
    tmp_path: Path,
) -> None:
    rows = [
        {"head": "Oslo", "relation": relation, "tail": tail, "text": "It rains. Oslo, Norway."}
        for relation, tail in (("lies in", "Norway"), ("is", "wet"))
    ]
    graph = bring(tmp_path, rows).graph.graph
    ((text, passage),) = texts(tmp_path).items()
    assert text == "It rains. Oslo, Norway." and passage.title == ""
    quoted = {r.relation: {text[e.start : e.end] for e in r.evidence} for r in graph.relations}
    assert quoted == {"lies in": {"Oslo, Norway."}, "is": {text}}
    spans = {e.name: text[e.evidence[0].start : e.evidence[0].end] for e in graph.entities}
    assert spans == {"Oslo": "Oslo", "Norway": "Norway", "wet": text}


def test_rows_of_one_text_share_a_passage_unless_their_metadata_differ(tmp_path: Path) -> None:
    row = {"head": "Oslo", "relation": "lies in", "tail": "Norway", "text": "Oslo."}
    bring(tmp_path, [row, {**row, "tail": "Europe"}, {**row, "tenant": "b"}])
    assert sorted(str(p.metadata.get("tenant")) for p in Index.open(tmp_path / "index")) == [
        "None", "b"
    ]  # fmt: skip


def test_a_mapped_column_is_not_replaced_by_one_with_the_name_of_the_field_in_capitals(
    tmp_path: Path,
) -> None:
    row = {"subject": "Oslo", "Head": "Ada Lund", "relation": "lies in", "tail": "Norway"}
    made = bring(tmp_path, [row], columns={"head": "subject"})
    assert triples(made.graph.graph) == {("Oslo", "lies in", "Norway", None, None)}
    assert [p.metadata["Head"] for p in Index.open(tmp_path / "index")] == ["Ada Lund"]


LINES: list[dict[str, Any]] = [
    {"subject": "Ada Lund", "relation": "born in", "object": "Oslo", "year": 1950, "time": 1950},
    {"subject": "Ada Lund", "relation": "wrote", "object": "Fjord", "evidence": "Fjord, a novel."},
]


@pytest.mark.parametrize("ending", ["jsonl", "tsv", "csv"])
def test_columns_can_be_mapped_in_each_format(tmp_path: Path, ending: str) -> None:
    file, names = tmp_path / f"facts.{ending}", list({name: None for row in LINES for name in row})
    table = [names, *([str(row.get(name, "")) for name in names] for row in LINES)]
    if ending == "jsonl":
        file.write_text("\n".join(map(json.dumps, LINES)))
    else:
        mark, quote = ("\t", "") if ending == "tsv" else (",", '"')
        file.write_text("\n".join(mark.join(f"{quote}{c}{quote}" for c in row) for row in table))
    graph = bring(tmp_path, [file], columns={"head": "subject", "tail": "object"}).graph.graph
    assert triples(graph) == {
        ("Ada Lund", "born in", "Oslo", "1950", None),
        ("Ada Lund", "wrote", "Fjord", None, None),
    }
    assert "year" in texts(tmp_path)["Ada Lund born in Oslo (1950)."].metadata
    assert "Fjord, a novel." in texts(tmp_path)


RDF = """\
@prefix ex: <http://example.org/drug/> .
@prefix v: <http://example.org/vocab#> .
@prefix wd: <http://www.wikidata.org/entity/> .
@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
@prefix skos: <http://www.w3.org/2004/02/skos/core#> .
@prefix owl: <http://www.w3.org/2002/07/owl#> .
v:treats a owl:ObjectProperty ; rdfs:label "treats" .
ex:m a v:ChemicalCompound ; rdfs:label "Metformine"@fr, "Metformin"@en ;
  skos:altLabel "Glucophage" ; owl:sameAs wd:Q19484 ; v:treats wd:Q3025883 ; v:firstUsed 1958 ;
  rdfs:comment "Metformin is a biguanide." .
wd:Q3025883 skos:prefLabel "type 2 diabetes" .
ex:aspirin rdfs:label "Aspirin" ; a v:ChemicalCompound .
[] rdfs:label "Lyon" ; v:madeOf ex:aspirin .
"""


@pytest.mark.parametrize("ending", ["ttl", "nt"])
def test_rdf_resources_are_named_by_label_and_identified_by_iri(
    tmp_path: Path, ending: str
) -> None:
    rdflib = pytest.importorskip("rdflib")
    file = tmp_path / f"drugs.{ending}"
    rdflib.Graph().parse(data=RDF, format="turtle").serialize(file, format=ending, encoding="utf-8")
    graph = bring(tmp_path, file).graph.graph
    assert triples(graph) == {
        ("Metformin", "treats", "type 2 diabetes", None, None),
        ("Metformin", "first used", "1958", None, None),
        ("Lyon", "made of", "Aspirin", None, None),
    }
    (node,) = (graph.node(i) for i in graph.find("wikidata:Q19484"))
    assert (node.name, node.type, node.aliases) == (
        "Metformin", "chemical compound", ("Glucophage",)
    )  # fmt: skip
    assert ids_in(node.about) == ("http://example.org/drug/m", "wikidata:Q19484")
    assert graph.find("Lyon") and "Metformin is a biguanide." in texts(tmp_path)
    assert bring(tmp_path, file).changes.added == ()


def test_rdf_without_rdflib_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "rdflib", None)
    (tmp_path / "a.ttl").write_text(RDF)
    with pytest.raises(MissingExtra, match=r"\[rdf\]"):
        bring(tmp_path, tmp_path / "a.ttl")


def test_graphml_of_other_tools_is_read_by_its_labels(tmp_path: Path) -> None:
    import networkx as nx

    network = nx.DiGraph()
    network.add_node("n1", labels=":City:Place", name="Paris")
    network.add_node("n2", label="Paris", type="city in Texas")
    network.add_node("n3", label="Alone")
    network.add_edge("n1", "n2", label="TWINNED_WITH", weight=2, evidence="They met; they twinned.")
    nx.write_graphml(network, tmp_path / "own.graphml")
    graph = bring(tmp_path, tmp_path / "own.graphml").graph.graph
    assert sorted(e.type for e in graph.entities) == ["", "City", "city in Texas"]
    assert graph.relations[0].relation == "TWINNED_WITH"
    assert {"They met; they twinned.", "Alone."} == {*texts(tmp_path)}
    assert texts(tmp_path)["They met; they twinned."].metadata["weight"] == 2


# --- Export and import


NAMES = st.sampled_from("Ada Lund,Oslo,Prism (album),Prism (band),U.S.,1958,A|B".split(","))
WORDS = st.sampled_from(["city", "old; grey", "red | blue", "[1]", "née X", "Nobel laureate"])
SPAN = (Evidence(passage="p", start=0, end=4),)
UPDATES = st.builds(
    GraphUpdate,
    entities=st.lists(
        st.builds(
            Entity, name=NAMES, evidence=st.just(SPAN),
            type=st.sampled_from(["", "person", "city"]),
            aliases=st.lists(WORDS, max_size=2), attributes=st.lists(WORDS, max_size=2),
        ),
        max_size=3,
    ),
    relations=st.lists(
        st.builds(
            Relation, head=NAMES, tail=NAMES, evidence=st.just(SPAN),
            relation=st.sampled_from(["born in", "located_in", "same as", "CEO"]),
            time=st.sampled_from([None, "1958", "since 1960"]),
            confidence=st.sampled_from([None, 0.25, 1.0]),
        ),
        max_size=4,
    ),
)  # fmt: skip


@settings(max_examples=25, deadline=None)
@given(UPDATES, UPDATES)
def test_an_exported_graph_survives_an_import(
    tmp_path_factory: pytest.TempPathFactory, one: GraphUpdate, other: GraphUpdate
) -> None:
    tmp_path = tmp_path_factory.mktemp("graph")
    graph = CorpusGraph.of({"p": one, "q": other})
    if not len(graph):
        return
    whole = graph.subgraph(range(len(graph)), range(len(graph.heads)))
    (tmp_path / "own.graphml").write_text(to_graphml(whole))
    index = Index.from_passages([BRIDGE], kind="sparse")
    back = import_graph(tmp_path / "own.graphml", index=index, out=tmp_path / "graph").graph.graph
    assert triples(back) == triples(graph)
    assert things(back) == things(graph)


def test_exported_evidence_is_imported_as_quotes_with_sources(
    tmp_path: Path, command: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    (tmp_path / "rows.csv").write_text(DRUGS)
    where = ("--index", "index", "--out", "graph")
    assert command("graph", "import", "rows.csv", *where, cwd=tmp_path).returncode == 0
    told = command("graph", "export", "graph", "--out", "own.graphml", "--index", "index",
                   cwd=tmp_path)  # fmt: skip
    assert "wrote own.graphml" in told.stdout
    there = tmp_path / "there"
    there.mkdir()
    back = bring(there, tmp_path / "own.graphml").graph
    stored = open_graph(tmp_path / "graph").graph
    assert triples(back.graph) == triples(stored) and things(back.graph) == things(stored)
    assert texts(there).keys() == texts(tmp_path).keys()
    assert {p.source for p in texts(there).values()} == {"rows.csv"}


def test_an_export_quotes_no_text_that_the_caller_may_not_read(
    tmp_path: Path, command: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    bring(tmp_path)
    (id,) = (p.id for p in Index.open(tmp_path / "index") if p.title == "Ada Lund")
    bring(tmp_path, labels={id: {"hr"}})
    export = ("graph", "export", "graph", "--out", "own.graphml", "--index", "index")
    command(*export, cwd=tmp_path)
    public = (tmp_path / "own.graphml").read_text()
    command(*export, "--label", "hr", cwd=tmp_path)
    assert "Ada" not in public and "Ada" in (tmp_path / "own.graphml").read_text()


# --- Ids


def row(head: str, head_id: str, tail: str, tail_id: str, relation: str) -> dict[str, str]:
    given = {"head": head, "head_id": head_id, "relation": relation, "tail": tail}
    return {**given, "tail_id": tail_id}


SIDES = ("head", "tail")
PEOPLE = st.sampled_from(["Ann Lee", "ann lee", "Lee", "Anne Lee", "Bo Lee", "A. Lee"])
IDS = st.sampled_from(["", "w:1", "w:2", "w:3", "m:1", "m:2", "http://x.org/a/1"])
IDENTIFIED = st.lists(
    st.builds(row, PEOPLE, IDS, PEOPLE, IDS, st.sampled_from(["knows", "same as", "aka"])),
    min_size=1, max_size=7,
)  # fmt: skip


def of_row(passage: str, row: Mapping[str, str]) -> GraphUpdate:
    span = (Evidence(passage=passage, start=0, end=4),)
    about = {side: tuple(map(id_line, filter(None, [row[f"{side}_id"]]))) for side in SIDES}
    entities = tuple(Entity(name=row[s], about=about[s], evidence=span) for s in SIDES)
    (head, tail), relation = (row[side] for side in SIDES), row["relation"]
    stated = Relation(head=head, relation=relation, tail=tail, evidence=span)
    return GraphUpdate(entities=entities, relations=(stated,))


@settings(max_examples=150, deadline=None)
@given(IDENTIFIED)
def test_equal_ids_merge_and_different_ids_of_a_namespace_never_do(
    rows: list[dict[str, str]],
) -> None:
    # A row of one name with ids of two namespaces states that they are one.
    rows = [each for each in rows if each["head"].lower() != each["tail"].lower()]
    graph = CorpusGraph.of({f"p{n}": of_row(f"p{n}", each) for n, each in enumerate(rows)})
    ids = [id for entity in graph.entities for id in ids_in(entity.about)]
    assert sorted(ids) == sorted({r[side] for r in rows for side in ("head_id", "tail_id")} - {""})
    for entity in graph.entities:
        spaces = [id.rpartition("/")[0] or id.partition(":")[0] for id in ids_in(entity.about)]
        assert len(spaces) == len(set(spaces))


def test_ids_join_different_names_and_separate_equal_names_even_in_one_row(tmp_path: Path) -> None:
    rows = [
        row("Metformin", "w:1", "diabetes", "", "treats"),
        row("Glucophage", "w:1", "Merck", "", "is sold by"),
        row("Paris", "w:90", "Paris", "w:830149", "is twinned with"),
    ]
    graph = bring(tmp_path, rows).graph.graph
    (node,) = graph.find("Glucophage")
    assert graph.find("metformin") == (node,) == graph.find("w:1")
    assert {merge.rule for merge in graph.merges} == {"same id"}
    paris = [e for e in graph.entities if "Paris" in e.name]
    assert [ids_in(e.about) for e in paris] == [("w:90",), ("w:830149",)]
    assert len({e.name for e in paris}) == 2
    assert ("is twinned with") in {r.relation for r in graph.relations}


IN_TEXTS = {"a": "w:1", "of a document": ""}


def test_an_extracted_mention_joins_an_imported_entity_by_name_alone() -> None:
    one = {id: of_row(id, row("Metformin", key, id, "", "in")) for id, key in IN_TEXTS.items()}
    assert len(CorpusGraph.of(one).find("Metformin")) == 1
    two = {**one, "b": of_row("b", row("Metformin", "w:2", "z", "", "in"))}
    found = CorpusGraph.of(two)
    assert sorted(ids_in(found.node(i).about) for i in found.find("Metformin"))[-2:] == [
        ("w:1",), ("w:2",)
    ]  # fmt: skip


# --- With documents, again, and with other contents


def reader(asked: list[str]) -> Any:
    """An LM that states one fact of the bridge."""

    def reply(prompt: str) -> Mapping[str, str]:
        asked.append(prompt)
        return {"additions": "Relations:\n1. Nils Haug -> designed -> Halden Bridge [1]"}

    return scripted_lm(reply)


def test_imported_and_extracted_facts_mix_and_no_lm_reads_an_imported_one(tmp_path: Path) -> None:
    Index.build([BRIDGE], tmp_path / "index")
    rows = [("Halden Bridge", "crosses", "Tista")]
    made = bring(tmp_path, rows)
    assert made.graph.manifest.unread == 1 and made.graph.manifest.relations == 1
    index, out, asked = Index.open(tmp_path / "index"), tmp_path / "graph", list[str]()
    assert estimate_build(index, out, lm=reader([])).calls == 1
    built = build_graph(index, out, lm=reader(asked))
    assert len(asked) == 1 and built.manifest.unread == 0
    (bridge,) = built.graph.find("Halden Bridge")
    assert set(built.graph.passages_of(bridge)) == {"bridge", made.changes.added[0]}
    again = bring(tmp_path, [*rows, ("Tista", "is", "short")])
    assert again.graph.manifest.relations == 3 and again.graph.manifest.unread == 0
    assert update_graph(Index.open(tmp_path / "index"), out, lm=reader(asked)).manifest
    assert len(asked) == 1


def test_the_next_command_that_an_import_prints_keeps_the_labels(
    tmp_path: Path, command: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    Index.build([BRIDGE], tmp_path / "index", encoder="hash-16")
    (tmp_path / "rows.csv").write_text("head,relation,tail,id\nAda,earns,90 crowns,s\n")
    (tmp_path / "labels.json").write_text('{"rows.csv#s": ["hr"]}')
    done = command("graph", "import", "rows.csv", "--index", "index", "--out", "graph",
                   "--labels", "labels.json", cwd=tmp_path)  # fmt: skip
    printed = done.stdout.partition("to read 1 passage: ga-dspy ")[2].split()
    assert command(*printed, cwd=tmp_path).returncode == 0
    stored = open_graph(tmp_path / "graph")
    assert stored.manifest.unread == 0 and not stored.graph.public.find("Ada")


def test_an_import_keeps_the_passages_that_an_unfinished_build_has_read(tmp_path: Path) -> None:
    Index.build([BRIDGE], tmp_path / "index")
    asked: list[str] = []
    build_graph(Index.open(tmp_path / "index"), tmp_path / "graph", lm=reader(asked))
    (tmp_path / "graph" / "manifest.json").unlink()
    bring(tmp_path)
    build_graph(Index.open(tmp_path / "index"), tmp_path / "graph", lm=reader(asked))
    assert len(asked) == 1


def test_importing_is_idempotent_and_a_changed_file_replaces_its_rows(
    tmp_path: Path,
) -> None:
    first = bring(tmp_path, DRUGS)
    bring(tmp_path, ROWS)
    again = bring(tmp_path, DRUGS)
    assert len(first.changes.added) == len(again.changes.unchanged) == 3
    assert again.graph.manifest == open_graph(tmp_path / "graph").manifest
    changed = DRUGS.replace("0.9", "0.5").replace("type 2 diabetes,DAMAGES_THE", "sugar,harms")
    now = bring(tmp_path, changed)
    assert [len(ids) for ids in now.changes] == [1, 0, 1, 2]
    graph = now.graph.graph
    assert ("Metformin", "treats", "type 2 diabetes", "since 1958", 0.5) in triples(graph)
    assert ("sugar", "harms", "kidney", None, None) in triples(graph)
    assert {(h, r, t, None, None) for h, r, t in ROWS} <= triples(graph)
    assert "damages the" not in {r.relation for r in graph.relations}


def test_the_next_import_completes_a_killed_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bring(tmp_path, DRUGS)
    changed = DRUGS.replace("0.9", "0.5")  # the texts stay: only the records change
    with monkeypatch.context() as patch:
        patch.setattr(Index, "upsert", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            bring(tmp_path, changed)
    assert ("Metformin", "treats", "type 2 diabetes", "since 1958", 0.9) in triples(
        open_graph(tmp_path / "graph").graph
    )
    assert ("Metformin", "treats", "type 2 diabetes", "since 1958", 0.5) in triples(
        bring(tmp_path, changed).graph.graph
    )


def test_syncing_an_index_with_its_files_keeps_imported_rows(
    tmp_path: Path, command: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    (tmp_path / "bridge.md").write_text("# Bridge\n\nNils Haug designed it.")
    command("index", "build", "bridge.md", "--out", "index", cwd=tmp_path)
    bring(tmp_path)
    (tmp_path / "bridge.md").write_text("# Bridge\n\nAda Lund designed it.")
    command("index", "sync", "--index", "index", "--yes", cwd=tmp_path)
    assert len(Index.open(tmp_path / "index")) == 3 and "Ada Lund designed it." in texts(tmp_path)


# --- Bad rows


def test_nan_is_a_missing_value_and_zero_is_not(tmp_path: Path) -> None:
    missing = dict.fromkeys(("head_type", "head_aliases", "time"), float("nan"))
    made = bring(tmp_path, [{"head": "Oslo", "relation": "has deserts", "tail": 0, **missing}])
    assert triples(made.graph.graph) == {("Oslo", "has deserts", "0", None, None)}
    assert not any(entity.aliases or entity.type for entity in made.graph.graph.entities)


BAD = "head,relation,tail,confidence,head_id\nA,b,,,\nA,b,c,1.5,Q42\nA,b,c,1,w:1\nA,b,c,1,w:1,x\n"


def test_bad_rows_are_reported_together_and_nothing_is_imported(tmp_path: Path) -> None:
    with pytest.raises(InputError) as error:
        bring(tmp_path, BAD)
    told = str(error.value)
    assert "3 bad rows" in told and "rows.csv, line 2: no tail" in told
    assert "confidence '1.5'" in told and "line 3:" in told and "head_id 'Q42'" in told
    assert "line 5: more cells than columns" in told and "line 4" not in told
    assert [*tmp_path.iterdir()] == [tmp_path / "rows.csv"]


def test_bad_rows_can_be_skipped_and_are_listed(
    tmp_path: Path, command: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    (tmp_path / "rows.csv").write_text(BAD)
    done = command("graph", "import", "rows.csv", "--index", "index", "--out", "graph",
                   "--skip-bad-rows", cwd=tmp_path)  # fmt: skip
    assert done.returncode == 0 and "skipped: rows.csv, line 2: no tail" in done.stdout
    assert open_graph(tmp_path / "graph").manifest.relations == 1


@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
        ([], {}, "no rows in rows"),
        ([5], {}, "row 1: 5 is neither a mapping nor a triple"),
        ("subject,relation,object\na,b,c\n", {}, "line 2: no head, no tail"),
        (ROWS, {"columns": {"subject": "head"}}, "columns for subject"),
        ([{"head": "a", "relation": "b", "tail": t, "id": 1} for t in "xy"], {}, "another text"),
        (Path("facts.docx"), {}, "facts.docx is not a file"),
        ([Path("a/facts.csv"), Path("b/facts.csv")], {}, "several files under one name"),
    ],
)
def test_a_file_that_cannot_be_imported_is_refused_by_name(
    tmp_path: Path, rows: Any, options: dict[str, Any], message: str
) -> None:
    Index.build([BRIDGE], tmp_path / "index")
    with pytest.raises(InputError, match=message):
        bring(tmp_path, rows, **options)


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "own.graphml").write_text("<graphml><graph>")
    with pytest.raises(InputError, match=r"own\.graphml does not read as graphml"):
        bring(tmp_path, tmp_path / "own.graphml")


# --- Conditions, labels, answers


def test_conditions_and_labels_hold_for_imported_rows(tmp_path: Path) -> None:
    header, *lines = DRUGS.splitlines()
    numbered = [f"{header},id", *(f"{line},{n}" for n, line in enumerate(lines, 7)), ""]
    bring(tmp_path, "\n".join(numbered))
    bring(tmp_path, ROWS, labels={"rows.csv#7": {"hr"}})
    corpus = GraphIndex.open(tmp_path / "index", tmp_path / "graph")
    assert {r.relation for r in corpus.only({"tenant": "b"}).graph.relations} == {"damages the"}
    assert {r.relation for r in corpus.only({"imported": "rows"}).graph.relations} == {
        "founded", "lies in"
    }  # fmt: skip
    found = corpus.find("What does Metformin treat?")
    assert "treats" not in {r.relation for r in found.view.graph.relations}
    assert not any("treats" in passage.text for passage in found.passages)
    theirs = corpus.for_caller(Access(labels=frozenset({"hr"})))
    assert any("treats" in p.text for p in theirs.find("What does Metformin treat?").passages)


def test_the_graph_without_search_answers_from_the_passages_of_its_facts_in_fewer_tokens(
    tmp_path: Path,
) -> None:
    long = "It was found in a trial of many patients over several years. " * 20
    rows = [
        {"head": "Metformin", "relation": "treats", "tail": "type 2 diabetes",
         "text": f"Metformin treats type 2 diabetes. {long}"},
        {"head": "type 2 diabetes", "relation": "damages", "tail": "the kidneys"},
    ]  # fmt: skip
    bring(tmp_path, rows)
    corpus = GraphIndex.open(tmp_path / "index", tmp_path / "graph")
    question, prompts = "What does Metformin treat?", dict[str, str]()
    for mode in ("local", "graph"):
        lm = scripted_lm([{"verdict": "answered", "links": "[1]", "answer": "type 2 diabetes"}])
        with dspy.context(lm=lm):
            cited = GraphRAG(corpus, mode=mode)(question=question).cited
        (prompts[mode],) = lm.engine.prompts
    assert "Metformin -> treats -> type 2 diabetes [1]" in prompts["graph"]
    assert "trial" in prompts["local"] and "trial" not in prompts["graph"]
    assert corpus.index.get(cited[0]).text.startswith("Metformin treats")
    with dspy.context(lm=extractive_lm()):
        found = GraphRAG(corpus, mode="graph")(question=question)
        usual = GraphRAG(corpus)(question=question)
    assert found.answer == "type 2 diabetes" and found.supported == "chained"
    (link,) = found.evidence
    assert link.quote == "Metformin treats type 2 diabetes."
    assert link.source == "rows" and found.tokens < usual.tokens / 2


def test_the_graph_without_search_needs_facts_or_paths(tmp_path: Path) -> None:
    bring(tmp_path)
    corpus = GraphIndex.open(tmp_path / "index", tmp_path / "graph")
    with pytest.raises(InputError, match="neither facts nor paths"):
        GraphRAG(corpus, mode="graph", facts=0, paths=0)
