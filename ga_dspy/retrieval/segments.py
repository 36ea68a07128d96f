"""The segments of a `LocalEngine`: create, change, merge, save."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ga_dspy.errors import RunAborted
from ga_dspy.passage import Passage
from ga_dspy.retrieval.documents import python_process
from ga_dspy.retrieval.engine import MOST_TARGETS, FaissNearest, LocalEngine, Segment, link
from ga_dspy.retrieval.postings import (
    Arrays,
    Columns,
    Known,
    Rows,
    Table,
    among,
    analyse,
    invert,
    mapped,
    mentioned,
    mentioned_in,
    merge_tables,
    name_key,
    word_keys,
)
from ga_dspy.retrieval.rank import Kind
from ga_dspy.retrieval.store import PASSAGES, Manifest, PassageTable
from ga_dspy.text import aliases

Chunk = Path | Arrays
Vectors = Iterable[NDArray[np.float32]]

CHUNK: Final = 16384
"""Passages per chunk."""

_RATIO: Final = 4
"""A segment weighs at least this many times as much as the next; lighter ones are merged."""


def _kind_of(engine: LocalEngine) -> Kind:
    """Return the kind that uses all parts of an engine."""
    kinds: dict[str, Kind] = {"mentions": "linked", "aliases": "hybrid", "words": "sparse"}
    return next((kind for part, kind in kinds.items() if engine.holds(part)), "dense")


def _open(chunk: Chunk) -> Arrays:
    return mapped(chunk) if isinstance(chunk, Path) else chunk


def chunks_of(table: PassageTable, kind: Kind, first: int = 0) -> list[Chunk]:
    """Analyse passages in this process; the first has the row `first`."""
    return [
        analyse(table.between(at, at + CHUNK), first + at, Columns(), kind)
        for at in range(0, max(len(table), 1), CHUNK)
    ]


_PARALLEL_FROM: Final = 2 * CHUNK
"""Larger corpora are analysed by several processes."""


@contextmanager
def analysing(table: PassageTable, kind: Kind, work: Path | None) -> Iterator[Callable[[], Any]]:
    """Analyse passages while the caller does something else.

    Large corpora in a file are analysed by a process per core, each a part of the chunks.

    Yields:
        A function that waits for the chunks and returns them.
    """
    count = os.cpu_count() or 1
    if work is None or len(table) <= _PARALLEL_FROM or count == 1:
        yield cache(lambda: chunks_of(table, kind))
        return
    out = work / "chunks"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    code = "import sys; from ga_dspy.retrieval.segments import _work; _work(*sys.argv[1:])"
    processes = [
        python_process(
            code, str(work / PASSAGES), str(out), kind, str(number), str(count),
            stdin=subprocess.DEVNULL, stderr=subprocess.PIPE,
        )
        for number in range(count)
    ]  # fmt: skip

    @cache
    def finish() -> Sequence[Chunk]:
        for process in processes:
            _, message = process.communicate()
            if process.returncode:
                raise RunAborted(
                    f"a process that analyses passages ended with {process.returncode}: "
                    f"{message.decode(errors='replace').strip().splitlines()[-1:]}",
                    expected="enough memory and disk for the build",
                    remedy="run the same build again: finished vectors are kept",
                )
        return sorted(out.iterdir())

    try:
        yield finish
    finally:
        for process in processes:
            process.kill()
            process.wait()
        shutil.rmtree(out, ignore_errors=True)


def _work(path: str, out: str, kind: Kind, number: str, count: str) -> None:
    """Analyse every `count`-th chunk of a file of passages, in a separate process."""
    table, parent = PassageTable.open(Path(path)), os.getppid()
    for first in range(int(number) * CHUNK, len(table), int(count) * CHUNK):
        if os.getppid() != parent:
            return  # the build was killed
        passages = table.between(first, first + CHUNK)
        analyse(passages, first, Columns(Path(out) / f"{first:010d}"), kind)


def _joined(
    analysed: Callable[[], Sequence[Chunk]], base: int, texts: PassageTable, vectors: Vectors,
    folder: Path | None,
) -> Segment:  # fmt: skip
    """Make a segment of consecutive parts, without the mentions in their texts.

    Args:
        analysed: Returns the parts: analysed chunks, or the arrays of segments.
        base: The row of the first passage.
        texts: The passages.
        vectors: Their vectors in blocks, shape (passages, dimension); empty if there are none.
        folder: Where to write the arrays; None for memory.
    """
    out = Columns(folder)
    for block in vectors:
        out.append("vectors.f4", block)
    parts = analysed()
    names = _open(parts[0])
    for name in ("ids", "words"):
        if f"{name}.keys.u8" in names:
            merge_tables(out, name, parts)
    lists = [name for name in ("aliases", "spans") if f"{name}.of.i8" in names]
    for part in parts:
        arrays = _open(part)
        if "lengths.i4" in arrays:
            out.append("lengths.i4", arrays["lengths.i4"])
        for name in lists:
            out.append_lists(name, np.diff(arrays[f"{name}.of.i8"]), arrays[f"{name}.held.u8"])
    segment = Segment(base, texts, out.finish(), folder)
    rows = np.arange(base, segment.end)
    return _inverted(segment, dict.fromkeys(lists, rows))


def _inverted(segment: Segment, rows_of: Mapping[str, Rows]) -> Segment:
    """Add tables by key to a segment, for lists that it has by row."""
    out = Columns(segment.folder)
    for name, rows in rows_of.items():
        invert(out, name, segment.arrays[f"{name}.held.u8"], segment.arrays[f"{name}.of.i8"], rows)
    return replace(segment, arrays={**segment.arrays, **out.finish()})


def _with_mentions(segment: Segment, rows: Rows, blocks: Iterable[tuple[Any, Any]]) -> Segment:
    """Add the mentions of some rows to a segment, in blocks: the count for each row, and keys."""
    out = Columns(segment.folder)
    out.append("mentions.whose.i4", rows)
    for sizes, keys in blocks:
        out.append_lists("mentions", sizes, keys)
    segment = replace(segment, arrays={**segment.arrays, **out.finish()})
    return _inverted(segment, {"mentions": rows})


def make_engine(
    table: PassageTable, kind: Kind, vectors: Vectors, work: Path | None = None
) -> LocalEngine:
    """Make an engine of passages and the blocks of their vectors.

    Args:
        table: The passages.
        kind: The kind of index.
        vectors: Shape (passages, dimension) each; empty if there are none.
        work: The folder of the passages, in which the arrays are made; None for memory.
    """
    folder = _empty(work / "segment") if work else None
    with analysing(table, kind, work) as analysed:
        segment = _joined(analysed, 0, table, vectors, folder)
        if kind == "linked":
            names = Table.of(segment.arrays, "aliases")
            known = among(names.keys[np.diff(names.starts) <= MOST_TARGETS])
            mentions = (_mentions(chunk, known) for chunk in analysed())
            segment = _with_mentions(segment, np.arange(len(table)), mentions)
    if work and folder:
        (work / PASSAGES).replace(folder / PASSAGES)
    return LocalEngine([segment])


def _empty(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def _mentions(chunk: Chunk, known: Known) -> tuple[Any, Any]:
    arrays = _open(chunk)
    sizes = np.diff(arrays["text.of.i8"])
    return mentioned(arrays["text.held.u8"], arrays["starts.b1"], sizes, known)


# --- Changes


def changed(
    engine: LocalEngine,
    new: Sequence[Passage],
    vectors: NDArray[np.float32] | None,
    gone: Sequence[int],
) -> LocalEngine:
    """Return an engine with some rows deleted and passages added.

    Old passages are read again if names that they may mention came or went.
    """
    dead = np.union1d(engine.dead, np.asarray(gone, dtype=np.int64))
    texts = PassageTable.of(new)
    base = engine.size
    chunks = chunks_of(texts, _kind_of(engine), base)
    blocks = [] if vectors is None else [vectors]
    segment = _joined(lambda: chunks, base, texts, blocks, None)
    if engine.holds("mentions"):
        after = LocalEngine([*engine.segments, segment], dead)
        named = {
            name_key(alias): alias
            for passage in [*new, *engine.passages(gone)]
            for alias in aliases(passage.title, passage.text)
        }
        keys = np.fromiter(named, dtype=np.uint64, count=len(named))
        was, now = engine.known(keys), after.known(keys)
        _, lost = engine.find("mentions", keys[was & ~now])
        gained = [named[key] for key in keys[now & ~was].tolist()]
        rows = np.unique(np.concatenate([lost, *(_may_mention(engine, name) for name in gained)]))
        rows = np.setdiff1d(rows, dead)
        older = [passage.text for passage in engine.passages(rows.tolist())]
        mentions = [mentioned_in(older, after.known)]
        mentions += [_mentions(chunk, after.known) for chunk in chunks]
        rows = np.concatenate([rows, np.arange(base, segment.end)])
        segment = _with_mentions(segment, rows, mentions)
    segments = [*engine.segments, *([segment] if segment.weight else [])]
    return LocalEngine(segments, dead, engine.near)


def _may_mention(engine: LocalEngine, name: str) -> Rows:
    """Return the rows whose text may mention a name: those that hold its words, if it has any."""
    words = name.split()
    if len(word_keys(name)) and all(map(str.isalnum, words)) and name.isascii():
        return engine.holding(name)
    pattern = r"[\W_]*".join(map(re.escape, words))
    found = [s.base + s.texts.matching(pattern) for s in engine.segments]
    return np.concatenate(found)


def compact(engine: LocalEngine, work: Path | None) -> LocalEngine:
    """Merge light segments, and drop deleted passages if they are many.

    Args:
        engine: The engine.
        work: A folder for the arrays of large segments; None for memory.
    """
    segments = list(engine.segments)
    work = work if engine.size >= CHUNK else None
    if 4 * len(engine.dead) > engine.size:
        rows = engine.rows()
        if work:
            work.mkdir(exist_ok=True)
        table = PassageTable.of(_passages(engine, rows), work / PASSAGES if work else None)
        return make_engine(table, _kind_of(engine), _vectors(engine, rows), work)
    while len(segments) > 1 and segments[-2].weight < _RATIO * segments[-1].weight:
        folder = _empty(work / f"merged-{engine.size}-{len(segments)}") if work else None
        segments = [*segments[:-2], _merged(engine, segments[-2:], folder)]
        engine = LocalEngine(segments, engine.dead, engine.near)
    return engine


def _merged(engine: LocalEngine, segments: Sequence[Segment], folder: Path | None) -> Segment:
    """Return one segment of several consecutive ones."""
    base, parts = segments[0].base, [segment.arrays for segment in segments]
    rows = np.arange(base, segments[-1].end)
    texts = PassageTable.of(_passages(engine, rows), folder / PASSAGES if folder else None)
    segment = _joined(lambda: parts, base, texts, _vectors(engine, rows), folder)
    if engine.holds("mentions"):
        # Older rows that were read again stay with the merged ones; deleted ones go.
        whose = engine.mentions_of(segments)
        segment = _with_mentions(segment, whose, _stored_mentions(engine, whose))
    return segment


def _stored_mentions(engine: LocalEngine, rows: Rows) -> Iterator[tuple[Any, Any]]:
    for block in _blocks(rows):
        place, keys = engine.keys_of("mentions", block)
        yield np.bincount(place, minlength=len(block)), keys


def _passages(engine: LocalEngine, rows: Rows) -> Iterator[Passage]:
    return chain.from_iterable(engine.passages(block.tolist()) for block in _blocks(rows))


def _vectors(engine: LocalEngine, rows: Rows) -> Vectors:
    blocks = (block for block in _blocks(rows) if len(block) and engine.holds("vectors"))
    return map(engine.vectors, blocks)


def _blocks(rows: Rows) -> Iterator[Rows]:
    return (rows[at : at + CHUNK] for at in range(0, max(len(rows), 1), CHUNK))


# --- An index of the vectors, if they are many

EXACT: Final = 1 << 16
"""Up to this many vectors outside the index, a query is compared with each of them."""


def with_nearest(engine: LocalEngine) -> LocalEngine:
    """Index the vectors again if too many are not in the index."""
    indexed = engine.near.size if engine.near else 0
    if not engine.holds("vectors") or engine.size - indexed <= max(EXACT, indexed // 4):
        return engine
    return LocalEngine(engine.segments, engine.dead, FaissNearest.build(engine.segments))


# --- The folder

DEAD, NEAR = "deleted.i8", "nearest.faiss"


def save(engine: LocalEngine, folder: Path) -> None:
    """Write an engine into a new folder; existing files are linked, not copied."""
    folder.mkdir(parents=True)
    for number, segment in enumerate(engine.segments):
        target = folder / f"{number:04d}"
        target.mkdir()
        if segment.folder is None:
            for name, array in segment.arrays.items():
                array.tofile(target / name)
            PassageTable.of(segment.texts, target / PASSAGES)
            continue
        for path in segment.folder.iterdir():
            link(path, target / path.name)
    engine.dead.tofile(folder / DEAD)
    if engine.near:
        engine.near.save(folder / NEAR)


def load(folder: Path, manifest: Manifest) -> LocalEngine:
    """Open a saved engine; large arrays stay on disk until used.

    Args:
        folder: The folder of the index.
        manifest: Its manifest.

    Raises:
        ValueError: A file has another shape than the manifest and the passages require.
    """
    contents = folder / manifest.contents
    dimension = manifest.encoder.dimension if manifest.encoder else 0
    segments: list[Segment] = []
    for path in sorted(path for path in contents.iterdir() if path.is_dir()):
        base = segments[-1].end if segments else 0
        segment = Segment(base, PassageTable.open(path / PASSAGES), mapped(path), path)
        if segment.holds("vectors"):
            segment.arrays["vectors.f4"].reshape(len(segment.texts), dimension)
        segments.append(segment)
    near = FaissNearest.open(contents / NEAR) if (contents / NEAR).is_file() else None
    if near and near.index.d != dimension:
        raise ValueError(f"{NEAR}: vectors of {near.index.d} numbers")
    return LocalEngine(segments, np.fromfile(contents / DEAD, dtype=np.int64), near)
