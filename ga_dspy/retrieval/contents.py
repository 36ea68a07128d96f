"""What an index holds for one set of passages: made in memory, written to and read from a folder.

Everything but the vectors is derived from the passages in seconds, so passages may come and go
without any being encoded again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from ga_dspy.errors import InputError
from ga_dspy.retrieval.dense import DenseScores
from ga_dspy.retrieval.links import LinkGraph
from ga_dspy.retrieval.passages import PassageTable
from ga_dspy.retrieval.ranking import (
    KINDS,
    DenseRanking,
    HybridRanking,
    Kind,
    LinkedRanking,
    Ranking,
    SparseRanking,
)
from ga_dspy.retrieval.sparse import SparseScores
from ga_dspy.retrieval.titles import TitleTable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ga_dspy.passage import Passage
    from ga_dspy.retrieval.ranking import Encode

FLAT = "Flat"


class UnknownKind(InputError):
    """The kind of ranking is not one of the four."""

    def __init__(self, kind: str) -> None:
        super().__init__(
            f"the kind of index is {kind!r}", expected=f"one of {KINDS}", remedy="use 'linked'"
        )


class MissingPart(InputError):
    """An index was built for a kind of ranking that has less than the one asked for."""

    def __init__(self, kind: str, part: str) -> None:
        super().__init__(
            f"this index holds no {part}",
            expected=f"an index that can rank as {kind!r}",
            remedy=f"build the index with kind={kind!r}",
        )


@dataclass(frozen=True)
class Contents:
    """Passages and what ranks them; parts that the kind does not use are None."""

    passages: PassageTable
    sparse: SparseScores | None = None
    dense: DenseScores | None = None
    titles: TitleTable | None = None
    links: LinkGraph | None = None

    @classmethod
    def derive(
        cls,
        kind: Kind,
        passages: Sequence[Passage],
        vectors: NDArray[np.float32] | None,
        factory: str,
    ) -> Contents:
        """Make the parts that a kind ranks with; `vectors` has one row for each passage."""
        sparse = None if kind == "dense" else SparseScores.build(passages)
        dense = None if vectors is None else DenseScores.build(vectors, factory)
        titles = TitleTable.build(passages) if kind in ("hybrid", "linked") else None
        links = LinkGraph.build(passages, titles) if titles and kind == "linked" else None
        return cls(PassageTable.of(passages), sparse, dense, titles, links)

    def ranking(self, kind: Kind, encode: Encode) -> Ranking:
        """Return the ranking of a kind.

        Raises:
            MissingPart: These contents were made for a kind with fewer parts.
        """
        if kind == "sparse":
            return SparseRanking(_part(kind, "BM25 scores", self.sparse))
        dense = _part(kind, "vectors", self.dense)
        if kind == "dense":
            return DenseRanking(dense, encode)
        sparse = _part(kind, "BM25 scores", self.sparse)
        hybrid = HybridRanking(sparse, dense, _part(kind, "titles", self.titles), encode)
        return (
            hybrid if kind == "hybrid" else LinkedRanking(hybrid, _part(kind, "links", self.links))
        )

    def save(self, folder: Path, factory: str) -> None:
        """Write the contents into a new folder."""
        import numpy as np

        folder.mkdir(parents=True)
        self.passages.save(folder / "passages.arrow")
        if self.sparse is not None:
            self.sparse.save(folder / "bm25")
        if self.dense is not None:
            np.save(folder / "vectors.npy", self.dense.vectors)
            if factory != FLAT:
                self.dense.save(folder / "vectors.faiss")
        if self.titles is not None:
            self.titles.save(folder / "titles.json")
        if self.links is not None:
            self.links.save(folder)

    @classmethod
    def load(cls, folder: Path, factory: str) -> Contents:
        """Open saved contents; passages, vectors and postings stay on disk until used."""
        passages = PassageTable.open(folder / "passages.arrow")
        bm25, titles = folder / "bm25", folder / "titles.json"
        return cls(
            passages,
            SparseScores.load(bm25, len(passages)) if bm25.is_dir() else None,
            _load_dense(folder, factory),
            TitleTable.load(titles) if titles.is_file() else None,
            LinkGraph.load(folder) if (folder / "links-titles.npz").is_file() else None,
        )


def check_kind(kind: str) -> Kind:
    """Return the kind, or raise `UnknownKind`."""
    for known in KINDS:
        if kind == known:
            return known
    raise UnknownKind(kind)


def _load_dense(folder: Path, factory: str) -> DenseScores | None:
    import numpy as np

    if not (folder / "vectors.npy").is_file():
        return None
    vectors = np.load(folder / "vectors.npy", mmap_mode="r", allow_pickle=False)
    # A flat index is the vectors themselves: nothing more is stored for it.
    if factory == FLAT:
        return DenseScores.build(vectors, FLAT)
    return DenseScores.load(folder / "vectors.faiss", vectors)


_T = TypeVar("_T")


def _part(kind: str, name: str, part: _T | None) -> _T:
    if part is None:
        raise MissingPart(kind, name)
    return part
