"""The page of a corpus graph: what stands in the file, and what a reader may not see does not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from test_serve import KEY, asked
from test_viewer import data_of

from ga_dspy import viewer
from ga_dspy.errors import InputError
from ga_dspy.graph import Entity, Evidence, GraphUpdate, Relation
from ga_dspy.graphrag import Access, CorpusGraph, GraphIndex, GraphRAG, Rules
from ga_dspy.graphrag.communities import Summary, find_communities, topics_of
from ga_dspy.passage import Passage
from ga_dspy.retrieval import Index
from ga_dspy.serve.keys import Key

pytest.importorskip("igraph")

HOSTILE = "</script><script>alert(1)</script>"
PASSAGES = [
    Passage(
        id="p1",
        title="The yard",
        text="Ann Lee built the Ora in 1901. Ann Lee lives in Bern.",
        metadata={"source": "yard.pdf", "page": 3},
    ),
    Passage(
        id="p2",
        title="Pay",
        text="Ann Lee earns 90 crowns. The Ora sails to Rome. It sank in 1903.",
    ),
    Passage(id="p3", title="Secret", text="The Ora carries Uranium."),
    Passage(id="p4", text=f"Bern is twinned with {HOSTILE}."),
]
TRIPLES: dict[str, list[tuple[str, str, str, str | None]]] = {
    "p1": [("Ann Lee", "built", "Ora", "1901"), ("Ann Lee", "lives in", "Bern", None)],
    "p2": [
        ("Ann Lee", "earns", "90 crowns", None),
        ("Ora", "sails to", "Rome", None),
        ("Ora", "sank in", "1903", None),
    ],
    "p3": [("Ora", "carries", "Uranium", None)],
    "p4": [("Bern", "is twinned with", HOSTILE, None)],
}


def update(passage: Passage) -> GraphUpdate:
    """What a passage states: each relation in the sentence that has its wording."""
    relations = []
    for head, relation, tail, time in TRIPLES[passage.id]:
        sentence = next(s for s in passage.text.split(". ") if f" {relation} " in s)
        start = passage.content.index(sentence)
        span = Evidence(passage=passage.id, start=start, end=start + len(sentence))
        relations.append(
            Relation(head=head, relation=relation, tail=tail, time=time, evidence=(span,))
        )
    ann = Entity(name="Ann Lee", type="person", aliases=("A. Lee",), attributes=("builder",))
    known = (ann,) if passage.id == "p1" else ()
    return GraphUpdate(entities=known, relations=tuple(relations))


@pytest.fixture(scope="module")
def graph() -> CorpusGraph:
    """A graph whose passage p3 needs the label "navy", and whose pay needs "hr"."""
    rules = Rules(relation_labels={"earns": frozenset({"hr"})})
    records = {passage.id: update(passage) for passage in PASSAGES}
    return CorpusGraph.of(records, labels={"p3": ["navy"]}, rules=rules)


@pytest.fixture(scope="module")
def index() -> Index:
    return Index.from_passages(PASSAGES, kind="sparse")


def quoted(data: dict[str, Any]) -> dict[str, list[tuple[str, str]]]:
    """The quotes of each relation, with the passage's id."""
    names = [entity["name"] for entity in data["entities"]]
    found = {}
    for one in data["relations"]:
        spans = [data["quotes"][at] for at in one["quotes"]]
        quotes = [(data["passages"][at]["id"], text) for at, text in spans]
        found[f"{names[one['head']]} {one['relation']} {names[one['tail']]}"] = quotes
    return found


