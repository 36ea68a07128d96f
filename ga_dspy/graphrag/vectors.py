"""Profiles of things as vectors: what to link a question to where no name in it is known."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from ga_dspy.graphrag.corpus_graph import CorpusGraph
from ga_dspy.graphrag.expansion import Wiring
from ga_dspy.graphrag.lexicon import Lexicon
from ga_dspy.retrieval.dense import DenseScores
from ga_dspy.retrieval.shards import Progress, encode_texts

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ga_dspy.retrieval.encoder import Encoder

PROFILE_EDGES: Final = 4
"""A profile names so many relations, those of the rarest wording first."""


class Near(NamedTuple):
    """A node and the cosine of its profile."""

    node: int
    cosine: float


class Profiles:
    """The vectors of all things of a graph but plain values, and FAISS over them."""

    def __init__(self, nodes: NDArray[np.int64], vectors: NDArray[np.float32]) -> None:
        self._nodes = nodes
        self._dense = DenseScores.build(vectors) if len(nodes) else None

    @classmethod
    def of(
        cls,
        graph: CorpusGraph,
        lexicon: Lexicon,
        wiring: Wiring,
        encoder: Encoder,
        folder: Path | None = None,
        progress: Progress | None = None,
    ) -> Profiles:
        """Encode the profiles, or read those that were encoded before.

        Args:
            graph: The graph, as its caller sees it.
            lexicon: Its words.
            wiring: Its edges.
            encoder: The encoder of the index.
            folder: Where to keep the vectors, in files named by all that they depend on.
            progress: Called with stage, units done, units in all.
        """
        import numpy as np

        nodes = np.flatnonzero(~wiring.values)
        texts = [profile(int(node), graph, lexicon, wiring) for node in nodes]
        if not texts:
            return cls(nodes, np.zeros((0, encoder.dimension), dtype=np.float32))
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
        return cls(nodes, encode_texts(texts, encoder, work=folder, progress=progress))

    def nearest(self, vector: NDArray[np.float32], count: int, least: float) -> list[Near]:
        """The things whose profiles are nearest to a unit vector, of at least a cosine."""
        if self._dense is None:
            return []
        rows = self._dense.nearest(vector, count)
        cosines = self._dense.similarities(vector, rows)
        found = zip(self._nodes[rows].tolist(), cosines.tolist(), strict=True)
        return [Near(node, cosine) for node, cosine in found if cosine >= least]


def profile(node: int, graph: CorpusGraph, lexicon: Lexicon, wiring: Wiring) -> str:
    """A thing in words: name, type, attributes and a few of its relations.

    >>> from ga_dspy.graph import GraphUpdate, Relation
    >>> said = GraphUpdate(relations=(Relation(head="Oslo", relation="in", tail="Norway"),))
    >>> graph = CorpusGraph.of({"p": said})
    >>> profile(0, graph, Lexicon.of(graph), Wiring(graph))
    'Oslo. Oslo in Norway'
    """
    import numpy as np

    _, edges = wiring.touching(np.array([node], dtype=np.int64))
    common = lexicon.often[lexicon.wording_of[edges]]
    chosen = edges[np.lexsort((edges, common))][:PROFILE_EDGES]
    facts = (
        f"{lexicon.shown[wiring.heads[j]]} {lexicon.wordings[lexicon.wording_of[j]]} "
        f"{lexicon.shown[wiring.tails[j]]}"
        for j in chosen
    )
    attributes = graph.tables.nodes["attributes"][node].as_py()
    described = ", ".join(text for text in (lexicon.types[node], *attributes) if text)
    return ". ".join(text for text in (lexicon.shown[node], described, *facts) if text)
