"""Communities of a graph, their summaries, and the communities that a question is about.

They are computed from the public graph, so neither a community nor its summary reveals restricted
text.
"""

from __future__ import annotations

import hashlib
import json
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any, Final, NamedTuple

import dspy
import numpy as np
from pydantic import BaseModel, ConfigDict

from ga_dspy.errors import require
from ga_dspy.graph import linearise, normalise
from ga_dspy.graphrag.corpus_graph import CorpusGraph
from ga_dspy.graphrag.extraction import (
    FinishedSteps,
    digest_of,
    nondefault_settings,
    outcome_of,
    require_lm,
    resolve_lm,
)
from ga_dspy.passage import Passage
from ga_dspy.programs.calls import Conversation, StepFailed, ask, drive
from ga_dspy.programs.loop import wrap_errors
from ga_dspy.programs.meter import Meter
from ga_dspy.programs.reading import fit_passages
from ga_dspy.programs.settings import check_whole
from ga_dspy.signatures.graphrag import SummariseCommunity
from ga_dspy.signatures.prompt import EMPTY, free_text
from ga_dspy.storage import parallel
from ga_dspy.text import TokenCounter, estimate_tokens, fold, sentences, words

# --- Hierarchical communities, found by the Leiden algorithm.
#
# The result is deterministic: vertices are ordered by name and the seed is fixed. A community that
# is too large to summarise is divided again. Each connected component is divided separately, so a
# change in one does not affect the others.

LARGEST: Final = 60
"""Communities with more entities are divided again: about as many fit one prompt."""

SMALLEST: Final = 3
"""The minimum number of entities in a community."""

MAX_LEVELS: Final = 4
_SEED: Final = 20_240_607
_MAX_LINES: Final = 80
_LEAVING_EACH: Final = 3
_MAX_LEAVING: Final = 40
_OF_NODE: Final = ["name", "type", "attributes", "aliases"]
_OF_EDGE: Final = ["head", "relation", "tail", "time", "confidence"]


class Community(NamedTuple):
    """A community of entities.

    Attributes:
        key: Hash of its entities and their facts; communities with the same key share a summary.
        level: 0 for the coarsest division; each further level divides the one before.
        parent: The index of its parent in the list of all communities; -1 at level 0.
        nodes: Its entities in `CorpusGraph.public`, the most connected first.
        edges: The relations between its entities.
    """

    key: str
    level: int
    parent: int
    nodes: tuple[int, ...]
    edges: tuple[int, ...]


def find_communities(graph: CorpusGraph) -> tuple[Community, ...]:
    """Return the communities of the public part of a graph.

    Returns:
        All communities with at least `SMALLEST` entities, by level, larger ones first.

    Raises:
        MissingExtra: igraph is not installed.
    """
    graph = graph.public
    names = [graph.name(node) for node in range(len(graph))]
    connected = graph.network.connected_components()
    communities: list[Community] = []
    pending = [(-1, sorted(part, key=names.__getitem__)) for part in connected]
    for level in range(MAX_LEVELS):
        divided = [
            (parent, part)
            for parent, nodes in pending
            for part in _divide(graph, nodes)
            if len(part) >= SMALLEST and (parent < 0 or len(part) < len(nodes))
        ]
        divided.sort(key=lambda entry: (-len(entry[1]), names[entry[1][0]]))
        numbered = enumerate(divided, len(communities))
        pending = [(i, part) for i, (_, part) in numbered if len(part) > LARGEST]
        communities += (_community(graph, level, parent, part) for parent, part in divided)
    return tuple(communities)


def _divide(graph: CorpusGraph, nodes: list[int]) -> list[list[int]]:
    """Divide nodes by Leiden on modularity; `LARGEST` nodes or fewer are not divided."""
    if len(nodes) <= LARGEST:
        return [nodes]
    igraph = require("igraph", "graph")
    vertex = {node: i for i, node in enumerate(nodes)}
    counts = Counter[tuple[int, int]]()
    for head, tail in zip(graph.heads.tolist(), graph.tails.tolist(), strict=True):
        if head in vertex and tail in vertex and head != tail:
            one, other = vertex[head], vertex[tail]
            counts[min(one, other), max(one, other)] += 1
    edges = dict(sorted(counts.items()))
    network, weights = igraph.Graph(n=len(nodes), edges=list(edges)), list(edges.values()) or None
    igraph.set_random_number_generator(random.Random(_SEED))
    try:
        division = network.community_leiden("modularity", weights=weights, n_iterations=10)
    finally:
        igraph.set_random_number_generator(random)
    return [[nodes[i] for i in part] for part in division]


