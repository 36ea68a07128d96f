from __future__ import annotations

import pytest

from ga_dspy.graph import (
    Entity,
    Evidence,
    GraphUpdate,
    KnowledgeGraph,
    Relation,
    connects,
    distances,
    evidence_chain,
    linearise,
    named_in,
    prune,
)


def graph_of(*facts: str, entities: tuple[Entity, ...] = ()) -> KnowledgeGraph:
    """A graph of "head / relation / tail" facts."""
    parts = (fact.split(" / ") for fact in facts)
    relations = tuple(Relation(head=head, relation=label, tail=tail) for head, label, tail in parts)
    return KnowledgeGraph().merge(GraphUpdate(entities=entities, relations=relations))


def chain(graph: KnowledgeGraph, question: str, answer: str) -> list[str]:
    found = evidence_chain(graph, question, answer)
    return [f"{each.head} / {each.relation} / {each.tail}" for each in found]


SINGERS = graph_of(
    "Aretha Franklin / sang in church / her father's church",
    "Stacy Barthe / penned album tracks for / Katy Perry",
    "Stacy Barthe / penned album tracks for / Rihanna",
    "Katy Perry / sang in church / during her childhood",
    "Katy Perry / born / October 25, 1984",
    entities=(
        Entity(name="Stacy Barthe", type="songwriter"),
        Entity(name="Katy Perry", type="singer", aliases=("Katheryn Hudson",)),
        Entity(name="Rihanna", type="singer", attributes=("from Barbados",)),
    ),
)


def count(text: str) -> int:
    return len(text.split())


def test_a_question_names_what_it_spells_out() -> None:
    question = "What singer who sang in church did Stacy Barthe pen album tracks for?"
    assert named_in(SINGERS, question) == ("Stacy Barthe",)


@pytest.mark.parametrize(
    "question",
    ["Where was Katheryn Hudson born?", "Is Perry a singer?", "katy perry's age", "who is perry?"],
)
def test_an_alias_a_lone_surname_and_lower_case_name_too(question: str) -> None:
    assert named_in(SINGERS, question) == ("Katy Perry",)


def test_of_overlapping_names_the_longest_counts() -> None:
    graph = graph_of("New York / in / US", "New York Times / based in / New York")
    assert named_in(graph, "Who owns the New York Times?") == ("New York Times",)


def test_common_words_name_nothing() -> None:
    graph = graph_of("The Who / recorded / It", "Us / is / film")
    assert named_in(graph, "Who told us about it?") == ()


def test_all_namesakes_are_named() -> None:
    graph = graph_of(
        entities=(Entity(name="Mercury", type="planet"), Entity(name="Mercury", type="element"))
    )
    assert len(named_in(graph, "What is Mercury?")) == 2


def test_distance_counts_hops_in_either_direction() -> None:
    assert distances(SINGERS, ["Rihanna"]) == {
        "Rihanna": 0,
        "Stacy Barthe": 1,
        "Katy Perry": 2,
        "during her childhood": 3,
        "October 25, 1984": 3,
    }


def test_the_chain_of_figure_12_leads_to_the_answer() -> None:
    question = "What singer who sang in church during her childhood did Stacy Barthe write for?"
    assert "Stacy Barthe / penned album tracks for / Katy Perry" in chain(
        SINGERS, question, "Katy Perry"
    )


def test_a_chain_over_two_hops_ends_in_a_date_in_any_part() -> None:
    question = "When was the singer born for whom Stacy Barthe penned tracks?"
    for answer in ("October 25, 1984", "1984"):
        assert chain(SINGERS, question, answer) == [
            "Stacy Barthe / penned album tracks for / Katy Perry",
            "Katy Perry / born / October 25, 1984",
        ]


def test_an_attribute_that_holds_the_answer_ends_a_chain() -> None:
    found = evidence_chain(SINGERS, "Where is the client of Stacy Barthe from?", "Barbados")
    assert [each.relation for each in found] == ["penned album tracks for", "described as"]
    assert found[-1].tail == "from Barbados"


def test_an_attribute_of_the_thing_asked_about_is_a_chain_too() -> None:
    assert chain(SINGERS, "Where is Rihanna from?", "Barbados") == [
        "Rihanna / described as / from Barbados"
    ]


