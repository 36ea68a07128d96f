"""`ga-dspy compile`: its arguments, prompts, output and files."""

from __future__ import annotations

import json
import re
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from ga_dspy import GraphAnchor, demo
from ga_dspy.artifact import load
from ga_dspy.cli.choices import choose_lms
from ga_dspy.cli.compile import Lines, compile_program, read_questions
from ga_dspy.cli.console import Console, show_progress
from ga_dspy.errors import InputError
from ga_dspy.lm.store import Spent
from ga_dspy.optimize import Candidate, Caps, Estimate, Outcome
from ga_dspy.optimize.compilation import check_sets
from ga_dspy.optimize.tracking import Tracked
from ga_dspy.programs.settings import read_pairs
from ga_dspy.retrieval import Index

COST = Estimate(questions=10, calls=100, tokens=1000, money=None)


def test_the_last_train_questions_can_be_held_out_for_validation() -> None:
    questions = read_questions("hotpotqa", demo.questions("train"), "4", None)
    assert (len(questions.train), len(questions.validation)) == (26, 4)
    assert questions.names == {
        "train": "questions_train.json[:26]",
        "validation": "questions_train.json[26:]",
    }


def test_a_separate_file_can_be_the_validation_set() -> None:
    questions = read_questions(
        "hotpotqa", demo.questions("train"), str(demo.questions("dev")), None
    )
    assert (len(questions.train), len(questions.validation)) == (30, 30)


def test_two_custom_files_without_a_shared_question_can_be_compiled_on(tmp_path: Path) -> None:
    for name in ("train", "test"):
        rows = "".join(f"Where is town {n} of {name}?,Montana\n" for n in range(4))
        (tmp_path / f"{name}.csv").write_text(f"question,answer\n{rows}")
    read = read_questions("qa", tmp_path / "train.csv", "2", tmp_path / "test.csv")
    check_sets({"train": read.train, "validation": read.validation, "test": read.test or []})


@pytest.mark.parametrize("number", ["0", "30"])
def test_a_validation_set_of_none_or_all_questions_is_refused(
    number: str,
) -> None:
    with pytest.raises(InputError, match="from 1 to 29"):
        read_questions("hotpotqa", demo.questions("train"), number, None)


def test_recipe_settings_are_read_as_json_or_text() -> None:
    assert read_pairs(["demos=2", "merge=false", "encoder=auto"], "--set") == {
        "demos": 2,
        "merge": False,
        "encoder": "auto",
    }
    with pytest.raises(InputError, match="--set demos"):
        read_pairs(["demos"], "--set")


def test_without_a_terminal_a_cap_or_yes_is_required() -> None:
    console = Console(file=StringIO())
    with pytest.raises(InputError, match="--yes, or a cap"):
        Lines(console).confirm(COST)
    assert Lines(console, agreed=True).confirm(COST)
    assert Lines(console, caps=Caps(calls=9)).confirm(COST)


def test_the_reserve_for_measuring_is_printed_before_the_first_call() -> None:
    shown = StringIO()
    cost = COST._replace(measuring=Spent(calls=30, tokens=300))
    assert Lines(Console(file=shown), caps=Caps(calls=120)).confirm(cost)
    assert "calls: about 30 of 120 for measuring, 90 left for candidates" in shown.getvalue()
    assert "tokens: " not in shown.getvalue()


@pytest.mark.parametrize(("options", "packed"), [({}, False), ({"pack_index": True}, True)])
def test_the_index_is_packed_with_the_model_only_on_request(
    options: dict[str, Any], packed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("mlflow")
    Index.build(demo.corpus(), tmp_path / "index", kind="sparse")
    given: list[Any] = []

    def track(outcome: Outcome, **how: Any) -> Tracked:
        given.append(how.get("index"))
        return Tracked("", "", "", is_new=False)

    monkeypatch.setattr("ga_dspy.optimize.tracking.track_compilation", track)
    compile_program(
        choose_lms(), "hotpotqa", demo.questions("train"), "2", tmp_path / "index",
        tmp_path / "out",
        recipe_name="labeled", settings=["demos=1"], threads=1, **options,
    )  # fmt: skip
    assert given == [tmp_path / "index" if packed else None]


def test_a_terminal_shows_a_bar_once_the_cost_is_confirmed() -> None:
    shown = StringIO()
    console = Console(file=shown, force_terminal=True, width=80)
    with show_progress(console) as advance:
        lines = Lines(console, agreed=True, bar=advance)
        assert shown.getvalue() == ""
        lines.confirm(COST)
        lines.count(Spent(30))
    assert re.search(
        rf"compiling .*30/{COST.calls}", re.sub(r"\x1b\[[\d;]*m", "", shown.getvalue())
    )


def test_a_candidate_is_one_line_with_scores_cost_and_time_left() -> None:
    shown = StringIO()
    lines = Lines(Console(file=shown, width=40))
    lines.expected = 100
    lines.show(Candidate(3, 41.25, 50.0, 25, 12_345, 20.0, "2 demos for answer"))
    (line,) = shown.getvalue().splitlines()
    for part in ("41.2", "best  50.0", "25 calls", "12,345 tokens", "left ≤ 1:00", "2 demos"):
        assert part in line


def test_in_a_pipe_a_compilation_prints_its_calls_until_a_candidate_is_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    Index.build(demo.corpus(), tmp_path / "index", kind="sparse")
    often = partial(show_progress, every=0.01)
    monkeypatch.setattr("ga_dspy.cli.compile.show_progress", often)
    compile_program(
        choose_lms(), "hotpotqa", demo.questions("train"), "4", tmp_path / "index",
        tmp_path / "out",
        recipe_name="labeled", settings=["demos=3"], threads=2, no_track=True,
    )  # fmt: skip
    told = re.findall(
        r"^compiling: ([\d,]+) LM calls of about ([\d,]+)", capfd.readouterr().out, re.M
    )
    assert len(told) > 2
    log = (tmp_path / "out" / "run" / "optimizer.log").read_text()
    assert "LM calls of about" not in log
    calls = [int(n) for n, _ in told]
    made = json.loads((tmp_path / "out" / "summary.json").read_text())["calls"]
    assert calls == sorted(calls) and made / 2 < calls[-1] <= made and told[-1][1] != "0"


def test_the_command_compiles_with_the_embedded_lm(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    index = Index.build(demo.corpus(), tmp_path / "index", kind="sparse")
    out = tmp_path / "artifacts" / "demo"
    compile_program(
        choose_lms(), "hotpotqa", demo.questions("train"), "4", tmp_path / "index", out,
        recipe_name="labeled", settings=["demos=3"], threads=1, no_track=True,
    )  # fmt: skip
    said = " ".join(capsys.readouterr().out.split())
    assert "estimate: about" in said and "$0.00" in said
    assert "as given" in said and "4 demos for answer" in said
    assert "of validation, which the recipe has seen" in said
    assert f"candidates, F1 against tokens: {out / 'candidates.png'}" in said.replace("- ", "-")
    summary = json.loads((out / "summary.json").read_text())
    given, other = summary["candidates"]
    assert 0 < given["question_tokens"] < other["question_tokens"]
    assert (summary["recipe"], summary["n"], summary["held_out"]) == ("labeled", 4, "validation")
    assert isinstance(load(out, retriever=index), GraphAnchor)
