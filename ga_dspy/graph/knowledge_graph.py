"""The evolving graph: all records so far, the merged view of them, and exports."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from functools import cached_property, lru_cache, partial
from itertools import count, product, starmap
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
from ga_dspy.graph.identity import identity, relation_key, says_same, split_qualifier, split_title
from ga_dspy.graph.records import Entity, GraphUpdate, Relation, Value, grouped
from ga_dspy.graph.traits import contradict, ids_in, kind_of, traits, wordings_of
from ga_dspy.passage import Passage
from ga_dspy.text import ARTICLES, MONTHS, normalise, visible

if TYPE_CHECKING:
    import networkx as nx


class Gain(NamedTuple):
    """What a graph holds that an earlier one did not."""

    entities: tuple[Entity, ...]
    relations: tuple[Relation, ...]
    attributes: tuple[tuple[str, str], ...]
    """New attributes of entities that were known, as (entity name, attribute)."""


class KnowledgeGraph(Value):
    """All records as the passages state them, shown with each entity under one name.

    The state is the set of records; entities and relations are derived from it. So merging is
    idempotent, independent of order, and loses nothing: two names that were merged are separated
    again when a later passage shows that they are two things.

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
    """The part that is shown after pruning; everything where it is None. A merge resets it."""

    def merge(self, update: GraphUpdate) -> KnowledgeGraph:
        """Return a graph that also holds an update; known records are not added again."""
        records = GraphUpdate(
            entities=tuple(dict.fromkeys((*self.records.entities, *update.entities))),
            relations=tuple(dict.fromkeys((*self.records.relations, *update.relations))),
        )
        unchanged = records == self.records and self.visible is None
        return self if unchanged else KnowledgeGraph(records=records)

    def with_visible(
        self, entities: tuple[Entity, ...], relations: tuple[Relation, ...]
    ) -> KnowledgeGraph:
        """Return the same records, of which only these entities and relations are shown."""
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
        """Return the entities, each once, in the order in which they were first stated."""
        return (self.visible or self._shown).entities

    @property
    def relations(self) -> tuple[Relation, ...]:
        """Return the relations; their ends are entity names or plain values such as a date."""
        return (self.visible or self._shown).relations

    def is_joint(self, name: str, one: Collection[str], other: Collection[str]) -> bool:
        """Return whether only the name connects two statements about a node.

        A chain of evidence must not pass through such a joint. There is no joint if the passages
        share a fact that few namesakes share (a date, a state, a parent, a title), if a passage
        is about the node and no namesake was read, if a passage states both its names, or if the
        name is rare. Statements of one passage are never a joint.

        >>> from ga_dspy.graph import Evidence
        >>> records = (
        ...     Entity(name="Norwell", evidence=(Evidence(passage=id, start=0, end=7),))
        ...     for id in ("1", "2")
        ... )
        >>> graph = KnowledgeGraph().merge(GraphUpdate(entities=tuple(records)))
        >>> graph.is_joint("Norwell", {"1"}, {"2"}), graph.is_joint("Norwell", {"1"}, {"1", "2"})
        (True, False)

        Args:
            name: The node as it is shown.
            one: The passages of the first statement.
            other: The passages of the second statement.
        """
        if not set(one).isdisjoint(other):
            return False
        clusters = self._view.clusters
        keys = {node: {each.key for each in clusters[node]} for node in clusters}
        ours = keys.pop(name, set())
        has_rival = not all(map(ours.isdisjoint, keys.values()))
        groups = groups_of_passages(clusters.get(name, []), has_rival)
        these, those = ({groups.get(id, id) for id in ids} for ids in (one, other))
        return these.isdisjoint(those)

    @cached_property
    def names(self) -> dict[str, tuple[str, ...]]:
        """Return each node, an entity or a plain value, with its names."""
        ends = (end for relation in self.relations for end in relation.ends)
        entities = {entity.name: (entity.name, *entity.aliases) for entity in self.entities}
        return {end: (end,) for end in ends} | entities

    @cached_property
    def nodes_by_name(self) -> dict[str, list[str]]:
        """Return the nodes by name, normalised, with and without its qualifier.

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
        """Return every entity of a name or alias, in any spelling; namesakes are several."""
        shown = [e for e in self.entities if normalise(e.name) == normalise(name)]
        same = (e for e in self.entities if identity(name) in map(identity, self.names[e.name]))
        return tuple(shown or same)

    def find(self, name: str) -> Entity | None:
        """Return the entity of a name; None if there is none, or several.

        Namesakes are shown with a qualifier, and found by it: "Cambridge (England)".
        """
        found = self.find_all(name)
        return found[0] if len(found) == 1 else None

    def difference(self, earlier: KnowledgeGraph) -> Gain:
        """Return what was added since an earlier state of this graph, pruned or not.

        More evidence or a better name for something known does not count.
        """
        entities, relations = set(earlier.records.entities), set(earlier.records.relations)
        new: list[Entity] = []
        attributes: list[tuple[str, str]] = []
        for entity, records in self._view.entities:
            known = [record for record in records if record in entities]
            before = {normalise(text) for e in known for text in (e.type, *e.attributes)}
            if known or not records:
                fresh = (a for a in entity.attributes if normalise(a) not in before)
                attributes += [(entity.name, attribute) for attribute in fresh]
            else:
                new.append(entity)
        gained = (one for one, records in self._view.relations if relations.isdisjoint(records))
        return Gain(tuple(new), tuple(gained), tuple(attributes))

    def __repr__(self) -> str:
        """Return the number of entities and relations; `str` has everything."""
        return f"KnowledgeGraph(entities={len(self.entities)}, relations={len(self.relations)})"

    def _repr_html_(self) -> str:
        """Return the relations with the passages that state them, for notebooks."""
        rows = (
            (r.head, r.relation, r.tail, ", ".join(dict.fromkeys(e.passage for e in r.evidence)))
            for r in self.relations
        )
        return notebook.line(repr(self)) + notebook.table(("head", "", "tail", "passages"), rows)


# --- What is shown: one name for each entity, and relations between those names


class View(NamedTuple):
    """Entities and relations as they are shown, each with its records."""

    entities: tuple[tuple[Entity, tuple[Entity, ...]], ...]
    relations: tuple[tuple[Relation, tuple[Relation, ...]], ...]
    clusters: dict[str, Cluster]
    """The references to each node, by its shown name."""


@lru_cache(maxsize=64)
def _view_of(records: GraphUpdate) -> View:
    found = references(records)
    parts = gather(found, matches(found, records.relations))
    titles = titles_of(parts)
    place = {record: i for i, record in enumerate(records.entities)}
    entities = [shown for shown in map(partial(shown_entity, place), titles, parts) if shown]
    entities.sort(key=lambda shown: place[shown[1][0]] if shown[1] else len(place))
    relations = shown_relations(records.relations, nodes_of_ends(titles, parts))
    return View(tuple(entities), tuple(relations), dict(zip(titles, parts, strict=True)))


def nodes_of_ends(titles: Iterable[str], parts: Iterable[Cluster]) -> dict[End, str]:
    """Return the shown name of every relation end."""
    named = ((title, one) for title, part in zip(titles, parts, strict=True) for one in part)
    return {(one.name, one.passages): title for title, one in named if one.entity is None}


def shown_entity(
    place: Mapping[Entity, int], title: str, part: Cluster
) -> tuple[Entity, tuple[Entity, ...]] | None:
    """Return a cluster as it is shown, and its records; None for a value that has no record.

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
    attributes = [a for e in records for a in e.attributes] + [e.type for e in records]
    aliases = [a for e in records for a in e.aliases] + [one.name for one in part]
    entity = Entity(
        name=title,
        type=kind,
        attributes=_distinct_wordings(attributes, besides=(kind,)),
        aliases=_distinct_wordings(aliases, besides=(title, split_qualifier(title).base)),
        about=tuple(_ids(part)),
        evidence=tuple(dict.fromkeys(e for record in records for e in record.evidence)),
    )
    return entity, records


