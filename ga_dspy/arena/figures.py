"""The figures of a report, each drawn from runs alone, with what every picture says of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from math import fsum
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ga_dspy.arena import paper
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
from ga_dspy.arena.tables import CLOSED_BOOK, Split, splits
from ga_dspy.drawing import (
    BLUE,
    GREY,
    INK,
    MUTED,
    ORANGE,
    PALE,
    SLATE,
    Label,
    canvas,
    counts_below,
    head,
    label_points,
    legend,
    name,
    percent_limits,
    reach,
    save,
)
from ga_dspy.errors import GaDspyError
from ga_dspy.eval.report import by_step, steps_reached

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class NothingToDraw(GaDspyError):
    """None of the runs of a figure was made: leave it out, or make them."""

    def __init__(self, needs: Sequence[str]) -> None:
        super().__init__(
            "there is no run to draw",
            expected=f"one of {', '.join(needs)}",
            remedy="make it with `ga-dspy arena --programs`",
        )


class Drawn(NamedTuple):
    """The pictures of a report.

    Attributes:
        pictures: What each shows, to its file.
        lacking: A sentence for each figure that lacks runs, drawn without them or not.
    """

    pictures: dict[str, Path]
    lacking: tuple[str, ...]


def draw_figures(runs: Runs, out: Path) -> Drawn:
    """Draw every figure that the runs allow; the same runs give the same bytes.

    Args:
        runs: The runs.
        out: The report's folder; the pictures go into figures/ in it, over those of their names.

    Returns:
        The pictures, and which figures lack which runs.

    Raises:
        MissingExtra: matplotlib or textalloc is not installed.
    """
    pictures: dict[str, Path] = {}
    lacking: list[str] = []
    for title, stem, needs, scenes, plot in _planned(runs):
        path = out / "figures" / f"{_stem(*stem)}.png"
        try:
            pictures[title] = save(plot(), path)
        except NothingToDraw:
            # That of an earlier report on other runs would pass for one of this.
            path.unlink(missing_ok=True)
        if absent := [f"{m} on {s.dataset}" for s in scenes for m in s.missing(needs)]:
            how = "drawn without" if title in pictures else "not drawn: it needs"
            lacking.append(f"{title}: {how} {', '.join(absent)}")
    return Drawn(pictures, tuple(lacking))


def _stem(*parts: str) -> str:
    """A file's name from what it shows.

    >>> _stem("figure-3", "musique (renamed)", "openai/gpt-4.1")
    'figure-3-musique-renamed-openai-gpt-4.1'
    """
    return "-".join(re.sub(r"[^a-z0-9.]+", "-", part.lower()).strip("-") for part in parts)


# --- The runs that one picture is of, and what every picture says of them.


@dataclass(frozen=True)
class Scene:
    """The runs of one dataset with one LM.

    Where there are runs at equal k, those; else those of the smallest token budget.

    Attributes:
        runs: All runs there are.
        dataset: A name of `runs.datasets`.
        lm: A name of `runs.lms`.
    """

    runs: Runs
    dataset: str
    lm: str

    @property
    def all(self) -> list[Run]:
        """Its runs of every budget, in the paper's order, without the points of Figure 3."""
        return [r for r in self.runs.in_order() if (r.dataset, r.lm) == (self.dataset, self.lm)]

    @property
    def budget(self) -> int | None:
        """Tokens a question was allowed; None at equal k."""
        found = [r.budget for r in self.runs if (r.dataset, r.lm) == (self.dataset, self.lm)]
        return min((budget or 0 for budget in found), default=0) or None

    def get(self, method: str) -> Run | None:
        """The run of a method; None where it was not made."""
        return self.runs.get(method, self.dataset, self.lm, self.budget)

    def some(self, methods: Iterable[str]) -> list[Run]:
        """Those runs of some methods that were made, in the order asked."""
        return [run for run in map(self.get, methods) if run is not None]

    def missing(self, methods: Iterable[str]) -> list[str]:
        """Those of some methods that have no run."""
        return [method for method in methods if self.get(method) is None]

    def subtitle(self, budget: int | None) -> str:
        """The dataset, how many questions, who answered, and what a question was allowed."""
        n = next(len(r.report.results) for r in self.runs if r.dataset == self.dataset)
        return f"{dataset_label(self.dataset)}, {n:,} questions; {_answered_by(self.lm, budget)}"

    def caption(self, shown: Sequence[Run], *sentences: str, needs: Iterable[str] = ()) -> str:
        """The small print of a picture of some runs; `needs` that have no run are named."""
        missing = self.missing(needs)
        absent = f"No run of {', '.join(missing)}." if missing else ""
        return _caption(self.runs, shown, *sentences, absent)


