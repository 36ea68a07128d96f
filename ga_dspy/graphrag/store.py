"""One folder, one corpus graph: written so that readers never see a half, opened in no time.

`contents-000003/` holds the Arrow tables of one generation, `manifest.json` names it with the
hashes of its files, `journal.sqlite` holds what was read of each passage, `summaries.sqlite` the
summaries of communities. A process killed anywhere leaves a graph that opens, old or new.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from functools import cached_property
from importlib.metadata import version as installed
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from ga_dspy.errors import GaDspyError
from ga_dspy.graphrag.communities import Community
from ga_dspy.graphrag.corpus_graph import CorpusGraph
from ga_dspy.graphrag.sources import Batch, Labels, Rules, Sources
from ga_dspy.graphrag.tables import Tables, pyarrow, read_table, write_table
from ga_dspy.retrieval import Index
from ga_dspy.retrieval.manifest import MANIFEST, StoredFile, describe_files, file_hash

FORMAT: Final = 1
JOURNAL: Final = "journal.sqlite"
SUMMARIES: Final = "summaries.sqlite"
_SETTINGS: Final = "settings.json"
_LABELS: Final = TypeAdapter(dict[str, Labels])


class FailedPassage(BaseModel):
    """A passage that could not be read, and why; the next build asks for it again."""

    model_config = ConfigDict(frozen=True)

    passage: str
    error: str


class GraphManifest(BaseModel):
    """What a graph folder holds.

    Attributes:
        version: The version of ga-dspy that wrote it.
        generation: Counts the changes; names the folder of the current contents.
        index: `Index.fingerprint` of the passages.
        extraction: Fingerprint of how passages are read: instructions, settings, LM.
        settings: Digest of rules, labels and what was brought along.
        lm: The LM that read them, by name.
        passages: Passages of the index.
        things: Nodes, of the whole graph.
        relations: Edges, of the whole graph.
        communities: Communities, of the part that everybody may see.
        labels: The labels that hide something.
        left_out: Relations that the guards kept out, by cause.
        dropped: What the LM proposed and passages did not support, by cause.
        failed: Passages that could not be read.
        unused_overrides: What of the overrides did not fit, in words.
        files: Size and hash of every file of the contents.
    """

    model_config = ConfigDict(frozen=True)

    format: Literal[1] = FORMAT
    version: str = installed("ga-dspy")
    generation: int = 0
    index: str
    extraction: str
    settings: str
    lm: str = ""
    passages: int = 0
    things: int = 0
    relations: int = 0
    communities: int = 0
    labels: tuple[str, ...] = ()
    left_out: Mapping[str, int] = {}
    dropped: Mapping[str, int] = {}
    failed: tuple[FailedPassage, ...] = ()
    unused_overrides: tuple[str, ...] = ()
    files: Mapping[str, StoredFile] = {}

    @property
    def contents(self) -> str:
        """The folder, inside the graph's, of the current generation."""
        return f"contents-{self.generation:06d}"


class NotAGraph(GaDspyError):
    """The folder holds no finished graph."""

    def __init__(self, path: Path, unfinished: bool) -> None:
        found = "a build that was not finished" if unfinished else f"no {MANIFEST}"
        todo = "run the same build again: what was read is kept" if unfinished else "build it there"
        super().__init__(
            f"{path} holds {found}; expected a folder written by `ga-dspy graph build`; {todo}"
        )
        self.path = path


class UnknownGraphFormat(GaDspyError):
    """The graph was written by another version, or the manifest is no manifest."""

    def __init__(self, path: Path, found: str) -> None:
        super().__init__(
            f"{path} does not read as graph format {FORMAT} ({found}); expected a graph of this "
            "version of ga-dspy; build it again, or install the version that wrote it"
        )
        self.path = path


class DamagedGraph(GaDspyError):
    """A file of the graph is missing or is not what was written."""

    def __init__(self, path: Path, found: str, expected: str) -> None:
        super().__init__(
            f"{path} {found}; expected {expected}; run `ga-dspy graph build` again (passages that "
            "were read are not read again), or restore the folder from a copy"
        )
        self.path = path


class GraphOutdated(GaDspyError):
    """The index holds other passages than the graph was built from."""

    def __init__(self, path: Path) -> None:
        super().__init__(
            f"the graph in {path} was built from other passages than the index holds; expected "
            "the same; run `ga-dspy graph update`, which reads only what is new"
        )
        self.path = path


