"""`ga-dspy graph build`."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import typer
from rich.console import Console
from rich.prompt import Confirm
from rich.table import Table

from ga_dspy.cli.build import building
from ga_dspy.cli.graph.files import BroughtFiles, read_brought, read_labels, read_rules
from ga_dspy.cli.graph.tell import facts, number, plain, some
from ga_dspy.cli.models import Choice, ChosenLM, choose_lm
from ga_dspy.cli.show import EXTRACTIVE_NOTE
from ga_dspy.errors import InputError
from ga_dspy.graphrag import StoredGraph, Summaries, build_graph, estimate_build
from ga_dspy.graphrag.estimate import Estimate
from ga_dspy.graphrag.store import SUMMARIES, read_manifest
from ga_dspy.graphrag.summaries import Summary
from ga_dspy.retrieval import Index
from ga_dspy.retrieval.manifest import MANIFEST

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class BuildArgs:
    """The arguments of a build or an update, as on the command line."""

    index: Path
    out: Path
    choice: Choice = field(default_factory=Choice)
    threads: int = 8
    rules: Path | None = None
    labels: Path | None = None
    bring: Sequence[Path] = ()
    summaries: bool = False
    yes: bool = False


def run_build(args: BuildArgs) -> None:
    """Estimate, ask, read, and say what came of it."""
    console = plain()
    rules, labels = read_rules(args.rules), read_labels(args.labels) or {}
    index, chosen = Index.open(args.index), choose_lm(args.choice)
    brought, private = read_brought(args.bring, index), _labels_of(args.out)
    say_unknown(console, labels, index)
    agree(console, args, chosen, estimate_build(index, args.out, lm=chosen.lm))
    began = time.perf_counter()
    with going_on(console) as progress:
        stored = build_graph(
            index, args.out, lm=chosen.lm, rules=rules, labels=labels, brought=brought.batches,
            threads=args.threads, progress=progress,
        )  # fmt: skip
        written = summarise(stored, args, chosen, progress)
    console.print(_summary(stored, brought, written, time.perf_counter() - began))
    say_left(console, stored, written)
    some(console, "not brought", brought.rejected, style="yellow")
    open_now = sorted(private - set(stored.manifest.labels))
    some(console, "label that hides nothing any more", open_now, style="yellow")
    if chosen.is_embedded:
        console.print(EXTRACTIVE_NOTE, style="dim")


def agree(console: Console, args: BuildArgs, chosen: ChosenLM, cost: Estimate) -> None:
    """Show the estimate, and ask where there is something to pay.

    Raises:
        InputError: Nobody can be asked, and `--yes` was not given.
        Exit: The answer was no.
    """
    console.print(f"to read: {worded(cost)}", markup=False)
    if args.summaries:
        console.print("summaries: one or two more calls for each community that has none")
    if chosen.is_embedded or args.yes or not (cost.calls or args.summaries):
        return
    if not (console.is_terminal and os.isatty(0)):
        raise InputError(
            "there is no terminal to ask whether to go on", expected="--yes", remedy="add --yes"
        )
    if not Confirm.ask(f"ask {chosen.name}?", console=console):
        raise typer.Exit(1)


def worded(cost: Estimate) -> str:
    """An estimate in words."""
    if not cost.calls:
        return f"nothing, all {cost.finished:,} passages were read before"
    before = f"; {cost.finished:,} were read before" if cost.finished else ""
    calls = f"{number(cost.calls, 'passage')}, about {number(cost.calls, 'LM call')}"
    return f"{calls} and {cost.tokens:,} tokens ({cost.completion_tokens:,} written){before}"


@contextmanager
def going_on(console: Console) -> Iterator[Progress]:
    """A progress bar, which may be stopped: nothing that was read is lost."""
    console.print("stop when you like: the same command goes on where it stopped", style="dim")
    try:
        with building(console) as progress:
            yield progress
    except KeyboardInterrupt:
        console.print("stopped; what was read is kept")
        raise


def summarise(
    stored: StoredGraph, args: BuildArgs, chosen: ChosenLM, progress: Progress
) -> Mapping[str, Summary | str] | None:
    """Have the communities without a summary summarised, where that is asked for."""
    if not args.summaries:
        return None
    return Summaries(stored.path / SUMMARIES).of(
        stored.graph, stored.communities, lm=chosen.lm, threads=args.threads, progress=progress
    )


def say_unknown(console: Console, labels: Mapping[str, object], index: Index) -> None:
    """Name the labelled passages that the index does not hold: perhaps ids are misspelled."""
    unknown = sorted(labels.keys() - {passage.id for passage in index})
    some(console, "labelled, but not in the index", unknown, style="yellow")


def say_left(
    console: Console, stored: StoredGraph, written: Mapping[str, Summary | str] | None
) -> None:
    """Name what could not be read, summarised or used."""
    manifest = stored.manifest
    some(console, "failed", [f"{f.passage}: {f.error}" for f in manifest.failed], style="red")
    if manifest.failed:
        console.print("run the same command again to ask for the failed ones once more")
    place = {community.key: n for n, community in enumerate(stored.communities)}
    without = [
        f"community {place[key]}: {error}"
        for key, error in (written or {}).items()
        if isinstance(error, str)
    ]
    some(console, "not summarised", without, style="red")
    some(console, "override not used", manifest.unused_overrides, style="yellow")


def summaries_row(written: Mapping[str, Summary | str]) -> str:
    """How many communities have a summary."""
    good = sum(isinstance(summary, Summary) for summary in written.values())
    return f"{good:,} of {len(written):,} communities"


def _labels_of(folder: Path) -> set[str]:
    """The labels in use in a graph that is there already."""
    return set(read_manifest(folder).labels) if (folder / MANIFEST).is_file() else set()


def _summary(
    stored: StoredGraph,
    brought: BroughtFiles,
    written: Mapping[str, Summary | str] | None,
    seconds: float,
) -> Table:
    manifest = stored.manifest
    rows = [
        ("things", f"{manifest.things:,}"),
        ("relations", f"{manifest.relations:,}"),
        ("communities", f"{manifest.communities:,}"),
    ]
    if written is not None:
        rows.append(("summaries", summaries_row(written)))
    if brought.batches or brought.rejected:
        rejected = f", {len(brought.rejected):,} rejected" if brought.rejected else ""
        rows.append(("brought", number(len(brought.batches), "triple") + rejected))
    if manifest.labels:
        rows.append(("labels", ", ".join(manifest.labels)))
    rows += [
        ("kept out", counted(manifest.left_out)),
        ("unsupported", counted(manifest.dropped)),
        ("failed", f"{len(manifest.failed):,} of {manifest.passages:,} passages"),
        ("seconds", f"{seconds:.1f}"),
        ("graph", str(stored.path)),
    ]
    return facts(rows)


def counted(causes: Mapping[str, int]) -> str:
    """Counts by cause, the most first; "" where there are none.

    >>> counted({"too little evidence": 2, "low confidence": 3})
    '3 low confidence, 2 too little evidence'
    """
    ranked = sorted(causes.items(), key=lambda pair: (-pair[1], pair[0]))
    return ", ".join(f"{n:,} {cause}" for cause, n in ranked)
