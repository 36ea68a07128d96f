"""Import a graph: rows of facts, RDF or GraphML become passages with known facts.

Imported facts are not grounded: the text of a row need not state them. The metadata field
`imported` marks such passages; its value is the name of the file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
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

# --- The fields of a row

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
        id_line(id)  # raises ValueError if the id has no namespace
    return ids


Items = Annotated[Lines, BeforeValidator(_items)]
Ids = Annotated[tuple[str, ...], BeforeValidator(_ids)]


class Fact(Value):
    """A row: a relation between two entities, or an entity alone if `is_entity`.

    Attributes:
        head_id: Ids such as "wikidata:Q42" or IRIs.
        time: When the relation holds, in words: "since 1958".
        text: A text that states the fact; by default the row as a sentence.
        title: The title of the text.
        source: The source of the fact; by default the name of the file.
        id: The id of the passage within its file; by default a hash of its text and metadata.
        is_entity: Whether the row describes only its head.
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
    def _check_required(cls, row: Mapping[str, Any]) -> Mapping[str, Any]:
        required = ("head",) if row.get("is_entity") else ("head", "relation", "tail")
        missing = [f"no {name}" for name in required if row.get(name) in (None, "")]
        if missing:
            raise ValueError(", ".join(missing))
        return row

    @property
    def ends(self) -> tuple[_End, ...]:
        """Return the entities of the row."""
        head = (self.head, self.head_type, self.head_id, self.head_aliases, self.head_attributes)
        if self.is_entity:
            return (_End(*head),)
        tail = (self.tail, self.tail_type, self.tail_id, self.tail_aliases, self.tail_attributes)
        return _End(*head), _End(*tail)

    def passage(self, name: str) -> Passage:
        """Return the row as a passage, given the name of the file."""
        text, title = self.text, self.title
        if not text:
            title = title or self.head
            text = self._as_sentence()
            if not text.endswith((".", "!", "?")):
                text += "."
        # Other columns cannot replace these two, which come first.
        origin = {"imported": name, "source": self.source or name}
        metadata = Metadata({**origin, **self.metadata, **origin})
        key = self.id or content_hash(title, f"{text}\n{json.dumps(metadata, sort_keys=True)}")
        return Passage(id=f"{name}#{key}", title=title, text=text, metadata=metadata)

    def _as_sentence(self) -> str:
        if not self.is_entity:
            fields = self.model_dump(include={"head", "relation", "tail", "time"})
            return fact_text(Relation(**fields))
        description = filter(None, (self.head_type, *self.head_attributes, *self.head_aliases))
        return ": ".join(filter(None, (self.head, "; ".join(description))))


class _End(NamedTuple):
    name: str
    type: str
    ids: tuple[str, ...]
    aliases: tuple[str, ...]
    attributes: tuple[str, ...]


_FIELDS: Final = (*(name for name in Fact.model_fields if name != "metadata"), "evidence")

Record: TypeAlias = tuple[str, Mapping[str, Any] | str]
"""A place in a file, and the row there or the error in it."""


def _in_words(relation: Any) -> Any:
    """Split an identifier into words; other text is unchanged.

    >>> _in_words("BORN_IN"), _in_words("birthPlace"), _in_words("CEO of")
    ('born in', 'birth place', 'CEO of')
    """
    text = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", str(relation).replace("_", " ")).strip()
    return relation if " " in str(relation).strip() or " " not in text else text.lower()


def _by_field(row: Mapping[str, Any] | str, columns: Mapping[str, str]) -> Mapping[str, Any] | str:
    """Map the columns of a row to the fields of `Fact`; other columns become metadata."""
    if isinstance(row, str):
        return row
    field_of = {column: field for field, column in columns.items()}
    fields, metadata = dict[str, Any](), dict[str, Any]()
    for column, value in row.items():
        name = str(column).strip()
        value = value.strip() if isinstance(value, str) else value
        if value in (None, "", [], ()) or value != value:  # NaN in pandas is a missing value
            continue
        if name in field_of:
            fields[field_of[name]] = value
        elif name.lower() in _FIELDS and name.lower() not in columns:
            fields[name.lower()] = value
        else:
            metadata[name] = value
    if "text" not in fields:
        fields["text"] = fields.pop("evidence", "")
    if "relation" in fields:
        fields["relation"] = _in_words(fields["relation"])
    return {**fields, "metadata": metadata}


