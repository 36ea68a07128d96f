"""Attention over the questions of a run: chosen, measured, averaged by step, drawn (Figures 5, 6).

A step is that of the graph which the prompt shows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from math import exp, fsum, log, nan
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ga_dspy.arena.attention import (
    AttentionCase,
    Shares,
    StepMeasure,
    Weight,
    load_model,
    measure,
)
from ga_dspy.drawing import BLUE, INK, ORANGE, PALE, canvas, legend, name, small_print
from ga_dspy.errors import InputError
from ga_dspy.eval import Report
from ga_dspy.signatures.prompt import EMPTY

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def cases_of(report: Report) -> tuple[AttentionCase, ...]:
    """The questions that took as many steps as any, as the paper chooses them.

    Args:
        report: A run of a program that keeps a graph.

    Raises:
        InputError: No question of it has a graph.
    """
    having = [r for r in report.results if r.passages and any(step.graph for step in r.trace)]
    if not having:
        raise InputError(
            f"the run of {report.protocol.program} holds no question with a graph",
            expected="a run of graph-anchor with at least one question that did not fail",
            remedy="make one with `ga-dspy arena`",
        )
    most = max(len(result.trace) for result in having)
    return tuple(
        AttentionCase(
            question=result.question,
            answer=result.gold[0],
            passages=tuple(enumerate(result.passages, start=1)),
            graphs=tuple(step.graph or EMPTY for step in result.trace),
            entities=tuple(step.names for step in result.trace),
        )
        for result in having
        if len(result.trace) == most
    )


class Progress(NamedTuple):
    """How far the measuring is, in questions; `skipped` of those done were not measured."""

    done: int
    total: int
    skipped: int


def measure_all(
    cases: Sequence[AttentionCase],
    model_path: str | Path,
    *,
    layers: Sequence[int] | None = None,
    graph_after_passages: bool = True,
    progress: Callable[[Progress], None] | None = None,
) -> AttentionReport:
    """Measure questions with a model from a local folder.

    A question whose prompt at some step is too long for the model is skipped at all steps, so
    that every step is about the same questions, and listed with the reason.

    Args:
        cases: The questions.
        model_path: The folder of a Hugging Face causal LM.
        layers: Which layers to average over, from 0; None for all.
        graph_after_passages: Whether the graph stands after the passages or before them.
        progress: Called before the first question and after each.

    Raises:
        InputError: There are no questions, or there is no such layer.
        MissingExtra: torch or transformers is not installed.
        ModelUnusable: The folder holds no causal LM, or one that cannot be measured.
    """
    if not cases:
        raise InputError(
            "no questions to measure",
            expected="questions that used the maximum number of steps",
            remedy="run a method that builds graphs over more questions",
        )
    local = load_model(model_path)
    chosen = local.layers(layers)
    measured: list[tuple[StepMeasure, ...]] = []
    skipped: list[Skipped] = []
    report_progress = progress or (lambda _: None)
    report_progress(Progress(0, len(cases), 0))
    for done, case in enumerate(cases, 1):
        try:
            measured.append(
                measure(case, local, layers=chosen, graph_after_passages=graph_after_passages)
            )
        except InputError as error:
            skipped.append(Skipped(case.question, str(error)))
        report_progress(Progress(done, len(cases), len(skipped)))
    return AttentionReport(
        local.name,
        len(local.attentions),
        chosen,
        graph_after_passages,
        tuple(measured),
        tuple(skipped),
    )


# --- Means over questions by step of the graph that was shown.


class Skipped(NamedTuple):
    """A question that was not measured, and why."""

    question: str
    reason: str


class Mean(NamedTuple):
    """A mean over the `n` questions that have the quantity; None where none has."""

    value: float | None
    n: int


class StepMeans(NamedTuple):
    """`StepMeasure` averaged over the `n` questions that have this step.

    `perplexity` is the geometric mean: a few questions of enormous perplexity would else be all
    of it.
    """

    step: int
    n: int
    shares: Shares
    answer_entropy: Mean
    graph_entropy: Mean
    anchored: Mean
    anchored_lift: Mean
    perplexity: Mean
    new_entities: tuple[Mean, ...]
    new_entities_lift: tuple[Mean, ...]


class AttentionReport(NamedTuple):
    """What a model attended to, over all questions asked; those skipped are listed.

    `layers` are those averaged over, of `depth` in the model.
    """

    model: str
    depth: int
    layers: tuple[int, ...]
    graph_after_passages: bool
    measured: tuple[tuple[StepMeasure, ...], ...]
    skipped: tuple[Skipped, ...]

    @property
    def steps(self) -> tuple[StepMeans, ...]:
        """Means by step of the graph, from 1; empty where every question was skipped."""
        longest = max((len(steps) for steps in self.measured), default=0)
        return tuple(
            _step_means([steps[i] for steps in self.measured if i < len(steps)], longest)
            for i in range(longest)
        )

    @property
    def caption(self) -> str:
        """The model, how many questions, which layers, and the order in the prompt."""
        counts = sorted({step.n for step in self.steps}) or [0]
        n = f"n = {counts[0]}" if len(counts) == 1 else f"n = {counts[0]} to {counts[-1]}"
        skipped = f" ({len(self.skipped)} skipped)" if self.skipped else ""
        chosen = "all" if len(self.layers) == self.depth else f"{len(self.layers)} of"
        order = "after" if self.graph_after_passages else "before"
        return f"{self.model}, {n}{skipped}, {chosen} {self.depth} layers, graph {order} passages"


def as_rows(report: AttentionReport) -> list[dict[str, str | int | float | None]]:
    """One row a plotted number: figure, step of the graph, series, value, unit, n, model.

    Series that no figure draws are here too: the attention on question, answer and rest, and
    how much mentions get beyond their number ("lift").
    """
    series = [(step.step, *one) for step in report.steps for one in _series(step)]
    return [
        {
            "figure": figure,
            "step": step,
            "series": name,
            "value": mean.value,
            "unit": unit,
            "n": mean.n,
            "model": report.model,
        }
        for step, figure, name, mean, unit in sorted(series, key=lambda one: one[1])
    ]


def _series(step: StepMeans) -> Iterator[tuple[str, str, Mean, str]]:
    """Figure, name, mean and unit of each series at a step."""
    of_passages = "share of attention on passages"
    for part, value in step.shares._asdict().items():
        yield "5a", part, Mean(value, step.n), "share of attention"
    yield "5b", "graph", step.graph_entropy, "nats"
    yield "5b", "answer", step.answer_entropy, "nats"
    yield "6a", "anchored mentions", step.anchored, of_passages
    yield "6a", "anchored mentions", step.anchored_lift, "lift"
    yield "6a", "gold answer", step.perplexity, "perplexity"
    for means, unit in ((step.new_entities, of_passages), (step.new_entities_lift, "lift")):
        for number, mean in enumerate(means, 1):
            yield "6b", f"indexed at step {number}", mean, unit


def _step_means(measures: list[StepMeasure], longest: int) -> StepMeans:
    new = [
        [measure.new_entities[s] for measure in measures if s < len(measure.new_entities)]
        for s in range(longest)
    ]
    anchored = [measure.anchored for measure in measures]
    surprise = fsum(log(measure.perplexity) for measure in measures) / len(measures)
    return StepMeans(
        step=measures[0].step,
        n=len(measures),
        shares=Shares(*(fsum(p) / len(p) for p in zip(*(m.shares for m in measures), strict=True))),
        answer_entropy=_mean(measure.answer_entropy for measure in measures),
        graph_entropy=_mean(measure.graph_entropy for measure in measures),
        anchored=_mean_share(anchored),
        anchored_lift=_mean_lift(anchored),
        perplexity=Mean(exp(surprise), len(measures)),
        new_entities=tuple(map(_mean_share, new)),
        new_entities_lift=tuple(map(_mean_lift, new)),
    )


def _mean_share(weights: Iterable[Weight | None]) -> Mean:
    return _mean(weight and weight.share for weight in weights)


def _mean_lift(weights: Iterable[Weight | None]) -> Mean:
    return _mean(weight and weight.lift for weight in weights)


def _mean(values: Iterable[float | None]) -> Mean:
    known = [value for value in values if value is not None]
    return Mean(fsum(known) / len(known) if known else None, len(known))


# --- The paper's Figures 5 and 6. Each names the model and the number of questions under its axes.

_BAR = 0.36
_STEP = "step of the graph shown"
_OF_PASSAGES = "share of the attention on passages, %"


def plot_all(report: AttentionReport) -> dict[str, Figure]:
    """All figures that the report has values for, by the paper's number: "5a" to "6b".

    Raises:
        InputError: Every question was skipped.
        MissingExtra: matplotlib is not installed.
    """
    drawn = {"5a": plot_shares(report)}
    for number, plot in (("5b", plot_entropy), ("6a", plot_anchored), ("6b", plot_new_entities)):
        # A figure without values is left out.
        with suppress(InputError):
            drawn[number] = plot(report)
    return drawn


def plot_shares(report: AttentionReport) -> Figure:
    """Figure 5a: the share of the answer's whole attention on the graph and on the passages.

    Raises:
        InputError: No question was measured.
        MissingExtra: matplotlib is not installed.
    """
    steps = _steps("attention shares", report)
    rest = "the rest: the question, the answer itself, the instruction, special tokens"
    share = "share of the whole attention, %"
    figure, axes = _figure(report, "Attention when answering", _STEP, share, rest)
    half = _BAR / 2
    _bars(axes, {s.step - half: s.shares.graph for s in steps}, _BAR, BLUE, "graph")
    _bars(axes, {s.step + half: s.shares.passages for s in steps}, _BAR, PALE, "passages")
    axes.margins(y=0.1)
    _finish(axes, steps)
    return figure


def plot_entropy(report: AttentionReport) -> Figure:
    """Figure 5b: entropy over passage tokens of the attention from the graph and the answer.

    Raises:
        InputError: No question was measured, or none attends to its passages.
        MissingExtra: matplotlib is not installed.
    """
    steps = _steps("entropy", report, *(step.answer_entropy for step in report.steps))
    title = "Entropy of attention over passage tokens"
    figure, axes = _figure(report, title, _STEP, "entropy, nats")
    _line(axes, {step.step: step.graph_entropy for step in steps}, BLUE, "o-", "from the graph")
    _line(
        axes, {step.step: step.answer_entropy for step in steps}, ORANGE, "s--", "from the answer"
    )
    axes.margins(y=0.15)
    _finish(axes, steps)
    return figure


def plot_anchored(report: AttentionReport) -> Figure:
    """Figure 6a: the answer's attention on mentions of the graph's entities, and perplexity.

    Raises:
        InputError: No passage mentions an entity that its graph anchors.
        MissingExtra: matplotlib is not installed.
    """
    steps = _steps("anchored mention", report, *(step.anchored for step in report.steps))
    figure, axes = _figure(report, "Attention on anchored entities", _STEP, _OF_PASSAGES)
    known = {float(s.step): s.anchored.value for s in steps if s.anchored.value is not None}
    _bars(axes, known, _BAR * 1.4, PALE, "attention (left)")
    axes.margins(y=0.15)
    right = axes.twinx()
    right.grid(visible=False)
    _line(right, {step.step: step.perplexity for step in steps}, BLUE, "o-", "perplexity (right)")
    right.set_ylabel("perplexity of the gold answer", color=BLUE)
    right.spines[:].set_visible(False)
    right.margins(y=0.25)
    _finish(axes, steps, right)
    return figure


def plot_new_entities(report: AttentionReport) -> Figure:
    """Figure 6b: the graph's attention on mentions of the entities first indexed at each step.

    Rows are the step of the graph shown, columns the step that indexed the entity.

    Raises:
        InputError: The graph came before the passages, or no passage mentions an entity.
        MissingExtra: matplotlib is not installed.
    """
    cells = [mean for step in report.steps for mean in step.new_entities]
    steps = _steps("attention from graph to entities", report, *cells)
    indexed = "step that indexed the entity"
    figure, axes = _figure(report, "Attention from the graph to entities", indexed, _STEP)
    axes.grid(visible=False)
    numbers = [step.step for step in steps]
    grid = [
        [nan if mean.value is None else 100 * mean.value for mean in step.new_entities]
        for step in steps
    ]
    end = len(numbers) + 0.5
    image = axes.imshow(grid, cmap="Blues", vmin=0.0, extent=(0.5, end, end, 0.5))
    for row, values in zip(numbers, grid, strict=True):
        for column, value in enumerate(values, 1):
            dark = value > 0.6 * image.get_clim()[1]
            text = "none" if value != value else f"{value:.1f}"
            axes.text(column, row, text, ha="center", va="center", color="w" if dark else INK)
    axes.set(xticks=numbers, yticks=numbers)
    bar = figure.colorbar(image, ax=axes, label=_OF_PASSAGES)
    bar.outline.set_visible(False)
    return figure


def _steps(what: str, report: AttentionReport, *means: Mean) -> tuple[StepMeans, ...]:
    """The steps to draw: one at least, and where means are given, one of them with a value."""
    if not report.steps or (means and all(mean.value is None for mean in means)):
        why = report.skipped[0].reason if report.skipped else report.caption
        raise InputError(
            f"no {what} in {len(report.measured)} measured and {len(report.skipped)} skipped "
            f"questions ({why})",
            expected="at least one value",
            remedy="measure other questions, use a model that reads longer prompts, or place the "
            "graph after the passages",
        )
    return report.steps


def _figure(
    report: AttentionReport, title: str, x: str, y: str, *notes: str
) -> tuple[Figure, Axes]:
    figure, (axes,) = canvas(5.6, 4.2)
    name(axes, title, x, y, pad=26)
    small_print(figure, "\n".join((report.caption, *notes)))
    return figure, axes


def _bars(axes: Axes, shares: dict[float, float], width: float, colour: str, label: str) -> None:
    heights = [100 * share for share in shares.values()]
    bars = axes.bar([*shares], heights, width, color=colour, label=label)
    axes.bar_label(bars, fmt="%.1f", fontsize=8, color=INK, padding=2)


def _line(axes: Axes, by_step: dict[int, Mean], colour: str, form: str, label: str) -> None:
    known = {step: mean.value for step, mean in by_step.items() if mean.value is not None}
    if known:
        axes.plot([*known], [*known.values()], form, color=colour, lw=2, ms=5, label=label)


def _finish(axes: Axes, steps: Sequence[StepMeans], *others: Axes) -> None:
    """Whole steps on the x axis, and one legend above the axes for all scales."""
    axes.set_xticks([step.step for step in steps])
    axes.set_xlim(steps[0].step - 0.6, steps[-1].step + 0.6)
    legend(axes, *others)
