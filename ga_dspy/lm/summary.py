"""A title and a summary of a graph, in the graph's own words."""

from __future__ import annotations

from collections import Counter

from ga_dspy.lm.evidence import Fact
from ga_dspy.lm.inputs import KnownGraph

_SENTENCES = 6


def title(graph: KnownGraph) -> str:
    """The two most linked names.

    >>> facts = (Fact("A", "is in", "C", (1,)), Fact("B", "is in", "C", (1,)))
    >>> title(KnownGraph(facts=facts))
    'C and A'
    """
    return " and ".join(_most_linked(graph)[:2])


def summary(graph: KnownGraph) -> str:
    """Up to six facts as sentences, those of the most linked names first.

    >>> summary(KnownGraph(facts=(Fact("Red Lodge", "is in", "Montana", (1,)),)))
    'Red Lodge is in Montana.'
    """
    rank = {name: place for place, name in enumerate(_most_linked(graph))}
    best = sorted(graph.facts, key=lambda fact: min(rank[fact.head], rank[fact.tail]))
    return " ".join(_sentence(fact) for fact in best[:_SENTENCES])


def _most_linked(graph: KnownGraph) -> list[str]:
    links = Counter(end for fact in graph.facts for end in (fact.head, fact.tail))
    names = [name for name, _ in links.most_common()]
    return names or list(graph.entities)


def _sentence(fact: Fact) -> str:
    end = "" if fact.tail.endswith(".") else "."
    return f"{fact.head} {fact.relation} {fact.tail}{end}"
