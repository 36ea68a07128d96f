"""Storage: journals that outlive a kill, files that are whole, work in threads."""

from __future__ import annotations

import contextvars
import sqlite3
import threading
from pathlib import Path

import pytest

from ga_dspy.cluster import map_parallel
from ga_dspy.errors import DamagedFile, InputError, InUse, RunAborted
from ga_dspy.storage import Journal, parallel, write_atomically

TABLES = {"note": "CREATE TABLE IF NOT EXISTS note (key TEXT PRIMARY KEY, text TEXT NOT NULL)"}
INSERT = "INSERT OR REPLACE INTO note VALUES (?, ?)"


def notes(path: Path, *, shared: bool = False) -> Journal:
    return Journal(path, "test", TABLES, shared=shared)


def test_written_rows_are_there_when_the_journal_is_reopened(tmp_path: Path) -> None:
    with notes(tmp_path / "new" / "a.sqlite") as journal:
        journal.write(INSERT, "k", "v")
    with notes(tmp_path / "new" / "a.sqlite") as journal:
        assert journal.rows("SELECT * FROM note") == [("k", "v")]


def test_a_journal_has_one_writer_unless_it_is_shared(tmp_path: Path) -> None:
    with notes(tmp_path / "a"), pytest.raises(InUse, match=r"another test.*only writer.*wait"):
        notes(tmp_path / "a")
    with notes(tmp_path / "b", shared=True) as one, notes(tmp_path / "b", shared=True) as two:
        one.write(INSERT, "k", "v")
        assert two.rows("SELECT text FROM note") == [("v",)]


@pytest.mark.parametrize("content", [b"no database at all " * 99, None])
def test_a_file_of_another_format_is_refused_and_unchanged(
    tmp_path: Path, content: bytes | None
) -> None:
    path = tmp_path / "a"
    if content is None:
        with sqlite3.connect(path) as db:
            db.execute("CREATE TABLE other (a TEXT)")
        db.close()
    else:
        path.write_bytes(content)
    before = path.read_bytes()
    with pytest.raises(DamagedFile, match="expected the journal of a ga_dspy test; choose"):
        notes(path)
    assert path.read_bytes() == before


def test_a_transaction_is_atomic(tmp_path: Path) -> None:
    with notes(tmp_path / "a") as journal:
        with pytest.raises(sqlite3.Error):
            journal.transaction([(INSERT, ("k", "v")), ("no statement", ())])
        assert journal.rows("SELECT * FROM note") == []
        journal.transaction([(INSERT, ("k", "v")), (INSERT, ("l", "w"))])
        assert len(journal.rows("SELECT * FROM note")) == 2


def test_threads_share_a_journal(tmp_path: Path) -> None:
    with notes(tmp_path / "a") as journal:
        list(parallel(lambda n: journal.write(INSERT, str(n), "v"), range(50), threads=4))
        assert journal.rows("SELECT count(*) FROM note") == [(50,)]


def test_a_file_is_replaced_atomically_without_leftovers(tmp_path: Path) -> None:
    path = tmp_path / "new" / "a.txt"
    write_atomically(path, "one\n")
    write_atomically(path, "two \ud800\n")
    assert path.read_bytes() == b"two \\ud800\n"
    write_atomically(path, b"\x00")
    assert path.read_bytes() == b"\x00"
    assert list(path.parent.iterdir()) == [path]


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    write_atomically(path, "one")
    (tmp_path / ".a.txt.partial").mkdir()
    with pytest.raises(RunAborted, match=r"a\.txt.*Is a directory.*then retry"):
        write_atomically(path, "two")
    assert path.read_text() == "one"


@pytest.mark.parametrize("threads", [1, 3])
def test_every_item_is_worked_on_once_in_the_callers_context(threads: int) -> None:
    place: contextvars.ContextVar[str] = contextvars.ContextVar("place")
    place.set("here")
    done = parallel(lambda n: (n, place.get()), range(9), threads)
    assert sorted(done) == [(n, "here") for n in range(9)]


@pytest.mark.parametrize("threads", [1, 3])
def test_an_error_in_a_thread_is_raised_in_the_caller(threads: int) -> None:
    def work(n: int) -> int:
        return 1 // n

    with pytest.raises(ZeroDivisionError):
        list(parallel(work, [1, 1, 0, 1], threads))


def test_results_come_as_they_are_ready_and_closing_stops_the_rest() -> None:
    begun: list[int] = []
    release = threading.Event()

    def work(n: int) -> int:
        begun.append(n)
        if n:
            release.wait(5)
        return n

    results = parallel(work, range(100), threads=2)
    assert next(results) == 0
    results.close()
    release.set()
    assert len(begun) <= 4


def test_zero_threads_are_refused() -> None:
    with pytest.raises(InputError, match="threads is 0"):
        list(map_parallel(str, [1], threads=0))
