"""Documents over HTTP: add, list and delete them; sync the index with its files."""

from __future__ import annotations

import asyncio
import hashlib
import re
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path, PureWindowsPath
from tempfile import TemporaryDirectory
from typing import Annotated, Any, NamedTuple, Self, TypeVar

from fastapi import FastAPI, HTTPException, Query, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field, TypeAdapter, ValidationError
from starlette.datastructures import UploadFile

from ga_dspy.errors import InputError
from ga_dspy.graphrag import GraphIndex
from ga_dspy.passage import Metadata, Passage, Value, replace_invalid
from ga_dspy.retrieval import Changes, Documents, Index, Where, read_files
from ga_dspy.retrieval.documents import READERS
from ga_dspy.retrieval.protocol import content_hash
from ga_dspy.retrieval.read import CHUNK_TOKENS, Chunking, Sources, split_text
from ga_dspy.retrieval.where import as_json, comparisons
from ga_dspy.serve.keys import Key, may
from ga_dspy.serve.service import Service
from ga_dspy.storage import in_thread

Fields = Annotated[dict[Annotated[str, Field(max_length=200)], Value], Field(max_length=60)]
Id = Annotated[str, Field(max_length=200, pattern=r"^[^#\x00-\x1f]*[^#\s\x00-\x1f]$")]
Writer = Annotated[Key, may("write")]
Result = TypeVar("Result")


class NewDocument(BaseModel):
    """A document as text."""

    id: Id | None = Field(None, description="By default a hash of title and text.")
    title: str = Field("", max_length=1_000)
    text: str = Field(pattern=r"\S")
    metadata: Fields = {}


class Upload(BaseModel):
    """Files; each becomes a document."""

    file: list[bytes]
    metadata: str = Field("{}", description="A JSON object, for all files.")


class DocumentInfo(BaseModel):
    """A document of the index."""

    id: str
    title: str = Field(description="Title of its first passage.")
    source: str = Field(description="Its file or address.")
    passages: int
    bytes: int = Field(description="Size of its text.")
    metadata: dict[str, Any] = Field(description="The metadata that all its passages share.")
    notes: list[str] = Field([], description="What was unusual in reading it.")

    @classmethod
    def of(cls, id: str, passages: Sequence[Passage], **more: Any) -> Self:
        """Describe a document by its passages."""
        shared = set.intersection(*(set(passage.metadata.items()) for passage in passages))
        metadata = dict(item for item in passages[0].metadata.items() if item in shared)
        source = passages[0].model_copy(update={"metadata": Metadata(metadata)}).source
        size = sum(len(passage.text.encode()) for passage in passages)
        return cls(id=id, title=passages[0].title, source=source, passages=len(passages),
                   bytes=size, metadata=metadata, **more)  # fmt: skip


class DocumentPage(BaseModel):
    """A page of the documents that the caller sees, in the order of the index."""

    total: int
    documents: list[DocumentInfo]


class WholeDocument(DocumentInfo):
    """A document with its text."""

    texts: list[Passage]


class Changed(BaseModel):
    """How many passages a change of the index added, changed, removed and left unchanged."""

    added: int = 0
    changed: int = 0
    removed: int = 0
    unchanged: int = 0
    documents: list[DocumentInfo] = Field([], description="The documents of the request.")
    notes: list[str] = Field([], description="Files that were not read completely, and why.")

    @classmethod
    def of(cls, changes: Changes, **more: Any) -> Changed:
        """Count the passages of a change."""
        counts = {name: len(ids) for name, ids in changes._asdict().items()}
        return cls.model_validate({**counts, **more})


class Draft(NamedTuple):
    """A document that was read but is not in the index yet."""

    id: str
    passages: Sequence[Passage]
    notes: tuple[str, ...] = ()


