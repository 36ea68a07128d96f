"""Programs: how one is made, called, searches, reads and answers, and what it returns."""

from __future__ import annotations

import copy
import inspect
import typing
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import MISSING, Field, dataclass, field, fields
from functools import partial, wraps
from types import MethodType, NoneType
from typing import Any, ClassVar, Literal, Self, dataclass_transform

import dspy
from dspy.primitives.prediction import Completions
from dspy.utils.callback import with_callbacks
from pydantic import BaseModel, ConfigDict
from pydantic_core import to_jsonable_python

from ga_dspy import notebook
from ga_dspy.errors import InputError, RunAborted
from ga_dspy.graph import Entity, KnowledgeGraph, Relation
from ga_dspy.grounding import Dropped
from ga_dspy.passage import Passage, sound
from ga_dspy.patience import may_pass
from ga_dspy.programs.calls import (
    Conversation,
    Meter,
    Result,
    Search,
    StepFailed,
    Usage,
    adrive,
    ask,
    drive,
    is_ours,
    own_signature,
    prompt_tokens,
    usual_adapter,
)
from ga_dspy.programs.events import Event, Kind, Tell, is_watched
from ga_dspy.programs.evidence import Citation, Conclusion, EvidenceLink, Support, bears_on
from ga_dspy.programs.reading import Labelled, Reading, fit_passages
from ga_dspy.retrieval import as_retriever
from ga_dspy.retrieval.protocol import PassageRetriever
from ga_dspy.retrieval.where import Where
from ga_dspy.secrets import note_secrets
from ga_dspy.signatures.examples import examples
from ga_dspy.storage import in_thread
from ga_dspy.text import TokenCounter, estimate_tokens, inert

# --- What a program returns: the answer, what it rests on, how it was found, what it cost.


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True)


class Step(_Record):
    """One round of retrieving, indexing and judging.

    Attributes:
        number: From 1.
        query: What was searched.
        made: Whether the program made the query, and not the LM.
        reformulated: The query made from the graph, where `query` brought nothing new.
        retrieved: Ids of all passages that the query returned, in retrieval order.
        passage_ids: Ids of those among them that were new.
        unread: Ids of passages that the prompt had no room for; the next step is shown them.
        entities: What the graph gained.
        relations: What the graph gained.
        attributes: What it learned about entities it knew, as (entity, attribute).
        dropped: What the model proposed and the passages did not support, and why.
        reasoning: The judge's reasoning.
        judgement: "sufficient", "insufficient", "exhausted" (further searches are in vain), or
            empty where the step failed before it.
        candidate: The answer the judge saw, or empty.
        next_query: What the judge wanted to search next, or empty.
        rule: Where the program did something else than the judge said: what and why.
        failure: Why the step failed, or empty.
        graph: The graph after this step (shares its parts with the other snapshots).
        notes: The text index after this step, where the program keeps one.
    """

    number: int
    query: str
    made: bool = False
    reformulated: str = ""
    retrieved: tuple[str, ...] = ()
    passage_ids: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    entities: tuple[Entity, ...] = ()
    relations: tuple[Relation, ...] = ()
    attributes: tuple[tuple[str, str], ...] = ()
    dropped: tuple[Dropped, ...] = ()
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


class Prediction(dspy.Prediction):
    """An answer with what it rests on, how it was found and what it cost.

    Attributes:
        answer: The answer; empty where the program abstains.
        verdict: "answered", "not in passages" or "premise refuted".
        supported: "chained" where stated links lead from the question to the answer and no check
            finds a fault, "quoted" where only a sentence of a cited passage holds it, None else.
        guess: The answer whether supported or not.
        evidence: The chain of a chained answer, else the sentences that hold a quoted one.
        cited: Ids of the passages the answer rests on.
        citations: The statements of a written answer (`style`), each with a passage it cites.
        passages: All passages read, in the order of their numbers.
        left_out: Ids of those that the answer's prompt did not show.
        graph: The graph; empty in programs that keep none.
        notes: What is kept in words, in programs that keep notes, thoughts or a transcript.
        steps: The rounds.
        failures: What failed on the way: the answer was made from the rest.
        may_pass: Whether asking again may go better: what failed was a timeout, an outage, …
        usage: What each step cost, by its name.
        calls: LM calls in all.
        tokens: Tokens in all.
    """

    answer: str
    verdict: str
    supported: Support | None
    guess: str
    evidence: tuple[EvidenceLink, ...]
    cited: tuple[str, ...]
    citations: tuple[Citation, ...]
    passages: tuple[Passage, ...]
    left_out: tuple[str, ...]
    graph: KnowledgeGraph
    notes: str
    steps: tuple[Step, ...]
    failures: tuple[str, ...]
    may_pass: bool
    usage: dict[str, Usage]
    calls: int
    tokens: int

    @property
    def completions(self) -> Completions:
        """The prediction as the one completion, of which `dspy.majority` takes votes."""
        return Completions([self])

    def to_dict(self) -> dict[str, Any]:
        """The prediction as JSON values: what an app would store or send."""
        return as_json(self)

    def __repr__(self) -> str:
        """The answer, how it is supported, and how much there is of the rest."""
        if "steps" not in self:
            return str(super().__repr__())
        said = {name: self[name] for name in ("answer", "verdict", "supported")}
        counted = {name: len(self[name]) for name in ("evidence", "passages", "steps")}
        graph, spent = {"graph": self.graph}, {"calls": self.calls, "tokens": self.tokens}
        shown = {**said, **counted, **graph, **spent}
        return f"Prediction({', '.join(f'{name}={value!r}' for name, value in shown.items())})"

    def _repr_html_(self) -> str:
        """The answer, its evidence and the steps, for notebooks."""
        if "steps" not in self:
            return notebook.line(repr(self))
        evidence = ((f"{e.head} {e.relation} {e.tail}", e.quote, e.title) for e in self.evidence)
        steps = (
            (s.number, s.reformulated or s.query, len(s.entities), len(s.relations), s.judgement)
            for s in self.steps
        )
        support = self.supported or "not supported"
        return "".join(
            (
                notebook.line(self.answer or "no answer", bold=True),
                notebook.line(f"{support} · {self.calls} LM calls · {self.tokens:,} tokens"),
                notebook.table(("evidence", "quote", "passage"), evidence),
                notebook.table(("step", "query", "entities", "relations", "judgement"), steps),
            )
        )


