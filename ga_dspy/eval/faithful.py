"""Faithfulness: do the edges that an answer cites exist, and do their quotes stand there?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ga_dspy.graph import KnowledgeGraph
from ga_dspy.mentions import fold
from ga_dspy.passage import Passage
from ga_dspy.programs import EvidenceLink

_BETWEEN_PIECES = " … "


class Cited(NamedTuple):
    """How many edges were cited, and how many of them are in the graph and quoted rightly."""

    edges: int
    faithful: int


def cited_edges(
    evidence: Iterable[EvidenceLink], graph: KnowledgeGraph, passages: Mapping[str, Passage]
) -> Cited:
    """Check every link that has a triple.

    Args:
        evidence: An answer's links; a quote alone cites no edge.
        graph: The graph the answer was given from.
        passages: What was read, by id.

    Returns:
        An edge is faithful where the graph holds a relation between its ends, and every piece of
        its quote stands in the passage that it names.
    """
    known = {(relation.head, relation.tail) for relation in graph.relations}
    described = {entity.name for entity in graph.entities}
    checked = [
        ((link.head, link.tail) in known or _is_description(link, described))
        and _stands(link.quote, passages.get(link.passage_id))
        for link in evidence
        if link.head
    ]
    return Cited(len(checked), sum(checked))


def _is_description(link: EvidenceLink, described: set[str]) -> bool:
    """A chain may cite what an entity is said to be in the place of a relation."""
    return link.relation == "described as" and link.head in described


def _stands(quote: str, passage: Passage | None) -> bool:
    if passage is None or not quote:
        return False
    text = _plain(passage.content)
    return all(_plain(piece) in text for piece in quote.split(_BETWEEN_PIECES))


def _plain(text: str) -> str:
    return " ".join(fold(text).split())
