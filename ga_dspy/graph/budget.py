"""Fit a graph to a token budget: what is far from the question goes first, and is named."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from ga_dspy.graph.model import KnowledgeGraph
from ga_dspy.graph.paths import distances, named_in
from ga_dspy.graph.records import Entity, Relation
from ga_dspy.graph.text import linearise

_UNREACHED: Final = 1_000_000


class Pruned(NamedTuple):
    """A graph that fits, and what was left out of it."""

    graph: KnowledgeGraph
    entities: tuple[Entity, ...]
    relations: tuple[Relation, ...]
    fits: bool
    """Whether the budget was met; not where what the question names alone exceeds it."""


def prune(
    graph: KnowledgeGraph,
    question: str,
    budget: int,
    count: Callable[[str], int],
    labels: Mapping[str, int] | None = None,
) -> Pruned:
    """Leave out the fewest things, the farthest first, for the compact form to fit a budget.

    Things go in order of their distance from what the question names (unconnected ones first, so
    all that is beyond three hops goes before anything within), of equally far ones the least
    connected, with their relations. Things that the question names never go. If that is not
    enough, relations go too, the farthest and latest first. The result still holds all records;
    a merge shows them again.

    Args:
        graph: the graph.
        question: the question that the graph should serve.
        budget: the most tokens that the compact form may have.
        count: tokens of a text.
        labels: as for `linearise`, so that the labels are counted too.
    """
    order = _order(graph, question)

    def left(out: int) -> KnowledgeGraph:
        return _without(graph, order[:out])

    def fits(out: int) -> bool:
        return count(linearise(left(out), labels=labels)) <= budget

    low, high = 0, len(order)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(middle) else (middle + 1, high)
    kept = left(low) if low else graph
    entities, relations = set(kept.entities), set(kept.relations)
    return Pruned(
        kept,
        tuple(entity for entity in graph.entities if entity not in entities),
        tuple(relation for relation in graph.relations if relation not in relations),
        fits(low),
    )


def _order(graph: KnowledgeGraph, question: str) -> list[Entity | Relation]:
    """Everything that may be left out, what to leave out first in front."""
    named = named_in(graph, question)
    hops = distances(graph, named)
    degree = Counter(end for r in graph.relations for end in (r.head, r.tail))
    far = {entity.name: hops.get(entity.name, _UNREACHED) for entity in graph.entities}
    entities = [entity for entity in reversed(graph.entities) if entity.name not in named]
    entities.sort(key=lambda entity: (-far[entity.name], degree[entity.name]))
    relations = list(reversed(graph.relations))
    relations.sort(key=lambda r: -min(hops.get(end, _UNREACHED) for end in (r.head, r.tail)))
    return [*entities, *relations]


def _without(graph: KnowledgeGraph, out: list[Entity | Relation]) -> KnowledgeGraph:
    dropped = set(out)
    names = {item.name for item in out if isinstance(item, Entity)}
    return graph.showing(
        tuple(entity for entity in graph.entities if entity.name not in names),
        tuple(
            relation
            for relation in graph.relations
            if relation not in dropped and not {relation.head, relation.tail} & names
        ),
    )
