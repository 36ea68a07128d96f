"""`ga-dspy graph stats`, `paths` and `merges`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ga_dspy.cli.graph.tell import columns, facts, opened, plain, rest
from ga_dspy.errors import InputError
from ga_dspy.graph.paths import MOST_HOPS
from ga_dspy.graphrag import View
from ga_dspy.graphrag.betweenness import central_paths_between
from ga_dspy.graphrag.pathfinding import GraphPath, paths_between, things_named
from ga_dspy.graphrag.stats import Stats, stats

_LETTERS: Final = 20


def run_stats(folder: Path, labels: Sequence[str]) -> None:
    """A caller's graph in figures."""
    stored, view = opened(folder, labels)
    told = stats(view)
    console = plain()
    console.print(
        facts(
            [
                ("graph", f"{folder}, read by {stored.manifest.lm or 'an LM without a name'}"),
                ("things", f"{told.things:,}, of them {told.values:,} dates, numbers or amounts"),
                ("relations", f"{told.relations:,} in {told.wordings:,} wordings"),
                ("passages", f"{told.passages:,} state something"),
                ("parts", f"{told.parts:,}, the largest of {told.largest_part:,} things"),
                ("isolated", f"{told.isolated:,} things without a relation"),
                ("merged", f"{told.merged:,} spellings"),
                ("contradicted", f"{told.contradicted:,} relations"),
            ]
        )
    )
    if told.relations:
        console.print()
        console.print(_ranked(told))


def _ranked(told: Stats) -> RenderableType:
    table = columns(
        "commonest", "n", "central things", "between others", "ways",
        right=("n", "ways"), widest=_LETTERS,
    )  # fmt: skip
    for wording, central, between in zip_longest(told.commonest, told.central, told.between):
        table.add_row(
            Text(wording.name if wording else ""),
            f"{wording.value:,.0f}" if wording else "",
            Text(central.name if central else ""),
            Text(between.name if between else ""),
            f"{between.value:,.0f}" if between else "",
        )
    note = (
        "central: by PageRank; between: by how many shortest ways of at most four relations "
        "pass the thing"
    )
    return Group(table, Text(f"\n{note}", style="dim"))


def run_paths(folder: Path, ends: tuple[str, str], labels: Sequence[str], k: int) -> None:
    """How two things are connected."""
    view = opened(folder, labels).view
    one, other = ends
    if set(things_named(view.graph, one)) & set(things_named(view.graph, other)):
        raise InputError(
            f"{one!r} and {other!r} are the same thing",
            expected="two things",
            remedy="name another",
        )
    console = plain()
    found = paths_between(view, one, other, k)
    if not found:
        console.print(f"no way of at most {MOST_HOPS} relations connects the two")
        return
    console.print("Shortest ways", style="bold cyan")
    console.print(_chains(view, [(path, f"cost {path.cost:.1f}") for path in found]))
    central = central_paths_between(view, one, other, k)
    console.print("\nWays that most others go through", style="bold cyan")
    console.print(_chains(view, [(path, f"betweenness {n:,.1f}") for path, n in central]))


def _chains(view: View, told: Sequence[tuple[GraphPath, str]]) -> Table:
    """Paths, each over its figure and the passages that state it."""
    table = Table.grid(padding=(0, 1))
    table.add_column(justify="right", no_wrap=True)
    table.add_column(overflow="fold")
    for number, (path, figure) in enumerate(told, 1):
        stated = dict.fromkeys(p for edge in path.edges for p in view.graph.passages_of_edge(edge))
        arrows = path.text.replace(" -> ", " → ").replace(" <- ", " ← ")
        passages = f"; passages {', '.join(stated)}" if stated else ""
        table.add_row(f"{number}.", Text.assemble(f"{arrows}\n", (f"{figure}{passages}", "dim")))
    return table


def run_merges(folder: Path, labels: Sequence[str], most: int) -> None:
    """Which spellings were taken for another name of a thing."""
    found = list(opened(folder, labels).view.graph.merges)
    console = plain()
    if not found:
        console.print("no spelling was taken for another name of a thing")
        return
    table = columns("spelling", "taken for", "rule", "passages")
    for merge in found[:most]:
        passages = ", ".join(merge.passages)
        table.add_row(Text(merge.spelling), Text(merge.name), merge.rule, Text(passages))
    console.print(table)
    rest(console, min(most, len(found)), len(found))
