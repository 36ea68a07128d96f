"""Search in a corpus graph and the index of its passages."""

from __future__ import annotations

import copy
import hashlib
import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import chain, combinations, islice, product
from pathlib import Path
from typing import Any, Final

import numpy as np

from ga_dspy.errors import InputError
from ga_dspy.graph.records import grouped
from ga_dspy.graphrag.build import update_graph
from ga_dspy.graphrag.communities import Summaries, Summary, Topic, find_communities, topics_of
from ga_dspy.graphrag.corpus_graph import CorpusGraph, View
from ga_dspy.graphrag.extraction import Extractor
from ga_dspy.graphrag.linking import (
    Lexicon,
    Link,
    Linker,
    Profiles,
    Query,
    RankedFact,
    best_links,
    rank_facts,
)
from ga_dspy.graphrag.records import Access, Conditions, split_conditions
from ga_dspy.graphrag.stored import SUMMARIES, VECTORS, StoredGraph, open_graph
from ga_dspy.graphrag.walk import GRAPH_SHARE, GraphPath, PassageWalk, expand, fuse, shortest_paths
from ga_dspy.passage import Passage
from ga_dspy.programs.settings import check_whole
from ga_dspy.retrieval import Encoder, Where
from ga_dspy.retrieval.encoders import Reranker, rerank
from ga_dspy.retrieval.index import Hit, Index
from ga_dspy.retrieval.protocol import PassageRetriever, check_query
from ga_dspy.retrieval.where import comparisons


@dataclass(frozen=True)
class Found:
    """The search result for a question; node and edge numbers are those of `view.graph`.

    Attributes:
        linked: The links from the question to entities, most certain first.
        nodes: The linked entities, then their neighbourhood.
        edges: The relations among these nodes.
        paths: Paths between linked entities, in the reranker's order or cheapest first.
        facts: The relations that fit the question best, best first.
        passages: The passages to read, best first; the caller may read all of them.
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
    def named(self) -> tuple[str, ...]:
        """Return the names in the question that the graph knows."""
        return named_in(self.linked)

    @property
    def gap(self) -> bool:
        """Return whether the graph knows none of the names in the question."""
        return not self.named


DEPTH: Final = 50
"""The number of passages that the index and PageRank each contribute."""

FIRST, START = 10, 0.5
"""The number of the index's first hits from which PageRank starts, and their total weight."""

_QUESTION_NEAREST, _QUESTION_LEAST = 5, 0.25
_PAIRS, _CANDIDATES = 8, 2
_STAGES: Final = ("linking", "expansion", "ranking", "passages")