# --- Read CSV, TSV and JSON lines


def _table(path: Path, name: str) -> Iterator[Record]:
    lines = table_lines(decode(path.read_bytes())[0], "\t" if path.suffix == ".tsv" else "")
    names = lines[0][1] if lines else []
    for number, cells in lines[1:]:
        row = dict(zip(names, cells, strict=False))
        yield f"line {number}", row if len(cells) <= len(names) else "more cells than columns"


def _json_lines(path: Path, name: str) -> Iterator[Record]:
    for place, row in json_lines(decode(path.read_bytes())[0]):
        yield place, row if isinstance(row, dict) else "not a JSON object"


# --- Read GraphML


def _graphml(path: Path, name: str) -> Iterator[Record]:
    """Yield the edges, once per quote, and the isolated nodes."""
    import networkx as nx

    network = nx.read_graphml(path)

    def end(side: str, node: Any) -> dict[str, Any]:
        fields = network.nodes[node]
        labels = str(fields.get("labels", "")).strip(":").split(":")  # as Neo4j writes them
        ids = [*_items(fields.get("ids", "")), _local_id(name, node)]
        lists = {f"{side}_{key}": fields[key] for key in ("aliases", "attributes") if key in fields}
        shown = fields.get("name") or fields.get("label") or str(node)
        kind = fields.get("type") or labels[0]
        return {side: shown, f"{side}_type": kind, f"{side}_id": ids, **lists}

    for number, (head, tail, fields) in enumerate(network.edges(data=True), 1):
        relation = fields.get("relation") or fields.get("label") or fields.get("type")
        row = {**end("head", head), "relation": relation, **end("tail", tail)}
        row |= {key: fields[key] for key in ("time", "confidence") if key in fields}
        row["metadata"] = {key: fields[key] for key in fields.keys() - _EDGE_FIELDS}
        evidence = str(fields.get("evidence", ""))
        for quoted in _items(evidence) if evidence.startswith("[") else [evidence]:
            source = quoted if isinstance(quoted, dict) else {"text": quoted}
            yield f"edge {number}", {**row, **{k: source.get(k, "") for k in _QUOTE_FIELDS}}
    for node in nx.isolates(network):
        yield f"node {node}", {**end("head", node), "is_entity": True}


_EDGE_FIELDS: Final = frozenset("relation label type time confidence evidence passages id".split())
_QUOTE_FIELDS: Final = ("title", "source", "text")


def _local_id(name: str, node: object) -> str:
    return f"{LOCAL}{quote(name, safe='')}:{quote(str(node), safe='')}"


# --- Read RDF


