"""Plots of F1: by program, by parts of the questions, and against the tokens of a question.

Names stand beside what they name, so there is no legend. GraphAnchor, or the chosen program, has
the one colour; the others are grey.
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
        label: Its name; points with the same name are connected in `plot_costs`, empty is none.
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
        """How it is drawn."""
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
        title: In bold.
        about: Which questions and LM.
        heading: What the notes say.
        order: Labels in the order of their rows; others follow.

    Raises:
        MissingExtra: matplotlib is not installed.
    """
    every = [point for points in panels.values() for point in points]
    labels = dict.fromkeys(point.label for point in every)
    first = [label for label in order if label in labels]
    rows = {label: row for row, label in enumerate(dict.fromkeys((*first, *labels)))}
    with _drawing(title, about, 1.5 + 0.28 * len(rows), len(panels)) as (figure, all_axes):
        for axes, (name, points) in zip(all_axes, panels.items(), strict=True):
            for point in points:
                row = rows[point.label]
                axes.plot(point.interval or (), [row] * 2, linewidth=1.6, **point.style)
                axes.plot(point.f1, row, "o", clip_on=False, **point.style)
                axes.annotate(
                    point.note, (1.02, row), xycoords=("axes fraction", "data"), va="center",
                    fontsize=8,
                )  # fmt: skip
            axes.set_title(name, loc="left", fontsize=9)
            axes.grid(visible=False, axis="y")
            axes.tick_params(axis="y", length=0, pad=7)
        axes = all_axes[0]
        axes.annotate(heading, (1.02, -0.9), xycoords=("axes fraction", "data"), fontsize=8)
        axes.set_yticks(range(len(rows)), [_short(label) for label in rows])
        axes.set(xlim=(0, None), ylim=(len(rows) - 0.4, -0.6))
        ours = {point.label for point in every if point.stands_out}
        for label, tick in zip(rows, axes.get_yticklabels(), strict=True):
            if label in ours:
                tick.set(color=_ACCENT, fontweight="bold")
        figure.supxlabel("F1 in percent, with its 95 % interval", fontsize=9, color=_INK)
    return figure


def plot_costs(points: Sequence[Point], title: str, about: str) -> Figure:
    """Plot F1 against the tokens of a question, each program's name beside it.

    Args:
        points: The programs. Points with the same label are connected, and named once.
        title: In bold.
        about: Which questions and LM.

    Raises:
        MissingExtra: matplotlib is not installed.
    """
    with _drawing(title, about, 4.4) as (figure, (axes,)):
        lines: dict[str, list[Point]] = {}
        for point in sorted(points, key=lambda point: point.tokens):
            lines.setdefault(point.label, []).append(point)
        for label, line in lines.items():
            shape = "o-" if label else "o"
            places = [point.tokens for point in line], [point.f1 for point in line]
            axes.plot(*places, shape, linewidth=0.8, label=label, **line[0].style)
        axes.margins(y=0.14)
        axes.set(xlabel="tokens per question, prompt and completion", ylabel="F1 in percent")
        axes.xaxis.set_major_formatter("{x:,.0f}")
        low, high = axes.get_ylim()
        missing = max(0.0, _SMALLEST_RANGE - (high - low)) / 2
        axes.set_ylim(max(low - missing, -3.0), high + missing)  # no score is below 0
        axes.set_xlim(0, 1.15 * max(point.tokens for point in points) or 1)
        _write_labels(figure, axes, points, [line[-1] for label, line in lines.items() if label])
    return figure


def _write_labels(
    figure: Figure, axes: Any, points: Sequence[Point], named: Sequence[Point]
) -> None:
    """Write each label at the nearest place where it hides no point and no other label."""
    from matplotlib.text import Text
    from matplotlib.transforms import Bbox

    figure.draw_without_rendering()  # only now are places on the page known
    canvas: Any = figure.canvas
    renderer, room = canvas.get_renderer(), axes.bbox
    taken = [
        Bbox.from_bounds(x - 8, y - 8, 16, 16)
        for x, y in axes.transData.transform([(point.tokens, point.f1) for point in points])
    ]
    around = ((1, 1), (1, -1), (-1, 1), (-1, -1), (0, 1.5), (0, -1.5))
    places = [(9.0, 0.0), (-9.0, 0.0)]
    places += [(far * x, far * y) for far in (9, 14, 22, 32, 44, 58, 74, 92) for x, y in around]
    for point in sorted(named, key=lambda point: (not point.stands_out, point.tokens)):
        text = axes.annotate(
            _short(point.label), (point.tokens, point.f1), (0, 0), textcoords="offset points",
            fontsize=8, va="center", color=_ACCENT if point.stands_out else _INK,
            fontweight="bold" if point.stands_out else "normal", in_layout=False,
            arrowprops={"arrowstyle": "-", "color": _GREY},
        )  # fmt: skip
        for x, y in places:
            text.set(position=(x, y), ha="left" if x > 0 else "right" if x else "center")
            text.arrow_patch.set_linewidth(0.6 if y else 0)
            text.update_positions(renderer)
            box = Text.get_window_extent(text, renderer).padded(4)  # without the line
            is_inside = room.contains(*box.min) and room.contains(*box.max)
            if is_inside and not box.count_overlaps(taken):
                break
        taken.append(box)


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
        # Without pyplot: no window system, and safe in any thread.
        figure = Figure(figsize=(8.6, height), dpi=150, layout="constrained")
        FigureCanvasAgg(figure)
        figure.suptitle(f"{title}\n", x=0.012, ha="left", fontsize=12, fontweight="bold")
        figure.text(0.012, 1 - 0.42 / height, about, fontsize=9)
        yield figure, figure.subplots(1, columns, sharex=True, sharey=True, squeeze=False)[0]


def save_plot(figure: Figure, path: Path) -> None:
    """Write a plot as a PNG image; the same plot gives the same bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # Without the version of matplotlib, which would change the bytes.
    figure.savefig(path, metadata={"Software": None})
