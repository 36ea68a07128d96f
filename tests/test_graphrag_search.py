from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ga_dspy.errors import InputError
from ga_dspy.graph import Entity, Evidence, GraphUpdate, KnowledgeGraph, Relation
from ga_dspy.graphrag import Access, CorpusGraph, Rules
from ga_dspy.graphrag.search import Found, GraphIndex
from ga_dspy.passage import Passage
from ga_dspy.retrieval import Index

TEXTS = {
    "ada": ("Ada Brook", "Ada Brook is a poet. She wrote River Songs and lives in Bergen."),
    "songs": ("River Songs", "River Songs was set to music by Carl Stone."),
    "stone": ("Carl Stone", "The composer was born in Skien."),
    "opera": ("Opera house", "An opera house of white marble stands by the water."),
    "plan": ("Planning", "Project Nightfall, which Ada Brook runs, is kept by Carl Stone."),
    "pay": ("Pay", "Ada Brook earns 90,000 crowns. Ada Brook likes Fjord Radio."),
}
PASSAGES = [Passage(id=id, title=title, text=text) for id, (title, text) in TEXTS.items()]
FACTS = {
    "ada": ("Ada Brook / wrote / River Songs", "Ada Brook / lives in / Bergen"),
    "songs": ("River Songs / set to music by / Carl Stone",),
    "stone": ("Carl Stone / born in / Skien",),
    "plan": ("Ada Brook / runs / Project Nightfall", "Project Nightfall / kept by / Carl Stone"),
    "pay": ("Ada Brook / earns / 90,000 crowns", "Ada Brook / likes / Fjord Radio"),
}
SECRET = Entity(
    name="Ada Brook", type="poet", aliases=("Night Owl",), attributes=("suspended in spring",)
)
HR = frozenset({"hr"})
RULES = Rules(relation_labels={"earns": HR})


def records(facts: Mapping[str, tuple[str, ...]]) -> dict[str, GraphUpdate]:
    stated = {}
    for passage, lines in facts.items():
        here = (Evidence(passage=passage, start=0, end=1),)
        parts = [fact.split(" / ") for fact in lines]
        secret = (SECRET.model_copy(update={"evidence": here}),) if passage == "plan" else ()
        relations = (Relation(head=h, relation=r, tail=t, evidence=here) for h, r, t in parts)
        stated[passage] = GraphUpdate(entities=secret, relations=tuple(relations))
    return stated


GRAPH = CorpusGraph.of(records(FACTS), labels={"plan": HR}, rules=RULES)
OPEN = CorpusGraph.of(
    records(
        {id: lines for id, lines in FACTS.items() if id not in ("plan", "pay")}
        | {"pay": FACTS["pay"][1:]}
    )
)
INDEX = Index.from_passages(PASSAGES, kind="hybrid", encoder="hash-256")
SEARCH = GraphIndex(INDEX, GRAPH)
ATTACKS = (
    "How are Ada Brook and Carl Stone connected?",
    "Who keeps Project Nightfall?",
    "What does the Night Owl run?",
    "Which poet was suspended in spring?",
    "How many crowns does Ada Brook earn?",
    "which things are kept by somebody",
)
SECRETS = ("nightfall", "night owl", "suspended", "90,000", "earns", "runs", "kept by")


def neighbourhood(found: Found) -> KnowledgeGraph:
    return found.view.graph.subgraph(found.nodes, found.edges)


def handed_out(found: Found) -> str:
    """All that a search hands out, but for the question's own words."""
    names = [link.name for link in found.linked]
    texts = [path.text for path in found.paths] + [fact.text for fact in found.facts]
    read = [passage.content for passage in found.passages]
    around = neighbourhood(found).model_dump_json()
    return "\n".join([*names, *texts, around, *read]).casefold()


@pytest.mark.parametrize("question", ATTACKS)
def test_a_caller_without_the_label_learns_nothing_private(question: str) -> None:
    found = SEARCH.find(question, k=6)
    assert not [secret for secret in SECRETS if secret in handed_out(found)]
    assert not {"plan", "pay"} & {passage.id for passage in found.passages}


@pytest.mark.parametrize("question", ATTACKS)
def test_without_the_label_results_equal_those_of_a_graph_without_the_secrets(
    question: str,
) -> None:
    ours, open_to_all = SEARCH.find(question), GraphIndex(INDEX, OPEN).find(question)
    assert ours.linked == open_to_all.linked
    assert (ours.facts, ours.paths) == (open_to_all.facts, open_to_all.paths)
    assert neighbourhood(ours) == neighbourhood(open_to_all)