@pytest.mark.parametrize("answer", ["Adele", "her father's church", "", "October 25, 1985"])
def test_no_chain_leads_to_what_is_not_connected(answer: str) -> None:
    assert not connects(SINGERS, "Whom did Stacy Barthe write for?", answer)


def test_no_chain_starts_where_the_question_names_nothing() -> None:
    assert chain(SINGERS, "Which singer sang in church?", "Katy Perry") == []


COMPARISON = graph_of(
    "Alpha / directed by / Ann Lee",
    "Beta / directed by / Bob Ray",
    "Ann Lee / born / 1950",
    "Bob Ray / born / 1960",
    "Bob Ray / lives in / Rome",
)


@pytest.mark.parametrize("answer", ["Alpha", "yes"])
def test_a_comparison_is_shown_by_the_facts_told_of_both(answer: str) -> None:
    found = chain(COMPARISON, "Is the director of Alpha older than that of Beta?", answer)
    assert sorted(found) == [
        "Alpha / directed by / Ann Lee",
        "Ann Lee / born / 1950",
        "Beta / directed by / Bob Ray",
        "Bob Ray / born / 1960",
    ]


def test_a_comparison_is_shown_by_what_connects_the_two() -> None:
    graph = graph_of("Alpha / directed by / Ann Lee", "Beta / directed by / Ann Lee")
    assert chain(graph, "Did one person direct Alpha and Beta?", "yes") == [
        "Alpha / directed by / Ann Lee",
        "Beta / directed by / Ann Lee",
    ]


def test_of_parallel_relations_the_one_in_the_questions_words_is_shown() -> None:
    graph = graph_of("Ann / met / Bob", "Ann / married / Bob")
    assert chain(graph, "Who married Ann?", "Bob") == ["Ann / married / Bob"]


LINE = KnowledgeGraph().merge(
    GraphUpdate(
        entities=tuple(
            Entity(name=f"Node{'abcdefgh'[i]}", evidence=(Evidence(passage="p", start=0, end=1),))
            for i in range(8)
        ),
        relations=tuple(
            Relation(head=f"Node{a}", relation="next", tail=f"Node{b}")
            for a, b in zip("abcdef", "bcdefg", strict=True)
        ),
    )
)


def test_a_chain_has_at_most_four_hops() -> None:
    hops = ["Nodea / next / Nodeb", "Nodeb / next / Nodec", "Nodec / next / Noded"]
    assert chain(LINE, "What is after Nodea?", "Nodee") == [*hops, "Noded / next / Nodee"]
    assert chain(LINE, "What is after Nodea?", "Nodef") == []


def test_a_graph_within_the_budget_is_left_alone() -> None:
    pruned = prune(LINE, "Where is Nodea?", 1000, count)
    assert pruned.graph is LINE
    assert (pruned.entities, pruned.relations, pruned.fits) == ((), (), True)


def test_what_is_unconnected_goes_first_then_the_farthest() -> None:
    whole = count(linearise(LINE))
    assert [e.name for e in prune(LINE, "Nodea?", whole - 1, count).entities] == ["Nodeh"]
    far = prune(LINE, "Nodea?", whole - 9, count)
    assert [e.name for e in far.entities] == ["Nodeg", "Nodeh"]
    assert [r.tail for r in far.relations] == ["Nodeg"]


@pytest.mark.parametrize("budget", range(0, 70, 5))
def test_a_pruned_graph_fits_and_says_what_is_left_out(budget: int) -> None:
    pruned = prune(LINE, "Nodea?", budget, count, labels={"p": 1})
    assert pruned.fits == (count(linearise(pruned.graph, labels={"p": 1})) <= budget)
    assert "Nodea" in [e.name for e in pruned.graph.entities]
    assert len(pruned.graph.entities) + len(pruned.entities) == 8
    assert len(pruned.graph.relations) + len(pruned.relations) == 6


def test_a_merge_after_pruning_has_lost_nothing() -> None:
    pruned = prune(LINE, "Nodea?", 10, count)
    merged = pruned.graph.merge(GraphUpdate(entities=(Entity(name="Nodez"),)))
    assert len(merged.entities) == 9
