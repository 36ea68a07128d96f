"""GraphAnchor: retrieval anchored by a graph that grows as it reads (paper, section 3)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal, Self

import dspy

from ga_dspy.errors import InputError
from ga_dspy.graph import (
    KnowledgeGraph,
    Relation,
    distances,
    evidence_chain,
    named_in,
    prune,
    sound_chain,
)
from ga_dspy.passage import Passage
from ga_dspy.programs.calls import Conversation, ask_grounded, model_of
from ga_dspy.programs.evidence import (
    Conclusion,
    EvidenceLink,
    chain_links,
    holders,
    is_judgement,
)
from ga_dspy.programs.program import (
    LEAST_ROOM,
    OPTIONAL,
    IterativeProgram,
    Signatures,
    State,
    Step,
    check_outputs,
    name_outage,
    setting,
)
from ga_dspy.programs.reading import Labelled, Reading, fit_passages
from ga_dspy.signatures import (
    IndexKind,
    Style,
    UpdateGraph,
    UpdateNotes,
    answer_signature,
    judge_signature,
    read_signature,
)
from ga_dspy.signatures.examples import examples
from ga_dspy.signatures.facts import with_facts
from ga_dspy.signatures.prompt import EMPTY, free_text, short_text
from ga_dspy.text import STOPWORDS, fold, proper_names, words


class GraphAnchor(IterativeProgram):
    """Retrieve, add what was read to a graph, let the graph say what to search next; then answer.

    Every entity and relation of the graph is grounded in a passage. The paper's ablations are
    settings: `answer_from="passages"` (QA w/ Docs), `answer_from="graph"` (QA w/ Graph),
    `index="text"` (w/ Text Index), `index=None` (w/o Graph), `max_steps=1` (w/o Iterative
    Retrieval).

    The graph saves calls and tokens where the judge finds the evidence sufficient. If a chain of
    the graph leads from the question to its candidate, and a passage states it, that is the answer,
    unless another model is to give it; else the answer step reads the passages that the graph
    cites, and the titles of the others. `as_published=True` does neither.

    Rules where the judge leaves a gap:

    - "sufficient" or "exhausted" with a next query: the query is ignored.
    - "insufficient" without a next query, or with one already tried: a query is made from the
      graph (`query_from_graph`); if that was tried too, the search ends.
    - a query that brings nothing new: a query is made from the graph, once; if that brings
      nothing new either, the search ends.
    - a round that fails: a query is made from the graph, and what was found is read again.
    - passages that the prompt had no room for are shown in the next round.

    Where not all passages fit in the answer's prompt, those that carry the graph's facts are
    served first.
    """

    index: IndexKind = setting(
        'What is kept while reading: "graph", "text" (running notes) or None.', default="graph"
    )
    graph_form: Literal["lines", "json"] = setting(
        'How a step writes what it adds to the graph: "lines", or "json", whose schema the '
        "provider enforces where it can.",
        default="lines",
    )
    answer_from: Literal["both", "passages", "graph"] = setting(
        'What the final answer sees: "both", "passages" or "graph" (the index).', default="both"
    )
    as_published: bool = setting(
        "The paper's own loop: index and judge in two LM calls, and the answer always in a call of "
        "its own that reads all passages (2n + 1 calls for n steps, not n or n + 1).",
        default=False,
    )
    style: Style = setting(
        'The answer: a "span", a "sentence" or two, or a "report"; the latter two cite passages '
        "in the text, and each citation is checked.",
        default="span",
    )
    answer_with: type[dspy.Signature] | None = setting(
        "A signature of one's own for the answer step, with an output `answer`; what else it gives "
        "stands in the prediction. Pass it again to load a saved program.",
        default=None,
        saved=False,
    )
    graph_tokens: int = setting(
        "Budget for the graph in a prompt; farthest entities are left out first.",
        default=1500,
        least=50,
    )

    _spares_answer = True
    """Whether a certain candidate is taken; a teacher asks, for its trace becomes demos."""

    def as_teacher(self) -> Self:
        """A copy that asks for the answer even where the judge's candidate would be taken."""
        teacher: Self = self.deepcopy()
        teacher._spares_answer = False
        return teacher

    def signatures(self) -> Signatures:
        """What the LM is asked under these settings.

        Raises:
            InputError: The answer, or the form of the graph, needs an index that is not kept; a
                signature of one's own answers nothing.
        """
        if self.index is None and self.answer_from == "graph":
            remedy = 'pass answer_from="passages", or index="graph"'
            raise InputError(
                "answer_from='graph' and no index", expected="one to answer from", remedy=remedy
            )
        if self.index != "graph" and self.graph_form == "json":
            remedy = 'pass graph_form="lines", or index="graph"'
            raise InputError(
                "graph_form='json' and no graph", expected="one to write", remedy=remedy
            )
        if self.answer_with is not None:
            check_outputs(self.answer_with.output_fields.keys())
        shown = None if self.answer_from == "passages" else self.index
        answer = self.answer_with or answer_signature(
            shown, passages=self.answer_from != "graph", style=self.style
        )
        steps: Signatures = {}
        if self.index is not None and not self.as_published:
            steps = {"read": read_signature(self.index)}
        else:
            if self.index is not None:
                steps = {"update": UpdateGraph if self.index == "graph" else UpdateNotes}
            steps["judge"] = judge_signature(self.index)
        if self.graph_form == "json":
            steps |= {n: with_facts(steps[n]) for n in ("read", "update") if n in steps}
        return {**steps, "answer": answer}

    def _examples(self, signature: type[dspy.Signature]) -> list[dspy.Example]:
        return examples(signature, self.style)

    def _retrieve(self, state: State, step: Step) -> Conversation[tuple[Step, dict[int, Passage]]]:
        """Search; where that brings nothing new, once more with a query made from the graph."""
        step, fresh = yield from super()._retrieve(state, step)
        made = "" if fresh else query_from_graph(state.question, state.graph, state.reading)
        if not made:
            return step, fresh
        return (yield from super()._retrieve(state, step.replace(reformulated=made)))

    def _read(self, state: State, step: Step, fresh: Labelled) -> Conversation[Step]:
        """Index what was not read yet, and judge."""
        waiting = {**state.unread, **fresh}
        if not waiting:
            return step.add_rule("nothing new was found: the search ends")
        state.unread = waiting
        inputs, left_out = self._inputs(state, step, waiting)
        if self.index is None or self.as_published:
            if self.index is not None:
                step, _ = yield from self._index(state, step, "update", inputs)
                inputs, left_out = self._inputs(state, step, waiting)
            reply = yield from self._ask(state, "judge", inputs, "judgement")
        else:
            step, reply = yield from self._index(state, step, "read", inputs)
        state.unread = {label: waiting[label] for label in left_out}
        step = step.replace(
            reasoning=free_text(reply.reasoning),
            judgement=reply.judgement,
            candidate=short_text(reply.candidate),
            next_query=" ".join(short_text(reply.next_query).split()),
            graph=state.graph,
            notes=state.notes,
            unread=state.unread_ids,
        )
        return self._decide(state, step)

    def _index(
        self, state: State, step: Step, name: str, inputs: dict[str, Any]
    ) -> Conversation[tuple[Step, dspy.Prediction]]:
        """Add what the new passages state to the graph, or to the notes."""
        judged = ("judgement",) if name == "read" else ()
        if self.index == "text":
            reply = yield from self._ask(state, name, inputs, *judged)
            state.notes = free_text(reply.notes) or state.notes
            state.reading.note_gain("notes rewritten")
            return step, reply
        before = state.graph
        asked = ask_grounded(
            name,
            getattr(self, name),
            inputs,
            state.meter,
            state.reading.passages,
            known={entity.name for entity in before.entities},
            required=judged,
            optional=OPTIONAL if judged else (),
        )
        found = yield from name_outage(name, asked)
        state.graph = state.graph.merge(found.update)
        gain = state.graph.difference(before)
        state.reading.note_gain(
            f"{len(gain.entities)} entities, {len(gain.relations)} relations added"
        )
        return step.replace(**gain._asdict(), dropped=found.dropped), found.reply

    def _decide(self, state: State, step: Step) -> Step:
        """Apply the rules for a judgement that lacks a query, or has one that was tried."""
        is_new = bool(step.next_query) and not state.reading.was_tried(step.next_query)
        if self._ends(step) or is_new:
            return step
        fault = "the next query was tried before" if step.next_query else "no next query"
        return self._go_on(state, step, fault)

    def _after_failure(self, state: State, step: Step) -> Step:
        """After a round that failed, another query is searched while steps are left."""
        if step.number == self.max_steps:
            return step
        return self._go_on(state, step, "the round failed")

    def _go_on(self, state: State, step: Step, fault: str) -> Step:
        """A step with a query of ours; without one where none is left to be made."""
        query = query_from_graph(state.question, state.graph, state.reading)
        if not query and step.failure:
            query = query_of_names(state.question, state.reading)
        state.query_is_made = bool(query)
        made = "one was made from the graph" if query else "the search ends"
        return step.add_rule(f"{fault}: {made}", next_query=query)

    def _inputs(
        self, state: State, step: Step, waiting: Labelled
    ) -> tuple[dict[str, Any], tuple[int, ...]]:
        """What a step is given, and the labels of the passages that it has no room for."""
        kept = self._answer_inputs(state)
        name = "judge" if self.index is None or self.as_published else "read"
        room = max(self._room(state, name, *kept.values()), LEAST_ROOM)
        shown = fit_passages(waiting, room, self.count)
        last = ", the last: a candidate, no query" if step.number == self.max_steps else ""
        inputs = {
            "question": state.question,
            "query": step.reformulated or step.query,
            "search": f"{step.number} of {self.max_steps}{last}",
            "tried": state.reading.render_tried(below=waiting.keys()),
            **kept,
            "notes_so_far": kept["notes"],
            "previous_reasoning": state.reasoning,
            "passages": shown.text,
        }
        return inputs, shown.left_out

    def _answer_inputs(self, state: State) -> dict[str, str]:
        labels = state.reading.labels
        latest = state.steps[-1].next_query if state.steps else ""
        keep = [*named_in(state.graph, f"{state.candidate} ; {latest}")]
        pruned = prune(
            state.graph, state.question, self.graph_tokens, self.count, labels=labels, keep=keep
        )
        return {"graph": pruned.text, "notes": state.notes or EMPTY}

    def _served_first(self, state: State) -> Sequence[int]:
        """The passages that carry the graph's facts."""
        return _labels(state, state.graph.relations)

    def _answer_passages(self, state: State) -> tuple[Labelled, Labelled]:
        passages = state.reading.passages
        cited = set() if self.as_published else set(self._cited_labels(state))
        if not cited:
            return passages, {}
        return (
            {n: p for n, p in passages.items() if n in cited},
            {n: p for n, p in passages.items() if n not in cited},
        )

    def _cited_labels(self, state: State) -> tuple[int, ...]:
        """The passages that suffice for an answer; none where the judge was not content.

        Those of the chain to the candidate; else all that the graph cites, if one of them states
        the candidate.
        """
        if not state.steps or state.steps[-1].judgement != "sufficient":
            return ()
        if chain := self._chain_to_candidate(state):
            return _labels(state, chain)
        candidate, cited = state.steps[-1].candidate, self._served_first(state)
        passages = {n: state.reading.passages[n] for n in cited}
        return tuple(cited) if is_judgement(candidate) or holders(candidate, passages) else ()

    def _answer(self, state: State) -> Conversation[Conclusion]:
        """The judge's candidate where it is certain; else an answer."""
        if self._spares_answer and not self.as_published and (certain := self._certain(state)):
            return certain
        return (yield from super()._answer(state))

    def _certain(self, state: State) -> Conclusion | None:
        """The judge's candidate, where a passage states it and the graph connects it."""
        if not self._answers_as_the_judge_does():
            return None
        chain = self._chain_to_candidate(state)
        cited = _labels(state, chain)
        holding = holders(state.candidate, {n: state.reading.passages[n] for n in cited})
        if not chain or not (holding or is_judgement(state.candidate)):
            return None
        return Conclusion(state.candidate, "answered", cited, bool(holding))

    def _answers_as_the_judge_does(self) -> bool:
        """Whether the answer is a span, and nothing besides, of the model that judges."""
        asked, judge = self.signatures(), "read" if "read" in vars(self) else "judge"
        return (
            self.style == "span"
            and self.answer_with is None
            and self.answer_from == "both"
            and isinstance(self.answer, dspy.Predict)
            and self.answer.signature.output_fields.keys() == asked["answer"].output_fields.keys()
            and model_of("answer", self.answer) == model_of(judge, getattr(self, judge))
        )

    def _chain_to_candidate(self, state: State) -> tuple[Relation, ...]:
        """The chain to a candidate with which the latest judge was content."""
        if not state.steps or state.steps[-1].judgement != "sufficient":
            return ()
        return evidence_chain(state.graph, state.question, state.steps[-1].candidate)

    def _concluded(
        self, reply: dspy.Prediction, passages: Labelled, left_out: tuple[int, ...]
    ) -> Conclusion:
        own = self.answer_with.output_fields if self.answer_with else ()
        return Conclusion.from_reply(reply, passages, left_out, self.style, own)

    def _chain(self, state: State, end: Conclusion) -> tuple[EvidenceLink, ...]:
        if self.style != "span":
            return ()
        by_id = {passage.id: passage for passage in state.reading.passages.values()}
        chain = sound_chain(state.graph, state.question, end.answer, by_id)
        return chain_links(chain, by_id)


