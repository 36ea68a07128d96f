"""Entity linking and fact ranking: the entities that a question names, and the facts it asks for.

Links come from names, aliases and similar spellings, or from the vectors of entity profiles. Facts
are ranked by shared words, then by an encoder or a reranker.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import takewhile
from operator import attrgetter
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
from ga_dspy.graphrag.walk import Adjacency, GraphPath, Neighbourhood
from ga_dspy.retrieval.encoders import Encoder, Reranker, encode_texts, rerank
from ga_dspy.retrieval.engine import top
from ga_dspy.text import ARTICLES, CONNECTORS, STOPWORDS, fold, fold_words, longest_matches

# --- Word index of a graph: the names, descriptions and relations that contain a word.

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
"""The base form of irregular forms, which a stemmer does not unify."""


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
    """A word index of the texts of a graph; keeps no reference to the graph.

    Making one takes about a second for 50,000 nodes.

    Attributes:
        wiring: The edges at each node.
        shown: The shown name of each node.
        types: The type of each node.
        names: The words of names and aliases, by node.
        described: The words of types and attributes, by node.
        relations: The words of relations, by row of `Adjacency.wordings`.
        surnames: The node of each normalised surname that only one person has.
    """

    def __init__(self, graph: CorpusGraph) -> None:
        nodes, self.wiring = graph.tables.nodes, graph.derive(Adjacency)
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
        texts = (self.names, self.described, self.relations)
        containing = sum(len(postings.rows(word)) for postings in texts)
        return math.log1p(sum(postings.size for postings in texts) / (1 + containing))


def _joined(first: str, rest: Sequence[str]) -> str:
    return " ".join((first, *rest))


# --- Entity linking by name, alias and spelling.

How = Literal["exact", "alias", "spelling", "vector"]

SPELLING: Final = 88.0
"""The minimum similarity of two spellings, of 100; numbers in them must be equal."""

_MAX_ALIKE: Final = 3
_SURENESS: Final[Mapping[How, float]] = {"exact": 1.0, "alias": 0.9, "spelling": 0.7, "vector": 0.6}
_LOWER_CASE, _VALUE = 0.6, 0.5
_TOKEN: Final = re.compile(r"[^\s/–—(),;:!?\"“”«»\[\]]+")
_CONNECTORS: Final = CONNECTORS - {"at", "on"}


class Link(NamedTuple):
    """A mention in a question, and an entity that it may mean; namesakes give several links.

    Attributes:
        mention: The mention, as the question spells it.
        node: The entity, as a node of the caller's own graph.
        name: The shown name of the entity.
        how: How the link was found: "exact" by name, "alias" by another name, "spelling" by a
            similar name, "vector" by its profile.
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
    """A word of a question with its span; `proper` if it may be a name by itself."""

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
        """Return links to the entities that a question names, most certain first.

        Only the longest of overlapping names is linked. A single word is linked if it has a capital
        or a digit, or if the question has no capitals at all. A surname alone is linked if only one
        person has it.
        """
        tokens = _tokens(question)
        spans = list(self._spans(question, tokens))
        covered = {i for span in spans for i in range(*span)}
        links: list[Link] = []
        for span in spans:
            is_proper = any(token.proper for token in tokens[slice(*span)])
            weight = 1.0 if is_proper else _LOWER_CASE
            links += self._by_name(_text(question, tokens, span), question, weight)
        for span in _capitalised_runs(tokens, covered):
            links += self._by_spelling(_text(question, tokens, span), question)
        return best_links(links)

    def _spans(self, question: str, tokens: Sequence[Token]) -> Iterator[tuple[int, int]]:
        """Yield the longest names in a question as token ranges, left to right."""

        def is_name(first: int, last: int) -> bool:
            text, words = _text(question, tokens, (first, last)), tokens[first:last]
            name, names = normalise(text), self.graph.names
            is_known = name in names or identity(text) in names
            if len(words) == 1:
                # A surname is linked only if no other name is before it.
                is_first = first == 0 or not tokens[first - 1].proper
                is_surname = is_first and name in self.lexicon.surnames
                return words[0].proper and (is_known or is_surname)
            if words[0].plain in ARTICLES:
                # "The Who" is a name; "the Ohio" is looked up without its article.
                return len(words) == 2 and text.istitle() and name in STOPWORDS and name in names
            return is_known and any(word.plain not in STOPWORDS for word in words)

        return longest_matches(range(len(tokens)), len(tokens), is_name)

    def _by_name(self, mention: str, question: str, weight: float) -> Iterator[Link]:
        """Yield links to the entities with a name, weighted by the rest of the question."""
        plain, values = normalise(mention), self.lexicon.wiring.values
        nodes = self.graph.find(mention)
        if not nodes and plain in self.lexicon.surnames:
            nodes = (self.lexicon.surnames[plain],)
        nodes = tuple(node for node in nodes if not values[node]) or nodes
        for node, fit in self._weigh_namesakes(nodes, mention, question):
            shown = self.lexicon.shown[node]
            is_exact = plain in (normalise(shown), normalise(split_qualifier(shown).base))
            total = (_VALUE if values[node] else 1.0) * (weight * fit)
            yield Link.of(mention, node, shown, "exact" if is_exact else "alias", total)

    def _by_spelling(self, mention: str, question: str) -> Iterator[Link]:
        """Yield links to the entities with the most similar name."""
        plain = normalise(mention)
        if len(plain) < 5:
            return
        similar = process.extract(
            plain, [*self.graph.names],
            scorer=fuzz.ratio, score_cutoff=SPELLING, limit=_MAX_ALIKE,
        )  # fmt: skip
        names = [name for name, _, _ in similar if _numbers(name) == _numbers(plain)]
        nodes = self.graph.names[names[0]] if names else ()
        for node, fit in self._weigh_namesakes(nodes, mention, question):
            yield Link.of(mention, node, self.lexicon.shown[node], "spelling", fit)

    def _weigh_namesakes(
        self, nodes: Sequence[int], mention: str, question: str
    ) -> list[tuple[int, float]]:
        """Return each node with a weight from 0.5 to 1 by how well it fits the question."""
        if len(nodes) < 2:
            return [(node, 1.0) for node in nodes]
        mentioned = set(keys(mention))
        asked = [word for word in dict.fromkeys(keys(question)) if word not in mentioned]
        fits = [(node, self._fit(node, asked)) for node in nodes]
        best = max(fit for _, fit in fits)
        return [(node, 0.5 + 0.5 * fit / best if best else 1.0) for node, fit in fits]

    def _fit(self, node: int, asked: Iterable[str]) -> float:
        """Return the total rarity of the words that a node's description or neighbours contain."""
        lexicon, itself = self.lexicon, np.array([node])
        nodes, edges = lexicon.wiring.touching(itself)
        surroundings = (
            (lexicon.described, itself),
            (lexicon.relations, lexicon.wiring.wording_of[edges]),
            (lexicon.names, lexicon.wiring.across(nodes, edges)),
        )

        def is_near(word: str) -> bool:
            return any(np.isin(rows, texts.rows(word)).any() for texts, rows in surroundings)

        return sum(map(lexicon.rarity, filter(is_near, asked)))


