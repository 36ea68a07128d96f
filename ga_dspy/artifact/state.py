"""program.json: what optimization found, a predictor at a time."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import Any

import dspy
from dspy.adapters.baml_adapter import BAMLAdapter
from dspy.adapters.utils import get_annotation_name
from dspy.utils.saving import get_dependency_versions
from pydantic import ConfigDict, Field, JsonValue, TypeAdapter
from pydantic_core import to_jsonable_python

from ga_dspy.artifact.errors import ArtifactError
from ga_dspy.artifact.manifest import FieldEntry, PredictorEntry
from ga_dspy.artifact.records import Record, parsed
from ga_dspy.programs import MultiHopProgram

_MARK = "augmented"  # DSPy's mark of a demo made from a trace


class MissingPredictor(ArtifactError):
    """The program has a predictor of which the artifact says nothing."""

    def __init__(self, predictor: str, where: str) -> None:
        super().__init__(
            f"{where} has nothing for predictor {predictor!r}; expected every predictor of the "
            "program; recompile it, or install the version named in the artifact's manifest"
        )
        self.predictor, self.where = predictor, where


class ExtraPredictor(ArtifactError):
    """The artifact has a predictor that the program does not have."""

    def __init__(self, predictor: str, where: str, known: tuple[str, ...]) -> None:
        super().__init__(
            f"{where} has a predictor {predictor!r}; expected {', '.join(known)} alone; "
            "recompile the program, or install the version named in the artifact's manifest"
        )
        self.predictor, self.where, self.known = predictor, where, known


class FieldMismatch(ArtifactError):
    """The artifact was compiled for other fields than the code now has, or in another order."""

    def __init__(self, predictor: str, saved: tuple[str, ...], current: tuple[str, ...]) -> None:
        super().__init__(
            f"predictor {predictor!r} was compiled with fields {saved}, the code has {current}; "
            "recompile the program, or install the version named in the artifact's manifest"
        )
        self.predictor, self.saved, self.current = predictor, saved, current


class DemoMismatch(ArtifactError):
    """A demo has fields that its predictor does not have."""

    def __init__(self, predictor: str, number: int, unknown: tuple[str, ...]) -> None:
        super().__init__(
            f"demo {number} of predictor {predictor!r} has unknown fields {unknown}; expected "
            "fields of the predictor alone; remove them, or recompile the program"
        )
        self.predictor, self.number, self.unknown = predictor, number, unknown


class FieldState(Record):
    """How a field is worded in prompts."""

    name: str
    prefix: str
    description: str


class SignatureState(Record):
    """The instructions of a predictor and the wording of its fields, in order."""

    instructions: str
    fields: tuple[FieldState, ...]


class PredictorState(Record):
    """What DSPy keeps of a predictor, but for its LM."""

    signature: SignatureState
    demos: tuple[dict[str, JsonValue], ...] = ()
    lm: None = None


class Metadata(Record):
    """What `dspy.Module.load` wants to know."""

    dependency_versions: dict[str, str]


class _ProgramState(Record):
    """The whole file: the predictors by name, and DSPy's metadata among them."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, PredictorState] = Field(init=False)

    metadata: Metadata


_STATE = TypeAdapter(_ProgramState)


def dump(program: MultiHopProgram) -> dict[str, PredictorState]:
    """The state of every predictor; the program is left as it is.

    Of a demo, only what can reach a prompt is kept: values of the signature's fields.

    Raises:
        PydanticSerializationError: A demo has a value that JSON cannot hold.
    """
    return {name: _state_of(predictor) for name, predictor in program.named_predictors()}


def _state_of(predictor: dspy.Predict) -> PredictorState:
    signature = predictor.signature
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
    )
    told = SignatureState(instructions=_instructions(signature), fields=worded)
    return PredictorState(signature=told, demos=demos)


def _instructions(signature: type[dspy.Signature]) -> str:
    # DSPy strips margins whenever it reads instructions; a text that would lose something by
    # being stripped twice is saved as it was before the first time.
    text: str = signature.instructions
    return text if inspect.cleandoc(text) == text else signature.__doc__ or text


