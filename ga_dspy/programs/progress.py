"""What a program knows about one question while it works on it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import dspy

from ga_dspy.graph import KnowledgeGraph
from ga_dspy.programs.answering import Conclusion
from ga_dspy.programs.meter import Meter
from ga_dspy.programs.prediction import Step
from ga_dspy.programs.reading import Reading, Shown
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
    """Everything known about one question while it is being worked on.

    Attributes:
        question: The question.
        meter: What it cost so far.
        reading: The passages read and the queries tried.
        graph: The graph so far; empty in programs that keep none.
        notes: What is kept in words: notes, thoughts, or a transcript.
        steps: The rounds so far.
        opening: Why the first search is for the question, where the LM was to choose it.
        setbacks: How many updates of the notes in a row were no better.
        ending: The latest answer with the passages it was read from, in programs whose rounds
            give answers.
    """

    question: str
    meter: Meter = field(default_factory=Meter)
    reading: Reading = field(default_factory=Reading)
    graph: KnowledgeGraph = field(default_factory=KnowledgeGraph)
    notes: str = ""
    steps: list[Step] = field(default_factory=list)
    opening: str = ""
    setbacks: int = 0
    ending: tuple[Shown, Conclusion] | None = None

    @property
    def reasoning(self) -> str:
        """What the step before concluded."""
        return self.steps[-1].reasoning if self.steps else ""

    @property
    def candidate(self) -> str:
        """The latest answer that a judge saw."""
        return next((step.candidate for step in reversed(self.steps) if step.candidate), "")
