"""What GraphRAG asks: extraction, the names in a question, summaries, answers from them."""

from __future__ import annotations

import dspy

from ga_dspy.signatures.graph_anchor import GraphProposal, Verdict

# --- Extract: everything that one passage states, with no question in mind.


class ExtractFacts(dspy.Signature):
    """List what a passage states, as entities and relations of a knowledge graph.

    The graph will answer questions that nobody has asked yet, so list all the passage says of
    people, places, organisations, works, events, dates and quantities, the thing in its title
    first. In an entity's parentheses give its type, then what tells it from others of its name.
    Write every name in full, as the passage spells it; where it says "he" or "the film", write
    the name meant. Keep relations to a short phrase in the passage's words. Behind a relation
    write (time: …) if the passage says when it holds, and (confidence: 0.6) or another number
    from 0 to 1 if the passage leaves doubt. End each line with the number of the passage in
    square brackets. Both ends of a relation must occur in the passage. State only what it states:
    no guesses, no "unknown" entries, nothing from memory. If feedback is given, your previous
    attempt had those faults: mend them or leave the items out.
    """

    passages: str = dspy.InputField(desc="the passage to read, numbered")
    feedback: str = dspy.InputField(desc="faults of the previous attempt, if any", default="")
    additions: GraphProposal = dspy.OutputField(desc="all that the passage states")


# --- Question entities: the names in a question, where a graph is entered.


class QuestionEntities(dspy.Signature):
    """List the names in the question: people, places, works, organisations, events.

    Write one name a line and nothing else, as the question writes it; where the question
    shortens a name, write it in full. A description is no name: of "the director of Red Lodge"
    only "Red Lodge" is one. If the question names nothing, write nothing.
    """

    question: str = dspy.InputField()
    entities: str = dspy.OutputField(desc="one name a line; empty if the question names nothing")


# --- Summarise: what one community of the graph is about.


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


# --- Answers about the whole corpus: points from summaries of its parts, an answer from the points.


class CollectPoints(dspy.Signature):
    """Collect from the summaries what helps to answer the question.

    Each summary describes one part of a corpus and has a number. Write one point a line: what a
    summary states, the numbers of all summaries that state it in square brackets, and in
    parentheses how much it helps to answer the question, from 0 to 100, like this:
    "- Most bridges of the region date from the 1930s [2,5] (80)". Put down names and numbers as
    the summaries have them, and nothing that they do not state. If none of them helps, write
    nothing.
    """

    question: str = dspy.InputField()
    documents: str = dspy.InputField(desc="summaries of parts of the corpus, numbered")
    points: str = dspy.OutputField(desc="one point a line, with [summary numbers] and (0 to 100)")


class AnswerFromPoints(dspy.Signature):
    """Answer a question about a whole corpus from the notes taken on its parts.

    The notes are points from summaries, the most helpful first, each with the numbers of the
    summaries that state it. Where the question asks for one name, number or date, answer with
    that alone; where it asks for an overview, answer in a few sentences that put the points
    together, the most important first. In "cited" give the numbers of the summaries the answer
    rests on. If the notes do not hold the answer, say "not in passages", leave "cited" empty and
    give your best guess. If they refute something the question takes for granted, say "premise
    refuted" and let the answer state in one short sentence what is true instead.
    """

    question: str = dspy.InputField()
    notes: str = dspy.InputField(desc="points from summaries, best first, with their numbers")
    verdict: Verdict = dspy.OutputField(desc="do the notes hold the answer?")
    cited: str = dspy.OutputField(desc="summary numbers, comma-separated, e.g. 1, 4; or empty")
    answer: str = dspy.OutputField(desc="the answer alone")


def with_summaries(signature: type[dspy.Signature]) -> type[dspy.Signature]:
    """A signature that is shown summaries of the topics around, before its passages."""
    instruction = (
        f"{signature.instructions} The summaries tell what surrounds it; they are never cited."
    )
    field = dspy.InputField(desc="what the corpus says around the question's names")
    place = list(signature.input_fields).index("passages")
    wider: type[dspy.Signature] = signature.with_instructions(instruction).insert(
        place, "summaries", field, str
    )
    return wider
