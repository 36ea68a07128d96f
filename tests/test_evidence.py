"""Evidence quotes whole sentences of passages."""

from __future__ import annotations

import pytest

from ga_dspy.graph import Evidence, Relation
from ga_dspy.passage import Passage
from ga_dspy.programs.evidence import chain_links, quotes

MILL = Passage(
    id="mill",
    title="Alva Mill",
    text="Alva Mill is a mill in Viken. It was built in 1820 by Ole Moe. No train stops there.",
)
FERRY = Passage(id="ferry", title="Ellida", text="Ellida, a ferry, sails from Viken to Alva Mill.")
BY_ID = {passage.id: passage for passage in (MILL, FERRY)}


def spans(passage: Passage, *phrases: str) -> tuple[Evidence, ...]:
    starts = [(passage.content.index(phrase), len(phrase)) for phrase in phrases]
    return tuple(Evidence(passage=passage.id, start=a, end=a + size) for a, size in starts)


def built_by(*evidence: Evidence) -> Relation:
    return Relation(head="Alva Mill", relation="built by", tail="Ole Moe", evidence=evidence)


@pytest.mark.parametrize(
    ("answer", "question", "quote"),
    [
        ("1820", "", "It was built in 1820 by Ole Moe."),
        ("Viken", "", "Alva Mill is a mill in Viken."),
        ("Alva Mill", "", "Alva Mill is a mill in Viken."),
        ("Trondheim", "", "Alva Mill is a mill in Viken."),
        ("yes", "Was the mill built by a Moe?", "It was built in 1820 by Ole Moe."),
        ("No", "Did Ole Moe build it?", "It was built in 1820 by Ole Moe."),
        ("no.", "Is there any train?", "No train stops there."),
    ],
)
def test_a_quote_is_the_sentence_with_the_answer_or_closest_to_the_question(
    answer: str, question: str, quote: str
) -> None:
    (link,) = quotes(answer, [MILL], question)
    assert (link.passage_id, link.title, link.quote, link.head) == ("mill", "Alva Mill", quote, "")


def test_the_title_alone_is_not_a_quote() -> None:
    town = Passage(id="t", title="Mo i Rana. A town", text="It has 18,000 people. It is old.")
    assert [link.quote for link in quotes("Mo i Rana", [town])] == ["It has 18,000 people."]
    named = Relation(head="Mo i Rana", relation="is", tail="A town", evidence=spans(town, "A town"))
    assert [link.quote for link in chain_links((named,), {"t": town})] == ["It has 18,000 people."]


def test_a_passage_without_text_is_quoted_by_its_title() -> None:
    assert [link.quote for link in quotes("x", [Passage(id="e", title="Empty", text="")])] == [
        "Empty"
    ]


def test_a_link_quotes_whole_sentences() -> None:
    (link,) = chain_links((built_by(*spans(MILL, "built in 1820")),), BY_ID)
    assert link.quote == "It was built in 1820 by Ole Moe."
    (link,) = chain_links((built_by(*spans(MILL, "Ole Moe", "a mill")),), BY_ID)
    assert link.quote == "Alva Mill is a mill in Viken. … It was built in 1820 by Ole Moe."


def test_a_link_quotes_the_first_of_several_passages() -> None:
    both = built_by(*spans(FERRY, "Alva Mill"), *spans(MILL, "Ole Moe"))
    links = chain_links((both,), BY_ID)
    assert [(link.passage_id, link.quote) for link in links] == [("ferry", FERRY.text)]


def test_a_relation_without_available_passages_has_no_link() -> None:
    assert chain_links((built_by(Evidence(passage="gone", start=0, end=3)),), BY_ID) == ()


def test_a_description_is_quoted_from_the_sentence_that_states_it() -> None:
    described = Relation(
        head="Alva Mill",
        relation="described as",
        tail="built in 1820",
        evidence=(*spans(FERRY, "Alva Mill"), *spans(MILL, "Alva Mill is")),
    )
    (link,) = chain_links((described,), BY_ID)
    assert (link.passage_id, link.quote) == ("mill", "It was built in 1820 by Ole Moe.")
