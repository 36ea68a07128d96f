"""An index: passages that can be searched, in memory or kept in one folder."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ga_dspy.errors import InputError
from ga_dspy.passage import Passage
from ga_dspy.retrieval.encoders import (
    SHARD,
    Encoder,
    FunctionEncoder,
    HashEncoder,
    Progress,
    ProviderEncoder,
    SentenceEncoder,
    StaticEncoder,
    as_encoder,
    encode_texts,
    load_encoder,
)
from ga_dspy.retrieval.protocol import PassageRetriever, as_passages, check_query
from ga_dspy.retrieval.rank import Kind, Ranking, dense_text
from ga_dspy.retrieval.store import (
    FLAT,
    WORK,
    Contents,
    Manifest,
    StoredEncoder,
    check_kind,
    check_unchanged,
    distinct,
    finished,
    read_manifest,
    source_hash,
    store,
    writing,
)
from ga_dspy.storage import open_current

# --- The encoder: always the one that made the vectors of the index.

SAME_VECTOR = 0.98
"""The least cosine of two vectors that a function gives for one text; APIs differ a little."""


def _wrong_encoder(found: Encoder, stored: StoredEncoder) -> InputError:
    return InputError(
        f"encoder {found.name!r} has fingerprint {found.fingerprint[:12]}",
        expected=f"{stored.name!r} with {stored.fingerprint[:12]}",
        remedy="open the index with the encoder it was built with, or build it again with this one",
    )


class EncoderByName:
    """The encoder that a manifest names, loaded and checked when first needed."""

    def __init__(self, stored: StoredEncoder) -> None:
        self.name, self.fingerprint = stored.name, stored.fingerprint
        self.dimension = stored.dimension
        self._stored = stored
        self._loaded: Encoder | None = None
        self._lock = threading.Lock()

    @property
    def max_tokens(self) -> int | None:
        """How many tokens of a text it reads; `None`: all, or nobody knows."""
        return self.load().max_tokens

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Encode passages, shape (texts, dimension)."""
        return self.load().encode(texts)

    def encode_query(self, text: str) -> NDArray[np.float32]:
        """Encode a query, shape (dimension,)."""
        return self.load().encode_query(text)

    def load(self) -> Encoder:
        """Load the encoder now.

        Raises:
            InputError: What the name loads today did not make the vectors of the index.
        """
        with self._lock:
            if self._loaded is None:
                encoder = load_encoder(self.name)
                if encoder.fingerprint != self.fingerprint:
                    raise _wrong_encoder(encoder, self._stored)
                self._loaded = encoder
            return self._loaded


def bind(stored: StoredEncoder | None, given: Any) -> Encoder | None:
    """Return the encoder to search with: the given one, checked, or the one stored by name.

    Raises:
        InputError: The given encoder did not make the vectors, or none is given and the stored
            one cannot be loaded by name.
    """
    if stored is None:
        return None
    if given is None:
        if not stored.loadable:
            raise InputError(
                f"the index was built with {stored.name!r}, an encoder of your own",
                expected="that encoder",
                remedy="open it with Index.open(path, encoder=…)",
            )
        return EncoderByName(stored)
    encoder = as_encoder(given)
    if encoder.fingerprint != stored.fingerprint:
        raise _wrong_encoder(encoder, stored)
    return encoder


LOADABLE = (StaticEncoder, HashEncoder, SentenceEncoder, ProviderEncoder, EncoderByName)
"""Encoders that `load_encoder` finds again by their name."""

# --- The plan of a build, checked before any work is done.


