"""The tables of a report, against numbers worked out by hand from two or three questions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ga_dspy.arena import Run, Runs
from ga_dspy.arena import tables as t
from ga_dspy.arena.comparisons import contests, differences, significance
from ga_dspy.arena.report import tables_of
from ga_dspy.arena.table import Table, markdown
from ga_dspy.eval import Protocol, Report, Result
from ga_dspy.eval.result import Judged, StepTrace
from ga_dspy.programs import Usage

GOLD = {"q1": "Paris", "q2": "red wine", "q3": "yes"}
RIGHT = ("Paris", "red wine", "yes")
BASE = Protocol.of([], dataset="hotpotqa", source="made", program="p", lm="lm-a", corpus="c")


def result(number: int, answer: str | None, **more: Any) -> Result:
    """Question 1, 2 or 3; it failed where there is no answer."""
    name = f"q{number}"
    error = "ValueError: broke" if answer is None else None
    usual = {"type": "", "gold": (GOLD[name],), "gold_titles": (), "steps": error is None or None}
    asked = {**usual, "id": name, "question": f"{name}?", "answer": answer, "error": error}
    return Result(**{**asked, **more})


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
    return Runs(found, notes or {}, frozenset(run.dataset for run in found))


def rows(table: Table, source: str = "measured") -> list[dict[str, Any]]:
    return [row for row in table.frame.to_dict("records") if row["source"] == source]


def columns(table: Table, number: int = 0) -> dict[str, Any]:
    """A row's own columns, without the ends of intervals."""
    return {name: rows(table)[number][name] for name in table.columns}


def values(table: Table, source: str = "measured") -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in table.columns) for row in rows(table, source)]


def methods(table: Table, source: str = "measured") -> list[str]:
    return [row["method"] for row in rows(table, source)]


# Table 1


def test_table_1_has_f1_with_its_interval_and_em_of_each_method() -> None:
    # F1 of "wine" against "red wine" is 2/3; the mean of 1, 2/3 and 0 is 55.6.
    found = t.table_1(runs(made("ircot", ("Paris", "wine", "no")), made("vanilla-rag")))
    assert methods(found) == ["Vanilla RAG", "IRCoT"]
    row = rows(found)[1]
    assert row["F1"] == pytest.approx(100 * (1 + 2 / 3) / 3)
    assert 0 <= row["F1 low"] < row["F1"] < row["F1 high"] <= 100
    assert row["EM"] == pytest.approx(100 / 3)


def test_a_failed_question_lowers_the_mean_and_is_counted_in_the_row() -> None:
    (row,) = rows(t.table_1(runs(made("ircot", ("Paris", None, "yes")))))
    assert row["F1"] == row["EM"] == pytest.approx(200 / 3)
    assert (row["n"], row["failed"]) == (3, 1)


def test_the_f1_that_counts_is_the_protocols() -> None:
    # "yes it is" against "yes": one of three words is right, so 0.5 by SQuAD's rule.
    answers = ("Paris", "red wine", "yes it is")
    official = t.table_1(runs(made("ircot", answers)))
    squad = t.table_1(runs(made("ircot", answers, score="squad")))
    assert columns(official)["F1"] == pytest.approx(200 / 3)
    assert columns(squad)["F1"] == pytest.approx(250 / 3)
    assert squad.score == "SQuAD's rule"


def test_averages_stand_only_where_a_method_has_all_datasets() -> None:
    found = runs(
        made("vanilla-rag", ("Paris", "x", "x")),
        made("vanilla-rag", dataset="musique"),
        made("ircot"),
    )
    averages = [row for row in rows(t.table_1(found)) if row["dataset"] == "Average"]
    assert [(row["method"], row["F1"], row["EM"]) for row in averages] == [
        ("Vanilla RAG", pytest.approx(200 / 3), pytest.approx(200 / 3))
    ]


def test_the_papers_rows_stand_beneath_for_the_datasets_measured_with_its_lms() -> None:
    found = rows(t.table_1(runs(made("ircot"))), "paper")
    assert {row["dataset"] for row in found} == {"HotpotQA"}
    qwen = [row for row in found if row["LM"] == "Qwen2.5-7B-Instruct"][-1]
    assert (qwen["method"], qwen["F1"], qwen["EM"], qwen["n"]) == ("GraphAnchor", 66.03, 53.80, 500)
    assert len(found) == 15


def test_the_papers_average_is_over_the_datasets_shown() -> None:
    both = t.table_1(runs(made("ircot"), made("ircot", dataset="musique")))
    average = next(row for row in rows(both, "paper") if row["dataset"] == "Average")
    expected = ((18.05 + 50.93) / 2, (9.80 + 40.40) / 2)
    assert (average["F1"], average["EM"]) == pytest.approx(expected)


