from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ga_dspy.graph import Entity, Evidence, GraphUpdate, KnowledgeGraph, Relation

Shown = tuple[frozenset[object], frozenset[object]]

CONFUSABLE = (
    st.sampled_from(
        (
            "Cambridge",
            "cambridge",
            "Cambridge (England)",
            "Perry",
            "Katy Perry",
            "Joe Perry",
            "1998",
        )
    )
    | st.sampled_from(
        ("USA", "U.S.", "United States", "UN", "United Nations", "World Health Organization", "WHO")
    )
    | st.sampled_from(
        ("Mercury", "Prism", "Prism (album)", "Henry VII", "Henry VIII", "Christina Perri")
    )
)
PASSAGES = st.lists(st.sampled_from(["p1", "p2", "p3"]), max_size=2, unique=True).map(
    lambda passages: tuple(Evidence(passage=p, start=0, end=4) for p in passages)
)
ATTRIBUTES = st.lists(
    st.sampled_from(["country: England", "state: Massachusetts", "born 1950", "born 1820", "tall"]),
    max_size=2,
    unique=True,
).map(tuple)
ENTITIES = st.builds(
    Entity,
    name=CONFUSABLE,
    type=st.sampled_from(["", "person", "singer", "city", "album", "film", "planet", "element"]),
    attributes=ATTRIBUTES,
    aliases=st.lists(CONFUSABLE, max_size=1).map(tuple),
    evidence=PASSAGES,
)
RELATIONS = st.builds(
    Relation,
    head=CONFUSABLE,
    relation=st.sampled_from(["born in", "was born in", "known as", "wrote"]),
    tail=CONFUSABLE,
    time=st.sampled_from([None, "1950", "1998"]),
    confidence=st.sampled_from([None, 0.5, 0.9]),
    evidence=PASSAGES,
)
UPDATES = st.builds(
    GraphUpdate,
    entities=st.lists(ENTITIES, max_size=4).map(tuple),
    relations=st.lists(RELATIONS, max_size=4).map(tuple),
)


def shown(graph: KnowledgeGraph) -> Shown:
    """What a graph shows, display order aside."""
    entities = (
        (e.name, e.type, frozenset(e.attributes), frozenset(e.aliases), frozenset(e.evidence))
        for e in graph.entities
    )
    relations = (
        (r.head, r.relation, r.tail, r.time, r.confidence, frozenset(r.evidence))
        for r in graph.relations
    )
    return frozenset(entities), frozenset(relations)


@given(UPDATES, UPDATES)
def test_merging_again_changes_nothing(one: GraphUpdate, other: GraphUpdate) -> None:
    graph = KnowledgeGraph().merge(one).merge(other)
    assert graph.merge(one) == graph
    assert graph.merge(other).difference(graph).is_empty


@given(UPDATES, UPDATES, UPDATES)
def test_the_order_of_updates_does_not_matter(
    a: GraphUpdate, b: GraphUpdate, c: GraphUpdate
) -> None:
    forward = KnowledgeGraph().merge(a).merge(b).merge(c)
    backward = KnowledgeGraph().merge(c).merge(b).merge(a)
    assert shown(forward) == shown(backward)


@given(UPDATES, UPDATES)
def test_merging_two_updates_is_merging_their_union(one: GraphUpdate, other: GraphUpdate) -> None:
    union = GraphUpdate(
        entities=one.entities + other.entities, relations=one.relations + other.relations
    )
    assert KnowledgeGraph().merge(one).merge(other) == KnowledgeGraph().merge(union)


@given(UPDATES)
def test_no_two_entities_are_shown_under_one_name(update: GraphUpdate) -> None:
    graph = KnowledgeGraph().merge(update)
    names = [each.name for each in graph.entities]
    assert len(set(names)) == len(names)
    assert all(graph.find(name) is not None for name in names)


@given(UPDATES)
def test_no_evidence_is_lost(update: GraphUpdate) -> None:
    graph = KnowledgeGraph().merge(update)
    kept = {evidence for each in graph.entities for evidence in each.evidence}
    assert kept == {evidence for each in update.entities for evidence in each.evidence}
