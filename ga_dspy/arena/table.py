"""A table of a report: a pandas frame with a title and notes, as Markdown and as CSV.

The frame has a row a run and of the paper, and every value unrounded; a mean with its interval is
three columns. Markdown that reads well raw and rendered is made from it: datasets side by side,
what is the same in every row said once, numbers as people write them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ga_dspy.arena.runs import Run, Runs, dataset_label, lm_label, mark_notes, marked, method_label
from ga_dspy.errors import require
from ga_dspy.eval import Report
from ga_dspy.text import csv_cell, visible

if TYPE_CHECKING:
    from pandas import DataFrame

AVERAGE = "Average"
"""Stands for a dataset in rows that average over all of them."""

NONE = "–"
"""What stands where there is no number."""

FROM_CACHE, CACHED = "From cache, %", " †"
"""What stands at the seconds of a run, where its column of this name is not 0."""

FORMS = {
    "Difference": "difference",
    **dict.fromkeys(("p", "p, Holm"), "p"),
    **dict.fromkeys(("Seconds", "Seconds per 100"), "seconds"),
    "US $ per 100": "dollars",
    **dict.fromkeys(("Tokens", "Prompt tokens", "Completion tokens"), "count"),
}
"""How the numbers of a column are written, by its name; others with one decimal."""

_SAID = json.loads(Path(__file__).with_name("tables.json").read_text("utf-8"))

Value = str | float | None
Row = dict[str, Value]


@dataclass(frozen=True)
class Table:
    """A table of a report; without rows, what would fill it.

    Attributes:
        name: Its file's name, without an ending.
        title: Its heading.
        about: What it shows, in a sentence or two.
        rows: From `row` and `printed_row`.
        needs: The runs that would fill it.
        notes: Footnotes.
        score: The rule of the F1s in it; empty where there are none.
        across: Whether datasets are columns where a person reads it.
    """

    name: str
    title: str
    about: str
    rows: Sequence[Row]
    needs: str = ""
    notes: Sequence[str] = ()
    score: str = ""
    across: bool = False

    @cached_property
    def frame(self) -> DataFrame:
        """Its rows: source, LM, method and dataset, its own columns, counts, mark, protocol.

        Counts are whole numbers, what there is no value for is None, `source` is "measured" or
        "paper".

        Raises:
            MissingExtra: pandas is not installed.
        """
        pandas = require("pandas", "report")
        # Of objects: else a count beside a dash would be a float.
        frame: DataFrame = pandas.DataFrame(list(self.rows), dtype=object)
        return frame.where(frame.notna(), None)

    @property
    def columns(self) -> list[str]:
        """Its own columns, without the ends of intervals."""
        around = (*_KEYS, *_COUNTS)
        return [n for n in self.frame if n not in around and not n.endswith(_ENDS)]


_KEYS = ("source", "LM", "method", "dataset")
_COUNTS = ("n", "failed", "degraded", "mark", "protocol")
_HEADINGS = {"n": "n", "failed": "Failed", "degraded": "Degraded"}
_ENDS = (" low", " high")


def row(run: Run, values: Mapping[str, Value], **changes: Value) -> Row:
    """A run's row; `changes` replace what it would say of the run itself."""
    label = method_label(run.method)
    about: Row = {
        "source": "measured",
        "LM": lm_label(run.lm),
        "method": f"{label} within {run.budget:,} tokens" if run.budget else label,
        "dataset": dataset_label(run.dataset),
    }
    counts: Row = {
        "n": len(run.report.results),
        "failed": len(run.report.failed),
        "degraded": len(run.report.degraded),
        "mark": run.mark,
        "protocol": run.report.protocol.hash,
    }
    return {**about, **values, **counts, **changes}


def printed_row(
    lm: str, method: str, dataset: str, values: Mapping[str, Value], n: int | None
) -> Row:
    """A row of the paper's own numbers."""
    return {"source": "paper", "LM": lm, "method": method, "dataset": dataset, **values, "n": n}


def f1_with_interval(report: Report, name: str = "F1") -> Row:
    """Mean F1 with its 95 % interval, in percent."""
    names = (name, *(name + end for end in _ENDS))
    return dict(zip(names, (report.f1, *report.ci95), strict=True))


