"""The prompts of the baselines: answers from memory, running notes, thoughts and searches."""

from __future__ import annotations

from typing import Literal

import dspy

# --- Closed book: an answer from memory alone.


class AnswerFromMemory(dspy.Signature):
    """Answer the question from what you know; there is nothing to read.

    The answer is the shortest span that answers the question exactly as it is asked: a name, a
    date, a number, "yes" or "no", with nothing around it. Give your best guess if you are not sure.
    """

    question: str = dspy.InputField()
    answer: str = dspy.OutputField(desc="the short answer alone")


# --- DeepNote: a query for what the notes lack, and a comparison of two notes.

Better = Literal["new", "old"]


class AskFromNotes(dspy.Signature):
    """Find what running notes lack for an answer, and write one search query for it.

    Follow the question hop by hop through the notes. The query is short, is about the first link
    that the notes do not establish, and names what they have established already. Never repeat a
    query that was tried, nor one that means the same. If the notes establish every link, leave
    the query empty.
    """

    tried: str = dspy.InputField(desc="the queries searched so far and what each brought")
    notes: str = dspy.InputField(desc="the best notes so far, with passage numbers")
    question: str = dspy.InputField(desc="the question to be answered in the end")
    next_query: str = dspy.OutputField(desc="what to search next; empty if nothing is missing")


class CompareNotes(dspy.Signature):
    """Decide which of two notes helps more to answer a question.

    Better are the notes that establish more of the question's links, in clear facts with passage
    numbers and without contradiction. Longer is not better. Say "old" where the new notes add
    nothing that matters.
    """

    old_notes: str = dspy.InputField(desc="the best notes so far")
    new_notes: str = dspy.InputField(desc="the notes after the latest search")
    question: str = dspy.InputField(desc="the question to be answered in the end")
    better: Better = dspy.OutputField(desc="which notes help more?")


# --- Search-R1: one turn of thinking or searching in a growing context.


class ThinkOrSearch(dspy.Signature):
    """Answer a question by thinking and searching in turns.

    The transcript holds your earlier thoughts, your searches and what each brought. Think first:
    what is known by now, and what is missing? If something is missing, write one short search
    query for it, naming what was found already, and leave the answer empty. Do not search for the
    same thing twice. If nothing is missing, leave the query empty and give the answer: the
    shortest span that answers the question exactly as it is asked, in the passages' wording,
    with nothing around it.
    """

    transcript: str = dspy.InputField(desc="thoughts, searches and their passages so far")
    searches_left: int = dspy.InputField(desc="how many more searches are possible")
    question: str = dspy.InputField(desc="the question to be answered")
    thought: str = dspy.OutputField(desc="a few sentences: what is known, what is missing")
    query: str = dspy.OutputField(desc="what to search next; empty if the answer is known")
    answer: str = dspy.OutputField(desc="the short answer alone; empty if you search")


# --- IRCoT: the next sentence of a chain of thought.


class NextThought(dspy.Signature):
    """Continue a chain of thought towards the answer by exactly one sentence.

    The sentence is the next step that the passages allow: a fact they state about what the
    question asks, or, where the fact is missing, which fact about which name must be looked up.
    It is also used as a search query, so name people, places and works in full. Never repeat an
    earlier thought. As soon as passages and thoughts hold the answer, write instead "So the
    answer is: " and the short answer.
    """

    passages: str = dspy.InputField(desc="all passages read so far, numbered")
    thoughts: str = dspy.InputField(desc="the chain of thought so far, one sentence a line")
    question: str = dspy.InputField(desc="the question to be answered in the end")
    thought: str = dspy.OutputField(desc="the next sentence, and nothing else")
