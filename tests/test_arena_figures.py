"""Figures, read back from their axes, against numbers worked out by hand."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text
from PIL import Image

from extractive_lm.engine import MODEL
from ga_dspy.errors import MissingExtra
from ga_dspy.eval import Protocol, Report, Result
from ga_dspy.eval.comparison import (
    Drawn,
    arrange,
    draw_figures,
    part_table,
    run_table,
    write_report,
)
from ga_dspy.eval.plots import Point, plot_costs, plot_scores, save_plot
from ga_dspy.eval.result import StepTrace

BASE = Protocol.of([], dataset="hotpotqa", source="made", program="p", lm=MODEL, corpus="c")
STEPS = {"one-step": 1, "qa-docs-1": 1, "graph-anchor-2": 2, "qa-docs-2": 2, "graph-anchor-3": 3}


def step(hit: bool | None, entities: int, *, new: int = 2, retrieved: int = 2) -> StepTrace:
    titles = tuple(f"title {number}" for number in range(new))
    return StepTrace(
        query="?", hit=hit, entities=entities, relations=2 * entities, titles=titles,
        retrieved=retrieved,
    )  # fmt: skip


ONE_STEP = (step(False, 2),)
TWO_STEPS = (step(False, 4), step(True, 6, new=1))


def question(number: int, answer: str | None = "Paris", **more: Any) -> Result:
    """The result of a question whose answer is Paris; without an answer, it failed."""
    failed = answer is None
    usual = {
        "id": f"q{number}", "question": f"{number}?", "type": "", "gold": ("Paris",),
        "gold_titles": (), "answer": answer, "error": "ValueError: broke" if failed else None,
        "steps": None if failed else 1, "tokens": None if failed else 1000,
        "trace": () if failed else ONE_STEP,
    }  # fmt: skip
    return Result(**{**usual, **more})


HOPS = (
    question(1, gold_titles=("a", "b")),
    question(2, "red", gold_titles=("a", "b", "c"), steps=2, tokens=3000, trace=TWO_STEPS),
)
ASKED = (question(1), question(2, "red", steps=2, tokens=3000, trace=TWO_STEPS), question(3, None))


def made(method: str, asked: Sequence[Result] = ASKED, **protocol: Any) -> Report:
    changes = {"program": method, "n": len(asked), "steps": STEPS.get(method, 4), **protocol}
    return Report(BASE.model_copy(update=changes), tuple(asked))


def drawn(out: Path, *found: Report) -> list[Drawn]:
    runs = arrange(found)
    return draw_figures(run_table(runs), part_table(runs), out)


def files(figures: Sequence[Drawn]) -> list[str]:
    return [one.path.name.partition("-hotpotqa")[0] for one in figures if one.path]


def texts(axes: Any) -> list[str]:
    return [text.get_text() for text in axes.texts if text.get_text()]


def dots(axes: Any) -> list[list[float]]:
    """The points of a plot, without the lines of intervals."""
    lines = [one for one in axes.lines if one.get_marker() == "o"]
    return [[float(x), float(y)] for one in lines for x, y in one.get_xydata()]


# --- Plots


def test_a_row_has_the_name_f1_and_interval_of_a_program_and_a_note() -> None:
    ours = Point("GraphAnchor", 60.0, (50.0, 70.0), stands_out=True, note="+10.0 *")
    points = [ours, Point("Vanilla RAG", 50.0, (40.0, 60.0))]
    (axes,) = plot_scores({"": points}, "a title", "2 questions", "F1").axes
    labels = axes.get_yticklabels()
    assert [label.get_text() for label in labels] == ["GraphAnchor", "Vanilla RAG"]
    assert [label.get_fontweight() for label in labels] == ["bold", "normal"]
    assert dots(axes) == [[60.0, 0.0], [50.0, 1.0]]
    bars: list[Any] = [one for one in axes.lines if one.get_marker() != "o"]
    intervals = [[float(x) for x, _ in bar.get_xydata()] for bar in bars]
    assert intervals == [[50.0, 70.0], [40.0, 60.0]]
    assert texts(axes) == ["+10.0 *", "F1"]
    low, high = axes.get_ylim()
    assert low > high, "the first row is at the top"


def test_panels_share_rows_and_scale_even_if_a_program_is_in_only_one() -> None:
    panels = {
        "2 hops": [Point("b", 20.0, (10.0, 30.0))],
        "3 hops": [Point("a", 90.0, (80.0, 99.0)), Point("b", 5.0, (1.0, 9.0))],
    }
    one, other = plot_scores(panels, "a title", "", order=["a", "b"]).axes
    assert (dots(one), dots(other)) == ([[20.0, 1.0]], [[90.0, 0.0], [5.0, 1.0]])
    assert one.get_xlim() == other.get_xlim() and one.get_xlim()[1] > 99
    assert [axes.get_title(loc="left") for axes in (one, other)] == ["2 hops", "3 hops"]


def test_a_program_is_plotted_at_its_tokens_and_f1_with_its_number() -> None:
    points = [Point("GraphAnchor", 60.0, tokens=4000, stands_out=True), Point("", 50, None, 900)]
    (axes,) = plot_costs(points, "a title", "2 questions").axes
    assert sorted(dots(axes)) == [[900.0, 50.0], [4000.0, 60.0]]
    number, name = axes.texts
    assert number.get_text() == "1"
    assert name.get_text() == "1  GraphAnchor"


def test_a_method_under_several_budgets_is_a_line_with_one_label() -> None:
    (axes,) = plot_costs([Point("a", 50, None, 1500), Point("a", 40, None, 500)], "", "").axes
    (line,) = axes.lines
    assert dots(axes) == [[500.0, 40.0], [1500.0, 50.0]] and line.get_linestyle() == "-"
    assert texts(axes) == ["1", "1", "1  a"]


def test_labels_of_twelve_programs_do_not_overlap() -> None:
    points = [Point(f"Method number {n}", 48 + n % 3, None, 2000 + 150 * n) for n in range(12)]
    figure = plot_costs(points, "a title", "12 questions")
    (axes,) = figure.axes
    renderer = FigureCanvasAgg(figure).get_renderer()
    figure.draw_without_rendering()
    names = [text for text in axes.texts if "Method" in text.get_text()]
    boxes = [Text.get_window_extent(text, renderer) for text in names]
    assert len(boxes) == 12
    for one, other in combinations(boxes, 2):
        assert not one.overlaps(other)
    assert all(box.x0 > axes.bbox.x1 and box.x1 < figure.bbox.x1 for box in boxes)


def test_a_name_with_mathematical_symbols_or_of_any_length_is_drawn(tmp_path: Path) -> None:
    points = [Point(name, 50.0, (40.0, 60.0), 100.0) for name in ("$a_b", "$x^$", "long" * 40)]
    for figure in (plot_scores({"": points}, "t", "a"), plot_costs(points, "t", "a")):
        save_plot(figure, tmp_path / "plot.png")
        with Image.open(tmp_path / "plot.png") as image:
            assert image.width == 1290


# --- The figures of a report


def test_each_dataset_and_lm_has_figures_with_alt_texts_that_name_the_methods(
    tmp_path: Path,
) -> None:
    runs = made("graph-anchor", HOPS), made("vanilla-rag", HOPS)
    figures = drawn(tmp_path, *runs)
    assert files(figures) == ["f1-by-method", "f1-by-tokens", "f1-by-hops", "f1-by-steps"]
    assert all(one.path and one.path.is_file() for one in figures)
    for figure in figures:
        assert figure.group == "HotpotQA, embedded extractive LM (no LLM)"
        assert "GraphAnchor " in figure.alt and "Vanilla RAG " in figure.alt
    assert (
        "GraphAnchor 100.0 (2 hops)" in figures[2].alt
        and "GraphAnchor 0.0 (3 hops)" in figures[2].alt
    )


def test_a_report_without_hops_and_steps_states_that(tmp_path: Path) -> None:
    asked = [question(1, steps=None), question(2, "red", steps=None)]
    _, figures = write_report(arrange([made("graph-anchor", asked)]), tmp_path)
    assert files(figures) == ["f1-by-method", "f1-by-tokens"]
    text = (tmp_path / "report.md").read_text("utf-8")
    assert "No figure of F1 by hops" in text and "No figure of F1 by steps" in text
    same = [question(n, gold_titles=("a", "b"), steps=2) for n in (1, 2)]
    assert files(drawn(tmp_path, made("graph-anchor", same))) == ["f1-by-method", "f1-by-tokens"]


def test_failed_musique_questions_count_under_their_number_of_hops() -> None:
    asked = [question(1, type="3hop1", gold_titles=("a",)), question(2, None, type="3hop1")]
    rows = part_table(arrange([made("graph-anchor", asked)])).to_dict("records")
    assert [(row["By"], row["Value"], row["n"], row["F1"]) for row in rows] == [
        ("hops", "3", 2, 50.0),
        ("steps", "1", 1, 100.0),
    ]


def test_five_or_more_steps_are_one_row() -> None:
    asked = [question(n, steps=n) for n in (4, 5, 9)]
    rows = part_table(arrange([made("graph-anchor", asked)])).to_dict("records")
    assert [(row["Value"], row["n"]) for row in rows] == [("4", 1), ("5 or more", 2)]


def test_a_significant_difference_from_the_baseline_is_marked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[Any] = []

    def keep(figure: Any, path: Path) -> None:
        shown.append(figure)

    monkeypatch.setattr("ga_dspy.eval.comparison.save_plot", keep)
    asked = [[question(n, answer) for n in range(12)] for answer in ("Paris", "red")]
    drawn(tmp_path, made("graph-anchor", asked[0]), made("vanilla-rag", asked[1]))
    best, other, heading = texts(shown[0].axes[0])
    assert heading == "F1 (difference from Vanilla RAG; * p < 0.05)"
    assert best == "100.0 (+100.0, p <0.001) *" and other == "0.0"


def test_a_method_under_several_token_budgets_is_one_line(tmp_path: Path) -> None:
    tight = [made("graph-anchor", settings={"token_budget": n}) for n in (500, 1500)]
    figures = drawn(tmp_path, made("graph-anchor"), *tight)
    assert files(figures)[:2] == ["f1-by-method", "f1-by-tokens"]
    assert figures[1].alt.count("GraphAnchor 33.3") == 3


def test_figures_of_an_earlier_report_are_removed(tmp_path: Path) -> None:
    drawn(tmp_path, made("one-step"), made("ircot", dataset="musique"))
    before = {path.name for path in (tmp_path / "figures").iterdir()}
    assert len([name for name in before if name.startswith("f1-by-tokens-")]) == 2
    drawn(tmp_path, made("one-step", [question(1, tokens=None)]))
    (left,) = (tmp_path / "figures").iterdir()
    assert left.name.startswith("f1-by-method-hotpotqa")


def test_the_same_runs_give_the_same_bytes(tmp_path: Path) -> None:
    runs = made("one-step"), made("vanilla-rag")
    one, other = (drawn(tmp_path / name, *runs) for name in ("one", "other"))
    assert [p.path.read_bytes() for p in one if p.path] == [
        p.path.read_bytes() for p in other if p.path
    ]


def test_without_matplotlib_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtra, match=r"ga-dspy\[report\]"):
        drawn(tmp_path, made("graph-anchor"))
