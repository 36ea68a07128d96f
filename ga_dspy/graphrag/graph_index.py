"""An index of passages together with the graph of what they state: what GraphRAG searches."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ga_dspy.errors import InputError
from ga_dspy.graphrag.access import Access
from ga_dspy.graphrag.caller import caller
from ga_dspy.graphrag.corpus_graph import CorpusGraph
from ga_dspy.graphrag.found import Found
from ga_dspy.graphrag.search import GraphSearch
from ga_dspy.graphrag.store import SUMMARIES, open_graph
from ga_dspy.graphrag.summaries import Summaries
from ga_dspy.graphrag.topics import Topic, topics_of
from ga_dspy.passage import Passage
from ga_dspy.programs.conversation import Search
from ga_dspy.retrieval import Encoder, Index

VECTORS = "vectors"
"""The folder, in that of a stored graph, for what can be made again from it."""


class NoGraph(InputError):
    """A program over a graph was given passages alone."""

    def __init__(self, found: object) -> None:
        super().__init__(
            f"GraphRAG was given {type(found).__name__} to retrieve from",
            expected="a GraphIndex: an index together with the graph of its passages",
            remedy="build the graph with `ga-dspy graph build` and name it with --graph, or pass "
            "GraphIndex.open(index_folder, graph_folder)",
        )
        self.retriever = found


class NoSummaries(InputError):
    """Summaries of communities are asked for, and there are none."""

    def __init__(self, asked: str) -> None:
        super().__init__(
            f"{asked} needs summaries of the graph's communities, and the GraphIndex has none",
            expected="a graph that was built with summaries",
            remedy='build it with summaries, or use mode="local", which needs none',
        )


class GraphIndex:
    """An index and the graph of the same passages; a `Retriever` that keeps to labels.

    Safe to search from several threads. Copies of a program share it.

    Args:
        index: The passages.
        graph: What they state.
        topics: Communities of the graph's public part, summarised (`topics_of`).
        search: Arguments of `GraphSearch` that depend on the machine rather than on a program,
            such as `fine` and `ranker`.
        folder: Where the vectors of the graph's things are kept; in memory alone without one.

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
        search: Mapping[str, Any] | None = None,
        folder: Path | None = None,
    ) -> None:
        self.index, self.graph = index, graph
        self._folder = folder
        self.topics = tuple(topics)
        self._settings = dict(search or {})
        self._searches: dict[str, GraphSearch] = {}
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
        search: Mapping[str, Any] | None = None,
    ) -> GraphIndex:
        """Open a stored index and the stored graph of its passages.

        Args:
            index: The folder of the index.
            graph: The folder of the graph.
            encoder: As for `Index.open`.
            summaries: Have the communities summarised, which the modes "global" and "hybrid"
                need: those that were are read from the folder, for the others `lm` is asked.
            lm: Writes summaries; by default the configured one.
            search: As for the class.

        Raises:
            NoLanguageModel: A summary must be made and there is no LM.
            GaDspyError: A folder is not what it should be; see `Index.open` and `open_graph`.
        """
        opened = Index.open(index, encoder=encoder)
        stored = open_graph(graph, opened)
        topics: tuple[Topic, ...] = ()
        if summaries:
            kept = Summaries(stored.path / SUMMARIES)
            topics = topics_of(stored.communities, kept.of(stored.graph, stored.communities, lm=lm))
        folder = stored.path / VECTORS
        return cls(opened, stored.graph, topics=topics, search=search, folder=folder)

    def __call__(self, query: str, k: int = 5) -> list[Passage]:
        """Return at most `k` passages that the caller may read, best first.

        Passages that need labels are passed over as if they were not there.
        """
        view, depth = self.graph.visible(caller()), k
        while True:
            found = self.index(query, depth)
            open_to = [passage for passage in found if view.readable(passage.id)][:k]
            if len(open_to) == k or len(found) < depth:
                return open_to
            depth *= 4

    def passage(self, id: str, access: Access) -> Passage | None:
        """A passage by its id; None where there is none that the caller may read."""
        if not self.graph.visible(access).readable(id):
            return None
        try:
            return self.index.get(id)
        except InputError:
            return None

    def search(self, **settings: Any) -> GraphSearch:
        """The search over graph and passages under some settings of `GraphSearch`, made once."""
        mark = json.dumps(settings, sort_keys=True)
        with self._lock:
            if mark not in self._searches:
                chosen = {"folder": self._folder, **self._settings, **settings}
                self._searches[mark] = GraphSearch(self.graph, self.index, **chosen)
            return self._searches[mark]

    @property
    def description(self) -> str:
        """Index and graph in one line."""
        return f"{self.index.description}; {self.graph!r}, {self.fingerprint[:12]}"

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 over passages, graph and summaries; for the passages alone see `index`."""
        digest = hashlib.sha256(self.index.fingerprint.encode())
        tables = self.graph.tables
        for table in (tables.nodes, tables.edges, tables.passages):
            for batch in table.to_batches(max_chunksize=10_000):
                digest.update(json.dumps(batch.to_pylist(), sort_keys=True).encode())
        digest.update(json.dumps([[*topic.told] for topic in self.topics]).encode())
        return digest.hexdigest()

    def __len__(self) -> int:
        return len(self.index)

    def __repr__(self) -> str:
        return f"GraphIndex({self.index!r}, {self.graph!r}, {len(self.topics):,} summaries)"

    def __deepcopy__(self, memo: dict[int, Any]) -> GraphIndex:
        """Return itself: copies of a program share the corpus."""
        return self


class Retrieved(list[Passage]):
    """The passages found, with what was found of the graph."""

    def __init__(self, found: Found) -> None:
        super().__init__(found.passages)
        self.found = found


@dataclass(frozen=True)
class Find(Search):
    """Graph and passages for a question, as a caller may see them."""

    graph: GraphSearch
    mentions: tuple[str, ...] | None
    access: Access

    def run(self) -> Retrieved:
        """Search now."""
        found = self.graph.find(self.query, mentions=self.mentions, access=self.access, k=self.k)
        return Retrieved(found)
