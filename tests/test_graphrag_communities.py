"""Communities by Leiden and their summaries: steady, cached, grounded, and public alone."""

from __future__ import annotations

import random
from functools import cache
from pathlib import Path
from typing import Any

import dspy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ga_dspy.errors import InputError
from ga_dspy.graph import Evidence, GraphUpdate, Relation
from ga_dspy.graphrag import CorpusGraph, Summaries
from ga_dspy.graphrag.communities import (
    LARGEST,
    SMALLEST,
    Community,
    Summary,
    community_text,
    find_communities,
)
from ga_dspy.testing import scripted_lm


def links(passage: str, *pairs: tuple[str, str]) -> GraphUpdate:
    evidence = (Evidence(passage=passage, start=0, end=5),)
    return GraphUpdate(
        relations=tuple(
            Relation(head=head, relation="knows", tail=tail, evidence=evidence)
            for head, tail in pairs
        )
    )


def circle(letter: str, count: int) -> list[tuple[str, str]]:
    """Everybody knows the two next: `count` people whose names start with a letter."""
    names = [f"{letter}{'abcdefghij'[i // 10]}{'abcdefghij'[i % 10]}" for i in range(count)]
    return [(names[i], names[(i + step) % count]) for i in range(count) for step in (1, 2)]


def names_of(graph: CorpusGraph, community: Community) -> set[str]:
    return {graph.public.name(node) for node in community.nodes}


CIRCLES = {
    "p1": links("p1", *circle("K", 50)),
    "p2": links("p2", *circle("M", 50)),
    "p3": links("p3", ("Kaa", "Maa")),
    "p4": links("p4", *circle("Q", 5)),
}


def test_connected_entities_form_a_community() -> None:
    graph = CorpusGraph.of(CIRCLES)
    found = find_communities(graph)
    top = [names_of(graph, c) for c in found if c.level == 0]
    assert all(len({name[0] for name in names}) == 1 for names in top)
    assert set.union(*top) == {graph.name(n) for n in range(len(graph))}


def test_a_large_community_is_divided_into_children_that_refer_to_it() -> None:
    graph = CorpusGraph.of(
        {"p": links("p", *circle("K", 99), *[(f"K{c}a", f"K{c}f") for c in "abc"])}
    )
    found = find_communities(graph)
    for community in found:
        assert len(community.nodes) >= SMALLEST
        if community.parent >= 0:
            parent = found[community.parent]
            assert parent.level == community.level - 1 and len(parent.nodes) > LARGEST
            assert set(community.nodes) < set(parent.nodes)
    for level in {community.level for community in found}:
        inside = [
            node for community in found if community.level == level for node in community.nodes
        ]
        assert len(inside) == len(set(inside))


@cache
def keys_in_order() -> list[str]:
    return [community.key for community in find_communities(CorpusGraph.of(CIRCLES))]


@settings(max_examples=10)
@given(st.permutations(sorted(CIRCLES)), st.integers())
def test_communities_are_deterministic(order: list[str], seed: int) -> None:
    random.seed(seed)
    shuffled = CorpusGraph.of({id: CIRCLES[id] for id in order})
    assert [c.key for c in find_communities(shuffled)] == keys_in_order()


def test_a_change_leaves_unrelated_communities_unchanged() -> None:
    before = set(keys_in_order())
    graph = CorpusGraph.of(CIRCLES | {"p5": links("p5", ("Qaa", "Zoe"))})
    changed = [c for c in find_communities(graph) if c.key not in before]
    assert changed and all(
        names_of(graph, c) <= {"Zoe"} | {n for n in names_of(graph, c) if n[0] == "Q"}
        for c in changed
    )


def test_nothing_private_is_in_a_community() -> None:
    graph = CorpusGraph.of(CIRCLES, labels={"p2": {"board"}, "p3": {"board"}})
    told = "\n".join(community_text(graph.public, c) for c in find_communities(graph))
    assert "Kaa" in told and "Maa" not in told


def test_outgoing_relations_are_part_of_a_communitys_text_and_summary() -> None:
    graph = CorpusGraph.of(CIRCLES)
    found = [c for c in find_communities(graph) if "Kaa" in names_of(graph, c)]
    assert found and all("Kaa -> knows -> Maa" in community_text(graph.public, c) for c in found)
    over = {"title": "Kaa", "summary": "Kaa knows Maa, who is of another circle."}
    made = Summaries().of(graph, found, lm=scripted_lm([over] * len(found)))
    assert {s.text for s in made.values() if isinstance(s, Summary)} == {over["summary"]}


