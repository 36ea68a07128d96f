"""Facts: which relations of a neighbourhood a question asks for."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from rapidfuzz.fuzz import partial_ratio

from ga_dspy.graph import Relation
from ga_dspy.graph.identity import kind_of
from ga_dspy.graphrag.corpus_graph import CorpusGraph
from ga_dspy.graphrag.linking import Lexicon, Link, keys
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
        text: The question, folded.
        words: Its words, as `keys` compares them, and how much each says; the weights sum to 1.
        numbers: The numbers in it.
        wants: "person", "place", "date", "number", a kind of `ga_dspy.graph.identity`, or "".
        nouns: The words after "which" or "what", as `keys` compares them.
        relations: By row of `Lexicon.wordings`: the weight of the question's words in it.
        names: By node: the weight of the question's words in its names.
        described: By node: the weight of the question's words in its type and attributes.
        edges: By edge, from 0 to 1: the relation's and the better end's fit.
    """

    def __init__(self, question: str, lexicon: Lexicon, named: Sequence[str] = ()) -> None:
        self.question, self.lexicon = question, lexicon
        done = {word for mention in named for word in keys(mention)}
        rarity = {word: lexicon.rarity(word) for word in keys(question) if word not in done}
        total = sum(rarity.values()) or 1.0
        self.text = fold(question)
        self.words = {word: value / total for word, value in rarity.items()}
        self.numbers = frozenset(_NUMBER.findall(self.text))
        noun = _noun(self.text)
        kinds = (kind for kind, mark in _KINDS if mark.search(self.text))
        self.wants = next(kinds, "") or kind_of(noun)
        self.nouns = frozenset(keys(noun))
        self.relations = lexicon.relations.weigh(self.words)
        self.names = lexicon.names.weigh(self.words)
        self.described = lexicon.described.weigh(self.words)
        nodes = np.maximum(self.names, self.described)
        ends = np.maximum(nodes[lexicon.wiring.heads], nodes[lexicon.wiring.tails])
        self.edges = np.minimum(self.relations[lexicon.wording_of] + ends / 2, 1)

    def could_be(self, name: str, type_: str) -> bool:
        """Whether an entity could be an answer of the kind that is asked for."""
        if self.wants in ("date", "number"):
            return bool((_YEAR if self.wants == "date" else _NUMBER).search(name))
        kind = kind_of(type_)
        return kind in _PLACES if self.wants == "place" else bool(self.wants) and kind == self.wants


def _noun(text: str) -> str:
    """What stands after "which" or "what": up to four words, to the first that is no noun."""
    match = _NOUN.search(text)
    words = fold_words(match[1]).split()[:4] if match else []
    stop = next((i for i, word in enumerate(words) if word in STOPWORDS), len(words))
    return " ".join(words[:stop])


# --- Which facts of a neighbourhood a question asks for: many by cheap features, few by meaning.

FINE_SHARE: Final = 0.5
"""How much of a fact's score its cosine makes up, where there is an encoder."""

WEIGHTS: Final[Mapping[str, float]] = {
    "relation_words": 2.0,
    "name_words": 0.8,
    "described_words": 0.6,
    "jaccard": 0.5,
    "spelling": 0.3,
    "rarest": 0.5,
    "hops": -0.1,
    "on_path": 0.8,
    "numbers": 0.6,
    "answer_type": 0.5,
    "answer_noun": 0.3,
    "rare_relation": 0.1,
    "confidence": 0.2,
    "degree": -0.03,
    "link": 0.1,
}
"""The linear ranker: signs from what each feature means, sizes by hand.

Of 29 training questions of HotpotQA and MuSiQue whose answer stands in a fact of the neighbourhood
(56 facts in the mean, graphs read by the embedded LM) it is among the first 12 for 25, by cosine
alone for 24, by both for 26.
"""

_POOL: Final = 60
"""How many facts are scored again by their cosine."""

_REMEMBERED: Final = 20_000


class RankedFact(NamedTuple):
    """An edge, how well it fits the question (comparable within one search), and its words.

    >>> fact = Relation(head="Oslo", relation="capital of", tail="Norway")
    >>> RankedFact(3, 0.5, "Oslo capital of Norway", fact).text
    'Oslo capital of Norway'
    """

    edge: int
    score: float
    text: str
    relation: Relation


def fact_text(relation: Relation) -> str:
    """A relation as an encoder reads it.

    >>> fact_text(Relation(head="Oslo", relation="capital of", tail="Norway", time="since 1814"))
    'Oslo capital of Norway (since 1814)'
    """
    when = f" ({relation.time})" if relation.time else ""
    return f"{relation.head} {relation.relation} {relation.tail}{when}"


