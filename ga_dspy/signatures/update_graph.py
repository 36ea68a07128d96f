"""Index: what do the new passages add to the graph?"""

from __future__ import annotations

import dspy

from ga_dspy.signatures.proposal import GraphProposal


class UpdateGraph(dspy.Signature):
    """Extend a knowledge graph with what new passages say, so that it leads to an answer.

    List the entities (people, places, organisations, works, events, dates, quantities) and the
    relations between them that help to answer the question or to find what is still missing.
    Give only what the graph does not hold yet. Write every name as the passage spells it, keep
    relations to a short phrase in the passage's words, and end each line with the number of the
    passage that states it in square brackets. Both ends of a relation must occur in that one
    passage. State only what the passages state: no guesses, no "unknown" entries, nothing from
    memory. If feedback is given, your previous attempt had those faults: mend them or leave the
    items out.
    """

    question: str = dspy.InputField(desc="the question to be answered in the end")
    query: str = dspy.InputField(desc="the search query that brought these passages")
    graph: str = dspy.InputField(desc="what is known so far, with passage numbers")
    previous_reasoning: str = dspy.InputField(desc="what the step before concluded", default="")
    passages: str = dspy.InputField(desc="the new passages, numbered")
    feedback: str = dspy.InputField(desc="faults of the previous attempt, if any", default="")
    additions: GraphProposal = dspy.OutputField(desc="what the new passages add to the graph")