def test_a_dataset_the_paper_has_not_gets_no_row_of_it() -> None:
    assert not rows(t.table_1(runs(made("ircot", dataset="x"))), "paper")


def test_the_embedded_lm_is_said_to_be_no_llm() -> None:
    (row,) = rows(t.table_1(runs(made("ircot", lm="ga-dspy/extractive"))))
    assert row["LM"] == "embedded extractive LM (no LLM)"


def test_a_compiled_program_stands_in_table_1_under_its_own_name() -> None:
    assert methods(t.table_1(runs(made("my-program"), made("ircot")))) == ["IRCoT", "my-program"]


def test_runs_under_a_token_budget_are_kept_out_of_table_1() -> None:
    only = made("ircot", settings={"token_budget": 8000})
    assert not t.table_1(runs(only)).rows


def test_a_mark_is_explained_where_it_is_shown() -> None:
    odd = made("ircot", mark="a")
    noted = runs(made("vanilla-rag"), odd, notes={"a": "hotpotqa: corpus d (not c)", "b": "other"})
    assert [row["mark"] for row in rows(t.table_1(noted))] == ["", "a"]
    assert t.table_1(noted).notes == ("(a) hotpotqa: corpus d (not c).",)


# Tables 2 to 5


def test_table_2_is_in_the_papers_order_and_needs_an_ablation() -> None:
    names = ("no-graph", "graph-anchor", "text-index", "vanilla-rag", "ircot")
    assert methods(t.table_2(runs(*map(made, names)))) == [
        *("Vanilla RAG", "GraphAnchor w/ Text Index", "GraphAnchor", "w/o Graph")
    ]
    missing = t.table_2(runs(made("graph-anchor"), made("vanilla-rag")))
    assert not missing.rows and "ablations" in missing.needs


def test_table_3_counts_where_questions_ended_and_those_that_failed() -> None:
    ended = [result(1, "Paris", steps=1), result(2, "x", steps=4), result(3, None)]
    found = t.table_3(runs(made("graph-anchor", ended, steps=4), made("vanilla-rag")))
    third = pytest.approx(100 / 3)
    assert columns(found) == {
        "Step 1": third, "Step 2": 0.0, "Step 3": 0.0, "Step 4": third, "Failed, %": third
    }  # fmt: skip
    assert len(rows(found)) == 1
    assert values(found, "paper")[0] == (23.4, 34.6, 4.8, 37.2, None)


def test_table_3_leaves_out_steps_that_a_method_was_not_allowed() -> None:
    ended = [result(1, "Paris", steps=2)]
    shown = columns(t.table_3(runs(made("graph-anchor", ended, steps=2))))
    assert (shown["Step 2"], shown["Step 3"]) == (100.0, None)


def test_table_4_names_every_depth_and_puts_graph_anchor_last() -> None:
    found = t.table_4(runs(made("graph-anchor"), made("vanilla-rag-10", k=10), made("vanilla-rag")))
    assert methods(found) == ["Vanilla RAG (top 5)", "Vanilla RAG (top 10)", "GraphAnchor"]
    assert methods(found, "paper")[:2] == ["Vanilla RAG (top 5)", "Vanilla RAG (top 10)"]
    assert not t.table_4(runs(made("vanilla-rag"))).rows


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
        "Seconds": 2.0,
        "Seconds per 100": 200.0,
        "LM calls": 2.0,
        "From cache, %": 0.0,
        "Prompt tokens": 250.0,
        "Completion tokens": 25.0,
        "US $ per 100": pytest.approx(1.0),
    }
    assert rows(found)[0]["failed"] == 1


def test_seconds_of_a_run_with_cached_calls_are_flagged() -> None:
    found = t.table_5(runs(made("ircot", spending(cached=1), seconds=6.0)))
    assert columns(found)["From cache, %"] == 25.0
    assert "2.0 †" in markdown(found) and "200.0 †" in markdown(found)
    assert any(note.startswith("†") for note in found.notes)
    assert "†" not in markdown(t.table_5(runs(made("ircot", spending(), seconds=6.0))))


def test_an_unknown_price_is_unpriced_not_zero() -> None:
    found = t.table_5(runs(made("ircot", spending(cost=None))))
    assert columns(found)["US $ per 100"] == "unpriced"


def test_the_papers_seconds_stand_in_table_5_for_one_question_and_for_100() -> None:
    found = t.table_5(runs(made("ircot")))
    assert values(found, "paper")[0][:3] == (pytest.approx(11.0453), 1104.53, None)
    assert rows(found, "paper")[0]["n"] == 100


