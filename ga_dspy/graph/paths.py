"""What lies between things: what a question names, how far the rest is, which chain answers it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations, pairwise
from typing import TYPE_CHECKING, Any, Final

from ga_dspy.graph.kinds import kind_of
from ga_dspy.graph.model import KnowledgeGraph
from ga_dspy.graph.names import identity, normalise, plain_relation, split_qualifier
from ga_dspy.graph.records import Relation

if TYPE_CHECKING:
    import networkx as nx

MOST_HOPS: Final = 4
"""A longer chain between a question and an answer is taken for chance."""

_OPENING_WORDS: Final = frozenset(
    ("who", "what", "when", "where", "which", "why", "how", "whose", "whom", "is", "are", "was")
)
_JUDGEMENTS: Final = frozenset(("yes", "no", "true", "false"))


def named_in(graph: KnowledgeGraph, text: str) -> tuple[str, ...]:
    """The things of the graph that a text names, in the order of the text.

    A thing is named by its name or an alias, whatever the spelling; of overlapping names the
    longest counts; namesakes are all named. A name of one word counts only where the text writes
    it with a capital or a digit, or is in lower case throughout. A surname alone names a person
    where just one has it.
    """
    words = normalise(text).split()
    capitals = _capitals(text)
    spans = defaultdict[tuple[int, int], list[str]](list)
    for name, bearers in _bearers(graph).items():
        parts = name.split()
        if len(parts) > 1 or name in capitals:
            for start in _places(parts, words):
                spans[start, start + len(parts)] += bearers
    chosen: list[tuple[int, int]] = []
    for start, end in sorted(spans, key=lambda span: (span[0] - span[1], span)):
        if all(end <= other[0] or other[1] <= start for other in chosen):
            chosen.append((start, end))
    return tuple(dict.fromkeys(node for span in sorted(chosen) for node in spans[span]))


def _capitals(text: str) -> set[str]:
    """The words that may be names by themselves; of a text all in lower case, the longer ones."""
    words = text.split()
    if text == text.lower():
        return {normalise(word) for word in words if len(word) > 3 or word.isdigit()}
    opening = 1 if words and words[0].casefold() in _OPENING_WORDS else 0
    return {normalise(word) for word in words[opening:] if word != word.lower() or word.isdigit()}


def _places(parts: Sequence[str], words: Sequence[str]) -> Iterator[int]:
    return (i for i in range(len(words)) if words[i : i + len(parts)] == parts)


def _bearers(graph: KnowledgeGraph) -> dict[str, list[str]]:
    """Each name, normalised and also without its qualifier, with the nodes that go by it."""
    bearers: dict[str, dict[str, None]] = defaultdict(dict)
    for node, names in _names(graph).items():
        for name in (*names, *(split_qualifier(name).base for name in names)):
            bearers[normalise(name)][node] = None
    surnames: dict[str, list[str]] = defaultdict(list)
    for entity in graph.entities:
        parts = normalise(entity.name).split()
        if len(parts) > 1 and kind_of(entity.type) == "person":
            surnames[parts[-1]].append(entity.name)
    alone = {name: nodes for name, nodes in surnames.items() if len(nodes) == 1}
    return alone | {name: list(found) for name, found in bearers.items()}


def _names(graph: KnowledgeGraph) -> dict[str, tuple[str, ...]]:
    """Each node, be it an entity or a plain value at the end of a relation, with all its names."""
    entities = {entity.name: (entity.name, *entity.aliases) for entity in graph.entities}
    ends = (end for relation in graph.relations for end in (relation.head, relation.tail))
    return {end: (end,) for end in ends} | entities


def _network(names: Iterable[str], relations: Iterable[Relation]) -> nx.Graph[str]:
    import networkx as nx

    network: Any = nx.Graph()
    network.add_nodes_from(names)
    network.add_edges_from((relation.head, relation.tail) for relation in relations)
    return network


def distances(graph: KnowledgeGraph, sources: Iterable[str]) -> dict[str, int]:
    """Hops from the nearest source to each node that can be reached, whatever the direction.

    Args:
        graph: the graph; its nodes are entity names and the plain values at relation ends.
        sources: nodes to start from; those that the graph does not have are passed over.
    """
    import networkx as nx

    names = _names(graph)
    known = [source for source in sources if source in names]
    layers = nx.bfs_layers(_network(names, graph.relations), known) if known else ()
    return {node: hops for hops, layer in enumerate(layers) for node in layer}


def connects(graph: KnowledgeGraph, question: str, candidate: str) -> bool:
    """Whether some chain of the graph leads from what the question names to a candidate answer."""
    return bool(evidence_chain(graph, question, candidate))


def evidence_chain(graph: KnowledgeGraph, question: str, answer: str) -> tuple[Relation, ...]:
    """The relations that lead from what the question names to the answer, nearest first.

    The answer is the node nearest to the question that goes by it or contains it; an attribute
    that contains it counts as a relation "described as". Each thing that the question names adds
    its shortest chain, up to `MOST_HOPS` long. Where the answer is yes, no or one of the things
    named, it is a comparison: the chains are those between the things named, and else the facts
    that are stated alike of two of them.

    Returns:
        Relations of the graph, each once; none where the graph has no such chain.
    """
    sources = named_in(graph, question)
    wanted = normalise(answer)
    relations = [*graph.relations, *_descriptions(graph, wanted)]
    if not sources or not wanted:
        return ()
    named = {
        node for node, names in _names(graph).items() if identity(answer) in map(identity, names)
    }
    if wanted in _JUDGEMENTS or named & set(sources):
        pairs = list(combinations(sources, 2))
        return _chains(graph, relations, pairs, question) or _alike(graph, sources)
    ends = [end for relation in relations for end in (relation.head, relation.tail)]
    targets = named | {end for end in ends if f" {wanted} " in f" {normalise(end)} "}
    reached = distances(graph, sources)
    for relation in relations[len(graph.relations) :]:
        if relation.head in reached:
            reached.setdefault(relation.tail, reached[relation.head] + 1)
    near = [target for target in targets - set(sources) if target in reached]
    if not near:
        return ()
    target = min(near, key=lambda node: (node not in named, reached[node], len(node), node))
    return _chains(graph, relations, [(source, target) for source in sources], question)


def _descriptions(graph: KnowledgeGraph, wanted: str) -> Iterator[Relation]:
    """Attributes and types that contain a text, as relations."""
    for entity in graph.entities:
        for text in (entity.type, *entity.attributes):
            if wanted and f" {wanted} " in f" {normalise(text)} ":
                evidence = entity.evidence
                yield Relation(
                    head=entity.name, relation="described as", tail=text, evidence=evidence
                )


def _chains(
    graph: KnowledgeGraph,
    relations: Sequence[Relation],
    pairs: Iterable[tuple[str, str]],
    question: str,
) -> tuple[Relation, ...]:
    """The shortest chain between each pair that has one, wording nearest to the question."""
    import networkx as nx

    network = _network(_names(graph), relations)
    asked = set(normalise(question).split())
    between: dict[frozenset[str], list[Relation]] = defaultdict(list)
    for relation in relations:
        between[frozenset((relation.head, relation.tail))].append(relation)
    chain: dict[Relation, None] = {}
    for source, target in pairs:
        if nx.has_path(network, source, target):
            path = nx.shortest_path(network, source, target)
            for step in pairwise(path) if len(path) <= MOST_HOPS + 1 else ():
                fitting = between[frozenset(step)]
                chain[max(fitting, key=lambda r: len(asked & _words(r.relation)))] = None
    return tuple(chain)


def _words(relation: str) -> set[str]:
    return set(normalise(relation).split())


def _alike(graph: KnowledgeGraph, sources: Sequence[str]) -> tuple[Relation, ...]:
    """Facts, up to two relations long, that are stated in the same words of two of the sources."""
    told: dict[tuple[str, ...], dict[str, tuple[Relation, ...]]] = defaultdict(dict)
    for source in sources:
        for path in _told(graph, source):
            told[tuple(plain_relation(r.relation) for r in path)].setdefault(source, path)
    common = [paths for paths in told.values() if len(paths) > 1]
    return tuple(dict.fromkeys(r for paths in common for path in paths.values() for r in path))


def _told(graph: KnowledgeGraph, source: str) -> Iterator[tuple[Relation, ...]]:
    for first in (relation for relation in graph.relations if relation.head == source):
        yield (first,)
        for second in graph.relations:
            if second.head == first.tail:
                yield first, second
