"""User-defined schemas: the types and relations that a graph should have."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Annotated, Final, Literal, Self

from pydantic import Field, model_validator

from ga_dspy.errors import listed
from ga_dspy.graph.identity import relation_key
from ga_dspy.graph.lines import with_types
from ga_dspy.graph.records import Draft, DraftEntity, DraftRelation, Line, Value
from ga_dspy.storage import read_as

OTHER: Final = "other"
"""The type or relation of an item that is kept although the schema has no other for it."""
_NAME: Final = re.compile(r"\w[\w .,/&+'’-]*")
_Joined = Annotated[tuple[Line, ...], Field(min_length=2, max_length=3)]


Drop = Callable[[Literal["entity", "relation"], str, str], None]
"""A callback for dropped items: takes the kind, the item and the reason."""


class Schema(Value):
    """The types and relations that a graph should have.

    The LM reads them with their descriptions. In its reply, types match without regard to case and
    relations by `relation_key`; a synonym does not match. A relation between the right types in the
    wrong direction is reversed. An end without a type fits any type.

    Attributes:
        entities: The description of each entity type, by name; it may be empty. Types that appear
            in `relations` need not be listed.
        relations: The type of the head, the type of the tail and an optional description of each
            relation, by name. A bar separates several types: "Drug|Device". If empty, any relation
            is allowed.
        other: How to treat other types and relations. "keep" keeps entities with the type "other"
            and relations in their own words; a relation of the schema between other types is kept
            as "other". "drop" drops them and records the reason.

    >>> schema = Schema(entities={"Drug": "a medicine"}, relations={"treats": ("Drug", "Disease")})
    >>> schema.types
    ('Drug', 'Disease')
    """

    entities: Mapping[Line, Line] = Field(default_factory=dict)
    relations: Mapping[Line, _Joined] = Field(default_factory=dict)
    other: Literal["keep", "drop"] = "keep"

    def __hash__(self) -> int:
        return hash(self.model_dump_json())

    @model_validator(mode="after")
    def _is_clear(self) -> Self:
        if not self.types or len(self._names) < len(self.relations):
            raise ValueError("the schema has no type, or has a relation twice")
        names = (*self.types, *self.relations)
        if wrong := [name for name in names if not _NAME.fullmatch(name)]:
            raise ValueError(f"{wrong[0]!r} is not a name: a letter or number, then no brackets")
        return self

    @classmethod
    def read(cls, path: Path | str) -> Schema:
        """Read a schema from a YAML or JSON file.

        Raises:
            InputError: The file is missing or is not a schema.
            MissingExtra: The file is YAML, and PyYAML is not installed.
        """
        return read_as(
            Path(path),
            cls,
            expected="a schema, such as {entities: {Drug: a medicine}, relations: {treats: [Drug, "
            "Disease]}, other: drop}",
            remedy="see docs/graphrag.md",
        )

    @property
    def yaml(self) -> str:
        """Return the schema as YAML, for `read`."""
        lines = list[str]()
        for part, named in (("entities", self.entities), ("relations", self.relations)):
            lines += [f"{part}:"] if named else []
            for name, value in named.items():
                texts = (json.dumps(text, ensure_ascii=False) for text in (name, value))
                lines.append(f"  {': '.join(texts)}")
        return "\n".join([*lines, f"other: {self.other}", ""])

    # --- In prompts

    @cached_property
    def types(self) -> tuple[str, ...]:
        """Return the entity types in order, then those that only relations have."""
        ends = [part for one in self.relations.values() for end in one[:2] for part in _parts(end)]
        by_key = dict[str, str]()
        for name in (*self.entities, *ends):
            by_key.setdefault(name.casefold(), name)
        return tuple(by_key.values())

    @property
    def instruction(self) -> str:
        """Return the relations and types with their descriptions, as text for a prompt."""
        only, rest = (", no others", "") if self.other == "drop" else ("", f", {OTHER}")
        types = ", ".join(_described(name, self.entities.get(name, "")) for name in self.types)
        relations = "; ".join(
            _described(f"{head} -> {name} -> {tail}", *description)
            for name, (head, tail, *description) in self.relations.items()
        )
        free = "" if only else "; others in the passage's words"
        stated = f"Relations{only}: {relations}{free}. " if relations else ""
        return f"{stated}Types{only}: {types}{rest}"

    # --- In replies

    def fit(self, draft: Draft, drop: Drop, known: Mapping[str, str] = {}) -> Draft:
        """Return a draft with the types and relations of the schema.

        Args:
            draft: The LM's proposal.
            drop: Called with each item that is left out.
            known: The types of names that have none in the draft.
        """
        draft = with_types(draft, self._kinds)
        types = {node.name: node.type or known.get(node.name, "") for node in draft.nodes}
        entities, relations = list[DraftEntity](), list[DraftRelation]()
        for entity in draft.entities:
            kind = self._kind(entity.type)
            if self.other == "drop" and kind == OTHER:
                drop("entity", entity.name, f"type {entity.type}; expected {listed(self.types, 9)}")
            else:
                entities.append(entity.model_copy(update={"type": kind}))
        for link in draft.relations:
            fitted = self._fitted(link, types[link.head], types[link.tail])
            if isinstance(fitted, str):
                drop("relation", f"{link.head} -> {link.relation} -> {link.tail}", fitted)
            else:
                relations.append(fitted)
        return Draft(entities=tuple(entities), relations=tuple(relations), skipped=draft.skipped)

    def _fitted(self, link: DraftRelation, *types: str) -> DraftRelation | str:
        """Return a relation with the schema's wording and types, or the reason to drop it."""
        stated = {"head_type": self._kind(link.head_type), "tail_type": self._kind(link.tail_type)}
        link, key = link.model_copy(update=stated), relation_key(link.relation)
        name, (head, tail) = self._names.get(key, ""), map(self._kind, types)
        if name and self._joins(name, head, tail):
            return link.model_copy(update={"relation": name})
        if name and head and tail and self._joins(name, tail, head):
            return _reversed(link.model_copy(update={"relation": name}))
        if self.other == "keep":
            return link.model_copy(update={"relation": OTHER}) if name else link
        if name:
            found = " -> ".join(kind or "(no type)" for kind in types)
            return f"{name}: {found}; expected {' -> '.join(self.relations[name][:2])}"
        is_free = not self.relations or key == relation_key("same as")
        is_allowed = is_free and OTHER not in (head, tail)
        return link if is_allowed else "no such relation between these types in the schema"

    def _joins(self, name: str, head: str, tail: str) -> bool:
        ends = zip((head, tail), self.relations[name][:2], strict=True)
        return all(not kind or kind in map(self._kind, _parts(end)) for kind, end in ends)

    def _kind(self, type_: str) -> str:
        """Return a type in the schema's spelling, "other" if it is not in it, "" if it is empty."""
        return self._kinds.get(type_.casefold(), OTHER) if type_ else ""

    @cached_property
    def _kinds(self) -> dict[str, str]:
        return {name.casefold(): name for name in self.types}

    @cached_property
    def _names(self) -> dict[str, str]:
        return {relation_key(name): name for name in self.relations}


def _parts(end: str) -> list[str]:
    return [part.strip() for part in end.split("|")]


def _described(name: str, description: str = "") -> str:
    return f"{name} ({description})" if description else name


def _reversed(link: DraftRelation) -> DraftRelation:
    ends, fields = (("head", "tail"), ("tail", "head")), ("", "_type", "_attributes")
    swapped = {f"{a}{field}": getattr(link, f"{b}{field}") for a, b in ends for field in fields}
    return link.model_copy(update=swapped)