class GraphIndex(PassageRetriever):
    """An index and the graph of its passages: a `Retriever` that enforces access labels.

    It is thread-safe, and copies of a program share it. Data derived from a graph (words, edges
    by node, vectors) is computed at the first question, separately for each caller's graph;
    `warm` computes it in advance.

    Args:
        index: The passages.
        graph: Their graph.
        topics: Summarised communities of the graph's public part (`topics_of`).
        folder: The cache folder of entity vectors; if None, they are cached only in memory.
        path_reranker: Orders facts and paths by their text, best first: a function of a question
            and texts, or the name of a cross-encoder. By default facts are ordered by features and
            their cosine to the question, and paths by cost.

    Attributes:
        index: The passages; searching the index directly ignores labels.
        graph: The whole graph, regardless of the caller.
        topics: As given.
        access: The access scope: public, unless set by `for_caller`.

    Raises:
        InputError: The index is a view (`Index.only`), but the graph covers all passages.
    """

    def __init__(
        self,
        index: Index,
        graph: CorpusGraph,
        *,
        topics: Sequence[Topic] = (),
        folder: Path | None = None,
        path_reranker: str | Reranker | None = None,
    ) -> None:
        if index.scope:
            raise InputError(
                "a graph over a view of an index",
                expected="the index from which the graph was built",
                remedy="pass that index, then call only(…) on the GraphIndex",
            )
        self.index, self.graph, self.access = index, graph, Access()
        self.topics, self.path_reranker = tuple(topics), path_reranker
        self._wheres: tuple[Where, ...] = ()
        self._stored: StoredGraph | None = None
        # The key under which each caller's graph caches its vectors.
        self._profiles = partial(Profiles, encoder=index.encoder, folder=folder)

    @classmethod
    def open(
        cls,
        index: Path | str,
        graph: Path | str,
        *,
        encoder: Encoder | None = None,
        summaries: bool = False,
        lm: Any = None,
        path_reranker: str | Reranker | None = None,
    ) -> GraphIndex:
        """Open a stored index and the stored graph of its passages.

        Args:
            index: The folder of the index.
            graph: The folder of the graph.
            encoder: As for `Index.open`.
            summaries: Summarise the communities that have no summary yet; the modes "global" and
                "hybrid" need summaries.
            lm: The LM that writes summaries; by default the configured one.
            path_reranker: As for `GraphIndex`.

        Raises:
            InputError: A summary must be written, and no LM is configured.
            GaDspyError: A folder is invalid; see `Index.open` and `open_graph`.
        """
        passages = Index.open(index, encoder=encoder)
        stored = open_graph(graph, passages)
        cache = Summaries(stored.path / SUMMARIES)
        written: Mapping[str, Any] = cache.cached(stored.communities)
        if summaries:
            written = cache.of(stored.graph, stored.communities, lm=lm)
        topics, folder = topics_of(stored.communities, written), stored.path / VECTORS / "profiles"
        opened = cls(passages, stored.graph, topics=topics, folder=folder)
        opened.path_reranker, opened._stored = path_reranker, stored
        return opened

    def update(
        self, *, lm: Any = None, extractor: Extractor | None = None, threads: int = 8
    ) -> None:
        """Update the graph to the index; the next question sees the change.

        Questions in progress, and results of earlier calls of `for_caller` and `only`, keep the old
        graph. A community that changed has no summary until `open` writes it.

        Args:
            lm: The LM that reads new and changed passages; by default the configured one.
            extractor: As for `update_graph`.
            threads: Number of passages read in parallel.

        Raises:
            InputError: The graph was not opened from a folder, or as for `update_graph`.
            GaDspyError: As for `update_graph`.
        """
        if self._stored is None or self.graph is not self._stored.graph:
            raise InputError(
                "this GraphIndex has no folder, or only a part of its graph",
                expected="a GraphIndex from GraphIndex.open, without conditions",
                remedy="update that one, then call only(…) again",
            )
        stored = update_graph(self.index, self._stored, lm=lm, extractor=extractor, threads=threads)
        if self.topics:
            cached = Summaries(stored.path / SUMMARIES).cached(stored.communities)
            self.topics = topics_of(stored.communities, cached)
        self.__dict__.pop("fingerprint", None)
        self._stored, self.graph = stored, stored.graph

    def for_caller(self, access: Access) -> GraphIndex:
        """Return the same index and graph for a caller with exactly these labels."""
        other = copy.copy(self)
        other.access = access
        return other

    def only(self, where: Where) -> GraphIndex:
        """Return the passages that meet conditions, with the graph that only they state.

        Nothing in the result depends on other passages: no entity, name, relation, path, community
        or summary. A community that the conditions change has no summary. Passages that meet the
        conditions later are not in the graph.

        Conditions on `relation.name`, `relation.confidence` and `relation.time` restrict the graph
        (`ga_dspy.graphrag.records`), not the passages that are searched.

        Raises:
            InputError: A condition is malformed, or there is none.
        """
        on_passages, on_relations = split_conditions(where)
        part = copy.copy(self)
        part.__dict__.pop("fingerprint", None)
        if on_relations:
            part._wheres = (*self._wheres, on_relations)
        ids = None
        if on_passages or not on_relations:
            part.index = self.index.only(on_passages)
            self._check_fields(on_passages)
            ids = part.index.ids
        part.graph = self.graph.part(ids, Conditions.of(on_relations))
        if self.topics:
            summaries = {t.community.key: Summary(title=t.title, text=t.text) for t in self.topics}
            part.topics = topics_of(part.graph.derive(find_communities), summaries)
        return part

    @property
    def scope(self) -> tuple[Where, ...]:
        """Return all conditions, and the caller's labels as another one; empty if public."""
        labels = sorted(self.access.labels)
        within = [{"labels": {"within": labels}}] if labels else []
        return (*self.index.scope, *self._wheres, *within)

    def check_scope(self) -> None:
        """Raise `InputError` if a condition that the index requires is missing."""
        self.index.check_scope()

    def __call__(self, query: str, k: int = 5) -> list[Passage]:
        """Return at most `k` passages that the caller may read, best first."""
        hits = self._hits(query, k, k, self.graph.visible(self.access))
        return [hit.passage for hit in hits[:k]]

    def passage(self, id: str) -> Passage | None:
        """Return a passage by its id; None if it does not exist or the caller may not read it."""
        readable = id in self.index and self.graph.visible(self.access).readable(id)
        return self.index.get(id) if readable else None

    def find(
        self, question: str, k: int = 5, *, hops: int = 2, paths: int = 3, keep: int = 12
    ) -> Found:
        """Search the graph and the index for facts, paths and passages that answer a question.

        Args:
            question: The question.
            k: The maximum number of passages.
            hops: The number of hops from the linked entities.
            paths: The maximum number of paths between two linked entities.
            keep: The maximum number of facts.

        Raises:
            InputError: The question is blank, or `k`, `hops` or `keep` is below 1.
        """
        check_query(question, k)
        check_whole("hops", hops)
        check_whole("keep", keep)
        view = self.graph.visible(self.access)
        graph, lexicon = view.graph, view.graph.derive(Lexicon)
        clock = [time.perf_counter()]
        links = self._linked(question, graph)
        clock.append(time.perf_counter())
        query = Query(question, lexicon, named_in(links))
        starts = {link.node: link.score for link in links}
        near = expand(lexicon.wiring, starts, query.fit, hops=hops)
        between = _paths_between(links, graph, paths) if paths else ()
        reranker = self.path_reranker
        if reranker is not None and between:
            ranked = rerank(reranker, question, [path.text for path in between])
            between = tuple(between[i] for i, _ in ranked)
        clock.append(time.perf_counter())
        facts = rank_facts(
            query, graph, near, between, encoder=self.index.encoder, reranker=reranker, keep=keep
        )
        clock.append(time.perf_counter())
        passages = self._passages(question, links, view, k)
        clock.append(time.perf_counter())
        seconds = dict(zip(_STAGES, np.diff(clock).tolist(), strict=True))
        edges = tuple(near.edges.tolist())
        return Found(links, tuple(near.hops), edges, between, facts, passages, seconds, view)

    def warm(self) -> None:
        """Compute the data that questions of this caller need, including entity vectors."""
        graph = self.graph.visible(self.access).graph
        graph.derive(Lexicon)
        graph.derive(PassageWalk)
        graph.derive(self._profiles)

    @cached_property
    def fingerprint(self) -> str:
        """Return the SHA-256 of the passages, the graph and the summaries."""
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

    def _check_fields(self, where: Where) -> None:
        """Raise `InputError` if only hidden passages have a field or a type of its values.

        Otherwise, a caller could learn which fields hidden passages have. Fields compared by
        `within` are exempt, since the passages that the caller may read need not have labels.
        """
        hidden = self.graph.hidden_from(self.access.labels)
        labels = {key for key, sign, _ in comparisons(where) if sign == "within"}
        if hidden and (others := {key: where[key] for key in where.keys() - labels}):
            _ = self.index.without_passages(hidden).only(others).ids

    def _linked(self, question: str, graph: CorpusGraph) -> tuple[Link, ...]:
        """Link a question to entities by name, or by meaning if the graph knows no name in it."""
        if links := Linker(graph).link(question):
            return links
        profiles = graph.derive(self._profiles)
        return best_links(profiles.links(question, _QUESTION_NEAREST, _QUESTION_LEAST))

    def _passages(self, question: str, links: Sequence[Link], view: View, k: int) -> list[Passage]:
        """Return at most `k` passages that the caller may read.

        They are ranked by the index's score and by PageRank from the linked entities.
        """
        hits = self._hits(question, max(DEPTH, 4 * k), DEPTH, view)
        total = sum(1 / rank for rank in range(1, len(hits[:FIRST]) + 1))
        first = {hit.passage.id: START / n / total for n, hit in enumerate(hits[:FIRST], 1)}
        visited = view.graph.derive(PassageWalk).rank(_start_weights(links), first, DEPTH)
        # Scaled to scores from 0 to 1, in the order of the hits.
        best = max((hit.score for hit in hits), default=0.0)
        scores = {h.passage.id: max(h.score, 0.0) / best if best > 0 else 0.0 for h in hits}
        ranked = fuse(scores, visited, GRAPH_SHARE)
        return list(islice(filter(None, map(self.passage, ranked)), k))

    def _hits(self, query: str, depth: int, least: int, view: View) -> list[Hit]:
        """Return hits that the caller may read, at least `least` if the index has that many."""
        while True:
            hits = self.index.search(query, depth)
            readable = [hit for hit in hits if view.readable(hit.passage.id)]
            if len(readable) >= least or len(hits) < depth:
                return readable
            depth *= 4


