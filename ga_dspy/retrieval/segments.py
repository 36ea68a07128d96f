"""The segments of a `LocalEngine`: create, change, save, load.

Each change adds one segment and merges it with earlier segments that are not much larger. So there
are few segments, and a passage is analysed again only each time the index has grown fourfold.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import chain, compress
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ga_dspy.errors import RunAborted, require
from ga_dspy.passage import Passage
from ga_dspy.processes import LineProcess, reply_in_lines
from ga_dspy.retrieval import postings
from ga_dspy.retrieval.engine import LocalEngine, Segment, names_few
from ga_dspy.retrieval.postings import KINDS, PARTS, Arrays, Columns, Kind, Known, Rows
from ga_dspy.retrieval.store import PASSAGES, Manifest, PassageTable
from ga_dspy.storage import link
from ga_dspy.text import aliases

Chunk = Path | Arrays

CHUNK: Final = 16384
"""Passages per chunk."""

_RATIO: Final = 4
"""Segments are merged unless the earlier one has at least this many times the weight."""

EXACT: Final = 1 << 16
"""A segment with more vectors than this gets an approximate index."""

_NO_ROWS: Final = np.zeros(0, dtype=np.int64)


def _open(chunk: Chunk) -> Arrays:
    return postings.mapped(chunk) if isinstance(chunk, Path) else chunk


# --- The analysis of the texts

_PARALLEL_FROM: Final = 2 * CHUNK
"""Corpora with more passages are analysed by several processes."""


@contextmanager
def _analysing(
    table: PassageTable, kind: Kind, folder: Path | None
) -> Iterator[Callable[[], Sequence[Chunk]]]:
    """Analyse passages, large corpora in the background with a process per core.

    Yields:
        A function that waits for the analysis and returns its chunks.
    """
    firsts, count = range(0, max(len(table), 1), CHUNK), os.cpu_count() or 1
    if folder is None or len(table) <= _PARALLEL_FROM or count == 1:
        yield lambda: [
            postings.analyse(table.between(at, at + CHUNK), Columns(), kind) for at in firsts
        ]
        return
    path, out = str(folder / PASSAGES), folder / "chunks"
    code = "from ga_dspy.retrieval.segments import serve; serve()"
    processes = [LineProcess(code) for _ in range(count)]

    def work(number: int) -> None:
        for first in firsts[number::count]:
            request = json.dumps([path, str(out), kind, first])
            if processes[number].ask(request.encode() + b"\n") is None:
                raise RunAborted(
                    "a process that analyses passages ended",
                    expected="enough memory and disk for the build",
                    remedy="run the same build again: finished vectors are kept",
                )

    with ThreadPoolExecutor(count) as pool:
        try:
            works = pool.map(work, range(count))

            def finish() -> Sequence[Chunk]:
                list(works)  # waits, and raises the errors of processes
                return sorted(out.iterdir())

            yield finish
        finally:
            for process in processes:
                process.end()
            shutil.rmtree(out, ignore_errors=True)


def serve() -> None:
    """Analyse the chunks of passages that stdin names."""
    reply_in_lines(lambda line, _: _analyse_chunk(*json.loads(line)))


def _analyse_chunk(path: str, out: str, kind: Kind, first: int) -> bool:
    passages = PassageTable.open(Path(path)).between(first, first + CHUNK)
    postings.analyse(passages, Columns(Path(out) / f"{first:010d}"), kind)
    return True


# --- Segments


def new_folder(work: Path | None) -> Path | None:
    """Create an empty folder for the next segment of a stored index; return None for memory."""
    if work is None:
        return None
    folder = work / "segment"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def make_engine(
    table: PassageTable,
    kind: Kind,
    vectors: Iterable[NDArray[np.float32]],
    folder: Path | None = None,
    *,
    kept: Sequence[Segment] = (),
    dead: Rows = _NO_ROWS,
    older: Rows = _NO_ROWS,
) -> LocalEngine:
    """Make an engine of existing segments and a new one.

    Args:
        table: The passages of the new segment, stored in `folder` if there is one.
        kind: The kind of index.
        vectors: Their vectors in blocks of shape (passages, dimension); empty without vectors.
        folder: Where to write the arrays; None for memory.
        kept: The existing segments.
        dead: The deleted rows.
        older: Rows of `kept` whose texts are searched for mentions again, because a name that they
            may contain has become known or unknown.
    """
    base = kept[-1].end if kept else 0
    rows, out = np.arange(base, base + len(table)), Columns(folder)
    with _analysing(table, kind, folder) as analysed:
        for block in vectors:
            out.append("vectors.f4", block)
        chunks = analysed()
        parts = frozenset(name.partition(".")[0] for name in _open(chunks[0]))
        for arrays in map(_open, chunks):
            if "words" in parts:
                out.append("lengths.i4", np.diff(arrays["words.of.i8"]))
            for name in parts & {"aliases", "spans"}:
                sizes = np.diff(arrays[f"{name}.of.i8"])
                out.append_lists(name, sizes, arrays[f"{name}.held.u8"])
        for name in sorted(parts & {"ids", "words", "aliases", "spans"}):
            postings.invert(out, name, rows, chunks)
        segment = Segment(base, table, out.finish(), folder)
        if kind == "linked":
            whose = np.concatenate([older, rows])
            out.append("mentions.whose.i4", whose)
            for sizes, keys in _mentions(LocalEngine([*kept, segment], dead), older, chunks):
                out.append_lists("mentions", sizes, keys)
            postings.invert(out, "mentions", whose, [out.finish()])
    near = None
    if segment.holds("vectors") and len(table) > EXACT:
        near = build_nearest(segment.vectors, folder)
    return LocalEngine([*kept, segment._replace(arrays=out.finish(), near=near)], dead)


def _mentions(
    engine: LocalEngine, older: Rows, chunks: Sequence[Chunk]
) -> Iterator[tuple[Any, NDArray[np.uint64]]]:
    """Yield how many names each text mentions, and their keys: first older rows, then chunks."""
    names, *more = engine.tables["aliases"]
    is_known: Known = engine.known
    if not more:  # faster for many texts
        is_known = postings.among(names.keys[names_few(np.diff(names.starts))])
    texts = [passage.text for passage in engine.passages(older.tolist())]
    yield postings.mentioned_in(texts, is_known)
    for arrays in map(_open, chunks):
        words, sizes = arrays["text.held.u8"], np.diff(arrays["text.of.i8"])
        yield postings.mentioned(words, arrays["starts.b1"], sizes, is_known)


def changed(
    engine: LocalEngine,
    new: Sequence[Passage],
    vectors: NDArray[np.float32] | None,
    gone: Sequence[int],
    work: Path | None = None,
) -> LocalEngine:
    """Return an engine with some rows deleted and passages added.

    Rows keep their numbers, unless all segments are merged, which drops deleted passages.

    Args:
        engine: The engine.
        new: The passages to add.
        vectors: Their vectors, shape (passages, dimension).
        gone: The rows to delete.
        work: The folder in which the new segment is created; None for memory.
    """
    kind = next(kind for kind in reversed(KINDS) if all(map(engine.holds, PARTS[kind])))
    dead = np.union1d(engine.dead, np.asarray(gone, dtype=np.int64))
    older = _to_read_again(engine, new, gone) if kind == "linked" else _NO_ROWS
    older = np.setdiff1d(older, dead)
    kept, weight = list(engine.segments), max(len(new), len(older))
    while kept and kept[-1].weight < _RATIO * weight:
        weight += kept.pop().weight
    if 4 * len(dead) > engine.size:
        kept = []
    elif not weight:
        return LocalEngine(engine.segments, dead)
    merged, base = engine.segments[len(kept) :], kept[-1].end if kept else 0
    is_copied = np.ones(engine.size - base, dtype=np.bool_)
    if not kept:
        is_copied[dead] = False
    rows, folder = base + np.flatnonzero(is_copied), new_folder(work)
    texts = compress(chain.from_iterable(segment.texts for segment in merged), is_copied)
    blocks = (engine.vectors(rows[at : at + CHUNK]) for at in range(0, len(rows), CHUNK))
    if kind == "linked":
        older = np.concatenate([older, *(s.arrays["mentions.whose.i4"] for s in merged)])
        older = np.setdiff1d(older[older < base], dead)
    return make_engine(
        PassageTable.of(chain(texts, new), folder and folder / PASSAGES), kind,
        () if vectors is None else chain(blocks, [vectors]), folder,
        kept=kept, dead=dead if kept else _NO_ROWS, older=older,
    )  # fmt: skip


def _to_read_again(engine: LocalEngine, new: Sequence[Passage], gone: Sequence[int]) -> Rows:
    """Return the rows that may mention a name that a change makes known or unknown."""
    alias_of, change = dict[int, str](), Counter[int]()
    for sign, passages in ((1, new), (-1, engine.passages(gone))):
        for alias in chain.from_iterable(aliases(p.title, p.text) for p in passages):
            key = postings.name_key(alias)
            alias_of[key] = alias
            change[key] += sign
    keys = np.fromiter(alias_of, dtype=np.uint64, count=len(alias_of))
    count = engine.count("aliases", keys)
    before, after = names_few(count), names_few(count + [change[key] for key in alias_of])
    _, lost = engine.find("mentions", keys[before & ~after])
    gained = [alias_of[key] for key in keys[after & ~before].tolist()]
    return np.concatenate([lost, *(_may_mention(engine, name) for name in gained)])


def _may_mention(engine: LocalEngine, name: str) -> Rows:
    """Return the rows whose text may mention a name: a superset, found by its words or a regex."""
    words = name.split()
    if len(postings.word_keys(name)) and all(map(str.isalnum, words)) and name.isascii():
        return engine.holding(name)
    pattern = r"[\W_]*".join(map(re.escape, words))
    found = [s.base + s.texts.matching(pattern) for s in engine.segments]
    return np.concatenate(found)


# --- An approximate index of vectors (FAISS)

NEAR: Final = "nearest.faiss"

_MOST_PROBES: Final = 64
"""A search probes an eighth of the inverted lists, but at most this many; FAISS's default is 1."""

