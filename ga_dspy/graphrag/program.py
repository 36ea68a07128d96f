"""GraphRAG: answers from a graph that was extracted from the whole corpus ahead of time."""

from __future__ import annotations

import copy
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, Final

import dspy

from ga_dspy.graph import KnowledgeGraph, evidence_chain
from ga_dspy.graphrag.access import Access
from ga_dspy.graphrag.caller import caller, untraced
from ga_dspy.graphrag.found import Found
from ga_dspy.graphrag.gaps import GapLog
from ga_dspy.graphrag.global_search import behind, is_global, nearest, stated_by, surveyed
from ga_dspy.graphrag.graph_index import Find, GraphIndex, NoGraph, NoSummaries
from ga_dspy.graphrag.inquiry import Inquiry
from ga_dspy.graphrag.points import best_points
from ga_dspy.graphrag.portion import chains_text, portion, portion_text
from ga_dspy.graphrag.predictors import Entities, Mode, names_in, signatures
from ga_dspy.graphrag.topics import Topic, about, at_level, ranked, summaries_text
from ga_dspy.programs.answering import Conclusion
from ga_dspy.programs.base import PROMPT_TOKENS, MultiHopProgram, one_of, whole
from ga_dspy.programs.conversation import Conversation, Request
from ga_dspy.programs.prediction import EvidenceLink, Step, chain_links
from ga_dspy.programs.progress import Progress
from ga_dspy.programs.reading import Shown
from ga_dspy.programs.salvage import StepFailed, asked
from ga_dspy.signatures.prompt import EMPTY, cited_labels, said
from ga_dspy.tokens import TokenCounter, estimate_tokens

_LEADING: Final = 12


