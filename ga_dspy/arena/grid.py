"""A table as lines of texts: datasets side by side, and what is the same in all told once."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from ga_dspy.arena.cells import NONE, counted, escaped, marked, shown
from ga_dspy.arena.tables.table import AVERAGE, Row, Table

_BY_DATASET = " by dataset"

Kind = Literal["key", "context", "text", "number"]


@dataclass(frozen=True)
class Heading:
    """A column's name and what it holds; numbers stand to the right."""

    name: str
    kind: Kind


@dataclass(frozen=True)
class Line:
    """The cells of a line, and whether the paper's numbers are in it."""

    cells: tuple[str, ...]
    paper: bool


@dataclass(frozen=True)
class Grid:
    """A table of texts.

    Attributes:
        headings: The columns.
        lines: The rows.
        same: What is so in every row, as phrases.
        empty: Columns that no row has anything in.
    """

    headings: tuple[Heading, ...]
    lines: tuple[Line, ...]
    same: tuple[str, ...] = ()
    empty: tuple[str, ...] = ()


def grid(table: Table) -> Grid:
    """A table as a person reads it, without columns that say one thing all the way down."""
    return _without_repetition(_across(table) if table.across else _long(table))


def _long(table: Table) -> Grid:
    lines = tuple(
        Line(
            (
                marked(escaped(row.method), row.mark),
                _lm(row),
                escaped(row.dataset),
                *(shown(v, c) for v, c in zip(row.values, table.columns, strict=True)),
                counted(row.n),
                counted(row.failed),
            ),
            row.source == "paper",
        )
        for row in table.rows
    )
    columns = [Heading(c.name, "text" if c.form == "text" else "number") for c in table.columns]
    return Grid((*_keys(), Heading("Dataset", "context"), *columns, *_counts("")), lines)


def _across(table: Table) -> Grid:
    """One line a method and LM, the average of the datasets last."""
    datasets = list(dict.fromkeys(row.dataset for row in table.rows if row.dataset != AVERAGE))
    found: dict[tuple[str, str, str], dict[str, Row]] = {}
    for row in table.rows:
        found.setdefault((row.source, row.lm, row.method), {})[row.dataset] = row
    lines = tuple(
        Line(_side_by_side(table, by_dataset, datasets), source == "paper")
        for (source, _, _), by_dataset in found.items()
    )
    alone = len(datasets) == 1
    names = [
        column.name if alone else f"{dataset} {column.name}"
        for dataset in _shown(table, datasets)
        for column in table.columns
    ]
    headings = (*_keys(), *(Heading(name, "number") for name in names))
    counts = _counts("" if alone else _BY_DATASET)
    return Grid((*headings, *counts), lines, same=(datasets[0],) if alone else ())


def _keys() -> tuple[Heading, Heading]:
    return Heading("Method", "key"), Heading("LM", "context")


def _counts(suffix: str) -> tuple[Heading, Heading]:
    return Heading(f"n{suffix}", "number"), Heading(f"Failed{suffix}", "number")


def _shown(table: Table, datasets: Sequence[str]) -> list[str]:
    averaged = any(row.dataset == AVERAGE for row in table.rows)
    return [*datasets, *([AVERAGE] if averaged else [])]


def _side_by_side(
    table: Table, by_dataset: dict[str, Row], datasets: Sequence[str]
) -> tuple[str, ...]:
    first = next(iter(by_dataset.values()))
    cells = [escaped(first.method), _lm(first)]
    for dataset in _shown(table, datasets):
        row = by_dataset.get(dataset)
        values = row.values if row else [None] * len(table.columns)
        texts = [shown(v, c) for v, c in zip(values, table.columns, strict=True)]
        # A mark belongs to one run, so to its number and not to the method.
        cells += [marked(texts[0], row.mark if row else ""), *texts[1:]]
    rows = [by_dataset.get(dataset) for dataset in datasets]
    counts = [counted(row.n if row else None) for row in rows]
    failed = [counted(row.failed if row else None) for row in rows]
    return (*cells, *(NONE if set(c) == {NONE} else " / ".join(c) for c in (counts, failed)))


def _lm(row: Row) -> str:
    return escaped(f"paper, {row.lm}" if row.source == "paper" else row.lm)


def _without_repetition(whole: Grid) -> Grid:
    kept, same, empty = [], list(whole.same), list(whole.empty)
    for position, heading in enumerate(whole.headings):
        found = {line.cells[position] for line in whole.lines}
        phrase = _phrase(heading, found, len(whole.lines))
        if found == {NONE} and heading.kind in ("number", "text"):
            empty += [heading.name] * (not _is_count(heading))
        elif phrase:
            same.append(phrase)
        else:
            kept.append(position)
    return replace(
        whole,
        headings=tuple(whole.headings[i] for i in kept),
        lines=tuple(replace(ln, cells=tuple(ln.cells[i] for i in kept)) for ln in whole.lines),
        same=tuple(same),
        empty=tuple(empty),
    )


def _is_count(heading: Heading) -> bool:
    return heading.name.removesuffix(_BY_DATASET) in ("n", "Failed")


def _phrase(heading: Heading, found: set[str], lines: int) -> str:
    """What a column says if it says one thing only; empty if not."""
    name = heading.name.removesuffix(_BY_DATASET)
    if name == "Failed":
        # The paper tells no failures: its dashes are no reason to keep a column of zeros.
        return "" if any(re.search("[1-9]", text) for text in found) else "0 failed"
    if len(found) > 1:
        return ""
    (text,) = found
    if name == "n":
        return f"n = {text}"
    if heading.kind == "context":
        return text
    return f"{name}: {text}" if heading.kind == "text" and lines > 1 else ""
