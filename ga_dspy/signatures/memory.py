"""Memory: an answer without any passage, to tell what an LM knows from what it reads."""

from __future__ import annotations

import dspy


class AnswerFromMemory(dspy.Signature):
    """Answer the question from what you know; there is nothing to read.

    The answer is the shortest span that answers the question exactly as it is asked: a name, a
    date, a number, "yes" or "no", with nothing around it. Leave it empty if you do not know.
    """

    question: str = dspy.InputField()
    answer: str = dspy.OutputField(desc="the short answer alone")
