"""GraphAnchor: retrieval anchored by a graph that grows as it reads (paper, section 3)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal

import dspy

from ga_dspy.errors import InputError
from ga_dspy.graph import (
    KnowledgeGraph,
    Relation,
    connects,
    distances,
    evidence_chain,
    named_in,
    prune,
    sound_chain,
)
from ga_dspy.passage import Passage
from ga_dspy.programs.calls import Conversation, ask_grounded
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
    ROOM_FOR_REPLY,
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
    Retrieval). What the graph saves and brings are settings too: `anchored`, `answer_passages`,
    `final_call`.

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

    fused: bool = setting(
        "Index and judge in one LM call (n + 1 calls for n steps) or in two (2n + 1).",
        default=True,
    )
    index: IndexKind = setting(
        'What is kept while reading: "graph", "text" (running notes) or None.', default="graph"
    )
    graph_form: Literal["lines", "json"] = setting(
        'How a step writes what it adds to the graph: "lines", or "json", whose schema the '
        "provider enforces where it can.",
        default="lines",
    )
    anchored: bool = setting(
        "Search from the graph's entities too, beside the query, and pass over what was read; "
        "a linked index does, other retrievers see the query alone.",
        default=False,
    )
    answer_from: Literal["both", "passages", "graph"] = setting(
        'What the final answer sees: "both", "passages" or "graph" (the index).', default="both"
    )
    answer_passages: Literal["all", "cited"] = setting(
        'The passages that the final answer sees: "all", or "cited" for those that lead to the '
        "judge's candidate, the others by title; all where the judge is not content.",
        default="all",
    )
    final_call: Literal["always", "when unsure"] = setting(
        '"always", or "when unsure": no call for the answer where the judge\'s candidate is '
        "stated by a passage and the graph connects it with the question.",
        default="always",
    )
    stop: Literal["judge", "judge+path"] = setting(
        '"judge", or "judge+path": accept "sufficient" only where the graph connects an entity of '
        "the question to the candidate.",
        default="judge",
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
    feedback_rounds: int = setting(
        "How often a step's ungrounded items are sent back before they are dropped.",
        default=1,
        least=0,
        most=20,
    )
    graph_tokens: int = setting(
        "Budget for the graph in a prompt; farthest entities are left out first.",
        default=1500,
        least=50,
    )

    def signatures(self) -> Signatures:
        """What the LM is asked under these settings.

        Raises:
            InputError: An answer, or a stop, needs an index that is not kept; a signature of one's
                own answers nothing.
        """
        if self.index is None and self.answer_from == "graph":
            remedy = 'pass answer_from="passages", or index="graph"'
            raise InputError(
                "answer_from='graph' and no index", expected="one to answer from", remedy=remedy
            )
        if self.index != "graph" and self.stop == "judge+path":
            remedy = 'pass stop="judge", or index="graph"'
            raise InputError(
                "stop='judge+path' and no graph", expected="one to find paths in", remedy=remedy
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
        if self.index is not None and self.fused:
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

    def _anchors(self, state: State, query: str) -> tuple[str, ...]:
        """All names of the entities that the last step added, where the search is anchored."""
        if not self.anchored or not state.steps:
            return ()
        added = state.steps[-1].entities
        return tuple(dict.fromkeys(name for e in added for name in (e.name, *e.aliases)))

    def _retrieve(self, state: State, step: Step) -> Conversation[tuple[Step, dict[int, Passage]]]:
        """Search; where that brings nothing new, once more with a query made from the graph."""
        step, fresh = yield from super()._retrieve(state, step)
        made = "" if fresh else query_from_graph(state.question, state.graph, state.reading)
        if not made:
            return step, fresh
        return (yield from super()._retrieve(state, step.replace(reformulated=made)))

    def _read(self, state: State, step: Step, fresh: Labelled) -> Conversation[Step]:
        """Index what was not read yet, then judge: one LM call where fused, two where not."""
        waiting = {**state.unread, **fresh}
        if not waiting:
            return step.add_rule("nothing new was found: the search ends")
        state.unread = waiting
        inputs, left_out = self._inputs(state, step, waiting)
        if self.index is None or not self.fused:
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
            rounds=self._rounds(state, name, inputs),
            known={entity.name for entity in before.entities},
            required=judged,
            optional=OPTIONAL if judged else (),
        )
        found = yield from name_outage(name, asked)
        for update in found.updates:
            state.graph = state.graph.merge(update)
        gain = state.graph.difference(before)
        state.reading.note_gain(
            f"{len(gain.entities)} entities, {len(gain.relations)} relations added"
        )
        attempts = len(found.updates)
        return step.replace(**gain._asdict(), dropped=found.dropped, attempts=attempts), found.reply

    def _rounds(self, state: State, name: str, inputs: dict[str, Any]) -> int:
        """How often faults may be sent back: not where the budget has no room for it."""
        if self.token_budget is None:
            return self.feedback_rounds
        prompt = self._fixed(name) + sum(self.count(str(text)) for text in inputs.values())
        once = prompt + ROOM_FOR_REPLY["read"]
        left = self.token_budget - state.meter.tokens - self._answer_share(state)
        return max(0, min(self.feedback_rounds, left // once - 1))

    def _decide(self, state: State, step: Step) -> Step:
        """Apply the rules for a verdict that contradicts itself, the graph or the past."""
        if step.judgement == "exhausted":
            return step
        if step.judgement == "sufficient":
            if self.stop == "judge" or connects(state.graph, state.question, step.candidate):
                return step
            rule = "the graph does not connect the question to the candidate: not accepted"
            step = step.add_rule(rule)
            if step.number < self.max_steps:
                step = step.replace(judgement="insufficient")
        is_new = bool(step.next_query) and not state.reading.was_tried(step.next_query)
        if step.number == self.max_steps or is_new:
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
        name = "read" if self.fused and self.index is not None else "judge"
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
        cited = set(self._cited_labels(state)) if self.answer_passages == "cited" else set()
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
        """The judge's candidate where it is certain and that is asked for; else an answer."""
        if self.final_call == "when unsure" and (certain := self._certain(state)):
            return certain
        return (yield from super()._answer(state))

    def _certain(self, state: State) -> Conclusion | None:
        """The judge's candidate, where a passage states it and the graph connects it."""
        if not self._answers_with_a_span():
            return None
        chain = self._chain_to_candidate(state)
        cited = _labels(state, chain)
        holding = holders(state.candidate, {n: state.reading.passages[n] for n in cited})
        if not chain or not (holding or is_judgement(state.candidate)):
            return None
        return Conclusion(state.candidate, "answered", cited, bool(holding))

    def _from_candidate(self, state: State, end: Conclusion) -> Conclusion:
        certain = self._certain(state)
        if certain is None:
            return super()._from_candidate(state, end)
        return certain._replace(left_out=end.left_out)

    def _answers_with_a_span(self) -> bool:
        """Whether the answer is what the judge's candidate is: a span, and nothing besides."""
        return (
            self.style == "span"
            and self.answer_with is None
            and self.answer_from == "both"
            and isinstance(self.answer, dspy.Predict)
            and self.answer.signature.output_fields.keys()
            == self.signatures()["answer"].output_fields.keys()
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
