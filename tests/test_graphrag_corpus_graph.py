"""The corpus graph in memory: nodes and edges, names, what a caller may see, the guards."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ga_dspy.graph import Entity, Evidence, GraphUpdate, KnowledgeGraph, Relation, linearise
from ga_dspy.graphrag import Access, CorpusGraph, Overrides, Pair, Rules, Spelling

Triple = tuple[str, str, str]


def stated(
    passage: str, *triples: Triple, types: Mapping[str, str] | None = None, **more: object
) -> GraphUpdate:
    """What a passage states, as extraction gives it."""
    evidence = (Evidence(passage=passage, start=0, end=9),)
    names = dict.fromkeys(end for head, _, tail in triples for end in (head, tail))
    kinds = types or {}
    return GraphUpdate(
        entities=tuple(
            Entity(name=name, type=kinds.get(name, ""), evidence=evidence)
            for name in dict.fromkeys((*names, *kinds))
        ),
        relations=tuple(
            Relation(head=h, relation=r, tail=t, evidence=evidence, **more) for h, r, t in triples
        ),
    )


def facts(graph: CorpusGraph) -> set[Triple]:
    return {(r.head, r.relation, r.tail) for r in graph.relations}


def world(*passages: tuple[str, list[Triple]]) -> dict[str, GraphUpdate]:
    return {id: stated(id, *triples) for id, triples in passages}


MUSIC = world(
    ("p1", [("Katy Perry", "born in", "Santa Barbara"), ("Katy Perry", "wrote", "Prism")]),
    ("p2", [("Stacy Barthe", "wrote songs for", "Katy Perry")]),
    ("p3", [("Santa Barbara", "lies in", "California")]),
)


def test_entities_are_nodes_and_relations_are_edges() -> None:
    graph = CorpusGraph.of(MUSIC)
    (katy,) = graph.find("katy perry")
    edges = [j for j in range(len(graph.relations)) if katy in (graph.heads[j], graph.tails[j])]
    assert {graph.edge(j).relation for j in edges} == {"born in", "wrote", "wrote songs for"}
    assert graph.passages_of(katy) == ("p1", "p2")
    assert [graph.edge(j).head for j in edges if graph.passages_of_edge(j) == ("p2",)] == [
        "Stacy Barthe"
    ]


def test_a_subgraph_is_a_knowledge_graph_without_new_entity_resolution() -> None:
    graph = CorpusGraph.of(
        {
            "a": stated("a", ("Mercury", "orbits", "Sun"), types={"Mercury": "planet"}),
            "b": stated("b", ("Mercury", "melts at", "-39 °C"), types={"Mercury": "metal"}),
        }
    )
    part = graph.subgraph((), range(len(graph.relations)))
    assert isinstance(part, KnowledgeGraph)
    assert {e.name for e in part.entities} >= {"Mercury (planet)", "Mercury (metal)"}
    assert "Mercury (planet) -> orbits -> Sun [7]" in linearise(part, labels={"a": 7}).replace(
        "\\", ""
    )


def test_edge_ids_of_the_network_are_edge_numbers_of_the_graph() -> None:
    graph = CorpusGraph.of(MUSIC)
    for edge in graph.network.es:
        ends = {int(graph.heads[edge.index]), int(graph.tails[edge.index])}
        assert set(edge.tuple) == ends


def test_dates_and_numbers_are_plain_values() -> None:
    graph = CorpusGraph.of(world(("p", [("Prism", "released on", "October 18, 2013")])))
    names = {graph.name(i): bool(graph.plain_values[i]) for i in range(len(graph))}
    assert names == {"Prism": False, "October 18, 2013": True}


@settings(max_examples=30)
@given(st.permutations(sorted(MUSIC)))
def test_the_order_of_passages_does_not_matter(order: list[str]) -> None:
    one, other = CorpusGraph.of(MUSIC), CorpusGraph.of({id: MUSIC[id] for id in order})
    assert list(one.entities) == list(other.entities)
    assert list(one.relations) == list(other.relations)


# Identity


def test_homonyms_of_different_types_are_separate_and_found_by_qualifier() -> None:
    graph = CorpusGraph.of(
        {
            "a": stated("a", ("Apple", "makes", "iPhone"), types={"Apple": "company"}),
            "b": stated("b", ("Apple", "grows on", "trees"), types={"Apple": "fruit species"}),
        }
    )
    assert len(graph.find("Apple")) == 2
    (company,) = graph.find("Apple (company)")
    assert graph.passages_of(company) == ("a",)


def test_an_entity_is_found_by_a_stated_alias() -> None:
    graph = CorpusGraph.of(
        world(
            ("a", [("Peter Quill", "also known as", "Star-Lord")]),
            ("b", [("Peter Quill", "member of", "Guardians of the Galaxy")]),
        )
    )
    assert graph.find("Star-Lord") == graph.find("Peter Quill")
    (merge,) = graph.merges
    assert (merge.spelling, merge.rule) == ("Star-Lord", "alias relation")


@pytest.mark.parametrize(
    ("names", "types"),
    [
        (("OpenAI", "ChatGPT", "Boston"), ("company", "fictional man")),
        (("Apple", "iPhone", "Kent"), ("company", "fruit species")),
        (("Mercury", "Sun", "Hg"), ("planet", "chemical element")),
        (("Prism", "Katy Perry", "Beth Anderson"), ("album", "novel")),
    ],
)
def test_types_separate_homonyms_and_each_keeps_its_facts(
    names: tuple[str, str, str], types: tuple[str, str]
) -> None:
    shared, one, other = names
    graph = CorpusGraph.of(
        {
            "a": stated("a", (shared, "goes with", one), types={shared: types[0]}),
            "b": stated("b", (shared, "goes with", other), types={shared: types[1]}),
        }
    )
    tails = {graph.node(int(graph.heads[j])).type: graph.edge(j).tail for j in (0, 1)}
    assert tails == {types[0]: one, types[1]: other}


@pytest.mark.parametrize(
    ("name", "alias"),
    [
        ("International Business Machines", "IBM"),
        ("Graph-based Retrieval", "GBR"),
        ("Beyoncé", "Beyonce"),
        ("United States", "U.S.A."),
    ],
)
def test_spelling_variants_are_one_entity(name: str, alias: str) -> None:
    said = world(("a", [(name, "made", "a plan"), (alias, "sold", "a plant")]))
    graph = CorpusGraph.of(said)
    assert graph.find(name) == graph.find(alias) != ()


def test_one_wrong_alias_does_not_merge_two_established_entities() -> None:
    wrong = world(
        ("a", [("Russia", "also known as", "Austria")]),
        ("b", [("Vienna", "lies in", "Austria")]),
        ("c", [("Moscow", "lies in", "Russia")]),
    )
    apart = CorpusGraph.of(wrong)
    assert apart.find("Russia") != apart.find("Austria")
    twice = CorpusGraph.of(wrong | world(("d", [("Austria", "also known as", "Russia")])))
    assert twice.find("Russia") == twice.find("Austria")


def test_an_acronym_needs_a_passage_with_its_long_form() -> None:
    long = ("World Health Organization", "has its seat in", "Geneva")
    apart = CorpusGraph.of(world(("a", [long]), ("b", [("WHO", "toured", "England")])))
    assert apart.find("WHO") != apart.find("World Health Organization")
    both = CorpusGraph.of(world(("a", [long, ("WHO", "founded in", "1948")])))
    assert both.find("WHO") == both.find("World Health Organization")


def test_overrides_can_undo_and_force_a_merge_without_changing_the_records() -> None:
    said = world(
        ("a", [("Peter Quill", "also known as", "Star-Lord")]),
        ("b", [("Tony Stark", "built", "Mark I")]),
        ("c", [("Iron Man", "fought", "Whiplash")]),
    )
    overrides = Overrides(
        same=(Pair.of("Tony Stark", "Iron Man"),), apart=(Pair.of("Peter Quill", "Star-Lord"),)
    )
    graph = CorpusGraph.of(said, rules=Rules(overrides=overrides))
    assert graph.find("Tony Stark") == graph.find("Iron Man")
    assert graph.find("Peter Quill") != graph.find("Star-Lord")
    assert [m.rule for m in graph.merges] == ["override"]
    assert graph.unused_overrides == ()
    assert facts(CorpusGraph.of(said)) == facts(CorpusGraph.of(said, rules=Rules()))


def test_an_override_can_separate_one_name_by_passage() -> None:
    said = world(("a", [("John Smith", "born in", "York")]), ("b", [("John Smith", "sang", "Hey")]))
    ends = Spelling(name="John Smith", passage="a"), Spelling(name="John Smith", passage="b")
    assert len(CorpusGraph.of(said).find("John Smith")) == 1
    rules = Rules(overrides=Overrides(apart=(Pair(one=ends[0], other=ends[1]),)))
    assert len(CorpusGraph.of(said, rules=rules).find("John Smith")) == 2


def test_overrides_that_match_nothing_are_reported() -> None:
    rules = Rules(overrides=Overrides(same=(Pair.of("Katy Perry", "Nobody"),)))
    (complaint,) = CorpusGraph.of(MUSIC, rules=rules).unused_overrides
    assert "'Nobody'" in complaint and "is in no record" in complaint


# Guards


def test_relations_of_low_confidence_are_left_out_and_counted() -> None:
    said = {
        "a": stated("a", ("A1 Road", "leads to", "Edinburgh"), confidence=0.4),
        "b": stated("b", ("A1 Road", "starts in", "London")),
    }
    graph = CorpusGraph.of(said, rules=Rules(min_confidence=0.5))
    assert facts(graph) == {("A1 Road", "starts in", "London")}
    assert graph.left_out == {"low confidence": 1}


def test_only_relations_on_the_allow_list_enter_in_any_tense() -> None:
    graph = CorpusGraph.of(MUSIC, rules=Rules(relations=frozenset({"was born in"})))
    assert facts(graph) == {("Katy Perry", "born in", "Santa Barbara")}


def test_a_critical_relation_needs_evidence_from_two_passages() -> None:
    rules = Rules(critical=frozenset({"acquired"}))
    once = world(("a", [("Acme", "acquired", "Zenith")]))
    assert facts(CorpusGraph.of(once, rules=rules)) == set()
    twice = CorpusGraph.of(once | world(("b", [("Acme", "acquired", "Zenith")])), rules=rules)
    assert facts(twice) == {("Acme", "acquired", "Zenith")}
    assert twice.rules.is_critical("was acquired")


def test_contradicting_relations_are_kept_and_flagged() -> None:
    graph = CorpusGraph.of(
        {
            "a": stated("a", ("Ada Byron", "born on", "10 December 1815")),
            "b": stated("b", ("Ada Byron", "was born on", "10 December 1816")),
            "c": stated("c", ("Ada Byron", "born in", "London")),
        }
    )
    dated = [j for j in range(3) if "1" in graph.edge(j).tail]
    assert graph.contradictions == {dated[0]: (dated[1],), dated[1]: (dated[0],)}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("Oslo", "is the capital of", "Norway"), ("Oslo", "is not the capital of", "Norway")),
        (("Prism", "released in", "2013"), ("Prism", "released in", "2014")),
        (("Ada Byron", "born in", "London"), ("Ada Byron", "born in", "Paris")),
    ],
)
def test_facts_that_cannot_both_be_true_are_contradictions(one: Triple, other: Triple) -> None:
    graph = CorpusGraph.of(world(("a", [one]), ("b", [other])))
    assert graph.contradictions == {0: (1,), 1: (0,)}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("Ada Byron", "born in", "1815"), ("Ada Byron", "born in", "London")),
        (("Al Ulmer", "born in", "Buffalo, New York"), ("Al Ulmer", "born in", "United States")),
        (("Prism", "released in", "Japan"), ("Prism", "released in", "Peru")),
        (("Ada Byron", "knew", "Babbage"), ("Ada Byron", "knew", "Somerville")),
    ],
)
def test_facts_that_can_both_be_true_are_not_contradictions(one: Triple, other: Triple) -> None:
    graph = CorpusGraph.of(world(("a", [one]), ("b", [other])))
    assert not graph.contradictions


def test_a_year_and_its_date_are_one_relation_with_both_evidences() -> None:
    one, other = ("Ada Byron", "born on", "1815"), ("Ada Byron", "born on", "10 December 1815")
    graph = CorpusGraph.of(world(("a", [one]), ("b", [other])))
    (relation,) = graph.relations
    assert relation.tail == "10 December 1815"
    assert {evidence.passage for evidence in relation.evidence} == {"a", "b"}


def test_a_rule_flags_second_values_in_any_tense_and_with_articles() -> None:
    said = world(("a", [("Acme", "owned by", "Zenith")]), ("b", [("Acme", "owned by", "Orbit")]))
    assert not CorpusGraph.of(said).contradictions
    rules = Rules(single_valued=frozenset({"was owned by"}))
    assert CorpusGraph.of(said, rules=rules).contradictions == {0: (1,), 1: (0,)}


def test_values_of_different_times_do_not_contradict() -> None:
    said = {
        "a": stated("a", ("Bonn", "is the capital of", "Germany"), time="1949-1990"),
        "b": stated("b", ("Bonn", "is not the capital of", "Germany"), time="since 1991"),
    }
    graph = CorpusGraph.of(said)
    assert not graph.contradictions


# What a caller may see

SECRET = "Project Nightfall"
LABELS = {"private": {"board"}}
COMPANY = world(
    ("private", [("Acme", "finances", SECRET), (SECRET, "led by", "Jo Doe")]),
    ("open", [("Acme", "employs", "Jo Doe"), ("Acme", "seated in", "Linz")]),
)


def everything(graph: CorpusGraph) -> str:
    return " ".join(
        [
            linearise(graph.subgraph(range(len(graph)), range(len(graph.relations)))),
            *graph.names,
            *graph.passages,
            str(list(graph.merges)),
        ]
    )


def test_a_private_edge_is_visible_only_with_its_label() -> None:
    graph = CorpusGraph.of(COMPANY, labels=LABELS)
    for labels in (frozenset[str](), frozenset({"hr"})):
        view = graph.visible(Access(labels=labels))
        assert "nightfall" not in everything(view.graph).lower()
        assert not view.readable("private") and view.readable("open")
        acme, jo = (view.graph.find(name)[0] for name in ("Acme", "Jo Doe"))
        assert len(view.graph.network.get_all_simple_paths(acme, jo)) == 1
    board = graph.visible(Access(labels=frozenset({"board"})))
    assert board.graph.find(SECRET) and board.readable("private")


def test_a_passage_with_several_labels_needs_all_of_them() -> None:
    graph = CorpusGraph.of(COMPANY, labels={"private": {"board", "audit"}})
    assert not graph.visible(Access(labels=frozenset({"board"}))).graph.find(SECRET)
    assert graph.visible(Access(labels=frozenset({"board", "audit"}))).graph.find(SECRET)


def test_a_fact_also_stated_publicly_is_visible_without_its_private_evidence() -> None:
    said = world(
        ("private", [("Acme", "makes", "Anvils")]), ("open", [("Acme", "makes", "Anvils")])
    )
    view = CorpusGraph.of(said, labels=LABELS).visible()
    assert view.graph.passages_of_edge(0) == ("open",)


def test_a_private_alias_does_not_reveal_that_two_names_are_one_entity() -> None:
    said = world(
        ("private", [("Bruce Wayne", "also known as", "Batman")]),
        ("private2", [("Bruce Wayne", "also known as", "Batman")]),
        ("open", [("Bruce Wayne", "lives in", "Gotham"), ("Batman", "fights", "Joker")]),
    )
    graph = CorpusGraph.of(said, labels={"private": {"x"}, "private2": {"x"}})
    assert graph.find("Batman") == graph.find("Bruce Wayne")
    public = graph.visible().graph
    assert public.find("Batman") != public.find("Bruce Wayne")


def test_a_private_relation_hides_its_values_and_the_text_that_states_it() -> None:
    update = stated("p", ("Jo Doe", "salary", "90000 euros"), ("Jo Doe", "works at", "Acme"))
    told = update.entities[0].model_copy(update={"attributes": ("earns 90000 euros", "engineer")})
    said = {"p": update.model_copy(update={"entities": (told, *update.entities[1:])})}
    rules = Rules(relation_labels={"salary": frozenset({"hr"})})
    graph = CorpusGraph.of(said, rules=rules)
    view = graph.visible()
    assert "90000" not in everything(view.graph)
    assert facts(view.graph) == {("Jo Doe", "works at", "Acme")}
    assert view.graph.node(view.graph.find("Jo Doe")[0]).attributes == ("engineer",)
    assert not view.readable("p")
    assert graph.visible(Access(labels=frozenset({"hr"}))).readable("p")


@settings(max_examples=40)
@given(
    st.dictionaries(st.sampled_from("abcdef"), st.sets(st.sampled_from("xyz"), max_size=2)),
    st.sets(st.sampled_from("xyz")),
)
def test_a_view_equals_the_graph_of_the_readable_passages(
    labels: dict[str, set[str]], held: set[str]
) -> None:
    names = ["Acme", "Bolt", "Cork", "Dorn"]
    said = {
        id: stated(id, (names[i % 4], "knows", names[(i * i + 1) % 4]), types={id: "city"})
        for i, id in enumerate("abcdef")
    }
    view = CorpusGraph.of(said, labels=labels).visible(Access(labels=frozenset(held)))
    open_to = {id: update for id, update in said.items() if labels.get(id, set()) <= held}
    readable = CorpusGraph.of(open_to)
    assert list(view.graph.entities) == list(readable.entities)
    assert list(view.graph.relations) == list(readable.relations)


def test_an_ambiguous_end_is_a_separate_entity() -> None:
    evidence = (Evidence(passage="p", start=0, end=9),)
    namesakes = (
        Entity(name="Prezir", type="album", evidence=evidence),
        Entity(name="Prezir", type="film", evidence=evidence),
    )
    link = Relation(head="Prezir", relation="released by", tail="Metropolis", evidence=evidence)
    graph = CorpusGraph.of({"p": GraphUpdate(entities=namesakes, relations=(link,))})
    assert len(graph.find("Prezir")) == 3
    ((head, relation, tail),) = facts(graph)
    assert (relation, tail) == ("released by", "Metropolis")
    (node,) = graph.find(head) if "(" in head else (int(graph.heads[0]),)
    assert graph.node(node).type == ""
    assert graph.passages_of(node) == ("p",)
