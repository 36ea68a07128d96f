"""Linking: which entities of a graph a question is about, and which facts it asks for."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import takewhile
from pathlib import Path
from typing import Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from rapidfuzz import fuzz, process

from ga_dspy.errors import require
from ga_dspy.graph import Relation, normalise
from ga_dspy.graph.identity import identity, split_qualifier, words_in_digits
from ga_dspy.graph.records import grouped
from ga_dspy.graph.traits import is_placed_kind, kind_of
from ga_dspy.graphrag.corpus_graph import CorpusGraph
from ga_dspy.graphrag.walk import GraphPath, Neighbourhood, Wiring
from ga_dspy.retrieval.encoders import Encoder, Reranker, encode_texts, rerank
from ga_dspy.retrieval.engine import top
from ga_dspy.text import ARTICLES, CONNECTORS, STOPWORDS, fold, fold_words, longest_matches

# --- The words of a graph: the names, descriptions and relations that contain them.

KEY_LENGTH: Final = 6
"""Stems are truncated to this length, so that "director" matches "directed"."""

_FORMS: Final = (
    "become became|begin began begun|bear born birth birthplace birthday|break broke broken|"
    "bring brought|build built|buy bought|catch caught|choose chose chosen|draw drew drawn|"
    "drive drove driven|die death dead deathplace|fall fell fallen|fight fought|fly flew flown|"
    "give gave given|grow grew grown|hold held|keep kept|know knew known|lead led|leave left|"
    "lose lost|make made|marry marriage|meet met|pay paid|ride rode ridden|rise rose risen|"
    "run ran|sell sold|send sent|shoot shot|sing sang sung song|speak spoke spoken|spend spent|"
    "stand stood|steal stole stolen|strike struck|swim swam swum|take took taken|teach taught|"
    "tell told|think thought|wear wore worn|win won|write wrote written"
)
_IRREGULAR: Final = {form: one.split()[0] for one in _FORMS.split("|") for form in one.split()}
"""Irregular forms that a stemmer does not unify, by their verb."""


def keys(text: str) -> tuple[str, ...]:
    """Return the content words of a text, folded, stemmed and truncated.

    >>> keys("Who directed the films of 1984?"), keys("director"), keys("wrote")
    (('direct', 'film', '1984'), ('direct',), ('write',))
    """
    return tuple(_key(word) for word in fold_words(text).split() if word not in STOPWORDS)


@lru_cache(maxsize=262144)
def _key(word: str) -> str:
    """Return the key of a folded word; words with a digit are not stemmed."""
    if any(c.isdigit() for c in word):
        return word
    # A stemmer is cheap to make and not thread-safe, so each call makes its own.
    stemmer = require("Stemmer", "search").Stemmer("english")
    return str(stemmer.stemWord(_IRREGULAR.get(word, word)))[:KEY_LENGTH]


class Postings:
    """The rows of a list of texts that contain each word."""

    def __init__(self, texts: Sequence[str]) -> None:
        found = ((word, row) for row, text in enumerate(texts) for word in set(keys(text)))
        self._rows = {word: np.asarray(rows, np.int32) for word, rows in grouped(found).items()}
        self.size = len(texts)

    def rows(self, word: str) -> NDArray[np.int32]:
        """Return the rows with a word, ascending."""
        return self._rows.get(word, np.zeros(0, dtype=np.int32))

    def weigh(self, words: Mapping[str, float]) -> NDArray[np.float32]:
        """Return the summed weights of the words in each row, shape (rows,)."""
        total = np.zeros(self.size, dtype=np.float32)
        for word, weight in words.items():
            total[self.rows(word)] += weight
        return total


class Lexicon:
    """The texts of a graph and their words; takes about a second for 50,000 nodes.

    It does not hold the graph.

    Attributes:
        wiring: The edges at each node.
        shown: The shown name of each node.
        types: The type of each node.
        names: Words of names and aliases, by node.
        described: Words of types and attributes, by node.
        relations: Words of relations, by row of `Wiring.wordings`.
        surnames: The normalised surnames that only one person has, and the node.
    """

    def __init__(self, graph: CorpusGraph) -> None:
        nodes, self.wiring = graph.tables.nodes, graph.derive(Wiring)
        self.shown: list[str] = nodes["name"].to_pylist()
        self.types: list[str] = nodes["type"].to_pylist()
        aliases, attributes = nodes["aliases"].to_pylist(), nodes["attributes"].to_pylist()
        self.names = Postings([*map(_joined, self.shown, aliases)])
        self.described = Postings([*map(_joined, self.types, attributes)])
        self.relations = Postings(self.wiring.wordings)
        bearers: dict[str, list[int]] = defaultdict(list)
        for node, (name, type_) in enumerate(zip(self.shown, self.types, strict=True)):
            parts = normalise(split_qualifier(name).base).split()
            if len(parts) > 1 and kind_of(type_) == "person":
                bearers[parts[-1]].append(node)
        self.surnames = {name: found[0] for name, found in bearers.items() if len(found) == 1}

    def rarity(self, word: str) -> float:
        """Return the inverse document frequency of a word."""
        parts = (self.names, self.described, self.relations)
        return math.log1p(sum(p.size for p in parts) / (1 + sum(len(p.rows(word)) for p in parts)))


def _joined(first: str, rest: Sequence[str]) -> str:
    return " ".join((first, *rest))


# --- Entity linking: by name, by alias, by spelling.

How = Literal["exact", "alias", "spelling", "vector"]

SPELLING: Final = 88.0
"""The minimum similarity, of 100, of two spellings; numbers in them must be equal."""

_MAX_ALIKE: Final = 3
_SURENESS: Final[Mapping[How, float]] = {"exact": 1.0, "alias": 0.9, "spelling": 0.7, "vector": 0.6}
_LOWER_CASE, _VALUE = 0.6, 0.5
_TOKEN: Final = re.compile(r"[^\s/–—(),;:!?\"“”«»\[\]]+")
_CONNECTORS: Final = CONNECTORS - {"at", "on"}


class Link(NamedTuple):
    """A mention and an entity that it may mean; namesakes give several links.

    Attributes:
        mention: The words of the question.
        node: The entity, a node of the caller's own graph.
        name: Its shown name.
        how: "exact" by its name, "alias" by another name, "spelling" by a similar name, "vector"
            by its profile.
        score: The confidence of the link, from 0 to 1.
    """

    mention: str
    node: int
    name: str
    how: How
    score: float

    @classmethod
    def of(cls, mention: str, node: int, name: str, how: How, weight: float) -> Link:
        """Make a link whose score depends on how it was found."""
        return cls(mention, node, name, how, round(_SURENESS[how] * weight, 4))


class Token(NamedTuple):
    """A word of a question with its place; `proper` if it may be a name by itself."""

    start: int
    end: int
    plain: str
    proper: bool


class Linker:
    """Links questions to the entities of one graph.

    >>> from ga_dspy.graph import GraphUpdate, Relation
    >>> stated = GraphUpdate(relations=(Relation(head="Oslo", relation="in", tail="Norway"),))
    >>> graph = CorpusGraph.of({"p": stated})
    >>> [(link.mention, link.how) for link in Linker(graph).link("Oslo?")]
    [('Oslo', 'exact')]
    """

    def __init__(self, graph: CorpusGraph) -> None:
        self.graph, self.lexicon = graph, graph.derive(Lexicon)

    def link(self, question: str) -> tuple[Link, ...]:
        """Find the entities that a question names, surest first.

        Of overlapping names the longest counts. A name of one word counts where the question
        writes it with a capital or a digit, or has no capitals at all; so do dates and numbers. A
        surname alone means a person if only one has it.
        """
        tokens = _tokens(question)
        spans = list(self._spans(question, tokens))
        covered = {i for span in spans for i in range(*span)}
        links: list[Link] = []
        for span in spans:
            sure = any(token.proper for token in tokens[slice(*span)])
            share = 1.0 if sure else _LOWER_CASE
            links += self._by_name(_text(question, tokens, span), question, share)
        for span in _capitalised_runs(tokens, covered):
            links += self._by_spelling(_text(question, tokens, span), question)
        return best_links(links)

    def _spans(self, question: str, tokens: Sequence[Token]) -> Iterator[tuple[int, int]]:
        """Yield the longest names in a question as token ranges, left to right."""

        def is_name(first: int, last: int) -> bool:
            text, inside = _text(question, tokens, (first, last)), tokens[first:last]
            name, names, alone = normalise(text), self.graph.names, len(inside) == 1
            if inside[0].plain in ARTICLES and not alone:
                # "The Who" is a name; "the Ohio" is looked up without its article.
                return len(inside) == 2 and text.istitle() and name in STOPWORDS and name in names
            # A surname counts only if no other name is before it.
            surname = alone and name in self.lexicon.surnames
            surname = surname and (first == 0 or not tokens[first - 1].proper)
            if not (name in names or identity(text) in names or surname):
                return False
            return inside[0].proper if alone else any(t.plain not in STOPWORDS for t in inside)

        return longest_matches(range(len(tokens)), len(tokens), is_name)

    def _by_name(self, mention: str, question: str, share: float) -> Iterator[Link]:
        """Yield links to the entities of a name, weighted by the rest of the question."""
        plain, values = normalise(mention), self.lexicon.wiring.values
        nodes = self.graph.find(mention)
        if not nodes and plain in self.lexicon.surnames:
            nodes = (self.lexicon.surnames[plain],)
        nodes = tuple(node for node in nodes if not values[node]) or nodes
        for node, part in self._namesakes(nodes, mention, question):
            shown = self.lexicon.shown[node]
            own = (normalise(shown), normalise(split_qualifier(shown).base))
            weight = (_VALUE if values[node] else 1.0) * (share * part)
            yield Link.of(mention, node, shown, "exact" if plain in own else "alias", weight)

    def _by_spelling(self, mention: str, question: str) -> Iterator[Link]:
        """Yield links to the entities with a similar name."""
        wanted = normalise(mention)
        if len(wanted) < 5:
            return
        found = process.extract(
            wanted, [*self.graph.names],
            scorer=fuzz.ratio, score_cutoff=SPELLING, limit=_MAX_ALIKE,
        )  # fmt: skip
        alike = [name for name, _, _ in found if _numbers(name) == _numbers(wanted)]
        nodes = tuple(dict.fromkeys(node for name in alike[:1] for node in self.graph.names[name]))
        for node, part in self._namesakes(nodes, mention, question):
            yield Link.of(mention, node, self.lexicon.shown[node], "spelling", part)

    def _namesakes(
        self, nodes: Sequence[int], mention: str, question: str
    ) -> Iterable[tuple[int, float]]:
        """Return each node with a weight from 0.5 to 1: the share of the question around it."""
        if len(nodes) < 2:
            return [(node, 1.0) for node in nodes]
        others = set(keys(mention))
        asked = [word for word in dict.fromkeys(keys(question)) if word not in others]
        fits = [self._fit(node, asked) for node in nodes]
        best = max(fits)
        shares = [0.5 + 0.5 * fit / best if best else 1.0 for fit in fits]
        return zip(nodes, shares, strict=True)

    def _fit(self, node: int, asked: Iterable[str]) -> float:
        """Return the rarity of the question's words in a node's description and surroundings."""
        lexicon, itself = self.lexicon, np.array([node])
        nodes, edges = lexicon.wiring.touching(itself)
        there = (
            (lexicon.described, itself),
            (lexicon.relations, lexicon.wiring.wording_of[edges]),
            (lexicon.names, lexicon.wiring.across(nodes, edges)),
        )
        found = (w for w in asked if any(np.isin(at, part.rows(w)).any() for part, at in there))
        return sum(map(lexicon.rarity, found))


def best_links(links: Iterable[Link]) -> tuple[Link, ...]:
    """Return the best link of each entity, best first; ties keep their order."""
    best: dict[int, Link] = {}
    for link in links:
        if link.node not in best or link.score > best[link.node].score:
            best[link.node] = link
    return tuple(sorted(best.values(), key=lambda link: -link.score))


def _tokens(question: str) -> list[Token]:
    found = list(_TOKEN.finditer(question))
    plain = [normalise(match.group()) for match in found]
    capital = [any(c.isupper() or c.isdigit() for c in match.group()) for match in found]
    # Queries are often typed without capitals, except for the first word.
    relaxed = not any(capital[1:]) and (not capital[:1] or plain[0] in STOPWORDS or not capital[0])
    return [
        Token(*match.span(), word, word not in STOPWORDS and (big or (relaxed and len(word) > 3)))
        for match, word, big in zip(found, plain, capital, strict=True)
    ]


def _capitalised_runs(tokens: Sequence[Token], covered: set[int]) -> Iterator[tuple[int, int]]:
    """Yield the runs of capitalised words that are not covered, with small words inside them."""
    shape = "".join(
        "C" if token.proper and i not in covered else "c" if token.plain in _CONNECTORS else "."
        for i, token in enumerate(tokens)
    )
    for run in re.finditer("C(?:C|c(?=C))*", shape):
        if not all(token.plain.isdigit() for token in tokens[slice(*run.span())]):
            yield run.span()


def _text(question: str, tokens: Sequence[Token], span: tuple[int, int]) -> str:
    text = question[tokens[span[0]].start : tokens[span[1] - 1].end].rstrip(".")
    return re.sub(r"['’]s$", "", text)


def _numbers(plain: str) -> list[str]:
    return sorted(word for word in words_in_digits(plain) if any(c.isdigit() for c in word))


# --- Profiles of entities as vectors: links for texts without a known name.

PROFILE_EDGES: Final = 4
"""The number of relations in a profile, those with the rarest wording first."""


class Profiles:
    """The vectors of all entities of a graph except plain values, cached in a folder.

    Args:
        graph: The caller's graph.
        encoder: The encoder of the index; None for no vectors.
        folder: The folder of the cache; file names contain a hash of the inputs.
    """

    def __init__(
        self, graph: CorpusGraph, encoder: Encoder | None, folder: Path | None = None
    ) -> None:
        self._lexicon, self._encoder = graph.derive(Lexicon), encoder
        self._nodes = np.flatnonzero(~graph.plain_values)
        self._vectors: NDArray[np.float32] | None = None
        if encoder is not None and len(self._nodes):
            texts = [profile(int(node), graph) for node in self._nodes]
            if folder is not None:
                folder.mkdir(parents=True, exist_ok=True)
            blocks = encode_texts(texts, len(texts), encoder, work=folder)
            self._vectors = np.concatenate(list(blocks))

    def links(self, text: str, count: int, least: float) -> list[Link]:
        """Return links to the entities whose profiles are nearest to a text."""
        if self._encoder is None or self._vectors is None:
            return []
        every = self._vectors @ self._encoder.encode_query(text)
        nearest = ((int(self._nodes[row]), float(every[row])) for row in top(every, count).tolist())
        shown = self._lexicon.shown
        return [Link.of(text, n, shown[n], "vector", w) for n, w in nearest if w >= least]


def profile(node: int, graph: CorpusGraph) -> str:
    """Describe an entity: name, type, attributes and a few of its relations.

    >>> from ga_dspy.graph import GraphUpdate, Relation
    >>> stated = GraphUpdate(relations=(Relation(head="Oslo", relation="in", tail="Norway"),))
    >>> profile(0, CorpusGraph.of({"p": stated}))
    'Oslo. Oslo in Norway'
    """
    lexicon, wiring = graph.derive(Lexicon), graph.derive(Wiring)
    _, edges = wiring.touching(np.array([node]))
    common = wiring.often[wiring.wording_of[edges]]
    chosen = edges[np.lexsort((edges, common))][:PROFILE_EDGES].tolist()
    attributes = graph.tables.nodes["attributes"][node].as_py()
    described = ", ".join(text for text in (lexicon.types[node], *attributes) if text)
    facts = (
        f"{lexicon.shown[wiring.heads[j]]} {wiring.wordings[wiring.wording_of[j]]} "
        f"{lexicon.shown[wiring.tails[j]]}"
        for j in chosen
    )
    return ". ".join(text for text in (lexicon.shown[node], described, *facts) if text)


# --- How well a question fits the facts of a graph.

_KINDS: Final = (
    ("person", re.compile(r"\b(?:who|whom|whose)\b")),
    ("place", re.compile(r"\bwhere\b")),
    ("number", re.compile(r"\bhow (?:many|much|long|tall|high|old|far|large|big|deep|wide)\b")),
    ("date", re.compile(r"\bwhen\b|\b(?:what|which) (?:year|date|day|month|decade|century)\b")),
)
_NOUN: Final = re.compile(r"\b(?:what|which|name)\s+(?:(?:is|was|are|were|the)\s+)*(.+)")
_YEAR: Final = re.compile(r"\b\d{4}\b")
_NUMBER: Final = re.compile(r"\d+")


class Query:
    """A question, and how well its words fit a graph.

    Args:
        question: The question.
        lexicon: The words of the graph.
        named: Linked mentions; their words are not counted.

    Attributes:
        question: As given.
        lexicon: As given.
        answer_kind: "person", "place", "date", "number", a kind of `ga_dspy.graph.traits`,
            or "".
        relations: By edge: the weight of the question's words in its wording. All weights sum
            to 1.
        names: By node: the weight of the question's words in its names.
        fit: By edge, from 0 to 1: the fit of the relation and of the better end, including type
            and attributes.
    """

    def __init__(self, question: str, lexicon: Lexicon, named: Sequence[str] = ()) -> None:
        self.question, self.lexicon = question, lexicon
        done = {word for mention in named for word in keys(mention)}
        rarity = {word: lexicon.rarity(word) for word in keys(question) if word not in done}
        total, text = sum(rarity.values()) or 1.0, fold(question)
        weights = {word: value / total for word, value in rarity.items()}
        kinds = (kind for kind, mark in _KINDS if mark.search(text))
        self.answer_kind = next(kinds, "") or kind_of(_noun(text))
        wiring = lexicon.wiring
        self.relations = lexicon.relations.weigh(weights)[wiring.wording_of]
        self.names = lexicon.names.weigh(weights)
        nodes = np.maximum(self.names, lexicon.described.weigh(weights))
        ends = np.maximum(nodes[wiring.heads], nodes[wiring.tails])
        self.fit = np.minimum(self.relations + ends / 2, 1)

    def could_be(self, node: int) -> bool:
        """Return whether an entity could be an answer of the kind that is asked for."""
        if self.answer_kind in ("date", "number"):
            mark = _YEAR if self.answer_kind == "date" else _NUMBER
            return bool(mark.search(self.lexicon.shown[node]))
        kind = kind_of(self.lexicon.types[node])
        if self.answer_kind == "place":
            return is_placed_kind(kind)
        return bool(self.answer_kind) and kind == self.answer_kind


def _noun(text: str) -> str:
    """Return up to four words behind "which" or "what", up to the first stopword."""
    match = _NOUN.search(text)
    words = fold_words(match[1]).split()[:4] if match else []
    return " ".join(takewhile(lambda word: word not in STOPWORDS, words))


# --- Ranking the facts of a neighbourhood, by words and then by meaning.

_RELATION, _NAMES, _ON_PATH, _ANSWER, _HOP = 2.0, 0.8, 0.8, 0.5, -0.1
"""The weights of shared words in the relation and in the ends, of a short path, of a possible
answer, and of each hop.

