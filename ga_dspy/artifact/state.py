"""The content of an artifact: its manifest, and the prompts that optimization found."""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, TypeVar, get_type_hints

import dspy
from dspy.adapters.baml_adapter import BAMLAdapter
from pydantic import (
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    TypeAdapter,
    ValidationError,
)
from pydantic_core import from_json, to_jsonable_python

from ga_dspy import __version__, programs
from ga_dspy.errors import ArtifactError, InputError, listed
from ga_dspy.graphrag.program import GraphRAG
from ga_dspy.lm.adapters import PlainAdapter, SchemaAdapter
from ga_dspy.lm.dspy_private import (
    CUSTOM_TYPE_END_IDENTIFIER,
    CUSTOM_TYPE_START_IDENTIFIER,
    get_dependency_versions,
)
from ga_dspy.programs import IterativeProgram, MultiHopProgram

# --- Strict JSON

Shape = TypeVar("Shape", bound=BaseModel)


class Record(BaseModel):
    """A frozen value of an artifact; unknown keys and values of another type are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


def parsed(shape: type[Shape], data: bytes, where: str) -> Shape:
    """Read JSON into a value of a type.

    Raises:
        ArtifactError: It is not JSON, has a key twice or a number that is not finite, which other
            readers may read differently, has unknown keys, or another shape.
    """
    try:
        from_json(data, allow_inf_nan=False)  # NaN also where the type is any JSON value
        value = shape.model_validate_json(data)
        json.loads(data, object_pairs_hook=_once, parse_float=_finite, parse_constant=_finite)
        return value
    except ValidationError as error:
        faults = [
            f"{'.'.join(map(str, fault['loc'])) or 'the whole'}: {fault['msg']}"
            for fault in error.errors(include_url=False, include_input=False)
        ]
        found = f"does not have the expected shape: {listed(faults, between='; ')}"
        raise _damaged(f"{where} {found}") from error
    except ValueError as error:
        raise _damaged(f"{where} is not valid JSON ({error})") from error


def _once(pairs: list[tuple[str, Any]]) -> None:
    seen = set[str]()
    for name, _ in pairs:
        if name in seen:
            raise ValueError(f"the key {name!r} twice")
        seen.add(name)


def _finite(number: str) -> None:
    if not math.isfinite(float(number)):
        raise ValueError(f"the number {number[:20]}")


def _damaged(found: str) -> ArtifactError:
    return ArtifactError(
        found,
        expected="the file as this version's ga_dspy.artifact saves it",
        remedy="copy the artifact again, save it again, or install the version that wrote it",
    )


# --- manifest.json

FORMAT = 2
"""The newest version of the format that this code writes and reads."""

_INSTALL = "install the version named in the artifact's manifest"

_Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
# Names have no control characters and none that change the direction of text.
_Name = Annotated[str, Field(pattern=r"^\P{C}*$", max_length=500)]


class NamedLM(Record):
    """The LM of a predictor: name and sampling settings, never an address, a key or a header."""

    model: _Name
    settings: dict[_Name, int | float | str] = Field(default_factory=dict)

    def __str__(self) -> str:
        with_settings = [f"{name}={value!r}" for name, value in self.settings.items()]
        return ", ".join([self.model, *with_settings])


class Versions(Record):
    """The versions that wrote the artifact."""

    ga_dspy: _Name
    dspy: _Name


class Recipe(Record):
    """How the program was compiled."""

    name: _Name
    parameters: dict[_Name, JsonValue] = Field(default_factory=dict)


class Score(Record):
    """A mean in percent, and its 95 % interval if one was computed."""

    value: float = Field(ge=0, le=100)
    low: float | None = Field(default=None, ge=0, le=100)
    high: float | None = Field(default=None, ge=0, le=100)


class Scores(Record):
    """Scores before and after, on questions that the recipe did not learn from.

    Attributes:
        n: Number of questions that both programs answered.
        held_out: The question set, e.g. "test".
        shortfall: How many questions were asked, had no answer despite retries
            ("failures_before", "failures_after"), or had one despite a failed step
            ("degraded_before", …).
        before: Scores by metric ("f1", "em", …) of the program as given.
        after: Scores of the compiled program on the same questions.
        p_value: Two-sided, of a paired test.
        verdict: Whether the compiled program is better.
    """

    n: int = Field(ge=1)
    held_out: _Name = ""
    shortfall: dict[_Name, Annotated[int, Field(ge=0)]] = Field(default_factory=dict)
    before: dict[_Name, Score] = Field(default_factory=dict)
    after: dict[_Name, Score]
    p_value: float | None = Field(default=None, ge=0, le=1)
    verdict: Literal["better", "no better than before", "unchanged"] | None = None


class Cost(Record):
    """The cost of compiling.

    Attributes:
        calls: LM calls, including replayed ones.
        tokens: Prompt and completion tokens of those calls.
        money: US dollars; None if an LM has no known price.
        replayed: Calls reused from an earlier run.
        seconds: Duration.
    """

    calls: int = Field(ge=0)
    tokens: int = Field(ge=0)
    money: float | None = Field(default=None, ge=0)
    replayed: int = Field(default=0, ge=0)
    seconds: float | None = Field(default=None, ge=0)


class Manifest(Record):
    """What is known of a saved program, except its prompts.

    Attributes:
        format: Version of the artifact format.
        program: Name of the program's class among the known programs, never an import path.
        settings: The arguments of the program.
        versions: The versions that wrote it.
        sha256: Digest of program.json.
        created: When, with a time zone.
        recipe: How it was compiled; None if it was not.
        lms: Model name by role ("task", "reflection", …): a name only, never an address.
        predictor_lms: The LMs of predictors that have one of their own, by the predictor's name.
        data: What is known of each question set by role ("train", "test"): digest, size, …
        scores: Scores before and after compiling.
        cost: The cost of compiling.
    """

    format: int = Field(ge=1)
    program: _Name
    settings: dict[_Name, JsonValue]
    versions: Versions
    sha256: _Sha256
    created: AwareDatetime
    recipe: Recipe | None = None
    lms: dict[_Name, _Name] = Field(default_factory=dict)
    predictor_lms: dict[_Name, NamedLM] = Field(default_factory=dict)
    data: dict[_Name, dict[_Name, JsonValue]] = Field(default_factory=dict)
    scores: Scores | None = None
    cost: Cost | None = None
    predictors: JsonValue = Field(default=None, exclude=True)  # format 1; see program.json


class _Header(BaseModel):
    format: int = Field(strict=True, ge=1)
    versions: dict[str, Any] = Field(default_factory=dict)


def read_manifest(data: bytes, where: str) -> Manifest:
    """Read manifest.json.

    Raises:
        ArtifactError: Its format is later than this code's, or it is no manifest.
    """
    # The version first: what a later one adds must not be reported as unknown keys.
    header = parsed(_Header, data, where)
    if header.format > FORMAT:
        wrote = header.versions.get("ga_dspy", "the version that wrote it")
        raise ArtifactError(
            f"{where} is in format {header.format}, the installed ga-dspy {__version__} reads up "
            f"to format {FORMAT}",
            expected="a format that it reads",
            remedy=f"run: pip install 'ga-dspy>={wrote}'",
        )
    return parsed(Manifest, data, where)


# --- The programs that an artifact may name

ProgramClass = TypeVar("ProgramClass", bound=type[MultiHopProgram])

PROGRAMS: dict[str, type[MultiHopProgram]] = {
    name: found
    for name, found in (*vars(programs).items(), (GraphRAG.__name__, GraphRAG))
    if isinstance(found, type)
    and issubclass(found, MultiHopProgram)
    and found not in (MultiHopProgram, IterativeProgram)
}
"""Name to class: what `ga_dspy.programs` exports, `GraphRAG`, and what an app registers."""


def _unknown_program(name: str) -> ArtifactError:
    return ArtifactError(
        f"program {name!r} is unknown",
        expected=f"one of {', '.join(sorted(PROGRAMS))}",
        remedy="decorate your own class with ga_dspy.artifact.register where the app starts",
    )


def _invalid_setting(program: str, cause: str) -> ArtifactError:
    return ArtifactError(
        f"a setting of {program} is not valid: {cause}",
        expected="a value that the program takes",
        remedy="correct the override, or the settings in manifest.json",
    )


def register(program: ProgramClass) -> ProgramClass:
    """Register an app's own program, so that it can be saved and loaded; a decorator.

    The name in the artifact is the name of the class. The class takes a retriever first, and
    everything that its `settings()` names as keyword arguments.

    Raises:
        InputError: Another class has that name.
    """
    name = program.__name__
    if PROGRAMS.setdefault(name, program) is not program:
        raise InputError(
            f"a program named {name!r} is known already",
            expected="a name of its own",
            remedy="rename the class",
        )
    return program


def name_of(program: MultiHopProgram) -> str:
    """Return the name under which a program's class is registered.

    Raises:
        ArtifactError: It is not registered.
    """
    name = type(program).__name__
    if PROGRAMS.get(name) is not type(program):
        raise _unknown_program(name)
    return name


def build(name: str, settings: Mapping[str, Any], retriever: Any) -> MultiHopProgram:
    """Make a program from its settings, uncompiled.

    Args:
        name: A registered program.
        settings: Its settings; values may be in their JSON form.
        retriever: Anything `ga_dspy.retrieval.as_retriever` takes.

    Raises:
        ArtifactError: There is no such program, or the settings do not fit it.
    """
    if name not in PROGRAMS:
        raise _unknown_program(name)
    kind = PROGRAMS[name]
    checked = _checked(name, kind, settings)
    try:
        program = kind(retriever, **checked)
    except InputError as error:
        raise _invalid_setting(name, str(error)) from error
    for setting, value in program.settings().items():
        if setting not in settings and value is not None:  # a new setting that is unset is None
            raise ArtifactError(
                f"the artifact has no {setting!r} of {name}",
                expected="a value for every setting",
                remedy=f"pass {setting}=… to load, or {_INSTALL}",
            )
    return program


def _checked(name: str, kind: type[MultiHopProgram], settings: Mapping[str, Any]) -> dict[str, Any]:
    known = tuple(inspect.signature(kind.__init__).parameters)[2:]  # self, retriever
    hints = get_type_hints(kind.__init__)
    checked = {}
    for setting, value in settings.items():
        if setting not in known:
            raise ArtifactError(
                f"{name} has no setting {setting!r}",
                expected=f"one of {', '.join(known)}",
                remedy=f"remove it, or {_INSTALL}",
            )
        try:
            checked[setting] = _typed(hints.get(setting, Any), value)
        except ValidationError as error:
            cause = error.errors(include_url=False)[0]["msg"]
            raise _invalid_setting(name, f"{setting} is {value!r} ({cause})") from error
    return checked


def _typed(hint: Any, value: Any) -> Any:
    """Return the value as a type, strictly, except that a JSON list may be a tuple."""
    shape: TypeAdapter[Any] = TypeAdapter(hint)
    if isinstance(value, list | dict):
        return shape.validate_json(json.dumps(value), strict=True)
    return shape.validate_python(value, strict=True)


# --- program.json

_MARK = "augmented"  # DSPy's mark of a demo made from a trace
_MOST_DEMOS = 1000


class FieldState(Record):
    """The wording of a field in prompts."""

    name: _Name
    prefix: str
    description: str


class SignatureState(Record):
    """The instructions of a predictor and the wording of its fields, in order."""

    instructions: str
    fields: tuple[FieldState, ...]


class PredictorState(Record):
    """DSPy's state of a predictor, except its LM."""

    signature: SignatureState
    demos: tuple[dict[str, JsonValue], ...] = Field(default=(), max_length=_MOST_DEMOS)
    lm: None = None


