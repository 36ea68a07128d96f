"""Renamed copies on disk: format, record, refusal; and the public samples beside the checkout."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import Any

import pytest

from ga_dspy.errors import InputError
from ga_dspy.eval import WrongFormat, read
from ga_dspy.eval.files import detect, read_rows
from ga_dspy.eval.protocol import file_digest
from ga_dspy.eval.renaming import (
    CopyChanged,
    NothingToRead,
    provenance,
    record_path,
    rename_file,
    rename_rows,
)

ROW: dict[str, Any] = {
    "_id": "q1",
    "question": "Where does Ludo Hasek live?",
    "answer": "Kremsau",
    "supporting_facts": [["Ludo Hasek", 0]],
    "context": [["Ludo Hasek", ["Ludo Hasek (born 1961) lives in Kremsau.", " He paints."]]],
}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "dev.json"
    path.write_text(json.dumps([ROW, {**ROW, "_id": "q2"}]), encoding="utf-8")
    return path


def test_a_copy_has_the_sources_format_fields_ids_and_order(source: Path, tmp_path: Path) -> None:
    rename_file(source, tmp_path / "copy.json", 5)
    rows = json.loads((tmp_path / "copy.json").read_text(encoding="utf-8"))
    assert [row["_id"] for row in rows] == ["q1", "q2"]
    assert [list(row) for row in rows] == [list(ROW), list(ROW)]
    assert rows[0]["answer"] != "Kremsau"


def test_json_lines_stay_json_lines(tmp_path: Path) -> None:
    source, out = tmp_path / "dev.jsonl", tmp_path / "copy.jsonl"
    source.write_text(f"{json.dumps(ROW)}\n{json.dumps(ROW)}\n", encoding="utf-8")
    rename_file(source, out, 5)
    assert [json.loads(line)["_id"] for line in out.read_text("utf-8").splitlines()] == ["q1"] * 2


def test_the_same_seed_writes_the_same_bytes(source: Path, tmp_path: Path) -> None:
    for name, seed in (("a.json", 5), ("b.json", 5), ("c.json", 6)):
        rename_file(source, tmp_path / name, seed)
    a, b, c = (file_digest(tmp_path / name) for name in ("a.json", "b.json", "c.json"))
    assert a == b != c


def test_the_record_names_source_seed_and_digests_but_no_text(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "copy.json"
    report = rename_file(source, out, 5)
    known = provenance(out)
    assert known is not None
    assert (known.source, known.seed, known.questions) == ("dev.json", 5, 2)
    assert (known.source_sha256, known.sha256) == (file_digest(source), file_digest(out))
    assert known.derivable_in_copy == report.derivable_in_copy == 1.0
    text = record_path(out).read_text(encoding="utf-8")
    assert "Hasek" not in text and "Kremsau" not in text


def test_a_file_without_a_record_has_no_provenance(source: Path) -> None:
    assert provenance(source) is None


def test_a_copy_that_was_changed_afterwards_is_refused(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "copy.json"
    rename_file(source, out, 5)
    out.write_text(out.read_text(encoding="utf-8") + " ", encoding="utf-8")
    with pytest.raises(CopyChanged, match="make the copy again"):
        provenance(out)


def test_a_damaged_record_is_refused(source: Path) -> None:
    record_path(source).write_text("{}", encoding="utf-8")
    with pytest.raises(InputError, match="cannot be read as the record"):
        provenance(source)


def test_the_mapping_is_written_only_on_request(source: Path, tmp_path: Path) -> None:
    rename_file(source, tmp_path / "copy.json", 5, mapping=tmp_path / "names.csv")
    with (tmp_path / "names.csv").open(encoding="utf-8", newline="") as file:
        rows = {row["old"]: row for row in csv.DictReader(file)}
    assert rows["Ludo Hasek"]["kind"] == "person"
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "copy.json",
        "copy.json.rename.json",
        "dev.json",
        "names.csv",
    ]


def test_the_source_is_never_written_to(source: Path) -> None:
    with pytest.raises(InputError, match="is the source itself"):
        rename_file(source, source, 5)


def test_a_file_of_another_dataset_is_refused_and_nothing_is_written(
    source: Path, tmp_path: Path
) -> None:
    with pytest.raises(WrongFormat):
        rename_file(source, tmp_path / "copy.json", 5, dataset="musique")
    assert not (tmp_path / "copy.json").exists()


@pytest.mark.data
def test_bamboogle_has_nothing_to_read_the_new_names_from(data: Path, tmp_path: Path) -> None:
    with pytest.raises(NothingToRead):
        rename_file(data / "bamboogle" / "test.json", tmp_path / "copy.json", 5)


@pytest.mark.data
@pytest.mark.parametrize(
    ("dataset", "file"),
    [
        ("hotpotqa", "hotpotqa/dev_distractor.json"),
        ("hotpotqa", "hotpotqa/dev_fullwiki.json"),
        ("2wikimultihopqa", "2wikimultihopqa/dev.json"),
        ("musique", "musique/dev.jsonl"),
    ],
)
def test_real_rows_load_as_before_with_their_digits_titles_and_answers(
    dataset: str, file: str, data: Path, tmp_path: Path
) -> None:
    path, out = tmp_path / "source.json", tmp_path / "copy.json"
    path.write_text(json.dumps(read_rows(data / file)[:30]), encoding="utf-8")
    report = rename_file(path, out, 7)
    source, copied = read(dataset, path), read(dataset, out)
    assert report.derivable_in_copy >= report.derivable_in_source > 0.5
    assert copied.report.flaws == source.report.flaws
    assert copied.report.examples == source.report.examples
    for old, new in zip(source.examples, copied.examples, strict=True):
        assert (old.id, old.type, len(old.gold_titles)) == (new.id, new.type, len(new.gold_titles))
    assert _digits(path) == _digits(out)


@pytest.mark.data
@pytest.mark.slow
@pytest.mark.parametrize(
    "file",
    [
        "hotpotqa/train.json",
        "hotpotqa/dev_distractor.json",
        "hotpotqa/dev_fullwiki.json",
        "2wikimultihopqa/dev.json",
        "musique/train.jsonl",
        "musique/dev.jsonl",
    ],
)
def test_a_whole_real_file_loses_no_answer_and_leaks_no_name(file: str, data: Path) -> None:
    rows = [row for row in read_rows(data / file) if isinstance(row, dict)]
    report = rename_rows(rows, detect(data / file), 7).report
    assert report.leaks == 0
    assert report.derivable_in_copy >= report.derivable_in_source


def _digits(path: Path) -> list[str]:
    rows = [row for row in read_rows(path) if isinstance(row, dict)]
    for row in rows:
        for name in ("entity_ids", "evidences_id", "answer_id"):
            row.pop(name, None)
    return re.findall(r"\d+", json.dumps(rows, ensure_ascii=False))
