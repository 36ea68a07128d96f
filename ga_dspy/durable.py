"""SQLite files that outlive a `kill -9`: every statement is a transaction of its own."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

from ga_dspy.errors import GaDspyError

Begin = Callable[[sqlite3.Connection], None]


class OtherLayout(Exception):
    """The file is a database, but not one that `begin` knows; the caller's own error follows."""


def opened(
    path: Path,
    begin: Begin,
    *,
    busy: Callable[[Path], GaDspyError],
    unreadable: Callable[[Path, str], GaDspyError],
    shared: bool = False,
    threads: bool = False,
    synchronous: str = "NORMAL",
) -> sqlite3.Connection:
    """Open a file with a write-ahead log; its lock goes with the process, however that ends.

    Args:
        path: The file; made where it is absent.
        begin: Makes or checks the tables; raises `OtherLayout` where they are another's.
        busy: The error where another process has it open.
        unreadable: The error where it is no file of this kind, told why.
        shared: Let other processes use the file too; by default there is one writer.
        threads: Let several threads use the connection, one at a time.
        synchronous: SQLite's setting; "FULL" outlives a power cut as well.
    """
    timeout = 30.0 if shared else 0.2
    # isolation_level=None: every statement is its own transaction, committed at once.
    db = sqlite3.connect(path, timeout=timeout, isolation_level=None, check_same_thread=not threads)
    try:
        db.execute(f"PRAGMA locking_mode = {'NORMAL' if shared else 'EXCLUSIVE'}")
        db.execute("PRAGMA journal_mode = WAL")
        db.execute(f"PRAGMA synchronous = {synchronous}")
        begin(db)
    except OtherLayout as error:
        db.close()
        raise unreadable(path, str(error)) from None
    except sqlite3.DatabaseError as error:
        db.close()
        locked = "locked" in str(error)
        raise (busy(path) if locked else unreadable(path, str(error))) from error
    except GaDspyError:
        db.close()
        raise
    return db


def one_table(name: str, create: str, layout: int) -> Begin:
    """Make, or check for, the only table of a file.

    Args:
        name: Its name.
        create: The statement that makes it where it is absent.
        layout: The version of its columns, kept in the file.
    """

    def begin(db: sqlite3.Connection) -> None:
        (found,) = db.execute("PRAGMA user_version").fetchone()
        tables = {table for (table,) in db.execute("SELECT name FROM sqlite_master")}
        if found not in (0, layout) or (tables and name not in tables):
            raise OtherLayout("a database with another layout")
        db.execute(create)
        db.execute(f"PRAGMA user_version = {layout}")

    return begin