_READING = threading.Lock()


def build_nearest(vectors: NDArray[np.float32], folder: Path | None) -> Any:
    """Index vectors in inverted lists, quantised to 8 bits; write the index to a folder."""
    faiss = require("faiss", "search")
    size, dimension = vectors.shape
    lists = 1 << round(np.log2(2 * size**0.5))
    index = faiss.index_factory(dimension, f"IVF{lists},SQ8", faiss.METRIC_INNER_PRODUCT)
    index.cp.max_points_per_centroid = 64
    index.train(np.ascontiguousarray(vectors[:: size // max(1 << 16, 64 * lists) + 1]))
    index.add(vectors)
    index.nprobe = min(max(1, lists // 8), _MOST_PROBES)
    if folder:
        faiss.write_index(index, str(folder / NEAR))
    return index


def read_nearest(path: Path, shape: tuple[int, int]) -> Any:
    """Open a saved index of vectors of a shape; its inverted lists are read when needed.

    Raises:
        ValueError: The index has another type or shape.
    """
    faiss = require("faiss", "search")
    with _READING, _bounded(faiss, path.stat().st_size):
        index = faiss.read_index(str(path), faiss.IO_FLAG_MMAP)
    if not isinstance(index, faiss.IndexIVF) or (index.ntotal, index.d) != shape:
        raise ValueError(f"{path.name}: {index.ntotal} vectors of {index.d} numbers")
    return index


_LIMITS: Final = ("deserialization_vector_byte_limit", "deserialization_loop_limit")


@contextmanager
def _bounded(faiss: Any, size: int) -> Iterator[None]:
    """Keep FAISS from allocating more than the size of a file, which may be damaged.

    These limits apply to the whole process.
    """
    defaults = {name: getattr(faiss, f"get_{name}")() for name in _LIMITS}
    try:
        for name in _LIMITS:
            getattr(faiss, f"set_{name}")(max(1, size))
        yield
    finally:
        for name, limit in defaults.items():
            getattr(faiss, f"set_{name}")(limit)


# --- The folder

DEAD: Final = "deleted.i8"


def save(engine: LocalEngine, folder: Path) -> None:
    """Save an engine into a new folder, with hard links to the files of its segments."""
    folder.mkdir(parents=True)
    for number, segment in enumerate(engine.segments):
        if segment.folder:
            shutil.copytree(segment.folder, folder / f"{number:04d}", copy_function=link)
    engine.dead.tofile(folder / DEAD)


def load(folder: Path, manifest: Manifest) -> LocalEngine:
    """Open a saved engine; its arrays are memory-mapped.

    Args:
        folder: The folder of the index.
        manifest: The manifest of the index.

    Raises:
        ValueError: The shape of a file does not match the manifest and the passages.
    """
    contents = folder / manifest.contents
    dimension = manifest.encoder.dimension if manifest.encoder else 0
    segments: list[Segment] = []
    for path in sorted(path for path in contents.iterdir() if path.is_dir()):
        base = segments[-1].end if segments else 0
        table, arrays, near = PassageTable.open(path / PASSAGES), postings.mapped(path), None
        shape = (len(table), dimension)
        if "vectors.f4" in arrays:
            arrays["vectors.f4"].reshape(shape)
        if (path / NEAR).is_file():
            near = read_nearest(path / NEAR, shape)
        segments.append(Segment(base, table, arrays, path, near))
    return LocalEngine(segments, np.fromfile(contents / DEAD, dtype=np.int64))
