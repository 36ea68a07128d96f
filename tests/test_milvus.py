"""An index that is searched in Milvus: the same results as where its folder is searched."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ga_dspy import VanillaRAG, demo
from ga_dspy.errors import GaDspyError, InputError
from ga_dspy.eval import load
from ga_dspy.passage import Passage
from ga_dspy.retrieval import Index

pytest.importorskip("milvus_lite")
QUESTIONS = [one.question for one in load("hotpotqa", demo.questions("dev"), limit=8)]


def made(folder: Path, name: str, **options: Any) -> Index:
    return Index.build(demo.corpus(), folder / name, encoder="hash-64", **options)


@pytest.fixture(scope="module")
def local_index(tmp_path_factory: pytest.TempPathFactory) -> Index:
    return made(tmp_path_factory.mktemp("local_index"), "index")


@pytest.fixture(scope="module")
def milvus_index(tmp_path_factory: pytest.TempPathFactory) -> Index:
    folder = tmp_path_factory.mktemp("milvus_index")
    return made(folder, "index", milvus=str(folder / "milvus.db"))


def check_same(remote: Index, local: Index, question: str) -> None:
    """Check that the best five are those found locally, at scores as high.

    Milvus keeps the lengths of texts in a byte: scores differ by a few percent, and those that are
    nearly equal may change places.
    """
    expected_hits, hits = local.search(question, 10), remote.search(question, 5)
    assert hits[0].passage == expected_hits[0].passage
    scores = {hit.passage: hit.score for hit in expected_hits}
    expected = pytest.approx([hit.score for hit in expected_hits[:5]], rel=0.04)
    assert [scores[hit.passage] for hit in hits] == expected
    assert [hit.score for hit in hits] == pytest.approx(
        [hit.score for hit in expected_hits[:5]], rel=0.1
    )


@pytest.mark.parametrize("kind", ["sparse", "dense", "hybrid", "linked"])
def test_every_kind_of_search_finds_what_a_local_index_finds(
    local_index: Index, milvus_index: Index, kind: str
) -> None:
    for question in QUESTIONS:
        check_same(milvus_index.as_kind(kind), local_index.as_kind(kind), question)


def test_conditions_are_refused_as_soon_as_they_are_given(milvus_index: Index) -> None:
    for narrow in (milvus_index.only, VanillaRAG(milvus_index).only):
        with pytest.raises(InputError, match=r"conditions on metadata for an index .* Milvus"):
            narrow({"tenant": "acme"})


def test_the_manifest_is_enough_to_search_but_not_to_change_an_index(
    milvus_index: Index, tmp_path: Path
) -> None:
    assert milvus_index.path is not None
    shutil.copy(milvus_index.path / "manifest.json", tmp_path)
    alone = Index.open(tmp_path)
    assert alone(QUESTIONS[0]) == milvus_index(QUESTIONS[0])
    assert len(alone) == len(milvus_index) == len(list(alone))
    first = next(iter(milvus_index))
    assert alone.get(first.id) == first and first.id in alone
    with pytest.raises(InputError, match="the folder in which the index was built"):
        alone.delete([first.id])


def test_added_and_deleted_passages_give_the_results_of_a_new_index(
    tmp_path: Path,
) -> None:
    index = made(tmp_path, "index", milvus=str(tmp_path / "milvus.db"))
    new = Passage(
        id="new", title="Ines Marlow", text="Ines Marlow was born in The Hague.",
        metadata={"source": "a.md"},
    )  # fmt: skip
    index.add([new])
    gone = [passage.id for passage in demo.corpus()[:3]]
    index.delete(gone)
    kept = [passage for passage in demo.corpus() if passage.id not in gone]
    built = Index.from_passages([*kept, new], encoder="hash-64")
    assert index("Ines Marlow", 1) == [new]
    for question in ("Where was Ines Marlow born?", *QUESTIONS[:3]):
        check_same(index, built, question)
    # So many deletions number the rows anew: all is published again, under another name.
    index.delete([passage.id for passage in kept[:40]])
    few = Index.from_passages([*kept[40:], new], encoder="hash-64")
    check_same(index, few, QUESTIONS[1])
    assert len(index) == len(few)


def test_a_sparse_index_needs_no_vectors(tmp_path: Path, local_index: Index) -> None:
    index = made(tmp_path, "index", kind="sparse", milvus=str(tmp_path / "milvus.db"))
    assert index(QUESTIONS[0]) == local_index.as_kind("sparse")(QUESTIONS[0])


def test_an_unreachable_server_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(GaDspyError, match="no answer from Milvus at http://127"):
        made(tmp_path, "index", milvus="http://127.0.0.1:1")
    with pytest.raises(InputError, match="contains a password"):
        made(tmp_path, "other", milvus="http://user:secret@127.0.0.1:1")


def test_the_command_line_builds_and_searches_a_milvus_index(
    tmp_path: Path, command: Callable[..., Any]
) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "bridge.md").write_text("# Halden Bridge\n\nNils Haug designed it.")
    options = ("--out", "ix", "--encoder", "hash-64", "--engine", "milvus", "--uri", "m.db")
    done = command("index", "build", "docs", *options, cwd=tmp_path)
    assert done.returncode == 0 and "in Milvus" in done.stdout, done.stderr
    done = command("index", "search", "Who designed the bridge?", "--index", "ix", cwd=tmp_path)
    assert "Halden Bridge" in done.stdout, done.stderr
    done = command("index", "build", "docs", "--out", "iy", "--engine", "milvus", cwd=tmp_path)
    assert done.returncode == 2 and "--uri" in done.stderr
