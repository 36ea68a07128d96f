"""A query made from the graph, where the judge has none or its query brought nothing new."""

from __future__ import annotations

from ga_dspy.graph import KnowledgeGraph, distances, named_in
from ga_dspy.mentions import fold, mentions
from ga_dspy.programs.reading import Reading


def reformulated(question: str, graph: KnowledgeGraph, reading: Reading) -> str:
    """Name an entity at the edge of what was read, with its attributes, beside the question.

    The edge: entities near the question's entities in the graph that no passage read so far is
    about (none has them as its title). Nearest first, then those with most relations.

    Returns:
        A query that was not tried yet; empty where the graph has no such entity left.
    """
    titles = {fold(passage.title) for passage in reading.passages.values()}
    hops = distances(graph, named_in(graph, question))
    degree: dict[str, int] = {}
    for relation in graph.relations:
        for end in (relation.head, relation.tail):
            degree[end] = degree.get(end, 0) + 1
    edge = [e for e in graph.entities if fold(e.name) not in titles and e.name[:1].isupper()]
    edge.sort(key=lambda e: (hops.get(e.name, len(hops) + 1), -degree.get(e.name, 0), e.name))
    for entity in edge:
        about = "" if mentions(entity.name, question) else question
        query = " ".join(filter(None, (entity.name, *entity.attributes[:1], about)))
        if not reading.was_tried(query):
            return query
    return ""
