"""Artifacts: compiled programs as folders of two JSON files.

`program.json` has the instructions, field descriptions and demos of every predictor, in DSPy's
state format; `manifest.json` has the program's name, settings and provenance. Neither contains an
address or a key, and nothing in them is executed.

    save(program, "artifacts/hotpotqa", recipe={"name": "bootstrap"}, lms={"task": lm})
    program = load("artifacts/hotpotqa", retriever=index)
"""

from __future__ import annotations

import difflib
import hashlib
import importlib
import inspect
import json
import logging
import math
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Literal, NamedTuple, NoReturn, TypeVar, get_type_hints

import dspy
import pydantic
from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError
from pydantic_core import to_jsonable_python

from ga_dspy import __version__, programs
from ga_dspy.errors import ArtifactError as ArtifactError
from ga_dspy.errors import InputError, check_installed, listed
from ga_dspy.graphrag.program import GraphRAG
from ga_dspy.lm import dspy_private
from ga_dspy.lm.adapters import ADAPTERS
from ga_dspy.passage import Passage
from ga_dspy.programs import IterativeProgram, MultiHopProgram
from ga_dspy.secrets import SecretFound as SecretFound
from ga_dspy.secrets import secrets_in, secrets_of
from ga_dspy.storage import write_atomically

_log = logging.getLogger(__name__)

MANIFEST = "manifest.json"
PROGRAM = "program.json"
FILES = (PROGRAM, MANIFEST)

LARGEST = 32 * 2**20
"""The maximum size of each file in bytes."""

# --- Strict JSON

Shape = TypeVar("Shape", bound=BaseModel)


class Record(BaseModel, frozen=True, extra="forbid", strict=True):
    """A frozen part of an artifact; unknown keys and values of another type are errors."""


def parsed(shape: type[Shape], data: bytes, where: str) -> Shape:
    """Parse JSON as a type.

    Raises:
        ArtifactError: The text is not JSON of this shape; or it has a duplicate key or a number
            that is not finite, which other parsers may read differently.
    """
    try:
        value = shape.model_validate_json(data)
        json.loads(data, object_pairs_hook=_once, parse_float=_finite, parse_constant=_finite)
        return value
    except ValueError as error:
        faults = [str(error)]
        if isinstance(error, ValidationError):
            faults = [
                f"{'.'.join(map(str, fault['loc'])) or 'the whole'}: {fault['msg']}"
                for fault in error.errors(include_url=False, include_input=False)
            ]
        raise ArtifactError(
            f"{where} does not have the expected shape: {listed(faults, between='; ')}",
            expected=f"a file as saved by ga-dspy {__version__}",
            remedy="copy the artifact again, save it again, or install the version that wrote it",
        ) from error


def _once(pairs: list[tuple[str, Any]]) -> None:
    if len(pairs) > len(dict(pairs)):
        names = [name for name, _ in pairs]
        raise ValueError(f"the key {max(names, key=names.count)!r} twice")


def _finite(number: str) -> None:
    if not math.isfinite(float(number)):
        raise ValueError(f"the number {number[:20]}")


# --- manifest.json

_INSTALL = "install the version named in the artifact's manifest"

# Names have no control characters, which include those that change the text direction.
_Name = Annotated[str, Field(pattern=r"^\P{C}*$", max_length=500)]


class Manifest(Record):
    """The name, settings and provenance of a saved program.

    Attributes:
        format: The version of the artifact format.
        program: The class name of a registered program, never an import path.
        settings: The arguments of the program.
        versions: The versions of the packages that saved it.
        sha256: The digest of program.json.
        created: The time of saving, with a time zone.
        recipe: The recipe that compiled it, with its parameters; None if it was not compiled.
        lms: Model names by role ("task", "reflection", …), never addresses.
        predictor_lms: Model names by predictor, of predictors with their own LM.
        data: The digest, size, … of each question set, by role ("train", "test").
        scores: Scores before and after compiling, on questions held out from the recipe.
        cost: The cost of compiling.
    """

    format: Literal[2]
    program: _Name
    settings: dict[_Name, JsonValue]
    versions: dict[_Name, _Name]
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    created: pydantic.AwareDatetime
    recipe: dict[_Name, JsonValue] | None = None
    lms: dict[_Name, _Name] = {}
    predictor_lms: dict[_Name, _Name] = {}
    data: dict[_Name, JsonValue] = {}
    scores: dict[_Name, JsonValue] | None = None
    cost: dict[_Name, JsonValue] | None = None