class DocumentStore:
    """The documents of a service's index, as each caller sees them.

    Requests change the index one after the other, each in one change; a question sees the index
    before or after a change. Each access scope has its own prefix of document ids, so callers with
    different conditions can use the same ids.

    Args:
        service: The service.

    Attributes:
        turns: Limits how many requests are read and processed concurrently.
    """

    def __init__(self, service: Service) -> None:
        self.service, self._lock = service, threading.Lock()
        self.turns = asyncio.Semaphore(service.limits.uploads)

    async def run(self, work: Callable[..., Result], *args: Any) -> Result:
        """Call a function in a thread, within the limit of concurrent requests."""
        async with self.turns:
            return await in_thread(work, *args)

    @property
    def whole(self) -> Index:
        """The index, regardless of the caller.

        Raises:
            HTTPException: The service has no index that callers may change (`Service.writable`).
        """
        if (index := self.service.writable) is None:
            raise HTTPException(
                409, "this server answers from a graph with labels or conditions, or from a custom "
                "retriever; add documents with `ga-dspy index add`, run `ga-dspy graph update`, "
                "and start it again",
            )  # fmt: skip
        return index

    @contextmanager
    def changing(self) -> Iterator[Index]:
        """Yield the index while no other request changes it, then update its graph.

        The graph is also updated first: if the LM is not the one that read the graph, that is an
        error before the index has changed.
        """
        with self._lock:
            self.whole.refresh()
            self.service.update_graph()
            yield self.whole
            self.service.update_graph()

    def view(self, caller: Key) -> Index:
        """Return the index as a caller sees it."""
        _ = self.whole  # raises if there is no index
        retriever = self.service.program_for(caller).retriever
        view: Index = retriever.index if isinstance(retriever, GraphIndex) else retriever
        return view

    def page(self, caller: Key, first: int, most: int) -> DocumentPage:
        """Return up to `most` documents from position `first` on."""
        total, found = self.view(caller).documents(first, most)
        documents = [DocumentInfo.of(document.id, document.passages) for document in found]
        return DocumentPage(total=total, documents=documents)

    def find(self, caller: Key, id: str) -> WholeDocument:
        """Return a document by its id in the index, or by the id that it was added with.

        Raises:
            HTTPException: The caller sees no such document.
        """
        view = self.view(caller)
        found = view.document(id) or view.document(self._prefix(caller) + id)
        if found is None:
            raise HTTPException(404, f"there is no document {id!r}")
        return WholeDocument.of(found.id, found.passages, texts=found.passages)

    def read_text(self, given: NewDocument) -> list[Draft]:
        """Redact a text as the index requires, and split it into passages."""
        title, text = given.title.strip(), given.text
        if redactor := self.whole.redactor:
            title, text = redactor(title), redactor(text)
        id = given.id or content_hash(title, text)
        metadata = Metadata({"source": id, **self._metadata(given.metadata)})
        return [Draft(id, split_text(id, title, text, metadata, self._cutting()))]

    def read_uploads(self, files: Sequence[UploadFile], given: Fields) -> list[Draft]:
        """Read uploaded files, each as a document with the name of the file as its id.

        Raises:
            InputError: A name is unusable or occurs twice, or a file cannot be read.
        """
        names = [_file_name(file) for file in files]
        if len(set(names)) < len(names) or not names:
            found = f"{len(names)} files, named {', '.join(names)}"[:300] if names else "no file"
            expected = "one or more in the field `file`, with different names"
            raise InputError(found, expected=expected, remedy="rename files with equal names")
        return [self._read(n, file, given) for n, file in zip(names, files, strict=True)]

    def put(self, caller: Key, drafts: Sequence[Draft]) -> Changed:
        """Add documents, replacing those that the caller added with the same ids.

        Raises:
            InputError: There are too many passages, or metadata contradict the caller's conditions.
        """
        most, counts = self.service.limits.passages, [len(draft.passages) for draft in drafts]
        if sum(counts) > most or 0 in counts:
            found = f"{sum(counts):,} passages in {len(drafts)} documents"
            expected = f"text in each document, and at most {most:,} passages in one request"
            raise InputError(found, expected=expected)
        scope, prefix = self._scope(caller), self._prefix(caller)
        documents = [_with_scope(draft, scope, prefix) for draft in drafts]
        new = [passage for draft in documents for passage in draft.passages]
        with self.changing() as whole:
            view = self.view(caller)
            replaced = filter(None, map(view.document, [draft.id for draft in documents]))
            old = {passage.id for document in replaced for passage in document.passages}
            if any(passage.id in whole and passage.id not in old for passage in new):
                raise HTTPException(409, "the id cannot be used; choose another")
            redactor = whole.redactor
            read = Documents(new, (), redacted_by=redactor.name if redactor else "")
            changes = whole.upsert(read, delete=old)
        infos = [DocumentInfo.of(one.id, one.passages, notes=one.notes) for one in documents]
        return Changed.of(changes, documents=infos)

    def delete(self, caller: Key, id: str) -> Changed:
        """Delete a document.

        Raises:
            HTTPException: The caller sees no such document.
            InputError: The index has no other document.
        """
        with self.changing() as whole:
            passages = self.find(caller, id).texts
            if len(passages) == len(whole):
                raise InputError(f"{id!r} is the last document", remedy="add another one first")
            return Changed(removed=whole.delete(passage.id for passage in passages))

    def sync(self, caller: Key, yes: bool) -> Changed:
        """Update the index to the current contents of its files; uploaded documents stay.

        Raises:
            HTTPException: The caller does not see the whole index, or more than half of it would
                be deleted.
            InputError: The index was not built from files.
        """
        index = self.view(caller)
        if index.scope:
            raise HTTPException(403, "a key with conditions may not sync the whole index")
        if index.path is None:
            raise HTTPException(409, "an index in memory has no files; serve a stored one")
        with self.changing():
            sources = Sources.of(index.path)
            found = sources.read(index.path, index).with_uploads(index)
            deleted = found.deleted_from(index)
            if 2 * deleted > len(index) and not yes:
                raise HTTPException(
                    409, f"{deleted} of {len(index)} passages would be deleted; check the files, "
                    "or send yes=true",
                )  # fmt: skip
            changes = index.sync(found)
            sources.save(index.path, found.files)
        return Changed.of(changes, notes=[str(f) for f in found.files if not f.is_whole][:100])

    def _read(self, name: str, file: UploadFile, given: Fields) -> Draft:
        (chunk_tokens, overlap), redact = self._cutting(), self.whole.redactor
        given = self._metadata(given)
        with TemporaryDirectory(prefix="ga-dspy-") as folder:
            with (Path(folder) / name).open("wb") as out:
                shutil.copyfileobj(file.file, out)
            found = read_files(folder, chunk_tokens=chunk_tokens, overlap=overlap, redact=redact)
        notes = found.files[0].notes
        if not found.passages:
            expected = f"a text, or a file of {', '.join(filter(None, READERS))}"
            raise InputError(f"{name} was not read ({'; '.join(notes)})", expected=expected)
        passages = []
        for number, passage in enumerate(found.passages, start=1):
            id = name if len(found.passages) == 1 else f"{name}#{number}"
            metadata = Metadata({**passage.metadata, **given})
            passages.append(passage.model_copy(update={"id": id, "metadata": metadata}))
        return Draft(name, passages, notes)

    def _metadata(self, given: Mapping[str, Value]) -> Metadata:
        """Redact metadata as the index requires."""
        redactor = self.whole.redactor
        return redactor.metadata(given, keep=("source",)) if redactor else Metadata(given)

    def _cutting(self) -> Chunking:
        """Return the passage size and the overlap of the index."""
        path = self.whole.path
        stored = Sources.of(path) if path else Sources()
        return Chunking(stored.chunk_tokens or CHUNK_TOKENS, stored.overlap)

    def _scope(self, caller: Key) -> tuple[Where, ...]:
        """Return the conditions of the server and of the caller."""
        own = () if caller.where is None else (caller.where,)
        return (*self.service.program.retriever.scope, *own)

    def _prefix(self, caller: Key) -> str:
        """Return the prefix of the ids of the caller's documents."""
        scope = "".join(map(as_json, self._scope(caller)))
        return f"upload-{hashlib.sha256(scope.encode()).hexdigest()[:12]}:" if scope else "upload:"