ANSWER_FIELDS = ("answer", "verdict", "cited")
"""What the answer step itself gives of a prediction; the program finds the rest."""


def check_outputs(names: Collection[str]) -> None:
    """Check the outputs of an answer step of one's own.

    Raises:
        InputError: There is no `answer`, or one has the name of a field that the program fills.
    """
    if "answer" not in names:
        raise InputError(
            f"the answer step has the outputs {', '.join(names)}",
            expected="an output field called answer",
            remedy="name the field with the answer `answer`",
        )
    taken = [n for n in names if n in Prediction.__annotations__ and n not in ANSWER_FIELDS]
    if taken:
        raise InputError(
            f"the answer step has the output {', '.join(taken)}",
            expected="names that no field of the prediction has: the program fills these itself",
            remedy=f"name it otherwise, for instance my_{taken[0]}",
        )


def as_json(prediction: dspy.Prediction) -> dict[str, Any]:
    """A prediction as JSON values, of whichever class a copy of it is."""
    ordered = {"answer": prediction.answer, **prediction}
    record = {name: to_jsonable_python(v, fallback=str) for name, v in ordered.items()}
    record["steps"] = [step_as_json(step) for step in prediction.steps]
    shown = {part: getattr(prediction.graph, part) for part in ("entities", "relations")}
    record["graph"] = to_jsonable_python(shown)
    return record


def step_as_json(step: Step) -> dict[str, Any]:
    """A step as JSON values, without the graph, which its gains add up to."""
    return step.model_dump(mode="json", exclude={"graph"})


def tell(kind: Kind, message: str, data: Callable[[], Mapping[str, Any]]) -> Conversation[None]:
    """Tell whoever watches that something happened; costs nothing where nobody does."""
    if is_watched():
        yield Tell(Event(kind, inert(message), data()))


def tell_search(number: int, query: str) -> Conversation[None]:
    """Tell that a step searches."""
    data = {"number": number, "query": query}
    yield from tell("search", f"step {number}: searching {query!r}", lambda: data)


def tell_passages(number: int, fresh: Labelled, retrieved: Sequence[str]) -> Conversation[None]:
    """Tell what a step found: the new passages by their labels, and the ids of all."""
    yield from tell(
        "passages",
        f"step {number}: {len(retrieved)} passages, {len(fresh)} new",
        lambda: {
            "number": number,
            "new": [{"label": n, **to_jsonable_python(p)} for n, p in fresh.items()],
            "retrieved": list(retrieved),
        },
    )


def step_message(step: Step) -> str:
    """What a step gained and how it was judged, in a few words."""
    gains = (
        (len(step.entities), "entity", "entities"),
        (len(step.relations), "relation", "relations"),
    )
    said = [f"+{n} {one if n == 1 else more}" for n, one, more in gains if n]
    said += [f"{len(step.dropped)} dropped"] if step.dropped else []
    judged = ": ".join(filter(None, (step.judgement, step.reasoning)))
    told = "; ".join(filter(None, (", ".join(said), judged, step.rule, step.failure)))
    return f"step {step.number}: {told or 'nothing new'}"


# --- Settings: declared once, in the body of a program's class.
#
# `__init__` with its types, `settings()`, the class's help and what an artifact accepts are all
# made from the declarations.


MOST = 1_000_000
"""No whole number among the settings is larger: a text from elsewhere may name them."""


def setting(
    doc: str, *, default: Any, least: int | None = None, most: int = MOST, saved: bool = True
) -> Any:
    """Declare a setting in a class body, where its name and its type stand before it.

    `k: int = setting("Passages a query.", default=5, least=1)` is a whole number from 1. A type
    that lists values, such as `Literal["judge", "judge+path"]`, allows these alone.

    Args:
        doc: What it decides.
        default: The value where none is passed.
        least: The smallest number allowed, for a setting that is a whole number.
        most: The largest.
        saved: Whether it belongs to what makes the program again: JSON can hold it.
    """
    about = {"doc": doc, "least": least, "most": most, "saved": saved}
    return field(default=default, metadata=about)


class _CallSignature:
    """The arguments of a class, and of a call of its instances, which DSPy's metaclass hides."""

    def __get__(self, instance: Any, owner: Any) -> inspect.Signature:
        called = inspect.signature(owner.__init__ if instance is None else owner.forward)
        return called.replace(parameters=list(called.parameters.values())[1:])


