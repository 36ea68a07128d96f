"""Paths: the nodes that a text names, evidence chains, distances, pruning to a token budget."""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from ga_dspy import lexicon
from ga_dspy.graph.identity import identity, plain_relation
from ga_dspy.graph.knowledge_graph import KnowledgeGraph
from ga_dspy.graph.lines import linearise
from ga_dspy.graph.records import Entity, Relation, grouped, united
from ga_dspy.graph.traits import WORKS, kind_of
from ga_dspy.terms import CONNECTORS, STOPWORDS, Term, cached_short, fold_words, terms, words
from ga_dspy.text import mentions, normalise, places, stands_in

if TYPE_CHECKING:
    import networkx as nx


# --- The nodes that a text names

_OPENING_WORDS: Final = "who what when where which why how whose whom is are was".split()


def named_in(graph: KnowledgeGraph, text: str) -> tuple[str, ...]:
    """Return the nodes of the graph that a text names, in the order of the text.

    Names and aliases match in any spelling. The longest of overlapping names counts, and all
    namesakes are returned. A name of one word must have a capital or a digit, unless the text is
    in lower case. A surname, alone or with the first name, matches a person if it is unique.
    """
    words = normalise(text).split()
    capitals = _capitals(text)
    spans = defaultdict[tuple[int, int], list[str]](list)
    for name, nodes in graph.nodes_by_name.items():
        parts = name.split()
        for start in places(parts, words) if len(parts) > 1 or name in capitals else ():
            spans[start, start + len(parts)] += nodes
    chosen: list[tuple[int, int]] = []
    for start, end in sorted(spans, key=lambda span: (span[0] - span[1], span)):
        if all(end <= first or last <= start for first, last in chosen):
            chosen.append((start, end))
    return tuple(dict.fromkeys(node for span in sorted(chosen) for node in spans[span]))


def _capitals(text: str) -> set[str]:
    """Return the words that may be names by themselves; in lower-case text, the long words."""
    words = text.split()
    if text == text.lower():
        return {normalise(word) for word in words if len(word) > 3 or word.isdigit()}
    opening = 1 if words and words[0].casefold() in _OPENING_WORDS else 0
    return {normalise(word) for word in words[opening:] if word != word.lower() or word.isdigit()}


def named_by(graph: KnowledgeGraph, name: str) -> frozenset[str]:
    """Return the nodes with a name, in its normal form, else in any spelling."""
    spelled = graph.nodes_by_name.get(normalise(name))
    same = (node for node, names in graph.names.items() if identity(name) in map(identity, names))
    return frozenset(spelled or same)


# --- Meanings: synonyms, and the forms of one word, have one meaning

NO_WORDS: Final = frozenset[str]()
_Asked = Sequence[frozenset[str]]
"""The meanings of each word of a question."""

_MEASURED: Final = frozenset(("date", "number"))
_ENDING: Final = re.compile(r"(?:ing|ions?|ers?|ors?|ied|ies|ed|es|s|e|y)\Z")


def _stem(word: str) -> str:
    """Return the stem that the forms of a word share: "directed", "director" and "direction"."""
    short = _ENDING.sub("", word).removesuffix("y")
    return re.sub(r"(.)\1\Z", r"\1", short)[:5] if len(short) > 2 else word


@cache
def word_table(name: str) -> Mapping[str, frozenset[str]]:
    """Return a table of `paths.json`, as each word with the entries that contain it.

    The entries of `meanings` are synonyms. `cities` lists cities by country, so "Paris, Texas" is
    not Paris.
    """
    table = json.loads(Path(__file__).with_name("paths.json").read_text("utf-8"))[name]
    pairs = ((word, [entry]) for entry, words in table.items() for word in words.split())
    return {word: frozenset(entries) for word, entries in united(pairs).items()}


def entries_in(table: str, text: str) -> frozenset[str]:
    """Return the entries of a table of `paths.json` that share a word with a text."""
    known = word_table(table)
    return NO_WORDS.union(*(known.get(word, ()) for word in fold_words(text).split()))


