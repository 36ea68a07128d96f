"""The records of a corpus graph, its rules, conditions on relations, and the access of callers.

Records are stored as extracted. Names, edges, flags and the view of a caller are derived from them,
so an update or a new rule gives the same graph as a build from scratch.
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

# --- Rules: which relations enter the graph, which are flagged, which are private.

SINGLE_VALUED: Final = frozenset(
    "born|born in|born on|date of birth|place of birth|died|died in|died on|date of death|"
    "capital of|capital".split("|")
)
"""Relations that an entity can have only once, in the form of `relation_key`."""

SINGLE_DATED: Final = frozenset(
    "founded|established|released|published|premiered|opened|completed|built".split("|")
)
"""Events that happen once: a second year contradicts the first, a second place does not."""

SINGLE_HELD: Final = frozenset(
    "capital of|president of|prime minister of|mayor of|ceo of".split("|")
)
"""Relations that only one entity at a time has to another: a country has one capital."""

Labels = frozenset[str]
NO_LABELS: Final[Labels] = frozenset()

_Setting = TypeVar("_Setting")


def _by_key(settings: Mapping[str, _Setting]) -> dict[str, _Setting]:
    return {relation_key(name): setting for name, setting in settings.items()}


def _keys(names: frozenset[str]) -> frozenset[str]:
    return frozenset(map(relation_key, names))


Names = Annotated[frozenset[str], AfterValidator(_keys)]
"""Names of relations, converted by `relation_key`."""
Weight = Annotated[float, Field(gt=0, lt=1000)]


class Spelling(Value):
    """A name as spelled in one passage, or in all passages if `passage` is blank."""

    name: str
    passage: str = ""

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: Any) -> Any:
        return {"name": value} if isinstance(value, str) else value


class Pair(Value):
    """Two spellings, written in a file as a list of two."""

    one: Spelling
    other: Spelling

    @model_validator(mode="before")
    @classmethod
    def _from_list(cls, value: Any) -> Any:
        is_pair = isinstance(value, list | tuple) and len(value) == 2
        return {"one": value[0], "other": value[1]} if is_pair else value

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
    """Manual decisions about names.

    Pairs in `same` are joined into one entity; pairs in `apart` are separated, which undoes merges.
    The records do not change, so removing an override restores the graph.
    """

    same: tuple[Pair, ...] = ()
    apart: tuple[Pair, ...] = ()


class Rules(Value):
    """The rules of a graph: which relations enter it, which are flagged and which are private.

    Relations are compared by `relation_key`: "was born in" is "born in".

    Attributes:
        min_confidence: Relations with a lower stated confidence are dropped.
        relations: The relations that may enter; None allows all.
        critical: Relations that need evidence from two passages.
        single_valued: Relations that an entity can have only once; two contradict each other.
        single_dated: Relations, also with "in" or "on", that have only one date.
        single_held: Relations that only one entity at a time has to another.
        relation_labels: The labels that a caller needs to see a relation, by its name.
        relation_weights: The weight of a relation in searches, by its name: above 0, by default 1.
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
        """Return whether a relation with this wording needs evidence from two passages."""
        return relation_key(relation) in self.critical

    def labels_of(self, relation: str) -> Labels:
        """Return the labels that a relation with this wording requires."""
        return self.relation_labels.get(relation_key(relation), NO_LABELS)

    def weight_of(self, relation: str) -> float:
        """Return the weight in searches of a relation with this wording."""
        return self.relation_weights.get(relation_key(relation), 1.0)


# --- Records by passage, and the labels that a caller needs to see them.
#
# Hiding parts of a finished graph would not suffice: merged names, degrees and neighbours reveal
# what is hidden. A caller's graph is built only from the records that the caller may see, as if the
# others had never been read.


def with_ends(update: GraphUpdate) -> GraphUpdate:
    """Return the records of a passage, with an entity added for every end that lacks one."""
    names = {entity.name for entity in update.entities}
    evidence: dict[str, dict[Evidence, None]] = defaultdict(dict)
    for relation in update.relations:
        for end in relation.ends:
            if end not in names:
                evidence[end] |= dict.fromkeys(relation.evidence)
    added = (Entity(name=name, evidence=tuple(spans)) for name, spans in evidence.items())
    return update.model_copy(update={"entities": (*update.entities, *added)})