def best_links(links: Iterable[Link]) -> tuple[Link, ...]:
    """Return the best link of each entity, best first; ties keep their order."""
    by_node = grouped((link.node, link) for link in links)
    best = [max(of_node, key=attrgetter("score")) for of_node in by_node.values()]
    return tuple(sorted(best, key=attrgetter("score"), reverse=True))


def _tokens(question: str) -> list[Token]:
    matches = list(_TOKEN.finditer(question))
    plain = [normalise(match.group()) for match in matches]
    capital = [_has_capital(match.group()) for match in matches]
    # Queries are often typed without capitals, except for the first word.
    relaxed = not any(capital[1:]) and not (any(capital) and plain[0] not in STOPWORDS)
    tokens = []
    for match, word, is_capital in zip(matches, plain, capital, strict=True):
        may_be_name = is_capital or (relaxed and len(word) > 3)
        tokens.append(Token(*match.span(), word, may_be_name and word not in STOPWORDS))
    return tokens


def _has_capital(word: str) -> bool:
    return any(c.isupper() or c.isdigit() for c in word)


def _capitalised_runs(tokens: Sequence[Token], covered: set[int]) -> Iterator[tuple[int, int]]:
    """Yield the runs of capitalised words outside linked names, with connectors inside them."""
    shape = ""
    for i, token in enumerate(tokens):
        if token.proper and i not in covered:
            shape += "C"
        else:
            shape += "c" if token.plain in _CONNECTORS else "."
    for run in re.finditer("C(?:C|c(?=C))*", shape):
        if not all(token.plain.isdigit() for token in tokens[slice(*run.span())]):
            yield run.span()


def _text(question: str, tokens: Sequence[Token], span: tuple[int, int]) -> str:
    text = question[tokens[span[0]].start : tokens[span[1] - 1].end].rstrip(".")
    return re.sub(r"['’]s$", "", text)


def _numbers(plain: str) -> list[str]:
    return sorted(word for word in words_in_digits(plain) if any(map(str.isdigit, word)))


# --- Entity linking by vector, for texts without a known name.

PROFILE_EDGES: Final = 4
"""The number of relations in a profile, with the rarest wordings first."""


