"""Figures of a report: F1 against the tokens of a question, per dataset and LM."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ga_dspy.arena.methods import METHODS
from ga_dspy.arena.report import mean_tokens
from ga_dspy.arena.runs import Run, Runs
from ga_dspy.errors import require

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_LEFT_OUT = ("graph-rag-passages", "graph-rag-facts", "graph-rag-global")
"""GraphRAG's ablations, and its mode that reads every summary at a cost beyond the axis."""

_FIGURES = (
    ("F1 against tokens per question", "f1-by-tokens", False),
    ("F1 at equal tokens per question", "f1-at-equal-tokens", True),
)
_STYLE = {"font.size": 10, "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True,
          "grid.color": "#e3e7eb", "axes.axisbelow": True}  # fmt: skip
_MARKERS = "osD^v<>P"


def draw_figures(runs: Runs, out: Path) -> dict[str, Path]:
    """Draw the runs of each dataset and LM, at equal k and at equal tokens.

    Args:
        runs: The runs; the same runs give the same bytes.
        out: The folder of the report; the images are in figures/.

    Returns:
        The images by caption.

    Raises:
        MissingExtra: matplotlib is not installed.
    """
    images: dict[str, Path] = {}
    drawn = [
        run
        for run in runs
        if run.method not in _LEFT_OUT and any(r.tokens is not None for r in run.report.results)
    ]
    (out / "figures").mkdir(parents=True, exist_ok=True)
    for group in dict.fromkeys(run.group_label for run in runs):
        for title, stem, is_budgeted in _FIGURES:
            name = re.sub(r"[^a-z0-9.]+", "-", f"{stem} {group}".lower()).strip("-")
            path = out / "figures" / f"{name}.png"
            shown = [
                run
                for run in drawn
                if run.group_label == group and (run.budget is not None) == is_budgeted
            ]
            if shown:
                # Without the version of matplotlib, which would change the bytes.
                plot_costs(runs, shown, title).savefig(path, metadata={"Software": None})
                images[f"{title}: {group}"] = path
            else:
                path.unlink(missing_ok=True)  # of an earlier report
    return images


def plot_costs(runs: Runs, shown: Sequence[Run], title: str = "") -> Figure:
    """Plot F1 with its interval against mean tokens per question.

    GraphAnchor stands out; ablations and depths are hollow. The runs of a method under several
    budgets are connected.

    Args:
        runs: All runs, for their marks.
        shown: The runs to plot, on one dataset with one LM.
        title: In bold.

    Raises:
        MissingExtra: matplotlib is not installed.
    """
    matplotlib = require("matplotlib", "report")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with matplotlib.rc_context(_STYLE):
        # Without pyplot: no window system, and safe in any thread.
        figure = Figure(figsize=(8.6, 4.8), dpi=150, layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.subplots()
        figure.suptitle(title, x=0.012, ha="left", fontsize=12, fontweight="bold")
        n = len(shown[0].report.results)
        axes.set_title(f"{shown[0].group_label}, {n:,} questions", loc="left", fontsize=9)
        axes.set(xlabel="tokens per question, prompt and completion", ylabel="F1, 95 % interval")
        axes.xaxis.set_major_formatter("{x:,.0f}")
        for place, method in enumerate(dict.fromkeys(run.method for run in shown)):
            line = sorted((run for run in shown if run.method == method), key=mean_tokens)
            scores = [run.report.f1 for run in line]
            # Interpolation can put a bound past the mean by a rounding error.
            below = [max(run.report.f1 - run.report.ci95[0], 0.0) for run in line]
            above = [max(run.report.ci95[1] - run.report.f1, 0.0) for run in line]
            known = METHODS.get(method)
            is_ours = method == "graph-anchor"
            is_hollow = known is not None and known.group not in ("methods", "graphrag")
            colour = "#1f6feb" if is_ours else f"C{place}"
            axes.errorbar(
                [mean_tokens(run) for run in line], scores, [below, above],
                fmt=f"{_MARKERS[place % len(_MARKERS)]}-", color=colour,
                markerfacecolor="white" if is_hollow else colour, markersize=10 if is_ours else 7,
                linewidth=0.8, elinewidth=1.8 if is_ours else 0.8, zorder=4 if is_ours else 3,
                label=(known.label if known else method) + runs.mark(line[0]),
            )  # fmt: skip
        axes.set_ylim(bottom=max(axes.get_ylim()[0], -3.0))  # no score is below 0
        axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False, fontsize=8)
    return figure