class FactVectors:
    """Compares facts with questions under the encoder of the index; their vectors are kept."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder
        self._known: dict[str, NDArray[np.float32]] = {}

    def cosines(self, question: str, facts: Sequence[str]) -> NDArray[np.floating]:
        """One cosine a fact."""
        known = self._known
        new = [fact for fact in dict.fromkeys(facts) if fact not in known]
        fresh = dict(zip(new, self._encoder.encode(new), strict=True)) if new else {}
        vectors = np.stack([fresh[fact] if fact in fresh else known[fact] for fact in facts])
        # Another thread may look facts up in the old one; it is never changed.
        self._known = {**known, **fresh} if len(known) + len(fresh) <= _REMEMBERED else fresh
        cosines: NDArray[np.floating] = vectors @ self._encoder.encode_query(question)
        return cosines


def rank(
    query: Query,
    graph: CorpusGraph,
    near: Neighbourhood,
    paths: Sequence[GraphPath],
    links: Sequence[Link],
    *,
    vectors: FactVectors | None,
    keep: int,
) -> tuple[RankedFact, ...]:
    """The facts of a neighbourhood and of paths that fit a question best; equal ones by edge.

    Args:
        query: The question, compared with the graph.
        graph: The caller's graph.
        near: The neighbourhood of what the question names.
        paths: Paths between what the question names.
        links: What it names.
        vectors: Scores the best again, by meaning; their score is a mixture of both.
        keep: How many to return.
    """
    on_paths = [edge for path in paths for edge in path.edges]
    edges = np.union1d(near.edges, np.array(on_paths, dtype=np.int64))
    if not len(edges):
        return ()
    features = _features(edges, query, near, paths, links)
    columns = [np.asarray(features[name], dtype=np.float64) for name in WEIGHTS]
    scores = np.column_stack(columns) @ np.array([*WEIGHTS.values()])
    first = np.lexsort((edges, -scores))[: max(_POOL, keep)]
    edges, scores = edges[first], _scaled(scores[first])
    relations = [graph.edge(j) for j in edges.tolist()]
    texts = [fact_text(relation) for relation in relations]
    if vectors is not None:
        close = _scaled(vectors.cosines(query.question, texts))
        scores = (1 - FINE_SHARE) * scores + FINE_SHARE * close
    order = np.lexsort((edges, -scores))[:keep].tolist()
    return tuple(
        RankedFact(int(edges[i]), round(float(scores[i]), 6), texts[i], relations[i]) for i in order
    )


def _features(
    edges: NDArray[np.int64],
    query: Query,
    near: Neighbourhood,
    paths: Sequence[GraphPath],
    links: Sequence[Link],
) -> dict[str, ArrayLike]:
    """What speaks for each edge, by the names of `WEIGHTS`."""
    lexicon, wiring = query.lexicon, query.lexicon.wiring
    wording = lexicon.wording_of[edges]
    ends = (wiring.heads[edges], wiring.tails[edges])
    beyond = max(near.hops.values(), default=0) + 1
    steps = np.array([[near.hops.get(node, beyond) for node in end.tolist()] for end in ends])
    far = np.where(steps[0] > steps[1], *ends)
    types = [lexicon.types[node] for node in far]
    on_path: dict[int, float] = {}
    for path in sorted(paths, key=lambda path: -len(path.edges)):
        on_path |= dict.fromkeys(path.edges, 1 / len(path.edges))
    sureness = {link.node: link.score for link in links}
    sure = np.array([[sureness.get(node, 0.0) for node in end.tolist()] for end in ends])

    def at_ends(rows: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        return rows[ends[0]], rows[ends[1]]

    names, relations = lexicon.names, lexicon.relations
    rows, place = np.unique(wording, return_inverse=True)
    alike = [partial_ratio(fold(lexicon.wordings[row]), query.text) / 100 for row in rows.tolist()]
    once = dict.fromkeys(query.words, 1.0)
    shared = relations.weigh(once)[wording] + sum(at_ends(names.weigh(once)))
    every = len(once) + relations.lengths[wording] + sum(at_ends(names.lengths)) - shared
    return {
        "relation_words": query.relations[wording],
        "name_words": np.maximum(*at_ends(query.names)),
        "described_words": query.described[far],
        # Shared words over all words of question and fact.
        "jaccard": shared / every.clip(1),
        # How nearly the relation is spelled in the question.
        "spelling": np.array(alike)[place],
        # The weight of the rarest word that fact and question share.
        "rarest": np.maximum(
            relations.strongest(query.words)[wording],
            np.maximum(*at_ends(names.strongest(query.words))),
        ),
        "hops": steps.min(axis=0),
        "on_path": [on_path.get(edge, 0.0) for edge in edges.tolist()],
        "numbers": _numbers(edges, query),
        "answer_type": [
            query.could_be(lexicon.shown[n], type_) for n, type_ in zip(far, types, strict=True)
        ],
        "answer_noun": [not query.nouns.isdisjoint(keys(type_)) for type_ in types],
        "rare_relation": 1 / np.log2(1 + lexicon.often[wording]),
        "confidence": wiring.confidence[edges],
        "degree": np.log2(1 + wiring.degrees[far]),
        "link": sure.max(axis=0),
    }


def _numbers(edges: NDArray[np.int64], query: Query) -> list[float]:
    """The share of the question's numbers that stand in the fact, its time included."""
    if not query.numbers:
        return [0.0] * len(edges)
    lexicon = query.lexicon
    facts = (f"{lexicon.sentence(j)} {lexicon.times[j] or ''}" for j in edges.tolist())
    held = (query.numbers.intersection(_NUMBER.findall(fact)) for fact in facts)
    return [len(numbers) / len(query.numbers) for numbers in held]


def _scaled(scores: NDArray[np.floating]) -> NDArray[np.float64]:
    """From 0 for the lowest to 1 for the highest; all 1 where they are equal."""
    low, high = float(scores.min()), float(scores.max())
    if high == low:
        return np.ones(len(scores))
    return np.asarray((scores - low) / (high - low), dtype=np.float64)
