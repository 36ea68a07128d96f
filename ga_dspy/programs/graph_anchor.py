"""GraphAnchor: retrieval anchored by a graph that grows as it reads (paper, section 3)."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

import dspy

from ga_dspy.graph import (
    KnowledgeGraph,
    connects,
    evidence_chain,
    linearise,
    prune,
)
from ga_dspy.grounding import Dropped, Grounding, ground
from ga_dspy.passage import Passage
from ga_dspy.programs.answering import Conclusion
from ga_dspy.programs.base import one_of, whole
from ga_dspy.programs.conversation import Ask, Request
from ga_dspy.programs.iterative import IterativeProgram
from ga_dspy.programs.prediction import EvidenceLink, Step, chain_links
from ga_dspy.programs.predictors import (
    AnswerFrom,
    IndexKind,
    Stop,
    check_combination,
    signatures,
)
from ga_dspy.programs.progress import Judged, Progress
from ga_dspy.programs.reading import Reading, fit
from ga_dspy.programs.reformulate import reformulated
from ga_dspy.programs.salvage import StepFailed, asked, retrace
from ga_dspy.signatures import GraphProposal
from ga_dspy.signatures.prompt import EMPTY, said
from ga_dspy.tokens import TokenCounter, estimate_tokens


class GraphAnchor(IterativeProgram):
    """Retrieve, add what was read to a graph, let the graph say what to search next; then answer.

    Every entity and relation of the graph is grounded in a passage. The paper's ablations are
    settings: `answer_from="passages"` (QA w/ Docs), `answer_from="graph"` (QA w/ Graph),
    `index="text"` (w/ Text Index), `index=None` (w/o Graph), `max_steps=1` (w/o Iterative
    Retrieval).

    Rules where the judge leaves a gap:

    - "sufficient" with a next query: the query is ignored.
    - "insufficient" without a next query, or with one already tried: a query is made from the
      graph (`reformulate.py`); if that was tried too, the search ends.
    - a query that brings nothing new: a query is made from the graph, once; if that brings
      nothing new either, the search ends.
    - a read step whose output is unusable twice: the step carries the failure, the search ends,
      and the answer rests on what was read until then.

    Args:
        retriever: Anything `ga_dspy.retrieval.as_retriever` takes.
        max_steps: The most rounds of retrieval (the paper's T).
        k: Passages a round.
        fused: Index and judge in one LM call (n + 1 calls for n steps) or in two (2n + 1).
        index: What is kept while reading: "graph", "text" (running notes) or None.
        answer_from: What the final answer sees: "both", "passages" or "graph" (the index).
        stop: "judge", or "judge+path": accept "sufficient" only where the graph connects an
            entity of the question to the candidate.
        feedback_rounds: How often a step's ungrounded items are sent back before they are dropped.
        graph_tokens: Budget for the graph in a prompt; farthest entities are left out first.
        passage_tokens: Budget for the passages in a prompt; those that carry the graph's facts
            are served first.
        token_budget: About as many tokens as a question may cost; None for no limit.
        abstain: Give an empty answer where no passage supports one.
        count: Counts the tokens of a text.
    """

    def __init__(
        self,
        retriever: Any,
        *,
        max_steps: int = 4,
        k: int = 5,
        fused: bool = True,
        index: IndexKind = "graph",
        answer_from: AnswerFrom = "both",
        stop: Stop = "judge",
        feedback_rounds: int = 1,
        graph_tokens: int = 1500,
        passage_tokens: int = 6000,
        token_budget: int | None = None,
        abstain: bool = False,
        count: TokenCounter = estimate_tokens,
    ) -> None:
        super().__init__(
            retriever,
            max_steps=max_steps,
            k=k,
            passage_tokens=passage_tokens,
            token_budget=token_budget,
            abstain=abstain,
            count=count,
        )
        self.fused = fused
        self.index: IndexKind = one_of("index", index, ("graph", "text", None))
        self.answer_from = one_of("answer_from", answer_from, ("both", "passages", "graph"))
        self.stop = one_of("stop", stop, ("judge", "judge+path"))
        self.feedback_rounds = whole("feedback_rounds", feedback_rounds, 0)
        self.graph_tokens = whole("graph_tokens", graph_tokens, 50)
        check_combination(self.index, self.answer_from, self.stop)
        for name, signature in signatures(fused, self.index, self.answer_from).items():
            setattr(self, name, dspy.Predict(signature))

    def settings(self) -> dict[str, Any]:
        """The arguments that make this program again, but for the retriever and the counter."""
        names = ("fused", "index", "answer_from", "stop", "feedback_rounds", "graph_tokens")
        return {**{name: getattr(self, name) for name in names}, **super().settings()}

    def _retrieve(
        self, progress: Progress, step: Step
    ) -> Generator[Request, Any, tuple[Step, dict[int, Passage]]]:
        """Search; where that brings nothing new, once more with a query made from the graph."""
        step, fresh = yield from self._search(progress, step, step.query)
        if fresh:
            return step, fresh
        other = reformulated(progress.question, progress.graph, progress.reading)
        if not other:
            return step, {}
        step = step.model_copy(update={"reformulated": other})
        return (yield from self._search(progress, step, other))

    def _read(
        self, progress: Progress, step: Step, fresh: dict[int, Passage]
    ) -> Generator[Ask, dspy.Prediction, Step]:
        """Index the new passages, then judge: one LM call where fused, two where not."""
        if not fresh:
            return step.model_copy(update={"rule": "nothing new was found: the search ends"})
        inputs = self._inputs(progress, step.query, fresh)
        reply: dspy.Prediction | None = None
        name = "read" if self.fused else "update"
        if self.index == "graph":
            step, reply = yield from self._index(name, progress, step, inputs)
        elif self.index == "text":
            reply = yield from asked(name, getattr(self, name), inputs, progress.meter)
            progress.notes = said(reply.notes) or progress.notes
            progress.reading.note_gain("notes rewritten")
        if reply is None or not self.fused:
            inputs = self._inputs(progress, step.query, fresh)
            reply = yield from asked("judge", self.judge, inputs, progress.meter)
        judged = Judged.of(reply)
        step = step.model_copy(
            update={**judged._asdict(), "graph": progress.graph, "notes": progress.notes}
        )
        return self._decide(progress, step)

    def _index(
        self,
        name: str,
        progress: Progress,
        step: Step,
        inputs: dict[str, Any],
    ) -> Generator[Ask, dspy.Prediction, tuple[Step, dspy.Prediction]]:
        """Ask what the passages add; send back what they do not support; keep what they do."""
        predictor: dspy.Predict = getattr(self, name)
        attempts: list[tuple[dspy.Prediction, Grounding]] = []
        unusable: tuple[Dropped, ...] = ()
        for _ in range(1 + self.feedback_rounds):
            told = {**inputs, "feedback": attempts[-1][1].feedback if attempts else ""}
            try:
                reply = yield from asked(name, predictor, told, progress.meter)
            except StepFailed as failure:
                if not attempts:
                    raise
                # What the attempt before got right is kept, and this is reported beside it.
                unusable = (_unusable(failure),)
                break
            known = {entity.name for entity in progress.graph.entities}
            found = ground(reply.additions.draft, progress.reading.passages, known)
            attempts.append((reply, found))
            if not found.feedback:
                break
        before = progress.graph
        for _, grounding in attempts:
            progress.graph = progress.graph.merge(grounding.update)
        gain = progress.graph.difference(before)
        added = f"{len(gain.entities)} entities, {len(gain.relations)} relations added"
        progress.reading.note_gain(added)
        reply, last = attempts[-1]
        clean = _sanitised(reply, last, progress.reading)
        retrace(predictor, [attempt for attempt, _ in attempts], {**inputs, "feedback": ""}, clean)
        dropped: tuple[Dropped, ...] = sum((g.dropped for _, g in attempts), unusable)
        return step.model_copy(
            update={
                **gain._asdict(),
                "dropped": tuple(dict.fromkeys(dropped)),
                "attempts": len(attempts),
            }
        ), clean

    def _decide(self, progress: Progress, step: Step) -> Step:
        """Apply the rules for a verdict that contradicts itself, the graph or the past."""
        query, rule = step.next_query, ""
        if step.judgement == "sufficient":
            if self.stop == "judge" or connects(progress.graph, progress.question, step.candidate):
                return step
            rule = "the graph does not connect the question to the candidate: not accepted"
        if step.number == self.max_steps:
            return step.model_copy(update={"rule": rule})
        if not query or progress.reading.was_tried(query):
            fault = "no next query" if not query else "the next query was tried before"
            query = reformulated(progress.question, progress.graph, progress.reading)
            made = "one was made from the graph" if query else "the search ends"
            rule = "; ".join(filter(None, (rule, f"{fault}: {made}")))
        judgement = "insufficient" if rule.startswith("the graph does not") else step.judgement
        return step.model_copy(update={"judgement": judgement, "next_query": query, "rule": rule})

    def _answer_inputs(self, progress: Progress) -> dict[str, str]:
        return {"graph": self._graph_text(progress), "notes": progress.notes or EMPTY}

    def _served_first(self, progress: Progress) -> Sequence[int]:
        """The passages that carry the graph's facts."""
        return tuple(
            dict.fromkeys(
                progress.reading.labels[e.passage]
                for relation in progress.graph.relations
                for e in relation.evidence
            )
        )

    def _chain(self, progress: Progress, end: Conclusion) -> tuple[EvidenceLink, ...]:
        by_id = {passage.id: passage for passage in progress.reading.passages.values()}
        return chain_links(evidence_chain(progress.graph, progress.question, end.answer), by_id)

    def _inputs(self, progress: Progress, query: str, fresh: dict[int, Passage]) -> dict[str, Any]:
        kept = self._answer_inputs(progress)
        return {
            "question": progress.question,
            "query": query,
            "tried": progress.reading.render_tried(),
            **kept,
            "notes_so_far": kept["notes"],
            "previous_reasoning": progress.reasoning,
            "passages": fit(fresh, self._room(progress, *kept.values()), self.count).text,
        }

    def _graph_text(self, progress: Progress) -> str:
        labels = progress.reading.labels
        pruned = prune(
            progress.graph, progress.question, self.graph_tokens, self.count, labels=labels
        )
        return linearise(pruned.graph, labels=labels)


def _unusable(failure: StepFailed) -> Dropped:
    reply = failure.reply[:80]
    return Dropped(
        kind="line",
        item=reply,
        cause="unreadable",
        reason=f"the reply to feedback: {failure.cause}",
    )


def _sanitised(reply: dspy.Prediction, grounding: Grounding, reading: Reading) -> dspy.Prediction:
    """The reply as a demonstration may show it: its proposal holds grounded items only."""
    text = linearise(KnowledgeGraph().merge(grounding.update), labels=reading.labels)
    values = {**dict(reply.items()), "additions": GraphProposal.model_validate(text)}
    return dspy.Prediction(**values)