def _rdf(path: Path, name: str) -> Iterator[Record]:
    """Yield the triples, then the resources that have a description or are in no triple.

    Labels become names, classes become types, and IRIs become ids, also those of `owl:sameAs`.
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
        """Return the values in English or without a language; if there are none, all values."""
        objects = chain.from_iterable(graph.objects(node, p) for p in properties)
        values = sorted(value for value in objects if isinstance(value, rdflib.Literal))
        english = [text for text in values if (text.language or "en").startswith("en")]
        return list(dict.fromkeys(map(str, english or values)))

    def name_of(node: Any) -> str:
        if isinstance(node, rdflib.Literal):
            return str(node)
        if names := literals(node, labels):
            return names[0]
        local = unquote(re.split(r"[/#]", str(node).rstrip("/#"))[-1])
        return local.replace("_", " ")

    def end(side: str, node: Any) -> dict[str, Any]:
        if isinstance(node, rdflib.Literal):
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
                title = name_of(node) if text else ""
                row = {**end("head", node), "text": text, "title": title, "is_entity": True}
                yield f"resource {node}", row


_READERS: Final[Mapping[str, Callable[[Path, str], Iterator[Record]]]] = {
    **dict.fromkeys((".csv", ".tsv"), _table),
    **dict.fromkeys((".jsonl", ".ndjson"), _json_lines),
    ".graphml": _graphml,
    **dict.fromkeys((".nt", ".ttl", ".n3", ".rdf", ".owl", ".jsonld"), _rdf),
}

# --- From rows to passages with records


_NOT_REDACTED: Final = ("id", "head_id", "tail_id", "source", "confidence")


def _redact(row: Mapping[str, Any], redactor: Redactor) -> Mapping[str, Any]:
    """Redact the texts and metadata of a row."""
    texts = {n: v if n in _NOT_REDACTED else redactor.value(v) for n, v in row.items()}
    return {**texts, "metadata": redactor.metadata(row.get("metadata", {}))}


def _read(
    name: str, records: Iterable[Record], bad: list[str], redactor: Redactor | None
) -> dict[Passage, GraphUpdate]:
    """Return the passages of a file with their records; append its bad rows to `bad`."""
    passages, facts = dict[str, Passage](), dict[str, list[Fact]]()
    for place, row in records:
        try:
            if isinstance(row, str):
                raise ValueError(redactor(row) if redactor else row)
            fact = Fact.model_validate(_redact(row, redactor) if redactor else row)
            passage = fact.passage(name)
            passage = redactor.passage(passage) if redactor else passage
            if passages.setdefault(passage.id, passage) != passage:
                raise ValueError(f"id {fact.id!r} has another text or other metadata above")
        except ValidationError as error:
            bad.append(f"{name}, {place}: {'; '.join(map(_message, error.errors()))}")
        except ValueError as error:
            bad.append(f"{name}, {place}: {error}")
        else:
            facts.setdefault(passage.id, []).append(fact)
    return {passage: _records(passage, facts[id]) for id, passage in passages.items()}


def _message(error: Any) -> str:
    """Return one line for a validation error of Pydantic."""
    text = error["msg"].removeprefix("Value error, ")
    where = ".".join(map(str, error["loc"]))
    return f"{where} {error['input']!r:.40}: {text}" if where else text


_SHORT: Final = 3
"""Names of up to this many letters are not searched for in lower case: US is not "us"."""


def _records(passage: Passage, facts: Sequence[Fact]) -> GraphUpdate:
    """Return the records of a passage; ends with the same name but other ids get another name."""
    content, ends_of = passage.content, dict[str, list[_End]]()
    whole = Evidence(passage=passage.id, start=len(content) - len(passage.text), end=len(content))

    def add(end: _End) -> str:
        known = {id for other in ends_of.get(end.name, ()) for id in other.ids}
        is_namesake = known and end.ids and known.isdisjoint(end.ids)
        name = f"{end.name} ({end.ids[0]})" if is_namesake else end.name
        ends_of.setdefault(name, []).append(end)
        return name

    def places(ends: Iterable[_End]) -> tuple[Mention, ...]:
        names = [name for end in ends for name in (end.name, *end.aliases)]
        names += [end.name.lower() for end in ends if len(end.name) > _SHORT]  # Metformin
        return next(filter(None, (mentions(name, content) for name in names)), ())

    relations = list[Relation]()
    for fact in facts:
        names = [add(end) for end in fact.ends]
        if not fact.is_entity:
            spans = [places([end]) for end in fact.ends]
            evidence = quote_ends(passage, *spans) if all(spans) else (whole,)
            fields = fact.model_dump(include={"relation", "time", "confidence"})
            relations.append(Relation(head=names[0], tail=names[1], evidence=evidence, **fields))
    entities = list[Entity]()
    for name, ends in ends_of.items():
        types = [end.type for end in ends if end.type]
        attributes = chain.from_iterable(end.attributes for end in ends)
        aliases = chain.from_iterable(end.aliases for end in ends)
        ids = {id_line(id) for end in ends for id in end.ids}
        span = whole
        if found := places(ends):
            span = Evidence(passage=passage.id, start=found[0].start, end=found[0].end)
        entities.append(
            Entity(
                name=name,
                type="".join(types[:1]),
                attributes=(*types[1:], *attributes),
                aliases=tuple(aliases),
                about=tuple(sorted(ids)),
                evidence=(span,),
            )
        )
    return GraphUpdate(entities=tuple(entities), relations=tuple(dict.fromkeys(relations)))


# --- Import


class Imported(NamedTuple):
    """The result of an import.

    Attributes:
        graph: The stored graph; `manifest.unread` counts passages that an LM has yet to read.
        changes: The passages that were added, changed, removed or left unchanged.
        skipped: Descriptions of the bad rows, with their places.
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
    """Import facts into an index and its graph, next to extracted ones; no LM is called.

    Each row becomes a passage of the index, with the row's text or the row as a sentence. Rows with
    the same text and metadata share a passage. Importing a file with the same name again replaces
    its rows.

    Args:
        rows: Files (CSV, TSV, JSON lines, GraphML, or RDF with the extra `rdf`), or rows: mappings
            with the fields of `Fact`, or triples of head, relation and tail.
        index: The index, or its folder; the index is built if there is none.
        out: The folder of the graph; created if missing.
        columns: The names of columns by field: `{"head": "subject"}`.
        name: The name under which the rows are stored; by default the file name, or "rows".
        labels: As for `update_graph`; the ids of imported passages begin with the name and "#".
        skip_bad_rows: Skip bad rows; by default nothing is imported if there is one.
        redact: As for `Index.open`, or for `Index.build` if there is no index yet. Rows are
            redacted like the index, except for their ids and sources.
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


def _as_mapping(row: Any) -> Mapping[str, Any] | str:
    match row:
        case Mapping():
            return row
        case (head, relation, tail):
            return {"head": head, "relation": relation, "tail": tail}
    return f"{row!r:.40} is neither a mapping nor a triple"


def _sources(
    rows: Path | str | Iterable[Any], name: str | None, columns: Mapping[str, str]
) -> Iterator[tuple[str, Iterable[Record]]]:
    """Yield the name and the rows of each file, or of the rows that were passed."""
    items: list[Any] = [rows] if isinstance(rows, Path | str) else list(rows)
    if not items or not all(isinstance(item, Path | str) for item in items):
        rows = (_by_field(_as_mapping(row), columns) for row in items)
        yield name or "rows", [(f"row {number}", row) for number, row in enumerate(rows, 1)]
        return
    paths = list(map(Path, items))
    if len({name or path.name for path in paths}) < len(paths):
        raise InputError(
            "several files under one name",
            expected="a different name for each file, since importing a name replaces its rows",
            remedy="import them one by one, each under another name (--name)",
        )
    for path in paths:
        reader = _READERS.get(path.suffix.lower())
        if reader is None or not path.is_file():
            raise InputError(
                f"{path} is {'of another format' if path.is_file() else 'not a file'}",
                expected=f"a file that ends in {', '.join(_READERS)}",
                remedy="check the path, or convert the file",
            )
        source = name or path.name
        try:
            records = list(reader(path, source))
        except MissingExtra:
            raise
        except Exception as error:  # parsers raise any exception for a damaged file
            raise InputError(
                f"{path} does not read as {path.suffix[1:]} ({getattr(error, 'found', error)})",
                expected="a complete file",
                remedy="check the file, or write it again",
            ) from error
        if reader in (_table, _json_lines):
            records = [(place, _by_field(row, columns)) for place, row in records]
        yield source, records
