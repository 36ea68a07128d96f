"""What GraphAnchor knows about one question while it works on it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import dspy

from ga_dspy.graph import KnowledgeGraph
from ga_dspy.programs.meter import Meter
from ga_dspy.programs.prediction import Step
from ga_dspy.programs.reading import Reading
from ga_dspy.signatures.prompt import said


class Judged(NamedTuple):
    """What the judge said, with every way of saying nothing read as empty."""

    reasoning: str = ""
    judgement: str = ""
    candidate: str = ""
    next_query: str = ""

    @classmethod
    def of(cls, reply: dspy.Prediction) -> Judged:
        """Read a judge's reply."""
        return cls(
            said(reply.reasoning), reply.judgement, said(reply.candidate), said(reply.next_query)
        )


@dataclass
class Progress:
    """Everything known about one question while it is being worked on."""

    question: str
    meter: Meter = field(default_factory=Meter)
    reading: Reading = field(default_factory=Reading)
    graph: KnowledgeGraph = field(default_factory=KnowledgeGraph)
    notes: str = ""
    steps: list[Step] = field(default_factory=list)

    @property
    def reasoning(self) -> str:
        """What the step before concluded."""
        return self.steps[-1].reasoning if self.steps else ""

    @property
    def candidate(self) -> str:
        """The latest answer that a judge saw."""
        return next((step.candidate for step in reversed(self.steps) if step.candidate), "")
