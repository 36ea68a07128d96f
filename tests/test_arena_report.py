"""Reports as files: Markdown that renders, CSV that reads back, the same bytes every time."""

from __future__ import annotations

import csv
import json
import re
import sys
from io import StringIO
from pathlib import Path
from typing import Any

import dspy
import pytest
from markdown_it import MarkdownIt

from ga_dspy.arena import Runs, collect
from ga_dspy.arena.report import write_report
from ga_dspy.arena.table import Table, csv_text, escaped, markdown, number
from ga_dspy.arena.tables import table_1
from ga_dspy.errors import MissingExtra
from ga_dspy.eval import Protocol, run
from ga_dspy.passage import Passage

PASSAGE = Passage(id="p", title="T", text="about 1")


def made(out: Path, method: str, wrong: tuple[str, ...] = (), **changes: Any) -> None:
    """A run over three questions whose answers are their numbers; "fail" raises."""
    examples = [
        dspy.Example(id=f"q{i}", question=f"{i}?", answer=str(i)).with_inputs("question")
        for i in range(3)
    ]

    def answer(question: str) -> dspy.Prediction:
        if question in wrong and method == "search-r1":
            raise ValueError("a | in *the* endpoint\nand more")
        text = "x" if question in wrong else question.removesuffix("?")
        return dspy.Prediction(answer=text, passages=[PASSAGE], steps=1)

    usual: dict[str, Any] = {"dataset": "hotpotqa", "source": "made", "lm": "a", "k": 5}
    protocol = Protocol.of(examples, program=method, **{**usual, **changes})
    run(answer, examples, out=out, protocol=protocol)


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    made(tmp_path / "runs" / "1", "vanilla-rag", ("1?",))
    made(tmp_path / "runs" / "2", "graph-anchor", steps=4)
    made(tmp_path / "runs" / "3", "search-r1", ("2?",), steps=4)
    made(tmp_path / "runs" / "4", "vanilla-rag", dataset="musique")
    return collect([tmp_path / "runs"], paper=True)


def rendered(text: str) -> str:
    return str(MarkdownIt("commonmark").enable("table").render(text))


def table(*rows: dict[str, Any], **more: Any) -> Table:
    return Table("made", "Made", "What it shows.", rows, **more)


def row(method: str, f1: float | None, note: str | None, **more: Any) -> dict[str, Any]:
    usual = {"source": "measured", "LM": "lm", "method": method, "dataset": "Data"}
    counts = {"n": 3, "failed": 0, "mark": "", "protocol": "abc"}
    return {**usual, "F1": f1, "Note": note, **counts, **more}


@pytest.mark.parametrize(
    ("value", "column", "text"),
    [
        (1234.56, "F1", "1,234.6"),
        (49.55, "F1", "49.6"),
        (-0.04, "Difference", "0.0"),
        (2.0, "Difference", "+2.0"),
        (-2.0, "Difference", "−2.0"),
        (1234.5, "Tokens", "1,234"),
        (1234, "Shared", "1,234"),
        (0.0312, "Seconds", "0.03"),
        (12.34, "Seconds per 100", "12.3"),
        (0.0004, "p", "<0.001"),
        (0.05, "p, Holm", "0.050"),
        (0.00123, "US $ per 100", "0.0012"),
        (12.345, "US $ per 100", "12.35"),
        (0.0, "US $ per 100", "0.0000"),
        (None, "F1", "–"),
    ],
)
def test_numbers_are_written_for_people(value: float | None, column: str, text: str) -> None:
    assert number(column, value) == text


def test_an_interval_stands_beside_its_mean() -> None:
    text = markdown(table(row("A", 50.0, "x", **{"F1 low": 25.04, "F1 high": 75.0})))
    assert "| A      | 50.0 [25.0, 75.0] |" in text


@pytest.mark.parametrize(
    "text", ["a|b", "*x*", "__init__ of 2hop__1_2", "`code`", "[x](y)", "<b>", "a\\b", "one\ntwo"]
)
def test_any_text_means_itself_in_a_cell(text: str) -> None:
    html = rendered(f"| A |\n| - |\n| {escaped(text)} |\n")
    (cell,) = re.findall(r"<td>(.*?)</td>", html)
    plain = cell.replace("&lt;", "<").replace("&gt;", ">")
    assert plain == " ".join(text.split())


