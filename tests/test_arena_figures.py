"""What the figures show, read back from their axes, against numbers worked out by hand."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from extractive_lm.engine import MODEL
from ga_dspy.arena import Run, Runs
from ga_dspy.arena.figures import draw_figures, plot_costs
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


def made(method: str, asked: Sequence[Result] = ASKED, *, mark: str = "", **protocol: Any) -> Run:
    changes = {"program": method, "n": len(asked), "steps": STEPS.get(method, 4), **protocol}
    return Run(Report(BASE.model_copy(update=changes), tuple(asked), 0.0), Path(method), mark)


def plot(*found: Run, notes: dict[str, str] | None = None) -> Any:
    return plot_costs(Runs(found, notes or {}), found, "a title")


def line(axes: Any, label: str) -> Any:
    """A line's places and heights; one with error bars has its label on the container."""
    found = {one.get_label(): one for one in axes.lines}
    found |= {one.get_label(): one.lines[0] for one in axes.containers}
    return list(found[label].get_xdata()), list(found[label].get_ydata())


def texts(axes: Any) -> list[str]:
    return [text.get_text() for text in axes.texts]


def caption(figure: Any) -> str:
    """The small print, its lines joined."""
    return " ".join(figure.get_supxlabel().split())


def subtitle(figure: Any) -> str:
    return str(figure.axes[0].get_title(loc="left"))


def test_a_method_stands_at_its_mean_tokens_and_f1() -> None:
    (axes,) = plot(made("graph-anchor"), made("vanilla-rag")).axes
    assert line(axes, "GraphAnchor") == (pytest.approx([4000 / 3]), pytest.approx([100 / 3]))
    assert set(texts(axes)) == {"GraphAnchor", "Vanilla RAG"}


def test_runs_at_equal_tokens_have_a_picture_of_their_own(tmp_path: Path) -> None:
    tight = [made("graph-anchor", settings={"token_budget": n}) for n in (500, 1500)]
    drawn = draw_figures(Runs((made("graph-anchor"), *tight), {}), tmp_path)
    assert [path.name[:18] for path in drawn.values()] == [
        "f1-by-tokens-hotpo",
        "f1-at-equal-tokens",
    ]


def test_a_method_under_several_budgets_is_a_line_that_is_named_once() -> None:
    asked = [[question(1, tokens=n)] for n in (500, 1500)]
    (axes,) = plot(*(made("graph-anchor", one) for one in asked)).axes
    assert line(axes, "GraphAnchor")[0] == [500, 1500]
    assert texts(axes) == ["GraphAnchor"]


def test_a_bound_past_the_mean_by_a_rounding_error_is_drawn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Report, "ci95", property(lambda report: (report.f1 + 1e-9, report.f1)))
    (axes,) = plot(made("graph-anchor")).axes
    assert line(axes, "GraphAnchor")[1] == pytest.approx([100 / 3])


@pytest.mark.parametrize("apart", [1, 300])
def test_labels_cover_neither_one_another_nor_a_point(apart: int) -> None:
    names = ("vanilla-rag", "ircot", "iter-retgen", "search-r1", "deep-note", "graph-anchor",
             "qa-docs", "qa-graph", "text-index", "one-step", "no-graph")  # fmt: skip
    runs = [
        made(name, [question(n, "Paris" if n < 15 else "red", tokens=4000 + apart * i)
                    for n in range(30)])
        for i, name in enumerate(names)
    ]  # fmt: skip
    figure = plot(*runs)
    figure.savefig(BytesIO(), dpi=figure.dpi)
    (axes,) = figure.axes
    boxes = [text.get_window_extent() for text in axes.texts]
    assert len(boxes) == len(names)
    for number, box in enumerate(boxes):
        assert not any(box.overlaps(other) for other in boxes[:number])
        assert axes.bbox.x0 <= box.x0 and box.x1 <= axes.bbox.x1 and box.y0 >= axes.bbox.y0


def test_a_picture_says_who_answered_what_and_how_many() -> None:
    figure = plot(made("graph-anchor"))
    said = "HotpotQA, 3 questions; answered by: embedded extractive LM (no LLM)"
    assert subtitle(figure) == said
    assert "Failed questions count as 0: 1 of GraphAnchor." in caption(figure)


def test_a_run_that_was_measured_otherwise_has_its_letter_and_its_note() -> None:
    runs = made("graph-anchor"), made("no-graph", mark="a")
    figure = plot(*runs, notes={"a": "hotpotqa: n 9"})
    assert "w/o Graph (a)" in texts(figure.axes[0])
    assert caption(figure).endswith("(a) hotpotqa: n 9.")


def test_a_dataset_and_lm_has_a_picture_and_none_is_left_of_an_earlier_report(
    tmp_path: Path,
) -> None:
    drawn = draw_figures(Runs((made("one-step"), made("ircot", dataset="musique")), {}), tmp_path)
    names = [f"f1-by-tokens-{name}-ga-dspy-extractive.png" for name in ("hotpotqa", "musique")]
    assert {path.name for path in drawn.values()} == set(names)
    assert "F1 against the cost of a question: MuSiQue; embedded extractive LM (no LLM)" in drawn
    untold = made("one-step", [question(1, tokens=None)])
    assert draw_figures(Runs((untold,), {}), tmp_path) == {}
    assert [path.name for path in (tmp_path / "figures").iterdir()] == names[1:]


def test_the_same_runs_give_the_same_bytes(tmp_path: Path) -> None:
    runs = Runs((made("one-step"), made("vanilla-rag")), {})
    one, other = (draw_figures(runs, tmp_path / name) for name in ("one", "other"))
    assert [p.read_bytes() for p in one.values()] == [p.read_bytes() for p in other.values()]


def test_without_matplotlib_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtra, match=r"ga-dspy\[report\]"):
        draw_figures(Runs((made("graph-anchor"),), {}), tmp_path)


def test_an_arena_costs_no_library_of_reports_until_one_is_written() -> None:
    code = (
        "import sys, ga_dspy.arena.report, ga_dspy.arena.figures;"
        "sys.exit(bool({'matplotlib', 'pandas', 'textalloc'} & sys.modules.keys()))"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
