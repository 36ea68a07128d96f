"""The store under an index: segments that come, go and merge, and searches that read a part."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from measure_scale import scale, synthetic, synthetic_questions

from ga_dspy.passage import Passage
from ga_dspy.retrieval import Index
from ga_dspy.retrieval.engine import LocalEngine
from ga_dspy.retrieval.postings import KINDS, word_keys


def links(engine: LocalEngine) -> set[tuple[str, str, float]]:
    """All links, by the ids of what they join."""
    rows = engine.rows()
    found = engine.links(rows, np.zeros(len(rows)))
    ids = {row: engine.passages([row])[0].id for row in rows.tolist()}
    cells = zip(rows[found.source].tolist(), found.target.tolist(), found.weight, strict=True)
    return {(ids[one], ids[other], round(float(weight), 9)) for one, other, weight in cells}


def alike(index: Index, other: Index, questions: Sequence[str]) -> None:
    for kind in KINDS:
        for question in questions:
            one, two = (i.as_kind(kind).search(question, 10) for i in (index, other))
            assert [hit.passage.id for hit in one] == [hit.passage.id for hit in two]
            assert [h.score for h in one] == pytest.approx([h.score for h in two], abs=2e-6)


# --- Changes

NAMES = ("New York", "New York Times", "York", "Times Square", "The Who", "東京", "Beyoncé", "Ada")
some = st.tuples(st.sampled_from(NAMES), st.lists(st.sampled_from(NAMES), max_size=3))


def written(number: int, title: str, mentions: list[str]) -> Passage:
    text = " ".join(f"It is near {name}." for name in mentions) or "No names here."
    return Passage(id=str(number), title=title, text=text)


@settings(max_examples=40)
@given(
    st.lists(some, min_size=1, max_size=18), st.lists(some, max_size=6), st.sets(st.integers(0, 17))
)
def test_links_after_changes_equal_those_of_a_new_index(
    first: list[Any], then: list[Any], gone: set[int]
) -> None:
    old = [written(i, *one) for i, one in enumerate(first)]
    new = [written(100 + i, *one) for i, one in enumerate(then)]
    index = Index.from_passages(old, encoder="hash-16")
    for passage in new:
        index.add([passage])
    left = [p for i, p in enumerate(old) if i not in gone] + new
    if len(left) < len(old) + len(new) and left:
        index.delete([p.id for i, p in enumerate(old) if i in gone])
    else:
        left = old + new
    scratch = Index.from_passages(left, encoder="hash-16")
    assert links(index.engine) == links(scratch.engine)
    alike(index, scratch, ["What is near New York?", "where is the who", "Ada"])


def test_a_name_is_ignored_while_too_many_passages_share_it() -> None:
    bearers = [Passage(id=f"b{i}", title=f"Quist ({i})", text="A person.") for i in range(12)]
    index = Index.from_passages(
        [*bearers, Passage(id="m", text="It was by Quist.")], encoder="hash-16"
    )
    assert len(index.engine.rows_named("Quist")) == 12
    index.add([Passage(id="b12", title="Quist (12)", text="A person.")])
    assert len(index.engine.rows_named("Quist")) == 0
    index.delete(["b0"])
    assert len(index.engine.rows_named("Quist")) == 12
    assert {other for one, other, _ in links(index.engine) if one == "m"} == {
        f"b{i}" for i in range(1, 13)
    }


def test_many_changes_in_a_folder_equal_a_build_from_scratch(tmp_path: Path) -> None:
    passages = list(synthetic(400, words=20))
    index = Index.build(passages[:200], tmp_path / "i", encoder="hash-32")
    for at in range(200, 400, 25):
        index.add(passages[at : at + 25])
        index.delete([passage.id for passage in passages[at - 200 : at - 190]])
    assert len(index.engine.segments) < 5
    gone = {p.id for at in range(200, 400, 25) for p in passages[at - 200 : at - 190]}
    left = [passage for passage in passages if passage.id not in gone]
    assert list(index) == left
    scratch = Index.from_passages(left, encoder="hash-32")
    opened = Index.open(tmp_path / "i")
    assert links(opened.engine) == links(scratch.engine)
    alike(opened, scratch, list(synthetic_questions(left[::40])))


def test_adding_passages_does_not_rewrite_existing_segments(tmp_path: Path) -> None:
    index = Index.build(synthetic(300, words=20), tmp_path / "i", encoder="hash-16")

    def files() -> dict[str, int]:
        return {path.name: path.stat().st_ino for path in tmp_path.glob("i/contents-*/0000/*")}

    before = files()
    index.add([Passage(id="new", title="Harbour", text="A lighthouse.")])
    index.delete(["7"])
    assert files() == before
    assert len(index.engine.segments) == 2
    index.verify()


# --- Large corpora


def test_skipping_low_weight_words_does_not_change_the_results(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    passages = list(synthetic(1500, words=40))
    index = Index.from_passages(passages, kind="sparse", encoder="hash-16")
    engine, questions = index.engine, list(synthetic_questions(passages[::50]))
    whole = [engine.best(question, 10) for question in questions]
    monkeypatch.setattr("ga_dspy.retrieval.engine._LONG", 20)
    for question, (rows, scores) in zip(questions, whole, strict=True):
        few, their = engine.best(question, 10)
        assert few.tolist() == rows.tolist()
        assert their == pytest.approx(scores, abs=1e-5)
        weights = engine.weigh(question, rows)
        assert weights.times @ weights.cells == pytest.approx(scores, abs=1e-5)
        assert weights.times.sum() == len(word_keys(question))


def test_a_large_corpus_is_analysed_by_several_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    passages = list(synthetic(90, words=20))
    memory = Index.from_passages(passages, encoder="hash-16")
    monkeypatch.setattr("ga_dspy.retrieval.segments._PARALLEL_FROM", 10)
    monkeypatch.setattr("ga_dspy.retrieval.segments.os.cpu_count", lambda: 2)
    monkeypatch.setattr("ga_dspy.retrieval.postings._BLOCK", 100)
    index = Index.build(iter(passages), tmp_path / "i", encoder="hash-16")
    assert links(index.engine) == links(memory.engine)
    alike(index, memory, list(synthetic_questions(passages[::10])))


def test_a_large_segment_has_a_vector_index_that_sees_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    passages = list(synthetic(1200, words=20))
    flat = Index.from_passages(passages, kind="dense", encoder="hash-64")
    assert flat.engine.segments[0].near is None
    monkeypatch.setattr("ga_dspy.retrieval.segments.EXACT", 500)
    index = Index.build(passages, tmp_path / "i", kind="dense", encoder="hash-64")
    assert index.engine.segments[0].near is not None
    questions = [passage.content for passage in passages[::40]]
    same = [index(q, 1)[0].id == flat(q, 1)[0].id for q in questions]
    assert sum(same) >= 0.9 * len(same)
    index.delete([passage.id for passage in passages[::40]])
    gone = {passage.id for passage in passages[::40]}
    assert not any(p.id in gone for q in questions for p in Index.open(tmp_path / "i")(q, 5))
    index.add([Passage(id="new", title="Harbour", text="A lighthouse stands there.")])
    assert index("Harbour lighthouse", 1)[0].id == "new"


# --- What an index of any size costs


def test_the_cost_of_an_index_is_benchmarked_against_bare_libraries(tmp_path: Path) -> None:
    pytest.importorskip("bm25s")
    found = scale(tmp_path / "index", 500, 20, "hash-16", 10)
    assert found["passages"] == 500
    for figure in ("build_s", "build_rss_mb", "rss_mb", "disk_mb", "open_s", "add_100_s"):
        assert found[figure] > 0
    for search in (*KINDS, "faiss", "bm25"):
        assert 0 < found[search]["p50_ms"] <= found[search]["p95_ms"]


def test_a_synthetic_corpus_is_deterministic_with_unique_titles() -> None:
    passages = list(synthetic(5000, words=12))
    assert passages == list(synthetic(5000, words=12))
    assert passages[0].text != next(synthetic(5000, words=12, seed=1)).text
    assert len({passage.title for passage in passages}) == 5000
