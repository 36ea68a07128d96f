"""What GraphAnchor asks: index, judge, both at once, answer; over a graph or running notes.

A signature that is given less also says less: `judge_signature` and `answer_signature` compose an
instruction that names what its fields show.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, Literal

import dspy
import pydantic

from ga_dspy.graph import (
    Draft,
    DraftEntity,
    DraftRelation,
    Entity,
    Evidence,
    GraphUpdate,
    Relation,
    draft_from,
    linearise,
)
from ga_dspy.signatures.prompt import free_text

IndexKind = Literal["graph", "text"] | None
Judgement = Literal["sufficient", "insufficient"]
Verdict = Literal["answered", "not in passages", "premise refuted"]

# --- What an LM proposes to add to the graph: typed for us, plain lines for the LM.
#
# Lines cost a fraction of the tokens of a nested JSON schema (`ga-dspy bench prompts` prints how
# much); JSON is understood as well. Reading is lenient: a bad line is skipped and named, the good
# ones stay. Text in which nothing reads as a graph is a `ValueError`, never an empty proposal,
# unless it is empty or says so ("(empty)", "none").

LINE_FORMAT = """plain text, one entity or relation a line, nothing else:
    Entities:
    - name (type; attribute; attribute) [passage number]
    Relations:
    1. head entity -> relation -> tail entity [passage number]"""


class GraphProposal(dspy.Type):
    """Graph lines in the form described above."""

    # Some adapters print the docstring and the fields to the LM: both are written for it.
    text: str = ""

    @classmethod
    def description(cls) -> str:
        """The form that the LM is asked for."""
        return LINE_FORMAT

    @cached_property
    def draft(self) -> Draft:
        """The entities and relations proposed, and the lines that could not be read."""
        return draft_from(self.text)

    def format(self) -> str:
        """The readable lines, as they stand in a prompt or a demo."""
        return _lines(self.draft)

    @pydantic.model_validator(mode="before")
    @classmethod
    def _read(cls, value: Any) -> Any:
        if isinstance(value, dict) and value.keys() == {"text"}:
            value = value["text"]
        if value is None or isinstance(value, str):
            value = free_text(value)
        draft = draft_from(value)
        if draft.skipped and not (draft.entities or draft.relations):
            raise ValueError(f"nothing here reads as a graph: {draft.skipped[0][:80]!r}")
        if isinstance(value, str):
            return {"text": value}
        return {"text": "\n".join([_lines(draft), *draft.skipped])}

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: Any, handler: Any) -> dict[str, Any]:
        """A string, so that adapters print one word where the whole schema would stand."""
        return {"type": "string"}


def _lines(draft: Draft) -> str:
    """A draft as a graph's lines, the labels it cites in the place of evidence."""

    def evidenced(item: DraftEntity | DraftRelation) -> dict[str, Any]:
        cited = tuple(Evidence(passage=str(label), start=0, end=0) for label in item.passages)
        return {**item.model_dump(exclude={"passages"}), "evidence": cited}

    entities = tuple(Entity(**evidenced(entity)) for entity in draft.entities)
    relations = tuple(Relation(**evidenced(relation)) for relation in draft.relations)
    cited = (
        label for items in (draft.entities, draft.relations) for i in items for label in i.passages
    )
    return linearise(
        GraphUpdate(entities=entities, relations=relations), labels={str(n): n for n in cited}
    )


# --- Index: what do the new passages add to the graph?


class UpdateGraph(dspy.Signature):
    """Extend a knowledge graph with what new passages say, so that it leads to an answer.

    List the entities (people, places, organisations, works, events, dates, quantities) and the
    relations between them that help to answer the question or to find what is still missing.
    Give only what the graph does not hold yet. Write every name as the passage spells it, keep
    relations to a short phrase in the passage's words, and end each line with the number of the
    passage that states it in square brackets. Both ends of a relation must occur in that one
    passage. State only what the passages state: no guesses, no "unknown" entries, nothing from
    memory. If feedback is given, your previous attempt had those faults: mend them or leave the
    items out.
    """

    question: str = dspy.InputField(desc="the question to be answered in the end")
    query: str = dspy.InputField(desc="the search query that brought these passages")
    graph: str = dspy.InputField(desc="what is known so far, with passage numbers")
    previous_reasoning: str = dspy.InputField(desc="what the step before concluded", default="")
    passages: str = dspy.InputField(desc="the new passages, numbered")
    feedback: str = dspy.InputField(desc="faults of the previous attempt, if any", default="")
    additions: GraphProposal = dspy.OutputField(desc="what the new passages add to the graph")


# --- Judge: does the evidence suffice, and if not, what should be searched next?


class _Judge(dspy.Signature):
    """Decide whether the evidence read so far answers the question, or what to search for next.

    Follow the question hop by hop through {evidence}: which link is established
    by which passage, and which one is missing? Judge "sufficient" only if every link is stated;
    then name the answer you see as the candidate and leave next_query empty. A premise of the
    question that the evidence refutes is sufficient too. Otherwise judge "insufficient" and
    write one short search query for the first missing link, naming the entity already found and
    what is sought about it. Never repeat a query that was tried; where one brought nothing,
    approach the same link by another name or from its other end. The judgement must agree with
    the reasoning.
    """

    question: str = dspy.InputField(desc="the question to be answered in the end")
    tried: str = dspy.InputField(desc="the queries searched so far and what each brought")
    graph: str = dspy.InputField(desc="what is known so far, with passage numbers")
    previous_reasoning: str = dspy.InputField(desc="what the step before concluded", default="")
    passages: str = dspy.InputField(desc="the passages read in this step, numbered")
    reasoning: str = dspy.OutputField(desc="a few sentences: links established, links missing")
    judgement: Judgement = dspy.OutputField(desc="does the evidence suffice?")
    candidate: str = dspy.OutputField(desc="the answer if you see it, a short span, else empty")
    next_query: str = dspy.OutputField(desc="what to search next; empty if sufficient")


