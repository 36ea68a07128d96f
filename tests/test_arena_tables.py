"""Tables 1 to 5 against numbers worked out by hand from two or three questions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ga_dspy.arena import Run, Runs
from ga_dspy.arena import tables as t
from ga_dspy.eval import Protocol, Report, Result
from ga_dspy.programs import Usage

GOLD = {"q1": "Paris", "q2": "red wine", "q3": "yes"}
RIGHT = ("Paris", "red wine", "yes")
BASE = Protocol.of([], dataset="hotpotqa", source="made", program="p", lm="lm-a", corpus="c")


def result(number: int, answer: str | None, **more: Any) -> Result:
    """Question 1, 2 or 3; it failed where there is no answer."""
    name = f"q{number}"
    error = "ValueError: broke" if answer is None else None
    usual = {"type": "", "gold": (GOLD[name],), "gold_titles": (), "steps": error is None or None}
    told = {**usual, "id": name, "question": f"{name}?", "answer": answer, "error": error}
    return Result(**{**told, **more})


def made(
    method: str,
    answers: Sequence[str | None] | Sequence[Result] = RIGHT,
    *,
    mark: str = "",
    seconds: float = 0.0,
    **protocol: Any,
) -> Run:
    results = tuple(
        answer if isinstance(answer, Result) else result(number, answer)
        for number, answer in enumerate(answers, start=1)
    )
    changes = {"program": method, "n": len(results), "k": 5, **protocol}
    return Run(Report(BASE.model_copy(update=changes), results, seconds), Path(method), mark)


def runs(*found: Run, notes: dict[str, str] | None = None) -> Runs:
    return Runs(found, notes or {})


def table(made_table: t.Table | t.Missing) -> t.Table:
    assert isinstance(made_table, t.Table)
    return made_table


def measured(made_table: t.Table | t.Missing) -> list[t.Row]:
    return [row for row in table(made_table).rows if row.source == "measured"]


def values(rows: Sequence[t.Row]) -> list[tuple[Any, ...]]:
    return [row.values for row in rows]


def columns(made_table: t.Table | t.Missing, row: int = 0) -> dict[str, Any]:
    found = table(made_table)
    names = [column.name for column in found.columns]
    return dict(zip(names, found.rows[row].values, strict=True))


# Table 1


def test_table_1_has_f1_with_its_interval_and_em_of_each_method() -> None:
    # F1 of "wine" against "red wine" is 2/3; the mean of 1, 2/3 and 0 is 55.6.
    found = measured(t.table_1(runs(made("ircot", ("Paris", "wine", "no")), made("vanilla-rag"))))
    assert [row.method for row in found] == ["Vanilla RAG", "IRCoT"]
    estimate, em = found[1].values
    assert isinstance(estimate, t.Estimate)
    assert estimate.value == pytest.approx(100 * (1 + 2 / 3) / 3)
    assert 0 <= estimate.low < estimate.value < estimate.high <= 100
    assert em == pytest.approx(100 / 3)


def test_a_failed_question_lowers_the_mean_and_is_counted_in_the_row() -> None:
    (row,) = measured(t.table_1(runs(made("ircot", ("Paris", None, "yes")))))
    estimate, em = row.values
    assert isinstance(estimate, t.Estimate)
    assert estimate.value == em == pytest.approx(200 / 3)
    assert (row.n, row.failed) == (3, 1)


def test_the_f1_that_counts_is_the_protocols() -> None:
    # "yes it is" against "yes": one of three words is right, so 0.5 by SQuAD's rule.
    answers = ("Paris", "red wine", "yes it is")
    (official,) = measured(t.table_1(runs(made("ircot", answers))))
    squad = t.table_1(runs(made("ircot", answers, score="squad")))
    assert official.values[0] == (pytest.approx(200 / 3), *_any(2))
    assert measured(squad)[0].values[0] == (pytest.approx(250 / 3), *_any(2))
    assert table(squad).score == "SQuAD's rule"


def _any(number: int) -> tuple[Any, ...]:
    return (pytest.approx(50, abs=50),) * number


def test_averages_stand_only_where_a_method_has_all_datasets() -> None:
    found = runs(
        made("vanilla-rag", ("Paris", "x", "x")),
        made("vanilla-rag", dataset="musique"),
        made("ircot"),
    )
    averages = [row for row in measured(t.table_1(found)) if row.dataset == "Average"]
    assert [row.method for row in averages] == ["Vanilla RAG"]
    assert values(averages) == [(pytest.approx(200 / 3), pytest.approx(200 / 3))]


def test_the_papers_rows_stand_beneath_for_the_datasets_measured_with_its_lms() -> None:
    found = [row for row in table(t.table_1(runs(made("ircot")))).rows if row.source == "paper"]
    assert {row.dataset for row in found} == {"HotpotQA"}
    qwen = [row for row in found if row.lm == "Qwen2.5-7B-Instruct"]
    assert [(row.method, row.values, row.n) for row in qwen][-1] == (
        "GraphAnchor",
        (66.03, 53.80),
        500,
    )
    assert len(found) == 15


def test_the_papers_average_is_over_the_datasets_shown() -> None:
    both = runs(made("ircot"), made("ircot", dataset="musique"))
    found = [
        r for r in table(t.table_1(both)).rows if (r.source, r.dataset) == ("paper", "Average")
    ]
    assert found[0].values == pytest.approx(((18.05 + 50.93) / 2, (9.80 + 40.40) / 2))


def test_a_dataset_the_paper_has_not_gets_no_row_of_it() -> None:
    assert all(
        r.source == "measured" for r in table(t.table_1(runs(made("ircot", dataset="x")))).rows
    )


def test_the_embedded_lm_is_said_to_be_no_llm() -> None:
    (row,) = measured(t.table_1(runs(made("ircot", lm="ga-dspy/extractive"))))
    assert row.lm == "embedded extractive LM (no LLM)"


def test_a_compiled_program_stands_in_table_1_under_its_own_name() -> None:
    found = measured(t.table_1(runs(made("my-program"), made("ircot"))))
    assert [row.method for row in found] == ["IRCoT", "my-program"]


def test_runs_under_a_token_budget_are_kept_out_of_table_1() -> None:
    only = made("ircot", settings={"token_budget": 8000})
    assert isinstance(t.table_1(runs(only)), t.Missing)


def test_a_mark_is_explained_where_it_is_shown() -> None:
    odd = made("ircot", mark="a")
    noted = runs(made("vanilla-rag"), odd, notes={"a": "hotpotqa: corpus d (not c)", "b": "other"})
    assert [row.mark for row in measured(t.table_1(noted))] == ["", "a"]
    assert table(t.table_1(noted)).notes == ("(a) hotpotqa: corpus d (not c).",)


# Tables 2 to 5


def test_table_2_is_in_the_papers_order_and_needs_an_ablation() -> None:
    names = ("no-graph", "graph-anchor", "text-index", "vanilla-rag", "ircot")
    found = measured(t.table_2(runs(*map(made, names))))
    assert [row.method for row in found] == [
        *("Vanilla RAG", "GraphAnchor w/ Text Index", "GraphAnchor", "w/o Graph")
    ]
    missing = t.table_2(runs(made("graph-anchor"), made("vanilla-rag")))
    assert isinstance(missing, t.Missing) and "ablations" in missing.needs


def test_table_3_counts_where_questions_ended_and_those_that_failed() -> None:
    ended = [result(1, "Paris", steps=1), result(2, "x", steps=4), result(3, None)]
    found = t.table_3(runs(made("graph-anchor", ended, steps=4), made("vanilla-rag")))
    third = pytest.approx(100 / 3)
    assert columns(found) == {
        "Step 1": third, "Step 2": 0.0, "Step 3": 0.0, "Step 4": third, "Failed, %": third
    }  # fmt: skip
    assert len(measured(found)) == 1
    paper = [row.values for row in table(found).rows if row.source == "paper"]
    assert paper[0] == (23.4, 34.6, 4.8, 37.2, None)


def test_table_3_leaves_out_steps_that_a_method_was_not_allowed() -> None:
    ended = [result(1, "Paris", steps=2)]
    shown = columns(t.table_3(runs(made("graph-anchor", ended, steps=2))))
    assert (shown["Step 2"], shown["Step 3"]) == (100.0, None)


def test_table_4_names_every_depth_and_puts_graph_anchor_last() -> None:
    found = t.table_4(runs(made("graph-anchor"), made("vanilla-rag-10", k=10), made("vanilla-rag")))
    assert [row.method for row in measured(found)] == [
        *("Vanilla RAG (top 5)", "Vanilla RAG (top 10)", "GraphAnchor")
    ]
    printed = [row for row in table(found).rows if row.source == "paper"]
    assert [row.method for row in printed][:2] == ["Vanilla RAG (top 5)", "Vanilla RAG (top 10)"]
    assert isinstance(t.table_4(runs(made("vanilla-rag"))), t.Missing)


def usage(calls: int, sent: int, said: int, cached: int = 0, cost: float | None = 0.0) -> Usage:
    return Usage(calls=calls, cached=cached, prompt_tokens=sent, completion_tokens=said, cost=cost)


def spending(cost: float | None = 0.01, cached: int = 0) -> list[Result]:
    both = {"read": usage(2, 300, 30, cached, cost), "answer": usage(1, 100, 10)}
    return [
        result(1, "Paris", usage=both),
        result(2, "x", usage={"answer": usage(1, 100, 10, 0, cost)}),
        result(3, None),
    ]


def test_table_5_has_seconds_over_all_and_tokens_over_those_whose_cost_is_known() -> None:
    found = t.table_5(runs(made("ircot", spending(), seconds=6.0)))
    assert columns(found) == {
        "Seconds": t.Flagged(2.0, ""),
        "Seconds per 100": t.Flagged(200.0, ""),
        "LM calls": 2.0,
        "From cache, %": 0.0,
        "Prompt tokens": 250.0,
        "Completion tokens": 25.0,
        "US $ per 100": pytest.approx(1.0),
    }
    assert found.rows[0].failed == 1


def test_seconds_of_a_run_with_cached_calls_are_flagged() -> None:
    found = t.table_5(runs(made("ircot", spending(cached=1), seconds=6.0)))
    assert columns(found)["Seconds"] == t.Flagged(2.0, "†")
    assert columns(found)["From cache, %"] == 25.0
    assert any(note.startswith("†") for note in found.notes)


def test_an_unknown_price_is_unpriced_not_zero() -> None:
    found = t.table_5(runs(made("ircot", spending(cost=None))))
    assert columns(found)["US $ per 100"] == "unpriced"


def test_the_papers_seconds_stand_in_table_5_for_one_question_and_for_100() -> None:
    found = [row for row in t.table_5(runs(made("ircot"))).rows if row.source == "paper"]
    assert values(found)[0][:3] == (pytest.approx(11.0453), 1104.53, None)
    assert found[0].n == 100
