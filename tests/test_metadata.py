"""What is known of a passage beside its text: kept, stored, shown with the evidence."""

from __future__ import annotations

import copy
import datetime
import hashlib
import json
import pickle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dspy
import numpy as np
import pytest

from ga_dspy import GraphAnchor, Index, extractive_lm
from ga_dspy.passage import Metadata, Passage
from ga_dspy.retrieval import as_retriever
from ga_dspy.retrieval.store import hashing
from ga_dspy.signatures.prompt import render_passage

FILED = {"source": "company/halden-bridge.pdf", "page": 3}
BRIDGE = Passage(
    id="b", title="Halden Bridge", text="Nils Haug designed the Halden Bridge.", metadata=FILED
)


def test_a_passage_with_metadata_is_hashable_and_survives_copies_pickle_and_json() -> None:
    for other in (
        copy.deepcopy(BRIDGE),
        pickle.loads(pickle.dumps(BRIDGE)),
        Passage.model_validate_json(BRIDGE.model_dump_json()),
        BRIDGE.model_copy(update={"metadata": Metadata(reversed(FILED.items()))}),
    ):
        assert other == BRIDGE
        assert len({other, BRIDGE}) == 1
    assert BRIDGE.model_copy(update={"metadata": Metadata()}) != BRIDGE


def test_metadata_cannot_be_changed() -> None:
    changes: list[Any] = [
        lambda m: m.update(page=4),
        lambda m: m.pop("page"),
        lambda m: m.clear(),
        lambda m: m.__setitem__("page", 4),
        lambda m: m.__ior__({"page": 4}),
    ]
    for change in changes:
        with pytest.raises(TypeError, match="is immutable"):
            change(BRIDGE.metadata)
    assert BRIDGE.metadata == FILED


def test_values_that_json_cannot_represent_become_text_or_are_dropped() -> None:
    kept = Metadata(
        {
            "date": datetime.date(2019, 4, 1), "n": np.int64(4), "nan": float("nan"), "no": None,
            "blank": " ", "loc": {"line": 1}, "tags": ["a", None],
            "rows": [[1], [2]], "path": Path("a/b"), "long": "x" * 5000, 7: "seven",
            "half": "caf\ud800",
        }
    )  # fmt: skip
    assert len(str(kept["long"])) == 1000
    assert {name: value for name, value in kept.items() if name != "long"} == {
        "date": "2019-04-01", "n": 4, "tags": ("a",), "path": "a/b",
        "7": "seven", "half": "caf?",
    }  # fmt: skip
    json.dumps(kept, allow_nan=False)


def test_empty_metadata_is_not_serialised() -> None:
    plain = Passage(id="7", title="Oslo", text="A city.")
    assert plain.model_dump() == {"id": "7", "text": "A city.", "title": "Oslo"}
    assert repr(plain) == "Passage(id='7', text='A city.', title='Oslo')"


@pytest.mark.parametrize(
    ("item", "source"),
    [
        ({"text": "A.", "metadata": FILED}, "company/halden-bridge.pdf, p. 3"),
        ({"text": "A.", "url": "http://x", "page": 3, "score": 0.5}, "http://x, p. 3"),
        (
            SimpleNamespace(page_content="A.", metadata={"source": "a.pdf", "page": 2}),
            "a.pdf, p. 2",
        ),
        (
            SimpleNamespace(
                page_content="A.", metadata={"file_path": "a.pdf", "page": 2, "page_label": "iii"}
            ),
            "a.pdf, p. iii",
        ),
    ],
)
def test_the_source_is_read_from_a_retrievers_metadata(item: Any, source: str) -> None:
    (passage,) = as_retriever(lambda query: [item])("a", 1)
    assert passage.source == source
    assert "score" not in passage.metadata


def test_metadata_is_in_the_evidence_and_never_in_a_prompt() -> None:
    assert "halden-bridge" not in render_passage(1, BRIDGE)
    program = GraphAnchor(lambda query: [BRIDGE], max_steps=1)
    with dspy.context(lm=extractive_lm()):
        found = program(question="Who designed the Halden Bridge?")
    link = found.evidence[0]
    assert link.metadata == FILED
    assert str(link).endswith("(Halden Bridge; company/halden-bridge.pdf, p. 3)")
    assert found.to_dict()["evidence"][0]["metadata"] == FILED


def test_a_citation_has_file_and_page() -> None:
    from ga_dspy.programs.evidence import check_citations

    (citation,) = check_citations("Nils Haug designed the Halden Bridge [1].", {1: BRIDGE})
    assert citation.holds
    assert citation.source == "company/halden-bridge.pdf, p. 3"


def test_a_stored_index_keeps_metadata(tmp_path: Path) -> None:
    plain = Passage(id="7", title="Oslo", text="A city.")
    Index.build([BRIDGE, plain], tmp_path / "i", kind="sparse")
    again = Index.open(tmp_path / "i")
    assert list(again) == [BRIDGE, plain]
    assert again.get("b").metadata == FILED


def test_the_hash_of_passages_includes_metadata_only_if_present() -> None:
    plain = Passage(id="7", title="Oslo", text="A city.")

    def source_hash(passage: Passage) -> str:
        digest = hashlib.sha256()
        assert list(hashing([passage], digest)) == [passage]
        return digest.hexdigest()

    assert source_hash(plain) == (
        "25daa8ebb0843d965639c010d81d698bae90aad36bd6895ac31df4dfd8cdbe88"
    )
    assert source_hash(BRIDGE) != source_hash(BRIDGE.model_copy(update={"metadata": {}}))
