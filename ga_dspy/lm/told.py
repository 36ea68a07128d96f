"""What a graph tells, in sentences: a passage for each of its names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ga_dspy.lm.evidence import Doc, Fact
from ga_dspy.lm.inputs import KnownGraph


def told(facts: Iterable[Fact]) -> tuple[Doc, ...]:
    """Facts in sentences, one passage for each head."""
    about: dict[str, list[Fact]] = {}
    for fact in facts:
        about.setdefault(fact.head, []).append(fact)
    return tuple(Doc(_label(stated), head, _text(stated)) for head, stated in about.items())


def described(graph: KnownGraph) -> tuple[Doc, ...]:
    """All that a graph tells: what its names are, then its facts; for reading it by itself.

    >>> graph = KnownGraph({"Red Lodge": (3,)}, details={"Red Lodge": ("city", "has a mine")})
    >>> described(graph)
    (Doc(label=3, title='Red Lodge', text='Red Lodge is a city. Red Lodge: has a mine.'),)
    """
    about = {doc.title: doc for doc in told(graph.facts)}
    docs: list[Doc] = []
    for name in dict.fromkeys((*about, *graph.details)):
        own = Doc(min(graph.entities.get(name, ()), default=1), name, "")
        label, _, text = about.get(name, own)
        docs.append(Doc(label, name, f"{_described(name, graph.details)} {text}".strip()))
    return tuple(docs)


def _described(name: str, details: Mapping[str, tuple[str, ...]]) -> str:
    kind, *attributes = details.get(name, ("",))
    article = "an" if kind[:1].lower() in tuple("aeiou") else "a"
    first = [f"{name} is {article} {kind}."] if kind else []
    return " ".join([*first, *(f"{name}: {attribute}." for attribute in attributes)])


def _label(facts: list[Fact]) -> int:
    return min((label for fact in facts for label in fact.labels), default=1)


def _text(facts: list[Fact]) -> str:
    return " ".join(f"{fact.head} {fact.relation} {fact.tail}." for fact in facts)
