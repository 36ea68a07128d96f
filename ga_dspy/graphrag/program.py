"""GraphRAG: answer questions from a graph of the whole corpus, built in advance."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice, zip_longest
from typing import Any, Final, Literal, NamedTuple, Self, cast, get_args

import dspy

from ga_dspy.errors import InputError
from ga_dspy.graph import KnowledgeGraph, checked_chain, prune
from ga_dspy.graph.clusters import passages_of
from ga_dspy.graph.records import grouped
from ga_dspy.graphrag.communities import Topic, rank_topics, summaries_text, topics_at, topics_with
from ga_dspy.graphrag.records import Access
from ga_dspy.graphrag.search import Found, GraphIndex, with_access
from ga_dspy.grounding import MAX_EVIDENCE
from ga_dspy.passage import Passage
from ga_dspy.programs.calls import Conversation, Search, StepFailed
from ga_dspy.programs.events import tell_passages, tell_search
from ga_dspy.programs.evidence import (
    Conclusion,
    EvidenceLink,
    chain_links,
    is_judgement,
    nearest_sentence,
)
from ga_dspy.programs.loop import (
    MINIMUM_ROOM,
    State,
    answer,
    ask_answer,
    ask_step,
    end_round,
    predict,
)
from ga_dspy.programs.prediction import Step, check_outputs
from ga_dspy.programs.program import MultiHopProgram, Signatures
from ga_dspy.programs.reading import fit_passages
from ga_dspy.programs.settings import setting
from ga_dspy.signatures import (
    AnswerFromPoints,
    CollectPoints,
    IndexKind,
    Style,
    Verdict,
    answer_signature,
)
from ga_dspy.signatures.graphrag import with_summaries
from ga_dspy.signatures.prompt import EMPTY, cited_labels, free_text, render_passage
from ga_dspy.text import TokenCounter, mentions, words

# --- The state of one question.


@dataclass
class Inquiry(State):
    """The state of one question.

    Attributes:
        found: The search result.
        topics: The topics shown to the LM, or those cited by an answer about the whole corpus.
        quoted: Passages that the evidence chain quotes although they were not read.
    """

    found: Found | None = None
    topics: tuple[Topic, ...] = ()
    quoted: tuple[Passage, ...] = ()


# --- The program.

Mode = Literal["local", "graph", "global", "hybrid"]
_RANKED_FACTS: Final = 12
"""The number of facts to rank if the prompt shows none."""


class GraphRAG(MultiHopProgram):
    """Answer from the part of a corpus graph around the entities of a question.

    `mode="local"` answers from facts, paths and passages around the entities that the question
    names. `mode="graph"` answers only from facts and paths, which costs far fewer tokens; the
    evidence quotes the passages that state them. `mode="global"` collects points from the summaries
    of all communities, then answers from the points. `mode="hybrid"` works like "local" with
    additional summaries, and like "global" for a question about the whole corpus that names no
    entity.

    If the graph knows no name in the question, entities are linked by meaning. With `facts=0` and
    `paths=0`, the graph is not shown: it only ranks the passages.

    The program has public access; `program.for_caller(Access(labels=…))` returns it for a caller
    with labels. A call with labels leaves nothing in DSPy's trace, so that no optimizer makes demos
    of restricted text.

    In addition to the fields of every program, the prediction has `seconds` (for linking,
    expansion, ranking, passages and lm), `gap` (whether the graph knows none of the names),
    `linked` (the names in the question that the graph knows), `paths` (the paths found between the
    question's entities, as text) and `communities` (the keys of the summaries used).

    The retriever must be a `GraphIndex`.
    """

    mode: Mode = setting('"local", "graph", "global" or "hybrid".', default="local")
    hops: int = setting("Hops to search from the linked entities.", default=2, minimum=1)
    paths: int = setting("Paths to show between linked entities.", default=3, minimum=0)
    facts: int = setting("Facts to show.", default=12, minimum=0)
    summaries: int = setting('Summaries to show in mode "hybrid".', default=3, minimum=0)
    level: int = setting('Community level for "global"; 0 is the coarsest.', default=0, minimum=0)
    batches: int = setting("Maximum LM calls that read summaries.", default=4, minimum=1)
    graph_tokens: int = setting("Token budget of facts, paths, points.", default=1500, minimum=50)
    summary_tokens: int = setting("Token budget of shown summaries.", default=1000, minimum=50)
    style: Style = setting(
        'The answer from passages: a "span", a "sentence" or two, or a "report"; the latter two '
        "cite passages in the text, and each citation is checked.",
        default="span",
    )
    answer_with: type[dspy.Signature] | None = setting(
        "A custom signature for the answer step, as for `GraphAnchor`.", default=None, saved=False
    )

    def signatures(self) -> Signatures:
        """Return the signatures of the LM's steps under these settings.

        Raises:
            InputError: The mode does not go with other settings, or a custom signature has no
                output `answer`.
        """
        if self.mode == "global":
            if self.style != "span" or self.answer_with is not None:
                raise InputError(
                    "mode='global' with style or answer_with",
                    expected="an answer from summaries, which is as long as the question asks for",
                    remedy='pass mode="hybrid" or "local"',
                )
            return {"collect": CollectPoints, "answer": AnswerFromPoints}
        if self.answer_with is not None:
            check_outputs(self.answer_with.output_fields.keys())
        shown: IndexKind = "graph" if self.facts or self.paths else None
        if self.mode == "graph" and shown is None:
            raise InputError(
                "mode='graph' with neither facts nor paths",
                expected="some to answer from",
                remedy='pass facts=12, or mode="local"',
            )
        answering = self.answer_with or answer_signature(
            shown, passages=self.mode != "graph", style=self.style
        )
        if self.mode != "hybrid":
            return {"answer": answering}
        if self.summaries and self.answer_with is None:
            answering = with_summaries(answering)
        return {"collect": CollectPoints, "combine": AnswerFromPoints, "answer": answering}

    @property
    def graph_index(self) -> GraphIndex:
        """Return the index and its graph.

        Raises:
            InputError: The retriever has no graph.
        """
        source = getattr(self.retriever, "source", self.retriever)
        if not isinstance(source, GraphIndex):
            raise InputError(
                f"the retriever of GraphRAG is {type(source).__name__}",
                expected="a GraphIndex: an index together with the graph of its passages",
                remedy="build the graph with `ga-dspy graph build` and name it with --graph, or "
                "pass GraphIndex.open(index_folder, graph_folder)",
            )
        return source

    def for_caller(self, access: Access) -> Self:
        """Return this program for a caller with this access; the predictors are shared."""
        return self.with_retrievers(with_access(access))

    def _access_scope(self) -> AbstractContextManager[Any]:
        """Keep restricted text out of the trace, from which optimizers make few-shot demos."""
        return dspy.context(trace=None) if self.scope else nullcontext()

    def start(self, question: str) -> Inquiry:
        """Return the initial state of a question."""
        return Inquiry(super().start(question).question, self)

    def check_ready(self) -> None:
        """Also check that there is a graph, and that there are summaries if the mode needs them."""
        super().check_ready()
        _ = self.graph_index
        if self.mode == "global" or (self.mode == "hybrid" and self.summaries):
            _ = self._topics

    def converse(self, state: State) -> Conversation[dspy.Prediction]:
        """Search the graph and answer from the result, or answer from summaries of the corpus."""
        inquiry, question = cast("Inquiry", state), state.question
        if self.mode == "global":
            return (yield from self._overview(inquiry, "answer"))
        index, keep = self.graph_index, self.facts or _RANKED_FACTS
        find: Any = partial(index.find, hops=self.hops, paths=self.paths, keep=keep)
        yield from tell_search(1, question)
        found: Found = yield Search(find, question, self.k)
        inquiry.found = found
        if self.mode == "hybrid" and found.gap and is_global(question):
            return (yield from self._overview(inquiry, "combine"))
        passages = self._stating_passages(found) if self.mode == "graph" else found.passages
        fresh = inquiry.reading.add(question, passages)
        yield from tell_passages(1, fresh, [passage.id for passage in passages])
        inquiry.graph = self._shown_graph(found)
        unknown = "the graph has no name of the question: entities were linked by meaning"
        inquiry.step = self._step(inquiry, unknown if found.gap else "")
        yield from end_round(inquiry)
        if self.mode == "hybrid" and self.summaries:
            linked = [link.name for link in found.linked]
            inquiry.topics = topics_with(self._topics, index.graph, linked, self.summaries)
        end = yield from answer(inquiry)
        return self._predict(inquiry, end, self._chain(inquiry, end))

    def _shown_edges(self, found: Found) -> list[int]:
        facts = [fact.edge for fact in found.facts] if self.facts else []
        on_paths = chain.from_iterable(path.edges for path in found.paths)
        return list(dict.fromkeys([*facts, *on_paths]))

    def _stating_passages(self, found: Found) -> list[Passage]:
        """Return the passages that state the shown facts and paths, a few for each."""
        graph = found.view.graph
        stated = (graph.passages_of_edge(edge)[:MAX_EVIDENCE] for edge in self._shown_edges(found))
        ids = dict.fromkeys(chain.from_iterable(stated))
        return list(filter(None, map(self.graph_index.passage, ids)))

    def _shown_graph(self, found: Found) -> KnowledgeGraph:
        """Return the shown facts and paths as a graph, with relations grouped by their head."""
        linked = [link.node for link in found.linked if link.how != "vector"] if self.facts else []
        heads, edges = found.view.graph.heads, self._shown_edges(found)
        by_head = grouped((heads[edge], edge) for edge in edges)
        return found.view.graph.subgraph(linked, chain.from_iterable(by_head.values()))

    def _step(
        self, inquiry: Inquiry, rule: str, failures: Iterable[str] = (), **stated: str
    ) -> Step:
        """Return the only step of a question: the passages read and the part of the graph used."""
        read = tuple(passage.id for passage in inquiry.reading.passages.values())
        return Step(
            number=1,
            query=inquiry.question,
            retrieved=read,
            passage_ids=read,
            entities=inquiry.graph.entities,
            relations=inquiry.graph.relations,
            rule=rule,
            failure="; ".join(failures),
            graph=inquiry.graph,
            **stated,
        )

    @property
    def _topics(self) -> tuple[Topic, ...]:
        if not self.graph_index.topics:
            raise InputError(
                f"mode={self.mode!r} needs summaries of communities, and the GraphIndex has none",
                expected="a graph that was built with summaries",
                remedy="run `ga-dspy graph build … --summaries`, or GraphIndex.open(index, graph, "
                'summaries=True); mode="local" needs none',
            )
        return self.graph_index.topics

    def answer_inputs(self, state: State) -> dict[str, str]:
        """Return the facts and paths that were found, and the summaries about their entities."""
        inquiry, inputs = cast("Inquiry", state), dict[str, str]()
        if inquiry.found is not None and (self.facts or self.paths):
            inputs["graph"] = self._graph_text(inquiry, inquiry.found)
        if "summaries" in self.answer.signature.input_fields:
            inputs["summaries"] = summaries_text(inquiry.topics, self.summary_tokens, self.count)
        return inputs

    def _graph_text(self, inquiry: Inquiry, found: Found) -> str:
        """Return the facts, pruned to the budget that the paths leave, and the paths."""
        labels = inquiry.reading.labels
        # A path of a single relation is already among the facts.
        paths = chains_text(found, labels, least=2 if self.facts else 1)
        left = max(self.graph_tokens - self.count(paths), 0) if paths else self.graph_tokens
        facts = inquiry.graph if self.facts else KnowledgeGraph()
        pruned = prune(facts, inquiry.question, left, self.count, labels=labels)
        return "\n".join(part for part in (pruned.text, paths) if part and part != EMPTY) or EMPTY

    def _chain(self, inquiry: Inquiry, end: Conclusion) -> tuple[EvidenceLink, ...]:
        """Return the links that lead from the entities in the question to the answer."""
        if inquiry.found is None or self.style != "span" or not end.is_answer:
            return ()
        read = {passage.id: passage for passage in inquiry.reading.passages.values()}
        index, graph = self.graph_index, inquiry.graph
        stated = chain(map(passages_of, graph.entities), map(passages_of, graph.relations))
        others = frozenset[str]().union(*stated) - read.keys()
        passages = (index.passage(id) for id in others)
        known = read | {passage.id: passage for passage in passages if passage}
        # The question does not mention entities that were linked by another spelling or by meaning.
        linked = " ; ".join((inquiry.question, *(link.name for link in inquiry.found.linked)))
        texts = (inquiry.question, linked)
        chains = (checked_chain(inquiry.graph, text, end.answer, known) for text in texts)
        links = chain_links(next(filter(None, chains), ()), known)
        quoted = dict.fromkeys(link.passage_id for link in links)
        inquiry.quoted = tuple(known[id] for id in quoted if id not in read)
        return links

    def _overview(self, inquiry: Inquiry, combine: str) -> Conversation[dspy.Prediction]:
        """Collect points from summaries of the whole corpus (map); answer from them (reduce).

        Source: "From Local to Global: A Graph RAG Approach to Query-Focused Summarization" (Edge et
        al., 2024).
        """
        topics = rank_topics(topics_at(self._topics, self.level), inquiry.question)
        points, read, failures = yield from self._survey(inquiry, topics)
        notes = best_points(points, self.graph_tokens, self.count)
        reply = yield from ask_answer(inquiry, combine, notes=notes or EMPTY)
        reply = reply or dspy.Prediction(answer="")
        answered = (reply.answer or "").strip()
        labels = [n for n in cited_labels(free_text(reply.get("cited"))) if 1 <= n <= read]
        inquiry.topics, inquiry.notes = tuple(topics[n - 1] for n in labels), notes
        # The answer cites summaries; its evidence is the passages of their communities.
        passages = passages_behind(answered, inquiry.topics, self.graph_index, self.k)
        inquiry.reading.add(inquiry.question, passages)
        inquiry.graph = stated_in(passages, inquiry.topics, self.graph_index)
        cited = inquiry.reading.tried[-1].labels
        quoted = bool(answered and cited) and not is_judgement(answered)
        verdict = str(reply.get("verdict") or "")
        if verdict not in get_args(Verdict):
            verdict = "answered" if quoted else "not in passages"
        rule = f"about the whole corpus: {read} of {len(topics)} summaries were read"
        inquiry.steps = [self._step(inquiry, rule, failures, candidate=answered, notes=notes)]
        prediction = self._predict(inquiry, Conclusion(answered, verdict, cited, quoted))
        if prediction.evidence:
            links = (EvidenceLink.to(p, nearest_sentence(answered, p)) for p in passages)
            prediction.evidence = tuple(links)
        return prediction

    def _survey(
        self, inquiry: Inquiry, topics: Sequence[Topic]
    ) -> Conversation[tuple[list[Point], int, list[str]]]:
        """Collect points from topics, numbered from 1, in batches that fit a prompt.

        The survey ends when the number of calls or the token budget is exhausted.

        Returns:
            The points, the number of topics read (the first ones), and the error messages.
        """
        points, failures = list[Point](), list[str]()
        read, room = 0, max(inquiry.budget.room("collect"), MINIMUM_ROOM)
        for calls, batch in enumerate(_batches(topics, room, self.count)):
            text = fit_passages(batch, room, self.count).text
            is_over = inquiry.budget.room("collect") < min(room, self.count(text))
            if calls and (calls >= self.batches or is_over):
                break
            read = max(batch)
            try:
                reply = yield from ask_step(inquiry, "collect", "points", documents=text)
            except StepFailed as failure:
                failures.append(str(failure))
            else:
                points += read_points(reply.points, batch)
        return points, read, failures

    def _predict(
        self, inquiry: Inquiry, end: Conclusion, chain: tuple[EvidenceLink, ...] = ()
    ) -> dspy.Prediction:
        """Return the prediction with the fields that only this program has."""
        prediction, found = predict(inquiry, end, chain), inquiry.found
        searched = found.seconds if found else {}
        prediction.seconds = {**searched, "lm": inquiry.meter.seconds}
        prediction.gap = found is not None and found.gap
        prediction.linked = found.named if found else ()
        prediction.quoted = inquiry.quoted
        prediction.paths = tuple(path.text for path in found.paths) if found else ()
        prediction.communities = tuple(topic.community.key for topic in inquiry.topics)
        return prediction


# --- Questions about the whole corpus, and paths in a prompt.

_BULLET: Final = re.compile(r"^\s*(?:[-*•–]|\d+[.)])\s+")
_GLOBAL: Final = re.compile(
    r"\b(?:overall|in general|as a whole|altogether|main(?:ly)?|major|key|themes?|topics?|trends?|"
    r"summar(?:y|i[sz]e)|overview|most (?:common|important|frequent)|kinds? of|types? of|corpus|"
    r"collection|documents|passages|data ?set|across (?:all|the))\b",
    re.IGNORECASE,
)


def is_global(question: str) -> bool:
    """Return whether the wording of a question asks about the whole corpus.

    >>> is_global("What are the main themes?"), is_global("Who founded Tavira?")
    (True, False)
    """
    return bool(_GLOBAL.search(question))


def chains_text(found: Found, labels: Mapping[str, int], *, least: int) -> str:
    """Return the paths between linked entities, one per line under a heading; "" if there are none.

    Paths have the arrows "→" and "←", unlike relations, because a path states nothing new.

    Args:
        found: The search result.
        labels: The number of each passage in the prompt.
        least: The minimum number of relations in a path.
    """
    lines = []
    for path in found.paths:
        if len(path.edges) >= least:
            stated = (p for edge in path.edges for p in found.view.graph.passages_of_edge(edge))
            numbers = sorted({labels[p] for p in stated if p in labels})
            lines.append(path.text + (f" [{','.join(map(str, numbers))}]" if numbers else ""))
    return "\n".join(["Paths:", *dict.fromkeys(lines)]) if lines else ""


# --- Points that an LM collects from summaries.

UNRATED: Final = 50
"""The rating of a point that the LM did not rate."""

_RATED: Final = re.compile(r"\s*\((?:helpfulness:?\s*)?(\d{1,3})(?:\s*/\s*100|\s*%)?\)\s*[.;]?\s*$")
_CITED: Final = re.compile(r"\s*\[((?:\s*\d+\s*[,;]?)+)\]\s*[.;]?\s*$")


class Point(NamedTuple):
    """A statement from summaries that helps to answer a question.

    Attributes:
        text: The statement.
        labels: The numbers of the summaries that state it; never empty.
        rating: How much it helps, from 0 to 100.
    """

    text: str
    labels: tuple[int, ...]
    rating: int

    def __str__(self) -> str:
        """Return the point as a line of a prompt."""
        return f"- {self.text} [{','.join(map(str, self.labels))}]"


def read_points(text: str, shown: Mapping[int, Passage]) -> tuple[Point, ...]:
    r"""Parse the points in a reply; rating and summary numbers may stand in any order.

    A point without a valid number is attributed to the first summary that contains its text. A
    point that no summary contains, or that is rated 0, is dropped.

    >>> shown = {3: Passage(id="c", title="Rivers", text="The Gilão is short.")}
    >>> read_points("- The Gilão is short [3] (80)\n- It is deep [9] (70)", shown)
    (Point(text='The Gilão is short', labels=(3,), rating=80),)
    """
    points = list[Point]()
    for line in free_text(text).splitlines():
        stated, rating, cited = _BULLET.sub("", line).strip(), UNRATED, ""
        while mark := _RATED.search(stated) or _CITED.search(stated):
            stated = stated[: mark.start()]
            if mark.re is _RATED:
                rating = min(int(mark[1]), 100)
            else:
                cited = f"{cited} {mark[1]}"
        stated = free_text(stated)
        labels = [label for label in cited_labels(cited) if label in shown]
        if stated and not labels:
            labels = [n for n, one in shown.items() if mentions(stated, one.content)][:1]
        if stated and labels and rating:
            points.append(Point(stated, tuple(labels), rating))
    return tuple(points)


def best_points(points: Iterable[Point], budget: int, count: TokenCounter) -> str:
    """Return the points as notes, the most helpful first, within a token budget."""
    lines: dict[str, str] = {}
    for point in sorted(points, key=lambda point: -point.rating):
        line = str(point)
        if count("\n".join([*lines.values(), line])) > budget and lines:
            break
        lines.setdefault(point.text, line)
    return "\n".join(lines.values())


def _batches(
    topics: Sequence[Topic], budget: int, count: TokenCounter
) -> Iterator[dict[int, Passage]]:
    """Yield summaries by number, counting from 1, in batches that fit a token budget."""
    batch, size = dict[int, Passage](), 0
    for label, topic in enumerate(topics, 1):
        tokens = count(render_passage(label, topic.passage))
        if batch and size + tokens > budget:
            yield batch
            batch, size = {}, 0
        batch[label] = topic.passage
        size += tokens
    if batch:
        yield batch


# --- Evidence of an answer from summaries: the passages of their communities.

_CONSIDERED: Final = 20
"""The maximum number of passages per community that are compared with the answer."""


def passages_behind(
    answer: str, topics: Iterable[Topic], index: GraphIndex, most: int
) -> tuple[Passage, ...]:
    """Return the passages of some topics that are most similar to an answer.

    The best passage of each topic comes before any second passage. Passages that the caller may not
    read are left out.
    """
    public, answer_words, ranked = index.graph.public, _words(answer), list[list[Passage]]()
    for topic in topics:
        stated = Counter(chain.from_iterable(map(public.passages_of_edge, topic.community.edges)))
        readable = filter(None, (index.passage(id) for id, _ in stated.most_common()))
        considered = islice(readable, _CONSIDERED)
        ranked.append(sorted(considered, key=lambda p: -len(answer_words & _words(p.content))))
    in_turn = filter(None, chain.from_iterable(zip_longest(*ranked)))
    return tuple({passage.id: passage for passage in in_turn}.values())[:most]


def stated_in(
    passages: Iterable[Passage], topics: Iterable[Topic], index: GraphIndex
) -> KnowledgeGraph:
    """Return the part of the caller's graph that passages state about the entities of topics."""
    public, graph = index.graph.public, index.graph.visible(index.access).graph
    names = {public.name(node) for topic in topics for node in topic.community.nodes}
    members = {node for name in names for node in graph.find(name)}
    read = {passage.id for passage in passages}
    inside = graph.network.es.select(_within=members).indices
    edges = (edge for edge in inside if not read.isdisjoint(graph.passages_of_edge(edge)))
    return graph.subgraph((), edges)


def _words(text: str) -> set[str]:
    return {word.folded for word in words(text)}
