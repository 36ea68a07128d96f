"""What outlives a `kill -9`: journals, files and folders put in place whole; work in threads."""

from __future__ import annotations

import contextvars
import hashlib
import os
import queue
import shutil
import sqlite3
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from ga_dspy.errors import DamagedFile, InputError, InUse, UnknownFormat

Item = TypeVar("Item")
Result = TypeVar("Result")


class Journal:
    """A SQLite file with a write-ahead log: each statement is a transaction of its own.

    What was written before a `kill -9` is there afterwards. The file is locked by the process
    that has it open, and the lock goes with the process, however it ends. Threads may share a
    journal. A context manager.

    Args:
        path: The file; made, with its folder, where it is absent.
        what: What writes such a file ("run", "graph build"), for messages.
        tables: The statements that make its tables, by name.
        layout: The version of the tables, kept in the file.
        shared: Let other processes use the file too; by default there is one writer.
        durable: Outlive a power cut as well, at the price of a disk flush a statement.

    Raises:
        InUse: Another process has it open.
        DamagedFile: The file is something else, or has tables of another version.
    """

    def __init__(
        self,
        path: Path,
        what: str,
        tables: dict[str, str],
        *,
        layout: int = 1,
        shared: bool = False,
        durable: bool = False,
    ) -> None:
        self.path, self.what = path, what
        path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = threading.Lock()
        # isolation_level=None: every statement is its own transaction, committed at once.
        self._db = sqlite3.connect(
            path, timeout=30.0 if shared else 0.2, isolation_level=None, check_same_thread=False
        )
        try:
            self._db.execute(f"PRAGMA locking_mode = {'NORMAL' if shared else 'EXCLUSIVE'}")
            begun = self._check(tables, layout)
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
            if not begun:
                self.transaction([(sql, ()) for sql in tables.values()])
                self._db.execute(f"PRAGMA user_version = {layout}")
        except sqlite3.DatabaseError as error:
            self.close()
            if "locked" not in str(error):
                raise self.damaged(str(error)) from error
            raise InUse(
                f"{path} is in use by another {what}",
                expected="to be its only writer",
                remedy="wait for that one to end, or choose another output directory",
            ) from error
        except DamagedFile:
            self.close()
            raise

    def _check(self, tables: dict[str, str], layout: int) -> bool:
        """Whether the tables are there; a file of another kind is refused before it is touched."""
        (version,) = self._db.execute("PRAGMA user_version").fetchone()
        names = self._db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        there = {name for (name,) in names}
        if there and (version not in (0, layout) or there != tables.keys()):
            raise self.damaged("a database with another layout")
        return bool(there)

    def damaged(self, why: str) -> DamagedFile:
        """The error that says why the file is no journal of this kind."""
        return DamagedFile(
            f"{self.path}: {why}",
            expected=f"the journal of a ga_dspy {self.what}",
            remedy="choose another output directory, or move the file away to begin anew",
        )

    def rows(self, sql: str, values: Sequence[Any] = ()) -> list[Any]:
        """All rows that a query returns."""
        with self._lock:
            return self._db.execute(sql, values).fetchall()

    def write(self, sql: str, *values: Any) -> None:
        """Run one statement; it is on disk when this returns."""
        with self._lock:
            self._db.execute(sql, values)

    def transaction(self, statements: Sequence[tuple[str, Sequence[Any]]]) -> None:
        """Run several statements, all or none."""
        with self._lock:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                for sql, values in statements:
                    self._db.execute(sql, values)
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")

    def close(self) -> None:
        """Give the file back."""
        with self._lock:
            self._db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def write_whole(path: Path, content: str | bytes) -> None:
    """Put a file in place in one step: readers see the old one or the new one, never a part.

    Text is written as UTF-8; a lone surrogate, which JSON can spell, as JSON spells it.
    """
    if isinstance(content, str):
        content = content.encode("utf-8", "backslashreplace")
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    with partial.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)


MANIFEST: Final = "manifest.json"


class StoredFile(BaseModel):
    """Size and SHA-256 of a file."""

    model_config = ConfigDict(frozen=True)

    bytes: int
    sha256: str


