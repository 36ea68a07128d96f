"""What an index is made from, checked before any work is done."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ga_dspy.retrieval.binding import describe
from ga_dspy.retrieval.contents import Contents, check_kind
from ga_dspy.retrieval.dense import dense_text
from ga_dspy.retrieval.encoder import Encoder, load_encoder
from ga_dspy.retrieval.manifest import Manifest
from ga_dspy.retrieval.passages import EmptyCorpus, distinct
from ga_dspy.retrieval.shards import Progress, encode_texts
from ga_dspy.retrieval.store import source_hash

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ga_dspy.passage import Passage


class Plan:
    """Distinct passages, the encoder, and the manifest of the index to be made of them.

    Raises:
        EmptyCorpus, DuplicateId, UnknownKind: See their messages.
    """

    def __init__(
        self, passages: Iterable[Passage], kind: str, encoder: Encoder | str, factory: str
    ) -> None:
        checked = check_kind(kind)
        self.passages = distinct(passages)
        if not self.passages:
            raise EmptyCorpus
        self.encoder = None if checked == "sparse" else _encoder(encoder)
        self.manifest = Manifest(
            kind=checked,
            factory=factory,
            encoder=describe(self.encoder) if self.encoder else None,
            passages=len(self.passages),
            source=source_hash(self.passages),
        )

    def contents(self, work: Path | None, progress: Progress | None, shard_size: int) -> Contents:
        """Do the work: encode the passages and derive what ranks them."""
        vectors = None
        if self.encoder is not None:
            texts = [dense_text(passage) for passage in self.passages]
            vectors = encode_texts(
                texts, self.encoder, work=work, progress=progress, shard_size=shard_size
            )
        return derive(self.manifest, self.passages, vectors, progress)


def derive(
    manifest: Manifest,
    passages: Sequence[Passage],
    vectors: NDArray[np.float32] | None,
    progress: Progress | None = None,
) -> Contents:
    """Derive contents, reporting the stage "linking"."""
    if progress:
        progress("linking", 0, len(passages))
    contents = Contents.derive(manifest.kind, passages, vectors, manifest.factory)
    if progress:
        progress("linking", len(passages), len(passages))
    return contents


def _encoder(encoder: Encoder | str) -> Encoder:
    return load_encoder(encoder) if isinstance(encoder, str) else encoder
