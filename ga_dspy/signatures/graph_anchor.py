"""The prompts of GraphAnchor: index, judge, both at once, answer; over a graph or running notes.

All steps are composed of the same fields and paragraphs: the judge and the answer apply the same
standard, and a step with fewer inputs has a shorter prompt.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, Final, Literal

import dspy
import pydantic
from pydantic_core import PydanticCustomError

from ga_dspy.graph import (
    Draft,
    DraftEntity,
    DraftRelation,
    Entity,
    GraphUpdate,
    Relation,
    draft_from,
    linearise,
)
from ga_dspy.signatures.prompt import free_text

IndexKind = Literal["graph", "text"] | None
Judgement = Literal["sufficient", "insufficient", "exhausted"]
Verdict = Literal["answered", "not in passages", "premise refuted"]
Style = Literal["span", "sentence", "report"]

# --- Additions to the graph: a typed value for the program, plain lines for the LM.
#
# Lines take less than half the tokens of a nested JSON schema; JSON is parsed as well. Parsing is
# lenient: an unreadable line is skipped and reported. A text without a readable line is an empty
# proposal with its skipped lines.

LINE_FORMAT = 'lines of name (type) -> relation -> name (type) [passage number], or "none"'


class GraphProposal(dspy.Type):
    """Graph lines in the form described above."""

    # Some adapters print the docstring and the fields to the LM: both are written for it.
    text: str = ""

    @classmethod
    def description(cls) -> str:
        """Return the format that the prompt asks for."""
        return LINE_FORMAT

    @cached_property
    def draft(self) -> Draft:
        """The proposed entities and relations, and the unreadable lines."""
        return draft_from(self.text)

    def format(self) -> str:
        """Return the readable lines, for a prompt or a demo."""
        return _lines(self.draft)

    @pydantic.model_validator(mode="before")
    @classmethod
    def _read(cls, value: Any) -> Any:
        if isinstance(value, dict) and value.keys() == {"text"}:
            value = value["text"]
        if value is None or isinstance(value, str):
            value = free_text(value)
        if isinstance(value, str):
            return {"text": value}
        draft = draft_from(value)
        if draft.skipped and not (draft.entities or draft.relations):
            # DSPy's adapters repair the "[2]" of lines to JSON first, and pass the text itself once
            # this fails. Pydantic would chain a ValueError, which keeps all its frames alive.
            line = {"line": repr(draft.skipped[0][:80])}
            raise PydanticCustomError("graph", "nothing here reads as a graph: {line}", line)
        return {"text": "\n".join([_lines(draft), *draft.skipped])}

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: Any, handler: Any) -> dict[str, Any]:
        """Return the schema of a string, so that adapters print one word, not a nested schema."""
        return {"type": "string"}


def _lines(draft: Draft) -> str:
    """Return a draft as graph lines, with the passage labels it cites as evidence."""
    labels = dict[str, int]()

    def with_evidence(item: DraftEntity | DraftRelation) -> dict[str, Any]:
        labels.update({str(label): label for label in item.passages})
        evidence = [{"passage": str(label), "start": 0, "end": 0} for label in item.passages]
        kind = Entity if isinstance(item, DraftEntity) else Relation
        return {**item.model_dump(include=set(kind.model_fields)), "evidence": evidence}

    entities, relations = map(with_evidence, draft.nodes), map(with_evidence, draft.relations)
    update = {"entities": list(entities), "relations": list(relations)}
    return linearise(GraphUpdate.model_validate(update), labels=labels)


# --- The paragraphs of the instructions, with placeholders

_LINES: Final = """\
Give at most six facts that lead from the question to its answer and that the graph lacks, in the \
passages' words, nothing from memory; both ends stand in the passage. Types: person, place, \
organisation, work, event, date, quantity, role, other. Two names for one thing: X -> same as -> \
Y. Another thing of a known name: Cambridge (Massachusetts)."""

_NOTES: Final = """\
Keep what still matters, add what the new passages state, drop the rest, and put the passage \
number behind each fact, like [2]; nothing from memory, nothing on what is missing."""

_STANDARD: Final = """\
A link is a step needed to single out the answer. It holds if passages state it or if it plainly \
follows: the only one that fits all other links will do, a shared name alone will not."""

_JUDGE: Final = """\
Follow the question link by link. {standard} Judge "sufficient" if all hold or a premise is \
refuted; the candidate is then the answer itself, the shortest complete span. Judge \
"insufficient" if a link is missing, with a query for the one that is easiest to find: a name and \
the fact sought; where a search brought nothing, another name or the link's other end. Judge \
"exhausted" only if no name and no end is left to try."""

_STYLES: Final[dict[Style, str]] = {
    "span": """\
Answer exactly what is asked, in the shortest complete span of {source}: a name with its title, a \
date, a whole period, a number with its unit, a reason, "yes" or "no"; where several are asked \
for, all of them; nothing around it.""",
    "sentence": """\
Answer in one or two full sentences; behind each statement put the numbers of the passages that \
state it, like [2].""",
    "report": """\
Answer in paragraphs that tell all that bears on the question, what matters most first; behind \
each sentence put the numbers of the passages that state it, like [2].""",
}


def _instruct(signature: type[dspy.Signature], *texts: str, **words: str) -> type[dspy.Signature]:
    """Return a signature with paragraphs added to its instruction, and placeholders filled in."""
    text = "\n\n".join((signature.instructions, *texts))
    instructed: type[dspy.Signature] = signature.with_instructions(text.format(**words))
    return instructed