class StoredGraph:
    """A graph in its folder; make one with `open_graph`.

    Attributes:
        path: The folder.
        manifest: What it holds.
        graph: The graph; `graph.visible(access)` is what a caller may see.
    """

    def __init__(self, path: Path, manifest: GraphManifest) -> None:
        self.path, self.manifest = path, manifest
        self._contents = path / manifest.contents
        labels = frozenset(manifest.labels)
        self.graph = CorpusGraph(
            Tables.open(self._contents / "whole"),
            self._sources,
            labels_in_use=labels,
            public=self._public if labels else None,
        )

    @cached_property
    def communities(self) -> tuple[Community, ...]:
        """The communities of `graph.public`, coarsest level first."""
        rows = read_table(self._contents, "communities").to_pylist()
        return tuple(
            Community(r["key"], r["level"], r["parent"], tuple(r["nodes"]), tuple(r["edges"]))
            for r in rows
        )

    def verify(self) -> None:
        """Read all files and compare them with the hashes taken when they were written.

        Raises:
            DamagedGraph: A file differs.
        """
        for name, stored in self.manifest.files.items():
            found = file_hash(self.path / name)
            if found != stored.sha256:
                raise DamagedGraph(self.path / name, f"has SHA-256 {found}", stored.sha256)

    def _public(self) -> CorpusGraph:
        return CorpusGraph(Tables.open(self._contents / "public"), self._no_records)

    def _no_records(self) -> Sources:
        return Sources(())

    def _sources(self) -> Sources:
        settings = (self._contents / _SETTINGS).read_bytes()
        stored = _Settings.model_validate_json(settings)
        texts = read_table(self._contents, "records")["json"].to_pylist()
        batches = tuple(Batch.model_validate_json(text) for text in texts)
        return Sources(batches, stored.labels, stored.rules)


class _Settings(BaseModel):
    rules: Rules
    labels: dict[str, Labels]


def open_graph(path: Path | str, index: Index | None = None) -> StoredGraph:
    """Open a stored graph: sizes of all files are checked, `verify` checks their hashes.

    Args:
        path: The folder.
        index: The index that it will be used with, to see that it holds the same passages.

    Raises:
        NotAGraph, UnknownGraphFormat, DamagedGraph, GraphOutdated: See their messages.
    """
    folder = Path(path)
    while True:
        manifest = read_manifest(folder)
        if index is not None and index.fingerprint != manifest.index:
            raise GraphOutdated(folder)
        try:
            _check_sizes(folder, manifest)
            return StoredGraph(folder, manifest)
        except (DamagedGraph, FileNotFoundError):
            # A writer may have put new contents in place since the manifest was read.
            if read_manifest(folder) == manifest:
                raise


def read_manifest(folder: Path) -> GraphManifest:
    """Read the manifest of a graph folder.

    Raises:
        NotAGraph: There is none.
        UnknownGraphFormat: It was written by another version, or is no manifest.
    """
    path = folder / MANIFEST
    if not path.is_file():
        raise NotAGraph(folder, (folder / JOURNAL).is_file())
    try:
        return GraphManifest.model_validate_json(path.read_bytes())
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "file"
        raise UnknownGraphFormat(path, f"{place}: {first['msg']}") from error


def store(
    folder: Path,
    graph: CorpusGraph,
    communities: Sequence[Community],
    manifest: GraphManifest,
) -> GraphManifest:
    """Write a graph as the manifest's generation and make it the current one."""
    target = folder / manifest.contents
    if target.exists():
        shutil.rmtree(target)
    _write(target / "whole", graph.tables)
    if graph.labels_in_use:
        _write(target / "public", graph.public.tables)
    sources = graph.sources
    settings = _Settings(rules=sources.rules, labels=dict(sources.labels))
    (target / _SETTINGS).write_text(settings.model_dump_json(), encoding="utf-8")
    write_table(target, "records", _records(sources.batches))
    write_table(target, "communities", _community_table(communities))
    manifest = manifest.model_copy(update={"files": describe_files(folder, target)})
    _replace(folder / MANIFEST, manifest.model_dump_json(indent=2))
    for old in folder.glob("contents-*"):
        if old.name != manifest.contents:
            shutil.rmtree(old)
    return manifest


def _write(folder: Path, tables: Tables) -> None:
    folder.mkdir(parents=True)
    tables.save(folder)


def _records(batches: Sequence[Batch]) -> Any:
    texts = [batch.model_dump_json(exclude_defaults=True) for batch in batches]
    return pyarrow().table({"json": pyarrow().array(texts, pyarrow().large_string())})


def _community_table(communities: Sequence[Community]) -> Any:
    pa = pyarrow()
    ints = pa.list_(pa.int32())
    return pa.table(
        {
            "key": pa.array([c.key for c in communities], pa.string()),
            "level": pa.array([c.level for c in communities], pa.int32()),
            "parent": pa.array([c.parent for c in communities], pa.int32()),
            "nodes": pa.array([c.nodes for c in communities], ints),
            "edges": pa.array([c.edges for c in communities], ints),
        }
    )


def _replace(path: Path, text: str) -> None:
    """Put a file in place in one step: readers see the old one or the new one."""
    draft = path.with_name(f"{path.name}.new")
    with draft.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)


def _check_sizes(folder: Path, manifest: GraphManifest) -> None:
    for name, stored in manifest.files.items():
        path = folder / name
        if not path.is_file():
            raise DamagedGraph(path, "is missing", f"{stored.bytes} bytes")
        if (found := path.stat().st_size) != stored.bytes:
            raise DamagedGraph(path, f"has {found} bytes", f"{stored.bytes} bytes")
