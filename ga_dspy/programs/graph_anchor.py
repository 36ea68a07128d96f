"""GraphAnchor: retrieval anchored by a graph that grows with each search (paper, section 3)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any, Literal, Self

import dspy

from ga_dspy.errors import InputError
from ga_dspy.graph import (
    Relation,
    Schema,
    checked_chain,
    distances,
    evidence_chain,
    fits_question,
    named_in,
    prune,
)
from ga_dspy.programs import loop
from ga_dspy.programs.calls import Conversation, ground_reply, lm_of
from ga_dspy.programs.evidence import (
    Conclusion,
    EvidenceLink,
    chain_links,
    is_judgement,
    labels_stating,
)
from ga_dspy.programs.loop import State
from ga_dspy.programs.prediction import check_outputs
from ga_dspy.programs.program import IterativeProgram, Signatures
from ga_dspy.programs.settings import setting
from ga_dspy.signatures import (
    AnswerQuestion,
    IndexKind,
    Style,
    UpdateGraph,
    UpdateNotes,
    answer_signature,
    judge_signature,
    read_signature,
)
from ga_dspy.signatures.facts import with_facts, with_schema
from ga_dspy.signatures.prompt import EMPTY, free_text, short_text
from ga_dspy.text import STOPWORDS, fold, proper_names, words


class GraphAnchor(IterativeProgram):
    """Search, add what the passages state to a graph, judge from it what to search next; answer.

    Every entity and relation of the graph is grounded in a passage. The paper's ablations are
    settings: `answer_from="passages"` (QA w/ Docs), `answer_from="graph"` (QA w/ Graph),
    `index="text"` (w/ Text Index), `index=None` (w/o Graph), `max_steps=1` (w/o Iterative
    Retrieval).

    The graph saves calls and tokens once the judge finds the evidence sufficient. The judge's
    candidate becomes the answer, without another call, if a chain of the graph leads from the
    question to it, a passage states it, it is of the kind that the question asks for, and the
    judge and the answer step have the same model. Otherwise the answer step reads the passages of
    the chain, and only the titles of the others; without a chain it reads all passages.
    `as_published=True` turns both savings off.

    The program decides where the judge leaves a gap:

    - "sufficient" or "exhausted" with a next query: the query is ignored.
    - "insufficient" without a next query, or with one already tried: the next query is made from
      the graph (`query_from_graph`); if that was tried too, the search ends.
    - A query finds nothing new: a query made from the graph is searched in the same round; if
      that finds nothing new either, the search ends.
    - A round fails: the next query is made from the graph, and the next round reads the passages
      of the failed one.
    - The prompt has no room for some passages: the next round reads them.

    If not all passages fit in the prompt of the answer, those that state the graph's facts come
    first.
    """

    index: IndexKind = setting(
        'The index built while reading: "graph", "text" (running notes) or None.', default="graph"
    )
    graph_form: Literal["lines", "json"] = setting(
        'Format of the additions to the graph in a reply: "lines", or "json", whose schema is '
        "enforced by providers that can.",
        default="lines",
    )
    answer_from: Literal["both", "passages", "graph"] = setting(
        'What the answer step reads: "both", "passages" or "graph" (the index).', default="both"
    )
    schema: Schema | None = setting(
        "Types and relations for the graph (`Schema`); None for any.", default=None
    )
    as_published: bool = setting(
        "The loop as published: index and judge in separate LM calls, and always a call for the "
        "answer, which reads all passages (2n + 1 calls for n steps, not n or n + 1).",
        default=False,
    )
    style: Style = setting(
        'Form of the answer: a "span", a "sentence" or two, or a "report"; the latter two cite '
        "passages in the text, and each citation is checked.",
        default="span",
    )
    answer_with: type[dspy.Signature] | None = setting(
        "Custom signature of the answer step, with an output `answer`; its other outputs become "
        "fields of the prediction. Pass it again to load a saved program.",
        default=None,
        saved=False,
    )
    graph_tokens: int = setting(
        "Budget for the graph in a prompt; the farthest entities are left out first.",
        default=1500,
        minimum=50,
    )

    _may_skip_answer = True
    """Whether the judge's candidate may become the answer; False in a teacher (`as_teacher`)."""

    def as_teacher(self) -> Self:
        """Return a copy that always calls the answer step, so that optimizers get demos of it."""
        teacher: Self = self.deepcopy()
        teacher._may_skip_answer = False
        return teacher

    def signatures(self) -> Signatures:
        """Return the signature of each step under these settings.

        Raises:
            InputError: A setting needs an index that these settings turn off, or a custom
                signature has no output `answer`.
        """
        self._check_index()
        if self.answer_with is not None:
            check_outputs(self.answer_with.output_fields.keys())
        shown = None if self.answer_from == "passages" else self.index
        answer = self.answer_with or answer_signature(
            shown, passages=self.answer_from != "graph", style=self.style
        )
        if self.index is None:
            return {"judge": judge_signature(None), "answer": answer}
        if self.as_published:
            update = UpdateGraph if self.index == "graph" else UpdateNotes
            judge = judge_signature(self.index)
            return {"update": self._in_graph_form(update), "judge": judge, "answer": answer}
        return {"read": self._in_graph_form(read_signature(self.index)), "answer": answer}

    def _check_index(self) -> None:
        """Check that no setting needs an index that is turned off."""
        if self.index is None and self.answer_from == "graph":
            remedy = 'pass answer_from="passages", or index="graph"'
            raise InputError("answer_from='graph' and no index", expected="an index", remedy=remedy)
        if self.index != "graph" and self.graph_form == "json":
            remedy = 'pass graph_form="lines", or index="graph"'
            raise InputError("graph_form='json' and no graph", expected="a graph", remedy=remedy)
        if self.schema is not None and (self.index != "graph" or type(self.schema) is not Schema):
            raise InputError(
                f"schema is {self.schema!r:.80} and index {self.index!r}",
                expected="a ga_dspy.Schema, and a graph that it describes",
                remedy='pass schema=Schema.read("schema.yaml") and index="graph"',
            )

    def _in_graph_form(self, signature: type[dspy.Signature]) -> type[dspy.Signature]:
        """Return a step that adds to the index with the schema and the graph form applied."""
        if self.schema is not None:
            signature = with_schema(signature, self.schema)
        return with_facts(signature, self.schema) if self.graph_form == "json" else signature

    def converse(self, state: State) -> Conversation[dspy.Prediction]:
        """Search, read into the graph and judge, until the evidence suffices; then answer."""
        query = state.question
        while query:
            with state.round(query):
                yield from self._retrieve(state)
                if state.unread:
                    yield from self._read_and_judge(state)
            _repair_next_query(state)
            query = yield from loop.end_round(state)
        conclusion = yield from self._answer(state)
        return loop.predict(state, conclusion, self._evidence_chain(state, conclusion))

    def _retrieve(self, state: State) -> Conversation[None]:
        """Search; if the query finds nothing new, search a query made from the graph."""
        fresh = yield from loop.search(state)
        if not fresh and (query := query_from_graph(state)):
            state.record(reformulated=query)
            fresh = yield from loop.search(state)
        state.unread.update(fresh)
        if not state.unread:
            state.add_rule("nothing new was found: the search ends")

    def _read_and_judge(self, state: State) -> Conversation[None]:
        """Add the unread passages to the index and judge it: in one LM call, or as published."""
        if self.index is not None and not self.as_published:
            inputs, left_out = self._reading_inputs(state, "read")
            reply = yield from self._update_index(state, "read", inputs, "judgement")
        else:
            if self.index is not None:
                inputs, _ = self._reading_inputs(state, "judge")
                yield from self._update_index(state, "update", inputs)
            inputs, left_out = self._reading_inputs(state, "judge")
            reply = yield from loop.ask_step(state, "judge", "judgement", **inputs)
        state.unread = {label: state.unread[label] for label in left_out}
        state.record(
            reasoning=free_text(reply.reasoning),
            judgement=reply.judgement,
            candidate=short_text(reply.candidate),
            next_query=" ".join(short_text(reply.next_query).split()),
        )

    def _reading_inputs(self, state: State, step: str) -> tuple[dict[str, Any], tuple[int, ...]]:
        """Return the inputs of a step that reads, and the labels of passages without room."""
        index = self.answer_inputs(state)
        shown = loop.fit(state, step, state.unread, *index.values())
        number = state.step.number
        last = ", the last: a candidate, no query" if number == self.max_steps else ""
        inputs = {
            "question": state.question,
            "query": state.step.reformulated or state.step.query,
            "search": f"{number} of {self.max_steps}{last}",
            "tried": state.reading.render_tried(below=state.unread.keys()),
            **index,
            "notes_so_far": index["notes"],
            "previous_reasoning": state.reasoning,
            "passages": shown.text,
        }
        return inputs, shown.left_out

    def _update_index(
        self, state: State, step: str, inputs: dict[str, Any], *required: str
    ) -> Conversation[dspy.Prediction]:
        """Add what the passages state to the graph, or rewrite the notes; return the reply."""
        asked = loop.ask_step(state, step, *required, **inputs)
        if self.index == "text":
            reply = yield from asked
            state.notes = free_text(reply.notes) or state.notes
            state.reading.note_gain("notes rewritten")
            return reply
        before = state.graph
        known = {entity.name: entity.type for entity in before.entities}
        grounding = ground_reply(asked, state.reading.passages, known, self.schema)
        grounded = yield from loop.wrap_errors(step, grounding)
        state.graph = before.merge(grounded.update)
        gain = state.graph.difference(before)
        state.reading.note_gain(
            f"{len(gain.entities)} entities, {len(gain.relations)} relations added"
        )
        state.record(**gain._asdict(), dropped=grounded.dropped)
        return grounded.reply

    def answer_inputs(self, state: State) -> dict[str, str]:
        """Return the graph, pruned to its budget, and the notes."""
        latest = state.steps[-1].next_query if state.steps else ""
        keep = [*named_in(state.graph, f"{state.candidate} ; {latest}")]
        labels = state.reading.labels
        pruned = prune(
            state.graph, state.question, self.graph_tokens, self.count, labels=labels, keep=keep
        )
        return {"graph": pruned.text, "notes": state.notes or EMPTY}

    def _answer(self, state: State) -> Conversation[Conclusion]:
        """Return the judge's candidate if the graph leads to it, else ask the answer step."""
        passages, candidate = state.reading.passages, state.step.candidate
        shown: Collection[int] | None = None
        if state.step.judgement == "sufficient" and candidate and not self.as_published:
            chain = evidence_chain(state.graph, state.question, candidate)
            cited = _labels(state, chain)
            holding = labels_stating(candidate, passages, cited)
            is_stated = bool(holding) or is_judgement(candidate)
            may_conclude = chain and is_stated and self._can_skip_answer()
            if may_conclude and fits_question(state.graph, state.question, candidate, chain):
                return Conclusion(candidate, "answered", cited, bool(holding))
            if cited:
                shown = cited
        by_graph = _labels(state, state.graph.relations)
        return (yield from loop.answer(state, shown, by_graph))

    def _can_skip_answer(self) -> bool:
        """Return whether the answer step would give only a span, from the judge's model."""
        judge = "judge" if self.index is None else "read"
        return (
            self._may_skip_answer
            and (self.style, self.answer_with, self.answer_from) == ("span", None, "both")
            and isinstance(self.answer, dspy.Predict)
            and self.answer.signature.output_fields.keys() == AnswerQuestion.output_fields.keys()
            and lm_of("answer", self.answer).model == lm_of(judge, getattr(self, judge)).model
        )

    def _evidence_chain(self, state: State, conclusion: Conclusion) -> tuple[EvidenceLink, ...]:
        """Return the links from what the question names to the answer; none if a check fails."""
        if self.style != "span" or not conclusion.is_answer:
            return ()
        by_id = {passage.id: passage for passage in state.reading.passages.values()}
        chain = checked_chain(state.graph, state.question, conclusion.answer, by_id)
        return chain_links(chain, by_id)