def with_access(access: Access) -> Callable[[PassageRetriever], PassageRetriever]:
    """Return a function that gives a retriever this access if it is a `GraphIndex`."""
    return lambda one: one.for_caller(access) if isinstance(one, GraphIndex) else one


def named_in(links: Iterable[Link]) -> tuple[str, ...]:
    """Return the mentions that were linked by their name."""
    return tuple(link.mention for link in links if link.how != "vector")


def _paths_between(links: Sequence[Link], graph: CorpusGraph, most: int) -> tuple[GraphPath, ...]:
    """Return the cheapest paths between entities of different mentions."""
    candidates = [of_mention[:_CANDIDATES] for of_mention in _by_mention(links).values()]
    pairs = chain.from_iterable(product(one, other) for one, other in combinations(candidates, 2))
    paths = dict[tuple[int, ...], GraphPath]()
    for one, other in islice(pairs, _PAIRS):
        for path in shortest_paths(graph, one.node, other.node, most):
            paths[path.edges] = path
    return tuple(sorted(paths.values(), key=lambda path: (path.cost, path.edges)))


def _start_weights(links: Sequence[Link]) -> dict[int, float]:
    """Return the restart weights of PageRank: the entities of a mention share its best score."""
    weights: dict[int, float] = {}
    for of_mention in _by_mention(links).values():
        scores = [link.score for link in of_mention]
        share = max(scores) / sum(scores)
        weights |= {link.node: share * link.score for link in of_mention}
    return weights


def _by_mention(links: Sequence[Link]) -> dict[str, list[Link]]:
    return grouped((link.mention, link) for link in links)
