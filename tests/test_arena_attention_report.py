"""Which questions are measured; means over them, the rows of a table, and the pictures."""

from __future__ import annotations

from io import BytesIO
from math import nan
from typing import Any

import pytest

from ga_dspy.arena.attention import Shares, StepMeasure, Weight
from ga_dspy.arena.attention_report import (
    AttentionReport,
    Skipped,
    as_rows,
    cases_of,
    plot_all,
    plot_anchored,
    plot_entropy,
    plot_new_entities,
    plot_shares,
)
from ga_dspy.errors import InputError, MissingExtra
from ga_dspy.eval import Protocol, Report, Result
from ga_dspy.eval.result import StepTrace
from ga_dspy.passage import Passage


def step(number: int, **change: Any) -> StepMeasure:
    values: dict[str, Any] = {
        "step": number,
        "tokens": 100,
        "shares": Shares(0.2, 0.3, 0.1, 0.1, 0.3),
        "answer_entropy": 3.0,
        "graph_entropy": 4.0,
        "anchored": Weight(0.25, 2.0),
        "perplexity": 2.0,
        "new_entities": (Weight(0.5, 1.5), None),
    }
    return StepMeasure(**(values | change))


ONE = (step(1), step(2))
OTHER = (
    step(
        1,
        shares=Shares(0.4, 0.1, 0.1, 0.1, 0.3),
        graph_entropy=None,
        anchored=None,
        perplexity=8.0,
        new_entities=(Weight(0.1, 0.5), Weight(0.3, 1.0)),
    ),
)
SKIPPED = (Skipped("How long?", "the prompt has 9,000 tokens"),)
REPORT = AttentionReport("tiny-llama", 2, (0, 1), True, (ONE, OTHER), SKIPPED)
ALL_SKIPPED = REPORT._replace(measured=())
GRAPH_FIRST = REPORT._replace(
    graph_after_passages=False,
    measured=((step(1, graph_entropy=None, new_entities=(None,)),),),
)


def test_means_are_over_the_questions_that_have_the_quantity() -> None:
    first, second = REPORT.steps
    assert (first.step, first.n, second.step, second.n) == (1, 2, 2, 1)
    assert first.shares == pytest.approx((0.3, 0.2, 0.1, 0.1, 0.3))
    assert first.answer_entropy == (3.0, 2)
    assert first.graph_entropy == (4.0, 1)
    assert first.anchored == (0.25, 1) and first.anchored_lift == (2.0, 1)
    assert first.new_entities[0] == pytest.approx((0.3, 2))
    assert first.new_entities[1] == (0.3, 1)
    assert second.new_entities == ((0.5, 1), (None, 0))


def test_perplexity_is_averaged_geometrically() -> None:
    assert REPORT.steps[0].perplexity == pytest.approx((4.0, 2))


def test_the_caption_names_model_number_order_and_what_was_skipped() -> None:
    assert (
        REPORT.caption == "tiny-llama, n = 1 to 2 (1 skipped), all 2 layers, graph after passages"
    )
    upper = GRAPH_FIRST._replace(layers=(1,), skipped=())
    assert upper.caption == "tiny-llama, n = 1, 1 of 2 layers, graph before passages"


def test_rows_hold_every_number_with_its_unit_and_n() -> None:
    rows = as_rows(REPORT)
    found = {(r["figure"], r["step"], r["series"], r["unit"]): (r["value"], r["n"]) for r in rows}
    assert len(found) == len(rows), "no two rows for the same number"
    whole = "share of attention"
    assert found["5a", 1, "graph", whole] == pytest.approx((0.3, 2))
    parts = [v for (figure, n, *_), (v, _) in found.items() if (figure, n) == ("5a", 1)]
    assert sum(float(value or nan) for value in parts) == pytest.approx(1.0)
    assert found["5b", 1, "graph", "nats"] == (4.0, 1)
    assert found["6a", 1, "gold answer", "perplexity"] == pytest.approx((4.0, 2))
    passages = "share of attention on passages"
    assert found["6b", 2, "indexed at step 2", passages] == (None, 0)
    assert found["6b", 1, "indexed at step 1", "lift"] == (1.0, 2)
    assert {row["model"] for row in rows} == {"tiny-llama"}


def test_every_figure_is_captioned_with_the_model_and_the_number() -> None:
    drawn = plot_all(REPORT)
    assert list(drawn) == ["5a", "5b", "6a", "6b"]
    assert "the rest: the question" in drawn["5a"].get_supxlabel()
    for figure in drawn.values():
        assert figure.get_supxlabel().splitlines()[0] == REPORT.caption
        figure.savefig(page := BytesIO(), format="png")
        assert page.getvalue().startswith(b"\x89PNG")


