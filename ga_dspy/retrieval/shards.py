"""Encoding a corpus in shards that survive a stopped build.

A shard is named by the hash of its texts and of the encoder, so a build that runs again, on the
same passages or on some of them, finds what is already encoded.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from ga_dspy.errors import GaDspyError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ga_dspy.retrieval.encoder import Encoder

Progress: TypeAlias = Callable[[str, int, int], None]
"""Called with a stage's name, the units done and the units in all."""

SHARD = 256


class BadVectors(GaDspyError):
    """An encoder returned something other than one finite unit vector for each text."""

    def __init__(self, encoder: str, found: str, expected: str) -> None:
        super().__init__(
            f"encoder {encoder!r} returned {found}; expected {expected}; "
            "normalise its output and return one row for each text"
        )


def encode_texts(
    texts: Sequence[str],
    encoder: Encoder,
    *,
    work: Path | None = None,
    progress: Progress | None = None,
    shard_size: int = SHARD,
) -> NDArray[np.float32]:
    """Encode texts, shape (texts, dimension), keeping each finished shard in `work`.

    Raises:
        BadVectors: The encoder's output has another shape, is not finite or not of length 1.
    """
    import numpy as np

    blocks = []
    for start in range(0, len(texts), shard_size):
        if progress:
            progress("encoding", start, len(texts))
        blocks.append(_shard(texts[start : start + shard_size], encoder, work))
    if progress:
        progress("encoding", len(texts), len(texts))
    return np.concatenate(blocks)


def _shard(texts: Sequence[str], encoder: Encoder, work: Path | None) -> NDArray[np.float32]:
    import numpy as np

    if work is None:
        return _checked(encoder.encode(texts), len(texts), encoder)
    path = work / f"{_shard_name(texts, encoder)}.npy"
    kept = _kept(path)
    if kept is not None:
        return _checked(kept, len(texts), encoder)
    vectors = _checked(encoder.encode(texts), len(texts), encoder)
    # Written under another name first: a file with the right name is always whole.
    draft = path.with_suffix(".new.npy")
    np.save(draft, vectors)
    draft.replace(path)
    return vectors


def _kept(path: Path) -> NDArray[np.float32] | None:
    """A finished shard; one that a power failure left unreadable counts as unfinished."""
    import numpy as np

    try:
        return np.asarray(np.load(path, allow_pickle=False), dtype=np.float32)
    except (FileNotFoundError, EOFError, ValueError):
        return None


def _shard_name(texts: Sequence[str], encoder: Encoder) -> str:
    digest = hashlib.sha256(encoder.fingerprint.encode())
    for text in texts:
        digest.update(hashlib.sha256(text.encode()).digest())
    return digest.hexdigest()[:32]


def _checked(vectors: NDArray[np.float32], count: int, encoder: Encoder) -> NDArray[np.float32]:
    import numpy as np

    vectors = np.asarray(vectors, dtype=np.float32)
    if vectors.ndim != 2 or len(vectors) != count:
        raise BadVectors(encoder.name, f"shape {vectors.shape}", f"({count}, dimension)")
    lengths = np.linalg.norm(vectors, axis=1)
    if not np.allclose(lengths, 1.0, atol=1e-2):
        worst = lengths[np.argmax(np.abs(np.nan_to_num(lengths, nan=np.inf) - 1))]
        raise BadVectors(encoder.name, f"a vector of length {worst:.3g}", "vectors of length 1")
    return vectors
