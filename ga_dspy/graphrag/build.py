"""Building a corpus graph in a folder, and bringing it up to date.

Both read what has not been read, then make the graph from all records: an update asks the LM for
new and changed passages only, and gives the graph that a build from scratch would give.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import dspy

from ga_dspy.cluster import spread
from ga_dspy.errors import InputError, RunAborted
from ga_dspy.graphrag.communities import Summaries, find_communities
from ga_dspy.graphrag.corpus_graph import CorpusGraph
from ga_dspy.graphrag.extraction import (
    Extraction,
    Extractor,
    FinishedSteps,
    chosen_lm,
    digest_of,
    no_lm,
    outcome_of,
    reading_key,
)
from ga_dspy.graphrag.records import Rules, Sources
from ga_dspy.graphrag.store import (
    CALLS,
    JOURNAL,
    SUMMARIES,
    VECTORS,
    FailedPassage,
    GraphManifest,
    StoredGraph,
    open_graph,
    read_manifest,
    store,
)
from ga_dspy.lm.adapters import PlainAdapter
from ga_dspy.lm.store import CallStore
from ga_dspy.lm.wrapper import wrap_for_work
from ga_dspy.passage import Passage
from ga_dspy.programs.settings import check_whole
from ga_dspy.retrieval import Index
from ga_dspy.retrieval.store import not_empty, writing
from ga_dspy.signatures.prompt import render_passage
from ga_dspy.storage import MANIFEST
from ga_dspy.text import estimate_tokens

Progress = Callable[[str, int, int], None]
"""Called with a stage's name, the units done and the units in all."""

ABORT_AFTER: Final = 20
"""So many failures in a row mean that the LM is down."""


