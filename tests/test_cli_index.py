"""`ga-dspy index`: an index is built of files, follows them as they change, and is looked into."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from ga_dspy import Index
from ga_dspy.cli.console import Console, show_progress
from ga_dspy.retrieval import read_passages
from ga_dspy.retrieval.read import Sources

Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def built(command: Command, tmp_path: Path) -> Path:
    """A folder `docs` of three files, and its index `ix`."""
    docs = tmp_path / "docs"
    (docs / "company").mkdir(parents=True)
    (docs / "company" / "bridge.md").write_text(
        "---\nauthor: Ida Lund\n---\n# Halden Bridge\n\nNils Haug designed the Halden Bridge.\n"
    )
    (docs / "nile.txt").write_text("The Nile flows past Aswan.")
    (docs / "rows.csv").write_text("id,text\n1,Oslo has an opera house.\n")
    (docs / "scan.png").write_bytes(b"\x89PNG\0")
    done = command("index", "build", "docs", "--out", "ix", "--encoder", "hash-64", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == (
        "files: 3 read, 1 unread\n"
        "  company/bridge.md: read (1 passage)\n"
        "  nile.txt: read (1 passage)\n"
        "  rows.csv: read (1 passage)\n"
        "  scan.png: unread (.png is not a supported format)\n"
        "ix: 3 passages, linked, hash-64\n"
    )
    return tmp_path


def run(command: Command, at: Path, *args: str, code: int = 0) -> str:
    done = command("index", *args, "--index", "ix", cwd=at)
    assert done.returncode == code, done.stderr + done.stdout
    return done.stdout + done.stderr


def table(text: str) -> dict[str, tuple[int, int]]:
    found = re.findall(r"^(\w+) +(\d+) files? +(\d+) passages? *$", text, re.MULTILINE)
    return {what: (int(files), int(passages)) for what, files, passages in found}


def test_a_sync_reads_only_changed_files_and_reports_them(command: Command, built: Path) -> None:
    docs = built / "docs"
    (docs / "nile.txt").write_text("The Nile flows past Luxor.")
    (docs / "rows.csv").unlink()
    (docs / "new.txt").write_text("Skien is a town.")
    said = run(command, built, "sync")
    assert table(said) == {
        "added": (1, 1), "changed": (1, 1), "removed": (1, 1), "unchanged": (1, 1),
    }  # fmt: skip
    assert {p.text for p in Index.open(built / "ix")} == {
        "Nils Haug designed the Halden Bridge.", "The Nile flows past Luxor.", "Skien is a town.",
    }  # fmt: skip
    again = run(command, built, "sync")
    assert table(again)["unchanged"] == (3, 3)
    assert Index.open(built / "ix").manifest.generation == 1


def test_a_sync_builds_an_index_that_does_not_exist(command: Command, built: Path) -> None:
    done = command("index", "sync", "docs/nile.txt", "--index", "new", cwd=built)
    assert done.returncode == 0, done.stderr
    assert "new: 1 passage, linked" in done.stdout


def test_an_error_is_printed_as_sentences(command: Command, built: Path) -> None:
    done = command("index", "build", "nowhere", "--out", "new", cwd=built)
    assert done.returncode == 2
    assert done.stderr.startswith("ga-dspy: no nowhere. Expected a folder of documents, or a file")
    assert done.stderr.endswith(". Check the path, or convert the file.\n")


def test_an_unchanged_file_is_not_read_again(
    command: Command, built: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []

    def spy(name: str, data: bytes) -> Any:
        read.append(name)
        return original(name, data)

    from ga_dspy.retrieval import documents

    original = documents.read_document
    monkeypatch.setattr("ga_dspy.retrieval.documents.read_document", spy)
    (built / "docs" / "nile.txt").write_text("The Nile is long.")
    run(command, built, "sync")
    assert read == ["nile.txt"]
    run(command, built, "sync", "--chunk-tokens", "100")
    assert read == ["nile.txt", "company/bridge.md", "nile.txt", "rows.csv"]


def test_the_index_and_its_files_may_be_moved_together(command: Command, built: Path) -> None:
    (built / "moved").mkdir()
    shutil.move(built / "docs", built / "moved" / "docs")
    shutil.move(built / "ix", built / "moved" / "ix")
    assert table(run(command, built / "moved", "sync"))["unchanged"] == (3, 3)


def test_a_sync_that_would_delete_most_passages_needs_yes(command: Command, built: Path) -> None:
    for name in ("nile.txt", "rows.csv"):
        (built / "docs" / name).unlink()
    assert "2 of 3 passages of ix would be deleted" in run(command, built, "sync", code=2)
    assert len(Index.open(built / "ix")) == 3
    assert table(run(command, built, "sync", "--yes"))["removed"] == (2, 2)


def test_an_index_without_a_file_record_asks_for_the_files(command: Command, built: Path) -> None:
    (built / "ix" / "files.json").write_text("{damaged")
    assert "Name the files" in run(command, built, "sync", code=2)
    assert table(run(command, built, "sync", "docs"))["unchanged"] == (0, 3)


def test_passages_are_added_by_file_and_deleted_by_id_or_file(
    command: Command, built: Path
) -> None:
    (built / "more.jsonl").write_text(json.dumps({"id": "x", "text": "Skien is a town."}))
    assert table(run(command, built, "add", "more.jsonl"))["added"] == (1, 1)
    assert "deleted 1 passage" in run(command, built, "delete", "x")
    assert "deleted 1 passage" in run(command, built, "delete", "rows.csv")
    assert "no passage with id 'nothing'" in run(command, built, "delete", "nothing", code=2)
    assert {p.id for p in Index.open(built / "ix")} == {"company/bridge.md", "nile.txt"}
    assert table(run(command, built, "sync"))["added"] == (0, 2)


def test_deleting_all_passages_is_refused_with_a_remedy(command: Command, built: Path) -> None:
    every = ("company/bridge.md", "nile.txt", "rows.csv")
    said = run(command, built, "delete", *every, code=2)
    assert "this would delete all passages of ix. Add other documents first, or delete" in said
    assert "no passage with id 'nothing'" in run(
        command, built, "delete", *every[:2], "nothing", code=2
    )
    assert len(Index.open(built / "ix")) == 3


def test_adding_a_changed_file_removes_its_stale_passages(command: Command, built: Path) -> None:
    (built / "docs" / "rows.csv").write_text("id,text\n2,Bergen has a funicular.\n")
    assert table(run(command, built, "add", "docs"))["removed"] == (0, 1)
    assert {p.id for p in Index.open(built / "ix")} >= {"rows.csv#2", "nile.txt"}
    assert "rows.csv#1" not in Index.open(built / "ix")


def test_a_search_shows_file_and_score_or_json(command: Command, built: Path) -> None:
    said = run(command, built, "search", "Who designed the bridge?", "--k", "1")
    assert "company/bridge.md" in said and "Nils Haug" in said
    (hit,) = json.loads(run(command, built, "search", "the bridge", "--k", "1", "--json"))
    assert hit["metadata"] == {
        "source": "company/bridge.md", "author": "Ida Lund", "heading": "Halden Bridge",
    }  # fmt: skip
    assert hit["score"] > 0


def test_info_lists_the_files_and_verify_detects_a_changed_byte(
    command: Command, built: Path
) -> None:
    said = run(command, built, "info")
    for part in ("hash-64", "../docs", "400 tokens", "scan.png: unread"):
        assert part in said
    assert "ix is intact" in run(command, built, "verify")
    (path,) = (built / "ix").glob("contents-*/*/passages.arrow")
    data = path.read_bytes()
    path.write_bytes(data[:-40] + b"x" + data[-39:])
    assert "passages.arrow" in run(command, built, "verify", code=2)


def test_a_strict_build_stops_at_an_unreadable_file(command: Command, built: Path) -> None:
    done = command("index", "build", "docs", "--out", "other", "--strict", cwd=built)
    assert done.returncode == 2
    assert "scan.png was not read completely" in done.stderr
    assert not (built / "other").exists()


def test_a_different_index_is_not_overwritten(command: Command, built: Path) -> None:
    args = ("index", "build", "docs/nile.txt", "--out", "ix", "--kind", "sparse")
    refused = command(*args, cwd=built)
    assert refused.returncode == 2 and "already holds another index" in refused.stderr
    assert "ga-dspy index sync" in refused.stderr
    assert len(Index.open(built / "ix")) == 3


def test_the_passage_size_follows_the_encoders_input_length(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ga_dspy.retrieval.encoders import HashEncoder

    monkeypatch.setattr(HashEncoder, "max_tokens", 100, raising=False)
    (tmp_path / "a.txt").write_text("The Nile flows on and on. " * 100)
    args = ("index", "build", "a.txt", "--encoder", "hash-64", "--out")
    assert command(*args, "ix", cwd=tmp_path).returncode == 0
    assert Sources.of(tmp_path / "ix").chunk_tokens == 80
    assert command(*args, "iy", "--chunk-tokens", "300", cwd=tmp_path).returncode == 0
    assert len(Index.open(tmp_path / "iy")) < len(Index.open(tmp_path / "ix"))


# --- Whatever happens to the files, a synced index equals one built from scratch.

names = st.sampled_from(["a.md", "b.txt", "c/d.md", "e.csv"])
OSLO = "# Oslo\n\nOslo has an opera house.\n\n## Port\n\nShips come to the port."
ROW = "id,text\n1,A.\n"
texts = st.sampled_from(
    [
        OSLO,
        "The Nile flows past Aswan and its granite quarry.",
        "id,text\n1,Basel has a carnival.\n2,The Rhine flows past Basel.",
        "Basel has a carnival.",
    ]
)
states = st.dictionaries(names, texts, min_size=1)


def write(docs: Path, files: dict[str, str]) -> None:
    shutil.rmtree(docs, ignore_errors=True)
    for name, text in files.items():
        (docs / name).parent.mkdir(parents=True, exist_ok=True)
        (docs / name).write_text(text)


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(history=st.lists(states, min_size=2, max_size=4))
@example(history=[{"e.csv": ROW, "f.csv": f"{ROW}2,B.\n"}, {"f.csv": f"{ROW}2,B.\n"}])
@example(history=[{"c/d.md": OSLO}, {"a.md": OSLO, "c/d.md": OSLO}, {"c/d.md": OSLO}])
def test_after_any_file_changes_a_sync_equals_a_build_from_scratch(
    history: list[dict[str, str]], tmp_path: Path
) -> None:
    docs, folder = tmp_path / "docs", tmp_path / "ix"
    shutil.rmtree(folder, ignore_errors=True)
    write(docs, history[0])
    sources = Sources().with_paths(folder, [docs])
    found = sources.read(folder)
    index = Index.build(found.passages, folder, encoder="hash-64")
    sources.save(folder, found.files)
    for files in history[1:]:
        write(docs, files)
        sources = Sources.of(folder)
        found = sources.read(folder, index)
        index.sync(found.passages)
        sources.save(folder, found.files)
    expected = read_passages(docs)
    assert {p.id: p for p in index} == {p.id: p for p in expected}
    scratch = Index.from_passages(expected, encoder="hash-64")
    for query in ("Which city has a carnival?", "granite opera on the Nile"):
        scores = [{h.passage.id: h.score for h in i.search(query, 9)} for i in (index, scratch)]
        assert scores[0] == pytest.approx(scores[1])


# --- Progress


def test_in_a_pipe_progress_is_repeated_during_a_long_call(
    capsys: pytest.CaptureFixture[str],
) -> None:
    console = Console(force_terminal=False, width=80)
    with show_progress(console, every=0.02) as progress:
        time.sleep(0.1)  # before the first call there is nothing to say
        progress("graph-anchor", 3, 40, "3 of 40 questions, F1 50.0")
        time.sleep(0.2)  # one question, and no progress
    told = capsys.readouterr().out.splitlines()
    assert len(told) > 1
    assert set(told) == {"graph-anchor: 3 of 40 questions, F1 50.0"}


def test_in_a_pipe_no_progress_is_printed_in_the_first_minute(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with show_progress(Console(force_terminal=False)) as progress:
        progress("encoding", 1, 2)
        time.sleep(0.1)
    assert capsys.readouterr().out == ""


def test_the_remaining_time_ignores_the_previous_run(
    capsys: pytest.CaptureFixture[str],
) -> None:
    now = [0.0]
    console = Console(force_terminal=False, width=80)
    with show_progress(console, clock=lambda: now[0], every=0.02) as progress:
        for done in (0, 20, 40):
            progress("hotpotqa vanilla-rag", done, 40)
            now[0] += 60
        progress("hotpotqa graph-anchor", 0, 40)
        time.sleep(0.1)
    told = capsys.readouterr().out.splitlines()
    assert told and set(told) == {"hotpotqa graph-anchor 0 of 40"}


def test_in_a_pipe_a_build_prints_progress_during_a_silent_stage(
    capsys: pytest.CaptureFixture[str],
) -> None:
    now = [0.0]
    console = Console(force_terminal=False, width=80)
    with show_progress(console, clock=lambda: now[0], every=0.02) as progress:
        for done in (900, 910, 920):  # 900 were kept from a run before
            progress("encoding", done, 1000)
            now[0] += 12
        time.sleep(0.2)
        progress("linking", 0, 5000)
        time.sleep(0.2)
    told = capsys.readouterr().out.splitlines()
    assert len(told) > 4
    assert set(told) == {"encoding 920 of 1,000, about 2 min left", "linking 0 of 5,000"}
