"""Rich display in notebooks: short tables of escaped text, without scripts.

>>> table(("name", "of"), [("<b>", "x" * 500)], most=0)
'<p>… and 1 more</p>'
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from ga_dspy.text import visible

_LONGEST, _MOST = 300, 20


def line(text: object, *, bold: bool = False) -> str:
    """Return a line of text as HTML; a long text is cut."""
    tag = "b" if bold else "span"
    return f"<div><{tag}>{_cut(text)}</{tag}></div>"


def table(headings: Sequence[str], rows: Iterable[Sequence[object]], most: int = _MOST) -> str:
    """Return the first rows of a table as HTML, and the number of the others; "" without rows."""
    every = list(rows)
    shown = [_row("td", row) for row in every[:most]]
    more = f"<p>… and {len(every) - most:,} more</p>" if len(every) > most else ""
    return (f"<table>{_row('th', headings)}{''.join(shown)}</table>" if shown else "") + more


def _row(tag: str, cells: Iterable[object]) -> str:
    html = (f'<{tag} style="text-align:left">{_cut(cell)}</{tag}>' for cell in cells)
    return f"<tr>{''.join(html)}</tr>"


def _cut(text: object) -> str:
    whole = visible(str(text))
    return escape(whole if len(whole) <= _LONGEST else whole[:_LONGEST] + "…")
