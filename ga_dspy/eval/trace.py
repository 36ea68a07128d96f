"""What a run keeps of a program's way to an answer: enough for every table, without the objects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict

from ga_dspy.eval import scores
from ga_dspy.graph import linearise
from ga_dspy.passage import Passage
from ga_dspy.programs import Step


class StepTrace(BaseModel):
    """One round of retrieval.

    Attributes:
        query: What was searched.
        reformulated: The query made in its place, where it brought nothing new.
        retrieved: How many passages came back, with those of the reformulated query.
        titles: Titles of those that were new.
        hit: Whether an accepted answer occurs in a passage read so far; None where it is yes/no.
        judgement: "sufficient", "insufficient", or empty where nothing was judged.
        candidate: The answer seen by then.
        rule: Where the program overruled the LM, and why.
        failure: Why the step failed, or empty.
        gained: Entities and relations that the graph gained.
        dropped: How many proposed items were not grounded.
        entities: Entities in the graph after the step.
        relations: Relations in it.
        names: Entities that were new in this step.
        graph: The graph after the step, as a prompt shows it; empty where there is none.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    query: str
    reformulated: str = ""
    retrieved: int = 0
    titles: tuple[str, ...] = ()
    hit: bool | None = None
    judgement: str = ""
    candidate: str = ""
    rule: str = ""
    failure: str = ""
    gained: int = 0
    dropped: int = 0
    entities: int = 0
    relations: int = 0
    names: tuple[str, ...] = ()
    graph: str = ""

    @property
    def overlap(self) -> float | None:
        """Share of the retrieved passages that were read before; None where nothing came back."""
        return 1 - len(self.titles) / self.retrieved if self.retrieved else None


def traced(
    steps: Sequence[Any], passages: Sequence[Passage], gold: tuple[str, ...]
) -> tuple[StepTrace, ...]:
    """The steps of a prediction; none where the program tells steps of another kind.

    Args:
        steps: The prediction's steps.
        passages: Everything it read, in first-seen order.
        gold: The accepted answers.
    """
    if not all(isinstance(step, Step) for step in steps):
        return ()
    by_id = {passage.id: passage for passage in passages}
    labels = {passage.id: number for number, passage in enumerate(passages, start=1)}
    found: bool | None = scores.answer_in("", gold)
    traces = []
    for step in steps:
        new = [by_id[id] for id in step.passage_ids if id in by_id]
        if found is False:
            found = any(scores.answer_in(passage.content, gold) for passage in new)
        traces.append(_trace(step, new, found, labels))
    return tuple(traces)


def _trace(
    step: Step, new: Sequence[Passage], hit: bool | None, labels: dict[str, int]
) -> StepTrace:
    graph = step.graph
    return StepTrace(
        query=step.query,
        reformulated=step.reformulated,
        retrieved=len(step.retrieved),
        titles=tuple(passage.title for passage in new),
        hit=hit,
        judgement=step.judgement,
        candidate=step.candidate,
        rule=step.rule,
        failure=step.failure,
        gained=len(step.entities) + len(step.relations),
        dropped=len(step.dropped),
        entities=len(graph.entities),
        relations=len(graph.relations),
        names=tuple(entity.name for entity in step.entities),
        graph=linearise(graph, labels=labels) if graph.entities or graph.relations else "",
    )
