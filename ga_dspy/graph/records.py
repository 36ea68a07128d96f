"""The values a graph is made of: entities, relations, the text that states them, drafts."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator


def single_line(text: str) -> str:
    r"""Collapse every run of white space into one space.

    >>> single_line(" Katy\n Perry ")
    'Katy Perry'
    """
    return " ".join(text.split())


Line = Annotated[str, AfterValidator(single_line)]
Name = Annotated[str, AfterValidator(single_line), Field(min_length=1)]


def distinct(texts: tuple[str, ...]) -> tuple[str, ...]:
    """The texts that are not empty, each once, in first-seen order."""
    return tuple(dict.fromkeys(text for text in texts if text))


Lines = Annotated[tuple[Line, ...], AfterValidator(distinct)]
Confidence = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]


class Value(BaseModel):
    """A frozen, hashable value that refuses fields it does not know."""

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
    time: Line | None = None
    confidence: Confidence | None = None


class Entity(_Described):
    """A person, place, work or whatever else has a name, and what the passages state of it."""

    aliases: Lines = ()
    evidence: tuple[Evidence, ...] = ()

    @model_validator(mode="after")
    def _has_a_name(self) -> Entity:
        if not self.name:
            raise ValueError("an entity's name is blank")
        return self


class Relation(_Triple):
    """A triple; its ends are names of entities, or plain values such as a date."""

    evidence: tuple[Evidence, ...] = ()

    @model_validator(mode="after")
    def _is_whole(self) -> Relation:
        if not (self.head and self.relation and self.tail):
            raise ValueError("a relation has a blank head, relation or tail")
        return self


class GraphUpdate(Value):
    """What one step adds to a graph: records whose support is already checked."""

    entities: tuple[Entity, ...] = ()
    relations: tuple[Relation, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether the update adds nothing."""
        return not self.entities and not self.relations


class DraftEntity(_Described):
    """An entity as an LM proposed it, before it is checked; `passages` are the labels it cites."""

    passages: tuple[int, ...] = ()


class DraftRelation(_Triple):
    """A relation as an LM proposed it, before it is checked; `passages` are the labels it cites."""

    passages: tuple[int, ...] = ()


class Draft(Value):
    """What could be read of an LM's proposal, and word for word what could not."""

    entities: tuple[DraftEntity, ...] = ()
    relations: tuple[DraftRelation, ...] = ()
    skipped: tuple[str, ...] = ()
