"""Search over a corpus graph and the index of its passages."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, partial
from itertools import combinations, islice, pairwise
from pathlib import Path
from typing import Any, Final
from weakref import WeakKeyDictionary

from ga_dspy.graphrag.communities import Summaries, Topic, topics_of
from ga_dspy.graphrag.corpus_graph import CorpusGraph, View
from ga_dspy.graphrag.facts import FactVectors, Query, RankedFact, rank
from ga_dspy.graphrag.linking import Lexicon, Link, Linker, Profiles, surest
from ga_dspy.graphrag.records import Access, caller
from ga_dspy.graphrag.store import SUMMARIES, open_graph
from ga_dspy.graphrag.walk import (
    GRAPH_SHARE,
    GraphPath,
    PassageWalk,
    edge_costs,
    expand,
    fuse,
    shortest_paths,
)
from ga_dspy.passage import Passage
from ga_dspy.programs.calls import Search
from ga_dspy.programs.program import check_whole
from ga_dspy.retrieval import Encoder
from ga_dspy.retrieval.index import Hit, Index
from ga_dspy.retrieval.protocol import PassageRetriever, check_query
from ga_dspy.storage import in_thread

# --- What was found for a question in a corpus graph and the index of its passages.


@dataclass(frozen=True)
class Found:
    """What was found for one question; numbers of nodes and edges are those of `view.graph`.

    Attributes:
        question: The question.
        linked: The entities that the question is about, surest first.
        nodes: The entities in the neighbourhood of the linked ones, those first.
        edges: The relations among them.
        paths: How linked entities are connected, cheapest first.
        facts: The relations that fit the question best, best first.
        passages: What to read, best first; only passages that the caller may read.
        seconds: Time spent on "linking", "expansion", "ranking" and "passages".
        view: The caller's view of the graph.
    """

    question: str
    linked: tuple[Link, ...]
    nodes: tuple[int, ...]
    edges: tuple[int, ...]
    paths: tuple[GraphPath, ...]
    facts: tuple[RankedFact, ...]
    passages: list[Passage]
    seconds: Mapping[str, float]
    view: View = field(repr=False, compare=False)

    @property
    def gap(self) -> bool:
        """Whether the graph has nothing that the question names: a gap worth logging."""
        return all(link.how == "vector" for link in self.linked)


# --- What searches derive from a graph: made once for each caller's graph, kept as long as it.

PROFILES: Final = "profiles"
"""The folder, inside that of a search, that keeps the vectors of entities."""


class Derived:
    """Words, edges by node, passages by node and vectors of one caller's graph.

    Everything in it comes from that graph alone: what one caller may not see cannot reach them
    through what was derived for another. It does not hold the graph, which holds its life.

    Attributes:
        lexicon: Where each word stands, and which edges meet at each node.
        costs: What each edge adds to a path.
        walk: PageRank over entities and passages.
    """

    def __init__(self, graph: CorpusGraph) -> None:
        self.lexicon = Lexicon(graph)
        self.costs = edge_costs(self.lexicon.wiring, self.lexicon.often[self.lexicon.wording_of])
        self.walk = PassageWalk(graph)
        self._profiles: dict[tuple[str, Path | None], Profiles] = {}
        self._lock = threading.Lock()

    def profiles(self, graph: CorpusGraph, encoder: Encoder, folder: Path | None) -> Profiles:
        """The vectors of the entities of the graph; encoded once, which lasts a while.

        Args:
            graph: The graph that this was made of.
            encoder: What encodes them.
            folder: Where to keep them; None for memory alone.
        """
        key = (encoder.fingerprint, folder)
        with self._lock:
            if key not in self._profiles:
                kept = folder / PROFILES if folder else None
                self._profiles[key] = Profiles(graph, self.lexicon, encoder, kept)
            return self._profiles[key]


_DERIVED: Final[WeakKeyDictionary[CorpusGraph, Derived]] = WeakKeyDictionary()
_LOCK: Final = threading.Lock()


def derive(graph: CorpusGraph) -> Derived:
    """What searches need of a graph; some seconds for the first in a graph of 80,000 entities."""
    with _LOCK:
        if graph not in _DERIVED:
            _DERIVED[graph] = Derived(graph)
        return _DERIVED[graph]


# --- The search: link the question, go out from there, rank facts, find passages.

DEPTH: Final = 50
"""How many passages the index and PageRank each put forward."""

FIRST, START = 10, 0.5
"""PageRank also starts from the index's first hits: how many, and with what share in all."""