def test_a_page_has_each_relation_with_the_sentences_that_state_it(
    graph: CorpusGraph, index: Index
) -> None:
    data = data_of(viewer.graph_page(graph, index, title="Yard"))
    assert data["title"] == "Yard"
    assert quoted(data["graph"]) == {
        "Ann Lee built Ora": [("p1", "Ann Lee built the Ora in 1901")],
        "Ann Lee lives in Bern": [("p1", "Ann Lee lives in Bern.")],
        "Ora sails to Rome": [("p2", "")],
        "Ora sank in 1903": [("p2", "")],
        f"Bern is twinned with {HOSTILE}": [("p4", f"Bern is twinned with {HOSTILE}.")],
    }
    assert {"id": "p1", "title": "The yard", "source": "yard.pdf, p. 3"} in data["graph"][
        "passages"
    ]
    (ann,) = (e for e in data["graph"]["entities"] if e["name"] == "Ann Lee")
    assert ann["type"] == "person" and ann["aliases"] == ["A. Lee"]
    assert ann["attributes"] == ["builder"] and "value" not in ann
    assert {r.get("time") for r in data["graph"]["relations"]} == {"1901", None}


def test_entities_are_ordered_by_centrality_and_dates_come_last(graph: CorpusGraph) -> None:
    entities = viewer.graph_data(graph)["entities"]
    assert [entity["name"] for entity in entities[:2]] == ["Ora", "Bern"]
    assert [entity["name"] for entity in entities if entity.get("value")] == ["1903"]
    assert entities[-1]["name"] == "1903"


def test_content_that_the_reader_may_not_see_is_not_in_the_file(
    graph: CorpusGraph, index: Index
) -> None:
    public = viewer.graph_page(graph, index)
    # The passage about pay is restricted as a whole, though one of its relations is public.
    assert "sails to" in public and not {"Uranium", "crowns", "Pay", "p3", "navy"} & words(public)
    navy = viewer.graph_page(graph, index, access=Access(labels=frozenset({"navy"})))
    assert {"Uranium", "Secret"} < words(navy) and "crowns" not in words(navy)
    everything = viewer.graph_page(graph, index, access=Access(labels=graph.labels_in_use))
    assert {"Uranium", "crowns", "Pay"} < words(everything)


def test_content_that_the_conditions_exclude_is_not_in_the_file(
    graph: CorpusGraph, index: Index
) -> None:
    part = GraphIndex(index, graph).only({"source": "yard.pdf"})
    page = viewer.graph_page(part.graph, part.index, access=Access(labels=graph.labels_in_use))
    assert "Bern" in words(page) and not {"twinned", "Rome", "Uranium", "p2", "p4"} & words(page)
    required = Index.from_passages(PASSAGES, kind="sparse", require=["source"])
    with pytest.raises(InputError, match="source"):
        viewer.graph_page(graph, required)


def words(page: str) -> set[str]:
    data = data_of(page)
    return set(json.dumps(data, ensure_ascii=False).replace('"', " ").replace(".", " ").split())


def test_without_an_index_a_page_cites_the_passages_by_id(graph: CorpusGraph) -> None:
    data = viewer.graph_data(graph)
    assert sorted(passage["id"] for passage in data["passages"]) == ["p1", "p2", "p4"]
    assert {text for _, text in data["quotes"]} == {""}


def test_communities_have_the_titles_of_their_summaries(graph: CorpusGraph) -> None:
    communities = find_communities(graph)
    summary = Summary(title="The Ora", text="Ann Lee built it.")
    topics = topics_of(communities, {communities[0].key: summary})
    data = viewer.graph_data(graph, communities=communities, topics=topics)
    assert data["communities"] == [{"title": "The Ora", "text": "Ann Lee built it."}]
    assert {entity["community"] for entity in data["entities"]} == {0}
    assert viewer.graph_data(graph)["communities"] == [{}]


def test_markup_in_a_name_cannot_end_a_script(graph: CorpusGraph, index: Index) -> None:
    page = viewer.graph_page(graph, index, title=HOSTILE)
    assert data_of(page)["title"] == HOSTILE
    assert "<script>alert(1)" not in page and "&lt;/script&gt;" in page


