"""Paths: what a question names, how far the rest is, which chain answers it, what fits a budget."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations, pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

from ga_dspy.graph.identity import identity, kind_of, plain_relation, split_qualifier
from ga_dspy.graph.knowledge_graph import KnowledgeGraph
from ga_dspy.graph.lines import linearise
from ga_dspy.graph.records import Entity, Relation
from ga_dspy.text import normalise, places, stands_in

if TYPE_CHECKING:
    import networkx as nx


# --- What a text names

_OPENING_WORDS: Final = frozenset(
    ("who", "what", "when", "where", "which", "why", "how", "whose", "whom", "is", "are", "was")
)


def named_in(graph: KnowledgeGraph, text: str) -> tuple[str, ...]:
    """The nodes of the graph that a text names, in the order of the text.

    A node is named by its name or an alias, whatever the spelling; of overlapping names the
    longest counts; namesakes are all named. A name of one word counts only where the text writes
    it with a capital or a digit, or is in lower case throughout. A surname alone names a person
    where just one has it.
    """
    words = normalise(text).split()
    capitals = _capitals(text)
    spans = defaultdict[tuple[int, int], list[str]](list)
    for name, nodes in _nodes_by_name(graph).items():
        parts = name.split()
        for start in places(parts, words) if len(parts) > 1 or name in capitals else ():
            spans[start, start + len(parts)] += nodes
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


def _nodes_by_name(graph: KnowledgeGraph) -> dict[str, list[str]]:
    """Each name, normalised and also without its qualifier, with the nodes that go by it."""
    nodes: dict[str, list[str]] = defaultdict(list)
    for node, names in _names(graph).items():
        every = (*names, *(split_qualifier(name).base for name in names))
        for name in dict.fromkeys(map(normalise, every)):
            nodes[name].append(node)
    surnames: dict[str, list[str]] = defaultdict(list)
    for entity in graph.entities:
        parts = normalise(entity.name).split()
        if len(parts) > 1 and kind_of(entity.type) == "person":
            surnames[parts[-1]].append(entity.name)
    return {name: people for name, people in surnames.items() if len(people) == 1} | nodes


def _names(graph: KnowledgeGraph) -> dict[str, tuple[str, ...]]:
    """Each node, be it an entity or a plain value at the end of a relation, with all its names."""
    ends = (end for relation in graph.relations for end in (relation.head, relation.tail))
    entities = {entity.name: (entity.name, *entity.aliases) for entity in graph.entities}
    return {end: (end,) for end in ends} | entities


# --- How far nodes are from each other, and which relations lead to an answer

MOST_HOPS: Final = 4
"""A longer chain between a question and an answer counts as chance."""

_JUDGEMENTS: Final = frozenset(("yes", "no", "true", "false"))


def distances(graph: KnowledgeGraph, sources: Iterable[str]) -> dict[str, int]:
    """Hops from the nearest source to each node that can be reached, whatever the direction.

    Args:
        graph: The graph; its nodes are entity names and the plain values at relation ends.
        sources: Nodes to start from; those that the graph does not have are passed over.
    """
    import networkx as nx

    network = _network(graph, graph.relations)
    known = [source for source in sources if source in network]
    layers = nx.bfs_layers(network, known) if known else ()
    return {node: hops for hops, layer in enumerate(layers) for node in layer}


def _network(graph: KnowledgeGraph, relations: Iterable[Relation]) -> nx.Graph[str]:
    import networkx as nx

    network: nx.Graph[str] = nx.Graph((relation.head, relation.tail) for relation in relations)
    network.add_nodes_from(entity.name for entity in graph.entities)
    return network


def connects(graph: KnowledgeGraph, question: str, candidate: str) -> bool:
    """Whether some chain of the graph leads from what the question names to a candidate answer."""
    return bool(evidence_chain(graph, question, candidate))


def evidence_chain(graph: KnowledgeGraph, question: str, answer: str) -> tuple[Relation, ...]:
    """The relations that lead from what the question names to the answer, nearest first.

    The answer is the node nearest to the question that goes by it or contains it; an attribute
    that contains it counts as a relation "described as". Each node that the question names adds
    its shortest chain, up to `MOST_HOPS` long. Where the answer is yes, no or one of those nodes,
    it is a comparison: the chains are those between the nodes named, and else the facts that are
    stated alike of two of them.

    Returns:
        Relations of the graph, each once; none where the graph has no such chain.
    """
    sources = named_in(graph, question)
    wanted = normalise(answer)
    if not sources or not wanted:
        return ()
    described = [
        Relation(head=e.name, relation="described as", tail=text, evidence=e.evidence)
        for e in graph.entities
        for text in (e.type, *e.attributes)
        if stands_in(wanted, normalise(text))
    ]
    relations = [*graph.relations, *described]
    named = {
        node for node, names in _names(graph).items() if identity(answer) in map(identity, names)
    }
    if wanted in _JUDGEMENTS or named & set(sources):
        pairs = combinations(sources, 2)
        return _chains(graph, relations, pairs, question) or _shared_facts(graph, sources)
    ends = {end for relation in relations for end in (relation.head, relation.tail)}
    targets = named | {end for end in ends if stands_in(wanted, normalise(end))}
    reached = distances(graph, sources)
    for relation in described:
        if relation.head in reached:
            reached.setdefault(relation.tail, reached[relation.head] + 1)
    near = (targets - set(sources)) & reached.keys()
    if not near:
        return ()
    target = min(near, key=lambda node: (node not in named, reached[node], len(node), node))
    return _chains(graph, relations, [(source, target) for source in sources], question)


def _chains(
    graph: KnowledgeGraph,
    relations: Iterable[Relation],
    pairs: Iterable[tuple[str, str]],
    question: str,
) -> tuple[Relation, ...]:
    """The shortest chain between each pair that has one, wording nearest to the question."""
    import networkx as nx

    network = _network(graph, relations)
    asked = set(normalise(question).split())
    between: dict[frozenset[str], list[Relation]] = defaultdict(list)
    for relation in relations:
        between[frozenset((relation.head, relation.tail))].append(relation)

    def shared_words(relation: Relation) -> int:
        return len(asked.intersection(normalise(relation.relation).split()))

    chain: dict[Relation, None] = {}
    for source, target in pairs:
        if nx.has_path(network, source, target):
            path = nx.shortest_path(network, source, target)
            for step in pairwise(path) if len(path) <= MOST_HOPS + 1 else ():
                chain[max(between[frozenset(step)], key=shared_words)] = None
    return tuple(chain)


def _shared_facts(graph: KnowledgeGraph, sources: Sequence[str]) -> tuple[Relation, ...]:
    """Facts, up to two relations long, that are stated in the same words of two of the sources."""
    stated: dict[tuple[str, ...], dict[str, tuple[Relation, ...]]] = defaultdict(dict)
    for source in sources:
        for first in (relation for relation in graph.relations if relation.head == source):
            following = [(first, r) for r in graph.relations if r.head == first.tail]
            for path in ((first,), *following):
                wording = tuple(plain_relation(relation.relation) for relation in path)
                stated[wording].setdefault(source, path)
    common = [paths for paths in stated.values() if len(paths) > 1]
    return tuple(dict.fromkeys(r for paths in common for path in paths.values() for r in path))


# --- What fits a budget of tokens: what is far from the question is left out first

_UNREACHED: Final = 1_000_000


class Pruned(NamedTuple):
    """A graph that fits, and what was left out of it."""

    graph: KnowledgeGraph
    entities: tuple[Entity, ...]
    relations: tuple[Relation, ...]
    fits: bool
    """Whether the budget was met; not where what the question names alone exceeds it."""


def prune(
    graph: KnowledgeGraph,
    question: str,
    budget: int,
    count: Callable[[str], int],
    labels: Mapping[str, int] | None = None,
) -> Pruned:
    """Leave out the fewest entities, the farthest first, for the compact form to fit a budget.

    Entities go in order of their distance from what the question names (unconnected ones first,
    so all that is beyond three hops goes before anything within), of equally far ones the least
    connected, with their relations. Entities that the question names never go. If that is not
    enough, relations go too, the farthest and latest first. The result still holds all records;
    a merge shows them again.

    Args:
        graph: The graph.
        question: The question that the graph should serve.
        budget: The most tokens that the compact form may have.
        count: Counts the tokens of a text.
        labels: As for `linearise`, so that the labels are counted too.
    """
    order = _order(graph, question)

    def without(out: int) -> KnowledgeGraph:
        dropped = set(order[:out])
        names = {item.name for item in dropped if isinstance(item, Entity)}
        relations = (r for r in graph.relations if r not in dropped)
        return graph.showing(
            tuple(entity for entity in graph.entities if entity.name not in names),
            tuple(r for r in relations if r.head not in names and r.tail not in names),
        )

    def fits(out: int) -> bool:
        return count(linearise(without(out), labels=labels)) <= budget

    out = bisect_left(range(len(order)), True, key=fits)
    kept = without(out) if out else graph
    entities, relations = set(kept.entities), set(kept.relations)
    return Pruned(
        kept,
        tuple(entity for entity in graph.entities if entity not in entities),
        tuple(relation for relation in graph.relations if relation not in relations),
        fits(out),
    )


def _order(graph: KnowledgeGraph, question: str) -> list[Entity | Relation]:
    """Everything that may be left out, what to leave out first in front."""
    named = named_in(graph, question)
    hops = distances(graph, named)
    degree = Counter(end for r in graph.relations for end in (r.head, r.tail))

    def far(node: str) -> int:
        return hops.get(node, _UNREACHED)

    entities = [entity for entity in reversed(graph.entities) if entity.name not in named]
    entities.sort(key=lambda entity: (-far(entity.name), degree[entity.name]))
    relations = list(reversed(graph.relations))
    relations.sort(key=lambda relation: -min(far(relation.head), far(relation.tail)))
    return [*entities, *relations]
