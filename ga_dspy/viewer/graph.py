"""The page of a corpus graph: search, neighbourhoods, communities, paths and their evidence."""

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
    """Return a page on which a corpus graph is searched, drawn and read.

    Args:
        graph: The graph, such as `open_graph(folder).graph`.
        index: Its passages; with them the page has quotes, titles and sources.
        access: The access scope of the readers; by default public. The page holds only what they
            may see.
        communities: The communities of `graph.public`, as a stored graph has them; by default they
            are computed, which takes seconds for thousands of entities.
        topics: Summarised communities, such as `GraphIndex.topics`, for titles and summaries.
        title: The heading of the page.

    Returns:
        HTML that loads nothing else; its content security policy forbids it.

    Raises:
        InputError: A condition that the index requires is missing.
    """
    data = graph_data(graph, index, access=access, communities=communities, topics=topics)
    return document(title, {"title": title, "graph": data}, asset("graph.js"))


def graph_data(
    graph: CorpusGraph, index: Index | None = None, *, access: Access | None = None,
    communities: Sequence[Community] | None = None, topics: Sequence[Topic] = (),
) -> dict[str, Any]:  # fmt: skip
    """Return what the page shows, as JSON values; the arguments are those of `graph_page`.

    Entities are ordered by centrality. Everything else refers to them, and to communities,
    passages and quotes, by position. Empty values are omitted.
    """
    view = graph.visible(access)
    order = central_nodes(view.graph)
    place = {node: at for at, node in enumerate(order)}
    found = graph.public.derive(find_communities) if communities is None else communities
    coarse = [community for community in found if community.level == 0]
    names = graph.public.name
    grouped = {names(node): at for at, one in enumerate(coarse) for node in one.nodes}
    about = {topic.place: {"title": topic.title, "text": topic.text} for topic in topics}
    nodes, edges = (table.to_pylist() for table in view.graph.tables[:2])
    cited: dict[int, int] = {}  # the place of each passage that the view cites
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
        community, passages = grouped.get(row["name"]), [*map(cite, dict.fromkeys(row["passage"]))]
        entities.append(_filled(row, _ENTITY, community=community, passages=passages))
    relations = []
    for edge, row in enumerate(edges):
        ends = {"head": place[row["head"]], "tail": place[row["tail"]]}
        places = zip(map(cite, row["passage"]), row["start"], row["end"], strict=True)
        quotes = [spans.setdefault(span, len(spans)) for span in places]
        against = view.graph.contradictions.get(edge, ())
        relations.append(_filled(row, _RELATION, **ends, contradicts=against, quotes=quotes))
    texts = [passage(row) for row in cited]
    return {
        "entities": entities,
        "relations": relations,
        "communities": [about.get(at, {}) for at in range(len(coarse))],
        "passages": [_filled({}, (), id=p.id, title=p.title, source=p.source) for p in texts],
        "quotes": [[at, texts[at].content[start:end]] for at, start, end in spans],
    }


_ENTITY = ("name", "type", "aliases", "attributes", "value")
_RELATION = ("relation", "time", "confidence")


def _filled(row: Mapping[str, Any], names: Sequence[str], **more: Any) -> dict[str, Any]:
    """Return these columns of a row and more, without empty values; 0 is not empty."""
    found = {**{name: row[name] for name in names}, **more}
    return {name: value for name, value in found.items() if value or type(value) in (int, float)}
