"""What every loop is made of: the state of a question, search, ask, fit, answer, the budget.

A program's `converse` is a generator that calls these functions with `yield from`; they yield
searches and LM calls and return their results (`ga_dspy.programs.calls` carries them out). What
they learn stands in the `State`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import dspy

from ga_dspy.errors import GaDspyError, RunAborted
from ga_dspy.graph import KnowledgeGraph
from ga_dspy.lm.failures import causes, is_transient
from ga_dspy.passage import Passage
from ga_dspy.programs.calls import Conversation, Result, Search, StepFailed, ask, usual_adapter
from ga_dspy.programs.events import tell, tell_passages, tell_search
from ga_dspy.programs.evidence import (
    Conclusion,
    EvidenceLink,
    Support,
    bears_on,
    is_judgement,
    without_citations,
)
from ga_dspy.programs.meter import Meter, prompt_tokens
from ga_dspy.programs.prediction import Prediction, Step, check_outputs
from ga_dspy.programs.reading import Labelled, PromptPassages, Reading, fit_passages
from ga_dspy.signatures import Style
from ga_dspy.signatures.prompt import short_text
from ga_dspy.text import TokenCounter, mentions

REPLY_TOKENS = {"read": 500, "answer": 150}
"""About how many tokens a reply has: of a step that reads, and of an answer."""

MINIMUM_ROOM = 50
"""No prompt shows fewer tokens of passages."""

OPTIONAL = ("reasoning", "candidate", "next_query")
"""Outputs of a judge that a custom signature may leave out."""


class Program(Protocol):
    """What a loop needs of its program."""

    retriever: Any
    k: int
    passage_tokens: int
    token_budget: int | None
    abstain: Any
    compare_facts: bool
    count: TokenCounter

    def answer_inputs(self, state: State) -> dict[str, str]:
        """Return the answer step's inputs besides question, passages and candidate."""
        ...


@dataclass
class State:
    """Everything known about one question while a program works on it.

    Attributes:
        question: The question.
        program: The program that answers it.
        meter: What it has cost so far.
        reading: The passages read and the queries tried.
        unread: Passages that were found and that no prompt of a round has shown yet.
        graph: The graph so far; empty in programs without one.
        notes: Notes, thoughts, or a transcript.
        reasoning: What the latest judge concluded.
        candidate: The latest answer that a judge saw.
        steps: The finished rounds.
        step: The round under way, or the last one.
        failures: What failed outside of the rounds.
        made_query: Whether the program made the next query, not the LM.
        spent_before: The tokens that were spent before the round under way.
    """

    question: str
    program: Program
    meter: Meter = field(default_factory=Meter)
    reading: Reading = field(default_factory=Reading)
    unread: dict[int, Passage] = field(default_factory=dict)
    graph: KnowledgeGraph = field(default_factory=KnowledgeGraph)
    notes: str = ""
    reasoning: str = ""
    candidate: str = ""
    steps: list[Step] = field(default_factory=list)
    step: Step = field(default_factory=lambda: Step(number=0, query=""))
    failures: list[str] = field(default_factory=list)
    made_query: bool = False
    spent_before: int = 0

    @property
    def budget(self) -> Budget:
        """The tokens that are left."""
        return Budget(self)

    @property
    def max_steps(self) -> int:
        """The most rounds that the program takes."""
        return getattr(self.program, "max_steps", 1)

    @property
    def is_last(self) -> bool:
        """Whether the search ends with the round under way, whatever its next query."""
        is_content = self.step.judgement in ("sufficient", "exhausted")
        return is_content or self.step.number >= self.max_steps

    @contextmanager
    def round(self, query: str, rule: str = "") -> Iterator[None]:
        """Begin a round; a step that fails inside of it ends the round, not the question."""
        number, made = len(self.steps) + 1, self.made_query
        self.step = Step(number=number, query=query, made=made, rule=rule)
        self.made_query, self.spent_before = False, self.meter.tokens
        try:
            yield
        except StepFailed as failure:
            self.record(failure=str(failure))
        unread = tuple(passage.id for passage in self.unread.values())
        self.record(graph=self.graph, notes=self.notes, unread=unread)

    def record(self, **values: Any) -> None:
        """Record values in the round under way."""
        self.step = self.step.model_copy(update=values)

    def add_rule(self, rule: str, **values: Any) -> None:
        """Record where the program overrules the judge, and what it does instead."""
        self.record(rule="; ".join(filter(None, (self.step.rule, rule))), **values)


Observer = Callable[[State, Conversation[dspy.Prediction]], Conversation[dspy.Prediction]]
OBSERVERS: list[Observer] = []
"""Each carries on the conversation of every question in this process, and may record it."""


# --- A round: search, fit the passages into a prompt, ask; then the next query.


