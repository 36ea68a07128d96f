"""Think or search: one turn in a growing context (Search-R1's protocol, for any LM)."""

from __future__ import annotations

import dspy


class ThinkOrSearch(dspy.Signature):
    """Answer a question by thinking and searching in turns.

    The transcript holds your earlier thoughts, your searches and what each brought. Think first:
    what is known by now, and what is missing? If something is missing, write one short search
    query for it, naming what was found already, and leave the answer empty. Do not search for the
    same thing twice. If nothing is missing, leave the query empty and give the answer: the
    shortest span that answers the question exactly as it is asked, in the passages' wording,
    with nothing around it.
    """

    question: str = dspy.InputField(desc="the question to be answered")
    transcript: str = dspy.InputField(desc="thoughts, searches and their passages so far")
    searches_left: int = dspy.InputField(desc="how many more searches are possible")
    thought: str = dspy.OutputField(desc="a few sentences: what is known, what is missing")
    query: str = dspy.OutputField(desc="what to search next; empty if the answer is known")
    answer: str = dspy.OutputField(desc="the short answer alone; empty if you search")