def judge_signature(index: IndexKind) -> type[dspy.Signature]:
    """The judge who reads the new passages beside a graph, running notes, or neither."""
    beside = {"graph": "the graph and ", "text": "the notes and ", None: ""}[index]
    return _beside(index, _Judge, evidence=f"{beside}the passages")


# --- Read: index and judge in one LM call.


class ReadAndJudge(dspy.Signature):
    """Extend a knowledge graph with what new passages say, then decide what is still missing.

    First the additions. List the entities (people, places, organisations, works, events, dates,
    quantities) and the relations between them that help to answer the question or to find what
    is missing. Give only what the graph does not hold yet. Write every name as the passage
    spells it, keep relations to a short phrase in the passage's words, and end each line with
    the number of the passage that states it in square brackets. Both ends of a relation must
    occur in that one passage. State only what the passages state: no guesses, no "unknown"
    entries, nothing from memory. If feedback is given, your previous attempt had those faults:
    mend them or leave the items out.

    Then the judgement. Follow the question hop by hop through the graph with your additions.
    Judge "sufficient" only if every link is stated, or if a premise of the question is refuted;
    then name the answer you see as the candidate and leave next_query empty. Otherwise judge
    "insufficient" and write one short search query for the first missing link, naming the entity
    already found and what is sought about it. Never repeat a query that was tried; where one
    brought nothing, approach the same link by another name or from its other end. The judgement
    must agree with the reasoning.
    """

    question: str = dspy.InputField(desc="the question to be answered in the end")
    tried: str = dspy.InputField(desc="the queries searched so far and what each brought")
    graph: str = dspy.InputField(desc="what is known so far, with passage numbers")
    previous_reasoning: str = dspy.InputField(desc="what the step before concluded", default="")
    passages: str = dspy.InputField(desc="the new passages, numbered")
    feedback: str = dspy.InputField(desc="faults of the previous attempt, if any", default="")
    additions: GraphProposal = dspy.OutputField(desc="what the new passages add to the graph")
    reasoning: str = dspy.OutputField(desc="a few sentences: links established, links missing")
    judgement: Judgement = dspy.OutputField(desc="does the evidence suffice?")
    candidate: str = dspy.OutputField(desc="the answer if you see it, a short span, else empty")
    next_query: str = dspy.OutputField(desc="what to search next; empty if sufficient")


# --- Answer: a short span from all passages and the graph, and what it rests on.


class _Answer(dspy.Signature):
    """Answer the question from {sources}.

    The answer is the shortest span that answers the question exactly as it is asked: a name, a
    date, a number, "yes" or "no", with nothing around it. Prefer the wording {wording}. In
    "cited" give the numbers of the passages the answer rests on. If {absent}, say "not in passages", leave "cited" empty and give your best guess. If {refuted}, say "premise refuted" and let the answer
    state in one short sentence what is true instead.
    """  # noqa: E501 - a line of a prompt, whose breaks are part of it

    question: str = dspy.InputField()
    graph: str = dspy.InputField(desc="entities and relations found, with passage numbers")
    passages: str = dspy.InputField(desc="all passages read, numbered")
    candidate: str = dspy.InputField(desc="an answer seen while reading, if any", default="")
    verdict: Verdict = dspy.OutputField(desc="do the passages hold the answer?")
    cited: str = dspy.OutputField(desc="passage numbers, comma-separated, e.g. 1, 4; or empty")
    answer: str = dspy.OutputField(desc="the short answer alone")


_PASSAGES_HOLD_IT = {
    "wording": "of the passages",
    "absent": "the passages do not hold the\nanswer",
    "refuted": "the passages\nrefute something the question takes for granted",
}
_INDEX_HOLDS_IT = {
    "wording": "used there",
    "absent": "the answer is not there",
    "refuted": "something the question takes for granted is refuted there",
}


def answer_signature(index: IndexKind, *, passages: bool = True) -> type[dspy.Signature]:
    """The answer step that reads a graph, running notes or neither, beside passages or alone."""
    source = {"graph": "the graph", "text": "the notes", None: ""}[index]
    if passages:
        sources = f"the passages, guided by {source}" if source else "the passages"
        return _beside(index, _Answer, sources=sources, **_PASSAGES_HOLD_IT)
    alone: Any = _beside(index, _Answer, sources=source, **_INDEX_HOLDS_IT).delete("passages")
    answer: type[dspy.Signature] = alone.with_updated_fields(
        "verdict", desc=f"is the answer in {source}?"
    )
    return answer


def _beside(
    index: IndexKind, signature: type[dspy.Signature], **words: str
) -> type[dspy.Signature]:
    """A signature with its graph, with notes in the graph's place, or with neither.

    Its instruction is filled in with the words for what it shows.
    """
    instruction = signature.instructions.format(**words)
    shown: type[dspy.Signature] = signature.with_instructions(instruction)
    if index == "graph":
        return shown
    place, shown = list(shown.input_fields).index("graph"), shown.delete("graph")
    notes = dspy.InputField(desc="the notes taken so far, with passage numbers")
    return shown.insert(place, "notes", notes, str) if index == "text" else shown


JudgeSufficiency = judge_signature("graph")
AnswerQuestion = answer_signature("graph")


# --- Running notes: in the graph's place (the paper's "w/ Text Index").


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