# --- The programs that can be saved and loaded

ProgramClass = TypeVar("ProgramClass", bound=type[MultiHopProgram])

PROGRAMS: dict[str, type[MultiHopProgram]] = {
    name: found
    for name, found in (*vars(programs).items(), (GraphRAG.__name__, GraphRAG))
    if isinstance(found, type)
    and issubclass(found, MultiHopProgram)
    and found not in (MultiHopProgram, IterativeProgram)
}
"""Classes by name: those of `ga_dspy.programs`, `GraphRAG`, and those that an app registers."""


def register(program: ProgramClass) -> ProgramClass:
    """Register a custom program, so that it can be saved and loaded; use it as a class decorator.

    The artifact has the name of the class. The class takes a retriever as its first argument, and
    everything that its `settings()` returns as keyword arguments.

    Raises:
        InputError: Another class is registered under the same name.
    """
    name = program.__name__
    if PROGRAMS.setdefault(name, program) is not program:
        raise InputError(f"the name {name!r} is already registered", remedy="rename the class")
    return program


def class_named(name: str) -> type[MultiHopProgram]:
    """Return the class that is registered under a name.

    Raises:
        ArtifactError: No class is registered under it.
    """
    if name not in PROGRAMS:
        raise ArtifactError(
            f"program {name!r} is unknown",
            expected=f"one of {', '.join(sorted(PROGRAMS))}",
            remedy="decorate a custom class with ga_dspy.artifact.register before loading",
        )
    return PROGRAMS[name]


def build(name: str, settings: Mapping[str, Any], retriever: Any) -> MultiHopProgram:
    """Create an uncompiled program from its settings.

    Args:
        name: The name of a registered program.
        settings: Its settings; values may be in their JSON form.
        retriever: Anything `ga_dspy.retrieval.as_retriever` takes.

    Raises:
        ArtifactError: There is no such program, or its settings do not fit.
    """
    kind = class_named(name)
    hints = get_type_hints(kind.__init__)
    try:
        program = kind(retriever, **{n: _typed(hints.get(n), v) for n, v in settings.items()})
    except (InputError, TypeError, ValidationError) as error:
        raise ArtifactError(
            f"a setting of {name} is not valid: {error}",
            expected=f"settings of {name}({', '.join(inspect.signature(kind).parameters)})",
            remedy=f"correct the override, or {_INSTALL}",
        ) from error
    for setting, value in program.settings().items():
        if setting not in settings and value is not None:  # a new optional setting is None
            found = f"the artifact has no {setting!r} of {name}"
            raise ArtifactError(found, remedy=f"pass {setting}=… to load, or {_INSTALL}")
    return program


def _typed(hint: Any, value: Any) -> Any:
    """Return a JSON list or object as the type of a setting; the program checks other values."""
    is_json = hint is not None and isinstance(value, list | dict)
    return pydantic.TypeAdapter(hint).validate_python(value) if is_json else value


# --- program.json

_MARK = "augmented"  # DSPy's key for a demo made from a trace
_MOST_DEMOS = 1000


class FieldState(Record):
    """The prefix and the description of a field in prompts."""

    name: _Name
    prefix: str
    description: str


class SignatureState(Record):
    """The instructions of a predictor and its fields, in order."""

    instructions: str
    fields: tuple[FieldState, ...]


class PredictorState(Record):
    """DSPy's state of a predictor, except its LM."""

    signature: SignatureState
    demos: tuple[dict[str, JsonValue], ...] = Field(default=(), max_length=_MOST_DEMOS)
    lm: None = None


class _ProgramState(Record, extra="allow"):
    """The content of program.json: predictors by name, and metadata for `dspy.Module.load`."""

    __pydantic_extra__: dict[str, PredictorState] = Field(init=False)

    metadata: dict[str, JsonValue]


def dump(program: MultiHopProgram) -> dict[str, PredictorState]:
    """Return the state of every predictor; the program is not changed.

    The state has only what can reach a prompt: it lacks demo values that are not fields of the
    signature, and demos without any input or any output, which DSPy leaves out of prompts.

    Raises:
        PydanticSerializationError: A demo has a value without a JSON form.
    """
    return {name: _state_of(predictor) for name, predictor in program.named_predictors()}


