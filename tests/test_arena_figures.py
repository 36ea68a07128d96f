"""What the figures show, read back from their axes, against numbers worked out by hand."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from extractive_lm.engine import MODEL
from ga_dspy.arena import Run, Runs
from ga_dspy.arena.figures import (
    NothingToDraw,
    Scene,
    draw_figures,
    plot_cost_of_methods,
    plot_graph_by_step,
    plot_knowledge_use,
    plot_retrieval_by_step,
)
from ga_dspy.errors import MissingExtra
from ga_dspy.eval import Protocol, Report, Result
from ga_dspy.eval.result import StepTrace

BASE = Protocol.of([], dataset="hotpotqa", source="made", program="p", lm=MODEL, corpus="c")
EVERY = (
    *("one-step", "graph-anchor-2", "graph-anchor-3", "graph-anchor"),
    *("qa-docs-1", "qa-docs-2", "qa-docs-3", "qa-docs", "no-graph", "text-index", "closed-book"),
    *("vanilla-rag", "ircot", "iter-retgen", "search-r1", "deep-note"),
)
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


def scene(*found: Run, notes: dict[str, str] | None = None) -> Scene:
    return Scene(Runs(found, notes or {}), "hotpotqa", found[0].lm)


def line(axes: Any, label: str) -> Any:
    """A line's places and heights; one with error bars has its label on the container."""
    found = {one.get_label(): one for one in axes.lines}
    found |= {one.get_label(): one.lines[0] for one in axes.containers}
    return list(found[label].get_xdata()), list(found[label].get_ydata())


def intervals(axes: Any, label: str) -> list[Any]:
    """The low and high end of each error bar of a line."""
    (found,) = (one for one in axes.containers if one.get_label() == label)
    return [segment[:, 1].tolist() for segment in found.lines[2][0].get_segments()]


def bars(axes: Any, label: str) -> list[Any]:
    (found,) = (one for one in axes.containers if one.get_label() == label)
    return list(found.patches)


def texts(axes: Any) -> list[str]:
    return [text.get_text() for text in axes.texts]


def ticks(axes: Any) -> list[str]:
    return [tick.get_text() for tick in axes.get_xticklabels()]


def caption(figure: Any) -> str:
    """The small print, its lines joined."""
    return " ".join(figure.get_supxlabel().split())


def subtitle(figure: Any) -> str:
    return str(figure.texts[1].get_text())


def test_the_graph_is_carried_forward_and_counts_stand_under_the_steps() -> None:
    graph, _ = plot_graph_by_step(scene(made("graph-anchor"))).axes
    # Means over three questions, of which one failed: (2 + 4) / 3, then (2 + 6) / 3.
    assert line(graph, "entities") == ([1, 2, 3, 4], pytest.approx([2, 8 / 3, 8 / 3, 8 / 3]))
    assert line(graph, "triples")[1] == pytest.approx([4, 16 / 3, 16 / 3, 16 / 3])
    assert ticks(graph) == ["1\n2", "2\n1", "3\n0", "4\n0"]


def test_answers_by_step_have_their_mean_and_interval() -> None:
    right = [question(1), question(2), question(3, "red")]
    found = scene(made("one-step"), made("graph-anchor", right), made("qa-docs-2", right[:2]))
    answers = plot_graph_by_step(found).axes[1]
    places, heights = line(answers, "with the graph")
    assert [round(place) for place in places] == [1, 4]
    assert heights == pytest.approx([100 / 3, 200 / 3])
    assert intervals(answers, "with the graph") == [
        pytest.approx(found.runs.runs[number].report.ci95) for number in (0, 1)
    ]
    assert intervals(answers, "passages alone") == [[100.0, 100.0]]


def test_without_graph_anchor_itself_the_answers_are_drawn_alone() -> None:
    figure = plot_graph_by_step(scene(made("qa-docs-1")))
    assert len(figure.axes) == 1
    assert "No run of one-step, graph-anchor-2" in caption(figure)


