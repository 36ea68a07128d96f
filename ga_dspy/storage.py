"""Journals and atomic writes that survive `kill -9`; threads."""

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
    """Return the error for a path that the operating system cannot read or write."""
    return RunAborted(
        f"{path}: {getattr(error, 'strerror', None) or error}",
        expected="a readable and writable path",
        remedy="free some space, or correct the path or its permissions, then retry: finished "
        "work is kept",
    )


@contextmanager
def on_disk(path: Path) -> Iterator[None]:
    """Turn each `OSError` into a `RunAborted` that names the file and a remedy."""
    try:
        yield
    except OSError as error:
        raise refused_by_disk(error.filename or path, error) from error


# SQLite's errors about a file, by prefix of their names; any other error is a bug.
_DAMAGED = ("SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_TOOBIG")
_BUSY = ("SQLITE_BUSY", "SQLITE_LOCKED")
_REFUSED = ("SQLITE_FULL", "SQLITE_IOERR", "SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM")


def _text(stored: bytes) -> str:
    """Decode a text from SQLite; a damaged one becomes "", which makes its row unreadable."""
    try:
        return stored.decode()
    except UnicodeDecodeError:
        return ""


class Journal:
    """A SQLite file with a write-ahead log; each statement is its own transaction.

    Written rows survive `kill -9`. The process that opens the file locks it until it closes the
    file or ends. Threads may share a journal. A journal is a context manager.

    Args:
        path: The file; created, with its folder, if it does not exist.
        what: The kind of job that writes the file ("run", "graph build"), for messages.
        tables: The statement that creates each table, by table name.
        shared: Let other processes use the file too; by default there is one writer.
        durable: Survive a power failure too, at the cost of a disk flush per statement.

    Raises:
        InUse: Another process has the file open.
        DamagedFile: The file is damaged, or not a journal of this kind.
        RunAborted: The file cannot be written, now or later.
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
        with self._file_errors():
            path.parent.mkdir(parents=True, exist_ok=True)
            # isolation_level=None commits every statement at once.
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
        """Create the tables; reject a database with other tables before changing it."""
        rows = self._db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        existing = {name for (name,) in rows}
        if existing and existing != tables.keys():
            raise self.damaged("a database with other tables")
        self._db.execute("PRAGMA journal_mode = WAL")
        if not existing:
            self.transaction([(sql, ()) for sql in tables.values()])

    @contextmanager
    def _file_errors(self) -> Iterator[None]:
        """Turn errors of SQLite and the disk into errors that name the file."""
        try:
            with on_disk(self.path):
                yield
        except UnicodeDecodeError as error:
            raise self.damaged(str(error)) from error
        except sqlite3.Error as error:
            kind = getattr(error, "sqlite_errorname", "")
            # A statement with valid syntax fails only if its tables or columns are missing.
            is_other_schema = kind == "SQLITE_ERROR" and "syntax error" not in str(error)
            if is_other_schema or kind.startswith(_DAMAGED):
                raise self.damaged(str(error)) from error
            if kind.startswith(_REFUSED):
                raise refused_by_disk(self.path, error) from error
            if not kind.startswith(_BUSY):
                raise
            raise InUse(
                f"{self.path} is in use by another {self.what}",
                expected="to be its only writer",
                remedy="wait until it ends, or choose another output directory",
            ) from error

    def damaged(self, why: str) -> DamagedFile:
        """Return the error for a damaged file, or one that is not a journal of this kind."""
        return DamagedFile(
            f"{self.path}: {why}",
            expected=f"the journal of a ga_dspy {self.what}",
            remedy="choose another output directory, or move the file away to start again "
            "(`sqlite3 FILE .recover` saves the readable rows of a damaged one)",
        )

    def rows(self, sql: str, values: Sequence[Any] = ()) -> list[Any]:
        """Return all rows of a query."""
        with self._lock, self._file_errors():
            return self._db.execute(sql, values).fetchall()

    def readable(
        self, rows: Iterable[Sequence[Any]], read: Callable[..., Result]
    ) -> Iterator[tuple[Any, Result]]:
        """Yield the first column of each row, and `read` of the other columns.

        A row that `read` rejects is logged and counts as missing, so its step is run again.
        """
        for key, *values in rows:
            try:
                parsed = read(*values)
            except (ValueError, TypeError, LookupError) as error:
                cause = f"{type(error).__name__}: {' '.join(str(error).split())[:100]}"
                _LOG.warning("%s: damaged row %s counts as missing (%s)", self.path, key, cause)
            else:
                yield key, parsed

    def write(self, sql: str, *values: Any) -> None:
        """Run one statement, with secrets redacted from its values, and commit it."""
        if any(isinstance(value, str) and len(value) >= SHORTEST_SECRET for value in values):
            values = tuple(without(secrets_of(), values))
        with self._lock, self._file_errors():
            self._db.execute(sql, values)

    def transaction(self, statements: Sequence[tuple[str, Sequence[Any]]]) -> None:
        """Run several statements in one transaction."""
        with self._lock, self._file_errors(), self._db:  # commits, or rolls back
            self._db.execute("BEGIN IMMEDIATE")
            for sql, values in statements:
                self._db.execute(sql, values)

    def close(self) -> None:
        """Close and unlock the file."""
        with self._lock:
            self._db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def read_as(path: Path, kind: type[Item], *, expected: str, remedy: str) -> Item:
    """Read a JSON, YAML or TOML file and validate it as a type.

    Args:
        path: The file; its suffix decides the format, JSON by default.
        kind: A type that Pydantic can validate.
        expected: A description of a valid file, for the error.
        remedy: The remedy, for the error.

    Raises:
        InputError: The file is missing or invalid.
        MissingExtra: The file is YAML, and PyYAML is not installed.
    """
    try:
        data = _as_json(path.read_bytes().removeprefix(BOM_UTF8), path.suffix.casefold())
        return TypeAdapter(kind).validate_json(data)
    except OSError as error:
        found = (error.strerror or str(error)).lower()
    except ValidationError as error:
        first = error.errors()[0]
        location = ".".join(map(str, first["loc"]))
        found = f"{location}: {first['msg']}" if location else first["msg"]
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


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write a file atomically: a reader sees the old or the new contents, never a part.

    Text is encoded as UTF-8, lone surrogates as JSON escapes.

    Raises:
        InputError: The path is a folder.
        RunAborted: The file cannot be written; an existing file is unchanged.
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
    """Hard-link a file, or copy it if the file system has no hard links."""
    try:
        os.link(path, target)
    except OSError:
        shutil.copyfile(path, target)


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


MANIFEST: Final = "manifest.json"
_HASHED_BY_DEFAULT = 64_000_000
"""Bytes; hashing them takes a tenth of a second."""


def not_built(folder: Path, part: str, by: str) -> InputError:
    """Return the error for a folder without a manifest.

    Args:
        folder: The folder.
        part: The file or folder that an unfinished build leaves in it.
        by: The function or command that builds such a folder.
    """
    found, remedy = f"no {MANIFEST}", "check the path, or build it there"
    if (folder / part).exists():
        found, remedy = "an unfinished build", "run the same build again: finished work is kept"
    return InputError(f"{folder} holds {found}", expected=f"a folder made by {by}", remedy=remedy)


def damaged_contents(found: str, expected: str = "unchanged contents") -> DamagedFile:
    """Return the error for stored contents that were changed after they were written."""
    remedy = "restore the folder from a copy, or build it again"
    return DamagedFile(found, expected=expected, remedy=remedy)


class StoredFile(BaseModel):
    """Size and SHA-256 of a file."""

    model_config = ConfigDict(frozen=True)

    bytes: int
    sha256: str


class Generation(BaseModel):
    """The manifest of a folder whose contents are replaced atomically; a base class.

    Each change writes the new contents beside the old ones, replaces the manifest, then removes
    the old contents. A process killed at any point leaves a folder that opens, old or new.

    Attributes:
        generation: The number of changes; it names the folder of the current contents.
        files: Size and hash of every file of the contents, by path relative to the folder.
        remedy: The remedy in the error for a manifest of another format.
    """

    model_config = ConfigDict(frozen=True)
    remedy: ClassVar[str] = "install the version that wrote it, or build it into a new folder"

    generation: int = 0
    files: Mapping[Annotated[str, Field(pattern=r"^[\w./-]{1,200}$")], StoredFile] = {}

    @property
    def contents(self) -> str:
        """The name of the subfolder with the current contents."""
        return f"contents-{self.generation:06d}"

    @classmethod
    def read(cls, folder: Path, what: str) -> Self:
        """Read the manifest of a folder that has one.

        Args:
            folder: The folder.
            what: The thing that it stores ("an index", "a graph"), for messages.

        Raises:
            UnknownFormat: The manifest was written by another version, or is no manifest.
        """
        path = folder / MANIFEST
        try:
            return cls.model_validate_json(path.read_bytes())
        except ValidationError as error:
            first = error.errors()[0]
            location = ".".join(map(str, first["loc"])) or "file"
            raise UnknownFormat(
                f"{path} is not the manifest of {what} of format "
                f"{cls.model_fields['format'].default} ({location}: {first['msg']})",
                expected=f"{what} that this version of ga-dspy wrote",
                remedy=cls.remedy,
            ) from error

    def check(self, folder: Path, *, hashes: bool | None = None) -> None:
        """Check that every file of the contents is complete.

        Args:
            folder: The folder.
            hashes: Whether to compare hashes too, which reads all files; by default only if the
                files are small.

        Raises:
            DamagedFile: A file is missing or differs from what was written.
        """
        if hashes is None:
            hashes = sum(stored.bytes for stored in self.files.values()) <= _HASHED_BY_DEFAULT
        for name, stored in self.files.items():
            path = folder / name
            if not path.is_file():
                raise damaged_contents(f"{path} is missing", f"{stored.bytes} bytes")
            if (size := path.stat().st_size) != stored.bytes:
                raise damaged_contents(f"{path} has {size} bytes", f"{stored.bytes} bytes")
            if hashes and (sha256 := sha256_of(path)) != stored.sha256:
                raise damaged_contents(f"{path} has SHA-256 {sha256}", f"SHA-256 {stored.sha256}")

    def is_intact(self, folder: Path) -> bool:
        """Return whether `check` passes; log its error."""
        try:
            self.check(folder)
        except DamagedFile as error:
            _LOG.warning("%s: rebuilding it", error.found)
            return False
        return True

    def put(self, folder: Path, save: Callable[[Path], None]) -> Self:
        """Save new contents, and make them the current ones.

        Args:
            folder: The folder of the manifest.
            save: Writes the contents into a subfolder, which it creates.

        Returns:
            The manifest with `files` filled in.

        Raises:
            RunAborted: A file cannot be written; the old contents stay current.
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
        files, by_inode = {}, self._files_by_inode(folder)
        for path in sorted(path for path in target.rglob("*") if path.is_file()):
            status = path.stat()
            # The hash of a hard link to a file of the old contents is known.
            stored = by_inode.get(status.st_ino)
            stored = stored or StoredFile(bytes=status.st_size, sha256=sha256_of(path))
            files[path.relative_to(folder).as_posix()] = stored
        manifest = self.model_copy(update={"files": files})
        write_atomically(folder / MANIFEST, manifest.model_dump_json(indent=2, by_alias=True))
        for old in folder.glob("contents-*"):
            if old.name != self.contents:  # if this fails, the next change removes it
                shutil.rmtree(old, ignore_errors=True)
        return manifest

    def _files_by_inode(self, folder: Path) -> dict[int, StoredFile]:
        """Return the files of the current manifest by inode."""
        files: Mapping[str, StoredFile] = {}
        with suppress(FileNotFoundError, UnknownFormat):
            files = self.read(folder, "an index").files
        paths = {folder / name: stored for name, stored in files.items()}
        return {path.stat().st_ino: stored for path, stored in paths.items() if path.is_file()}