def _state_of(predictor: dspy.Predict) -> PredictorState:
    signature = predictor.signature
    state = signature.dump_state()
    # DSPy strips margins each time it reads instructions. If a second stripping would change them,
    # they are saved as they were before the first one.
    instructions = state["instructions"]
    if inspect.cleandoc(instructions) != instructions:
        instructions = signature.__doc__ or instructions
    pairs = zip(signature.fields, state["fields"], strict=True)
    fields = tuple(FieldState(name=name, **wording) for name, wording in pairs)
    inputs, outputs, demos = signature.input_fields, signature.output_fields, []
    for demo in predictor.demos:
        if inputs.keys() & demo.keys() and outputs.keys() & demo.keys():
            values = {n: v for n, v in demo.items() if n in signature.fields or n == _MARK}
            demos.append(to_jsonable_python(values))
    wording = SignatureState(instructions=instructions, fields=fields)
    return PredictorState(signature=wording, demos=tuple(demos))


def as_json(states: Mapping[str, PredictorState]) -> dict[str, Any]:
    """Return the content of program.json, which `dspy.Module.load` reads as well."""
    content = {name: state.model_dump(mode="json") for name, state in states.items()}
    return {**content, "metadata": {"dependency_versions": dspy_private.get_dependency_versions()}}


def apply(states: Mapping[str, PredictorState], program: MultiHopProgram) -> None:
    """Apply the states of predictors to a program.

    Raises:
        ArtifactError: The states do not fit the program.
    """
    predictors = dict(program.named_predictors())
    for name in (*states, *predictors):
        if name not in predictors:
            _misfit(f"program.json has a predictor {name!r}", f"{', '.join(predictors)} alone")
        if name not in states:
            _misfit(f"program.json has nothing for predictor {name!r}", "every predictor")
    for name, predictor in predictors.items():
        _check_fit(name, states[name], predictor.signature)
        state = states[name].model_dump(mode="json")
        predictor.signature = predictor.signature.load_state(state["signature"])
        inputs = tuple(predictor.signature.input_fields)
        predictor.demos = [dspy.Example(demo).with_inputs(*inputs) for demo in state["demos"]]


def _check_fit(name: str, state: PredictorState, signature: Any) -> None:
    """Check that a state has the fields of a predictor, demos of their types, and plain text."""
    old, new = tuple(field.name for field in state.signature.fields), tuple(signature.fields)
    if old != new:
        found = f"predictor {name!r} was compiled with fields {old}, the code has {new}"
        _misfit(found, "the same fields in the same order")
    text = json.dumps(state.model_dump(mode="json"), ensure_ascii=False)
    if dspy_private.CUSTOM_TYPE_START_IDENTIFIER in text:
        _misfit(f"predictor {name!r} has DSPy's marker of an image, file or tool", "plain text")
    fields = {field: (info.rebuild_annotation(), None) for field, info in signature.fields.items()}
    kinds: Any = {**fields, _MARK: (bool, None)}
    shape = pydantic.create_model("Demo", __config__=ConfigDict(extra="forbid"), **kinds)
    for number, demo in enumerate(state.demos, 1):
        where = f"demo {number} of predictor {name!r}"
        try:
            shape.model_validate(demo)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            _misfit(f"{where} has {first['loc'][0]}: {first['msg']}", "the signature's fields")


def _misfit(found: str, expected: str) -> NoReturn:
    raise ArtifactError(
        found, expected=expected, remedy=f"compile the program again, or {_INSTALL}"
    )


def rendered(program: MultiHopProgram) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """Return the prompt of each predictor with empty inputs, under each adapter."""
    return {
        (name, kind.__name__): kind().format(predictor.signature, predictor.demos, {})
        for name, predictor in program.named_predictors()
        for kind in ADAPTERS.values()
    }


# --- Loading

_REGISTRY = "ga_dspy.optimize.mlflow_store"
"""The module that downloads artifacts from MLflow; imported only for such a source."""


