"""The manifest of a stored index: what the folder holds, and how to tell that it is whole."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from ga_dspy.errors import GaDspyError

FORMAT = 1
MANIFEST = "manifest.json"
WORK = ".building"


class StoredFile(BaseModel):
    """Size and SHA-256 of a file."""

    model_config = ConfigDict(frozen=True)

    bytes: int
    sha256: str


class StoredEncoder(BaseModel):
    """The encoder that made the vectors; `loadable` where `load_encoder(name)` finds it."""

    model_config = ConfigDict(frozen=True)

    name: str
    fingerprint: str
    dimension: int
    loadable: bool


class Manifest(BaseModel):
    """What an index folder holds.

    `generation` counts the changes since the build and names the folder of the current contents.
    `source` is the hash of the passages it was built from. `added` and `deleted` count passages
    since then.
    """

    model_config = ConfigDict(frozen=True)

    format: Literal[1] = 1
    kind: Literal["sparse", "dense", "hybrid", "linked"]
    factory: str
    encoder: StoredEncoder | None
    passages: int
    source: str
    generation: int = 0
    added: int = 0
    deleted: int = 0
    files: Mapping[str, StoredFile] = {}

    @property
    def contents(self) -> str:
        """The folder, inside the index, of the current generation."""
        return f"contents-{self.generation:06d}"

    def changed(self, passages: int, *, added: int, deleted: int) -> Manifest:
        """Return the manifest of the next generation, its files not yet described."""
        return self.model_copy(
            update={
                "passages": passages,
                "generation": self.generation + 1,
                "added": self.added + added,
                "deleted": self.deleted + deleted,
                "files": {},
            }
        )


class NotAnIndex(GaDspyError):
    """The folder holds no index."""

    def __init__(self, path: Path) -> None:
        super().__init__(
            f"{path} holds no {MANIFEST}; expected a folder written by Index.build or "
            "`ga-dspy index build`; check the path, or build the index there"
        )
        self.path = path


class UnfinishedBuild(GaDspyError):
    """A build stopped before it was finished; what it encoded is kept."""

    def __init__(self, path: Path) -> None:
        super().__init__(
            f"{path} holds a build that was not finished; expected {MANIFEST}; run the same build "
            "again: what is already encoded is kept"
        )
        self.path = path


class DamagedIndex(GaDspyError):
    """A file of the index is missing or is not what was written."""

    def __init__(self, path: Path, found: str, expected: str) -> None:
        super().__init__(
            f"{path} {found}; expected {expected}; restore the folder from a copy, or delete it "
            "and build it again"
        )
        self.path = path


class UnknownFormat(GaDspyError):
    """The index was written in a format that this version does not read."""

    def __init__(self, path: Path, found: str) -> None:
        super().__init__(
            f"{path} does not read as format {FORMAT} ({found}); expected an index written by this "
            "version of ga-dspy; build it again, or install the version that wrote it"
        )
        self.path = path


def read_manifest(folder: Path) -> Manifest:
    """Read the manifest of an index folder.

    Raises:
        NotAnIndex: There is none.
        UnfinishedBuild: There is none yet.
        UnknownFormat: It was written by another version, or is no manifest.
    """
    path = folder / MANIFEST
    if not path.is_file():
        raise UnfinishedBuild(folder) if (folder / WORK).is_dir() else NotAnIndex(folder)
    try:
        return Manifest.model_validate_json(path.read_bytes())
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "file"
        raise UnknownFormat(path, f"{place}: {first['msg']}") from error


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Put the manifest in place in one step: readers see the old one or the new one."""
    draft = folder / f"{MANIFEST}.new"
    with draft.open("w", encoding="utf-8") as file:
        file.write(manifest.model_dump_json(indent=2))
        file.flush()
        os.fsync(file.fileno())
    draft.replace(folder / MANIFEST)


def describe_files(folder: Path, contents: Path) -> dict[str, StoredFile]:
    """Size and hash of every file of the contents, by path inside the index folder."""
    files = sorted(path for path in contents.rglob("*") if path.is_file())
    return {
        path.relative_to(folder).as_posix(): StoredFile(
            bytes=path.stat().st_size, sha256=file_hash(path)
        )
        for path in files
    }


def check_sizes(folder: Path, manifest: Manifest) -> None:
    """Raise `DamagedIndex` where a file is missing or has another size than was written."""
    for name, stored in manifest.files.items():
        path = folder / name
        if not path.is_file():
            raise DamagedIndex(path, "is missing", f"{stored.bytes} bytes")
        found = path.stat().st_size
        if found != stored.bytes:
            raise DamagedIndex(path, f"has {found} bytes", f"{stored.bytes} bytes")


def check_hashes(folder: Path, manifest: Manifest) -> None:
    """Raise `DamagedIndex` where a file is not byte for byte what was written."""
    check_sizes(folder, manifest)
    for name, stored in manifest.files.items():
        found = file_hash(folder / name)
        if found != stored.sha256:
            raise DamagedIndex(folder / name, f"has SHA-256 {found}", stored.sha256)


def file_hash(path: Path) -> str:
    """SHA-256 of a file, hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
