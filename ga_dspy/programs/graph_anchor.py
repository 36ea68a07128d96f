"""GraphAnchor: retrieval anchored by a graph that grows as it reads (paper, section 3)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any, Literal, NamedTuple, Self

import dspy

from ga_dspy.errors import InputError
from ga_dspy.graph import (
    Relation,
    Schema,
    distances,
    evidence_chain,
    fits_question,
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
from ga_dspy.programs.loop import (
    OPTIONAL,
    State,
    answer,
    ask_step,
    end_round,
    fit,
    name_outage,
    predict,
    search,
)
from ga_dspy.programs.prediction import check_outputs
from ga_dspy.programs.program import IterativeProgram, Signatures
from ga_dspy.programs.reading import Labelled, Reading
from ga_dspy.programs.settings import setting
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
from ga_dspy.signatures.facts import with_facts, with_schema
from ga_dspy.signatures.prompt import EMPTY, free_text, short_text
from ga_dspy.text import STOPWORDS, fold, proper_names, words


class GraphAnchor(IterativeProgram):
    """Retrieve, add what was read to a graph, let the graph say what to search next; then answer.

    Every entity and relation of the graph is grounded in a passage. The paper's ablations are
    settings: `answer_from="passages"` (QA w/ Docs), `answer_from="graph"` (QA w/ Graph),
    `index="text"` (w/ Text Index), `index=None` (w/o Graph), `max_steps=1` (w/o Iterative
    Retrieval).

    The graph saves calls and tokens when the judge finds the evidence sufficient. If a chain of
    the graph leads from the question to the judge's candidate, a passage states it, and it is of
    the kind that the question asks for, the candidate is the answer, unless the answer step has
    another model; otherwise the answer step reads the passages that the graph cites, and the titles
    of the others. `as_published=True` turns both off.

    Rules for gaps that the judge leaves:

    - "sufficient" or "exhausted" with a next query: the query is ignored.
    - "insufficient" without a next query, or with one already tried: a query is made from the
      graph (`query_from_graph`); if that was tried too, the search ends.
    - a query that finds nothing new: a query is made from the graph, once; if that finds nothing
      new either, the search ends.
    - a round that fails: a query is made from the graph, and what was found is read again.
    - passages that the prompt has no room for are shown in the next round.

    If not all passages fit in the answer's prompt, those that carry the graph's facts come first.
    """

    index: IndexKind = setting(
        'The index kept while reading: "graph", "text" (running notes) or None.', default="graph"
    )
    graph_form: Literal["lines", "json"] = setting(
        'How a step writes what it adds to the graph: "lines", or "json", whose schema the '
        "provider enforces where it can.",
        default="lines",
    )
    answer_from: Literal["both", "passages", "graph"] = setting(
        'What the final answer sees: "both", "passages" or "graph" (the index).', default="both"
    )
    schema: Schema | None = setting(
        "The types and relations that the graph should have (`Schema`); None for any.",
        default=None,
    )
    as_published: bool = setting(
        "The paper's own loop: index and judge in two LM calls, and always a separate call for the "
        "answer, which reads all passages (2n + 1 calls for n steps, not n or n + 1).",
        default=False,
    )
    style: Style = setting(
        'The answer: a "span", a "sentence" or two, or a "report"; the latter two cite passages '
        "in the text, and each citation is checked.",
        default="span",
    )
    answer_with: type[dspy.Signature] | None = setting(
        "A custom signature for the answer step, with an output `answer`; its other outputs become "
        "fields of the prediction. Pass it again to load a saved program.",
        default=None,
        saved=False,
    )
    graph_tokens: int = setting(
        "Budget for the graph in a prompt; farthest entities are left out first.",
        default=1500,
        minimum=50,
    )

    _spares_answer = True
    """Whether a certain candidate becomes the answer; a teacher asks, since traces become demos."""

    def as_teacher(self) -> Self:
        """Return a copy that asks for the answer even if the judge's candidate is certain."""
        teacher: Self = self.deepcopy()
        teacher._spares_answer = False
        return teacher

    def signatures(self) -> Signatures:
        """Return the signatures under these settings.

        Raises:
            InputError: The answer, the form of the graph or its schema needs an index that is not
                kept; or a custom signature has no output `answer`.
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
        if self.schema is not None and (self.index != "graph" or type(self.schema) is not Schema):
            raise InputError(
                f"schema is {self.schema!r:.80} and index {self.index!r}",
                expected="a ga_dspy.Schema, and a graph that it describes",
                remedy='pass schema=Schema.read("schema.yaml") and index="graph"',
            )
        if self.answer_with is not None:
            check_outputs(self.answer_with.output_fields.keys())
        shown = None if self.answer_from == "passages" else self.index
        answering = self.answer_with or answer_signature(
            shown, passages=self.answer_from != "graph", style=self.style
        )
        steps: Signatures = {}
        if self.index is not None and not self.as_published:
            steps = {"read": read_signature(self.index)}
        else:
            if self.index is not None:
                steps = {"update": UpdateGraph if self.index == "graph" else UpdateNotes}
            steps["judge"] = judge_signature(self.index)
        for step in ("read", "update") if self.index == "graph" else ():
            if step in steps and self.schema:
                steps[step] = with_schema(steps[step], self.schema)
            if step in steps and self.graph_form == "json":
                steps[step] = with_facts(steps[step], self.schema)
        return {**steps, "answer": answering}

    def _examples(self, signature: type[dspy.Signature]) -> list[dspy.Example]:
        return examples(signature, self.style)

    def converse(self, state: State) -> Conversation[dspy.Prediction]:
        """Search, read into the graph, judge; again while evidence is missing; then answer."""
        query = state.question
        while query:
            with state.round(query):
                fresh = yield from search(state)
                if not fresh and (made := query_from_graph(state)):
                    state.record(reformulated=made)
                    fresh = yield from search(state)
                state.unread.update(fresh)
                if state.unread:
                    judged = yield from self._read_and_judge(state)
                    state.record(**judged)
                    self._check_query(state)
                else:
                    state.add_rule("nothing new was found: the search ends")
            if state.step.failure and not state.is_last:
                self._make_query(state, "the round failed")
            query = yield from end_round(state)
        end = self._certain_candidate(state)
        if end is None:
            shown, titled = self._passages_to_answer_from(state)
            first = _labels(state, state.graph.relations)
            outputs = self.answer_with.output_fields if self.answer_with else ()
            end = yield from answer(state, shown, titled, first, style=self.style, outputs=outputs)
        return predict(state, end, self._chain(state, end))

    def _read_and_judge(self, state: State) -> Conversation[dict[str, str]]:
        """Add the unread passages to the index and judge it: in one LM call, or as published."""
        if self.index is not None and not self.as_published:
            shown = self._step_inputs(state, "read")
            reply = yield from self._index(state, "read", shown.inputs, "judgement")
        else:
            if self.index is not None:
                yield from self._index(state, "update", self._step_inputs(state, "judge").inputs)
            shown = self._step_inputs(state, "judge")
            reply = yield from ask_step(state, "judge", shown.inputs, "judgement")
        state.unread = {label: state.unread[label] for label in shown.left_out}
        return {
            "reasoning": free_text(reply.reasoning),
            "judgement": reply.judgement,
            "candidate": short_text(reply.candidate),
            "next_query": " ".join(short_text(reply.next_query).split()),
        }

    def _index(
        self, state: State, step: str, inputs: dict[str, Any], *required: str
    ) -> Conversation[dspy.Prediction]:
        """Add what the passages state to the graph, or to the notes."""
        if self.index == "text":
            reply = yield from ask_step(state, step, inputs, *required)
            state.notes = free_text(reply.notes) or state.notes
            state.reading.note_gain("notes rewritten")
            return reply
        before = state.graph
        asked = ask_grounded(
            step,
            getattr(self, step),
            inputs,
            state.meter,
            state.reading.passages,
            known={entity.name: entity.type for entity in before.entities},
            schema=self.schema,
            required=required,
            optional=OPTIONAL if required else (),
        )
        found = yield from name_outage(step, asked)
        state.graph = before.merge(found.update)
        gain = state.graph.difference(before)
        state.reading.note_gain(
            f"{len(gain.entities)} entities, {len(gain.relations)} relations added"
        )
        state.record(**gain._asdict(), dropped=found.dropped)
        return found.reply

    def _step_inputs(self, state: State, step: str) -> _StepInputs:
        """The inputs of a step that reads, with as many unread passages as it has room for."""
        kept = self.answer_inputs(state)
        shown = fit(state, step, state.unread, *kept.values())
        number = state.step.number
        last = ", the last: a candidate, no query" if number == self.max_steps else ""
        inputs = {
            "question": state.question,
            "query": state.step.reformulated or state.step.query,
            "search": f"{number} of {self.max_steps}{last}",
            "tried": state.reading.render_tried(below=state.unread.keys()),
            **kept,
            "notes_so_far": kept["notes"],
            "previous_reasoning": state.reasoning,
            "passages": shown.text,
        }
        return _StepInputs(inputs, shown.left_out)

    def _check_query(self, state: State) -> None:
        """Apply the rules for a judgement without a query, or with one that was tried."""
        query = state.step.next_query
        if state.is_last or (query and not state.reading.was_tried(query)):
            return
        fault = "the next query was tried before" if query else "no next query"
        self._make_query(state, fault)

    def _make_query(self, state: State, fault: str) -> None:
        """Make the next query from the graph; without one the search ends."""
        query = query_from_graph(state)
        if not query and state.step.failure:
            query = query_of_names(state.question, state.reading)
        state.made_query = bool(query)
        made = "one was made from the graph" if query else "the search ends"
        state.add_rule(f"{fault}: {made}", next_query=query)

    def answer_inputs(self, state: State) -> dict[str, str]:
        """The graph within its budget, and the notes."""
        latest = state.steps[-1].next_query if state.steps else ""
        keep = [*named_in(state.graph, f"{state.candidate} ; {latest}")]
        labels = state.reading.labels
        pruned = prune(
            state.graph, state.question, self.graph_tokens, self.count, labels=labels, keep=keep
        )
        return {"graph": pruned.text, "notes": state.notes or EMPTY}

    def _passages_to_answer_from(self, state: State) -> tuple[Labelled, Labelled]:
        """The passages to show, and those of which the title is enough.

        If the judge was content, these are the passages of the chain to its candidate, or else all
        that the graph cites, if one of them states the candidate.
        """
        passages, candidate = state.reading.passages, state.step.candidate
        if self.as_published or state.step.judgement != "sufficient":
            return passages, {}
        cited = _labels(state, evidence_chain(state.graph, state.question, candidate))
        by_graph = _labels(state, state.graph.relations)
        if not cited and (is_judgement(candidate) or holders(candidate, _only(passages, by_graph))):
            cited = by_graph
        if not cited:
            return passages, {}
        return _only(passages, cited), _only(passages, passages.keys() - set(cited))

    def _certain_candidate(self, state: State) -> Conclusion | None:
        """The judge's candidate, if the graph leads to it, a passage states it, and it fits."""
        if self.as_published or not self._spares_answer or not self._judge_may_answer():
            return None
        if state.step.judgement != "sufficient":
            return None
        graph, question, candidate = state.graph, state.question, state.candidate
        chain = evidence_chain(graph, question, candidate)
        cited = _labels(state, chain)
        holding = holders(candidate, _only(state.reading.passages, cited))
        if not chain or not (holding or is_judgement(candidate)):
            return None
        if not fits_question(graph, question, candidate, chain):
            return None
        return Conclusion(state.candidate, "answered", cited, bool(holding))

    def _judge_may_answer(self) -> bool:
        """Whether the answer is a span, and nothing besides, from the model that judges."""
        asked, judge = self.signatures(), "read" if "read" in vars(self) else "judge"
        return (
            self.style == "span"
            and self.answer_with is None
            and self.answer_from == "both"
            and isinstance(self.answer, dspy.Predict)
            and self.answer.signature.output_fields.keys() == asked["answer"].output_fields.keys()
            and model_of("answer", self.answer) == model_of(judge, getattr(self, judge))
        )

    def _chain(self, state: State, end: Conclusion) -> tuple[EvidenceLink, ...]:
        """The links that lead from what the question names to the answer."""
        if self.style != "span" or not end.is_answer:
            return ()
        by_id = {passage.id: passage for passage in state.reading.passages.values()}
        chain = sound_chain(state.graph, state.question, end.answer, by_id)
        return chain_links(chain, by_id)


class _StepInputs(NamedTuple):
    """The inputs of a step, and the labels of the passages that it has no room for."""

    inputs: dict[str, Any]
    left_out: tuple[int, ...]


def _only(passages: Labelled, labels: Collection[int]) -> dict[int, Passage]:
    """The passages with these labels, in the order they were read."""
    return {label: passage for label, passage in passages.items() if label in labels}


def _labels(state: State, relations: Sequence[Relation]) -> tuple[int, ...]:
    """The labels of the passages that relations are grounded in, each once."""
    ids = (evidence.passage for relation in relations for evidence in relation.evidence)
    known = state.reading.labels
    return tuple(dict.fromkeys(known[id] for id in ids if id in known))


_MOST_WORDS = 6


def query_from_graph(state: State) -> str:
    """Name an entity at the edge of what was read, and what the question still asks about.

    The edge: entities near the question's entities in the graph that no passage read so far is
    about (none has them as its title); nearest first, then those with most relations. The query
    holds the words of the question that no name and no relation of the graph holds.

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


def query_of_names(question: str, reading: Reading) -> str:
    """The names in a question, as a query; empty where there are none or they were searched."""
    query = " ".join(sorted(proper_names(question)))
    return "" if reading.was_tried(query) else query
