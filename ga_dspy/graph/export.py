"""The graph for other tools: networkx, GraphML, JSON and Mermaid."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ga_dspy.graph.model import KnowledgeGraph

if TYPE_CHECKING:
    import networkx as nx


def to_networkx(graph: KnowledgeGraph) -> nx.MultiDiGraph[str]:
    """A directed multigraph: entities and plain values as nodes, relations as edges.

    Entity nodes carry `entity=True`, type, attributes and aliases; edges relation, time,
    confidence (where stated) and the ids of the passages that state them.
    """
    import networkx as nx

    network: Any = nx.MultiDiGraph()
    for entity in graph.entities:
        details = {"type": entity.type, "attributes": entity.attributes, "aliases": entity.aliases}
        network.add_node(entity.name, entity=True, **details)
    for relation in graph.relations:
        for end in (relation.head, relation.tail):
            if end not in network:
                network.add_node(end, entity=False)
        stated = {"time": relation.time, "confidence": relation.confidence}
        network.add_edge(
            relation.head,
            relation.tail,
            relation=relation.relation,
            passages=tuple(dict.fromkeys(evidence.passage for evidence in relation.evidence)),
            **{key: value for key, value in stated.items() if value is not None},
        )
    return network


def to_graphml(graph: KnowledgeGraph) -> str:
    """GraphML for Gephi, yEd and the like; lists are joined with "; "."""
    import networkx as nx

    network = to_networkx(graph)
    for _, details in network.nodes(data=True):
        details.update({key: _plain(value) for key, value in details.items()})
    for *_, details in network.edges(data=True):
        details.update({key: _plain(value) for key, value in details.items()})
    return "\n".join(nx.generate_graphml(network))


def _plain(value: Any) -> Any:
    """A value that XML can hold: lists joined, control characters left out."""
    text = "; ".join(value) if isinstance(value, tuple) else value
    return "".join(c for c in text if c.isprintable()) if isinstance(text, str) else text


def to_json(graph: KnowledgeGraph) -> str:
    """All records with their evidence, as JSON that `from_json` reads back."""
    return graph.model_dump_json(exclude_none=True)


def from_json(text: str) -> KnowledgeGraph:
    """The graph that `to_json` wrote.

    Raises:
        pydantic.ValidationError: the text is no such JSON.
    """
    return KnowledgeGraph.model_validate_json(text)


def to_mermaid(graph: KnowledgeGraph) -> str:
    """A Mermaid flowchart: entities as boxes, plain values rounded, relations as arrows."""
    entities = {entity.name for entity in graph.entities}
    ends = (end for relation in graph.relations for end in (relation.head, relation.tail))
    names = dict.fromkeys((*(entity.name for entity in graph.entities), *ends))
    ids = {name: f"n{i}" for i, name in enumerate(names)}
    lines = ["flowchart LR"]
    for name in names:
        opening, closing = ("[", "]") if name in entities else ("(", ")")
        lines.append(f'  {ids[name]}{opening}"{_label(name)}"{closing}')
    for relation in graph.relations:
        label = _label(relation.relation)
        lines.append(f'  {ids[relation.head]} -->|"{label}"| {ids[relation.tail]}')
    return "\n".join(lines)


def _label(text: str) -> str:
    """Text inside Mermaid's quotes: every character with a meaning there as an entity code."""
    return "".join(c if c.isalnum() or c in " .,'-" else f"#{ord(c)};" for c in text)