def meanings_of(words: Iterable[str]) -> _Asked:
    """Return the meanings of each content word."""
    known = word_table("meanings")
    content = (word for word in words if word in known or word not in STOPWORDS)
    return tuple(known.get(word) or frozenset({_stem(word)}) for word in content)


@cached_short(maxsize=4096, max_length=200)
def meanings_in(text: str) -> frozenset[str]:
    """Return the meanings of the content words of a text."""
    return NO_WORDS.union(*meanings_of(normalise(text).split()))


def _asked(question: str, names: Iterable[Iterable[str]]) -> _Asked:
    """Return the meanings of each content word of a question, without its names."""
    lifetime = r"\blive[sd]? (?:the )?long(?:er|est)\b"
    words = Counter(re.sub(lifetime, "birth death", normalise(question)).split())
    for forms in names:
        words -= Counter({word for form in forms for word in normalise(form).split()})
    return meanings_of(words)


# --- Paths through the graph, with their costs and the question's words that they contain

MAX_HOPS: Final = 4
"""A longer chain between a question and an answer is considered a coincidence."""

_PATHS_PER_NODE: Final = 2
"""How many of the cheapest paths of one length to a node are extended."""

_CLASS: Final = re.compile(
    r"an?|described as|(?:an? )?(?:type|kind|class|instance|category|example|sort)(?: of)?"
)
EVENTS: Final = frozenset(("birth", "death", "founding", "release"))
"""A question about one of these asks for no other date."""

_COMMON: Final = frozenset("country work study place award genre gende langu".split())
"""Meanings of properties that unrelated entities share."""


class _Edge(NamedTuple):
    """A relation, traversed from one of its ends to the other."""

    relation: Relation
    end: str
    forward: bool
    meanings: frozenset[str]
    shared: frozenset[tuple[int, str]]
    """The question's words that the relation contains, as (position, meaning)."""
    asked: frozenset[int]
    is_class: bool
    """Whether the relation states the class of its head."""


_Edges = Mapping[str, Sequence[_Edge]]
_Nodes = Sequence[str]
_Chain = tuple[Relation, ...]


def _edges(relations: Iterable[Relation], asked: _Asked) -> _Edges:
    edges: dict[str, list[_Edge]] = defaultdict(list)
    events = EVENTS.intersection(NO_WORDS.union(*asked))
    for relation in relations:
        states_class = is_class(relation)
        meanings = meanings_in(relation.tail if states_class else relation.relation)
        is_dated = states_class and holds_date(relation.tail)
        if is_dated and kind_of(relation.tail) in WORKS:
            meanings |= {"release"}
        if not events or events & meanings:
            meanings |= {"date" if is_dated else kind_of_value(relation.tail)}
        if states_class and not lexicon.ADJECTIVES.isdisjoint(normalise(relation.tail).split()):
            meanings |= {"country"}
        shared = set[tuple[int, str]]()
        for i, word in enumerate(asked):
            if meanings & word & _MEASURED or not word & _MEASURED:
                shared.update((i, meaning) for meaning in word & meanings)
        details = (meanings, frozenset(shared), frozenset(i for i, _ in shared), states_class)
        edges[relation.head].append(_Edge(relation, relation.tail, True, *details))
        edges[relation.tail].append(_Edge(relation, relation.head, False, *details))
    return edges


def is_class(relation: Relation) -> bool:
    """Return whether a relation states the class of its head."""
    plain = plain_relation(relation.relation)
    return _CLASS.fullmatch(plain) is not None or (plain == "is" and not _is_name(relation.tail))


