"""The folder of an artifact: it is there as a whole or not at all."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Mapping
from pathlib import Path

from ga_dspy.artifact.errors import ArtifactError

MANIFEST = "manifest.json"
PROGRAM = "program.json"
FILES = (MANIFEST, PROGRAM)


class MissingFile(ArtifactError):
    """A file of the artifact, or the folder itself, is not there."""

    def __init__(self, path: Path) -> None:
        super().__init__(
            f"there is no {path}; expected a folder with {' and '.join(FILES)}; "
            "check the path, or copy the artifact again"
        )
        self.path = path


class AlreadyThere(ArtifactError):
    """An artifact has that path already."""

    def __init__(self, path: Path) -> None:
        super().__init__(
            f"there is an artifact at {path}; expected a path that is free; "
            "pass overwrite=True to replace it, or choose another path"
        )
        self.path = path


class NotAnArtifact(ArtifactError):
    """The path holds something else, which is never replaced."""

    def __init__(self, path: Path, found: str) -> None:
        super().__init__(
            f"{path} is {found}; expected a free path or an artifact to replace; "
            "choose another path, or move away what is there"
        )
        self.path, self.found = path, found


def read_file(folder: Path, name: str) -> bytes:
    """Read a file of an artifact.

    Raises:
        MissingFile: It is not there.
    """
    path = folder / name
    if not path.is_file():
        raise MissingFile(path if folder.is_dir() else folder)
    return path.read_bytes()


def check_free(path: Path, *, overwrite: bool) -> None:
    """Check that an artifact may be written to a path.

    Raises:
        AlreadyThere: There is one, and it may not be replaced.
        NotAnArtifact: There is something else.
    """
    if not path.exists() and not path.is_symlink():
        return
    if path.is_symlink() or not path.is_dir():
        raise NotAnArtifact(path, "a link" if path.is_symlink() else "a file")
    names = sorted(entry.name for entry in path.iterdir())
    if foreign := [name for name in names if name not in FILES]:
        raise NotAnArtifact(path, f"a folder with other content ({', '.join(foreign[:5])})")
    if names and not overwrite:
        raise AlreadyThere(path)


def write(path: Path, files: Mapping[str, bytes], *, overwrite: bool) -> None:
    """Write an artifact beside its place, then move it there in one step.

    A crash at any point leaves what was there before, or nothing, or the whole new artifact;
    replacing one has a moment between two renames in which it is at neither place, and the old
    one is then beside it under a hidden name.

    Raises:
        AlreadyThere, NotAnArtifact: See `check_free`.
    """
    path = path.absolute()
    check_free(path, overwrite=overwrite)
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.parent / f".{path.name}.{uuid.uuid4().hex}.new"
    try:
        fresh.mkdir()
        for name, content in files.items():
            _write_through(fresh / name, content)
        _move(fresh, path, overwrite=overwrite)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _write_through(path: Path, content: bytes) -> None:
    with path.open("xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _move(fresh: Path, path: Path, *, overwrite: bool) -> None:
    # Looked at anew: another process may have written here meanwhile.
    check_free(path, overwrite=overwrite)
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