class Generation(BaseModel):
    """The manifest of a folder whose contents change as a whole; what they are, its children say.

    Each change writes a folder of contents beside the old one, then puts the manifest in place,
    then removes the old contents. A process killed anywhere leaves a folder that opens, old or new.

    Attributes:
        generation: Counts the changes; names the folder of the current contents.
        files: Size and hash of every file of the contents, by path inside the folder.
    """

    model_config = ConfigDict(frozen=True)

    generation: int = 0
    files: Mapping[str, StoredFile] = {}

    @property
    def contents(self) -> str:
        """The folder, inside the stored one, of the current contents."""
        return f"contents-{self.generation:06d}"

    @classmethod
    def read(cls, folder: Path, what: str) -> Self:
        """Read the manifest of a folder that has one.

        Args:
            folder: The folder.
            what: What it holds ("an index", "a graph"), for messages.

        Raises:
            UnknownFormat: It was written by another version, or is no manifest.
        """
        path = folder / MANIFEST
        try:
            return cls.model_validate_json(path.read_bytes())
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"])) or "file"
            raise UnknownFormat(
                f"{path} does not read as {what} of format 1 ({place}: {first['msg']})",
                expected=f"{what} that this version of ga-dspy wrote",
                remedy="build it again, or install the version that wrote it",
            ) from error

    def check(self, folder: Path, *, hashes: bool = False) -> None:
        """Check that every file of the contents is there in full.

        Args:
            folder: The folder.
            hashes: Compare the files' hashes too, which reads all of them.

        Raises:
            DamagedFile: A file is missing or is not what was written.
        """
        for name, stored in self.files.items():
            path, expected = folder / name, f"{stored.bytes} bytes"
            found = f"has {path.stat().st_size} bytes" if path.is_file() else "is missing"
            if found == f"has {expected}" and hashes:
                with path.open("rb") as file:
                    found = f"has SHA-256 {hashlib.file_digest(file, 'sha256').hexdigest()}"
                expected = f"SHA-256 {stored.sha256}"
            if found != f"has {expected}":
                raise DamagedFile(
                    f"{path} {found}",
                    expected=expected,
                    remedy="restore the folder from a copy, or run its build again",
                )

    def put(self, folder: Path, save: Callable[[Path], None]) -> Self:
        """Have the contents saved into a new folder and make them the current ones.

        Returns:
            The manifest, with the files.
        """
        target = folder / self.contents
        if target.exists():
            shutil.rmtree(target)
        save(target)
        files = {}
        for path in sorted(path for path in target.rglob("*") if path.is_file()):
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            stored = StoredFile(bytes=path.stat().st_size, sha256=digest)
            files[path.relative_to(folder).as_posix()] = stored
        manifest = self.model_copy(update={"files": files})
        write_whole(folder / MANIFEST, manifest.model_dump_json(indent=2, by_alias=True))
        for old in folder.glob("contents-*"):
            if old.name != self.contents:
                shutil.rmtree(old)
        return manifest


Manifest = TypeVar("Manifest", bound=Generation)


def open_current(
    folder: Path, read: Callable[[Path], Manifest], load: Callable[[Manifest], Result]
) -> Result:
    """Check and load the current contents of a folder, in full or not at all.

    Args:
        folder: The folder.
        read: Reads its manifest.
        load: Loads what the manifest names.

    Raises:
        DamagedFile: A file is missing or has another size.
    """
    while True:
        manifest = read(folder)
        try:
            manifest.check(folder)
            return load(manifest)
        except (DamagedFile, FileNotFoundError):
            # A writer may have put new contents in place since the manifest was read.
            if read(folder) == manifest:
                raise


def parallel(
    work: Callable[[Item], Result], items: Sequence[Item], threads: int, name: str = "ga-dspy"
) -> Generator[Result, None, None]:
    """Do a piece of work for each item, in threads, and give the results as they come.

    Each item runs in a copy of the caller's context, so `dspy.context` holds in the threads. An
    error that `work` lets through is raised here; whoever closes the generator stops the rest.
    With one thread the work is done in the calling one.

    Raises:
        InputError: `threads` is below 1.
    """
    if threads < 1:
        raise InputError(f"threads is {threads}", expected="1 or more", remedy="pass threads=1")
    if threads == 1:
        for item in items:
            yield contextvars.copy_context().run(work, item)
        return
    todo: queue.SimpleQueue[tuple[contextvars.Context, Item]] = queue.SimpleQueue()
    done: queue.SimpleQueue[tuple[Result | None, BaseException | None]] = queue.SimpleQueue()
    stop = threading.Event()
    for item in items:
        todo.put((contextvars.copy_context(), item))

    def run() -> None:
        while not stop.is_set():
            try:
                context, item = todo.get_nowait()
            except queue.Empty:
                return
            try:
                done.put((context.run(work, item), None))
            except BaseException as error:  # noqa: BLE001 - raised in the calling thread
                done.put((None, error))
                return

    # Daemons, so that Ctrl-C ends the process without waiting for calls under way.
    for number in range(min(threads, len(items))):
        threading.Thread(target=run, name=f"{name}-{number}", daemon=True).start()
    try:
        for _ in items:
            result, error = done.get()
            if error is not None:
                raise error
            yield result  # type: ignore[misc]
    finally:
        stop.set()
