"""Build the graph of a corpus, and update it.

A build reads the passages that have not been read, then resolves all records. An update reads only
new and changed passages, resolves only what they affect, and gives the same graph as a build from
scratch.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import dspy

from ga_dspy.cluster import map_parallel
from ga_dspy.errors import InputError, RunAborted
from ga_dspy.graph import GraphUpdate, Schema
from ga_dspy.graphrag.extraction import (
    RECORDED,
    Extraction,
    Extractor,
    FinishedSteps,
    finished_key,
    outcome_of,
    reading_key,
    require_lm,
)
from ga_dspy.graphrag.records import Rules, Sources
from ga_dspy.graphrag.stored import (
    JOURNAL,
    SUMMARIES,
    VECTORS,
    FailedPassage,
    GraphManifest,
    Record,
    StoredGraph,
    digest_of_settings,
    manifest_to_change,
    open_graph,
    read_manifest,
)
from ga_dspy.lm.adapters import PlainAdapter
from ga_dspy.lm.store import BudgetExceeded, CallStore, Caps, Gate
from ga_dspy.lm.wrapper import wrap_for_work
from ga_dspy.passage import Passage
from ga_dspy.programs.meter import prompt_tokens
from ga_dspy.retrieval import Changes, Index
from ga_dspy.retrieval.encoders import Progress, silent
from ga_dspy.retrieval.store import not_empty, writing
from ga_dspy.signatures.prompt import render_passage
from ga_dspy.storage import MANIFEST, write_atomically
from ga_dspy.text import estimate_tokens

CALLS: Final = "calls.sqlite"

ABORT_AFTER: Final = 20
"""The number of consecutive failures after which a build is aborted."""

# --- Build and update.


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
        out: The folder of the graph; created if missing.
        lm: The LM that reads passages; by default the extractor's or the configured one.
        extractor: The module that reads passages.
        rules: The rules of the graph.
        labels: The labels of restricted passages, by passage id. A graph that has labels is not
            built without them; `{}` opens it to everyone.
        caps: Limits on the LM calls and tokens of this run. A build that reaches one is aborted,
            and resumes when it runs again.
        threads: Number of passages read in parallel.
        progress: Called with the name of the stage, the units done and the total.

    Returns:
        The stored graph; `manifest.failed` lists passages that could not be read.

    Raises:
        InputError: There is no LM, the folder's passages were read by another one, the folder has
            other contents, or its graph would lose its labels.
        RunAborted: Too many consecutive passages could not be read, or a cap was reached; finished
            passages are kept.
        InUse: Another process is building in the folder.
    """
    folder, extractor = Path(out), extractor or Extractor()
    with writing(folder):
        before = _manifest_of(folder)
        reader = Reader(folder, index, progress or silent, before, extractor, lm, caps, threads)
        stored = open_graph(folder) if before and before.is_intact(folder) else None
        if before:
            _check_labels(before, stored, labels, rules)
        return _update(reader, stored, Sources(rules=rules or Rules()).labelled(labels or {}))


def _check_labels(
    before: GraphManifest, stored: StoredGraph | None, labels: Any, rules: Rules | None
) -> None:
    """Check that a build that names no labels does not make restricted facts public."""
    of_passages, of_relations = bool(before.labels), False
    if stored:
        of_passages = bool(stored.settings.labels)
        of_relations = bool(stored.settings.rules.relation_labels)
    if (of_passages and labels is None) or (of_relations and rules is None):
        raise InputError(
            f"the graph is restricted by labels ({', '.join(before.labels)}), and this build "
            f"names none for its {'passages' if of_passages and labels is None else 'relations'}",
            expected="--labels or --rules with them, or {} in that file to make everything public",
            remedy="or run graph update, which keeps labels and rules",
        )


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
    """Update a stored graph to its index, under the rules that it was built with.

    Only new and changed passages are read, and only the names that they affect are resolved again.
    Facts that only deleted passages state are removed. Communities are found again when they are
    next needed; summaries of unchanged communities are kept.

    Args:
        index: The current passages.
        out: The folder of the graph, or the open graph, which need not be read from disk.
        lm: As for `build_graph`.
        extractor: As for `build_graph`; by default one with the settings of the build.
        labels: The new labels of passages; by default unchanged. Labels of deleted passages are
            kept.
        caps: As for `build_graph`.
        threads: Number of passages read in parallel.
        progress: As for `build_graph`.

    Returns:
        The updated graph. An open graph that was passed does not change.

    Raises:
        InputError: There is no graph in the folder, no LM, or another one read the passages.
        RunAborted: Too many consecutive passages could not be read, or a cap was reached; finished
            passages are kept.
        InUse: Another process is changing the graph.
    """
    folder = out.path if isinstance(out, StoredGraph) else Path(out)
    with writing(folder):
        if not isinstance(out, StoredGraph) or out.manifest != read_manifest(folder):
            out = open_graph(folder)
        before, extractor = out.manifest, extractor or extractor_of(out.manifest)
        reader = Reader(folder, index, progress or silent, before, extractor, lm, caps, threads)
        return _update(reader, out, out.settings.labelled(labels))


