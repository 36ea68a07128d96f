"""One folder, one index: its manifest, its contents, and changes that no reader sees half done."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from os.path import commonprefix
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from ga_dspy.errors import GaDspyError, InputError, InUse, require
from ga_dspy.passage import Passage
from ga_dspy.retrieval.encoders import Encoder, Progress
from ga_dspy.retrieval.rank import (
    KINDS,
    DenseRanking,
    DenseScores,
    HybridRanking,
    Kind,
    LinkedRanking,
    LinkGraph,
    Ranking,
    SparseScores,
    TitleTable,
)
from ga_dspy.storage import MANIFEST, Generation, on_disk

# --- The manifest: what the folder holds, and how to tell that it is whole.

WORK = ".building"


class StoredEncoder(BaseModel):
    """The encoder that made the vectors; `loadable` where `load_encoder(name)` finds it."""

    model_config = ConfigDict(frozen=True)

    name: str
    fingerprint: str
    dimension: int
    loadable: bool


class Manifest(Generation):
    """What an index folder holds.

    `generation` counts the changes since the build and names the folder of the current contents.
    `source` is the hash of the passages it was built from. `added` and `deleted` count passages
    since then.
    """

    format: Literal[1] = 1
    kind: Kind
    factory: str
    encoder: StoredEncoder | None
    passages: int
    source: str
    added: int = 0
    deleted: int = 0

    def changed(self, passages: int) -> Manifest:
        """Return the manifest of the next generation, its files not yet described."""
        more = passages - self.passages
        return self.model_copy(
            update={
                "passages": passages,
                "generation": self.generation + 1,
                "added": self.added + max(more, 0),
                "deleted": self.deleted + max(-more, 0),
                "files": {},
            }
        )


def read_manifest(folder: Path) -> Manifest:
    """Read the manifest of an index folder.

    Raises:
        InputError: There is none, or none yet.
        UnknownFormat: It was written by another version, or is no manifest.
    """
    if not (folder / MANIFEST).is_file():
        if (folder / WORK).is_dir():
            raise InputError(
                f"{folder} holds a build that was not finished",
                expected=MANIFEST,
                remedy="run the same build again: what is already encoded is kept",
            )
        raise InputError(
            f"{folder} holds no {MANIFEST}",
            expected="a folder written by Index.build or `ga-dspy index build`",
            remedy="check the path, or build the index there",
        )
    return Manifest.read(folder, "an index")


# --- Passages

_BATCH = 8192
_COLUMNS = ("id", "title", "text", "metadata")


class PassageTable:
    """Passages by row and by id, read from Arrow memory when asked for."""

    def __init__(self, table: Any) -> None:
        self._table = table
        # A table of a time without metadata has no column for it.
        self._columns = {
            name: table.column(name) for name in _COLUMNS if name in table.column_names
        }

    @classmethod
    def of(cls, passages: Sequence[Passage]) -> PassageTable:
        """Put passages into a table, in their order."""
        pyarrow = require("pyarrow", "search")
        texts = {name: [getattr(passage, name) for passage in passages] for name in _COLUMNS[:3]}
        texts["metadata"] = [metadata_json(passage) for passage in passages]
        schema = pyarrow.schema([(name, pyarrow.large_string()) for name in _COLUMNS])
        return cls(pyarrow.table(texts, schema))

    @classmethod
    def open(cls, path: Path) -> PassageTable:
        """Map a saved table into memory."""
        pyarrow = require("pyarrow", "search")
        return cls(pyarrow.ipc.open_file(pyarrow.memory_map(str(path))).read_all())

    def save(self, path: Path) -> None:
        """Write the table as an Arrow IPC file."""
        pyarrow = require("pyarrow", "search")
        with (
            pyarrow.OSFile(str(path), "wb") as sink,
            pyarrow.ipc.new_file(sink, self._table.schema) as writer,
        ):
            writer.write_table(self._table, max_chunksize=_BATCH)

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def __getitem__(self, row: int) -> Passage:
        return _passage({name: column[row].as_py() for name, column in self._columns.items()})

    def __iter__(self) -> Iterator[Passage]:
        for batch in self._table.to_batches(max_chunksize=_BATCH):
            for row in batch.to_pylist():
                yield _passage(row)

    @cached_property
    def rows(self) -> dict[str, int]:
        """The row of each id."""
        return {id: row for row, id in enumerate(self._columns["id"].to_pylist())}


def metadata_json(passage: Passage) -> str:
    """The metadata as JSON with sorted keys; empty for none."""
    metadata = passage.metadata
    return json.dumps(metadata, ensure_ascii=False, sort_keys=True) if metadata else ""


def _passage(row: Mapping[str, str]) -> Passage:
    return Passage.model_validate({**row, "metadata": json.loads(row.get("metadata") or "{}")})


def distinct(passages: Iterable[Passage], known: Iterable[Passage] = ()) -> list[Passage]:
    """Return the passages that are not in `known`, identical ones once, in order.

    Raises:
        InputError: An id stands for two texts, or a passage has neither title nor text.
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
            raise InputError(
                f"passage id {passage.id!r} stands for two texts ({_difference(before, passage)})",
                expected="one text an id",
                remedy="give each passage its own id, or delete the old passage before adding "
                "the new one",
            )
    return new


