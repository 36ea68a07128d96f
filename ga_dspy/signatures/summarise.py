"""Summarise: what one community of the graph is about."""

from __future__ import annotations

import dspy


class SummariseCommunity(dspy.Signature):
    """Say what a group of related things in a knowledge graph is about.

    The title names the group in at most eight words, by its most linked things. The summary tells
    in two to six sentences who and what belongs to it and how they are related, the most linked
    things first, so that somebody can judge whether the group bears on a question. Use the names
    as the graph spells them and only what the graph states: nothing from memory, no other names,
    no other numbers. If feedback is given, your previous attempt had those faults: mend them.
    """

    graph: str = dspy.InputField(desc="the group's entities and relations")
    feedback: str = dspy.InputField(desc="faults of the previous attempt, if any", default="")
    title: str = dspy.OutputField(desc="at most eight words")
    summary: str = dspy.OutputField(desc="two to six sentences")
