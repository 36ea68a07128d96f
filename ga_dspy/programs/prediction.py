"""What a program returns: the answer, what it rests on, how it was found, what it cost."""

from __future__ import annotations

from typing import Any

import dspy
from pydantic import BaseModel, ConfigDict

from ga_dspy.graph import Entity, KnowledgeGraph, Relation
from ga_dspy.grounding import Dropped
from ga_dspy.mentions import mentions, sentences
from ga_dspy.passage import Passage


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True)


class Step(_Record):
    """One round of retrieving, indexing and judging.

    Attributes:
        number: From 1.
        query: What was searched.
        reformulated: The query made from the graph, where `query` brought nothing new.
        retrieved: Ids of all passages that the query returned, in retrieval order.
        passage_ids: Ids of those among them that were new.
        entities: What the graph gained.
        relations: What the graph gained.
        attributes: What it learned about entities it knew, as (entity, attribute).
        dropped: What the model proposed and the passages did not support, and why.
        attempts: How often the index step was asked (1, and once more per round of feedback).
        reasoning: The judge's reasoning.
        judgement: "sufficient", "insufficient", or empty where the step failed before it.
        candidate: The answer the judge saw, or empty.
        next_query: What the judge wanted to search next, or empty.
        rule: Where the program did something else than the judge said: what and why.
        failure: Why the step failed, or empty.
        graph: The graph after this step (shares its parts with the other snapshots).
        notes: The text index after this step, where the program keeps one.
    """

    number: int
    query: str
    reformulated: str = ""
    retrieved: tuple[str, ...] = ()
    passage_ids: tuple[str, ...] = ()
    entities: tuple[Entity, ...] = ()
    relations: tuple[Relation, ...] = ()
    attributes: tuple[tuple[str, str], ...] = ()
    dropped: tuple[Dropped, ...] = ()
    attempts: int = 0
    reasoning: str = ""
    judgement: str = ""
    candidate: str = ""
    next_query: str = ""
    rule: str = ""
    failure: str = ""
    graph: KnowledgeGraph = KnowledgeGraph()
    notes: str = ""


class EvidenceLink(_Record):
    """One link of the evidence chain: a triple with the passage and the words that state it.

    The triple is empty where a program without a graph quotes the passage that holds the answer.
    """

    head: str = ""
    relation: str = ""
    tail: str = ""
    passage_id: str
    title: str
    quote: str

    def __str__(self) -> str:
        """The link on one line."""
        triple = f"{self.head} -> {self.relation} -> {self.tail}: " if self.head else ""
        return f'{triple}"{self.quote}" ({self.title or self.passage_id})'


def chain_links(
    chain: tuple[Relation, ...], passages: dict[str, Passage]
) -> tuple[EvidenceLink, ...]:
    """The links of a chain of relations, each quoting its first evidence."""
    links = []
    for relation in chain:
        pieces = [(e, passages[e.passage]) for e in relation.evidence if e.passage in passages]
        if not pieces:
            continue
        first = pieces[0][1]
        quote = " … ".join(p.content[e.start : e.end] for e, p in pieces if p.id == first.id)
        links.append(
            EvidenceLink(
                head=relation.head,
                relation=relation.relation,
                tail=relation.tail,
                passage_id=first.id,
                title=first.title,
                quote=" ".join(quote.split()),
            )
        )
    return tuple(links)


def quotes(answer: str, cited: tuple[Passage, ...]) -> tuple[EvidenceLink, ...]:
    """The sentences of the cited passages that hold the answer, else their first sentences."""
    links = []
    for passage in cited:
        text = passage.content
        spans = sentences(text)
        skip = 1 if passage.title and len(spans) > 1 else 0
        held = mentions(answer, text)
        start, end = next(
            (span for m in held for span in spans[skip:] if span[0] <= m.start < span[1]),
            spans[min(skip, len(spans) - 1)] if spans else (0, len(text)),
        )
        links.append(
            EvidenceLink(passage_id=passage.id, title=passage.title, quote=text[start:end])
        )
    return tuple(links)


def as_json(prediction: dspy.Prediction) -> dict[str, Any]:
    """A prediction as JSON values: what an app would store or send."""
    whole = {"answer", "verdict", "supported", "candidate", "cited", "left_out", "failures"}
    record: dict[str, Any] = {name: prediction[name] for name in sorted(whole)}
    for name in ("evidence", "passages", "steps"):
        omit = {"graph"} if name == "steps" else set()
        record[name] = [item.model_dump(mode="json", exclude=omit) for item in prediction[name]]
    record["graph"] = {
        "entities": [entity.model_dump(mode="json") for entity in prediction.graph.entities],
        "relations": [relation.model_dump(mode="json") for relation in prediction.graph.relations],
    }
    usage = {step: spent.model_dump(mode="json") for step, spent in prediction.usage.items()}
    return {**record, "usage": usage, "calls": prediction.calls, "tokens": prediction.tokens}
