"""Search over a corpus graph and the index of its passages."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ga_dspy.errors import InputError
from ga_dspy.graphrag.access import Access
from ga_dspy.graphrag.corpus_graph import CorpusGraph, View
from ga_dspy.graphrag.expansion import Neighbourhood, expand
from ga_dspy.graphrag.features import Asked, Fitting, Situation, describe
from ga_dspy.graphrag.found import Found as Found
from ga_dspy.graphrag.ground import Ground, ground_of
from ga_dspy.graphrag.linking import Link, Linked, Linker, surest
from ga_dspy.graphrag.pagerank import GRAPH_SHARE
from ga_dspy.graphrag.passage_search import PassageSearch
from ga_dspy.graphrag.pathfinding import GraphPath, path_of, shortest_paths
from ga_dspy.graphrag.ranking import Boosted, Coarse, Linear, RankedFact, fine_stage, rank
from ga_dspy.retrieval.index import Index
from ga_dspy.retrieval.protocol import Retriever, check_query
from ga_dspy.retrieval.shards import Progress

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ga_dspy.retrieval.encoder import Encoder

_NAME_SHARE, _QUESTION_NEAREST, _QUESTION_LEAST = 0.6, 5, 0.25
_MENTION_NEAREST, _MENTION_LEAST = 3, 0.5
_PAIRS, _CANDIDATES = 8, 2
_VIEWS: Final = 64


class GraphSearch:
    """Search over a corpus graph and the index of the same passages; safe in several threads.

    What the search derives from a graph (words, edges by node, vectors) is made at the first
    question, for each caller's graph apart; `warm` makes it ahead of that.

    Args:
        graph: The graph.
        index: The index of its passages, or any retriever; only an `Index` can hand out passages
            that the graph leads to and the retriever did not find, and has an encoder.
        hops: How far to go from the things that a question names.
        max_nodes: The most things in a neighbourhood.
        max_edges: The most relations in a neighbourhood.
        paths: The most paths between two things that a question names.
        keep: How many facts to return.
        coarse: How many facts the fine stage sees.
        fine: "encoder" for the cosine under the index's encoder, the local folder of a
            cross-encoder, or None. An index without an encoder has no stage "encoder".
        ranker: Weights of the coarse stage (`ga_dspy.graphrag.ranker_fit`); a weighted sum by
            default.
        vector_fallback: Whether a given name that nothing goes by, and a question in which
            nothing is named, are linked to the things whose profiles are nearest.
        graph_share: How much PageRank over the graph adds to the index's scores; 0 for nothing,
            about 1 for as much as the index has to say.
        folder: The folder of the stored graph, where the vectors of the profiles are kept; in
            memory alone without it.

    Raises:
        InputError: A size is below 1.
        NoCrossEncoder, RankerMismatch: See their messages.
    """

    def __init__(
        self,
        graph: CorpusGraph,
        index: Index | Retriever,
        *,
        hops: int = 2,
        max_nodes: int = 200,
        max_edges: int = 400,
        paths: int = 3,
        keep: int = 12,
        coarse: int = 60,
        fine: str | None = "encoder",
        ranker: Path | None = None,
        vector_fallback: bool = True,
        graph_share: float = GRAPH_SHARE,
        folder: Path | None = None,
    ) -> None:
        _check_sizes(hops=hops, max_nodes=max_nodes, max_edges=max_edges, keep=keep, coarse=coarse)
        self.graph, self.index = graph, index
        self.hops, self.max_nodes, self.max_edges = hops, max_nodes, max_edges
        self.paths, self.keep, self.coarse = paths, keep, coarse
        self.encoder: Encoder | None = getattr(index, "encoder", None)
        self._coarse: Coarse = Boosted(ranker) if ranker else Linear()
        self._fine = fine_stage(fine, self.encoder)
        self._by_vector = vector_fallback
        self._reading = PassageSearch(index, graph_share)
        self._folder = folder
        self._views: dict[Access, View] = {}

    def __deepcopy__(self, memo: dict[int, Any]) -> GraphSearch:
        """Return itself: copies of a program share the search."""
        return self

    def find(
        self,
        question: str,
        *,
        mentions: Sequence[str] | None = None,
        access: Access | None = None,
        k: int = 5,
    ) -> Found:
        """Search the graph and the index for what a question needs.

        Args:
            question: The question.
            mentions: Names that an LM or a dictionary found in it; the graph's own names are
                looked for besides.
            access: The caller's rights and wishes; by default what everybody may see.
            k: Passages to return, at most.

        Raises:
            InputError: The question is blank or `k` is below 1.
        """
        check_query(question, k)
        view = self._view(access or Access())
        ground = ground_of(view.graph)
        clock = _Clock()
        linked = self._linked(question, mentions or (), ground, view.graph)
        clock.lap("linking")
        area = self._area(question, linked.links, ground, view)
        clock.lap("expansion")
        facts = self._facts(question, linked.links, area, ground, view)
        clock.lap("ranking")
        passages, absent = self._reading.find(question, linked.links, ground.walk, view, k)
        clock.lap("passages")
        return Found(
            question=question,
            linked=linked.links,
            unlinked=linked.unlinked,
            nodes=tuple(area.near.nodes.tolist()),
            edges=tuple(area.near.edges.tolist()),
            paths=area.paths,
            facts=facts,
            passages=passages,
            ranked_by=tuple(s.name for s in (self._coarse, self._fine) if s is not None),
            absent=absent,
            seconds=clock.seconds,
            view=view,
        )

    def warm(self, access: Access | None = None, progress: Progress | None = None) -> None:
        """Make what a caller's questions need, the vectors of all things included.

        Args:
            access: The caller's rights.
            progress: Called with stage, units done, units in all.
        """
        graph = self._view(access or Access()).graph
        ground = ground_of(graph)
        if self._by_vector and self.encoder is not None:
            ground.profiles(graph, self.encoder, self._folder, progress)

    def _view(self, access: Access) -> View:
        """The view of a caller; filters look at every edge, so it is kept."""
        view = self._views.get(access)
        if view is None:
            view = self.graph.visible(access)
            if len(self._views) >= _VIEWS:
                self._views = {}
            self._views[access] = view
        return view

    def _linked(
        self, question: str, mentions: Sequence[str], ground: Ground, graph: CorpusGraph
    ) -> Linked:
        linked = Linker(graph, ground.lexicon, ground.wiring).link(question, mentions)
        if not self._by_vector or self.encoder is None:
            return linked
        more = [
            link
            for mention in linked.unlinked
            if mention in mentions
            for link in self._near(mention, ground, graph, _MENTION_NEAREST, _MENTION_LEAST)
        ]
        if not linked.links and not more:
            more = self._near(question, ground, graph, _QUESTION_NEAREST, _QUESTION_LEAST)
        return Linked(surest((*linked.links, *more)), linked.unlinked)

    def _near(
        self, text: str, ground: Ground, graph: CorpusGraph, count: int, least: float
    ) -> list[Link]:
        """The things whose profiles are nearest to a text."""
        if self.encoder is None:
            return []
        profiles = ground.profiles(graph, self.encoder, self._folder)
        found = profiles.nearest(self.encoder.encode_query(text), count, least)
        return [
            Link(text, node, ground.lexicon.shown[node], "vector", round(_NAME_SHARE * cosine, 4))
            for node, cosine in found
        ]

    def _area(self, question: str, links: Sequence[Link], ground: Ground, view: View) -> _Area:
        named = [link.mention for link in links if link.how != "vector"]
        asked = Asked.of(question, ground.lexicon, named)
        fitting = Fitting.of(asked, ground.lexicon, ground.wiring)
        near = expand(
            ground.wiring, {link.node: link.score for link in links}, view.edges, fitting.edges,
            hops=self.hops, max_nodes=self.max_nodes, max_edges=self.max_edges,
        )  # fmt: skip
        return _Area(asked, fitting, near, self._between(links, ground, view))

    def _between(self, links: Sequence[Link], ground: Ground, view: View) -> tuple[GraphPath, ...]:
        """The cheapest paths between things that different words of the question name."""
        if self.paths < 1:
            return ()
        pairs = [(a.node, b.node) for a, b in combinations(_candidates(links), 2)
                 if a.mention != b.mention][:_PAIRS]  # fmt: skip
        found = {
            path[1]: path
            for pair in pairs
            for path in shortest_paths(ground.wiring, *pair, view.edges, ground.costs, k=self.paths)
        }
        ranked = sorted(found.values(), key=lambda path: (path[2], path[1]))
        return tuple(path_of(view.graph, *path) for path in ranked)

    def described(
        self, question: str, *, access: Access | None = None
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """The edges among which a question's facts are chosen, and their features.

        Returns:
            Edges of the caller's graph, shape (edges,), and `features.describe` of them.
        """
        view = self._view(access or Access())
        ground = ground_of(view.graph)
        linked = self._linked(question, (), ground, view.graph)
        area = self._area(question, linked.links, ground, view)
        edges, at = _situation(linked.links, area, ground)
        return edges, describe(edges, at)

    def _facts(
        self, question: str, links: Sequence[Link], area: _Area, ground: Ground, view: View
    ) -> tuple[RankedFact, ...]:
        edges, at = _situation(links, area, ground)
        return rank(
            edges, at, view.graph, question,
            coarse=self._coarse, fine=self._fine, pool=self.coarse, keep=self.keep,
        )  # fmt: skip


def _check_sizes(**sizes: int) -> None:
    for name, size in sizes.items():
        if size < 1:
            raise InputError(
                f"{name} is {size}", expected="a whole number from 1", remedy="leave it out"
            )


class _Area(NamedTuple):
    """The part of the graph that a question is about."""

    asked: Asked
    fitting: Fitting
    near: Neighbourhood
    paths: tuple[GraphPath, ...]


def _situation(
    links: Sequence[Link], area: _Area, ground: Ground
) -> tuple[NDArray[np.int64], Situation]:
    """The edges of a neighbourhood and of the paths, and what their features depend on."""
    import numpy as np

    on_path: dict[int, int] = {}
    for path in area.paths:
        for edge in path.edges:
            on_path[edge] = min(len(path.edges), on_path.get(edge, len(path.edges)))
    sureness = {link.node: link.score for link in links}
    edges = np.union1d(area.near.edges, np.array([*on_path], dtype=np.int64))
    return edges, Situation(
        area.asked, area.fitting, ground.lexicon, ground.wiring, area.near, on_path, sureness
    )


class _Clock:
    """Seconds by stage."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._began = time.perf_counter()

    def lap(self, stage: str) -> None:
        """Note the time since the last stage."""
        now = time.perf_counter()
        self.seconds[stage], self._began = now - self._began, now


def _candidates(links: Sequence[Link]) -> list[Link]:
    """The surest few things of each mention."""
    seen: Counter[str] = Counter()
    chosen = []
    for link in links:
        seen[link.mention] += 1
        if seen[link.mention] <= _CANDIDATES:
            chosen.append(link)
    return chosen