def extractor_of(manifest: GraphManifest) -> Extractor:
    """Return an extractor with the settings that a graph's passages were read with."""
    settings = dict(manifest.extractor)
    if "schema" in settings:
        settings["schema"] = Schema.model_validate(settings["schema"])
    return Extractor(**settings)


def record_passages(
    index: Index,
    out: Path | str,
    given: Mapping[Passage, GraphUpdate],
    *,
    removed: Iterable[str] = (),
    labels: Mapping[str, Iterable[str]] | None = None,
    progress: Progress | None = None,
) -> tuple[StoredGraph, Changes]:
    """Add passages with known facts to an index and its graph; no LM is called.

    The passages count as read, whichever LM reads the others. If the process is killed, the same
    call completes the change.

    Args:
        index: The index to which the passages are added.
        out: The folder of the graph; created if missing.
        given: The records of each passage, with evidence in that passage.
        removed: The ids of passages to delete.
        labels: As for `update_graph`.
        progress: As for `build_graph`.

    Returns:
        The stored graph, whose `manifest.unread` counts the passages left to an LM, and the
        changes to the index.

    Raises:
        InputError: The folder has other contents, the index cannot be changed, or passages or
            facts are not redacted as the index requires.
        InUse: Another process is building in the folder.
    """
    folder, progress = Path(out), progress or silent
    _check_redacted(index, given)
    with writing(folder):
        before = _manifest_of(folder)
        stored = open_graph(folder) if before else None
        settings = (stored.settings if stored else Sources()).labelled(labels)
        steps = {reading_key(p, RECORDED): Extraction(update=given[p]) for p in given}
        with FinishedSteps(folder / JOURNAL) as journal:
            known = journal.known(Extraction, steps)
            new = {key: step for key, step in steps.items() if known.get(key) != step}
            if new and stored:  # from here on, the stored graph counts as outdated
                stored.manifest = stored.manifest.model_copy(update={"settings": ""})
                write_atomically(folder / MANIFEST, stored.manifest.model_dump_json(indent=2))
            journal.record(new)
        changes = index.upsert([*given], delete=removed, progress=progress)
        return _update(Reader(folder, index, progress, before), stored, settings), changes


def _check_redacted(index: Index, given: Mapping[Passage, GraphUpdate]) -> None:
    """Raise `InputError` if the redaction of an index would change a passage or a name."""
    if (redactor := index.redactor) is None:
        return
    for passage, update in given.items():
        names = [name for one in update.entities for name in (one.name, *one.aliases)]
        if redactor.passage(passage) != passage or redactor.value(names) != tuple(names):
            raise InputError(
                f"passage {passage.id!r} or its facts are not redacted",
                expected=f"texts that {index.manifest.redact} would not change",
                remedy="redact them first, with index.redactor",
            )


def _manifest_of(folder: Path) -> GraphManifest | None:
    """Return the manifest of the graph in a folder; None if there is none.

    Raises:
        InputError: The folder has files that do not belong to a graph.
    """
    ours = (".lock", MANIFEST, f".{MANIFEST}", JOURNAL, SUMMARIES, CALLS, VECTORS, "contents-")
    for path in sorted(folder.iterdir()):
        if not path.name.startswith(ours):
            raise not_empty(folder, repr(path.name))
    return manifest_to_change(folder)