class ArtifactInfo(NamedTuple):
    """The content of an artifact.

    Attributes:
        path: The folder.
        manifest: The program's name, settings and provenance.
        predictors: Instructions, field descriptions and demos by predictor.
    """

    path: Path
    manifest: Manifest
    predictors: dict[str, PredictorState]

    @classmethod
    def of(cls, files: Mapping[str, bytes], path: Path) -> ArtifactInfo:
        """Parse the two files.

        Raises:
            ArtifactError: A file is too large, damaged, or in a format that this version cannot
                read.
        """
        for name, data in files.items():
            if len(data) > LARGEST:
                found = f"{path / name} has more than {LARGEST // 2**20} MB"
                raise ArtifactError(found, remedy="remove demos, or shorten them")
        manifest = parsed(Manifest, files[MANIFEST], f"{path / MANIFEST}")
        where, digest = path / PROGRAM, hashlib.sha256(files[PROGRAM]).hexdigest()
        if digest != manifest.sha256:
            raise ArtifactError(
                f"{where} has sha256 {digest[:12]}…",
                expected=f"{manifest.sha256[:12]}…, as in manifest.json",
                remedy="copy the artifact again; to edit a prompt, load the program, change it and "
                "save it again",
            )
        state = parsed(_ProgramState, files[PROGRAM], f"{where}")
        return cls(path, manifest, dict(state.__pydantic_extra__))

    def program(
        self, retriever: Any, overrides: Mapping[str, Any] = {}, known: Collection[str] = ()
    ) -> MultiHopProgram:
        """Create the program.

        Args:
            retriever: Anything `ga_dspy.retrieval.as_retriever` takes.
            overrides: Settings that replace saved ones.
            known: Secrets to look for in addition to texts that look like one.

        Raises:
            ArtifactError: The artifact contains a secret, or does not fit the program.
        """
        about, states = self.manifest.model_dump(mode="json"), as_json(self.predictors)
        leaks = secrets_in(states, PROGRAM, known, digests=False)
        for leak in (*secrets_in(about, MANIFEST, known), *leaks):
            raise leak
        name, saved = self.manifest.program, self.manifest.settings
        program = build(name, {**saved, **overrides}, retriever)
        # An override may supply a setting that the artifact lacks.
        as_saved = build(name, {**overrides, **saved}, retriever) if overrides else program
        if _signatures(as_saved) != _signatures(program):
            found = f"overriding {', '.join(overrides)} gives other predictors than those compiled"
            remedy = "keep the saved setting, or compile a program with the other one"
            raise ArtifactError(found, remedy=remedy)
        apply(self.predictors, program)
        return program


def _signatures(program: MultiHopProgram) -> dict[str, str]:
    return {name: repr(predictor.signature) for name, predictor in program.named_predictors()}


def load(
    source: Path | str,
    *,
    retriever: Any,
    lms: Mapping[str, dspy.BaseLM | None] | None = None,
    **overrides: Any,
) -> MultiHopProgram:
    """Load a compiled program; it uses the LM that the app configures.

    The function is thread-safe; each call returns a new program.

    Args:
        source: The folder, or "models:/name@champion", "models:/name/3", "runs:/id/artifact"
            (these need the extra "optimize").
        retriever: Anything `ga_dspy.retrieval.as_retriever` takes.
        lms: LMs by predictor. A predictor that was saved with its own LM and gets none here uses
            the configured LM, with a warning; None avoids the warning. Another warning is logged if
            a predictor was compiled for another LM.
        **overrides: Settings that replace saved ones, such as `k=10`, and arguments that are never
            saved, such as `count`.

    Raises:
        ArtifactError: The artifact is damaged, has another format, or does not fit the program; or
            it contains a key, an address or a header (`SecretFound`).
        InputError: `lms` names a predictor that the program does not have.
        MissingExtra: The source needs a package that is not installed.
    """
    info, lms = show(source), lms or {}
    program = info.program(retriever, overrides)
    program.set_step_lms(lms)
    unset = info.manifest.predictor_lms.keys() - lms.keys()
    for name in sorted(unset):
        wanted = info.manifest.predictor_lms[name]
        _log.warning(
            f"predictor {name!r} was saved with its own LM ({wanted}) and now uses the configured "
            f"one; pass load(…, lms={{{name!r}: dspy.LM({wanted!r}, …)}}), or --lm {name}={wanted}"
        )
    quiet = unset | {name for name, lm in lms.items() if lm is None}
    others = _other_lms(info, program, quiet)
    saved = {**overrides, **info.manifest.settings}
    if not others or dump(build(info.manifest.program, saved, nothing)) == info.predictors:
        return program  # uncompiled prompts are for any LM
    for (lm, wanted), names in others.items():
        _log.warning(
            f"{source} asks {lm} ({', '.join(names)}); expected {wanted}, the LM that its "
            f"instructions and demos were compiled for; pass --lm {wanted}, or compile again: "
            f"ga-dspy compile … --lm {lm} --out DIR"
        )
    return program


