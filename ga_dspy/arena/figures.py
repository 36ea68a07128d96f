"""The picture of a report: F1 against what a question costs, for each dataset and LM."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ga_dspy.arena.comparisons import mean_tokens
from ga_dspy.arena.methods import METHODS
from ga_dspy.arena.runs import (
    Run,
    Runs,
    dataset_label,
    lm_label,
    mark_notes,
    marked,
    method_label,
)
from ga_dspy.drawing import (
    BLUE,
    INK,
    MUTED,
    SLATE,
    Label,
    canvas,
    head,
    label_points,
    name,
    percent_limits,
    reach,
    save,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def draw_figures(runs: Runs, out: Path) -> dict[str, Path]:
    """Draw a picture for each dataset and LM whose tokens are known: its title, and its file.

    Args:
        runs: The runs; the same ones give the same bytes.
        out: The report's folder; the pictures go into figures/ in it, over those of their names.

    Raises:
        MissingExtra: matplotlib or textalloc is not installed.
    """
    pictures: dict[str, Path] = {}
    for dataset, lm in dict.fromkeys((run.dataset, run.lm) for run in runs.in_order()):
        scene = Scene(runs, dataset, lm)
        path = out / "figures" / f"{_stem('f1-by-tokens', dataset, lm)}.png"
        if scene.shown:
            title = f"{_COST}: {dataset_label(dataset)}; {lm_label(lm)}"
            pictures[title] = save(plot_cost_of_methods(scene), path)
        else:
            # That of an earlier report on other runs would pass for one of this.
            path.unlink(missing_ok=True)
    return pictures


def _stem(*parts: str) -> str:
    """A file's name from what it shows.

    >>> _stem("figure-3", "musique (renamed)", "openai/gpt-4.1")
    'figure-3-musique-renamed-openai-gpt-4.1'
    """
    return "-".join(re.sub(r"[^a-z0-9.]+", "-", part.lower()).strip("-") for part in parts)


_COST = "F1 against the cost of a question"
_ELSEWHERE = ("graph-rag-passages", "graph-rag-facts", "graph-rag-global")
"""GraphRAG's ablations, and its mode that reads every summary: their cost is in their own table."""


@dataclass(frozen=True)
class Scene:
    """The runs of one dataset with one LM.

    Attributes:
        runs: All runs there are.
        dataset: A name of `runs.datasets`.
        lm: A name of `runs.lms`.
    """

    runs: Runs
    dataset: str
    lm: str

    @property
    def shown(self) -> list[Run]:
        """Its runs that recorded tokens, in the paper's order, without the points of Figure 3."""
        return [
            run
            for run in self.runs.in_order()
            if (run.dataset, run.lm) == (self.dataset, self.lm)
            and run.method not in _ELSEWHERE
            and any(result.tokens is not None for result in run.report.results)
        ]


def _run_label(run: Run) -> str:
    return marked(method_label(run.method), run.mark)


def plot_cost_of_methods(scene: Scene) -> Figure:
    """F1 against tokens a question, with intervals: a panel at equal k, one at equal tokens.

    GraphAnchor stands out; hollow points are ablations and depths. The runs of a method under
    several budgets are joined, and named once.

    Raises:
        MissingExtra: matplotlib or textalloc is not installed.
    """
    shown = scene.shown
    budgets = [run for run in shown if run.budget is not None]
    panels = [
        (title, form, chosen)
        for title, form, chosen in (
            ("Equal k", "o", [run for run in shown if run.budget is None]),
            ("Equal tokens", "s", budgets),
        )
        if chosen
    ]
    figure, axes = canvas(7.6 if len(panels) == 1 else 12.0, 5.4, len(panels), share_y=True)
    axes[0].set_ylim(percent_limits([bound for run in shown for bound in run.report.ci95]))
    failed = dict.fromkeys(
        f"{len(run.report.failed):,} of {_run_label(run)}" for run in shown if run.report.failed
    )
    small_print = (
        "Means over all questions. Hollow: ablations of GraphAnchor, and vanilla RAG with more "
        "passages (top 10 to 20).",
        "Squares: each question was given so many tokens at most." if budgets else "",
        f"Failed questions count as 0: {', '.join(failed)}." if failed else "",
        *mark_notes(scene.runs, shown),
    )
    asked = f"{dataset_label(scene.dataset)}, {len(shown[0].report.results):,} questions"
    who = f"{asked}; answered by: {lm_label(scene.lm)}"
    head(figure, _COST, who, " ".join(filter(None, small_print)))
    for panel, (title, form, chosen) in zip(axes, panels, strict=True):
        name(panel, title, "tokens a question, in and out", "F1 with 95 % interval, %")
        panel.set_xlim(_limits([*map(mean_tokens, chosen)]))
        panel.xaxis.set_major_formatter("{x:,.0f}")
        _plot_costs(panel, chosen, form)
    # Labels last: both panels have their final size by then.
    for panel, (_, _, chosen) in zip(axes, panels, strict=True):
        points = [(mean_tokens(run), run.report.f1, *run.report.ci95) for run in chosen]
        label_points(figure, panel, list(_labels(chosen)), points)
    return figure


def _is_minor(run: Run) -> bool:
    """Whether it is an ablation, or a depth of vanilla RAG."""
    return run.method in METHODS and METHODS[run.method].group not in ("methods", "graphrag")


def _plot_costs(axes: Axes, runs: Sequence[Run], form: str) -> None:
    for method in dict.fromkeys(run.method for run in runs):
        line = sorted((run for run in runs if run.method == method), key=mean_tokens)
        ours, minor = method == "graph-anchor", _is_minor(line[0])
        colour = BLUE if ours else SLATE
        if len(line) > 1:
            places = [mean_tokens(run) for run in line], [run.report.f1 for run in line]
            axes.plot(*places, color=colour, lw=0.8, alpha=0.6, label=f"_{method}", zorder=2)
        for run in line:
            f1 = run.report.f1
            axes.errorbar(
                [mean_tokens(run)], [f1], reach(f1, run.report.ci95),
                fmt=form, ms=10 if ours else 5 if minor else 7, color=colour,
                mfc="white" if minor else colour, elinewidth=1.8 if ours else 0.8,
                capsize=0, clip_on=False, alpha=1.0 if ours else 0.85, zorder=4 if ours else 3,
                label=_run_label(run),
            )  # fmt: skip


def _labels(runs: Sequence[Run]) -> Iterator[Label]:
    """One label a method, at its dearest run: GraphAnchor's first, the hollow points' last."""
    last = {run.method: run for run in sorted(runs, key=mean_tokens)}
    for run in sorted(last.values(), key=lambda r: (r.method != "graph-anchor", _is_minor(r))):
        ours, minor = run.method == "graph-anchor", _is_minor(run)
        colour = BLUE if ours else MUTED if minor else INK
        # Above its bar, or beneath it: there is room for one more where methods stand close.
        low, high = run.report.ci95
        end = low if minor else high
        yield Label(_short(_run_label(run)), mean_tokens(run), end, colour, ours)


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