def test_columns_are_aligned_raw_and_the_papers_rows_are_in_italics() -> None:
    text = markdown(table(row("A", 1.0, "x"), row("Longer", 100.0, "y", source="paper")))
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert lines == [
        "| Method   | LM          |      F1 | Note |",
        "| -------- | ----------- | ------: | ---- |",
        "| A        | lm          |     1.0 | x    |",
        "| *Longer* | *paper, lm* | *100.0* | *y*  |",
    ]
    assert rendered(text).count("<em>") == 4


def test_what_is_the_same_in_every_row_is_written_once() -> None:
    text = markdown(table(row("A", 1.0, "x"), row("B", 2.0, "x"), score="SQuAD's rule"))
    assert "lm; Data; Note: x; n = 3; 0 failed; F1 by SQuAD's rule." in text
    assert "| Method |  F1 |" in text


def test_a_column_that_no_row_fills_is_left_out_and_named() -> None:
    text = markdown(table(row("A", None, "x"), row("B", None, "y")))
    assert "| Method | Note |" in text
    assert "Left out, as no row has them: F1." in text


def test_failures_stand_in_the_rows_where_there_are_any() -> None:
    text = markdown(table(row("A", 1.0, "x", n=1200, failed=2), row("B", 2.0, "y")))
    assert "|     n | Failed |" in text and "| 1,200 |      2 |" in text
    assert "0 failed" not in text


def test_datasets_stand_side_by_side_with_n_and_failures_of_each(runs: Runs) -> None:
    text = markdown(table_1(runs))
    head, _, *lines = [line for line in text.splitlines() if line.startswith("|")]
    names = [cell.strip() for cell in head.strip("|").split("|")]
    assert names == [
        *("Method", "LM", "MuSiQue F1", "MuSiQue EM", "HotpotQA F1", "HotpotQA EM"),
        *("Average F1", "Average EM", "n by dataset", "Failed by dataset"),
    ]
    cells = {line.split("|")[1].strip(): line.split("|") for line in reversed(lines)}
    vanilla, search = cells["Vanilla RAG"], cells["Search-R1"]
    assert [cell.strip() for cell in vanilla[-5:-1]] == ["83.3", "83.3", "3 / 3", "0 / 0"]
    assert [cell.strip() for cell in search[-5:-1]] == ["–", "–", "– / 3", "– / 1"]


def test_a_marked_run_has_its_letter_at_its_number_and_a_footnote(tmp_path: Path) -> None:
    made(tmp_path / "1", "vanilla-rag")
    made(tmp_path / "2", "graph-anchor", corpus="c2")
    text = markdown(table_1(collect([tmp_path], unlike=True)))
    assert "100.0 [100.0, 100.0] (a) |" in text
    assert "\n- (a) hotpotqa: corpus c2 (not None)." in text


def test_csv_reads_back_with_every_value_unrounded() -> None:
    made_table = table(
        {
            "source": "measured", "LM": "lm", "method": "A, b", "dataset": "Data",
            "F1": 100 / 3, "F1 low": 1.0, "F1 high": 2.0, "Note": 'say "x"',
            "n": 3, "failed": 0, "mark": "", "protocol": "abc",
        },
        row("B", None, None, source="paper"),
    )  # fmt: skip
    first, second = csv.DictReader(StringIO(csv_text(made_table)))
    assert first == {
        "source": "measured", "LM": "lm", "method": "A, b", "dataset": "Data",
        "F1": "33.3333", "F1 low": "1.0", "F1 high": "2.0", "Note": 'say "x"',
        "n": "3", "failed": "0", "mark": "", "protocol": "abc",
    }  # fmt: skip
    assert (second["source"], second["F1"], second["F1 high"]) == ("paper", "", "")