def _update(reader: Reader, stored: StoredGraph | None, settings: Sources) -> StoredGraph:
    """Read the passages without records, resolve what changed, and save the graph.

    Args:
        reader: The reader of the passages.
        stored: The current graph; if None, earlier records come from the journal.
        settings: The rules and labels.
    """
    if stored and stored.manifest.settings != digest_of_settings(stored.settings):
        stored = None  # an import was killed: the journal has other records
    index, before = reader.index, stored.records if stored else {}
    digests = {id: digest.hex() for id, digest in index.digests.items()}
    records = {id: one for id, one in before.items() if digests.get(id) == one.digest}
    outdated = before.keys() - records.keys()
    missing = [index.get(id) for id in digests if id not in records]
    readings = reader.read(missing, {before[id].step for id in outdated} if stored else None)
    reader.progress("resolving", 0, 1)
    for id, extraction in readings.extractions.items():
        records[id] = Record.of(id, extraction.update, digests[id], readings.steps[id])
    fields = {
        **reader.stated,
        **_totals(readings, stored.manifest if stored else None),
        "index": index.fingerprint,
        "settings": digest_of_settings(settings),
        "passages": len(index),
        "failed": readings.failed,
        "unread": len(index) - len(records) - len(readings.failed),
    }
    graph = None
    if stored:
        changed = {*outdated, *readings.extractions}
        if not changed and stored.manifest.model_copy(update=fields) == stored.manifest:
            return stored
        changed |= {id for id, _ in settings.labels.items() ^ stored.settings.labels.items()}
        graph = stored.changed(records, settings, changed)
    if graph is None:
        graph = StoredGraph.of(reader.folder, GraphManifest(**fields), records, settings)
    fields["generation"] = reader.before.generation + 1 if reader.before else 0
    graph.manifest = graph.manifest.model_copy(update=fields)
    graph.save(stored)
    reader.progress("resolving", 1, 1)
    return graph


def _totals(readings: Readings, before: GraphManifest | None) -> dict[str, Any]:
    """Return the manifest's sums over all extractions, with obsolete ones subtracted."""
    sums, dropped = Counter[str](), Counter[str]()
    if before:
        sums.update(before.model_dump(include={"calls", "tokens", "stated", "proposed"}))
        dropped.update(before.dropped)
    for extraction in readings.extractions.values():
        sums.update(extraction.counts)
        dropped.update(item.cause for item in extraction.dropped)
    for extraction in readings.forgotten:
        sums.subtract(extraction.counts)
        dropped.subtract(item.cause for item in extraction.dropped)
    return {**sums, "dropped": +dropped}


# --- Reading: extractions are recorded at once, so that a stopped build resumes.


class Readings(NamedTuple):
    """The extractions of passages.

    Attributes:
        extractions: The extraction of each passage that was read, by passage id.
        steps: The key of the step that reads each passage, by passage id.
        failed: The passages that could not be read.
        forgotten: The extractions that obsolete steps had recorded.
    """

    extractions: dict[str, Extraction]
    steps: dict[str, str]
    failed: tuple[FailedPassage, ...]
    forgotten: Collection[Extraction]


