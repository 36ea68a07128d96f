"""A corpus graph in its folder: build it, update it, open it.

`contents-000003/` has the Arrow tables of one generation, `manifest.json` names it with the hashes
of its files, `journal.sqlite` has the records of each passage, `summaries.sqlite` the summaries of
communities. A killed process leaves a graph that opens, either the old or the new one.

A build reads the passages that have not been read, then makes the graph from all records. An update
calls the LM for new and changed passages only, resolves what they concern, and gives the same graph
as a build from scratch.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from functools import cache, cached_property, partial
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, Literal, NamedTuple

import dspy
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ga_dspy.cluster import map_parallel
from ga_dspy.errors import GaDspyError, InputError, RunAborted, UnknownFormat, require
from ga_dspy.graph import GraphUpdate, Schema
from ga_dspy.graphrag.changes import Change, Records, change_tables, resolve_change
from ga_dspy.graphrag.communities import Community, Summaries, find_communities
from ga_dspy.graphrag.corpus_graph import CorpusGraph, Tables, arrow_table, read_table, write_table
from ga_dspy.graphrag.extraction import (
    RECORDED,
    Extraction,
    Extractor,
    FinishedSteps,
    chosen_lm,
    digest_of,
    finished_key,
    no_lm,
    outcome_of,
    reading_key,
)
from ga_dspy.graphrag.mentions import Mention, Mentions
from ga_dspy.graphrag.records import NO_LABELS, Batch, Labels, Rules, Sources
from ga_dspy.graphrag.resolution import admit, in_words, is_local
from ga_dspy.lm.adapters import PlainAdapter
from ga_dspy.lm.budget import BudgetExceeded, Caps
from ga_dspy.lm.store import CallStore, Gate
from ga_dspy.lm.wrapper import wrap_for_work
from ga_dspy.passage import Passage
from ga_dspy.programs.meter import prompt_tokens
from ga_dspy.programs.settings import check_whole
from ga_dspy.retrieval import Changes, Index
from ga_dspy.retrieval.encoders import silent
from ga_dspy.retrieval.store import not_empty, writing
from ga_dspy.signatures.prompt import render_passage
from ga_dspy.storage import MANIFEST, Generation, open_current, write_whole
from ga_dspy.text import estimate_tokens

# --- The folder: its manifest and its files.

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
        communities: Communities, of the public part; None if the graph was changed since they
            were found.
        labels: The labels that hide something.
        left_out: Number of relations dropped by the rules, by cause.
        dropped: Number of unsupported proposals, by cause.
        extractor: The settings of the extractor that are not the defaults; an update uses them.
        calls: LM calls that read the passages.
        tokens: Prompt and completion tokens of these.
        stated: Relations that entered, before the graph merges them.
        proposed: The same, with those that no passage supports and lines that could not be read.
        failed: Passages that could not be read.
        unread: Number of passages that no LM has been asked to read yet.
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
    communities: int | None = None
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

    def __init__(
        self, path: Path, manifest: GraphManifest, contents: Contents | None = None
    ) -> None:
        self.path, self.manifest = path, manifest
        self._folder = path / manifest.contents
        self._contents = contents or Contents.open(self._folder)
        labels = frozenset(manifest.labels)
        self.graph = CorpusGraph(
            self._contents.whole,
            self._sources,
            labels_in_use=labels,
            public=self._public if labels else None,
        )

        self.former: Former | None = None

    @property
    def records(self) -> StoredRecords:
        """Return what was read of each passage."""
        return self._contents.records

    @property
    def settings(self) -> Sources:
        """Return the labels and rules, without records."""
        return self._contents.settings

    @cached_property
    def communities(self) -> tuple[Community, ...]:
        """Return the communities of `graph.public`, coarsest level first.

        After an update they are found at the first call, and then stored. Summaries of communities
        that are no more are deleted with that.
        """
        if not (self._folder / "communities.arrow").is_file():
            found = find_communities(self.graph, self.former.unchanged() if self.former else {})
            with suppress(OSError), TemporaryDirectory(dir=self._folder) as folder:
                _write_communities(Path(folder), found)
                (Path(folder) / "communities.arrow").replace(self._folder / "communities.arrow")
                # Not if the folder is gone: then another process has changed the graph.
                Summaries(self.path / SUMMARIES).keep_only(found)
            return found
        rows = self._community_table().to_pylist()
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

    @cached_property
    def mentions(self) -> tuple[Mentions, ...]:
        """Return the mentions of the graph, and of its public part if there are labels."""
        return tuple(map(self._load_mentions, self._views))

    def _community_table(self) -> Any:
        return read_table(self._folder, "communities")

    def _former_with(self, changed: frozenset[str]) -> Former | None:
        """Return the last known communities, with these nodes changed too."""
        known = self.former
        if (self._folder / "communities.arrow").is_file():
            names = self.graph.public.tables.nodes["name"]
            known = Former(self._community_table(), names, frozenset())
        return known and known._replace(changed=known.changed | changed)

    @property
    def can_change(self) -> bool:
        """Return whether the tables say which names are mentioned where, as `changed` needs."""
        known = all(len(one.tables.mentions) or not len(one) for one in self._views)
        return known and self.manifest.settings == _digest_of(self.settings)

    @property
    def _views(self) -> list[CorpusGraph]:
        return [self.graph, *([self.graph.public] if self.manifest.labels else [])]

    def _load_mentions(self, graph: CorpusGraph) -> Mentions:
        names, rows = graph.tables.nodes["name"].to_pylist(), graph.tables.mentions.to_pylist()
        found = (
            Mention(**row | {"node": names[row["node"]], "passage": graph.passages[row["passage"]],
                             "linked": tuple(row["linked"]), "ids": tuple(row["ids"])})
            for row in rows
        )  # fmt: skip
        return Mentions(found, self.settings.rules.overrides)

    def changed(
        self, records: StoredRecords, settings: Sources, touched: Collection[str]
    ) -> Changed | None:
        """Change the graph to other records; None if it must be resolved again as a whole.

        That is the case if a record states several passages or none, and if the first label hides
        something or the last one no more does. The mentions go over to the changed graph.

        Args:
            records: The records of all passages.
            settings: The labels and rules.
            touched: The passages whose records or labels differ.
        """
        if not is_local(filter(None, map(records.batch, touched))):
            return None
        mentions = self.mentions
        del self.mentions  # an interrupted change leaves neither these nor those
        batches = tuple(filter(None, map(records.batch, touched)))
        needed = [replace(settings, batches=batches).withheld, {}]
        before, after = (self.records, self.settings), (records, settings)
        tables, changes = list[Tables](), list[Change]()
        for graph, known, labels in zip(self._views, mentions, needed, strict=False):
            was, now = (_admitted(*each, is_public=bool(tables)) for each in (before, after))
            change = resolve_change(known, was, now, touched, settings.rules)
            passages = {
                id: labels.get(id) or (NO_LABELS if now(id).entities else None) for id in touched
            }
            made, moved = change_tables(graph.tables, change, passages, settings.rules)
            tables.append(made)
            changes.append(change)
        in_use = tables[0].labels
        if bool(in_use) != bool(self.manifest.labels):
            return None
        left_out = Counter({**self.manifest.left_out})
        for (each, _), add in ((before, left_out.subtract), (after, left_out.update)):
            stated = filter(None, map(each.batch, touched))
            add(admit((batch.update for batch in stated), settings.rules)[1])
        left_out["too little evidence"] += changes[0].too_few
        concerned = {f": {in_words(pair)}: a name" for pair in changes[0].overrides}
        unused = {
            text for text in self.manifest.unused_overrides if not any(c in text for c in concerned)
        }.union(filter(None, changes[0].overrides.values()))
        return Changed(
            Contents(records, settings, tables[0], lambda: tables[-1]),
            mentions,
            self._former_with(moved),
            {
                "entities": tables[0].nodes.num_rows,
                "relations": tables[0].edges.num_rows,
                "labels": tuple(sorted(in_use)),
                "left_out": +left_out,
                "unused_overrides": tuple(sorted(unused)),
            },
        )

    def _public(self) -> CorpusGraph:
        return CorpusGraph(self._contents.public(), lambda: Sources(()))

    def _sources(self) -> Sources:
        batches = map(self.records.batch, sorted(self.records.row))
        return replace(self.settings, batches=tuple(filter(None, batches)))


class Contents(NamedTuple):
    """What a graph is opened from; `settings` has no records."""

    records: StoredRecords
    settings: Sources
    whole: Tables
    public: Callable[[], Tables]

    @classmethod
    def open(cls, folder: Path) -> Contents:
        """Open the contents of a graph."""
        stored = _Settings.model_validate_json((folder / _SETTINGS).read_bytes())
        return cls(
            StoredRecords(read_table(folder, "records"), folder),
            Sources((), stored.labels, stored.rules),
            Tables.open(folder / "whole"),
            lambda: Tables.open(folder / "public"),
        )


class StoredRecords:
    """The records of each passage, parsed when they are used.

    Args:
        table: The table of records.
        path: The folder of the graph, for messages.
    """

    def __init__(self, table: Any, path: Path) -> None:
        self.table, self._path = table, path
        self.row = {id: i for i, id in enumerate(table["passage"].to_pylist())}
        self._parsed: dict[str, Batch] = {}

    @classmethod
    def of(cls, read: Mapping[str, Record], path: Path) -> StoredRecords:
        """Make the records of passages."""
        rows = (
            {"passage": id, "digest": one.digest, "step": one.step,
             "json": _as_json(one.batch, exclude_defaults=True)}
            for id, one in sorted(read.items())
        )  # fmt: skip
        made = cls(arrow_table("records", rows), path)
        made._parsed = {id: one.batch for id, one in read.items()}
        return made

    def batch(self, id: str) -> Batch | None:
        """Return the records of a passage; None if it was not read.

        Raises:
            UnknownFormat: Another version wrote them.
        """
        if id in self.row and id not in self._parsed:
            try:
                text = self.table["json"][self.row[id]].as_py()
                self._parsed[id] = Batch.model_validate_json(text)
            except ValidationError as error:
                raise UnknownFormat(
                    f"records of {self._path}: {error.errors()[0]['msg']}",
                    expected="those of passages, as this version writes them",
                    remedy="build the graph again into another folder",
                ) from error
        return self._parsed.get(id)

    @cached_property
    def digests(self) -> dict[str, str]:
        """Return the digest of each passage when it was read."""
        return dict(zip(self.row, self.table["digest"].to_pylist(), strict=True))

    def step(self, id: str) -> str:
        """Return the key of the step that read a passage."""
        return str(self.table["step"][self.row[id]])

    def changed(self, gone: Collection[str], read: Mapping[str, Record]) -> StoredRecords:
        """Return the records without some passages, and with others."""
        kept = self.table.filter([id not in gone for id in self.row]) if gone else self.table
        new = StoredRecords.of(read, self._path)
        both = require("pyarrow", "graph").concat_tables([kept, new.table])
        made = StoredRecords(both, self._path)
        made._parsed = {i: b for i, b in self._parsed.items() if i not in gone} | new._parsed
        return made


class Record(NamedTuple):
    """What was read of a passage.

    Attributes:
        digest: The SHA-256 of the passage, as in `Index.digests`, hexadecimal.
        step: The key of the step that read it.
        batch: The records.
    """

    digest: str
    step: str
    batch: Batch


class Former(NamedTuple):
    """The communities of an earlier state of a graph, and the nodes that changed since then.

    Attributes:
        communities: Their table.
        names: The names of the nodes of its public part.
        changed: The names of nodes with other facts, as they were and as they are.
    """

    communities: Any
    names: Any
    changed: frozenset[str]

    def unchanged(self) -> dict[frozenset[str], str]:
        """Return the keys of communities without changed nodes, by the names of their members."""
        names = self.names.to_pylist()
        rows = self.communities.select(["key", "nodes"]).to_pylist()
        members = {frozenset([names[i] for i in row["nodes"]]): row["key"] for row in rows}
        return {each: key for each, key in members.items() if self.changed.isdisjoint(each)}


class Changed(NamedTuple):
    """A changed graph: its contents, its mentions, and what its manifest says of it."""

    contents: Contents
    mentions: tuple[Mentions, ...]
    former: Former | None
    sizes: dict[str, Any]


def _admitted(records: StoredRecords, settings: Sources, *, is_public: bool) -> Records:
    """Return a function from a passage to what it states in the graph, or in the public part."""

    @cache
    def admitted(id: str) -> GraphUpdate:
        batch = records.batch(id)
        sources = replace(settings, batches=(batch,) if batch else ())
        if is_public:
            sources = sources.seen_with(NO_LABELS)
        return admit((each.update for each in sources.batches), settings.rules)[0]

    return admitted


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
                f"the graph in {folder} was built from other passages than the index has",
                expected="a graph of the same passages",
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


def store(stored: StoredGraph, communities: Sequence[Community] | None = None) -> GraphManifest:
    """Write a graph as the generation of its manifest and make it current.

    Args:
        stored: The graph.
        communities: Its communities; by default they are found when they are asked for.

    Returns:
        The manifest, with the files.
    """
    graph, settings = stored.graph, stored.settings

    def save(target: Path) -> None:
        graph.tables.save(target / "whole")
        if graph.labels_in_use:
            graph.public.tables.save(target / "public")
        kept = _Settings(rules=settings.rules, labels=dict(settings.labels))
        (target / _SETTINGS).write_text(_as_json(kept), encoding="utf-8")
        write_table(target, "records", stored.records.table)
        if communities is not None:
            _write_communities(target, communities)

    return stored.manifest.put(stored.path, save)


def _write_communities(folder: Path, communities: Iterable[Community]) -> None:
    rows = (community._asdict() for community in communities)
    write_table(folder, "communities", arrow_table("communities", rows))


def _as_json(value: BaseModel, **settings: Any) -> str:
    """Return a record as deterministic JSON, with sorted sets."""
    return json.dumps(value.model_dump(**settings), default=sorted, ensure_ascii=False)


# --- Build and update.

Progress = Callable[[str, int, int], None]
"""Called with the name of the stage, the units done and the total."""

ABORT_AFTER: Final = 20
"""After this many consecutive failures the LM counts as down."""


def build_graph(
    index: Index,
    out: Path | str,
    *,
    lm: Any = None,
    extractor: Extractor | None = None,
    rules: Rules | None = None,
    labels: Mapping[str, Iterable[str]] | None = None,
    caps: Caps | None = None,
    threads: int = 8,
    progress: Progress | None = None,
) -> StoredGraph:
    """Read all passages of an index and store their graph.

    A build that was stopped, by Ctrl-C or `kill -9`, resumes where it stopped; no passage is read
    twice. Rebuilding with other rules or labels makes no LM calls.

    Args:
        index: The passages.
        out: The folder; created if missing.
        lm: The LM that reads them; by default the extractor's or the configured one.
        extractor: The module that reads a passage.
        rules: What enters, what is flagged, what is private.
        labels: The labels of restricted passages, by passage id.
        caps: The most LM calls and tokens of this run; a build that reaches one stops, and resumes
            when it is run again.
        threads: Number of passages read in parallel.
        progress: Called with the name of the stage, the units done and the total.

    Returns:
        The stored graph; `manifest.failed` lists passages that could not be read.

    Raises:
        InputError: There is no LM, the folder's passages were read by another one, or the folder
            has other contents.
        RunAborted: Too many consecutive passages could not be read, or a cap was reached; finished
            ones are kept.
        InUse: Another process builds there.
    """
    folder = Path(out)
    with writing(folder):
        _check_ours(folder)
        settings = Sources.of((), labels or {}, rules or Rules())
        extractor = extractor or Extractor()
        return _build(folder, index, settings, extractor, lm, caps, threads, progress)


def _check_ours(folder: Path) -> None:
    """Raise `InputError` if a folder holds anything but a graph."""
    ours = (".lock", MANIFEST, f".{MANIFEST}", JOURNAL, SUMMARIES, CALLS, VECTORS, "contents-")
    for path in sorted(folder.iterdir()):
        if not path.name.startswith(ours):
            raise not_empty(folder, repr(path.name))


def update_graph(
    index: Index,
    out: Path | str | StoredGraph,
    *,
    lm: Any = None,
    extractor: Extractor | None = None,
    labels: Mapping[str, Iterable[str]] | None = None,
    caps: Caps | None = None,
    threads: int = 8,
    progress: Progress | None = None,
) -> StoredGraph:
    """Update a stored graph to its index, under the rules it was built with.

    Only new and changed passages are read, and only the names that they concern are resolved
    again. Facts of deleted passages alone are removed. Communities are found again when they are
    asked for; summaries of unchanged communities are kept.

    Args:
        index: The passages as they are now.
        out: The folder of the graph, or the graph if it is open: then nothing is read from disk.
        lm: As for `build_graph`.
        extractor: As for `build_graph`; by default with the settings of the build.
        labels: The new labels of passages; by default unchanged. Labels of deleted passages are
            kept.
        caps: As for `build_graph`.
        threads: Number of passages read in parallel.
        progress: As for `build_graph`.

    Returns:
        The changed graph. An open graph that was given stays as it was.

    Raises:
        InputError: There is no graph in the folder, no LM, or another one read the passages.
        RunAborted: Too many consecutive passages could not be read, or a cap was reached; finished
            ones are kept.
        InUse: Another process changes the graph.
    """
    folder = out.path if isinstance(out, StoredGraph) else Path(out)
    with writing(folder):
        if not isinstance(out, StoredGraph) or out.manifest != read_manifest(folder):
            out = open_graph(folder)
        given = out.settings.labels if labels is None else labels
        settings = Sources.of((), given, out.settings.rules)
        extractor = extractor or extractor_of(out.manifest)
        reading = (extractor, lm, caps, threads, progress or silent)
        changed = _change(out, index, settings, *reading)
        return changed or _build(folder, index, settings, *reading)


def extractor_of(manifest: GraphManifest) -> Extractor:
    """Return an extractor with the settings of the one that read a graph's passages."""
    own = dict(manifest.extractor)
    if "schema" in own:
        own["schema"] = Schema.model_validate(own["schema"])
    return Extractor(**own)


