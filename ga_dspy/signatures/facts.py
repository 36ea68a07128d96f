"""Additions to the graph as JSON, for providers that enforce a schema on a reply."""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import Any, ClassVar, Final, Literal, get_args

import dspy
import pydantic

from ga_dspy.graph import Schema
from ga_dspy.graph.records import DraftEntity, EntityType
from ga_dspy.graph.schema import OTHER
from ga_dspy.signatures.graph_anchor import GraphProposal

FACT_FORMAT: Final = """\
[{"head": name, "head_type": type, "relation": words, "tail": name, "tail_type": type, \
"passages": [passage number]}], or []"""


class Fact(pydantic.BaseModel):
    """A relation between two typed entities, and the numbers of the passages that state it."""

    model_config = pydantic.ConfigDict(extra="forbid")

    head: str
    head_type: EntityType
    relation: str
    tail: str
    tail_type: EntityType
    passages: list[int]


class GraphFacts(GraphProposal):
    """A graph proposal that is written as a list of facts; lines are read as well."""

    adapter: ClassVar[pydantic.TypeAdapter[Any]] = pydantic.TypeAdapter(list[Fact])
    types: ClassVar[tuple[str, ...]] = get_args(EntityType)

    @classmethod
    def description(cls) -> str:
        """Return the format that the prompt asks for."""
        return FACT_FORMAT

    @property
    def facts(self) -> list[Fact]:
        """The proposed relations; an end without an allowed type has the type "other"."""
        types, facts = {node.name: self._type_of(node) for node in self.draft.nodes}, list[Fact]()
        for stated in self.draft.relations:
            ends: Any = {"head_type": types[stated.head], "tail_type": types[stated.tail]}
            triple: Any = {"head": stated.head, "relation": stated.relation, "tail": stated.tail}
            fact = Fact.model_construct(**triple, **ends, passages=list(stated.passages))
            facts.append(fact)
        return facts

    def format(self) -> str:
        """Return the facts as JSON, for a demo."""
        return json.dumps(self.serialize_model(), ensure_ascii=False)

    @pydantic.model_serializer()
    def serialize_model(self) -> list[dict[str, Any]]:
        """Return the facts as JSON values."""
        facts: list[dict[str, Any]] = self.adapter.dump_python(self.facts, mode="json")
        return facts

    @pydantic.model_validator(mode="before")
    @classmethod
    def _read(cls, value: Any) -> Any:
        value = value.text if isinstance(value, GraphProposal) else value
        return super()._read(value)  # type: ignore[operator]

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: Any, handler: Any) -> dict[str, Any]:
        """Return the schema of a list of facts."""
        schema: dict[str, Any] = handler(cls.adapter.core_schema)
        return schema

    @classmethod
    def _type_of(cls, node: DraftEntity) -> str:
        kind = node.type.casefold().replace("organization", "organisation")
        return next((name for name in cls.types if name.casefold() == kind), OTHER)


@lru_cache
def _facts_of(schema: Schema) -> type[GraphFacts]:
    """Return `GraphFacts` with the types of a schema, and its relations if it drops others."""
    kind = Literal.__getitem__((*schema.types, OTHER))
    fields: dict[str, Any] = {"head_type": kind, "tail_type": kind}
    if schema.relations and schema.other == "drop":
        fields["relation"] = Literal.__getitem__((*schema.relations, "same as"))
    fact = pydantic.create_model("Fact", __base__=Fact, **fields)

    class SchemaFacts(GraphFacts):
        __doc__ = GraphFacts.__doc__
        adapter = pydantic.TypeAdapter(list[fact])
        types = schema.types

    return SchemaFacts


def with_facts(
    signature: type[dspy.Signature], schema: Schema | None = None
) -> type[dspy.Signature]:
    """Return a step that adds to the graph with facts as JSON in place of lines."""
    kind = _facts_of(schema) if schema else GraphFacts
    in_json: type[dspy.Signature] = signature.with_updated_fields("additions", type_=kind)
    return in_json


_TYPES: Final = re.compile(r"Types:\s" + r",\s".join(get_args(EntityType)))


def with_schema(signature: type[dspy.Signature], schema: Schema) -> type[dspy.Signature]:
    """Return a step that adds to the graph with the types and relations of a schema."""
    text = _TYPES.sub(lambda _: schema.instruction, signature.instructions)
    instructed: type[dspy.Signature] = signature.with_instructions(text)
    return instructed
