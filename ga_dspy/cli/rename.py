"""`ga-dspy data rename`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from rich.console import Console
from rich.table import Table

from ga_dspy.eval.renaming import rename_file


def run_rename(file: Path, out: Path, seed: int, dataset: str | None, mapping: Path | None) -> None:
    """Write the copy and say what became of the names and answers."""
    console = Console()
    report = rename_file(file, out, seed, dataset=dataset, mapping=mapping)
    rows = Table.grid(padding=(0, 2))
    rows.add_column(style="dim", no_wrap=True)
    rows.add_column()
    rows.add_row("questions", f"{report.questions:,} of {report.dataset}, seed {report.seed}")
    rows.add_row("renamed", _counts(report.renamed))
    rows.add_row("answers left as they are", _counts(report.unchanged) or "none")
    before, after = 100 * report.derivable_in_source, 100 * report.derivable_in_copy
    told = f"{after:.1f} % of the questions, {before:.1f} % in the source"
    rows.add_row("answers that can be read", told)
    rows.add_row("rows that still show an old name", str(report.leaks))
    rows.add_row("words left alone for an answer's sake", str(report.kept))
    console.print(rows)
    console.print(f"\nwrote {out}; its passages are to be indexed anew:", markup=False)
    console.print(f"  ga-dspy index build {out} --out …", style="bold", markup=False)


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{n:,} {name}" for name, n in counts.items() if n)