def _scenes(runs: Runs, lm: str) -> list[Scene]:
    found = {run.dataset for run in runs if run.lm == lm}
    return [Scene(runs, dataset, lm) for dataset in runs.datasets if dataset in found]


def _answered_by(lm: str, budget: int | None) -> str:
    allowed = f"; at most {budget:,} tokens a question" if budget else ""
    return f"answered by: {lm_label(lm)}{allowed}"


def _run_label(run: Run) -> str:
    return marked(method_label(run.method), run.mark)


def _caption(runs: Runs, shown: Sequence[Run], *sentences: str) -> str:
    """A picture's own sentences, how many questions failed, and what the letters mean."""
    failed = dict.fromkeys(
        f"{len(run.report.failed):,} of {_run_label(run)}" for run in shown if run.report.failed
    )
    failures = f"Failed questions count as 0: {', '.join(failed)}." if failed else ""
    return " ".join(filter(None, (*sentences, failures, *mark_notes(runs, shown))))


def _steps(run: Run) -> int:
    """How many steps a run's questions might take; the most they took where that is not known."""
    longest = max((len(result.trace) for result in run.report.results), default=0)
    return max(run.report.protocol.steps or longest, 1)


def _step_axis(axes: Axes, last: int) -> None:
    """Whole steps on the x axis, with room on both sides."""
    axes.set_xticks(range(1, last + 1))
    axes.set_xlim(0.5, last + 0.5)


# --- Table 1 as a picture: F1 by method and dataset, with the paper's numbers in grey.

_SCORES = "Table 1: F1 by method"
_METHODS = tuple(method.name for method in METHODS.values() if method.group == "methods")
_PAPER = {paper.QWEN_7B: "D", paper.LLAMA_8B: "^", paper.QWEN_14B: "s", paper.QWEN_32B: "P"}


def plot_scores(runs: Runs, lm: str) -> Figure:
    """F1 of each method with its 95 % interval, a panel a dataset; the paper's in grey.

    Beside the paper's methods stand programs of no paper, such as compiled ones.

    Raises:
        NothingToDraw: No method was run with this LM.
        MissingExtra: matplotlib is not installed.
    """
    beside = (*_METHODS, "graph-rag", "graph-rag-hybrid")
    shown = [
        run
        for scene in _scenes(runs, lm)
        for run in scene.all
        if run.budget == scene.budget and (run.method in beside or run.method not in METHODS)
    ]
    if not shown:
        raise NothingToDraw(_METHODS)
    panels = [(dataset, [*found]) for dataset, found in groupby(shown, lambda run: run.dataset)]
    names = {run.method for run in shown}
    methods = [*(m for m in _METHODS if m in names), *sorted(names - {*_METHODS})]
    width, height = 2.6 + 2.7 * len(panels), 2.5 + 0.46 * len(methods)
    figure, axes = canvas(max(width, 6.4), height, len(panels), share_y=True)
    for panel, (dataset, found) in zip(axes, panels, strict=True):
        _plot_paper_scores(panel, dataset, methods)
        for run in found:
            _plot_score(panel, run, methods.index(run.method) - 0.1)
        n = len(found[0].report.results)
        name(panel, dataset_label(dataset), f"F1, % ({n:,} questions)", "")
        panel.set_xlim(-6.0, 104.0)
        panel.set_xticks(range(0, 101, 20))
    axes[0].set_yticks(range(len(methods)), [method_label(method) for method in methods])
    axes[0].set_ylim(len(methods) - 0.5, -0.5)
    grey = (
        "Grey: the paper's own numbers, with the LM named, for its own 500 questions (125 of "
        "Bamboogle) over its own, other corpus: not to be compared with ours point for point."
    )
    printed = any(run.dataset in paper.QUESTIONS for run in shown)
    caption = _caption(runs, shown, "Bars: 95 % intervals.", grey if printed else "")
    head(figure, _SCORES, _answered_by(lm, shown[0].budget), caption, key=axes)
    return figure


