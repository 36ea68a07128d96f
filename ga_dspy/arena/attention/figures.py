"""The paper's Figures 5 and 6, drawn from an attention report.

Every figure names the model and the number of questions under its axes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ga_dspy.arena.attention.report import AttentionReport, Mean, StepMeans
from ga_dspy.drawing import BLUE, INK, ORANGE, PALE, canvas, legend, small_print
from ga_dspy.errors import GaDspyError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_BAR = 0.36
_STEP = "step of the graph shown"
_REST = "the rest: the question, the answer itself, the instruction, special tokens"


class NothingToDraw(GaDspyError):
    """The report holds no value of what a figure shows."""

    def __init__(self, what: str, report: AttentionReport) -> None:
        why = report.skipped[0].reason if report.skipped else report.caption
        super().__init__(
            f"no {what} in {len(report.measured)} measured and {len(report.skipped)} skipped "
            f"questions ({why}); expected at least one value; measure other questions, use a "
            "model that reads longer prompts, or place the graph after the passages"
        )


def plot_all(report: AttentionReport) -> dict[str, Figure]:
    """All figures that the report has values for, by the paper's number: "5a" to "6b".

    Raises:
        NothingToDraw: Every question was skipped.
        MissingExtra: matplotlib is not installed.
    """
    if not report.steps:
        raise NothingToDraw("attention", report)
    drawn = {"5a": plot_shares(report)}
    for number, plot, values in (
        ("5b", plot_entropy, [step.answer_entropy for step in report.steps]),
        ("6a", plot_anchored, [step.anchored for step in report.steps]),
        ("6b", plot_new_entities, [mean for step in report.steps for mean in step.new_entities]),
    ):
        if any(mean.value is not None for mean in values):
            drawn[number] = plot(report)
    return drawn


def plot_shares(report: AttentionReport) -> Figure:
    """Figure 5a: the share of the answer's whole attention on the graph and on the passages.

    Raises:
        NothingToDraw: No question was measured.
        MissingExtra: matplotlib is not installed.
    """
    steps = _steps("attention shares", report)
    figure, axes = _figure("Attention when answering", report, _REST)
    for offset, label, colour, values in (
        (-0.5, "graph", BLUE, [step.shares.graph for step in steps]),
        (0.5, "passages", PALE, [step.shares.passages for step in steps]),
    ):
        places = [step.step + offset * _BAR for step in steps]
        bars = axes.bar(places, [100 * v for v in values], _BAR, color=colour, label=label)
        axes.bar_label(bars, fmt="%.1f", fontsize=8, color=INK, padding=2)
    axes.set(xlabel=_STEP, ylabel="share of the whole attention, %")
    axes.margins(y=0.1)
    _finish(axes, steps)
    return figure


def plot_entropy(report: AttentionReport) -> Figure:
    """Figure 5b: entropy over passage tokens of the attention from the graph and the answer.

    Raises:
        NothingToDraw: No question was measured, or none attends to its passages.
        MissingExtra: matplotlib is not installed.
    """
    steps = _steps("entropy", report, *(step.answer_entropy for step in report.steps))
    figure, axes = _figure("Entropy of attention over passage tokens", report)
    for label, colour, form, means in (
        ("from the graph", BLUE, "o-", [step.graph_entropy for step in steps]),
        ("from the answer", ORANGE, "s--", [step.answer_entropy for step in steps]),
    ):
        _line(axes, steps, means, colour, form, label)
    axes.set(xlabel=_STEP, ylabel="entropy, nats")
    axes.margins(y=0.15)
    _finish(axes, steps)
    return figure


def plot_anchored(report: AttentionReport) -> Figure:
    """Figure 6a: the answer's attention on mentions of the graph's entities, and perplexity.

    Raises:
        NothingToDraw: No passage mentions an entity that its graph anchors.
        MissingExtra: matplotlib is not installed.
    """
    steps = _steps("anchored mention", report, *(step.anchored for step in report.steps))
    figure, axes = _figure("Attention on anchored entities", report)
    there = [(step.step, step.anchored.value) for step in steps if step.anchored.value is not None]
    places, shares = [step for step, _ in there], [100 * value for _, value in there]
    bars = axes.bar(places, shares, _BAR * 1.4, color=PALE, label="attention (left)")
    axes.bar_label(bars, fmt="%.1f", fontsize=8, color=INK, padding=2)
    axes.set(xlabel=_STEP, ylabel="share of the attention on passages, %")
    axes.margins(y=0.15)
    right = axes.twinx()
    right.grid(visible=False)
    _line(right, steps, [step.perplexity for step in steps], BLUE, "o-", "perplexity (right)")
    right.set_ylabel("perplexity of the gold answer", color=BLUE)
    right.spines[:].set_visible(False)
    right.margins(y=0.25)
    _finish(axes, steps, right)
    return figure


def plot_new_entities(report: AttentionReport) -> Figure:
    """Figure 6b: the graph's attention on mentions of the entities first indexed at each step.

    Rows are the step of the graph shown, columns the step that indexed the entity.

    Raises:
        NothingToDraw: The graph came before the passages, or no passage mentions an entity.
        MissingExtra: matplotlib is not installed.
    """
    cells = [mean for step in report.steps for mean in step.new_entities]
    steps = _steps("attention from graph to entities", report, *cells)
    figure, axes = _figure("Attention from the graph to entities", report)
    axes.grid(visible=False)
    numbers = [step.step for step in steps]
    missing = float("nan")
    grid = [
        [missing if mean.value is None else 100 * mean.value for mean in step.new_entities]
        for step in steps
    ]
    end = len(numbers) + 0.5
    image = axes.imshow(grid, cmap="Blues", vmin=0.0, extent=(0.5, end, end, 0.5))
    for row, values in zip(numbers, grid, strict=True):
        for column, value in enumerate(values, 1):
            dark = value > 0.6 * image.get_clim()[1]
            text = "none" if value != value else f"{value:.1f}"
            axes.text(column, row, text, ha="center", va="center", color="w" if dark else INK)
    axes.set(xlabel="step that indexed the entity", ylabel=_STEP, xticks=numbers, yticks=numbers)
    bar = figure.colorbar(image, ax=axes, label="share of the attention on passages, %")
    bar.outline.set_visible(False)
    return figure


def _steps(what: str, report: AttentionReport, *means: Mean) -> tuple[StepMeans, ...]:
    """The steps to draw, of which there must be some, with a value where means are given."""
    if not report.steps or (means and all(mean.value is None for mean in means)):
        raise NothingToDraw(what, report)
    return report.steps


def _figure(title: str, report: AttentionReport, *notes: str) -> tuple[Figure, Axes]:
    figure, (axes,) = canvas(5.6, 4.2)
    axes.set_title(title, loc="left", color=INK, fontsize=11, fontweight="bold", pad=26)
    small_print(figure, "\n".join((report.caption, *notes)))
    return figure, axes


def _line(
    axes: Axes,
    steps: Sequence[StepMeans],
    means: Sequence[Mean],
    colour: str,
    form: str,
    label: str,
) -> None:
    there = [
        (step.step, mean.value)
        for step, mean in zip(steps, means, strict=True)
        if mean.value is not None
    ]
    if there:
        numbers, values = zip(*there, strict=True)
        axes.plot(numbers, values, form, color=colour, lw=2, ms=5, label=label)


def _finish(axes: Axes, steps: Sequence[StepMeans], other: Axes | None = None) -> None:
    """Whole steps on the x axis, and one legend above the axes for both scales."""
    axes.set_xticks([step.step for step in steps])
    axes.set_xlim(steps[0].step - 0.6, steps[-1].step + 0.6)
    legend(*(each for each in (axes, other) if each is not None))
