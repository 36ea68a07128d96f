"""Programs: how one is made, called, searches, reads and answers, and what it returns."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields
from types import NoneType
from typing import Any, Literal, NamedTuple, Self, dataclass_transform

import dspy
from pydantic import BaseModel, ConfigDict

from ga_dspy.errors import InputError
from ga_dspy.graph import Entity, KnowledgeGraph, Relation
from ga_dspy.grounding import Dropped
from ga_dspy.passage import Passage
from ga_dspy.programs.calls import (
    Conversation,
    Labelled,
    Meter,
    Search,
    StepFailed,
    adrive,
    ask,
    drive,
)
from ga_dspy.retrieval import as_retriever
from ga_dspy.signatures import prompt
from ga_dspy.text import TokenCounter, estimate_tokens, fold, mentions, sentences, words

# --- What a program returns: the answer, what it rests on, how it was found, what it cost.


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True)


class Step(_Record):
    """One round of retrieving, indexing and judging.

    Attributes:
        number: From 1.
        query: What was searched.
        reformulated: The query made from the graph, where `query` brought nothing new.
        retrieved: Ids of all passages that the query returned, in retrieval order.
        passage_ids: Ids of those among them that were new.
        entities: What the graph gained.
        relations: What the graph gained.
        attributes: What it learned about entities it knew, as (entity, attribute).
        dropped: What the model proposed and the passages did not support, and why.
        attempts: How often the index step was asked (1, and once more per round of feedback).
        reasoning: The judge's reasoning.
        judgement: "sufficient", "insufficient", or empty where the step failed before it.
        candidate: The answer the judge saw, or empty.
        next_query: What the judge wanted to search next, or empty.
        rule: Where the program did something else than the judge said: what and why.
        failure: Why the step failed, or empty.
        graph: The graph after this step (shares its parts with the other snapshots).
        notes: The text index after this step, where the program keeps one.
    """

    number: int
    query: str
    reformulated: str = ""
    retrieved: tuple[str, ...] = ()
    passage_ids: tuple[str, ...] = ()
    entities: tuple[Entity, ...] = ()
    relations: tuple[Relation, ...] = ()
    attributes: tuple[tuple[str, str], ...] = ()
    dropped: tuple[Dropped, ...] = ()
    attempts: int = 0
    reasoning: str = ""
    judgement: str = ""
    candidate: str = ""
    next_query: str = ""
    rule: str = ""
    failure: str = ""
    graph: KnowledgeGraph = KnowledgeGraph()
    notes: str = ""

    def replace(self, **values: Any) -> Step:
        """This step with other values."""
        return self.model_copy(update=values)

    def add_rule(self, rule: str, **values: Any) -> Step:
        """This step with other values, and a rule beside those that it has."""
        return self.replace(rule="; ".join(filter(None, (self.rule, rule))), **values)


class EvidenceLink(_Record):
    """One link of the evidence chain: a triple with the passage and the words that state it.

    The triple is empty where a program without a graph quotes the passage that holds the answer.
    """

    head: str = ""
    relation: str = ""
    tail: str = ""
    passage_id: str
    title: str
    quote: str

    def __str__(self) -> str:
        """The link on one line."""
        triple = f"{self.head} -> {self.relation} -> {self.tail}: " if self.head else ""
        return f'{triple}"{self.quote}" ({self.title or self.passage_id})'


def chain_links(
    chain: tuple[Relation, ...], passages: Mapping[str, Passage]
) -> tuple[EvidenceLink, ...]:
    """The links of a chain of relations, each quoting its first evidence."""
    links = []
    for relation in chain:
        pieces = [(e, passages[e.passage]) for e in relation.evidence if e.passage in passages]
        if pieces:
            first = pieces[0][1]
            quote = " … ".join(p.content[e.start : e.end] for e, p in pieces if p.id == first.id)
            triple = {name: getattr(relation, name) for name in ("head", "relation", "tail")}
            links.append(
                EvidenceLink(
                    **triple,
                    passage_id=first.id,
                    title=first.title,
                    quote=" ".join(quote.split()),
                )
            )
    return tuple(links)


def quotes(answer: str, cited: Iterable[Passage]) -> tuple[EvidenceLink, ...]:
    """The sentences of the cited passages that hold the answer, else their first sentences."""
    links = []
    for passage in cited:
        text = passage.content
        spans = sentences(text) or ((0, len(text)),)
        body = spans[1:] if passage.title and len(spans) > 1 else spans
        places = [mention.start for mention in mentions(answer, text)]
        holding = (span for place in places for span in body if span[0] <= place < span[1])
        start, end = next(holding, body[0])
        links.append(
            EvidenceLink(passage_id=passage.id, title=passage.title, quote=text[start:end])
        )
    return tuple(links)


def as_json(prediction: dspy.Prediction) -> dict[str, Any]:
    """A prediction as JSON values: what an app would store or send."""
    plain = {"answer", "verdict", "supported", "candidate", "cited", "left_out", "failures"}
    record: dict[str, Any] = {name: prediction[name] for name in sorted(plain)}
    for name in ("evidence", "passages", "steps"):
        omit = {"graph"} if name == "steps" else set()
        record[name] = [item.model_dump(mode="json", exclude=omit) for item in prediction[name]]
    graph = prediction.graph
    parts = {"entities": graph.entities, "relations": graph.relations}
    record["graph"] = {n: [part.model_dump(mode="json") for part in ps] for n, ps in parts.items()}
    record["usage"] = {step: u.model_dump(mode="json") for step, u in prediction.usage.items()}
    return {**record, "calls": prediction.calls, "tokens": prediction.tokens}


# --- Settings: declared once, in the body of a program's class.
#
# `__init__` with its types, `settings()`, the class's help and what an artifact accepts are all
# made from the declarations.


def setting(doc: str, *, default: Any, least: int | None = None, saved: bool = True) -> Any:
    """Declare a setting in a class body, where its name and its type stand before it.

    `k: int = setting("Passages a query.", default=5, least=1)` is a whole number from 1. A type
    that lists values, such as `Literal["judge", "judge+path"]`, allows these alone.

    Args:
        doc: What it decides.
        default: The value where none is passed.
        least: The smallest number allowed, for a setting that is a whole number.
        saved: Whether it belongs to what makes the program again: JSON can hold it.
    """
    return field(default=default, metadata={"doc": doc, "least": least, "saved": saved})


@dataclass_transform(kw_only_default=True, field_specifiers=(setting, field))
class Configured(dspy.Module):
    """A DSPy module whose class body declares its settings.

    As in a dataclass, whatever is annotated there is an argument; `ClassVar` marks what is not.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        writes_its_own = "__init__" in vars(cls)
        dataclass(kw_only=True, eq=False, repr=False)(cls)
        if not writes_its_own:
            vars(cls)["__init__"].__annotations__ = typing.get_type_hints(cls)
            about = [f"    {name}: {one.metadata['doc']}" for name, one in cls.declared().items()]
            cls.__doc__ = "\n".join([inspect.cleandoc(cls.__doc__ or ""), "", "Settings:", *about])

    @classmethod
    def declared(cls) -> dict[str, Field[Any]]:
        """The settings by name, the class's own before those that it inherits."""
        by_name = {one.name: one for one in fields(cls) if one.init and "doc" in one.metadata}
        order = (name for kind in cls.__mro__ for name in vars(kind).get("__annotations__", ()))
        return {name: by_name[name] for name in dict.fromkeys(order) if name in by_name}

    def __post_init__(self) -> None:
        """Check the settings.

        Raises:
            InputError: One of them has a value that it cannot have.
        """
        super().__init__()
        types = typing.get_type_hints(type(self))
        for name, one in self.declared().items():
            value, listed = getattr(self, name), _listed_values(types[name])
            if one.metadata["least"] is not None:
                if value is not None or None not in listed:
                    check_whole(name, value, one.metadata["least"])
            elif set(listed) - {None} and value not in listed:
                raise InputError(
                    f"{name} is {value!r}",
                    expected=f"one of {', '.join(map(repr, listed))}",
                    remedy=f"pass {name}={listed[0]!r}",
                )

    def settings(self) -> dict[str, Any]:
        """The settings that make this program again, by name; JSON values."""
        saved = (name for name, one in self.declared().items() if one.metadata["saved"])
        return {name: getattr(self, name) for name in saved}