# Beyond the paper's


def step(judgement: str = "", titles: tuple[str, ...] = (), hit: bool | None = None) -> StepTrace:
    return StepTrace(query="x", retrieved=2, titles=titles, judgement=judgement, hit=hit)


def test_the_ledger_has_a_row_a_method_and_step() -> None:
    assert values(t.ledger(runs(made("ircot", spending())))) == [
        ("read", 1.0, 150.0, 15.0, pytest.approx(60.0)),
        ("answer", 1.0, 100.0, 10.0, pytest.approx(40.0)),
    ]


def test_evidence_is_blank_where_a_method_makes_no_graph_and_zero_where_it_found_nothing() -> None:
    gold = {"gold_triples": (("A", "r", "B"), ("B", "r", "C")), "gold_titles": ("A", "B")}
    found_one = result(1, "Paris", triples=(("A", "x", "B"), ("X", "x", "Y")), **gold)
    graph = made("graph-anchor", [found_one, result(2, None, **gold)], settings={"index": "graph"})
    nothing = made("text-index", [result(1, "Paris", **gold)], settings={"index": "text"})
    shown = t.evidence(runs(graph, nothing))
    assert columns(shown)["Graph recall"] == columns(shown)["Graph precision"] == 25.0
    assert columns(shown)["Chain recall"] == 0.0
    assert columns(shown, 1)["Graph recall"] is columns(shown, 1)["Chain recall"] is None


def test_answers_that_the_graph_chains_are_counted_beside_those_a_passage_carries() -> None:
    said = ("chained", "quoted", False)
    results = [result(n, "x", supported=how) for n, how in enumerate(said, 1)]
    shown = columns(t.evidence(runs(made("graph-anchor", results))))
    assert (shown["Supported"], shown["Chained"]) == (66.67, 33.33)


def test_a_hit_counts_at_the_last_step_without_yes_no_questions() -> None:
    results = [
        result(1, "x", trace=(step(hit=False), step(hit=True))),
        result(2, None),
        result(3, "yes", trace=(step(hit=None),)),
    ]
    assert columns(t.evidence(runs(made("ircot", results))))["Hit"] == 50.0


def test_a_method_that_reads_nothing_has_no_retrieval_scores() -> None:
    assert not t.evidence(runs(made("closed-book", k=None))).rows


def test_sufficiency_counts_steps_and_questions() -> None:
    gold = {"gold_titles": ("A", "B")}
    early = result(1, "x", trace=(step("sufficient", ("A",)),), **gold)
    long = result(
        2,
        "x",
        trace=(step("insufficient", ("A", "B")), step("sufficient", ("C",))),
        **gold,
    )
    shown = columns(t.sufficiency(runs(made("graph-anchor", [early, long, result(3, None)]))))
    assert shown == {
        "Precision": 50.0, "Recall": 50.0, "F1": 50.0, "Accuracy": pytest.approx(100 / 3),
        "Stopped early": 50.0, "Searched long": 50.0, "Wasted steps": 0.5,
        "Judged": 2, "Left out": 1,
    }  # fmt: skip
    assert not t.sufficiency(runs(made("vanilla-rag"))).rows


def test_the_scores_of_one_answer_stand_side_by_side() -> None:
    shown = columns(t.side_by_side(runs(made("ircot", ("in Paris", "wine", "yes it is")))))
    # "in Paris": F1 2/3, contained. "wine": F1 2/3. "yes it is": official 0, SQuAD 1/2, contained.
    assert shown == {
        "F1, official": pytest.approx(400 / 9),
        "F1, SQuAD": pytest.approx(100 * (2 / 3 + 2 / 3 + 0.5) / 3),
        "EM": 0.0,
        "Acc": pytest.approx(200 / 3),
    }


def many(method: str, right: int, **protocol: Any) -> Run:
    """Ten questions, the first so many of them right."""
    rows = [
        result(1, "Paris" if i < right else "x", id=f"m{i}", question=f"{i}?") for i in range(10)
    ]
    return made(method, rows, **protocol)


def test_significance_is_corrected_by_holm_over_the_methods_of_a_dataset_and_lm() -> None:
    found = significance(
        runs(many("vanilla-rag", 0), many("ircot", 10), many("search-r1", 6), many("deep-note", 0)),
        "vanilla-rag",
    )
    # Exact, two-sided: 10 differing pairs 2/2^10, 6 of them 2/2^6; Holm times 3, 2 and 1.
    assert values(found) == [
        (100.0, pytest.approx(2 / 1024), pytest.approx(6 / 1024), 10),
        (pytest.approx(60.0), pytest.approx(2 / 64), pytest.approx(4 / 64), 10),
        (0.0, 1.0, 1.0, 10),
    ]
    assert any("3 comparisons in 1 family." in note for note in found.notes)


