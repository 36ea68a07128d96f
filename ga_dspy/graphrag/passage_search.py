"""Which passages to read: what the index finds, and what the graph leads to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ga_dspy.graphrag.corpus_graph import View
from ga_dspy.graphrag.linking import Link
from ga_dspy.graphrag.pagerank import PassageWalk, fuse
from ga_dspy.passage import Passage
from ga_dspy.retrieval.index import Hit, Index, UnknownPassage
from ga_dspy.retrieval.protocol import Retriever

DEPTH: Final = 50
"""How many passages the index and PageRank each put forward."""

FIRST, START = 10, 0.5
"""PageRank also starts from the index's first hits: how many, and with what share in all."""

_RANK: Final = 10


class PassageSearch:
    """Finds passages by the index's score and by PageRank from what a question names.

    Args:
        index: The index, or any retriever; what the graph leads to and a retriever that is no
            `Index` did not find cannot be read.
        graph_share: How much PageRank adds to the index's score (`pagerank.GRAPH_SHARE`).
    """

    def __init__(self, index: Index | Retriever, graph_share: float) -> None:
        self.index, self.graph_share = index, graph_share

    def find(
        self, question: str, links: Sequence[Link], walk: PassageWalk, view: View, k: int
    ) -> tuple[list[Passage], tuple[str, ...]]:
        """At most `k` passages that the caller may read, and those that the index does not hold.

        Args:
            question: The question.
            links: What it names.
            walk: PageRank over the caller's graph.
            view: What the caller may see.
            k: The most passages.
        """
        hits = self._hits(question, max(DEPTH, 4 * k), view)
        first = [hit.passage.id for hit in hits[:FIRST]]
        total = sum(1 / rank for rank, _ in enumerate(first, start=1))
        shares = {id: START / rank / total for rank, id in enumerate(first, start=1)}
        visited = walk.rank(_starts(links), shares, view.edges, DEPTH)
        fused = fuse(_scaled(hits), visited, self.graph_share)
        return self._read([id for id in fused if view.readable(id)], hits, k)

    def _hits(self, question: str, depth: int, view: View) -> list[Hit]:
        """What the index finds, without the passages that the caller may not read."""
        while True:
            found = self._search(question, depth)
            hits = [hit for hit in found if view.readable(hit.passage.id)]
            if len(hits) == len(found) or len(hits) >= DEPTH or len(found) < depth:
                return hits
            depth *= 2

    def _search(self, question: str, depth: int) -> list[Hit]:
        """The hits of the index; those of a retriever without scores count less by their rank."""
        if isinstance(self.index, Index):
            return self.index.search(question, depth)
        found = self.index(question, depth)
        return [Hit(passage, _RANK / (_RANK + rank)) for rank, passage in enumerate(found)]

    def _read(
        self, ids: Sequence[str], hits: Sequence[Hit], k: int
    ) -> tuple[list[Passage], tuple[str, ...]]:
        texts = {hit.passage.id: hit.passage for hit in hits}
        chosen: list[Passage] = []
        absent = []
        for id in ids:
            if len(chosen) == k:
                break
            passage = texts.get(id) or self._get(id)
            if passage is None:
                absent.append(id)
            else:
                chosen.append(passage)
        return chosen, tuple(absent)

    def _get(self, id: str) -> Passage | None:
        if not isinstance(self.index, Index):
            return None
        try:
            return self.index.get(id)
        except UnknownPassage:
            return None


def _starts(links: Sequence[Link]) -> dict[int, float]:
    """Where PageRank starts: each mention's share is divided among the things it may mean."""
    by_mention: dict[str, list[float]] = {}
    for link in links:
        by_mention.setdefault(link.mention, []).append(link.score)
    share = {mention: max(each) / sum(each) for mention, each in by_mention.items()}
    return {link.node: share[link.mention] * link.score for link in links}


def _scaled(hits: Sequence[Hit]) -> dict[str, float]:
    """Scores from 0 to 1, in the order of the hits."""
    best = max((hit.score for hit in hits), default=0.0)
    return {hit.passage.id: max(hit.score, 0.0) / best if best > 0 else 0.0 for hit in hits}