@dataclass
class Reader:
    """Reads the passages of a graph with an LM, each passage once.

    Attributes:
        folder: The folder of the graph.
        index: All passages.
        progress: Called with the name of the stage, the units done and the total.
        before: The manifest of the current graph; None if there is none.
        extractor: The module that reads passages; None reads none.
        lm: The LM; by default the extractor's or the configured one.
        caps: Limits on LM calls and tokens.
        threads: Number of passages read in parallel.
        stated: The fields of a manifest that describe the extractor and the LM.

    Raises:
        InputError: There is no LM, or another one read the passages of the graph.
    """

    folder: Path
    index: Index
    progress: Progress
    before: GraphManifest | None
    extractor: Extractor | None = None
    lm: Any = None
    caps: Caps | None = None
    threads: int = 1
    stated: dict[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        """Choose the LM, and check that it is the one that read the graph's passages."""
        before = self.before
        if self.extractor is None:
            known = before.model_dump(include={"extraction", "lm", "extractor"}) if before else {}
            self.stated = {"extraction": "", **known}
            return
        self.lm = require_lm(self.lm, self.extractor.extract)
        extraction = self.extractor.fingerprint(self.lm)
        if before and before.extraction not in ("", extraction):
            raise InputError(
                f"the passages of the graph in {self.folder} were read by "
                f"{before.lm or 'another LM'} or under other instructions or settings",
                expected="the same LM, instructions and settings for all passages of a graph",
                remedy="pass the same LM and extractor, or build into another folder",
            )
        name, settings = str(getattr(self.lm, "model", "")), self.extractor.nondefault_settings()
        self.stated = {"extraction": extraction, "lm": name, "extractor": settings}

    def read(
        self, passages: Sequence[Passage], obsolete: Collection[str] | None = None
    ) -> Readings:
        """Read passages, and delete obsolete extractions from the journal.

        Args:
            passages: The passages to read.
            obsolete: The keys of the steps to delete; by default all but those of the passages.

        Raises:
            RunAborted: Too many consecutive passages could not be read, or a cap was reached.
        """
        fingerprint, failed, in_a_row = self.stated["extraction"], list[FailedPassage](), 0
        with FinishedSteps(self.folder / JOURNAL) as journal:
            possible = [reading_key(p, each) for p in passages for each in (RECORDED, fingerprint)]
            known = journal.known(Extraction, possible)
            keys = {passage.id: finished_key(passage, fingerprint, known) for passage in passages}
            pending = [passage for passage in passages if keys[passage.id] not in known]
            if self.extractor is None:  # earlier failures still count
                ids = {passage.id for passage in pending}
                before = self.before.failed if self.before else ()
                failed, pending = [one for one in before if one.passage in ids], []
            done = len(passages) - len(pending)
            self.progress("reading", done, len(passages))
            with closing(self._ask(pending, keys, journal)) as outcomes:
                for passage, outcome in outcomes:
                    done += 1
                    self.progress("reading", done, len(passages))
                    if isinstance(outcome, Extraction):
                        known[keys[passage.id]], in_a_row = outcome, 0
                        continue
                    failed.append(FailedPassage(passage=passage.id, error=outcome))
                    in_a_row += 1
                    if in_a_row == min(ABORT_AFTER, len(self.index)):
                        raise RunAborted(
                            f"{in_a_row} passages in a row could not be read; the last error was "
                            f"{outcome}",
                            expected="an LM that answers",
                            remedy="check the LM, then run the same build again: finished passages "
                            f"are kept in {self.folder}",
                        )
            forgotten = journal.known(Extraction, obsolete or ()).values()
            if obsolete is None and self.extractor:
                journal.keep_only(keys.values())
            journal.forget(set(obsolete or ()).difference(keys.values()))
        extractions = {id: known[key] for id, key in keys.items() if key in known}
        failed.sort(key=lambda one: one.passage)
        return Readings(extractions, keys, tuple(failed), forgotten)

    def _ask(
        self, pending: Sequence[Passage], keys: Mapping[str, str], journal: FinishedSteps
    ) -> Generator[tuple[Passage, Extraction | str]]:
        """Yield the extraction of each passage once it is recorded, or the error message."""
        if self.extractor is None or not pending:
            return
        size, left = self.extractor.per_call, 0
        groups = [pending[n : n + size] for n in range(0, len(pending), size)]
        with CallStore(self.folder / CALLS, "graph build", is_temporary=True) as calls:
            gate = Gate(calls, self.caps)

            def lm_for(group: Sequence[Passage]) -> Any:
                return wrap_for_work(self.lm, calls, keys[group[0].id], gate)

            read = partial(_read_group, self.extractor)
            with closing(map_parallel(read, groups, self.threads, lm_for=lm_for)) as results:
                for group, outcomes in results:
                    if outcomes is None:
                        left += len(group)
                        continue
                    pairs = list(zip(group, outcomes, strict=True))
                    new = {keys[p.id]: one for p, one in pairs if isinstance(one, Extraction)}
                    journal.record(new)
                    calls.forget(keys[group[0].id])
                    yield from pairs
            if left:
                raise RunAborted(
                    f"a cap was reached after {calls.spent.calls:,} LM calls and "
                    f"{calls.spent.tokens:,} tokens: {left:,} of {len(keys):,} passages are left",
                    remedy="run the same command again to resume: finished passages are kept in "
                    f"{self.folder}",
                )


def _read_group(
    extractor: Extractor, group: Sequence[Passage]
) -> tuple[Sequence[Passage], Sequence[Extraction | str] | None]:
    """Return the passages with their extractions or error messages; None if a cap was reached."""

    def read() -> Sequence[Extraction | str]:
        if len(group) > 1:
            return extractor(passage=group).extractions  # type: ignore[no-any-return]
        return [extractor(passage=group[0]).extraction]

    try:
        outcome = outcome_of(read)
    except BudgetExceeded:
        return group, None
    return group, [outcome] * len(group) if isinstance(outcome, str) else outcome


# --- Cost estimate of a build.


class Estimate(NamedTuple):
    """The estimated LM usage of a build, without retries.

    Attributes:
        calls: Number of LM calls.
        prompt_tokens: Number of prompt tokens.
        completion_tokens: Number of completion tokens: about as many as the passages have, and half
            as many more for each gleaning.
        finished: Number of passages that need no call.
        passages: Number of passages that have not been read yet.
    """

    calls: int
    prompt_tokens: int
    completion_tokens: int
    finished: int
    passages: int

    @property
    def tokens(self) -> int:
        """Return the number of prompt and completion tokens."""
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
        out: The folder of the graph; passages that were read there need no call.
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
    first, gleaning = (
        prompt_tokens(predictor.signature, adapter, estimate_tokens, predictor.demos)
        for predictor in (extractor.extract, extractor.glean if more else extractor.extract)
    )
    # A gleaning prompt has the passages and the records found in them, which are about as long.
    return Estimate(
        calls=calls * (1 + more),
        prompt_tokens=calls * (first + more * gleaning) + content * (1 + 2 * more),
        completion_tokens=content + more * content // 2,
        finished=len(index) - len(passages),
        passages=len(passages),
    )
