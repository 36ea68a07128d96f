"""What the inputs of a prompt say: question, passages, graph, notes, and what went before.

Fields are known by their names, several names for each. What is missing is empty.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from ga_dspy.lm.evidence import Doc, Fact

_QUESTIONS = ("question", "original_question", "query", "claim", "user_question")
_PASSAGES = ("passages", "context", "documents", "docs", "new_passages", "passage", "evidence")
_NOTES = ("notes_so_far", "notes", "note", "best_note", "previous_note")
_TRIED = ("tried", "queries", "previous_queries", "search_history")
_HINTS = ("candidate", "previous_answer", "draft_answer")
_REASONING = ("previous_reasoning", "thoughts", "thoughts_so_far", "rationale_so_far", "reasoning")
_UNTITLED = "(untitled)"
_EMPTY = frozenset(("", "(empty)", "n/a", "none", "[]"))
_BLOCK = re.compile(r"^\[(\d+)\][ \t]*(.*)$", re.MULTILINE)
_QUOTED_BLOCK = re.compile(r"[«]+(.*?)[»]+", re.DOTALL)
_LABELS = re.compile(r"\s*\[((?:\d+[,;\s]*)+)\]\s*$")
_NUMBERED = re.compile(r"^\s*(?:\d+[.)]|[-*•])\s+")
_ANNOTATED = re.compile(r"\s*\((?:time|confidence):[^()]*\)\s*$")
_FAULT = re.compile(r'^\W*(entity|relation|attribute) "(.*)": ', re.MULTILINE)
_BEST = re.compile(r'[Bb]est answer so far is "([^"\n]+)"(?:[^"\n]*?\((0\.\d+|1\.0+)\))?')


class KnownGraph(NamedTuple):
    """The graph of a prompt: entity names with the labels of their passages, and relations."""

    entities: Mapping[str, tuple[int, ...]] = MappingProxyType({})
    facts: tuple[Fact, ...] = ()

    @property
    def names(self) -> frozenset[str]:
        """Every name the graph holds, in lower case."""
        ends = (end for fact in self.facts for end in (fact.head, fact.tail))
        return frozenset(name.lower() for name in (*self.entities, *ends))


class Inputs(NamedTuple):
    """The inputs, read.

    Attributes:
        question: The question; the empty string where none is seen.
        docs: The passages of this call.
        graph: The graph so far.
        notes: The notes so far, as given.
        tried: Queries searched before, and whether each brought anything.
        best: An answer that was seen before, from `candidate` or the previous reasoning.
        confidence: How sure the step before was of `best`, from 0 to 1.
        reasoning: What was concluded or thought before.
        faults: Names, and relations as "head -> relation -> tail", to be left out.
    """

    question: str
    docs: tuple[Doc, ...] = ()
    graph: KnownGraph = KnownGraph()
    notes: str = ""
    tried: tuple[str, ...] = ()
    best: str = ""
    confidence: float = 0.0
    reasoning: str = ""
    faults: frozenset[str] = frozenset()


def read_inputs(values: Mapping[str, str]) -> Inputs:
    """Read the inputs of a prompt by the names of their fields."""
    known = {n: "" if v.strip().lower() in _EMPTY else v.strip() for n, v in values.items()}
    passages = _first(known, _PASSAGES)
    question = _first(known, _QUESTIONS) or _question_like(known.values())
    reasoning = _first(known, _REASONING)
    seen = _BEST.search(reasoning)
    return Inputs(
        question=question,
        docs=read_passages(passages),
        graph=read_graph(known.get("graph", "")),
        notes=_first(known, _NOTES),
        tried=read_tried(_first(known, _TRIED)),
        best=_first(known, _HINTS) or (seen[1] if seen else ""),
        confidence=float(seen[2] or 0.0) if seen else 0.0,
        reasoning=reasoning,
        faults=frozenset(m[2] for m in _FAULT.finditer(known.get("feedback", ""))),
    )


def _first(values: Mapping[str, str], names: Iterable[str]) -> str:
    return next((values[name] for name in names if values.get(name)), "")


def _question_like(texts: Iterable[str]) -> str:
    return next((t for t in texts if t.endswith("?") and len(t) < 500), "")


def read_passages(text: str) -> tuple[Doc, ...]:
    r"""Passages as `[n] title` over a line of text; else DSPy's numbered list; else one passage.

    >>> read_passages("[3] Red Lodge\nA city.")
    (Doc(label=3, title='Red Lodge', text='A city.'),)
    """
    marks = list(_BLOCK.finditer(text))
    if not marks:
        return (Doc(1, "", text),) if text else ()
    docs = []
    for mark, after in zip(marks, [*marks[1:], None], strict=True):
        body = text[mark.end() : after.start() if after else len(text)].strip()
        docs.append(_doc(int(mark[1]), mark[2].strip(), body))
    return tuple(docs)


def _doc(label: int, line: str, body: str) -> Doc:
    quoted = _QUOTED_BLOCK.search(f"{line}\n{body}")
    if quoted:
        line, body = quoted[1].strip(), ""
    if not body:
        title, bar, rest = line.partition(" | ")
        line, body = (title, rest) if bar else ("", line)
    return Doc(label, "" if line == _UNTITLED else line, " ".join(body.split()))


def read_graph(text: str) -> KnownGraph:
    r"""The names and relations of a graph in the compact form.

    >>> read_graph("Entities:\n- A (b) [2]\nRelations:\n1. A -> is in -> C [2]").facts
    (Fact(head='A', relation='is in', tail='C', labels=(2,)),)
    """
    entities: dict[str, tuple[int, ...]] = {}
    facts: list[Fact] = []
    for raw in text.splitlines():
        labels, line = _labelled(_NUMBERED.sub("", raw))
        parts = re.split(r"\s(?<!\\)->\s", line)
        if len(parts) == 3:
            head, relation, tail = map(_plain, parts)
            facts.append(Fact(head, relation, tail, labels))
        elif _NUMBERED.match(raw) and line:
            entities[_plain(_without_details(line))] = labels
    return KnownGraph(entities, tuple(facts))


def _labelled(line: str) -> tuple[tuple[int, ...], str]:
    match = _LABELS.search(line)
    labels = tuple(int(n) for n in re.findall(r"\d+", match[1])) if match else ()
    line = line[: match.start()] if match else line
    while annotated := _ANNOTATED.search(line):
        line = line[: annotated.start()]
    return labels, line.strip()


def _without_details(line: str) -> str:
    """A name without the group in parentheses at its end."""
    if not line.endswith(")"):
        return line
    depth = 0
    for i in range(len(line) - 1, -1, -1):
        depth += (line[i] == ")") - (line[i] == "(")
        if depth == 0:
            return line[:i]
    return line


def _plain(name: str) -> str:
    return re.sub(r"\\(.)", r"\1", name).strip()


def read_tried(text: str) -> tuple[str, ...]:
    """The queries of a list such as "1. red lodge => passages 1,2"."""
    lines = (_NUMBERED.sub("", line).partition("=>")[0].strip() for line in text.splitlines())
    return tuple(line for line in lines if line)