class Plan:
    """Distinct passages, the encoder, and the manifest of the index to be made of them.

    Raises:
        InputError: There are no passages, an id stands for two texts, or the kind is unknown.
    """

    def __init__(self, passages: Iterable[Any], kind: str, encoder: Any, factory: str) -> None:
        checked = check_kind(kind)
        self.passages = distinct(as_passages(passages))
        if not self.passages:
            raise _empty_corpus()
        self.encoder = stored = None
        if checked != "sparse":
            made = as_encoder(encoder)
            stored = StoredEncoder(
                name=made.name,
                fingerprint=made.fingerprint,
                dimension=made.dimension,
                loadable=isinstance(made, LOADABLE),
            )
            self.encoder = made
        self.manifest = Manifest(
            kind=checked,
            factory=factory,
            encoder=stored,
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
        plan = self.manifest
        return Contents.derive(plan.kind, self.passages, vectors, plan.factory, progress)


def _empty_corpus() -> InputError:
    return InputError(
        "the corpus holds no passages",
        expected="at least one",
        remedy="check the files that the passages are read from",
    )


def _restored(
    manifest: Manifest,
    kind: Kind,
    passages: list[Passage],
    vectors: NDArray[np.float32] | None,
    encoder: Any,
) -> Index:
    """The index in memory that was pickled."""
    return Index(
        Contents.derive(kind, passages, vectors, manifest.factory, None), manifest, encoder
    )


class Hit(NamedTuple):
    """A passage that was found, and its score (comparable within one search only)."""

    passage: Passage
    score: float


class Changes(NamedTuple):
    """What a change did to an index, by the ids of passages."""

    added: tuple[str, ...]
    changed: tuple[str, ...]
    removed: tuple[str, ...]
    unchanged: tuple[str, ...]


class _State(NamedTuple):
    """What a search reads, swapped as a whole by a change."""

    manifest: Manifest
    contents: Contents
    ranking: Ranking


class Index(PassageRetriever):
    """Passages and what ranks them; a `Retriever`, safe to search from several threads.

    Make one with `build` (a folder), `open` (that folder again) or `from_passages` (memory).
    Changes are visible to the next search. `add` and `delete` derive BM25, titles and links anew
    (about a second for 5,000 passages) and keep the vectors, so results are always those of an
    index built from scratch on the same passages; many passages belong into one call.
    """

    def __init__(
        self,
        contents: Contents,
        manifest: Manifest,
        encoder: Any = None,
        path: Path | None = None,
    ) -> None:
        self.encoder = bind(manifest.encoder, encoder)
        self.path = path
        self._changing = threading.RLock()
        self._state = self._made(contents, manifest)

    @classmethod
    def from_passages(
        cls,
        passages: Iterable[Any],
        *,
        kind: str = "linked",
        encoder: Any = "auto",
        factory: str = FLAT,
        progress: Progress | None = None,
    ) -> Index:
        """Index passages in memory.

        Args:
            passages: `Passage`s, strings, mappings: whatever a retriever may return
                (`as_retriever`). Identical ones count once.
            kind: `"linked"` (default), `"hybrid"`, `"dense"` or `"sparse"`.
            encoder: A name for `load_encoder`, or what `as_encoder` takes: an `Encoder`, a
                `dspy.Embedder`, a function from texts to vectors; unused by `"sparse"`.
            factory: A FAISS index_factory string; `"Flat"` is exact.
            progress: Called with stage, units done, units in all.

        Raises:
            InputError: There are no passages, an id stands for two texts, or the kind or the
                factory is unknown.
        """
        plan = Plan(passages, kind, encoder, factory)
        return cls(plan.contents(None, progress, SHARD), plan.manifest, plan.encoder)

    @classmethod
    def build(
        cls,
        passages: Iterable[Any],
        out: Path | str,
        *,
        kind: str = "linked",
        encoder: Any = "auto",
        factory: str = FLAT,
        progress: Progress | None = None,
        batch_size: int = SHARD,
    ) -> Index:
        """Index passages into a folder, and open it.

        A build that was stopped goes on where it stopped when it is run again: every `batch_size`
        passages the vectors are kept. A finished build of the same index is opened as it is.

        Args:
            passages: `Passage`s, strings, mappings: whatever a retriever may return
                (`as_retriever`). Identical ones count once.
            out: The folder; made where it is absent.
            kind: `"linked"` (default), `"hybrid"`, `"dense"` or `"sparse"`.
            encoder: A name for `load_encoder`, or what `as_encoder` takes: an `Encoder`, a
                `dspy.Embedder`, a function from texts to vectors; unused by `"sparse"`.
            factory: A FAISS index_factory string; `"Flat"` is exact.
            progress: Called with stage, units done, units in all.
            batch_size: Passages in a shard of vectors.

        Raises:
            InputError: As `from_passages`, or the folder holds something else.
            InUse: Another process builds there.
        """
        folder = Path(out)
        plan = Plan(passages, kind, encoder, factory)
        with writing(folder):
            if not finished(folder, plan.manifest):
                work = folder / WORK
                work.mkdir(exist_ok=True)
                store(folder, plan.contents(work, progress, batch_size), plan.manifest)
        return cls.open(folder, encoder=plan.encoder)

    @classmethod
    def open(cls, path: Path | str, *, encoder: Any = None) -> Index:
        """Open a stored index: sizes of all files are checked, of large ones only `verify` more.

        Args:
            path: The folder.
            encoder: Needed only where the index was built with an encoder of your own; any
                other is loaded by name at the first search that needs it.

        Raises:
            InputError: There is no finished index, the encoder did not make these vectors, or it
                cannot be loaded by name and is not given.
            UnknownFormat: Another version wrote the index.
            DamagedFile: A file is missing or has another size.
        """
        folder = Path(path)

        def load(manifest: Manifest) -> tuple[Contents, Manifest]:
            return Contents.load(folder / manifest.contents, manifest.factory), manifest

        index = cls(*open_current(folder, read_manifest, load), encoder, folder)
        index._check_encoder()
        return index

    def __call__(self, query: str, k: int = 5, anchors: Sequence[str] = ()) -> list[Passage]:
        """Return at most `k` passages for the query, best first."""
        return [hit.passage for hit in self.search(query, k, anchors)]

    def search(self, query: str, k: int = 5, anchors: Sequence[str] = ()) -> list[Hit]:
        """Return at most `k` passages with their scores, best first, equal ones in corpus order.

        Args:
            query: What is sought.
            k: The most passages to return.
            anchors: Names of things already known to matter, such as the entities of a graph:
                "linked" starts from their passages too, "hybrid" favours them; the other kinds
                do without. They bring back their own passages, so who has read these asks for
                as many more and passes over them: only then do anchors find more than the query.

        Raises:
            InputError: The query is blank, `k` is below 1, or the anchors are one text.
        """
        check_query(query, k, anchors)
        state = self._state
        passages = state.contents.passages
        return [Hit(passages[row], score) for row, score in state.ranking.rank(query, k, anchors)]

    def as_kind(self, kind: str) -> Index:
        """Return a view of the same passages that ranks in another way, in memory.

        Raises:
            InputError: There is no such kind, or the index was built for one with fewer parts.
        """
        changed = self.manifest.model_copy(update={"kind": check_kind(kind)})
        return Index(self._state.contents, changed, self.encoder)

    def get(self, id: str) -> Passage:
        """Return the passage with an id.

        Raises:
            InputError: There is none.
        """
        return self._state.contents.passages[self._row(id)]

    def add(self, passages: Iterable[Any], *, progress: Progress | None = None) -> int:
        """Add passages; return how many were new (identical ones already here are not).

        Raises:
            InputError: An id is already here with another text; delete it first, or `upsert`.
            IndexChanged, InUse: Another writer was or is at work on the folder.
        """
        with self._changing, self._only_writer():
            new = distinct(as_passages(passages), known=self)
            self._replace(frozenset(), new, progress)
        return len(new)

    def delete(self, ids: Iterable[str], *, progress: Progress | None = None) -> int:
        """Delete passages by id; return how many.

        Raises:
            InputError: There is no passage with one of the ids, or none would be left; nothing
                is deleted.
            IndexChanged, InUse: Another writer was or is at work on the folder.
        """
        with self._changing, self._only_writer():
            gone = frozenset(ids)
            for id in gone:
                self._row(id)
            self._replace(gone, [], progress)
        return len(gone)

    def upsert(self, passages: Iterable[Any], *, progress: Progress | None = None) -> Changes:
        """Add passages, in place of those that have their ids; all in one change.

        Raises:
            InputError: An id stands for two texts among them.
            IndexChanged, InUse: Another writer was or is at work on the folder.
        """
        with self._changing, self._only_writer():
            return self._put(distinct(as_passages(passages)), frozenset(), progress)

    def sync(self, passages: Iterable[Any], *, progress: Progress | None = None) -> Changes:
        """Make the index hold these passages and no other; all in one change.

        What is here already is not encoded again, under another id neither. A search then finds
        what it would in an index built from scratch.

        Raises:
            InputError: There are no passages, or an id stands for two texts.
            IndexChanged, InUse: Another writer was or is at work on the folder.
        """
        with self._changing, self._only_writer():
            wanted = distinct(as_passages(passages))
            kept = {passage.id for passage in wanted}
            rows = self._state.contents.passages.rows
            return self._put(wanted, frozenset(id for id in rows if id not in kept), progress)

    def verify(self) -> None:
        """Read the whole stored index and compare it with the hashes in its manifest.

        Raises:
            DamagedFile: A file differs.
            InputError: The encoder that its name loads did not make these vectors.
        """
        if self.path is not None:
            read_manifest(self.path).check(self.path, hashes=True)
        if isinstance(self.encoder, EncoderByName):
            self.encoder.load()

    @property
    def manifest(self) -> Manifest:
        """What the index is: kind, encoder, counts."""
        return self._state.manifest

    @property
    def kind(self) -> Kind:
        """How the index ranks."""
        return self.manifest.kind

    @property
    def description(self) -> str:
        """The index in one line."""
        named = f", {self.encoder.name} ({self.manifest.factory})" if self.encoder else ""
        return f"{len(self):,} passages, {self.kind}{named}"

    @property
    def fingerprint(self) -> str:
        """SHA-256 over ids, titles and texts of the passages, whatever their order."""
        digests = sorted(
            hashlib.sha256(json.dumps([p.id, p.title, p.text]).encode()).digest() for p in self
        )
        return hashlib.sha256(b"".join(digests)).hexdigest()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle a stored index as its folder, one in memory as its passages and vectors."""
        stored = self.manifest.encoder
        encoder = None if stored is None or stored.loadable else self.encoder
        if self.path is not None:
            return partial(Index.open, encoder=encoder), (self.path.absolute(),)
        return _restored, (self.manifest, *self._state.contents.source(), encoder)

    def __len__(self) -> int:
        return len(self._state.contents.passages)

    def __contains__(self, id: str) -> bool:
        return id in self._state.contents.passages.rows

    def __iter__(self) -> Iterator[Passage]:
        return iter(self._state.contents.passages)

    def __repr__(self) -> str:
        return f"Index({self.description})"

    def _check_encoder(self) -> None:
        """Encode a passage again where a function made the vectors: its name says little."""
        dense = self._state.contents.dense
        if isinstance(self.encoder, FunctionEncoder) and dense:
            text = dense_text(self._state.contents.passages[0])
            if float(self.encoder.encode([text])[0] @ dense.vectors[0]) < SAME_VECTOR:
                raise InputError(
                    f"encoder {self.encoder.name!r} gives another vector for {text[:40]!r} than "
                    "the index holds",
                    expected="the function that made the vectors",
                    remedy="open the index with that one, or build it again with this one",
                )

    def _made(self, contents: Contents, manifest: Manifest) -> _State:
        return _State(manifest, contents, contents.ranking(manifest.kind, self.encoder))

    @contextmanager
    def _only_writer(self) -> Iterator[None]:
        if self.path is None:
            yield
            return
        with writing(self.path):
            check_unchanged(self.path, self.manifest)
            yield

    def _row(self, id: str) -> int:
        row = self._state.contents.passages.rows.get(id)
        if row is None:
            raise InputError(
                f"the index holds no passage with id {id!r}",
                expected="the id of an indexed passage",
                remedy="look up ids with search",
            )
        return row

    def _put(
        self, passages: Sequence[Passage], removed: frozenset[str], progress: Progress | None
    ) -> Changes:
        """Put these passages in place of those of their ids, and remove others."""
        state = {p.id: None if p.id not in self else self.get(p.id) == p for p in passages}
        added, changed, unchanged = (
            tuple(id for id, same in state.items() if same is wanted)
            for wanted in (None, False, True)
        )
        new = [passage for passage in passages if not state[passage.id]]
        self._replace(removed.union(changed), new, progress)
        return Changes(added, changed, tuple(sorted(removed)), unchanged)

    def _replace(
        self, gone: frozenset[str], new: Sequence[Passage], progress: Progress | None
    ) -> None:
        """Delete and add in one change; a text that was here already is not encoded again."""
        if not gone and not new:
            return
        contents = self._state.contents
        old = list(contents.passages)
        kept = [row for row, passage in enumerate(old) if passage.id not in gone]
        if not kept and not new:
            raise _empty_corpus()
        vectors = None
        if contents.dense and self.encoder:
            known = {dense_text(old[row]): row for row in range(len(old)) if old[row].id in gone}
            texts = [dense_text(passage) for passage in new]
            fresh = [text for text in dict.fromkeys(texts) if text not in known]
            vectors = contents.dense.vectors
            if fresh:
                more = encode_texts(fresh, self.encoder, progress=progress)
                known |= {text: len(old) + i for i, text in enumerate(fresh)}
                vectors = np.concatenate([vectors, more])
            vectors = vectors[[*kept, *(known[text] for text in texts)]]
        self._change([*(old[row] for row in kept), *new], vectors, progress)

    def _change(
        self,
        passages: Sequence[Passage],
        vectors: NDArray[np.float32] | None,
        progress: Progress | None,
    ) -> None:
        manifest = self.manifest.changed(len(passages))
        contents = Contents.derive(manifest.kind, passages, vectors, manifest.factory, progress)
        if self.path is not None:
            manifest = store(self.path, contents, manifest)
        self._state = self._made(contents, manifest)
