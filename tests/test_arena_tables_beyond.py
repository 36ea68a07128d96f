"""The tables beyond the paper's: evidence, tests, splits, ledgers, protocols, by hand."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ga_dspy.arena import Run, Runs
from ga_dspy.arena import tables as t
from ga_dspy.eval import Protocol, Report, Result
from ga_dspy.eval.trace import StepTrace
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


def step(judgement: str = "", titles: tuple[str, ...] = (), hit: bool | None = None) -> StepTrace:
    return StepTrace(query="x", retrieved=2, titles=titles, judgement=judgement, hit=hit)


def usage(calls: int, sent: int, said: int, cached: int = 0, cost: float | None = 0.0) -> Usage:
    return Usage(calls=calls, cached=cached, prompt_tokens=sent, completion_tokens=said, cost=cost)


def spending(cost: float | None = 0.01, cached: int = 0) -> list[Result]:
    both = {"read": usage(2, 300, 30, cached, cost), "answer": usage(1, 100, 10)}
    return [
        result(1, "Paris", usage=both),
        result(2, "x", usage={"answer": usage(1, 100, 10, 0, cost)}),
        result(3, None),
    ]


def test_the_ledger_has_a_row_a_method_and_step() -> None:
    found = table(t.ledger(runs(made("ircot", spending()))))
    assert values(found.rows) == [
        ("read", 1.0, 150.0, 15.0, pytest.approx(60.0)),
        ("answer", 1.0, 100.0, 10.0, pytest.approx(40.0)),
    ]


def test_equal_tokens_stand_beside_the_same_method_at_equal_k() -> None:
    budget = made("ircot", spending(), settings={"token_budget": 8000})
    found = t.equal_tokens(runs(budget, made("ircot"), made("search-r1", spending())))
    shown = columns(found)
    assert (shown["Budget"], shown["Tokens"]) == (8000, 275.0)
    assert shown["EM"] == pytest.approx(100 / 3)
    assert shown["EM, equal k"] == 100.0
    assert [row.method for row in table(found).rows] == ["IRCoT"]


def test_equal_tokens_are_left_out_where_no_run_has_a_budget() -> None:
    missing = t.equal_tokens(runs(made("ircot")))
    assert isinstance(missing, t.Missing) and "--tokens" in missing.needs


def test_evidence_is_blank_where_a_method_makes_no_graph_and_zero_where_it_found_nothing() -> None:
    gold = {"gold_triples": (("A", "r", "B"), ("B", "r", "C")), "gold_titles": ("A", "B")}
    found_one = result(1, "Paris", triples=(("A", "x", "B"), ("X", "x", "Y")), **gold)
    graph = made("graph-anchor", [found_one, result(2, None, **gold)], settings={"index": "graph"})
    nothing = made("text-index", [result(1, "Paris", **gold)], settings={"index": "text"})
    shown = t.evidence(runs(graph, nothing))
    assert columns(shown)["Graph recall"] == columns(shown)["Graph precision"] == 25.0
    assert columns(shown)["Chain recall"] == 0.0
    assert columns(shown, 1)["Graph recall"] is columns(shown, 1)["Chain recall"] is None


def test_a_hit_counts_at_the_last_step_without_yes_no_questions() -> None:
    results = [
        result(1, "x", trace=(step(hit=False), step(hit=True))),
        result(2, None),
        result(3, "yes", trace=(step(hit=None),)),
    ]
    assert columns(t.evidence(runs(made("ircot", results))))["Hit"] == 50.0


def test_a_method_that_reads_nothing_has_no_retrieval_scores() -> None:
    assert isinstance(t.evidence(runs(made("closed-book", k=None))), t.Missing)


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
    assert isinstance(t.sufficiency(runs(made("vanilla-rag"))), t.Missing)


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
    found = t.significance(
        runs(many("vanilla-rag", 0), many("ircot", 10), many("search-r1", 6), many("deep-note", 0)),
        "vanilla-rag",
    )
    # Exact, two-sided: 10 differing pairs 2/2^10, 6 of them 2/2^6; Holm times 3, 2 and 1.
    assert [row.values for row in table(found).rows] == [
        (100.0, pytest.approx(2 / 1024), pytest.approx(6 / 1024), 10),
        (pytest.approx(60.0), pytest.approx(2 / 64), pytest.approx(4 / 64), 10),
        (0.0, 1.0, 1.0, 10),
    ]
    assert any("3 comparisons in 1 family." in note for note in table(found).notes)


def test_each_dataset_and_lm_is_a_family_of_its_own() -> None:
    one = [many("vanilla-rag", 0), many("ircot", 10)]
    other = [many("vanilla-rag", 0, lm="b"), many("ircot", 10, lm="b")]
    found = table(t.significance(runs(*one, *other), "vanilla-rag"))
    assert [row.values[1] for row in found.rows] == [row.values[2] for row in found.rows]
    assert any("2 comparisons in 2 families." in note for note in found.notes)


def test_points_of_figure_3_do_not_swell_a_family() -> None:
    found = runs(many("vanilla-rag", 0), many("ircot", 10), many("graph-anchor-2", 10))
    assert [row.method for row in table(t.significance(found, "vanilla-rag")).rows] == ["IRCoT"]


def test_runs_that_share_no_question_or_score_are_not_tested() -> None:
    strange = made("ircot", [result(1, "Paris", id="z")])
    squad = many("search-r1", 10, score="squad")
    found = table(t.significance(runs(many("vanilla-rag", 0), strange, squad), "vanilla-rag"))
    assert [row.values for row in found.rows] == [(None, None, None, 0)] * 2
    assert found.notes[-1].startswith("–:")


def test_significance_without_the_baseline_says_what_it_needs() -> None:
    missing = t.significance(runs(made("ircot"), made("search-r1")), "graph-anchor")
    assert isinstance(missing, t.Missing) and "graph-anchor" in missing.needs


def test_internal_knowledge_pairs_a_run_with_its_renamed_copy_by_id() -> None:
    original = many("graph-anchor", 10, sha256="f1")
    renamed = made(
        "graph-anchor",
        [
            result(1, "Paris" if i < 4 else None, id=f"m{i}", question=f"renamed {i}?")
            for i in range(8)
        ],
        renamed_from="f1",
    )
    closed = many("closed-book", 3, sha256="f1", k=None)
    shown = columns(t.internal_knowledge(runs(original, renamed, closed)))
    assert shown["F1, original"] == (100.0, 100.0, 100.0)
    assert shown["F1, renamed"][0] == 50.0
    # Over the eight that both asked: 100 less 50, four pairs differing, 2 of 2^4 as extreme.
    assert (shown["Difference"], shown["p"], shown["Shared"]) == (50.0, pytest.approx(0.125), 8)
    assert (shown["Failed, renamed"], shown["F1, closed book"]) == (4, 30.0)


def test_a_copy_of_another_file_or_lm_is_no_pair() -> None:
    found = runs(
        made("ircot", sha256="f1"),
        made("ircot", renamed_from="f2"),
        made("ircot", renamed_from="f1", lm="b"),
    )
    assert isinstance(t.internal_knowledge(found), t.Missing)


def test_renamed_copies_have_a_table_1_of_their_own() -> None:
    found = runs(made("ircot", sha256="f1"), made("ircot", RIGHT[:1], renamed_from="f1"))
    assert [row.dataset for row in measured(t.table_1(found))] == ["HotpotQA"]
    assert [r.dataset for r in measured(t.table_1_renamed(found))] == ["HotpotQA (renamed)"]


def test_knowledge_use_splits_by_what_was_read_and_by_what_was_known() -> None:
    read = [
        result(1, "Paris", trace=(step(hit=True),)),
        result(2, None),
        result(3, "yes", trace=(step(hit=None),)),
    ]
    closed = made("closed-book", ("x", "some red wine", "yes"), k=None)
    found = t.splits(made("ircot", read), runs(closed))
    assert found == (t.Split(100.0, 1), t.Split(0.0, 1), t.Split(50.0, 2))
    shown = columns(t.knowledge_use(runs(made("ircot", read), closed)))
    assert tuple(shown.values()) == (100.0, 1, 0.0, 1, 50.0, 2)


def test_what_was_known_is_blank_without_a_closed_book_run_of_that_lm() -> None:
    other = made("closed-book", k=None, lm="b")
    found = t.knowledge_use(runs(made("ircot"), other))
    assert tuple(columns(found).values())[-2:] == (None, None)


def test_protocols_tell_only_settings_that_differ_from_the_default() -> None:
    settings = {"index": "text", "fused": True, "k": 5, "token_budget": 8000, "max_steps": 4}
    text = made("text-index", settings=settings, steps=4)
    shown = columns(t.protocols(runs(text)))
    assert shown["Settings"] == "index=text, token_budget=8000"
    assert (shown["Protocol"], shown["Steps"]) == (text.report.protocol.hash, "4")


def test_every_failed_question_of_every_run_is_listed() -> None:
    found = table(t.failures(runs(made("ircot", (None, "x", None)), made("search-r1", (None,)))))
    assert [(row.method, *row.values) for row in found.rows] == [
        ("IRCoT", "q1", "ValueError: broke"),
        ("IRCoT", "q3", "ValueError: broke"),
        ("Search-R1", "q1", "ValueError: broke"),
    ]


def test_every_table_is_there_or_says_what_would_fill_it() -> None:
    found = t.tables(runs(made("closed-book", k=None)))
    names = [table.name for table in found]
    assert len(set(names)) == len(names) == 17
    assert all(table.needs for table in found if isinstance(table, t.Missing))
    assert [x.name for x in found if isinstance(x, t.Table)] == [
        *("table_1", "table_5", "scores", "protocols")
    ]


def test_the_static_graph_stands_beside_the_evolving_one_with_its_parts_timed() -> None:
    seconds = {"linking": 0.002, "lm": 0.5}
    cited = result(1, "yes", timing=seconds, cited=(2, 1), tokens=300)
    static = made("graph-rag", [cited, result(2, "yes", tokens=100)])
    shown = table(t.graphrag(runs(static, made("vanilla-rag"), made("ircot"))))
    assert [row.method for row in shown.rows] == ["Vanilla RAG", "GraphRAG (local)"]
    told = dict(zip((column.name for column in shown.columns), shown.rows[1].values, strict=True))
    assert (told["Faithful"], told["Cited edges"], told["Tokens"]) == (50.0, 2, 200.0)
    assert (told["linking, ms"], told["LM, ms"], told["ranking, ms"]) == (2.0, 500.0, None)
    assert isinstance(t.graphrag(runs(made("graph-anchor"))), t.Missing)