def build_graph(
    index: Index,
    out: Path | str,
    *,
    lm: Any = None,
    extractor: Extractor | None = None,
    rules: Rules | None = None,
    labels: Mapping[str, Iterable[str]] | None = None,
    threads: int = 8,
    progress: Progress | None = None,
) -> StoredGraph:
    """Read all passages of an index and store the graph of what they state.

    A build that was stopped, by Ctrl-C or `kill -9`, goes on where it stopped; passages that were
    read are never asked for again. Building again with other rules or labels asks the
    LM for nothing.

    Args:
        index: The passages.
        out: The folder; made where it is absent.
        lm: The LM that reads them; by default the extractor's or the configured one.
        extractor: How a passage is read.
        rules: What may enter, what is flagged, what is private.
        labels: The labels of passages that not everybody may see, by passage id.
        threads: Passages read at once.
        progress: Called with a stage's name, units done and units in all.

    Returns:
        The stored graph; `manifest.failed` lists passages that could not be read.

    Raises:
        InputError: There is no LM, the folder's passages were read by another one, or the folder
            holds something else.
        RunAborted: Passage after passage could not be read; what was read is kept.
        InUse: Another process builds there.
    """
    folder = Path(out)
    ours = (".lock", MANIFEST, f".{MANIFEST}", JOURNAL, SUMMARIES, CALLS, VECTORS, "contents-")
    with writing(folder):
        for path in sorted(folder.iterdir()):
            if not path.name.startswith(ours):
                raise not_empty(folder, repr(path.name))
        settings = Sources.of((), labels or {}, rules or Rules())
        return _build(folder, index, settings, extractor or Extractor(), lm, threads, progress)


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
        InputError: There is no graph in the folder, no LM, or another one read the passages.
        RunAborted: Passage after passage could not be read; what was read is kept.
    """
    folder = Path(out)
    with writing(folder):
        before = open_graph(folder).graph.sources
        settings = Sources.of((), before.labels if labels is None else labels, before.rules)
        return _build(folder, index, settings, extractor or Extractor(), lm, threads, progress)


def _build(
    folder: Path,
    index: Index,
    settings: Sources,
    extractor: Extractor,
    lm: Any,
    threads: int,
    progress: Progress | None,
) -> StoredGraph:
    """Read, resolve and store; `settings` has rules and labels."""
    lm = chosen_lm(lm, extractor.extract)
    if lm is None:
        raise no_lm()
    progress = progress or (lambda stage, done, units: None)
    # Sets as sorted lists, so that equal settings have one digest.
    digest = digest_of([settings.rules.model_dump(), settings.labels], default=sorted)
    reading, generation = extractor.fingerprint(lm), 0
    if (folder / MANIFEST).is_file():
        before = read_manifest(folder)
        if before.extraction != reading:
            raise InputError(
                f"the passages of the graph in {folder} were read by {before.lm or 'another LM'} "
                "or under other instructions or settings",
                expected="the same, since the records of two do not mix",
                remedy="pass the same LM and extractor, or build into another folder",
            )
        same = before.index == index.fingerprint and before.settings == digest
        if same and not before.failed and before.is_intact(folder):
            return open_graph(folder)
        generation = before.generation + 1
    with dspy.context(lm=lm):
        read, failed = _read(folder, list(index), extractor, reading, threads, progress)
    progress("resolving", 0, 1)
    graph = CorpusGraph.of(
        {id: extraction.update for id, extraction in read.items()},
        labels=settings.labels,
        rules=settings.rules,
    )
    communities = find_communities(graph)
    dropped = (item.cause for extraction in read.values() for item in extraction.dropped)
    manifest = GraphManifest(
        generation=generation,
        index=index.fingerprint,
        extraction=reading,
        settings=digest,
        lm=str(getattr(lm, "model", "")),
        passages=len(index),
        entities=len(graph),
        relations=len(graph.heads),
        communities=len(communities),
        labels=tuple(sorted(graph.labels_in_use)),
        left_out=graph.left_out,
        dropped=Counter(dropped),
        failed=tuple(failed),
        unused_overrides=graph.unused_overrides,
    )
    store(folder, graph, communities, manifest)
    Summaries(folder / SUMMARIES).keep_only(communities)
    progress("resolving", 1, 1)
    return open_graph(folder)


def _read(
    folder: Path,
    passages: Sequence[Passage],
    extractor: Extractor,
    fingerprint: str,
    threads: int,
    progress: Progress,
) -> tuple[dict[str, Extraction], list[FailedPassage]]:
    """What every passage states, read now or before, and the passages that cannot be read."""

    def lm_for(passage: Passage) -> Any:
        return wrap_for_work(dspy.settings.lm, calls, keys[passage.id])

    read = partial(_outcome, extractor)
    keys = {passage.id: reading_key(passage, fingerprint) for passage in passages}
    failed: list[FailedPassage] = []
    with (
        FinishedSteps(folder / JOURNAL) as journal,
        CallStore(folder / CALLS, "graph build", is_temporary=True) as calls,
    ):
        known = journal.known(Extraction)
        pending = [passage for passage in passages if keys[passage.id] not in known]
        done, in_a_row = len(passages) - len(pending), 0
        progress("reading", done, len(passages))
        check_whole("threads", threads)
        with closing(spread(read, pending, threads, lm_for=lm_for)) as outcomes:
            for passage, outcome in outcomes:
                if isinstance(outcome, str):
                    failed.append(FailedPassage(passage=passage.id, error=outcome))
                    in_a_row += 1
                else:
                    known[keys[passage.id]] = outcome
                    journal.record(keys[passage.id], outcome)
                    in_a_row = 0
                calls.forget(keys[passage.id])
                if in_a_row == min(ABORT_AFTER, len(passages)):
                    raise RunAborted(
                        f"{in_a_row} passages in a row could not be read, the last because of "
                        f"{outcome}",
                        expected="an LM that answers",
                        remedy=f"check it, then run the same build again: {folder} keeps what was "
                        "read",
                    )
                done += 1
                progress("reading", done, len(passages))
        journal.keep_only(keys.values())
    extractions = {id: known[key] for id, key in keys.items() if key in known}
    return extractions, sorted(failed, key=lambda one: one.passage)


def _outcome(extractor: Extractor, passage: Passage) -> tuple[Passage, Extraction | str]:
    return passage, outcome_of(lambda: extractor(passage=passage).extraction)


# --- What a build will cost, before it is begun.


class Estimate(NamedTuple):
    """What a build will ask of the LM, without second attempts.

    Attributes:
        calls: Passages that have not been read yet.
        prompt_tokens: Tokens sent.
        completion_tokens: Tokens written, about as many as the passages hold.
        finished: Passages that need no call.
    """

    calls: int
    prompt_tokens: int
    completion_tokens: int
    finished: int

    @property
    def tokens(self) -> int:
        """All tokens."""
        return self.prompt_tokens + self.completion_tokens


def estimate_build(
    index: Index | Sequence[Passage],
    out: Path | str | None = None,
    *,
    lm: Any = None,
    extractor: Extractor | None = None,
) -> Estimate:
    """Estimate the calls and tokens of a build before it is begun.

    Args:
        index: The passages.
        out: The folder of the graph, where passages may have been read already.
        lm: As for `build_graph`.
        extractor: As for `build_graph`.
    """
    extractor = extractor or Extractor()
    passages = list(index)
    if out is not None and (Path(out) / JOURNAL).is_file():
        fingerprint = extractor.fingerprint(lm)
        with FinishedSteps(Path(out) / JOURNAL) as journal:
            known = journal.known(Extraction)
        passages = [p for p in passages if reading_key(p, fingerprint) not in known]
    held = sum(estimate_tokens(render_passage(1, passage)) for passage in passages)
    adapter = dspy.settings.adapter or PlainAdapter()
    predictor = extractor.extract
    messages = adapter.format(predictor.signature, predictor.demos, {"passages": ""})
    framing = sum(estimate_tokens(str(message["content"])) for message in messages)
    calls = len(passages)
    return Estimate(calls, framing * calls + held, held, len(index) - calls)