def _other_lms(
    info: ArtifactInfo, program: MultiHopProgram, quiet: Collection[str]
) -> dict[tuple[str, str], list[str]]:
    """Return the predictors, except `quiet` ones, whose LM is not the one they were compiled for.

    The keys are the names of the two LMs. Names are compared by the letters and digits after the
    last "/", so that `openai/qwen2.5-coder-1.5b` and `ollama_chat/qwen2.5-coder:1.5b`, on different
    servers, are the same LM. A longer name, for example with a quantisation, is another LM.
    """
    manifest, configured = info.manifest, program.lm_names()
    others = defaultdict[tuple[str, str], list[str]](list)
    for name in info.predictors:
        lm = configured.get(name.partition(".")[0])
        wanted = manifest.predictor_lms.get(name) or manifest.lms.get("task")
        if lm and wanted and name not in quiet and _letters(lm) != _letters(wanted):
            others[lm, wanted].append(name)
    return others


def _letters(lm: str) -> str:
    """Return the letters and digits of an LM's name.

    >>> _letters("ollama_chat/qwen2.5-coder:1.5b")
    'qwen25coder15b'
    """
    return "".join(filter(str.isalnum, lm.rpartition("/")[2].casefold()))


def show(source: Path | str) -> ArtifactInfo:
    """Read an artifact without creating a program.

    Raises:
        ArtifactError: The artifact is damaged, or has another format.
        MissingExtra: The source needs a package that is not installed.
    """
    if isinstance(source, str) and source.startswith(("models:/", "runs:/")):
        check_installed("mlflow", "optimize")
        source = importlib.import_module(_REGISTRY).resolve(source)
    path, files = Path(source), dict[str, bytes]()
    for name in FILES:
        file = path / name
        if not file.is_file():
            missing, expected = file if path.is_dir() else path, f"a folder with {', '.join(FILES)}"
            raise ArtifactError(f"there is no file or folder {missing}", expected=expected)
        with file.open("rb") as opened:
            files[name] = opened.read(LARGEST + 1)
    return ArtifactInfo.of(files, path)


def verify(source: Path | str) -> str:
    """Return why an artifact cannot be loaded; empty if it can be.

    Raises:
        MissingExtra: The source needs a package that is not installed.
    """
    try:
        show(source).program(nothing)
    except ArtifactError as error:
        return str(error)
    return ""


def nothing(query: str, k: int) -> list[Passage]:
    """Return no passages: a retriever for programs that are compared, not run."""
    return []


# --- Saving


def save(
    program: MultiHopProgram,
    path: Path | str,
    *,
    recipe: Mapping[str, Any] | None = None,
    lms: Mapping[str, str | dspy.BaseLM] | None = None,
    data: Mapping[str, Any] | None = None,
    scores: Mapping[str, Any] | None = None,
    cost: Mapping[str, Any] | None = None,
    overwrite: bool = False,
) -> Path:
    """Save a compiled program as an artifact; the program is not changed.

    Before writing, the artifact is checked to contain no secrets and to load as the same program.
    LMs, retriever and token counter are not saved: the app that loads it passes its own. The name
    of a predictor's own LM is saved, and `load` expects that LM. Of a demo, only the values of the
    predictor's fields are saved, not other columns of a training row.

    A crash leaves no incomplete new artifact. If it happens between the two files of a replacement,
    the digest reveals that they do not match. Other files in the folder are left alone.

    Args:
        program: A registered program, compiled or not.
        path: The folder to write; its parents are created.
        recipe: The recipe, such as {"name": "bootstrap"}; this and the following are JSON values.
        lms: Model names or LMs by role; only the names are saved.
        data: The digest, size, … of each question set, by role.
        scores: Scores before and after compiling.
        cost: The cost of compiling.
        overwrite: Whether to replace an artifact at `path`.

    Returns:
        The folder.

    Raises:
        SecretFound: The artifact would contain a key, an address or a header.
        ArtifactError: The program would load as another one, its class is not registered (see
            `register`), an argument is not JSON, or the path is taken.
    """
    path, lms, own = Path(path), lms or {}, program.step_lms()
    if path.is_file() or (not overwrite and any((path / name).exists() for name in FILES)):
        remedy = "pass overwrite=True to replace an artifact"
        raise ArtifactError(f"{path} is taken", expected="a free path", remedy=remedy)
    state = _state_file(program)
    about = {
        "format": 2,
        "program": type(program).__name__,
        "settings": program.settings(),
        "versions": {"ga_dspy": __version__, "dspy": version("dspy")},
        "sha256": hashlib.sha256(state).hexdigest(),
        "created": datetime.now(UTC),
        "recipe": recipe,
        "lms": _model_names(lms),
        "predictor_lms": _model_names(own),
        "data": data or {},
        "scores": scores,
        "cost": cost,
    }
    files = {PROGRAM: state, MANIFEST: _encoded(about, MANIFEST)}
    known = secrets_of([*own.values(), *lms.values()], addresses=True)
    _check_same(program, ArtifactInfo.of(files, path), known)
    path.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as folder:
        for name, content in files.items():
            write_atomically(Path(folder, name), content)
        path.mkdir(exist_ok=True)
        for name in files:
            Path(folder, name).replace(path / name)
    return path


