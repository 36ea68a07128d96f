"""Storage that survives `kill -9`: journals, atomic writes of files and folders; thread pools."""

from __future__ import annotations

import asyncio
import contextvars
import hashlib
import json
import logging
import os
import queue
import shutil
import sqlite3
import sys
import threading
import time
import tomllib
from codecs import BOM_UTF8
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, NoReturn, Self, TypeVar
from weakref import WeakKeyDictionary

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from ga_dspy.errors import (
    DamagedFile,
    GaDspyError,
    InputError,
    InUse,
    RunAborted,
    UnknownFormat,
    require,
)
from ga_dspy.secrets import SHORTEST_SECRET, secrets_of, without

Item = TypeVar("Item")
Result = TypeVar("Result")

_LOG = logging.getLogger("ga_dspy")


def refused_by_disk(path: object, error: Exception) -> RunAborted:
    """Return the error for a disk that is full or read-only, or a path that is something else."""
    return RunAborted(
        f"{path}: {getattr(error, 'strerror', None) or error}",
        expected="a place that can be read and written",
        remedy="free some space, or correct the path or its permissions, then run the same again: "
        "what was finished is kept",
    )


@contextmanager
def on_disk(path: Path) -> Iterator[None]:
    """Turn errors of the operating system about a file or a folder into `RunAborted`.

    Raises:
        RunAborted: A file cannot be read or written; the message names it and the remedy.
    """
    try:
        yield
    except OSError as error:
        raise refused_by_disk(error.filename or path, error) from error


# SQLite's errors about a file, by the beginning of their names; any other is a bug.
_DAMAGED = ("SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_TOOBIG")
_BUSY = ("SQLITE_BUSY", "SQLITE_LOCKED")
_REFUSED = ("SQLITE_FULL", "SQLITE_IOERR", "SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM")


def _text(stored: bytes) -> str:
    """Decode a text of SQLite; a damaged one is empty, which no row can be read from."""
    try:
        return stored.decode()
    except UnicodeDecodeError:
        return ""


