"""The programs an artifact may name, and how one is made again from its settings."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping
from typing import Any, TypeVar, get_type_hints

from pydantic import TypeAdapter, ValidationError

from ga_dspy import programs
from ga_dspy.artifact.errors import ArtifactError
from ga_dspy.errors import InputError
from ga_dspy.graphrag.program import GraphRAG
from ga_dspy.programs import IterativeProgram, MultiHopProgram

ProgramClass = TypeVar("ProgramClass", bound=type[MultiHopProgram])

PROGRAMS: dict[str, type[MultiHopProgram]] = {
    name: found
    for name, found in (*vars(programs).items(), (GraphRAG.__name__, GraphRAG))
    if isinstance(found, type)
    and issubclass(found, MultiHopProgram)
    and found not in (MultiHopProgram, IterativeProgram)
}
"""Name to class: what `ga_dspy.programs` exports, `GraphRAG`, and what an app registers."""


class UnknownProgram(ArtifactError):
    """The program is none of the known ones; an artifact cannot name any class it likes."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"program {name!r} is unknown; expected one of {', '.join(sorted(PROGRAMS))}; "
            "decorate your own class with ga_dspy.artifact.register where the app starts"
        )
        self.name = name


class UnknownSetting(ArtifactError):
    """A setting, saved or overridden, that the program does not have."""

    def __init__(self, program: str, name: str, known: tuple[str, ...]) -> None:
        super().__init__(
            f"{program} has no setting {name!r}; expected one of {', '.join(known)}; "
            "remove it, or install the version named in the artifact's manifest"
        )
        self.program, self.name, self.known = program, name, known


class MissingSetting(ArtifactError):
    """A setting of the program that the artifact does not tell."""

    def __init__(self, program: str, name: str) -> None:
        super().__init__(
            f"the artifact does not say {name!r} of {program}; expected a value for every "
            f"setting; pass {name}=… to load, or install the version named in its manifest"
        )
        self.program, self.name = program, name


class InvalidSetting(ArtifactError):
    """A setting has a value that the program does not take."""

    def __init__(self, program: str, cause: str) -> None:
        super().__init__(
            f"a setting of {program} is not valid: {cause}; expected a value that the program "
            "takes; correct the override, or the settings in manifest.json"
        )
        self.program, self.cause = program, cause


def register(program: ProgramClass) -> ProgramClass:
    """Make an app's own program known, so that it can be saved and loaded.

    A decorator. The name in the artifact is the name of the class; the class must take a
    retriever first and everything that its `settings()` names as keyword arguments.

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
    """The name under which a program's class is known.

    Raises:
        UnknownProgram: It is not.
    """
    name = type(program).__name__
    if PROGRAMS.get(name) is not type(program):
        raise UnknownProgram(name)
    return name


def build(name: str, settings: Mapping[str, Any], retriever: Any) -> MultiHopProgram:
    """Make a program again, uncompiled.

    Args:
        name: A known program.
        settings: Its settings; values may be as JSON has them.
        retriever: Anything `ga_dspy.retrieval.as_retriever` takes.

    Raises:
        UnknownProgram: There is no such program.
        UnknownSetting, MissingSetting, InvalidSetting: The settings do not fit it.
    """
    if name not in PROGRAMS:
        raise UnknownProgram(name)
    kind = PROGRAMS[name]
    checked = _checked(name, kind, settings)
    try:
        program = kind(retriever, **checked)
    except InputError as error:
        raise InvalidSetting(name, str(error)) from error
    for setting in program.settings():
        if setting not in settings:
            raise MissingSetting(name, setting)
    return program


def _checked(name: str, kind: type[MultiHopProgram], settings: Mapping[str, Any]) -> dict[str, Any]:
    known = tuple(inspect.signature(kind.__init__).parameters)[2:]  # self, retriever
    hints = get_type_hints(kind.__init__)
    checked = {}
    for setting, value in settings.items():
        if setting not in known:
            raise UnknownSetting(name, setting, known)
        try:
            checked[setting] = _typed(hints.get(setting, Any), value)
        except ValidationError as error:
            cause = error.errors(include_url=False)[0]["msg"]
            raise InvalidSetting(name, f"{setting} is {value!r} ({cause})") from error
    return checked


def _typed(hint: Any, value: Any) -> Any:
    """The value as a type, strictly; a list where a tuple is due is read as JSON means it."""
    shape: TypeAdapter[Any] = TypeAdapter(hint)
    if isinstance(value, list | dict):
        return shape.validate_json(json.dumps(value), strict=True)
    return shape.validate_python(value, strict=True)