def test_each_dataset_and_lm_is_a_family_of_its_own() -> None:
    one = [many("vanilla-rag", 0), many("ircot", 10)]
    other = [many("vanilla-rag", 0, lm="b"), many("ircot", 10, lm="b")]
    found = significance(runs(*one, *other), "vanilla-rag")
    assert [row["p"] for row in rows(found)] == [row["p, Holm"] for row in rows(found)]
    assert any("2 comparisons in 2 families." in note for note in found.notes)


def test_points_of_figure_3_do_not_swell_a_family() -> None:
    found = runs(many("vanilla-rag", 0), many("ircot", 10), many("graph-anchor-2", 10))
    assert methods(significance(found, "vanilla-rag")) == ["IRCoT"]


def test_runs_that_share_no_question_or_score_are_not_tested() -> None:
    strange = made("ircot", [result(1, "Paris", id="z")])
    squad = many("search-r1", 10, score="squad")
    found = significance(runs(many("vanilla-rag", 0), strange, squad), "vanilla-rag")
    assert values(found) == [(None, None, None, 0)] * 2
    assert found.notes[-1].startswith("–:")


def test_significance_without_the_baseline_says_what_it_needs() -> None:
    missing = significance(runs(made("ircot"), made("search-r1")), "graph-anchor")
    assert not missing.rows and "graph-anchor" in missing.needs


def test_knowledge_use_splits_by_what_was_read_and_by_what_was_known() -> None:
    read = [
        result(1, "Paris", trace=(step(hit=True),)),
        result(2, None),
        result(3, "yes", trace=(step(hit=None),)),
    ]
    closed = made("closed-book", ("x", "some red wine", "yes"), k=None)
    shown = columns(t.knowledge_use(runs(made("ircot", read), closed)))
    assert tuple(shown.values()) == (100.0, 1, 0.0, 1, 50.0, 2)


def test_what_was_known_is_blank_without_a_closed_book_run_of_that_lm() -> None:
    other = made("closed-book", k=None, lm="b")
    found = t.knowledge_use(runs(made("ircot"), other))
    assert tuple(columns(found).values())[-2:] == (None, None)


def test_protocols_tell_only_settings_that_differ_from_the_default() -> None:
    same = {"as_published": False, "k": 5, "max_steps": 4}
    settings = {"index": "text", "token_budget": 8000, **same}
    text = made("text-index", settings=settings, steps=4)
    shown = columns(t.protocols(runs(text)))
    assert shown["Settings"] == "index=text, token_budget=8000"
    assert (shown["Protocol"], shown["Steps"]) == (text.report.protocol.hash, "4")


def test_every_failed_question_of_every_run_is_listed() -> None:
    found = t.failures(runs(made("ircot", (None, "x", None)), made("search-r1", (None,))))
    assert list(zip(methods(found), *zip(*values(found), strict=True), strict=True)) == [
        ("IRCoT", "q1", "question", "ValueError: broke"),
        ("IRCoT", "q3", "question", "ValueError: broke"),
        ("Search-R1", "q1", "question", "ValueError: broke"),
    ]


def test_every_table_is_there_or_says_what_would_fill_it() -> None:
    found = tables_of(runs(made("closed-book", k=None)))
    names = [table.name for table in found]
    assert len(set(names)) == len(names) == 16
    assert all(table.needs for table in found if not table.rows)
    assert [table.name for table in found if table.rows] == [
        *("table_1", "table_5", "scores", "protocols")
    ]


def test_the_static_graph_stands_beside_the_evolving_one_with_its_parts_timed() -> None:
    seconds = {"linking": 0.002, "lm": 0.5}
    cited = result(1, "yes", timing=seconds, cited=(2, 1), tokens=300)
    static = made("graph-rag", [cited, result(2, "yes", tokens=100)])
    found = t.graphrag(runs(static, made("vanilla-rag"), made("ircot")))
    assert methods(found) == ["Vanilla RAG", "GraphRAG (local)"]
    shown = columns(found, 1)
    assert (shown["Faithful"], shown["Cited edges"], shown["Tokens"]) == (50.0, 2, 200.0)
    assert (shown["linking, ms"], shown["LM, ms"], shown["ranking, ms"]) == (2.0, 500.0, None)
    assert not t.graphrag(runs(made("graph-anchor"))).rows


# By step