def record_passages(
    index: Index,
    out: Path | str,
    given: Mapping[Passage, GraphUpdate],
    *,
    removed: Iterable[str] = (),
    labels: Mapping[str, Iterable[str]] | None = None,
    progress: Progress | None = None,
) -> tuple[StoredGraph, Changes]:
    """Add passages with their facts to an index and its graph; no LM is called.

    They count as read, whatever LM reads the others. If the process is killed, the same call
    completes the change.

    Args:
        index: The passages; those given are added to it.
        out: The folder of the graph; created if missing.
        given: What each passage states, with evidence in that passage.
        removed: The ids of passages to delete.
        labels: As for `update_graph`.
        progress: As for `build_graph`.

    Returns:
        The stored graph, whose `manifest.unread` counts the passages left to an LM, and the
        changes to the index.

    Raises:
        InputError: The folder has other contents, the index cannot be changed, or what is given is
            not redacted as the index requires.
        InUse: Another process builds there.
    """
    folder = Path(out)
    _check_redacted(index, given)
    with writing(folder):
        _check_ours(folder)
        settings, before = Sources.of((), labels or {}, Rules()), None
        if (folder / MANIFEST).is_file():
            before, old = read_manifest(folder), open_graph(folder).settings
            settings = Sources.of((), old.labels if labels is None else labels, old.rules)
        steps = {reading_key(p, RECORDED): Extraction(update=given[p]) for p in given}
        with FinishedSteps(folder / JOURNAL) as journal:
            known = journal.known(Extraction)
            fresh = {key: step for key, step in steps.items() if known.get(key) != step}
            if fresh and before:  # the stored graph does not count as up to date from here on
                outdated = before.model_copy(update={"settings": ""})
                write_whole(folder / MANIFEST, outdated.model_dump_json(indent=2, by_alias=True))
            journal.record_all(fresh)
        changes = index.upsert([*given], delete=removed, progress=progress or silent)
        return _build(folder, index, settings, None, None, None, 1, progress), changes