def _listed_values(kind: Any) -> tuple[Any, ...]:
    """The values that a type lists, None among them where it is optional."""
    if typing.get_origin(kind) is Literal:
        return typing.get_args(kind)
    parts = typing.get_args(kind)
    return (None,) if kind is NoneType else tuple(v for p in parts for v in _listed_values(p))


def check_whole(name: str, value: int, least: int = 1) -> int:
    """Check that a setting is a whole number.

    Raises:
        InputError: It is something else, or less than `least`.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise InputError(
            f"{name} is {value!r}",
            expected=f"a whole number from {least}",
            remedy=f"pass {name}={max(least, 5)}",
        )
    return value


# --- What has been read for one question: passages with labels that never change, queries tried.


class Tried(NamedTuple):
    """A query, the labels of the passages it returned, how many were new, what the index gained."""

    query: str
    labels: tuple[int, ...]
    fresh: int
    gained: str = ""

    def __str__(self) -> str:
        """One line of a prompt."""
        if not self.fresh:
            return f"{self.query} => nothing new"
        numbers = ",".join(map(str, self.labels))
        return f"{self.query} => passages {numbers}" + (f"; {self.gained}" if self.gained else "")


class Reading:
    """Passages in first-seen order, each with a label from 1 that stays, and the queries tried.

    Attributes:
        passages: The passages by label.
        labels: The label of each passage id.
        tried: The queries, in order.
    """

    def __init__(self) -> None:
        self.passages: dict[int, Passage] = {}
        self.labels: dict[str, int] = {}
        self.tried: list[Tried] = []
        self._first_ids: dict[str, str] = {}

    def add(self, query: str, found: Iterable[Passage]) -> dict[int, Passage]:
        """Note what a query brought and give the passages among it that are new.

        A passage is known by its id, or by its content under another id.
        """
        labels: list[int] = []
        fresh: dict[int, Passage] = {}
        for passage in found:
            first_id = self._first_ids.setdefault(fold(passage.content), passage.id)
            if first_id not in self.labels:
                label = self.labels[first_id] = len(self.passages) + 1
                self.passages[label] = fresh[label] = passage
            labels.append(self.labels[first_id])
        self.tried.append(Tried(query, tuple(dict.fromkeys(labels)), len(fresh)))
        return fresh

    def note_gain(self, gained: str) -> None:
        """Note what the index gained by the last query."""
        self.tried[-1] = self.tried[-1]._replace(gained=gained)

    def was_tried(self, query: str) -> bool:
        """Whether the same words, in whichever case and punctuation, were searched before."""
        sought = [word.folded for word in words(query)]
        return any(sought == [word.folded for word in words(t.query)] for t in self.tried)

    def render_tried(self) -> str:
        """The queries as the judge reads them."""
        lines = (f"{number}. {tried}" for number, tried in enumerate(self.tried, 1))
        return "\n".join(lines) or prompt.EMPTY


class PromptPassages(NamedTuple):
    """Passages as they stand in a prompt, and the labels that the budget left out."""

    text: str
    left_out: tuple[int, ...]


def fit_passages(
    passages: Labelled, budget: int, count: TokenCounter, first: Sequence[int] = ()
) -> PromptPassages:
    """Render passages within a token budget, in label order.

    The labels in `first` are served before the others. A passage that does not fit whole is cut
    at a sentence; one of which not even a sentence fits is left out.
    """
    chosen: dict[int, Passage] = {}
    room = budget
    for label in dict.fromkeys([*(n for n in first if n in passages), *passages]):
        for passage in _shortened(passages[label]):
            tokens = count(prompt.render_passage(label, passage))
            if tokens <= room:
                chosen[label] = passage
                room -= tokens
                break
    left_out = tuple(sorted(label for label in passages if label not in chosen))
    return PromptPassages(prompt.render_passages(sorted(chosen.items())), left_out)


def _shortened(passage: Passage) -> Iterator[Passage]:
    """The passage whole, then each time a sentence shorter."""
    yield passage
    for _, end in reversed(sentences(passage.text)[:-1]):
        yield passage.model_copy(update={"text": passage.text[:end]})


# --- The last step, the same for every program: a short answer, and whether a passage carries it.


class Conclusion(NamedTuple):
    """The outcome of the answer step.

    Attributes:
        answer: The short answer as the model gave it.
        verdict: "answered", "not in passages" or "premise refuted".
        cited: Labels of the passages the answer rests on; only passages that were read.
        supported: Whether the answer rests on a passage rather than on the model's memory.
        left_out: Labels of the passages that the prompt had no room for.
    """

    answer: str
    verdict: str
    cited: tuple[int, ...]
    supported: bool
    left_out: tuple[int, ...] = ()

    @classmethod
    def from_reply(
        cls, reply: dspy.Prediction, passages: Labelled, left_out: tuple[int, ...] = ()
    ) -> Self:
        """What the answer step replied.

        An answer is never supported if it is "not in passages". A span is if one of the passages
        it cites, or if it cites none any passage, mentions it; "yes", "no" and the sentence that
        refutes a premise are if they cite a passage at all.
        """
        answer, verdict = (reply.answer or "").strip(), str(reply.verdict)
        labels = prompt.cited_labels(prompt.free_text(reply.cited))
        named = tuple(label for label in labels if label in passages)
        cited = named or _holding(answer, passages)[:1]
        no_span = verdict == "premise refuted" or fold(answer).strip(" .") in ("yes", "no")
        supported = bool(answer and cited) and verdict != "not in passages"
        if supported and not no_span:
            supported = bool(_holding(answer, {label: passages[label] for label in cited}))
        return cls(answer, verdict, cited if supported else named, supported, left_out)

    @classmethod
    def without_citing(cls, answer: str, passages: Labelled) -> Self:
        """An answer given without citing, credited to the first passage that mentions it."""
        answer = answer.strip()
        cited = _holding(answer, passages)[:1]
        return cls(answer, "answered" if cited else "not in passages", cited, bool(cited))


def _holding(answer: str, passages: Labelled) -> tuple[int, ...]:
    if not answer:
        return ()
    return tuple(n for n, passage in passages.items() if mentions(answer, passage.content))


# --- What every program has in common: how it is called, searches and answers.

PROMPT_TOKENS = 700
"""About what an answer prompt holds beside passages, graph and demos (`ga-dspy bench prompts`)."""

Signatures = dict[str, type[dspy.Signature]]


@dataclass
class State:
    """Everything known about one question while it is being worked on.

    Attributes:
        question: The question.
        meter: What it cost so far.
        reading: The passages read and the queries tried.
        graph: The graph so far; empty in programs that keep none.
        notes: What is kept in words: notes, thoughts, or a transcript.
        steps: The rounds so far.
        opening: Why the first search is for the question, where the LM was to choose it.
        setbacks: How many updates of the notes in a row were no better.
        ending: The latest answer, in programs whose rounds give answers.
    """

    question: str
    meter: Meter = field(default_factory=Meter)
    reading: Reading = field(default_factory=Reading)
    graph: KnowledgeGraph = field(default_factory=KnowledgeGraph)
    notes: str = ""
    steps: list[Step] = field(default_factory=list)
    opening: str = ""
    setbacks: int = 0
    ending: Conclusion | None = None

    @property
    def reasoning(self) -> str:
        """What the step before concluded."""
        return self.steps[-1].reasoning if self.steps else ""

    @property
    def candidate(self) -> str:
        """The latest answer that a judge saw."""
        return next((step.candidate for step in reversed(self.steps) if step.candidate), "")


class MultiHopProgram(Configured):
    """A DSPy module that answers a question from passages.

    Call it with `program(question="…")`, or `await program.acall(question="…")`. The prediction
    has `answer`, `verdict`, `supported`, `candidate`, `evidence`, `cited`, `passages`,
    `left_out`, `graph`, `notes`, `steps`, `failures`, `usage`, `calls` and `tokens`, whichever
    program made it.

    A subclass implements `converse` once, as a generator of searches and LM calls; threads and
    asyncio both run that one algorithm. It declares its settings in its class body, each with
    `setting(…)`, and says in `signatures` what the LM is asked; the last step is called `answer`.

    Args:
        retriever: Anything `ga_dspy.retrieval.as_retriever` takes.
    """

    retriever: Any = field(kw_only=False)
    k: int = setting("Passages a query.", default=5, least=1)
    passage_tokens: int = setting("Budget for the passages in a prompt.", default=6000, least=50)
    token_budget: int | None = setting(
        "About as many tokens as a question may cost, all calls together; None for no limit. The "
        "search ends where another round would leave too few for the answer, and the answer is "
        "given as many passages as still fit.",
        default=None,
        least=2 * PROMPT_TOKENS,
    )
    abstain: bool = setting("Give an empty answer where no passage supports one.", default=False)
    count: TokenCounter = setting(
        "Counts the tokens of a text.", default=estimate_tokens, saved=False
    )

    def __post_init__(self) -> None:
        """Check the settings; make the predictors."""
        super().__post_init__()
        self.retriever = as_retriever(self.retriever)
        for name, signature in self.signatures().items():
            setattr(self, name, dspy.Predict(signature))

    def signatures(self) -> Signatures:
        """What the LM is asked under these settings: signatures by the predictor's name."""
        return {}

    def converse(self, question: str) -> Conversation[dspy.Prediction]:
        """The algorithm."""
        raise TypeError(f"{type(self).__name__} must implement converse(question)")

    def forward(self, question: str) -> dspy.Prediction:
        """Answer a question."""
        return drive(self.converse(_stripped(question)))

    async def aforward(self, question: str) -> dspy.Prediction:
        """Answer a question from a coroutine."""
        return await adrive(self.converse(_stripped(question)))

    def _retrieve(self, state: State, step: Step) -> Conversation[tuple[Step, dict[int, Passage]]]:
        """Search; the step with what its query returned, and the passages that are new."""
        query = step.reformulated or step.query
        found = yield Search(self.retriever, query, self.k)
        reading = state.reading
        fresh = reading.add(query, found)
        returned = (reading.passages[label].id for label in reading.tried[-1].labels)
        new = (passage.id for passage in fresh.values())
        ids = {
            "retrieved": (*step.retrieved, *returned),
            "passage_ids": (*step.passage_ids, *new),
        }
        return step.replace(**ids), fresh

    def _conclude(self, state: State) -> Conversation[dspy.Prediction]:
        """Answer from everything that was read, unless a round gave the answer."""
        if state.ending is None:
            beside = self._answer_inputs(state)
            passages, room = state.reading.passages, self._room(state, *beside.values())
            shown = fit_passages(passages, room, self.count, self._served_first(state))
            inputs = {
                "question": state.question,
                "passages": shown.text,
                "candidate": state.candidate,
                **beside,
            }
            reply = yield from ask("answer", self.answer, inputs, state.meter)
            state.ending = Conclusion.from_reply(reply, passages, shown.left_out)
        return self._prediction(state, state.ending)

    def _answer_inputs(self, state: State) -> dict[str, str]:
        """What the answer step is given beside question, passages and candidate."""
        return {}

    def _served_first(self, state: State) -> Sequence[int]:
        """Labels of the passages that the answer needs most, should not all fit."""
        return ()

    def _chain(self, state: State, end: Conclusion) -> tuple[EvidenceLink, ...]:
        """The evidence chain of a supported answer; quotes where it is empty."""
        return ()

    def _room(self, state: State, *beside: str) -> int:
        """Tokens for the passages of the next prompt, which holds these texts as well."""
        if self.token_budget is None:
            return self.passage_tokens
        held = PROMPT_TOKENS + sum(map(self.count, beside))
        left = self.token_budget - state.meter.tokens - held
        return max(min(self.passage_tokens, left), 50)

    def _prediction(self, state: State, end: Conclusion) -> dspy.Prediction:
        passages = state.reading.passages
        cited = tuple(passages[label] for label in end.cited)
        evidence: tuple[EvidenceLink, ...] = ()
        if end.supported:
            evidence = self._chain(state, end) or quotes(end.answer, cited)
        return dspy.Prediction(
            answer="" if self.abstain and not end.supported else end.answer,
            verdict=end.verdict,
            supported=end.supported,
            candidate=end.answer,
            evidence=evidence,
            cited=tuple(passage.id for passage in cited),
            passages=tuple(passages.values()),
            left_out=tuple(passages[label].id for label in end.left_out),
            graph=state.graph,
            notes=state.notes,
            steps=tuple(state.steps),
            failures=tuple(step.failure for step in state.steps if step.failure),
            usage=dict(state.meter.usage),
            calls=state.meter.calls,
            tokens=state.meter.tokens,
        )


