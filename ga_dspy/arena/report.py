"""A report of an arena in a folder: report.md, its tables as CSV, and every protocol."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ga_dspy.arena import comparisons, paper, tables
from ga_dspy.arena.runs import Runs, dataset_label, is_point, lm_label
from ga_dspy.arena.table import NONE, Table, csv_text, escaped, markdown
from ga_dspy.storage import write_whole
from ga_dspy.text import inert

BASELINE = "vanilla-rag"
"""What the others are compared with, where nothing else is asked for."""

REPORT, PROTOCOLS, TABLES = "report.md", "protocol.json", "tables"


def tables_of(runs: Runs, baseline: str = BASELINE) -> list[Table]:
    """Every table of a report, in order; those without rows say what would fill them.

    Args:
        runs: The runs.
        baseline: The method that the others are compared with.
    """
    return [
        tables.table_1(runs),
        comparisons.significance(runs, baseline),
        tables.table_2(runs),
        tables.table_3(runs),
        tables.by_step_table(runs),
        tables.table_4(runs),
        tables.table_5(runs),
        tables.evidence(runs),
        tables.sufficiency(runs),
        tables.graphrag(runs),
        tables.knowledge_use(runs),
        tables.side_by_side(runs),
        tables.ledger(runs),
        tables.failures(runs),
        tables.protocols(runs),
        comparisons.differences(runs, baseline),
    ]


def write_report(
    runs: Runs,
    out: Path,
    baseline: str = BASELINE,
    figures: Mapping[str, Path] | None = None,
    *,
    questions: bool = True,
) -> Path:
    """Write a report: the same bytes for the same runs.

    Args:
        runs: The runs.
        out: The folder; report.md, protocol.json and tables/*.csv in it are written over.
        baseline: The method that the others are compared with.
        figures: What each picture shows, to its file.
        questions: Whether the questions on which methods differ stand in it, word for word.

    Returns:
        The path of report.md, which is written last.

    Raises:
        MissingExtra: pandas is not installed.
    """
    *made, quoted = tables_of(runs, baseline)
    made.append(quoted if questions else replace(quoted, rows=()))
    (out / TABLES).mkdir(parents=True, exist_ok=True)
    for table in made:
        path = out / TABLES / f"{table.name}.csv"
        if table.rows:
            write_whole(path, csv_text(table))
        else:
            # One of an earlier report on other runs would pass for one of this.
            path.unlink(missing_ok=True)
    protocols = [run.report.protocol for run in runs.in_order(points=True)]
    entries = [{"hash": one.hash, **one.model_dump(mode="json")} for one in protocols]
    write_whole(out / PROTOCOLS, json.dumps(entries, ensure_ascii=False, indent=2) + "\n")
    write_whole(out / REPORT, "\n".join(_sections(runs, made, figures or {}, out, baseline)))
    return out / REPORT


def _sections(
    runs: Runs, made: Sequence[Table], figures: Mapping[str, Path], out: Path, baseline: str
) -> Iterator[str]:
    *made, last = made
    shown = [table for table in made if table.rows]
    has_paper = any(row["source"] == "paper" for table in shown for row in table.rows)
    yield "# Arena\n"
    n = len(runs.runs)
    datasets = (escaped(dataset_label(each)) for each in runs.datasets)
    lms = (escaped(lm_label(each)) for each in runs.lms)
    points = (
        " Runs that only end a method earlier stand in Table 5, in Scores side by side and in "
        "Protocols."
    )
    yield (
        f"{n} run{'s' * (n != 1)} on {', '.join(datasets)}; answered by {', '.join(lms)}. A failed "
        "question scores 0 in every mean and is listed under Failed questions; "
        f"{NONE} means that there is no such number.{points * any(map(is_point, runs))}\n"
    )
    if verdicts := comparisons.contests(runs, baseline):
        yield "## Verdict\n"
        yield "\n".join(f"- {inert(str(verdict))}" for verdict in verdicts) + "\n"
    if has_paper:
        yield (
            "Rows in *italics* are the paper's own figures, with the LM it names. They are no "
            f"yardstick for the rows above them: the paper asked {paper.QUESTIONS['hotpotqa']} "
            f"questions a dataset ({paper.QUESTIONS['bamboogle']} of Bamboogle) and searched "
            "another corpus, with bge-large-en-v1.5; in a small corpus pooled from the questions' "
            "own paragraphs, as the public samples give, everything is easier to find. Only rows "
            "measured under one protocol can be compared: see Protocols.\n"
        )
    yield from map(markdown, shown)
    if figures:
        yield "## Figures\n"
    for caption, path in figures.items():
        address = Path(os.path.relpath(path, out)).as_posix()
        yield f"![{escaped(caption)}](<{address}>)\n\n{escaped(caption)}\n"
    if missing := [f"- **{table.title}**: {table.needs}" for table in made if not table.rows]:
        yield "## Not shown\n"
        yield "No run fills these tables; beside each, what would.\n"
        yield "\n".join(missing) + "\n"
    if has_paper:
        yield "## Where the paper contradicts itself\n"
        yield "Its figures stand above as each of its tables prints them.\n"
        yield "\n".join(f"- {text}." for text in paper.CONTRADICTIONS) + "\n"
    if last.rows:
        yield markdown(last)
