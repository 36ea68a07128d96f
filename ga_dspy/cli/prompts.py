"""`ga-dspy bench prompts`: what a step costs before it says anything, by adapter and graph type."""

from __future__ import annotations

import dspy
from dspy.adapters.baml_adapter import BAMLAdapter
from pydantic import BaseModel
from rich import box
from rich.console import Console
from rich.table import Table

from ga_dspy.signatures import AnswerQuestion, ReadAndJudge
from ga_dspy.tokens import estimate_tokens

ADAPTERS = {
    "Chat": dspy.ChatAdapter,
    "JSON": dspy.JSONAdapter,
    "BAML": BAMLAdapter,
    "XML": dspy.XMLAdapter,
}


class NestedEntity(BaseModel):
    """An entity as a nested schema states it."""

    name: str
    type: str
    attributes: list[str]
    passages: list[int]


class NestedRelation(BaseModel):
    """A relation as a nested schema states it."""

    head: str
    relation: str
    tail: str
    time: str | None
    confidence: float | None
    passages: list[int]


class NestedGraph(BaseModel):
    """What GraphProposal holds, as an ordinary Pydantic type."""

    entities: list[NestedEntity]
    relations: list[NestedRelation]


def fixed_cost(signature: type[dspy.Signature], adapter: dspy.Adapter) -> int:
    """Estimated tokens of a prompt whose inputs are all empty."""
    inputs = dict.fromkeys(signature.input_fields, "")
    messages = adapter.format(signature, demos=[], inputs=inputs)
    return sum(estimate_tokens(message["content"]) for message in messages)


def run_prompts() -> None:
    """Print the fixed cost of the read step with our graph type and with a nested one."""
    nested = ReadAndJudge.with_updated_fields("additions", type_=NestedGraph)
    table = Table(
        title="estimated prompt tokens of a step with empty inputs",
        title_justify="left",
        box=box.SIMPLE_HEAD,
    )
    table.add_column("adapter")
    for heading in ("read, graph as lines (ours)", "read, nested type", "answer"):
        table.add_column(heading, justify="right")
    for name, make in ADAPTERS.items():
        costs = [fixed_cost(s, make()) for s in (ReadAndJudge, nested, AnswerQuestion)]
        table.add_row(name, *map(str, costs))
    Console().print(table)
