"""The functions that a program's `converse` is written with, and the state of a question.

`converse` is a generator and calls them with `yield from`. They yield searches and LM calls, which
`ga_dspy.programs.calls` runs, and record the results in the `State`.
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
from ga_dspy.programs.calls import Conversation, Result, Search, StepFailed, ask, default_adapter
from ga_dspy.programs.events import tell, tell_passages, tell_search
from ga_dspy.programs.evidence import (
    Conclusion,
    EvidenceLink,
    Support,
    is_judgement,
    shares_question_word,
    without_citations,
)
from ga_dspy.programs.meter import Meter, prompt_tokens
from ga_dspy.programs.prediction import Prediction, Step, check_outputs
from ga_dspy.programs.reading import Labelled, PromptPassages, Reading, fit_passages
from ga_dspy.signatures import Style
from ga_dspy.signatures.prompt import short_text
from ga_dspy.text import TokenCounter, mentions

REPLY_TOKENS = {"read": 500, "answer": 150}
"""Estimated tokens of a reply, for steps that read and for answer steps."""

MINIMUM_ROOM = 50
"""The minimum budget for the passages in a prompt, in tokens."""

OPTIONAL = ("reasoning", "candidate", "next_query")
"""Outputs of a judge that a custom signature may leave out."""


class Program(Protocol):
    """The attributes of a program that these functions use."""

    retriever: Any
    k: int
    passage_tokens: int
    token_budget: int | None
    abstain: Any
    compare_facts: bool
    count: TokenCounter

    def answer_inputs(self, state: State) -> dict[str, str]:
        """Return the inputs of the answer step other than question, passages and candidate."""


@dataclass
class State:
    """The state of one question while a program answers it.

    Attributes:
        question: The question.
        program: The program that answers it.
        meter: Counts its cost.
        reading: The passages read and the queries tried.
        unread: Passages found that no prompt of a round has shown yet.
        graph: The graph so far; empty in programs without one.
        notes: Notes, thoughts, or a transcript.
        reasoning: The latest reasoning of the judge.
        candidate: The latest candidate answer of the judge.
        steps: The finished rounds.
        step: The current round, or the last one.
        failures: Failures outside the rounds.
        made_query: Whether the program made the next query, not the LM.
        spent_before: The tokens spent before the current round.
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
        """The token budget of the question."""
        return Budget(self)

    @property
    def max_steps(self) -> int:
        """The maximum number of rounds."""
        return getattr(self.program, "max_steps", 1)

    @property
    def is_last(self) -> bool:
        """Whether the search ends after the current round, whatever its next query."""
        is_decided = self.step.judgement in ("sufficient", "exhausted")
        return is_decided or self.step.number >= self.max_steps

    @contextmanager
    def round(self, query: str, rule: str = "") -> Iterator[None]:
        """Begin a round; a failed step inside the block ends the round, not the question."""
        number = len(self.steps) + 1
        self.step = Step(number=number, query=query, made=self.made_query, rule=rule)
        self.made_query, self.spent_before = False, self.meter.tokens
        try:
            yield
        except StepFailed as failure:
            self.record(failure=str(failure))
        unread = tuple(passage.id for passage in self.unread.values())
        self.record(graph=self.graph, notes=self.notes, unread=unread)

    def record(self, **values: Any) -> None:
        """Record values in the current round."""
        self.step = self.step.model_copy(update=values)

    def add_rule(self, rule: str, **values: Any) -> None:
        """Record why the program overrules the judge, and what it does instead."""
        self.record(rule="; ".join(filter(None, (self.step.rule, rule))), **values)


Observer = Callable[[State, Conversation[dspy.Prediction]], Conversation[dspy.Prediction]]
OBSERVERS: list[Observer] = []
"""Wrappers around the conversation of every question in this process, such as tracing."""


# --- One round: search, fit passages into a prompt, ask a step, choose the next query.


