"""Building a corpus graph in a folder, and bringing it up to date.

Both read what has not been read, then make the graph from all records: an update asks the LM for
new and changed passages only, and gives the graph that a build from scratch would give.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import dspy

from ga_dspy.errors import GaDspyError
from ga_dspy.graph import GraphUpdate
from ga_dspy.graphrag.communities import find_communities
from ga_dspy.graphrag.corpus_graph import CorpusGraph
from ga_dspy.graphrag.extraction import Extraction, Extractor, NoLanguageModel, read_all
from ga_dspy.graphrag.journal import Journal, reading_key
from ga_dspy.graphrag.sources import Batch, Rules, Sources
from ga_dspy.graphrag.store import (
    JOURNAL,
    SUMMARIES,
    FailedPassage,
    GraphManifest,
    StoredGraph,
    open_graph,
    read_manifest,
    store,
)
from ga_dspy.graphrag.summaries import Summaries
from ga_dspy.passage import Passage
from ga_dspy.programs.base import whole
from ga_dspy.retrieval import Index
from ga_dspy.retrieval.manifest import MANIFEST
from ga_dspy.retrieval.store import ForeignFolder, writing

Progress = Callable[[str, int, int], None]
"""Called with a stage's name, the units done and the units in all."""

ABORT_AFTER = 20


class BuildAborted(GaDspyError):
    """Passage after passage could not be read: the LM seems to be down."""

    def __init__(self, out: Path, failures: int, error: str) -> None:
        super().__init__(
            f"{failures} passages in a row could not be read, the last because of {error}; "
            f"expected an LM that answers; check it, then run the same build again: {out} keeps "
            "what was read"
        )
        self.error = error


class ReadOtherwise(GaDspyError):
    """The folder's passages were read by another LM or under other instructions."""

    def __init__(self, out: Path, lm: str) -> None:
        super().__init__(
            f"the passages of the graph in {out} were read by {lm or 'another LM'} or under other "
            "instructions or settings; expected the same, since the records of two do not mix; "
            "pass the same LM and extractor, or build into another folder"
        )


def build_graph(
    index: Index,
    out: Path | str,
    *,
    lm: Any = None,
    extractor: Extractor | None = None,
    rules: Rules | None = None,
    labels: Mapping[str, Iterable[str]] | None = None,
    brought: Iterable[Batch] = (),
    threads: int = 8,
    progress: Progress | None = None,
) -> StoredGraph:
    """Read all passages of an index and store the graph of what they state.

    A build that was stopped, by Ctrl-C or `kill -9`, goes on where it stopped; passages that were
    read are never asked for again. Building again with other rules, labels or brought records
    asks the LM for nothing.

    Args:
        index: The passages.
        out: The folder; made where it is absent.
        lm: The LM that reads them; by default the extractor's or the configured one.
        extractor: How a passage is read.
        rules: What may enter, what is flagged, what is private.
        labels: The labels of passages that not everybody may see, by passage id.
        brought: Records from elsewhere (`ga_dspy.graphrag.bring`).
        threads: Passages read at once.
        progress: Called with a stage's name, units done and units in all.

    Returns:
        The stored graph; `manifest.failed` lists passages that could not be read.

    Raises:
        NoLanguageModel, BuildAborted, ReadOtherwise: See their messages.
        ForeignFolder: The folder holds something else.
        FolderInUse: Another process builds there.
    """
    folder = Path(out)
    with writing(folder):
        _check_folder(folder)
        settings = _Settings(rules or Rules(), labels or {}, tuple(brought))
        return _made(folder, index, settings, extractor or Extractor(), lm, threads, progress)


def update_graph(
    index: Index,
    out: Path | str,
    *,
    lm: Any = None,
    extractor: Extractor | None = None,
    labels: Mapping[str, Iterable[str]] | None = None,
    threads: int = 8,
    progress: Progress | None = None,
) -> StoredGraph:
    """Bring a stored graph up to date with its index, under the rules it was built with.

    Only new and changed passages are read. What rested on a deleted passage alone goes.
    Summaries of communities that did not change stay.

    Args:
        index: The passages as they are now.
        out: The folder of the graph.
        lm: As for `build_graph`.
        extractor: As for `build_graph`.
        labels: The labels of passages, where they changed; by default as before. Labels of
            passages that are gone are kept, should they come back.
        threads: Passages read at once.
        progress: As for `build_graph`.

    Raises:
        NotAGraph: There is no graph to bring up to date.
        NoLanguageModel, BuildAborted, ReadOtherwise: See their messages.
    """
    folder = Path(out)
    with writing(folder):
        sources = open_graph(folder).graph.sources
        brought = tuple(batch for batch in sources.batches if batch.brought)
        settings = _Settings(sources.rules, sources.labels if labels is None else labels, brought)
        return _made(folder, index, settings, extractor or Extractor(), lm, threads, progress)


