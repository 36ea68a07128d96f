"""Tables as Markdown that reads well raw and rendered."""

from __future__ import annotations

from collections.abc import Sequence

from ga_dspy.arena.grid import Grid, grid
from ga_dspy.arena.tables.table import Table

_IN_A_SENTENCE = 6
_NARROWEST = 3


def markdown(table: Table) -> str:
    """A table with its heading, what it shows, what its numbers are over, and its notes."""
    drawn = grid(table)
    over = [*drawn.same, *([f"F1 by {table.score}"] if table.score else [])]
    notes = list(table.notes)
    if drawn.empty:
        notes.append(f"Left out, as no row has them: {', '.join(drawn.empty)}.")
    parts = [f"## {table.title}", table.about, *_over(over), _drawn(drawn), *_listed(notes)]
    return "\n\n".join(parts) + "\n"


def _over(phrases: Sequence[str]) -> list[str]:
    if len(phrases) > _IN_A_SENTENCE:
        return ["The same for all:", *_listed(phrases)]
    return [f"{'; '.join(phrases)}."] if phrases else []


def _listed(texts: Sequence[str]) -> list[str]:
    return ["\n".join(f"- {text}" for text in texts)] if texts else []


def _drawn(drawn: Grid) -> str:
    names = [heading.name for heading in drawn.headings]
    left = [heading.kind != "number" for heading in drawn.headings]
    lines = [[f"*{cell}*" if line.paper else cell for cell in line.cells] for line in drawn.lines]
    widths = [max(_NARROWEST, *map(len, cells)) for cells in zip(names, *lines, strict=True)]
    rules = [
        "-" * width if text else "-" * (width - 1) + ":"
        for width, text in zip(widths, left, strict=True)
    ]
    return "\n".join(_line(cells, widths, left) for cells in (names, rules, *lines))


def _line(cells: Sequence[str], widths: Sequence[int], left: Sequence[bool]) -> str:
    padded = (
        cell.ljust(width) if text else cell.rjust(width)
        for cell, width, text in zip(cells, widths, left, strict=True)
    )
    return f"| {' | '.join(padded)} |"