def test_a_hit_is_carried_forward_and_overlap_is_of_those_who_made_the_step() -> None:
    found = scene(made("graph-anchor"), made("no-graph", [ASKED[0]]), made("ircot"))
    hits, overlaps = plot_retrieval_by_step(found).axes
    third = 100 / 3
    assert line(hits, "GraphAnchor") == ([1, 2, 3, 4], pytest.approx([0, third, third, third]))
    assert line(hits, "w/o Graph")[1] == [0, 0, 0, 0]
    assert line(overlaps, "GraphAnchor") == ([1, 2], [0, 50])
    assert line(overlaps, "w/o Graph") == ([1], [0])
    assert line(hits, "IRCoT") == line(hits, "GraphAnchor")
    assert ticks(hits) == ["1", "2", "3", "4"]
    assert ticks(overlaps) == ["1\n2\n1", "2\n1\n0", "3\n0\n0", "4\n0\n0"]


def test_yes_no_questions_have_no_hit_to_draw() -> None:
    yes = question(1, "yes", gold=("yes",), trace=(step(None, 1),))
    hits, overlaps = plot_retrieval_by_step(scene(made("graph-anchor", [yes]))).axes
    assert line(hits, "GraphAnchor") == ([], []) and line(overlaps, "GraphAnchor") == ([1], [0])


def test_knowledge_use_is_split_by_what_was_read_and_by_what_was_known() -> None:
    found = scene(made("graph-anchor"), made("text-index", ASKED[:1]), made("closed-book"))
    (axes,) = plot_knowledge_use(found).axes
    # The second has the answer and misses it; of the others one is right; the first was known.
    assert [bar.get_height() for bar in bars(axes, "GraphAnchor")] == [0, 50, 100]
    assert [bar.get_height() for bar in bars(axes, "GraphAnchor w/ Text Index")] == [0, 100, 100]
    assert [text for text in texts(axes) if text.startswith("n =")] == [
        *("n = 1", "n = 2", "n = 1"),
        *("n = 0", "n = 1", "n = 1"),
    ]


def test_an_empty_split_is_said_to_be_empty() -> None:
    knows_nothing = made("closed-book", [question(1, "red"), question(2, "red")])
    (axes,) = plot_knowledge_use(scene(made("graph-anchor"), knows_nothing)).axes
    assert texts(axes) == ["n = 1", "0.0", "n = 2", "50.0", "n = 0", "empty"]


def test_without_a_closed_book_run_nobody_knows_what_was_known() -> None:
    figure = plot_knowledge_use(scene(made("graph-anchor")))
    assert texts(figure.axes[0])[-1] == "no closed-book run"
    assert "No run of text-index, closed-book." in caption(figure)


def test_a_method_stands_at_its_mean_tokens_and_f1() -> None:
    (axes,) = plot_cost_of_methods(scene(made("graph-anchor"), made("vanilla-rag"))).axes
    assert line(axes, "GraphAnchor") == (pytest.approx([4000 / 3]), pytest.approx([100 / 3]))
    assert set(texts(axes)) == {"GraphAnchor", "Vanilla RAG"}


def test_runs_at_equal_tokens_have_a_panel_and_a_mark_of_their_own() -> None:
    tight = [made("graph-anchor", settings={"token_budget": n}) for n in (500, 1500)]
    figure = plot_cost_of_methods(scene(made("graph-anchor"), *tight))
    panels: Any = figure.axes
    equal_k, equal_tokens = panels
    assert [one.get_title(loc="left") for one in panels] == ["Equal k", "Equal tokens"]
    marks = [{one.lines[0].get_marker() for one in a.containers} for a in (equal_k, equal_tokens)]
    assert marks == [{"o"}, {"s"}]
    assert len(equal_tokens.containers) == 2 and texts(equal_tokens) == ["GraphAnchor"]


