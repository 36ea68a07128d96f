"""The prompts of GraphRAG: extraction, schemas, community summaries, answers from summaries."""

from __future__ import annotations

from typing import Any

import dspy

from ga_dspy.graph import Schema
from ga_dspy.signatures.facts import with_schema
from ga_dspy.signatures.graph_anchor import GraphProposal, Verdict

# --- Extract: all facts of a passage, without a question.


class ExtractFacts(dspy.Signature):
    """List all that a passage states, as entities and relations of a knowledge graph.

    Questions that nobody has asked yet will be answered from it. Begin with what the title names.
    Write only what the passage states, in its words, nothing from memory. Types: person, place,
    organisation, work, event, date, quantity, role, other; behind the type goes what tells the
    thing from others of its name. Write each name in full, also for "he" or "the film". Both ends
    of a relation stand in the passage. Two names for one thing: X -> same as -> Y. Two
    things of one name: Cambridge, Cambridge (Massachusetts). Behind a relation put (time: …) if
    the passage says when it holds, (confidence: 0.6) if it leaves doubt.
    """

    passages: str = dspy.InputField(desc="the passage to read, numbered")
    additions: GraphProposal = dspy.OutputField(desc='all it states; "none" if nothing')


def extract_signature(
    schema: Schema | None = None, per_call: int = 1, max_relations: int | None = None
) -> type[dspy.Signature]:
    """Return `ExtractFacts` under the settings of an `Extractor`."""
    signature: Any = with_schema(ExtractFacts, schema) if schema else ExtractFacts
    text = signature.instructions
    if per_call > 1:
        text += " Read each passage by itself, and put its number behind every line, like [2]."
    if max_relations:
        most = f"at most {max_relations} relations of a passage"
        text += f" Write {most}, those that matter most first."
    return signature if text == signature.instructions else signature.with_instructions(text)  # type: ignore[no-any-return]


def glean_signature(signature: type[dspy.Signature]) -> type[dspy.Signature]:
    """Return the signature for facts that an extraction left out."""
    text = f"{signature.instructions} Part of it was found before: add only what is missing there."
    graph = dspy.InputField(desc="what was found before")
    gleaning: Any = signature.with_instructions(text)
    return gleaning.insert(1, "graph", graph, str)  # type: ignore[no-any-return]


# --- Propose: a schema from a sample of facts.


class ProposeSchema(dspy.Signature):
    """Propose a schema for a knowledge graph, from facts that a sample of its corpus states.

    Name the types of things that matter in this corpus, more exactly than the facts do where they
    say "other", and the relations that recur, each in one short wording for all that mean the
    same. A relation joins two of the types.
    """

    facts: str = dspy.InputField(desc="how often, then examples: head (type) -> relation -> tail")
    entities: dict[str, str] = dspy.OutputField(desc="at most 12 types, each with what it is")
    relations: dict[str, list[str]] = dspy.OutputField(
        desc="at most 20 relations, each with the type of its head and the type of its tail"
    )


# --- Summarise: one community of the graph.


class SummariseCommunity(dspy.Signature):
    """Say what a group of related things in a knowledge graph is about.

    Tell who and what belongs to it and how they are related, the most linked things first, so
    that somebody can judge whether it bears on a question. Some relations lead out of the group.
    Use the names as the graph spells them and only what it states: no other names or numbers.
    """

    graph: str = dspy.InputField(desc="the group's entities and relations")
    feedback: str = dspy.InputField(
        desc="faults of your last attempt, to mend or leave out", default=""
    )
    title: str = dspy.OutputField(desc="at most eight words")
    summary: str = dspy.OutputField(desc="two to six sentences")


# --- Answer from the whole corpus: collect points from summaries, then answer from the points.


class CollectPoints(dspy.Signature):
    """Collect from summaries of a corpus what helps to answer the question.

    One point a line: what summaries state, in their names and numbers, then the numbers of these
    summaries in square brackets, then in parentheses how much it helps, from 0 to 100:
    "- Most bridges of the region date from the 1930s [2,5] (80)".
    """

    documents: str = dspy.InputField(desc="summaries of parts of the corpus, numbered")
    question: str = dspy.InputField()
    points: str = dspy.OutputField(desc='one point a line, or "none"')


class AnswerFromPoints(dspy.Signature):
    """Answer a question about a whole corpus from notes on its parts.

    Answer exactly what is asked: one name, date or number with that alone; a list, a period or a
    reason with all of it; an overview in a few sentences that put the points together, the most
    important first. If the notes lack the answer, the verdict is "not in passages": cite nothing
    and give your likeliest answer. If they refute a premise of the question, it is "premise
    refuted": say in one short sentence what is true instead.
    """

    notes: str = dspy.InputField(desc="points, the best first, with the numbers of their summaries")
    question: str = dspy.InputField()
    cited: str = dspy.OutputField(desc="numbers of the summaries it rests on, e.g. 1, 4")
    answer: str = dspy.OutputField(desc="the answer alone")
    verdict: Verdict = dspy.OutputField(desc="do the notes hold the answer?")


def with_summaries(signature: type[dspy.Signature]) -> type[dspy.Signature]:
    """Return a signature that reads summaries of the surrounding topics before the passages."""
    instruction = (
        f"{signature.instructions} The summaries tell what surrounds it; they are never cited."
    )
    field = dspy.InputField(desc="what the corpus says around the question's names")
    place = list(signature.input_fields).index("passages")
    wider: type[dspy.Signature] = signature.with_instructions(instruction).insert(
        place, "summaries", field, str
    )
    return wider
