"""Which encoder an index is searched with: always the one that made its vectors."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ga_dspy.errors import GaDspyError
from ga_dspy.retrieval.encoder import Encoder, SentenceEncoder, load_encoder
from ga_dspy.retrieval.hashing import HashEncoder
from ga_dspy.retrieval.manifest import StoredEncoder

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class WrongEncoder(GaDspyError):
    """The encoder is not the one that made the vectors of the index."""

    def __init__(self, found: Encoder, stored: StoredEncoder) -> None:
        super().__init__(
            f"encoder {found.name!r} has fingerprint {found.fingerprint[:12]}; expected "
            f"{stored.name!r} with {stored.fingerprint[:12]}; open the index with the encoder "
            "it was built with, or build it again with this one"
        )
        self.stored = stored


class EncoderNeeded(GaDspyError):
    """The index was built with an encoder that cannot be loaded by name."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"the index was built with {name!r}, an encoder of your own; expected that encoder; "
            "open it with Index.open(path, encoder=…)"
        )
        self.name = name


class EncoderByName:
    """The encoder that a manifest names, loaded and checked when first needed."""

    def __init__(self, stored: StoredEncoder) -> None:
        self._stored = stored
        self._loaded: Encoder | None = None
        self._lock = threading.Lock()

    @property
    def name(self) -> str:
        """The stored name."""
        return self._stored.name

    @property
    def fingerprint(self) -> str:
        """The stored fingerprint."""
        return self._stored.fingerprint

    @property
    def dimension(self) -> int:
        """The stored length of a vector."""
        return self._stored.dimension

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Encode passages, shape (texts, dimension)."""
        return self.load().encode(texts)

    def encode_query(self, text: str) -> NDArray[np.float32]:
        """Encode a query, shape (dimension,)."""
        return self.load().encode_query(text)

    def load(self) -> Encoder:
        """Load the encoder now.

        Raises:
            WrongEncoder: What the name loads today did not make the vectors of the index.
        """
        with self._lock:
            if self._loaded is None:
                encoder = load_encoder(self._stored.name)
                if encoder.fingerprint != self._stored.fingerprint:
                    raise WrongEncoder(encoder, self._stored)
                self._loaded = encoder
            return self._loaded


def bind(stored: StoredEncoder | None, given: Encoder | None) -> Encoder | None:
    """Return the encoder to search with: the given one, checked, or the one stored by name.

    Raises:
        WrongEncoder: The given encoder did not make the vectors.
        EncoderNeeded: None is given, and the stored one cannot be loaded by name.
    """
    if stored is None:
        return None
    if given is None:
        if not stored.loadable:
            raise EncoderNeeded(stored.name)
        return EncoderByName(stored)
    if given.fingerprint != stored.fingerprint:
        raise WrongEncoder(given, stored)
    return given


def describe(encoder: Encoder) -> StoredEncoder:
    """Return what a manifest keeps of an encoder."""
    return StoredEncoder(
        name=encoder.name,
        fingerprint=encoder.fingerprint,
        dimension=encoder.dimension,
        loadable=isinstance(encoder, (SentenceEncoder, HashEncoder, EncoderByName)),
    )
