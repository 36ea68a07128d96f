"""What an LM proposes to add to the graph: typed for us, plain lines for the LM.

The LM sees and writes lines, which cost a fraction of the tokens of a nested JSON schema (`ga-dspy
bench prompts` prints how much); JSON is understood as well. Reading is lenient: a bad line goes to
`skipped` and the good ones stay. Text in which nothing reads as a graph is a `ValueError`, never
an empty proposal, unless it is empty or says so ("(empty)", "none").
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import dspy
import pydantic
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from ga_dspy.graph import (
    Draft,
    DraftEntity,
    DraftRelation,
    Entity,
    Evidence,
    GraphUpdate,
    Relation,
    draft_from,
    linearise,
)
from ga_dspy.signatures.prompt import said

LINE_FORMAT = """plain text, one entity or relation a line, nothing else:
    Entities:
    - name (type; attribute; attribute) [passage number]
    Relations:
    1. head entity -> relation -> tail entity [passage number]"""


class GraphProposal(dspy.Type):
    """Graph lines in the form described above."""

    # Some adapters print the docstring and the fields to the LM: both are written for it.
    text: str = ""

    @classmethod
    def description(cls) -> str:
        """The form that the LM is asked for."""
        return LINE_FORMAT

    @cached_property
    def draft(self) -> Draft:
        """The entities and relations proposed, and the lines that could not be read."""
        return draft_from(self.text)

    @property
    def entities(self) -> tuple[DraftEntity, ...]:
        """The entities proposed."""
        return self.draft.entities

    @property
    def relations(self) -> tuple[DraftRelation, ...]:
        """The relations proposed."""
        return self.draft.relations

    @property
    def skipped(self) -> tuple[str, ...]:
        """What could not be read, word for word."""
        return self.draft.skipped

    def format(self) -> str:
        """The readable lines, as they stand in a prompt or a demo."""
        return _lines(self.draft)

    @pydantic.model_validator(mode="before")
    @classmethod
    def _read(cls, value: Any) -> Any:
        if isinstance(value, dict) and value.keys() == {"text"}:
            value = value["text"]
        if value is None or isinstance(value, str):
            value = said(value)
        draft = draft_from(value)
        if draft.skipped and not (draft.entities or draft.relations):
            raise ValueError(f"nothing here reads as a graph: {draft.skipped[0][:80]!r}")
        if isinstance(value, str):
            return {"text": value}
        return {"text": "\n".join([_lines(draft), *draft.skipped])}

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: pydantic.GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """A string, so that adapters print one word where the whole schema would stand."""
        return {"type": "string"}


def _lines(draft: Draft) -> str:
    entities = tuple(
        Entity(name=e.name, type=e.type, attributes=e.attributes, evidence=_cited(e.passages))
        for e in draft.entities
    )
    relations = tuple(
        Relation(**r.model_dump(exclude={"passages"}), evidence=_cited(r.passages))
        for r in draft.relations
    )
    items: tuple[DraftEntity | DraftRelation, ...] = (*draft.entities, *draft.relations)
    numbers = {str(label): label for item in items for label in item.passages}
    return linearise(GraphUpdate(entities=entities, relations=relations), labels=numbers)


def _cited(labels: tuple[int, ...]) -> tuple[Evidence, ...]:
    return tuple(Evidence(passage=str(label), start=0, end=0) for label in labels)
