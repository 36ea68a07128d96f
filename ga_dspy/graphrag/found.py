"""What was found for a question in a corpus graph and the index of its passages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from ga_dspy.graph import KnowledgeGraph
from ga_dspy.graphrag.corpus_graph import View
from ga_dspy.graphrag.linking import Link
from ga_dspy.graphrag.pathfinding import GraphPath
from ga_dspy.graphrag.ranking import RankedFact
from ga_dspy.graphrag.verbalise import grouped
from ga_dspy.passage import Passage


@dataclass(frozen=True)
class Found:
    """What was found for one question; numbers of nodes and edges are those of `view.graph`.

    Attributes:
        question: The question.
        linked: The things that the question is about, surest first.
        unlinked: Names in the question that no thing of the graph goes by.
        nodes: The things in the neighbourhood of the linked ones, those first.
        edges: The relations among them.
        paths: How linked things are connected, cheapest first.
        facts: The relations that fit the question best, best first.
        passages: What to read, best first; only passages that the caller may read.
        ranked_by: The stages that ranked the facts: "linear" or "lightgbm", then "encoder" or
            "cross-encoder" where there was one.
        absent: Passages that the graph puts forward and the index does not hold: one of the two
            is out of date.
        seconds: Time taken by "linking", "expansion", "ranking" and "passages".
        view: The caller's view of the graph.
    """

    question: str
    linked: tuple[Link, ...]
    unlinked: tuple[str, ...]
    nodes: tuple[int, ...]
    edges: tuple[int, ...]
    paths: tuple[GraphPath, ...]
    facts: tuple[RankedFact, ...]
    passages: list[Passage]
    ranked_by: tuple[str, ...]
    absent: tuple[str, ...]
    seconds: Mapping[str, float]
    view: View = field(repr=False, compare=False)

    @property
    def gap(self) -> bool:
        """Whether the graph has nothing that the question names: a gap worth logging."""
        return all(link.how == "vector" for link in self.linked)

    @cached_property
    def lines(self) -> str:
        """The facts as text, a line for each subject, with the ids of their passages."""
        return self.worded()

    def worded(self, labels: Mapping[str, int] | None = None) -> str:
        """The facts as text: "Subject: relation → object [2]; relation → object [1,3]".

        Args:
            labels: The number that a prompt gives to each passage, by id; passages without one
                are not cited. Without `labels` passages are cited by their ids.
        """
        return grouped((fact.relation for fact in self.facts), labels)

    @cached_property
    def subgraph(self) -> KnowledgeGraph:
        """The linked things, the facts and the paths, in the library's own class."""
        edges = [*(fact.edge for fact in self.facts), *(j for p in self.paths for j in p.edges)]
        return self.view.subgraph((link.node for link in self.linked), edges)

    @cached_property
    def neighbourhood(self) -> KnowledgeGraph:
        """All nodes and edges, in the library's own class."""
        return self.view.subgraph(self.nodes, self.edges)
