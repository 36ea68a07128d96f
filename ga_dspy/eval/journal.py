"""The journal of a run: one committed row a question, so that a killed run can go on.

SQLite with a write-ahead log; each question is one transaction. The journal is locked by the
run that writes it, and the lock goes with the process, however it ends.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from ga_dspy.durable import OtherLayout, opened
from ga_dspy.errors import GaDspyError
from ga_dspy.eval.protocol import Protocol, ProtocolMismatch
from ga_dspy.eval.result import Result

_LAYOUT = 2
_TABLES = """
BEGIN;
CREATE TABLE run (layout INTEGER NOT NULL, protocol TEXT NOT NULL);
CREATE TABLE result (
  position INTEGER PRIMARY KEY, failed INTEGER NOT NULL, json TEXT NOT NULL, seconds REAL NOT NULL
);
"""


class JournalBusy(GaDspyError):
    """Another run is writing this journal."""

    def __init__(self, path: Path) -> None:
        super().__init__(
            f"{path} is in use by another run; expected to be its only writer; wait for that run "
            "to end, or choose another output directory"
        )


class JournalUnreadable(GaDspyError):
    """The file is no journal of ours."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(
            f"{path}: {why}; expected a journal of a ga_dspy run; choose another output "
            "directory, or move the file away to begin anew"
        )


class Entry(NamedTuple):
    """A journaled result and the seconds its question took."""

    result: Result
    seconds: float


class Journal:
    """The results of a run, by the position of their question; a context manager.

    Raises:
        ProtocolMismatch: `protocol` is given and is not the one the journal was begun under.
        JournalBusy: another process is writing it.
        JournalUnreadable: the file is something else.
    """

    def __init__(self, path: Path, protocol: Protocol | None = None) -> None:
        if protocol is None and not path.is_file():
            raise JournalUnreadable(path, "no such file")
        self._path, self._given = path, protocol
        self._db = opened(
            path,
            self._begin,
            busy=JournalBusy,
            unreadable=JournalUnreadable,
            synchronous="FULL",
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._db.close()

    def record(self, position: int, result: Result, seconds: float) -> None:
        """Write the result of the question at `position`, over an earlier one if there is one."""
        failed = result.error is not None
        self._db.execute(
            "INSERT OR REPLACE INTO result VALUES (?, ?, ?, ?)",
            (position, failed, result.model_dump_json(), seconds),
        )

    def entries(self) -> dict[int, Entry]:
        """All results so far, by position, in order."""
        rows = self._db.execute("SELECT position, json, seconds FROM result ORDER BY position")
        return {
            position: Entry(Result.model_validate_json(text), seconds)
            for position, text, seconds in rows
        }

    def _begin(self, db: sqlite3.Connection) -> None:
        known = db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        if not known and self._given is not None:
            self.protocol = self._given
            db.executescript(_TABLES)
            db.execute("INSERT INTO run VALUES (?, ?)", (_LAYOUT, self._given.model_dump_json()))
            db.execute("COMMIT")
        elif {name for (name,) in known} != {"run", "result"}:
            raise OtherLayout("a database with other tables")
        else:
            self.protocol = self._saved(db)

    def _saved(self, db: sqlite3.Connection) -> Protocol:
        layout, text = db.execute("SELECT layout, protocol FROM run").fetchone()
        if layout != _LAYOUT:
            raise OtherLayout(f"layout {layout} of another version")
        saved = Protocol.model_validate_json(text)
        differences = saved.differences(self._given) if self._given else ()
        if differences:
            raise ProtocolMismatch(differences, self._path.parent)
        return saved
