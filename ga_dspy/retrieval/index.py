"""An index: passages that can be searched, in memory or kept in one folder."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ga_dspy.errors import InputError
from ga_dspy.passage import Passage
from ga_dspy.retrieval.binding import EncoderByName, bind
from ga_dspy.retrieval.contents import FLAT, Contents, MissingPart, check_kind
from ga_dspy.retrieval.dense import dense_text
from ga_dspy.retrieval.encoder import Encoder
from ga_dspy.retrieval.manifest import WORK, Manifest, check_hashes, read_manifest
from ga_dspy.retrieval.passages import EmptyCorpus, distinct
from ga_dspy.retrieval.plan import Plan, derive
from ga_dspy.retrieval.protocol import check_query
from ga_dspy.retrieval.shards import SHARD, Progress, encode_texts
from ga_dspy.retrieval.store import check_unchanged, finished, open_contents, store, writing

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ga_dspy.retrieval.ranking import Kind, Ranking


class Hit(NamedTuple):
    """A passage that was found, and its score (comparable within one search only)."""

    passage: Passage
    score: float


class UnknownPassage(InputError):
    """The index holds no passage with this id."""

    def __init__(self, id: str) -> None:
        super().__init__(
            f"the index holds no passage with id {id!r}",
            expected="the id of an indexed passage",
            remedy="look up ids with search",
        )


class _State(NamedTuple):
    """What a search reads, swapped as a whole by a change."""

    manifest: Manifest
    contents: Contents
    ranking: Ranking


class Index:
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
        encoder: Encoder | None = None,
        path: Path | None = None,
    ) -> None:
        self.encoder = bind(manifest.encoder, encoder)
        self.path = path
        self._changing = threading.RLock()
        self._state = self._made(contents, manifest)

    @classmethod
    def from_passages(
        cls,
        passages: Iterable[Passage],
        *,
        kind: str = "linked",
        encoder: Encoder | str = "auto",
        factory: str = FLAT,
        progress: Progress | None = None,
    ) -> Index:
        """Index passages in memory.

        Args:
            passages: Identical ones count once.
            kind: `"linked"` (default), `"hybrid"`, `"dense"` or `"sparse"`.
            encoder: A name for `load_encoder`, or an `Encoder`; unused by `"sparse"`.
            factory: A FAISS index_factory string; `"Flat"` is exact.
            progress: Called with stage, units done, units in all.

        Raises:
            EmptyCorpus, DuplicateId, UnknownKind, BadFactory: See their messages.
        """
        plan = Plan(passages, kind, encoder, factory)
        return cls(plan.contents(None, progress, SHARD), plan.manifest, plan.encoder)

    @classmethod
    def build(
        cls,
        passages: Iterable[Passage],
        out: Path | str,
        *,
        kind: str = "linked",
        encoder: Encoder | str = "auto",
        factory: str = FLAT,
        progress: Progress | None = None,
        batch_size: int = SHARD,
    ) -> Index:
        """Index passages into a folder, and open it.

        A build that was stopped goes on where it stopped when it is run again: every `batch_size`
        passages the vectors are kept. A finished build of the same index is opened as it is.

        Args:
            passages: Identical ones count once.
            out: The folder; made where it is absent.
            kind: `"linked"` (default), `"hybrid"`, `"dense"` or `"sparse"`.
            encoder: A name for `load_encoder`, or an `Encoder`; unused by `"sparse"`.
            factory: A FAISS index_factory string; `"Flat"` is exact.
            progress: Called with stage, units done, units in all.
            batch_size: Passages in a shard of vectors.

        Raises:
            EmptyCorpus, DuplicateId, UnknownKind, BadFactory: See their messages.
            ForeignFolder: The folder holds something else.
            FolderInUse: Another process builds there.
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
    def open(cls, path: Path | str, *, encoder: Encoder | None = None) -> Index:
        """Open a stored index; sizes of all files are checked, `verify` checks their hashes.

        Args:
            path: The folder.
            encoder: Needed only where the index was built with an encoder of your own; any
                other is loaded by name at the first search that needs it.

        Raises:
            NotAnIndex, UnfinishedBuild, UnknownFormat, DamagedIndex: See their messages.
            WrongEncoder: The encoder did not make these vectors.
            EncoderNeeded: The encoder cannot be loaded by name and is not given.
        """
        folder = Path(path)
        manifest, contents = open_contents(folder)
        return cls(contents, manifest, encoder, folder)

    def __call__(self, query: str, k: int = 5) -> list[Passage]:
        """Return at most `k` passages for the query, best first."""
        return [hit.passage for hit in self.search(query, k)]

    def search(self, query: str, k: int = 5) -> list[Hit]:
        """Return at most `k` passages with their scores, best first, equal ones in corpus order.

        Raises:
            InputError: The query is blank or `k` is below 1.
        """
        check_query(query, k)
        state = self._state
        passages = state.contents.passages
        return [Hit(passages[row], score) for row, score in state.ranking.rank(query, k)]

    def as_kind(self, kind: str) -> Index:
        """Return a view of the same passages that ranks in another way, in memory.

        Raises:
            UnknownKind: There is no such kind.
            MissingPart: This index was built for a kind with fewer parts.
        """
        changed = self.manifest.model_copy(update={"kind": check_kind(kind)})
        return Index(self._state.contents, changed, self.encoder)

    def get(self, id: str) -> Passage:
        """Return the passage with an id.

        Raises:
            UnknownPassage: There is none.
        """
        passages = self._state.contents.passages
        row = passages.rows.get(id)
        if row is None:
            raise UnknownPassage(id)
        return passages[row]

    def add(self, passages: Iterable[Passage], *, progress: Progress | None = None) -> int:
        """Add passages; return how many were new (identical ones already here are not).

        Raises:
            DuplicateId: An id is already here with another text; delete it first.
            IndexChanged, FolderInUse: Another writer was or is at work on the folder.
        """
        with self._changing, self._only_writer():
            contents = self._state.contents
            old = list(contents.passages)
            new = distinct(passages, known=old)
            if new:
                vectors = self._vectors_with(new, progress)
                self._change(old + new, vectors, progress, added=len(new))
        return len(new)

    def delete(self, ids: Iterable[str], *, progress: Progress | None = None) -> int:
        """Delete passages by id; return how many.

        Raises:
            UnknownPassage: There is no passage with one of the ids; nothing is deleted.
            EmptyCorpus: None would be left; nothing is deleted.
            IndexChanged, FolderInUse: Another writer was or is at work on the folder.
        """
        with self._changing, self._only_writer():
            contents = self._state.contents
            gone = {self._row(id) for id in ids}
            kept = [row for row in range(len(contents.passages)) if row not in gone]
            if not kept:
                raise EmptyCorpus
            if gone:
                vectors = contents.dense.vectors[kept] if contents.dense else None
                left = [contents.passages[row] for row in kept]
                self._change(left, vectors, progress, deleted=len(gone))
        return len(gone)

    def verify(self) -> None:
        """Read the whole stored index and compare it with the hashes taken when it was written.

        Raises:
            DamagedIndex: A file differs.
            WrongEncoder: The encoder that its name loads did not make these vectors.
        """
        if self.path is not None:
            check_hashes(self.path, read_manifest(self.path))
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

    def __len__(self) -> int:
        return len(self._state.contents.passages)

    def __iter__(self) -> Iterator[Passage]:
        return iter(self._state.contents.passages)

    def __repr__(self) -> str:
        return f"Index({self.description})"

    def __deepcopy__(self, memo: dict[int, Any]) -> Index:
        """Return itself: copies of a program share the index."""
        return self

    def _encode_query(self, query: str) -> NDArray[np.float32]:
        if self.encoder is None:
            raise MissingPart(self.kind, "vectors")
        return self.encoder.encode_query(query)

    def _made(self, contents: Contents, manifest: Manifest) -> _State:
        return _State(manifest, contents, contents.ranking(manifest.kind, self._encode_query))

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
            raise UnknownPassage(id)
        return row

    def _vectors_with(
        self, new: Sequence[Passage], progress: Progress | None
    ) -> NDArray[np.float32] | None:
        import numpy as np

        dense = self._state.contents.dense
        if dense is None or self.encoder is None:
            return None
        more = encode_texts([dense_text(p) for p in new], self.encoder, progress=progress)
        return np.concatenate([dense.vectors, more])

    def _change(
        self,
        passages: Sequence[Passage],
        vectors: NDArray[np.float32] | None,
        progress: Progress | None,
        *,
        added: int = 0,
        deleted: int = 0,
    ) -> None:
        manifest = self.manifest.changed(len(passages), added=added, deleted=deleted)
        contents = derive(manifest, passages, vectors, progress)
        if self.path is not None:
            manifest = store(self.path, contents, manifest)
        self._state = self._made(contents, manifest)
