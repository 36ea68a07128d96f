"""A caller's view of a corpus graph: their own graph, their wishes, and what they may read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from ga_dspy.graph import KnowledgeGraph
from ga_dspy.graphrag.access import Access
from ga_dspy.graphrag.sources import NO_LABELS, Labels

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ga_dspy.graphrag.corpus_graph import CorpusGraph


@dataclass(frozen=True)
class View:
    """What one caller may and wants to see of a corpus graph.

    Attributes:
        graph: The caller's own graph: nothing in it, its numbers and its names rests on what the
            caller may not see. Every node and edge number of a view is one of this graph.
        access: The caller's rights and wishes.
        edges: Which edges of `graph` the caller wants, shape (edges,): all, but for the filters
            by relation, time and confidence.
    """

    graph: CorpusGraph
    access: Access
    edges: NDArray[np.bool_]
    _withheld: Mapping[str, Labels]

    @cached_property
    def nodes(self) -> NDArray[np.bool_]:
        """Which nodes of `graph` the caller may see, shape (nodes,): all of them."""
        import numpy as np

        return np.ones(len(self.graph), dtype=np.bool_)

    def readable(self, passage: str) -> bool:
        """Whether the text of a passage may enter a prompt of this caller.

        Needs the labels of the passage and of every relation that was read from it.
        """
        return self._withheld.get(passage, NO_LABELS) <= self.access.labels

    def subgraph(self, nodes: Iterable[int], edges: Iterable[int] = ()) -> KnowledgeGraph:
        """A part of what is seen, in the library's own class; edges not wanted are left out."""
        return self.graph.subgraph(nodes, (j for j in edges if self.edges[j]))
