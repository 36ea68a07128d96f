"""Build the graph of a corpus, and bring it up to date.

A build reads the passages that have not been read, then makes the graph from all records. An update
calls the LM for new and changed passages only, resolves what they concern, and gives the same graph
as a build from scratch.
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
    needed_lm,
    outcome_of,
    reading_key,
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
from ga_dspy.storage import MANIFEST, write_whole
from ga_dspy.text import estimate_tokens

CALLS: Final = "calls.sqlite"

ABORT_AFTER: Final = 20
"""After this many consecutive failures the LM counts as down."""

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
        before, reading = _manifest_of(folder), (extractor or Extractor(), lm, caps, threads)
        reader = Reader(folder, index, progress or silent, before, *reading)
        stored = open_graph(folder) if before and before.is_intact(folder) else None
        return _update(reader, stored, Sources(rules=rules or Rules()).labelled(labels or {}))


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
        reading = (extractor or extractor_of(out.manifest), lm, caps, threads)
        reader = Reader(folder, index, progress or silent, out.manifest, *reading)
        return _update(reader, out, out.settings.labelled(labels))


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
    folder, progress = Path(out), progress or silent
    _check_redacted(index, given)
    with writing(folder):
        before = _manifest_of(folder)
        stored = open_graph(folder) if before else None
        settings = (stored.settings if stored else Sources()).labelled(labels)
        steps = {reading_key(p, RECORDED): Extraction(update=given[p]) for p in given}
        with FinishedSteps(folder / JOURNAL) as journal:
            known = journal.known(Extraction, steps)
            fresh = {key: step for key, step in steps.items() if known.get(key) != step}
            if fresh and stored:  # the stored graph does not count as up to date from here on
                stored.manifest = stored.manifest.model_copy(update={"settings": ""})
                write_whole(folder / MANIFEST, stored.manifest.model_dump_json(indent=2))
            journal.record(fresh)
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
                expected=f"texts that {index.manifest.redact} leaves as they are",
                remedy="redact them first, with index.redactor",
            )


def _manifest_of(folder: Path) -> GraphManifest | None:
    """Return the manifest of a graph, if there is one.

    Raises:
        InputError: The folder holds anything but a graph.
    """
    ours = (".lock", MANIFEST, f".{MANIFEST}", JOURNAL, SUMMARIES, CALLS, VECTORS, "contents-")
    for path in sorted(folder.iterdir()):
        if not path.name.startswith(ours):
            raise not_empty(folder, repr(path.name))
    return manifest_to_change(folder)


def _update(reader: Reader, stored: StoredGraph | None, settings: Sources) -> StoredGraph:
    """Read what is new, and make the graph of that and of what is known.

    Args:
        reader: What reads the passages.
        stored: The graph so far; without one, all that was read is taken from the journal.
        settings: The rules and labels.
    """
    if stored and stored.manifest.settings != digest_of_settings(stored.settings):
        stored = None  # an import was killed: the journal has other records
    index, before = reader.index, stored.records if stored else {}
    digests = {id: digest.hex() for id, digest in index.digests.items()}
    records = {id: one for id, one in before.items() if digests.get(id) == one.digest}
    gone = before.keys() - records.keys()
    missing = [index.get(id) for id in digests if id not in records]
    found = reader.read(missing, {before[id].step for id in gone} if stored else None)
    reader.progress("resolving", 0, 1)
    touched = {*gone, *found.extractions}
    for id, one in found.extractions.items():
        records[id] = Record.of(id, one.update, digests[id], found.steps[id])
    stated = {
        **reader.stated,
        **_totals(found, stored.manifest if stored else None),
        "index": index.fingerprint,
        "settings": digest_of_settings(settings),
        "passages": len(index),
        "failed": found.failed,
        "unread": len(index) - len(records) - len(found.failed),
    }
    made = None
    if stored:
        if not touched and stored.manifest.model_copy(update=stated) == stored.manifest:
            return stored
        touched |= {id for id, _ in settings.labels.items() ^ stored.settings.labels.items()}
        made = stored.changed(records, settings, touched)
    made = made or StoredGraph.of(reader.folder, GraphManifest(**stated), records, settings)
    stated["generation"] = reader.before.generation + 1 if reader.before else 0
    made.manifest = made.manifest.model_copy(update=stated)
    made.save(stored)
    reader.progress("resolving", 1, 1)
    return made


def _totals(found: Readings, before: GraphManifest | None) -> dict[str, Any]:
    """Return what a manifest sums up of the extractions, after some replaced others."""
    sums, dropped = Counter[str](), Counter[str]()
    if before:
        sums.update(before.model_dump(include={"calls", "tokens", "stated", "proposed"}))
        dropped.update(before.dropped)
    for one in found.extractions.values():
        sums.update(one.counts)
        dropped.update(item.cause for item in one.dropped)
    for one in found.forgotten:
        sums.subtract(one.counts)
        dropped.subtract(item.cause for item in one.dropped)
    return {**sums, "dropped": +dropped}


# --- Reading: what was read is recorded at once, so that a stopped build resumes.


class Readings(NamedTuple):
    """What passages state.

    Attributes:
        extractions: The extraction of each passage that was read, by id.
        steps: The key of the step that reads each passage.
        failed: The passages that could not be read.
        forgotten: The extractions of obsolete steps.
    """

    extractions: dict[str, Extraction]
    steps: dict[str, str]
    failed: tuple[FailedPassage, ...]
    forgotten: Collection[Extraction]


@dataclass
class Reader:
    """Reads the passages of a graph with an LM, each once.

    Attributes:
        folder: The folder of the graph.
        index: All passages.
        progress: Called with the name of the stage, the units done and the total.
        before: The manifest of the graph so far.
        extractor: The module that reads a passage; None reads none.
        lm: The LM; by default the extractor's or the configured one.
        caps: The most LM calls and tokens.
        threads: Number of passages read in parallel.
        stated: What a manifest says of the extractor and the LM.

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
        """Choose the LM."""
        before = self.before
        if self.extractor is None:
            known = before.model_dump(include={"extraction", "lm", "extractor"}) if before else {}
            self.stated = {"extraction": "", **known}
            return
        self.lm = needed_lm(self.lm, self.extractor.extract)
        extraction = self.extractor.fingerprint(self.lm)
        if before and before.extraction not in ("", extraction):
            raise InputError(
                f"the passages of the graph in {self.folder} were read by "
                f"{before.lm or 'another LM'} or under other instructions or settings",
                expected="the same, since the records of two do not mix",
                remedy="pass the same LM and extractor, or build into another folder",
            )
        name, own = str(getattr(self.lm, "model", "")), self.extractor.own_settings()
        self.stated = {"extraction": extraction, "lm": name, "extractor": own}

    def read(
        self, passages: Sequence[Passage], obsolete: Collection[str] | None = None
    ) -> Readings:
        """Read passages, and delete what was read of others.

        Args:
            passages: The passages.
            obsolete: The keys of the steps to delete; by default all but those of the passages.

        Raises:
            RunAborted: Too many consecutive passages could not be read, or a cap was reached.
        """
        fingerprint, failed, in_a_row = self.stated["extraction"], list[FailedPassage](), 0
        with FinishedSteps(self.folder / JOURNAL) as journal:
            given = [reading_key(p, each) for p in passages for each in (RECORDED, fingerprint)]
            known = journal.known(Extraction, given)
            keys = {passage.id: finished_key(passage, fingerprint, known) for passage in passages}
            pending = [passage for passage in passages if keys[passage.id] not in known]
            if self.extractor is None:  # what failed before still counts as failed
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
                            f"{in_a_row} passages in a row could not be read, the last because of "
                            f"{outcome}",
                            expected="an LM that answers",
                            remedy=f"check it, then run the same build again: {self.folder} keeps "
                            "what was read",
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
        """Ask the LM about passages; yield what each states, once recorded, or its error."""
        if self.extractor is None or not pending:
            return
        size, left = self.extractor.per_call, 0
        groups = [pending[n : n + size] for n in range(0, len(pending), size)]
        with CallStore(self.folder / CALLS, "graph build", is_temporary=True) as calls:
            gate = Gate(calls, self.caps)

            def lm_for(group: Sequence[Passage]) -> Any:
                return wrap_for_work(self.lm, calls, keys[group[0].id], gate)

            read = partial(_outcome, self.extractor)
            with closing(map_parallel(read, groups, self.threads, lm_for=lm_for)) as outcomes:
                for group, found in outcomes:
                    if found is None:
                        left += len(group)
                        continue
                    pairs = list(zip(group, found, strict=True))
                    new = {keys[p.id]: one for p, one in pairs if isinstance(one, Extraction)}
                    journal.record(new)
                    calls.forget(keys[group[0].id])
                    yield from pairs
            if left:
                raise RunAborted(
                    f"a cap was reached after {calls.spent.calls:,} LM calls and "
                    f"{calls.spent.tokens:,} tokens: {left:,} of {len(keys):,} passages are left",
                    remedy=f"run the same command again to go on: {self.folder} keeps what was "
                    "read",
                )


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
    return Estimate(
        calls=calls * (1 + more),
        prompt_tokens=calls * (first + more * last) + content * (1 + 2 * more),
        completion_tokens=content + more * content // 2,
        finished=len(index) - len(passages),
        passages=len(passages),
    )
