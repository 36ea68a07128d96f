"""Plots of F1: by program, by parts of the questions, and against tokens per question.

GraphAnchor, or the chosen program, is coloured; all others are grey.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ga_dspy.errors import require

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_ACCENT, _GREY, _INK = "#0969da", "#8c959f", "#424a53"
_STYLE = {
    "font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True,
    "grid.color": "#e7eaee", "axes.axisbelow": True, "axes.edgecolor": _GREY, "xtick.color": _INK,
    "ytick.color": _INK, "axes.labelcolor": _INK, "text.color": _INK, "text.parse_math": False,
}  # fmt: skip
_LONGEST_LABEL = 40
_SMALLEST_RANGE = 10.0  # of the F1 axis, so that noise does not look like a difference


class Point(NamedTuple):
    """A program in a plot.

    Attributes:
        label: Its name, or empty; `plot_costs` connects points with the same name.
        f1: Mean F1 in percent.
        interval: Its 95 % interval, if known.
        tokens: Mean tokens per question, for `plot_costs`.
        stands_out: Whether it has the accent colour.
        note: Text at the end of its row, for `plot_scores`.
    """

    label: str
    f1: float
    interval: tuple[float, float] | None = None
    tokens: float = 0.0
    stands_out: bool = False
    note: str = ""

    @property
    def style(self) -> dict[str, Any]:
        """Arguments of `axes.plot`."""
        if self.stands_out:
            return {"color": _ACCENT, "markersize": 8, "zorder": 4}
        return {"color": _GREY, "markersize": 6, "zorder": 3}


def plot_scores(
    panels: Mapping[str, Sequence[Point]],
    title: str,
    about: str,
    heading: str = "",
    order: Sequence[str] = (),
) -> Figure:
    """Plot F1 with its interval: a row per program, and a panel per part of the questions.

    Args:
        panels: The points by the panel's title.
        title: The title.
        about: The line below the title: the questions and the LM.
        heading: The heading of the notes.
        order: Labels in the order of their rows; other labels follow.

    Raises:
        MissingExtra: matplotlib is not installed.
    """
    every = [point for points in panels.values() for point in points]
    labels = dict.fromkeys((*order, *(point.label for point in every)))
    rows = {label: row for row, label in enumerate(labels)}
    with _drawing(title, about, 1.5 + 0.28 * len(rows), len(panels)) as (figure, all_axes):
        beside: dict[str, Any] = {"xycoords": ("axes fraction", "data"), "fontsize": 8}
        for axes, (name, points) in zip(all_axes, panels.items(), strict=True):
            for point in points:
                row = rows[point.label]
                axes.plot(point.interval or (), [row] * 2, linewidth=1.6, **point.style)
                axes.plot(point.f1, row, "o", clip_on=False, **point.style)
                axes.annotate(point.note, (1.02, row), va="center", **beside)
            axes.set_title(name, loc="left", fontsize=9)
            axes.grid(visible=False, axis="y")
            axes.tick_params(axis="y", length=0, pad=7)
        axes = all_axes[0]
        axes.annotate(heading, (1.02, -0.9), **beside)
        axes.set_yticks(range(len(rows)), map(_short, rows))
        axes.set(xlim=(0, None), ylim=(len(rows) - 0.4, -0.6))
        for point in every:
            if point.stands_out:
                tick = axes.get_yticklabels()[rows[point.label]]
                tick.set(color=_ACCENT, fontweight="bold")
        figure.supxlabel("F1 in percent, with its 95 % interval", fontsize=9, color=_INK)
    return figure


def plot_costs(points: Sequence[Point], title: str, about: str) -> Figure:
    """Plot F1 against tokens per question; numbers refer to the names at the right.

    Args:
        points: The programs; points with the same label are connected.
        title: The title.
        about: The line below the title: the questions and the LM.

    Raises:
        MissingExtra: matplotlib is not installed.
    """
    lines: dict[str, list[Point]] = {}
    for point in sorted(points, key=lambda point: -point.f1):
        lines.setdefault(point.label, []).append(point)
    unnamed, text = lines.pop("", []), {"va": "center", "fontsize": 8, "zorder": 5}
    with _drawing(title, about, 4.4) as (figure, (axes,)):
        for point in unnamed:
            axes.plot(point.tokens, point.f1, "o", **point.style)
        for number, (label, line) in enumerate(lines.items(), start=1):
            line.sort(key=lambda point: point.tokens)
            places = [(point.tokens, point.f1) for point in line]
            style = {**line[0].style, "markersize": 11}
            axes.plot(*zip(*places, strict=True), "o-", linewidth=0.8, **style)
            for place in places:
                axes.annotate(f"{number}", place, ha="center", color="white", **text)
            axes.annotate(
                f"{number}  {_short(label)}", (1.04, 1 - number / (len(lines) + 1)),
                xycoords="axes fraction", color=_ACCENT if line[0].stands_out else _INK, **text,
            )  # fmt: skip
        axes.margins(y=0.14)
        axes.set(xlabel="tokens per question, prompt and completion", ylabel="F1 in percent")
        axes.xaxis.set_major_formatter("{x:,.0f}")
        low, high = axes.get_ylim()
        missing = max(0.0, _SMALLEST_RANGE - (high - low)) / 2
        axes.set_ylim(max(low - missing, -3.0), high + missing)  # no score is below 0
        axes.set_xlim(0, 1.15 * max(point.tokens for point in points) or 1)
    return figure


def _short(label: str) -> str:
    return label if len(label) <= _LONGEST_LABEL else f"{label[: _LONGEST_LABEL - 1]}…"


@contextmanager
def _drawing(
    title: str, about: str, height: float, columns: int = 1
) -> Iterator[tuple[Figure, Sequence[Any]]]:
    """Yield a figure and its panels, which share their axes."""
    matplotlib = require("matplotlib", "report")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with matplotlib.rc_context(_STYLE):
        # pyplot would need a window system, and is not thread-safe.
        figure = Figure(figsize=(8.6, height), dpi=150, layout="constrained")
        FigureCanvasAgg(figure)
        figure.suptitle(f"{title}\n", x=0.012, ha="left", fontsize=12, fontweight="bold")
        figure.text(0.012, 1 - 0.42 / height, about, fontsize=9)
        yield figure, figure.subplots(1, columns, sharex=True, sharey=True, squeeze=False)[0]


def save_plot(figure: Figure, path: Path) -> None:
    """Write a plot as a PNG image; equal plots give equal bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # matplotlib would write its version, which would change the bytes.
    figure.savefig(path, metadata={"Software": None})
