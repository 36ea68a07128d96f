"""Reports: comparisons and tables against numbers worked out by hand, and the files."""

from __future__ import annotations

import csv
import json
import re
import sys
from collections.abc import Sequence
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt

from ga_dspy.errors import InputError, MissingExtra
from ga_dspy.eval import Protocol, Report, Result
from ga_dspy.eval.comparison import (
    Run,
    arrange,
    escaped,
    failure_table,
    markdown,
    run_table,
    verdicts,
    write_report,
)
from ga_dspy.eval.result import Judged
from ga_dspy.passage import Passage
from ga_dspy.programs import Usage

GOLD = {"q1": "Paris", "q2": "red wine", "q3": "yes"}
RIGHT = ("Paris", "red wine", "yes")
BASE = Protocol.of([], dataset="hotpotqa", source="made", program="p", lm="lm-a", corpus="c")


def result(number: int, answer: str | None, **more: Any) -> Result:
    """The result of question 1, 2 or 3; without an answer, it failed."""
    name = f"q{number}"
    error = "ValueError: a | in *the* endpoint\nand more" if answer is None else None
    usual = {"type": "", "gold": (GOLD[name],), "gold_titles": ()}
    asked = {**usual, "id": name, "question": f"{name}?", "answer": answer, "error": error}
    return Result(**{**asked, **more})


def made(
    method: str,
    answers: Sequence[str | None] | Sequence[Result] = RIGHT,
    *,
    seconds: float = 0.0,
    **protocol: Any,
) -> Report:
    given = [
        answer if isinstance(answer, Result) else result(number, answer)
        for number, answer in enumerate(answers, start=1)
    ]
    results = tuple(one.model_copy(update={"seconds": seconds / len(given)}) for one in given)
    changes = {"program": method, "n": len(results), "k": 5, **protocol}
    return Report(BASE.model_copy(update=changes), results)


def many(method: str, right: int, n: int = 40, tokens: int = 100, **protocol: Any) -> Report:
    """A run over n questions, the first of them answered correctly."""
    answers = [
        Result(id=f"m{i}", question=f"{i}?", type="", gold=("Paris",), gold_titles=(),
               answer="Paris" if i < right else "Rome", tokens=tokens)
        for i in range(n)
    ]  # fmt: skip
    return made(method, answers, **protocol)


def rows(*found: Report, baseline: str = "vanilla-rag") -> list[dict[str, Any]]:
    table = run_table(arrange(found), baseline)
    return table.to_dict("records")  # type: ignore[no-any-return]


def compared(*found: Report, baseline: str = "vanilla-rag") -> list[dict[str, Any]]:
    """The rows that were compared with the baseline, the best first."""
    with_test = [row for row in rows(*found, baseline=baseline) if row["Baseline"]]
    return sorted(with_test, key=lambda row: -row["F1"])


def told(*found: Report) -> list[str]:
    return verdicts(run_table(arrange(found)))


def rendered(text: str) -> str:
    return str(MarkdownIt("commonmark").enable("table").render(text))


# The table of runs


def test_a_run_has_f1_with_its_interval_and_em() -> None:
    # F1 of "wine" against "red wine" is 2/3; the mean of 1, 2/3 and 0 is 55.6.
    first, second = rows(made("ircot", ("Paris", "wine", "no")), made("vanilla-rag"))
    assert (first["Method"], second["Method"]) == ("Vanilla RAG", "IRCoT")
    assert second["F1"] == pytest.approx(100 * (1 + 2 / 3) / 3)
    assert 0 <= second["F1 low"] < second["F1"] < second["F1 high"] <= 100
    assert second["EM"] == pytest.approx(100 / 3)


def test_a_failed_question_lowers_the_mean_and_is_counted_in_the_row() -> None:
    (row,) = rows(made("ircot", ("Paris", None, "yes")))
    assert row["F1"] == row["EM"] == pytest.approx(200 / 3)
    assert (row["n"], row["Failed"]) == (3, 1)


def test_the_protocol_decides_which_f1_is_shown() -> None:
    # "yes it is" against "yes": one of three words is right, so 0.5 by SQuAD's rule.
    answers = ("Paris", "red wine", "yes it is")
    (official,), (squad,) = (
        rows(made("ircot", answers)),
        rows(made("ircot", answers, score="squad")),
    )
    assert (official["F1"], official["f1_official"]) == pytest.approx((200 / 3, 200 / 3))
    assert (squad["F1"], squad["f1_squad"]) == pytest.approx((250 / 3, 250 / 3))


def test_the_embedded_lm_is_labelled_as_not_an_llm() -> None:
    (row,) = rows(made("ircot", lm="ga-dspy/extractive"))
    assert row["Group"] == "HotpotQA, embedded extractive LM (no LLM)"


