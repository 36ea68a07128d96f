"""Topics: communities of the graph with their summaries, and which of them a question is about."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ga_dspy.graph import normalise
from ga_dspy.graphrag.communities import Community
from ga_dspy.graphrag.corpus_graph import CorpusGraph, View
from ga_dspy.graphrag.summaries import Summary
from ga_dspy.mentions import words
from ga_dspy.passage import Passage
from ga_dspy.programs.reading import fit
from ga_dspy.signatures.prompt import EMPTY
from ga_dspy.tokens import TokenCounter

_SMALL_WORDS = 3


class Topic(NamedTuple):
    """A community of the public graph and what was written of it.

    Attributes:
        place: Its place in the list of all communities, by which others name it as their parent.
        community: Its things and relations, by their numbers in `CorpusGraph.public`.
        title: What it is about, in a few words.
        text: The summary.
    """

    place: int
    community: Community
    title: str
    text: str

    @property
    def told(self) -> tuple[str, str, str]:
        """What identifies it: the community's key, title and text."""
        return self.community.key, self.title, self.text

    @property
    def shown(self) -> Passage:
        """The summary in the form of a passage, for prompts that number what they show."""
        return Passage(id=self.community.key, title=self.title, text=self.text)


def topics_of(
    communities: Sequence[Community], summaries: Mapping[str, Summary | str]
) -> tuple[Topic, ...]:
    """The communities that have a summary; those of which none could be made are left out.

    Args:
        communities: All communities, in their order.
        summaries: What `Summaries.of` gave for them.
    """
    return tuple(
        Topic(place, community, summary.title, summary.text)
        for place, community in enumerate(communities)
        if isinstance(summary := summaries.get(community.key), Summary)
    )


def about(
    topics: Iterable[Topic], graph: CorpusGraph, names: Iterable[str], most: int
) -> tuple[Topic, ...]:
    """The topics that the named things belong to, those that hold most of them first.

    Of topics that hold as many, the smaller one says more of each.
    """
    public = graph.public
    named = {node for name in names for node in public.find(name)}
    held = [(len(named.intersection(topic.community.nodes)), topic) for topic in topics]
    ranked = sorted(
        (pair for pair in held if pair[0]),
        key=lambda pair: (-pair[0], len(pair[1].community.nodes)),
    )
    return tuple(topic for _, topic in ranked[:most])


def at_level(topics: Sequence[Topic], level: int) -> tuple[Topic, ...]:
    """The topics of a level, and of coarser ones where they are not divided that far."""
    coarse = [topic for topic in topics if topic.community.level <= level]
    divided = {topic.community.parent for topic in coarse}
    return tuple(topic for topic in coarse if topic.place not in divided)


def ranked(topics: Iterable[Topic], question: str) -> tuple[Topic, ...]:
    """Topics that share words with a question first, of equal ones the larger."""
    asked = _content(question)

    def order(topic: Topic) -> tuple[int, int]:
        shared = asked & _content(f"{topic.title} {topic.text}")
        return -len(shared), -len(topic.community.nodes)

    return tuple(sorted(topics, key=order))


def summaries_text(topics: Iterable[Topic], budget: int, count: TokenCounter) -> str:
    """Summaries, one a line, without numbers: these are the passages'; cut where they must be."""
    shown = fit({n: topic.shown for n, topic in enumerate(topics)}, budget, count).text
    told = (block.partition("] ")[2].replace("\n", ": ", 1) for block in shown.split("\n\n"))
    return "\n".join(filter(None, told)) or EMPTY


def sources(topic: Topic, graph: CorpusGraph, view: View) -> tuple[str, ...]:
    """The passages behind a topic that the caller may read, those that state most of it first.

    Args:
        topic: A topic of the graph.
        graph: The whole graph, whose public part the topic is of.
        view: What the caller sees of it.
    """
    public = graph.public
    stated = Counter(
        passage for edge in topic.community.edges for passage in public.passages_of_edge(edge)
    )
    return tuple(passage for passage, _ in stated.most_common() if view.readable(passage))


def _content(text: str) -> set[str]:
    return {word.folded for word in words(normalise(text)) if len(word.folded) > _SMALL_WORDS}