def _check_redacted(index: Index, given: Mapping[Passage, GraphUpdate]) -> None:
    """Raise `InputError` if the redaction of an index would change a passage or a name."""
    if (redactor := index.redactor) is None:
        return
    for passage, update in given.items():
        names = [name for one in update.entities for name in (one.name, *one.aliases)]
        if redactor.passage(passage) != passage or redactor.value(names) != tuple(names):
            raise InputError(
                f"passage {passage.id!r} or its facts are not redacted",
                expected=f"texts that {index.manifest.redact} leaves as they are",
                remedy="redact them first, with index.redactor",
            )


def _build(
    folder: Path,
    index: Index,
    settings: Sources,
    extractor: Extractor | None,
    lm: Any,
    caps: Caps | None,
    threads: int,
    progress: Progress | None,
) -> StoredGraph:
    """Read, resolve and store all; `settings` has rules and labels. No extractor reads nothing."""
    before = read_manifest(folder) if (folder / MANIFEST).is_file() else None
    reading, name = (before.extraction, before.lm) if before else ("", "")
    if extractor is not None:
        lm = chosen_lm(lm, extractor.extract)
        if lm is None:
            raise no_lm()
        reading, name = extractor.fingerprint(lm), str(getattr(lm, "model", ""))
    progress = progress or silent
    digest = _digest_of(settings)
    failed, generation = list[FailedPassage](), 0
    if before:
        _check_reader(folder, before, reading)
        same = before.index == index.fingerprint and before.settings == digest
        is_read = extractor is None or not (before.failed or before.unread)
        if same and is_read and before.is_intact(folder):
            return open_graph(folder)
        failed, generation = list(before.failed), before.generation + 1
    passages, own = list(index), dict(before.extractor) if before else {}
    if extractor is None:
        read, steps = _finished(folder, passages, reading)
        failed = [one for one in failed if one.passage in index and one.passage not in read]
    else:
        own = extractor.own_settings()
        with dspy.context(lm=lm):
            reader = (extractor, reading, caps, threads, progress)
            read, steps, failed = _read(folder, passages, *reader, most=len(passages))
    progress("resolving", 0, 1)
    graph = CorpusGraph.of(
        {id: extraction.update for id, extraction in read.items()},
        labels=settings.labels,
        rules=settings.rules,
    )
    communities = find_communities(graph)
    manifest = GraphManifest(
        generation=generation,
        index=index.fingerprint,
        extraction=reading,
        settings=digest,
        lm=name,
        passages=len(passages),
        entities=len(graph),
        relations=len(graph.heads),
        communities=len(communities),
        labels=tuple(sorted(graph.labels_in_use)),
        left_out=graph.left_out,
        extractor=own,
        failed=tuple(failed),
        unread=len(passages) - len(read) - len(failed),
        unused_overrides=graph.unused_overrides,
        **_totals(read.values()),
    )
    records = StoredRecords.of(_records(graph.sources.batches, index, steps), folder)
    contents = Contents(records, settings, graph.tables, lambda: graph.public.tables)
    store(StoredGraph(folder, manifest, contents), communities)
    Summaries(folder / SUMMARIES).keep_only(communities)
    progress("resolving", 1, 1)
    return open_graph(folder)