class _Settings(NamedTuple):
    """All that makes a graph, besides what the passages state."""

    rules: Rules
    labels: Mapping[str, Iterable[str]]
    brought: tuple[Batch, ...]

    def sources(self, records: Mapping[str, GraphUpdate]) -> Sources:
        return Sources.of(records, labels=self.labels, rules=self.rules, brought=self.brought)

    def digest(self) -> str:
        parts = [
            _canonical(self.rules.model_dump()),
            {id: sorted(names) for id, names in self.labels.items()},
            [_canonical(batch.model_dump()) for batch in self.brought],
        ]
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _canonical(value: Any) -> Any:
    """Sets as sorted lists, so that equal values have one text."""
    if isinstance(value, Mapping):
        return {key: _canonical(item) for key, item in value.items()}
    if isinstance(value, set | frozenset):
        return sorted(map(_canonical, value))
    return [_canonical(item) for item in value] if isinstance(value, list | tuple) else value


def _check_folder(folder: Path) -> None:
    ours = (".lock", MANIFEST, f"{MANIFEST}.new")
    for path in sorted(folder.iterdir()):
        known = path.name.startswith((JOURNAL, SUMMARIES, "contents-"))
        if path.name not in ours and not known:
            raise ForeignFolder(folder, repr(path.name))


def _made(
    folder: Path,
    index: Index,
    settings: _Settings,
    extractor: Extractor,
    lm: Any,
    threads: int,
    progress: Progress | None,
) -> StoredGraph:
    lm = lm or extractor.extract.lm or dspy.settings.lm
    if lm is None:
        raise NoLanguageModel
    fingerprint = extractor.fingerprint(lm)
    before = read_manifest(folder) if (folder / MANIFEST).is_file() else None
    if before is not None and before.extraction != fingerprint:
        raise ReadOtherwise(folder, before.lm)
    wanted = GraphManifest(
        index=index.fingerprint,
        extraction=fingerprint,
        settings=settings.digest(),
        generation=before.generation + 1 if before else 0,
        lm=str(getattr(lm, "model", "")),
        passages=len(index),
    )
    if before is not None and _is_current(before, wanted):
        return open_graph(folder)
    with dspy.context(lm=lm):
        read, failed = _read(folder, list(index), extractor, fingerprint, threads, progress)
    if progress:
        progress("resolving", 0, 1)
    _store(folder, settings, wanted, read, failed)
    if progress:
        progress("resolving", 1, 1)
    return open_graph(folder)


def _is_current(before: GraphManifest, wanted: GraphManifest) -> bool:
    same = all(getattr(before, key) == getattr(wanted, key) for key in ("index", "settings"))
    return same and not before.failed


def _read(
    folder: Path,
    passages: Sequence[Passage],
    extractor: Extractor,
    fingerprint: str,
    threads: int,
    progress: Progress | None,
) -> tuple[dict[str, Extraction], list[FailedPassage]]:
    """What every passage states, read now or before, and the passages that cannot be read."""
    keys = {passage.id: reading_key(passage, fingerprint) for passage in passages}
    failed: list[FailedPassage] = []
    with Journal(folder / JOURNAL) as journal:
        known = journal.known(keys.values())
        pending = [p for p in passages if keys[p.id] not in known]
        done, in_a_row = len(passages) - len(pending), 0
        if progress:
            progress("reading", done, len(passages))
        with closing(read_all(extractor, pending, whole("threads", threads))) as outcomes:
            for passage, extraction, error in outcomes:
                if extraction is None:
                    failed.append(FailedPassage(passage=passage.id, error=error))
                else:
                    known[keys[passage.id]] = extraction.model_dump_json()
                    journal.record(keys[passage.id], known[keys[passage.id]])
                done, in_a_row = done + 1, in_a_row + 1 if error else 0
                if in_a_row == min(ABORT_AFTER, len(passages)):
                    raise BuildAborted(folder, in_a_row, error)
                if progress:
                    progress("reading", done, len(passages))
        journal.keep_only(keys.values())
    read = {
        passage.id: Extraction.model_validate_json(known[keys[passage.id]])
        for passage in passages
        if keys[passage.id] in known
    }
    return read, sorted(failed, key=lambda one: one.passage)


def _store(
    folder: Path,
    settings: _Settings,
    wanted: GraphManifest,
    read: Mapping[str, Extraction],
    failed: Sequence[FailedPassage],
) -> None:
    sources = settings.sources({id: extraction.update for id, extraction in read.items()})
    graph = CorpusGraph.from_sources(sources)
    communities = find_communities(graph)
    dropped = Counter(item.cause for extraction in read.values() for item in extraction.dropped)
    filled = {
        "things": len(graph),
        "relations": len(graph.relations),
        "communities": len(communities),
        "labels": tuple(sorted(graph.labels_in_use)),
        "left_out": dict(Counter(graph.tables.left_out["cause"].to_pylist())),
        "dropped": dict(dropped),
        "failed": tuple(failed),
        "unused_overrides": graph.unused_overrides,
    }
    store(folder, graph, communities, wanted.model_copy(update=filled))
    Summaries(folder / SUMMARIES).keep_only(communities)
