"""The records of a graph: entities, relations, their evidence, and drafts."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from functools import cached_property
from itertools import chain
from typing import Annotated, Any, Final, Literal, TypeVar, get_args

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

EntityType = Literal[
    "person", "place", "organisation", "work", "event", "date", "quantity", "role", "other"
]
"""The entity types that an LM may choose from."""
TYPES: Final = frozenset((*get_args(EntityType), "organization"))
"""The types that a relation's end may have in parentheses: "Ann Lee (person)"."""

_UNPRINTABLE: Final = re.compile(r"[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\ud800-\udfff\ufeff]")


def printable(text: str) -> str:
    r"""Remove lone surrogates and control characters except white space.

    >>> printable("caf\ud83d\x07")
    'caf'
    """
    return _UNPRINTABLE.sub("", text)


def single_line(text: str) -> str:
    r"""Replace each run of white space by one space, and remove unprintable characters.

    >>> single_line(" Katy\n Perry\x00 ")
    'Katy Perry'
    """
    return " ".join(printable(text).split())


def _line(value: Any) -> Any:
    return single_line(value) if isinstance(value, str) else value


def _name(value: Any) -> Any:
    """Clean a name; if only control characters were in it, return a replacement character."""
    return (_line(value) or "\ufffd" * bool(value.strip())) if isinstance(value, str) else value


Line = Annotated[str, BeforeValidator(_line)]
Name = Annotated[str, BeforeValidator(_name), Field(min_length=1)]


_Key = TypeVar("_Key")
_Item = TypeVar("_Item")


def grouped(pairs: Iterable[tuple[_Key, _Item]]) -> dict[_Key, list[_Item]]:
    """Group values by key, in first-seen order.

    >>> grouped([("a", 1), ("b", 2), ("a", 3)])
    {'a': [1, 3], 'b': [2]}
    """
    found = dict[_Key, list[_Item]]()
    for key, value in pairs:
        found.setdefault(key, []).append(value)
    return found


def united(pairs: Iterable[tuple[_Key, Iterable[_Item]]]) -> defaultdict[_Key, set[_Item]]:
    """Return the union of the values of each key; other keys have an empty set.

    >>> united([("a", [1]), ("b", [2]), ("a", [3])])["a"]
    {1, 3}
    """
    found = defaultdict[_Key, set[_Item]](set)
    for key, values in pairs:
        found[key].update(values)
    return found


def distinct(texts: tuple[str, ...]) -> tuple[str, ...]:
    """Return the non-empty texts without duplicates, in first-seen order."""
    return tuple(dict.fromkeys(text for text in texts if text))


Lines = Annotated[tuple[Line, ...], AfterValidator(distinct)]
Confidence = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]


class Value(BaseModel):
    """A frozen, hashable model that forbids extra fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Evidence(Value):
    """The characters `start` to `end` of `Passage.content` that state a fact."""

    passage: str
    start: int = Field(ge=0)
    end: int = Field(ge=0)

    @model_validator(mode="after")
    def _runs_forward(self) -> Evidence:
        if self.end < self.start:
            raise ValueError(f"evidence ends at {self.end}, before its start {self.start}")
        return self


class _Described(Value):
    name: Name
    type: Line = ""
    attributes: Lines = ()


class _Triple(Value):
    head: Name
    relation: Name
    tail: Name
    time: Annotated[Line | None, AfterValidator(lambda text: text or None)] = None
    confidence: Confidence | None = None


class Entity(_Described):
    """A named person, place, work or other thing, and what the passages state about it.

    `about` holds what may distinguish it from namesakes, in lines of "key: value" that
    `ga_dspy.graph.traits` writes and reads.
    """

    aliases: Lines = ()
    about: Lines = ()
    evidence: tuple[Evidence, ...] = ()


class Relation(_Triple):
    """A triple; its ends are entity names, or plain values such as a date."""

    evidence: tuple[Evidence, ...] = ()

    @property
    def ends(self) -> tuple[str, str]:
        """Return the head and the tail."""
        return self.head, self.tail


class GraphUpdate(Value):
    """The grounded records that one step adds to a graph."""

    entities: tuple[Entity, ...] = ()
    relations: tuple[Relation, ...] = ()


class DraftEntity(_Described):
    """An entity as an LM proposed it, not yet grounded; `passages` are the labels it cites."""

    passages: tuple[int, ...] = ()


class DraftRelation(_Triple):
    """A relation as an LM proposed it, not yet grounded; `passages` are the labels it cites.

    It may describe its ends: "Ann Lee (person; singer) -> born in -> Oslo (place)".
    """

    head_type: Line = ""
    head_attributes: Lines = ()
    tail_type: Line = ""
    tail_attributes: Lines = ()
    passages: tuple[int, ...] = ()

    @property
    def entities(self) -> tuple[DraftEntity, DraftEntity]:
        """Return the head and the tail as the relation describes them."""
        head = {"name": self.head, "type": self.head_type, "attributes": self.head_attributes}
        tail = {"name": self.tail, "type": self.tail_type, "attributes": self.tail_attributes}
        labels = self.passages
        return DraftEntity(**head, passages=labels), DraftEntity(**tail, passages=labels)


class Draft(Value):
    """The readable facts of an LM's proposal, and the lines that could not be read."""

    entities: tuple[DraftEntity, ...] = ()
    relations: tuple[DraftRelation, ...] = ()
    skipped: tuple[str, ...] = ()

    @cached_property
    def nodes(self) -> tuple[DraftEntity, ...]:
        """Return the listed entities, then the other ends of relations, each once.

        An entity has its first type; the list comes before the relations. An end has the passages
        of all its relations.

        >>> born = DraftRelation(head="Ann", head_type="person", relation="born in", tail="Oslo")
        >>> [(node.name, node.type) for node in Draft(relations=(born,)).nodes]
        [('Ann', 'person'), ('Oslo', '')]
        """
        ends = grouped((end.name, end) for one in self.relations for end in one.entities)
        listed = list[DraftEntity]()
        for entity in self.entities:
            described = [end for end in ends.pop(entity.name, ()) if end.type or end.attributes]
            listed.append(_joined([entity, *described]))
        return (*listed, *map(_joined, ends.values()))


def _joined(parts: list[DraftEntity]) -> DraftEntity:
    """Merge several descriptions of one entity."""
    types = (part.type for part in parts if part.type)
    passages = chain.from_iterable(part.passages for part in parts)
    return DraftEntity(
        name=parts[0].name,
        type=next(types, ""),
        attributes=tuple(chain.from_iterable(part.attributes for part in parts)),
        passages=tuple(dict.fromkeys(passages)),
    )
