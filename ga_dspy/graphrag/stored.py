"""A corpus graph in its folder.

`contents-000003/` has the Arrow tables of one generation, and `manifest.json` names it and the
hashes of its files. `journal.sqlite` has the extraction of each passage, and `summaries.sqlite` the
summaries of communities. A killed process leaves a graph that opens, either the old or the new one.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar, Final, Literal

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from ga_dspy.errors import GaDspyError, UnknownFormat
from ga_dspy.graph import GraphUpdate
from ga_dspy.graph.records import grouped
from ga_dspy.graphrag.communities import Community, Summaries, find_communities
from ga_dspy.graphrag.corpus_graph import CorpusGraph
from ga_dspy.graphrag.extraction import digest_of
from ga_dspy.graphrag.records import NO_LABELS, Sources, with_ends
from ga_dspy.graphrag.resolution import admit, is_local
from ga_dspy.graphrag.tables import Tables, arrow_table, read_table, write_table
from ga_dspy.retrieval import Index
from ga_dspy.storage import MANIFEST, Generation, link, not_built, open_current

JOURNAL: Final = "journal.sqlite"
SUMMARIES: Final = "summaries.sqlite"
VECTORS: Final = "vectors"
"""The folder of data that searches derive from a graph and can recompute."""
_SETTINGS: Final = "settings.json"


class FailedPassage(BaseModel):
    """A passage that could not be read, with the error; the next build retries it."""

    model_config = ConfigDict(frozen=True)

    passage: str
    error: str


class GraphManifest(Generation):
    """The manifest of a graph folder.

    Attributes:
        version: The version of ga-dspy that wrote the graph.
        index: `Index.fingerprint` of the passages.
        extraction: `Extractor.fingerprint`: a hash of instructions, settings and LM.
        settings: Digest of the rules and labels.
        lm: The name of the LM that read the passages.
        passages: Number of passages in the index.
        entities: Number of nodes in the whole graph.
        relations: Number of edges in the whole graph.
        labels: The labels that restrict some part of the graph.
        left_out: Number of relations dropped by the rules, by cause.
        dropped: Number of unsupported proposals, by cause.
        extractor: The extractor's settings that differ from the defaults; an update uses them.
        calls: Number of LM calls that read the passages.
        tokens: Number of prompt and completion tokens of these calls.
        stated: Number of relations that passages state, before merging.
        proposed: The same with the relations that no passage supports, and unreadable lines.
        failed: Passages that could not be read.
        unread: Number of passages that no LM has been asked to read yet.
        unused_overrides: Descriptions of the overrides that did not match.
    """

    remedy: ClassVar[str] = (
        "run `ga-dspy graph build --index … --out …` with this folder: finished passages are kept"
    )
    format: Literal[2] = 2
    version: str = version("ga-dspy")
    index: str
    extraction: str
    settings: str
    lm: str = ""
    passages: int = 0
    entities: int = 0
    relations: int = 0
    labels: tuple[str, ...] = ()
    left_out: Mapping[str, int] = {}
    dropped: Mapping[str, int] = {}
    extractor: Mapping[str, Any] = {}
    calls: int = 0
    tokens: int = 0
    stated: int = 0
    proposed: int = 0
    failed: tuple[FailedPassage, ...] = ()
    unread: int = 0
    unused_overrides: tuple[str, ...] = ()


class GraphOutdated(GaDspyError):
    """The index has other passages than the graph was built from; update the graph."""


@dataclass(frozen=True)
class Record:
    """The stored records of a passage.

    Attributes:
        passage: The id of the passage.
        digest: The hexadecimal SHA-256 of the passage, as in `Index.digests`.
        step: The journal key of the step that read the passage.
        json: The entities and relations as JSON.
    """

    passage: str
    digest: str
    step: str
    json: str

    @classmethod
    def of(cls, passage: str, update: GraphUpdate, digest: str, step: str) -> Record:
        """Make the record of a passage."""
        return cls(passage, digest, step, update.model_dump_json(exclude_defaults=True))

    @cached_property
    def update(self) -> GraphUpdate:
        """Return the entities and relations, with an entity for every end of a relation.

        Raises:
            UnknownFormat: Another version wrote them.
        """
        try:
            return with_ends(GraphUpdate.model_validate_json(self.json))
        except ValidationError as error:
            raise UnknownFormat(
                f"the records of passage {self.passage!r}: {error.errors()[0]['msg']}",
                expected="entities and relations in the format of this version",
                remedy="build the graph again into another folder",
            ) from error


class StoredGraph:
    """A graph in its folder; `open_graph` opens one.

    Args:
        path: The folder.
        manifest: The manifest of the folder.
        records: The stored records of each passage, by passage id.
        settings: The labels and rules, without records.
        whole: The tables of the graph.
        public: Loads the tables of its public part.

    Attributes:
        path, manifest, records, settings: As given.
        graph: The graph; `graph.visible(access)` is what a caller may see.
    """

    def __init__(
        self,
        path: Path,
        manifest: GraphManifest,
        records: Mapping[str, Record],
        settings: Sources,
        whole: Tables,
        public: Callable[[], Tables],
    ) -> None:
        self.path, self.manifest, self.records, self.settings = path, manifest, records, settings
        self.graph = CorpusGraph(whole, partial(_sources, records, settings), public=public)

    @classmethod
    def open(cls, path: Path, manifest: GraphManifest) -> StoredGraph:
        """Open the generation that a manifest names."""
        folder = path / manifest.contents
        files = (path.stem for path in sorted(folder.glob("records*.arrow")))
        rows = chain.from_iterable(read_table(folder, f, "records").to_pylist() for f in files)
        records = {row["passage"]: Record(**row) for row in rows}
        settings = TypeAdapter(Sources).validate_json((folder / _SETTINGS).read_bytes())
        whole, public = Tables.open(folder / "whole"), partial(Tables.open, folder / "public")
        return cls(path, manifest, records, settings, whole, public)

    @classmethod
    def of(
        cls, path: Path, manifest: GraphManifest, records: Mapping[str, Record], settings: Sources
    ) -> StoredGraph:
        """Make the graph of all records; `save` writes it into the folder."""
        graph = CorpusGraph.of_sources(_sources(records, settings))
        public = graph.public
        stored = cls(path, manifest, records, settings, graph.tables, lambda: public.tables)
        stored._update_manifest(graph.left_out, graph.unused_overrides)
        return stored

    def _update_manifest(self, left_out: Counter[str], unused: tuple[str, ...]) -> None:
        """Update the manifest's sizes, labels and dropped relations to the graph."""
        fields = {
            "entities": len(self.graph),
            "relations": len(self.graph.heads),
            "labels": tuple(sorted(self.graph.labels_in_use)),
            "left_out": +left_out,
            "unused_overrides": unused,
        }
        self.manifest = self.manifest.model_copy(update=fields)

    def save(self, before: StoredGraph | None = None) -> None:
        """Write the graph as the generation in its manifest, and make it the current one.

        Args:
            before: The current generation; files with the same records are linked, not written.
        """
        settings = {"rules": self.settings.rules.model_dump(), "labels": self.settings.labels}

        def write(target: Path) -> None:
            self.graph.tables.save(target / "whole")
            if self.graph.labels_in_use:
                self.graph.public.tables.save(target / "public")
            text = json.dumps(settings, default=sorted, ensure_ascii=False)
            (target / _SETTINGS).write_text(text, encoding="utf-8")
            current = before._records_by_file if before else {}
            for name, records in self._records_by_file.items():
                file = self.path / (before or self).manifest.contents / f"{name}.arrow"
                if current.get(name) == records and file.is_file():
                    link(file, target / file.name)
                else:
                    write_table(target, name, arrow_table("records", map(vars, records)))

        self.manifest = self.manifest.put(self.path, write)

    @property
    def _records_by_file(self) -> Mapping[str, Sequence[Record]]:
        """Return the records of each of up to 16 files; an update rewrites only some of these."""
        return grouped((f"records-{one.digest[:1]}", one) for one in self.records.values())

    @cached_property
    def communities(self) -> tuple[Community, ...]:
        """Return the communities of `graph.public`, coarsest level first.

        They are found on first access and then stored; cached summaries of other communities are
        deleted.
        """
        folder = self.path / self.manifest.contents
        if (folder / "communities.arrow").is_file():
            rows = read_table(folder, "communities").to_pylist()
            for row in rows:
                row.update(nodes=tuple(row["nodes"]), edges=tuple(row["edges"]))
            return tuple(Community(**row) for row in rows)
        found = find_communities(self.graph)
        # The folder may be gone, if another process has changed the graph.
        with suppress(OSError), TemporaryDirectory(dir=folder) as part:
            rows = (community._asdict() for community in found)
            write_table(Path(part), "communities", arrow_table("communities", rows))
            (Path(part) / "communities.arrow").replace(folder / "communities.arrow")
            Summaries(self.path / SUMMARIES).keep_only(found)
        return found

    def verify(self) -> None:
        """Verify the hashes of all files.

        Raises:
            DamagedFile: A file was changed.
        """
        self.manifest.check(self.path, hashes=True)

    def changed(
        self, records: Mapping[str, Record], settings: Sources, touched: Set[str]
    ) -> StoredGraph | None:
        """Return the graph after a change; None if all records must be resolved again.

        They must if the rules differ in more than weights, if a record has evidence in several
        passages or none, or if the graph becomes or ceases to be restricted by labels. The changed
        graph takes over the mentions of this one.

        Args:
            records: The records of all passages.
            settings: The labels and rules.
            touched: The passages whose records or labels differ.
        """
        load = partial(_sources, records, settings)
        was, now = _sources(self.records, self.settings, touched), load(touched)
        weights = {"relation_weights": settings.rules.relation_weights}
        views = (self.graph, self.graph.public)
        has_mentions = all(len(view.tables.mentions) or not len(view) for view in views)
        has_same_rules = settings.rules == self.settings.rules.model_copy(update=weights)
        if not (has_same_rules and has_mentions and is_local(now)):
            return None

        def load_public(ids: Set[str] | None) -> Sources:
            return load(ids).seen_with(NO_LABELS)

        labels = {id: now.withheld.get(id, NO_LABELS) for id in touched}
        no_labels = dict.fromkeys(touched, NO_LABELS)
        whole, change, mentions = self.graph.changed(load, touched, labels)
        public, public_mentions = whole, mentions
        if self.graph.labels_in_use:
            public, _, public_mentions = self.graph.public.changed(load_public, touched, no_labels)
        if bool(whole.labels) != bool(self.graph.labels_in_use):
            return None
        left_out = Counter(self.manifest.left_out)
        left_out.subtract(admit(was)[1])
        left_out.update(admit(now)[1])
        left_out.update(change.left_out)
        graph = StoredGraph(self.path, self.manifest, records, settings, whole, lambda: public)
        graph.graph.mentions, graph.graph.public.mentions = mentions, public_mentions
        graph._update_manifest(left_out, change.unused)
        return graph