def _with_notes(signature: type[dspy.Signature], name: str) -> type[dspy.Signature]:
    """Return a signature with notes in place of the graph."""
    place = list(signature.input_fields).index("graph")
    with_notes: type[dspy.Signature] = signature.delete("graph").insert(
        place, name, dspy.InputField(desc=""), str
    )
    return with_notes


# --- Index: what do the new passages add to the graph, or to running notes?


class _Update(dspy.Signature):
    """{task}."""

    query: str = dspy.InputField(desc="the search that brought these passages")
    graph: str = dspy.InputField(desc="")
    previous_reasoning: str = dspy.InputField(desc="", default="")
    passages: str = dspy.InputField(desc="")
    question: str = dspy.InputField(desc="")


_EXTEND: Final = "Extend a knowledge graph with what new passages state towards an answer"
_REWRITE: Final = "Rewrite running notes with what new passages state towards an answer"


def _indexing(signature: type[dspy.Signature], index: IndexKind) -> type[dspy.Signature]:
    """Return a step that also extends the graph, or rewrites the notes in its place."""
    output: tuple[Any, ...] = "additions", dspy.OutputField(desc=""), GraphProposal
    if index == "text":
        signature = _with_notes(signature, "notes_so_far")
        output = "notes", dspy.OutputField(desc="the notes after this step"), str
    indexing: type[dspy.Signature] = signature.prepend(*output)
    return indexing


UpdateGraph = _instruct(_indexing(_Update, "graph"), _LINES, task=_EXTEND)
UpdateNotes = _instruct(_indexing(_Update, "text"), _NOTES, task=_REWRITE)


# --- Judge: does the evidence suffice, and if not, what should be searched next?


class _Judge(dspy.Signature):
    """{task}."""

    search: str = dspy.InputField(desc="")
    tried: str = dspy.InputField(desc="")
    graph: str = dspy.InputField(desc="")
    previous_reasoning: str = dspy.InputField(desc="", default="")
    passages: str = dspy.InputField(desc="")
    question: str = dspy.InputField(desc="")
    reasoning: str = dspy.OutputField(desc="brief: links that hold, links missing")
    judgement: Judgement = dspy.OutputField(desc="")
    candidate: str = dspy.OutputField(desc='the likeliest answer so far, or "none"')
    next_query: str = dspy.OutputField(desc='what to search next, or "none"')


def judge_signature(index: IndexKind) -> type[dspy.Signature]:
    """Return the judge of a graph, of running notes or of passages alone."""
    source = {"graph": "the graph", "text": "the notes", None: "the passages"}[index]
    task = f"Judge from {source} whether the question can be answered, or what to search next"
    return _over(index, _instruct(_Judge, _JUDGE, task=task, standard=_STANDARD))


def read_signature(index: Literal["graph", "text"]) -> type[dspy.Signature]:
    """Return the step that indexes and judges in one call."""
    first, lines = (_EXTEND, _LINES) if index == "graph" else (_REWRITE, _NOTES)
    task = f"{first}; then judge"
    return _instruct(_indexing(_Judge, index), lines, _JUDGE, task=task, standard=_STANDARD)


# --- Answer: from passages and graph, and what it rests on.


class _Answer(dspy.Signature):
    """Answer the question from {sources}."""

    graph: str = dspy.InputField(desc="")
    passages: str = dspy.InputField(desc="")
    question: str = dspy.InputField(desc="")
    links: str = dspy.OutputField(
        desc="one sentence: the facts that lead there, with their passage numbers"
    )
    answer: str = dspy.OutputField(desc="the answer alone")
    verdict: Verdict = dspy.OutputField(desc="")


_VERDICT: Final = """\
If the answer is not stated there and does not plainly follow, give the likeliest that is named \
there, or leave it empty: "not in passages". If a premise of the question is refuted there, say in \
one short sentence what is true instead: "premise refuted"."""


def answer_signature(
    index: IndexKind, *, passages: bool = True, style: Style = "span"
) -> type[dspy.Signature]:
    """Return the answer step that reads a graph, running notes or neither, and maybe passages."""
    written = {"graph": "the graph", "text": "the notes", None: ""}[index]
    source = "the passages" if passages else written
    sources = f"{source} and {written}" if passages and written else source
    words = {"source": source, "sources": sources, "standard": _STANDARD}
    answer = _instruct(_Answer, f"{_STANDARD} {_STYLES[style]}", _VERDICT, **words)
    return _over(index, answer if passages else answer.delete("passages"))


class CompareFacts(dspy.Signature):
    """Compare what the facts say, then answer the question."""

    facts: str = dspy.InputField()
    question: str = dspy.InputField()
    comparison: str = dspy.OutputField(
        desc="one sentence: which value is larger, smaller, earlier, later, or whether they are "
        "the same"
    )
    answer: str = dspy.OutputField(desc="one of the names in the question, or yes or no")


def _over(index: IndexKind, signature: type[dspy.Signature]) -> type[dspy.Signature]:
    """Return a signature that reads the graph, notes in its place, or neither."""
    if index is None:
        signature = signature.delete("graph")
    return _with_notes(signature, "notes") if index == "text" else signature


ReadAndJudge = read_signature("graph")
AnswerQuestion = answer_signature("graph")
