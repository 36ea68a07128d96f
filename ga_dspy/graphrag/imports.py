"""Import a graph: rows of facts, RDF or GraphML become passages whose facts are known.

Whoever imports a row vouches for it: nothing is grounded, and the text of a row need not state it.
The metadata of its passage tell so: `imported` is the name of the file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple, TypeAlias
from urllib.parse import quote, unquote

from pydantic import BeforeValidator, ConfigDict, ValidationError, model_validator

from ga_dspy.errors import InputError, MissingExtra, listed, require
from ga_dspy.graph import Entity, Evidence, GraphUpdate, Relation
from ga_dspy.graph.records import Confidence, Line, Lines, Name, Value
from ga_dspy.graph.traits import LOCAL, id_line
from ga_dspy.graphrag.build import record_passages
from ga_dspy.graphrag.linking import fact_text
from ga_dspy.graphrag.stored import StoredGraph
from ga_dspy.grounding import quote_ends
from ga_dspy.passage import Metadata, Passage
from ga_dspy.retrieval import Changes, Index
from ga_dspy.retrieval.documents import decode, json_lines, table_lines
from ga_dspy.retrieval.encoders import Progress
from ga_dspy.retrieval.protocol import content_hash
from ga_dspy.retrieval.redact import Redact, Redactor, load_redactor
from ga_dspy.storage import MANIFEST
from ga_dspy.text import Mention, mentions

# --- A row

_BETWEEN: Final = re.compile(r"\s*[;|]\s*")
_WIKIDATA: Final = re.compile(r"https?://www\.wikidata\.org/(?:entity|wiki)/(?=Q\d)")


def _items(value: Any) -> Any:
    """Split "a; b", "a | b" or a JSON list."""
    if not isinstance(value, str):
        return value if isinstance(value, list | tuple) else [str(value)]
    if value.startswith("["):
        with suppress(ValueError):
            return json.loads(value)
    return list(filter(None, _BETWEEN.split(value)))


def _ids(value: Any) -> Any:
    ids = [_WIKIDATA.sub("wikidata:", str(id)) for id in _items(value)]
    for id in ids:
        id_line(id)  # raises ValueError if it has no namespace
    return ids


Items = Annotated[Lines, BeforeValidator(_items)]
Ids = Annotated[tuple[str, ...], BeforeValidator(_ids)]


class Fact(Value):
    """A row: a relation between two entities, or, if `is_entity`, its head alone.

    Attributes:
        head_id: Ids such as "wikidata:Q42" or IRIs.
        time: When it holds, in words: "since 1958".
        text: A text that states it; by default the row itself as a sentence.
        title: The title of the text.
        source: Where it comes from; by default the file.
        id: The id of the passage within its file; by default a hash of its text and metadata.
        metadata: The other columns.
    """

    model_config = ConfigDict(coerce_numbers_to_str=True)

    head: Name
    relation: Line = ""
    tail: Line = ""
    head_type: Line = ""
    tail_type: Line = ""
    head_id: Ids = ()
    tail_id: Ids = ()
    head_aliases: Items = ()
    tail_aliases: Items = ()
    head_attributes: Items = ()
    tail_attributes: Items = ()
    time: Line | None = None
    confidence: Confidence | None = None
    text: str = ""
    title: Line = ""
    source: Line = ""
    id: Line = ""
    is_entity: bool = False
    metadata: Metadata = Metadata()

    @model_validator(mode="before")
    @classmethod
    def _is_whole(cls, given: Mapping[str, Any]) -> Mapping[str, Any]:
        needed = ("head",) if given.get("is_entity") else ("head", "relation", "tail")
        missing = [f"no {name}" for name in needed if given.get(name) in (None, "")]
        if missing:
            raise ValueError(", ".join(missing))
        return given

    @property
    def ends(self) -> tuple[_End, ...]:
        """Return the entities of the row."""
        parts = ("", "_type", "_id", "_aliases", "_attributes")
        sides = ("head",) if self.is_entity else ("head", "tail")
        return tuple(_End(*(getattr(self, f"{side}{part}") for part in parts)) for side in sides)

    def passage(self, name: str) -> Passage:
        """Return the passage of the row in a file of this name."""
        text, title = self.text, self.title
        if not text:
            title = title or self.head
            text = self._in_a_sentence()
            text = text if text.endswith((".", "!", "?")) else f"{text}."
        named = {"imported": name, "source": self.source or name}
        metadata = Metadata({**named, **self.metadata, **named})
        key = self.id or content_hash(title, f"{text}\n{json.dumps(metadata, sort_keys=True)}")
        return Passage(id=f"{name}#{key}", title=title, text=text, metadata=metadata)

    def _in_a_sentence(self) -> str:
        if not self.is_entity:
            stated = self.model_dump(include={"head", "relation", "tail", "time"})
            return fact_text(Relation(**stated))
        about = filter(None, (self.head_type, *self.head_attributes, *self.head_aliases))
        return ": ".join(filter(None, (self.head, "; ".join(about))))


class _End(NamedTuple):
    name: str
    type: str
    ids: tuple[str, ...]
    aliases: tuple[str, ...]
    attributes: tuple[str, ...]


_FIELDS: Final = (*(name for name in Fact.model_fields if name != "metadata"), "evidence")

Record: TypeAlias = tuple[str, Mapping[str, Any] | str]
"""A place in a file and the row there, or what is wrong with it."""


def _in_words(relation: Any) -> Any:
    """Return an identifier as words.

    >>> _in_words("BORN_IN"), _in_words("birthPlace"), _in_words("CEO of")
    ('born in', 'birth place', 'CEO of')
    """
    text = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", str(relation).replace("_", " ")).strip()
    return relation if " " in str(relation).strip() or " " not in text else text.lower()


def _by_field(row: Mapping[str, Any] | str, columns: Mapping[str, str]) -> Mapping[str, Any] | str:
    """Return a row by field; columns that are no field are metadata."""
    if isinstance(row, str):
        return row
    field_of = {column: field for field, column in columns.items()}
    given, others = dict[str, Any](), dict[str, Any]()
    for column, value in row.items():
        plain = str(column).strip()
        own = plain.lower() if plain.lower() in _FIELDS and plain not in columns else ""
        field = field_of.get(plain, own)
        value = value.strip() if isinstance(value, str) else value
        if value not in (None, "", [], ()) and value == value:  # not NaN, as pandas has it
            (given if field else others)[field or plain] = value
    if "text" not in given:
        given["text"] = given.pop("evidence", "")
    if "relation" in given:
        given["relation"] = _in_words(given["relation"])
    return {**given, "metadata": others}


# --- Tables and lines


def _table(path: Path, name: str) -> Iterator[Record]:
    lines = table_lines(decode(path.read_bytes())[0], "\t" if path.suffix == ".tsv" else "")
    names = lines[0][1] if lines else []
    for number, cells in lines[1:]:
        row = dict(zip(names, cells, strict=False))
        yield f"line {number}", row if len(cells) <= len(names) else "more cells than columns"


def _json_lines(path: Path, name: str) -> Iterator[Record]:
    for place, row in json_lines(decode(path.read_bytes())[0]):
        yield place, row if isinstance(row, dict) else "no JSON object"


# --- GraphML


def _graphml(path: Path, name: str) -> Iterator[Record]:
    """Yield the edges, once for each of their quotes, and the isolated nodes."""
    import networkx as nx

    network = nx.read_graphml(path)

    def end(side: str, node: Any) -> dict[str, Any]:
        about = network.nodes[node]
        labels = str(about.get("labels", "")).strip(":").split(":")  # as Neo4j writes them
        ids = [*_items(about.get("ids", "")), _local_id(name, node)]
        lists = {f"{side}_{key}": about[key] for key in ("aliases", "attributes") if key in about}
        named = about.get("name") or about.get("label") or str(node)
        kind = about.get("type") or labels[0]
        return {side: named, f"{side}_type": kind, f"{side}_id": ids, **lists}

    for number, (head, tail, about) in enumerate(network.edges(data=True), 1):
        relation = about.get("relation") or about.get("label") or about.get("type")
        stated = {key: about[key] for key in ("time", "confidence") if key in about}
        stated["metadata"] = {key: about[key] for key in about.keys() - _EDGE}
        row = {**end("head", head), "relation": relation, **end("tail", tail), **stated}
        evidence = str(about.get("evidence", ""))
        for quoted in _items(evidence) if evidence.startswith("[") else [evidence]:
            shown = quoted if isinstance(quoted, dict) else {"text": quoted}
            yield f"edge {number}", {**row, **{k: shown.get(k, "") for k in _QUOTED}}
    for node in nx.isolates(network):
        yield f"node {node}", {**end("head", node), "is_entity": True}


_EDGE: Final = frozenset("relation label type time confidence evidence passages id".split())
_QUOTED: Final = ("title", "source", "text")


def _local_id(name: str, node: object) -> str:
    return f"{LOCAL}{quote(name, safe='')}:{quote(str(node), safe='')}"


# --- RDF


def _rdf(path: Path, name: str) -> Iterator[Record]:
    """Yield the triples between resources, or with a value, and what describes the others.

    Labels name the resources, classes are types, and IRIs are ids, also those of `owl:sameAs`.
    """
    rdflib = require("rdflib", "rdf")
    graph = rdflib.Graph().parse(path, format=rdflib.util.guess_format(path.name))
    if any(isinstance(node, rdflib.BNode) for node in graph.all_nodes()):
        graph = require("rdflib.compare", "rdf").to_canonical_graph(graph)  # stable blank nodes
    rdf, rdfs, skos, owl = rdflib.RDF, rdflib.RDFS, rdflib.SKOS, rdflib.OWL
    labels = (rdfs.label, skos.prefLabel, rdflib.SDO.name, rdflib.FOAF.name)
    texts = (rdfs.comment, skos.definition, rdflib.DCTERMS.description, rdflib.SDO.description)
    same = (owl.sameAs, skos.exactMatch)
    schema = tuple(map(str, (rdf, rdfs, owl, skos)))

    def literals(node: Any, properties: Iterable[Any]) -> list[str]:
        """Return the values in English or without a language, else all."""
        found = sorted(o for p in properties for o in graph.objects(node, p) if not _is_node(o))
        ours = [text for text in found if (text.language or "en").startswith("en")]
        return list(dict.fromkeys(map(str, ours or found)))

    def _is_node(node: Any) -> bool:
        return not isinstance(node, rdflib.Literal)

    def name_of(node: Any) -> str:
        named = literals(node, labels) if _is_node(node) else [str(node)]
        local = unquote(re.split(r"[/#]", str(node).rstrip("/#"))[-1])
        return named[0] if named else local.replace("_", " ")

    def end(side: str, node: Any) -> dict[str, Any]:
        if not _is_node(node):
            return {side: str(node)}
        kinds = sorted(graph.objects(node, rdf.type))
        types = [_in_words(name_of(kind)) for kind in kinds if not str(kind).startswith(schema)]
        nodes = [node, *(o for p in same for o in sorted(graph.objects(node, p)))]
        ids = [_local_id(name, n) if isinstance(n, rdflib.BNode) else str(n) for n in nodes]
        names = [*literals(node, labels)[1:], *literals(node, (skos.altLabel,))]
        row = {side: name_of(node), f"{side}_type": "".join(types[:1]), f"{side}_id": ids}
        return {**row, f"{side}_aliases": names, f"{side}_attributes": types[1:]}

    described = {rdf.type, skos.altLabel, *labels, *texts, *same}
    typed = {node for node, kind in graph.subject_objects(rdf.type) if kind.endswith("Property")}
    properties, related = typed | {*graph.predicates()}, set[Any]()
    for number, (head, relation, tail) in enumerate(sorted(graph), 1):
        if relation not in described and head not in properties:
            related |= {head, tail}
            words = _in_words(name_of(relation))
            yield f"triple {number}", {**end("head", head), "relation": words, **end("tail", tail)}
    classes = {*graph.objects(None, rdf.type)}
    for node in sorted({*graph.subjects()} - properties):
        stated = literals(node, texts)
        if stated or node not in related | classes:
            for text in stated or [""]:
                about = {"text": text, "title": name_of(node) if text else "", "is_entity": True}
                yield f"resource {node}", {**end("head", node), **about}


_RDF_FILES: Final = (".nt", ".ttl", ".n3", ".rdf", ".owl", ".jsonld")
_READERS: Final[Mapping[str, Callable[[Path, str], Iterator[Record]]]] = {
    **dict.fromkeys((".csv", ".tsv"), _table),
    **dict.fromkeys((".jsonl", ".ndjson"), _json_lines),
    ".graphml": _graphml,
    **dict.fromkeys(_RDF_FILES, _rdf),
}

# --- From rows to passages with records


_KEPT: Final = ("id", "head_id", "tail_id", "source", "confidence")


def _redacted(row: Mapping[str, Any], redactor: Redactor) -> Mapping[str, Any]:
    """Return a row as the index requires it; ids and sources stay."""
    texts = {n: v if n in _KEPT else redactor.value(v) for n, v in row.items()}
    return {**texts, "metadata": redactor.metadata(row.get("metadata", {}))}


def _read(
    name: str, records: Iterable[Record], bad: list[str], redactor: Redactor | None
) -> dict[Passage, GraphUpdate]:
    """Return the passages of a file and what they state; list its bad rows."""
    passages, facts = dict[str, Passage](), dict[str, list[Fact]]()
    for place, row in records:
        try:
            if isinstance(row, str):
                raise ValueError(redactor(row) if redactor else row)
            fact = Fact.model_validate(_redacted(row, redactor) if redactor else row)
            passage = fact.passage(name)
            passage = redactor.passage(passage) if redactor else passage
            if passages.setdefault(passage.id, passage) != passage:
                raise ValueError(f"id {fact.id!r} has another text or other metadata above")
        except ValidationError as error:
            faults = (_fault(each) for each in error.errors())
            bad.append(f"{name}, {place}: {'; '.join(faults)}")
        except ValueError as error:
            bad.append(f"{name}, {place}: {error}")
        else:
            facts.setdefault(passage.id, []).append(fact)
    return {passage: _update(passage, facts[id]) for id, passage in passages.items()}


def _fault(error: Any) -> str:
    """Return a fault that Pydantic found in one line."""
    text = error["msg"].removeprefix("Value error, ")
    where = ".".join(map(str, error["loc"]))
    return f"{where} {error['input']!r:.40}: {text}" if where else text


_SHORT: Final = 3
"""Names of so few letters mean something else in lower case: US."""


def _update(passage: Passage, facts: Sequence[Fact]) -> GraphUpdate:
    """Return the records of a passage; two ends of one name and different ids get two names."""
    content, ends = passage.content, dict[str, list[_End]]()
    whole = Evidence(passage=passage.id, start=len(content) - len(passage.text), end=len(content))

    def add(end: _End) -> str:
        known = {id for other in ends.get(end.name, ()) for id in other.ids}
        is_other = known and end.ids and known.isdisjoint(end.ids)
        name = f"{end.name} ({end.ids[0]})" if is_other else end.name
        ends.setdefault(name, []).append(end)
        return name

    def places(several: Iterable[_End]) -> tuple[Mention, ...]:
        names = [name for end in several for name in (end.name, *end.aliases)]
        names += [end.name.lower() for end in several if len(end.name) > _SHORT]  # Metformin
        return next(filter(None, (mentions(name, content) for name in names)), ())

    relations = list[Relation]()
    for fact in facts:
        names = [add(end) for end in fact.ends]
        if not fact.is_entity:
            at = [places([end]) for end in fact.ends]
            evidence = quote_ends(passage, *at) if all(at) else (whole,)
            stated = fact.model_dump(include={"relation", "time", "confidence"})
            relations.append(Relation(head=names[0], tail=names[1], evidence=evidence, **stated))
    entities = list[Entity]()
    for name, several in ends.items():
        types = [end.type for end in several if end.type]
        first = (
            Evidence(passage=passage.id, start=span.start, end=span.end)
            for span in places(several)[:1]
        )
        entities.append(
            Entity(
                name=name,
                type="".join(types[:1]),
                attributes=(*types[1:], *(a for end in several for a in end.attributes)),
                aliases=tuple(alias for end in several for alias in end.aliases),
                about=tuple(sorted({id_line(id) for end in several for id in end.ids})),
                evidence=tuple(first) or (whole,),
            )
        )
    return GraphUpdate(entities=tuple(entities), relations=tuple(dict.fromkeys(relations)))


# --- Import


class Imported(NamedTuple):
    """What an import made.

    Attributes:
        graph: The stored graph; `manifest.unread` counts passages that an LM has yet to read.
        changes: The passages that were added, changed, removed, and left as they were.
        skipped: The bad rows, with their places.
    """

    graph: StoredGraph
    changes: Changes
    skipped: tuple[str, ...]


def import_graph(
    rows: Path | str | Iterable[Any],
    *,
    index: Index | Path | str,
    out: Path | str,
    columns: Mapping[str, str] | None = None,
    name: str | None = None,
    labels: Mapping[str, Iterable[str]] | None = None,
    skip_bad_rows: bool = False,
    redact: str | Redact | None = None,
    progress: Progress | None = None,
) -> Imported:
    """Import facts into an index and its graph, beside what an LM reads; no LM is called.

    Each row becomes a passage of the index: its text, or the row as a sentence. Rows of one text
    and the same metadata share it. To import a file of the same name again replaces its rows.

    Args:
        rows: Files (CSV, TSV, JSON lines, GraphML, or RDF with the extra `rdf`), or rows: mappings
            with the fields of `Fact`, or triples of head, relation and tail.
        index: The index, or its folder, which is built if there is none.
        out: The folder of the graph; created if missing.
        columns: The names of columns by field: `{"head": "subject"}`.
        name: The name under which the rows are stored; by default that of the file, or "rows".
        labels: As for `update_graph`; the ids of imported passages begin with the name and "#".
        skip_bad_rows: Leave out bad rows; by default nothing is imported if there is one.
        redact: As for `Index.open`, or for `Index.build` if there is no index yet. Rows are
            redacted as the index is; their ids and sources stay.
        progress: As for `build_graph`.

    Raises:
        InputError: A row is bad, a file cannot be read or has no rows, or the index or the graph
            cannot be changed.
        MissingExtra: A file is RDF, and rdflib is not installed.
    """
    unknown = {*(columns or {})} - {*_FIELDS}
    if unknown:
        raise InputError(
            f"columns for {listed(sorted(unknown))}",
            expected=f"some of {', '.join(_FIELDS)}",
            remedy='pass columns={"head": "subject"}',
        )
    is_new = not isinstance(index, Index) and not (Path(index) / MANIFEST).is_file()
    if not isinstance(index, Index) and not is_new:
        index = Index.open(index, redact=redact)
    redactor = index.redactor if isinstance(index, Index) else load_redactor(redact)
    given, bad, names = dict[Passage, GraphUpdate](), list[str](), list[str]()
    for source, records in _sources(rows, name, columns or {}):
        names.append(source)
        given |= _read(source, records, bad, redactor)
    if bad and not (skip_bad_rows and given):
        raise InputError(
            f"nothing was imported because of {len(bad):,} bad row{'s' * (len(bad) > 1)}: "
            f"{listed(bad, 10, '; ')}",
            expected="head, relation and tail in every row",
            remedy="correct them, name the columns (--columns head=subject,tail=object), or skip "
            "bad rows (--skip-bad-rows)",
        )
    if not isinstance(index, Index):
        index = Index.build([*given], index, redact=redactor) if given else Index.open(index)
    new = {passage.id for passage in given}
    removed = [p.id for p in index if p.id not in new and p.imported in names]
    if not given and not removed:
        raise InputError(
            f"no rows in {', '.join(names)}", expected="at least one", remedy="check the file"
        )
    stored, changes = record_passages(
        index, out, given, removed=removed, labels=labels, progress=progress
    )
    if is_new:
        changes = changes._replace(added=changes.unchanged, unchanged=())
    return Imported(stored, changes, tuple(bad))


def _row(given: Any) -> Mapping[str, Any] | str:
    match given:
        case Mapping():
            return given
        case (head, relation, tail):
            return {"head": head, "relation": relation, "tail": tail}
    return f"{given!r:.40} is no mapping and no triple"


def _sources(
    rows: Path | str | Iterable[Any], name: str | None, columns: Mapping[str, str]
) -> Iterator[tuple[str, Iterable[Record]]]:
    """Yield the rows of each file, or those given, with the name of their source."""
    several: list[Any] = [rows] if isinstance(rows, Path | str) else list(rows)
    if not several or not all(isinstance(each, Path | str) for each in several):
        rows = (_by_field(_row(row), columns) for row in several)
        yield name or "rows", [(f"row {number}", row) for number, row in enumerate(rows, 1)]
        return
    paths = list(map(Path, several))
    if len({name or path.name for path in paths}) < len(paths):
        raise InputError(
            "several files under one name",
            expected="a name for each, under which its rows are replaced",
            remedy="import them one by one, with another name (--name)",
        )
    for path in paths:
        reader = _READERS.get(path.suffix.lower())
        if reader is None or not path.is_file():
            raise InputError(
                f"{path} is a {path.suffix or 'nameless'} file" if path.is_file() else f"no {path}",
                expected=f"a file that ends in {', '.join(_READERS)}",
                remedy="check the path, or convert the file",
            )
        own = name or path.name
        try:
            records = list(reader(path, own))
        except MissingExtra:
            raise
        except Exception as error:  # parsers raise anything for a damaged file; the file is named
            raise InputError(
                f"{path} does not read as {path.suffix[1:]} ({getattr(error, 'found', error)})",
                expected="a complete file",
                remedy="check the file, or write it again",
            ) from error
        if reader in (_table, _json_lines):
            records = [(place, _by_field(row, columns)) for place, row in records]
        yield own, records