def test_a_sentence_that_states_many_relations_is_stored_once() -> None:
    text = "The members are " + ", ".join(f"M{n}" for n in range(500))
    span = Evidence(passage="p", start=0, end=len(text))
    relations = (
        Relation(head=f"M{n}", relation="member of", tail="Club", evidence=(span,))
        for n in range(500)
    )
    graph = CorpusGraph.of({"p": GraphUpdate(relations=tuple(relations))})
    page = viewer.graph_page(
        graph, Index.from_passages([Passage(id="p", text=text)], kind="sparse")
    )
    assert page.count(text) == 1
    assert len(page) - len(viewer.graph_page(CorpusGraph.of({}))) < 120_000


def test_an_empty_graph_has_a_page() -> None:
    data = data_of(viewer.graph_page(CorpusGraph.of({})))["graph"]
    names = ("entities", "relations", "communities", "passages", "quotes")
    assert data == {name: [] for name in names}


# --- The service


@pytest.fixture
def served(graph: CorpusGraph, index: Index) -> Iterator[httpx.Client]:
    corpus = GraphIndex(index, graph).for_caller(Access(labels=frozenset({"navy"})))
    with asked(corpus, program=GraphRAG, keys=[KEY.encode()]) as client:
        yield client


def test_the_service_shows_the_graph_that_its_program_may_read(
    served: httpx.Client, graph: CorpusGraph, index: Index
) -> None:
    page = served.get("/graph")
    assert page.status_code == 200 and data_of(page.text) == {}
    assert data_of(served.get("/").text) == {"has_graph": True}
    assert served.get("/graph.json").status_code == 401
    found = served.get("/graph.json", headers={"X-API-Key": KEY}).json()
    navy = Access(labels=frozenset({"navy"}))
    assert found == viewer.graph_data(graph, index, access=navy)
    assert "Uranium" in str(found) and "crowns" not in str(found)
    assert "/graph.json" in served.get("/openapi.json").json()["paths"]


def test_a_service_without_a_graph_has_no_graph_page(index: Index) -> None:
    with asked(index) as client:
        assert client.get("/graph").status_code == client.get("/graph.json").status_code == 404
        assert data_of(client.get("/").text) == {"has_graph": False}


def test_a_service_neither_counts_nor_names_labelled_passages(
    graph: CorpusGraph, index: Index
) -> None:
    with asked(GraphIndex(index, graph), program=GraphRAG) as client:
        about = client.get("/about").json()
    hidden = [passage for passage in index if not graph.visible(None).readable(passage.id)]
    assert hidden and about["passages"] == len(index) - len(hidden)
    assert not any(passage.title in str(about["examples"]) for passage in hidden)


def test_a_service_updates_the_graph_page_when_passages_change(graph: CorpusGraph) -> None:
    index = Index.from_passages(PASSAGES, kind="sparse")
    with asked(GraphIndex(index, graph), program=GraphRAG) as client:
        assert "Bern is twinned" in client.get("/graph.json").text
        index.delete(["p4"])
        assert "Bern is twinned" not in client.get("/graph.json").text


def test_each_key_gets_only_the_graph_that_it_may_see(graph: CorpusGraph, index: Index) -> None:
    keys: dict[str, dict[str, Any]] = {
        "yard": {"where": {"source": "yard.pdf"}},
        "navy": {"labels": frozenset({"navy"})},
        "metrics": {"rights": frozenset({"metrics"})},
    }
    entries = [Key.of(name.encode() * 4, name=name, **more) for name, more in keys.items()]
    with asked(GraphIndex(index, graph), program=GraphRAG, keys=entries) as client:
        sent = {name: {"X-API-Key": name * 4} for name in keys}
        yard, navy, metrics = (client.get("/graph.json", headers=sent[name]) for name in keys)
    assert "lives in" in yard.text and "sails to" not in yard.text and "twinned" not in yard.text
    assert "Uranium" in navy.text and "sails to" in navy.text and "crowns" not in navy.text
    assert metrics.status_code == 403 and "Ora" not in metrics.text
