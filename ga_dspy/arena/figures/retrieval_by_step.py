"""Figure 4: what is found and what is found again, by step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ga_dspy.arena.figures.graph_by_step import step_axis, steps_of
from ga_dspy.arena.figures.scene import NothingToDraw, Scene, captioned, run_name
from ga_dspy.arena.runs import Run
from ga_dspy.drawing import BLUE, GREY, ORANGE, canvas, counts_below, head, name, percent_limits
from ga_dspy.eval.measures import StepPoint, by_step

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NEEDS = ("graph-anchor", "no-graph")
"""The runs it is about."""

_LEAST = 12.0
"""Points that the axis of hit rates shows at least, so that a few do not look like many."""

_OTHERS = {"ircot": "^", "iter-retgen": "v", "search-r1": "D", "deep-note": "P"}
# The first is larger, to be seen where both are the same.
_MAIN = {"graph-anchor": (BLUE, "o-", 8), "no-graph": (ORANGE, "s--", 5)}


def plot_retrieval_by_step(scene: Scene) -> Figure:
    """Hit rate and overlap by step, with and without the graph; in grey, other loops that search.

    Raises:
        NothingToDraw: None of the runs it is about was made.
        MissingExtra: matplotlib is not installed.
    """
    main = scene.some(NEEDS)
    if not main:
        raise NothingToDraw(NEEDS)
    runs = [*scene.some(_OTHERS), *main]
    points = [by_step(run.report.results, steps_of(run)) for run in runs]
    steps = list(range(1, max(map(len, points)) + 1))
    figure, (hits, overlaps) = canvas(9.6, 4.6, 2)
    for run, made in zip(runs, points, strict=True):
        _line(hits, run, made, [point.hit for point in made])
        _line(overlaps, run, made, [point.overlap for point in made])
    name(hits, "(a) Hit rate", "step", "questions with a hit by then, %")
    name(overlaps, "(b) Overlap", "step", "retrieved passages read before, %")
    for axes in (hits, overlaps):
        step_axis(axes, steps)
    told = [point.hit for made in points for point in made if point.hit is not None]
    low, high = percent_limits(told or [0.0, 100.0])
    hits.set_ylim(min(low, high - _LEAST), high)
    overlaps.set_ylim(-5.0, 105.0)
    counts_below(overlaps, steps, {run_name(run): _reached(run, len(steps)) for run in main})
    title, caption = "Figure 4: retrieval by step", _caption(scene, runs)
    head(figure, title, scene.subtitle, caption, key=(hits,))
    return figure


def _line(
    axes: Axes, run: Run, points: Sequence[StepPoint], values: Sequence[float | None]
) -> None:
    told = [(p.step, value) for p, value in zip(points, values, strict=True) if value is not None]
    steps, shown = [step for step, _ in told], [value for _, value in told]
    label = run_name(run)
    if run.method in _MAIN:
        colour, form, size = _MAIN[run.method]
        axes.plot(steps, shown, form, color=colour, lw=2, ms=size, label=label)
    else:
        marker = _OTHERS[run.method]
        axes.plot(steps, shown, ":", marker=marker, color=GREY, lw=1, ms=5, label=label)


def _reached(run: Run, most: int) -> list[int]:
    return [point.reached for point in by_step(run.report.results, most)]


def _caption(scene: Scene, runs: Sequence[Run]) -> str:
    return captioned(
        scene.runs,
        runs,
        "(a) An accepted answer occurs in a passage read by then; over the questions whose answer "
        "is not yes or no, one that ended earlier staying as it was. (b) Share of the retrieved "
        "passages that were read before; over the questions that made the step, whose number is "
        "under its axis.",
        scene.absent(NEEDS),
    )