def _cannot_save(what: str, remedy: str) -> ArtifactError:
    expected = "a program that JSON can hold and that loads as the same one"
    return ArtifactError(f"{what} cannot be saved", expected=expected, remedy=remedy)


def _state_file(program: MultiHopProgram) -> bytes:
    """Return the content of program.json."""
    if class_named(type(program).__name__) is not type(program):
        raise _cannot_save(f"another {type(program).__name__}", "rename the class, and register it")
    for name, predictor in program.named_predictors():
        if predictor.config or predictor.fields:
            raise _cannot_save(
                f"the settings of predictor {name!r} ({[*predictor.config, *predictor.fields]})",
                "give them to the LM that the app configures, and clear them on the predictor",
            )
    try:
        return _encoded(as_json(dump(program)), PROGRAM)
    except ValueError as error:
        raise _cannot_save(
            f"a demo ({error})", "drop that demo, or make its values text"
        ) from error


def _encoded(content: dict[str, Any], where: str) -> bytes:
    try:
        plain = to_jsonable_python(content)
        text = json.dumps(plain, ensure_ascii=False, allow_nan=False, indent=2)
        return f"{text}\n".encode()
    except ValueError as error:  # of another type, NaN, or a lone surrogate, which has no bytes
        remedy = "pass JSON values, or drop the demo it is in"
        raise _cannot_save(f"a value for {where} ({error})", remedy) from error


def _model_names(lms: Mapping[str, str | dspy.BaseLM]) -> dict[str, str]:
    names = {key: lm if isinstance(lm, str) else lm.model for key, lm in lms.items()}
    if any("://" in name for name in names.values()):
        raise _cannot_save("an address as the name of an LM", "pass the model name alone")
    return names


def _check_same(program: MultiHopProgram, info: ArtifactInfo, known: Collection[str]) -> None:
    """Load the artifact that would be written, and compare its prompts with the program's."""
    unsaved = {
        name: getattr(program, name)
        for name, setting in program.declared().items()
        if not setting.metadata["saved"] and getattr(program, name) != setting.default
    }
    after = rendered(info.program(nothing, unsaved, known))
    for (predictor, adapter), prompt in rendered(program).items():
        if after[predictor, adapter] != prompt:
            raise _cannot_save(
                f"predictor {predictor!r}, whose prompt under {adapter} changes by saving,",
                "use only text, numbers, and lists and mappings of these as values of its demos",
            )


# --- Comparing


def diff(a: Path | str, b: Path | str) -> str:
    """Return a unified diff of two artifacts.

    It compares the program and its settings, the instructions, field descriptions and demos of
    every predictor, the recipe, the LMs and the scores; not digests, versions and times.

    Raises:
        ArtifactError: One of the two cannot be read.
    """
    old, new = (list(outline(show(source), _COMPARED)) for source in (a, b))
    return "\n".join(difflib.unified_diff(old, new, str(a), str(b), lineterm=""))


_COMPARED = {"program", "settings", "recipe", "lms", "predictor_lms", "scores"}


def outline(info: ArtifactInfo, of_manifest: set[str] | None = None) -> Iterator[str]:
    """Yield an artifact as lines: its manifest, or some keys of it, and its predictors."""
    about = info.manifest.model_dump(mode="json", include=of_manifest)
    states = {name: state.model_dump(mode="json") for name, state in info.predictors.items()}
    return _outline({**about, "predictors": states})


def _outline(value: Any, margin: str = "") -> Iterator[str]:
    """Yield a JSON value as lines, one per entry, without empty entries."""
    entries = dict(enumerate(value, 1)) if isinstance(value, list) else value
    for key, part in entries.items() if isinstance(entries, dict) else ():
        if isinstance(part, dict | list) or "\n" in str(part):
            if inner := [*_outline(part, f"{margin}  ")]:
                yield from (f"{margin}{key}:", *inner)
        elif part not in ("", None):
            yield f"{margin}{key}: {part}"
    if isinstance(value, str):
        yield from (f"{margin}{line}".rstrip() for line in value.splitlines())