@dataclass_transform(kw_only_default=True, field_specifiers=(setting, field))
class Configured(dspy.Module):
    """A DSPy module whose class body declares its settings.

    As in a dataclass, whatever is annotated there is an argument; `ClassVar` marks what is not.
    """

    __signature__: ClassVar[Any] = _CallSignature()

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        writes_its_own = "__init__" in vars(cls)
        dataclass(kw_only=True, eq=False, repr=False)(cls)
        if not writes_its_own:
            vars(cls)["__init__"].__annotations__ = typing.get_type_hints(cls)
            cls.__doc__ = "\n".join([inspect.cleandoc(cls.__doc__ or ""), "", *cls._documented()])

    @classmethod
    def _documented(cls) -> Iterator[str]:
        """The arguments with type, purpose and default, as a docstring has them."""
        yield "Args:"
        types = typing.get_type_hints(cls)
        for one in fields(cls):
            if one.init and "doc" in one.metadata and one.default is MISSING:
                yield f"    {one.name}: {one.metadata['doc']}"
        for name, one in cls.declared().items():
            default = getattr(one.default, "__name__", repr(one.default))
            kind = inspect.formatannotation(types[name])
            yield f"    {name} ({kind}): {one.metadata['doc']} Default: {default}."

    @classmethod
    def declared(cls) -> dict[str, Field[Any]]:
        """The settings by name, the class's own before those that it inherits."""
        by_name = {one.name: one for one in fields(cls) if one.init and "saved" in one.metadata}
        order = (name for kind in cls.__mro__ for name in vars(kind).get("__annotations__", ()))
        return {name: by_name[name] for name in dict.fromkeys(order) if name in by_name}

    def __post_init__(self) -> None:
        """Check the settings.

        Raises:
            InputError: One of them has a value that it cannot have.
        """
        super().__init__()
        for name in self.declared():
            self._check(name, getattr(self, name))

    def _check(self, name: str, value: Any) -> None:
        """Check a value of a setting."""
        about = self.declared()[name].metadata
        listed = _listed_values(typing.get_type_hints(type(self))[name])
        if about["least"] is not None:
            if value is not None or None not in listed:
                check_whole(name, value, about["least"], about["most"])
        elif set(listed) - {None} and (type(value), value) not in [(type(v), v) for v in listed]:
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
    if kind is bool:
        return (False, True)
    if typing.get_origin(kind) is Literal:
        return typing.get_args(kind)
    parts = typing.get_args(kind)
    return (None,) if kind is NoneType else tuple(v for p in parts for v in _listed_values(p))


def check_whole(name: str, value: int, least: int = 1, most: int = MOST) -> int:
    """Check that a setting is a whole number.

    Raises:
        InputError: It is something else, less than `least` or more than `most`.
    """
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise InputError(
            f"{name} is {value!r}",
            expected=f"a whole number from {least} to {most:,}",
            remedy=f"pass {name}={max(least, 5)}",
        )
    return value


# --- What every program has in common: how it is called, searches and answers.

ROOM_FOR_REPLY = {"read": 500, "answer": 150}
"""About how many tokens a reply has: a step that reads, and an answer."""

LEAST_ROOM = 50
"""No prompt shows fewer tokens of passages."""

ANSWER_TOKENS = 450
"""About what an answer costs beside passages, graph and demos."""

OPTIONAL = ("reasoning", "candidate", "next_query")
"""What a signature of one's own may leave out of a judge's reply."""

Signatures = dict[str, type[dspy.Signature]]


@dataclass
class State:
    """Everything known about one question while it is being worked on.

    Attributes:
        question: The question.
        meter: What it cost so far.
        reading: The passages read and the queries tried.
        unread: Passages that were found and that no prompt of a round has shown yet.
        graph: The graph so far; empty in programs that keep none.
        notes: What is kept in words: notes, thoughts, or a transcript.
        steps: The rounds so far.
        failures: What failed outside of the rounds.
        opening: Why the first search is for the question, where the LM was to choose it.
        query_is_made: Whether the program made the next query, and not the LM.
        setbacks: How many updates of the notes in a row were no better.
        ending: The latest answer, in programs whose rounds give answers.
    """

    question: str
    meter: Meter = field(default_factory=Meter)
    reading: Reading = field(default_factory=Reading)
    unread: dict[int, Passage] = field(default_factory=dict)
    graph: KnowledgeGraph = field(default_factory=KnowledgeGraph)
    notes: str = ""
    steps: list[Step] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    opening: str = ""
    query_is_made: bool = False
    setbacks: int = 0
    ending: Conclusion | None = None

    @property
    def reasoning(self) -> str:
        """What the latest judge concluded."""
        return next((step.reasoning for step in reversed(self.steps) if step.reasoning), "")

    @property
    def unread_ids(self) -> tuple[str, ...]:
        """Ids of the passages that no prompt of a round has shown yet."""
        return tuple(passage.id for passage in self.unread.values())

    @property
    def candidate(self) -> str:
        """The latest answer that a judge saw."""
        return next((step.candidate for step in reversed(self.steps) if step.candidate), "")


