"""The prediction of a program: an answer with its evidence, the rounds and the cost."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

import dspy
from pydantic import BaseModel, ConfigDict, Field
from pydantic_core import to_jsonable_python

from ga_dspy import notebook
from ga_dspy.errors import InputError
from ga_dspy.graph import Entity, KnowledgeGraph, Relation
from ga_dspy.grounding import Dropped
from ga_dspy.passage import Passage
from ga_dspy.programs.evidence import Citation, EvidenceLink, Support
from ga_dspy.programs.meter import Usage


class Step(BaseModel):
    """One round of retrieving, indexing and judging.

    Attributes:
        number: The number of the round, from 1.
        query: The search query.
        made: Whether the program made the query, not the LM.
        reformulated: The query made from the graph because `query` found nothing new.
        retrieved: Ids of all passages that the query returned, in retrieval order.
        passage_ids: Ids of those that were new.
        unread: Ids of passages that the prompt had no room for; the next round shows them.
        entities: Entities added to the graph.
        relations: Relations added to the graph.
        attributes: Attributes added to known entities, as (entity, attribute).
        dropped: What the LM proposed but no passage supports, with the reason.
        reasoning: The judge's reasoning.
        judgement: "sufficient", "insufficient", "exhausted" (no further search can help), or empty
            if the round failed before it.
        candidate: The judge's answer so far, or empty.
        next_query: The judge's next query, or empty.
        rule: Why the program overruled the judge, and what it did instead, or empty.
        failure: Why the round failed, or empty.
        graph: The graph after the round (snapshots share their parts); not in JSON, since the
            additions of all rounds make up the graph.
        notes: The notes after the round, in programs that keep notes.
    """

    model_config = ConfigDict(frozen=True)

    number: int
    query: str
    made: bool = False
    reformulated: str = ""
    retrieved: tuple[str, ...] = ()
    passage_ids: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    entities: tuple[Entity, ...] = ()
    relations: tuple[Relation, ...] = ()
    attributes: tuple[tuple[str, str], ...] = ()
    dropped: tuple[Dropped, ...] = ()
    reasoning: str = ""
    judgement: str = ""
    candidate: str = ""
    next_query: str = ""
    rule: str = ""
    failure: str = ""
    graph: KnowledgeGraph = Field(default=KnowledgeGraph(), exclude=True)
    notes: str = ""

    @property
    def gained(self) -> str:
        """What the round added to the graph, such as "+2 entities, +1 relation"; may be empty."""
        gains = (
            (len(self.entities), "entity", "entities"),
            (len(self.relations), "relation", "relations"),
        )
        return ", ".join(f"+{n} {one if n == 1 else more}" for n, one, more in gains if n)

    @property
    def message(self) -> str:
        """The additions to the graph and the judgement in a few words."""
        dropped = f"{len(self.dropped)} dropped" if self.dropped else ""
        added = ", ".join(filter(None, (self.gained, dropped)))
        judged = ": ".join(filter(None, (self.judgement, self.reasoning)))
        parts = (added, judged, self.rule, self.failure)
        return f"step {self.number}: {'; '.join(filter(None, parts)) or 'nothing new'}"


class Asked(NamedTuple):
    """The question behind a prediction.

    Attributes:
        question: The question.
        program: The class of the program.
        is_restricted: Whether conditions or labels restricted what the program could read.
    """

    question: str
    program: str
    is_restricted: bool


class Prediction(dspy.Prediction):
    """An answer with its evidence, the rounds that found it, and its cost.

    Attributes:
        answer: The answer; empty if the program abstains.
        verdict: "answered", "not in passages" or "premise refuted".
        supported: "chained" if stated links lead from the question to the answer and all checks
            pass, "quoted" if only a sentence of a cited passage holds it, else None.
        guess: The answer, whether supported or not.
        evidence: The chain of a chained answer, or the sentences that hold a quoted one.
        cited: Ids of the passages that the answer rests on.
        citations: The statements of a written answer (`style`), each with a passage it cites.
        passages: All passages read, in the order of their numbers.
        left_out: Ids of those that the answer's prompt did not show.
        graph: The graph; empty in programs without one.
        notes: The notes, thoughts or transcript, in programs that keep them.
        steps: The rounds.
        failures: Errors of steps and searches; the answer was made without their results.
        is_transient: Whether a failure was transient (a timeout, an outage): a retry may succeed.
        usage: The cost of each step, by its name.
        calls: The number of LM calls.
        tokens: The number of tokens.

    The attribute `asked`, which copies lack, has the question and the program.
    """

    answer: str
    verdict: str
    supported: Support | None
    guess: str
    evidence: tuple[EvidenceLink, ...]
    cited: tuple[str, ...]
    citations: tuple[Citation, ...]
    passages: tuple[Passage, ...]
    left_out: tuple[str, ...]
    graph: KnowledgeGraph
    notes: str
    steps: tuple[Step, ...]
    failures: tuple[str, ...]
    is_transient: bool
    usage: dict[str, Usage]
    calls: int
    tokens: int

    @property
    def completions(self) -> dspy.Completions:
        """The prediction as its only completion, which `dspy.majority` counts."""
        return dspy.Completions([self])

    def to_dict(self) -> dict[str, Any]:
        """Return the prediction as JSON values, to store or send."""
        return as_json(self)

    def __repr__(self) -> str:
        """Return the answer, its support, and the size of the rest."""
        if "steps" not in self:
            return str(super().__repr__())
        shown = {name: self[name] for name in ("answer", "verdict", "supported")}
        shown |= {name: len(self[name]) for name in ("evidence", "passages", "steps")}
        shown |= {name: self[name] for name in ("graph", "calls", "tokens")}
        return f"Prediction({', '.join(f'{name}={value!r}' for name, value in shown.items())})"

    def _repr_html_(self) -> str:
        """Return the answer, its evidence and the rounds as HTML, for notebooks."""
        if "steps" not in self:
            return notebook.line(repr(self))
        evidence = ((f"{e.head} {e.relation} {e.tail}", e.quote, e.title) for e in self.evidence)
        steps = (
            (s.number, s.reformulated or s.query, len(s.entities), len(s.relations), s.judgement)
            for s in self.steps
        )
        support = self.supported or "not supported"
        return (
            notebook.line(self.answer or "no answer", bold=True)
            + notebook.line(f"{support} · {self.calls} LM calls · {self.tokens:,} tokens")
            + notebook.table(("evidence", "quote", "passage"), evidence)
            + notebook.table(("step", "query", "entities", "relations", "judgement"), steps)
        )


def as_json(prediction: dspy.Prediction) -> dict[str, Any]:
    """Return a prediction, or a copy of one in another class, as JSON values."""
    ordered = {"answer": prediction.answer, **prediction}
    record = {name: to_jsonable_python(v, fallback=str) for name, v in ordered.items()}
    shown = {part: getattr(prediction.graph, part) for part in ("entities", "relations")}
    record["graph"] = to_jsonable_python(shown)
    return record


SUPPORT = {"chained": "a chain of stated links", "quoted": "quoted in a passage"}
"""How an answer is supported, in words."""


def observation(prediction: dspy.Prediction) -> str:
    """Return a prediction as text for an agent: the answer, its support, the numbered evidence."""
    shown = prediction.answer or "(no answer)"
    if not prediction.answer and prediction.guess:
        shown = f"(no supported answer; a guess: {prediction.guess})"
    support = SUPPORT.get(prediction.supported, "not supported by a passage")
    lines = [f"{n}. {link}" for n, link in enumerate(prediction.evidence, 1)]
    return "\n".join([shown, f"[{support}]", *lines])


ANSWER_FIELDS = ("answer", "verdict", "cited")
"""The fields that the answer step fills; the program fills the others."""


def check_outputs(names: Collection[str]) -> None:
    """Check the output fields of a custom answer step.

    Raises:
        InputError: `answer` is missing, or a name is that of a field the program fills.
    """
    if "answer" not in names:
        raise InputError(
            f"the answer step has the outputs {', '.join(names)}",
            expected="an output field called answer",
            remedy="name the field with the answer `answer`",
        )
    taken = [n for n in names if n in Prediction.__annotations__ and n not in ANSWER_FIELDS]
    if taken:
        raise InputError(
            f"the answer step has the output {', '.join(taken)}",
            expected="other names than those of the prediction's fields, which the program fills",
            remedy=f"rename it, for example to my_{taken[0]}",
        )
