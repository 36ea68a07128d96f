"""An encoder without weights: hashed words. For tests, and machines without PyTorch."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ga_dspy.errors import InputError
from ga_dspy.retrieval.names import words

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

PREFIX = "hash-"


class HashEncoder:
    """Counts each word at a place given by its CRC-32; knows spelling and nothing of meaning.

    >>> HashEncoder.named("hash-64").encode(["Red Lodge", "red lodge"]).shape
    (2, 64)
    """

    def __init__(self, dimension: int = 256) -> None:
        if dimension < 1:
            raise InputError(
                f"the dimension is {dimension}",
                expected="a whole number from 1",
                remedy="use the encoder 'hash-256'",
            )
        self.dimension = dimension
        self.name = f"{PREFIX}{dimension}"
        self.fingerprint = f"crc32-words-{dimension}"

    @classmethod
    def named(cls, name: str) -> HashEncoder:
        """Make the encoder that a name such as `hash-256` stands for.

        Raises:
            InputError: What follows the dash is no whole number from 1.
        """
        digits = name.removeprefix(PREFIX)
        return cls(int(digits) if digits.isdecimal() else 0)

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Encode texts, shape (texts, dimension), rows of length 1."""
        import numpy as np

        vectors = np.zeros((len(texts), self.dimension), dtype=np.float32)
        for vector, text in zip(vectors, texts, strict=True):
            for word in words(text):
                vector[zlib.crc32(word.folded.encode()) % self.dimension] += 1
            if not vector.any():
                vector[0] = 1
            vector /= np.linalg.norm(vector)
        return vectors

    def encode_query(self, text: str) -> NDArray[np.float32]:
        """Encode a query, shape (dimension,), of length 1."""
        vector: NDArray[np.float32] = self.encode([text])[0]
        return vector