def _replaced(value: Any, change: Callable[[PassageRetriever], Any], seen: dict[int, Any]) -> Any:
    """Return a value with other retrievers in the place of its own; the same where it has none.

    Modules are copied; predictors and whatever holds no retriever are shared.

    Args:
        value: A program, or one of its attributes.
        change: Gives the retriever that takes a retriever's place.
        seen: What became of values that were met before, by their identity.
    """
    if id(value) in seen:
        return seen[id(value)]
    seen[id(value)] = found = value
    if isinstance(value, PassageRetriever):
        found = change(value)
    elif isinstance(value, MethodType):
        found = MethodType(value.__func__, _replaced(value.__self__, change, seen))
    elif isinstance(value, dspy.Tool):
        methods = {n: part for n, part in vars(value).items() if isinstance(part, MethodType)}
        found = value.model_copy(update=_replaced(methods, change, seen)) if methods else value
    elif type(value) in (list, tuple):
        parts = [_replaced(part, change, seen) for part in value]
        if any(new is not old for new, old in zip(parts, value, strict=True)):
            found = type(value)(parts)
    elif type(value) is dict:
        named = {name: _replaced(part, change, seen) for name, part in value.items()}
        if any(part is not value[name] for name, part in named.items()):
            found = named
    elif isinstance(value, dspy.Module) and not isinstance(value, dspy.Predict):
        seen[id(value)] = found = object.__new__(type(value))
        kept = dict(vars(value), history=[])
        for name in _FORWARDS if isinstance(value, MultiHopProgram) else ():
            kept.pop(name, None)  # one that was put there would call the whole program
        vars(found).update(_replaced(kept, change, seen))
    seen[id(value)] = found
    return found


_FORWARDS = ("forward", "aforward")


def _taking_where(forward: Callable[..., Any]) -> Callable[..., Any]:
    """A `forward` or `aforward` that, called with `where=`, runs on `program.only(where)`.

    Whatever stands between the caller and it (asyncify, batch, an optimizer's patch) hands on its
    arguments, so that the conditions arrive; the method itself never sees them.
    """

    @wraps(forward)
    def run(self: MultiHopProgram, *args: Any, where: Where | None = None, **named: Any) -> Any:
        asked = self if where is None else _replaced(self, lambda one: one.only(where), {})
        return forward(asked, *args, **named)

    described = inspect.signature(forward)
    own = [one for one in described.parameters.values() if one.name != "where"]
    where = inspect.Parameter("where", inspect.Parameter.KEYWORD_ONLY, default=None)
    parts = sorted((*own, where), key=lambda parameter: parameter.kind)
    vars(run).update(takes_where=True, __signature__=described.replace(parameters=parts))
    return run


