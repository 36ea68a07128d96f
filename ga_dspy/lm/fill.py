"""Filling the output fields of a prompt: those it knows by name, any other by its type."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

from ga_dspy.lm.answer import NONE, rank
from ga_dspy.lm.chain import next_thought
from ga_dspy.lm.compared import better
from ga_dspy.lm.demonstrated import Demonstrated, read_demos
from ga_dspy.lm.evidence import Answer, Doc, Fact
from ga_dspy.lm.extract import Additions, additions
from ga_dspy.lm.inputs import Inputs, read_inputs
from ga_dspy.lm.judge import Judgement, cited, judge
from ga_dspy.lm.notes import notes, read_notes
from ga_dspy.lm.prompt import Field, Prompt
from ga_dspy.lm.question import Question, analyse
from ga_dspy.lm.refute import Refutation, refuted
from ga_dspy.lm.summary import summary, title
from ga_dspy.lm.text import sentences
from ga_dspy.lm.told import described, told
from ga_dspy.lm.turn import Turn, take_turn

UNSUPPORTED = 0.02
_FENCE = re.compile(r"```\w*\n(.*?)```", re.DOTALL)
_COMPARED = ("old_notes", "new_notes")
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


def fill(prompt: Prompt) -> dict[str, Any]:
    """A value for each output field; one nameless value where the prompt has no fields."""
    filling = Filling(prompt)
    if prompt.style == "plain":
        return {"": filling.plain()}
    return {field.name: filling.value(field) for field in prompt.output_fields}


class Filling:
    """One prompt's values, worked out when first asked for."""

    def __init__(self, prompt: Prompt) -> None:
        self.prompt = prompt

    @cached_property
    def inputs(self) -> Inputs:
        """What the prompt's inputs say."""
        return read_inputs(self.prompt.inputs)

    @cached_property
    def demos(self) -> Demonstrated:
        """What the prompt's examples teach."""
        return read_demos(self.prompt.demos)

    @cached_property
    def question(self) -> Question:
        """The question, taken apart."""
        return analyse(self.inputs.question)

    @cached_property
    def docs(self) -> tuple[Doc, ...]:
        """The passages, then what the graph tells of others; the notes where there are neither."""
        given = self.inputs
        shown = {doc.label for doc in given.docs}
        if shown:
            unseen = (fact for fact in given.graph.facts if not shown & set(fact.labels))
            return (*given.docs, *told(unseen))
        return described(given.graph) or read_notes(given.notes)

    @cached_property
    def ranked(self) -> list[Answer]:
        """The ranker's answers, best first.

        Facts of the graph and an earlier candidate are no hints where the passages they came from
        are there to be read: measured on training questions, they then pulled more right answers
        away than they brought in.
        """
        given, demos = self.inputs, self.demos.answers
        hint = "" if given.docs else given.best
        return rank(given.question, self.docs, hint=hint, demos=demos)

    @property
    def best(self) -> Answer:
        """The ranker's best answer."""
        return self.ranked[0] if self.ranked else NONE

    @cached_property
    def added(self) -> Additions:
        """What the passages add to the graph."""
        given, shown = self.inputs, self.demos
        return additions(
            self.question,
            given.docs,
            given.graph,
            candidate=self.best.text,
            faults=given.faults,
            budget=shown.budget,
        )

    @cached_property
    def judged(self) -> Judgement:
        """The judgement."""
        facts: tuple[Fact, ...] = self.inputs.graph.facts
        if self._indexes or self._takes_turns:
            facts = (*facts, *self.added.facts)
        return judge(self.question, self.evidence, facts, self.ranked, self.demos.caution)

    @cached_property
    def evidence(self) -> Inputs:
        """The inputs as the judge reads them: notes are its passages where there are no others."""
        given = self.inputs
        return given if given.docs else given._replace(docs=read_notes(given.notes))

    @cached_property
    def turn(self) -> Turn:
        """The reply to a transcript."""
        return take_turn(self.question, self.inputs, self.judged, self.best)

    @cached_property
    def refutation(self) -> Refutation | None:
        """A premise that the passages deny."""
        return refuted(self.question, self.evidence.docs)

    @property
    def _indexes(self) -> bool:
        return any(field.name == "additions" for field in self.prompt.output_fields)

    @property
    def _takes_turns(self) -> bool:
        return "transcript" in self.prompt.inputs

    @property
    def supported(self) -> bool:
        """Whether the passages hold an answer at all."""
        return bool(self.best.text) and self.best.score >= UNSUPPORTED

    def verdict(self) -> str:
        """One of "answered", "not in passages" and "premise refuted"."""
        if self.refutation:
            return "premise refuted"
        return "answered" if self.supported else "not in passages"

    def cited(self) -> str:
        """The numbers of the passages the answer rests on."""
        if self.refutation:
            return str(self.refutation.label)
        labels = cited(self.question, self.docs, self.best) if self.supported else ()
        return ", ".join(map(str, labels))

    def answer(self) -> str:
        """The short answer, or the sentence that refutes the question; empty in mid-search."""
        if self._takes_turns:
            return self.turn.answer
        if self.refutation:
            return self.refutation.sentence
        return self.best.text or self.inputs.best

    def thought(self) -> str:
        """What is known and missing, or the next sentence of a chain of thought."""
        if self._takes_turns:
            return self.turn.thought
        return next_thought(self.question, self.evidence, self.ranked, self.demos.caution)

    def query(self) -> str:
        """The next query; the question itself where nothing was read yet."""
        if self._takes_turns:
            return self.turn.query
        return self.judged.next_query if self.inputs.docs else self.inputs.question

    def better(self) -> str:
        """Which of two notes helps more, "new" or "old"."""
        old, new = (read_notes(self.prompt.inputs.get(name, "")) for name in _COMPARED)
        return better(self.question, old, new, self.demos.answers)

    def note(self) -> str:
        """The notes after reading the passages: the best of the notes so far and of them."""
        given, demos = self.inputs, self.demos.answers
        known = read_notes(given.notes)
        docs = (*known, *given.docs)
        ranked = rank(given.question, docs, demos=demos) if known else self.ranked
        return notes(self.question, docs, ranked)

    def value(self, field: Field) -> Any:
        """The value of a field, in its type."""
        by_name = _BY_NAME.get(field.name)
        text = by_name(self) if by_name else self.guess(field.name)
        return self._typed(text, field)

    def guess(self, name: str) -> str:
        """Text for a field of a name unknown here: a like-named input, an answer, a sentence."""
        own = set(name.lower().split("_"))
        for given, text in self.prompt.inputs.items():
            if own & set(given.lower().split("_")) and text:
                return text
        if self.inputs.question and self.docs and self.best.text:
            return self.best.text
        longest = max(self.prompt.inputs.values(), key=len, default="")
        return next(iter(sentences(longest)), longest) or self.prompt.text[:200]

    def plain(self) -> str:
        """A completion for a prompt without fields: its fenced text again, or its best sentence.

        A prompt that asks for a rewriting of instructions in a fence gets them back unchanged.
        """
        fenced = _FENCE.search(self.prompt.text)
        if fenced:
            return f"```\n{fenced[1].strip()}\n```"
        return next(iter(sentences(self.prompt.text)), self.prompt.text).strip() or "(empty)"

    def _typed(self, text: str, field: Field) -> Any:
        if field.allowed:
            return _choice(text, field.allowed)
        kind = field.type_text.replace("Optional[", "").replace("Union[", "")
        if kind.startswith("bool"):
            return self.judged.sufficient if "suffic" in field.name else text.lower() == "yes"
        if kind.startswith(("int", "float")):
            number = _NUMBER.search(text)
            value = float(number[0]) if number else self.best.score
            return int(value) if kind.startswith("int") else value
        if kind.startswith("list"):
            return [text] if text and kind.startswith("list[str") else []
        if kind.startswith("dict"):
            return {}
        if field.schema is not None and field.schema.get("type") != "string":
            return self._built(field.schema, field.schema.get("$defs", {}), field.name)
        return text

    def _built(self, schema: Mapping[str, Any], defs: Mapping[str, Any], name: str) -> Any:
        """The least value that a JSON schema allows, texts filled by their names."""
        schema = defs.get(str(schema.get("$ref", "")).rsplit("/", 1)[-1], schema)
        for key in ("anyOf", "oneOf", "allOf"):
            if choices := schema.get(key):
                return self._built(choices[0], defs, name)
        if "const" in schema or "enum" in schema:
            return schema.get("const", schema.get("enum", [None])[0])
        if schema.get("type") == "object":
            given = schema.get("properties", {})
            return {key: self._built(part, defs, key) for key, part in given.items()}
        least = {"array": [], "integer": 0, "number": 0.0, "boolean": False, "null": None}
        kind = schema.get("type", "string")
        if kind in least:
            return least[kind]
        by_name = _BY_NAME.get(name)
        return by_name(self) if by_name else self.guess(name)


def _choice(text: str, allowed: tuple[Any, ...]) -> Any:
    return next((value for value in allowed if str(value).lower() == text.lower()), allowed[0])


def _said(sufficient: bool) -> str:
    return "sufficient" if sufficient else "insufficient"


_BY_NAME: Mapping[str, Callable[[Filling], str]] = {
    "additions": lambda f: str(f.added),
    "reasoning": lambda f: f.judged.reasoning,
    "rationale": lambda f: f.judged.reasoning,
    "thought": Filling.thought,
    "judgement": lambda f: _said(f.judged.sufficient),
    "candidate": lambda f: f.judged.candidate,
    "next_query": lambda f: f.judged.next_query,
    "query": Filling.query,
    "search_query": Filling.query,
    "answer": Filling.answer,
    "verdict": Filling.verdict,
    "cited": Filling.cited,
    "better": Filling.better,
    "notes": Filling.note,
    "note": Filling.note,
    "points": Filling.note,
    "title": lambda f: title(f.inputs.graph) or f.guess("title"),
    "summary": lambda f: summary(f.inputs.graph) or f.guess("summary"),
    "entities": lambda f: "\n".join(f.question.names) or f.guess("entities"),
}
