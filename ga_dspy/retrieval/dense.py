"""Nearest vectors by inner product, through FAISS."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ga_dspy.errors import InputError, MissingExtra

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ga_dspy.passage import Passage


class BadFactory(InputError):
    """FAISS cannot make or train the index that the factory string describes."""

    def __init__(self, factory: str, rows: int, cause: Exception) -> None:
        super().__init__(
            f"FAISS cannot build {factory!r} over {rows} vectors ({_last_line(cause)})",
            expected="an index_factory string that these vectors suffice to train",
            remedy="use factory='Flat', which is exact and needs no training",
        )


def dense_text(passage: Passage) -> str:
    """The text of a passage as the encoder reads it: "title. text"."""
    return f"{passage.title}. {passage.text}" if passage.title else passage.text


class DenseScores:
    """Cosine similarities of unit vectors: exact for given rows, FAISS to find the nearest."""

    def __init__(self, vectors: NDArray[np.float32], index: Any) -> None:
        self.vectors = vectors
        self._index = index

    @classmethod
    def build(cls, vectors: NDArray[np.float32], factory: str = "Flat") -> DenseScores:
        """Index unit vectors, shape (rows, dimension), training the factory where it needs it.

        Raises:
            BadFactory: FAISS does not know the factory or cannot train it on so few vectors.
        """
        import numpy as np

        faiss = _faiss()
        vectors = np.ascontiguousarray(vectors, dtype=np.float32)
        try:
            index = faiss.index_factory(vectors.shape[1], factory, faiss.METRIC_INNER_PRODUCT)
            if not index.is_trained:
                index.train(vectors)
            index.add(vectors)
        except RuntimeError as error:
            raise BadFactory(factory, len(vectors), error) from error
        return cls(vectors, _thorough(index))

    def nearest(self, query: NDArray[np.float32], count: int) -> NDArray[np.int64]:
        """Return the rows nearest to a unit vector, best first; fewer than asked if FAISS so finds.

        An approximate factory chooses the rows; `similarities` scores them exactly.
        """
        import numpy as np

        count = min(count, len(self.vectors))
        _, rows = self._index.search(np.ascontiguousarray(query[None, :]), count)
        found: NDArray[np.int64] = rows[0][rows[0] >= 0]
        return found

    def similarities(
        self, query: NDArray[np.float32], rows: NDArray[np.int64]
    ) -> NDArray[np.float32]:
        """Return the cosine of each of the rows with a unit vector."""
        import numpy as np

        return np.asarray(self.vectors[rows] @ query, dtype=np.float32)

    def save(self, path: Path) -> None:
        """Write the FAISS index to a file (the vectors are kept by the caller)."""
        _faiss().write_index(self._index, str(path))

    @classmethod
    def load(cls, path: Path, vectors: NDArray[np.float32]) -> DenseScores:
        """Open a saved FAISS index over its vectors."""
        return cls(vectors, _thorough(_faiss().read_index(str(path))))


def _thorough(index: Any) -> Any:
    """Make an inverted-file index look into an eighth of its lists; FAISS itself looks into one."""
    inverted = _faiss().try_extract_index_ivf(index)
    if inverted is not None:
        inverted.nprobe = max(1, inverted.nlist // 8)
    return index


def _last_line(error: Exception) -> str:
    return str(error).strip().splitlines()[-1][:200]


def _faiss() -> Any:
    try:
        import faiss
    except ImportError as error:
        raise MissingExtra("faiss-cpu", "retrieval") from error
    return faiss
