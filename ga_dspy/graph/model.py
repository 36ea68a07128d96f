"""The evolving graph: everything that was said so far, and the one picture that it makes."""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

from ga_dspy.graph.names import identity, normalise
from ga_dspy.graph.records import Entity as Entity
from ga_dspy.graph.records import Evidence as Evidence
from ga_dspy.graph.records import GraphUpdate as GraphUpdate
from ga_dspy.graph.records import Relation as Relation
from ga_dspy.graph.records import Value
from ga_dspy.graph.view import View, view


class Gain(NamedTuple):
    """What a graph holds that an earlier one did not."""

    entities: tuple[Entity, ...]
    relations: tuple[Relation, ...]
    attributes: tuple[tuple[str, str], ...]
    """New attributes of entities that were known, as (entity name, attribute)."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing new was learned."""
        return not any(self)


class KnowledgeGraph(Value):
    """What was said, kept as it was said, and shown with each thing under one name.

    The records themselves are the state, each kept once; entities and relations are derived from
    the set of them. So merging is idempotent, in any order the same, and loses nothing: two
    names that were taken for one come apart again when a later passage tells them apart.

    >>> graph = KnowledgeGraph().merge(
    ...     GraphUpdate(
    ...         entities=(Entity(name="Beyoncé", type="singer"), Entity(name="beyonce")),
    ...         relations=(Relation(head="Beyonce", relation="born in", tail="Houston"),),
    ...     )
    ... )
    >>> [entity.name for entity in graph.entities], graph.relations[0].head
    (['Beyoncé'], 'Beyoncé')
    """

    said: GraphUpdate = GraphUpdate()
    kept: GraphUpdate | None = None
    """The part that is shown after pruning; everything where it is None. A merge forgets it."""

    @classmethod
    def empty(cls) -> KnowledgeGraph:
        """The graph that holds nothing."""
        return cls()

    def merge(self, update: GraphUpdate) -> KnowledgeGraph:
        """A new graph that also holds an update; records held already are not added again."""
        entities = tuple(dict.fromkeys((*self.said.entities, *update.entities)))
        relations = tuple(dict.fromkeys((*self.said.relations, *update.relations)))
        if len(entities) == len(self.said.entities) and len(relations) == len(self.said.relations):
            return self if self.kept is None else KnowledgeGraph(said=self.said)
        return KnowledgeGraph(said=GraphUpdate(entities=entities, relations=relations))

    def showing(
        self, entities: tuple[Entity, ...], relations: tuple[Relation, ...]
    ) -> KnowledgeGraph:
        """The same records, of which only these entities and relations are shown."""
        return KnowledgeGraph(
            said=self.said, kept=GraphUpdate(entities=entities, relations=relations)
        )

    @cached_property
    def _view(self) -> View:
        return view(self.said)

    @property
    def entities(self) -> tuple[Entity, ...]:
        """The things the graph knows, each once, in the order in which they were met."""
        return (self.kept or self._view).entities

    @property
    def relations(self) -> tuple[Relation, ...]:
        """The relations, their ends the names of entities, or plain values such as a date."""
        return (self.kept or self._view).relations

    @property
    def is_empty(self) -> bool:
        """Whether the graph shows nothing."""
        return not self.entities and not self.relations

    @cached_property
    def _named(self) -> dict[str, tuple[Entity, ...]]:
        named: dict[str, dict[str, Entity]] = {}
        for entity in self.entities:
            for name in (entity.name, *entity.aliases):
                named.setdefault(identity(name), {})[entity.name] = entity
        return {key: tuple(entities.values()) for key, entities in named.items()}

    def find_all(self, name: str) -> tuple[Entity, ...]:
        """Every entity that goes by a name or alias, in any spelling; namesakes are several."""
        shown = [e for e in self.entities if normalise(e.name) == normalise(name)]
        return tuple(shown) or self._named.get(identity(name), ())

    def find(self, name: str) -> Entity | None:
        """The entity that goes by a name; None where there is none, or several and none shown so.

        Namesakes are shown with a qualifier, and found by it: "Cambridge (England)".
        """
        found = self.find_all(name)
        return found[0] if len(found) == 1 else None

    def difference(self, earlier: KnowledgeGraph) -> Gain:
        """What was learned since an earlier state of this graph, whether pruned or not.

        More evidence for what was known, and a better name for it, are no gain.
        """
        entities, relations = set(earlier.said.entities), set(earlier.said.relations)
        new: list[Entity] = []
        attributes: list[tuple[str, str]] = []
        for entity, records in zip(self._view.entities, self._view.entity_records, strict=True):
            known = [record for record in records if record in entities]
            told = {normalise(text) for e in known for text in (e.type, *e.attributes)}
            if known:
                attributes += [
                    (entity.name, a) for a in entity.attributes if normalise(a) not in told
                ]
            else:
                new.append(entity)
        stated = zip(self._view.relations, self._view.relation_records, strict=True)
        gained = (relation for relation, records in stated if relations.isdisjoint(records))
        return Gain(tuple(new), tuple(gained), tuple(attributes))