def shown_relations(
    relations: Iterable[Relation], node: Mapping[End, str]
) -> list[tuple[Relation, tuple[Relation, ...]]]:
    """Return relations as they are shown, each with its records.

    The records of one triple and time are shown as one relation, which depends on the relations
    of the same head alone. Relations of an entity with itself are dropped.

    Args:
        relations: The records.
        node: The shown name of each of their ends.
    """
    same: _Triples = defaultdict(list)
    for relation in relations:
        head, tail = (node[end, passages_of(relation)] for end in relation.ends)
        if head == tail:
            tail = head if says_same(relation.relation) else relation.tail
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

    A name depends on the clusters with the same name, with or without a qualifier, alone.
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
            tries = (f"{qualifier} {n}".strip() if n > 1 else qualifier for n in count(1))
            titles = (f"{base} ({text})" if text else base for text in tries)
            shown = ((title, (identity(title), normalise(title))) for title in titles)
            names[i], plain = next((title, plain) for title, plain in shown if plain not in used)
            used.add(plain)
    return names


def _name(part: Cluster) -> str:
    """Return the best supported name of a cluster, then the longest; acronyms come last."""
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

    The qualifier of its passage's title, else the shortest statement that contradicts all
    namesakes, else all statements.
    """
    known = [[one.traits for one in other if any(one.traits)] for other in namesakes]
    known = [cluster for cluster in known if cluster]
    kinds = {one.traits.kind for cluster in (part, *namesakes) for one in cluster} - {""}
    titles = sorted({title for one in part for title in one.traits.values("title")})
    qualifiers = filter(None, (split_title(title).qualifier for title in titles))
    candidates = [(text, [traits("", (), text)]) for text in qualifiers]
    stated = _details(part)
    read = dict.fromkeys(text for one in part for text in wordings_of(one.traits) if text)
    for text in (*stated, *read):
        alone = [traits(kind, (text,), "") for kind in kinds if len(kinds) == 1]
        candidates.append((text, [traits(text, (), ""), *alone]))
    for text, ours in candidates if known else ():
        if all(any(starmap(contradict, product(ours, cluster))) for cluster in known):
            return text
    return "; ".join((*stated, *ids_in(_ids(part))))


def _ids(part: Cluster) -> list[str]:
    ids = {fact for one in part for fact in one.traits.ids}
    return sorted(f"{key}: {value}" for key, value in ids)


def _details(part: Cluster) -> list[str]:
    records = [one.entity for one in part if one.entity]
    qualifiers = {split_qualifier(one.name).qualifier for one in part}
    stated = {*qualifiers, *(text for e in records for text in (e.type, *e.attributes))}
    texts = {text.replace("(", "").replace(")", "") for text in stated - {""}}
    return sorted(texts, key=lambda text: (len(text), text))


def _distinct_wordings(texts: Iterable[str], besides: Iterable[str]) -> tuple[str, ...]:
    """Return one wording of each text in first-seen order; which one, depends on no order."""
    wordings = grouped((normalise(text), text) for text in texts)
    for text in ("", *besides):
        wordings.pop(normalise(text), None)
    return tuple(map(min, wordings.values()))


_BEARINGS: Final = frozenset(
    "north south east west northern southern eastern western central".split()
)
_IDLE: Final = _BEARINGS | ARTICLES | {"in", "on", "at", "also"}
"""Words that do not change the meaning of a relation."""
_DATE: Final = re.compile(rf"(?:[\w ]*\b(?:{'|'.join(MONTHS)})\b[\w ]* )?\d{{4}}")


def _meaning(relation: str) -> str:
    """Return the wording by which relations of the same ends are compared.

    >>> _meaning("is located in southern") == _meaning("located in")
    True
    >>> _meaning("wrote") == _meaning("co-wrote")
    False
    """
    words = relation_key(relation).split()
    telling = ["located" if w in ("situated", "lies") else w for w in words if w not in _IDLE]
    return " ".join(telling or words)


_Triples = dict[tuple[str, str, str], list[Relation]]
"""Records by head, meaning and tail."""


def _with_whole_dates(same: _Triples) -> _Triples:
    """Merge the records of a year into those of the full date, if there is one."""
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
    """Merge records of one triple; the wording with the most points of the compass is shown."""
    wordings = Counter(record.relation for record in records)
    bearings = {w: sum(map(_BEARINGS.__contains__, normalise(w).split())) for w in wordings}
    return Relation(
        head=head,
        relation=max(wordings, key=lambda w: (bearings[w], wordings[w], -len(w), w)),
        tail=tail,
        time=min((record.time for record in records if record.time), default=None),
        confidence=max((r.confidence for r in records if r.confidence is not None), default=None),
        evidence=tuple(dict.fromkeys(e for record in records for e in record.evidence)),
    )


# --- Exports: networkx, GraphML, JSON and Mermaid


def to_networkx(
    graph: KnowledgeGraph, passages: Mapping[str, Passage] = {}
) -> nx.MultiDiGraph[str]:
    """Return a directed multigraph: entities and plain values as nodes, relations as edges.

    Entity nodes have `entity=True`, type, attributes, aliases and ids (if any); edges have the
    relation, the time and confidence (if stated), the ids of the passages that state them and, for
    those among `passages`, `evidence`: JSON of title, source and quoted sentences.
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
        stated = {"time": relation.time, "confidence": relation.confidence}
        if quotes := _quotes(relation, passages):
            stated["evidence"] = json.dumps(quotes, ensure_ascii=False)
        network.add_edge(
            *relation.ends,
            relation=relation.relation,
            passages=tuple(dict.fromkeys(evidence.passage for evidence in relation.evidence)),
            **{key: value for key, value in stated.items() if value is not None},
        )
    return network


def _quotes(relation: Relation, passages: Mapping[str, Passage]) -> list[dict[str, str]]:
    spans = grouped((each.passage, (each.start, each.end)) for each in relation.evidence)
    found = ((passages[id], spans[id]) for id in spans if id in passages)
    return [{"title": p.title, "source": p.source, "text": p.quote(at)} for p, at in found]


def to_graphml(graph: KnowledgeGraph, passages: Mapping[str, Passage] = {}) -> str:
    """Return GraphML for Gephi, yEd and the like; lists are joined with "; ", or else JSON.

    `ga_dspy.graphrag.import_graph` reads it back; see `to_networkx` for `passages`.
    """
    import networkx as nx

    network = nx.relabel_nodes(to_networkx(graph, passages), visible)
    all_details = [details for *_, details in (*network.nodes.data(), *network.edges.data())]
    for details in all_details:
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
            f"the text reads as no graph ({error.errors()[0]['msg']})",
            expected="the JSON that `to_json` wrote",
            remedy="restore it from a copy, or ask again",
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
