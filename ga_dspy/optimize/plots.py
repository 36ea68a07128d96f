"""Pictures of a compilation: what was tried, what it bought, what it cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ga_dspy.drawing import (
    BLUE,
    GREY,
    SLATE,
    canvas,
    compact,
    label,
    name,
    percent_limits,
    reach,
    whole_numbers,
)
from ga_dspy.eval import Report
from ga_dspy.optimize.trials import Candidate, Outcome

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_BEFORE, _AFTER = SLATE, BLUE


def plot_candidates(candidates: Sequence[Candidate]) -> Figure:
    """The score of every candidate in the order tried, and the best so far.

    Scores are those the recipe saw, in percent, on the questions it tried them on.

    Raises:
        MissingExtra: matplotlib is not installed.
    """
    figure, (axes,) = canvas(8.0, 4.2)
    numbers, scores = [c.number for c in candidates], [c.score for c in candidates]
    so_far = [c.best for c in candidates]
    axes.step(numbers, so_far, where="post", color=_AFTER, lw=2, label="best so far")
    axes.scatter(numbers, scores, color=GREY, s=28, zorder=3, label="candidate")
    best = max(candidates, key=lambda c: c.score)
    axes.scatter([best.number], [best.score], color=_AFTER, s=60, zorder=4)
    label(axes, f"{best.score:.1f}", best.number, best.score, side=0)
    name(axes, "Score by candidate", "candidate", "score, %")
    axes.set_ylim(percent_limits(scores))
    axes.set_xlim(numbers[0] - 0.6, numbers[-1] + 0.6)
    axes.xaxis.set_major_locator(whole_numbers())
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
    figure, axes = canvas(5.2 * panels, 4.2, panels)
    _cost_of_a_question(axes[0], outcome.before, outcome.after)
    if outcome.candidates:
        _cost_of_compiling(axes[1], outcome.candidates)
    return figure


def _cost_of_a_question(axes: Axes, before: Report, after: Report) -> None:
    spent, intervals = [_tokens(before), _tokens(after)], [before.ci95, after.ci95]
    axes.plot(spent, [before.f1, after.f1], color=GREY, lw=1, ls="--")
    # The labels on either side, since the points may lie close to one another.
    sides = (1, -1) if spent[0] > spent[1] else (-1, 1)
    points = (("before", before, _BEFORE), ("after", after, _AFTER))
    for (when, report, colour), x, interval, side in zip(
        points, spent, intervals, sides, strict=True
    ):
        away = reach(report.f1, interval)
        axes.errorbar([x], [report.f1], away, fmt="o", ms=8, lw=1.6, capsize=4, color=colour)
        label(axes, f"{when}  {report.f1:.1f}", x, report.f1, side, colour)
    name(axes, "F1 against cost of a question", "tokens a question", "F1 with 95 % interval, %")
    axes.set_ylim(percent_limits([bound for interval in intervals for bound in interval]))
    axes.set_xlim(0.0, max(max(spent) * 1.4, 1.0))
    axes.xaxis.set_major_formatter("{x:,.0f}")


def _cost_of_compiling(axes: Axes, candidates: Sequence[Candidate]) -> None:
    spent, scores = [c.tokens for c in candidates], [c.score for c in candidates]
    axes.step(spent, [c.best for c in candidates], where="post", color=_AFTER, lw=2)
    axes.scatter(spent, scores, color=GREY, s=28, zorder=3)
    name(axes, "Best score against cost of compiling", "tokens spent so far", "score, %")
    axes.set_ylim(percent_limits(scores))
    axes.set_xlim(0.0, max(spent[-1] * 1.05, 1.0))
    axes.xaxis.set_major_formatter(compact)


def _tokens(report: Report) -> float:
    """Mean tokens of a question; one that failed counts as none."""
    return sum(result.tokens or 0 for result in report.results) / len(report.results)
