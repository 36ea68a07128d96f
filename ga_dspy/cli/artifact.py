"""`ga-dspy artifact`: what a compiled program is."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from ga_dspy.artifact import Manifest, PredictorState
from ga_dspy.artifact import diff as difference_of
from ga_dspy.artifact import show as look_into
from ga_dspy.artifact import verify as problems_of
from ga_dspy.cli.console import Console, facts

ArtifactDir = Annotated[Path, typer.Argument(help="Folder of an artifact.")]


def show(path: ArtifactDir) -> None:
    """What an artifact is: program, provenance, scores, prompts.

    Examples:
        ga-dspy artifact show artifacts/mine
    """
    info = look_into(path)
    console = Console()
    console.print(Panel(_about(info.manifest), title=Text(str(path)), title_align="left"))
    for name, state in info.predictors.items():
        console.print(_prompt(name, state))


def _about(manifest: Manifest) -> Table:
    rows = [
        ("program", manifest.program),
        ("settings", ", ".join(f"{name}={value}" for name, value in manifest.settings.items())),
        ("recipe", manifest.recipe.name if manifest.recipe else ""),
        *((f"{role} LM", name) for role, name in manifest.lms.items()),
    ]
    if scores := manifest.scores:
        rows += [
            (metric, f"{scores.before.get(metric, '?')} → {after}")
            for metric, after in scores.after.items()
        ]
        rows.append(("compared", f"{scores.verdict}, p = {scores.p_value:.3f}, n = {scores.n}"))
    if cost := manifest.cost:
        rows.append(("cost", f"{cost.calls:,} LM calls, {cost.tokens:,} tokens"))
    versions = manifest.versions.model_dump().items()
    rows += [
        ("written by", ", ".join(f"{name} {version}" for name, version in versions)),
        ("created", manifest.created.isoformat()),
        ("sha256", manifest.sha256),
    ]
    return facts(rows)


def _prompt(name: str, state: PredictorState) -> RenderableType:
    table = Table(title=f"demos of {name}", box=box.SIMPLE_HEAD, title_justify="left")
    for field in ("question", "answer"):
        table.add_column(field, overflow="fold")
    for demo in state.demos:
        table.add_row(*(Text(str(demo.get(field, ""))) for field in ("question", "answer")))
    # Paragraphs without the line breaks of the source file.
    parts: list[RenderableType] = [
        Text(re.sub(r"(?<!\n)\n(?!\n)", " ", state.signature.instructions))
    ]
    if state.demos:
        parts.append(table)
    return Panel(Group(*parts), title=name, title_align="left")


def diff(
    one: ArtifactDir,
    other: Annotated[Path, typer.Argument(help="Folder of another.")],
) -> None:
    """How two artifacts differ, in instructions, demos, settings and scores.

    Examples:
        ga-dspy artifact diff artifacts/mine artifacts/other
    """
    difference = difference_of(one, other)
    console = Console()
    if not difference:
        console.print("no difference")
    for line in difference.splitlines():
        style = {"+": "green", "-": "red", "@": "cyan"}.get(line[:1], "")
        console.print(Text(line, style=style))


def verify(path: ArtifactDir) -> None:
    """Whether an artifact is intact; exit code 1 where it is not.

    Examples:
        ga-dspy artifact verify artifacts/mine
    """
    problems = problems_of(path)
    console = Console()
    for problem in problems:
        console.print(problem, style="red", markup=False)
    if problems:
        raise typer.Exit(1)
    console.print(f"{path} is intact", markup=False)