class MultiHopProgram(Configured):
    """A DSPy module that answers a question from passages.

    Call it with `program(question="…")`, or `await program.acall(question="…")`; with
    `config={"temperature": 0.7}` what stands there goes to the LM with each call. With
    `where={"lang": "en"}` the question is asked of `program.only({"lang": "en"})`. It returns a
    `Prediction`, with the same fields whichever program made it.

    An error of the LM or the retriever costs what it interrupts and no more: the question is
    answered from what was read, and `failures` names it. Only where nothing could be read, or no
    call of the question reached the LM, is the error raised.

    A subclass implements `converse` once, as a generator of searches and LM calls; threads and
    asyncio both run that one algorithm. It declares its settings in its class body, each with
    `setting(…)`, and says in `signatures` what the LM is asked; the last step is called `answer`.
    Each predictor may be replaced by another module that takes the same inputs. A setting may be
    changed by assignment, `program.k = 7`, as long as that costs no predictor its demos or its
    instruction.
    """

    retriever: Any = field(
        kw_only=False,
        metadata={"doc": "Anything `ga_dspy.retrieval.as_retriever` takes; may be set to another."},
    )
    k: int = setting("Passages a query.", default=5, least=1, most=1000)
    passage_tokens: int = setting("Budget for the passages in a prompt.", default=6000, least=50)
    token_budget: int | None = setting(
        "As many tokens as a question may cost, all calls together; None for no limit. Passages "
        "are cut so that the answer's share is left; the search ends where another round would "
        "take of it.",
        default=None,
        least=2000,
    )
    abstain: Literal["quoted", "chained"] | None = setting(
        'Give an empty answer where it is not supported: "quoted" asks for a cited passage that '
        'holds it, "chained" for a chain of stated links from the question to it.',
        default=None,
    )
    count: TokenCounter = setting(
        "Counts the tokens of a text.", default=estimate_tokens, saved=False
    )

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name in _FORWARDS:
            method = inspect.getattr_static(cls, name)
            if not hasattr(method, "takes_where"):
                setattr(cls, name, _taking_where(method))

    def __post_init__(self) -> None:
        """Check the settings; make the predictors."""
        super().__post_init__()
        for name, signature in self.signatures().items():
            setattr(self, name, self._predictor(signature))

    def _predictor(self, signature: type[dspy.Signature]) -> dspy.Predict:
        """A predictor that starts with worked examples, which an optimizer may replace."""
        predictor = dspy.Predict(signature)
        predictor.demos = self._examples(signature)
        return predictor

    def _examples(self, signature: type[dspy.Signature]) -> list[dspy.Example]:
        """The demos with which a predictor starts."""
        return examples(signature)

    def __setattr__(self, name: str, value: Any) -> None:
        """Take another retriever, predictor or setting.

        Raises:
            InputError: A setting cannot have the value, or would cost a predictor what it learned.
        """
        if name == "retriever":
            value = as_retriever(value)
        elif name == "answer" and isinstance(value, dspy.Module):
            signature = own_signature(value)
            if signature is not None:
                check_outputs(signature.output_fields.keys())
        if name in vars(self) and name in self.declared():
            self._set(name, value)
        else:
            super().__setattr__(name, value)

    def _set(self, name: str, value: Any) -> None:
        """Change a setting; make the predictors again that rest on it."""
        self._check(name, value)
        before, old = self.signatures(), vars(self)[name]
        self.__dict__[name] = value
        try:
            after = self.signatures()
            changed = [n for n in before if n not in after or not _is_same(before[n], after[n])]
            kept = [n for n in changed if n in after and self._keeps(n, before[n], after[n])]
            lost = [n for n in changed if n not in kept and self._is_tuned(n, before[n])]
            if lost:
                raise InputError(
                    f"{name}={value!r} changes what {', '.join(lost)} asks",
                    expected="a predictor without demos, instruction or LM of its own there",
                    remedy=f"make another program with {name}={value!r}, and compile that",
                )
        except InputError:
            self.__dict__[name] = old
            raise
        for step in changed:
            if step in kept:
                predictor = copy.copy(getattr(self, step))  # `only` shares the one that is here
                predictor.signature = after[step]
                setattr(self, step, predictor)
            else:
                delattr(self, step)
        for step in after.keys() - vars(self).keys():
            setattr(self, step, self._predictor(after[step]))

    def _keeps(self, step: str, old: type[dspy.Signature], new: type[dspy.Signature]) -> bool:
        """Whether a predictor can take a signature and keep its demos: the fields are the same."""
        module = getattr(self, step)
        is_ours = isinstance(module, dspy.Predict) and module.signature.equals(old)
        return is_ours and list(old.fields) == list(new.fields)

    def _is_tuned(self, step: str, signature: type[dspy.Signature]) -> bool:
        """Whether a predictor is another than the program made."""
        module = getattr(self, step)
        if not isinstance(module, dspy.Predict) or not module.signature.equals(signature):
            return True
        is_as_made = module.demos == self._examples(signature) and not module.config
        return not is_as_made or module.lm is not None

    def load_state(self, state: Mapping[str, Any], **options: Any) -> None:
        """Take over demos and instructions that `dump_state` gave.

        Raises:
            InputError: They are of other predictors than this program's.
        """
        names = [name for name, _ in self.named_parameters()]
        stated = [name for name in state if name != "metadata"]
        if set(names) != set(stated):
            raise InputError(
                f"the state is of the predictors {', '.join(stated)}",
                expected=", ".join(names),
                remedy="make the program with the settings that the saved one had",
            )
        super().load_state(state, **options)

    def as_teacher(self) -> Self:
        """The program that optimizers take demos from: one that asks in every step, saving none."""
        return self

    def signatures(self) -> Signatures:
        """What the LM is asked under these settings: signatures by the predictor's name."""
        return {}

    def step_lms(self) -> dict[str, dspy.BaseLM]:
        """The LMs of steps that have one of their own (`program.read.lm = …`), by predictor."""
        return {name: p.lm for name, p in self.named_predictors() if p.lm is not None}

    def lm_names(self) -> dict[str, str]:
        """The names of the LMs that the steps ask, by step; of the configured one too."""
        asked = ((name, p.lm or dspy.settings.lm) for name, p in self.named_predictors())
        return {name.partition(".")[0]: str(lm.model) for name, lm in asked if lm is not None}

    def set_step_lms(self, lms: Mapping[str, dspy.BaseLM | None]) -> None:
        """Give steps LMs of their own, by the predictor's name; None for the configured LM.

        Raises:
            InputError: The program has no such step.
        """
        predictors = dict(self.named_predictors())
        for name in lms:
            if name not in predictors:
                raise unknown_step(name, predictors)
        for name, lm in lms.items():
            predictors[name].lm = lm

    def check_ready(self) -> None:
        """Check that questions can be asked, before any is.

        Raises:
            InputError: The retriever lacks a condition that it requires, or something that the
                program needs.
        """
        if (retriever := vars(self).get("retriever")) is not None:
            retriever.check_scope()

    def converse(self, state: State) -> Conversation[dspy.Prediction]:
        """The algorithm."""
        raise TypeError(f"{type(self).__name__} must implement converse(state)")

    @_taking_where
    def forward(self, question: str, config: Mapping[str, Any] | None = None) -> dspy.Prediction:
        """Answer a question.

        Args:
            question: The question.
            config: What every LM call is sent beside its prompt, such as a temperature.
        """
        with self._rights():
            return drive(self._told(question), config=config)

    @_taking_where
    async def aforward(
        self, question: str, config: Mapping[str, Any] | None = None, **more: Any
    ) -> dspy.Prediction:
        """Answer a question from a coroutine; by `forward` where a subclass has its own.

        Args:
            question: The question.
            config: As of `forward`.
            more: What else the `forward` of a subclass takes.
        """
        order = type(self).__mro__
        forward, aforward = (
            next(place for place, kind in enumerate(order) if name in vars(kind))
            for name in _FORWARDS
        )
        if forward < aforward:
            given = more if config is None else {"config": config, **more}
            return await in_thread(partial(type(self).forward, self, question=question, **given))
        if more:
            raise TypeError(f"{type(self).__name__} takes no {', '.join(more)}")
        with self._rights():
            return await adrive(self._told(question), config=config)

    @property
    def scope(self) -> tuple[Where, ...]:
        """The conditions that every passage it reads meets, all of them."""
        retriever: PassageRetriever = self.retriever
        return retriever.scope

    def only(self, where: Where) -> Self:
        """Return this program over the passages that meet conditions (`Index.only`).

        The predictors are shared, all else is a shallow copy. Retrievers, programs, modules and
        tools (`as_tool`) among the attributes are narrowed with it. What the code of a subclass
        searches by other ways is not: an index that must not be searched without a condition says
        so itself (`Index.open(…, require=["tenant"])`).

        Raises:
            InputError: A retriever cannot keep conditions, or one of them is malformed; or
                `forward` was replaced on this object, such as by `dspy.syncify`.
        """
        return self._with_retrievers(lambda retriever: retriever.only(where))

    def _with_retrievers(self, change: Callable[[PassageRetriever], Any]) -> Self:
        """A copy with other retrievers in the place of its own."""
        if put := sorted(vars(self).keys() & set(_FORWARDS)):
            raise InputError(
                f"the {put[0]} of this {type(self).__name__} was replaced",
                expected="a program as its class makes it",
                remedy="narrow the program first, then call dspy.syncify or what else wraps it",
            )
        found: Self = _replaced(self, change, {})
        return found

    def _rights(self) -> AbstractContextManager[Any]:
        """What holds while a question is answered for whoever asks it."""
        return nullcontext()

    def _told(self, question: str) -> Conversation[dspy.Prediction]:
        """The algorithm from the start, and its end told to whoever watches."""
        prediction = yield from self.converse(self.start(question))
        said = prediction.answer or "(no answer)"
        yield from tell("answer", f"answer: {said}", lambda: as_json(prediction))
        return prediction

    def _end_step(self, state: State, step: Step) -> Conversation[None]:
        """Add a finished step, and tell whoever watches."""
        state.steps.append(step)
        yield from tell("step", step_message(step), lambda: step_as_json(step))

    def as_tool(self, name: str = "answer_from_documents", desc: str = "") -> dspy.Tool:
        """Return this program as a tool of an agent, which is awaited where its agent is.

        It takes a question and returns the answer, how it is supported, and the numbered evidence.
        The agent's optimizer does not see the program's predictors: compile the program first.

        Args:
            name: The tool's name.
            desc: What the agent is told of it; by default that it answers from documents.
        """
        return _Tool(
            self._observe,
            self._aobserve,
            name=name,
            desc=desc or "Answers a question from the documents at hand, and quotes its evidence.",
            arg_desc={"question": "one complete question that needs no context to be understood"},
        )

    def _observe(self, question: str) -> str:
        return observation(self(question=question))

    async def _aobserve(self, question: str) -> str:
        return observation(await self.acall(question=question))

    def start(self, question: str) -> State:
        """What is known of a question before anything was read.

        Raises:
            InputError: The question is blank, or no text; or a condition that the retriever
                requires is missing.
        """
        self.check_ready()
        return State(_stripped(question))

    def _ask(
        self, state: State, name: str, inputs: Mapping[str, Any], *required: str
    ) -> Conversation[dspy.Prediction]:
        """Ask the predictor of that name; of its outputs only the required ones must be there."""
        # They enter the trace: a demonstration may not have another step's fields as its outputs.
        optional = OPTIONAL if "judgement" in required else ()
        module = getattr(self, name)
        asked = ask(name, module, inputs, state.meter, required=required, optional=optional)
        return (yield from name_outage(name, asked))

    def _search(
        self, state: State, query: str, *, made: bool = False
    ) -> Conversation[dict[int, Passage]]:
        """Search; the passages that are new.

        Raises:
            StepFailed: The retriever failed, and something was read before.
        """
        try:
            found = yield Search(self.retriever, query, self.k)
        except RunAborted:
            raise
        except Exception as error:
            if not state.reading.passages:
                raise
            state.meter.may_pass |= may_pass(error)
            raise StepFailed.from_error("search", error) from error
        return state.reading.add(query, found, made=made)

    def _retrieve(self, state: State, step: Step) -> Conversation[tuple[Step, dict[int, Passage]]]:
        """Search a step's query; the step with what it returned, and what is new."""
        query, reading = step.reformulated or step.query, state.reading
        yield from tell_search(step.number, query)
        made = step.made or bool(step.reformulated)
        fresh = yield from self._search(state, query, made=made)
        returned = [reading.passages[label].id for label in reading.tried[-1].labels]
        ids = {
            "retrieved": tuple(dict.fromkeys((*step.retrieved, *returned))),
            "passage_ids": (*step.passage_ids, *(passage.id for passage in fresh.values())),
        }
        yield from tell_passages(step.number, fresh, ids["retrieved"])
        return step.replace(**ids), fresh

    def _conclude(self, state: State) -> Conversation[dspy.Prediction]:
        """Answer from everything that was read, unless a round gave the answer."""
        if state.ending is None:
            yield from tell("answering", "answering from what was read", dict)
            try:
                state.ending = yield from self._answer(state)
            except StepFailed as failure:
                if not state.meter.answered:
                    cause = failure.__cause__ or failure
                    raise cause from cause.__cause__
                state.failures.append(str(failure))
                state.ending = Conclusion.without_citing(state.candidate, state.reading.passages)
        return self._prediction(state, state.ending)

    def _answer(self, state: State) -> Conversation[Conclusion]:
        """Ask for the answer; where the budget allows no further call, the judge's has to do."""
        beside, passages = self._answer_inputs(state), state.reading.passages
        shown, titled = self._answer_passages(state)
        room = self._room(state, "answer", *beside.values())
        if room < LEAST_ROOM and state.steps and state.meter.calls:
            state.failures.append("the token budget left nothing for an answer of its own")
            return Conclusion.without_citing(state.candidate, passages)
        fitted = fit_passages(
            shown, max(room, LEAST_ROOM), self.count, self._served_first(state), titled
        )
        inputs = {
            "question": state.question,
            "passages": fitted.text,
            "candidate": state.candidate,
            "previous_reasoning": state.reasoning,
            **beside,
        }
        reply = yield from self._ask(state, "answer", inputs, "answer")
        end = self._concluded(reply, passages, fitted.left_out)
        is_lost = state.candidate and not end.answer and end.verdict != "premise refuted"
        if not is_lost:
            return end
        return end._replace(answer=state.candidate, verdict="not in passages")

    def _concluded(
        self, reply: dspy.Prediction, passages: Labelled, left_out: tuple[int, ...]
    ) -> Conclusion:
        return Conclusion.from_reply(reply, passages, left_out)

    def _answer_inputs(self, state: State) -> dict[str, str]:
        """What the answer step is given beside question, passages and candidate."""
        return {}

    def _answer_passages(self, state: State) -> tuple[Labelled, Labelled]:
        """The passages that the answer step is shown, and those of which it sees the title."""
        return state.reading.passages, {}

    def _served_first(self, state: State) -> Sequence[int]:
        """Labels of the passages that the answer needs most, should not all fit."""
        return ()

    def _chain(self, state: State, end: Conclusion) -> tuple[EvidenceLink, ...]:
        """The chain from what the question names to the answer; none in programs without graph."""
        return ()

    def _room(self, state: State, step: str, *beside: str) -> int:
        """Tokens for the passages of a step's prompt, which holds these texts as well.

        A step that is not the last leaves the answer its share.
        """
        if self.token_budget is None:
            return self.passage_tokens
        kind = "answer" if step == "answer" else "read"
        texts = [*beside, state.question, state.reasoning, state.candidate]
        texts += [] if step == "answer" else [state.reading.render_tried()]
        held = self._fixed(step) + ROOM_FOR_REPLY[kind] + sum(map(self.count, texts))
        share = 0 if step == "answer" else self._answer_share(state)
        left = self.token_budget - state.meter.tokens - held - share
        return min(self.passage_tokens, left)

    def _fixed(self, step: str) -> int:
        """Tokens of a step's prompt when all its inputs are empty."""
        module = getattr(self, step)
        adapter = dspy.settings.adapter or usual_adapter(module)
        return sum(
            prompt_tokens(predictor.signature, adapter, self.count, predictor.demos)
            for predictor in module.predictors()
        )

    def _answer_share(self, state: State) -> int:
        """Tokens that the answer step needs in the end."""
        if "answer" not in self.signatures():
            return 0
        read = sum(self.count(passage.content) for passage in state.reading.passages.values())
        texts = [*self._answer_inputs(state).values(), state.question, state.reasoning]
        kept = sum(map(self.count, texts))
        most = min(self.passage_tokens, (self.token_budget or 0) // 4)
        return self._fixed("answer") + ROOM_FOR_REPLY["answer"] + kept + min(read, most)

    def _prediction(self, state: State, end: Conclusion) -> dspy.Prediction:
        passages = state.reading.passages
        cited = tuple(passages[label] for label in end.cited)
        evidence: tuple[EvidenceLink, ...] = ()
        supported: Support | None = None
        if end.answer and end.verdict != "not in passages":
            evidence = self._chain(state, end)
            supported = "chained" if evidence else None
            if not evidence and end.quoted and bears_on(state.question, end.answer, cited):
                supported = "quoted"
                evidence = end.quotes(cited, state.question)
        is_enough = self.abstain is None or supported in ("chained", self.abstain)
        stated = (step.failure for step in state.steps if step.failure)
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
            failures=(*stated, *state.failures),
            may_pass=state.meter.may_pass,
            usage=dict(state.meter.usage),
            calls=state.meter.calls,
            tokens=state.meter.tokens,
            # The last field is what `dspy.majority` counts.
            answer=end.answer if is_enough else "",
        )