Manifest = TypeVar("Manifest", bound=Generation)


def open_current(
    folder: Path, read: Callable[[Path], Manifest], load: Callable[[Manifest], Result]
) -> Result:
    """Check and load the current contents of a folder, even while a writer replaces them.

    Args:
        folder: The folder.
        read: Reads the manifest of the folder.
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
                # If a file is damaged, name the file instead of a library's error.
                manifest.check(folder, hashes=True)
                if isinstance(error, GaDspyError | MemoryError):
                    raise
                cause = f"{type(error).__name__}: {error}"
                raise damaged_contents(f"{folder} cannot be read ({cause})") from error


def parallel(
    work: Callable[[Item], Result], items: Sequence[Item], threads: int
) -> Generator[Result, None, None]:
    """Call `work` for each item in threads; yield the results as they finish.

    Each item runs in a copy of the caller's context, so `dspy.context` applies in the threads. An
    error in `work` is raised here. Closing the generator cancels the remaining items without
    waiting for running ones. With `threads=1`, the calling thread does the work.
    """
    if threads == 1:
        for item in items:
            yield contextvars.copy_context().run(work, item)
        return

    jobs = iter([(contextvars.copy_context(), item) for item in items])
    done = queue.SimpleQueue[tuple[Any, BaseException | None]]()
    stop = threading.Event()

    def run() -> None:
        for context, item in jobs:  # list iterators are thread-safe: each item goes to one thread
            if stop.is_set():
                return
            try:
                done.put((context.run(work, item), None))
            except BaseException as error:  # noqa: BLE001 - raised in the calling thread
                done.put((None, error))

    # Daemon threads, which a ThreadPoolExecutor does not have: Ctrl-C ends the process without
    # waiting for running calls.
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
    """Exit the process, even if threads that are not in `before` still run.

    Python's own exit would wait for some of these threads, and stop others in a way that aborts
    their C++ code.
    """
    started = [thread for thread in threading.enumerate() if thread not in before]
    deadline = time.monotonic() + 1.0
    for thread in started:
        thread.join(max(0.0, deadline - time.monotonic()))
    if not any(thread.is_alive() for thread in started):
        sys.exit(code)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)


# One pool per event loop: a forked process has another loop, and needs another pool.
_POOLS: WeakKeyDictionary[asyncio.AbstractEventLoop, ThreadPoolExecutor] = WeakKeyDictionary()


async def in_thread(work: Callable[..., Result], *arguments: Any, **named: Any) -> Result:
    """Run blocking work like `asyncio.to_thread`, but up to 256 calls at once."""
    loop, context = asyncio.get_running_loop(), contextvars.copy_context()
    if (pool := _POOLS.get(loop)) is None:
        pool = _POOLS[loop] = ThreadPoolExecutor(256, thread_name_prefix="ga_dspy-wait")
    return await loop.run_in_executor(pool, partial(context.run, work, *arguments, **named))
