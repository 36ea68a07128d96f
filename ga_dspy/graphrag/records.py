"""The records of a corpus graph, its rules, and the access of callers.

Records are stored as they were extracted. Names, edges, flags and the view of a caller are derived
from them, so an update or a new rule gives the same graph as a build from scratch.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final

from pydantic import Field, model_validator

from ga_dspy.errors import check_names
from ga_dspy.graph import Entity, Evidence, GraphUpdate, Relation, normalise
from ga_dspy.graph.identity import relation_key as relation_key
from ga_dspy.graph.records import Confidence, Value
from ga_dspy.text import stands_in

# --- Rules: what enters the graph, what is flagged, which relations are private.

SINGLE_VALUED: Final = frozenset(
    "born|born in|born on|date of birth|place of birth|died|died in|died on|date of death|"
    "capital of|capital".split("|")
)
"""Relations that an entity has once, in the form of `relation_key`."""

SINGLE_DATED: Final = frozenset(
    "founded|established|released|published|premiered|opened|completed|built".split("|")
)
"""Events that happen once: a second year contradicts the first, a place does not."""

SINGLE_HELD: Final = frozenset(
    "capital of|president of|prime minister of|mayor of|ceo of".split("|")
)
"""Relations that one entity at a time has to another: a country has one capital."""

Labels = frozenset[str]
NO_LABELS: Final[Labels] = frozenset()


class Spelling(Value):
    """A name as the corpus spells it, in one passage, or in all if `passage` is blank."""

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
    """Manual decisions on names: pairs that are one entity, and pairs that are not.

    `apart` undoes merges. The records do not change, so removing an override restores the graph.
    """

    same: tuple[Pair, ...] = ()
    apart: tuple[Pair, ...] = ()


class Rules(Value):
    """What enters the graph, what is flagged in it, and which relations are private.

    Relations are compared by `relation_key`: "was born in" is "born in".

    Attributes:
        min_confidence: Relations with a lower stated confidence are dropped.
        relations: The only relations that enter; None for all.
        critical: Relations that need evidence from two passages.
        single_valued: Relations that an entity has once; two of them contradict each other.
        single_dated: Relations, also with "in" or "on", that have one date.
        single_held: Relations that one entity at a time has to another.
        relation_labels: The labels that a caller needs to see a relation of this name.
        overrides: Names joined or separated manually.
    """

    min_confidence: Confidence = 0.0
    relations: frozenset[str] | None = None
    critical: frozenset[str] = frozenset()
    single_valued: frozenset[str] = SINGLE_VALUED
    single_dated: frozenset[str] = SINGLE_DATED
    single_held: frozenset[str] = SINGLE_HELD
    relation_labels: Mapping[str, Labels] = Field(default_factory=dict)
    overrides: Overrides = Overrides()

    @cached_property
    def _critical(self) -> frozenset[str]:
        return frozenset(map(relation_key, self.critical))

    def is_critical(self, relation: str) -> bool:
        """Return whether a relation of this wording needs evidence from two passages."""
        return relation_key(relation) in self._critical

    @cached_property
    def _labels(self) -> dict[str, Labels]:
        return {relation_key(name): labels for name, labels in self.relation_labels.items()}

    def labels_of(self, relation: str) -> Labels:
        """Return the labels that a relation of this wording requires."""
        return self._labels.get(relation_key(relation), NO_LABELS)


# --- Records by passage, with the labels that a caller needs to see them.
#
# Nothing is hidden in a finished graph, because its structure reveals more than its parts: merged
# names, degrees, neighbours. A caller's graph is built only from the records that the caller may
# see, as if the others had never been read.


class Batch(Value):
    """The records of a passage.

    Attributes:
        passage: The id of the passage.
        update: The records; every end of a relation is an entity among them.
    """

    passage: str
    update: GraphUpdate

    @classmethod
    def of(cls, passage: str, update: GraphUpdate) -> Batch:
        """Make a batch, with an entity for every end of a relation."""
        names = {entity.name for entity in update.entities}
        ends: dict[str, dict[Evidence, None]] = defaultdict(dict)
        for relation in update.relations:
            for end in relation.ends:
                ends[end] |= dict.fromkeys(relation.evidence)
        spans = ((name, tuple(ends[name])) for name in ends if name not in names)
        more = tuple(Entity(name=name, evidence=evidence) for name, evidence in spans)
        whole = update.model_copy(update={"entities": (*update.entities, *more)})
        return cls(passage=passage, update=whole)


@dataclass(frozen=True)
class Sources:
    """All records of a graph, and its rules.

    Attributes:
        batches: In canonical order, by passage id.
        labels: The labels of passages; other passages have none.
        rules: See `Rules`.
    """

    batches: tuple[Batch, ...]
    labels: Mapping[str, Labels] = field(default_factory=dict)
    rules: Rules = field(default_factory=Rules)

    @classmethod
    def of(
        cls, batches: Iterable[Batch], labels: Mapping[str, Iterable[str]], rules: Rules
    ) -> Sources:
        """Put records in canonical order and drop empty sets of labels."""
        checked = {id: frozenset(check_names("labels", names)) for id, names in labels.items()}
        needed = {id: names for id, names in checked.items() if names}
        return cls(tuple(sorted(batches, key=lambda batch: batch.passage)), needed, rules)

    @cached_property
    def labels_in_use(self) -> Labels:
        """Return every label that hides something."""
        return NO_LABELS.union(*self.withheld.values())

    @cached_property
    def withheld(self) -> dict[str, Labels]:
        """Return the labels required to read each restricted passage, with its relations'."""
        needed = defaultdict[str, Labels](frozenset, self.labels)
        for batch in self.batches:
            for relation in batch.update.relations:
                if labels := self.rules.labels_of(relation.relation):
                    needed[batch.passage] |= labels
        return dict(needed)

    def seen_with(self, labels: Labels) -> Sources:
        """Return the sources that a caller with these labels may see.

        A batch requires all labels of its passage, and each relation those of its name.
        """
        seen = (b for b in self.batches if self.labels.get(b.passage, NO_LABELS) <= labels)
        whole = replace(self, batches=tuple(seen))
        return whole.keeping(lambda r: self.rules.labels_of(r.relation) <= labels)

    def stated_by(self, passages: Collection[str]) -> Sources:
        """Return the sources with the records of some passages alone."""
        stating = tuple(batch for batch in self.batches if batch.passage in passages)
        return replace(self, batches=stating)

    def keeping(self, admit: Callable[[Relation], bool]) -> Sources:
        """Return the sources without the relations that a condition excludes.

        A hidden relation also hides its ends, unless another relation of the passage has them,
        and the attributes that mention them.
        """
        return replace(self, batches=tuple(_keeping(batch, admit) for batch in self.batches))