def _plot_paper_scores(axes: Axes, dataset: str, methods: list[str]) -> None:
    for number, (lm, marker) in enumerate(_PAPER.items()):
        printed = [
            (row.by_dataset[dataset].f1, methods.index(row.method) + 0.12 + 0.09 * number)
            for row in paper.TABLE_1
            if row.lm == lm and row.method in methods and dataset in row.by_dataset
        ]
        if printed:
            scores, places = zip(*printed, strict=True)
            axes.scatter(
                scores, places, marker=marker, s=22, color=GREY, linewidth=0, label=f"paper, {lm}"
            )


def _plot_score(axes: Axes, run: Run, place: float) -> None:
    f1 = run.report.f1
    colour = BLUE if run.method == "graph-anchor" else INK
    axes.errorbar(
        [f1], [place], xerr=reach(f1, run.report.ci95), fmt="o", ms=7, color=colour, lw=1.6,
        capsize=3, label="measured here",
    )  # fmt: skip
    _write(axes, marked(f"{f1:.1f}", run.mark), (f1, place), 5, colour)


# --- Table 3 as a picture: the step at which questions ended.

_REACHED = "Table 3: steps reached"


def plot_steps_reached(runs: Runs, lm: str) -> Figure:
    """Percent of the questions that GraphAnchor ended at each step; the paper's beneath, in grey.

    Raises:
        NothingToDraw: GraphAnchor was not run with this LM.
        MissingExtra: matplotlib is not installed.
    """
    scenes = _scenes(runs, lm)
    shown = [run for scene in scenes for run in scene.some(["graph-anchor"])]
    if not shown:
        raise NothingToDraw(["graph-anchor"])
    printed = [row for row in paper.TABLE_3 if row.dataset in {run.dataset for run in shown}]
    figure, (axes,) = canvas(8.0, 2.1 + 0.34 * (len(shown) + len(printed)))
    most = max(4, *map(_steps, shown))
    places: dict[str, float] = {}
    for run in shown:
        n = len(run.report.results)
        label = f"{marked(dataset_label(run.dataset), run.mark)}, n = {n:,}"
        places[label] = len(places)
        shares = {end: 100.0 * k / n for end, k in steps_reached(run.report.results).items()}
        _plot_shares(axes, shares, places[label], most, "Blues")
    for row in printed:
        label = f"{dataset_label(row.dataset)}, paper, {row.lm}"
        # A little apart.
        places[label] = len(places) + 0.4
        shares = {str(step): share for step, share in enumerate(row.steps, start=1)}
        _plot_shares(axes, shares, places[label], most, "Greys")
    name(axes, "", "questions that ended there, %", "")
    axes.set_yticks([*places.values()], [*places])
    axes.set(xlim=(0.0, 100.0), ylim=(max(places.values()) + 0.6, -0.6))
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", length=0)
    grey = (
        "Grey: the paper's rows, steps in the same order: 500 questions each (125 of Bamboogle), "
        "with the LM named, over another corpus."
    )
    caption = _caption(runs, shown, grey if printed else "")
    subtitle = f"GraphAnchor; {_answered_by(lm, shown[0].budget)}"
    head(figure, _REACHED, subtitle, caption, key=(axes,))
    return figure


