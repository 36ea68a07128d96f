"""Thought: one more sentence of a chain of thought (IRCoT)."""

from __future__ import annotations

import dspy


class NextThought(dspy.Signature):
    """Continue a chain of thought towards the answer by exactly one sentence.

    The sentence is the next step that the passages allow: a fact they state about what the
    question asks, or, where the fact is missing, which fact about which name must be looked up.
    It is also used as a search query, so name people, places and works in full. Never repeat an
    earlier thought. As soon as passages and thoughts hold the answer, write instead "So the
    answer is: " and the short answer.
    """

    question: str = dspy.InputField(desc="the question to be answered in the end")
    passages: str = dspy.InputField(desc="all passages read so far, numbered")
    thoughts: str = dspy.InputField(desc="the chain of thought so far, one sentence a line")
    thought: str = dspy.OutputField(desc="the next sentence, and nothing else")