class _Path(NamedTuple):
    """A path from a node, without repeated nodes."""

    cost: float
    nodes: tuple[str, ...]
    edges: tuple[_Edge, ...]
    asked: frozenset[int]

    @property
    def relations(self) -> _Chain:
        return tuple(edge.relation for edge in self.edges)

    @property
    def shared(self) -> int:
        return sum(len(edge.shared) for edge in self.edges)

    def onward(self, edges: _Edges) -> Iterator[_Path]:
        """Yield the paths that are one relation longer.

        A common class, year or country does not connect two nodes, unless the question asks for it.
        """
        last = self.edges[-1] if self.edges else None
        if last and kind_of_value(last.end):
            return
        for edge in edges.get(self.nodes[-1], ()):
            meets = last is not None and last.forward and not edge.forward
            by_chance = meets and not edge.asked and not edge.meanings.isdisjoint(_COMMON)
            from_class = edge.is_class and not edge.forward
            if edge.end not in self.nodes and not by_chance and not from_class:
                yield self._then(edge, meets)

    def _then(self, edge: _Edge, meets: bool) -> _Path:
        """Add a hop: cheap if it adds a word of the question, expensive if not asked for."""
        adds = not edge.asked <= self.asked
        cost = -1 - len(edge.shared) / 8 if adds else 1.0
        if not edge.asked:
            cost = 3.0 if edge.is_class else 2.0
        cost += 2 if meets and not adds else 0
        nodes, edges = (*self.nodes, edge.end), (*self.edges, edge)
        return _Path(self.cost + cost, nodes, edges, self.asked | edge.asked)


_cost = attrgetter("cost")


def _cheapest_paths(edges: _Edges, source: str) -> dict[str, list[_Path]]:
    """Return the cheapest paths to each reachable node, up to `MAX_HOPS` long."""
    found: dict[str, list[_Path]] = defaultdict(list)
    front = [_Path(0.0, (source,), (), frozenset())]
    for _ in range(MAX_HOPS):
        longer = chain.from_iterable(path.onward(edges) for path in front)
        by_node, front = grouped((path.nodes[-1], path) for path in longer), []
        for node, paths in by_node.items():
            best = sorted(paths, key=_cost)[:_PATHS_PER_NODE]
            found[node] += best
            front += best
    return found


# --- The nodes that are the answer: by name, or as a value that states it

_JOINED_BEFORE: Final = re.compile(r"\b[A-Z0-9]\S*(?: (?:of|de|la|le|von|van|du))*[ ,.'’&]*\Z")
_REGION: Final = re.compile(r", [A-Z]\w+(?: [A-Z]\w+)*")


def _is_date(term: Term) -> bool:
    """Return whether a term is a date: a year at least, or a day of a month."""
    if term.is_word:
        return False
    return term.keys[0][0] not in ("n", "o") or re.fullmatch(r"\d{4}", term.text) is not None


@cached_short(maxsize=4096, max_length=200)
def holds_date(text: str) -> bool:
    """Return whether a text contains a date: a year at least, or a day of a month."""
    return any(map(_is_date, terms(text)))


_ABOUT: Final = frozenset("c ca circa about around early mid late".split())
"""Words that a date may contain."""


@cached_short(maxsize=4096, max_length=200)
def kind_of_value(text: str) -> str:
    """Return "date" if a text is a date, "number" if it begins with a number, else ""."""
    content = [term for term in terms(text) if term.keys[0] not in lexicon.FUNCTION_WORDS | _ABOUT]
    if content and all(map(_is_date, content)):
        return "date"
    return "number" if content and not content[0].is_word else ""


def says(value: str, answer: str) -> bool:
    """Return whether a value or attribute is the answer, or contains it as a separate part.

    >>> says("10 June 1980", "1980"), says("10 June 1980", "10")
    (True, False)
    >>> says("from Barbados", "Barbados"), says("sister of May Ray", "May")
    (True, False)
    """
    if identity(value) == identity(answer):
        return True
    found = mentions(answer, value)
    if kind_of_value(value) == "date":
        return bool(found) and kind_of_value(answer) == "date"
    if _is_name(value):
        whole = any(value[: each.start] + value[each.end :] == "" for each in found)
        return whole or _is_before_comma(answer, value)
    return any(_stands_alone(value, each.start, each.end) for each in found)


def _is_name(text: str) -> bool:
    return all(word.proper or word.text in CONNECTORS for word in words(text))


