"""The HTML page of a corpus graph: search, neighbourhoods, communities, paths and evidence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ga_dspy.graphrag import Access, CorpusGraph
from ga_dspy.graphrag.communities import Community, Topic, find_communities
from ga_dspy.graphrag.walk import central_nodes
from ga_dspy.passage import Passage
from ga_dspy.retrieval import Index
from ga_dspy.viewer.page import asset, document


def graph_page(
    graph: CorpusGraph, index: Index | None = None, *, access: Access | None = None,
    communities: Sequence[Community] | None = None, topics: Sequence[Topic] = (),
    title: str = "Knowledge graph",
) -> str:  # fmt: skip
    """Return a page to search, draw and read a corpus graph.

    Args:
        graph: The graph, such as `open_graph(folder).graph`.
        index: Its passages; with them, the page has quotes, titles and sources.
        access: The access scope of the readers; by default public. The page contains only what
            they may see.
        communities: The communities of `graph.public`, which a stored graph has; by default they
            are computed, which takes seconds for thousands of entities.
        topics: Summarised communities, such as `GraphIndex.topics`, for titles and summaries.
        title: The heading of the page.

    Returns:
        HTML that loads no other file; its content security policy forbids that.

    Raises:
        InputError: A condition that the index requires is missing.
    """
    data = graph_data(graph, index, access=access, communities=communities, topics=topics)
    return document(title, {"title": title, "graph": data}, asset("graph.js"))


def graph_data(
    graph: CorpusGraph, index: Index | None = None, *, access: Access | None = None,
    communities: Sequence[Community] | None = None, topics: Sequence[Topic] = (),
) -> dict[str, Any]:  # fmt: skip
    """Return the data of the page as JSON values; the arguments are those of `graph_page`.

    Entities are ordered by centrality. References to entities, communities, passages and quotes are
    positions in their lists. Empty values are omitted.
    """
    view = graph.visible(access)
    order = central_nodes(view.graph)
    position = {node: at for at, node in enumerate(order)}
    found = graph.public.derive(find_communities) if communities is None else communities
    coarse = [community for community in found if community.level == 0]
    names = graph.public.name
    community_of = {names(node): at for at, group in enumerate(coarse) for node in group.nodes}
    about = {topic.place: {"title": topic.title, "text": topic.text} for topic in topics}
    nodes, edges = view.graph.tables.nodes.to_pylist(), view.graph.tables.edges.to_pylist()
    cited: dict[int, int] = {}  # positions of the cited passages by row
    spans: dict[tuple[int, int, int], int] = {}

    def cite(row: int) -> int:
        return cited.setdefault(row, len(cited))

    def passage(row: int) -> Passage:
        id = view.graph.passages[row]
        if index is not None and id in index and view.readable(id):
            return index.get(id)
        return Passage(id=id, text="")

    entities = []
    for row in map(nodes.__getitem__, order):
        passages = [*map(cite, dict.fromkeys(row["passage"]))]
        community = community_of.get(row["name"])
        entities.append(_record(row, _ENTITY, community=community, passages=passages))
    relations = []
    for edge, row in enumerate(edges):
        cited_spans = zip(map(cite, row["passage"]), row["start"], row["end"], strict=True)
        quotes = [spans.setdefault(span, len(spans)) for span in cited_spans]
        ends = {"head": position[row["head"]], "tail": position[row["tail"]]}
        against = view.graph.contradictions.get(edge, ())
        relations.append(_record(row, _RELATION, **ends, contradicts=against, quotes=quotes))
    texts = [passage(row) for row in cited]
    sources = [_record({}, (), id=p.id, title=p.title, source=p.source) for p in texts]
    quoted = [[at, texts[at].content[start:end]] for at, start, end in spans]
    return {
        "entities": entities,
        "relations": relations,
        "communities": [about.get(at, {}) for at in range(len(coarse))],
        "passages": sources,
        "quotes": quoted,
    }


_ENTITY = ("name", "type", "aliases", "attributes", "value")
_RELATION = ("relation", "time", "confidence")


def _record(row: Mapping[str, Any], names: Sequence[str], **more: Any) -> dict[str, Any]:
    """Return these columns of a row, and more values, without empty ones; 0 is not empty."""
    values = {name: row[name] for name in names} | more
    return {name: value for name, value in values.items() if value or type(value) in (int, float)}