def _labels(state: State, relations: Sequence[Relation]) -> tuple[int, ...]:
    """The labels of the passages that relations are grounded in, each once."""
    ids = (evidence.passage for relation in relations for evidence in relation.evidence)
    known = state.reading.labels
    return tuple(dict.fromkeys(known[id] for id in ids if id in known))


_MOST_WORDS = 6


def query_from_graph(question: str, graph: KnowledgeGraph, reading: Reading) -> str:
    """Name an entity at the edge of what was read, and what the question still asks about.

    The edge: entities near the question's entities in the graph that no passage read so far is
    about (none has them as its title). Nearest first, then those with most relations. Of the
    question's words those are taken that no name and no relation of the graph holds.

    Returns:
        A query that was not tried yet; empty where the graph has no such entity left.
    """
    titles = {fold(passage.title) for passage in reading.passages.values()}
    hops = distances(graph, named_in(graph, question))
    degree = Counter(end for r in graph.relations for end in (r.head, r.tail))
    edge = [e for e in graph.entities if fold(e.name) not in titles and e.name[:1].isupper()]
    edge.sort(key=lambda e: (hops.get(e.name, len(hops) + 1), -degree[e.name], e.name))
    known = {
        word.folded for r in graph.relations for word in words(f"{r.head} {r.relation} {r.tail}")
    }
    sought = [w.text for w in words(question) if w.folded not in known | STOPWORDS]
    for entity in edge:
        query = " ".join((entity.name, *sought[:_MOST_WORDS]))
        if not reading.was_tried(query):
            return query
    return ""


def query_of_names(question: str, reading: Reading) -> str:
    """The names in a question, as a query; empty where there are none or they were searched."""
    query = " ".join(sorted(proper_names(question)))
    return "" if reading.was_tried(query) else query