def _stripped(question: str) -> str:
    if not isinstance(question, str) or not question.strip():
        raise InputError(
            f"the question is {question!r}",
            expected="a text that is not empty",
            remedy='call program(question="Who …?")',
        )
    return question.strip()


# --- The loop that every iterative program shares: a query, a round, the next query, the answer.


class IterativeProgram(MultiHopProgram):
    """Searches and reads in rounds, then answers.

    A subclass says in `_read` what an LM makes of a round's passages: the step it returns has the
    next query, and is "sufficient" where the search may end. A round whose output is unusable
    twice carries the failure; the search ends and the answer rests on what was read until then.
    """

    max_steps: int = setting("The most rounds of retrieval (the paper's T).", default=4, least=1)

    def converse(self, question: str) -> Conversation[dspy.Prediction]:
        """The algorithm: at most `max_steps` rounds of searching and reading, then the answer."""
        state = State(question)
        query = yield from self._first_query(state)
        while query:
            step = yield from self._round(state, query)
            state.steps.append(step)
            query = "" if self._ends(step) else step.next_query
        return (yield from self._conclude(state))

    def _first_query(self, state: State) -> Conversation[str]:
        """What is searched first: the question itself."""
        yield from ()
        return state.question

    def _ends(self, step: Step) -> bool:
        """Whether the search ends with this step."""
        return bool(step.judgement == "sufficient" or step.failure or step.number >= self.max_steps)

    def _round(self, state: State, query: str) -> Conversation[Step]:
        spent, number = state.meter.tokens, len(state.steps) + 1
        opening = state.opening if number == 1 else ""
        kept = {"graph": state.graph, "notes": state.notes}
        step = Step(number=number, query=query, rule=opening, **kept)
        step, fresh = yield from self._retrieve(state, step)
        try:
            step = yield from self._read(state, step, fresh)
        except StepFailed as failure:
            return step.replace(failure=str(failure), graph=state.graph, notes=state.notes)
        return self._within_budget(state, step, state.meter.tokens - spent)

    def _read(self, state: State, step: Step, fresh: Labelled) -> Conversation[Step]:
        """What an LM makes of the new passages."""
        raise TypeError(f"{type(self).__name__} must implement _read(state, step, fresh)")

    def _within_budget(self, state: State, step: Step, cost: int) -> Step:
        """End the search where another round as dear as this one leaves too few tokens."""
        if self.token_budget is None or self._ends(step) or not step.next_query:
            return step
        read = sum(self.count(passage.content) for passage in state.reading.passages.values())
        kept = sum(map(self.count, self._answer_inputs(state).values()))
        answer = PROMPT_TOKENS + kept + min(read, self.passage_tokens)
        if state.meter.tokens + cost + answer <= self.token_budget:
            return step
        rule = "the token budget allows no further round: the search ends"
        return step.add_rule(rule, next_query="")
