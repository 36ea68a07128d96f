"""Pictures of a compilation: what was tried, what it bought, what it cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ga_dspy.errors import MissingExtra
from ga_dspy.eval import Report
from ga_dspy.optimize.record import Candidate, Outcome

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.ticker import Locator

_INK, _GREY, _BEFORE, _AFTER = "#22262b", "#9aa3ad", "#7b8794", "#1f6feb"
_STYLE: dict[str, Any] = {
    "font.size": 10,
    "axes.edgecolor": _GREY,
    "axes.labelcolor": _INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "grid.color": "#e3e7eb",
    "axes.grid": True,
    "axes.axisbelow": True,
}


def plot_candidates(candidates: Sequence[Candidate]) -> Figure:
    """The score of every candidate in the order tried, and the best so far.

    Scores are those the recipe saw, in percent, on the questions it tried them on.

    Raises:
        MissingExtra: matplotlib is not installed.
    """
    figure, (axes,) = _figure(1, (8.0, 4.2))
    numbers, scores = [c.number for c in candidates], [c.score for c in candidates]
    so_far = [c.best for c in candidates]
    axes.step(numbers, so_far, where="post", color=_AFTER, lw=2, label="best so far")
    axes.scatter(numbers, scores, color=_GREY, s=28, zorder=3, label="candidate")
    best = max(candidates, key=lambda c: c.score)
    axes.scatter([best.number], [best.score], color=_AFTER, s=60, zorder=4)
    _label(axes, f"{best.score:.1f}", best.number, best.score, side=0)
    _name(axes, "Score by candidate", "candidate", "score, %")
    _frame(axes, scores)
    axes.set_xlim(numbers[0] - 0.6, numbers[-1] + 0.6)
    axes.xaxis.set_major_locator(_whole_numbers())
    axes.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=2, frameon=False)
    return figure


def plot_cost(outcome: Outcome) -> Figure:
    """F1 against cost: of a question before and after, and of the compilation as it went on.

    F1 is on the held-out questions, with its 95 % interval; a question's cost is in tokens. The
    second panel stands only where candidates were tried.

    Raises:
        MissingExtra: matplotlib is not installed.
    """
    panels = 2 if outcome.candidates else 1
    figure, axes = _figure(panels, (5.2 * panels, 4.2))
    _cost_of_a_question(axes[0], outcome.before, outcome.after)
    if outcome.candidates:
        _cost_of_compiling(axes[1], outcome.candidates)
    return figure


def _cost_of_a_question(axes: Axes, before: Report, after: Report) -> None:
    spent, intervals = [_tokens(before), _tokens(after)], [before.ci95, after.ci95]
    axes.plot(spent, [before.f1, after.f1], color=_GREY, lw=1, ls="--")
    # The labels on either side, since the points may lie close to one another.
    sides = (1, -1) if spent[0] > spent[1] else (-1, 1)
    named = (("before", before, _BEFORE), ("after", after, _AFTER))
    for (name, report, colour), x, (low, high), side in zip(
        named, spent, intervals, sides, strict=True
    ):
        # Interpolation can put a bound past the mean by a rounding error.
        reach = [[max(report.f1 - low, 0.0)], [max(high - report.f1, 0.0)]]
        axes.errorbar([x], [report.f1], reach, fmt="o", ms=8, lw=1.6, capsize=4, color=colour)
        _label(axes, f"{name}  {report.f1:.1f}", x, report.f1, side, colour)
    _name(axes, "F1 against cost of a question", "tokens a question", "F1 with 95 % interval, %")
    _frame(axes, [bound for interval in intervals for bound in interval])
    axes.set_xlim(0.0, max(max(spent) * 1.4, 1.0))
    axes.xaxis.set_major_formatter("{x:,.0f}")


def _cost_of_compiling(axes: Axes, candidates: Sequence[Candidate]) -> None:
    spent, scores = [c.tokens for c in candidates], [c.score for c in candidates]
    axes.step(spent, [c.best for c in candidates], where="post", color=_AFTER, lw=2)
    axes.scatter(spent, scores, color=_GREY, s=28, zorder=3)
    _name(axes, "Best score against cost of compiling", "tokens spent so far", "score, %")
    _frame(axes, scores)
    axes.set_xlim(0.0, max(spent[-1] * 1.05, 1.0))
    axes.xaxis.set_major_formatter(_compact)


def _figure(panels: int, size: tuple[float, float]) -> tuple[Figure, list[Axes]]:
    try:
        from matplotlib import rc_context
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtra("matplotlib", "optimize") from error
    with rc_context(_STYLE):
        # Without pyplot: no window system, and safe in any thread.
        figure = Figure(figsize=size, dpi=150, layout="constrained")
        FigureCanvasAgg(figure)
        return figure, list(figure.subplots(1, panels, squeeze=False)[0])


def _name(axes: Axes, title: str, x: str, y: str) -> None:
    axes.set_title(title, loc="left", color=_INK, fontsize=11, fontweight="bold", pad=10)
    axes.set(xlabel=x, ylabel=y)


def _label(axes: Axes, text: str, x: float, y: float, side: int, colour: str = _INK) -> None:
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


def _frame(axes: Axes, scores: Sequence[float]) -> None:
    """Show the scores with room around them, at least five points, within 0 to 100."""
    low, high = min(scores), max(scores)
    room = max((high - low) * 0.2, 5.0)
    axes.set_ylim(max(low - room, -1.0), min(high + room, 101.0))


def _tokens(report: Report) -> float:
    """Mean tokens of a question; one that failed counts as none."""
    return sum(result.tokens or 0 for result in report.results) / len(report.results)


def _whole_numbers() -> Locator:
    from matplotlib.ticker import MaxNLocator

    return MaxNLocator(integer=True, min_n_ticks=1)


def _compact(value: float, _position: float) -> str:
    for size, unit in ((1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:g}{unit}"
    return f"{value:g}"