def test_methods_are_in_the_papers_order_and_compiled_programs_have_their_own_names() -> None:
    names = ("my-program", "no-graph", "graph-anchor", "closed-book", "vanilla-rag-10", "ircot")
    labels = ["No retrieval", "IRCoT", "GraphAnchor", "w/o Graph", "Vanilla RAG (top 10)"]
    assert [row["Method"] for row in rows(*map(made, names))] == [*labels, "my-program"]


def test_a_token_budget_is_part_of_the_name() -> None:
    (row,) = rows(made("ircot", settings={"token_budget": 8000}))
    assert row["Method"] == "IRCoT within 8,000 tokens"


def usage(calls: int, sent: int, received: int, cached: int = 0, cost: float | None = 0.0) -> Usage:
    return Usage(
        calls=calls, cached=cached, prompt_tokens=sent, completion_tokens=received, cost=cost
    )


def spending(cost: float | None = 0.01, cached: int = 0) -> list[Result]:
    both = {"read": usage(2, 300, 30, cached, cost), "answer": usage(1, 100, 10)}
    return [
        result(1, "Paris", usage=both, calls=3, tokens=440),
        result(2, "x", usage={"answer": usage(1, 100, 10, 0, cost)}, calls=1, tokens=110),
        result(3, None),
    ]


def test_seconds_are_over_all_questions_and_tokens_over_those_whose_cost_is_known() -> None:
    (row,) = rows(made("ircot", spending(), seconds=6.0))
    assert (row["Seconds"], row["Calls"], row["From cache, %"]) == (2.0, 2.0, 0.0)
    assert (row["Tokens"], row["Prompt tokens"], row["Completion tokens"]) == (275.0, 250.0, 25.0)
    assert row["US $ per 100"] == pytest.approx(1.0)


def test_an_unknown_price_is_not_zero() -> None:
    (row,) = rows(made("ircot", spending(cost=None)))
    assert row["US $ per 100"] is None


def test_all_other_measures_of_a_run_are_in_its_row() -> None:
    gold = {"gold_titles": ("A", "B"), "gold_triples": (("A", "r", "B"), ("B", "r", "C"))}
    read = (Passage(id="a", title="A", text="x"),)
    (row,) = rows(made("graph-anchor", [result(1, "x", passages=read, triples=(("A", "x", "B"),),
                                               **gold)]))  # fmt: skip
    assert (row["Recall"], row["graph_recall"], row["graph_precision"]) == (50.0, 50.0, 100.0)
    assert row["sufficiency precision"] is None


# Comparisons


def ten(method: str, right: int, **protocol: Any) -> Report:
    return many(method, right, n=10, **protocol)


def test_p_values_are_corrected_by_holm_over_the_methods_of_a_dataset_and_lm() -> None:
    family = compared(
        ten("vanilla-rag", 0), ten("ircot", 10), ten("search-r1", 6), ten("deep-note", 0)
    )
    # Exact, two-sided: 10 differing pairs 2/2^10, 6 of them 2/2^6; Holm times 3, 2 and 1.
    assert [(row["Difference"], row["p, uncorrected"], row["p"]) for row in family] == [
        (100.0, pytest.approx(2 / 1024), pytest.approx(6 / 1024)),
        (pytest.approx(60.0), pytest.approx(2 / 64), pytest.approx(4 / 64)),
        (0.0, 1.0, 1.0),
    ]
    assert {row["Comparisons"] for row in family} == {3}


def test_each_dataset_lm_and_token_budget_is_a_separate_family() -> None:
    others: list[dict[str, Any]] = [{}, {"lm": "b"}, {"settings": {"token_budget": 500}}]
    pairs = ((ten("vanilla-rag", 0, **one), ten("ircot", 10, **one)) for one in others)
    family = compared(*(report for pair in pairs for report in pair))
    assert [(row["Program"], row["Comparisons"]) for row in family] == [("ircot", 1)] * 3


def test_runs_that_only_limit_the_steps_are_not_in_a_family() -> None:
    family = compared(ten("vanilla-rag", 0), ten("ircot", 10), ten("graph-anchor-2", 10))
    assert [(row["Program"], row["Comparisons"]) for row in family] == [("ircot", 1)]


def test_another_baseline_can_be_chosen_and_must_be_a_method() -> None:
    found = ten("vanilla-rag", 0), ten("ircot", 10)
    (one,) = compared(*found, baseline="ircot")
    assert (one["Program"], one["Baseline"], one["Difference"]) == ("vanilla-rag", "IRCoT", -100)
    with pytest.raises(InputError, match="method 'magic' is unknown"):
        rows(*found, baseline="magic")


