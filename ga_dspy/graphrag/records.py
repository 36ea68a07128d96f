"""What a corpus graph is made of, who may see which part of it, and who is asking.

Records are kept as they were extracted. Names, edges, flags and what a caller may see all derive
from them, so an update or another rule gives the graph that a build from scratch would.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any, Final

from pydantic import Field, model_validator

from ga_dspy.errors import check_names
from ga_dspy.graph import Entity, Evidence, GraphUpdate, Relation, normalise
from ga_dspy.graph.identity import plain_relation
from ga_dspy.graph.records import Confidence, Value
from ga_dspy.text import stands_in

# --- Rules: what may enter the graph, what is flagged in it, which relations are private.

SINGLE_VALUED: Final = frozenset(
    "born|born in|born on|date of birth|place of birth|died|died in|died on|date of death|"
    "capital of|capital".split("|")
)
"""Relations that an entity has to one other, as `relation_key` words them."""

SINGLE_DATED: Final = frozenset(
    "founded|established|released|published|premiered|opened|completed|built".split("|")
)
"""Events that happen once: "founded in" a place says nothing against it, another year does."""

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
    """A name as the corpus spells it, in one passage or, where that is blank, in all."""

    name: str
    passage: str = ""

    @model_validator(mode="before")
    @classmethod
    def _of_text(cls, given: Any) -> Any:
        return {"name": given} if isinstance(given, str) else given


class Pair(Value):
    """Two spellings; in a file, a list of two."""

    one: Spelling
    other: Spelling

    @model_validator(mode="before")
    @classmethod
    def _of_two(cls, given: Any) -> Any:
        is_pair = isinstance(given, list | tuple) and len(given) == 2
        return dict(zip(("one", "other"), given, strict=True)) if is_pair else given

    @classmethod
    def of(cls, one: str | Spelling, other: str | Spelling) -> Pair:
        """Make a pair from names.

        >>> Pair.of("Mercury", "Merkur").other.name
        'Merkur'
        """
        return cls.model_validate((one, other))


class Overrides(Value):
    """What a person decided about names: these two are one entity, those two are not.

    `apart` undoes merges. The records do not change, so without an override the old graph is back.
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
        single_valued: Relations that an entity has once; two of them contradict each other.
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

    def labels_of(self, relation: str) -> Labels:
        """The labels that a relation of this wording needs."""
        return self._labels.get(relation_key(relation), NO_LABELS)


# --- Records by the passage, with the labels that a caller needs to see them.
#
# Nothing is hidden in a finished graph, because a finished graph says more than its parts: who is
# who, how often an entity is linked, what stands near it. A caller's graph is made from the records
# that the caller may see, as if the others had never been read.


class Batch(Value):
    """The records of a passage, which stand or fall together.

    Attributes:
        passage: The passage they were read from.
        update: The records; every end of a relation is an entity among them.
    """

    passage: str
    update: GraphUpdate

    @classmethod
    def of(cls, passage: str, update: GraphUpdate) -> Batch:
        """What a passage states, with an entity for every end of a relation, on its evidence."""
        names = {entity.name for entity in update.entities}
        ends: dict[str, dict[Evidence, None]] = {}
        for relation in update.relations:
            for end in (relation.head, relation.tail):
                if end not in names:
                    ends.setdefault(end, {}).update(dict.fromkeys(relation.evidence))
        more = tuple(Entity(name=name, evidence=tuple(spans)) for name, spans in ends.items())
        whole = update.model_copy(update={"entities": (*update.entities, *more)})
        return cls(passage=passage, update=whole)


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
        cls, batches: Iterable[Batch], labels: Mapping[str, Iterable[str]], rules: Rules
    ) -> Sources:
        """Put records in canonical order; an empty set of labels is none."""
        checked = {id: frozenset(check_names("labels", names)) for id, names in labels.items()}
        needed = {id: held for id, held in checked.items() if held}
        return cls(tuple(sorted(batches, key=lambda batch: batch.passage)), needed, rules)

    @cached_property
    def labels_in_use(self) -> Labels:
        """Every label that hides something."""
        return NO_LABELS.union(*self.labels.values(), *map(self._stated_labels, self.batches))

    @cached_property
    def withheld(self) -> dict[str, Labels]:
        """The labels needed to read each passage that needs any: its own and its relations'."""
        needed = dict(self.labels)
        for batch in self.batches:
            labels = self._stated_labels(batch)
            if labels:
                needed[batch.passage] = needed.get(batch.passage, NO_LABELS) | labels
        return needed

    def _stated_labels(self, batch: Batch) -> Labels:
        """The labels of a batch's relations, without those of its passage."""
        wordings = (relation.relation for relation in batch.update.relations)
        return NO_LABELS.union(*map(self.rules.labels_of, wordings))

    def seen_with(self, labels: Labels) -> Sources:
        """The sources that a caller with these labels may see.

        A batch is seen with all labels of its passage; of what is left, a relation
        with the labels of its name. What only a hidden relation names goes with it: its ends,
        where no other relation of the passage names them, and attributes that mention them.
        """
        seen = tuple(
            self._without_hidden(batch, labels)
            for batch in self.batches
            if self.labels.get(batch.passage, NO_LABELS) <= labels
        )
        return replace(self, batches=seen)

    def _without_hidden(self, batch: Batch, labels: Labels) -> Batch:
        relations = batch.update.relations
        shown = tuple(r for r in relations if self.rules.labels_of(r.relation) <= labels)
        if len(shown) == len(relations):
            return batch
        hidden = _ends(relations) - _ends(shown)
        kept = [entity for entity in batch.update.entities if entity.name not in hidden]
        entities = tuple(_redact(entity, hidden) for entity in kept)
        update = GraphUpdate(entities=entities, relations=shown)
        return batch.model_copy(update={"update": update})


def _ends(relations: Iterable[Relation]) -> set[str]:
    return {end for relation in relations for end in (relation.head, relation.tail)}


def _redact(entity: Entity, hidden: set[str]) -> Entity:
    """The entity without a wording that mentions a hidden name."""
    secrets = [normalise(name) for name in hidden]

    def is_open(text: str) -> bool:
        return not any(stands_in(secret, normalise(text)) for secret in secrets)

    return entity.model_copy(
        update={
            "attributes": tuple(filter(is_open, entity.attributes)),
            "aliases": tuple(filter(is_open, entity.aliases)),
            "about": tuple(filter(is_open, entity.about)),
            "type": entity.type if is_open(entity.type) else "",
        }
    )


# --- Who is asking: the rights under which a program sees a corpus graph.


class Access(Value):
    """A caller's rights.

    Attributes:
        labels: The labels that the caller holds.
    """

    labels: Labels = NO_LABELS
