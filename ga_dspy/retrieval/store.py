"""One folder, one index: building, opening and changing it so that readers never see a half.

Each change writes the new contents beside the old, then puts the manifest in place, then removes
the old contents. A process killed anywhere leaves an index that opens, old or new.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ga_dspy.errors import GaDspyError
from ga_dspy.retrieval.contents import Contents
from ga_dspy.retrieval.manifest import (
    MANIFEST,
    WORK,
    DamagedIndex,
    Manifest,
    check_sizes,
    describe_files,
    read_manifest,
    write_manifest,
)

if TYPE_CHECKING:
    from ga_dspy.passage import Passage

_LOCK = ".lock"


class FolderInUse(GaDspyError):
    """Another process is writing to the index."""

    def __init__(self, path: Path) -> None:
        super().__init__(
            f"{path} is being written by another process; expected to be the only writer; "
            "wait until it is done, then try again"
        )
        self.path = path


class ForeignFolder(GaDspyError):
    """The folder for a new index already holds something else."""

    def __init__(self, path: Path, found: str) -> None:
        super().__init__(
            f"{path} already holds {found}; expected an empty folder, an unfinished build or the "
            "same index; choose another folder, or delete this one"
        )
        self.path = path


class IndexChanged(GaDspyError):
    """The stored index is no longer the one that was opened."""

    def __init__(self, path: Path, opened: int, found: int) -> None:
        super().__init__(
            f"{path} is at change {found}, it was opened at change {opened}; expected no other "
            "writer in between; open it again"
        )
        self.path = path


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Be the only writer of a folder; the lock dies with the process.

    Raises:
        FolderInUse: Another process writes to it.
    """
    from filelock import FileLock, Timeout

    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / _LOCK, timeout=0)
    try:
        lock.acquire()
    except Timeout as error:
        raise FolderInUse(folder) from error
    try:
        yield
    finally:
        lock.release()


def finished(folder: Path, wanted: Manifest) -> bool:
    """Whether the folder already holds what a build would make.

    Raises:
        ForeignFolder: It holds another index, or files that are none of ours.
    """
    if (folder / MANIFEST).is_file():
        found = read_manifest(folder)
        same = ("kind", "factory", "encoder", "source", "added", "deleted")
        if all(getattr(found, name) == getattr(wanted, name) for name in same):
            check_sizes(folder, found)
            return True
        raise ForeignFolder(folder, f"another index ({found.passages} passages, {found.kind})")
    ours = (_LOCK, WORK, wanted.contents, f"{MANIFEST}.new")
    foreign = sorted(path.name for path in folder.iterdir() if path.name not in ours)
    if foreign:
        raise ForeignFolder(folder, f"{foreign[0]!r}")
    return False


def store(folder: Path, contents: Contents, manifest: Manifest) -> Manifest:
    """Write contents as the manifest's generation and make them the current ones."""
    target = folder / manifest.contents
    if target.exists():
        shutil.rmtree(target)
    contents.save(target, manifest.factory)
    manifest = manifest.model_copy(update={"files": describe_files(folder, target)})
    write_manifest(folder, manifest)
    for old in folder.glob("contents-*"):
        if old.name != manifest.contents:
            shutil.rmtree(old)
    if (folder / WORK).is_dir():
        shutil.rmtree(folder / WORK)
    return manifest


def open_contents(folder: Path) -> tuple[Manifest, Contents]:
    """Open the current contents after checking that every file is there in full.

    Raises:
        NotAnIndex, UnfinishedBuild, UnknownFormat, DamagedIndex: See their messages.
    """
    while True:
        manifest = read_manifest(folder)
        try:
            check_sizes(folder, manifest)
            return manifest, Contents.load(folder / manifest.contents, manifest.factory)
        except (DamagedIndex, FileNotFoundError):
            # A writer may have put new contents in place since the manifest was read.
            if read_manifest(folder) == manifest:
                raise


def check_unchanged(folder: Path, opened: Manifest) -> None:
    """Raise `IndexChanged` where another writer has changed the index since it was opened."""
    found = read_manifest(folder)
    if (found.generation, found.source) != (opened.generation, opened.source):
        raise IndexChanged(folder, opened.generation, found.generation)


def source_hash(passages: Iterable[Passage]) -> str:
    """SHA-256 over ids, titles and texts, in order."""
    digest = hashlib.sha256()
    for passage in passages:
        for field in (passage.id, passage.title, passage.text):
            data = field.encode()
            digest.update(len(data).to_bytes(8, "big") + data)
    return digest.hexdigest()