def _change(
    before: StoredGraph,
    index: Index,
    settings: Sources,
    extractor: Extractor,
    lm: Any,
    caps: Caps | None,
    threads: int,
    progress: Progress,
) -> StoredGraph | None:
    """Read what is new and change a graph to it; None if it must be resolved as a whole."""
    folder, digests = before.path, before.records.digests
    if not before.can_change:
        return None
    lm = chosen_lm(lm, extractor.extract)
    if lm is None:
        raise no_lm()
    reading = extractor.fingerprint(lm)
    _check_reader(folder, before.manifest, reading)
    relabelled = {id for id, _ in settings.labels.items() ^ before.settings.labels.items()}
    now = {id: digest.hex() for id, digest in index.digests.items()}
    changed = [id for id, digest in now.items() if digests.get(id) != digest]
    gone = {id for id, digest in digests.items() if now.get(id) != digest}
    if not changed and not gone and not relabelled:
        return before
    obsolete = set(map(before.records.step, gone))
    with FinishedSteps(folder / JOURNAL) as journal:
        forgotten = journal.known(Extraction, obsolete).values()
        if not changed:
            journal.forget(obsolete)
    read, steps, failed = dict[str, Extraction](), dict[str, str](), list[FailedPassage]()
    if changed:
        passages, reader = list(map(index.get, changed)), (extractor, reading, caps, threads)
        with dspy.context(lm=lm):
            read, steps, failed = _read(
                folder, passages, *reader, progress, most=len(index), obsolete=obsolete
            )
    progress("resolving", 0, 1)
    batches = [Batch.of(id, extraction.update) for id, extraction in read.items()]
    records = before.records.changed(gone, _records(batches, index, steps))
    made = before.changed(records, settings, {*gone, *changed, *relabelled})
    if made is None:
        return None
    manifest = before.manifest.model_copy(update={
        **made.sizes,
        **_totals(read.values(), forgotten, before.manifest),
        "generation": before.manifest.generation + 1,
        "index": index.fingerprint,
        "extraction": reading,
        "settings": _digest_of(settings),
        "lm": str(getattr(lm, "model", "")),
        "passages": len(index),
        "communities": None,
        "extractor": extractor.own_settings(),
        "failed": tuple(failed),
        "unread": 0,
    })  # fmt: skip
    stored = StoredGraph(folder, manifest, made.contents)
    stored.mentions, stored.former = made.mentions, made.former
    stored.manifest = store(stored)
    progress("resolving", 1, 1)
    return stored


