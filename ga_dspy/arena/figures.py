"""The pictures of a report: F1 against what a question costs, for each dataset and LM."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from textwrap import fill
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
from ga_dspy.errors import require

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_ELSEWHERE = ("graph-rag-passages", "graph-rag-facts", "graph-rag-global")
"""GraphRAG's ablations, and its mode that reads every summary: their cost is in their own table."""

_INK, _MUTED, _GREY, _BLUE = "#22262b", "#5b6570", "#9aa3ad", "#1f6feb"
_STYLE = {"font.size": 10, "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True,
          "grid.color": "#e3e7eb", "axes.axisbelow": True, "axes.edgecolor": _GREY}  # fmt: skip
_MARK = 8.0  # pixels from the middle of a mark to its edge
_LETTERS = 120  # of the small print, on a line


def draw_figures(runs: Runs, out: Path) -> dict[str, Path]:
    """Draw the runs of each dataset and LM whose tokens are known, at equal k and at equal tokens.

    Args:
        runs: The runs; the same ones give the same bytes.
        out: The report's folder; the pictures go into figures/ in it, over those of their names.

    Returns:
        What each picture shows, to its file.

    Raises:
        MissingExtra: matplotlib or textalloc is not installed.
    """
    pictures: dict[str, Path] = {}
    known = [
        run
        for run in runs.in_order()
        if run.method not in _ELSEWHERE and any(r.tokens is not None for r in run.report.results)
    ]
    (out / "figures").mkdir(parents=True, exist_ok=True)
    for dataset, lm in dict.fromkeys((run.dataset, run.lm) for run in runs.in_order()):
        for title, stem, budgeted in (
            ("F1 against the cost of a question", "f1-by-tokens", False),
            ("F1 where each question is given so many tokens", "f1-at-equal-tokens", True),
        ):
            name = re.sub(r"[^a-z0-9.]+", "-", f"{stem} {dataset} {lm}".lower()).strip("-")
            path = out / "figures" / f"{name}.png"
            shown = [
                run
                for run in known
                if (run.dataset, run.lm, run.budget is not None) == (dataset, lm, budgeted)
            ]
            if shown:
                figure = plot_costs(runs, shown, title)
                # Without the version of matplotlib, which would change the bytes.
                figure.savefig(path, metadata={"Software": None})
                pictures[f"{title}: {dataset_label(dataset)}; {lm_label(lm)}"] = path
            else:
                # That of an earlier report on other runs would pass for one of this.
                path.unlink(missing_ok=True)
    return pictures


def plot_costs(runs: Runs, shown: Sequence[Run], title: str = "") -> Figure:
    """F1 with its interval against tokens a question.

    GraphAnchor stands out; hollow points are ablations and depths. The runs of a method under
    several budgets are joined, and named once.

    Args:
        runs: All runs there are.
        shown: Those in the picture, of one dataset and LM.
        title: In bold.

    Raises:
        MissingExtra: matplotlib or textalloc is not installed.
    """
    matplotlib = require("matplotlib", "report")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    failed = dict.fromkeys(
        f"{len(run.report.failed):,} of {_label(run)}" for run in shown if run.report.failed
    )
    small_print = [
        "Means over all questions. Hollow: ablations of GraphAnchor, and vanilla RAG with more "
        "passages (top 10 to 20).",
        *([f"Failed questions count as 0: {', '.join(failed)}."] if failed else []),
        *mark_notes(runs, shown),
    ]
    asked = f"{dataset_label(shown[0].dataset)}, {len(shown[0].report.results):,} questions"
    with matplotlib.rc_context(_STYLE):
        # Without pyplot: no window system, and safe in any thread.
        figure = Figure(figsize=(7.6, 5.4), dpi=150, layout="constrained")
        FigureCanvasAgg(figure)
        axes: Axes = figure.subplots()
        figure.suptitle(title, x=0.012, ha="left", color=_INK, fontsize=12, fontweight="bold")
        who = f"{asked}; answered by: {lm_label(shown[0].lm)}"
        axes.set_title(who, loc="left", color=_MUTED, fontsize=9)
        axes.set(xlabel="tokens a question, in and out", ylabel="F1 with 95 % interval, %")
        axes.xaxis.set_major_formatter("{x:,.0f}")
        axes.margins(0.15, 0.2)
        text = fill(" ".join(small_print), _LETTERS)
        figure.supxlabel(text, x=0.012, ha="left", fontsize=8, color=_MUTED)
        for method in dict.fromkeys(run.method for run in shown):
            _plot(axes, sorted((run for run in shown if run.method == method), key=mean_tokens))
        axes.set_ylim(max(axes.get_ylim()[0], -3.0))  # no share is below nothing
        _write_labels(figure, axes, shown)
    return figure


def _label(run: Run) -> str:
    return marked(method_label(run.method), run.mark)


def _is_minor(run: Run) -> bool:
    """Whether it is an ablation, or a depth of vanilla RAG."""
    return run.method in METHODS and METHODS[run.method].group not in ("methods", "graphrag")


def _plot(axes: Axes, line: Sequence[Run]) -> None:
    """The points of a method, joined where it has several budgets."""
    ours, minor = line[0].method == "graph-anchor", _is_minor(line[0])
    colour = _BLUE if ours else _MUTED
    tokens, scores = [mean_tokens(run) for run in line], [run.report.f1 for run in line]
    bounds = [run.report.ci95 for run in line]
    # Interpolation can put a bound past the mean by a rounding error.
    reach = [
        [max(f1 - low, 0.0) for f1, (low, _) in zip(scores, bounds, strict=True)],
        [max(high - f1, 0.0) for f1, (_, high) in zip(scores, bounds, strict=True)],
    ]
    axes.errorbar(
        tokens, scores, reach, fmt="o-", lw=0.8, ms=10 if ours else 5 if minor else 7,
        color=colour, mfc="white" if minor else colour, elinewidth=1.8 if ours else 0.8,
        zorder=4 if ours else 3, label=_label(line[0]),
    )  # fmt: skip


def _write_labels(figure: Figure, axes: Axes, shown: Sequence[Run]) -> None:
    """A label a method at its dearest run, off the other labels, the points and the bars."""
    textalloc = require("textalloc", "report")
    # The layout decides where pixels are.
    figure.draw_without_rendering()
    limits = axes.get_xlim(), axes.get_ylim()
    dearest = {run.method: run for run in sorted(shown, key=mean_tokens)}.values()
    named = sorted(dearest, key=lambda run: (run.method != "graph-anchor", _is_minor(run)))
    points = [(mean_tokens(run), run.report.f1, list(run.report.ci95)) for run in shown]
    # textalloc takes a point for a dot: its mark is a short line too.
    half = _MARK / axes.bbox.width * (limits[0][1] - limits[0][0])
    _, _, texts, _ = textalloc.allocate(
        axes,
        [mean_tokens(run) for run in named],
        # Above its bar, or beneath it: there is room for one more where methods stand close.
        [run.report.ci95[not _is_minor(run)] for run in named],
        [_label(run) for run in named],
        x_scatter=[x for x, _, _ in points],
        y_scatter=[y for _, y, _ in points],
        x_lines=[line for x, _, _ in points for line in ([x, x], [x - half, x + half])],
        y_lines=[line for _, y, bar in points for line in (bar, [y, y])],
        textsize=8,
        textcolor=[_BLUE if run.method == "graph-anchor" else _INK for run in named],
        linecolor=_GREY,
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
