"""Artifacts: compiled programs as folders of two JSON files.

`program.json` has the instructions, field wording and demos of every predictor, in DSPy's own
state format; `manifest.json` names the program, its settings and its provenance. Neither contains
an address or a key, and nothing in them is executed.

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
from ga_dspy.errors import InputError, listed, need_package
from ga_dspy.graphrag.program import GraphRAG
from ga_dspy.lm import dspy_private
from ga_dspy.lm.adapters import ADAPTERS
from ga_dspy.passage import Passage
from ga_dspy.programs import IterativeProgram, MultiHopProgram
from ga_dspy.secrets import SecretFound as SecretFound
from ga_dspy.secrets import secrets_in, secrets_of
from ga_dspy.storage import write_whole

_log = logging.getLogger(__name__)

MANIFEST = "manifest.json"
PROGRAM = "program.json"
FILES = (PROGRAM, MANIFEST)

LARGEST = 32 * 2**20
"""The maximum size of a file of an artifact in bytes."""

# --- Strict JSON

Shape = TypeVar("Shape", bound=BaseModel)


class Record(BaseModel, frozen=True, extra="forbid", strict=True):
    """A frozen value of an artifact; unknown keys and values of another type are errors."""


def parsed(shape: type[Shape], data: bytes, where: str) -> Shape:
    """Read JSON into a value of a type.

    Raises:
        ArtifactError: It is not JSON, has a key twice or a number that is not finite, which other
            readers could read differently, has unknown keys, or another shape.
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
            expected=f"the file as ga-dspy {__version__} saves it",
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

# Names have no control characters and none that change the direction of text.
_Name = Annotated[str, Field(pattern=r"^\P{C}*$", max_length=500)]


class Manifest(Record):
    """What is known of a saved program, except its prompts.

    Attributes:
        format: Version of the artifact format.
        program: Name of the program's class among the known programs, never an import path.
        settings: The arguments of the program.
        versions: The versions that wrote it, by package.
        sha256: Digest of program.json.
        created: When, with a time zone.
        recipe: How it was compiled: name and parameters; None if it was not.
        lms: Model name by role ("task", "reflection", …): a name only, never an address.
        predictor_lms: Model name of the predictors that have an LM of their own.
        data: What is known of each question set by role ("train", "test"): digest, size, …
        scores: Scores before and after compiling, on questions that the recipe did not learn from.
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


def register(program: ProgramClass) -> ProgramClass:
    """Register an app's own program, so that it can be saved and loaded; a decorator.

    The name in the artifact is the name of the class. The class takes a retriever first, and
    everything that its `settings()` names as keyword arguments.

    Raises:
        InputError: Another class has that name.
    """
    name = program.__name__
    if PROGRAMS.setdefault(name, program) is not program:
        raise InputError(f"a program named {name!r} is known already", remedy="rename the class")
    return program


def class_named(name: str) -> type[MultiHopProgram]:
    """Return the class that is registered under a name.

    Raises:
        ArtifactError: There is none.
    """
    if name not in PROGRAMS:
        raise ArtifactError(
            f"program {name!r} is unknown",
            expected=f"one of {', '.join(sorted(PROGRAMS))}",
            remedy="decorate your own class with ga_dspy.artifact.register where the app starts",
        )
    return PROGRAMS[name]


def build(name: str, settings: Mapping[str, Any], retriever: Any) -> MultiHopProgram:
    """Make a program from its settings, uncompiled.

    Args:
        name: A registered program.
        settings: Its settings; values may be in their JSON form.
        retriever: Anything `ga_dspy.retrieval.as_retriever` takes.

    Raises:
        ArtifactError: There is no such program, or the settings do not fit it.
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
        if setting not in settings and value is not None:  # a new setting that is unset is None
            found = f"the artifact has no {setting!r} of {name}"
            raise ArtifactError(found, remedy=f"pass {setting}=… to load, or {_INSTALL}")
    return program