class GraphRAG(MultiHopProgram):
    """Enter the graph at what the question names, read what stands around it; then answer.

    `mode="local"` answers from facts, paths and passages around the question's names;
    `mode="global"` from the summaries of all communities, first points from each, then an answer
    from the points; `mode="hybrid"` is local with the summaries around its names, and global
    for a question about everything that names nothing of the graph.

    Where the question names nothing that the graph knows, things like it are entered by meaning
    and passages found as ever; such questions can be logged (`gaps`).

    What a caller may see is decided when a question is asked: by `for_caller`, or by a
    `called_by` block, and without either it is what everybody may see. A call with labels leaves
    nothing in DSPy's trace and a copy of a program has no labels, so that no optimizer makes
    demonstrations of what only some may see.

    The prediction has, besides the fields of every program, `seconds` (the time of linking,
    expansion, ranking, passages and lm), `gap` (whether the graph knows nothing of what is
    named) and `communities` (the keys of the summaries used).

    Args:
        retriever: A `GraphIndex`.
        mode: "local", "global" or "hybrid".
        entities: Who finds the names in a question: the graph's "dictionary", or an "lm" besides.
        k: Passages to read.
        hops: How far from the linked things the graph is searched.
        max_nodes: The most things looked at.
        max_edges: The most relations looked at.
        paths: How many paths between linked things are shown; 0 for none.
        facts: How many facts are shown; 0 for none. With neither facts nor paths the graph only
            ranks the passages.
        vector_fallback: Enter the graph by meaning where nothing is named that it knows.
        summaries: How many summaries the hybrid mode shows beside the facts.
        level: Which division of the graph is read for an answer about everything, 0 for the
            coarsest.
        batches: The most LM calls that read summaries for one question; the topics that share
            words with the question come first.
        graph_tokens: Budget for facts and paths in a prompt, and for points.
        summary_tokens: Budget for the summaries in an answer prompt.
        passage_tokens: Budget for the passages in a prompt, and for the summaries in one call
            that reads them.
        token_budget: About as many tokens as a question may cost; None for no limit.
        abstain: Give an empty answer where no passage supports one.
        gaps: The folder in which questions that the graph knows nothing of are logged; None for
            nowhere. Never saved with the program.
        count: Counts the tokens of a text.
    """

    _access: Access | None = None

    def __init__(
        self,
        retriever: Any,
        *,
        mode: Mode = "local",
        entities: Entities = "dictionary",
        k: int = 5,
        hops: int = 2,
        max_nodes: int = 200,
        max_edges: int = 400,
        paths: int = 3,
        facts: int = 12,
        vector_fallback: bool = True,
        summaries: int = 3,
        level: int = 0,
        batches: int = 4,
        graph_tokens: int = 1500,
        summary_tokens: int = 1000,
        passage_tokens: int = 6000,
        token_budget: int | None = None,
        abstain: bool = False,
        gaps: Path | str | None = None,
        count: TokenCounter = estimate_tokens,
    ) -> None:
        super().__init__(
            retriever,
            k=k,
            passage_tokens=passage_tokens,
            token_budget=token_budget,
            abstain=abstain,
            count=count,
        )
        self.mode: Mode = one_of("mode", mode, ("local", "global", "hybrid"))
        self.entities: Entities = one_of("entities", entities, ("dictionary", "lm"))
        self.hops = whole("hops", hops)
        self.max_nodes = whole("max_nodes", max_nodes)
        self.max_edges = whole("max_edges", max_edges)
        self.paths = whole("paths", paths, 0)
        self.facts = whole("facts", facts, 0)
        self.vector_fallback = vector_fallback
        self.summaries = whole("summaries", summaries, 0)
        self.level = whole("level", level, 0)
        self.batches = whole("batches", batches)
        self.graph_tokens = whole("graph_tokens", graph_tokens, 50)
        self.summary_tokens = whole("summary_tokens", summary_tokens, 50)
        self.gaps = None if gaps is None else GapLog(gaps)
        asked_for = signatures(
            self.mode, self.entities, graph=bool(facts or paths), summaries=bool(summaries)
        )
        for name, signature in asked_for.items():
            setattr(self, name, dspy.Predict(signature))

    def settings(self) -> dict[str, Any]:
        """The arguments that make this program again.

        All but the retriever, the counter and the folder for gaps.
        """
        names = (
            "mode", "entities", "hops", "max_nodes", "max_edges", "paths", "facts",
            "vector_fallback", "summaries", "level", "batches", "graph_tokens", "summary_tokens",
        )  # fmt: skip
        return {**{name: getattr(self, name) for name in names}, **super().settings()}

    def for_caller(self, access: Access) -> GraphRAG:
        """This program for one caller: the same predictors, with the caller's rights.

        A copy of it has no rights of its own: compiled, it is a program for everybody.
        """
        view = copy.copy(self)
        view._access = access
        return view

    @property
    def access(self) -> Access:
        """The rights with which a question asked now is answered."""
        return caller() if self._access is None else self._access

    @property
    def graph_index(self) -> GraphIndex:
        """Passages and graph.

        Raises:
            NoGraph: The program was made with passages alone.
        """
        source = getattr(self.retriever.search, "source", self.retriever.search)
        if not isinstance(source, GraphIndex):
            raise NoGraph(source)
        return source

    def __getstate__(self) -> dict[str, Any]:
        """What a copy takes over: everything but the rights of a caller."""
        state: dict[str, Any] = super().__getstate__()
        state.pop("_access", None)
        return state

    def forward(self, question: str) -> dspy.Prediction:
        """Answer a question."""
        with untraced(self.access):
            return super().forward(question)

    async def aforward(self, question: str) -> dspy.Prediction:
        """Answer a question from a coroutine."""
        with untraced(self.access):
            return await super().aforward(question)

    def converse(self, question: str) -> Conversation[dspy.Prediction]:
        """The algorithm."""
        inquiry = Inquiry(question, access=self.access)
        if self.mode == "global":
            return (yield from self._overview(inquiry, self.answer))
        names = yield from self._named(inquiry)
        inquiry.found = (yield self._find(inquiry, names)).found
        found = inquiry.found
        if self.mode == "hybrid" and found.gap and is_global(question):
            return (yield from self._overview(inquiry, self.combine))
        if found.gap and self.gaps is not None:
            self.gaps.note(question, found.unlinked, inquiry.access)
        self._read(inquiry, found)
        return (yield from self._conclude(inquiry))

    def _named(self, inquiry: Inquiry) -> Generator[Request, Any, tuple[str, ...] | None]:
        """The names that an LM finds in the question; None where it is not asked or finds none."""
        if self.entities != "lm":
            return None
        inputs = {"question": inquiry.question}
        try:
            reply = yield from asked("name", self.name, inputs, inquiry.meter)
        except StepFailed as failure:
            inquiry.opening = f"{failure}: the names were looked up in the graph alone"
            return None
        return names_in(reply.entities, inquiry.question)

    def _find(self, inquiry: Inquiry, names: tuple[str, ...] | None) -> Find:
        index = self.graph_index
        search = index.search(
            hops=self.hops,
            max_nodes=self.max_nodes,
            max_edges=self.max_edges,
            paths=self.paths,
            # Facts lead to passages even where the prompt shows none.
            keep=self.facts or _LEADING,
            vector_fallback=self.vector_fallback,
        )
        return Find(index, inquiry.question, self.k, search, names, inquiry.access)

    def _read(self, inquiry: Inquiry, found: Found) -> None:
        """Take in what was found, as one step."""
        inquiry.reading.take(inquiry.question, found.passages)
        inquiry.graph = portion(found, facts=bool(self.facts), paths=bool(self.paths))
        unknown = "the graph knows nothing of what is named: what is like it was read"
        inquiry.steps = [self._step(inquiry, unknown if found.gap else "")]
        if self.mode == "hybrid" and self.summaries:
            names = [link.name for link in found.linked]
            topics = self._topics(f"summaries={self.summaries}")
            inquiry.topics = about(topics, self.graph_index.graph, names, self.summaries)

    def _step(
        self, inquiry: Inquiry, rule: str, failures: tuple[str, ...] = (), **said: str
    ) -> Step:
        """The one round of a question: what was read, what of the graph was used."""
        read = tuple(passage.id for passage in inquiry.reading.passages.values())
        return Step(
            number=1,
            query=inquiry.question,
            retrieved=read,
            passage_ids=read,
            entities=inquiry.graph.entities,
            relations=inquiry.graph.relations,
            rule="; ".join(filter(None, (inquiry.opening, rule))),
            failure="; ".join(failures),
            graph=inquiry.graph,
            **said,
        )

    def _topics(self, asked: str) -> tuple[Topic, ...]:
        if not self.graph_index.topics:
            raise NoSummaries(asked)
        return self.graph_index.topics

    def _answer_inputs(self, progress: Progress) -> dict[str, str]:
        found, inputs = _of(progress).found, dict[str, str]()
        if found is not None and (self.facts or self.paths):
            labels = progress.reading.labels
            # A path of one relation stands among the facts already.
            chains = chains_text(found, labels, least=2 if self.facts else 1) if self.paths else ""
            listed = progress.graph if self.facts else KnowledgeGraph()
            inputs["graph"] = portion_text(
                listed, chains, progress.question, self.graph_tokens, self.count, labels
            )
        if "summaries" in self.answer.signature.input_fields:
            inputs["summaries"] = summaries_text(
                _of(progress).topics, self.summary_tokens, self.count
            )
        return inputs

    def _chain(self, progress: Progress, end: Conclusion) -> tuple[EvidenceLink, ...]:
        inquiry = _of(progress)
        if inquiry.links or inquiry.found is None:
            return inquiry.links
        chain = evidence_chain(inquiry.graph, inquiry.question, end.answer)
        if not chain:
            # What was linked by another spelling, or by meaning, is not named in the question.
            linked = " ; ".join(link.name for link in inquiry.found.linked)
            chain = evidence_chain(inquiry.graph, f"{inquiry.question} ; {linked}", end.answer)
        known = {passage.id: passage for passage in inquiry.reading.passages.values()}
        for id in (e.passage for relation in chain for e in relation.evidence):
            if id not in known and (passage := self.graph_index.passage(id, inquiry.access)):
                known[id] = passage
        links = chain_links(chain, known)
        quoted = dict.fromkeys(link.passage_id for link in links)
        read = {passage.id for passage in inquiry.reading.passages.values()}
        inquiry.quoted = tuple(known[id] for id in quoted if id not in read)
        return links

    def _overview(
        self, inquiry: Inquiry, combine: dspy.Predict
    ) -> Generator[Request, Any, dspy.Prediction]:
        """Map: points from the summaries of the whole corpus. Reduce: an answer from the points."""
        topics = ranked(at_level(self._topics(f"mode={self.mode!r}"), self.level), inquiry.question)
        survey = yield from surveyed(
            self.collect, inquiry, topics, self._room(inquiry), self.count, self._affords(inquiry)
        )
        notes = best_points(survey.points, self.graph_tokens, self.count)
        inputs = {"question": inquiry.question, "notes": notes or EMPTY}
        reply = yield from asked("answer", combine, inputs, inquiry.meter)
        answer, verdict = (reply.answer or "").strip(), str(reply.verdict)
        labels = [n for n in cited_labels(said(reply.cited)) if 1 <= n <= survey.read]
        inquiry.topics, inquiry.notes = tuple(topics[n - 1] for n in labels), notes
        cited = self._cite(inquiry, answer)
        supported = bool(answer and cited) and verdict != "not in passages"
        rule = f"about the whole corpus: {survey.read} of {len(topics)} summaries were read"
        inquiry.steps = [self._step(inquiry, rule, survey.failures, candidate=answer, notes=notes)]
        end = Conclusion(answer, verdict, cited, supported)
        return self._prediction(inquiry, Shown("", ()), end)

    def _affords(self, inquiry: Inquiry) -> Callable[[int, str], bool]:
        """Whether the number of calls and the token budget allow one more reading of summaries."""

        def affords(calls: int, text: str) -> bool:
            if calls >= self.batches or self.token_budget is None:
                return calls < self.batches
            coming = 2 * PROMPT_TOKENS + self.count(text) + self.graph_tokens
            return inquiry.meter.tokens + coming <= self.token_budget

        return affords

    def _cite(self, inquiry: Inquiry, answer: str) -> tuple[int, ...]:
        """Read the passages behind the summaries that were cited; the labels of these passages."""
        index, access = self.graph_index, inquiry.access
        passages = behind(answer, inquiry.topics, index, access, self.k)
        inquiry.reading.take(inquiry.question, passages)
        inquiry.graph = stated_by(inquiry.topics, passages, index, access)
        inquiry.links = nearest(answer, passages)
        return inquiry.reading.tried[-1].labels

    def _prediction(self, progress: Progress, shown: Shown, end: Conclusion) -> dspy.Prediction:
        inquiry = _of(progress)
        prediction = super()._prediction(progress, shown, end)
        prediction.seconds = inquiry.seconds
        prediction.gap = inquiry.found is not None and inquiry.found.gap
        prediction.quoted = inquiry.quoted
        prediction.communities = tuple(topic.community.key for topic in inquiry.topics)
        return prediction


def _of(progress: Progress) -> Inquiry:
    if not isinstance(progress, Inquiry):
        raise TypeError(f"GraphRAG works on an Inquiry, not on {type(progress).__name__}")
    return progress
