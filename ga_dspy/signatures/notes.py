"""The text index: running notes take the graph's place (the paper's "w/ Text Index")."""

from __future__ import annotations

import dspy

from ga_dspy.signatures.judge import Judgement


class UpdateNotes(dspy.Signature):
    """Rewrite running notes so that they hold what new passages add towards an answer.

    Keep every fact of the notes that still matters, add what the new passages state about the
    question, and drop the rest. Put the number of the passage in square brackets behind each
    fact. State only what the passages state: no guesses, nothing from memory.
    """

    question: str = dspy.InputField(desc="the question to be answered in the end")
    query: str = dspy.InputField(desc="the search query that brought these passages")
    notes_so_far: str = dspy.InputField(desc="the notes before this step")
    previous_reasoning: str = dspy.InputField(desc="what the step before concluded", default="")
    passages: str = dspy.InputField(desc="the new passages, numbered")
    notes: str = dspy.OutputField(desc="the notes after this step")


class ReadNotesAndJudge(dspy.Signature):
    """Rewrite running notes with what new passages add, then decide what is still missing.

    First the notes: keep every fact that still matters, add what the new passages state about
    the question, drop the rest, and put the number of the passage in square brackets behind each
    fact. State only what the passages state: no guesses, nothing from memory.

    Then the judgement. Follow the question hop by hop through the notes. Judge "sufficient" only
    if every link is stated, or if a premise of the question is refuted; then name the answer you
    see as the candidate and leave next_query empty. Otherwise judge "insufficient" and write one
    short search query for the first missing link, naming the entity already found and what is
    sought about it. Never repeat a query that was tried; where one brought nothing, approach the
    same link by another name or from its other end. The judgement must agree with the reasoning.
    """

    question: str = dspy.InputField(desc="the question to be answered in the end")
    tried: str = dspy.InputField(desc="the queries searched so far and what each brought")
    notes_so_far: str = dspy.InputField(desc="the notes before this step")
    previous_reasoning: str = dspy.InputField(desc="what the step before concluded", default="")
    passages: str = dspy.InputField(desc="the new passages, numbered")
    notes: str = dspy.OutputField(desc="the notes after this step")
    reasoning: str = dspy.OutputField(desc="a few sentences: links established, links missing")
    judgement: Judgement = dspy.OutputField(desc="does the evidence suffice?")
    candidate: str = dspy.OutputField(desc="the answer if you see it, a short span, else empty")
    next_query: str = dspy.OutputField(desc="what to search next; empty if sufficient")
