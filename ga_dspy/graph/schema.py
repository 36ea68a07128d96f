"""A schema of your own: the types and relations that a graph should have."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple, Self

from pydantic import Field, ValidationError, model_validator

from ga_dspy.errors import InputError, listed, require
from ga_dspy.graph.identity import relation_key
from ga_dspy.graph.lines import with_types
from ga_dspy.graph.records import Draft, DraftEntity, DraftRelation, Line, Value
from ga_dspy.storage import write_whole

OTHER: Final = "other"
"""The type, or the relation, of what is kept although the schema has none for it."""
_WORD = r"\w[\w .,/&+'’-]*"
_Named = Annotated[str, Field(pattern=f"^{_WORD}$", max_length=80)]
_End = Annotated[str, Field(pattern=rf"^{_WORD}(\|{_WORD})*$", max_length=500)]


class RelationType(Value):
    """What a relation joins; in a file, a list of the head, the tail and what it means.

    Attributes:
        head: The type of its head; several are separated by a bar: "Drug|Device".
        tail: The type of its tail.
        description: What it means, for the LM; may be empty.
    """

    head: _End
    tail: _End
    description: Line = ""

    @model_validator(mode="before")
    @classmethod
    def _of_list(cls, given: Any) -> Any:
        is_list = isinstance(given, list | tuple) and len(given) in (2, 3)
        return dict(zip(cls.model_fields, given, strict=False)) if is_list else given

    @property
    def ends(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the types of the head, and those of the tail."""
        head, tail = (tuple(map(str.strip, end.split("|"))) for end in (self.head, self.tail))
        return head, tail


class Misfit(NamedTuple):
    """An item that a schema has no place for, and why."""

    kind: Literal["entity", "relation"]
    item: str
    reason: str


