"""Tables as CSV: one row a run, every value unrounded, the paper's rows told apart by `source`."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from io import StringIO

from ga_dspy.arena.tables.table import Column, Estimate, Flagged, Table, Value

_BEFORE = ("source", "LM", "method", "dataset")
_AFTER = ("n", "failed", "mark", "protocol")
_DECIMALS = 4


def csv_text(table: Table) -> str:
    """A table as CSV.

    A mean with an interval is three columns: itself, `… low` and `… high`. What there is no value
    for is empty. `source` is "measured" or "paper".
    """
    estimates = [
        any(isinstance(row.values[i], Estimate) for row in table.rows)
        for i in range(len(table.columns))
    ]
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    names = [n for c, e in zip(table.columns, estimates, strict=True) for n in _names(c, e)]
    writer.writerow([*_BEFORE, *names, *_AFTER])
    for row in table.rows:
        values = [
            part
            for value, estimate in zip(row.values, estimates, strict=True)
            for part in _parts(value, estimate)
        ]
        writer.writerow(
            [
                *(row.source, row.lm, row.method, row.dataset),
                *values,
                *(row.n, row.failed, row.mark, row.protocol),
            ]
        )
    return text.getvalue()


def _names(column: Column, estimate: bool) -> Iterator[str]:
    yield column.name
    if estimate:
        yield from (f"{column.name} low", f"{column.name} high")


def _parts(value: Value, estimate: bool) -> Iterator[str | float | None]:
    if isinstance(value, Estimate):
        yield from (round(part, _DECIMALS) for part in value)
        return
    yield _plain(value)
    if estimate:
        yield from (None, None)


def _plain(value: str | float | Flagged | None) -> str | float | None:
    if isinstance(value, Flagged):
        value = value.value
    return round(value, _DECIMALS) if isinstance(value, float) else value
