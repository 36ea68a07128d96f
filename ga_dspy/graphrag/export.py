"""A caller's view of a corpus graph for other tools: GraphML, JSON-LD, CSV for Neo4j."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from ga_dspy.graphrag.corpus_graph import View
from ga_dspy.graphrag.sources import relation_key

NODES_CSV: Final = "nodes.csv"
RELATIONSHIPS_CSV: Final = "relationships.csv"
_CONTEXT: Final = {
    "@vocab": "https://schema.org/",
    "rdf": "http://www.w3.org/1999/02/22-rdf-syntax-ns#",
    "subject": {"@id": "rdf:subject", "@type": "@id"},
    "predicate": "rdf:predicate",
    "object": {"@id": "rdf:object", "@type": "@id"},
    "sameAs": {"@type": "@id"},
}
_WIKIDATA: Final = "http://www.wikidata.org/entity/"
_NODE_HEADER: Final = (
    "id:ID", "name", "type", "attributes:string[]", "aliases:string[]", "wikidata",
    "passages:string[]", ":LABEL",
)  # fmt: skip
_EDGE_HEADER: Final = (
    ":START_ID", ":END_ID", "relation", "time", "confidence:double", "critical:boolean",
    "contradicted:boolean", "passages:string[]", ":TYPE",
)  # fmt: skip


def to_graphml(view: View) -> str:
    """GraphML for Gephi, yEd and the like: nodes n0, n1, … with a `label`; lists joined by "; "."""
    import networkx as nx

    graph = view.graph
    network: Any = nx.MultiDiGraph()
    for i, entity in enumerate(graph.entities):
        network.add_node(
            f"n{i}",
            label=_printable(entity.name),
            type=_printable(entity.type),
            attributes=_printable("; ".join(entity.attributes)),
            aliases=_printable("; ".join(entity.aliases)),
            wikidata=graph.wikidata(i),
            passages="; ".join(graph.passages_of(i)),
        )
    for j in _edges(view):
        relation, flags = graph.edge(j), graph.flags(j)
        known = {"time": relation.time, "confidence": relation.confidence}
        network.add_edge(
            f"n{graph.heads[j]}",
            f"n{graph.tails[j]}",
            key=f"e{j}",
            relation=_printable(relation.relation),
            critical=flags.critical,
            contradicts="; ".join(f"e{other}" for other in flags.contradicts),
            passages="; ".join(graph.passages_of_edge(j)),
            **{name: value for name, value in known.items() if value is not None},
        )
    return "\n".join(nx.generate_graphml(network))


def to_json_ld(view: View) -> str:
    """JSON-LD: things in schema.org's words, relations as RDF statements about two of them."""
    return json.dumps(
        {"@context": _CONTEXT, "@graph": [*_things(view), *_statements(view)]},
        ensure_ascii=False,
        indent=1,
    )


def to_neo4j(view: View, folder: Path | str) -> tuple[Path, Path]:
    """Write the files that `neo4j-admin database import` takes, with default delimiters.

    Returns:
        The paths for `--nodes` and `--relationships`.
    """
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    graph = view.graph
    nodes = (
        (i, e.name, e.type, _array(e.attributes), _array(e.aliases), graph.wikidata(i),
         _array(graph.passages_of(i)), "Value" if graph.plain_values[i] else "Thing")
        for i, e in enumerate(graph.entities)
    )  # fmt: skip
    _write(target / NODES_CSV, _NODE_HEADER, nodes)
    _write(target / RELATIONSHIPS_CSV, _EDGE_HEADER, _relationships(view))
    return target / NODES_CSV, target / RELATIONSHIPS_CSV


def _relationships(view: View) -> Iterator[tuple[Any, ...]]:
    graph = view.graph
    for j in _edges(view):
        relation, flags = graph.edge(j), graph.flags(j)
        yield (
            graph.heads[j],
            graph.tails[j],
            relation.relation,
            relation.time or "",
            "" if relation.confidence is None else relation.confidence,
            str(flags.critical).lower(),
            str(bool(flags.contradicts)).lower(),
            _array(graph.passages_of_edge(j)),
            relationship_type(relation.relation),
        )


def relationship_type(relation: str) -> str:
    """A relation as Neo4j writes types.

    >>> relationship_type("was born in"), relationship_type("→")
    ('BORN_IN', 'RELATED_TO')
    """
    return re.sub(r"\W+", "_", relation_key(relation)).strip("_").upper() or "RELATED_TO"


def _things(view: View) -> Iterator[dict[str, Any]]:
    graph = view.graph
    for i, entity in enumerate(graph.entities):
        wikidata = graph.wikidata(i)
        told = {
            "name": entity.name,
            "additionalType": entity.type,
            "description": "; ".join(entity.attributes),
            "alternateName": list(entity.aliases),
            "sameAs": f"{_WIKIDATA}{wikidata}" if wikidata else "",
            "citation": list(graph.passages_of(i)),
        }
        yield {"@id": f"#n{i}", "@type": "Thing", **{k: v for k, v in told.items() if v}}


def _statements(view: View) -> Iterator[dict[str, Any]]:
    graph = view.graph
    for j in _edges(view):
        relation, flags = graph.edge(j), graph.flags(j)
        told = {
            "temporalCoverage": relation.time,
            "confidence": relation.confidence,
            "contradicts": [{"@id": f"#e{other}"} for other in flags.contradicts],
            "citation": list(graph.passages_of_edge(j)),
        }
        yield {
            "@id": f"#e{j}",
            "@type": "rdf:Statement",
            "subject": f"#n{graph.heads[j]}",
            "predicate": relation.relation,
            "object": f"#n{graph.tails[j]}",
            **{key: value for key, value in told.items() if value not in (None, [])},
        }


def _edges(view: View) -> Iterator[int]:
    return (int(j) for j in view.edges.nonzero()[0])


def _array(texts: Iterable[str]) -> str:
    """Texts as Neo4j reads a list: between semicolons, of which none may hold one."""
    return ";".join(text.replace(";", ",") for text in texts)


def _printable(text: str) -> str:
    """Without control characters, which XML cannot hold."""
    return "".join(c for c in text if c.isprintable())


def _write(path: Path, header: Iterable[str], rows: Iterable[Iterable[Any]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        writer.writerows(rows)
