"""A report of an arena in a folder: report.md, its tables as CSV, and every protocol."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from ga_dspy.arena import paper
from ga_dspy.arena.cells import escaped
from ga_dspy.arena.csv_files import csv_text
from ga_dspy.arena.labels import dataset_label, is_point, lm_label, ordered
from ga_dspy.arena.markdown import markdown
from ga_dspy.arena.runs import Runs
from ga_dspy.arena.tables import BASELINE, Missing, Table, tables

REPORT, PROTOCOLS, TABLES = "report.md", "protocol.json", "tables"

_PAPER = (
    "Rows in *italics* are the paper's own figures, with the LM it names. They are no yardstick "
    "for the rows above them: the paper asked {n} questions a dataset ({fewer} of Bamboogle) and "
    "searched another corpus, with bge-large-en-v1.5; in a small corpus pooled from the questions' "
    "own paragraphs, as the public samples give, everything is easier to find. Only rows measured "
    "under one protocol can be compared: see Protocols."
)
_POINTS = (
    " Runs that only end a method earlier are points of Figure 3: they stand in its picture, in "
    "Table 5, in Scores side by side and in Protocols."
)
_FAILED = (
    "A failed question scores 0 in every mean and is listed under Failed questions; – means that "
    "there is no such number."
)


def write_report(
    runs: Runs, out: Path, baseline: str = BASELINE, figures: Mapping[str, Path] | None = None
) -> Path:
    """Write a report: the same bytes for the same runs.

    Args:
        runs: The runs.
        out: The folder; report.md, protocol.json and tables/*.csv in it are written over.
        baseline: The method that the others are held against.
        figures: What each picture shows, to its file.

    Returns:
        The path of report.md, which is written last.
    """
    made = tables(runs, baseline)
    shown = [table for table in made if isinstance(table, Table)]
    (out / TABLES).mkdir(parents=True, exist_ok=True)
    for table in shown:
        _write(_csv(out, table), csv_text(table))
    missing = [table for table in made if isinstance(table, Missing)]
    for absent in missing:
        # One of an earlier report on other runs would pass for one of this.
        _csv(out, absent).unlink(missing_ok=True)
    _write(out / PROTOCOLS, _protocols(runs))
    sections = [*_opening(runs, shown), *map(markdown, shown), *_pictures(figures or {}, out)]
    _write(out / REPORT, "\n".join([*sections, *_left_out(missing), *_contradictions(shown)]))
    return out / REPORT


def _csv(out: Path, table: Table | Missing) -> Path:
    return out / TABLES / f"{table.name}.csv"


def _opening(runs: Runs, shown: list[Table]) -> Iterator[str]:
    n = len(runs.runs)
    datasets, lms = map(dataset_label, runs.datasets), map(lm_label, runs.lms)
    yield "# Arena\n"
    yield (
        f"{n} run{'s' * (n != 1)} on {', '.join(datasets)}; answered by {', '.join(lms)}. "
        f"{_FAILED}{_POINTS if any(map(is_point, runs)) else ''}\n"
    )
    if _has_paper(shown):
        yield _PAPER.format(n=paper.QUESTIONS["hotpotqa"], fewer=paper.QUESTIONS["bamboogle"])
        yield ""


def _pictures(figures: Mapping[str, Path], out: Path) -> Iterator[str]:
    if figures:
        yield "## Figures\n"
    for caption, path in figures.items():
        address = Path(os.path.relpath(path, out)).as_posix()
        yield f"![{escaped(caption)}](<{address}>)\n\n{escaped(caption)}\n"


def _left_out(missing: list[Missing]) -> Iterator[str]:
    if missing:
        yield "## Not shown\n"
        yield "No run fills these tables; beside each, what would.\n"
        yield "\n".join(f"- **{table.title}**: {table.needs}" for table in missing) + "\n"


def _contradictions(shown: list[Table]) -> Iterator[str]:
    if _has_paper(shown):
        yield "## Where the paper contradicts itself\n"
        yield "Its figures stand above as each of its tables prints them.\n"
        yield "\n".join(f"- {told}." for told in paper.contradictions()) + "\n"


def _has_paper(shown: list[Table]) -> bool:
    return any(row.source == "paper" for table in shown for row in table.rows)


def _protocols(runs: Runs) -> str:
    entries = [
        {"hash": run.report.protocol.hash, **run.report.protocol.model_dump(mode="json")}
        for run in ordered(runs)
    ]
    return json.dumps(entries, ensure_ascii=False, indent=2) + "\n"


def _write(path: Path, text: str) -> None:
    partial = path.with_name(path.name + ".partial")
    with partial.open("w", encoding="utf-8", newline="\n") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
