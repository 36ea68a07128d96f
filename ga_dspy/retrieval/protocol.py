"""The retriever protocol, and adapters to it."""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import re
import threading
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import cache, partial
from inspect import Parameter
from math import isnan
from numbers import Real
from os import getpid
from typing import Any, NamedTuple, Protocol, Self, TypeAlias

from ga_dspy.errors import InputError
from ga_dspy.passage import Metadata, Passage, replace_invalid
from ga_dspy.retrieval.where import Where, closed_keys
from ga_dspy.storage import in_thread

# --- Results of any form as passages

TEXT_KEYS = (
    "text", "long_text", "page_content", "content", "contents", "passage", "paragraph_text",
    "context",
)  # fmt: skip
_ID_KEYS = ("id", "_id", "pid", "doc_id", "docid", "passage_id", "node_id")
_SEARCH_KEYS = ("score", "_score", "distance", "similarity", "rank", "embedding", "vector")
_KNOWN = frozenset((*TEXT_KEYS, *_ID_KEYS, *_SEARCH_KEYS, "title", "metadata"))
_LONGEST_TITLE = 150
_QUOTED_TITLE = re.compile(r'"([^"\n]{1,150})"\n')


def _unreadable(found: object, where: str) -> InputError:
    return InputError(
        f"{where} is {type(found).__name__} {found!r:.120}",
        expected="passages: strings, mappings with 'text' (and 'title'), LangChain documents, "
        "LlamaIndex nodes, Passages, or a prediction with .passages",
        remedy="wrap the retriever in a function that returns one of these",
    )


def content_hash(title: str, text: str) -> str:
    """Return the id of a passage without one: 16 hex digits of the SHA-256 of its content.

    >>> content_hash("Red Lodge", "A city.")
    'edf0505b5f920980'
    """
    return hashlib.sha256(f"{title}\n{text}".encode()).hexdigest()[:16]


def as_passages(items: Any) -> Iterator[Passage]:
    """Yield the passages of a corpus, in any form that a retriever may return.

    Raises:
        InputError: The corpus is not a collection of passages, or an item has no text.
    """
    for number, item in enumerate(_collection(items, "the corpus"), start=1):
        passage = _passage(item, f"passage {number}")
        if passage is None:
            raise _unreadable(item, f"passage {number}")
        yield passage


def read_results(result: Any) -> list[Passage]:
    """Return the passages of a retriever's result, without blank ones; None means no results.

    Raises:
        InputError: The result is not a collection of passages, or no item has text.
    """
    if result is None:
        return []
    items = list(_collection(result, "the retriever's result"))
    parsed = [_passage(item, f"result {number}") for number, item in enumerate(items, start=1)]
    passages = [passage for passage in parsed if passage and passage.content.strip()]
    if items and not passages:
        raise _unreadable(items[0], "result 1")
    return passages


def _collection(result: Any, where: str) -> Iterable[Any]:
    is_mapping = isinstance(result, Mapping)
    items = result.get("passages", result) if is_mapping else getattr(result, "passages", result)
    if items is None and result is not None:
        return ()
    if isinstance(items, (str, bytes, Mapping, Passage)) or not isinstance(items, Iterable):
        raise _unreadable(items, where)
    return items


def _passage(item: Any, where: str) -> Passage | None:
    """Return the passage of an item; None if it has no text."""
    if item is None or isinstance(item, Passage):
        return item
    if isinstance(item, tuple) and len(item) == 2 and isinstance(item[1], Real):
        return _passage(item[0], where)
    if isinstance(item, str):
        return _from_fields({"text": item})
    fields = item if isinstance(item, Mapping) else _attributes(item)
    if fields is None:
        raise _unreadable(item, where)
    return _from_fields(fields)


def _attributes(item: Any) -> dict[str, Any] | None:
    """Return the fields of a LangChain, LlamaIndex or DSPy document; None for other objects."""
    node = getattr(item, "node", item)
    keys = (*TEXT_KEYS, *_ID_KEYS, "title", "metadata")
    fields = {key: getattr(node, key, None) for key in keys}
    if callable(content := getattr(node, "get_content", None)):
        fields["text"] = content()
    return fields if any(isinstance(fields[key], str) for key in TEXT_KEYS) else None


