"""Facts: which relations of a neighbourhood a question asks for."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ga_dspy.graph import Relation
from ga_dspy.graph.traits import kind_of
from ga_dspy.graphrag.corpus_graph import CorpusGraph
from ga_dspy.graphrag.linking import Lexicon, keys
from ga_dspy.graphrag.walk import GraphPath, Neighbourhood
from ga_dspy.retrieval import Encoder
from ga_dspy.text import STOPWORDS, fold, fold_words

# --- A question as facts are compared with it.

_KINDS: Final = (
    ("person", re.compile(r"\b(?:who|whom|whose)\b")),
    ("place", re.compile(r"\bwhere\b")),
    ("number", re.compile(r"\bhow (?:many|much|long|tall|high|old|far|large|big|deep|wide)\b")),
    ("date", re.compile(r"\bwhen\b|\b(?:what|which) (?:year|date|day|month|decade|century)\b")),
)
_PLACES: Final = frozenset(
    ("settlement", "country", "subdivision", "water", "mountain", "island", "planet", "school")
)
_NOUN: Final = re.compile(r"\b(?:what|which|name)\s+(?:(?:is|was|are|were|the)\s+)*(.+)")
_YEAR: Final = re.compile(r"\b\d{4}\b")
_NUMBER: Final = re.compile(r"\d+")


class Query:
    """A question, and how well its words fit a graph.

    Args:
        question: The question.
        lexicon: The words of the graph.
        named: Mentions that are linked; their words have done their work.

    Attributes:
        question: As given.
        lexicon: As given.
        wants: "person", "place", "date", "number", a kind of `ga_dspy.graph.identity`, or "".
        relations: By edge: the weight of the question's words in its wording. All weights
            together are 1.
        names: By node: the weight of the question's words in its names.
        fit: By edge, from 0 to 1: the relation's and the better end's fit, type and attributes
            included.
    """

    def __init__(self, question: str, lexicon: Lexicon, named: Sequence[str] = ()) -> None:
        self.question, self.lexicon = question, lexicon
        done = {word for mention in named for word in keys(mention)}
        rarity = {word: lexicon.rarity(word) for word in keys(question) if word not in done}
        total, text = sum(rarity.values()) or 1.0, fold(question)
        weights = {word: value / total for word, value in rarity.items()}
        kinds = (kind for kind, mark in _KINDS if mark.search(text))
        self.wants = next(kinds, "") or kind_of(_noun(text))
        wiring = lexicon.wiring
        self.relations = lexicon.relations.weigh(weights)[wiring.wording_of]
        self.names = lexicon.names.weigh(weights)
        nodes = np.maximum(self.names, lexicon.described.weigh(weights))
        ends = np.maximum(nodes[wiring.heads], nodes[wiring.tails])
        self.fit = np.minimum(self.relations + ends / 2, 1)

    def could_be(self, node: int) -> bool:
        """Whether an entity could be an answer of the kind that is asked for."""
        if self.wants in ("date", "number"):
            mark = _YEAR if self.wants == "date" else _NUMBER
            return bool(mark.search(self.lexicon.shown[node]))
        kind = kind_of(self.lexicon.types[node])
        return kind in _PLACES if self.wants == "place" else bool(self.wants) and kind == self.wants


def _noun(text: str) -> str:
    """What stands after "which" or "what": up to four words, to the first that is no noun."""
    match = _NOUN.search(text)
    words = fold_words(match[1]).split()[:4] if match else []
    stop = next((i for i, word in enumerate(words) if word in STOPWORDS), len(words))
    return " ".join(words[:stop])


# --- Which facts of a neighbourhood a question asks for: many by their words, few by meaning.

_RELATION, _NAMES, _ON_PATH, _ANSWER, _HOP = 2.0, 0.8, 0.8, 0.5, -0.1
"""How much it says for a fact that its relation and its ends share words with the question, that
it lies on a short path, that it could hold the answer, and against it that it is a hop away.

Set by hand. Of 521 development questions of HotpotQA, MuSiQue and 2WikiMultiHopQA (graphs read by
the embedded LM) 61 have their answer in one of the first 12 facts, as many as with ten features
more; 51 by cosine alone, 57 without it.
"""

_POOL: Final = 60
"""How many facts are scored again by their cosine."""


class RankedFact(NamedTuple):
    """An edge, how well it fits the question (comparable within one search), and its words."""

    edge: int
    score: float
    text: str


def fact_text(relation: Relation) -> str:
    """A relation as an encoder reads it.

    >>> fact_text(Relation(head="Oslo", relation="capital of", tail="Norway", time="since 1814"))
    'Oslo capital of Norway (since 1814)'
    """
    when = f" ({relation.time})" if relation.time else ""
    return f"{relation.head} {relation.relation} {relation.tail}{when}"


def rank(
    query: Query,
    graph: CorpusGraph,
    near: Neighbourhood,
    paths: Sequence[GraphPath],
    *,
    encoder: Encoder | None,
    keep: int,
) -> tuple[RankedFact, ...]:
    """The facts of a neighbourhood and of paths that fit a question best; equal ones by edge.

    Args:
        query: The question, compared with the graph.
        graph: The caller's graph.
        near: The neighbourhood of what the question names.
        paths: Paths between what the question names.
        encoder: Scores the best again, by meaning; their score is the mean of both.
        keep: How many to return.
    """
    on_path: dict[int, float] = {}
    for path in sorted(paths, key=lambda path: -len(path.edges)):
        on_path |= dict.fromkeys(path.edges, 1 / len(path.edges))
    edges = np.union1d(near.edges, np.array([*on_path], dtype=np.int64))
    if not len(edges):
        return ()
    wiring, beyond = query.lexicon.wiring, max(near.hops.values(), default=0) + 1
    ends = wiring.heads[edges], wiring.tails[edges]
    hops = np.array([[near.hops.get(node, beyond) for node in end.tolist()] for end in ends])
    far = np.where(hops[0] > hops[1], *ends).tolist()
    scores = _RELATION * query.relations[edges].astype(np.float64)
    scores += _NAMES * np.maximum(*(query.names[end] for end in ends))
    scores += _ON_PATH * np.array([on_path.get(edge, 0.0) for edge in edges.tolist()])
    scores += _ANSWER * np.array([query.could_be(node) for node in far])
    scores += _HOP * hops.min(axis=0)
    first = np.lexsort((edges, -scores))[: max(_POOL, keep)]
    edges, scores = edges[first], _scaled(scores[first])
    texts = [fact_text(graph.edge(j)) for j in edges.tolist()]
    if encoder is not None:
        scores += _scaled(encoder.encode(texts) @ encoder.encode_query(query.question))
        scores /= 2
    order = np.lexsort((edges, -scores))[:keep].tolist()
    return tuple(RankedFact(int(edges[i]), round(float(scores[i]), 6), texts[i]) for i in order)


def _scaled(scores: NDArray[np.floating]) -> NDArray[np.float64]:
    """From 0 for the lowest to 1 for the highest; all 1 where they are equal."""
    low, high = float(scores.min()), float(scores.max())
    if high == low:
        return np.ones(len(scores))
    return np.asarray((scores - low) / (high - low), dtype=np.float64)
