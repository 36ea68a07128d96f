"""The artifacts in the repository are intact; compiling the demo again gives the same bytes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ga_dspy.artifact import load, verify
from ga_dspy.cli.choices import choose_lms
from ga_dspy.cli.compile import compile_program
from ga_dspy.demo import corpus, questions
from ga_dspy.retrieval import Index

ARTIFACT = Path(__file__).parents[1] / "artifacts" / "demo"


def test_the_committed_artifact_is_intact() -> None:
    assert verify(ARTIFACT) == ""


@pytest.mark.parametrize("name", ["vanilla-rag", "graph-anchor"])
def test_artifacts_for_a_small_lm_compare_facts_and_contain_no_dataset_rows(name: str) -> None:
    path = ARTIFACT.parent / "qwen2.5-coder-1.5b" / name
    assert verify(path) == ""
    made = load(path, retriever=lambda query, k: list(corpus())[:k])
    given = type(made)(made.retriever, compare_facts=True)
    assert made.settings() == given.settings()
    assert made.dump_state() == given.dump_state()
    scores = json.loads((path / "manifest.json").read_text())["scores"]
    assert scores["held_out"] == "test" and scores["f1_after"] > scores["f1_before"] + 5


@pytest.mark.slow
def test_recompiling_the_demo_artifact_gives_the_same_bytes_except_times(tmp_path: Path) -> None:
    pytest.importorskip("bm25s")
    Index.build(corpus(), tmp_path / "index")
    again = tmp_path / "demo"
    compile_program(
        choose_lms(), "hotpotqa", questions("train"), "10", tmp_path / "index", again,
        test=questions("dev"), recipe_name="bootstrap-rs", no_track=True,
    )  # fmt: skip
    program = "program.json"
    assert (again / program).read_bytes() == (ARTIFACT / program).read_bytes()
    assert timeless(again) == timeless(ARTIFACT)


def timeless(artifact: Path) -> dict[str, Any]:
    manifest: dict[str, Any] = json.loads((artifact / "manifest.json").read_text())
    del manifest["created"], manifest["cost"]["seconds"]
    return manifest
