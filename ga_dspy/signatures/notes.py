"""Running notes: in the graph's place (the paper's "w/ Text Index"), and DeepNote's own steps."""

from __future__ import annotations

from typing import Literal

import dspy

from ga_dspy.signatures.judge import Judgement

Better = Literal["new", "old"]


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


class AskFromNotes(dspy.Signature):
    """Find what running notes lack for an answer, and write one search query for it.

    Follow the question hop by hop through the notes. The query is short, is about the first link
    that the notes do not establish, and names what they have established already. Never repeat a
    query that was tried, nor one that means the same. If the notes establish every link, leave
    the query empty.
    """

    question: str = dspy.InputField(desc="the question to be answered in the end")
    tried: str = dspy.InputField(desc="the queries searched so far and what each brought")
    notes: str = dspy.InputField(desc="the best notes so far, with passage numbers")
    next_query: str = dspy.OutputField(desc="what to search next; empty if nothing is missing")


class CompareNotes(dspy.Signature):
    """Decide which of two notes helps more to answer a question.

    Better are the notes that establish more of the question's links, in clear facts with passage
    numbers and without contradiction. Longer is not better. Say "old" where the new notes add
    nothing that matters.
    """

    question: str = dspy.InputField(desc="the question to be answered in the end")
    old_notes: str = dspy.InputField(desc="the best notes so far")
    new_notes: str = dspy.InputField(desc="the notes after the latest search")
    better: Better = dspy.OutputField(desc="which notes help more?")
