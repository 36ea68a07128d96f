"""Faithfulness: do the edges that an answer cites exist, and are they stated where it says?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ga_dspy.graph import Entity, KnowledgeGraph, Relation
from ga_dspy.graph.names import identity, plain_relation
from ga_dspy.mentions import fold
from ga_dspy.passage import Passage
from ga_dspy.programs import EvidenceLink

_BETWEEN_PIECES = " … "
_DESCRIBED = "described as"


class Cited(NamedTuple):
    """How many edges were cited, and how many of them are faithful."""

    edges: int
    faithful: int


def cited_edges(
    evidence: Iterable[EvidenceLink], graph: KnowledgeGraph, passages: Mapping[str, Passage]
) -> Cited:
    """Check every link that has a triple.

    An edge is faithful where the graph holds that relation between these ends, in whichever
    tense, by evidence from the passage that the link names, and every piece of the quote stands
    in that passage. What an entity is said to be may be cited in the place of a relation.

    Args:
        evidence: An answer's links; a quote alone cites no edge.
        graph: The graph that the answer was given from.
        passages: What was read or quoted, by id.
    """
    cited = [link for link in evidence if link.head]
    return Cited(len(cited), sum(_is_faithful(link, graph, passages) for link in cited))


def _is_faithful(
    link: EvidenceLink, graph: KnowledgeGraph, passages: Mapping[str, Passage]
) -> bool:
    stating: Iterable[Entity | Relation]
    if link.relation == _DESCRIBED:
        stating = (e for e in graph.find_all(link.head) if _describes(e, link.tail))
    else:
        stating = (r for r in graph.relations if _states(r, link))
    backed = any(e.passage == link.passage_id for item in stating for e in item.evidence)
    return backed and _stands(link.quote, passages.get(link.passage_id))


def _states(relation: Relation, link: EvidenceLink) -> bool:
    return (
        identity(relation.head) == identity(link.head)
        and identity(relation.tail) == identity(link.tail)
        and plain_relation(relation.relation) == plain_relation(link.relation)
    )


def _describes(entity: Entity, text: str) -> bool:
    return identity(text) in map(identity, (entity.type, *entity.attributes))


def _stands(quote: str, passage: Passage | None) -> bool:
    if passage is None or not quote:
        return False
    text = _plain(passage.content)
    return all(_plain(piece) in text for piece in quote.split(_BETWEEN_PIECES))


def _plain(text: str) -> str:
    return " ".join(fold(text).split())