class Schema(Value):
    """The types and relations that a graph should have.

    The LM reads them with their descriptions. After reading, types are compared without case,
    relations by `relation_key`; no other wording is taken for a relation of the schema. A relation
    between the right types in the wrong direction is turned around. An end without a type fits.

    Attributes:
        entities: What each type of entity is, by its name; the text may be empty. The types that
            relations join need not be listed.
        relations: What each relation joins, by its name; any relation will do if there is none.
        other: What becomes of other types and relations. "keep" keeps them: entities of the type
            "other", relations in their own words, and as "other" if the words are those of the
            schema and the types are not. "drop" drops them, with the reason.

    >>> schema = Schema(entities={"Drug": "a medicine"}, relations={"treats": ("Drug", "Disease")})
    >>> schema.types
    ('Drug', 'Disease')
    """

    entities: Mapping[_Named, Line] = Field(default_factory=dict)
    relations: Mapping[_Named, RelationType] = Field(default_factory=dict)
    other: Literal["keep", "drop"] = "keep"

    def __hash__(self) -> int:
        return hash(self.model_dump_json())

    @model_validator(mode="after")
    def _is_clear(self) -> Self:
        if not self.types:
            raise ValueError("it names no type and no relation")
        for names in (map(str.casefold, self.entities), map(relation_key, self.relations)):
            if twice := [name for name, times in Counter(names).items() if times > 1]:
                raise ValueError(f"it has {twice[0]!r} twice")
        return self

    @classmethod
    def read(cls, path: Path | str) -> Schema:
        """Read a schema from a YAML or JSON file.

        Raises:
            InputError: The file is missing or no schema.
            MissingExtra: It is YAML, and PyYAML is not installed.
        """
        path = Path(path)
        try:
            return cls.model_validate(_loads(path.read_text("utf-8-sig"), path.suffix))
        except OSError as error:
            found = (error.strerror or str(error)).lower()
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"]))
            found = f"{place}: {first['msg']}" if place else first["msg"]
        except ValueError as error:
            found = " ".join(str(error).split())
        raise InputError(
            f"{path}: {found}",
            expected="a schema, such as {entities: {Drug: a medicine}, relations: {treats: [Drug, "
            "Disease]}, other: drop}",
            remedy="correct the file; docs/graphrag.md describes it",
        )

    def write(self, path: Path | str) -> None:
        """Write it to a file that `read` reads: JSON, or YAML for any other suffix than `.json`."""
        path, found = Path(path), self.model_dump(mode="json")
        lines = list[str]()
        for name in ("entities", "relations"):
            lines += [f"{name}:"] if found[name] else []
            for key, value in found[name].items():
                value = [*filter(None, value.values())] if isinstance(value, dict) else value
                lines.append(f"  {json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}")
        text = "\n".join([*lines, f"other: {self.other}", ""])
        is_json = path.suffix.casefold() == ".json"
        write_whole(path, json.dumps(found, ensure_ascii=False, indent=2) if is_json else text)

    # --- What the LM is told

    @cached_property
    def types(self) -> tuple[str, ...]:
        """Return the types of entities, in order, those of relations' ends too."""
        ends = [end for one in self.relations.values() for part in one.ends for end in part]
        by_key = {name.casefold(): name for name in reversed([*self.entities, *ends])}
        return tuple(dict.fromkeys(by_key[n.casefold()] for n in [*self.entities, *ends]))

    @property
    def instruction(self) -> str:
        """Return the relations and types with their descriptions, as an instruction lists them."""
        only, rest = (", no others", "") if self.other == "drop" else ("", f", {OTHER}")
        types = ", ".join(_described(name, self.entities.get(name, "")) for name in self.types)
        relations = "; ".join(
            _described(f"{one.head} -> {name} -> {one.tail}", one.description)
            for name, one in self.relations.items()
        )
        free = "" if only else "; others in the passage's words"
        stated = f"Relations{only}: {relations}{free}. " if relations else ""
        return f"{stated}Types{only}: {types}{rest}"

    # --- What a draft has of it

    def fit(self, draft: Draft, known: Mapping[str, str] = {}) -> tuple[Draft, list[Misfit]]:
        """Return a draft in the words of the schema, and what the schema has no place for.

        Args:
            draft: The proposal of a model.
            known: The types of names that the draft mentions without one.
        """
        draft = with_types(draft, self._kinds)
        types = {node.name: node.type or known.get(node.name, "") for node in draft.nodes}
        misfits, entities, relations = list[Misfit](), list[DraftEntity](), list[DraftRelation]()
        for entity in draft.entities:
            if self.other == "drop" and self._is_outside(entity.type):
                reason = f"type {entity.type}; expected {listed(self.types, 9)}"
                misfits.append(Misfit("entity", entity.name, reason))
            else:
                entities.append(entity.model_copy(update={"type": self._kind(entity.type)}))
        for link in draft.relations:
            fitted = self._fitted(link, types[link.head], types[link.tail])
            if isinstance(fitted, str):
                item = f"{link.head} -> {link.relation} -> {link.tail}"
                misfits.append(Misfit("relation", item, fitted))
            else:
                relations.append(fitted)
        # A copy would have the nodes of the draft.
        fitted_draft = Draft(
            entities=tuple(entities), relations=tuple(relations), skipped=draft.skipped
        )
        return fitted_draft, misfits

    def _fitted(self, link: DraftRelation, *types: str) -> DraftRelation | str:
        """Return a relation in the words of the schema, or why it has no place."""
        kinds = {
            f"{end}_type": self._kind(getattr(link, f"{end}_type")) for end in ("head", "tail")
        }
        link = link.model_copy(update=kinds)
        head, tail = map(self._kind, types)
        name = self._names.get(relation_key(link.relation), "")
        if name and self._joins(name, head, tail):
            return link.model_copy(update={"relation": name})
        if name and head and tail and self._joins(name, tail, head):
            return _turned(link.model_copy(update={"relation": name}))
        is_free = not self.relations or relation_key(link.relation) == _SAME
        is_allowed = is_free and not any(map(self._is_outside, types))
        if self.other == "keep":
            return link.model_copy(update={"relation": OTHER}) if name else link
        if name:
            wanted = self.relations[name]
            found = " -> ".join(kind or "(no type)" for kind in types)
            return f"{name}: {found}; expected {wanted.head} -> {wanted.tail}"
        return link if is_allowed else "no such relation between these types in the schema"

    def _joins(self, name: str, head: str, tail: str) -> bool:
        ends = zip((head, tail), self.relations[name].ends, strict=True)
        return all(not kind or kind in map(self._kind, end) for kind, end in ends)

    def _kind(self, type_: str) -> str:
        """Return a type as the schema spells it; "other" if it has none, and empty for empty."""
        return self._kinds.get(type_.casefold(), OTHER) if type_ else ""

    def _is_outside(self, type_: str) -> bool:
        return bool(type_) and type_.casefold() not in self._kinds

    @cached_property
    def _kinds(self) -> dict[str, str]:
        return {name.casefold(): name for name in self.types}

    @cached_property
    def _names(self) -> dict[str, str]:
        return {relation_key(name): name for name in self.relations}


_SAME: Final = relation_key("same as")


def _loads(text: str, suffix: str) -> Any:
    """Return the value of JSON or YAML.

    Raises:
        ValueError: It is neither.
    """
    if suffix.casefold() == ".json":
        return json.loads(text)
    yaml = require("yaml", "search")
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error


def _described(name: str, description: str) -> str:
    return f"{name} ({description})" if description else name


def _turned(link: DraftRelation) -> DraftRelation:
    head, tail = link.entities
    return link.model_copy(
        update={
            "head": tail.name, "head_type": tail.type, "head_attributes": tail.attributes,
            "tail": head.name, "tail_type": head.type, "tail_attributes": head.attributes,
        }
    )  # fmt: skip
