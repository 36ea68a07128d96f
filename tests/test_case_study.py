"""The paper's case study (its Figure 12), replayed by a scripted LM over invented passages."""

from __future__ import annotations

import dspy

from ga_dspy import GraphAnchor, Passage
from ga_dspy.graph import linearise
from ga_dspy.testing import scripted_lm

QUESTION = (
    "What singer who sang in church during her childhood did Stacy Barthe pen album tracks for?"
)
NEXT = "Did Katy Perry, Kelly Rowland, or Rihanna sing in church during their childhood?"
FIRST = [
    Passage(
        id="aretha",
        title="Aretha Franklin",
        text="Aretha Louise Franklin, called The Queen of Soul, started out as a child, singing "
        "gospel at the church of her father, a minister.",
    ),
    Passage(
        id="barthe",
        title="Stacy Barthe",
        text="Stacy Barthe is a Grammy-nominated songwriter, known for penning album tracks for "
        "various artists: Katy Perry, Kelly Rowland and Rihanna.",
    ),
    Passage(id="harris", title="Larnelle Harris", text="Larnelle Harris is a gospel singer."),
]
SECOND = [
    Passage(
        id="perry",
        title="Katy Perry",
        text="Katheryn Elizabeth Hudson, known as Katy Perry, is an artist who turned to pop "
        "after singing in church during her childhood.",
    ),
    Passage(
        id="walking",
        title="Walking on Air",
        text="Walking on Air is a song that Katy Perry recorded for the album Prism.",
    ),
]
READ_FIRST = {
    "additions": """Entities:
- Aretha Franklin (Attributes: sang in church, "The Queen of Soul")
- Stacy Barthe (Attributes: Grammy-nominated songwriter, penning album tracks for various artists)
- Katy Perry (Attributes: artist)
- Kelly Rowland (Attributes: artist)
- Rihanna (Attributes: artist)

Relationships:
1. Aretha Franklin -> sang in church -> her father's church
2. Stacy Barthe -> penning album tracks for -> Katy Perry
3. Stacy Barthe -> penning album tracks for -> Kelly Rowland
4. Stacy Barthe -> penning album tracks for -> Rihanna""",
    "reasoning": "Which of the three sang in church as a child is not known.",
    "judgement": "insufficient",
    "candidate": "",
    "next_query": NEXT,
}
READ_SECOND = {
    "additions": """Entities:
- Katy Perry (Attributes: artist, sang in church during her childhood)

Relationships:
1. Katy Perry -> sang in church -> during her childhood""",
    "reasoning": "Katy Perry sang in church, and Stacy Barthe wrote for her.",
    "judgement": "sufficient",
    "candidate": "Katy Perry",
    "next_query": "Did Stacy Barthe write album tracks for Katy Perry?",
}
ANSWER = {"verdict": "answered", "links": "[2, 4]", "answer": "Katy Perry"}


def search(query: str, k: int) -> list[Passage]:
    return {QUESTION: FIRST, NEXT: SECOND}[query][:k]


def replayed() -> dspy.Prediction:
    with dspy.context(lm=scripted_lm([READ_FIRST, READ_SECOND, ANSWER])):
        return GraphAnchor(search)(question=QUESTION)


def test_the_queries_and_the_answer_match_the_paper() -> None:
    prediction = replayed()
    assert [step.query for step in prediction.steps] == [QUESTION, NEXT]
    assert [step.judgement for step in prediction.steps] == ["insufficient", "sufficient"]
    assert (prediction.answer, prediction.supported) == ("Katy Perry", "chained")


def test_the_graph_matches_the_paper_after_each_step() -> None:
    first, second = (step.graph for step in replayed().steps)
    assert [(r.head, r.relation, r.tail) for r in first.relations] == [
        ("Aretha Franklin", "sang in church", "her father's church"),
        ("Stacy Barthe", "penning album tracks for", "Katy Perry"),
        ("Stacy Barthe", "penning album tracks for", "Kelly Rowland"),
        ("Stacy Barthe", "penning album tracks for", "Rihanna"),
    ]
    gained = [r for r in second.relations if r not in first.relations]
    assert [(r.head, r.tail) for r in gained] == [("Katy Perry", "during her childhood")]
    perry = second.find("Katy Perry")
    assert perry is not None
    assert perry.attributes == ("artist", "sang in church during her childhood")


def test_every_fact_of_the_paper_graph_is_grounded() -> None:
    assert [step.dropped for step in replayed().steps] == [(), ()]


def test_the_evidence_chain_leads_from_the_question_to_the_answer() -> None:
    links = replayed().evidence
    assert ("Stacy Barthe", "Katy Perry") in [(link.head, link.tail) for link in links]
    assert all(link.quote in " ".join(p.content for p in [*FIRST, *SECOND]) for link in links)


def test_two_calls_are_made_instead_of_the_references_six() -> None:
    assert replayed().calls == 2


def test_the_final_graph_text_matches_the_paper() -> None:
    lines = linearise(replayed().graph).splitlines()
    assert "- Stacy Barthe -> penning album tracks for -> Rihanna" in lines
    assert "- Katy Perry (; artist; sang in church during her childhood)" in lines
