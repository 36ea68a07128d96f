"""The figures of a report, each drawn from runs alone, with what every picture says of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

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
    head,
    label_points,
    legend,
    name,
    percent_limits,
    reach,
    save,
)
from ga_dspy.errors import GaDspyError
from ga_dspy.eval.report import by_step

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
    for title, stem, needs, scene, plot in _planned(runs):
        path = out / "figures" / f"{_stem(*stem)}.png"
        try:
            pictures[title] = save(plot(), path)
        except NothingToDraw:
            # That of an earlier report on other runs would pass for one of this.
            path.unlink(missing_ok=True)
        if absent := [f"{method} on {scene.dataset}" for method in scene.missing(needs)]:
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
        allowed = f"; at most {budget:,} tokens a question" if budget else ""
        who = f"{lm_label(self.lm)}{allowed}"
        return f"{dataset_label(self.dataset)}, {n:,} questions; answered by: {who}"

    def caption(self, shown: Sequence[Run], *sentences: str, needs: Iterable[str] = ()) -> str:
        """The small print of a picture of some runs.

        Its own sentences, `needs` that have no run, how many questions failed, and what the
        letters mean.
        """
        missing = self.missing(needs)
        absent = f"No run of {', '.join(missing)}." if missing else ""
        failed = dict.fromkeys(
            f"{len(run.report.failed):,} of {_run_label(run)}" for run in shown if run.report.failed
        )
        failures = f"Failed questions count as 0: {', '.join(failed)}." if failed else ""
        notes = mark_notes(self.runs, shown)
        return " ".join(filter(None, (*sentences, absent, failures, *notes)))


def _scenes(runs: Runs, lm: str) -> list[Scene]:
    found = {run.dataset for run in runs if run.lm == lm}
    return [Scene(runs, dataset, lm) for dataset in runs.datasets if dataset in found]


def _run_label(run: Run) -> str:
    return marked(method_label(run.method), run.mark)


def _steps(run: Run) -> int:
    """How many steps a run's questions might take; the most they took where that is not known."""
    longest = max((len(result.trace) for result in run.report.results), default=0)
    return max(run.report.protocol.steps or longest, 1)


def _step_axis(axes: Axes, last: int, *counts: Sequence[int]) -> None:
    """Whole steps on the x axis, with room on both sides; counts of each step under it."""
    steps = range(1, last + 1)
    beneath = zip(steps, *counts, strict=True)
    axes.set_xticks(steps, ["\n".join(f"{n:,}" for n in numbers) for numbers in beneath])
    axes.set_xlim(0.5, last + 0.5)


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
    beneath = "step, and questions that reached it"
    name(axes, "(a) Graph", beneath, "mean number in the graph", pad=26)
    _step_axis(axes, len(steps), [point.reached for point in points])
    axes.set_ylim(0.0, max(1.0, 1.15 * max(*entities, *triples)))
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
    figure, (hits, overlaps) = canvas(9.6, 5.0, 2)
    for run, made in zip(shown, points.values(), strict=True):
        _plot_loop(hits, run, {p.step: p.hit for p in made if p.hit is not None})
        _plot_loop(overlaps, run, {p.step: p.overlap for p in made if p.overlap is not None})
    name(hits, "(a) Hit rate", "step", "questions with a hit by then, %", pad=40)
    beneath = "step, and questions that made it"
    name(overlaps, "(b) Overlap", beneath, "retrieved passages read before, %", pad=40)
    legend(hits, columns=3)
    _step_axis(hits, last)
    reached = ([p.reached for p in by_step(run.report.results, last)] for run in main)
    _step_axis(overlaps, last, *reached)
    known = [p.hit for made in points.values() for p in made if p.hit is not None]
    low, high = percent_limits(known or [0.0, 100.0])
    # At least twelve points, so that a few do not look like many.
    hits.set_ylim(min(low, high - 12.0), high)
    overlaps.set_ylim(-5.0, 105.0)
    caption = scene.caption(
        shown,
        "(a) An accepted answer occurs in a passage read by then; over the questions whose answer "
        "is not yes or no, one that ended earlier staying as it was. (b) Share of the retrieved "
        "passages that were read before; over the questions that made the step: under its axis "
        f"the numbers of {' and '.join(map(_run_label, main))}.",
        needs=_LOOPS,
    )
    head(figure, _RETRIEVAL, scene.subtitle(scene.budget), caption)
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


# --- Every figure, in the order of a report.


def _planned(
    runs: Runs,
) -> Iterator[tuple[str, tuple[str, ...], Sequence[str], Scene, Callable[[], Figure]]]:
    """Every figure: title, parts of its file's name, methods and scene it is of, what draws it."""
    of_a_dataset = (
        (_GRAPH, "figure-3", _BY_STEP, plot_graph_by_step),
        (_RETRIEVAL, "figure-4", [*_LOOPS], plot_retrieval_by_step),
        (_KNOWLEDGE, "figure-7", _KNOWING, plot_knowledge_use),
        (_COST, "f1-by-tokens", ["graph-anchor"], plot_cost_of_methods),
    )
    for lm in runs.lms:
        for scene in _scenes(runs, lm):
            what = f"{dataset_label(scene.dataset)}; {lm_label(lm)}"
            for title, stem, needs, plot in of_a_dataset:
                parts = (stem, scene.dataset, lm)
                yield f"{title}; {what}", parts, needs, scene, partial(plot, scene)
