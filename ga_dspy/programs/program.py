"""MultiHopProgram: the base class of all programs, with settings, calls, conditions and tools.

A custom program overrides `converse` (the algorithm) and `signatures` (the prompts);
`answer_inputs` if its answer step reads more than passages, and `check_ready` if it needs more
than a retriever. `ga_dspy.programs.loop` has the functions that `converse` is written with.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import field
from functools import partial, wraps
from types import MethodType
from typing import Any, Literal, Self

import dspy
from dspy.utils import with_callbacks

from ga_dspy.errors import InputError
from ga_dspy.passage import replace_invalid
from ga_dspy.programs.calls import Conversation, adrive, drive, only_signature
from ga_dspy.programs.events import tell
from ga_dspy.programs.loop import OBSERVERS, State
from ga_dspy.programs.prediction import Asked, as_json, check_outputs, observation
from ga_dspy.programs.settings import Configured, setting
from ga_dspy.retrieval import as_retriever
from ga_dspy.retrieval.protocol import PassageRetriever
from ga_dspy.retrieval.where import Where
from ga_dspy.secrets import note_secrets
from ga_dspy.signatures import CompareFacts
from ga_dspy.signatures.examples import examples
from ga_dspy.storage import in_thread
from ga_dspy.text import TokenCounter, estimate_tokens

ANSWER_TOKENS = 450
"""Estimated tokens of an answer call without passages, graph and demos."""

MAX_QUESTION_LENGTH = 20_000
"""The maximum length of a question in characters."""

Signatures = dict[str, type[dspy.Signature]]
"""The signature of each step, by the predictor's name."""

_FORWARDS = ("forward", "aforward")


def _taking_where(forward: Callable[..., Any]) -> Callable[..., Any]:
    """Return a `forward` or `aforward` that, called with `where=`, runs on `program.only(where)`.

    A wrapper around the program (asyncify, batch, an optimizer's patch) passes its arguments on, so
    the conditions reach this function; the wrapped method never sees them.
    """

    @wraps(forward)
    def run(self: MultiHopProgram, *args: Any, where: Where | None = None, **named: Any) -> Any:
        program = self if where is None else _with_retrievers(self, lambda r: r.only(where), {})
        return forward(program, *args, **named)

    signature = inspect.signature(forward)
    own = [parameter for parameter in signature.parameters.values() if parameter.name != "where"]
    where = inspect.Parameter("where", inspect.Parameter.KEYWORD_ONLY, default=None)
    parameters = sorted((*own, where), key=lambda parameter: parameter.kind)
    vars(run).update(takes_where=True, __signature__=signature.replace(parameters=parameters))
    return run


