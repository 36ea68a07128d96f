"""The style of every picture here: calm, legible in print and in grey, and the same bytes again.

Colours differ in lightness as well as in hue; where lines or bars stand side by side, marks and
hatches tell them apart too.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any, NamedTuple

from ga_dspy.errors import require

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, MUTED, GREY, GRID = "#22262b", "#5b6570", "#9aa3ad", "#e3e7eb"
SLATE, BLUE = "#7b8794", "#1f6feb"

_DPI = 150
_STYLE: dict[str, Any] = {
    "font.size": 10,
    "axes.edgecolor": GREY,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": INK,
    "ytick.color": INK,
    "grid.color": GRID,
    "axes.grid": True,
    "axes.axisbelow": True,
    "hatch.linewidth": 0.6,
}
_SMALL = 8
_LEFT = 0.012
_LETTERS = 16.3  # of the small print, an inch
_MARK = 8.0  # pixels from the middle of a mark to its edge


def canvas(
    width: float, height: float, columns: int = 1, *, share_y: bool = False
) -> tuple[Figure, list[Axes]]:
    """An empty picture and its panels, side by side.

    Args:
        width: In inches, each of 150 pixels.
        height: In inches.
        columns: How many panels.
        share_y: Whether all have the y axis of the first.

    Raises:
        MissingExtra: matplotlib is not installed.
    """
    matplotlib = require("matplotlib", "report")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with matplotlib.rc_context(_STYLE):
        # Without pyplot: no window system, and safe in any thread.
        figure = Figure(figsize=(width, height), dpi=_DPI)
        FigureCanvasAgg(figure)
        figure.set_layout_engine("constrained", w_pad=0.08, h_pad=0.08)
        return figure, list(figure.subplots(1, columns, squeeze=False, sharey=share_y)[0])


def head(figure: Figure, title: str, subtitle: str, caption: str = "") -> None:
    """Title and subtitle above all panels, and small print beneath them.

    Args:
        figure: The picture, with all panels drawn.
        title: In bold.
        subtitle: On one line.
        caption: Of any length.
    """
    from matplotlib.transforms import ScaledTranslation

    # An empty line keeps the place of the subtitle in the layout.
    figure.suptitle(f"{title}\n ", x=_LEFT, ha="left", color=INK, fontsize=12, fontweight="bold")
    below = figure.transFigure + ScaledTranslation(0, -0.33, figure.dpi_scale_trans)
    figure.text(_LEFT, 1.0, subtitle, transform=below, va="top", color=MUTED, fontsize=9)
    if caption:
        small_print(figure, caption)


def small_print(figure: Figure, text: str) -> None:
    """Lines under all panels, broken where they are too long."""
    letters = int(_LETTERS * figure.get_figwidth())
    lines = [
        part for line in text.splitlines() for part in wrap(line, letters, break_on_hyphens=False)
    ]
    figure.supxlabel("\n".join(lines), x=_LEFT, ha="left", fontsize=_SMALL, color=MUTED)


def name(axes: Axes, title: str, x: str, y: str) -> None:
    """Name a panel and its axes."""
    axes.set_title(title, loc="left", color=INK, fontsize=11, fontweight="bold", pad=10)
    axes.set(xlabel=x, ylabel=y)


def label(axes: Axes, text: str, x: float, y: float, side: int, colour: str = INK) -> None:
    """Write beside a point: to its left (-1), above it (0) or to its right (1)."""
    axes.annotate(
        text,
        (x, y),
        xytext=(10 * side, 0 if side else 8),
        textcoords="offset points",
        ha={-1: "right", 0: "center", 1: "left"}[side],
        va="center" if side else "bottom",
        color=colour,
        weight="bold",
    )


class Label(NamedTuple):
    """A text for a point, in data coordinates."""

    text: str
    x: float
    y: float
    colour: str = INK
    bold: bool = False


def label_points(
    figure: Figure,
    axes: Axes,
    labels: Sequence[Label],
    points: Sequence[tuple[float, float, float, float]],
) -> None:
    """Write labels near their points, off one another, off points and off error bars.

    A dotted line leads to a label from its point. The same picture has them at the same places.

    Args:
        figure: The picture, with all else drawn.
        axes: The panel, with its final limits.
        labels: The most important first.
        points: All points, with a label or without: x, y and both ends of the error bar.

    Raises:
        MissingExtra: textalloc is not installed.
    """
    textalloc = require("textalloc", "report")
    # The layout decides where pixels are.
    figure.draw_without_rendering()
    limits = axes.get_xlim(), axes.get_ylim()
    # textalloc takes a point for a dot: its mark is a short line too.
    half = _MARK / axes.bbox.width * (limits[0][1] - limits[0][0])
    _, _, texts, _ = textalloc.allocate(
        axes,
        [label.x for label in labels],
        [label.y for label in labels],
        [label.text for label in labels],
        x_scatter=[x for x, *_ in points],
        y_scatter=[y for _, y, *_ in points],
        x_lines=[line for x, *_ in points for line in ([x, x], [x - half, x + half])],
        y_lines=[line for _, y, *bar in points for line in (bar, [y, y])],
        textsize=_SMALL,
        textcolor=[label.colour for label in labels],
        fontweight=["bold" if label.bold else "normal" for label in labels],
        linecolor=GREY,
        plot_kwargs={"linestyle": ":", "linewidth": 0.9},
        avoid_label_lines_overlap=True,
        direction=["north", "south"],
        nbr_candidates=2000,
        margin=0.004,
        min_distance=0.01,
        max_distance=0.4,
        zorder=5,
    )
    axes.set(xlim=limits[0], ylim=limits[1])
    for text in texts:
        text.set_in_layout(False)


def reach(value: float, interval: tuple[float, float]) -> list[list[float]]:
    """An interval as matplotlib's error bars want it: below and above the value."""
    low, high = interval
    # Interpolation can put a bound past the mean by a rounding error.
    return [[max(value - low, 0.0)], [max(high - value, 0.0)]]


def percent_limits(values: Sequence[float]) -> tuple[float, float]:
    """Limits that show percentages with room around them, at least five points, near 0 to 100."""
    low, high = min(values), max(values)
    room = max((high - low) * 0.2, 5.0)
    return max(low - room, -1.0), min(high + room, 101.0)


def save(figure: Figure, path: Path) -> Path:
    """Write a picture as png; the same picture gives the same bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, format="png", dpi=_DPI, metadata={"Software": None})
    return path