def _plot_shares(
    axes: Axes, shares: dict[str, float], place: float, most: int, colours: str
) -> None:
    """A bar of parts: the steps in ever darker shades, then what is no step, hatched."""
    from matplotlib import colormaps

    left = 0.0
    for end, share in sorted(shares.items(), key=lambda part: (len(part[0]), part[0])):
        is_step = end.isdigit()
        depth = 0.18 + 0.68 * (int(end) - 1) / max(most - 1, 1) if is_step else 0.0
        colour = colormaps[colours](depth)
        label = f"step {end}" if is_step else {"(none)": "not told"}.get(end, end)
        axes.barh(
            [place], [share], left=left, height=0.78, color=colour, lw=0.5,
            hatch="" if is_step else "xxx", edgecolor="w" if is_step else GREY,
            label=label if colours == "Blues" else f"_{label}",
        )  # fmt: skip
        # A narrower part has no room for its number.
        if share >= 7.0 and is_step:
            red, green, blue = colour[:3]
            is_dark = 0.2126 * red + 0.7152 * green + 0.0722 * blue < 0.5
            axes.text(
                left + share / 2, place, f"{share:.1f}", ha="center", va="center", fontsize=8,
                color="w" if is_dark else INK,
            )  # fmt: skip
        left += share


# --- Figure 3: the graph by step, and what an answer at that step is worth.

_GRAPH = "Figure 3: the graph, and answers by step"
_WITH_GRAPH = ("one-step", "graph-anchor-2", "graph-anchor-3", "graph-anchor")
_FROM_PASSAGES = ("qa-docs-1", "qa-docs-2", "qa-docs-3", "qa-docs")
_BY_STEP = (*_WITH_GRAPH, *_FROM_PASSAGES)


def plot_graph_by_step(scene: Scene) -> Figure:
    """Entities and triples in the graph after each step, and F1 if answering there.

    Raises:
        NothingToDraw: None of the runs was made.
        MissingExtra: matplotlib is not installed.
    """
    shown = scene.some(_BY_STEP)
    if not shown:
        raise NothingToDraw(_BY_STEP)
    whole = scene.get("graph-anchor")
    figure, panels = canvas(9.6 if whole else 5.4, 4.4, 2 if whole else 1)
    if whole:
        _plot_graph(panels[0], whole)
    _plot_answers(panels[-1], scene)
    caption = scene.caption(
        shown,
        "Means over all questions; one that ended earlier stays as it was. Bars: 95 % intervals.",
        needs=_BY_STEP,
    )
    head(figure, _GRAPH, scene.subtitle(scene.budget), caption)
    return figure


def _plot_graph(axes: Axes, run: Run) -> None:
    points = by_step(run.report.results, _steps(run))
    steps = [point.step for point in points]
    entities, triples = [p.entities for p in points], [p.relations for p in points]
    axes.plot(steps, entities, "o-", color=BLUE, lw=2, ms=6, label="entities")
    axes.plot(steps, triples, "s--", color=ORANGE, lw=2, ms=6, label="triples")
    name(axes, "(a) Graph", "step", "mean number in the graph", pad=26)
    _step_axis(axes, len(steps))
    axes.set_ylim(0.0, max(1.0, 1.15 * max(*entities, *triples)))
    counts_below(axes, steps, {"reached by": [point.reached for point in points]})
    legend(axes)


def _plot_answers(axes: Axes, scene: Scene) -> None:
    for shift, label, colour, form, methods in (
        (-0.07, "with the graph", BLUE, "o-", _WITH_GRAPH),
        (0.07, "passages alone", ORANGE, "s--", _FROM_PASSAGES),
    ):
        runs = {_steps(run): run.report for run in scene.some(methods)}
        if runs:
            steps, reports = zip(*sorted(runs.items()), strict=True)
            away = [reach(report.f1, report.ci95) for report in reports]
            axes.errorbar(
                [step + shift for step in steps],
                [report.f1 for report in reports],
                [[low for (low,), _ in away], [high for _, (high,) in away]],
                fmt=form, color=colour, lw=2, ms=6, elinewidth=1.2, capsize=3, label=label,
            )  # fmt: skip
    name(axes, "(b) Answers", "steps at most", "F1, %", pad=26)
    shown = scene.some(_BY_STEP)
    _step_axis(axes, max(map(_steps, shown)))
    axes.set_ylim(percent_limits([bound for run in shown for bound in run.report.ci95]))
    legend(axes)


