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
"""The minimum cosine of two vectors of one function for one text; APIs are not exact."""


# --- Building


def _empty_corpus() -> InputError:
    return InputError(
        "the corpus holds no passages",
        expected="at least one",
        remedy="check the files that the passages are read from",
    )


def _store_passages(
    passages: Iterable[Any], folder: Path | None, kind: Kind, encoder: Encoder | None,
    redactor: Redactor | None, **options: Any,
) -> tuple[PassageTable, Manifest]:  # fmt: skip
    """Write distinct passages to a table; return it, and the manifest of an index of them.

    Raises:
        InputError: There are no passages, or an id stands for two texts.
    """
    digest = hashlib.sha256()
    every = distinct(redacted(passages, redactor))
    table = PassageTable.of(store.hashing(every, digest), folder and folder / store.PASSAGES)
    if not len(table):
        raise _empty_corpus()
    return table, Manifest(
        kind=kind, encoder=encoder and StoredEncoder.of(encoder), passages=len(table),
        source=digest.hexdigest(), redact=redactor and redactor.name, **options,
    )  # fmt: skip


def _make_engine(
    table: PassageTable, kind: Kind, encoder: Encoder | None, folder: Path | None,
    progress: Progress,
) -> LocalEngine:  # fmt: skip
    """Make the engine of an index; reports the stages "encoding" and "linking"."""

    def vectors() -> Iterator[NDArray[np.float32]]:
        if encoder:
            texts, work = map(dense_text, table), folder and folder.parent
            yield from encoders.encode_texts(
                texts, len(table), encoder, work=work, progress=progress
            )
        progress("linking", 0, len(table))

    engine = segments.make_engine(table, kind, vectors(), folder)
    progress("linking", len(table), len(table))
    return engine


def _published(engine: LocalEngine, manifest: Manifest, uri: str, folder: Path) -> store.Published:
    """Publish an engine; the collection is named after its contents and the folder."""
    contents = (manifest.source, manifest.kind, manifest.encoder, manifest.generation)
    name = hashlib.sha256(f"{contents} {folder.absolute()}".encode()).hexdigest()[:16]
    return publish(engine, uri, f"ga_dspy_{name}")


def _read(folder: Path) -> tuple[Engine, Manifest]:
    """Read the current contents of a folder, or of Milvus if it has only a manifest."""
    manifest = store.read_manifest(folder)
    if manifest.published and not (folder / manifest.contents).exists():
        return MilvusEngine(manifest.published, manifest.passages), manifest
    return open_current(
        folder, store.read_manifest, lambda manifest: (segments.load(folder, manifest), manifest)
    )


class Hit(NamedTuple):
    """A passage and its score, which is comparable within one search only."""

    passage: Passage
    score: float


class Changes(NamedTuple):
    """The changes to an index, by passage ids."""

    added: tuple[str, ...]
    changed: tuple[str, ...]
    removed: tuple[str, ...]
    unchanged: tuple[str, ...]


class StoredDocument(NamedTuple):
    """A document of an index: the passages with its id, or with its id and a number (`a.md#2`)."""

    id: str
    passages: tuple[Passage, ...]


def _documents(engine: LocalEngine, first: int, end: int) -> list[StoredDocument]:
    """Return the documents from one place to another (exclusive)."""
    ids, places = engine.documents
    rows = np.flatnonzero((places >= first) & (places < end))
    parts: dict[int, list[Passage]] = {place: [] for place in range(first, end)}
    found = engine.passages(engine.rows()[rows].tolist())
    for place, passage in zip(places[rows].tolist(), found, strict=True):
        parts[place].append(passage)
    return [StoredDocument(ids[place].as_py(), tuple(p)) for place, p in parts.items()]


class _State(NamedTuple):
    """What a search reads; a change replaces it as a whole.

    Attributes:
        manifest: The manifest.
        engine: Holds the passages: the folder, or Milvus if there is only a manifest.
        searched: Is searched: the same, or Milvus.
    """

    manifest: Manifest
    engine: Engine
    searched: Engine


def _state_of(engine: Engine, manifest: Manifest) -> _State:
    """Return a state.

    Raises:
        InputError: The index was made for a kind of ranking with fewer parts.
    """
    searched = engine
    if manifest.published and isinstance(engine, LocalEngine):
        searched = MilvusEngine(manifest.published, manifest.passages)
    Ranking(searched, manifest.kind)  # checks the parts
    return _State(manifest, engine, searched)


