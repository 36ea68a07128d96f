"""The folder of an index: its manifest, its passages, its lock, atomic changes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache, cached_property, lru_cache
from itertools import chain
from os.path import commonprefix
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from ga_dspy.errors import InputError, InUse, require
from ga_dspy.passage import Passage
from ga_dspy.retrieval.encoders import LOADABLE, Encoder, batched
from ga_dspy.retrieval.postings import KINDS, Kind
from ga_dspy.retrieval.where import Field
from ga_dspy.storage import MANIFEST, Generation, damaged_contents, not_built, on_disk

# --- The manifest

WORK = ".building"


class StoredEncoder(BaseModel):
    """The encoder that made the vectors; `loadable` if `load_encoder(name)` finds it."""

    model_config = ConfigDict(frozen=True)

    name: str
    fingerprint: str
    dimension: int
    loadable: bool

    @classmethod
    def of(cls, encoder: Encoder) -> StoredEncoder:
        """Return the entry of an encoder."""
        return cls(
            name=encoder.name,
            fingerprint=encoder.fingerprint,
            dimension=encoder.dimension,
            loadable=isinstance(encoder, LOADABLE),
        )


class Published(BaseModel):
    """The Milvus collection in which the passages of an index are searched.

    Attributes:
        uri: Address of the server ("http://milvus:19530"), or a file ending in ".db".
        collection: The name of the collection.
        parts: The parts it has: "words", "vectors", "aliases", "mentions".
        size: The number after the last row.
        length: The mean number of words of a passage.
    """

    model_config = ConfigDict(frozen=True)

    uri: str
    collection: str
    parts: tuple[str, ...] = ()
    size: int = 0
    length: float = 1.0


class Manifest(Generation):
    """What an index folder holds.

    Attributes:
        kind: How the index ranks.
        encoder: The encoder of the vectors; None for a sparse index.
        passages: The number of passages.
        source: The hash of the passages it was built from.
        published: Where it is searched, if not in the folder.
        reranker: The name of a cross-encoder that reranks results.
        require: Metadata fields that every search must filter on.
        redact: The name of the redaction that documents go through before they are indexed.
    """

    format: Literal[3] = 3
    kind: Kind
    encoder: StoredEncoder | None
    passages: int
    source: str
    published: Published | None = None
    reranker: str | None = None
    require: tuple[str, ...] = ()
    redact: str | None = None


def read_manifest(folder: Path) -> Manifest:
    """Read the manifest of an index folder.

    Raises:
        InputError: There is none, or the build is unfinished.
        UnknownFormat: It was written by another version, or is not a manifest.
    """
    if not (folder / MANIFEST).is_file():
        raise not_built(folder, WORK, "Index.build or `ga-dspy index build`")
    return Manifest.read(folder, "an index")


# --- Passages

_BATCH = 8192
COLUMNS = ("id", "title", "text", "metadata")
PASSAGES = "passages.arrow"


class PassageTable:
    """Passages by place, in an Arrow table that is mapped into memory.

    Arrow trusts the offsets in a file, so what is read is validated first.
    """

    def __init__(self, table: Any) -> None:
        self._table = table
        self._known = lru_cache(maxsize=256)(self._passage)
        self._field = cache(self._field_of)

    @classmethod
    def of(cls, passages: Iterable[Passage], path: Path | None = None) -> PassageTable:
        """Write passages to a table, in their order: in memory, or in a file that is mapped."""
        pyarrow = require("pyarrow", "search")
        sink = pyarrow.OSFile(str(path), "wb") if path else pyarrow.BufferOutputStream()
        with pyarrow.ipc.new_file(sink, _schema()) as writer:
            for batch in batched(passages, _BATCH):
                columns = {name: [getattr(p, name) for p in batch] for name in COLUMNS[:3]}
                columns["metadata"] = [metadata_json(passage) for passage in batch]
                writer.write_batch(pyarrow.record_batch(columns, _schema()))
        if path:
            sink.close()
            return cls.open(path)
        return cls(pyarrow.ipc.open_file(sink.getvalue()).read_all())

    @classmethod
    def open(cls, path: Path) -> PassageTable:
        """Map a saved table into memory.

        Raises:
            ValueError: It has other columns.
        """
        pyarrow = require("pyarrow", "search")
        table = pyarrow.ipc.open_file(pyarrow.memory_map(str(path))).read_all()
        if table.schema != _schema():
            raise ValueError(f"{path.name} has the columns {table.schema.names}")
        return cls(table)

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def __getitem__(self, place: int) -> Passage:
        """Return the passage at a place.

        Raises:
            IndexError: There is none.
            DamagedFile: It has invalid offsets.
        """
        return self._known(place)

    def _passage(self, place: int) -> Passage:
        for passage in self.between(place, place + 1):
            return passage
        raise IndexError(f"no passage at place {place}")

    def __reduce__(self) -> tuple[Any, ...]:
        return PassageTable, (self._table,)

    def __iter__(self) -> Iterator[Passage]:
        return self.between(0, len(self))

    def between(self, first: int, end: int) -> Iterator[Passage]:
        """Yield the passages from one place to another (exclusive)."""
        for batch in self._table.slice(first, end - first).to_batches(max_chunksize=_BATCH):
            yield from map(passage_of, _validated(batch).to_pylist())

    def matching(self, pattern: str) -> NDArray[np.int64]:
        """Return the places whose text matches an RE2 regular expression, ignoring case."""
        compute = require("pyarrow.compute", "search")
        texts = _validated(self._table["text"])
        found = compute.match_substring_regex(texts, pattern, ignore_case=True)
        return np.flatnonzero(found.to_numpy())

    @cached_property
    def fields(self) -> frozenset[str]:
        """The names in the metadata of all passages."""
        return frozenset(chain.from_iterable(map(_decoded, self._coded.dictionary.to_pylist())))

    def field(self, name: str) -> Field:
        """Return a metadata field; cached."""
        if name in self.fields:
            return self._field(name)
        return Field([()], np.zeros(len(self), dtype=np.int32))

    def _field_of(self, name: str) -> Field:
        places: dict[str, int] = {}
        values, place_of = list[tuple[Any, ...]](), list[int]()
        for metadata in map(_decoded, self._coded.dictionary.to_pylist()):
            value = metadata.get(name, [])
            value = tuple(value) if isinstance(value, list) else (value,)
            place = places.setdefault(repr(value), len(places))  # 1 is not True
            if place == len(values):
                values.append(value)
            place_of.append(place)
        return Field(values, np.array(place_of, dtype=np.int32)[self._coded.indices.to_numpy()])

    @property
    def ids(self) -> Any:
        """The column of ids."""
        return _validated(self._table["id"])

    @property
    def _coded(self) -> Any:
        """The metadata column, dictionary-encoded."""
        return _validated(self._table["metadata"]).combine_chunks().dictionary_encode()


@cache
def _schema() -> Any:
    pyarrow = require("pyarrow", "search")
    return pyarrow.schema([(name, pyarrow.large_string()) for name in COLUMNS])


def _validated(texts: Any) -> Any:
    """Return a batch or a column of texts, with valid offsets.

    Raises:
        DamagedFile: They are not.
    """
    try:
        texts.validate(full=True)
    except ValueError as error:
        raise damaged_contents(f"{PASSAGES} has invalid offsets ({error})") from error
    return texts


def _decoded(metadata: str | None) -> dict[str, Any]:
    return json.loads(metadata) if metadata else {}


def metadata_json(passage: Passage) -> str:
    """Return the metadata as JSON with sorted keys; empty for none."""
    metadata = passage.metadata
    return json.dumps(metadata, ensure_ascii=False, sort_keys=True) if metadata else ""


def passage_of(row: Mapping[str, str]) -> Passage:
    """Return the passage of a stored row, which has its metadata as JSON."""
    return Passage.model_validate({**row, "metadata": _decoded(row["metadata"])})


def distinct(
    passages: Iterable[Passage], known: Callable[[str], Passage | None] = lambda id: None
) -> Iterator[Passage]:
    """Yield the passages that are not known, identical ones once, in order.

    Args:
        passages: The passages; they may be more than fit into memory.
        known: Returns the passage that already has an id.

    Raises:
        InputError: An id stands for two texts, or a passage has neither title nor text.
    """
    digests: dict[int, int] = {}
    recent: dict[str, Passage] = {}
    for passage in passages:
        if not passage.content.strip():
            raise InputError(
                f"passage {passage.id!r} has neither title nor text",
                expected="passages with text",
                remedy="leave it out",
            )
        key = hash(passage.id)
        digest = hash((passage.title, passage.text, metadata_json(passage)))
        before = recent.get(passage.id) or known(passage.id)
        if before is None and key not in digests:
            digests[key] = digest
            if len(recent) == _BATCH:
                recent.clear()
            recent[passage.id] = passage
            yield passage
        elif passage != before if before else digest != digests[key]:
            shown = _difference(before, passage) if before else f"{passage.content[:50]!r} last"
            raise InputError(
                f"passage id {passage.id!r} stands for two texts ({shown})",
                expected="one text an id",
                remedy="give each passage its own id, or delete the old passage before adding the "
                "new one",
            )


def _difference(one: Passage, other: Passage) -> str:
    """Return where two passages first differ, with a few words before it."""
    contents = [f"{passage.content} {metadata_json(passage)}" for passage in (one, other)]
    same = len(commonprefix(contents))
    start = max(same - 25, 0)
    ellipsis = "…" if start else ""
    parts = (f"{ellipsis}{content[start : same + 25]}".rstrip() for content in contents)
    return " and ".join(map(repr, parts))


def check_kind(kind: str) -> Kind:
    """Return the kind, or raise `InputError`."""
    if kind not in KINDS:
        raise InputError(
            f"the kind of index is {kind!r}", expected=f"one of {KINDS}", remedy="use 'linked'"
        )
    return kind


# --- The folder
#
# A change writes the new contents beside the old ones, then replaces the manifest, then removes the
# old contents. A process killed at any point leaves an index that opens, old or new.

_LOCK = ".lock"


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Lock a folder for writing; the lock ends with the process.

    Raises:
        InUse: Another process writes to it.
        RunAborted: The disk is full or not writable.
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
    """Return the error if the folder for something new already holds something else."""
    return InputError(
        f"{folder} already holds {found}",
        expected="an empty folder, an unfinished build or the same index",
        remedy="choose another folder, delete this one, or bring an index up to date with "
        "`ga-dspy index sync`",
    )


def check_ours(folder: Path) -> None:
    """Raise `InputError` if a folder without an index holds unrelated files."""
    if (folder / MANIFEST).is_file():
        return
    ours = (_LOCK, WORK, f".{MANIFEST}.partial", f"{MANIFEST}.new")
    for name in sorted(path.name for path in folder.iterdir()):
        if name not in ours and not name.startswith("contents-"):
            raise not_empty(folder, repr(name))


def finished(folder: Path, wanted: Manifest) -> bool:
    """Return whether the folder already holds what a build would make.

    Raises:
        InputError: It holds another index.
    """
    if not (folder / MANIFEST).is_file():
        return False
    found = read_manifest(folder)
    same = "kind encoder reranker require redact source generation".split()
    if all(getattr(found, name) == getattr(wanted, name) for name in same):
        return found.is_intact(folder)
    raise not_empty(folder, f"another index ({found.passages} passages, {found.kind})")


def check_unchanged(folder: Path, opened: Manifest) -> None:
    """Raise `InUse` if another writer has changed the index since it was opened."""
    found = read_manifest(folder)
    if (found.generation, found.source) != (opened.generation, opened.source):
        raise InUse(
            f"{folder} is at change {found.generation}, it was opened at change "
            f"{opened.generation}",
            expected="no other writer in between",
            remedy="open it again",
        )


def hashing(passages: Iterable[Passage], digest: Any) -> Iterator[Passage]:
    """Pass the passages on, and add ids, titles, texts and metadata to a digest."""
    for passage in passages:
        metadata = [metadata_json(passage)] if passage.metadata else []
        for field in (passage.id, passage.title, passage.text, *metadata):
            data = field.encode()
            digest.update(len(data).to_bytes(8, "big") + data)
        yield passage