def test_what_was_found_is_carried_forward_and_overlap_is_of_those_who_made_the_step() -> None:
    def step(hit: bool | None, entities: int, new: int = 2) -> StepTrace:
        titles = tuple(map(str, range(new)))
        return StepTrace(query="?", hit=hit, entities=entities, relations=2 * entities,
                         titles=titles, retrieved=2)  # fmt: skip

    one = result(1, "Paris", trace=(step(False, 2),))
    two = result(2, "red", trace=(step(False, 4), step(True, 6, new=1)))
    failed = result(3, None)
    table = t.by_step_table(runs(made("graph-anchor", (one, two, failed), steps=4)))
    assert [columns(table, n) for n in (0, 1)] == [
        {"Step": "1", "Reached": 2, "Hit": 0.0, "Overlap": 0.0, "Entities": 2.0, "Triples": 4.0},
        {"Step": "2", "Reached": 1, "Hit": 50.0, "Overlap": 50.0, "Entities": pytest.approx(8 / 3),
         "Triples": pytest.approx(16 / 3)},
    ]  # fmt: skip


# The verdict


def scored(method: str, right: int, n: int = 40, tokens: int = 100, **protocol: Any) -> Run:
    """A run over n questions, the first of them answered right."""
    answers = [
        Result(id=f"m{i}", question=f"{i}?", type="", gold=("Paris",), gold_titles=(),
               answer="Paris" if i < right else "Rome", tokens=tokens)
        for i in range(n)
    ]  # fmt: skip
    return made(method, answers, **protocol)


def test_the_verdict_names_the_best_method_by_how_much_how_sure_and_at_which_cost() -> None:
    found = runs(
        scored("vanilla-rag", 10), scored("ircot", 12), scored("graph-anchor", 36, tokens=350)
    )
    (contest,) = contests(found, "vanilla-rag")
    assert (contest.best.method, contest.other.method) == ("graph-anchor", "vanilla-rag")
    assert contest.test.difference == pytest.approx(65.0) and contest.p < 0.01
    assert str(contest) == (
        "HotpotQA, 40 questions, lm-a: **GraphAnchor is best**. GraphAnchor has the highest score: "
        "F1 90.0, 65.0 points above Vanilla RAG (p <0.001 after correction for 2 comparisons), at "
        "3.5 times its tokens (350 against 100 a question)."
    )


def test_where_chance_would_do_no_difference_is_shown() -> None:
    (contest,) = contests(
        runs(scored("vanilla-rag", 21), scored("graph-anchor", 20)), "vanilla-rag"
    )
    assert (contest.best.method, contest.other.method) == ("vanilla-rag", "graph-anchor")
    assert "lm-a: **no difference shown**. Vanilla RAG has the highest" in str(contest)


def test_where_two_score_the_same_neither_is_called_higher() -> None:
    found = runs(scored("vanilla-rag", 20), scored("graph-anchor", 20))
    (contest,) = contests(found, "vanilla-rag")
    assert "GraphAnchor and Vanilla RAG have the same score: F1 50.0 (p 1.000" in str(contest)


def test_without_the_baseline_the_best_is_held_against_the_runner_up() -> None:
    found = runs(scored("ircot", 5), scored("deep-note", 20), scored("graph-anchor", 36))
    (contest,) = contests(found, "vanilla-rag")
    assert (contest.best.method, contest.other.method) == ("graph-anchor", "deep-note")
    assert not contests(runs(scored("ircot", 5)), "vanilla-rag")


def test_a_judge_has_its_say_in_the_verdict() -> None:
    judged = [
        run.report._replace(
            results=tuple(
                r.model_copy(update={"judged": Judged(right=n < right)})
                for n, r in enumerate(run.report.results)
            )
        )
        for run, right in ((scored("vanilla-rag", 1, judge="j"), 10),
                           (scored("graph-anchor", 9, judge="j"), 20))
    ]  # fmt: skip
    (contest,) = contests(runs(*(Run(one, Path("x")) for one in judged)), "vanilla-rag")
    assert str(contest).endswith("; judged right: 50.0 % against 25.0 %.")


def test_the_questions_that_differ_most_come_first() -> None:
    found = runs(made("vanilla-rag", ("Rome", "wine", "yes")), made("graph-anchor"))
    table = differences(found, "vanilla-rag")
    assert [(row["Question"], row["Answer"], row["Its answer"]) for row in rows(table)] == [
        ("q1?", "Paris", "Rome"), ("q2?", "red wine", "wine"),
    ]  # fmt: skip
    assert "2 of 3 questions differ" in table.notes[0]
    assert "| q1?" in markdown(table)