def _digest_of(settings: Sources) -> str:
    """Return the digest of rules and labels; sets as sorted lists, so that equal ones have one."""
    return digest_of([settings.rules.model_dump(), settings.labels], default=sorted)


def _check_reader(folder: Path, before: GraphManifest, reading: str) -> None:
    if before.extraction not in ("", reading):
        raise InputError(
            f"the passages of the graph in {folder} were read by {before.lm or 'another LM'} "
            "or under other instructions or settings",
            expected="the same, since the records of two do not mix",
            remedy="pass the same LM and extractor, or build into another folder",
        )


def _records(batches: Iterable[Batch], index: Index, steps: Mapping[str, str]) -> dict[str, Record]:
    digests = index.digests
    return {
        batch.passage: Record(digests[batch.passage].hex(), steps[batch.passage], batch)
        for batch in batches
    }


def _totals(
    read: Iterable[Extraction],
    forgotten: Iterable[Extraction] = (),
    before: GraphManifest | None = None,
) -> dict[str, Any]:
    """Return what a manifest sums up of extractions, after some replaced others."""
    names = ("calls", "tokens", "stated", "proposed")
    sums = Counter({name: getattr(before, name) for name in names} if before else {})
    causes = Counter({**before.dropped} if before else {})
    for every, sign in ((read, 1), (forgotten, -1)):
        for one in every:
            wrong = [d for d in one.dropped if d.kind in ("relation", "line") and d.is_unsupported]
            stated = len(one.update.relations)
            for name, count in zip(
                names, (one.calls, one.tokens, stated, stated + len(wrong)), strict=True
            ):
                sums[name] += sign * count
            for item in one.dropped:
                causes[item.cause] += sign
    return {**{name: sums[name] for name in names}, "dropped": +causes}