@dataclass(frozen=True)
class Sources:
    """The records of a graph, the labels of its passages, and its rules.

    Attributes:
        records: The records of each passage, by its id, with an entity for every end of a relation.
        labels: The labels of each restricted passage, by its id.
        rules: The rules.
    """

    records: Mapping[str, GraphUpdate] = field(default_factory=dict)
    labels: Mapping[str, Labels] = field(default_factory=dict)
    rules: Rules = field(default_factory=Rules)

    @classmethod
    def of(
        cls, records: Mapping[str, GraphUpdate], labels: Mapping[str, Iterable[str]], rules: Rules
    ) -> Sources:
        """Sort records by passage and drop empty sets of labels."""
        checked = {id: frozenset(check_names("labels", names)) for id, names in labels.items()}
        restricted = {id: names for id, names in checked.items() if names}
        return cls({id: with_ends(records[id]) for id in sorted(records)}, restricted, rules)

    def labelled(self, labels: Mapping[str, Iterable[str]] | None) -> Sources:
        """Return the sources with these labels; None keeps the current ones."""
        return self if labels is None else Sources.of(self.records, labels, self.rules)

    @cached_property
    def withheld(self) -> dict[str, Labels]:
        """Return the labels required to read each restricted passage and all its relations."""
        needed = defaultdict[str, Labels](frozenset, self.labels)
        for id, update in self.records.items():
            for relation in update.relations:
                if labels := self.rules.labels_of(relation.relation):
                    needed[id] |= labels
        return dict(needed)

    def seen_with(self, labels: Labels) -> Sources:
        """Return the sources that a caller with these labels may see.

        A record requires all labels of its passage, and a relation those of its name as well.
        """
        visible = {id for id in self.records if self.labels.get(id, NO_LABELS) <= labels}
        return self.stated_by(visible).keeping(lambda r: self.rules.labels_of(r.relation) <= labels)

    def stated_by(self, passages: Set[str] | None) -> Sources:
        """Return the sources with only the records of these passages; None for all."""
        if passages is None:
            return self
        smaller, larger = sorted((self.records.keys(), passages), key=len)
        ids = sorted(id for id in smaller if id in larger)
        return replace(self, records={id: self.records[id] for id in ids})

    def keeping(self, admit: Callable[[Relation], bool]) -> Sources:
        """Return the sources without the relations that a condition excludes.

        A hidden relation also hides its ends, unless another relation of the passage has them,
        and the attributes that mention them.
        """
        records = {id: _filter_relations(update, admit) for id, update in self.records.items()}
        return replace(self, records=records)


def _filter_relations(update: GraphUpdate, admit: Callable[[Relation], bool]) -> GraphUpdate:
    shown = tuple(filter(admit, update.relations))
    if len(shown) == len(update.relations):
        return update
    hidden = _ends(update.relations) - _ends(shown)
    entities = (_redact(entity, hidden) for entity in update.entities if entity.name not in hidden)
    return GraphUpdate(entities=tuple(entities), relations=shown)


def _ends(relations: Iterable[Relation]) -> set[str]:
    return {end for relation in relations for end in relation.ends}


def _redact(entity: Entity, hidden: set[str]) -> Entity:
    """Remove from an entity every text that mentions a hidden name."""
    secrets = [normalise(name) for name in hidden]

    def is_open(text: str) -> bool:
        return not any(stands_in(secret, normalise(text)) for secret in secrets)

    lists = ("attributes", "aliases", "about")
    shown = {name: tuple(filter(is_open, getattr(entity, name))) for name in lists}
    type_ = entity.type if is_open(entity.type) else ""
    return entity.model_copy(update={**shown, "type": type_})


# --- Conditions on relations, in the syntax of conditions on metadata.

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
    """Conditions on relations; a relation must meet all of them.

    `relation.name` compares names as rules do ("was born in" is "born in"). A relation without a
    stated confidence or time meets every condition on it. `relation.time` with `=` selects the
    relations that hold at a time: those that have begun and not ended; a later value of a
    single-valued relation ends the earlier one. With `>=` and `<=` it selects the relations whose
    time overlaps a period.

    Attributes:
        names: Signs and sets of names.
        least: The minimum confidence.
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
            InputError: A field or a comparison is unknown, or a value is not a confidence or time.
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
        """Return whether a relation meets the conditions; other relations are not considered."""
        key = relation_key(relation.relation)
        if any((key in names) != (sign == "=") for sign, names in self.names):
            return False
        if relation.confidence is not None and relation.confidence < self.least:
            return False
        time = time_of(relation)
        if time is None:
            return True
        holds = self.as_of is None or time.holds_at(self.as_of)
        return holds and self.period.overlaps(time)


ANY_RELATION: Final = Conditions()


# --- Access: the labels with which a caller sees a graph.


class Access(Value):
    """The access scope of a caller.

    Attributes:
        labels: The labels that the caller holds.
    """

    labels: Labels = NO_LABELS