def _typed(hint: Any, value: Any) -> Any:
    """Return a JSON list or object as the type that a setting has; programs check the rest."""
    is_json = hint is not None and isinstance(value, list | dict)
    return pydantic.TypeAdapter(hint).validate_python(value) if is_json else value


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


class _ProgramState(Record, extra="allow"):
    """The whole file: the predictors by name, and what `dspy.Module.load` reads beside them."""

    __pydantic_extra__: dict[str, PredictorState] = Field(init=False)

    metadata: dict[str, JsonValue]


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
    state = signature.dump_state()
    # DSPy strips margins whenever it reads instructions; a text that a second stripping would
    # change is saved as it was before the first one.
    instructions = state["instructions"]
    if inspect.cleandoc(instructions) != instructions:
        instructions = signature.__doc__ or instructions
    pairs = zip(signature.fields, state["fields"], strict=True)
    worded = tuple(FieldState(name=name, **wording) for name, wording in pairs)
    kept, sides = {*signature.fields, _MARK}, (signature.input_fields, signature.output_fields)
    demos = tuple(
        {key: to_jsonable_python(value) for key, value in demo.items() if key in kept}
        for demo in predictor.demos
        if all(side.keys() & demo.keys() for side in sides)
    )
    wording = SignatureState(instructions=instructions, fields=worded)
    return PredictorState(signature=wording, demos=demos)


def as_json(states: Mapping[str, PredictorState]) -> dict[str, Any]:
    """Return the content of program.json, which `dspy.Module.load` reads as well."""
    content = {name: state.model_dump(mode="json") for name, state in states.items()}
    return {**content, "metadata": {"dependency_versions": dspy_private.get_dependency_versions()}}


