"""What the figures show, read back from their axes, against numbers worked out by hand."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from extractive_lm.engine import MODEL
from ga_dspy.arena import Run, Runs
from ga_dspy.arena.report import draw_figures, plot_costs
from ga_dspy.errors import MissingExtra
from ga_dspy.eval import Protocol, Report, Result
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
    """A question whose answer is Paris; it failed where none was given."""
    failed = answer is None
    usual = {
        "id": f"q{number}", "question": f"{number}?", "type": "", "gold": ("Paris",),
        "gold_titles": (), "answer": answer, "error": "ValueError: broke" if failed else None,
        "steps": None if failed else 1, "tokens": None if failed else 1000,
        "trace": () if failed else ONE_STEP,
    }  # fmt: skip
    return Result(**{**usual, **more})


ASKED = (question(1), question(2, "red", steps=2, tokens=3000, trace=TWO_STEPS), question(3, None))


def made(
    method: str, asked: Sequence[Result] = ASKED, *, difference: str = "", **protocol: Any
) -> Run:
    changes = {"program": method, "n": len(asked), "steps": STEPS.get(method, 4), **protocol}
    return Run(Report(BASE.model_copy(update=changes), tuple(asked), 0.0), Path(method), difference)


def plot(*found: Run) -> Any:
    return plot_costs(Runs(found), found, "a title")


def line(axes: Any, label: str) -> Any:
    """A line's places and heights; one with error bars has its label on the container."""
    found = {one.get_label(): one for one in axes.lines}
    found |= {one.get_label(): one.lines[0] for one in axes.containers}
    return list(found[label].get_xdata()), list(found[label].get_ydata())


def names(axes: Any) -> list[str]:
    """The names in the legend."""
    return [text.get_text() for text in axes.get_legend().get_texts()]


def test_a_method_stands_at_its_mean_tokens_and_f1() -> None:
    (axes,) = plot(made("graph-anchor"), made("vanilla-rag")).axes
    assert line(axes, "GraphAnchor") == (pytest.approx([4000 / 3]), pytest.approx([100 / 3]))
    assert names(axes) == ["GraphAnchor", "Vanilla RAG"]


def test_runs_at_equal_tokens_have_a_picture_of_their_own(tmp_path: Path) -> None:
    tight = [made("graph-anchor", settings={"token_budget": n}) for n in (500, 1500)]
    drawn = draw_figures(Runs((made("graph-anchor"), *tight)), tmp_path)
    assert [path.name[:18] for path in drawn.values()] == [
        "f1-by-tokens-hotpo",
        "f1-at-equal-tokens",
    ]


def test_a_method_under_several_budgets_is_a_line_that_is_named_once() -> None:
    asked = [[question(1, tokens=n)] for n in (500, 1500)]
    (axes,) = plot(*(made("graph-anchor", one) for one in asked)).axes
    assert line(axes, "GraphAnchor")[0] == [500, 1500]
    assert names(axes) == ["GraphAnchor"]


def test_a_bound_past_the_mean_by_a_rounding_error_is_drawn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Report, "ci95", property(lambda report: (report.f1 + 1e-9, report.f1)))
    (axes,) = plot(made("graph-anchor")).axes
    assert line(axes, "GraphAnchor")[1] == pytest.approx([100 / 3])


def test_a_figure_says_which_questions_and_which_lm() -> None:
    (axes,) = plot(made("graph-anchor")).axes
    said = "HotpotQA, embedded extractive LM (no LLM), 3 questions"
    assert axes.get_title(loc="left") == said


def test_a_run_under_another_protocol_has_its_mark() -> None:
    (axes,) = plot(made("graph-anchor"), made("no-graph", difference="hotpotqa: n 9")).axes
    assert names(axes) == ["GraphAnchor", "w/o Graph (1)"]


def test_a_dataset_and_lm_has_a_picture_and_none_is_left_of_an_earlier_report(
    tmp_path: Path,
) -> None:
    drawn = draw_figures(Runs((made("one-step"), made("ircot", dataset="musique"))), tmp_path)
    lm = "embedded-extractive-lm-no-llm"
    files = [f"f1-by-tokens-{name}-{lm}.png" for name in ("hotpotqa", "musique")]
    assert {path.name for path in drawn.values()} == set(files)
    assert "F1 against tokens per question: MuSiQue, embedded extractive LM (no LLM)" in drawn
    untold = made("one-step", [question(1, tokens=None)])
    assert draw_figures(Runs((untold,)), tmp_path) == {}
    assert [path.name for path in (tmp_path / "figures").iterdir()] == files[1:]


def test_the_same_runs_give_the_same_bytes(tmp_path: Path) -> None:
    runs = Runs((made("one-step"), made("vanilla-rag")))
    one, other = (draw_figures(runs, tmp_path / name) for name in ("one", "other"))
    assert [p.read_bytes() for p in one.values()] == [p.read_bytes() for p in other.values()]


def test_without_matplotlib_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtra, match=r"ga-dspy\[report\]"):
        draw_figures(Runs((made("graph-anchor"),)), tmp_path)


def test_an_arena_costs_no_library_of_reports_until_one_is_written() -> None:
    code = (
        "import sys, ga_dspy.arena.report;"
        "sys.exit(bool({'matplotlib', 'pandas'} & sys.modules.keys()))"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
