"""An index: passages to search, in memory or stored in one folder."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from functools import cached_property, partial
from itertools import chain, islice
from pathlib import Path
from shutil import rmtree
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from ga_dspy import notebook
from ga_dspy.errors import InputError, check_names
from ga_dspy.passage import Passage
from ga_dspy.retrieval import encoders, segments, store
from ga_dspy.retrieval.encoders import Encoder, Progress, Reranker, as_encoder, silent
from ga_dspy.retrieval.engine import LocalEngine
from ga_dspy.retrieval.milvus import MilvusEngine, publish, refresh, withdraw
from ga_dspy.retrieval.postings import Kind
from ga_dspy.retrieval.protocol import PassageRetriever, check_query
from ga_dspy.retrieval.rank import Engine, Ranking, dense_text
from ga_dspy.retrieval.redact import Redact, Redactor, check_redactor, load_redactor, redacted
from ga_dspy.retrieval.store import WORK, Manifest, PassageTable, StoredEncoder, distinct
from ga_dspy.retrieval.where import Where, as_json
from ga_dspy.storage import damaged_contents, on_disk, open_current

SAME_VECTOR = 0.98
"""The minimum cosine of two encodings of a text by the same function; APIs are not exact."""


# --- Building


def _store_passages(
    passages: Iterable[Any], folder: Path | None, kind: Kind, encoder: Encoder | None,
    redactor: Redactor | None, **options: Any,
) -> tuple[PassageTable, Manifest]:  # fmt: skip
    """Write distinct passages to a table; return it with the manifest of its index.

    Raises:
        InputError: There are no passages, or two of them have the same id.
    """
    digest = hashlib.sha256()
    hashed = store.hashing(distinct(redacted(passages, redactor)), digest)
    table = PassageTable.of(hashed, folder and folder / store.PASSAGES)
    if not len(table):
        raise InputError(
            "the corpus holds no passages",
            expected="at least one",
            remedy="check the files that the passages are read from",
        )
    return table, Manifest(
        kind=kind, encoder=encoder and StoredEncoder.of(encoder), passages=len(table),
        source=digest.hexdigest(), redact=redactor and redactor.name, **options,
    )  # fmt: skip


def _make_engine(
    table: PassageTable, kind: Kind, encoder: Encoder | None, folder: Path | None,
    progress: Progress,
) -> LocalEngine:  # fmt: skip
    """Make the engine of an index; report the stages "encoding" and "linking"."""
    size = len(table)

    def vectors() -> Iterator[NDArray[np.float32]]:
        if encoder:
            texts, work = map(dense_text, table), folder and folder.parent
            yield from encoders.encode_texts(texts, size, encoder, work=work, progress=progress)
        progress("linking", 0, size)

    engine = segments.make_engine(table, kind, vectors(), folder)
    progress("linking", size, size)
    return engine


def _published(engine: LocalEngine, manifest: Manifest, uri: str, folder: Path) -> store.Published:
    """Publish an engine to Milvus, in a collection named after its contents and the folder."""
    contents = (manifest.source, manifest.kind, manifest.encoder, manifest.generation)
    name = hashlib.sha256(f"{contents} {folder.absolute()}".encode()).hexdigest()[:16]
    return publish(engine, uri, f"ga_dspy_{name}")


def _read(folder: Path) -> tuple[Engine, Manifest]:
    """Open the current contents of a folder, or those in Milvus if it holds only a manifest."""
    manifest = store.read_manifest(folder)
    if manifest.published and not (folder / manifest.contents).exists():
        return MilvusEngine(manifest.published, manifest.passages), manifest
    return open_current(
        folder, store.read_manifest, lambda manifest: (segments.load(folder, manifest), manifest)
    )


class Hit(NamedTuple):
    """A passage and its score; scores are comparable only within one search."""

    passage: Passage
    score: float


class Changes(NamedTuple):
    """The changes to an index, by passage ids."""

    added: tuple[str, ...]
    changed: tuple[str, ...]
    removed: tuple[str, ...]
    unchanged: tuple[str, ...]


class StoredDocument(NamedTuple):
    """The passages of a document, whose ids are its id, or its id and a number (`a.md#2`)."""

    id: str
    passages: tuple[Passage, ...]


def _documents(engine: LocalEngine, first: int, end: int) -> list[StoredDocument]:
    """Return the documents at positions `first` to `end` (exclusive)."""
    ids, places = engine.documents
    rows = np.flatnonzero((places >= first) & (places < end))
    parts: dict[int, list[Passage]] = {place: [] for place in range(first, end)}
    passages = engine.passages(engine.rows()[rows].tolist())
    for place, passage in zip(places[rows].tolist(), passages, strict=True):
        parts[place].append(passage)
    return [StoredDocument(ids[place].as_py(), tuple(p)) for place, p in parts.items()]


class _State(NamedTuple):
    """The state that a search reads; each change replaces it atomically.

    Attributes:
        manifest: The manifest.
        engine: The engine of the passages: the folder, or Milvus if there is only a manifest.
        searched: The engine that is searched: Milvus if the index is published, else `engine`.
    """

    manifest: Manifest
    engine: Engine
    searched: Engine


def _state_of(engine: Engine, manifest: Manifest) -> _State:
    """Return the state of an engine and its manifest.

    Raises:
        InputError: The engine lacks a part that the kind of ranking needs.
    """
    searched = engine
    if manifest.published and isinstance(engine, LocalEngine):
        searched = MilvusEngine(manifest.published, manifest.passages)
    Ranking(searched, manifest.kind)  # checks the parts
    return _State(manifest, engine, searched)


def _digest(passage: Passage) -> bytes:
    return hashlib.sha256(json.dumps([passage.id, passage.title, passage.text]).encode()).digest()


class Index(PassageRetriever):
    """A search index of passages; a thread-safe `Retriever`.

    Create one with `build` (in a folder), `open` (a built folder) or `from_passages` (in memory).
    A change is visible to the next search, and its cost depends on its own size, not on that of the
    index. Results always equal those of an index built from scratch on the same passages.
    """

    _digests: tuple[_State, dict[str, bytes]] | None = None
    _scope: tuple[str, ...] = ()

    def __init__(
        self,
        engine: Engine,
        manifest: Manifest,
        encoder: Any = None,
        path: Path | None = None,
        reranker: str | Reranker | None = None,
        require: Collection[str] = (),
        redact: str | Redact | None = None,
    ) -> None:
        self.reranker = reranker or manifest.reranker
        self.require = tuple(sorted({*manifest.require, *check_names("require", require)}))
        self.path, self._encoder, self._redact = path, encoder, redact
        self._write_lock = threading.RLock()
        self._current = _state_of(engine, manifest)
        if redact is not None:
            _ = self.redactor  # checks the name
        if encoder is not None:
            _ = self.encoder  # checks the fingerprint
        elif (stored := manifest.encoder) and not stored.loadable:
            raise InputError(
                f"the index was built with {stored.name!r}, a custom encoder",
                expected="that encoder",
                remedy="open it with Index.open(path, encoder=…)",
            )

    @classmethod
    def from_passages(
        cls,
        passages: Iterable[Any],
        *,
        kind: str = "linked",
        encoder: Any = "auto",
        reranker: str | Reranker | None = None,
        require: Collection[str] = (),
        redact: str | Redact | None = None,
        progress: Progress = silent,
    ) -> Index:
        """Index passages in memory.

        Args:
            passages: `Passage`s, strings, mappings, or anything else that a retriever may return
                (`as_retriever`). Identical ones count once.
            kind: `"linked"` (default), `"hybrid"`, `"dense"` or `"sparse"`.
            encoder: A name for `load_encoder`, or an `Encoder`, a `dspy.Embedder` or a function
                from texts to vectors; unused by `"sparse"`.
            reranker: Reranks the first 50 results: the name of a sentence-transformers
                cross-encoder, or a function from a query and texts to scores.
            require: Metadata fields, such as `["tenant"]`, that every search must filter on
                (`only`): with a value, a list of values or `within`.
            redact: Redacts personal data in titles, texts and metadata before they are indexed, now
                and in later changes: "presidio", "module:function", or a function from text to
                text. Ids and `source` are kept, but an id derived from the title is derived again.
            progress: Called with stage, units done, units in all.

        Raises:
            InputError: There are no passages, two of them have the same id, or the kind is
                unknown.
        """
        ranking, redactor = store.check_kind(kind), load_redactor(redact)
        encoder = None if ranking == "sparse" else as_encoder(encoder)
        table, manifest = _store_passages(passages, None, ranking, encoder, redactor)
        engine = _make_engine(table, ranking, encoder, None, progress)
        return cls(engine, manifest, encoder, reranker=reranker, require=require, redact=redactor)

    @classmethod
    def build(
        cls,
        passages: Iterable[Any],
        out: Path | str,
        *,
        kind: str = "linked",
        encoder: Any = "auto",
        reranker: str | None = None,
        require: Collection[str] = (),
        redact: str | Redact | None = None,
        progress: Progress = silent,
        milvus: str | None = None,
    ) -> Index:
        """Index passages into a folder, and open it.

        To resume an interrupted build, run it again: vectors are stored every 256 passages.
        If the folder already holds the same index, it is only opened.

        Args:
            passages: As in `from_passages`. An iterator may yield more than fits into memory.
            out: The folder; created if necessary.
            kind: As in `from_passages`.
            encoder: As in `from_passages`.
            reranker: The name of a cross-encoder, which is stored in the manifest. Pass a function
                to `open` instead.
            require: As in `from_passages`; it is stored in the manifest and applies to everyone
                who opens the folder.
            redact: As in `from_passages`. The manifest stores only the name: to change the index
                later, pass a function to `open` again.
            progress: Called with stage, units done, units in all.
            milvus: Search in Milvus: the address of a server, or a Milvus Lite file that ends in
                ".db". Changes need the folder; to search, another machine needs only its
                `manifest.json`.

        Raises:
            InputError: As in `from_passages`, or the folder holds something else.
            InUse: Another process writes to the folder.
        """
        folder, ranking, redactor = Path(out), store.check_kind(kind), load_redactor(redact)
        encoder = None if ranking == "sparse" else as_encoder(encoder)
        options = {"reranker": reranker, "require": sorted(check_names("require", require))}
        with store.writing(folder), on_disk(folder):
            store.check_ours(folder)
            work, target = folder / WORK, segments.new_folder(folder / WORK)
            try:
                table, manifest = _store_passages(
                    passages, target, ranking, encoder, redactor, **options
                )
                if not store.finished(folder, manifest):
                    engine = _make_engine(table, ranking, encoder, target, progress)
                    if milvus:
                        published = _published(engine, manifest, milvus, folder)
                        manifest = manifest.model_copy(update={"published": published})
                    manifest.put(folder, partial(segments.save, engine))
            except InputError:
                rmtree(work / "segment")
                with suppress(OSError):
                    work.rmdir()  # fails if it holds vectors, which the next build reuses
                raise
            rmtree(work, ignore_errors=True)
        return cls.open(folder, encoder=encoder, redact=redactor)

    @classmethod
    def open(
        cls,
        path: Path | str,
        *,
        encoder: Any = None,
        reranker: str | Reranker | None = None,
        require: Collection[str] = (),
        redact: str | Redact | None = None,
    ) -> Index:
        """Open a stored index; check the sizes of all files, and the hashes of small indexes.

        Args:
            path: The folder.
            encoder: Required only if the index was built with a custom encoder; any other is loaded
                by name at the first search that needs it.
            reranker: Overrides the reranker of the index; as in `from_passages`.
            require: As in `from_passages`; added to the fields that the index requires.
            redact: The redaction function that the index was built with. Without it, such an index
                can be searched, but nothing can be added.

        Raises:
            InputError: There is no finished index; its custom encoder is not given; or `encoder` or
                `redact` is not the one it was built with.
            UnknownFormat: Another version wrote the index.
            DamagedFile: A file is missing or damaged.
        """
        folder = Path(path)
        index = cls(*_read(folder), encoder, folder, reranker, require, redact)
        if encoder is not None:
            index._check_encoder()
        return index

    def __call__(self, query: str, k: int = 5, where: Where | None = None) -> list[Passage]:
        """Return at most `k` passages for the query, best first."""
        return [hit.passage for hit in self.search(query, k, where)]

    def search(self, query: str, k: int = 5, where: Where | None = None) -> list[Hit]:
        """Return at most `k` passages with their scores, best first; ties are in corpus order.

        Args:
            query: The search query.
            k: Passages to retrieve.
            where: Conditions on the metadata of passages, as in `only`.

        Raises:
            InputError: The query is blank, `k` is below 1, a required condition is missing, or a
                condition is malformed.
            DamagedFile: A table of the index has invalid entries.
        """
        if where is not None:
            return self.only(where).search(query, k)
        check_query(query, k)
        self.check_scope()
        manifest, _, engine = self._state
        if not len(engine):
            return []
        depth = max(k, encoders.RERANK_DEPTH) if self.reranker else k
        # No lock is held: encoders and Milvus may wait for a server.
        encoder = None if manifest.kind == "sparse" else self.encoder
        vector = encoder.encode_query(query) if encoder else np.zeros(0, dtype=np.float32)
        try:
            scored = Ranking(engine, manifest.kind).rank(query, vector, depth)
            passages = engine.passages([row for row, _ in scored])
        except IndexError as error:
            found = f"{self.path or 'the index'}: a table has invalid entries ({error})"
            raise damaged_contents(found) from error
        if self.reranker and passages:
            best = encoders.rerank(self.reranker, query, [passage.content for passage in passages])
            return [Hit(passages[place], score) for place, score in best[:k]]
        return [Hit(passage, score) for passage, (_, score) in zip(passages, scored, strict=True)]

    def as_kind(self, kind: str) -> Index:
        """Return a view of the same passages with another kind of ranking, in memory.

        Raises:
            InputError: The kind is unknown, or the index was built without the parts it needs.
        """
        manifest = self.manifest.model_copy(update={"kind": store.check_kind(kind)})
        return self._like(self._state.engine, manifest)

    def only(self, where: Where) -> Index:
        """Return a view of the passages that meet conditions on their metadata (`Where`).

        The view behaves like an index of these passages alone: the words, names and links of others
        do not influence its results. Its conditions apply in every thread, task and generator. A
        view of a view applies the conditions of both. A view reflects changes of its index, and
        cannot be changed itself.

        Raises:
            InputError: A condition is malformed, there is none, or the index is searched in Milvus,
                which does not support conditions.
        """
        view = _View(self.whole, (*self._scope, as_json(where)))
        if isinstance(self._state.searched, MilvusEngine):
            self._state.searched.restricted(json.dumps(view.scope))
        return view

    @property
    def scope(self) -> tuple[Where, ...]:
        """The access scope: the conditions of a view; empty for a whole index."""
        return tuple(map(json.loads, self._scope))

    @property
    def ids(self) -> frozenset[str]:
        """Return the ids of all passages."""
        engine = self._state.engine
        return engine.ids if isinstance(engine, LocalEngine) else frozenset(p.id for p in self)

    def without_passages(self, ids: Collection[str] | None = None) -> Index:
        """Return a copy in memory without passages with these ids; by default without any."""
        engine, manifest = self.engine, self.manifest
        deleted: Sequence[int] = range(engine.size)
        if ids is not None:
            rows = map(engine.row, ids)
            deleted = [*engine.dead, *(row for row in rows if row is not None)]
        engine = LocalEngine(engine.segments, deleted)
        update = {"passages": len(engine), "published": None}
        return self._like(engine, manifest.model_copy(update=update))

    def _like(self, engine: Engine, manifest: Manifest) -> Index:
        """Return an index in memory with the settings of this one."""
        rest = (self.encoder, None, self.reranker, self.require, self._redact)
        return Index(engine, manifest, *rest)

    def get(self, id: str) -> Passage:
        """Return the passage with an id.

        Raises:
            InputError: There is no such passage, or a required condition is missing.
        """
        self.check_scope()
        return self._state.engine.passages([self._row(id)])[0]

    def documents(
        self, offset: int = 0, limit: int | None = None
    ) -> tuple[int, list[StoredDocument]]:
        """Return the number of documents, and some of them in corpus order.

        Args:
            offset: The number of documents to skip.
            limit: The maximum number to return; by default all.

        Raises:
            InputError: A required condition is missing.
        """
        self.check_scope()
        engine = self.engine
        count = len(engine.documents[0])
        end = count if limit is None else min(offset + limit, count)
        return count, _documents(engine, offset, end)

    def document(self, id: str) -> StoredDocument | None:
        """Return the document with an id; None if there is none.

        Raises:
            InputError: A required condition is missing.
        """
        self.check_scope()
        engine = self.engine
        place = engine.documents[0].index(id).as_py()
        return None if place < 0 else _documents(engine, place, place + 1)[0]

    def add(self, passages: Iterable[Any], *, progress: Progress = silent) -> int:
        """Add passages that the index does not have; return their number.

        Raises:
            InputError: The index has another passage with one of the ids; use `upsert` to replace
                it.
            InUse: Another writer is changing the folder, or has changed it.
        """
        with self._writing():
            new = list(distinct(redacted(passages, self.redactor), self._find))
            self._replace(frozenset(), new, progress)
        return len(new)

    def delete(self, ids: Iterable[str], *, progress: Progress = silent) -> int:
        """Delete passages by id; return their number.

        Raises:
            InputError: The index has no passage with one of the ids, or would become empty; nothing
                is deleted.
            InUse: Another writer is changing the folder, or has changed it.
        """
        with self._writing():
            deleted = frozenset(check_names("ids", ids))
            self._replace(deleted, [], progress)
        return len(deleted)

    def upsert(
        self, passages: Iterable[Any], *, delete: Iterable[str] = (), progress: Progress = silent
    ) -> Changes:
        """Add passages, or replace those with the same ids; all in one change.

        Args:
            passages: As in `from_passages`.
            delete: Ids of passages to delete, except those of `passages`.
            progress: Called with stage, units done, units in all.

        Raises:
            InputError: Two new passages have the same id, or a passage to delete does not exist.
            InUse: Another writer is changing the folder, or has changed it.
        """
        with self._writing():
            new = list(distinct(redacted(passages, self.redactor)))
            return self._put(new, frozenset(delete) - {passage.id for passage in new}, progress)

    def sync(self, passages: Iterable[Any], *, progress: Progress = silent) -> Changes:
        """Make the index hold exactly these passages; all in one change.

        Texts that the index already has are not encoded again, even if their ids change.

        Raises:
            InputError: There are no passages, or two of them have the same id.
            InUse: Another writer is changing the folder, or has changed it.
        """
        with self._writing():
            wanted = list(distinct(redacted(passages, self.redactor)))
            ids = {passage.id for passage in wanted}
            deleted = frozenset(passage.id for passage in self if passage.id not in ids)
            return self._put(wanted, deleted, progress)

    def refresh(self) -> None:
        """Reload the folder if another process has changed the index in it.

        Raises:
            DamagedFile: A file is missing or has another size.
        """
        if self.path is None:
            return
        new, old = store.read_manifest(self.path), self.manifest
        is_same_kind = (new.kind, new.encoder) == (old.kind, old.encoder)
        if is_same_kind and (new.generation, new.source) != (old.generation, old.source):
            with self._write_lock:
                self._current = _state_of(*_read(self.path))

    def verify(self) -> None:
        """Check all stored files against the hashes in the manifest.

        Raises:
            DamagedFile: A file was changed.
            InputError: The encoder is not the one that the index was built with.
        """
        if self.path is not None:
            store.read_manifest(self.path).check(self.path, hashes=True)
        _ = self.encoder

    @cached_property
    def encoder(self) -> Encoder | None:
        """The encoder of the vectors: the one passed in, or loaded by name when first needed.

        Raises:
            InputError: The index was built with another encoder.
        """
        stored = self.manifest.encoder
        if stored is None:
            return None
        encoder = as_encoder(stored.name if self._encoder is None else self._encoder)
        if encoder.fingerprint != stored.fingerprint:
            raise InputError(
                f"encoder {encoder.name!r} has fingerprint {encoder.fingerprint[:12]}",
                expected=f"{stored.name!r} with {stored.fingerprint[:12]}",
                remedy="open the index with the encoder it was built with, or build it again with "
                "this one",
            )
        return encoder

    @cached_property
    def redactor(self) -> Redactor | None:
        """The redaction of the documents of the index; None if there is none.

        Raises:
            InputError: The index was built with a function that was not passed to `open`, or with
                another redaction.
        """
        return check_redactor(self.manifest.redact, self._redact)

    @property
    def whole(self) -> Index:
        """This index; for a view, the index that `only` was called on."""
        return self

    @property
    def manifest(self) -> Manifest:
        """The manifest: kind, encoder, counts."""
        return self._state.manifest

    @property
    def engine(self) -> LocalEngine:
        """The current local engine, which each change replaces.

        Raises:
            InputError: The folder holds only a manifest, and the passages are in Milvus.
        """
        engine = self._state.engine
        if isinstance(engine, MilvusEngine):
            raise InputError(
                f"{self.path} holds only a manifest",
                expected="the folder in which the index was built",
                remedy="change the index there: this also changes the collection in Milvus",
            )
        return engine

    @property
    def kind(self) -> Kind:
        """The kind of ranking."""
        return self.manifest.kind

    @property
    def description(self) -> str:
        """A description of the index in one line."""
        encoder = self.manifest.encoder
        named = f", {encoder.name}" if encoder else ""
        reranker = self.reranker
        if reranker and not isinstance(reranker, str):
            default = getattr(reranker, "__name__", type(reranker).__name__)
            reranker = getattr(reranker, "name", default)
        by = f", reranked by {reranker}" if reranker else ""
        where = ", in Milvus" if self.manifest.published else ""
        redact = f", redacted by {self.manifest.redact}" if self.manifest.redact else ""
        passages = f"{len(self):,} passage{'s' * (len(self) != 1)}"
        scope = f", only {' and '.join(self._scope)}" if self._scope else ""
        return f"{passages}, {self.kind}{named}{by}{where}{redact}{scope}"

    @property
    def fingerprint(self) -> str:
        """The SHA-256 of the ids, titles and texts of the passages, independent of their order."""
        return hashlib.sha256(b"".join(sorted(self.digests.values()))).hexdigest()

    @property
    def digests(self) -> Mapping[str, bytes]:
        """The SHA-256 of id, title and text of each passage, by id; cached, changes update it."""
        if self._digests is None or self._digests[0] is not self._state:
            self._digests = self._state, {passage.id: _digest(passage) for passage in self}
        return self._digests[1]

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle a stored index as its path, an index in memory with its contents."""
        stored = self.manifest.encoder
        options: dict[str, Any] = {
            "encoder": None if stored is None or stored.loadable else self.encoder,
            "reranker": self.reranker, "require": self.require, "redact": self._redact,
        }  # fmt: skip
        if self.path is not None:
            return partial(Index.open, **options), (self.path.absolute(),)
        return partial(Index, **options), (self._state.engine, self._state.manifest)

    def _repr_html_(self) -> str:
        """Show the description and the first passages in a notebook."""
        rows = ((p.id, p.title, p.text) for p in islice(self, 0 if self._unscoped else 5))
        shown = notebook.table(("id", "title", "text"), rows)
        return notebook.line(f"{self.path or 'in memory'}: {self.description}") + shown

    @property
    def _state(self) -> _State:
        return self._current

    def __len__(self) -> int:
        return len(self._state.engine)

    def __contains__(self, id: str) -> bool:
        return isinstance(id, str) and self._state.engine.row(id) is not None

    def __iter__(self) -> Iterator[Passage]:
        engine = self._state.engine
        blocks = encoders.batched(engine.rows().tolist(), encoders.SHARD)
        return chain.from_iterable(map(engine.passages, blocks))

    def __repr__(self) -> str:
        return f"Index({self.description})"

    def _check_encoder(self) -> None:
        """Encode a passage again to check a function, whose fingerprint is only its name."""
        engine = self._state.engine
        if isinstance(self.encoder, encoders.FunctionEncoder):
            row = engine.rows()[:1]
            text = dense_text(engine.passages(row.tolist())[0])
            if float(engine.cosines(self.encoder.encode([text])[0], row)[0]) < SAME_VECTOR:
                raise InputError(
                    f"encoder {self.encoder.name!r} returns another vector for {text[:40]!r} than "
                    "the index has",
                    expected="the function that made the vectors",
                    remedy="open the index with that function, or build it again with this one",
                )

    def _find(self, id: str) -> Passage | None:
        row = self._state.engine.row(id)
        return None if row is None else self._state.engine.passages([row])[0]

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Lock the index and its folder for writing."""
        _ = self.engine  # raises if there is only a manifest
        with self._write_lock, store.writing(self.path) if self.path else nullcontext():
            if self.path:
                store.check_unchanged(self.path, self.manifest)
            yield

    def _row(self, id: str) -> int:
        row = self._state.engine.row(id)
        if row is None:
            raise InputError(
                f"the index has no passage with id {id!r}",
                expected="the id of an indexed passage",
                remedy="look up the id with search",
            )
        return row

    def _put(
        self, passages: Sequence[Passage], removed: frozenset[str], progress: Progress
    ) -> Changes:
        """Add passages, or replace those with the same ids, and remove others."""
        old = {p.id: self._find(p.id) for p in passages}
        new = [p for p in passages if old[p.id] != p]
        added = tuple(p.id for p in new if old[p.id] is None)
        changed = tuple(p.id for p in new if old[p.id] is not None)
        unchanged = tuple(p.id for p in passages if old[p.id] == p)
        self._replace(removed.union(changed), new, progress)
        return Changes(added, changed, tuple(sorted(removed)), unchanged)

    def _replace(self, deleted: frozenset[str], new: Sequence[Passage], progress: Progress) -> None:
        """Delete passages by id and add others, in one change."""
        if not deleted and not new:
            return
        before, manifest = self.engine, self.manifest
        rows = sorted(map(self._row, deleted))
        if len(before) + len(new) == len(rows):
            raise InputError(
                "the change would leave no passages in the index",
                expected="at least one",
                remedy="keep one (after a sync, check the files), or delete the index folder",
            )
        vectors = self._vectors(new, rows, progress)
        progress("linking", 0, len(new))
        work = self.path / WORK if self.path else None
        with on_disk(work or Path()):
            engine = segments.changed(before, new, vectors, rows, work)
        update = {"passages": len(engine), "generation": manifest.generation + 1}
        old, manifest = manifest.published, manifest.model_copy(update=update)
        if self.path is not None:
            if old:
                refreshed = refresh(before, engine, rows, old)
                published = refreshed or _published(engine, manifest, old.uri, self.path)
                manifest = manifest.model_copy(update={"published": published})
            manifest = manifest.put(self.path, partial(segments.save, engine))
            rmtree(self.path / WORK, ignore_errors=True)
            engine = segments.load(self.path, manifest)
            if old and old.collection != published.collection:
                withdraw(old)
        digests, state = self._digests, self._current
        self._current = _state_of(engine, manifest)
        if digests is not None and digests[0] is state:
            kept = {id: digest for id, digest in digests[1].items() if id not in deleted}
            self._digests = self._current, kept | {each.id: _digest(each) for each in new}
        progress("linking", len(new), len(new))

    def _vectors(
        self, new: Sequence[Passage], deleted: Sequence[int], progress: Progress
    ) -> NDArray[np.float32] | None:
        """Return the vectors of new passages; reuse those of deleted rows with the same text."""
        if not self.engine.holds("vectors") or not (encoder := self.encoder):
            return None
        old = map(dense_text, self.engine.passages(deleted))
        vectors = self.engine.vectors(np.array(deleted, dtype=np.int64))
        vector_of = dict(zip(old, vectors, strict=True))
        texts = list(map(dense_text, new))
        missing = [text for text in dict.fromkeys(texts) if text not in vector_of]
        encoded = encoders.encode_texts(missing, len(missing), encoder, progress=progress)
        vector_of |= zip(missing, chain.from_iterable(encoded), strict=True)
        return np.array([vector_of[text] for text in texts], dtype=np.float32)


class _View(Index):
    """The passages of an index that meet conditions (`Index.only`).

    It overrides `_state`, which all methods of an index read.
    """

    def __init__(self, whole: Index, scope: Collection[str]) -> None:
        self._whole, self._scope = whole, tuple(dict.fromkeys(scope))
        self.path, self.reranker, self.require = whole.path, whole.reranker, whole.require
        self._redact = whole._redact
        self._cached: tuple[_State, _State] | None = None

    @property
    def whole(self) -> Index:
        """The index that `only` was called on."""
        return self._whole

    def as_kind(self, kind: str) -> Index:
        """Return a view of the same passages with another kind of ranking, in memory."""
        return _View(self._whole.as_kind(kind), self._scope)

    @cached_property
    def encoder(self) -> Encoder | None:
        """The encoder of the whole index."""
        return self._whole.encoder

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the whole index and the conditions."""
        return _View, (self._whole, self._scope)

    @property
    def _state(self) -> _State:
        whole, cached = self._whole._state, self._cached
        if cached is None or cached[0] is not whole:
            engine = whole.searched.restricted(json.dumps(self.scope))
            manifest = whole.manifest.model_copy(update={"passages": len(engine)})
            self._cached = cached = (whole, _State(manifest, engine, engine))
        return cached[1]

    def _writing(self) -> NoReturn:
        raise InputError(
            "a view of an index cannot be changed",
            expected="the whole index",
            remedy="change the index that only(…) was called on: the view reflects the change",
        )
