"""Fuzzing: no reader lets anything but a named error out, whatever it is given."""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from fuzz_readers import Target, fuzz, targets
from hypothesis import given, settings
from hypothesis import strategies as st

from ga_dspy.demo import corpus
from ga_dspy.errors import DamagedFile, InputError
from ga_dspy.eval.datasets import load
from ga_dspy.graph import from_json
from ga_dspy.lm.replies import read_reply
from ga_dspy.retrieval import Index, read_passages
from ga_dspy.signatures import AnswerQuestion, GraphProposal

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(st.characters()),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


def test_every_reader_accepts_or_refuses_fuzzed_input(tmp_path: Path) -> None:
    found = [fuzz(target, 25) for target in targets(tmp_path)]
    assert [fault for one in found for fault in one.faults] == []
    assert all(one.read + one.refused == one.inputs == 25 for one in found)
    assert len(found) == 13


def test_an_unnamed_error_is_reported_with_its_input() -> None:
    def read_badly(at: Path, name: str) -> None:
        json.loads((at / name).read_bytes())

    found = fuzz(Target("bad", {"a.json": b'{"a": 1}'}, read_badly), 50)
    assert not found.holds
    assert found.escaped + found.read == 50
    assert found.faults[0].startswith("bad: ")
    assert "(a.json)" in found.faults[0]


def test_fuzz_inputs_depend_only_on_the_seed() -> None:
    def inputs(seed: int) -> list[bytes]:
        seen: list[bytes] = []
        target = Target("t", {"a": b"some text"}, lambda at, n: seen.append((at / n).read_bytes()))
        fuzz(target, 20, seed)
        return seen

    assert inputs(1) == inputs(1)
    assert inputs(1) != inputs(2)


@settings(max_examples=60)
@given(ANYTHING)
def test_any_json_row_becomes_a_passage_or_is_refused(value: object) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "row.jsonl"
        path.write_text(json.dumps(value))
        with suppress(InputError):
            assert read_passages(path)


@given(st.text(max_size=200))
def test_any_text_parses_as_a_proposal_and_as_a_reply_or_none(text: str) -> None:
    assert isinstance(GraphProposal.model_validate(text).format(), str)
    values = read_reply(AnswerQuestion, text, ())
    assert values is not None
    assert values.keys() == AnswerQuestion.output_fields.keys()


@given(st.text(max_size=200) | ANYTHING.map(json.dumps))
def test_any_text_is_read_as_a_graph_or_is_a_damaged_file(text: str) -> None:
    with suppress(DamagedFile):
        assert isinstance(from_json(text).entities, tuple)


@pytest.mark.parametrize("text", ["[" * 100_000, "9" * 5000, '[{"a":' * 10_000])
def test_invalid_json_is_a_named_error(text: str, tmp_path: Path) -> None:
    for name in ("a.json", "a.jsonl"):
        (tmp_path / name).write_text(text)
        with pytest.raises(InputError):
            read_passages(tmp_path / name)
        with pytest.raises(InputError):
            load("hotpotqa", tmp_path / name)


def test_a_damaged_index_with_a_forged_manifest_is_refused(tmp_path: Path) -> None:
    Index.build(corpus()[:3], tmp_path / "index", kind="sparse")
    (table,) = tmp_path.rglob("passages.arrow")
    manifest = tmp_path / "index" / "manifest.json"
    about = json.loads(manifest.read_text())
    data = b"x" * table.stat().st_size
    table.write_bytes(data)
    name = table.relative_to(tmp_path / "index").as_posix()
    about["files"][name]["sha256"] = hashlib.sha256(data).hexdigest()
    manifest.write_text(json.dumps(about))
    with pytest.raises(DamagedFile, match="cannot be read"):
        Index.open(tmp_path / "index")