def search(state: State) -> Conversation[dict[int, Passage]]:
    """Search the query of the current round; return the passages that are new, by label.

    Raises:
        StepFailed: The retriever failed, but an earlier search found passages. Without these, the
            error of the retriever itself is raised.
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
        state.meter.is_transient |= is_transient(error)
        raise StepFailed.from_error("search", error) from error
    fresh = reading.add(query, found, made=step.made or bool(step.reformulated))
    returned = (reading.passages[label].id for label in reading.tried[-1].labels)
    retrieved = tuple(dict.fromkeys((*step.retrieved, *returned)))
    new = (*step.passage_ids, *(passage.id for passage in fresh.values()))
    yield from tell_passages(step.number, fresh, retrieved)
    state.record(retrieved=retrieved, passage_ids=new)
    return fresh


def fit(state: State, step: str, passages: Labelled, *texts: str) -> PromptPassages:
    """Render as many passages as fit in the prompt of a step beside other texts."""
    room = max(state.budget.room(step, *texts), MINIMUM_ROOM)
    return fit_passages(passages, room, state.program.count)


def ask_step(
    state: State, step: str, /, *required: str, **inputs: Any
) -> Conversation[dspy.Prediction]:
    """Ask the predictor of a step; only the `required` outputs are mandatory.

    The predictor gets the question, and those of the `inputs` that it takes.

    Raises:
        StepFailed: No attempt gave a usable reply, or the LM could not be reached.
    """
    # Optional outputs enter the trace: a demo must not have another step's fields.
    optional = OPTIONAL if "judgement" in required else ()
    module, inputs = getattr(state.program, step), {"question": state.question, **inputs}
    asked = ask(step, module, inputs, state.meter, required=required, optional=optional)
    return (yield from wrap_errors(step, asked))


def wrap_errors(step: str, conversation: Conversation[Result]) -> Conversation[Result]:
    """Run a conversation; raise errors of the LM or the retriever as failures of the step.

    Raises:
        StepFailed: The LM or the retriever raised an error, which is the `__cause__`.
    """
    try:
        return (yield from conversation)
    except Exception as error:
        # DSPy wraps errors that an LM raises; the library's own errors must reach the caller.
        if any(isinstance(cause, GaDspyError) for cause in causes(error)):
            raise
        raise StepFailed.from_error(step, error) from error


def choose_query(
    state: State, query: str, none: str, repeated: str = "the next query was tried before"
) -> None:
    """Record the next query; end the search if there is none, or if it was tried before.

    Args:
        state: The question.
        query: The next query; may be empty.
        none: The reason to record for an empty query.
        repeated: The reason to record for a query that was tried.
    """
    if query and not state.reading.was_tried(query):
        state.record(next_query=query)
    else:
        state.add_rule(f"{repeated if query else none}: the search ends")


def end_round(state: State, extra: int = 0) -> Conversation[str]:
    """Finish the current round; return the next query, or "" if the search ends.

    The search also ends if another round at the cost of this one plus `extra` tokens would leave
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
    """Ask the answer step, with the program's `style` and `answer_with` if it has these settings.

    If the step fails, or the budget allows no further call, the judge's candidate is the answer.

    Args:
        state: The question.
        shown: Labels of the passages to show in full; of the others only titles are shown. All
            are shown in full by default.
        first: Labels of the passages to prefer if not all fit.
    """
    yield from tell("answering", lambda: ("answering from what was read", {}))
    passages, program = state.reading.passages, state.program
    inputs = program.answer_inputs(state)
    room = state.budget.room("answer", *inputs.values())
    if room < MINIMUM_ROOM and state.steps and state.meter.calls:
        state.failures.append("the token budget left no room for the answer step")
        return Conclusion.uncited(state.candidate, passages)
    full = {label: p for label, p in passages.items() if shown is None or label in shown}
    titled = {label: p for label, p in passages.items() if label not in full}
    fitted = fit_passages(full, max(room, MINIMUM_ROOM), program.count, first, titled)
    latest = {"previous_reasoning": state.reasoning, "passages": fitted.text}
    reply = yield from ask_answer(state, **{**latest, "candidate": state.candidate, **inputs})
    if reply is None:
        return Conclusion.uncited(state.candidate, passages)
    if program.compare_facts:
        reply = yield from _compare(state, reply)
    style: Style = getattr(program, "style", "span")
    custom = getattr(program, "answer_with", None)
    outputs = custom.output_fields if custom else ()
    conclusion = Conclusion.from_reply(reply, passages, fitted.left_out, style, outputs)
    if conclusion.answer or not state.candidate or conclusion.verdict == "premise refuted":
        return conclusion
    return conclusion._replace(answer=state.candidate, verdict="not in passages")


