"""Table 3 as a picture: the step at which questions ended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from ga_dspy.arena import paper
from ga_dspy.arena.figures.graph_by_step import steps_of
from ga_dspy.arena.figures.scene import NothingToDraw, allowed, answered_by, captioned
from ga_dspy.arena.figures.scores import scenes_of
from ga_dspy.arena.labels import dataset_label
from ga_dspy.arena.runs import Run, Runs
from ga_dspy.drawing import GREY, INK, canvas, head, name
from ga_dspy.eval.measures import steps_reached

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NEEDS = ("graph-anchor",)
"""The method it is about."""

_NARROW = 7.0  # percent; a narrower part has no room for its number
_DARK = 0.5
_OTHERWISE = {"failed": "failed", "(none)": "not told"}


class _Row(NamedTuple):
    """A bar: its name, percent by how questions ended, and the colours it is drawn in."""

    label: str
    parts: dict[str, float]
    colours: str


def plot_steps_reached(runs: Runs, lm: str) -> Figure:
    """Percent of the questions that GraphAnchor ended at each step; the paper's beneath, in grey.

    Raises:
        NothingToDraw: GraphAnchor was not run with this LM.
        MissingExtra: matplotlib is not installed.
    """
    shown = [run for scene in scenes_of(runs, lm) for run in scene.some(NEEDS)]
    if not shown:
        raise NothingToDraw(NEEDS)
    most = max(4, *map(steps_of, shown))
    rows = [*map(_measured, shown), *_printed({run.dataset for run in shown})]
    figure, (axes,) = canvas(8.0, 2.1 + 0.34 * len(rows))
    # The paper's rows stand a little apart.
    places = [i + (0.4 if row.colours == "Greys" else 0.0) for i, row in enumerate(rows)]
    for row, place in zip(rows, places, strict=True):
        _bar(axes, row, place, most)
    name(axes, "", "questions that ended there, %", "")
    axes.set_yticks(places, [row.label for row in rows])
    axes.set(xlim=(0.0, 100.0), ylim=(places[-1] + 0.6, -0.6))
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", length=0)
    subtitle = f"GraphAnchor; {answered_by(lm)}{allowed(shown[0].budget)}"
    head(figure, "Table 3: steps reached", subtitle, _caption(runs, shown), key=(axes,))
    return figure


def _measured(run: Run) -> _Row:
    n = len(run.report.results)
    parts = {ended: 100.0 * k / n for ended, k in steps_reached(run.report.results).items()}
    mark = f" ({run.mark})" if run.mark else ""
    return _Row(f"{dataset_label(run.dataset)}{mark}, n = {n:,}", parts, "Blues")


def _printed(datasets: set[str]) -> list[_Row]:
    return [
        _Row(
            f"{dataset_label(row.dataset)}, paper, {row.lm}",
            {str(step): share for step, share in enumerate(row.steps, start=1)},
            "Greys",
        )
        for row in paper.TABLE_3
        if row.dataset in datasets
    ]


def _bar(axes: Axes, row: _Row, place: float, most: int) -> None:
    from matplotlib import colormaps

    left = 0.0
    for ended, share in sorted(row.parts.items(), key=_order):
        depth = 0.18 + 0.68 * (int(ended) - 1) / max(most - 1, 1) if ended.isdigit() else 0.0
        colour, hatch = colormaps[row.colours](depth), "" if ended.isdigit() else "xxx"
        label = f"step {ended}" if ended.isdigit() else _OTHERWISE.get(ended, ended)
        axes.barh(
            [place], [share], left=left, height=0.78, color=colour, hatch=hatch, lw=0.5,
            edgecolor="w" if ended.isdigit() else GREY,
            label=label if row.colours == "Blues" else f"_{label}",
        )  # fmt: skip
        if share >= _NARROW and ended.isdigit():
            middle = left + share / 2
            axes.text(
                middle, place, f"{share:.1f}", ha="center", va="center", fontsize=8,
                color=_ink(colour),
            )  # fmt: skip
        left += share


def _ink(colour: tuple[float, ...]) -> str:
    """White on dark, dark on light."""
    red, green, blue = colour[:3]
    return "w" if 0.2126 * red + 0.7152 * green + 0.0722 * blue < _DARK else INK


def _order(part: tuple[str, float]) -> tuple[bool, int]:
    ended = part[0]
    return not ended.isdigit(), int(ended) if ended.isdigit() else 0


def _caption(runs: Runs, shown: Sequence[Run]) -> str:
    return captioned(
        runs,
        shown,
        "Grey: the paper's rows, steps in the same order: 500 questions each (125 of Bamboogle), "
        "with the LM named, over another corpus."
        if any(run.dataset in paper.DATASETS for run in shown)
        else "",
    )
