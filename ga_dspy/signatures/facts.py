"""Facts as JSON: what a step adds to the graph, for a provider that holds a reply to a schema."""

from __future__ import annotations

import json
from typing import Any, Final, get_args

import dspy
from pydantic import BaseModel, ConfigDict, TypeAdapter, model_serializer, model_validator

from ga_dspy.graph.records import DraftEntity, EntityType
from ga_dspy.signatures.graph_anchor import GraphProposal

FACT_FORMAT: Final = """\
[{"head": name, "head_type": type, "relation": words, "tail": name, "tail_type": type, \
"passages": [passage number]}], or []"""


class Fact(BaseModel):
    """A relation between two typed entities, and the numbers of the passages that state it."""

    model_config = ConfigDict(extra="forbid")

    head: str
    head_type: EntityType
    relation: str
    tail: str
    tail_type: EntityType
    passages: list[int]


_FACTS: Final = TypeAdapter(list[Fact])


class GraphFacts(GraphProposal):
    """A graph proposal that is written as a list of facts; lines are read as well."""

    @classmethod
    def description(cls) -> str:
        """The form that the LM is asked for."""
        return FACT_FORMAT

    @property
    def facts(self) -> list[Fact]:
        """The relations proposed; the type of an end that has none of ours is "other"."""
        types = {node.name: _type_of(node) for node in self.draft.nodes}
        return [
            Fact(
                head=relation.head,
                head_type=types[relation.head],
                relation=relation.relation,
                tail=relation.tail,
                tail_type=types[relation.tail],
                passages=list(relation.passages),
            )
            for relation in self.draft.relations
        ]

    def format(self) -> str:
        """The facts as JSON, as they stand in a demo."""
        return json.dumps(self.serialize_model(), ensure_ascii=False)

    @model_serializer()
    def serialize_model(self) -> list[dict[str, Any]]:
        """The facts as JSON values."""
        facts: list[dict[str, Any]] = _FACTS.dump_python(self.facts, mode="json")
        return facts

    @model_validator(mode="before")
    @classmethod
    def _read(cls, value: Any) -> Any:
        value = value.text if isinstance(value, GraphProposal) else value
        return super()._read(value)  # type: ignore[operator]

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: Any, handler: Any) -> dict[str, Any]:
        """That of a list of facts."""
        schema: dict[str, Any] = handler(_FACTS.core_schema)
        return schema


def _type_of(node: DraftEntity) -> EntityType:
    kind = node.type.casefold().replace("organization", "organisation")
    return kind if kind in get_args(EntityType) else "other"  # type: ignore[return-value]


def with_facts(signature: type[dspy.Signature]) -> type[dspy.Signature]:
    """Return a step that adds to the graph, with facts as JSON in the place of lines."""
    asked: type[dspy.Signature] = signature.with_updated_fields("additions", type_=GraphFacts)
    return asked


def writes_facts(signature: type[dspy.Signature]) -> bool:
    """Return whether a step writes facts as JSON."""
    return any(field.annotation is GraphFacts for field in signature.output_fields.values())