def _community(graph: CorpusGraph, level: int, parent: int, nodes: Sequence[int]) -> Community:
    edges = sorted(graph.network.es.select(_within=set(nodes)).indices)
    degree = Counter(int(end) for j in edges for end in (graph.heads[j], graph.tails[j]))
    ranked = tuple(sorted(nodes, key=lambda node: (-degree[node], graph.name(node))))
    return Community(_key_of(graph, ranked, edges), level, parent, ranked, tuple(edges))


def _key_of(graph: CorpusGraph, ranked: Sequence[int], edges: Sequence[int]) -> str:
    """Hash everything that a summary may contain; the hash does not depend on node numbers."""
    shown = [*edges, *_leaving(graph, ranked)]
    ends = {int(end) for j in shown for end in (graph.heads[j], graph.tails[j])}
    entities = graph.tables.nodes.select(_OF_NODE).take(sorted(ends.union(ranked))).to_pylist()
    contents = [sorted(map(json.dumps, part)) for part in (entities, _stated(graph, shown))]
    return hashlib.sha256(json.dumps(contents).encode()).hexdigest()


def community_text(graph: CorpusGraph, community: Community) -> str:
    """Return the lines to summarise: the most connected entities and their relations.

    Some relations that lead out of the community are included.
    """
    nodes, inside = community.nodes[:_MAX_LINES], set(community.nodes[:_MAX_LINES])
    edges = [j for j in community.edges if {int(graph.heads[j]), int(graph.tails[j])} <= inside]
    shown = [*edges[:_MAX_LINES], *_leaving(graph, community.nodes)]
    return linearise(graph.subgraph(nodes, shown))


def _leaving(graph: CorpusGraph, nodes: Sequence[int]) -> list[int]:
    """Return relations that lead out of a community, a few per entity."""
    members, rank, heads, tails = set(nodes), dict[int, int](), graph.heads, graph.tails
    for i, node in enumerate(nodes[:_MAX_LINES]):
        other_end = {j: int(heads[j] + tails[j]) - node for j in graph.network.incident(node)}
        others = sorted(set(other_end.values()) - members, key=graph.name)[:_LEAVING_EACH]
        rank |= {j: i for j, other in other_end.items() if other in others}
    row = dict(zip(rank, map(json.dumps, _stated(graph, [*rank])), strict=True))
    return sorted(rank, key=lambda j: (rank[j], row[j]))[:_MAX_LEAVING]


def _stated(graph: CorpusGraph, edges: Sequence[int]) -> list[dict[str, Any]]:
    """Return relations as rows, with the names of their ends."""
    rows: list[dict[str, Any]]
    rows = graph.tables.edges.select(_OF_EDGE).take(np.asarray(edges, np.int64)).to_pylist()
    for row in rows:
        row.update(head=graph.name(row["head"]), tail=graph.name(row["tail"]))
    return rows


# --- Summaries of communities: written once by the LM, cached until the community changes.
#
# A summary may use only the names and numbers in the lines of its community. If it has others, the
# LM is asked once more; then the sentences that still do are dropped and listed.

_MAX_TITLE_WORDS: Final = 12
_WORD: Final = re.compile(r"(\w+)(?:['’]\w+)?")


class Summary(BaseModel):
    """The public summary of a community.

    Attributes:
        title: A few words.
        text: A few sentences, with no names or numbers that the community's lines lack.
        left_out: Dropped sentences with other names or numbers.
    """

    model_config = ConfigDict(frozen=True)

    title: str
    text: str
    left_out: tuple[str, ...] = ()


def summarise(predictor: dspy.Predict, graph: str) -> Conversation[Summary]:
    """Summarise the lines of a community.

    Raises:
        StepFailed: The reply is unusable, or none of its sentences is grounded in the lines.
    """
    meter, inputs = Meter(), {"graph": graph, "feedback": ""}
    reply = yield from ask("summarise", predictor, inputs, meter)
    if wrong := ungrounded_names(f"{reply.title}\n{reply.summary}", graph):
        inputs["feedback"] = f"not in the graph: {', '.join(wrong)}"
        # If the second attempt fails, the grounded sentences of the first one remain.
        with suppress(StepFailed):
            reply = yield from wrap_errors("summarise", ask("summarise", predictor, inputs, meter))
    return _ground_summary(reply, graph)


