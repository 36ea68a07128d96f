"""The records of a corpus graph, its rules, conditions on relations, and the access of callers.

Records are stored as they were extracted. Names, edges, flags and the view of a caller are derived
from them, so an update or a new rule gives the same graph as a build from scratch.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Set
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Annotated, Any, Final, NamedTuple, TypeVar

from pydantic import AfterValidator, Field, TypeAdapter, model_validator

from ga_dspy.errors import InputError, check_names
from ga_dspy.graph import Entity, Evidence, GraphUpdate, Relation, normalise
from ga_dspy.graph.identity import relation_key as relation_key
from ga_dspy.graph.records import Confidence, Value
from ga_dspy.graph.times import BEGINNING, ENDLESS, Interval, interval_of, time_of
from ga_dspy.retrieval.where import Sign, Where, comparisons
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

_Made = TypeVar("_Made")


def _by_key(named: Mapping[str, _Made]) -> dict[str, _Made]:
    return {relation_key(name): value for name, value in named.items()}


def _keys(names: frozenset[str]) -> frozenset[str]:
    return frozenset(map(relation_key, names))


Names = Annotated[frozenset[str], AfterValidator(_keys)]
"""Names of relations, as `relation_key` writes them."""
Weight = Annotated[float, Field(gt=0, lt=1000)]


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

    def __str__(self) -> str:
        return f"{self.one.name!r} and {self.other.name!r}"


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
        relation_weights: How much relations of this name count in searches, above 0; others 1.
        overrides: Names joined or separated manually.
    """

    min_confidence: Confidence = 0.0
    relations: Names | None = None
    critical: Names = frozenset()
    single_valued: Names = SINGLE_VALUED
    single_dated: Names = SINGLE_DATED
    single_held: Names = SINGLE_HELD
    relation_labels: Annotated[Mapping[str, Labels], AfterValidator(_by_key)] = {}
    relation_weights: Annotated[Mapping[str, Weight], AfterValidator(_by_key)] = {}
    overrides: Overrides = Overrides()

    def is_critical(self, relation: str) -> bool:
        """Return whether a relation of this wording needs evidence from two passages."""
        return relation_key(relation) in self.critical

    def labels_of(self, relation: str) -> Labels:
        """Return the labels that a relation of this wording requires."""
        return self.relation_labels.get(relation_key(relation), NO_LABELS)

    def weight_of(self, relation: str) -> float:
        """Return how much a relation of this wording counts in searches."""
        return self.relation_weights.get(relation_key(relation), 1.0)


# --- Records by passage, with the labels that a caller needs to see them.
#
# Nothing is hidden in a finished graph, because its structure reveals more than its parts: merged
# names, degrees, neighbours. A caller's graph is built only from the records that the caller may
# see, as if the others had never been read.


def with_ends(update: GraphUpdate) -> GraphUpdate:
    """Return the records of a passage with an entity for every end of a relation."""
    names = {entity.name for entity in update.entities}
    ends: dict[str, dict[Evidence, None]] = defaultdict(dict)
    for relation in update.relations:
        for end in relation.ends:
            ends[end] |= dict.fromkeys(relation.evidence)
    spans = ((name, tuple(ends[name])) for name in ends if name not in names)
    more = tuple(Entity(name=name, evidence=evidence) for name, evidence in spans)
    return update.model_copy(update={"entities": (*update.entities, *more)})


@dataclass(frozen=True)
class Sources:
    """All records of a graph, and its rules.

    Attributes:
        records: What each passage states, with an entity for every end of a relation, by its id.
        labels: The labels of passages; other passages have none.
        rules: See `Rules`.
    """

    records: Mapping[str, GraphUpdate] = field(default_factory=dict)
    labels: Mapping[str, Labels] = field(default_factory=dict)
    rules: Rules = field(default_factory=Rules)

    @classmethod
    def of(
        cls,
        records: Mapping[str, GraphUpdate],
        labels: Mapping[str, Iterable[str]],
        rules: Rules,
    ) -> Sources:
        """Put records in canonical order and drop empty sets of labels."""
        checked = {id: frozenset(check_names("labels", names)) for id, names in labels.items()}
        needed = {id: names for id, names in checked.items() if names}
        return cls({id: with_ends(records[id]) for id in sorted(records)}, needed, rules)

    def labelled(self, labels: Mapping[str, Iterable[str]] | None) -> Sources:
        """Return the sources with other labels; None for the same."""
        return self if labels is None else Sources.of(self.records, labels, self.rules)

    @cached_property
    def withheld(self) -> dict[str, Labels]:
        """Return the labels required to read each restricted passage, with its relations'."""
        needed = defaultdict[str, Labels](frozenset, self.labels)
        for id, update in self.records.items():
            for relation in update.relations:
                if labels := self.rules.labels_of(relation.relation):
                    needed[id] |= labels
        return dict(needed)

    def seen_with(self, labels: Labels) -> Sources:
        """Return the sources that a caller with these labels may see.

        A record requires all labels of its passage, and each relation those of its name.
        """
        seen = {id for id in self.records if self.labels.get(id, NO_LABELS) <= labels}
        return self.stated_by(seen).keeping(lambda r: self.rules.labels_of(r.relation) <= labels)

    def stated_by(self, passages: Set[str] | None) -> Sources:
        """Return the sources with the records of some passages alone; None for all."""
        if passages is None:
            return self
        few, many = sorted((self.records.keys(), passages), key=len)
        return replace(self, records={id: self.records[id] for id in sorted(few) if id in many})

    def keeping(self, admit: Callable[[Relation], bool]) -> Sources:
        """Return the sources without the relations that a condition excludes.

        A hidden relation also hides its ends, unless another relation of the passage has them,
        and the attributes that mention them.
        """
        kept = {id: _keeping(update, admit) for id, update in self.records.items()}
        return replace(self, records=kept)


