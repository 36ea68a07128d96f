"""`ga-dspy artifact show | diff | verify`."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from rich import box
from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from ga_dspy.artifact import Manifest, PredictorState, Score, diff, show, verify


def run_show(path: Path) -> None:
    """Print what an artifact is: program, provenance, scores, prompts."""
    info = show(path)
    console = Console()
    console.print(Panel(_facts(info.manifest), title=str(path), title_align="left"))
    for name, state in info.predictors.items():
        console.print(_prompt(name, state))


def run_diff(one: Path, other: Path) -> None:
    """Print how two artifacts differ."""
    difference = diff(one, other)
    console = Console()
    if not difference:
        console.print("no difference")
    for line in difference.splitlines():
        style = {"+": "green", "-": "red", "@": "cyan"}.get(line[:1], "")
        console.print(Text(line, style=style))


def run_verify(path: Path) -> None:
    """Print what is wrong with an artifact; exit code 1 where anything is."""
    problems = verify(path)
    console = Console()
    for problem in problems:
        console.print(problem, style="red", markup=False)
    if problems:
        sys.exit(1)
    console.print(f"{path} is intact", markup=False)


def _facts(manifest: Manifest) -> RenderableType:
    rows = Table.grid(padding=(0, 2))
    rows.add_column(style="dim", no_wrap=True)
    rows.add_column(overflow="fold")
    rows.add_row("program", Text(manifest.program))
    settings = ", ".join(f"{name}={value}" for name, value in manifest.settings.items())
    rows.add_row("settings", Text(settings))
    if manifest.recipe:
        rows.add_row("recipe", Text(manifest.recipe.name))
    for role, name in manifest.lms.items():
        rows.add_row(f"{role} LM", Text(name))
    if manifest.scores:
        scores = manifest.scores
        for metric, after in scores.after.items():
            rows.add_row(metric, Text(f"{_shown(scores.before.get(metric))} → {_shown(after)}"))
        rows.add_row("", Text(f"{scores.verdict}, p = {scores.p_value:.3f}, n = {scores.n}"))
    if manifest.cost:
        cost = manifest.cost
        rows.add_row("cost", Text(f"{cost.calls:,} LM calls, {cost.tokens:,} tokens"))
    versions = ", ".join(f"{name} {v}" for name, v in manifest.versions.model_dump().items())
    rows.add_row("written by", Text(versions))
    rows.add_row("created", Text(manifest.created.isoformat()))
    rows.add_row("sha256", Text(manifest.sha256))
    return rows


def _shown(score: Score | None) -> str:
    if score is None:
        return "?"
    known = score.low is not None and score.high is not None
    return f"{score.value:.1f}" + (f" ({score.low:.1f}–{score.high:.1f})" if known else "")


def _flowing(text: str) -> str:
    """Paragraphs without the line breaks of the source file."""
    return re.sub(r"(?<!\n)\n(?!\n)", " ", text)


def _prompt(name: str, state: PredictorState) -> RenderableType:
    table = Table(title=f"demos of {name}", box=box.SIMPLE_HEAD, title_justify="left")
    for field in ("question", "answer"):
        table.add_column(field, overflow="fold")
    for demo in state.demos:
        table.add_row(*(Text(str(demo.get(field, ""))) for field in ("question", "answer")))
    parts: list[RenderableType] = [Text(_flowing(state.signature.instructions))]
    if state.demos:
        parts.append(table)
    return Panel(Group(*parts), title=name, title_align="left")