# --- Figure 4: what is found and what is found again, by step.

_RETRIEVAL = "Figure 4: retrieval by step"
# The first is larger, to be seen where both are the same.
_LOOPS = {"graph-anchor": (BLUE, "o-", 8), "no-graph": (ORANGE, "s--", 5)}
_MARKS = {"ircot": "^", "iter-retgen": "v", "search-r1": "D", "deep-note": "P"}
_OTHER_LOOPS = {method: (GREY, f"{mark}:", 5) for method, mark in _MARKS.items()}


def plot_retrieval_by_step(scene: Scene) -> Figure:
    """Hit rate and overlap by step, with and without the graph; in grey, other loops that search.

    Raises:
        NothingToDraw: None of the runs it is about was made.
        MissingExtra: matplotlib is not installed.
    """
    main = scene.some(_LOOPS)
    if not main:
        raise NothingToDraw([*_LOOPS])
    shown = [*scene.some(_OTHER_LOOPS), *main]
    points = {_run_label(run): by_step(run.report.results, _steps(run)) for run in shown}
    last = max(map(len, points.values()))
    figure, (hits, overlaps) = canvas(9.6, 4.6, 2)
    for run, made in zip(shown, points.values(), strict=True):
        _plot_loop(hits, run, {p.step: p.hit for p in made if p.hit is not None})
        _plot_loop(overlaps, run, {p.step: p.overlap for p in made if p.overlap is not None})
    name(hits, "(a) Hit rate", "step", "questions with a hit by then, %")
    name(overlaps, "(b) Overlap", "step", "retrieved passages read before, %")
    for axes in (hits, overlaps):
        _step_axis(axes, last)
    known = [p.hit for made in points.values() for p in made if p.hit is not None]
    low, high = percent_limits(known or [0.0, 100.0])
    # At least twelve points, so that a few do not look like many.
    hits.set_ylim(min(low, high - 12.0), high)
    overlaps.set_ylim(-5.0, 105.0)
    reached = {
        _run_label(run): [point.reached for point in by_step(run.report.results, last)]
        for run in main
    }
    counts_below(overlaps, range(1, last + 1), reached)
    caption = scene.caption(
        shown,
        "(a) An accepted answer occurs in a passage read by then; over the questions whose answer "
        "is not yes or no, one that ended earlier staying as it was. (b) Share of the retrieved "
        "passages that were read before; over the questions that made the step, whose number is "
        "under its axis.",
        needs=_LOOPS,
    )
    head(figure, _RETRIEVAL, scene.subtitle(scene.budget), caption, key=(hits,))
    return figure


def _plot_loop(axes: Axes, run: Run, values: dict[int, float]) -> None:
    colour, form, size = {**_LOOPS, **_OTHER_LOOPS}[run.method]
    axes.plot(
        [*values], [*values.values()], form, color=colour, lw=2 if run.method in _LOOPS else 1,
        ms=size, label=_run_label(run),
    )  # fmt: skip


# --- Figure 7: F1 by whether the answer was read, and whether it was known before.

_KNOWLEDGE = "Figure 7: use of what was read and known"
_READERS = {"graph-anchor": (BLUE, ""), "text-index": (ORANGE, "//"), "vanilla-rag": (PALE, "..")}
_KNOWING = ("graph-anchor", "text-index", CLOSED_BOOK)
_BAR = 0.26