def name_outage(step: str, conversation: Conversation[Result]) -> Conversation[Result]:
    """Carry on a conversation; an error that is not ours is an outage of that step."""
    try:
        return (yield from conversation)
    except Exception as error:
        if is_ours(error):
            raise
        raise StepFailed.from_error(step, error) from error


def unknown_step(name: str, steps: Collection[str]) -> InputError:
    """The error of an LM for a step that no program has."""
    return InputError(
        f"an LM for the step {name!r}",
        expected=f"one of {', '.join(steps)}",
        remedy="correct the name, or pass the LM for all steps",
    )


def split_lms(program: MultiHopProgram) -> tuple[MultiHopProgram, dict[str, dspy.BaseLM]]:
    """A copy of a program without LMs of its steps, and those LMs by the step's name.

    The program itself where no step has one.

    Raises:
        InputError: The predictors of one step have different LMs.
    """
    if not program.step_lms():
        return program, {}
    found = dict[str, Any]()
    for name, predictor in program.named_predictors():
        step = name.partition(".")[0]
        if found.setdefault(step, predictor.lm) is not predictor.lm:
            raise InputError(
                f"the predictors of step {step!r} have different LMs",
                expected="one LM for each step",
                remedy="give all predictors of the step the same LM",
            )
        note_secrets(predictor.lm)
    bare = program.deepcopy()
    bare.set_lm(None)
    return bare, {step: lm for step, lm in found.items() if lm is not None}