def _file_name(file: UploadFile) -> str:
    name = replace_invalid(PureWindowsPath(file.filename or "").name)
    if not re.fullmatch(r"[^.#\x00-\x1f][^#\x00-\x1f]*", name) or len(name.encode()) > 200:
        expected = "at most 200 bytes without # and control characters, and no hidden file"
        raise InputError(f"the file name {name[:80]!r}", expected=expected)
    return name


def _with_scope(draft: Draft, scope: Sequence[Where], prefix: str) -> Draft:
    """Return a document with the prefix of its caller's ids and the metadata of the conditions.

    Raises:
        InputError: Its metadata contradict the conditions.
    """
    wanted = [comparison for where in scope for comparison in comparisons(where)]
    single = [(name, *values) for name, sign, values in wanted if sign == "=" and len(values) == 1]
    fixed = Metadata((name, value) for name, value in single)
    unmet, passages = dict[str, Any](), list[Passage]()
    for passage in draft.passages:
        unmet |= {n: v for n, v in passage.metadata.items() if fixed.get(n, v) != v}
        id, metadata = prefix + passage.id.removeprefix(prefix), {**fixed, **passage.metadata}
        passages.append(passage.model_copy(update={"id": id, "metadata": Metadata(metadata)}))
    for name, value in (unmet or _unmet(passages, scope)).items():
        found = f"the metadata {name!r} of {draft.id!r} is {value!r:.80}"
        expected = f"a value that meets the key's conditions: {', '.join(map(as_json, scope))}"
        raise InputError(found, expected=expected, remedy="omit the metadata that the server sets")
    return Draft(prefix + draft.id.removeprefix(prefix), passages, draft.notes)


