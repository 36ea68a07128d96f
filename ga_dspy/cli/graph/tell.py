"""How the graph commands print, and how they open a graph as a caller sees it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ga_dspy.graphrag import Access, StoredGraph, View, open_graph

_NAMED = 10


class Opened(NamedTuple):
    """A stored graph, and what a caller may see of it."""

    stored: StoredGraph
    view: View


def plain() -> Console:
    """A console that colours nothing of its own accord."""
    return Console(highlight=False)


def opened(folder: Path, labels: Iterable[str]) -> Opened:
    """Open a graph as a caller with labels sees it; labels that hide nothing are named."""
    stored = open_graph(folder)
    held = frozenset(labels)
    unknown = sorted(held - stored.graph.labels_in_use)
    if unknown:
        note = f"nothing in {folder} needs the label {', '.join(unknown)}"
        Console(stderr=True).print(note, style="yellow", markup=False, soft_wrap=True)
    return Opened(stored, stored.graph.visible(Access(labels=held)))


def facts(rows: Iterable[tuple[str, str | Text]]) -> Table:
    """Two columns, what and how much; rows with nothing to say are left out."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows:
        if value:
            table.add_row(name, value if isinstance(value, Text) else Text(value))
    return table


def columns(*headings: str, right: Sequence[str] = (), widest: int | None = None) -> Table:
    """An airy table.

    Args:
        headings: Of its columns.
        right: Those of figures.
        widest: The most letters of a text, which is then cut rather than wrapped.
    """
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for heading in headings:
        if heading in right:
            table.add_column(heading, justify="right", no_wrap=True)
        elif widest:
            table.add_column(heading, no_wrap=True, overflow="ellipsis", max_width=widest)
        else:
            table.add_column(heading, overflow="fold")
    return table


def number(count: int, what: str) -> str:
    """A count with its noun.

    >>> number(1, "passage"), number(1200, "passage")
    ('1 passage', '1,200 passages')
    """
    return f"{count:,} {what}" + ("s" if count != 1 else "")


def some(console: Console, what: str, items: Sequence[str], *, style: str = "") -> None:
    """The first few items, a line each, and how many more there are."""
    for item in items[:_NAMED]:
        console.print(f"{what}: {item}", style=style, markup=False, soft_wrap=True)
    if len(items) > _NAMED:
        console.print(f"{what}: {len(items) - _NAMED:,} more", style=style)


def rest(console: Console, shown: int, whole: int) -> None:
    """How many were not listed, and how to see them."""
    if shown < whole:
        console.print(f"… and {whole - shown:,} more (--most {whole})", style="dim")