def table_of(
    runs: Runs, name: str, shown: Sequence[Run], rows: Iterable[Row], *notes: str, **words: str
) -> Table:
    """A table of some runs.

    Args:
        runs: All runs there are.
        name: The table's; tables.json has what is said of it.
        shown: Those in the table; the notes of the marked ones come first.
        rows: From `row` and `printed_row`.
        notes: Further footnotes.
        words: What its texts leave open, such as a method's name.
    """
    said = _SAID[name]
    title, about, needs = (said.get(k, "").format(**words) for k in ("title", "about", "needs"))
    rules = {"official": "HotpotQA's official rule", "squad": "SQuAD's rule"}
    counted = {rules[run.report.protocol.score] for run in shown if "scored" in said}
    every_note = (*mark_notes(runs, shown), *said.get("notes", ()), *notes)
    return Table(
        name, title, about, tuple(rows), needs, every_note,
        score=" or ".join(sorted(counted)), across="across" in said,
    )  # fmt: skip


def csv_text(table: Table) -> str:
    """A table as CSV: its frame to four decimals; what there is no value for is empty."""

    def text(value: Value) -> str:
        if isinstance(value, str):
            return csv_cell(value)
        return "" if value is None else str(round(value, 4) if isinstance(value, float) else value)

    return str(table.frame.map(text).to_csv(index=False, lineterminator="\n"))


# --- Markdown.

_BY_DATASET = " by dataset"
_MANY = 6  # Phrases beyond this are a list, not a sentence.


def markdown(table: Table) -> str:
    """A table with its heading, what it shows, what its numbers are over, and its notes."""
    texts = _texts(table)
    same, empty = [], []
    for name in texts.columns[1:]:
        cells = set(texts[name])
        if cells == {NONE}:
            empty += [name] * (name.removesuffix(_BY_DATASET) not in ("n", "Failed"))
        elif phrase := _phrase(table, name, cells):
            same.append(phrase)
        else:
            continue
        del texts[name]
    same += [f"F1 by {table.score}"] if table.score else []
    notes = [*table.notes]
    if empty:
        notes.append(f"Left out, as no row has them: {', '.join(empty)}.")
    over = ["The same for all:", _bullets(same)] if len(same) > _MANY else [f"{'; '.join(same)}."]
    parts = [f"## {table.title}", table.about, *(over if same else ())]
    parts += [_grid(table, texts), *([_bullets(notes)] if notes else ())]
    return "\n\n".join(parts) + "\n"


def escaped(text: str) -> str:
    r"""Text that means itself in a cell of a Markdown table.

    >>> escaped("a|b\n*c*")
    'a\\|b \\*c\\*'
    """
    sign = r"([\\|*<`\[\]]|(?<=:)/(?=/)|(?<=\bwww)\.)"  # an address is no link
    plain = re.sub(sign, r"\\\1", " ".join(visible(text).split()))
    # Underscores inside a word mean themselves.
    emphasis = r"(?<![A-Za-z0-9_])_++|_++(?![A-Za-z0-9])"
    return re.sub(emphasis, lambda found: r"\_" * len(found[0]), plain)


def _texts(table: Table) -> DataFrame:
    """Its frame as texts, for a person: an interval beside its mean, a mark where it belongs."""
    from pandas import DataFrame

    lines = []
    counts = ["n", "failed", *(["degraded"] if any(r.get("degraded") for r in table.rows) else [])]
    for one in table.frame.to_dict("records"):
        values = {name: _cell(one, name) for name in table.columns}
        method = escaped(one["method"])
        if table.across:
            # A mark belongs to one run, so to its number and not to the method.
            first = table.columns[0]
            values[first] = marked(values[first], one["mark"])
        else:
            method = marked(method, one["mark"])
        lm = f"paper, {one['LM']}" if one["source"] == "paper" else one["LM"]
        lines.append(
            {"source": one["source"], "Method": method, "LM": escaped(lm)}
            | {"Dataset": escaped(one["dataset"]), **values}
            | {_HEADINGS[name]: number(name, one[name]) for name in counts}
        )
    texts = DataFrame(lines)
    datasets = list(dict.fromkeys(texts["Dataset"]))
    return _side_by_side(table, texts, datasets) if table.across and datasets[1:] else texts