def _difference(one: Passage, other: Passage) -> str:
    """Where two texts first differ, with a few words before it."""
    same = len(commonprefix([one.content, other.content]))
    start = max(same - 25, 0)
    found = (f"{'…' * (start > 0)}{p.content[start : same + 25]}" for p in (one, other))
    return " and ".join(map(repr, found))


# --- Contents
#
# Everything but the vectors is derived from the passages in seconds, so passages may come and go
# without any being encoded again.

FLAT = "Flat"


@dataclass(frozen=True)
class Contents:
    """Passages and what ranks them; parts that the kind does not use are None."""

    passages: PassageTable
    sparse: SparseScores | None = None
    dense: DenseScores | None = None
    titles: TitleTable | None = None
    links: LinkGraph | None = None

    @classmethod
    def derive(
        cls,
        kind: Kind,
        passages: Sequence[Passage],
        vectors: NDArray[np.float32] | None,
        factory: str,
        progress: Progress | None,
    ) -> Contents:
        """Make the parts that a kind ranks with; `vectors` has one row for each passage.

        Reports the stage "linking".
        """
        if progress:
            progress("linking", 0, len(passages))
        sparse = None if kind == "dense" else SparseScores.build(passages)
        dense = None if vectors is None else DenseScores.build(vectors, factory)
        titles = TitleTable.build(passages) if kind in ("hybrid", "linked") else None
        links = LinkGraph.build(passages, titles) if titles and kind == "linked" else None
        contents = cls(PassageTable.of(passages), sparse, dense, titles, links)
        if progress:
            progress("linking", len(passages), len(passages))
        return contents

    def source(self) -> tuple[Kind, list[Passage], NDArray[np.float32] | None]:
        """What `derive` makes these contents of again."""
        kind: Kind = "dense" if self.sparse is None else "sparse"
        if self.titles is not None:
            kind = "hybrid" if self.links is None else "linked"
        vectors = None if self.dense is None else np.asarray(self.dense.vectors)
        return kind, list(self.passages), vectors

    def ranking(self, kind: Kind, encoder: Encoder | None) -> Ranking:
        """Return the ranking of a kind.

        Raises:
            InputError: These contents were made for a kind with fewer parts.
        """
        if kind == "sparse":
            return _part(kind, "BM25 scores", self.sparse)
        dense = _part(kind, "vectors", self.dense)
        encode = _part(kind, "vectors", encoder).encode_query
        if kind == "dense":
            return DenseRanking(dense, encode)
        sparse = _part(kind, "BM25 scores", self.sparse)
        hybrid = HybridRanking(sparse, dense, _part(kind, "titles", self.titles), encode)
        return (
            hybrid if kind == "hybrid" else LinkedRanking(hybrid, _part(kind, "links", self.links))
        )

    def save(self, folder: Path, factory: str) -> None:
        """Write the contents into a new folder."""
        folder.mkdir(parents=True)
        self.passages.save(folder / "passages.arrow")
        if self.sparse is not None:
            self.sparse.save(folder / "bm25")
        if self.dense is not None:
            np.save(folder / "vectors.npy", self.dense.vectors)
            if factory != FLAT:
                self.dense.save(folder / "vectors.faiss")
        if self.titles is not None:
            self.titles.save(folder / "titles.json")
        if self.links is not None:
            self.links.save(folder)

    @classmethod
    def load(cls, folder: Path, factory: str) -> Contents:
        """Open saved contents; passages, vectors and postings stay on disk until used."""
        passages = PassageTable.open(folder / "passages.arrow")
        bm25, titles, rows = folder / "bm25", folder / "titles.json", folder / "vectors.npy"
        dense = None
        if rows.is_file():
            vectors = np.load(rows, mmap_mode="r", allow_pickle=False)
            # A flat index is the vectors themselves: nothing more is stored for it.
            if factory == FLAT:
                dense = DenseScores.build(vectors, FLAT)
            else:
                dense = DenseScores.load(folder / "vectors.faiss", vectors)
        return cls(
            passages,
            SparseScores.load(bm25, len(passages)) if bm25.is_dir() else None,
            dense,
            TitleTable.load(titles) if titles.is_file() else None,
            LinkGraph.load(folder) if (folder / "links-titles.npz").is_file() else None,
        )