def apply(states: Mapping[str, PredictorState], program: MultiHopProgram) -> None:
    """Apply a state to a program.

    Raises:
        ArtifactError: It does not fit the program.
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
    """Check the fields of a predictor, and that its texts are some that an LM should see."""
    old, new = tuple(field.name for field in state.signature.fields), tuple(signature.fields)
    if old != new:
        found = f"predictor {name!r} was compiled with fields {old}, the code has {new}"
        _misfit(found, "the same fields in the same order")
    text = json.dumps(state.model_dump(mode="json"), ensure_ascii=False)
    if dspy_private.CUSTOM_TYPE_START_IDENTIFIER in text:
        _misfit(f"predictor {name!r} holds DSPy's mark of an image, a file or a tool", "plain text")
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
    """Return what each predictor sends to an LM under each adapter, except the inputs."""
    return {
        (name, kind.__name__): kind().format(predictor.signature, predictor.demos, {})
        for name, predictor in program.named_predictors()
        for kind in ADAPTERS.values()
    }


# --- Loading

_REGISTRY = "ga_dspy.optimize.mlflow_store"
"""The module that downloads an artifact from MLflow; imported only for its addresses."""


class ArtifactInfo(NamedTuple):
    """The content of an artifact.

    Attributes:
        path: Its folder.
        manifest: The program, its settings, and its provenance.
        predictors: Instructions, field wording and demos by predictor.
    """

    path: Path
    manifest: Manifest
    predictors: dict[str, PredictorState]

    @classmethod
    def of(cls, files: Mapping[str, bytes], path: Path) -> ArtifactInfo:
        """Return the content of the two files.

        Raises:
            ArtifactError: One is too large, damaged, or not of an artifact that this version reads.
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
                expected=f"{manifest.sha256[:12]}…, as manifest.json says",
                remedy="copy the artifact again; to change a prompt by hand, load the program, "
                "change it and save it again",
            )
        state = parsed(_ProgramState, files[PROGRAM], f"{where}")
        return cls(path, manifest, dict(state.__pydantic_extra__))

    def program(
        self, retriever: Any, overrides: Mapping[str, Any] = {}, known: Collection[str] = ()
    ) -> MultiHopProgram:
        """Make the program.

        Args:
            retriever: Anything `ga_dspy.retrieval.as_retriever` takes.
            overrides: Settings in place of saved ones.
            known: Secrets that the artifact may not hold, whatever they look like.

        Raises:
            ArtifactError: A secret is found, or the prompts do not fit the program.
        """
        about, states = self.manifest.model_dump(mode="json"), as_json(self.predictors)
        leaks = secrets_in(states, PROGRAM, known, digests=False)
        for leak in (*secrets_in(about, MANIFEST, known), *leaks):
            raise leak
        name, saved = self.manifest.program, self.manifest.settings
        program = build(name, {**saved, **overrides}, retriever)
        # Overrides without a saved value may stand in for a missing setting.
        as_saved = build(name, {**overrides, **saved}, retriever) if overrides else program
        if _signatures(as_saved) != _signatures(program):
            found = f"overriding {', '.join(overrides)} gives other predictors than those compiled"
            remedy = "leave the setting as saved, or compile a program with the other one"
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

    Thread-safe; each call returns a new program.

    Args:
        source: The folder, or "models:/name@champion", "models:/name/3", "runs:/id/artifact"
            (these need the extra "optimize").
        retriever: Anything `ga_dspy.retrieval.as_retriever` takes.
        lms: LMs of predictors, by the predictor's name. A predictor that was saved with an LM of
            its own and gets none here uses the configured LM, with a warning; pass None to use it
            without one. Another warning says if an LM is not the one it was compiled for.
        **overrides: Settings that replace saved ones, such as `k=10`, and arguments that are never
            saved, such as `count`.

    Raises:
        ArtifactError: It is damaged, of another version, or does not fit the program; or it
            contains a key, an address or a header (`SecretFound`).
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
            "predictor %r was saved with an LM of its own (%s) and now uses the configured "
            "one; pass load(…, lms={%r: dspy.LM(%r, …)}), or --lm %s=%s",
            *(name, wanted, name, wanted, name, wanted),
        )
    quiet = unset | {name for name, lm in lms.items() if lm is None}
    others = _other_lms(info, program, quiet)
    saved = {**overrides, **info.manifest.settings}
    if not others or dump(build(info.manifest.program, saved, nothing)) == info.predictors:
        return program  # prompts as the program ships are for any LM
    for (lm, wanted), names in others.items():
        _log.warning(
            "%s asks %s (%s); expected %s, the LM that its instructions and demos were compiled "
            "for; pass --lm %s, or compile again: ga-dspy compile … --lm %s --out DIR",
            *(source, lm, ", ".join(names), wanted, wanted, lm),
        )
    return program


def _other_lms(
    info: ArtifactInfo, program: MultiHopProgram, quiet: Collection[str]
) -> dict[tuple[str, str], list[str]]:
    """Return the predictors that ask another LM than they were compiled for, by both LMs' names.

    The `quiet` ones are left out. Names are compared by their letters and digits after the last
    "/": behind different servers `openai/qwen2.5-coder-1.5b` and `ollama_chat/qwen2.5-coder:1.5b`
    are one LM. One whose name says more, such as its quantisation, counts as another.
    """
    manifest, asked = info.manifest, program.lm_names()
    others = defaultdict[tuple[str, str], list[str]](list)
    for name in info.predictors:
        lm = asked.get(name.partition(".")[0])
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
    """Read an artifact without making a program.

    Raises:
        ArtifactError: It is damaged, or not an artifact that this version reads.
        MissingExtra: The source needs a package that is not installed.
    """
    if isinstance(source, str) and source.startswith(("models:/", "runs:/")):
        need_package("mlflow", "optimize")
        source = importlib.import_module(_REGISTRY).resolve(source)
    path, files = Path(source), dict[str, bytes]()
    for name in FILES:
        file = path / name
        if not file.is_file():
            lacking, expected = file if path.is_dir() else path, f"a folder with {', '.join(FILES)}"
            raise ArtifactError(f"there is no file or folder {lacking}", expected=expected)
        with file.open("rb") as opened:
            files[name] = opened.read(LARGEST + 1)
    return ArtifactInfo.of(files, path)


