"""What GraphRAG is measured by beside the answer: cited edges that hold, and where time goes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from statistics import median
from typing import Any, Final, Literal, NamedTuple

from ga_dspy.graph.names import identity, plain_relation
from ga_dspy.graphrag.corpus_graph import CorpusGraph
from ga_dspy.mentions import fold
from ga_dspy.passage import Passage
from ga_dspy.programs.prediction import EvidenceLink

Standing = Literal["faithful", "no such edge", "not stated there", "misquoted"]
"""What became of a cited edge; the first of these faults that it has."""

_ELLIPSIS: Final = " … "
_DESCRIBED: Final = "described as"


class Faithfulness(NamedTuple):
    """How many cited edges are in the graph and stated by the words that are quoted.

    Attributes:
        standings: How many links have each standing; links without a triple cite no edge.
    """

    standings: Mapping[Standing, int]

    @property
    def cited(self) -> int:
        """Edges cited."""
        return sum(self.standings.values())

    @property
    def share(self) -> float | None:
        """Share of the cited edges that are faithful, from 0 to 1; None where none is cited."""
        return self.standings.get("faithful", 0) / self.cited if self.cited else None


def faithfulness(
    evidence: Iterable[EvidenceLink],
    graph: CorpusGraph,
    passage: Callable[[str], Passage | None],
) -> Faithfulness:
    """Check cited edges against the graph and the passages, not against what an LM was shown.

    Args:
        evidence: Links of one prediction or of many (`prediction.evidence`).
        graph: The graph that the edges should be in; a caller's own (`View.graph`) tells whether
            the caller could know them.
        passage: Gives a passage by its id, or None.
    """
    found = (_standing(link, graph, passage) for link in evidence if link.head)
    return Faithfulness(dict(Counter(found)))


def _standing(
    link: EvidenceLink, graph: CorpusGraph, passage: Callable[[str], Passage | None]
) -> Standing:
    if link.relation == _DESCRIBED:
        stated = _describing(link, graph)
    else:
        stated = [graph.passages_of_edge(edge) for edge in _edges(link, graph)]
    if not stated:
        return "no such edge"
    if not any(link.passage_id in ids for ids in stated):
        return "not stated there"
    source = passage(link.passage_id)
    text = _plain(source.content) if source else ""
    parts = link.quote.split(_ELLIPSIS)
    quoted = bool(link.quote) and all(_plain(part) in text for part in parts)
    return "faithful" if quoted else "misquoted"


def _edges(link: EvidenceLink, graph: CorpusGraph) -> list[int]:
    """The edges of a triple, whatever the tense of its relation."""
    heads, tails = set(graph.find(link.head)), set(graph.find(link.tail))
    wording = plain_relation(link.relation)
    return [
        edge
        for node in heads
        for edge in graph.network.incident(node)
        if int(graph.heads[edge]) in heads
        and int(graph.tails[edge]) in tails
        and plain_relation(graph.relation_of(edge)) == wording
    ]


def _describing(link: EvidenceLink, graph: CorpusGraph) -> list[tuple[str, ...]]:
    """The passages of things whose type or attribute a link cites in the place of an edge."""
    wanted = identity(link.tail)
    things = ((node, graph.node(node)) for node in graph.find(link.head))
    return [
        graph.passages_of(node)
        for node, thing in things
        if wanted in map(identity, (thing.type, *thing.attributes))
    ]


def _plain(text: str) -> str:
    return " ".join(fold(text).split())


def latency(predictions: Iterable[Any]) -> dict[str, float]:
    """The median time of each part of a GraphRAG program over some predictions, in seconds.

    Parts are those of `prediction.seconds`: linking, expansion, ranking, passages and lm. A part
    that a prediction has no time for (a global one searches no passages) is left out for it.

    >>> import dspy
    >>> latency([dspy.Prediction(seconds={"lm": 2.0}), dspy.Prediction(seconds={"lm": 4.0})])
    {'lm': 3.0}
    """
    parts: dict[str, list[float]] = {}
    for prediction in predictions:
        for part, seconds in prediction.seconds.items():
            parts.setdefault(part, []).append(seconds)
    return {part: median(times) for part, times in parts.items()}
