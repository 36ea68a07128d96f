"""The judgement: is the evidence enough, and if not, what is searched next?

Deterministic rules over what one call can see: the new passages, the graph, the queries tried
and what the step before concluded. The search goes on where a name of the question was not met
yet, or where the best answer is unsure and a linked name has no passage of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from ga_dspy.lm.evidence import Answer, Doc, Fact
from ga_dspy.lm.inputs import Inputs
from ga_dspy.lm.leads import leads, query_for, unmet
from ga_dspy.lm.question import Question
from ga_dspy.lm.relations import statements
from ga_dspy.lm.text import content_stem, normalize

ENOUGH = (0.5, 0.2, 0.1)
_SUPPORT = (("well supported", 0.5), ("fairly supported", 0.25), ("weakly supported", 0.0))


class Judgement(NamedTuple):
    """What the judge says; `next_query` is empty exactly where the evidence suffices."""

    reasoning: str
    sufficient: bool
    candidate: str
    next_query: str


def judge(
    question: Question,
    inputs: Inputs,
    facts: Sequence[Fact],
    ranked: Sequence[Answer],
    caution: float = 0.0,
) -> Judgement:
    """Judge one step.

    Args:
        question: The question, taken apart.
        inputs: What the prompt says.
        facts: The graph's relations with those just added.
        ranked: The ranker's answers, best first.
        caution: Added to the score that counts as enough.
    """
    best = _kept(inputs, ranked[0] if ranked else Answer("", 0.0, (), "none"))
    query, name = _next(question, inputs, ranked, best.score < enough(inputs, caution))
    reasoning = _reasoning(question, facts, best, name)
    return Judgement(reasoning, not query, best.text, query)


def _kept(inputs: Inputs, best: Answer) -> Answer:
    """The better of the new best answer and the one of the step before."""
    if inputs.best and inputs.confidence > best.score:
        return Answer(inputs.best, inputs.confidence, (), "span")
    return best


def enough(inputs: Inputs, caution: float) -> float:
    """The score of an answer that counts as enough: the longer the search, the lower."""
    step = max(len(inputs.tried), 1)
    return ENOUGH[min(step, len(ENOUGH)) - 1] + caution


def sought(
    question: Question, inputs: Inputs, ranked: Sequence[Answer], unsure: bool
) -> Iterator[tuple[str, Doc | None]]:
    """Names worth a search, the first one first, each with the passage that leads to it.

    Names of the question that were not met yet; then, while the answer is unsure, linked ones.
    """
    for name in unmet(question, inputs):
        yield name, None
    if unsure and not question.choices:
        for lead in leads(question, inputs, ranked)[:3]:
            yield lead.name, lead.home


def _next(
    question: Question, inputs: Inputs, ranked: Sequence[Answer], unsure: bool
) -> tuple[str, str]:
    """The next query and the name it is about; empty where nothing sensible is left."""
    for name, home in sought(question, inputs, ranked, unsure):
        if query := query_for(name, question, home, inputs.tried):
            return query, name
    return "", ""


def _reasoning(question: Question, facts: Sequence[Fact], best: Answer, name: str) -> str:
    """One to three plain sentences that agree with the judgement."""
    sentences = []
    if links := _links(question, facts):
        stated = "; ".join(f"{f.head} {f.relation} {f.tail} {_marks(f.labels)}" for f in links)
        sentences.append(f"Established: {stated}.")
    if best.text:
        support = next(word for word, least in _SUPPORT if best.score >= least)
        where = f" {_marks(best.labels)}" if best.labels else ""
        sentences.append(
            f'The best answer so far is "{best.text}"{where}, {support} ({best.score:.2f}).'
        )
    else:
        sentences.append("No answer is seen yet.")
    if name:
        sentences.append(f"Missing: what is asked about {name}.")
    return " ".join(sentences)


def _marks(labels: Iterable[int]) -> str:
    return "".join(f"[{label}]" for label in labels)


def _links(question: Question, facts: Sequence[Fact]) -> list[Fact]:
    """The relations closest to the question, at most three."""
    asked = f" {normalize(question.text)} "

    def worth(fact: Fact) -> float:
        named = sum(f" {normalize(end)} " in asked for end in (fact.head, fact.tail))
        words = (question.focus.get(content_stem(w), 0.0) for w in fact.relation.split())
        return named + sum(words)

    ranked = sorted(facts, key=lambda fact: -worth(fact))
    return [fact for fact in ranked[:3] if worth(fact) >= 1.0]


def cited(question: Question, docs: Sequence[Doc], best: Answer) -> tuple[int, ...]:
    """The passages an answer rests on: where it stands, and the one that leads there."""
    first = best.labels[:1]
    home = next((doc for doc in docs if doc.label in first), None)
    if home is None:
        return best.labels[:2]
    asked = f" {normalize(question.text)} "
    subject = statements(home.title, home.text).subject
    bridges = [
        doc.label
        for doc in docs
        if doc is not home
        and f" {normalize(statements(doc.title, doc.text).subject)} " in asked
        and (f" {normalize(subject)} " in asked or subject in doc.text or doc.title in home.text)
    ]
    return (*first, *bridges[:1])
