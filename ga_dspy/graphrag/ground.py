"""What searches derive from a graph: made once for each caller's graph, kept as long as it."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

from ga_dspy.graphrag.corpus_graph import CorpusGraph
from ga_dspy.graphrag.expansion import Wiring
from ga_dspy.graphrag.lexicon import Lexicon
from ga_dspy.graphrag.pagerank import PassageWalk
from ga_dspy.graphrag.pathfinding import costs_of
from ga_dspy.graphrag.vectors import Profiles
from ga_dspy.retrieval.shards import Progress

if TYPE_CHECKING:
    from ga_dspy.retrieval.encoder import Encoder

VECTORS: Final = "profiles"
"""The folder, inside a stored graph's, that keeps the vectors of its things."""


class Ground:
    """Words, edges by node, passages by node and vectors of one caller's graph.

    Everything in it comes from that graph alone: what one caller may not see cannot reach them
    through what was derived for another. It does not hold the graph, which holds its life.

    Attributes:
        lexicon: Where each word stands.
        wiring: Which edges meet at each node.
        costs: What each edge adds to a path.
        walk: PageRank over things and passages.
    """

    def __init__(self, graph: CorpusGraph) -> None:
        self.lexicon, self.wiring = Lexicon.of(graph), Wiring(graph)
        self.costs = costs_of(self.wiring, self.lexicon.often[self.lexicon.wording_of])
        self.walk = PassageWalk(graph)
        self._profiles: dict[tuple[str, Path | None], Profiles] = {}
        self._lock = threading.Lock()

    def profiles(
        self,
        graph: CorpusGraph,
        encoder: Encoder,
        folder: Path | None,
        progress: Progress | None = None,
    ) -> Profiles:
        """The vectors of the things of the graph; encoded once, which takes a while.

        Args:
            graph: The graph that this was made of.
            encoder: What encodes them.
            folder: A stored graph's folder, to keep them; None for memory alone.
            progress: Called with stage, units done, units in all.
        """
        made_as = (encoder.fingerprint, folder)
        with self._lock:
            if made_as not in self._profiles:
                self._profiles[made_as] = Profiles.of(
                    graph, self.lexicon, self.wiring, encoder,
                    folder / VECTORS if folder else None, progress,
                )  # fmt: skip
            return self._profiles[made_as]


_GROUNDS: Final[WeakKeyDictionary[CorpusGraph, Ground]] = WeakKeyDictionary()
_LOCK: Final = threading.Lock()


def ground_of(graph: CorpusGraph) -> Ground:
    """The ground of a graph; some seconds for the first search in a graph of 80,000 things."""
    with _LOCK:
        if graph not in _GROUNDS:
            _GROUNDS[graph] = Ground(graph)
        return _GROUNDS[graph]
