"""A corpus graph in its folder: build it, update it, open it.

`contents-000003/` has the Arrow tables of one generation, `manifest.json` names it with the hashes
of its files, `journal.sqlite` has the records of each passage, `summaries.sqlite` the summaries of
communities. A killed process leaves a graph that opens, either the old or the new one.

A build and an update read the passages that have not been read, then make the graph from all
records: an update calls the LM for new and changed passages only, and gives the same graph as a
build from scratch.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from functools import cached_property, partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import dspy
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ga_dspy.cluster import map_parallel
from ga_dspy.errors import GaDspyError, InputError, RunAborted, UnknownFormat
from ga_dspy.graph import GraphUpdate, Schema
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
from ga_dspy.graphrag.records import Batch, Labels, Rules, Sources
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
        communities: Communities, of the public part.
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
    communities: int = 0
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


def store(
    folder: Path, graph: CorpusGraph, communities: Sequence[Community], manifest: GraphManifest
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
    out: Path | str,
    *,
    lm: Any = None,
    extractor: Extractor | None = None,
    labels: Mapping[str, Iterable[str]] | None = None,
    caps: Caps | None = None,
    threads: int = 8,
    progress: Progress | None = None,
) -> StoredGraph:
    """Update a stored graph to its index, under the rules it was built with.

    Only new and changed passages are read. Facts of deleted passages alone are removed. Summaries
    of unchanged communities are kept.

    Args:
        index: The passages as they are now.
        out: The folder of the graph.
        lm: As for `build_graph`.
        extractor: As for `build_graph`; by default with the settings of the build.
        labels: The new labels of passages; by default unchanged. Labels of deleted passages are
            kept.
        caps: As for `build_graph`.
        threads: Number of passages read in parallel.
        progress: As for `build_graph`.

    Raises:
        InputError: There is no graph in the folder, no LM, or another one read the passages.
        RunAborted: Too many consecutive passages could not be read, or a cap was reached; finished
            ones are kept.
    """
    folder = Path(out)
    with writing(folder):
        stored = open_graph(folder)
        before, extractor = stored.graph.sources, extractor or extractor_of(stored.manifest)
        settings = Sources.of((), before.labels if labels is None else labels, before.rules)
        return _build(folder, index, settings, extractor, lm, caps, threads, progress)


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
            before, old = read_manifest(folder), open_graph(folder).graph.sources
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
    """Read, resolve and store; `settings` has the rules and labels. No extractor reads nothing."""
    before = read_manifest(folder) if (folder / MANIFEST).is_file() else None
    reading, name = (before.extraction, before.lm) if before else ("", "")
    if extractor is not None:
        lm = chosen_lm(lm, extractor.extract)
        if lm is None:
            raise no_lm()
        reading, name = extractor.fingerprint(lm), str(getattr(lm, "model", ""))
    progress = progress or silent
    # Sets as sorted lists, so that equal settings have one digest.
    digest = digest_of([settings.rules.model_dump(), settings.labels], default=sorted)
    failed, generation = list[FailedPassage](), 0
    if before:
        if before.extraction not in ("", reading):
            raise InputError(
                f"the passages of the graph in {folder} were read by {before.lm or 'another LM'} "
                "or under other instructions or settings",
                expected="the same, since the records of two do not mix",
                remedy="pass the same LM and extractor, or build into another folder",
            )
        same = before.index == index.fingerprint and before.settings == digest
        is_read = extractor is None or not (before.failed or before.unread)
        if same and is_read and before.is_intact(folder):
            return open_graph(folder)
        failed, generation = list(before.failed), before.generation + 1
    passages, own = list(index), dict(before.extractor) if before else {}
    if extractor is None:
        read = _finished(folder, passages, reading)
        failed = [one for one in failed if one.passage in index and one.passage not in read]
    else:
        own = extractor.own_settings()
        with dspy.context(lm=lm):
            read, failed = _read(folder, passages, extractor, reading, caps, threads, progress)
    progress("resolving", 0, 1)
    graph = CorpusGraph.of(
        {id: extraction.update for id, extraction in read.items()},
        labels=settings.labels,
        rules=settings.rules,
    )
    communities = find_communities(graph)
    dropped = [item for extraction in read.values() for item in extraction.dropped]
    wrong = [item for item in dropped if item.kind in ("relation", "line") and item.is_unsupported]
    stated = sum(len(extraction.update.relations) for extraction in read.values())
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
        dropped=Counter(item.cause for item in dropped),
        extractor=own,
        calls=sum(extraction.calls for extraction in read.values()),
        tokens=sum(extraction.tokens for extraction in read.values()),
        stated=stated,
        proposed=stated + len(wrong),
        failed=tuple(failed),
        unread=len(passages) - len(read) - len(failed),
        unused_overrides=graph.unused_overrides,
    )
    store(folder, graph, communities, manifest)
    Summaries(folder / SUMMARIES).keep_only(communities)
    progress("resolving", 1, 1)
    return open_graph(folder)


def _finished(folder: Path, passages: Sequence[Passage], fingerprint: str) -> dict[str, Extraction]:
    """Return the extraction of every passage that has one."""
    with FinishedSteps(folder / JOURNAL) as journal:
        known = journal.known(Extraction)
    keys = {passage.id: finished_key(passage, fingerprint, known) for passage in passages}
    return {id: known[key] for id, key in keys.items() if key in known}


def _read(
    folder: Path,
    passages: Sequence[Passage],
    extractor: Extractor,
    fingerprint: str,
    caps: Caps | None,
    threads: int,
    progress: Progress,
) -> tuple[dict[str, Extraction], list[FailedPassage]]:
    """Return the extraction of every passage, and the passages that could not be read."""

    def lm_for(group: Sequence[Passage]) -> Any:
        return wrap_for_work(dspy.settings.lm, calls, keys[group[0].id], gate)

    read = partial(_outcome, extractor)
    failed: list[FailedPassage] = []
    with (
        FinishedSteps(folder / JOURNAL) as journal,
        CallStore(folder / CALLS, "graph build", is_temporary=True) as calls,
    ):
        gate = Gate(calls, caps)
        known = journal.known(Extraction)
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
                    if in_a_row == min(ABORT_AFTER, len(passages)):
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
        journal.keep_only(keys.values())
    extractions = {id: known[key] for id, key in keys.items() if key in known}
    return extractions, sorted(failed, key=lambda one: one.passage)


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
