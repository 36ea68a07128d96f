"""`ga-dspy graph build` and `update`: the graph of a corpus, and the files that shape it."""

from __future__ import annotations

import os
import time
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, TypeVar

import dspy
import typer
from pydantic import TypeAdapter, ValidationError
from rich.prompt import Confirm

from ga_dspy.cli.choices import ApiBase, IndexDir, Model, Timeout, Yes, choose_lm
from ga_dspy.cli.console import Console, building, facts, number, plain, say_embedded, some
from ga_dspy.errors import InputError
from ga_dspy.graphrag import (
    Rules,
    StoredGraph,
    Summaries,
    build_graph,
    estimate_build,
    update_graph,
)
from ga_dspy.graphrag.build import Estimate
from ga_dspy.graphrag.communities import Summary
from ga_dspy.graphrag.store import SUMMARIES, GraphManifest, read_manifest
from ga_dspy.lm.endpoints import EMBEDDED
from ga_dspy.retrieval import Index
from ga_dspy.storage import MANIFEST

ReadingThreads = Annotated[int, typer.Option("--threads", min=1, help="Passages read at once.")]
WithSummaries = Annotated[
    bool, typer.Option("--summaries", help="Have the LM summarise every community.")
]
LabelsFile = Annotated[
    Path | None,
    typer.Option(help="Who may see what: JSON of passage ids with lists of labels."),
]


def build(
    index: IndexDir,
    out: Annotated[Path, typer.Option(help="Folder of the graph.")],
    lm: Model = None,
    api_base: ApiBase = None,
    timeout: Timeout = None,
    threads: ReadingThreads = 8,
    rules: Annotated[
        Path | None, typer.Option(help="What may enter, what is flagged or private; see below.")
    ] = None,
    labels: LabelsFile = None,
    summaries: WithSummaries = False,
    yes: Yes = False,
) -> None:
    """Read every passage of an index into one graph.

    Run it again to go on where it stopped: a passage that was read is never asked for again,
    whatever stopped the build. Rules and labels count as this command gives them: with other ones,
    run it again, and no LM is asked.

    Examples:
        ga-dspy graph build --index my-index --out my-graph --rules rules.json

    A file for --rules is JSON; each part may be left out:

      {"min_confidence": 0.5,
       "relations": ["born in", "wrote"],
       "critical": ["died in"],
       "single_valued": ["born in"],
       "single_dated": ["founded"],
       "relation_labels": {"salary": ["hr"]},
       "overrides": {
         "same":  [["Bob Dylan", "Robert Zimmerman"]],
         "apart": [["Avon", {"name": "Bristol Avon", "passage": "p7"}]]}}

      min_confidence   leave out relations stated with less
      relations        leave out all other relations
      critical         leave out these unless two passages state them
      single_valued    flag a second one of an entity as a contradiction
      single_dated     flag a second year of one as a contradiction
      relation_labels  labels that a caller needs to see a relation
      overrides        names that are one entity, or two; a name may be
                       meant in one passage alone

    single_valued and single_dated replace the lists that count without them.
    "was born in" is "born in" throughout.
    """
    model, passages = choose_lm(lm, api_base, timeout), Index.open(index)
    make = partial(build_graph, rules=read_rules(rules), labels=read_labels(labels))
    before = read_manifest(out) if (out / MANIFEST).is_file() else None
    _carry_out(make, passages, out, model, before, threads=threads, summaries=summaries, yes=yes)


def update(
    index: IndexDir,
    graph: Annotated[Path, typer.Option(help="Folder of the graph.")],
    lm: Model = None,
    api_base: ApiBase = None,
    timeout: Timeout = None,
    threads: ReadingThreads = 8,
    labels: LabelsFile = None,
    summaries: WithSummaries = False,
    yes: Yes = False,
) -> None:
    """Bring a graph up to date with its index.

    Only new and changed passages are read. Rules and, unless --labels is given, labels stay as they
    were built.

    Examples:
        ga-dspy graph update --index my-index --graph my-graph
    """
    model, passages = choose_lm(lm, api_base, timeout), Index.open(index)
    make, before = partial(update_graph, labels=read_labels(labels)), read_manifest(graph)
    _carry_out(make, passages, graph, model, before, threads=threads, summaries=summaries, yes=yes)


