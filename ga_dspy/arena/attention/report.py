"""Means over questions by step of the graph that was shown."""

from __future__ import annotations

from collections.abc import Iterable
from math import exp, fsum, log
from typing import NamedTuple

from ga_dspy.arena.attention.step import Shares, StepMeasure
from ga_dspy.arena.attention.weights import Weight


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
        layers = (
            f"all {self.depth} layers"
            if len(self.layers) == self.depth
            else f"{len(self.layers)} of {self.depth} layers"
        )
        order = "graph after passages" if self.graph_after_passages else "graph before passages"
        return f"{self.model}, {n}{skipped}, {layers}, {order}"


def as_rows(report: AttentionReport) -> list[dict[str, str | int | float | None]]:
    """One row a plotted number: figure, step of the graph, series, value, unit, n, model.

    Series that no figure draws are here too: the attention on question, answer and rest, and
    how much mentions get beyond their number ("lift").
    """
    return [
        {
            "figure": figure,
            "step": step.step,
            "series": series,
            "value": mean.value,
            "unit": unit,
            "n": mean.n,
            "model": report.model,
        }
        for figure, select in _FIGURES.items()
        for step in report.steps
        for series, mean, unit in select(step)
    ]


def _shares(step: StepMeans) -> list[tuple[str, Mean, str]]:
    parts = step.shares._asdict().items()
    return [(part, Mean(value, step.n), "share of attention") for part, value in parts]


def _entropies(step: StepMeans) -> list[tuple[str, Mean, str]]:
    return [("graph", step.graph_entropy, "nats"), ("answer", step.answer_entropy, "nats")]


def _anchored(step: StepMeans) -> list[tuple[str, Mean, str]]:
    return [
        ("anchored mentions", step.anchored, "share of attention on passages"),
        ("anchored mentions", step.anchored_lift, "lift"),
        ("gold answer", step.perplexity, "perplexity"),
    ]


def _new_entities(step: StepMeans) -> list[tuple[str, Mean, str]]:
    return [
        (f"indexed at step {number}", mean, unit)
        for means, unit in (
            (step.new_entities, "share of attention on passages"),
            (step.new_entities_lift, "lift"),
        )
        for number, mean in enumerate(means, 1)
    ]


_FIGURES = {"5a": _shares, "5b": _entropies, "6a": _anchored, "6b": _new_entities}


def _step_means(measures: list[StepMeasure], longest: int) -> StepMeans:
    new = [
        [measure.new_entities[s] for measure in measures if s < len(measure.new_entities)]
        for s in range(longest)
    ]
    surprise = _mean(log(measure.perplexity) for measure in measures)
    return StepMeans(
        step=measures[0].step,
        n=len(measures),
        shares=_mean_shares([measure.shares for measure in measures]),
        answer_entropy=_mean(measure.answer_entropy for measure in measures),
        graph_entropy=_mean(measure.graph_entropy for measure in measures),
        anchored=_mean(_share(measure.anchored) for measure in measures),
        anchored_lift=_mean(_lift(measure.anchored) for measure in measures),
        perplexity=Mean(None if surprise.value is None else exp(surprise.value), surprise.n),
        new_entities=tuple(_mean(map(_share, weights)) for weights in new),
        new_entities_lift=tuple(_mean(map(_lift, weights)) for weights in new),
    )


def _mean(values: Iterable[float | None]) -> Mean:
    there = [value for value in values if value is not None]
    return Mean(fsum(there) / len(there) if there else None, len(there))


def _mean_shares(shares: list[Shares]) -> Shares:
    return Shares(*(fsum(parts) / len(parts) for parts in zip(*shares, strict=True)))


def _share(weight: Weight | None) -> float | None:
    return weight.share if weight else None


def _lift(weight: Weight | None) -> float | None:
    return weight.lift if weight else None
