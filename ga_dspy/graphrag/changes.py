"""Change a graph where its records changed; the result is that of resolving everything again.

The names that a change concerns are followed to all names that they could match, and these are
resolved again, from their records. Then the relations of the entities that changed are. All other
rows of the tables stay; the numbers in them are mapped to the new ones.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ga_dspy.errors import require
from ga_dspy.graph import Entity, GraphUpdate, Relation, normalise
from ga_dspy.graph.clusters import Reference, passages_of, references, split_names
from ga_dspy.graph.identity import Title, identity, split_qualifier
from ga_dspy.graphrag.corpus_graph import (
    Tables,
    arrow_table,
    mention_row,
    names_of,
    record_row,
)
from ga_dspy.graphrag.mentions import Mention, Mentions, mentions_of
from ga_dspy.graphrag.records import Labels, Pair, Rules
from ga_dspy.graphrag.resolution import (
    Merge,
    Node,
    comparable,
    contradictions,
    place_of_entity,
    place_of_relation,
    resolve_entities,
    resolve_relations,
)

Records = Callable[[str], GraphUpdate]
"""Returns what a passage states, as the rules admit it."""
TitleOf = Callable[[str, str], str]
"""Returns the shown name of a relation end, given by its name and the id of its passage."""

# --- What changes


class Change(NamedTuple):
    """What a change makes of a graph.

    Attributes:
        gone: The shown names of the nodes that were resolved again.
        nodes: What is in their place, in order.
        heads: The shown names of the nodes whose relations were resolved again.
        edges: These relations, in order.
        mentions: The mentions of `nodes`.
        overrides: The overrides that concern them, with a description of those that do not match.
        too_few: How many more relations have too little evidence.
    """

    gone: set[str]
    nodes: list[Node]
    heads: set[str]
    edges: list[Relation]
    mentions: list[Mention]
    overrides: dict[Pair, str | None]
    too_few: int


def resolve_change(
    mentions: Mentions, was: Records, now: Records, changed: Collection[str], rules: Rules
) -> Change:
    """Resolve what the records of some passages change, and bring the mentions up to date.

    Args:
        mentions: The mentions of the graph.
        was: What each passage stated.
        now: What each passage states.
        changed: The passages where these differ.
        rules: The rules.
    """
    scope = _Scope(mentions, now, changed)
    keys = mentions.reach(scope.keys)
    while True:
        records, named = scope.records_of(keys)
        nodes, unused = resolve_entities(named, records.relations, rules.overrides)
        parts = ((node.entity.name, node.part) for node in nodes)
        after = mentions_of(parts, records.relations)
        mentions.link(after)
        wider = mentions.reach(keys)
        if wider == keys:
            break
        keys = wider
    before = mentions.of_keys(keys)
    pairs = mentions.pairs_of(one.name for one in (*before, *after))
    mentions.replace(keys, after)
    earlier = {(one.name, one.passage): one.node for one in before if one.end}

    def title_before(name: str, id: str) -> str:
        return earlier.get((name, id)) or mentions.title(name, id)

    def places_before(head: str) -> Iterable[str]:
        own = [one.passage for one in before if one.node == head]
        return own or mentions.places(head)

    heads = {title_before(r.head, id) for id in changed for r in was(id).relations}
    heads |= {mentions.title(r.head, id) for id in changed for r in now(id).relations}
    for (name, id), title in earlier.items():
        if id not in changed and mentions.title(name, id) != title:
            stated = [r.head for r in now(id).relations if name in r.ends]
            heads |= {of(head, id) for head in stated for of in (title_before, mentions.title)}
    edges, too_few = _relations_of(heads, now, mentions.places, mentions.title, rules)
    fewer = list[str]()
    if rules.critical:
        _, fewer = _relations_of(heads, was, places_before, title_before, rules)
    return Change(
        gone={one.node for one in before},
        nodes=nodes,
        heads=heads,
        edges=edges,
        mentions=after,
        overrides={pair: unused.get(pair) for pair in pairs},
        too_few=len(too_few) - len(fewer),
    )


def _relations_of(
    heads: Collection[str],
    records: Records,
    places: Callable[[str], Iterable[str]],
    title: TitleOf,
    rules: Rules,
) -> tuple[list[Relation], list[str]]:
    """Resolve the relations of some nodes.

    Args:
        heads: The shown names of the nodes.
        records: What each passage states.
        places: Returns the passages that mention a node.
        title: The shown names of relation ends.
        rules: The rules.
    """
    relations, node_of = [], {}
    for id in sorted({id for head in heads for id in places(head)}):
        for relation in records(id).relations:
            if title(relation.head, id) in heads:
                relations.append(relation)
                for end in relation.ends:
                    node_of[end, passages_of(relation)] = title(end, id)
    return resolve_relations(relations, node_of, rules)


class _Scope:
    """The records of some names, as they are now.

    Attributes:
        keys: The keys of all names that changed passages mention or mentioned.
    """

    def __init__(self, mentions: Mentions, now: Records, changed: Collection[str]) -> None:
        self._mentions, self._now, self._changed = mentions, now, changed
        before = [one for id in changed for one in mentions.of_passage.get(id, ())]
        self._names = {id: _names_in(now(id)) for id in changed}
        names = set(chain.from_iterable(self._names.values()))
        # What is behind a comma is a qualifier or not by the types of all records of the name.
        commas = {name for name in (*names, *(one.name for one in before)) if _has_comma(name)}
        self._split = {name: self._split_by_records(name) for name in commas}
        self.keys = {one.key for one in before} | set(map(self._key_of, names))
        for name in commas:
            keys = {one.key for one in mentions.of_keys(_keys_with_comma(name)) if one.name == name}
            self.keys |= keys | {self._key_of(name)} if keys - {self._key_of(name)} else set()

    def records_of(self, keys: Collection[str]) -> tuple[GraphUpdate, list[Reference]]:
        """Return the records of keys and of the relations with an end among them, and references.

        Args:
            keys: The keys; no name of another key has a match among them.
        """
        names, split = defaultdict[str, set[str]](set), dict(self._split)
        for id, every in self._names.items():
            names[id] = {name for name in every if self._key_of(name) in keys}
        for one in self._mentions.of_keys(keys):
            key = self._key_of(one.name) if one.name in self._split else one.key
            if one.passage not in self._changed and key in keys:
                names[one.passage].add(one.name)
                split.setdefault(one.name, _split_as(one.name, key))
        entities, relations = list[Entity](), list[Relation]()
        for id in sorted(names):
            update = self._now(id)
            entities += [one for one in update.entities if one.name in names[id]]
            relations += [one for one in update.relations if not names[id].isdisjoint(one.ends)]
        records = GraphUpdate.model_construct(entities=tuple(entities), relations=tuple(relations))
        return records, [one for one in references(records, split) if one.key in keys]

    def _key_of(self, name: str) -> str:
        return identity((self._split.get(name) or split_qualifier(name)).base)

    def _split_by_records(self, name: str) -> Title:
        found = self._mentions.of_keys(_keys_with_comma(name))
        places = {one.passage for one in found if one.name == name}.union(self._names)
        stated = (one for id in sorted(places) for one in self._now(id).entities)
        return split_names([name], [one for one in stated if one.name == name])[name]


def _names_in(update: GraphUpdate) -> set[str]:
    ends = chain.from_iterable(relation.ends for relation in update.relations)
    return {*ends, *(entity.name for entity in update.entities)}


def _has_comma(name: str) -> bool:
    return ", " in name and not split_qualifier(name).qualifier


def _keys_with_comma(name: str) -> set[str]:
    """Return the keys that a name with a comma may have."""
    return {identity(name), identity(name.partition(", ")[0])}


def _split_as(name: str, key: str) -> Title:
    """Split a name as the key of its mention says."""
    split = split_qualifier(name)
    base, _, behind = name.partition(", ")
    return split if identity(split.base) == key else Title(base, behind)


# --- The tables


def change_tables(
    before: Tables, change: Change, passages: Mapping[str, Labels | None], rules: Rules
) -> tuple[Tables, frozenset[str]]:
    """Return the tables of a graph after a change, and the names of nodes with other facts.

    Args:
        before: The tables.
        change: The change.
        passages: The changed passages with their labels; None for those that state nothing.
        rules: The rules.
    """
    patch = _Patch(before, change, passages, rules)
    flags = _flags(patch.edges, patch.nodes, rules)
    tables = Tables(
        nodes=patch.nodes,
        edges=_with_lists(patch.edges, "contradicts", flags),
        names=patch.names(),
        passages=patch.passages,
        merges=patch.by_node("merges", patch.merges()),
        mentions=patch.by_node("mentions", patch.mentions()),
    )
    return tables, frozenset(patch.moved)


class _Patch:
    """The tables of a graph before and after a change, and the numbers of their rows.

    Attributes:
        passages, nodes, edges: The tables after the change; edges without what they contradict.
        to_node: The new number of each node before the change; -1 for those that are gone.
        former: The edges that were resolved again, as they were.
        moved: The names of nodes with other facts, as they were and as they are.
    """

    def __init__(
        self, before: Tables, change: Change, passages: Mapping[str, Labels | None], rules: Rules
    ) -> None:
        self.before, self.change, self.rules = before, change, rules
        ids = before.passages["id"].to_pylist()
        stated = sorted(id for id, labels in passages.items() if labels is not None)
        old = before.passages.filter([id not in passages for id in ids])
        kept = old["id"].to_pylist()
        order = _order([(id,) for id in stated], len(kept), lambda i: (kept[i],))
        rows: Any = [{"id": id, "labels": sorted(passages[id] or ())} for id in stated]
        self.passages = _joined(old, arrow_table("passages", rows), order)
        self._ids = self.passages["id"].to_pylist()
        self._place = {id: i for i, id in enumerate(self._ids)}
        self._to_place = np.array([self._place.get(id, -1) for id in ids], np.int32)

        self._names = before.nodes["name"].to_pylist()
        row = {name: i for i, name in enumerate(self._names)}
        self._gone = np.array(sorted(row[name] for name in change.gone), np.int64)
        entities = [node.entity for node in change.nodes]
        old = _renumbered(_without(before.nodes, self._gone), passage=self._to_place)
        at = _place_in(old, ("name",), self._ids)
        order = _order(list(map(place_of_entity, entities)), len(old), at)
        rows = (record_row(entity, self._place) for entity in entities)
        self.nodes = _joined(old, arrow_table("nodes", rows), order)
        self.name = self.nodes["name"].to_pylist()
        self.row = {name: i for i, name in enumerate(self.name)}
        self.to_node = np.array([self.row.get(name, -1) for name in self._names], np.int32)

        heads = [row[name] for name in change.heads if name in row]
        replaced = _rows_with(before.edges["head"], heads, len(row))
        self.former = before.edges.take(replaced).to_pylist()
        old = _without(before.edges, replaced)
        old = _renumbered(old, passage=self._to_place, head=self.to_node, tail=self.to_node)
        at = _place_in(old, ("head", "relation", "tail", "time"), self._ids, self.name)
        order = _order(list(map(place_of_relation, change.edges)), len(old), at)
        self.edges = _joined(old, arrow_table("edges", map(self._edge, change.edges)), order)
        self.moved = self._moved()

    def _edge(self, edge: Relation) -> dict[str, Any]:
        ends = {"head": self.row[edge.head], "tail": self.row[edge.tail]}
        critical = self.rules.is_critical(edge.relation)
        return record_row(edge, self._place, **ends, critical=critical, contradicts=())

    def _moved(self) -> set[str]:
        """Return the names of nodes with other facts: of their own, or in a relation."""
        columns = ["name", "type", "attributes", "aliases"]
        was: Any = self.before.nodes.select(columns).take(self._gone).to_pylist()
        told = {(e["name"], e["type"], *map(tuple, (e["attributes"], e["aliases"]))) for e in was}
        entities = (node.entity for node in self.change.nodes)
        told ^= {(e.name, e.type, e.attributes, e.aliases) for e in entities}
        facts = {
            (self._names[e["head"]], e["relation"], self._names[e["tail"]], e["time"],
             e["confidence"])
            for e in self.former
        }  # fmt: skip
        new = {(e.head, e.relation, e.tail, e.time, e.confidence) for e in self.change.edges}
        ends = {end for head, _, tail, *_ in facts ^ new for end in (head, tail)}
        return ends.union(one[0] for one in told)

    def merges(self) -> Iterator[dict[str, Any]]:
        """Yield the rows of merges of the nodes that were resolved again."""
        for entity, _, merged in self.change.nodes:
            for one in merged:
                yield Merge(self.row[entity.name], entity.name, *one)._asdict()

    def mentions(self) -> Iterator[dict[str, Any]]:
        """Yield the rows of mentions of the nodes that were resolved again."""
        for one in self.change.mentions:
            yield mention_row(one, self.row[one.node], self._place[one.passage])

    def by_node(self, name: str, rows: Iterable[Mapping[str, Any]]) -> Any:
        """Return a table sorted by node, with new rows for nodes that were resolved again."""
        old = getattr(self.before, name)
        old = _without(old, _rows_with(old["node"], self._gone, len(self._names)))
        numbers = {"node": self.to_node, "passage": self._to_place}
        old = _renumbered(old, **{n: to for n, to in numbers.items() if n in old.column_names})
        new = arrow_table(name, rows)
        places = np.searchsorted(np.asarray(old["node"]), np.asarray(new["node"]))
        return _joined(old, new, _inserted(len(old), places))

    def names(self) -> Any:
        """Return the table of names; those of nodes that were resolved again are made again."""
        old = self.before.names
        fresh, shown = defaultdict[str, list[int]](list), dict[str, int]()
        for entity, *_ in self.change.nodes:
            shown[normalise(entity.name)] = self.row[entity.name]
            for key in names_of(entity.name, entity.aliases, entity.about):
                fresh[key].append(self.row[entity.name])
        was = self.before.nodes.take(self._gone).select(["name", "aliases", "about"]).to_pylist()
        keys = sorted({*fresh, *chain.from_iterable(names_of(**one) for one in was)})
        gone, every, rows, known = set(self._gone.tolist()), old["key"], list[Any](), list[int]()
        for key in keys:
            i = bisect_left(range(len(every)), key, key=lambda i: every[i].as_py())
            row: dict[str, Any] = {"nodes": (), "shown": -1}
            if i < len(every) and every[i].as_py() == key:
                known.append(i)
                (row,) = old.slice(i, 1).to_pylist()
            others = [int(self.to_node[node]) for node in row["nodes"] if node not in gone]
            is_other = row["shown"] >= 0 and row["shown"] not in gone
            other = int(self.to_node[row["shown"]]) if is_other else -1
            if nodes := sorted((*others, *fresh[key])):
                rows.append({"key": key, "nodes": nodes, "shown": max(other, shown.get(key, -1))})
        kept = _without(old, np.array(known, np.int64))
        kept = _renumbered(kept, nodes=self.to_node, shown=np.append(self.to_node, np.int32(-1)))
        at = [(row["key"],) for row in rows]
        order = _order(at, len(kept), lambda i: (kept["key"][i].as_py(),))
        return _joined(kept, arrow_table("names", rows), order)


def _flags(edges: Any, nodes: Any, rules: Rules) -> dict[int, Sequence[int]]:
    """Return the edges that an edge contradicts, for edges that contradict any."""
    wordings = edges["relation"].combine_chunks().dictionary_encode()
    known = wordings.dictionary.to_pylist()
    chosen = comparable(known, rules)
    codes = [code for code, wording in enumerate(known) if wording in chosen]
    rows = _rows_with(wordings.indices, codes, len(known))
    heads, tails = (np.asarray(edges[end]) for end in ("head", "tail"))
    names, types = nodes["name"], nodes["type"]
    relations = [
        Relation.model_construct(**row | {"head": "", "tail": names[row["tail"]].as_py()})
        for row in edges.take(rows).select(["relation", "tail", "time"]).to_pylist()
    ]
    found = contradictions(
        lambda i: Entity.model_construct(name=names[i].as_py(), type=types[i].as_py()),
        relations,
        list(zip(heads[rows].tolist(), tails[rows].tolist(), strict=True)),
        set(zip(heads.tolist(), tails.tolist(), strict=True)),
        rules,
    )
    number = rows.tolist()
    pairs = zip(number, found, strict=True)
    return {j: [number[k] for k in others] for j, others in pairs if others}


# --- Rows of Arrow tables


def _rows_with(column: Any, values: Collection[int] | NDArray[Any], count: int) -> NDArray[Any]:
    """Return the rows with some of the numbers below `count`."""
    sought = np.zeros(count, np.bool_)
    sought[list(values)] = True
    return np.flatnonzero(sought[np.asarray(column)])


def _without(table: Any, rows: NDArray[Any]) -> Any:
    kept = np.ones(table.num_rows, np.bool_)
    kept[rows] = False
    return table.filter(kept)


def _joined(old: Any, new: Any, order: NDArray[Any]) -> Any:
    pa = require("pyarrow", "graph")
    return pa.concat_tables([old, new]).combine_chunks().take(order)


def _order(
    new: Sequence[tuple[Any, ...]], count: int, old: Callable[[int], tuple[Any, ...]]
) -> NDArray[Any]:
    """Return the order of `count` sorted old rows followed by sorted new ones.

    Args:
        new: The sort keys of the new rows.
        count: The number of old rows.
        old: Returns the sort key of an old row.
    """
    places = [bisect_left(range(count), key, key=old) for key in new]
    return _inserted(count, np.array(places, np.int64))


def _inserted(count: int, places: NDArray[Any]) -> NDArray[Any]:
    """Return the order of `count` rows and those behind them, which go to these places."""
    return np.insert(np.arange(count), places, count + np.arange(len(places)))


def _place_in(
    table: Any, columns: Iterable[str], ids: Sequence[str], names: Sequence[str] = ()
) -> Callable[[int], tuple[Any, ...]]:
    """Return a function from a row to its sort key, as `place_of_entity` has it."""
    lists = [table[name].combine_chunks() for name in ("passage", "start", "end")]
    starts = np.asarray(lists[0].offsets)[:-1]
    passage, start, end = (np.asarray(each.values)[starts] for each in lists)

    def value(name: str, i: int) -> str:
        found = table[name][i].as_py()
        return names[found] if name in ("head", "tail") else found or ""

    return lambda i: (
        ids[passage[i]], int(start[i]), int(end[i]), *(value(name, i) for name in columns)
    )  # fmt: skip


def _renumbered(table: Any, **numbers: NDArray[np.int32]) -> Any:
    """Map the numbers in columns, or in the lists of columns, to new ones."""
    pa = require("pyarrow", "graph")
    for name, to in numbers.items():
        column = table[name].combine_chunks()
        if pa.types.is_list(column.type):
            values = pa.array(to[np.asarray(column.values)], pa.int32())
            column = pa.ListArray.from_arrays(column.offsets, values)
        else:
            column = pa.array(to[np.asarray(column)], pa.int32())
        place = table.schema.get_field_index(name)
        table = table.set_column(place, table.schema.field(name), column)
    return table


def _with_lists(table: Any, name: str, lists: Mapping[int, Sequence[int]]) -> Any:
    """Set a column of lists of numbers, most of them empty."""
    pa = require("pyarrow", "graph")
    sizes = np.zeros(len(table) + 1, np.int32)
    for row, each in lists.items():
        sizes[row + 1] = len(each)
    values = pa.array([j for _, each in sorted(lists.items()) for j in each], pa.int32())
    column = pa.ListArray.from_arrays(pa.array(np.cumsum(sizes, dtype=np.int32)), values)
    place = table.schema.get_field_index(name)
    return table.set_column(place, table.schema.field(name), column)
