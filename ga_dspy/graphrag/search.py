"""Search over a corpus graph and the index of its passages."""

from __future__ import annotations

import copy
import hashlib
import json
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations, islice, pairwise, product
from pathlib import Path
from typing import Any, Final

from ga_dspy.errors import InputError
from ga_dspy.graphrag.communities import Summaries, Topic, topics_of
from ga_dspy.graphrag.corpus_graph import CorpusGraph, View
from ga_dspy.graphrag.facts import Query, RankedFact, rank
from ga_dspy.graphrag.linking import Lexicon, Link, Linker, Profiles, surest
from ga_dspy.graphrag.records import Access
from ga_dspy.graphrag.store import SUMMARIES, VECTORS, open_graph
from ga_dspy.graphrag.walk import (
    GRAPH_SHARE,
    GraphPath,
    PassageWalk,
    expand,
    fuse,
    shortest_paths,
)
from ga_dspy.passage import Passage
from ga_dspy.programs.settings import check_whole
from ga_dspy.retrieval import Encoder, Where
from ga_dspy.retrieval.index import Hit, Index
from ga_dspy.retrieval.protocol import PassageRetriever, check_query


@dataclass(frozen=True)
class Found:
    """What was found for one question; numbers of nodes and edges are those of `view.graph`.

    Attributes:
        linked: The entities that the question is about, surest first.
        nodes: The entities in the neighbourhood of the linked ones, those first.
        edges: The relations among them.
        paths: How linked entities are connected, cheapest first.
        facts: The relations that fit the question best, best first.
        passages: What to read, best first; only passages that the caller may read.
        seconds: Time spent on "linking", "expansion", "ranking" and "passages".
        view: The caller's view of the graph.
    """

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


DEPTH: Final = 50
"""How many passages the index and PageRank each put forward."""

FIRST, START = 10, 0.5
"""PageRank also starts from the index's first hits: how many, and with what share in all."""

_QUESTION_NEAREST, _QUESTION_LEAST = 5, 0.25
_PAIRS, _CANDIDATES = 8, 2
_STAGES: Final = ("linking", "expansion", "ranking", "passages")


