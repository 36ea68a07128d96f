"""What the inputs of a prompt say: question, passages, graph, notes, and what went before.

Fields are known by their names, several names for each. What is missing is empty.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from ga_dspy.lm.evidence import Doc, Fact
from ga_dspy.lm.passages import read_passages as read_passages
from ga_dspy.lm.transcript import read_transcript

_QUESTIONS = ("question", "original_question", "query", "claim", "user_question")
_PASSAGES = ("passages", "context", "documents", "docs", "new_passages", "passage", "evidence")
_NOTES = ("notes_so_far", "notes", "note", "best_note", "previous_note")
_TRIED = ("tried", "queries", "previous_queries", "search_history")
_HINTS = ("candidate", "previous_answer", "draft_answer")
_REASONING = ("previous_reasoning", "thoughts", "thoughts_so_far", "rationale_so_far", "reasoning")
_EMPTY = frozenset(("", "(empty)", "n/a", "none", "[]"))
_LABELS = re.compile(r"\s*\[((?:\d+[,;\s]*)+)\]\s*$")
_NUMBERED = re.compile(r"^\s*(?:\d+[.)]|[-*•])\s+")
_ANNOTATED = re.compile(r"\s*\((?:time|confidence):[^()]*\)\s*$")
_DETAILS = re.compile(r"(?<!\\);")
_FAULT = re.compile(r'^\W*(entity|relation|attribute) "(.*)": ', re.MULTILINE)
_BEST = re.compile(r'[Bb]est answer so far is "([^"\n]+)"(?:[^"\n]*?\((0\.\d+|1\.0+)\))?')


class KnownGraph(NamedTuple):
    """The graph of a prompt.

    Attributes:
        entities: The names, with the labels of their passages.
        facts: The relations.
        details: The type, which may be empty, and the attributes of the names that have any.
    """

    entities: Mapping[str, tuple[int, ...]] = MappingProxyType({})
    facts: tuple[Fact, ...] = ()
    details: Mapping[str, tuple[str, ...]] = MappingProxyType({})

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
        tried: Queries searched before; the question and the thoughts, where each was a query.
        best: An answer that was seen before, from `candidate` or the previous reasoning.
        confidence: How sure the step before was of `best`, from 0 to 1.
        reasoning: What was concluded or thought before.
        thoughts: The sentences of a chain of thought so far.
        searches_left: How many more searches are possible; None where the prompt does not say.
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
    thoughts: tuple[str, ...] = ()
    searches_left: int | None = None
    faults: frozenset[str] = frozenset()


def read_inputs(values: Mapping[str, str]) -> Inputs:
    """Read the inputs of a prompt by the names of their fields."""
    known = {n: "" if v.strip().lower() in _EMPTY else v.strip() for n, v in values.items()}
    passages = _first(known, _PASSAGES)
    question = _first(known, _QUESTIONS) or _question_like(known.values())
    reasoning = _first(known, _REASONING)
    seen = _BEST.search(reasoning)
    turns = read_transcript(known.get("transcript", ""))
    chain = tuple(filter(None, map(str.strip, known.get("thoughts", "").splitlines())))
    searched = turns.searches or ((question, *chain) if chain else ())
    left = known.get("searches_left", "")
    return Inputs(
        question=question,
        docs=read_passages(passages) or turns.docs,
        graph=read_graph(known.get("graph", "")),
        notes=_first(known, _NOTES),
        tried=read_tried(_first(known, _TRIED)) or searched,
        best=_first(known, _HINTS) or (seen[1] if seen else ""),
        confidence=float(seen[2] or 0.0) if seen else 0.0,
        reasoning=reasoning,
        thoughts=chain or turns.thoughts,
        searches_left=int(left) if left.isdigit() else None,
        faults=frozenset(m[2] for m in _FAULT.finditer(known.get("feedback", ""))),
    )


def _first(values: Mapping[str, str], names: Iterable[str]) -> str:
    return next((values[name] for name in names if values.get(name)), "")


def _question_like(texts: Iterable[str]) -> str:
    return next((t for t in texts if t.endswith("?") and len(t) < 500), "")


def read_graph(text: str) -> KnownGraph:
    r"""The names and relations of a graph in the compact form.

    >>> read_graph("Entities:\n- A (b) [2]\nRelations:\n1. A -> is in -> C [2]").facts
    (Fact(head='A', relation='is in', tail='C', labels=(2,)),)
    """
    entities: dict[str, tuple[int, ...]] = {}
    facts: list[Fact] = []
    details: dict[str, tuple[str, ...]] = {}
    for raw in text.splitlines():
        labels, line = _labelled(_NUMBERED.sub("", raw))
        parts = re.split(r"\s(?<!\\)->\s", line)
        if len(parts) == 3:
            head, relation, tail = map(_plain, parts)
            facts.append(Fact(head, relation, tail, labels))
        elif _NUMBERED.match(raw) and line:
            bare = _without_details(line)
            entities[_plain(bare)] = labels
            stated = tuple(map(_plain, _DETAILS.split(line[len(bare) :].strip()[1:-1])))
            details |= {_plain(bare): stated} if any(stated) else {}
    return KnownGraph(entities, tuple(facts), details)


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