def _compare(state: State, reply: dspy.Prediction) -> Conversation[dspy.Prediction]:
    """Ask again, from the facts of a reply alone, if its answer is yes, no or in the question.

    The answer of the step `comparison` replaces the reply's if it is of the same kind.
    """
    answer, facts = str(reply.answer or ""), without_citations(str(reply.get("links") or ""))
    if not facts or not _is_choice(answer, state.question):
        return reply
    compared = yield from ask_answer(state, "comparison", facts=facts)
    choice = short_text(compared.answer) if compared is not None else ""
    is_same_kind = is_judgement(choice) == is_judgement(answer)
    if not is_same_kind or not _is_choice(choice, state.question):
        return reply
    return dspy.Prediction(**{**reply, "answer": choice})


def _is_choice(answer: str, question: str) -> bool:
    """Return whether an answer is yes, no or something that the question names."""
    return is_judgement(answer) or bool(mentions(answer, question))


def ask_answer(
    state: State, step: str = "answer", /, **inputs: Any
) -> Conversation[dspy.Prediction | None]:
    """Ask the answer step; return None if it failed but an earlier call was answered.

    Raises:
        Exception: No call of the question was answered; this is the error of the LM.
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
    """Return the prediction of a conclusion.

    Args:
        state: The question.
        end: The answer and the passages it cites.
        chain: The links of the graph that lead from the question to the answer.
    """
    passages, meter = state.reading.passages, state.meter
    cited = tuple(passages[label] for label in end.cited)
    supported: Support | None = None
    evidence: tuple[EvidenceLink, ...] = ()
    if end.is_answer and chain:
        supported, evidence = "chained", chain
    elif end.is_answer and end.quoted and shares_question_word(state.question, end.answer, cited):
        supported, evidence = "quoted", end.quotes(cited, state.question)
    is_enough = state.program.abstain in (None, supported) or supported == "chained"
    failed_rounds = (step.failure for step in state.steps if step.failure)
    left_out = tuple(passages[label].id for label in end.left_out)
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
        left_out=left_out,
        graph=state.graph,
        notes=state.notes,
        steps=tuple(state.steps),
        failures=(*failed_rounds, *state.failures),
        is_transient=meter.is_transient,
        usage=dict(meter.usage),
        calls=meter.calls,
        tokens=meter.tokens,
        # The last field is what `dspy.majority` counts.
        answer=end.answer if is_enough else "",
    )


# --- The token budget.


@dataclass(frozen=True)
class Budget:
    """The tokens that a question may still cost, and how many of them passages may take.

    Without a `token_budget`, only `passage_tokens` limits a prompt.
    """

    state: State

    def room(self, step: str, *texts: str) -> int:
        """Return the tokens for passages in the prompt of a step, beside other texts.

        Every step but the answer reserves the tokens that the answer will need.
        """
        state, program = self.state, self.state.program
        if program.token_budget is None:
            return program.passage_tokens
        inputs = [*texts, state.question, state.reasoning, state.candidate]
        if step == "answer":
            needed = self._answer_calls()
        else:
            inputs.append(state.reading.render_tried())
            needed = self.prompt(step) + REPLY_TOKENS["read"] + self.answer_share()
        needed += sum(map(program.count, inputs))
        return min(program.passage_tokens, program.token_budget - state.meter.tokens - needed)

    def prompt(self, step: str) -> int:
        """Return the tokens of a step's prompt with empty inputs."""
        module, count = getattr(self.state.program, step), self.state.program.count
        adapter = dspy.settings.adapter or default_adapter(module)
        return sum(
            prompt_tokens(predictor.signature, adapter, count, predictor.demos)
            for predictor in module.predictors()
        )

    def answer_share(self) -> int:
        """Return the tokens to reserve for the answer."""
        state, program = self.state, self.state.program
        if not hasattr(program, "answer"):
            return 0
        passages = sum(program.count(p.content) for p in state.reading.passages.values())
        texts = [*program.answer_inputs(state).values(), state.question, state.reasoning]
        most = min(program.passage_tokens, (program.token_budget or 0) // 4)
        return self._answer_calls() + sum(map(program.count, texts)) + min(passages, most)

    def _answer_calls(self) -> int:
        """Return the tokens of the answer step, and of a comparison after it, without inputs."""
        steps = ("answer", "comparison") if self.state.program.compare_facts else ("answer",)
        return sum(self.prompt(step) + REPLY_TOKENS["answer"] for step in steps)

    def allows(self, cost: int) -> bool:
        """Return whether the budget covers this cost and then the answer."""
        limit = self.state.program.token_budget
        return limit is None or self.state.meter.tokens + cost + self.answer_share() <= limit