def _is_before_comma(answer: str, name: str) -> bool:
    """Return whether a name is the answer with its region: "Houston, Texas" for Houston."""
    short, _, region = name.partition(", ")
    if not region or identity(short) != identity(answer):
        return False
    countries = word_table("cities").get(normalise(short).split()[-1])
    return countries is None or not countries.isdisjoint(map(identity, region.split(", ")))


def _stands_alone(text: str, start: int, end: int) -> bool:
    """Return whether characters `start` to `end` are not part of a longer name."""
    is_joined = _JOINED_BEFORE.search(text, 0, start) is not None
    if not text[start].isupper():
        return text[start].islower() or not is_joined
    if region := _REGION.match(text, end):
        return _is_before_comma(text[start:end], text[start : region.end()])
    return not (is_joined or re.match(r"[ .'’&,]*[A-Z0-9]", text[end:]))


# --- The chain of evidence

_MAX_ALIKE: Final = 3
"""How many facts with the same wording count per node, such as the directors of a film."""

JUDGEMENT: Final = re.compile(r"(?:yes|no|true|false|both|neither)\b")
LIST: Final = re.compile(r"\s*[,;]\s*(?:and\s+)?|\s+(?:and|&)\s+")
"""Separates the parts of an answer that is a list."""


def evidence_chain(graph: KnowledgeGraph, question: str, answer: str) -> tuple[Relation, ...]:
    """Return the relations that lead from the nodes in the question to the answer, nearest first.

    The answer is a node of that name, a value or attribute that states it (an attribute counts as
    a relation "described as"), or a list of these. A node whose name only contains the answer's
    words does not count. The chain has one path from each node that the question names, up to
    `MAX_HOPS` long: the one with the most of the question's words in the fewest relations.

    If the answer is yes, no or a node that the question names, the question is a comparison. Its
    evidence is then the facts in the question's words that several of the compared nodes have, or
    that connect them.

    Returns:
        Relations of the graph, each once; empty if the graph has no such chain.
    """
    sources = named_in(graph, question)
    if not sources or not normalise(answer):
        return ()
    names = graph.names
    asked = _asked(question, (names[source] for source in sources))
    named = named_by(graph, answer)
    if named & set(sources) or (not named and JUDGEMENT.match(normalise(answer))):
        plain = normalise(question)
        texts = {each.tail for each in descriptions(graph)}
        values = sorted(text for text in texts if stands_in(normalise(text), plain))
        return _comparison(graph, sources if len(sources) > 1 else (*sources, *values), asked)
    if found := _chain_to(graph, sources, asked, answer):
        return found
    chains = [_chain_to(graph, sources, asked, part) for part in LIST.split(answer)]
    return tuple(dict.fromkeys(chain(*chains))) if all(chains) else ()


def _chain_to(graph: KnowledgeGraph, sources: _Nodes, asked: _Asked, answer: str) -> _Chain:
    """Return the cheapest paths to the nodes named by the answer, else to values that state it."""
    if found := _cheapest_chain(_edges(graph.relations, asked), sources, named_by(graph, answer)):
        return found
    described = [each for each in descriptions(graph) if says(each.tail, answer)]
    edges = _edges((*graph.relations, *described), asked)
    kinds = {entity.name: kind_of(entity.type) for entity in graph.entities}
    plain = {node for node in edges if node not in kinds or kind_of_value(node)}
    stating = {node for node in plain if says(node, answer)}
    stating |= {node for node in edges.keys() - plain if _is_before_comma(answer, node)}
    works = {node for node, kind in kinds.items() if kind in WORKS}
    return _cheapest_chain(edges, sources, stating - works)


def _cheapest_chain(edges: _Edges, sources: _Nodes, targets: Collection[str]) -> _Chain:
    """Return the cheapest path from each source to a target; ties go to the first by name."""
    best = list[Relation]()
    for source in sources if targets else ():
        known = _cheapest_paths(edges, source)
        if paths := [path for node in sorted(targets) for path in known.get(node, ())]:
            best += min(paths, key=_cost).relations
    return tuple(dict.fromkeys(best))


