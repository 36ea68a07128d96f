"""The additions to a graph: which of the relations that passages state are worth keeping.

`ga_dspy.lm.relations` reads everything a passage says; here a budget goes to what is close to
the question, to the graph so far and to the other passages, and the lines are written.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ga_dspy.lm.evidence import Doc, Fact
from ga_dspy.lm.inputs import KnownGraph
from ga_dspy.lm.question import Question
from ga_dspy.lm.relations import Statements, Triple, statements
from ga_dspy.lm.text import content_stem, normalize

MOST_ENTITIES = 12
MOST_RELATIONS = 14
_PER_PASSAGE = 5
_UNLINKED = 3
_LEAST = 1.6
_UNSAFE = ("->", "--", "→", "**", "`", "[", "]", ";", "|", "\\", "<", ">", "«", "»")
_LONGEST_NAME = 90


class Budget(NamedTuple):
    """How much may be written; demonstrations shift it within bounds (`demonstrated.py`)."""

    entities: int = MOST_ENTITIES
    relations: int = MOST_RELATIONS
    words: int = 6


class Node(NamedTuple):
    """An entity as a passage presents it; `type` is empty where the passage gives none."""

    name: str
    type: str
    label: int


class Additions(NamedTuple):
    """Entities and relations to add, each with the label of its passage."""

    nodes: tuple[Node, ...]
    facts: tuple[Fact, ...]
    times: tuple[str, ...]

    def __str__(self) -> str:
        """The lines of the compact form; "(empty)" where there is nothing to add."""
        if not self.nodes and not self.facts:
            return "(empty)"
        lines = ["Entities:"]
        lines += [f"- {n.name}{_details(n)} [{n.label}]" for n in self.nodes]
        lines.append("Relations:")
        for number, (fact, time) in enumerate(zip(self.facts, self.times, strict=True), 1):
            when = f" (time: {time})" if time else ""
            line = f"{fact.head} -> {fact.relation} -> {fact.tail}{when} [{fact.labels[0]}]"
            lines.append(f"{number}. {line}")
        return "\n".join(lines)


class _Scored(NamedTuple):
    score: float
    place: int
    triple: Triple
    label: int


def additions(
    question: Question,
    docs: Sequence[Doc],
    graph: KnownGraph,
    *,
    candidate: str = "",
    faults: frozenset[str] = frozenset(),
    budget: Budget | None = None,
) -> Additions:
    """What the passages add to the graph.

    Both ends of every relation, and every entity, stand in the passage whose label they carry,
    spelt as there; nothing that the graph holds already is said again.

    Args:
        question: The question, taken apart.
        docs: The new passages.
        graph: What is known.
        candidate: An answer that was seen: relations that reach it are wanted.
        faults: Names and relations that were rejected before, to be left out.
        budget: How much to write.
    """
    allowed = budget or Budget()
    scored = _scored(question, docs, graph, candidate)
    known = {(f.head.lower(), f.tail.lower()) for f in graph.facts}
    fresh = [s for s in scored if _writable(s.triple, s.label, docs, faults, allowed.words)
             and (s.triple.head.lower(), s.triple.tail.lower()) not in known]  # fmt: skip
    if question.text.strip():
        chosen = _chosen(fresh, allowed.relations)
    else:
        # Nobody asks: all that is said is worth keeping, in whichever passage.
        chosen = _chosen(fresh, allowed.relations, least=float("-inf"), cap=allowed.relations)
    nodes = _nodes(question, docs, graph, chosen, faults)
    return Additions(
        nodes=tuple(nodes[: allowed.entities]),
        facts=tuple(
            Fact(s.triple.head, s.triple.relation, s.triple.tail, (s.label,)) for s in chosen
        ),
        times=tuple(s.triple.time for s in chosen),
    )


def _details(node: Node) -> str:
    return f" ({node.type})" if node.type else " ()" if node.name.endswith(")") else ""


def _scored(
    question: Question, docs: Sequence[Doc], graph: KnownGraph, candidate: str
) -> list[_Scored]:
    said = [statements(doc.title, doc.text) for doc in docs]
    asked = normalize(question.text)
    subjects = {normalize(s.subject) for s in said if s.subject}
    known = {normalize(name) for name in graph.names}
    found: list[_Scored] = []
    for place, (doc, statement) in enumerate(zip(docs, said, strict=True)):
        base = _closeness(statement, doc, docs, asked, known) - 0.15 * place
        for triple in statement.triples:
            worth = base + _worth(triple, question, asked, subjects, known, normalize(candidate))
            kind = statement.types.get(triple.tail, "")
            worth += 0.7 * any(content_stem(word) in question.focus for word in kind.split())
            found.append(_Scored(worth, place, triple, doc.label))
    return found


def _closeness(
    statement: Statements, doc: Doc, docs: Sequence[Doc], asked: str, known: set[str]
) -> float:
    """How near a passage is to what is asked and known: its subject, and who mentions it."""
    subject = normalize(statement.subject)
    score = 1.5 if subject and f" {subject} " in f" {asked} " else 0.0
    score += 0.8 if subject in known else 0.0
    mentioned = any(statement.subject in other.text for other in docs if other is not doc)
    return score + (0.6 if mentioned and subject else 0.0)


def _worth(
    triple: Triple,
    question: Question,
    asked: str,
    subjects: set[str],
    known: set[str],
    candidate: str,
) -> float:
    head, tail = normalize(triple.head), normalize(triple.tail)
    score = sum(1.2 for end in (head, tail) if end and f" {end} " in f" {asked} ")
    score += sum(0.8 for end in (head, tail) if end in subjects)
    score += sum(0.5 for end in (head, tail) if end in known)
    score += 1.5 if candidate and candidate in (head, tail) else 0.0
    words = {content_stem(word) for word in triple.relation.split()} - {""}
    score += sum(0.6 + 0.6 * question.focus.get(w, 0.0) for w in words if w in question.focus)
    dated = question.wants in ("date", "year") and triple.kind in ("date", "year")
    counted = question.wants == "number" and triple.kind == "quantity"
    score += 0.8 if dated or counted else 0.0
    return (
        score - 0.15 * triple.sentence - (0.3 if triple.kind == "quantity" and not counted else 0)
    )


def _writable(
    triple: Triple, label: int, docs: Sequence[Doc], faults: frozenset[str], words: int
) -> bool:
    """Whether a relation was not rejected, fits on a line, and has its ends in its passage."""
    parts = (triple.head, triple.relation, triple.tail)
    line = " -> ".join(parts)
    if any(part in faults for part in parts) or line in faults:
        return False
    if not all(_safe(part) for part in parts) or len(triple.relation.split()) > words:
        return False
    content = next(f"{doc.title}\n{doc.text}" for doc in docs if doc.label == label)
    return triple.head in content and triple.tail in content


def _safe(text: str) -> bool:
    return 0 < len(text) <= _LONGEST_NAME and not any(mark in text for mark in _UNSAFE) and (
        text.count("(") == text.count(")") and "\n" not in text
    )  # fmt: skip


def _chosen(
    scored: Iterable[_Scored], most: int, least: float = _LEAST, cap: int = _UNLINKED
) -> list[_Scored]:
    """The best within the budget, in the order in which they are read."""
    taken: dict[int, int] = {}
    repeated: dict[tuple[str, str], int] = {}
    chosen: list[_Scored] = []
    for item in sorted(scored, key=lambda s: (-s.score, s.place, s.triple.sentence)):
        room = max(cap, _PER_PASSAGE) if item.score >= 2 * _LEAST else cap
        same = (item.triple.head, item.triple.relation)
        if item.score < least or taken.get(item.label, 0) >= room or repeated.get(same, 0) >= 3:
            continue
        taken[item.label] = taken.get(item.label, 0) + 1
        repeated[same] = repeated.get(same, 0) + 1
        chosen.append(item)
        if len(chosen) == most:
            break
    return sorted(chosen, key=lambda s: (s.place, s.triple.sentence))


def _nodes(
    question: Question,
    docs: Sequence[Doc],
    graph: KnownGraph,
    chosen: list[_Scored],
    faults: frozenset[str],
) -> list[Node]:
    """The ends of the relations and the subjects the question names; typed ones come first."""
    found: dict[str, Node] = {}
    used = {item.label for item in chosen}
    asked = f" {normalize(question.text)} "
    for doc in docs:
        said = statements(doc.title, doc.text)
        named = f" {normalize(said.subject)} " in asked
        names = [said.subject] if doc.label in used or named else []
        names += [e for s in chosen if s.label == doc.label for e in (s.triple.head, s.triple.tail)]
        for name in names:
            kind = said.types.get(name, "")
            if name not in found and _safe(name) and name in f"{doc.title}\n{doc.text}":
                found[name] = Node(name, kind if _safe(kind) and ":" not in kind else "", doc.label)
    dates = {s.triple.tail for s in chosen if s.triple.kind not in ("name", "quote")}
    fresh = [n for n in found.values() if n.name.lower() not in graph.names]
    kept = [n for n in fresh if n.name not in dates and n.name not in faults]
    return sorted(kept, key=lambda n: not n.type)