def check_kind(kind: str) -> Kind:
    """Return the kind, or raise `InputError`."""
    for known in KINDS:
        if kind == known:
            return known
    raise InputError(
        f"the kind of index is {kind!r}", expected=f"one of {KINDS}", remedy="use 'linked'"
    )


_T = TypeVar("_T")


def _part(kind: str, name: str, part: _T | None) -> _T:
    if part is None:
        raise InputError(
            f"this index holds no {name}",
            expected=f"an index that can rank as {kind!r}",
            remedy=f"build the index with kind={kind!r}",
        )
    return part


# --- The folder
#
# Each change writes the new contents beside the old, then puts the manifest in place, then removes
# the old contents. A process killed anywhere leaves an index that opens, old or new.

_LOCK = ".lock"


class IndexChanged(GaDspyError):
    """The stored index is no longer the one that was opened: open it again."""


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Be the only writer of a folder; the lock dies with the process.

    Raises:
        InUse: Another process writes to it.
        RunAborted: The disk refuses.
    """
    from filelock import FileLock, Timeout

    with on_disk(folder):
        folder.mkdir(parents=True, exist_ok=True)
        try:
            lock = FileLock(folder / _LOCK, timeout=0).acquire()
        except Timeout as error:
            raise InUse(
                f"{folder} is being written by another process",
                expected="to be the only writer",
                remedy="wait until it is done, then try again",
            ) from error
    with lock:
        yield


def not_empty(folder: Path, found: str) -> InputError:
    """The error where the folder for something new already holds something else."""
    return InputError(
        f"{folder} already holds {found}",
        expected="an empty folder, an unfinished build or the same index",
        remedy="choose another folder, delete this one, or bring an index up to date with "
        "`ga-dspy index sync`",
    )


def finished(folder: Path, wanted: Manifest) -> bool:
    """Whether the folder already holds what a build would make.

    Raises:
        InputError: It holds another index, or files that are none of ours.
    """
    if (folder / MANIFEST).is_file():
        found = read_manifest(folder)
        same = ("kind", "factory", "encoder", "source", "added", "deleted")
        if all(getattr(found, name) == getattr(wanted, name) for name in same):
            return found.is_intact(folder)
        raise not_empty(folder, f"another index ({found.passages} passages, {found.kind})")
    ours = (_LOCK, WORK, wanted.contents, f".{MANIFEST}.partial", f"{MANIFEST}.new")
    foreign = sorted(path.name for path in folder.iterdir() if path.name not in ours)
    if foreign:
        raise not_empty(folder, f"{foreign[0]!r}")
    return False


def store(folder: Path, contents: Contents, manifest: Manifest) -> Manifest:
    """Write contents as the manifest's generation and make them the current ones."""

    def save(target: Path) -> None:
        contents.save(target, manifest.factory)
        try:
            # NumPy does not notice that a full disk took only a part of a file.
            Contents.load(target, manifest.factory)
        except ValueError as error:
            raise OSError(f"a file is not whole after it was written ({error})") from error

    manifest = manifest.put(folder, save)
    if (folder / WORK).is_dir():
        shutil.rmtree(folder / WORK)
    return manifest


def check_unchanged(folder: Path, opened: Manifest) -> None:
    """Raise `IndexChanged` where another writer has changed the index since it was opened."""
    found = read_manifest(folder)
    if (found.generation, found.source) != (opened.generation, opened.source):
        raise IndexChanged(
            f"{folder} is at change {found.generation}, it was opened at change "
            f"{opened.generation}",
            expected="no other writer in between",
            remedy="open it again",
        )


def source_hash(passages: Iterable[Passage]) -> str:
    """SHA-256 over ids, titles, texts and what metadata there is, in order."""
    digest = hashlib.sha256()
    for passage in passages:
        metadata = [metadata_json(passage)] if passage.metadata else []
        for field in (passage.id, passage.title, passage.text, *metadata):
            data = field.encode()
            digest.update(len(data).to_bytes(8, "big") + data)
    return digest.hexdigest()