def test_bars_and_lines_show_the_means() -> None:
    bars: Any = plot_shares(REPORT).axes[0].patches
    assert [bar.get_height() for bar in bars] == pytest.approx([30.0, 20.0, 20.0, 30.0])
    lines: Any = plot_entropy(REPORT).axes[0].lines
    graph, answer = lines
    assert list(graph.get_ydata()) == [4.0, 4.0] and list(answer.get_ydata()) == [3.0, 3.0]


def test_weight_and_perplexity_have_an_axis_each() -> None:
    axes: Any = plot_anchored(REPORT).axes
    left, right = axes
    assert [bar.get_height() for bar in left.patches] == [25.0, 25.0]
    assert list(right.lines[0].get_ydata()) == pytest.approx([4.0, 2.0])
    assert right.get_ylabel() == "perplexity of the gold answer"


def test_the_heat_map_has_a_row_a_graph_and_says_where_there_is_nothing() -> None:
    axes = plot_new_entities(REPORT).axes[0]
    cells = {text.get_position(): text.get_text() for text in axes.texts}
    assert cells == {(1, 1): "30.0", (2, 1): "30.0", (1, 2): "50.0", (2, 2): "none"}
    low, high = axes.get_ylim()
    assert low > high, "the first step is on top"


def test_what_a_graph_before_the_passages_cannot_show_is_left_out() -> None:
    assert list(plot_all(GRAPH_FIRST)) == ["5a", "5b", "6a"]
    assert len(plot_entropy(GRAPH_FIRST).axes[0].lines) == 1
    with pytest.raises(InputError, match=r"no attention from graph.*graph before passages"):
        plot_new_entities(GRAPH_FIRST._replace(skipped=()))


def test_where_every_question_was_skipped_the_reason_is_given() -> None:
    assert ALL_SKIPPED.steps == () and as_rows(ALL_SKIPPED) == []
    assert ALL_SKIPPED.caption.startswith("tiny-llama, n = 0 (1 skipped)")
    for draw in (plot_all, plot_shares, plot_entropy, plot_anchored, plot_new_entities):
        with pytest.raises(InputError, match=r"no (attention|entropy|anchored)") as raised:
            draw(ALL_SKIPPED)
        assert "9,000 tokens" in str(raised.value)


def test_without_matplotlib_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("matplotlib", "matplotlib.figure", "matplotlib.backends.backend_agg"):
        monkeypatch.setitem(__import__("sys").modules, module, None)
    with pytest.raises(MissingExtra, match="matplotlib"):
        plot_shares(REPORT)


# The questions of a run

LODGE = Passage(id="a", title="Red Lodge", text="Red Lodge is a city in Montana.")
FIRST = StepTrace(query="q", names=("Red Lodge",), graph="Entities:\n- Red Lodge [1]")
SECOND = StepTrace(query="r", names=("Montana",), graph="Entities:\n- Red Lodge [1]\n- Montana [1]")


def result(name: str, *trace: StepTrace, **more: Any) -> Result:
    known: dict[str, Any] = {"answer": "Montana", "passages": (LODGE,)}
    return Result(
        id=name, question=f"{name}?", type="", gold=("Montana", "MT"), gold_titles=(), trace=trace,
        **{**known, **more},
    )  # fmt: skip


def run_of(*results: Result) -> Report:
    protocol = Protocol.of([], dataset="made", source="made", program="no-graph", lm="none")
    return Report(protocol, results, 0.0)


def test_the_questions_with_the_most_steps_are_measured_with_the_graph_of_each_step() -> None:
    failed = result("f", answer=None, passages=(), error="OSError: down")
    (case,) = cases_of(run_of(result("one", FIRST), result("two", FIRST, SECOND), failed))
    assert (case.question, case.answer) == ("two?", "Montana")
    assert case.passages == ((1, LODGE),)
    assert case.graphs == (FIRST.graph, SECOND.graph)
    assert case.entities == (("Red Lodge",), ("Montana",))


def test_a_step_before_the_first_triple_shows_an_empty_graph() -> None:
    (case,) = cases_of(run_of(result("one", StepTrace(query="q"), SECOND)))
    assert case.graphs == ("(empty)", SECOND.graph)


def test_a_run_without_graphs_is_refused_by_name() -> None:
    with pytest.raises(InputError, match="run of no-graph holds no question with a graph"):
        cases_of(run_of(result("one", StepTrace(query="q"))))
