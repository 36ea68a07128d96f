"""An index: passages that can be searched, in memory or kept in one folder."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property, partial
from itertools import chain, islice
from pathlib import Path
from shutil import rmtree
from typing import Any, NamedTuple, NoReturn, cast

import numpy as np
from numpy.typing import NDArray

from ga_dspy import notebook
from ga_dspy.errors import DamagedFile, InputError, check_names
from ga_dspy.passage import Passage
from ga_dspy.retrieval import encoders, rank, segments, store
from ga_dspy.retrieval.encoders import SHARD, Encoder, Progress, as_encoder, batched, silent
from ga_dspy.retrieval.engine import LocalEngine
from ga_dspy.retrieval.milvus import MilvusEngine, publish, refresh, withdraw
from ga_dspy.retrieval.protocol import PassageRetriever, as_passages, check_query
from ga_dspy.retrieval.rank import Kind, Ranking, dense_text
from ga_dspy.retrieval.rerank import AMONG, Reranker, order
from ga_dspy.retrieval.store import WORK, Manifest, PassageTable, StoredEncoder, distinct
from ga_dspy.retrieval.where import Where, written
from ga_dspy.storage import in_turn, on_disk, open_current

SAME_VECTOR = 0.98
"""The least cosine of two vectors that a function gives for one text; APIs differ a little."""

_PARTS = {
    "sparse": {"words": "BM25 scores"},
    "dense": {"vectors": "vectors"},
    "hybrid": {"words": "BM25 scores", "vectors": "vectors", "aliases": "titles"},
}
_PARTS["linked"] = {**_PARTS["hybrid"], "mentions": "links"}
_NO_VECTOR = np.zeros(0, dtype=np.float32)

# --- What a build makes


def _some(passages: Iterable[Any]) -> Iterator[Passage]:
    """The passages of a corpus, which holds at least one."""
    found = as_passages(passages)
    first = next(found, None)
    if first is None:
        raise _empty_corpus()
    return chain([first], found)


def _empty_corpus() -> InputError:
    return InputError(
        "the corpus holds no passages",
        expected="at least one",
        remedy="check the files that the passages are read from",
    )


def _encoder_for(kind: str, given: Any) -> tuple[Encoder | None, StoredEncoder | None]:
    """The encoder of an index of a kind, and what its manifest says of it."""
    if store.check_kind(kind) == "sparse":
        return None, None
    made = as_encoder(given)
    return made, StoredEncoder(
        name=made.name,
        fingerprint=made.fingerprint,
        dimension=made.dimension,
        loadable=isinstance(made, encoders.LOADABLE),
    )


def _spooled(
    passages: Iterable[Passage], kind: str, encoder: StoredEncoder | None, path: Path | None = None
) -> tuple[PassageTable, Manifest]:
    """Distinct passages in a table, and what an index of them is; they may not fit into memory.

    Raises:
        InputError: An id stands for two texts.
    """
    digest = hashlib.sha256()
    table = PassageTable.of(store.hashing(distinct(passages), digest), path)
    return table, Manifest(kind=store.check_kind(kind), encoder=encoder, passages=len(table),
                           source=digest.hexdigest())  # fmt: skip


def _engine(
    table: PassageTable, kind: Kind, encoder: Encoder | None, work: Path | None, progress: Progress
) -> LocalEngine:
    """Make an engine of passages; reports the stages "encoding" and "linking"."""

    def vectors() -> Iterator[NDArray[np.float32]]:
        if encoder:
            texts = map(dense_text, table)
            yield from encoders.encode_texts(
                texts, len(table), encoder, work=work, progress=progress
            )
        progress("linking", 0, len(table))

    engine = segments.with_nearest(segments.made_of(table, kind, vectors(), work))
    progress("linking", len(table), len(table))
    return engine


def _published(engine: LocalEngine, manifest: Manifest, uri: str, folder: Path) -> Manifest:
    """Publish an engine; the collection is named by what it holds and where it is built."""
    made_by = (manifest.source, manifest.kind, manifest.encoder, manifest.generation)
    name = hashlib.sha256(f"{made_by} {folder.absolute()}".encode()).hexdigest()[:16]
    published = publish(engine, uri, f"ga_dspy_{name}")
    return manifest.model_copy(update={"published": published})


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
    """What a search reads, swapped as a whole by a change.

    Attributes:
        manifest: What the index is.
        engine: What holds the passages: the folder, or Milvus where there is a manifest alone.
        searched: What is asked: the same, or Milvus.
        ranking: How it is asked.
    """

    manifest: Manifest
    engine: LocalEngine | MilvusEngine
    searched: LocalEngine | MilvusEngine
    ranking: Ranking


class Index(PassageRetriever):
    """Passages and what ranks them; a `Retriever`, safe to search from several threads.

    Make one with `build` (a folder), `open` (that folder again) or `from_passages` (memory).
    Changes are visible to the next search and cost what they bring, not what is there; results
    are always those of an index built from scratch on the same passages.
    """

    def __init__(
        self,
        engine: LocalEngine | MilvusEngine,
        manifest: Manifest,
        encoder: Any = None,
        path: Path | None = None,
        reranker: str | Reranker | None = None,
        require: Collection[str] = (),
    ) -> None:
        self.reranker = reranker or manifest.reranker
        self.require = tuple(sorted({*manifest.require, *check_names("require", require)}))
        self.path, self._given = path, encoder
        self._changing = threading.RLock()
        self._current = self._made(engine, manifest)
        if encoder is not None:
            _ = self.encoder  # checked now
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
        progress: Progress = silent,
    ) -> Index:
        """Index passages in memory.

        Args:
            passages: `Passage`s, strings, mappings: whatever a retriever may return
                (`as_retriever`). Identical ones count once.
            kind: `"linked"` (default), `"hybrid"`, `"dense"` or `"sparse"`.
            encoder: A name for `load_encoder`, or what `as_encoder` takes: an `Encoder`, a
                `dspy.Embedder`, a function from texts to vectors; unused by `"sparse"`.
            reranker: Orders the first 50 found anew: the name of a cross-encoder of
                sentence-transformers, or a function from a query and texts to scores.
            require: Fields of the metadata, such as `["tenant"]`, without a condition on which no
                search is made (`only`): a value, a list of values or `within`.
            progress: Called with stage, units done, units in all.

        Raises:
            InputError: There are no passages, an id stands for two texts, or the kind is unknown.
        """
        made, stored = _encoder_for(kind, encoder)
        table, manifest = _spooled(_some(passages), kind, stored)
        engine = _engine(table, manifest.kind, made, None, progress)
        return cls(engine, manifest, made, reranker=reranker, require=require)

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
        progress: Progress = silent,
        milvus: str | None = None,
    ) -> Index:
        """Index passages into a folder, and open it.

        A build that was stopped goes on where it stopped when it is run again: every 256
        passages the vectors are kept. A finished build of the same index is opened as it is.

        Args:
            passages: `Passage`s, strings, mappings: whatever a retriever may return
                (`as_retriever`). Identical ones count once. They may come from an iterator that
                gives more than fits into memory.
            out: The folder; made where it is absent.
            kind: `"linked"` (default), `"hybrid"`, `"dense"` or `"sparse"`.
            encoder: A name for `load_encoder`, or what `as_encoder` takes: an `Encoder`, a
                `dspy.Embedder`, a function from texts to vectors; unused by `"sparse"`.
            reranker: The name of a cross-encoder, as of `from_passages`; it stands in the
                manifest. A function is passed to `open`.
            require: As of `from_passages`; it stands in the manifest and holds for whoever opens
                the folder.
            progress: Called with stage, units done, units in all.
            milvus: Search there: the address of a Milvus server, or a file of Milvus Lite that
                ends in ".db". The folder keeps what changes need; its `manifest.json` alone is
                enough to search from another machine.

        Raises:
            InputError: As `from_passages`, or the folder holds something else.
            InUse: Another process builds there.
        """
        folder = Path(out)
        made, stored = _encoder_for(kind, encoder)
        chosen = {"reranker": reranker, "require": tuple(sorted(check_names("require", require)))}
        items = _some(passages)
        with store.writing(folder), on_disk(folder):
            store.check_ours(folder)
            work = folder / WORK
            try:
                work.mkdir(exist_ok=True)
                table, manifest = _spooled(items, kind, stored, work / store.PASSAGES)
                manifest = manifest.model_copy(update=chosen)
                if not store.finished(folder, manifest):
                    engine = _engine(table, manifest.kind, made, work, progress)
                    if milvus:
                        manifest = _published(engine, manifest, milvus, folder)
                    manifest.put(folder, partial(segments.save, engine))
            except InputError:
                (work / store.PASSAGES).unlink(missing_ok=True)
                with suppress(OSError):
                    work.rmdir()
                raise
            rmtree(work, ignore_errors=True)
        return cls.open(folder, encoder=made)

    @classmethod
    def open(
        cls,
        path: Path | str,
        *,
        encoder: Any = None,
        reranker: str | Reranker | None = None,
        require: Collection[str] = (),
    ) -> Index:
        """Open a stored index: sizes of all files are checked, of large ones only `verify` more.

        Args:
            path: The folder.
            encoder: Needed only where the index was built with an encoder of your own; any
                other is loaded by name at the first search that needs it.
            reranker: In place of the one it was built with, as of `from_passages`.
            require: As of `from_passages`, beside what the index was built with.

        Raises:
            InputError: There is no finished index, the encoder did not make these vectors, or it
                cannot be loaded by name and is not given.
            UnknownFormat: Another version wrote the index.
            DamagedFile: A file is missing or has another size.
        """
        folder = Path(path)

        def read(manifest: Manifest) -> tuple[LocalEngine, Manifest]:
            return segments.load(folder, manifest), manifest

        manifest = store.read_manifest(folder)
        if manifest.published and not (folder / manifest.contents).exists():
            engine = MilvusEngine(manifest.published, manifest.passages)
            return cls(engine, manifest, encoder, folder, reranker, require)
        opened = open_current(folder, store.read_manifest, read)
        index = cls(*opened, encoder, folder, reranker, require)
        if encoder is not None:
            index._check_encoder()
        return index

    @property
    def is_quick(self) -> bool:
        """Whether no server, no reranker and no encoder but the one inside has a part in it."""
        stored, engine = self.manifest.encoder, self._state.engine
        is_ours = stored is None or stored.fingerprint == encoders.STATIC_SHA256
        return is_ours and not self.reranker and isinstance(engine, LocalEngine)

    def __call__(self, query: str, k: int = 5, where: Where | None = None) -> list[Passage]:
        """Return at most `k` passages for the query, best first."""
        return [hit.passage for hit in self.search(query, k, where)]

    def search(self, query: str, k: int = 5, where: Where | None = None) -> list[Hit]:
        """Return at most `k` passages with their scores, best first, equal ones in corpus order.

        Args:
            query: What is sought.
            k: The most passages to return.
            where: Conditions on the metadata of passages, as of `only`.

        Raises:
            InputError: The query is blank, `k` is below 1, a condition that the index
                requires is missing, or `only` refuses these.
            DamagedFile: The tables point to what is not there.
        """
        if where is not None:
            return self.only(where).search(query, k)
        check_query(query, k)
        self.check_scope()
        manifest, _, engine, ranking = self._state
        if not len(engine):
            return []
        most = max(k, AMONG) if self.reranker else k
        # An encoder and Milvus may wait for a server: other searches do not wait for that.
        vector = _NO_VECTOR if manifest.kind == "sparse" else self._encode(query)
        rank = partial(ranking.rank, query, vector, most)
        try:
            found = in_turn(rank) if isinstance(engine, LocalEngine) else rank()
            passages = engine.passages([row for row, _ in found])
        except IndexError as error:
            raise DamagedFile(
                f"{self.path or 'the index'}: a table points to what is not there ({error})",
                expected="contents as they were written",
                remedy="restore the folder from a copy, or build it again",
            ) from error
        if self.reranker and passages:
            best = order(self.reranker, query, [passage.content for passage in passages])
            return [Hit(passages[place], score) for place, score in best[:k]]
        return [Hit(passage, score) for passage, (_, score) in zip(passages, found, strict=True)]

    def as_kind(self, kind: str) -> Index:
        """Return a view of the same passages that ranks in another way, in memory.

        Raises:
            InputError: There is no such kind, or the index was built for one with fewer parts.
        """
        changed = self.manifest.model_copy(update={"kind": store.check_kind(kind)})
        return Index(
            self._state.engine, changed, self.encoder, reranker=self.reranker, require=self.require
        )

    def only(self, where: Where) -> Index:
        """Return a view of the passages that meet conditions on their metadata (`Where`).

        It is searched, counted and read as an index that holds nothing else: neither the other
        passages nor their words, names and links count. Being an object, it keeps its conditions
        in every thread, task and generator. Views of views meet the conditions of both. A view
        follows the changes of its index and makes none itself.

        Raises:
            InputError: A condition is malformed, or there is none; or the passages are searched
                in Milvus, which takes no conditions yet.
        """
        view = _View(self, (written(where),))
        if isinstance(self._state.searched, MilvusEngine):
            self._state.searched.restricted(json.dumps(view.scope))
        return view

    def get(self, id: str) -> Passage:
        """Return the passage with an id.

        Raises:
            InputError: There is none, or a condition that the index requires is missing.
        """
        self.check_scope()
        return self._state.engine.passages([self._row(id)])[0]

    def add(self, passages: Iterable[Any], *, progress: Progress = silent) -> int:
        """Add passages; return how many were new (identical ones already here are not).

        Raises:
            InputError: An id is already here with another text; delete it first, or `upsert`.
            InUse: Another writer was or is at work on the folder.
        """
        with self._changing, self._only_writer():
            new = list(distinct(as_passages(passages), self._known))
            self._replace(frozenset(), new, progress)
        return len(new)

    def delete(self, ids: Iterable[str], *, progress: Progress = silent) -> int:
        """Delete passages by id; return how many.

        Raises:
            InputError: There is no passage with one of the ids, or none would be left; nothing
                is deleted.
            InUse: Another writer was or is at work on the folder.
        """
        with self._changing, self._only_writer():
            gone = frozenset(check_names("ids", ids))
            self._replace(gone, [], progress)
        return len(gone)

    def upsert(self, passages: Iterable[Any], *, progress: Progress = silent) -> Changes:
        """Add passages, in place of those that have their ids; all in one change.

        Raises:
            InputError: An id stands for two texts among them.
            InUse: Another writer was or is at work on the folder.
        """
        with self._changing, self._only_writer():
            return self._put(list(distinct(as_passages(passages))), frozenset(), progress)

    def sync(self, passages: Iterable[Any], *, progress: Progress = silent) -> Changes:
        """Make the index hold these passages and no other; all in one change.

        What is here already is not encoded again, under another id neither. A search then finds
        what it would in an index built from scratch.

        Raises:
            InputError: There are no passages, or an id stands for two texts.
            InUse: Another writer was or is at work on the folder.
        """
        with self._changing, self._only_writer():
            wanted = list(distinct(as_passages(passages)))
            kept = {passage.id for passage in wanted}
            gone = frozenset(passage.id for passage in self if passage.id not in kept)
            return self._put(wanted, gone, progress)

    def verify(self) -> None:
        """Read the whole stored index and compare it with the hashes in its manifest.

        Raises:
            DamagedFile: A file differs.
            InputError: The encoder that its name loads did not make these vectors.
        """
        if self.path is not None:
            store.read_manifest(self.path).check(self.path, hashes=True)
        _ = self.encoder

    @cached_property
    def encoder(self) -> Encoder | None:
        """What made the vectors: as given, or loaded by its name when first needed.

        Raises:
            InputError: It did not make the vectors of the index.
        """
        stored = self.manifest.encoder
        if stored is None:
            return None
        found = as_encoder(stored.name if self._given is None else self._given)
        if found.fingerprint != stored.fingerprint:
            raise InputError(
                f"encoder {found.name!r} has fingerprint {found.fingerprint[:12]}",
                expected=f"{stored.name!r} with {stored.fingerprint[:12]}",
                remedy="open the index with the encoder it was built with, or build it again with "
                "this one",
            )
        return found

    @property
    def manifest(self) -> Manifest:
        """What the index is: kind, encoder, counts."""
        return self._state.manifest

    @property
    def engine(self) -> LocalEngine:
        """The folder's store of passages, as it is now; changes make another one.

        Raises:
            InputError: There is a manifest alone, and the passages lie in Milvus.
        """
        engine = self._state.engine
        if isinstance(engine, MilvusEngine):
            raise InputError(
                f"{self.path} holds a manifest alone",
                expected="the folder in which the index was built",
                remedy="change the index there: what is published here follows",
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
        named = f", {encoder.name} ({self.manifest.factory})" if encoder else ""
        by = self.reranker
        if by and not isinstance(by, str):
            by = getattr(by, "name", getattr(by, "__name__", type(by).__name__))
        more = f", reranked by {by}" if by else ""
        where = ", in Milvus" if self.manifest.published else ""
        return f"{len(self):,} passages, {self.kind}{named}{more}{where}"

    @property
    def fingerprint(self) -> str:
        """SHA-256 over ids, titles and texts of the passages, whatever their order."""
        digests = sorted(
            hashlib.sha256(json.dumps([p.id, p.title, p.text]).encode()).digest() for p in self
        )
        return hashlib.sha256(b"".join(digests)).hexdigest()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle a stored index as its folder, one in memory with all that it holds."""
        stored = self.manifest.encoder
        encoder = None if stored is None or stored.loadable else self.encoder
        if self.path is not None:
            opened = partial(
                Index.open, encoder=encoder, reranker=self.reranker, require=self.require
            )
            return opened, (self.path.absolute(),)
        made = (self._state.engine, self.manifest, encoder, None, self.reranker, self.require)
        return Index, made

    def _repr_html_(self) -> str:
        """What it is and its first passages, for notebooks."""
        rows = ((p.id, p.title, p.text) for p in islice(self, 0 if self._missing else 5))
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
        return chain.from_iterable(map(engine.passages, batched(engine.rows().tolist(), SHARD)))

    def __repr__(self) -> str:
        return f"Index({self.description})"

    def _check_encoder(self) -> None:
        """Encode a passage again where a function made the vectors: its name says little."""
        engine = self._state.engine
        if isinstance(self.encoder, encoders.FunctionEncoder):
            row = engine.rows()[:1]
            text = dense_text(engine.passages(row.tolist())[0])
            if float(engine.cosines(self.encoder.encode([text])[0], row)[0]) < SAME_VECTOR:
                raise InputError(
                    f"encoder {self.encoder.name!r} gives another vector for {text[:40]!r} than "
                    "the index holds",
                    expected="the function that made the vectors",
                    remedy="open the index with that one, or build it again with this one",
                )

    def _made(self, engine: LocalEngine | MilvusEngine, manifest: Manifest) -> _State:
        searched = engine
        if manifest.published and isinstance(engine, LocalEngine):
            searched = MilvusEngine(manifest.published, manifest.passages)
        return _State(manifest, engine, searched, self._ranking(searched, manifest.kind))

    def _ranking(self, engine: LocalEngine | MilvusEngine, kind: Kind) -> Ranking:
        """Return the ranking of a kind.

        Raises:
            InputError: The index was made for a kind with fewer parts.
        """
        for part, name in _PARTS[kind].items():
            if not engine.holds(part):
                raise InputError(
                    f"this index holds no {name}",
                    expected=f"an index that can rank as {kind!r}",
                    remedy=f"build the index with kind={kind!r}",
                )
        if kind == "sparse":
            return rank.SparseRanking(engine)
        if kind == "dense":
            return rank.DenseRanking(engine)
        return rank.HybridRanking(engine) if kind == "hybrid" else rank.LinkedRanking(engine)

    def _encode(self, query: str) -> NDArray[np.float32]:
        return cast("Encoder", self.encoder).encode_query(query)

    def _known(self, id: str) -> Passage | None:
        row = self._state.engine.row(id)
        return None if row is None else self._state.engine.passages([row])[0]

    @contextmanager
    def _only_writer(self) -> Iterator[None]:
        _ = self.engine  # raises where there is none to change
        if self.path is None:
            yield
            return
        with store.writing(self.path):
            store.check_unchanged(self.path, self.manifest)
            yield

    def _row(self, id: str) -> int:
        row = self._state.engine.row(id)
        if row is None:
            raise InputError(
                f"the index holds no passage with id {id!r}",
                expected="the id of an indexed passage",
                remedy="look up ids with search",
            )
        return row

    def _put(
        self, passages: Sequence[Passage], removed: frozenset[str], progress: Progress
    ) -> Changes:
        """Put these passages in place of those of their ids, and remove others."""
        here = {p.id: self._known(p.id) for p in passages}
        new = [p for p in passages if here[p.id] != p]
        added = tuple(p.id for p in new if here[p.id] is None)
        changed = tuple(p.id for p in new if here[p.id] is not None)
        unchanged = tuple(p.id for p in passages if here[p.id] == p)
        self._replace(removed.union(changed), new, progress)
        return Changes(added, changed, tuple(sorted(removed)), unchanged)

    def _replace(self, gone: frozenset[str], new: Sequence[Passage], progress: Progress) -> None:
        """Delete and add in one change; a text that was here already is not encoded again."""
        if not gone and not new:
            return
        engine = self.engine
        rows = sorted(self._row(id) for id in gone)
        if len(engine) + len(new) == len(rows):
            raise _empty_corpus()
        vectors = None
        if engine.holds("vectors") and (encoder := self.encoder):
            old = map(dense_text, engine.passages(rows))
            known = dict(zip(old, engine.vectors(np.array(rows, dtype=np.int64)), strict=True))
            texts = [dense_text(passage) for passage in new]
            fresh = [text for text in dict.fromkeys(texts) if text not in known]
            encoded = encoders.encode_texts(fresh, len(fresh), encoder, progress=progress)
            known |= zip(fresh, chain.from_iterable(encoded), strict=True)
            vectors = np.array([known[text] for text in texts], dtype=np.float32)
        progress("linking", 0, len(new))
        work = self.path / WORK if self.path else None
        manifest = self.manifest.changed(len(engine) + len(new) - len(rows))
        before, published, searched = engine, manifest.published, self._state.searched
        with on_disk(work or Path()):
            grown = segments.changed(engine, new, vectors, rows)
            engine = segments.with_nearest(segments.tidied(grown, work))
        left = None
        if published and self.path and isinstance(searched, MilvusEngine):
            # Rows that were numbered anew, or an earlier change that broke off: all is sent again.
            if engine.size != grown.size or searched.stored() != len(before):
                manifest = _published(engine, manifest, published.uri, self.path)
                left = published
            else:
                sent = refresh(before, engine, rows, published)
                manifest = manifest.model_copy(update={"published": sent})
        if self.path is not None:
            manifest = manifest.put(self.path, partial(segments.save, engine))
            rmtree(self.path / WORK, ignore_errors=True)
            engine = segments.load(self.path, manifest)
        if left:
            withdraw(left)
        self._current = self._made(engine, manifest)
        progress("linking", len(new), len(new))