def _digest(passage: Passage) -> bytes:
    return hashlib.sha256(json.dumps([passage.id, passage.title, passage.text]).encode()).digest()


class Index(PassageRetriever):
    """Passages and their ranking; a `Retriever` that several threads may search.

    Create one with `build` (a folder), `open` (that folder again) or `from_passages` (memory).
    Changes are visible to the next search, and their cost depends on the change, not on the index.
    Results are always those of an index built from scratch on the same passages.
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
        self.path, self._given, self._redact = path, encoder, redact
        self._changing = threading.RLock()
        self._current = _state_of(engine, manifest)
        if redact is not None:
            _ = self.redactor  # checks the name
        if encoder is not None:
            _ = self.encoder  # checks the fingerprint
        elif (stored := manifest.encoder) and not stored.loadable:
            raise InputError(
                f"the index was built with {stored.name!r}, an encoder of your own",
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
            reranker: Reranks the first 50 results: the name of a cross-encoder of
                sentence-transformers, or a function from a query and texts to scores.
            require: Metadata fields, such as `["tenant"]`, that every search must filter on
                (`only`): with a value, a list of values or `within`.
            redact: Takes personal data out of titles, texts and metadata before they are indexed,
                now and at every later change: "presidio", "module:function", or a function from
                text to text. Ids and `source` stay, but an id made of the title is made again.
            progress: Called with stage, units done, units in all.

        Raises:
            InputError: There are no passages, an id stands for two texts, or the kind is unknown.
        """
        ranking, redactor = store.check_kind(kind), load_redactor(redact)
        made = None if ranking == "sparse" else as_encoder(encoder)
        table, manifest = _store_passages(passages, None, ranking, made, redactor)
        engine = _make_engine(table, ranking, made, None, progress)
        return cls(engine, manifest, made, reranker=reranker, require=require, redact=redactor)

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

        If a build is interrupted, run it again to resume: vectors are stored every 256 passages.
        If the folder already holds the same index, it is opened.

        Args:
            passages: As in `from_passages`. They may come from an iterator over more than fits
                into memory.
            out: The folder; created if necessary.
            kind: As in `from_passages`.
            encoder: As in `from_passages`.
            reranker: The name of a cross-encoder, which is stored in the manifest. Pass a function
                to `open` instead.
            require: As in `from_passages`; it is stored in the manifest and applies to everyone
                who opens the folder.
            redact: As in `from_passages`. Its name is stored in the manifest; a function has to be
                given to `open` before the index can be changed.
            progress: Called with stage, units done, units in all.
            milvus: Search there: the address of a Milvus server, or a Milvus Lite file that ends
                in ".db". The folder keeps what changes need; another machine needs only its
                `manifest.json` to search.

        Raises:
            InputError: As `from_passages`, or the folder holds something else.
            InUse: Another process builds there.
        """
        folder, ranking, redactor = Path(out), store.check_kind(kind), load_redactor(redact)
        made = None if ranking == "sparse" else as_encoder(encoder)
        options = {"reranker": reranker, "require": sorted(check_names("require", require))}
        with store.writing(folder), on_disk(folder):
            store.check_ours(folder)
            work, target = folder / WORK, segments.new_folder(folder / WORK)
            try:
                table, manifest = _store_passages(
                    passages, target, ranking, made, redactor, **options
                )
                if not store.finished(folder, manifest):
                    engine = _make_engine(table, ranking, made, target, progress)
                    if milvus:
                        sent = _published(engine, manifest, milvus, folder)
                        manifest = manifest.model_copy(update={"published": sent})
                    manifest.put(folder, partial(segments.save, engine))
            except InputError:
                rmtree(work / "segment")
                with suppress(OSError):
                    work.rmdir()  # unless it has vectors
                raise
            rmtree(work, ignore_errors=True)
        return cls.open(folder, encoder=made, redact=redactor)

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
        """Open a stored index; checks all file sizes, and the hashes of small indexes.

        Args:
            path: The folder.
            encoder: Required only if the index was built with an encoder of your own; any other
                is loaded by name at the first search that needs it.
            reranker: Replaces the one it was built with; as in `from_passages`.
            require: As in `from_passages`, in addition to what the index was built with.
            redact: The function that the index was built with; without it, an index that was built
                with one can be searched, but nothing can be added.

        Raises:
            InputError: There is no finished index, the encoder did not make these vectors, or it
                cannot be loaded by name and is not given; or the redaction is another.
            UnknownFormat: Another version wrote the index.
            DamagedFile: A file is missing or has another size.
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
        """Return at most `k` passages with their scores, best first, equal ones in corpus order.

        Args:
            query: The search query.
            k: Passages to retrieve.
            where: Conditions on the metadata of passages, as in `only`.

        Raises:
            InputError: The query is blank, `k` is below 1, a required condition is missing, or
                `only` rejects the conditions.
            DamagedFile: The tables have invalid entries.
        """
        if where is not None:
            return self.only(where).search(query, k)
        check_query(query, k)
        self.check_scope()
        manifest, _, engine = self._state
        if not len(engine):
            return []
        most = max(k, encoders.RERANKED) if self.reranker else k
        # Encoders and Milvus may wait for a server; other searches do not wait for them.
        encoder = None if manifest.kind == "sparse" else self.encoder
        vector = encoder.encode_query(query) if encoder else np.zeros(0, dtype=np.float32)
        try:
            scored = Ranking(engine, manifest.kind).rank(query, vector, most)
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
            InputError: The kind is unknown, or the index was built without its parts.
        """
        changed = self.manifest.model_copy(update={"kind": store.check_kind(kind)})
        return self._like(self._state.engine, changed)

    def only(self, where: Where) -> Index:
        """Return a view of the passages that meet conditions on their metadata (`Where`).

        The view behaves like an index that holds nothing else: other passages, with their words,
        names and links, do not count. It keeps its conditions in every thread, task and generator.
        A view of a view meets the conditions of both. A view follows the changes of its index, and
        cannot be changed itself.

        Raises:
            InputError: A condition is malformed, or there is none; or the passages are searched
                in Milvus, which supports no conditions.
        """
        view = _View(self.whole, (*self._scope, as_json(where)))
        if isinstance(self._state.searched, MilvusEngine):
            self._state.searched.restricted(json.dumps(view.scope))
        return view

    @property
    def scope(self) -> tuple[Where, ...]:
        """The conditions that all its passages meet; none unless it is a view."""
        return tuple(map(json.loads, self._scope))

    @property
    def ids(self) -> frozenset[str]:
        """Return the ids of all passages."""
        engine = self._state.engine
        return engine.ids if isinstance(engine, LocalEngine) else frozenset(p.id for p in self)

    def without_passages(self, ids: Collection[str] | None = None) -> Index:
        """Return an index in memory like this one without some passages; by default without all."""
        engine, manifest = self.engine, self.manifest
        gone: Sequence[int] = range(engine.size)
        if ids is not None:
            gone = [*engine.dead, *(row for id in ids if (row := engine.row(id)) is not None)]
        kept = LocalEngine(engine.segments, gone)
        update = {"passages": len(kept), "published": None}
        return self._like(kept, manifest.model_copy(update=update))

    def _like(self, engine: Engine, manifest: Manifest) -> Index:
        """Return an index in memory with the settings of this one."""
        rest = (self.encoder, None, self.reranker, self.require, self._redact)
        return Index(engine, manifest, *rest)

    def get(self, id: str) -> Passage:
        """Return the passage with an id.

        Raises:
            InputError: There is none, or a required condition is missing.
        """
        self.check_scope()
        return self._state.engine.passages([self._row(id)])[0]

    def documents(
        self, first: int = 0, most: int | None = None
    ) -> tuple[int, list[StoredDocument]]:
        """Return the number of documents, and some of them in corpus order.

        Args:
            first: How many to skip.
            most: How many to return at most; by default all.

        Raises:
            InputError: A required condition is missing.
        """
        self.check_scope()
        engine = self.engine
        count = len(engine.documents[0])
        end = count if most is None else min(first + most, count)
        return count, _documents(engine, first, end)

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
        """Add passages; return how many were new (identical ones are not).

        Raises:
            InputError: The index has an id with another text; delete it first, or use `upsert`.
            InUse: Another writer is changing the folder, or has changed it.
        """
        with self._writing():
            new = list(distinct(redacted(passages, self.redactor), self._known))
            self._replace(frozenset(), new, progress)
        return len(new)

    def delete(self, ids: Iterable[str], *, progress: Progress = silent) -> int:
        """Delete passages by id; return how many.

        Raises:
            InputError: There is no passage with one of the ids, or none would be left; nothing
                is deleted.
            InUse: Another writer is changing the folder, or has changed it.
        """
        with self._writing():
            gone = frozenset(check_names("ids", ids))
            self._replace(gone, [], progress)
        return len(gone)

    def upsert(
        self, passages: Iterable[Any], *, delete: Iterable[str] = (), progress: Progress = silent
    ) -> Changes:
        """Add passages, replacing those with the same ids; all in one change.

        Args:
            passages: As in `from_passages`.
            delete: Ids of passages to delete, unless they are among the new ones.
            progress: Called with stage, units done, units in all.

        Raises:
            InputError: An id stands for two texts among them, or there is no passage to delete.
            InUse: Another writer is changing the folder, or has changed it.
        """
        with self._writing():
            new = list(distinct(redacted(passages, self.redactor)))
            return self._put(new, frozenset(delete) - {passage.id for passage in new}, progress)

    def sync(self, passages: Iterable[Any], *, progress: Progress = silent) -> Changes:
        """Make the index hold exactly these passages; all in one change.

        Texts that the index has are not encoded again, even under another id.

        Raises:
            InputError: There are no passages, or an id stands for two texts.
            InUse: Another writer is changing the folder, or has changed it.
        """
        with self._writing():
            wanted = list(distinct(redacted(passages, self.redactor)))
            kept = {passage.id for passage in wanted}
            gone = frozenset(passage.id for passage in self if passage.id not in kept)
            return self._put(wanted, gone, progress)

    def refresh(self) -> None:
        """Read the folder again if another process has changed the index in it.

        Raises:
            DamagedFile: A file is missing or has another size.
        """
        if self.path is None:
            return
        now, was = store.read_manifest(self.path), self.manifest
        is_same_kind = (now.kind, now.encoder) == (was.kind, was.encoder)
        if is_same_kind and (now.generation, now.source) != (was.generation, was.source):
            with self._changing:
                self._current = _state_of(*_read(self.path))

    def verify(self) -> None:
        """Compare the whole stored index with the hashes in its manifest.

        Raises:
            DamagedFile: A file differs.
            InputError: The encoder with its name did not make these vectors.
        """
        if self.path is not None:
            store.read_manifest(self.path).check(self.path, hashes=True)
        _ = self.encoder

    @cached_property
    def encoder(self) -> Encoder | None:
        """The encoder of the vectors: as given, or loaded by name when first needed.

        Raises:
            InputError: It did not make the vectors of the index.
        """
        stored = self.manifest.encoder
        if stored is None:
            return None
        encoder = as_encoder(stored.name if self._given is None else self._given)
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
        """The redaction that documents go through before they are indexed; None if there is none.

        Raises:
            InputError: It is a function that was not given to `open`, or another one was.
        """
        return check_redactor(self.manifest.redact, self._redact)

    @property
    def whole(self) -> Index:
        """The index itself; of a view, the index that `only` was called on."""
        return self

    @property
    def manifest(self) -> Manifest:
        """The manifest: kind, encoder, counts."""
        return self._state.manifest

    @property
    def engine(self) -> LocalEngine:
        """The current storage of the folder; each change makes another one.

        Raises:
            InputError: There is only a manifest, and the passages are in Milvus.
        """
        engine = self._state.engine
        if isinstance(engine, MilvusEngine):
            raise InputError(
                f"{self.path} holds only a manifest",
                expected="the folder in which the index was built",
                remedy="change the index there: the collection in Milvus follows",
            )
        return engine

    @property
    def kind(self) -> Kind:
        """How the index ranks."""
        return self.manifest.kind

    @property
    def description(self) -> str:
        """The index in one line."""
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
        """SHA-256 of the ids, titles and texts of the passages, independent of their order."""
        return hashlib.sha256(b"".join(sorted(self.digests.values()))).hexdigest()

    @property
    def digests(self) -> Mapping[str, bytes]:
        """SHA-256 of id, title and text of each passage, by id; cached, a change adds its own."""
        if self._digests is None or self._digests[0] is not self._state:
            self._digests = self._state, {passage.id: _digest(passage) for passage in self}
        return self._digests[1]

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle a stored index as its folder, one in memory with its contents."""
        stored = self.manifest.encoder
        options: dict[str, Any] = {
            "encoder": None if stored is None or stored.loadable else self.encoder,
            "reranker": self.reranker, "require": self.require, "redact": self._redact,
        }  # fmt: skip
        if self.path is not None:
            return partial(Index.open, **options), (self.path.absolute(),)
        return partial(Index, **options), (self._state.engine, self._state.manifest)

    def _repr_html_(self) -> str:
        """Description and first passages, for notebooks."""
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
        """Check a function's vectors by encoding a passage again; its name proves little."""
        engine = self._state.engine
        if isinstance(self.encoder, encoders.FunctionEncoder):
            row = engine.rows()[:1]
            text = dense_text(engine.passages(row.tolist())[0])
            if float(engine.cosines(self.encoder.encode([text])[0], row)[0]) < SAME_VECTOR:
                raise InputError(
                    f"encoder {self.encoder.name!r} returns another vector for {text[:40]!r} than "
                    "the index has",
                    expected="the function that made the vectors",
                    remedy="open the index with that one, or build it again with this one",
                )

    def _known(self, id: str) -> Passage | None:
        row = self._state.engine.row(id)
        return None if row is None else self._state.engine.passages([row])[0]

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Lock the index and its folder for writing."""
        _ = self.engine  # raises if there is none to change
        with self._changing, store.writing(self.path) if self.path else nullcontext():
            if self.path:
                store.check_unchanged(self.path, self.manifest)
            yield

    def _row(self, id: str) -> int:
        row = self._state.engine.row(id)
        if row is None:
            raise InputError(
                f"the index has no passage with id {id!r}",
                expected="the id of an indexed passage",
                remedy="look up ids with search",
            )
        return row

    def _put(
        self, passages: Sequence[Passage], removed: frozenset[str], progress: Progress
    ) -> Changes:
        """Replace the passages with the same ids, and remove others."""
        old = {p.id: self._known(p.id) for p in passages}
        new = [p for p in passages if old[p.id] != p]
        added = tuple(p.id for p in new if old[p.id] is None)
        changed = tuple(p.id for p in new if old[p.id] is not None)
        unchanged = tuple(p.id for p in passages if old[p.id] == p)
        self._replace(removed.union(changed), new, progress)
        return Changes(added, changed, tuple(sorted(removed)), unchanged)

    def _replace(self, gone: frozenset[str], new: Sequence[Passage], progress: Progress) -> None:
        """Delete and add in one change."""
        if not gone and not new:
            return
        before, manifest = self.engine, self.manifest
        rows = sorted(self._row(id) for id in gone)
        if len(before) + len(new) == len(rows):
            raise _empty_corpus()
        vectors = self._vectors(new, rows, progress)
        progress("linking", 0, len(new))
        work = self.path / WORK if self.path else None
        with on_disk(work or Path()):
            engine = segments.changed(before, new, vectors, rows, work)
        update = {"passages": len(engine), "generation": manifest.generation + 1}
        published, manifest = manifest.published, manifest.model_copy(update=update)
        if self.path is not None:
            if published:
                sent = refresh(before, engine, rows, published) or _published(
                    engine, manifest, published.uri, self.path
                )
                manifest = manifest.model_copy(update={"published": sent})
            manifest = manifest.put(self.path, partial(segments.save, engine))
            rmtree(self.path / WORK, ignore_errors=True)
            engine = segments.load(self.path, manifest)
            if published and published.collection != sent.collection:
                withdraw(published)
        digests, state = self._digests, self._current
        self._current = _state_of(engine, manifest)
        if digests is not None and digests[0] is state:
            stayed = {id: digest for id, digest in digests[1].items() if id not in gone}
            self._digests = self._current, stayed | {each.id: _digest(each) for each in new}
        progress("linking", len(new), len(new))

    def _vectors(
        self, new: Sequence[Passage], gone: Sequence[int], progress: Progress
    ) -> NDArray[np.float32] | None:
        """Return the vectors of new passages; the text of a row that goes is not encoded again."""
        if not self.engine.holds("vectors") or not (encoder := self.encoder):
            return None
        old = map(dense_text, self.engine.passages(gone))
        known = dict(zip(old, self.engine.vectors(np.array(gone, dtype=np.int64)), strict=True))
        texts = [dense_text(passage) for passage in new]
        fresh = [text for text in dict.fromkeys(texts) if text not in known]
        encoded = encoders.encode_texts(fresh, len(fresh), encoder, progress=progress)
        known |= zip(fresh, chain.from_iterable(encoded), strict=True)
        return np.array([known[text] for text in texts], dtype=np.float32)


class _View(Index):
    """The passages of an index that meet conditions; see `Index.only`.

    All methods of an index read its state; the state of a view has only these passages.
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
        """As for the whole index."""
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
            remedy="change the index that only(…) was called on: the view follows",
        )
