"""`ga-dspy index build`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from ga_dspy.retrieval import Index, read_passages


def run_build(files: list[Path], out: Path, kind: str, encoder: str, factory: str) -> None:
    """Read passages and build an index over them."""
    console = Console()
    passages = list(read_passages(files))
    with building(console) as progress:
        index = Index.build(
            passages, out, kind=kind, encoder=encoder, factory=factory, progress=progress
        )
    console.print(f"{out}: {index.description}", markup=False)


@contextmanager
def building(console: Console) -> Iterator[Any]:
    """A progress bar, as the callback that an index build takes."""
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
    )
    with bar:
        task = bar.add_task("reading", total=None)

        def advance(stage: str, done: int, total: int) -> None:
            bar.update(task, description=stage, completed=done, total=total)

        yield advance