def _finished(
    folder: Path, passages: Sequence[Passage], fingerprint: str
) -> tuple[dict[str, Extraction], dict[str, str]]:
    """Return the extraction of every passage that has one, and the keys of their steps."""
    with FinishedSteps(folder / JOURNAL) as journal:
        known = journal.known(Extraction)
    keys = {passage.id: finished_key(passage, fingerprint, known) for passage in passages}
    return {id: known[key] for id, key in keys.items() if key in known}, keys


def _read(
    folder: Path,
    passages: Sequence[Passage],
    extractor: Extractor,
    fingerprint: str,
    caps: Caps | None,
    threads: int,
    progress: Progress,
    *,
    most: int,
    obsolete: Collection[str] | None = None,
) -> tuple[dict[str, Extraction], dict[str, str], list[FailedPassage]]:
    """Return the extractions, the keys of their steps, and the passages that could not be read.

    Args:
        folder: The folder of the graph.
        passages: The passages.
        extractor: The module that reads them.
        fingerprint: That of the extractor.
        caps: The most LM calls and tokens.
        threads: Number of passages read in parallel.
        progress: Called with the name of the stage, the units done and the total.
        most: The number of consecutive failures that ends the run, if less than `ABORT_AFTER`.
        obsolete: The steps to delete; by default all but those of the passages.
    """

    def lm_for(group: Sequence[Passage]) -> Any:
        return wrap_for_work(dspy.settings.lm, calls, keys[group[0].id], gate)

    read = partial(_outcome, extractor)
    failed: list[FailedPassage] = []
    with (
        FinishedSteps(folder / JOURNAL) as journal,
        CallStore(folder / CALLS, "graph build", is_temporary=True) as calls,
    ):
        gate = Gate(calls, caps)
        given = [reading_key(p, each) for p in passages for each in (RECORDED, fingerprint)]
        known = journal.known(Extraction, given)
        keys = {passage.id: finished_key(passage, fingerprint, known) for passage in passages}
        pending = [passage for passage in passages if keys[passage.id] not in known]
        size, left, in_a_row = extractor.per_call, 0, 0
        groups = [pending[n : n + size] for n in range(0, len(pending), size)]
        done = len(passages) - len(pending)
        progress("reading", done, len(passages))
        check_whole("threads", threads)
        with closing(map_parallel(read, groups, threads, lm_for=lm_for)) as outcomes:
            for group, found in outcomes:
                if found is None:
                    left += len(group)
                    continue
                pairs = list(zip(group, found, strict=True))
                new = {keys[p.id]: one for p, one in pairs if isinstance(one, Extraction)}
                journal.record_all(new)
                known |= new
                calls.forget(keys[group[0].id])
                for passage, outcome in pairs:
                    in_a_row = in_a_row + 1 if isinstance(outcome, str) else 0
                    if isinstance(outcome, str):
                        failed.append(FailedPassage(passage=passage.id, error=outcome))
                    if in_a_row == min(ABORT_AFTER, most):
                        raise RunAborted(
                            f"{in_a_row} passages in a row could not be read, the last because of "
                            f"{outcome}",
                            expected="an LM that answers",
                            remedy=f"check it, then run the same build again: {folder} keeps what "
                            "was read",
                        )
                done += len(group)
                progress("reading", done, len(passages))
        if left:
            spent = f"{calls.spent.calls:,} LM calls and {calls.spent.tokens:,} tokens"
            raise RunAborted(
                f"a cap was reached after {spent}: {left:,} of {len(passages):,} passages are left",
                remedy=f"run the same command again to go on: {folder} keeps what was read",
            )
        if obsolete is None:
            journal.keep_only(keys.values())
        else:
            journal.forget(set(obsolete).difference(keys.values()))
    extractions = {id: known[key] for id, key in keys.items() if key in known}
    return extractions, keys, sorted(failed, key=lambda one: one.passage)


