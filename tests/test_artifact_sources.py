"""Sources of artifacts, and the comparison of two."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import dspy
import pytest

from ga_dspy.artifact import diff, load, save, show, verify
from ga_dspy.cli import main
from ga_dspy.errors import ArtifactError, MissingExtra
from ga_dspy.passage import Passage
from ga_dspy.programs import VanillaRAG


def search(query: str, k: int) -> list[Passage]:
    return []


@pytest.fixture
def artifact(tmp_path: Path) -> Path:
    return save(VanillaRAG(search, k=3), tmp_path / "artifact")


def resolver(monkeypatch: pytest.MonkeyPatch, name: str, answer: Path) -> list[str]:
    """A module whose `resolve` gives that folder, or needs mlflow where there is none."""
    module, asked = ModuleType(name), list[str]()

    def resolve(uri: str) -> Path:
        asked.append(uri)
        return answer

    module.__dict__["resolve"] = resolve
    monkeypatch.setitem(sys.modules, name, module)
    return asked


@pytest.mark.parametrize("uri", ["models:/qa@champion", "models:/qa/3", "runs:/0a1b/artifact"])
def test_a_registry_address_is_resolved_on_load(
    artifact: Path, monkeypatch: pytest.MonkeyPatch, uri: str
) -> None:
    asked = resolver(monkeypatch, "ga_dspy.optimize.mlflow_store", artifact)
    assert load(uri, retriever=search).settings()["k"] == 3
    assert show(uri).path == artifact
    assert verify(uri) == ""
    assert asked == [uri] * 3


def test_an_address_of_an_unknown_scheme_is_a_missing_folder() -> None:
    with pytest.raises(
        ArtifactError, match=r"no file or folder gs:.*; expected a folder with program"
    ):
        load("gs://bucket/qa", retriever=search)


def test_a_path_may_be_a_string(artifact: Path) -> None:
    assert (
        load(str(artifact), retriever=search).settings()
        == load(artifact, retriever=search).settings()
    )


def test_a_windows_drive_path_is_not_a_registry_address() -> None:
    with pytest.raises(ArtifactError, match="there is no "):
        show("C:/artifacts/qa")


def test_without_mlflow_the_extra_to_install_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(MissingExtra, match=r"mlflow is not installed; .*ga-dspy\[optimize\]"):
        load("models:/qa@champion", retriever=search)


def test_two_artifacts_of_one_program_have_no_diff(artifact: Path, tmp_path: Path) -> None:
    again = save(VanillaRAG(search, k=3), tmp_path / "again")
    assert diff(artifact, again) == ""


def test_a_diff_shows_what_compiling_changed(tmp_path: Path) -> None:
    before, after = VanillaRAG(search), VanillaRAG(search, k=8)
    before.answer.demos = []
    before.answer.signature = before.answer.signature.with_instructions("Answer.\nBe brief.")
    after.answer.signature = after.answer.signature.with_instructions("Answer.\nQuote the passage.")
    after.answer.demos = [dspy.Example(question="Who?", answer="Ann\nand Bob")]
    scores = {"n": 50, "held_out": "test", "f1_after": 40.0, "ci95_after": [30, 50]}
    a = save(before, tmp_path / "a")
    recipe = {"name": "bootstrap"}
    b = save(after, tmp_path / "b", scores=scores, recipe=recipe, lms={"task": "x/y"})
    changed = [line for line in diff(a, b).splitlines() if line[0] in "+-"]
    assert changed == [
        f"--- {a}",
        f"+++ {b}",
        "-  k: 5",
        "+  k: 8",
        "+recipe:",
        "+  name: bootstrap",
        "+lms:",
        "+  task: x/y",
        "+scores:",
        "+  n: 50",
        "+  held_out: test",
        "+  f1_after: 40.0",
        "+  ci95_after:",
        "+    1: 30",
        "+    2: 50",
        "-        Be brief.",
        "+        Quote the passage.",
        "+    demos:",
        "+      1:",
        "+        question: Who?",
        "+        answer:",
        "+          Ann",
        "+          and Bob",
    ]


def test_a_diff_of_a_path_that_is_not_an_artifact_names_it(artifact: Path, tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="nowhere"):
        diff(artifact, tmp_path / "nowhere")


def test_control_characters_in_an_artifact_are_printed_as_escapes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program = VanillaRAG(search)
    hostile = "Clear \x1b[2J and \u202eturn\u202c, ring \x07."
    program.answer.demos = [dspy.Example(question=hostile, answer=hostile)]
    program.answer.signature = program.answer.signature.with_instructions(hostile)
    paths = [save(VanillaRAG(search), tmp_path / "a"), save(program, tmp_path / "b")]
    for arguments in (["show", str(paths[1])], ["diff", *map(str, paths)]):
        monkeypatch.setattr(sys, "argv", ["ga-dspy", "artifact", *arguments])
        with pytest.raises(SystemExit):
            main()
        shown = capsys.readouterr().out
        assert not {"\x1b", "\u202e", "\u202c", "\x07"} & set(shown)
        assert shown.count("\\x1b[2J") == shown.count("\\u202e") == 3
