"""Read a draft from JSON-like values, in whichever of the usual shapes an LM chose."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, Final

from pydantic import ValidationError

from ga_dspy.errors import GaDspyError
from ga_dspy.graph.draft import Draft, DraftEntity, DraftRelation
from ga_dspy.graph.records import single_line
from ga_dspy.graph.text import parse, share

_ENTITIES: Final = ("entities", "nodes")
_RELATIONS: Final = ("relations", "relationships", "triples", "edges")
_NAME: Final = ("name", "entity", "label", "id")
_HEAD: Final = ("head", "source", "subject", "from")
_RELATION: Final = ("relation", "predicate", "relationship", "type", "label")
_TAIL: Final = ("tail", "target", "object", "to")
_CONFIDENCE: Final = ("confidence", "score")
_PASSAGES: Final = ("passages", "passage", "sources", "cited", "citations")


class NotAGraphError(GaDspyError, ValueError):
    """A value was to be read as a graph, and nothing about it is one."""

    def __init__(self, value: object) -> None:
        super().__init__(
            f"found {type(value).__name__} {str(value)[:80]!r}; expected a mapping with 'entities' "
            "and 'relations', a list of triples, or text in one of the graph forms; ask again, "
            "showing the compact form"
        )
        self.value = value


def draft_from(value: Any) -> Draft:
    """Read a draft from what an LM returned: a mapping, a list of facts, or text.

    Args:
        value: `{"entities": [...], "relations": [...]}` (also nodes, relationships, triples,
            edges; also inside {"graph": ...}), a list of entities and triples, or text for
            `parse`. An entity is a string or a mapping, a relation a mapping, three items or a
            string. Bad ones are named in `skipped`.

    Raises:
        NotAGraphError: a ValueError; the value is nothing like a graph, such as a list of numbers.

    >>> draft = draft_from({"entities": ["Rihanna"], "triples": [["Rihanna", "born in"]]})
    >>> draft.entities[0].name, draft.skipped
    ('Rihanna', ("['Rihanna', 'born in']",))
    """
    if isinstance(value, Draft):
        return value
    if isinstance(value, str):
        value = _decoded(value)
        return parse(value) if isinstance(value, str) else draft_from(value)
    if isinstance(value, Mapping):
        return _from_mapping(value)
    if isinstance(value, list | tuple):
        draft = _read((item, _any) for item in value)
        if draft.entities or draft.relations or not value:
            return draft
    raise NotAGraphError(value)


def _decoded(text: str) -> Any:
    """The list or mapping that a text is the JSON of; else the text."""
    plain = re.sub(r"^```\w*|```$", "", text.strip()).strip()
    if plain.startswith(("{", "[")):
        with suppress(json.JSONDecodeError):
            return json.loads(plain)
    return text


_Fact = DraftEntity | DraftRelation
_Reader = Callable[[Any], _Fact | None]


def _from_mapping(value: Mapping[Any, Any]) -> Draft:
    named = {str(key).casefold(): part for key, part in value.items()}
    if isinstance(named.get("graph"), Mapping):
        return _from_mapping(named["graph"])
    if value and not named.keys() & {*_ENTITIES, *_RELATIONS}:
        raise NotAGraphError(value)
    entities = [(item, _entity) for key in _ENTITIES for item in _items(named.get(key))]
    relations = [(item, _relation) for key in _RELATIONS for item in _items(named.get(key))]
    return _read([*entities, *relations])


def _items(part: Any) -> list[Any]:
    """The facts in a list, in a mapping from names to details, or in lines of text."""
    if isinstance(part, Mapping):
        return [
            {"name": name, **(about if isinstance(about, Mapping) else {"attributes": about})}
            for name, about in part.items()
        ]
    if isinstance(part, str):
        return part.splitlines()
    return list(part) if isinstance(part, list | tuple) else [] if part is None else [part]


def _read(items: Iterable[tuple[Any, _Reader]]) -> Draft:
    facts: list[_Fact] = []
    skipped: list[str] = []
    for item, reader in items:
        try:
            fact = reader(item)
        except ValidationError:
            fact = None
        if fact is None:
            skipped.append(single_line(str(item)))
            continue
        facts.append(fact)
        stated = _first(item, _CONFIDENCE) if isinstance(item, Mapping) else None
        if stated is not None and isinstance(fact, DraftRelation) and fact.confidence is None:
            skipped.append(single_line(f"confidence {stated!r} of: {item}"))
    return Draft(
        entities=tuple(fact for fact in facts if isinstance(fact, DraftEntity)),
        relations=tuple(fact for fact in facts if isinstance(fact, DraftRelation)),
        skipped=tuple(skipped),
    )


def _any(item: Any) -> _Fact | None:
    if isinstance(item, Mapping) and _first(item, _HEAD) is None:
        return _entity(item)
    return _relation(item)


def _entity(item: Any) -> DraftEntity | None:
    if isinstance(item, str):
        return next(iter(parse(f"Entities:\n- {single_line(item)}").entities), None)
    if not isinstance(item, Mapping):
        return None
    return DraftEntity(
        name=_text(_first(item, _NAME)),
        type=_text(_first(item, ("type",))),
        attributes=_texts(_first(item, ("attributes", "attribute", "description"))),
        passages=_labels(_first(item, _PASSAGES)),
    )


def _relation(item: Any) -> DraftRelation | None:
    if isinstance(item, str):
        return next(iter(parse(f"Relations:\n1. {single_line(item)}").relations), None)
    if isinstance(item, list | tuple) and len(item) == 3:
        item = dict(zip(("head", "relation", "tail"), item, strict=True))
    if not isinstance(item, Mapping):
        return None
    return DraftRelation(
        head=_text(_first(item, _HEAD)),
        relation=_text(_first(item, _RELATION)),
        tail=_text(_first(item, _TAIL)),
        time=_text(_first(item, ("time", "date"))) or None,
        confidence=share(_text(_first(item, _CONFIDENCE))),
        passages=_labels(_first(item, _PASSAGES)),
    )


def _first(item: Mapping[Any, Any], keys: Iterable[str]) -> Any:
    named = {str(key).casefold(): value for key, value in item.items()}
    return next((named[key] for key in keys if named.get(key) is not None), None)


def _text(value: Any) -> str:
    """A name as text; numbers are names too (a year), anything else is none."""
    is_name = isinstance(value, str | int | float) and not isinstance(value, bool)
    return str(value) if is_name else ""


def _texts(value: Any) -> tuple[str, ...]:
    if isinstance(value, Mapping):
        return tuple(f"{key}: {_text(part)}" for key, part in value.items() if _text(part))
    if isinstance(value, list | tuple):
        return tuple(text for part in value for text in _texts(part))
    return (_text(value),)


def _labels(value: Any) -> tuple[int, ...]:
    """Passage labels from 3, "3", "[2, 6]" or a list of those."""
    parts = value if isinstance(value, list | tuple) else [value]
    numbers = (number for part in parts for number in re.findall(r"\d+", _text(part)))
    return tuple(dict.fromkeys(int(number) for number in numbers))