def plot_knowledge_use(scene: Scene) -> Figure:
    """F1 on the paper's three splits, for each run; an empty split is said to be empty.

    Raises:
        NothingToDraw: None of the runs it is about was made.
        MissingExtra: matplotlib is not installed.
    """
    if not scene.some(("graph-anchor", "text-index")):
        raise NothingToDraw(("graph-anchor", "text-index"))
    shown = scene.some(_READERS)
    figure, (axes,) = canvas(7.2, 4.6)
    for number, run in enumerate(shown):
        groups = splits(run, scene.runs)
        _plot_splits(axes, run, (number - (len(shown) - 1) / 2) * _BAR, list(groups.values()))
    names = list(groups)
    if groups[names[-1]] is None:
        _write(axes, f"no {CLOSED_BOOK} run", (len(names) - 1, 0.0), 4, INK)
    name(axes, "", "", "F1, %")
    axes.set_xticks(range(len(names)), names)
    axes.tick_params(axis="x", length=0, pad=18)
    axes.grid(visible=False, axis="x")
    axes.set(xlim=(-0.6, len(names) - 0.4), ylim=(0.0, 108.0), yticks=range(0, 101, 20))
    legend(axes, columns=3)
    caption = scene.caption(
        shown,
        "Has answer: an accepted answer occurs in what the method read; miss answer: none does; "
        "yes/no questions are in neither. Internal knowledge: questions that the closed-book run "
        "answered right. A small n makes a rough mean.",
        needs=_KNOWING,
    )
    head(figure, _KNOWLEDGE, scene.subtitle(scene.budget), caption)
    return figure


def _plot_splits(axes: Axes, run: Run, shift: float, groups: Sequence[Split | None]) -> None:
    colour, hatch = _READERS[run.method]
    places = [group + shift for group in range(len(groups))]
    axes.bar(
        places, [split.f1 or 0.0 if split else 0.0 for split in groups], 0.9 * _BAR, color=colour,
        hatch=hatch, edgecolor="w", label=_run_label(run),
    )  # fmt: skip
    for place, split in zip(places, groups, strict=True):
        if split is None:
            continue
        _write(axes, f"n = {split.n:,}", (place, 0.0), -3, MUTED)
        if split.f1 is not None:
            _write(axes, f"{split.f1:.1f}", (place, split.f1), 2, INK)
        else:
            axes.text(
                place, 2.0, "empty", rotation=90, ha="center", va="bottom", fontsize=8, color=INK
            )


def _write(axes: Axes, text: str, place: tuple[float, float], up: float, colour: str) -> None:
    axes.annotate(
        text, place, xytext=(0, up), textcoords="offset points", ha="center",
        va="bottom" if up > 0 else "top", fontsize=8, color=colour, annotation_clip=False,
    )  # fmt: skip


# --- F1 against what a question costs: every method at equal k, and at equal tokens.

_COST = "F1 against the cost of a question"
_ELSEWHERE = ("graph-rag-passages", "graph-rag-facts", "graph-rag-global")
"""GraphRAG's ablations, and its mode that reads every summary: their cost is in their own table."""


def plot_cost_of_methods(scene: Scene) -> Figure:
    """F1 against tokens a question, with intervals: a panel at equal k, one at equal tokens.

    GraphAnchor stands out; hollow points are ablations and depths. The runs of a method under
    several budgets are joined, and named once.

    Raises:
        NothingToDraw: No run recorded its tokens.
        MissingExtra: matplotlib or textalloc is not installed.
    """
    shown = [
        run
        for run in scene.all
        if run.method not in _ELSEWHERE
        and any(result.tokens is not None for result in run.report.results)
    ]
    if not shown:
        raise NothingToDraw(["graph-anchor"])
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
    caption = scene.caption(
        shown,
        "Means over all questions. Hollow: ablations of GraphAnchor, and vanilla RAG with more "
        "passages (top 10 to 20).",
        "Squares: each question was given so many tokens at most." if budgets else "",
    )
    head(figure, _COST, scene.subtitle(None), caption)
    for panel, (title, form, chosen) in zip(axes, panels, strict=True):
        name(panel, title, "tokens a question, in and out", "F1 with 95 % interval, %")
        panel.set_xlim(_limits([*map(_tokens, chosen)]))
        panel.xaxis.set_major_formatter("{x:,.0f}")
        _plot_costs(panel, chosen, form)
    # Labels last: both panels have their final size by then.
    for panel, (_, _, chosen) in zip(axes, panels, strict=True):
        points = [(_tokens(run), run.report.f1, *run.report.ci95) for run in chosen]
        label_points(figure, panel, list(_labels(chosen)), points)
    return figure