def _sources(
    records: Mapping[str, Record], settings: Sources, ids: Set[str] | None = None
) -> Sources:
    known = sorted(records if ids is None else records.keys() & ids)
    return replace(settings, records={id: records[id].update for id in known})


def digest_of_settings(settings: Sources) -> str:
    """Return a digest of the rules and labels that does not depend on the order of sets."""
    return digest_of([settings.rules.model_dump(), settings.labels], default=sorted)


def open_graph(path: Path | str, index: Index | None = None) -> StoredGraph:
    """Open a stored graph; the sizes of all its files are checked, but not their hashes.

    Args:
        path: The folder.
        index: The index to use the graph with; it must have the same passages.

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
                f"the graph in {folder} was built from other passages than the index has",
                expected="a graph of the same passages",
                remedy="run `ga-dspy graph update`, which reads only new and changed passages",
            )
        return manifest

    return open_current(folder, read, partial(StoredGraph.open, folder))


def read_manifest(folder: Path) -> GraphManifest:
    """Read the manifest of a graph folder.

    Raises:
        InputError: There is none.
        UnknownFormat: It was written by another version, or is not a manifest.
    """
    if not (folder / MANIFEST).is_file():
        raise not_built(folder, JOURNAL, "`ga-dspy graph build`")
    return GraphManifest.read(folder, "a graph")


def manifest_to_change(folder: Path) -> GraphManifest | None:
    """Read the manifest of a graph; None if there is none, or if it has an earlier format.

    A build replaces a graph of an earlier format, using its journal.

    Raises:
        UnknownFormat: It was written by a later version, or is not a manifest.
    """
    try:
        return GraphManifest.read(folder, "a graph")
    except FileNotFoundError:
        return None
    except UnknownFormat:
        if b'"format": 1,' not in (folder / MANIFEST).read_bytes():
            raise
        return None
