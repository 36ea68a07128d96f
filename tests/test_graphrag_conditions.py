"""Conditions on the relations of a corpus graph: name, confidence and time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dspy
import pytest
from typer.testing import CliRunner

from ga_dspy import Index, Passage
from ga_dspy.cli.commands import app
from ga_dspy.errors import InputError
from ga_dspy.graph import Entity, Evidence, GraphUpdate, Relation
from ga_dspy.graph.times import BEGINNING, ENDLESS, Interval, interval_of
from ga_dspy.graphrag import Access, CorpusGraph, GraphIndex, GraphRAG, Rules
from ga_dspy.graphrag.records import Sources
from ga_dspy.graphrag.stored import GraphManifest, Record, StoredGraph
from ga_dspy.testing import scripted_lm

# --- Times


@pytest.mark.parametrize(
    ("text", "start", "end", "is_span"),
    [
        ("1999", (1999, 1, 1), (1999, 12, 31), False),
        ("in May 1987", (1987, 5, 1), (1987, 5, 31), False),
        ("12th of May, 1987", (1987, 5, 12), (1987, 5, 12), False),
        ("May 12, 1987", (1987, 5, 12), (1987, 5, 12), False),
        ("1987-05-12", (1987, 5, 12), (1987, 5, 12), False),
        ("since 1999", (1999, 1, 1), ENDLESS, True),
        ("2010 – present", (2010, 1, 1), ENDLESS, True),
        ("until March 2004", BEGINNING, (2004, 3, 31), True),
        ("from 1999 to 2005", (1999, 1, 1), (2005, 12, 31), True),
        ("1999–05", (1999, 1, 1), (2005, 12, 31), True),
        ("January 2001 until 3 June 2002", (2001, 1, 1), (2002, 6, 3), True),
        ("the early 1990s", (1990, 1, 1), (1999, 12, 31), False),
        ("19th century", (1801, 1, 1), (1900, 12, 31), False),
        ("5th century BC", (-500, 1, 1), (-401, 12, 31), False),
        ("27 BC to 14 AD", (-27, 1, 1), (14, 12, 31), True),
        ("1821 or 1822", (1821, 1, 1), (1822, 12, 31), False),
    ],
)
def test_a_time_expression_is_read_as_an_interval_of_days(
    text: str, start: Any, end: Any, is_span: bool
) -> None:
    assert interval_of(text) == Interval(start, end, is_span)


@pytest.mark.parametrize("text", ["", "sometime", "9.5 km", "population 12345", "5 May", "12:30"])
def test_a_time_expression_without_a_year_has_no_interval(text: str) -> None:
    assert interval_of(text) is None


# --- A graph with times and confidences

FACTS: dict[str, Relation] = {
    "bonn": Relation(head="Bonn", relation="is the capital of", tail="Rhineland", time="1949–1990"),
    "essen": Relation(head="Essen", relation="capital of", tail="Rhineland", time="since 1991"),
    "koeln": Relation(head="Cologne", relation="capital of", tail="Rhineland", time="since 2005"),
    "mill": Relation(head="Essen", relation="has", tail="Old Mill", confidence=0.4),
    "pier": Relation(head="Old Mill", relation="built in", tail="1996", confidence=0.9),
}


def record(id: str, relation: Relation) -> GraphUpdate:
    spans = (Evidence(passage=id, start=0, end=len(relation.head)),)
    entities = tuple(Entity(name=name, evidence=spans) for name in relation.ends)
    stated = relation.model_copy(update={"evidence": spans})
    return GraphUpdate(entities=entities, relations=(stated,))


def passages() -> list[Passage]:
    texts = {id: f"{r.head} {r.relation} {r.tail} {r.time or ''}." for id, r in FACTS.items()}
    return [Passage(id=id, title=id, text=text) for id, text in texts.items()]


@pytest.fixture
def corpus() -> GraphIndex:
    graph = CorpusGraph.of({id: record(id, relation) for id, relation in FACTS.items()})
    return GraphIndex(Index.from_passages(passages(), encoder="hash-64"), graph)


def heads(corpus: GraphIndex) -> set[str]:
    return {relation.head for relation in corpus.graph.relations}


@pytest.mark.parametrize(
    ("where", "kept"),
    [
        ({"relation.name": "was the capital of"}, {"Bonn", "Essen", "Cologne"}),
        ({"relation.name": {"!=": ["capital of", "has"]}}, {"Old Mill"}),
        ({"relation.confidence": {">=": 0.5}}, {"Bonn", "Essen", "Cologne", "Old Mill"}),
        ({"relation.time": {"<=": "1990"}, "relation.name": "capital of"}, {"Bonn"}),
        ({"relation.time": {">=": "1992", "<=": "1997"}}, {"Essen", "Old Mill"}),
        ({"relation.time": "1960", "relation.name": "capital of"}, {"Bonn"}),
        ({"relation.time": "1995", "relation.name": "capital of"}, {"Essen"}),
        ({"relation.time": "2020", "relation.name": "capital of"}, {"Cologne"}),
        ({"relation.time": "1995"}, {"Essen"}),  # the mill has no time, and was not yet built
    ],
)
def test_only_relations_that_meet_the_conditions_remain(
    corpus: GraphIndex, where: Any, kept: set[str]
) -> None:
    assert heads(corpus.only(where)) == kept


def test_the_ends_of_excluded_relations_are_removed(corpus: GraphIndex) -> None:
    part = corpus.only({"relation.name": "capital of"}).graph
    assert not part.find("Old Mill")
    assert part.find("Essen")


def test_chained_conditions_combine(corpus: GraphIndex) -> None:
    both = corpus.only({"relation.time": "1995"}).only({"relation.name": "has"})
    assert both.graph.relations == corpus.only(
        {"relation.time": "1995", "relation.name": "has"}
    ).graph.relations  # fmt: skip
    assert both.scope == ({"relation.time": "1995"}, {"relation.name": "has"})


def test_a_condition_in_use_reuses_the_resolved_graph(corpus: GraphIndex) -> None:
    where = {"relation.time": "1995"}
    assert corpus.only(where).graph is corpus.only(dict(where)).graph
    assert corpus.only(where).index is corpus.index


def test_a_prompt_has_no_relation_that_the_conditions_exclude(corpus: GraphIndex) -> None:
    lm = scripted_lm(lambda _: {"verdict": "answered", "links": "", "answer": "Essen"})
    with dspy.context(lm=lm):
        program = GraphRAG(corpus, k=1)
        program(question="What is the capital of Rhineland?", where={"relation.time": "1995"})
        program(question="What is the capital of Rhineland?")
    dated, whole = lm.engine.prompts
    shown = "Essen -> capital of -> Rhineland (time: since 1991)"
    assert shown in dated
    assert shown in whole
    assert "Cologne -> " in whole
    assert "Cologne -> " not in dated


@pytest.mark.parametrize(
    "where",
    [
        {"relation.kind": "capital of"},
        {"relation.time": "some day"},
        {"relation.time": ["1990", "1991"]},
        {"relation.time": {"!=": "1990"}},
        {"relation.confidence": 0.5},
        {"relation.confidence": {">=": "high"}},
        {"relation.confidence": {">=": float("nan")}},
        {"relation.confidence": {">=": 7}},
    ],
)
def test_an_invalid_condition_on_relations_is_refused(corpus: GraphIndex, where: Any) -> None:
    with pytest.raises(InputError, match="relation"):
        corpus.only(where)


def test_a_hidden_later_value_does_not_end_the_visible_one() -> None:
    graph = CorpusGraph.of(
        {id: record(id, FACTS[id]) for id in ("essen", "koeln")}, labels={"koeln": ["board"]}
    )
    corpus = GraphIndex(Index.from_passages(passages(), encoder="hash-64"), graph)
    now = corpus.only({"relation.time": "2020"}).graph
    assert [r.head for r in now.public.relations] == ["Essen"]
    board = now.visible(Access(labels=frozenset({"board"}))).graph
    assert [r.head for r in board.relations] == ["Cologne"]


def test_a_passage_that_states_an_excluded_private_relation_stays_hidden() -> None:
    rules = Rules(relation_labels={"has": frozenset({"hr"})})
    graph = CorpusGraph.of({id: record(id, r) for id, r in FACTS.items()}, rules=rules)
    corpus = GraphIndex(Index.from_passages(passages(), encoder="hash-64"), graph)
    part = corpus.only({"relation.name": {"!=": "has"}}).only({"relation.confidence": {">=": 0.1}})
    assert "mill" not in {passage.id for passage in part("Old Mill", k=5)}
    assert part.passage("mill") is None


# --- Values that follow each other


def conflicts(*relations: Relation) -> int:
    graph = CorpusGraph.of({str(i): record(str(i), r) for i, r in enumerate(relations)})
    return len(graph.contradictions) // 2


def president(head: str, time: str | None) -> Relation:
    return Relation(head=head, relation="president of", tail="Ruritania", time=time)


@pytest.mark.parametrize(
    ("one", "other", "count"),
    [
        (None, None, 1),
        ("since 2010", None, 1),
        ("since 2010", "since 2015", 0),
        ("2010–2014", "2015–2019", 0),
        ("2010–2015", "since 2015", 0),
        ("2010–2016", "2015–2019", 1),
        ("2010", "2015", 0),
    ],
)
def test_two_holders_conflict_unless_their_times_follow_each_other(
    one: str | None, other: str | None, count: int
) -> None:
    assert conflicts(president("Ann Lee", one), president("Bob Ray", other)) == count


def test_the_command_line_lists_conflicts_and_takes_conditions(tmp_path: Path) -> None:
    pairs = [president("Ann Lee", "2010–2016"), president("Bob Ray", "2015–2019")]
    graph = CorpusGraph.of({str(i): record(str(i), r) for i, r in enumerate(pairs)})
    stated = graph.sources.records.items()
    records = {id: Record.of(id, update, "", "") for id, update in stated}
    manifest = GraphManifest(index="", extraction="", settings="")
    StoredGraph(tmp_path, manifest, records, Sources(), graph.tables, lambda: graph.tables).save()

    def printed(*arguments: str) -> str:
        result = CliRunner().invoke(app, ["graph", *arguments])
        assert result.exit_code == 0, result.output
        return " ".join(result.output.split())

    folder = str(tmp_path)
    assert "(2010–2016) (2015–2019)" in printed("conflicts", folder)
    dated = printed("conflicts", folder, "--where", "relation.time=2012")
    assert "no relations contradict" in dated
    shown = printed("show", folder, "Ruritania", "--where", "relation.time=2018")
    assert "Bob Ray" in shown
    assert "Ann Lee" not in shown