def test_a_changed_outgoing_relation_changes_the_communitys_key() -> None:
    changed = CIRCLES | {"p3": links("p3", ("Kaa", "Mab"))}
    kept = {c.key for c in find_communities(CorpusGraph.of(changed))} & set(keys_in_order())
    assert 0 < len(kept) < len(keys_in_order())


def test_the_number_of_outgoing_relations_in_a_communitys_text_is_limited() -> None:
    center = [("Kaa", f"M{a}{b}") for a in "abcde" for b in "abcdefghij"]
    graph = CorpusGraph.of(CIRCLES | {"p3": links("p3", *center)})
    for community in find_communities(graph):
        inside = names_of(graph, community)
        lines = community_text(graph.public, community).splitlines()
        ends = [line.removeprefix("- ").split(" -> ")[::2] for line in lines if " -> " in line]
        out = [pair for pair in ends if not set(pair) <= inside]
        assert len(out) <= 40 and sum("Kaa" in pair for pair in out) <= 40


# Summaries

SMALL = {
    "p": links("p", ("Ada", "Bob"), ("Bob", "Cid")),
    "q": links("q", ("Xia", "Yan"), ("Yan", "Zoe")),
}


def telling(prompt: str) -> dict[str, str]:
    """An LM that retells the first relation."""
    line = next(line for line in prompt.splitlines() if line.startswith("- ") and " -> " in line)
    head, _, tail = line.removeprefix("- ").split(" -> ")
    return {"title": f"{head} and {tail}", "summary": f"{head} knows {tail}."}


def summaries(records: dict[str, GraphUpdate], lm: Any, kept: Summaries) -> dict[str, Any]:
    graph = CorpusGraph.of(records)
    return dict(kept.of(graph, find_communities(graph), lm=lm))


def test_only_changed_communities_are_summarised_again(tmp_path: Path) -> None:
    lm = scripted_lm(telling)
    first = summaries(SMALL, lm, Summaries(tmp_path / "s.sqlite"))
    assert {s.text for s in first.values()} == {"Ada knows Bob.", "Xia knows Yan."}
    again = summaries(SMALL, lm, Summaries(tmp_path / "s.sqlite"))
    assert again == first and len(lm.engine.prompts) == 2
    summaries(SMALL | {"r": links("r", ("Zoe", "Ula"))}, lm, Summaries(tmp_path / "s.sqlite"))
    assert len(lm.engine.prompts) == 3 and "Ula" in lm.engine.prompts[-1]


def test_a_summary_with_an_unknown_name_is_retried_and_that_sentence_dropped() -> None:
    wrong = {"title": "Ada", "summary": "Ada knows Bob. Together they met Napoleon in 1804."}
    lm = scripted_lm([wrong, wrong])
    (summary,) = summaries({"p": SMALL["p"]}, lm, Summaries()).values()
    assert "not in the graph: Napoleon, 1804" in lm.engine.prompts[1]
    assert summary == Summary(
        title="Ada", text="Ada knows Bob.", left_out=("Together they met Napoleon in 1804.",)
    )


def test_an_ungrounded_summary_is_an_error_and_is_not_stored() -> None:
    wrong = {"title": "War", "summary": "It is about Napoleon."}
    kept = Summaries()
    (failed,) = summaries({"p": SMALL["p"]}, scripted_lm([wrong] * 2), kept).values()
    assert failed.startswith("StepFailed") and "no sentence of it is grounded" in failed
    assert "Napoleon" in failed
    (mended,) = summaries({"p": SMALL["p"]}, scripted_lm(telling), kept).values()
    assert isinstance(mended, Summary)


def test_without_an_lm_stored_summaries_are_returned_and_new_ones_refused() -> None:
    kept = Summaries()
    with dspy.context(lm=None), pytest.raises(InputError, match="no LM is configured"):
        summaries(SMALL, None, kept)


def test_a_summary_uses_only_public_relations() -> None:
    lm = scripted_lm(telling)
    graph = CorpusGraph.of(SMALL | {"s": links("s", ("Ada", "Nightfall"))}, labels={"s": {"x"}})
    Summaries().of(graph, find_communities(graph), lm=lm)
    assert lm.engine.prompts and not any("Nightfall" in prompt for prompt in lm.engine.prompts)


def test_summaries_of_removed_communities_are_deleted(tmp_path: Path) -> None:
    lm = scripted_lm(telling)
    kept = Summaries(tmp_path / "s.sqlite")
    summaries(SMALL, lm, kept)
    kept.keep_only(find_communities(CorpusGraph.of({"p": SMALL["p"]})))
    summaries(SMALL, lm, kept)
    assert len(lm.engine.prompts) == 3
