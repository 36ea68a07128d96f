"""Questions about the whole corpus: points from every summary, an answer from the points.

Map-reduce over the summaries of communities, after "From Local to Global: A Graph RAG Approach to
Query-Focused Summarization" (Edge et al., 2024).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import dspy

from ga_dspy.graph import KnowledgeGraph
from ga_dspy.graphrag.access import Access
from ga_dspy.graphrag.graph_index import GraphIndex
from ga_dspy.graphrag.inquiry import Inquiry
from ga_dspy.graphrag.points import Point, read_points
from ga_dspy.graphrag.topics import Topic, sources
from ga_dspy.mentions import sentences, words
from ga_dspy.passage import Passage
from ga_dspy.programs.conversation import Ask
from ga_dspy.programs.prediction import EvidenceLink
from ga_dspy.programs.reading import fit
from ga_dspy.programs.salvage import StepFailed, asked
from ga_dspy.signatures.prompt import render_passage
from ga_dspy.tokens import TokenCounter

_CONSIDERED: Final = 20
"""Passages of a community that are compared with the answer."""

_GLOBAL: Final = re.compile(
    r"\b(?:overall|in general|as a whole|altogether|main(?:ly)?|major|key|themes?|topics?|trends?|"
    r"summar(?:y|i[sz]e)|overview|most (?:common|important|frequent)|kinds? of|types? of|corpus|"
    r"collection|documents|passages|data ?set|across (?:all|the))\b",
    re.IGNORECASE,
)


class Survey(NamedTuple):
    """What the summaries have to say on a question.

    Attributes:
        points: What was collected.
        read: How many of the topics were read, from the first.
        failures: Why some of the summaries that were read gave nothing.
    """

    points: tuple[Point, ...]
    read: int
    failures: tuple[str, ...]


def is_global(question: str) -> bool:
    """Whether a question's words ask about everything rather than about something.

    >>> is_global("What are the main themes?"), is_global("Who founded Tavira?")
    (True, False)
    """
    return bool(_GLOBAL.search(question))


def surveyed(
    collect: dspy.Predict,
    inquiry: Inquiry,
    topics: Sequence[Topic],
    budget: int,
    count: TokenCounter,
    affords: Callable[[int, str], bool],
) -> Generator[Ask, dspy.Prediction, Survey]:
    """Collect points from topics, as many at a time as a prompt holds.

    Args:
        collect: The predictor that reads summaries.
        inquiry: The question.
        topics: What to read; their numbers in prompts count from 1.
        budget: Tokens for the summaries in a prompt.
        count: Counts the tokens of a text.
        affords: Whether one more call may be made, after so many, with these summaries.
    """
    points: list[Point] = []
    failures: list[str] = []
    read = 0
    for calls, batch in enumerate(_batches(topics, budget, count)):
        text = fit(batch, budget, count).text
        if calls and not affords(calls, text):
            break
        inputs = {"question": inquiry.question, "documents": text}
        read = max(batch)
        try:
            reply = yield from asked("collect", collect, inputs, inquiry.meter)
        except StepFailed as failure:
            failures.append(str(failure))
        else:
            points += read_points(reply.points, batch)
    return Survey(tuple(points), read, tuple(failures))


def _batches(
    topics: Sequence[Topic], budget: int, count: TokenCounter
) -> Iterator[dict[int, Passage]]:
    """Summaries by their numbers, which count from 1, as many at a time as a budget holds."""
    batch: dict[int, Passage] = {}
    held = 0
    for label, topic in enumerate(topics, 1):
        tokens = count(render_passage(label, topic.shown))
        if batch and held + tokens > budget:
            yield batch
            batch, held = {}, 0
        batch[label] = topic.shown
        held += tokens
    if batch:
        yield batch


def behind(
    answer: str, topics: Iterable[Topic], index: GraphIndex, access: Access, most: int
) -> tuple[Passage, ...]:
    """The passages behind some topics that are nearest to an answer, if the caller may read them.

    Each topic has its best passage before any has a second.
    """
    view = index.graph.visible(access)
    ranked: list[list[Passage]] = []
    for topic in topics:
        ids = sources(topic, index.graph, view)[:_CONSIDERED]
        read = [passage for id in ids if (passage := index.passage(id, access))]
        ranked.append(sorted(read, key=lambda p: -len(_words(answer) & _words(p.content))))
    deepest = max(map(len, ranked), default=0)
    turns = [read[turn] for turn in range(deepest) for read in ranked if turn < len(read)]
    return tuple({passage.id: passage for passage in turns}.values())[:most]


def stated_by(
    topics: Iterable[Topic], passages: Iterable[Passage], index: GraphIndex, access: Access
) -> KnowledgeGraph:
    """What passages state of the things of some topics, as the caller sees the graph."""
    public, view = index.graph.public, index.graph.visible(access)
    names = {public.name(node) for topic in topics for node in topic.community.nodes}
    members = {node for name in names for node in view.graph.find(name)}
    edges = dict.fromkeys(
        edge
        for passage in passages
        for edge in view.graph.edges_in(passage.id)
        if {int(view.graph.heads[edge]), int(view.graph.tails[edge])} <= members
    )
    return view.subgraph((), edges)


def nearest(answer: str, passages: Iterable[Passage]) -> tuple[EvidenceLink, ...]:
    """From each passage the sentence that shares the most words with an answer of any length."""
    return tuple(
        EvidenceLink(passage_id=p.id, title=p.title, quote=_nearest(_words(answer), p))
        for p in passages
    )


def _nearest(said: set[str], passage: Passage) -> str:
    text = passage.content
    parts = [text[start:end] for start, end in sentences(text)]
    body = parts[1:] if passage.title and len(parts) > 1 else parts
    return max(body, key=lambda part: len(said & _words(part)), default=text)


def _words(text: str) -> set[str]:
    return {word.folded for word in words(text)}
