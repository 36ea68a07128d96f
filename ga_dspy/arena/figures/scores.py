"""Table 1 as a picture: F1 by method and dataset, with the paper's numbers in grey."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ga_dspy.arena import paper
from ga_dspy.arena.figures.scene import NothingToDraw, Scene, allowed, answered_by, captioned
from ga_dspy.arena.labels import dataset_label, method_label
from ga_dspy.arena.methods import METHODS
from ga_dspy.arena.runs import Run, Runs
from ga_dspy.drawing import BLUE, GREY, INK, canvas, head, name, reach

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NEEDS = tuple(name for name, method in METHODS.items() if method.group == "methods")
"""The paper's methods."""

_PAPER = {paper.QWEN_7B: "D", paper.LLAMA_8B: "^", paper.QWEN_14B: "s", paper.QWEN_32B: "P"}


def plot_scores(runs: Runs, lm: str) -> Figure:
    """F1 of each method with its 95 % interval, a panel a dataset; the paper's in grey.

    Beside the paper's methods stand programs of no paper, such as compiled ones.

    Raises:
        NothingToDraw: No method was run with this LM.
        MissingExtra: matplotlib is not installed.
    """
    scenes = [scene for scene in scenes_of(runs, lm) if _shown(scene)]
    if not scenes:
        raise NothingToDraw(NEEDS)
    methods = _methods(scenes)
    width, height = 2.6 + 2.7 * len(scenes), 2.5 + 0.46 * len(methods)
    figure, axes = canvas(max(width, 6.4), height, len(scenes), share_y=True)
    for panel, scene in zip(axes, scenes, strict=True):
        _panel(panel, scene, methods)
    axes[0].set_yticks(range(len(methods)), [method_label(method) for method in methods])
    axes[0].set_ylim(len(methods) - 0.5, -0.5)
    shown = [run for scene in scenes for run in _shown(scene)]
    subtitle = answered_by(lm) + allowed(scenes[0].budget)
    head(figure, "Table 1: F1 by method", subtitle, _caption(runs, shown), key=axes)
    return figure


def scenes_of(runs: Runs, lm: str) -> list[Scene]:
    """A scene for each dataset, in order."""
    found = {run.dataset for run in runs if run.lm == lm}
    return [Scene(runs, dataset, lm) for dataset in runs.datasets if dataset in found]


def _shown(scene: Scene) -> list[Run]:
    beside = (*NEEDS, "graph-rag", "graph-rag-hybrid")
    return [run for run in scene.held_up if run.method in beside or run.method not in METHODS]


def _methods(scenes: Sequence[Scene]) -> list[str]:
    found = {run.method for scene in scenes for run in _shown(scene)}
    return [*(m for m in NEEDS if m in found), *sorted(found - set(NEEDS))]


def _panel(axes: Axes, scene: Scene, methods: Sequence[str]) -> None:
    for number, (lm, marker) in enumerate(_PAPER.items()):
        printed = [
            (row.by_dataset[scene.dataset].f1, methods.index(row.method))
            for row in paper.TABLE_1
            if row.lm == lm and row.method in methods and scene.dataset in row.by_dataset
        ]
        if not printed:
            continue
        axes.scatter(
            [f1 for f1, _ in printed], [place + 0.12 + 0.09 * number for _, place in printed],
            marker=marker, s=22, color=GREY, linewidth=0, label=f"paper, {lm}",
        )  # fmt: skip
    for run in _shown(scene):
        _ours(axes, run, methods.index(run.method))
    n = len(_shown(scene)[0].report.results)
    name(axes, dataset_label(scene.dataset), f"F1, % ({n:,} questions)", "")
    axes.set_xlim(-6.0, 104.0)
    axes.set_xticks(range(0, 101, 20))


def _ours(axes: Axes, run: Run, place: float) -> None:
    report = run.report
    colour = BLUE if run.method == "graph-anchor" else INK
    axes.errorbar(
        [report.f1], [place - 0.1], xerr=reach(report.f1, report.ci95),
        fmt="o", ms=7, color=colour, lw=1.6, capsize=3, label="measured here",
    )  # fmt: skip
    text = f"{report.f1:.1f}{f' ({run.mark})' if run.mark else ''}"
    axes.annotate(
        text, (report.f1, place - 0.1), xytext=(0, 5), textcoords="offset points",
        ha="center", va="bottom", fontsize=8, color=colour,
    )  # fmt: skip


def _caption(runs: Runs, shown: Sequence[Run]) -> str:
    return captioned(
        runs,
        shown,
        "Bars: 95 % intervals.",
        "Grey: the paper's own numbers, with the LM named, for its own 500 questions (125 of "
        "Bamboogle) over its own, other corpus: not to be compared with ours point for point."
        if any(run.dataset in paper.DATASETS for run in shown)
        else "",
    )
