"""`ga-dspy bench retrieval`."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.table import Table

from ga_dspy.eval import load
from ga_dspy.retrieval import Index
from ga_dspy.retrieval.bench import bench


def run_bench(dataset: str, data: Path, index: Path, kinds: list[str], limit: int | None) -> None:
    """Print gold recall by kind of retrieval and depth."""
    opened = Index.open(index)
    examples = [e for e in load(dataset, data, limit=limit) if e.gold_titles]
    questions = [(e.question, frozenset(e.gold_titles)) for e in examples]
    table = Table(
        title=f"{data.name}: {len(questions)} questions, {len(opened):,} passages "
        "(mean gold recall / all gold in the top k, %)",
        title_justify="left",
    )
    table.add_column("kind")
    rows = {kind: bench(opened.as_kind(kind), questions) for kind in kinds}
    for row in next(iter(rows.values())):
        table.add_column(f"@{row.k}", justify="right")
    for kind, depths in rows.items():
        table.add_row(kind, *(f"{row.recall:.1f} / {row.all_gold:.1f}" for row in depths))
    Console().print(table)
