"""`ga-dspy artifact`: show, compare and verify compiled programs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.padding import Padding
from rich.text import Text

from ga_dspy.artifact import diff as difference_of
from ga_dspy.artifact import outline
from ga_dspy.artifact import show as look_into
from ga_dspy.artifact import verify as problems_of
from ga_dspy.cli.console import Console

ArtifactDir = Annotated[Path, typer.Argument(help="Folder of an artifact.")]


def show(path: ArtifactDir) -> None:
    """Show an artifact: program, provenance, scores, prompts.

    Examples:
        ga-dspy artifact show artifacts/mine
    """
    console = Console()
    for line in outline(look_into(path)):
        text = line.lstrip()
        console.print(Padding(Text(text), (0, 0, 0, len(line) - len(text)), expand=False))


def diff(
    one: ArtifactDir,
    other: Annotated[Path, typer.Argument(help="Folder of another artifact.")],
) -> None:
    """Compare two artifacts: instructions, demos, settings and scores.

    Examples:
        ga-dspy artifact diff artifacts/mine artifacts/other
    """
    console = Console()
    for line in difference_of(one, other).splitlines() or ["no difference"]:
        style = {"+": "green", "-": "red", "@": "cyan"}.get(line[:1], "")
        console.print(Text(line, style=style))


def verify(path: ArtifactDir) -> None:
    """Check that an artifact is intact; exit code 1 if it is not.

    Examples:
        ga-dspy artifact verify artifacts/mine
    """
    problems, console = problems_of(path), Console()
    for problem in problems:
        console.print(problem, style="red")
    if problems:
        raise typer.Exit(1)
    console.print(f"{path} is intact")