def test_the_verdict_states_the_best_method_its_gain_p_value_and_cost() -> None:
    assert told(
        many("vanilla-rag", 10), many("ircot", 12), many("graph-anchor", 36, tokens=350)
    ) == [
        "HotpotQA, lm-a, 40 questions: **GraphAnchor is best**: F1 90.0, 65.0 points above Vanilla "
        "RAG (p <0.001, Holm-corrected for 2 comparisons), at 3.5 times the tokens (350 and 100 "
        "per question)."
    ]  # fmt: skip


def test_a_difference_by_chance_is_called_no_significant_difference() -> None:
    (found,) = told(many("vanilla-rag", 21), many("graph-anchor", 20))
    assert "**no significant difference**: Vanilla RAG has F1 52.5, 2.5 points above" in found


def test_equal_scores_are_called_no_difference() -> None:
    (found,) = told(many("vanilla-rag", 20), many("graph-anchor", 20))
    assert "**no difference**: GraphAnchor has F1 50.0, as has Vanilla RAG (p 1.000" in found


def test_without_the_baseline_the_best_is_compared_with_the_runner_up() -> None:
    found = many("ircot", 5), many("deep-note", 20), many("graph-anchor", 36)
    first = compared(*found)[0]
    assert (first["Program"], first["Baseline"]) == ("deep-note", "GraphAnchor")
    assert "GraphAnchor is best" in told(*found)[0]
    assert not compared(many("ircot", 5)) and not told(many("ircot", 5))


def test_the_verdict_includes_the_judge() -> None:
    judged = [
        report.part(
            r.model_copy(update={"judged": Judged(right=n < right)})
            for n, r in enumerate(report.results)
        )
        for report, right in ((many("vanilla-rag", 1, judge="j"), 10),
                              (many("graph-anchor", 9, judge="j"), 20))
    ]  # fmt: skip
    assert told(*judged)[0].endswith("; judged right: 50.0 % and 25.0 %.")


# Failed questions


def test_every_failed_question_of_every_run_is_listed() -> None:
    degraded = result(1, "Paris", step_failures=("read: no reply",))
    runs = arrange(
        (made("ircot", (None, "x", None)), made("search-r1", [degraded, degraded, degraded]))
    )
    found = failure_table(runs)[["Method", "Question", "Lost"]].to_numpy().tolist()
    assert found == [
        ["IRCoT", "q1", "question"], ["IRCoT", "q3", "question"], *[["Search-R1", "q1", "step"]] * 3
    ]  # fmt: skip


# Files


@pytest.fixture
def runs() -> list[Run]:
    return arrange(
        (
            made("vanilla-rag", ("Paris", "x", "yes")),
            made("graph-anchor", spending(cached=1), seconds=6.0),
            made("search-r1", ("Paris", "x", None)),
            made("vanilla-rag", dataset="musique"),
            made("vanilla-rag", corpus="d"),
        )
    )


def written(runs: Sequence[Run], out: Path) -> str:
    write_report(runs, out)
    return (out / "report.md").read_text("utf-8")


@pytest.mark.parametrize(
    "text", ["a|b", "*x*", "__init__ of 2hop__1_2", "`code`", "[x](y)", "<b>", "a\\b", "one\ntwo"]
)
def test_any_text_is_escaped_in_a_cell(text: str) -> None:
    html = rendered(f"| A |\n| - |\n| {escaped(text)} |\n")
    (cell,) = re.findall(r"<td>(.*?)</td>", html)
    plain = cell.replace("&lt;", "<").replace("&gt;", ">")
    assert plain == " ".join(text.split())


def test_columns_are_aligned_in_plain_text(runs: list[Run]) -> None:
    lines = markdown(failure_table(runs)[["Method", "Question"]]).splitlines()
    assert lines[:3] == [
        "| Method      | Question |",
        "| ----------- | -------- |",
        "| Search-R1   | q3       |",
    ]


def test_a_report_starts_with_verdicts_and_has_a_table_per_dataset_and_lm(
    runs: list[Run], tmp_path: Path
) -> None:
    text = written(runs, tmp_path)
    sections = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    assert sections == [
        "Report", "Verdict", "Scores and cost", "MuSiQue, lm-a", "HotpotQA, lm-a",
        "HotpotQA, lm-a, corpus d (not c)", "Failed questions",
    ]  # fmt: skip
    assert "3 questions; F1 by HotpotQA's official rule; differences from Vanilla RAG" in text
    assert "no closed-book run: what the LM knows without reading is not measured" in text
    assert r"ValueError: a \| in \*the\* endpoint and more" in text


def test_a_column_without_a_value_is_left_out(runs: list[Run], tmp_path: Path) -> None:
    text = written(runs, tmp_path)
    musique, hotpotqa = (
        re.search(rf"### {name}.*?\n(\| Method[^\n]+)", text, re.DOTALL)
        for name in ("MuSiQue", "HotpotQA")
    )
    assert musique and hotpotqa
    assert "Failed" not in musique[1] and "Judged" not in musique[1]
    assert "Failed" in hotpotqa[1] and "Calls" in hotpotqa[1]