def descriptions(graph: KnowledgeGraph) -> Iterator[Relation]:
    """Yield types and attributes as relations."""
    for one in graph.entities:
        stated = {"head": one.name, "relation": "described as", "evidence": one.evidence}
        for text in filter(None, (one.type, *one.attributes)):
            yield Relation(**stated, tail=text)


def _comparison(graph: KnowledgeGraph, sources: _Nodes, asked: _Asked) -> _Chain:
    """Return the deciding facts; the class of a node decides only if nothing else is asked.

    A comparison by date or number needs the value of each node.
    """
    relations = (*graph.relations, *descriptions(graph))
    types = (meanings_in(each.type) for each in graph.entities if each.name in sources)
    facts = (each for each in graph.relations if each.head in sources and is_class(each))
    sorts = NO_WORDS.union(*types, *(meanings_in(fact.tail) for fact in facts))
    telling = [word for word in asked if not word & sorts] or list(asked)
    chosen = _deciding(_edges(relations, telling), sources, telling)
    covered = frozenset[int | str]().union(*(facts.has for facts in chosen))
    if any(i not in covered for i, word in enumerate(telling) if word & _MEASURED):
        return ()
    return tuple(dict.fromkeys(each for facts in chosen for each in facts.relations))


class _Facts(NamedTuple):
    """Facts that may decide a comparison, with the question's words and nodes that they cover."""

    has: frozenset[int | str]
    rank: tuple[int, ...]
    relations: _Chain


def _deciding(edges: _Edges, sources: _Nodes, asked: _Asked) -> list[_Facts]:
    """Choose facts greedily until they cover most of the question's words."""
    known = list(_alike(edges, sources, asked))
    chosen: list[_Facts] = []
    covered: set[int | str] = set()
    while any(facts.has - covered for facts in known):
        chosen.append(max(known, key=lambda facts: (len(facts.has - covered), *facts.rank)))
        covered |= chosen[-1].has
    return chosen


def _kind_of_end(edge: _Edge) -> str:
    return "date" if edge.is_class and holds_date(edge.end) else kind_of_value(edge.end)


def _alike(edges: _Edges, sources: Sequence[str], asked: _Asked) -> Iterator[_Facts]:
    """Yield facts of the same kind of several sources, and paths that connect two sources.

    Facts are of the same kind if they have the same words of the question, else the same
    meanings, and end in the same kind of value.
    """
    stated = defaultdict[tuple[object, ...], dict[str, list[_Path]]](lambda: defaultdict(list))
    for source in sources:
        paths = (path for known in _cheapest_paths(edges, source).values() for path in known)
        for path in sorted(paths, key=_cost):
            if not set(sources).isdisjoint(path.nodes[1:-1]):
                continue
            end, hops = path.nodes[-1], len(path.edges)
            if end in sources and (path.asked or (hops == 1 and not asked)):
                rank = (-hops, path.shared, 0, -hops)
                yield _Facts(path.asked | {source, end}, rank, path.relations)
            if hops <= 2 or all(edge.asked for edge in path.edges):
                wording = tuple(edge.shared or edge.meanings for edge in path.edges)
                stated[*wording, _kind_of_end(path.edges[-1])][source].append(path)
    for by_source in stated.values():
        every = [path for paths in by_source.values() for path in paths[:_MAX_ALIKE]]
        first = every[0]
        if len(by_source) > 1 and first.asked:
            covered = set(by_source).union(path.nodes[-1] for path in every)
            relations = tuple(each for path in every for each in path.relations)
            shared, value = max(path.shared for path in every), _kind_of_end(first.edges[-1])
            rank = (-len(first.edges), shared, len(value), -len(relations))
            yield _Facts(first.asked | covered.intersection(sources), rank, relations)


# --- Distances between nodes


def distances(graph: KnowledgeGraph, sources: Iterable[str]) -> dict[str, int]:
    """Return the hops from the nearest source to each reachable node, in either direction.

    Args:
        graph: The graph; its nodes are entity names and the plain values at relation ends.
        sources: The nodes to start from; unknown ones are ignored.
    """
    import networkx as nx

    network: nx.Graph[str] = nx.Graph(each.ends for each in graph.relations)
    network.add_nodes_from(entity.name for entity in graph.entities)
    return hops_from(network, sources)