def search(state: State) -> Conversation[dict[int, Passage]]:
    """Search the round's query; return the passages that are new, by label.

    Raises:
        StepFailed: The retriever failed, and an earlier search found something.
    """
    step, reading, program = state.step, state.reading, state.program
    query = step.reformulated or step.query
    yield from tell_search(step.number, query)
    try:
        found = yield Search(program.retriever, query, program.k)
    except RunAborted:
        raise
    except Exception as error:
        if not reading.passages:
            raise
        state.meter.may_pass |= is_transient(error)
        raise StepFailed.from_error("search", error) from error
    fresh = reading.add(query, found, made=step.made or bool(step.reformulated))
    returned = (reading.passages[label].id for label in reading.tried[-1].labels)
    retrieved = tuple(dict.fromkeys((*step.retrieved, *returned)))
    new = (*step.passage_ids, *(passage.id for passage in fresh.values()))
    yield from tell_passages(step.number, fresh, retrieved)
    state.record(retrieved=retrieved, passage_ids=new)
    return fresh


def fit(state: State, step: str, passages: Labelled, *texts: str) -> PromptPassages:
    """Render as many passages as the prompt of a step has room for, beside other texts."""
    room = max(state.budget.room(step, *texts), MINIMUM_ROOM)
    return fit_passages(passages, room, state.program.count)


def ask_step(
    state: State, step: str, /, *required: str, **inputs: Any
) -> Conversation[dspy.Prediction]:
    """Ask the predictor of a step; only the `required` outputs are mandatory.

    It gets the question, and those of the `inputs` that it takes.

    Raises:
        StepFailed: No attempt gave a usable reply, or the LM could not be reached.
    """
    # Optional outputs enter the trace: a demo must not have another step's fields.
    optional = OPTIONAL if "judgement" in required else ()
    module, given = getattr(state.program, step), {"question": state.question, **inputs}
    asked = ask(step, module, given, state.meter, required=required, optional=optional)
    return (yield from name_outage(step, asked))


def name_outage(step: str, conversation: Conversation[Result]) -> Conversation[Result]:
    """Carry on a conversation; raise foreign errors as a failure of the step.

    Raises:
        StepFailed: The LM or the retriever raised an error; it is the cause.
    """
    try:
        return (yield from conversation)
    except Exception as error:
        # DSPy wraps what is raised inside an LM: our own errors must reach the caller.
        if any(isinstance(cause, GaDspyError) for cause in causes(error)):
            raise
        raise StepFailed.from_error(step, error) from error


def choose_query(
    state: State, query: str, none: str, repeated: str = "the next query was tried before"
) -> None:
    """Record the next query; the search ends if there is none, or if it was tried before."""
    if query and not state.reading.was_tried(query):
        state.record(next_query=query)
    else:
        state.add_rule(f"{repeated if query else none}: the search ends")


def end_round(state: State, extra: int = 0) -> Conversation[str]:
    """Finish the round; return the next query, or "" if the search ends.

    The search also ends if another round at the cost of this one, and `extra` tokens, would leave
    too few tokens for the answer.
    """
    if not state.is_last and state.step.next_query:
        cost = state.meter.tokens - state.spent_before + extra
        if not state.budget.allows(cost):
            rule = "the token budget allows no further round: the search ends"
            state.add_rule(rule, next_query="")
    step = state.step
    state.steps.append(step)
    state.reasoning = step.reasoning or state.reasoning
    state.candidate = step.candidate or state.candidate
    yield from tell("step", lambda: (step.message, step.model_dump(mode="json")))
    return "" if state.is_last else step.next_query


# --- The answer.


def answer(
    state: State, shown: Collection[int] | None = None, first: Sequence[int] = ()
) -> Conversation[Conclusion]:
    """Ask for the answer, in the style and with the signature that the program has set, if any.

    If the step fails, or the budget allows no further call, the judge's candidate is the answer.

    Args:
        state: The question.
        shown: Labels of the passages to show, and only titles of the others; all if left out.
        first: Labels of the passages that matter most, should not all fit.
    """
    yield from tell("answering", lambda: ("answering from what was read", {}))
    read, program = state.reading.passages, state.program
    beside = program.answer_inputs(state)
    room = state.budget.room("answer", *beside.values())
    if room < MINIMUM_ROOM and state.steps and state.meter.calls:
        state.failures.append("the token budget left nothing for an answer of its own")
        return Conclusion.without_citing(state.candidate, read)
    full = {label: read[label] for label in read if shown is None or label in shown}
    titled = {label: read[label] for label in read if label not in full}
    fitted = fit_passages(full, max(room, MINIMUM_ROOM), program.count, first, titled)
    given = {"passages": fitted.text, "candidate": state.candidate, **beside}
    reply = yield from ask_answer(state, **{"previous_reasoning": state.reasoning, **given})
    if reply is None:
        return Conclusion.without_citing(state.candidate, read)
    if program.compare_facts:
        reply = yield from _compare(state, reply)
    style: Style = getattr(program, "style", "span")
    own = getattr(program, "answer_with", None)
    outputs = own.output_fields if own else ()
    end = Conclusion.from_reply(reply, read, fitted.left_out, style, outputs)
    if end.answer or not state.candidate or end.verdict == "premise refuted":
        return end
    return end._replace(answer=state.candidate, verdict="not in passages")