class MultiHopProgram(Configured):
    """A DSPy module that answers a question from passages.

    Call it with `program(question="…")`, or `await program.acall(question="…")`. Pass
    `config={"temperature": 0.7}` to send parameters with every LM call, and `where={"lang": "en"}`
    to ask `program.only({"lang": "en"})`. Every program returns a `Prediction`.

    An error of the LM or the retriever loses only the call that it interrupts: the question is
    answered from the passages read so far, and `failures` names the error. The error is raised only
    if no passage could be read, or no LM call of the question was answered.

    A subclass implements `converse` once, as a generator of searches and LM calls that threads and
    asyncio both run. It declares its settings in its class body, each with `setting(…)`, and
    returns the signature of each step from `signatures`; the last step is called `answer`. Any
    predictor can be replaced by another module that takes the same inputs. Settings are attributes:
    `program.k = 7` works unless it would cost a predictor its demos or its instruction.
    """

    retriever: Any = field(
        kw_only=False,
        metadata={"doc": "Anything `ga_dspy.retrieval.as_retriever` takes; may be reassigned."},
    )
    k: int = setting("Passages to retrieve per query.", default=5, minimum=1, maximum=1000)
    passage_tokens: int = setting("Budget for the passages in a prompt.", default=6000, minimum=50)
    token_budget: int | None = setting(
        "Maximum tokens of a question over all calls; None for no limit. Passages are cut to leave "
        "room for the answer; the search ends if another round would exceed the budget.",
        default=None,
        minimum=2000,
    )
    abstain: Literal["quoted", "chained"] | None = setting(
        'Return an empty answer unless it is supported: "quoted" requires a cited passage that '
        'holds it, "chained" a chain of stated links from the question to it.',
        default=None,
    )
    compare_facts: bool = setting(
        "If the answer is yes, no or something that the question names, ask again, from the facts "
        "of the first reply alone: small LMs state two dates and then pick the wrong one.",
        default=False,
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
        """Check the settings; create the predictors."""
        super().__post_init__()
        for name, signature in self._steps().items():
            setattr(self, name, self._predictor(signature))

    def _steps(self) -> Signatures:
        """Return the signature of each step, including the comparison if `compare_facts` is set."""
        steps = self.signatures()
        if not self.compare_facts:
            return steps
        if "links" not in steps["answer"].output_fields or getattr(self, "style", "span") != "span":
            raise InputError(
                f"compare_facts=True, but the answer step of {type(self).__name__} states no facts",
                expected='an answer step with the output `links`, and style="span"',
                remedy="leave compare_facts out",
            )
        return {**steps, "comparison": CompareFacts}

    def _predictor(self, signature: type[dspy.Signature]) -> dspy.Predict:
        """Return a predictor with worked examples as demos, which an optimizer may replace."""
        predictor = dspy.Predict(signature)
        predictor.demos = self._examples(signature)
        return predictor

    def _examples(self, signature: type[dspy.Signature]) -> list[dspy.Example]:
        return examples(signature, getattr(self, "style", "span"))

    def __setattr__(self, name: str, value: Any) -> None:
        """Set a retriever, predictor or setting.

        Raises:
            InputError: A setting cannot have the value, or would cost a predictor its demos.
        """
        if name == "retriever":
            value = as_retriever(value)
        elif name == "answer" and isinstance(value, dspy.Module):
            signature = only_signature(value)
            if signature is not None:
                check_outputs(signature.output_fields.keys())
        if name in vars(self) and name in self.declared():
            self._set(name, value)
        else:
            super().__setattr__(name, value)

    def _set(self, name: str, value: Any) -> None:
        """Change a setting; replace the predictors whose signatures depend on it."""
        self._check(name, value)
        changed = copy.copy(self)
        changed.__dict__[name] = value
        before, after = self._steps(), changed._steps()
        steps = [n for n in before if n not in after or not _is_same(before[n], after[n])]
        if tuned := [step for step in steps if self._is_tuned(step, before[step])]:
            raise InputError(
                f"{name}={value!r} changes what {', '.join(tuned)} asks",
                expected="predictors without custom demos, instructions or LMs",
                remedy=f"make another program with {name}={value!r}, and compile that",
            )
        self.__dict__[name] = value
        for step in steps:
            delattr(self, step)
        for step in after.keys() - vars(self).keys():
            setattr(self, step, self._predictor(after[step]))

    def _is_tuned(self, step: str, signature: type[dspy.Signature]) -> bool:
        """Return whether a predictor differs from the one that the program created."""
        module = getattr(self, step)
        if not isinstance(module, dspy.Predict) or not module.signature.equals(signature):
            return True
        is_original = module.demos == self._examples(signature) and not module.config
        return not is_original or module.lm is not None

    def load_state(self, state: Mapping[str, Any], **options: Any) -> None:
        """Load demos and instructions from `dump_state`.

        Raises:
            InputError: The state has other predictors than this program.
        """
        names = [name for name, _ in self.named_parameters()]
        in_state = [name for name in state if name != "metadata"]
        if set(names) != set(in_state):
            raise InputError(
                f"the state has the predictors {', '.join(in_state)}",
                expected=", ".join(names),
                remedy="make the program with the settings that the saved one had",
            )
        super().load_state(state, **options)

    def as_teacher(self) -> Self:
        """Return the program that optimizers take demos from; it must skip no step."""
        return self

    def signatures(self) -> Signatures:
        """Return the signature of each step under these settings, by the predictor's name."""
        return {}

    def step_lms(self) -> dict[str, dspy.BaseLM]:
        """Return the LMs of steps that have their own (`program.read.lm = …`), by predictor."""
        return {name: p.lm for name, p in self.named_predictors() if p.lm is not None}

    def lm_names(self) -> dict[str, str]:
        """Return the name of the LM of each step, including the configured one."""
        lms = ((name, p.lm or dspy.settings.lm) for name, p in self.named_predictors())
        return {name.partition(".")[0]: str(lm.model) for name, lm in lms if lm is not None}

    def set_step_lms(self, lms: Mapping[str, dspy.BaseLM | None]) -> None:
        """Set the LMs of steps, by the predictor's name; None for the configured LM.

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
        """Check that the program can answer questions.

        Raises:
            InputError: A condition that the retriever requires is missing, or something that the
                program needs.
        """
        if (retriever := vars(self).get("retriever")) is not None:
            retriever.check_scope()

    def converse(self, state: State) -> Conversation[dspy.Prediction]:
        """Search, read and answer: the algorithm, as a generator of searches and LM calls."""
        raise TypeError(f"{type(self).__name__} must implement converse(state)")

    def answer_inputs(self, state: State) -> dict[str, str]:
        """Return the inputs of the answer step other than question, passages and candidate."""
        return {}

    @_taking_where
    def forward(self, question: str, config: Mapping[str, Any] | None = None) -> dspy.Prediction:
        """Answer a question.

        Args:
            question: The question.
            config: Parameters sent with every LM call, such as a temperature.
        """
        with self._access_scope():
            return drive(self._run_with_events(question, config))

    @_taking_where
    async def aforward(
        self, question: str, config: Mapping[str, Any] | None = None, **more: Any
    ) -> dspy.Prediction:
        """Answer a question from a coroutine; if a subclass overrides `forward`, in a thread.

        Args:
            question: The question.
            config: As in `forward`.
            more: Further arguments of a subclass's `forward`.
        """
        defining = next(kind for kind in type(self).__mro__ if {*_FORWARDS} & vars(kind).keys())
        if "aforward" not in vars(defining):
            options = more if config is None else {"config": config, **more}
            return await in_thread(partial(type(self).forward, self, question=question, **options))
        if more:
            raise TypeError(f"{type(self).__name__} takes no {', '.join(more)}")
        with self._access_scope():
            return await adrive(self._run_with_events(question, config))

    @property
    def scope(self) -> tuple[Where, ...]:
        """The conditions that all passages the program reads meet."""
        retriever: PassageRetriever = self.retriever
        return retriever.scope

    def only(self, where: Where) -> Self:
        """Return this program restricted to passages that meet conditions (`Index.only`).

        The predictors are shared, all else is a shallow copy. Retrievers, programs, modules and
        tools (`as_tool`) among the attributes are restricted too; whatever else a subclass searches
        is not. To forbid searches of an index without a condition, open it with
        `Index.open(…, require=["tenant"])`.

        Raises:
            InputError: A retriever cannot apply conditions, a condition is malformed, or `forward`
                was replaced on this object, for example by `dspy.syncify`.
        """
        return self.with_retrievers(lambda retriever: retriever.only(where))

    def with_retrievers(self, change: Callable[[PassageRetriever], Any]) -> Self:
        """Return a copy with changed retrievers."""
        if replaced := sorted(vars(self).keys() & set(_FORWARDS)):
            raise InputError(
                f"the {replaced[0]} of this {type(self).__name__} was replaced",
                expected="a program with the methods of its class",
                remedy="restrict the program first, then call dspy.syncify or another wrapper",
            )
        program: Self = _with_retrievers(self, change, {})
        return program

    def _access_scope(self) -> AbstractContextManager[Any]:
        """Return the context manager under which a question is answered."""
        return nullcontext()

    def _run_with_events(
        self, question: str, config: Mapping[str, Any] | None
    ) -> Conversation[dspy.Prediction]:
        state = self.start(question)
        state.meter.config = config or {}
        conversation = self.converse(state)
        for observer in OBSERVERS:
            conversation = observer(state, conversation)
        prediction = yield from conversation
        # An attribute, not a field: it is neither stored nor sent.
        asked = Asked(state.question, type(self).__name__, bool(self.scope))
        vars(prediction)["asked"] = asked
        shown = prediction.answer or "(no answer)"
        yield from tell("answer", lambda: (f"answer: {shown}", as_json(prediction)))
        return prediction

    def as_tool(self, name: str = "answer_from_documents", desc: str = "") -> dspy.Tool:
        """Return this program as a tool for agents, synchronous or asynchronous.

        It takes a question and returns the answer, how it is supported, and the numbered evidence.
        The agent's optimizer does not see the program's predictors: compile the program first.

        Args:
            name: The tool's name.
            desc: The tool's description; by default, that it answers from documents.
        """
        tool = dspy.Tool(
            self._observe,
            name=name,
            desc=desc or "Answers a question from the documents at hand, and quotes its evidence.",
            arg_desc={"question": "one complete question that needs no context to be understood"},
        )
        return _Tool.model_construct(**dict(tool), coroutine=self._aobserve)

    def _observe(self, question: str) -> str:
        return observation(self(question=question))

    async def _aobserve(self, question: str) -> str:
        return observation(await self.acall(question=question))

    def start(self, question: str) -> State:
        """Return the initial state of a question.

        Raises:
            InputError: The question is blank or not a text, or a condition that the retriever
                requires is missing.
        """
        self.check_ready()
        return State(_checked_question(question), self)


class IterativeProgram(MultiHopProgram):
    """A program that searches and reads in rounds, then answers."""

    max_steps: int = setting(
        "Maximum rounds of retrieval (the paper's T).", default=4, minimum=1, maximum=100
    )


def unknown_step(name: str, steps: Collection[str]) -> InputError:
    """Return the error for an LM of a step that no program has."""
    return InputError(
        f"an LM for the step {name!r}",
        expected=f"one of {', '.join(steps)}",
        remedy="correct the name, or pass the LM for all steps",
    )


def split_lms(program: MultiHopProgram) -> tuple[MultiHopProgram, dict[str, dspy.BaseLM]]:
    """Return a copy of a program without its steps' LMs, and those LMs by step.

    If no step has one, the program itself is returned.

    Raises:
        InputError: The predictors of one step have different LMs.
    """
    if not program.step_lms():
        return program, {}
    lms = dict[str, Any]()
    for name, predictor in program.named_predictors():
        step = name.partition(".")[0]
        if lms.setdefault(step, predictor.lm) is not predictor.lm:
            raise InputError(
                f"the predictors of step {step!r} have different LMs",
                expected="one LM for each step",
                remedy="give all predictors of the step the same LM",
            )
        note_secrets(predictor.lm)
    bare = program.deepcopy()
    bare.set_lm(None)
    return bare, {step: lm for step, lm in lms.items() if lm is not None}


def _is_same(one: type[dspy.Signature], other: type[dspy.Signature]) -> bool:
    """Return whether two signatures have the same instruction, fields and types."""
    types = [(name, field.annotation) for name, field in one.fields.items()]
    others = [(name, field.annotation) for name, field in other.fields.items()]
    return types == others and one.equals(other)


class _Tool(dspy.Tool):
    """A tool with a coroutine for asynchronous calls besides its function."""

    coroutine: Callable[..., Any]

    @with_callbacks  # type: ignore[untyped-decorator]
    async def acall(self, **kwargs: Any) -> Any:
        """Call the coroutine."""
        return await self.coroutine(**self._validate_and_parse_args(**kwargs))


def _checked_question(question: Any) -> str:
    if getattr(question, "shape", None) == ():  # MLflow passes a text as a NumPy scalar
        question = question.item()
    is_text = isinstance(question, str) and question.strip()
    if not is_text or len(question) > MAX_QUESTION_LENGTH:
        found = f"{len(question):,} characters long" if is_text else repr(question)
        raise InputError(
            f"the question is {found}",
            expected=f"a text of at most {MAX_QUESTION_LENGTH:,} characters that is not empty",
            remedy='call program(question="Who …?"); put documents into the index',
        )
    return replace_invalid(question.strip())


def _with_retrievers(
    value: Any, change: Callable[[PassageRetriever], Any], seen: dict[int, Any]
) -> Any:
    """Return a value in which every retriever is replaced; the value itself if it has none.

    Modules are copied; predictors and everything without a retriever are shared.

    Args:
        value: A program, or one of its attributes.
        change: Returns the replacement of a retriever.
        seen: The results for values met before, by identity.
    """
    if id(value) in seen:
        return seen[id(value)]
    seen[id(value)] = result = value
    if isinstance(value, PassageRetriever):
        result = change(value)
    elif isinstance(value, MethodType):
        result = MethodType(value.__func__, _with_retrievers(value.__self__, change, seen))
    elif isinstance(value, dspy.Tool):
        methods = {n: part for n, part in vars(value).items() if isinstance(part, MethodType)}
        if methods:
            result = value.model_copy(update=_with_retrievers(methods, change, seen))
    elif type(value) in (list, tuple):
        parts = [_with_retrievers(part, change, seen) for part in value]
        if any(new is not old for new, old in zip(parts, value, strict=True)):
            result = type(value)(parts)
    elif type(value) is dict:
        entries = {name: _with_retrievers(part, change, seen) for name, part in value.items()}
        if any(part is not value[name] for name, part in entries.items()):
            result = entries
    elif isinstance(value, dspy.Module) and not isinstance(value, dspy.Predict):
        seen[id(value)] = result = object.__new__(type(value))
        attributes = dict(vars(value), history=[])
        if isinstance(value, MultiHopProgram):
            for name in _FORWARDS:
                attributes.pop(name, None)  # a replaced method would call the unrestricted program
        vars(result).update(_with_retrievers(attributes, change, seen))
    seen[id(value)] = result
    return result