def _carry_out(
    make: partial[StoredGraph],
    index: Index,
    folder: Path,
    lm: dspy.LM,
    before: GraphManifest | None,
    *,
    threads: int,
    summaries: bool,
    yes: bool,
) -> None:
    """Say what it will cost, read and store, say what there is now and what went wrong."""
    console = plain()
    unknown = sorted((make.keywords["labels"] or {}).keys() - {passage.id for passage in index})
    some(console, "labelled, but not in the index", unknown, style="yellow")
    cost = estimate_build(index, folder, lm=lm)
    _agree(console, cost, lm, summaries=summaries, yes=yes)
    began, written = time.perf_counter(), dict[str, Summary | str]()
    with _reading(console) as progress:
        stored = make(index, folder, lm=lm, threads=threads, progress=progress)
        if summaries:
            written = Summaries(stored.path / SUMMARIES).of(
                stored.graph, stored.communities, lm=lm, threads=threads, progress=progress
            )
    now, of_all = stored.manifest, f"of {len(stored.communities):,} communities"
    failed = {key: error for key, error in written.items() if isinstance(error, str)}
    rows = [("read", number(cost.calls, "passage"))]
    for what in ("passages", "entities", "relations", "communities"):
        then = f", before {getattr(before, what):,}" if before else ""
        rows.append((what, f"{getattr(now, what):,}{then}"))
    rows += [
        ("summaries", f"{len(written) - len(failed):,} {of_all}" if summaries else ""),
        ("labels", ", ".join(now.labels)),
        ("kept out", counted(now.left_out)),
        ("unsupported", counted(now.dropped)),
        ("failed", f"{len(now.failed):,} of {now.passages:,} passages"),
        ("seconds", f"{time.perf_counter() - began:.1f}"),
        ("graph", str(stored.path)),
    ]
    console.print(facts(rows))
    some(console, "failed", [f"{f.passage}: {f.error}" for f in now.failed], style="red")
    if now.failed:
        console.print("run the same command again to ask for the failed ones once more")
    place = {community.key: n for n, community in enumerate(stored.communities)}
    lines = [f"community {place[key]}: {error}" for key, error in failed.items()]
    some(console, "not summarised", lines, style="red")
    some(console, "override not used", now.unused_overrides, style="yellow")
    open_now = sorted({*(before.labels if before else ())} - {*now.labels})
    some(console, "label that hides nothing any more", open_now, style="yellow")
    say_embedded(console, lm)


def _agree(console: Console, cost: Estimate, lm: dspy.LM, *, summaries: bool, yes: bool) -> None:
    """Show the estimate, and ask where there is something to pay.

    Raises:
        InputError: Nobody can be asked, and `--yes` was not given.
        Exit: The answer was no.
    """
    before = f"; {cost.finished:,} were read before" if cost.finished else ""
    calls = f"{number(cost.calls, 'passage')}, about {number(cost.calls, 'LM call')}"
    words = (
        f"{calls} and {cost.tokens:,} tokens ({cost.completion_tokens:,} written){before}"
        if cost.calls
        else f"nothing, all {cost.finished:,} passages were read before"
    )
    console.print(f"to read: {words}", markup=False)
    if summaries:
        console.print("summaries: one or two more calls for each community that has none")
    if lm.model == EMBEDDED or yes or not (cost.calls or summaries):
        return
    if not (console.is_terminal and os.isatty(0)):
        raise InputError(
            "there is no terminal to ask whether to go on", expected="--yes", remedy="add --yes"
        )
    if not Confirm.ask(f"ask {lm.model}?", console=console):
        raise typer.Exit(1)


@contextmanager
def _reading(console: Console) -> Iterator[Callable[[str, int, int], None]]:
    """A progress bar, which may be stopped: nothing that was read is lost."""
    console.print("stop when you like: the same command goes on where it stopped", style="dim")
    try:
        with building(console) as progress:
            yield progress
    except KeyboardInterrupt:
        console.print("stopped; what was read is kept")
        raise


def counted(causes: Mapping[str, int]) -> str:
    """Counts by cause, the most first; "" where there are none.

    >>> counted({"too little evidence": 2, "low confidence": 3})
    '3 low confidence, 2 too little evidence'
    """
    ranked = sorted(causes.items(), key=lambda pair: (-pair[1], pair[0]))
    return ", ".join(f"{n:,} {cause}" for cause, n in ranked)


_RULES, _LABELS = TypeAdapter(Rules), TypeAdapter(dict[str, frozenset[str]])
_Read = TypeVar("_Read")


def _from_json(path: Path, kind: TypeAdapter[_Read], expected: str) -> _Read:
    """What a JSON file holds.

    Raises:
        InputError: It is missing, no JSON, or holds something else.
    """
    remedy = "see ga-dspy graph build --help"
    try:
        return kind.validate_json(path.read_bytes().removeprefix(BOM_UTF8))
    except OSError as error:
        found = (error.strerror or str(error)).lower()
        raise InputError(f"{path}: {found}", expected=expected, remedy=remedy) from error
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        found = f"{place}: {first['msg']}" if place else first["msg"]
        raise InputError(f"{path}: {found}", expected=expected, remedy=remedy) from error


def read_rules(path: Path | None) -> Rules:
    """The rules in a file; no file, no rules but the usual ones."""
    return _from_json(path, _RULES, "a JSON object of rules") if path else Rules()


def read_labels(path: Path | None) -> dict[str, frozenset[str]] | None:
    """The labels of passages in a file; None where there is no file."""
    return _from_json(path, _LABELS, 'JSON such as {"p1": ["hr"]}') if path else None
