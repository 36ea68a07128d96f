"""Figure 3: the graph by step, and what an answer at that step is worth."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ga_dspy.arena.figures.scene import NothingToDraw, Scene, captioned
from ga_dspy.arena.runs import Run
from ga_dspy.drawing import (
    BLUE,
    ORANGE,
    canvas,
    counts_below,
    head,
    legend,
    name,
    percent_limits,
    reach,
)
from ga_dspy.eval.measures import by_step

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WITH_GRAPH = ("one-step", "graph-anchor-2", "graph-anchor-3", "graph-anchor")
"""Runs that answer with the graph, by the steps they may take."""

FROM_PASSAGES = ("qa-docs-1", "qa-docs-2", "qa-docs-3", "qa-docs")
"""Runs that answer from the passages alone."""

NEEDS = (*WITH_GRAPH, *FROM_PASSAGES)
_APART = 0.07


def plot_graph_by_step(scene: Scene) -> Figure:
    """Entities and triples in the graph after each step, and F1 if answering there.

    Raises:
        NothingToDraw: None of the runs was made.
        MissingExtra: matplotlib is not installed.
    """
    shown = scene.some(NEEDS)
    if not shown:
        raise NothingToDraw(NEEDS)
    whole = scene.get("graph-anchor")
    figure, panels = canvas(9.6 if whole else 5.4, 4.4, 2 if whole else 1)
    if whole:
        _graph(panels[0], whole)
    _answers(panels[-1], scene)
    caption = captioned(
        scene.runs,
        shown,
        "Means over all questions; one that ended earlier stays as it was. Bars: 95 % intervals.",
        scene.absent(NEEDS),
    )
    head(figure, "Figure 3: the graph, and answers by step", scene.subtitle, caption)
    return figure


def steps_of(run: Run) -> int:
    """How many steps a run's questions might take; what they took where that is not told."""
    longest = max((len(result.trace) for result in run.report.results), default=0)
    return max(run.report.protocol.steps or longest, 1)


def _graph(axes: Axes, run: Run) -> None:
    points = by_step(run.report.results, steps_of(run))
    steps = [point.step for point in points]
    for label, colour, form, values in (
        ("entities", BLUE, "o-", [point.entities for point in points]),
        ("triples", ORANGE, "s--", [point.relations for point in points]),
    ):
        axes.plot(steps, values, form, color=colour, lw=2, ms=6, label=label)
    name(axes, "(a) Graph", "step", "mean number in the graph", pad=26)
    step_axis(axes, steps)
    axes.set_ylim(0.0, max(1.0, 1.15 * max(max(p.entities, p.relations) for p in points)))
    counts_below(axes, steps, {"reached by": [point.reached for point in points]})
    legend(axes)


def _answers(axes: Axes, scene: Scene) -> None:
    steps: set[int] = set()
    for side, label, colour, form, methods in (
        (-1, "with the graph", BLUE, "o-", WITH_GRAPH),
        (1, "passages alone", ORANGE, "s--", FROM_PASSAGES),
    ):
        runs = {steps_of(run): run for run in scene.some(methods)}
        steps |= set(runs)
        _line(axes, runs, side * _APART, label, colour, form)
    name(axes, "(b) Answers", "steps at most", "F1, %", pad=26)
    step_axis(axes, range(1, max(steps) + 1))
    bounds = [bound for run in scene.some(NEEDS) for bound in run.report.ci95]
    axes.set_ylim(percent_limits(bounds))
    legend(axes)


def _line(
    axes: Axes, runs: dict[int, Run], shift: float, label: str, colour: str, form: str
) -> None:
    if not runs:
        return
    reports = [runs[step].report for step in sorted(runs)]
    away = [reach(report.f1, report.ci95) for report in reports]
    axes.errorbar(
        [step + shift for step in sorted(runs)],
        [report.f1 for report in reports],
        [[low for (low,), _ in away], [high for _, (high,) in away]],
        fmt=form, color=colour, lw=2, ms=6, elinewidth=1.2, capsize=3, label=label,
    )  # fmt: skip


def step_axis(axes: Axes, steps: Sequence[int]) -> None:
    """Whole steps on the x axis, with room on both sides."""
    axes.set_xticks(list(steps))
    axes.set_xlim(min(steps) - 0.5, max(steps) + 0.5)
