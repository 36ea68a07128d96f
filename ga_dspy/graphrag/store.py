"""The folder of a corpus graph: atomic writes and fast opening.

`contents-000003/` has the Arrow tables of one generation, `manifest.json` names it with the hashes
of its files, `journal.sqlite` has the records of each passage, `summaries.sqlite` the summaries of
communities. A killed process leaves a graph that opens, either the old or the new one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ga_dspy.errors import GaDspyError, InputError, UnknownFormat
from ga_dspy.graphrag.communities import Community
from ga_dspy.graphrag.corpus_graph import CorpusGraph, Tables, arrow_table, read_table, write_table
from ga_dspy.graphrag.records import Batch, Labels, Rules, Sources
from ga_dspy.retrieval import Index
from ga_dspy.storage import MANIFEST, Generation, open_current

JOURNAL: Final = "journal.sqlite"
SUMMARIES: Final = "summaries.sqlite"
CALLS: Final = "calls.sqlite"
VECTORS: Final = "vectors"
"""The folder for data that searches derive from a graph and can recompute."""
_SETTINGS: Final = "settings.json"


class FailedPassage(BaseModel):
    """A passage that could not be read, and why; the next build retries it."""

    model_config = ConfigDict(frozen=True)

    passage: str
    error: str


class GraphManifest(Generation):
    """The contents of a graph folder.

    Attributes:
        version: The version of ga-dspy that wrote it.
        index: `Index.fingerprint` of the passages.
        extraction: `Extractor.fingerprint`: instructions, settings, LM.
        settings: Digest of rules and labels.
        lm: The LM that read them, by name.
        passages: Passages of the index.
        entities: Nodes, of the whole graph.
        relations: Edges, of the whole graph.
        communities: Communities, of the public part.
        labels: The labels that hide something.
        left_out: Number of relations dropped by the rules, by cause.
        dropped: Number of unsupported proposals, by cause.
        failed: Passages that could not be read.
        unused_overrides: Descriptions of the overrides that did not match.
    """

    model_config = ConfigDict(populate_by_name=True)

    format: Literal[1] = 1
    version: str = version("ga-dspy")
    index: str
    extraction: str
    settings: str
    lm: str = ""
    passages: int = 0
    entities: int = Field(default=0, alias="things")
    relations: int = 0
    communities: int = 0
    labels: tuple[str, ...] = ()
    left_out: Mapping[str, int] = {}
    dropped: Mapping[str, int] = {}
    failed: tuple[FailedPassage, ...] = ()
    unused_overrides: tuple[str, ...] = ()


class _Settings(BaseModel):
    rules: Rules
    labels: dict[str, Labels]


class GraphOutdated(GaDspyError):
    """The graph was built from other passages than the index has; update the graph."""


class StoredGraph:
    """A graph in its folder; make one with `open_graph`.

    Attributes:
        path: The folder.
        manifest: Its contents.
        graph: The graph; `graph.visible(access)` is the view of a caller.
    """

    def __init__(self, path: Path, manifest: GraphManifest) -> None:
        self.path, self.manifest = path, manifest
        self._contents = path / manifest.contents
        self.graph = CorpusGraph(
            Tables.open(self._contents / "whole"),
            self._sources,
            labels_in_use=frozenset(manifest.labels),
            public=self._public if manifest.labels else None,
        )

    @cached_property
    def communities(self) -> tuple[Community, ...]:
        """Return the communities of `graph.public`, coarsest level first."""
        rows = read_table(self._contents, "communities").to_pylist()
        return tuple(
            Community(**row | {"nodes": tuple(row["nodes"]), "edges": tuple(row["edges"])})
            for row in rows
        )

    def verify(self) -> None:
        """Verify the hashes of all files.

        Raises:
            DamagedFile: A file differs.
        """
        self.manifest.check(self.path, hashes=True)

    def _public(self) -> CorpusGraph:
        return CorpusGraph(Tables.open(self._contents / "public"), lambda: Sources(()))

    def _sources(self) -> Sources:
        settings = (self._contents / _SETTINGS).read_bytes()
        stored = _Settings.model_validate_json(settings)
        texts = read_table(self._contents, "records")["json"].to_pylist()
        try:
            batches = tuple(map(Batch.model_validate_json, texts))
        except ValidationError as error:
            raise UnknownFormat(
                f"records of {self.path}: {error.errors()[0]['msg']}",
                expected="those of passages, as this version writes them",
                remedy="build the graph again into another folder",
            ) from error
        return Sources(batches, stored.labels, stored.rules)


def open_graph(path: Path | str, index: Index | None = None) -> StoredGraph:
    """Open a stored graph. The sizes of all files are checked; `verify` checks hashes.

    Args:
        path: The folder.
        index: The index to use it with, to check that it has the same passages.

    Raises:
        InputError: The folder has no finished graph.
        UnknownFormat: Another version wrote it.
        DamagedFile: A file is missing or has another size.
        GraphOutdated: The index has other passages.
    """
    folder = Path(path)

    def read(folder: Path) -> GraphManifest:
        manifest = read_manifest(folder)
        if index is not None and index.fingerprint != manifest.index:
            raise GraphOutdated(
                f"the graph in {folder} was built from other passages than the index holds",
                expected="the same",
                remedy="run `ga-dspy graph update`, which reads only what is new",
            )
        return manifest

    return open_current(folder, read, partial(StoredGraph, folder))


def read_manifest(folder: Path) -> GraphManifest:
    """Read the manifest of a graph folder.

    Raises:
        InputError: There is none.
        UnknownFormat: It was written by another version, or is not a manifest.
    """
    if not (folder / MANIFEST).is_file():
        found, remedy = f"no {MANIFEST}", "build it there"
        if (folder / JOURNAL).is_file():
            found = "a build that was not finished"
            remedy = "run the same build again: what was read is kept"
        expected = "a folder written by `ga-dspy graph build`"
        raise InputError(f"{folder} holds {found}", expected=expected, remedy=remedy)
    return GraphManifest.read(folder, "a graph")


def store(
    folder: Path,
    graph: CorpusGraph,
    communities: Sequence[Community],
    manifest: GraphManifest,
) -> None:
    """Write a graph as the manifest's generation and make it current."""
    sources = graph.sources

    def save(target: Path) -> None:
        graph.tables.save(target / "whole")
        if graph.labels_in_use:
            graph.public.tables.save(target / "public")
        settings = _Settings(rules=sources.rules, labels=dict(sources.labels))
        (target / _SETTINGS).write_text(_as_json(settings), encoding="utf-8")
        texts = (_as_json(batch, exclude_defaults=True) for batch in sources.batches)
        write_table(target, "records", arrow_table("records", ({"json": text} for text in texts)))
        rows = (community._asdict() for community in communities)
        write_table(target, "communities", arrow_table("communities", rows))

    manifest.put(folder, save)


def _as_json(value: BaseModel, **settings: Any) -> str:
    """Return a record as deterministic JSON, with sorted sets."""
    return json.dumps(value.model_dump(**settings), default=sorted, ensure_ascii=False)