@pytest.mark.parametrize("apart", [1, 300])
def test_labels_cover_neither_one_another_nor_a_point(apart: int) -> None:
    names = ("vanilla-rag", "ircot", "iter-retgen", "search-r1", "deep-note", "graph-anchor",
             "qa-docs", "qa-graph", "text-index", "one-step", "no-graph")  # fmt: skip
    runs = [
        made(name, [question(n, "Paris" if n < 15 else "red", tokens=4000 + apart * i)
                    for n in range(30)])
        for i, name in enumerate(names)
    ]  # fmt: skip
    figure = plot_cost_of_methods(scene(*runs))
    figure.savefig(BytesIO(), dpi=figure.dpi)
    (axes,) = figure.axes
    boxes = [text.get_window_extent() for text in axes.texts]
    assert len(boxes) == len(names)
    for number, box in enumerate(boxes):
        assert not any(box.overlaps(other) for other in boxes[:number])
        assert axes.bbox.x0 <= box.x0 and box.x1 <= axes.bbox.x1 and box.y0 >= axes.bbox.y0


def test_every_picture_says_who_answered_what_and_how_many() -> None:
    found = scene(made("graph-anchor"))
    for plot in (plot_graph_by_step, plot_retrieval_by_step, plot_knowledge_use):
        figure = plot(found)
        said = "HotpotQA, 3 questions; answered by: embedded extractive LM (no LLM)"
        assert subtitle(figure) == said
        assert "Failed questions count as 0: 1 of GraphAnchor." in caption(figure)


def test_where_only_runs_within_tokens_were_made_those_are_drawn_and_said_to_be() -> None:
    tight = [made("graph-anchor", settings={"token_budget": n}) for n in (900, 500)]
    assert subtitle(plot_retrieval_by_step(scene(*tight))).endswith("at most 500 tokens a question")


def test_a_run_that_was_measured_otherwise_has_its_letter_and_its_note() -> None:
    found = scene(made("graph-anchor"), made("no-graph", mark="a"), notes={"a": "hotpotqa: n 9"})
    figure = plot_retrieval_by_step(found)
    assert line(figure.axes[0], "w/o Graph (a)")[0] == [1, 2, 3, 4]
    assert caption(figure).endswith("(a) hotpotqa: n 9.")


def test_all_runs_make_all_figures_with_nothing_lacking(tmp_path: Path) -> None:
    drawn = draw_figures(Runs(tuple(map(made, EVERY)), {}), tmp_path)
    assert drawn.lacking == ()
    assert [path.name for path in drawn.pictures.values()] == [
        f"{name}-ga-dspy-extractive.png"
        for name in (
            "figure-3-hotpotqa", "figure-4-hotpotqa", "figure-7-hotpotqa",
            "f1-by-tokens-hotpotqa",
        )
    ]  # fmt: skip
    assert sorted(drawn.pictures.values()) == sorted((tmp_path / "figures").iterdir())


def test_figures_name_the_runs_they_lack_and_none_is_left_of_an_earlier_report(
    tmp_path: Path,
) -> None:
    stale = tmp_path / "figures" / "figure-4-hotpotqa-ga-dspy-extractive.png"
    stale.parent.mkdir()
    stale.write_bytes(b"of other runs")
    drawn = draw_figures(Runs((made("one-step"), made("closed-book")), {}), tmp_path)
    who = "HotpotQA; embedded extractive LM (no LLM)"
    assert (
        f"Figure 4: retrieval by step; {who}: not drawn: it needs graph-anchor on hotpotqa, "
        "no-graph on hotpotqa"
    ) in drawn.lacking
    figure_3 = f"Figure 3: the graph, and answers by step; {who}"
    assert any(
        one.startswith(f"{figure_3}: drawn without graph-anchor-2 on") for one in drawn.lacking
    )
    assert not stale.exists()


def test_the_same_runs_give_the_same_bytes(tmp_path: Path) -> None:
    runs = Runs((made("one-step"), made("vanilla-rag")), {})
    one, other = (draw_figures(runs, tmp_path / name).pictures for name in ("one", "other"))
    assert [p.read_bytes() for p in one.values()] == [p.read_bytes() for p in other.values()]


@pytest.mark.parametrize(
    "plot",
    [plot_graph_by_step, plot_retrieval_by_step, plot_knowledge_use],
)
def test_without_its_runs_a_figure_says_which_it_needs(plot: Any) -> None:
    with pytest.raises(NothingToDraw, match="graph-anchor"):
        plot(scene(made("deep-note")))


def test_without_matplotlib_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtra, match=r"ga-dspy\[report\]"):
        draw_figures(Runs((made("graph-anchor"),), {}), tmp_path)