def test_seconds_of_cached_calls_are_not_shown(runs: list[Run], tmp_path: Path) -> None:
    cached = written(runs, tmp_path / "cached")
    fresh = written(arrange([made("graph-anchor", spending(), seconds=6.0)]), tmp_path / "fresh")
    assert "| 2.00 |" in re.sub(" +", " ", fresh)
    (line,) = re.findall(r"^\| GraphAnchor +\| +1 .*$", cached, re.MULTILINE)
    assert line.rstrip("| ").endswith("–")


def test_the_csv_can_be_read_back_with_every_measure(runs: list[Run], tmp_path: Path) -> None:
    made_program = made('=say "x", y', ("Paris", "x", "x"))
    written(arrange([made_program]), tmp_path)
    text = (tmp_path / "tables" / "runs.csv").read_text("utf-8")
    (row,) = csv.DictReader(StringIO(text))
    assert (row["Method"], row["F1"], row["n"]) == ('\'=say "x", y', "33.3333", "3")
    assert row["Recall"] == row["p"] == ""


def test_every_table_of_a_report_renders_with_all_its_cells(
    runs: list[Run], tmp_path: Path
) -> None:
    text = written(runs, tmp_path)
    tables = re.findall(r"<table>.*?</table>", rendered(text), re.DOTALL)
    assert len(tables) == len(re.findall(r"^\| -", text, re.MULTILINE)) == 4
    for found in tables:
        headings = len(re.findall("<th[ >]", found))
        assert all(line.count("<td") == headings for line in found.split("<tr>")[2:])


def test_report_files_are_reproducible_byte_for_byte(runs: list[Run], tmp_path: Path) -> None:
    def files(name: str) -> dict[str, bytes]:
        out = tmp_path / name
        written(runs, out)
        found = (path for path in out.rglob("*") if path.is_file())
        return {path.relative_to(out).as_posix(): path.read_bytes() for path in found}

    first = files("one")
    assert first == files("two") == files("one")
    tables = {f"tables/{name}.csv" for name in ("runs", "failures")}
    names = (
        "f1-by-method-musique-lm-a", "f1-by-method-hotpotqa-lm-a", "f1-by-tokens-hotpotqa-lm-a",
        "f1-by-method-hotpotqa-lm-a-corpus-d-not-c",
    )  # fmt: skip
    images = {f"figures/{name}.png" for name in names}
    assert set(first) == {"report.md", "protocol.json", *tables, *images}


def test_groups_whose_headings_are_longer_than_a_file_name_have_figures(tmp_path: Path) -> None:
    others = [made("ircot", corpus=letter * 64, retriever=letter * 90) for letter in "abc"]
    written(arrange(others), tmp_path)
    assert len([*(tmp_path / "figures").glob("f1-by-method-*.png")]) == 3


def test_a_table_of_an_earlier_report_is_removed(tmp_path: Path) -> None:
    (tmp_path / "tables").mkdir(parents=True)
    (tmp_path / "tables" / "failures.csv").write_text("old")
    (tmp_path / "tables" / "mine.csv").write_text("not ours")
    written(arrange([made("ircot")]), tmp_path)
    assert {path.name for path in (tmp_path / "tables").iterdir()} == {"runs.csv", "mine.csv"}


def test_figures_follow_their_table_with_relative_paths_and_alt_texts(tmp_path: Path) -> None:
    runs = arrange((made("a|b"), made("ircot"), made("ircot", dataset="musique")))
    html = rendered(written(runs, tmp_path))
    images = re.findall('<img src="(figures/[^"]+)" alt="([^"]+)"', html)
    assert [text for _, text in images] == [
        "F1 by method: IRCoT 100.0",
        "F1 by method: IRCoT 100.0; a|b 100.0",
    ]
    assert all((tmp_path / name).is_file() for name, _ in images)
    places = ("<h3>MuSiQue, lm-a", "musique-lm-a.png", "<h3>HotpotQA, lm-a", "hotpotqa-lm-a.png")
    order = [html.index(place) for place in places]
    assert order == sorted(order)


def test_protocol_json_has_every_protocol_in_full(runs: list[Run], tmp_path: Path) -> None:
    written(runs, tmp_path)
    entries = json.loads((tmp_path / "protocol.json").read_text("utf-8"))
    assert [e["hash"] for e in entries] == [r.report.protocol.hash for r in runs]
    first = {name: value for name, value in entries[0].items() if name != "hash"}
    assert Protocol.model_validate(first).hash == entries[0]["hash"]


def test_without_pandas_the_extra_is_named(
    runs: list[Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingExtra, match=r"pandas.*ga-dspy\[report\]"):
        written(runs, tmp_path)
