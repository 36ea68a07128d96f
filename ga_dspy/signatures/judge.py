"""Judge: does the evidence suffice, and if not, what should be searched next?"""

from __future__ import annotations

from typing import Literal

import dspy

Judgement = Literal["sufficient", "insufficient"]


class JudgeSufficiency(dspy.Signature):
    """Decide whether the evidence read so far answers the question, or what to search for next.

    Follow the question hop by hop through the graph and the passages: which link is established
    by which passage, and which one is missing? Judge "sufficient" only if every link is stated;
    then name the answer you see as the candidate and leave next_query empty. A premise of the
    question that the evidence refutes is sufficient too. Otherwise judge "insufficient" and
    write one short search query for the first missing link, naming the entity already found and
    what is sought about it. Never repeat a query that was tried; where one brought nothing,
    approach the same link by another name or from its other end. The judgement must agree with
    the reasoning.
    """

    question: str = dspy.InputField(desc="the question to be answered in the end")
    tried: str = dspy.InputField(desc="the queries searched so far and what each brought")
    graph: str = dspy.InputField(desc="what is known so far, with passage numbers")
    previous_reasoning: str = dspy.InputField(desc="what the step before concluded", default="")
    passages: str = dspy.InputField(desc="the passages read in this step, numbered")
    reasoning: str = dspy.OutputField(desc="a few sentences: links established, links missing")
    judgement: Judgement = dspy.OutputField(desc="does the evidence suffice?")
    candidate: str = dspy.OutputField(desc="the answer if you see it, a short span, else empty")
    next_query: str = dspy.OutputField(desc="what to search next; empty if sufficient")
