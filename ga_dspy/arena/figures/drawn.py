"""Every figure that the runs allow, written as png, and what the others lack."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ga_dspy.arena.figures import (
    cost,
    graph_by_step,
    knowledge_use,
    retrieval_by_step,
    scores,
    steps_reached,
)
from ga_dspy.arena.figures.scene import NothingToDraw, Scene
from ga_dspy.arena.figures.scores import scenes_of
from ga_dspy.arena.labels import dataset_label, lm_label
from ga_dspy.arena.runs import Runs
from ga_dspy.drawing import save

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FOLDER = "figures"


class Lacking(NamedTuple):
    """A figure that lacks runs.

    Attributes:
        figure: What it shows, as in `Drawn.pictures`.
        runs: The runs that would complete it: "text-index on hotpotqa".
        is_drawn: Whether it was drawn without them.
    """

    figure: str
    runs: tuple[str, ...]
    is_drawn: bool

    def __str__(self) -> str:
        how = "drawn without" if self.is_drawn else "not drawn: it needs"
        return f"{self.figure}: {how} {', '.join(self.runs)}"


class Drawn(NamedTuple):
    """The pictures of a report.

    Attributes:
        pictures: What each shows, to its file.
        lacking: Figures that lack runs.
    """

    pictures: dict[str, Path]
    lacking: tuple[Lacking, ...]


class _Plan(NamedTuple):
    """A figure to draw: what it shows, its file's name, how, and what it lacks."""

    title: str
    stem: str
    plot: Callable[[], Figure]
    lacks: tuple[str, ...]


_OF_A_DATASET: tuple[tuple[str, str, Callable[[Scene], Figure], tuple[str, ...]], ...] = (
    ("Figure 3: the graph, and answers by step", "figure-3", graph_by_step.plot_graph_by_step,
     graph_by_step.NEEDS),
    ("Figure 4: retrieval by step", "figure-4", retrieval_by_step.plot_retrieval_by_step,
     retrieval_by_step.NEEDS),
    ("Figure 7: use of what was read and known", "figure-7", knowledge_use.plot_knowledge_use,
     knowledge_use.NEEDS),
    ("F1 against the cost of a question", "f1-by-tokens", cost.plot_cost_of_methods, cost.NEEDS),
)  # fmt: skip
_OF_AN_LM: tuple[tuple[str, str, Callable[[Runs, str], Figure], tuple[str, ...]], ...] = (
    ("Table 1: F1 by method", "table-1", scores.plot_scores, scores.NEEDS),
    ("Table 3: steps reached", "table-3", steps_reached.plot_steps_reached, steps_reached.NEEDS),
)


def draw_figures(runs: Runs, out: Path) -> Drawn:
    """Draw every figure that the runs allow; the same runs give the same bytes.

    Args:
        runs: The runs.
        out: The report's folder; the pictures go into figures/ in it, over those of their names.

    Returns:
        The pictures, and which figures lack which runs.

    Raises:
        MissingExtra: matplotlib is not installed.
    """
    pictures: dict[str, Path] = {}
    lacking: list[Lacking] = []
    for plan in _plans(runs):
        path = out / FOLDER / f"{plan.stem}.png"
        try:
            pictures[plan.title] = save(plan.plot(), path)
        except NothingToDraw:
            # That of an earlier report on other runs would pass for one of this.
            path.unlink(missing_ok=True)
        if plan.lacks:
            lacking.append(Lacking(plan.title, plan.lacks, plan.title in pictures))
    return Drawn(pictures, tuple(lacking))


def _plans(runs: Runs) -> Iterator[_Plan]:
    for lm in runs.lms:
        scenes = scenes_of(runs, lm)
        for title, stem, over, needs in _OF_AN_LM:
            lacks = tuple(told for scene in scenes for told in _lacks(scene, needs))
            where = f"{title}; {lm_label(lm)}"
            yield _Plan(where, _stem(stem, lm), partial(over, runs, lm), lacks)
        for scene in scenes:
            for title, stem, of, needs in _OF_A_DATASET:
                yield _Plan(
                    f"{title}; {dataset_label(scene.dataset)}; {lm_label(lm)}",
                    _stem(stem, scene.dataset, lm),
                    partial(of, scene),
                    _lacks(scene, needs),
                )


def _lacks(scene: Scene, needs: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f"{method} on {scene.dataset}" for method in scene.missing(needs))


def _stem(*parts: str) -> str:
    """A file's name from what it shows.

    >>> _stem("figure-3", "musique (renamed)", "openai/gpt-4.1")
    'figure-3-musique-renamed-openai-gpt-4.1'
    """
    return "-".join(re.sub(r"[^a-z0-9.]+", "-", part.lower()).strip("-") for part in parts)