def ungrounded_names(text: str, graph: str) -> tuple[str, ...]:
    """Return the names and numbers in a text that are not in the lines of a community.

    A capitalised word counts as a name unless it begins a sentence.

    >>> ungrounded_names("The Elbe meets the Vltava at Mělník.", "1. Vltava -> flows into -> Elbe")
    ('Mělník',)
    """
    known = {word.folded for word in words(graph)}
    names = (
        match
        for start, end in sentences(text)
        for place, match in enumerate(_WORD.finditer(text, start, end))
        if (place > 0 and match[0][0].isupper()) or match[0][0].isdigit()
    )
    return tuple(dict.fromkeys(name[0] for name in names if fold(name[1]) not in known))


def _ground_summary(reply: dspy.Prediction, graph: str) -> Summary:
    text = free_text(reply.summary)
    parts = [text[start:end] for start, end in sentences(text)]
    grounded = [part for part in parts if not ungrounded_names(part, graph)]
    if not grounded:
        raise StepFailed("summarise", "no sentence of it is grounded in the graph", text)
    title = free_text(reply.title).split()
    if not 0 < len(title) <= _MAX_TITLE_WORDS or ungrounded_names(f"x {' '.join(title)}", graph):
        title = grounded[0].split()[:_MAX_TITLE_WORDS]
    left_out = tuple(part for part in parts if part not in grounded)
    return Summary(title=" ".join(title), text=" ".join(grounded), left_out=left_out)