_QUESTION_NEAREST, _QUESTION_LEAST = 5, 0.25
_PAIRS, _CANDIDATES = 8, 2
_STAGES: Final = ("linking", "expansion", "ranking", "passages")


class GraphSearch:
    """Search over a corpus graph and the index of the same passages; safe in several threads.

    What the search derives from a graph (words, edges by node, vectors) is made at the first
    question, for each caller's graph apart; `warm` makes it ahead of that.

    Args:
        graph: The graph.
        index: The index of its passages.
        hops: How far to go from the entities that a question names.
        max_nodes: The most entities in a neighbourhood.
        max_edges: The most relations in a neighbourhood.
        paths: The most paths between two entities that a question names.
        keep: How many facts to return.
        vector_fallback: Whether a question in which nothing is named is linked to the entities
            whose profiles are nearest.
        folder: Where the vectors of the profiles are kept; in memory alone without it.

    Raises:
        InputError: A size is below 1.
    """

    def __init__(
        self,
        graph: CorpusGraph,
        index: Index,
        *,
        hops: int = 2,
        max_nodes: int = 200,
        max_edges: int = 400,
        paths: int = 3,
        keep: int = 12,
        vector_fallback: bool = True,
        folder: Path | None = None,
    ) -> None:
        self.graph, self.index = graph, index
        self.hops, self.max_nodes = check_whole("hops", hops), check_whole("max_nodes", max_nodes)
        self.max_edges, self.paths = check_whole("max_edges", max_edges), paths
        self.keep = check_whole("keep", keep)
        self._vectors = FactVectors(index.encoder) if index.encoder is not None else None
        self._encoder = index.encoder if vector_fallback else None
        self._folder = folder

    def __deepcopy__(self, memo: dict[int, Any]) -> GraphSearch:
        """Return itself: copies of a program share the search."""
        return self

    def find(
        self,
        question: str,
        *,
        access: Access | None = None,
        k: int = 5,
    ) -> Found:
        """Search the graph and the index for what a question needs.

        Args:
            question: The question.
            access: The caller's rights; by default what everybody may see.
            k: Passages to return, at most.

        Raises:
            InputError: The question is blank or `k` is below 1.
        """
        check_query(question, k)
        view = self.graph.visible(access)
        graph, derived = view.graph, derive(view.graph)
        clock = [time.perf_counter()]
        links = self._linked(question, graph, derived)
        clock.append(time.perf_counter())
        named = [link.mention for link in links if link.how != "vector"]
        query = Query(question, derived.lexicon, named)
        near = expand(
            query.lexicon.wiring, {link.node: link.score for link in links}, query.edges,
            hops=self.hops, max_nodes=self.max_nodes, max_edges=self.max_edges,
        )  # fmt: skip
        paths = self._between(links, derived, view)
        clock.append(time.perf_counter())
        facts = rank(query, graph, near, paths, links, vectors=self._vectors, keep=self.keep)
        clock.append(time.perf_counter())
        passages = self._passages(question, links, derived.walk, view, k)
        clock.append(time.perf_counter())
        return Found(
            question=question,
            linked=links,
            nodes=tuple(near.nodes.tolist()),
            edges=tuple(near.edges.tolist()),
            paths=paths,
            facts=facts,
            passages=passages,
            seconds=dict(zip(_STAGES, (b - a for a, b in pairwise(clock)), strict=True)),
            view=view,
        )

    def warm(self, access: Access | None = None) -> None:
        """Make what a caller's questions need, the vectors of all entities included."""
        graph = self.graph.visible(access).graph
        derived = derive(graph)
        if self._encoder is not None:
            derived.profiles(graph, self._encoder, self._folder)

    def _linked(self, question: str, graph: CorpusGraph, derived: Derived) -> tuple[Link, ...]:
        """What a question names; by meaning where it names nothing."""
        links = Linker(graph, derived.lexicon).link(question)
        if links or self._encoder is None:
            return links
        profiles = derived.profiles(graph, self._encoder, self._folder)
        return surest(profiles.links(question, _QUESTION_NEAREST, _QUESTION_LEAST))

    def _between(
        self, links: Sequence[Link], derived: Derived, view: View
    ) -> tuple[GraphPath, ...]:
        """The cheapest paths between entities that different words of the question name."""
        if self.paths < 1:
            return ()
        seen: Counter[str] = Counter()
        candidates = []
        for link in links:
            seen[link.mention] += 1
            if seen[link.mention] <= _CANDIDATES:
                candidates.append(link)
        pairs = [(a, b) for a, b in combinations(candidates, 2) if a.mention != b.mention]
        wiring, costs = derived.lexicon.wiring, derived.costs
        found = {
            path.edges: path
            for a, b in pairs[:_PAIRS]
            for path in shortest_paths(view, wiring, a.node, b.node, costs, self.paths)
        }
        return tuple(sorted(found.values(), key=lambda path: (path.cost, path.edges)))

    def _passages(
        self, question: str, links: Sequence[Link], walk: PassageWalk, view: View, k: int
    ) -> list[Passage]:
        """At most `k` passages that the caller may read.

        Ranked by the index's score and by PageRank from what the question names.
        """
        hits = self._hits(question, max(DEPTH, 4 * k), view)
        total = sum(1 / rank for rank in range(1, len(hits[:FIRST]) + 1))
        first = {hit.passage.id: START / n / total for n, hit in enumerate(hits[:FIRST], 1)}
        visited = walk.rank(_start_shares(links), first, DEPTH)
        # Scores from 0 to 1, in the order of the hits.
        best = max((hit.score for hit in hits), default=0.0)
        scores = {h.passage.id: max(h.score, 0.0) / best if best > 0 else 0.0 for h in hits}
        texts = {hit.passage.id: hit.passage for hit in hits}
        ranked = filter(view.readable, fuse(scores, visited, GRAPH_SHARE))
        found = (texts.get(id) or _passage(self.index, id) for id in ranked)
        return list(islice(filter(None, found), k))

    def _hits(self, question: str, depth: int, view: View) -> list[Hit]:
        """What the index finds, without the passages that the caller may not read."""
        while True:
            found = self.index.search(question, depth)
            hits = [hit for hit in found if view.readable(hit.passage.id)]
            if len(hits) == len(found) or len(hits) >= DEPTH or len(found) < depth:
                return hits
            depth *= 2


