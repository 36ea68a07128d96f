"""Arena and report on the command line, as a user meets them."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
Command = Callable[..., subprocess.CompletedProcess[str]]
DATA = ROOT / "ga_dspy" / "demo" / "questions_dev.json"


@pytest.fixture(scope="module")
def home(command: Command, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a sparse index over the shipped corpus, and an arena of two questions."""
    folder = tmp_path_factory.mktemp("arena-cli")
    corpus = ROOT / "ga_dspy" / "demo" / "corpus.jsonl"
    built = command("index", "build", corpus, "--out", "index", "--kind", "sparse", cwd=folder)
    assert built.returncode == 0, built.stderr
    done = arena(
        command, folder, "--programs", "vanilla-rag,graph-anchor,closed-book", "--limit", "2"
    )
    assert done.returncode == 0, done.stderr
    assert "3 runs in runs" in done.stdout and "ga-dspy report runs" in done.stdout
    return folder


def arena(command: Command, folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    given = ("--dataset", "hotpotqa", "--data", DATA, "--index", "index", "--out", "runs")
    return command("arena", *given, *args, cwd=folder)


def test_an_arena_writes_one_run_per_method_and_resumes_without_calls(
    command: Command, home: Path
) -> None:
    runs = home / "runs" / "hotpotqa-questions_dev"
    assert {path.name for path in runs.iterdir()} == {"vanilla-rag", "graph-anchor", "closed-book"}
    before = {path: path.read_bytes() for path in runs.glob("*/summary.json")}
    again = arena(
        command, home, "--programs", "vanilla-rag,graph-anchor,closed-book", "--limit", "2"
    )
    assert again.returncode == 0
    assert {path: path.read_bytes() for path in before} == before


def test_a_report_has_tables_figures_and_every_protocol(
    command: Command, home: Path, tmp_path: Path
) -> None:
    pytest.importorskip("matplotlib")
    done = command("report", home / "runs", "--out", tmp_path / "report", cwd=home)
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "report" / "report.md").read_text()
    assert "## Scores and cost" in text and "embedded extractive LM (no LLM)" in text
    assert "## Verdict" in text
    assert "HotpotQA, embedded extractive LM (no LLM), 2 questions" in " ".join(done.stdout.split())
    assert (tmp_path / "report" / "tables" / "runs.csv").is_file()
    assert list((tmp_path / "report" / "figures").glob("f1-by-tokens-*.png"))
    protocols = json.loads((tmp_path / "report" / "protocol.json").read_text())
    assert len(protocols) == 3


def test_runs_on_other_questions_have_a_separate_table(
    command: Command, home: Path, tmp_path: Path
) -> None:
    pytest.importorskip("matplotlib")
    other = command("eval", "--dataset", "hotpotqa", "--data", DATA, "--index", "index", "--limit",
                    "3", "--program", "ircot", "--out", tmp_path / "other", cwd=home)  # fmt: skip
    assert other.returncode == 0, other.stderr
    both = ("report", home / "runs", tmp_path / "other", "--out", tmp_path / "report")
    assert command(*both, cwd=home).returncode == 0
    text = (tmp_path / "report" / "report.md").read_text()
    assert text.count("### HotpotQA, embedded extractive LM (no LLM)") == 2
    assert re.search(r"questions \d with hash \w+ \(not \d with hash \w+\)", text)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("arena", "--dataset", "hotpotqa", "--data", DATA, "--index", "index", "--out", "o",
          "--programs", "magic"), "method 'magic' is unknown"),
        (("arena", "--dataset", "hotpotqa", "--dataset", "musique", "--data", DATA, "--index",
          "index", "--out", "o"), "2 --dataset, 1 --data"),
        (("report", "nowhere", "--out", "o"), "nowhere holds no run"),
    ],
)  # fmt: skip
def test_an_error_is_one_clear_line_and_exit_code_2(
    command: Command, home: Path, args: tuple[str | Path, ...], message: str
) -> None:
    done = command(*args, cwd=home)
    assert done.returncode == 2
    said = [line for line in done.stderr.splitlines() if line.startswith("ga-dspy: ")]
    assert len(said) == 1 and message in said[0]
    assert "Traceback" not in done.stderr
