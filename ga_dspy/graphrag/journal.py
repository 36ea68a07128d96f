"""The journal of a build: a committed row for each finished LM step, so that none is asked twice.

SQLite with a write-ahead log, a transaction a row: what was read before a `kill -9` is there
afterwards. Rows are known by the passage's content and by what was asked, so a changed passage or
another LM is read anew and everything else is not.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Self

from ga_dspy.durable import one_table, opened
from ga_dspy.errors import GaDspyError
from ga_dspy.passage import Passage

_LAYOUT = 1
_TABLE = "CREATE TABLE IF NOT EXISTS finished (key TEXT PRIMARY KEY, json TEXT NOT NULL)"


class JournalBusy(GaDspyError):
    """Another build is writing this journal."""

    def __init__(self, path: Path) -> None:
        super().__init__(
            f"{path} is in use by another build; expected to be its only writer; wait for that "
            "one to end, or choose another output directory"
        )


class JournalUnreadable(GaDspyError):
    """The file is no journal of ours."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(
            f"{path}: {why}; expected the journal of a graph build; choose another output "
            "directory, or move the file away to read all passages anew"
        )


def reading_key(passage: Passage, fingerprint: str) -> str:
    """The digest of a passage and of how it is read."""
    text = json.dumps([fingerprint, passage.id, passage.title, passage.text])
    return hashlib.sha256(text.encode()).hexdigest()


class Journal:
    """Finished steps, as JSON, by the digest of what was asked; a context manager.

    Args:
        path: The file.
        shared: Let other processes use the file too; by default there is one writer.

    Raises:
        JournalBusy: Another process has it open.
        JournalUnreadable: The file is something else.
    """

    def __init__(self, path: Path, *, shared: bool = False) -> None:
        self._db = opened(
            path,
            one_table("finished", _TABLE, _LAYOUT),
            busy=JournalBusy,
            unreadable=JournalUnreadable,
            shared=shared,
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

    def finished(self) -> list[str]:
        """The digests of all finished steps."""
        return [key for (key,) in self._db.execute("SELECT key FROM finished")]

    def known(self, keys: Iterable[str]) -> dict[str, str]:
        """The finished steps among these keys."""
        rows = dict(self._db.execute("SELECT key, json FROM finished"))
        return {key: rows[key] for key in keys if key in rows}

    def record(self, key: str, json: str) -> None:
        """Write a finished step."""
        self._db.execute("INSERT OR REPLACE INTO finished VALUES (?, ?)", (key, json))

    def keep_only(self, keys: Iterable[str]) -> None:
        """Forget all other steps: those of passages or communities that are gone or changed."""
        kept = set(keys)
        gone = [(key,) for key in self.finished() if key not in kept]
        self._db.execute("BEGIN")
        self._db.executemany("DELETE FROM finished WHERE key = ?", gone)
        self._db.execute("COMMIT")