def hops_from(network: nx.Graph[str], sources: Iterable[str]) -> dict[str, int]:
    """Return the distances from the nearest source; `hops` is the length of an edge, else 1."""
    import networkx as nx

    known = [source for source in sources if source in network]
    paths = nx.multi_source_dijkstra_path_length(network, known, weight="hops") if known else {}
    return dict(paths)


# --- Pruning to a token budget: paths from the question to an answer are dropped last

_UNREACHED: Final = 1_000_000


class Pruned(NamedTuple):
    """A graph that fits a token budget, and its text."""

    graph: KnowledgeGraph
    text: str


def prune(
    graph: KnowledgeGraph,
    question: str,
    budget: int,
    count: Callable[[str], int],
    labels: Mapping[str, int] = {},
    keep: Collection[str] = (),
) -> Pruned:
    """Hide as little as possible, the farthest first, so the text of a graph fits a budget.

    Distance is measured from the nodes that the question names; `MAX_HOPS` relations in the
    question's words are nearer than one other relation. Unreachable nodes go first; of equally far
    entities, the least connected, each with its relations. The nodes that `keep` names, and the
    paths to them, go last. Entities that the question names stay. The result still holds all
    records; a merge shows them again.

    Args:
        graph: The graph.
        question: The question that the graph should help to answer.
        budget: The maximum number of tokens of the text.
        count: Counts the tokens of a text.
        labels: As for `linearise`, so the labels are counted too.
        keep: Names, such as those in a possible answer and in the next query.
    """
    written = partial(linearise, labels=labels, question=question)
    if count(text := written(graph)) <= budget:
        return Pruned(graph, text)
    order = _order(graph, question, keep)

    def without(out: int) -> Pruned:
        dropped = set(order[:out])
        names = {item.name for item in dropped if isinstance(item, Entity)}
        rest = (r for r in graph.relations if r not in dropped and names.isdisjoint(r.ends))
        entities = (entity for entity in graph.entities if entity.name not in names)
        shown = graph.with_visible(tuple(entities), tuple(rest))
        return Pruned(shown, written(shown))

    def fits(out: int) -> bool:
        return count(without(out).text) <= budget

    return without(bisect_left(range(len(order)), True, key=fits))


def _order(graph: KnowledgeGraph, question: str, keep: Collection[str]) -> list[Entity | Relation]:
    """Return everything that pruning may drop, in the order of dropping."""
    named, names = named_in(graph, question), graph.names
    edges = _edges(graph.relations, _asked(question, (names[node] for node in named)))
    hops = _weighted_distances(edges, named)
    to_keep = {node for name in keep for node in named_by(graph, name)}
    last: set[object] = set(to_keep)
    for known in (_cheapest_paths(edges, source) for source in named if to_keep):
        for path in (min(known[node], key=_cost) for node in to_keep if node in known):
            last.update(path.nodes, path.relations)
    degree = Counter(end for relation in graph.relations for end in relation.ends)

    def rank(item: Entity | Relation) -> tuple[bool, int, int]:
        if isinstance(item, Entity):
            return item.name in last, -hops.get(item.name, _UNREACHED), degree[item.name]
        head, tail = (hops.get(end, _UNREACHED) for end in item.ends)
        return item in last, -max(head, tail) - (head == tail), len(degree)

    entities = (entity for entity in reversed(graph.entities) if entity.name not in named)
    return sorted((*entities, *reversed(graph.relations)), key=rank)


def _weighted_distances(edges: _Edges, sources: Iterable[str]) -> dict[str, int]:
    import networkx as nx

    network: nx.Graph[str] = nx.Graph()
    walked = [(bool(edge.asked), node, edge.end) for node in edges for edge in edges[node]]
    for is_asked, node, end in sorted(walked):  # the last of two edges counts
        network.add_edge(node, end, hops=1 if is_asked else MAX_HOPS + 1)
    return hops_from(network, sources)