Set manually. Of 521 development questions of HotpotQA, MuSiQue and 2WikiMultiHopQA (graphs read by
the embedded LM) 61 have their answer in one of the first 12 facts, as many as with ten features
more; 51 by cosine alone, 57 without it.
"""

_POOL: Final = 60
"""How many facts are rescored by their cosine."""


class RankedFact(NamedTuple):
    """An edge, its score (comparable within one search), and its text."""

    edge: int
    score: float
    text: str


def fact_text(relation: Relation) -> str:
    """Return a relation as text for an encoder.

    >>> fact_text(Relation(head="Oslo", relation="capital of", tail="Norway", time="since 1814"))
    'Oslo capital of Norway (since 1814)'
    """
    when = f" ({relation.time})" if relation.time else ""
    return f"{relation.head} {relation.relation} {relation.tail}{when}"


def rank_facts(
    query: Query,
    graph: CorpusGraph,
    near: Neighbourhood,
    paths: Sequence[GraphPath],
    *,
    encoder: Encoder | None,
    reranker: str | Reranker | None = None,
    keep: int,
) -> tuple[RankedFact, ...]:
    """Return the facts of a neighbourhood and of paths that fit a question best.

    Args:
        query: The question.
        graph: The caller's graph.
        near: The neighbourhood of the linked entities.
        paths: Paths between the linked entities.
        encoder: Rescores the best facts by meaning; the score is the mean of both.
        reranker: Rescores them instead of the encoder: a function or the name of a cross-encoder.
        keep: The maximum number of facts.
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
    scores = (scores - scores.min()) * wiring.weights[edges]
    first = np.lexsort((edges, -scores))[: max(_POOL, keep)]
    edges, scores = edges[first], _scaled(scores[first])
    texts = [fact_text(graph.edge(j)) for j in edges.tolist()]
    if reranker is not None:
        ranked = dict(rerank(reranker, query.question, texts))
        scores = np.array([ranked[i] for i in range(len(texts))])
    elif encoder is not None:
        scores += _scaled(encoder.encode(texts) @ encoder.encode_query(query.question))
        scores /= 2
    order = np.lexsort((edges, -scores))[:keep].tolist()
    return tuple(RankedFact(int(edges[i]), round(float(scores[i]), 6), texts[i]) for i in order)


def _scaled(scores: NDArray[np.floating]) -> NDArray[np.float64]:
    """Scale scores from 0 for the lowest to 1 for the highest; equal scores become 1."""
    low, high = float(scores.min()), float(scores.max())
    if high == low:
        return np.ones(len(scores))
    return np.asarray((scores - low) / (high - low), dtype=np.float64)
