"""GraphAnchor: retrieval anchored by a graph that grows as it reads (paper, section 3)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal

import dspy

from ga_dspy.errors import InputError
from ga_dspy.graph import (
    KnowledgeGraph,
    connects,
    distances,
    evidence_chain,
    linearise,
    named_in,
    prune,
)
from ga_dspy.passage import Passage
from ga_dspy.programs.calls import Conversation, Labelled, ask, ask_grounded
from ga_dspy.programs.program import (
    Conclusion,
    EvidenceLink,
    IterativeProgram,
    Reading,
    Signatures,
    State,
    Step,
    chain_links,
    fit_passages,
    setting,
)
from ga_dspy.signatures import (
    IndexKind,
    ReadAndJudge,
    ReadNotesAndJudge,
    UpdateGraph,
    UpdateNotes,
    answer_signature,
    judge_signature,
)
from ga_dspy.signatures.prompt import EMPTY, free_text
from ga_dspy.text import fold, mentions


class GraphAnchor(IterativeProgram):
    """Retrieve, add what was read to a graph, let the graph say what to search next; then answer.

    Every entity and relation of the graph is grounded in a passage. The paper's ablations are
    settings: `answer_from="passages"` (QA w/ Docs), `answer_from="graph"` (QA w/ Graph),
    `index="text"` (w/ Text Index), `index=None` (w/o Graph), `max_steps=1` (w/o Iterative
    Retrieval).

    Rules where the judge leaves a gap:

    - "sufficient" with a next query: the query is ignored.
    - "insufficient" without a next query, or with one already tried: a query is made from the
      graph (`query_from_graph`); if that was tried too, the search ends.
    - a query that brings nothing new: a query is made from the graph, once; if that brings
      nothing new either, the search ends.
    - a read step whose output is unusable twice: the step carries the failure, the search ends,
      and the answer rests on what was read until then.

    Where not all passages fit in the answer's prompt, those that carry the graph's facts are
    served first.

    Args:
        retriever: Anything `ga_dspy.retrieval.as_retriever` takes.
    """

    fused: bool = setting(
        "Index and judge in one LM call (n + 1 calls for n steps) or in two (2n + 1).",
        default=True,
    )
    index: IndexKind = setting(
        'What is kept while reading: "graph", "text" (running notes) or None.', default="graph"
    )
    answer_from: Literal["both", "passages", "graph"] = setting(
        'What the final answer sees: "both", "passages" or "graph" (the index).', default="both"
    )
    stop: Literal["judge", "judge+path"] = setting(
        '"judge", or "judge+path": accept "sufficient" only where the graph connects an entity of '
        "the question to the candidate.",
        default="judge",
    )
    feedback_rounds: int = setting(
        "How often a step's ungrounded items are sent back before they are dropped.",
        default=1,
        least=0,
    )
    graph_tokens: int = setting(
        "Budget for the graph in a prompt; farthest entities are left out first.",
        default=1500,
        least=50,
    )

    def signatures(self) -> Signatures:
        """What the LM is asked under these settings.

        Raises:
            InputError: An answer, or a stop, needs an index that is not kept.
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
        shown = None if self.answer_from == "passages" else self.index
        answer = {"answer": answer_signature(shown, passages=self.answer_from != "graph")}
        if self.index is None:
            return {"judge": judge_signature(None), **answer}
        if self.fused:
            return {"read": ReadAndJudge if self.index == "graph" else ReadNotesAndJudge, **answer}
        update = UpdateGraph if self.index == "graph" else UpdateNotes
        return {"update": update, "judge": judge_signature(self.index), **answer}

    def _retrieve(self, state: State, step: Step) -> Conversation[tuple[Step, dict[int, Passage]]]:
        """Search; where that brings nothing new, once more with a query made from the graph."""
        step, fresh = yield from super()._retrieve(state, step)
        other = "" if fresh else query_from_graph(state.question, state.graph, state.reading)
        if not other:
            return step, fresh
        return (yield from super()._retrieve(state, step.replace(reformulated=other)))

    def _read(self, state: State, step: Step, fresh: Labelled) -> Conversation[Step]:
        """Index the new passages, then judge: one LM call where fused, two where not."""
        if not fresh:
            return step.add_rule("nothing new was found: the search ends")
        reply: dspy.Prediction | None = None
        if self.index is not None:
            step, reply = yield from self._index(state, step, fresh)
        if reply is None or not self.fused:
            inputs = self._inputs(state, step, fresh)
            reply = yield from ask("judge", self.judge, inputs, state.meter)
        step = step.replace(
            reasoning=free_text(reply.reasoning),
            judgement=reply.judgement,
            candidate=free_text(reply.candidate),
            next_query=free_text(reply.next_query),
            graph=state.graph,
            notes=state.notes,
        )
        return self._decide(state, step)

    def _index(
        self, state: State, step: Step, fresh: Labelled
    ) -> Conversation[tuple[Step, dspy.Prediction]]:
        """Add what the new passages state to the graph, or to the notes."""
        name, inputs = "read" if self.fused else "update", self._inputs(state, step, fresh)
        predictor: dspy.Predict = getattr(self, name)
        if self.index == "text":
            reply = yield from ask(name, predictor, inputs, state.meter)
            state.notes = free_text(reply.notes) or state.notes
            state.reading.note_gain("notes rewritten")
            return step, reply
        before = state.graph
        found = yield from ask_grounded(
            name,
            predictor,
            inputs,
            state.meter,
            state.reading.passages,
            rounds=self.feedback_rounds,
            known={entity.name for entity in before.entities},
        )
        for update in found.updates:
            state.graph = state.graph.merge(update)
        gain = state.graph.difference(before)
        state.reading.note_gain(
            f"{len(gain.entities)} entities, {len(gain.relations)} relations added"
        )
        attempts = len(found.updates)
        return step.replace(**gain._asdict(), dropped=found.dropped, attempts=attempts), found.reply

    def _decide(self, state: State, step: Step) -> Step:
        """Apply the rules for a verdict that contradicts itself, the graph or the past."""
        if step.judgement == "sufficient":
            if self.stop == "judge" or connects(state.graph, state.question, step.candidate):
                return step
            rule = "the graph does not connect the question to the candidate: not accepted"
            step = step.add_rule(rule)
            if step.number < self.max_steps:
                step = step.replace(judgement="insufficient")
        query = step.next_query
        if step.number == self.max_steps or (query and not state.reading.was_tried(query)):
            return step
        fault = "the next query was tried before" if query else "no next query"
        query = query_from_graph(state.question, state.graph, state.reading)
        made = "one was made from the graph" if query else "the search ends"
        return step.add_rule(f"{fault}: {made}", next_query=query)

    def _inputs(self, state: State, step: Step, fresh: Labelled) -> dict[str, Any]:
        kept = self._answer_inputs(state)
        return {
            "question": state.question,
            "query": step.query,
            "tried": state.reading.render_tried(),
            **kept,
            "notes_so_far": kept["notes"],
            "previous_reasoning": state.reasoning,
            "passages": fit_passages(fresh, self._room(state, *kept.values()), self.count).text,
        }

    def _answer_inputs(self, state: State) -> dict[str, str]:
        labels = state.reading.labels
        pruned = prune(state.graph, state.question, self.graph_tokens, self.count, labels=labels)
        return {"graph": linearise(pruned.graph, labels=labels), "notes": state.notes or EMPTY}

    def _served_first(self, state: State) -> Sequence[int]:
        """The passages that carry the graph's facts."""
        evidence = (e for relation in state.graph.relations for e in relation.evidence)
        return tuple(dict.fromkeys(state.reading.labels[e.passage] for e in evidence))

    def _chain(self, state: State, end: Conclusion) -> tuple[EvidenceLink, ...]:
        by_id = {passage.id: passage for passage in state.reading.passages.values()}
        return chain_links(evidence_chain(state.graph, state.question, end.answer), by_id)


def query_from_graph(question: str, graph: KnowledgeGraph, reading: Reading) -> str:
    """Name an entity at the edge of what was read, with its attributes, beside the question.

    The edge: entities near the question's entities in the graph that no passage read so far is
    about (none has them as its title). Nearest first, then those with most relations.

    Returns:
        A query that was not tried yet; empty where the graph has no such entity left.
    """
    titles = {fold(passage.title) for passage in reading.passages.values()}
    hops = distances(graph, named_in(graph, question))
    degree = Counter(end for r in graph.relations for end in (r.head, r.tail))
    edge = [e for e in graph.entities if fold(e.name) not in titles and e.name[:1].isupper()]
    edge.sort(key=lambda e: (hops.get(e.name, len(hops) + 1), -degree[e.name], e.name))
    for entity in edge:
        about = "" if mentions(entity.name, question) else question
        query = " ".join(filter(None, (entity.name, *entity.attributes[:1], about)))
        if not reading.was_tried(query):
            return query
    return ""
