"""The folder of an index: manifest, passage table, write lock."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache, cached_property, lru_cache
from itertools import chain
from operator import attrgetter
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
    """The encoder of the vectors of an index; `loadable` if `load_encoder(name)` returns it."""

    model_config = ConfigDict(frozen=True)

    name: str
    fingerprint: str
    dimension: int
    loadable: bool

    @classmethod
    def of(cls, encoder: Encoder) -> StoredEncoder:
        """Describe an encoder for the manifest."""
        return cls(
            name=encoder.name,
            fingerprint=encoder.fingerprint,
            dimension=encoder.dimension,
            loadable=isinstance(encoder, LOADABLE),
        )


class Published(BaseModel):
    """The Milvus collection in which an index is searched.

    Attributes:
        uri: The address of the server ("http://milvus:19530"), or a file that ends in ".db".
        collection: The name of the collection.
        parts: The parts of the index that it holds: "words", "vectors", "aliases", "mentions".
        size: The number after the last row.
        length: The mean number of words per passage.
    """

    model_config = ConfigDict(frozen=True)

    uri: str
    collection: str
    parts: tuple[str, ...] = ()
    size: int = 0
    length: float = 1.0


class Manifest(Generation):
    """The manifest of an index folder.

    Attributes:
        kind: The kind of ranking.
        encoder: The encoder of the vectors; None for a sparse index.
        passages: The number of passages.
        source: The hash of the passages that the index was built from.
        published: The Milvus collection in which it is searched; None for the folder itself.
        reranker: The name of the cross-encoder that reranks results.
        require: Metadata fields that every search must filter on.
        redact: The name of the redaction of its documents.
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
        InputError: There is no manifest, or the build is unfinished.
        UnknownFormat: The manifest was written by another version, or is no manifest.
    """
    if not (folder / MANIFEST).is_file():
        raise not_built(folder, WORK, "Index.build or `ga-dspy index build`")
    return Manifest.read(folder, "an index")


# --- Passages

_BATCH = 8192
COLUMNS = ("id", "title", "text", "metadata")
PASSAGES = "passages.arrow"


class PassageTable:
    """Passages by position in a memory-mapped Arrow table.

    Arrow trusts the offsets in a file, so they are validated before texts are read.
    """

    def __init__(self, table: Any) -> None:
        self._table = table
        self._cached = lru_cache(maxsize=256)(self._passage)
        self._field = cache(self._encode_field)

    @classmethod
    def of(cls, passages: Iterable[Passage], path: Path | None = None) -> PassageTable:
        """Write passages in order to a table in memory, or to a file and map it."""
        pyarrow = require("pyarrow", "search")
        sink = pyarrow.OSFile(str(path), "wb") if path else pyarrow.BufferOutputStream()
        with pyarrow.ipc.new_file(sink, _schema()) as writer:
            for batch in batched(passages, _BATCH):
                columns = {name: map(attrgetter(name), batch) for name in COLUMNS}
                columns["metadata"] = map(metadata_json, batch)
                writer.write_batch(pyarrow.record_batch(columns, _schema()))
        if path:
            sink.close()
            return cls.open(path)
        return cls(pyarrow.ipc.open_file(sink.getvalue()).read_all())

    @classmethod
    def open(cls, path: Path) -> PassageTable:
        """Map a saved table into memory.

        Raises:
            ValueError: The table has other columns.
        """
        pyarrow = require("pyarrow", "search")
        table = pyarrow.ipc.open_file(pyarrow.memory_map(str(path))).read_all()
        if table.schema != _schema():
            raise ValueError(f"{path.name} has the columns {table.schema.names}")
        return cls(table)

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def __getitem__(self, place: int) -> Passage:
        """Return the passage at a position.

        Raises:
            IndexError: There is no such position.
            DamagedFile: The file has invalid offsets.
        """
        return self._cached(place)

    def _passage(self, place: int) -> Passage:
        for passage in self.between(place, place + 1):
            return passage
        raise IndexError(f"no passage at place {place}")

    def __reduce__(self) -> tuple[Any, ...]:
        return PassageTable, (self._table,)

    def __iter__(self) -> Iterator[Passage]:
        return self.between(0, len(self))

    def between(self, first: int, end: int) -> Iterator[Passage]:
        """Yield the passages at positions `first` to `end` (exclusive)."""
        for batch in self._table.slice(first, end - first).to_batches(max_chunksize=_BATCH):
            yield from map(passage_of, _validated(batch).to_pylist())

    def matching(self, pattern: str) -> NDArray[np.int64]:
        """Return the positions of texts that match an RE2 regular expression, ignoring case."""
        compute = require("pyarrow.compute", "search")
        texts = _validated(self._table["text"])
        matches = compute.match_substring_regex(texts, pattern, ignore_case=True)
        return np.flatnonzero(matches.to_numpy())

    @cached_property
    def fields(self) -> frozenset[str]:
        """The metadata fields of all passages."""
        return frozenset(chain.from_iterable(map(_parsed, self._metadata.dictionary.to_pylist())))

    def field(self, name: str) -> Field:
        """Return a metadata field; cached."""
        if name in self.fields:
            return self._field(name)
        return Field([()], np.zeros(len(self), dtype=np.int32))

    def _encode_field(self, name: str) -> Field:
        values: dict[str, tuple[Any, ...]] = {}
        keys = []
        for metadata in map(_parsed, self._metadata.dictionary.to_pylist()):
            value = metadata.get(name, [])
            value = tuple(value) if isinstance(value, list) else (value,)
            keys.append(repr(value))  # unlike the values, repr distinguishes 1 and True
            values.setdefault(keys[-1], value)
        place_of = {key: place for place, key in enumerate(values)}
        places = np.array([place_of[key] for key in keys], dtype=np.int32)
        return Field(list(values.values()), places[self._metadata.indices.to_numpy()])

    @property
    def ids(self) -> Any:
        """The column of ids."""
        return _validated(self._table["id"])

    @property
    def _metadata(self) -> Any:
        """The metadata column, dictionary-encoded."""
        return _validated(self._table["metadata"]).combine_chunks().dictionary_encode()


@cache
def _schema() -> Any:
    pyarrow = require("pyarrow", "search")
    return pyarrow.schema([(name, pyarrow.large_string()) for name in COLUMNS])


def _validated(texts: Any) -> Any:
    """Validate the offsets of a batch or a column of texts, and return it.

    Raises:
        DamagedFile: An offset is invalid.
    """
    try:
        texts.validate(full=True)
    except ValueError as error:
        raise damaged_contents(f"{PASSAGES} has invalid offsets ({error})") from error
    return texts


def _parsed(metadata: str | None) -> dict[str, Any]:
    return json.loads(metadata) if metadata else {}


def metadata_json(passage: Passage) -> str:
    """Return the metadata as JSON with sorted keys; "" if there is none."""
    metadata = passage.metadata
    return json.dumps(metadata, ensure_ascii=False, sort_keys=True) if metadata else ""


def passage_of(row: Mapping[str, str]) -> Passage:
    """Return the passage of a stored row, whose metadata is JSON."""
    return Passage.model_validate({**row, "metadata": _parsed(row["metadata"])})


def distinct(
    passages: Iterable[Passage], known: Callable[[str], Passage | None] = lambda id: None
) -> Iterator[Passage]:
    """Yield the new passages in order, without duplicates.

    Args:
        passages: The passages; they need not fit into memory.
        known: Returns the passage that the index has under an id; by default, none is known.

    Raises:
        InputError: Two different passages have the same id, or one has neither title nor text.
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
        earlier = recent.get(passage.id) or known(passage.id)
        if earlier is None and key not in digests:
            digests[key] = digest
            if len(recent) == _BATCH:
                recent.clear()
            recent[passage.id] = passage
            yield passage
        elif passage != earlier if earlier else digest != digests[key]:
            shown = _difference(earlier, passage) if earlier else f"{passage.content[:50]!r} last"
            raise InputError(
                f"two passages have the id {passage.id!r} ({shown})",
                expected="one text per id",
                remedy="give each passage its own id, or delete the old passage before adding the "
                "new one",
            )