class Profiles:
    """The profile vectors of all entities of a graph, except plain values, cached in a folder.

    Args:
        graph: The caller's graph.
        encoder: The encoder of the index; None for no vectors.
        folder: The cache folder, in which file names contain a hash of the texts.
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
        similarities = self._vectors @ self._encoder.encode_query(text)
        links = []
        for row in top(similarities, count).tolist():
            node, similarity = int(self._nodes[row]), float(similarities[row])
            if similarity >= least:
                name = self._lexicon.shown[node]
                links.append(Link.of(text, node, name, "vector", similarity))
        return links


def profile(node: int, graph: CorpusGraph) -> str:
    """Return a text that describes an entity: name, type, attributes and a few relations.

    >>> from ga_dspy.graph import GraphUpdate, Relation
    >>> stated = GraphUpdate(relations=(Relation(head="Oslo", relation="in", tail="Norway"),))
    >>> profile(0, CorpusGraph.of({"p": stated}))
    'Oslo. Oslo in Norway'
    """
    lexicon, wiring = graph.derive(Lexicon), graph.derive(Adjacency)
    _, edges = wiring.touching(np.array([node]))
    common = wiring.often[wiring.wording_of[edges]]
    chosen = edges[np.lexsort((edges, common))][:PROFILE_EDGES].tolist()
    attributes = graph.tables.nodes["attributes"][node].as_py()
    described = ", ".join(filter(None, (lexicon.types[node], *attributes)))
    facts = (
        f"{lexicon.shown[wiring.heads[j]]} {wiring.wordings[wiring.wording_of[j]]} "
        f"{lexicon.shown[wiring.tails[j]]}"
        for j in chosen
    )
    return ". ".join(filter(None, (lexicon.shown[node], described, *facts)))


# --- The words of a question, weighted by their rarity in a graph.

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
    """A question, and how well the nodes and edges of a graph fit its words.

    The weights of the question's words sum to 1; a rare word in the graph has a higher weight.

    Args:
        question: The question.
        lexicon: The word index of the graph.
        named: Linked mentions; their words have no weight.

    Attributes:
        question: As given.
        lexicon: As given.
        answer_kind: The kind of answer that is asked for: "person", "place", "date", "number",
            another kind of `ga_dspy.graph.traits`, or "" if unknown.
        relations: The weight of the question's words in the wording of each edge.
        names: The weight of the question's words in the names of each node.
        fit: The fit of each edge, from 0 to 1: that of its wording, and half that of its better
            end, including type and attributes.
    """

    def __init__(self, question: str, lexicon: Lexicon, named: Sequence[str] = ()) -> None:
        self.question, self.lexicon = question, lexicon
        linked = {word for mention in named for word in keys(mention)}
        rarity = {word: lexicon.rarity(word) for word in keys(question) if word not in linked}
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
        """Return whether an entity could be an answer of the kind that the question asks for."""
        if self.answer_kind in ("date", "number"):
            mark = _YEAR if self.answer_kind == "date" else _NUMBER
            return bool(mark.search(self.lexicon.shown[node]))
        kind = kind_of(self.lexicon.types[node])
        if self.answer_kind == "place":
            return is_placed_kind(kind)
        return bool(self.answer_kind) and kind == self.answer_kind


def _noun(text: str) -> str:
    """Return up to four words after "which" or "what", up to the first stopword."""
    match = _NOUN.search(text)
    words = fold_words(match[1]).split()[:4] if match else []
    return " ".join(takewhile(lambda word: word not in STOPWORDS, words))


# --- Rank the facts of a neighbourhood, by words and then by meaning.

# The weights of shared words in the relation and in the ends, of a short path, of a possible
# answer, and of each hop. Set manually. Of 521 development questions of HotpotQA, MuSiQue and
# 2WikiMultiHopQA (graphs extracted by the embedded LM), 61 have their answer in one of the first 12
# facts: as many as with ten more features, compared with 51 by cosine alone and 57 without it.
_RELATION, _NAMES, _ON_PATH, _ANSWER, _HOP = 2.0, 0.8, 0.8, 0.5, -0.1

_POOL: Final = 60
"""The number of facts that are rescored by their cosine."""


class RankedFact(NamedTuple):
    """An edge, its score (comparable only within one search) and its text."""

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
        encoder: Rescores the best facts by meaning; the final score is the mean of both scores.
        reranker: Rescores them instead of the encoder: a function or the name of a cross-encoder.
        keep: The maximum number of facts.
    """
    on_path: dict[int, float] = {}
    for path in sorted(paths, key=lambda path: -len(path.edges)):
        on_path |= dict.fromkeys(path.edges, 1 / len(path.edges))
    edges = np.union1d(near.edges, np.array([*on_path], dtype=np.int64))
    if not len(edges):
        return ()
    wiring = query.lexicon.wiring
    heads, tails = wiring.heads[edges], wiring.tails[edges]
    hops_of = np.full(len(wiring.degrees), max(near.hops.values(), default=0) + 1)
    hops_of[list(near.hops)] = list(near.hops.values())
    head_hops, tail_hops = hops_of[heads], hops_of[tails]
    farther = np.where(head_hops > tail_hops, heads, tails).tolist()
    scores = _RELATION * query.relations[edges].astype(np.float64)
    scores += _NAMES * np.maximum(query.names[heads], query.names[tails])
    scores += _ON_PATH * np.array([on_path.get(edge, 0.0) for edge in edges.tolist()])
    scores += _ANSWER * np.array([query.could_be(node) for node in farther])
    scores += _HOP * np.minimum(head_hops, tail_hops)
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