class Row(NamedTuple):
    """A row of a data file, or an item of a retriever's result; missing fields are empty.

    Attributes:
        title: The title.
        text: The text.
        id: The id.
        metadata: The other fields.
        is_paragraph: Whether the row is a paragraph of a dataset, which is not split.
    """

    title: str
    text: str
    id: str = ""
    metadata: Metadata = Metadata()
    is_paragraph: bool = False


def row_of(fields: Mapping[Any, Any]) -> Row:
    r"""Make a row of a mapping with the usual keys; its other fields become metadata.

    >>> row_of({"_id": 7, "title": "Red Lodge", "contents": "A city.", "url": "red.example"})[:4]
    ('Red Lodge', 'A city.', '7', {'url': 'red.example'})

    In FlashRAG's corpora, the first line of `contents` is the title in quotes:

    >>> row_of({"id": "0", "contents": '"Red Lodge"\nA city.'})[:2]
    ('Red Lodge', 'A city.')

    NaN, which stands for missing values in pandas, counts as missing:

    >>> row_of({"title": float("nan"), "text": "A city."}).title
    ''
    """
    fields = {k: v for k, v in fields.items() if not (isinstance(v, float) and isnan(v))}
    texts = (fields.get(key) for key in TEXT_KEYS)
    text = next((text for text in texts if isinstance(text, str) and text.strip()), "")
    metadata = fields.get("metadata")
    more = metadata if isinstance(metadata, Mapping) else {}
    title = fields.get("title") or more.get("title") or ""
    if not title and text == fields.get("contents") and (quoted := _QUOTED_TITLE.match(text)):
        title, text = quoted[1], text[quoted.end() :]
    ids = (source.get(key) for source in (fields, more) for key in _ID_KEYS)
    id = next((str(v) for v in ids if v is not None and str(v) != ""), "")
    others = {key: value for key, value in fields.items() if key not in _KNOWN} | {**more}
    if others.get("title") == title:
        del others["title"]
    public = {k: v for k, v in others.items() if k and not str(k).startswith("_")}
    title, text, id = (replace_invalid(str(part)).strip() for part in (title, text, id))
    return Row(title, text, id, Metadata(public))


def _from_fields(fields: Mapping[str, Any]) -> Passage | None:
    title, text, id, metadata, _ = row_of(fields)
    if not text:
        return None
    if not title:
        title, text = (part.strip() for part in _split_title(text))
    id = id or content_hash(title, text)
    return Passage(id=id, title=title, text=text, metadata=metadata)


def _split_title(text: str) -> tuple[str, str]:
    """Split `Title | text`, as DSPy's corpora have it, unless the title would be too long."""
    title, bar, rest = text.partition(" | ")
    if bar and rest.strip() and len(title) <= _LONGEST_TITLE and "\n" not in title:
        return title, rest
    return "", text


def _with_distinct_ids(passages: Iterable[Passage]) -> list[Passage]:
    """Make ids unique, and drop repeated passages.

    The chunks of a document may all have its id, and a document may change between two searches.
    For another text with the same id, `#` and 8 hex digits of its hash are added to the id.

    >>> chunks = [Passage(id="a", text="One."), Passage(id="a", text="Two.")]
    >>> [passage.id for passage in _with_distinct_ids(chunks)]
    ['a', 'a#c2d08c52']
    """
    texts: dict[str, str] = {}
    found: dict[str, Passage] = {}
    for passage in passages:
        if texts.setdefault(passage.id, passage.content) != passage.content:
            mark = content_hash(passage.title, passage.text)[:8]
            passage = passage.model_copy(update={"id": f"{passage.id}#{mark}"})
        found.setdefault(passage.id, passage)
    return list(found.values())


# --- Retrievers


class Retriever(Protocol):
    """A callable that returns at most `k` passages for a query, best first."""

    def __call__(self, query: str, k: int) -> list[Passage]:
        """Return at most `k` passages for the query, best first."""


