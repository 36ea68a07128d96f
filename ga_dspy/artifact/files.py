"""The files of an artifact: strict JSON, a folder that is there whole or not at all, addresses."""

from __future__ import annotations

import importlib
import json
import math
import re
import shutil
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from ga_dspy.errors import ArtifactError, listed, need_package
from ga_dspy.storage import write_whole

Shape = TypeVar("Shape", bound=BaseModel)


class Record(BaseModel):
    """A frozen value of an artifact; unknown keys and values of another type are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


def parsed(shape: type[Shape], data: bytes, where: str) -> Shape:
    """Read JSON into a value of a type.

    Raises:
        ArtifactError: It is not JSON, has keys that the type does not have, or another shape; or a
            key stands twice, or a number is not finite.
    """
    try:
        value = shape.model_validate_json(data)
    except ValidationError as error:
        raise _wrong(error, where) from error
    try:
        json.loads(data, object_pairs_hook=_once, parse_float=_finite, parse_constant=_finite)
    except ValueError as error:
        raise ArtifactError(
            f"{where} has {error}",
            expected="every key once and finite numbers, so that all readers read the same",
            remedy="mend it, or save the program anew",
        ) from error
    return value


def _once(pairs: list[tuple[str, Any]]) -> None:
    seen = set[str]()
    for key, _ in pairs:
        if key in seen:
            raise ValueError(f"the key {key!r} twice")
        seen.add(key)


def _finite(number: str) -> None:
    if not math.isfinite(float(number)):
        raise ValueError(f"the number {number[:20]}")


def _wrong(error: ValidationError, where: str) -> ArtifactError:
    faults = error.errors(include_url=False, include_input=False)
    paths = [".".join(map(str, fault["loc"])) or "the whole" for fault in faults]
    found = [(path, fault["type"], fault["msg"]) for path, fault in zip(paths, faults, strict=True)]
    unknown = [path for path, kind, _ in found if kind == "extra_forbidden"]
    if found[0][1] == "json_invalid":
        what, expected = f"is not valid JSON ({found[0][2]})", "the file as it was saved"
    elif unknown:
        what, expected = f"has unknown keys {listed(unknown)}", "those of this version's format"
    else:
        wrong = listed((f"{path}: {told}" for path, _, told in found), between="; ")
        what = f"does not have the expected shape: {wrong}"
        expected = "the keys and types of ga_dspy.artifact's records"
    return ArtifactError(
        f"{where} {what}",
        expected=expected,
        remedy="copy the artifact again, save it anew, or install the version that wrote it",
    )


# --- The folder

MANIFEST = "manifest.json"
PROGRAM = "program.json"
FILES = (MANIFEST, PROGRAM)

LARGEST = 32 * 2**20
"""The most bytes that a file of an artifact has: no more is read, or written."""


def _taken(path: Path, found: str) -> ArtifactError:
    return ArtifactError(
        f"{path} is {found}",
        expected="a free path or an artifact to replace",
        remedy="choose another path, or move away what is there",
    )


def read_file(folder: Path, name: str) -> bytes:
    """Read a file of an artifact.

    Raises:
        ArtifactError: It is not there, or larger than any artifact.
    """
    path = folder / name
    if not path.is_file():
        raise ArtifactError(
            f"there is no {path if folder.is_dir() else folder}",
            expected=f"a folder with {' and '.join(FILES)}",
            remedy="check the path, or copy the artifact again",
        )
    with path.open("rb") as file:
        return check_size(file.read(LARGEST + 1), str(path))


def check_size(data: bytes, where: str) -> bytes:
    """Check that a file of an artifact is not too large.

    Raises:
        ArtifactError: It is.
    """
    if len(data) > LARGEST:
        raise ArtifactError(
            f"{where} has more than {LARGEST // 2**20} MB",
            expected="instructions and demos",
            remedy="take out demos, or shorten them",
        )
    return data


def check_free(path: Path, *, overwrite: bool) -> None:
    """Check that an artifact may be written to a path.

    Raises:
        ArtifactError: There is one and it may not be replaced, or there is something else.
    """
    if not path.exists() and not path.is_symlink():
        return
    if path.is_symlink() or not path.is_dir():
        raise _taken(path, "a link" if path.is_symlink() else "a file")
    names = sorted(entry.name for entry in path.iterdir())
    if foreign := [name for name in names if name not in FILES]:
        raise _taken(path, f"a folder with other content ({', '.join(foreign[:5])})")
    if names and not overwrite:
        raise ArtifactError(
            f"there is an artifact at {path}",
            expected="a path that is free",
            remedy="pass overwrite=True to replace it, or choose another path",
        )


def write(path: Path, files: Mapping[str, bytes], *, overwrite: bool) -> None:
    """Write an artifact beside its place, then move it there in one step.

    A crash at any point leaves what was there before, or nothing, or the whole new artifact;
    replacing one has a moment between two renames in which it is at neither place, and the old
    one is then beside it under a hidden name.

    Raises:
        ArtifactError: See `check_free`.
    """
    path = path.absolute()
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.parent / f".{path.name}.{uuid.uuid4().hex}.new"
    try:
        fresh.mkdir()
        for name, content in files.items():
            write_whole(fresh / name, content)
        # Looked at anew: another process may have written here meanwhile.
        check_free(path, overwrite=overwrite)
        _move(fresh, path)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _move(fresh: Path, path: Path) -> None:
    if not path.exists():
        fresh.rename(path)
        return
    old = fresh.with_suffix(".old")
    path.rename(old)
    try:
        fresh.rename(path)
    except BaseException:
        old.rename(path)
        raise
    shutil.rmtree(old)


# --- Addresses

_REGISTRY = "ga_dspy.optimize.registry"
"""What fetches an artifact from MLflow; imported for its addresses alone."""

# Two characters or more: a single one is a Windows drive.
_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")


def located(source: Path | str) -> Path:
    """The local folder of a source.

    Args:
        source: A path, or a URI such as "models:/name@champion" or "runs:/id/artifact".

    Raises:
        ArtifactError: Nothing resolves such a URI.
        MissingExtra: mlflow is not installed.
    """
    match = _URI.match(source) if isinstance(source, str) else None
    if match is None:
        return Path(source)
    if match[1].lower() not in ("models", "runs"):
        raise ArtifactError(
            f"{source} has the scheme {match[1].lower()!r}",
            expected="a folder, or one of models, runs",
            remedy="fetch the folder first",
        )
    need_package("mlflow", "optimize")
    return Path(importlib.import_module(_REGISTRY).resolve(source))