def as_json(states: Mapping[str, PredictorState]) -> dict[str, Any]:
    """The content of program.json, which `dspy.Module.load` reads as well."""
    content: dict[str, Any] = {
        name: state.model_dump(mode="json") for name, state in states.items()
    }
    return {**content, "metadata": {"dependency_versions": get_dependency_versions()}}


def read_states(data: bytes, where: str) -> dict[str, PredictorState]:
    """Read program.json.

    Raises:
        NotJSON, UnknownKeys, WrongShape: It is not the state of a program.
    """
    return dict(parsed(_STATE, data, where).__pydantic_extra__)


def entries(program: MultiHopProgram) -> tuple[PredictorEntry, ...]:
    """The predictors of a program with their fields, in order."""
    return tuple(
        PredictorEntry(name=name, fields=_fields(predictor))
        for name, predictor in program.named_predictors()
    )


def _fields(predictor: dspy.Predict) -> tuple[FieldEntry, ...]:
    inputs = predictor.signature.input_fields
    return tuple(
        FieldEntry(
            name=name,
            kind="input" if name in inputs else "output",
            type=get_annotation_name(field.annotation),
        )
        for name, field in predictor.signature.fields.items()
    )


def mismatches(
    saved: tuple[PredictorEntry, ...],
    states: Mapping[str, PredictorState],
    program: MultiHopProgram,
) -> Iterator[ArtifactError]:
    """All that keeps a state from being applied to a program, in the order of its predictors."""
    current = {entry.name: entry.fields for entry in entries(program)}
    listed = {entry.name: entry.fields for entry in saved}
    for where, names in (("manifest.json", listed), ("program.json", states)):
        for name in current:
            if name not in names:
                yield MissingPredictor(name, where)
        for name in names:
            if name not in current:
                yield ExtraPredictor(name, where, tuple(current))
    for name, fields in current.items():
        if name in listed:
            yield from _listed_otherwise(name, listed[name], fields)
        if name in states:
            yield from _worded_otherwise(name, states[name], fields)


def _listed_otherwise(
    name: str, saved: tuple[FieldEntry, ...], current: tuple[FieldEntry, ...]
) -> Iterator[ArtifactError]:
    if [field.name for field in saved] != [field.name for field in current]:
        yield FieldMismatch(name, _names(saved), _names(current))
        return
    differing = [pair for pair in zip(saved, current, strict=True) if pair[0] != pair[1]]
    if differing:
        old, new = zip(*differing, strict=True)
        yield FieldMismatch(name, _described(old), _described(new))


def _worded_otherwise(
    name: str, state: PredictorState, current: tuple[FieldEntry, ...]
) -> Iterator[ArtifactError]:
    if _names(state.signature.fields) != _names(current):
        yield FieldMismatch(name, _names(state.signature.fields), _names(current))
    known = {*_names(current), _MARK}
    for number, demo in enumerate(state.demos, 1):
        unknown = tuple(key for key in demo if key not in known)
        if unknown:
            yield DemoMismatch(name, number, unknown)


def _names(fields: tuple[FieldEntry, ...] | tuple[FieldState, ...]) -> tuple[str, ...]:
    return tuple(field.name for field in fields)


def _described(fields: tuple[FieldEntry, ...]) -> tuple[str, ...]:
    return tuple(f"{field.kind} {field.name}: {field.type}" for field in fields)


def apply(states: Mapping[str, PredictorState], program: MultiHopProgram) -> None:
    """Give a program the state; it must have been compared by `mismatches` before."""
    for name, predictor in program.named_predictors():
        state = states[name].model_dump(mode="json")
        # Only these two keys: DSPy sets any other as an attribute, and would build an LM of "lm".
        predictor.load_state({"signature": state["signature"], "lm": None})
        inputs = tuple(predictor.signature.input_fields)
        predictor.demos = [dspy.Example(demo).with_inputs(*inputs) for demo in state["demos"]]


def rendered(program: MultiHopProgram) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """What an LM is sent by each predictor under each of DSPy's adapters, but for the inputs."""
    adapters = (dspy.ChatAdapter(), dspy.JSONAdapter(), dspy.XMLAdapter(), BAMLAdapter())
    return {
        (name, type(adapter).__name__): adapter.format(predictor.signature, predictor.demos, {})
        for name, predictor in program.named_predictors()
        for adapter in adapters
    }