class Journal:
    """A SQLite file with a write-ahead log, in which each statement is a transaction of its own.

    What was written survives `kill -9`. The process that opens the file locks it; the lock ends
    with the process. Threads may share a journal. A context manager.

    Args:
        path: The file; created, with its folder, if it does not exist.
        what: What writes such a file ("run", "graph build"), for messages.
        tables: The statements that create its tables, by name.
        shared: Let other processes use the file too; by default there is one writer.
        durable: Survive a power failure too, at the cost of a disk flush per statement.

    Raises:
        InUse: Another process has it open.
        DamagedFile: The file is something else.
        RunAborted: Here or later, the file cannot be written.
    """

    def __init__(
        self,
        path: Path,
        what: str,
        tables: dict[str, str],
        *,
        shared: bool = False,
        durable: bool = False,
    ) -> None:
        self.path, self.what = path, what
        self._lock = threading.Lock()
        with self._named():
            path.parent.mkdir(parents=True, exist_ok=True)
            # isolation_level=None: every statement is its own transaction, committed at once.
            self._db = sqlite3.connect(
                path, timeout=30.0 if shared else 0.2, isolation_level=None, check_same_thread=False
            )
            self._db.text_factory = _text
            try:
                self._db.execute(f"PRAGMA locking_mode = {'NORMAL' if shared else 'EXCLUSIVE'}")
                self._prepare(tables)
                self._db.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
            except BaseException:
                self._db.close()
                raise

    def _prepare(self, tables: dict[str, str]) -> None:
        """Create the tables; reject a file of another kind unchanged."""
        names = self._db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        found = {name for (name,) in names}
        if found and found != tables.keys():
            raise self.damaged("a database with other tables")
        self._db.execute("PRAGMA journal_mode = WAL")
        if not found:
            self.transaction([(sql, ()) for sql in tables.values()])

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Turn errors of SQLite and the disk into errors that name the file."""
        try:
            with on_disk(self.path):
                yield
        except UnicodeDecodeError as error:
            raise self.damaged(str(error)) from error
        except sqlite3.Error as error:
            kind = getattr(error, "sqlite_errorname", "")
            # A statement with valid syntax fails only if its tables are missing.
            misfit = kind == "SQLITE_ERROR" and "syntax error" not in str(error)
            if misfit or kind.startswith(_DAMAGED):
                raise self.damaged(str(error)) from error
            if kind.startswith(_REFUSED):
                raise refused_by_disk(self.path, error) from error
            if not kind.startswith(_BUSY):
                raise
            raise InUse(
                f"{self.path} is in use by another {self.what}",
                expected="to be its only writer",
                remedy="wait for that one to end, or choose another output directory",
            ) from error

    def damaged(self, why: str) -> DamagedFile:
        """Return the error that says why the file is not a journal of this kind."""
        return DamagedFile(
            f"{self.path}: {why}",
            expected=f"the journal of a ga_dspy {self.what}",
            remedy="choose another output directory, or move the file away to start again (of a "
            "damaged one, `sqlite3 FILE .recover` saves the rows that can be read)",
        )

    def rows(self, sql: str, values: Sequence[Any] = ()) -> list[Any]:
        """Return all rows of a query."""
        with self._lock, self._named():
            return self._db.execute(sql, values).fetchall()

    def readable(
        self, rows: Iterable[Sequence[Any]], read: Callable[..., Result]
    ) -> Iterator[tuple[Any, Result]]:
        """Yield the first column of each row, and what `read` makes of the others.

        A row that `read` rejects is logged and counts as missing, so that its step is done again.
        """
        for key, *values in rows:
            try:
                found = read(*values)
            except (ValueError, TypeError, LookupError) as error:
                why = f"{type(error).__name__}: {' '.join(str(error).split())[:100]}"
                _LOG.warning(
                    "%s: row %s is damaged and counts as missing (%s)", self.path, key, why
                )
            else:
                yield key, found

    def write(self, sql: str, *values: Any) -> None:
        """Run one statement, with the secrets in use redacted; it is on disk when this returns."""
        if any(isinstance(value, str) and len(value) >= SHORTEST_SECRET for value in values):
            values = tuple(without(secrets_of(), values))
        with self._lock, self._named():
            self._db.execute(sql, values)

    def transaction(self, statements: Sequence[tuple[str, Sequence[Any]]]) -> None:
        """Run several statements, all or none."""
        with self._lock, self._named(), self._db:  # commits, or rolls back
            self._db.execute("BEGIN IMMEDIATE")
            for sql, values in statements:
                self._db.execute(sql, values)

    def close(self) -> None:
        """Close the file, which unlocks it."""
        with self._lock:
            self._db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def read_as(path: Path, kind: type[Item], *, expected: str, remedy: str) -> Item:
    """Read a JSON file, or YAML or TOML by its suffix, as a type.

    Args:
        path: The file.
        kind: The type, for Pydantic.
        expected: What the file should be, for messages.
        remedy: What to do if it is not.

    Raises:
        InputError: It is missing, or not of this type.
        MissingExtra: It is YAML, and PyYAML is not installed.
    """
    try:
        data = _as_json(path.read_bytes().removeprefix(BOM_UTF8), path.suffix.casefold())
        return TypeAdapter(kind).validate_json(data)
    except OSError as error:
        found = (error.strerror or str(error)).lower()
    except ValidationError as error:
        first = error.errors()[0]
        found = ": ".join(filter(None, (".".join(map(str, first["loc"])), first["msg"])))
    except ValueError as error:
        found = " ".join(str(error).split())
    raise InputError(f"{path}: {found}", expected=expected, remedy=remedy)


def _as_json(data: bytes, suffix: str) -> str | bytes:
    if suffix == ".toml":
        return json.dumps(tomllib.loads(data.decode()), default=str)
    if suffix not in (".yaml", ".yml"):
        return data
    yaml = require("yaml", "search")
    try:
        return json.dumps(yaml.safe_load(data), default=str)
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file atomically: readers see the old one or the new one, never a part.

    Text is written as UTF-8, a lone surrogate as its JSON escape.

    Raises:
        InputError: The path is a folder.
        RunAborted: The file cannot be written; an old one is left as it was.
    """
    if path.is_dir():
        raise InputError(f"{path} is a folder", expected="a file", remedy="name a file in it")
    if isinstance(content, str):
        content = content.encode("utf-8", "backslashreplace")
    partial = path.with_name(f".{path.name}.partial")
    with on_disk(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with partial.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            partial.replace(path)
        except OSError:
            with suppress(OSError):
                partial.unlink()
            raise


def link(path: Path | str, target: Path | str) -> None:
    """Link a file under another name, or copy it on a file system without hard links."""
    try:
        os.link(path, target)
    except OSError:
        shutil.copyfile(path, target)


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file, as hex digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


MANIFEST: Final = "manifest.json"
_HASHED_BY_DEFAULT = 64_000_000
"""Bytes; hashing them takes a tenth of a second."""


def not_built(folder: Path, part: str, by: str) -> InputError:
    """Return the error for a folder without a manifest; unfinished builds leave a part."""
    found, remedy = f"no {MANIFEST}", "check the path, or build it there"
    if (folder / part).exists():
        found, remedy = "an unfinished build", "run the same build again: what was done is kept"
    return InputError(f"{folder} holds {found}", expected=f"a folder made by {by}", remedy=remedy)


def damaged_contents(found: str, expected: str = "contents as they were written") -> DamagedFile:
    """Return the error for stored contents that were changed."""
    remedy = "restore the folder from a copy, or build it again"
    return DamagedFile(found, expected=expected, remedy=remedy)


class StoredFile(BaseModel):
    """Size and SHA-256 of a file."""

    model_config = ConfigDict(frozen=True)

    bytes: int
    sha256: str


class Generation(BaseModel):
    """The manifest of a folder whose contents change as a whole; subclasses say what they are.

    Each change writes a folder of contents beside the old one, then replaces the manifest, then
    removes the old contents. A process killed at any point leaves a folder that opens, old or new.

    Attributes:
        generation: Counts the changes; names the folder of the current contents.
        files: Size and hash of every file of the contents, by path inside the folder.
        remedy: What to do about one of another format.
    """

    model_config = ConfigDict(frozen=True)
    remedy: ClassVar[str] = "install the version that wrote it, or build it into a new folder"

    generation: int = 0
    files: Mapping[Annotated[str, Field(pattern=r"^[\w./-]{1,200}$")], StoredFile] = {}

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
            UnknownFormat: It was written by another version, or is not a manifest.
        """
        path = folder / MANIFEST
        try:
            return cls.model_validate_json(path.read_bytes())
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"])) or "file"
            raise UnknownFormat(
                f"{path} does not read as {what} of format {cls.model_fields['format'].default} "
                f"({place}: {first['msg']})",
                expected=f"{what} that this version of ga-dspy wrote",
                remedy=cls.remedy,
            ) from error

    def check(self, folder: Path, *, hashes: bool | None = None) -> None:
        """Check that every file of the contents is complete.

        Args:
            folder: The folder.
            hashes: Whether to compare hashes too, which reads all files; by default if they are
                small.

        Raises:
            DamagedFile: A file is missing or differs from what was written.
        """
        if hashes is None:
            hashes = sum(stored.bytes for stored in self.files.values()) <= _HASHED_BY_DEFAULT
        for name, stored in self.files.items():
            path, expected = folder / name, f"{stored.bytes} bytes"
            found = f"has {path.stat().st_size} bytes" if path.is_file() else "is missing"
            if found == f"has {expected}" and hashes:
                found, expected = f"has SHA-256 {sha256_of(path)}", f"SHA-256 {stored.sha256}"
            if found != f"has {expected}":
                raise damaged_contents(f"{path} {found}", expected)

    def is_intact(self, folder: Path) -> bool:
        """Return whether `check` passes; log its error."""
        try:
            self.check(folder)
        except DamagedFile as error:
            _LOG.warning("%s: it is built again", error.found)
            return False
        return True

    def put(self, folder: Path, save: Callable[[Path], None]) -> Self:
        """Save contents into a new folder, and make them the current ones.

        Args:
            folder: The folder.
            save: Writes the contents into a folder that does not exist yet.

        Returns:
            The manifest, with the files.

        Raises:
            RunAborted: A file cannot be written; the old contents stay the current ones.
        """
        target = folder / self.contents
        with on_disk(target):
            if target.exists():
                shutil.rmtree(target)
            try:
                save(target)
            except OSError:
                shutil.rmtree(target, ignore_errors=True)
                raise
        known = self._hashed(folder)
        files = {}
        for path in sorted(path for path in target.rglob("*") if path.is_file()):
            # A hard link to a file of the old contents has its hash already.
            status = path.stat()
            stored = known.get(status.st_ino)
            stored = stored or StoredFile(bytes=status.st_size, sha256=sha256_of(path))
            files[path.relative_to(folder).as_posix()] = stored
        manifest = self.model_copy(update={"files": files})
        write_whole(folder / MANIFEST, manifest.model_dump_json(indent=2, by_alias=True))
        for old in folder.glob("contents-*"):
            if old.name != self.contents:  # what cannot be removed now goes with the next change
                shutil.rmtree(old, ignore_errors=True)
        return manifest

    def _hashed(self, folder: Path) -> dict[int, StoredFile]:
        """Return size and hash of the files in the current manifest, by inode."""
        found: Iterable[tuple[str, StoredFile]] = ()
        with suppress(FileNotFoundError, UnknownFormat):
            found = self.read(folder, "an index").files.items()
        return {(folder / n).stat().st_ino: s for n, s in found if (folder / n).is_file()}


Manifest = TypeVar("Manifest", bound=Generation)


def open_current(
    folder: Path, read: Callable[[Path], Manifest], load: Callable[[Manifest], Result]
) -> Result:
    """Check and load the current contents of a folder, completely or not at all.

    Args:
        folder: The folder.
        read: Reads its manifest.
        load: Loads the contents that a manifest names.

    Raises:
        DamagedFile: A file is missing or differs from what was written.
    """
    while True:
        manifest = read(folder)
        try:
            manifest.check(folder)
            return load(manifest)
        except Exception as error:
            # A writer may have replaced the contents since the manifest was read.
            if read(folder) == manifest:
                # If a file is damaged, name it instead of what a library says about it.
                manifest.check(folder, hashes=True)
                if isinstance(error, GaDspyError | MemoryError):
                    raise
                cause = f"{type(error).__name__}: {error}"
                raise damaged_contents(f"{folder} cannot be read ({cause})") from error


def parallel(
    work: Callable[[Item], Result], items: Sequence[Item], threads: int
) -> Generator[Result, None, None]:
    """Call `work` for each item, in threads, and yield the results as they finish.

    Each item runs in a copy of the caller's context, so `dspy.context` holds in the threads. An
    error in `work` is raised here. Closing the generator cancels the remaining items, and does not
    wait for those that run. One thread is the calling one.
    """
    if threads == 1:
        for item in items:
            yield contextvars.copy_context().run(work, item)
        return

    jobs = iter([(contextvars.copy_context(), item) for item in items])
    done = queue.SimpleQueue[tuple[Any, BaseException | None]]()
    stop = threading.Event()

    def run() -> None:
        for context, item in jobs:  # a list's iterator gives each item to one thread
            if stop.is_set():
                return
            try:
                done.put((context.run(work, item), None))
            except BaseException as error:  # noqa: BLE001 - raised in the calling thread
                done.put((None, error))

    # Daemons, unlike the threads of a ThreadPoolExecutor: Ctrl-C ends the process without waiting
    # for running calls.
    for _ in range(min(threads, len(items))):
        threading.Thread(target=run, daemon=True).start()
    try:
        for _ in items:
            result, error = done.get()
            if error is not None:
                raise error
            yield result
    finally:
        stop.set()


def force_exit(code: int, before: Collection[threading.Thread]) -> NoReturn:
    """End the process with an exit code, even if threads started since `before` still run.

    Python would wait for some of them, and stop others in a way that aborts C++ code below them.
    """
    begun = [thread for thread in threading.enumerate() if thread not in before]
    deadline = time.monotonic() + 1.0
    for thread in begun:
        thread.join(max(0.0, deadline - time.monotonic()))
    if not any(thread.is_alive() for thread in begun):
        sys.exit(code)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)


# By event loop, so that a forked process creates a pool of its own.
_WAITERS: WeakKeyDictionary[asyncio.AbstractEventLoop, ThreadPoolExecutor] = WeakKeyDictionary()


async def in_thread(work: Callable[..., Result], *arguments: Any, **named: Any) -> Result:
    """`asyncio.to_thread` for work that waits: up to 256 calls at once instead of a few."""
    loop, context = asyncio.get_running_loop(), contextvars.copy_context()
    if (pool := _WAITERS.get(loop)) is None:
        pool = _WAITERS[loop] = ThreadPoolExecutor(256, thread_name_prefix="ga_dspy-wait")
    return await loop.run_in_executor(pool, partial(context.run, work, *arguments, **named))