def as_retriever(obj: Any) -> PassageRetriever:
    """Make a `Retriever` of an index, a callable, or a DSPy, LangChain or LlamaIndex retriever.

    Results may be strings (`"Title | text"` is split), mappings (`title` with `text`, `long_text`,
    `page_content`, `content` or `passage`), documents, nodes, `Passage`s, (document, score)
    pairs, or a prediction with `.passages`. Metadata is kept, as are other keys of a mapping,
    except scores and vectors. A passage without an id gets the hash of its content as its id; if
    two texts have the same id, the second one's gets a hash, too. Repeated passages and results
    beyond `k` are dropped.

    The retriever may be asynchronous: a program called with `acall` awaits it, any other call
    blocks until it is done.

    Args:
        obj: The retriever. If it has a depth parameter (`k`, `top_k`, `n`, …), each search sets it;
            otherwise the configured depth is the upper bound.

    Raises:
        InputError: The object is not callable and has no retrieval method.

    >>> search = as_retriever(lambda query: ["Red Lodge | A city in Montana.", "Untitled text."])
    >>> [(passage.title, passage.text) for passage in search("montana", k=5)]
    [('Red Lodge', 'A city in Montana.'), ('', 'Untitled text.')]
    """
    if isinstance(obj, PassageRetriever):
        return obj
    return AdaptedRetriever(obj)