def _start_shares(links: Sequence[Link]) -> dict[int, float]:
    """Where PageRank starts: each mention's share is divided among the entities it may mean."""
    by_mention: dict[str, list[float]] = {}
    for link in links:
        by_mention.setdefault(link.mention, []).append(link.score)
    share = {mention: max(each) / sum(each) for mention, each in by_mention.items()}
    return {link.node: share[link.mention] * link.score for link in links}


def _passage(index: Index, id: str) -> Passage | None:
    return index.get(id) if id in index else None


# --- An index of passages together with the graph of what they state: what GraphRAG searches.

VECTORS: Final = "vectors"
"""The folder, in that of a stored graph, for what can be made again from it."""


class GraphIndex(PassageRetriever):
    """An index and the graph of the same passages; a `Retriever` that keeps to labels.

    Safe to search from several threads. Copies of a program share it.

    Args:
        index: The passages.
        graph: What they state.
        topics: Communities of the graph's public part, summarised (`topics_of`).
        folder: Where the vectors of the graph's entities are kept; in memory alone without one.

    Attributes:
        index: The passages; searching them here is searching past the labels.
        graph: The whole graph, whoever asks.
        topics: As given.
    """

    def __init__(
        self,
        index: Index,
        graph: CorpusGraph,
        *,
        topics: Sequence[Topic] = (),
        folder: Path | None = None,
    ) -> None:
        self.index, self.graph = index, graph
        self.topics = tuple(topics)
        self._search = lru_cache(maxsize=None)(partial(GraphSearch, graph, index, folder=folder))

    @classmethod
    def open(
        cls,
        index: Path | str,
        graph: Path | str,
        *,
        encoder: Encoder | None = None,
        summaries: bool = False,
        lm: Any = None,
    ) -> GraphIndex:
        """Open a stored index and the stored graph of its passages.

        Args:
            index: The folder of the index.
            graph: The folder of the graph.
            encoder: As for `Index.open`.
            summaries: Have the communities summarised, which the modes "global" and "hybrid"
                need: those written before are read from the folder, for the others `lm` is asked.
            lm: Writes summaries; by default the configured one.

        Raises:
            InputError: A summary must be made and there is no LM.
            GaDspyError: A folder is not what it should be; see `Index.open` and `open_graph`.
        """
        opened = Index.open(index, encoder=encoder)
        stored = open_graph(graph, opened)
        topics: tuple[Topic, ...] = ()
        if summaries:
            kept = Summaries(stored.path / SUMMARIES)
            topics = topics_of(stored.communities, kept.of(stored.graph, stored.communities, lm=lm))
        folder = stored.path / VECTORS
        return cls(opened, stored.graph, topics=topics, folder=folder)

    def __call__(self, query: str, k: int = 5, anchors: Sequence[str] = ()) -> list[Passage]:
        """Return at most `k` passages that the caller may read, best first.

        Passages that need labels are passed over as if they were not there.
        """
        view, depth = self.graph.visible(caller()), k
        while True:
            found = self.index(query, depth, anchors)
            readable = [passage for passage in found if view.readable(passage.id)][:k]
            if len(readable) == k or len(found) < depth:
                return readable
            depth *= 4

    def passage(self, id: str, access: Access) -> Passage | None:
        """A passage by its id; None where there is none that the caller may read."""
        return _passage(self.index, id) if self.graph.visible(access).readable(id) else None

    def search(self, **settings: Any) -> GraphSearch:
        """The search over graph and passages under some settings of `GraphSearch`, made once."""
        return self._search(**settings)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 over passages, graph and summaries; for the passages alone see `index`."""
        digest = hashlib.sha256(self.index.fingerprint.encode())
        tables = self.graph.tables
        for table in (tables.nodes, tables.edges, tables.passages):
            for batch in table.to_batches(max_chunksize=10_000):
                digest.update(json.dumps(batch.to_pylist(), sort_keys=True).encode())
        topics = [[topic.community.key, topic.title, topic.text] for topic in self.topics]
        digest.update(json.dumps(topics).encode())
        return digest.hexdigest()

    def __len__(self) -> int:
        return len(self.index)

    def __repr__(self) -> str:
        return f"GraphIndex({self.index!r}, {self.graph!r}, {len(self.topics):,} summaries)"


class Retrieved(list[Passage]):
    """The passages found, with what was found of the graph."""

    def __init__(self, found: Found) -> None:
        super().__init__(found.passages)
        self.found = found


@dataclass(frozen=True)
class Find(Search):
    """Graph and passages for a question, as a caller may see them."""

    graph: GraphSearch = field(kw_only=True)
    access: Access = field(kw_only=True)

    def run(self) -> Retrieved:
        """Search now."""
        found = self.graph.find(self.query, access=self.access, k=self.k)
        return Retrieved(found)

    async def arun(self) -> list[Passage]:
        """Search in a worker thread, so that the event loop goes on."""
        return await in_thread(self.run)