def _difference(passage: Passage, other: Passage) -> str:
    """Quote both passages around the first character that differs."""
    contents = [f"{each.content} {metadata_json(each)}" for each in (passage, other)]
    same = len(commonprefix(contents))
    start = max(same - 25, 0)
    ellipsis = "…" if start else ""
    quotes = (f"{ellipsis}{content[start : same + 25]}".rstrip() for content in contents)
    return " and ".join(map(repr, quotes))


def check_kind(kind: str) -> Kind:
    """Return the kind, or raise `InputError` if it is unknown."""
    if kind not in KINDS:
        raise InputError(
            f"the kind of index is {kind!r}", expected=f"one of {KINDS}", remedy="use 'linked'"
        )
    return kind


# --- The folder

_LOCK = ".lock"


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Lock a folder for writing; the lock ends with the process.

    Raises:
        InUse: Another process writes to it.
        RunAborted: The disk is full or read-only.
    """
    from filelock import FileLock, Timeout

    with on_disk(folder):
        folder.mkdir(parents=True, exist_ok=True)
        try:
            lock = FileLock(folder / _LOCK, timeout=0).acquire()
        except Timeout as error:
            raise InUse(
                f"{folder} is being written by another process",
                expected="a single writer",
                remedy="wait until it finishes, then try again",
            ) from error
    with lock:
        yield


def not_empty(folder: Path, found: str) -> InputError:
    """Return the error for a target folder that already holds something else."""
    return InputError(
        f"{folder} already holds {found}",
        expected="an empty folder, an unfinished build or the same index",
        remedy="choose another folder, delete this one, or bring an index up to date with "
        "`ga-dspy index sync`",
    )


def check_ours(folder: Path) -> None:
    """Raise `InputError` if a folder without a manifest holds files that no build wrote."""
    if (folder / MANIFEST).is_file():
        return
    ours = (_LOCK, WORK, f".{MANIFEST}.partial", f"{MANIFEST}.new")
    for name in sorted(path.name for path in folder.iterdir()):
        if name not in ours and not name.startswith("contents-"):
            raise not_empty(folder, repr(name))


def finished(folder: Path, wanted: Manifest) -> bool:
    """Return whether the folder already holds the intact result of a build.

    Raises:
        InputError: The folder holds another index.
    """
    if not (folder / MANIFEST).is_file():
        return False
    stored = read_manifest(folder)
    settings = attrgetter(*"kind encoder reranker require redact source generation".split())
    if settings(stored) == settings(wanted):
        return stored.is_intact(folder)
    raise not_empty(folder, f"another index ({stored.passages} passages, {stored.kind})")


def check_unchanged(folder: Path, opened: Manifest) -> None:
    """Raise `InUse` if another writer has changed the index since it was opened."""
    current = read_manifest(folder)
    if (current.generation, current.source) != (opened.generation, opened.source):
        raise InUse(
            f"{folder} was opened at change {opened.generation}, and is now at change "
            f"{current.generation}",
            expected="no other writer since it was opened",
            remedy="open it again",
        )


def hashing(passages: Iterable[Passage], digest: Any) -> Iterator[Passage]:
    """Yield the passages, and add their ids, titles, texts and metadata to a digest."""
    for passage in passages:
        metadata = [metadata_json(passage)] if passage.metadata else []
        for field in (passage.id, passage.title, passage.text, *metadata):
            data = field.encode()
            digest.update(len(data).to_bytes(8, "big") + data)
        yield passage