class GraphIndex(PassageRetriever):
    """An index and the graph of the same passages; a `Retriever` that keeps to labels.

    Safe to search from several threads. Copies of a program share it. What searches derive from a
    graph (words, edges by node, vectors) is made at the first question, for each caller's graph
    apart; `warm` makes it ahead of that.

    Args:
        index: The passages.
        graph: What they state.
        topics: Communities of the graph's public part, summarised (`topics_of`).
        folder: Where the vectors of the graph's entities are kept; in memory alone without one.

    Attributes:
        index: The passages; searching them here is searching past the labels.
        graph: The whole graph, whoever asks.
        topics: As given.
        access: The rights of whoever asks here: those of everybody, but in what `for_caller` made.

    Raises:
        InputError: The index is a view (`Index.only`): the graph states what others say.
    """

    def __init__(
        self,
        index: Index,
        graph: CorpusGraph,
        *,
        topics: Sequence[Topic] = (),
        folder: Path | None = None,
    ) -> None:
        if index.scope:
            raise InputError(
                "a graph over a view of an index",
                expected="the index whose passages the graph states",
                remedy="build a graph of these passages alone, or label them",
            )
        self.index, self.graph, self.access = index, graph, Access()
        self.topics = tuple(topics)
        self._folder = folder
        self._profiles: dict[CorpusGraph, Profiles] = {}
        self._lock = threading.Lock()

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
            summaries: Have the communities summarised that have no summary in the folder yet; the
                modes "global" and "hybrid" need some.
            lm: Writes summaries; by default the configured one.

        Raises:
            InputError: A summary must be made and there is no LM.
            GaDspyError: A folder is not what it should be; see `Index.open` and `open_graph`.
        """
        opened = Index.open(index, encoder=encoder)
        stored = open_graph(graph, opened)
        kept = Summaries(stored.path / SUMMARIES)
        written: Mapping[str, Any] = kept.kept(stored.communities)
        if summaries:
            written = kept.of(stored.graph, stored.communities, lm=lm)
        topics = topics_of(stored.communities, written)
        return cls(opened, stored.graph, topics=topics, folder=stored.path / VECTORS / "profiles")

    def for_caller(self, access: Access) -> GraphIndex:
        """Return the same index and graph for a caller with these rights, and no others."""
        found = copy.copy(self)
        found.access = access
        return found

    @property
    def scope(self) -> tuple[Where, ...]:
        """The caller's labels, as the condition that they amount to; none for everybody."""
        held = sorted(self.access.labels)
        return ({"labels": {"within": held}},) if held else ()

    def check_scope(self) -> None:
        """Raise `InputError` where the index requires conditions, which a graph cannot keep."""
        self.index.check_scope()

    def __call__(self, query: str, k: int = 5) -> list[Passage]:
        """Return at most `k` passages that the caller may read, best first.

        Passages that need labels are passed over as if they were not there.
        """
        hits = self._hits(query, k, k, self.graph.visible(self.access))
        return [hit.passage for hit in hits[:k]]

    def passage(self, id: str, access: Access) -> Passage | None:
        """A passage by its id; None where there is none that the caller may read."""
        readable = id in self.index and self.graph.visible(access).readable(id)
        return self.index.get(id) if readable else None

    def find(
        self,
        question: str,
        k: int = 5,
        *,
        access: Access | None = None,
        hops: int = 2,
        paths: int = 3,
        keep: int = 12,
    ) -> Found:
        """Search the graph and the index for what a question needs.

        Args:
            question: The question.
            k: Passages to return, at most.
            access: The caller's rights; by default those of `for_caller`.
            hops: How far to go from the entities that a question names.
            paths: The most paths between two entities that a question names; 0 for none.
            keep: How many facts to return.

        Raises:
            InputError: The question is blank, or `k`, `hops` or `keep` is below 1.
        """
        check_query(question, k)
        check_whole("hops", hops)
        check_whole("keep", keep)
        view = self.graph.visible(self.access if access is None else access)
        graph, lexicon = view.graph, view.graph.derive(Lexicon)
        clock = [time.perf_counter()]
        links = self._linked(question, graph)
        clock.append(time.perf_counter())
        query = Query(question, lexicon, [link.mention for link in links if link.how != "vector"])
        starts = {link.node: link.score for link in links}
        near = expand(lexicon.wiring, starts, query.fit, hops=hops)
        between = _between(links, graph, paths) if paths else ()
        clock.append(time.perf_counter())
        facts = rank(query, graph, near, between, encoder=self.index.encoder, keep=keep)
        clock.append(time.perf_counter())
        passages = self._passages(question, links, view, k)
        clock.append(time.perf_counter())
        return Found(
            linked=links,
            nodes=tuple(near.hops),
            edges=tuple(near.edges.tolist()),
            paths=between,
            facts=facts,
            passages=passages,
            seconds=dict(zip(_STAGES, (b - a for a, b in pairwise(clock)), strict=True)),
            view=view,
        )

    def warm(self, access: Access | None = None) -> None:
        """Make what a caller's questions need, the vectors of all entities included."""
        graph = self.graph.visible(access).graph
        graph.derive(Lexicon)
        graph.derive(PassageWalk)
        if self.index.encoder is not None:
            self._profiles_of(graph, self.index.encoder)

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

    def _linked(self, question: str, graph: CorpusGraph) -> tuple[Link, ...]:
        """What a question names; by meaning where it names nothing."""
        links = Linker(graph).link(question)
        if links or self.index.encoder is None:
            return links
        profiles = self._profiles_of(graph, self.index.encoder)
        return surest(profiles.links(question, _QUESTION_NEAREST, _QUESTION_LEAST))

    def _profiles_of(self, graph: CorpusGraph, encoder: Encoder) -> Profiles:
        """The vectors of a graph's entities; encoded once, which lasts a while."""
        with self._lock:
            if graph not in self._profiles:
                self._profiles[graph] = Profiles(graph, encoder, self._folder)
            return self._profiles[graph]

    def _passages(self, question: str, links: Sequence[Link], view: View, k: int) -> list[Passage]:
        """At most `k` passages that the caller may read.

        Ranked by the index's score and by PageRank from what the question names.
        """
        hits = self._hits(question, max(DEPTH, 4 * k), DEPTH, view)
        total = sum(1 / rank for rank in range(1, len(hits[:FIRST]) + 1))
        first = {hit.passage.id: START / n / total for n, hit in enumerate(hits[:FIRST], 1)}
        visited = view.graph.derive(PassageWalk).rank(_start_shares(links), first, DEPTH)
        # Scores from 0 to 1, in the order of the hits.
        best = max((hit.score for hit in hits), default=0.0)
        scores = {h.passage.id: max(h.score, 0.0) / best if best > 0 else 0.0 for h in hits}
        ranked = fuse(scores, visited, GRAPH_SHARE)
        return list(islice(filter(None, (self.passage(id, view.access) for id in ranked)), k))

    def _hits(self, query: str, depth: int, least: int, view: View) -> list[Hit]:
        """What the index finds and the caller may read: at least so many, where there are."""
        while True:
            found = self.index.search(query, depth)
            hits = [hit for hit in found if view.readable(hit.passage.id)]
            if len(hits) >= least or len(found) < depth:
                return hits
            depth *= 4


def _between(links: Sequence[Link], graph: CorpusGraph, most: int) -> tuple[GraphPath, ...]:
    """The cheapest paths between entities that different words of the question name."""
    mentions = [each[:_CANDIDATES] for each in _by_mention(links).values()]
    pairs = [pair for one, other in combinations(mentions, 2) for pair in product(one, other)]
    found = {
        path.edges: path
        for one, other in pairs[:_PAIRS]
        for path in shortest_paths(graph, one.node, other.node, most)
    }
    return tuple(sorted(found.values(), key=lambda path: (path.cost, path.edges)))


def _start_shares(links: Sequence[Link]) -> dict[int, float]:
    """Where PageRank starts: each mention's share is divided among the entities it may mean."""
    shares: dict[int, float] = {}
    for each in _by_mention(links).values():
        share = max(link.score for link in each) / sum(link.score for link in each)
        shares |= {link.node: share * link.score for link in each}
    return shares


def _by_mention(links: Sequence[Link]) -> dict[str, list[Link]]:
    mentions: dict[str, list[Link]] = {}
    for link in links:
        mentions.setdefault(link.mention, []).append(link)
    return mentions
