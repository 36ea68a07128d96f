"""What an LM proposed for the graph, before anything was checked: labels, not passage ids."""

from __future__ import annotations

from ga_dspy.graph.records import Confidence, Line, Lines, Name, Value


class DraftEntity(Value):
    """An entity as proposed; `passages` are the labels [n] it cites."""

    name: Name
    type: Line = ""
    attributes: Lines = ()
    passages: tuple[int, ...] = ()


class DraftRelation(Value):
    """A relation as proposed; `passages` are the labels [n] it cites."""

    head: Name
    relation: Name
    tail: Name
    time: Line | None = None
    confidence: Confidence | None = None
    passages: tuple[int, ...] = ()


class Draft(Value):
    """What could be read of an LM's proposal, and word for word what could not."""

    entities: tuple[DraftEntity, ...] = ()
    relations: tuple[DraftRelation, ...] = ()
    skipped: tuple[str, ...] = ()
