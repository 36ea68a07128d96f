"""F1 against what a question costs: every method at equal k, and at equal tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import fsum
from typing import TYPE_CHECKING, NamedTuple

from ga_dspy.arena.figures.placing import Named, place_labels
from ga_dspy.arena.figures.scene import NothingToDraw, Scene, captioned, run_name
from ga_dspy.arena.methods import METHODS
from ga_dspy.arena.runs import Run
from ga_dspy.drawing import BLUE, INK, MUTED, SLATE, canvas, head, name, percent_limits, reach

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NEEDS = ("graph-anchor",)
"""The run it is about; the others are drawn without it."""


_ELSEWHERE = ("graph-rag-passages", "graph-rag-facts", "graph-rag-global")
"""GraphRAG's ablations, and its mode that reads every summary: their cost is in their own table."""


class Cost(NamedTuple):
    """A run in the plane: mean tokens a question, F1 in percent and its 95 % interval."""

    run: Run
    tokens: float
    f1: float
    interval: tuple[float, float]

    @property
    def is_ours(self) -> bool:
        """Whether it is GraphAnchor as it is meant."""
        return self.run.method == "graph-anchor"

    @property
    def is_minor(self) -> bool:
        """Whether it is an ablation, or a depth of vanilla RAG."""
        method = METHODS.get(self.run.method)
        return method is not None and method.group not in ("methods", "graphrag")


def plot_cost_of_methods(scene: Scene) -> Figure:
    """F1 against tokens a question, with intervals: a panel at equal k, one at equal tokens.

    GraphAnchor stands out; hollow points are ablations and depths. The runs of a method under
    several budgets are joined, and named once.

    Raises:
        NothingToDraw: No run tells its tokens.
        MissingExtra: matplotlib is not installed.
    """
    costs = [_cost(run) for run in scene.all if _tells(run) and run.method not in _ELSEWHERE]
    if not costs:
        raise NothingToDraw(NEEDS)
    panels = [
        (title, form, chosen)
        for title, form, chosen in (
            ("Equal k", "o", [cost for cost in costs if cost.run.budget is None]),
            ("Equal tokens", "s", [cost for cost in costs if cost.run.budget is not None]),
        )
        if chosen
    ]
    figure, axes = canvas(7.6 if len(panels) == 1 else 12.0, 5.4, len(panels), share_y=True)
    axes[0].set_ylim(percent_limits([bound for cost in costs for bound in cost.interval]))
    head(figure, "F1 against the cost of a question", scene.ground, _caption(scene, costs))
    for panel, (title, form, chosen) in zip(axes, panels, strict=True):
        name(panel, title, "tokens a question, in and out", "F1 with 95 % interval, %")
        panel.set_xlim(_limits([cost.tokens for cost in chosen]))
        panel.xaxis.set_major_formatter("{x:,.0f}")
        _points(panel, chosen, form)
    # Labels last: both panels have their final size by then.
    for panel, (_, _, chosen) in zip(axes, panels, strict=True):
        place_labels(figure, panel, list(_names(chosen)), [_named(cost) for cost in chosen])
    return figure


def _tells(run: Run) -> bool:
    return any(result.tokens is not None for result in run.report.results)


def _cost(run: Run) -> Cost:
    results = run.report.results
    tokens = fsum(result.tokens or 0 for result in results) / len(results)
    return Cost(run, tokens, run.report.f1, run.report.ci95)


def _points(axes: Axes, costs: Sequence[Cost], form: str) -> None:
    for method in dict.fromkeys(cost.run.method for cost in costs):
        line = sorted((c for c in costs if c.run.method == method), key=lambda c: c.tokens)
        ours, minor = line[0].is_ours, line[0].is_minor
        colour = BLUE if ours else SLATE
        if len(line) > 1:
            spent, scores = [c.tokens for c in line], [c.f1 for c in line]
            axes.plot(spent, scores, color=colour, lw=0.8, alpha=0.6, label=f"_{method}", zorder=2)
        for cost in line:
            axes.errorbar(
                [cost.tokens], [cost.f1], reach(cost.f1, cost.interval),
                fmt=form, ms=10 if ours else 5 if minor else 7, color=colour,
                mfc="white" if minor else colour, elinewidth=1.8 if ours else 0.8,
                capsize=0, clip_on=False, alpha=1.0 if ours else 0.85, zorder=4 if ours else 3,
                label=run_name(cost.run),
            )  # fmt: skip


def _names(costs: Sequence[Cost]) -> Iterator[Named]:
    """One label a method, at its dearest run: GraphAnchor's first, the hollow points' last."""
    last = {cost.run.method: cost for cost in sorted(costs, key=lambda cost: cost.tokens)}
    for cost in sorted(last.values(), key=lambda cost: (not cost.is_ours, cost.is_minor)):
        yield _named(cost)


def _named(cost: Cost) -> Named:
    colour = BLUE if cost.is_ours else MUTED if cost.is_minor else INK
    weight = "bold" if cost.is_ours else "normal"
    text = _short(run_name(cost.run))
    return Named(text, cost.tokens, cost.f1, *cost.interval, colour, weight)


def _short(text: str) -> str:
    """What is a method's own in a name that it shares with others, which say so in the caption.

    >>> [_short(f"GraphAnchor {own}") for own in ("(QA w/ Docs)", "w/ Text Index", "(a)")]
    ['QA w/ Docs', 'w/ Text Index', 'GraphAnchor (a)']
    >>> _short("Vanilla RAG (top 10)")
    'top 10'
    """
    for shared in ("GraphAnchor (QA", "Vanilla RAG (top"):
        if text.startswith(shared):
            return text[shared.index("(") + 1 :].replace(")", "", 1)
    return text.removeprefix("GraphAnchor ") if "w/" in text else text


def _limits(tokens: Sequence[float]) -> tuple[float, float]:
    low, high = min(tokens), max(tokens)
    room = max(0.12 * (high - low), 0.05 * high, 1.0)
    return (0.0 if low < 0.4 * high else low - 2 * room), high + 2 * room


def _caption(scene: Scene, costs: Sequence[Cost]) -> str:
    budgets = any(cost.run.budget is not None for cost in costs)
    return captioned(
        scene.runs,
        [cost.run for cost in costs],
        "Means over all questions. Hollow: ablations of GraphAnchor, and vanilla RAG with more "
        "passages (top 10 to 20).",
        *(["Squares: each question was given so many tokens at most."] if budgets else ()),
    )