def _outcome(
    extractor: Extractor, group: Sequence[Passage]
) -> tuple[Sequence[Passage], Sequence[Extraction | str] | None]:
    """Return what the passages state, or the errors; None if the LM may not be called any more."""

    def read() -> Sequence[Extraction | str]:
        if len(group) > 1:
            return extractor(passage=group).extractions  # type: ignore[no-any-return]
        return [extractor(passage=group[0]).extraction]

    try:
        found = outcome_of(read)
    except BudgetExceeded:
        return group, None
    return group, [found] * len(group) if isinstance(found, str) else found


# --- Cost estimate of a build.


class Estimate(NamedTuple):
    """The estimated LM usage of a build, without retries.

    Attributes:
        calls: LM calls.
        prompt_tokens: Prompt tokens.
        completion_tokens: Completion tokens: about as many as the passages have, and for each
            gleaning half as many more.
        finished: Passages that need no call.
        passages: Passages that have not been read yet.
    """

    calls: int
    prompt_tokens: int
    completion_tokens: int
    finished: int
    passages: int

    @property
    def tokens(self) -> int:
        """Return prompt and completion tokens."""
        return self.prompt_tokens + self.completion_tokens


def estimate_build(
    index: Index | Sequence[Passage],
    out: Path | str | None = None,
    *,
    lm: Any = None,
    extractor: Extractor | None = None,
) -> Estimate:
    """Estimate the LM calls and tokens of a build.

    Args:
        index: The passages.
        out: The folder of the graph, in which some passages may have been read.
        lm: As for `build_graph`.
        extractor: As for `build_graph`.
    """
    extractor = extractor or Extractor()
    passages = list(index)
    if out is not None and (Path(out) / JOURNAL).is_file():
        fingerprint = extractor.fingerprint(lm)
        with FinishedSteps(Path(out) / JOURNAL) as journal:
            known = journal.known(Extraction)
        passages = [p for p in passages if finished_key(p, fingerprint, known) not in known]
    content = sum(estimate_tokens(render_passage(1, passage)) for passage in passages)
    calls, more = math.ceil(len(passages) / extractor.per_call), extractor.gleanings
    adapter = dspy.settings.adapter or PlainAdapter()
    first, *_, last = [
        prompt_tokens(predictor.signature, adapter, estimate_tokens, predictor.demos)
        for predictor in (extractor.extract, *extractor.predictors())
    ]
    # A gleaning is shown the passages, and what was found in them: about as much again.
    prompt = calls * (first + more * last) + content * (1 + 2 * more)
    completion = content + more * content // 2
    finished = len(index) - len(passages)
    return Estimate(calls * (1 + more), prompt, completion, finished, len(passages))
