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
    if communities is None:
        communities = graph.public.derive(find_communities)
    coarse = [community for community in communities if community.level == 0]
    community_of = dict[str, int]()
    for at, community in enumerate(coarse):
        community_of |= dict.fromkeys(map(graph.public.name, community.nodes), at)
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
        links: dict[str, Any] = {"community": community_of.get(row["name"]), "passages": passages}
        entities.append(_nonempty({name: row[name] for name in _ENTITY} | links))
    relations = []
    for edge, row in enumerate(edges):
        cited_spans = zip(map(cite, row["passage"]), row["start"], row["end"], strict=True)
        links = {
            "head": position[row["head"]],
            "tail": position[row["tail"]],
            "contradicts": view.graph.contradictions.get(edge, ()),
            "quotes": [spans.setdefault(span, len(spans)) for span in cited_spans],
        }
        relations.append(_nonempty({name: row[name] for name in _RELATION} | links))
    texts = [passage(row) for row in cited]
    sources = [_nonempty({"id": p.id, "title": p.title, "source": p.source}) for p in texts]
    quotes = [[at, texts[at].content[start:end]] for at, start, end in spans]
    return {
        "entities": entities,
        "relations": relations,
        "communities": [about.get(at, {}) for at in range(len(coarse))],
        "passages": sources,
        "quotes": quotes,
    }


_ENTITY = ("name", "type", "aliases", "attributes", "value")
_RELATION = ("relation", "time", "confidence")


def _nonempty(values: Mapping[str, Any]) -> dict[str, Any]:
    """Omit empty values; 0 is not empty."""
    return {name: value for name, value in values.items() if value or type(value) in (int, float)}