def _labels(state: State, relations: Sequence[Relation]) -> tuple[int, ...]:
    """Return the labels of the passages that relations are grounded in, each once."""
    ids = (evidence.passage for relation in relations for evidence in relation.evidence)
    known = state.reading.labels
    return tuple(dict.fromkeys(known[id] for id in ids if id in known))


# --- The next query, if the judge leaves none.


def _repair_next_query(state: State) -> None:
    """Make the next query from the graph if the judge left none, or one that was tried.

    A query is also made after a failed round. If the graph gives none, the search ends.
    """
    step, reading = state.step, state.reading
    if state.is_last or not (step.judgement or step.failure):
        return
    if step.failure:
        fault = "the round failed"
    elif not step.next_query:
        fault = "no next query"
    elif reading.was_tried(step.next_query):
        fault = "the next query was tried before"
    else:
        return
    query = query_from_graph(state)
    if not query and step.failure:
        names = " ".join(sorted(proper_names(state.question)))
        query = "" if reading.was_tried(names) else names
    state.made_query = bool(query)
    outcome = "one was made from the graph" if query else "the search ends"
    state.add_rule(f"{fault}: {outcome}", next_query=query)


_MOST_WORDS = 6


def query_from_graph(state: State) -> str:
    """Return a query for an entity of the graph that no passage read so far has as its title.

    Entities nearest to those of the question come first, then those with the most relations. The
    query adds the words of the question that no name and no relation of the graph contains.

    Returns:
        A query that was not tried yet; empty if the graph has no such entity left.
    """
    question, graph, reading = state.question, state.graph, state.reading
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