class Summaries:
    """Writes summaries of communities and caches them in a file.

    Args:
        path: The file, which several processes may share; None caches in memory.

    Attributes:
        predictor: The predictor that writes the summaries.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path, self.predictor = path, dspy.Predict(SummariseCommunity)

    def of(
        self,
        graph: CorpusGraph,
        communities: Sequence[Community],
        *,
        lm: Any = None,
        threads: int = 8,
        progress: Callable[[str, int, int], None] | None = None,
    ) -> dict[str, Summary | str]:
        """Return the summary of each community by its key, or the error message if it failed.

        Args:
            graph: The graph of the communities; its public part is summarised.
            communities: The communities; those with a cached summary need no LM call.
            lm: The LM; by default the configured one.
            threads: Number of communities summarised in parallel.
            progress: Called with the name of the stage, the units done and the total.

        Raises:
            InputError: A summary must be written, and no LM is configured.
        """
        summaries: dict[str, Summary | str]
        summaries, missing = self._split(communities, lm)
        lm = require_lm(lm, self.predictor) if missing else lm
        fingerprint = self.fingerprint(lm)

        def write(community: Community) -> tuple[str, Summary | str]:
            text = community_text(graph.public, community)
            outcome = outcome_of(lambda: drive(summarise(self.predictor, text)))
            if isinstance(outcome, Summary):
                # Recorded at once, so that a killed process loses nothing.
                self._journal.record({f"{community.key}-{fingerprint}": outcome})
            return community.key, outcome

        with dspy.context(lm=lm):
            outcomes = parallel(write, missing, check_whole("threads", threads))
            for done, (key, outcome) in enumerate(outcomes, 1):
                summaries[key] = outcome
                if progress:
                    progress("summarising", done, len(missing))
        return {community.key: summaries[community.key] for community in communities}

    def estimate(
        self, graph: CorpusGraph, communities: Sequence[Community], *, lm: Any = None
    ) -> tuple[int, int]:
        """Estimate the LM calls and prompt tokens of `of`, without retries."""
        _, missing = self._split(communities, lm)
        texts = (community_text(graph.public, community) for community in missing)
        return len(missing), sum(map(estimate_tokens, texts))

    def cached(self, communities: Sequence[Community]) -> dict[str, Summary]:
        """Return the cached summary of each community that has one, written by any LM."""
        cached = self._cached()
        by_key = {step.partition("-")[0]: cached[step] for step in sorted(cached)}
        return {one.key: by_key[one.key] for one in communities if one.key in by_key}

    def keep_only(self, communities: Iterable[Community]) -> None:
        """Delete the summaries of all other communities."""
        keys = {community.key for community in communities}
        if steps := self._cached():
            self._journal.keep_only(step for step in steps if step.partition("-")[0] in keys)

    def fingerprint(self, lm: Any = None) -> str:
        """Return a hash of the prompt and the LM."""
        lm = resolve_lm(lm, self.predictor)
        state = {k: v for k, v in self.predictor.dump_state().items() if k != "lm"}
        more = nondefault_settings(self.predictor, lm)
        return digest_of([state, getattr(lm, "model", ""), *([more] if more else [])])

    def _split(
        self, communities: Sequence[Community], lm: Any
    ) -> tuple[dict[str, Any], list[Community]]:
        """Return the cached summaries that this LM wrote, and the communities without one."""
        fingerprint, cached = self.fingerprint(lm), self._cached()
        steps = {one.key: f"{one.key}-{fingerprint}" for one in communities}
        missing = [one for one in communities if steps[one.key] not in cached]
        return {key: cached[step] for key, step in steps.items() if step in cached}, missing

    def _cached(self) -> dict[str, Summary]:
        """Return all cached summaries, by the community's key and the LM's fingerprint."""
        is_new = self._path is not None and not self._path.is_file()
        return {} if is_new else self._journal.known(Summary)

    @cached_property
    def _journal(self) -> FinishedSteps:
        return FinishedSteps(self._path or Path(":memory:"), shared=True)


# --- Topics: summarised communities, and the ones that a question is about.


class Topic(NamedTuple):
    """A community of the public graph and its summary.

    Attributes:
        place: The index of the community in the list of all, as in `Community.parent`.
        community: The community, with node and edge numbers of `CorpusGraph.public`.
        title: The title, a few words.
        text: The summary.
    """

    place: int
    community: Community
    title: str
    text: str

    @property
    def passage(self) -> Passage:
        """Return the summary as a passage, for prompts with numbered passages."""
        return Passage(id=self.community.key, title=self.title, text=self.text)


def topics_of(
    communities: Sequence[Community], summaries: Mapping[str, Summary | str]
) -> tuple[Topic, ...]:
    """Return a topic for each community that has a summary.

    Args:
        communities: All communities, in order.
        summaries: Their summaries by key, as `Summaries.of` returns them.
    """
    return tuple(
        Topic(place, community, summary.title, summary.text)
        for place, community in enumerate(communities)
        if isinstance(summary := summaries.get(community.key), Summary)
    )


def topics_with(
    topics: Iterable[Topic], graph: CorpusGraph, names: Iterable[str], most: int
) -> tuple[Topic, ...]:
    """Return at most `most` topics with entities of these names, best first.

    Topics with more of these entities come first, then smaller ones, which are more specific.
    """
    nodes = {node for name in names for node in graph.public.find(name)}
    counted = [(len(nodes.intersection(topic.community.nodes)), topic) for topic in topics]
    counted.sort(key=lambda pair: (-pair[0], len(pair[1].community.nodes)))
    return tuple(topic for count, topic in counted[:most] if count)


def topics_at(topics: Iterable[Topic], level: int) -> tuple[Topic, ...]:
    """Return the topics at a level, and those at coarser levels that are not divided further."""
    coarse = [topic for topic in topics if topic.community.level <= level]
    divided = {topic.community.parent for topic in coarse}
    return tuple(topic for topic in coarse if topic.place not in divided)


def rank_topics(topics: Iterable[Topic], question: str) -> tuple[Topic, ...]:
    """Rank topics by the words that they share with a question, then by size."""

    def content(text: str) -> set[str]:
        return {word.folded for word in words(normalise(text)) if len(word.folded) > 3}

    asked = content(question)

    def key(topic: Topic) -> tuple[int, int]:
        shared = asked & content(f"{topic.title} {topic.text}")
        return -len(shared), -len(topic.community.nodes)

    return tuple(sorted(topics, key=key))


def summaries_text(topics: Iterable[Topic], budget: int, count: TokenCounter) -> str:
    """Return unnumbered summaries, one per line, truncated to a token budget."""
    passages = {number: topic.passage for number, topic in enumerate(topics)}
    blocks = fit_passages(passages, budget, count).text.split("\n\n")
    lines = (block.partition("] ")[2].replace("\n", ": ", 1) for block in blocks)
    return "\n".join(filter(None, lines)) or EMPTY
