"""The passages of an index: an Arrow table, memory-mapped when it comes from a file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from ga_dspy.errors import GaDspyError, InputError, MissingExtra
from ga_dspy.passage import Passage

_BATCH = 8192


class DuplicateId(GaDspyError):
    """Two passages share an id and differ in text."""

    def __init__(self, first: Passage, second: Passage) -> None:
        super().__init__(
            f"passage id {first.id!r} stands for two texts ({first.content[:50]!r} and "
            f"{second.content[:50]!r}); expected one text an id; give each passage its own id, "
            "or delete the old passage before adding the new one"
        )
        self.first, self.second = first, second


class EmptyCorpus(InputError):
    """There is no passage to index."""

    def __init__(self) -> None:
        super().__init__(
            "the corpus holds no passages",
            expected="at least one",
            remedy="check the files that the passages are read from",
        )


class PassageTable:
    """Passages by row and by id, read from Arrow memory when asked for."""

    def __init__(self, table: Any) -> None:
        self._table = table
        self._columns = [table.column(name) for name in ("id", "title", "text")]

    @classmethod
    def of(cls, passages: Sequence[Passage]) -> PassageTable:
        """Put passages into a table, in their order."""
        pyarrow = _pyarrow()
        return cls(
            pyarrow.table(
                {
                    "id": pyarrow.array([p.id for p in passages], pyarrow.large_string()),
                    "title": pyarrow.array([p.title for p in passages], pyarrow.large_string()),
                    "text": pyarrow.array([p.text for p in passages], pyarrow.large_string()),
                }
            )
        )

    @classmethod
    def open(cls, path: Path) -> PassageTable:
        """Map a saved table into memory."""
        pyarrow = _pyarrow()
        return cls(pyarrow.ipc.open_file(pyarrow.memory_map(str(path))).read_all())

    def save(self, path: Path) -> None:
        """Write the table as an Arrow IPC file."""
        pyarrow = _pyarrow()
        with (
            pyarrow.OSFile(str(path), "wb") as sink,
            pyarrow.ipc.new_file(sink, self._table.schema) as writer,
        ):
            writer.write_table(self._table, max_chunksize=_BATCH)

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def __getitem__(self, row: int) -> Passage:
        id, title, text = (column[row].as_py() for column in self._columns)
        return Passage(id=id, title=title, text=text)

    def __iter__(self) -> Iterator[Passage]:
        for batch in self._table.to_batches(max_chunksize=_BATCH):
            for row in batch.to_pylist():
                yield Passage(**row)

    @cached_property
    def rows(self) -> dict[str, int]:
        """The row of each id."""
        return {id: row for row, id in enumerate(self._columns[0].to_pylist())}


def distinct(passages: Iterable[Passage], known: Iterable[Passage] = ()) -> list[Passage]:
    """Return the passages that are not in `known`, identical ones once, in order.

    Raises:
        DuplicateId: An id stands for two texts.
        InputError: A passage has neither title nor text.
    """
    by_id = {passage.id: passage for passage in known}
    new: list[Passage] = []
    for passage in passages:
        if not passage.content.strip():
            raise InputError(
                f"passage {passage.id!r} has neither title nor text",
                expected="passages with text",
                remedy="leave it out",
            )
        before = by_id.get(passage.id)
        if before is None:
            by_id[passage.id] = passage
            new.append(passage)
        elif before != passage:
            raise DuplicateId(before, passage)
    return new


def _pyarrow() -> Any:
    try:
        import pyarrow
        import pyarrow.ipc
    except ImportError as error:
        raise MissingExtra("pyarrow", "retrieval") from error
    return pyarrow