def verify(source: Path | str) -> str:
    """Return why an artifact cannot be loaded; empty if it loads and is clean.

    Raises:
        MissingExtra: The source needs a package that is not installed.
    """
    try:
        show(source).program(nothing)
    except ArtifactError as error:
        return str(error)
    return ""


def nothing(query: str, k: int) -> list[Passage]:
    """Find nothing: the retriever of a program that is compared, not run."""
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

    It is checked to be free of secrets and the same program after loading. LMs, retriever and token
    counter are not saved: an app brings its own. Of a predictor's own LM the name is saved, which
    `load` asks for. Of the demos, the values of the predictor's fields
    are saved and other columns of a training row are not.

    A crash leaves no half of a new artifact. If it hits the moment between the two files of a
    replacement, the digest shows that they differ. Other files in the folder are left alone.

    Args:
        program: A registered program, compiled or not.
        path: The folder to write; its parents are created.
        recipe: How it was compiled, such as {"name": "bootstrap"}; JSON values, here and below.
        lms: Model name, or LM (only its name is saved), by role.
        data: What is known of each question set by role.
        scores: Scores before and after compiling.
        cost: The cost of compiling.
        overwrite: Replace an artifact at `path`.

    Returns:
        The folder.

    Raises:
        SecretFound: A key, an address or a header would be written.
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
        "lms": {role: _model_name(lm) for role, lm in lms.items()},
        "predictor_lms": {predictor: _model_name(lm) for predictor, lm in own.items()},
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
            write_whole(Path(folder, name), content)
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


def _model_name(lm: str | dspy.BaseLM) -> str:
    name = lm if isinstance(lm, str) else lm.model
    if "://" in name:
        raise _cannot_save("an address as the name of an LM", "pass the model name alone")
    return name


def _check_same(program: MultiHopProgram, info: ArtifactInfo, known: Collection[str]) -> None:
    """Load what would be written, and compare what an LM would be sent."""
    unsaved = {
        name: getattr(program, name)
        for name, one in program.declared().items()
        if not one.metadata["saved"] and getattr(program, name) != one.default
    }
    after = rendered(info.program(nothing, unsaved, known))
    for (predictor, adapter), prompt in rendered(program).items():
        if after[predictor, adapter] != prompt:
            raise _cannot_save(
                f"predictor {predictor!r}, whose prompt under {adapter} changes by saving,",
                "make the values of its demos text, numbers, or lists and mappings of these",
            )


# --- Comparing


def diff(a: Path | str, b: Path | str) -> str:
    """Return a unified diff of two artifacts.

    It compares the program and its settings, the instructions, field wording and demos of every
    predictor, the recipe, the LMs and the scores; not digests, versions and times.

    Raises:
        ArtifactError: One of the two cannot be read.
    """
    ours, theirs = (list(outline(show(one), _COMPARED)) for one in (a, b))
    return "\n".join(difflib.unified_diff(ours, theirs, str(a), str(b), lineterm=""))


_COMPARED = {"program", "settings", "recipe", "lms", "predictor_lms", "scores"}


def outline(info: ArtifactInfo, of_manifest: set[str] | None = None) -> Iterator[str]:
    """Yield an artifact as lines: its manifest, or these keys of it, and its predictors."""
    about = info.manifest.model_dump(mode="json", include=of_manifest)
    states = {name: state.model_dump(mode="json") for name, state in info.predictors.items()}
    return _outline({**about, "predictors": states})


def _outline(value: Any, margin: str = "") -> Iterator[str]:
    """Yield a JSON value, one entry per line, without empty ones."""
    entries = dict(enumerate(value, 1)) if isinstance(value, list) else value
    for key, part in entries.items() if isinstance(entries, dict) else ():
        if isinstance(part, dict | list) or "\n" in str(part):
            if inner := [*_outline(part, f"{margin}  ")]:
                yield from (f"{margin}{key}:", *inner)
        elif part not in ("", None):
            yield f"{margin}{key}: {part}"
    if isinstance(value, str):
        yield from (f"{margin}{line}".rstrip() for line in value.splitlines())