class Metadata(Record):
    """The metadata that `dspy.Module.load` reads."""

    dependency_versions: dict[str, str]


class _ProgramState(Record):
    """The whole file: the predictors by name, and DSPy's metadata."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, PredictorState] = Field(init=False)

    metadata: Metadata


def dump(program: MultiHopProgram) -> dict[str, PredictorState]:
    """Return the state of every predictor; the program is not changed.

    Only what can reach a prompt is included: of a demo the values of the signature's fields, and no
    demo without any input or any output, which DSPy leaves out of prompts.

    Raises:
        PydanticSerializationError: A demo has a value that JSON cannot hold.
    """
    return {name: _state_of(predictor) for name, predictor in program.named_predictors()}


def _state_of(predictor: dspy.Predict) -> PredictorState:
    signature = predictor.signature
    # DSPy strips margins whenever it reads instructions; a text that a second stripping would
    # change is saved as it was before the first one.
    instructions: str = signature.instructions
    if inspect.cleandoc(instructions) != instructions:
        instructions = signature.__doc__ or instructions
    worded = tuple(
        FieldState(
            name=name,
            prefix=field.json_schema_extra["prefix"],
            description=field.json_schema_extra["desc"],
        )
        for name, field in signature.fields.items()
    )
    kept = {*signature.fields, _MARK}
    demos = tuple(
        {key: to_jsonable_python(value) for key, value in demo.items() if key in kept}
        for demo in predictor.demos
        if _is_shown(demo, signature)
    )
    wording = SignatureState(instructions=instructions, fields=worded)
    return PredictorState(signature=wording, demos=demos)


def _is_shown(demo: Mapping[str, Any], signature: Any) -> bool:
    sides = (signature.input_fields, signature.output_fields)
    return all(any(name in demo for name in side) for side in sides)


def as_json(states: Mapping[str, PredictorState]) -> dict[str, Any]:
    """Return the content of program.json, which `dspy.Module.load` reads as well."""
    content: dict[str, Any] = {
        name: state.model_dump(mode="json") for name, state in states.items()
    }
    return {**content, "metadata": {"dependency_versions": get_dependency_versions()}}


def read_states(data: bytes, where: str) -> dict[str, PredictorState]:
    """Read program.json.

    Raises:
        ArtifactError: It is not the state of a program.
    """
    return dict(parsed(_ProgramState, data, where).__pydantic_extra__)


def mismatches(
    states: Mapping[str, PredictorState], program: MultiHopProgram
) -> Iterator[ArtifactError]:
    """Yield what prevents a state from being applied to a program, by predictor."""

    def misfit(found: str, expected: str) -> ArtifactError:
        return ArtifactError(
            found, expected=expected, remedy=f"recompile the program, or {_INSTALL}"
        )

    predictors = dict(program.named_predictors())
    for name in (name for name in states if name not in predictors):
        yield misfit(f"program.json has a predictor {name!r}", f"{', '.join(predictors)} alone")
    for name, predictor in predictors.items():
        if name not in states:
            found = f"program.json has nothing for predictor {name!r}"
            yield misfit(found, "every predictor of the program")
            continue
        old = tuple(field.name for field in states[name].signature.fields)
        new = tuple(predictor.signature.fields)
        if old != new:
            found = f"predictor {name!r} was compiled with fields {old}, the code has {new}"
            yield misfit(found, "the same fields in the same order")
        for found, expected in _faults(name, states[name], predictor.signature):
            yield misfit(found, expected)


def _faults(name: str, state: PredictorState, signature: Any) -> Iterator[tuple[str, str]]:
    """Yield the texts of a predictor that no LM should see: what was found and expected."""
    if not state.signature.instructions.strip():
        yield f"predictor {name!r} has no instructions", "what the LM is asked to do"
    text = json.dumps(state.model_dump(mode="json"), ensure_ascii=False)
    if CUSTOM_TYPE_START_IDENTIFIER in text or CUSTOM_TYPE_END_IDENTIFIER in text:
        yield f"predictor {name!r} holds DSPy's mark of an image, a file or a tool", "plain text"
    kinds: dict[str, TypeAdapter[Any]] = {_MARK: TypeAdapter(bool)}
    for field, info in signature.fields.items():
        kinds[field] = TypeAdapter(info.rebuild_annotation())
    for number, demo in enumerate(state.demos, 1):
        where = f"demo {number} of predictor {name!r}"
        if unknown := tuple(key for key in demo if key not in kinds):
            yield f"{where} has unknown fields {unknown}", "fields of the predictor alone"
        if not _is_shown(demo, signature):
            yield f"{where} has the fields {tuple(demo)} alone", "an input and an output"
        for key in (key for key in demo if key in kinds):
            try:
                kinds[key].validate_python(demo[key])
            except ValidationError as error:
                cause = error.errors(include_url=False, include_input=False)[0]["msg"]
                yield f"{where} has {key} of another type ({cause})", "the signature's types"


def apply(states: Mapping[str, PredictorState], program: MultiHopProgram) -> None:
    """Apply a state to a program; check it with `mismatches` first."""
    for name, predictor in program.named_predictors():
        state = states[name].model_dump(mode="json")
        # Only these two keys: DSPy sets any other as an attribute, and would build an LM of "lm".
        predictor.load_state({"signature": state["signature"], "lm": None})
        inputs = tuple(predictor.signature.input_fields)
        predictor.demos = [dspy.Example(demo).with_inputs(*inputs) for demo in state["demos"]]


def rendered(program: MultiHopProgram) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """Return what each predictor sends to an LM under each adapter, except the inputs."""
    dspys = (dspy.ChatAdapter, dspy.JSONAdapter, dspy.XMLAdapter, BAMLAdapter)
    adapters = (PlainAdapter, SchemaAdapter, *dspys)
    return {
        (name, kind.__name__): kind().format(predictor.signature, predictor.demos, {})
        for name, predictor in program.named_predictors()
        for kind in adapters
    }