def _compare(state: State, reply: dspy.Prediction) -> Conversation[dspy.Prediction]:
    """Ask the step `comparison` whether a choice, a yes or a no follows from the facts of a reply.

    Its answer replaces that of the reply if it is of the same kind.
    """
    answer, facts = str(reply.answer or ""), without_citations(str(reply.get("links") or ""))
    if not facts or not (is_judgement(answer) or mentions(answer, state.question)):
        return reply
    compared = yield from ask_answer(state, "comparison", facts=facts)
    other = short_text(compared.answer) if compared is not None else ""
    is_same_kind = is_judgement(other) == is_judgement(answer)
    if not is_same_kind or not (is_judgement(other) or mentions(other, state.question)):
        return reply
    return dspy.Prediction(**{**reply, "answer": other})


def ask_answer(
    state: State, step: str = "answer", /, **inputs: Any
) -> Conversation[dspy.Prediction | None]:
    """Ask the answer step; return None if it failed and an earlier call was answered.

    Raises:
        Exception: No call of the question reached the LM: the cause.
    """
    try:
        return (yield from ask_step(state, step, "answer", **inputs))
    except StepFailed as failure:
        if not state.meter.answered:
            cause = failure.__cause__ or failure
            raise cause from cause.__cause__
        state.failures.append(str(failure))
        return None


def predict(state: State, end: Conclusion, chain: tuple[EvidenceLink, ...] = ()) -> dspy.Prediction:
    """Return the prediction for an answer and the chain of the graph that leads to it, if any."""
    passages, meter = state.reading.passages, state.meter
    cited = tuple(passages[label] for label in end.cited)
    supported: Support | None = None
    evidence: tuple[EvidenceLink, ...] = ()
    if end.is_answer and chain:
        supported, evidence = "chained", chain
    elif end.is_answer and end.quoted and bears_on(state.question, end.answer, cited):
        supported, evidence = "quoted", end.quotes(cited, state.question)
    is_enough = state.program.abstain in (None, supported) or supported == "chained"
    failed_rounds = (step.failure for step in state.steps if step.failure)
    if end.more:
        check_outputs({"answer", *end.more})
    return Prediction(
        dict(end.more),
        verdict=end.verdict,
        supported=supported,
        guess=end.answer,
        evidence=evidence,
        cited=tuple(passage.id for passage in cited),
        citations=end.citations,
        passages=tuple(passages.values()),
        left_out=tuple(passages[label].id for label in end.left_out),
        graph=state.graph,
        notes=state.notes,
        steps=tuple(state.steps),
        failures=(*failed_rounds, *state.failures),
        may_pass=meter.may_pass,
        usage=dict(meter.usage),
        calls=meter.calls,
        tokens=meter.tokens,
        # The last field is what `dspy.majority` counts.
        answer=end.answer if is_enough else "",
    )


# --- The tokens that a question may cost.


@dataclass(frozen=True)
class Budget:
    """How many tokens a question may still cost, and what of them passages may take.

    Without a `token_budget` only `passage_tokens` limits a prompt.
    """

    state: State

    def room(self, step: str, *texts: str) -> int:
        """Return the tokens that passages may take in the prompt of a step, beside other texts.

        A step that is not the last leaves the answer its share.
        """
        state, program = self.state, self.state.program
        if program.token_budget is None:
            return program.passage_tokens
        beside = [*texts, state.question, state.reasoning, state.candidate]
        if step == "answer":
            needed = self._answering()
        else:
            beside.append(state.reading.render_tried())
            needed = self.prompt(step) + REPLY_TOKENS["read"] + self.answer_share()
        needed += sum(map(program.count, beside))
        return min(program.passage_tokens, program.token_budget - state.meter.tokens - needed)

    def prompt(self, step: str) -> int:
        """Return the tokens of a step's prompt when all its inputs are empty."""
        module, count = getattr(self.state.program, step), self.state.program.count
        adapter = dspy.settings.adapter or usual_adapter(module)
        return sum(
            prompt_tokens(predictor.signature, adapter, count, predictor.demos)
            for predictor in module.predictors()
        )

    def answer_share(self) -> int:
        """Return the tokens that the answer step will need."""
        state, program = self.state, self.state.program
        if not hasattr(program, "answer"):
            return 0
        passages = sum(program.count(p.content) for p in state.reading.passages.values())
        texts = [*program.answer_inputs(state).values(), state.question, state.reasoning]
        most = min(program.passage_tokens, (program.token_budget or 0) // 4)
        return self._answering() + sum(map(program.count, texts)) + min(passages, most)

    def _answering(self) -> int:
        """Return the tokens of an answer, and of a comparison after it, beside their inputs."""
        steps = ("answer", "comparison") if self.state.program.compare_facts else ("answer",)
        return sum(self.prompt(step) + REPLY_TOKENS["answer"] for step in steps)

    def allows(self, cost: int) -> bool:
        """Return whether the question may cost so much more, and the answer."""
        limit = self.state.program.token_budget
        return limit is None or self.state.meter.tokens + cost + self.answer_share() <= limit
