"""Read: index and judge in one LM call."""

from __future__ import annotations

import dspy

from ga_dspy.signatures.judge import Judgement
from ga_dspy.signatures.proposal import GraphProposal


class ReadAndJudge(dspy.Signature):
    """Extend a knowledge graph with what new passages say, then decide what is still missing.

    First the additions. List the entities (people, places, organisations, works, events, dates,
    quantities) and the relations between them that help to answer the question or to find what
    is missing. Give only what the graph does not hold yet. Write every name as the passage
    spells it, keep relations to a short phrase in the passage's words, and end each line with
    the number of the passage that states it in square brackets. Both ends of a relation must
    occur in that one passage. State only what the passages state: no guesses, no "unknown"
    entries, nothing from memory. If feedback is given, your previous attempt had those faults:
    mend them or leave the items out.

    Then the judgement. Follow the question hop by hop through the graph with your additions.
    Judge "sufficient" only if every link is stated, or if a premise of the question is refuted;
    then name the answer you see as the candidate and leave next_query empty. Otherwise judge
    "insufficient" and write one short search query for the first missing link, naming the entity
    already found and what is sought about it. Never repeat a query that was tried; where one
    brought nothing, approach the same link by another name or from its other end. The judgement
    must agree with the reasoning.
    """

    question: str = dspy.InputField(desc="the question to be answered in the end")
    tried: str = dspy.InputField(desc="the queries searched so far and what each brought")
    graph: str = dspy.InputField(desc="what is known so far, with passage numbers")
    previous_reasoning: str = dspy.InputField(desc="what the step before concluded", default="")
    passages: str = dspy.InputField(desc="the new passages, numbered")
    feedback: str = dspy.InputField(desc="faults of the previous attempt, if any", default="")
    additions: GraphProposal = dspy.OutputField(desc="what the new passages add to the graph")
    reasoning: str = dspy.OutputField(desc="a few sentences: links established, links missing")
    judgement: Judgement = dspy.OutputField(desc="does the evidence suffice?")
    candidate: str = dspy.OutputField(desc="the answer if you see it, a short span, else empty")
    next_query: str = dspy.OutputField(desc="what to search next; empty if sufficient")
