"""The evolving graph: all records so far, their merged view, and exports."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from functools import cached_property, lru_cache, partial
from itertools import chain, count, product, starmap
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pydantic import ValidationError

from ga_dspy import notebook
from ga_dspy.errors import DamagedFile
from ga_dspy.graph.clusters import (
    Cluster,
    End,
    gather,
    groups_of_passages,
    matches,
    passages_of,
    references,
)
from ga_dspy.graph.identity import (
    identity,
    relation_key,
    split_qualifier,
    split_title,
    states_identity,
)
from ga_dspy.graph.records import Entity, GraphUpdate, Relation, Value, grouped
from ga_dspy.graph.traits import Traits, contradict, ids_in, kind_of, traits, wordings_of
from ga_dspy.passage import Passage
from ga_dspy.text import ARTICLES, MONTHS, normalise, visible

if TYPE_CHECKING:
    import networkx as nx


class Gain(NamedTuple):
    """The additions to a graph since an earlier state."""

    entities: tuple[Entity, ...]
    relations: tuple[Relation, ...]
    attributes: tuple[tuple[str, str], ...]
    """New attributes of known entities, as (entity name, attribute)."""


class KnowledgeGraph(Value):
    """All records as the passages state them, and a view that shows each entity under one name.

    The state is the set of records; entities and relations are derived from it. So merging is
    idempotent, independent of order, and lossless: two names that were merged are separated again
    if a later passage shows that they mean two entities.

    >>> graph = KnowledgeGraph().merge(
    ...     GraphUpdate(
    ...         entities=(Entity(name="Beyoncé", type="singer"), Entity(name="beyonce")),
    ...         relations=(Relation(head="Beyonce", relation="born in", tail="Houston"),),
    ...     )
    ... )
    >>> [entity.name for entity in graph.entities], graph.relations[0].head
    (['Beyoncé'], 'Beyoncé')
    """

    records: GraphUpdate = GraphUpdate()
    """All records, each once."""
    visible: GraphUpdate | None = None
    """The part that is shown after pruning; None shows everything. A merge resets it."""

    def merge(self, update: GraphUpdate) -> KnowledgeGraph:
        """Return a graph with the records of an update added; duplicates are ignored."""
        records = GraphUpdate(
            entities=tuple(dict.fromkeys((*self.records.entities, *update.entities))),
            relations=tuple(dict.fromkeys((*self.records.relations, *update.relations))),
        )
        unchanged = records == self.records and self.visible is None
        return self if unchanged else KnowledgeGraph(records=records)

    def with_visible(
        self, entities: tuple[Entity, ...], relations: tuple[Relation, ...]
    ) -> KnowledgeGraph:
        """Return a graph of the same records that shows only these entities and relations."""
        visible = GraphUpdate(entities=entities, relations=relations)
        return KnowledgeGraph(records=self.records, visible=visible)

    @cached_property
    def _view(self) -> View:
        return _view_of(self.records)

    @cached_property
    def _shown(self) -> GraphUpdate:
        entities = tuple(entity for entity, _ in self._view.entities)
        relations = tuple(relation for relation, _ in self._view.relations)
        return GraphUpdate.model_construct(entities=entities, relations=relations)

    @property
    def entities(self) -> tuple[Entity, ...]:
        """Return the entities, each once, in the order of their first mention."""
        return (self.visible or self._shown).entities

    @property
    def relations(self) -> tuple[Relation, ...]:
        """Return the relations; their ends are entity names or plain values such as a date."""
        return (self.visible or self._shown).relations

    def is_joint(self, name: str, one: Collection[str], other: Collection[str]) -> bool:
        """Return whether only the name connects two statements about a node.

        A chain of evidence must not pass through such a joint. There is no joint if the passages
        share a fact that few namesakes share (a date, a state, a parent, a title), if a passage
        is about the node and no namesake was read, if a passage states both its names, if the
        name is rare, or if one passage makes both statements.

        >>> from ga_dspy.graph import Evidence
        >>> records = (
        ...     Entity(name="Norwell", evidence=(Evidence(passage=id, start=0, end=7),))
        ...     for id in ("1", "2")
        ... )
        >>> graph = KnowledgeGraph().merge(GraphUpdate(entities=tuple(records)))
        >>> graph.is_joint("Norwell", {"1"}, {"2"}), graph.is_joint("Norwell", {"1"}, {"1", "2"})
        (True, False)

        Args:
            name: The shown name of the node.
            one: The passages of the first statement.
            other: The passages of the second statement.
        """
        if not set(one).isdisjoint(other):
            return False
        clusters = dict(self._view.clusters)
        cluster = clusters.pop(name, [])
        keys = {reference.key for reference in cluster}
        has_rival = any(reference.key in keys for reference in chain(*clusters.values()))
        groups = groups_of_passages(cluster, has_rival)
        first = {groups.get(id, id) for id in one}
        return first.isdisjoint(groups.get(id, id) for id in other)

    @cached_property
    def names(self) -> dict[str, tuple[str, ...]]:
        """Return the names of each node, which is an entity or a plain value."""
        ends = (end for relation in self.relations for end in relation.ends)
        entities = {entity.name: (entity.name, *entity.aliases) for entity in self.entities}
        return {end: (end,) for end in ends} | entities

    @cached_property
    def nodes_by_name(self) -> dict[str, list[str]]:
        """Return the nodes of each normalised name, with and without its qualifier.

        A surname, alone or with the first name, is included if only one person has it.
        """
        nodes: dict[str, list[str]] = defaultdict(list)
        for node, names in self.names.items():
            every = (*names, *(split_qualifier(name).base for name in names))
            for name in dict.fromkeys(map(normalise, every)):
                nodes[name].append(node)
        shorter: dict[str, list[str]] = defaultdict(list)
        for entity in self.entities:
            parts = normalise(entity.name).split()
            if len(parts) > 1 and kind_of(entity.type) == "person":
                shorter[parts[-1]].append(entity.name)
                shorter[f"{parts[0]} {parts[-1]}"].append(entity.name)
        return {name: people for name, people in shorter.items() if len(people) == 1} | nodes

    def find_all(self, name: str) -> tuple[Entity, ...]:
        """Return every entity with a name or alias, in any spelling; namesakes are several."""
        shown = [e for e in self.entities if normalise(e.name) == normalise(name)]
        same = (e for e in self.entities if identity(name) in map(identity, self.names[e.name]))
        return tuple(shown or same)

    def find(self, name: str) -> Entity | None:
        """Return the only entity with a name; None if there is none, or several.

        Namesakes are shown with a qualifier and found with it: "Cambridge (England)".
        """
        found = self.find_all(name)
        return found[0] if len(found) == 1 else None

    def difference(self, earlier: KnowledgeGraph) -> Gain:
        """Return what was added since an earlier state of this graph, pruned or not.

        More evidence or a better name for a known entity does not count.
        """
        entities, relations = set(earlier.records.entities), set(earlier.records.relations)
        added: list[Entity] = []
        attributes: list[tuple[str, str]] = []
        for entity, records in self._view.entities:
            known = [record for record in records if record in entities]
            if records and not known:
                added.append(entity)
                continue
            before = {normalise(text) for e in known for text in (e.type, *e.attributes)}
            fresh = (a for a in entity.attributes if normalise(a) not in before)
            attributes += [(entity.name, attribute) for attribute in fresh]
        new = (shown for shown, records in self._view.relations if relations.isdisjoint(records))
        return Gain(tuple(added), tuple(new), tuple(attributes))

    def __repr__(self) -> str:
        """Return the number of entities and relations; `str` shows everything."""
        return f"KnowledgeGraph(entities={len(self.entities)}, relations={len(self.relations)})"

    def _repr_html_(self) -> str:
        """Return the relations with the passages that state them, for notebooks."""
        rows = []
        for relation in self.relations:
            ids = dict.fromkeys(evidence.passage for evidence in relation.evidence)
            rows.append((relation.head, relation.relation, relation.tail, ", ".join(ids)))
        return notebook.line(repr(self)) + notebook.table(("head", "", "tail", "passages"), rows)


# --- The view: one name for each entity, and relations between those names


class View(NamedTuple):
    """The shown entities and relations, each with its records."""

    entities: tuple[tuple[Entity, tuple[Entity, ...]], ...]
    relations: tuple[tuple[Relation, tuple[Relation, ...]], ...]
    clusters: dict[str, Cluster]
    """The references to each node, by its shown name."""


@lru_cache(maxsize=64)
def _view_of(records: GraphUpdate) -> View:
    found = references(records)
    parts = gather(found, matches(found, records.relations))
    titles = titles_of(parts)
    order = {record: i for i, record in enumerate(records.entities)}
    entities = [shown for shown in map(partial(shown_entity, order), titles, parts) if shown]
    entities.sort(key=lambda shown: order[shown[1][0]] if shown[1] else len(order))
    relations = shown_relations(records.relations, nodes_of_ends(titles, parts))
    return View(tuple(entities), tuple(relations), dict(zip(titles, parts, strict=True)))


def nodes_of_ends(titles: Iterable[str], parts: Iterable[Cluster]) -> dict[End, str]:
    """Return the shown name of every relation end."""
    named = ((title, one) for title, part in zip(titles, parts, strict=True) for one in part)
    return {(one.name, one.passages): title for title, one in named if one.entity is None}


def shown_entity(
    place: Mapping[Entity, int], title: str, part: Cluster
) -> tuple[Entity, tuple[Entity, ...]] | None:
    """Return the shown entity of a cluster, and its records; None for a value without a record.

    Args:
        place: The order of the records.
        title: The shown name.
        part: The cluster.
    """
    stated = (one.entity for one in part if one.entity)
    records = tuple(sorted(stated, key=place.__getitem__))
    if not records and len({normalise(one.name) for one in part}) < 2:
        return None
    types = Counter(record.type for record in records if record.type)
    kind = max(types, key=lambda text: (types[text], len(text), text), default="")
    attributes = list(chain.from_iterable(record.attributes for record in records))
    attributes += [record.type for record in records]
    aliases = list(chain.from_iterable(record.aliases for record in records))
    aliases += [one.name for one in part]
    entity = Entity(
        name=title,
        type=kind,
        attributes=_distinct_wordings(attributes, without=(kind,)),
        aliases=_distinct_wordings(aliases, without=(title, split_qualifier(title).base)),
        about=tuple(_ids(part)),
        evidence=tuple(dict.fromkeys(e for record in records for e in record.evidence)),
    )
    return entity, records


def shown_relations(
    relations: Iterable[Relation], node: Mapping[End, str]
) -> list[tuple[Relation, tuple[Relation, ...]]]:
    """Return the shown relations, each with its records.

    The records with one triple and time are shown as one relation. It depends only on relations
    with the same head. Relations of an entity with itself are dropped.

    Args:
        relations: The records.
        node: The shown name of each of their ends.
    """
    same: _Triples = defaultdict(list)
    for relation in relations:
        head, tail = (node[end, passages_of(relation)] for end in relation.ends)
        if head == tail:
            tail = head if states_identity(relation.relation) else relation.tail
        if normalise(head) != normalise(tail):
            same[head, _meaning(relation.relation), tail].append(relation)
    shown = []
    for (head, _, tail), records in _with_whole_dates(same).items():
        by_time = grouped((normalise(record.time or ""), record) for record in records)
        groups = by_time.values() if len(by_time.keys() - {""}) > 1 else [records]
        shown += [(_relation(head, tail, group), tuple(group)) for group in groups]
    return shown


def titles_of(parts: list[Cluster]) -> list[str]:
    """Return a unique name for each cluster; namesakes get a qualifier in parentheses.

    A name depends only on the clusters with the same name, with or without a qualifier.
    """
    names = [_name(part) for part in parts]
    namesakes = grouped((normalise(name), i) for i, name in enumerate(names))
    used = {(identity(names[i]), plain) for plain, (i, *more) in namesakes.items() if not more}

    def rank(i: int) -> tuple[list[str], list[tuple[str, list[str]]]]:
        return _details(parts[i]), sorted((one.name, sorted(one.passages)) for one in parts[i])

    for group in (group for group in namesakes.values() if len(group) > 1):
        for i in sorted(group, key=rank):
            qualifier = _qualifier(parts[i], [parts[j] for j in group if j != i])
            base = split_qualifier(names[i]).base
            for n in count(1):
                text = f"{qualifier} {n}".strip() if n > 1 else qualifier
                names[i] = f"{base} ({text})" if text else base
                plain = identity(names[i]), normalise(names[i])
                if plain not in used:
                    break
            used.add(plain)
    return names


def _name(part: Cluster) -> str:
    """Return the name of a cluster with the most passages, then the longest; acronyms come last."""
    support: Counter[str] = Counter()
    for one in part:
        support[one.name] += max(1, len(one.passages))
    stated = {one.name for one in part if one.entity} or set(support)
    return max(
        stated,
        key=lambda name: (not name.isupper(), support[name], not name.islower(), len(name), name),
    )


def _qualifier(part: Cluster, namesakes: list[Cluster]) -> str:
    """Return what distinguishes a cluster from its namesakes.

    It is the qualifier of its passage's title, else the shortest statement that contradicts all
    namesakes, else all statements.
    """
    rivals = list(filter(None, map(_known_traits, namesakes)))
    kinds = {one.traits.kind for cluster in (part, *namesakes) for one in cluster} - {""}
    titles = sorted({title for one in part for title in one.traits.values("title")})
    qualifiers = filter(None, (split_title(title).qualifier for title in titles))
    candidates = [(text, [traits("", (), text)]) for text in qualifiers]
    stated = _details(part)
    read = dict.fromkeys(text for one in part for text in wordings_of(one.traits) if text)
    for text in (*stated, *read):
        alone = [traits(kind, (text,), "") for kind in kinds if len(kinds) == 1]
        candidates.append((text, [traits(text, (), ""), *alone]))
    for text, ours in candidates if rivals else ():
        if all(any(starmap(contradict, product(ours, theirs))) for theirs in rivals):
            return text
    return "; ".join((*stated, *ids_in(_ids(part))))


def _known_traits(part: Cluster) -> list[Traits]:
    return [one.traits for one in part if any(one.traits)]


def _ids(part: Cluster) -> list[str]:
    ids = {fact for one in part for fact in one.traits.ids}
    return sorted(f"{key}: {value}" for key, value in ids)


def _details(part: Cluster) -> list[str]:
    records = [one.entity for one in part if one.entity]
    qualifiers = {split_qualifier(one.name).qualifier for one in part}
    stated = {*qualifiers, *(text for e in records for text in (e.type, *e.attributes))}
    texts = {text.replace("(", "").replace(")", "") for text in stated - {""}}
    return sorted(texts, key=lambda text: (len(text), text))


def _distinct_wordings(texts: Iterable[str], without: Iterable[str]) -> tuple[str, ...]:
    """Return the first wording, alphabetically, of each text that is not in `without`."""
    wordings = grouped((normalise(text), text) for text in texts)
    for text in ("", *without):
        wordings.pop(normalise(text), None)
    return tuple(map(min, wordings.values()))


_BEARINGS: Final = frozenset(
    "north south east west northern southern eastern western central".split()
)
_IDLE: Final = _BEARINGS | ARTICLES | {"in", "on", "at", "also"}
"""Words that do not change the meaning of a relation."""
_DATE: Final = re.compile(rf"(?:[\w ]*\b(?:{'|'.join(MONTHS)})\b[\w ]* )?\d{{4}}")


def _meaning(relation: str) -> str:
    """Return the wording by which relations between the same ends are compared.

    >>> _meaning("is located in southern") == _meaning("located in")
    True
    >>> _meaning("wrote") == _meaning("co-wrote")
    False
    """
    words = relation_key(relation).split()
    content = ["located" if w in ("situated", "lies") else w for w in words if w not in _IDLE]
    return " ".join(content or words)


_Triples = dict[tuple[str, str, str], list[Relation]]
"""Records by head, meaning and tail."""


def _with_whole_dates(same: _Triples) -> _Triples:
    """Merge the records that state a year into those that state the full date, if it is unique."""
    dates: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for head, meaning, tail in same:
        plain = normalise(tail)
        if _DATE.fullmatch(plain) and not plain.isdigit():
            dates[head, meaning, plain[-4:]].append(tail)
    merged: _Triples = defaultdict(list)
    for (head, meaning, tail), records in same.items():
        whole = dates.get((head, meaning, normalise(tail)), [])
        merged[head, meaning, whole[0] if len(whole) == 1 else tail] += records
    return merged


def _relation(head: str, tail: str, records: list[Relation]) -> Relation:
    """Merge records of one triple; the wording with the most compass points is shown."""
    wordings = Counter(record.relation for record in records)
    bearings = {w: sum(map(_BEARINGS.__contains__, normalise(w).split())) for w in wordings}
    times = [record.time for record in records if record.time]
    confidences = [r.confidence for r in records if r.confidence is not None]
    return Relation(
        head=head,
        relation=max(wordings, key=lambda w: (bearings[w], wordings[w], -len(w), w)),
        tail=tail,
        time=min(times, default=None),
        confidence=max(confidences, default=None),
        evidence=tuple(dict.fromkeys(e for record in records for e in record.evidence)),
    )


# --- Exports: networkx, GraphML, JSON and Mermaid


def to_networkx(
    graph: KnowledgeGraph, passages: Mapping[str, Passage] = {}
) -> nx.MultiDiGraph[str]:
    """Return a directed multigraph: entities and plain values as nodes, relations as edges.

    Entity nodes have `entity=True`, type, attributes, aliases and ids (if any). Edges have the
    relation, time and confidence (if stated), and the ids of the passages that state them. If
    `passages` has some of these, `evidence` is JSON of title, source and quoted sentences.
    """
    import networkx as nx

    network: nx.MultiDiGraph[str] = nx.MultiDiGraph()
    for entity in graph.entities:
        details = {"type": entity.type, "attributes": entity.attributes, "aliases": entity.aliases}
        if ids := ids_in(entity.about):
            details["ids"] = ids
        network.add_node(entity.name, entity=True, **details)
    for relation in graph.relations:
        others = (end for end in relation.ends if end not in network)
        network.add_nodes_from(others, entity=False)
        passage_ids = dict.fromkeys(evidence.passage for evidence in relation.evidence)
        stated: dict[str, Any] = {"relation": relation.relation, "passages": tuple(passage_ids)}
        stated |= {"time": relation.time, "confidence": relation.confidence}
        if quotes := _quotes(relation, passages):
            stated["evidence"] = json.dumps(quotes, ensure_ascii=False)
        stated = {key: value for key, value in stated.items() if value is not None}
        network.add_edge(*relation.ends, **stated)
    return network


def _quotes(relation: Relation, passages: Mapping[str, Passage]) -> list[dict[str, str]]:
    spans = grouped((each.passage, (each.start, each.end)) for each in relation.evidence)
    found = ((passages[id], spans[id]) for id in spans if id in passages)
    return [{"title": p.title, "source": p.source, "text": p.quote(at)} for p, at in found]


def to_graphml(graph: KnowledgeGraph, passages: Mapping[str, Passage] = {}) -> str:
    """Return GraphML, for example for Gephi or yEd; lists are joined with "; ", or else JSON.

    `ga_dspy.graphrag.import_graph` reads it back. See `to_networkx` for `passages`.
    """
    import networkx as nx

    network = nx.relabel_nodes(to_networkx(graph, passages), visible)
    for *_, details in (*network.nodes.data(), *network.edges.data()):
        details.update({key: _plain(value) for key, value in details.items()})
    return "\n".join(nx.generate_graphml(network))


def _plain(value: Any) -> Any:
    """Return a value that XML can hold: lists joined, control characters escaped."""
    if isinstance(value, tuple):
        text = "; ".join(value)
        is_plain = not text.startswith("[") and not any(c in item for item in value for c in ";|")
        value = text if is_plain else json.dumps(value, ensure_ascii=False)
    return visible(value) if isinstance(value, str) else value


def to_json(graph: KnowledgeGraph) -> str:
    """Return all records with their evidence, as JSON for `from_json`."""
    return graph.model_dump_json(exclude_none=True)


def from_json(text: str) -> KnowledgeGraph:
    """Read a graph that `to_json` wrote.

    Raises:
        DamagedFile: The text is not such JSON.
    """
    try:
        return KnowledgeGraph.model_validate_json(text)
    except ValidationError as error:
        raise DamagedFile(
            f"the text is not a graph ({error.errors()[0]['msg']})",
            expected="JSON written by `to_json`",
            remedy="restore the file from a copy, or ask the question again",
        ) from error


def to_mermaid(graph: KnowledgeGraph) -> str:
    """Return a Mermaid flowchart: entities as boxes, plain values rounded, relations as arrows."""
    entities = dict.fromkeys(entity.name for entity in graph.entities)
    ends = (end for relation in graph.relations for end in relation.ends)
    ids = {name: f"n{i}" for i, name in enumerate(dict.fromkeys((*entities, *ends)))}
    lines = ["flowchart LR"]
    for i, (name, id) in enumerate(ids.items()):
        opening, closing = "[]" if i < len(entities) else "()"
        lines.append(f'  {id}{opening}"{_label(name)}"{closing}')
    for relation in graph.relations:
        label = _label(relation.relation)
        lines.append(f'  {ids[relation.head]} -->|"{label}"| {ids[relation.tail]}')
    return "\n".join(lines)


def _label(text: str) -> str:
    """Escape a text for Mermaid's quotes: special characters become entity codes."""
    return "".join(c if c.isalnum() or c in " .,'-" else f"#{ord(c)};" for c in text)
