"""Rerankers: a second look at what a search found."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from pathlib import Path

import dspy
import pytest

import ga_dspy
from ga_dspy.demo import corpus
from ga_dspy.errors import InputError

QUERY = "Who discovered Titan?"


def by_length(query: str, texts: Sequence[str]) -> list[float]:
    assert query
    return [float(len(text)) for text in texts]


def test_a_function_can_rerank_search_results() -> None:
    plain = ga_dspy.Index.from_passages(corpus(), kind="sparse")
    index = ga_dspy.Index.from_passages(corpus(), kind="sparse", reranker=by_length)
    first = {passage.id for passage in plain(QUERY, 50)}
    hits = index.search(QUERY, 3)
    longest = sorted((p for p in corpus() if p.id in first), key=lambda p: -len(p.content))
    assert [hit.passage.id for hit in hits] == [passage.id for passage in longest[:3]]
    assert [hit.score for hit in hits] == [len(hit.passage.content) for hit in hits]
    assert index.description.endswith("reranked by by_length")
    assert [p.id for p in pickle.loads(pickle.dumps(index))(QUERY, 3)] == [
        hit.passage.id for hit in hits
    ]


def test_a_reranker_sees_only_passages_that_meet_the_conditions() -> None:
    passages = [{"text": f"Fact {n} of the mill.", "lang": lang} for n, lang in enumerate("abab")]
    seen: list[str] = []

    def note(query: str, texts: Sequence[str]) -> list[float]:
        seen.extend(texts)
        return [0.0] * len(texts)

    index = ga_dspy.Index.from_passages(passages, kind="sparse", reranker=note)
    assert len(index("mill", 5, where={"lang": "a"})) == 2
    assert seen == ["Fact 0 of the mill.", "Fact 2 of the mill."]


@pytest.mark.parametrize("scores", [[1.0], [float("nan")] * 40, "no"])
def test_invalid_reranker_scores_are_refused(scores: object) -> None:
    index = ga_dspy.Index.from_passages(
        corpus(),
        kind="sparse",
        reranker=lambda query, texts: scores,  # type: ignore[arg-type, return-value]
    )
    with pytest.raises(InputError, match="expected one finite number per text"):
        index(QUERY)


@pytest.fixture(scope="module")
def cross_encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cross-encoder of a few random weights."""
    transformers = pytest.importorskip("transformers")
    transformers.set_seed(1)
    folder = tmp_path_factory.mktemp("cross-encoder")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "who", "titan", "moon", "saturn", "a"]
    (folder / "vocab.txt").write_text("\n".join(words))
    transformers.BertTokenizerFast(str(folder / "vocab.txt")).save_pretrained(folder)
    config = transformers.BertConfig(
        vocab_size=len(words), hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=16, num_labels=1, initializer_range=1.0,
    )  # fmt: skip
    transformers.BertForSequenceClassification(config).save_pretrained(folder)
    return folder


def test_a_cross_encoder_is_saved_in_the_index_and_used_when_it_is_opened(
    cross_encoder: Path, tmp_path: Path
) -> None:
    name = str(cross_encoder)
    ga_dspy.Index.build(corpus(), tmp_path / "index", kind="sparse", reranker=name)
    index = ga_dspy.Index.open(tmp_path / "index")
    assert index.description.endswith(f"reranked by {name}")
    scores = [hit.score for hit in index.search(QUERY, 5)]
    assert scores == sorted(scores, reverse=True) and len(set(scores)) > 1
    assert pickle.loads(pickle.dumps(index)).search(QUERY, 5) == index.search(QUERY, 5)
    with dspy.context(lm=ga_dspy.extractive_lm()):
        assert ga_dspy.VanillaRAG(index)(question=QUERY).passages
    with pytest.raises(InputError, match="another index"):
        ga_dspy.Index.build(corpus(), tmp_path / "index", kind="sparse")


def test_a_reranker_that_cannot_be_loaded_is_named(tmp_path: Path) -> None:
    index = ga_dspy.Index.from_passages(corpus(), kind="sparse", reranker=str(tmp_path / "none"))
    with pytest.raises(InputError, match=r"CrossEncoder .*none.* cannot be loaded"):
        index(QUERY)
