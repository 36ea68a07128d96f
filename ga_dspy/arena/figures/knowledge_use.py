"""Figure 7: F1 by whether the answer was read, and whether it was known before."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ga_dspy.arena.figures.scene import NothingToDraw, Scene, captioned, run_name
from ga_dspy.arena.runs import Run
from ga_dspy.arena.tables.splits import CLOSED_BOOK, Split, splits
from ga_dspy.drawing import BLUE, INK, MUTED, ORANGE, PALE, canvas, head, legend, name

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NEEDS = ("graph-anchor", "text-index", CLOSED_BOOK)
"""The two runs it is about, and that which tells what the LM knew."""

_GROUPS = ("Has answer", "Miss answer", "Internal knowledge")
_LOOK = {"graph-anchor": (BLUE, ""), "text-index": (ORANGE, "//"), "vanilla-rag": (PALE, "..")}
_WIDTH = 0.26


def plot_knowledge_use(scene: Scene) -> Figure:
    """F1 on the paper's three splits, for each run; an empty split is said to be empty.

    Raises:
        NothingToDraw: None of the runs it is about was made.
        MissingExtra: matplotlib is not installed.
    """
    runs = scene.some(_LOOK)
    if not scene.some(NEEDS[:2]):
        raise NothingToDraw(NEEDS[:2])
    figure, (axes,) = canvas(7.2, 4.6)
    found = [splits(run, scene.runs) for run in runs]
    for number, (run, parts) in enumerate(zip(runs, found, strict=True)):
        _bars(axes, run, (number - (len(runs) - 1) / 2) * _WIDTH, parts)
    if found[0].internal is None:
        _beside(axes, f"no {CLOSED_BOOK} run", (len(_GROUPS) - 1, 0.0), 4, INK)
    name(axes, "", "", "F1, %")
    axes.set_xticks(range(len(_GROUPS)), _GROUPS)
    axes.tick_params(axis="x", length=0, pad=18)
    axes.grid(visible=False, axis="x")
    axes.set(xlim=(-0.6, len(_GROUPS) - 0.4), ylim=(0.0, 108.0), yticks=range(0, 101, 20))
    legend(axes, columns=3)
    head(figure, "Figure 7: use of what was read and known", scene.subtitle, _caption(scene, runs))
    return figure


def _bars(axes: Axes, run: Run, shift: float, found: tuple[Split | None, ...]) -> None:
    colour, hatch = _LOOK[run.method]
    heights = [split.f1 if split and split.f1 is not None else 0.0 for split in found]
    places = [group + shift for group in range(len(_GROUPS))]
    axes.bar(
        places, heights, 0.9 * _WIDTH, color=colour, hatch=hatch, edgecolor="w", label=run_name(run)
    )
    for place, split in zip(places, found, strict=True):
        if split is None:
            continue
        _beside(axes, f"n = {split.n:,}", (place, 0.0), -3, MUTED)
        if split.f1 is not None:
            _beside(axes, f"{split.f1:.1f}", (place, split.f1), 2, INK)
        else:
            axes.text(
                place, 2.0, "empty", rotation=90, ha="center", va="bottom", fontsize=8, color=INK
            )


def _beside(axes: Axes, text: str, place: tuple[float, float], up: float, colour: str) -> None:
    axes.annotate(
        text, place, xytext=(0, up), textcoords="offset points", ha="center",
        va="bottom" if up > 0 else "top", fontsize=8, color=colour, annotation_clip=False,
    )  # fmt: skip


def _caption(scene: Scene, runs: list[Run]) -> str:
    return captioned(
        scene.runs,
        runs,
        "Has answer: an accepted answer occurs in what the method read; miss answer: none does; "
        "yes/no questions are in neither. Internal knowledge: questions that the closed-book run "
        "answered right. A small n makes a rough mean.",
        scene.absent(NEEDS),
    )
