"""Question entities: the names in a question, where a graph is entered."""

from __future__ import annotations

import dspy


class QuestionEntities(dspy.Signature):
    """List the names in the question: people, places, works, organisations, events.

    Write one name a line and nothing else, as the question writes it; where the question
    shortens a name, write it in full. A description is no name: of "the director of Red Lodge"
    only "Red Lodge" is one. If the question names nothing, write nothing.
    """

    question: str = dspy.InputField()
    entities: str = dspy.OutputField(desc="one name a line; empty if the question names nothing")
