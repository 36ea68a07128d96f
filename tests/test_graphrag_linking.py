from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ga_dspy.graph import Entity, Evidence, GraphUpdate, Relation
from ga_dspy.graphrag import CorpusGraph
from ga_dspy.graphrag.linking import Link, Linker


def stated(passage: str, *facts: str, entities: tuple[Entity, ...] = ()) -> GraphUpdate:
    """What a passage states: "head / relation / tail" facts and entities."""
    here = (Evidence(passage=passage, start=0, end=1),)
    parts = (fact.split(" / ") for fact in facts)
    return GraphUpdate(
        entities=tuple(e.model_copy(update={"evidence": here}) for e in entities),
        relations=tuple(Relation(head=h, relation=r, tail=t, evidence=here) for h, r, t in parts),
    )


WORLD = CorpusGraph.of(
    {
        "p1": stated(
            "p1",
            "Ada Brook / wrote / River Songs",
            "Ada Brook / born on / 4 May 1910",
            entities=(
                Entity(name="Ada Brook", type="poet", aliases=("The Owl of Bergen",)),
                Entity(name="River Songs", type="book"),
            ),
        ),
        "p2": stated("p2", "New York Gazette / based in / New York", "The Who / recorded / Tommy"),
        "p3": stated(
            "p3", "Mercury / orbits / Sun", entities=(Entity(name="Mercury", type="planet"),)
        ),
        "p4": stated(
            "p4",
            "Mercury / melts at / minus 39 degrees",
            entities=(Entity(name="Mercury", type="chemical element"),),
        ),
        "p5": stated("p5", "Henry VII / father of / Henry VIII", "rocket / has / engine"),
    }
)
LINKER = Linker(WORLD)


def names(question: str) -> list[str]:
    return [link.name for link in LINKER.link(question)]


def link(question: str) -> tuple[Link, ...]:
    return LINKER.link(question)


def test_a_name_is_linked_exactly() -> None:
    (found,) = link("What did Ada Brook write?")
    assert (found.mention, found.name, found.how) == ("Ada Brook", "Ada Brook", "exact")


def test_an_alias_is_linked_and_reported_as_an_alias() -> None:
    (found,) = link("What did the Owl of Bergen write?")
    assert (found.name, found.how) == ("Ada Brook", "alias")


def test_case_accents_possessives_and_punctuation_are_ignored() -> None:
    assert names("Is “River-Songs” Áda Brook's book?") == ["River Songs", "Ada Brook"]


def test_a_surname_alone_is_linked_to_its_only_bearer() -> None:
    assert names("Where was Brook born?") == ["Ada Brook"]


def test_a_surname_after_another_first_name_is_not_linked() -> None:
    assert link("Where was Zoe Brook born?") == ()


def test_the_longest_of_overlapping_names_is_linked() -> None:
    assert names("Who owns the New York Gazette?") == ["New York Gazette"]


def test_a_question_without_capitals_is_linked() -> None:
    assert names("did ada brook record tommy?") == ["Ada Brook", "Tommy"]


@pytest.mark.parametrize("question", ["Which rocket did Zoe see?", "Who told us about it?"])
def test_common_words_and_lower_case_words_are_not_linked(question: str) -> None:
    assert names(question) == []


def test_a_name_of_common_words_is_linked_after_a_capitalised_article() -> None:
    assert names("Which album did The Who record?") == ["The Who"]


def test_a_date_in_the_question_is_linked() -> None:
    assert names("Who was born on 4 May 1910?") == ["4 May 1910"]
    assert "4 May 1910" not in names("When was Ada Brook born?")


def test_every_namesake_is_linked_and_the_question_ranks_them() -> None:
    planet, element = (
        link("Does the planet Mercury orbit?"),
        link("Is Mercury chemical?"),
    )
    assert len(planet) == len(element) == 2
    assert WORLD.node(planet[0].node).type == "planet"
    assert WORLD.node(element[0].node).type == "chemical element"
    assert planet[0].score > planet[1].score


def test_a_misspelled_name_is_linked() -> None:
    (found,) = link("What did Ada Brooke write?")
    assert (found.name, found.how) == ("Ada Brook", "spelling")
    assert found.score < 1


def test_a_different_number_in_a_name_is_not_a_misspelling() -> None:
    assert names("Who was the mother of Henry VI?") == []


@settings(max_examples=150)
@given(st.text(max_size=60) | st.lists(st.sampled_from(
    "Ada brook River Songs Mercury 4 May 1910 the Who? New (York) Gazette, of . ' VIII".split()
), max_size=12).map(" ".join))  # fmt: skip
def test_any_text_gives_links_to_entities_of_the_graph_each_once(text: str) -> None:
    links = link(text)
    assert len({each.node for each in links}) == len(links)
    assert all(each.name == WORLD.name(each.node) and 0 < each.score <= 1 for each in links)
