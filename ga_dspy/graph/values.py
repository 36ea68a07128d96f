"""Values like those of JSON, in which an LM may state a fact: a mapping, or a list of three."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple

from pydantic import ValidationError

from ga_dspy.graph.records import Draft, DraftEntity, DraftRelation, single_line

_SPARE_COMMA: Final = re.compile(r",(?=\s*[\]}])")
_NEW: Final = re.compile(r"^(?:new|added|additional|extracted)[ _]|[ _](?:list|found)$")
_SPAN: Final = re.compile(r"(\d{1,6})(?:\s?(?:[–-]|to)\s?(\d{1,6}))?")


class Read(NamedTuple):
    """What a line or an item states, and the fault to report where not all of it was read."""

    fact: DraftEntity | DraftRelation | None
    fault: str | None = None


def draft_of(read: Iterable[Read]) -> Draft:
    """All that was read, as one draft."""
    every = list(read)
    return Draft(
        entities=tuple(one.fact for one in every if isinstance(one.fact, DraftEntity)),
        relations=tuple(one.fact for one in every if isinstance(one.fact, DraftRelation)),
        skipped=tuple(one.fault for one in every if one.fault is not None),
    )


def read_value(item: Any, is_entity: bool | None = None, line: str = "") -> Read:
    """Read one fact; `is_entity` is None where entities and relations share a list."""
    line = line or single_line(str(item))
    if isinstance(item, list | tuple) and len(item) in (3, 4) and not is_entity:
        item = dict(zip(("head", "relation", "tail", "passages"), item, strict=False))
    if not isinstance(item, Mapping):
        return Read(None, line)
    given = fields_of(item)
    if given.keys() & {"head", "subject"} and "source" in given:
        given["sources"] = given.pop("source")
    if is_entity is None:
        is_entity = all(given.get(key) is None for key in FIELDS["head"][1:])
    kind = DraftEntity if is_entity else DraftRelation
    stated = {
        field: next((given[key] for key in FIELDS[field][1:] if given.get(key) is not None), None)
        for field in kind.model_fields
    }
    try:
        fact = kind.model_validate({key: FIELDS[key][0](value) for key, value in stated.items()})
    except ValidationError:
        return Read(None, line)
    doubtful = stated["confidence"] if getattr(fact, "confidence", 1) is None else None
    return Read(fact, None if doubtful is None else f"confidence {doubtful!r} of: {line}")


def fields_of(item: Mapping[Any, Any]) -> dict[str, Any]:
    """A mapping's values under their keys, of which case and signs do not count."""
    return {_NEW.sub("", str(key).casefold()): value for key, value in item.items()}


def loads(text: str) -> Any:
    """The value of JSON, of JSON with a comma too many, or of a Python literal; else None."""
    text = text.strip().rstrip(",")
    for read in (json.loads, lambda text: json.loads(_SPARE_COMMA.sub("", text)), ast.literal_eval):
        with suppress(ValueError, SyntaxError, RecursionError, MemoryError):
            return read(text)
    return None


def _text(value: Any) -> str:
    """A name as text; numbers are names too (a year), anything else is none."""
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        value = fields_of(value).get("name")
    is_name = isinstance(value, str | int | float) and not isinstance(value, bool)
    return str(value) if is_name else ""


def _texts(value: Any) -> tuple[str, ...]:
    if isinstance(value, Mapping):
        return tuple(f"{key}: {_text(part)}" for key, part in value.items() if _text(part))
    if isinstance(value, list | tuple):
        return tuple(text for part in value for text in _texts(part))
    return (_text(value),)


def _numbers(value: Any) -> tuple[int, ...]:
    """Passage labels from 3, "3", "[2, 6]" or a list of those."""
    parts = value if isinstance(value, list | tuple) else [value]
    numbers = (number for part in parts for number in numbers_in(_text(part)))
    return tuple(dict.fromkeys(numbers))


def share(text: str) -> float | None:
    """A number from 0 to 1, also from a percentage; None where the text is neither."""
    try:
        value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        return None
    return value if 0 <= value <= 1 else None


def numbers_in(text: str) -> list[int]:
    """The labels of a list such as "1, 3-5"."""
    numbers: list[int] = []
    for first, last in _SPAN.findall(re.sub("†[^,;]*", "", text)):
        start, end = int(first), int(last or first)
        numbers += range(start, end + 1) if start <= end < start + 50 else (start, end)
    return numbers


FIELDS: Final[Mapping[str, Any]] = {
    "name": (_text, "name", "entity", "label", "id"),
    "type": (_text, "type"),
    "attributes": (_texts, "attributes", "attribute", "description"),
    "head": (_text, "head", "source", "subject", "from"),
    "head_type": (_text, "head_type", "source_type", "subject_type"),
    "head_attributes": (_texts, "head_attributes"),
    "relation": (_text, "relation", "predicate", "relationship", "type", "label"),
    "tail": (_text, "tail", "target", "object", "to"),
    "tail_type": (_text, "tail_type", "target_type", "object_type"),
    "tail_attributes": (_texts, "tail_attributes"),
    "time": (lambda value: _text(value) or None, "time", "date"),
    "confidence": (lambda value: share(_text(value)), "confidence", "score"),
    "passages": (_numbers, "passages", "passage", "sources", "cited", "citations"),
}
"""How each field of a draft is read, and its keys: the first that has a value counts."""