def _keeping(batch: Batch, admit: Callable[[Relation], bool]) -> Batch:
    relations = batch.update.relations
    shown = tuple(filter(admit, relations))
    if len(shown) == len(relations):
        return batch
    hidden = _ends(relations) - _ends(shown)
    shown_entities = [entity for entity in batch.update.entities if entity.name not in hidden]
    entities = tuple(_redact(entity, hidden) for entity in shown_entities)
    update = GraphUpdate(entities=entities, relations=shown)
    return batch.model_copy(update={"update": update})


def _ends(relations: Iterable[Relation]) -> set[str]:
    return {end for relation in relations for end in relation.ends}


def _redact(entity: Entity, hidden: set[str]) -> Entity:
    """Remove every wording that mentions a hidden name from an entity."""
    secrets = [normalise(name) for name in hidden]

    def is_open(text: str) -> bool:
        return not any(stands_in(secret, normalise(text)) for secret in secrets)

    lists = ("attributes", "aliases", "about")
    shown = {name: tuple(filter(is_open, getattr(entity, name))) for name in lists}
    type_ = entity.type if is_open(entity.type) else ""
    return entity.model_copy(update={**shown, "type": type_})


# --- Access: the labels under which a program sees a corpus graph.


class Access(Value):
    """The access scope of a caller.

    Attributes:
        labels: The labels that the caller holds.
    """

    labels: Labels = NO_LABELS
