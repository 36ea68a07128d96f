"""The ledger: every finished LM call of a compilation, on disk, so that none is paid twice."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from ga_dspy.durable import one_table, opened
from ga_dspy.errors import GaDspyError

_LAYOUT = 1
_TABLE = """
CREATE TABLE IF NOT EXISTS call (
  key TEXT PRIMARY KEY, role TEXT NOT NULL,
  tokens INTEGER NOT NULL, money REAL, result TEXT NOT NULL
)
"""


class LedgerBusy(GaDspyError):
    """Another compilation is writing this ledger."""

    def __init__(self, path: Path) -> None:
        super().__init__(
            f"{path} is in use by another compilation; expected to be its only writer; wait for "
            "that one to end, or choose another output directory"
        )


class LedgerUnreadable(GaDspyError):
    """The file is no ledger of ours."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(
            f"{path}: {why}; expected the ledger of a compilation; choose another output "
            "directory, or move the file away to begin anew"
        )


class Kept(NamedTuple):
    """A finished call: DSPy's record of the result, its tokens, its price where known."""

    result: dict[str, Any]
    tokens: int
    money: float | None


class Ledger:
    """Finished LM calls by the digest of their request; a context manager.

    SQLite with a write-ahead log, a transaction a call: what was answered before a `kill -9` is
    there afterwards. The lock goes with the process.

    Raises:
        LedgerBusy: Another process has it open.
        LedgerUnreadable: The file is something else.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = threading.Lock()
        self._turns: dict[str, threading.Lock] = {}
        self._db = opened(
            path,
            one_table("call", _TABLE, _LAYOUT),
            busy=LedgerBusy,
            unreadable=LedgerUnreadable,
            threads=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._lock:
            self._db.close()

    def find(self, key: str) -> Kept | None:
        """The call with this digest, where it was finished."""
        with self._lock:
            row = self._db.execute(
                "SELECT result, tokens, money FROM call WHERE key = ?", (key,)
            ).fetchone()
        return Kept(json.loads(row[0]), row[1], row[2]) if row else None

    def keep(self, key: str, role: str, kept: Kept) -> None:
        """Write a finished call."""
        text = json.dumps(kept.result, ensure_ascii=False)
        with self._lock:
            self._db.execute(
                "INSERT OR REPLACE INTO call VALUES (?, ?, ?, ?, ?)",
                (key, role, kept.tokens, kept.money, text),
            )

    @contextmanager
    def turn(self, key: str) -> Iterator[None]:
        """Let one thread at a time work on a request, so that two never pay for the same."""
        with self._lock:
            turn = self._turns.setdefault(key, threading.Lock())
        with turn:
            yield
