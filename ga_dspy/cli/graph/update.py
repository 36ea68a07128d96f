"""`ga-dspy graph update`."""

from __future__ import annotations

import time
from typing import NamedTuple

from rich.table import Table

from ga_dspy.cli.graph.build import (
    BuildArgs,
    agree,
    going_on,
    say_left,
    say_unknown,
    summaries_row,
    summarise,
)
from ga_dspy.cli.graph.files import read_labels
from ga_dspy.cli.graph.tell import facts, number, plain
from ga_dspy.cli.models import choose_lm
from ga_dspy.cli.show import EXTRACTIVE_NOTE
from ga_dspy.graphrag import StoredGraph, estimate_build, open_graph, update_graph
from ga_dspy.retrieval import Index


class Contents(NamedTuple):
    """What a graph holds, to be compared with what it holds later."""

    passages: frozenset[str]
    failed: frozenset[str]
    things: frozenset[str]
    relations: frozenset[tuple[str, str, str]]
    communities: frozenset[str]

    @classmethod
    def of(cls, stored: StoredGraph) -> Contents:
        """Read the contents of a stored graph."""
        graph = stored.graph
        names = graph.tables.nodes["name"].to_pylist()
        wordings = graph.tables.edges["relation"].to_pylist()
        ends = zip(graph.heads.tolist(), wordings, graph.tails.tolist(), strict=True)
        failed = frozenset(one.passage for one in stored.manifest.failed)
        read = {batch.passage for batch in graph.sources.batches if not batch.brought}
        return cls(
            passages=failed | read,
            failed=failed,
            things=frozenset(names),
            relations=frozenset((names[a], wording, names[b]) for a, wording, b in ends),
            communities=frozenset(community.key for community in stored.communities),
        )


def run_update(args: BuildArgs) -> None:
    """Bring a graph up to date, and say what was read, added, deleted and renewed."""
    console = plain()
    # Read before anything changes: the old contents are deleted with the update.
    before = Contents.of(open_graph(args.out))
    labels = read_labels(args.labels)
    index, chosen = Index.open(args.index), choose_lm(args.choice)
    say_unknown(console, labels or {}, index)
    cost = estimate_build(index, args.out, lm=chosen.lm)
    agree(console, args, chosen, cost)
    began = time.perf_counter()
    with going_on(console) as progress:
        stored = update_graph(
            index, args.out, lm=chosen.lm, labels=labels, threads=args.threads, progress=progress
        )
        written = summarise(stored, args, chosen, progress)
    told = _changes(before, stored, cost.calls)
    if written is not None:
        told.add_row("summaries", summaries_row(written))
    told.add_row("seconds", f"{time.perf_counter() - began:.1f}")
    console.print(told)
    say_left(console, stored, written)
    if chosen.is_embedded:
        console.print(EXTRACTIVE_NOTE, style="dim")


def _changes(before: Contents, stored: StoredGraph, read: int) -> Table:
    after = Contents.of(stored)
    new = len(after.passages - before.passages)
    gone = len(before.passages - after.passages)
    again = len(before.failed & after.passages)
    kinds = {"new": new, "changed": read - new - again, "failed before": again}
    told = ", ".join(f"{n:,} {kind}" for kind, n in kinds.items() if n > 0)
    kept = len(before.communities & after.communities)
    return facts(
        [
            ("read", number(read, "passage") + (f": {told}" if told else "")),
            ("deleted", number(gone, "passage")),
            ("things", _moved(before.things, after.things)),
            ("relations", _moved(before.relations, after.relations)),
            ("communities", f"{kept:,} unchanged, {len(after.communities) - kept:,} renewed"),
        ]
    )


def _moved(before: frozenset[object], after: frozenset[object]) -> str:
    """What came, what went, and how many there are."""
    came, went = len(after - before), len(before - after)
    return f"{came:,} added, {went:,} gone: {len(after):,} now"