def _side_by_side(table: Table, texts: DataFrame, found: list[str]) -> DataFrame:
    """One line a method and LM, the average of the datasets last."""
    from pandas import DataFrame

    datasets = [name for name in found if name != AVERAGE]
    order = [*datasets, *([AVERAGE] if AVERAGE in found else [])]
    lines = []
    for keys, group in texts.groupby(["source", "Method", "LM"], sort=False):
        cells = group.set_index("Dataset").reindex(order, fill_value=NONE)
        line = dict(zip(("source", "Method", "LM"), keys, strict=True))
        line |= {f"{d} {name}": cells.at[d, name] for d in order for name in table.columns}
        for name in (name for name in _HEADINGS.values() if name in texts):
            counts = [cells.at[dataset, name] for dataset in datasets]
            line[name + _BY_DATASET] = " / ".join(counts) if {*counts} != {NONE} else NONE
        lines.append(line)
    return DataFrame(lines)


def _cell(one: Mapping[str, Any], name: str) -> str:
    value, (low, high) = one[name], (one.get(name + end) for end in _ENDS)
    if isinstance(value, str):
        return escaped(value)
    if low is not None:
        return f"{number(name, value)} [{number(name, low)}, {number(name, high)}]"
    cached = FORMS.get(name) == "seconds" and one.get(FROM_CACHE)
    return number(name, value) + (CACHED if cached else "")


def number(name: str, value: float | None) -> str:
    """A number as people write it; what its column is called decides how.

    >>> number("F1", -1234.56), number("F1", None), number("p", 0.0004)
    ('−1,234.6', '–', '<0.001')
    """
    form = FORMS.get(name)
    if value is None:
        return NONE
    if isinstance(value, int) or form == "count":
        return f"{value:,.0f}"
    if form == "p":
        return "<0.001" if value < 0.0005 else f"{value:.3f}"
    decimals = {"dollars": (0.1, "0.0001", "0.01"), "seconds": (1.0, "0.01", "0.1")}
    limit, below, above = decimals.get(form or "", (0.0, "0.1", "0.1"))
    places = Decimal(below if value < limit else above)
    # Half goes up, as in the paper; of the decimal number, not of its binary neighbour.
    rounded = Decimal(f"{value:.6f}").quantize(places, ROUND_HALF_UP)
    text = f"{rounded:+,}" if form == "difference" and rounded else f"{rounded or abs(rounded):,}"
    return text.replace("-", "−")


def _phrase(table: Table, name: str, cells: set[str]) -> str:
    """What a column says if it says one thing only; empty if not."""
    base = name.removesuffix(_BY_DATASET)
    if base == "Failed":
        # The paper counts no failures: its dashes are no reason to keep a column of zeros.
        return "" if any(re.search("[1-9]", text) for text in cells) else "0 failed"
    if len(cells) > 1 or base == "Method":
        return ""
    (text,) = cells
    if base in ("LM", "Dataset"):
        return text
    if base == "n":
        return f"n = {text}"
    return f"{name}: {text}" if _is_text(table, name) and len(table.rows) > 1 else ""


def _is_text(table: Table, name: str) -> bool:
    return name in ("Method", "Dataset") or (
        name in table.frame
        and name not in FORMS
        and any(isinstance(value, str) for value in table.frame[name])
    )


def _grid(table: Table, texts: DataFrame) -> str:
    """The table itself: columns aligned, numbers to the right, the paper's rows in italics."""
    italic = [source == "paper" for source in texts.pop("source")]
    columns = []
    for name in texts:
        cells = [f"*{c}*" if p else c for c, p in zip(texts[name], italic, strict=True)]
        width = max(3, len(name), *map(len, cells))
        side, end = ("<", "-") if _is_text(table, name) else (">", ":")
        rule = "-" * (width - 1) + end
        columns.append([f"{cell:{side}{width}}" for cell in (name, rule, *cells)])
    return "\n".join(f"| {' | '.join(line)} |" for line in zip(*columns, strict=True))


def _bullets(texts: Iterable[str]) -> str:
    return "\n".join(f"- {text}" for text in texts)