def _tokens(run: Run) -> float:
    """Mean tokens a question."""
    return fsum(result.tokens or 0 for result in run.report.results) / len(run.report.results)


def _is_minor(run: Run) -> bool:
    """Whether it is an ablation, or a depth of vanilla RAG."""
    return run.method in METHODS and METHODS[run.method].group not in ("methods", "graphrag")


def _plot_costs(axes: Axes, runs: Sequence[Run], form: str) -> None:
    for method in dict.fromkeys(run.method for run in runs):
        line = sorted((run for run in runs if run.method == method), key=_tokens)
        ours, minor = method == "graph-anchor", _is_minor(line[0])
        colour = BLUE if ours else SLATE
        if len(line) > 1:
            places = [_tokens(run) for run in line], [run.report.f1 for run in line]
            axes.plot(*places, color=colour, lw=0.8, alpha=0.6, label=f"_{method}", zorder=2)
        for run in line:
            f1 = run.report.f1
            axes.errorbar(
                [_tokens(run)], [f1], reach(f1, run.report.ci95),
                fmt=form, ms=10 if ours else 5 if minor else 7, color=colour,
                mfc="white" if minor else colour, elinewidth=1.8 if ours else 0.8,
                capsize=0, clip_on=False, alpha=1.0 if ours else 0.85, zorder=4 if ours else 3,
                label=_run_label(run),
            )  # fmt: skip


def _labels(runs: Sequence[Run]) -> Iterator[Label]:
    """One label a method, at its dearest run: GraphAnchor's first, the hollow points' last."""
    last = {run.method: run for run in sorted(runs, key=_tokens)}
    for run in sorted(last.values(), key=lambda r: (r.method != "graph-anchor", _is_minor(r))):
        ours, minor = run.method == "graph-anchor", _is_minor(run)
        colour = BLUE if ours else MUTED if minor else INK
        # Above its bar, or beneath it: there is room for one more where methods stand close.
        low, high = run.report.ci95
        end = low if minor else high
        yield Label(_short(_run_label(run)), _tokens(run), end, colour, ours)


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


# --- Every figure, in the order of a report.


def _planned(
    runs: Runs,
) -> Iterator[tuple[str, tuple[str, ...], Sequence[str], list[Scene], Callable[[], Figure]]]:
    """Every figure: title, parts of its file's name, methods and scenes it is of, what draws it."""
    of_an_lm = (
        (_SCORES, "table-1", _METHODS, plot_scores),
        (_REACHED, "table-3", ["graph-anchor"], plot_steps_reached),
    )
    of_a_dataset = (
        (_GRAPH, "figure-3", _BY_STEP, plot_graph_by_step),
        (_RETRIEVAL, "figure-4", [*_LOOPS], plot_retrieval_by_step),
        (_KNOWLEDGE, "figure-7", _KNOWING, plot_knowledge_use),
        (_COST, "f1-by-tokens", ["graph-anchor"], plot_cost_of_methods),
    )
    for lm in runs.lms:
        who, scenes = lm_label(lm), _scenes(runs, lm)
        for title, stem, needs, plot in of_an_lm:
            yield f"{title}; {who}", (stem, lm), needs, scenes, partial(plot, runs, lm)
        for scene in scenes:
            what = dataset_label(scene.dataset)
            for title, stem, needs, draw in of_a_dataset:
                parts = (stem, scene.dataset, lm)
                yield f"{title}; {what}; {who}", parts, needs, [scene], partial(draw, scene)