def test_every_table_of_a_report_renders_with_all_its_cells(runs: Runs, tmp_path: Path) -> None:
    text = write_report(runs, tmp_path / "out").read_text("utf-8")
    html = rendered(text)
    tables = re.findall(r"<table>.*?</table>", html, re.DOTALL)
    assert len(tables) == len(re.findall(r"^\| -", text, re.MULTILINE)) > 6
    for found in tables:
        headings = len(re.findall("<th[ >]", found))
        assert all(line.count("<td") == headings for line in found.split("<tr>")[2:])


def test_a_report_lists_failures_what_is_missing_and_how_the_paper_differs(
    runs: Runs, tmp_path: Path
) -> None:
    text = write_report(runs, tmp_path / "out").read_text("utf-8")
    assert text.index("## Verdict") < text.index("Rows in *italics*") < text.index("## Table 1")
    assert text.index("## Where the paper contradicts") < text.index("## Questions where methods")
    assert text.index("## Table 1") < text.index("## Significance") < text.index("## Protocols")
    assert "4 runs on MuSiQue, HotpotQA; answered by a." in text
    assert "They are no yardstick" in text and "500 questions a dataset" in text
    assert r"ValueError: a \| in \*the\* endpoint and more" in text
    assert "- **Table 2: ablations**: GraphAnchor's ablations: `--programs ablations`" in text
    assert "but 37.94 and 32.60 in Table 4." in text


def test_a_report_for_others_quotes_no_question(runs: Runs, tmp_path: Path) -> None:
    out = tmp_path / "out"
    quoting = write_report(runs, out).read_text("utf-8")
    kept = write_report(runs, out, questions=False).read_text("utf-8")
    assert quoting.startswith(kept) and "## Questions where methods" not in kept
    assert not (out / "tables" / "differences.csv").exists()


def test_the_files_of_a_report_are_the_same_bytes_every_time(runs: Runs, tmp_path: Path) -> None:
    def files(name: str) -> dict[str, bytes]:
        out = tmp_path / name
        write_report(runs, out)
        found = (path for path in out.rglob("*") if path.is_file())
        return {path.relative_to(out).as_posix(): path.read_bytes() for path in found}

    first = files("one")
    assert first == files("two") == files("one")
    assert {"report.md", "protocol.json", "tables/table_1.csv", "tables/failures.csv"} <= set(first)
    assert str(tmp_path).encode() not in b"".join(first.values())


def test_a_table_of_an_earlier_report_does_not_stay_behind(runs: Runs, tmp_path: Path) -> None:
    out = tmp_path / "out"
    (out / "tables").mkdir(parents=True)
    (out / "tables" / "table_2.csv").write_text("old")
    (out / "tables" / "mine.csv").write_text("not ours")
    write_report(runs, out)
    assert not (out / "tables" / "table_2.csv").exists()
    assert (out / "tables" / "mine.csv").exists()


def test_pictures_are_embedded_by_relative_path_with_their_caption(
    runs: Runs, tmp_path: Path
) -> None:
    figures = {"Figure 4: hit | by step": tmp_path / "out" / "figures" / "figure 4.png"}
    report = write_report(runs, tmp_path / "out", figures=figures)
    html = rendered(report.read_text("utf-8"))
    assert '<img src="figures/figure%204.png" alt="Figure 4: hit | by step"' in html


def test_protocol_json_has_every_protocol_whole(runs: Runs, tmp_path: Path) -> None:
    write_report(runs, tmp_path / "out")
    entries = json.loads((tmp_path / "out" / "protocol.json").read_text("utf-8"))
    assert {(e["program"], e["hash"]) for e in entries} == {
        (r.method, r.report.protocol.hash) for r in runs
    }
    first = {name: value for name, value in entries[0].items() if name != "hash"}
    assert Protocol.model_validate(first).hash == entries[0]["hash"]


def test_another_baseline_can_be_chosen(runs: Runs, tmp_path: Path) -> None:
    text = write_report(runs, tmp_path / "out", baseline="graph-anchor").read_text("utf-8")
    assert "## Significance: against GraphAnchor" in text


def test_without_pandas_the_extra_is_named(
    runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingExtra, match=r"pandas.*ga-dspy\[report\]"):
        write_report(runs, tmp_path / "out")