class _View(Index):
    """The passages of an index that meet conditions, as of `Index.only`.

    All that an index does rests on its state; that of a view holds nothing else.
    """

    def __init__(self, whole: Index, scope: Collection[str]) -> None:
        self._whole, self._scope = whole, tuple(dict.fromkeys(scope))
        self.path, self.reranker, self.require = whole.path, whole.reranker, whole.require
        self._changing = threading.RLock()
        self._made_of: tuple[_State, _State] | None = None

    @property
    def scope(self) -> tuple[Where, ...]:
        """The conditions that its passages meet, all of them."""
        return tuple(map(json.loads, self._scope))

    def only(self, where: Where) -> Index:
        """Return a view of the passages that meet these conditions too."""
        return _View(self._whole, (*self._scope, written(where)))

    def as_kind(self, kind: str) -> Index:
        """Return a view of the same passages that ranks in another way, in memory."""
        return _View(self._whole.as_kind(kind), self._scope)

    @property
    def is_quick(self) -> bool:
        """As the whole index."""
        return self._whole.is_quick

    @property
    def description(self) -> str:
        """The index in one line, with the conditions."""
        return f"{super().description}, only {' and '.join(self._scope)}"

    @cached_property
    def encoder(self) -> Encoder | None:
        """As of the whole index."""
        return self._whole.encoder

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the whole index and the conditions."""
        return _View, (self._whole, self._scope)

    @property
    def _state(self) -> _State:
        whole, made = self._whole._state, self._made_of
        if made is None or made[0] is not whole:
            engine = whole.searched.restricted(json.dumps(self.scope))
            manifest = whole.manifest.model_copy(update={"passages": len(engine)})
            state = _State(manifest, engine, engine, self._ranking(engine, manifest.kind))
            self._made_of = made = (whole, state)
        return made[1]

    def _only_writer(self) -> NoReturn:
        raise InputError(
            "a view of an index was to be changed",
            expected="the whole index",
            remedy="change the index that only(…) was called on: the view follows",
        )