def test_a_caller_with_the_label_finds_private_facts() -> None:
    found = [SEARCH.for_caller(Access(labels=HR)).find(question, k=6) for question in ATTACKS]
    everything = "\n".join(map(handed_out, found))
    assert all(secret in everything for secret in SECRETS)
    assert {"plan", "pay"} <= {passage.id for passage in found[0].passages}
    assert [link.how for link in found[2].linked] == ["alias"]
    assert len(found[0].paths) == 2


def test_a_question_finds_facts_paths_and_passages() -> None:
    found = SEARCH.find("Who set the poems of Ada Brook to music?")
    assert [link.name for link in found.linked] == ["Ada Brook"]
    assert "River Songs set to music by Carl Stone" in [fact.text for fact in found.facts]
    assert {"ada", "songs"} <= {passage.id for passage in found.passages}
    assert set(found.seconds) == {"linking", "expansion", "ranking", "passages"}
    assert not found.gap


def test_linked_entities_are_connected_by_paths() -> None:
    found = SEARCH.find("What connects Bergen and Skien?")
    (path,) = found.paths
    assert path.text == (
        "Bergen ← lives in ← Ada Brook → wrote → River Songs → set to music by → Carl Stone "
        "→ born in → Skien"
    )


def test_the_graph_finds_a_passage_that_the_index_does_not() -> None:
    question = "Who is Ada Brook?"
    index = Index.from_passages(PASSAGES, kind="sparse")
    alone = [passage.id for passage in index(question, 6)]
    with_graph = [passage.id for passage in GraphIndex(index, GRAPH).find(question, k=6).passages]
    assert "stone" not in alone
    assert "stone" in with_graph


def test_a_question_without_names_is_linked_by_vectors_and_is_a_gap() -> None:
    found = SEARCH.find("which songs were set to music?")
    assert found.gap
    assert {link.how for link in found.linked} == {"vector"}
    assert "River Songs" in [link.name for link in found.linked]


def test_without_vectors_a_question_without_names_still_gets_passages() -> None:
    search = GraphIndex(Index.from_passages(PASSAGES, kind="sparse"), GRAPH)
    found = search.find("which house is of marble?")
    assert found.gap and not found.linked and not found.facts
    assert found.passages[0].id == "opera"


def test_vectors_are_cached_in_the_folder(tmp_path: Path) -> None:
    question = "which songs were set to music?"
    first = GraphIndex(INDEX, GRAPH, folder=tmp_path)
    first.warm()
    kept = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.npy")}
    assert kept
    graph = CorpusGraph.of(records(FACTS), labels={"plan": HR}, rules=RULES)
    again = GraphIndex(INDEX, graph, folder=tmp_path)
    assert again.find(question).linked == first.find(question).linked
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.npy")} == kept


def test_a_passage_missing_from_the_index_is_skipped() -> None:
    index = Index.from_passages([p for p in PASSAGES if p.id != "ada"], kind="sparse")
    found = GraphIndex(index, GRAPH).find("Where does Ada Brook live?")
    assert found.passages and "ada" not in [passage.id for passage in found.passages]


def test_private_passages_do_not_use_up_the_k_results() -> None:
    hidden = [Passage(id=f"h{i}", text=f"marble marble {i}") for i in range(80)]
    index = Index.from_passages([*hidden, *PASSAGES], kind="sparse")
    graph = CorpusGraph.of(records(FACTS), labels={passage.id: HR for passage in hidden})
    assert [p.id for p in GraphIndex(index, graph).find("marble?", k=2).passages] == ["opera"]


def test_the_same_question_finds_the_same_results_in_all_threads() -> None:
    search = GraphIndex(INDEX, GRAPH)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(search.find, ATTACKS * 4))
    for one, question in zip(found, ATTACKS * 4, strict=True):
        again = search.find(question)
        assert (one.linked, one.facts, one.paths) == (again.linked, again.facts, again.paths)
        assert one.passages == again.passages


@pytest.mark.parametrize(("question", "k"), [(" ", 5), ("Who?", 0)])
def test_a_blank_question_and_a_k_below_one_are_refused(question: str, k: int) -> None:
    with pytest.raises(InputError):
        SEARCH.find(question, k=k)


def test_sizes_below_one_are_refused() -> None:
    with pytest.raises(InputError, match="hops is 0"):
        SEARCH.find("Who?", hops=0)