def _is_same(one: type[dspy.Signature], other: type[dspy.Signature]) -> bool:
    """Whether two signatures ask the same."""
    kinds = ({name: field.annotation for name, field in s.fields.items()} for s in (one, other))
    return [*next(kinds).items()] == [*next(kinds).items()] and one.equals(other)


class _Tool(dspy.Tool):
    """A tool that is called by `function`, and awaited by `coroutine`."""

    coroutine: Callable[..., Any]

    def __init__(
        self, function: Callable[..., Any], coroutine: Callable[..., Any], **about: Any
    ) -> None:
        BaseModel.__init__(self, func=function, coroutine=coroutine, **about)
        self._parse_function(function, self.arg_desc)

    @with_callbacks  # type: ignore[untyped-decorator]
    async def acall(self, **kwargs: Any) -> Any:
        """Call the coroutine."""
        return await self.coroutine(**self._validate_and_parse_args(**kwargs))


def observation(prediction: dspy.Prediction) -> str:
    """What an agent sees of an answer: the answer, how it is supported, the numbered evidence."""
    said = prediction.answer or "(no answer)"
    if not prediction.answer and prediction.guess:
        said = f"(no supported answer; a guess: {prediction.guess})"
    how = {
        "chained": "a chain of stated links",
        "quoted": "quoted in a passage",
        None: "not supported by a passage",
    }
    lines = [f"{n}. {link}" for n, link in enumerate(prediction.evidence, 1)]
    return "\n".join([said, f"[{how[prediction.supported]}]", *lines])