def _keeping(update: GraphUpdate, admit: Callable[[Relation], bool]) -> GraphUpdate:
    shown = tuple(filter(admit, update.relations))
    if len(shown) == len(update.relations):
        return update
    hidden = _ends(update.relations) - _ends(shown)
    entities = [entity for entity in update.entities if entity.name not in hidden]
    redacted = tuple(_redact(entity, hidden) for entity in entities)
    return GraphUpdate(entities=redacted, relations=shown)


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


# --- Conditions on relations, in the same words as those on metadata.

PREFIX: Final = "relation."
FIELDS: Final = tuple(PREFIX + name for name in ("name", "confidence", "time"))


def split_conditions(where: Where) -> tuple[Where, Where]:
    """Return the conditions on passages, and those on relations.

    >>> split_conditions({"lang": "en", "relation.time": "2015"})
    ({'lang': 'en'}, {'relation.time': '2015'})
    """
    on_relations = {key: value for key, value in where.items() if key.startswith(PREFIX)}
    return {key: value for key, value in where.items() if key not in on_relations}, on_relations


class Conditions(NamedTuple):
    """Which relations count; all conditions must hold.

    `relation.name` compares names as rules do ("was born in" is "born in"). A relation without a
    stated confidence or time meets all conditions on it. `relation.time` with `=` asks for what
    held at a time: it had begun and had not ended; a later value of a single-valued relation ends
    the earlier one. With `>=` and `<=` it asks for times that overlap a period.

    Attributes:
        names: Signs and sets of names.
        least: The lowest confidence.
        as_of: The time at which a relation must hold.
        period: The period that the time of a relation must overlap.
    """

    names: tuple[tuple[Sign, frozenset[str]], ...] = ()
    least: float = 0.0
    as_of: Interval | None = None
    period: Interval = Interval(BEGINNING, ENDLESS)

    @classmethod
    def of(cls, where: Where) -> Conditions:
        """Read conditions.

        Raises:
            InputError: A field or a comparison is unknown, or a value is no confidence or time.
        """
        found = cls()
        for key, sign, values in comparisons(where):
            try:
                found = found._with(key, sign, values)
            except ValueError as error:
                raise InputError(
                    f"the condition {key} {sign} {[*values]!r:.80}",
                    expected="relation.name with = or !=, relation.confidence with >= and a number "
                    "from 0 to 1, or relation.time with =, >= or <= and one date with a year",
                    remedy='pass where={"relation.time": "2015", "relation.confidence": '
                    '{">=": 0.5}}',
                ) from error
        return found

    def _with(self, key: str, sign: Sign, values: Collection[Any]) -> Conditions:
        match key, sign:
            case "relation.name", "=" | "!=":
                names = frozenset(relation_key(str(value)) for value in values)
                return self._replace(names=(*self.names, (sign, names)))
            case "relation.confidence", ">=":
                least = map(TypeAdapter(Confidence).validate_python, values)
                return self._replace(least=max(self.least, *least))
            case "relation.time", "=" | ">=" | "<=":
                (value,) = values
                if time := interval_of(str(value)):
                    start, end, _ = self.period
                    if sign == "=":
                        return self._replace(as_of=time)
                    later, earlier = max(start, time.start), min(end, time.end)
                    period = (later, end) if sign == ">=" else (start, earlier)
                    return self._replace(period=Interval(*period))
        raise ValueError(key)

    def admit(self, relation: Relation) -> bool:
        """Return whether a relation meets the conditions, by what it states itself."""
        key = relation_key(relation.relation)
        if any((key in names) != (sign == "=") for sign, names in self.names):
            return False
        if relation.confidence is not None and relation.confidence < self.least:
            return False
        time = time_of(relation)
        if time is None:
            return True
        is_held = self.as_of is None or time.holds_at(self.as_of)
        return is_held and self.period.overlaps(time)


ANY_RELATION: Final = Conditions()


# --- Access: the labels under which a program sees a corpus graph.


class Access(Value):
    """The access scope of a caller.

    Attributes:
        labels: The labels that the caller holds.
    """

    labels: Labels = NO_LABELS