def _unmet(passages: Sequence[Passage], scope: Sequence[Where]) -> dict[str, Any]:
    """Return metadata of a passage that does not meet the conditions; empty if all do."""
    if not scope:
        return {}
    # A condition on a field that no passage has is an error, so add passages with its values.
    wanted = [{name: list(values)} for where in scope for name, _, values in comparisons(where)]
    typed = [Passage(id=f" {n}", text="-", metadata=Metadata(w)) for n, w in enumerate(wanted)]
    distinct = {passage.metadata: passage for passage in passages}.values()
    index = Index.from_passages([*distinct, *typed], kind="sparse")
    for where in scope:
        met = index.only(where).ids
        for passage in distinct:
            if passage.id not in met:
                return {name: passage.metadata.get(name) for name in where}
    return {}


_FORMS: dict[str, Any] = {"application/json": NewDocument, "multipart/form-data": Upload}
_CONTENT = {form: {"schema": kind.model_json_schema()} for form, kind in _FORMS.items()}
_BODY = {"requestBody": {"required": True, "content": _CONTENT}}


def add_documents(app: FastAPI, service: Service) -> None:
    """Add the endpoints for documents to an app."""
    store = DocumentStore(service)

    @app.post("/documents", status_code=201, openapi_extra=_BODY)
    async def add(request: Request, caller: Writer) -> Changed:
        """Add a document as JSON, or files in any format that `ga-dspy index` reads.

        They replace documents that the caller added with the same ids. Needs a key with the right
        `write`, else 403.
        """
        _ = store.whole  # raises if there is no index
        async with store.turns:
            if "json" in request.headers.get("content-type", "").lower():
                given = _validated(NewDocument, await request.body())
                drafts = await in_thread(store.read_text, given)
                return await in_thread(store.put, caller, drafts)
            async with request.form(max_files=service.limits.files, max_fields=10) as form:
                files = [part for _, part in form.multi_items() if isinstance(part, UploadFile)]
                fields = _validated(Fields, str(form.get("metadata", "{}")))
                drafts = await in_thread(store.read_uploads, files, fields)
            return await in_thread(store.put, caller, drafts)

    @app.get("/documents")
    async def documents(
        caller: Writer, first: Annotated[int, Query(ge=0, le=2**31)] = 0,
        k: Annotated[int, Query(ge=1, le=1_000)] = 100,
    ) -> DocumentPage:  # fmt: skip
        """List documents. Needs a key with the right `write`, else 403."""
        return await store.run(store.page, caller, first, k)

    @app.get("/documents/{id:path}")
    async def document(id: str, caller: Writer) -> WholeDocument:
        """Return a document and its passages. Needs a key with the right `write`, else 403."""
        return await store.run(store.find, caller, id)

    @app.delete("/documents/{id:path}")
    async def delete(id: str, caller: Writer) -> Changed:
        """Delete a document. Needs a key with the right `write`, else 403.

        A sync adds back a document that is still in a file of the index.
        """
        return await store.run(store.delete, caller, id)

    @app.post("/sync")
    async def sync(caller: Writer, yes: bool = False) -> Changed:
        """Update the index to its files, like `ga-dspy index sync`; uploaded documents stay.

        With `yes`, it may delete more than half of the passages. Needs a key with the right `write`
        and without conditions, else 403.
        """
        return await store.run(store.sync, caller, yes)


def _validated(kind: Any, content: str | bytes) -> Any:
    try:
        return TypeAdapter(kind).validate_json(content)
    except ValidationError as error:
        raise RequestValidationError(error.errors(include_context=False)) from error