class PassageRetriever(ABC):
    """Base class of retrievers; `as_retriever` returns its instances unchanged."""

    require: tuple[str, ...] = ()
    """Metadata fields that every search must filter on."""

    @property
    def scope(self) -> tuple[Where, ...]:
        """The access scope: conditions that all returned passages meet."""
        return ()

    def only(self, where: Where) -> PassageRetriever:
        """Return a view of the passages that meet conditions, in addition to those of this view.

        Raises:
            InputError: This retriever cannot apply conditions, or one of them is malformed.
        """
        raise InputError(
            f"conditions on metadata for {self._name}, which cannot apply them",
            expected="an Index, which can",
            remedy="filter inside the retriever, without where=… and only(…)",
        )

    def check_scope(self) -> None:
        """Raise `InputError` if the scope lacks a condition on a required field."""
        if self._unscoped:
            name = self._unscoped[0]
            raise InputError(
                f"no condition on {name!r}, which is required of every search",
                expected="a value, a list of values or `within`",
                remedy=f"search index.only({{{name!r}: …}}), ask program.only({{{name!r}: …}}), or "
                f"pass --where {name}=…",
            )

    @property
    def _unscoped(self) -> list[str]:
        """The required fields without a condition."""
        scoped = set[str]().union(*map(closed_keys, self.scope))
        return [name for name in self.require if name not in scoped]

    @property
    def _name(self) -> str:
        return type(self).__name__

    @abstractmethod
    def __call__(self, query: str, k: int) -> list[Passage]:
        """Return at most `k` passages, best first.

        Args:
            query: The search query.
            k: Passages to retrieve.
        """

    async def acall(self, query: str, k: int) -> list[Passage]:
        """Search from a coroutine; by default in a worker thread."""
        return await in_thread(self, query, k)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return itself, so that copies of a program share the retriever."""
        return self


class AdaptedRetriever(PassageRetriever):
    """Adapts another retriever; stateless, so it is as thread-safe as its source."""

    def __init__(self, source: Any) -> None:
        self.source = source
        self._search, self._asearch = _searches(source)

    def __call__(self, query: str, k: int) -> list[Passage]:
        """Return at most `k` distinct passages for the query, in the order of the source.

        Raises:
            InputError: The query is blank, `k` is below 1, or the source returned no passages.
        """
        check_query(query, k)
        result = self._search(query, k)
        found = _run_to_end(result) if inspect.isawaitable(result) else result
        return _with_distinct_ids(read_results(found))[:k]

    async def acall(self, query: str, k: int) -> list[Passage]:
        """Await an asynchronous source; call any other in a worker thread."""
        check_query(query, k)
        search = self._asearch or partial(in_thread, self._search)
        found = await search(query, k)
        found = await found if inspect.isawaitable(found) else found
        return _with_distinct_ids(read_results(found))[:k]

    @property
    def _name(self) -> str:
        return getattr(self.source, "__qualname__", type(self.source).__qualname__)

    def __reduce__(self) -> tuple[type[Self], tuple[Any]]:
        """Pickle only the source."""
        return type(self), (self.source,)


def check_query(query: str, k: int) -> None:
    """Raise `InputError` unless the query is a text that is not blank and `k` is at least 1."""
    if not isinstance(query, str) or not query.strip():
        raise InputError(
            f"the query is {query!r}",
            expected="a text that is not blank",
            remedy="skip the search if there is no query",
        )
    if isinstance(k, bool) or not isinstance(k, int) or k < 1:
        raise InputError(f"k is {k!r}", expected="a whole number from 1", remedy="pass k=5")


# --- How a retriever is called

_DEPTH_NAMES = ("k", "top_k", "topk", "n", "n_results", "num_results", "max_results", "limit")

_METHODS = (("invoke", "ainvoke"), ("__call__", "acall"), ("retrieve", "aretrieve"))


_Search: TypeAlias = Callable[[str, int], Any]


def _by_signature(function: Callable[..., Any], described: Any = None) -> _Search:
    """Wrap a function to take a query and a depth, whatever its signature.

    Args:
        function: The function to call.
        described: Another function whose signature is inspected instead.
    """
    try:
        parameters = [*inspect.signature(described or function).parameters.values()]
    except (TypeError, ValueError):
        return lambda query, k: function(query)
    keyword, rest = "", parameters[1:]
    if parameters and parameters[0].kind in (Parameter.KEYWORD_ONLY, Parameter.VAR_KEYWORD):
        keyword, rest = "query", [p for p in parameters if p.name != "query"]
    depth = _depth_keyword(rest)

    def search(query: str, k: int) -> Any:
        arguments = ((keyword, query), (depth, k))
        positional = [value for name, value in arguments if name == ""]
        return function(*positional, **{name: value for name, value in arguments if name})

    return search


def _depth_keyword(parameters: Sequence[Parameter]) -> str | None:
    """Return the keyword of the depth parameter among those after the query.

    "" means that it is positional-only, None that there is no depth parameter.
    """
    by_name = {p.name: p for p in parameters}
    variadic = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
    required = [p for p in parameters if p.default is p.empty and p.kind not in variadic]
    depth = next((by_name[name] for name in _DEPTH_NAMES if name in by_name), None)
    if depth is None and len(required) == 1:
        depth = required[0]
    if depth is None:
        return None
    return "" if depth.kind is Parameter.POSITIONAL_ONLY else depth.name


def _searches(source: Any) -> tuple[_Search, _Search | None]:
    """Return the search function of a source, and its asynchronous one if there is one."""
    if not isinstance(source, (str, bytes, Mapping, type)):
        # Looked up on the class, because DSPy warns if the `forward` of a module is accessed.
        steps = (inspect.getattr_static(type(source), n, None) for n in ("forward", "aforward"))
        forward, aforward = (step and step.__get__(source) for step in steps)
        acall = getattr(source, "acall", aforward)
        awaited = _by_signature(acall, aforward) if aforward else None
        if search := _by_signature(source, forward) if forward else awaited:
            return search, awaited
        for name, async_name in _METHODS:
            method = getattr(source, name, None)
            if name == "__call__" and callable(source):
                method = source  # a function's own signature, not that of its __call__
            methods = (method, getattr(source, async_name, None))
            found = [_by_signature(method) if callable(method) else None for method in methods]
            if search := found[0] or found[1]:
                return search, found[1]
    raise InputError(
        f"{type(source).__name__} is not a retriever",
        expected="a ga_dspy Index, a callable (query, k) -> passages, or a DSPy, LangChain or "
        "LlamaIndex retriever",
        remedy="wrap it in a function that takes a query and returns passages",
    )


# --- Asynchronous retrievers in synchronous programs

_starting = threading.Lock()


def _run_to_end(awaitable: Awaitable[Any]) -> Any:
    """Run an awaitable in one persistent event loop, to which a client's connections belong."""

    async def finish() -> Any:
        return await awaitable

    with _starting:
        loop = _background_loop(getpid())
    if asyncio._get_running_loop() is loop:
        # A search inside a search would deadlock in the same loop.
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(copy_context().run, asyncio.run, finish()).result()
    future = asyncio.run_coroutine_threadsafe(finish(), loop)
    try:
        return future.result()
    finally:
        future.cancel()  # if the wait was interrupted


@cache
def _background_loop(process: int) -> asyncio.AbstractEventLoop:
    """Return the event loop of a process, which runs in a thread; a forked process has another."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="retrievers", daemon=True).start()
    return loop
