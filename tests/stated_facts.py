"""What a passage states, as an extractor would return it."""

from __future__ import annotations

from collections.abc import Iterable

from ga_dspy.graph import Entity, Evidence, GraphUpdate, Relation
from ga_dspy.passage import Passage
from ga_dspy.text import mentions


def stated_facts(passage: Passage, facts: Iterable[tuple[str, str, str]]) -> GraphUpdate:
    """Return triples with the places where the passage mentions their ends."""

    def at(name: str) -> Evidence:
        place = mentions(name, passage.content)[0]
        return Evidence(passage=passage.id, start=place.start, end=place.end)

    facts = list(facts)
    names = dict.fromkeys(end for head, _, tail in facts for end in (head, tail))
    relations = [
        Relation(head=head, relation=relation, tail=tail, evidence=(at(head), at(tail)))
        for head, relation, tail in facts
    ]
    entities = [Entity(name=name, evidence=(at(name),)) for name in names]
    return GraphUpdate(entities=tuple(entities), relations=tuple(relations))
