"""What a corpus graph is made of: records by the passage, their labels, and the rules.

The records are kept as they were extracted. Names, edges, flags and what a caller may see all
derive from them, so an update or another rule gives the graph that a build from scratch would.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Final

from pydantic import Field

from ga_dspy.graph import Entity, Evidence, GraphUpdate, normalise
from ga_dspy.graph.names import plain_relation
from ga_dspy.graph.records import Confidence, Value

SINGLE_VALUED: Final = frozenset(
    "born|born in|born on|date of birth|place of birth|died|died in|died on|date of death|"
    "capital of|capital".split("|")
)
"""Relations that a thing has to one other thing, as `relation_key` words them."""

SINGLE_DATED: Final = frozenset(
    "founded|established|released|published|premiered|opened|completed|built".split("|")
)
"""Events that a thing has once: "founded in" a place says nothing against it, another year does."""

Labels = frozenset[str]
NO_LABELS: Final[Labels] = frozenset()


@lru_cache(maxsize=65536)
def relation_key(relation: str) -> str:
    """The wording by which relations are compared: tense, person and articles do not count.

    >>> relation_key("was born in"), relation_key("is the capital of")
    ('born in', 'capital of')
    """
    return normalise(plain_relation(relation))


class Spelling(Value):
    """A name as the corpus spells it, in one passage or, with none named, in all."""

    name: str
    passage: str = ""


class Pair(Value):
    """Two spellings."""

    one: Spelling
    other: Spelling

    @classmethod
    def of(cls, one: str | Spelling, other: str | Spelling) -> Pair:
        """Make a pair from names.

        >>> Pair.of("Mercury", "Merkur").other.name
        'Merkur'
        """
        ends = (Spelling(name=e) if isinstance(e, str) else e for e in (one, other))
        return cls(one=next(ends), other=next(ends))


class Overrides(Value):
    """What a person decided about names: these two are one thing, those two are not.

    Merges are undone by `apart`; nothing of the records is changed, so taking an override away
    brings the old graph back.
    """

    same: tuple[Pair, ...] = ()
    apart: tuple[Pair, ...] = ()


class Rules(Value):
    """What may enter the graph, what is flagged in it, and which relations are private.

    Relations are compared by `relation_key`: "was born in" is "born in".

    Attributes:
        min_confidence: A relation that states a lower confidence is left out.
        relations: The only relations that may enter; None for all.
        critical: Relations that need evidence from two passages to be shown.
        single_valued: Relations of which a thing has one; two of them contradict each other.
        single_dated: Relations, also with "in" or "on", that have one date.
        relation_labels: The labels that a caller needs to see a relation of this name.
        overrides: Names joined or parted by hand.
    """

    min_confidence: Confidence = 0.0
    relations: frozenset[str] | None = None
    critical: frozenset[str] = frozenset()
    single_valued: frozenset[str] = SINGLE_VALUED
    single_dated: frozenset[str] = SINGLE_DATED
    relation_labels: Mapping[str, Labels] = Field(default_factory=dict)
    overrides: Overrides = Overrides()

    @cached_property
    def _labels(self) -> dict[str, Labels]:
        return {relation_key(name): labels for name, labels in self.relation_labels.items()}

    @cached_property
    def critical_keys(self) -> frozenset[str]:
        """The critical relations by their key."""
        return frozenset(map(relation_key, self.critical))

    @cached_property
    def _allowed(self) -> frozenset[str] | None:
        return None if self.relations is None else frozenset(map(relation_key, self.relations))

    def allows(self, relation: str) -> bool:
        """Whether a relation of this wording may enter."""
        return self._allowed is None or relation_key(relation) in self._allowed

    def labels_of(self, relation: str) -> Labels:
        """The labels that a relation of this wording needs."""
        return self._labels.get(relation_key(relation), NO_LABELS)


class Batch(Value):
    """Records that stand or fall together: those of one passage, or a triple brought along.

    Attributes:
        passage: The passage they were read from; "" for records that no passage backs.
        update: The records; every end of a relation is an entity among them.
        labels: Labels needed to see them, besides those of the passage.
        ids: Wikidata ids by entity name.
        brought: Whether the records came from elsewhere and were not extracted.
    """

    passage: str
    update: GraphUpdate
    labels: Labels = NO_LABELS
    ids: Mapping[str, str] = Field(default_factory=dict)
    brought: bool = False


@dataclass(frozen=True)
class Sources:
    """All records of a graph with the rules for reading them.

    Attributes:
        batches: In canonical order, by passage id.
        labels: The labels of passages; a passage that is absent has none.
        rules: See `Rules`.
    """

    batches: tuple[Batch, ...]
    labels: Mapping[str, Labels] = field(default_factory=dict)
    rules: Rules = field(default_factory=Rules)

    @classmethod
    def of(
        cls,
        records: Mapping[str, GraphUpdate],
        *,
        labels: Mapping[str, Iterable[str]] | None = None,
        rules: Rules | None = None,
        brought: Iterable[Batch] = (),
    ) -> Sources:
        """Put records in order; ends of relations that are no entities become entities."""
        read = [Batch(passage=id, update=complete(update)) for id, update in records.items()]
        batches = sorted((*read, *brought), key=lambda batch: batch.passage)
        known = {id: frozenset(names) for id, names in (labels or {}).items()}
        return cls(tuple(batches), {id: names for id, names in known.items() if names},
                   rules or Rules())  # fmt: skip

    def needs(self, batch: Batch) -> Labels:
        """The labels that a caller needs to see a batch."""
        return batch.labels | self.labels.get(batch.passage, NO_LABELS)

    @cached_property
    def labels_in_use(self) -> Labels:
        """Every label that hides something."""
        stated = (
            self.rules.labels_of(r.relation) for b in self.batches for r in b.update.relations
        )
        return frozenset().union(
            *self.labels.values(), *(batch.labels for batch in self.batches), *set(stated)
        )


def complete(update: GraphUpdate) -> GraphUpdate:
    """The update with an entity for every end of a relation, on the relation's evidence."""
    named = {entity.name for entity in update.entities}
    ends: dict[str, tuple[Evidence, ...]] = {}
    for relation in update.relations:
        for end in (relation.head, relation.tail):
            if end not in named:
                ends[end] = tuple(dict.fromkeys((*ends.get(end, ()), *relation.evidence)))
    if not ends:
        return update
    more = tuple(Entity(name=name, evidence=evidence) for name, evidence in ends.items())
    return update.model_copy(update={"entities": (*update.entities, *more)})
