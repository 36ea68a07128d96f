"""JSON into frozen records, strictly: no unknown key, no value of another type."""

from __future__ import annotations

from typing import TypeVar

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from ga_dspy.artifact.errors import ArtifactError

Shape = TypeVar("Shape")
_SHOWN = 5


class NotJSON(ArtifactError):
    """A file of the artifact is cut off, empty, not UTF-8 or otherwise not JSON."""

    def __init__(self, where: str, cause: str) -> None:
        super().__init__(
            f"{where} is not valid JSON ({cause}); expected the file as it was saved; "
            "copy the artifact again, or save the program anew"
        )
        self.where, self.cause = where, cause


class UnknownKeys(ArtifactError):
    """A file of the artifact has keys that this version does not know."""

    def __init__(self, where: str, keys: tuple[str, ...]) -> None:
        super().__init__(
            f"{where} has unknown keys {', '.join(map(repr, keys))}; expected only the keys of "
            "this version's format; remove them, or install the version that wrote the artifact"
        )
        self.where, self.keys = where, keys


class WrongShape(ArtifactError):
    """A file of the artifact lacks a key, or a value is of another type."""

    def __init__(self, where: str, faults: tuple[str, ...]) -> None:
        super().__init__(
            f"{where} does not have the expected shape: {'; '.join(faults[:_SHOWN])}; expected "
            "the keys and types of ga_dspy.artifact's records; mend them, or save the program anew"
        )
        self.where, self.faults = where, faults


class Record(BaseModel):
    """A frozen value of an artifact; unknown keys and values of another type are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


def parsed(shape: TypeAdapter[Shape], data: bytes | str, where: str) -> Shape:
    """Read JSON into a value of a type.

    Raises:
        NotJSON: It is not JSON.
        UnknownKeys: It has keys that the type does not have.
        WrongShape: Anything else is wrong with it.
    """
    try:
        return shape.validate_json(data)
    except ValidationError as error:
        raise _named(error, where) from error


def _named(error: ValidationError, where: str) -> ArtifactError:
    faults = error.errors(include_url=False, include_input=False)
    if faults[0]["type"] == "json_invalid":
        return NotJSON(where, faults[0]["msg"].removeprefix("Invalid JSON: "))
    paths = [".".join(map(str, fault["loc"])) or "the whole" for fault in faults]
    unknown = [
        path
        for path, fault in zip(paths, faults, strict=True)
        if fault["type"] == "extra_forbidden"
    ]
    if unknown:
        return UnknownKeys(where, tuple(unknown))
    said = [f"{path}: {fault['msg']}" for path, fault in zip(paths, faults, strict=True)]
    return WrongShape(where, tuple(said))