LONGEST_QUESTION = 20_000
"""Characters of a question; what is longer is a document."""


def _stripped(question: Any) -> str:
    if getattr(question, "shape", None) == ():  # MLflow passes a text as a NumPy scalar
        question = question.item()
    is_text = isinstance(question, str) and question.strip()
    if not is_text or len(question) > LONGEST_QUESTION:
        long = f"{len(question):,} characters long" if is_text else repr(question)
        raise InputError(
            f"the question is {long}",
            expected=f"a text of at most {LONGEST_QUESTION:,} characters that is not empty",
            remedy='call program(question="Who …?"); put documents into the index',
        )
    return sound(question.strip())


# --- The loop that every iterative program shares: a query, a round, the next query, the answer.


class IterativeProgram(MultiHopProgram):
    """Searches and reads in rounds, then answers.

    A subclass says in `_read` what an LM makes of a round's passages: the step it returns has the
    next query, and is "sufficient" where the search may end. A round that fails carries the
    failure; `_after_failure` may name another query.
    """

    max_steps: int = setting(
        "The most rounds of retrieval (the paper's T).", default=4, least=1, most=100
    )

    def converse(self, state: State) -> Conversation[dspy.Prediction]:
        """The algorithm: at most `max_steps` rounds of searching and reading, then the answer."""
        query = yield from self._first_query(state)
        while query:
            step = yield from self._round(state, query)
            yield from self._end_step(state, step)
            query = "" if self._ends(step) else step.next_query
        return (yield from self._conclude(state))

    def _first_query(self, state: State) -> Conversation[str]:
        """What is searched first: the question itself."""
        yield from ()
        return state.question

    def _ends(self, step: Step) -> bool:
        """Whether the search ends with this step."""
        is_done = step.judgement in ("sufficient", "exhausted")
        return bool(is_done or step.number >= self.max_steps)

    def _round(self, state: State, query: str) -> Conversation[Step]:
        spent, number = state.meter.tokens, len(state.steps) + 1
        opening = state.opening if number == 1 else ""
        kept = {"graph": state.graph, "notes": state.notes}
        step = Step(number=number, query=query, made=state.query_is_made, rule=opening, **kept)
        state.query_is_made = False
        try:
            step, fresh = yield from self._retrieve(state, step)
            step = yield from self._read(state, step, fresh)
        except StepFailed as failure:
            left = {"graph": state.graph, "notes": state.notes, "unread": state.unread_ids}
            step = self._after_failure(state, step.replace(failure=str(failure), **left))
        return self._within_budget(state, step, state.meter.tokens - spent)

    def _read(self, state: State, step: Step, fresh: Labelled) -> Conversation[Step]:
        """What an LM makes of the new passages."""
        raise TypeError(f"{type(self).__name__} must implement _read(state, step, fresh)")

    def _after_failure(self, state: State, step: Step) -> Step:
        """A step that failed, with what to search next; nothing where the search ends."""
        return step

    def _within_budget(self, state: State, step: Step, cost: int) -> Step:
        """End the search if another round at the cost of this one leaves too few tokens."""
        if self.token_budget is None or self._ends(step) or not step.next_query:
            return step
        if state.meter.tokens + cost + self._answer_share(state) <= self.token_budget:
            return step
        rule = "the token budget allows no further round: the search ends"
        return step.add_rule(rule, next_query="")
